/* SPDX-License-Identifier: MIT */
/*
 * reference.h - the expected result of a collective, computed slowly and independently.
 *
 * Every element's value follows from (dtype, op, seed, rank, index), so that any rank
 * can compute any other's input. Reductions follow symm.h exactly: rank order, float32
 * accumulation of the small types, one rounding, by a search of the format's values.
 * Values are finite and never zero; those of PROD are near 1, so that products are, too.
 */
#ifndef SYMM_TESTS_REFERENCE_H
#define SYMM_TESTS_REFERENCE_H

#include "symm/symm.h"

#define REFERENCE_DTYPES 14
#define REFERENCE_OPS    8
#define REFERENCE_RANKS  72 /* of a reduction at most */

/* Builds tables; call once before ranks start. */
void reference_init(void);
/* Elements first .. first + count - 1 of the rank's input. */
void reference_fill(symm_dtype dtype, symm_op op, uint32_t seed, int rank, size_t first,
                    size_t count, void *out);
/* The same elements of the result over ranks 0 .. n - 1. */
void reference_reduce(symm_dtype dtype, symm_op op, uint32_t seed, int n, size_t first,
                      size_t count, void *out);
/* The reduction of n given arrays. */
void reference_combine(symm_dtype dtype, symm_op op, const void *const *in, int n,
                       size_t count, void *out);
/* Whether all bits are equal, except that a NaN equals a NaN; *where: first difference. */
bool reference_same(symm_dtype dtype, const void *a, const void *b, size_t count,
                    size_t *where);
bool reference_is_float(symm_dtype dtype);
/* False: the op is bitwise and the dtype is not an integer. */
bool reference_takes(symm_dtype dtype, symm_op op);
/* The ops that the dtype takes, repeated in a cycle: number k. */
symm_op reference_op(symm_dtype dtype, unsigned k);
/* Writes a NaN of the dtype; false: it has none. */
bool reference_nan(symm_dtype dtype, void *out);
/* Bytes of the dtype, from a table of its own. */
size_t reference_size(symm_dtype dtype);

#endif
