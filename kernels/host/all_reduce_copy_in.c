/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_copy_in.c - one-shot all-reduce over the pad's own slots, any memory in and out.
 *
 * One round for each chunk: a rank copies its input into its slot, arrives, awaits all, sums all
 * slots. No closing round: the slots alternate, and a peer overwrites the slot of round e only in
 * round e + 2, which it enters after it has seen this rank's word of e + 1, stored after this
 * rank had read e. Payloads of up to SYMM_INLINE_BYTES travel in the signal word's own cache
 * line, so that a peer's arrival and its data come in one transfer.
 */
#include "kernels/host/round.h"

#define CLAIM_BYTES 2048 /* up to here the next call's slot is fetched in advance */

symm_status symm__host_all_reduce_inline(struct symm_state *state,
                                         const struct symm_args *args)
{
    const void *src[SYMM_MAX_LOCAL_RANKS];
    void *dst = args->out;
    symm_status status;

    round_copy(round_slot(state)->payload, args->in, args->bytes);
    round_arrive(state, args);
    for (int r = 0; r < state->size; r++)
        src[r] = round_peer_slot(state, r)->payload;
    status = round_await_all(state, args);
    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    round_claim(state, 1);
    args->reduce(&dst, 1, src, state->size, args->count);
    return SYMM_OK;
}

symm_status symm__host_all_reduce_copy_in(struct symm_state *state,
                                          const struct symm_args *args)
{
    const size_t most = SYMM_SLOT_DATA_BYTES / args->element;
    const void *src[SYMM_MAX_LOCAL_RANKS];
    size_t done = 0;

    do { /* count 0 still makes its round */
        size_t count = args->count - done < most ? args->count - done : most;
        void *dst = (char *)args->out + done * args->element;
        symm_status status;

        round_copy(round_slot(state)->data,
                   (const char *)args->in + done * args->element,
                   count * args->element);
        round_arrive(state, args);
        for (int r = 0; r < state->size; r++)
            src[r] = round_peer_slot(state, r)->data;
        status = round_await_all(state, args);
        if (status != SYMM_OK)
            return status;
        if (args->bytes <= CLAIM_BYTES)
            round_claim(state, offsetof(struct symm_slot, data) + args->bytes);
        args->reduce(&dst, 1, src, state->size, count);
        done += count;
    } while (done < args->count);
    return SYMM_OK;
}
