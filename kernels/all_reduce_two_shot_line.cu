/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_two_shot_line.cu - two_shot_push (all_reduce_two_shot_push.cu) of the common
 * call: a sum of one of the common types over 2, 4 or 8 ranks by Lamport lines, and no more
 * than a slot takes, so in one round. What is rare (an array that is not aligned to 16 bytes,
 * a line that is not whole) is out of the way. Same bits everywhere: the owner of a segment
 * sums in rank order and sends its result out. Segments: as there, the last ones may lie
 * behind the end of the array.
 *
 * symm_all_reduce_two_shot_line_...: a warp a peer, one line of each segment a lane. A group
 * is `size` warps, a block has one or more; group g of block b has the lines
 * 32 x (b x groups + g) + lane of every segment. Warp p of a group deals with member p: it
 * sends p line j of p's segment and waits for p's line j of the own one; the values hop
 * through shared memory, every warp sums them (so there is no second hop), sends the sum to
 * p and waits for p's. The warp of the own rank keeps the sum; in group 0 of block 0 it reads
 * the call words while the sums are in flight.
 *
 * symm_all_reduce_two_shot_wide_...: more data. A thread deals with all members, line j of
 * every segment, and has many lines in flight; the last warp of each block is left out, for
 * block 0's words.
 *
 * Slot = [phase][sender][line]; a call is one round, so that slots may be used again as
 * cuda_lines.cuh says. in == out is fine: one thread alone reads a line of `in` and writes it
 * in `out`, after it has been sent or summed.
 * Launch: line: 32 x size x groups threads, a lane for every line of a segment; wide: 32 more
 * threads than take lines, any number of lines a thread.
 *
 * symm_all_reduce_two_shot_line_{bfloat16,float16,float32}_n{2,4,8}: SUM
 * symm_all_reduce_two_shot_wide_{bfloat16,float16,float32}_n{4,8}: SUM
 */
#include "cuda_hop.cuh"

typedef struct symm_lamport::value line_value;

/* Lines of a segment. */
template <int SIZE> SYMM_DEVICE uint32_t symm_segment(const struct symm_cuda_args &args)
{
    return (uint32_t)((symm_lines_of<symm_lamport>(args.bytes) + SIZE - 1) / SIZE);
}

/* ALIGNED: in and out both begin at a multiple of 16. */
template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE void line(const struct symm_cuda_args &args)
{
    line_value(*const hop)[SYMM_WARP] = symm_hop_space();
    const symm_hop_lane<symm_lamport, SIZE> at(args, 2);
    const uint32_t rank = (uint32_t)args.team.rank, lane = threadIdx.x % SYMM_WARP;
    const uint32_t segment = symm_segment<SIZE>(args),
                   element = symm_element_size(DTYPE);
    const uint32_t place = at.member * segment + at.j; /* of p's line, in and out */
    const bool mine = at.j < segment, peer = at.member != rank;
    struct symm_round round = symm_round_open(args);
    const uint64_t first = symm_slot_begin<symm_lamport>(args, symm_round_next(&round));
    const uint64_t second = first + SIZE * at.room;
    line_value v = {};

    if (mine)
        v = symm_lamport::clean(
            symm_lamport::gather(args.in, place, args.bytes, element, ALIGNED));
    if (mine && peer && round.ok)
        symm_lamport::send(at.to + first, v, round.round);
    symm_round_announce(args, &round);
    if (mine && peer && round.ok)
        round.ok =
            symm_line_wait<symm_lamport>(args, &round, at.from + first, at.member, &v);
    hop[at.warp][lane] = v;
    symm_round_agree(&round);
    if (mine && round.ok) {
        v = symm_lamport::clean(symm_hop_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE>(
            args, &hop[at.warp - at.member]));
        if (peer) {
            symm_lamport::send(at.to + second, v, round.round);
            round.ok = symm_line_wait<symm_lamport>(args, &round, at.from + second,
                                                    at.member, &v);
        }
        if (round.ok)
            symm_lamport::scatter(args.out, place, args.bytes, element, ALIGNED, v);
    }
    if (at.warp == rank) {
        symm_round_skip(args, round, lane, SYMM_WARP);
        symm_round_meet(args, &round, at.warp);
        if (lane == 0)
            symm_round_leave(args, round);
    }
}

/* Where a thread of `wide` finds things. */
template <int SIZE, bool ALIGNED> struct wide_place {
    uint32_t rank, room, segment, begin, step;

    SYMM_DEVICE wide_place(const struct symm_cuda_args &args, uint32_t width)
        : rank((uint32_t)args.team.rank),
          room(symm_slot_lines<symm_lamport>(args) / (2 * SIZE)),
          segment(symm_segment<SIZE>(args)), begin(blockIdx.x * width + threadIdx.x),
          step(gridDim.x * width)
    {
    }

    /* Line j of member m's segment. */
    template <int DTYPE>
    SYMM_DEVICE line_value load(const struct symm_cuda_args &args, uint32_t m,
                                uint32_t j) const
    {
        return symm_lamport::gather(args.in, m * segment + j, args.bytes,
                                    symm_element_size(DTYPE), ALIGNED);
    }

    template <int DTYPE>
    SYMM_DEVICE void store(const struct symm_cuda_args &args, uint32_t m, uint32_t j,
                           line_value v) const
    {
        symm_lamport::scatter(args.out, m * segment + j, args.bytes,
                              symm_element_size(DTYPE), ALIGNED, v);
    }

    SYMM_DEVICE uint32_t member(uint32_t i) const /* i places behind mine */
    {
        return rank + i < SIZE ? rank + i : rank + i - SIZE;
    }

    SYMM_DEVICE struct symm_line *to(const struct symm_cuda_args &args, uint32_t round,
                                     uint32_t i, uint32_t phase) const
    {
        return symm_slot_of<symm_lamport>(args, member(i), round) +
               (phase * SIZE + rank) * room;
    }
};

/* Line j of every segment to its owner. */
template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE void wide_scatter(const struct symm_cuda_args &args, uint32_t round,
                              const wide_place<SIZE, ALIGNED> &place, uint32_t j)
{
    line_value v[SIZE];

    SYMM_UNROLL
    for (uint32_t i = 1; i < SIZE; i++)
        v[i] = place.template load<DTYPE>(args, place.member(i), j);
    SYMM_UNROLL
    for (uint32_t i = 1; i < SIZE; i++)
        symm_lamport::send(place.to(args, round, i, 0) + j, symm_lamport::clean(v[i]),
                           round);
}

/* Line j of the own segment: sum, send, keep. */
template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE bool wide_reduce(const struct symm_cuda_args &args,
                             const struct symm_round &round,
                             const wide_place<SIZE, ALIGNED> &place, uint32_t j)
{
    line_value v[SIZE] = {};
    line_value own =
        symm_lamport::clean(place.template load<DTYPE>(args, place.rank, j));

    SYMM_UNROLL
    for (uint32_t r = 0; r < SIZE; r++)
        if (r == place.rank)
            v[r] = own;
    if (!symm_lines_wait<symm_lamport, SIZE, SIZE>(
            args, &round, symm_slot_of<symm_lamport>(args, place.rank, round.round) + j,
            place.room, SIZE, place.rank, v))
        return false;
    own = symm_lamport::clean(
        symm_value_fold<symm_lamport, DTYPE, SYMM_SUM, SIZE, SIZE>(args, SIZE, v));
    SYMM_UNROLL
    for (uint32_t i = 1; i < SIZE; i++)
        symm_lamport::send(place.to(args, round.round, i, 1) + j, own, round.round);
    place.template store<DTYPE>(args, place.rank, j, own);
    return true;
}

/* Line j of everybody's segment. */
template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE bool wide_gather(const struct symm_cuda_args &args,
                             const struct symm_round &round,
                             const wide_place<SIZE, ALIGNED> &place, uint32_t j)
{
    line_value v[SIZE] = {};

    if (!symm_lines_wait<symm_lamport, SIZE, SIZE>(
            args, &round,
            symm_slot_of<symm_lamport>(args, place.rank, round.round) +
                SIZE * place.room + j,
            place.room, SIZE, place.rank, v))
        return false;
    SYMM_UNROLL
    for (uint32_t r = 0; r < SIZE; r++)
        if (r != place.rank)
            place.template store<DTYPE>(args, r, j, v[r]);
    return true;
}

template <int DTYPE, int SIZE, bool ALIGNED>
SYMM_DEVICE void wide(const struct symm_cuda_args &args)
{
    const uint32_t width = blockDim.x - SYMM_WARP;
    const wide_place<SIZE, ALIGNED> place(args, width);
    struct symm_round round = symm_round_open(args);

    symm_round_next(&round);
    if (threadIdx.x >= width) {
        symm_round_words(args, &round, width / SYMM_WARP);
    } else {
        for (uint32_t j = place.begin; j < place.segment && round.ok; j += place.step)
            wide_scatter<DTYPE, SIZE>(args, round.round, place, j);
        for (uint32_t j = place.begin; j < place.segment && round.ok; j += place.step)
            round.ok = wide_reduce<DTYPE, SIZE>(args, round, place, j);
        for (uint32_t j = place.begin; j < place.segment && round.ok; j += place.step)
            round.ok = wide_gather<DTYPE, SIZE>(args, round, place, j);
    }
    symm_round_agree(&round);
    if (threadIdx.x == 0)
        symm_round_leave(args, round);
}

#define SYMM_LINE(name, dtype, size)                                                   \
    SYMM_KERNEL(symm_all_reduce_two_shot_line_##name)                                  \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out))                           \
            line<dtype, size, true>(args);                                             \
        else                                                                           \
            line<dtype, size, false>(args);                                            \
    }
#define SYMM_BOTH(name, dtype, size)                                                   \
    SYMM_LINE(name, dtype, size)                                                       \
    SYMM_KERNEL(symm_all_reduce_two_shot_wide_##name)                                  \
    {                                                                                  \
        if (symm_aligned(args.in) && symm_aligned(args.out))                           \
            wide<dtype, size, true>(args);                                             \
        else                                                                           \
            wide<dtype, size, false>(args);                                            \
    }
SYMM_LINE(bfloat16_n2, SYMM_BFLOAT16, 2)
SYMM_BOTH(bfloat16_n4, SYMM_BFLOAT16, 4)
SYMM_BOTH(bfloat16_n8, SYMM_BFLOAT16, 8)
SYMM_LINE(float16_n2, SYMM_FLOAT16, 2)
SYMM_BOTH(float16_n4, SYMM_FLOAT16, 4)
SYMM_BOTH(float16_n8, SYMM_FLOAT16, 8)
SYMM_LINE(float32_n2, SYMM_FLOAT32, 2)
SYMM_BOTH(float32_n4, SYMM_FLOAT32, 4)
SYMM_BOTH(float32_n8, SYMM_FLOAT32, 8)
