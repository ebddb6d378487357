/* SPDX-License-Identifier: MIT */
/*
 * move_ll.cu - ll_push for all_gather, all_to_all, broadcast and reduce_scatter: packets that
 * carry their flag, so any bits, any count, any alignment; no memory of the caller needs to
 * be symmetric.
 *
 * all_gather, all_to_all: a warp a peer. Warp p sends to member p and receives from it; its
 * partner on p is the warp of this rank, same lane; a __syncthreads after every round
 * couples the warps. In place is fine: a packet of a block is
 * read and written by one thread, in this order.
 * reduce_scatter: warp_exchange.cuh; what goes to member p is block p of `in`.
 * broadcast: the root's warp p sends to member p; on the others all warps receive. It receives
 * nothing, so one round must do: more than a slot holds has no kernel.
 *
 * Slot = [sender][packet], broadcast: all of it. Why slots may be used again: packet.cuh.
 * Launch: 32 x size threads; 32 x blocks packets at most as many as a slot takes of a sender.
 *
 * symm_{all_gather,all_to_all,broadcast,reduce_scatter}_ll_push_any
 */
#include "kernels/cuda/warp_exchange.cuh"

/* in + p x in_stride goes to member p; what p sends arrives at out + p x args.bytes. */
SYMM_DEVICE void exchange(const struct symm_cuda_args &args, uint64_t in_stride)
{
    const uint32_t rank = (uint32_t)args.team.rank, size = (uint32_t)args.team.size;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t room = symm_slot_packets<symm_ll>(args) / size;
    const uint32_t element = symm_element_size(args.dtype), step = gridDim.x * 32;
    const char *in = (const char *)args.in + warp * in_stride;
    char *out = (char *)args.out + warp * args.bytes;
    const bool in_aligned = ((uintptr_t)in & 7) == 0;
    const bool out_aligned = ((uintptr_t)out & 7) == 0;
    const struct symm_rounds cut =
        symm_rounds_of(symm_packets_of<symm_ll>(args.bytes), room, step);
    struct symm_round round = symm_round_open(args);

    for (uint32_t k = 0; k < cut.rounds; k++) {
        const uint64_t first = (uint64_t)k * cut.width;
        struct symm_packet *from;

        symm_round_next(&round);
        from = symm_slot_of<symm_ll>(args, rank, round.round) + (uint64_t)warp * room;
        if (warp != rank && round.ok)
            symm_warp_exchange_send<symm_ll>(args, round, in, first, cut.width, room);
        if (k == 0) {
            symm_round_announce(args, &round);
            if (warp == rank)
                symm_round_meet(args, &round, rank);
        }
        for (uint32_t j = blockIdx.x * 32 + lane; j < cut.width && round.ok;
             j += step) {
            symm_ll::value v = {};

            if (warp == rank)
                v = symm_ll::gather(in, first + j, args.bytes, element, in_aligned);
            else
                round.ok = symm_packet_wait<symm_ll>(args, &round, from + j, warp, &v);
            if (round.ok && (warp != rank || in != out))
                symm_ll::scatter(out, first + j, args.bytes, element, out_aligned, v);
        }
        __syncthreads(); /* packets of the next round prove that all of this round are consumed */
    }
    symm_round_close(args, &round);
}

SYMM_KERNEL(symm_all_gather_ll_push_any)
{
    exchange(args, 0);
}

SYMM_KERNEL(symm_all_to_all_ll_push_any)
{
    exchange(args, args.bytes);
}

SYMM_KERNEL(symm_reduce_scatter_ll_push_any)
{
    symm_warp_exchange_reduce<symm_ll, 0, 0, 0>(args, args.bytes);
}

SYMM_KERNEL(symm_broadcast_ll_push_any)
{
    const uint32_t rank = (uint32_t)args.team.rank, root = (uint32_t)args.root;
    const uint32_t warp = threadIdx.x / 32, element = symm_element_size(args.dtype);
    const uint64_t packets = symm_packets_of<symm_ll>(args.bytes);
    const bool in_aligned = ((uintptr_t)args.in & 7) == 0;
    const bool out_aligned = ((uintptr_t)args.out & 7) == 0;
    const bool sends = rank == root;
    /* The root: one warp a member; the others: all threads for the one sender. */
    const uint32_t begin = sends ? blockIdx.x * 32 + threadIdx.x % 32
                                 : blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t step = gridDim.x * (sends ? 32 : blockDim.x);
    struct symm_round round = symm_round_open(args);
    struct symm_packet *to;

    symm_round_next(&round);
    to = symm_slot_of<symm_ll>(args, sends ? warp : rank, round.round);
    if (!sends)
        symm_round_announce(args, &round);
    for (uint64_t j = begin; j < packets && round.ok; j += step) {
        symm_ll::value v = {};

        if (sends)
            v = symm_ll::gather(args.in, j, args.bytes, element, in_aligned);
        else
            round.ok = symm_packet_wait<symm_ll>(args, &round, to + j, root, &v);
        if (sends && warp != rank)
            symm_ll::send(to + j, v, round.round);
        else if (round.ok && !(sends && args.in == args.out))
            symm_ll::scatter(args.out, j, args.bytes, element, out_aligned, v);
    }
    if (sends)
        symm_round_announce(args, &round);
    symm_round_meet(args, &round, 0);
    __syncthreads();
    symm_round_close(args, &round);
}
