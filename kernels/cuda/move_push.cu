/* SPDX-License-Identifier: MIT */
/*
 * move_push.cu - two_shot_inplace of all_gather, all_to_all and broadcast: a rank stores into the
 * outputs of the others. A link carries stores faster than loads, and more of them go
 * at once than what a rank waits for (move_pull.cu).
 *
 * Entry, always: a rank that stores knows that every rank has begun this call, hence ended the ones
 * before, and no rank uses an output any more. Exit, always: all stores into this rank's
 * output have arrived when the kernel ends.
 *
 * all_gather, all_to_all: each rank stores its blocks where they belong, in one shot.
 *
 * broadcast, two shots: the array is cut into a slice for each rank but the root, its owner.
 * The root stores each slice to its owner only, and the owners pass theirs on, so that no
 * link carries the array more than once. It goes in parts, each a round: the root arrives
 * at the owners when it has sent a part of every slice, and they pass it on after that.
 * Block b of every rank has the same packets of each slice, so rounds between blocks of one
 * number suffice. In round 0 the owners report to the root alone that they have begun: its part 1
 * reports all of them to each other. If there is only one owner, it has all when the root has
 * arrived; if there are more, there is an exit barrier.
 *
 * Why a round's word may be written again (words lie two deep; part p is round p, the exit
 * barrier the last): after a part the root waits for the owners' words of the round before,
 * then arrives, and an owner reports to the root that it has seen each part but the last. So the
 * root writes the word of round p + 2 when the owners have seen p; an owner writes its own
 * after the root's of p + 1 at least, which follows the reading of p; and owners have only
 * the exit barrier's words for each other: the root's part 1 proves that their readers have
 * ended the calls before. As in any call, a rank that ends it knows that all its words but those of
 * the last round have been read. tests/model/relay.pml is the model of this for Spin.
 *
 * In place is fine: a rank's own block is left where it is (all_gather: in == out + rank x
 * count; broadcast: in == out). all_to_all: out must not overlap the input.
 *
 * symm_{all_gather,all_to_all,broadcast}_push_any; all also by pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

/* Packets of all slices that a block sends at once, at least: a round costs as much as
 * sending two or three packets a thread. Twice as many where there are more than SYMM_FEW_PARTS. */
#if defined(SYMM_SIMT)
#define SYMM_PART 12u
#else
#define SYMM_PART 960u
#endif
#define SYMM_FEW_PARTS  8u
#define SYMM_MOST_PARTS 32u

/* Where this rank's block belongs in the output of the rank k after this one. */
SYMM_DEVICE char *own_place(const struct symm_cuda_args &args,
                            const symm_arrays &arrays, uint32_t k)
{
    return arrays.out(symm_peer_after(args, k)) + (uint64_t)args.team.rank * args.bytes;
}

/* The next packets of a thread's share of this rank's block; of whole packets only. */
struct batch {
    struct symm_packet packet[SYMM_COPY_PACKETS];

    SYMM_DEVICE void load(const struct symm_cuda_args &args, uint64_t j)
    {
        SYMM_UNROLL
        for (uint32_t u = 0; u < SYMM_COPY_PACKETS; u++)
            packet[u] = symm_port_packet_if(
                j + u * symm_threads() < args.bytes / 16,
                symm_packet_at((const char *)args.in, j + u * symm_threads()));
    }

    SYMM_DEVICE void store(const struct symm_cuda_args &args, uint64_t j,
                           char *to) const
    {
        SYMM_UNROLL
        for (uint32_t u = 0; u < SYMM_COPY_PACKETS; u++)
            if (j + u * symm_threads() < args.bytes / 16)
                symm_port_store_packet(
                    (struct symm_packet *)to + j + u * symm_threads(), packet[u]);
    }
};

SYMM_KERNEL_ARRAYS(symm_all_gather_push_any)
{
    const symm_arrays arrays(args);
    const uint32_t size = (uint32_t)args.team.size;
    const bool own = own_place(args, arrays, 0) != args.in;
    const bool whole =
        ((uintptr_t)args.in | (uintptr_t)own_place(args, arrays, 0) | args.bytes) %
                16 ==
            0 &&
        arrays.out_alike();
    struct symm_round round = symm_round_begin(args, arrays, SYMM_ALL_MEMBERS);
    struct batch batch;

    if (whole) /* in flight during the entry barrier */
        batch.load(args, symm_thread());
    symm_round_wait(args, &round);
    if (round.ok && whole) {
        SYMM_NO_UNROLL
        for (uint64_t j = symm_thread(); j < args.bytes / 16;
             j += SYMM_COPY_PACKETS * symm_threads()) {
            if (j != symm_thread())
                batch.load(args, j);
            SYMM_NO_UNROLL
            for (uint32_t k = 1; k < size + own; k++)
                batch.store(args, j, own_place(args, arrays, k % size));
        }
    } else if (round.ok) {
        symm_copy_rows(
            size - !own, symm_packets(args.bytes), symm_thread(), symm_threads(),
            [&](uint32_t) { return (const char *)args.in; },
            [&](uint32_t row) { return own_place(args, arrays, row + !own); },
            [&](uint32_t) { return args.bytes; });
    }
    symm_round_end(args, &round, true);
}

SYMM_KERNEL_ARRAYS(symm_all_to_all_push_any)
{
    const symm_arrays arrays(args);
    struct symm_round round = symm_round_enter(args, true, arrays);

    if (round.ok)
        symm_copy_rows((uint32_t)args.team.size, symm_packets(args.bytes),
                       symm_thread(), symm_threads(),
                       [&](uint32_t row) {
                           return (const char *)args.in +
                                  symm_peer_after(args, row) * args.bytes;
                       },
                       [&](uint32_t row) { return own_place(args, arrays, row); },
                       [&](uint32_t) { return args.bytes; });
    symm_round_end(args, &round, true);
}

/* One block's share of a broadcast. */
struct relay {
    const struct symm_cuda_args &args;
    const symm_arrays arrays;
    const uint32_t owners; /* of slices: the ranks after the root, in their order */
    uint64_t slice, begin, end; /* packets of a slice; this block's of each */
    uint64_t part;              /* packets of a part */
    uint32_t parts;

    SYMM_DEVICE relay(const struct symm_cuda_args &a)
        : args(a), arrays(a), owners((uint32_t)a.team.size - 1),
          slice(symm_ceil(symm_packets(a.bytes), owners ? owners : 1))
    {
        const uint64_t share = whole_warps(symm_ceil(slice, gridDim.x));
        const uint64_t all = owners > 1 ? share * owners : 0;

        begin = symm_least(blockIdx.x * share, slice);
        end = symm_least(begin + share, slice);
        parts = (uint32_t)symm_least(all / SYMM_PART, SYMM_FEW_PARTS);
        if (all / (2 * SYMM_PART) > parts)
            parts = (uint32_t)symm_least(all / (2 * SYMM_PART), SYMM_MOST_PARTS);
        parts = parts ? parts : 1;
        part = whole_warps(symm_ceil(share, parts));
    }

    static SYMM_DEVICE uint64_t whole_warps(uint64_t packets)
    {
        return symm_ceil(packets, SYMM_WARP) * SYMM_WARP;
    }

    /* Part c of slice k begins at this packet of the array. */
    SYMM_DEVICE uint64_t low(uint32_t k, uint32_t c) const
    {
        return k * slice + symm_least(begin + c * part, end);
    }

    /* The owner of slice k. */
    SYMM_DEVICE uint32_t owner(uint32_t k) const
    {
        uint32_t rank = (uint32_t)args.root + 1 + k;

        return rank <= owners ? rank : rank - owners - 1;
    }

    SYMM_DEVICE char *out(uint32_t rank) const
    {
        return arrays.out(rank);
    }

    /* Part c of slice k(row) from `from` to rank(row), for `rows` rows. */
    template <class SLICE, class RANK>
    SYMM_DEVICE void copy(const char *from, uint32_t c, uint32_t rows, const SLICE &k,
                          const RANK &rank) const
    {
        symm_copy_rows(
            rows, low(0, c + 1) - low(0, c), threadIdx.x, blockDim.x,
            [&](uint32_t row) { return from + 16 * low(k(row), c); },
            [&](uint32_t row) { return out(rank(row)) + 16 * low(k(row), c); },
            [&](uint32_t row) {
                return symm_bytes_within(args.bytes, low(k(row), c),
                                         low(k(row), c + 1));
            });
    }

    /* The root sends every slice to its owner, part by part, and after that copies each into its
     * own output. */
    SYMM_DEVICE void send(struct symm_round *round) const
    {
        const symm_members others = symm_members_but((uint32_t)args.root);
        const char *in = (const char *)args.in;

        symm_round_wait(args, round, others);
        SYMM_NO_UNROLL
        for (uint32_t c = 0; c < parts; c++) {
            if (round->ok)
                copy(
                    in, c, owners, [&](uint32_t row) { return row; },
                    [&](uint32_t row) { return owner(row); });
            if (c > 0)
                symm_round_wait(args, round, others);
            symm_round_arrive(args, round, others);
            if (round->ok && in != args.out)
                copy(
                    in, c, owners > 0 ? owners : 1, [&](uint32_t row) { return row; },
                    [&](uint32_t) { return (uint32_t)args.root; });
        }
    }

    /* An owner passes on what has arrived, to the owners after it in a circle. */
    SYMM_DEVICE void pass_on(struct symm_round *round) const
    {
        const uint32_t rank = (uint32_t)args.team.rank, root = (uint32_t)args.root;
        const uint32_t mine = rank > root ? rank - root - 1 : rank + owners - root;

        SYMM_NO_UNROLL
        for (uint32_t c = 0; c < parts; c++) {
            symm_round_next(round);
            symm_round_wait(args, round, symm_member(root));
            if (threadIdx.x == 0 && c + 1 < parts && round->ok)
                symm_round_mark(args, *round, root);
            if (round->ok)
                copy((const char *)args.out, c, owners - 1,
                     [&](uint32_t) { return mine; },
                     [&](uint32_t row) { return owner((mine + 1 + row) % owners); });
        }
    }

    SYMM_DEVICE void run(void) const
    {
        const bool root = args.team.rank == args.root;
        struct symm_round round = symm_round_begin(
            args, arrays, root ? SYMM_NO_MEMBERS : symm_member((uint32_t)args.root));

        if (root)
            send(&round);
        else
            pass_on(&round);
        symm_round_end(args, &round, owners > 1);
    }
};

SYMM_KERNEL_ARRAYS(symm_broadcast_push_any)
{
    relay(args).run();
}
