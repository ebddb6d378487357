/* SPDX-License-Identifier: MIT */
/*
 * case.h - one operation on one size: its buffers, its call, what must come out.
 *
 * The only place that knows how the operations differ.
 */
#ifndef PERF_CASE_H
#define PERF_CASE_H

#include "perf/data.h"
#include "perf/job.h"

#define PERF_PHASES                                                                    \
    5 /* inputs taken in turn: prime, so that no double buffering hides one */

struct perf_case {
    const struct perf_job *job;
    enum perf_kind kind;
    symm_dtype dtype;
    symm_op op;
    int root;
    int step;       /* one-sided: to the rank this much further, modulo the ranks */
    size_t element; /* bytes */
    size_t count;   /* as the call counts */
    size_t size;    /* bytes in the table: the larger of input and output */
    size_t in_bytes, out_bytes;
    char *send, *receive; /* symmetric, for the largest size; borrows */
    char *
        staging; /* of the host, as large, for what lies on a GPU; else NULL; borrows */
    const symm_call *call; /* NULL: defaults */
    /* What each rank writes in each phase, and the sum of it: [phase * size + rank]. */
    struct perf_pattern *inputs, *sums;
};

/* The rank that a one-sided call goes to, and the one that it comes from. */
int perf_case_target(const struct perf_case *test);
int perf_case_sender(const struct perf_case *test);

/* Which rows the operation has. */
bool perf_kind_reduces(enum perf_kind kind);
bool perf_kind_has_size(enum perf_kind kind); /* not: signal, barrier */
bool perf_kind_in_place(enum perf_kind kind);
bool perf_kind_one_sided(enum perf_kind kind); /* put, get, put_signal */
bool perf_kind_split(enum perf_kind kind);     /* its count is of one rank's block */

/* The count for `bytes` as nccl-tests' -b and -e mean them, and all that follows
 * from it. */
void perf_case_size(struct perf_case *test, size_t bytes);
/* The patterns for the case's dtype and op. 0, or -1: no memory. */
int perf_case_prepare(struct perf_case *test);
void perf_case_finish(struct perf_case *test);

/* Writes this rank's whole input for a phase. */
void perf_case_fill(const struct perf_case *test, bool in_place, int phase);
symm_status perf_case_call(const struct perf_case *test, bool in_place) SYMM_MUST_CHECK;
/* Elements of the output that are wrong: of all, or of the first, middle and last. */
size_t perf_case_check(const struct perf_case *test, int phase);
size_t perf_case_glance(const struct perf_case *test, int phase);
/* Makes an output that is left untouched be seen as wrong; before the fill. */
void perf_case_spoil(const struct perf_case *test);

double perf_case_bus_factor(const struct perf_case *test);
/* Bytes that cross between ranks, per byte of size, by the algorithm named in
 * `explain`. */
double perf_case_wire_factor(const struct perf_case *test, const char *explain);

#endif
