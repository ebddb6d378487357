/* SPDX-License-Identifier: MIT */
/*
 * expect.h - the expected content of every buffer of a replayed program, on every rank.
 *
 * A rank writes patterns of (buffer, rank, period, op), so that any rank can compute the
 * content of any buffer by going back from op to op. Contents are computed on demand, in
 * blocks. Three kinds are kept in memory: buffers that carry a value over the end of a period,
 * results that cost too much to compute again at each use, and all results of an
 * all_reduce_norm, whose elements depend on whole rows. One period at a
 * time; between begin and end the queries may come from several threads.
 */
#ifndef PERF_EXPECT_H
#define PERF_EXPECT_H

#include "perf/data.h"
#include "perf/expect_keep.h"

/* -1: no memory. */
int perf_expect_begin(struct perf_expect *expect, uint64_t period);
int perf_expect_end(struct perf_expect *expect);
/* After the end of a period: all buffers hold zeros again. */
void perf_expect_restart(struct perf_expect *expect);

/* The pattern that op `op`, a write, puts into a buffer on a rank in this period. */
void perf_expect_written(const struct perf_expect *expect, int op, int buffer, int rank,
                         struct perf_pattern *pattern);

/* Counts elements of the memory at `found` that differ from the expected ones; -1: no
 * memory. Compared are, if `op` is a read, the whole buffer; a collective, its whole
 * result; a put, the bytes that arrive on `rank`. With `glance` only the first, middle
 * and last element. */
int64_t perf_expect_differ(const struct perf_expect *expect, int op, int buffer,
                           int rank, const void *found, bool glance);
/* The same of an array that `op`, an all_reduce_norm, writes. */
int64_t perf_expect_norm_differ(const struct perf_expect *expect, int op,
                                enum perf_norm_place array, int rank, const void *found,
                                bool glance);

#endif
