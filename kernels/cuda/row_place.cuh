/* SPDX-License-Identifier: MIT */
/*
 * row_place.cuh - which rows and packets a thread of row_exchange.cuh has, and its accesses to arrays
 * of rows.
 */
#ifndef SYMM_KERNELS_CUDA_ROW_PLACE_CUH
#define SYMM_KERNELS_CUDA_ROW_PLACE_CUH

#include "kernels/cuda/packet.cuh"

/* Packets of a row that a thread has: as few as suffice with `threads` threads, or args.each. All
 * ranks agree on it. */
SYMM_DEVICE uint32_t symm_row_each(const struct symm_cuda_args &args, uint32_t packets,
                                   uint32_t threads)
{
    uint32_t each = args.each == 2 ? 2 : 1;

    while (each * threads < packets)
        each *= 2;
    return each;
}

/* The block's place in its cluster. */
SYMM_DEVICE uint32_t symm_row_member(const struct symm_cuda_args &args)
{
    return blockIdx.x & ((1u << args.cluster) - 1);
}

/*
 * A thread's place in the grid and in a row. P: its packets of a row. LOOP: P at most, `each` of
 * them, handled one after the other by code that is not unrolled, for rare rows; only this code
 * takes arrays whose packets are not at multiples of 16 (whole: they are). THREADS: of a group,
 * at most. CLUSTER: args.cluster is not 0.
 */
template <int DTYPE, int P, bool LOOP, int THREADS, bool CLUSTER>
struct symm_row_place {
    static constexpr int dtype = DTYPE, most = P, unrolled = LOOP ? 1 : P;
    static constexpr bool loop = LOOP, clustered = CLUSTER;
    static constexpr uint32_t element = symm_element_size(DTYPE);

    const bool whole;
    uint32_t bytes, packets; /* of a row */
    uint32_t each;           /* packets of a thread */
    uint32_t width, groups;  /* threads of a group; groups of a block */
    uint32_t group, thread;  /* the group in the block, the thread in the group */
    uint32_t first, step;    /* the group's first row, and from one to the next */

    /* takes: threads of a block that take packets. */
    SYMM_DEVICE symm_row_place(const struct symm_cuda_args &args, uint32_t takes,
                               bool aligned)
        : whole(aligned), bytes((uint32_t)args.norm.hidden * element),
          packets((bytes + 15) / 16),
          each(LOOP ? symm_row_each(args, packets, THREADS) : P),
          width(((packets + each - 1) / each + SYMM_WARP - 1) / SYMM_WARP * SYMM_WARP),
          groups(CLUSTER ? 1 : takes / width), group(CLUSTER ? 0 : threadIdx.x / width),
          thread(CLUSTER ? threadIdx.x + takes * symm_row_member(args)
                         : threadIdx.x - group * width),
          first(CLUSTER ? blockIdx.x >> args.cluster : blockIdx.x * groups + group),
          step(CLUSTER ? gridDim.x >> args.cluster : gridDim.x * groups)
    {
    }

    SYMM_DEVICE uint32_t count(void) const
    {
        return LOOP ? each : P;
    }

    /* The row's packet that is the thread's k-th, if it has one. */
    SYMM_DEVICE uint32_t packet(uint32_t k) const
    {
        uint32_t number = k * width + thread;

        if constexpr (!LOOP && P > 2) /* made when needed: addresses take registers */
            symm_port_settle(number);
        return number;
    }

    SYMM_DEVICE bool has(uint32_t k) const
    {
        return packet(k) < packets;
    }

    /* The thread's packet k of a row of an array; zeros after the row's end, or if there is no array.
     * Without a branch, behind which the compiler waits for the packet. */
    SYMM_DEVICE symm_lamport::value get(const void *array, uint64_t row,
                                        uint32_t k) const
    {
        const char *begin = (const char *)array + row * bytes;

        if (!LOOP || whole)
            return symm_lamport::open(symm_port_packet_if(array != nullptr && has(k),
                                                          begin + 16 * packet(k)));
        if (!array)
            return symm_lamport::value{};
        return symm_lamport::gather(begin, packet(k), bytes, element, SYMM_ENDS_ANY);
    }

    /* Of an array of one row. */
    SYMM_DEVICE void prefetch(const void *array, uint32_t k) const
    {
        if (has(k))
            symm_port_prefetch((const char *)array + 16 * packet(k));
    }

    SYMM_DEVICE void put(void *array, uint64_t row, uint32_t k,
                         const symm_lamport::value &v) const
    {
        char *begin = (char *)array + row * bytes;

        if (LOOP && !whole)
            symm_lamport::scatter(begin, packet(k), bytes, element, SYMM_ENDS_ANY, v);
        else if (has(k))
            symm_lamport::store(begin, packet(k), v);
    }
};

#endif
