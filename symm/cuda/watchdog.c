/* SPDX-License-Identifier: MIT */
/*
 * watchdog.c - a thread that ends waits on the device for a peer that does not arrive. Such waits
 * are those of kernels, and those of streams for copy-engine puts. No host call polls for them.
 *
 * Every few milliseconds it polls each team of its context: the kernels' error record, the
 * peers' control pages, the peers' processes. A failure that it finds becomes the team's. The
 * abort word then ends the kernels at once, before their deadline. Without a failure one poll
 * costs a few loads for each peer, and for each wait of a stream up to two driver calls.
 *
 * A wait of a stream lies between two events, since it has no deadline of its own. The timeout of
 * its call runs from the poll that finds the first event complete. When it has passed, the host
 * stores into the awaited word; an operation of a stream could not do so, as it might never begin
 * (tokens.c). Replays of a graph leave no events. The words of its waits are known, and are
 * written when the team has failed, or when the end of a stream, a team or the context has
 * waited for the device for the context's timeout. All teams with such graphs fail then, since
 * the graph that holds up the device is not known. An engine's operation lies between two
 * events, too, and is ended by aborting its communicator. So is a call that has entered the engine
 * and does not return: the watchdog knows of it before, and its timeout runs from there.
 *
 * A stream goes on after an ended wait, so the failure is reported first: the team has failed,
 * its abort word is set and on its way to the device, and peers have had the time to read the
 * record in the control page. Then the words are stored. After a wait for a word, the stream
 * itself copies the abort word; after an engine's operation it does not. So the operation is
 * aborted when the watchdog's copy has reached the device, or after a second, if no queue of the
 * device takes that copy.
 *
 * The lock is held during a poll, so a team that has been taken off the list is not in use.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "core/failure.h"
#include "cuda/budget.h"
#include "cuda/channel.h"
#include "cuda/progress.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"
#include "util/thread.h"

#define POLL_SECONDS 0.005
/* Between a team's failure and the end of its waits: peers poll a few times meanwhile,
 * and so read the record of the failure before the streams here go on. */
#define RELEASE_SECONDS   0.02
#define COPY_POLL_SECONDS 0.0002
/* A copy of 4 bytes to the device is not waited for any longer: the device has failed, or its
 * queues are held up by operations that the watchdog has to end. */
#define TELL_SECONDS 1.0

/* ---- What is reported before a wait is ended ------------------------------------- */

/* Copies the abort word, which is set, to state->reported, so that kernels of all channels see
 * it, also later ones. False while the copy is pending, for TELL_SECONDS at most. With the
 * lock, in a scope. */
static bool tell(struct symm_cuda_launcher *launcher, struct symm_cuda_team *cuda)
{
    const struct symm_cuda_driver *driver = launcher->driver;
    const double now = symm__now();

    if (cuda->reported)
        return true;
    if (cuda->telling == 0) {
        cuda->telling = now;
        if (driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)&cuda->state->reported,
                                  (CUdeviceptr)(uintptr_t)&cuda->record->abort,
                                  sizeof(cuda->state->reported),
                                  launcher->stream) != CUDA_SUCCESS)
            symm__log(SYMM_LOG_DEBUG, "cannot tell kernels of a failure: the device "
                                      "has failed");
    }
    if (driver->cuStreamQuery(launcher->stream) == CUDA_ERROR_NOT_READY &&
        now - cuda->telling < TELL_SECONDS)
        return false;
    cuda->reported = true;
    return true;
}

void symm__cuda_tell(struct symm_cuda_team *cuda)
{
    struct symm_cuda_launcher *launcher = cuda->team->ctx->launcher;
    struct symm_cuda_scope scope;
    bool told = false;

    /* relaxed: a team that fails after this load has no copy pending */
    if (__atomic_load_n(&cuda->record->abort, __ATOMIC_RELAXED) == 0 ||
        !symm__cuda_enter_last(launcher->backend, &scope))
        return;
    while (!told) {
        pthread_mutex_lock(&launcher->lock);
        told = tell(launcher, cuda);
        pthread_mutex_unlock(&launcher->lock);
        if (!told)
            symm__sleep(COPY_POLL_SECONDS);
    }
    symm__cuda_leave(&scope);
}

/* Whether the waits of a team that has failed may be ended now. With the lock, in a scope. */
static bool may_release(struct symm_cuda_launcher *launcher,
                        struct symm_cuda_team *cuda, double now)
{
    symm__cuda_abort(cuda->team, symm__team_failed(cuda->team));
    (void)tell(launcher, cuda); /* streams have a copy of their own */
    if (cuda->failing == 0)
        cuda->failing = now;
    return now - cuda->failing >= RELEASE_SECONDS;
}

/* Release: a stream that this store lets continue reads the abort word set before. */
static void word_end(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static void wait_release(const struct symm_cuda_wait *wait)
{
    if (wait->comm)
        symm__engine_team_abort(wait->team);
    else
        word_end(wait->word);
}

/* Ends a wait of a stream: what follows on it runs on, in a team that has failed. Does so in each
 * poll until the wait is over, since an earlier wait for the same word may have taken the store. */
static void wait_end(struct symm_cuda_launcher *launcher, struct symm_cuda_wait *wait,
                     double now)
{
    struct symm_cuda_team *cuda = wait->team->cuda;

    if (wait->ended || !may_release(launcher, cuda, now) ||
        (wait->comm && !tell(launcher, cuda)))
        return;
    wait->ended = wait->comm != NULL;
    wait_release(wait);
}

/* ---- Waits of streams ------------------------------------------------------------- */

static void wait_free(struct symm_cuda_launcher *launcher, struct symm_cuda_wait *wait)
{
    if (wait->pending) /* release: what was begun before is over, see symm__engine_divisible */
        __atomic_sub_fetch(&wait->team->engine->pending, 1, __ATOMIC_RELEASE);
    if (wait->before)
        symm__cuda_event_release(launcher, wait->before);
    if (wait->after)
        symm__cuda_event_release(launcher, wait->after);
    free(wait);
}

static bool is_captured(const struct symm_cuda_launcher *launcher, CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;

    return launcher->driver->cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
           capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

static symm_status wait_mark(struct symm_cuda_launcher *launcher, CUstream stream,
                             struct symm_cuda_wait *wait)
{
    symm_status status = symm__cuda_event_acquire(launcher, &wait->before);

    if (status == SYMM_OK)
        status = symm__cuda_event_acquire(launcher, &wait->after);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(launcher->driver, cuEventRecord, (wait->before, stream),
                                "the begin of %s", wait->what);
    return status;
}

static void wait_list(struct symm_cuda_launcher *launcher, struct symm_cuda_wait *wait)
{
    pthread_mutex_lock(&launcher->lock);
    wait->next = launcher->waits;
    launcher->waits = wait;
    pthread_mutex_unlock(&launcher->lock);
}

/* Counts for symm__engine_divisible. */
static void count_pending(struct symm_cuda_wait *wait, bool captured)
{
    struct symm_team_engine *te = wait->team->engine;

    wait->pending = wait->comm == te->comm;
    if (wait->pending)
        __atomic_add_fetch(&te->pending, 1, __ATOMIC_RELAXED);
    if (wait->pending && captured)
        __atomic_store_n(&te->captured, true, __ATOMIC_RELAXED);
}

symm_status symm__cuda_wait_begin(struct symm_cuda_launcher *launcher, CUstream stream,
                                  const struct symm_cuda_wait *about,
                                  struct symm_cuda_wait **begun)
{
    const bool captured = is_captured(launcher, stream);
    struct symm_cuda_wait *wait;
    symm_status status = SYMM_OK;

    *begun = NULL;
    if (captured && !about->comm)
        return SYMM_OK;
    wait = malloc(sizeof(*wait));
    if (!wait)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %s", about->what);
    *wait = *about;
    wait->stream = symm__cuda_side_owner(about->team, stream);
    if (!captured)
        status = wait_mark(launcher, stream, wait);
    if (status != SYMM_OK) {
        wait_free(launcher, wait);
        return status;
    }
    *begun = wait;
    if (wait->comm) {
        wait->inside = true;
        wait->until = symm__now() + wait->timeout;
        count_pending(wait, captured);
        wait_list(launcher, wait);
    }
    return SYMM_OK;
}

/* To be called when the call has left the engine. keeps: its operation must still be polled. */
static void wait_leave(struct symm_cuda_launcher *launcher, struct symm_cuda_wait *wait,
                       bool keeps)
{
    struct symm_cuda_wait **at = &launcher->waits;

    pthread_mutex_lock(&launcher->lock);
    wait->inside = false;
    wait->awaited.left_at = 0;    /* the operation begins later */
    while (!keeps && *at != wait) /* a call's own wait is among the newest */
        at = &(*at)->next;
    if (!keeps)
        *at = wait->next;
    pthread_mutex_unlock(&launcher->lock);
    if (!keeps)
        wait_free(launcher, wait);
}

symm_status symm__cuda_wait_end(struct symm_cuda_launcher *launcher, CUstream stream,
                                struct symm_cuda_wait *wait, symm_status status)
{
    if (!wait)
        return status;
    if (status == SYMM_OK && wait->after)
        status = SYMM_CUDA_CALL(launcher->driver, cuEventRecord, (wait->after, stream),
                                "the end of %s", wait->what);
    if (wait->comm)
        wait_leave(launcher, wait, status == SYMM_OK && wait->after);
    else if (status == SYMM_OK)
        wait_list(launcher, wait);
    else
        wait_free(launcher, wait);
    return status;
}

static symm_status wait_timeout(const struct symm_cuda_wait *wait)
{
    symm_team *team = wait->team;
    char where[SYMM_SITE_NAME_BYTES + 24], stream[48];
    int peer;

    if (wait->comm)
        return symm__cuda_engine_late(wait);
    peer = team->world_rank[wait->peer];
    (void)symm__cuda_stream_text(wait->stream, stream, sizeof(stream));
    if (wait->receives)
        return symm__team_fail(team, SYMM_ERR_TIMEOUT,
                               "rank %d did not raise signal %d by copy engine within "
                               "%g s; rank %d waits at %s on %s",
                               peer, wait->signal, wait->timeout, team->ctx->rank,
                               symm__site_name_text(wait->site, where, sizeof(where)),
                               stream);
    return symm__team_fail(team, SYMM_ERR_TIMEOUT,
                           "rank %d did not take signal %d by copy engine within %g s, "
                           "so rank %d cannot raise it again at %s on %s",
                           peer, wait->signal, wait->timeout, team->ctx->rank,
                           symm__site_name_text(wait->site, where, sizeof(where)),
                           stream);
}

/* Polls a call that is in the engine, and may never return by itself. */
static void poll_inside(struct symm_cuda_launcher *launcher,
                        struct symm_cuda_wait *wait, double now)
{
    bool failed = __atomic_load_n(&wait->team->failed, __ATOMIC_ACQUIRE) != SYMM_OK;
    symm_status status = SYMM_OK;

    if (!failed)
        status = now >= wait->until
                     ? symm__cuda_engine_late(wait)
                     : symm__engine_left(wait->team, &wait->awaited, wait->what);
    if (status != SYMM_OK)
        symm__cuda_abort(wait->team, status);
    if (failed || status != SYMM_OK)
        wait_end(launcher, wait, now);
}

/* Whether the wait is over. A wait that lasts too long fails its team, and is ended. */
static bool poll_wait(struct symm_cuda_launcher *launcher, struct symm_cuda_wait *wait,
                      double now)
{
    const struct symm_cuda_driver *driver = launcher->driver;

    if (wait->inside) {
        poll_inside(launcher, wait, now);
        return false;
    }
    if (driver->cuEventQuery(wait->after) != CUDA_ERROR_NOT_READY)
        return true;
    if (__atomic_load_n(&wait->team->failed, __ATOMIC_ACQUIRE) != SYMM_OK) {
        wait_end(launcher, wait, now);
        return false;
    }
    if (wait->began == 0) {
        if (driver->cuEventQuery(wait->before) == CUDA_SUCCESS)
            wait->began = now;
    } else if (now - wait->began >= wait->timeout) {
        symm__cuda_abort(wait->team, wait_timeout(wait));
        wait_end(launcher, wait, now);
    } else if (wait->comm) {
        symm_status status = symm__cuda_engine_poll(wait);

        if (status != SYMM_OK)
            symm__cuda_abort(wait->team, status);
    }
    return false;
}

/* With the lock held. */
static void poll_waits(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_wait **at = &launcher->waits;
    struct symm_cuda_scope scope;
    double now = symm__now();

    if (!*at || symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return;
    while (*at) {
        struct symm_cuda_wait *wait = *at;

        if (poll_wait(launcher, wait, now)) {
            *at = wait->next;
            wait_free(launcher, wait);
        } else {
            at = &wait->next;
        }
    }
    symm__cuda_leave(&scope);
}

/* ---- Waits in graphs ------------------------------------------------------------- */

symm_status symm__cuda_word_add(struct symm_cuda_launcher *launcher, symm_team *team,
                                uint32_t *word)
{
    symm_status status = SYMM_OK;
    struct symm_cuda_word *w;

    pthread_mutex_lock(&launcher->lock);
    for (w = team->cuda->words; w && w->at != word;)
        w = w->next;
    if (!w) {
        w = calloc(1, sizeof(*w));
        if (w) {
            *w = (struct symm_cuda_word){team->cuda->words, word};
            team->cuda->words = w;
        } else {
            status = symm__fail(SYMM_ERR_NOMEM, "no memory for a graph's wait");
        }
    }
    pthread_mutex_unlock(&launcher->lock);
    return status;
}

void symm__cuda_words_free(struct symm_cuda_team *cuda)
{
    while (cuda->words) {
        struct symm_cuda_word *next = cuda->words->next;

        free(cuda->words);
        cuda->words = next;
    }
}

void symm__cuda_ending(symm_ctx *ctx, bool begins)
{
    struct symm_cuda_launcher *launcher = ctx->launcher;

    if (!launcher)
        return;
    pthread_mutex_lock(&launcher->lock);
    if (begins && launcher->endings == 0)
        launcher->ending = symm__now();
    launcher->endings += begins ? 1 : -1;
    pthread_mutex_unlock(&launcher->lock);
}

/* With the lock held. Ends all waits in graphs of a team that has failed. It does so in each poll,
 * since a replay may wait at any of the words, and at the next word when one wait has ended. */
static void poll_words(struct symm_cuda_launcher *launcher, struct symm_cuda_team *cuda)
{
    symm_team *team = cuda->team;
    struct symm_cuda_scope scope;

    if (!cuda->words)
        return;
    if (launcher->endings > 0 &&
        symm__now() - launcher->ending >= launcher->ctx->timeout)
        symm__cuda_abort(
            team, symm__team_fail(team, SYMM_ERR_TIMEOUT,
                                  "a graph of rank %d may wait for a signal by copy "
                                  "engine that does not come: the end of a stream or "
                                  "a team was held up for %g s",
                                  launcher->ctx->rank, launcher->ctx->timeout));
    if (symm__team_failed(team) == SYMM_OK ||
        symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return;
    if (may_release(launcher, cuda, symm__now()))
        for (const struct symm_cuda_word *w = cuda->words; w; w = w->next)
            word_end(w->at);
    symm__cuda_leave(&scope);
}

/* ---- The thread ------------------------------------------------------------------ */

/* With the lock held. First copies a failure for kernels that begin later, then aborts the team's
 * engine: its operations end, and kernels after them on a stream read the copy. */
static void poll_team(struct symm_cuda_launcher *launcher, struct symm_cuda_team *cuda)
{
    symm_status status = symm__cuda_diagnose(cuda->team, false);
    struct symm_cuda_scope scope;

    /* relaxed: the watchdog's own store, or that of a call which has failed */
    if (__atomic_load_n(&cuda->record->abort, __ATOMIC_RELAXED) == 0)
        return;
    if (!cuda->reported && symm__cuda_enter(launcher->backend, &scope) == SYMM_OK) {
        (void)tell(launcher, cuda);
        symm__cuda_leave(&scope);
    }
    if (cuda->reported && status != SYMM_OK)
        symm__engine_team_abort(cuda->team);
}

/* The thread. It holds the lock except while it sleeps: waiting on `stop` releases the lock, and
 * ends after POLL_SECONDS or when the watchdog is stopped. Then it polls all teams and waits. */
static void *watch(void *arg)
{
    struct symm_cuda_launcher *launcher = arg;

    symm__log_rank(launcher->ctx->rank);
    pthread_mutex_lock(&launcher->lock);
    while (!launcher->stopping) {
        struct timespec until = symm__until(POLL_SECONDS);

        pthread_cond_timedwait(&launcher->stop, &launcher->lock, &until);
        for (struct symm_cuda_team *t = launcher->teams; t && !launcher->stopping;
             t = t->next) {
            poll_team(launcher, t);
            poll_words(launcher, t);
            symm__cuda_channel_refresh(t->team);
            symm__cuda_budget_refresh(t->team);
        }
        poll_waits(launcher);
        symm__cuda_progress_poll(launcher);
    }
    pthread_mutex_unlock(&launcher->lock);
    return NULL;
}

static symm_status watch_stream(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(launcher->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status =
        SYMM_CUDA_CALL(launcher->driver, cuStreamCreateWithPriority,
                       (&launcher->stream, CU_STREAM_NON_BLOCKING, 0),
                       "a stream for the watchdog of rank %d", launcher->ctx->rank);
    symm__cuda_leave(&scope);
    return status;
}

static void watch_stream_destroy(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(launcher->backend, &scope))
        return;
    (void)launcher->driver->cuStreamDestroy(launcher->stream);
    symm__cuda_leave(&scope);
}

symm_status symm__cuda_watchdog_start(struct symm_cuda_launcher *launcher)
{
    pthread_condattr_t monotonic;
    symm_status status = watch_stream(launcher);
    int error;

    if (status != SYMM_OK)
        return status;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&launcher->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    error = symm__thread_start(&launcher->watchdog, watch, launcher);
    if (!error)
        return SYMM_OK;
    pthread_cond_destroy(&launcher->stop);
    watch_stream_destroy(launcher);
    return symm__fail_errno(SYMM_ERR_SYSTEM, error, "cannot start the watchdog thread");
}

void symm__cuda_watchdog_stop(struct symm_cuda_launcher *launcher)
{
    pthread_mutex_lock(&launcher->lock);
    launcher->stopping = true;
    pthread_cond_signal(&launcher->stop);
    pthread_mutex_unlock(&launcher->lock);
    pthread_join(launcher->watchdog, NULL);
    pthread_cond_destroy(&launcher->stop);
    watch_stream_destroy(launcher);
}

void symm__cuda_waits_end(struct symm_cuda_launcher *launcher, const symm_team *team)
{
    struct symm_cuda_wait **at = &launcher->waits;
    struct symm_cuda_scope scope;
    bool entered = symm__cuda_enter_last(launcher->backend, &scope);

    pthread_mutex_lock(&launcher->lock);
    while (*at) {
        struct symm_cuda_wait *wait = *at;

        if (wait->team != team) {
            at = &wait->next;
            continue;
        }
        if (entered && !wait->ended && !wait->inside &&
            launcher->driver->cuEventQuery(wait->after) == CUDA_ERROR_NOT_READY)
            wait_release(wait);
        *at = wait->next;
        wait_free(launcher, wait);
    }
    pthread_mutex_unlock(&launcher->lock);
    if (entered)
        symm__cuda_leave(&scope);
}
