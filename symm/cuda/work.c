/* SPDX-License-Identifier: MIT */
/*
 * work.c - handles on CUDA: an event after the launch, and a word that the kernel
 * writes if it fails.
 *
 * Making a handle takes an event and a word from pools, and waits for nothing. A handle may be
 * released while its call runs: its word and its event then stay taken, and a later call that
 * finds the pools empty queries the oldest such events. Beside its launch a call with a handle
 * costs two calls of the driver: is the stream captured, and the event's record. Both are made in
 * the current context, as the launch is, or in the rank's own if the current one does not know the
 * stream. Every query of an event is made in relaxed capture mode, so that captures of other
 * threads go on. A handle that is made during a capture has no outcome of its own: its event is
 * part of the graph, and the call runs at each replay, or never.
 *
 * Handles with notifications are awaited: the context's notifier polls them (core/notifier.h), the
 * oldest of each stream, since an event is not done before those recorded earlier on its stream. A
 * released one stays where it is until its end has been told.
 *
 * The pool's lock guards lists and fields; it is never held while a failure is explained. Only the
 * notifier and the end of a team, which holds its `polling`, take handles off the awaited list.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/launcher.h"
#include "util/clock.h"
#include "util/status.h"

#define SPIN_SECONDS   0.0002 /* yields before the first sleep */
#define SLEEP_SECONDS  0.00005
#define SETTLE_SECONDS 1.0
#define REAP_AT_ONCE   8 /* released handles that a new one frees */
#define EVENTS_AT_ONCE 8 /* that are made where the pool has none */
#define STREAMS_KNOWN  16 /* a poll finds others by a search */

struct symm_cuda_work {
    struct symm_work head;
    struct symm_cuda_launcher *launcher; /* NULL: complete, without event and word */
    symm_team *team;
    CUstream stream;
    struct symm_cuda_work *next; /* on launcher->works or launcher->released */
    struct symm_cuda_work **back; /* the pointer to this handle in the list */
    CUevent event;
    uint64_t number; /* of the launcher's: later calls have greater ones */
    int result; /* index of its word; -1: none */
    bool captured, released;
    struct symm_notification *notifications; /* not empty: awaited; owned */
    struct symm_cuda_work *awaited_next;
    bool done; /* atomic; status and error are written before */
    symm_status status;
    char error[SYMM_ERROR_BYTES];
};

/* ---- Pools: all of it with the pool's lock ---------------------------------------------- */

symm_status symm__cuda_pool_open(struct symm_cuda_launcher *launcher)
{
    void *results;
    symm_status status = symm__cuda_host_alloc(
        launcher->ctx, SYMM_CUDA_RESULTS * sizeof(*launcher->results), &results);

    if (status != SYMM_OK)
        return status;
    launcher->results = results;
    for (int i = 0; i < SYMM_CUDA_RESULTS; i++)
        launcher->result_free[i] = (uint16_t)(SYMM_CUDA_RESULTS - 1 - i);
    launcher->result_count = SYMM_CUDA_RESULTS;
    launcher->released_end = &launcher->released;
    launcher->fresh_end = &launcher->fresh;
    launcher->awaited_end = &launcher->awaited;
    return SYMM_OK;
}

void symm__cuda_pool_close(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_scope scope;

    if (symm__cuda_enter(launcher->backend, &scope) == SYMM_OK) {
        for (size_t i = 0; i < launcher->event_count; i++)
            (void)launcher->driver->cuEventDestroy(launcher->events[i]);
        symm__cuda_leave(&scope);
    }
    free(launcher->events);
    symm__cuda_host_free(launcher->ctx, launcher->results);
}

static int result_take(struct symm_cuda_launcher *launcher)
{
    int index;

    if (launcher->result_count == 0)
        return -1; /* the team's state has the outcome then */
    index = launcher->result_free[--launcher->result_count];
    launcher->result_holders[index] = 1;
    __atomic_store_n(&launcher->results[index], 0, __ATOMIC_RELAXED);
    return index;
}

static void result_drop(struct symm_cuda_launcher *launcher, int index)
{
    if (index >= 0 && --launcher->result_holders[index] == 0)
        launcher->result_free[launcher->result_count++] = (uint16_t)index;
}

symm_status symm__cuda_event_acquire(struct symm_cuda_launcher *launcher,
                                     CUevent *event)
{
    struct symm_cuda_scope scope;
    symm_status status;

    pthread_mutex_lock(&launcher->pool);
    if (launcher->event_count > 0) {
        *event = launcher->events[--launcher->event_count];
        pthread_mutex_unlock(&launcher->pool);
        return SYMM_OK;
    }
    pthread_mutex_unlock(&launcher->pool);
    status = symm__cuda_enter(launcher->backend, &scope);
    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(launcher->driver, cuEventCreate,
                            (event, CU_EVENT_DISABLE_TIMING), "an event");
    symm__cuda_leave(&scope);
    return status;
}

/* With the lock held; an event that does not fit is destroyed, done or not. */
static void event_give(struct symm_cuda_launcher *launcher, CUevent event)
{
    if (launcher->event_count == launcher->event_capacity) {
        size_t capacity = launcher->event_capacity ? 2 * launcher->event_capacity : 64;
        CUevent *grown = realloc(launcher->events, capacity * sizeof(*grown));

        if (!grown) {
            (void)launcher->driver->cuEventDestroy(event);
            return;
        }
        launcher->events = grown;
        launcher->event_capacity = capacity;
    }
    launcher->events[launcher->event_count++] = event;
}

void symm__cuda_event_release(struct symm_cuda_launcher *launcher, CUevent event)
{
    pthread_mutex_lock(&launcher->pool);
    event_give(launcher, event);
    pthread_mutex_unlock(&launcher->pool);
}

static void link_work(struct symm_cuda_launcher *launcher, struct symm_cuda_work *work)
{
    work->back = &launcher->works;
    work->next = launcher->works;
    if (work->next)
        work->next->back = &work->next;
    launcher->works = work;
}

static void unlink_work(struct symm_cuda_launcher *launcher,
                        struct symm_cuda_work *work)
{
    *work->back = work->next;
    if (work->next)
        work->next->back = work->back;
    else if (launcher->released_end == &work->next)
        launcher->released_end = work->back;
}

/* The newest of the released ones. */
static void link_released(struct symm_cuda_launcher *launcher,
                          struct symm_cuda_work *work)
{
    work->back = launcher->released_end;
    work->next = NULL;
    *work->back = work;
    launcher->released_end = &work->next;
}

/* Returns the handle's event and word to the pools. */
static void give_back(struct symm_cuda_work *work)
{
    struct symm_cuda_launcher *launcher = work->launcher;

    unlink_work(launcher, work);
    event_give(launcher, work->event);
    result_drop(launcher, work->result);
    work->launcher = NULL;
    work->team = NULL;
}

/* The same; frees the handle if its owner has released it. */
static void detach(struct symm_cuda_work *work)
{
    give_back(work);
    if (work->released)
        free(work);
}

/* Frees released handles whose calls are done: a few, the oldest first. The first whose call
 * still runs ends the search and moves to the list's end, so that it blocks no others. In a
 * scope. */
static void reap(struct symm_cuda_launcher *launcher)
{
    for (int i = 0; i < REAP_AT_ONCE && launcher->released; i++) {
        struct symm_cuda_work *work = launcher->released;

        if (launcher->driver->cuEventQuery(work->event) == CUDA_ERROR_NOT_READY) {
            unlink_work(launcher, work);
            link_released(launcher, work);
            return;
        }
        detach(work);
    }
}

/* Several at a time, so that few calls search and create. In a scope. After a failure the call
 * that finds the pool empty reports it. */
static void make_events(struct symm_cuda_launcher *launcher)
{
    CUevent event;

    for (int i = 0; i < EVENTS_AT_ONCE; i++) {
        if (launcher->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) !=
            CUDA_SUCCESS)
            return;
        event_give(launcher, event);
    }
}

/* If a pool is empty: frees what released handles no longer need, or makes events. */
static void refill(struct symm_cuda_launcher *launcher, bool own_result)
{
    struct symm_cuda_scope scope;
    bool empty;

    pthread_mutex_lock(&launcher->pool);
    empty = launcher->event_count == 0 ||
            (own_result && launcher->result_count == 0 && launcher->released);
    pthread_mutex_unlock(&launcher->pool);
    if (!empty || symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return;
    pthread_mutex_lock(&launcher->pool);
    reap(launcher);
    if (launcher->event_count == 0)
        make_events(launcher);
    pthread_mutex_unlock(&launcher->pool);
    symm__cuda_leave(&scope);
}

/* ---- Making one ------------------------------------------------------------------ */

static struct symm_cuda_work *cuda_work(symm_work *work)
{
    return (struct symm_cuda_work *)work; /* its first member */
}

static symm_status work_create(symm_ctx *ctx, struct symm_cuda_work **work)
{
    struct symm_cuda_work *w = calloc(1, sizeof(*w));

    if (!w)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a work handle");
    w->head.ctx = ctx;
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
        refill(launcher, own_result);
    status = symm__cuda_event_acquire(launcher, &work->event);
    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&launcher->pool);
    if (own_result && !work->captured) /* a replay would write a slot of another handle */
        work->result = result_take(launcher);
    work->launcher = launcher;
    work->number = ++launcher->works_made;
    link_work(launcher, work);
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
        free(made);
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

    if (status == SYMM_OK)
        status = symm__cuda_check(
            launcher->driver,
            symm__cuda_on_stream(launcher, SYMM_CUDA_RECORD, work->stream, work->event),
            "cuEventRecord", "the end of a call on stream %p", (void *)work->stream);
    if (status == SYMM_OK) {
        *handle = &work->head;
        return SYMM_OK;
    }
    pthread_mutex_lock(&launcher->pool);
    work->released = true; /* never recorded: counts as done */
    detach(work);
    pthread_mutex_unlock(&launcher->pool);
    return status;
}

/* ---- Results ----------------------------------------------------------------------------- */

static bool is_done(const struct symm_cuda_work *work)
{
    /* acquire: pairs with the release in conclude */
    return __atomic_load_n(&work->done, __ATOMIC_ACQUIRE);
}

static symm_status outcome(const struct symm_cuda_work *work)
{
    return work->status == SYMM_OK ? SYMM_OK
                                   : symm__fail_quiet(work->status, work->error);
}

/* With the pool's lock, or before any other thread has the handle. */
static void conclude(struct symm_cuda_work *work, symm_status status)
{
    if (work->done)
        return;
    work->status = status;
    if (status != SYMM_OK)
        strncpy(work->error, symm_last_error(), sizeof(work->error) - 1);
    __atomic_store_n(&work->done, true, __ATOMIC_RELEASE);
}

/* What the kernel has written of a failure; 0: nothing, or the handle has no word. */
static uint32_t result_of(const struct symm_cuda_work *work)
{
    return work->result < 0 ? 0
                            : __atomic_load_n(&work->launcher->results[work->result],
                                              __ATOMIC_ACQUIRE);
}

/* The status of a call whose event is done. Explaining a failure may take a while. */
static symm_status judge(const struct symm_cuda_work *work)
{
    uint32_t code = result_of(work);
    symm_status status = SYMM_OK;

    if (work->result < 0 || code != 0)
        status = symm__cuda_team_poll(work->team);
    if (code != 0 && status == SYMM_OK)
        status = symm__fail((symm_status) - (int32_t)code,
                            "a call failed on the device of rank %d and left no record",
                            work->head.ctx->rank);
    return status;
}

static symm_status refuse_captured(const char *what)
{
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "%s: the call was captured into a graph and runs when that is "
                      "launched; query an event after the launch, or call symm_stream_"
                      "synchronize",
                      what);
}

/* Polls once; *done is valid on error, too. */
static symm_status look(struct symm_cuda_work *work, bool *done)
{
    struct symm_cuda_scope scope;
    CUresult result;
    symm_status status;

    *done = is_done(work);
    if (*done)
        return outcome(work);
    status = symm__cuda_enter(work->launcher->backend, &scope);
    if (status != SYMM_OK)
        return status;
    result = work->launcher->driver->cuEventQuery(work->event);
    symm__cuda_leave(&scope);
    if (result == CUDA_ERROR_NOT_READY)
        return SYMM_OK;
    status = symm__cuda_check(work->launcher->driver, result, "cuEventQuery",
                              "the end of a call");
    if (status == SYMM_OK)
        status = judge(work);
    pthread_mutex_lock(&work->launcher->pool);
    conclude(work, status);
    pthread_mutex_unlock(&work->launcher->pool);
    *done = true;
    return outcome(work);
}

symm_status symm__cuda_work_query(symm_work *handle, bool *done)
{
    struct symm_cuda_work *work = cuda_work(handle);
    bool now = false;
    symm_status status;

    if (work->captured)
        return refuse_captured("symm_work_query");
    status = look(work, &now);
    *done = now;
    return status;
}

symm_status symm__cuda_work_synchronize(symm_work *handle, double seconds)
{
    struct symm_cuda_work *work = cuda_work(handle);
    double start = symm__now(), elapsed = 0;
    bool done = false;
    symm_status status;

    if (work->captured)
        return refuse_captured("symm_work_synchronize");
    for (;;) {
        status = look(work, &done);
        if (done || status != SYMM_OK)
            return status;
        if (elapsed >= seconds)
            return symm__fail(
                SYMM_ERR_TIMEOUT,
                "symm_work_synchronize: the call of rank %d is not complete after %g "
                "s; "
                "raise the seconds given, or look at what its stream waits for",
                handle->ctx->rank, seconds);
        if (elapsed < SPIN_SECONDS)
            sched_yield();
        else
            symm__sleep(SLEEP_SECONDS);
        elapsed = symm__now() - start;
    }
}

const char *symm__cuda_work_error(symm_work *handle)
{
    struct symm_cuda_work *work = cuda_work(handle);
    bool done = false;

    if (work->captured)
        return "";
    return look(work, &done) != SYMM_OK && done ? work->error : "";
}

void symm__cuda_work_release(symm_work *handle)
{
    struct symm_cuda_work *work = cuda_work(handle);
    struct symm_cuda_launcher *launcher = work->launcher;

    if (!launcher || symm__ctx_check(work->head.ctx) != SYMM_OK) {
        free(work); /* settled, or in a forked child */
        return;
    }
    pthread_mutex_lock(&launcher->pool);
    work->released = true;
    if (work->notifications) {
        /* detached when they are posted */
    } else if (work->captured || is_done(work)) {
        detach(work);
    } else {
        unlink_work(launcher, work);
        link_released(launcher, work);
    }
    pthread_mutex_unlock(&launcher->pool);
}

/* ---- Order ----------------------------------------------------------------------- */

static symm_status order(struct symm_cuda_work *work, CUstream stream)
{
    if (is_done(work))
        return SYMM_OK;
    if (!work->launcher) /* captured, and its team is gone */
        return refuse_captured("symm_work_wait");
    return symm__cuda_check(
        work->launcher->driver,
        symm__cuda_on_stream(work->launcher, SYMM_CUDA_AWAIT, stream, work->event),
        "cuStreamWaitEvent", "ordering stream %p after a call on stream %p%s",
        (void *)stream, (void *)work->stream,
        work->captured ? ", which was captured" : "");
}

symm_status symm__cuda_work_wait(symm_work *handle, void *stream)
{
    struct symm_cuda_work *work = cuda_work(handle);
    symm_status status = symm__cuda_stream_check(handle->ctx, &stream);

    if (status == SYMM_OK)
        status = order(work, (CUstream)stream);
    return status == SYMM_OK && is_done(work) ? outcome(work) : status;
}

/* A handle that is complete from the start. */
static symm_status concluded(symm_ctx *ctx, symm_status status, symm_work **handle)
{
    struct symm_cuda_work *work = NULL;
    symm_status created = work_create(ctx, &work);

    if (created != SYMM_OK)
        return created;
    conclude(work, status);
    *handle = &work->head;
    return SYMM_OK;
}

/* A handle for the end of what fn has put on the stream; fails if the work before has failed. */
static symm_status follow(struct symm_cuda_work *before, void *stream, symm_work **next)
{
    struct symm_cuda_launcher *launcher = before->launcher;
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

symm_status symm__cuda_work_then(symm_work *handle, void *stream,
                                 symm_status (*fn)(void *arg, void *stream), void *arg,
                                 symm_work **next)
{
    struct symm_cuda_work *work = cuda_work(handle);
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
    else if (status != SYMM_OK || !work->launcher)
        status = concluded(handle->ctx, status, next);
    else
        status = follow(work, stream, next);
    if (status == SYMM_OK)
        symm__error_restore(sentence);
    return status;
}

/* ---- Notifications: see core/notifier.h -------------------------------------------- */

/* Gives the fresh ones their places, mostly at the end. With the pool's lock and `polling`. */
static void await_fresh(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_work *work;

    while ((work = launcher->fresh)) {
        struct symm_cuda_work **at = work->number > launcher->awaited_newest
                                         ? launcher->awaited_end
                                         : &launcher->awaited;

        launcher->fresh = work->awaited_next;
        while (*at && (*at)->number < work->number)
            at = &(*at)->awaited_next;
        work->awaited_next = *at;
        *at = work;
        if (!work->awaited_next)
            launcher->awaited_end = &work->awaited_next;
        if (work->number > launcher->awaited_newest)
            launcher->awaited_newest = work->number;
    }
    launcher->fresh_end = &launcher->fresh;
}

/* Takes *at off the list. With the pool's lock and `polling`. */
static void unawait(struct symm_cuda_launcher *launcher, struct symm_cuda_work **at)
{
    *at = (*at)->awaited_next;
    if (!*at)
        launcher->awaited_end = at;
}

/* Of a work that is done. With the pool's lock. */
static void post(struct symm_cuda_work *work)
{
    symm__notifier_post(&work->head.ctx->notifier, work->notifications, work->status,
                        work->error);
    work->notifications = NULL;
}

/* Streams whose oldest awaited work runs. */
struct streams {
    CUstream at[STREAMS_KNOWN];
    int count;
};

/* Whether an older work of its stream is still awaited. With the pool's lock. */
static bool is_behind(const struct symm_cuda_launcher *launcher,
                      const struct streams *running, const struct symm_cuda_work *work)
{
    for (int i = 0; i < running->count; i++)
        if (running->at[i] == work->stream)
            return true;
    if (running->count < STREAMS_KNOWN)
        return false;
    for (const struct symm_cuda_work *w = launcher->awaited; w != work;
         w = w->awaited_next)
        if (w->stream == work->stream)
            return true;
    return false;
}

static bool poll_awaited(void *from)
{
    struct symm_cuda_launcher *launcher = from;
    struct symm_cuda_work **at = &launcher->awaited;
    struct streams running = {.count = 0};
    bool awaits;

    pthread_mutex_lock(&launcher->pool);
    await_fresh(launcher);
    while (*at) {
        struct symm_cuda_work *work = *at;
        bool ended = false;

        if (is_behind(launcher, &running, work)) {
            at = &work->awaited_next;
            continue;
        }
        pthread_mutex_unlock(&launcher->pool); /* others add to `fresh` meanwhile */
        (void)look(work, &ended);
        pthread_mutex_lock(&launcher->pool);
        if (ended) {
            unawait(launcher, at);
            post(work);
            if (work->released)
                detach(work);
        } else {
            at = &work->awaited_next;
            if (running.count < STREAMS_KNOWN)
                running.at[running.count++] = work->stream;
        }
    }
    awaits = launcher->awaited || launcher->fresh;
    pthread_mutex_unlock(&launcher->pool);
    return awaits;
}

symm_status symm__cuda_work_notify(symm_work *handle,
                                   struct symm_notification *notification)
{
    struct symm_cuda_work *work = cuda_work(handle);
    struct symm_cuda_launcher *launcher = work->launcher;
    struct symm_notifier *notifier = &handle->ctx->notifier;
    bool awaits;

    if (work->captured)
        return refuse_captured("symm_work_notify");
    if (!launcher) { /* its team is gone, or it never ran */
        symm__notifier_post(notifier, notification, work->status, work->error);
        return SYMM_OK;
    }
    pthread_mutex_lock(&launcher->pool);
    /* one that is done must not overtake others that are still awaited */
    awaits = !work->done || launcher->awaited || launcher->fresh;
    if (awaits && !work->notifications) {
        work->awaited_next = NULL;
        *launcher->fresh_end = work;
        launcher->fresh_end = &work->awaited_next;
    }
    symm__notification_add(&work->notifications, notification);
    if (!awaits)
        post(work);
    pthread_mutex_unlock(&launcher->pool);
    if (awaits)
        symm__notifier_await(notifier, poll_awaited, launcher);
    return SYMM_OK;
}

/* ---- The team's end -------------------------------------------------------------- */

/* The team's kernels have ended, so an event after one completes soon. */
static bool is_recorded(struct symm_cuda_launcher *launcher, CUevent event)
{
    double start = symm__now();

    while (launcher->driver->cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
        if (symm__now() - start > SETTLE_SECONDS)
            return false;
        sched_yield();
    }
    return true;
}

static void settle(struct symm_cuda_launcher *launcher, struct symm_cuda_work *work,
                   symm_status failure, const char *sentence)
{
    const bool released = work->released;

    if (!work->captured && !work->done) {
        if (!is_recorded(launcher, work->event))
            conclude(work, symm__fail(SYMM_ERR_ABORTED,
                                      "the team was destroyed before the call was "
                                      "complete"));
        else if (failure != SYMM_OK && (result_of(work) != 0 || work->result < 0))
            conclude(work, symm__fail_quiet(failure, sentence));
        else
            conclude(work, SYMM_OK);
    }
    give_back(work);
    post(work); /* the owner may at once release the handle */
    if (released)
        free(work);
}

/* First those that are awaited, in their order. */
static void settle_awaited(struct symm_cuda_launcher *launcher, const symm_team *team,
                           symm_status failure, const char *sentence)
{
    struct symm_cuda_work **at = &launcher->awaited;

    await_fresh(launcher);
    while (*at) {
        struct symm_cuda_work *work = *at;

        if (work->team != team) {
            at = &work->awaited_next;
            continue;
        }
        unawait(launcher, at);
        settle(launcher, work, failure, sentence);
    }
}

static void settle_all(struct symm_cuda_launcher *launcher,
                       struct symm_cuda_work *first, const symm_team *team,
                       symm_status failure, const char *sentence)
{
    while (first) {
        struct symm_cuda_work *next = first->next;

        if (first->team == team)
            settle(launcher, first, failure, sentence);
        first = next;
    }
}

void symm__cuda_work_complete_all(struct symm_cuda_launcher *launcher, symm_team *team)
{
    char sentence[SYMM_ERROR_BYTES] = "";
    struct symm_cuda_scope scope;
    symm_status failure = symm__cuda_team_poll(team);

    if (failure != SYMM_OK)
        strncpy(sentence, symm_last_error(), sizeof(sentence) - 1);
    if (!symm__cuda_enter_last(launcher->backend, &scope))
        return;
    pthread_mutex_lock(&team->ctx->notifier.polling);
    pthread_mutex_lock(&launcher->pool);
    settle_awaited(launcher, team, failure, sentence);
    settle_all(launcher, launcher->works, team, failure, sentence);
    settle_all(launcher, launcher->released, team, failure, sentence);
    pthread_mutex_unlock(&launcher->pool);
    pthread_mutex_unlock(&team->ctx->notifier.polling);
    symm__cuda_leave(&scope);
}
