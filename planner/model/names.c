/* SPDX-License-Identifier: MIT */
/* names.c - see names.h: a hash table with linear probing, at most half full. */
#include "model/names.h"

#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

/* The slot of the text, or else the free slot for it; half of the slots are free. */
static struct name_slot *find_slot(const struct names *names, const char *text)
{
    size_t at = (size_t)symm__fnv_text(SYMM_FNV_BASIS, text);

    for (;; at++) {
        struct name_slot *slot = &names->slots[at & (names->room - 1)];
        if (!slot->text || strcmp(slot->text, text) == 0)
            return slot;
    }
}

int symm__names_find(const struct names *names, const char *text)
{
    const struct name_slot *slot = names->room ? find_slot(names, text) : NULL;

    return slot && slot->text ? slot->index : -1;
}

static bool double_room(struct names *names)
{
    struct names grown = {.room = names->room ? 2 * names->room : 64};

    grown.slots = calloc(grown.room, sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < names->room; i++)
        if (names->slots[i].text)
            *find_slot(&grown, names->slots[i].text) = names->slots[i];
    grown.count = names->count;
    free(names->slots);
    *names = grown;
    return true;
}

bool symm__names_add(struct names *names, const char *text, int index)
{
    if (2 * (names->count + 1) > names->room && !double_room(names))
        return false;
    *find_slot(names, text) = (struct name_slot){text, index};
    names->count++;
    return true;
}

void symm__names_free(struct names *names)
{
    free(names->slots);
    *names = (struct names){.room = 0};
}
