/* SPDX-License-Identifier: MIT */
/*
 * place_greedy.h - placements in one pass.
 */
#ifndef SYMM_PLANNER_PLACE_GREEDY_H
#define SYMM_PLANNER_PLACE_GREEDY_H

#include "place_model.h"

/*
 * The best of several greedy placements: two in the order of time, and in other orders
 * as long as these look at fewer than `work` pairs, 10 to 50 ns each. offsets[count]
 * and *peak are in units of the model. SYMM_ERR_INVALID if two pinned items share bytes
 * and a moment, SYMM_ERR_NOMEM.
 */
symm_status symm__place_greedy(const struct place_model *model, uint64_t work,
                               int64_t *offsets, int64_t *peak) SYMM_MUST_CHECK;

#endif
