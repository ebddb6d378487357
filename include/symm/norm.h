/* SPDX-License-Identifier: MIT */
/*
 * norm.h - all-reduce fused with what follows it in a transformer: bias, residual, RMSNorm and
 * quantisation to 8 bits. One call instead of three, and the sum is not read again.
 *
 * T is the call's dtype: SYMM_BFLOAT16, SYMM_FLOAT16 or SYMM_FLOAT32. T(v) rounds v to T, to
 * nearest even. All arithmetic is in float32. For each row and column:
 *
 *   s = T(in of rank 0 + in of rank 1 + ...)    float32 sum in rank order, rounded once;
 *                                               with SYMM_NORM_ROUND_PARTIAL every partial
 *                                               sum is rounded to T
 *   b = T(s + bias[column])                     without bias: s
 *   r = T(b + residual_in)                      without residual_in: b
 *   m = 1 / sqrt(mean over the row of r * r + eps)
 *   n = T(r * m * (weight_offset + weight[column]))    without weight: T(r * m)
 *   q = e4m3(n / scale)                         to nearest even, beyond +-448 it is +-448;
 *                                               SYMM_NORM_QUANT_TENSOR: e4m3(n * (1 / scale))
 *
 * So sum_out = s has the bits of symm_all_reduce, and residual_out = r those of all_reduce,
 * then add, then add. All results have the same bits on all ranks if bias, residual_in and
 * weight have. The order of the sum over a row's columns is not promised: m, and the product before
 * it is rounded to T, are within 2^-18 of their values, relatively, where no step overflows float32
 * or is smaller than its normal numbers. A NaN of n is NaN in q and no maximum of a scale.
 */
#ifndef SYMM_NORM_H
#define SYMM_NORM_H

#include "symm/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_NORM_MAX_HIDDEN 16384 /* columns of a row, at most */
#define SYMM_NORM_GROUP                                                                \
    128 /* columns that share a scale; a row's last ones may be fewer */

/* How n becomes quant_out, and what `scale` is; groups = ceil(hidden / SYMM_NORM_GROUP). */
typedef enum symm_norm_quant {
    SYMM_NORM_QUANT_NONE,
    SYMM_NORM_QUANT_TENSOR, /* scale[1], read when the call runs */
    SYMM_NORM_QUANT_ROW, /* scale[rows], written: max(|n| of the row / 448, 2^-9 / 448) */
    SYMM_NORM_QUANT_GROUP, /* scale[rows][groups], written: max(|n| of the group, 1e-10) / 448 */
    SYMM_NORM_QUANT_GROUP_COLUMN, /* the same as scale[groups][rows] */
    SYMM_NORM_QUANT_COUNT
} symm_norm_quant;

/* Elements of `scale`; 0 without a quantisation. */
static inline size_t symm_norm_scales(symm_norm_quant quant, size_t rows, size_t hidden)
{
    switch (quant) {
    case SYMM_NORM_QUANT_NONE:
        return 0;
    case SYMM_NORM_QUANT_TENSOR:
        return 1;
    case SYMM_NORM_QUANT_ROW:
        return rows;
    default:
        return rows * ((hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP);
    }
}

/* Round every partial sum to T, as FlashInfer does by default. SYMM_ERR_UNSUPPORTED where partial
 * sums are not those of the ranks in order: between hosts, and on CUDA but for 2, 4 and 8 ranks. */
#define SYMM_NORM_ROUND_PARTIAL 1u
/* No kernel before the call on its stream writes weight or bias: they may be read early. */
#define SYMM_NORM_CONSTANT 2u

/* Arrays are contiguous and aligned to their element. Memory of any kind that symm_all_reduce
 * takes; only `in` and the first of sum_out, norm_out and residual_out profit from symmetric
 * memory. An output may be `in` or residual_in itself; other overlap is not allowed. */
typedef struct symm_norm {
    size_t size; /* sizeof(symm_norm) */
    size_t rows, hidden;
    symm_dtype dtype;
    symm_norm_quant quant;
    uint32_t flags; /* SYMM_NORM_... */
    float eps;
    float weight_offset;     /* Gemma: 1 */
    uint32_t reserved;       /* 0 */
    const void *in;          /* T[rows][hidden] */
    const void *bias;        /* T[hidden], or NULL */
    const void *residual_in; /* T[rows][hidden], or NULL */
    const void *weight;      /* T[hidden], or NULL */
    void *sum_out;           /* T[rows][hidden]: s, or NULL */
    void *residual_out;      /* T[rows][hidden]: r, or NULL */
    void *norm_out;          /* T[rows][hidden]: n, or NULL */
    void *quant_out;         /* e4m3[rows][hidden]: q; NULL with SYMM_NORM_QUANT_NONE */
    float *scale; /* as symm_norm_quant says; NULL with SYMM_NORM_QUANT_NONE */
} symm_norm;

/*
 * At least one output. The ranks agree on all but addresses (rows, hidden, dtype, quant, flags,
 * eps, weight_offset, and which pointers are NULL): else SYMM_ERR_MISMATCH. rows 0 synchronises,
 * whatever the pointers are. call, work, errors: as symm_all_reduce. call->algorithm "lamport_push"
 * or "two_shot_push" forces the fused kernel on CUDA in teams of 4 or 8 ranks, "lamport_push" in
 * those of 2, too; else an all_reduce by that algorithm runs, then a kernel for the rest.
 * symm_explain says which.
 *   const symm_norm norm = {.size = sizeof(norm), .rows = 8, .hidden = 4096,
 *                           .dtype = SYMM_BFLOAT16, .eps = 1e-6f, .in = x, .residual_in = r,
 *                           .residual_out = r, .weight = w, .norm_out = y};
 *   symm_all_reduce_norm(team, &norm, NULL, NULL);
 */
SYMM_API symm_status symm_all_reduce_norm(symm_team *team, const symm_norm *norm,
                                          const symm_call *call,
                                          symm_work **work) SYMM_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
