/* SPDX-License-Identifier: MIT */
/*
 * chains.h - places the buffers of a program in one arena, by their lifetimes (lifetime.h).
 *
 * Guarantees: buffers that conflict get disjoint bytes; offsets are multiples of
 * SYMM_PLAN_ALIGNMENT. Deterministic, but for a search that the time limit ends.
 */
#ifndef SYMM_PLANNER_MAKE_CHAINS_H
#define SYMM_PLANNER_MAKE_CHAINS_H

#include "order/lifetime.h"

struct place_effort {
    bool search;       /* improve the best order; else only try the fixed ones */
    double time_limit; /* seconds of search */
    int64_t bound;     /* no arena can be smaller */
    bool (*progress)(void *arg, double seconds, size_t best,
                     size_t bound); /* or NULL */
    void *arg;
};

/* Fills offsets[buffer]. *cut_short: the time limit, or progress, ended the search. */
symm_status symm__pack_chains(const struct lifetimes *lives,
                              const struct place_effort *effort, int64_t *offsets,
                              int64_t *arena, bool *cut_short) SYMM_MUST_CHECK;

#endif
