/* SPDX-License-Identifier: MIT */
/*
 * norm.h - what follows the sum in symm_all_reduce_norm, on a processor: bias, residual, RMSNorm
 * and quantisation of rows, and the sum whose partial sums are rounded. Semantics: symm/norm.h.
 */
#ifndef SYMM_KERNELS_REDUCE_NORM_H
#define SYMM_KERNELS_REDUCE_NORM_H

#include "kernels/reduce/tables.h"
#include "symm/norm.h"

/*
 * sums: T[rows][hidden], of any alignment of T; may be any array of `norm` but a weight or bias.
 * `norm` has been checked. The squares of a row are added in float64, so m and what follows have
 * the same bits for every instruction set.
 */
void symm__norm_rows(const symm_norm *norm, const void *sums);

/* The sum of arrays of bfloat16, float16 or float32, rounded after each array. */
symm_reduce_fn symm__reduce_partial(symm_dtype dtype);

#endif
