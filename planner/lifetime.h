/* SPDX-License-Identifier: MIT */
/*
 * lifetime.h - which buffers may share bytes: those of which one is done with on every rank
 * before any rank overwrites it with the other, in this period and around the circle.
 *
 * Guarantees: two buffers that do not conflict can share bytes under the order they were
 * computed from. Lifetimes are handed to the placer as sets of moments, such that two
 * buffers share a moment exactly if they conflict.
 */
#ifndef SYMM_PLANNER_LIFETIME_H
#define SYMM_PLANNER_LIFETIME_H

#include "order.h"
#include "place.h"

struct lifetimes {
    const struct order *order; /* as it was when these were made */
    int count;                 /* buffers */
    size_t words;              /* of a row of conflicts */
    struct pool pool;
    uint64_t *conflicts; /* [buffer]: a set of buffers; never itself */
    bool *always;        /* by buffer: it conflicts with every other */
    struct last *last;   /* [last_start[buffer x owners + owner]]... */
    int *last_start;
    int64_t *sizes;                /* by buffer, rounded up to SYMM_PLAN_ALIGNMENT */
    struct symm_place_item *items; /* by buffer; spans are ours */
    int64_t
        clique_bytes;   /* the largest total size of pairwise conflict that was found */
    bool clique_proved; /* there is no larger one */
};

symm_status symm__lifetimes_make(struct lifetimes *lives,
                                 const struct order *order) SYMM_MUST_CHECK;
void symm__lifetimes_finish(struct lifetimes *lives);

static inline bool symm__conflict(const struct lifetimes *lives, int a, int b)
{
    return lives->conflicts[(size_t)a * lives->words + (size_t)b / 64] >> (b % 64) & 1;
}

/* All accesses to a happen before the first write of b, `periods` periods later. */
bool symm__lives_before(const struct lifetimes *lives, int a, int b, int periods);

/* Files of lifetime_moments.c: fill items, clique_bytes and clique_proved. */
symm_status symm__lifetimes_cut(struct lifetimes *lives) SYMM_MUST_CHECK;

#endif
