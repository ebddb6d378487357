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
#include "round.h"

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
            symm_prefetch_write((const char *)slices[r] + at);
}

symm_status symm__k_all_reduce_two_shot(struct symm_state *state,
                                        const struct symm_args *args)
{
    const void *src[SYMM_MAX_LOCAL_RANKS];
    void *dst[SYMM_MAX_LOCAL_RANKS];
    size_t line, slice, low;
    symm_status status;

    round_arrive(state, args); /* first: what follows is done while peers come */
    line = LINE_BYTES / args->element;
    slice = (args->count + (size_t)state->size - 1) / (size_t)state->size;
    slice = (slice + line - 1) / line * line;
    low = slice * (size_t)state->rank;
    for (int r = 0; r < state->size; r++) {
        src[r] = state->base[r] + args->in_offset + low * args->element;
        dst[r] = state->base[r] + args->out_offset + low * args->element;
    }
    status = round_await_all(state, args);
    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    if (low < args->count) {
        size_t count = args->count - low < slice ? args->count - low : slice;

        if (args->in_offset == args->out_offset)
            claim_peers(state, dst, count * args->element);
        args->reduce(dst, state->size, src, state->size, count);
    }
    return round_all(state, args);
}
