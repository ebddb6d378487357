/* SPDX-License-Identifier: MIT */
/*
 * pool.c - see pool.h. The first chunk has 4 KiB, further ones have 64 KiB; a larger
 * allocation gets a chunk of its own.
 */
#include "util/pool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__ /* sees overruns of what malloc returned alone */
#define FIRST_BYTES 0
#define CHUNK_BYTES 0
#else
#define FIRST_BYTES 4096
#define CHUNK_BYTES 65536
#endif

struct pool_chunk {
    struct pool_chunk *next;
    size_t used, bytes;
    _Alignas(max_align_t) char data[];
};

static struct pool_chunk *add_chunk(struct pool *pool, size_t bytes)
{
    size_t room = pool->chunks ? CHUNK_BYTES : FIRST_BYTES;
    struct pool_chunk *chunk;

    room = bytes > room ? bytes : room;
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
        need = SIZE_MAX;
    need -= need % align;
    if (!chunk || chunk->bytes - chunk->used < need)
        chunk = add_chunk(pool, need);
    if (!chunk) {
        pool->failed = true;
        return NULL;
    }
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

bool symm__pool_grow(struct pool *pool, void **list, int count, int *room, size_t bytes)
{
    const int more = 2 * *room + 64;
    void *grown;

    if (count < *room)
        return true;
    grown = symm__pool_alloc(pool, (size_t)more, bytes);
    if (!grown)
        return false;
    if (count > 0)
        memcpy(grown, *list, (size_t)count * bytes);
    *list = grown;
    *room = more;
    return true;
}

void symm__pool_free(struct pool *pool)
{
    pool->failed = false;
    while (pool->chunks) {
        struct pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        free(chunk);
    }
}
