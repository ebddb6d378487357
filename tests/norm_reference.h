/* SPDX-License-Identifier: MIT */
/*
 * norm_reference.h - checks the results of an all_reduce_norm, computed slowly and independently.
 *
 * Sum and residual are compared bit for bit with the steps of symm/norm.h, each by reference.c.
 * The norm is compared with its value in float64: it may differ by half a step of T and by
 * NORM_SLACK, relatively; scales and quantised values likewise, from the norm that was found if
 * there is one.
 */
#ifndef SYMM_TESTS_NORM_REFERENCE_H
#define SYMM_TESTS_NORM_REFERENCE_H

#include "symm/norm.h"

#define NORM_SLACK 0x1p-18 /* what symm/norm.h allows m and the product before T */

/*
 * All pointers of `norm` are memory of the host: its outputs hold what the call has written, `in`
 * is not looked at, residual_in, bias and weight are as they were before the call. in[r]: rank r's
 * input before the call. Returns how many elements are wrong; text: about the first one.
 * reference_init has been called.
 */
size_t norm_reference_check(const symm_norm *norm, const void *const *in, int ranks,
                            char *text, size_t bytes);
/* Fills an array of T with values of about that size; a few are NaN or infinite if `special`. */
void norm_reference_fill(symm_dtype dtype, uint64_t seed, size_t count, double size,
                         bool special, void *out);
/* Scales of the call: 0 without a quantisation. */
size_t norm_reference_scales(const symm_norm *norm);

#endif
