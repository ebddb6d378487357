/* SPDX-License-Identifier: MIT */
/*
 * work.c - handles on calls. (Handles of a device
 * backend begin alike and go through its table, core/device_ops.h.)
 *
 * A handle has a reference for the caller and one for whoever still has to complete it, so
 * it may be released at any time. On the host backend "wait on a stream" is a task that
 * blocks that stream's worker until the handle is complete; the caller goes on. Every call
 * that a handle stands for is bounded by its own timeout, and so is that wait.
 */
#include "call/work.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call/stream.h"
#include "core/device_ops.h"
#include "record/record.h"
#include "util/clock.h"
#include "util/status.h"

struct host_work {
    struct symm_work head;
    int references; /* atomic */
    pthread_mutex_t lock;
    pthread_cond_t completed;
    bool begun, done;
    double timeout; /* seconds of the call's own, once it has begun */
    symm_status status;
    char error[SYMM_ERROR_BYTES]; /* "" while there is none */
};

/* A callback, or just the wait (fn NULL), on its way through a stream's queue. */
struct follow {
    struct symm_task task;
    struct host_work *after; /* a reference */
    symm_work *next;         /* to complete; NULL if nobody asked */
    symm_status (*fn)(void *arg, void *stream);
    void *arg, *stream;
};

static struct host_work *host_work(symm_work *work)
{
    return (struct host_work *)work; /* its first member */
}

symm_status symm__work_create(symm_ctx *ctx, bool running, symm_work **work)
{
    struct host_work *w = calloc(1, sizeof(*w));
    pthread_condattr_t monotonic;

    if (!w)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a work handle");
    w->head.ctx = ctx;
    w->references = running ? 2 : 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->completed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *work = (symm_work *)w; /* not &w->head: the handle is the whole of it */
    return SYMM_OK;
}

static struct host_work *work_hold(struct host_work *work)
{
    __atomic_add_fetch(&work->references, 1, __ATOMIC_RELAXED);
    return work;
}

static void work_drop(struct host_work *work)
{
    /* acquire and release: the last one to let go sees all that the others did */
    if (__atomic_sub_fetch(&work->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pthread_cond_destroy(&work->completed);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

void symm_work_release(symm_work *work)
{
    if (!work)
        return;
    if (work->calls)
        work->calls->work_release(work);
    else
        work_drop(host_work(work));
}

void symm__work_begin(symm_work *handle, double timeout)
{
    struct host_work *work = host_work(handle);

    if (!work)
        return;
    pthread_mutex_lock(&work->lock);
    work->begun = true;
    work->timeout = timeout;
    pthread_mutex_unlock(&work->lock);
}

void symm__work_complete(symm_work *handle, symm_status status)
{
    struct host_work *work = host_work(handle);

    if (!work)
        return;
    pthread_mutex_lock(&work->lock);
    work->status = status;
    if (status != SYMM_OK)
        strncpy(work->error, symm_last_error(), sizeof(work->error) - 1);
    work->done = true;
    pthread_cond_broadcast(&work->completed);
    pthread_mutex_unlock(&work->lock);
    work_drop(work);
}

/* The call's own outcome as this thread's error. */
static symm_status outcome(const struct host_work *work)
{
    return work->status == SYMM_OK ? SYMM_OK
                                   : symm__fail_quiet(work->status, work->error);
}

symm_status symm_work_query(symm_work *handle, bool *done)
{
    struct host_work *work = host_work(handle);
    symm_status status = SYMM_OK;

    if (!handle || !done)
        return symm__fail(SYMM_ERR_INVALID, "symm_work_query: work %p, done %p",
                          (void *)handle, (void *)done);
    status = symm__ctx_check(handle->ctx);
    if (status != SYMM_OK)
        return status;
    if (handle->calls)
        return handle->calls->work_query(handle, done);
    pthread_mutex_lock(&work->lock);
    *done = work->done;
    if (work->done)
        status = outcome(work);
    pthread_mutex_unlock(&work->lock);
    return status;
}

static symm_status give_up(const struct host_work *work, double seconds)
{
    const int rank = work->head.ctx->rank;

    if (work->begun)
        return symm__fail(SYMM_ERR_TIMEOUT,
                          "symm_work_synchronize: the call of rank %d has begun and is "
                          "not complete after %g s; its own timeout of %g s will tell "
                          "for whom it waits",
                          rank, seconds, work->timeout);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "symm_work_synchronize: the call of rank %d has not begun after "
        "%g s; look at what its stream was given before it, or give a longer "
        "timeout",
        rank, seconds);
}

symm_status symm_work_synchronize(symm_work *handle, double timeout)
{
    struct host_work *work = host_work(handle);
    struct timespec until;
    bool by_default = !(timeout > 0), late = false;
    double seconds = 0;
    symm_status status;

    if (!handle)
        return symm__fail_null("symm_work_synchronize", "work");
    status = symm__ctx_check(handle->ctx);
    if (status == SYMM_OK)
        status =
            symm__take_timeout(handle->ctx, "symm_work_synchronize", timeout, &seconds);
    if (status != SYMM_OK)
        return status;
    if (handle->calls)
        return handle->calls->work_synchronize(handle, seconds);
    until = symm__until(seconds);
    pthread_mutex_lock(&work->lock);
    while (!work->done && !late) {
        if (by_default && work->begun) /* its own timeout ends it */
            pthread_cond_wait(&work->completed, &work->lock);
        else
            late = pthread_cond_timedwait(&work->completed, &work->lock, &until) ==
                       ETIMEDOUT &&
                   !(by_default && work->begun);
    }
    status = work->done ? outcome(work) : give_up(work, seconds);
    pthread_mutex_unlock(&work->lock);
    return status;
}

const char *symm_work_error(symm_work *handle)
{
    struct host_work *work = host_work(handle);
    bool done = false;

    if (!handle || symm__ctx_check(handle->ctx) != SYMM_OK)
        return "";
    if (handle->calls)
        return handle->calls->work_error(handle);
    pthread_mutex_lock(&work->lock);
    done = work->done; /* from then on the text does not change */
    pthread_mutex_unlock(&work->lock);
    return done ? work->error : "";
}

/* Waits as long as the calls before it may take: each is bounded by itself. */
static symm_status settle(struct host_work *work)
{
    pthread_mutex_lock(&work->lock);
    while (!work->done)
        pthread_cond_wait(&work->completed, &work->lock);
    pthread_mutex_unlock(&work->lock);
    return outcome(work);
}

static void run_follow(struct symm_task *task)
{
    struct follow *follow = (struct follow *)task;
    symm_status status = settle(follow->after);

    if (status == SYMM_OK && follow->fn) {
        status = follow->fn(follow->arg, follow->stream);
        if (status != SYMM_OK)
            symm__fail(status, "a callback returned %s", symm_status_name(status));
    }
    symm__work_complete(follow->next, status);
    work_drop(follow->after);
    free(follow);
}

symm_status symm_work_then(symm_work *work, void *stream,
                           symm_status (*fn)(void *arg, void *stream), void *arg,
                           symm_work **next)
{
    struct follow *follow;
    symm_work *result = NULL;
    symm_status status = SYMM_OK;

    if (!work || !fn)
        return symm__fail(SYMM_ERR_INVALID, "symm_work_then: %s is NULL",
                          work ? "fn" : "work");
    status = symm__ctx_check(work->ctx);
    if (status != SYMM_OK)
        return status;
    if (symm__is_recorded(work->ctx)) /* before fn makes calls of its own */
        symm__record_wait(work, stream);
    if (work->calls)
        return work->calls->work_then(work, stream, fn, arg, next);
    follow = calloc(1, sizeof(*follow));
    if (!follow)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a callback");
    if (next)
        status = symm__work_create(work->ctx, true, &result);
    if (status != SYMM_OK)
        goto err_follow;
    *follow = (struct follow){.task.run = run_follow,
                              .after = work_hold(host_work(work)),
                              .next = result,
                              .fn = fn,
                              .arg = arg,
                              .stream = stream};
    status = symm__stream_push(work->ctx, stream, &follow->task);
    if (status != SYMM_OK)
        goto err_hold;
    if (next)
        *next = result;
    return SYMM_OK;

err_hold:
    work_drop(host_work(work));
    symm__work_complete(result, status);
    symm_work_release(result);
err_follow:
    free(follow);
    return status;
}

symm_status symm_work_wait(symm_work *work, void *stream)
{
    struct follow *follow;
    symm_status status;

    if (!work)
        return symm__fail(SYMM_ERR_INVALID, "symm_work_wait: work is NULL");
    status = symm__ctx_check(work->ctx);
    if (status != SYMM_OK)
        return status;
    if (symm__is_recorded(work->ctx))
        symm__record_wait(work, stream);
    if (work->calls)
        return work->calls->work_wait(work, stream);
    if (!stream)
        return settle(host_work(work));
    follow = calloc(1, sizeof(*follow));
    if (!follow)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to wait on a stream");
    *follow = (struct follow){
        .task.run = run_follow, .after = work_hold(host_work(work)), .stream = stream};
    status = symm__stream_push(work->ctx, stream, &follow->task);
    if (status != SYMM_OK) {
        work_drop(host_work(work));
        free(follow);
    }
    return status;
}
