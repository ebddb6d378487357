/* SPDX-License-Identifier: MIT */
/*
 * sort.h - sorting in linear time, as large placements need it.
 */
#ifndef SYMM_PLANNER_PACK_SORT_H
#define SYMM_PLANNER_PACK_SORT_H

#include <stdint.h>

struct place_block {
    int64_t offset, end; /* in units of the model */
    int item;
};

/*
 * Sorts blocks by offset, taken as uint64_t. Stable if count is at least
 * SYMM_PACKER_STABLE; with fewer, equal offsets are in any order, but always the same.
 * spare[count] is written.
 */
#define SYMM_PACKER_STABLE 300
void symm__pack_sort(struct place_block *blocks, struct place_block *spare, int count);

/* By radix whatever the count: stable. */
void symm__pack_sort_stable(struct place_block *blocks, struct place_block *spare,
                            int count);

#endif
