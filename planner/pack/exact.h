/* SPDX-License-Identifier: MIT */
/*
 * exact.h - many exact searches side by side.
 */
#ifndef SYMM_PLANNER_PACK_EXACT_H
#define SYMM_PLANNER_PACK_EXACT_H

#include "pack/state.h"

/* Whether the searches can work on a model of this size at all. */
bool symm__pack_exact_possible(const struct place_model *model);

struct place_team; /* the searches for a placement within one capacity */

/*
 * Opens searches for a placement within `capacity` (< peak); budgets below some
 * milliseconds go to one search alone. SYMM_ERR_NOMEM. net and state are borrowed.
 */
symm_status symm__pack_team_open(struct place_state *state, const struct place_net *net,
                                 int64_t capacity, uint64_t budget,
                                 struct place_team **team) SYMM_MUST_CHECK;
void symm__pack_team_close(struct place_team *team); /* NULL is allowed */

/*
 * Goes on until a placement is found, none exists, the state is stopped, or `budget`
 * more list entries were looked at. Updates the state. Does nothing once it has ended or
 * the state's peak is within the capacity.
 */
symm_status symm__pack_team_run(struct place_team *team,
                                uint64_t budget) SYMM_MUST_CHECK;

/*
 * Lowers the peak: tries capacities between the bound and the peak, each with a part of
 * the budget, with larger and larger parts up to `budget`.
 */
symm_status symm__pack_exact_lower(struct place_state *state,
                                   const struct place_net *net,
                                   uint64_t budget) SYMM_MUST_CHECK;

#endif
