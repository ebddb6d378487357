/* SPDX-License-Identifier: MIT */
/*
 * chain.h - times compute -> all_reduce -> then(compute), thousands of times, and the host
 * time of a call.
 *
 * Each iteration: one stream writes the input (a memset) and makes an all_reduce; a callback
 * of its handle (symm_work_then) has another stream keep an element of the result; the first
 * stream then waits for that. The host waits only after all iterations are queued. Then each
 * iteration's result is checked.
 *
 * The driver bounds its queue of launches: if the device needs longer for an iteration than
 * the host, calls block. So bursts of a few iterations from idle streams are timed, too.
 */
#ifndef PERF_CHAIN_H
#define PERF_CHAIN_H

#include "perf/series.h"

/* Collective. An exit status. */
int perf_chain(const struct perf_job *job, const struct perf_options *options,
               struct perf_report *report);

#endif
