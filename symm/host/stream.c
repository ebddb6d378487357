/* SPDX-License-Identifier: MIT */
/*
 * stream.c - a stream of the host backend: tasks run one after the other, in the order
 * they were pushed, on the stream's own thread. The queue is a list through the tasks, which
 * belong to the thread that pushed them: a push allocates nothing, cannot fail and never
 * waits for the worker.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "host/host.h"
#include "util/clock.h"
#include "util/status.h"
#include "util/thread.h"

struct symm_stream {
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t pushed, drained;
    struct symm_task *first, **last;
    uint64_t count_pushed, count_run;
    bool leaving;
};

static void *work(void *arg)
{
    struct symm_stream *stream = arg;

    pthread_mutex_lock(&stream->lock);
    for (;;) {
        struct symm_task *task;

        while (!stream->first && !stream->leaving)
            pthread_cond_wait(&stream->pushed, &stream->lock);
        task = stream->first;
        if (!task)
            break;
        stream->first = task->next;
        if (!stream->first)
            stream->last = &stream->first;
        pthread_mutex_unlock(&stream->lock);
        task->run(task);
        pthread_mutex_lock(&stream->lock);
        stream->count_run++;
        pthread_cond_broadcast(&stream->drained);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

symm_status symm__queue_create(struct symm_backend *backend,
                               struct symm_stream **stream)
{
    struct symm_stream *s = calloc(1, sizeof(*s));
    pthread_condattr_t monotonic;
    int error;

    (void)backend;
    if (!s)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a stream");
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->pushed, NULL);
    pthread_cond_init(&s->drained, &monotonic);
    pthread_condattr_destroy(&monotonic);
    error = symm__thread_start(&s->worker, work, s);
    if (error) {
        pthread_cond_destroy(&s->drained);
        pthread_cond_destroy(&s->pushed);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                "cannot start a stream's worker");
    }
    *stream = s;
    return SYMM_OK;
}

void symm__queue_destroy(struct symm_backend *backend, struct symm_stream *stream)
{
    (void)backend;
    if (!stream)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->leaving = true;
    pthread_cond_signal(&stream->pushed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    pthread_cond_destroy(&stream->drained);
    pthread_cond_destroy(&stream->pushed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

void symm__queue_drain(struct symm_backend *backend, struct symm_stream *stream)
{
    uint64_t target;

    (void)backend;
    pthread_mutex_lock(&stream->lock);
    target = stream->count_pushed;
    while (stream->count_run < target)
        pthread_cond_wait(&stream->drained, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

bool symm__queue_is_own(const struct symm_stream *stream)
{
    return pthread_equal(stream->worker, pthread_self());
}

void symm__queue_push(struct symm_backend *backend, struct symm_stream *stream,
                      struct symm_task *task)
{
    (void)backend;
    task->next = NULL;
    pthread_mutex_lock(&stream->lock);
    *stream->last = task;
    stream->last = &task->next;
    stream->count_pushed++;
    pthread_cond_signal(&stream->pushed);
    pthread_mutex_unlock(&stream->lock);
}

symm_status symm__queue_synchronize(struct symm_backend *backend,
                                    struct symm_stream *stream, int rank,
                                    double seconds)
{
    symm_status status = SYMM_OK;
    struct timespec until = symm__until(seconds);
    uint64_t target;

    (void)backend;
    pthread_mutex_lock(&stream->lock);
    target = stream->count_pushed;
    while (stream->count_run < target && status == SYMM_OK) {
        if (pthread_cond_timedwait(&stream->drained, &stream->lock, &until) != 0 &&
            stream->count_run < target)
            status = SYMM_ERR_TIMEOUT;
    }
    target -= stream->count_run;
    pthread_mutex_unlock(&stream->lock);
    if (status != SYMM_OK)
        return symm__fail(status,
                          "symm_stream_synchronize: stream %p of rank %d still has "
                          "%llu call%s to run after %g s; symm-top shows for whom they "
                          "wait; else give a longer timeout",
                          (void *)stream, rank, (unsigned long long)target,
                          target == 1 ? "" : "s", seconds);
    return SYMM_OK;
}
