/* SPDX-License-Identifier: MIT */
/*
 * work.h - handles of the host backend: the outcome of one call, shared by the caller and the
 * stream's worker.
 */
#ifndef SYMM_CALL_WORK_H
#define SYMM_CALL_WORK_H

#include "symm/symm.h"

/* One reference for the caller, and one more with `running`, released by complete. */
symm_status symm__work_create(symm_ctx *ctx, bool running,
                              symm_work **work) SYMM_MUST_CHECK;
/* The call runs now, and ends by its own timeout. NULL is allowed. */
void symm__work_begin(symm_work *work, double timeout);
/* Ends the call: the status, and the thread's last error if it is one. NULL is allowed. */
void symm__work_complete(symm_work *work, symm_status status);

#endif
