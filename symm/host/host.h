/* SPDX-License-Identifier: MIT */
/*
 * host.h - the host backend, and its streams: an ordered queue and a worker thread each. The
 * functions are the stream slots of core/backend.h; a stream does not need its backend.
 */
#ifndef SYMM_HOST_HOST_H
#define SYMM_HOST_HOST_H

#include "core/backend.h"

extern const struct symm_backend_ops symm__backend_host;

symm_status symm__queue_create(struct symm_backend *backend,
                               struct symm_stream **stream) SYMM_MUST_CHECK;
/* Runs what is queued, then ends the worker. NULL is allowed. */
void symm__queue_destroy(struct symm_backend *backend, struct symm_stream *stream);
void symm__queue_drain(struct symm_backend *backend, struct symm_stream *stream);
bool symm__queue_is_own(const struct symm_stream *stream);
void symm__queue_push(struct symm_backend *backend, struct symm_stream *stream,
                      struct symm_task *task);
/* All that was queued before the call has run; SYMM_ERR_TIMEOUT after `seconds`. */
symm_status symm__queue_synchronize(struct symm_backend *backend,
                                    struct symm_stream *stream, int rank,
                                    double seconds);

#endif
