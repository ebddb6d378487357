/* SPDX-License-Identifier: MIT */
/*
 * expect_data.h - what the two files of the reference share.
 *
 * expect_keep.c makes it and keeps contents over periods; expect.c answers.
 */
#ifndef PERF_EXPECT_DATA_H
#define PERF_EXPECT_DATA_H

#include "perf/expect.h"

struct perf_copies {
    unsigned char *bytes; /* world x `size`, by rank; NULL: none */
    size_t size;
};

struct perf_expect {
    const symm_program *program;
    uint64_t period;
    int *place;        /* of each op in the order */
    int **writers;     /* by buffer: places of the ops that write it, ascending */
    int *writer_count; /* by buffer */
    struct perf_copies *results; /* by op: kept for this period */
    struct perf_copies *carried; /* by buffer: content at the end of the last period */
    struct perf_copies *next;    /* by buffer: at the end of this one, as computed */
};

struct perf_range {
    size_t from, bytes;
};

/* What the buffer holds on the rank before the op at place `before`. -1: no memory. */
int perf_expect__content(const struct perf_expect *expect, int buffer, int rank,
                         int before, struct perf_range range, unsigned char *to);
/* What op `index`, a collective or a put, delivers on the rank. -1: no memory. */
int perf_expect__result(const struct perf_expect *expect, int index, int rank,
                        struct perf_range range, unsigned char *to);

#endif
