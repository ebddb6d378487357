/* SPDX-License-Identifier: MIT */
/*
 * cost.h - what the ops of a program cost by a table ("symm-costs/1") or the built-in model,
 * and the choice of an algorithm by it. select/cost.h has the table, its curves and the model,
 * which are those of the runtime.
 */
#ifndef SYMM_PLANNER_MODEL_COST_H
#define SYMM_PLANNER_MODEL_COST_H

#include "model/algorithm.h"
#include "select/cost.h"

/* Microseconds of an op without its barriers; 0: it is neither a collective nor a put. */
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
