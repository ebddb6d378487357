/* SPDX-License-Identifier: MIT */
/*
 * emit.h - a writer of nested maps and lists: JSON and Python pickle behind the same
 * calls.
 *
 * In a map each value follows its symm__emit_key; a list takes values only. The
 * outermost value is one map, list or scalar.
 *
 * Guarantees: what is written is well-formed if symm__emit_finish returns 0; strings
 * come out as UTF-8 whatever bytes they hold (each bad byte becomes U+FFFD). The first
 * error sticks: later calls do nothing. Memory use is constant.
 * Pickle: protocol 2, with those opcodes only that the reader of pytorch.org/memory_viz
 * knows (PROTO EMPTY_DICT EMPTY_LIST MARK SETITEMS APPEND BINUNICODE BININT1 BININT2
 * BININT LONG1 NEWTRUE NEWFALSE NONE STOP); nothing that runs code on loading.
 * Refuses (EINVAL): a value in a map without its key, a key elsewhere, an end without
 * its begin, a second outermost value; (EOVERFLOW) more than SYMM_EMIT_DEPTH levels.
 */
#ifndef SYMM_UTIL_EMIT_H
#define SYMM_UTIL_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SYMM_EMIT_DEPTH 64

enum symm_emit_format { SYMM_EMIT_JSON, SYMM_EMIT_PICKLE };

struct symm_emit {
    enum symm_emit_format format;
    FILE *file;  /* borrows; NULL: fd */
    int fd;      /* borrows */
    int error;   /* errno of the first failure, 0 = none */
    int depth;   /* open maps and lists */
    bool keyed;  /* a key waits for its value */
    bool done;   /* the outermost value is complete */
    bool one_line;
    size_t used; /* bytes in buffer */
    struct {
        bool is_map;
        bool has_members;
    } level[SYMM_EMIT_DEPTH];
    unsigned char buffer[4096];
};

/* Borrow file or fd until finish; they are flushed then, never closed. */
void symm__emit_init_file(struct symm_emit *emit, enum symm_emit_format format,
                          FILE *file);
void symm__emit_init_fd(struct symm_emit *emit, enum symm_emit_format format, int fd);
/* JSON: all of it on one line, which ends in the newline that symm__emit_finish writes. */
void symm__emit_one_line(struct symm_emit *emit);
/* Ends the text and flushes it. 0, or the errno of the first failure. */
int symm__emit_finish(struct symm_emit *emit);

void symm__emit_begin_map(struct symm_emit *emit);
void symm__emit_end_map(struct symm_emit *emit);
void symm__emit_begin_list(struct symm_emit *emit);
void symm__emit_end_list(struct symm_emit *emit);
void symm__emit_key(struct symm_emit *emit, const char *key);
void symm__emit_string(struct symm_emit *emit,
                       const char *string); /* NULL: null, None */
void symm__emit_unsigned(struct symm_emit *emit, uint64_t value);
void symm__emit_signed(struct symm_emit *emit, int64_t value);
void symm__emit_bool(struct symm_emit *emit, bool value);
/* A value that is JSON already, written as it is; EINVAL in other formats. */
void symm__emit_json(struct symm_emit *emit, const char *json);

/* A key and its value. */
void symm__emit_key_string(struct symm_emit *emit, const char *key, const char *string);
void symm__emit_key_unsigned(struct symm_emit *emit, const char *key, uint64_t value);
void symm__emit_key_signed(struct symm_emit *emit, const char *key, int64_t value);
void symm__emit_key_bool(struct symm_emit *emit, const char *key, bool value);

#endif
