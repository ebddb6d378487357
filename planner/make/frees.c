/* SPDX-License-Identifier: MIT */
/*
 * frees.c - finds for each buffer the op after whose end the buffer's bytes are free. A
 * run-time check may overwrite the bytes there, which reveals accesses that come too late.
 * order.h defines moments, lanes, chains and clocks.
 *
 * Guarantees: on each rank, the op that frees a buffer ends after all ranks' accesses to that
 * rank's copy, and before the next write to the copy's bytes: by the buffer's own next life or
 * by another buffer. It is the first such op in the order of issue. A buffer without such an op
 * is in no op's list.
 */
#include "make/plan_private.h"
#include "model/program_private.h"

struct finder {
    struct pool room;
    struct plan_private *plan;
    const struct lifetimes *lives;
    const uint32_t *ends;   /* see symm__order_ends */
    /* By stream: its puts and collectives in the order of issue; starts are [stream + 1]. */
    int *communications, *communication_start;
    int *op; /* by buffer: the op of the program that frees it; -1: none */
    /* By buffer: the certificate's entries with this `before`; starts are [buffer + 1]. */
    const symm_plan_entry **followers;
    size_t *follower_start;
};

static const uint32_t *end_of(const struct finder *finder, int op, int period)
{
    return finder->ends + ((size_t)op * 2 + (size_t)period) *
                              (size_t)finder->lives->order->chain_count;
}

/* Whether the op, issued in `period`, ends on every rank before any follower of the buffer first
 * writes the same bytes of that rank. The chain is (relation 0, the op's lane): relation 0 is
 * ACTOR_OWNER, so the chain's moments are those of the rank that owns the bytes. */
static bool is_in_time(const struct finder *finder, int buffer, int op, int period)
{
    const struct order *order = finder->lives->order;
    const uint32_t end = symm__order_moment(order, op, period, POINT_END);
    const int chain = order->chain_of[symm__order_lane(order, op, period)];

    for (size_t i = finder->follower_start[buffer];
         i < finder->follower_start[buffer + 1]; i++) {
        const symm_plan_entry *entry = finder->followers[i];
        if (symm__order_first(order, entry->after, entry->next_period)[chain] < end)
            return false;
    }
    return true;
}

/* The index of the stream's first communication at whose end all accesses to the buffer are over;
 * the number of communications if there is none. In a loop the list is counted twice, since a
 * life may end in the next period: index i is op i % count of period i / count. */
static int find_turn(const struct finder *finder, int buffer, int stream)
{
    const int *ops = finder->communications + finder->communication_start[stream];
    const int count =
        finder->communication_start[stream + 1] - finder->communication_start[stream];
    int low = 0, high = finder->lives->loop ? 2 * count : count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (symm__lives_over(finder->lives, buffer,
                             end_of(finder, ops[middle % count], middle / count)))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Tries on each stream only the first op that ends after the buffer's life: later ops end later.
 * With early starts the next op could still be in time; it is not tried. */
static void find_op(struct finder *finder, int buffer)
{
    const struct order *order = finder->lives->order;
    uint32_t best = UINT32_MAX;

    for (int s = 0; s < order->program->stream_count; s++) {
        const int count =
            finder->communication_start[s + 1] - finder->communication_start[s];
        const int turn = count ? find_turn(finder, buffer, s) : 0;
        if (count == 0 || turn >= (finder->lives->loop ? 2 * count : count))
            continue;
        const int op =
            finder->communications[finder->communication_start[s] + turn % count];
        const uint32_t end = symm__order_moment(order, op, turn / count, POINT_END);
        if (end >= best || !is_in_time(finder, buffer, op, turn / count))
            continue;
        best = end;
        finder->op[buffer] = op;
    }
}

/* No op frees a buffer that is always alive, nor one without a track: it holds a value before the
 * first op, which the next run needs. */
static void find_ops(struct finder *finder)
{
    const struct lifetimes *lives = finder->lives;

    for (int b = 0; b < lives->count; b++) {
        finder->op[b] = -1;
        if (!lives->always[b] && lives->track[b] >= 0)
            find_op(finder, b);
    }
}

static bool list_communications(struct finder *finder)
{
    const symm_program *program = finder->lives->order->program;
    int at = 0;

    finder->communications =
        symm__pool_alloc(&finder->room, (size_t)program->op_count + 1, sizeof(int));
    finder->communication_start =
        symm__pool_alloc(&finder->room, (size_t)program->stream_count + 1, sizeof(int));
    if (finder->room.failed)
        return false;
    for (int s = 0; s < program->stream_count; s++) {
        for (int i = 0; i < program->op_count; i++) {
            const symm_program_op *op = &program->ops[i]; /* listed as issued */
            if (op->stream == s && symm__is_communication(op->kind))
                finder->communications[at++] = i;
        }
        finder->communication_start[s + 1] = at;
    }
    return true;
}

static bool list_followers(struct finder *finder)
{
    const symm_plan *plan = &finder->plan->plan;
    const size_t buffers = (size_t)plan->buffer_count;

    finder->followers = symm__pool_alloc(&finder->room, plan->certificate_count + 1,
                                         sizeof(*finder->followers));
    finder->follower_start =
        symm__pool_alloc(&finder->room, buffers + 2, sizeof(*finder->follower_start));
    if (finder->room.failed)
        return false;
    /* A counting sort; in the end start[b] is where the entries of b begin. */
    for (size_t i = 0; i < plan->certificate_count; i++)
        finder->follower_start[plan->certificate[i].before + 2]++;
    for (size_t b = 0; b < buffers; b++)
        finder->follower_start[b + 2] += finder->follower_start[b + 1];
    for (size_t i = 0; i < plan->certificate_count; i++)
        finder->followers[finder->follower_start[plan->certificate[i].before + 1]++] =
            &plan->certificate[i];
    return true;
}

/* plan->ops are the communications among the program's ops, in its order. */
static bool name_them(struct finder *finder)
{
    const symm_program *program = finder->lives->order->program;
    const size_t count = (size_t)program->op_count + 1;
    symm_plan *plan = &finder->plan->plan;
    symm_plan_op **ops = symm__pool_alloc(&finder->room, count, sizeof(*ops));
    int **ends = symm__pool_alloc(&finder->room, count, sizeof(*ends));
    int *frees = symm__pool_alloc(&finder->plan->pool, (size_t)plan->buffer_count + 1,
                                  sizeof(*frees));
    int at = 0;

    if (!ops || !ends || !frees)
        return false;
    for (int i = 0; i < program->op_count; i++)
        if (symm__is_communication(program->ops[i].kind))
            ops[i] = &plan->ops[at++];
    for (int b = 0; b < plan->buffer_count; b++)
        if (finder->op[b] >= 0)
            ops[finder->op[b]]->free_count++;
    for (int i = 0; i < program->op_count; i++) {
        if (!ops[i] || ops[i]->free_count == 0)
            continue;
        ops[i]->frees = ends[i] = frees;
        frees += ops[i]->free_count;
    }
    for (int b = 0; b < plan->buffer_count; b++)
        if (finder->op[b] >= 0)
            *ends[finder->op[b]]++ = b;
    return true;
}

symm_status symm__plan_frees(struct plan_private *plan, struct order *order,
                             const struct lifetimes *lives)
{
    const size_t ops = (size_t)order->program->op_count + 1;
    const size_t chains = (size_t)order->chain_count;
    struct finder finder = {.plan = plan, .lives = lives, .ends = order->ends};
    uint32_t *played = NULL;
    symm_status status = SYMM_OK;
    bool good;

    finder.op = symm__pool_alloc(&finder.room, (size_t)lives->count + 1, sizeof(int));
    if (!finder.ends)
        finder.ends = played =
            symm__pool_alloc(&finder.room, 2 * ops, (chains + 1) * sizeof(*played));
    good = finder.op && finder.ends && list_communications(&finder) &&
           list_followers(&finder);
    if (good && played)
        status = symm__order_ends(order, played);
    if (good && status == SYMM_OK) {
        find_ops(&finder);
        good = name_them(&finder);
    }
    symm__pool_free(&finder.room);
    return good ? status : symm__program_nomem(order->program);
}
