/* SPDX-License-Identifier: MIT */
/*
 * move_pull.cu - reduce_scatter, all_gather, all_to_all and broadcast that read peers'
 * arrays.
 *
 * Entry barrier: the same block of every rank has begun, so all that was queued before is
 * done and what is read is written. Exit barrier: all reads of this rank's memory are done
 * when the kernel ends. A plan that knows either by other means leaves it out (args.flags,
 * equal on all ranks).
 *
 * Broadcast is different: the root's own kernel puts its input into its out first, from where
 * the peers read it, so the entry barrier is always there. Much data go in parts, with a
 * barrier for each, so that the root copies one while the peers read the one before. Which
 * packet of a part a block moves depends on the packet's number alone, the same on all ranks:
 * block b reads what the root's block b has written before it arrived.
 *
 * reduce_scatter and all_to_all: out must not overlap the input. all_gather: in place
 * (in == out + rank x count) this rank's block is left where it is, and with args.in_step peers'
 * blocks are read at their own places; no rank writes what another rank reads.
 *
 * symm_{reduce_scatter,all_gather,all_to_all,broadcast}_one_shot_pull_any;
 * symm_reduce_scatter_one_shot_pull_{bfloat16,float16,float32}_n{2,4,8}: SUM; all also by
 * pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

#define SYMM_PARTS 4u
#if defined(SYMM_SIMT)
#define SYMM_PARTED 8192u
#else
#define SYMM_PARTED (4u << 20) /* bytes of a broadcast that goes in parts */
#endif

SYMM_DEVICE struct symm_round enter(const struct symm_cuda_args &args,
                                    const symm_arrays &arrays)
{
    return symm_round_enter(args, args.flags & SYMM_CUDA_ENTRY_BARRIER, arrays);
}

SYMM_DEVICE void leave(const struct symm_cuda_args &args, struct symm_round *round)
{
    symm_round_end(args, round, args.flags & SYMM_CUDA_EXIT_BARRIER);
}

template <int DTYPE, int N>
SYMM_DEVICE void reduce_scatter(const struct symm_cuda_args &args)
{
    const symm_arrays arrays(args);
    const auto from = arrays.in((uint64_t)args.team.rank * args.bytes);
    const struct symm_to_array out = {(char *)args.out, args.bytes,
                                      symm_element_size(args.dtype)};
    struct symm_round round = enter(args, arrays);

    if (round.ok)
        symm_pull_sum<DTYPE, N>::run(args, from, args.bytes, symm_thread(),
                                     symm_threads(), symm_packets(args.bytes),
                                     symm_aligned(args.out), out);
    leave(args, &round);
}

SYMM_KERNEL_ARRAYS(symm_all_gather_one_shot_pull_any)
{
    const symm_arrays arrays(args);
    char *const out = (char *)args.out;
    const bool own = out + (uint64_t)args.team.rank * args.bytes != args.in;
    const uint32_t skip = own ? 0 : 1;
    struct symm_round round = enter(args, arrays);

    if (round.ok)
        symm_copy_rows((uint32_t)args.team.size - skip, symm_packets(args.bytes),
                       symm_thread(), symm_threads(),
                       [&](uint32_t row) {
                           uint32_t p = symm_peer_after(args, row + skip);
                           int64_t ahead = (int64_t)p - args.team.rank;

                           return ahead == 0 ? (const char *)args.in
                                             : arrays.in_place(p, ahead);
                       },
                       [&](uint32_t row) {
                           return out + symm_peer_after(args, row + skip) * args.bytes;
                       },
                       [&](uint32_t) { return args.bytes; });
    leave(args, &round);
}

SYMM_KERNEL_ARRAYS(symm_all_to_all_one_shot_pull_any)
{
    const symm_arrays arrays(args);
    const auto from = arrays.in((uint64_t)args.team.rank * args.bytes);
    struct symm_round round = enter(args, arrays);

    if (round.ok)
        symm_copy_rows(
            (uint32_t)args.team.size, symm_packets(args.bytes), symm_thread(),
            symm_threads(),
            [&](uint32_t row) { return from.at(symm_peer_after(args, row)); },
            [&](uint32_t row) {
                return (char *)args.out + symm_peer_after(args, row) * args.bytes;
            },
            [&](uint32_t) { return args.bytes; });
    leave(args, &round);
}

SYMM_KERNEL_ARRAYS(symm_broadcast_one_shot_pull_any)
{
    const symm_arrays arrays(args);
    const bool root = args.team.rank == args.root;
    const char *from = root ? (const char *)args.in : arrays.out((uint32_t)args.root);
    const uint64_t packets = symm_packets(args.bytes);
    const uint32_t parts = args.bytes < SYMM_PARTED ? 1 : SYMM_PARTS;
    const uint64_t step = packets / parts / SYMM_WARP * SYMM_WARP;
    struct symm_round round = symm_round_enter(args, false, arrays);

    SYMM_NO_UNROLL
    for (uint32_t turn = 0; turn <= parts; turn++) {
        /* the root's copy of a part, the barrier, the others' */
        const uint32_t part = root ? turn : turn - 1;
        const uint64_t low = step * part,
                       high = part + 1 == parts ? packets : low + step;

        if (turn > 0)
            symm_round_barrier(args, &round);
        if (round.ok && part < parts && from != args.out)
            symm_copy_rows(
                1, high - low, symm_thread(), symm_threads(),
                [&](uint32_t) { return from + 16 * low; },
                [&](uint32_t) { return (char *)args.out + 16 * low; },
                [&](uint32_t) { return symm_bytes_within(args.bytes, low, high); });
    }
    leave(args, &round);
}

#define SYMM_REDUCE_SCATTER(name, dtype, n)                                            \
    SYMM_KERNEL_PULLS(symm_reduce_scatter_one_shot_pull_##name)                        \
    {                                                                                  \
        reduce_scatter<dtype, n>(args);                                                \
    }
SYMM_HOT_MAP(SYMM_REDUCE_SCATTER)
SYMM_REDUCE_SCATTER(any, SYMM_DTYPE_ANY, 0)
