/* SPDX-License-Identifier: MIT */
/*
 * options.h - symm-perf's command line, in nccl-tests' letters.
 *
 * Pure: reads argv, starts nothing, prints nothing. An unknown argument is an error with
 * one sentence.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "symm/symm.h"

enum perf_kind {
    PERF_ALL_REDUCE,
    PERF_REDUCE_SCATTER,
    PERF_ALL_GATHER,
    PERF_BROADCAST,
    PERF_ALL_TO_ALL,
    PERF_PUT,
    PERF_GET,
    PERF_PUT_SIGNAL,
    PERF_SIGNAL,
    PERF_BARRIER,
    PERF_REPLAY,
    PERF_OVERLAP,
    PERF_CHAIN,
    PERF_ALL_REDUCE_NORM,
    PERF_KINDS
};

#define PERF_AUTO      (-1) /* -n auto, -w auto: by size */
#define PERF_MAX_RANKS 64   /* of --ranks */
#define PERF_OTHERS    2    /* variants of --compare: nccl, nccl-window */

struct perf_options {
    enum perf_kind kind;
    size_t begin, end, step; /* bytes; step 0: multiply by factor */
    size_t factor;
    symm_dtype dtype; /* the first of dtype_count in a row: one, or all */
    int dtype_count;
    symm_op op; /* likewise */
    int op_count;
    int iterations, warmup; /* or PERF_AUTO */
    int checks;             /* calls of a row checked in full; 0: no checking */
    int root;
    const char *json; /* -J; borrows */
    double timeout;   /* -T, seconds; 0: the library's */
    const char *algorithm, *backend;
    int ranks; /* --ranks: started here; 0: the launcher's job */
    bool pin;
    int graph;                  /* -G: calls in a graph; 0: calls one by one */
    int compare;                /* bit i: with variant i of --compare */
    const char *program, *plan; /* replay */
    double delay;               /* replay: microseconds */
    bool tune, regret;          /* instead of a table */
    bool every_kind;            /* tune, regret: no OP was given */
    bool dtype_given;           /* -d */
    double budget;              /* tune: seconds */
    const char *table;          /* tune: -o, the file to write */
    size_t hidden;              /* all_reduce_norm: columns of a row */
    int quant;                  /* all_reduce_norm: a symm_norm_quant */
    bool help, version;
};

/* 0, or 2 (the exit status) and a sentence in error. */
int perf_options_parse(int argc, char **argv, struct perf_options *options, char *error,
                       size_t error_bytes);
const char *perf_kind_name(enum perf_kind kind);
/* nccl-tests' name of a dtype: "float", "f8e4m3". -d takes these and the library's. */
const char *perf_dtype_name(symm_dtype dtype);
/* The next size of the table; false: there is none. */
bool perf_options_next(const struct perf_options *options, size_t *bytes);
/* The number of timed calls of a size, and of warm-up calls: as given, or by size. */
int perf_options_iterations(const struct perf_options *options, size_t bytes);
int perf_options_warmup(const struct perf_options *options, size_t bytes);
extern const char perf_usage[];
extern const char *const perf_quant_names[]; /* of a symm_norm_quant */

#endif
