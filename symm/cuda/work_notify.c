/* SPDX-License-Identifier: MIT */
/*
 * work_notify.c - the ends of calls that no thread polls for: notifications of handles, and the
 * end of their team, which completes all of them.
 *
 * Handles with notifications are awaited: the context's notifier polls them (core/notifier.h), the
 * oldest of each stream, since an event is not done before those recorded earlier on its stream. A
 * released one stays where it is until its end has been reported. Only the notifier and the end of
 * a team, which holds its `polling`, take handles off the awaited list.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/work.h"
#include "util/clock.h"
#include "util/status.h"

#define COMPLETE_SECONDS 1.0
#define STREAMS_KNOWN    16 /* a poll finds others by a search */

/* ---- Notifications: see core/notifier.h -------------------------------------------- */

/* Inserts fresh handles into the awaited list, mostly at its end. With the pool's lock and
 * `polling`. */
static void await_insert(struct symm_cuda_launcher *launcher)
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
static void await_remove(struct symm_cuda_launcher *launcher,
                         struct symm_cuda_work **at)
{
    *at = (*at)->awaited_next;
    if (!*at)
        launcher->awaited_end = at;
}

/* Posts the notifications of a work that is done. With the pool's lock, which the owner needs to
 * release the handle as long as it has a launcher. */
static void post(struct symm_cuda_work *work)
{
    struct symm_notification *list = work->notifications;

    work->notifications = NULL;
    symm__notifier_post(&work->head.ctx->notifier, list, work->status, work->error);
}

/* Streams whose oldest awaited work runs. */
struct streams {
    CUstream at[STREAMS_KNOWN];
    int count;
};

/* Whether an older work of its stream is still awaited. With the pool's lock. */
static bool follows_awaited(const struct symm_cuda_launcher *launcher,
                            const struct streams *running,
                            const struct symm_cuda_work *work)
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
    await_insert(launcher);
    while (*at) {
        struct symm_cuda_work *work = *at;
        bool ended = false;

        if (follows_awaited(launcher, &running, work)) {
            at = &work->awaited_next;
            continue;
        }
        pthread_mutex_unlock(&launcher->pool); /* others add to `fresh` meanwhile */
        (void)symm__cuda_work_poll(work, &ended);
        pthread_mutex_lock(&launcher->pool);
        if (ended) {
            await_remove(launcher, at);
            post(work);
            if (work->released)
                symm__cuda_work_detach(work);
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
    struct symm_cuda_work *work = symm__cuda_work_of(handle);
    struct symm_cuda_launcher *launcher = symm__cuda_work_launcher(work);
    struct symm_notifier *notifier = &handle->ctx->notifier;
    bool awaits;

    if (work->captured)
        return symm__cuda_work_refuse_captured("symm_work_notify");
    if (!launcher) { /* its team is gone, or it never ran */
        symm__notifier_post(notifier, notification, work->status, work->error);
        return SYMM_OK;
    }
    pthread_mutex_lock(&launcher->pool);
    /* one that is done must not overtake others that are still awaited */
    awaits = symm__cuda_work_launcher(work) &&
             (!work->done || launcher->awaited || launcher->fresh);
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
        if (symm__now() - start > COMPLETE_SECONDS)
            return false;
        sched_yield();
    }
    return true;
}

static void complete(struct symm_cuda_launcher *launcher, struct symm_cuda_work *work,
                     symm_status failure, const char *sentence)
{
    if (!work->captured && !work->done) {
        if (!is_recorded(launcher, work->event))
            symm__cuda_work_conclude(
                work, symm__fail(SYMM_ERR_ABORTED,
                                 "the team was destroyed before the call was "
                                 "complete"));
        else if (failure != SYMM_OK &&
                 (symm__cuda_work_result(work) != 0 || work->result < 0))
            symm__cuda_work_conclude(work, symm__fail_quiet(failure, sentence));
        else
            symm__cuda_work_conclude(work, SYMM_OK);
    }
    symm__cuda_work_return(work);
    post(work);
    symm__cuda_work_leave(work);
}

/* First those that are awaited, in their order. */
static void complete_awaited(struct symm_cuda_launcher *launcher, const symm_team *team,
                             symm_status failure, const char *sentence)
{
    struct symm_cuda_work **at = &launcher->awaited;

    await_insert(launcher);
    while (*at) {
        struct symm_cuda_work *work = *at;

        if (work->team != team) {
            at = &work->awaited_next;
            continue;
        }
        await_remove(launcher, at);
        complete(launcher, work, failure, sentence);
    }
}

static void complete_list(struct symm_cuda_launcher *launcher,
                          struct symm_cuda_work *first, const symm_team *team,
                          symm_status failure, const char *sentence)
{
    while (first) {
        struct symm_cuda_work *next = first->next;

        if (first->team == team)
            complete(launcher, first, failure, sentence);
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
    pthread_rwlock_wrlock(&launcher->handles);
    pthread_mutex_lock(&launcher->pool);
    complete_awaited(launcher, team, failure, sentence);
    complete_list(launcher, launcher->works, team, failure, sentence);
    complete_list(launcher, launcher->released, team, failure, sentence);
    pthread_mutex_unlock(&launcher->pool);
    pthread_rwlock_unlock(&launcher->handles);
    pthread_mutex_unlock(&team->ctx->notifier.polling);
    symm__cuda_leave(&scope);
}
