/* SPDX-License-Identifier: MIT */
/*
 * record_kinds.h - the kinds of events in a rank's record (symm-record/1), for programs that
 * write or read records: the library's recorder, and symm-plan merge.
 */
#ifndef SYMM_RECORD_KINDS_H
#define SYMM_RECORD_KINDS_H

#include <stddef.h>

/* X(NAME, json): SYMM_RECORD_NAME, and its name in a record. An all_reduce_norm is a row of
 * events, each with at most one array that is read and one that is written; the first one has the
 * count of elements, the others have 0. */
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

#endif
