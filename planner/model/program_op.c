/* SPDX-License-Identifier: MIT */
/*
 * program_op.c - the ops of a program: each is checked when added, all by the finish.
 *
 * Guarantees: of an op that was added every index is in range, every output large enough,
 * every derived field set. symm_program_finish finds each wait's put and an order in which
 * one thread can issue all ops: of the ops that can go next, the first of the list.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/program_private.h"
#include "symm/device.h"
#include "util/dtype.h"
#include "util/status.h"
#include "util/text.h"

struct adding {
    symm_program *program;
    symm_program_op op; /* in the making */
};

/* Of a field: "found ..., allowed: ...". */
__attribute__((format(printf, 3, 4))) static symm_status
refuse(const struct adding *at, const char *field, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return symm__program_refuse(at->program, "ops[%d].%s: %s", at->program->op_count,
                                field, text);
}

static symm_status check_index(const struct adding *at, const char *field, int index,
                               int count, const char *what)
{
    if (index >= 0 && index < count)
        return SYMM_OK;
    return refuse(at, field, "found %d, allowed: the index of a %s, 0 to %d", index,
                  what, count - 1);
}

static symm_status check_buffer(const struct adding *at, const char *field, int index)
{
    return check_index(at, field, index, at->program->buffer_count, "buffer");
}

static symm_status take_site(struct adding *at)
{
    struct program_private *private = (struct program_private *)at->program;
    const bool wait = at->op.kind == SYMM_PROGRAM_WAIT;

    if (!at->op.site || !*at->op.site)
        return refuse(at, "site", "found no site, allowed: a name that is not empty");
    if (!symm__is_utf8(at->op.site)) /* no JSON has it */
        return refuse(at, "site", "found a name that is no UTF-8, allowed: UTF-8");
    if (symm__names_find(wait ? &private->waits : &private->sites, at->op.site) >= 0)
        return refuse(at, "site", "found \"%.100s\", allowed: %s", at->op.site,
                      wait ? "the site of a put that no other op waits for"
                           : "a name not used before");
    at->op.site = symm__pool_copy(&private->pool, at->op.site);
    return at->op.site ? SYMM_OK : symm__program_nomem(at->program);
}

/* ---- Kinds ----------------------------------------------------------------------- */

static symm_status take_local(struct adding *at)
{
    struct program_private *private = (struct program_private *)at->program;
    const int *given = at->op.buffers;
    int *copy;

    if (at->op.buffer_count < 1 || !given)
        return refuse(at, "buffers", "found none, allowed: a list of buffers");
    copy = symm__pool_alloc(&private->pool, (size_t)at->op.buffer_count, sizeof(*copy));
    if (!copy)
        return symm__program_nomem(at->program);
    for (int i = 0; i < at->op.buffer_count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "buffers[%d]", i);
        symm_status status = check_buffer(at, name, given[i]);
        if (status != SYMM_OK)
            return status;
        copy[i] = given[i];
    }
    at->op.buffers = copy;
    return SYMM_OK;
}

static symm_status take_count(struct adding *at)
{
    const size_t elements = at->program->buffers[at->op.in].elements;
    const size_t length = (size_t)at->program->partitions[at->op.partition].length;
    const bool split = at->op.kind == SYMM_PROGRAM_REDUCE_SCATTER ||
                       at->op.kind == SYMM_PROGRAM_ALL_TO_ALL;

    if (at->op.count == 0)
        at->op.count = elements;
    if (at->op.count > elements)
        return refuse(at, "count", "found %zu, allowed: an integer from 1 to %zu",
                      at->op.count, elements);
    if (split && at->op.count % length)
        return refuse(at, "count",
                      "found %zu, allowed: a multiple of the group's %zu ranks",
                      at->op.count, length);
    return SYMM_OK;
}

static symm_status take_out(struct adding *at)
{
    const symm_program_buffer *in = &at->program->buffers[at->op.in], *out;
    size_t elements = at->op.count;
    const size_t length = (size_t)at->program->partitions[at->op.partition].length;
    bool fits = true;

    if (at->op.kind == SYMM_PROGRAM_REDUCE_SCATTER)
        elements /= length;
    if (at->op.kind == SYMM_PROGRAM_ALL_GATHER)
        fits = !__builtin_mul_overflow(elements, length, &elements);
    if (!fits ||
        __builtin_mul_overflow(elements, symm_dtype_size(in->dtype), &at->op.result))
        return refuse(at, "count",
                      "found a larger result, allowed: a result that fits 64 bits");
    if (at->op.out == -1)
        return SYMM_OK;
    symm_status status = check_buffer(at, "out", at->op.out);
    if (status != SYMM_OK)
        return status;
    out = &at->program->buffers[at->op.out];
    /* In place a rank's block is its own place in the result: not where `in` begins. */
    if (at->op.kind == SYMM_PROGRAM_ALL_GATHER && at->op.out == at->op.in && length > 1)
        return refuse(
            at, "out",
            "found \"%.60s\", allowed: another buffer than `in` of an all_gather",
            out->name);
    if (out->bytes < at->op.result)
        return refuse(
            at, "out",
            "found \"%.60s\" of %zu bytes, allowed: a buffer of at least %zu bytes",
            out->name, out->bytes, at->op.result);
    if (!out->raw && !in->raw && out->dtype != in->dtype)
        return refuse(
            at, "out", "found \"%.60s\" of %s, allowed: a buffer of %s, as `in`",
            out->name, symm_dtype_name(out->dtype), symm_dtype_name(in->dtype));
    return SYMM_OK;
}

static symm_status take_collective(struct adding *at)
{
    const symm_program *program = at->program;
    symm_status status = take_site(at);

    if (status == SYMM_OK)
        status = check_index(at, "group", at->op.partition, program->partition_count,
                             "group");
    if (status == SYMM_OK)
        status = check_buffer(at, "in", at->op.in);
    if (status != SYMM_OK)
        return status;
    if (at->op.kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return symm__norm_take(program, &at->op);
    at->op.dtype = program->buffers[at->op.in].dtype;
    if (!symm__is_reduction(at->op.kind))
        at->op.reduce = SYMM_SUM;
    if (!symm_op_name(at->op.reduce))
        return refuse(at, "reduce", "found %d, allowed: %s", (int)at->op.reduce,
                      symm__op_names(at->op.dtype));
    if (!symm__op_takes(at->op.reduce, at->op.dtype))
        return refuse(at, "reduce", "found \"%s\" of %s, allowed: %s",
                      symm_op_name(at->op.reduce), symm_dtype_name(at->op.dtype),
                      symm__op_names(at->op.dtype));
    if (at->op.kind != SYMM_PROGRAM_BROADCAST)
        at->op.root = 0;
    if (at->op.root < 0 || at->op.root >= program->partitions[at->op.partition].length)
        return refuse(at, "root", "found %d, allowed: an integer from 0 to %d",
                      at->op.root, program->partitions[at->op.partition].length - 1);
    status = take_count(at);
    return status == SYMM_OK ? take_out(at) : status;
}

static symm_status take_put(struct adding *at)
{
    const symm_program *program = at->program;
    const symm_program_buffer *src, *dst;
    symm_status status = take_site(at);

    if (status == SYMM_OK)
        status = check_index(at, "group", at->op.partition, program->partition_count,
                             "group");
    if (status == SYMM_OK)
        status = check_buffer(at, "src", at->op.in);
    if (status == SYMM_OK)
        status = check_buffer(at, "dst", at->op.out);
    if (status != SYMM_OK)
        return status;
    src = &program->buffers[at->op.in];
    dst = &program->buffers[at->op.out];
    if (dst->bytes < src->bytes)
        return refuse(at, "dst",
                      "found \"%.60s\" of %zu bytes, allowed: a buffer of at least %zu "
                      "bytes, as src",
                      dst->name, dst->bytes, src->bytes);
    if (at->op.shift < -SYMM_PROGRAM_MAX_WORLD || at->op.shift > SYMM_PROGRAM_MAX_WORLD)
        return refuse(at, "shift", "found %d, allowed: an integer from -%d to %d",
                      at->op.shift, SYMM_PROGRAM_MAX_WORLD, SYMM_PROGRAM_MAX_WORLD);
    int length = program->partitions[at->op.partition].length;
    at->op.shift = (at->op.shift % length + length) % length;
    at->op.count = at->op.result = src->bytes;
    at->op.dtype = src->dtype;
    return SYMM_OK;
}

static symm_status take_fields(struct adding *at)
{
    switch (at->op.kind) {
    case SYMM_PROGRAM_WRITE:
    case SYMM_PROGRAM_READ:
        return take_local(at);
    case SYMM_PROGRAM_PUT:
        return take_put(at);
    case SYMM_PROGRAM_WAIT:
        return take_site(at);
    case SYMM_PROGRAM_DEPEND:
        return check_index(at, "on", at->op.on, at->program->stream_count, "stream");
    default:
        return take_collective(at);
    }
}

/* Fields that a kind does not have get their neutral values. */
static symm_program_op neutral(const symm_program_op *given)
{
    symm_program_op op = {.size = sizeof(op),
                          .kind = given->kind,
                          .stream = given->stream,
                          .early_start = given->early_start,
                          .in = -1,
                          .out = -1,
                          .put = -1,
                          .on = -1,
                          .norm = -1};
    const bool local =
        given->kind == SYMM_PROGRAM_WRITE || given->kind == SYMM_PROGRAM_READ;

    if (local) {
        op.buffers = given->buffers;
        op.buffer_count = given->buffer_count;
    } else if (given->kind == SYMM_PROGRAM_DEPEND) {
        op.on = given->on;
    } else if (given->kind == SYMM_PROGRAM_WAIT) {
        op.site = given->site;
    } else {
        op.site = given->site;
        op.partition = given->partition;
        op.in = given->in;
        op.out = given->out;
        op.count = given->count;
        op.reduce = given->reduce;
        op.root = given->root;
        op.shift = given->kind == SYMM_PROGRAM_PUT ? given->shift : 0;
        op.up_to = given->up_to;
        if (given->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
            op.norm = given->norm;
    }
    return op;
}

symm_status symm_program_add_op(symm_program *program, const symm_program_op *op)
{
    struct program_private *private = (struct program_private *)program;
    struct adding at = {.program = program};
    symm_status status;
    int stream;

    if (!program || !op)
        return symm__fail_null("symm_program_add_op", program ? "op" : "program");
    if (op->size != sizeof(*op))
        return refuse(&at, "size", "found %zu, allowed: %zu", op->size, sizeof(*op));
    if (!symm_program_kind_name(op->kind))
        return refuse(&at, "op",
                      "found %d, allowed: write read all_reduce reduce_scatter "
                      "all_gather broadcast all_to_all put wait depend "
                      "all_reduce_norm",
                      (int)op->kind);
    if (program->op_count == SYMM_PROGRAM_MAX_OPS)
        return symm__program_refuse(program, "ops: found one more, allowed: %d ops",
                                    SYMM_PROGRAM_MAX_OPS);
    if (program->stream_count == 0) {
        status = symm_program_add_stream(program, "main", &stream);
        if (status != SYMM_OK)
            return status;
    }
    at.op = neutral(op);
    status = check_index(&at, "stream", at.op.stream, program->stream_count, "stream");
    if (status == SYMM_OK)
        status = take_fields(&at);
    if (status != SYMM_OK)
        return status;
    if (!symm__grow((void **)&program->ops, program->op_count, &private->op_room,
                    sizeof(*program->ops)))
        return symm__program_nomem(program);
    if (at.op.site &&
        !symm__names_add(at.op.kind == SYMM_PROGRAM_WAIT ? &private->waits
                                                         : &private->sites,
                         at.op.site, program->op_count))
        return symm__program_nomem(program);
    if (at.op.kind == SYMM_PROGRAM_PUT)
        at.op.signal = private->puts++ % SYMM_SIGNALS;
    program->ops[program->op_count++] = at.op;
    program->order = NULL;
    private->hashed = false;
    return SYMM_OK;
}

/* ---- The whole ------------------------------------------------------------------- */

static symm_status find_put(symm_program *program, int index)
{
    symm_program_op *op = &program->ops[index];

    op->put = symm__names_find(&((struct program_private *)program)->sites, op->site);
    if (op->put >= 0 && program->ops[op->put].kind != SYMM_PROGRAM_PUT)
        op->put = -1;
    if (op->put < 0)
        return symm__program_refuse(
            program, "ops[%d].site: found \"%.100s\", allowed: the site of a put",
            index, op->site);
    op->partition = program->ops[op->put].partition;
    op->signal = program->ops[op->put].signal;
    return SYMM_OK;
}

struct sorter {
    const symm_program *program;
    int next
        [SYMM_PROGRAM_MAX_STREAMS]; /* by stream: first op not placed, or op_count */
    bool *placed;
};

static int next_of_stream(const symm_program *program, int stream, int from)
{
    while (from < program->op_count && program->ops[from].stream != stream)
        from++;
    return from;
}

static bool can_go(const struct sorter *sorter, int index)
{
    const symm_program_op *op = &sorter->program->ops[index];

    if (op->kind == SYMM_PROGRAM_WAIT)
        return sorter->placed[op->put];
    if (op->kind == SYMM_PROGRAM_DEPEND && op->on != op->stream)
        return sorter->next[op->on] > index;
    return true;
}

/* The first op that can go, or -1; *stuck is then the first that is left. */
static int choose_next(const struct sorter *sorter, int *stuck)
{
    const symm_program *program = sorter->program;
    int best = -1;

    *stuck = program->op_count;
    for (int s = 0; s < program->stream_count; s++) {
        int index = sorter->next[s];
        if (index == program->op_count)
            continue;
        if (index < *stuck)
            *stuck = index;
        if ((best < 0 || index < best) && can_go(sorter, index))
            best = index;
    }
    return best;
}

static symm_status sort_ops(const symm_program *program, int *order)
{
    struct sorter sorter = {.program = program};
    symm_status status = SYMM_OK;
    int stuck;

    sorter.placed = calloc((size_t)program->op_count + 1, sizeof(*sorter.placed));
    if (!sorter.placed)
        return symm__program_nomem(program);
    for (int s = 0; s < program->stream_count; s++)
        sorter.next[s] = next_of_stream(program, s, 0);
    for (int i = 0; i < program->op_count; i++) {
        int index = choose_next(&sorter, &stuck);
        if (index < 0) {
            status = symm__program_refuse(
                program,
                "ops[%d]: found an op that can never run (%s), allowed: a wait whose "
                "put can come before it",
                stuck, symm_program_kind_name(program->ops[stuck].kind));
            break;
        }
        order[i] = index;
        sorter.placed[index] = true;
        int stream = program->ops[index].stream;
        sorter.next[stream] = next_of_stream(program, stream, index + 1);
    }
    free(sorter.placed);
    return status;
}

symm_status symm_program_finish(symm_program *program)
{
    struct program_private *private = (struct program_private *)program;
    symm_status status;
    int *order, stream;

    if (!program)
        return symm__fail_null("symm_program_finish", "program");
    if (program->size != sizeof(*program))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_program_finish: the program's size is %zu, this library's "
            "is %zu; give one that symm_program_create or "
            "symm_program_read made",
            program->size, sizeof(*program));
    if (program->order)
        return SYMM_OK;
    if (program->stream_count == 0) {
        status = symm_program_add_stream(program, "main", &stream);
        if (status != SYMM_OK)
            return status;
    }
    for (int i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != SYMM_PROGRAM_WAIT)
            continue;
        status = find_put(program, i);
        if (status != SYMM_OK)
            return status;
    }
    status = symm__program_check_ids(program);
    if (status == SYMM_OK)
        status = symm__norm_check_constant(program);
    if (status != SYMM_OK)
        return status;
    order =
        symm__pool_alloc(&private->pool, (size_t)program->op_count + 1, sizeof(*order));
    if (!order)
        return symm__program_nomem(program);
    status = sort_ops(program, order);
    if (status == SYMM_OK)
        program->order = order;
    return status;
}
