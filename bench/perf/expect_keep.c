/* SPDX-License-Identifier: MIT */
/* expect_keep.c - see expect_keep.h. */
#include "perf/expect_keep.h"

#include <stdlib.h>

#define KEEP_COST 64 /* steps back for one element: results that take more are kept */

static bool names_buffer(const symm_program_op *op, int buffer)
{
    for (int i = 0; i < op->buffer_count; i++)
        if (op->buffers[i] == buffer)
            return true;
    return false;
}

bool perf_op_writes(const symm_program *program, const symm_program_op *op, int buffer)
{
    if (op->kind == SYMM_PROGRAM_WRITE)
        return names_buffer(op, buffer);
    return op->out == buffer || perf_norm_array_in(program, op, buffer, true) >= 0;
}

bool perf_op_reads(const symm_program *program, const symm_program_op *op, int buffer)
{
    if (op->kind == SYMM_PROGRAM_READ)
        return names_buffer(op, buffer);
    return op->in == buffer || perf_norm_array_in(program, op, buffer, false) >= 0;
}

/* Whether the op overwrites all of the buffer, which it writes. */
static bool covers(const symm_program *program, const symm_program_op *op, int buffer)
{
    const size_t bytes = program->buffers[buffer].bytes;
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];

    if (op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
        return op->kind == SYMM_PROGRAM_WRITE || op->result == bytes;
    perf_norm_list(program, op, arrays);
    return arrays[perf_norm_array_in(program, op, buffer, true)].bytes == bytes;
}

bool perf_buffer_carried(const symm_program *program, int buffer)
{
    for (int p = 0; p < program->op_count; p++) {
        const symm_program_op *op = &program->ops[program->order[p]];
        if (perf_op_reads(program, op, buffer))
            return true;
        if (perf_op_writes(program, op, buffer) && covers(program, op, buffer))
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
    const size_t bytes = program->buffers[buffer].bytes;
    struct perf_expected_buffer *written = &expect->buffers[buffer];
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        count += perf_op_writes(program, &program->ops[i], buffer);
    written->writers = calloc((size_t)count + 1, sizeof *written->writers);
    if (!written->writers)
        return -1;
    for (int p = 0; p < program->op_count; p++)
        if (perf_op_writes(program, &program->ops[program->order[p]], buffer))
            written->writers[written->writer_count++] = p;
    if (count == 0 || !perf_buffer_carried(program, buffer))
        return 0;
    if (make_copies(program, &written->carried, bytes))
        return -1;
    return make_copies(program, &written->next, bytes);
}

/* Room for all that an all_reduce_norm writes; it costs one step from then on. */
static int keep_norm(struct perf_expect *expect, int index, int *cost)
{
    const symm_program *program = expect->program;
    const symm_program_op *op = &program->ops[index];
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];
    struct perf_copies *kept = calloc(PERF_NORM_ARRAYS, sizeof *kept);

    expect->ops[index].norm = kept;
    if (!kept)
        return -1;
    perf_norm_list(program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++) {
        const int buffer = arrays[a].where.buffer;
        if (!arrays[a].written || !arrays[a].where.given)
            continue;
        if (make_copies(program, &kept[a], arrays[a].bytes))
            return -1;
        if (buffer >= 0 && (cost[buffer] < 1 || covers(program, op, buffer)))
            cost[buffer] = 1;
    }
    return 0;
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
        if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
            result = keep_norm(expect, index, cost);
        if (op->kind == SYMM_PROGRAM_WRITE || op->out < 0 ||
            op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
            continue;
        bool reduces = op->kind == SYMM_PROGRAM_ALL_REDUCE ||
                       op->kind == SYMM_PROGRAM_REDUCE_SCATTER;
        int steps = (cost[op->in] + 1) *
                    (reduces ? program->partitions[op->partition].length : 1);
        if (steps > KEEP_COST) {
            result = make_copies(program, &expect->ops[index].result, op->result);
            steps = 1;
        }
        if (steps > cost[op->out] || op->result == program->buffers[op->out].bytes)
            cost[op->out] = steps;
    }
    free(cost);
    return result;
}

struct perf_expect *perf_expect_create(const symm_program *program, const int *hosts)
{
    struct perf_expect *expect = calloc(1, sizeof *expect);

    if (!expect)
        return NULL;
    expect->program = program;
    expect->hosts = hosts;
    expect->ops = calloc((size_t)program->op_count + 1, sizeof *expect->ops);
    expect->buffers =
        calloc((size_t)program->buffer_count + 1, sizeof *expect->buffers);
    if (!expect->ops || !expect->buffers)
        goto err_destroy;
    for (int p = 0; p < program->op_count; p++)
        expect->ops[program->order[p]].place = p;
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
    for (int i = 0; expect->ops && i < expect->program->op_count; i++) {
        free(expect->ops[i].result.bytes);
        for (int a = 0; expect->ops[i].norm && a < PERF_NORM_ARRAYS; a++)
            free(expect->ops[i].norm[a].bytes);
        free(expect->ops[i].norm);
    }
    for (int b = 0; expect->buffers && b < expect->program->buffer_count; b++) {
        free(expect->buffers[b].writers);
        free(expect->buffers[b].carried.bytes);
        free(expect->buffers[b].next.bytes);
    }
    free(expect->ops);
    free(expect->buffers);
    free(expect);
}
