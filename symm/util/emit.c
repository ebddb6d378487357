/* SPDX-License-Identifier: MIT */
/*
 * emit.c - JSON and pickle, written forwards in constant memory.
 *
 * Guarantees and refusals: emit.h. The nesting is checked once, here, for both formats
 * (value_begin, value_end); what differs is how a thing is spelt.
 */
#include "util/emit.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "util/file.h"
#include "util/text.h"

/* Pickle opcodes, as pickletools names them. */
enum {
    OP_PROTO = 0x80,
    OP_EMPTY_DICT = '}',
    OP_EMPTY_LIST = ']',
    OP_MARK = '(',
    OP_SETITEMS = 'u',
    OP_APPEND = 'a',
    OP_BINUNICODE = 'X',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_BININT = 'J',
    OP_LONG1 = 0x8a,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_NONE = 'N',
    OP_STOP = '.',
};

/* ---- Bytes ----------------------------------------------------------------------- */

static void fail(struct symm_emit *emit, int error)
{
    if (emit->error == 0)
        emit->error = error;
}

static void flush(struct symm_emit *emit)
{
    const unsigned char *from = emit->buffer;
    size_t left = emit->used;

    emit->used = 0;
    if (emit->file != NULL) {
        errno = 0;
        if (left > 0 && fwrite(from, 1, left, emit->file) != left)
            fail(emit, errno != 0 ? errno : EIO);
        return;
    }
    if (emit->error == 0)
        emit->error = symm__write_all(emit->fd, from, left);
}

static void put_bytes(struct symm_emit *emit, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;

    while (count > 0 && emit->error == 0) {
        size_t room = sizeof(emit->buffer) - emit->used;
        size_t part = count < room ? count : room;
        memcpy(emit->buffer + emit->used, from, part);
        emit->used += part;
        from += part;
        count -= part;
        if (emit->used == sizeof(emit->buffer))
            flush(emit);
    }
}

static void put_byte(struct symm_emit *emit, int byte)
{
    unsigned char one = (unsigned char)byte;

    put_bytes(emit, &one, 1);
}

static void put_text(struct symm_emit *emit, const char *text)
{
    put_bytes(emit, text, strlen(text));
}

/* The low `count` bytes of value, little-endian. */
static void put_little(struct symm_emit *emit, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        put_byte(emit, (int)(value >> (8 * i) & 0xff));
}

/* ---- Strings --------------------------------------------------------------------- */

static const unsigned char replacement[3] = {0xef, 0xbf, 0xbd};

static void put_json_string(struct symm_emit *emit, const char *string)
{
    put_byte(emit, '"');
    for (const unsigned char *s = (const unsigned char *)string; *s != 0;) {
        size_t count = symm__utf8(s);
        if (*s == '"' || *s == '\\') {
            put_byte(emit, '\\');
            put_byte(emit, *s);
        } else if (*s < 0x20 || *s == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", *s);
            put_text(emit, escape);
        } else if (count == 0) {
            put_bytes(emit, replacement, sizeof(replacement));
        } else {
            put_bytes(emit, s, count);
        }
        s += count > 0 ? count : 1;
    }
    put_byte(emit, '"');
}

static void put_pickle_string(struct symm_emit *emit, const char *string)
{
    size_t bytes = 0; /* pickle wants the length first */

    for (const unsigned char *s = (const unsigned char *)string; *s != 0;) {
        size_t count = symm__utf8(s);
        bytes += count > 0 ? count : sizeof(replacement);
        s += count > 0 ? count : 1;
    }
    if (bytes > UINT32_MAX) {
        fail(emit, EOVERFLOW);
        return;
    }
    put_byte(emit, OP_BINUNICODE);
    put_little(emit, bytes, 4);
    for (const unsigned char *s = (const unsigned char *)string; *s != 0;) {
        size_t count = symm__utf8(s);
        if (count == 0)
            put_bytes(emit, replacement, sizeof(replacement));
        else
            put_bytes(emit, s, count);
        s += count > 0 ? count : 1;
    }
}

static void put_string(struct symm_emit *emit, const char *string)
{
    if (emit->format == SYMM_EMIT_JSON)
        put_json_string(emit, string);
    else
        put_pickle_string(emit, string);
}

/* ---- Nesting --------------------------------------------------------------------- */

static void new_line(struct symm_emit *emit)
{
    if (emit->one_line)
        return;
    put_byte(emit, '\n');
    for (int i = 0; i < emit->depth; i++)
        put_byte(emit, ' ');
}

/* May a value stand here? Writes what comes before it. */
static bool value_begin(struct symm_emit *emit)
{
    if (emit->error == 0) {
        bool in_map = emit->depth > 0 && emit->level[emit->depth - 1].is_map;
        if (emit->done || emit->keyed != in_map)
            fail(emit, EINVAL);
    }
    if (emit->error != 0)
        return false;
    if (emit->format == SYMM_EMIT_JSON && emit->depth > 0 && !emit->keyed) {
        if (emit->level[emit->depth - 1].has_members)
            put_byte(emit, ',');
        new_line(emit);
    }
    emit->keyed = false;
    return true;
}

/*
 * Writes what comes after a value. Lists grow by one APPEND a value, not by one APPENDS
 * a list: the viewer hands the values of an APPENDS to a function as its arguments, and
 * browsers limit how many those may be.
 */
static void value_end(struct symm_emit *emit)
{
    if (emit->depth == 0) {
        emit->done = true;
        return;
    }
    emit->level[emit->depth - 1].has_members = true;
    if (emit->format == SYMM_EMIT_PICKLE && !emit->level[emit->depth - 1].is_map)
        put_byte(emit, OP_APPEND);
}

static void begin(struct symm_emit *emit, bool is_map)
{
    if (!value_begin(emit))
        return;
    if (emit->depth == SYMM_EMIT_DEPTH) {
        fail(emit, EOVERFLOW);
        return;
    }
    if (emit->format == SYMM_EMIT_JSON) {
        put_byte(emit, is_map ? '{' : '[');
    } else {
        put_byte(emit, is_map ? OP_EMPTY_DICT : OP_EMPTY_LIST);
        if (is_map)
            put_byte(emit, OP_MARK);
    }
    emit->level[emit->depth].is_map = is_map;
    emit->level[emit->depth].has_members = false;
    emit->depth++;
}

static void end(struct symm_emit *emit, bool is_map)
{
    if (emit->error == 0 && (emit->depth == 0 || emit->keyed ||
                             emit->level[emit->depth - 1].is_map != is_map))
        fail(emit, EINVAL);
    if (emit->error != 0)
        return;
    emit->depth--;
    if (emit->format == SYMM_EMIT_JSON) {
        if (emit->level[emit->depth].has_members)
            new_line(emit);
        put_byte(emit, is_map ? '}' : ']');
    } else if (is_map) {
        put_byte(emit, OP_SETITEMS);
    }
    value_end(emit);
}

/* ---- The calls ------------------------------------------------------------------- */

static void init(struct symm_emit *emit, enum symm_emit_format format, FILE *file,
                 int fd)
{
    memset(emit, 0, sizeof(*emit));
    emit->format = format;
    emit->file = file;
    emit->fd = fd;
    if (format == SYMM_EMIT_PICKLE) {
        put_byte(emit, OP_PROTO);
        put_byte(emit, 2);
    }
}

void symm__emit_init_file(struct symm_emit *emit, enum symm_emit_format format,
                          FILE *file)
{
    init(emit, format, file, -1);
}

void symm__emit_init_fd(struct symm_emit *emit, enum symm_emit_format format, int fd)
{
    init(emit, format, NULL, fd);
}

void symm__emit_one_line(struct symm_emit *emit)
{
    emit->one_line = true;
}

int symm__emit_finish(struct symm_emit *emit)
{
    if (!emit->done)
        fail(emit, EINVAL);
    put_byte(emit, emit->format == SYMM_EMIT_JSON ? '\n' : OP_STOP);
    if (emit->error == 0)
        flush(emit);
    if (emit->error == 0 && emit->file != NULL && fflush(emit->file) != 0)
        fail(emit, errno);
    return emit->error;
}

void symm__emit_begin_map(struct symm_emit *emit)
{
    begin(emit, true);
}

void symm__emit_end_map(struct symm_emit *emit)
{
    end(emit, true);
}

void symm__emit_begin_list(struct symm_emit *emit)
{
    begin(emit, false);
}

void symm__emit_end_list(struct symm_emit *emit)
{
    end(emit, false);
}

void symm__emit_key(struct symm_emit *emit, const char *key)
{
    if (emit->error == 0 &&
        (emit->depth == 0 || emit->keyed || !emit->level[emit->depth - 1].is_map))
        fail(emit, EINVAL);
    if (emit->error != 0)
        return;
    if (emit->format == SYMM_EMIT_JSON) {
        if (emit->level[emit->depth - 1].has_members)
            put_byte(emit, ',');
        new_line(emit);
        put_string(emit, key);
        put_text(emit, ": ");
    } else {
        put_string(emit, key);
    }
    emit->keyed = true;
}

void symm__emit_string(struct symm_emit *emit, const char *string)
{
    if (!value_begin(emit))
        return;
    if (string != NULL)
        put_string(emit, string);
    else if (emit->format == SYMM_EMIT_JSON)
        put_text(emit, "null");
    else
        put_byte(emit, OP_NONE);
    value_end(emit);
}

/* The shortest form; LONG1 is two's complement: a set top bit needs one byte more. */
static void put_pickle_integer(struct symm_emit *emit, uint64_t value, bool negative)
{
    int count = 1;

    if (!negative && value <= UINT8_MAX) {
        put_byte(emit, OP_BININT1);
        put_little(emit, value, 1);
        return;
    }
    if (!negative && value <= UINT16_MAX) {
        put_byte(emit, OP_BININT2);
        put_little(emit, value, 2);
        return;
    }
    if (negative ? (int64_t)value >= INT32_MIN : value <= INT32_MAX) {
        put_byte(emit, OP_BININT);
        put_little(emit, value, 4);
        return;
    }
    uint64_t magnitude = negative ? ~value : value;
    while (count < 9 && magnitude >> (8 * count - 1) != 0)
        count++;
    put_byte(emit, OP_LONG1);
    put_byte(emit, count);
    put_little(emit, value, count < 8 ? count : 8);
    if (count == 9)
        put_byte(emit, 0);
}

void symm__emit_unsigned(struct symm_emit *emit, uint64_t value)
{
    if (!value_begin(emit))
        return;
    if (emit->format == SYMM_EMIT_JSON) {
        char text[24];
        snprintf(text, sizeof(text), "%" PRIu64, value);
        put_text(emit, text);
    } else {
        put_pickle_integer(emit, value, false);
    }
    value_end(emit);
}

void symm__emit_signed(struct symm_emit *emit, int64_t value)
{
    if (!value_begin(emit))
        return;
    if (emit->format == SYMM_EMIT_JSON) {
        char text[24];
        snprintf(text, sizeof(text), "%" PRId64, value);
        put_text(emit, text);
    } else {
        put_pickle_integer(emit, (uint64_t)value, value < 0);
    }
    value_end(emit);
}

void symm__emit_bool(struct symm_emit *emit, bool value)
{
    if (!value_begin(emit))
        return;
    if (emit->format == SYMM_EMIT_JSON)
        put_text(emit, value ? "true" : "false");
    else
        put_byte(emit, value ? OP_NEWTRUE : OP_NEWFALSE);
    value_end(emit);
}

void symm__emit_json(struct symm_emit *emit, const char *json)
{
    if (emit->format != SYMM_EMIT_JSON)
        fail(emit, EINVAL);
    if (!value_begin(emit))
        return;
    put_text(emit, json);
    value_end(emit);
}

void symm__emit_key_string(struct symm_emit *emit, const char *key, const char *string)
{
    symm__emit_key(emit, key);
    symm__emit_string(emit, string);
}

void symm__emit_key_unsigned(struct symm_emit *emit, const char *key, uint64_t value)
{
    symm__emit_key(emit, key);
    symm__emit_unsigned(emit, value);
}

void symm__emit_key_signed(struct symm_emit *emit, const char *key, int64_t value)
{
    symm__emit_key(emit, key);
    symm__emit_signed(emit, value);
}

void symm__emit_key_bool(struct symm_emit *emit, const char *key, bool value)
{
    symm__emit_key(emit, key);
    symm__emit_bool(emit, value);
}
