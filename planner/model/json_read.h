/* SPDX-License-Identifier: MIT */
/*
 * json_read.h - what the readers of programs, plans and cost tables share.
 *
 * The first document loads jansson. Every reader returns SYMM_OK, or a status after exactly one
 * complaint: "FILE: PATH: found ..., allowed: ...".
 */
#ifndef SYMM_PLANNER_MODEL_JSON_READ_H
#define SYMM_PLANNER_MODEL_JSON_READ_H

#include "model/jansson_abi.h"
#include "symm/symm.h"

struct json_reader {
    const char *file;
    char path[160]; /* of the value in hand */
};

/* Returns new, or NULL after a complaint, whose status is *status. */
json_t *symm__json_file(const char *path, symm_status *status);
json_t *symm__json_text(const char *text, size_t length, const char *name,
                        symm_status *status);
/* FNV-1a 64 over the canonical form of a value. */
symm_status symm__json_value_hash(const json_t *value, const char *file,
                                  uint64_t *hash) SYMM_MUST_CHECK;

/* Sets reader->path and returns the member or element there, or NULL. */
const json_t *symm__json_at(struct json_reader *reader, const json_t *value,
                            const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Complains about `found` at reader->path. */
symm_status symm__json_refuse(const struct json_reader *reader, const json_t *found,
                              const char *format, ...)
    __attribute__((format(printf, 3, 4))) SYMM_MUST_CHECK;
symm_status symm__json_integer(const struct json_reader *reader, const json_t *value,
                               int64_t least, int64_t most,
                               int64_t *number) SYMM_MUST_CHECK;
/* A string that is not empty; borrowed from value. */
symm_status symm__json_name(const struct json_reader *reader, const json_t *value,
                            const char **text) SYMM_MUST_CHECK;

#endif
