/* SPDX-License-Identifier: MIT */
/* stats.c - see stats.h. Pure functions, the clock excepted. */
#include "perf/stats.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

double perf_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

void perf_stats_make(struct perf_stats *stats, double *times, size_t n)
{
    double sum = 0, squares = 0;

    qsort(times, n, sizeof *times, compare_doubles);
    for (size_t i = 0; i < n; i++)
        sum += times[i];
    stats->avg = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (times[i] - stats->avg) * (times[i] - stats->avg);
    stats->stdev = sqrt(squares / (double)n);
    stats->min = times[0];
    stats->p50 = times[n / 2];
    stats->p95 = times[n * 95 / 100];
    stats->p99 = times[n * 99 / 100];
    stats->max = times[n - 1];
}

void perf_stats_slower(struct perf_stats *stats, const struct perf_stats *other)
{
    double *mine = &stats->min;
    const double *theirs = &other->min;

    for (size_t i = 0; i < PERF_STATS_FIELDS; i++)
        mine[i] = fmax(mine[i], theirs[i]);
}
