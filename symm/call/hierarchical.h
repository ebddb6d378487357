/* SPDX-License-Identifier: MIT */
/*
 * hierarchical.h - teams whose ranks are on several hosts.
 *
 * The ranks of a hierarchical team on one host are a team too (`local_team`). The engine has a
 * communicator of all ranks, and one of the rank's rail: the ranks with the same place on each
 * host, if all hosts have equally many; else the first rank of each host. On a device the first
 * call that needs a communicator makes it, on all ranks; with one rank on each host the two are
 * the same.
 * A collective is steps of both: kernels over symmetric memory on each host, the engine
 * between them.
 *
 * Guarantees: all_reduce adds on each host in rank order, then the engine adds the hosts' sums;
 * each element is summed between hosts by one rail, and its sum copied to the other ranks of each
 * host. So all ranks of a host have the same bits, and all ranks of the team if the engine gives
 * all ranks of a communicator the same (MPI's usual algorithms and NCCL do). The order of ranks
 * over the whole team is not kept: SYMM_NUMERICS_RANK_ORDER is refused. float16, bfloat16 and
 * float8 are rounded once on each host and once by the engine.
 *
 * Calls run in the order in which they are made, on whichever streams: all ranks make them in
 * the same order over all streams of a hierarchical team.
 *
 * Without an engine a hierarchical team serves splits, rendezvous, and one-sided calls within the
 * host; its collectives are SYMM_ERR_UNSUPPORTED.
 */
#ifndef SYMM_CALL_HIERARCHICAL_H
#define SYMM_CALL_HIERARCHICAL_H

#include "call/hierarchical_strategy.h"

/* Takes the next ticket: calls of a team run in ticket order over all streams. */
uint64_t symm__hierarchical_ticket(symm_team *team);
symm_status symm__host_hierarchical(struct symm_state *state,
                                    const struct symm_args *args);
/* On a device: queues all steps on the channel's stream. */
symm_status symm__hierarchical_launch(struct symm_team_channel *channel,
                                      const struct symm_prepared_call *entry,
                                      double timeout, symm_work **work) SYMM_MUST_CHECK;

#endif
