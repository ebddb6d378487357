/* SPDX-License-Identifier: MIT */
/*
 * tune.h - --tune: the cost of each call by each algorithm, as a table that the library
 * reads (SYMM_COSTS); --regret: how far the library's choices are from the best.
 *
 * It measures teams of 2 to all ranks, the collectives, the kinds of data that have their
 * own kernels, and sizes from few to many bytes. Teams of all ranks and of powers of two
 * come first; the first grid is coarse, the next are finer, until the budget is spent. If
 * it lasts, all points are measured twice more, and the least time counts. Rank 0's clock
 * decides, so that all ranks stop together. A message counts the points left out.
 */
#ifndef PERF_TUNE_H
#define PERF_TUNE_H

#include "perf/job.h"

/* Collective; exit statuses. */
int perf_tune(const struct perf_job *job, const struct perf_options *options);
int perf_regret(const struct perf_job *job, const struct perf_options *options);

#endif
