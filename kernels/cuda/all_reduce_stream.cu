/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_stream.cu - much data by stores alone, which a link carries faster than loads:
 * inputs go to their owners' stages, sums to where they belong. two_shot_inplace of
 * all_reduce, into every rank's output (the input may be any); copy_in of
 * reduce_scatter, into this rank's own (both may be any).
 *
 * Each rank owns a slice of every input: of all_reduce an n-th, in whole packets, of
 * reduce_scatter its block. Block b of every rank has the same part of each slice, in as many
 * rounds as a slot of the stage demands. Step c of a block: it sends part c of every other
 * slice to its owner's stage, sums part c - 1 of its own slice and stores the sum; and there
 * is a barrier with the same block of the peers. all_reduce of more than two ranks arrives at
 * it before the sum and waits after it, which takes one slot more: without it all ranks wait for
 * the slowest in each step (4 H200, 64 MiB: 307 us, with it 304). Slices (all_reduce) and parts
 * begin at multiples of 512 bytes: stores that share a line of 128 bytes with another block's are
 * 10 % slower.
 *
 * Entry barrier, always: all ranks have begun this call, hence ended the ones before, and
 * no rank uses a stage or an output any more. The barrier of step c: what was sent in it has
 * come; and part c - 1 has been read, or part c - 2 where ranks arrive before the sum. Step
 * c + 1 writes into the slot of that part. The last barrier, after the last sum, is the exit
 * barrier: all sums are in all outputs, nothing is left in a stage.
 *
 * Sums are made in rank order: the same bits everywhere. in == out, all_reduce: part c of
 * slice q is overwritten here by q in step c + 1, after a barrier that follows the step in which
 * this block has sent it; the packets of this rank's slice are read and written by one thread.
 * reduce_scatter: out is this rank's block, of which the same is true, or block 0 of the input:
 * its part c is overwritten by this block in step c + 1, and was sent before. Other overlaps of
 * in and out are not allowed.
 *
 * symm_{all_reduce,reduce_scatter}_stream_{bfloat16,float16,float32}_n{2,4,8}: SUM;
 * those of all_reduce are also by pointer (arrays.cuh)
 */
#include "kernels/cuda/arrays.cuh"

/* One block's share of the call. SCATTER: reduce_scatter. */
template <int DTYPE, int N, bool SCATTER> struct stream {
    const struct symm_cuda_args &args;
    const symm_arrays &arrays;
    const uint32_t packets; /* of the array, or of its block (SCATTER); below 2^31 */
    const uint32_t slice;   /* packets of a slice */
    uint32_t begin, end;    /* this block's packets of each slice */
    uint32_t room, rounds;  /* room: packets in a row of the stage */
    static constexpr bool apart = N > 2 && !SCATTER;  /* arrivals and waits */
    static constexpr uint32_t slots = apart ? 3 : 2;  /* of the stage */
    static constexpr uint32_t sums = 8 / N;           /* packets summed at once */
    static constexpr uint32_t outs = SCATTER ? 1 : N; /* of a sum */

    SYMM_DEVICE stream(const struct symm_cuda_args &a, const symm_arrays &where)
        : args(a), arrays(where), packets((uint32_t)symm_packets(a.bytes)),
          slice(SCATTER ? packets : whole_warps((packets + N - 1) / N))
    {
        const uint32_t share = whole_warps((slice + gridDim.x - 1) / gridDim.x);

        begin = least(blockIdx.x * share, slice);
        end = least(begin + share, slice);
        room =
            (uint32_t)(args.scratch.stage_bytes / 16) / (slots * gridDim.x * (N - 1));
        room -= room > SYMM_WARP ? room % SYMM_WARP : 0;
        rounds = (share + room - 1) / room;
    }

    static SYMM_DEVICE uint32_t least(uint32_t a, uint32_t b)
    {
        return a < b ? a : b;
    }

    static SYMM_DEVICE uint32_t whole_warps(uint32_t count)
    {
        return (count + SYMM_WARP - 1) / SYMM_WARP * SYMM_WARP;
    }

    /* Part c of a slice begins here. */
    SYMM_DEVICE uint32_t low(uint32_t c) const
    {
        return least(begin + c * room, end);
    }

    /* Slice q of the input, and its bytes. */
    SYMM_DEVICE const char *in(uint32_t q) const
    {
        return (const char *)args.in +
               q * (SCATTER ? args.bytes : (uint64_t)16 * slice);
    }

    SYMM_DEVICE uint64_t bytes(uint32_t q) const
    {
        return SCATTER ? args.bytes
                       : symm_bytes_within(args.bytes, (uint64_t)q * slice,
                                           (uint64_t)(q + 1) * slice);
    }

    /* Row `row` of part c in every stage. */
    SYMM_DEVICE uint64_t stage(uint32_t c, uint32_t row) const
    {
        return args.scratch.stage +
               (uint64_t)16 * room *
                   ((c % slots * gridDim.x + blockIdx.x) * (N - 1) + row);
    }

    /* Part c of the slice of the rank k after this one, to its stage. For the owner
     * this rank is the rank N - k after it. */
    SYMM_DEVICE void send(uint32_t c) const
    {
        const uint32_t first = low(c), last = low(c + 1);

        symm_copy_rows(
            N - 1, last - first, threadIdx.x, blockDim.x,
            [&](uint32_t row) {
                return in(symm_peer_after(args, row + 1)) + (uint64_t)16 * first;
            },
            [&](uint32_t row) {
                return args.team.base[symm_peer_after(args, row + 1)] +
                       stage(c, N - 2 - row);
            },
            [&](uint32_t row) {
                return symm_bytes_within(bytes(symm_peer_after(args, row + 1)), first,
                                         last);
            });
    }

    /* Packet j of part c of every rank's input, in rank order: this rank's is given, the others
     * are in the stage. */
    SYMM_DEVICE void load(uint32_t c, uint32_t j, const struct symm_packet &own,
                          struct symm_packet (&packet)[N]) const
    {
        const uint32_t rank = (uint32_t)args.team.rank;
        const char *base = args.team.base[rank];

        SYMM_UNROLL
        for (uint32_t r = 0; r < N; r++) {
            uint32_t row = r > rank ? r - rank - 1 : r + N - rank - 1;

            packet[r] = own;
            if (r != rank)
                packet[r] =
                    symm_port_load_data(symm_packet_at(base + stage(c, row), j));
        }
    }

    /* This rank's slice in the output of the rank k after this one; k < outs. */
    SYMM_DEVICE char *out(uint32_t k) const
    {
        if (SCATTER)
            return (char *)args.out;
        return arrays.out(symm_peer_after(args, (k + 1) % N)) +
               (uint64_t)16 * slice * (uint32_t)args.team.rank;
    }

    /* Packets j, j + step, ... below `end` of part c of this rank's slice, COUNT at once while
     * there are as many, all of them full ones and aligned on both sides. Returns the next j. */
    template <uint32_t COUNT>
    SYMM_DEVICE uint32_t sum_full(uint32_t c, uint32_t j, uint32_t whole) const
    {
        const struct symm_packet *own =
            symm_packet_at(in((uint32_t)args.team.rank), low(c));
        const uint32_t step = blockDim.x, first = low(c);

        SYMM_NO_UNROLL
        for (; j + (COUNT - 1) * step < whole; j += COUNT * step) {
            struct symm_packet packet[COUNT][N];

            SYMM_UNROLL
            for (uint32_t u = 0; u < COUNT; u++)
                load(c, j + u * step, symm_port_load_data(own + j + u * step),
                     packet[u]);
            SYMM_UNROLL
            for (uint32_t u = 0; u < COUNT; u++) {
                struct symm_packet sum = symm_pull_sum<DTYPE, N>::combine(packet[u]);

                SYMM_UNROLL
                for (uint32_t k = 0; k < outs; k++)
                    symm_port_store_packet(
                        (struct symm_packet *)out(k) + first + j + u * step, sum);
            }
        }
        return j;
    }

    /* Part c of this rank's slice, any packets. */
    SYMM_DEVICE void sum(uint32_t c) const
    {
        const uint32_t rank = (uint32_t)args.team.rank, first = low(c);
        const uint64_t size = bytes(rank);
        const uint32_t count = (uint32_t)symm_packets(
                           symm_bytes_within(size, first, low(c + 1))),
                       whole = first < size / 16
                                   ? least(count, (uint32_t)(size / 16) - first)
                                   : 0;
        const bool in_aligned = symm_aligned(in(rank)),
                   out_aligned = symm_aligned(out(outs - 1)) && arrays.out_alike();
        uint32_t j = threadIdx.x;

        if (in_aligned && out_aligned) {
            j = sum_full<sums>(c, j, whole);
            if (sums > 1)
                j = sum_full<1>(c, j, whole);
        }
        SYMM_NO_UNROLL
        for (; j < count; j += blockDim.x) {
            const uint64_t at = (uint64_t)16 * (first + j);
            struct symm_packet packet[N], sum;

            load(c, j,
                 symm_packet_gather(in(rank), at, size, symm_element_size(DTYPE),
                                    in_aligned),
                 packet);
            sum = symm_pull_sum<DTYPE, N>::combine(packet);
            SYMM_NO_UNROLL
            for (uint32_t k = 0; k < outs; k++)
                symm_packet_scatter(out(k), at, size, symm_element_size(DTYPE),
                                    out_aligned, sum);
        }
    }

    SYMM_DEVICE void run() const
    {
        struct symm_round round = symm_round_enter(args, true, arrays);

        SYMM_NO_UNROLL
        for (uint32_t c = 0; c <= rounds; c++) {
            if (round.ok && c < rounds)
                send(c);
            if (apart)
                symm_round_arrive(args, &round);
            if (round.ok && c > 0)
                sum(c - 1);
            if (!apart)
                symm_round_arrive(args, &round);
            symm_round_wait(args, &round);
        }
        symm_round_end(args, &round, apart);
    }
};

#define SYMM_STREAM(name, dtype, n)                                                    \
    SYMM_KERNEL_ARRAYS(symm_all_reduce_stream_##name)                                  \
    {                                                                                  \
        const symm_arrays arrays(args);                                                \
                                                                                       \
        stream<dtype, n, false>(args, arrays).run();                                   \
    }
SYMM_HOT_MAP(SYMM_STREAM)

#if !defined(SYMM_BY_POINTER)
#define SYMM_SCATTER_STREAM(name, dtype, n)                                            \
    SYMM_KERNEL(symm_reduce_scatter_stream_##name)                                     \
    {                                                                                  \
        const symm_arrays arrays(args);                                                \
                                                                                       \
        stream<dtype, n, true>(args, arrays).run();                                    \
    }
SYMM_HOT_MAP(SYMM_SCATTER_STREAM)
#endif
