/* SPDX-License-Identifier: MIT */
/* json.c - see json.h. */
#include "tools/symm-info/json.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    int depth;
};

static bool read_value(struct reader *reader, struct json *json);

static void skip_blanks(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool skip(struct reader *reader, const char *word)
{
    const size_t length = strlen(word);

    if (strncmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

/* ---- Text --------------------------------------------------------------------------------- */

static bool read_hex(struct reader *reader, unsigned *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        const char c = *reader->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;

        if (digit < 0)
            return false;
        *code = *code << 4 | (unsigned)digit;
    }
    return true;
}

/* An escape of four digits, or of two such for what lies above; up to four bytes of UTF-8. */
static bool read_code(struct reader *reader, char **to)
{
    unsigned code, low;

    if (!read_hex(reader, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (!skip(reader, "\\u") || !read_hex(reader, &low) || low < 0xdc00 ||
            low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0)
        code = '?';
    if (code < 0x80) {
        *(*to)++ = (char)code;
        return true;
    }
    if (code >= 0x10000)
        *(*to)++ = (char)(0xf0 | code >> 18);
    if (code >= 0x800)
        *(*to)++ = (char)((code >= 0x10000 ? 0x80 : 0xe0) | (code >> 12 & 0x3f));
    *(*to)++ = (char)((code >= 0x800 ? 0x80 : 0xc0) | (code >> 6 & 0x3f));
    *(*to)++ = (char)(0x80 | (code & 0x3f));
    return true;
}

static bool read_escape(struct reader *reader, char **to)
{
    static const char from[] = "\"\\/bfnrt", what[] = "\"\\/\b\f\n\r\t";
    const char *found = *reader->at ? strchr(from, *reader->at) : NULL;

    if (found) {
        reader->at++;
        *(*to)++ = what[found - from];
        return true;
    }
    return skip(reader, "u") && read_code(reader, to);
}

/* Reads a string after its quotation mark; *text is new. The decoded text is never longer than
 * the source. */
static bool read_text(struct reader *reader, char **text)
{
    const char *end = reader->at;
    char *to;

    while (*end && *end != '"')
        end += *end == '\\' && end[1] ? 2 : 1;
    *text = to = malloc((size_t)(end - reader->at) + 1);
    while (to && *reader->at != '"') {
        if ((unsigned char)*reader->at < ' ')
            return false; /* the NUL, too */
        if (*reader->at != '\\')
            *to++ = *reader->at++;
        else if (reader->at++, !read_escape(reader, &to))
            return false;
    }
    if (!to)
        return false;
    *to = '\0';
    reader->at++;
    return true;
}

/* ---- Values ------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_number(struct reader *reader, struct json *json)
{
    json->kind = JSON_NUMBER;
    json->negative = skip(reader, "-");
    if (!is_digit(*reader->at) || (*reader->at == '0' && is_digit(reader->at[1])))
        return false;
    for (; is_digit(*reader->at); reader->at++)
        if (__builtin_mul_overflow(json->number, 10u, &json->number) ||
            __builtin_add_overflow(json->number, (uint64_t)(*reader->at - '0'),
                                   &json->number))
            return false;
    if (skip(reader, ".")) {
        if (!is_digit(*reader->at))
            return false;
        while (is_digit(*reader->at))
            reader->at++;
    }
    return *reader->at != 'e' && *reader->at != 'E'; /* no dump has any */
}

static bool read_members(struct reader *reader, struct json *json, char end)
{
    struct json **last = &json->members;

    json->kind = end == '}' ? JSON_MAP : JSON_LIST;
    skip_blanks(reader);
    if (*reader->at == end)
        return reader->at++, true;
    if (++reader->depth > JSON_DEPTH)
        return false;
    for (;;) {
        struct json *member = *last = calloc(1, sizeof(*member));

        if (!member)
            return false;
        last = &member->next;
        skip_blanks(reader);
        if (end == '}') {
            if (!skip(reader, "\"") || !read_text(reader, &member->key))
                return false;
            skip_blanks(reader);
            if (!skip(reader, ":"))
                return false;
        }
        if (!read_value(reader, member))
            return false;
        skip_blanks(reader);
        if (*reader->at == end)
            break;
        if (!skip(reader, ","))
            return false;
    }
    reader->at++;
    reader->depth--;
    return true;
}

static bool read_value(struct reader *reader, struct json *json)
{
    skip_blanks(reader);
    if (skip(reader, "{"))
        return read_members(reader, json, '}');
    if (skip(reader, "["))
        return read_members(reader, json, ']');
    if (skip(reader, "\"")) {
        json->kind = JSON_STRING;
        return read_text(reader, &json->text);
    }
    if (skip(reader, "null"))
        return true;
    if (skip(reader, "true") || skip(reader, "false")) {
        json->kind = JSON_BOOL;
        json->number = reader->at[-2] == 'u';
        return true;
    }
    return read_number(reader, json);
}

struct json *json_read(const char *text, size_t *at)
{
    struct reader reader = {.at = text};
    struct json *json = calloc(1, sizeof(*json));
    bool good = json && read_value(&reader, json);

    skip_blanks(&reader);
    *at = (size_t)(reader.at - text);
    if (good && *reader.at == '\0')
        return json;
    json_free(json);
    return NULL;
}

void json_free(struct json *json)
{
    while (json) { /* as deep as JSON_DEPTH at most */
        struct json *next = json->next;

        json_free(json->members);
        free(json->text);
        free(json->key);
        free(json);
        json = next;
    }
}

/* ---- Looking up --------------------------------------------------------------------------- */

const struct json *json_member(const struct json *map, const char *key)
{
    if (map && map->kind == JSON_MAP)
        for (const struct json *m = map->members; m; m = m->next)
            if (strcmp(m->key, key) == 0)
                return m;
    return NULL;
}

uint64_t json_unsigned(const struct json *map, const char *key)
{
    const struct json *member = json_member(map, key);

    return member && (member->kind == JSON_NUMBER || member->kind == JSON_BOOL) &&
                   !member->negative
               ? member->number
               : 0;
}

int64_t json_signed(const struct json *map, const char *key)
{
    const struct json *member = json_member(map, key);

    if (!member || member->kind != JSON_NUMBER || member->number > INT64_MAX)
        return 0;
    return member->negative ? -(int64_t)member->number : (int64_t)member->number;
}

const char *json_text(const struct json *map, const char *key)
{
    const struct json *member = json_member(map, key);

    return member && member->kind == JSON_STRING ? member->text : "";
}
