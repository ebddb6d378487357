/* SPDX-License-Identifier: MIT */
/*
 * fused_gelu.cuh - an all-reduce of bfloat16 rows with a fused tail, as one kernel over
 * symm/device_exchange.h: out = gelu(sum of all ranks' rows + bias).
 *
 * The sum is in float32, in rank order, so all ranks get the same bits. GELU is the one by
 * tanh: 0.5 v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))). The result is rounded once, to
 * nearest, ties to even. A unit is 4 elements; rows are whole units. In place (out == in) is
 * allowed. All ranks start the same grid of one dimension.
 */
#ifndef SYMM_BENCH_FUSED_GELU_CUH
#define SYMM_BENCH_FUSED_GELU_CUH

#include <math.h>

#include "symm/device_exchange.h"

struct fused_gelu {
    const symm_device_team *team; /* of symm_team_device */
    void *workspace;      /* symmetric, of symm_device_exchange_bytes(size, room) */
    uint32_t room;        /* units that the workspace is for */
    uint32_t rows, width; /* width: units of a row */
    uint32_t tag;         /* of the call site, equal on all ranks */
    const uint64_t *in, *bias; /* rows of this rank; one row, the same on all ranks */
    uint64_t *out;
    int *failed; /* set to minus a symm_status if a thread's exchange has failed */
};

static __device__ __forceinline__ float bfloat_widen(uint64_t unit, int element)
{
    return __uint_as_float((uint32_t)(unit >> 16 * element & 0xffffu) << 16);
}

/* To nearest, ties to even; NaN stays NaN. */
static __device__ __forceinline__ uint64_t bfloat_round(float value)
{
    const uint32_t bits = __float_as_uint(value);

    return value != value ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

static __device__ __forceinline__ float gelu_tanh(float v)
{
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

/* gelu(value[0] + .. + value[size - 1] + bias) of 4 elements. */
template <int SIZE>
static __device__ __forceinline__ uint64_t gelu_unit(const uint64_t *value, int size,
                                                     uint64_t bias)
{
    uint64_t unit = 0;

    SYMM_DEVICE_UNROLL
    for (int e = 0; e < 4; e++) {
        float sum = bfloat_widen(value[0], e);

        SYMM_DEVICE_UNROLL
        for (int r = 1; r < (SIZE ? SIZE : SYMM_FEW_RANKS); r++)
            if (SIZE || r < size)
                sum += bfloat_widen(value[r], e);
        unit |= bfloat_round(gelu_tanh(sum + bfloat_widen(bias, e))) << 16 * e;
    }
    return unit;
}

/* The body of the kernel; SIZE: the team's size, or 0: any. */
template <int SIZE>
static __device__ __forceinline__ void fused_gelu_run(const fused_gelu &f)
{
    const symm_device_exchange x = {f.workspace, f.room, 0, 0, 0, f.tag, 0};
    const int size = SIZE ? SIZE : f.team->size;
    const int status = symm_device_exchange_rows<SIZE>(
        f.team, x, f.rows, f.width,
        [&](uint32_t row, uint32_t column) {
            return f.in[(uint64_t)row * f.width + column];
        },
        [&](uint32_t row, uint32_t column, const uint64_t *value) {
            f.out[(uint64_t)row * f.width + column] =
                gelu_unit<SIZE>(value, size, f.bias[column]);
        });

    if (status != 0) /* the team's record says why; its next call returns that */
        *f.failed = -status;
}

#endif
