/* SPDX-License-Identifier: MIT */
/*
 * place_greedy.c - first fit and best fit in several orders.
 *
 * In the order of time an allocator's list of gaps is enough (place_sweep.c); pinned
 * items rule this out. In any other order the placed items that an item meets are looked
 * up, sorted by offset, and the gaps between them tried.
 */
#include "place_greedy.h"

#include <inttypes.h>
#include <stdlib.h>

#include "place_order.h"
#include "place_sweep.h"
#include "place_tree.h"
#include "status.h"

#define FAST_PAIRS UINT64_C(300000000)  /* what first fit by size and start may take: */
#define MOST_PAIRS UINT64_C(3000000000) /* fast; neither fast nor limited by time */
#define LOOK_WORK  20000                /* pairs between two looks at the clock */

struct greedy {
    struct place_state *state;
    const struct place_model *m;
    struct place_tree tree;
    struct place_block *blocks; /* [count] */
    int *order;
};

/* Where the item goes among the blocks, which are sorted by offset. */
static int64_t find_gap(const struct place_model *m, const struct place_block *blocks,
                        int count, int item, bool best_fit)
{
    int64_t size = m->size[item], alignment = m->alignment[item];
    int64_t low = 0, found = -1, found_gap = INT64_MAX;

    for (int b = 0; b < count; b++) {
        int64_t gap = blocks[b].offset - low;
        if (gap >= size && (!best_fit || gap < found_gap) &&
            symm__place_align(low, alignment) <= blocks[b].offset - size) {
            found = symm__place_align(low, alignment);
            found_gap = gap;
            if (!best_fit)
                break;
        }
        low = blocks[b].end > low ? blocks[b].end : low;
    }
    return found >= 0 ? found : symm__place_align(low, alignment);
}

/* ---- In any order ---------------------------------------------------------------- */

static symm_status place_pins(struct greedy *g)
{
    const struct place_model *m = g->m;

    for (int i = 0; i < m->count && m->pins > 0; i++) {
        int64_t low = m->pin[i], high = low + m->size[i];
        int count;
        if (low < 0)
            continue;
        count = symm__place_tree_find(&g->tree, i, g->blocks);
        for (int b = 0; b < count; b++)
            if (g->blocks[b].offset < high && g->blocks[b].end > low)
                return symm__fail(
                    SYMM_ERR_INVALID,
                    "placement: items %d and %d are live together and pinned to the "
                    "same "
                    "bytes, %" PRId64 " to %" PRId64 " and %" PRId64 " to %" PRId64,
                    m->source[g->blocks[b].item], m->source[i],
                    g->blocks[b].offset * m->unit, g->blocks[b].end * m->unit,
                    low * m->unit, high * m->unit);
        symm__place_tree_add(&g->tree, i, low);
    }
    return SYMM_OK;
}

/* Gives up when the state is stopped, unless there is no placement yet. */
static symm_status place_in_order(struct greedy *g, const char *keys, bool best_fit)
{
    const struct place_model *m = g->m;
    uint64_t look = 0;
    symm_status status = symm__place_order(m, keys, 0, 0, g->order);

    if (status != SYMM_OK)
        return status;
    symm__place_tree_clear(&g->tree);
    status = place_pins(g);
    for (int k = 0; k < m->count && status == SYMM_OK; k++) {
        int item = g->order[k], count;
        if (m->pin[item] >= 0)
            continue;
        count = symm__place_tree_find(&g->tree, item, g->blocks);
        symm__place_tree_sort(&g->tree, g->blocks, count);
        symm__place_tree_add(&g->tree, item,
                             find_gap(m, g->blocks, count, item, best_fit));
        look += (uint64_t)count + 20;
        if (look < LOOK_WORK)
            continue;
        look = 0;
        if (!symm__place_go_on(g->state) && g->state->peak < INT64_MAX)
            return SYMM_OK;
    }
    if (status == SYMM_OK)
        symm__place_keep(g->state, g->tree.offset);
    return status;
}

/* ---- In the order of time -------------------------------------------------------- */

static symm_status sweep(struct greedy *g, const char *keys, bool best_fit)
{
    symm_status status = symm__place_order(g->m, keys, 0, 0, g->order);

    return status == SYMM_OK ? symm__place_sweep(g->state, g->order, best_fit) : status;
}

/* ---- All of them ----------------------------------------------------------------- */

static uint64_t always_pairs(const struct symm_place_options *options)
{
    return options->mode == SYMM_PLACE_FAST ? FAST_PAIRS
           : options->time_limit > 0        ? UINT64_MAX
                                            : MOST_PAIRS;
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
    symm_status status = symm__place_tree_make(m, &g->tree);

    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        bool first = g->state->peak == INT64_MAX;
        work += pairs;
        if (status != SYMM_OK || (!first && !symm__place_wanted(g->state)))
            break;
        if (!first && work > most && (k > 0 || pairs > always_pairs(g->state->options)))
            break;
        status = place_in_order(g, orders[k].keys, orders[k].best_fit);
    }
    symm__place_tree_free(&g->tree);
    return status;
}

symm_status symm__place_greedy(struct place_state *state, uint64_t most)
{
    size_t n = (size_t)state->model->count + 1;
    struct greedy g = {.state = state, .m = state->model};
    symm_status status = SYMM_OK;

    g.order = calloc(n, sizeof *g.order);
    g.blocks = malloc(n * sizeof *g.blocks);
    if (!g.order || !g.blocks)
        status =
            symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items", g.m->count);
    if (status == SYMM_OK && g.m->pins == 0)
        status = sweep(&g, "BZ", false);
    if (status == SYMM_OK && g.m->pins == 0 && symm__place_wanted(state))
        status = sweep(&g, "BW", true);
    if (status == SYMM_OK && (g.m->pins > 0 || symm__place_wanted(state)))
        status = run_orders(&g, most);
    free(g.order);
    free(g.blocks);
    return status;
}
