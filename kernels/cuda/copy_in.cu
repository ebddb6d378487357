/* SPDX-License-Identifier: MIT */
/*
 * copy_in.cu - the five collectives for any memory and any size: through the stage.
 *
 * In each round a block copies its part of the input into its part of a slot of this rank's
 * stage, passes a barrier with the same block of every peer, and reads what it needs from
 * the peers' stages: exactly what their blocks of the same number have written. Slots
 * alternate. Sizes and parts follow from the call alone, so all ranks agree about them; the
 * pointers may be aligned to their elements only, and differently on each rank.
 *
 * When a slot is free. The data of a round r lies in slot r & 1 and is read after round r
 * has been passed. It is overwritten at the earliest in round r + 2, after round r + 1 has
 * been passed, in which a peer's block arrived only after it had read the data of round r.
 * When a kernel ends, peers may still read the slot of its last round, and no other: all
 * blocks have passed the last round L, so all reads of the data of L - 1 are done. The next
 * kernel's first round is L + 1, in the other slot, whatever its number of blocks. If kernels
 * of other algorithms lie between, no rank has ended them before all had begun them.
 *
 * All-reduce of more than SYMM_STAGED_ONE_SHOT bytes on more than two ranks takes two steps,
 * 2 (n - 1) / n of the bytes read instead of n - 1 times: each rank sums one n-th of the
 * staged packets, into out and over them in its own stage (which no peer reads: every rank reads
 * its own n-th of all stages), and after a second barrier the sums are read from their owners'
 * stages. A slot is then used over two rounds, so this kernel begins with an entry barrier
 * (all reads by kernels before are done), and its slots alternate by chunk, so that the last
 * chunk lies in the slot of the last round: the rule above holds for the next kernel.
 *
 * In place works for every collective: a block overwrites only packets that it has staged
 * before in the same round, or (all_gather) none that is read.
 *
 * Scratch: a slot, half of args.scratch.stage_bytes, has room for one packet of each block and
 * row: stage_bytes >= 32 x blocks x size.
 *
 * symm_{all_reduce,reduce_scatter,all_gather,all_to_all,broadcast}_copy_in_any
 */
#include "kernels/cuda/pull.cuh"

#define SYMM_STAGED_ONE_SHOT 131072 /* bytes */

typedef symm_pull_sum<SYMM_DTYPE_ANY, 0> sum_any;

/* One round's part of this block. */
struct chunk {
    uint64_t low, packets; /* of one row */
    uint64_t bytes;        /* of one row */
    uint64_t stage;        /* of row 0, in every heap */
};

SYMM_DEVICE struct chunk chunk_of(const struct symm_cuda_args &args,
                                  const struct symm_split &split, uint32_t c,
                                  uint32_t slot)
{
    uint64_t low = symm_split_low(split, c), high = symm_split_high(split, c);

    return {low, high - low, symm_bytes_within(args.bytes, low, high),
            symm_stage_at(args, split, slot)};
}

/* Row 0 .. rows - 1 of the input, args.bytes apart, into own stage. */
SYMM_DEVICE void stage(const struct symm_cuda_args &args,
                       const struct symm_split &split, const struct chunk &part)
{
    symm_copy_rows(
        split.rows, part.packets, threadIdx.x, blockDim.x,
        [&](uint32_t row) {
            return (const char *)args.in + row * args.bytes + 16 * part.low;
        },
        [&](uint32_t row) {
            return args.team.base[args.team.rank] + part.stage +
                   (uint64_t)16 * split.room * row;
        },
        [&](uint32_t) { return part.bytes; });
}

/* ---- all_reduce ------------------------------------------------------------------ */

/* Packet i of a chunk's sum into out, and over what is in own stage. */
struct to_chunk {
    const struct symm_cuda_args &args;
    struct symm_to_array out;
    uint64_t stage;
    bool also; /* in the stage: peers read it there */

    SYMM_DEVICE void keep(uint64_t i, const struct symm_packet &packet) const
    {
        if (also)
            symm_port_store_packet(
                (struct symm_packet *)(args.team.base[args.team.rank] + stage) + i,
                packet);
    }

    SYMM_DEVICE void full(uint64_t i, const struct symm_packet &packet) const
    {
        keep(i, packet);
        out.full(i, packet);
    }

    SYMM_DEVICE void part(uint64_t i, const struct symm_packet &packet) const
    {
        keep(i, packet);
        out.part(i, packet);
    }
};

/* The other ranks' shares of a chunk, `share` packets each, the next rank's first. */
SYMM_DEVICE void collect(const struct symm_cuda_args &args, const struct chunk &part,
                         uint64_t share)
{
    symm_copy_rows((uint32_t)args.team.size - 1, share, threadIdx.x, blockDim.x,
                   [&](uint32_t row) {
                       uint32_t p = symm_peer_after(args, row + 1);

                       return args.team.base[p] + part.stage + 16 * share * p;
                   },
                   [&](uint32_t row) {
                       return (char *)args.out +
                              16 * (part.low + share * symm_peer_after(args, row + 1));
                   },
                   [&](uint32_t row) {
                       uint64_t begin = share * symm_peer_after(args, row + 1);

                       return symm_bytes_within(part.bytes, begin, begin + share);
                   });
}

SYMM_KERNEL(symm_all_reduce_copy_in_any)
{
    const bool twice = args.team.size > 2 && args.bytes > SYMM_STAGED_ONE_SHOT;
    const struct symm_split split = symm_split_of(args, symm_packets(args.bytes), 1);
    const uint32_t rank = (uint32_t)args.team.rank, n = (uint32_t)args.team.size;
    struct symm_round round = symm_round_enter(args, twice);
    const uint32_t slots = round.round + (twice ? split.rounds - 1 : 1);

    SYMM_NO_UNROLL
    for (uint32_t c = 0; c < split.rounds; c++) {
        struct chunk part = chunk_of(args, split, c, slots + c);
        uint64_t share = twice ? symm_ceil(part.packets, n) : part.packets;
        uint64_t begin = twice ? share * rank : 0;

        if (round.ok)
            stage(args, split, part);
        symm_round_barrier(args, &round);
        if (round.ok) {
            struct to_chunk to = {args,
                                  {(char *)args.out + 16 * part.low, part.bytes,
                                   symm_element_size(args.dtype)},
                                  part.stage,
                                  twice};

            sum_any::run(args, symm_at_offset{args, part.stage}, part.bytes,
                         begin + threadIdx.x, blockDim.x,
                         symm_least(begin + share, part.packets),
                         symm_aligned(args.out), to);
        }
        if (twice) {
            symm_round_barrier(args, &round);
            if (round.ok)
                collect(args, part, share);
        }
    }
    symm_round_end(args, &round, false);
}

/* ---- The others ------------------------------------------------------------------ */

/* Round by round, where `sends`, `rows` rows go into own stage; after the barrier take(part, row)
 * reads peers' stages; row: bytes from a row there to the next. */
template <class TAKE>
SYMM_DEVICE void through_stage(const struct symm_cuda_args &args, uint32_t rows,
                               bool sends, const TAKE &take)
{
    const struct symm_split split = symm_split_of(args, symm_packets(args.bytes), rows);
    struct symm_round round = symm_round_enter(args, false);

    SYMM_NO_UNROLL
    for (uint32_t c = 0; c < split.rounds; c++) {
        const struct chunk part = chunk_of(args, split, c, round.round + 1);

        if (round.ok && sends)
            stage(args, split, part);
        symm_round_barrier(args, &round);
        if (round.ok)
            take(part, (uint64_t)16 * split.room);
    }
    symm_round_end(args, &round, false);
}

SYMM_KERNEL(symm_reduce_scatter_copy_in_any)
{
    through_stage(
        args, (uint32_t)args.team.size, true,
        [&](const struct chunk &part, uint64_t row) {
            struct symm_to_array to = {(char *)args.out + 16 * part.low, part.bytes,
                                       symm_element_size(args.dtype)};

            sum_any::run(
                args, symm_at_offset{args, part.stage + row * (uint32_t)args.team.rank},
                part.bytes, threadIdx.x, blockDim.x, part.packets,
                symm_aligned(args.out), to);
        });
}

SYMM_KERNEL(symm_all_gather_copy_in_any)
{
    char *const own = (char *)args.out + (uint32_t)args.team.rank * args.bytes;
    const uint32_t skip = own == args.in ? 1 : 0; /* in place: it is there */

    through_stage(args, 1, true, [&](const struct chunk &part, uint64_t) {
        symm_copy_rows(
            (uint32_t)args.team.size - skip, part.packets, threadIdx.x, blockDim.x,
            [&](uint32_t row) {
                return args.team.base[symm_peer_after(args, row + skip)] + part.stage;
            },
            [&](uint32_t row) {
                return (char *)args.out + 16 * part.low +
                       symm_peer_after(args, row + skip) * args.bytes;
            },
            [&](uint32_t) { return part.bytes; });
    });
}

SYMM_KERNEL(symm_all_to_all_copy_in_any)
{
    const uint32_t size = (uint32_t)args.team.size;

    through_stage(args, size, true, [&](const struct chunk &part, uint64_t width) {
        const uint64_t from = part.stage + width * (uint32_t)args.team.rank;

        symm_copy_rows(
            size, part.packets, threadIdx.x, blockDim.x,
            [&](uint32_t row) {
                return args.team.base[symm_peer_after(args, row)] + from;
            },
            [&](uint32_t row) {
                return (char *)args.out + 16 * part.low +
                       symm_peer_after(args, row) * args.bytes;
            },
            [&](uint32_t) { return part.bytes; });
    });
}

/* The root stages, every rank reads the root's stage; the root too, unless it is in place. */
SYMM_KERNEL(symm_broadcast_copy_in_any)
{
    const bool root = args.team.rank == args.root;

    through_stage(args, 1, root, [&](const struct chunk &part, uint64_t) {
        if (root && args.in == args.out)
            return;
        symm_copy_rows(
            1, part.packets, threadIdx.x, blockDim.x,
            [&](uint32_t) { return args.team.base[args.root] + part.stage; },
            [&](uint32_t) { return (char *)args.out + 16 * part.low; },
            [&](uint32_t) { return part.bytes; });
    });
}
