/* SPDX-License-Identifier: MIT */
/*
 * item_order.h - the orders in which the placers take the items.
 */
#ifndef SYMM_PLANNER_PACK_ITEM_ORDER_H
#define SYMM_PLANNER_PACK_ITEM_ORDER_H

#include "pack/items.h"

/*
 * Sorts the items, largest first, by one key after the other, then by index:
 *   W  how long it is live        A  width times size
 *   S  the sections it is live in Z  size
 *   T  the largest load it is part of (walks all its sections)
 *   B  birth, the earliest first, by its own moment: finer than by first section
 * noise > 0 scales widths and areas by a pseudo-random factor of up to 1 + noise that
 * depends on the seed alone. order[count] gets the items. SYMM_ERR_NOMEM.
 */
symm_status symm__pack_order(const struct place_model *model, const char *keys,
                             double noise, uint64_t seed, int *order) SYMM_MUST_CHECK;

#endif
