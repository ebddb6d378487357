/* SPDX-License-Identifier: MIT */
/*
 * program_buffers.c - reads and checks the buffers of a symm-program/1 file.
 *
 * The extent of shape and stride is computed here, without overflow, once for all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "perf/program_read.h"

static int read_dims(struct program_reader *reader, const char *path,
                     const json_t *list, int64_t least, int dims, int64_t *numbers)
{
    char at[PROGRAM_PATH];

    for (int i = 0; i < dims; i++) {
        program__path(at, "%s[%d]", path, i);
        if (program__integer(reader, at, json_array_get(list, (size_t)i), least,
                             INT64_MAX, &numbers[i]))
            return -1;
    }
    return 0;
}

/* Elements from the first to the last that shape and stride reach. */
static int compute_extent(struct program_buffer *buffer)
{
    int64_t last = 0, span;

    for (int i = 0; i < buffer->dims; i++)
        if (__builtin_mul_overflow(buffer->shape[i] - 1, buffer->stride[i], &span) ||
            __builtin_add_overflow(last, span, &last))
            return -1;
    if (last == INT64_MAX)
        return -1;
    buffer->elements = (size_t)last + 1;
    return __builtin_mul_overflow(buffer->elements, symm_dtype_size(buffer->dtype),
                                  &buffer->bytes)
               ? -1
               : 0;
}

static int dense_strides(struct program_buffer *buffer)
{
    int64_t stride = 1;

    for (int i = buffer->dims - 1; i >= 0; i--) {
        buffer->stride[i] = stride;
        if (__builtin_mul_overflow(stride, buffer->shape[i], &stride))
            return -1;
    }
    return 0;
}

static int read_shape(struct program_reader *reader, const char *path,
                      const json_t *object, struct program_buffer *buffer)
{
    const json_t *shape = json_object_get(object, "shape");
    const json_t *stride = json_object_get(object, "stride");
    char at[PROGRAM_PATH];
    bool fits = true;

    program__path(at, "%s.shape", path);
    if (!json_is_array(shape) || json_array_size(shape) > PROGRAM_MAX_DIMS)
        return program__refuse(reader, at, shape,
                               "a list of 0 to %d sizes, or \"bytes\"",
                               PROGRAM_MAX_DIMS);
    buffer->dims = (int)json_array_size(shape);
    if (read_dims(reader, at, shape, 1, buffer->dims, buffer->shape))
        return -1;
    if (stride) {
        program__path(at, "%s.stride", path);
        if (!json_is_array(stride) || (int)json_array_size(stride) != buffer->dims)
            return program__refuse(reader, at, stride,
                                   "a list as long as the shape, %d", buffer->dims);
        if (read_dims(reader, at, stride, 0, buffer->dims, buffer->stride))
            return -1;
    } else {
        fits = dense_strides(buffer) == 0;
    }
    if (!fits || compute_extent(buffer) || buffer->bytes > SIZE_MAX / 4)
        return program__refuse(reader, path, object, "a size that fits 62 bits");
    return 0;
}

/* An integer or, where it needs 64 bits, its digits. Absent: what it is already. */
static int read_id(struct program_reader *reader, const char *path, const json_t *value,
                   struct program_buffer *buffer)
{
    const char *text = json_string_value(value);
    char at[PROGRAM_PATH], *end = NULL;

    if (!value)
        return 0;
    errno = 0;
    if (json_is_integer(value) && json_integer_value(value) > 0)
        buffer->alloc_id = (uint64_t)json_integer_value(value);
    else if (text && *text >= '0' && *text <= '9')
        buffer->alloc_id = strtoull(text, &end, 10);
    if (json_is_integer(value) ? json_integer_value(value) > 0
                               : end && !*end && buffer->alloc_id && !errno)
        return 0;
    program__path(at, "%s.alloc_id", path);
    return program__refuse(reader, at, value,
                           "an integer above 0, or its digits in quotes");
}

static int read_bytes(struct program_reader *reader, const char *path,
                      const json_t *object, struct program_buffer *buffer)
{
    const json_t *value = json_object_get(object, "bytes");
    size_t element = symm_dtype_size(buffer->dtype);
    int64_t bytes = 0;
    char at[PROGRAM_PATH];

    program__path(at, "%s.bytes", path);
    if (program__integer(reader, at, value, 1, INT64_MAX / 4, &bytes))
        return -1;
    if ((size_t)bytes % element)
        return program__refuse(reader, at, value, "a multiple of the dtype's %zu bytes",
                               element);
    buffer->bytes = (size_t)bytes;
    buffer->elements = (size_t)bytes / element;
    buffer->dims = 1;
    buffer->shape[0] = (int64_t)buffer->elements;
    buffer->stride[0] = 1;
    return 0;
}

static int read_buffer(struct program_reader *reader, size_t index,
                       const json_t *object)
{
    struct program *program = reader->program;
    struct program_buffer *buffer = &program->buffers[index];
    const json_t *dtype, *bytes;
    char path[PROGRAM_PATH], at[PROGRAM_PATH];

    program__path(path, "buffers[%zu]", index);
    if (!json_is_object(object))
        return program__refuse(reader, path, object, "an object");
    program->buffer_count++;
    program__path(at, "%s.name", path);
    if (program__text(reader, at, json_object_get(object, "name"), &buffer->name))
        return -1;
    if (program__find_buffer(program, buffer->name) != (int)index)
        return program__refuse(reader, at, json_object_get(object, "name"),
                               "a name not used before");
    buffer->alloc_id = (uint64_t)index + 1;
    if (read_id(reader, path, json_object_get(object, "alloc_id"), buffer))
        return -1;
    dtype = json_object_get(object, "dtype");
    bytes = json_object_get(object, "bytes");
    buffer->raw = !dtype && bytes;
    buffer->dtype = SYMM_UINT8;
    program__path(at, "%s.dtype", path);
    if (!buffer->raw && (!json_is_string(dtype) ||
                         symm_dtype_parse(json_string_value(dtype), &buffer->dtype)))
        return program__refuse(
            reader, at, dtype,
            "float64 float32 float16 bfloat16 float8_e4m3 float8_e5m2 "
            "int64 int32 int8 uint64 uint32 uint8");
    if (bytes && json_object_get(object, "shape"))
        return program__refuse(reader, path, object, "shape or bytes, not both");
    return bytes ? read_bytes(reader, path, object, buffer)
                 : read_shape(reader, path, object, buffer);
}

int program__read_buffers(struct program_reader *reader, const json_t *root)
{
    const json_t *list = json_object_get(root, "buffers");
    size_t count = json_array_size(list);

    if (!json_is_array(list))
        return program__refuse(reader, "buffers", list, "a list of buffers");
    reader->program->buffers = calloc(count + 1, sizeof *reader->program->buffers);
    if (!reader->program->buffers)
        return program__no_memory(reader);
    for (size_t i = 0; i < count; i++)
        if (read_buffer(reader, i, json_array_get(list, i)))
            return -1;
    return 0;
}
