/* SPDX-License-Identifier: MIT */
/*
 * multimem.cu - all_reduce and all_gather by multicast memory: the switch adds up or copies;
 * and the kernel that proves that it does.
 *
 * args.multicast is the address of the heap's multicast view; data is at the offsets of the
 * symmetric arrays after it. Sums are made by the switch in an order of its own: not in rank
 * order, and one_shot may differ between ranks; two_shot has the same bits on all, since each
 * packet is summed once. SUM of bfloat16, float16 (added in float32) and float32.
 *
 * Inputs are written, and outputs read, by the devices' own addresses; sums and stores go by
 * multicast addresses of the same memory. So every thread puts a fence.proxy.alias between:
 * after the entry barrier before its first multicast access, and after its last one before
 * the exit barrier. The barriers' words only have addresses of the devices.
 *
 * one_shot: entry barrier, each rank sums all packets into its own out, exit barrier. Never in
 * place: a peer's sum would see this rank's result instead of its input.
 * two_shot: each rank sums its slice and stores the result to all. In place is right: a packet
 * is read from all ranks and then written to all by one thread alone.
 * all_gather: each rank stores its block to all. All barriers are always there.
 *
 * Packets that are not whole or arrays that do not begin at a multiple of 16 are summed and
 * stored by the ranks' own addresses.
 *
 * prove: one warp. A packet a lane of each type, one type's packets after the other's, is summed
 * over all ranks from in_offset and written to `out`; the lane's own packet of the first type,
 * at `in`, is stored to all ranks at out_offset + rank x bytes. Waits for no peer: the hosts order
 * the steps. The memory that it touches holds the proof's own numbers, or zeros.
 *
 * symm_all_reduce_multimem_one_shot_any, symm_all_reduce_multimem_two_shot_any,
 * symm_all_gather_multimem_one_shot_any, symm_multimem_prove_any: sm_90
 */
#include "kernels/cuda/multicast.cuh"
#include "kernels/cuda/pull.cuh"

/* Packet i of the array at `from`, summed over all ranks. */
template <int DTYPE>
SYMM_DEVICE struct symm_packet sum_packet(const struct symm_cuda_args &args, uint64_t i,
                                          bool whole)
{
    constexpr uint32_t element = symm_element_size(DTYPE);
    symm_packet_sum<DTYPE> sum;

    if (whole)
        return symm_multicast_sum<DTYPE>(args.multicast + args.in_offset + 16 * i);
    SYMM_NO_UNROLL
    for (int r = 0; r < args.team.size; r++)
        sum.add(symm_packet_gather(args.team.base[r] + args.in_offset, 16 * i,
                                   args.bytes, element, false),
                r == 0);
    return sum.done(args.team.size);
}

/* Packet i of an array of `bytes` bytes at `offset` in all heaps. */
SYMM_DEVICE void store_packet(const struct symm_cuda_args &args, uint64_t offset,
                              uint64_t i, uint64_t bytes, uint32_t element, bool whole,
                              const struct symm_packet &packet)
{
    if (whole) {
        symm_multicast_store(args.multicast + offset + 16 * i, packet);
        return;
    }
    SYMM_NO_UNROLL
    for (int r = 0; r < args.team.size; r++)
        symm_packet_scatter(args.team.base[r] + offset, 16 * i, bytes, element, false,
                            packet);
}

template <int DTYPE>
SYMM_DEVICE void sum_packets(const struct symm_cuda_args &args, bool two_shot)
{
    constexpr uint32_t element = symm_element_size(DTYPE);
    const uint64_t packets = symm_packets(args.bytes);
    const uint64_t slice =
        two_shot ? symm_ceil(packets, (uint32_t)args.team.size) : packets;
    const uint64_t low = two_shot ? slice * (uint32_t)args.team.rank : 0;
    const uint64_t end = symm_least(low + slice, packets);

    SYMM_NO_UNROLL
    for (uint64_t i = low + symm_thread(); i < end; i += symm_threads()) {
        const bool full = 16 * i + 16 <= args.bytes;
        struct symm_packet packet =
            sum_packet<DTYPE>(args, i, full && args.in_offset % 16 == 0);

        if (two_shot)
            store_packet(args, args.out_offset, i, args.bytes, element,
                         full && args.out_offset % 16 == 0, packet);
        else
            symm_packet_scatter(args.out, 16 * i, args.bytes, element,
                                symm_aligned(args.out), packet);
    }
}

SYMM_DEVICE void gather_packets(const struct symm_cuda_args &args)
{
    const uint64_t offset = args.out_offset + (uint64_t)args.team.rank * args.bytes;
    const uint32_t element = symm_element_size(args.dtype);
    const bool aligned = symm_aligned(args.in) && offset % 16 == 0;

    SYMM_NO_UNROLL
    for (uint64_t i = symm_thread(); i < symm_packets(args.bytes); i += symm_threads())
        store_packet(args, offset, i, args.bytes, element,
                     aligned && 16 * i + 16 <= args.bytes,
                     symm_packet_gather(args.in, 16 * i, args.bytes, element, aligned));
}

template <class BODY>
SYMM_DEVICE void between(const struct symm_cuda_args &args, const BODY &body)
{
    struct symm_round round = symm_round_open(args);

    symm_round_announce(args, &round);
    symm_round_barrier(args, &round); /* a release, between proxies */
    symm_multicast_fence();
    if (round.ok)
        body();
    symm_multicast_fence();
    symm_round_end(args, &round, true);
}

SYMM_DEVICE void all_reduce(const struct symm_cuda_args &args, bool two_shot)
{
    between(args, [&]() {
        if (args.dtype == SYMM_BFLOAT16)
            sum_packets<SYMM_BFLOAT16>(args, two_shot);
        else if (args.dtype == SYMM_FLOAT16)
            sum_packets<SYMM_FLOAT16>(args, two_shot);
        else
            sum_packets<SYMM_FLOAT32>(args, two_shot);
    });
}

SYMM_KERNEL(symm_all_reduce_multimem_one_shot_any)
{
    all_reduce(args, false);
}

SYMM_KERNEL(symm_all_reduce_multimem_two_shot_any)
{
    all_reduce(args, true);
}

SYMM_KERNEL(symm_all_gather_multimem_one_shot_any)
{
    between(args, [&]() { gather_packets(args); });
}

template <int DTYPE>
SYMM_DEVICE void prove_sum(const struct symm_cuda_args &args, uint64_t at)
{
    const struct symm_packet sum =
        symm_multicast_sum<DTYPE>(args.multicast + args.in_offset + at);

    symm_port_store_packet((struct symm_packet *)((char *)args.out + at), sum);
}

SYMM_KERNEL(symm_multimem_prove_any)
{
    const uint64_t at = 16 * (uint64_t)threadIdx.x;

    symm_port_dependent_wait();
    symm_multicast_fence();
    prove_sum<SYMM_FLOAT32>(args, at);
    prove_sum<SYMM_BFLOAT16>(args, at + args.bytes);
    prove_sum<SYMM_FLOAT16>(args, at + 2 * args.bytes);
    symm_multicast_store(args.multicast + args.out_offset +
                             (uint64_t)args.team.rank * args.bytes + at,
                         symm_port_load_packet(
                             (const struct symm_packet *)((const char *)args.in + at)));
    symm_multicast_fence();
}
