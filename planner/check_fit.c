/* SPDX-License-Identifier: MIT */
/*
 * check_fit.c - that a plan is one of this program, and what each op touches under it.
 *
 * Who touches what, by algorithm ("inside" is a barrier of the algorithm's own; of a
 * broadcast only the root's `in` counts, and only the root pushes or copies):
 *   ll_push lamport_push two_shot_push copy_in engine   own in, own out; pushed
 *   one_shot_pull multimem_one_shot                     everybody's in, own out
 *   two_shot_pull      everybody's in until the barrier inside, own out
 *   two_shot_inplace multimem_two_shot                  everybody's in and out
 *   copy_engine                                         own in, everybody's out
 *   put                                                 own src, the receiver's dst
 *   write, read                                         own buffers
 * "Pushed": a rank completes only with data of the others (of a broadcast: the root's), so
 * after they have started.
 */
#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool fit_header(struct check *c)
{
    const symm_program *program = c->program;
    const symm_plan *plan = c->plan;
    uint64_t hash;

    if ((c->status = symm_program_hash(program, &hash)) != SYMM_OK)
        return false;
    if (hash != plan->program_hash)
        return symm__check_refuse(c,
                                  "the plan is of a program with hash %016" PRIx64
                                  ", this one has %016" PRIx64,
                                  plan->program_hash, hash);
    if (plan->has_plan_hash) {
        if ((c->status = symm_plan_hash(plan, &hash)) != SYMM_OK)
            return false;
        if (hash != plan->plan_hash)
            return symm__check_refuse(c,
                                      "plan_hash is %016" PRIx64
                                      ", but the plan's content has %016" PRIx64,
                                      plan->plan_hash, hash);
    }
    if (plan->world != program->world)
        return symm__check_refuse(c, "the plan is for %d ranks, the program for %d",
                                  plan->world, program->world);
    return true;
}

static bool fit_buffers(struct check *c)
{
    const symm_program *program = c->program;
    const symm_plan *plan = c->plan;

    if (plan->buffer_count != program->buffer_count)
        return symm__check_refuse(c, "the plan places %d buffers, the program has %d",
                                  plan->buffer_count, program->buffer_count);
    for (int i = 0; i < plan->buffer_count; i++) {
        const symm_plan_buffer *placed = &plan->buffers[i];
        const symm_program_buffer *buffer = &program->buffers[i];
        size_t end;
        if (strcmp(placed->name, buffer->name) != 0)
            return symm__check_refuse(c,
                                      "buffer %d of the plan is %s, of the program %s",
                                      i, placed->name, buffer->name);
        if (placed->bytes != buffer->bytes || placed->alloc_id != (uint64_t)i + 1)
            return symm__check_refuse(
                c,
                "buffer %s has %zu bytes and alloc_id %" PRIu64
                " in the plan; the program gives it %zu bytes and alloc_id %d",
                placed->name, placed->bytes, placed->alloc_id, buffer->bytes, i + 1);
        if (placed->offset % SYMM_PLAN_ALIGNMENT != 0 ||
            __builtin_add_overflow(placed->offset, placed->bytes, &end) ||
            end > plan->arena_bytes)
            return symm__check_refuse(
                c,
                "buffer %s, %zu bytes at offset %zu, is not at a multiple of %d inside "
                "the arena of %zu bytes",
                placed->name, placed->bytes, placed->offset, SYMM_PLAN_ALIGNMENT,
                plan->arena_bytes);
    }
    return true;
}

/* ---- What ops touch -------------------------------------------------------------- */

static void touch(struct check *c, struct check_op *op, int buffer, size_t bytes,
                  bool write, enum check_who who)
{
    struct check_access *access = &op->accesses[op->access_count];

    access->buffer = buffer;
    access->write = write;
    access->ends_inside = !write && op->inside;
    access->who = who;
    access->low = c->plan->buffers[buffer].offset;
    access->high = access->low + bytes;
    op->access_count++;
}

static bool touch_collective(struct check *c, struct check_op *op)
{
    const symm_program_op *o = op->op;
    const symm_plan_algorithm algorithm = op->planned->algorithm;
    const bool broadcast = o->kind == SYMM_PROGRAM_BROADCAST;
    const enum check_who own = broadcast ? CHECK_ROOT : CHECK_SELF;
    const enum check_who pull = broadcast ? CHECK_FROM_ROOT : CHECK_EVERY;
    enum check_who in = pull, out = CHECK_SELF;
    char name[128];

    switch (algorithm) {
    case SYMM_PLAN_LL_PUSH:
    case SYMM_PLAN_LAMPORT_PUSH:
    case SYMM_PLAN_TWO_SHOT_PUSH:
    case SYMM_PLAN_COPY_IN:
    case SYMM_PLAN_ENGINE:
        op->pushed = true;
        in = own;
        break;
    case SYMM_PLAN_ONE_SHOT_PULL:
    case SYMM_PLAN_MULTIMEM_ONE_SHOT:
        break;
    case SYMM_PLAN_TWO_SHOT_PULL:
        op->inside = true;
        break;
    case SYMM_PLAN_TWO_SHOT_INPLACE:
    case SYMM_PLAN_MULTIMEM_TWO_SHOT:
        out = CHECK_EVERY;
        break;
    case SYMM_PLAN_COPY_ENGINE:
        in = own;
        out = broadcast ? CHECK_BY_ROOT : CHECK_EVERY;
        break;
    default:
        return symm__check_refuse(c, "%s: %s is not an algorithm for a collective",
                                  symm__check_name(op, name, sizeof(name)),
                                  symm_plan_algorithm_name(algorithm));
    }
    if (out != CHECK_SELF && o->out < 0)
        return symm__check_refuse(c,
                                  "%s: %s writes to other ranks, but `out` is private",
                                  symm__check_name(op, name, sizeof(name)),
                                  symm_plan_algorithm_name(algorithm));
    touch(c, op, o->in, o->count * symm_dtype_size(o->dtype), false, in);
    if (o->out >= 0)
        touch(c, op, o->out, o->result, true, out);
    return true;
}

/* Whether `in` may be `out`: peers never read what the same op overwrites. */
static bool may_be_in_place(const struct check *c, const struct check_op *op)
{
    const symm_program_kind kind = op->op->kind;

    if (c->program->groups[op->op->group].length == 1)
        return true;
    if (kind == SYMM_PROGRAM_PUT)
        return op->op->shift == 0;
    switch (op->planned->algorithm) {
    case SYMM_PLAN_ONE_SHOT_PULL:
    case SYMM_PLAN_MULTIMEM_ONE_SHOT:
        return false;
    case SYMM_PLAN_TWO_SHOT_INPLACE: /* each member reads and writes a part of its own */
    case SYMM_PLAN_MULTIMEM_TWO_SHOT:
        return kind == SYMM_PROGRAM_ALL_REDUCE || kind == SYMM_PROGRAM_BROADCAST;
    case SYMM_PLAN_COPY_ENGINE:
        return kind == SYMM_PROGRAM_BROADCAST;
    default:
        return true;
    }
}

static bool fit_inside_op(struct check *c, const struct check_op *op)
{
    char name[128];

    for (int i = 0; i < op->access_count; i++)
        for (int j = 0; j < i; j++) {
            const struct check_access *a = &op->accesses[j], *b = &op->accesses[i];
            if (!symm__check_conflict(a, b))
                continue;
            if (a->buffer != b->buffer)
                return symm__check_refuse(
                    c, "%s uses buffers %s and %s at once, and they share bytes",
                    symm__check_name(op, name, sizeof(name)),
                    c->program->buffers[a->buffer].name,
                    c->program->buffers[b->buffer].name);
            if (op->planned && !may_be_in_place(c, op))
                return symm__check_refuse(
                    c,
                    "%s cannot be in place in buffer %s: with %s a rank reads what "
                    "another overwrites",
                    symm__check_name(op, name, sizeof(name)),
                    c->program->buffers[a->buffer].name,
                    symm_plan_algorithm_name(op->planned->algorithm));
        }
    return true;
}

static bool fit_op(struct check *c, struct check_op *op)
{
    const symm_program_op *o = op->op;
    char name[128];

    if (op->planned) {
        const bool put = o->kind == SYMM_PROGRAM_PUT;
        op->entry = op->planned->entry_barrier;
        op->exit = op->planned->exit_barrier;
        if (put != (op->planned->algorithm == SYMM_PLAN_PUT) || (put && op->exit))
            return symm__check_refuse(c, "%s: %s%s is not for such an op",
                                      symm__check_name(op, name, sizeof(name)),
                                      symm_plan_algorithm_name(op->planned->algorithm),
                                      op->exit ? " with an exit barrier" : "");
        if (put) {
            touch(c, op, o->in, o->count, false, CHECK_SELF);
            touch(c, op, o->out, o->result, true, CHECK_SENDER);
        } else if (!touch_collective(c, op)) {
            return false;
        }
    }
    for (int k = 0; k < o->buffer_count; k++)
        touch(c, op, o->buffers[k], c->program->buffers[o->buffers[k]].bytes,
              o->kind == SYMM_PROGRAM_WRITE, CHECK_SELF);
    return fit_inside_op(c, op);
}

/* ---- All ops --------------------------------------------------------------------- */

/* Everything an op waits for must be earlier in the order of issue. */
static bool fit_order(struct check *c, const int *positions)
{
    const symm_program *program = c->program;
    int last[SYMM_PROGRAM_MAX_STREAMS]; /* position of the op before, by stream */

    for (int s = 0; s < program->stream_count; s++)
        last[s] = -1;
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        bool good = positions[i] > last[op->stream];
        if (op->kind == SYMM_PROGRAM_WAIT)
            good = good && op->put >= 0 && positions[op->put] < positions[i] &&
                   c->ops[positions[op->put]].wait < 0;
        if (op->kind == SYMM_PROGRAM_DEPEND)
            good = good && last[op->on] < positions[i];
        if (!good)
            return symm__check_refuse(
                c, "op %d of the program is issued before something that it waits for",
                i);
        if (op->kind == SYMM_PROGRAM_WAIT)
            c->ops[positions[op->put]].wait = positions[i];
        last[op->stream] = positions[i];
    }
    return true;
}

/* Ops of two streams in one team, on one channel, could wait for each other's words. */
static bool fit_channel(struct check *c, const struct check_op *op)
{
    char name[128], other[128];

    if (op->planned->channel < 0)
        return symm__check_refuse(c, "%s is on channel %d",
                                  symm__check_name(op, name, sizeof(name)),
                                  op->planned->channel);
    for (int i = 0; i < c->op_count && &c->ops[i] != op; i++) {
        const struct check_op *before = &c->ops[i];
        if (before->planned && before->op->group == op->op->group &&
            before->planned->channel == op->planned->channel &&
            before->op->stream != op->op->stream)
            return symm__check_refuse(
                c, "%s and %s are on channel %d in different streams",
                symm__check_name(before, other, sizeof(other)),
                symm__check_name(op, name, sizeof(name)), op->planned->channel);
    }
    return true;
}

static bool fit_ops(struct check *c, int *positions)
{
    const symm_program *program = c->program;
    struct check_access *next = c->accesses;
    int planned = 0;
    bool good = true;

    for (int i = 0; i < c->op_count; i++)
        positions[i] = -1;
    for (int i = 0; i < c->op_count; i++) {
        struct check_op *op = &c->ops[i];
        op->listed = program->order[i];
        if (op->listed < 0 || op->listed >= c->op_count || positions[op->listed] >= 0)
            return symm__check_refuse(c, "the program's order of issue is damaged");
        op->op = &program->ops[op->listed];
        op->wait = -1;
        positions[op->listed] = i;
    }
    for (int i = 0; good && i < c->op_count; i++) {
        struct check_op *op = &c->ops[positions[i]];
        const bool site = op->op->site && op->op->kind != SYMM_PROGRAM_WAIT;
        if (site && (planned == c->plan->op_count ||
                     strcmp(c->plan->ops[planned].site, op->op->site) != 0))
            return symm__check_refuse(
                c, "op %d, site %s, is not in its place in the plan", i, op->op->site);
        op->planned = site ? &c->plan->ops[planned++] : NULL;
        op->accesses = next;
        good = fit_op(c, op);
        next += op->access_count;
    }
    if (good && planned != c->plan->op_count)
        return symm__check_refuse(c, "the plan's site %s is not in the program",
                                  c->plan->ops[planned].site);
    for (int i = 0; good && i < c->op_count; i++)
        good = !c->ops[i].planned || fit_channel(c, &c->ops[i]);
    return good && fit_order(c, positions);
}

bool symm__check_fit(struct check *c)
{
    const symm_program *program = c->program;
    size_t accesses = 1;
    int *positions;
    bool good;

    if (!fit_header(c) || !fit_buffers(c))
        return false;
    c->op_count = program->op_count;
    for (int i = 0; i < c->op_count; i++)
        accesses += (size_t)program->ops[i].buffer_count + 2;
    c->ops = calloc((size_t)c->op_count + 1, sizeof(*c->ops));
    c->accesses = calloc(accesses, sizeof(*c->accesses));
    c->places = calloc((size_t)program->group_count * (size_t)program->world,
                       sizeof(*c->places));
    positions = calloc((size_t)c->op_count + 1, sizeof(*positions));
    good = c->ops && c->accesses && c->places && positions;
    if (!good)
        symm__check_nomem(c);
    for (int g = 0; good && g < program->group_count; g++)
        for (int k = 0; k < program->world; k++)
            c->places[g * program->world + program->groups[g].ranks[k]] = k;
    good = good && fit_ops(c, positions);
    free(positions);
    return good;
}
