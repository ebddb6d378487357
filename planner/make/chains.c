/* SPDX-License-Identifier: MIT */
/*
 * chains.c - see chains.h. First fit in several orders, the same with sizes rounded up to
 * classes, and a search for a better order.
 *
 * The arena is a row of segments, each with the buffers that lie there in the order of their
 * turns. A buffer may enter a segment if its predecessor in that list is over before its
 * first write, and if it is over before its successor's; around the circle too. Neighbours
 * are enough: each life is over before the next begins. So may_enter searches a sorted list
 * and compares two pairs. A segment that no buffer at all may enter any more is closed (gaps.h),
 * and closed neighbours are one segment: where thousands of buffers live at once, they would all
 * be looked at for each buffer.
 */
#include "make/chains.h"

#include <stdlib.h>
#include <string.h>

#include "make/gaps.h"
#include "model/program_private.h"
#include "util/clock.h"

#define ORDERS 8
/* Calls of may_enter: in the fixed orders, the first of which has no limit; in the search. */
#define MAX_ORDER_STEPS 200000000
#define MAX_STEPS       80000000
#define MAX_TRIALS      50000

struct segment {
    int64_t low, high;
    int *turns; /* sorted */
    int count, room;
    int open; /* between how many neighbours in the list, around the circle, others may come */
    bool closed; /* no buffer may enter; the list is then out of use */
};

struct arena {
    const struct lifetimes *lives;
    struct gaps gaps;
    const int64_t *sizes; /* by buffer: the bytes reserved; lives->sizes, or more */
    struct segment *segments;
    int count, room;
    int64_t steps; /* calls of may_enter */
    int64_t most_steps; /* after which an order is given up */
    int64_t *offsets;
};

static int64_t top_of(const struct arena *arena)
{
    return arena->count ? arena->segments[arena->count - 1].high : 0;
}

/* ---- Segments ---------------------------------------------------------------------------- */

/* How many of the segment's turns are below `turn`. */
static int find_turn(const struct segment *segment, int turn)
{
    int low = 0, high = segment->count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (segment->turns[middle] < turn)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool may_enter(struct arena *arena, const struct segment *segment, int buffer)
{
    const struct lifetimes *lives = arena->lives;
    const int count = segment->count;
    int at, other;

    arena->steps++;
    if (count == 0)
        return true;
    if (segment->closed || lives->always[buffer])
        return false;
    at = find_turn(segment, lives->turn[buffer]);
    if (at > 0 || lives->loop) {
        other = lives->by_turn[segment->turns[at > 0 ? at - 1 : count - 1]];
        if (!symm__lives_before(lives, other, buffer, at == 0))
            return false;
    }
    if (at < count || lives->loop) {
        other = lives->by_turn[segment->turns[at < count ? at : 0]];
        if (!symm__lives_before(lives, buffer, other, at == count))
            return false;
    }
    return true;
}

/* Counts the gaps that open and close where a buffer enters at `at`. */
static void count_gaps(const struct arena *arena, struct segment *segment, int buffer,
                       int at)
{
    const struct lifetimes *lives = arena->lives;
    const struct gaps *gaps = &arena->gaps;
    const int count = segment->count;
    const bool first = at == 0, last = at == count;
    int before = -1, after = -1;

    if (count == 0 && lives->loop)
        before = after = buffer;
    if (count > 0 && (!first || lives->loop))
        before = lives->by_turn[segment->turns[first ? count - 1 : at - 1]];
    if (count > 0 && (!last || lives->loop))
        after = lives->by_turn[segment->turns[last ? 0 : at]];
    if (count > 0)
        segment->open -= symm__gap_is_open(gaps, before, after, first || last);
    if (count > 0 || !lives->loop)
        segment->open += symm__gap_is_open(gaps, before, buffer, first);
    segment->open += symm__gap_is_open(gaps, buffer, after, last);
}

static bool enter(struct arena *arena, struct segment *segment, int buffer)
{
    const int turn = arena->lives->turn[buffer];
    const int at = find_turn(segment, turn);
    const bool always = arena->lives->always[buffer];

    if (!always)
        count_gaps(arena, segment, buffer, at);
    if (!symm__grow((void **)&segment->turns, segment->count, &segment->room,
                    sizeof(int)))
        return false;
    memmove(segment->turns + at + 1, segment->turns + at,
            (size_t)(segment->count - at) * sizeof(int));
    segment->turns[at] = turn;
    segment->count++;
    segment->closed = always || segment->open == 0;
    return true;
}

/* Room for a new segment at `index`, empty. */
static struct segment *open_segment(struct arena *arena, int index)
{
    if (!symm__grow((void **)&arena->segments, arena->count, &arena->room,
                    sizeof(*arena->segments)))
        return NULL;
    memmove(arena->segments + index + 1, arena->segments + index,
            (size_t)(arena->count - index) * sizeof(*arena->segments));
    arena->count++;
    arena->segments[index] = (struct segment){.low = 0};
    return &arena->segments[index];
}

/* Makes the segment at `index` end at `address`, which lies within it. */
static bool split(struct arena *arena, int index, int64_t address)
{
    struct segment *upper = open_segment(arena, index + 1);
    struct segment *lower = upper ? upper - 1 : NULL;

    if (!upper)
        return false;
    *upper = (struct segment){.low = address,
                              .high = lower->high,
                              .count = lower->count,
                              .room = lower->count + 4,
                              .open = lower->open,
                              .closed = lower->closed};
    upper->turns = malloc((size_t)upper->room * sizeof(int));
    if (!upper->turns) {
        *upper = (struct segment){.low = address, .high = lower->high};
        return false;
    }
    memcpy(upper->turns, lower->turns, (size_t)lower->count * sizeof(int));
    lower->high = address;
    return true;
}

/* Makes closed neighbours in [from, to] one segment. */
static void merge_closed(struct arena *arena, int from, int to)
{
    struct segment *segments = arena->segments;
    int kept = from;

    to = to < arena->count ? to : arena->count - 1;
    for (int i = from + 1; i <= to; i++) {
        if (segments[kept].closed && segments[i].closed) {
            segments[kept].high = segments[i].high;
            free(segments[i].turns);
        } else if (++kept != i) {
            segments[kept] = segments[i];
        }
    }
    if (kept == to)
        return;
    memmove(segments + kept + 1, segments + to + 1,
            (size_t)(arena->count - to - 1) * sizeof(*segments));
    arena->count -= to - kept;
}

/* The buffer takes [offset, offset + size); `index` is the segment that begins there. */
static bool settle(struct arena *arena, int buffer, int index, int64_t offset)
{
    const int64_t end = offset + arena->sizes[buffer];
    const int first = index;

    arena->offsets[buffer] = offset;
    while (offset < end) {
        if (index == arena->count) {
            struct segment *fresh = open_segment(arena, index);
            if (!fresh)
                return false;
            fresh->low = offset;
            fresh->high = end;
        } else if (arena->segments[index].high > end && !split(arena, index, end)) {
            return false;
        }
        if (!enter(arena, &arena->segments[index], buffer))
            return false;
        offset = arena->segments[index++].high;
    }
    merge_closed(arena, first > 0 ? first - 1 : 0, index);
    return true;
}

/* Takes the lowest place. *beyond: that place would end above `limit`, and is not taken. */
static bool place(struct arena *arena, int buffer, int64_t limit, bool *beyond)
{
    const int64_t size = arena->sizes[buffer];
    int begin = 0;

    *beyond = false;
    if (size == 0) {
        arena->offsets[buffer] = 0;
        return true;
    }
    for (int i = 0; i < arena->count; i++) {
        const struct segment *segment = &arena->segments[i];
        if (!may_enter(arena, segment, buffer))
            begin = i + 1;
        else if (segment->high - arena->segments[begin].low >= size)
            return settle(arena, buffer, begin, arena->segments[begin].low);
    }
    const int64_t low =
        begin < arena->count ? arena->segments[begin].low : top_of(arena);
    *beyond = low + size > limit;
    return *beyond || settle(arena, buffer, begin, low);
}

static void clear(struct arena *arena)
{
    for (int i = 0; i < arena->count; i++)
        free(arena->segments[i].turns);
    arena->count = 0;
}

/* Places all in this order. *peak is INT64_MAX if a buffer would end above the limit, or if that
 * takes too many steps. */
static bool fill(struct arena *arena, const int *order, int64_t limit, int64_t *peak)
{
    bool beyond = false;

    clear(arena);
    for (int i = 0; i < arena->lives->count && !beyond; i++) {
        if (!place(arena, order[i], limit, &beyond))
            return false;
        beyond = beyond || arena->steps > arena->most_steps;
    }
    *peak = beyond ? INT64_MAX : top_of(arena);
    return true;
}

/* ---- Orders ------------------------------------------------------------------------------ */

struct key {
    double first, second; /* the larger, the earlier */
    int turn, buffer;     /* the lower, the earlier */
};

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;

    if (a->first < b->first || a->first > b->first)
        return a->first < b->first ? 1 : -1;
    if (a->second < b->second || a->second > b->second)
        return a->second < b->second ? 1 : -1;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* What conflicts with each buffer: how many, and how many bytes. */
struct weights {
    double *count, *bytes;
    double *begun,
        *begun_bytes; /* room: by seat of one track, sums from the first on */
    int64_t *live;    /* room: by seat of one track */
    int *turn;        /* by buffer: its place if each track begins at its cut */
};

/*
 * Of the buffers on track `on`, those that begin before X is over and are not over before X
 * begins. The former are a prefix of that track; the latter are counted by the seats of X's
 * track.
 */
static void weigh_pair(const struct lifetimes *lives, int track, int on,
                       struct weights *weights)
{
    const int *mine = lives->on_track + lives->track_start[track];
    const int *others = lives->on_track + lives->track_start[on];
    const int count = lives->track_start[track + 1] - lives->track_start[track];
    const int other_count = lives->track_start[on + 1] - lives->track_start[on];
    double over = 0, over_bytes = 0;
    double *prefix = weights->begun_bytes, *ends = weights->begun;

    /* prefix: bytes of the first i of `others`. ends: bytes that are over at my seat. */
    memset(ends, 0, 2 * ((size_t)count + 1) * sizeof(*ends));
    prefix[0] = 0;
    for (int i = 0; i < other_count; i++) {
        const int seat =
            lives->over[0][(size_t)others[i] * (size_t)lives->tracks + (size_t)track];
        const double bytes = (double)lives->sizes[others[i]];
        prefix[i + 1] = prefix[i] + bytes;
        ends[2 * seat] += 1;
        ends[2 * seat + 1] += bytes;
    }
    for (int i = 0; i < count; i++) {
        const size_t at = (size_t)mine[i] * (size_t)lives->tracks + (size_t)on;
        const int until = lives->over[0][at];
        over += ends[2 * i];
        over_bytes += ends[2 * i + 1];
        weights->count[mine[i]] += until - over;
        weights->bytes[mine[i]] += prefix[until] - over_bytes;
        if (lives->loop) {
            weights->count[mine[i]] += lives->over[1][at];
            weights->bytes[mine[i]] += prefix[lives->over[1][at]];
        }
    }
}

/* The seat of a track at whose first write the track's other buffers have the fewest live
 * bytes. live[count + 1] is written. */
static int find_cut(const struct lifetimes *lives, int track, int64_t *live)
{
    const int *buffers = lives->on_track + lives->track_start[track];
    const int count = lives->track_start[track + 1] - lives->track_start[track];
    int cut = 0;

    symm__lives_at_seats(lives, track, NULL, live);
    for (int i = 0; i < count; i++) {
        live[i] -= lives->sizes[buffers[i]];
        if (live[i] < live[cut])
            cut = i;
    }
    return cut;
}

/*
 * Turns that begin at the cut of each track and go around the circle from there. First fit
 * in the order of turns places the first buffers freely; the last ones must avoid those at
 * the beginning of the period. So each track begins where the fewest bytes are live.
 */
static void turn_tracks(const struct lifetimes *lives, struct weights *weights)
{
    memcpy(weights->turn, lives->turn, (size_t)lives->count * sizeof(int));
    for (int t = 0; t < lives->tracks; t++) {
        const int begin = lives->track_start[t], end = lives->track_start[t + 1];
        const int cut = begin == end ? 0 : find_cut(lives, t, weights->live);
        const int first = begin == end ? 0 : lives->turn[lives->on_track[begin + cut]];
        for (int i = begin; i < end; i++) {
            int *turn = &weights->turn[lives->on_track[i]];
            *turn -= *turn < first ? first - lives->count : first;
        }
    }
}

static bool weigh(struct pool *pool, const struct lifetimes *lives,
                  struct weights *weights)
{
    const size_t count = (size_t)lives->count + 1;

    weights->count = symm__pool_alloc(pool, count, sizeof(double));
    weights->bytes = symm__pool_alloc(pool, count, sizeof(double));
    weights->begun = symm__pool_alloc(pool, 2 * count + 2, sizeof(double));
    weights->begun_bytes = symm__pool_alloc(pool, count + 1, sizeof(double));
    weights->live = symm__pool_alloc(pool, count, sizeof(int64_t));
    weights->turn = symm__pool_alloc(pool, count, sizeof(int));
    if (pool->failed)
        return false;
    for (int t = 0; t < lives->tracks; t++)
        for (int on = 0; on < lives->tracks; on++)
            weigh_pair(lives, t, on, weights);
    for (int b = 0; b < lives->count; b++)
        if (lives->track[b] < 0) /* lives from the beginning, or always */
            weights->count[b] = weights->bytes[b] = 1e300;
    turn_tracks(lives, weights);
    return true;
}

static void sort_keys(struct key *keys, int count, int *order)
{
    qsort(keys, (size_t)count, sizeof(*keys), compare_keys);
    for (int i = 0; i < count; i++)
        order[i] = keys[i].buffer;
}

static void make_order(const struct lifetimes *lives, const struct weights *weights,
                       const int64_t *sizes, int which, struct key *keys, int *order)
{
    for (int b = 0; b < lives->count; b++) {
        const double size = (double)sizes[b], always = lives->always[b];
        const double count = weights->count[b], bytes = weights->bytes[b];
        const struct {
            double first, second;
            const int *turn;
        } orders[ORDERS] = {
            {size, 0, lives->turn},         {size * (count + 1), 0, lives->turn},
            {size, count, lives->turn},     {bytes, size, lives->turn},
            {size * bytes, 0, lives->turn}, {always, 0, lives->turn},
            {size, 0, weights->turn},       {always, 0, weights->turn}};

        keys[b] = (struct key){orders[which].first, orders[which].second,
                               orders[which].turn[b], b};
    }
    sort_keys(keys, lives->count, order);
}

/* ---- Classes of size --------------------------------------------------------------------- */

static int compare_sizes(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return a < b ? 1 : a > b ? -1 : 0;
}

/*
 * Rounds each size up to the largest of its class, so that buffers of nearly one size can
 * take each other's places. A class begins at the largest size that no class has yet and
 * ends above 7/8 of it. *changed: how many buffers got more than they need. NULL: no memory.
 */
static int64_t *round_up_sizes(struct pool *pool, const struct lifetimes *lives,
                               int *changed)
{
    const size_t count = (size_t)lives->count;
    int64_t *tops = symm__pool_alloc(pool, count + 1, sizeof(*tops));
    int64_t *rounded = symm__pool_alloc(pool, count + 1, sizeof(*rounded));
    int classes = 0;

    *changed = 0;
    if (!tops || !rounded)
        return NULL;
    memcpy(tops, lives->sizes, count * sizeof(*tops));
    qsort(tops, count, sizeof(*tops), compare_sizes);
    for (int i = 0; i < lives->count; i++)
        if (classes == 0 || tops[i] <= tops[classes - 1] - tops[classes - 1] / 8)
            tops[classes++] = tops[i];
    for (int b = 0; b < lives->count; b++) {
        /* The last class that begins at the size or above. */
        int low = 0, high = classes;
        while (high - low > 1) {
            const int middle = low + (high - low) / 2;
            if (tops[middle] >= lives->sizes[b])
                low = middle;
            else
                high = middle;
        }
        rounded[b] = tops[low];
        *changed += rounded[b] != lives->sizes[b];
    }
    return rounded;
}

/* ---- Search ------------------------------------------------------------------------------ */

struct placer {
    struct pool pool;
    struct arena arena;
    const struct place_effort *effort;
    int *order, *best_order;
    struct key *keys; /* room */
    int64_t *best_offsets;
    int64_t best;
    double start, told;
    uint64_t random;
    bool cut_short;
};

static bool keep_if_better(struct placer *placer, int64_t peak, bool or_equal)
{
    const size_t count = (size_t)placer->arena.lives->count;

    if (peak > placer->best || (peak == placer->best && !or_equal))
        return false;
    placer->best = peak;
    memcpy(placer->best_order, placer->order, count * sizeof(int));
    memcpy(placer->best_offsets, placer->arena.offsets, count * sizeof(int64_t));
    return true;
}

/* Whether another of the fixed orders is tried. The first one is not given up. */
static bool try_another(struct placer *placer)
{
    placer->arena.most_steps = placer->best == INT64_MAX ? INT64_MAX : MAX_ORDER_STEPS;
    return placer->best > placer->effort->bound &&
           placer->arena.steps < placer->arena.most_steps;
}

static bool try_orders(struct placer *placer, const struct weights *weights)
{
    const struct lifetimes *lives = placer->arena.lives;
    bool good = true;
    int64_t peak;

    for (int i = 0; i < ORDERS && good && try_another(placer); i++) {
        make_order(lives, weights, lives->sizes, i, placer->keys, placer->order);
        good = fill(&placer->arena, placer->order, placer->best - 1, &peak);
        if (good)
            keep_if_better(placer, peak, false);
    }
    return good;
}

/* The buffers in the order of their offsets. */
static void order_offsets(struct placer *placer)
{
    const int count = placer->arena.lives->count;

    for (int i = 0; i < count; i++) {
        const int b = placer->order[i];
        placer->keys[i] = (struct key){
            .first = -(double)placer->arena.offsets[b], .turn = i, .buffer = b};
    }
    sort_keys(placer->keys, count, placer->order);
}

/*
 * The orders with rounded sizes. Then first fit with the sizes that are needed, in the order
 * of the offsets found: no buffer gets a higher offset, since the conflicting ones placed
 * before it end below its offset.
 */
static bool try_rounded(struct placer *placer, const struct weights *weights)
{
    const struct lifetimes *lives = placer->arena.lives;
    int64_t peak = 0;
    int changed;
    const int64_t *rounded = round_up_sizes(&placer->pool, lives, &changed);
    bool good = rounded != NULL;

    for (int i = 0;
         i < ORDERS && good && changed > 0 && try_another(placer) &&
         placer->best < INT64_MAX / 4; /* sums of two such sizes do not overflow */
         i++) {
        placer->arena.sizes = rounded;
        make_order(lives, weights, rounded, i, placer->keys, placer->order);
        good =
            fill(&placer->arena, placer->order, placer->best + placer->best / 8, &peak);
        placer->arena.sizes = lives->sizes;
        if (!good || peak == INT64_MAX)
            continue;
        order_offsets(placer);
        good = fill(&placer->arena, placer->order, placer->best - 1, &peak);
        if (good)
            keep_if_better(placer, peak, false);
    }
    return good;
}

static bool try_all(struct placer *placer)
{
    struct weights weights;

    return weigh(&placer->pool, placer->arena.lives, &weights) &&
           symm__gaps_make(&placer->arena.gaps, &placer->pool, placer->arena.lives) &&
           try_orders(placer, &weights) && try_rounded(placer, &weights);
}

static uint64_t draw(struct placer *placer, uint64_t below)
{
    placer->random ^= placer->random << 13;
    placer->random ^= placer->random >> 7;
    placer->random ^= placer->random << 17;
    return placer->random % below;
}

/* Moves one of the buffers that reach the peak to an earlier place in the order. */
static void move_one(struct placer *placer)
{
    const struct lifetimes *lives = placer->arena.lives;
    const int count = lives->count;
    int at = -1, to, buffer;
    uint64_t seen = 0;

    memcpy(placer->order, placer->best_order, (size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        const int b = placer->order[i];
        if (lives->sizes[b] > 0 &&
            placer->best_offsets[b] + lives->sizes[b] == placer->best &&
            draw(placer, ++seen) == 0)
            at = i;
    }
    if (at < 0 || draw(placer, 4) == 0)
        at = (int)draw(placer, (uint64_t)count);
    to = (int)draw(placer, (uint64_t)at + 1);
    buffer = placer->order[at];
    memmove(placer->order + to + 1, placer->order + to,
            (size_t)(at - to) * sizeof(int));
    placer->order[to] = buffer;
}

/* false: the time limit has passed, or progress returned false. */
static bool go_on(struct placer *placer)
{
    const struct place_effort *effort = placer->effort;
    const double seconds = symm__now() - placer->start;

    if (seconds > effort->time_limit)
        placer->cut_short = true;
    if (effort->progress && seconds - placer->told >= 1) {
        placer->told = seconds;
        if (!effort->progress(effort->arg, seconds, (size_t)placer->best,
                              (size_t)effort->bound))
            placer->cut_short = true;
    }
    return !placer->cut_short;
}

static bool improve(struct placer *placer)
{
    int64_t peak;
    bool good = true;

    placer->arena.steps = 0;
    placer->arena.most_steps = MAX_STEPS;
    for (int i = 0; i < MAX_TRIALS && good && placer->arena.steps < MAX_STEPS &&
                    placer->best > placer->effort->bound && go_on(placer);
         i++) {
        move_one(placer);
        good = fill(&placer->arena, placer->order, placer->best, &peak);
        if (good)
            keep_if_better(placer, peak, true);
    }
    return good;
}

symm_status symm__pack_chains(const struct lifetimes *lives,
                              const struct place_effort *effort, int64_t *offsets,
                              int64_t *arena, bool *cut_short)
{
    const size_t count = (size_t)lives->count + 1;
    struct placer placer = {.arena = {.lives = lives, .sizes = lives->sizes},
                            .effort = effort,
                            .best_offsets = offsets,
                            .best = INT64_MAX,
                            .start = symm__now(),
                            .random = 0x9e3779b97f4a7c15ULL};
    bool good;

    placer.order = symm__pool_alloc(&placer.pool, count, sizeof(int));
    placer.best_order = symm__pool_alloc(&placer.pool, count, sizeof(int));
    placer.keys = symm__pool_alloc(&placer.pool, count, sizeof(*placer.keys));
    placer.arena.offsets = symm__pool_alloc(&placer.pool, count, sizeof(int64_t));
    good = !placer.pool.failed && try_all(&placer) &&
           (!effort->search || lives->count == 0 || improve(&placer));
    clear(&placer.arena);
    free(placer.arena.segments);
    symm__pool_free(&placer.pool);
    *arena = lives->count ? placer.best : 0;
    *cut_short = placer.cut_short;
    return good ? SYMM_OK : symm__program_nomem(lives->order->program);
}
