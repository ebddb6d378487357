/* SPDX-License-Identifier: MIT */
/*
 * pool.h - memory that is freed all at once: names and lists of one program or plan.
 *
 * Allocations are zeroed and aligned for any type, and last until the pool is freed. The
 * functions return NULL where memory is exhausted or a size overflows, and say nothing.
 */
#ifndef SYMM_PLANNER_MODEL_POOL_H
#define SYMM_PLANNER_MODEL_POOL_H

#include <stddef.h>

struct pool_chunk;

struct pool {
    struct pool_chunk *chunks; /* newest first */
};

void *symm__pool_alloc(struct pool *pool, size_t count, size_t bytes);
char *symm__pool_copy(struct pool *pool, const char *text);
char *symm__pool_format(struct pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void symm__pool_free(struct pool *pool); /* empty afterwards, and usable again */

#endif
