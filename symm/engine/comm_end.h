/* SPDX-License-Identifier: MIT */
/*
 * comm_end.h - ends of communicators: with the peers, or by an abort. An engine that blocks may
 * never return from either, so both run on helper threads (helper.h). A communicator that such a
 * thread may still use is never destroyed.
 */
#ifndef SYMM_ENGINE_COMM_END_H
#define SYMM_ENGINE_COMM_END_H

#include "engine/runtime.h"

#define SYMM_ABORT_SECONDS 2.0 /* for an abort, after which its thread is left */

/* From any thread; comm NULL is allowed. False: the abort has not returned by `until`, and its
 * thread is left. */
bool symm__comm_abort(const symm_team *team, struct symm_engine_comm *comm,
                      double until);
/* Aborts and destroys a communicator that is not used. */
void symm__comm_drop(const symm_team *team, struct symm_engine_comm *comm);
/* Ends a communicator of a team that ends: with the peers, if it was not aborted; then destroys
 * it. */
void symm__comm_close(struct symm_team_engine *te, struct symm_engine_comm *comm);

#endif
