/* SPDX-License-Identifier: MIT */
/*
 * forked.h - state of the process in a forked child. A thread of the parent that held a lock at the
 * fork is not there to release it, and the child may make contexts of its own: so it makes the lock
 * anew. What a lock of the process guards must be sound at any moment, or be made anew, too.
 */
#ifndef SYMM_UTIL_FORKED_H
#define SYMM_UTIL_FORKED_H

#include <pthread.h>

/* The file's function of this name runs in each forked child, before fork() returns there. No memory
 * for that: a child of such a moment may wait for ever. */
#define SYMM_IN_FORKED_CHILD(function)                                                 \
    static __attribute__((constructor)) void function##_is_for_children(void)          \
    {                                                                                  \
        (void)pthread_atfork(NULL, NULL, function);                                    \
    }

/* A lock as PTHREAD_MUTEX_INITIALIZER makes it, whoever holds it. */
static inline void symm__lock_renew(pthread_mutex_t *lock)
{
    *lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

#endif
