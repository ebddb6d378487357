/* SPDX-License-Identifier: MIT */
/*
 * search.h - one resumable exact search for a placement within a capacity.
 */
#ifndef SYMM_PLANNER_PACK_SEARCH_H
#define SYMM_PLANNER_PACK_SEARCH_H

#include "pack/state.h"

enum place_outcome {
    PLACE_MORE,      /* the budget is used up */
    PLACE_FOUND,     /* a placement within the capacity */
    PLACE_EXHAUSTED, /* there is no placement within the capacity */
    PLACE_NO_MEMORY,
};

struct place_search;

/*
 * rank[i] orders the items: of those that can be placed at the same lowest offset, the
 * one with the lowest rank is tried first. Capacity in units. model and net are
 * borrowed, rank is copied; the search and its lists are in the pool. NULL: no memory.
 */
struct place_search *symm__pack_search_open(struct pool *pool,
                                            const struct place_model *model,
                                            const struct place_net *net,
                                            const int *rank, int64_t capacity);

/*
 * Goes on until about `budget` more list entries were looked at, a nanosecond or two
 * each, and adds nodes and work to the state, which keeps a placement that is found.
 * Deterministic, however it is cut up.
 */
enum place_outcome symm__pack_search_step(struct place_search *search,
                                          struct place_state *state, uint64_t budget);

#endif
