/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_inplace.cu - two-shot all-reduce that reads every rank's input and stores into
 * every rank's output.
 *
 * The array is cut into one slice of whole lines of 128 bytes for each rank. A rank sums its
 * slice of all inputs and stores the result into that slice of every rank's output: each rank
 * reads and writes (n - 1) / n of the bytes over its links, and nothing is staged.
 *
 * Entry barrier: all inputs are written, and no earlier kernel uses any output. Exit barrier,
 * always: this block's stores are visible to the peers that see it arrive, and the kernel
 * ends when all peers' blocks have arrived, that is when all slices of this rank's output
 * are there. It also shows that no peer reads this rank's input any more.
 *
 * in == out: packet i is read from every rank, and written to every rank, by one thread of one
 * rank alone (the owner of the slice), which has all n values in registers before it stores:
 * no read can see a result. Other overlaps of in and out are not allowed.
 *
 * symm_all_reduce_two_shot_inplace_{bfloat16,float16,float32}_n{2,4,8}: SUM;
 * symm_all_reduce_two_shot_inplace_any; all also by pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

/* n of a loop over all ranks: a constant where it is known. */
template <int N> SYMM_DEVICE uint32_t ranks(const struct symm_cuda_args &args)
{
    return N > 0 ? (uint32_t)N : (uint32_t)args.team.size;
}

/* Packet i of the result to every rank, the next rank first, this rank last. */
template <int N> struct to_all {
    const struct symm_cuda_args &args;
    const symm_arrays &arrays;
    uint32_t element;

    SYMM_DEVICE char *at(uint32_t k) const
    {
        return arrays.out(symm_peer_after(args, k));
    }

    SYMM_DEVICE void full(uint64_t i, const struct symm_packet &packet) const
    {
#if defined(SYMM_WIDE)
        SYMM_NO_UNROLL
        for (uint32_t k = 1; k < ranks<N>(args); k++)
            symm_port_store_packet((struct symm_packet *)at(k) + i, packet);
#else
        SYMM_UNROLL
        for (uint32_t k = 1; k < (N > 0 ? N : SYMM_FEW_RANKS); k++)
            if (k < ranks<N>(args))
                symm_port_store_packet((struct symm_packet *)at(k) + i, packet);
#endif
        symm_port_store_packet((struct symm_packet *)at(0) + i, packet);
    }

    SYMM_DEVICE void part(uint64_t i, const struct symm_packet &packet) const
    {
        SYMM_NO_UNROLL
        for (uint32_t k = 0; k < ranks<N>(args); k++)
            symm_packet_scatter(at(k), 16 * i, args.bytes, element, false, packet);
    }
};

template <int DTYPE, int N> SYMM_DEVICE void in_place(const struct symm_cuda_args &args)
{
    const symm_arrays arrays(args);
    const uint64_t packets = symm_packets(args.bytes);
    const uint64_t slice = 8 * symm_ceil(symm_ceil(packets, 8), ranks<N>(args));
    const uint64_t low = slice * (uint32_t)args.team.rank;
    const struct to_all<N> out = {
        args, arrays, symm_element_size(args.dtype)
    };
    struct symm_round round =
        symm_round_enter(args, args.flags & SYMM_CUDA_ENTRY_BARRIER, arrays);

    if (round.ok)
        symm_pull_sum<DTYPE, N>::run(
            args, arrays.in(0), args.bytes, low + symm_thread(), symm_threads(),
            symm_least(low + slice, packets), arrays.out_aligned(), out);
    symm_round_end(args, &round, true);
}

#define SYMM_IN_PLACE(name, dtype, n)                                                  \
    SYMM_KERNEL_ARRAYS(symm_all_reduce_two_shot_inplace_##name)                        \
    {                                                                                  \
        in_place<dtype, n>(args);                                                      \
    }
SYMM_HOT_MAP(SYMM_IN_PLACE)
SYMM_IN_PLACE(any, SYMM_DTYPE_ANY, 0)
