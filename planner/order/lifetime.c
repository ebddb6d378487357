/* SPDX-License-Identifier: MIT */
/*
 * lifetime.c - see lifetime.h. A buffer lives from its first write in a period to its last
 * access by any rank; one that is read before it is written carries its value around the
 * circle, so its life ends in the next period.
 *
 * Only the first write of the later buffer counts: the barriers order every other access to
 * it after that write.
 */
#include "order/lifetime.h"

#include <string.h>

#include "model/program_private.h"
#include "util/status.h"

static int64_t round_up(size_t bytes)
{
    return (int64_t)((bytes + SYMM_PLAN_ALIGNMENT - 1) / SYMM_PLAN_ALIGNMENT *
                     SYMM_PLAN_ALIGNMENT);
}

/* ---- The end of a life --------------------------------------------------------------- */

struct ends {
    uint32_t *at; /* by chain */
    int *chains, count;
};

static void add_end(struct ends *ends, int chain, uint32_t moment)
{
    if (ends->at[chain] == 0)
        ends->chains[ends->count++] = chain;
    if (ends->at[chain] < moment)
        ends->at[chain] = moment;
}

static int first_of(const struct order *order, int buffer)
{
    const int first = order->first_touch[buffer];

    return first < 0 ? order->touch_start[buffer] : first;
}

/* Of the life that begins in period 0. */
static void collect_ends(const struct order *order, int buffer, struct ends *ends)
{
    const int first = first_of(order, buffer);

    ends->count = 0;
    for (int t = order->touch_start[buffer]; t < order->touch_start[buffer + 1]; t++) {
        const struct access *access = &order->accesses[order->touch[t]];
        const int period = order->program->loop && t < first;
        const int lane = symm__order_lane(order, access->op, period);
        add_end(ends, order->chain_of[access->relation * order->lanes + lane],
                symm__order_moment(order, access->op, period, access->to));
    }
}

static bool find_ends(struct lifetimes *lives)
{
    const struct order *order = lives->order;
    const size_t chains = (size_t)order->chain_count + 1;
    const size_t accesses = (size_t)order->access_start[order->program->op_count] + 1;
    struct pool *pool = &lives->pool;
    struct ends ends = {symm__pool_alloc(pool, chains, sizeof(uint32_t)),
                        symm__pool_alloc(pool, chains, sizeof(int)), 0};
    int total = 0;

    lives->last_start = symm__pool_alloc(pool, (size_t)lives->count + 1, sizeof(int));
    lives->last = symm__pool_alloc(pool, accesses, sizeof(*lives->last));
    for (int b = 0; b < lives->count && !pool->failed; b++) {
        collect_ends(order, b, &ends);
        for (int c = 0; c < ends.count; c++) {
            int chain = ends.chains[c];
            lives->last[total++] = (struct last){chain, ends.at[chain]};
            ends.at[chain] = 0;
        }
        lives->last_start[b + 1] = total;
    }
    return !pool->failed;
}

/* ---- The beginning -------------------------------------------------------------------- */

/* Whether other buffers can precede it; not if it holds a value before the first op. */
static bool begins(const struct lifetimes *lives, int buffer)
{
    const struct order *order = lives->order;
    const int first = order->first_touch[buffer];

    return first >= 0 && (lives->loop || first == order->touch_start[buffer]);
}

static const struct access *first_access(const struct lifetimes *lives, int buffer)
{
    const struct order *order = lives->order;

    return &order->accesses[order->touch[order->first_touch[buffer]]];
}

/* Buffers that no op touches live always, and those that a loop never writes: they keep their
 * values. first_in: kernels promise nothing about an in and an out that overlap. */
static void find_firsts(struct lifetimes *lives)
{
    const struct order *order = lives->order;

    for (int b = 0; b < lives->count; b++) {
        const bool touched = order->touch_start[b + 1] > order->touch_start[b];
        lives->always[b] = !touched || (order->first_touch[b] < 0 && lives->loop);
        lives->sizes[b] = round_up(order->program->buffers[b].bytes);
        lives->first_in[b] = -1;
        if (begins(lives, b)) {
            const symm_program_op *op =
                &order->program->ops[first_access(lives, b)->op];
            lives->first_in[b] = op->kind == SYMM_PROGRAM_WRITE ? -1 : op->in;
        }
    }
}

/* The place in the order of issue of the op that begins its life; -1: there is none. */
static int turn_key(const struct lifetimes *lives, int buffer)
{
    return begins(lives, buffer)
               ? lives->order->rank_of_op[first_access(lives, buffer)->op]
               : -1;
}

/* By counting: first the buffers that no op begins, then by the op that begins their lives. */
static bool sort_turns(struct lifetimes *lives)
{
    const int ops = lives->order->program->op_count;
    int *start = symm__pool_alloc(&lives->pool, (size_t)ops + 3, sizeof(*start));

    if (!start)
        return false;
    for (int b = 0; b < lives->count; b++)
        start[turn_key(lives, b) + 2]++;
    for (int k = 0; k <= ops + 1; k++)
        start[k + 1] += start[k];
    for (int b = 0; b < lives->count; b++) {
        lives->turn[b] = start[turn_key(lives, b) + 1]++;
        lives->by_turn[lives->turn[b]] = b;
    }
    return true;
}

/* ---- Tracks --------------------------------------------------------------------------- */

struct latest {
    int track, buffer; /* the last one that was added; track -1: none */
};

static bool comes_after(const struct lifetimes *lives, int before, int after)
{
    const struct order *order = lives->order;

    for (int period = 0; period < (lives->loop ? 2 : 1); period++) {
        const uint32_t *a = symm__order_first(order, before, period);
        const uint32_t *b = symm__order_first(order, after, period);
        for (int c = 0; c < order->chain_count; c++)
            if (b[c] < a[c])
                return false;
    }
    return true;
}

/* Where a buffer's first access may begin; each has tracks of its own. */
enum first { FIRST_PASS, FIRST_MIDDLE, FIRST_REST, FIRSTS };

static enum first kind_of_first(const struct access *access)
{
    return access->from == POINT_MIDDLE ? FIRST_MIDDLE
           : access->from == POINT_REST ? FIRST_REST
                                        : FIRST_PASS;
}

static bool find_tracks(struct lifetimes *lives)
{
    const struct order *order = lives->order;
    const size_t room =
        (size_t)order->pairs.relation_count * (size_t)order->lanes * FIRSTS + 1;
    struct latest *latest = symm__pool_alloc(&lives->pool, room, sizeof(*latest));

    if (!latest)
        return false;
    for (size_t i = 0; i < room; i++)
        latest[i] = (struct latest){-1, -1};
    for (int t = 0; t < lives->count; t++) {
        const int b = lives->by_turn[t];
        lives->track[b] = -1;
        if (!begins(lives, b))
            continue;
        const struct access *access = first_access(lives, b);
        struct latest *at = &latest[(access->relation * order->lanes +
                                     symm__order_lane(order, access->op, 0)) *
                                        (int)FIRSTS +
                                    (int)kind_of_first(access)];
        if (at->track < 0 || !comes_after(lives, at->buffer, b))
            *at = (struct latest){lives->tracks++, -1};
        lives->seat[b] = at->buffer < 0 ? 0 : lives->seat[at->buffer] + 1;
        lives->track[b] = at->track;
        at->buffer = b;
    }
    return true;
}

static bool list_tracks(struct lifetimes *lives)
{
    const size_t count = (size_t)lives->count + 1;

    lives->track_start =
        symm__pool_alloc(&lives->pool, (size_t)lives->tracks + 1, sizeof(int));
    lives->on_track = symm__pool_alloc(&lives->pool, count, sizeof(int));
    if (!lives->track_start || !lives->on_track)
        return false;
    for (int b = 0; b < lives->count; b++)
        if (lives->track[b] >= 0)
            lives->track_start[lives->track[b] + 1]++;
    for (int t = 0; t < lives->tracks; t++)
        lives->track_start[t + 1] += lives->track_start[t];
    for (int b = 0; b < lives->count; b++)
        if (lives->track[b] >= 0)
            lives->on_track[lives->track_start[lives->track[b]] + lives->seat[b]] = b;
    return true;
}

/* The first seat of a track at which, `periods` periods later, the buffer is over. */
static int find_over(const struct lifetimes *lives, int buffer, int track, int periods)
{
    const int *on = lives->on_track + lives->track_start[track];
    int low = 0, high = lives->track_start[track + 1] - lives->track_start[track];

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (symm__lives_over(lives, buffer,
                             symm__order_first(lives->order, on[middle], periods)))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool find_overs(struct lifetimes *lives)
{
    const size_t tracks = (size_t)lives->tracks;

    for (int period = 0; period < (lives->loop ? 2 : 1); period++) {
        lives->over[period] = symm__pool_alloc(&lives->pool, (size_t)lives->count + 1,
                                               (tracks + 1) * sizeof(int));
        if (!lives->over[period])
            return false;
        for (int b = 0; b < lives->count; b++)
            for (int t = 0; t < lives->tracks && !lives->always[b]; t++)
                lives->over[period][(size_t)b * tracks + (size_t)t] =
                    find_over(lives, b, t, period);
    }
    return true;
}

void symm__lives_at_seats(const struct lifetimes *lives, int track, const bool *fits,
                          int64_t *live)
{
    const int *buffers = lives->on_track + lives->track_start[track];
    const int count = lives->track_start[track + 1] - lives->track_start[track];

    memset(live, 0, ((size_t)count + 1) * sizeof(*live));
    for (int i = 0; i < count; i++) {
        const size_t at = (size_t)buffers[i] * (size_t)lives->tracks + (size_t)track;
        const int64_t bytes = fits && !fits[i] ? 0 : lives->sizes[buffers[i]];
        const int over = lives->over[0][at];
        live[i] += bytes;
        live[over > i ? over : i + 1] -= bytes;
        if (lives->loop) { /* into the next period */
            live[0] += bytes;
            live[lives->over[1][at] < i ? lives->over[1][at] : i] -= bytes;
        }
    }
    for (int i = 1; i < count; i++)
        live[i] += live[i - 1];
}

/* ---- All ------------------------------------------------------------------------------ */

static bool make(struct lifetimes *lives)
{
    const size_t count = (size_t)lives->count + 1;

    lives->always = symm__pool_alloc(&lives->pool, count, sizeof(bool));
    lives->sizes = symm__pool_alloc(&lives->pool, count, sizeof(int64_t));
    lives->first_in = symm__pool_alloc(&lives->pool, count, sizeof(int));
    lives->turn = symm__pool_alloc(&lives->pool, count, sizeof(int));
    lives->by_turn = symm__pool_alloc(&lives->pool, count, sizeof(int));
    lives->track = symm__pool_alloc(&lives->pool, count, sizeof(int));
    lives->seat = symm__pool_alloc(&lives->pool, count, sizeof(int));
    if (lives->pool.failed || !find_ends(lives))
        return false;
    find_firsts(lives);
    return sort_turns(lives) && find_tracks(lives) && list_tracks(lives) &&
           find_overs(lives);
}

symm_status symm__lifetimes_make(struct lifetimes *lives, const struct order *order)
{
    *lives = (struct lifetimes){.order = order,
                                .loop = order->program->loop,
                                .count = order->program->buffer_count};
    int64_t total = 0;

    if (!make(lives)) {
        symm__lifetimes_finish(lives);
        return symm__program_nomem(order->program);
    }
    for (int b = 0; b < lives->count; b++)
        if (lives->sizes[b] < 0 ||
            __builtin_add_overflow(total, lives->sizes[b], &total)) {
            symm__lifetimes_finish(lives);
            return symm__fail(
                SYMM_ERR_OVERFLOW,
                "program %s: its %d buffers have more than 2^63 bytes in all",
                order->program->name, order->program->buffer_count);
        }
    return SYMM_OK;
}

void symm__lifetimes_finish(struct lifetimes *lives)
{
    symm__pool_free(&lives->pool);
    *lives = (struct lifetimes){.count = 0};
}
