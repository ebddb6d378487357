/* SPDX-License-Identifier: MIT */
/*
 * overlap.h - two puts and an all_reduce: what they take alone, and all three at once.
 *
 * On three streams of each rank: a put to the next rank, one to the rank behind that (of
 * two ranks: the same one, into other memory) and an all_reduce, of as many bytes each, in
 * symmetric memory. On GPUs events on a fourth stream time them, from the event that
 * releases the three streams to the one behind them all; what is queued waits behind a gate
 * until all of it is, so that the host's part of a call is no part of the time. With -G they
 * are three branches of a graph. On the host backend a clock times them. NCCL does the same
 * with grouped sends and receives on one communicator, never in a graph.
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
