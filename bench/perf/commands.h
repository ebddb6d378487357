/* SPDX-License-Identifier: MIT */
/*
 * commands.h - what symm-perf does, each in a file of its own.
 *
 * All are collective and return an exit status. Rows go to stdout and to the report's JSON;
 * *extra (returns new; only with -J) is for the JSON, too.
 */
#ifndef PERF_COMMANDS_H
#define PERF_COMMANDS_H

#include "symm/plan.h"

#include "perf/report.h"

int perf_run(const struct perf_job *job, const struct perf_options *options,
             struct perf_report *report);
int perf_overlap(const struct perf_job *job, const struct perf_options *options,
                 struct perf_report *report);
int perf_chain(const struct perf_job *job, const struct perf_options *options,
               struct perf_report *report);
int perf_norm(const struct perf_job *job, const struct perf_options *options,
              struct perf_report *report);
int perf_replay(const struct perf_job *job, const struct perf_options *options,
                const symm_program *program, struct perf_report *report,
                json_t **extra);
int perf_tune(const struct perf_job *job, const struct perf_options *options);

#endif
