/* SPDX-License-Identifier: MIT */
/*
 * merge_json.c - reads one rank's record, symm-record/1.
 *
 * Guarantees: every index of what is returned is in range, every list as long as it says.
 * Unknown members are ignored. Refuses what is malformed with file and JSON path.
 */
#include <string.h>

#include "merge/merge.h"
#include "model/json_member.h"
#include "util/dtype.h"
#include "util/status.h"

#define MOST_TEAMS 32767

/* Element `index` of a list of numbers that is called `name` in complaints. */
static int64_t element(struct json_members *at, const json_t *list, const char *name,
                       int index, int64_t least, int64_t most)
{
    int64_t number = least;

    if (at->status == SYMM_OK)
        at->status = symm__json_integer(
            &at->json, symm__json_at(&at->json, list, "%s[%d]", name, index), least,
            most, &number);
    return number;
}

static void take_dtype(struct json_members *at, symm_dtype *dtype)
{
    const json_t *value = symm__member(at, "dtype");

    if (!json_is_string(value) || symm_dtype_parse(json_string_value(value), dtype))
        symm__member_refuse(at, value, "the name of a dtype");
}

/* ---- Teams and buffers ------------------------------------------------------------- */

static void read_team(struct json_members *at, void *arg)
{
    struct merge_record *record = arg;
    struct merge_team *team = &record->teams[at->index];
    const json_t *list = json_object_get(at->object, "ranks");
    int *ranks;

    symm__take_name(at, "name", &team->name);
    team->size = (int)json_array_size(list);
    team->place = -1;
    if (!json_is_array(list) || team->size < 1 || team->size > record->world)
        symm__member_refuse(at, symm__member(at, "ranks"), "a list of ranks");
    team->ranks = ranks = symm__take_room(at, (size_t)team->size, sizeof(*ranks));
    for (int i = 0; i < team->size && at->status == SYMM_OK; i++) {
        ranks[i] = (int)element(at, list, "ranks", i, 0, record->world - 1);
        if (ranks[i] == record->rank)
            team->place = i;
    }
    if (team->place < 0 || (at->index == 0 && team->size != record->world))
        symm__member_refuse(at, symm__member(at, "ranks"),
                            at->index ? "a list with the record's own rank"
                                      : "all ranks of the world in the first team");
}

static void read_buffer(struct json_members *at, void *arg)
{
    const struct merge_record *record = arg;
    struct merge_buffer *buffer = &record->buffers[at->index];
    const json_t *shape = json_object_get(at->object, "shape");
    const json_t *stride = json_object_get(at->object, "stride");

    take_dtype(at, &buffer->dtype);
    symm__take_id(at, "alloc_id", &buffer->alloc_id);
    symm__take_int(at, "team", 0, record->team_count - 1, &buffer->team);
    symm__take_size(at, "bytes", INT64_MAX / 4, &buffer->bytes);
    symm__take_flag(at, "described", &buffer->described);
    symm__take_flag(at, "varies", &buffer->varies);
    symm__take_flag(at, "reached", &buffer->reached);
    buffer->ndim = (int)json_array_size(shape);
    if (buffer->ndim > SYMM_PROGRAM_MAX_NDIM ||
        json_array_size(stride) != (size_t)buffer->ndim)
        symm__member_refuse(at, symm__member(at, "shape"),
                            "as many sizes as strides, at most 16");
    for (int d = 0; d < buffer->ndim && at->status == SYMM_OK; d++) {
        buffer->shape[d] = element(at, shape, "shape", d, 0, INT64_MAX);
        buffer->stride[d] = element(at, stride, "stride", d, 0, INT64_MAX);
    }
}

/* ---- Events ------------------------------------------------------------------------ */

struct reading_events {
    const struct merge_record *record;
    struct merge_events *events;
    struct merge_norm *rows[SYMM_PROGRAM_MAX_STREAMS]; /* by stream: the last one's */
};

static void read_kind(struct json_members *at, symm_record_kind *kind)
{
    const json_t *value = symm__member(at, "op");

    for (int k = 0; json_is_string(value) && k < SYMM_RECORD_KINDS; k++) {
        *kind = (symm_record_kind)k;
        if (strcmp(json_string_value(value), symm_record_kind_name(*kind)) == 0)
            return;
    }
    symm__member_refuse(at, value, "an event of this version's recorder");
}

/* [buffer, offset]; absent: none. */
static void read_reference(struct json_members *at, const struct merge_record *record,
                           const char *name, int *buffer, size_t *offset)
{
    const json_t *pair = symm__member(at, name);
    const json_int_t index = json_integer_value(json_array_get(pair, 0));
    const json_int_t begin = json_integer_value(json_array_get(pair, 1));

    *buffer = -1;
    if (!pair)
        return;
    if (json_array_size(pair) != 2 || index < 0 || index >= record->buffer_count ||
        begin < 0 || (size_t)begin > record->buffers[index].bytes) {
        symm__member_refuse(at, pair, "a buffer's index and an offset");
        return;
    }
    *buffer = (int)index;
    *offset = (size_t)begin;
}

static void read_reduce(struct json_members *at, symm_op *reduce)
{
    const json_t *value = symm__member(at, "reduce");

    if (value &&
        (!json_is_string(value) || symm_op_parse(json_string_value(value), reduce)))
        symm__member_refuse(at, value, symm__op_names(SYMM_INT64));
}

static symm_record_array read_array(struct json_members *at, const json_t *norm,
                                    const char *name)
{
    const json_t *value =
        symm__json_at(&at->json, norm, "%s[%zu].norm.%s", at->list, at->index, name);

    for (int a = 0; json_is_string(value) && a < SYMM_RECORD_ARRAYS; a++)
        if (strcmp(json_string_value(value),
                   symm_record_array_name((symm_record_array)a)) == 0)
            return (symm_record_array)a;
    if (value)
        symm__member_refuse(at, value, "the name of an array of an all_reduce_norm");
    return SYMM_RECORD_ARRAYS;
}

static int64_t norm_number(struct json_members *at, const json_t *norm,
                           const char *name, int64_t most)
{
    const json_t *value =
        symm__json_at(&at->json, norm, "%s[%zu].norm.%s", at->list, at->index, name);
    int64_t number = 0;

    if (at->status == SYMM_OK)
        at->status = symm__json_integer(&at->json, value, 0, most, &number);
    return number;
}

/* The row that this event begins or goes on with; NULL after a complaint. */
static struct merge_norm *take_row(struct json_members *at, const json_t *norm,
                                   struct merge_norm **row)
{
    const int64_t part = norm_number(at, norm, "part", SYMM_RECORD_ARRAYS);

    if (at->status == SYMM_OK && part > 0 && !*row)
        symm__member_refuse(at, json_object_get(norm, "part"),
                            "0, since no event before it begins the row");
    if (part == 0)
        *row = symm__take_room(at, 1, sizeof(**row));
    if (!*row || part > 0)
        return at->status == SYMM_OK ? *row : NULL;
    for (int i = 0; i < SYMM_RECORD_ARRAYS; i++)
        (*row)->arrays[i].buffer = -1;
    (*row)->hidden = (size_t)norm_number(at, norm, "hidden", SYMM_NORM_MAX_HIDDEN);
    (*row)->quant =
        (symm_norm_quant)norm_number(at, norm, "quant", SYMM_NORM_QUANT_COUNT - 1);
    (*row)->constant = json_is_true(json_object_get(norm, "constant"));
    return *row;
}

/* Adds the event's arrays to its row. The row's first event keeps `in` and gets the row. */
static void read_norm(struct json_members *at, struct merge_event *event,
                      struct merge_norm **last)
{
    const json_t *norm = symm__member(at, "norm");
    struct merge_norm *row;
    symm_record_array reads, writes;

    if (!json_is_object(norm)) {
        symm__member_refuse(at, norm,
                            "an object, as this version's recorder writes it");
        return;
    }
    reads = read_array(at, norm, "reads");
    writes = read_array(at, norm, "writes");
    row = take_row(at, norm, last);
    if (!row || at->status != SYMM_OK)
        return;
    if (reads < SYMM_RECORD_ARRAYS)
        row->arrays[reads] = (struct merge_array){true, event->in, event->in_at};
    if (writes < SYMM_RECORD_ARRAYS)
        row->arrays[writes] = (struct merge_array){true, event->out, event->out_at};
    event->out = -1;
    event->out_at = 0;
    if (json_integer_value(json_object_get(norm, "part")) == 0)
        event->norm = row;
}

static void read_event(struct json_members *at, void *arg)
{
    struct reading_events *reading = arg;
    const struct merge_record *record = reading->record;
    struct merge_event *event = &reading->events->list[at->index];

    event->in = event->out = event->site_id = -1;
    read_kind(at, &event->kind);
    symm__take_int(at, "stream", 0, record->stream_count - 1, &event->stream);
    if (event->kind == SYMM_RECORD_DEPEND) {
        symm__take_int(at, "on", 0, record->stream_count - 1, &event->on);
        return;
    }
    symm__take_int(at, "team", 0, record->team_count - 1, &event->team);
    symm__take_size(at, "count", INT64_MAX / 16, &event->count);
    if (at->status == SYMM_OK) /* else there may be no such team */
        symm__take_int(at, "peer", 0, record->teams[event->team].size - 1,
                       &event->peer);
    symm__take_int(at, "signal", -1, INT32_MAX, &event->signal);
    symm__take_flag(at, "forced", &event->forced);
    if (json_object_get(at->object, "site"))
        symm__take_name(at, "site", &event->site);
    read_reference(at, record, "in", &event->in, &event->in_at);
    read_reference(at, record, "out", &event->out, &event->out_at);
    take_dtype(at, &event->dtype);
    read_reduce(at, &event->reduce);
    if (event->kind == SYMM_RECORD_ALL_REDUCE_NORM && at->status == SYMM_OK)
        read_norm(at, event, &reading->rows[event->stream]);
}

/* Rows of events become their first ones. */
static void drop_parts(struct merge_events *events)
{
    int kept = 0;

    for (int i = 0; i < events->count; i++)
        if (events->list[i].kind != SYMM_RECORD_ALL_REDUCE_NORM || events->list[i].norm)
            events->list[kept++] = events->list[i];
    events->count = kept;
}

static void read_events(struct json_members *at, const json_t *root, const char *name,
                        const struct merge_record *record, struct merge_events *events)
{
    struct reading_events reading = {.record = record, .events = events};
    size_t count;
    const json_t *list = symm__take_list(at, root, name, SYMM_PROGRAM_MAX_OPS, &count);

    events->list = symm__take_room(at, count, sizeof(*events->list));
    events->count = events->list ? (int)count : 0;
    symm__take_each(at, list, name, read_event, &reading);
    drop_parts(events);
}

/* ---- The whole --------------------------------------------------------------------- */

static void read_head(struct json_members *at, struct merge_record *record)
{
    const json_t *format = symm__member(at, "format");
    int64_t periods;

    if (!json_is_string(format) ||
        strcmp(json_string_value(format), "symm-record/1") != 0)
        symm__member_refuse(at, format, "\"symm-record/1\"");
    symm__take_name(at, "name", &record->name);
    symm__take_name(at, "job", &record->job);
    symm__take_int(at, "world", 1, SYMM_PROGRAM_MAX_WORLD, &record->world);
    symm__take_int(at, "rank", 0, record->world - 1, &record->rank);
    symm__take_integer(at, "periods", 0, INT64_MAX, &periods);
    record->periods = (uint64_t)periods;
    symm__take_int(at, "streams", 1, SYMM_PROGRAM_MAX_STREAMS, &record->stream_count);
    symm__take_flag(at, "complete", &record->complete);
    if (json_object_get(at->object, "trouble"))
        symm__take_name(at, "trouble", &record->trouble);
}

static void read_tables(struct json_members *at, const json_t *root,
                        struct merge_record *record)
{
    size_t team_count, buffer_count;
    const json_t *teams = symm__take_list(at, root, "teams", MOST_TEAMS, &team_count);
    const json_t *buffers =
        symm__take_list(at, root, "buffers", INT32_MAX, &buffer_count);

    record->teams = symm__take_room(at, team_count, sizeof(*record->teams));
    record->buffers = symm__take_room(at, buffer_count, sizeof(*record->buffers));
    record->team_count = (int)team_count;
    record->buffer_count = (int)buffer_count;
    symm__take_each(at, teams, "teams", read_team, record);
    symm__take_each(at, buffers, "buffers", read_buffer, record);
}

symm_status symm__merge_read(struct pool *pool, const char *path,
                             struct merge_record *record)
{
    symm_status status = SYMM_OK;
    json_t *root = symm__json_file(path, &status);
    struct json_members at = {.json = {.file = path}, .pool = pool, .object = root};

    if (!root)
        return status;
    *record = (struct merge_record){.path = symm__pool_copy(pool, path)};
    if (!record->path)
        at.status = symm__merge_nomem();
    read_head(&at, record);
    if (at.status == SYMM_OK && record->complete && !record->trouble) {
        read_tables(&at, root, record);
        read_events(&at, root, "head", record, &record->head);
        read_events(&at, root, "period", record, &record->period);
        read_events(&at, root, "tail", record, &record->tail);
    }
    json_decref(root);
    return at.status;
}
