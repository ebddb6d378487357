/* SPDX-License-Identifier: MIT */
/*
 * stage.h - a program's buffers, teams and streams on this rank; runs one period.
 *
 * Host backend: ops of the first stream run inline on the caller's thread, ops of other
 * streams on worker threads. CUDA: every stream is a CUDA stream, and a local write or
 * check waits until its stream is idle (all ranks issue their ops in the same order, so no
 * op waits for an op that is not issued). perf_stage_run returns when all streams have
 * drained.
 */
#ifndef PERF_STAGE_H
#define PERF_STAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "perf/expect.h"
#include "perf/job.h"

struct perf_stage;

/* One op on this rank: the argument of a stream's callback. */
struct perf_step {
    struct perf_stage *stage;
    int op;
    uint64_t random;        /* state of --delay */
    uint64_t posted, taken; /* depend: periods that its two streams have passed */
    bool looks;             /* check a result in symmetric memory at once */
    void *norm_at[PERF_NORM_ARRAYS]; /* all_reduce_norm: its arrays */
    void *private_norm;              /* those that are no buffers; NULL: none */
};

struct perf_stage {
    const struct perf_job *job;
    const symm_program *program;
    double delay;  /* microseconds, at most, before each communication */
    bool planned;  /* buffers may share bytes, as a plan has packed them */
    bool recorded; /* the library records this rank's calls */
    struct perf_expect *expect;
    symm_team **teams; /* by group: this rank's team; [0] borrows */
    int *place;        /* by group: this rank's place in its list */
    void **streams;    /* host: [0] is NULL: inline */
    symm_buffer **buffers;
    char *staging;           /* GPUs: host memory, for the largest buffer or result */
    char **private_out;      /* by stream: results without `out` */
    struct perf_step *steps; /* by op */
    symm_work **works;       /* of this period's calls on worker threads */
    int work_count;
    uint64_t period;
    bool glance;  /* check only three elements of each result */
    double local; /* microseconds of this period's inline writes and checks */
    _Atomic uint64_t results, wrong; /* results checked; wrong elements */
    atomic_bool no_memory;
    pthread_mutex_t lock; /* of posted, taken, aborted */
    pthread_cond_t changed;
    bool aborted; /* the issuing thread has failed and posts no more */
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
