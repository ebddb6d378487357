/* SPDX-License-Identifier: MIT */
/*
 * adjacent.c - see adjacent.h. A sweep over addresses: buffers enter at their first byte
 * and leave after their last one. The present ones are a set of turns, kept as bits with a
 * bit for each word that has any, and so on: the next and the previous turn are found in a
 * few steps.
 */
#include "pack/adjacent.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pack/sort.h"
#include "util/pool.h"

#define MAX_LEVELS 6 /* 64^6 turns */

struct turn_set {
    uint64_t *levels[MAX_LEVELS]; /* [0]: a bit for each turn */
    int depth;
};

struct seat {
    int turn, index;
};

struct sweep {
    const struct extent *extents;
    int count;
    bool loop;
    struct seat *seats; /* extents in order of turns; the set holds indices of it */
    struct turn_set set;
    /* By address, then seat: .offset is the address, .item the seat, .end whether it enters. */
    struct place_block *events;
    int event_count;
    struct place_block *pairs; /* .offset: see pair_key */
    size_t pair_count;
    struct place_block *spare; /* room to sort in, for as many as there may be pairs */
};

/* ---- Sets of turns -------------------------------------------------------------------- */

static void set_init(struct pool *pool, struct turn_set *set, size_t count)
{
    do {
        set->levels[set->depth++] =
            symm__pool_alloc(pool, count / 64 + 2, sizeof(uint64_t));
        count = count / 64 + 1;
    } while (count > 1 && set->depth < MAX_LEVELS);
}

static void set_put(struct turn_set *set, size_t turn, bool in)
{
    for (int l = 0; l < set->depth; l++, turn /= 64) {
        uint64_t *word = &set->levels[l][turn / 64];
        if (!in)
            *word &= ~(1ULL << (turn % 64));
        else
            *word |= 1ULL << (turn % 64);
        if (!in && *word)
            return;
    }
}

/* The lowest turn at or above `turn`, which is within the set's range; -1: none. */
static int64_t set_next(const struct turn_set *set, size_t turn)
{
    for (int l = 0; l < set->depth; l++) {
        uint64_t word = set->levels[l][turn / 64] & (~0ULL << (turn % 64));
        if (word) {
            turn = turn / 64 * 64 + (size_t)__builtin_ctzll(word);
            for (l--; l >= 0; l--)
                turn = turn * 64 + (size_t)__builtin_ctzll(set->levels[l][turn]);
            return (int64_t)turn;
        }
        turn = turn / 64 + 1;
    }
    return -1;
}

/* The highest turn below `turn`; -1: none. */
static int64_t set_previous(const struct turn_set *set, size_t turn)
{
    for (int l = 0; l < set->depth; l++) {
        uint64_t word =
            turn % 64 ? set->levels[l][turn / 64] & ~(~0ULL << (turn % 64)) : 0;
        if (word) {
            turn = turn / 64 * 64 + 63 - (size_t)__builtin_clzll(word);
            for (l--; l >= 0; l--)
                turn = turn * 64 + 63 - (size_t)__builtin_clzll(set->levels[l][turn]);
            return (int64_t)turn;
        }
        turn /= 64;
    }
    return -1;
}

/* ---- The sweep ------------------------------------------------------------------------ */

/* Pairs in the order of their keys are in that of adjacent.h. */
static int64_t pair_key(const struct sweep *sweep, int before, int after,
                        bool next_period)
{
    return ((int64_t)after * sweep->count + before) * 2 + next_period;
}

static struct adjacent pair_of_key(const struct sweep *sweep, int64_t key)
{
    return (struct adjacent){.before = (int)(key / 2 % sweep->count),
                             .after = (int)(key / 2 / sweep->count),
                             .next_period = key % 2};
}

/* Adds the pair of a seat in the set and the seat that follows it. */
static void add_pair(struct sweep *sweep, size_t seat)
{
    int64_t next = set_next(&sweep->set, seat + 1);
    const bool around = next < 0;

    if (around)
        next = set_next(&sweep->set, 0);
    if (around &&
        (!sweep->loop || ((size_t)next == seat && sweep->seats[seat].turn < 0)))
        return;
    sweep->pairs[sweep->pair_count++].offset =
        pair_key(sweep, sweep->seats[seat].index, sweep->seats[next].index, around);
}

static void add_previous(struct sweep *sweep, size_t seat)
{
    int64_t previous = set_previous(&sweep->set, seat);

    if (previous < 0)
        previous = set_previous(&sweep->set, (size_t)sweep->count);
    if (previous >= 0)
        add_pair(sweep, (size_t)previous);
}

/* Applies the events of one address, then adds the pairs that are new there. */
static void sweep_address(struct sweep *sweep, int first, int end)
{
    for (int i = first; i < end; i++)
        set_put(&sweep->set, (size_t)sweep->events[i].item, sweep->events[i].end);
    for (int i = first; i < end; i++) {
        if (sweep->events[i].end)
            add_pair(sweep, (size_t)sweep->events[i].item);
        add_previous(sweep, (size_t)sweep->events[i].item);
    }
}

/* By turn; equal turns stay in the order of the list. sweep->pairs is room. */
static void sort_seats(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        sweep->pairs[i] = (struct place_block){
            .offset = (int64_t)sweep->extents[i].turn - INT_MIN, .item = i};
    symm__pack_sort_stable(sweep->pairs, sweep->spare, sweep->count);
    for (int i = 0; i < sweep->count; i++) {
        const int index = sweep->pairs[i].item;
        sweep->seats[i] = (struct seat){sweep->extents[index].turn, index};
    }
}

static void sort_events(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++) {
        const struct extent *extent = &sweep->extents[sweep->seats[i].index];
        if (extent->low >= extent->high)
            continue;
        sweep->events[sweep->event_count++] =
            (struct place_block){(int64_t)extent->low, .end = true, .item = i};
        sweep->events[sweep->event_count++] =
            (struct place_block){(int64_t)extent->high, .end = false, .item = i};
    }
    symm__pack_sort_stable(sweep->events, sweep->spare, sweep->event_count);
}

static bool prepare(struct pool *pool, struct sweep *sweep)
{
    const size_t count = (size_t)sweep->count;

    if (sweep->count > INT_MAX / 3)
        return false;
    sweep->seats = symm__pool_alloc(pool, count + 1, sizeof(*sweep->seats));
    sweep->events = symm__pool_alloc(pool, 2 * count + 1, sizeof(*sweep->events));
    sweep->pairs = symm__pool_alloc(pool, 3 * count + 1, sizeof(*sweep->pairs));
    sweep->spare = symm__pool_alloc(pool, 3 * count + 1, sizeof(*sweep->spare));
    set_init(pool, &sweep->set, count + 1);
    if (pool->failed)
        return false;
    sort_seats(sweep);
    sort_events(sweep);
    return true;
}

/* The pairs, sorted, each once. */
static struct adjacent *list_pairs(const struct sweep *sweep, size_t *found)
{
    struct adjacent *list = malloc((sweep->pair_count + 1) * sizeof(*list));
    int64_t previous = -1;

    if (!list)
        return NULL;
    *found = 0;
    symm__pack_sort_stable(sweep->pairs, sweep->spare, (int)sweep->pair_count);
    for (size_t i = 0; i < sweep->pair_count; i++) {
        if (sweep->pairs[i].offset != previous)
            list[(*found)++] = pair_of_key(sweep, sweep->pairs[i].offset);
        previous = sweep->pairs[i].offset;
    }
    return list;
}

struct adjacent *symm__adjacent_pairs(const struct extent *extents, int count,
                                      bool loop, size_t *found)
{
    struct sweep sweep = {.extents = extents, .count = count, .loop = loop};
    struct pool pool = {0};
    const bool good = prepare(&pool, &sweep);
    struct adjacent *pairs = NULL;
    int first = 0;

    for (int i = 0; good && i < sweep.event_count; i++) {
        if (i + 1 < sweep.event_count &&
            sweep.events[i + 1].offset == sweep.events[i].offset)
            continue;
        sweep_address(&sweep, first, i + 1);
        first = i + 1;
    }
    if (good)
        pairs = list_pairs(&sweep, found);
    symm__pool_free(&pool);
    return pairs;
}
