/* SPDX-License-Identifier: MIT */
/*
 * expect_keep.h - what expect.h keeps of a program: who writes each buffer, and the contents that
 * are kept in memory.
 */
#ifndef PERF_EXPECT_KEEP_H
#define PERF_EXPECT_KEEP_H

#include <stddef.h>
#include <stdint.h>

#include "symm/plan.h"

#include "perf/expect_norm.h"

struct perf_copies {
    unsigned char *bytes; /* world x `size`, by rank; NULL: none */
    size_t size;
};

struct perf_expected_op {
    int place;                 /* in the order */
    struct perf_copies result; /* kept for the period */
    struct perf_copies *norm;  /* all_reduce_norm: of each array it writes; else NULL */
};

struct perf_expected_buffer {
    int *writers; /* places of the ops that write it, ascending */
    int writer_count;
    struct perf_copies carried; /* content at the end of the last period, */
    struct perf_copies next;    /* and of this one */
};

struct perf_expect {
    const symm_program *program;
    const int *hosts; /* of the ranks; NULL: one */
    uint64_t period;
    struct perf_expected_op *ops;
    struct perf_expected_buffer *buffers;
};

/* Returns new; NULL: no memory. Borrows the program and `hosts`: a number of each rank's
 * host, NULL if all are on one. */
struct perf_expect *perf_expect_create(const symm_program *program, const int *hosts);
void perf_expect_destroy(struct perf_expect *expect); /* NULL is allowed */

/* Does the op write, or read, the buffer, here or on a peer? */
bool perf_op_writes(const symm_program *program, const symm_program_op *op, int buffer);
bool perf_op_reads(const symm_program *program, const symm_program_op *op, int buffer);
/* Does an op read bytes of the buffer that no earlier op of the period wrote? */
bool perf_buffer_carried(const symm_program *program, int buffer);

#endif
