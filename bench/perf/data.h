/* SPDX-License-Identifier: MIT */
/*
 * data.h - the data that symm-perf writes into buffers, and the reference for its
 * reductions.
 *
 * A pattern is a periodic sequence of the integers 1..7 (or a reduction of such sequences),
 * encoded in one dtype. Its period, 61 elements, is prime, so that a block at the wrong offset is
 * detected. Integers up to 7 are exact in every dtype. Results follow the rules of symm.h, so
 * that every bit can be compared: rank order, float32 accumulator, one rounding; over several
 * hosts one rounding on each host and one between them. This file shares no code with the
 * library's reductions.
 */
#ifndef PERF_DATA_H
#define PERF_DATA_H

#include "symm/symm.h"

#define PERF_PERIOD  61 /* elements after which a pattern repeats */
#define PERF_REPEATS 4  /* periods per table, for longer copies */
#define PERF_TABLE   (PERF_PERIOD * PERF_REPEATS)

struct perf_pattern {
    size_t element;                      /* bytes of one element */
    unsigned char table[PERF_TABLE * 8]; /* PERF_TABLE elements of `element` bytes */
};

/* Pseudo-random integers 1..7, a function of the seed. */
void perf_pattern_make(struct perf_pattern *pattern, symm_dtype dtype, uint64_t seed);
/* The reduction of n patterns, given by their tables, element by element; `hosts` as in
 * perf_reduce. */
void perf_pattern_reduce(struct perf_pattern *pattern, symm_dtype dtype, symm_op op,
                         const void *const *tables, const int *hosts, int n);
/* Writes bytes [first, first + bytes) of the endless sequence. */
void perf_pattern_fill(const struct perf_pattern *pattern, size_t first, size_t bytes,
                       void *dst);
/* Counts elements of src that differ from the sequence; first and bytes are multiples
 * of the element. */
size_t perf_pattern_differ(const struct perf_pattern *pattern, size_t first,
                           size_t bytes, const void *src);

/* Counts elements that differ; a trailing part of an element counts as one. */
size_t perf_bytes_differ(const void *a, const void *b, size_t bytes, size_t element);

/* False: the op is bitwise and the dtype is not an integer. */
bool perf_takes(symm_dtype dtype, symm_op op);
/* The reference: dst[i] = op(src[0][i], ..., src[n-1][i]). `hosts`: a number of each
 * source's host; the sources of a host are then reduced and rounded, and after that the
 * hosts' results, in the order of the hosts' first sources. NULL: all in one step. */
void perf_reduce(symm_dtype dtype, symm_op op, const void *const *src, const int *hosts,
                 int n, size_t count, void *dst);
/* `hosts`, or NULL where symm.h promises one step over these hosts. `scatters`: it is a
 * reduce_scatter, else an all_reduce. */
const int *perf_reduce_hosts(symm_op op, bool scatters, const int *hosts, int n);

/* Convert one value to and from its bytes. Rounds to nearest even; float8 saturates. */
void perf_encode(symm_dtype dtype, double value, void *dst);
double perf_decode(symm_dtype dtype, const void *src);

#endif
