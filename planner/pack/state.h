/* SPDX-License-Identifier: MIT */
/*
 * state.h - the best placement so far, the bounds, and the limits of the search.
 */
#ifndef SYMM_PLANNER_PACK_STATE_H
#define SYMM_PLANNER_PACK_STATE_H

#include "pack/items.h"
#include "util/hash.h"

/* Offsets and peaks are in units of the model. */
struct place_state {
    const struct place_model *model;
    const symm_pack_options *options;
    struct pool *pool;    /* of the whole call */
    int64_t *offsets;     /* [count] the best placement so far */
    int64_t peak;         /* INT64_MAX: there is none */
    int64_t goal;         /* a peak that is low enough: the bound, or the capacity */
    int64_t lower_bound;  /* of any placement's peak: raised by searches that end */
    double start, told;   /* seconds: of the call, of the last progress */
    uint64_t nodes, work; /* of all searches; work is counted in list entries */
    bool stopped;         /* by the time limit or the caller */
};

/* splitmix64 (Vigna): the next number of the sequence that *random stands at. */
static inline uint64_t symm__pack_random(uint64_t *random)
{
    return symm__mix(*random += UINT64_C(0x9e3779b97f4a7c15));
}

/*
 * Reads the clock, and calls the progress function about once a second. False: the time
 * limit has passed or progress returned false. To be called at least once a millisecond.
 */
bool symm__pack_go_on(struct place_state *state);

/* Whether the peak is low enough, or as low as any can be. */
static inline bool symm__pack_reached(const struct place_state *state)
{
    return state->peak <= state->goal || state->peak <= state->lower_bound;
}

/* Whether the goal is not reached and the search may go on. */
bool symm__pack_wanted(struct place_state *state);

/* Keeps the placement if its peak is lower than that of the kept one. */
void symm__pack_keep(struct place_state *state, const int64_t *offsets);

#endif
