/* SPDX-License-Identifier: MIT */
/*
 * record_kinds.h - the kinds of events in a rank's record (symm-record/1), for programs that
 * write or read records: the library's recorder, and symm-plan merge.
 */
#ifndef SYMM_RECORD_KINDS_H
#define SYMM_RECORD_KINDS_H

#include <stddef.h>

/* X(NAME, json): SYMM_RECORD_NAME, and its name in a record. An all_reduce_norm is a row of
 * events, each with at most one array that is read and one that is written. Their member `norm` has
 * the event's place in the row, `part`, the names of these arrays, and what the row is about. The
 * first one has the count of elements, the others have 0. */
#define SYMM_RECORD_KIND_MAP(X)                                                        \
    X(WRITE, "write")                                                                  \
    X(READ, "read")                                                                    \
    X(DEPEND, "depend")                                                                \
    X(ALL_REDUCE, "all_reduce")                                                        \
    X(REDUCE_SCATTER, "reduce_scatter")                                                \
    X(ALL_GATHER, "all_gather")                                                        \
    X(BROADCAST, "broadcast")                                                          \
    X(ALL_TO_ALL, "all_to_all")                                                        \
    X(BARRIER, "barrier")                                                              \
    X(PUT, "put")                                                                      \
    X(PUT_SIGNAL, "put_signal")                                                        \
    X(GET, "get")                                                                      \
    X(SIGNAL, "signal")                                                                \
    X(WAIT, "wait")                                                                    \
    X(SEND, "send")                                                                    \
    X(RECV, "recv")                                                                    \
    X(ALL_REDUCE_NORM, "all_reduce_norm")

typedef enum symm_record_kind {
#define SYMM_RECORD_KIND_ENUM(name, json) SYMM_RECORD_##name,
    SYMM_RECORD_KIND_MAP(SYMM_RECORD_KIND_ENUM)
#undef SYMM_RECORD_KIND_ENUM
        SYMM_RECORD_KINDS /* how many there are */
} symm_record_kind;

/* "all_reduce"; NULL for a number that is no kind. */
static inline const char *symm_record_kind_name(symm_record_kind kind)
{
    switch (kind) {
#define SYMM_RECORD_KIND_NAME(name, json)                                              \
    case SYMM_RECORD_##name:                                                           \
        return json;
        SYMM_RECORD_KIND_MAP(SYMM_RECORD_KIND_NAME)
#undef SYMM_RECORD_KIND_NAME
    case SYMM_RECORD_KINDS:
        break;
    }
    return NULL;
}

/* X(NAME, json): the arrays of an all_reduce_norm, named as in symm/norm.h. */
#define SYMM_RECORD_ARRAY_MAP(X)                                                       \
    X(IN, "in")                                                                        \
    X(BIAS, "bias")                                                                    \
    X(RESIDUAL_IN, "residual_in")                                                      \
    X(WEIGHT, "weight")                                                                \
    X(SUM_OUT, "sum_out")                                                              \
    X(RESIDUAL_OUT, "residual_out")                                                    \
    X(NORM_OUT, "norm_out")                                                            \
    X(QUANT_OUT, "quant_out")                                                          \
    X(SCALE, "scale")

typedef enum symm_record_array {
#define SYMM_RECORD_ARRAY_ENUM(name, json) SYMM_RECORD_ARRAY_##name,
    SYMM_RECORD_ARRAY_MAP(SYMM_RECORD_ARRAY_ENUM)
#undef SYMM_RECORD_ARRAY_ENUM
        SYMM_RECORD_ARRAYS /* how many there are */
} symm_record_array;

/* NULL for a number that is none. */
static inline const char *symm_record_array_name(symm_record_array array)
{
    switch (array) {
#define SYMM_RECORD_ARRAY_NAME(name, json)                                             \
    case SYMM_RECORD_ARRAY_##name:                                                     \
        return json;
        SYMM_RECORD_ARRAY_MAP(SYMM_RECORD_ARRAY_NAME)
#undef SYMM_RECORD_ARRAY_NAME
    case SYMM_RECORD_ARRAYS:
        break;
    }
    return NULL;
}

#endif
