/* SPDX-License-Identifier: MIT */
/*
 * chain.h - compute -> all_reduce -> then(compute), thousands of times, and what a call
 * costs the host.
 *
 * Each iteration: one stream writes the input (a memset) and makes an all_reduce; a callback
 * of its handle's (symm_work_then) has another stream keep an element of the result; the
 * first stream goes on behind that. The host waits for nothing before all are queued. Then
 * every iteration's result is looked at.
 *
 * A driver lets only so many launches be queued: where the device takes longer for an
 * iteration than the host, calls come to wait for it. So bursts of a few iterations from idle
 * streams are timed as well.
 */
#ifndef PERF_CHAIN_H
#define PERF_CHAIN_H

#include "perf/series.h"

/* Collective. An exit status; *extra (returns new; only with -J) goes into the JSON. */
int perf_chain(const struct perf_job *job, const struct perf_options *options,
               struct perf_report *report, json_t **extra);

#endif
