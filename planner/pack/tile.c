/* SPDX-License-Identifier: MIT */
/*
 * tile.c - depth first search for a placement without a gap.
 *
 * Where every section carries the largest load, a placement at the bound leaves no gap.
 * Items are stacked upwards, so the placed items end in a skyline: segments of time, each
 * with a height. A valley is a segment between two higher ones. The items that will lie on
 * the floor of a valley fill it from wall to wall. So an item on the floor starts exactly
 * at the left wall, another one ends exactly at the right wall, and both lie within the
 * valley. The search branches at the valley and the wall with the fewest such items, and a
 * valley without one is a contradiction.
 *
 * Without a gap the set of placed items determines the skyline. So a hash of that set
 * identifies a state, and a table keeps states from which no placement follows. A valley
 * that is often the cause of a contradiction is preferred (Boussemart et al., "Boosting
 * systematic search by weighting constraints", 2004). Restarts follow the sequence of Luby;
 * weights and the table stay. Work is counted in list entries: the result does not depend
 * on the machine.
 */
#include "pack/tile.h"

#include <string.h>

#define MOST_CHOICES 16 /* of one node; a node with more is never in the table */
#define TABLE_BITS   20
#define RESTART      UINT64_C(2000) /* nodes, times a number of Luby's sequence */
#define WEIGHT       16             /* of a valley at first, and of a contradiction */
#define PUT_WORK     20
#define LOOK_WORK    200000 /* between two readings of the clock */
#define UNKNOWN      (-1)

/* Of the skyline, by its first section; `end` is the first section after it. */
struct segment {
    int64_t height;
    int end, previous; /* previous -1: none */
    int choices;       /* in a valley: fewest at one wall, or UNKNOWN */
    bool right;        /* they are those at the right wall */
};

struct saved {
    struct segment segment;
    int at;
};

struct node {
    uint64_t hash; /* of the items placed before */
    int saved;     /* how many segments were saved before */
    int start;     /* the valley */
    int first, count, tried;
    bool complete; /* `count` are all choices */
};

struct place_tile {
    const struct place_model *m;
    struct pool *pool;
    int *start_first, *starts; /* items by first section: lists */
    int *end_first, *ends;     /* items by the section after them */
    uint64_t *key;             /* by item: summed by exclusive or */
    bool *placed;
    int64_t *offset;
    struct segment *segments;
    uint64_t *weight; /* by first section of a valley */
    struct node *nodes;
    int depth; /* nodes, and placed items */
    int *choices, choice_count;
    struct saved *saved;
    int saved_count, saved_room;
    uint64_t *table;
    uint64_t hash, random, tried, restart_at; /* tried: nodes */
    unsigned restarts;
    bool started, ended;
};

static uint64_t *slot_of(struct place_tile *t, uint64_t hash)
{
    return &t->table[hash >> (64 - TABLE_BITS)];
}

/* ---- The skyline ----------------------------------------------------------------- */

/* The segment at `at`, to be changed; `undo` brings the old one back. */
static struct segment *change(struct place_tile *t, int at)
{
    if (symm__pool_grow(t->pool, (void **)&t->saved, t->saved_count, &t->saved_room,
                        sizeof *t->saved))
        t->saved[t->saved_count++] = (struct saved){t->segments[at], at};
    return &t->segments[at];
}

static void undo(struct place_tile *t, int saved)
{
    while (t->saved_count > saved) {
        const struct saved *s = &t->saved[--t->saved_count];
        t->segments[s->at] = s->segment;
    }
}

static void make_segment(struct place_tile *t, int first, int end, int previous,
                         int64_t height)
{
    *change(t, first) = (struct segment){height, end, previous, UNKNOWN, false};
    if (end < t->m->sections)
        change(t, end)->previous = first;
}

/* Puts the item onto the segment; the neighbours of the same height become one with it. */
static void put(struct place_tile *t, int item, int at)
{
    struct segment floor = t->segments[at];
    int64_t height = floor.height + t->m->size[item];
    int first = t->m->range[item].first, last = t->m->range[item].last;
    int end = last, previous = floor.previous;

    t->placed[item] = true;
    t->offset[item] = floor.height;
    t->hash ^= t->key[item];
    if (last < floor.end)
        make_segment(t, last, floor.end, first, floor.height);
    if (first > at) {
        make_segment(t, at, first, floor.previous, floor.height);
        previous = at;
    }
    if (end < t->m->sections && t->segments[end].height == height)
        end = t->segments[end].end;
    if (previous >= 0 && t->segments[previous].height == height) {
        first = previous;
        previous = t->segments[first].previous;
    }
    make_segment(t, first, end, previous, height);
    if (previous >= 0)
        change(t, previous)->choices = UNKNOWN;
    if (end < t->m->sections)
        change(t, end)->choices = UNKNOWN;
}

/* ---- Choices --------------------------------------------------------------------- */

/* Counts the items that can lie on the floor at the left wall, and at the right one. */
static uint64_t count_choices(struct place_tile *t, int at)
{
    const struct place_range *range = t->m->range;
    int end = t->segments[at].end, left = 0, right = 0;
    struct segment *valley;

    for (int k = t->start_first[at]; k < t->start_first[at + 1]; k++)
        left += !t->placed[t->starts[k]] && range[t->starts[k]].last <= end;
    for (int k = t->end_first[end]; k < t->end_first[end + 1]; k++)
        right += !t->placed[t->ends[k]] && range[t->ends[k]].first >= at;
    valley = change(t, at);
    valley->right = right < left;
    valley->choices = right < left ? right : left;
    return (uint64_t)(t->start_first[at + 1] - t->start_first[at] +
                      t->end_first[end + 1] - t->end_first[end]);
}

/* The valley with the fewest choices for its weight; -1: one has none. */
static int choose(struct place_tile *t, struct place_state *state)
{
    uint64_t fewest = 0;
    int sections = t->m->sections, best = -1;

    for (int at = 0; at < sections; at = t->segments[at].end) {
        struct segment *s = &t->segments[at];
        state->work++;
        if ((s->previous >= 0 && t->segments[s->previous].height < s->height) ||
            (s->end < sections && t->segments[s->end].height < s->height) ||
            s->height == t->m->max_load)
            continue;
        if (s->choices == UNKNOWN)
            state->work += count_choices(t, at);
        if (s->choices == 0) {
            t->weight[at] += WEIGHT;
            return -1;
        }
        if (s->choices == 1)
            fewest = 0;
        if (best < 0 || (fewest > 0 && (uint64_t)s->choices * t->weight[best] <
                                           fewest * t->weight[at])) {
            best = at;
            fewest = s->choices == 1 ? 0 : (uint64_t)s->choices;
        }
    }
    return best;
}

/* Items with larger scores are tried first: those from wall to wall or flush with a top. */
static uint64_t score(struct place_tile *t, int item, int at)
{
    const struct segment *s = &t->segments[at];
    const struct place_range *range = &t->m->range[item];
    int64_t top = s->height + t->m->size[item], full = t->m->max_load;
    int64_t left = s->previous >= 0 ? t->segments[s->previous].height : full;
    int64_t right = s->end < t->m->sections ? t->segments[s->end].height : full;
    uint64_t value = UINT64_C(1024) * (uint64_t)(range->last - range->first) /
                     (uint64_t)(s->end - at);

    if (range->first == at && range->last == s->end)
        value += 4096;
    if (range->first == at && top == left)
        value += 3072;
    if (range->last == s->end && top == right)
        value += 3072;
    return t->restarts > 0 ? value + symm__pack_random(&t->random) % 2048 : value;
}

static bool alike(const struct place_model *m, int a, int b)
{
    return m->size[a] == m->size[b] && m->range[a].first == m->range[b].first &&
           m->range[a].last == m->range[b].last;
}

/* Fills the node with the items that can lie at the wall; of items that are alike, one. */
static void list_choices(struct place_tile *t, struct node *node)
{
    const struct segment *s = &t->segments[node->start];
    const int *list = s->right ? t->ends : t->starts;
    int begin = s->right ? t->end_first[s->end] : t->start_first[node->start];
    int end = s->right ? t->end_first[s->end + 1] : t->start_first[node->start + 1];
    int *choices = t->choices + node->first;
    uint64_t values[MOST_CHOICES];

    for (int k = begin; k < end; k++) {
        int item = list[k], at;
        uint64_t value;
        bool known = t->placed[item] || t->m->range[item].first < node->start ||
                     t->m->range[item].last > s->end;
        for (int c = 0; c < node->count && !known; c++)
            known = alike(t->m, choices[c], item);
        if (known)
            continue;
        value = score(t, item, node->start);
        if (node->count == MOST_CHOICES)
            node->complete = false;
        if (node->count == MOST_CHOICES && values[MOST_CHOICES - 1] >= value)
            continue;
        at = node->count < MOST_CHOICES ? node->count++ : MOST_CHOICES - 1;
        for (; at > 0 && values[at - 1] < value; at--) {
            values[at] = values[at - 1];
            choices[at] = choices[at - 1];
        }
        values[at] = value;
        choices[at] = item;
    }
    t->choice_count += node->count;
}

/* ---- The search ------------------------------------------------------------------ */

static void try_next(struct place_tile *t, struct node *node)
{
    t->tried++;
    put(t, t->choices[node->first + node->tried++], node->start);
}

static void descend(struct place_tile *t, int valley)
{
    struct node *node = &t->nodes[t->depth++];

    *node = (struct node){.hash = t->hash,
                          .saved = t->saved_count,
                          .start = valley,
                          .first = t->choice_count,
                          .complete = true};
    list_choices(t, node);
    try_next(t, node);
}

/* Takes the last choice back and tries the next one; false: none is left. */
static bool backtrack(struct place_tile *t)
{
    while (t->depth > 0) {
        struct node *node = &t->nodes[t->depth - 1];
        undo(t, node->saved);
        t->hash = node->hash;
        t->placed[t->choices[node->first + node->tried - 1]] = false;
        if (node->tried < node->count) {
            try_next(t, node);
            return true;
        }
        t->weight[node->start] += WEIGHT;
        if (node->complete)
            *slot_of(t, node->hash) = node->hash;
        t->choice_count = node->first;
        t->depth--;
    }
    return false;
}

/* 1 1 2 1 1 2 4 ... (Luby, Sinclair, Zuckerman 1993); index from 1. */
static uint64_t luby(uint64_t index)
{
    uint64_t power = 1;

    while (power - 1 < index)
        power *= 2;
    return index == power - 1 ? power / 2 : luby(index - (power / 2 - 1));
}

static void start(struct place_tile *t)
{
    t->restarts += t->started;
    t->started = true;
    t->depth = t->choice_count = t->saved_count = 0;
    t->hash = 0;
    memset(t->placed, 0, (size_t)t->m->count * sizeof *t->placed);
    make_segment(t, 0, t->m->sections, -1, 0);
    for (int s = 0; s < t->m->sections; s++)
        t->weight[s] -= (t->weight[s] - WEIGHT) / 16;
    t->restart_at = t->tried + RESTART * luby(t->restarts + UINT64_C(1));
}

/* One node more. */
static void advance(struct place_tile *t, struct place_state *state)
{
    int valley;

    state->work += PUT_WORK;
    state->nodes++;
    if (t->depth > 0 && *slot_of(t, t->hash) == t->hash)
        valley = -1;
    else
        valley = choose(t, state);
    if (valley >= 0)
        descend(t, valley);
    else
        t->ended = !backtrack(t);
}

symm_status symm__pack_tile_run(struct place_tile *t, struct place_state *state,
                                uint64_t budget)
{
    uint64_t end = state->work + budget, look = state->work + LOOK_WORK;

    while (!t->ended && state->work < end) {
        if (!t->started || t->tried >= t->restart_at)
            start(t);
        advance(t, state);
        if (t->pool->failed)
            return symm__pack_nomem(t->m->count);
        if (t->depth == t->m->count) {
            symm__pack_keep(state, t->offset);
            t->ended = true;
        }
        if (state->work < look)
            continue;
        look = state->work + LOOK_WORK;
        if (!symm__pack_go_on(state))
            break;
    }
    return SYMM_OK;
}

/* ---- Opening --------------------------------------------------------------------- */

bool symm__pack_tile_possible(const struct place_model *m)
{
    for (int s = 0; s < m->sections; s++)
        if (m->load[s] != m->max_load)
            return false;
    return true;
}

/* Lists of items by their first section, or by that after their last, ascending. */
static void make_lists(const struct place_model *m, bool by_last, int *first,
                       int *items)
{
    for (int i = 0; i < m->count; i++)
        first[(by_last ? m->range[i].last : m->range[i].first) + 1]++;
    for (int s = 0; s <= m->sections; s++)
        first[s + 1] += first[s];
    for (int i = 0; i < m->count; i++)
        items[first[by_last ? m->range[i].last : m->range[i].first]++] = i;
    /* Filling moved each list's begin to its end, which is the begin of the next. */
    memmove(first + 1, first, ((size_t)m->sections + 1) * sizeof *first);
    first[0] = 0;
}

symm_status symm__pack_tile_open(struct place_state *state, struct place_tile **tile)
{
    const struct place_model *m = state->model;
    struct pool *pool = state->pool;
    struct place_tile *t = symm__pool_alloc(pool, 1, sizeof *t);
    size_t n = (size_t)m->count + 1, sections = (size_t)m->sections + 2;
    uint64_t keys = 0;

    if (!t)
        return symm__pack_nomem(m->count);
    t->m = m;
    t->pool = pool;
    t->start_first = symm__pool_alloc(pool, sections, sizeof *t->start_first);
    t->end_first = symm__pool_alloc(pool, sections, sizeof *t->end_first);
    t->starts = symm__pool_alloc(pool, n, sizeof *t->starts);
    t->ends = symm__pool_alloc(pool, n, sizeof *t->ends);
    t->key = symm__pool_alloc(pool, n, sizeof *t->key);
    t->placed = symm__pool_alloc(pool, n, sizeof *t->placed);
    t->offset = symm__pool_alloc(pool, n, sizeof *t->offset);
    t->segments = symm__pool_alloc(pool, sections, sizeof *t->segments);
    t->weight = symm__pool_alloc(pool, sections, sizeof *t->weight);
    t->nodes = symm__pool_alloc(pool, n, sizeof *t->nodes);
    t->choices = symm__pool_alloc(pool, n * MOST_CHOICES, sizeof *t->choices);
    t->table = symm__pool_alloc(pool, (size_t)1 << TABLE_BITS, sizeof *t->table);
    if (pool->failed)
        return symm__pack_nomem(m->count);
    make_lists(m, false, t->start_first, t->starts);
    make_lists(m, true, t->end_first, t->ends);
    for (size_t s = 0; s < sections; s++)
        t->weight[s] = WEIGHT;
    /* Equal items have different keys, although it does not matter which of them is placed. */
    for (size_t i = 0; i + 1 < n; i++)
        t->key[i] = symm__pack_random(&keys);
    *tile = t;
    return SYMM_OK;
}
