/* SPDX-License-Identifier: MIT */
/*
 * reduce_scatter.c - block `rank` of the sum of all inputs, pulled or staged.
 *
 * Pull reads block `rank` of every symmetric input between an entry and an exit round; out
 * must not overlap the input. Staged: each round carries an equal share of every block
 * through the slots (see all_reduce_copy_in.c), any memory, in place too.
 */
#include "kernels/host/round.h"

symm_status symm__host_reduce_scatter_pull_body(struct symm_state *state,
                                                const struct symm_args *args)
{
    const void *src[SYMM_MAX_LOCAL_RANKS];
    void *dst = args->out;

    for (int r = 0; r < state->size; r++)
        src[r] = state->base[r] + args->in_offset + (size_t)state->rank * args->bytes;
    args->reduce(&dst, 1, src, state->size, args->count);
    return SYMM_OK;
}

symm_status symm__host_reduce_scatter_pull(struct symm_state *state,
                                           const struct symm_args *args)
{
    symm_status status = round_all(state, args);

    if (status == SYMM_OK)
        status = symm__host_reduce_scatter_pull_body(state, args);
    return status == SYMM_OK ? round_all(state, args) : status;
}

symm_status symm__host_reduce_scatter_copy_in(struct symm_state *state,
                                              const struct symm_args *args)
{
    const size_t size = (size_t)state->size;
    const size_t most = SYMM_SLOT_DATA_BYTES / args->element / size;
    const void *src[SYMM_MAX_LOCAL_RANKS];
    size_t done = 0;

    do {
        size_t count = args->count - done < most ? args->count - done : most;
        size_t bytes = count * args->element;
        void *dst = (char *)args->out + done * args->element;
        unsigned char *slot = round_slot(state)->data;
        symm_status status;

        for (size_t r = 0; r < size; r++)
            round_copy(slot + r * bytes,
                       (const char *)args->in + r * args->bytes + done * args->element,
                       bytes);
        round_arrive(state, args);
        for (int r = 0; r < state->size; r++)
            src[r] = round_peer_slot(state, r)->data + (size_t)state->rank * bytes;
        status = round_await_all(state, args);
        if (status != SYMM_OK)
            return status;
        args->reduce(&dst, 1, src, state->size, count);
        done += count;
    } while (done < args->count);
    return SYMM_OK;
}
