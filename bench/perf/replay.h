/* SPDX-License-Identifier: MIT */
/*
 * replay.h - runs a symm-program/1 file on real buffers and checks every result.
 *
 * Each period executes all ops on streams of this rank in the program's order. K periods
 * check every element of every result; K more are timed, with three elements of each result
 * checked. Without a plan each put gets an entry barrier over its group. Under a plan
 * buffers share bytes and barriers are omitted: a result in symmetric memory must be there
 * only when the program reads it, so it is checked at that read.
 */
#ifndef PERF_REPLAY_H
#define PERF_REPLAY_H

#include "symm/plan.h"

#include "perf/report.h"

/* Collective. An exit status; *extra (returns new; only with -J) is for the JSON. */
int perf_replay(const struct perf_job *job, const struct perf_options *options,
                const symm_program *program, struct perf_report *report,
                json_t **extra);

#endif
