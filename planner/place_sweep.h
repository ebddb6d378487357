/* SPDX-License-Identifier: MIT */
/*
 * place_sweep.h - first fit and best fit in the order of time, n log n for n items.
 */
#ifndef SYMM_PLANNER_PLACE_SWEEP_H
#define SYMM_PLANNER_PLACE_SWEEP_H

#include "place_model.h"

/*
 * Places the items in `order`, which must be sorted by first section, as an allocator
 * would that learns of each item when its life begins: in the lowest gap, or with
 * best_fit in the smallest (of equals the lowest). An item with several ranges counts as
 * live from the first to the last. The model must have no pins. Fills offsets[count] and
 * *peak. SYMM_ERR_NOMEM.
 */
symm_status symm__place_sweep(const struct place_model *model, const int *order,
                              bool best_fit, int64_t *offsets,
                              int64_t *peak) SYMM_MUST_CHECK;

#endif
