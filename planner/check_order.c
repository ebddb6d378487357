/* SPDX-License-Identifier: MIT */
/*
 * check_order.c - that accesses which must not meet are ordered by what the plan keeps.
 *
 * Each op of each period has on each rank four moments: it starts, its body begins, its
 * body is done, it ends. Accesses last from begin to done, or end at the barrier inside.
 * One moment is before another if a chain of these leads there:
 *   start -> begin -> done -> end         of the op, on its rank
 *   start on p -> begin on q              entry barrier, p and q in one list
 *   start on p -> done on q               a barrier inside; data pushed from p to q
 *   a read ends inside on p -> done on q  a barrier inside
 *   done on p -> end on q                 exit barrier
 *   done on p -> end of the wait on q     a put from p to q
 *   end -> start of later ops of the stream, but not of the op right behind if that one
 *          has early_start (depends are not counted: they run no kernel)
 *   end -> a depend on the op's stream listed behind it -> later ops of its own stream
 * The k-th wait is met by the k-th put: puts of one site from one rank write one buffer, so
 * they conflict and are proved to be ordered themselves.
 *
 * All chains lead forward in the order of issue, so one sweep backwards finds for every
 * start what it is before. What orders a start orders also the start of every later item
 * of that stream on that rank (an op's early_start takes away only what the op before it
 * has too), so one number for each stream of each rank is enough: the first position
 * reached. `starts[x][r]` holds these numbers for the start of position x on rank r.
 *
 * Pairs. For an access `a` of position x, every conflicting access b behind it is checked
 * up to the first op that overwrites all of a's bytes: a before that write, and that write
 * before later ones, is a pair checked elsewhere. In a loop positions n to 2n - 1 are the
 * second period, and b goes as far as a's own op there. Hence a before b before a's next
 * period, and as chains are the same in every period, all periods follow.
 */
#include "check.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct sweep {
    struct check *c;
    int streams, lanes; /* lanes = ranks x streams */
    int horizon;        /* positions: one period, in a loop two */
    int *starts;        /* [horizon][rank][lane]: first position reached */
    int *done, *spread; /* [rank][lane]: of the body's end; of a barrier over it */
    int *ended;         /* [rank][lane]: of the op's end */
    int *later;         /* [horizon]: the next depend of the same two streams */
    int *early; /* [horizon]: the op right behind if it has early_start, or -1 */
    /* By stream, of what was swept: first item, first op that is not a depend, and the
     * item behind that op; by pair (stream, on): the first depend. -1: none */
    int item[SYMM_PROGRAM_MAX_STREAMS], kernel[SYMM_PROGRAM_MAX_STREAMS];
    int behind[SYMM_PROGRAM_MAX_STREAMS];
    int depend[SYMM_PROGRAM_MAX_STREAMS][SYMM_PROGRAM_MAX_STREAMS];
};

static const struct check_op *op_at(const struct sweep *s, int position)
{
    return &s->c->ops[position % s->c->op_count];
}

/* Where the position stands in the program's list, over periods. */
static int listed_at(const struct sweep *s, int position)
{
    return position - position % s->c->op_count + op_at(s, position)->listed;
}

static int *row(const struct sweep *s, int *table, size_t index)
{
    return table + index * (size_t)s->lanes;
}

static int *start_row(const struct sweep *s, int position, int rank)
{
    const size_t world = (size_t)s->c->program->world;

    return row(s, s->starts, (size_t)position * world + (size_t)rank);
}

static void merge(const struct sweep *s, int *into, const int *from)
{
    for (int k = 0; k < s->lanes; k++)
        if (from[k] < into[k])
            into[k] = from[k];
}

/* The moment described by `into` is before the start of `position` on `rank`. */
static void merge_start(const struct sweep *s, int *into, int position, int rank)
{
    if (position < 0)
        return;
    int *lane = &into[rank * s->streams + op_at(s, position)->op->stream];
    if (position < *lane)
        *lane = position;
    merge(s, into, start_row(s, position, rank));
    if (s->early[position] >= 0) /* its own start is not before that one; `into` is */
        merge(s, into, start_row(s, s->early[position], rank));
}

static void sweep_end(const struct sweep *s, int position, int rank, int *into)
{
    const struct check_op *op = op_at(s, position);
    const int stream = op->op->stream, kernel = s->kernel[stream];
    int next = kernel;

    for (int k = 0; k < s->lanes; k++)
        into[k] = INT_MAX;
    if (op->op->kind == SYMM_PROGRAM_DEPEND)
        next = s->item[stream];
    else if (kernel >= 0 && op_at(s, kernel)->op->early_start)
        next = s->behind[stream];
    merge_start(s, into, next, rank);
    for (int k = 0; k < s->streams; k++) {
        int depend = s->depend[k][stream];
        while (depend >= 0 && listed_at(s, depend) < listed_at(s, position))
            depend = s->later[depend];
        merge_start(s, into, depend, rank);
    }
}

/* into[p] = what is before or at any of from[q], q in p's list. */
static void sweep_spread(const struct sweep *s, const struct check_op *op, int *into,
                         int *from)
{
    for (int p = 0; p < s->c->program->world; p++) {
        const struct check_ranks list = symm__check_list(s->c, op, p);
        int *target = row(s, into, (size_t)p);
        if (p != list.ranks[0] && list.ranks[0] < p) { /* as for the list's first */
            memcpy(target, row(s, into, (size_t)list.ranks[0]),
                   (size_t)s->lanes * sizeof(*target));
            continue;
        }
        for (int k = 0; k < s->lanes; k++)
            target[k] = INT_MAX;
        for (int k = 0; k < list.count; k++)
            merge(s, target, row(s, from, (size_t)list.ranks[k]));
    }
}

/* All moments of the op at the position, on all ranks. */
static void sweep_op(struct sweep *s, int position)
{
    const struct check_op *op = op_at(s, position);
    const size_t world = (size_t)s->c->program->world;
    const size_t bytes = (size_t)s->lanes * sizeof(int);
    const bool all = op->entry || op->inside ||
                     (op->pushed && op->op->kind != SYMM_PROGRAM_BROADCAST);
    const bool root = op->pushed && !all;

    for (int p = 0; p < (int)world; p++)
        sweep_end(s, position, p, row(s, s->ended, (size_t)p));
    if (op->exit)
        sweep_spread(s, op, s->done, s->ended);
    else
        memcpy(s->done, s->ended, world * bytes);
    for (int p = 0; op->wait >= 0 && p < (int)world; p++)
        merge(s, row(s, s->done, (size_t)p),
              start_row(s, position - position % s->c->op_count + op->wait,
                        symm__check_receiver(s->c, op, p)));
    sweep_spread(s, op, s->spread, s->done);
    for (int p = 0; p < (int)world; p++) {
        const struct check_ranks list = symm__check_list(s->c, op, p);
        const bool spreads = all || (root && list.ranks[op->op->root] == p);
        memcpy(start_row(s, position, p),
               row(s, spreads ? s->spread : s->done, (size_t)p), bytes);
    }
}

static void sweep_next(struct sweep *s, int position)
{
    const symm_program_op *op = op_at(s, position)->op;
    const int kernel = s->kernel[op->stream];

    s->early[position] = -1;
    if (op->kind == SYMM_PROGRAM_DEPEND) {
        s->later[position] = s->depend[op->stream][op->on];
        s->depend[op->stream][op->on] = position;
    } else {
        if (kernel >= 0 && op_at(s, kernel)->op->early_start)
            s->early[position] = kernel;
        s->behind[op->stream] = s->item[op->stream];
        s->kernel[op->stream] = position;
    }
    s->item[op->stream] = position;
}

/* ---- Pairs ----------------------------------------------------------------------- */

/* Whether the moment of `reached` is before the beginning of the body on the rank. */
static bool reaches_body(const struct sweep *s, const int *reached, int position,
                         int rank)
{
    const struct check_op *op = op_at(s, position);
    const struct check_ranks list = symm__check_list(s->c, op, rank);
    const int lane = op->op->stream;

    if (reached[rank * s->streams + lane] <= position)
        return true;
    for (int k = 0; op->entry && k < list.count; k++)
        if (reached[list.ranks[k] * s->streams + lane] <= position)
            return true;
    return false;
}

static bool refuse_pair(const struct sweep *s, int x, const struct check_access *a,
                        int p, int y, const struct check_access *b, int q, int owner)
{
    const symm_program_buffer *buffers = s->c->program->buffers;
    const struct check_op *before = op_at(s, x), *after = op_at(s, y);
    const bool put = after->op->kind == SYMM_PROGRAM_PUT && !after->entry;
    char first[128], second[128];

    return symm__check_refuse(
        s->c,
        "%s on rank %d may %s bytes %zu to %zu of rank %d's arena (buffer %s)%s before "
        "%s "
        "on rank %d has %s them (buffer %s): %s orders the end of the one before the "
        "start "
        "of the other",
        symm__check_name(after, second, sizeof(second)), q, b->write ? "write" : "read",
        a->low > b->low ? a->low : b->low, a->high < b->high ? a->high : b->high, owner,
        buffers[b->buffer].name, y >= s->c->op_count ? " in the next period" : "",
        symm__check_name(before, first, sizeof(first)), p,
        a->write ? "written" : "read", buffers[a->buffer].name,
        p == q && before->op->stream != after->op->stream
            ? "no depend between the streams"
        : p == q ? "nothing, for want of an op between or without early_start,"
        : put    ? "neither an entry barrier of the put nor anything else"
                 : "no barrier over both ranks and no signal");
}

static bool check_pair(const struct sweep *s, int x, const struct check_access *a,
                       int y, const struct check_access *b)
{
    const struct check_op *before = op_at(s, x), *after = op_at(s, y);

    for (int owner = 0; owner < s->c->program->world; owner++) {
        const struct check_ranks from =
            symm__check_accessors(s->c, before, a->who, owner);
        const struct check_ranks to = symm__check_accessors(s->c, after, b->who, owner);
        for (int i = 0; i < from.count; i++) {
            const int p = from.ranks[i];
            const int *reached =
                row(s, a->ends_inside ? s->spread : s->done, (size_t)p);
            for (int k = 0; k < to.count; k++)
                if (!reaches_body(s, reached, y, to.ranks[k]))
                    return refuse_pair(s, x, a, p, y, b, to.ranks[k], owner);
            s->c->report->proved += (uint64_t)to.count;
        }
    }
    return true;
}

static bool check_access(const struct sweep *s, int x, const struct check_access *a)
{
    const int end = s->c->program->loop ? x + s->c->op_count + 1 : s->horizon;
    bool overwritten = false;

    for (int y = x + 1; y < end && !overwritten; y++) {
        const struct check_op *op = op_at(s, y);
        for (int k = 0; k < op->access_count; k++) {
            const struct check_access *b = &op->accesses[k];
            if (!symm__check_conflict(a, b))
                continue;
            if (!check_pair(s, x, a, y, b))
                return false;
            overwritten |= b->write && b->low <= a->low && b->high >= a->high;
        }
    }
    return true;
}

/* ---- All ------------------------------------------------------------------------- */

static bool prepare(struct sweep *s)
{
    const size_t world = (size_t)s->c->program->world;
    size_t bytes;

    s->streams = s->c->program->stream_count;
    s->lanes = s->c->program->world * s->streams;
    s->horizon = s->c->op_count * (s->c->program->loop ? 2 : 1);
    memset(s->item, -1, sizeof(s->item));
    memset(s->kernel, -1, sizeof(s->kernel));
    memset(s->behind, -1, sizeof(s->behind));
    memset(s->depend, -1, sizeof(s->depend));
    if (__builtin_mul_overflow(world * (size_t)s->lanes * sizeof(int),
                               (size_t)s->horizon + 1, &bytes))
        return symm__check_nomem(s->c);
    s->starts = malloc(bytes);
    s->done = calloc(world * (size_t)s->lanes, sizeof(int));
    s->spread = calloc(world * (size_t)s->lanes, sizeof(int));
    s->ended = calloc(world * (size_t)s->lanes, sizeof(int));
    s->later = calloc((size_t)s->horizon + 1, sizeof(int));
    s->early = calloc((size_t)s->horizon + 1, sizeof(int));
    return (s->starts && s->done && s->spread && s->ended && s->later && s->early) ||
           symm__check_nomem(s->c);
}

bool symm__check_order(struct check *c)
{
    struct sweep s = {.c = c};
    bool good = prepare(&s);

    if (good) /* goes on after a refusal: the one of the first op is told */
        for (int x = s.horizon - 1; x >= 0; x--) {
            const struct check_op *op = op_at(&s, x);
            bool fine = true;
            sweep_op(&s, x);
            sweep_next(&s, x);
            for (int k = 0; fine && x < c->op_count && k < op->access_count; k++)
                fine = check_access(&s, x, &op->accesses[k]);
            good = good && fine;
        }
    free(s.starts);
    free(s.done);
    free(s.spread);
    free(s.ended);
    free(s.later);
    free(s.early);
    return good;
}
