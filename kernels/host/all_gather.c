/* SPDX-License-Identifier: MIT */
/*
 * all_gather.c - every rank's block into every rank's out, pulled or staged.
 *
 * Pull copies from each peer's symmetric input as soon as that peer has arrived; an exit
 * round lets inputs be overwritten. Staged: chunks through the slots, any memory. In place
 * (in == out + rank x count) this rank's block is left where it is.
 */
#include "kernels/host/round.h"

static void keep_own(struct symm_state *state, const struct symm_args *args)
{
    char *own = (char *)args->out + (size_t)state->rank * args->bytes;

    if (own != args->in)
        round_copy(own, args->in, args->bytes);
}

symm_status symm__host_all_gather_pull(struct symm_state *state,
                                       const struct symm_args *args)
{
    const size_t base = args->in_offset - (size_t)state->rank * args->in_step;

    round_arrive(state, args);
    keep_own(state, args);
    for (int k = 1; k < state->size; k++) {
        int peer = round_peer(state, k);
        symm_status status = round_await(state, args, peer);

        if (status != SYMM_OK)
            return status;
        round_copy((char *)args->out + (size_t)peer * args->bytes,
                   state->base[peer] + base + (size_t)peer * args->in_step,
                   args->bytes);
    }
    return round_all(state, args);
}

symm_status symm__host_all_gather_pull_body(struct symm_state *state,
                                            const struct symm_args *args)
{
    const size_t base = args->in_offset - (size_t)state->rank * args->in_step;

    keep_own(state, args);
    for (int k = 1; k < state->size; k++) {
        int peer = round_peer(state, k);

        round_copy((char *)args->out + (size_t)peer * args->bytes,
                   state->base[peer] + base + (size_t)peer * args->in_step,
                   args->bytes);
    }
    return SYMM_OK;
}

symm_status symm__host_all_gather_copy_in(struct symm_state *state,
                                          const struct symm_args *args)
{
    const size_t most = SYMM_SLOT_DATA_BYTES;
    size_t done = 0;

    do {
        size_t bytes = args->bytes - done < most ? args->bytes - done : most;

        round_copy(round_slot(state)->data, (const char *)args->in + done, bytes);
        round_arrive(state, args);
        for (int k = 1; k < state->size; k++) {
            int peer = round_peer(state, k);
            symm_status status = round_await(state, args, peer);

            if (status != SYMM_OK)
                return status;
            round_copy((char *)args->out + (size_t)peer * args->bytes + done,
                       round_peer_slot(state, peer)->data, bytes);
        }
        done += bytes;
    } while (done < args->bytes);
    keep_own(state, args);
    return SYMM_OK;
}
