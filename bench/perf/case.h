/* SPDX-License-Identifier: MIT */
/*
 * case.h - one operation on one size: its buffers, its call, its expected result.
 *
 * Only this file knows how the operations differ.
 */
#ifndef PERF_CASE_H
#define PERF_CASE_H

#include "perf/data.h"
#include "perf/job.h"

#define PERF_PHASES                                                                    \
    5 /* inputs used in turn: prime, so that double buffering cannot hide an error */

struct perf_case {
    const struct perf_job *job;
    enum perf_kind kind;
    symm_dtype dtype;
    symm_op op;
    int root;
    bool in_place;
    int step;       /* one-sided: the target is rank + step, modulo the ranks */
    size_t element; /* bytes */
    size_t count;   /* the call's argument */
    size_t size;    /* bytes in the table: the larger of input and output */
    size_t in_bytes, out_bytes;
    char *send, *receive;  /* symmetric, for the largest size; borrows */
    char *staging;         /* GPUs: host memory of the same size; else NULL; borrows */
    const symm_call *call; /* NULL: defaults */
    /* Each rank's input of each phase, and the reductions: [phase * size + rank]. */
    struct perf_pattern *inputs, *sums;
};

/* The target of this rank's one-sided call, and the rank whose target is this rank. */
int perf_case_target(const struct perf_case *test);
int perf_case_sender(const struct perf_case *test);

/* Properties of an operation. */
bool perf_kind_reduces(enum perf_kind kind);
bool perf_kind_has_size(enum perf_kind kind); /* not: signal, barrier */
bool perf_kind_in_place(enum perf_kind kind);
bool perf_kind_one_sided(enum perf_kind kind); /* put, get, put_signal */
bool perf_kind_split(enum perf_kind kind); /* its count is that of one rank's block */

/* Sets count and the sizes from `bytes`, in the meaning of nccl-tests' -b and -e. */
void perf_case_size(struct perf_case *test, size_t bytes);
/* Makes the patterns for the case's dtype and op. 0, or -1: no memory. */
int perf_case_prepare(struct perf_case *test);
void perf_case_finish(struct perf_case *test);

/* Writes this rank's whole input for a phase. */
void perf_case_fill(const struct perf_case *test, int phase);
symm_status perf_case_call(const struct perf_case *test) SYMM_MUST_CHECK;
/* Counts wrong elements of the output: of all, or of the first, middle and last. */
size_t perf_case_check(const struct perf_case *test, int phase);
size_t perf_case_glance(const struct perf_case *test, int phase);
/* Fills the output so that an untouched one is wrong; call it before the fill. */
void perf_case_spoil(const struct perf_case *test);

double perf_case_bus_factor(const struct perf_case *test);
/* Bytes sent between ranks, per byte of size, by the algorithm named in `explain`. */
double perf_case_wire_factor(const struct perf_case *test, const char *explain);

#endif
