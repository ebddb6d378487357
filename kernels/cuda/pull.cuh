/* SPDX-License-Identifier: MIT */
/*
 * pull.cuh - the inner loops of kernels that read peers' memory: sums over all ranks,
 * and copies of several rows at once.
 *
 * Work is counted in packets of 16 bytes from the beginning of an array; the last one may be
 * partial. A thread takes the packets first, first + step, ... below end. Several loads are
 * under way before the first is used: a load from a peer takes more than a microsecond.
 * Loads begin at this rank and go upward, so that at no time all ranks read from one; the sum is
 * still made in rank order.
 *
 * Arrays may be aligned to their elements only. Where all of a loop's arrays begin at a
 * multiple of 16, full packets are moved by one instruction; everything else goes in words of
 * up to 4 bytes. No loop here waits; callers have passed the barrier that makes the sources
 * readable.
 */
#ifndef SYMM_KERNELS_CUDA_PULL_CUH
#define SYMM_KERNELS_CUDA_PULL_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/round.cuh"
#if defined(SYMM_WIDE)
#include "kernels/cuda/column.cuh"

#define SYMM_PULL_GROUP                                                                \
    24 /* packets of ranks that a thread loads before it uses the first */
#endif

#define SYMM_COPY_PACKETS 4 /* that a thread loads before it stores the first */

/* This thread among all of the kernel's, and their number. */
SYMM_DEVICE uint64_t symm_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

SYMM_DEVICE uint64_t symm_threads(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* Packets of `bytes` bytes; the last may be partial. */
SYMM_DEVICE uint64_t symm_packets(uint64_t bytes)
{
    return bytes / 16 + (bytes % 16 != 0);
}

SYMM_DEVICE uint64_t symm_ceil(uint64_t count, uint64_t parts)
{
    return (count + parts - 1) / parts;
}

SYMM_DEVICE uint64_t symm_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes of an array of `bytes` bytes that lie in packets [low, high). */
SYMM_DEVICE uint64_t symm_bytes_within(uint64_t bytes, uint64_t low, uint64_t high)
{
    uint64_t begin = symm_least(16 * low, bytes), end = symm_least(16 * high, bytes);

    return end > begin ? end - begin : 0;
}

/* The peer that comes k after this rank. */
SYMM_DEVICE uint32_t symm_peer_after(const struct symm_cuda_args &args, uint32_t k)
{
    uint32_t peer = (uint32_t)args.team.rank + k, size = (uint32_t)args.team.size;

    return peer < size ? peer : peer - size;
}

SYMM_DEVICE const struct symm_packet *symm_packet_at(const char *array, uint64_t packet)
{
    return (const struct symm_packet *)array + packet;
}

/* ---- Sums over all ranks --------------------------------------------------------- */

/* An array at one offset in every heap. */
struct symm_at_offset {
    const struct symm_cuda_args &args;
    uint64_t offset;

    template <class RANK> SYMM_DEVICE const char *at(RANK r) const
    {
        return args.team.base[r] + offset;
    }

    SYMM_DEVICE bool aligned(void) const
    {
        return offset % 16 == 0;
    }
};

/* packets[u][r] = packet i + u x step of rank r's array `from`; FIRST: the first one read. */
template <int N, int UNROLL, int FIRST, class FROM>
SYMM_DEVICE void symm_pull_from(const FROM &from, uint64_t i, uint64_t step,
                                struct symm_packet (&packets)[UNROLL][N])
{
    SYMM_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        SYMM_UNROLL
        for (int k = 0; k < N; k++) {
            constexpr int first = FIRST;
            const int r = (first + k) % N;

            packets[u][r] = symm_port_load_packet(
                symm_packet_at(from.at(r), i + (uint64_t)u * step));
        }
    }
}

/* One branch for each rank: registers have no computed index. */
template <int N, int UNROLL, int FIRST = 0, class FROM>
SYMM_DEVICE void symm_pull_all(const struct symm_cuda_args &args, const FROM &from,
                               uint64_t i, uint64_t step,
                               struct symm_packet (&packets)[UNROLL][N])
{
    if constexpr (FIRST + 1 < N) {
        if (args.team.rank != FIRST) {
            symm_pull_all<N, UNROLL, FIRST + 1>(args, from, i, step, packets);
            return;
        }
    }
    symm_pull_from<N, UNROLL, FIRST>(from, i, step, packets);
}

/* What a sum is handed to: full(i, packet) gets packet i where both sides are at multiples of 16
 * and the packet is a full one, part(i, packet) any other; bytes after the end hold anything. */

/*
 * symm_pull_sum<dtype, n>::run: the sum (for SYMM_DTYPE_ANY: args.op) of all ranks' arrays of
 * `bytes` bytes, which `from` locates (symm_at_offset, symm_at_pointer), packets first, first +
 * step, ... below end. aligned: whether the side that is written is.
 */
template <int DTYPE, int N> struct symm_pull_sum {
    static SYMM_DEVICE struct symm_packet
    combine(const struct symm_packet (&packets)[N])
    {
        symm_packet_sum<DTYPE> sum;

        SYMM_UNROLL
        for (int r = 0; r < N; r++)
            sum.add(packets[r], r == 0);
        return sum.done(N);
    }

    template <int UNROLL, class FROM, class TO>
    static SYMM_DEVICE uint64_t full(const struct symm_cuda_args &args,
                                     const FROM &from, uint64_t i, uint64_t step,
                                     uint64_t end, const TO &to)
    {
        struct symm_packet packets[UNROLL][N];

        SYMM_NO_UNROLL
        for (; i + (UNROLL - 1) * step < end; i += UNROLL * step) {
            symm_pull_all<N, UNROLL>(args, from, i, step, packets);
            SYMM_UNROLL
            for (int u = 0; u < UNROLL; u++)
                to.full(i + (uint64_t)u * step, combine(packets[u]));
        }
        return i;
    }

    template <class FROM, class TO>
    static SYMM_DEVICE void run(const struct symm_cuda_args &args, const FROM &from,
                                uint64_t bytes, uint64_t first, uint64_t step,
                                uint64_t end, bool aligned, const TO &to)
    {
        constexpr uint32_t element = symm_element_size(DTYPE);
        uint64_t i = first;

        if (from.aligned() && aligned) {
            uint64_t whole = symm_least(end, bytes / 16);

            if (N < SYMM_FEW_RANKS)
                i = full<2>(args, from, i, step, whole, to);
            i = full<1>(args, from, i, step, whole, to);
        }
        SYMM_NO_UNROLL
        for (; i < end; i += step) {
            symm_packet_sum<DTYPE> sum;

            SYMM_NO_UNROLL
            for (int r = 0; r < N; r++)
                sum.add(symm_packet_gather(from.at(r), 16 * i, bytes, element, false),
                        r == 0);
            to.part(i, sum.done(N));
        }
    }
};

#if defined(SYMM_WIDE)

/* Any dtype, op and size, for blocks of one warp: a thread loads its packet of all ranks, some at a
 * time, the next rank's first, into its column of shared memory, and sums it there. */
template <> struct symm_pull_sum<SYMM_DTYPE_ANY, 0> {
    template <class FROM>
    static SYMM_DEVICE void load(const struct symm_cuda_args &args, const FROM &from,
                                 uint64_t i, uint64_t bytes, bool whole)
    {
        const uint32_t element = symm_element_size(args.dtype);
        const uint32_t n = (uint32_t)args.team.size;

        SYMM_NO_UNROLL
        for (uint32_t k = 0; k < n; k += SYMM_PULL_GROUP) {
            struct symm_packet packets[SYMM_PULL_GROUP];

            SYMM_UNROLL
            for (uint32_t u = 0; u < SYMM_PULL_GROUP; u++)
                if (whole && k + u < n)
                    packets[u] = symm_port_load_packet(
                        symm_packet_at(from.at(symm_peer_after(args, k + u)), i));
            SYMM_UNROLL
            for (uint32_t u = 0; u < SYMM_PULL_GROUP; u++)
                if (whole && k + u < n)
                    symm_column_put(symm_peer_after(args, k + u),
                                    symm_packet_unit(packets[u], 0),
                                    symm_packet_unit(packets[u], 1));
        }
        SYMM_NO_UNROLL
        for (uint32_t r = 0; r < n && !whole; r++) {
            const uint64_t at = 16 * i;
            const uint64_t low =
                symm_unit_gather(from.at(r), at, bytes, element, false);

            symm_column_put(
                r, low, symm_unit_gather(from.at(r), at + 8, bytes, element, false));
        }
    }

    template <class FROM, class TO>
    static SYMM_DEVICE void run(const struct symm_cuda_args &args, const FROM &from,
                                uint64_t bytes, uint64_t first, uint64_t step,
                                uint64_t end, bool aligned, const TO &to)
    {
        SYMM_NO_UNROLL
        for (uint64_t i = first; i < end; i += step) {
            const bool whole = aligned && from.aligned() && 16 * i + 16 <= bytes;
            struct symm_packet packet;

            load(args, from, i, bytes, whole);
            packet = symm_column_packet(args);
            if (whole)
                to.full(i, packet);
            else
                to.part(i, packet);
        }
    }
};

#else

/* Any dtype, op and size: the ranks' packets are loaded into registers all at once and pass
 * through shared memory, each thread's own column, where they can be indexed. */
template <> struct symm_pull_sum<SYMM_DTYPE_ANY, 0> {
    template <class FROM, class TO>
    static SYMM_DEVICE void run(const struct symm_cuda_args &args, const FROM &from,
                                uint64_t bytes, uint64_t first, uint64_t step,
                                uint64_t end, bool aligned, const TO &to)
    {
        __shared__ uint64_t units[SYMM_FEW_RANKS][SYMM_PULL_THREADS];
        const uint32_t element = symm_element_size(args.dtype), t = threadIdx.x;
        const int n = args.team.size;

        SYMM_NO_UNROLL
        for (uint64_t i = first; i < end; i += step) {
            const bool whole = aligned && from.aligned() && 16 * i + 16 <= bytes;
            uint64_t now[SYMM_FEW_RANKS], later[SYMM_FEW_RANKS], low = 0, high = 0;

            SYMM_UNROLL
            for (int r = 0; r < SYMM_FEW_RANKS; r++) {
                if (whole && r < n) {
                    struct symm_packet packet =
                        symm_port_load_packet(symm_packet_at(from.at(r), i));

                    now[r] = symm_packet_unit(packet, 0);
                    later[r] = symm_packet_unit(packet, 1);
                }
            }
            SYMM_NO_UNROLL
            for (int h = 0; h < 2; h++) {
                if (whole) {
                    SYMM_UNROLL
                    for (int r = 0; r < SYMM_FEW_RANKS; r++) {
                        if (r < n)
                            units[r][t] = now[r];
                        now[r] = later[r];
                    }
                } else {
                    SYMM_NO_UNROLL
                    for (int r = 0; r < n; r++)
                        units[r][t] =
                            symm_unit_gather(from.at(r), 16 * i + 8 * (uint64_t)h,
                                             bytes, element, false);
                }
                low = high;
                high = symm_fold_any(args.dtype, args.op, n,
                                     [&](int r) { return units[r][t]; });
            }
            if (whole)
                to.full(i, symm_packet_make(low, high));
            else
                to.part(i, symm_packet_make(low, high));
        }
    }
};

#endif

/* A sum's result in one array of own memory. */
struct symm_to_array {
    char *array;
    uint64_t bytes;
    uint32_t element;

    SYMM_DEVICE void full(uint64_t i, const struct symm_packet &packet) const
    {
        symm_port_store_packet((struct symm_packet *)array + i, packet);
    }

    SYMM_DEVICE void part(uint64_t i, const struct symm_packet &packet) const
    {
        symm_packet_scatter(array, 16 * i, bytes, element, false, packet);
    }
};

/* ---- Copies ---------------------------------------------------------------------- */

/* The widest word, 1, 2 or 4 bytes, that all these numbers are multiples of. */
SYMM_DEVICE uint32_t symm_granule(uint64_t numbers)
{
    return numbers % 4 == 0 ? 4 : numbers % 2 == 0 ? 2 : 1;
}

template <class FROM, class TO, class SIZE>
SYMM_DEVICE void symm_copy_full(uint32_t rows, uint64_t width, uint64_t first,
                                uint64_t step, const FROM &from, const TO &to,
                                const SIZE &size)
{
    const uint64_t end = rows * width;

    SYMM_NO_UNROLL
    for (uint64_t i = first; i < end; i += SYMM_COPY_PACKETS * step) {
        struct symm_packet packets[SYMM_COPY_PACKETS];
        struct symm_packet *at[SYMM_COPY_PACKETS];

        SYMM_UNROLL
        for (uint32_t u = 0; u < SYMM_COPY_PACKETS; u++) {
            uint64_t j = i + u * step;
            uint32_t row = rows == 1   ? 0
                           : end >> 32 ? (uint32_t)(j / width)
                                       : (uint32_t)j / (uint32_t)width;

            at[u] = NULL;
            if (j >= end || (j -= row * width) >= size(row) / 16)
                continue;
            packets[u] = symm_port_load_packet(symm_packet_at(from(row), j));
            at[u] = (struct symm_packet *)to(row) + j;
        }
        SYMM_UNROLL
        for (uint32_t u = 0; u < SYMM_COPY_PACKETS; u++)
            if (at[u])
                symm_port_store_packet(at[u], packets[u]);
    }
}

/*
 * Copies `rows` rows; from(row) and to(row) give a row's addresses, size(row) its bytes, at
 * most `width` packets. Of the rows x width packets, row after row, this thread takes first,
 * first + step, ...: which packet is whose depends on nothing else. No row may overlap a
 * destination, but for its own at the same place.
 */
template <class FROM, class TO, class SIZE>
SYMM_DEVICE void symm_copy_rows(uint32_t rows, uint64_t width, uint64_t first,
                                uint64_t step, const FROM &from, const TO &to,
                                const SIZE &size)
{
    uint64_t places = 0, sizes = 0;

    SYMM_NO_UNROLL
    for (uint32_t row = 0; row < rows; row++) {
        places |= (uintptr_t)from(row) | (uintptr_t)to(row);
        sizes |= size(row);
    }
    if (places % 16 == 0) {
        symm_copy_full(rows, width, first, step, from, to, size);
        if (sizes % 16 == 0)
            return;
    }
    SYMM_NO_UNROLL
    for (uint64_t i = first; i < rows * width; i += step) {
        uint32_t row = rows == 1 ? 0 : (uint32_t)(i / width);
        uint32_t word = symm_granule(places | sizes);
        uint64_t j = i - row * width, bytes = size(row);

        if (j >= (places % 16 == 0 ? bytes / 16 : 0) && 16 * j < bytes)
            symm_packet_scatter(
                to(row), 16 * j, bytes, word, false,
                symm_packet_gather(from(row), 16 * j, bytes, word, false));
    }
}

/* ---- Staging --------------------------------------------------------------------- */

/*
 * How a block's part of an array goes through its part of a slot of the stage, in rounds.
 * Block b has the packets [b x block, (b + 1) x block) of each of `rows` arrays; the same on
 * all ranks. All blocks make the same number of rounds.
 */
struct symm_split {
    uint64_t packets; /* of one array */
    uint32_t block,
        round;     /* packets of one array that a block moves, in all and at once */
    uint32_t room; /* packets of one array in a block's part of a slot */
    uint32_t rounds, rows;
};

SYMM_DEVICE struct symm_split symm_split_of(const struct symm_cuda_args &args,
                                            uint64_t packets, uint32_t rows)
{
    struct symm_split split;

    split.packets = packets;
    split.rows = rows;
    split.room = (uint32_t)(args.scratch.stage_bytes / 32) / gridDim.x / rows;
    split.block = (uint32_t)symm_ceil(packets, gridDim.x);
    split.rounds = (uint32_t)symm_ceil(split.block, split.room);
    split.rounds = split.rounds ? split.rounds : 1;
    split.round = (uint32_t)symm_ceil(split.block, split.rounds);
    return split;
}

/* The packets [low, high) of this block in round c. */
SYMM_DEVICE uint64_t symm_split_low(const struct symm_split &split, uint32_t c)
{
    return symm_least((uint64_t)blockIdx.x * split.block + (uint64_t)c * split.round,
                      split.packets);
}

SYMM_DEVICE uint64_t symm_split_high(const struct symm_split &split, uint32_t c)
{
    uint64_t high = symm_least((blockIdx.x + (uint64_t)1) * split.block, split.packets);

    return symm_least(symm_split_low(split, c) + split.round, high);
}

/* Where in every heap this block's rows of a slot (by its lowest bit) begin. */
SYMM_DEVICE uint64_t symm_stage_at(const struct symm_cuda_args &args,
                                   const struct symm_split &split, uint32_t slot)
{
    return args.scratch.stage + (slot & 1) * (args.scratch.stage_bytes / 2) +
           (uint64_t)16 * split.room * (blockIdx.x * split.rows);
}

#endif
