/* SPDX-License-Identifier: MIT */
/*
 * stage.h - a program's buffers, teams and streams on this rank, and one period on
 * them.
 *
 * Host backend: ops of the first stream run inline on the caller's thread, those of
 * others on the worker threads of their streams. CUDA: every stream is a CUDA stream, and
 * a local write or check waits until its stream is idle (all ranks issue their ops in the
 * same order, so that none waits for one that is not issued). perf_stage_run returns when
 * all streams have drained.
 */
#ifndef PERF_STAGE_H
#define PERF_STAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "perf/expect.h"
#include "perf/job.h"

struct perf_stage;

/* One op on this rank: what a stream's callback needs. */
struct perf_step {
    struct perf_stage *stage;
    int op;
    uint64_t random;        /* state of --delay */
    uint64_t posted, taken; /* depend: periods that its two streams have passed */
    bool looks;             /* what arrives in symmetric memory is looked at at once */
};

struct perf_stage {
    const struct perf_job *job;
    const symm_program *program;
    double delay;  /* microseconds, at most, before each communication */
    bool planned;  /* a plan keeps buffers apart, and only as the program needs it */
    bool recorded; /* the library writes down what this rank does */
    struct perf_expect *expect;
    symm_team **teams; /* by group: the one this rank is in; [0] borrows */
    int *place;        /* by group: this rank's place in its list */
    void **streams;    /* host: [0] is NULL: inline */
    symm_buffer **buffers;
    char *staging;           /* GPUs: of the host, for the largest buffer or result */
    char **private_out;      /* by stream: results without `out` */
    struct perf_step *steps; /* by op */
    symm_work **works;       /* of this period's calls on worker threads */
    int work_count;
    uint64_t period;
    bool glance;  /* look at three elements of each result only */
    double local; /* microseconds of this period's inline writes and checks */
    _Atomic uint64_t results, wrong; /* results looked at; wrong elements */
    atomic_bool no_memory;
    pthread_mutex_t lock; /* of posted, taken, aborted */
    pthread_cond_t changed;
    bool aborted; /* the issuing thread has given up: nobody posts any more */
};

/* Collective. An exit status; on failure nothing is left. */
int perf_stage_open(struct perf_stage *stage, const struct perf_job *job,
                    const struct perf_options *options, const symm_program *program);
void perf_stage_close(struct perf_stage *stage);
/* One period; *wall and *calls in microseconds: with and without this rank's own
 * writes and checks on the first stream. An exit status. */
int perf_stage_run(struct perf_stage *stage, uint64_t period, bool glance, double *wall,
                   double *calls);

#endif
