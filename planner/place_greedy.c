/* SPDX-License-Identifier: MIT */
/*
 * place_greedy.c - first fit and best fit in several orders.
 *
 * In the order of time an item meets exactly what is live, so a sorted list of live
 * blocks is enough (`sweep`); an item with several spans counts as live from the first
 * to the last, and pinned items rule this out. In any other order the placed items that
 * an item meets are found in a tree over their ranges (`place_in_order`).
 */
#include "place_greedy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "place_order.h"
#include "status.h"

struct block {
    int64_t offset, end;
    int item;
};

struct greedy {
    const struct place_model *m;
    int64_t *offset, *best; /* [count] */
    int64_t best_peak;
    struct block *blocks; /* [ranges] */
    int *order;
    /* The tree: leaves are the ranges by their first section. */
    int leaves;    /* a power of two */
    int *leaf_of;  /* by range */
    int *range_at; /* by leaf */
    int *owner;    /* by range: its item */
    int *reach;    /* [2 * leaves]: largest last section of what is placed below */
    int *lead;     /* [sections + 1]: leaves of ranges that start before */
};

/* ---- The tree -------------------------------------------------------------------- */

static void tree_make(struct greedy *g)
{
    const struct place_model *m = g->m;
    int ranges = m->range_start[m->count];

    for (int i = 0; i < m->count; i++)
        for (int r = m->range_start[i]; r < m->range_start[i + 1]; r++)
            g->owner[r] = i;
    for (int r = 0; r < ranges; r++)
        g->lead[m->ranges[r].first + 1]++;
    for (int s = 1; s <= m->sections; s++)
        g->lead[s] += g->lead[s - 1];
    for (int r = 0; r < ranges; r++) {
        int leaf = g->lead[m->ranges[r].first]++;
        g->leaf_of[r] = leaf;
        g->range_at[leaf] = r;
    }
    for (int s = m->sections; s > 0;
         s--) /* each had moved on to the next one's start */
        g->lead[s] = g->lead[s - 1];
    g->lead[0] = 0;
}

static void tree_add(struct greedy *g, int item)
{
    const struct place_model *m = g->m;

    for (int r = m->range_start[item]; r < m->range_start[item + 1]; r++) {
        int node = g->leaves + g->leaf_of[r], last = m->ranges[r].last;
        for (; node > 0 && g->reach[node] < last; node /= 2)
            g->reach[node] = last;
    }
}

/* Appends the placed items that are live in the range below `node`. */
static int tree_find(const struct greedy *g, struct place_range range, int filled)
{
    struct {
        int node, first, leaves;
    } stack[64], at;
    int depth = 0, limit = g->lead[range.last], item;

    stack[depth].node = 1;
    stack[depth].first = 0;
    stack[depth++].leaves = g->leaves;
    while (depth > 0) {
        at = stack[--depth];
        if (at.first >= limit || g->reach[at.node] <= range.first)
            continue;
        if (at.leaves > 1) {
            stack[depth].node = 2 * at.node + 1;
            stack[depth].first = at.first + at.leaves / 2;
            stack[depth++].leaves = at.leaves / 2;
            stack[depth].node = 2 * at.node;
            stack[depth].first = at.first;
            stack[depth++].leaves = at.leaves / 2;
            continue;
        }
        item = g->owner[g->range_at[at.first]];
        g->blocks[filled++] =
            (struct block){g->offset[item], g->offset[item] + g->m->size[item], item};
    }
    return filled;
}

/* ---- Gaps ------------------------------------------------------------------------ */

/* By offset; Shell's sort with the gaps of Ciura, then of Tokuda. */
static void sort_blocks(struct block *blocks, int count)
{
    static const int gaps[] = {1304420, 579742, 257663, 114516, 50896, 22621,
                               10054,   4468,   1968,   701,    301,   132,
                               57,      23,     10,     4,      1};

    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        int gap = gaps[g];
        for (int k = gap; k < count; k++) {
            struct block block = blocks[k];
            int j = k;
            for (; j >= gap && blocks[j - gap].offset > block.offset; j -= gap)
                blocks[j] = blocks[j - gap];
            blocks[j] = block;
        }
    }
}

/* Where the item goes among the blocks, which are sorted by offset. */
static int64_t find_gap(const struct place_model *m, const struct block *blocks,
                        int count, int item, bool best_fit)
{
    int64_t size = m->size[item], alignment = m->alignment[item];
    int64_t low = 0, found = -1, found_gap = INT64_MAX;

    for (int b = 0; b < count; b++) {
        int64_t gap = blocks[b].offset - low;
        if (gap >= size && (!best_fit || gap < found_gap) &&
            symm__place_align(low, alignment) <= blocks[b].offset - size) {
            found = symm__place_align(low, alignment);
            found_gap = gap;
            if (!best_fit)
                break;
        }
        low = blocks[b].end > low ? blocks[b].end : low;
    }
    return found >= 0 ? found : symm__place_align(low, alignment);
}

static void keep_best(struct greedy *g)
{
    int64_t peak = 0;

    for (int i = 0; i < g->m->count; i++)
        if (g->offset[i] + g->m->size[i] > peak)
            peak = g->offset[i] + g->m->size[i];
    if (peak >= g->best_peak)
        return;
    g->best_peak = peak;
    memcpy(g->best, g->offset, (size_t)g->m->count * sizeof *g->best);
}

/* ---- In any order ---------------------------------------------------------------- */

static int meet(struct greedy *g, int item)
{
    const struct place_model *m = g->m;
    int filled = 0;

    for (int r = m->range_start[item]; r < m->range_start[item + 1]; r++)
        filled = tree_find(g, m->ranges[r], filled);
    return filled;
}

static symm_status place_pins(struct greedy *g)
{
    const struct place_model *m = g->m;

    for (int i = 0; i < m->count && m->pins > 0; i++) {
        int64_t low = m->pin[i], high = low + m->size[i];
        int count;
        if (low < 0)
            continue;
        count = meet(g, i);
        for (int b = 0; b < count; b++)
            if (g->blocks[b].offset < high && g->blocks[b].end > low)
                return symm__fail(
                    SYMM_ERR_INVALID,
                    "placement: items %d and %d are live together and pinned to the "
                    "same "
                    "bytes, %" PRId64 " to %" PRId64 " and %" PRId64 " to %" PRId64,
                    m->source[g->blocks[b].item], m->source[i],
                    g->blocks[b].offset * m->unit, g->blocks[b].end * m->unit,
                    low * m->unit, high * m->unit);
        g->offset[i] = low;
        tree_add(g, i);
    }
    return SYMM_OK;
}

static symm_status place_in_order(struct greedy *g, const char *keys, bool best_fit)
{
    const struct place_model *m = g->m;
    symm_status status = symm__place_order(m, keys, 0, 0, g->order);

    if (status != SYMM_OK)
        return status;
    memset(g->reach, 0, 2 * (size_t)g->leaves * sizeof *g->reach);
    status = place_pins(g);
    for (int k = 0; k < m->count && status == SYMM_OK; k++) {
        int item = g->order[k], count;
        if (m->pin[item] >= 0)
            continue;
        count = meet(g, item);
        sort_blocks(g->blocks, count);
        g->offset[item] = find_gap(m, g->blocks, count, item, best_fit);
        tree_add(g, item);
    }
    if (status == SYMM_OK)
        keep_best(g);
    return status;
}

/* ---- In the order of time -------------------------------------------------------- */

/* Removes what ended before the section. */
static int expire(const struct greedy *g, int count, int section)
{
    int kept = 0;

    for (int b = 0; b < count; b++)
        if (g->m->hull[g->blocks[b].item].last > section)
            g->blocks[kept++] = g->blocks[b];
    return kept;
}

static symm_status sweep(struct greedy *g, const char *keys, bool best_fit)
{
    const struct place_model *m = g->m;
    int count = 0, section = -1;
    symm_status status = symm__place_order(m, keys, 0, 0, g->order);

    if (status != SYMM_OK)
        return status;
    for (int k = 0; k < m->count; k++) {
        int item = g->order[k], at;
        int64_t offset;
        if (m->hull[item].first > section) {
            section = m->hull[item].first;
            count = expire(g, count, section);
        }
        offset = find_gap(m, g->blocks, count, item, best_fit);
        for (at = count++; at > 0 && g->blocks[at - 1].offset > offset; at--)
            g->blocks[at] = g->blocks[at - 1];
        g->blocks[at] = (struct block){offset, offset + m->size[item], item};
        g->offset[item] = offset;
    }
    keep_best(g);
    return SYMM_OK;
}

/* ---- All of them ----------------------------------------------------------------- */

static symm_status run(struct greedy *g, uint64_t most)
{
    static const struct {
        const char *keys;
        bool best_fit;
    } orders[] = {{"ZW", false}, {"AZ", false}, {"ZW", true},
                  {"WZ", false}, {"SZ", false}, {"AZ", true}};
    const struct place_model *m = g->m;
    uint64_t work = 0;
    symm_status status = SYMM_OK;

    if (m->pins == 0) {
        status = sweep(g, "BZ", false);
        if (status == SYMM_OK)
            status = sweep(g, "BW", true);
    }
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        work += m->pairs + (uint64_t)m->count;
        if (status != SYMM_OK || g->best_peak <= m->lower_bound ||
            (work > most && g->best_peak < INT64_MAX))
            break;
        status = place_in_order(g, orders[k].keys, orders[k].best_fit);
    }
    return status;
}

symm_status symm__place_greedy(const struct place_model *m, uint64_t work,
                               int64_t *offsets, int64_t *peak)
{
    size_t n = (size_t)m->count + 1, ranges = (size_t)m->range_start[m->count] + 1;
    struct greedy g = {.m = m, .best = offsets, .best_peak = INT64_MAX, .leaves = 1};
    symm_status status;

    while ((size_t)g.leaves < ranges)
        g.leaves *= 2;
    g.offset = calloc(n, sizeof *g.offset);
    g.order = calloc(n, sizeof *g.order);
    g.blocks = calloc(ranges + n, sizeof *g.blocks);
    g.leaf_of = calloc(ranges, sizeof *g.leaf_of);
    g.range_at = calloc(ranges, sizeof *g.range_at);
    g.owner = calloc(ranges, sizeof *g.owner);
    g.reach = calloc(2 * (size_t)g.leaves, sizeof *g.reach);
    g.lead = calloc((size_t)m->sections + 2, sizeof *g.lead);
    if (!g.offset || !g.order || !g.blocks || !g.leaf_of || !g.range_at || !g.owner ||
        !g.reach || !g.lead) {
        status =
            symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items", m->count);
    } else {
        tree_make(&g);
        status = run(&g, work);
    }
    free(g.offset);
    free(g.order);
    free(g.blocks);
    free(g.leaf_of);
    free(g.range_at);
    free(g.owner);
    free(g.reach);
    free(g.lead);
    if (status == SYMM_OK)
        *peak = m->count == 0 ? 0 : g.best_peak;
    return status;
}
