/* SPDX-License-Identifier: MIT */
/*
 * stream.h - what calls and work handles use of streams.
 */
#ifndef SYMM_CALL_STREAM_H
#define SYMM_CALL_STREAM_H

#include "core/context.h"

/* Queues the task on the stream; runs it at once on the host's default stream. */
symm_status symm__stream_push(symm_ctx *ctx, void *stream,
                              struct symm_task *task) SYMM_MUST_CHECK;
/* *seconds: the caller's timeout; for 0 the time in which a queued call begins, and on CUDA also
 * that in which it ends, since the host does not see its beginning. Negative and NaN are
 * SYMM_ERR_INVALID. */
symm_status symm__take_timeout(const symm_ctx *ctx, const char *what, double timeout,
                               double *seconds) SYMM_MUST_CHECK;

#endif
