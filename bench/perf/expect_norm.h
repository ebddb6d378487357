/* SPDX-License-Identifier: MIT */
/*
 * expect_norm.h - an all_reduce_norm of a replayed program: its arrays, the call, and its
 * expected results, bit for bit.
 *
 * The mean of squares is not promised to the last bit (symm/norm.h), so calls have an eps beside
 * which it vanishes: m is a power of two then, and all else is one rounding after the other. Memory
 * of the call that is no buffer of the program holds ones; a tensor's scale there keeps results in
 * the range of 8 bits.
 */
#ifndef PERF_EXPECT_NORM_H
#define PERF_EXPECT_NORM_H

#include "symm/plan.h"

enum perf_norm_place {
    PERF_NORM_BIAS,
    PERF_NORM_RESIDUAL_IN,
    PERF_NORM_WEIGHT,
    PERF_NORM_SUM_OUT,
    PERF_NORM_RESIDUAL_OUT,
    PERF_NORM_NORM_OUT,
    PERF_NORM_QUANT_OUT,
    PERF_NORM_SCALE,
    PERF_NORM_ARRAYS
};

/* An array beside `in`. */
struct perf_norm_array {
    const char *name;
    symm_program_array where; /* buffer -1 if it is not given */
    symm_dtype dtype;
    size_t bytes;
    bool written;
};

/* By place. */
void perf_norm_list(const symm_program *program, const symm_program_op *op,
                    struct perf_norm_array arrays[PERF_NORM_ARRAYS]);
/* The place of the array that lies in the buffer, of those that are written or that are read; -1:
 * there is none, or it is another op. */
int perf_norm_array_in(const symm_program *program, const symm_program_op *op,
                       int buffer, bool written);
/* The call, its arrays by place; NULL: not given. */
symm_norm perf_norm_call(const symm_program *program, const symm_program_op *op,
                         const void *in, void *const arrays[PERF_NORM_ARRAYS]);
/* Fills an array that is read and is no buffer of the program, in memory of the host. */
void perf_norm_fill(const struct perf_norm_array *array, void *to);
/* Computes all outputs that are given. norm->in: the sums; no output is an input; memory of the
 * host. Nonzero: no memory. */
int perf_norm_rows(const symm_norm *norm);

#endif
