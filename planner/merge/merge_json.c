/* SPDX-License-Identifier: MIT */
/*
 * merge_json.c - reads one rank's record, symm-record/1.
 *
 * Guarantees: every index of what is returned is in range, every list as long as it says.
 * Unknown members are ignored. Refuses what is malformed with file and JSON path.
 */
#include <string.h>

#include "merge/merge.h"
#include "model/json_read.h"
#include "util/status.h"

struct reading {
    struct json_reader json;
    struct pool *pool;
    struct merge_record *record;
};

static symm_status integer(struct reading *at, const json_t *object, const char *format,
                           size_t index, int64_t least, int64_t most, int64_t *number)
{
    const json_t *value = symm__json_at(&at->json, object, "%s[%zu]", format, index);

    return symm__json_integer(&at->json, value, least, most, number);
}

/* Member NAME of element `index` of the list LIST. */
static const json_t *member(struct reading *at, const json_t *object, const char *list,
                            size_t index, const char *name)
{
    return symm__json_at(&at->json, object, "%s[%zu].%s", list, index, name);
}

static symm_status number(struct reading *at, const json_t *object, const char *list,
                          size_t index, const char *name, int64_t least, int64_t most,
                          int64_t *value)
{
    return symm__json_integer(&at->json, member(at, object, list, index, name), least,
                              most, value);
}

static symm_status copy_name(struct reading *at, const json_t *value, const char **text)
{
    const char *found;
    symm_status status = symm__json_name(&at->json, value, &found);

    if (status != SYMM_OK)
        return status;
    *text = symm__pool_copy(at->pool, found);
    return *text ? SYMM_OK : symm__merge_nomem();
}

static symm_status list_of(struct reading *at, const json_t *root, const char *name,
                           size_t most, const json_t **list)
{
    *list = symm__json_at(&at->json, root, "%s", name);
    if (!json_is_array(*list) || json_array_size(*list) > most)
        return symm__json_refuse(&at->json, *list, "a list of at most %zu", most);
    return SYMM_OK;
}

/* ---- Teams and buffers ------------------------------------------------------------- */

static symm_status read_team(struct reading *at, const json_t *object, size_t index)
{
    struct merge_team *team = &at->record->teams[index];
    const json_t *list;
    int *ranks;
    symm_status status =
        copy_name(at, member(at, object, "teams", index, "name"), &team->name);

    list = member(at, object, "teams", index, "ranks");
    team->size = (int)json_array_size(list);
    if (status == SYMM_OK &&
        (!json_is_array(list) || team->size < 1 || team->size > at->record->world))
        return symm__json_refuse(&at->json, list, "a list of ranks");
    if (status != SYMM_OK)
        return status;
    ranks = symm__pool_alloc(at->pool, (size_t)team->size, sizeof(*ranks));
    if (!ranks)
        return symm__merge_nomem();
    team->ranks = ranks;
    team->place = -1;
    for (int i = 0; i < team->size && status == SYMM_OK; i++) {
        int64_t rank = 0;

        status = integer(at, list, "ranks", (size_t)i, 0, at->record->world - 1, &rank);
        ranks[i] = (int)rank;
        if (rank == at->record->rank)
            team->place = i;
    }
    if (status == SYMM_OK &&
        (team->place < 0 || (index == 0 && team->size != at->record->world)))
        return symm__json_refuse(&at->json, list,
                                 index ? "a list with the record's own rank"
                                       : "all ranks of the world in the first team");
    return status;
}

static symm_status read_buffer(struct reading *at, const json_t *object, size_t index)
{
    struct merge_buffer *buffer = &at->record->buffers[index];
    const json_t *shape = member(at, object, "buffers", index, "shape");
    const json_t *stride = member(at, object, "buffers", index, "stride");
    const json_t *dtype = member(at, object, "buffers", index, "dtype");
    int64_t team = 0, bytes = 0;
    symm_status status;

    if (!json_is_string(dtype) ||
        symm_dtype_parse(json_string_value(dtype), &buffer->dtype))
        return symm__json_refuse(&at->json, dtype, "the name of a dtype");
    status = symm__json_id(&at->json, member(at, object, "buffers", index, "alloc_id"),
                           &buffer->alloc_id);
    if (status == SYMM_OK)
        status = number(at, object, "buffers", index, "team", 0,
                        at->record->team_count - 1, &team);
    if (status == SYMM_OK)
        status =
            number(at, object, "buffers", index, "bytes", 0, INT64_MAX / 4, &bytes);
    if (status == SYMM_OK)
        status = symm__json_flag(&at->json,
                                 member(at, object, "buffers", index, "described"),
                                 &buffer->described);
    if (status == SYMM_OK)
        status = symm__json_flag(
            &at->json, member(at, object, "buffers", index, "varies"), &buffer->varies);
    if (status == SYMM_OK)
        status =
            symm__json_flag(&at->json, member(at, object, "buffers", index, "reached"),
                            &buffer->reached);
    buffer->dims = (int)json_array_size(shape);
    if (status == SYMM_OK && (buffer->dims > SYMM_PROGRAM_MAX_DIMS ||
                              json_array_size(stride) != (size_t)buffer->dims))
        return symm__json_refuse(&at->json, shape, "as many sizes as strides, to %d",
                                 SYMM_PROGRAM_MAX_DIMS);
    for (int d = 0; d < buffer->dims && status == SYMM_OK; d++) {
        status =
            integer(at, shape, "shape", (size_t)d, 0, INT64_MAX, &buffer->shape[d]);
        if (status == SYMM_OK)
            status = integer(at, stride, "stride", (size_t)d, 0, INT64_MAX,
                             &buffer->stride[d]);
    }
    buffer->team = (int)team;
    buffer->bytes = (size_t)bytes;
    return status;
}

/* ---- Events ------------------------------------------------------------------------ */

static symm_status read_kind(struct reading *at, const json_t *value,
                             symm_record_kind *kind)
{
    for (int k = 0; json_is_string(value) && k < SYMM_RECORD_KINDS; k++) {
        *kind = (symm_record_kind)k;
        if (strcmp(json_string_value(value), symm_record_kind_name(*kind)) == 0)
            return SYMM_OK;
    }
    return symm__json_refuse(&at->json, value, "an event of this version's recorder");
}

static symm_status read_reference(struct reading *at, const json_t *pair, int *buffer,
                                  size_t *offset)
{
    const json_int_t index = json_integer_value(json_array_get(pair, 0));
    const json_int_t begin = json_integer_value(json_array_get(pair, 1));

    *buffer = -1;
    if (!pair)
        return SYMM_OK;
    if (json_array_size(pair) != 2 || index < 0 || index >= at->record->buffer_count ||
        begin < 0 || (size_t)begin > at->record->buffers[index].bytes)
        return symm__json_refuse(&at->json, pair, "a buffer's index and an offset");
    *buffer = (int)index;
    *offset = (size_t)begin;
    return SYMM_OK;
}

static symm_status read_event(struct reading *at, const json_t *object,
                              const char *list, size_t index, struct merge_event *event)
{
    const struct merge_record *record = at->record;
    const json_t *value;
    int64_t stream = 0, team = 0, count = 0, peer = 0, signal = 0;
    symm_status status =
        read_kind(at, member(at, object, list, index, "op"), &event->kind);

    event->in = event->out = event->site_id = -1;
    if (status == SYMM_OK)
        status = number(at, object, list, index, "stream", 0, record->stream_count - 1,
                        &stream);
    event->stream = (int)stream;
    if (status == SYMM_OK && event->kind == SYMM_RECORD_DEPEND) {
        status =
            number(at, object, list, index, "on", 0, record->stream_count - 1, &stream);
        event->on = (int)stream;
        return status;
    }
    if (status == SYMM_OK)
        status =
            number(at, object, list, index, "team", 0, record->team_count - 1, &team);
    event->team = (int)team;
    if (status == SYMM_OK)
        status = number(at, object, list, index, "count", 0, INT64_MAX / 16, &count);
    event->count = (size_t)count;
    if (status == SYMM_OK)
        status = number(at, object, list, index, "peer", 0,
                        record->teams[team].size - 1, &peer);
    event->peer = (int)peer;
    if (status == SYMM_OK)
        status = number(at, object, list, index, "signal", -1, INT32_MAX, &signal);
    event->signal = (int)signal;
    if (status == SYMM_OK)
        status = symm__json_flag(&at->json, member(at, object, list, index, "forced"),
                                 &event->forced);
    value = status == SYMM_OK ? member(at, object, list, index, "site") : NULL;
    if (value)
        status = copy_name(at, value, &event->site);
    if (status == SYMM_OK)
        status = read_reference(at, member(at, object, list, index, "in"), &event->in,
                                &event->in_at);
    if (status == SYMM_OK)
        status = read_reference(at, member(at, object, list, index, "out"), &event->out,
                                &event->out_at);
    if (status != SYMM_OK)
        return status;
    value = member(at, object, list, index, "dtype");
    if (!json_is_string(value) ||
        symm_dtype_parse(json_string_value(value), &event->dtype))
        return symm__json_refuse(&at->json, value, "the name of a dtype");
    value = member(at, object, list, index, "reduce");
    if (value && (!json_is_string(value) ||
                  symm_op_parse(json_string_value(value), &event->reduce)))
        return symm__json_refuse(&at->json, value, "sum avg prod min max");
    return SYMM_OK;
}

static symm_status read_events(struct reading *at, const json_t *root, const char *name,
                               struct merge_events *events)
{
    const json_t *list;
    symm_status status = list_of(at, root, name, SYMM_PROGRAM_MAX_OPS, &list);

    if (status != SYMM_OK)
        return status;
    events->count = (int)json_array_size(list);
    events->list =
        symm__pool_alloc(at->pool, (size_t)events->count + 1, sizeof(*events->list));
    if (!events->list)
        return symm__merge_nomem();
    for (size_t i = 0; i < (size_t)events->count && status == SYMM_OK; i++)
        status = read_event(at, json_array_get(list, i), name, i, &events->list[i]);
    return status;
}

/* ---- The whole --------------------------------------------------------------------- */

static symm_status read_head(struct reading *at, const json_t *root)
{
    struct merge_record *record = at->record;
    const json_t *format = symm__json_at(&at->json, root, "format");
    int64_t rank = 0, world = 0, periods = 0, streams = 0;
    const json_t *trouble;
    symm_status status;

    if (!json_is_string(format) ||
        strcmp(json_string_value(format), "symm-record/1") != 0)
        return symm__json_refuse(&at->json, format, "\"symm-record/1\"");
    status = copy_name(at, symm__json_at(&at->json, root, "name"), &record->name);
    if (status == SYMM_OK)
        status = copy_name(at, symm__json_at(&at->json, root, "job"), &record->job);
    if (status == SYMM_OK)
        status = symm__json_integer(&at->json, symm__json_at(&at->json, root, "world"),
                                    1, SYMM_PROGRAM_MAX_WORLD, &world);
    if (status == SYMM_OK)
        status = symm__json_integer(&at->json, symm__json_at(&at->json, root, "rank"),
                                    0, world - 1, &rank);
    if (status == SYMM_OK)
        status =
            symm__json_integer(&at->json, symm__json_at(&at->json, root, "periods"), 0,
                               INT64_MAX, &periods);
    if (status == SYMM_OK)
        status =
            symm__json_integer(&at->json, symm__json_at(&at->json, root, "streams"), 1,
                               SYMM_PROGRAM_MAX_STREAMS, &streams);
    if (status == SYMM_OK)
        status = symm__json_flag(&at->json, symm__json_at(&at->json, root, "complete"),
                                 &record->complete);
    trouble = symm__json_at(&at->json, root, "trouble");
    if (status == SYMM_OK && trouble)
        status = copy_name(at, trouble, &record->trouble);
    record->world = (int)world;
    record->rank = (int)rank;
    record->periods = (uint64_t)periods;
    record->stream_count = (int)streams;
    return status;
}

static symm_status read_tables(struct reading *at, const json_t *root)
{
    struct merge_record *record = at->record;
    const json_t *teams, *buffers;
    symm_status status = list_of(at, root, "teams", 32767, &teams);

    if (status == SYMM_OK)
        status = list_of(at, root, "buffers", INT32_MAX, &buffers);
    if (status != SYMM_OK)
        return status;
    record->team_count = (int)json_array_size(teams);
    record->buffer_count = (int)json_array_size(buffers);
    record->teams = symm__pool_alloc(at->pool, (size_t)record->team_count + 1,
                                     sizeof(*record->teams));
    record->buffers = symm__pool_alloc(at->pool, (size_t)record->buffer_count + 1,
                                       sizeof(*record->buffers));
    if (!record->teams || !record->buffers)
        return symm__merge_nomem();
    for (size_t t = 0; t < (size_t)record->team_count && status == SYMM_OK; t++)
        status = read_team(at, json_array_get(teams, t), t);
    for (size_t b = 0; b < (size_t)record->buffer_count && status == SYMM_OK; b++)
        status = read_buffer(at, json_array_get(buffers, b), b);
    return status;
}

symm_status symm__merge_read(struct pool *pool, const char *path,
                             struct merge_record *record)
{
    struct reading at = {.json = {.file = path}, .pool = pool, .record = record};
    symm_status status = SYMM_OK;
    json_t *root = symm__json_file(path, &status);

    if (!root)
        return status;
    *record = (struct merge_record){.path = symm__pool_copy(pool, path)};
    status = record->path ? read_head(&at, root) : symm__merge_nomem();
    if (status == SYMM_OK && record->complete && !record->trouble) {
        status = read_tables(&at, root);
        if (status == SYMM_OK)
            status = read_events(&at, root, "head", &record->head);
        if (status == SYMM_OK)
            status = read_events(&at, root, "period", &record->period);
        if (status == SYMM_OK)
            status = read_events(&at, root, "tail", &record->tail);
    }
    json_decref(root);
    return status;
}
