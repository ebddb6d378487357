/* SPDX-License-Identifier: MIT */
/*
 * cost.h - what a call costs by each algorithm, for the choice at run time and for plans:
 * curves that were measured on a machine, and a model where there are none.
 *
 * A table has curves, each of one algorithm for one collective, kind of data, place and
 * number of ranks: microseconds by bytes. Between two points a curve is a straight line in
 * bytes, since a call takes a latency and bytes over a bandwidth; before the first point it
 * is flat, after the last it goes on as its last piece. If one curve ends where another one goes
 * on, the first algorithm was too slow to be measured further, and is no candidate beyond that.
 *
 * The model has a line for each algorithm: latency_us + bytes received / bytes_per_us, and
 * barrier_us for each of its barriers. All are pure functions of their arguments.
 */
#ifndef SYMM_SELECT_COST_H
#define SYMM_SELECT_COST_H

#include "symm/plan.h"

#define SYMM_COST_MACHINES 8 /* of one table, at most */

struct symm_cost_line {
    bool usable; /* plans may choose the algorithm */
    double latency_us, bytes_per_us;
};

struct symm_costs {
    double barrier_us;
    double memory_us_per_gib; /* what a GiB of arena is worth, per period */
    struct symm_cost_line lines[SYMM_ALGORITHM_COUNT];
    uint64_t hash;                          /* of the file; 0: built in */
    char *machines[SYMM_COST_MACHINES + 1]; /* whose curves these are; ends with NULL */
    const symm_costs_curve *curves;
    int curve_count;
    void *memory; /* of curves and their points, owned, as machines are; NULL: static */
};

/* The model of GPUs of one host with NVLink, and that of a processor's cores. */
extern const symm_costs symm__costs_built_in, symm__costs_cores;
/* costs_tables.c, which the build makes (costs_source.c); ends with NULL. */
extern const symm_costs *const symm__costs_tables[];

/* A call, as far as its costs depend on it. */
struct symm_cost_call {
    symm_program_kind collective;
    symm_costs_data data;
    bool in_place;
    int ranks;
    double bytes; /* of one rank's block, as the call counts */
};

symm_costs_data symm__cost_data(symm_program_kind collective, symm_dtype dtype,
                                symm_op op);
/* Microseconds of the curve at so many bytes. */
double symm__cost_at(const symm_costs_curve *curve, double bytes);
/* The call's curve by each algorithm; NULL: it has none, as without costs (NULL). A curve of
 * the other place (in or out of it) serves where there is none of the call's. */
void symm__cost_curves(const symm_costs *costs, const struct symm_cost_call *call,
                       const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT]);
/* Drops the candidates without a curve, and those whose measurement ended below so many bytes.
 * False: none has a curve, and nothing was dropped. */
bool symm__cost_keep_measured(
    const symm_costs_curve *const curves[SYMM_ALGORITHM_COUNT], double bytes,
    bool candidates[SYMM_ALGORITHM_COUNT]);
/*
 * Microseconds of a call by an algorithm, by its curve or, where that is NULL, by the model;
 * where the costs have no line for it, by that of symm__costs_built_in. _alone: with the
 * algorithm's own barriers, as outside of a plan. _body: without them, for plans.
 */
double symm__cost_alone(const symm_costs *costs, const struct symm_cost_call *call,
                        symm_algorithm algorithm, const symm_costs_curve *curve);
double symm__cost_body(const symm_costs *costs, const struct symm_cost_call *call,
                       symm_algorithm algorithm, const symm_costs_curve *curve);

#endif
