/* SPDX-License-Identifier: MIT */
/*
 * program_json.c - reads a symm-program/1 document by way of the builder.
 *
 * This file checks types and resolves names; what fits together, the builder checks, whose
 * complaints name the same places. Unknown members are ignored.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_read.h"
#include "model/program_private.h"
#include "util/status.h"

struct reading {
    struct json_reader json;
    symm_program *program;
};

/* ---- Streams, groups --------------------------------------------------------------- */

static symm_status read_streams(struct reading *at, const json_t *root)
{
    const json_t *list = symm__json_at(&at->json, root, "streams");
    symm_status status = SYMM_OK;
    int stream;

    if (!list)
        return symm_program_add_stream(at->program, "main", &stream);
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > SYMM_PROGRAM_MAX_STREAMS)
        return symm__json_refuse(&at->json, list, "a list of 1 to %d names",
                                 SYMM_PROGRAM_MAX_STREAMS);
    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++) {
        const char *name;
        const json_t *item = symm__json_at(&at->json, list, "streams[%zu]", i);
        status = symm__json_name(&at->json, item, &name);
        if (status == SYMM_OK)
            status = symm_program_add_stream(at->program, name, &stream);
    }
    return status;
}

static symm_status read_lists(struct reading *at, const char *name, const json_t *lists,
                              int *ranks)
{
    const size_t length = json_array_size(json_array_get(lists, 0));
    const int world = at->program->world;

    for (size_t l = 0; l < json_array_size(lists); l++) {
        const json_t *list =
            symm__json_at(&at->json, lists, "groups.%.40s[%zu]", name, l);
        if (!json_is_array(list) || json_array_size(list) != length)
            return symm__json_refuse(&at->json, list,
                                     "a list of %zu ranks, as the first one", length);
        for (size_t i = 0; i < length; i++) {
            int64_t rank = 0;
            const json_t *item =
                symm__json_at(&at->json, list, "groups.%.40s[%zu][%zu]", name, l, i);
            symm_status status =
                symm__json_integer(&at->json, item, 0, world - 1, &rank);
            if (status != SYMM_OK)
                return status;
            ranks[l * length + i] = (int)rank;
        }
    }
    return SYMM_OK;
}

static symm_status read_group(struct reading *at, const char *name, const json_t *lists)
{
    const size_t count = json_array_size(lists);
    const size_t length = json_array_size(json_array_get(lists, 0));
    int ranks[SYMM_PROGRAM_MAX_WORLD], group;
    symm_status status;

    snprintf(at->json.path, sizeof(at->json.path), "groups.%.40s", name);
    if (!*name || strcmp(name, "world") == 0)
        return symm__json_refuse(&at->json, lists, "a name, other than \"world\"");
    if (length < 1 || count > SYMM_PROGRAM_MAX_WORLD ||
        length > SYMM_PROGRAM_MAX_WORLD || count * length != (size_t)at->program->world)
        return symm__json_refuse(
            &at->json, lists,
            "lists of equal length that hold each of the %d ranks once",
            at->program->world);
    status = read_lists(at, name, lists, ranks);
    if (status != SYMM_OK)
        return status;
    return symm_program_add_group(at->program, name, (int)count, (int)length, ranks,
                                  &group);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In the order of their names, so that the order of members in the file means nothing. */
static symm_status read_groups(struct reading *at, const json_t *root)
{
    const json_t *groups = symm__json_at(&at->json, root, "groups");
    const char **names;
    size_t count = 0;
    symm_status status = SYMM_OK;

    if (!groups)
        return SYMM_OK;
    if (!json_is_object(groups))
        return symm__json_refuse(&at->json, groups, "an object of names and lists");
    names = calloc(json_object_size(groups) + 1, sizeof(*names));
    if (!names)
        return symm__program_nomem(at->program);
    for (void *i = json_object_iter((json_t *)(uintptr_t)groups); i;
         i = json_object_iter_next((json_t *)(uintptr_t)groups, i))
        names[count++] = json_object_iter_key(i);
    qsort(names, count, sizeof(*names), by_name);
    for (size_t i = 0; i < count && status == SYMM_OK; i++)
        status = read_group(at, names[i], json_object_get(groups, names[i]));
    free(names);
    return status;
}

/* ---- Buffers --------------------------------------------------------------------- */

static symm_status read_dims(struct reading *at, size_t index, const char *member,
                             const json_t *list, int64_t least, int64_t *numbers)
{
    symm_status status = SYMM_OK;

    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++) {
        const json_t *item =
            symm__json_at(&at->json, list, "buffers[%zu].%s[%zu]", index, member, i);
        status = symm__json_integer(&at->json, item, least, INT64_MAX, &numbers[i]);
    }
    return status;
}

static symm_status read_shape(struct reading *at, size_t index, const json_t *object,
                              const char *name, symm_dtype dtype)
{
    int64_t shape[SYMM_PROGRAM_MAX_DIMS], stride[SYMM_PROGRAM_MAX_DIMS];
    const json_t *sizes = symm__json_at(&at->json, object, "buffers[%zu].shape", index);
    const json_t *steps;
    size_t dims = json_array_size(sizes);
    symm_status status;
    int buffer;

    if (!json_is_array(sizes) || dims > SYMM_PROGRAM_MAX_DIMS)
        return symm__json_refuse(&at->json, sizes,
                                 "a list of 0 to %d sizes, or \"bytes\"",
                                 SYMM_PROGRAM_MAX_DIMS);
    status = read_dims(at, index, "shape", sizes, 1, shape);
    if (status != SYMM_OK)
        return status;
    steps = symm__json_at(&at->json, object, "buffers[%zu].stride", index);
    if (steps) {
        if (!json_is_array(steps) || json_array_size(steps) != dims)
            return symm__json_refuse(&at->json, steps,
                                     "a list as long as the shape, %zu", dims);
        status = read_dims(at, index, "stride", steps, 0, stride);
        if (status != SYMM_OK)
            return status;
    }
    return symm_program_add_buffer(at->program, name, dtype, (int)dims, shape,
                                   steps ? stride : NULL, &buffer);
}

static symm_status read_bytes(struct reading *at, const json_t *value, const char *name,
                              const symm_dtype *dtype)
{
    int64_t bytes = 0, elements;
    size_t element = dtype ? symm_dtype_size(*dtype) : 1;
    int buffer;
    symm_status status = symm__json_integer(&at->json, value, 1, INT64_MAX / 4, &bytes);

    if (status != SYMM_OK)
        return status;
    if ((size_t)bytes % element)
        return symm__json_refuse(&at->json, value,
                                 "a multiple of the dtype's %zu bytes", element);
    if (!dtype)
        return symm_program_add_bytes(at->program, name, (size_t)bytes, &buffer);
    elements = bytes / (int64_t)element;
    return symm_program_add_buffer(at->program, name, *dtype, 1, &elements, NULL,
                                   &buffer);
}

static symm_status read_buffer(struct reading *at, size_t index, const json_t *object)
{
    const json_t *dtype, *bytes;
    symm_dtype type = SYMM_UINT8;
    const char *name;
    symm_status status;

    if (!json_is_object(object))
        return symm__json_refuse(&at->json, object, "an object");
    status = symm__json_name(
        &at->json, symm__json_at(&at->json, object, "buffers[%zu].name", index), &name);
    if (status != SYMM_OK)
        return status;
    bytes = json_object_get(object, "bytes");
    dtype = symm__json_at(&at->json, object, "buffers[%zu].dtype", index);
    if ((dtype || !bytes) &&
        (!json_is_string(dtype) || symm_dtype_parse(json_string_value(dtype), &type)))
        return symm__json_refuse(
            &at->json, dtype,
            "float64 float32 float16 bfloat16 float8_e4m3 float8_e5m2 "
            "int64 int32 int8 uint64 uint32 uint8");
    symm__json_at(&at->json, object, "buffers[%zu].bytes", index);
    if (bytes && json_object_get(object, "shape"))
        return symm__json_refuse(&at->json, bytes, "shape or bytes, not both");
    if (bytes)
        return read_bytes(at, bytes, name, dtype ? &type : NULL);
    return read_shape(at, index, object, name, type);
}

static symm_status read_buffers(struct reading *at, const json_t *root)
{
    const json_t *list = symm__json_at(&at->json, root, "buffers");
    symm_status status = SYMM_OK;

    if (!json_is_array(list))
        return symm__json_refuse(&at->json, list, "a list of buffers");
    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++)
        status = read_buffer(at, i, symm__json_at(&at->json, list, "buffers[%zu]", i));
    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++) {
        const json_t *id = symm__json_at(&at->json, json_array_get(list, i),
                                         "buffers[%zu].alloc_id", i);
        uint64_t number;

        if (!id)
            continue;
        status = symm__json_id(&at->json, id, &number);
        if (status == SYMM_OK)
            status = symm_program_set_alloc_id(at->program, (int)i, number);
    }
    return status;
}

/* ---- Ops ------------------------------------------------------------------------- */

struct reading_op {
    struct reading *at;
    const json_t *object;
    size_t index;
    symm_program_op op;
};

static const json_t *member(struct reading_op *op, const char *name)
{
    return symm__json_at(&op->at->json, op->object, "ops[%zu].%s", op->index, name);
}

/* An index by name; absent: `fallback`, or a complaint if that is below -1. */
static symm_status named(struct reading_op *op, const char *name, const char *what,
                         int (*find)(const symm_program *program, const char *name),
                         int fallback, int *index)
{
    const json_t *value = member(op, name);
    int found = -1;

    if (!value && fallback >= -1) {
        *index = fallback;
        return SYMM_OK;
    }
    if (json_is_string(value))
        found = find(op->at->program, json_string_value(value));
    if (found < 0)
        return symm__json_refuse(&op->at->json, value, "the name of a %s", what);
    *index = found;
    return SYMM_OK;
}

static symm_status optional_integer(struct reading_op *op, const char *name,
                                    int64_t least, int64_t most, int64_t *number)
{
    const json_t *value = member(op, name);

    return value ? symm__json_integer(&op->at->json, value, least, most, number)
                 : SYMM_OK;
}

static symm_status read_local(struct reading_op *op)
{
    const json_t *list = member(op, "buffers");
    size_t count = json_array_size(list);
    symm_status status;
    int *buffers;

    if (!json_is_array(list) || count < 1 || count > INT32_MAX)
        return symm__json_refuse(&op->at->json, list, "a list of names of buffers");
    buffers = calloc(count, sizeof(*buffers));
    if (!buffers)
        return symm__program_nomem(op->at->program);
    for (size_t i = 0; i < count; i++) {
        const json_t *item =
            symm__json_at(&op->at->json, list, "ops[%zu].buffers[%zu]", op->index, i);
        int found = -1;
        if (json_is_string(item))
            found = symm__program_buffer(op->at->program, json_string_value(item));
        if (found < 0) {
            free(buffers);
            return symm__json_refuse(&op->at->json, item, "the name of a buffer");
        }
        buffers[i] = found;
    }
    op->op.buffers = buffers;
    op->op.buffer_count = (int)count;
    status = symm_program_add_op(op->at->program, &op->op);
    free(buffers);
    return status;
}

static symm_status read_reduce(struct reading_op *op)
{
    const json_t *value = member(op, "reduce");

    op->op.reduce = SYMM_SUM;
    if (!value || (op->op.kind != SYMM_PROGRAM_ALL_REDUCE &&
                   op->op.kind != SYMM_PROGRAM_REDUCE_SCATTER))
        return SYMM_OK;
    if (!json_is_string(value) ||
        symm_op_parse(json_string_value(value), &op->op.reduce))
        return symm__json_refuse(&op->at->json, value, "sum avg prod min max");
    return SYMM_OK;
}

static symm_status read_collective(struct reading_op *op)
{
    int64_t count = 0, root = 0;
    int in = 0, out = -1, group = 0;
    symm_status status = named(op, "group", "group", symm__program_group, 0, &group);

    if (status == SYMM_OK)
        status = named(op, "in", "buffer", symm__program_buffer, -2, &in);
    if (status == SYMM_OK)
        status = named(op, "out", "buffer", symm__program_buffer, -1, &out);
    if (status == SYMM_OK)
        status = read_reduce(op);
    if (status == SYMM_OK && op->op.kind == SYMM_PROGRAM_BROADCAST)
        status = optional_integer(op, "root", 0,
                                  op->at->program->groups[group].length - 1, &root);
    if (status == SYMM_OK)
        status = optional_integer(op, "count", 1, INT64_MAX, &count);
    if (status != SYMM_OK)
        return status;
    op->op.group = group;
    op->op.in = in;
    op->op.out = out;
    op->op.root = (int)root;
    op->op.count = (size_t)count;
    return symm_program_add_op(op->at->program, &op->op);
}

static symm_status read_put(struct reading_op *op)
{
    int64_t shift = 0;
    const json_t *value;
    symm_status status =
        named(op, "group", "group", symm__program_group, 0, &op->op.group);

    if (status == SYMM_OK)
        status = named(op, "src", "buffer", symm__program_buffer, -2, &op->op.in);
    if (status == SYMM_OK)
        status = named(op, "dst", "buffer", symm__program_buffer, -2, &op->op.out);
    if (status != SYMM_OK)
        return status;
    value = member(op, "shift");
    status = symm__json_integer(&op->at->json, value, -SYMM_PROGRAM_MAX_WORLD,
                                SYMM_PROGRAM_MAX_WORLD, &shift);
    if (status != SYMM_OK)
        return status;
    op->op.shift = (int)shift;
    return symm_program_add_op(op->at->program, &op->op);
}

static symm_status read_kind(struct reading_op *op)
{
    const json_t *value = member(op, "op");

    for (int k = 0; json_is_string(value) && k < SYMM_PROGRAM_KINDS; k++) {
        op->op.kind = (symm_program_kind)k;
        if (strcmp(json_string_value(value), symm_program_kind_name(op->op.kind)) == 0)
            return SYMM_OK;
    }
    return symm__json_refuse(
        &op->at->json, value,
        "write read all_reduce reduce_scatter all_gather broadcast "
        "all_to_all put wait depend");
}

static symm_status read_op(struct reading *at, size_t index, const json_t *object)
{
    struct reading_op op = {
        .at = at, .object = object, .index = index, .op = {.size = sizeof(op.op)}};
    symm_status status;

    if (!json_is_object(object))
        return symm__json_refuse(&at->json, object, "an object");
    status = read_kind(&op);
    if (status == SYMM_OK)
        status = named(&op, "stream", "stream", symm__program_stream, 0, &op.op.stream);
    if (status == SYMM_OK)
        status =
            symm__json_flag(&at->json, member(&op, "early_start"), &op.op.early_start);
    if (status != SYMM_OK)
        return status;
    if (op.op.kind == SYMM_PROGRAM_WRITE || op.op.kind == SYMM_PROGRAM_READ)
        return read_local(&op);
    if (op.op.kind == SYMM_PROGRAM_DEPEND) {
        status = named(&op, "on", "stream", symm__program_stream, -2, &op.op.on);
        return status == SYMM_OK ? symm_program_add_op(at->program, &op.op) : status;
    }
    status = symm__json_name(&at->json, member(&op, "site"), &op.op.site);
    if (status == SYMM_OK && op.op.kind != SYMM_PROGRAM_WAIT)
        status = symm__json_flag(&at->json, member(&op, "up_to"), &op.op.up_to);
    if (status != SYMM_OK)
        return status;
    if (op.op.kind == SYMM_PROGRAM_WAIT)
        return symm_program_add_op(at->program, &op.op);
    if (op.op.kind == SYMM_PROGRAM_PUT)
        return read_put(&op);
    return read_collective(&op);
}

static symm_status read_ops(struct reading *at, const json_t *root)
{
    const json_t *list = symm__json_at(&at->json, root, "ops");
    symm_status status = SYMM_OK;

    if (!json_is_array(list) || json_array_size(list) > SYMM_PROGRAM_MAX_OPS)
        return symm__json_refuse(&at->json, list, "a list of ops");
    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++)
        status = read_op(at, i, symm__json_at(&at->json, list, "ops[%zu]", i));
    return status;
}

/* ---- The whole ------------------------------------------------------------------- */

static symm_status read_head(struct reading *at, const json_t *root)
{
    const json_t *format = symm__json_at(&at->json, root, "format");
    const char *name;
    int64_t world = 0;
    bool loop = false;
    symm_status status;

    if (!json_is_object(root)) {
        snprintf(at->json.path, sizeof(at->json.path), "$");
        return symm__json_refuse(&at->json, root, "an object");
    }
    if (!json_is_string(format) ||
        strcmp(json_string_value(format), "symm-program/1") != 0)
        return symm__json_refuse(&at->json, format, "\"symm-program/1\"");
    status = symm__json_name(&at->json, symm__json_at(&at->json, root, "name"), &name);
    if (status == SYMM_OK)
        status = symm__json_integer(&at->json, symm__json_at(&at->json, root, "world"),
                                    1, SYMM_PROGRAM_MAX_WORLD, &world);
    if (status == SYMM_OK)
        status =
            symm__json_flag(&at->json, symm__json_at(&at->json, root, "loop"), &loop);
    return status == SYMM_OK ? symm_program_create(name, (int)world, loop, &at->program)
                             : status;
}

static symm_status read_root(const json_t *root, const char *file,
                             symm_program **program)
{
    struct reading at = {.json = {.file = file}};
    struct program_private *private;
    symm_status status = read_head(&at, root);

    if (status != SYMM_OK)
        return status;
    private = (struct program_private *)at.program;
    private->source = symm__pool_copy(&private->pool, file);
    if (!private->source)
        status = symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", file);
    if (status == SYMM_OK)
        status = read_streams(&at, root);
    if (status == SYMM_OK)
        status = read_groups(&at, root);
    if (status == SYMM_OK)
        status = read_buffers(&at, root);
    if (status == SYMM_OK)
        status = read_ops(&at, root);
    if (status == SYMM_OK)
        status = symm_program_finish(at.program);
    if (status == SYMM_OK)
        status = symm__json_value_hash(root, file, &private->hash);
    if (status != SYMM_OK) {
        symm_program_destroy(at.program);
        return status;
    }
    private->hashed = true;
    *program = at.program;
    return SYMM_OK;
}

symm_status symm_program_read(const char *path, symm_program **program)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!path || !program)
        return symm__fail_null("symm_program_read", path ? "program" : "path");
    root = symm__json_file(path, &status);
    if (!root)
        return status;
    status = read_root(root, path, program);
    json_decref(root);
    return status;
}

symm_status symm_program_parse(const char *text, size_t length, const char *name,
                               symm_program **program)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!text || !name || !program)
        return symm__fail_null("symm_program_parse", !text   ? "text"
                                                     : !name ? "name"
                                                             : "program");
    root = symm__json_text(text, length, name, &status);
    if (!root)
        return status;
    status = read_root(root, name, program);
    json_decref(root);
    return status;
}
