/* SPDX-License-Identifier: MIT */
/*
 * build.c - makes a program of the events that the merge has kept, in rank 0's order of issue.
 *
 * - An access to a whole buffer becomes a write or a read; a write to a part of it becomes a
 *   read and a write, since the rest keeps its value. A call that begins inside a buffer
 *   renews nothing, so a read of the whole buffer precedes it.
 * - Where accesses differ between the ranks, all ranks read, write and read the buffers.
 * - A buffer that is alone is read and written before and after each op on it, on the op's
 *   stream. So it is never free, and the op keeps the barriers that unknown accesses of the
 *   program need. Without a loop it is also read at the end. A buffer that no op touches
 *   lives always by the planner's own rule.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "merge/merge.h"
#include "util/status.h"

struct build {
    struct merge *merge;
    const struct merge_record *first; /* rank 0's */
    symm_program *program;
    int *buffers;    /* by buffer of the record: the program's; -1: not there */
    bool *raw;       /* by buffer: as bytes, since calls use another dtype */
    int *partitions; /* by team of rank 0: the program's; -1: none */
    bool *inside;    /* by site: some rank's call begins inside its buffer */
    int *last;       /* by buffer that is alone: the stream of its ops; -1: none */
    int at[SYMM_PROGRAM_MAX_STREAMS]; /* by stream: the gap in hand */
    bool begun[SYMM_PROGRAM_MAX_STREAMS]; /* by stream: it has had more than depends */
    const struct merge_event **late;      /* depends that go to the end */
    int late_count;
};

/* ---- Groups ------------------------------------------------------------------------ */

static const struct merge_team *team_named(const struct merge_record *record,
                                           const char *name)
{
    for (int t = 0; t < record->team_count; t++)
        if (strcmp(record->teams[t].name, name) == 0)
            return &record->teams[t];
    return NULL;
}

bool symm__merge_partition(const struct merge *merge, const char *name, int *ranks,
                           int *lists, int *length)
{
    int count = 0;

    *length = 0;
    for (int r = 0; r < merge->world; r++) {
        const struct merge_team *team = team_named(&merge->records[r], name), *other;
        int lowest = r;

        if (!team || (*length && team->size != *length))
            return false;
        *length = team->size;
        for (int m = 0; m < team->size; m++) {
            other = team_named(&merge->records[team->ranks[m]], name);
            if (!other || other->size != team->size ||
                memcmp(other->ranks, team->ranks,
                       (size_t)team->size * sizeof(*team->ranks)) != 0)
                return false;
            lowest = team->ranks[m] < lowest ? team->ranks[m] : lowest;
        }
        if (lowest != r)
            continue; /* its list was taken with its lowest rank */
        memcpy(ranks + count, team->ranks, (size_t)team->size * sizeof(*ranks));
        count += team->size;
    }
    *lists = count / *length;
    return count == merge->world;
}

static symm_status add_partition(struct build *build, int team)
{
    const struct merge *merge = build->merge;
    int ranks[SYMM_PROGRAM_MAX_WORLD], lists, length;

    if (build->partitions[team] >= 0)
        return SYMM_OK;
    if (!symm__merge_partition(merge, build->first->teams[team].name, ranks, &lists,
                               &length))
        return symm__fail(SYMM_ERR_INVALID, "merge: team '%s' is no partition",
                          build->first->teams[team].name);
    return symm_program_add_partition(build->program, build->first->teams[team].name,
                                      lists, length, ranks, &build->partitions[team]);
}

/* ---- Buffers ----------------------------------------------------------------------- */

static symm_status add_buffer(struct build *build, int index)
{
    const struct merge_buffer *buffer = &build->first->buffers[index];
    char name[40];
    symm_status status;
    int made;

    build->buffers[index] = -1;
    if (buffer->team != 0 || buffer->varies || buffer->bytes == 0)
        return SYMM_OK;
    snprintf(name, sizeof(name), "b%" PRIu64, buffer->alloc_id);
    if (build->raw[index])
        status = symm_program_add_bytes(build->program, name, buffer->bytes, &made);
    else
        status =
            symm_program_add_buffer(build->program, name, buffer->dtype, buffer->ndim,
                                    buffer->shape, buffer->stride, &made);
    if (status == SYMM_OK)
        status = symm_program_set_alloc_id(build->program, made, buffer->alloc_id);
    if (status == SYMM_OK)
        build->buffers[index] = made;
    return status;
}

static int input_of(const struct build *build, const struct merge_event *event)
{
    return symm__merge_input(build->merge, &build->merge->sites[event->site_id]);
}

/* Whether an array of a norm has another dtype than its buffer. Eight bits are eight bits. */
static bool is_raw(const struct merge_buffer *buffer, symm_record_array array,
                   symm_dtype rows)
{
    if (array == SYMM_RECORD_ARRAY_SCALE)
        return buffer->dtype != SYMM_FLOAT32;
    if (array == SYMM_RECORD_ARRAY_QUANT_OUT)
        return symm_dtype_size(buffer->dtype) != 1;
    return buffer->dtype != rows;
}

/* A buffer that calls use with another dtype than it was placed with is bytes. */
static void find_raw(struct build *build)
{
    const struct merge_buffer *buffers = build->first->buffers;

    for (int i = 0; i < build->first->body.count; i++) {
        const struct merge_event *event = &build->first->body.list[i];

        if (!event->kept || !symm__merge_is_collective(event))
            continue;
        for (int side = 0; side < 2; side++) {
            const int b = side ? event->out : input_of(build, event);

            if (b >= 0 && buffers[b].dtype != event->dtype)
                build->raw[b] = true;
        }
        for (int a = 0; event->norm && a < SYMM_RECORD_ARRAYS; a++) {
            const int b = event->norm->arrays[a].buffer;

            if (b >= 0 && is_raw(&buffers[b], (symm_record_array)a, event->dtype))
                build->raw[b] = true;
        }
    }
}

/* ---- Ops --------------------------------------------------------------------------- */

static symm_status add_local(struct build *build, symm_program_kind kind, int stream,
                             const int *list, int count)
{
    const symm_program_op op = {.size = sizeof(op),
                                .kind = kind,
                                .stream = stream,
                                .buffers = list,
                                .buffer_count = count};

    return count ? symm_program_add_op(build->program, &op) : SYMM_OK;
}

static symm_status add_access(struct build *build, const struct merge_event *event)
{
    const bool writes = event->kind == SYMM_RECORD_WRITE;
    const int b = writes ? event->out : event->in, made = build->buffers[b];
    const bool whole = event->count == build->first->buffers[b].bytes;
    symm_status status = SYMM_OK;

    if (!writes || !whole)
        status = add_local(build, SYMM_PROGRAM_READ, event->stream, &made, 1);
    if (status == SYMM_OK && writes)
        status = add_local(build, SYMM_PROGRAM_WRITE, event->stream, &made, 1);
    return status;
}

/* A gap in which the ranks differ. */
static symm_status add_union(struct build *build, int stream)
{
    const struct merge *merge = build->merge;
    const int gap = build->at[stream], buffers = build->first->buffer_count;
    struct pool pool = {0};
    int *all = symm__pool_alloc(&pool, (size_t)buffers + 1, sizeof(*all)), count = 0;
    int *writes = symm__pool_alloc(&pool, (size_t)buffers + 1, sizeof(*writes));
    char *seen = symm__pool_alloc(&pool, (size_t)buffers + 1, 1);
    symm_status status = pool.failed ? symm__merge_nomem() : SYMM_OK;
    int written = 0;

    for (int r = 0; status == SYMM_OK && r < merge->world; r++) {
        const struct merge_gaps *gaps = &merge->gaps[r];

        for (int i = gaps->first[gap]; i < gaps->first[gap + 1]; i++) {
            const struct merge_event *event =
                &merge->records[r].body.list[gaps->locals[i]];
            const int b = event->in >= 0 ? event->in : event->out;

            if (!(seen[b] & 1))
                all[count++] = build->buffers[b];
            if (event->kind == SYMM_RECORD_WRITE && !(seen[b] & 2))
                writes[written++] = build->buffers[b];
            seen[b] |= event->kind == SYMM_RECORD_WRITE ? 3 : 1;
        }
    }
    if (status == SYMM_OK)
        status = add_local(build, SYMM_PROGRAM_READ, stream, all, count);
    if (status == SYMM_OK)
        status = add_local(build, SYMM_PROGRAM_WRITE, stream, writes, written);
    if (status == SYMM_OK)
        status = add_local(build, SYMM_PROGRAM_READ, stream, all, count);
    symm__pool_free(&pool);
    return status;
}

/* At the end of a stream's gap: adds its accesses if they differ between the ranks. */
static symm_status end_gap(struct build *build, int stream)
{
    symm_status status = SYMM_OK;

    if (!build->merge->uniform[build->at[stream]])
        status = add_union(build, stream);
    build->at[stream]++;
    return status;
}

/* Those of an op's buffers that are alone, or that are not. */
static int list_buffers(const struct build *build, const struct merge_event *event,
                        int in, bool alone, int *list)
{
    const int all = symm__merge_buffers(event, in, list);
    int count = 0;

    for (int i = 0; i < all; i++)
        if (build->merge->alone[list[i]] == alone)
            list[count++] = build->buffers[list[i]];
    return count;
}

/* The buffers of an op that are alone, read and written. */
static symm_status add_bracket(struct build *build, const struct merge_event *event,
                               int in)
{
    int list[MERGE_BUFFERS], all;
    const int count = list_buffers(build, event, in, true, list);
    symm_status status =
        add_local(build, SYMM_PROGRAM_READ, event->stream, list, count);

    if (status == SYMM_OK)
        status = add_local(build, SYMM_PROGRAM_WRITE, event->stream, list, count);
    all = symm__merge_buffers(event, in, list);
    for (int i = 0; i < all; i++)
        if (build->merge->alone[list[i]])
            build->last[list[i]] = event->stream;
    return status;
}

/* Adds reads of the whole buffers before a call that begins inside one. */
static symm_status add_whole(struct build *build, const struct merge_event *event,
                             int in)
{
    int list[MERGE_BUFFERS];

    if (!build->inside[event->site_id])
        return SYMM_OK;
    return add_local(build, SYMM_PROGRAM_READ, event->stream, list,
                     list_buffers(build, event, in, false, list));
}

static size_t elements_of(const struct build *build, const struct merge_event *event,
                          int in)
{
    const size_t size = (size_t)build->first->teams[event->team].size;
    const bool blocks = event->kind == SYMM_RECORD_REDUCE_SCATTER ||
                        event->kind == SYMM_RECORD_ALL_TO_ALL;

    if (event->norm)
        return event->count;
    return event->count * (blocks ? size : 1) *
           (build->raw[in] ? symm_dtype_size(event->dtype) : 1);
}

static symm_program_array array_of(const struct build *build,
                                   const struct merge_norm *norm,
                                   symm_record_array array)
{
    const int buffer = norm->arrays[array].buffer;

    return (symm_program_array){.given = norm->arrays[array].given,
                                .buffer = buffer < 0 ? -1 : build->buffers[buffer]};
}

static bool is_alone(const struct build *build, const struct merge_norm *norm,
                     symm_record_array array)
{
    const int buffer = norm->arrays[array].buffer;

    return buffer >= 0 && build->merge->alone[buffer];
}

/* A weight or bias that is alone is written around the op, so that it is never free. */
static symm_status add_norm(struct build *build, const struct merge_event *event,
                            int *index)
{
    const struct merge_norm *norm = event->norm;
    const symm_program_norm made = {
        .size = sizeof(made),
        .hidden = norm->hidden,
        .dtype = event->dtype,
        .quant = norm->quant,
        .constant = norm->constant &&
                    !is_alone(build, norm, SYMM_RECORD_ARRAY_WEIGHT) &&
                    !is_alone(build, norm, SYMM_RECORD_ARRAY_BIAS),
        .bias = array_of(build, norm, SYMM_RECORD_ARRAY_BIAS),
        .residual_in = array_of(build, norm, SYMM_RECORD_ARRAY_RESIDUAL_IN),
        .weight = array_of(build, norm, SYMM_RECORD_ARRAY_WEIGHT),
        .sum_out = array_of(build, norm, SYMM_RECORD_ARRAY_SUM_OUT),
        .residual_out = array_of(build, norm, SYMM_RECORD_ARRAY_RESIDUAL_OUT),
        .norm_out = array_of(build, norm, SYMM_RECORD_ARRAY_NORM_OUT),
        .quant_out = array_of(build, norm, SYMM_RECORD_ARRAY_QUANT_OUT),
        .scale = array_of(build, norm, SYMM_RECORD_ARRAY_SCALE)};

    return symm_program_add_norm(build->program, &made, index);
}

static symm_status add_call(struct build *build, const struct merge_event *event)
{
    static const symm_program_kind kinds[SYMM_RECORD_KINDS] = {
        [SYMM_RECORD_ALL_REDUCE] = SYMM_PROGRAM_ALL_REDUCE,
        [SYMM_RECORD_REDUCE_SCATTER] = SYMM_PROGRAM_REDUCE_SCATTER,
        [SYMM_RECORD_ALL_GATHER] = SYMM_PROGRAM_ALL_GATHER,
        [SYMM_RECORD_BROADCAST] = SYMM_PROGRAM_BROADCAST,
        [SYMM_RECORD_ALL_TO_ALL] = SYMM_PROGRAM_ALL_TO_ALL,
        [SYMM_RECORD_ALL_REDUCE_NORM] = SYMM_PROGRAM_ALL_REDUCE_NORM,
        [SYMM_RECORD_PUT_SIGNAL] = SYMM_PROGRAM_PUT,
        [SYMM_RECORD_WAIT] = SYMM_PROGRAM_WAIT};
    const struct merge_site *site = &build->merge->sites[event->site_id];
    const bool wait = event->kind == SYMM_RECORD_WAIT;
    const bool put = event->kind == SYMM_RECORD_PUT_SIGNAL;
    const int in = wait ? -1 : input_of(build, event);
    symm_program_op op = {.size = sizeof(op),
                          .kind = kinds[event->kind],
                          .stream = event->stream,
                          .site = site->name,
                          .in = in < 0 ? -1 : build->buffers[in],
                          .out = event->out < 0 ? -1 : build->buffers[event->out],
                          .reduce = event->reduce,
                          .root =
                              event->kind == SYMM_RECORD_BROADCAST ? event->peer : 0,
                          .shift = put ? symm__merge_shift(build->first, event) : 0};
    symm_status status = SYMM_OK;

    if (wait)
        return symm_program_add_op(build->program, &op);
    if (!put)
        op.count = elements_of(build, event, in);
    status = add_partition(build, event->team);
    op.partition = build->partitions[event->team];
    if (status == SYMM_OK && event->norm)
        status = add_norm(build, event, &op.norm);
    if (status == SYMM_OK)
        status = add_whole(build, event, in);
    if (status == SYMM_OK)
        status = add_bracket(build, event, in);
    if (status == SYMM_OK)
        status = symm_program_add_op(build->program, &op);
    return status == SYMM_OK ? add_bracket(build, event, in) : status;
}

static symm_status add_depend(struct build *build, const struct merge_event *event)
{
    const symm_program_op op = {.size = sizeof(op),
                                .kind = SYMM_PROGRAM_DEPEND,
                                .stream = event->stream,
                                .on = event->on};

    return symm_program_add_op(build->program, &op);
}

/*
 * A depend that precedes all other events of both its streams waits for the previous period.
 * In a program a depend waits for ops of its own period alone, so it is added at the end,
 * where it holds for the next period. No rank may have an access before it.
 */
static bool waits_for_period_before(const struct build *build,
                                    const struct merge_event *event)
{
    return build->merge->loop && event->kind == SYMM_RECORD_DEPEND &&
           !build->begun[event->stream] && !build->begun[event->on] &&
           build->merge->uniform[build->at[event->stream]];
}

static symm_status add_event(struct build *build, const struct merge_event *event)
{
    const struct merge *merge = build->merge;
    const bool late = waits_for_period_before(build, event);
    symm_status status;

    build->begun[event->stream] |= event->kind != SYMM_RECORD_DEPEND;
    if (late)
        build->late[build->late_count++] = event;

    if (symm__merge_is_local(event))
        return merge->uniform[build->at[event->stream]] ? add_access(build, event)
                                                        : SYMM_OK;
    status = end_gap(build, event->stream);
    if (status != SYMM_OK || late)
        return status;
    return event->kind == SYMM_RECORD_DEPEND ? add_depend(build, event)
                                             : add_call(build, event);
}

/* ---- The whole --------------------------------------------------------------------- */

/* Without a loop a last read of each buffer that is alone keeps others from following it. */
static symm_status add_end(struct build *build)
{
    symm_status status = SYMM_OK;

    for (int s = 0; s < SYMM_PROGRAM_MAX_STREAMS && status == SYMM_OK; s++)
        status = end_gap(build, s);
    for (int i = 0; i < build->late_count && status == SYMM_OK; i++)
        status = add_depend(build, build->late[i]);
    for (int b = 0; b < build->first->buffer_count && status == SYMM_OK; b++)
        if (!build->merge->loop && build->merge->alone[b] && build->last[b] >= 0)
            status = add_local(build, SYMM_PROGRAM_READ, build->last[b],
                               &build->buffers[b], 1);
    return status;
}

static symm_status add_tables(struct build *build)
{
    const struct merge_record *first = build->first;
    char name[24];
    symm_status status = SYMM_OK;
    int stream;

    for (int s = 0; s < first->stream_count && status == SYMM_OK; s++) {
        snprintf(name, sizeof(name), s ? "s%d" : "main", s);
        status = symm_program_add_stream(build->program, name, &stream);
    }
    find_raw(build);
    for (int b = 0; b < first->buffer_count && status == SYMM_OK; b++) {
        build->last[b] = -1;
        status = add_buffer(build, b);
    }
    for (int t = 1; t < first->team_count; t++)
        build->partitions[t] = -1;
    return status;
}

/* Ranks may begin at different places, as in a reduce_scatter in place. */
static void find_inside(struct build *build)
{
    for (int s = 0; s < build->merge->site_count; s++) {
        const struct merge_site *site = &build->merge->sites[s];

        for (int r = 0; site->kept && r < build->merge->world; r++) {
            const struct merge_event *event =
                &build->merge->records[r].body.list[site->first[r]];

            if (event->in_at || event->out_at)
                build->inside[s] = true;
            for (int a = 0; event->norm && a < SYMM_RECORD_ARRAYS; a++)
                if (event->norm->arrays[a].at)
                    build->inside[s] = true;
        }
    }
}

static void fill_report(const struct build *build)
{
    const struct merge *merge = build->merge;
    symm_program_merge_report *report = merge->report;

    report->ranks = merge->world;
    report->periods = build->first->periods;
    for (int i = 0; i < build->first->body.count; i++) {
        const struct merge_event *event = &build->first->body.list[i];

        report->left_out += !event->kept && !symm__merge_is_local(event) &&
                            event->kind != SYMM_RECORD_BARRIER &&
                            event->kind != SYMM_RECORD_SIGNAL &&
                            event->kind != SYMM_RECORD_WAIT;
    }
    for (int b = 0; b < build->first->buffer_count; b++) {
        report->alone += build->buffers[b] >= 0 && merge->alone[b];
        report->elsewhere += build->buffers[b] < 0;
    }
}

static symm_status build_all(struct build *build)
{
    const struct merge *merge = build->merge;
    symm_status status = symm_program_create(build->first->name, merge->world,
                                             merge->loop, &build->program);

    if (status != SYMM_OK)
        return status;
    memcpy(build->at, merge->base, sizeof(build->at));
    status = add_tables(build);
    find_inside(build);
    for (int i = 0; i < build->first->body.count && status == SYMM_OK; i++) {
        const struct merge_event *event = &build->first->body.list[i];

        if (event->kept)
            status = add_event(build, event);
        else
            build->begun[event->stream] = true;
    }
    if (status == SYMM_OK)
        status = add_end(build);
    if (status == SYMM_OK)
        status = symm_program_finish(build->program);
    return status;
}

symm_status symm__merge_build(struct merge *merge, symm_program **program)
{
    const struct merge_record *first = &merge->records[0];
    const size_t buffers = (size_t)first->buffer_count + 1;
    struct build build = {
        .merge = merge,
        .first = first,
        .buffers = symm__pool_alloc(&merge->pool, buffers, sizeof(int)),
        .raw = symm__pool_alloc(&merge->pool, buffers, sizeof(bool)),
        .last = symm__pool_alloc(&merge->pool, buffers, sizeof(int)),
        .partitions =
            symm__pool_alloc(&merge->pool, (size_t)first->team_count + 1, sizeof(int)),
        .late = symm__pool_alloc(&merge->pool, (size_t)first->body.count + 1,
                                 sizeof(struct merge_event *)),
        .inside = symm__pool_alloc(&merge->pool, (size_t)merge->site_count + 1,
                                   sizeof(bool))};
    symm_status status;

    if (merge->pool.failed)
        return symm__merge_nomem();
    status = build_all(&build);
    if (status != SYMM_OK) {
        symm_program_destroy(build.program);
        return status;
    }
    fill_report(&build);
    *program = build.program;
    return SYMM_OK;
}
