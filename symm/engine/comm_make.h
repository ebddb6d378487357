/* SPDX-License-Identifier: MIT */
/*
 * comm_make.h - makes a communicator with the other members.
 *
 * It takes two exchanges: the first member of a group gives the id, and all report the outcome.
 * If a member could not make the communicator, no member uses one. Every step ends at the
 * deadline, or when a member has died. A pair's steps also end when the team fails.
 */
#ifndef SYMM_ENGINE_COMM_MAKE_H
#define SYMM_ENGINE_COMM_MAKE_H

#include "engine/runtime.h"

/* Collective over the team, for groups of its members. members: team ranks, ascending; NULL: all.
 * *told: an error concerns making the communicator, and all members have it; else it concerns the
 * team. */
symm_status symm__comm_make(symm_team *team, const int *members, int count,
                            double timeout, struct symm_engine_comm **comm,
                            bool *told) SYMM_MUST_CHECK;
/* Takes what symm_team_split has made for the team, if all members have that. *told: as in
 * symm__comm_make. */
symm_status symm__comm_take_given(symm_team *team, double timeout,
                                  struct symm_engine_comm **comm,
                                  bool *told) SYMM_MUST_CHECK;
/* The communicator of this rank and a peer, which may be itself. The context is locked. */
symm_status symm__comm_make_pair(symm_team *team, int peer, double until,
                                 struct symm_engine_comm **comm) SYMM_MUST_CHECK;

#endif
