/* SPDX-License-Identifier: MIT */
/*
 * json_read.c - see json_read.h. Refuses documents with two members of one name.
 */
#include "model/json_read.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"
#include "util/status.h"

struct symm_jansson symm__jansson;

static const struct symm_library_function functions[] = {
#define SYMM_JANSSON_FUNCTION(result, name, arguments)                                 \
    {"json_" #name, offsetof(struct symm_jansson, name)},
    SYMM_JANSSON_MAP(SYMM_JANSSON_FUNCTION)
#undef SYMM_JANSSON_FUNCTION
};

struct symm_library symm__jansson_library = {
    .soname = "libjansson.so.4",
    .package = "jansson (Debian: libjansson4)",
    .functions = functions,
    .count = sizeof(functions) / sizeof(functions[0]),
    .table = &symm__jansson,
};

static json_t *complain(const char *name, const json_error_t *where, int error,
                        symm_status *status)
{
    if (where->line > 0)
        *status =
            symm__fail(SYMM_ERR_INVALID, "%s: line %d, column %d: %s, allowed: JSON",
                       name, where->line, where->column, where->text);
    else
        *status = symm__fail_errno(SYMM_ERR_SYSTEM, error, "%s: cannot be read", name);
    return NULL;
}

json_t *symm__json_file(const char *path, symm_status *status)
{
    json_error_t where;
    json_t *root;
    FILE *file;

    *status = symm__library_load(&symm__jansson_library, path);
    if (*status != SYMM_OK)
        return NULL;
    file = fopen(path, "re");
    if (!file) {
        *status =
            symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s: cannot be opened", path);
        return NULL;
    }
    errno = 0;
    root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
    int error = errno;
    bool broken = ferror(file) != 0;
    fclose(file);
    if (broken) /* a folder, for example */
        where.line = -1;
    return root ? root : complain(path, &where, error, status);
}

json_t *symm__json_text(const char *text, size_t length, const char *name,
                        symm_status *status)
{
    json_error_t where;
    json_t *root;

    *status = symm__library_load(&symm__jansson_library, name);
    if (*status != SYMM_OK)
        return NULL;
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    if (root)
        return root;
    if (where.line <= 0)
        where.line = 1;
    return complain(name, &where, 0, status);
}

static int hash_piece(const char *bytes, size_t length, void *arg)
{
    uint64_t *hash = arg;

    *hash = symm__fnv(*hash, bytes, length);
    return 0;
}

symm_status symm__json_value_hash(const json_t *value, const char *file, uint64_t *hash)
{
    uint64_t made = SYMM_FNV_BASIS;

    if (json_dump_callback(value, hash_piece, &made, JSON_SORT_KEYS | JSON_COMPACT))
        return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", file);
    *hash = made;
    return SYMM_OK;
}

const json_t *symm__json_at(struct json_reader *reader, const json_t *value,
                            const char *format, ...)
{
    const char *last;
    va_list args;

    va_start(args, format);
    vsnprintf(reader->path, sizeof(reader->path), format, args);
    va_end(args);
    last = strrchr(reader->path, ']');
    if (last && last[1] == '\0') {
        last = strrchr(reader->path, '[');
        return json_array_get(value, strtoul(last + 1, NULL, 10));
    }
    last = strrchr(reader->path, '.');
    return json_object_get(value, last ? last + 1 : reader->path);
}

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

symm_status symm__json_refuse(const struct json_reader *reader, const json_t *found,
                              const char *format, ...)
{
    char text[96], allowed[256];
    va_list args;

    va_start(args, format);
    vsnprintf(allowed, sizeof(allowed), format, args);
    va_end(args);
    describe(found, text, sizeof(text));
    return symm__fail(SYMM_ERR_INVALID, "%s: %s: found %s, allowed: %s", reader->file,
                      reader->path, text, allowed);
}

symm_status symm__json_integer(const struct json_reader *reader, const json_t *value,
                               int64_t least, int64_t most, int64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return symm__json_refuse(reader, value, "an integer from %lld to %lld",
                                 (long long)least, (long long)most);
    *number = json_integer_value(value);
    return SYMM_OK;
}

symm_status symm__json_name(const struct json_reader *reader, const json_t *value,
                            const char **text)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return symm__json_refuse(reader, value, "a string that is not empty");
    *text = json_string_value(value);
    return SYMM_OK;
}
