/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_line.cu - lamport_push of the common call, all_reduce (the others:
 * all_reduce_lamport.cu) or reduce_scatter: a sum of one of the common types over 4 or 8 ranks
 * (2: all_reduce_pair.cu), and no more than a slot takes, so in one round.
 * Nothing is left to decide while the data are in flight; what is rare (an array that is not
 * aligned to 16 bytes, a last line that is not whole) is out of the way. Sums in rank order:
 * the same bits everywhere.
 *
 * A warp a peer, one line a lane. A group is `size` warps,
 * a block has one or more; group g of block b has the lines 32 x (b x groups + g) + lane.
 * Warp p of a group sends to member p and waits for p's line; the values hop through shared
 * memory to one warp that sums. The warp of the own rank has nobody to send to: in group 0
 * of block 0 it says and reads the call words and counts for the blocks that were not
 * launched, all while the data are in flight.
 *
 * Why slots may be used again: cuda_lines.cuh; a call is one round. in == out is fine
 * (all_reduce): a line's data have been sent and read before anybody writes it.
 * Launch: 32 x size x groups threads, a lane for every line.
 *
 * symm_{all_reduce,reduce_scatter}_lamport_line_{bfloat16,float16,float32}_n{4,8}: SUM
 */
#include "cuda_hop.cuh"

typedef struct symm_lamport::value line_value;

/* in_stride: from what goes to one member to what goes to the next, in bytes. aligned: all
 * blocks of in and out begin at a multiple of 16; the other case has code of its own, so that
 * nothing of it stands in the way. */
template <int DTYPE, int SIZE>
SYMM_DEVICE void line(const struct symm_cuda_args &args, uint64_t in_stride,
                      bool aligned)
{
    line_value(*const hop)[SYMM_WARP] = symm_hop_space();
    const symm_hop_lane<symm_lamport, SIZE> at(args, 1);
    const uint32_t j = at.j;
    const char *in = (const char *)args.in + at.member * in_stride;
    const uint32_t element = symm_element_size(DTYPE);
    const bool mine = j < symm_lines_of<symm_lamport>(args.bytes);
    struct symm_round round = symm_round_open(args);
    const uint64_t slot = symm_slot_begin<symm_lamport>(args, symm_round_next(&round));
    line_value v = {};

    if (mine)
        v = symm_lamport::clean(
            symm_lamport::gather(in, j, args.bytes, element, aligned));
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
            args.out, j, args.bytes, element, aligned,
            symm_hop_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE>(args, &hop[at.warp]));
    if (threadIdx.x == SYMM_WARP)
        symm_round_leave(args, round);
}

#define SYMM_LINE(name, dtype, size)                                                   \
    SYMM_KERNEL(symm_all_reduce_lamport_line_##name)                                   \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out))                           \
            line<dtype, size>(args, 0, true);                                          \
        else                                                                           \
            line<dtype, size>(args, 0, false);                                         \
    }                                                                                  \
    SYMM_KERNEL(symm_reduce_scatter_lamport_line_##name)                               \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out) && args.bytes % 16 == 0)   \
            line<dtype, size>(args, args.bytes, true);                                 \
        else                                                                           \
            line<dtype, size>(args, args.bytes, false);                                \
    }
SYMM_LINE(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_LINE(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_LINE(float16_n4, SYMM_FLOAT16, 4)
SYMM_LINE(float16_n8, SYMM_FLOAT16, 8)
SYMM_LINE(float32_n4, SYMM_FLOAT32, 4)
SYMM_LINE(float32_n8, SYMM_FLOAT32, 8)
