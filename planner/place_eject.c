/* SPDX-License-Identifier: MIT */
/*
 * place_eject.c - ejection search.
 *
 * As in guided ejection search (Nagata and Braysy, "A powerful route minimization
 * heuristic for the vehicle routing problem with time windows", 2009): under a target
 * for the peak some items are not placed. One of them is placed where what it displaces
 * is cheapest, and that waits in its place. Whatever displaces others gets dearer, so
 * items that are hard to place find their places first, and the search does not run in
 * circles. Once all items are placed the target is lowered. Items far below the target
 * stay where they are, so a step costs as much as the item has conflicts, whatever the
 * size of the problem.
 */
#include "place_eject.h"

#include <stdlib.h>

#include "place_tree.h"
#include "status.h"

#define CONFLICT_COST 10 /* work of a conflict: found, sorted twice, priced */
#define STEP_COST     50
#define LOOK_WORK     200000              /* between two looks at the clock */
#define PATIENCE      UINT64_C(100000000) /* work on one target */
#define FIRST_STEP    8                   /* parts of the gap between bound and peak */

struct place_eject {
    const struct place_model *m;
    struct place_tree tree;
    struct place_block *blocks; /* [count] conflicts by offset */
    struct place_block *ends;   /* [count] the same by end, which is in `offset` */
    int *out, out_count;        /* the items that are not placed */
    uint64_t *price;            /* [count] of ejecting */
    int64_t target;             /* no placed item ends above it; 0: nothing is placed */
    int64_t step;               /* from the peak to the next target */
    uint64_t patience, tried;   /* work: what a target may take, has taken */
    uint64_t random;
    uint64_t look;
};

struct spot {
    int64_t offset;
    uint64_t price; /* of all that lies there */
};

/* splitmix64 (Vigna) */
static uint64_t next_random(struct place_eject *e)
{
    uint64_t z = e->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- One item -------------------------------------------------------------------- */

/*
 * The price falls only where a block ends, so the ground, the ends of blocks and the
 * highest offset are enough. Of equals any, at random.
 */
static struct spot cheapest_spot(struct place_eject *e, int item, int count)
{
    int64_t size = e->m->size[item], alignment = e->m->alignment[item];
    int64_t high = (e->target - size) / alignment * alignment;
    struct spot best = {0, UINT64_MAX};
    uint64_t price = 0, ties = 0;
    int in = 0, gone = 0;

    for (int k = -1; k < count; k++) {
        int64_t x = k < 0 ? 0 : symm__place_align(e->ends[k].offset, alignment);
        x = x > high ? high : x;
        for (; in < count && e->blocks[in].offset < x + size; in++)
            price += e->price[e->blocks[in].item];
        for (; gone < count && e->ends[gone].offset <= x; gone++)
            price -= e->price[e->ends[gone].item];
        ties = price < best.price ? 1 : ties + (price == best.price);
        if (price < best.price || (price == best.price && next_random(e) % ties == 0))
            best = (struct spot){x, price};
        if (x == high)
            break;
    }
    return best;
}

static void take_away(struct place_eject *e, int item)
{
    symm__place_tree_remove(&e->tree, item);
    e->out[e->out_count++] = item;
}

/* Places the largest of the items that wait. */
static void place_next(struct place_eject *e, struct place_state *state)
{
    int pick = 0, item, count;
    struct spot spot;

    for (int k = 1; k < e->out_count; k++)
        if (e->m->size[e->out[k]] > e->m->size[e->out[pick]])
            pick = k;
    item = e->out[pick];
    e->out[pick] = e->out[--e->out_count];
    count = symm__place_tree_find(&e->tree, item, e->blocks);
    state->work += (uint64_t)count * CONFLICT_COST + STEP_COST;
    state->nodes++;
    symm__place_tree_sort(&e->tree, e->blocks, count);
    for (int k = 0; k < count; k++)
        e->ends[k] =
            (struct place_block){.offset = e->blocks[k].end, .item = e->blocks[k].item};
    symm__place_tree_sort(&e->tree, e->ends, count);
    spot = cheapest_spot(e, item, count);
    if (spot.price > 0)
        e->price[item]++;
    for (int k = 0; k < count && spot.price > 0; k++)
        if (e->blocks[k].offset < spot.offset + e->m->size[item] &&
            e->blocks[k].end > spot.offset)
            take_away(e, e->blocks[k].item);
    symm__place_tree_add(&e->tree, item, spot.offset);
}

/* ---- Targets --------------------------------------------------------------------- */

/* Takes the state's placement, unless it is the one that is there. */
static void load(struct place_eject *e, const struct place_state *state)
{
    symm__place_tree_clear(&e->tree);
    e->out_count = 0;
    for (int i = 0; i < e->m->count; i++)
        symm__place_tree_add(&e->tree, i, state->offsets[i]);
    e->target = state->peak;
    e->step = (state->peak - state->lower_bound) / FIRST_STEP;
}

/* Lowers the target, or raises it; takes away what ends above it. */
static void aim(struct place_eject *e, int64_t target)
{
    for (int i = 0; target < e->target && i < e->m->count; i++)
        if (symm__place_tree_has(&e->tree, i) &&
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
        e->tried += state->work - work;
        if (state->work < e->look)
            continue;
        e->look = state->work + LOOK_WORK;
        if (!symm__place_go_on(state))
            return false;
    }
    return e->out_count == 0;
}

/* After a target that was too low. */
static void relent(struct place_eject *e)
{
    if (e->step > 1)
        e->step /= 2;
    else
        e->patience *= 2;
    e->tried = 0;
}

void symm__place_eject_lower(struct place_eject *e, struct place_state *state,
                             int64_t goal, uint64_t budget)
{
    uint64_t end = state->work + budget;
    int64_t least = goal > state->lower_bound ? goal : state->lower_bound;

    if (e->target == 0 || state->peak < e->target)
        load(e, state);
    while (state->peak > least && state->work < end && !state->stopped) {
        int64_t target = state->peak - (e->step > 0 ? e->step : 1);
        state->work += (uint64_t)e->m->count;
        aim(e, target > least ? target : least);
        if (reach(e, state, end)) {
            symm__place_keep(state, e->tree.offset);
            e->tried = 0;
        } else if (e->tried >= e->patience) {
            relent(e);
        }
    }
}

/* ---- Opening and closing --------------------------------------------------------- */

struct place_eject *symm__place_eject_open(const struct place_model *m)
{
    struct place_eject *e = calloc(1, sizeof *e);
    size_t n = (size_t)m->count + 1;

    if (e) {
        e->m = m;
        e->patience = PATIENCE;
        e->blocks = malloc(n * sizeof *e->blocks);
        e->ends = malloc(n * sizeof *e->ends);
        e->out = malloc(n * sizeof *e->out);
        e->price = malloc(n * sizeof *e->price);
    }
    if (!e || !e->blocks || !e->ends || !e->out || !e->price ||
        symm__place_tree_make(m, &e->tree) != SYMM_OK) {
        symm__place_eject_close(e);
        (void)symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items", m->count);
        return NULL;
    }
    for (int i = 0; i < m->count; i++)
        e->price[i] = 1;
    return e;
}

void symm__place_eject_close(struct place_eject *eject)
{
    if (!eject)
        return;
    symm__place_tree_free(&eject->tree);
    free(eject->blocks);
    free(eject->ends);
    free(eject->out);
    free(eject->price);
    free(eject);
}
