/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_stream.cu - two_shot_inplace (all_reduce_inplace.cu) of much data: symmetric
 * output, any input. A link carries stores faster than loads, so here peers' memory is only
 * written: inputs go to the owners' stages, sums to everybody's output.
 *
 * The array is cut into one slice of whole lines for each rank, its owner. Block b of every
 * rank has the same part of each slice, in as many rounds as a slot of the stage demands.
 * Step c of a block: it sends part c of every other slice to its owner's stage, sums part
 * c - 1 of its own slice and stores the sum into everybody's output; then comes a barrier
 * with the same block of the peers. Slices and parts begin at multiples of 512 bytes: stores
 * that share a line of 128 with another block's are 10 % slower. (Measured on 2 H200 at 64
 * MiB: 196 us, where stores alone take 190 and all_reduce_inplace.cu 204. An arrival before
 * the sum and a wait behind it, with three slots and even by a warp of its own: 197 to 200.)
 *
 * Entry barrier, always: all ranks have begun this call, hence ended the ones before, and
 * nobody uses a stage or an output any more. The barrier of step c: what was sent in it has
 * come; and what lay in the other slot, of step c - 1, has been read, so that step c + 1 may
 * write there. The last barrier is the exit barrier: all sums are in all outputs, nothing is
 * left in a stage.
 *
 * Sums are made in rank order: the same bits everywhere. in == out: part c of slice q is
 * overwritten here by q in step c + 1, after a barrier behind the step in which this block
 * has sent it; the own slice's lines are read and written by one thread. Other overlaps of
 * in and out are not allowed.
 *
 * symm_all_reduce_stream_{bfloat16,float16,float32}_n{2,4,8}: SUM
 */
#include "cuda_pull.cuh"

/* One block's share of the call. */
template <int DTYPE, int N> struct stream {
    const struct symm_cuda_args &args;
    const uint32_t lines, slice; /* of the array, of a slice; below 2^31 */
    uint32_t begin, end;         /* this block's lines of each slice */
    uint32_t room, rounds;       /* lines in a row of the stage */
    static constexpr uint32_t slots = 2, sums = 8 / N; /* lines summed at once */

    SYMM_DEVICE stream(const struct symm_cuda_args &a)
        : args(a), lines((uint32_t)symm_lines(a.bytes)),
          slice(whole_warps((lines + N - 1) / N))
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

    /* Row `row` of part c in every stage. */
    SYMM_DEVICE uint64_t stage(uint32_t c, uint32_t row) const
    {
        return args.scratch.stage +
               (uint64_t)16 * room *
                   ((c % slots * gridDim.x + blockIdx.x) * (N - 1) + row);
    }

    /* Part c of the slice of the rank k after this one, to its stage. The owner sees this
     * rank N - k places behind itself. */
    SYMM_DEVICE void send(uint32_t c) const
    {
        const uint32_t first = low(c), last = low(c + 1);

        symm_copy_rows(
            N - 1, last - first, threadIdx.x, blockDim.x,
            [&](uint32_t row) {
                return (const char *)args.in +
                       (uint64_t)16 * (symm_peer_after(args, row + 1) * slice + first);
            },
            [&](uint32_t row) {
                return args.team.base[symm_peer_after(args, row + 1)] +
                       stage(c, N - 2 - row);
            },
            [&](uint32_t row) {
                uint32_t at = symm_peer_after(args, row + 1) * slice;

                return symm_bytes_within(args.bytes, at + first, at + last);
            });
    }

    /* Line j of part c of every rank's input, in rank order: the own one is given, the
     * others are in the stage. */
    SYMM_DEVICE void load(uint32_t c, uint32_t j, const struct symm_line &own,
                          struct symm_line (&line)[N]) const
    {
        const uint32_t rank = (uint32_t)args.team.rank;
        const char *base = args.team.base[rank];

        SYMM_UNROLL
        for (uint32_t r = 0; r < N; r++) {
            uint32_t row = r > rank ? r - rank - 1 : r + N - rank - 1;

            line[r] = own;
            if (r != rank)
                line[r] = symm_port_load_line(symm_line_at(base + stage(c, row), j));
        }
    }

    /* The output of the rank k after this one. */
    SYMM_DEVICE char *out(uint32_t k) const
    {
        return args.team.base[symm_peer_after(args, k % N)] + args.out_offset;
    }

    /* Part c of the own slice: lines j, j + step, ... below `whole`, all of them full ones
     * and aligned on both sides. Returns the next j. */
    SYMM_DEVICE uint32_t sum_full(uint32_t c, uint32_t first, uint32_t whole) const
    {
        const struct symm_line *in = (const struct symm_line *)args.in + first;
        const uint32_t step = blockDim.x;
        uint32_t j = threadIdx.x;

        SYMM_NO_UNROLL
        for (; j + (sums - 1) * step < whole; j += sums * step) {
            struct symm_line line[sums][N];

            SYMM_UNROLL
            for (uint32_t u = 0; u < sums; u++)
                load(c, j + u * step, symm_port_load_line(in + j + u * step), line[u]);
            SYMM_UNROLL
            for (uint32_t u = 0; u < sums; u++) {
                struct symm_line sum = symm_pull_sum<DTYPE, N>::combine(line[u]);

                SYMM_UNROLL
                for (uint32_t k = 1; k <= N; k++)
                    symm_port_store_line(
                        (struct symm_line *)out(k) + first + j + u * step, sum);
            }
        }
        return j;
    }

    /* The same of any lines. */
    SYMM_DEVICE void sum(uint32_t c) const
    {
        const uint32_t first = slice * (uint32_t)args.team.rank + low(c);
        const uint32_t count =
            least(low(c + 1) - low(c), first < lines ? lines - first : 0);
        const bool in_aligned = symm_aligned(args.in),
                   out_aligned = args.out_offset % 16 == 0;
        uint32_t whole = 0, j;

        if (in_aligned && out_aligned && first < args.bytes / 16)
            whole = least(count, (uint32_t)(args.bytes / 16) - first);
        j = sum_full(c, first, whole);
        SYMM_NO_UNROLL
        for (; j < count; j += blockDim.x) {
            struct symm_line line[N], sum;

            load(c, j,
                 symm_line_gather(args.in, (uint64_t)16 * (first + j), args.bytes,
                                  symm_element_size(DTYPE), in_aligned),
                 line);
            sum = symm_pull_sum<DTYPE, N>::combine(line);
            SYMM_NO_UNROLL
            for (uint32_t k = 1; k <= N; k++)
                symm_line_scatter(out(k), (uint64_t)16 * (first + j), args.bytes,
                                  symm_element_size(DTYPE), out_aligned, sum);
        }
    }

    SYMM_DEVICE void run() const
    {
        struct symm_round round = symm_round_open(args);

        symm_round_announce(args, &round);
        symm_round_barrier(args, &round);
        SYMM_NO_UNROLL
        for (uint32_t c = 0; c <= rounds; c++) {
            if (round.ok && c < rounds)
                send(c);
            if (round.ok && c > 0)
                sum(c - 1);
            symm_round_barrier(args, &round);
        }
        symm_round_meet(args, &round, 0);
        __syncthreads();
        symm_round_close(args, &round);
    }
};

#define SYMM_STREAM(name, dtype, n)                                                    \
    SYMM_KERNEL(symm_all_reduce_stream_##name)                                         \
    {                                                                                  \
        stream<dtype, n>(args).run();                                                  \
    }
SYMM_STREAM(bfloat16_n2, SYMM_BFLOAT16, 2)
SYMM_STREAM(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_STREAM(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_STREAM(float16_n2, SYMM_FLOAT16, 2)
SYMM_STREAM(float16_n4, SYMM_FLOAT16, 4)
SYMM_STREAM(float16_n8, SYMM_FLOAT16, 8)
SYMM_STREAM(float32_n2, SYMM_FLOAT32, 2)
SYMM_STREAM(float32_n4, SYMM_FLOAT32, 4)
SYMM_STREAM(float32_n8, SYMM_FLOAT32, 8)
