/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_norm_two_shot.cu - all_reduce_norm in two shots by Lamport packets, for more rows: the
 * exchange of row_exchange.cuh with the epilogue of norm.cuh, as all_reduce_norm.cu. Every rank
 * computes every row's results from the row's sums.
 *
 * Launch: as there.
 *
 * symm_all_reduce_norm_two_shot_{bfloat16,float16,float32}_n{4,8}
 */
#include "kernels/cuda/norm.cuh"

template <int N> struct two_shot {
    static constexpr int ranks = N;
    static constexpr uint32_t threads = SYMM_ROW_THREADS(N);
    static constexpr bool clusters = false;

    template <class EPILOGUE>
    static SYMM_DEVICE void of(const struct symm_cuda_args &args, bool whole)
    {
        symm_row_two_shot<EPILOGUE, N>(args, whole).run();
    }
};

#define SYMM_NORM(name, dtype)                                                         \
    SYMM_KERNEL_OF(symm_all_reduce_norm_two_shot_##name##_n4,                          \
                   SYMM_ROW_THREADS(4) + SYMM_WARP)                                    \
    {                                                                                  \
        symm_norm_any<two_shot<4>, dtype>(args, args.in);                              \
    }                                                                                  \
    SYMM_KERNEL_OF(symm_all_reduce_norm_two_shot_##name##_n8,                          \
                   SYMM_ROW_THREADS(8) + SYMM_WARP)                                    \
    {                                                                                  \
        symm_norm_any<two_shot<8>, dtype>(args, args.in);                              \
    }
SYMM_NORM(bfloat16, SYMM_BFLOAT16)
SYMM_NORM(float16, SYMM_FLOAT16)
SYMM_NORM(float32, SYMM_FLOAT32)
