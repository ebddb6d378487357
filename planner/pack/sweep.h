/* SPDX-License-Identifier: MIT */
/*
 * sweep.h - first fit and best fit in the order of time, n log n for n items.
 */
#ifndef SYMM_PLANNER_PACK_SWEEP_H
#define SYMM_PLANNER_PACK_SWEEP_H

#include "pack/state.h"

/*
 * Places the items in `order`, which must be sorted by birth, as an allocator would that
 * learns of each item when its life begins: in the lowest gap, or with best_fit in the
 * smallest (of equals the lowest). Keeps the placement if it is the best so far; gives up
 * when the state is stopped and has one. SYMM_ERR_NOMEM.
 */
symm_status symm__pack_sweep(struct place_state *state, const int *order,
                             bool best_fit) SYMM_MUST_CHECK;

#endif
