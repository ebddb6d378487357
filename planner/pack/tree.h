/* SPDX-License-Identifier: MIT */
/*
 * tree.h - the placed items that are live together with a given item.
 *
 * An index over the items of a model in the order of their first sections. Guarantees:
 * a search returns each placed item once.
 */
#ifndef SYMM_PLANNER_PACK_TREE_H
#define SYMM_PLANNER_PACK_TREE_H

#include "pack/items.h"
#include "pack/sort.h"

struct place_tree {
    const struct place_model *m;
    int64_t *offset; /* [count] of the placed items; written by the add function */
    int leaves;      /* positions of items, rounded up to whole groups */
    int groups;      /* a power of two */
    int *leaf_of;    /* by item */
    int *owner;      /* by leaf: the item */
    int *last;       /* by leaf: last section of the range, 0 while not placed */
    int *reach;      /* [2 * groups]: the largest `last` of the leaves below */
    int *lead;       /* [sections + 1]: number of items that start before the section */
    struct place_block *spare; /* [count], for sorting */
};

/* SYMM_ERR_NOMEM. The lists are the pool's; the model must outlive the tree. */
symm_status symm__pack_tree_make(struct pool *pool, const struct place_model *model,
                                 struct place_tree *tree) SYMM_MUST_CHECK;

/* Forgets all placed items. */
void symm__pack_tree_clear(struct place_tree *tree);
void symm__pack_tree_add(struct place_tree *tree, int item, int64_t offset);
void symm__pack_tree_remove(struct place_tree *tree, int item);

static inline bool symm__pack_tree_has(const struct place_tree *tree, int item)
{
    return tree->last[tree->leaf_of[item]] > 0;
}

/*
 * Fills blocks[count] with the placed items that share a section with `item` (without
 * `item` itself), in no particular order. Returns their number.
 */
int symm__pack_tree_find(struct place_tree *tree, int item, struct place_block *blocks);

/* Sorts blocks by offset; equal offsets stay in any, but always the same, order. */
void symm__pack_tree_sort(struct place_tree *tree, struct place_block *blocks,
                          int count);

#endif
