/* SPDX-License-Identifier: MIT */
/*
 * thread.h - starts a thread of the library, which gets none of the program's signals: those belong
 * to the program's threads.
 */
#ifndef SYMM_UTIL_THREAD_H
#define SYMM_UTIL_THREAD_H

#include <pthread.h>
#include <signal.h>

/* 0, or the errno of pthread_create. */
static inline int symm__thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
