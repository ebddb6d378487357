/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_two_shot_push.cu - two_shot_push: all-reduce as reduce-scatter and all-gather
 * in one kernel, both by packets that are their own flag. Any dtype, op, size of the team, count
 * and alignment: Lamport packets for floats up to 32 bits, LL packets for the rest. The owner of
 * a segment sums in rank order and sends its result out: the same bits everywhere.
 *
 * Segment p is the packets [p x segment, (p + 1) x segment) of the array; the last ones may lie
 * after its end. A thread moves packet j of every segment: sends packet j of segment p to p,
 * waits for every rank's packet j of its own segment, sends the sum to all, waits for every rank's
 * sum. It reads and writes these packets alone, so in == out is fine.
 *
 * Slot = [phase][sender][packet]. A thread's partner on each peer is the thread of the same
 * index; they send to and receive from each other in both phases of every round (also after the
 * end of the array). Why slots may be used again: packet.cuh.
 * Launch: blocks of up to SYMM_COLUMNS (256) threads; half a slot takes a packet of all
 * threads from each member.
 *
 * symm_all_reduce_two_shot_push_{bfloat16,float16,float32}_n{2,4,8}: SUM, Lamport packets;
 * symm_all_reduce_two_shot_push_float: Lamport packets; symm_all_reduce_two_shot_push_any: LL
 */
#include "kernels/cuda/packet.cuh"

template <class LINES, int SIZE> struct two_shot {
    static constexpr uint32_t most = SIZE ? SIZE : SYMM_FEW_RANKS;
    typedef typename LINES::value value;

    uint32_t size, rank, element, room; /* room: packets of one sender in one phase */
    uint64_t segment;                   /* packets */
    bool in_aligned, out_aligned;
    struct symm_rounds cut;

    SYMM_DEVICE two_shot(const struct symm_cuda_args &args)
        : size(SIZE ? SIZE : (uint32_t)args.team.size), rank((uint32_t)args.team.rank),
          element(symm_element_size(args.dtype)),
          room(symm_slot_packets<LINES>(args) / (2 * size)),
          segment((symm_packets_of<LINES>(args.bytes) + size - 1) / size),
          in_aligned(((uintptr_t)args.in & (LINES::bytes - 1)) == 0),
          out_aligned(((uintptr_t)args.out & (LINES::bytes - 1)) == 0),
          cut(symm_rounds_of(segment, room, gridDim.x * blockDim.x))
    {
    }

    SYMM_DEVICE uint32_t
    member(uint32_t i) const /* i ranks after this one, modulo the size */
    {
        return rank + i < size ? rank + i : rank + i - size;
    }

    /* Whether packet s of every segment is there and whole. */
    SYMM_DEVICE bool whole(const struct symm_cuda_args &args, uint64_t s) const
    {
        return s < segment &&
               ((size - 1) * segment + s + 1) * LINES::bytes <= args.bytes;
    }

    SYMM_DEVICE struct symm_packet *packet(const struct symm_cuda_args &args,
                                           const struct symm_round &round, uint32_t at,
                                           uint32_t phase, uint32_t sender) const
    {
        return symm_slot_of<LINES>(args, at, round.round) +
               (uint64_t)(phase * size + sender) * room;
    }

    /* Packet s of every segment to its owner; j is its place in the round. */
    SYMM_DEVICE void scatter(const struct symm_cuda_args &args,
                             const struct symm_round &round, uint64_t s,
                             uint32_t j) const
    {
        value v[most];

        if (in_aligned && whole(args, s)) {
            SYMM_UNROLL
            for (uint32_t i = 1; i < most; i++)
                if (SIZE || i < size)
                    v[i] = LINES::load(args.in, member(i) * segment + s);
            SYMM_UNROLL
            for (uint32_t i = 1; i < most; i++)
                if (SIZE || i < size)
                    LINES::send(packet(args, round, member(i), 0, rank) + j,
                                LINES::clean(v[i]), round.round);
            return;
        }
        SYMM_NO_UNROLL
        for (uint32_t i = 1; i < size; i++) {
            value w = LINES::gather(args.in, member(i) * segment + s, args.bytes,
                                    element, in_aligned);

            LINES::send(packet(args, round, member(i), 0, rank) + j, LINES::clean(w),
                        round.round);
        }
    }

    /* Packet s of this rank's segment: sum, keep, send. */
    template <int DTYPE, int OP>
    SYMM_DEVICE bool reduce(const struct symm_cuda_args &args,
                            const struct symm_round &round, uint64_t s,
                            uint32_t j) const
    {
        value v[most] = {}, own;

        own = LINES::clean(LINES::gather(args.in, rank * segment + s, args.bytes,
                                         element, in_aligned));
        SYMM_UNROLL
        for (uint32_t r = 0; r < most; r++)
            if (r == rank)
                v[r] = own;
        if (!symm_packets_wait<LINES, SIZE, (int)most>(
                args, &round, packet(args, round, rank, 0, 0) + j, room, size, rank, v))
            return false;
        own = LINES::clean(
            symm_value_fold<LINES, DTYPE, OP, SIZE, (int)most>(args, size, v));
        SYMM_UNROLL
        for (uint32_t i = 1; i < most; i++)
            if (SIZE || i < size)
                LINES::send(packet(args, round, member(i), 1, rank) + j, own,
                            round.round);
        if (s < segment)
            LINES::scatter(args.out, rank * segment + s, args.bytes, element,
                           out_aligned, own);
        return true;
    }

    /* Packet s of every rank's segment. */
    SYMM_DEVICE bool gather(const struct symm_cuda_args &args,
                            const struct symm_round &round, uint64_t s,
                            uint32_t j) const
    {
        struct symm_packet *from = packet(args, round, rank, 1, 0) + j;
        value v[most] = {};

        if (out_aligned && whole(args, s)) {
            if (!symm_packets_wait<LINES, SIZE, (int)most>(args, &round, from, room,
                                                           size, rank, v))
                return false;
            SYMM_UNROLL
            for (uint32_t r = 0; r < most; r++)
                if (r != rank && (SIZE || r < size))
                    LINES::store(args.out, r * segment + s, v[r]);
            return true;
        }
        SYMM_NO_UNROLL
        for (uint32_t r = 0; r < size; r++) {
            if (r == rank)
                continue;
            if (!symm_packet_wait<LINES>(args, &round, from + (uint64_t)r * room, r,
                                         &v[0]))
                return false;
            if (s < segment)
                LINES::scatter(args.out, r * segment + s, args.bytes, element,
                               out_aligned, v[0]);
        }
        return true;
    }
};

template <class LINES, int DTYPE, int OP, int SIZE>
SYMM_DEVICE void two_shot_push(const struct symm_cuda_args &args)
{
    const two_shot<LINES, SIZE> shot(args);
    const uint32_t begin = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t step = gridDim.x * blockDim.x, width = shot.cut.width;
    struct symm_round round = symm_round_open(args);

    for (uint32_t k = 0; k < shot.cut.rounds; k++) {
        const uint64_t first = (uint64_t)k * width;

        symm_round_next(&round);
        for (uint32_t j = begin; j < width && round.ok; j += step)
            shot.scatter(args, round, first + j, j);
        if (k == 0)
            symm_round_announce(args, &round);
        for (uint32_t j = begin; j < width && round.ok; j += step)
            round.ok = shot.template reduce<DTYPE, OP>(args, round, first + j, j);
        if (k == 0)
            symm_round_meet(args, &round, 0);
        for (uint32_t j = begin; j < width && round.ok; j += step)
            round.ok = shot.gather(args, round, first + j, j);
        if (LINES::slots == 3 && k + 1 < shot.cut.rounds)
            symm_port_fence();
    }
    __syncthreads();
    symm_round_close(args, &round);
}

SYMM_KERNEL_OF(symm_all_reduce_two_shot_push_any, SYMM_COLUMNS)
{
    two_shot_push<symm_ll, 0, 0, 0>(args);
}

SYMM_KERNEL_OF(symm_all_reduce_two_shot_push_float, SYMM_COLUMNS)
{
    two_shot_push<symm_lamport, 0, 0, 0>(args);
}

#define SYMM_TWO_SHOT(name, dtype, size)                                               \
    SYMM_KERNEL_OF(symm_all_reduce_two_shot_push_##name, SYMM_COLUMNS)                 \
    {                                                                                  \
        two_shot_push<symm_lamport, dtype, SYMM_SUM, size>(args);                      \
    }
SYMM_HOT_MAP(SYMM_TWO_SHOT)
