/* SPDX-License-Identifier: MIT */
/*
 * round.h - the signal round that every host kernel is made of.
 *
 * Round e: publish what slot[e & 1] carries, arrive (one release store), await each peer's
 * word of the same epoch and tag (acquire loads). What a rank wrote before it arrived is
 * visible to each peer that awaited it; what it read before it arrived can no longer be
 * disturbed by a peer that awaited it. docs/memory-model.md has the argument.
 */
#ifndef SYMM_KERNELS_HOST_ROUND_H
#define SYMM_KERNELS_HOST_ROUND_H

#include <string.h>

#include "kernels/launch.h"

#define SYMM_HOT_POLLS 64 /* polls before the first pause instruction */

/* memcpy, for callers whose pointers may be NULL where there is nothing to copy. */
static inline void round_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

/* Own slot of the next round: free to be written, see device.h. */
static inline struct symm_slot *round_slot(struct symm_state *state)
{
    return &state->slots[state->rank][(state->epoch + 1) & 1];
}

/* A peer's slot of the round this rank has arrived at. */
static inline struct symm_slot *round_peer_slot(struct symm_state *state, int peer)
{
    return &state->slots[peer][state->epoch & 1];
}

static inline void round_arrive(struct symm_state *state, const struct symm_args *args)
{
    struct symm_slot *own = round_slot(state);
    uint32_t epoch = ++state->epoch;

    if (state->shown[epoch & 1] != args->site.tag) {
        own->site = args->site;
        state->shown[epoch & 1] = args->site.tag;
    }
    /* release: pairs with the acquire in round_await of every peer */
    symm_device_word_store(&own->word, symm_device_word(args->site.tag, epoch));
    if (__builtin_expect(__atomic_load_n(state->sleepers, __ATOMIC_RELAXED) != 0, 0))
        state->wake(state, own);
}

static inline symm_status round_await(struct symm_state *state,
                                      const struct symm_args *args, int peer)
{
    const uint64_t *word = &round_peer_slot(state, peer)->word;
    const uint64_t expected = symm_device_word(args->site.tag, state->epoch);

    for (uint32_t polls = 0; polls < state->spin; polls++) {
        /* acquire: pairs with the release in round_arrive of that peer */
        if (symm_device_word_load(word) == expected)
            return SYMM_OK;
        if (polls >= SYMM_HOT_POLLS)
            symm_device_pause();
    }
    return state->slow_wait(state, args, peer);
}

/* The k-th peer to visit, k = 1..size-1: each rank begins with its neighbour. */
static inline int round_peer(const struct symm_state *state, int k)
{
    int peer = state->rank + k;

    return peer < state->size ? peer : peer - state->size;
}

/*
 * Prefetches for writing the first lines of the next round's slot, which peers have read: the
 * stores of the next round then need not wait for them. All peers have arrived, so
 * none reads that slot any more.
 */
static inline void round_claim(struct symm_state *state, size_t bytes)
{
    const char *slot = (const char *)round_slot(state);

    for (size_t at = 0; at < bytes; at += 64)
        symm_device_prefetch_write(slot + at);
}

static inline symm_status round_await_all(struct symm_state *state,
                                          const struct symm_args *args)
{
    for (int k = 1; k < state->size; k++) {
        symm_status status = round_await(state, args, round_peer(state, k));

        if (__builtin_expect(status != SYMM_OK, 0))
            return status;
    }
    return SYMM_OK;
}

static inline symm_status round_all(struct symm_state *state,
                                    const struct symm_args *args)
{
    round_arrive(state, args);
    return round_await_all(state, args);
}

/* Kernels, one algorithm a file; the table is in table.c. */
typedef symm_status round_kernel(struct symm_state *state,
                                 const struct symm_args *args);
round_kernel symm__host_barrier;
round_kernel symm__host_all_reduce_inline, symm__host_all_reduce_copy_in,
    symm__host_all_reduce_pull, symm__host_all_reduce_two_shot;
round_kernel symm__host_reduce_scatter_copy_in, symm__host_reduce_scatter_pull;
round_kernel symm__host_all_gather_copy_in, symm__host_all_gather_pull;
round_kernel symm__host_broadcast_copy_in, symm__host_broadcast_pull;
round_kernel symm__host_all_to_all_copy_in, symm__host_all_to_all_pull;
/* What these do between entry and exit round. */
round_kernel symm__host_all_reduce_pull_body, symm__host_all_reduce_two_shot_body,
    symm__host_reduce_scatter_pull_body, symm__host_all_gather_pull_body,
    symm__host_broadcast_pull_body, symm__host_all_to_all_pull_body;

#endif
