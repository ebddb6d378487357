/* SPDX-License-Identifier: MIT */
/*
 * program_private.h - a program for the files that build, read and write it.
 */
#ifndef SYMM_PLANNER_MODEL_PROGRAM_PRIVATE_H
#define SYMM_PLANNER_MODEL_PROGRAM_PRIVATE_H

#include "model/names.h"
#include "symm/plan.h"
#include "util/pool.h"

#define MAX_BUFFERS 500000

struct program_private {
    symm_program program; /* first member: the caller's pointer points here */
    struct pool pool;     /* names, lists, the order */
    const char *source;   /* in complaints: the file, or "program NAME" */
    struct names buffer_names, sites, waits; /* sites: of collectives and puts */
    int stream_room, partition_room, buffer_room, op_room, norm_room;
    int puts;    /* added so far */
    bool hashed; /* `hash` is that of the text it was read from */
    uint64_t hash;
};

/* "SOURCE: <format>", which is "PATH: found ..., allowed: ...", as SYMM_ERR_INVALID. */
symm_status symm__program_refuse(const symm_program *program, const char *format, ...)
    __attribute__((format(printf, 2, 3))) SYMM_MUST_CHECK;
symm_status symm__program_nomem(const symm_program *program) SYMM_MUST_CHECK;

/* Has each buffer an alloc_id of its own? */
symm_status symm__program_check_ids(const symm_program *program) SYMM_MUST_CHECK;

/* file_write.c: a file that appears whole or not at all; a device or pipe is written to.
 * Frees the text. */
symm_status symm__file_write(const char *path, char *text,
                             size_t length) SYMM_MUST_CHECK;

/* By name, or -1. */
int symm__program_stream(const symm_program *program, const char *name);
int symm__program_partition(const symm_program *program, const char *name);
int symm__program_buffer(const symm_program *program, const char *name);

/* Room for one more element of `bytes` bytes in *list; false: memory is exhausted. */
bool symm__grow(void **list, int count, int *room, size_t bytes);

/* program_norm.c: an array of an all_reduce_norm beside `in`, as its op uses it. */
struct norm_array {
    const char *name; /* of its member in symm_program_norm */
    symm_program_array where;
    symm_dtype dtype;
    size_t bytes;
    bool written;
};
#define NORM_ARRAYS 8
/* Arrays that are not given have buffer -1. Those that may be read come first. */
void symm__norm_list(const symm_program *program, const symm_program_op *op,
                     struct norm_array arrays[NORM_ARRAYS]);
/* Checks op->norm, and sets dtype, count, out and result; `in` is in range. */
symm_status symm__norm_take(const symm_program *program,
                            symm_program_op *op) SYMM_MUST_CHECK;
/* No op writes what an all_reduce_norm declares constant. */
symm_status symm__norm_check_constant(const symm_program *program) SYMM_MUST_CHECK;
const char *symm__norm_quant_name(symm_norm_quant quant); /* or NULL */

bool symm__is_collective(symm_program_kind kind);
bool symm__is_communication(symm_program_kind kind); /* a collective or a put */
bool symm__is_reduction(symm_program_kind kind);     /* it combines elements */
/* The collective whose algorithms and costs it has: an all_reduce_norm is an all_reduce. */
symm_program_kind symm__kind_of_sum(symm_program_kind kind);
/* Bytes of the op's source that a call may have at most; 0: its size is fixed. */
size_t symm__program_up_to(const symm_program_op *op);

#endif
