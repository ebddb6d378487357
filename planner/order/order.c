/* SPDX-License-Identifier: MIT */
/*
 * order.c - the fixed tables of an order (order.h): streams, lanes, depends, accesses.
 *
 * A stream that has ops which start early is two lanes, its even and its odd ops: such an op
 * and the one before it are not ordered. A depend runs no kernel and is not counted.
 */
#include "order/order.h"

#include <string.h>

#include "model/program_private.h"
#include "util/status.h"

#define MAX_CLOCKS ((size_t)1 << 27) /* moments in one table: 512 MiB */

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
 * before that one. If later ops of that stream can be issued before the depend, the clocks
 * at the end of the op are kept. A depend without an op of that stream before it in the
 * period orders nothing. On its own stream it holds back ops that start early.
 */
static void find_depends(struct order *order)
{
    const symm_program *program = order->program;
    int nearest
        [SYMM_PROGRAM_MAX_STREAMS]; /* by stream: the last op listed before, then after */

    for (int s = 0; s < program->stream_count; s++)
        nearest[s] = -1;
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        order->depends_on[i] = -1;
        if (op->kind == SYMM_PROGRAM_WAIT)
            order->waited[op->put] = true;
        if (op->kind == SYMM_PROGRAM_DEPEND)
            order->depends_on[i] = nearest[op->on];
        nearest[op->stream] = i;
    }
    for (int s = 0; s < program->stream_count; s++)
        nearest[s] = -1;
    for (int i = program->op_count - 1; i >= 0; i--) {
        const symm_program_op *op = &program->ops[i];
        int next = op->kind == SYMM_PROGRAM_DEPEND ? nearest[op->on] : -1;
        if (next >= 0 && order->depends_on[i] >= 0 &&
            order->rank_of_op[next] < order->rank_of_op[i])
            order->kept[order->depends_on[i]] = true;
        nearest[op->stream] = i;
    }
}

static bool allocate(struct order *order)
{
    const size_t ops = (size_t)order->program->op_count + 1;
    struct pool *pool = &order->pool;

    order->entry = symm__pool_alloc(pool, ops, sizeof(bool));
    order->exit = symm__pool_alloc(pool, ops, sizeof(bool));
    order->kept = symm__pool_alloc(pool, ops, sizeof(bool));
    order->waited = symm__pool_alloc(pool, ops, sizeof(bool));
    order->rank_of_op = symm__pool_alloc(pool, ops, sizeof(int));
    order->seat = symm__pool_alloc(pool, ops, sizeof(int));
    order->depends_on = symm__pool_alloc(pool, ops, sizeof(int));
    order->seats = symm__pool_alloc(pool, SYMM_PROGRAM_MAX_STREAMS, sizeof(int));
    order->streams_used = symm__pool_alloc(pool, SYMM_PROGRAM_MAX_STREAMS, sizeof(int));
    return !pool->failed;
}

static symm_status too_large(const struct order *order)
{
    return symm__fail(
        SYMM_ERR_OVERFLOW,
        "program %s: %d streams with ops on %d ranks and %d buffers are too "
        "many to plan; use fewer streams, or groups that treat ranks alike",
        order->program->name, order->stream_count, order->program->world,
        order->program->buffer_count);
}

symm_status symm__order_init(struct order *order, const symm_program *program)
{
    symm_status status;

    *order = (struct order){.program = program, .halves = 1};
    status = symm__pairs_init(&order->pairs, &order->pool, program);
    if (status == SYMM_OK && !allocate(order))
        status = symm__program_nomem(order->program);
    if (status == SYMM_OK) {
        number_streams(order);
        find_depends(order);
        order->lanes = order->stream_count * order->halves;
        if ((size_t)order->lanes * (size_t)order->lanes * (size_t)order->pairs.count >
            MAX_CLOCKS)
            status = too_large(order);
    }
    if (status != SYMM_OK)
        symm__order_finish(order);
    return status;
}

void symm__order_finish(struct order *order)
{
    symm__pool_free(&order->pool);
    symm__pool_free(&order->access_pool);
}

/* ---- Accesses -------------------------------------------------------------------- */

static int relation_of(const struct order *order, const struct access *access)
{
    const symm_program_op *op = &order->program->ops[access->op];

    return symm__pairs_relation(&order->pairs, access->who, op->partition,
                                access->who == ACTOR_SENDER ? op->shift : op->root);
}

static symm_status list_accesses(struct order *order)
{
    const symm_program *program = order->program;
    struct pool *pool = &order->access_pool;
    size_t most = 0;
    int count = 0;

    for (int i = 0; i < program->op_count; i++)
        most += symm__op_most_accesses(&program->ops[i]);
    order->accesses = symm__pool_alloc(pool, most + 1, sizeof(*order->accesses));
    order->access_start =
        symm__pool_alloc(pool, (size_t)program->op_count + 1, sizeof(int));
    order->touch = symm__pool_alloc(pool, most + 1, sizeof(int));
    order->seat_of_access = symm__pool_alloc(pool, most + 1, sizeof(int));
    if (pool->failed)
        return symm__program_nomem(order->program);
    for (int i = 0; i < program->op_count; i++) {
        order->access_start[i] = count;
        count += symm__op_accesses(program, i, order->algorithms[i],
                                   order->accesses + count);
        for (int a = order->access_start[i]; a < count; a++)
            order->accesses[a].relation = relation_of(order, &order->accesses[a]);
    }
    order->access_start[program->op_count] = count;
    return SYMM_OK;
}

static void extend(size_t *extents, int buffer, size_t bytes)
{
    if (buffer >= 0 && extents[buffer] < bytes)
        extents[buffer] = bytes;
}

/* The bytes of each buffer, counted from its start, that some op reads. */
static void find_extents(const symm_program *program, size_t *extents)
{
    struct norm_array arrays[NORM_ARRAYS];

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        size_t bytes = op->count;
        if (symm__is_collective(op->kind))
            bytes *= symm_dtype_size(op->dtype);
        extend(extents, op->in, bytes);
        for (int k = 0; k < op->buffer_count; k++)
            if (op->kind == SYMM_PROGRAM_READ)
                extend(extents, op->buffers[k], program->buffers[op->buffers[k]].bytes);
        if (op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
            continue;
        symm__norm_list(program, op, arrays);
        for (int k = 0; k < NORM_ARRAYS; k++)
            if (!arrays[k].written)
                extend(extents, arrays[k].where.buffer, arrays[k].bytes);
    }
}

/* Whether an all_reduce_norm writes all of these bytes and reads none of the buffer. */
static bool norm_renews(const symm_program *program, const symm_program_op *op,
                        int buffer, size_t bytes)
{
    struct norm_array arrays[NORM_ARRAYS];
    bool renews = false;

    symm__norm_list(program, op, arrays);
    for (int k = 0; k < NORM_ARRAYS; k++) {
        if (arrays[k].where.buffer != buffer)
            continue;
        if (!arrays[k].written)
            return false;
        renews = arrays[k].bytes >= bytes;
    }
    return renews && op->in != buffer;
}

static bool call_renews(const symm_program *program, const symm_program_op *op,
                        int buffer, size_t bytes)
{
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return norm_renews(program, op, buffer, bytes);
    return op->in != op->out && op->result >= bytes;
}

/* A write in part leaves old bytes that are still needed; one in place reads them. */
static void mark_renewals(struct order *order, const size_t *extents)
{
    const symm_program *program = order->program;

    for (int a = 0; a < order->access_start[program->op_count]; a++) {
        struct access *access = &order->accesses[a];
        const symm_program_op *op = &program->ops[access->op];
        access->renews = access->writes && (op->kind == SYMM_PROGRAM_WRITE ||
                                            call_renews(program, op, access->buffer,
                                                        extents[access->buffer]));
    }
}

/* Sets each access's prior_write: the place of the last write before it, around the circle
 * if the period has none before it; -1: none. */
static void link_touches(struct order *order)
{
    for (int b = 0; b < order->program->buffer_count; b++) {
        const int *touch = order->touch + order->touch_start[b];
        const int count = order->touch_start[b + 1] - order->touch_start[b];
        int write = -1;
        for (int t = 0; t < 2 * count; t++) {
            struct access *access = &order->accesses[touch[t % count]];
            access->prior_write = write;
            if (access->writes)
                write = t % count;
        }
    }
}

/* The accesses of each buffer in the order in which the ops are issued. */
static void fill_touches(struct order *order, int *fill)
{
    const symm_program *program = order->program;

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
    link_touches(order);
}

static symm_status sort_touches(struct order *order)
{
    const symm_program *program = order->program;
    const size_t buffers = (size_t)program->buffer_count + 1;
    struct pool *pool = &order->access_pool;
    int *fill = symm__pool_alloc(pool, buffers, sizeof(int));
    size_t *extents = symm__pool_alloc(pool, buffers, sizeof(size_t));

    order->touch_start = symm__pool_alloc(pool, buffers, sizeof(int));
    order->first_touch = symm__pool_alloc(pool, buffers, sizeof(int));
    order->first_write = symm__pool_alloc(pool, buffers, sizeof(int));
    if (pool->failed)
        return symm__program_nomem(order->program);
    find_extents(program, extents);
    mark_renewals(order, extents);
    fill_touches(order, fill);
    return SYMM_OK;
}

static void add_chain(struct order *order, int relation, int lane)
{
    int *at = &order->chain_of[relation * order->lanes + lane];

    if (*at < 0) {
        *at = order->chain_count;
        order->chains[order->chain_count++] = (struct chain){relation, lane};
    }
}

/* The owner's lanes, and those with accesses, in both periods: halves may change places. */
static symm_status list_chains(struct order *order)
{
    const symm_program *program = order->program;
    const size_t room = (size_t)order->pairs.relation_count * (size_t)order->lanes + 1;
    size_t moments;

    order->chain_count = 0;
    order->chains = symm__pool_alloc(&order->access_pool, room, sizeof(*order->chains));
    order->chain_of = symm__pool_alloc(&order->access_pool, room, sizeof(int));
    if (!order->chains || !order->chain_of)
        return symm__program_nomem(order->program);
    memset(order->chain_of, 0xff, room * sizeof(int));
    for (int lane = 0; lane < order->lanes; lane++)
        add_chain(order, 0, lane);
    for (int a = 0; a < order->access_start[program->op_count]; a++) {
        const struct access *access = &order->accesses[a];
        for (int period = 0; period < 2; period++)
            add_chain(order, access->relation,
                      symm__order_lane(order, access->op, period));
    }
    moments = 2 * ((size_t)program->buffer_count + 1) * (size_t)order->chain_count;
    if (moments > MAX_CLOCKS)
        return too_large(order);
    order->before_first =
        symm__pool_alloc(&order->access_pool, moments + 1, sizeof(uint32_t));
    if (order->keeps_ends)
        order->ends =
            symm__pool_alloc(&order->access_pool, 2 * ((size_t)program->op_count + 1),
                             (size_t)order->chain_count * sizeof(uint32_t));
    return order->access_pool.failed ? symm__program_nomem(order->program) : SYMM_OK;
}

void symm__order_require(struct order *order)
{
    for (int i = 0; i < order->program->op_count; i++)
        if (symm__op_traits(&order->program->ops[i], order->algorithms[i]).must_exit)
            order->exit[i] = true;
}

symm_status symm__order_set(struct order *order, const symm_algorithm *algorithms)
{
    const size_t ops = (size_t)order->program->op_count;
    symm_status status;

    symm__pool_free(&order->access_pool);
    order->ends = NULL;
    order->algorithms = algorithms;
    memset(order->entry, 0, ops * sizeof(bool));
    memset(order->exit, 0, ops * sizeof(bool));
    symm__order_require(order);
    status = list_accesses(order);
    if (status == SYMM_OK)
        status = sort_touches(order);
    return status == SYMM_OK ? list_chains(order) : status;
}

/* ---- Queries --------------------------------------------------------------------- */

uint32_t symm__order_moment(const struct order *order, int op, int period,
                            enum point point)
{
    uint32_t turn =
        (uint32_t)(period * order->program->op_count) + (uint32_t)order->rank_of_op[op];

    return (turn << 3 | (uint32_t)point) + 1;
}

int symm__order_lane(const struct order *order, int op, int period)
{
    const int stream = order->program->ops[op].stream;
    const int lane = order->streams_used[stream];

    if (order->halves == 1)
        return lane;
    return 2 * lane + (order->seat[op] + period * order->seats[stream]) % 2;
}

const uint32_t *symm__order_first(const struct order *order, int buffer, int period)
{
    return order->before_first +
           ((size_t)buffer * 2 + (size_t)period) * (size_t)order->chain_count;
}
