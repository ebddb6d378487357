/* SPDX-License-Identifier: MIT */
/*
 * items.h - the items of a placement in the form that the placers work on.
 *
 * Items of size 0 are left out. Sizes are in units of their common divisor. Time is cut into
 * sections: the moments at which a maximal set of items is live, in the order of time. Two
 * items conflict exactly if they share a section.
 */
#ifndef SYMM_PLANNER_PACK_ITEMS_H
#define SYMM_PLANNER_PACK_ITEMS_H

#include <stdbool.h>
#include <stdint.h>

#include "symm/plan.h"
#include "util/pool.h"

#define SYMM_PACK_MAX 1000000 /* items */

struct place_range {
    int first, last; /* sections, half-open */
};

struct place_model {
    int count;
    int *source; /* the caller's index of each item */
    int64_t unit;
    int64_t *size; /* in units */
    double *width; /* how long each item is live, in units of time */
    int sections;
    struct place_range *range; /* [count] */
    int *birth;                /* [count] rank of the moment of its birth */
    int64_t *load;             /* [sections] total size of the live items */
    int64_t max_load;          /* the largest: no peak is lower */
    uint64_t pairs;            /* of items that are live together */
    uint64_t members;          /* sum over the sections of the live items */
};

/* For the exact search only: quadratic in the worst case. */
struct place_net {
    int *live_start, *live;         /* by section: its items */
    int *neighbor_start, *neighbor; /* by item: the items it shares a section with */
};

/* SYMM_ERR_NOMEM, with the message. */
symm_status symm__pack_nomem(int count);

/*
 * Checks the items and makes the model, of 0 to SYMM_PACK_MAX; fails as symm_pack does. The
 * lists of models and nets are the pool's.
 */
symm_status symm__pack_model_make(struct pool *pool, const symm_pack_item *items,
                                  int count, struct place_model *model) SYMM_MUST_CHECK;
symm_status symm__pack_net_make(struct pool *pool, const struct place_model *model,
                                struct place_net *net) SYMM_MUST_CHECK;

#endif
