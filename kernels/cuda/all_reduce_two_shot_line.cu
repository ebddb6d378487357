/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_two_shot_line.cu - two_shot_push (all_reduce_two_shot_push.cu) of the common
 * call: a sum of one of the common types over 2, 4 or 8 ranks by Lamport packets, and no more
 * than one slot takes, or two. Rare cases (an array that is not aligned to 16 bytes, a packet
 * that is not whole) are apart. Same bits everywhere: the owner of a segment
 * sums in rank order and sends its result out. Segments: as there, the last ones may lie
 * after the end of the array.
 *
 * symm_all_reduce_two_shot_line_...: a warp a peer, one packet of each segment a lane. A group
 * is `size` warps, a block has one or more; group g of block b has the packets
 * 32 x (b x groups + g) + lane of every segment. Warp p of a group deals with member p: it
 * sends p packet j of p's segment and waits for p's packet j of this rank's segment; the values
 * pass through shared memory, every warp sums them (so they pass only once), sends the sum to p
 * and waits for p's. The warp of this rank itself keeps the sum; in group 0 of block 0 it reads
 * the call words while the sums are in flight.
 *
 * symm_all_reduce_two_shot_wide_...: more data. A thread deals with all members: it sends all
 * its packets of every segment, then sums packet after packet of this rank's segment and sends
 * the sums, then takes the others. In one round, or two if a slot is too small. The last warp of
 * each block takes no packets: it writes the counters, and in block 0 it writes and reads the
 * call words and counts for the blocks that were not launched.
 *
 * Slot = [phase][sender][packet]. Why slots may be used again: packet.cuh, (1) and (4), for
 * which a packet may be consumed at any time in the call: here after what the peers wait for.
 * in == out is fine: one thread alone reads a packet of `in` and writes it in `out`, after it
 * has been sent or summed.
 * Launch: line: 32 x size x groups threads, a lane for every packet of a segment; wide: 32 more
 * threads than take packets; a packet of each of them fits into a slot, and a segment into two,
 * each rounded down to such packets.
 *
 * symm_all_reduce_two_shot_line_{bfloat16,float16,float32}_n{2,4,8}: SUM
 * symm_all_reduce_two_shot_wide_{bfloat16,float16,float32}_n{4,8}: SUM
 */
#include "kernels/cuda/warp_exchange.cuh"

typedef struct symm_lamport::value line_value;

template <bool WHOLE> SYMM_DEVICE uint32_t ends_of(const void *array)
{
    return WHOLE ? (uint32_t)SYMM_ENDS_WHOLE : (uint32_t)symm_aligned(array);
}

/* Packets of a segment. */
template <int SIZE> SYMM_DEVICE uint32_t symm_segment(const struct symm_cuda_args &args)
{
    return (uint32_t)((symm_packets_of<symm_lamport>(args.bytes) + SIZE - 1) / SIZE);
}

/* WHOLE: in and out both begin and end at multiples of 16; the other case is not compiled. */
template <int DTYPE, int SIZE, bool WHOLE>
SYMM_DEVICE void packet(const struct symm_cuda_args &args)
{
    line_value(*const hop)[SYMM_WARP] = symm_warp_exchange_space();
    const symm_warp_exchange_lane<symm_lamport, SIZE, 2> at(args);
    const uint32_t rank = (uint32_t)args.team.rank, lane = threadIdx.x % SYMM_WARP;
    const uint32_t segment = symm_segment<SIZE>(args),
                   element = symm_element_size(DTYPE);
    const uint32_t place = at.member * segment + at.j; /* of p's packet, in and out */
    const bool mine = at.j < segment, peer = at.member != rank;
    line_value v = {};
    struct symm_round round = symm_round_open(args, [&] {
        if (mine)
            v = symm_lamport::gather(args.in, place, args.bytes, element,
                                     ends_of<WHOLE>(args.in));
    });
    const uint64_t first = symm_slot_begin<symm_lamport>(args, symm_round_next(&round));
    const uint64_t second = first + SIZE * at.room;

    v = symm_lamport::clean(v);
    if (mine && peer && round.ok)
        symm_lamport::send(at.to + first, v, round.round);
    symm_round_announce(args, &round);
    if (mine && peer && round.ok)
        round.ok = symm_packet_await<symm_lamport>(args, &round, at.from + first,
                                                   at.member, &v);
    hop[at.warp][lane] = v;
    symm_round_agree(args, &round);
    if (mine && round.ok) {
        v = symm_lamport::clean(
            symm_warp_exchange_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE>(
                args, &hop[at.warp - at.member]));
        if (peer) {
            symm_lamport::send(at.to + second, v, round.round);
            symm_lamport::consumed(at.from + first);
            round.ok = symm_packet_await<symm_lamport>(args, &round, at.from + second,
                                                       at.member, &v);
        }
        if (round.ok)
            symm_lamport::scatter(args.out, place, args.bytes, element,
                                  ends_of<WHOLE>(args.out), v);
        if (round.ok && peer)
            symm_lamport::consumed(at.from + second);
    }
    if (at.warp == rank) {
        symm_round_skip(args, round, lane, SYMM_WARP);
        symm_round_meet(args, &round, at.warp);
        if (lane == 0)
            symm_round_leave(args, round);
    }
}

/* ---- Many packets ------------------------------------------------------------------ */

/* A thread's view of the call; its packets of a segment are begin, and on by step. */
template <int DTYPE, int SIZE, bool WHOLE> struct wide {
    const struct symm_cuda_args &args;
    const uint32_t rank, room,
        segment; /* packets of a sender in a phase, of a segment */
    const uint32_t width, begin, step,
        share; /* share: packets of a segment in a round */
    struct symm_round round;
    struct symm_packet *const from; /* member 0's packet 0 in slot 0 */
    uint32_t slot[2];               /* from a packet's number to its place, by round */

    SYMM_DEVICE wide(const struct symm_cuda_args &a)
        : args(a), rank((uint32_t)a.team.rank),
          room(symm_slot_packets<symm_lamport>(a) / (2 * SIZE)),
          segment(symm_segment<SIZE>(a)), width(blockDim.x - SYMM_WARP),
          begin(blockIdx.x * width + threadIdx.x), step(gridDim.x * width),
          share(segment <= room ? segment : room / step * step),
          round(symm_round_open(a)), from(symm_slot_of<symm_lamport>(a, rank, 0))
    {
        symm_two_slots<symm_lamport>(a, &round, share, slot);
    }

    SYMM_DEVICE uint32_t member(uint32_t i) const /* i ranks after this one, modulo SIZE */
    {
        return rank + i < SIZE ? rank + i : rank + i - SIZE;
    }

    /* Where packet j of a phase and a sender is, from that sender's packet 0. */
    SYMM_DEVICE uint32_t offset(uint32_t j) const
    {
        return (j < share ? slot[0] : slot[1]) + j;
    }

    /* Where packet j is sent at member(i): phase 0: of its segment; 1: of this rank's. */
    SYMM_DEVICE struct symm_packet *to(uint32_t i, uint32_t phase, uint32_t j) const
    {
        return symm_slot_of<symm_lamport>(args, member(i), 0) +
               (phase * SIZE + rank) * room + offset(j);
    }

    /* Packet j of member m's segment. */
    SYMM_DEVICE line_value load(uint32_t m, uint32_t j) const
    {
        return symm_lamport::gather(args.in, m * segment + j, args.bytes,
                                    symm_element_size(DTYPE), ends_of<WHOLE>(args.in));
    }

    SYMM_DEVICE void store(uint32_t m, uint32_t j, line_value v) const
    {
        symm_lamport::scatter(args.out, m * segment + j, args.bytes,
                              symm_element_size(DTYPE), ends_of<WHOLE>(args.out), v);
    }

    /* Packet j of every segment to its owner; their loads are under way together. */
    SYMM_DEVICE void scatter(uint32_t j) const
    {
        line_value v[SIZE];

        SYMM_UNROLL
        for (uint32_t i = 1; i < SIZE; i++)
            v[i] = load(member(i), j);
        SYMM_UNROLL
        for (uint32_t i = 1; i < SIZE; i++)
            v[i] = symm_lamport::clean(v[i]);
        SYMM_UNROLL
        for (uint32_t i = 1; i < SIZE; i++)
            symm_lamport::send(to(i, 0, j), v[i], round.round);
    }

    SYMM_DEVICE void scatter_round(uint32_t j, uint32_t end) const
    {
        SYMM_NO_UNROLL
        for (; j < end && j < segment && round.ok; j += step)
            scatter(j);
    }

    /* The packets j of a phase; the first ones of a call of two rounds come before all that the
     * thread sends after them. */
    SYMM_DEVICE bool wait(uint32_t phase, uint32_t j, line_value (&v)[SIZE]) const
    {
        return symm_packets_get<symm_lamport, SIZE, SIZE, false>(
            args, &round, from + phase * SIZE * room + offset(j), room, SIZE, rank, v,
            phase == 0 && j == begin && share < segment);
    }

    SYMM_DEVICE void consume(uint32_t phase, uint32_t j) const
    {
        symm_packets_consume<symm_lamport, SIZE, SIZE>(
            from + phase * SIZE * room + offset(j), room, SIZE, rank);
    }

    /* Packet j of this rank's segment: sum, send, keep. */
    SYMM_DEVICE void reduce(uint32_t j)
    {
        line_value v[SIZE], own = symm_lamport::clean(load(rank, j));

        SYMM_UNROLL
        for (uint32_t r = 0; r < SIZE; r++)
            v[r] = own;
        round.ok = wait(0, j, v);
        if (!round.ok)
            return;
        own = symm_lamport::clean(
            symm_value_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE, SIZE>(args, SIZE, v));
        SYMM_UNROLL
        for (uint32_t i = 1; i < SIZE; i++)
            symm_lamport::send(to(i, 1, j), own, round.round);
        store(rank, j, own);
        consume(0, j);
    }

    /* Packet j of every rank's segment. */
    SYMM_DEVICE void gather(uint32_t j)
    {
        line_value v[SIZE];

        round.ok = wait(1, j, v);
        if (!round.ok)
            return;
        SYMM_UNROLL
        for (uint32_t r = 0; r < SIZE; r++)
            if (r != rank)
                store(r, j, v[r]);
        consume(1, j);
    }

    SYMM_DEVICE void run(void)
    {
        const bool takes = threadIdx.x < width;

        if (takes)
            scatter_round(begin, share);
        else
            symm_round_tell(args, round, threadIdx.x - width);
        __syncthreads(); /* it also keeps polls from delaying packets that are sent */
        if (!takes) {
            if (share < segment)
                symm_round_next(&round);
            symm_round_finish(args, &round, width / SYMM_WARP);
            return;
        }
        SYMM_NO_UNROLL
        for (uint32_t j = begin; j < segment && round.ok; j += step) {
            if (j >= share && j - share == begin)
                scatter_round(j, segment);
            reduce(j);
        }
        SYMM_NO_UNROLL
        for (uint32_t j = begin; j < segment && round.ok; j += step)
            gather(j);
    }
};

#define SYMM_PACKET(name, dtype, size)                                                 \
    SYMM_KERNEL(symm_all_reduce_two_shot_line_##name)                                  \
    {                                                                                  \
        if (symm_ends_of<16>(args) == SYMM_ENDS_WHOLE)                                 \
            packet<dtype, size, true>(args);                                           \
        else                                                                           \
            packet<dtype, size, false>(args);                                          \
    }
SYMM_HOT_MAP(SYMM_PACKET)

#define SYMM_WIDE(name, dtype, size)                                                   \
    SYMM_KERNEL_OF(symm_all_reduce_two_shot_wide_##name,                               \
                   SYMM_WIDE_THREADS(size) + SYMM_WARP)                                \
    {                                                                                  \
        if (symm_ends_of<16>(args) == SYMM_ENDS_WHOLE)                                 \
            wide<dtype, size, true>(args).run();                                       \
        else                                                                           \
            wide<dtype, size, false>(args).run();                                      \
    }
SYMM_WIDE(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_WIDE(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_WIDE(float16_n4, SYMM_FLOAT16, 4)
SYMM_WIDE(float16_n8, SYMM_FLOAT16, 8)
SYMM_WIDE(float32_n4, SYMM_FLOAT32, 4)
SYMM_WIDE(float32_n8, SYMM_FLOAT32, 8)
