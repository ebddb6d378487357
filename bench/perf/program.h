/* SPDX-License-Identifier: MIT */
/*
 * program.h - a symm-program/1 file (docs: symm-perf(1), REPLAY) read into plain structs.
 *
 * Guarantees: what is returned is valid throughout: every name is resolved to an index,
 * every size computed without overflow, every collective's output large enough, and
 * `order` is an order in which the ops can run. Unknown fields are ignored. Refuses:
 * anything else, with one sentence that names the file, the line or the JSON path, what
 * was found and what is allowed.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "symm/symm.h"

#define PROGRAM_MAX_WORLD   256
#define PROGRAM_MAX_DIMS    16
#define PROGRAM_MAX_STREAMS 64

enum program_kind {
    PROGRAM_WRITE,
    PROGRAM_READ,
    PROGRAM_ALL_REDUCE,
    PROGRAM_REDUCE_SCATTER,
    PROGRAM_ALL_GATHER,
    PROGRAM_BROADCAST,
    PROGRAM_ALL_TO_ALL,
    PROGRAM_PUT,
    PROGRAM_WAIT,
    PROGRAM_DEPEND,
    PROGRAM_KINDS
};

struct program_group {
    char *name;
    int lists, length; /* lists x length == world */
    int *ranks;        /* list l holds ranks[l * length .. + length) */
};

struct program_buffer {
    char *name;
    symm_dtype dtype; /* uint8 if only `bytes` was given */
    bool raw;         /* only `bytes` was given: fits any dtype */
    int dims;
    int64_t shape[PROGRAM_MAX_DIMS], stride[PROGRAM_MAX_DIMS];
    size_t bytes, elements; /* of the extent */
    uint64_t alloc_id;      /* 1 + its index, unless the file says another */
};

struct program_op {
    enum program_kind kind;
    int stream;
    int *buffers, buffer_count; /* write, read */
    char *site;                 /* collectives, put */
    int group;
    int in, out;      /* buffers; out -1: private. put: src, dst */
    size_t count;     /* elements of `in` that take part; put: bytes */
    size_t result;    /* bytes that arrive in out (put: in dst) */
    symm_dtype dtype; /* of the collective */
    symm_op reduce;
    int root;   /* broadcast: team rank */
    int shift;  /* put: to (rank + shift) mod group size; 0 .. size-1 */
    int signal; /* put: its index among the puts, mod 256 */
    int put;    /* wait: the put's op */
    int on;     /* depend: the stream waited for */
};

struct program {
    char *name;
    int world;
    bool loop;
    char **streams;
    int stream_count;
    struct program_group *groups; /* [0] is "world" */
    int group_count;
    struct program_buffer *buffers;
    int buffer_count;
    struct program_op *ops;
    int op_count;
    int *order; /* op_count indices of ops, in an order that can run */
};

/* 0, or -1 and a sentence in error. Returns new. */
int program_read(const char *path, struct program **program, char *error,
                 size_t error_bytes);
void program_destroy(struct program *program); /* NULL is allowed */
const char *program_kind_name(enum program_kind kind);
/* The rank's list in a group, and its place in it. */
void program_find_rank(const struct program_group *group, int rank, int *list,
                       int *place);

/* Fills program->order; 0, or the op that can never run, in *stuck, and -1. -2: no
 * memory. */
int program_sort(struct program *program, int *stuck);

#endif
