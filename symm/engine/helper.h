/* SPDX-License-Identifier: MIT */
/*
 * helper.h - threads for calls of an engine that may wait for ever and cannot be interrupted:
 * what makes or ends a communicator (engine.h, `blocks`).
 *
 * A job runs on a helper thread of the context, with the rank's device current, while the thread
 * that gave it waits for a limited time. A job that is not done by then is left: its thread and
 * its memory stay as they are until it returns, perhaps for ever. If it does return, `undo` frees
 * what it has made, and its thread ends. So a job lies on the heap and refers to nothing that may
 * be freed: once a job was left, the context keeps its engine's tables (symm__helpers_close).
 *
 * A context makes two threads before its first communicator, so that an abort finds one while a
 * creation holds the other. The thread that leaves a job replaces the job's thread. So a call
 * makes no thread as long as the engine's calls return.
 *
 * For an engine that does not block, jobs run on the caller's thread.
 */
#ifndef SYMM_ENGINE_HELPER_H
#define SYMM_ENGINE_HELPER_H

#include "core/context.h"
#include "engine/engine.h"
#include "util/status.h"

struct symm_helper;

/* What a job begins with; it is allocated by malloc or calloc. */
struct symm_helper_job {
    symm_status (*run)(struct symm_helper_job *job);
    /* The job was left and has returned: frees what it has made. NULL: it makes nothing. */
    void (*undo)(struct symm_helper_job *job);
    /* The result of `run`, and its symm_last_error: */
    symm_status status;
    char sentence[SYMM_ERROR_BYTES];
};

/* Makes the threads, unless they exist. The context is locked. */
symm_status symm__helpers_open(symm_ctx *ctx) SYMM_MUST_CHECK;
/* Ends them. False: a job that was left has not returned within a second, so nothing that jobs
 * refer to may be freed, the device's context among it. */
bool symm__helpers_close(symm_ctx *ctx);

/* Starts a job; *helper is for the functions below, NULL where the job has run already. */
symm_status symm__helper_start(symm_ctx *ctx, struct symm_helper_job *job,
                               struct symm_helper **helper) SYMM_MUST_CHECK;
/* Waits until the job has run (true), wait->until, or until wait->stop returns an error, which is
 * then *status; else it is SYMM_OK. */
bool symm__helper_wait(struct symm_helper *helper, const struct symm_engine_wait *wait,
                       symm_status *status);
/* To be called after symm__helper_wait. True: the job has run, perhaps only now, and is the
 * caller's. False: it is left. */
bool symm__helper_end(symm_ctx *ctx, struct symm_helper *helper);

/*
 * Starts a job, waits for it and ends it. True: the job has run, and is the caller's; *status and
 * the error are the job's. False: it was left, and *status is that of wait->stop, or SYMM_OK at
 * wait->until.
 */
bool symm__helper_run(symm_ctx *ctx, struct symm_helper_job *job,
                      const struct symm_engine_wait *wait, symm_status *status);

#endif
