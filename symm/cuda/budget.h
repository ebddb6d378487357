/* SPDX-License-Identifier: MIT */
/*
 * budget.h - how many blocks a collective's grid may have on CUDA, so that the calls of
 * all channels of all teams fit on the devices whose kernels wait for each other.
 *
 * A block that waits for a peer keeps its place, and most kernels take a multiprocessor for
 * each block. So streams that ranks queue in different orders could fill the devices with
 * calls of which each lacks room on one of them. The budget rules that out: on each device
 * all channels' grids but the largest take at most half of the multiprocessors. Why that is
 * enough: docs/design.md, "Blocks that wait".
 *
 * Each channel has a claim on the devices of all its members: at least the blocks of any call
 * of it that may run. If the other channels' claims take at most half of each device, a
 * channel claims all of it, and its calls have the grids that they would have alone. Else it gets
 * three quarters of what is left, at least one block, and larger claims are marked: they are cut
 * to equal shares at their next call. Claims of channels that have ended their calls are
 * released by the next rank of their team that searches for room, or after two turns of a
 * member's watchdog. A channel with a call in a graph keeps its claim.
 *
 * Members of a team must launch a call with equal grids. So grants are numbered: the first
 * member that reaches the channel's k-th call decides, by a compare-and-swap of the
 * channel's word, with which grant call k is launched, and the others read it. A word holds
 * two grants, and changes only when all members are past the last change.
 *
 * Guarantees: nothing waits for a grant but, for a bounded time, for the ledger's lock; the
 * lock of a rank that died is broken; a member that still disagrees (a call failed on it alone)
 * gets a mismatch, since a cut grid is part of the call's tag.
 * Small calls ask for no grant; an estimate of them is set aside. Puts and signals wait for no
 * peer; those that are resident behind a kernel that does have one block. Teams over several hosts
 * have no budget.
 */
#ifndef SYMM_CUDA_BUDGET_H
#define SYMM_CUDA_BUDGET_H

#include "cuda/launcher.h"

/* A new team: all claims are 0. */
void symm__cuda_budget_open(symm_team *team);
/* Ends the claims on this rank's device of a team that ends or has failed. */
void symm__cuda_budget_close(symm_team *team);
/* Before the launch of a collective that would have `wish` blocks, in an entered channel: the
 * blocks that it may have, at least 1; the same on all members. */
uint32_t symm__cuda_budget_acquire(struct symm_team_channel *channel, uint32_t wish);
/* After an acquire whose launch was not made: the next call gets the same grant, and the claim stays
 * until then. The channel is left after that. */
void symm__cuda_budget_return(struct symm_team_channel *channel, uint32_t wish);
/* Whether the channel's last grant leaves room for other channels. */
bool symm__cuda_budget_shares(const struct symm_team_channel *channel);
/* For the watchdog: releases claims of channels that are idle for long. */
void symm__cuda_budget_refresh(symm_team *team);

#endif
