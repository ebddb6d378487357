/* SPDX-License-Identifier: MIT */
/*
 * tune.h - --tune: what each call costs by each algorithm, as a table that the library
 * reads (SYMM_COSTS); --regret: how far its choices are from the best.
 *
 * Measured are teams of 2 to all ranks, the collectives, kinds of data that have kernels of
 * their own, and sizes from few to many bytes: for teams of all ranks and of powers of two,
 * then for the others, first a coarse grid, then finer ones, until the budget is spent; then
 * all of it twice more, if it lasts, and the least time of a point counts. The first
 * rank's clock decides, so that all ranks stop together. What was left out is told.
 */
#ifndef PERF_TUNE_H
#define PERF_TUNE_H

#include "perf/job.h"

/* Collective; exit statuses. */
int perf_tune(const struct perf_job *job, const struct perf_options *options);
int perf_regret(const struct perf_job *job, const struct perf_options *options);

#endif
