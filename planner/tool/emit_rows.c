/* SPDX-License-Identifier: MIT */
/*
 * emit_rows.c - a program as rows, and which row's data each row takes.
 *
 * Data is known where it was written as the type that it is read as; a put of floating
 * point into a buffer of bytes, reduced as bytes, is not. Neither is the result of so many
 * chained reductions that the emitted program would compute for hours what it must be.
 * Such results are left unchecked.
 */
#include "tool/emit.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COST 20000.0 /* numbers that one element is made of */

static bool is_put_or_collective(const symm_program_op *op)
{
    return op->site && op->kind != SYMM_PROGRAM_WAIT;
}

static int count_rows(const symm_program *program)
{
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        count += program->ops[i].buffer_count ? program->ops[i].buffer_count : 1;
    return count;
}

static void fill_call(const struct emit *emit, struct emit_row *row)
{
    const symm_program_op *op = row->op;
    const size_t length = (size_t)emit->program->groups[op->group].length;

    row->in = op->in;
    row->out = op->out;
    row->dtype = emit->program->buffers[op->in].dtype;
    row->count = op->count;
    if (op->kind == SYMM_PROGRAM_REDUCE_SCATTER || op->kind == SYMM_PROGRAM_ALL_TO_ALL)
        row->count /= length;
    if (op->kind == SYMM_PROGRAM_PUT)
        row->count /= symm_dtype_size(row->dtype);
    row->result = row->count;
    if (op->kind == SYMM_PROGRAM_ALL_GATHER || op->kind == SYMM_PROGRAM_ALL_TO_ALL)
        row->result *= length;
}

/* Rows in the order of issue. */
static void list_rows(struct emit *emit)
{
    const symm_program *program = emit->program;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[program->order[i]];
        if (op->kind == SYMM_PROGRAM_DEPEND && op->on == op->stream)
            continue; /* nothing starts early here */
        for (int k = 0; k < (op->buffer_count ? op->buffer_count : 1); k++) {
            struct emit_row *row = &emit->rows[emit->row_count++];
            *row = (struct emit_row){.op = op, .in = -1, .out = -1};
            if (op->kind == SYMM_PROGRAM_READ)
                row->in = op->buffers[k];
            else if (op->kind == SYMM_PROGRAM_WRITE)
                row->out = op->buffers[k];
            else if (is_put_or_collective(op))
                fill_call(emit, row);
            if (op->kind == SYMM_PROGRAM_PUT)
                row->signal = op->signal;
            if (op->kind != SYMM_PROGRAM_WRITE)
                continue;
            row->dtype = program->buffers[row->out].dtype;
            row->count = row->result = program->buffers[row->out].elements;
        }
    }
}

static void find_puts(struct emit *emit)
{
    for (int i = 0; i < emit->row_count; i++) {
        struct emit_row *row = &emit->rows[i];
        for (int k = 0; row->op->kind == SYMM_PROGRAM_WAIT && k < i; k++)
            if (emit->rows[k].op == &emit->program->ops[row->op->put])
                row->put = k;
    }
}

static bool find_sources(struct emit *emit)
{
    const size_t buffers = (size_t)emit->program->buffer_count;
    int *last = malloc((buffers + 1) * sizeof(*last));

    if (!last)
        return false;
    for (size_t b = 0; b < buffers; b++)
        last[b] = EMIT_NEVER;
    for (int pass = emit->program->loop ? 0 : 1; pass < 2; pass++) {
        for (int i = 0; i < emit->row_count; i++) {
            struct emit_row *row = &emit->rows[i];
            row->from = row->in < 0 ? EMIT_NEVER : last[row->in];
            row->below = row->out < 0 ? EMIT_NEVER : last[row->out];
            if (row->out >= 0)
                last[row->out] = i;
        }
        for (size_t b = 0; pass == 0 && b < buffers; b++)
            last[b] -= last[b] == EMIT_NEVER ? 0 : emit->row_count;
    }
    free(last);
    return true;
}

/* ---- What is known --------------------------------------------------------------- */

/* Of what the row `from` left in the buffer: how many elements, of which type. */
static size_t known(const struct emit *emit, int from, int buffer, symm_dtype *dtype)
{
    const symm_program_buffer *b = &emit->program->buffers[buffer];
    const struct emit_row *row;

    *dtype = b->dtype;
    if (from == EMIT_NEVER)
        return b->elements;
    row = &emit->rows[from < 0 ? from + emit->row_count : from];
    if (from < 0 && row->dtype != b->dtype)
        return 0; /* in the first period it finds something else */
    *dtype = row->dtype;
    return row->right;
}

/* Whether less is known than was. */
static bool know_less(const struct emit *emit, struct emit_row *row)
{
    const size_t was = row->right;
    const bool splits = row->op->kind == SYMM_PROGRAM_REDUCE_SCATTER ||
                        row->op->kind == SYMM_PROGRAM_ALL_TO_ALL;
    symm_dtype dtype;
    size_t need = row->count, had;

    if (row->op->kind == SYMM_PROGRAM_READ) {
        row->right = known(emit, row->from, row->in, &row->dtype);
        return row->right < was;
    }
    if (row->in >= 0) {
        if (splits)
            need *= (size_t)emit->program->groups[row->op->group].length;
        had = known(emit, row->from, row->in, &dtype);
        if (dtype != row->dtype || had < need)
            row->right = 0;
    }
    if (row->out >= 0 && row->right > row->result) {
        had = known(emit, row->below, row->out, &dtype);
        if (dtype != row->dtype || had < row->right)
            row->right = dtype == row->dtype && had > row->result ? had : row->result;
    }
    return row->right < was;
}

static void find_known(struct emit *emit)
{
    bool changed = true;

    for (int i = 0; i < emit->row_count; i++) {
        struct emit_row *row = &emit->rows[i];
        if (row->out >= 0)
            row->right =
                emit->program->buffers[row->out].bytes / symm_dtype_size(row->dtype);
        else
            row->right = row->op->kind == SYMM_PROGRAM_READ ? SIZE_MAX : row->result;
    }
    while (changed) {
        changed = false;
        for (int i = 0; i < emit->row_count; i++)
            if (emit->rows[i].in >= 0 || emit->rows[i].out >= 0)
                changed |= know_less(emit, &emit->rows[i]);
    }
}

/* ---- What it costs to know ------------------------------------------------------- */

static double cost_of(const double *costs, const struct emit *emit, int from)
{
    if (from == EMIT_NEVER)
        return 1;
    return costs[from < 0 ? from + 2 * emit->row_count : from + emit->row_count];
}

/* costs: of the rows of the period before, and of this one. */
static bool find_checks(struct emit *emit)
{
    const size_t rows = (size_t)emit->row_count;
    double *costs = calloc(2 * rows + 1, sizeof(*costs));

    if (!costs)
        return false;
    for (int period = 0; period < emit->periods; period++) {
        for (int i = 0; i < emit->row_count; i++) {
            struct emit_row *row = &emit->rows[i];
            double cost = cost_of(costs, emit, row->from);
            if (row->op->kind == SYMM_PROGRAM_ALL_REDUCE ||
                row->op->kind == SYMM_PROGRAM_REDUCE_SCATTER)
                cost *= emit->program->groups[row->op->group].length;
            if (row->out >= 0 && row->right > row->result &&
                cost_of(costs, emit, row->below) > cost)
                cost = cost_of(costs, emit, row->below);
            costs[rows + (size_t)i] = row->op->kind == SYMM_PROGRAM_WRITE ? 1 : cost;
            if (row->op->kind == SYMM_PROGRAM_READ || (row->in >= 0 && row->out < 0))
                row->check = cost > MAX_COST ? 0 : row->right;
        }
        memcpy(costs, costs + rows, rows * sizeof(*costs));
    }
    free(costs);
    return true;
}

static void find_uses(struct emit *emit)
{
    for (int i = 0; i < emit->row_count; i++) {
        const struct emit_row *row = &emit->rows[i];
        const symm_program_op *op = row->op;
        emit->kinds[op->kind] = true;
        emit->teams |= is_put_or_collective(op) && op->group != 0;
        emit->queues |=
            op->stream != 0 || (op->kind == SYMM_PROGRAM_DEPEND && op->on != 0);
        if (row->in >= 0 || row->out >= 0)
            emit->dtypes[row->dtype] = true;
        if (op->kind == SYMM_PROGRAM_ALL_REDUCE ||
            op->kind == SYMM_PROGRAM_REDUCE_SCATTER)
            emit->reduces[op->reduce] = true;
        if (row->in >= 0 && row->from < 0)
            emit->inputs = emit->is_input[row->in] = true;
        if (row->out >= 0 && row->below < 0 && row->right > row->result)
            emit->inputs = emit->is_input[row->out] = true;
        emit->parts |= row->out >= 0 && row->right > row->result;
        emit->unchecked += row->in >= 0 && row->out < 0 && row->check == 0;
        emit->results |= is_put_or_collective(op) && row->out < 0;
        emit->reads |= op->kind == SYMM_PROGRAM_READ && row->check > 0;
        emit->shown |= op->kind != SYMM_PROGRAM_READ && row->check > 0;
    }
    for (int b = 0; b < emit->program->buffer_count; b++)
        emit->dtypes[emit->program->buffers[b].dtype] = true;
}

bool symm_plan_emit_rows(struct emit *emit)
{
    emit->periods = emit->program->loop ? EMIT_PERIODS : 1;
    emit->rows = calloc((size_t)count_rows(emit->program) + 1, sizeof(*emit->rows));
    emit->is_input = calloc((size_t)emit->program->buffer_count + 1, sizeof(bool));
    if (emit->rows && emit->is_input) {
        list_rows(emit);
        find_puts(emit);
        if (find_sources(emit)) {
            find_known(emit);
            if (find_checks(emit)) {
                find_uses(emit);
                return true;
            }
        }
    }
    fprintf(stderr, "symm-plan emit: no memory for %d ops\n", emit->program->op_count);
    return false;
}
