/* SPDX-License-Identifier: MIT */
/*
 * certificate.c - proves that the lives of buffers that share bytes do not overlap, and that
 * the certificate has one entry for each pair of neighbours and no other. An entry has a
 * moment on every chain: after all accesses to the first buffer, before the second begins.
 *
 * The neighbours are computed anew: a sweep over the addresses keeps the buffers that lie at
 * one address in the order of their turns.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    int before, after;
    bool next;
    const symm_plan_entry *entry; /* of the certificate; NULL: a pair that was found */
};

struct edge {
    size_t address;
    int buffer;
    bool enters;
};

struct shares {
    struct check *c;
    struct edge *edges;
    size_t edge_count;
    int *by_turn; /* buffers */
    int *present; /* turns, ascending */
    int count;
    struct pair *found, *listed;
    size_t found_count;
    int *chain; /* from the plan's chain numbers to ours */
    bool *seen; /* by chain */
};

static int compare_edges(const void *left, const void *right)
{
    const struct edge *a = left, *b = right;

    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static int compare_pairs(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;

    if (a->after != b->after)
        return a->after < b->after ? -1 : 1;
    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    return a->next - b->next;
}

/* ---- Neighbours -------------------------------------------------------------------------- */

static int find_turn(const struct shares *all, int turn)
{
    int low = 0, high = all->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (all->present[middle] < turn)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void move_in_or_out(struct shares *all, const struct edge *edge)
{
    const int turn = all->c->lives[edge->buffer].turn;
    const int at = find_turn(all, turn);
    int *place = all->present + at;
    const size_t behind = (size_t)(all->count - at);

    if (edge->enters) {
        memmove(place + 1, place, behind * sizeof(int));
        *place = turn;
        all->count++;
    } else {
        memmove(place, place + 1, (behind - 1) * sizeof(int));
        all->count--;
    }
}

/* The pair of the buffer at this place and its successor. */
static void add_neighbours(struct shares *all, int at)
{
    const bool around = at + 1 == all->count;
    const int before = all->by_turn[all->present[at]];
    const int after = all->by_turn[all->present[around ? 0 : at + 1]];

    if (around && !all->c->program->loop)
        return;
    if (before == after && all->c->lives[before].always)
        return;
    all->found[all->found_count++] = (struct pair){before, after, around, NULL};
}

static void find_neighbours(struct shares *all)
{
    size_t first = 0, kept = 0;

    for (size_t i = 0; i < all->edge_count; i++) {
        move_in_or_out(all, &all->edges[i]);
        if (i + 1 < all->edge_count &&
            all->edges[i + 1].address == all->edges[i].address)
            continue;
        for (; first <= i; first++) {
            const int turn = all->c->lives[all->edges[first].buffer].turn;
            const int at = find_turn(all, turn);
            if (all->count == 0)
                continue;
            if (all->edges[first].enters)
                add_neighbours(all, at);
            add_neighbours(all, at > 0 ? at - 1 : all->count - 1);
        }
    }
    qsort(all->found, all->found_count, sizeof(*all->found), compare_pairs);
    for (size_t i = 0; i < all->found_count; i++)
        if (kept == 0 || compare_pairs(&all->found[kept - 1], &all->found[i]) != 0)
            all->found[kept++] = all->found[i];
    all->found_count = kept;
}

/* ---- Chains ------------------------------------------------------------------------------ */

static bool is_chain(const struct check *c, const symm_plan_chain *named,
                     const struct check_chain *chain)
{
    static const char *const words[] = {[CHECK_SELF] = "owner",
                                        [CHECK_EVERY] = "group",
                                        [CHECK_READERS] = "readers",
                                        [CHECK_ROOT] = "root",
                                        [CHECK_SENDER] = "sender"};
    const bool self = chain->who == CHECK_SELF;
    const int parameter = chain->who == CHECK_SENDER ? named->shift : named->root;

    return strcmp(named->by, words[chain->who]) == 0 &&
           (self ? named->partition == NULL
                 : named->partition &&
                       strcmp(named->partition,
                              c->program->partitions[chain->partition].name) == 0) &&
           parameter == chain->parameter &&
           (chain->who == CHECK_SENDER ? named->root : named->shift) == 0 &&
           named->half == chain->lane % c->halves &&
           strcmp(named->stream, c->program->streams[chain->lane / c->halves]) == 0;
}

/* On each chain of the plan lies an access, and no chain is listed twice. */
static bool fit_chains(struct shares *all)
{
    struct check *c = all->c;
    const symm_plan *plan = c->plan;

    for (int i = 0; i < plan->chain_count; i++) {
        int k = 0;
        while (k < c->chain_count &&
               (!c->chains[k].touched || !is_chain(c, &plan->chains[i], &c->chains[k])))
            k++;
        if (k == c->chain_count || all->seen[k])
            return symm__check_refuse(
                c, "chain %d (%s%s%s on stream %s) %s", i, plan->chains[i].by,
                plan->chains[i].partition ? " " : "",
                plan->chains[i].partition ? plan->chains[i].partition : "",
                plan->chains[i].stream,
                k == c->chain_count ? "is none that a buffer is touched on"
                                    : "is listed twice");
        all->seen[k] = true;
        all->chain[i] = k;
    }
    memset(all->seen, 0, ((size_t)c->chain_count + 1) * sizeof(*all->seen));
    return true;
}

/* ---- Entries ----------------------------------------------------------------------------- */

static const char *name_of(const struct check *c, int buffer)
{
    return c->program->buffers[buffer].name;
}

static bool refuse_order(struct check *c, const struct pair *pair)
{
    const bool never = c->lives[pair->before].always || c->lives[pair->after].always ||
                       c->lives[pair->after].first;

    return symm__check_refuse(
        c,
        "buffers %s and %s share bytes, and %s: their lifetimes overlap, or there is "
        "no barrier over both ranks and no signal or depend that orders all accesses "
        "to %s before the first write of %s%s",
        name_of(c, pair->before), name_of(c, pair->after),
        never ? "one of them holds its value all the time"
              : "the one is not over on every rank when the other begins",
        name_of(c, pair->before), name_of(c, pair->after),
        pair->next ? " in the next period" : "");
}

/* The moment on the chain lies between the last access and the beginning. */
static bool check_witness(struct shares *all, const struct pair *pair, size_t number,
                          const symm_plan_witness *witness)
{
    struct check *c = all->c;
    const int chain = all->chain[witness->chain];
    const struct check_life *life = &c->lives[pair->before];
    const uint32_t *known = c->begins + ((size_t)pair->after * 2 + (size_t)pair->next) *
                                            (size_t)c->chain_count;
    int i = 0;

    while (i < life->last_count && life->last[i].chain != chain)
        i++;
    if (i == life->last_count || all->seen[chain])
        return symm__check_refuse(
            c,
            "the certificate's entry %zu (%s before %s) has a superfluous witness: %s",
            number, name_of(c, pair->before), name_of(c, pair->after),
            all->seen[chain] ? "its chain is named twice"
                             : "the buffer is not touched on its chain");
    all->seen[chain] = true;
    if (witness->moment < life->last[i].at || witness->moment > known[chain])
        return symm__check_refuse(
            c,
            "the certificate's entry %zu (%s before %s%s) has the witness %lld on "
            "chain %d, allowed: %u to %u",
            number, name_of(c, pair->before), name_of(c, pair->after),
            pair->next ? " of the next period" : "", (long long)witness->moment,
            witness->chain, life->last[i].at, known[chain]);
    return true;
}

static bool check_entry(struct shares *all, const struct pair *pair)
{
    struct check *c = all->c;
    const struct check_life *life = &c->lives[pair->before];
    const symm_plan_entry *entry = pair->entry;
    const size_t number = (size_t)(entry - c->plan->certificate);
    bool good = true;

    for (int w = 0; w < entry->witness_count && good; w++)
        good = check_witness(all, pair, number, &entry->witness[w]);
    if (good && entry->witness_count < life->last_count)
        good = symm__check_refuse(c,
                                  "the certificate's entry %zu (%s before %s) lacks a "
                                  "witness: it has %d, and "
                                  "the buffer is touched on %d chains",
                                  number, name_of(c, pair->before),
                                  name_of(c, pair->after), entry->witness_count,
                                  life->last_count);
    for (int i = 0; i < life->last_count; i++)
        all->seen[life->last[i].chain] = false;
    return good;
}

static bool check_pairs(struct shares *all)
{
    struct check *c = all->c;
    const size_t listed = c->plan->certificate_count;
    size_t at = 0;

    for (size_t i = 0; i < all->found_count; i++, at++) {
        const struct pair *pair = &all->found[i];
        if (!symm__check_before(c, pair->before, pair->after, pair->next))
            return refuse_order(c, pair);
        if (at == listed || compare_pairs(&all->listed[at], pair) > 0)
            return symm__check_refuse(
                c, "the certificate has no entry for buffers %s and %s%s",
                name_of(c, pair->before), name_of(c, pair->after),
                pair->next ? " of the next period" : "");
        if (compare_pairs(&all->listed[at], pair) < 0)
            break;
        if (!check_entry(all, &all->listed[at]))
            return false;
        symm__check_frees_before(c, pair->before, pair->after, pair->next);
        c->report->proved++;
    }
    if (at == listed)
        return true;
    return symm__check_refuse(
        c,
        "the certificate's entry %zu (%s before %s%s) is superfluous: they are no "
        "neighbours in any byte, or it is there twice",
        (size_t)(all->listed[at].entry - c->plan->certificate),
        name_of(c, all->listed[at].before), name_of(c, all->listed[at].after),
        all->listed[at].next ? " of the next period" : "");
}

/* The part that ranks load: turns, and the predecessors of each buffer. */
static bool check_run_part(const struct shares *all)
{
    struct check *c = all->c;
    size_t at = 0;

    for (int b = 0; b < c->plan->buffer_count; b++) {
        const symm_plan_buffer *buffer = &c->plan->buffers[b];
        const int turn = c->lives[b].always ? -1 : c->lives[b].turn;
        int i = 0;
        if (buffer->turn != turn)
            return symm__check_refuse(c, "buffer %s has turn %d, allowed: %d",
                                      buffer->name, buffer->turn, turn);
        for (; at < all->found_count && all->found[at].after == b; at++, i++)
            if (i >= buffer->after_count || buffer->after[i] != all->found[at].before)
                break;
        if (i < buffer->after_count ||
            (at < all->found_count && all->found[at].after == b))
            return symm__check_refuse(
                c, "buffer %s does not list the buffers that it comes after, %s first",
                buffer->name,
                at < all->found_count && all->found[at].after == b
                    ? name_of(c, all->found[at].before)
                    : "none");
    }
    return true;
}

/* ---- All --------------------------------------------------------------------------------- */

static bool prepare(struct shares *all)
{
    struct check *c = all->c;
    struct pool *pool = &c->pool;
    const size_t buffers = (size_t)c->program->buffer_count + 1;
    const size_t listed = c->plan->certificate_count;

    all->edges = symm__pool_alloc(pool, 2 * buffers, sizeof(*all->edges));
    all->by_turn = symm__pool_alloc(pool, buffers, sizeof(int));
    all->present = symm__pool_alloc(pool, buffers + 1, sizeof(int));
    all->found = symm__pool_alloc(pool, 3 * buffers, sizeof(*all->found));
    all->listed = symm__pool_alloc(pool, listed + 1, sizeof(*all->listed));
    all->chain = symm__pool_alloc(pool, (size_t)c->plan->chain_count + 1, sizeof(int));
    all->seen = symm__pool_alloc(pool, (size_t)c->chain_count + 1, sizeof(bool));
    if (pool->failed)
        return symm__check_nomem(c);
    for (int b = 0; b < c->plan->buffer_count; b++) {
        const symm_plan_buffer *buffer = &c->plan->buffers[b];
        all->by_turn[c->lives[b].turn] = b;
        if (buffer->bytes == 0)
            continue;
        all->edges[all->edge_count++] = (struct edge){buffer->offset, b, true};
        all->edges[all->edge_count++] =
            (struct edge){buffer->offset + buffer->bytes, b, false};
    }
    qsort(all->edges, all->edge_count, sizeof(*all->edges), compare_edges);
    for (size_t i = 0; i < listed; i++) {
        const symm_plan_entry *entry = &c->plan->certificate[i];
        const int most = c->plan->buffer_count;
        bool good = entry->before >= 0 && entry->before < most && entry->after >= 0 &&
                    entry->after < most;
        for (int w = 0; w < entry->witness_count && good; w++)
            good = entry->witness[w].chain >= 0 &&
                   entry->witness[w].chain < c->plan->chain_count;
        if (!good)
            return symm__check_refuse(c,
                                      "the certificate's entry %zu names buffers or "
                                      "chains that are not there",
                                      i);
        all->listed[i] =
            (struct pair){entry->before, entry->after, entry->next_period, entry};
    }
    qsort(all->listed, listed, sizeof(*all->listed), compare_pairs);
    return true;
}

bool symm__check_certificate(struct check *c)
{
    struct shares all = {.c = c};

    if (!prepare(&all) || !fit_chains(&all))
        return false;
    find_neighbours(&all);
    return check_pairs(&all) && check_run_part(&all);
}
