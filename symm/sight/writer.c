/* SPDX-License-Identifier: MIT */
/*
 * writer.c - the thread of a rank that writes its files for tools, see sight.h. It ends by a last
 * turn, so that what the files say at symm_finalize is exact.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sight/metrics.h"
#include "sight/metrics_file.h"
#include "sight/sight.h"
#include "sight/trace_file.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"
#include "util/thread.h"

#define TRACE_SECONDS 0.01 /* between two writings of the trace */

struct symm_sight_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; /* guarded by lock */
};

/* Sleeps until `due`, or until the thread is to stop. */
static bool rest(struct symm_sight_writer *writer, double due)
{
    const struct timespec until = symm__until(due - symm__now());
    bool stop;

    pthread_mutex_lock(&writer->lock);
    while (!writer->stop &&
           pthread_cond_timedwait(&writer->wake, &writer->lock, &until) != ETIMEDOUT)
        ;
    stop = writer->stop;
    pthread_mutex_unlock(&writer->lock);
    return stop;
}

static void *run(void *arg)
{
    struct symm_sight *sight = arg;
    struct symm_metrics *metrics = sight->metrics;
    double due = metrics ? symm__now() + metrics->interval : INFINITY;
    bool stop;

    symm__log_rank(sight->page->rank);
    do {
        stop = rest(sight->writer, sight->trace ? symm__now() + TRACE_SECONDS : due);
        if (sight->trace)
            symm__trace_write(sight);
        if (metrics && (stop || symm__now() >= due)) {
            symm__metrics_write(sight);
            due = symm__now() + metrics->interval;
        }
    } while (!stop);
    if (sight->trace)
        symm__trace_finish(sight);
    return NULL;
}

symm_status symm__sight_start(struct symm_sight *sight)
{
    struct symm_sight_writer *writer;
    pthread_condattr_t clock;
    int error;

    if (!sight->metrics && !sight->trace)
        return SYMM_OK;
    writer = calloc(1, sizeof(*writer));
    if (!writer)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a thread that writes files");
    pthread_mutex_init(&writer->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* as symm__until */
    pthread_cond_init(&writer->wake, &clock);
    pthread_condattr_destroy(&clock);
    sight->writer = writer;
    error = symm__thread_start(&writer->thread, run, sight);
    if (!error)
        return SYMM_OK;
    sight->writer = NULL;
    free(writer);
    return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                            "rank %d has no thread to write its files for tools",
                            sight->page->rank);
}

void symm__sight_stop(struct symm_sight *sight)
{
    struct symm_sight_writer *writer = sight ? sight->writer : NULL;

    if (!writer)
        return;
    if (sight->page->pid == (int32_t)getpid()) { /* a forked child has no such thread */
        pthread_mutex_lock(&writer->lock);
        writer->stop = true;
        pthread_cond_signal(&writer->wake);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
    }
    sight->writer = NULL;
    pthread_cond_destroy(&writer->wake);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}
