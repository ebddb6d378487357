/* SPDX-License-Identifier: MIT */
/*
 * job.h - this rank in its job.
 *
 * Messages go to stderr with the rank's number; only rank 0 reports errors of the
 * command line. Exit statuses: 0 right, 1 a wrong result, 2 a command line, file or
 * request that cannot be served, 3 a call of the library failed (a dead peer, ...).
 */
#ifndef PERF_JOB_H
#define PERF_JOB_H

#include "perf/gpu.h"
#include "perf/options.h"
#include "perf/stats.h"
#include "symm/symm.h"
#include "symm/tools.h"

enum perf_exit { PERF_RIGHT = 0, PERF_WRONG = 1, PERF_REFUSED = 2, PERF_FAILED = 3 };

struct perf_job {
    symm_ctx *ctx;
    symm_team *world; /* borrows from ctx */
    int rank, size;
    int local_rank;
    symm_info info;
    int *hosts; /* [size]: the lowest rank on each rank's host; NULL: all are on one */
    struct perf_gpu *gpu; /* backend cuda: buffers are device memory; else NULL */
    char where[96];       /* "cores 0-3, NUMA node 0"; "" if not bound */
};

/* PERF_RIGHT, or an exit status after a message. */
int perf_job_open(struct perf_job *job, const symm_job_info *place,
                  const struct perf_options *options);
void perf_job_close(struct perf_job *job);

/* Exit status for a failed call; prints its error. */
int perf_job_failed(const struct perf_job *job, symm_status status, const char *what);
int perf_job_no_memory(const struct perf_job *job);
/* Collective: `count` symmetric buffers (alloc_id 1 and up), zeroed, so that their pages
 * exist before the timing. An exit status; on failure buffers holds those made. */
int perf_job_buffers(const struct perf_job *job, size_t bytes, int count,
                     symm_buffer **buffers);
/* Zeroed memory of this rank that calls can use; NULL: there is none. */
void *perf_job_alloc(const struct perf_job *job, size_t bytes);
void perf_job_free(const struct perf_job *job, void *memory);
/* Copy from or to a buffer of either backend; fill one with a byte. An exit status. */
int perf_job_copy(const struct perf_job *job, void *dst, const void *src, size_t bytes);
int perf_job_fill(const struct perf_job *job, void *dst, int byte, size_t bytes);
/* Gathers every rank's `bytes` bytes in rank order, in host memory. A status of the library. */
symm_status perf_job_gather(const struct perf_job *job, const void *mine, size_t bytes,
                            void *all) SYMM_MUST_CHECK;
/* A barrier of all ranks on the stream. */
symm_status perf_job_barrier(const struct perf_job *job, void *stream) SYMM_MUST_CHECK;
/* GPUs: a graph of `calls` times fn(arg), which queues on the stream. On failure the capture
 * has ended. */
symm_status perf_job_capture(const struct perf_job *job, void *stream, int calls,
                             symm_status (*fn)(void *arg), void *arg,
                             void **graph) SYMM_MUST_CHECK;
/* One replay, after a barrier, so that the ranks begin together; *us: of one call. */
symm_status perf_job_replay(const struct perf_job *job, void *graph, void *stream,
                            int calls, double *us) SYMM_MUST_CHECK;

/* Collective: the worst exit status of all ranks for `what`, on every rank. */
int perf_job_worst(const struct perf_job *job, int mine, const char *what);
/* Gives every rank the slowest rank's value of each of `count` statistics, and the sum over
 * all ranks of each of `n` figures. A status of the library. */
symm_status perf_job_slowest(const struct perf_job *job, struct perf_stats *stats,
                             int count, double *sums, int n) SYMM_MUST_CHECK;

#endif
