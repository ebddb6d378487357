/* SPDX-License-Identifier: MIT */
/*
 * work.h - what became of one call; shared by the caller and the stream's worker, or (with
 * `calls`) the device's.
 */
#ifndef SYMM_CORE_WORK_H
#define SYMM_CORE_WORK_H

#include "core/device_ops.h"

/* What every handle begins with. */
struct symm_work {
    symm_ctx *ctx;
    const struct symm_device_ops *calls; /* NULL: a handle of the host backend */
    /* A recorder's: 1 + the call's stream, and the stream's events up to the call; 0: none */
    int record_stream;
    uint64_t record_mark;
};

/* One reference for the caller, and one more with `running`, given up by complete. */
symm_status symm__work_create(symm_ctx *ctx, bool running,
                              symm_work **work) SYMM_MUST_CHECK;
/* The call runs now: it ends by itself, within its deadline or so. NULL is allowed. */
void symm__work_begin(symm_work *work, double deadline);
/* Ends the call: the status, and the thread's last error if it is one. NULL is allowed. */
void symm__work_complete(symm_work *work, symm_status status);

#endif
