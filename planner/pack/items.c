/* SPDX-License-Identifier: MIT */
/*
 * items.c - checks items and turns their lifetimes into sections.
 *
 * Guarantees: afterwards no sum of sizes that are live together overflows. Refuses
 * items that are malformed, naming the first.
 */
#include "pack/items.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/sort.h"
#include "util/status.h"

#define BY_START 4096

symm_status symm__pack_nomem(int count)
{
    return symm__fail(SYMM_ERR_NOMEM, "placement: no memory for %d items", count);
}

/* ---- Checks ---------------------------------------------------------------------- */

static symm_status check_item(const symm_pack_item *item, int index)
{
    if (item->bytes < 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "placement: item %d has size %" PRId64 "; allowed are >= 0",
                          index, item->bytes);
    if (item->lower >= item->upper)
        return symm__fail(SYMM_ERR_INVALID,
                          "placement: item %d is live in [%" PRId64 ", %" PRId64
                          "), which is empty",
                          index, item->lower, item->upper);
    return SYMM_OK;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Offsets of a lowest placement are sums of sizes. */
static int64_t common_unit(const symm_pack_item *items, int count)
{
    int64_t unit = 0;

    for (int i = 0; i < count; i++)
        unit = gcd(unit, items[i].bytes);
    return unit == 0 ? 1 : unit;
}

/* ---- Sections -------------------------------------------------------------------- */

/*
 * A set of live items is maximal where a start is followed by an end; only those
 * moments become sections (Golumbic: the maximal cliques of an interval graph). Items of
 * one section may begin at different moments, so births are numbered apart.
 */
static void sweep(struct place_model *m, const struct place_block *edges,
                  int edge_count)
{
    int section = 0, moment = 0;
    uint64_t live = 0;
    bool grown = false;

    for (int e = 0; e < edge_count; e++) {
        int item = edges[e].item; /* ~item where it ends */
        moment += e > 0 && edges[e].offset != edges[e - 1].offset;
        if (item >= 0) {
            m->range[item].first = section;
            m->birth[item] = moment;
            m->pairs += live++;
            grown = true;
            continue;
        }
        if (grown) {
            section++;
            m->members += live;
        }
        grown = false;
        live--;
        m->range[~item].last = section;
    }
    m->sections = section;
}

/* The moment as a number that sorts as uint64_t. */
static struct place_block edge_at(int64_t time, int item)
{
    return (struct place_block){.offset = (int64_t)((uint64_t)time ^ UINT64_C(1) << 63),
                                .item = item};
}

static symm_status make_sections(struct place_model *m, const symm_pack_item *items)
{
    int filled = 0;
    size_t room = (size_t)m->count * 2 + 1;
    struct place_block *edges = malloc(2 * room * sizeof *edges);

    if (!edges)
        return symm__pack_nomem(m->count);
    /* Ends before starts at one time, since spans are half-open: the sort is stable. */
    for (int i = 0; i < m->count; i++)
        edges[filled++] = edge_at(items[m->source[i]].upper, ~i);
    for (int i = 0; i < m->count; i++)
        edges[filled++] = edge_at(items[m->source[i]].lower, i);
    symm__pack_sort_stable(edges, edges + room, filled);
    sweep(m, edges, filled);
    free(edges);
    return SYMM_OK;
}

static symm_status add_loads(struct pool *pool, struct place_model *m)
{
    int64_t *change;

    m->load = symm__pool_alloc(pool, (size_t)m->sections + 1, sizeof *m->load);
    if (!m->load)
        return symm__pack_nomem(m->count);
    /* The differences may wrap; the sums over live items do not. */
    change = m->load;
    for (int i = 0; i < m->count; i++) {
        uint64_t size = (uint64_t)m->size[i];
        int first = m->range[i].first, last = m->range[i].last;
        change[first] = (int64_t)((uint64_t)change[first] + size);
        change[last] = (int64_t)((uint64_t)change[last] - size);
    }
    for (int s = 1; s < m->sections; s++)
        m->load[s] = (int64_t)((uint64_t)m->load[s] + (uint64_t)m->load[s - 1]);
    for (int s = 0; s < m->sections; s++)
        m->max_load = m->load[s] > m->max_load ? m->load[s] : m->max_load;
    return SYMM_OK;
}

/* ---- The model ------------------------------------------------------------------- */

/* In units; the sum bounds every sum that the placers make. */
static symm_status fill_item(struct place_model *m, const symm_pack_item *item,
                             int index, int64_t *sum)
{
    int k = m->count;

    if (item->bytes == 0)
        return SYMM_OK;
    m->source[k] = index;
    m->size[k] = item->bytes / m->unit;
    m->width[k] = (double)item->upper - (double)item->lower;
    m->count++;
    if (__builtin_add_overflow(*sum, m->size[k], sum))
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "placement: the sizes of items 0 to %d add up to more than "
                          "2^63 - 1 times %" PRId64,
                          index, m->unit);
    return SYMM_OK;
}

/*
 * Many items are numbered by the start of their lives, so that passes in the order of time
 * read memory from front to back.
 */
static symm_status fill_items(struct place_model *m, const symm_pack_item *items,
                              int count)
{
    bool by_start = count > BY_START;
    size_t room = by_start ? (size_t)count : 0;
    struct place_block *order = malloc((2 * room + 1) * sizeof *order);
    int64_t sum = 0;
    symm_status status = order ? SYMM_OK : symm__pack_nomem(count);

    m->unit = common_unit(items, count);
    for (int i = 0; status == SYMM_OK && by_start && i < count; i++)
        order[i] = edge_at(items[i].lower, i);
    if (status == SYMM_OK && by_start)
        symm__pack_sort_stable(order, order + room, count);
    for (int k = 0; status == SYMM_OK && k < count; k++) {
        int i = by_start ? order[k].item : k;
        status = fill_item(m, &items[i], i, &sum);
    }
    free(order);
    return status;
}

symm_status symm__pack_model_make(struct pool *pool, const symm_pack_item *items,
                                  int count, struct place_model *model)
{
    size_t n = (size_t)count + 1;
    symm_status status = SYMM_OK;

    *model = (struct place_model){0};
    for (int i = 0; i < count && status == SYMM_OK; i++)
        status = check_item(&items[i], i);
    if (status != SYMM_OK)
        return status;
    model->source = symm__pool_alloc(pool, n, sizeof *model->source);
    model->size = symm__pool_alloc(pool, n, sizeof *model->size);
    model->width = symm__pool_alloc(pool, n, sizeof *model->width);
    model->range = symm__pool_alloc(pool, n, sizeof *model->range);
    model->birth = symm__pool_alloc(pool, n, sizeof *model->birth);
    if (pool->failed)
        return symm__pack_nomem(count);
    status = fill_items(model, items, count);
    if (status == SYMM_OK)
        status = make_sections(model, items);
    return status == SYMM_OK ? add_loads(pool, model) : status;
}

/* ---- Overlapping lifetimes ------------------------------------------------------- */

static void fill_live(const struct place_model *m, struct place_net *net)
{
    for (int i = 0; i < m->count; i++)
        for (int s = m->range[i].first; s < m->range[i].last; s++)
            net->live_start[s + 2]++;
    for (int s = 2; s <= m->sections + 1; s++)
        net->live_start[s] += net->live_start[s - 1];
    for (int i = 0; i < m->count; i++)
        for (int s = m->range[i].first; s < m->range[i].last; s++)
            net->live[net->live_start[s + 1]++] = i;
}

/* Appends the items that share a section with i; seen[k] == i: k is there already. */
static int meet(const struct place_model *m, const struct place_net *net, int i,
                int *seen, int *neighbor, int filled)
{
    seen[i] = i;
    for (int s = m->range[i].first; s < m->range[i].last; s++)
        for (int e = net->live_start[s]; e < net->live_start[s + 1]; e++) {
            int k = net->live[e];
            if (seen[k] == i)
                continue;
            seen[k] = i;
            neighbor[filled++] = k;
        }
    return filled;
}

symm_status symm__pack_net_make(struct pool *pool, const struct place_model *m,
                                struct place_net *net)
{
    size_t n = (size_t)m->count + 1;
    int *seen = symm__pool_alloc(pool, n, sizeof *seen), filled = 0;

    net->live_start =
        symm__pool_alloc(pool, (size_t)m->sections + 2, sizeof *net->live_start);
    net->live = symm__pool_alloc(pool, m->members + 1, sizeof *net->live);
    net->neighbor_start = symm__pool_alloc(pool, n, sizeof *net->neighbor_start);
    net->neighbor = symm__pool_alloc(pool, 2 * m->pairs + 1, sizeof *net->neighbor);
    if (pool->failed)
        return symm__fail(SYMM_ERR_NOMEM,
                          "placement: no memory for %" PRIu64 " conflicts", m->pairs);
    fill_live(m, net);
    memset(seen, -1, n * sizeof *seen);
    for (int i = 0; i < m->count; i++) {
        net->neighbor_start[i] = filled;
        filled = meet(m, net, i, seen, net->neighbor, filled);
    }
    net->neighbor_start[m->count] = filled;
    return SYMM_OK;
}
