/* SPDX-License-Identifier: MIT */
/*
 * search.c - branch and bound over canonical placements.
 *
 * In a canonical placement no item can be lowered with the others where they are, so
 * each rests on the ground or on another item. Items are placed
 * lowest offset first, as in MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory
 * Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023): at a node the
 * item with the lowest possible offset is either placed there, or must rest on an item
 * that is not placed yet. The two branches exclude each other; nothing is tried twice.
 *
 * Every unplaced item has a lower bound `low` of its offset. For each section, the
 * items in it stacked in the order of their lows must end within the capacity (the one-
 * machine bound with release dates). An item that cannot be the next in some section
 * rests at least on the lowest top there. Where no unplaced item crosses from one
 * section to the next, the two sides are solved one after the other, and the choices of
 * a solved side are dropped.
 */
#include "pack/search.h"

#include <stdlib.h>
#include <string.h>

#include "pack/sort.h"

#define NEVER INT64_MAX

struct change { /* what to restore */
    int item;   /* ~item: it was placed */
    int64_t low, top;
};

/* Sections that share no unplaced item with the rest. */
struct part {
    int first, count; /* of its items in `pool`, in the order of their first section */
    int choices;      /* open choices when the part was split off */
    int next;         /* the part to solve after this one, -1: none */
};

struct choice {
    int item, changes, part, parts, pool;
};

/* Grows as needed; `push` names the size of its elements. */
struct stack {
    void *data;
    int count, room;
};

struct place_search {
    struct pool *memory;
    const struct place_model *m;
    const struct place_net *net;
    int64_t capacity;
    int *rank;
    int *live;     /* the net's lists by section: the unplaced almost sorted by low, */
    int *open;     /* [sections] that many, then the placed, the last one first */
    int64_t *rest; /* [sections] total size of the unplaced */
    int *support;  /* an item that once was the lowest to rest on */
    int64_t *low;  /* NEVER once placed: sorts last */
    int64_t *top;  /* the lowest offset that placed items leave */
    int64_t *offset;
    int *crossing; /* [sections]: unplaced items live on both sides of its lower edge */
    uint64_t *dirty; /* bits: sections to look at again */
    int dirty_words;
    int dirty_low, dirty_high; /* words that may be set */
    struct stack changes, parts, pool, choices;
    int part;
    bool split, started;
    uint64_t nodes, work;
};

/* ---- Stacks ---------------------------------------------------------------------- */

/* NULL: no memory. */
static void *push(struct place_search *s, struct stack *stack, size_t bytes)
{
    if (!symm__pool_grow(s->memory, &stack->data, stack->count, &stack->room, bytes))
        return NULL;
    return (char *)stack->data + (size_t)stack->count++ * bytes;
}

static void remember(struct place_search *s, int entry, int item)
{
    struct change *change = push(s, &s->changes, sizeof *change);

    if (change)
        *change = (struct change){entry, s->low[item], s->top[item]};
}

/* ---- Bounds ---------------------------------------------------------------------- */

/* Only sections in which the item is too late to be the next can be in trouble. */
static void mark(struct place_search *s, int item, int64_t low)
{
    const struct place_model *m = s->m;
    int64_t latest = s->capacity - low;
    int first = m->range[item].first, last = m->range[item].last;

    s->work += (uint64_t)(last - first);
    for (int t = first; t < last; t++)
        s->dirty[t >> 6] |= (uint64_t)(s->rest[t] > latest) << (t & 63);
    if (first >> 6 < s->dirty_low)
        s->dirty_low = first >> 6;
    if ((last - 1) >> 6 > s->dirty_high)
        s->dirty_high = (last - 1) >> 6;
}

static void unmark(struct place_search *s)
{
    for (int w = s->dirty_low; w <= s->dirty_high; w++)
        s->dirty[w] = 0;
    s->dirty_low = s->dirty_words;
    s->dirty_high = -1;
}

/* A new lower bound; false: it leaves no room. */
static bool raise_low(struct place_search *s, int item, int64_t low)
{
    if (low > s->capacity - s->m->size[item])
        return false;
    remember(s, item, item);
    s->low[item] = low;
    mark(s, item, low);
    return true;
}

static void sort_live(struct place_search *s, int *live, int open)
{
    int moves = open;

    for (int k = 1; k < open; k++) {
        int item = live[k], j = k;
        int64_t low = s->low[item];
        while (j > 0 && s->low[live[j - 1]] > low) {
            live[j] = live[j - 1];
            j--;
        }
        live[j] = item;
        moves += k - j;
    }
    s->work += (uint64_t)moves;
}

/*
 * The items from `from` on, of `rest` bytes in all, end within the capacity only if the
 * lowest of them begins at or below the capacity less `rest`. The others rest on that item
 * or higher. If only one item can be the lowest, the rule is applied to those after it, too.
 */
static bool raise_late(struct place_search *s, const int *live, int open, int64_t rest)
{
    int late = 0;

    for (int from = 0; from < open; from++) {
        int64_t lowest = NEVER;
        for (; late < open && s->low[live[late]] <= s->capacity - rest; late++)
            ;
        for (int k = from; k < late; k++)
            if (s->low[live[k]] + s->m->size[live[k]] < lowest)
                lowest = s->low[live[k]] + s->m->size[live[k]];
        if (lowest == NEVER)
            return false;
        for (int k = late; k < open && s->low[live[k]] < lowest; k++) {
            if (!raise_low(s, live[k], lowest))
                return false;
            if (s->low[live[k]] != lowest) /* no longer sorted */
                return true;
        }
        if (late != from + 1)
            return true;
        rest -= s->m->size[live[from]];
    }
    return true;
}

/* Whether the section can still be completed. */
static bool check_section(struct place_search *s, int section)
{
    int *live = s->live + s->net->live_start[section];
    int open = s->open[section];
    int64_t end = 0;

    sort_live(s, live, open);
    for (int k = 0; k < open; k++) {
        int64_t low = s->low[live[k]];
        end = (low > end ? low : end) + s->m->size[live[k]];
    }
    return end <= s->capacity && raise_late(s, live, open, s->rest[section]);
}

static bool check_dirty(struct place_search *s)
{
    while (s->dirty_low <= s->dirty_high) {
        int w = s->dirty_low;
        uint64_t bits = s->dirty[w];
        if (bits == 0) {
            s->dirty_low++;
            continue;
        }
        s->dirty[w] = bits & (bits - 1);
        if (!check_section(s, w * 64 + __builtin_ctzll(bits))) {
            unmark(s);
            return false;
        }
    }
    unmark(s);
    return true;
}

/* Lifts an item that does not rest where it is onto the lowest unplaced item. */
static bool lift(struct place_search *s, int item)
{
    const struct place_net *net = s->net;
    int64_t low = NEVER;
    int k = s->support[item];

    if (s->low[k] != NEVER && s->low[k] + s->m->size[k] <= s->low[item])
        return true;
    s->work += (uint64_t)(net->neighbor_start[item + 1] - net->neighbor_start[item]);
    for (int e = net->neighbor_start[item]; e < net->neighbor_start[item + 1]; e++) {
        k = net->neighbor[e];
        if (s->low[k] == NEVER || s->low[k] + s->m->size[k] >= low)
            continue;
        low = s->low[k] + s->m->size[k];
        s->support[item] = k;
    }
    if (low == NEVER)
        return false;
    return low <= s->low[item] || raise_low(s, item, low);
}

/* ---- Placing and taking back ----------------------------------------------------- */

static void count_crossing(struct place_search *s, int item, int by)
{
    for (int b = s->m->range[item].first + 1; b < s->m->range[item].last; b++) {
        s->crossing[b] += by;
        s->split |= s->crossing[b] == 0;
    }
}

/* Moves the item after the unplaced ones in the lists of its sections. */
static void take_out(struct place_search *s, int item)
{
    const struct place_model *m = s->m;

    for (int t = m->range[item].first; t < m->range[item].last; t++) {
        int *live = s->live + s->net->live_start[t], open = --s->open[t], k = 0;
        while (live[k] != item)
            k++;
        for (; k < open; k++)
            live[k] = live[k + 1];
        live[open] = item;
        s->rest[t] -= m->size[item];
    }
    count_crossing(s, item, -1);
}

/* Takes back the last call; lists only changed before the item since. */
static void put_back(struct place_search *s, int item)
{
    const struct place_model *m = s->m;

    for (int t = m->range[item].first; t < m->range[item].last; t++) {
        s->open[t]++;
        s->rest[t] += m->size[item];
    }
    count_crossing(s, item, 1);
}

static bool put(struct place_search *s, int item)
{
    const struct place_net *net = s->net;
    int64_t end = s->top[item] + s->m->size[item];

    s->work += (uint64_t)(net->neighbor_start[item + 1] - net->neighbor_start[item]);
    s->offset[item] = s->top[item];
    remember(s, ~item, item);
    s->low[item] = NEVER;
    take_out(s, item);
    mark(s, item, s->capacity);
    for (int e = net->neighbor_start[item]; e < net->neighbor_start[item + 1]; e++) {
        int k = net->neighbor[e];
        if (s->low[k] == NEVER || s->top[k] >= end)
            continue;
        remember(s, k, k);
        s->top[k] = end;
        if (s->top[k] <= s->low[k])
            continue;
        s->low[k] = s->top[k];
        if (s->low[k] > s->capacity - s->m->size[k])
            return false;
        mark(s, k, s->low[k]);
    }
    return true;
}

static void undo(struct place_search *s, int changes)
{
    struct change *list = s->changes.data;

    while (s->changes.count > changes) {
        struct change *change = &list[--s->changes.count];
        int item = change->item < 0 ? ~change->item : change->item;
        s->low[item] = change->low;
        s->top[item] = change->top;
        if (change->item < 0)
            put_back(s, item);
    }
    s->split = false;
}

/* ---- Parts ----------------------------------------------------------------------- */

static struct part *part_of(const struct place_search *s)
{
    return (struct part *)s->parts.data + s->part;
}

static void push_part(struct place_search *s, int first, int count, int next)
{
    struct part *part = push(s, &s->parts, sizeof *part);

    if (part)
        *part = (struct part){first, count, s->choices.count, next};
}

/* Replaces the current part by the parts into which its unplaced items fall. */
static void split_part(struct place_search *s)
{
    struct part part = *part_of(s);
    int begin = s->pool.count, reach = 0, parts = s->parts.count, next = part.next;

    s->split = false;
    for (int k = 0; k < part.count; k++) {
        int item = ((int *)s->pool.data)[part.first + k], *slot;
        if (s->low[item] == NEVER)
            continue;
        if (s->pool.count > begin && s->m->range[item].first >= reach) {
            push_part(s, begin, s->pool.count - begin, next);
            next = s->parts.count - 1;
            begin = s->pool.count;
        }
        slot = push(s, &s->pool, sizeof *slot);
        if (!slot)
            return;
        *slot = item;
        if (s->m->range[item].last > reach)
            reach = s->m->range[item].last;
    }
    push_part(s, begin, s->pool.count - begin, next);
    if (s->parts.count > parts)
        s->part = s->parts.count - 1;
}

/* ---- The search ------------------------------------------------------------------ */

/*
 * The item to decide on, -1: all of the part are placed, -2: nothing can be placed. The
 * lowest item of the rest lies at its top, so the lowest top bounds all of them.
 */
static int choose(struct place_search *s)
{
    const struct part *part = part_of(s);
    const int *items = (int *)s->pool.data + part->first;
    int best = -1, open = 0;
    int64_t level = NEVER;

    s->work += (uint64_t)part->count;
    for (int k = 0; k < part->count; k++) {
        int item = items[k];
        if (s->low[item] == NEVER)
            continue;
        open++;
        if (s->low[item] > s->top[item] || s->top[item] > level)
            continue;
        if (s->top[item] == level && s->rank[item] > s->rank[best])
            continue;
        best = item;
        level = s->top[item];
    }
    return open == 0 ? -1 : best < 0 ? -2 : best;
}

/* Raises the items that do not rest where they are; false: a contradiction. */
static bool raise_to_level(struct place_search *s, int64_t level)
{
    const struct part *part = part_of(s);

    for (int k = 0; k < part->count; k++) {
        int item = ((int *)s->pool.data)[part->first + k];
        if (s->low[item] == NEVER || s->low[item] <= s->top[item])
            continue;
        if (s->low[item] < level && !raise_low(s, item, level))
            return false;
        if (!lift(s, item))
            return false;
    }
    return true;
}

/* The last choice was wrong: takes it back and excludes it. False: none is left. */
static bool backtrack(struct place_search *s)
{
    while (s->choices.count > 0) {
        struct choice choice = ((struct choice *)s->choices.data)[--s->choices.count];
        unmark(s);
        undo(s, choice.changes);
        s->part = choice.part;
        s->parts.count = choice.parts;
        s->pool.count = choice.pool;
        if (lift(s, choice.item) && s->low[choice.item] > s->top[choice.item] &&
            check_dirty(s))
            return true;
    }
    return false;
}

static bool decide(struct place_search *s, int item)
{
    struct choice *choice = push(s, &s->choices, sizeof *choice);

    if (!choice)
        return false;
    *choice =
        (struct choice){item, s->changes.count, s->part, s->parts.count, s->pool.count};
    s->nodes++;
    if (!put(s, item) || !check_dirty(s))
        return false;
    if (s->split)
        split_part(s);
    return true;
}

/* One decision; false: a contradiction. Ends with part -1 when everything is placed. */
static bool advance(struct place_search *s)
{
    int item = choose(s);

    if (item == -1) {
        s->part = part_of(s)->next;
        if (s->part >= 0)
            s->choices.count = part_of(s)->choices;
        return true;
    }
    if (item == -2)
        return false;
    if (!raise_to_level(s, s->top[item]) || !check_dirty(s))
        return false;
    /* A raised item may have had the same level before. */
    if (s->low[item] > s->top[item])
        return true;
    return decide(s, item);
}

static enum place_outcome step(struct place_search *s, uint64_t end)
{
    if (!s->started) {
        s->started = true;
        for (int i = 0; i < s->m->sections; i++)
            if (!check_section(s, i))
                return PLACE_EXHAUSTED;
        if (!check_dirty(s))
            return PLACE_EXHAUSTED;
        split_part(s);
    }
    while (s->part >= 0 && s->work < end) {
        if (!advance(s) && !s->memory->failed && !backtrack(s))
            return PLACE_EXHAUSTED;
        if (s->memory->failed)
            return PLACE_NO_MEMORY;
    }
    return s->part < 0 ? PLACE_FOUND : PLACE_MORE;
}

enum place_outcome symm__pack_search_step(struct place_search *s,
                                          struct place_state *state, uint64_t budget)
{
    const uint64_t nodes = s->nodes, work = s->work;
    const enum place_outcome outcome = step(s, work + budget);

    state->nodes += s->nodes - nodes;
    state->work += s->work - work;
    if (outcome == PLACE_FOUND)
        symm__pack_keep(state, s->offset);
    return outcome;
}

/* ---- Opening ---------------------------------------------------------------------- */

static bool first_part(struct place_search *s)
{
    size_t n = (size_t)s->m->count;
    struct place_block *order = malloc((2 * n + 1) * sizeof *order);

    if (!order)
        return false;
    for (int i = 0; i < s->m->count; i++)
        order[i] = (struct place_block){.offset = s->m->range[i].first, .item = i};
    symm__pack_sort_stable(order, order + n, s->m->count);
    for (size_t i = 0; i < n; i++) {
        int *slot = push(s, &s->pool, sizeof *slot);
        if (slot)
            *slot = order[i].item;
    }
    push_part(s, 0, s->m->count, -1);
    free(order);
    return !s->memory->failed;
}

static void start_items(struct place_search *s)
{
    for (int i = 0; i < s->m->count; i++) {
        s->support[i] = i; /* not below itself */
        count_crossing(s, i, 1);
    }
    for (int t = 0; t < s->m->sections; t++) {
        s->open[t] = s->net->live_start[t + 1] - s->net->live_start[t];
        s->rest[t] = s->m->load[t];
    }
    s->split = false;
}

struct place_search *symm__pack_search_open(struct pool *pool,
                                            const struct place_model *m,
                                            const struct place_net *net,
                                            const int *rank, int64_t capacity)
{
    struct place_search *s = symm__pool_alloc(pool, 1, sizeof *s);
    size_t n = (size_t)m->count + 1, members = (size_t)net->live_start[m->sections];
    size_t sections = (size_t)m->sections + 1;

    if (!s)
        return NULL;
    s->memory = pool;
    s->m = m;
    s->net = net;
    s->capacity = capacity;
    s->dirty_words = m->sections / 64 + 1;
    s->rank = symm__pool_alloc(pool, n, sizeof *s->rank);
    s->live = symm__pool_alloc(pool, members + 1, sizeof *s->live);
    s->open = symm__pool_alloc(pool, sections, sizeof *s->open);
    s->rest = symm__pool_alloc(pool, sections, sizeof *s->rest);
    s->support = symm__pool_alloc(pool, n, sizeof *s->support);
    s->low = symm__pool_alloc(pool, n, sizeof *s->low);
    s->top = symm__pool_alloc(pool, n, sizeof *s->top);
    s->offset = symm__pool_alloc(pool, n, sizeof *s->offset);
    s->crossing = symm__pool_alloc(pool, sections, sizeof *s->crossing);
    s->dirty = symm__pool_alloc(pool, (size_t)s->dirty_words, sizeof *s->dirty);
    if (pool->failed || !first_part(s))
        return NULL;
    memcpy(s->rank, rank, (n - 1) * sizeof *rank);
    memcpy(s->live, net->live, members * sizeof *net->live);
    unmark(s);
    start_items(s);
    return s;
}
