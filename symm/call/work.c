/* SPDX-License-Identifier: MIT */
/*
 * work.c - handles on calls. Handles of a device backend begin with the same fields, and their
 * functions are in its table (core/device_ops.h).
 *
 * A handle has a reference for the caller and one for the thread that still has to complete it, so
 * it may be released at any time. On the host backend "wait on a stream" is a task that
 * blocks that stream's worker until the handle is complete; the caller goes on. Every call
 * that a handle stands for is bounded by its own timeout, and so is that wait.
 */
#include "call/work.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "call/stream.h"
#include "core/device_ops.h"
#include "record/record.h"
#include "util/clock.h"
#include "util/status.h"
#include "util/streams.h"

struct host_work {
    struct symm_work head;
    int references; /* atomic */
    pthread_mutex_t lock;
    pthread_cond_t completed;
    bool begun, done;
    double timeout; /* the call's own, in seconds, once it has begun */
    symm_status status;
    char error[SYMM_ERROR_BYTES]; /* "" while there is none */
    struct symm_notification *notifications; /* until it is done; owned */
};

/* A wait on its way through a stream's queue. */
struct follow {
    struct symm_task task;
    struct host_work *after; /* a reference */
    symm_work *next;         /* to complete; NULL: the caller wanted no handle */
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
    w->head.life = symm__life_take(ctx);
    w->references = running ? 2 : 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->completed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *work = (symm_work *)w; /* not &w->head: the handle is the whole of it */
    return SYMM_OK;
}

static void work_drop(struct host_work *work)
{
    /* acquire and release: the last holder sees all that the others did */
    if (__atomic_sub_fetch(&work->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pthread_cond_destroy(&work->completed);
    pthread_mutex_destroy(&work->lock);
    symm__life_drop(work->head.life);
    free(work);
}

void symm_work_release(symm_work *work)
{
    if (!work)
        return;
    if (work->device_ops)
        work->device_ops->work_release(work);
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
    /* with the lock held: for a thread that sees `done` the notifications are posted */
    symm__notifier_post(&work->head.ctx->notifier, work->notifications, status,
                        work->error);
    work->notifications = NULL;
    pthread_cond_broadcast(&work->completed);
    pthread_mutex_unlock(&work->lock);
    work_drop(work);
}

/* Sets the outcome of the call as this thread's error. */
static symm_status outcome(const struct host_work *work)
{
    return work->status == SYMM_OK ? SYMM_OK
                                   : symm__fail_quiet(work->status, work->error);
}

/* Once true, the status and the error of the work no longer change. */
static bool is_done(struct host_work *work)
{
    bool done;

    pthread_mutex_lock(&work->lock);
    done = work->done;
    pthread_mutex_unlock(&work->lock);
    return done;
}

/* *over: the context was finalized, so the call is complete, and the handle alone is left. */
static symm_status check(const symm_work *work, const char *function, bool *over)
{
    const enum symm_life_end end = symm__life_end(work->life);

    *over = end != SYMM_LIVES;
    if (end == SYMM_FINALIZED_FORKED)
        return symm__fail(SYMM_ERR_FORKED,
                          "%s: the call belongs to the parent of this process",
                          function);
    return *over ? SYMM_OK : symm__ctx_check_in(work->ctx, function);
}

/* The same, where the context is needed. */
static symm_status check_lives(const symm_work *work, const char *function)
{
    bool over;
    symm_status status = check(work, function, &over);

    if (status == SYMM_OK && over)
        status =
            symm__fail(SYMM_ERR_INVALID,
                       "%s: the context of this call was finalized; symm_work_query "
                       "says how the call ended",
                       function);
    return status;
}

symm_status symm_work_query(symm_work *handle, bool *done)
{
    struct host_work *work = host_work(handle);
    symm_status status;
    bool over;

    if (!handle || !done)
        return symm__fail(SYMM_ERR_INVALID, "symm_work_query: %s is NULL",
                          handle ? "done" : "work");
    status = check(handle, "symm_work_query", &over);
    if (status != SYMM_OK)
        return status;
    if (handle->device_ops)
        return handle->device_ops->work_query(handle, done);
    *done = is_done(work);
    return *done ? outcome(work) : SYMM_OK;
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
    bool by_default = !(timeout > 0), late = false, over;
    double seconds = 0;
    symm_status status;

    if (!handle)
        return symm__fail_null("symm_work_synchronize", "work");
    status = check(handle, "symm_work_synchronize", &over);
    if (status == SYMM_OK && !over)
        status =
            symm__take_timeout(handle->ctx, "symm_work_synchronize", timeout, &seconds);
    if (status != SYMM_OK)
        return status;
    if (handle->device_ops)
        return handle->device_ops->work_synchronize(handle, seconds);
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
    bool over;

    if (!handle || check(handle, "symm_work_error", &over) != SYMM_OK)
        return "";
    if (handle->device_ops)
        return handle->device_ops->work_error(handle);
    return is_done(work) ? work->error : "";
}

/* Waits for the work and the calls before it, each of which ends by its own timeout. */
static symm_status settle(struct host_work *work)
{
    pthread_mutex_lock(&work->lock);
    while (!work->done)
        pthread_cond_wait(&work->completed, &work->lock);
    pthread_mutex_unlock(&work->lock);
    return outcome(work);
}

static void follow_free(struct follow *follow)
{
    if (!follow)
        return;
    work_drop(follow->after);
    free(follow);
}

static void run_follow(struct symm_task *task)
{
    struct follow *follow = (struct follow *)task;

    symm__work_complete(follow->next, settle(follow->after));
    follow_free(follow);
}

/* Completes `next` (NULL: nothing) with the outcome of `after`, once a stream reaches it. */
static struct follow *follow_create(struct host_work *after, symm_work *next)
{
    struct follow *follow = calloc(1, sizeof(*follow));

    if (!follow) {
        symm__fail(SYMM_ERR_NOMEM, "no memory to wait on a stream");
        return NULL;
    }
    __atomic_add_fetch(&after->references, 1, __ATOMIC_RELAXED);
    *follow = (struct follow){.task.run = run_follow, .after = after, .next = next};
    return follow;
}

/* Orders the stream after the work. */
static symm_status order(struct host_work *work, void *stream)
{
    struct follow *wait = follow_create(work, NULL);
    symm_status status;

    if (!wait)
        return SYMM_ERR_NOMEM;
    status = symm__stream_push(work->head.ctx, stream, &wait->task);
    if (status != SYMM_OK)
        follow_free(wait);
    return status;
}

/* From here on an error is reported by the next handle, which `end` completes on the stream. */
static symm_status call_then(struct host_work *work, void *stream,
                             symm_status (*fn)(void *arg, void *stream), void *arg,
                             struct follow *end)
{
    symm_status status = !stream || is_done(work) ? settle(work) : SYMM_OK;

    if (status != SYMM_OK)
        return status;
    status = fn(arg, stream);
    if (status != SYMM_OK)
        return symm__fail(status, "a callback returned %s", symm_status_name(status));
    return end ? symm__stream_push(work->head.ctx, stream, &end->task) : SYMM_OK;
}

static symm_status then(struct host_work *work, void *stream,
                        symm_status (*fn)(void *arg, void *stream), void *arg,
                        symm_work **next)
{
    char sentence[SYMM_ERROR_BYTES];
    struct follow *end = NULL;
    symm_work *result = NULL;
    symm_status status = SYMM_OK;

    if (next)
        status = symm__work_create(work->head.ctx, true, &result);
    if (status == SYMM_OK && next && stream && !(end = follow_create(work, result)))
        status = SYMM_ERR_NOMEM;
    if (status == SYMM_OK && stream)
        status = order(work, stream);
    if (status != SYMM_OK) {
        follow_free(end);
        symm__work_complete(result, status);
        symm_work_release(result);
        return status;
    }
    symm__error_save(sentence);
    status = call_then(work, stream, fn, arg, end);
    if (status != SYMM_OK || !end) { /* else the stream completes it */
        follow_free(end);
        symm__work_complete(result, status);
        symm__error_restore(sentence);
    }
    if (next)
        *next = result;
    return SYMM_OK;
}

symm_status symm_work_then(symm_work *work, void *stream,
                           symm_status (*fn)(void *arg, void *stream), void *arg,
                           symm_work **next)
{
    symm_status status;

    if (!work || !fn)
        return symm__fail(SYMM_ERR_INVALID, "symm_work_then: %s is NULL",
                          work ? "fn" : "work");
    status = check_lives(work, "symm_work_then");
    if (status != SYMM_OK)
        return status;
    if (symm__is_recorded(work->ctx)) /* before fn makes calls of its own */
        symm__record_wait(work, stream);
    return work->device_ops ? work->device_ops->work_then(work, stream, fn, arg, next)
                            : then(host_work(work), stream, fn, arg, next);
}

symm_status symm_work_wait(symm_work *work, void *stream)
{
    symm_status status;
    bool over;

    if (!work)
        return symm__fail_null("symm_work_wait", "work");
    status = check(work, "symm_work_wait", &over);
    if (status == SYMM_OK && over) /* nothing is left to wait for */
        return symm_work_query(work, &over);
    if (status != SYMM_OK)
        return status;
    if (symm__is_recorded(work->ctx))
        symm__record_wait(work, stream);
    if (work->device_ops)
        return work->device_ops->work_wait(work, stream);
    return stream ? order(host_work(work), stream) : settle(host_work(work));
}

/* ---- Notifications --------------------------------------------------------------- */

static void notify(struct host_work *work, struct symm_notification *notification)
{
    pthread_mutex_lock(&work->lock);
    if (work->done)
        symm__notifier_post(&work->head.ctx->notifier, notification, work->status,
                            work->error);
    else
        symm__notification_add(&work->notifications, notification);
    pthread_mutex_unlock(&work->lock);
}

/* Adds fn, or with fn NULL the eventfd, which the caller still owns on error. */
static symm_status add(symm_work *work, void (*fn)(symm_status status, void *arg),
                       void *arg, int fd)
{
    struct symm_notification *made;
    symm_status status = SYMM_OK;

    /* The thread that completes the work writes an eventfd itself. */
    if (fn || work->device_ops)
        status = symm__notifier_start(&work->ctx->notifier, work->ctx->rank);
    if (status != SYMM_OK)
        return status;
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a notification");
    made->fn = fn;
    made->arg = arg;
    made->fd = fd;
    if (work->device_ops)
        status = work->device_ops->work_notify(work, made);
    else
        notify(host_work(work), made);
    if (status != SYMM_OK)
        free(made);
    return status;
}

symm_status symm_work_notify(symm_work *work, void (*fn)(symm_status status, void *arg),
                             void *arg)
{
    symm_status status;

    if (!work || !fn)
        return symm__fail_null("symm_work_notify", work ? "fn" : "work");
    status = check_lives(work, "symm_work_notify");
    return status == SYMM_OK ? add(work, fn, arg, -1) : status;
}

/* The library writes to a descriptor of its own: the caller may close the one it has at any
 * time. */
symm_status symm_work_fd(symm_work *work, int *fd)
{
    int given, own = -1;
    symm_status status;

    if (!work || !fd)
        return symm__fail_null("symm_work_fd", work ? "fd" : "work");
    status = check_lives(work, "symm_work_fd");
    if (status != SYMM_OK)
        return status;
    symm__streams_guard();
    given = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (given >= 0)
        own = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                  "symm_work_fd: rank %d cannot make an eventfd, which "
                                  "takes two descriptors until the call has ended",
                                  work->ctx->rank);
    if (status == SYMM_OK)
        status = add(work, NULL, NULL, own);
    if (status == SYMM_OK) {
        *fd = given;
        return SYMM_OK;
    }
    if (own >= 0)
        close(own);
    if (given >= 0)
        close(given);
    return status;
}
