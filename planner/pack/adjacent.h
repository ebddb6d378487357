/* SPDX-License-Identifier: MIT */
/*
 * adjacent.h - which buffers of an arena follow one another directly in some address.
 *
 * Each address has a list of the buffers that lie there, in the order of their turns; in a
 * loop the last one is followed by the first one of the next period, and a buffer that is
 * alone by itself. Pairs of neighbours in such a list are what a certificate has to prove:
 * at most three for each buffer. Time and memory are those of sorting.
 */
#ifndef SYMM_PLANNER_PACK_ADJACENT_H
#define SYMM_PLANNER_PACK_ADJACENT_H

#include <stdbool.h>
#include <stddef.h>

struct extent {
    size_t low, high; /* bytes of the arena, half-open; empty ones are left out */
    int turn;         /* equal turns: in the order of the list. Below 0: no own pair */
};

struct adjacent {
    int before, after; /* indices of extents */
    bool next_period;  /* `after` is the one of the next period */
};

/* All pairs, each once, by `after` and then `before`. NULL: memory is exhausted. free() it. */
struct adjacent *symm__adjacent_pairs(const struct extent *extents, int count,
                                      bool loop, size_t *found);

#endif
