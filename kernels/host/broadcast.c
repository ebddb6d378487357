/* SPDX-License-Identifier: MIT */
/*
 * broadcast.c - root's input into every rank's out, pulled or staged.
 *
 * Every rank takes part in every round, so that all see a mismatch. Pull reads root's
 * symmetric out (root has put its input there first: under a plan, too, which costs a round
 * between that and the others' reads, whatever barriers the plan keeps). Staged: root's
 * chunks through its slots; only the root's `in` is used.
 */
#include "kernels/host/round.h"

symm_status symm__host_broadcast_pull_body(struct symm_state *state,
                                           const struct symm_args *args)
{
    const bool root = state->rank == args->root;
    symm_status status;

    if (root && args->in != args->out)
        round_copy(args->out, args->in, args->bytes);
    status = round_all(state, args);
    if (status == SYMM_OK && !root)
        round_copy(args->out, state->base[args->root] + args->out_offset, args->bytes);
    return status;
}

symm_status symm__host_broadcast_pull(struct symm_state *state,
                                      const struct symm_args *args)
{
    symm_status status = symm__host_broadcast_pull_body(state, args);

    return status == SYMM_OK ? round_all(state, args) : status;
}

symm_status symm__host_broadcast_copy_in(struct symm_state *state,
                                         const struct symm_args *args)
{
    const bool root = state->rank == args->root;
    const size_t most = SYMM_SLOT_DATA_BYTES;
    size_t done = 0;

    do {
        size_t bytes = args->bytes - done < most ? args->bytes - done : most;
        symm_status status;

        if (root)
            round_copy(round_slot(state)->data, (const char *)args->in + done, bytes);
        status = round_all(state, args);
        if (status != SYMM_OK)
            return status;
        if (!root)
            round_copy((char *)args->out + done,
                       round_peer_slot(state, args->root)->data, bytes);
        done += bytes;
    } while (done < args->bytes);
    if (root && args->in != args->out)
        round_copy(args->out, args->in, args->bytes);
    return SYMM_OK;
}
