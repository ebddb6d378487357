/* SPDX-License-Identifier: MIT */
/* sight.c - see sight.h: sites, teams, failures and waits. */
#include "sight/sight.h"

#include <stdio.h>

#include "sight/metrics.h"
#include "sight/read.h"
#include "sight/trace.h"
#include "util/text.h"

/* ---- Sites ----------------------------------------------------------------------------- */

static void put_text(char *to, size_t bytes, const char *text)
{
    snprintf(to, bytes, "%s", text ? text : "");
    (void)symm__printable(to, bytes);
}

/* With the lock held. */
static uint32_t add_site(struct symm_sight *sight, const struct symm_sight_what *what)
{
    uint32_t id = ++sight->sites ? sight->sites : ++sight->sites; /* 0 is none */
    struct symm_sight_site *site = &sight->page->site[id % SYMM_SIGHT_SITES];

    symm__metrics_retire(sight->metrics, site);
    __atomic_store_n(&site->id, 0, __ATOMIC_RELAXED);
    /* release: a reader that finds one of the stores below does not find the old id */
    symm__process_fence(__ATOMIC_RELEASE);
    site->team_uid = what->team_uid;
    site->key = what->key;
    site->root = what->root;
    site->signal = what->signal;
    __atomic_store_n(&site->channel, what->channel, __ATOMIC_RELAXED); /* a call may end here */
    site->fallback = what->fallback;
    site->bytes = what->bytes;
    site->count = what->count;
    __atomic_store_n(&site->calls, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&site->timed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&site->ticks, 0, __ATOMIC_RELAXED);
    put_text(site->op, sizeof(site->op), what->op);
    put_text(site->dtype, sizeof(site->dtype), what->dtype);
    put_text(site->reduction, sizeof(site->reduction), what->reduction);
    put_text(site->algorithm, sizeof(site->algorithm), what->algorithm);
    put_text(site->reason, sizeof(site->reason), what->reason);
    put_text(site->name, sizeof(site->name), what->name);
    __atomic_store_n(&site->id, id, __ATOMIC_RELEASE);
    symm__trace_site(sight->trace, site);
    __atomic_store_n(&sight->page->sites, id, __ATOMIC_RELEASE);
    return id;
}

uint32_t symm__sight_describe(struct symm_sight *sight,
                              const struct symm_sight_what *what)
{
    uint32_t id;

    pthread_mutex_lock(&sight->lock);
    id = add_site(sight, what);
    pthread_mutex_unlock(&sight->lock);
    return id;
}

static bool is_site(const struct symm_sight *sight, uint32_t id, uint64_t key)
{
    return symm__sight_knows(sight, id) &&
           sight->page->site[id % SYMM_SIGHT_SITES].key == key;
}

uint32_t symm__sight_find(struct symm_sight *sight, const struct symm_sight_what *what)
{
    uint32_t *known = &sight->known[(what->key ^ what->key >> 32) % SYMM_SIGHT_KNOWN];
    uint32_t id;

    pthread_mutex_lock(&sight->lock);
    id = *known;
    if (!is_site(sight, id, what->key))
        id = *known = add_site(sight, what);
    pthread_mutex_unlock(&sight->lock);
    return id;
}

/* ---- Calls ------------------------------------------------------------------------------- */

#define TRIES 64 /* places that are kept by calls under way */

/* Another thread may have stored a newer number. */
static void raise_to(uint64_t *word, uint64_t number)
{
    uint64_t last = __atomic_load_n(word, __ATOMIC_RELAXED);

    while (last < number &&
           !__atomic_compare_exchange_n(word, &last, number, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

static uint64_t leave_out(struct symm_sight *sight)
{
    struct symm_sight_page *page = sight->page;
    const uint64_t number = __atomic_add_fetch(&page->calls, 1, __ATOMIC_RELAXED);

    __atomic_fetch_add(&page->left_out, 1, __ATOMIC_RELAXED);
    raise_to(&page->whole, number);
    return SYMM_SIGHT_LEFT_OUT | number;
}

uint64_t symm__sight_take_next(struct symm_sight *sight)
{
    struct symm_sight_page *page = sight->page;
    uint64_t number = __atomic_load_n(&page->calls, __ATOMIC_RELAXED);

    for (int kept = 0; kept < TRIES;) {
        uint64_t *word = &page->call[++number % SYMM_SIGHT_CALLS].word;
        uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);

        if (before >= number << 8) { /* page->calls lagged */
            number = before >> 8;
            continue;
        }
        if (!symm__sight_is_free(before, number)) {
            kept++;
            continue;
        }
        /* acquire: as in symm__sight_take */
        if (!__atomic_compare_exchange_n(word, &before, number << 8, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        raise_to(&page->calls, number);
        return number;
    }
    return leave_out(sight);
}

/* ---- Teams and failures ------------------------------------------------------------------ */

void symm__sight_team(struct symm_sight *sight, int slot, uint32_t uid, uint32_t number,
                      const char *name, int rank, int size, const int *members)
{
    struct symm_sight_team *team = sight ? &sight->page->team[slot] : NULL;

    if (!team)
        return;
    __atomic_store_n(&team->uid, 0, __ATOMIC_RELAXED);
    symm__process_fence(__ATOMIC_RELEASE); /* as in add_site */
    team->number = number;
    team->rank = rank;
    team->size = size;
    put_text(team->name, sizeof(team->name), name);
    for (int i = 0; i < size && i < SYMM_SIGHT_MEMBERS; i++)
        team->member[i] = members[i];
    __atomic_store_n(&team->uid, uid, __ATOMIC_RELEASE);
}

void symm__sight_team_end(struct symm_sight *sight, int slot, uint32_t uid)
{
    struct symm_sight_team *team = sight ? &sight->page->team[slot] : NULL;

    if (team && __atomic_load_n(&team->uid, __ATOMIC_RELAXED) == uid)
        __atomic_store_n(&team->uid, 0, __ATOMIC_RELEASE);
}

void symm__sight_failure(struct symm_sight *sight, uint32_t team_uid,
                         symm_status status, const char *sentence)
{
    struct symm_sight_failure *failure;
    uint32_t at;

    if (!sight)
        return;
    symm__metrics_failed(sight->metrics, status);
    symm__trace_failed(sight->trace, team_uid, status, sentence, symm__ticks_ns());
    pthread_mutex_lock(&sight->lock);
    at = sight->page->failures;
    if (at < SYMM_SIGHT_FAILURES) {
        failure = &sight->page->failure[at];
        failure->team_uid = team_uid;
        put_text(failure->sentence, sizeof(failure->sentence), sentence);
        __atomic_store_n(&failure->status, (int32_t)status, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&sight->page->failures, at + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&sight->lock);
}

/* ---- Waits ------------------------------------------------------------------------------- */

/* Of the thread that has claimed it. */
static uint64_t *looked_of(struct symm_sight *sight, const struct symm_sight_wait *wait)
{
    return &sight->looked[wait - sight->page->wait];
}

static uint64_t *from_of(struct symm_sight *sight, const struct symm_sight_wait *wait)
{
    return &sight->from[wait - sight->page->wait];
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

struct symm_sight_wait *symm__sight_wait_begin(struct symm_sight *sight,
                                               const struct symm_sight_what *what,
                                               uint32_t epoch)
{
    struct symm_sight_wait *wait = NULL;
    uint64_t now;

    for (int i = 0; sight && i < SYMM_SIGHT_WAITS && !wait; i++) {
        uint32_t free_one = 0;

        if (__atomic_compare_exchange_n(&sight->page->wait[i].claimed, &free_one, 1,
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            wait = &sight->page->wait[i];
    }
    if (!wait)
        return NULL;
    wait->team_uid = what->team_uid;
    wait->epoch = epoch;
    wait->channel = what->channel;
    wait->bytes = what->bytes;
    wait->missing = -1;
    put_text(wait->op, sizeof(wait->op), what->op);
    put_text(wait->name, sizeof(wait->name), what->name);
    now = what->since > 0 ? ns_of(what->since) : symm__ticks_ns();
    *from_of(sight, wait) = what->from > what->since ? ns_of(what->from) : now;
    *looked_of(sight, wait) = *from_of(sight, wait);
    __atomic_store_n(&wait->since, now, __ATOMIC_RELEASE);
    return wait;
}

/* The time since the last call is counted for the ranks that are missing now. */
void symm__sight_wait_for(struct symm_sight *sight, struct symm_sight_wait *wait,
                          const int *ranks, int missing)
{
    uint64_t now;

    if (!wait || missing == 0) /* all have arrived: the wait is about to end */
        return;
    now = symm__ticks_ns();
    symm__metrics_waited(sight->metrics, ranks, missing, now - *looked_of(sight, wait),
                         wait->missing < 0);
    *looked_of(sight, wait) = now;
    for (int i = 0; i < missing && i < SYMM_SIGHT_AWAITED; i++)
        __atomic_store_n(&wait->awaited[i], ranks[i], __ATOMIC_RELAXED);
    __atomic_store_n(&wait->missing, missing, __ATOMIC_RELEASE);
}

/* The remaining time is counted for the ranks that were missing last, if they are listed. */
void symm__sight_wait_end(struct symm_sight *sight, struct symm_sight_wait *wait)
{
    if (!wait)
        return;
    if (wait->missing > 0 && wait->missing <= SYMM_SIGHT_AWAITED)
        symm__metrics_waited(sight->metrics, wait->awaited, wait->missing,
                             symm__ticks_ns() - *looked_of(sight, wait), false);
    symm__trace_waited(sight->trace, wait, *from_of(sight, wait), symm__ticks_ns());
    __atomic_store_n(&wait->since, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&wait->claimed, 0, __ATOMIC_RELEASE);
}

/* ---- How far the device is ----------------------------------------------------------------- */

/* A counter track for each channel: replays of graphs have no slices. */
static void trace_progress(struct symm_sight *sight,
                           const struct symm_sight_progress *entry, uint64_t now)
{
    const struct symm_sight_team *team =
        symm__sight_team_of(sight->page, entry->team_uid);
    const char *given = team ? team->name : "";
    char name[160];

    snprintf(name, sizeof(name), "calls ended on the device: team %u%s%s, channel %u",
             team ? team->number : 0, *given ? " " : "", given, entry->channel);
    symm__trace_counter(sight->trace, name, entry->ended, now);
}

void symm__sight_progress(struct symm_sight *sight, uint32_t team_uid, int channel,
                          uint32_t ended, uint32_t launched)
{
    struct symm_sight_progress *entry = NULL;
    const uint64_t now = symm__ticks_ns();
    bool changed;

    for (int i = 0; sight && i < SYMM_SIGHT_PROGRESS && !entry; i++) {
        struct symm_sight_progress *at = &sight->page->progress[i];

        if (at->team_uid == 0 ||
            (at->team_uid == team_uid && at->channel == (uint32_t)channel))
            entry = at;
    }
    if (!entry)
        return;
    changed = entry->team_uid == 0 || entry->ended != ended;
    entry->channel = (uint32_t)channel;
    __atomic_store_n(&entry->ended, ended, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->launched, launched, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->looked, now, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->team_uid, team_uid, __ATOMIC_RELEASE);
    if (changed)
        trace_progress(sight, entry, now);
}

void symm__sight_progress_end(struct symm_sight *sight, uint32_t team_uid)
{
    for (int i = 0; sight && i < SYMM_SIGHT_PROGRESS; i++)
        if (sight->page->progress[i].team_uid == team_uid)
            __atomic_store_n(&sight->page->progress[i].team_uid, 0, __ATOMIC_RELEASE);
}
