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
#include "select/cost.h"

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
