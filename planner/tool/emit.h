/* SPDX-License-Identifier: MIT */
/*
 * emit.h - what the files of the command `emit` share.
 *
 * The program is cut into rows, the lines of the emitted table of ops: one for each op in
 * the order of issue, and for reads and writes one for each of their buffers. Each row
 * knows which row made the data that it takes, so that the emitted program can tell what
 * must arrive.
 */
#ifndef SYMM_PLANNER_TOOL_EMIT_H
#define SYMM_PLANNER_TOOL_EMIT_H

#include <stdio.h>

#include "symm/plan.h"

#define EMIT_NEVER   INT32_MIN /* the data is there from the beginning */
#define EMIT_PERIODS 3         /* that a loop is run for */

struct emit_row {
    const symm_program_op *op;
    int in, out;      /* buffers, or -1; a read's is in, a write's is out */
    symm_dtype dtype; /* of what it leaves, or of what a read finds */
    /* The row that last wrote `in`, minus the number of rows if that was in the period
     * before, or EMIT_NEVER; the same of `out`, of which it may leave a part alone. */
    int from, below;
    size_t count;  /* elements, as the call takes them */
    size_t result; /* elements that it leaves in out, or in private memory */
    size_t right;  /* of those in the buffer behind it: as many are known */
    size_t check;  /* elements that can be compared; 0: it has nothing to show */
    int signal;    /* put */
    int put;       /* wait: the row of its put */
};

struct emit {
    FILE *file;
    const symm_program *program;
    const symm_plan *plan;
    uint64_t plan_hash;
    struct emit_row *rows;
    int row_count, periods;
    int unchecked;  /* rows that have something to show, but nobody knows what */
    bool *is_input; /* by buffer: its first contents are used */
    char **buffers, **streams, **groups; /* their names as names of C */
    bool kinds[SYMM_PROGRAM_KINDS], dtypes[12], reduces[5];
    bool teams, queues; /* groups beside the world, streams beside the first are used */
    bool inputs;        /* some buffer's first contents are used */
    bool parts;         /* some op leaves a part of its `out` that is used as it was */
    bool results;       /* some call gives its result to private memory */
    bool reads, shown;  /* some read, some private result can be compared */
};

/* emit_rows.c; false: a line on stderr says why. */
bool symm_plan_emit_rows(struct emit *emit);
/* emit_tables.c, _numbers.c, _calls.c: the three parts of the source. */
void symm_plan_emit_tables(const struct emit *emit);
void symm_plan_emit_numbers(const struct emit *emit);
void symm_plan_emit_calls(const struct emit *emit);
/* Writes text with $ and a letter replaced; in emit_numbers.c. */
void symm_plan_emit_write(const struct emit *emit, const char *text);

#endif
