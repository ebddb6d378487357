/* SPDX-License-Identifier: MIT */
/*
 * run.c - plays two periods of a program op by op on all ranks at once, keeps their
 * vector clocks by classes of pairs of ranks (pairs.h), and sets the barriers without
 * which two accesses to one buffer, one of them a write, would not be ordered.
 *
 * Two periods show everything: an order between periods k and k + 1 uses only events of
 * these two, and edges are the same in all periods.
 */
#include <string.h>

#include "model/program_private.h"
#include "order/order.h"
#include "util/status.h"

struct run {
    struct pool pool; /* of the clocks */
    struct order *order;
    const symm_program *program;
    size_t row;       /* moments of a clock: classes x lanes */
    uint32_t *now;    /* the clocks in the op in hand: [class x lanes + lane] */
    uint32_t *saved;  /* room for a trial */
    uint32_t *old;    /* room: the clocks before a barrier */
    uint32_t *done;   /* [stream]: after all ops so far */
    uint32_t *before; /* [stream]: without the last, depends not counted */
    uint32_t **kept;  /* by op: clocks of its stream at its end, for a depend */
    uint32_t **sent;  /* by op: clocks of a put at its end, for the wait */
    bool *fresh;      /* by op: its exit barrier was set in this run */
    uint32_t *ends;   /* NULL, or where the clocks at ends go */
    int period;
    bool changed;
    bool fixed;   /* barriers stay as they are */
    bool lacking; /* fixed, and one is missing */
};

static uint32_t *clock_of(const struct run *run, uint32_t *clocks, int stream)
{
    return clocks + (size_t)stream * run->row;
}

static void copy(const struct run *run, uint32_t *to, const uint32_t *from)
{
    memcpy(to, from, run->row * sizeof(*to));
}

static void join(uint32_t *to, const uint32_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

/* Every rank is at this point of the op. */
static void reach(struct run *run, int op, enum point point)
{
    const struct class_list self = run->order->pairs.self;
    const int lane = symm__order_lane(run->order, op, run->period);
    const uint32_t moment = symm__order_moment(run->order, op, run->period, point);

    for (int i = 0; i < self.count; i++)
        run->now[self.list[i] * run->order->lanes + lane] = moment;
}

/* Each rank learns what the ranks in this relation to it knew in `from`. */
static void learn(struct run *run, const uint32_t *from, int relation)
{
    const struct pairs *pairs = &run->order->pairs;
    const size_t lanes = (size_t)run->order->lanes;

    for (int c = 0; c < pairs->count; c++) {
        const struct class_list step = pairs->steps[relation * pairs->count + c];
        for (int i = 0; i < step.count; i++)
            join(run->now + (size_t)c * lanes, from + (size_t)step.list[i] * lanes,
                 lanes);
    }
}

/* A barrier over the lists of the op's group. */
static void meet(struct run *run, int op)
{
    const int partition = run->program->ops[op].partition;

    copy(run, run->old, run->now);
    learn(run, run->old,
          symm__pairs_relation(&run->order->pairs, ACTOR_PARTITION, partition, 0));
}

/* ---- Checks ---------------------------------------------------------------------- */

/* The moment that every rank in relation `actors` to an owner knows to be over on all ranks in
 * relation `known`. */
static uint32_t known_of(const struct run *run, int actors, int known, int lane)
{
    const struct pairs *pairs = &run->order->pairs;
    const struct class_list meet = pairs->meets[actors * pairs->relation_count + known];
    uint32_t moment = UINT32_MAX;

    for (int i = 0; i < meet.count; i++) {
        uint32_t at = run->now[meet.list[i] * run->order->lanes + lane];
        moment = at < moment ? at : moment;
    }
    return moment;
}

/* Whether prior's access is over on every rank before that of an actor begins. */
static bool covered(const struct run *run, const struct access *prior, int period,
                    const struct access *access)
{
    const struct order *order = run->order;

    return known_of(run, access->relation, prior->relation,
                    symm__order_lane(order, prior->op, period)) >=
           symm__order_moment(order, prior->op, period, prior->to);
}

static symm_status refuse(const struct run *run, const struct access *access,
                          const struct access *prior)
{
    const symm_program *program = run->program;
    const symm_program_op *a = &program->ops[prior->op], *b = &program->ops[access->op];

    return symm__fail(
        SYMM_ERR_INVALID,
        "program %s: nothing orders ops[%d] (%s%s%s, stream %s) before ops[%d] "
        "(%s%s%s, stream %s) on buffer %s, and no barrier can; add a depend or a wait, "
        "or start no op early there",
        program->name, prior->op, symm_program_kind_name(a->kind), a->site ? " " : "",
        a->site ? a->site : "", program->streams[a->stream], access->op,
        symm_program_kind_name(b->kind), b->site ? " " : "", b->site ? b->site : "",
        program->streams[b->stream], program->buffers[access->buffer].name);
}

/* Sets the barrier that orders prior before access, if there is one. */
static symm_status mend(struct run *run, const struct access *access,
                        const struct access *prior, int period)
{
    struct order *order = run->order;
    const int op = access->op, old = prior->op;

    if (access->from == POINT_PASS && !order->entry[op] &&
        symm__op_traits(&run->program->ops[op], order->algorithms[op]).entry) {
        copy(run, run->saved, run->now);
        meet(run, op);
        if (covered(run, prior, period, access)) {
            order->entry[op] = run->changed = true;
            return SYMM_OK;
        }
        copy(run, run->now, run->saved);
    }
    if (run->fresh[old])
        return SYMM_OK; /* takes effect in the next run */
    if (order->exit[old] ||
        !symm__op_traits(&run->program->ops[old], order->algorithms[old]).exit)
        return refuse(run, access, prior);
    order->exit[old] = run->fresh[old] = run->changed = true;
    return SYMM_OK;
}

static symm_status check_prior(struct run *run, const struct access *access,
                               const struct access *prior, int period)
{
    if (covered(run, prior, period, access))
        return SYMM_OK;
    run->lacking = true;
    return run->fixed ? SYMM_OK : mend(run, access, prior, period);
}

/* Compares the access with the accesses of other ops to its buffer before it, back to the last
 * write. A read is compared with that write alone, which was compared with the accesses before
 * it. */
static symm_status check_access(struct run *run, int index)
{
    const struct order *order = run->order;
    const struct access *access = &order->accesses[index];
    const int *touch = order->touch + order->touch_start[access->buffer];
    const int count =
        order->touch_start[access->buffer + 1] - order->touch_start[access->buffer];
    const int seat = order->seat_of_access[index];
    const int stop = access->prior_write;
    const int back = run->period > 0 ? count : seat;

    for (int i = 1; i <= back; i++) {
        int at = access->writes || stop < 0 ? seat - i
                 : stop < seat              ? stop
                                            : stop - count;
        int period = run->period;
        if (!access->writes && (stop < 0 || (at < 0 && run->period == 0)))
            return SYMM_OK;
        if (at < 0) {
            at += count;
            period--;
        }
        const struct access *prior = &order->accesses[touch[at]];
        if (prior->op == access->op && period == run->period)
            continue; /* the op itself orders them, with the barriers that it must have */
        symm_status status = check_prior(run, access, prior, period);
        if (status != SYMM_OK || prior->writes)
            return status;
    }
    return SYMM_OK;
}

/* Keeps the clock that every rank of the first write has before it. */
static void keep_first(struct run *run, const struct access *access)
{
    struct order *order = run->order;
    uint32_t *to =
        order->before_first +
        ((size_t)access->buffer * 2 + (size_t)run->period) * (size_t)order->chain_count;

    for (int c = 0; c < order->chain_count; c++)
        to[c] = known_of(run, access->relation, order->chains[c].relation,
                         order->chains[c].lane);
}

/* The accesses of an op that begin at this point. */
static symm_status begin_accesses(struct run *run, int op, enum point point)
{
    const struct order *order = run->order;

    for (int a = order->access_start[op]; a < order->access_start[op + 1]; a++) {
        const struct access *access = &order->accesses[a];
        if (access->from != point)
            continue;
        symm_status status = check_access(run, a);
        if (status != SYMM_OK)
            return status;
        int first = order->first_write[access->buffer];
        if (first >= 0 && order->touch[first] == a)
            keep_first(run, access);
    }
    return SYMM_OK;
}

/* ---- Ops ------------------------------------------------------------------------- */

static int stream_of(const struct run *run, int op)
{
    return run->order->streams_used[run->program->ops[op].stream];
}

static void start_op(struct run *run, int op)
{
    const bool early = run->program->ops[op].early_start;

    copy(run, run->now,
         clock_of(run, early ? run->before : run->done, stream_of(run, op)));
    reach(run, op, POINT_START);
}

static bool keep_clocks(struct run *run, uint32_t **kept, const uint32_t *from)
{
    if (!*kept)
        *kept = symm__pool_alloc(&run->pool, run->row, sizeof(uint32_t));
    if (!*kept)
        return false;
    copy(run, *kept, from);
    return true;
}

/* Fills `ends` with the owners' clock at the op's end. */
static void show_end(const struct run *run, int op)
{
    const struct order *order = run->order;
    uint32_t *to;

    if (!run->ends || !symm__is_communication(run->program->ops[op].kind))
        return;
    to =
        run->ends + ((size_t)op * 2 + (size_t)run->period) * (size_t)order->chain_count;
    for (int c = 0; c < order->chain_count; c++)
        to[c] = known_of(run, 0, order->chains[c].relation, order->chains[c].lane);
}

static bool end_op(struct run *run, int op)
{
    const struct order *order = run->order;
    uint32_t *done = clock_of(run, run->done, stream_of(run, op));

    reach(run, op, POINT_END);
    if (order->waited[op] && !keep_clocks(run, &run->sent[op], run->now))
        return false;
    if (order->halves == 2 && run->program->ops[op].kind != SYMM_PROGRAM_DEPEND)
        copy(run, clock_of(run, run->before, stream_of(run, op)), done);
    show_end(run, op);
    join(done, run->now, run->row);
    return !order->kept[op] || keep_clocks(run, &run->kept[op], done);
}

static void play_wait(struct run *run, int op)
{
    const int from = run->program->ops[op].put;
    const symm_program_op *put = &run->program->ops[from];

    learn(run, run->sent[from],
          symm__pairs_relation(&run->order->pairs, ACTOR_SENDER, put->partition,
                               put->shift));
}

/* All later ops wait, also those that start before the last op of their stream is over. */
static void play_depend(struct run *run, int op)
{
    const struct order *order = run->order;
    const int on = order->depends_on[op];
    const uint32_t *from;

    if (on < 0)
        return;
    from =
        order->kept[on] ? run->kept[on] : clock_of(run, run->done, stream_of(run, on));
    join(run->now, from, run->row);
    if (order->halves == 2)
        join(clock_of(run, run->before, stream_of(run, op)), from, run->row);
}

static void push_data(struct run *run, int op)
{
    const symm_program_op *the_op = &run->program->ops[op];

    if (the_op->kind != SYMM_PROGRAM_BROADCAST) {
        meet(run, op);
        return;
    }
    copy(run, run->old, run->now);
    learn(run, run->old,
          symm__pairs_relation(&run->order->pairs, ACTOR_ROOT, the_op->partition,
                               the_op->root));
}

static symm_status play_collective(struct run *run, int op)
{
    struct order *order = run->order;
    struct traits traits =
        symm__op_traits(&run->program->ops[op], order->algorithms[op]);
    symm_status status;

    if (order->entry[op])
        meet(run, op);
    reach(run, op, POINT_PASS);
    status = begin_accesses(run, op, POINT_PASS);
    if (status != SYMM_OK)
        return status;
    if (traits.push)
        push_data(run, op);
    if (traits.middle) {
        reach(run, op, POINT_READ);
        meet(run, op);
        reach(run, op, POINT_MIDDLE);
        status = begin_accesses(run, op, POINT_MIDDLE);
    }
    reach(run, op, POINT_BODY);
    if (order->exit[op])
        meet(run, op);
    return status == SYMM_OK ? begin_accesses(run, op, POINT_REST) : status;
}

static symm_status play_op(struct run *run, int op)
{
    symm_status status = SYMM_OK;

    start_op(run, op);
    switch (run->program->ops[op].kind) {
    case SYMM_PROGRAM_WRITE:
    case SYMM_PROGRAM_READ:
        status = begin_accesses(run, op, POINT_START);
        break;
    case SYMM_PROGRAM_WAIT:
        play_wait(run, op);
        break;
    case SYMM_PROGRAM_DEPEND:
        play_depend(run, op);
        break;
    default:
        status = play_collective(run, op);
        break;
    }
    if (status == SYMM_OK && !end_op(run, op))
        status = symm__program_nomem(run->program);
    return status;
}

/* ---- Runs ------------------------------------------------------------------------ */

static symm_status play(struct run *run)
{
    const symm_program *program = run->program;
    const size_t streams = (size_t)run->order->stream_count;
    const int periods = program->loop ? 2 : 1;
    symm_status status = SYMM_OK;

    memset(run->done, 0, streams * run->row * sizeof(uint32_t));
    memset(run->before, 0, streams * run->row * sizeof(uint32_t));
    memset(run->fresh, 0, (size_t)program->op_count * sizeof(bool));
    for (run->period = 0; run->period < periods; run->period++)
        for (int i = 0; i < program->op_count && status == SYMM_OK; i++)
            status = play_op(run, program->order[i]);
    return status;
}

static symm_status run_init(struct run *run, struct order *order)
{
    const symm_program *program = order->program;
    const size_t streams = (size_t)order->stream_count + 1;
    const size_t ops = (size_t)program->op_count + 1;

    *run = (struct run){.order = order, .program = program};
    run->row = (size_t)order->pairs.count * (size_t)order->lanes;
    run->now = symm__pool_alloc(&run->pool, run->row, sizeof(uint32_t));
    run->saved = symm__pool_alloc(&run->pool, run->row, sizeof(uint32_t));
    run->old = symm__pool_alloc(&run->pool, run->row, sizeof(uint32_t));
    run->done = symm__pool_alloc(&run->pool, streams, run->row * sizeof(uint32_t));
    run->before = symm__pool_alloc(&run->pool, streams, run->row * sizeof(uint32_t));
    run->kept = symm__pool_alloc(&run->pool, ops, sizeof(*run->kept));
    run->sent = symm__pool_alloc(&run->pool, ops, sizeof(*run->sent));
    run->fresh = symm__pool_alloc(&run->pool, ops, sizeof(bool));
    return run->pool.failed ? symm__program_nomem(program) : SYMM_OK;
}

/* Plays until no barrier is added; `fixed`: adds none, and *enough: none is missing. */
static symm_status run_all(struct order *order, bool fixed, uint32_t *ends,
                           bool *enough)
{
    struct run run;
    symm_status status = run_init(&run, order);

    run.fixed = fixed;
    run.ends = ends;
    do {
        run.changed = false;
        if (status == SYMM_OK)
            status = play(&run);
    } while (status == SYMM_OK && run.changed);
    *enough = !run.lacking;
    symm__pool_free(&run.pool);
    return status;
}

symm_status symm__order_run(struct order *order)
{
    bool enough;

    return run_all(order, false, order->ends, &enough);
}

symm_status symm__order_try(struct order *order, bool *enough)
{
    return run_all(order, true, NULL, enough);
}

symm_status symm__order_ends(struct order *order, uint32_t *ends)
{
    bool enough;

    return run_all(order, true, ends, &enough);
}
