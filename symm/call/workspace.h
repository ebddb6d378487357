/* SPDX-License-Identifier: MIT */
/*
 * workspace.h - memory in which a channel's calls keep data between two of their steps.
 *
 * It belongs to one channel, whose calls run in order, so each call may use all of it.
 */
#ifndef SYMM_CALL_WORKSPACE_H
#define SYMM_CALL_WORKSPACE_H

#include "core/team.h"

/* At least `bytes` bytes of this rank's (on a device: of its memory), valid until the team's end.
 * Grows by doubling. For a thread that holds the channel. */
symm_status symm__workspace_get(struct symm_team_channel *channel, size_t bytes,
                                void **at) SYMM_MUST_CHECK;
/* At the team's end, when no call of it runs any more. */
void symm__workspace_close(symm_team *team);

#endif
