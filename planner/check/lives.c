/* SPDX-License-Identifier: MIT */
/*
 * lives.c - the accesses to each buffer, where its life begins and ends, and the
 * chains that accesses lie on.
 *
 * The bytes of a buffer that any op reads are its first ones: accesses begin at its first
 * byte. A write of all these, by an op that does not read the buffer, begins a life; the
 * first such write of a period is taken. Accesses before it in a loop belong to the life that
 * began in the previous period.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

static bool list_touches(struct check *c)
{
    const int buffers = c->program->buffer_count;
    struct check_access **next =
        symm__pool_alloc(&c->pool, (size_t)c->access_count + 1, sizeof(*next));

    c->lives = symm__pool_alloc(&c->pool, (size_t)buffers + 1, sizeof(*c->lives));
    if (c->pool.failed)
        return symm__check_nomem(c);
    for (int a = 0; a < c->access_count; a++)
        c->lives[c->accesses[a].buffer].touch_count++;
    for (int b = 0; b < buffers; b++) {
        c->lives[b].touch = next;
        next += c->lives[b].touch_count;
        c->lives[b].touch_count = 0;
    }
    for (int i = 0; i < c->op_count; i++)
        for (int k = 0; k < c->ops[i].access_count; k++) {
            struct check_life *life = &c->lives[c->ops[i].accesses[k].buffer];
            life->touch[life->touch_count++] = &c->ops[i].accesses[k];
        }
    return true;
}

/* Whether the op reads the buffer that it writes. */
static bool reads_too(const struct check *c, const struct check_access *write)
{
    const struct check_op *op = &c->ops[write->op];

    for (int k = 0; k < op->access_count; k++)
        if (!op->accesses[k].write && op->accesses[k].buffer == write->buffer)
            return true;
    return false;
}

static void find_begin(const struct check *c, struct check_life *life)
{
    size_t read = 0;

    for (int t = 0; t < life->touch_count; t++)
        if (!life->touch[t]->write && life->touch[t]->bytes > read)
            read = life->touch[t]->bytes;
    for (int t = 0; t < life->touch_count && !life->begin; t++) {
        struct check_access *access = life->touch[t];
        if (access->write && access->bytes >= read && !reads_too(c, access))
            life->begin = access;
    }
    life->always = life->touch_count == 0 || (!life->begin && c->program->loop);
    life->first =
        !c->program->loop && life->touch_count > 0 && life->begin != life->touch[0];
    if (life->first)
        life->begin = NULL; /* it holds a value before the first op */
}

static void find_seats(const struct check_life *life)
{
    int write = -1;

    for (int t = 0; t < 2 * life->touch_count; t++) {
        struct check_access *access = life->touch[t % life->touch_count];
        access->seat = t % life->touch_count;
        access->last_write = write;
        if (access->write)
            write = access->seat;
    }
}

/* ---- Turns ------------------------------------------------------------------------------- */

struct turn {
    int begin, buffer;
};

static int compare_turns(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static bool find_turns(struct check *c)
{
    const int buffers = c->program->buffer_count;
    struct turn *turns =
        symm__pool_alloc(&c->pool, (size_t)buffers + 1, sizeof(*turns));

    if (!turns)
        return symm__check_nomem(c);
    for (int b = 0; b < buffers; b++)
        turns[b] = (struct turn){c->lives[b].begin ? c->lives[b].begin->op : -1, b};
    qsort(turns, (size_t)buffers, sizeof(*turns), compare_turns);
    for (int t = 0; t < buffers; t++)
        c->lives[turns[t].buffer].turn = t;
    return true;
}

/* ---- Chains ------------------------------------------------------------------------------ */

static struct check_chain chain_of(const struct check *c,
                                   const struct check_access *access, int period)
{
    const symm_program_op *op = c->ops[access->op].op;
    const bool rooted = access->who == CHECK_READERS || access->who == CHECK_ROOT;

    return (struct check_chain){.who = access->who,
                                .partition =
                                    access->who == CHECK_SELF ? 0 : op->partition,
                                .parameter = access->who == CHECK_SENDER ? op->shift
                                             : rooted                    ? op->root
                                                                         : 0,
                                .lane = symm__check_lane(c, access->op, period),
                                .touched = true};
}

/* The index of a chain; it is added if it is new. -1: no memory. */
static int find_chain(struct check *c, struct check_chain wanted, int hint)
{
    for (int i = 0; i < c->chain_count; i++) {
        const int k = (hint + i) % c->chain_count;
        const struct check_chain *chain = &c->chains[k];
        if (chain->who == wanted.who && chain->partition == wanted.partition &&
            chain->parameter == wanted.parameter && chain->lane == wanted.lane)
            return k;
    }
    if (!symm__pool_grow(&c->pool, (void **)&c->chains, c->chain_count, &c->chain_room,
                         sizeof(*c->chains)))
        return -1;
    c->chains[c->chain_count] = wanted;
    return c->chain_count++;
}

static bool list_chains(struct check *c)
{
    int hint = 0;

    for (int a = 0; a < c->access_count; a++)
        for (int period = 0; period < 2; period++) {
            hint = find_chain(c, chain_of(c, &c->accesses[a], period), hint);
            if (hint < 0)
                return symm__check_nomem(c);
            c->accesses[a].chain[period] = hint;
        }
    for (int i = 0; i < c->op_count; i++)
        for (int period = 0; period < 2 && c->ops[i].planned; period++) {
            if (c->ops[i].planned->free_count == 0)
                continue;
            hint = find_chain(
                c, (struct check_chain){.lane = symm__check_lane(c, i, period)}, hint);
            if (hint < 0)
                return symm__check_nomem(c);
            c->ops[i].own[period] = hint;
        }
    return true;
}

/* Where the life that begins in period 0 ends. `at` and `chains` are room, by chain. */
static struct check_last *find_ends(struct check *c, struct check_life *life,
                                    struct check_last *next, uint32_t *at)
{
    bool begun = life->begin == NULL || !c->program->loop;

    life->last = next;
    for (int t = 0; t < life->touch_count; t++) {
        const struct check_access *access = life->touch[t];
        begun = begun || access == life->begin;
        const int chain = access->chain[!begun];
        const uint32_t over = symm__check_moment(c, access->op, !begun, access->to);
        if (at[chain] == 0)
            life->last[life->last_count++].chain = chain;
        if (over > at[chain])
            at[chain] = over;
    }
    for (int i = 0; i < life->last_count; i++) {
        life->last[i].at = at[life->last[i].chain];
        at[life->last[i].chain] = 0;
    }
    return next + life->last_count;
}

/* ---- All --------------------------------------------------------------------------------- */

static bool number_seats(struct check *c)
{
    c->halves = 1;
    c->seats = symm__pool_alloc(&c->pool, (size_t)c->op_count + 1, sizeof(*c->seats));
    if (!c->seats)
        return symm__check_nomem(c);
    for (int i = 0; i < c->op_count; i++) {
        const symm_program_op *op = c->ops[i].op;
        c->seats[i] = c->stream_seats[op->stream];
        c->stream_seats[op->stream] += op->kind != SYMM_PROGRAM_DEPEND;
        if (op->early_start)
            c->halves = 2;
    }
    c->lanes = c->program->stream_count * c->halves;
    return true;
}

bool symm__check_lives(struct check *c)
{
    struct check_last *next;
    uint32_t *at;

    if (!number_seats(c) || !list_touches(c) || !list_chains(c))
        return false;
    for (int b = 0; b < c->program->buffer_count; b++) {
        find_begin(c, &c->lives[b]);
        find_seats(&c->lives[b]);
    }
    at = symm__pool_alloc(&c->pool, (size_t)c->chain_count + 1, sizeof(*at));
    next = symm__pool_alloc(&c->pool, (size_t)c->access_count + 1, sizeof(*next));
    if (!at || !next)
        return symm__check_nomem(c);
    for (int b = 0; b < c->program->buffer_count; b++)
        next = find_ends(c, &c->lives[b], next, at);
    return find_turns(c);
}
