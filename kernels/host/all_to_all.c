/* SPDX-License-Identifier: MIT */
/*
 * all_to_all.c - block p of a rank's input to block `rank` of rank p's out, pulled or staged.
 *
 * Pull reads block `rank` of each peer's symmetric input between an entry and an exit
 * round; out must not overlap the input. Staged: an equal share of every block in each
 * round, any memory, in place too: what a round overwrites it has staged before.
 */
#include "kernels/host/round.h"

symm_status symm__host_all_to_all_pull(struct symm_state *state,
                                       const struct symm_args *args)
{
    const size_t mine = (size_t)state->rank * args->bytes;

    round_arrive(state, args);
    round_copy((char *)args->out + mine, (const char *)args->in + mine, args->bytes);
    for (int k = 1; k < state->size; k++) {
        int peer = round_peer(state, k);
        symm_status status = round_await(state, args, peer);

        if (status != SYMM_OK)
            return status;
        round_copy((char *)args->out + (size_t)peer * args->bytes,
                   state->base[peer] + args->in_offset + mine, args->bytes);
    }
    return round_all(state, args);
}

symm_status symm__host_all_to_all_pull_body(struct symm_state *state,
                                            const struct symm_args *args)
{
    const size_t mine = (size_t)state->rank * args->bytes;

    for (int k = 0; k < state->size; k++) {
        int peer = round_peer(state, k);

        round_copy((char *)args->out + (size_t)peer * args->bytes,
                   state->base[peer] + args->in_offset + mine, args->bytes);
    }
    return SYMM_OK;
}

symm_status symm__host_all_to_all_copy_in(struct symm_state *state,
                                          const struct symm_args *args)
{
    const size_t size = (size_t)state->size;
    const size_t most = SYMM_SLOT_DATA_BYTES / size / args->element * args->element;
    size_t done = 0;

    do {
        size_t bytes = args->bytes - done < most ? args->bytes - done : most;
        unsigned char *slot = round_slot(state)->data;
        symm_status status;

        for (size_t r = 0; r < size; r++)
            round_copy(slot + r * bytes,
                       (const char *)args->in + r * args->bytes + done, bytes);
        status = round_all(state, args);
        if (status != SYMM_OK)
            return status;
        for (int r = 0; r < state->size; r++)
            round_copy((char *)args->out + (size_t)r * args->bytes + done,
                       round_peer_slot(state, r)->data + (size_t)state->rank * bytes,
                       bytes);
        done += bytes;
    } while (done < args->bytes);
    return SYMM_OK;
}
