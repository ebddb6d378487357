/* SPDX-License-Identifier: MIT */
/*
 * series.h - the loop of overlap and chain: for each size one or two rows, with several
 * times of each iteration.
 *
 * A kind's callbacks measure the times of a row on this rank. The loop computes the slowest
 * rank's statistics of them, prints and records the row.
 */
#ifndef PERF_SERIES_H
#define PERF_SERIES_H

#include "perf/report.h"

#define PERF_SERIES_TIMES 6

struct perf_series;

struct perf_series_kind {
    const char *names[2]; /* of a size's first and second row; for errors */
    const char *times[PERF_SERIES_TIMES]; /* names in JSON; NULL after the last */
    size_t element;                       /* sizes are rounded down to a multiple */
    int (*prepare)(struct perf_series *series); /* collective; an exit status */
    void (*head)(const struct perf_series *series);
    /* Collective: fills times, and counts[t] where it is not `iterations`; adds to wrong. */
    symm_status (*measure)(struct perf_series *series);
    void (*print)(const struct perf_series *series);       /* between size and #wrong */
    json_t *(*describe)(const struct perf_series *series); /* of the row; returns new */
    void (*finish)(const struct perf_series *series); /* after the last row; or NULL */
    void (*release)(struct perf_series *series);      /* also after a failed prepare */
};

struct perf_series {
    const struct perf_series_kind *kind;
    const struct perf_job *job;
    const struct perf_options *options;
    struct perf_report *report;
    int rows; /* of a size; prepare may make it 2 */
    int row, iterations;
    size_t bytes;
    double *times[PERF_SERIES_TIMES]; /* of the row, on this rank */
    int counts[PERF_SERIES_TIMES];
    double wrong; /* elements of the row: on this rank, then of all ranks */
    struct perf_stats stats[PERF_SERIES_TIMES]; /* of the row, of the slowest rank */
};

/* Collective. An exit status; rows go to stdout and to the report's JSON. */
int perf_series_run(struct perf_series *series);

#endif
