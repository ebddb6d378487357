/* SPDX-License-Identifier: MIT */
/*
 * names.h - an index of names: from a text to the number that it was added with.
 */
#ifndef SYMM_PLANNER_MODEL_NAMES_H
#define SYMM_PLANNER_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct name_slot {
    const char *text; /* borrowed; NULL: free */
    int index;
};

struct names {
    struct name_slot *slots; /* a hash table; its size is a power of two */
    size_t room, count;
};

int symm__names_find(const struct names *names, const char *text); /* -1: not there */
/* text must outlive the index. false: memory is exhausted, and nothing was added. */
bool symm__names_add(struct names *names, const char *text, int index);
void symm__names_free(struct names *names);

#endif
