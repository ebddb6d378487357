/* SPDX-License-Identifier: MIT */
/*
 * adjacent.c - see adjacent.h. A sweep over addresses: buffers enter at their first byte
 * and leave behind their last one. Those that are in are a set of turns, kept as bits with
 * a bit for each word that has any, and so on: the next and the previous one are found in
 * a few steps.
 */
#include "adjacent.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVELS 6 /* 64^6 turns */

struct turn_set {
    uint64_t *levels[MAX_LEVELS]; /* [0]: a bit for each turn */
    int depth;
};

struct event {
    size_t address;
    size_t seat;
    bool enters;
};

struct seat {
    int turn, index;
};

struct sweep {
    const struct extent *extents;
    int count;
    bool loop;
    struct seat *seats; /* extents in order of turns; the set holds places in it */
    struct turn_set set;
    struct event *events;
    size_t event_count;
    struct adjacent *pairs;
    size_t pair_count;
};

/* ---- Sets of turns -------------------------------------------------------------------- */

static bool set_init(struct turn_set *set, size_t count)
{
    do {
        set->levels[set->depth] = calloc(count / 64 + 2, sizeof(uint64_t));
        if (!set->levels[set->depth++])
            return false;
        count = count / 64 + 1;
    } while (count > 1 && set->depth < MAX_LEVELS);
    return true;
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

static int compare_seats(const void *left, const void *right)
{
    const struct seat *a = left, *b = right;

    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int compare_events(const void *left, const void *right)
{
    const struct event *a = left, *b = right;

    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return a->seat < b->seat ? -1 : a->seat > b->seat;
}

static int compare_pairs(const void *left, const void *right)
{
    const struct adjacent *a = left, *b = right;

    if (a->after != b->after)
        return a->after < b->after ? -1 : 1;
    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    return a->next_period - b->next_period;
}

/* The pair of a seat that is taken and the one that follows it. */
static void add_pair(struct sweep *sweep, size_t seat)
{
    int64_t next = set_next(&sweep->set, seat + 1);
    const bool around = next < 0;

    if (around)
        next = set_next(&sweep->set, 0);
    if (around &&
        (!sweep->loop || ((size_t)next == seat && sweep->seats[seat].turn < 0)))
        return;
    sweep->pairs[sweep->pair_count++] =
        (struct adjacent){sweep->seats[seat].index, sweep->seats[next].index, around};
}

static void add_previous(struct sweep *sweep, size_t seat)
{
    int64_t previous = set_previous(&sweep->set, seat);

    if (previous < 0)
        previous = set_previous(&sweep->set, (size_t)sweep->count);
    if (previous >= 0)
        add_pair(sweep, (size_t)previous);
}

/* All that happens at one address, then the pairs that are new there. */
static void sweep_address(struct sweep *sweep, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        set_put(&sweep->set, sweep->events[i].seat, sweep->events[i].enters);
    for (size_t i = first; i < end; i++) {
        if (sweep->events[i].enters)
            add_pair(sweep, sweep->events[i].seat);
        add_previous(sweep, sweep->events[i].seat);
    }
}

static bool prepare(struct sweep *sweep)
{
    const size_t count = (size_t)sweep->count;

    sweep->seats = calloc(count + 1, sizeof(*sweep->seats));
    sweep->events = calloc(2 * count + 1, sizeof(*sweep->events));
    sweep->pairs = calloc(3 * count + 1, sizeof(*sweep->pairs));
    if (!sweep->seats || !sweep->events || !sweep->pairs ||
        !set_init(&sweep->set, count + 1))
        return false;
    for (size_t i = 0; i < count; i++)
        sweep->seats[i] = (struct seat){sweep->extents[i].turn, (int)i};
    qsort(sweep->seats, count, sizeof(*sweep->seats), compare_seats);
    for (size_t i = 0; i < count; i++) {
        const struct extent *extent = &sweep->extents[sweep->seats[i].index];
        if (extent->low >= extent->high)
            continue;
        sweep->events[sweep->event_count++] = (struct event){extent->low, i, true};
        sweep->events[sweep->event_count++] = (struct event){extent->high, i, false};
    }
    qsort(sweep->events, sweep->event_count, sizeof(*sweep->events), compare_events);
    return true;
}

static size_t drop_repeated(struct adjacent *pairs, size_t count)
{
    size_t kept = 0;

    qsort(pairs, count, sizeof(*pairs), compare_pairs);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || compare_pairs(&pairs[kept - 1], &pairs[i]) != 0)
            pairs[kept++] = pairs[i];
    return kept;
}

struct adjacent *symm__adjacent_pairs(const struct extent *extents, int count,
                                      bool loop, size_t *found)
{
    struct sweep sweep = {.extents = extents, .count = count, .loop = loop};
    const bool good = prepare(&sweep);
    size_t first = 0;

    for (size_t i = 0; good && i < sweep.event_count; i++) {
        if (i + 1 < sweep.event_count &&
            sweep.events[i + 1].address == sweep.events[i].address)
            continue;
        sweep_address(&sweep, first, i + 1);
        first = i + 1;
    }
    free(sweep.seats);
    free(sweep.events);
    for (int l = 0; l < sweep.set.depth; l++)
        free(sweep.set.levels[l]);
    if (!good) {
        free(sweep.pairs);
        return NULL;
    }
    *found = drop_repeated(sweep.pairs, sweep.pair_count);
    return sweep.pairs;
}
