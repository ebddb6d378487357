/* SPDX-License-Identifier: MIT */
/*
 * notify_stage.h - for suites of symm_work_notify and symm_work_fd: gates that hold calls back for
 * certain, and what a function has seen.
 */
#ifndef SYMM_TESTS_NOTIFY_STAGE_H
#define SYMM_TESTS_NOTIFY_STAGE_H

#include "harness.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>

struct shared {
    struct harness_sync sync;
    _Atomic int flag;
};

static inline int run_for(void **state, harness_body body, const int *ranks, int count)
{
    return harness_run_each(*state, sizeof(struct shared), body, ranks, count);
}

static inline symm_call on_stream(void *stream, const char *site)
{
    symm_call call = {.size = sizeof(call), .stream = stream, .site = site};

    return call;
}

struct gate {
    _Atomic int open;
};

static inline void gate_wait(void *arg)
{
    struct gate *gate = arg;

    (void)harness_until(&gate->open, 1);
}

/* What one function has seen. */
struct told {
    _Atomic int calls;
    symm_status status;
    pthread_t thread;
    char sentence[512];
    int *next; /* numbers the calls of several; NULL: not wanted */
    int number;
    symm_work *work; /* asked by the function; NULL: not wanted */
    bool done;
};

static inline void tell(symm_status status, void *arg)
{
    struct told *told = arg;

    told->status = status;
    told->thread = pthread_self();
    snprintf(told->sentence, sizeof(told->sentence), "%s",
             status == SYMM_OK ? "" : symm_last_error());
    if (told->next)
        told->number = (*told->next)++;
    if (told->work && symm_work_query(told->work, &told->done) != status)
        told->done = false;
    atomic_fetch_add(&told->calls, 1);
}

static inline bool is_readable(int fd, int milliseconds)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, milliseconds) == 1 && one.revents == POLLIN;
}

#endif
