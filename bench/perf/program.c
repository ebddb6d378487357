/* SPDX-License-Identifier: MIT */
/*
 * program.c - reads and checks a symm-program/1 file: its head, streams and groups.
 *
 * Every complaint is made once, by program__refuse; callers pass its -1 on. Buffers are
 * read in program_buffers.c, ops in program_ops.c.
 */
#include "perf/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "perf/program_read.h"

/* ---- Complaints and small readers ------------------------------------------------ */

static void describe(const json_t *found, char *text, size_t bytes)
{
    char *dump;

    if (!found) {
        snprintf(text, bytes, "nothing");
        return;
    }
    dump = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!dump)
        snprintf(text, bytes, "a value that cannot be printed");
    else if (strlen(dump) > 60)
        snprintf(text, bytes, "%.60s...", dump);
    else
        snprintf(text, bytes, "%s", dump);
    free(dump);
}

int program__refuse(struct program_reader *reader, const char *path,
                    const json_t *found, const char *format, ...)
{
    char text[96], allowed[256];
    va_list args;

    va_start(args, format);
    vsnprintf(allowed, sizeof allowed, format, args);
    va_end(args);
    describe(found, text, sizeof text);
    snprintf(reader->error, reader->error_bytes, "%s: %s: found %s, allowed: %s",
             reader->file, path, text, allowed);
    return -1;
}

void program__path(char *path, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(path, PROGRAM_PATH, format, args);
    va_end(args);
}

int program__no_memory(struct program_reader *reader)
{
    snprintf(reader->error, reader->error_bytes, "%s: out of memory", reader->file);
    return -1;
}

int program__integer(struct program_reader *reader, const char *path,
                     const json_t *value, int64_t least, int64_t most, int64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return program__refuse(reader, path, value, "an integer from %lld to %lld",
                               (long long)least, (long long)most);
    *number = json_integer_value(value);
    return 0;
}

int program__text(struct program_reader *reader, const char *path, const json_t *value,
                  char **text)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return program__refuse(reader, path, value, "a string that is not empty");
    *text = strdup(json_string_value(value));
    return *text ? 0 : program__no_memory(reader);
}

/* ---- Streams and groups ---------------------------------------------------------- */

static int read_streams(struct program_reader *reader, const json_t *root)
{
    struct program *program = reader->program;
    const json_t *list = json_object_get(root, "streams");
    char path[PROGRAM_PATH];
    size_t count = list ? json_array_size(list) : 1;

    if (list && (!json_is_array(list) || count < 1 || count > PROGRAM_MAX_STREAMS))
        return program__refuse(reader, "streams", list, "a list of 1 to %d names",
                               PROGRAM_MAX_STREAMS);
    program->streams = calloc(count, sizeof *program->streams);
    if (!program->streams)
        return program__no_memory(reader);
    if (!list) {
        program->streams[0] = strdup("main");
        program->stream_count = 1;
        return program->streams[0] ? 0 : program__no_memory(reader);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        program__path(path, "streams[%zu]", i);
        if (program__text(reader, path, item, &program->streams[i]))
            return -1;
        program->stream_count++;
        if (program__find_stream(program, program->streams[i]) != (int)i)
            return program__refuse(reader, path, item, "a name not used before");
    }
    return 0;
}

/* Every rank of the world exactly once, in lists of equal length. */
static int read_group_list(struct program_reader *reader, struct program_group *group,
                           const json_t *list, const char *path, bool *seen)
{
    int world = reader->program->world, l = group->lists;
    char at[PROGRAM_PATH];

    if (!json_is_array(list) || (int)json_array_size(list) != group->length)
        return program__refuse(reader, path, list,
                               "a list of %d ranks, as the first one", group->length);
    for (int i = 0; i < group->length; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        int64_t rank = 0;
        program__path(at, "%s[%d]", path, i);
        if (program__integer(reader, at, item, 0, world - 1, &rank))
            return -1;
        if (seen[rank])
            return program__refuse(reader, at, item, "a rank that is in no list yet");
        seen[rank] = true;
        group->ranks[l * group->length + i] = (int)rank;
    }
    group->lists++;
    return 0;
}

static int read_group(struct program_reader *reader, const char *name,
                      const json_t *lists)
{
    struct program *program = reader->program;
    struct program_group *group = &program->groups[program->group_count];
    size_t count = json_array_size(lists);
    size_t length = json_array_size(json_array_get(lists, 0));
    bool seen[PROGRAM_MAX_WORLD] = {false};
    char path[PROGRAM_PATH], at[PROGRAM_PATH];

    program__path(path, "groups.%.40s", name);
    if (!*name || strcmp(name, "world") == 0)
        return program__refuse(reader, path, lists, "a name, other than \"world\"");
    if (!json_is_array(lists) || length < 1 || count * length != (size_t)program->world)
        return program__refuse(
            reader, path, lists,
            "lists of equal length that hold each of the %d ranks once",
            program->world);
    program->group_count++;
    group->name = strdup(name);
    group->length = (int)length;
    group->ranks = calloc((size_t)program->world, sizeof *group->ranks);
    if (!group->name || !group->ranks)
        return program__no_memory(reader);
    for (size_t i = 0; i < count; i++) {
        program__path(at, "%s[%zu]", path, i);
        if (read_group_list(reader, group, json_array_get(lists, i), at, seen))
            return -1;
    }
    return 0;
}

static int add_world(struct program_reader *reader)
{
    struct program *program = reader->program;
    struct program_group *group = &program->groups[0];

    program->group_count = 1;
    group->name = strdup("world");
    group->lists = 1;
    group->length = program->world;
    group->ranks = calloc((size_t)program->world, sizeof *group->ranks);
    if (!group->name || !group->ranks)
        return program__no_memory(reader);
    for (int r = 0; r < program->world; r++)
        group->ranks[r] = r;
    return 0;
}

static int read_groups(struct program_reader *reader, json_t *root)
{
    json_t *groups = json_object_get(root, "groups"), *lists;
    const char *name;

    if (groups && !json_is_object(groups))
        return program__refuse(reader, "groups", groups,
                               "an object of names and lists");
    reader->program->groups =
        calloc(json_object_size(groups) + 1, sizeof *reader->program->groups);
    if (!reader->program->groups)
        return program__no_memory(reader);
    if (add_world(reader))
        return -1;
    json_object_foreach(groups, name,
                        lists) if (read_group(reader, name, lists)) return -1;
    return 0;
}

/* ---- The whole ------------------------------------------------------------------- */

static int read_head(struct program_reader *reader, const json_t *root)
{
    struct program *program = reader->program;
    const json_t *format = json_object_get(root, "format");
    const json_t *loop = json_object_get(root, "loop");
    int64_t world = 0;

    if (!json_is_object(root))
        return program__refuse(reader, "$", root, "an object");
    if (!json_is_string(format) ||
        strcmp(json_string_value(format), "symm-program/1") != 0)
        return program__refuse(reader, "format", format, "\"symm-program/1\"");
    if (program__text(reader, "name", json_object_get(root, "name"), &program->name))
        return -1;
    if (program__integer(reader, "world", json_object_get(root, "world"), 1,
                         PROGRAM_MAX_WORLD, &world))
        return -1;
    program->world = (int)world;
    if (loop && !json_is_boolean(loop))
        return program__refuse(reader, "loop", loop, "true or false");
    program->loop = json_is_true(loop);
    return 0;
}

static int read_root(struct program_reader *reader, json_t *root)
{
    if (read_head(reader, root) || read_streams(reader, root) ||
        read_groups(reader, root))
        return -1;
    return program__read_buffers(reader, root) || program__read_ops(reader, root) ? -1
                                                                                  : 0;
}

int program_read(const char *path, struct program **program, char *error,
                 size_t error_bytes)
{
    struct program_reader reader = {
        .file = path, .error = error, .error_bytes = error_bytes};
    json_error_t where;
    struct stat is;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);

    if (!root) {
        if (stat(path, &is) == 0 && S_ISDIR(is.st_mode)) /* opens, but has no bytes */
            snprintf(error, error_bytes, "%s: cannot be read: Is a directory", path);
        else if (where.line > 0)
            snprintf(error, error_bytes, "%s: line %d, column %d: %s, allowed: JSON",
                     path, where.line, where.column, where.text);
        else
            snprintf(error, error_bytes, "%s: cannot be read: %s", path, where.text);
        return -1;
    }
    reader.program = calloc(1, sizeof *reader.program);
    int result =
        reader.program ? read_root(&reader, root) : program__no_memory(&reader);
    json_decref(root);
    if (result) {
        program_destroy(reader.program);
        return -1;
    }
    *program = reader.program;
    return 0;
}

void program_destroy(struct program *program)
{
    if (!program)
        return;
    for (int i = 0; i < program->op_count; i++) {
        free(program->ops[i].buffers);
        free(program->ops[i].site);
    }
    for (int i = 0; i < program->buffer_count; i++)
        free(program->buffers[i].name);
    for (int i = 0; i < program->group_count; i++) {
        free(program->groups[i].name);
        free(program->groups[i].ranks);
    }
    for (int i = 0; program->streams && i < program->stream_count; i++)
        free(program->streams[i]);
    free(program->ops);
    free(program->order);
    free(program->buffers);
    free(program->groups);
    free(program->streams);
    free(program->name);
    free(program);
}

void program_find_rank(const struct program_group *group, int rank, int *list,
                       int *place)
{
    int at = 0;

    while (group->ranks[at] != rank)
        at++;
    *list = at / group->length;
    *place = at % group->length;
}
