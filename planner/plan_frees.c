/* SPDX-License-Identifier: MIT */
/*
 * plan_frees.c - after which op's end a buffer's bytes are nobody's: what a run-time check
 * may overwrite there, and what shows an access that comes too late.
 *
 * Guarantees: an op that is said to free a buffer ends, on each rank, after all accesses to
 * that rank's copy by any rank, and before the next write to these bytes, by the buffer's
 * own next life or by another buffer's. It is the first such op in the order of issue; a
 * buffer that no one op frees is not named.
 */
#include <stdlib.h>

#include "plan_private.h"
#include "program_private.h"

/* A stream is two chains if ops start early. */
#define CHAIN_WORDS (2 * SYMM_PROGRAM_MAX_STREAMS / 64)

struct finder {
    struct plan_private *plan;
    const struct lifetimes *lives;
    int *op;      /* by buffer: what frees it, an op of the program; -1: not found */
    int *sharing; /* lists of the buffers that share bytes with a buffer */
    int *sharing_start;
    /* By buffer, a bit for each chain of a rank: its ops come too late to free it. */
    uint64_t (*late)[CHAIN_WORDS];
};

static bool share(const symm_plan_buffer *a, const symm_plan_buffer *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Has every access of the life that begins in period 0 ended, on every rank? */
static bool is_over(const struct finder *finder, int buffer,
                    const struct mark *const *clocks)
{
    const struct lifetimes *lives = finder->lives;
    const int owners = lives->order->owner_count;

    for (int i = 0; i < owners; i++) {
        const struct mark *clock = clocks[lives->order->owners[i]];
        const int at = buffer * owners + i;
        for (int l = lives->last_start[at]; l < lives->last_start[at + 1]; l++)
            if (clock[lives->last[l].chain].at < lives->last[l].at)
                return false;
    }
    return true;
}

/* Does the op's end come before what `next` writes first, `periods` periods on? */
static bool is_before(const struct finder *finder, int op, int period, int next,
                      int periods)
{
    const struct order *order = finder->lives->order;
    const uint32_t end = symm__order_moment(order, op, period, POINT_END);

    for (int i = 0; i < order->owner_count; i++) {
        int chain = symm__order_chain(order, order->owners[i], op, period);
        if (symm__order_first(order, next, periods, i)[chain].at < end)
            return false;
    }
    return true;
}

static bool is_before_all(const struct finder *finder, int op, int period, int buffer)
{
    const struct lifetimes *lives = finder->lives;
    const bool loop = lives->order->program->loop;

    if (loop && !is_before(finder, op, period, buffer, 1))
        return false;
    for (int s = finder->sharing_start[buffer]; s < finder->sharing_start[buffer + 1];
         s++) {
        int other = finder->sharing[s];
        bool later = symm__lives_before(lives, buffer, other, 0);
        if ((later || loop) && !is_before(finder, op, period, other, later ? 0 : 1))
            return false;
    }
    return true;
}

static bool look(void *arg, int op, int period, const struct mark *const *clocks)
{
    struct finder *finder = arg;
    const struct order *order = finder->lives->order;
    const symm_program_kind kind = order->program->ops[op].kind;
    const int chain = symm__order_chain(order, 0, op, period);
    const uint64_t bit = (uint64_t)1 << chain % 64;

    if (kind != SYMM_PROGRAM_PUT && !symm__is_collective(kind))
        return true;
    for (int b = 0; b < finder->lives->count; b++) {
        uint64_t *late = &finder->late[b][chain / 64];
        if (finder->op[b] >= 0 || (*late & bit) || !is_over(finder, b, clocks))
            continue;
        /* What comes too late is followed on its chain by what comes later still. */
        if (is_before_all(finder, op, period, b))
            finder->op[b] = op;
        else
            *late |= bit;
    }
    return true;
}

/* Buffers that are not worth a look: without a life that ends, or with a value from outside
 * that the program needs when it is run again. */
static void leave_out(struct finder *finder)
{
    const struct order *order = finder->lives->order;

    for (int b = 0; b < finder->lives->count; b++) {
        const int first = order->first_touch[b];
        const bool lives = !finder->lives->always[b] && first >= 0 &&
                           (order->program->loop || first == order->touch_start[b]);
        finder->op[b] = lives ? -1 : INT32_MAX;
    }
}

static bool list_sharing(struct finder *finder)
{
    const symm_plan *plan = &finder->plan->plan;
    size_t count = 0, room = 0;

    for (int a = 0; a < plan->buffer_count; a++) {
        finder->sharing_start[a] = (int)count;
        for (int b = 0; b < plan->buffer_count; b++) {
            if (a == b || !share(&plan->buffers[a], &plan->buffers[b]))
                continue;
            if (count == room) {
                int *grown;
                room = 2 * room + 256;
                grown = room < INT32_MAX
                            ? realloc(finder->sharing, room * sizeof(*grown))
                            : NULL;
                if (!grown)
                    return false;
                finder->sharing = grown;
            }
            finder->sharing[count++] = b;
        }
    }
    finder->sharing_start[plan->buffer_count] = (int)count;
    return true;
}

/* plan->ops are the communications among the program's ops, in its order. */
static bool name_them(const struct finder *finder)
{
    const symm_program *program = finder->lives->order->program;
    symm_plan *plan = &finder->plan->plan;
    int *counts = calloc((size_t)program->op_count + 1, sizeof(*counts));
    int at = 0;

    if (!counts)
        return false;
    for (int b = 0; b < plan->buffer_count; b++)
        if (finder->op[b] >= 0 && finder->op[b] < program->op_count)
            counts[finder->op[b]]++;
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_kind kind = program->ops[i].kind;
        symm_plan_op *op;
        int *frees;
        if (kind != SYMM_PROGRAM_PUT && !symm__is_collective(kind))
            continue;
        op = &plan->ops[at++];
        if (counts[i] == 0)
            continue;
        frees =
            symm__pool_alloc(&finder->plan->pool, (size_t)counts[i], sizeof(*frees));
        if (!frees) {
            free(counts);
            return false;
        }
        for (int b = 0; b < plan->buffer_count; b++)
            if (finder->op[b] == i)
                frees[op->free_count++] = b;
        op->frees = frees;
    }
    free(counts);
    return true;
}

symm_status symm__plan_frees(struct plan_private *plan, struct order *order,
                             const struct lifetimes *lives)
{
    const size_t buffers = (size_t)lives->count + 1;
    struct finder finder = {.plan = plan, .lives = lives};
    symm_status status = SYMM_OK;
    bool good;

    finder.op = calloc(buffers, sizeof(*finder.op));
    finder.sharing_start = calloc(buffers, sizeof(*finder.sharing_start));
    finder.late = calloc(buffers, sizeof(*finder.late));
    good = finder.op && finder.sharing_start && finder.late && list_sharing(&finder);
    if (good) {
        leave_out(&finder);
        status = symm__order_watch(order, look, &finder);
        good = status != SYMM_OK || name_them(&finder);
    }
    free(finder.op);
    free(finder.sharing);
    free(finder.sharing_start);
    free(finder.late);
    return good ? status : symm__program_nomem(order->program);
}
