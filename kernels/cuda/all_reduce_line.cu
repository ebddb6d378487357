/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_line.cu - all_reduce and reduce_scatter in one shot and in one round: there is a
 * thread for every packet. Sums of the common types alone: floats go by Lamport packets (between
 * 2 ranks: all_reduce_pair.cu), int32 by LL packets. The other sums: all_reduce_lamport.cu,
 * all_reduce_ll.cu, move_ll.cu. Ranks are summed in rank order, so all get the same bits.
 *
 * A thread sends its packet to the thread of the same number on every peer, waits for the
 * peers' packets, and sums them. No value passes between threads. The block synchronizes once,
 * for the counters, while the packets are in flight. The last warp of each block takes no
 * packets: it writes the counters. In block 0 it also writes and reads the call words, and
 * counts for the blocks that were not launched.
 *
 * packet.cuh says why a slot may be used again; a call is one round. A slot is
 * [sender][packet]. in == out is allowed in all_reduce: one thread reads a packet of `in` before
 * it writes the same packet of `out`.
 * Launch: each block has 32 threads more than take packets; the threads that take packets are
 * at least as many as the packets.
 *
 * symm_{all_reduce,reduce_scatter}_lamport_line_{bfloat16,float16,float32}_n{4,8}: SUM
 * symm_{all_reduce,reduce_scatter}_ll_line_int32_n{2,4,8}: SUM
 */
#include "kernels/cuda/packet.cuh"

/* Numbers and addresses that a thread computes before it reads the counters. */
template <class LINES, int N> struct line_place {
    uint32_t rank, width;      /* width: threads of a block that take packets */
    uint32_t index;            /* of the thread's packet */
    uint32_t stride;           /* packets of one sender in a slot */
    struct symm_packet *to[N]; /* [i]: at member(i), in slot 0; [0] is not set */
    struct symm_packet *from;  /* from rank 0, in this rank's slot 0 */

    SYMM_DEVICE line_place(const struct symm_cuda_args &args)
        : rank((uint32_t)args.team.rank), width(blockDim.x - SYMM_WARP),
          index(blockIdx.x * width + threadIdx.x),
          stride(symm_slot_packets<LINES>(args) / N)
    {
        /* symm_port_settle: computed here, while no thread waits for the counters. Of 8 ranks they
         * do not stay in the registers of sm_80. */
        SYMM_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            to[i] = symm_slot_of<LINES>(args, member(i), 0) + rank * stride + index;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
            if (N < 8)
#endif
                symm_port_settle(to[i]);
        }
        from = symm_slot_of<LINES>(args, rank, 0) + index;
        symm_port_settle(from);
    }

    /* The rank i after this one, modulo N. */
    SYMM_DEVICE uint32_t member(uint32_t i) const
    {
        return rank + i < N ? rank + i : rank + i - N;
    }

    SYMM_DEVICE bool takes(void) const
    {
        return threadIdx.x < width;
    }
};

/*
 * The whole call of one thread. SCATTER: reduce_scatter, where `in` has a block for each rank;
 * else all_reduce. ends: enum symm_ends, which holds for all blocks of in and for out; callers
 * pass a constant, so that the compiler drops the code of the other cases.
 */
template <int DTYPE, class LINES, int N, bool SCATTER>
SYMM_DEVICE void one_round(const struct symm_cuda_args &args, uint32_t ends)
{
    const line_place<LINES, N> at(args);
    const uint32_t element = symm_element_size(DTYPE);
    const bool mine = at.takes() && at.index < symm_packets_of<LINES>(args.bytes);
    typename LINES::value v[N];
    /* v[i] is the packet for member(i); in an all_reduce all are the same. Threads that take none
     * read one of another block. */
    const auto fetch = [&] {
        SYMM_UNROLL
        for (uint32_t i = 0; i < N; i++)
            v[i] = !SCATTER && i > 0
                       ? v[0]
                       : LINES::gather((const char *)args.in +
                                           (SCATTER ? at.member(i) * args.bytes : 0),
                                       at.index, args.bytes, element, ends);
    };
    /* Packets for 8 ranks would not stay in registers while the counters are judged. */
    constexpr bool early = N < 8;
    struct symm_round round = symm_round_open(args, [&] {
        if constexpr (early)
            fetch();
    });
    const uint64_t slot = symm_slot_begin<LINES>(args, symm_round_next(&round));

    if (!early && mine && round.ok)
        fetch();
    if (mine && round.ok) {
        SYMM_UNROLL
        for (uint32_t i = 1; i < N; i++)
            LINES::send(at.to[i] + slot, LINES::clean(v[i]), round.round);
    } else if (!at.takes()) {
        symm_round_tell(args, round, threadIdx.x - at.width);
    }
    __syncthreads(); /* all threads have read the counters, so the last warp may write them */
    if (!at.takes()) {
        symm_round_finish(args, &round, at.width / SYMM_WARP);
    } else if (mine && round.ok) {
        /* From here v[r] is the packet from rank r. This rank's own packet goes to all v, since
         * an index that is not constant would put v into memory; the wait then sets the peers'
         * packets. */
        v[0] = LINES::clean(v[0]);
        SYMM_UNROLL
        for (uint32_t r = 1; r < N; r++)
            v[r] = v[0];
        if (symm_packets_wait<LINES, N, N>(args, &round, at.from + slot, at.stride, N,
                                           at.rank, v))
            LINES::scatter(args.out, at.index, args.bytes, element, ends,
                           symm_value_fold<LINES, DTYPE, SYMM_SUM, N, N>(args, N, v));
    }
}

template <int DTYPE, class LINES, int N, bool SCATTER>
SYMM_DEVICE void any(const struct symm_cuda_args &args)
{
    const uint32_t ends = symm_ends_of<LINES::bytes>(args);

    if (ends == SYMM_ENDS_WHOLE)
        one_round<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_WHOLE);
    else if (!SCATTER && ends == SYMM_ENDS_ALIGNED)
        one_round<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_ALIGNED);
    else
        one_round<DTYPE, LINES, N, SCATTER>(args, SYMM_ENDS_ANY);
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
