/* SPDX-License-Identifier: MIT */
/*
 * program_ops.c - reads and checks the ops of a symm-program/1 file.
 *
 * Sizes are checked here once for all: a collective's result fits its `out`, a put's
 * source fits its `dst`, so that whoever runs the program need not ask again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/program_read.h"

static const char *const kind_names[PROGRAM_KINDS] = {
    "write",     "read",       "all_reduce", "reduce_scatter", "all_gather",
    "broadcast", "all_to_all", "put",        "wait",           "depend"};

const char *program_kind_name(enum program_kind kind)
{
    return kind_names[kind];
}

int program__find_stream(const struct program *program, const char *name)
{
    for (int i = 0; i < program->stream_count; i++)
        if (strcmp(program->streams[i], name) == 0)
            return i;
    return -1;
}

int program__find_group(const struct program *program, const char *name)
{
    for (int i = 0; i < program->group_count; i++)
        if (strcmp(program->groups[i].name, name) == 0)
            return i;
    return -1;
}

int program__find_buffer(const struct program *program, const char *name)
{
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].name && strcmp(program->buffers[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- Fields that several kinds have ---------------------------------------------- */

struct op_reader {
    struct program_reader *reader;
    const json_t *object;
    struct program_op *op;
    size_t index;
    char path[PROGRAM_PATH]; /* of the field in hand */
};

static const json_t *field(struct op_reader *at, const char *name)
{
    program__path(at->path, "ops[%zu].%s", at->index, name);
    return json_object_get(at->object, name);
}

/* An index by name; absent: `fallback`, or a complaint if that is -1. */
static int named(struct op_reader *at, const char *name, const char *what,
                 int (*find)(const struct program *program, const char *name),
                 int fallback, int *index)
{
    const json_t *value = field(at, name);
    int found = -1;

    if (!value && fallback >= 0) {
        *index = fallback;
        return 0;
    }
    if (json_is_string(value))
        found = find(at->reader->program, json_string_value(value));
    if (found < 0)
        return program__refuse(at->reader, at->path, value, "the name of a %s", what);
    *index = found;
    return 0;
}

static int read_site(struct op_reader *at)
{
    const json_t *value = field(at, "site");
    const struct program *program = at->reader->program;

    if (program__text(at->reader, at->path, value, &at->op->site))
        return -1;
    for (size_t i = 0; i < at->index; i++)
        if (program->ops[i].site && program->ops[i].kind != PROGRAM_WAIT &&
            strcmp(program->ops[i].site, at->op->site) == 0)
            return program__refuse(at->reader, at->path, value,
                                   "a name not used before");
    return 0;
}

static int read_buffer_list(struct op_reader *at)
{
    const json_t *list = field(at, "buffers");
    size_t count = json_array_size(list);

    if (!json_is_array(list) || count < 1)
        return program__refuse(at->reader, at->path, list,
                               "a list of names of buffers");
    at->op->buffers = calloc(count, sizeof *at->op->buffers);
    if (!at->op->buffers)
        return program__no_memory(at->reader);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        int found = -1;
        if (json_is_string(item))
            found = program__find_buffer(at->reader->program, json_string_value(item));
        program__path(at->path, "ops[%zu].buffers[%zu]", at->index, i);
        if (found < 0)
            return program__refuse(at->reader, at->path, item, "the name of a buffer");
        at->op->buffers[i] = found;
    }
    at->op->buffer_count = (int)count;
    return 0;
}

/* ---- Collectives ----------------------------------------------------------------- */

static int group_length(const struct op_reader *at)
{
    return at->reader->program->groups[at->op->group].length;
}

static int read_count(struct op_reader *at)
{
    const struct program_buffer *in = &at->reader->program->buffers[at->op->in];
    const json_t *value = field(at, "count");
    int64_t count = 0;
    bool split =
        at->op->kind == PROGRAM_REDUCE_SCATTER || at->op->kind == PROGRAM_ALL_TO_ALL;

    at->op->count = in->elements;
    if (value) {
        if (program__integer(at->reader, at->path, value, 1, (int64_t)in->elements,
                             &count))
            return -1;
        at->op->count = (size_t)count;
    }
    if (split && at->op->count % (size_t)group_length(at))
        return program__refuse(at->reader, at->path, value,
                               "a multiple of the group's %d ranks (it is %zu)",
                               group_length(at), at->op->count);
    return 0;
}

static int read_reduce(struct op_reader *at)
{
    const json_t *value = field(at, "reduce");

    at->op->reduce = SYMM_SUM;
    if (!value)
        return 0;
    if (!json_is_string(value) ||
        symm_op_parse(json_string_value(value), &at->op->reduce))
        return program__refuse(at->reader, at->path, value, "sum avg prod min max");
    return 0;
}

static int read_root_rank(struct op_reader *at)
{
    const json_t *value = field(at, "root");
    int64_t root = 0;

    if (value &&
        program__integer(at->reader, at->path, value, 0, group_length(at) - 1, &root))
        return -1;
    at->op->root = (int)root;
    return 0;
}

static int read_out(struct op_reader *at)
{
    const struct program *program = at->reader->program;
    struct program_op *op = at->op;
    const struct program_buffer *in = &program->buffers[op->in], *out;
    size_t elements = op->count, length = (size_t)group_length(at);

    if (op->kind == PROGRAM_REDUCE_SCATTER)
        elements /= length;
    if (op->kind == PROGRAM_ALL_GATHER &&
        __builtin_mul_overflow(elements, length, &elements))
        return program__refuse(at->reader, at->path, NULL,
                               "a result that fits 64 bits");
    if (__builtin_mul_overflow(elements, symm_dtype_size(op->dtype), &op->result))
        return program__refuse(at->reader, at->path, NULL,
                               "a result that fits 64 bits");
    op->out = -1;
    if (!field(at, "out"))
        return 0;
    if (named(at, "out", "buffer", program__find_buffer, -1, &op->out))
        return -1;
    out = &program->buffers[op->out];
    /* In place a rank's block is its own place in the result: not where `in` begins. */
    if (op->kind == PROGRAM_ALL_GATHER && op->out == op->in && length > 1)
        return program__refuse(at->reader, at->path, field(at, "out"),
                               "another buffer than `in` of an all_gather");
    if (out->bytes < op->result)
        return program__refuse(at->reader, at->path, field(at, "out"),
                               "a buffer of at least %zu bytes (it has %zu)",
                               op->result, out->bytes);
    if (!out->raw && !in->raw && out->dtype != in->dtype)
        return program__refuse(at->reader, at->path, field(at, "out"),
                               "a buffer of %s, as `in` (it is %s)",
                               symm_dtype_name(in->dtype), symm_dtype_name(out->dtype));
    return 0;
}

static int read_collective(struct op_reader *at)
{
    struct program_op *op = at->op;

    if (read_site(at) ||
        named(at, "group", "group", program__find_group, 0, &op->group) ||
        named(at, "in", "buffer", program__find_buffer, -1, &op->in))
        return -1;
    op->dtype = at->reader->program->buffers[op->in].dtype;
    if (op->kind == PROGRAM_ALL_REDUCE || op->kind == PROGRAM_REDUCE_SCATTER)
        if (read_reduce(at))
            return -1;
    if (op->kind == PROGRAM_BROADCAST && read_root_rank(at))
        return -1;
    return read_count(at) || read_out(at) ? -1 : 0;
}

/* ---- One-sided, and the order between streams ------------------------------------ */

static int read_put(struct op_reader *at)
{
    const struct program *program = at->reader->program;
    struct program_op *op = at->op;
    int64_t shift = 0;

    if (read_site(at) ||
        named(at, "group", "group", program__find_group, 0, &op->group) ||
        named(at, "src", "buffer", program__find_buffer, -1, &op->in) ||
        named(at, "dst", "buffer", program__find_buffer, -1, &op->out))
        return -1;
    if (program->buffers[op->out].bytes < program->buffers[op->in].bytes)
        return program__refuse(at->reader, at->path, field(at, "dst"),
                               "a buffer of at least %zu bytes, as src (it has %zu)",
                               program->buffers[op->in].bytes,
                               program->buffers[op->out].bytes);
    if (program__integer(at->reader, at->path, field(at, "shift"), -PROGRAM_MAX_WORLD,
                         PROGRAM_MAX_WORLD, &shift))
        return -1;
    int length = group_length(at);
    op->shift = (int)((shift % length + length) % length);
    if (op->in == op->out && op->shift != 0)
        return program__refuse(
            at->reader, at->path, field(at, "dst"),
            "another buffer than src, for a peer would overwrite what "
            "is still to be sent");
    op->count = op->result = program->buffers[op->in].bytes;
    op->dtype = program->buffers[op->in].dtype;
    op->signal = at->reader->puts++ % 256;
    return 0;
}

static int read_wait(struct op_reader *at)
{
    const json_t *value = field(at, "site");

    if (program__text(at->reader, at->path, value, &at->op->site))
        return -1;
    for (size_t i = 0; i < at->index; i++)
        if (at->reader->program->ops[i].kind == PROGRAM_WAIT &&
            strcmp(at->reader->program->ops[i].site, at->op->site) == 0)
            return program__refuse(at->reader, at->path, value,
                                   "the site of a put that no other op waits for");
    return 0;
}

/* A wait may stand before its put in the list, so this comes after all are read. */
static int find_puts(struct program_reader *reader, const json_t *list)
{
    struct program *program = reader->program;
    char path[PROGRAM_PATH];

    for (int i = 0; i < program->op_count; i++) {
        struct program_op *op = &program->ops[i];
        if (op->kind != PROGRAM_WAIT)
            continue;
        op->put = -1;
        for (int k = 0; k < program->op_count; k++)
            if (program->ops[k].kind == PROGRAM_PUT &&
                strcmp(program->ops[k].site, op->site) == 0)
                op->put = k;
        program__path(path, "ops[%d].site", i);
        if (op->put < 0)
            return program__refuse(
                reader, path, json_object_get(json_array_get(list, (size_t)i), "site"),
                "the site of a put");
        op->group = program->ops[op->put].group;
    }
    return 0;
}

/* Checked, but of no use here: every op is ordered after all before it on its stream. */
static int read_early_start(struct op_reader *at)
{
    const json_t *value = field(at, "early_start");

    if (value && !json_is_boolean(value))
        return program__refuse(at->reader, at->path, value, "true or false");
    return 0;
}

static int read_op(struct program_reader *reader, size_t index, const json_t *object)
{
    struct op_reader at = {.reader = reader,
                           .object = object,
                           .op = &reader->program->ops[index],
                           .index = index};
    const json_t *name;
    int kind = 0;

    program__path(at.path, "ops[%zu]", index);
    if (!json_is_object(object))
        return program__refuse(reader, at.path, object, "an object");
    name = field(&at, "op");
    while (kind < PROGRAM_KINDS &&
           (!json_is_string(name) ||
            strcmp(json_string_value(name), kind_names[kind]) != 0))
        kind++;
    if (kind == PROGRAM_KINDS)
        return program__refuse(
            reader, at.path, name,
            "write read all_reduce reduce_scatter all_gather broadcast "
            "all_to_all put wait depend");
    at.op->kind = (enum program_kind)kind;
    at.op->in = at.op->out = at.op->put = -1;
    reader->program->op_count++;
    if (named(&at, "stream", "stream", program__find_stream, 0, &at.op->stream) ||
        read_early_start(&at))
        return -1;
    switch (at.op->kind) {
    case PROGRAM_WRITE:
    case PROGRAM_READ:
        return read_buffer_list(&at);
    case PROGRAM_PUT:
        return read_put(&at);
    case PROGRAM_WAIT:
        return read_wait(&at);
    case PROGRAM_DEPEND:
        return named(&at, "on", "stream", program__find_stream, -1, &at.op->on);
    default:
        return read_collective(&at);
    }
}

int program__read_ops(struct program_reader *reader, const json_t *root)
{
    struct program *program = reader->program;
    const json_t *list = json_object_get(root, "ops");
    size_t count = json_array_size(list);
    char path[PROGRAM_PATH];
    int stuck;

    if (!json_is_array(list) || count > 1000000)
        return program__refuse(reader, "ops", list, "a list of ops");
    program->ops = calloc(count + 1, sizeof *program->ops);
    program->order = calloc(count + 1, sizeof *program->order);
    if (!program->ops || !program->order)
        return program__no_memory(reader);
    for (size_t i = 0; i < count; i++)
        if (read_op(reader, i, json_array_get(list, i)))
            return -1;
    if (find_puts(reader, list))
        return -1;
    switch (program_sort(program, &stuck)) {
    case 0:
        return program__check_limits(reader);
    case -1:
        program__path(path, "ops[%d]", stuck);
        return program__refuse(reader, path, json_array_get(list, (size_t)stuck),
                               "a wait whose put can come before it");
    default:
        return program__no_memory(reader);
    }
}
