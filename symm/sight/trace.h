/* SPDX-License-Identifier: MIT */
/*
 * trace.h - SYMM_TRACE: calls, waits, failures and counters of a rank, kept until trace_file.h
 * writes them.
 *
 * A call has a place in a ring by its number, from its begin until it is written; nothing is
 * allocated and no lock is taken for it. Waits, failures and counters are rare and go into a list
 * with a lock. What finds no place, or exceeds the limit, is counted as dropped. All times are
 * nanoseconds of CLOCK_MONOTONIC, which the ranks of a host share.
 */
#ifndef SYMM_SIGHT_TRACE_H
#define SYMM_SIGHT_TRACE_H

#include <pthread.h>
#include <stdbool.h>

#include "sight/page.h"
#include "symm/symm.h"

#define SYMM_TRACE_CALLS ((uint64_t)1 << 18) /* a power of two */
#define SYMM_TRACE_SITES 16384u              /* a power of two */
#define SYMM_TRACE_NOTES 1024
#define SYMM_TRACE_LATE  4096

struct symm_trace_call {
    uint64_t word; /* atomic: number << 8 | enum symm_sight_state; 0: free */
    uint64_t queued, begin, end; /* queued, end: 0: it was not, has not */
    uint32_t site, epoch;
    int32_t thread;
    uint32_t reserved;
};

enum symm_trace_kind { SYMM_TRACE_WAIT, SYMM_TRACE_FAILURE, SYMM_TRACE_COUNTER };

struct symm_trace_note {
    enum symm_trace_kind kind;
    uint64_t begin, end;
    int32_t thread;
    uint32_t team_uid, channel;
    /* of a counter; status of a failure; number of ranks that a wait was last for */
    int64_t value;
    int32_t awaited[SYMM_SIGHT_AWAITED]; /* the first of these ranks */
    uint64_t bytes;
    uint32_t epoch;
    char op[24], name[SYMM_SIGHT_NAME];
    char text[SYMM_SIGHT_SENTENCE];
};

struct symm_trace {
    int fd;
    char path[4096];
    uint64_t limit, sample; /* calls that may be kept; one in `sample` is */
    uint64_t taken, dropped; /* atomic: calls that have a place; those that have none */
    struct symm_trace_call *calls; /* [SYMM_TRACE_CALLS], by number */
    uint64_t *order; /* [SYMM_TRACE_CALLS], atomic: numbers as they were taken */
    /* [SYMM_TRACE_SITES], by id, guarded by sight->lock */
    struct symm_sight_site *sites;
    /* The writer's: */
    uint64_t read;                  /* of `order` */
    uint64_t late[SYMM_TRACE_LATE]; /* numbers of calls that had not ended */
    int late_count;
    bool empty; /* the file has no event yet */
    bool told;  /* the log has that it cannot be written */
    int threads;
    int32_t named[256]; /* threads that have a name in the file */

    pthread_mutex_t lock; /* guards the notes */
    int notes;
    struct symm_trace_note note[SYMM_TRACE_NOTES];
};

/* A call begins or is queued, runs after it was queued, ends. */
void symm__trace_begin(struct symm_trace *trace, uint64_t number, uint32_t site,
                       uint32_t epoch, enum symm_sight_state state, uint64_t now);
void symm__trace_run(struct symm_trace *trace, uint64_t number, uint32_t epoch,
                     uint64_t now);
void symm__trace_end(struct symm_trace *trace, uint64_t number,
                     enum symm_sight_state state, uint64_t now);

/* These take NULL and do nothing then. */
/* With sight->lock held: the site is new. */
void symm__trace_site(struct symm_trace *trace, const struct symm_sight_site *site);
/* The wait has ended, on the thread that has waited. */
void symm__trace_waited(struct symm_trace *trace, const struct symm_sight_wait *wait,
                        uint64_t from, uint64_t now);
void symm__trace_failed(struct symm_trace *trace, uint32_t team_uid, symm_status status,
                        const char *sentence, uint64_t now);
/* A value of a counter track, at the time `now`. */
void symm__trace_counter(struct symm_trace *trace, const char *name, int64_t value,
                         uint64_t now);

#endif
