/* SPDX-License-Identifier: MIT */
/*
 * order.c - the fixed tables of an order (order.h): streams, chains, depends, accesses.
 *
 * A chain is a sequence of ops on one rank that end one after the other: a stream, or the
 * even and the odd ops of a stream that has ops which start early, for such an op and the
 * one before it are not ordered. A depend runs no kernel and is not counted.
 */
#include "order.h"

#include <stdlib.h>
#include <string.h>

#include "program_private.h"
#include "status.h"

#define MAX_MARKS ((size_t)1 << 27) /* of one table: 1 GiB */

static symm_status nomem(const struct order *order)
{
    return symm__program_nomem(order->program);
}

static void number_streams(struct order *order)
{
    const symm_program *program = order->program;

    for (int s = 0; s < program->stream_count; s++)
        order->streams_used[s] = -1;
    for (int i = 0; i < program->op_count; i++) {
        int op = program->order[i], stream = program->ops[op].stream;
        if (order->streams_used[stream] < 0)
            order->streams_used[stream] = order->stream_count++;
        order->rank_of_op[op] = i;
        order->seat[op] = order->seats[stream];
        order->seats[stream] += program->ops[op].kind != SYMM_PROGRAM_DEPEND;
        if (program->ops[op].early_start)
            order->halves = 2;
    }
}

/*
 * A depend waits for the last op before it in the list on the other stream, and so for all
 * before that one. If more of that stream can be issued first, its clocks are kept. With
 * no op of that stream before it in the period, it orders nothing: not the period before.
 * On its own stream it holds back what starts early.
 */
static void find_depends(struct order *order)
{
    const symm_program *program = order->program;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        order->depends_on[i] = -1;
        if (op->kind == SYMM_PROGRAM_WAIT)
            order->waited[op->put] = true;
        if (op->kind != SYMM_PROGRAM_DEPEND)
            continue;
        for (int j = i - 1; j >= 0 && order->depends_on[i] < 0; j--)
            if (program->ops[j].stream == op->on)
                order->depends_on[i] = j;
        if (order->depends_on[i] < 0)
            continue;
        for (int j = i + 1; j < program->op_count; j++)
            if (program->ops[j].stream == op->on &&
                order->rank_of_op[j] < order->rank_of_op[i])
                order->kept[order->depends_on[i]] = true;
    }
}

static void find_places(struct order *order)
{
    const symm_program *program = order->program;

    for (int g = 0; g < program->group_count; g++) {
        const symm_program_group *group = &program->groups[g];
        for (int i = 0; i < program->world; i++) {
            int at = g * program->world + group->ranks[i];
            order->list_of[at] = i / group->length;
            order->place_of[at] = i % group->length;
        }
    }
}

symm_status symm__order_init(struct order *order, const symm_program *program)
{
    struct pool *pool = &order->pool;
    const size_t ops = (size_t)program->op_count + 1;
    const size_t world = (size_t)program->world;
    size_t places, marks;

    *order = (struct order){.program = program, .halves = 1};
    places = (size_t)program->group_count * world;
    order->entry = symm__pool_alloc(pool, ops, sizeof(bool));
    order->exit = symm__pool_alloc(pool, ops, sizeof(bool));
    order->kept = symm__pool_alloc(pool, ops, sizeof(bool));
    order->waited = symm__pool_alloc(pool, ops, sizeof(bool));
    order->rank_of_op = symm__pool_alloc(pool, ops, sizeof(int));
    order->seat = symm__pool_alloc(pool, ops, sizeof(int));
    order->depends_on = symm__pool_alloc(pool, ops, sizeof(int));
    order->seats = symm__pool_alloc(pool, SYMM_PROGRAM_MAX_STREAMS, sizeof(int));
    order->streams_used = symm__pool_alloc(pool, SYMM_PROGRAM_MAX_STREAMS, sizeof(int));
    order->list_of = symm__pool_alloc(pool, places, sizeof(int));
    order->place_of = symm__pool_alloc(pool, places, sizeof(int));
    order->owners = symm__pool_alloc(pool, world, sizeof(int));
    if (!order->entry || !order->exit || !order->kept || !order->waited ||
        !order->rank_of_op || !order->seat || !order->depends_on || !order->seats ||
        !order->streams_used || !order->list_of || !order->place_of || !order->owners) {
        symm__order_finish(order);
        return nomem(order);
    }
    number_streams(order);
    find_depends(order);
    find_places(order);
    order->owner_count = symm__order_owners(program, order->owners);
    order->chains = program->world * order->stream_count * order->halves;
    marks = (size_t)order->chains * (size_t)order->chains;
    if (marks > MAX_MARKS) {
        symm__order_finish(order);
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "program %s: %d streams with ops on %d ranks are too many to "
                          "plan; use fewer streams",
                          program->name, order->stream_count, program->world);
    }
    return SYMM_OK;
}

void symm__order_finish(struct order *order)
{
    symm__pool_free(&order->pool);
    symm__pool_free(&order->access_pool);
}

/* ---- Accesses -------------------------------------------------------------------- */

static symm_status list_accesses(struct order *order)
{
    const symm_program *program = order->program;
    size_t most = 0;
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        most += 2 + (size_t)program->ops[i].buffer_count;
    order->accesses =
        symm__pool_alloc(&order->access_pool, most + 1, sizeof(*order->accesses));
    order->access_start = symm__pool_alloc(&order->access_pool,
                                           (size_t)program->op_count + 1, sizeof(int));
    order->touch = symm__pool_alloc(&order->access_pool, most + 1, sizeof(int));
    order->seat_of_access =
        symm__pool_alloc(&order->access_pool, most + 1, sizeof(int));
    if (!order->accesses || !order->access_start || !order->touch ||
        !order->seat_of_access)
        return nomem(order);
    for (int i = 0; i < program->op_count; i++) {
        order->access_start[i] = count;
        count += symm__op_accesses(program, i, order->algorithms[i],
                                   order->accesses + count);
    }
    order->access_start[program->op_count] = count;
    return SYMM_OK;
}

/* The bytes of each buffer, counted from its start, that some op reads. */
static void find_extents(const symm_program *program, size_t *extents)
{
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        size_t bytes = op->count;
        if (symm__is_collective(op->kind))
            bytes *= symm_dtype_size(op->dtype);
        if (op->in >= 0 && extents[op->in] < bytes)
            extents[op->in] = bytes;
        for (int k = 0; k < op->buffer_count; k++)
            if (op->kind == SYMM_PROGRAM_READ)
                extents[op->buffers[k]] = program->buffers[op->buffers[k]].bytes;
    }
}

/* A write in part leaves old bytes that are still needed; one in place reads them. */
static void mark_renewals(struct order *order, const size_t *extents)
{
    const symm_program *program = order->program;

    for (int a = 0; a < order->access_start[program->op_count]; a++) {
        struct access *access = &order->accesses[a];
        const symm_program_op *op = &program->ops[access->op];
        access->renews = access->writes &&
                         (op->kind == SYMM_PROGRAM_WRITE ||
                          (op->in != op->out && op->result >= extents[access->buffer]));
    }
}

/* The accesses of each buffer in the order in which the ops are issued. */
static symm_status sort_touches(struct order *order)
{
    const symm_program *program = order->program;
    const size_t buffers = (size_t)program->buffer_count + 1;
    int *fill = symm__pool_alloc(&order->access_pool, buffers, sizeof(int));
    size_t *extents = symm__pool_alloc(&order->access_pool, buffers, sizeof(size_t));

    order->touch_start = symm__pool_alloc(&order->access_pool, buffers, sizeof(int));
    order->first_touch = symm__pool_alloc(&order->access_pool, buffers, sizeof(int));
    order->first_write = symm__pool_alloc(&order->access_pool, buffers, sizeof(int));
    order->before_first =
        symm__pool_alloc(&order->access_pool, 2 * buffers * (size_t)order->owner_count,
                         (size_t)order->chains * sizeof(*order->before_first));
    if (!fill || !extents || !order->touch_start || !order->first_touch ||
        !order->first_write || !order->before_first)
        return nomem(order);
    find_extents(program, extents);
    mark_renewals(order, extents);
    for (int a = 0; a < order->access_start[program->op_count]; a++)
        order->touch_start[order->accesses[a].buffer + 1]++;
    for (int b = 0; b < program->buffer_count; b++) {
        order->touch_start[b + 1] += order->touch_start[b];
        fill[b] = order->touch_start[b];
        order->first_touch[b] = order->first_write[b] = -1;
    }
    for (int i = 0; i < program->op_count; i++) {
        int op = program->order[i];
        for (int a = order->access_start[op]; a < order->access_start[op + 1]; a++) {
            int b = order->accesses[a].buffer;
            order->seat_of_access[a] = fill[b] - order->touch_start[b];
            if (order->accesses[a].renews && order->first_touch[b] < 0)
                order->first_touch[b] = order->first_write[b] = fill[b];
            if (order->accesses[a].writes && order->first_write[b] < 0)
                order->first_write[b] = fill[b];
            order->touch[fill[b]++] = a;
        }
    }
    return SYMM_OK;
}

symm_status symm__order_set(struct order *order, const symm_plan_algorithm *algorithms)
{
    const size_t ops = (size_t)order->program->op_count;
    symm_status status;

    symm__pool_free(&order->access_pool);
    order->algorithms = algorithms;
    memset(order->entry, 0, ops * sizeof(bool));
    memset(order->exit, 0, ops * sizeof(bool));
    status = list_accesses(order);
    return status == SYMM_OK ? sort_touches(order) : status;
}

/* ---- Small questions ------------------------------------------------------------- */

uint32_t symm__order_moment(const struct order *order, int op, int period,
                            enum point point)
{
    uint32_t turn =
        (uint32_t)(period * order->program->op_count) + (uint32_t)order->rank_of_op[op];

    return (turn << 3 | (uint32_t)point) + 1;
}

int symm__order_chain(const struct order *order, int rank, int op, int period)
{
    const int stream = order->program->ops[op].stream;
    int chain = rank * order->stream_count + order->streams_used[stream];

    if (order->halves == 1)
        return chain;
    return 2 * chain + (order->seat[op] + period * order->seats[stream]) % 2;
}

const int *symm__order_actors(const struct order *order, const struct access *access,
                              int owner, int *count)
{
    const symm_program *program = order->program;
    const symm_program_op *op = &program->ops[access->op];
    const symm_program_group *group = &program->groups[op->group];
    const int at = op->group * program->world + owner;
    const int place = order->place_of[at];
    const int *list = group->ranks + order->list_of[at] * group->length;

    *count = 1;
    switch (access->who) {
    case ACTOR_ROOT_GROUP:
        if (place != op->root)
            return &program->groups[0].ranks[owner];
        *count = group->length;
        return list;
    case ACTOR_GROUP:
        *count = group->length;
        return list;
    case ACTOR_ROOT:
        return list + op->root;
    case ACTOR_SENDER:
        return list + (place - op->shift + group->length) % group->length;
    default:
        return &program->groups[0].ranks[owner];
    }
}

const struct mark *symm__order_first(const struct order *order, int buffer, int period,
                                     int owner_index)
{
    size_t row = ((size_t)buffer * 2 + (size_t)period) * (size_t)order->owner_count +
                 (size_t)owner_index;

    return order->before_first + row * (size_t)order->chains;
}

const char *symm__access_label(const symm_program *program, const struct access *access)
{
    const symm_program_op *op = &program->ops[access->op];

    return op->site ? op->site : symm_program_kind_name(op->kind);
}
