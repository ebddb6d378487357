/* SPDX-License-Identifier: MIT */
/*
 * lifetime.h - which buffers may share bytes: the accesses to the first must be over on every
 * rank before any rank writes the second, in this period and around the circle.
 *
 * Guarantees: two buffers that do not conflict can share bytes under the order they were
 * computed from. Buffers whose first writes are ordered one after the other are a track. A
 * buffer is over before all seats of a track from some seat on, so symm__lives_before is one
 * comparison.
 */
#ifndef SYMM_PLANNER_ORDER_LIFETIME_H
#define SYMM_PLANNER_ORDER_LIFETIME_H

#include "order/order.h"

struct lifetimes {
    const struct order *order; /* as it was when these were made */
    bool loop;
    int count; /* buffers */
    struct pool pool;
    bool *always;      /* by buffer: it conflicts with every other */
    struct last *last; /* [last_start[buffer]]...: where its life ends */
    int *last_start;   /* [buffer + 1] */
    int64_t *sizes;    /* by buffer, rounded up to SYMM_PLAN_ALIGNMENT */
    int *turn; /* by buffer: its place among all, by the op that begins its life */
    int *by_turn;
    int *track, *seat; /* by buffer; track -1: no buffer can precede it */
    int tracks;
    int *track_start, *on_track; /* [track + 1], buffers by seat */
    int *over[2]; /* [periods][buffer x tracks + track]: before all from this seat on */
    int *first_in; /* by buffer: the buffer that the op of its first write reads, or -1 */
    /* Filled by symm__lifetimes_clique: the largest set of pairwise conflict found. */
    int *clique, clique_count;
    int64_t clique_bytes;
};

symm_status symm__lifetimes_make(struct lifetimes *lives,
                                 const struct order *order) SYMM_MUST_CHECK;
void symm__lifetimes_finish(struct lifetimes *lives);

/* Whether by this clock all accesses of the life that begins in period 0 are over. */
static inline bool symm__lives_over(const struct lifetimes *lives, int buffer,
                                    const uint32_t *clock)
{
    for (int l = lives->last_start[buffer]; l < lives->last_start[buffer + 1]; l++)
        if (clock[lives->last[l].chain] < lives->last[l].at)
            return false;
    return true;
}

/* All accesses to a happen before the first write of b, `periods` periods later. */
static inline bool symm__lives_before(const struct lifetimes *lives, int a, int b,
                                      int periods)
{
    const int track = lives->track[b];

    return track >= 0 && !lives->always[a] && lives->first_in[b] != a &&
           lives->over[periods][(size_t)a * (size_t)lives->tracks + (size_t)track] <=
               lives->seat[b];
}

static inline bool symm__conflict(const struct lifetimes *lives, int a, int b)
{
    if (symm__lives_before(lives, a, b, 0))
        return lives->loop && !symm__lives_before(lives, b, a, 1);
    return !symm__lives_before(lives, b, a, 0) ||
           (lives->loop && !symm__lives_before(lives, a, b, 1));
}

/* live[count + 1]: by seat of the track, the bytes of its buffers that live at that seat's
 * first write; with `fits`, of those buffers alone whose seats it marks. */
void symm__lives_at_seats(const struct lifetimes *lives, int track, const bool *fits,
                          int64_t *live);

/* lifetime_clique.c */
symm_status symm__lifetimes_clique(struct lifetimes *lives) SYMM_MUST_CHECK;

#endif
