/* SPDX-License-Identifier: MIT */
/*
 * lifetime.c - see lifetime.h. A buffer lives from its first write in a period to its last
 * access by any rank; one that is read before it is written carries its value around the
 * circle, so its life ends in the next period.
 *
 * Only the first write of the later buffer is looked at: every other access to it was
 * proved to come after that one when the barriers were set.
 */
#include "lifetime.h"

#include <stdlib.h>
#include <string.h>

#include "program_private.h"
#include "status.h"

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

/* Of the life that begins in period 0, on one rank's copy. */
static void collect_ends(const struct order *order, int buffer, int owner,
                         struct ends *ends)
{
    const int start = order->touch_start[buffer], end = order->touch_start[buffer + 1];
    const int first =
        order->first_touch[buffer] < 0 ? start : order->first_touch[buffer];

    ends->count = 0;
    for (int t = start; t < end; t++) {
        const struct access *access = &order->accesses[order->touch[t]];
        int period = order->program->loop && t < first, count;
        const int *ranks = symm__order_actors(order, access, owner, &count);
        for (int i = 0; i < count; i++)
            add_end(ends, symm__order_chain(order, ranks[i], access->op, period),
                    symm__order_moment(order, access->op, period, access->to));
    }
}

static symm_status find_ends(struct lifetimes *lives)
{
    const struct order *order = lives->order;
    const int owners = order->owner_count;
    struct ends ends;
    size_t total = 0, room = 0;
    bool fits = true;

    ends.at = calloc((size_t)order->chains + 1, sizeof(*ends.at));
    ends.chains = calloc((size_t)order->chains + 1, sizeof(*ends.chains));
    lives->last_start = symm__pool_alloc(
        &lives->pool, (size_t)lives->count * (size_t)owners + 1, sizeof(int));
    fits = ends.at && ends.chains && lives->last_start;
    for (int b = 0; b < lives->count && fits; b++) {
        for (int i = 0; i < owners && fits; i++) {
            collect_ends(order, b, order->owners[i], &ends);
            if (total + (size_t)ends.count > room) {
                struct last *grown;
                room = 2 * room + (size_t)ends.count + 1024;
                grown = realloc(lives->last, room * sizeof(*grown));
                fits = grown && room < INT32_MAX;
                lives->last = grown ? grown : lives->last;
            }
            for (int c = 0; c < ends.count && fits; c++) {
                int chain = ends.chains[c];
                lives->last[total++] = (struct last){chain, ends.at[chain]};
                ends.at[chain] = 0;
            }
            if (fits)
                lives->last_start[b * owners + i + 1] = (int)total;
        }
    }
    free(ends.at);
    free(ends.chains);
    return fits ? SYMM_OK : symm__program_nomem(order->program);
}

/* ---- Conflicts ------------------------------------------------------------------- */

bool symm__lives_before(const struct lifetimes *lives, int a, int b, int periods)
{
    const struct order *order = lives->order;
    const int owners = order->owner_count;

    if (lives->always[a] || order->first_touch[b] < 0)
        return false;
    if (!order->program->loop && order->first_touch[b] != order->touch_start[b])
        return false; /* its value was there before everything */
    for (int i = 0; i < owners; i++) {
        const struct mark *clock = symm__order_first(order, b, periods, i);
        const int end = lives->last_start[a * owners + i + 1];
        for (int l = lives->last_start[a * owners + i]; l < end; l++)
            if (clock[lives->last[l].chain].at < lives->last[l].at)
                return false;
    }
    return true;
}

static bool may_share(const struct lifetimes *lives, int a, int b)
{
    if (!lives->order->program->loop)
        return symm__lives_before(lives, a, b, 0) || symm__lives_before(lives, b, a, 0);
    if (symm__lives_before(lives, a, b, 0))
        return symm__lives_before(lives, b, a, 1);
    return symm__lives_before(lives, b, a, 0) && symm__lives_before(lives, a, b, 1);
}

static void set_conflict(struct lifetimes *lives, int a, int b)
{
    lives->conflicts[(size_t)a * lives->words + (size_t)b / 64] |= 1ULL << (b % 64);
    lives->conflicts[(size_t)b * lives->words + (size_t)a / 64] |= 1ULL << (a % 64);
}

/* Without a place in time: a buffer that no op touches; one that a loop never writes, for
 * it keeps its value. */
static void find_always(struct lifetimes *lives)
{
    const struct order *order = lives->order;

    for (int b = 0; b < lives->count; b++) {
        const int start = order->touch_start[b];
        const bool touched = order->touch_start[b + 1] > start;
        lives->always[b] =
            !touched || (order->first_touch[b] < 0 && order->program->loop);
    }
}

/* Kernels do not promise anything about an input and an output that overlap in part. */
static void keep_apart_in_ops(struct lifetimes *lives)
{
    const symm_program *program = lives->order->program;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (op->in >= 0 && op->out >= 0 && op->in != op->out)
            set_conflict(lives, op->in, op->out);
    }
}

symm_status symm__lifetimes_make(struct lifetimes *lives, const struct order *order)
{
    const symm_program *program = order->program;
    const size_t count = (size_t)program->buffer_count;
    symm_status status;

    *lives = (struct lifetimes){.order = order, .count = program->buffer_count};
    lives->words = count / 64 + 1;
    lives->conflicts =
        symm__pool_alloc(&lives->pool, count + 1, lives->words * sizeof(uint64_t));
    lives->always = symm__pool_alloc(&lives->pool, count + 1, sizeof(bool));
    lives->sizes = symm__pool_alloc(&lives->pool, count + 1, sizeof(int64_t));
    if (!lives->conflicts || !lives->always || !lives->sizes)
        status = symm__program_nomem(program);
    else
        status = find_ends(lives);
    if (status == SYMM_OK) {
        find_always(lives);
        for (int a = 0; a < lives->count; a++) {
            lives->sizes[a] = round_up(program->buffers[a].bytes);
            for (int b = 0; b < a; b++)
                if (!may_share(lives, a, b))
                    set_conflict(lives, a, b);
        }
        keep_apart_in_ops(lives);
        status = symm__lifetimes_cut(lives);
    }
    if (status != SYMM_OK)
        symm__lifetimes_finish(lives);
    return status;
}

void symm__lifetimes_finish(struct lifetimes *lives)
{
    free(lives->last);
    symm__pool_free(&lives->pool);
    *lives = (struct lifetimes){.count = 0};
}
