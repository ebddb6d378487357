/* SPDX-License-Identifier: MIT */
/*
 * expect_keep.c - makes the reference of a program and selects the contents to keep.
 *
 * It keeps the buffers that carry a value over the end of a period, and results that
 * take more than KEEP_COST steps back for one element. All else is computed on demand.
 */
#include "perf/expect.h"

#include <stdlib.h>

#define KEEP_COST 64

static bool names_buffer(const symm_program_op *op, int buffer)
{
    for (int i = 0; i < op->buffer_count; i++)
        if (op->buffers[i] == buffer)
            return true;
    return false;
}

bool perf_op_writes(const symm_program_op *op, int buffer)
{
    return op->kind == SYMM_PROGRAM_WRITE ? names_buffer(op, buffer)
                                          : op->out == buffer;
}

bool perf_op_reads(const symm_program_op *op, int buffer)
{
    return op->kind == SYMM_PROGRAM_READ ? names_buffer(op, buffer) : op->in == buffer;
}

/* Whether an op reads bytes of the buffer that no earlier op of the period wrote. */
static bool is_carried(const symm_program *program, int buffer)
{
    for (int p = 0; p < program->op_count; p++) {
        const symm_program_op *op = &program->ops[program->order[p]];
        if (perf_op_reads(op, buffer))
            return true;
        if (perf_op_writes(op, buffer) &&
            (op->kind == SYMM_PROGRAM_WRITE ||
             op->result == program->buffers[buffer].bytes))
            return false;
    }
    return false;
}

static int make_copies(const symm_program *program, struct perf_copies *copies,
                       size_t size)
{
    copies->size = size;
    copies->bytes = calloc((size_t)program->world, size);
    return copies->bytes ? 0 : -1;
}

static int find_writers(struct perf_expect *expect, int buffer)
{
    const symm_program *program = expect->program;
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        count += perf_op_writes(&program->ops[i], buffer);
    expect->writers[buffer] = calloc((size_t)count + 1, sizeof **expect->writers);
    if (!expect->writers[buffer])
        return -1;
    for (int p = 0; p < program->op_count; p++)
        if (perf_op_writes(&program->ops[program->order[p]], buffer))
            expect->writers[buffer][expect->writer_count[buffer]++] = p;
    if (count == 0 || !is_carried(program, buffer))
        return 0;
    if (make_copies(program, &expect->carried[buffer], program->buffers[buffer].bytes))
        return -1;
    return make_copies(program, &expect->next[buffer], program->buffers[buffer].bytes);
}

/* Counts the steps back for one element of each result; keeps the expensive results. */
static int find_dear_results(struct perf_expect *expect)
{
    const symm_program *program = expect->program;
    int *cost = calloc((size_t)program->buffer_count + 1, sizeof *cost);
    int result = cost ? 0 : -1;

    for (int p = 0; p < program->op_count && result == 0; p++) {
        int index = program->order[p];
        const symm_program_op *op = &program->ops[index];
        for (int i = 0; op->kind == SYMM_PROGRAM_WRITE && i < op->buffer_count; i++)
            cost[op->buffers[i]] = 0;
        if (op->kind == SYMM_PROGRAM_WRITE || op->out < 0)
            continue;
        bool reduces = op->kind == SYMM_PROGRAM_ALL_REDUCE ||
                       op->kind == SYMM_PROGRAM_REDUCE_SCATTER;
        int steps = (cost[op->in] + 1) *
                    (reduces ? program->partitions[op->partition].length : 1);
        if (steps > KEEP_COST) {
            result = make_copies(program, &expect->results[index], op->result);
            steps = 1;
        }
        if (steps > cost[op->out] || op->result == program->buffers[op->out].bytes)
            cost[op->out] = steps;
    }
    free(cost);
    return result;
}

struct perf_expect *perf_expect_create(const symm_program *program)
{
    struct perf_expect *expect = calloc(1, sizeof *expect);
    size_t ops = (size_t)program->op_count + 1,
           buffers = (size_t)program->buffer_count + 1;

    if (!expect)
        return NULL;
    expect->program = program;
    expect->place = calloc(ops, sizeof *expect->place);
    expect->results = calloc(ops, sizeof *expect->results);
    expect->writers = calloc(buffers, sizeof *expect->writers);
    expect->writer_count = calloc(buffers, sizeof *expect->writer_count);
    expect->carried = calloc(buffers, sizeof *expect->carried);
    expect->next = calloc(buffers, sizeof *expect->next);
    if (!expect->place || !expect->results || !expect->writers ||
        !expect->writer_count || !expect->carried || !expect->next)
        goto err_destroy;
    for (int p = 0; p < program->op_count; p++)
        expect->place[program->order[p]] = p;
    for (int b = 0; b < program->buffer_count; b++)
        if (find_writers(expect, b))
            goto err_destroy;
    if (find_dear_results(expect))
        goto err_destroy;
    return expect;

err_destroy:
    perf_expect_destroy(expect);
    return NULL;
}

void perf_expect_destroy(struct perf_expect *expect)
{
    if (!expect)
        return;
    for (int i = 0; expect->results && i < expect->program->op_count; i++)
        free(expect->results[i].bytes);
    for (int b = 0; b < expect->program->buffer_count; b++) {
        if (expect->writers)
            free(expect->writers[b]);
        if (expect->carried)
            free(expect->carried[b].bytes);
        if (expect->next)
            free(expect->next[b].bytes);
    }
    free(expect->place);
    free(expect->results);
    free(expect->writers);
    free(expect->writer_count);
    free(expect->carried);
    free(expect->next);
    free(expect);
}

/* ---- Periods --------------------------------------------------------------------- */

static int keep_result(struct perf_expect *expect, int index)
{
    struct perf_copies kept = expect->results[index];
    int result = 0;

    expect->results[index].bytes = NULL; /* so that it is computed */
    for (int r = 0; r < expect->program->world && result == 0; r++)
        result =
            perf_expect__result(expect, index, r, (struct perf_range){0, kept.size},
                                kept.bytes + (size_t)r * kept.size);
    expect->results[index] = kept;
    return result;
}

int perf_expect_begin(struct perf_expect *expect, uint64_t period)
{
    expect->period = period;
    for (int p = 0; p < expect->program->op_count; p++) {
        int index = expect->program->order[p];
        if (expect->results[index].bytes && keep_result(expect, index))
            return -1;
    }
    return 0;
}

int perf_expect_end(struct perf_expect *expect)
{
    const symm_program *program = expect->program;

    for (int b = 0; b < program->buffer_count; b++) {
        struct perf_copies *next = &expect->next[b];
        for (int r = 0; next->bytes && r < program->world; r++)
            if (perf_expect__content(expect, b, r, program->op_count,
                                     (struct perf_range){0, next->size},
                                     next->bytes + (size_t)r * next->size))
                return -1;
    }
    for (int b = 0; b < program->buffer_count; b++) {
        struct perf_copies last = expect->carried[b];
        expect->carried[b] = expect->next[b];
        expect->next[b] = last;
    }
    return 0;
}
