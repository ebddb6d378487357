/* SPDX-License-Identifier: MIT */
/*
 * slots.h - sets of teams' slots: what a rank has taken, for peers that look for a free one.
 *
 * In a control page each word is loaded and stored alone: a set there is read while its owner
 * cannot change it (team_create.c, team_shrink.c).
 */
#ifndef SYMM_CORE_SLOTS_H
#define SYMM_CORE_SLOTS_H

#include <stdbool.h>

#include "oob/control_page.h"

static inline void symm__slots_add(struct symm_slots *slots, int slot)
{
    slots->word[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static inline bool symm__slots_has(const struct symm_slots *slots, int slot)
{
    return slots->word[slot / 64] >> (slot % 64) & 1;
}

/* Adds all of `more`. */
static inline void symm__slots_join(struct symm_slots *slots,
                                    const struct symm_slots *more)
{
    for (int w = 0; w < SYMM_SLOT_WORDS; w++)
        slots->word[w] |= more->word[w];
}

/* The lowest that is not in the set; SYMM_MAX_TEAMS: all are. */
static inline int symm__slots_free(const struct symm_slots *slots)
{
    int slot = 0;

    while (slot < SYMM_MAX_TEAMS && symm__slots_has(slots, slot))
        slot++;
    return slot;
}

static inline struct symm_slots symm__slots_load(const struct symm_slots *shared)
{
    struct symm_slots slots;

    for (int w = 0; w < SYMM_SLOT_WORDS; w++)
        slots.word[w] = __atomic_load_n(&shared->word[w], __ATOMIC_SEQ_CST);
    return slots;
}

static inline void symm__slots_store(struct symm_slots *shared,
                                     const struct symm_slots *slots)
{
    for (int w = 0; w < SYMM_SLOT_WORDS; w++)
        __atomic_store_n(&shared->word[w], slots->word[w], __ATOMIC_SEQ_CST);
}

#endif
