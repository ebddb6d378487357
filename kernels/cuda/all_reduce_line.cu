/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_line.cu - all_reduce and reduce_scatter in one shot where there is a thread for
 * every packet, so in one round: a sum of one of the common types. Floats go by Lamport packets
 * (between 2 ranks: all_reduce_pair.cu), int32 by LL packets. The others: all_reduce_lamport.cu,
 * all_reduce_ll.cu, move_ll.cu. Sums in rank order: the same bits everywhere.
 *
 * A thread sends its packet to the thread of its number on every peer, waits for theirs and
 * sums them: nothing hops between threads, and the block meets once, while the data are in
 * flight, for the counters' sake. The last warp of each block takes no packets: it writes the
 * counters, and in block 0 it says and reads the call words and counts for the blocks that
 * were not launched.
 *
 * Why slots may be used again: packet.cuh; a call is one round. Slot = [sender][line].
 * in == out is fine (all_reduce): a packet of both is read and then written by one thread.
 * Launch: 32 more threads than take packets, a thread for every packet.
 *
 * symm_{all_reduce,reduce_scatter}_lamport_line_{bfloat16,float16,float32}_n{4,8}: SUM
 * symm_{all_reduce,reduce_scatter}_ll_line_int32_n{2,4,8}: SUM
 */
#include "kernels/cuda/packet.cuh"

/* What a thread knows before the counters are read. */
template <class LINES, int N> struct line_place {
    uint32_t rank, width, j, room; /* room: packets of a sender in a slot */
    struct symm_packet *to[N];     /* i: the member i places behind; in slot 0 */
    struct symm_packet *from;      /* member 0's packet */

    SYMM_DEVICE line_place(const struct symm_cuda_args &args)
        : rank((uint32_t)args.team.rank), width(blockDim.x - SYMM_WARP),
          j(blockIdx.x * width + threadIdx.x), room(symm_slot_packets<LINES>(args) / N)
    {
        SYMM_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            to[i] = symm_slot_of<LINES>(args, member(i), 0) + rank * room + j;
            symm_port_settle(to[i]);
        }
        from = symm_slot_of<LINES>(args, rank, 0) + j;
        symm_port_settle(from);
    }

    SYMM_DEVICE uint32_t member(uint32_t i) const /* i places behind */
    {
        return rank + i < N ? rank + i : rank + i - N;
    }

    SYMM_DEVICE bool takes(void) const
    {
        return threadIdx.x < width;
    }
};

/* SCATTER: reduce_scatter. ends: of all blocks of in and out; a constant, so that nothing of
 * the other cases stands in the way. */
template <int DTYPE, class LINES, int N, bool SCATTER>
SYMM_DEVICE void packet(const struct symm_cuda_args &args, uint32_t ends)
{
    const line_place<LINES, N> at(args);
    const uint32_t element = symm_element_size(DTYPE);
    const bool mine = at.takes() && at.j < symm_packets_of<LINES>(args.bytes);
    struct symm_round round = symm_round_open(args);
    const uint64_t slot = symm_slot_begin<LINES>(args, symm_round_next(&round));
    typename LINES::value v[N];

    /* v[i]: for the member i places behind */
    if (mine && round.ok) {
        SYMM_UNROLL
        for (uint32_t i = 0; i < N; i++)
            v[i] = !SCATTER && i > 0
                       ? v[0]
                       : LINES::gather((const char *)args.in +
                                           (SCATTER ? at.member(i) * args.bytes : 0),
                                       at.j, args.bytes, element, ends);
        SYMM_UNROLL
        for (uint32_t i = 1; i < N; i++)
            LINES::send(at.to[i] + slot, LINES::clean(v[i]), round.round);
    } else if (!at.takes()) {
        symm_round_tell(args, round, threadIdx.x - at.width);
    }
    __syncthreads();
    if (!at.takes()) {
        symm_round_finish(args, &round, at.width / SYMM_WARP);
    } else if (mine && round.ok) {
        v[0] = LINES::clean(v[0]); /* the own one; and from here v[r] of rank r */
        SYMM_UNROLL
        for (uint32_t r = 1; r < N; r++)
            v[r] = v[0];
        if (symm_packets_wait<LINES, N, N>(args, &round, at.from + slot, at.room, N,
                                           at.rank, v))
            LINES::scatter(args.out, at.j, args.bytes, element, ends,
                           symm_value_fold<LINES, DTYPE, SYMM_SUM, N, N>(args, N, v));
    }
}

template <int DTYPE, class LINES, int N, bool SCATTER>
SYMM_DEVICE void any(const struct symm_cuda_args &args)
{
    const uint32_t ends = symm_ends_of<LINES::bytes>(args);

    if (ends == SYMM_ENDS_WHOLE)
        packet<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_WHOLE);
    else if (!SCATTER && ends == SYMM_ENDS_ALIGNED)
        packet<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_ALIGNED);
    else
        packet<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_ANY);
}

#define SYMM_PACKET(packets, name, dtype, n)                                           \
    SYMM_KERNEL_OF(symm_all_reduce_##packets##_line_##name##_n##n,                     \
                   SYMM_PACKET_THREADS(n) + SYMM_WARP)                                 \
    {                                                                                  \
        any<dtype, struct symm_##packets, n, false>(args);                             \
    }                                                                                  \
    SYMM_KERNEL_OF(symm_reduce_scatter_##packets##_line_##name##_n##n,                 \
                   SYMM_PACKET_THREADS(n) + SYMM_WARP)                                 \
    {                                                                                  \
        any<dtype, struct symm_##packets, n, true>(args);                              \
    }
SYMM_PACKET(lamport, bfloat16, SYMM_BFLOAT16, 4)
SYMM_PACKET(lamport, bfloat16, SYMM_BFLOAT16, 8)
SYMM_PACKET(lamport, float16, SYMM_FLOAT16, 4)
SYMM_PACKET(lamport, float16, SYMM_FLOAT16, 8)
SYMM_PACKET(lamport, float32, SYMM_FLOAT32, 4)
SYMM_PACKET(lamport, float32, SYMM_FLOAT32, 8)
SYMM_PACKET(ll, int32, SYMM_INT32, 2)
SYMM_PACKET(ll, int32, SYMM_INT32, 4)
SYMM_PACKET(ll, int32, SYMM_INT32, 8)
