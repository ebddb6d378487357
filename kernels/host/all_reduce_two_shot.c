/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_two_shot.c - two-shot all-reduce over symmetric memory, in place or not.
 *
 * Entry round: all inputs are written. Each rank sums its slice of every input and writes
 * the result into that slice of every rank's output: (n-1)/n of the bytes are pulled and as
 * many pushed, instead of n-1 times the bytes pulled. Exit round: all slices are written.
 * In place is safe: a slice is read and written by its rank alone. Slices begin at multiples
 * of a cache line, so that no line is written by two ranks where the buffer is aligned.
 */
#include "kernels/host/round.h"

#define LINE_BYTES  64
#define CLAIM_BYTES 16384 /* of a slice: well inside a first-level cache */

/*
 * In place a peer's line is read and then written: fetched for writing at once, it crosses
 * between the cores once instead of twice.
 */
static void claim_peers(const struct symm_state *state, void *const *slices,
                        size_t bytes)
{
    if (bytes > CLAIM_BYTES)
        return;
    for (int r = 0; r < state->size; r++)
        for (size_t at = 0; r != state->rank && at < bytes; at += LINE_BYTES)
            symm_device_prefetch_write((const char *)slices[r] + at);
}

/* A rank's slice of every input and output. */
struct slices {
    const void *src[SYMM_MAX_LOCAL_RANKS];
    void *dst[SYMM_MAX_LOCAL_RANKS];
    size_t count; /* elements */
};

static inline void slices_find(const struct symm_state *state,
                               const struct symm_args *args, struct slices *slices)
{
    size_t line = LINE_BYTES / args->element, slice, low;

    slice = (args->count + (size_t)state->size - 1) / (size_t)state->size;
    slice = (slice + line - 1) / line * line;
    low = slice * (size_t)state->rank;
    for (int r = 0; r < state->size; r++) {
        slices->src[r] = state->base[r] + args->in_offset + low * args->element;
        slices->dst[r] = state->base[r] + args->out_offset + low * args->element;
    }
    slices->count = low < args->count ? args->count - low : 0;
    if (slices->count > slice)
        slices->count = slice;
}

static inline void slices_reduce(const struct symm_state *state,
                                 const struct symm_args *args,
                                 const struct slices *slices)
{
    if (slices->count == 0)
        return;
    if (args->in_offset == args->out_offset)
        claim_peers(state, slices->dst, slices->count * args->element);
    args->reduce(slices->dst, state->size, slices->src, state->size, slices->count);
}

symm_status symm__host_all_reduce_two_shot(struct symm_state *state,
                                           const struct symm_args *args)
{
    struct slices slices;
    symm_status status;

    round_arrive(state, args); /* first: what follows is done while peers arrive */
    slices_find(state, args, &slices);
    status = round_await_all(state, args);
    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    slices_reduce(state, args, &slices);
    return round_all(state, args);
}

symm_status symm__host_all_reduce_two_shot_body(struct symm_state *state,
                                                const struct symm_args *args)
{
    struct slices slices;

    slices_find(state, args, &slices);
    slices_reduce(state, args, &slices);
    return SYMM_OK;
}
