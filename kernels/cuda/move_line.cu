/* SPDX-License-Identifier: MIT */
/*
 * move_line.cu - ll_push (move_ll.cu) of all_gather, all_to_all and broadcast where there is a
 * lane for every packet, so in one round: any bits, any team, any memory.
 *
 * A warp a peer. A group is `size` warps, a block has one or more; group g of block b has the
 * packets 32 x (b x groups + g) + lane. Warp p of a group sends to member p and stores what
 * arrives from there at its place: the block synchronizes once, for the counters, while the
 * data are in flight. The warp of this rank itself copies this rank's block, if it is not in
 * place; in group 0 of block 0 it writes and reads the call words and counts for the blocks that
 * were not launched. broadcast: the root's warps send, and elsewhere those of the root take.
 *
 * Why slots may be used again: packet.cuh; a call is one round. Slot = [sender][packet]. In
 * place is fine: a packet of a block is read and then written by one thread.
 * Launch: 32 x size x groups threads, a lane for every packet.
 *
 * symm_{all_gather,all_to_all,broadcast}_ll_line_any
 */
#include "kernels/cuda/warp_exchange.cuh"

/* in + p x in_stride goes to member p; what p sends arrives at out + p x out_stride.
 * ROOTED: only args.root sends. */
template <bool ROOTED>
SYMM_DEVICE void move(const struct symm_cuda_args &args, uint64_t in_stride,
                      uint64_t out_stride)
{
    const symm_warp_exchange_lane<symm_ll, 0, 1> at(args);
    const uint32_t rank = (uint32_t)args.team.rank, root = (uint32_t)args.root;
    const char *in = (const char *)args.in + at.member * in_stride;
    char *out = (char *)args.out + at.member * out_stride;
    const bool in_aligned = ((uintptr_t)in & 7) == 0, own = at.member == rank;
    const bool out_aligned = ((uintptr_t)out & 7) == 0;
    const bool mine = at.j < symm_packets_of<symm_ll>(args.bytes);
    const bool sends = mine && (!ROOTED || rank == root);
    const bool takes = mine && (!ROOTED || at.member == root);
    const uint32_t element = symm_element_size(args.dtype);
    symm_ll::value v = {};
    struct symm_round round = symm_round_open(args, [&] {
        if (sends)
            v = symm_ll::gather(in, at.j, args.bytes, element, in_aligned);
    });
    const uint64_t slot = symm_slot_begin<symm_ll>(args, symm_round_next(&round));

    if (sends && !own && round.ok)
        symm_ll::send(at.to + slot, v, round.round);
    if (at.warp == rank)
        symm_round_tell(args, round, threadIdx.x % SYMM_WARP);
    __syncthreads();
    if (takes && round.ok && !(own && in == out)) {
        if (!own)
            round.ok =
                symm_packet_wait<symm_ll>(args, &round, at.from + slot, at.member, &v);
        if (round.ok)
            symm_ll::scatter(out, at.j, args.bytes, element, out_aligned, v);
    }
    if (at.warp == rank)
        symm_round_finish(args, &round, at.warp);
}

SYMM_KERNEL_OF(symm_all_gather_ll_line_any, SYMM_MOVE_THREADS)
{
    move<false>(args, 0, args.bytes);
}

SYMM_KERNEL_OF(symm_all_to_all_ll_line_any, SYMM_MOVE_THREADS)
{
    move<false>(args, args.bytes, args.bytes);
}

SYMM_KERNEL_OF(symm_broadcast_ll_line_any, SYMM_MOVE_THREADS)
{
    move<true>(args, 0, 0);
}
