/* SPDX-License-Identifier: MIT */
/*
 * thread_group.h - ranks that are threads of one process.
 */
#ifndef SYMM_SETUP_THREAD_GROUP_H
#define SYMM_SETUP_THREAD_GROUP_H

#include "core/context.h"

/* Gives the rank its sockets and the shared reservation. */
symm_status symm__thread_group_join(symm_thread_group *group, symm_ctx *ctx,
                                    int *peer_fd) SYMM_MUST_CHECK;
/* A member begins or ceases to use the memory of all members of its team. */
void symm__thread_group_hold(symm_team *team, int change);
struct symm_slots symm__thread_group_held(symm_thread_group *group,
                                          int rank); /* slots that are held */

#endif
