/* SPDX-License-Identifier: MIT */
/*
 * work.c - handles on CUDA: an event after the launch, and a word that the kernel
 * writes if it fails.
 *
 * Making a handle takes an event and a word from pools (work_pool.c), and waits for nothing. A
 * handle may be released while its call runs. Beside its launch a call with a handle
 * costs two calls of the driver: the query whether the stream is captured, and the event's
 * record. Both are made in the current context, as the launch is, or in the rank's own if the
 * current one does not know the stream. Every query of an event is made in relaxed capture mode,
 * so that captures of other threads go on. A handle that is made during a capture has no outcome
 * of its own: its event is part of the graph, and the call runs at each replay, or never.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "cuda/work.h"
#include "util/clock.h"
#include "util/status.h"

#define SPIN_SECONDS  0.0002 /* yields before the first sleep */
#define SLEEP_SECONDS 0.00005

/* ---- Making one ------------------------------------------------------------------ */

static symm_status work_create(symm_ctx *ctx, struct symm_cuda_work **work)
{
    struct symm_cuda_work *w = calloc(1, sizeof(*w));

    if (!w)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a work handle");
    w->head.ctx = ctx;
    w->head.life = symm__life_take(ctx);
    w->head.device_ops = ctx->device_ops;
    w->result = -1;
    *work = w;
    return SYMM_OK;
}

static symm_status begin(struct symm_cuda_launcher *launcher,
                         struct symm_cuda_work *work, bool own_result)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    symm_status status;

    work->captured = symm__cuda_on_stream(launcher, SYMM_CUDA_CAPTURE, work->stream,
                                          &capture) == CUDA_SUCCESS &&
                     capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!work->captured)
        symm__cuda_pool_refill(launcher, own_result);
    status = symm__cuda_event_acquire(launcher, &work->event);
    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&launcher->pool);
    /* not under capture: a replay would write a slot of another handle */
    if (own_result && !work->captured)
        work->result = symm__cuda_result_acquire(launcher);
    work->launcher = launcher;
    work->number = ++launcher->works_made;
    symm__cuda_work_link(launcher, work);
    pthread_mutex_unlock(&launcher->pool);
    return SYMM_OK;
}

symm_status symm__cuda_work_begin(symm_team *team, void *stream,
                                  struct symm_cuda_work **work, uint32_t **result)
{
    struct symm_cuda_launcher *launcher = team->ctx->launcher;
    struct symm_cuda_work *made = NULL;
    symm_status status = work_create(team->ctx, &made);

    if (status != SYMM_OK)
        return status;
    made->team = team;
    made->stream = (CUstream)stream;
    status = begin(launcher, made, result != NULL);
    if (status != SYMM_OK) {
        symm__cuda_work_free(made);
        return status;
    }
    if (result)
        *result = made->result >= 0 ? &launcher->results[made->result] : NULL;
    *work = made;
    return SYMM_OK;
}

symm_status symm__cuda_work_end(struct symm_cuda_work *work, symm_status status,
                                symm_work **handle)
{
    struct symm_cuda_launcher *launcher = work->launcher;
    char at[48];

    if (status == SYMM_OK)
        status = symm__cuda_check(
            launcher->driver,
            symm__cuda_on_stream(launcher, SYMM_CUDA_RECORD, work->stream, work->event),
            "cuEventRecord", "the end of a call on %s",
            symm__cuda_stream_text(work->stream, at, sizeof(at)));
    if (status == SYMM_OK) {
        *handle = &work->head;
        return SYMM_OK;
    }
    pthread_mutex_lock(&launcher->pool);
    work->released = true; /* never recorded: counts as done */
    symm__cuda_work_detach(work);
    pthread_mutex_unlock(&launcher->pool);
    return status;
}

symm_status symm__cuda_work_end_call(struct symm_cuda_work *work, symm_status status,
                                     symm_work **handle, const char *what,
                                     const char *site, bool captured)
{
    symm_team *team = work->team;
    const symm_status end = symm__cuda_work_end(work, status, handle);

    if (status == SYMM_OK && end != SYMM_OK && !captured)
        return symm__team_fail_queued(team, what, site);
    return end;
}

/* ---- Between a handle and its team's end ------------------------------------------------- */

struct symm_cuda_launcher *symm__cuda_work_launcher(const struct symm_cuda_work *work)
{
    /* acquire: pairs with the release in symm__cuda_work_leave */
    return __atomic_load_n(&work->launcher, __ATOMIC_ACQUIRE);
}

/* The same. If not NULL, event and team stay until drop. No thread may hold two. */
static struct symm_cuda_launcher *hold(struct symm_cuda_work *work)
{
    struct symm_cuda_launcher *launcher = symm__cuda_work_launcher(work);

    if (!launcher)
        return NULL;
    pthread_rwlock_rdlock(&launcher->handles);
    if (symm__cuda_work_launcher(work))
        return launcher;
    pthread_rwlock_unlock(&launcher->handles);
    return NULL;
}

static void drop(struct symm_cuda_launcher *launcher)
{
    pthread_rwlock_unlock(&launcher->handles);
}

/* ---- Results ----------------------------------------------------------------------------- */

static bool is_done(const struct symm_cuda_work *work)
{
    /* acquire: pairs with the release in conclude */
    return __atomic_load_n(&work->done, __ATOMIC_ACQUIRE);
}

static symm_status work_status(const struct symm_cuda_work *work)
{
    return work->status == SYMM_OK ? SYMM_OK
                                   : symm__fail_quiet(work->status, work->error);
}

void symm__cuda_work_conclude(struct symm_cuda_work *work, symm_status status)
{
    if (work->done)
        return;
    work->status = status;
    if (status != SYMM_OK)
        strncpy(work->error, symm_last_error(), sizeof(work->error) - 1);
    __atomic_store_n(&work->done, true, __ATOMIC_RELEASE);
}

uint32_t symm__cuda_work_result(const struct symm_cuda_work *work)
{
    return work->result < 0 ? 0
                            : __atomic_load_n(&work->launcher->results[work->result],
                                              __ATOMIC_ACQUIRE);
}

/* The status of a call whose event is done. Explaining a failure may take a while. */
static symm_status status_of(const struct symm_cuda_work *work)
{
    uint32_t code = symm__cuda_work_result(work);
    symm_status status = SYMM_OK;
    char stream[48];

    if (work->result < 0 || code != 0)
        status = symm__cuda_team_poll(work->team);
    if (code != 0 && status == SYMM_OK)
        status = symm__fail(
            (symm_status) - (int32_t)code,
            "a call on %s of rank %d failed on the device and left no record",
            symm__cuda_stream_text(work->stream, stream, sizeof(stream)),
            work->head.ctx->rank);
    return status;
}

symm_status symm__cuda_work_refuse_captured(const char *what)
{
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "%s: the call was captured into a graph and runs when that is "
                      "launched; query an event after the launch, or call symm_stream_"
                      "synchronize",
                      what);
}

/* The work is held. An error is not the call's own unless *done. */
static symm_status poll_held(struct symm_cuda_launcher *launcher,
                             struct symm_cuda_work *work, bool *done)
{
    struct symm_cuda_scope scope;
    CUresult result;
    symm_status status = symm__cuda_enter(launcher->backend, &scope);

    if (status != SYMM_OK)
        return status;
    result = launcher->driver->cuEventQuery(work->event);
    symm__cuda_leave(&scope);
    if (result == CUDA_ERROR_NOT_READY)
        return SYMM_OK;
    status =
        symm__cuda_check(launcher->driver, result, "cuEventQuery", "the end of a call");
    if (status == SYMM_OK)
        status = status_of(work);
    pthread_mutex_lock(&launcher->pool);
    symm__cuda_work_conclude(work, status);
    pthread_mutex_unlock(&launcher->pool);
    *done = true;
    return SYMM_OK;
}

symm_status symm__cuda_work_poll(struct symm_cuda_work *work, bool *done)
{
    struct symm_cuda_launcher *launcher;
    symm_status status = SYMM_OK;

    *done = is_done(work);
    if (!*done && (launcher = hold(work))) {
        status = poll_held(launcher, work, done);
        drop(launcher);
    } else {
        *done = true; /* at the latest by its team's end */
    }
    return *done ? work_status(work) : status;
}

symm_status symm__cuda_work_query(symm_work *handle, bool *done)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    bool now = false;
    symm_status status;

    if (work->captured)
        return symm__cuda_work_refuse_captured("symm_work_query");
    status = symm__cuda_work_poll(work, &now);
    *done = now;
    return status;
}

symm_status symm__cuda_work_synchronize(symm_work *handle, double seconds)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    double start = symm__now(), elapsed = 0;
    bool done = false;
    char stream[48];
    symm_status status;

    if (work->captured)
        return symm__cuda_work_refuse_captured("symm_work_synchronize");
    for (;;) {
        status = symm__cuda_work_poll(work, &done);
        if (done || status != SYMM_OK)
            return status;
        if (elapsed >= seconds)
            return symm__fail(
                SYMM_ERR_TIMEOUT,
                "symm_work_synchronize: the call of rank %d on %s is not complete "
                "after %g s; raise the seconds given, or look at what the stream "
                "waits for",
                handle->ctx->rank,
                symm__cuda_stream_text(work->stream, stream, sizeof(stream)), seconds);
        if (elapsed < SPIN_SECONDS)
            sched_yield();
        else
            symm__sleep(SLEEP_SECONDS);
        elapsed = symm__now() - start;
    }
}

const char *symm__cuda_work_error(symm_work *handle)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    bool done = false;

    if (work->captured)
        return "";
    return symm__cuda_work_poll(work, &done) != SYMM_OK && done ? work->error : "";
}

void symm__cuda_work_release(symm_work *handle)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    struct symm_cuda_launcher *launcher = symm__cuda_work_launcher(work);

    if (!launcher || symm__life_end(work->head.life) != SYMM_LIVES ||
        symm__ctx_check(work->head.ctx) != SYMM_OK) {
        symm__cuda_work_free(work); /* complete, or in a forked child */
        return;
    }
    pthread_mutex_lock(&launcher->pool);
    work->released = true;
    if (!symm__cuda_work_launcher(work)) {
        symm__cuda_work_free(work); /* its team has ended meanwhile */
    } else if (work->notifications) {
        /* detached when they are posted */
    } else if (work->captured || is_done(work)) {
        symm__cuda_work_detach(work);
    } else {
        symm__cuda_work_unlink(launcher, work);
        symm__cuda_work_link_released(launcher, work);
    }
    pthread_mutex_unlock(&launcher->pool);
}

/* ---- Order ----------------------------------------------------------------------- */

static symm_status order(struct symm_cuda_work *work, CUstream stream)
{
    struct symm_cuda_launcher *launcher;
    CUresult result;
    symm_status status;
    char to[48], at[48];

    if (is_done(work))
        return SYMM_OK;
    launcher = hold(work);
    if (!launcher) /* its team is gone */
        return work->captured ? symm__cuda_work_refuse_captured("symm_work_wait")
                              : SYMM_OK;
    result = symm__cuda_on_stream(launcher, SYMM_CUDA_AWAIT, stream, work->event);
    /* The capture is over. Drivers of CUDA 13.0 call its event an invalid value. */
    if (work->captured &&
        (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_CAPTURED_EVENT))
        status = symm__cuda_work_refuse_captured("symm_work_wait");
    else
        status = symm__cuda_check(launcher->driver, result, "cuStreamWaitEvent",
                                  "ordering %s after a call on %s%s",
                                  symm__cuda_stream_text(stream, to, sizeof(to)),
                                  symm__cuda_stream_text(work->stream, at, sizeof(at)),
                                  work->captured ? ", which was captured" : "");
    drop(launcher);
    return status;
}

symm_status symm__cuda_work_wait(symm_work *handle, void *stream)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    symm_status status = symm__cuda_stream_check(handle->ctx, &stream);

    if (status == SYMM_OK)
        status = order(work, (CUstream)stream);
    return status == SYMM_OK && is_done(work) ? work_status(work) : status;
}

/* A handle that is complete from the start. */
static symm_status concluded(symm_ctx *ctx, symm_status status, symm_work **handle)
{
    struct symm_cuda_work *work = NULL;
    symm_status created = work_create(ctx, &work);

    if (created != SYMM_OK)
        return created;
    symm__cuda_work_conclude(work, status);
    *handle = &work->head;
    return SYMM_OK;
}

/* A handle for the end of what fn has put on the stream; fails if the work before has failed. That
 * is held. */
static symm_status follow_held(struct symm_cuda_launcher *launcher,
                               struct symm_cuda_work *before, void *stream,
                               symm_work **next)
{
    struct symm_cuda_work *work;
    symm_status status = symm__cuda_work_begin(before->team, stream, &work, NULL);

    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&launcher->pool);
    if (before->result >= 0 && !work->captured) {
        work->result = before->result;
        launcher->result_holders[work->result]++;
    }
    pthread_mutex_unlock(&launcher->pool);
    return symm__cuda_work_end(work, SYMM_OK, next);
}

static symm_status follow(struct symm_cuda_work *before, void *stream, symm_work **next)
{
    struct symm_cuda_launcher *launcher = hold(before);
    symm_status status;

    if (!launcher)
        return concluded(before->head.ctx, SYMM_OK, next);
    status = follow_held(launcher, before, stream, next);
    drop(launcher);
    return status;
}

symm_status symm__cuda_work_then(symm_work *handle, void *stream,
                                 symm_status (*fn)(void *arg, void *stream), void *arg,
                                 symm_work **next)
{
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    char sentence[SYMM_ERROR_BYTES];
    symm_status status;

    symm__error_save(sentence);
    status = symm__cuda_work_wait(handle, stream);
    if (status != SYMM_OK && !(is_done(work) && work->status == status))
        return status; /* the order could not be made */
    if (status == SYMM_OK) {
        status = fn(arg, stream);
        if (status != SYMM_OK)
            symm__fail(status, "a callback returned %s", symm_status_name(status));
    }
    if (!next)
        status = SYMM_OK;
    else if (status != SYMM_OK)
        status = concluded(handle->ctx, status, next);
    else
        status = follow(work, stream, next);
    if (status == SYMM_OK)
        symm__error_restore(sentence);
    return status;
}
