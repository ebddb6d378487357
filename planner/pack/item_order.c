/* SPDX-License-Identifier: MIT */
/*
 * item_order.c - sorts items by keys; deterministic, ties go to the lower index.
 */
#include "pack/item_order.h"

#include <stdlib.h>
#include <string.h>

#include "pack/sort.h"
#include "pack/state.h"

/* 0 to 1, from a seed and an index. */
static double scatter(uint64_t seed, uint64_t index)
{
    uint64_t at =
        seed * UINT64_C(0xd1342543de82ef95) + index * UINT64_C(0x9e3779b97f4a7c15);

    return (double)(symm__pack_random(&at) >> 11) * 0x1p-53;
}

static double largest_load(const struct place_model *m, int item)
{
    int64_t largest = 0;

    for (int s = m->range[item].first; s < m->range[item].last; s++)
        largest = m->load[s] > largest ? m->load[s] : largest;
    return (double)largest;
}

static double key_of(const struct place_model *m, int item, char key, double factor)
{
    switch (key) {
    case 'W':
        return m->width[item] * factor;
    case 'A':
        return m->width[item] * (double)m->size[item] * factor;
    case 'Z':
        return (double)m->size[item];
    case 'B':
        return -(double)m->birth[item];
    case 'T':
        return largest_load(m, item);
    case 'S':
        return m->range[item].last - m->range[item].first;
    default:
        return 0;
    }
}

/* An integer that grows as the key falls: largest keys come first. */
static uint64_t rank_of(double key)
{
    uint64_t bits;

    key += 0.0; /* -0 is 0 */
    memcpy(&bits, &key, sizeof bits);
    return bits >> 63 ? bits : ~(bits | UINT64_C(1) << 63);
}

symm_status symm__pack_order(const struct place_model *m, const char *keys,
                             double noise, uint64_t seed, int *order)
{
    size_t n = (size_t)m->count;
    struct place_block *entries = malloc((2 * n + 1) * sizeof *entries);

    if (!entries)
        return symm__pack_nomem(m->count);
    for (int i = 0; i < m->count; i++)
        entries[i] = (struct place_block){.item = i};
    /* Stable: the last key first. */
    for (size_t k = strlen(keys); k-- > 0;) {
        for (int i = 0; i < m->count; i++) {
            int item = entries[i].item;
            double factor = 1 + (noise > 0 ? noise * scatter(seed, (uint64_t)item) : 0);
            entries[i].offset = (int64_t)rank_of(key_of(m, item, keys[k], factor));
        }
        symm__pack_sort_stable(entries, entries + n, m->count);
    }
    for (int i = 0; i < m->count; i++)
        order[i] = entries[i].item;
    free(entries);
    return SYMM_OK;
}
