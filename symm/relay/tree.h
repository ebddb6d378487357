/* SPDX-License-Identifier: MIT */
/*
 * tree.h - the tree over the hosts of a team: which place is next to which.
 *
 * The hosts of a team, in order, have places 0 to count - 1. Place 0 is the root. Each place has
 * up to SYMM_TREE_ARITY children, so a message passes O(log hosts) links. The tree of the world
 * has the same form over all hosts that live: symm__tree_attach passes over dead ones.
 */
#ifndef SYMM_RELAY_TREE_H
#define SYMM_RELAY_TREE_H

#include <stdbool.h>

#define SYMM_TREE_ARITY 8

/* -1: the root. */
static inline int symm__tree_parent(int place)
{
    return place == 0 ? -1 : (place - 1) / SYMM_TREE_ARITY;
}

/* The first child; those that are not below `count` do not exist. */
static inline int symm__tree_child(int place)
{
    return SYMM_TREE_ARITY * place + 1;
}

static inline int symm__tree_children(int place, int count)
{
    int first = symm__tree_child(place), last = first + SYMM_TREE_ARITY;

    return first >= count ? 0 : (last < count ? last : count) - first;
}

/*
 * The host to which `host` attaches in the tree of the world: its nearest ancestor that is not
 * gone, else the lowest host below it that is not gone. -1: it is the root.
 */
static inline int symm__tree_attach(int host, const bool *gone)
{
    for (int above = symm__tree_parent(host); above >= 0;
         above = symm__tree_parent(above))
        if (!gone[above])
            return above;
    for (int low = 0; low < host; low++)
        if (!gone[low])
            return low;
    return -1;
}

#endif
