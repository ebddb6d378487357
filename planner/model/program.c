/* SPDX-License-Identifier: MIT */
/*
 * program.c - a program in memory: its head, streams, groups and buffers (symm/plan.h).
 *
 * Guarantees: what was added is valid by itself, names are unique and copied, sizes were
 * computed without overflow; after an error the program is as it was. Complaints name
 * places as a symm-program/1 file would have them, so its reader passes them on.
 */
#include "model/program_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/status.h"
#include "util/text.h"

#define LARGEST (SIZE_MAX / 4)

const char *symm_program_kind_name(symm_program_kind kind)
{
    switch (kind) {
#define KIND_CASE(name, value, text)                                                   \
    case SYMM_PROGRAM_##name:                                                          \
        return text;
        SYMM_PROGRAM_KIND_MAP(KIND_CASE)
#undef KIND_CASE
    default:
        return NULL;
    }
}

bool symm__is_collective(symm_program_kind kind)
{
    return (kind >= SYMM_PROGRAM_ALL_REDUCE && kind <= SYMM_PROGRAM_ALL_TO_ALL) ||
           kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
}

bool symm__is_communication(symm_program_kind kind)
{
    return kind == SYMM_PROGRAM_PUT || symm__is_collective(kind);
}

bool symm__is_reduction(symm_program_kind kind)
{
    return kind == SYMM_PROGRAM_ALL_REDUCE || kind == SYMM_PROGRAM_REDUCE_SCATTER ||
           kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
}

symm_program_kind symm__kind_of_sum(symm_program_kind kind)
{
    return kind == SYMM_PROGRAM_ALL_REDUCE_NORM ? SYMM_PROGRAM_ALL_REDUCE : kind;
}

size_t symm__program_up_to(const symm_program_op *op)
{
    if (!op->up_to)
        return 0;
    return op->kind == SYMM_PROGRAM_PUT ? op->count
                                        : op->count * symm_dtype_size(op->dtype);
}

static struct program_private *inside(symm_program *program)
{
    return (struct program_private *)program;
}

symm_status symm__program_refuse(const symm_program *program, const char *format, ...)
{
    const struct program_private *private = (const struct program_private *)program;
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return symm__fail(SYMM_ERR_INVALID, "%s: %s", private->source, text);
}

symm_status symm__program_nomem(const symm_program *program)
{
    const struct program_private *private = (const struct program_private *)program;

    return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", private->source);
}

bool symm__grow(void **list, int count, int *room, size_t bytes)
{
    int more = *room ? 2 * *room : 16;
    void *grown;

    if (count < *room)
        return true;
    grown = realloc(*list, (size_t)more * bytes);
    if (!grown)
        return false;
    *list = grown;
    *room = more;
    return true;
}

/* ---- Names ----------------------------------------------------------------------- */

int symm__program_stream(const symm_program *program, const char *name)
{
    for (int i = 0; i < program->stream_count; i++)
        if (strcmp(program->streams[i], name) == 0)
            return i;
    return -1;
}

int symm__program_partition(const symm_program *program, const char *name)
{
    for (int i = 0; i < program->partition_count; i++)
        if (strcmp(program->partitions[i].name, name) == 0)
            return i;
    return -1;
}

int symm__program_buffer(const symm_program *program, const char *name)
{
    return symm__names_find(&((const struct program_private *)program)->buffer_names,
                            name);
}

int symm_program_partition_find(const symm_program_partition *partition, int rank)
{
    for (int i = 0; partition && i < partition->lists * partition->length; i++)
        if (partition->ranks[i] == rank)
            return i;
    return -1;
}

/* The name at `path`; `find` finds a name that is taken. */
static symm_status
check_name(const symm_program *program, const char *path, const char *name,
           int (*find)(const symm_program *program, const char *name))
{
    if (!name || !*name)
        return symm__program_refuse(
            program, "%s: found no name, allowed: one that is not empty", path);
    if (!symm__is_utf8(name)) /* no JSON has it */
        return symm__program_refuse(
            program, "%s: found a name that is no UTF-8, allowed: UTF-8", path);
    if (find(program, name) < 0)
        return SYMM_OK;
    return symm__program_refuse(
        program, "%s: found \"%.70s\", allowed: a name not used before", path, name);
}

/* ---- The head, streams, groups ----------------------------------------------------- */

static symm_status add_partition(symm_program *program, const char *name, int lists,
                                 int length, const int *ranks, int *partition)
{
    struct program_private *private = inside(program);
    int *copy = symm__pool_alloc(&private->pool, (size_t)program->world, sizeof(*copy));
    char *text = symm__pool_copy(&private->pool, name);

    if (!copy || !text ||
        !symm__grow((void **)&program->partitions, program->partition_count,
                    &private->partition_room, sizeof(*program->partitions)))
        return symm__program_nomem(program);
    for (int i = 0; i < program->world; i++)
        copy[i] = ranks ? ranks[i] : i;
    program->partitions[program->partition_count] = (symm_program_partition){
        .name = text, .lists = lists, .length = length, .ranks = copy};
    *partition = program->partition_count++;
    private->hashed = false;
    return SYMM_OK;
}

symm_status symm_program_create(const char *name, int world, bool loop,
                                symm_program **program)
{
    struct program_private *private;
    symm_status status = SYMM_ERR_NOMEM;
    int partition;

    if (!program)
        return symm__fail_null("symm_program_create", "program");
    if (!name || !*name)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_program_create: a program needs a name that is not "
                          "empty");
    if (!symm__is_utf8(name))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_program_create: found a name that is no UTF-8, allowed: "
            "UTF-8");
    if (world < 1 || world > SYMM_PROGRAM_MAX_WORLD)
        return symm__fail(SYMM_ERR_INVALID,
                          "program %s: world: found %d, allowed: 1 to %d", name, world,
                          SYMM_PROGRAM_MAX_WORLD);
    private = calloc(1, sizeof(*private));
    if (!private)
        return symm__fail(SYMM_ERR_NOMEM, "program %s: memory is exhausted", name);
    private->source = symm__pool_format(&private->pool, "program %s", name);
    private->program =
        (symm_program){.size = sizeof(symm_program), .world = world, .loop = loop};
    private->program.name = symm__pool_copy(&private->pool, name);
    if (private->source && private->program.name)
        status = add_partition(&private->program, "world", 1, world, NULL, &partition);
    if (status != SYMM_OK) {
        symm_program_destroy(&private->program);
        return symm__fail(SYMM_ERR_NOMEM, "program %s: memory is exhausted", name);
    }
    *program = &private->program;
    return SYMM_OK;
}

void symm_program_destroy(symm_program *program)
{
    if (!program)
        return;
    symm__names_free(&inside(program)->buffer_names);
    symm__names_free(&inside(program)->sites);
    symm__names_free(&inside(program)->waits);
    symm__pool_free(&inside(program)->pool);
    free(program->streams);
    free(program->partitions);
    free(program->buffers);
    free(program->ops);
    free((void *)(uintptr_t)program->norms);
    free(program);
}

symm_status symm_program_add_stream(symm_program *program, const char *name,
                                    int *stream)
{
    struct program_private *private = inside(program);
    char path[40];
    char *text;
    symm_status status;

    if (!program || !stream)
        return symm__fail_null("symm_program_add_stream",
                               program ? "stream" : "program");
    snprintf(path, sizeof(path), "streams[%d]", program->stream_count);
    status = check_name(program, path, name, symm__program_stream);
    if (status != SYMM_OK)
        return status;
    if (program->stream_count == SYMM_PROGRAM_MAX_STREAMS)
        return symm__program_refuse(program,
                                    "streams: found one more, allowed: 1 to %d names",
                                    SYMM_PROGRAM_MAX_STREAMS);
    text = symm__pool_copy(&private->pool, name);
    if (!text || !symm__grow((void **)&program->streams, program->stream_count,
                             &private->stream_room, sizeof(*program->streams)))
        return symm__program_nomem(program);
    program->streams[program->stream_count] = text;
    *stream = program->stream_count++;
    private->hashed = false;
    return SYMM_OK;
}

symm_status symm_program_add_partition(symm_program *program, const char *name,
                                       int lists, int length, const int *ranks,
                                       int *partition)
{
    bool seen[SYMM_PROGRAM_MAX_WORLD] = {false};
    char path[120];
    symm_status status;

    if (!program || !ranks || !partition)
        return symm__fail_null("symm_program_add_partition", !program ? "program"
                                                             : !ranks ? "ranks"
                                                                      : "group");
    snprintf(path, sizeof(path), "groups.%.60s", name ? name : "");
    status = check_name(program, path, name, symm__program_partition);
    if (status != SYMM_OK)
        return status;
    if (lists < 1 || length < 1 || (int64_t)lists * length != program->world)
        return symm__program_refuse(
            program,
            "%s: found %d lists of %d ranks, allowed: lists of equal length that hold "
            "each of the %d ranks once",
            path, lists, length, program->world);
    for (int i = 0; i < program->world; i++) {
        if (ranks[i] < 0 || ranks[i] >= program->world || seen[ranks[i]])
            return symm__program_refuse(
                program,
                "%s[%d][%d]: found %d, allowed: a rank from 0 to %d that is in no list "
                "yet",
                path, i / length, i % length, ranks[i], program->world - 1);
        seen[ranks[i]] = true;
    }
    return add_partition(program, name, lists, length, ranks, partition);
}

/* ---- Buffers --------------------------------------------------------------------- */

/* Elements from the first to the last that shape and stride reach; false: overflow. */
static bool compute_extent(symm_program_buffer *buffer)
{
    int64_t last = 0, span;

    for (int i = 0; i < buffer->ndim; i++) {
        if (__builtin_mul_overflow(buffer->shape[i] - 1, buffer->stride[i], &span) ||
            __builtin_add_overflow(last, span, &last))
            return false;
    }
    if (last == INT64_MAX)
        return false;
    buffer->elements = (size_t)last + 1;
    return !__builtin_mul_overflow(buffer->elements, symm_dtype_size(buffer->dtype),
                                   &buffer->bytes) &&
           buffer->bytes <= LARGEST;
}

static bool fill_strides(symm_program_buffer *buffer, const int64_t *stride)
{
    int64_t dense = 1;

    for (int i = buffer->ndim - 1; i >= 0; i--) {
        buffer->stride[i] = stride ? stride[i] : dense;
        if (!stride && __builtin_mul_overflow(dense, buffer->shape[i], &dense))
            return false;
    }
    return true;
}

static symm_status append_buffer(symm_program *program, const char *name,
                                 const symm_program_buffer *made, int *buffer)
{
    struct program_private *private = inside(program);
    char path[60];
    char *text;
    symm_status status;

    if (program->buffer_count == MAX_BUFFERS)
        return symm__program_refuse(
            program, "buffers: found one more, allowed: %d buffers", MAX_BUFFERS);
    snprintf(path, sizeof(path), "buffers[%d].name", program->buffer_count);
    status = check_name(program, path, name, symm__program_buffer);
    if (status != SYMM_OK)
        return status;
    text = symm__pool_copy(&private->pool, name);
    if (!text || !symm__grow((void **)&program->buffers, program->buffer_count,
                             &private->buffer_room, sizeof(*program->buffers)))
        return symm__program_nomem(program);
    if (!symm__names_add(&private->buffer_names, text, program->buffer_count))
        return symm__program_nomem(program);
    program->buffers[program->buffer_count] = *made;
    program->buffers[program->buffer_count].name = text;
    program->buffers[program->buffer_count].alloc_id =
        (uint64_t)program->buffer_count + 1;
    *buffer = program->buffer_count++;
    private->hashed = false;
    return SYMM_OK;
}

symm_status symm_program_add_buffer(symm_program *program, const char *name,
                                    symm_dtype dtype, int ndim, const int64_t *shape,
                                    const int64_t *stride, int *buffer)
{
    symm_program_buffer made = {.dtype = dtype, .ndim = ndim};

    if (!program || !buffer || (ndim > 0 && !shape))
        return symm__fail_null("symm_program_add_buffer", !program  ? "program"
                                                          : !buffer ? "buffer"
                                                                    : "shape");
    if (symm_dtype_size(dtype) == 0)
        return symm__program_refuse(program,
                                    "buffers[%d]: found %d, allowed: a dtype of symm.h",
                                    program->buffer_count, (int)dtype);
    if (ndim < 0 || ndim > SYMM_PROGRAM_MAX_NDIM)
        return symm__program_refuse(program,
                                    "buffers[%d]: found %d sizes, allowed: 0 to %d",
                                    program->buffer_count, ndim, SYMM_PROGRAM_MAX_NDIM);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1)
            return symm__program_refuse(
                program, "buffers[%d].shape[%d]: found %lld, allowed: 1 or more",
                program->buffer_count, i, (long long)shape[i]);
        made.shape[i] = shape[i];
        if (stride && stride[i] < 0)
            return symm__program_refuse(
                program, "buffers[%d].stride[%d]: found %lld, allowed: 0 or more",
                program->buffer_count, i, (long long)stride[i]);
    }
    if (!fill_strides(&made, stride) || !compute_extent(&made))
        return symm__program_refuse(
            program,
            "buffers[%d]: found a larger extent, allowed: a size that fits 62 bits",
            program->buffer_count);
    return append_buffer(program, name, &made, buffer);
}

symm_status symm_program_add_bytes(symm_program *program, const char *name,
                                   size_t bytes, int *buffer)
{
    symm_program_buffer made = {.dtype = SYMM_UINT8,
                                .raw = true,
                                .ndim = 1,
                                .shape = {(int64_t)bytes},
                                .stride = {1},
                                .bytes = bytes,
                                .elements = bytes};

    if (!program || !buffer)
        return symm__fail_null("symm_program_add_bytes",
                               program ? "buffer" : "program");
    if (bytes < 1 || bytes > LARGEST)
        return symm__program_refuse(program,
                                    "buffers[%d].bytes: found %zu, allowed: 1 to %zu",
                                    program->buffer_count, bytes, LARGEST);
    return append_buffer(program, name, &made, buffer);
}

symm_status symm_program_set_alloc_id(symm_program *program, int buffer,
                                      uint64_t alloc_id)
{
    if (!program)
        return symm__fail_null("symm_program_set_alloc_id", "program");
    if (buffer < 0 || buffer >= program->buffer_count || alloc_id == 0)
        return symm__program_refuse(program,
                                    "buffers[%d].alloc_id: found %llu, allowed: a "
                                    "number above 0, for one of the %d buffers",
                                    buffer, (unsigned long long)alloc_id,
                                    program->buffer_count);
    program->buffers[buffer].alloc_id = alloc_id;
    program->order = NULL; /* to be checked anew */
    inside(program)->hashed = false;
    return SYMM_OK;
}

static int compare_ids(const void *left, const void *right)
{
    const symm_program_buffer *a = *(const symm_program_buffer *const *)left;
    const symm_program_buffer *b = *(const symm_program_buffer *const *)right;

    return a->alloc_id < b->alloc_id ? -1 : a->alloc_id > b->alloc_id;
}

symm_status symm__program_check_ids(const symm_program *program)
{
    const symm_program_buffer **list =
        calloc((size_t)program->buffer_count + 1, sizeof(*list));
    symm_status status = list ? SYMM_OK : symm__program_nomem(program);

    for (int b = 0; list && b < program->buffer_count; b++)
        list[b] = &program->buffers[b];
    if (list)
        qsort(list, (size_t)program->buffer_count, sizeof(*list), compare_ids);
    for (int b = 1; list && b < program->buffer_count && status == SYMM_OK; b++)
        if (list[b]->alloc_id == list[b - 1]->alloc_id)
            status = symm__program_refuse(
                program,
                "buffers[%td].alloc_id: found %llu, allowed: a number that no other "
                "buffer has",
                (list[b] > list[b - 1] ? list[b] : list[b - 1]) - program->buffers,
                (unsigned long long)list[b]->alloc_id);
    free(list);
    return status;
}
