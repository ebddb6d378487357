/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_pair.cu - all_reduce and reduce_scatter between two ranks, by packets: both send all
 * that the other needs and each sums for itself, in one step. For all_reduce these are as many
 * bytes as in two shots, so it is used for all sizes that fit the scratch, from any memory. The
 * same bits on both: a sum of two is the same either way, and what is not a sum is made in rank
 * order.
 *
 * A thread sends its packets to the thread of its number on the other rank, and reduces what
 * that thread sends: no value passes between threads, and the block synchronizes once, for
 * the counters, while the data are in flight: written at the end they cost 0.17 us. The last
 * warp of each block takes no packets: it writes the counters, and in block 0 it writes and
 * reads the call words and counts for the blocks that were not launched. Only the
 * peer sends here: a slot has room for as many packets of one sender.
 *
 * symm_{all_reduce,reduce_scatter}_pair_..., symm_all_reduce_ll_pair_any: a packet a thread, one
 * round.
 * symm_{all_reduce,reduce_scatter}_pair_many_...: any number of packets a thread. It takes two at a
 * time, and has sent the two after them before; one round, or two if a slot is too small. A slot
 * has room for more than SYMM_MANY_AHEAD packets of each thread, so that it has read a word of the
 * peer before it sends the second round's.
 *
 * Why slots may be used again: packet.cuh, (1) and (4). in == out is fine (all_reduce): a
 * packet of both is read and then written by one thread.
 * Launch: 32 more threads than take packets. pair: a thread for every packet, in a slot; many: as
 * said, and the array in two slots, each rounded down to whole packets of all threads.
 *
 * Lamport packets, SUM: symm_{all_reduce,reduce_scatter}_pair_{bfloat16,float16,float32}_n2,
 * symm_{all_reduce,reduce_scatter}_pair_many_{bfloat16,float16,float32}_n2
 * LL packets: symm_all_reduce_ll_pair_any
 */
#include "kernels/cuda/packet.cuh"

/* What a thread knows before the counters are read. */
template <class LINES> struct pair_place {
    uint32_t width, step;    /* packets of a block at a time, of all blocks */
    uint32_t begin, packets; /* this thread's first, those of the array */
    struct symm_packet *to,
        *from; /* packet `begin` in slot 0: of the peer, of this rank */

    SYMM_DEVICE pair_place(const struct symm_cuda_args &args)
        : width(blockDim.x - SYMM_WARP), step(gridDim.x * width),
          begin(blockIdx.x * width + threadIdx.x),
          packets((uint32_t)symm_packets_of<LINES>(args.bytes))
    {
        const uint32_t rank = (uint32_t)args.team.rank;

        to = symm_slot_of<LINES>(args, 1 - rank, 0) + begin;
        from = symm_slot_of<LINES>(args, rank, 0) + begin;
        symm_port_settle(to);
        symm_port_settle(from);
    }

    SYMM_DEVICE bool takes(void) const
    {
        return threadIdx.x < width;
    }
};

/* DTYPE SYMM_DTYPE_ANY: dtype and op of args; else a sum, whose order does not matter. */
template <class LINES, int DTYPE>
SYMM_DEVICE typename LINES::value pair_reduce(const struct symm_cuda_args &args,
                                              const typename LINES::value &own,
                                              const typename LINES::value &other)
{
    typename LINES::value result;

    SYMM_UNROLL
    for (uint32_t u = 0; u < LINES::units; u++) {
        if constexpr (DTYPE == SYMM_DTYPE_ANY) {
            result.unit[u] = symm_fold_any(args.dtype, args.op, 2, [&](int r) {
                return r == args.team.rank ? own.unit[u] : other.unit[u];
            });
        } else {
            symm_fold<DTYPE, SYMM_SUM> fold;

            fold.first(own.unit[u]);
            fold.next(other.unit[u]);
            result.unit[u] = fold.done(2);
        }
    }
    return result;
}

/* in_stride: from what goes to rank 0 to what goes to rank 1, in bytes. ends: of all blocks
 * of in and out; where it is a constant, the compiler drops the other cases. */
template <class LINES, int DTYPE>
SYMM_DEVICE void pair(const struct symm_cuda_args &args, uint64_t in_stride,
                      uint32_t ends)
{
    const struct pair_place<LINES> place(args);
    const uint32_t element =
        symm_element_size(DTYPE == SYMM_DTYPE_ANY ? args.dtype : DTYPE);
    const uint32_t rank = (uint32_t)args.team.rank, peer = 1 - rank;
    const bool mine = place.takes() && place.begin < place.packets;
    typename LINES::value own, sent, other;
    struct symm_round round = symm_round_open(args, [&] {
        /* Beyond the packets of this thread's block: another's, which is not used. */
        sent = LINES::gather((const char *)args.in + peer * in_stride, place.begin,
                             args.bytes, element, ends);
        own = in_stride == 0 ? sent
                             : LINES::gather((const char *)args.in + rank * in_stride,
                                             place.begin, args.bytes, element, ends);
    });
    const uint64_t slot = symm_slot_begin<LINES>(args, symm_round_next(&round));

    if (mine && round.ok) {
        LINES::send(place.to + slot, LINES::clean(sent), round.round);
    } else if (!place.takes()) {
        symm_round_tell(args, round, threadIdx.x - place.width);
    }
    __syncthreads();
    if (!place.takes())
        symm_round_finish(args, &round, place.width / SYMM_WARP);
    else if (mine && round.ok &&
             symm_packet_wait<LINES>(args, &round, place.from + slot, peer, &other))
        LINES::scatter(args.out, place.begin, args.bytes, element, ends,
                       pair_reduce<LINES, DTYPE>(args, LINES::clean(own), other));
}

/* ---- Many packets ------------------------------------------------------------------ */

/* A thread's view of the call; its packets are place.begin, and on by place.step. SCATTER: of
 * reduce_scatter, where `in` has a block for each rank. */
template <int DTYPE, uint32_t ENDS, bool SCATTER> struct pair_many {
    const struct symm_cuda_args &args;
    const struct pair_place<symm_lamport> place;
    const uint32_t share; /* packets of a round */
    struct symm_round round;
    int64_t slot[2]; /* from a packet's number to its place, by round */

    SYMM_DEVICE pair_many(const struct symm_cuda_args &a)
        : args(a), place(a),
          share(symm_slot_packets<symm_lamport>(a) / place.step * place.step),
          round(symm_round_open(a))
    {
        symm_two_slots<symm_lamport>(args, &round, share, slot);
    }

    /* From the thread's first packet of slot 0 to packet j. */
    SYMM_DEVICE int64_t offset(uint32_t j) const
    {
        return (j < share ? slot[0] : slot[1]) + j - place.begin;
    }

    /* Packet j of what is summed on that rank. */
    SYMM_DEVICE symm_lamport::value load(uint32_t j, uint32_t rank) const
    {
        return symm_lamport::gather((const char *)args.in +
                                        (SCATTER ? rank * args.bytes : 0),
                                    j, args.bytes, symm_element_size(DTYPE), ENDS);
    }

    SYMM_DEVICE void send(uint32_t j) const
    {
        if (j < place.packets && round.ok)
            symm_lamport::send(
                place.to + offset(j),
                symm_lamport::clean(load(j, 1 - (uint32_t)args.team.rank)),
                round.round);
    }

    /* Packet j and the thread's next one, together. */
    SYMM_DEVICE void receive(uint32_t j)
    {
        const auto at = [&](uint32_t i) { return j + i * place.step; };
        const auto has = [&](uint32_t i) { return at(i) < place.packets; };
        const auto from = [&](uint32_t i) { return place.from + offset(at(i)); };
        struct symm_packet packet[2];
        symm_lamport::value own[2]; /* under way together */

        SYMM_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            own[i] = load(has(i) ? at(i) : j, (uint32_t)args.team.rank);
        round.ok = symm_packets_poll<symm_lamport, 2>(
            args, &round, has, from, [&](uint32_t) { return 1 - args.team.rank; },
            packet);
        if (!round.ok)
            return;
        /* acquire: later sends are ordered after the peer's progress that this packet proves */
        if (j == place.begin && place.packets > share)
            symm_port_load32_acquire(&from(0)->word[0]);
        SYMM_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            if (has(i)) {
                symm_lamport::consumed(from(i));
                symm_lamport::scatter(
                    args.out, at(i), args.bytes, symm_element_size(DTYPE), ENDS,
                    pair_reduce<symm_lamport, DTYPE>(args, symm_lamport::clean(own[i]),
                                                     symm_lamport::open(packet[i])));
            }
    }

    SYMM_DEVICE void run(void)
    {
        static_assert(SYMM_MANY_AHEAD == 4, "two before the loop, two in it");
        if (place.takes()) {
            SYMM_UNROLL
            for (uint32_t k = 0; k < 2; k++)
                send(place.begin + k * place.step);
        } else {
            symm_round_tell(args, round, threadIdx.x - place.width);
        }
        __syncthreads();
        if (!place.takes()) {
            if (place.packets > share)
                symm_round_next(&round);
            symm_round_finish(args, &round, place.width / SYMM_WARP);
            return;
        }
        for (uint32_t j = place.begin; j < place.packets && round.ok;
             j += 2 * place.step) {
            send(j + 2 * place.step);
            send(j + 3 * place.step);
            receive(j);
        }
    }
};

/* ---- The hot types --------------------------------------------------------------- */

template <int DTYPE> SYMM_DEVICE void all_reduce(const struct symm_cuda_args &args)
{
    const uint32_t ends = symm_ends_of<16>(args);

    if (ends == SYMM_ENDS_WHOLE)
        pair<symm_lamport, DTYPE>(args, 0, SYMM_ENDS_WHOLE);
    else if (ends == SYMM_ENDS_ALIGNED)
        pair<symm_lamport, DTYPE>(args, 0, SYMM_ENDS_ALIGNED);
    else
        pair<symm_lamport, DTYPE>(args, 0, SYMM_ENDS_ANY);
}

template <int DTYPE> SYMM_DEVICE void reduce_scatter(const struct symm_cuda_args &args)
{
    if (symm_ends_of<16>(args) == SYMM_ENDS_WHOLE)
        pair<symm_lamport, DTYPE>(args, args.bytes, SYMM_ENDS_WHOLE);
    else
        pair<symm_lamport, DTYPE>(args, args.bytes, SYMM_ENDS_ANY);
}

template <int DTYPE> SYMM_DEVICE void many(const struct symm_cuda_args &args)
{
    const uint32_t ends = symm_ends_of<16>(args);

    if (ends == SYMM_ENDS_WHOLE)
        pair_many<DTYPE, SYMM_ENDS_WHOLE, false>(args).run();
    else if (ends == SYMM_ENDS_ALIGNED)
        pair_many<DTYPE, SYMM_ENDS_ALIGNED, false>(args).run();
    else
        pair_many<DTYPE, SYMM_ENDS_ANY, false>(args).run();
}

template <int DTYPE> SYMM_DEVICE void scatter_many(const struct symm_cuda_args &args)
{
    if (symm_ends_of<16>(args) == SYMM_ENDS_WHOLE)
        pair_many<DTYPE, SYMM_ENDS_WHOLE, true>(args).run();
    else
        pair_many<DTYPE, SYMM_ENDS_ANY, true>(args).run();
}

#define SYMM_PAIR(name, dtype)                                                         \
    SYMM_KERNEL_OF(symm_all_reduce_pair_##name##_n2,                                   \
                   SYMM_PACKET_THREADS(2) + SYMM_WARP)                                 \
    {                                                                                  \
        all_reduce<dtype>(args);                                                       \
    }                                                                                  \
    SYMM_KERNEL_OF(symm_reduce_scatter_pair_##name##_n2,                               \
                   SYMM_PACKET_THREADS(2) + SYMM_WARP)                                 \
    {                                                                                  \
        reduce_scatter<dtype>(args);                                                   \
    }                                                                                  \
    SYMM_KERNEL_OF(symm_all_reduce_pair_many_##name##_n2,                              \
                   SYMM_MANY_THREADS + SYMM_WARP)                                      \
    {                                                                                  \
        many<dtype>(args);                                                             \
    }                                                                                  \
    SYMM_KERNEL_OF(symm_reduce_scatter_pair_many_##name##_n2,                          \
                   SYMM_MANY_THREADS + SYMM_WARP)                                      \
    {                                                                                  \
        scatter_many<dtype>(args);                                                     \
    }
SYMM_PAIR(bfloat16, SYMM_BFLOAT16)
SYMM_PAIR(float16, SYMM_FLOAT16)
SYMM_PAIR(float32, SYMM_FLOAT32)

SYMM_KERNEL_OF(symm_all_reduce_ll_pair_any, SYMM_PACKET_THREADS(2) + SYMM_WARP)
{
    pair<symm_ll, SYMM_DTYPE_ANY>(
        args, 0, (((uintptr_t)args.in | (uintptr_t)args.out) & 7) == 0);
}
