/* SPDX-License-Identifier: MIT */
/*
 * notifier.h - notifications of a call's end: a function that a thread of the context calls, or
 * an eventfd that becomes readable.
 *
 * Until the call ends, the notification is in a list of its handle. The thread that completes the
 * handle posts the list: eventfds are written at once, functions wait in one queue for the
 * context's notifier thread. That thread starts with the first notification that needs it. The
 * host backend posts when a call completes. A device does not tell the host, so its backend has
 * the thread poll its handles while some have notifications, at growing intervals; the thread
 * sleeps otherwise.
 *
 * Posting allocates nothing and cannot fail. Locks: `lock` guards the queue and is taken last. It
 * is not held while a function runs or while a device is polled. `polling` is held during a poll:
 * the end of a team takes it, so that the team's handles are not in use.
 */
#ifndef SYMM_CORE_NOTIFIER_H
#define SYMM_CORE_NOTIFIER_H

#include <pthread.h>

#include "util/status.h"

struct symm_notification {
    struct symm_notification *next;
    void (*fn)(symm_status status, void *arg); /* NULL: an eventfd */
    void *arg;
    int fd;             /* the library's own descriptor of the eventfd; -1: none */
    symm_status status; /* from here on: set when it is posted */
    char error[SYMM_ERROR_BYTES];
};

struct symm_notifier {
    pthread_mutex_t lock, polling;
    pthread_cond_t posted, called;
    pthread_t thread;
    int rank; /* for the log */
    bool started, stopping;
    bool awaits;              /* handles of a device have notifications */
    bool (*poll)(void *from); /* posts what has ended; whether some have not */
    void *from;
    double pause; /* seconds until the next poll */
    struct symm_notification *first, **last;
    uint64_t count_posted, count_called;
};

void symm__notifier_open(struct symm_notifier *notifier);
/* Starts the thread, unless it runs. */
symm_status symm__notifier_start(struct symm_notifier *notifier,
                                 int rank) SYMM_MUST_CHECK;
/* Calls all functions that are posted, and ends the thread. */
void symm__notifier_close(struct symm_notifier *notifier);
/* Waits until all functions that were posted before have been called; returns at once on the
 * notifier's thread. */
void symm__notifier_drain(struct symm_notifier *notifier);

/* Adds it to the end of a handle's list. */
void symm__notification_add(struct symm_notification **list,
                            struct symm_notification *notification);
/* Posts the list of a call that has ended with `status`; error: the sentence of a failure. The
 * notifications are freed, and their eventfds closed, once they are delivered. */
void symm__notifier_post(struct symm_notifier *notifier, struct symm_notification *list,
                         symm_status status, const char *error);

/* poll(from) is called from now on, on the thread and with `polling` locked, until it returns
 * false. */
void symm__notifier_await(struct symm_notifier *notifier, bool (*poll)(void *from),
                          void *from);
/* Ends symm__notifier_await: there is nothing left to poll. */
void symm__notifier_forget(struct symm_notifier *notifier);

#endif
