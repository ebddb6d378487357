/* SPDX-License-Identifier: MIT */
/*
 * program_read.h - what the files that read a symm-program/1 file share.
 *
 * All readers return 0, or -1 after exactly one complaint in reader->error.
 */
#ifndef PROGRAM_READ_H
#define PROGRAM_READ_H

#include <jansson.h>

#include "perf/program.h"

#define PROGRAM_PATH 160 /* longest JSON path in a complaint */

struct program_reader {
    const char *file;
    struct program *program;
    char *error;
    size_t error_bytes;
    int puts; /* seen so far */
};

/* Into an array of PROGRAM_PATH bytes; a longer path is cut. */
void program__path(char *path, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "FILE: PATH: found ..., allowed: <format>"; found NULL: nothing. Returns -1. */
int program__refuse(struct program_reader *reader, const char *path,
                    const json_t *found, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int program__no_memory(struct program_reader *reader);
int program__integer(struct program_reader *reader, const char *path,
                     const json_t *value, int64_t least, int64_t most, int64_t *number);
int program__text(struct program_reader *reader, const char *path, const json_t *value,
                  char **text);

/* The first of that name, or -1. */
int program__find_stream(const struct program *program, const char *name);
int program__find_group(const struct program *program, const char *name);
int program__find_buffer(const struct program *program, const char *name);

int program__read_buffers(struct program_reader *reader, const json_t *root);
int program__read_ops(struct program_reader *reader, const json_t *root);
/* Of a whole program: can a job of the library run it? */
int program__check_limits(struct program_reader *reader);

#endif
