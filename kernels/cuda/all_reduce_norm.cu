/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_norm.cu - all_reduce_norm in one shot by Lamport packets: the exchange of
 * row_exchange.cuh with the epilogue of norm.cuh. Any rows, hidden and alignment; ranks may
 * differ in alignment. args.in is what is summed; the rest is in args.norm.
 *
 * Launch: row_exchange.cuh, "Launch"; a thread has 1, 2, 4 or 8 packets of a row, the least that
 * suffices with SYMM_ROW_THREADS(size) threads.
 *
 * symm_all_reduce_norm_lamport_{bfloat16,float16,float32}_n{2,4,8}
 */
#include "kernels/cuda/norm.cuh"

template <int N> struct one_shot {
    static constexpr int ranks = N;
    static constexpr uint32_t threads = SYMM_ROW_THREADS(N);
    static constexpr bool clusters = SYMM_PORT_CLUSTERS;

    template <class EPILOGUE>
    static SYMM_DEVICE void of(const struct symm_cuda_args &args, bool whole)
    {
        symm_row_one_shot<EPILOGUE, N>(args, whole).run();
    }
};

#define SYMM_NORM(name, dtype, n)                                                      \
    SYMM_KERNEL_OF(symm_all_reduce_norm_lamport_##name,                                \
                   SYMM_ROW_THREADS(n) + SYMM_WARP)                                    \
    {                                                                                  \
        symm_norm_any<one_shot<n>, dtype>(args, args.in);                              \
    }
#if defined(SYMM_PLANT_NORM) /* for tests: those that they launch, a third of the compiler's time */
SYMM_NORM(bfloat16, SYMM_BFLOAT16, 2)
SYMM_NORM(float16, SYMM_FLOAT16, 2)
SYMM_NORM(float32, SYMM_FLOAT32, 2)
#else
SYMM_HOT_MAP(SYMM_NORM)
#endif
