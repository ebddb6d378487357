/* SPDX-License-Identifier: MIT */
/*
 * expect.h - what every buffer of a replayed program must hold, on every rank.
 *
 * What a rank writes is a pattern of (buffer, rank, period, op), so that any rank can
 * tell what any buffer holds by going back from op to op: contents are computed when
 * asked for, in blocks, and only two kinds are kept in memory: buffers that carry a
 * value over the end of a period, and results that would cost too much to compute again
 * at each use. One period at a time; between begin and end the queries may come from
 * several threads.
 */
#ifndef PERF_EXPECT_H
#define PERF_EXPECT_H

#include "symm/plan.h"

#include "perf/data.h"

struct perf_expect;

/* Returns new; NULL: no memory. Borrows the program. */
struct perf_expect *perf_expect_create(const symm_program *program);
void perf_expect_destroy(struct perf_expect *expect); /* NULL is allowed */

/* -1: no memory. */
int perf_expect_begin(struct perf_expect *expect, uint64_t period);
int perf_expect_end(struct perf_expect *expect);

/* What op `op`, a write, puts into one of its buffers on a rank in this period. */
void perf_expect_written(const struct perf_expect *expect, int op, int buffer, int rank,
                         struct perf_pattern *pattern);

/* Elements of the memory at `found` that differ from what must be there; -1: no
 * memory. The whole of a buffer as `op`, a read, sees it; the whole result of `op`,
 * a collective; the bytes that arrive by `op`, a put, on `rank`. Only the first,
 * middle and last element with `glance`. */
int64_t perf_expect_differ(const struct perf_expect *expect, int op, int buffer,
                           int rank, const void *found, bool glance);

#endif
