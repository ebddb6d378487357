/* SPDX-License-Identifier: MIT */
/*
 * place_order.c - sorts items by keys; deterministic, ties go to the lower index.
 */
#include "place_order.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

#define MAX_KEYS 3

struct entry {
    double key[MAX_KEYS];
    int item;
};

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    for (int k = 0; k < MAX_KEYS; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* 0 to 1, from a seed and an index (splitmix64, Vigna). */
static double scatter(uint64_t seed, uint64_t index)
{
    uint64_t z = seed * UINT64_C(0xd1342543de82ef95) +
                 (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double largest_load(const struct place_model *m, int item)
{
    int64_t largest = 0;

    for (int r = m->range_start[item]; r < m->range_start[item + 1]; r++)
        for (int s = m->ranges[r].first; s < m->ranges[r].last; s++)
            largest = m->load[s] > largest ? m->load[s] : largest;
    return (double)largest;
}

static double key_of(const struct place_model *m, int item, char key, double factor)
{
    int sections = 0;

    switch (key) {
    case 'W':
        return m->width[item] * factor;
    case 'A':
        return m->width[item] * (double)m->size[item] * factor;
    case 'Z':
        return (double)m->size[item];
    case 'B':
        return -(double)m->hull[item].first;
    case 'T':
        return largest_load(m, item);
    case 'S':
        for (int r = m->range_start[item]; r < m->range_start[item + 1]; r++)
            sections += m->ranges[r].last - m->ranges[r].first;
        return sections;
    default:
        return 0;
    }
}

symm_status symm__place_order(const struct place_model *m, const char *keys,
                              double noise, uint64_t seed, int *order)
{
    size_t n = (size_t)m->count, key_count = strlen(keys);
    struct entry *entries = calloc(n + 1, sizeof *entries);

    if (!entries)
        return symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items",
                          m->count);
    for (int i = 0; i < m->count; i++) {
        double factor = 1 + (noise > 0 ? noise * scatter(seed, (uint64_t)i) : 0);
        entries[i].item = i;
        for (size_t k = 0; k < key_count && k < MAX_KEYS; k++)
            entries[i].key[k] = key_of(m, i, keys[k], factor);
    }
    qsort(entries, n, sizeof *entries, compare);
    for (int i = 0; i < m->count; i++)
        order[i] = entries[i].item;
    free(entries);
    return SYMM_OK;
}
