/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_two_shot_pull.cu - two-shot all-reduce that only reads peers' memory: their inputs;
 * any output.
 *
 * The array is cut into one slice of whole packets for each rank. A rank sums its slice of all
 * inputs into its own stage (and its own out), and after a barrier reads the other slices
 * from the stages of their owners. Block b of every rank has the same part of each slice, in
 * as many rounds as its part of a stage slot demands; a barrier is between a block and the
 * same blocks of the peers, which read exactly what it has written.
 *
 * Entry barrier (args.flags): the inputs are written. One barrier for each round of staging:
 * the sums are in the stages. It is the exit barrier too: a block that passes the last one
 * knows that its peers have read their parts of this rank's input, and when all blocks have
 * passed, no peer reads it any more; SYMM_CUDA_EXIT_BARRIER changes nothing.
 *
 * The stage has two slots; the sums of round r of the channel lie in slot r & 1. They are
 * written after round r - 1 has been passed, in which every peer's block arrived only after
 * it had read what it needed of round r - 2. So it is across kernels: when a kernel has
 * ended, its peers may still read the slot of its last round, and no other; the next kernel
 * begins with the other one. (Kernels that stage without an entry barrier rely on that; see
 * copy_in.cu.) Rounds that other algorithms made between count as well: a rank that has
 * completed one knows that all peers have begun it.
 *
 * in == out: a rank overwrites its slice q only after the barrier in which block b of rank q
 * has arrived, when that has read this part of slice q here. No peer reads its own slice.
 *
 * symm_all_reduce_two_shot_pull_{bfloat16,float16,float32}_n{2,4,8}: SUM;
 * symm_all_reduce_two_shot_pull_any, which is also by pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

/* Packet i of the sum into own out, and into own stage for the peers. */
struct to_both {
    struct symm_to_array out;
    struct symm_packet *stage; /* has packet i at its place i */

    SYMM_DEVICE void full(uint64_t i, const struct symm_packet &packet) const
    {
        symm_port_store_packet(stage + i, packet);
        out.full(i, packet);
    }

    SYMM_DEVICE void part(uint64_t i, const struct symm_packet &packet) const
    {
        symm_port_store_packet(stage + i, packet);
        out.part(i, packet);
    }
};

/* The packets [low, high) of all other ranks' slices, the next rank's first. */
SYMM_DEVICE void collect(const struct symm_cuda_args &args, uint64_t slice,
                         uint64_t low, uint64_t high, uint64_t stage)
{
    symm_copy_rows((uint32_t)args.team.size - 1, high - low, threadIdx.x, blockDim.x,
                   [&](uint32_t row) {
                       return args.team.base[symm_peer_after(args, row + 1)] + stage;
                   },
                   [&](uint32_t row) {
                       return (char *)args.out +
                              16 * (symm_peer_after(args, row + 1) * slice + low);
                   },
                   [&](uint32_t row) {
                       uint64_t begin = symm_peer_after(args, row + 1) * slice;

                       return symm_bytes_within(args.bytes, begin + low, begin + high);
                   });
}

template <int DTYPE, int N> SYMM_DEVICE void two_shot(const struct symm_cuda_args &args)
{
    const symm_arrays arrays(args);
    const uint64_t packets = symm_packets(args.bytes);
    const uint64_t slice = symm_ceil(packets, (uint32_t)args.team.size);
    const uint64_t own = slice * (uint32_t)args.team.rank;
    const struct symm_split split = symm_split_of(args, slice, 1);
    struct symm_round round =
        symm_round_enter(args, args.flags & SYMM_CUDA_ENTRY_BARRIER, arrays);

    SYMM_NO_UNROLL
    for (uint32_t c = 0; c < split.rounds; c++) {
        uint64_t low = symm_split_low(split, c), high = symm_split_high(split, c);
        uint64_t stage = symm_stage_at(args, split, round.round + 1);

        if (round.ok) {
            struct to_both to = {
                {(char *)args.out, args.bytes, symm_element_size(args.dtype)},
                (struct symm_packet *)(args.team.base[args.team.rank] + stage) -
                    (own + low)};

            symm_pull_sum<DTYPE, N>::run(
                args, arrays.in(0), args.bytes, own + low + threadIdx.x, blockDim.x,
                symm_least(own + high, packets), symm_aligned(args.out), to);
        }
        symm_round_barrier(args, &round);
        if (round.ok)
            collect(args, slice, low, high, stage);
    }
    symm_round_end(args, &round, false);
}

#define SYMM_TWO_SHOT(name, dtype, n)                                                  \
    SYMM_KERNEL_ARRAYS(symm_all_reduce_two_shot_pull_##name)                           \
    {                                                                                  \
        two_shot<dtype, n>(args);                                                      \
    }
#if !defined(SYMM_BY_POINTER)
SYMM_HOT_MAP(SYMM_TWO_SHOT)
#endif
SYMM_TWO_SHOT(any, SYMM_DTYPE_ANY, 0)
