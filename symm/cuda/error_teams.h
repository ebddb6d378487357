/* SPDX-License-Identifier: MIT */
/*
 * error_teams.h - what an error of one team tells of this rank's other teams: the hardware queues
 * that all of them use, and which of them failed first.
 */
#ifndef SYMM_CUDA_ERROR_TEAMS_H
#define SYMM_CUDA_ERROR_TEAMS_H

#include "core/team.h"
#include "cuda/error_facts.h"

/* The hardware queues that a context has: streams beyond them share one. *why: what follows the name
 * CUDA_DEVICE_MAX_CONNECTIONS in a sentence: "" where that variable sets them. NULL: not asked for. */
int symm__cuda_queues(const symm_ctx *ctx, const char **why);
/* Why a stream may be late although its rank is not: all hardware queues are in use. "": they are
 * not. */
const char *symm__cuda_queue_text(const symm_team *team,
                                  const struct symm_cuda_facts *facts, char *text,
                                  size_t bytes);
/* why: the reason for which the team of that number has failed on this rank; "": that team has
 * ended, and some more that had failed have, too. false: the reason is not known yet. */
bool symm__cuda_reason_of(const symm_team *team, const struct symm_cuda_facts *facts,
                          uint32_t number, char *why, size_t bytes);

#endif
