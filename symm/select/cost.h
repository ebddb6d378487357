/* SPDX-License-Identifier: MIT */
/*
 * cost.h - what a call costs by each algorithm: tables measured on a machine, and a model
 * for all others.
 *
 * A table has curves, each of one algorithm for one collective, kind of data, place and
 * number of ranks: microseconds by bytes. Between two points a curve is a straight line in
 * bytes, since a call takes a latency and bytes over a bandwidth; before the first it is
 * flat, behind the last it goes on as its last piece. Where one curve ends and another goes on,
 * the first was given up as hopeless, and is no candidate from there on. All are pure
 * functions of their arguments.
 */
#ifndef SYMM_SELECT_COST_H
#define SYMM_SELECT_COST_H

#include "kernels/launch.h"

struct symm_question;

/* What decides, beside the bytes, how fast an algorithm is. */
#define SYMM_COST_DATA_MAP(X)                                                          \
    X(FLOAT32, "float32") /* sums of float32 */                                        \
    X(HALF, "half")       /* sums of float16 and bfloat16 */                           \
    X(FLOAT, "float")     /* what else is reduced of floats of up to 32 bits */        \
    X(INT32, "int32")     /* sums of int32 */                                          \
    X(OTHER, "other")     /* what else is reduced */                                   \
    X(ANY, "any")         /* nothing is reduced */

enum symm_cost_data {
#define SYMM_COST_DATA_ENUM(id, name) SYMM_COST_##id,
    SYMM_COST_DATA_MAP(SYMM_COST_DATA_ENUM)
#undef SYMM_COST_DATA_ENUM
        SYMM_COST_DATA_COUNT
};

struct symm_cost_point {
    double bytes; /* of one rank's block, as the call counts */
    double us;
};

struct symm_cost_curve {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    enum symm_cost_data data;
    bool in_place;
    int ranks;
    int first, count; /* its points, in order of bytes; at least one */
};

struct symm_cost_table {
    const char *name;            /* "SYMM_COSTS", "built-in h200" */
    const char *const *machines; /* whose table it is; ends with NULL */
    const struct symm_cost_curve *curves;
    int curve_count;
    const struct symm_cost_point *points;
};

/* One that was read from a file. */
struct symm_cost_file {
    struct symm_cost_table table;
    uint64_t hash;                  /* of its content */
    struct symm_costs *source;      /* owned, and has the machines */
    struct symm_cost_curve *curves; /* owned */
    struct symm_cost_point *points; /* owned */
};

/* costs_tables.c, which the build makes (costs_source.c); ends with a table without a name. */
extern const struct symm_cost_table symm__cost_tables[];

/* cost.c */
enum symm_cost_data symm__cost_data(enum symm_kind kind, symm_dtype dtype, symm_op op);
/* Microseconds of that curve at so many bytes. */
double symm__cost_at(const struct symm_cost_table *table,
                     const struct symm_cost_curve *curve, size_t bytes);
/* What the question's table says of the algorithm; false: nothing, or there is none. A
 * curve of the other place (in or out of it) serves where there is none of this one. */
bool symm__cost_measured(const struct symm_question *question,
                         enum symm_algorithm algorithm, double *us);
/* Bytes of the last point of that curve; -1: there is none. */
double symm__cost_reach(const struct symm_question *question,
                        enum symm_algorithm algorithm);
/* The model: a launch, hops or barriers, and bytes received over a bandwidth. */
double symm__cost_model(const struct symm_question *question,
                        enum symm_algorithm algorithm);

#endif
