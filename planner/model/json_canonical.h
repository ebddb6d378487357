/* SPDX-License-Identifier: MIT */
/*
 * json_canonical.h - JSON written piece by piece into memory or a hash (util/hash.h).
 *
 * A hash over JSON is over its canonical form: keys sorted by byte value, no white space,
 * integers in decimal, strings in UTF-8 with only ", \ and control characters escaped.
 */
#ifndef SYMM_PLANNER_MODEL_JSON_CANONICAL_H
#define SYMM_PLANNER_MODEL_JSON_CANONICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where JSON goes: a hash, or growing memory. A failed allocation is kept in `failed`. */
struct json_out {
    bool hashing;
    uint64_t hash;
    char *text; /* free() it */
    size_t length, room;
    bool failed;
};

void symm__json_hash_begin(struct json_out *out);
void symm__json_put(struct json_out *out, const char *text); /* as it is */
/*
 * The format with its values: %s a string, quoted; %d and %ld a number; %zu a size; %i true
 * or false; %lu an alloc_id, quoted if it is more than JSON's readers hold; %lx a hash.
 */
void symm__json_write(struct json_out *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As it is; in a text the end of a line and `indent` follow. */
void symm__json_line(struct json_out *out, const char *text, const char *indent);

#endif
