/* SPDX-License-Identifier: MIT */
/*
 * run.h - times one operation over a range of sizes, dtypes and reductions.
 *
 * Method: each rank rewrites its whole input (untimed), reads the clock, makes the
 * call, reads the clock. Nothing else orders the ranks between timed calls of a
 * collective. A put or get ends without the peer, so an untimed barrier surrounds it.
 * Some calls are checked in every element, timed calls in three.
 */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "perf/report.h"

/* Collective. An exit status; rows go to the report. */
int perf_run(const struct perf_job *job, const struct perf_options *options,
             struct perf_report *report);

#endif
