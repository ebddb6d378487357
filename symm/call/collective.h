/* SPDX-License-Identifier: MIT */
/* collective.h - a collective, given its request: check, choose, launch. */
#ifndef SYMM_CALL_COLLECTIVE_H
#define SYMM_CALL_COLLECTIVE_H

#include "call/request.h"

/* What every public collective does with its arguments; call may be NULL. */
symm_status symm__collective(symm_team *team, const struct symm_request *rq,
                             const symm_call *call, symm_work **work) SYMM_MUST_CHECK;

#endif
