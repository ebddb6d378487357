/* SPDX-License-Identifier: MIT */
/*
 * eject.h - lowers a placement by moving the items above a target, and those that they
 * displace.
 */
#ifndef SYMM_PLANNER_PACK_EJECT_H
#define SYMM_PLANNER_PACK_EJECT_H

#include "pack/state.h"

struct place_eject; /* keeps what it learned from one call to the next */

/* *eject is in the state's pool. SYMM_ERR_NOMEM. */
symm_status symm__pack_eject_open(struct place_state *state,
                                  struct place_eject **eject) SYMM_MUST_CHECK;

/*
 * Lowers state->peak until it is at most `goal`, about `budget` conflicts were looked
 * at, or the state is stopped. Updates the state whenever the peak falls.
 */
void symm__pack_eject_lower(struct place_eject *eject, struct place_state *state,
                            int64_t goal, uint64_t budget);

#endif
