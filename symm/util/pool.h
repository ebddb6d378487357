/* SPDX-License-Identifier: MIT */
/*
 * pool.h - memory that is freed all at once: of one program or plan, or of one call.
 *
 * Allocations are zeroed and aligned for any type, and last until the pool is freed. The
 * functions return NULL where memory is exhausted or a size overflows, and set no error
 * message. `failed` is then set, so a caller may allocate several lists and test once.
 */
#ifndef SYMM_UTIL_POOL_H
#define SYMM_UTIL_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct pool_chunk;

struct pool {
    struct pool_chunk *chunks; /* newest first */
    bool failed;
};

void *symm__pool_alloc(struct pool *pool, size_t count, size_t bytes);
char *symm__pool_copy(struct pool *pool, const char *text);
char *symm__pool_format(struct pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/*
 * Room for one more element of `bytes` bytes in *list, of which `count` are used; a full
 * list moves. false: no memory.
 */
bool symm__pool_grow(struct pool *pool, void **list, int count, int *room,
                     size_t bytes);
void symm__pool_free(struct pool *pool); /* empty afterwards, and usable again */

#endif
