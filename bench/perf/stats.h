/* SPDX-License-Identifier: MIT */
/*
 * stats.h - a clock, and the statistics of one rank's times.
 *
 * Times are microseconds. A percentile is the sorted array's element at floor(n * p),
 * so that the median and p99 are comparable with bench/floor.c and
 * bench/mpi_allreduce.c.
 */
#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>

struct perf_stats {
    double min, avg, p50, p95, p99, max, stdev;
};

#define PERF_STATS_FIELDS (sizeof(struct perf_stats) / sizeof(double))

double perf_now(void); /* microseconds of a steady clock */
/* Sorts the times; n >= 1. */
void perf_stats_make(struct perf_stats *stats, double *times, size_t n);
/* Keeps the greater value of each field, min included: the slowest rank's. */
void perf_stats_slower(struct perf_stats *stats, const struct perf_stats *other);

#endif
