/* SPDX-License-Identifier: MIT */
/*
 * forks.c - see forks.h. The list and its lock are global: fork() knows no context.
 */
#include "oob/forks.h"

#include <pthread.h>
#include <unistd.h>

#include "util/status.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symm_forks *list;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failed; /* errno of pthread_atfork */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (struct symm_forks *f = list; f; f = f->next)
        for (int i = 0; i < f->count; i++) {
            if (f->fds[i] >= 0)
                (void)close(f->fds[i]);
            f->fds[i] = -1;
        }
    pthread_mutex_unlock(&lock);
}

static void install(void)
{
    failed = pthread_atfork(before_fork, in_parent, in_child);
}

symm_status symm__forks_add(struct symm_forks *forks, int *fds, int count)
{
    pthread_once(&once, install);
    if (failed)
        return symm__fail_errno(SYMM_ERR_NOMEM, failed, "pthread_atfork");
    forks->fds = fds;
    forks->count = count;
    pthread_mutex_lock(&lock);
    forks->next = list;
    list = forks;
    pthread_mutex_unlock(&lock);
    return SYMM_OK;
}

void symm__forks_remove(struct symm_forks *forks)
{
    struct symm_forks **at = &list;

    if (!forks->fds)
        return;
    pthread_mutex_lock(&lock);
    while (*at && *at != forks)
        at = &(*at)->next;
    if (*at)
        *at = forks->next;
    pthread_mutex_unlock(&lock);
    forks->fds = NULL;
}
