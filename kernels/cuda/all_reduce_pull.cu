/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_pull.cu - one-shot all-reduce that reads every rank's input.
 *
 * Entry barrier: the same block of every rank has begun, so by stream order all that was
 * queued before the call there has finished: the inputs are written. The block's threads
 * then read any part of any input. Exit barrier: a block arrives when its reads are done
 * (their values have been stored); the kernel ends when all its blocks have seen their peers
 * arrive, so then no peer reads this rank's input any more and later kernels may overwrite it.
 * A plan that knows both by other means leaves a barrier out (args.flags, equal on all
 * ranks). out must not be the input: a peer may still read what would be overwritten. out
 * may be any memory.
 *
 * symm_all_reduce_one_shot_pull_{bfloat16,float16,float32}_n{2,4,8}: SUM;
 * symm_all_reduce_one_shot_pull_any, which is also by pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

template <int DTYPE, int N> SYMM_DEVICE void one_shot(const struct symm_cuda_args &args)
{
    const symm_arrays arrays(args);
    const struct symm_to_array out = {(char *)args.out, args.bytes,
                                      symm_element_size(args.dtype)};
    bool exit = args.flags & SYMM_CUDA_EXIT_BARRIER;
    struct symm_round round =
        symm_round_enter(args, args.flags & SYMM_CUDA_ENTRY_BARRIER, arrays);

#if defined(SYMM_PLANT_EXIT) /* for tests: some ranks read late, and none waits for them */
    for (uint64_t begin = symm_port_now();
         (round.call + (uint32_t)args.team.rank) % 2 &&
         symm_port_now() - begin < 20000;)
        symm_port_relax();
    exit = false;
#endif
    if (round.ok)
        symm_pull_sum<DTYPE, N>::run(args, arrays.in(0), args.bytes, symm_thread(),
                                     symm_threads(), symm_packets(args.bytes),
                                     symm_aligned(args.out), out);
    symm_round_end(args, &round, exit);
}

#define SYMM_ONE_SHOT(name, dtype, n)                                                  \
    SYMM_KERNEL_ARRAYS(symm_all_reduce_one_shot_pull_##name)                           \
    {                                                                                  \
        one_shot<dtype, n>(args);                                                      \
    }
#if !defined(SYMM_BY_POINTER)
SYMM_HOT_MAP(SYMM_ONE_SHOT)
#endif
SYMM_ONE_SHOT(any, SYMM_DTYPE_ANY, 0)
