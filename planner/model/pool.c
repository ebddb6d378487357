/* SPDX-License-Identifier: MIT */
/*
 * pool.c - see pool.h. Chunks of 64 KiB; what is larger gets a chunk of its own.
 */
#include "model/pool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536

struct pool_chunk {
    struct pool_chunk *next;
    size_t used, bytes;
    _Alignas(max_align_t) char data[];
};

static struct pool_chunk *add_chunk(struct pool *pool, size_t bytes)
{
    size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct pool_chunk *chunk;

    if (room > SIZE_MAX / 2)
        return NULL;
    chunk = calloc(1, sizeof(*chunk) + room);
    if (!chunk)
        return NULL;
    chunk->bytes = room;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    return chunk;
}

void *symm__pool_alloc(struct pool *pool, size_t count, size_t bytes)
{
    struct pool_chunk *chunk = pool->chunks;
    const size_t align = _Alignof(max_align_t);
    size_t need;
    void *at;

    if (__builtin_mul_overflow(count, bytes, &need) ||
        __builtin_add_overflow(need, align - 1, &need))
        return NULL;
    need -= need % align;
    if (!chunk || chunk->bytes - chunk->used < need)
        chunk = add_chunk(pool, need);
    if (!chunk)
        return NULL;
    at = chunk->data + chunk->used;
    chunk->used += need;
    return at;
}

char *symm__pool_copy(struct pool *pool, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = symm__pool_alloc(pool, bytes, 1);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *symm__pool_format(struct pool *pool, const char *format, ...)
{
    va_list args;
    int length;
    char *text;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return NULL;
    text = symm__pool_alloc(pool, (size_t)length + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void symm__pool_free(struct pool *pool)
{
    while (pool->chunks) {
        struct pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        free(chunk);
    }
}
