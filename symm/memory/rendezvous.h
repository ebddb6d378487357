/* SPDX-License-Identifier: MIT */
/* rendezvous.h - what a team's collective steps over its memory share. */
#ifndef SYMM_MEMORY_RENDEZVOUS_H
#define SYMM_MEMORY_RENDEZVOUS_H

#include "core/team.h"

/* A rank did not take part in `what` ("a rendezvous"): fails the team, with the best reason
 * that is known. status: of the exchange, whose sentence is this thread's error. */
symm_status symm__rendezvous_failed(symm_team *team, const char *what,
                                    symm_status status);

#endif
