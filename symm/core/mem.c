/* SPDX-License-Identifier: MIT */
/* mem.c - see mem.h. */
#include "core/mem.h"

#include <pthread.h>
#include <stdlib.h>

#include "util/forked.h"
#include "util/status.h"

struct symm_mem_hold {
    struct symm_mem_hold *next;
    const struct symm_backend_ops *ops;
    struct symm_mem mem;
    int references;
    bool freed; /* by the caller */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct symm_mem_hold *holds;
static uint64_t ids;

/* Each change of the list is the store of one pointer, after what it points to. */
static void renew_lock(void)
{
    symm__lock_renew(&lock);
}
SYMM_IN_FORKED_CHILD(renew_lock)

symm_status symm__mem_add(const struct symm_backend_ops *ops,
                          const struct symm_mem *mem)
{
    struct symm_mem_hold *made = calloc(1, sizeof(*made));

    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of allocations");
    made->ops = ops;
    made->mem = *mem;
    made->references = 1;
    pthread_mutex_lock(&lock);
    made->mem.id = ++ids;
    made->next = holds;
    /* release: a child forked here finds `next` (renew_lock) */
    __atomic_store_n(&holds, made, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return SYMM_OK;
}

bool symm__mem_remove(const void *ptr)
{
    struct symm_mem_hold *found;

    pthread_mutex_lock(&lock);
    found = holds;
    while (found && (found->mem.ptr != ptr || found->freed))
        found = found->next;
    if (found)
        found->freed = true;
    pthread_mutex_unlock(&lock);
    symm__mem_drop(found);
    return found != NULL;
}

struct symm_mem_hold *symm__mem_hold(const void *ptr)
{
    struct symm_mem_hold *found;

    pthread_mutex_lock(&lock);
    found = holds;
    while (found && (found->freed ||
                     (uintptr_t)ptr - (uintptr_t)found->mem.ptr >= found->mem.bytes))
        found = found->next;
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

const struct symm_mem *symm__mem_of(const struct symm_mem_hold *hold)
{
    return &hold->mem;
}

void symm__mem_drop(struct symm_mem_hold *hold)
{
    struct symm_mem_hold **at = &holds;
    bool last;

    if (!hold)
        return;
    pthread_mutex_lock(&lock);
    last = --hold->references == 0;
    if (last) {
        while (*at != hold)
            at = &(*at)->next;
        *at = hold->next;
    }
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    hold->ops->mem_free(&hold->mem);
    free(hold);
}
