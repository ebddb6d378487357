/* SPDX-License-Identifier: MIT */
/*
 * prune.c - drops superfluous barriers: a later barrier may order what an earlier one was
 * set for, and a barrier that was set to save memory may save none.
 *
 * Guarantees: the program's own accesses stay ordered, and so do all pairs of buffers that
 * share bytes where the choice placed them. A budget limits the trials, each of which plays
 * the program once.
 */
#include <stdlib.h>

#include "make/plan_private.h"
#include "model/program_private.h"

#define MAX_PLAYED 1500000 /* ops x periods x classes of ranks, over all trials */

struct adjacent *symm__plan_pairs(const struct lifetimes *lives, const int64_t *offsets,
                                  const bool *placed, size_t *count)
{
    const symm_program *program = lives->order->program;
    struct extent *extents = calloc((size_t)lives->count + 1, sizeof(*extents));
    struct adjacent *pairs = NULL;

    for (int b = 0; extents && b < lives->count; b++) {
        const size_t bytes = placed && !placed[b] ? 0 : program->buffers[b].bytes;
        extents[b] = (struct extent){.low = (size_t)offsets[b],
                                     .high = (size_t)offsets[b] + bytes,
                                     .turn = lives->always[b] ? -1 : lives->turn[b]};
    }
    if (extents)
        pairs = symm__adjacent_pairs(extents, lives->count, lives->loop, count);
    free(extents);
    return pairs;
}

static symm_status try_without(struct order *order, bool *barrier,
                               const struct lifetimes *lives,
                               const struct adjacent *pairs, size_t count)
{
    bool enough = true;
    symm_status status;

    *barrier = false;
    status = symm__order_try(order, &enough);
    /* The ends of lives are the same under all barriers; first writes are the trial's. */
    for (size_t i = 0; i < count && enough && status == SYMM_OK; i++)
        enough = symm__lives_over(
            lives, pairs[i].before,
            symm__order_first(order, pairs[i].after, pairs[i].next_period));
    *barrier = !enough;
    return status;
}

static bool must_stay(const struct order *order, int op)
{
    return symm__op_traits(&order->program->ops[op], order->algorithms[op]).must_exit;
}

symm_status symm__plan_prune(struct order *order, struct choice *choice,
                             struct lifetimes *lives)
{
    const int ops = order->program->op_count;
    const int64_t price =
        (int64_t)ops * (order->program->loop ? 2 : 1) * order->pairs.count;
    size_t count;
    struct adjacent *pairs = symm__plan_pairs(lives, choice->offsets, NULL, &count);
    int64_t budget = MAX_PLAYED;
    bool dropped = false;
    symm_status status = pairs ? SYMM_OK : symm__program_nomem(order->program);

    for (int i = 2 * ops - 1; i >= 0 && status == SYMM_OK && budget >= price; i--) {
        bool *barrier = i % 2 ? &order->exit[i / 2] : &order->entry[i / 2];
        if (!*barrier || (i % 2 && must_stay(order, i / 2)))
            continue;
        status = try_without(order, barrier, lives, pairs, count);
        dropped = dropped || !*barrier;
        budget -= price;
    }
    free(pairs);
    for (int i = 0; i < ops; i++) {
        choice->entry[i] = order->entry[i];
        choice->exit[i] = order->exit[i];
    }
    if (status == SYMM_OK)
        status = symm__order_run(order); /* the last trial may have failed */
    if (status == SYMM_OK && dropped) {
        symm__lifetimes_finish(lives);
        status = symm__lifetimes_make(lives, order);
        if (status == SYMM_OK)
            status = symm__lifetimes_clique(lives);
    }
    return status;
}
