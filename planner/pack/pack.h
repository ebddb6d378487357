/* SPDX-License-Identifier: MIT */
/*
 * pack.h - where buffers with known lifetimes lie in one arena: dynamic storage allocation.
 *
 * Item i is live in its span, a half-open interval of integer time. Two items
 * whose lifetimes share a moment get disjoint bytes. Pure and deterministic: work is
 * counted in list entries, so the answer depends on the items and the mode only, unless
 * time_limit or progress ends the search.
 * Refuses: more than SYMM_PLACE_MAX items, sizes that overflow, pins that contradict.
 */
#ifndef SYMM_PLANNER_PACK_PACK_H
#define SYMM_PLANNER_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "symm/symm.h"

#define SYMM_PLACE_MAX 1000000

struct symm_span {
    int64_t lower, upper; /* half-open */
};

struct symm_place_item {
    int64_t size;          /* bytes, >= 0 */
    int64_t alignment;     /* of the offset; a power of two or any number >= 1 */
    int64_t pinned;        /* offset, or -1: free */
    struct symm_span span; /* not empty */
};

enum symm_place_mode {
    SYMM_PLACE_FAST,  /* milliseconds: the best of several greedy orders, improved */
    SYMM_PLACE_FIT,   /* any placement within capacity, by all searches */
    SYMM_PLACE_SMALL, /* the lowest peak, by all searches */
};

struct symm_place_options {
    enum symm_place_mode mode;
    int64_t capacity;  /* FIT: the peak allowed. Others: 0 = none */
    double time_limit; /* seconds of the whole call; 0 = none */
    /* Called about once a second; false ends the search. NULL: not called. */
    bool (*progress)(void *arg, double seconds, int64_t best_peak, int64_t lower_bound,
                     uint64_t nodes);
    void *arg;
};

struct symm_place_result {
    int64_t peak;        /* largest offset + size of the placement in `offsets` */
    int64_t lower_bound; /* largest total size of items live at one moment */
    bool fits;           /* peak <= capacity (capacity 0: true) */
    bool proved;    /* SMALL: no lower peak exists; FIT: found, or proved impossible */
    bool cut_short; /* by the time limit or progress: it may end elsewhere next time */
    double seconds;
    uint64_t nodes; /* of the search */
};

/*
 * Fills offsets[count] with the best placement found (also when it does not fit) and result.
 * SYMM_ERR_INVALID names the item; SYMM_ERR_NOMEM, SYMM_ERR_OVERFLOW.
 */
symm_status symm__place(const struct symm_place_item *items, int count,
                        const struct symm_place_options *options, int64_t *offsets,
                        struct symm_place_result *result) SYMM_MUST_CHECK;

#endif
