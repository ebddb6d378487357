/* SPDX-License-Identifier: MIT */
/*
 * table.h - the results of --tune, and their file ("symm-costs/1").
 *
 * The file has curves for the runtime. For the planner it has a line for each algorithm,
 * fitted to the curves of the all-reduce over the largest team. It is written whole or not
 * at all.
 */
#ifndef PERF_TABLE_H
#define PERF_TABLE_H

#include "perf/variants.h"

#define TABLE_POINTS 64 /* of a curve, at most */

/* One collective on one kind of data over one team, in or out of place. */
struct table_set {
    enum perf_kind kind;
    const char *data; /* the name in the file: "half" */
    symm_dtype dtype;
    symm_op op;
    bool in_place;
    int ranks;
    int wanted, timed; /* sizes */
    /* Of each algorithm: its points, and the size from which on it is too slow to time. */
    int count[PERF_ALGORITHMS];
    double bytes[PERF_ALGORITHMS][TABLE_POINTS], us[PERF_ALGORITHMS][TABLE_POINTS];
    size_t hopeless[PERF_ALGORITHMS];
    double ratio[PERF_ALGORITHMS]; /* to the best, at the previous size */
};

struct table {
    struct table_set *sets;
    int set_count;
    double barrier_us;
};

/* Keeps the points in order of bytes, and the lesser of two times for one size. */
void table_add(struct table_set *set, size_t bytes, const struct perf_timing *timing);
/* An exit status, after a message. */
int table_write(const struct table *table, const struct perf_job *job,
                const char *path);

#endif
