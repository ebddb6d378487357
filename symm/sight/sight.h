/* SPDX-License-Identifier: MIT */
/*
 * sight.h - the rank's own page for tools (page.h), and the two functions on the path of a call.
 *
 * A call costs a few stores into memory of this rank: symm__sight_begin before it, symm__sight_end
 * after it. What a call is, its site, is described once and named by an id afterwards.
 * Everything here takes NULL for a rank without a page (SYMM_SIGHT=0) and does nothing then.
 * Functions may be called by several threads at a time.
 */
#ifndef SYMM_SIGHT_SIGHT_H
#define SYMM_SIGHT_SIGHT_H

#include <pthread.h>
#include <stdbool.h>

#include "sight/page.h"
#include "symm/symm.h"
#include "util/fence.h"
#include "util/hash.h"
#include "util/ticks.h"

#define SYMM_SIGHT_KNOWN 256 /* a power of two */

struct symm_metrics;
struct symm_nvtx;
struct symm_trace;
struct symm_sight_writer;

struct symm_sight {
    struct symm_sight_page *page;
    /* a call is timed if symm__spread of its number has none of these */
    uint64_t untimed;
    bool tsc;
    bool hooks; /* each call goes to symm__sight_hook_..., too */
    int fd;
    char *dump;           /* SYMM_DUMP's file; NULL: none is left; owned */
    pthread_mutex_t lock; /* guards sites and failures */
    uint32_t sites;
    uint32_t known[SYMM_SIGHT_KNOWN]; /* atomic: ids of sites, by their keys */
    /* Nanoseconds: from when on, and up to when, a wait is counted as one of its own. */
    uint64_t from[SYMM_SIGHT_WAITS], looked[SYMM_SIGHT_WAITS];
    struct symm_metrics *metrics;     /* SYMM_METRICS_FILE; NULL: not set */
    struct symm_trace *trace;         /* SYMM_TRACE; NULL: not set */
    struct symm_nvtx *nvtx;           /* NULL: no profiler asks for ranges */
    struct symm_sight_writer *writer; /* NULL: no file is written */
};

struct symm_sight_config {
    const char *job, *host, *backend;
    int rank, size;
    /* Bytes of the heap, called by any thread; false: they cannot be had now. */
    bool (*heap)(void *arg, uint64_t *used, uint64_t *committed);
    void *heap_arg;
};

/* What a site is; strings may be NULL. */
struct symm_sight_what {
    const char *op, *dtype, *reduction, *algorithm, *reason, *name;
    uint32_t team_uid, channel;
    int root, signal; /* -1: none */
    uint64_t bytes, count;
    bool fallback;
    uint64_t key; /* of calls that keep no id; 0: they do */
    double since; /* a wait's begin, as symm__now; 0: it begins now */
    /* if later: before it the call has had another wait, which was shown */
    double from;
};

/* *sight is NULL if SYMM_SIGHT is 0, or if there is no memory for a page, which is logged. */
symm_status symm__sight_open(const struct symm_sight_config *config,
                             struct symm_sight **sight) SYMM_MUST_CHECK;
/* Writes the files for the last time and ends their thread; symm__sight_close does so, too. */
void symm__sight_stop(struct symm_sight *sight);
void symm__sight_close(struct symm_sight *sight);
/* Shows tools that symm_finalize has begun. */
void symm__sight_finish(struct symm_sight *sight);

/* Adds a site, and returns its id. */
uint32_t symm__sight_describe(struct symm_sight *sight,
                              const struct symm_sight_what *what);
/* The id of the site with what->key, which is described if it is new. */
uint32_t symm__sight_find(struct symm_sight *sight, const struct symm_sight_what *what);

/* members: world ranks. */
void symm__sight_team(struct symm_sight *sight, int slot, uint32_t uid, uint32_t number,
                      const char *name, int rank, int size, const int *members);
void symm__sight_team_end(struct symm_sight *sight, int slot, uint32_t uid);
void symm__sight_failure(struct symm_sight *sight, uint32_t team_uid,
                         symm_status status, const char *sentence);

/* Takes SYMM_DUMP, a folder that must be there; for symm__sight_open. */
symm_status
symm__sight_save_open(struct symm_sight *sight,
                      const struct symm_sight_config *config) SYMM_MUST_CHECK;
/* The file that symm__sight_save writes; NULL: SYMM_DUMP is not set. */
const char *symm__sight_saved(const struct symm_sight *sight);
/* Writes what tools see of the rank to that file. Failures are logged. Any thread. */
void symm__sight_save(struct symm_sight *sight);

/* Shows a wait from now on; NULL: all places are taken. */
struct symm_sight_wait *symm__sight_wait_begin(struct symm_sight *sight,
                                               const struct symm_sight_what *what,
                                               uint32_t epoch);
/* Sets the ranks that are awaited now, `missing` of them. */
void symm__sight_wait_for(struct symm_sight *sight, struct symm_sight_wait *wait,
                          const int *ranks, int missing);
void symm__sight_wait_end(struct symm_sight *sight, struct symm_sight_wait *wait);

/* The job as a part of a file's name, of the page, a dump or a trace: all bytes but letters and
 * digits of ASCII, '.' and '-' become '_'. */
void symm__sight_job(const char *job, char *name, size_t bytes);

/* hooks.c: what follows each call while sight->hooks is set: its trace, its NVTX range. */
void symm__sight_hooks_open(struct symm_sight *sight);
void symm__sight_hooks_close(struct symm_sight *sight);
void symm__sight_hook_begin(struct symm_sight *sight, uint64_t number, uint32_t site,
                            uint32_t epoch, enum symm_sight_state state,
                            uint64_t begin);
void symm__sight_hook_run(struct symm_sight *sight, uint64_t number, uint32_t epoch);
void symm__sight_hook_end(struct symm_sight *sight, uint64_t number,
                          enum symm_sight_state state);

/* writer.c: starts the thread that writes files, if there are any. */
symm_status symm__sight_start(struct symm_sight *sight) SYMM_MUST_CHECK;

/* How far the device is on a channel. From one thread; the channels of a team end together. */
void symm__sight_progress(struct symm_sight *sight, uint32_t team_uid, int channel,
                          uint32_t ended, uint32_t launched);
void symm__sight_progress_end(struct symm_sight *sight, uint32_t team_uid);

/* SYMM_SIGHT=1 */
static inline bool symm__sight_times(const struct symm_sight *sight)
{
    return sight && sight->page->times;
}

static inline uint64_t symm__sight_ticks(const struct symm_sight *sight)
{
    return sight->tsc ? symm__ticks() : symm__ticks_ns();
}

/* Whether the id still names its site: not if a newer site has taken the place. */
static inline bool symm__sight_knows(const struct symm_sight *sight, uint32_t id)
{
    return id != 0 && __atomic_load_n(&sight->page->site[id % SYMM_SIGHT_SITES].id,
                                      __ATOMIC_RELAXED) == id;
}

/* In the number of a call that is not in the list. */
#define SYMM_SIGHT_LEFT_OUT (UINT64_C(1) << 55)

/* Whether the call `number` may take the place with this word: no call under way has it, and no
 * newer call. */
static inline bool symm__sight_is_free(uint64_t word, uint64_t number)
{
    return word < number << 8 && (word == 0 || (word & 0xff) > SYMM_SIGHT_RUNNING);
}

/* sight.c: the same for a call whose first try failed. */
uint64_t symm__sight_take_next(struct symm_sight *sight);

/* Takes a place in the list. Nobody else writes it until the call has ended. Returns the call's
 * number; SYMM_SIGHT_LEFT_OUT is in it if it has no place. */
static inline uint64_t symm__sight_take(struct symm_sight *sight)
{
    struct symm_sight_page *page = sight->page;
    const uint64_t number = __atomic_load_n(&page->calls, __ATOMIC_RELAXED) + 1;
    uint64_t *word = &page->call[number % SYMM_SIGHT_CALLS].word;
    uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);

    /* acquire: the stores of the call before come before those of this one */
    if (__builtin_expect(!symm__sight_is_free(before, number) ||
                             !__atomic_compare_exchange_n(word, &before, number << 8,
                                                          false, __ATOMIC_ACQUIRE,
                                                          __ATOMIC_RELAXED),
                         0))
        return symm__sight_take_next(sight);
    /* Not by an atomic addition, which would cost as much as the exchange. Another thread may put
     * back an older number: calls find their places taken, and go on from the newer one. */
    __atomic_store_n(&page->calls, number, __ATOMIC_RELAXED);
    return number;
}

/* Calls of one site follow each other, but for one-sided ones, sends and receives. */
static inline void symm__sight_add(const struct symm_sight_site *site, uint64_t *count,
                                   uint64_t more)
{
    if (__atomic_load_n(&site->channel, __ATOMIC_RELAXED) == SYMM_SIGHT_PAIRS)
        __atomic_fetch_add(count, more, __ATOMIC_RELAXED);
    else
        __atomic_store_n(count, __atomic_load_n(count, __ATOMIC_RELAXED) + more,
                         __ATOMIC_RELAXED);
}

/* A call of the site `id` begins, or is queued. Returns its number. */
static inline uint64_t symm__sight_begin(struct symm_sight *sight, uint32_t id,
                                         uint32_t epoch, enum symm_sight_state state)
{
    struct symm_sight_site *site = &sight->page->site[id % SYMM_SIGHT_SITES];
    const uint64_t number = symm__sight_take(sight);
    struct symm_sight_call *call = &sight->page->call[number % SYMM_SIGHT_CALLS];
    /* Spread, so that in a program with a fixed number of calls per step not always the same ones
     * are sampled. */
    const bool timed = (symm__spread(number) & sight->untimed) == 0;
    uint64_t begin = timed ? symm__sight_ticks(sight) : 0;

    if (__builtin_expect(number < SYMM_SIGHT_LEFT_OUT, 1)) {
        /* release: a reader that finds one of the stores below finds the place taken */
        symm__process_fence(__ATOMIC_RELEASE);
        __atomic_store_n(&call->begin, begin, __ATOMIC_RELAXED);
        __atomic_store_n(&call->end, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&call->site, id, __ATOMIC_RELAXED);
        __atomic_store_n(&call->epoch, epoch, __ATOMIC_RELAXED);
        __atomic_store_n(&call->word, number << 8 | (uint64_t)state, __ATOMIC_RELEASE);
    }
    symm__sight_add(site, &site->calls, 1);
    if (__builtin_expect(sight->hooks, 0))
        symm__sight_hook_begin(sight, number, id, epoch, state, begin);
    return number;
}

/* The entry of a call that has not ended; NULL: it is not in the list. */
static inline struct symm_sight_call *symm__sight_call(const struct symm_sight *sight,
                                                       uint64_t number)
{
    struct symm_sight_call *call = &sight->page->call[number % SYMM_SIGHT_CALLS];

    return __atomic_load_n(&call->word, __ATOMIC_RELAXED) >> 8 == number ? call : NULL;
}

/* The end of a call that was timed. */
static inline void symm__sight_timed(const struct symm_sight *sight,
                                     struct symm_sight_call *call, uint64_t begin)
{
    const uint32_t id = __atomic_load_n(&call->site, __ATOMIC_RELAXED);
    struct symm_sight_site *site = &sight->page->site[id % SYMM_SIGHT_SITES];
    const uint64_t end = symm__sight_ticks(sight);

    __atomic_store_n(&call->end, end, __ATOMIC_RELAXED);
    /* The counter of another core may be behind by a little. */
    if (begin > end || __atomic_load_n(&site->id, __ATOMIC_RELAXED) != id)
        return;
    symm__sight_add(site, &site->timed, 1);
    symm__sight_add(site, &site->ticks, end - begin);
}

/* Marks a queued call as running, as that step of its channel; 0: it has none. */
static inline void symm__sight_run(struct symm_sight *sight, uint64_t number,
                                   uint32_t epoch)
{
    struct symm_sight_call *call = sight ? symm__sight_call(sight, number) : NULL;

    if (sight && __builtin_expect(sight->hooks, 0))
        symm__sight_hook_run(sight, number, epoch);
    if (!call)
        return;
    __atomic_store_n(&call->epoch, epoch, __ATOMIC_RELAXED);
    if (__atomic_load_n(&call->begin, __ATOMIC_RELAXED) != 0)
        __atomic_store_n(&call->begin, symm__sight_ticks(sight), __ATOMIC_RELAXED);
    __atomic_store_n(&call->word, number << 8 | SYMM_SIGHT_RUNNING, __ATOMIC_RELEASE);
}

static inline void symm__sight_end(struct symm_sight *sight, uint64_t number,
                                   enum symm_sight_state state)
{
    struct symm_sight_call *call = sight ? symm__sight_call(sight, number) : NULL;
    uint64_t begin;

    if (sight && __builtin_expect(sight->hooks, 0)) /* it may be left out of the list */
        symm__sight_hook_end(sight, number, state);
    if (!call)
        return;
    begin = __atomic_load_n(&call->begin, __ATOMIC_RELAXED);
    if (begin != 0)
        symm__sight_timed(sight, call, begin);
    __atomic_store_n(&call->word, number << 8 | (uint64_t)state, __ATOMIC_RELEASE);
}

#endif
