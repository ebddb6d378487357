/* SPDX-License-Identifier: MIT */
/*
 * merge.h - the ranks' records (symm-record/1) on their way to one program.
 *
 * merge_json.c reads them, merge.c finds each rank's period and compares the ranks,
 * keep.c decides which events become ops, build.c makes the program.
 */
#ifndef SYMM_PLANNER_MERGE_MERGE_H
#define SYMM_PLANNER_MERGE_MERGE_H

#include "symm/plan.h"
#include "symm/record_kinds.h"
#include "util/pool.h"

/* What an all_reduce_norm has beside its event's members; the arrays are those of its whole row. */
struct merge_array {
    bool given;
    int buffer; /* -1: other memory */
    size_t at;  /* bytes from the buffer's start */
};
struct merge_norm {
    size_t hidden;
    symm_norm_quant quant;
    bool constant;
    struct merge_array arrays[SYMM_RECORD_ARRAYS]; /* `in` is the event's, too */
};

struct merge_event {
    symm_record_kind kind;
    symm_dtype dtype;
    symm_op reduce;
    int stream, on, team; /* team: index in the rank's teams */
    int peer, signal;     /* peer: the root of a broadcast */
    bool forced;          /* the call names its algorithm */
    const char *site;     /* NULL: none */
    int in, out;          /* buffers; -1: other memory */
    size_t in_at, out_at; /* bytes from the buffer's start */
    size_t count;         /* elements as the call counts; else bytes */
    struct merge_norm *norm; /* of an all_reduce_norm, whose `out` is -1 */
    /* Set by the merge: */
    int site_id; /* of collectives and puts with a site; a kept wait: its put's; else -1 */
    bool kept; /* it becomes an op */
};

struct merge_events {
    struct merge_event *list; /* NULL if there are none */
    int count;
};

struct merge_buffer {
    uint64_t alloc_id;
    symm_dtype dtype;
    int team, ndim;
    int64_t shape[SYMM_PROGRAM_MAX_NDIM], stride[SYMM_PROGRAM_MAX_NDIM];
    size_t bytes;
    bool described, varies, reached;
};

struct merge_team {
    const char *name;
    const int *ranks; /* [size], of the world */
    int size;
    int place; /* of this record's rank in it */
};

/* One rank's file. */
struct merge_record {
    const char *path, *name, *job, *trouble; /* trouble NULL: none */
    int rank, world;
    bool complete;
    uint64_t periods;
    int stream_count;
    struct merge_team *teams; /* [0] is the world */
    int team_count;
    struct merge_buffer *buffers;
    int buffer_count;
    struct merge_events head, period, tail;
    struct merge_events body; /* one period, or the whole: a part of one of these */
};

/* A call site on all ranks. */
struct merge_site {
    const char *name;
    int *first; /* [world]: index in the rank's body; -1: not there */
    bool kept;
};

/*
 * The kept local accesses between two calls of a stream, on one rank: gap g of stream s has
 * number base[s] + g, and its events are locals[first[number] .. first[number + 1]).
 */
struct merge_gaps {
    int *first, *locals; /* locals: indices in the body */
};

struct merge {
    struct pool pool;
    struct merge_record *records; /* by rank */
    int world;
    bool loop;
    struct merge_site *sites;
    int site_count;
    bool *alone;                            /* by buffer: it shares no bytes */
    int base[SYMM_PROGRAM_MAX_STREAMS + 1]; /* by stream; the last: all gaps */
    struct merge_gaps *gaps;                /* by rank */
    bool *uniform; /* by gap: all ranks have the same accesses there */
    symm_program_merge_report *report;
};

/* merge_json.c: the strings are the pool's. */
symm_status symm__merge_read(struct pool *pool, const char *path,
                             struct merge_record *record) SYMM_MUST_CHECK;

/* merge.c */
symm_status symm__merge_nomem(void) SYMM_MUST_CHECK;
static inline bool symm__merge_is_collective(const struct merge_event *event)
{
    return (event->kind >= SYMM_RECORD_ALL_REDUCE &&
            event->kind <= SYMM_RECORD_ALL_TO_ALL) ||
           event->kind == SYMM_RECORD_ALL_REDUCE_NORM;
}
/* Lists the buffers that the event touches, each once, with this `in` in place of its own; returns
 * how many they are. */
#define MERGE_BUFFERS (SYMM_RECORD_ARRAYS + 1)
int symm__merge_buffers(const struct merge_event *event, int in,
                        int list[MERGE_BUFFERS]);
static inline bool symm__merge_is_local(const struct merge_event *event)
{
    return event->kind == SYMM_RECORD_WRITE || event->kind == SYMM_RECORD_READ;
}
/* The other rank minus this one, around the team. */
int symm__merge_shift(const struct merge_record *record,
                      const struct merge_event *event);

/* keep.c: fills sites, alone, and every event's site_id and kept. */
symm_status symm__merge_keep(struct merge *merge) SYMM_MUST_CHECK;

/* The buffer that is the input of a site's calls, of a broadcast the root's; -1: none. */
int symm__merge_input(const struct merge *merge, const struct merge_site *site);

/* order.c: refuses ranks whose kept events differ in their order on a stream. */
symm_status symm__merge_order(struct merge *merge) SYMM_MUST_CHECK;

/* build.c */
symm_status symm__merge_build(struct merge *merge,
                              symm_program **program) SYMM_MUST_CHECK;
/* A list's members where the team is one of a partition; else NULL. `lists` gets one list
 * after the other, in the order of their first ranks. */
bool symm__merge_partition(const struct merge *merge, const char *team, int *ranks,
                           int *lists, int *length);

#endif
