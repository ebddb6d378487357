/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_pull.c - one-shot all-reduce that reads every peer's symmetric input.
 *
 * Entry round: all inputs are written. Sum all inputs in rank order into out. Exit round:
 * all have read, inputs may be overwritten. out must not be the input: a peer may still
 * read what would be overwritten. A plan may leave a round out: launch.h.
 */
#include "kernels/host/round.h"

symm_status symm__host_all_reduce_pull_body(struct symm_state *state,
                                            const struct symm_args *args)
{
    const void *src[SYMM_MAX_LOCAL_RANKS];
    void *dst = args->out;

    for (int r = 0; r < state->size; r++)
        src[r] = state->base[r] + args->in_offset;
    args->reduce(&dst, 1, src, state->size, args->count);
    return SYMM_OK;
}

symm_status symm__host_all_reduce_pull(struct symm_state *state,
                                       const struct symm_args *args)
{
    symm_status status = round_all(state, args);

    if (status == SYMM_OK)
        status = symm__host_all_reduce_pull_body(state, args);
    return status == SYMM_OK ? round_all(state, args) : status;
}
