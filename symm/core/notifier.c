/* SPDX-License-Identifier: MIT */
/* notifier.c - see notifier.h. */
#include "core/notifier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

/* Between two polls of a device. The interval doubles while no call ends, so a short call is
 * noticed within about its own length, and a long one costs a thousand polls a second. */
#define SHORTEST_PAUSE 20e-6
#define LONGEST_PAUSE  1e-3

void symm__notifier_open(struct symm_notifier *notifier)
{
    pthread_condattr_t monotonic;

    notifier->last = &notifier->first;
    pthread_mutex_init(&notifier->lock, NULL);
    pthread_mutex_init(&notifier->polling, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&notifier->posted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&notifier->called, NULL);
}

void symm__notifier_close(struct symm_notifier *notifier)
{
    pthread_mutex_lock(&notifier->lock);
    notifier->stopping = true;
    pthread_cond_signal(&notifier->posted);
    pthread_mutex_unlock(&notifier->lock);
    if (notifier->started)
        pthread_join(notifier->thread, NULL);
    pthread_cond_destroy(&notifier->called);
    pthread_cond_destroy(&notifier->posted);
    pthread_mutex_destroy(&notifier->polling);
    pthread_mutex_destroy(&notifier->lock);
}

void symm__notifier_drain(struct symm_notifier *notifier)
{
    uint64_t target;

    pthread_mutex_lock(&notifier->lock);
    target = notifier->count_posted;
    if (notifier->started && !pthread_equal(notifier->thread, pthread_self()))
        while (notifier->count_called < target)
            pthread_cond_wait(&notifier->called, &notifier->lock);
    pthread_mutex_unlock(&notifier->lock);
}

/* ---- The thread ------------------------------------------------------------------ */

/* Calls what is posted. The lock is held, but not while a function runs. */
static void call_all(struct symm_notifier *notifier)
{
    struct symm_notification *one;

    while ((one = notifier->first)) {
        notifier->first = one->next;
        if (!notifier->first)
            notifier->last = &notifier->first;
        pthread_mutex_unlock(&notifier->lock);
        if (one->status != SYMM_OK)
            (void)symm__fail_quiet(one->status, one->error);
        one->fn(one->status, one->arg);
        free(one);
        pthread_mutex_lock(&notifier->lock);
        notifier->count_called++;
        pthread_cond_broadcast(&notifier->called);
    }
}

/* Polls the device's handles. The lock is held, but not during the poll. */
static void poll_device(struct symm_notifier *notifier)
{
    pthread_mutex_unlock(&notifier->lock);
    pthread_mutex_lock(&notifier->polling);
    pthread_mutex_lock(&notifier->lock);
    if (notifier->awaits) { /* not forgotten meanwhile */
        bool (*const poll)(void *from) = notifier->poll;
        void *const from = notifier->from;
        bool awaits;

        /* a notification that is added during the poll sets it again */
        notifier->awaits = false;
        pthread_mutex_unlock(&notifier->lock);
        awaits = poll(from);
        pthread_mutex_lock(&notifier->lock);
        notifier->awaits = notifier->awaits || awaits;
    }
    pthread_mutex_unlock(&notifier->polling);
}

static void *notify(void *arg)
{
    struct symm_notifier *notifier = arg;

    symm__log_rank(notifier->rank);
    pthread_mutex_lock(&notifier->lock);
    for (;;) {
        call_all(notifier);
        if (notifier->stopping)
            break;
        if (!notifier->awaits) {
            pthread_cond_wait(&notifier->posted, &notifier->lock);
            continue;
        }
        poll_device(notifier);
        if (notifier->first) {
            notifier->pause = SHORTEST_PAUSE;
        } else if (notifier->awaits && !notifier->stopping) {
            struct timespec until = symm__until(notifier->pause);

            notifier->pause *= 2;
            if (notifier->pause > LONGEST_PAUSE)
                notifier->pause = LONGEST_PAUSE;
            pthread_cond_timedwait(&notifier->posted, &notifier->lock, &until);
        }
    }
    pthread_mutex_unlock(&notifier->lock);
    return NULL;
}

symm_status symm__notifier_start(struct symm_notifier *notifier, int rank)
{
    int error = 0;

    pthread_mutex_lock(&notifier->lock);
    if (!notifier->started) {
        notifier->rank = rank;
        error = symm__thread_start(&notifier->thread, notify, notifier);
        notifier->started = !error;
    }
    pthread_mutex_unlock(&notifier->lock);
    if (error)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                "rank %d cannot start the notifier thread", rank);
    return SYMM_OK;
}

/* ---- Notifications --------------------------------------------------------------- */

void symm__notification_add(struct symm_notification **list,
                            struct symm_notification *notification)
{
    while (*list)
        list = &(*list)->next;
    *list = notification;
}

/* The write fails only if others have counted the eventfd up to its limit: then it is
 * readable. */
static void write_event(struct symm_notification *one)
{
    (void)eventfd_write(one->fd, 1);
    close(one->fd);
    free(one);
}

void symm__notifier_post(struct symm_notifier *notifier, struct symm_notification *list,
                         symm_status status, const char *error)
{
    while (list) {
        struct symm_notification *one = list;

        list = one->next;
        one->next = NULL;
        if (!one->fn) {
            write_event(one);
            continue;
        }
        one->status = status;
        if (status != SYMM_OK)
            strncpy(one->error, error, sizeof(one->error) - 1);
        pthread_mutex_lock(&notifier->lock);
        *notifier->last = one;
        notifier->last = &one->next;
        notifier->count_posted++;
        pthread_cond_signal(&notifier->posted);
        pthread_mutex_unlock(&notifier->lock);
    }
}

/* ---- Handles that are polled ------------------------------------------------------- */

void symm__notifier_await(struct symm_notifier *notifier, bool (*poll)(void *from),
                          void *from)
{
    pthread_mutex_lock(&notifier->lock);
    notifier->poll = poll;
    notifier->from = from;
    notifier->pause = SHORTEST_PAUSE;
    if (!notifier->awaits)
        pthread_cond_signal(&notifier->posted);
    notifier->awaits = true;
    pthread_mutex_unlock(&notifier->lock);
}

void symm__notifier_forget(struct symm_notifier *notifier)
{
    pthread_mutex_lock(&notifier->polling); /* not while it is polled */
    pthread_mutex_lock(&notifier->lock);
    notifier->awaits = false;
    pthread_mutex_unlock(&notifier->lock);
    pthread_mutex_unlock(&notifier->polling);
}
