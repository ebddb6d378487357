/* SPDX-License-Identifier: MIT */
/*
 * lifetime_moments.c - conflicts as moments: sets of buffers that pairwise conflict, which
 * together cover every conflict. The placer keeps apart what shares a moment.
 *
 * Buffers are taken in the order of their first writes. What conflicts with the buffer in
 * hand and came before it is, for lifetimes on a line, one clique, and one moment does; the
 * largest moment is then the largest clique (such an order is a perfect elimination order
 * of a chordal graph: Fulkerson and Gross, 1965). Around a circle it may take more.
 */
#include <stdlib.h>
#include <string.h>

#include "lifetime.h"
#include "program_private.h"
#include "status.h"

struct spans {
    struct symm_span *list;
    int count, room;
};

struct cutter {
    struct lifetimes *lives;
    int *sorted;          /* buffers by first write */
    uint64_t *before;     /* conflicts of the buffer in hand with earlier ones */
    uint64_t *uncovered;  /* those that no moment has yet */
    uint64_t *candidates; /* what still conflicts with all of the clique */
    uint64_t *seen;       /* earlier buffers */
    struct spans *spans;
    int *extra; /* members of further moments: count, buffers... */
    int extra_count, extra_room;
    int64_t best;
    bool split;
};

static const uint64_t *row_of(const struct lifetimes *lives, int buffer)
{
    return lives->conflicts + (size_t)buffer * lives->words;
}

static bool any(const struct cutter *cutter, const uint64_t *set)
{
    for (size_t w = 0; w < cutter->lives->words; w++)
        if (set[w])
            return true;
    return false;
}

static bool add_span(struct spans *spans, int64_t moment)
{
    if (spans->count && spans->list[spans->count - 1].upper == moment) {
        spans->list[spans->count - 1].upper++;
        return true;
    }
    if (!symm__grow((void **)&spans->list, spans->count, &spans->room,
                    sizeof(*spans->list)))
        return false;
    spans->list[spans->count++] = (struct symm_span){moment, moment + 1};
    return true;
}

static bool add_extra(struct cutter *cutter, int value)
{
    if (!symm__grow((void **)&cutter->extra, cutter->extra_count, &cutter->extra_room,
                    sizeof(*cutter->extra)))
        return false;
    cutter->extra[cutter->extra_count++] = value;
    return true;
}

/*
 * One clique of the buffer at `index` with earlier ones, the latest first; it begins with
 * one that no moment has yet. Marks its members covered.
 */
static bool take_clique(struct cutter *cutter, int index, bool main)
{
    struct lifetimes *lives = cutter->lives;
    const int buffer = cutter->sorted[index];
    int64_t bytes = lives->sizes[buffer];
    int at = cutter->extra_count;
    bool begun = false, fits = main ? add_span(&cutter->spans[buffer], index)
                                    : add_extra(cutter, 1) && add_extra(cutter, buffer);

    memcpy(cutter->candidates, cutter->before, lives->words * sizeof(uint64_t));
    for (int pass = 0; pass < 2 && fits; pass++) {
        for (int i = index - 1; i >= 0 && fits; i--) {
            int other = cutter->sorted[i];
            size_t w = (size_t)other / 64;
            uint64_t bit = 1ULL << (other % 64);
            if (!(cutter->candidates[w] & bit) ||
                (pass == 0 && (begun || !(cutter->uncovered[w] & bit))))
                continue;
            begun = true;
            bytes += lives->sizes[other];
            cutter->uncovered[w] &= ~bit;
            for (size_t k = 0; k < lives->words; k++)
                cutter->candidates[k] &= row_of(lives, other)[k];
            fits = main ? add_span(&cutter->spans[other], index)
                        : add_extra(cutter, other);
            if (!main)
                cutter->extra[at]++;
        }
    }
    if (bytes > cutter->best)
        cutter->best = bytes;
    return fits;
}

static bool cut(struct cutter *cutter)
{
    struct lifetimes *lives = cutter->lives;
    int64_t moment = lives->count;

    for (int index = 0; index < lives->count; index++) {
        const int buffer = cutter->sorted[index];
        for (size_t w = 0; w < lives->words; w++)
            cutter->before[w] = cutter->uncovered[w] =
                row_of(lives, buffer)[w] & cutter->seen[w];
        if (!take_clique(cutter, index, true))
            return false;
        while (any(cutter, cutter->uncovered)) {
            cutter->split = true;
            if (!take_clique(cutter, index, false))
                return false;
        }
        cutter->seen[buffer / 64] |= 1ULL << (buffer % 64);
    }
    for (int i = 0; i < cutter->extra_count; i += 1 + cutter->extra[i], moment++)
        for (int k = 1; k <= cutter->extra[i]; k++)
            if (!add_span(&cutter->spans[cutter->extra[i + k]], moment))
                return false;
    return true;
}

/* ---- The largest clique ------------------------------------------------------------ */

struct search {
    const struct lifetimes *lives;
    uint64_t *sets; /* one for each depth, and one more */
    int64_t best;
    int64_t budget; /* words that may still be looked at */
};

static int lowest(const struct search *search, const uint64_t *set)
{
    for (size_t w = 0; w < search->lives->words; w++)
        if (set[w])
            return (int)(w * 64) + __builtin_ctzll(set[w]);
    return -1;
}

/* At most this much can a clique within the set weigh: a colouring's classes, the heaviest
 * of each. `left` and `class` are room. */
static int64_t bound(struct search *search, const uint64_t *set, uint64_t *left,
                     uint64_t *class)
{
    const struct lifetimes *lives = search->lives;
    int64_t total = 0;
    int buffer;

    memcpy(left, set, lives->words * sizeof(uint64_t));
    while (lowest(search, left) >= 0) {
        int64_t heaviest = 0;
        memcpy(class, left, lives->words * sizeof(uint64_t));
        while ((buffer = lowest(search, class)) >= 0) {
            left[buffer / 64] &= ~(1ULL << (buffer % 64));
            class[buffer / 64] &= ~(1ULL << (buffer % 64));
            for (size_t w = 0; w < lives->words; w++)
                class[w] &= ~row_of(lives, buffer)[w];
            if (lives->sizes[buffer] > heaviest)
                heaviest = lives->sizes[buffer];
            search->budget -= (int64_t)lives->words;
        }
        total += heaviest;
    }
    return total;
}

static void expand(struct search *search, int depth, int64_t weight)
{
    const struct lifetimes *lives = search->lives;
    uint64_t *set = search->sets + (size_t)depth * lives->words;
    uint64_t *next = set + lives->words;
    uint64_t *room = search->sets + (size_t)(lives->count + 2) * lives->words;

    if (weight > search->best)
        search->best = weight;
    while (search->budget > 0) {
        int buffer = lowest(search, set);
        if (buffer < 0 ||
            weight + bound(search, set, room, room + lives->words) <= search->best)
            return;
        set[buffer / 64] &= ~(1ULL << (buffer % 64));
        for (size_t w = 0; w < lives->words; w++)
            next[w] = set[w] & row_of(lives, buffer)[w];
        expand(search, depth + 1, weight + lives->sizes[buffer]);
    }
}

static bool search_clique(struct lifetimes *lives)
{
    struct search search = {
        .lives = lives, .best = lives->clique_bytes, .budget = 200000000};

    search.sets =
        calloc((size_t)lives->count + 4, (lives->words + 1) * sizeof(uint64_t));
    if (!search.sets)
        return false;
    for (int b = 0; b < lives->count; b++)
        search.sets[b / 64] |= 1ULL << (b % 64);
    expand(&search, 0, 0);
    lives->clique_bytes = search.best;
    lives->clique_proved = search.budget > 0;
    free(search.sets);
    return true;
}

/* ---- All together ---------------------------------------------------------------- */

static int64_t first_turn(const struct lifetimes *lives, int buffer)
{
    const struct order *order = lives->order;
    const int first = order->first_touch[buffer], start = order->touch_start[buffer];

    if (first < 0 || (!order->program->loop && first != start))
        return -1;
    return order->rank_of_op[order->accesses[order->touch[first]].op];
}

/* A stable merge sort: buffers of one first op stay in the order of the program. */
static bool sort_by_first(const struct lifetimes *lives, int *sorted)
{
    int *room = calloc((size_t)lives->count + 1, sizeof(*room));

    if (!room)
        return false;
    for (int b = 0; b < lives->count; b++)
        sorted[b] = b;
    for (int width = 1; width < lives->count; width *= 2) {
        for (int low = 0; low < lives->count; low += 2 * width) {
            int middle = low + width < lives->count ? low + width : lives->count;
            int high = low + 2 * width < lives->count ? low + 2 * width : lives->count;
            int a = low, b = middle;
            for (int to = low; to < high; to++) {
                bool right =
                    a == middle || (b < high && first_turn(lives, sorted[b]) <
                                                    first_turn(lives, sorted[a]));
                room[to] = right ? sorted[b++] : sorted[a++];
            }
        }
        memcpy(sorted, room, (size_t)lives->count * sizeof(*sorted));
    }
    free(room);
    return true;
}

static bool give_items(struct cutter *cutter)
{
    struct lifetimes *lives = cutter->lives;

    lives->items =
        symm__pool_alloc(&lives->pool, (size_t)lives->count + 1, sizeof(*lives->items));
    if (!lives->items)
        return false;
    for (int b = 0; b < lives->count; b++) {
        const struct spans *spans = &cutter->spans[b];
        struct symm_span *copy =
            symm__pool_alloc(&lives->pool, (size_t)spans->count, sizeof(*copy));
        if (!copy)
            return false;
        memcpy(copy, spans->list, (size_t)spans->count * sizeof(*copy));
        lives->items[b] = (struct symm_place_item){.size = lives->sizes[b],
                                                   .alignment = SYMM_PLAN_ALIGNMENT,
                                                   .pinned = -1,
                                                   .spans = copy,
                                                   .span_count = spans->count};
    }
    return true;
}

symm_status symm__lifetimes_cut(struct lifetimes *lives)
{
    struct cutter cutter = {.lives = lives};
    const size_t count = (size_t)lives->count + 1;
    uint64_t *sets = calloc(4 * lives->words, sizeof(*sets));
    bool good;

    cutter.sorted = calloc(count, sizeof(*cutter.sorted));
    cutter.spans = calloc(count, sizeof(*cutter.spans));
    good = sets && cutter.sorted && cutter.spans && sort_by_first(lives, cutter.sorted);
    if (good) {
        cutter.before = sets;
        cutter.uncovered = sets + lives->words;
        cutter.candidates = sets + 2 * lives->words;
        cutter.seen = sets + 3 * lives->words;
        good = cut(&cutter) && give_items(&cutter);
    }
    lives->clique_bytes = cutter.best;
    lives->clique_proved = !cutter.split;
    if (good && cutter.split)
        good = search_clique(lives);
    for (int b = 0; cutter.spans && b < lives->count; b++)
        free(cutter.spans[b].list);
    free(cutter.spans);
    free(cutter.sorted);
    free(cutter.extra);
    free(sets);
    return good ? SYMM_OK : symm__program_nomem(lives->order->program);
}
