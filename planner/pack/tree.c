/* SPDX-License-Identifier: MIT */
/*
 * tree.c - the index of placed items over sections.
 *
 * Leaves are the items by first section, in groups of GROUP. An item that overlaps [a, b)
 * either starts in it, and lies in consecutive leaves, or starts before a and ends after a.
 * The latter are found by the largest end in each group, in each pair of groups, and so on,
 * as in a priority search tree.
 */
#include "pack/tree.h"

#include <string.h>

#define GROUP 16

symm_status symm__pack_tree_make(struct pool *pool, const struct place_model *m,
                                 struct place_tree *tree)
{
    size_t n = (size_t)m->count + 1;
    struct place_tree t = {.m = m, .groups = 1};

    while ((size_t)t.groups * GROUP < n)
        t.groups *= 2;
    t.leaves = t.groups * GROUP;
    t.offset = symm__pool_alloc(pool, n, sizeof *t.offset);
    t.leaf_of = symm__pool_alloc(pool, n, sizeof *t.leaf_of);
    t.owner = symm__pool_alloc(pool, (size_t)t.leaves, sizeof *t.owner);
    t.last = symm__pool_alloc(pool, (size_t)t.leaves, sizeof *t.last);
    t.reach = symm__pool_alloc(pool, 2 * (size_t)t.groups, sizeof *t.reach);
    t.lead = symm__pool_alloc(pool, (size_t)m->sections + 2, sizeof *t.lead);
    t.spare = symm__pool_alloc(pool, n, sizeof *t.spare);
    if (pool->failed)
        return symm__pack_nomem(m->count);
    for (int i = 0; i < m->count; i++)
        t.lead[m->range[i].first + 1]++;
    for (int s = 1; s <= m->sections; s++)
        t.lead[s] += t.lead[s - 1];
    for (int i = 0; i < m->count; i++) {
        t.leaf_of[i] = t.lead[m->range[i].first]++;
        t.owner[t.leaf_of[i]] = i;
    }
    /* The loop moved each start to the next section's. */
    memmove(t.lead + 1, t.lead, (size_t)m->sections * sizeof *t.lead);
    t.lead[0] = 0;
    *tree = t;
    return SYMM_OK;
}

void symm__pack_tree_clear(struct place_tree *tree)
{
    memset(tree->last, 0, (size_t)tree->leaves * sizeof *tree->last);
    memset(tree->reach, 0, 2 * (size_t)tree->groups * sizeof *tree->reach);
}

void symm__pack_tree_add(struct place_tree *t, int item, int64_t offset)
{
    int leaf = t->leaf_of[item], last = t->m->range[item].last;
    int node = t->groups + leaf / GROUP;

    t->offset[item] = offset;
    t->last[leaf] = last;
    for (; node > 0 && t->reach[node] < last; node /= 2)
        t->reach[node] = last;
}

void symm__pack_tree_remove(struct place_tree *t, int item)
{
    int leaf = t->leaf_of[item], first = leaf / GROUP * GROUP, reach = 0;
    int node = t->groups + leaf / GROUP;

    t->last[leaf] = 0;
    for (int k = first; k < first + GROUP; k++)
        reach = t->last[k] > reach ? t->last[k] : reach;
    for (; node > 0 && t->reach[node] != reach; node /= 2) {
        int other;
        t->reach[node] = reach;
        other = t->reach[node ^ 1];
        reach = other > reach && node > 1 ? other : reach;
    }
}

/* ---- Searching ------------------------------------------------------------------- */

/* Appends the owners of leaves [from, to) that end after `section`. */
static int take(struct place_tree *t, int from, int to, int section, int filled,
                struct place_block *blocks)
{
    const int64_t *size = t->m->size;

    for (int leaf = from; leaf < to; leaf++) {
        int item = t->owner[leaf];
        if (t->last[leaf] <= section)
            continue;
        blocks[filled++] =
            (struct place_block){t->offset[item], t->offset[item] + size[item], item};
    }
    return filled;
}

static int find_range(struct place_tree *t, struct place_range range, int filled,
                      struct place_block *blocks)
{
    struct {
        int node, first, groups;
    } stack[64], at = {1, 0, t->groups};
    int from = t->lead[range.first], to = t->lead[range.last], depth = 0;

    stack[depth++].node = 0;
    for (;;) {
        if (at.first * GROUP < from && t->reach[at.node] > range.first) {
            if (at.groups > 1) {
                stack[depth].node = 2 * at.node + 1;
                stack[depth].first = at.first + at.groups / 2;
                stack[depth++].groups = at.groups / 2;
                at.node *= 2;
                at.groups /= 2;
                continue;
            }
            filled =
                take(t, at.first * GROUP,
                     at.first * GROUP + GROUP < from ? at.first * GROUP + GROUP : from,
                     range.first, filled, blocks);
        }
        if (depth == 1)
            break;
        at.node = stack[--depth].node;
        at.first = stack[depth].first;
        at.groups = stack[depth].groups;
    }
    return take(t, from, to, range.first, filled, blocks);
}

int symm__pack_tree_find(struct place_tree *t, int item, struct place_block *blocks)
{
    int filled = find_range(t, t->m->range[item], 0, blocks);

    /* The item itself may be among what was found. */
    for (int k = 0; symm__pack_tree_has(t, item) && k < filled; k++)
        if (blocks[k].item == item) {
            blocks[k] = blocks[--filled];
            break;
        }
    return filled;
}

void symm__pack_tree_sort(struct place_tree *tree, struct place_block *blocks,
                          int count)
{
    symm__pack_sort(blocks, tree->spare, count);
}
