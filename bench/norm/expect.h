/* SPDX-License-Identifier: MIT */
/*
 * expect.h - what an all_reduce_norm has to give, by symm/norm.h, and inputs for it.
 *
 * Sums and residuals are compared bit for bit. Of what depends on the mean of squares, which is
 * computed in float64 here, every value is right that the allowed error of float32 could give. NaN
 * is right where the steps give NaN. Shares no code with the library. All memory is the host's.
 */
#ifndef BENCH_NORM_EXPECT_H
#define BENCH_NORM_EXPECT_H

#include "symm/norm.h"

#define NORM_UNITS                                                                     \
    4 /* of float32's last place: libsymm keeps it; symm/norm.h allows 32 */

/* A step of a generator of pseudo-random numbers; any state is a good one. */
uint64_t norm_random(uint64_t *state);
/* Values in (-most, most) of all magnitudes down to most / 256, a function of the seed. */
void norm_fill(symm_dtype dtype, uint64_t seed, float most, size_t count, void *to);

/* What was found to be wrong first. */
struct norm_error {
    const char *array; /* "sum_out"; NULL: nothing */
    size_t row, column;
    double found, wanted;
};

/*
 * Counts the wrong elements of all outputs that are given. `norm` has copies of the inputs as
 * they were before the call (bias, residual_in, weight, the scale of SYMM_NORM_QUANT_TENSOR) and
 * of the outputs after it; in[r]: rank r's input. No two arrays share memory. units: NORM_UNITS
 * for libsymm. SIZE_MAX: no memory.
 */
size_t norm_wrong(const symm_norm *norm, const void *const *in, int ranks, double units,
                  struct norm_error *error);
/* residual = the residual that a call gives whose residual_in it is: in chains of calls. */
void norm_advance(const symm_norm *norm, const void *const *in, int ranks,
                  void *residual);

#endif
