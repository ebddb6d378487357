/* SPDX-License-Identifier: MIT */
/*
 * json.h - reads a JSON document into a tree, for the dumps that symm-info and ranks write.
 *
 * Refuses what is not JSON (RFC 8259), more than JSON_DEPTH levels, and integers beyond 64 bits;
 * a fraction is cut off. Text is kept as UTF-8 with escapes resolved; an escaped NUL becomes '?'.
 */
#ifndef SYMM_TOOLS_SYMM_INFO_JSON_H
#define SYMM_TOOLS_SYMM_INFO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH 32

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_MAP };

struct json {
    enum json_kind kind;
    bool negative;        /* of a number, whose amount is: */
    uint64_t number;      /* or 1: true */
    char *text;           /* of a string; owned */
    char *key;            /* of a map's member; owned */
    struct json *members; /* of a list or a map; owned */
    struct json *next;
};

/* NULL: it is no JSON, or there is no memory; *at: the byte where reading ended. */
struct json *json_read(const char *text, size_t *at);
void json_free(struct json *json);

/* A member of a map; NULL: there is none, or `map` is NULL or no map. */
const struct json *json_member(const struct json *map, const char *key);
/* Its value; 0 or "" if it is none of that kind. */
uint64_t json_unsigned(const struct json *map, const char *key);
int64_t json_signed(const struct json *map, const char *key);
const char *json_text(const struct json *map, const char *key);

#endif
