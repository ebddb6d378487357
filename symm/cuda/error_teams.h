/* SPDX-License-Identifier: MIT */
/*
 * error_teams.h - what an error of one team tells of this rank's other teams: the hardware queues
 * that all of them use, and which of them failed first.
 */
#ifndef SYMM_CUDA_ERROR_TEAMS_H
#define SYMM_CUDA_ERROR_TEAMS_H

#include "core/team.h"
#include "cuda/error_facts.h"

/* Why a stream may be late although its rank is not: all hardware queues are in use. "": they are
 * not. */
const char *symm__cuda_queue_text(const symm_team *team,
                                  const struct symm_cuda_facts *facts, char *text,
                                  size_t bytes);
/* Has the team of that number failed, on this rank? Then `why` is its reason. *ended: no team has
 * that number any more. */
bool symm__cuda_failed_before(const symm_team *team, const struct symm_cuda_facts *facts,
                              uint32_t number, char *why, size_t bytes, bool *ended);

#endif
