/* SPDX-License-Identifier: MIT */
/*
 * order.c - proves that the barriers of the plan order all accesses to one buffer of which
 * one is a write, and finds what is over for certain where each life begins.
 *
 * Two periods are played op by op in the order of issue, on all ranks together. Each rank
 * has a clock: for each lane of each rank the last moment that is over for certain. It grows
 * by these rules alone:
 *   an op starts with what is certain at the end of all ops before it on its stream; with
 *          early_start, of all but the last one that runs a kernel
 *   entry barrier, a barrier inside, pushed data: what every member of the list knew at that
 *          point (pushed data of a broadcast: what the root knew)
 *   exit barrier: what every member knew at the end of its body. What follows the sum of an
 *          all_reduce_norm begins after it
 *   wait: what the sender knew at the end of the put. The k-th wait is met by the k-th put:
 *          puts of one site from one rank write one buffer, so they are ordered themselves
 *   depend: what is certain at the end of the last op before it in the list on that stream
 * Everything leads forward in the order of issue, so one pass finds all that is certain. The
 * rules are the same in all periods, and what is certain between two neighbouring periods
 * needs no third one, so what holds for the first two holds for all.
 */
#include "check/check.h"

#include <string.h>

struct play {
    struct check *c;
    int world, period;
    size_t row;       /* moments of one rank's clock: world x lanes */
    uint32_t *now;    /* [rank]: in the op in hand */
    uint32_t *met;    /* one clock */
    uint32_t *ended;  /* [stream][rank]: all ops so far are over */
    uint32_t *before; /* [stream][rank]: all but the last that runs a kernel */
    uint32_t **kept;  /* by position: [rank] clocks for a depend */
    uint32_t **sent;  /* by position of a put: for its wait */
    bool *keep;
};

static uint32_t *clock_at(const struct play *play, uint32_t *clocks, int stream,
                          int rank)
{
    return clocks + ((size_t)stream * (size_t)play->world + (size_t)rank) * play->row;
}

static void raise(uint32_t *to, const uint32_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = to[i] < from[i] ? from[i] : to[i];
}

static size_t bytes_of(const struct play *play)
{
    return play->row * sizeof(uint32_t);
}

static void come_to(struct play *play, int position, enum check_point point)
{
    const uint32_t moment = symm__check_moment(play->c, position, play->period, point);
    const int lane = symm__check_lane(play->c, position, play->period);

    for (int r = 0; r < play->world; r++)
        clock_at(play, play->now, 0, r)[r * play->c->lanes + lane] = moment;
}

/* Each rank gets the union of its list's clocks; with a root >= 0, the root's clock. */
static void meet(struct play *play, int partition, int root)
{
    for (int r = 0; r < play->world; r++) {
        const struct check_ranks list = symm__check_list(play->c, partition, r);
        if (list.ranks[0] != r)
            continue; /* each list once */
        if (root < 0)
            memset(play->met, 0, bytes_of(play));
        else
            memcpy(play->met, clock_at(play, play->now, 0, list.ranks[root]),
                   bytes_of(play));
        for (int k = 0; k < list.count && root < 0; k++)
            raise(play->met, clock_at(play, play->now, 0, list.ranks[k]), play->row);
        for (int k = 0; k < list.count; k++)
            raise(clock_at(play, play->now, 0, list.ranks[k]), play->met, play->row);
    }
}

/* ---- Accesses ---------------------------------------------------------------------------- */

static bool refuse_pair(const struct play *play, const struct check_access *a, int p,
                        const struct check_access *b, int q, int owner, bool next)
{
    struct check *c = play->c;
    const struct check_op *before = &c->ops[a->op], *after = &c->ops[b->op];
    const bool put = after->op->kind == SYMM_PROGRAM_PUT && !after->entry;
    char first[128], second[128];

    return symm__check_refuse(
        c,
        "%s on rank %d may %s rank %d's buffer %s%s before %s on rank %d has %s it: %s "
        "orders the end of the one before the start of the other",
        symm__check_name(after, second, sizeof(second)), q, b->write ? "write" : "read",
        owner, c->program->buffers[a->buffer].name, next ? " in the next period" : "",
        symm__check_name(before, first, sizeof(first)), p,
        a->write ? "written" : "read",
        p == q && before->op->stream != after->op->stream
            ? "no depend between the streams"
        : p == q ? "nothing, for want of an op between or without early_start,"
        : put    ? "neither an entry barrier of the put nor anything else"
                 : "no barrier over both ranks and no signal");
}

/* Is a, of `period`, over on every rank before b begins now? */
static bool check_pair(const struct play *play, const struct check_access *a,
                       int period, const struct check_access *b)
{
    struct check *c = play->c;
    const uint32_t over = symm__check_moment(c, a->op, period, a->to);
    const int lane = symm__check_lane(c, a->op, period);
    const bool same = a->who == CHECK_EVERY && b->who == CHECK_EVERY &&
                      c->ops[a->op].op->partition == c->ops[b->op].op->partition;

    for (int owner = 0; owner < play->world; owner++) {
        const struct check_ranks from = symm__check_accessors(c, a, owner);
        const struct check_ranks to = symm__check_accessors(c, b, owner);
        if (same && from.ranks[0] != owner)
            continue; /* as for the list's first rank */
        for (int k = 0; k < to.count; k++) {
            const uint32_t *clock = clock_at(play, play->now, 0, to.ranks[k]);
            for (int i = 0; i < from.count; i++)
                if (clock[from.ranks[i] * c->lanes + lane] < over)
                    return refuse_pair(play, a, from.ranks[i], b, to.ranks[k], owner,
                                       period < play->period);
        }
        c->report->proved += (uint64_t)from.count * (uint64_t)to.count;
    }
    return true;
}

/* Compares b with the accesses to its buffer since the last write, that write included. A
 * read is compared with the write alone, which was compared with the reads before it. */
static bool check_access(const struct play *play, const struct check_access *b)
{
    const struct check_life *life = &play->c->lives[b->buffer];
    const int seat = b->seat;

    if (!b->write) {
        const int at = b->last_write;
        if (at < 0 || (at >= seat && play->period == 0))
            return true;
        if (at < seat && life->touch[at]->op == b->op)
            return true; /* fit.c has checked it; not the access a period before */
        return check_pair(play, life->touch[at], play->period - (at > seat), b);
    }
    for (int i = 1; i <= (play->period ? life->touch_count : seat); i++) {
        const int at = seat - i;
        const struct check_access *a =
            life->touch[at < 0 ? at + life->touch_count : at];
        if (a->op == b->op && at >= 0)
            continue; /* fit.c has checked accesses of one op */
        if (!check_pair(play, a, play->period - (at < 0), b))
            return false;
        if (a->write)
            return true;
    }
    return true;
}

/* Fills begins: the last moment of each chain that every rank of the first write knows. */
static void begin_life(const struct play *play, const struct check_access *access)
{
    struct check *c = play->c;
    uint32_t *known = c->begins + ((size_t)access->buffer * 2 + (size_t)play->period) *
                                      (size_t)c->chain_count;

    for (int k = 0; k < c->chain_count; k++) {
        const struct check_chain *chain = &c->chains[k];
        known[k] = UINT32_MAX;
        for (int owner = 0; owner < play->world; owner++) {
            const struct check_ranks to = symm__check_accessors(c, access, owner);
            const struct check_ranks from = symm__check_related(
                c, chain->who, chain->partition, chain->parameter, owner);
            if (access->who == CHECK_EVERY && chain->who == CHECK_EVERY &&
                chain->partition == c->ops[access->op].op->partition &&
                from.ranks[0] != owner)
                continue;
            for (int i = 0; i < to.count; i++) {
                const uint32_t *clock = clock_at(play, play->now, 0, to.ranks[i]);
                for (int s = 0; s < from.count; s++) {
                    uint32_t at = clock[from.ranks[s] * c->lanes + chain->lane];
                    known[k] = at < known[k] ? at : known[k];
                }
            }
        }
    }
}

static bool begin_accesses(struct play *play, int position, enum check_point point)
{
    const struct check_op *op = &play->c->ops[position];

    for (int k = 0; k < op->access_count; k++) {
        const struct check_access *access = &op->accesses[k];
        if (access->from != point)
            continue;
        if (!check_access(play, access))
            return false;
        if (access == play->c->lives[access->buffer].begin)
            begin_life(play, access);
    }
    return true;
}

/* ---- Ops --------------------------------------------------------------------------------- */

static bool play_collective(struct play *play, int position)
{
    const struct check_op *op = &play->c->ops[position];
    const int partition = op->op->partition;

    if (op->entry)
        meet(play, partition, -1);
    come_to(play, position, CHECK_PASS);
    if (!begin_accesses(play, position, CHECK_PASS))
        return false;
    if (op->pushed)
        meet(play, partition,
             op->op->kind == SYMM_PROGRAM_BROADCAST ? op->op->root : -1);
    if (op->inside) {
        come_to(play, position, CHECK_READ);
        meet(play, partition, -1);
        come_to(play, position, CHECK_MIDDLE);
        if (!begin_accesses(play, position, CHECK_MIDDLE))
            return false;
    }
    come_to(play, position, CHECK_BODY);
    if (op->exit)
        meet(play, partition, -1);
    return begin_accesses(play, position, CHECK_REST);
}

static void play_wait(struct play *play, const struct check_op *op)
{
    const struct check_op *put = &play->c->ops[op->put];

    for (int r = 0; r < play->world; r++) {
        const struct check_ranks sender = symm__check_related(
            play->c, CHECK_SENDER, put->op->partition, put->op->shift, r);
        raise(clock_at(play, play->now, 0, r),
              clock_at(play, play->sent[op->put], 0, sender.ranks[0]), play->row);
    }
}

/* Holds for all later ops of the stream, also for one that starts early. */
static void play_depend(struct play *play, const struct check_op *op)
{
    for (int r = 0; r < play->world && op->after >= 0; r++) {
        const uint32_t *from = clock_at(play, play->kept[op->after], 0, r);
        raise(clock_at(play, play->now, 0, r), from, play->row);
        raise(clock_at(play, play->before, op->op->stream, r), from, play->row);
    }
}

static bool keep_clocks(const struct play *play, uint32_t **kept, const uint32_t *from)
{
    const size_t bytes = (size_t)play->world * bytes_of(play);

    if (!*kept)
        *kept = symm__pool_alloc(&play->c->pool, 1, bytes);
    if (!*kept)
        return symm__check_nomem(play->c);
    memcpy(*kept, from, bytes);
    return true;
}

static bool end_op(struct play *play, int position)
{
    const struct check_op *op = &play->c->ops[position];
    const int stream = op->op->stream;
    const size_t moments = (size_t)play->world * play->row;
    uint32_t *ended = clock_at(play, play->ended, stream, 0);

    come_to(play, position, CHECK_END);
    if (op->wait >= 0 && !keep_clocks(play, &play->sent[position], play->now))
        return false;
    if (op->op->kind != SYMM_PROGRAM_DEPEND)
        memcpy(clock_at(play, play->before, stream, 0), ended,
               moments * sizeof(uint32_t));
    raise(ended, play->now, moments);
    symm__check_frees_ended(play->c, position, play->period, play->now);
    return !play->keep[position] || keep_clocks(play, &play->kept[position], ended);
}

static bool play_op(struct play *play, int position)
{
    const struct check_op *op = &play->c->ops[position];
    const int stream = op->op->stream;

    memcpy(play->now,
           clock_at(play, op->op->early_start ? play->before : play->ended, stream, 0),
           (size_t)play->world * bytes_of(play));
    come_to(play, position, CHECK_START);
    if (op->op->kind == SYMM_PROGRAM_WAIT)
        play_wait(play, op);
    else if (op->op->kind == SYMM_PROGRAM_DEPEND)
        play_depend(play, op);
    else if (!op->planned && !begin_accesses(play, position, CHECK_START))
        return false;
    else if (op->planned && !play_collective(play, position))
        return false;
    return end_op(play, position);
}

/* ---- All --------------------------------------------------------------------------------- */

static bool prepare(struct play *play)
{
    struct check *c = play->c;
    struct pool *pool = &c->pool;
    const size_t streams = (size_t)c->program->stream_count;
    const size_t ops = (size_t)c->op_count + 1;
    size_t clocks, moments;

    play->world = c->program->world;
    play->row = (size_t)play->world * (size_t)c->lanes;
    clocks = (size_t)play->world * play->row;
    if (__builtin_mul_overflow(2 * ((size_t)c->program->buffer_count + 1),
                               (size_t)c->chain_count + 1, &moments))
        return symm__check_nomem(c);
    c->begins = symm__pool_alloc(pool, moments, sizeof(uint32_t));
    play->now = symm__pool_alloc(pool, clocks, sizeof(uint32_t));
    play->met = symm__pool_alloc(pool, play->row, sizeof(uint32_t));
    play->ended = symm__pool_alloc(pool, streams, clocks * sizeof(uint32_t));
    play->before = symm__pool_alloc(pool, streams, clocks * sizeof(uint32_t));
    play->kept = symm__pool_alloc(pool, ops, sizeof(*play->kept));
    play->sent = symm__pool_alloc(pool, ops, sizeof(*play->sent));
    play->keep = symm__pool_alloc(pool, ops, sizeof(*play->keep));
    if (pool->failed)
        return symm__check_nomem(c);
    for (int i = 0; i < c->op_count; i++)
        if (c->ops[i].after >= 0)
            play->keep[c->ops[i].after] = true;
    return true;
}

bool symm__check_order(struct check *c)
{
    struct play play = {.c = c};
    bool good = prepare(&play);

    for (play.period = 0; good && play.period < (c->program->loop ? 2 : 1);
         play.period++)
        for (int i = 0; good && i < c->op_count; i++)
            good = play_op(&play, i);
    return good;
}
