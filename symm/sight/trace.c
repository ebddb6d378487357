/* SPDX-License-Identifier: MIT */
/* trace.c - see trace.h: what threads of the program record for the writer. */
#include "sight/trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/hash.h"

/* ---- Calls ------------------------------------------------------------------------------- */

static _Thread_local int32_t own_thread; /* 0: not asked yet */

/* A forked child has another id, which does not matter: its calls are refused. */
static int32_t thread_id(void)
{
    if (own_thread == 0)
        own_thread = (int32_t)gettid();
    return own_thread;
}

/* One in `sample`, spread evenly. */
static bool is_sampled(const struct symm_trace *trace, uint64_t number)
{
    return trace->sample <= 1 || symm__spread(number) < UINT64_MAX / trace->sample;
}

static struct symm_trace_call *call_of(struct symm_trace *trace, uint64_t number)
{
    struct symm_trace_call *call = &trace->calls[number % SYMM_TRACE_CALLS];

    return __atomic_load_n(&call->word, __ATOMIC_RELAXED) >> 8 == number ? call : NULL;
}

static void drop(struct symm_trace *trace)
{
    __atomic_fetch_add(&trace->dropped, 1, __ATOMIC_RELAXED);
}

/* Whether there is one more below the limit; *index: which. */
static bool take(struct symm_trace *trace, uint64_t *index)
{
    *index = __atomic_load_n(&trace->taken, __ATOMIC_RELAXED);
    do {
        if (*index >= trace->limit)
            return false;
    } while (!__atomic_compare_exchange_n(&trace->taken, index, *index + 1, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

void symm__trace_begin(struct symm_trace *trace, uint64_t number, uint32_t site,
                       uint32_t epoch, enum symm_sight_state state, uint64_t now)
{
    struct symm_trace_call *call = &trace->calls[number % SYMM_TRACE_CALLS];
    uint64_t is_free = 0, index;

    if (!is_sampled(trace, number))
        return;
    /* acquire: pairs with the writer's release of the place */
    if (!__atomic_compare_exchange_n(&call->word, &is_free, number << 8, false,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        drop(trace);
        return;
    }
    if (!take(trace, &index)) {
        __atomic_store_n(&call->word, 0, __ATOMIC_RELEASE);
        drop(trace);
        return;
    }
    call->queued = state == SYMM_SIGHT_QUEUED ? now : 0;
    call->begin = now;
    call->end = 0;
    call->site = site;
    call->epoch = epoch;
    call->thread = thread_id();
    __atomic_store_n(&call->word, number << 8 | (uint64_t)state, __ATOMIC_RELAXED);
    /* Not more numbers can be unread than there are places.
     * release: the writer that finds the number finds the call */
    __atomic_store_n(&trace->order[index % SYMM_TRACE_CALLS], number, __ATOMIC_RELEASE);
}

void symm__trace_run(struct symm_trace *trace, uint64_t number, uint32_t epoch,
                     uint64_t now)
{
    struct symm_trace_call *call = call_of(trace, number);

    if (!call)
        return;
    call->begin = now;
    call->epoch = epoch;
    call->thread = thread_id();
}

void symm__trace_end(struct symm_trace *trace, uint64_t number,
                     enum symm_sight_state state, uint64_t now)
{
    struct symm_trace_call *call = call_of(trace, number);

    if (!call)
        return;
    call->end = now;
    /* release: a writer that reads this state finds the rest, and may then free the place */
    __atomic_store_n(&call->word, number << 8 | (uint64_t)state, __ATOMIC_RELEASE);
}

void symm__trace_site(struct symm_trace *trace, const struct symm_sight_site *site)
{
    struct symm_sight_site *kept =
        trace ? &trace->sites[site->id % SYMM_TRACE_SITES] : NULL;

    if (!kept)
        return;
    /* The counters are not copied: calls of the site that had the place before may still write
     * them. */
    memcpy(kept, site, offsetof(struct symm_sight_site, calls));
    memcpy(kept->op, site->op, sizeof(*site) - offsetof(struct symm_sight_site, op));
}

/* ---- Waits, failures, counters ------------------------------------------------------------- */

/* A note for the writer, with the lock held, or NULL. */
static struct symm_trace_note *note_begin(struct symm_trace *trace,
                                          enum symm_trace_kind kind, uint64_t begin,
                                          uint64_t end)
{
    struct symm_trace_note *note;

    pthread_mutex_lock(&trace->lock);
    if (trace->notes == SYMM_TRACE_NOTES) {
        pthread_mutex_unlock(&trace->lock);
        drop(trace);
        return NULL;
    }
    note = &trace->note[trace->notes++];
    memset(note, 0, sizeof(*note));
    note->kind = kind;
    note->begin = begin;
    note->end = end;
    note->thread = thread_id();
    return note;
}

static void note_end(struct symm_trace *trace)
{
    pthread_mutex_unlock(&trace->lock);
}

void symm__trace_waited(struct symm_trace *trace, const struct symm_sight_wait *wait,
                        uint64_t from, uint64_t now)
{
    const bool wanted = trace && wait->channel != SYMM_SIGHT_CONTROL;
    struct symm_trace_note *note =
        wanted ? note_begin(trace, SYMM_TRACE_WAIT, from, now) : NULL;

    if (!note)
        return;
    note->team_uid = wait->team_uid;
    note->channel = wait->channel;
    note->epoch = wait->epoch;
    note->bytes = wait->bytes;
    note->value = wait->missing;
    memcpy(note->awaited, wait->awaited, sizeof(note->awaited));
    memcpy(note->op, wait->op, sizeof(note->op));
    memcpy(note->name, wait->name, sizeof(note->name));
    note_end(trace);
}

void symm__trace_failed(struct symm_trace *trace, uint32_t team_uid, symm_status status,
                        const char *sentence, uint64_t now)
{
    struct symm_trace_note *note =
        trace ? note_begin(trace, SYMM_TRACE_FAILURE, now, now) : NULL;

    if (!note)
        return;
    note->team_uid = team_uid;
    note->value = status;
    snprintf(note->text, sizeof(note->text), "%s", sentence);
    note_end(trace);
}

void symm__trace_counter(struct symm_trace *trace, const char *name, int64_t value,
                         uint64_t now)
{
    struct symm_trace_note *note =
        trace ? note_begin(trace, SYMM_TRACE_COUNTER, now, now) : NULL;

    if (!note)
        return;
    note->value = value;
    snprintf(note->name, sizeof(note->name), "%s", name);
    note_end(trace);
}
