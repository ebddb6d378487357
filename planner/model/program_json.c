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

#include "model/json_member.h"
#include "model/program_norm_json.h"
#include "model/program_private.h"
#include "util/dtype.h"
#include "util/status.h"

struct reading {
    struct json_members members;
    symm_program *program;
    symm_program_op op; /* in hand */
};

/* ---- Streams, groups --------------------------------------------------------------- */

static symm_status read_streams(struct reading *at, const json_t *root)
{
    const json_t *list = symm__json_at(&at->members.json, root, "streams");
    symm_status status = SYMM_OK;
    int stream;

    if (!list)
        return symm_program_add_stream(at->program, "main", &stream);
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > SYMM_PROGRAM_MAX_STREAMS)
        return symm__json_refuse(&at->members.json, list, "a list of 1 to %d names",
                                 SYMM_PROGRAM_MAX_STREAMS);
    for (size_t i = 0; i < json_array_size(list) && status == SYMM_OK; i++) {
        const char *name;
        const json_t *item = symm__json_at(&at->members.json, list, "streams[%zu]", i);
        status = symm__json_name(&at->members.json, item, &name);
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
            symm__json_at(&at->members.json, lists, "groups.%.40s[%zu]", name, l);
        if (!json_is_array(list) || json_array_size(list) != length)
            return symm__json_refuse(&at->members.json, list,
                                     "a list of %zu ranks, as the first one", length);
        for (size_t i = 0; i < length; i++) {
            int64_t rank = 0;
            const json_t *item = symm__json_at(&at->members.json, list,
                                               "groups.%.40s[%zu][%zu]", name, l, i);
            symm_status status =
                symm__json_integer(&at->members.json, item, 0, world - 1, &rank);
            if (status != SYMM_OK)
                return status;
            ranks[l * length + i] = (int)rank;
        }
    }
    return SYMM_OK;
}

static symm_status read_partition(struct reading *at, const char *name,
                                  const json_t *lists)
{
    const size_t count = json_array_size(lists);
    const size_t length = json_array_size(json_array_get(lists, 0));
    int ranks[SYMM_PROGRAM_MAX_WORLD], partition;
    symm_status status;

    snprintf(at->members.json.path, sizeof(at->members.json.path), "groups.%.40s",
             name);
    if (!*name || strcmp(name, "world") == 0)
        return symm__json_refuse(&at->members.json, lists,
                                 "a name, other than \"world\"");
    if (length < 1 || count > SYMM_PROGRAM_MAX_WORLD ||
        length > SYMM_PROGRAM_MAX_WORLD || count * length != (size_t)at->program->world)
        return symm__json_refuse(
            &at->members.json, lists,
            "lists of equal length that hold each of the %d ranks once",
            at->program->world);
    status = read_lists(at, name, lists, ranks);
    if (status != SYMM_OK)
        return status;
    return symm_program_add_partition(at->program, name, (int)count, (int)length, ranks,
                                      &partition);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In the order of their names, so that the order of members in the file means nothing. */
static symm_status read_partitions(struct reading *at, const json_t *root)
{
    const json_t *partitions = symm__json_at(&at->members.json, root, "groups");
    const char **names;
    size_t count = 0;
    symm_status status = SYMM_OK;

    if (!partitions)
        return SYMM_OK;
    if (!json_is_object(partitions))
        return symm__json_refuse(&at->members.json, partitions,
                                 "an object of names and lists");
    names = calloc(json_object_size(partitions) + 1, sizeof(*names));
    if (!names)
        return symm__program_nomem(at->program);
    for (void *i = json_object_iter((json_t *)(uintptr_t)partitions); i;
         i = json_object_iter_next((json_t *)(uintptr_t)partitions, i))
        names[count++] = json_object_iter_key(i);
    qsort(names, count, sizeof(*names), by_name);
    for (size_t i = 0; i < count && status == SYMM_OK; i++)
        status = read_partition(at, names[i], json_object_get(partitions, names[i]));
    free(names);
    return status;
}

/* ---- Buffers --------------------------------------------------------------------- */

static void read_dims(struct json_members *at, const char *name, const json_t *list,
                      int64_t least, int64_t *numbers)
{
    for (size_t i = 0; i < json_array_size(list) && at->status == SYMM_OK; i++) {
        const json_t *item =
            symm__json_at(&at->json, list, "buffers[%zu].%s[%zu]", at->index, name, i);
        at->status = symm__json_integer(&at->json, item, least, INT64_MAX, &numbers[i]);
    }
}

static void read_shape(struct reading *reading, const char *name, symm_dtype dtype)
{
    struct json_members *at = &reading->members;
    int64_t shape[SYMM_PROGRAM_MAX_NDIM], stride[SYMM_PROGRAM_MAX_NDIM];
    const json_t *sizes = symm__member(at, "shape"), *steps;
    const size_t ndim = json_array_size(sizes);
    int buffer;

    if (at->status == SYMM_OK &&
        (!json_is_array(sizes) || ndim > SYMM_PROGRAM_MAX_NDIM))
        at->status =
            symm__json_refuse(&at->json, sizes, "a list of 0 to %d sizes, or \"bytes\"",
                              SYMM_PROGRAM_MAX_NDIM);
    read_dims(at, "shape", sizes, 1, shape);
    steps = symm__member(at, "stride");
    if (at->status == SYMM_OK && steps &&
        (!json_is_array(steps) || json_array_size(steps) != ndim))
        at->status = symm__json_refuse(&at->json, steps,
                                       "a list as long as the shape, %zu", ndim);
    read_dims(at, "stride", steps, 0, stride);
    if (at->status == SYMM_OK)
        at->status = symm_program_add_buffer(reading->program, name, dtype, (int)ndim,
                                             shape, steps ? stride : NULL, &buffer);
}

static void read_bytes(struct reading *reading, const char *name,
                       const symm_dtype *dtype)
{
    struct json_members *at = &reading->members;
    const size_t element = dtype ? symm_dtype_size(*dtype) : 1;
    int64_t bytes, elements;
    int buffer;

    symm__take_integer(at, "bytes", 1, INT64_MAX / 4, &bytes);
    if (at->status == SYMM_OK && (size_t)bytes % element)
        at->status = symm__json_refuse(&at->json, symm__member(at, "bytes"),
                                       "a multiple of the dtype's %zu bytes", element);
    elements = bytes / (int64_t)element;
    if (at->status == SYMM_OK)
        at->status = dtype ? symm_program_add_buffer(reading->program, name, *dtype, 1,
                                                     &elements, NULL, &buffer)
                           : symm_program_add_bytes(reading->program, name,
                                                    (size_t)bytes, &buffer);
}

static void read_buffer(struct json_members *at, void *arg)
{
    struct reading *reading = arg;
    const json_t *bytes = json_object_get(at->object, "bytes"), *dtype;
    symm_dtype type = SYMM_UINT8;
    const char *name = NULL;
    uint64_t id;

    symm__take_text(at, "name", &name);
    dtype = symm__member(at, "dtype");
    if ((dtype || !bytes) &&
        (!json_is_string(dtype) || symm_dtype_parse(json_string_value(dtype), &type)))
        symm__member_refuse(at, dtype, symm__dtype_names());
    if (bytes && json_object_get(at->object, "shape"))
        symm__member_refuse(at, symm__member(at, "bytes"), "shape or bytes, not both");
    if (bytes)
        read_bytes(reading, name, dtype ? &type : NULL);
    else
        read_shape(reading, name, type);
    if (!json_object_get(at->object, "alloc_id"))
        return;
    symm__take_id(at, "alloc_id", &id);
    if (at->status == SYMM_OK)
        at->status = symm_program_set_alloc_id(reading->program, (int)at->index, id);
}

/* ---- Ops ------------------------------------------------------------------------- */

#define REQUIRED (-2)

/* An index by name; absent: `fallback`, unless that is REQUIRED. 0 after a complaint. */
static int named(struct reading *reading, const char *name, const char *what,
                 int (*find)(const symm_program *program, const char *name),
                 int fallback)
{
    struct json_members *at = &reading->members;
    const json_t *value = symm__member(at, name);
    int found = -1;

    if (!value && fallback != REQUIRED)
        return fallback;
    if (json_is_string(value))
        found = find(reading->program, json_string_value(value));
    if (found < 0 && at->status == SYMM_OK)
        at->status = symm__json_refuse(&at->json, value, "the name of a %s", what);
    return found < 0 ? 0 : found;
}

/* buffers: new. */
static void read_local(struct reading *reading, int **buffers)
{
    struct json_members *at = &reading->members;
    const json_t *list = symm__member(at, "buffers");
    const size_t count = json_array_size(list);

    if (!json_is_array(list) || count < 1 || count > INT32_MAX)
        symm__member_refuse(at, list, "a list of names of buffers");
    if (at->status != SYMM_OK)
        return;
    *buffers = calloc(count, sizeof(**buffers));
    if (!*buffers)
        at->status = symm__program_nomem(reading->program);
    for (size_t i = 0; i < count && at->status == SYMM_OK; i++) {
        const json_t *item =
            symm__json_at(&at->json, list, "ops[%zu].buffers[%zu]", at->index, i);
        const char *name = json_string_value(item);

        (*buffers)[i] = name ? symm__program_buffer(reading->program, name) : -1;
        if ((*buffers)[i] < 0)
            symm__member_refuse(at, item, "the name of a buffer");
    }
    reading->op.buffers = *buffers;
    reading->op.buffer_count = (int)count;
}

static void read_reduce(struct json_members *at, symm_program_op *op)
{
    const json_t *value = symm__member(at, "reduce");

    if (!value || (op->kind != SYMM_PROGRAM_ALL_REDUCE &&
                   op->kind != SYMM_PROGRAM_REDUCE_SCATTER))
        return;
    if (!json_is_string(value) || symm_op_parse(json_string_value(value), &op->reduce))
        symm__member_refuse(at, value, symm__op_names(SYMM_INT64));
}

static void read_collective(struct reading *reading)
{
    struct json_members *at = &reading->members;
    symm_program_op *op = &reading->op;

    op->in = named(reading, "in", "buffer", symm__program_buffer, REQUIRED);
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        symm__norm_read(at, reading->program, &op->norm);
    else
        op->out = named(reading, "out", "buffer", symm__program_buffer, -1);
    read_reduce(at, op);
    if (op->kind == SYMM_PROGRAM_BROADCAST && json_object_get(at->object, "root"))
        symm__take_int(at, "root", 0,
                       reading->program->partitions[op->partition].length - 1,
                       &op->root);
    if (json_object_get(at->object, "count")) {
        int64_t count;
        symm__take_integer(at, "count", 1, INT64_MAX, &count);
        op->count = (size_t)count;
    }
}

static void read_put(struct reading *reading)
{
    symm_program_op *op = &reading->op;

    op->in = named(reading, "src", "buffer", symm__program_buffer, REQUIRED);
    op->out = named(reading, "dst", "buffer", symm__program_buffer, REQUIRED);
    symm__take_int(&reading->members, "shift", -SYMM_PROGRAM_MAX_WORLD,
                   SYMM_PROGRAM_MAX_WORLD, &op->shift);
}

static void read_kind(struct json_members *at, symm_program_kind *kind)
{
    const json_t *value = symm__member(at, "op");

    for (int k = 0; json_is_string(value) && k < SYMM_PROGRAM_KINDS; k++) {
        *kind = (symm_program_kind)k;
        if (strcmp(json_string_value(value), symm_program_kind_name(*kind)) == 0)
            return;
    }
    symm__member_refuse(at, value,
                        "write read all_reduce reduce_scatter all_gather broadcast "
                        "all_to_all put wait depend all_reduce_norm");
}

static void read_op(struct json_members *at, void *arg)
{
    struct reading *reading = arg;
    symm_program_op *op = &reading->op;
    int *buffers = NULL;

    *op = (symm_program_op){.size = sizeof(*op), .out = -1};
    read_kind(at, &op->kind);
    op->stream = named(reading, "stream", "stream", symm__program_stream, 0);
    symm__take_flag(at, "early_start", &op->early_start);
    if (op->kind == SYMM_PROGRAM_WRITE || op->kind == SYMM_PROGRAM_READ)
        read_local(reading, &buffers);
    else if (op->kind == SYMM_PROGRAM_DEPEND)
        op->on = named(reading, "on", "stream", symm__program_stream, REQUIRED);
    else
        symm__take_text(at, "site", &op->site);
    if (op->kind == SYMM_PROGRAM_PUT || symm__is_collective(op->kind)) {
        symm__take_flag(at, "up_to", &op->up_to);
        op->partition = named(reading, "group", "group", symm__program_partition, 0);
        if (op->kind == SYMM_PROGRAM_PUT)
            read_put(reading);
        else
            read_collective(reading);
    }
    if (at->status == SYMM_OK)
        at->status = symm_program_add_op(reading->program, op);
    free(buffers);
}

/* ---- The whole ------------------------------------------------------------------- */

static void read_head(struct reading *reading)
{
    struct json_members *at = &reading->members;
    const json_t *format = symm__member(at, "format");
    const char *name = NULL;
    int world;
    bool loop;

    if (!json_is_object(at->object)) {
        symm__member(at, "$");
        symm__member_refuse(at, at->object, "an object");
    }
    symm__member(at, "format"); /* again: symm__member_refuse names the last one */
    if (!json_is_string(format) ||
        strcmp(json_string_value(format), "symm-program/1") != 0)
        symm__member_refuse(at, format, "\"symm-program/1\"");
    symm__take_text(at, "name", &name);
    symm__take_int(at, "world", 1, SYMM_PROGRAM_MAX_WORLD, &world);
    symm__take_flag(at, "loop", &loop);
    if (at->status == SYMM_OK)
        at->status = symm_program_create(name, world, loop, &reading->program);
}

static symm_status read_lists_in(struct reading *reading, const json_t *root)
{
    struct json_members *at = &reading->members;
    const json_t *list;
    size_t count;

    at->status = read_streams(reading, root);
    if (at->status == SYMM_OK)
        at->status = read_partitions(reading, root);
    list = symm__take_list(at, root, "buffers", INT32_MAX, &count);
    symm__take_each(at, list, "buffers", read_buffer, reading);
    list = symm__take_list(at, root, "ops", SYMM_PROGRAM_MAX_OPS, &count);
    symm__take_each(at, list, "ops", read_op, reading);
    return at->status == SYMM_OK ? symm_program_finish(reading->program) : at->status;
}

/* Owns `root`. */
static symm_status read_root(json_t *root, const char *file, symm_program **program)
{
    struct reading reading = {.members = {.json = {.file = file}, .object = root}};
    struct program_private *private;
    symm_status status;

    read_head(&reading);
    status = reading.members.status;
    private = (struct program_private *)reading.program;
    if (status == SYMM_OK) {
        private->source = symm__pool_copy(&private->pool, file);
        status = private->source
                     ? read_lists_in(&reading, root)
                     : symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", file);
    }
    if (status == SYMM_OK)
        status = symm__json_value_hash(root, file, &private->hash);
    json_decref(root);
    if (status != SYMM_OK) {
        symm_program_destroy(reading.program);
        return status;
    }
    private->hashed = true;
    *program = reading.program;
    return SYMM_OK;
}

symm_status symm_program_read(const char *path, symm_program **program)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!path || !program)
        return symm__fail_null("symm_program_read", path ? "program" : "path");
    root = symm__json_file(path, &status);
    return root ? read_root(root, path, program) : status;
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
    return root ? read_root(root, name, program) : status;
}
