/* SPDX-License-Identifier: MIT */
/*
 * merge.c - the ranks' records become one program: which files belong together, and which
 * of a rank's events are one period.
 *
 * Guarantees: nothing is claimed that a record does not show. Refuses, naming ranks and
 * files: records of different jobs, a rank that is missing, there twice or not complete,
 * ranks that differ in their buffers, calls or order.
 */
#include "merge/merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util/status.h"

symm_status symm__merge_nomem(void)
{
    return symm__fail(SYMM_ERR_NOMEM, "merge: memory is exhausted");
}

int symm__merge_shift(const struct merge_record *record,
                      const struct merge_event *event)
{
    const struct merge_team *team = &record->teams[event->team];
    /* a wait names the sender */
    const int direction = event->kind == SYMM_RECORD_WAIT ? -1 : 1;
    const int shift = direction * (event->peer - team->place);

    return (shift % team->size + team->size) % team->size;
}

static int add_once(int *list, int count, int buffer)
{
    for (int i = 0; i < count; i++)
        if (list[i] == buffer)
            return count;
    if (buffer >= 0)
        list[count++] = buffer;
    return count;
}

int symm__merge_buffers(const struct merge_event *event, int in,
                        int list[MERGE_BUFFERS])
{
    int count = add_once(list, 0, in);

    count = add_once(list, count, event->out);
    for (int i = 0; event->norm && i < SYMM_RECORD_ARRAYS; i++)
        count = add_once(list, count, event->norm->arrays[i].buffer);
    return count;
}

/* ---- Which files belong together --------------------------------------------------- */

static symm_status check_file(const struct merge_record *record,
                              const struct merge_record *first)
{
    if (strcmp(record->job, first->job) != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s is of job %s, and %s of job %s: give the files of one job "
            "(their names begin with it)",
            record->path, record->job, first->path, first->job);
    if (record->world != first->world)
        return symm__fail(SYMM_ERR_INVALID, "%s: world: found %d, allowed: %d as in %s",
                          record->path, record->world, first->world, first->path);
    if (!record->complete)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s: rank %d did not come to its end: it was killed, or ended without "
            "symm_finalize, or the disk was full; record the program again",
            record->path, record->rank);
    if (record->trouble)
        return symm__fail(SYMM_ERR_INVALID, "%s: rank %d cannot be merged: %s",
                          record->path, record->rank, record->trouble);
    return SYMM_OK;
}

static symm_status read_all(struct merge *merge, const char *const *paths, int count)
{
    struct merge_record first = {0}, record;
    symm_status status;

    for (int i = 0; i < count; i++) {
        status = symm__merge_read(&merge->pool, paths[i], &record);
        if (status != SYMM_OK)
            return status;
        if (i == 0) {
            first = record;
            merge->world = record.world;
            merge->records = symm__pool_alloc(&merge->pool, (size_t)record.world,
                                              sizeof(*merge->records));
            if (!merge->records)
                return symm__merge_nomem();
        }
        status = check_file(&record, &first);
        if (status != SYMM_OK)
            return status;
        if (merge->records[record.rank].path)
            return symm__fail(SYMM_ERR_INVALID, "%s and %s are both of rank %d",
                              merge->records[record.rank].path, record.path,
                              record.rank);
        merge->records[record.rank] = record;
    }
    for (int r = 0; r < merge->world; r++)
        if (!merge->records[r].path)
            return symm__fail(SYMM_ERR_INVALID,
                              "the file of rank %d is missing: %d of the %d ranks of "
                              "job %s are here; give all of them",
                              r, count, merge->world, first.job);
    return SYMM_OK;
}

/* ---- Buffers ----------------------------------------------------------------------- */

static bool buffers_equal(const struct merge_buffer *a, const struct merge_buffer *b)
{
    return a->alloc_id == b->alloc_id && a->dtype == b->dtype && a->ndim == b->ndim &&
           a->bytes == b->bytes && a->varies == b->varies &&
           memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           memcmp(a->stride, b->stride, sizeof(a->stride)) == 0;
}

/* All ranks place the world's buffers in one order. Buffers of other teams are not compared. */
static symm_status check_buffers(struct merge *merge, int rank)
{
    const struct merge_record *a = &merge->records[0], *b = &merge->records[rank];
    int i = 0, j = 0;

    for (;; i++, j++) {
        while (i < a->buffer_count && a->buffers[i].team != 0)
            i++;
        while (j < b->buffer_count && b->buffers[j].team != 0)
            j++;
        if (i == a->buffer_count && j == b->buffer_count)
            return SYMM_OK;
        if (i == a->buffer_count || j == b->buffer_count)
            break;
        if (!buffers_equal(&a->buffers[i], &b->buffers[j]))
            return symm__fail(
                SYMM_ERR_INVALID,
                "rank 0 placed alloc_id %" PRIu64 " of %zu bytes (%s) where rank %d "
                "placed alloc_id %" PRIu64 " of %zu bytes (%s): make the same "
                "allocations in the same order on all ranks",
                a->buffers[i].alloc_id, a->buffers[i].bytes,
                symm_dtype_name(a->buffers[i].dtype), rank, b->buffers[j].alloc_id,
                b->buffers[j].bytes, symm_dtype_name(b->buffers[j].dtype));
    }
    return symm__fail(SYMM_ERR_INVALID,
                      "rank %d placed a buffer that rank %d did not, alloc_id %" PRIu64
                      ": make the same allocations on all ranks",
                      i < a->buffer_count ? 0 : rank, i < a->buffer_count ? rank : 0,
                      i < a->buffer_count ? a->buffers[i].alloc_id
                                          : b->buffers[j].alloc_id);
}

/* Lets events name the world's buffers by rank 0's numbers, and other buffers not at all. */
static void renumber(const int *numbers, struct merge_events *events)
{
    for (int i = 0; i < events->count; i++) {
        struct merge_event *event = &events->list[i];

        event->in = event->in < 0 ? -1 : numbers[event->in];
        event->out = event->out < 0 ? -1 : numbers[event->out];
        for (int k = 0; event->norm && k < SYMM_RECORD_ARRAYS; k++) {
            int *buffer = &event->norm->arrays[k].buffer;
            *buffer = *buffer < 0 ? -1 : numbers[*buffer];
        }
    }
}

static symm_status unify_buffers(struct merge *merge)
{
    struct merge_record *first = &merge->records[0];

    for (int r = merge->world - 1; r >= 0; r--) {
        struct merge_record *record = &merge->records[r];
        int *numbers = symm__pool_alloc(&merge->pool, (size_t)record->buffer_count + 1,
                                        sizeof(*numbers));
        int at = 0;
        symm_status status = numbers ? check_buffers(merge, r) : symm__merge_nomem();

        for (int b = 0; status == SYMM_OK && b < record->buffer_count; b++) {
            numbers[b] = -1;
            if (record->buffers[b].team != 0)
                continue;
            while (first->buffers[at].team != 0)
                at++;
            if (record->buffers[b].described) /* by one rank is enough */
                first->buffers[at].described = true;
            if (record->buffers[b].reached)
                first->buffers[at].reached = true;
            numbers[b] = at++;
        }
        if (status != SYMM_OK)
            return status;
        renumber(numbers, &record->head);
        renumber(numbers, &record->period);
        renumber(numbers, &record->tail);
    }
    return SYMM_OK;
}

/* ---- The period -------------------------------------------------------------------- */

static bool norms_equal(const struct merge_norm *a, const struct merge_norm *b)
{
    bool equal =
        a->hidden == b->hidden && a->quant == b->quant && a->constant == b->constant;

    for (int i = 0; i < SYMM_RECORD_ARRAYS; i++)
        equal = equal && a->arrays[i].given == b->arrays[i].given &&
                a->arrays[i].buffer == b->arrays[i].buffer &&
                a->arrays[i].at == b->arrays[i].at;
    return equal;
}

static bool events_equal(const struct merge_event *a, const struct merge_event *b)
{
    if (a->kind != b->kind || a->stream != b->stream)
        return false;
    if (a->kind == SYMM_RECORD_DEPEND)
        return a->on == b->on;
    return a->team == b->team && a->peer == b->peer && a->signal == b->signal &&
           a->in == b->in && a->out == b->out && a->in_at == b->in_at &&
           a->out_at == b->out_at && a->count == b->count && a->dtype == b->dtype &&
           a->reduce == b->reduce && (!a->norm || norms_equal(a->norm, b->norm)) &&
           strcmp(a->site ? a->site : "", b->site ? b->site : "") == 0;
}

static bool touches(const struct merge_event *event)
{
    int list[MERGE_BUFFERS];

    return event->kind != SYMM_RECORD_DEPEND &&
           symm__merge_buffers(event, event->in, list) > 0;
}

static bool any_touches(const struct merge_events *events)
{
    for (int i = 0; i < events->count; i++)
        if (touches(&events->list[i]))
            return true;
    return false;
}

/* A barrier over the world that belongs to no put. */
static bool is_rest(const struct merge_event *event)
{
    return event->kind == SYMM_RECORD_BARRIER && event->team == 0 && !event->site;
}

/* Drops events that have no form in a program and touch no buffer. */
static void drop_others(struct merge_events *events)
{
    int kept = 0;

    for (int i = 0; i < events->count; i++) {
        const struct merge_event *event = &events->list[i];

        if (touches(event) || event->kind == SYMM_RECORD_DEPEND ||
            event->kind == SYMM_RECORD_WAIT || event->kind == SYMM_RECORD_SIGNAL ||
            is_rest(event))
            events->list[kept++] = *event;
    }
    events->count = kept;
}

/*
 * Of a program without a loop that ran several times, each with a barrier over the world at
 * its end: the first run. The table of Knuth, Morris and Pratt gives the shortest period.
 */
static int find_run(const struct merge_events *events, int *borders)
{
    const struct merge_event *e = events->list;
    const int n = events->count;
    int k = 0, period;

    for (int i = 1; i < n; i++) {
        while (k > 0 && !events_equal(&e[i], &e[k]))
            k = borders[k - 1];
        k += events_equal(&e[i], &e[k]);
        borders[i] = k;
    }
    period = n ? n - borders[n - 1] : 0;
    if (period == n || period == 0 || n % period != 0 || !is_rest(&e[period - 1]))
        return n;
    return period - 1;
}

static symm_status find_body(struct pool *pool, struct merge_record *record)
{
    int *borders;

    if (record->periods >= 2) {
        record->body = record->period;
    } else if (record->periods == 1) {
        record->body = any_touches(&record->tail) ? record->tail : record->head;
    } else {
        record->body = record->tail;
        while (record->body.count > 0 && is_rest(record->body.list)) {
            record->body.list++;
            record->body.count--;
        }
        borders =
            symm__pool_alloc(pool, (size_t)record->tail.count + 1, sizeof(*borders));
        if (!borders)
            return symm__merge_nomem();
        record->body.count = find_run(&record->body, borders);
    }
    return SYMM_OK;
}

static symm_status check_periods(struct merge *merge)
{
    for (int r = 0; r < merge->world; r++) {
        struct merge_record *record = &merge->records[r];
        symm_status status;

        drop_others(&record->head);
        drop_others(&record->period);
        drop_others(&record->tail);
        status = find_body(&merge->pool, record);
        if (status != SYMM_OK)
            return status;
        if (record->periods != merge->records[0].periods)
            return symm__fail(SYMM_ERR_INVALID,
                              "rank 0 called symm_record_period %" PRIu64
                              " times, rank %d %" PRIu64
                              " times: call it at the same places on all ranks",
                              merge->records[0].periods, r, record->periods);
    }
    merge->loop = merge->records[0].periods > 0;
    return SYMM_OK;
}

/*
 * Events outside of the period may be a whole period before it or the start of one after it.
 * Buffers that other events touch there hold values that no plan knows of.
 */
static bool is_part_of(const struct merge_events *events,
                       const struct merge_events *body, bool whole)
{
    if (events->list == body->list)
        return true;
    if (events->count > body->count || (whole && events->count != body->count))
        return false;
    for (int i = 0; i < events->count; i++)
        if (!events_equal(&events->list[i], &body->list[i]))
            return false;
    return true;
}

static void set_alone(struct merge *merge, int rank, const struct merge_events *events)
{
    int list[MERGE_BUFFERS];

    for (int i = 0; i < events->count; i++) {
        const struct merge_event *event = &events->list[i];
        const int count =
            touches(event) ? symm__merge_buffers(event, event->in, list) : 0;

        if (count > 0 && !merge->report->first[0])
            snprintf(merge->report->first, sizeof(merge->report->first),
                     "rank %d touches alloc_id %" PRIu64 " outside of its periods (%s)",
                     rank, merge->records[0].buffers[list[0]].alloc_id,
                     symm_record_kind_name(event->kind));
        for (int k = 0; k < count; k++)
            merge->alone[list[k]] = true;
    }
}

static symm_status look_outside(struct merge *merge)
{
    merge->alone =
        symm__pool_alloc(&merge->pool, (size_t)merge->records[0].buffer_count + 1,
                         sizeof(*merge->alone));
    if (!merge->alone)
        return symm__merge_nomem();
    for (int r = 0; r < merge->world && merge->loop; r++) {
        const struct merge_record *record = &merge->records[r];

        if (!is_part_of(&record->head, &record->body, true))
            set_alone(merge, r, &record->head);
        if (!is_part_of(&record->tail, &record->body, false))
            set_alone(merge, r, &record->tail);
    }
    return SYMM_OK;
}

/* ---- The whole --------------------------------------------------------------------- */

static symm_status merge_all(struct merge *merge, const char *const *paths, int count,
                             symm_program **program)
{
    symm_status status = read_all(merge, paths, count);

    if (status == SYMM_OK)
        status = unify_buffers(merge);
    if (status == SYMM_OK)
        status = check_periods(merge);
    if (status == SYMM_OK)
        status = look_outside(merge);
    if (status == SYMM_OK)
        status = symm__merge_keep(merge);
    if (status == SYMM_OK)
        status = symm__merge_order(merge);
    return status == SYMM_OK ? symm__merge_build(merge, program) : status;
}

symm_status symm_program_merge(const char *const *paths, int count,
                               symm_program **program,
                               symm_program_merge_report *report)
{
    symm_program_merge_report unasked = {.size = sizeof(unasked)};
    struct merge merge = {.report = report ? report : &unasked};
    symm_status status;

    if (!paths || count < 1 || !program)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_program_merge: %d paths at %p into %p; give at least "
                          "one record",
                          count, (const void *)paths, (void *)program);
    for (int i = 0; i < count; i++)
        if (!paths[i])
            return symm__fail(SYMM_ERR_INVALID,
                              "symm_program_merge: path %d of %d is NULL", i, count);
    if (merge.report->size != sizeof(*report))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_program_merge: report->size is %zu; set it to %zu",
                          merge.report->size, sizeof(*report));
    *merge.report = (symm_program_merge_report){.size = sizeof(*report)};
    status = merge_all(&merge, paths, count, program);
    symm__pool_free(&merge.pool);
    return status;
}
