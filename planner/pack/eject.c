/* SPDX-License-Identifier: MIT */
/*
 * eject.c - ejection search.
 *
 * As in guided ejection search (Nagata and Braysy, "A powerful route minimization
 * heuristic for the vehicle routing problem with time windows", 2009): under a target
 * for the peak some items are not placed. One of them is placed where the items that it
 * displaces cost least; those then wait. The price of an item rises when it displaces others,
 * so items that are hard to place find their places first, and the search does not run in
 * circles. Once all items are placed the target is lowered. A step costs as much as the
 * item has conflicts, whatever the size of the problem.
 *
 * Small gaps do not add up to room. So at intervals all items slide down, then up, and a
 * waiting item is placed where the two leave enough room between them.
 */
#include "pack/eject.h"

#include <string.h>

#include "pack/tree.h"

#define CONFLICT_COST 10 /* work of a conflict: found, sorted twice, priced */
#define SLIDE_COST    3  /* of a conflict: found and compared */
#define STEP_COST     50
#define LOOK_WORK     200000            /* between two readings of the clock */
#define PATIENCE      UINT64_C(400000)  /* work on one target */
#define FIRST_SLIDE   UINT64_C(5000000) /* work */
#define FIRST_STEP    30                /* parts of the gap between bound and peak */

struct place_eject {
    const struct place_model *m;
    struct place_tree tree;
    struct place_block *blocks; /* [count] conflicts by offset */
    struct place_block *ends;   /* [count] the same by end, which is in `offset` */
    struct place_block *stack;  /* [count] all placed items, in the order of sliding */
    int64_t *low;               /* [count] offsets after sliding down */
    int *out, out_count;        /* the items that are not placed */
    uint64_t *price;            /* [count] of ejecting */
    int64_t target;             /* no placed item ends above it; 0: nothing is placed */
    int64_t step;               /* from the peak to the next target */
    uint64_t patience, tried;   /* work: the limit of a target, and its use so far */
    uint64_t random;
    uint64_t look, slide; /* work at which to read the clock, to slide again */
    bool up;              /* where the last slide left the items */
};

struct spot {
    int64_t offset;
    uint64_t price; /* of all that lies there */
};

/* ---- One item -------------------------------------------------------------------- */

/*
 * The price falls only where a block ends, so the ground, the ends of blocks and the
 * highest offset are enough. Of equals any, at random.
 */
static struct spot cheapest_spot(struct place_eject *e, int item, int count)
{
    int64_t size = e->m->size[item], high = e->target - size;
    struct spot best = {0, UINT64_MAX};
    uint64_t price = 0, ties = 0;
    int in = 0, gone = 0;

    for (int k = -1; k < count; k++) {
        int64_t x = k < 0 ? 0 : e->ends[k].offset;
        x = x > high ? high : x;
        for (; in < count && e->blocks[in].offset < x + size; in++)
            price += e->price[e->blocks[in].item];
        for (; gone < count && e->ends[gone].offset <= x; gone++)
            price -= e->price[e->ends[gone].item];
        ties = price < best.price ? 1 : ties + (price == best.price);
        if (price < best.price ||
            (price == best.price && symm__pack_random(&e->random) % ties == 0))
            best = (struct spot){x, price};
        if (x == high)
            break;
    }
    return best;
}

static void take_away(struct place_eject *e, int item)
{
    symm__pack_tree_remove(&e->tree, item);
    e->out[e->out_count++] = item;
}

/* Places one of the items that wait. */
static void place_next(struct place_eject *e, struct place_state *state)
{
    int pick = (int)(symm__pack_random(&e->random) % (uint64_t)e->out_count);
    int item = e->out[pick], count;
    struct spot spot;

    e->out[pick] = e->out[--e->out_count];
    count = symm__pack_tree_find(&e->tree, item, e->blocks);
    state->work += (uint64_t)count * CONFLICT_COST + STEP_COST;
    state->nodes++;
    symm__pack_tree_sort(&e->tree, e->blocks, count);
    for (int k = 0; k < count; k++)
        e->ends[k] =
            (struct place_block){.offset = e->blocks[k].end, .item = e->blocks[k].item};
    symm__pack_tree_sort(&e->tree, e->ends, count);
    spot = cheapest_spot(e, item, count);
    if (spot.price > 0)
        e->price[item]++;
    for (int k = 0; k < count && spot.price > 0; k++)
        if (e->blocks[k].offset < spot.offset + e->m->size[item] &&
            e->blocks[k].end > spot.offset)
            take_away(e, e->blocks[k].item);
    symm__pack_tree_add(&e->tree, item, spot.offset);
}

/* ---- Sliding --------------------------------------------------------------------- */

static bool may_go_on(struct place_eject *e, struct place_state *state)
{
    if (state->work < e->look)
        return !state->stopped;
    e->look = state->work + LOOK_WORK;
    return symm__pack_go_on(state);
}

/* The offset to which the item can slide, down or up, while the others stay. */
static int64_t slide_item(struct place_eject *e, struct place_state *state, int item,
                          bool up)
{
    int count = symm__pack_tree_find(&e->tree, item, e->blocks);
    int64_t offset = e->tree.offset[item], size = e->m->size[item];
    int64_t low = 0, high = e->target;

    state->work += (uint64_t)count * SLIDE_COST + STEP_COST;
    for (int k = 0; k < count; k++) {
        const struct place_block *block = &e->blocks[k];
        if (block->end <= offset && block->end > low)
            low = block->end;
        if (block->offset >= offset + size && block->offset < high)
            high = block->offset;
    }
    return up ? high - size : low;
}

/* Moves all placed items down, the lowest first, or up. False: stopped on the way. */
static bool slide_all(struct place_eject *e, struct place_state *state, bool up)
{
    int filled = 0;

    for (int i = 0; i < e->m->count; i++)
        if (symm__pack_tree_has(&e->tree, i))
            e->stack[filled++] = (struct place_block){
                .offset = up ? e->target - e->m->size[i] - e->tree.offset[i]
                             : e->tree.offset[i],
                .item = i};
    symm__pack_tree_sort(&e->tree, e->stack, filled);
    for (int k = 0; k < filled; k++) {
        int item = e->stack[k].item;
        if (!may_go_on(e, state))
            return false;
        e->tree.offset[item] = slide_item(e, state, item, up);
    }
    return true;
}

/*
 * Places the item among its conflicts, if there is room once those below it have slid down
 * and those above it have slid up: an item takes its low offset if that is below `cut`, else
 * its high one. Two that conflict keep their order.
 */
static bool squeeze_in(struct place_eject *e, int item)
{
    int count = symm__pack_tree_find(&e->tree, item, e->blocks);
    int64_t end = 0, floor = 0, cut = 0, room = -1;

    for (int k = 0; k < count; k++) {
        int other = e->blocks[k].item;
        e->blocks[k].end = e->blocks[k].offset; /* the high one */
        e->blocks[k].offset = e->low[other];
    }
    symm__pack_tree_sort(&e->tree, e->blocks, count);
    e->ends[count].offset = e->target; /* the lowest high offset from k on */
    for (int k = count - 1; k >= 0; k--)
        e->ends[k].offset = e->blocks[k].end < e->ends[k + 1].offset
                                ? e->blocks[k].end
                                : e->ends[k + 1].offset;
    for (int k = 0; k <= count; k++) {
        bool same =
            k > 0 && k < count && e->blocks[k].offset == e->blocks[k - 1].offset;
        if (k > 0) {
            int below = e->blocks[k - 1].item;
            int64_t top = e->low[below] + e->m->size[below];
            end = top > end ? top : end;
        }
        if (same || e->ends[k].offset - end <= room)
            continue;
        floor = end;
        room = e->ends[k].offset - floor;
        cut = k < count ? e->blocks[k].offset : INT64_MAX;
    }
    if (room < e->m->size[item])
        return false;
    for (int i = 0; i < e->m->count; i++)
        if (symm__pack_tree_has(&e->tree, i) && e->low[i] < cut)
            e->tree.offset[i] = e->low[i];
    symm__pack_tree_add(&e->tree, item, floor);
    return true;
}

/* Slides all items down, then up, and looks for one that fits in between. */
static void slide(struct place_eject *e, struct place_state *state)
{
    uint64_t work = state->work;
    bool fits = false;

    if (!slide_all(e, state, false))
        return;
    memcpy(e->low, e->tree.offset, (size_t)e->m->count * sizeof *e->low);
    if (!slide_all(e, state, true))
        return;
    for (int k = 0; k < e->out_count && !fits; k++) {
        fits = squeeze_in(e, e->out[k]);
        if (fits)
            e->out[k] = e->out[--e->out_count];
    }
    e->up = !e->up;
    if (!fits && e->up)
        for (int i = 0; i < e->m->count; i++)
            if (symm__pack_tree_has(&e->tree, i))
                e->tree.offset[i] = e->low[i];
    e->slide = state->work + (state->work - work); /* half of the work is sliding */
}

/* ---- Targets --------------------------------------------------------------------- */

/* Takes the state's placement. */
static void load(struct place_eject *e, const struct place_state *state)
{
    symm__pack_tree_clear(&e->tree);
    e->out_count = 0;
    for (int i = 0; i < e->m->count; i++)
        symm__pack_tree_add(&e->tree, i, state->offsets[i]);
    e->target = state->peak;
    e->slide = state->work + FIRST_SLIDE;
    e->step = (state->peak - state->lower_bound) / FIRST_STEP + 1;
}

/* Sets the target, and removes the items that end above it. */
static void aim(struct place_eject *e, int64_t target)
{
    for (int i = 0; target < e->target && i < e->m->count; i++)
        if (symm__pack_tree_has(&e->tree, i) &&
            e->tree.offset[i] + e->m->size[i] > target)
            take_away(e, i);
    e->target = target;
}

/* Places items until none waits; false: patience, budget or time ended before. */
static bool reach(struct place_eject *e, struct place_state *state, uint64_t end)
{
    while (e->out_count > 0 && state->work < end && e->tried < e->patience) {
        uint64_t work = state->work;
        place_next(e, state);
        if (state->work >= e->slide)
            slide(e, state);
        e->tried += state->work - work;
        if (!may_go_on(e, state))
            return false;
    }
    return e->out_count == 0;
}

/* After a target that was too low. */
static void relent(struct place_eject *e)
{
    e->step = e->step > 1 ? e->step / 2 : 1;
    e->patience *= 2;
    e->tried = 0;
}

void symm__pack_eject_lower(struct place_eject *e, struct place_state *state,
                            int64_t goal, uint64_t budget)
{
    uint64_t end = state->work + budget;
    int64_t least = goal > state->lower_bound ? goal : state->lower_bound;

    if (e->target == 0 || state->peak < e->target)
        load(e, state);
    while (state->peak > least && state->work < end && !state->stopped) {
        int64_t target = state->peak - e->step;
        state->work += (uint64_t)e->m->count;
        aim(e, target > least ? target : least);
        if (reach(e, state, end)) {
            symm__pack_keep(state, e->tree.offset);
            e->target = state->peak;
            e->step += e->step / 2;
            e->tried = 0;
        } else if (e->tried >= e->patience) {
            relent(e);
        }
    }
}

/* ---- Opening --------------------------------------------------------------------- */

symm_status symm__pack_eject_open(struct place_state *state, struct place_eject **eject)
{
    const struct place_model *m = state->model;
    struct pool *pool = state->pool;
    struct place_eject *e = symm__pool_alloc(pool, 1, sizeof *e);
    size_t n = (size_t)m->count + 1;

    if (!e)
        return symm__pack_nomem(m->count);
    e->m = m;
    e->patience = PATIENCE;
    e->blocks = symm__pool_alloc(pool, n, sizeof *e->blocks);
    e->ends = symm__pool_alloc(pool, n, sizeof *e->ends);
    e->out = symm__pool_alloc(pool, n, sizeof *e->out);
    e->price = symm__pool_alloc(pool, n, sizeof *e->price);
    e->stack = symm__pool_alloc(pool, n, sizeof *e->stack);
    e->low = symm__pool_alloc(pool, n, sizeof *e->low);
    for (int i = 0; !pool->failed && i < m->count; i++)
        e->price[i] = 1;
    *eject = e;
    return symm__pack_tree_make(pool, m, &e->tree);
}
