/* SPDX-License-Identifier: MIT */
/*
 * plan.c - a program's plan: algorithms and barriers are chosen, lifetimes follow from
 * them, offsets from the lifetimes, and the certificate from all (docs/planner.md).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "make/plan_private.h"
#include "model/program_private.h"
#include "util/status.h"

struct plan_private *symm__plan_new(void)
{
    struct plan_private *plan = calloc(1, sizeof(*plan));

    if (plan)
        plan->plan.size = sizeof(plan->plan);
    return plan;
}

void symm_plan_destroy(symm_plan *plan)
{
    if (!plan)
        return;
    free(plan->certificate);
    symm__pool_free(&((struct plan_private *)plan)->pool);
    free(plan);
}

static bool lists(const symm_plan_buffer *buffer, int other)
{
    for (int i = 0; i < buffer->after_count; i++)
        if (buffer->after[i] == other)
            return true;
    return false;
}

symm_status symm_plan_find_unlisted(const symm_plan *plan, int *before, int *after)
{
    struct adjacent *pairs = NULL;
    struct extent *extents;
    size_t count = 0;

    if (!plan || !before || !after)
        return symm__fail_null("symm_plan_find_unlisted", !plan     ? "plan"
                                                          : !before ? "before"
                                                                    : "after");
    extents = calloc((size_t)plan->buffer_count + 1, sizeof(*extents));
    *before = *after = -1;
    for (int b = 0; extents && b < plan->buffer_count; b++)
        extents[b] =
            (struct extent){.low = plan->buffers[b].offset,
                            .high = plan->buffers[b].offset + plan->buffers[b].bytes,
                            .turn = plan->buffers[b].turn};
    if (extents)
        pairs = symm__adjacent_pairs(extents, plan->buffer_count, plan->loop, &count);
    free(extents);
    if (!pairs)
        return symm__fail(SYMM_ERR_NOMEM, "plan of %s: memory is exhausted",
                          plan->program);
    for (size_t i = 0; i < count && *before < 0; i++) {
        if (lists(&plan->buffers[pairs[i].after], pairs[i].before))
            continue;
        *before = pairs[i].before;
        *after = pairs[i].after;
    }
    free(pairs);
    return SYMM_OK;
}

/* ---- Making one -------------------------------------------------------------------- */

/* A channel belongs to a stream within a team: streams that communicate are numbered. */
static void number_channels(const symm_program *program, int *channels)
{
    int count = 0;

    for (int s = 0; s < program->stream_count; s++)
        channels[s] = -1;
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (symm__is_communication(op->kind) && channels[op->stream] < 0)
            channels[op->stream] = count++;
    }
}

static void fill_ops(struct plan_private *private, const symm_program *program,
                     const struct choice *choice)
{
    symm_plan *plan = &private->plan;
    int channels[SYMM_PROGRAM_MAX_STREAMS];

    number_channels(program, channels);
    plan->ops = symm__pool_alloc(&private->pool, (size_t)program->op_count + 1,
                                 sizeof(*plan->ops));
    for (int i = 0; plan->ops && i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (!symm__is_communication(op->kind))
            continue;
        plan->ops[plan->op_count++] =
            (symm_plan_op){.site = symm__pool_copy(&private->pool, op->site),
                           .algorithm = choice->algorithms[i],
                           .channel = channels[op->stream],
                           .entry_barrier = choice->entry[i],
                           .exit_barrier = choice->exit[i],
                           .norm = op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM,
                           .up_to = symm__program_up_to(op)};
    }
}

static void fill_buffers(struct plan_private *private, const symm_program *program,
                         const struct choice *choice, const struct lifetimes *lives)
{
    symm_plan *plan = &private->plan;

    plan->buffers = symm__pool_alloc(&private->pool, (size_t)program->buffer_count + 1,
                                     sizeof(*plan->buffers));
    for (int b = 0; plan->buffers && b < program->buffer_count; b++) {
        plan->buffers[plan->buffer_count++] = (symm_plan_buffer){
            .name = symm__pool_copy(&private->pool, program->buffers[b].name),
            .alloc_id = program->buffers[b].alloc_id,
            .offset = (size_t)choice->offsets[b],
            .bytes = program->buffers[b].bytes,
            .turn = lives->always[b] ? -1 : lives->turn[b]};
        plan->dedicated_bytes += (size_t)lives->sizes[b];
    }
    plan->arena_bytes = (size_t)choice->arena;
    plan->lower_bound_bytes = (size_t)lives->clique_bytes;
    plan->lower_bound_proved = plan->arena_bytes == plan->lower_bound_bytes;
}

static void fill_points(struct plan_private *private, const struct choice *choices,
                        int count, int best)
{
    symm_plan *plan = &private->plan;

    plan->points =
        symm__pool_alloc(&private->pool, (size_t)count, sizeof(*plan->points));
    plan->point_count = plan->points ? count : 0;
    for (int i = 0; i < plan->point_count; i++) {
        const struct choice *a = &choices[i];
        symm_plan_point *point = &plan->points[i];
        *point = (symm_plan_point){.name = symm__pool_copy(&private->pool, a->name),
                                   .arena_bytes = (size_t)a->arena,
                                   .barriers = a->barriers,
                                   .microseconds = a->microseconds,
                                   .chosen = i == best};
        for (int k = 0; k < count; k++) {
            const struct choice *b = &choices[k];
            bool equal = b->arena == a->arena && b->barriers == a->barriers &&
                         !(b->microseconds < a->microseconds) &&
                         !(b->microseconds > a->microseconds);
            if (k != i && b->arena <= a->arena && b->barriers <= a->barriers &&
                b->microseconds <= a->microseconds && (!equal || k < i))
                point->beaten = true;
        }
    }
    plan->microseconds = choices[best].microseconds;
}

static void fill_note(struct plan_private *private, const symm_plan_options *options,
                      bool cut_short)
{
    symm_plan *plan = &private->plan;
    const char *why = "lifetimes around a circle, or that interlock, may need more";

    if (options->greedy)
        why = "only greedy placement was allowed";
    else if (cut_short)
        why = "the search was cut short by its time limit, so the plan may differ on "
              "another machine or another day; a longer limit may help";

    if (!plan->lower_bound_proved)
        plan->note =
            symm__pool_format(&private->pool,
                              "%zu bytes above the largest set of buffers found that "
                              "pairwise conflict: %s",
                              plan->arena_bytes - plan->lower_bound_bytes, why);
}

static symm_status fill(struct plan_private *private, struct order *order,
                        const symm_plan_options *options, const struct choice *choices,
                        int count, int best, const struct lifetimes *lives)
{
    const symm_program *program = order->program;
    symm_plan *plan = &private->plan;
    symm_status status;

    plan->world = program->world;
    plan->loop = program->loop;
    plan->has_proof = true;
    plan->program = symm__pool_copy(&private->pool, program->name);
    fill_ops(private, program, &choices[best]);
    fill_buffers(private, program, &choices[best], lives);
    fill_points(private, choices, count, best);
    fill_note(private, options, choices[best].cut_short);
    if (private->pool.failed)
        return symm__program_nomem(program);
    status = symm_program_hash(program, &plan->program_hash);
    if (status == SYMM_OK)
        status = symm__plan_certify(private, lives, choices[best].offsets);
    if (status == SYMM_OK)
        status = symm__plan_frees(private, order, lives);
    if (status != SYMM_OK)
        return status;
    status = symm_plan_run_hash(plan, &plan->run_hash);
    plan->plan_hash = symm__plan_hash_over(plan, plan->run_hash);
    plan->has_run_hash = plan->has_plan_hash = true;
    return status;
}

static symm_status check_options(const symm_plan_options *options)
{
    if (options->size != sizeof(*options))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_options.size: found %zu, allowed: %zu",
                          options->size, sizeof(*options));
    if (!(options->time_limit >= 0))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_options.time_limit: found %g, allowed: 0 or more",
                          options->time_limit);
    if (options->previous && options->previous->size != sizeof(*options->previous))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_options.previous: its size is %zu, this library's "
                          "is %zu",
                          options->previous->size, sizeof(*options->previous));
    if (options->previous && options->algorithm)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_plan_options: found previous and algorithm, allowed: "
                          "one of them: what has not changed keeps its algorithm");
    return SYMM_OK;
}

/* A put whose source is its destination overwrites bytes that a peer may still send. */
static symm_status check_puts(const symm_program *program)
{
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (op->kind == SYMM_PROGRAM_PUT && op->in == op->out)
            return symm__fail(
                SYMM_ERR_INVALID,
                "program %s: ops[%d] (put %s): found %s as src and dst, allowed: two "
                "buffers, for a peer would overwrite what is still to be sent",
                program->name, i, op->site, program->buffers[op->in].name);
    }
    return SYMM_OK;
}

static symm_status make_in_order(const symm_plan_options *options, struct order *order,
                                 struct plan_private *private)
{
    struct pool pool = {0};
    struct lifetimes lives;
    struct choice again, *choices = &again;
    int count = 1, best = 0;
    symm_status status;

    if (options->previous) {
        status = symm__plan_again(&pool, order, options, &again, &lives);
    } else {
        status = symm__plan_choose(&pool, order, options, &choices, &count, &best);
        if (status == SYMM_OK)
            status = symm__plan_complete(&pool, order, options, &choices[best], &lives);
    }
    if (status == SYMM_OK) {
        status = fill(private, order, options, choices, count, best, &lives);
        symm__lifetimes_finish(&lives);
    }
    symm__pool_free(&pool);
    return status;
}

symm_status symm_plan_make(symm_program *program, const symm_plan_options *options,
                           symm_plan **plan)
{
    static const symm_plan_options defaults = {.size = sizeof(defaults)};
    struct plan_private *private;
    struct order order;
    symm_status status;

    if (!program || !plan)
        return symm__fail_null("symm_plan_make", program ? "plan" : "program");
    options = options ? options : &defaults;
    status = check_options(options);
    if (status == SYMM_OK)
        status = symm_program_finish(program);
    if (status == SYMM_OK)
        status = check_puts(program);
    if (status == SYMM_OK)
        status = symm__order_init(&order, program);
    if (status != SYMM_OK)
        return status;
    private = symm__plan_new();
    status = private ? make_in_order(options, &order, private)
                     : symm__program_nomem(program);
    symm__order_finish(&order);
    if (status != SYMM_OK) {
        symm_plan_destroy(private ? &private->plan : NULL);
        return status;
    }
    *plan = &private->plan;
    return SYMM_OK;
}
