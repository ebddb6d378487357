/* SPDX-License-Identifier: MIT */
/*
 * tile.h - placements without a gap, where every section is as full as the fullest.
 */
#ifndef SYMM_PLANNER_PACK_TILE_H
#define SYMM_PLANNER_PACK_TILE_H

#include "pack/state.h"

/* Whether a placement at the bound has no gap: all loads are equal. */
bool symm__pack_tile_possible(const struct place_model *model);

struct place_tile; /* goes on where it stopped */

/* For a model for which it is possible. *tile is in the state's pool. SYMM_ERR_NOMEM. */
symm_status symm__pack_tile_open(struct place_state *state,
                                 struct place_tile **tile) SYMM_MUST_CHECK;

/*
 * Searches until a placement at the largest load is found, which the state then keeps,
 * all choices are used up, about `budget` more list entries were looked at, or the state
 * is stopped. It proves nothing when it finds none. SYMM_ERR_NOMEM.
 */
symm_status symm__pack_tile_run(struct place_tile *tile, struct place_state *state,
                                uint64_t budget) SYMM_MUST_CHECK;

#endif
