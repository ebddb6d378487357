/* SPDX-License-Identifier: MIT */
/*
 * overlap.h - times two puts and an all_reduce, each alone and all three at once.
 *
 * On three streams of each rank: a put to rank + 1, a put to rank + 2 (of two ranks: the
 * same rank, other memory) and an all_reduce, of the same number of bytes, in symmetric
 * memory. On GPUs two events on a fourth stream time them: the first releases the three
 * streams, the second waits for all. A gate holds the streams until all calls are queued, so
 * that the time excludes the host's part of a call. With -G they are three branches of a
 * graph. On the host backend a clock times them. NCCL does the same with grouped sends and
 * receives on one communicator, never in a graph.
 *
 * Every element of the three results is compared, before and after the timed rounds.
 */
#ifndef PERF_OVERLAP_H
#define PERF_OVERLAP_H

#include "perf/series.h"

/* Collective. An exit status; rows go to stdout and to the report's JSON. */
int perf_overlap(const struct perf_job *job, const struct perf_options *options,
                 struct perf_report *report);

#endif
