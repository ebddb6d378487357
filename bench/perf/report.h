/* SPDX-License-Identifier: MIT */
/*
 * report.h - the output of symm-perf: nccl-tests' table on stdout, JSON in a file.
 *
 * Header, rows and foot of the table have the format of nccl-tests, byte for byte, so
 * that parsers of its output work; the time column is the slowest rank's median. Rank 0
 * reports.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <jansson.h>

#include "perf/job.h"
#include "perf/stats.h"

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
    const char *type, *redop; /* names of nccl-tests */
    const char *dtype;        /* the library's name; NULL: none */
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
    int nccl_version; /* 22809; 0: NCCL not timed */
    char start_time[32];
};

/* Collective: gathers host, process and device of each rank; rank 0 prints them. An exit
 * status. */
int perf_report_open(struct perf_report *report, const struct perf_job *job,
                     const struct perf_options *options);
/* On every rank; rank 0 prints. */
void perf_report_table(const struct perf_report *report);
void perf_report_row(struct perf_report *report, const struct perf_row *row);
void perf_report_wrong(const struct perf_report *report); /* the line of the sum */
void perf_report_foot(const struct perf_report *report);
/* Writes the JSON file, if -J was given. Takes `extra`, an object that is merged into it;
 * may be NULL. An exit status. */
int perf_report_write(struct perf_report *report, const struct perf_job *job, int argc,
                      char **argv, json_t *extra);
void perf_report_close(struct perf_report *report);

json_t *perf_report_stats(const struct perf_stats *stats); /* returns new */

#endif
