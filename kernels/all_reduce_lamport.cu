/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_lamport.cu - lamport_push: one-shot all-reduce of floats up to 32 bits, whose
 * data is its own flag: 16 bytes of payload in 16 bytes. Any op, size of the team, count and
 * alignment. Every rank sends its whole input to every peer and sums in rank order: the same
 * bits everywhere. A NaN may change its payload, nothing else changes.
 *
 * symm_all_reduce_lamport_push_...: a warp a peer, for small data (cuda_hop.cuh).
 * symm_all_reduce_lamport_wide_...: every thread sends its lines to all peers and then waits for
 * all peers' lines at once; no thread waits for another one of its block. A thread's partner
 * on each peer is the thread of the same index, for every line; it reads and writes a line
 * of in and out alone, so in == out is fine.
 *
 * The argument why slots may be used again: cuda_lines.cuh.
 * Launch: 32 x size threads, wide: any number; all threads' lines fit into a slot.
 *
 * symm_all_reduce_lamport_{push,wide}_{bfloat16,float16,float32}_n{2,4,8}: SUM;
 * symm_all_reduce_lamport_push_any
 */
#include "cuda_hop.cuh"

/* My lines of a round to all peers, the next rank first. */
template <int SIZE>
SYMM_DEVICE void wide_send(const struct symm_cuda_args &args,
                           const struct symm_round &round, uint64_t first,
                           uint32_t width, uint32_t room)
{
    const uint32_t size = SIZE ? SIZE : (uint32_t)args.team.size;
    const uint32_t rank = (uint32_t)args.team.rank;
    const uint32_t element = symm_element_size(args.dtype);
    const uint32_t step = gridDim.x * blockDim.x;
    const bool aligned = symm_aligned(args.in);

    for (uint32_t j = blockIdx.x * blockDim.x + threadIdx.x; j < width; j += step) {
        symm_lamport::value v = symm_lamport::clean(
            symm_lamport::gather(args.in, first + j, args.bytes, element, aligned));

        SYMM_UNROLL
        for (uint32_t i = 1; i < (SIZE ? SIZE : SYMM_DEVICE_RANKS); i++) {
            uint32_t member = rank + i < size ? rank + i : rank + i - size;

            if (SIZE || i < size)
                symm_lamport::send(
                    symm_slot_of<symm_lamport>(args, member, round.round) +
                        (uint64_t)rank * room + j,
                    v, round.round);
        }
    }
}

template <int DTYPE, int OP, int SIZE>
SYMM_DEVICE void wide(const struct symm_cuda_args &args)
{
    constexpr int most = SIZE ? SIZE : SYMM_DEVICE_RANKS;
    const uint32_t size = SIZE ? SIZE : (uint32_t)args.team.size;
    const uint32_t rank = (uint32_t)args.team.rank;
    const uint32_t room = symm_slot_lines<symm_lamport>(args) / size;
    const uint32_t element = symm_element_size(args.dtype);
    const uint32_t step = gridDim.x * blockDim.x;
    const bool in_aligned = symm_aligned(args.in), out_aligned = symm_aligned(args.out);
    const uint64_t lines = symm_lines_of<symm_lamport>(args.bytes);
    const struct symm_rounds cut = symm_rounds_of(lines, room, step);
    struct symm_round round = symm_round_open(args);

    for (uint32_t k = 0; k < cut.rounds; k++) {
        uint64_t first = (uint64_t)k * cut.width;
        struct symm_line *from;

        symm_round_next(&round);
        from = symm_slot_of<symm_lamport>(args, rank, round.round);
        if (round.ok)
            wide_send<SIZE>(args, round, first, cut.width, room);
        if (k == 0) {
            symm_round_announce(args, &round);
            symm_round_meet(args, &round, 0);
        }
        for (uint32_t j = blockIdx.x * blockDim.x + threadIdx.x;
             j < cut.width && round.ok; j += step) {
            symm_lamport::value value[most] = {}, own;

            own = symm_lamport::clean(symm_lamport::gather(
                args.in, first + j, args.bytes, element, in_aligned));
            SYMM_UNROLL
            for (uint32_t r = 0; r < most; r++)
                if (r == rank)
                    value[r] = own;
            round.ok = symm_lines_wait<symm_lamport, SIZE, most>(
                args, &round, from + j, room, size, rank, value);
            if (round.ok)
                symm_lamport::scatter(
                    args.out, first + j, args.bytes, element, out_aligned,
                    symm_value_fold<symm_lamport, DTYPE, OP, SIZE, most>(args, size,
                                                                         value));
        }
        if (k + 1 < cut.rounds)
            symm_port_fence();
    }
    __syncthreads();
    symm_round_close(args, &round);
}

SYMM_KERNEL(symm_all_reduce_lamport_push_any)
{
    symm_hop_reduce<symm_lamport, 0, 0, 0>(args, 0);
}

#define SYMM_HOT(name, dtype, size)                                                    \
    SYMM_KERNEL(symm_all_reduce_lamport_push_##name)                                   \
    {                                                                                  \
        symm_hop_reduce<symm_lamport, dtype, SYMM_SUM, size>(args, 0);                 \
    }                                                                                  \
    SYMM_KERNEL(symm_all_reduce_lamport_wide_##name)                                   \
    {                                                                                  \
        wide<dtype, SYMM_SUM, size>(args);                                             \
    }
SYMM_HOT(bfloat16_n2, SYMM_BFLOAT16, 2)
SYMM_HOT(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_HOT(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_HOT(float16_n2, SYMM_FLOAT16, 2)
SYMM_HOT(float16_n4, SYMM_FLOAT16, 4)
SYMM_HOT(float16_n8, SYMM_FLOAT16, 8)
SYMM_HOT(float32_n2, SYMM_FLOAT32, 2)
SYMM_HOT(float32_n4, SYMM_FLOAT32, 4)
SYMM_HOT(float32_n8, SYMM_FLOAT32, 8)
