/* SPDX-License-Identifier: MIT */
/*
 * greedy.h - placements in one pass over the items.
 */
#ifndef SYMM_PLANNER_PACK_GREEDY_H
#define SYMM_PLANNER_PACK_GREEDY_H

#include "pack/state.h"

/*
 * Keeps the best of several greedy placements in the state: first fit and best fit in the
 * order of time, first fit by size and start, and other orders as long as all together
 * look at fewer than `most` pairs of items, some 10 ns each. The time limit ends neither the
 * first placement nor first fit by size and start with up to a million pairs. The latter is
 * made beyond `most`, too: up to 300 million pairs in fast mode and 3,000 million without a
 * time limit. SYMM_ERR_NOMEM.
 */
symm_status symm__pack_greedy(struct place_state *state, uint64_t most) SYMM_MUST_CHECK;

#endif
