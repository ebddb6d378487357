/* SPDX-License-Identifier: MIT */
/*
 * packet.cuh - data that is its own flag: packets of 16 bytes that a rank writes into its
 * peers' scratch and polls in its own, without fences, atomics and flags beside them.
 *
 * symm_ll: {d0, f, d1, f}, 8 bytes of payload of any bits; f = round + 1, never 0, and each
 * 8-byte half is judged by its own f. Two slots, by round & 1.
 * symm_lamport: 16 bytes of payload. A word of 0xffffffff means "not here yet"; the sender
 * turns a data word of these bits into 0x7fffffff: of floats up to 32 bits both are NaN in
 * every element, so no number changes. Not for float64 and integers. The reader
 * consumes a packet when it has it: it writes the sentinel back. Three slots, by round % 3.
 *
 * A region is [slot][packet]; a kernel divides a slot as it likes, by sender at least. What a
 * slot held before does not matter: LL judges by the round, Lamport slots are clean.
 *
 * When may a packet be written again? A thread writes its packets of a round on its peers, and
 * each is read by one thread there, its partner.
 *  (1) No rank ends call c before every rank has begun it (round.cuh), hence ended c - 1.
 *      So for a rank in c + 1 all packets of c - 1 are consumed, and clean; and so are those of c
 *      once it has received anything of c + 1 from the rank that it writes to.
 *  (2) Except in calls as in (4): in every round, unless it is a call's only one, each thread
 *      sends to and receives from a partner on each peer (that is why rounds are filled up),
 *      itself or by other threads of its block with __syncthreads between; and it sends a round
 *      only after it (or its block) has consumed the round before from ALL members. So a rank
 *      that has received round r from a rank knows that all of r - 1 is consumed there, from
 *      every sender, and however slots are divided: it may write r + 1 into the slot of r - 1.
 *      That holds from the last round of a call to the first of the next too, if the call had
 *      several; if it had one, (1) proves it.
 *  (3) LL needs no more: what is consumed is not read again. With Lamport packets the sentinel's
 *      store has to be performed before the next packet arrives. The reader executes a fence
 *      after its round r and sends r + 1 and r + 2 after that; the writer executes one after it
 *      has received r + 2, and writes r + 3. That is why there are three slots. Kernels of one
 *      round have no fence: a kernel's end is one for sentinels.
 *  (4) A call of two rounds needs neither fences nor full rounds if each thread sends the
 *      second one only after it has read a word of the peer of this call, c, by an acquiring load:
 *      a rank that has begun c has ended c - 1, so its sentinels of c - 1 are in its own
 *      memory, and the second round's slot was last used in c - 1 or before. The slot that
 *      call c + 1 begins with, too: (1).
 * (1) and (4) take a kernel's end for a fence of its loads and of stores in own memory, such
 * as sentinels (round.cuh).
 * A packet's flag would be mistaken only for that of exactly 3 x 2^30 rounds ago, if the packet
 * was not written in between.
 */
#ifndef SYMM_KERNELS_CUDA_PACKET_CUH
#define SYMM_KERNELS_CUDA_PACKET_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/round.cuh"

/* Cycles between two polls that are under way: half of what a load of own memory takes (165 to 200
 * ns on an H200). */
#define SYMM_WATCH_APART 160u

struct symm_ll {
    static constexpr uint32_t units = 1, bytes = 8, slots = 2;
    struct value {
        uint64_t unit[units];
    };

    static SYMM_DEVICE uint64_t region(const struct symm_cuda_args &args)
    {
        return args.scratch.ll;
    }

    static SYMM_DEVICE uint64_t region_bytes(const struct symm_cuda_args &args)
    {
        return args.scratch.ll_bytes;
    }

    /* A whole packet's payload of an array that is aligned to it. */
    static SYMM_DEVICE value load(const void *array, uint64_t index)
    {
        return {{((const uint64_t *)array)[index]}};
    }

    static SYMM_DEVICE void store(void *array, uint64_t index, value v)
    {
        ((uint64_t *)array)[index] = v.unit[0];
    }

    /* The same of any array, up to its end; ends: enum symm_ends. */
    static SYMM_DEVICE value gather(const void *array, uint64_t index, uint64_t size,
                                    uint32_t element, uint32_t ends)
    {
        return {{symm_unit_gather(array, 8 * index, size, element, ends)}};
    }

    static SYMM_DEVICE void scatter(void *array, uint64_t index, uint64_t size,
                                    uint32_t element, uint32_t ends, value v)
    {
        symm_unit_scatter(array, 8 * index, size, element, ends, v.unit[0]);
    }

    static SYMM_DEVICE value clean(value v)
    {
        return v;
    }

    static SYMM_DEVICE void send(struct symm_packet *to, value v, uint32_t round)
    {
        uint32_t flag = round + 1;

        symm_port_store_packet(
            to, {{(uint32_t)v.unit[0], flag, (uint32_t)(v.unit[0] >> 32), flag}});
    }

    static SYMM_DEVICE bool arrived(const struct symm_packet &packet, uint32_t round)
    {
        return packet.word[1] == round + 1 && packet.word[3] == round + 1;
    }

    static SYMM_DEVICE value open(const struct symm_packet &packet)
    {
        return {{packet.word[0] | (uint64_t)packet.word[2] << 32}};
    }

    static SYMM_DEVICE void consumed(struct symm_packet *) {}
};

struct symm_lamport {
    static constexpr uint32_t units = 2, bytes = 16, slots = 3;
    struct value {
        uint64_t unit[units];
    };

    static SYMM_DEVICE uint64_t region(const struct symm_cuda_args &args)
    {
        return args.scratch.lamport;
    }

    static SYMM_DEVICE uint64_t region_bytes(const struct symm_cuda_args &args)
    {
        return args.scratch.lamport_bytes;
    }

    static SYMM_DEVICE value load(const void *array, uint64_t index)
    {
        return open(
            symm_port_packet_if(true, (const struct symm_packet *)array + index));
    }

    static SYMM_DEVICE void store(void *array, uint64_t index, value v)
    {
        ((struct symm_packet *)array)[index] = symm_packet_make(v.unit[0], v.unit[1]);
    }

    static SYMM_DEVICE value gather(const void *array, uint64_t index, uint64_t size,
                                    uint32_t element, uint32_t ends)
    {
        return open(symm_packet_gather(array, 16 * index, size, element, ends));
    }

    static SYMM_DEVICE void scatter(void *array, uint64_t index, uint64_t size,
                                    uint32_t element, uint32_t ends, value v)
    {
        symm_packet_scatter(array, 16 * index, size, element, ends,
                            symm_packet_make(v.unit[0], v.unit[1]));
    }

    /* As peers will see it. */
    static SYMM_DEVICE value clean(value v)
    {
        struct symm_packet packet = symm_packet_make(v.unit[0], v.unit[1]);

        SYMM_UNROLL
        for (int k = 0; k < 4; k++)
            if (packet.word[k] == 0xffffffffu)
                packet.word[k] = 0x7fffffffu;
        return open(packet);
    }

    static SYMM_DEVICE void send(struct symm_packet *to, value v, uint32_t round)
    {
        (void)round;
        symm_port_store_packet(to, symm_packet_make(v.unit[0], v.unit[1]));
    }

    static SYMM_DEVICE bool arrived(const struct symm_packet &packet, uint32_t round)
    {
        (void)round;
        return packet.word[0] != 0xffffffffu && packet.word[1] != 0xffffffffu &&
               packet.word[2] != 0xffffffffu && packet.word[3] != 0xffffffffu;
    }

    static SYMM_DEVICE value open(const struct symm_packet &packet)
    {
        return {{symm_packet_unit(packet, 0), symm_packet_unit(packet, 1)}};
    }

    static SYMM_DEVICE void consumed(struct symm_packet *packet)
    {
#if defined(SYMM_PLANT_LAMPORT_CLEAR) /* for tests: a sentinel too few */
        packet += ((uintptr_t)packet & 0x30) == 0;
#endif
        symm_port_store_packet(packet,
                               {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}});
    }
};

/* Packets of a slot, of all senders together. */
template <class LINES>
SYMM_DEVICE uint32_t symm_slot_packets(const struct symm_cuda_args &args)
{
    return (uint32_t)(LINES::region_bytes(args) / 16) / LINES::slots;
}

/* Packets before the slot of a round. */
template <class LINES>
SYMM_DEVICE uint64_t symm_slot_begin(const struct symm_cuda_args &args, uint32_t round)
{
    return (uint64_t)(round % LINES::slots) * symm_slot_packets<LINES>(args);
}

/* The slot of a round in a member's scratch. */
template <class LINES>
SYMM_DEVICE struct symm_packet *symm_slot_of(const struct symm_cuda_args &args,
                                             uint32_t member, uint32_t round)
{
    return (struct symm_packet *)(args.team.base[member] + LINES::region(args)) +
           symm_slot_begin<LINES>(args, round);
}

/*
 * Begins the first round of a call of one or two. A packet's number plus slot[0], from packet
 * `share` on plus slot[1], is its place from that of packet 0 in slot 0.
 */
template <class LINES, class PLACE>
SYMM_DEVICE void symm_two_slots(const struct symm_cuda_args &args,
                                struct symm_round *round, uint32_t share,
                                PLACE (&slot)[2])
{
    struct symm_round second;

    symm_round_next(round);
    second = *round;
    symm_round_next(&second);
    slot[0] = (PLACE)symm_slot_begin<LINES>(args, round->round);
    slot[1] = (PLACE)symm_slot_begin<LINES>(args, second.round) - share;
}

/* Waits for one packet from `member`, which is to be consumed later. False: the wait has
 * failed. */
template <class LINES>
SYMM_DEVICE bool symm_packet_await(const struct symm_cuda_args &args,
                                   const struct symm_round *round,
                                   struct symm_packet *from, uint32_t member,
                                   typename LINES::value *value)
{
    struct symm_wait wait = {};
    struct symm_packet packet;

    while (!LINES::arrived(packet = symm_port_load_packet(from), round->round))
        if (!symm_wait_more(args, round->call, &wait, symm_member(member)))
            return false;
    *value = LINES::open(packet);
    return true;
}

/*
 * Waits for the packets from[r x stride] of all members r but `rank`, all at once; value[rank]
 * is left alone. SIZE 0: `size` members. CONSUME: else they are to be consumed later. acquire:
 * accesses after this call are ordered after those that the packets prove of their senders.
 * False: the wait has failed.
 */
template <class LINES, int SIZE, int MOST, bool CONSUME>
SYMM_DEVICE bool
symm_packets_get(const struct symm_cuda_args &args, const struct symm_round *round,
                 struct symm_packet *from, uint32_t stride, uint32_t size,
                 uint32_t rank, typename LINES::value (&value)[MOST], bool acquire)
{
    struct symm_wait wait = {};
    struct symm_packet packet[MOST];
    symm_members missing;

    for (;;) {
        SYMM_UNROLL
        for (uint32_t r = 0; r < MOST; r++)
            if (r != rank && (SIZE || r < size))
                packet[r] = symm_port_load_packet(from + (uint64_t)r * stride);
        missing = SYMM_NO_MEMBERS;
        SYMM_UNROLL
        for (uint32_t r = 0; r < MOST; r++)
            if (r != rank && (SIZE || r < size) &&
                !LINES::arrived(packet[r], round->round))
                symm_members_add(&missing, r);
        if (!symm_members_any(missing))
            break;
        if (!symm_wait_more(args, round->call, &wait, missing))
            return false;
    }
    SYMM_UNROLL
    for (uint32_t r = 0; r < MOST; r++) {
        if (r != rank && (SIZE || r < size)) {
            value[r] = LINES::open(packet[r]);
            if (acquire)
                symm_port_load32_acquire(&from[(uint64_t)r * stride].word[0]);
            if (CONSUME)
                LINES::consumed(from + (uint64_t)r * stride);
        }
    }
    return true;
}

template <int COUNT, class AWAITED, class FROM>
SYMM_DEVICE void symm_packets_load(const AWAITED &awaited, const FROM &from,
                                   struct symm_packet (&packet)[COUNT])
{
    SYMM_UNROLL
    for (uint32_t i = 0; i < COUNT; i++)
        if (awaited(i))
            packet[i] = symm_port_load_packet(from(i));
}

template <class LINES, int COUNT, class AWAITED, class MEMBER>
SYMM_DEVICE symm_members symm_packets_missing(
    const struct symm_round *round, const AWAITED &awaited, const MEMBER &member,
    const struct symm_packet (&packet)[COUNT])
{
    symm_members missing = SYMM_NO_MEMBERS;

    SYMM_UNROLL
    for (uint32_t i = 0; i < COUNT; i++)
        if (awaited(i) && !LINES::arrived(packet[i], round->round))
            symm_members_add(&missing, member(i));
    return missing;
}

/*
 * Waits for COUNT packets at once: those i that are awaited(i), at from(i), of member(i). They
 * are to be consumed later. False: the wait has failed.
 */
template <class LINES, int COUNT, class AWAITED, class FROM, class MEMBER>
SYMM_DEVICE bool
symm_packets_poll(const struct symm_cuda_args &args, const struct symm_round *round,
                  const AWAITED &awaited, const FROM &from, const MEMBER &member,
                  struct symm_packet (&packet)[COUNT])
{
    struct symm_wait wait = {};

    for (;;) {
        symm_members missing;

        symm_packets_load(awaited, from, packet);
        missing = symm_packets_missing<LINES>(round, awaited, member, packet);
        if (!symm_members_any(missing))
            return true;
        if (!symm_wait_more(args, round->call, &wait, missing))
            return false;
    }
}

/*
 * The same with two polls under way, half a load's latency apart. A packet that arrives right
 * after a poll is seen by the next one: after half a latency instead of a whole one. It pays where
 * many threads wait for each other's packets, since then the last of them counts; between two
 * ranks the one that is ahead hands such a delay on, call after call. A thread that waits for
 * itself alone gains less than the loads cost the others.
 */
template <class LINES, int COUNT, class AWAITED, class FROM, class MEMBER>
SYMM_DEVICE bool
symm_packets_watch(const struct symm_cuda_args &args, const struct symm_round *round,
                   const AWAITED &awaited, const FROM &from, const MEMBER &member,
                   struct symm_packet (&packet)[COUNT])
{
    struct symm_packet next[COUNT];
    struct symm_wait wait = {};

    symm_packets_load(awaited, from, packet);
    symm_port_pause(symm_port_clock() + SYMM_WATCH_APART);
    symm_packets_load(awaited, from, next);
    for (;;) {
        const symm_members missing =
            symm_packets_missing<LINES>(round, awaited, member, packet);

        if (!symm_members_any(missing))
            return true;
        symm_packets_load(awaited, from, packet);
        if (!symm_members_any(
                symm_packets_missing<LINES>(round, awaited, member, next)))
            break;
        symm_packets_load(awaited, from, next);
        if (!symm_wait_more(args, round->call, &wait, missing))
            return false;
    }
    SYMM_UNROLL
    for (uint32_t i = 0; i < COUNT; i++)
        packet[i] = next[i];
    return true;
}

template <class LINES, int SIZE, int MOST>
SYMM_DEVICE void symm_packets_consume(struct symm_packet *from, uint32_t stride,
                                      uint32_t size, uint32_t rank)
{
    SYMM_UNROLL
    for (uint32_t r = 0; r < MOST; r++)
        if (r != rank && (SIZE || r < size))
            LINES::consumed(from + (uint64_t)r * stride);
}

/* Waits for a packet, and consumes it; the next function does so for those of all members. */
template <class LINES>
SYMM_DEVICE bool symm_packet_wait(const struct symm_cuda_args &args,
                                  const struct symm_round *round,
                                  struct symm_packet *from, uint32_t member,
                                  typename LINES::value *value)
{
    const bool ok = symm_packet_await<LINES>(args, round, from, member, value);

    if (ok)
        LINES::consumed(from);
    return ok;
}

template <class LINES, int SIZE, int MOST>
SYMM_DEVICE bool
symm_packets_wait(const struct symm_cuda_args &args, const struct symm_round *round,
                  struct symm_packet *from, uint32_t stride, uint32_t size,
                  uint32_t rank, typename LINES::value (&value)[MOST])
{
    return symm_packets_get<LINES, SIZE, MOST, true>(args, round, from, stride, size,
                                                     rank, value, false);
}

/*
 * How `packets` packets are cut into rounds: each round takes the next `width` of them. With
 * more than one round, width is a multiple of `step`, the packets that all threads of the grid
 * move at once, so that every thread takes part in every round; what lies after the end is
 * sent as zeros. room: packets that a round has space for, at least `step`.
 */
struct symm_rounds {
    uint32_t rounds, width;
};

SYMM_DEVICE struct symm_rounds symm_rounds_of(uint64_t packets, uint32_t room,
                                              uint32_t step)
{
    struct symm_rounds cut = {1, (uint32_t)packets};
    uint64_t share;

    if (packets <= room)
        return cut;
    room -= room % step;
    cut.rounds = (uint32_t)((packets + room - 1) / room);
    share = (packets + cut.rounds - 1) / cut.rounds;
    cut.width = (uint32_t)((share + step - 1) / step) * step;
    return cut;
}

/* Packets of an array; a call of nothing moves one packet of padding. */
template <class LINES> SYMM_DEVICE uint64_t symm_packets_of(uint64_t bytes)
{
    return bytes == 0 ? 1 : (bytes + LINES::bytes - 1) / LINES::bytes;
}

#define SYMM_COLUMNS 256 /* threads of a block that reduces through columns, at most */

/*
 * The reduction over value[0 .. n - 1] of one thread: unrolled where all is known, else
 * through a column of shared memory of the thread's own.
 */
template <class LINES, int DTYPE, int OP, int SIZE, int MOST>
SYMM_DEVICE typename LINES::value
symm_value_fold(const struct symm_cuda_args &args, uint32_t size,
                const typename LINES::value (&value)[MOST])
{
    typename LINES::value result;

    if constexpr (SIZE > 0) {
        SYMM_UNROLL
        for (uint32_t u = 0; u < LINES::units; u++) {
            symm_fold<DTYPE, OP> fold;

            fold.first(value[0].unit[u]);
            SYMM_UNROLL
            for (int r = 1; r < SIZE; r++)
                fold.next(value[r].unit[u]);
            result.unit[u] = fold.done(SIZE);
        }
    } else {
        __shared__ uint64_t column[MOST][SYMM_COLUMNS];

        SYMM_NO_UNROLL
        for (uint32_t u = 0; u < LINES::units; u++) {
            uint64_t done;

            SYMM_UNROLL
            for (int r = 0; r < MOST; r++)
                column[r][threadIdx.x] =
                    u == 0 ? value[r].unit[0] : value[r].unit[LINES::units - 1];
            done = symm_fold_any(args.dtype, args.op, (int)size,
                                 [&](int r) { return column[r][threadIdx.x]; });
            if (u == 0)
                result.unit[0] = done;
            else
                result.unit[LINES::units - 1] = done;
        }
    }
    return result;
}

#endif
