/* SPDX-License-Identifier: MIT */
/*
 * gaps.h - whether any buffer at all could come between two that follow one another in some
 * bytes, so that placing need not look again at bytes where none can.
 *
 * Guarantees: "no" is certain. "Yes" is not: the buffers that could come there may lie elsewhere
 * by now, or be kept out by an op that uses two of them at once.
 */
#ifndef SYMM_PLANNER_MAKE_GAPS_H
#define SYMM_PLANNER_MAKE_GAPS_H

#include "order/lifetime.h"
#include "util/pool.h"

struct gaps {
    const struct lifetimes *lives;
    /* [periods][place in on_track x tracks + track]: the least `over` on the track of the buffers
     * from this place to the end of its own track */
    int *soonest[2];
    int *soonest_of_all; /* by track: the least `over` of all, in one period */
};

/* The arrays lie in the pool. false: no memory. */
bool symm__gaps_make(struct gaps *gaps, struct pool *pool,
                     const struct lifetimes *lives);

/* before, after: the buffers on both sides, -1 for none, which only is without a loop. wraps:
 * `after` is the one of the next period. */
bool symm__gap_is_open(const struct gaps *gaps, int before, int after, bool wraps);

#endif
