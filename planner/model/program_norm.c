/* SPDX-License-Identifier: MIT */
/*
 * program_norm.c - the all_reduce_norms of a program: their arrays, and what these must be.
 *
 * A program says which arrays a call has, where they lie and how long they are; the rules are
 * those of symm/norm.h. An output may be `in` or residual_in itself, other arrays that the call
 * writes share their buffer with none.
 */
#include <stdio.h>
#include <string.h>

#include "model/program_private.h"
#include "util/status.h"

/* ---- Adding ------------------------------------------------------------------------ */

static symm_status refuse_norm(const symm_program *program, const char *text)
{
    return symm__program_refuse(program, "symm_program_norm: %s", text);
}

symm_status symm_program_add_norm(symm_program *program, const symm_program_norm *norm,
                                  int *index)
{
    struct program_private *private = (struct program_private *)program;
    symm_program_norm *list;

    if (!program || !norm || !index)
        return symm__fail_null("symm_program_add_norm", !program ? "program"
                                                        : !norm  ? "norm"
                                                                 : "index");
    if (norm->size != sizeof(*norm))
        return symm__program_refuse(program,
                                    "symm_program_norm.size: found %zu, allowed: %zu",
                                    norm->size, sizeof(*norm));
    if (norm->hidden < 1 || norm->hidden > SYMM_NORM_MAX_HIDDEN)
        return symm__program_refuse(
            program, "symm_program_norm.hidden: found %zu, allowed: 1 to %d",
            norm->hidden, SYMM_NORM_MAX_HIDDEN);
    if (!symm__norm_quant_name(norm->quant))
        return refuse_norm(program, "quant: allowed: a symm_norm_quant");
    if (program->norm_count == SYMM_PROGRAM_MAX_OPS)
        return refuse_norm(program, "found one more than a program can have ops");
    list = (symm_program_norm *)(uintptr_t)program->norms;
    if (!symm__grow((void **)&list, program->norm_count, &private->norm_room,
                    sizeof(*list)))
        return symm__program_nomem(program);
    program->norms = list;
    list[program->norm_count] = *norm;
    *index = program->norm_count++;
    return SYMM_OK;
}

const char *symm__norm_quant_name(symm_norm_quant quant)
{
    switch (quant) {
    case SYMM_NORM_QUANT_NONE:
        return "none";
    case SYMM_NORM_QUANT_TENSOR:
        return "tensor";
    case SYMM_NORM_QUANT_ROW:
        return "row";
    case SYMM_NORM_QUANT_GROUP:
        return "group";
    case SYMM_NORM_QUANT_GROUP_COLUMN:
        return "group_column";
    default:
        return NULL;
    }
}

/* ---- Arrays ------------------------------------------------------------------------ */

void symm__norm_list(const symm_program *program, const symm_program_op *op,
                     struct norm_array arrays[NORM_ARRAYS])
{
    const symm_program_norm *n = &program->norms[op->norm];
    const size_t row = n->hidden * symm_dtype_size(op->dtype);
    const size_t all = op->count * symm_dtype_size(op->dtype);
    const size_t scales =
        symm_norm_scales(n->quant, op->count / n->hidden, n->hidden) * sizeof(float);
    const bool writes_scale = n->quant != SYMM_NORM_QUANT_TENSOR;
    const struct norm_array list[NORM_ARRAYS] = {
        {"bias", n->bias, op->dtype, row, false},
        {"residual_in", n->residual_in, op->dtype, all, false},
        {"weight", n->weight, op->dtype, row, false},
        {"scale", n->scale, SYMM_FLOAT32, scales, writes_scale},
        {"sum_out", n->sum_out, op->dtype, all, true},
        {"residual_out", n->residual_out, op->dtype, all, true},
        {"norm_out", n->norm_out, op->dtype, all, true},
        {"quant_out", n->quant_out, SYMM_FLOAT8_E4M3, op->count, true}};

    memcpy(arrays, list, sizeof(list));
    for (int i = 0; i < NORM_ARRAYS; i++)
        if (!arrays[i].where.given)
            arrays[i].where.buffer = -1;
}

/* ---- Checks ------------------------------------------------------------------------ */

static symm_status refuse_array(const symm_program *program,
                                const struct norm_array *array, const char *allowed)
{
    const int buffer = array->where.buffer;

    return symm__program_refuse(program,
                                "ops[%d].norm.%s: found %s%.60s%s, allowed: %s",
                                program->op_count, array->name, buffer < 0 ? "" : "\"",
                                !array->where.given ? "nothing"
                                : buffer < 0        ? "true"
                                                    : program->buffers[buffer].name,
                                buffer < 0 ? "" : "\"", allowed);
}

static symm_status check_array(const symm_program *program,
                               const struct norm_array *array)
{
    const int index = array->where.buffer;
    const symm_program_buffer *buffer;
    char text[120];

    if (index < -1 || index >= program->buffer_count)
        return symm__program_refuse(
            program,
            "ops[%d].norm.%s: found %d, allowed: -1, or the index of a buffer, 0 to %d",
            program->op_count, array->name, index, program->buffer_count - 1);
    if (index < 0)
        return SYMM_OK;
    buffer = &program->buffers[index];
    snprintf(text, sizeof(text), "a buffer of %s of at least %zu bytes",
             symm_dtype_name(array->dtype), array->bytes);
    /* Programs without a type of 8-bit floats have them as bytes. */
    if (buffer->bytes < array->bytes ||
        (!buffer->raw && buffer->dtype != array->dtype &&
         !(array->dtype == SYMM_FLOAT8_E4M3 && symm_dtype_size(buffer->dtype) == 1)))
        return refuse_array(program, array, text);
    return SYMM_OK;
}

static symm_status check_outputs(const symm_program *program,
                                 const symm_program_norm *norm,
                                 const struct norm_array *arrays)
{
    const bool quantises = norm->quant != SYMM_NORM_QUANT_NONE;
    bool writes = false;

    for (int i = 0; i < NORM_ARRAYS; i++)
        writes = writes || (arrays[i].written && arrays[i].where.given);
    for (int i = 0; i < NORM_ARRAYS; i++) {
        const bool quant = strcmp(arrays[i].name, "quant_out") == 0 ||
                           strcmp(arrays[i].name, "scale") == 0;
        if (quant && arrays[i].where.given != quantises)
            return refuse_array(program, &arrays[i],
                                quantises ? "an array, for `quant` is not none"
                                          : "nothing, for `quant` is none");
    }
    if (!writes)
        return symm__program_refuse(program,
                                    "ops[%d].norm: found no output, allowed: sum_out, "
                                    "residual_out, norm_out or quant_out",
                                    program->op_count);
    return SYMM_OK;
}

/* The same buffer twice: each element of `in` and residual_in is read before the same element of
 * an output is written, and nothing else is promised. */
static symm_status check_places(const symm_program *program, const symm_program_op *op,
                                const struct norm_array *arrays)
{
    const size_t all = op->result;

    for (int i = 0; i < NORM_ARRAYS; i++) {
        const struct norm_array *a = &arrays[i];
        if (!a->written || a->where.buffer < 0)
            continue;
        if (a->where.buffer == op->in && a->bytes != all)
            return refuse_array(program, a, "another buffer than `in`");
        for (int k = 0; k < NORM_ARRAYS; k++) {
            const struct norm_array *b = &arrays[k];
            const bool residual = strcmp(b->name, "residual_in") == 0;
            if (k != i && b->where.buffer == a->where.buffer &&
                !(residual && a->bytes == all))
                return refuse_array(program, a,
                                    "a buffer that no other array of the call has, but "
                                    "`in` and residual_in for rows");
        }
    }
    return SYMM_OK;
}

static symm_status take_rows(const symm_program *program, symm_program_op *op)
{
    const symm_program_norm *norm = &program->norms[op->norm];
    const symm_program_buffer *in = &program->buffers[op->in];
    const symm_dtype dtype = norm->dtype ? norm->dtype : in->dtype;
    size_t elements;

    if ((dtype != SYMM_BFLOAT16 && dtype != SYMM_FLOAT16 && dtype != SYMM_FLOAT32) ||
        (!in->raw && dtype != in->dtype))
        return symm__program_refuse(
            program, "ops[%d].in: found \"%.60s\" of %s, allowed: %s",
            program->op_count, in->name, in->raw ? "bytes" : symm_dtype_name(in->dtype),
            norm->dtype ? "a buffer of the dtype of `norm`, which is bfloat16, float16 "
                          "or float32"
                        : "bfloat16, float16, float32, or bytes if `norm` has a dtype");
    op->dtype = dtype;
    elements = in->bytes / symm_dtype_size(dtype);
    if (op->count == 0)
        op->count = elements;
    if (op->count == 0 || op->count > elements || op->count % norm->hidden)
        return symm__program_refuse(
            program,
            "ops[%d].count: found %zu, allowed: whole rows of %zu elements, up to %zu",
            program->op_count, op->count, norm->hidden, elements);
    op->result = op->count * symm_dtype_size(dtype);
    return SYMM_OK;
}

/* Where an all_reduce may put the sums before the rest is done: an output that takes them, but
 * not the residual, which is still to be read. */
static int target(const symm_program_norm *norm)
{
    const symm_program_array *const outputs[] = {&norm->sum_out, &norm->norm_out,
                                                 &norm->residual_out};
    const symm_program_array *residual = &norm->residual_in;

    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++)
        if (outputs[i]->given && !(residual->given && residual->buffer >= 0 &&
                                   outputs[i]->buffer == residual->buffer))
            return outputs[i]->buffer;
    return -1;
}

symm_status symm__norm_take(const symm_program *program, symm_program_op *op)
{
    struct norm_array arrays[NORM_ARRAYS];
    symm_status status;

    if (op->norm < 0 || op->norm >= program->norm_count)
        return symm__program_refuse(
            program,
            "ops[%d].norm: found %d, allowed: an index from symm_program_add_norm",
            program->op_count, op->norm);
    op->reduce = SYMM_SUM;
    op->root = 0;
    status = take_rows(program, op);
    if (status != SYMM_OK)
        return status;
    symm__norm_list(program, op, arrays);
    /* First, as the other checks name the buffers. */
    for (int i = 0; i < NORM_ARRAYS && status == SYMM_OK; i++)
        if (arrays[i].where.given)
            status = check_array(program, &arrays[i]);
    if (status == SYMM_OK)
        status = check_outputs(program, &program->norms[op->norm], arrays);
    if (status == SYMM_OK)
        status = check_places(program, op, arrays);
    op->out = target(&program->norms[op->norm]);
    return status;
}

/* ---- Constants --------------------------------------------------------------------- */

/* By buffer: an op that declares it constant, or -1. NULL: memory is exhausted. */
static int *list_constants(const symm_program *program, struct pool *pool)
{
    int *constants =
        symm__pool_alloc(pool, (size_t)program->buffer_count + 1, sizeof(*constants));

    for (int b = 0; constants && b < program->buffer_count; b++)
        constants[b] = -1;
    for (int i = 0; constants && i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        const symm_program_norm *norm = op->norm < 0 ? NULL : &program->norms[op->norm];
        if (!norm || !norm->constant)
            continue;
        if (norm->weight.given && norm->weight.buffer >= 0)
            constants[norm->weight.buffer] = i;
        if (norm->bias.given && norm->bias.buffer >= 0)
            constants[norm->bias.buffer] = i;
    }
    return constants;
}

static symm_status check_write(const symm_program *program, const int *constants,
                               int op, int buffer)
{
    const symm_program_op *writer = &program->ops[op];
    const int norm = buffer < 0 ? -1 : constants[buffer];

    if (norm < 0)
        return SYMM_OK;
    return symm__program_refuse(
        program,
        "ops[%d] (%s%s%.60s): found a write to \"%.60s\", allowed: none, since ops[%d] "
        "(all_reduce_norm %.60s) declares it constant and may read it before this "
        "write is over; leave out `constant` there",
        op, symm_program_kind_name(writer->kind), writer->site ? " " : "",
        writer->site ? writer->site : "", program->buffers[buffer].name, norm,
        program->ops[norm].site);
}

static symm_status check_writes(const symm_program *program, const int *constants,
                                int op)
{
    const symm_program_op *writer = &program->ops[op];
    struct norm_array arrays[NORM_ARRAYS];
    symm_status status = SYMM_OK;

    if (writer->kind == SYMM_PROGRAM_WRITE)
        for (int k = 0; k < writer->buffer_count && status == SYMM_OK; k++)
            status = check_write(program, constants, op, writer->buffers[k]);
    if (writer->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
        return status == SYMM_OK ? check_write(program, constants, op, writer->out)
                                 : status;
    symm__norm_list(program, writer, arrays);
    for (int k = 0; k < NORM_ARRAYS && status == SYMM_OK; k++)
        if (arrays[k].written)
            status = check_write(program, constants, op, arrays[k].where.buffer);
    return status;
}

symm_status symm__norm_check_constant(const symm_program *program)
{
    struct pool pool = {0};
    symm_status status = SYMM_OK;
    const int *constants;

    if (program->norm_count == 0)
        return SYMM_OK;
    constants = list_constants(program, &pool);
    if (!constants)
        status = symm__program_nomem(program);
    for (int i = 0; i < program->op_count && status == SYMM_OK; i++)
        status = check_writes(program, constants, i);
    symm__pool_free(&pool);
    return status;
}
