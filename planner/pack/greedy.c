/* SPDX-License-Identifier: MIT */
/*
 * greedy.c - first fit and best fit in several orders.
 *
 * In the order of time an allocator's list of gaps is enough (sweep.c). In any other order the
 * placed conflicts of an item are looked up, sorted by offset, and the gaps between them tried.
 */
#include "pack/greedy.h"

#include <string.h>

#include "pack/item_order.h"
#include "pack/sweep.h"
#include "pack/tree.h"

/*
 * First fit by size and start runs with up to MUST_PAIRS pairs (some milliseconds) even after
 * the time limit, with up to FAST_PAIRS in fast mode, with up to MOST_PAIRS otherwise without
 * a time limit.
 */
#define MUST_PAIRS UINT64_C(1000000)
#define FAST_PAIRS UINT64_C(300000000)
#define MOST_PAIRS UINT64_C(3000000000)
#define LOOK_WORK  20000 /* pairs between two readings of the clock */

/* Levels are for up to MOST_LEVELS items with LEVELS_PAIRS conflicts each. */
#define MOST_LEVELS  100000
#define LEVELS_PAIRS 300
#define GROUP        16

/*
 * The offsets of placed items. With many conflicts, marking their offsets is cheaper than
 * sorting them; a new offset costs a pass over all items.
 */
struct levels {
    int *of;         /* by item: its level, -1: not placed; padded. NULL: not used */
    int64_t *offset; /* [count] by level, ascending */
    int64_t *end;    /* by marked level: the highest end of the items marked there */
    uint64_t *marks; /* bits by level */
    int count;
};

struct greedy {
    struct place_state *state;
    const struct place_model *m;
    struct pool pool;
    struct place_tree tree;
    struct levels levels;
    struct place_block *blocks; /* [count] */
    int *order;
};

/* ---- Gaps ------------------------------------------------------------------------ */

struct gap {
    int64_t low;         /* where the blocks so far end */
    int64_t found, room; /* the gap so far; found -1: none */
};

/* Takes the next block by offset; true: the gap below it is taken. */
static inline bool pass(const struct place_model *m, int item, bool best_fit,
                        int64_t offset, int64_t end, struct gap *gap)
{
    int64_t size = m->size[item], room = offset - gap->low;

    if (room >= size && (!best_fit || room < gap->room)) {
        gap->found = gap->low;
        gap->room = room;
        if (!best_fit)
            return true;
    }
    gap->low = end > gap->low ? end : gap->low;
    return false;
}

static void pass_sorted(struct greedy *g, int count, int item, bool best_fit,
                        struct gap *gap)
{
    symm__pack_tree_sort(&g->tree, g->blocks, count);
    for (int b = 0; b < count; b++)
        if (pass(g->m, item, best_fit, g->blocks[b].offset, g->blocks[b].end, gap))
            return;
}

/* Marks the blocks' levels, and looks at the marked ones from the lowest on. */
static void pass_levels(struct greedy *g, int count, int item, bool best_fit,
                        struct gap *gap)
{
    struct levels *l = &g->levels;
    int words = l->count / 64 + 1;
    bool done = false;

    for (int b = 0; b < count; b++) {
        int level = l->of[g->blocks[b].item];
        uint64_t bit = UINT64_C(1) << (level & 63), *word = &l->marks[level >> 6];
        if (!(*word & bit) || g->blocks[b].end > l->end[level])
            l->end[level] = g->blocks[b].end;
        *word |= bit;
    }
    for (int w = 0; w < words && !done; w++)
        for (uint64_t word = l->marks[w]; word && !done; word &= word - 1) {
            int level = w * 64 + __builtin_ctzll(word);
            done = pass(g->m, item, best_fit, l->offset[level], l->end[level], gap);
        }
    memset(l->marks, 0, (size_t)words * sizeof *l->marks);
}

/* Where the item goes among the first `count` blocks. */
static int64_t find_gap(struct greedy *g, int count, int item, bool best_fit)
{
    struct gap gap = {.found = -1, .room = INT64_MAX};

    if (g->levels.of)
        pass_levels(g, count, item, best_fit, &gap);
    else
        pass_sorted(g, count, item, best_fit, &gap);
    return gap.found >= 0 ? gap.found : gap.low;
}

static void add_level(struct levels *l, const struct place_model *m, int item,
                      int64_t offset)
{
    int low = 0, high = l->count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (l->offset[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == l->count || l->offset[low] != offset) {
        memmove(l->offset + low + 1, l->offset + low,
                (size_t)(l->count - low) * sizeof *l->offset);
        l->offset[low] = offset;
        l->count++;
        /* Whole groups, which compilers turn into vectors. */
        for (int *of = l->of; of < l->of + m->count; of += GROUP)
            for (int k = 0; k < GROUP; k++)
                of[k] += of[k] >= low;
    }
    l->of[item] = low;
}

static void clear_levels(struct greedy *g)
{
    g->levels.count = 0;
    if (g->levels.of)
        memset(g->levels.of, -1, ((size_t)g->m->count + GROUP) * sizeof *g->levels.of);
}

static void settle(struct greedy *g, int item, int64_t offset)
{
    symm__pack_tree_add(&g->tree, item, offset);
    if (g->levels.of)
        add_level(&g->levels, g->m, item, offset);
}

/* ---- In any order ---------------------------------------------------------------- */

/*
 * Gives up when the peak would not fall, and, unless it `must` not, when the state is
 * stopped.
 */
static symm_status place_in_order(struct greedy *g, const char *keys, bool best_fit,
                                  bool must)
{
    const struct place_model *m = g->m;
    uint64_t work = 0;
    symm_status status = symm__pack_order(m, keys, 0, 0, g->order);

    if (status != SYMM_OK)
        return status;
    symm__pack_tree_clear(&g->tree);
    clear_levels(g);
    for (int k = 0; k < m->count && status == SYMM_OK; k++) {
        int item = g->order[k], count;
        int64_t offset;
        count = symm__pack_tree_find(&g->tree, item, g->blocks);
        offset = find_gap(g, count, item, best_fit);
        if (offset + m->size[item] >= g->state->peak)
            return SYMM_OK;
        settle(g, item, offset);
        work += (uint64_t)count + 20;
        if (work < LOOK_WORK)
            continue;
        work = 0;
        if (!symm__pack_go_on(g->state) && !must)
            return SYMM_OK;
    }
    if (status == SYMM_OK)
        symm__pack_keep(g->state, g->tree.offset);
    return status;
}

/* ---- In the order of time -------------------------------------------------------- */

static symm_status sweep(struct greedy *g, const char *keys, bool best_fit)
{
    symm_status status = symm__pack_order(g->m, keys, 0, 0, g->order);

    return status == SYMM_OK ? symm__pack_sweep(g->state, g->order, best_fit) : status;
}

/* ---- All of them ----------------------------------------------------------------- */

static uint64_t always_pairs(const symm_pack_options *options)
{
    return options->greedy           ? FAST_PAIRS
           : options->time_limit > 0 ? UINT64_MAX
                                     : MOST_PAIRS;
}

static void make_levels(struct greedy *g)
{
    size_t n = (size_t)g->m->count + 1;
    struct levels *l = &g->levels;

    if (n > MOST_LEVELS || g->m->pairs / n < LEVELS_PAIRS)
        return;
    l->of = symm__pool_alloc(&g->pool, n + GROUP, sizeof *l->of);
    l->offset = symm__pool_alloc(&g->pool, n, sizeof *l->offset);
    l->end = symm__pool_alloc(&g->pool, n, sizeof *l->end);
    l->marks = symm__pool_alloc(&g->pool, n / 64 + 1, sizeof *l->marks);
}

static symm_status run_orders(struct greedy *g, uint64_t most)
{
    static const struct {
        const char *keys;
        bool best_fit;
    } orders[] = {{"ZB", false}, {"ZW", false}, {"AZ", false}, {"ZW", true},
                  {"WZ", false}, {"SZ", false}, {"AZ", true}};
    const struct place_model *m = g->m;
    uint64_t pairs = m->pairs + (uint64_t)m->count, work = 0;
    symm_status status;

    make_levels(g);
    status = symm__pack_tree_make(&g->pool, m, &g->tree);
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        bool first = g->state->peak == INT64_MAX;
        bool must = first || (k == 0 && pairs <= MUST_PAIRS);
        work += pairs;
        if (status != SYMM_OK || symm__pack_reached(g->state) ||
            (!must && !symm__pack_go_on(g->state)))
            break;
        if (!first && work > most && (k > 0 || pairs > always_pairs(g->state->options)))
            break;
        status = place_in_order(g, orders[k].keys, orders[k].best_fit, must);
    }
    return status;
}

symm_status symm__pack_greedy(struct place_state *state, uint64_t most)
{
    size_t n = (size_t)state->model->count + 1;
    struct greedy g = {.state = state, .m = state->model};
    symm_status status = SYMM_OK;

    g.order = symm__pool_alloc(&g.pool, n, sizeof *g.order);
    g.blocks = symm__pool_alloc(&g.pool, n, sizeof *g.blocks);
    if (g.pool.failed)
        status = symm__pack_nomem(g.m->count);
    if (status == SYMM_OK)
        status = sweep(&g, "BZ", false);
    if (status == SYMM_OK && symm__pack_wanted(state))
        status = sweep(&g, "BW", true);
    if (status == SYMM_OK && !symm__pack_reached(state))
        status = run_orders(&g, most);
    symm__pool_free(&g.pool);
    return status;
}
