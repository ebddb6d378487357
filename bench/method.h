/* SPDX-License-Identifier: MIT */
/*
 * method.h - how the programs beside symm-perf time an all-reduce of float32 sums.
 *
 * Each rank is pinned, and rewrites its whole input before each call, untimed; the clock is
 * read before and after the call. The iteration counts are those of `symm-perf -n auto`.
 * Shares no code with libsymm.
 */
#ifndef BENCH_METHOD_H
#define BENCH_METHOD_H

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum figure { MEDIAN, P99, LEAST, MEAN, FIGURES };

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare_floats(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

static int iterations_for(size_t bytes, double scale)
{
    int iterations = bytes <= 8192      ? 20000
                     : bytes <= 65536   ? 8000
                     : bytes <= 524288  ? 2000
                     : bytes <= 4194304 ? 300
                                        : 30;

    iterations = (int)(iterations * scale);
    return iterations < 10 ? 10 : iterations;
}

/* Binds rank r to the r-th core of its affinity mask. */
static void pin(int rank)
{
    cpu_set_t all, one;
    size_t cpu = 0;
    int wanted;

    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) == 0)
        return;
    wanted = rank % CPU_COUNT(&all);
    while (!CPU_ISSET(cpu, &all) || wanted-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/*
 * Times `iterations` calls of time_one, which writes the value base + rank, makes the call,
 * checks it and returns its microseconds, after a tenth as many that are not counted.
 */
static void time_all(double (*time_one)(void *arg, int base), void *arg, float *times,
                     int iterations, double *figures)
{
    double total = 0;

    for (int i = -(iterations / 10 + 5); i < iterations; i++) {
        double elapsed = time_one(arg, i & 7);
        if (i >= 0) {
            times[i] = (float)elapsed;
            total += elapsed;
        }
    }
    qsort(times, (size_t)iterations, sizeof *times, compare_floats);
    figures[MEDIAN] = (double)times[iterations / 2];
    figures[P99] = (double)times[(int)(iterations * 0.99)];
    figures[LEAST] = (double)times[0];
    figures[MEAN] = total / iterations;
}

#endif
