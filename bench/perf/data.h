/* SPDX-License-Identifier: MIT */
/*
 * data.h - what symm-perf puts into buffers, and the reference for what must come
 * out.
 *
 * A pattern is a periodic sequence of the integers 1..7 (or a reduction of such
 * sequences), encoded in one dtype. Its period, 61 elements, is prime, so that a block
 * that lands in the wrong place is seen. Integers up to 7 are exact in every dtype;
 * results follow the rules of symm.h (rank order, float32 accumulator, one rounding),
 * so that every bit can be compared. This file shares no code with the library's own
 * reductions.
 */
#ifndef PERF_DATA_H
#define PERF_DATA_H

#include "symm/symm.h"

#define PERF_PERIOD  61 /* elements after which a pattern repeats */
#define PERF_REPEATS 4  /* periods in a table: longer copies */
#define PERF_TABLE   (PERF_PERIOD * PERF_REPEATS)

struct perf_pattern {
    size_t element;                      /* bytes of one element */
    unsigned char table[PERF_TABLE * 8]; /* PERF_TABLE elements of `element` bytes */
};

/* Pseudo-random integers 1..7, a function of the seed. */
void perf_pattern_make(struct perf_pattern *pattern, symm_dtype dtype, uint64_t seed);
/* The reduction of n patterns, given by their tables, element by element. */
void perf_pattern_reduce(struct perf_pattern *pattern, symm_dtype dtype, symm_op op,
                         const void *const *tables, int n);
/* The endless sequence's bytes [first, first + bytes). */
void perf_pattern_fill(const struct perf_pattern *pattern, size_t first, size_t bytes,
                       void *dst);
/* Elements of src that differ from it; first and bytes are multiples of the element. */
size_t perf_pattern_differ(const struct perf_pattern *pattern, size_t first,
                           size_t bytes, const void *src);

/* Elements of two arrays that differ; a last part of an element counts as one. */
size_t perf_bytes_differ(const void *a, const void *b, size_t bytes, size_t element);

/* dst[i] = op(src[0][i], ..., src[n-1][i]), the reference. */
void perf_reduce(symm_dtype dtype, symm_op op, const void *const *src, int n,
                 size_t count, void *dst);

/* One value to and from its bytes. Rounds to nearest even; float8 saturates. */
void perf_encode(symm_dtype dtype, double value, void *dst);
double perf_decode(symm_dtype dtype, const void *src);

#endif
