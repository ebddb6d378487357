/* SPDX-License-Identifier: MIT */
/*
 * choose.c - memory against barriers: which algorithms and barriers a plan uses.
 *
 * Each choice gets the barriers that the program needs (order/run.c), then offsets. Choices:
 * the fastest algorithms with the fewest barriers; the same with one more barrier where the
 * circle closes; with barriers on the larger buffers, by size; with all barriers; and the
 * algorithms that touch no peer's buffer. The least of predicted time plus the price of
 * memory wins; ties go to the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make/chains.h"
#include "make/plan_private.h"
#include "model/program_private.h"
#include "util/status.h"

#define MAX_SIZES   4
#define MAX_CHOICES (MAX_SIZES + 4)

struct chooser {
    struct pool *pool;
    struct order *order;
    const symm_program *program;
    const symm_plan_options *options;
    const struct symm_costs *costs;
    symm_algorithm forced; /* SYMM_ALGORITHM_COUNT: none */
    struct choice *choices;
    int count;
};

static struct chooser chooser_of(struct pool *pool, struct order *order,
                                 const symm_plan_options *options)
{
    return (struct chooser){.pool = pool,
                            .order = order,
                            .program = order->program,
                            .options = options,
                            .costs =
                                options->costs ? options->costs : &symm__costs_built_in,
                            .forced = SYMM_ALGORITHM_COUNT};
}

static bool has_barriers(const struct chooser *chooser, const struct choice *choice,
                         int op)
{
    const symm_program_op *the_op = &chooser->program->ops[op];

    return symm__op_traits(the_op, choice->algorithms[op]).entry;
}

/* ---- Algorithms -------------------------------------------------------------------- */

static symm_status check_forced(const struct chooser *chooser)
{
    const symm_program *program = chooser->program;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        const char *why;
        if (!symm__is_collective(op->kind))
            continue;
        why = symm__algorithm_objection(op, chooser->forced);
        if (why)
            return symm__fail(
                SYMM_ERR_INVALID,
                "program %s: ops[%d] (%s %s) cannot use the algorithm %s: %s",
                program->name, i, symm_program_kind_name(op->kind), op->site,
                symm_algorithm_name(chooser->forced), why);
    }
    return SYMM_OK;
}

/* The first collective that no algorithm of the costs can do; -1: there is none. */
static int find_impossible(const struct chooser *chooser, bool local)
{
    const symm_program *program = chooser->program;

    for (int i = 0; i < program->op_count; i++)
        if (symm__is_collective(program->ops[i].kind) &&
            symm__cost_choose(chooser->costs, program, &program->ops[i], local) ==
                SYMM_ALGORITHM_COUNT)
            return i;
    return -1;
}

static symm_status check_costs(const struct chooser *chooser)
{
    const int i = find_impossible(chooser, false);
    const symm_program_op *op = &chooser->program->ops[i < 0 ? 0 : i];

    if (i < 0)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_INVALID,
        "program %s: ops[%d] (%s %s): no algorithm that the table of costs "
        "names can do it; add one that can, as copy_in",
        chooser->program->name, i, symm_program_kind_name(op->kind), op->site);
}

static void choose_algorithms(const struct chooser *chooser, struct choice *choice,
                              bool local)
{
    const symm_program *program = chooser->program;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        choice->algorithms[i] = SYMM_ALGORITHM_PUT;
        if (!symm__is_collective(op->kind))
            continue;
        choice->algorithms[i] =
            chooser->forced < SYMM_ALGORITHM_COUNT
                ? chooser->forced
                : symm__cost_choose(chooser->costs, program, op, local);
    }
}

/* ---- One choice -------------------------------------------------------------------- */

symm_status symm__plan_new_choice(struct pool *pool, const symm_program *program,
                                  const char *name, struct choice *choice)
{
    const size_t ops = (size_t)program->op_count + 1;

    *choice = (struct choice){.name = name};
    choice->algorithms = symm__pool_alloc(pool, ops, sizeof(*choice->algorithms));
    choice->entry = symm__pool_alloc(pool, ops, sizeof(bool));
    choice->exit = symm__pool_alloc(pool, ops, sizeof(bool));
    choice->offsets =
        symm__pool_alloc(pool, (size_t)program->buffer_count + 1, sizeof(int64_t));
    return pool->failed || !name ? symm__program_nomem(program) : SYMM_OK;
}

/* The next choice, with its algorithms. */
static symm_status begin_choice(struct chooser *chooser, const char *name, bool local,
                                struct choice **choice)
{
    symm_status status;

    *choice = &chooser->choices[chooser->count];
    status = symm__plan_new_choice(chooser->pool, chooser->program, name, *choice);
    if (status == SYMM_OK)
        choose_algorithms(chooser, *choice, local);
    return status;
}

static bool same(const struct chooser *chooser, const struct choice *a,
                 const struct choice *b)
{
    const size_t ops = (size_t)chooser->program->op_count;

    return memcmp(a->algorithms, b->algorithms, ops * sizeof(*a->algorithms)) == 0 &&
           memcmp(a->entry, b->entry, ops * sizeof(bool)) == 0 &&
           memcmp(a->exit, b->exit, ops * sizeof(bool)) == 0;
}

/* Counts the choice's barriers and predicts its time. */
static void price(const struct chooser *chooser, struct choice *choice)
{
    choice->barriers = 0;
    choice->microseconds = 0;
    for (int i = 0; i < chooser->program->op_count; i++) {
        choice->barriers += choice->entry[i] + choice->exit[i];
        choice->microseconds +=
            symm__cost_op(chooser->costs, chooser->program, &chooser->program->ops[i],
                          choice->algorithms[i]) +
            chooser->costs->barrier_us * (choice->entry[i] + choice->exit[i]);
    }
}

/* Adds the barriers that the program needs to choice->entry and exit. */
static symm_status close_choice(struct chooser *chooser, struct choice *choice)
{
    struct order *order = chooser->order;
    const size_t ops = (size_t)chooser->program->op_count;
    symm_status status = symm__order_set(order, choice->algorithms);

    if (status != SYMM_OK)
        return status;
    memcpy(order->entry, choice->entry, ops * sizeof(bool));
    memcpy(order->exit, choice->exit, ops * sizeof(bool));
    symm__order_require(order);
    status = symm__order_run(order);
    if (status != SYMM_OK)
        return status;
    memcpy(choice->entry, order->entry, ops * sizeof(bool));
    memcpy(choice->exit, order->exit, ops * sizeof(bool));
    price(chooser, choice);
    return SYMM_OK;
}

/* Places by the fixed orders, or also by a search that takes the bound from lives. */
static symm_status place(struct chooser *chooser, struct choice *choice,
                         const struct lifetimes *lives, bool search)
{
    const symm_plan_options *options = chooser->options;
    const struct place_effort effort = {.search = search,
                                        .time_limit = options->time_limit > 0
                                                          ? options->time_limit
                                                          : SYMM_PLAN_TIME_LIMIT,
                                        .bound = lives->clique_bytes,
                                        .progress = search ? options->progress : NULL,
                                        .arg = options->arg};

    return symm__pack_chains(lives, &effort, choice->offsets, &choice->arena,
                             &choice->cut_short);
}

/* Adds the choice, unless an equal one is there: the next choice then replaces this one. */
static symm_status finish_choice(struct chooser *chooser, struct choice *choice)
{
    struct lifetimes lives;
    symm_status status = close_choice(chooser, choice);

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < chooser->count; i++)
        if (same(chooser, &chooser->choices[i], choice))
            return SYMM_OK;
    status = symm__lifetimes_make(&lives, chooser->order);
    if (status != SYMM_OK)
        return status;
    status = place(chooser, choice, &lives, false);
    symm__lifetimes_finish(&lives);
    chooser->count += status == SYMM_OK;
    return status;
}

/* ---- All choices ------------------------------------------------------------------- */

/* Bytes of the larger of in and out; 0 for other ops than collectives and puts. */
static size_t largest_of(const symm_program *program, const symm_program_op *op)
{
    size_t bytes = 0;

    if (op->in >= 0)
        bytes = program->buffers[op->in].bytes;
    if (op->out >= 0 && program->buffers[op->out].bytes > bytes)
        bytes = program->buffers[op->out].bytes;
    return bytes;
}

static void demand(const struct chooser *chooser, struct choice *choice, int op)
{
    if (!has_barriers(chooser, choice, op))
        return;
    choice->entry[op] = true;
    choice->exit[op] = chooser->program->ops[op].kind != SYMM_PROGRAM_PUT;
}

/* Tries the first choice's algorithms, with barriers on everything of at least this size. */
static symm_status try_sizes(struct chooser *chooser, size_t bytes, const char *name)
{
    const symm_program *program = chooser->program;
    struct choice *choice;
    symm_status status = begin_choice(chooser, name, false, &choice);

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < program->op_count; i++)
        if (largest_of(program, &program->ops[i]) >= bytes)
            demand(chooser, choice, i);
    return finish_choice(chooser, choice);
}

/* Tries the first choice's algorithms, with an exit barrier on the last collective of each
 * stream. */
static symm_status try_cut(struct chooser *chooser)
{
    const symm_program *program = chooser->program;
    struct choice *choice;
    symm_status status =
        begin_choice(chooser, "a barrier where the circle closes", false, &choice);

    if (status != SYMM_OK)
        return status;
    for (int s = 0; s < program->stream_count; s++) {
        int last = -1;
        for (int i = 0; i < program->op_count; i++)
            if (program->ops[i].stream == s && has_barriers(chooser, choice, i) &&
                program->ops[i].kind != SYMM_PROGRAM_PUT)
                last = i;
        if (last >= 0)
            choice->exit[last] = true;
    }
    return finish_choice(chooser, choice);
}

static size_t next_size(const struct chooser *chooser, size_t below)
{
    const symm_program *program = chooser->program;
    size_t next = 0;

    for (int i = 0; i < program->op_count; i++) {
        size_t bytes = largest_of(program, &program->ops[i]);
        if (has_barriers(chooser, &chooser->choices[0], i) && bytes < below &&
            bytes > next)
            next = bytes;
    }
    return next;
}

static symm_status try_barriers(struct chooser *chooser)
{
    size_t bytes = SIZE_MAX;
    symm_status status = SYMM_OK;

    if (chooser->program->loop)
        status = try_cut(chooser);
    for (int i = 0; i < MAX_SIZES && status == SYMM_OK; i++) {
        bytes = next_size(chooser, bytes);
        if (bytes == 0 || next_size(chooser, bytes) == 0)
            break;
        status =
            try_sizes(chooser, bytes,
                      symm__pool_format(chooser->pool,
                                        "all barriers on %zu bytes and more", bytes));
    }
    return status == SYMM_OK ? try_sizes(chooser, 1, "all barriers") : status;
}

static symm_status try_all(struct chooser *chooser)
{
    struct choice *choice;
    symm_status status = begin_choice(chooser, "fewest barriers", false, &choice);
    bool barriers = false;

    if (status == SYMM_OK)
        status = finish_choice(chooser, choice);
    for (int i = 0; i < chooser->program->op_count && status == SYMM_OK; i++)
        barriers = barriers || has_barriers(chooser, &chooser->choices[0], i);
    if (status == SYMM_OK && barriers)
        status = try_barriers(chooser);
    if (status != SYMM_OK || !barriers || chooser->forced < SYMM_ALGORITHM_COUNT ||
        find_impossible(chooser, true) >= 0)
        return status;
    status = begin_choice(chooser, "no peer's buffer is touched", true, &choice);
    return status == SYMM_OK ? finish_choice(chooser, choice) : status;
}

static int find_best(const struct chooser *chooser)
{
    const double gib = 1024.0 * 1024 * 1024;
    double least = 0;
    int best = 0;

    for (int i = 0; i < chooser->count; i++) {
        const struct choice *choice = &chooser->choices[i];
        double price = choice->microseconds +
                       chooser->costs->memory_us_per_gib * (double)choice->arena / gib;
        if (i == 0 || price < least) {
            least = price;
            best = i;
        }
    }
    return best;
}

symm_status symm__plan_choose(struct pool *pool, struct order *order,
                              const symm_plan_options *options, struct choice **choices,
                              int *count, int *best)
{
    struct chooser chooser = chooser_of(pool, order, options);
    symm_status status = SYMM_OK;

    if (options->algorithm)
        status = symm_algorithm_parse(options->algorithm, &chooser.forced);
    if (status == SYMM_OK)
        status = options->algorithm ? check_forced(&chooser) : check_costs(&chooser);
    if (status != SYMM_OK)
        return status;
    chooser.choices = symm__pool_alloc(pool, MAX_CHOICES, sizeof(*chooser.choices));
    if (!chooser.choices)
        return symm__program_nomem(order->program);
    status = try_all(&chooser);
    if (status != SYMM_OK)
        return status;
    *best = find_best(&chooser);
    *choices = chooser.choices;
    *count = chooser.count;
    return SYMM_OK;
}

symm_status symm__plan_complete(struct pool *pool, struct order *order,
                                const symm_plan_options *options, struct choice *choice,
                                struct lifetimes *lives)
{
    struct chooser chooser = chooser_of(pool, order, options);
    symm_status status = close_choice(&chooser, choice);

    if (status == SYMM_OK)
        status = symm__lifetimes_make(lives, order);
    if (status != SYMM_OK)
        return status;
    status = symm__lifetimes_clique(lives);
    if (status == SYMM_OK && choice->arena > lives->clique_bytes)
        status = place(&chooser, choice, lives, !options->greedy);
    if (status == SYMM_OK)
        status = symm__plan_prune(order, choice, lives);
    price(&chooser, choice);
    if (status != SYMM_OK)
        symm__lifetimes_finish(lives);
    return status;
}

symm_status symm__plan_run(struct order *order, const struct symm_costs *costs,
                           struct choice *choice)
{
    struct chooser chooser = {
        .order = order, .program = order->program, .costs = costs};

    return close_choice(&chooser, choice);
}
