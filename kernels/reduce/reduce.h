/* SPDX-License-Identifier: MIT */
/*
 * reduce.h - combine n arrays elementwise, in the order given, into m arrays.
 *
 * dst[k][i] = op(src[0][i], ..., src[nsrc-1][i]) for all k < ndst and i < count.
 * The same bits for every instruction set, alignment, count and split of the range: NaN
 * results are the positive quiet NaN of the format. A dst may be one of the srcs (same
 * address); no other overlap.
 * nsrc >= 1, ndst >= 1; pointers aligned to the element. Semantics: symm.h, "Reductions".
 */
#ifndef SYMM_KERNELS_REDUCE_REDUCE_H
#define SYMM_KERNELS_REDUCE_REDUCE_H

#include "kernels/reduce/tables.h"
#include "symm/symm.h"

enum symm_isa { SYMM_ISA_C, SYMM_ISA_AVX2, SYMM_ISA_AVX512, SYMM_ISA_COUNT };

/* The best this processor and build can run. */
enum symm_isa symm__isa_best(void);
bool symm__isa_usable(enum symm_isa isa);
const char *symm__isa_name(enum symm_isa isa); /* "c", "avx2", "avx512" */
/* NULL: unknown dtype or op, bitwise op of a floating-point dtype, or isa not usable here. */
symm_reduce_fn symm__reduce_find(enum symm_isa isa, symm_dtype dtype, symm_op op);

#endif
