/* SPDX-License-Identifier: MIT */
/*
 * hierarchical_strategy.h - a collective of a hierarchical team: which steps it takes, what it
 * needs for them, and what its failure means.
 *
 * Rails need hosts of equal size (and, except for all_reduce, ranks in the order of hosts). An
 * average of integers is not made in two steps, since each of them would round.
 */
#ifndef SYMM_CALL_HIERARCHICAL_STRATEGY_H
#define SYMM_CALL_HIERARCHICAL_STRATEGY_H

#include "call/request.h"
#include "core/team.h"
#include "engine/runtime.h"

/* The steps of hierarchical.c: along rails, among the hosts' leaders, or the engine's alone. */
enum symm_strategy { SYMM_STRATEGY_RAILS, SYMM_STRATEGY_LEADERS, SYMM_STRATEGY_FLAT };

/* Chooses the steps; entry->args.barriers gets the enum symm_strategy. */
symm_status symm__hierarchical_choose(const symm_team *team,
                                      const struct symm_select_query *query,
                                      struct symm_prepared_call *entry) SYMM_MUST_CHECK;
/* To be called before a call on a device, without a lock: makes the communicators that the call
 * needs. */
symm_status symm__hierarchical_open(symm_team *team, const struct symm_request *rq,
                                    const symm_call *call) SYMM_MUST_CHECK;
/* With one rank on each host the rail has all ranks. */
bool symm__rail_is_all(const symm_team *team);
/* Fails the team and its local team together: waits in either of them end. */
symm_status symm__hierarchical_fail(symm_team *team, symm_status status);

#endif
