/* SPDX-License-Identifier: MIT */
/*
 * replay.h - runs a symm-program/1 file on real buffers and checks every result.
 *
 * Each period executes all ops on streams of this rank as the program orders them. K
 * periods are checked in every element of every result, K more are timed with three
 * elements of each result looked at. Without a plan each put gets an entry barrier over
 * its group. With one, buffers share bytes and barriers are left out: a result in symmetric
 * memory is looked at where the program reads it, since that is when it must be there.
 */
#ifndef PERF_REPLAY_H
#define PERF_REPLAY_H

#include "symm/plan.h"

#include "perf/report.h"

/* Collective. An exit status; *extra (returns new; only with -J) goes into the JSON. */
int perf_replay(const struct perf_job *job, const struct perf_options *options,
                const symm_program *program, struct perf_report *report,
                json_t **extra);

#endif
