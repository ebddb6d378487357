/* SPDX-License-Identifier: MIT */
/*
 * push_wide.cu - the pushes for teams of more than SYMM_FEW_RANKS: packets that are their own flag,
 * by groups. Any dtype, op, number of ranks, count and alignment; no memory of the caller needs
 * to be symmetric.
 *
 * A block has one warp. A thread has packet j of every array: it sends it to all members and waits
 * for that of all members, SYMM_GROUP of them at once, the next rank's first. The sum is made in
 * rank order (column.cuh). It reads and writes these packets alone, so in place is fine.
 *
 * two_shot_push: as all_reduce_two_shot_push.cu. Packet j of each segment goes to the segment's
 * owner, which sends the sum to all. Lamport packets for floats up to 32 bits, LL for the rest.
 * ll_push: all_reduce and reduce_scatter in one shot; all_gather, all_to_all; broadcast, in which
 * only the root sends, so that a call has to fit into one round.
 *
 * Slot = [phase][sender][packet], of a broadcast all of it. A thread's partner on each peer is the
 * thread of the same index; they send to and receive from each other in both phases of every
 * round, also after the end of the array. Why slots may be used again: packet.cuh.
 * Launch: blocks of one warp; a packet of all threads from each member has room in a phase.
 *
 * symm_all_reduce_two_shot_push_{any,float}_wide;
 * symm_{all_reduce,reduce_scatter,all_gather,all_to_all,broadcast}_ll_push_any_wide
 */
#define SYMM_WIDE
#include "kernels/cuda/column.cuh"
#include "kernels/cuda/packet.cuh"

#define SYMM_GROUP 8u /* members that a thread sends to, or waits for, at once */

/* An array of the caller, by packets. */
template <class LINES> struct packets_of {
    char *array;
    uint64_t bytes;
    uint32_t element;

    SYMM_DEVICE bool aligned(void) const
    {
        return ((uintptr_t)array & (LINES::bytes - 1)) == 0;
    }

    SYMM_DEVICE typename LINES::value get(uint64_t i) const
    {
        return LINES::clean(LINES::gather(array, i, bytes, element, aligned()));
    }

    SYMM_DEVICE void put(uint64_t i, typename LINES::value v) const
    {
        LINES::scatter(array, i, bytes, element, aligned(), v);
    }
};

template <class LINES> struct push {
    typedef typename LINES::value value;
    typedef struct packets_of<LINES> array;

    const struct symm_cuda_args &args;
    uint32_t size, rank, room; /* room: packets of one sender in one phase */
    struct symm_rounds cut;

    SYMM_DEVICE push(const struct symm_cuda_args &a, uint64_t packets, uint32_t phases)
        : args(a), size((uint32_t)a.team.size), rank((uint32_t)a.team.rank),
          room(symm_slot_packets<LINES>(a) / (phases * size)),
          cut(symm_rounds_of(packets, room, gridDim.x * blockDim.x))
    {
    }

    /* The rank that comes k after this one. */
    SYMM_DEVICE uint32_t member(uint32_t k) const
    {
        return rank + k < size ? rank + k : rank + k - size;
    }

    /* Block m of an array of blocks. */
    SYMM_DEVICE array block(const void *at, uint32_t m) const
    {
        return {(char *)at + m * args.bytes, args.bytes, symm_element_size(args.dtype)};
    }

    SYMM_DEVICE struct symm_packet *packet(const struct symm_round &round, uint32_t at,
                                           uint32_t phase, uint32_t sender) const
    {
        return symm_slot_of<LINES>(args, at, round.round) +
               (uint64_t)(phase * size + sender) * room;
    }

    /* of(m): what goes to member m. */
    template <class OF>
    SYMM_DEVICE void send(const struct symm_round &round, uint32_t phase, uint32_t j,
                          const OF &of) const
    {
        SYMM_NO_UNROLL
        for (uint32_t k = 1; k < size; k += SYMM_GROUP) {
            value v[SYMM_GROUP];

            SYMM_UNROLL
            for (uint32_t u = 0; u < SYMM_GROUP; u++)
                if (k + u < size)
                    v[u] = of(member(k + u));
            SYMM_UNROLL
            for (uint32_t u = 0; u < SYMM_GROUP; u++)
                if (k + u < size)
                    LINES::send(packet(round, member(k + u), phase, rank) + j, v[u],
                                round.round);
        }
    }

    /* to(m, v): what has come from member m. False: the wait has failed. */
    template <class TO>
    SYMM_DEVICE bool receive(const struct symm_round &round, uint32_t phase, uint32_t j,
                             const TO &to) const
    {
        SYMM_NO_UNROLL
        for (uint32_t k = 1; k < size; k += SYMM_GROUP) {
            const auto awaited = [&](uint32_t u) { return k + u < size; };
            const auto from = [&](uint32_t u) {
                return packet(round, rank, phase, member(k + u)) + j;
            };
            struct symm_packet packets[SYMM_GROUP];

            if (!symm_packets_poll<LINES, (int)SYMM_GROUP>(
                    args, &round, awaited, from,
                    [&](uint32_t u) { return member(k + u); }, packets))
                return false;
            SYMM_UNROLL
            for (uint32_t u = 0; u < SYMM_GROUP; u++) {
                if (awaited(u)) {
                    LINES::consumed(from(u));
                    to(member(k + u), LINES::open(packets[u]));
                }
            }
        }
        return true;
    }

    /* The sum of `own` and what comes from all members. */
    SYMM_DEVICE bool reduce(const struct symm_round &round, uint32_t phase, uint32_t j,
                            const value &own, value *sum) const
    {
        const auto put = [&](uint32_t m, const value &v) {
            SYMM_UNROLL
            for (uint32_t u = 0; u < LINES::units; u++)
                symm_columns()[u][m][threadIdx.x] = v.unit[u];
        };

        put(rank, own);
        if (!receive(round, phase, j, put))
            return false;
        SYMM_UNROLL
        for (uint32_t u = 0; u < LINES::units; u++)
            sum->unit[u] = symm_column_unit(args, u);
        *sum = LINES::clean(*sum);
        return true;
    }

    /* All rounds of a call: of each round first begin(round, first, j) for the packets j of this
     * thread, then each of the others, which are false if a wait has failed. */
    template <class BEGIN, class MIDDLE, class END>
    SYMM_DEVICE void run(const BEGIN &begin, const MIDDLE &middle, const END &end) const
    {
        const uint32_t low = blockIdx.x * blockDim.x + threadIdx.x;
        const uint32_t step = gridDim.x * blockDim.x;
        struct symm_round round = symm_round_open(args);

        SYMM_NO_UNROLL
        for (uint32_t k = 0; k < cut.rounds; k++) {
            const uint64_t first = (uint64_t)k * cut.width;

            symm_round_next(&round);
            SYMM_NO_UNROLL
            for (uint32_t j = low; j < cut.width && round.ok; j += step)
                begin(round, first + j, j);
            if (k == 0)
                symm_round_announce(args, &round);
            SYMM_NO_UNROLL
            for (uint32_t j = low; j < cut.width && round.ok; j += step)
                round.ok = middle(round, first + j, j);
            if (k == 0)
                symm_round_meet(args, &round, 0);
            SYMM_NO_UNROLL
            for (uint32_t j = low; j < cut.width && round.ok; j += step)
                round.ok = end(round, first + j, j);
            if (LINES::slots == 3 && k + 1 < cut.rounds)
                symm_port_fence();
        }
        __syncthreads();
        symm_round_close(args, &round);
    }

    template <class BEGIN, class MIDDLE>
    SYMM_DEVICE void run(const BEGIN &begin, const MIDDLE &middle) const
    {
        run(begin, middle,
            [](const struct symm_round &, uint64_t, uint32_t) { return true; });
    }
};

template <class LINES> SYMM_DEVICE void two_shot(const struct symm_cuda_args &args)
{
    typedef typename LINES::value value;
    const uint32_t size = (uint32_t)args.team.size, rank = (uint32_t)args.team.rank;
    const uint64_t segment = (symm_packets_of<LINES>(args.bytes) + size - 1) / size;
    const push<LINES> to(args, segment, 2);
    const packets_of<LINES> in = to.block(args.in, 0), out = to.block(args.out, 0);

    to.run(
        [&](const struct symm_round &round, uint64_t s, uint32_t j) {
            to.send(round, 0, j, [&](uint32_t m) { return in.get(m * segment + s); });
        },
        [&](const struct symm_round &round, uint64_t s, uint32_t j) {
            value sum;

            if (!to.reduce(round, 0, j, in.get(rank * segment + s), &sum))
                return false;
            to.send(round, 1, j, [&](uint32_t) { return sum; });
            if (s < segment)
                out.put(rank * segment + s, sum);
            return true;
        },
        [&](const struct symm_round &round, uint64_t s, uint32_t j) {
            return to.receive(round, 1, j, [&](uint32_t m, const value &v) {
                if (s < segment)
                    out.put(m * segment + s, v);
            });
        });
}

/* A sum in one shot, of block `rank` of all members' arrays of `blocks` blocks, or of one. */
SYMM_DEVICE void one_shot(const struct symm_cuda_args &args, bool blocks)
{
    const push<symm_ll> to(args, symm_packets_of<symm_ll>(args.bytes), 1);
    const auto in = [&](uint32_t m) { return to.block(args.in, blocks ? m : 0); };

    to.run(
        [&](const struct symm_round &round, uint64_t i, uint32_t j) {
            to.send(round, 0, j, [&](uint32_t m) { return in(m).get(i); });
        },
        [&](const struct symm_round &round, uint64_t i, uint32_t j) {
            symm_ll::value sum;

            if (!to.reduce(round, 0, j, in(to.rank).get(i), &sum))
                return false;
            to.block(args.out, 0).put(i, sum);
            return true;
        });
}

/* Block m of `in`, or its one block, goes to member m; what m sends is block m of `out`. */
SYMM_DEVICE void exchange(const struct symm_cuda_args &args, bool blocks)
{
    const push<symm_ll> to(args, symm_packets_of<symm_ll>(args.bytes), 1);
    const auto in = [&](uint32_t m) { return to.block(args.in, blocks ? m : 0); };
    const auto own = to.block(args.out, to.rank);

    to.run(
        [&](const struct symm_round &round, uint64_t i, uint32_t j) {
            to.send(round, 0, j, [&](uint32_t m) { return in(m).get(i); });
            if (own.array != in(to.rank).array)
                own.put(i, in(to.rank).get(i));
        },
        [&](const struct symm_round &round, uint64_t i, uint32_t j) {
            return to.receive(round, 0, j, [&](uint32_t m, const symm_ll::value &v) {
                to.block(args.out, m).put(i, v);
            });
        });
}

SYMM_KERNEL_OF(symm_all_reduce_two_shot_push_any, SYMM_WARP)
{
    two_shot<symm_ll>(args);
}

SYMM_KERNEL_OF(symm_all_reduce_two_shot_push_float, SYMM_WARP)
{
    two_shot<symm_lamport>(args);
}

SYMM_KERNEL_OF(symm_all_reduce_ll_push_any, SYMM_WARP)
{
    one_shot(args, false);
}

SYMM_KERNEL_OF(symm_reduce_scatter_ll_push_any, SYMM_WARP)
{
    one_shot(args, true);
}

SYMM_KERNEL_OF(symm_all_gather_ll_push_any, SYMM_WARP)
{
    exchange(args, false);
}

SYMM_KERNEL_OF(symm_all_to_all_ll_push_any, SYMM_WARP)
{
    exchange(args, true);
}

SYMM_KERNEL_OF(symm_broadcast_ll_push_any, SYMM_WARP)
{
    const push<symm_ll> to(args, symm_packets_of<symm_ll>(args.bytes), 1);
    const uint32_t root = (uint32_t)args.root;
    const bool sends = to.rank == root, in_place = args.in == args.out;
    const auto in = to.block(args.in, 0), out = to.block(args.out, 0);
    const auto slot = [&](const struct symm_round &round, uint32_t m) {
        return symm_slot_of<symm_ll>(args, m, round.round);
    };
    struct symm_round round = symm_round_open(args);

    symm_round_next(&round);
    if (!sends) /* before the first wait */
        symm_round_announce(args, &round);
    SYMM_NO_UNROLL
    for (uint64_t j = blockIdx.x * blockDim.x + threadIdx.x;
         j < symm_packets_of<symm_ll>(args.bytes) && round.ok;
         j += gridDim.x * blockDim.x) {
        symm_ll::value v = {};

        if (sends)
            v = in.get(j);
        SYMM_NO_UNROLL
        for (uint32_t k = 1; k < to.size && sends; k++)
            symm_ll::send(slot(round, to.member(k)) + j, v, round.round);
        if (!sends)
            round.ok = symm_packet_wait<symm_ll>(args, &round, slot(round, to.rank) + j,
                                                 root, &v);
        if (round.ok && !(sends && in_place))
            out.put(j, v);
    }
    if (sends)
        symm_round_announce(args, &round);
    symm_round_meet(args, &round, 0);
    __syncthreads();
    symm_round_close(args, &round);
}
