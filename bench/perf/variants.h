/* SPDX-License-Identifier: MIT */
/*
 * variants.h - one call by every algorithm that can do it, timed side by side.
 *
 * On GPUs calls are captured in graphs and replays are timed; on the host calls are timed one
 * by one, each after its input was rewritten. The algorithms take turns for several rounds;
 * a time is the median over the rounds, of the rank where that is the largest. All ranks of
 * the team get the same figures.
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
    int graph;                     /* calls of a graph */
    double *times;                 /* [PERF_ALGORITHMS][PERF_VARIANT_TIMES] */
    double *gathered;              /* [size][PERF_ALGORITHMS + 1] */
    void *graphs[PERF_ALGORITHMS]; /* of the point in hand */
};

struct perf_timing {
    double us[PERF_ALGORITHMS]; /* 0: it cannot, or was not asked for */
    double elapsed;             /* what the first rank gave for `elapsed` */
};

/* `buffers`: symmetric memory of `bytes` each, and as much of the host's on GPUs. A status of
 * the library; on failure nothing is left. */
symm_status perf_variants_open(struct perf_variants *variants,
                               const struct perf_job *job, symm_team *team,
                               char *const buffers[2], char *staging, void *stream,
                               int graph) SYMM_MUST_CHECK;
void perf_variants_close(struct perf_variants *variants);

/* What is called from now on: a status of the library. */
symm_status perf_variants_call(struct perf_variants *variants, enum perf_kind kind,
                               symm_dtype dtype, symm_op op) SYMM_MUST_CHECK;
/*
 * Times the call on blocks of `bytes` (as the call counts them) by each algorithm of which the
 * bit is set in `which`. `elapsed`: a figure of this rank's that goes along.
 */
symm_status perf_variants_time(struct perf_variants *variants, size_t bytes,
                               bool in_place, unsigned which, double elapsed,
                               struct perf_timing *timing) SYMM_MUST_CHECK;
/* Which one the library takes for that call. */
symm_status perf_variants_choice(struct perf_variants *variants, size_t bytes,
                                 bool in_place, int *algorithm) SYMM_MUST_CHECK;

#endif
