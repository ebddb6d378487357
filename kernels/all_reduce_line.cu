/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_line.cu - lamport_push (all_reduce_lamport.cu) of the common call: a sum of one
 * of the common types over 2, 4 or 8 ranks, and no more than a slot takes, so in one round.
 * Nothing is left to decide while the data are in flight; what is rare (an array that is not
 * aligned to 16 bytes, a last line that is not whole) is out of the way. Sums in rank order:
 * the same bits everywhere.
 *
 * symm_all_reduce_lamport_line_...: a warp a peer, one line a lane. A group is `size` warps,
 * a block has one or more; group g of block b has the lines 32 x (b x groups + g) + lane.
 * Warp p of a group sends to member p and waits for p's line; the values hop through shared
 * memory to one warp that sums. The warp of the own rank has nobody to send to: in group 0
 * of block 0 it says and reads the call words and counts for the blocks that were not
 * launched, all while the data are in flight.
 *
 * symm_all_reduce_lamport_pair_...: two ranks, more data. A thread sends its lines and sums
 * what comes back, without a hop; the last warp of each block is left out, for block 0's words.
 *
 * Why slots may be used again: cuda_lines.cuh; a call is one round. in == out is fine: a
 * line's data have been sent and read before anybody writes it.
 * Launch: line: 32 x size x groups threads, a lane for every line; pair: 32 more threads than
 * take lines, any number of lines a thread.
 *
 * symm_all_reduce_lamport_line_{bfloat16,float16,float32}_n{2,4,8}: SUM
 * symm_all_reduce_lamport_pair_{bfloat16,float16,float32}_n2: SUM
 */
#include "cuda_hop.cuh"

typedef struct symm_lamport::value line_value;

/* ALIGNED: in and out both begin at a multiple of 16. The other case has code of its own,
 * so that nothing of it stands in the way. */
template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE void line(const struct symm_cuda_args &args)
{
    line_value(*const hop)[SYMM_WARP] = symm_hop_space();
    const symm_hop_lane<symm_lamport, SIZE> at(args, 1);
    const uint32_t j = at.j;
    const uint32_t element = symm_element_size(DTYPE);
    const bool mine = j < symm_lines_of<symm_lamport>(args.bytes);
    struct symm_round round = symm_round_open(args);
    const uint64_t slot = symm_slot_begin<symm_lamport>(args, symm_round_next(&round));
    line_value v = {};

    if (mine)
        v = symm_lamport::clean(
            symm_lamport::gather(args.in, j, args.bytes, element, ALIGNED));
    if (at.member != (uint32_t)args.team.rank) {
        if (mine && round.ok) {
            symm_lamport::send(at.to + slot, v, round.round);
            round.ok = symm_line_wait<symm_lamport>(args, &round, at.from + slot,
                                                    at.member, &v);
        }
    } else if (at.warp < SIZE) {
        symm_round_words(args, &round, at.warp);
    }
    hop[at.warp][threadIdx.x % SYMM_WARP] = v;
    __syncthreads(); /* after a failure of others `out` is of no use: no need to agree */
    if (at.member == 0 && mine && round.ok)
        symm_lamport::scatter(
            args.out, j, args.bytes, element, ALIGNED,
            symm_hop_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE>(args, &hop[at.warp]));
    if (threadIdx.x == SYMM_WARP)
        symm_round_leave(args, round);
}

template <int DTYPE, bool ALIGNED>
SYMM_DEVICE void pair(const struct symm_cuda_args &args)
{
    const uint32_t rank = (uint32_t)args.team.rank, peer = 1 - rank;
    const uint32_t room = symm_slot_lines<symm_lamport>(args) / 2;
    const uint32_t width = blockDim.x - SYMM_WARP, step = gridDim.x * width;
    const uint32_t begin = blockIdx.x * width + threadIdx.x;
    const uint32_t lines = (uint32_t)symm_lines_of<symm_lamport>(args.bytes);
    const uint32_t element = symm_element_size(DTYPE);
    struct symm_round round = symm_round_open(args);
    struct symm_line *to, *from;

    symm_round_next(&round);
    to = symm_slot_of<symm_lamport>(args, peer, round.round) + rank * room;
    from = symm_slot_of<symm_lamport>(args, rank, round.round) + peer * room;
    if (threadIdx.x >= width) {
        symm_round_words(args, &round, width / SYMM_WARP);
    } else {
        for (uint32_t j = begin; j < lines && round.ok; j += step)
            symm_lamport::send(to + j,
                               symm_lamport::clean(symm_lamport::gather(
                                   args.in, j, args.bytes, element, ALIGNED)),
                               round.round);
        for (uint32_t j = begin; j < lines && round.ok; j += step) {
            line_value own = symm_lamport::clean(
                symm_lamport::gather(args.in, j, args.bytes, element, ALIGNED));
            line_value value[2] = {own, own};

            round.ok = symm_lines_wait<symm_lamport, 2, 2>(args, &round, from + j, 0, 2,
                                                           rank, value);
            if (round.ok)
                symm_lamport::scatter(
                    args.out, j, args.bytes, element, ALIGNED,
                    symm_value_fold<symm_lamport, DTYPE, SYMM_SUM, 2, 2>(args, 2,
                                                                         value));
        }
    }
    symm_round_agree(&round);
    if (threadIdx.x == 0)
        symm_round_leave(args, round);
}

#define SYMM_LINE(name, dtype, size)                                                   \
    SYMM_KERNEL(symm_all_reduce_lamport_line_##name)                                   \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out))                           \
            line<dtype, size, true>(args);                                             \
        else                                                                           \
            line<dtype, size, false>(args);                                            \
    }
#define SYMM_PAIR(name, dtype)                                                         \
    SYMM_KERNEL_OF(symm_all_reduce_lamport_pair_##name, SYMM_MAX_BLOCK + SYMM_WARP)    \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out))                           \
            pair<dtype, true>(args);                                                   \
        else                                                                           \
            pair<dtype, false>(args);                                                  \
    }
SYMM_LINE(bfloat16_n2, SYMM_BFLOAT16, 2)
SYMM_LINE(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_LINE(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_LINE(float16_n2, SYMM_FLOAT16, 2)
SYMM_LINE(float16_n4, SYMM_FLOAT16, 4)
SYMM_LINE(float16_n8, SYMM_FLOAT16, 8)
SYMM_LINE(float32_n2, SYMM_FLOAT32, 2)
SYMM_LINE(float32_n4, SYMM_FLOAT32, 4)
SYMM_LINE(float32_n8, SYMM_FLOAT32, 8)
SYMM_PAIR(bfloat16_n2, SYMM_BFLOAT16)
SYMM_PAIR(float16_n2, SYMM_FLOAT16)
SYMM_PAIR(float32_n2, SYMM_FLOAT32)
