/* SPDX-License-Identifier: MIT */
/*
 * fit.c - checks that a plan belongs to this program; lists what each op touches under it.
 *
 * Which ranks touch an owner's copy, by algorithm ("inside" is a barrier of the algorithm's
 * own; in a broadcast "every" is every rank for the root's copy and the owner for others):
 *   ll_push lamport_push two_shot_push copy_in   own in and out, until the end; pushed
 *   engine                                       the same, but not pushed
 *   one_shot_pull      every rank's in, own out (broadcast: every rank's out too)
 *   multimem_one_shot  every rank's in, own out; only sums
 *   two_shot_pull      every rank's in until the barrier inside, own out from there on
 *   two_shot_inplace multimem_two_shot           every rank's in and out
 *   copy_engine        own in, every rank's out (broadcast: by the root)
 *   put                own src, the receiver's dst by the sender, until the end
 *   write, read        own buffers, from the start to the end
 * "Pushed": a rank completes only with data of the others (of a broadcast: the root's), so
 * after they have started.
 * An all_reduce_norm is an all_reduce of sums into one of its outputs, an exit barrier if peers
 * touch arrays in it, and a part that touches the rank's own arrays alone. That part, or a kernel
 * that does both, reads arrays from the start and writes them when all sums have arrived.
 */
#include "check/check.h"

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
    if (plan->has_run_hash) {
        if ((c->status = symm_plan_run_hash(plan, &hash)) != SYMM_OK)
            return false;
        if (hash != plan->run_hash)
            return symm__check_refuse(
                c,
                "run_hash is %016" PRIx64
                ", but what ranks load of the plan has %016" PRIx64,
                plan->run_hash, hash);
    }
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
    if (plan->loop != program->loop)
        return symm__check_refuse(c, "loop is %s in the plan and %s in the program",
                                  plan->loop ? "true" : "false",
                                  program->loop ? "true" : "false");
    if (!plan->has_proof)
        return symm__check_refuse(c, "the plan was read without its proof");
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
        if (placed->bytes != buffer->bytes || placed->alloc_id != buffer->alloc_id)
            return symm__check_refuse(
                c,
                "buffer %s has %zu bytes and alloc_id %" PRIu64
                " in the plan; the program gives it %zu bytes and alloc_id %" PRIu64,
                placed->name, placed->bytes, placed->alloc_id, buffer->bytes,
                buffer->alloc_id);
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

static struct check_access *touch(struct check *c, struct check_op *op, int buffer,
                                  size_t bytes, bool write, enum check_who who)
{
    struct check_access *access = &op->accesses[op->access_count++];

    *access = (struct check_access){.buffer = buffer,
                                    .write = write,
                                    .who = who,
                                    .from = CHECK_PASS,
                                    .to = CHECK_BODY,
                                    .op = (int)(op - c->ops),
                                    .bytes = bytes};
    return access;
}

/* Why the algorithm cannot do the collective; NULL: it can. */
static const char *objection(const symm_program_op *o, symm_algorithm algorithm)
{
    const bool all =
        o->kind == SYMM_PROGRAM_ALL_REDUCE || o->kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
    const bool sums = all || o->kind == SYMM_PROGRAM_REDUCE_SCATTER;

    switch (algorithm) {
    case SYMM_ALGORITHM_LL_PUSH:
    case SYMM_ALGORITHM_LAMPORT_PUSH:
    case SYMM_ALGORITHM_COPY_IN:
    case SYMM_ALGORITHM_ENGINE:
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
        return NULL;
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return all ? NULL : "does all_reduce only";
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        return sums ? NULL : "only reduces";
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        if (!all)
            return "does all_reduce only";
        return o->out < 0 ? "writes to other ranks, but `out` is private" : NULL;
    case SYMM_ALGORITHM_COPY_ENGINE:
        if (o->out < 0)
            return "writes to other ranks, but `out` is private";
        return sums ? "does not reduce" : NULL;
    default:
        return "is not an algorithm for a collective";
    }
}

static bool touch_collective(struct check *c, struct check_op *op)
{
    const symm_program_op *o = op->op;
    const symm_algorithm algorithm = op->planned->algorithm;
    const bool broadcast = o->kind == SYMM_PROGRAM_BROADCAST;
    const enum check_who pulled = broadcast ? CHECK_READERS : CHECK_EVERY;
    const char *why = objection(o, algorithm);
    struct check_access in = {.who = CHECK_SELF, .to = CHECK_END};
    struct check_access out = in;

    if (why)
        return symm__check_refuse_op(c, op, ": %s %s", symm_algorithm_name(algorithm),
                                     why);
    switch (algorithm) {
    case SYMM_ALGORITHM_ENGINE:
        break;
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        in.who = pulled;
        out.who = broadcast ? CHECK_READERS : CHECK_SELF;
        in.to = out.to = CHECK_BODY;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        op->inside = true;
        in.who = CHECK_EVERY;
        in.to = CHECK_READ;
        out.to = CHECK_BODY;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        in.who = out.who = CHECK_EVERY;
        in.to = out.to = CHECK_BODY;
        break;
    case SYMM_ALGORITHM_COPY_ENGINE:
        out.who = broadcast ? CHECK_ROOT : CHECK_EVERY;
        in.to = out.to = CHECK_BODY;
        break;
    default:
        op->pushed = true;
        break;
    }
    touch(c, op, o->in, o->count * symm_dtype_size(o->dtype), false, in.who)->to =
        in.to;
    if (o->out >= 0) {
        struct check_access *made = touch(c, op, o->out, o->result, true, out.who);
        made->to = out.to;
        made->from = op->inside ? CHECK_MIDDLE : CHECK_PASS;
    }
    return true;
}

static void touch_array(struct check *c, struct check_op *op, symm_program_array array,
                        size_t bytes, bool write)
{
    struct check_access *made;

    if (!array.given || array.buffer < 0)
        return;
    made = touch(c, op, array.buffer, bytes, write, CHECK_SELF);
    made->from = write ? CHECK_REST : CHECK_PASS;
    made->to = CHECK_END;
}

static bool touch_norm(struct check *c, struct check_op *op)
{
    const symm_program_op *o = op->op;
    const symm_program_norm *n = &c->program->norms[o->norm];
    const size_t all = o->count * symm_dtype_size(o->dtype);
    const size_t row = n->hidden * symm_dtype_size(o->dtype);
    const size_t scales =
        symm_norm_scales(n->quant, o->count / n->hidden, n->hidden) * sizeof(float);
    const bool reads_scale = n->quant == SYMM_NORM_QUANT_TENSOR;

    touch_array(c, op, n->bias, row, false);
    touch_array(c, op, n->residual_in, all, false);
    touch_array(c, op, n->weight, row, false);
    if (reads_scale)
        touch_array(c, op, n->scale, scales, false);
    if (!touch_collective(c, op))
        return false;
    touch_array(c, op, n->sum_out, all, true);
    touch_array(c, op, n->residual_out, all, true);
    touch_array(c, op, n->norm_out, all, true);
    touch_array(c, op, n->quant_out, o->count, true);
    if (!reads_scale)
        touch_array(c, op, n->scale, scales, true);
    if (op->exit || op->pushed || op->planned->algorithm == SYMM_ALGORITHM_ENGINE)
        return true;
    return symm__check_refuse_op(
        c, op,
        " has no exit barrier: by %s peers touch a rank's arrays, which the rank "
        "overwrites after the sum",
        symm_algorithm_name(op->planned->algorithm));
}

/* Whether `in` may be `out`: no peer reads bytes that the same op overwrites. */
static bool may_be_in_place(const struct check *c, const struct check_op *op)
{
    if (c->program->partitions[op->op->partition].length == 1)
        return true;
    if (op->op->kind == SYMM_PROGRAM_PUT)
        return op->op->shift == 0;
    switch (op->planned->algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
    case SYMM_ALGORITHM_COPY_ENGINE:
        return false;
    default: /* each member of two_shot_inplace reads and writes a part of its own */
        return true;
    }
}

static bool share_bytes(const struct check *c, int a, int b)
{
    const symm_plan_buffer *x = &c->plan->buffers[a], *y = &c->plan->buffers[b];

    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool refuse_shared(struct check *c, const struct check_op *op, int a, int b)
{
    return symm__check_refuse_op(
        c, op, " uses buffers %s and %s at once, and they share bytes",
        c->program->buffers[a].name, c->program->buffers[b].name);
}

static int compare_places(const void *left, const void *right, void *arg)
{
    const int a = *(const int *)left, b = *(const int *)right;
    const symm_plan *plan = arg;
    const size_t x = plan->buffers[a].offset, y = plan->buffers[b].offset;

    return x != y ? (x < y ? -1 : 1) : a < b ? -1 : a > b;
}

/* A write of any number of buffers: of those before it, only the one that ends last counts. */
static bool fit_inside_write(struct check *c, const struct check_op *op)
{
    const int count = op->op->buffer_count;
    int *sorted = symm__pool_alloc(&c->pool, (size_t)count + 1, sizeof(*sorted));
    int last = 0;

    if (!sorted)
        return symm__check_nomem(c);
    memcpy(sorted, op->op->buffers, (size_t)count * sizeof(*sorted));
    qsort_r(sorted, (size_t)count, sizeof(*sorted), compare_places,
            (void *)(uintptr_t)c->plan);
    for (int i = 1; i < count; i++) {
        const symm_plan_buffer *x = &c->plan->buffers[sorted[last]];
        const symm_plan_buffer *y = &c->plan->buffers[sorted[i]];
        if (sorted[i] == sorted[last])
            continue;
        if (share_bytes(c, sorted[last], sorted[i]))
            return refuse_shared(c, op, sorted[last], sorted[i]);
        if (y->offset + y->bytes > x->offset + x->bytes)
            last = i;
    }
    return true;
}

static bool fit_inside_call(struct check *c, const struct check_op *op)
{
    for (int i = 0; i < op->access_count; i++)
        for (int j = 0; j < i; j++) {
            const struct check_access *a = &op->accesses[j], *b = &op->accesses[i];
            if (a->buffer != b->buffer && share_bytes(c, a->buffer, b->buffer))
                return refuse_shared(c, op, a->buffer, b->buffer);
            /* What an all_reduce_norm writes after its exit barrier no peer reads any more. */
            if (a->buffer == b->buffer && b->from != CHECK_REST &&
                (a->write || b->write) && !may_be_in_place(c, op))
                return symm__check_refuse_op(
                    c, op,
                    " cannot be in place in buffer %s: with %s a rank reads what "
                    "another overwrites",
                    c->program->buffers[a->buffer].name,
                    symm_algorithm_name(op->planned->algorithm));
        }
    return true;
}

static bool fit_op(struct check *c, struct check_op *op)
{
    const symm_program_op *o = op->op;

    if (op->planned) {
        const bool put = o->kind == SYMM_PROGRAM_PUT;
        op->entry = op->planned->entry_barrier;
        op->exit = op->planned->exit_barrier;
        if (put != (op->planned->algorithm == SYMM_ALGORITHM_PUT) || (put && op->exit))
            return symm__check_refuse_op(c, op, ": %s%s is not for such an op",
                                         symm_algorithm_name(op->planned->algorithm),
                                         op->exit ? " with an exit barrier" : "");
        if (op->planned->norm != (o->kind == SYMM_PROGRAM_ALL_REDUCE_NORM))
            return symm__check_refuse_op(c, op, ": the plan has %s at this site",
                                         op->planned->norm ? "an all_reduce_norm"
                                                           : "no all_reduce_norm");
        if (op->planned->up_to != (!o->up_to ? 0
                                   : put     ? o->count
                                             : o->count * symm_dtype_size(o->dtype)))
            return symm__check_refuse_op(
                c, op, ": the plan is for up to %zu bytes, the program says otherwise",
                op->planned->up_to);
        if (put) {
            touch(c, op, o->in, o->count, false, CHECK_SELF)->to = CHECK_END;
            touch(c, op, o->out, o->result, true, CHECK_SENDER)->to = CHECK_END;
        } else if (op->planned->norm ? !touch_norm(c, op) : !touch_collective(c, op)) {
            return false;
        }
    }
    for (int k = 0; k < o->buffer_count; k++) {
        struct check_access *access =
            touch(c, op, o->buffers[k], c->program->buffers[o->buffers[k]].bytes,
                  o->kind == SYMM_PROGRAM_WRITE, CHECK_SELF);
        access->from = CHECK_START;
        access->to = CHECK_END;
    }
    if (op->planned)
        return fit_inside_call(c, op);
    return o->kind != SYMM_PROGRAM_WRITE || fit_inside_write(c, op);
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
        struct check_op *issued = &c->ops[positions[i]];
        bool good = positions[i] > last[op->stream];
        if (op->kind == SYMM_PROGRAM_WAIT)
            good = good && op->put >= 0 && positions[op->put] < positions[i] &&
                   c->ops[positions[op->put]].wait < 0;
        if (op->kind == SYMM_PROGRAM_DEPEND) {
            good = good && last[op->on] < positions[i];
            issued->after = last[op->on];
        }
        if (!good)
            return symm__check_refuse(
                c, "op %d of the program is issued before something that it waits for",
                i);
        if (op->kind == SYMM_PROGRAM_WAIT) {
            c->ops[positions[op->put]].wait = positions[i];
            issued->put = positions[op->put];
        }
        last[op->stream] = positions[i];
    }
    return true;
}

static int compare_channels(const void *left, const void *right)
{
    const struct check_op *a = *(const struct check_op *const *)left;
    const struct check_op *b = *(const struct check_op *const *)right;

    if (a->op->partition != b->op->partition)
        return a->op->partition < b->op->partition ? -1 : 1;
    if (a->planned->channel != b->planned->channel)
        return a->planned->channel < b->planned->channel ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Ops of two streams in one team, on one channel, could wait for each other's words. */
static bool fit_channels(struct check *c)
{
    const struct check_op **sorted =
        symm__pool_alloc(&c->pool, (size_t)c->op_count + 1, sizeof(*sorted));
    size_t count = 0;
    char name[128];
    bool good = true;

    if (!sorted)
        return symm__check_nomem(c);
    for (int i = 0; i < c->op_count; i++)
        if (c->ops[i].planned)
            sorted[count++] = &c->ops[i];
    qsort(sorted, count, sizeof(*sorted), compare_channels);
    for (size_t i = 0; i < count && good; i++) {
        const struct check_op *op = sorted[i], *before = i ? sorted[i - 1] : op;
        if (op->planned->channel < 0)
            good =
                symm__check_refuse_op(c, op, " is on channel %d", op->planned->channel);
        else if (before->op->partition == op->op->partition &&
                 before->planned->channel == op->planned->channel &&
                 before->op->stream != op->op->stream)
            good = symm__check_refuse_op(
                c, before, " and %s are on channel %d in different streams",
                symm__check_name(op, name, sizeof(name)), op->planned->channel);
    }
    return good;
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
        op->wait = op->put = op->after = -1;
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
    c->access_count = (int)(next - c->accesses);
    return good && fit_channels(c) && fit_order(c, positions);
}

bool symm__check_fit(struct check *c)
{
    const symm_program *program = c->program;
    size_t accesses = 1;
    int *positions;

    if (!fit_header(c) || !fit_buffers(c))
        return false;
    c->op_count = program->op_count;
    for (int i = 0; i < c->op_count; i++)
        accesses += (size_t)program->ops[i].buffer_count +
                    (program->ops[i].kind == SYMM_PROGRAM_ALL_REDUCE_NORM ? 10 : 2);
    c->ops = symm__pool_alloc(&c->pool, (size_t)c->op_count + 1, sizeof(*c->ops));
    c->accesses = symm__pool_alloc(&c->pool, accesses, sizeof(*c->accesses));
    c->places = symm__pool_alloc(
        &c->pool, (size_t)program->partition_count * (size_t)program->world,
        sizeof(*c->places));
    positions = symm__pool_alloc(&c->pool, (size_t)c->op_count + 1, sizeof(*positions));
    if (c->pool.failed)
        return symm__check_nomem(c);
    for (int g = 0; g < program->partition_count; g++)
        for (int k = 0; k < program->world; k++)
            c->places[g * program->world + program->partitions[g].ranks[k]] = k;
    return fit_ops(c, positions);
}
