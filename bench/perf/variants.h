/* SPDX-License-Identifier: MIT */
/*
 * variants.h - times one call by every algorithm that can do it.
 *
 * On GPUs calls are captured in graphs and replays are timed; on the host calls are timed one
 * by one, each after its input was rewritten. The algorithms take turns for several rounds. A
 * time is the largest, over the ranks, of the median over the rounds. All ranks of the team
 * get the same figures.
 */
#ifndef PERF_VARIANTS_H
#define PERF_VARIANTS_H

#include "perf/case.h"
#include "symm/plan.h"

#define PERF_AUTOMATIC                                                                 \
    SYMM_ALGORITHM_PUT /* in place of an algorithm: the library chooses */
#define PERF_ALGORITHMS (PERF_AUTOMATIC + 1)

/* One team's calls. */
struct perf_variants {
    struct perf_job job; /* borrows; its world, rank and size are the team's */
    struct perf_case test;
    symm_call call;
    int graph;                     /* calls per graph */
    double *times;                 /* [PERF_ALGORITHMS][PERF_VARIANT_TIMES] */
    double *gathered;              /* [size][PERF_ALGORITHMS + 1] */
    void *graphs[PERF_ALGORITHMS]; /* of the current point */
};

struct perf_timing {
    double us[PERF_ALGORITHMS]; /* 0: it cannot do the call, or its bit was not set */
    double elapsed;             /* rank 0's argument `elapsed` */
};

/* `buffers`: symmetric memory of `bytes` each, and as much host memory on GPUs. A status of
 * the library; on failure nothing is left. */
symm_status perf_variants_open(struct perf_variants *variants,
                               const struct perf_job *job, symm_team *team,
                               char *const buffers[2], char *staging, void *stream,
                               int graph) SYMM_MUST_CHECK;
void perf_variants_close(struct perf_variants *variants);

/* Sets the operation that is timed from now on. A status of the library. */
symm_status perf_variants_call(struct perf_variants *variants, enum perf_kind kind,
                               symm_dtype dtype, symm_op op) SYMM_MUST_CHECK;
/*
 * Times the call on blocks of `bytes` (as the call counts them) by each algorithm whose bit
 * is set in `which`. `elapsed`: a figure of this rank; timing gets rank 0's.
 */
symm_status perf_variants_time(struct perf_variants *variants, size_t bytes,
                               bool in_place, unsigned which, double elapsed,
                               struct perf_timing *timing) SYMM_MUST_CHECK;
/* The algorithm that the library chooses for that call. */
symm_status perf_variants_choice(struct perf_variants *variants, size_t bytes,
                                 bool in_place, int *algorithm) SYMM_MUST_CHECK;

#endif
