/* SPDX-License-Identifier: MIT */
/*
 * column.cuh - the reduction of one packet over more ranks than a thread has registers for.
 *
 * A block has one warp. Each thread has a column of shared memory, with a place for the packet of
 * every rank; it fills the places in any order, and the fold takes them in rank order. Only the
 * thread itself uses its column, so nothing synchronizes. The fold is one function for all
 * kernels of a module: it is 63 small loops.
 */
#ifndef SYMM_KERNELS_CUDA_COLUMN_CUH
#define SYMM_KERNELS_CUDA_COLUMN_CUH

#include "kernels/cuda/reduce.cuh"

SYMM_DEVICE uint64_t (*symm_columns(void))[SYMM_DEVICE_RANKS][SYMM_WARP]
{
    __shared__ uint64_t column[2][SYMM_DEVICE_RANKS][SYMM_WARP]; /* 36 KiB */

    return column;
}

SYMM_DEVICE void symm_column_put(uint32_t rank, uint64_t low, uint64_t high)
{
    symm_columns()[0][rank][threadIdx.x] = low;
    symm_columns()[1][rank][threadIdx.x] = high;
}

SYMM_COLD uint64_t symm_column_fold(int dtype, int op, int n, const uint64_t *column)
{
    return symm_fold_any(dtype, op, n,
                         [&](int r) { return column[(uint32_t)r * SYMM_WARP]; });
}

/* Half of the packet, 0 or 1, over all ranks. */
SYMM_DEVICE uint64_t symm_column_unit(const struct symm_cuda_args &args, uint32_t half)
{
    return symm_column_fold(args.dtype, args.op, args.team.size,
                            &symm_columns()[half][0][threadIdx.x]);
}

SYMM_DEVICE struct symm_packet symm_column_packet(const struct symm_cuda_args &args)
{
    const uint64_t low = symm_column_unit(args, 0);

    return symm_packet_make(low, symm_column_unit(args, 1));
}

#endif
