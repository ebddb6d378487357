/* SPDX-License-Identifier: MIT */
/*
 * again.c - the plan of a program of which a few ops have changed, from its previous plan.
 *
 * Sites that the old plan has keep their algorithms and barriers, buffers that it has keep
 * their offsets, as long as the changed program allows it: one run of the order, and one
 * check of the buffers that follow one another in some address, decide that. Buffers that
 * are new, or cannot keep their offsets, are placed by first fit. Barriers that the change
 * has made necessary are added; none is dropped. Other ways to run the program are not compared,
 * so a full plan may be smaller.
 */
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/names.h"
#include "model/program_private.h"

#define MAX_ROUNDS 64 /* of the check; each removes buffers from their places */
#define MAX_CLIQUE 4096 /* buffers of a bound that are compared in pairs */

struct again {
    struct order *order;
    const symm_program *program;
    const symm_plan *old;
    const struct symm_costs *costs;
    struct choice *choice;
    struct lifetimes *lives;
    bool *placed; /* by buffer */
    int *now;     /* by buffer of the old plan: the program's, or -1 */
};

/* ---- Algorithms and barriers ------------------------------------------------------- */

static symm_status take_op(struct again *again, int index, const struct names *sites)
{
    const symm_program_op *op = &again->program->ops[index];
    const bool put = op->kind == SYMM_PROGRAM_PUT;
    const bool norm = op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
    const int found = symm__names_find(sites, op->site);
    const symm_plan_op *old = found < 0 ? NULL : &again->old->ops[found];
    struct choice *choice = again->choice;
    struct traits traits;

    if (old && (put != (old->algorithm == SYMM_ALGORITHM_PUT) || norm != old->norm ||
                (!put && symm__algorithm_objection(op, old->algorithm))))
        old = NULL;
    choice->algorithms[index] =
        put   ? SYMM_ALGORITHM_PUT
        : old ? old->algorithm
              : symm__cost_choose(again->costs, again->program, op, false);
    if (choice->algorithms[index] == SYMM_ALGORITHM_COUNT)
        return symm__program_refuse(
            again->program,
            "%s: found no algorithm, allowed: a cost table that names one for this op",
            op->site);
    traits = symm__op_traits(op, choice->algorithms[index]);
    choice->entry[index] = old && old->entry_barrier && traits.entry;
    choice->exit[index] = old && old->exit_barrier && traits.exit;
    return SYMM_OK;
}

static symm_status take_ops(struct again *again)
{
    struct names sites = {0};
    symm_status status = SYMM_OK;

    for (int i = 0; i < again->old->op_count && status == SYMM_OK; i++)
        if (!symm__names_add(&sites, again->old->ops[i].site, i))
            status = symm__program_nomem(again->program);
    for (int i = 0; i < again->program->op_count && status == SYMM_OK; i++) {
        const symm_program_op *op = &again->program->ops[i];

        again->choice->algorithms[i] = SYMM_ALGORITHM_PUT;
        if (symm__is_communication(op->kind))
            status = take_op(again, i, &sites);
    }
    symm__names_free(&sites);
    return status;
}

/* ---- Offsets ----------------------------------------------------------------------- */

static symm_status take_offsets(struct again *again)
{
    const symm_program *program = again->program;
    struct names names = {0};
    symm_status status = SYMM_OK;

    for (int b = 0; b < program->buffer_count && status == SYMM_OK; b++)
        if (!symm__names_add(&names, program->buffers[b].name, b))
            status = symm__program_nomem(again->program);
    for (int i = 0; i < again->old->buffer_count && status == SYMM_OK; i++) {
        const symm_plan_buffer *old = &again->old->buffers[i];
        const int b = symm__names_find(&names, old->name);

        again->now[i] = b;
        if (b < 0 || program->buffers[b].bytes > old->bytes ||
            old->offset % SYMM_PLAN_ALIGNMENT != 0 || old->offset > INT64_MAX / 4)
            continue;
        again->choice->offsets[b] = (int64_t)old->offset;
        again->placed[b] = true;
    }
    symm__names_free(&names);
    return status;
}

static bool may_follow(const struct lifetimes *lives, const struct adjacent *pair)
{
    return pair->before == pair->after ||
           (!lives->always[pair->before] && !lives->always[pair->after] &&
            symm__lives_before(lives, pair->before, pair->after, pair->next_period));
}

/* Removes each buffer that may not follow its predecessor in some byte; *taken of them. */
static symm_status check_places(struct again *again, int *taken)
{
    size_t count;
    struct adjacent *pairs =
        symm__plan_pairs(again->lives, again->choice->offsets, again->placed, &count);

    *taken = 0;
    if (!pairs)
        return symm__program_nomem(again->program);
    for (size_t i = 0; i < count; i++) {
        if (may_follow(again->lives, &pairs[i]) || !again->placed[pairs[i].before] ||
            !again->placed[pairs[i].after])
            continue;
        again->placed[pairs[i].after] = false;
        ++*taken;
    }
    free(pairs);
    return SYMM_OK;
}

static int compare_extents(const void *left, const void *right)
{
    const struct extent *a = left, *b = right;

    return a->low < b->low ? -1 : a->low > b->low;
}

/* Places the buffer at the lowest offset where no conflicting buffer has bytes. */
static void place_one(struct again *again, int buffer, struct extent *extents)
{
    const struct lifetimes *lives = again->lives;
    const size_t bytes = (size_t)lives->sizes[buffer];
    size_t at = 0;
    int count = 0;

    for (int b = 0; b < lives->count; b++) {
        const size_t low = (size_t)again->choice->offsets[b];

        if (again->placed[b] && symm__conflict(lives, buffer, b))
            extents[count++] =
                (struct extent){.low = low, .high = low + (size_t)lives->sizes[b]};
    }
    qsort(extents, (size_t)count, sizeof(*extents), compare_extents);
    for (int i = 0; i < count && extents[i].low < at + bytes; i++)
        if (extents[i].high > at)
            at = extents[i].high;
    again->choice->offsets[buffer] = (int64_t)at;
    again->placed[buffer] = true;
}

static symm_status place_all(struct again *again)
{
    const struct lifetimes *lives = again->lives;
    struct extent *extents = calloc((size_t)lives->count + 1, sizeof(*extents));
    symm_status status = extents ? SYMM_OK : symm__program_nomem(again->program);
    int taken = 1;

    for (int round = 0; taken && status == SYMM_OK; round++) {
        if (round == MAX_ROUNDS)
            memset(again->placed, 0, (size_t)lives->count * sizeof(*again->placed));
        status = check_places(again, &taken);
    }
    for (int t = 0; t < lives->count && status == SYMM_OK; t++)
        if (!again->placed[lives->by_turn[t]])
            place_one(again, lives->by_turn[t], extents);
    free(extents);
    again->choice->arena = 0;
    for (int b = 0; b < lives->count; b++)
        if (again->choice->offsets[b] + lives->sizes[b] > again->choice->arena)
            again->choice->arena = again->choice->offsets[b] + lives->sizes[b];
    return status;
}

/* ---- The bound --------------------------------------------------------------------- */

/* The bound is the old plan's clique, if its buffers still conflict pairwise. To find one anew
 * takes less than to compare all pairs of a large one. */
static symm_status take_bound(struct again *again)
{
    struct lifetimes *lives = again->lives;
    const symm_plan *old = again->old;
    bool good = old->has_proof && old->antichain_count > 0 &&
                old->antichain_count <= MAX_CLIQUE;
    int *clique = good ? symm__pool_alloc(&lives->pool, (size_t)old->antichain_count,
                                          sizeof(*clique))
                       : NULL;

    for (int i = 0; clique && good && i < old->antichain_count; i++) {
        clique[i] = again->now[old->antichain[i]];
        good = clique[i] >= 0;
        for (int k = 0; k < i && good; k++)
            /* one that the old plan lists twice would count twice */
            good =
                clique[i] != clique[k] && symm__conflict(lives, clique[i], clique[k]);
    }
    if (!clique || !good)
        return symm__lifetimes_clique(lives);
    lives->clique = clique;
    lives->clique_count = old->antichain_count;
    lives->clique_bytes = 0;
    for (int i = 0; i < lives->clique_count; i++)
        lives->clique_bytes += lives->sizes[clique[i]];
    return SYMM_OK;
}

/* ---- The whole --------------------------------------------------------------------- */

symm_status symm__plan_again(struct pool *pool, struct order *order,
                             const symm_plan_options *options, struct choice *choice,
                             struct lifetimes *lives)
{
    struct again again = {.order = order,
                          .program = order->program,
                          .old = options->previous,
                          .costs =
                              options->costs ? options->costs : &symm__costs_built_in,
                          .choice = choice,
                          .lives = lives};
    symm_status status =
        symm__plan_new_choice(pool, order->program, "as the plan before", choice);

    order->keeps_ends = true; /* this run is the last one */
    again.placed = symm__pool_alloc(pool, (size_t)order->program->buffer_count + 1,
                                    sizeof(*again.placed));
    again.now =
        symm__pool_alloc(pool, (size_t)again.old->buffer_count + 1, sizeof(*again.now));
    if (status == SYMM_OK && pool->failed)
        status = symm__program_nomem(order->program);
    if (status == SYMM_OK)
        status = take_ops(&again);
    if (status == SYMM_OK)
        status = symm__plan_run(order, again.costs, choice);
    if (status == SYMM_OK)
        status = take_offsets(&again);
    if (status == SYMM_OK)
        status = symm__lifetimes_make(lives, order);
    if (status != SYMM_OK)
        return status;
    status = place_all(&again);
    if (status == SYMM_OK)
        status = take_bound(&again);
    if (status != SYMM_OK)
        symm__lifetimes_finish(lives);
    return status;
}
