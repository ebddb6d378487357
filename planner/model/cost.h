/* SPDX-License-Identifier: MIT */
/*
 * cost.h - what calls, barriers and memory cost: a measured table ("symm-costs/1") or the
 * built-in model, and the choice of an algorithm by it.
 *
 * A call takes latency_us + bytes moved / bytes_per_us: an affine model, one line for each
 * algorithm. docs/planner.md says how many bytes each algorithm moves. The curves that a
 * table may have beside are kept for who asks (symm_costs_curve_at).
 */
#ifndef SYMM_PLANNER_MODEL_COST_H
#define SYMM_PLANNER_MODEL_COST_H

#include "model/algorithm.h"

struct cost_line {
    bool usable;
    double latency_us, bytes_per_us;
};

#define COST_MACHINES 8 /* of one table, at most */

struct symm_costs {
    double barrier_us;
    double memory_us_per_gib; /* what a GiB of arena is worth, per period */
    struct cost_line lines[SYMM_ALGORITHM_COUNT];
    /* What was measured, for the runtime; the planner goes by the lines. */
    uint64_t hash;
    char *machines[COST_MACHINES + 1]; /* owned; NULL behind the last */
    symm_costs_curve *curves;          /* owned, as is points */
    symm_costs_point *points;
    int curve_count;
};

extern const struct symm_costs symm__costs_built_in;

double symm__cost_op(const struct symm_costs *costs, const symm_program *program,
                     const symm_program_op *op, symm_algorithm algorithm);
/*
 * The fastest usable algorithm for a collective, with the barriers it needs at least;
 * `local`: only those that touch no peer's buffer. Ties: the first of the list.
 * SYMM_ALGORITHM_COUNT: the costs name none that can do it.
 */
symm_algorithm symm__cost_choose(const struct symm_costs *costs,
                                 const symm_program *program, const symm_program_op *op,
                                 bool local);

#endif
