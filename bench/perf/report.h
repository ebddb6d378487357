/* SPDX-License-Identifier: MIT */
/*
 * report.h - what symm-perf tells: nccl-tests' table on stdout, JSON in a file.
 *
 * Header, rows and foot of the table are those of nccl-tests, byte for byte, so that
 * what reads theirs reads ours; the time column is the slowest rank's median. Rank 0
 * reports.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <jansson.h>

#include "perf/job.h"
#include "perf/stats.h"

#define PERF_OTHERS 2 /* what --compare knows */

/* One half of a row: out of place, or in place. */
struct perf_cell {
    bool present;                   /* false: the operation has no such form */
    struct perf_stats stats;        /* of the slowest rank, microseconds */
    double wrong;                   /* elements, over all ranks; < 0: not checked */
    double alg_bw, bus_bw, wire_bw; /* GB/s */
    int iterations, warmup;
    char explain[256]; /* why the call took its path */
};

struct perf_row {
    size_t bytes, count;
    const char *type, *redop; /* nccl-tests' words */
    const char *dtype;        /* the library's word; NULL: none */
    int root;
    struct perf_cell cells[2];            /* out of place, in place */
    struct perf_cell others[PERF_OTHERS]; /* --compare: nccl, nccl-window */
};

struct perf_report {
    const struct perf_options *options;
    json_t *results; /* NULL: no JSON asked for */
    json_t *devices;
    bool prints;           /* rank 0 */
    double wrong, bus_sum; /* over the rows */
    int bus_cells;
    int nccl_version; /* 22809; 0: not beside */
    char start_time[32];
};

/* "nccl", "nccl-window"; is it asked for? */
const char *perf_other_name(int other);
bool perf_other_wanted(const struct perf_options *options, int other);
/* nccl-tests' word for a dtype: "float", "f8e4m3". */
const char *perf_report_type(symm_dtype dtype);

/* Collective: gathers who the ranks are; rank 0 prints it. An exit status. */
int perf_report_open(struct perf_report *report, const struct perf_job *job,
                     const struct perf_options *options);
/* On every rank; rank 0 prints. */
void perf_report_table(const struct perf_report *report);
void perf_report_row(struct perf_report *report, const struct perf_row *row);
void perf_report_wrong(const struct perf_report *report); /* the line of the sum */
void perf_report_foot(const struct perf_report *report);
/* Writes the JSON file, if one was asked for. Takes `extra`, an object merged into the
 * whole; may be NULL. An exit status. */
int perf_report_write(struct perf_report *report, const struct perf_job *job, int argc,
                      char **argv, json_t *extra);
void perf_report_close(struct perf_report *report);

json_t *perf_report_stats(const struct perf_stats *stats); /* returns new */

#endif
