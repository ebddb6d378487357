/* SPDX-License-Identifier: MIT */
/*
 * work.c - handles on CUDA: an event after the launch, and a word that the kernel
 * writes if it fails.
 *
 * Making a handle takes an event and a word from pools, and waits for nothing. A handle may
 * be released while its call runs: its word and its event then stay taken, and a later call
 * which finds the pools empty looks whether the oldest such events are done. Beside its
 * launch a call with a handle costs two calls of the driver: is the stream captured, and the
 * event's record. Both are made in whatever context is current, as the launch is, and in the
 * rank's own where that is another one. Every query of an event is made in relaxed capture
 * mode, so that captures of other threads go on. A handle that is made during a capture has
 * no outcome of its own: its event is part of the graph, and the call runs at each replay, or
 * never.
 *
 * The pool's lock guards lists and fields; it is never held while a failure is explained.
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

struct symm_cuda_work {
    struct symm_work head;
    struct symm_cuda_launcher *calls; /* NULL: settled, nothing is left of the device */
    symm_team *team;
    CUstream stream;
    struct symm_cuda_work *next, **oob; /* launcher->works, or launcher->released */
    CUevent event;
    int result; /* index of its word; -1: none */
    bool captured, released;
    bool done; /* atomic; status and error are written before */
    symm_status status;
    char error[SYMM_ERROR_BYTES];
};

/* ---- Pools: all of it with the pool's lock ---------------------------------------------- */

symm_status symm__cuda_pool_open(struct symm_cuda_launcher *calls)
{
    void *results;
    symm_status status = symm__cuda_host_alloc(
        calls->ctx, SYMM_CUDA_RESULTS * sizeof(*calls->results), &results);

    if (status != SYMM_OK)
        return status;
    calls->results = results;
    for (int i = 0; i < SYMM_CUDA_RESULTS; i++)
        calls->result_free[i] = (uint16_t)(SYMM_CUDA_RESULTS - 1 - i);
    calls->result_count = SYMM_CUDA_RESULTS;
    calls->released_end = &calls->released;
    return SYMM_OK;
}

void symm__cuda_pool_close(struct symm_cuda_launcher *calls)
{
    struct symm_cuda_scope scope;

    if (symm__cuda_enter(calls->backend, &scope) == SYMM_OK) {
        for (size_t i = 0; i < calls->event_count; i++)
            (void)calls->driver->cuEventDestroy(calls->events[i]);
        symm__cuda_leave(&scope);
    }
    free(calls->events);
    symm__cuda_host_free(calls->ctx, calls->results);
}

static int result_take(struct symm_cuda_launcher *calls)
{
    int index;

    if (calls->result_count == 0)
        return -1; /* the team's state has the outcome then */
    index = calls->result_free[--calls->result_count];
    calls->result_holders[index] = 1;
    __atomic_store_n(&calls->results[index], 0, __ATOMIC_RELAXED);
    return index;
}

static void result_drop(struct symm_cuda_launcher *calls, int index)
{
    if (index >= 0 && --calls->result_holders[index] == 0)
        calls->result_free[calls->result_count++] = (uint16_t)index;
}

symm_status symm__cuda_event_acquire(struct symm_cuda_launcher *calls, CUevent *event)
{
    struct symm_cuda_scope scope;
    symm_status status;

    pthread_mutex_lock(&calls->pool);
    if (calls->event_count > 0) {
        *event = calls->events[--calls->event_count];
        pthread_mutex_unlock(&calls->pool);
        return SYMM_OK;
    }
    pthread_mutex_unlock(&calls->pool);
    status = symm__cuda_enter(calls->backend, &scope);
    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(calls->driver, cuEventCreate,
                            (event, CU_EVENT_DISABLE_TIMING), "an event");
    symm__cuda_leave(&scope);
    return status;
}

/* With the lock held; an event that does not fit is destroyed, done or not. */
static void event_give(struct symm_cuda_launcher *calls, CUevent event)
{
    if (calls->event_count == calls->event_capacity) {
        size_t capacity = calls->event_capacity ? 2 * calls->event_capacity : 64;
        CUevent *grown = realloc(calls->events, capacity * sizeof(*grown));

        if (!grown) {
            (void)calls->driver->cuEventDestroy(event);
            return;
        }
        calls->events = grown;
        calls->event_capacity = capacity;
    }
    calls->events[calls->event_count++] = event;
}

void symm__cuda_event_release(struct symm_cuda_launcher *calls, CUevent event)
{
    pthread_mutex_lock(&calls->pool);
    event_give(calls, event);
    pthread_mutex_unlock(&calls->pool);
}

static void link_work(struct symm_cuda_launcher *calls, struct symm_cuda_work *work)
{
    work->oob = &calls->works;
    work->next = calls->works;
    if (work->next)
        work->next->oob = &work->next;
    calls->works = work;
}

static void unlink_work(struct symm_cuda_launcher *calls, struct symm_cuda_work *work)
{
    *work->oob = work->next;
    if (work->next)
        work->next->oob = work->oob;
    else if (calls->released_end == &work->next)
        calls->released_end = work->oob;
}

/* The newest of the released ones. */
static void link_released(struct symm_cuda_launcher *calls, struct symm_cuda_work *work)
{
    work->oob = calls->released_end;
    work->next = NULL;
    *work->oob = work;
    calls->released_end = &work->next;
}

/* Gives back what the handle has of the device; frees it if the caller has let go. */
static void detach(struct symm_cuda_work *work)
{
    struct symm_cuda_launcher *calls = work->calls;

    unlink_work(calls, work);
    event_give(calls, work->event);
    result_drop(calls, work->result);
    work->calls = NULL;
    work->team = NULL;
    if (work->released)
        free(work);
}

/* Frees released handles whose calls are done: a few, the oldest first. The first whose call
 * still runs ends it and goes to the end, so that it hides no others. In a scope. */
static void reap(struct symm_cuda_launcher *calls)
{
    for (int i = 0; i < REAP_AT_ONCE && calls->released; i++) {
        struct symm_cuda_work *work = calls->released;

        if (calls->driver->cuEventQuery(work->event) == CUDA_ERROR_NOT_READY) {
            unlink_work(calls, work);
            link_released(calls, work);
            return;
        }
        detach(work);
    }
}

/* Several at a time, so that few calls search and create. In a scope. After a failure the call
 * that finds the pool empty reports it. */
static void make_events(struct symm_cuda_launcher *calls)
{
    CUevent event;

    for (int i = 0; i < EVENTS_AT_ONCE; i++) {
        if (calls->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) !=
            CUDA_SUCCESS)
            return;
        event_give(calls, event);
    }
}

/* Where a pool is empty: what released handles no longer need comes back, or events are
 * made. */
static void refill(struct symm_cuda_launcher *calls, bool own_result)
{
    struct symm_cuda_scope scope;
    bool empty;

    pthread_mutex_lock(&calls->pool);
    empty = calls->event_count == 0 ||
            (own_result && calls->result_count == 0 && calls->released);
    pthread_mutex_unlock(&calls->pool);
    if (!empty || symm__cuda_enter(calls->backend, &scope) != SYMM_OK)
        return;
    pthread_mutex_lock(&calls->pool);
    reap(calls);
    if (calls->event_count == 0)
        make_events(calls);
    pthread_mutex_unlock(&calls->pool);
    symm__cuda_leave(&scope);
}

/* ---- The driver's calls for each handle ------------------------------------------------- */

/*
 * As for a launch, any context will do that knows the stream; if the current one does not,
 * the rank's own. The default stream is the current context's, so it always takes that.
 */
static bool try_own(struct symm_cuda_launcher *calls, CUresult result,
                    struct symm_cuda_scope *scope)
{
    return symm__cuda_elsewhere(result) &&
           symm__cuda_enter(calls->backend, scope) == SYMM_OK;
}

static CUresult record_event(struct symm_cuda_launcher *calls, CUevent event,
                             CUstream stream)
{
    CUresult result = stream ? calls->driver->cuEventRecord(event, stream)
                             : CUDA_ERROR_INVALID_CONTEXT;
    struct symm_cuda_scope scope;

    if (try_own(calls, result, &scope)) {
        result = calls->driver->cuEventRecord(event, stream);
        symm__cuda_leave(&scope);
    }
    return result;
}

static CUresult await_event(struct symm_cuda_launcher *calls, CUevent event,
                            CUstream stream)
{
    CUresult result = stream ? calls->driver->cuStreamWaitEvent(stream, event, 0)
                             : CUDA_ERROR_INVALID_CONTEXT;
    struct symm_cuda_scope scope;

    if (try_own(calls, result, &scope)) {
        result = calls->driver->cuStreamWaitEvent(stream, event, 0);
        symm__cuda_leave(&scope);
    }
    return result;
}

static bool is_captured(struct symm_cuda_launcher *calls, CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = stream ? calls->driver->cuStreamIsCapturing(stream, &capture)
                             : CUDA_ERROR_INVALID_CONTEXT;
    struct symm_cuda_scope scope;

    if (try_own(calls, result, &scope)) {
        result = calls->driver->cuStreamIsCapturing(stream, &capture);
        symm__cuda_leave(&scope);
    }
    return result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- Making one ------------------------------------------------------------------ */

static struct symm_cuda_work *cuda_work(symm_work *work)
{
    return (struct symm_cuda_work *)work; /* its first member */
}

static symm_status work_create(symm_team *team, CUstream stream,
                               struct symm_cuda_work **work)
{
    struct symm_cuda_work *w = calloc(1, sizeof(*w));

    if (!w)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a work handle");
    w->head.ctx = team->ctx;
    w->head.calls = team->ctx->calls;
    w->team = team;
    w->stream = stream;
    w->result = -1;
    *work = w;
    return SYMM_OK;
}

static symm_status begin(struct symm_cuda_launcher *calls, struct symm_cuda_work *work,
                         bool own_result)
{
    symm_status status;

    work->captured = is_captured(calls, work->stream);
    if (!work->captured)
        refill(calls, own_result);
    status = symm__cuda_event_acquire(calls, &work->event);
    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&calls->pool);
    if (own_result && !work->captured) /* a replay would write a slot of another handle */
        work->result = result_take(calls);
    work->calls = calls;
    link_work(calls, work);
    pthread_mutex_unlock(&calls->pool);
    return SYMM_OK;
}

symm_status symm__cuda_work_begin(symm_team *team, void *stream,
                                  struct symm_cuda_work **work, uint32_t **result)
{
    struct symm_cuda_launcher *calls = team->ctx->launcher;
    struct symm_cuda_work *made = NULL;
    symm_status status = work_create(team, (CUstream)stream, &made);

    if (status != SYMM_OK)
        return status;
    status = begin(calls, made, result != NULL);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    if (result)
        *result = made->result >= 0 ? &calls->results[made->result] : NULL;
    *work = made;
    return SYMM_OK;
}

symm_status symm__cuda_work_end(struct symm_cuda_work *work, symm_status status,
                                symm_work **handle)
{
    struct symm_cuda_launcher *calls = work->calls;

    if (status == SYMM_OK)
        status = symm__cuda_check(
            calls->driver, record_event(calls, work->event, work->stream),
            "cuEventRecord", "the end of a call on stream %p", (void *)work->stream);
    if (status == SYMM_OK) {
        *handle = &work->head;
        return SYMM_OK;
    }
    pthread_mutex_lock(&calls->pool);
    work->released = true; /* never recorded: counts as done */
    detach(work);
    pthread_mutex_unlock(&calls->pool);
    return status;
}

/* ---- What became of it ------------------------------------------------------------------- */

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

/* With the pool's lock, or before anybody else has the handle. */
static void conclude(struct symm_cuda_work *work, symm_status status)
{
    if (work->done)
        return;
    work->status = status;
    if (status != SYMM_OK)
        strncpy(work->error, symm_last_error(), sizeof(work->error) - 1);
    __atomic_store_n(&work->done, true, __ATOMIC_RELEASE);
}

/* Its event is done: did the call go well? Explains a failure, which may take a while. */
static symm_status judge(const struct symm_cuda_work *work)
{
    uint32_t code =
        work->result < 0
            ? 0
            : __atomic_load_n(&work->calls->results[work->result], __ATOMIC_ACQUIRE);
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
                      "launched; ask an event behind the launch, or symm_stream_"
                      "synchronize",
                      what);
}

/* One look; *done is right in any case. */
static symm_status look(struct symm_cuda_work *work, bool *done)
{
    struct symm_cuda_scope scope;
    CUresult result;
    symm_status status;

    *done = is_done(work);
    if (*done)
        return outcome(work);
    status = symm__cuda_enter(work->calls->backend, &scope);
    if (status != SYMM_OK)
        return status;
    result = work->calls->driver->cuEventQuery(work->event);
    symm__cuda_leave(&scope);
    if (result == CUDA_ERROR_NOT_READY)
        return SYMM_OK;
    status = symm__cuda_check(work->calls->driver, result, "cuEventQuery",
                              "the end of a call");
    if (status == SYMM_OK)
        status = judge(work);
    pthread_mutex_lock(&work->calls->pool);
    conclude(work, status);
    pthread_mutex_unlock(&work->calls->pool);
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
    struct symm_cuda_launcher *calls = work->calls;

    if (!calls || symm__ctx_check(work->head.ctx) != SYMM_OK) {
        free(work); /* settled, or in a forked child */
        return;
    }
    pthread_mutex_lock(&calls->pool);
    work->released = true;
    if (work->captured || is_done(work)) {
        detach(work);
    } else {
        unlink_work(calls, work);
        link_released(calls, work);
    }
    pthread_mutex_unlock(&calls->pool);
}

/* ---- Order ----------------------------------------------------------------------- */

static symm_status order(struct symm_cuda_work *work, CUstream stream)
{
    if (is_done(work))
        return SYMM_OK;
    if (!work->calls) /* captured, and its team is gone */
        return refuse_captured("symm_work_wait");
    return symm__cuda_check(
        work->calls->driver, await_event(work->calls, work->event, stream),
        "cuStreamWaitEvent", "ordering stream %p behind a call on stream %p%s",
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
    struct symm_cuda_work *work = calloc(1, sizeof(*work));

    if (!work)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a work handle");
    work->head.ctx = ctx;
    work->head.calls = ctx->calls;
    work->result = -1;
    conclude(work, status);
    *handle = &work->head;
    return SYMM_OK;
}

/* The end of what fn has put on the stream; it fails if the work before it has. */
static symm_status follow(struct symm_cuda_work *before, void *stream, symm_work **next)
{
    struct symm_cuda_launcher *calls = before->calls;
    struct symm_cuda_work *work;
    symm_status status = symm__cuda_work_begin(before->team, stream, &work, NULL);

    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&calls->pool);
    if (before->result >= 0 && !work->captured) {
        work->result = before->result;
        calls->result_holders[work->result]++;
    }
    pthread_mutex_unlock(&calls->pool);
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
    else if (status != SYMM_OK || !work->calls)
        status = concluded(handle->ctx, status, next);
    else
        status = follow(work, stream, next);
    if (status == SYMM_OK)
        symm__error_restore(sentence);
    return status;
}

/* ---- The team's end -------------------------------------------------------------- */

/* The team's kernels have ended: the event after one is done in a moment. */
static bool is_recorded(struct symm_cuda_launcher *calls, CUevent event)
{
    double start = symm__now();

    while (calls->driver->cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
        if (symm__now() - start > SETTLE_SECONDS)
            return false;
        sched_yield();
    }
    return true;
}

static void settle(struct symm_cuda_launcher *calls, struct symm_cuda_work *work,
                   symm_status failure, const char *sentence)
{
    uint32_t code = work->result < 0 ? 0
                                     : __atomic_load_n(&calls->results[work->result],
                                                       __ATOMIC_ACQUIRE);

    if (!work->captured && !work->done) {
        if (!is_recorded(calls, work->event))
            conclude(work, symm__fail(SYMM_ERR_ABORTED,
                                      "the team was destroyed before the call was "
                                      "complete"));
        else if (failure != SYMM_OK && (code != 0 || work->result < 0))
            conclude(work, symm__fail_quiet(failure, sentence));
        else
            conclude(work, SYMM_OK);
    }
    detach(work);
}

static void settle_all(struct symm_cuda_launcher *calls, struct symm_cuda_work *first,
                       const symm_team *team, symm_status failure, const char *sentence)
{
    while (first) {
        struct symm_cuda_work *next = first->next;

        if (first->team == team)
            settle(calls, first, failure, sentence);
        first = next;
    }
}

void symm__cuda_work_complete_all(struct symm_cuda_launcher *calls, symm_team *team)
{
    char sentence[SYMM_ERROR_BYTES] = "";
    struct symm_cuda_scope scope;
    symm_status failure = symm__cuda_team_poll(team);

    if (failure != SYMM_OK)
        strncpy(sentence, symm_last_error(), sizeof(sentence) - 1);
    if (symm__cuda_enter(calls->backend, &scope) != SYMM_OK)
        return;
    pthread_mutex_lock(&calls->pool);
    settle_all(calls, calls->works, team, failure, sentence);
    settle_all(calls, calls->released, team, failure, sentence);
    pthread_mutex_unlock(&calls->pool);
    symm__cuda_leave(&scope);
}
