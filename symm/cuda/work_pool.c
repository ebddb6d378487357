/* SPDX-License-Identifier: MIT */
/*
 * work_pool.c - the pools of handles' events and words.
 *
 * A released handle whose call runs keeps its word and its event; a later call that finds the
 * pools empty queries the oldest such events. All of it with the pool's lock, unless said.
 */
#include <stdlib.h>

#include "cuda/work.h"
#include "util/status.h"

#define REAP_AT_ONCE   8 /* released handles that a new one frees */
#define EVENTS_AT_ONCE 8 /* that are made where the pool has none */

symm_status symm__cuda_pool_open(struct symm_cuda_launcher *launcher)
{
    void *results;
    symm_status status = symm__cuda_host_alloc(
        launcher->ctx, SYMM_CUDA_RESULTS * sizeof(*launcher->results), &results);

    if (status != SYMM_OK)
        return status;
    launcher->results = results;
    for (int i = 0; i < SYMM_CUDA_RESULTS; i++)
        launcher->result_free[i] = (uint16_t)(SYMM_CUDA_RESULTS - 1 - i);
    launcher->result_count = SYMM_CUDA_RESULTS;
    launcher->released_end = &launcher->released;
    launcher->fresh_end = &launcher->fresh;
    launcher->awaited_end = &launcher->awaited;
    return SYMM_OK;
}

void symm__cuda_pool_close(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_scope scope;

    if (symm__cuda_enter(launcher->backend, &scope) == SYMM_OK) {
        for (size_t i = 0; i < launcher->event_count; i++)
            (void)launcher->driver->cuEventDestroy(launcher->events[i]);
        symm__cuda_leave(&scope);
    }
    free(launcher->events);
    symm__cuda_host_free(launcher->ctx, launcher->results);
}

int symm__cuda_result_acquire(struct symm_cuda_launcher *launcher)
{
    int index;

    if (launcher->result_count == 0)
        return -1; /* the team's state has the outcome then */
    index = launcher->result_free[--launcher->result_count];
    launcher->result_holders[index] = 1;
    __atomic_store_n(&launcher->results[index], 0, __ATOMIC_RELAXED);
    return index;
}

static void result_release(struct symm_cuda_launcher *launcher, int index)
{
    if (index >= 0 && --launcher->result_holders[index] == 0)
        launcher->result_free[launcher->result_count++] = (uint16_t)index;
}

symm_status symm__cuda_event_acquire(struct symm_cuda_launcher *launcher,
                                     CUevent *event)
{
    struct symm_cuda_scope scope;
    symm_status status;

    pthread_mutex_lock(&launcher->pool);
    if (launcher->event_count > 0) {
        *event = launcher->events[--launcher->event_count];
        pthread_mutex_unlock(&launcher->pool);
        return SYMM_OK;
    }
    pthread_mutex_unlock(&launcher->pool);
    status = symm__cuda_enter(launcher->backend, &scope);
    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(launcher->driver, cuEventCreate,
                            (event, CU_EVENT_DISABLE_TIMING), "an event");
    symm__cuda_leave(&scope);
    return status;
}

/* With the lock held; an event that does not fit is destroyed, done or not. */
static void event_return(struct symm_cuda_launcher *launcher, CUevent event)
{
    if (launcher->event_count == launcher->event_capacity) {
        size_t capacity = launcher->event_capacity ? 2 * launcher->event_capacity : 64;
        CUevent *grown = realloc(launcher->events, capacity * sizeof(*grown));

        if (!grown) {
            (void)launcher->driver->cuEventDestroy(event);
            return;
        }
        launcher->events = grown;
        launcher->event_capacity = capacity;
    }
    launcher->events[launcher->event_count++] = event;
}

void symm__cuda_event_release(struct symm_cuda_launcher *launcher, CUevent event)
{
    pthread_mutex_lock(&launcher->pool);
    event_return(launcher, event);
    pthread_mutex_unlock(&launcher->pool);
}

void symm__cuda_work_link(struct symm_cuda_launcher *launcher,
                          struct symm_cuda_work *work)
{
    work->back = &launcher->works;
    work->next = launcher->works;
    if (work->next)
        work->next->back = &work->next;
    launcher->works = work;
}

void symm__cuda_work_unlink(struct symm_cuda_launcher *launcher,
                            struct symm_cuda_work *work)
{
    *work->back = work->next;
    if (work->next)
        work->next->back = work->back;
    else if (launcher->released_end == &work->next)
        launcher->released_end = work->back;
}

/* The newest of the released ones. */
void symm__cuda_work_link_released(struct symm_cuda_launcher *launcher,
                                   struct symm_cuda_work *work)
{
    work->back = launcher->released_end;
    work->next = NULL;
    *work->back = work;
    launcher->released_end = &work->next;
}

void symm__cuda_work_return(struct symm_cuda_work *work)
{
    struct symm_cuda_launcher *launcher = work->launcher;

    symm__cuda_work_unlink(launcher, work);
    event_return(launcher, work->event);
    result_release(launcher, work->result);
    work->team = NULL;
}

void symm__cuda_work_leave(struct symm_cuda_work *work)
{
    if (work->released)
        symm__cuda_work_free(work);
    else /* release: the owner may free it from here on */
        __atomic_store_n(&work->launcher, NULL, __ATOMIC_RELEASE);
}

void symm__cuda_work_detach(struct symm_cuda_work *work)
{
    symm__cuda_work_return(work);
    symm__cuda_work_leave(work);
}

/* Frees released handles whose calls are done: a few, the oldest first. The first whose call
 * still runs ends the search and moves to the list's end, so that it blocks no others. In a
 * scope. */
static void reap(struct symm_cuda_launcher *launcher)
{
    for (int i = 0; i < REAP_AT_ONCE && launcher->released; i++) {
        struct symm_cuda_work *work = launcher->released;

        if (launcher->driver->cuEventQuery(work->event) == CUDA_ERROR_NOT_READY) {
            symm__cuda_work_unlink(launcher, work);
            symm__cuda_work_link_released(launcher, work);
            return;
        }
        symm__cuda_work_detach(work);
    }
}

/* Several at a time, so that few calls search and create. In a scope. After a failure the call
 * that finds the pool empty reports it. */
static void make_events(struct symm_cuda_launcher *launcher)
{
    CUevent event;

    for (int i = 0; i < EVENTS_AT_ONCE; i++) {
        if (launcher->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) !=
            CUDA_SUCCESS)
            return;
        event_return(launcher, event);
    }
}

void symm__cuda_pool_refill(struct symm_cuda_launcher *launcher, bool own_result)
{
    struct symm_cuda_scope scope;
    bool empty;

    pthread_mutex_lock(&launcher->pool);
    empty = launcher->event_count == 0 ||
            (own_result && launcher->result_count == 0 && launcher->released);
    pthread_mutex_unlock(&launcher->pool);
    if (!empty || symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return;
    pthread_mutex_lock(&launcher->pool);
    reap(launcher);
    if (launcher->event_count == 0)
        make_events(launcher);
    pthread_mutex_unlock(&launcher->pool);
    symm__cuda_leave(&scope);
}
