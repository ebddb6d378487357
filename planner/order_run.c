/* SPDX-License-Identifier: MIT */
/*
 * order_run.c - plays two periods of a program op by op on all ranks at once, keeps each
 * rank's vector clock, and sets the barriers without which two accesses to one buffer,
 * one of them a write, would not be ordered.
 *
 * Two periods show everything: an order between periods k and k + 1 uses only events of
 * these two, and edges are the same in all periods.
 */
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "program_private.h"
#include "status.h"

struct run {
    struct order *order;
    const symm_program *program;
    size_t row;          /* bytes of a clock */
    struct mark *now;    /* [world]: the ranks' clocks in the op in hand */
    struct mark *saved;  /* [world]: room for a trial */
    struct mark *done;   /* [world x streams]: after all ops so far */
    struct mark *before; /* [world x streams]: without the last, depends not counted */
    struct mark *joined; /* one clock */
    struct mark **kept;  /* by op: [world] clocks at a put's end, or for a depend */
    bool *fresh;         /* by op: its exit barrier was set in this run */
    symm__order_watch_fn watch; /* NULL: nobody looks */
    void *watch_arg;
    const struct mark **seen; /* [world]: room for what it is shown */
    int period;
    bool changed;
};

static struct mark *clock_of(const struct run *run, struct mark *clocks, int index)
{
    return clocks + (size_t)index * (size_t)run->order->chains;
}

static void join(const struct run *run, struct mark *to, const struct mark *from)
{
    for (int c = 0; c < run->order->chains; c++)
        if (from[c].at > to[c].at)
            to[c] = from[c];
}

static void join_by(const struct run *run, struct mark *to, const struct mark *from,
                    uint32_t via)
{
    for (int c = 0; c < run->order->chains; c++)
        if (from[c].at > to[c].at)
            to[c] = (struct mark){from[c].at, via};
}

static uint32_t via_of(enum via via, int op)
{
    return (uint32_t)via | (uint32_t)op << 3;
}

/* Every rank is at this point of the op. */
static void reach(struct run *run, int op, enum point point)
{
    uint32_t moment = symm__order_moment(run->order, op, run->period, point);

    for (int r = 0; r < run->program->world; r++) {
        int chain = symm__order_chain(run->order, r, op, run->period);
        clock_of(run, run->now, r)[chain] = (struct mark){moment, VIA_STREAM};
    }
}

/* A barrier over the lists of the op's group. */
static void meet(struct run *run, int op, enum via via)
{
    const symm_program_group *group =
        &run->program->groups[run->program->ops[op].group];

    for (int l = 0; l < group->lists; l++) {
        const int *list = group->ranks + l * group->length;
        memset(run->joined, 0, run->row);
        for (int i = 0; i < group->length; i++)
            join(run, run->joined, clock_of(run, run->now, list[i]));
        for (int i = 0; i < group->length; i++)
            join_by(run, clock_of(run, run->now, list[i]), run->joined,
                    via_of(via, op));
    }
}

/* ---- Checks ---------------------------------------------------------------------- */

static bool covered(const struct run *run, const struct access *prior, int period,
                    int owner, int actor)
{
    const struct order *order = run->order;
    const struct mark *clock = clock_of(run, run->now, actor);
    uint32_t moment = symm__order_moment(order, prior->op, period, prior->to);
    int count;
    const int *ranks = symm__order_actors(order, prior, owner, &count);

    for (int i = 0; i < count; i++)
        if (clock[symm__order_chain(order, ranks[i], prior->op, period)].at < moment)
            return false;
    return true;
}

static symm_status refuse(const struct run *run, const struct access *access,
                          const struct access *prior)
{
    const symm_program *program = run->program;
    const symm_program_op *a = &program->ops[prior->op], *b = &program->ops[access->op];

    return symm__fail(
        SYMM_ERR_INVALID,
        "program %s: nothing orders ops[%d] (%s%s%s, stream %s) before ops[%d] "
        "(%s%s%s, "
        "stream %s) on buffer %s, and no barrier can; add a depend or a wait, or start "
        "no op early there",
        program->name, prior->op, symm_program_kind_name(a->kind), a->site ? " " : "",
        a->site ? a->site : "", program->streams[a->stream], access->op,
        symm_program_kind_name(b->kind), b->site ? " " : "", b->site ? b->site : "",
        program->streams[b->stream], program->buffers[access->buffer].name);
}

/* Sets the barrier that orders prior before access, if there is one. */
static symm_status mend(struct run *run, const struct access *access,
                        const struct access *prior, int period, int owner, int actor)
{
    struct order *order = run->order;
    const int op = access->op, old = prior->op;
    const size_t all = run->row * (size_t)run->program->world;

    if (access->from == POINT_PASS && !order->entry[op] &&
        symm__op_traits(&run->program->ops[op], order->algorithms[op]).entry) {
        memcpy(run->saved, run->now, all);
        meet(run, op, VIA_ENTRY);
        if (covered(run, prior, period, owner, actor)) {
            order->entry[op] = run->changed = true;
            return SYMM_OK;
        }
        memcpy(run->now, run->saved, all);
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
    const struct order *order = run->order;

    for (int i = 0; i < order->owner_count; i++) {
        int count;
        const int *ranks = symm__order_actors(order, access, order->owners[i], &count);
        for (int k = 0; k < count; k++) {
            if (covered(run, prior, period, order->owners[i], ranks[k]))
                continue;
            symm_status status =
                mend(run, access, prior, period, order->owners[i], ranks[k]);
            if (status != SYMM_OK)
                return status;
        }
    }
    return SYMM_OK;
}

/* Against the accesses to its buffer before it, back to the last write. */
static symm_status check_access(struct run *run, int index)
{
    const struct order *order = run->order;
    const struct access *access = &order->accesses[index];
    const int *touch = order->touch + order->touch_start[access->buffer];
    const int count =
        order->touch_start[access->buffer + 1] - order->touch_start[access->buffer];
    const int seat = order->seat_of_access[index];
    const int back = run->period > 0 ? count : seat;

    for (int i = 1; i <= back; i++) {
        int at = seat - i, period = run->period;
        if (at < 0) {
            at += count;
            period--;
        }
        const struct access *prior = &order->accesses[touch[at]];
        if (!access->writes && !prior->writes)
            continue;
        symm_status status = check_prior(run, access, prior, period);
        if (status != SYMM_OK || prior->writes)
            return status;
    }
    return SYMM_OK;
}

/* What is certain before the first write, whichever rank makes it. */
static void keep_first(struct run *run, const struct access *access)
{
    const struct order *order = run->order;

    for (int i = 0; i < order->owner_count; i++) {
        size_t row = ((size_t)access->buffer * 2 + (size_t)run->period) *
                         (size_t)order->owner_count +
                     (size_t)i;
        struct mark *to = order->before_first + row * (size_t)order->chains;
        int count;
        const int *ranks = symm__order_actors(order, access, order->owners[i], &count);
        memcpy(to, clock_of(run, run->now, ranks[0]), run->row);
        for (int k = 1; k < count; k++) {
            const struct mark *other = clock_of(run, run->now, ranks[k]);
            for (int c = 0; c < order->chains; c++)
                if (other[c].at < to[c].at)
                    to[c] = other[c];
        }
    }
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

static int lane_of(const struct run *run, int rank, int op)
{
    const struct order *order = run->order;

    return rank * order->stream_count +
           order->streams_used[run->program->ops[op].stream];
}

static void start_op(struct run *run, int op)
{
    const bool early = run->program->ops[op].early_start;

    for (int r = 0; r < run->program->world; r++)
        memcpy(clock_of(run, run->now, r),
               clock_of(run, early ? run->before : run->done, lane_of(run, r, op)),
               run->row);
    reach(run, op, POINT_START);
}

static bool keep_clocks(struct run *run, int op)
{
    const size_t all = run->row * (size_t)run->program->world;

    if (!run->kept[op])
        run->kept[op] = malloc(all);
    if (!run->kept[op])
        return false;
    memcpy(run->kept[op], run->now, all);
    return true;
}

static bool show_end(const struct run *run, int op)
{
    if (!run->watch)
        return true;
    for (int r = 0; r < run->program->world; r++)
        run->seen[r] = clock_of(run, run->done, lane_of(run, r, op));
    return run->watch(run->watch_arg, op, run->period, run->seen);
}

static bool end_op(struct run *run, int op)
{
    const struct order *order = run->order;

    reach(run, op, POINT_END);
    if (order->waited[op] && !keep_clocks(run, op))
        return false;
    for (int r = 0; r < run->program->world; r++) {
        struct mark *done = clock_of(run, run->done, lane_of(run, r, op));
        if (order->halves == 2 && run->program->ops[op].kind != SYMM_PROGRAM_DEPEND)
            memcpy(clock_of(run, run->before, lane_of(run, r, op)), done, run->row);
        join(run, done, clock_of(run, run->now, r));
        if (order->kept[op])
            memcpy(clock_of(run, run->now, r), done, run->row);
    }
    if (order->kept[op] && !order->waited[op] && !keep_clocks(run, op))
        return false;
    return show_end(run, op);
}

static void play_wait(struct run *run, int op)
{
    const struct order *order = run->order;
    const int from = run->program->ops[op].put;
    const symm_program_op *put = &run->program->ops[from];
    const symm_program_group *group = &run->program->groups[put->group];

    for (int r = 0; r < run->program->world; r++) {
        int at = put->group * run->program->world + r;
        int place = (order->place_of[at] - put->shift + group->length) % group->length;
        int sender = group->ranks[order->list_of[at] * group->length + place];
        join_by(run, clock_of(run, run->now, r), clock_of(run, run->kept[from], sender),
                via_of(VIA_WAIT, from));
    }
    if (!order->kept[from]) {
        free(run->kept[from]);
        run->kept[from] = NULL;
    }
}

/* The other stream's own progress is due to the depend, what it had learnt is not. */
static void join_depend(const struct run *run, struct mark *to, const struct mark *from)
{
    for (int c = 0; c < run->order->chains; c++) {
        if (from[c].at <= to[c].at)
            continue;
        to[c] = from[c];
        if (from[c].via == VIA_STREAM)
            to[c].via = VIA_DEPEND;
    }
}

/* All later ops wait, also one that starts before the last op of its stream is over. */
static void play_depend(struct run *run, int op)
{
    const struct order *order = run->order;
    const int on = order->depends_on[op];

    if (on < 0)
        return;
    for (int r = 0; r < run->program->world; r++) {
        const struct mark *from = order->kept[on]
                                      ? clock_of(run, run->kept[on], r)
                                      : clock_of(run, run->done, lane_of(run, r, on));
        join_depend(run, clock_of(run, run->now, r), from);
        if (order->halves == 2)
            join_depend(run, clock_of(run, run->before, lane_of(run, r, op)), from);
    }
}

static void push_data(struct run *run, int op)
{
    const symm_program_op *the_op = &run->program->ops[op];
    const symm_program_group *group = &run->program->groups[the_op->group];

    if (the_op->kind != SYMM_PROGRAM_BROADCAST) {
        meet(run, op, VIA_COMPLETION);
        return;
    }
    for (int l = 0; l < group->lists; l++) {
        const int *list = group->ranks + l * group->length;
        for (int i = 0; i < group->length; i++)
            join_by(run, clock_of(run, run->now, list[i]),
                    clock_of(run, run->now, list[the_op->root]),
                    via_of(VIA_COMPLETION, op));
    }
}

static symm_status play_collective(struct run *run, int op)
{
    struct order *order = run->order;
    struct traits traits =
        symm__op_traits(&run->program->ops[op], order->algorithms[op]);
    symm_status status;

    if (order->entry[op])
        meet(run, op, VIA_ENTRY);
    reach(run, op, POINT_PASS);
    status = begin_accesses(run, op, POINT_PASS);
    if (status != SYMM_OK)
        return status;
    if (traits.push)
        push_data(run, op);
    if (traits.middle) {
        reach(run, op, POINT_READ);
        meet(run, op, VIA_COMPLETION);
        reach(run, op, POINT_MIDDLE);
        status = begin_accesses(run, op, POINT_MIDDLE);
    }
    reach(run, op, POINT_BODY);
    if (order->exit[op])
        meet(run, op, VIA_EXIT);
    return status;
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
    const size_t lanes = (size_t)program->world * (size_t)run->order->stream_count;
    const int periods = program->loop ? 2 : 1;
    symm_status status = SYMM_OK;

    memset(run->done, 0, lanes * run->row);
    memset(run->before, 0, lanes * run->row);
    memset(run->fresh, 0, (size_t)program->op_count * sizeof(bool));
    for (run->period = 0; run->period < periods; run->period++)
        for (int i = 0; i < program->op_count && status == SYMM_OK; i++)
            status = play_op(run, program->order[i]);
    return status;
}

static bool run_init(struct run *run, struct order *order)
{
    const symm_program *program = order->program;
    const size_t world = (size_t)program->world;
    const size_t lanes = world * (size_t)order->stream_count + 1;
    const size_t ops = (size_t)program->op_count + 1;

    *run = (struct run){.order = order, .program = program};
    run->row = (size_t)order->chains * sizeof(struct mark);
    run->now = calloc(world, run->row + 1);
    run->saved = calloc(world, run->row + 1);
    run->done = calloc(lanes, run->row + 1);
    run->before = calloc(lanes, run->row + 1);
    run->joined = calloc(1, run->row + 1);
    run->kept = calloc(ops, sizeof(struct mark *));
    run->fresh = calloc(ops, sizeof(bool));
    run->seen = calloc(world, sizeof(*run->seen));
    return run->now && run->saved && run->done && run->before && run->joined &&
           run->kept && run->fresh && run->seen;
}

static void run_finish(struct run *run)
{
    free(run->now);
    free(run->saved);
    free(run->done);
    free(run->before);
    free(run->joined);
    for (int i = 0; run->kept && i < run->program->op_count; i++)
        free(run->kept[i]);
    free(run->kept);
    free(run->fresh);
    free(run->seen);
}

symm_status symm__order_run(struct order *order)
{
    struct run run;
    symm_status status = SYMM_OK;

    if (!run_init(&run, order))
        status = symm__program_nomem(order->program);
    do {
        run.changed = false;
        if (status == SYMM_OK)
            status = play(&run);
    } while (status == SYMM_OK && run.changed);
    run_finish(&run);
    return status;
}

symm_status symm__order_watch(struct order *order, symm__order_watch_fn watch,
                              void *arg)
{
    struct run run;
    symm_status status;

    if (!run_init(&run, order)) {
        status = symm__program_nomem(order->program);
    } else {
        run.watch = watch;
        run.watch_arg = arg;
        status = play(&run); /* nothing is left to be mended */
    }
    run_finish(&run);
    return status;
}
