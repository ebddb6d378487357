/* SPDX-License-Identifier: MIT */
/*
 * warp_exchange.cuh - the one-shot reduction for small data: a warp a peer. Warp p sends this
 * rank's packets to member p and waits for p's packets; the values pass through shared memory
 * to the warp that sums them in rank order. The warp of this rank itself waits for no peer: it
 * polls the call words meanwhile. For the kernels all_reduce and reduce_scatter by LL and by
 * Lamport packets.
 *
 * Launch: 32 x size threads; packets j with j / 32 % blocks == b belong to block b. Any count,
 * any alignment, any overlap of in and out that symm.h allows: a packet of `out` is written
 * after the exchange, when all warps have sent the data that `out` overwrites.
 *
 * Protocol (packet.cuh): slot = [sender][packet]. Warp p's partner on member p is the warp
 * of this rank, same lane, which sends to this lane and receives from it. Between
 * rounds of a call lies a __syncthreads, and with Lamport packets a fence.
 */
#ifndef SYMM_KERNELS_CUDA_WARP_EXCHANGE_CUH
#define SYMM_KERNELS_CUDA_WARP_EXCHANGE_CUH

#include "kernels/cuda/packet.cuh"

/* This block's packets of one round go to member `warp`. */
template <class LINES>
SYMM_DEVICE void symm_warp_exchange_send(const struct symm_cuda_args &args,
                                         const struct symm_round &round, const char *in,
                                         uint64_t first, uint32_t width, uint32_t room)
{
    uint32_t member = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t element = symm_element_size(args.dtype);
    bool aligned = ((uintptr_t)in & (LINES::bytes - 1)) == 0;
    struct symm_packet *to = symm_slot_of<LINES>(args, member, round.round) +
                             (uint64_t)args.team.rank * room;

    for (uint32_t j = blockIdx.x * 32 + lane; j < width; j += gridDim.x * 32) {
        typename LINES::value v =
            LINES::gather(in, first + j, args.bytes, element, aligned);

        LINES::send(to + j, LINES::clean(v), round.round);
    }
}

/* What the warps have put into shared memory, in rank order. */
template <class LINES, int DTYPE, int OP, int SIZE>
SYMM_DEVICE typename LINES::value
symm_warp_exchange_fold(const struct symm_cuda_args &args,
                        const typename LINES::value (*hop)[SYMM_WARP])
{
    uint32_t lane = threadIdx.x % 32;
    typename LINES::value result;

    if constexpr (SIZE > 0) {
        SYMM_UNROLL
        for (uint32_t u = 0; u < LINES::units; u++) {
            symm_fold<DTYPE, OP> fold;

            fold.first(hop[0][lane].unit[u]);
            SYMM_UNROLL
            for (int r = 1; r < SIZE; r++)
                fold.next(hop[r][lane].unit[u]);
            result.unit[u] = fold.done(SIZE);
        }
    } else {
        SYMM_NO_UNROLL
        for (uint32_t u = 0; u < LINES::units; u++) {
            uint64_t done = symm_fold_any(args.dtype, args.op, args.team.size,
                                          [&](int r) { return hop[r][lane].unit[u]; });

            if (u == 0)
                result.unit[0] = done;
            else
                result.unit[LINES::units - 1] = done;
        }
    }
    return result;
}

/*
 * What a lane knows before the counters are read, where a group of a block is SIZE warps (0: the
 * team's size), one for each member, and a lane has one packet: packets 32 x (block x groups +
 * group) + lane. `to` is in the member's scratch, `from` in this rank's scratch, both in slot 0
 * and of the first of PHASES.
 */
template <class LINES, int SIZE, int PHASES> struct symm_warp_exchange_lane {
    uint32_t warp, member, j, room; /* room: packets of a sender in a phase */
    struct symm_packet *to, *from;

    SYMM_DEVICE symm_warp_exchange_lane(const struct symm_cuda_args &args)
    {
        const uint32_t size = SIZE ? SIZE : (uint32_t)args.team.size;
        const uint32_t rank = (uint32_t)args.team.rank;
        const uint32_t groups = blockDim.x / (SYMM_WARP * size);

        warp = threadIdx.x / SYMM_WARP;
        member = warp % size;
        j = (blockIdx.x * groups + warp / size) * SYMM_WARP + threadIdx.x % SYMM_WARP;
        room = symm_slot_packets<LINES>(args) / (PHASES * size);
        to = symm_slot_of<LINES>(args, member, 0) + rank * room + j;
        from = symm_slot_of<LINES>(args, rank, 0) + member * room + j;
        symm_port_settle(to);
        symm_port_settle(from);
    }
};

/* Shared memory by which Lamport packets pass between the warps of a block: one packet for each
 * thread. The same memory for all instances of a kernel's template. */
SYMM_DEVICE struct symm_lamport::value (*symm_warp_exchange_space(void))[SYMM_WARP]
{
    __shared__ struct symm_lamport::value hop[SYMM_MAX_BLOCK / SYMM_WARP][SYMM_WARP];

    return hop;
}

/* in_stride: from what goes to one member to what goes to the next, in bytes. */
template <class LINES, int DTYPE, int OP, int SIZE>
SYMM_DEVICE void symm_warp_exchange_reduce(const struct symm_cuda_args &args,
                                           uint64_t in_stride)
{
    __shared__ typename LINES::value hop[2][SYMM_FEW_RANKS][SYMM_WARP];
    const uint32_t size = SIZE ? SIZE : (uint32_t)args.team.size;
    const uint32_t rank = (uint32_t)args.team.rank;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t room = symm_slot_packets<LINES>(args) / size;
    const uint32_t element = symm_element_size(args.dtype);
    const char *in = (const char *)args.in + warp * in_stride;
    const bool in_aligned = ((uintptr_t)in & (LINES::bytes - 1)) == 0;
    const bool out_aligned = ((uintptr_t)args.out & (LINES::bytes - 1)) == 0;
    const uint64_t packets = symm_packets_of<LINES>(args.bytes);
    const struct symm_rounds cut = symm_rounds_of(packets, room, gridDim.x * 32);
    struct symm_round round = symm_round_open(args);
    uint32_t turn = 0; /* batches of 32 packets so far */

    for (uint32_t k = 0; k < cut.rounds; k++) {
        uint64_t first = (uint64_t)k * cut.width;
        struct symm_packet *from;

        symm_round_next(&round);
        if (warp != rank && round.ok)
            symm_warp_exchange_send<LINES>(args, round, in, first, cut.width, room);
        if (k == 0)
            symm_round_announce(args, &round);
        from = symm_slot_of<LINES>(args, rank, round.round) + (uint64_t)warp * room;
        for (uint32_t j0 = blockIdx.x * 32; j0 < cut.width; j0 += gridDim.x * 32) {
            uint32_t j = j0 + lane;
            typename LINES::value v = {};

            if (warp == rank && j < cut.width)
                v = LINES::clean(
                    LINES::gather(in, first + j, args.bytes, element, in_aligned));
            else if (j < cut.width && round.ok)
                round.ok = symm_packet_wait<LINES>(args, &round, from + j, warp, &v);
            hop[turn & 1][warp][lane] = v;
            if (warp == rank && turn == 0)
                symm_round_meet(args, &round, rank);
            /* After it no thread writes the other half before all have left it. */
            symm_round_agree(args, &round);
            if (warp == turn % size && j < cut.width && round.ok)
                LINES::scatter(args.out, first + j, args.bytes, element, out_aligned,
                               symm_warp_exchange_fold<LINES, DTYPE, OP, SIZE>(
                                   args, hop[turn & 1]));
            turn++;
        }
        if (LINES::slots == 3 && k + 1 < cut.rounds)
            symm_port_fence();
    }
    __syncthreads();
    symm_round_close(args, &round);
}

#endif
