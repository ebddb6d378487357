/* SPDX-License-Identifier: MIT */
/*
 * json_canonical.c - see json_canonical.h. Nothing here depends on the locale.
 */
#include "model/json_canonical.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

void symm__json_hash_begin(struct json_out *out)
{
    *out = (struct json_out){.hashing = true, .hash = SYMM_FNV_BASIS};
}

static void put_bytes(struct json_out *out, const char *bytes, size_t length)
{
    if (out->hashing) {
        out->hash = symm__fnv(out->hash, bytes, length);
        return;
    }
    if (out->failed)
        return;
    if (out->room - out->length <= length) {
        size_t room = 2 * out->room + length + 4096;
        char *text = room > out->room ? realloc(out->text, room) : NULL;
        if (!text) {
            out->failed = true;
            return;
        }
        out->text = text;
        out->room = room;
    }
    memcpy(out->text + out->length, bytes, length);
    out->length += length;
    out->text[out->length] = '\0';
}

void symm__json_put(struct json_out *out, const char *text)
{
    put_bytes(out, text, strlen(text));
}

static void put_escaped(struct json_out *out, unsigned char c)
{
    static const char shorts[][2] = {{'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'},
                                     {'\t', 't'}, {'"', '"'},  {'\\', '\\'}};
    char text[8];

    for (size_t i = 0; i < sizeof(shorts) / sizeof(shorts[0]); i++) {
        if (c == (unsigned char)shorts[i][0]) {
            snprintf(text, sizeof(text), "\\%c", shorts[i][1]);
            put_bytes(out, text, 2);
            return;
        }
    }
    snprintf(text, sizeof(text), "\\u%04X", (unsigned int)c);
    put_bytes(out, text, 6);
}

static void put_string(struct json_out *out, const char *text)
{
    put_bytes(out, "\"", 1);
    while (*text) {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' &&
               text[plain] != '\\')
            plain++;
        put_bytes(out, text, plain);
        text += plain;
        if (*text)
            put_escaped(out, (unsigned char)*text++);
    }
    put_bytes(out, "\"", 1);
}

/* By hand: documents have some hundred thousand of these. */
static void put_unsigned(struct json_out *out, uint64_t number)
{
    char text[20], *at = text + sizeof(text);

    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put_bytes(out, at, (size_t)(text + sizeof(text) - at));
}

static void put_number(struct json_out *out, int64_t number)
{
    if (number < 0)
        put_bytes(out, "-", 1);
    put_unsigned(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void put_id(struct json_out *out, uint64_t id)
{
    const size_t quotes = id > INT64_MAX;

    put_bytes(out, "\"", quotes);
    put_unsigned(out, id);
    put_bytes(out, "\"", quotes);
}

static void put_hash(struct json_out *out, uint64_t hash)
{
    char text[24];

    snprintf(text, sizeof(text), "\"%016" PRIx64 "\"", hash);
    symm__json_put(out, text);
}

void symm__json_write(struct json_out *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    for (const char *at; (at = strchr(format, '%')); format = at + 1) {
        put_bytes(out, format, (size_t)(at - format));
        const char size = *++at;
        at += size == 'l' || size == 'z';
        if (*at == 's')
            put_string(out, va_arg(args, const char *));
        else if (*at == 'i')
            symm__json_put(out, va_arg(args, int) ? "true" : "false");
        else if (*at == 'd')
            put_number(out, size == 'l' ? va_arg(args, int64_t) : va_arg(args, int));
        else if (*at == 'x')
            put_hash(out, va_arg(args, uint64_t));
        else if (size == 'z')
            put_unsigned(out, va_arg(args, size_t));
        else
            put_id(out, va_arg(args, uint64_t));
    }
    va_end(args);
    symm__json_put(out, format);
}

void symm__json_line(struct json_out *out, const char *text, const char *indent)
{
    symm__json_put(out, text);
    if (out->hashing)
        return;
    symm__json_put(out, "\n");
    symm__json_put(out, indent);
}
