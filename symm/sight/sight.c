/* SPDX-License-Identifier: MIT */
/*
 * sight.c - see sight.h.
 *
 * The page's memory is not allocated in advance: a rank pays for the sites, teams and calls that
 * it has. Its size is sealed, so a reader cannot be made to fault.
 */
#include "sight/sight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/log.h"
#include "util/options.h"
#include "util/status.h"
#include "util/text.h"

#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NEVER_TIMED UINT64_MAX

/* ---- The page ------------------------------------------------------------------------ */

/* "symm-JOB-RANK"; the job's bytes that are no part of a name become '_'. */
static void page_name(const struct symm_sight_config *config, char *name, size_t bytes)
{
    char job[64];

    snprintf(job, sizeof(job), "%s", config->job);
    for (char *c = job; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '/')
            *c = '_';
    snprintf(name, bytes, "symm-%s-%d", job, config->rank);
}

/* errno on failure. */
static int page_create(const char *name, int *fd, struct symm_sight_page **page)
{
    const size_t bytes = sizeof(**page);
    void *at;
    int error;

    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return errno;
    if (ftruncate(*fd, (off_t)bytes) != 0 || fcntl(*fd, F_ADD_SEALS, SEALS) != 0)
        goto err_fd;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (at == MAP_FAILED)
        goto err_fd;
    *page = at;
    return 0;

err_fd:
    error = errno;
    close(*fd);
    return error;
}

static uint64_t real_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void page_fill(struct symm_sight *sight, const struct symm_sight_config *config,
                      bool times)
{
    struct symm_sight_page *page = sight->page;

    page->layout = SYMM_SIGHT_LAYOUT;
    page->bytes = sizeof(*page);
    page->rank = config->rank;
    page->size = config->size;
    page->pid = (int32_t)getpid();
    page->ticks_tsc = sight->tsc;
    page->times = times;
    snprintf(page->job, sizeof(page->job), "%s", config->job);
    snprintf(page->host, sizeof(page->host), "%s", config->host);
    snprintf(page->backend, sizeof(page->backend), "%s", config->backend);
    snprintf(page->version, sizeof(page->version), "%s", symm_version());
    page->opened_real_ns = real_ns();
    page->opened_ns = symm__ticks_ns();
    page->opened_ticks = symm__sight_ticks(sight);
    /* release: a reader that finds the mark finds the head filled */
    __atomic_store_n(&page->magic, SYMM_SIGHT_MAGIC, __ATOMIC_RELEASE);
}

symm_status symm__sight_open(const struct symm_sight_config *config,
                             struct symm_sight **sight)
{
    struct symm_sight *made;
    int64_t level = 0;
    char name[96];
    bool given = symm__option(SYMM_OPTION_SIGHT) != NULL;
    symm_status status = SYMM_OK;
    int error;

    *sight = NULL;
    if (given)
        status = symm__option_integer(SYMM_OPTION_SIGHT, 0, 1, &level);
    if (status != SYMM_OK || (given && level == 0))
        return status;
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for what tools see of the rank");
    page_name(config, name, sizeof(name));
    error = page_create(name, &made->fd, &made->page);
    if (error) {
        free(made);
        symm__log(SYMM_LOG_WARN,
                  "tools see nothing of rank %d: no memory for its "
                  "page: %s",
                  config->rank, strerror(error));
        return SYMM_OK;
    }
    made->tsc = symm__ticks_steady();
    made->untimed = level == 1 ? 0 : NEVER_TIMED;
    pthread_mutex_init(&made->lock, NULL);
    page_fill(made, config, level == 1);
    *sight = made;
    return SYMM_OK;
}

void symm__sight_finish(struct symm_sight *sight)
{
    if (sight)
        __atomic_store_n(&sight->page->finished, 1, __ATOMIC_RELEASE);
}

void symm__sight_close(struct symm_sight *sight)
{
    if (!sight)
        return;
    munmap(sight->page, sizeof(*sight->page));
    close(sight->fd);
    pthread_mutex_destroy(&sight->lock);
    free(sight);
}

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

    __atomic_store_n(&site->id, 0, __ATOMIC_RELAXED);
    /* release: a reader that finds one of the stores below does not find the old id */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    site->team_uid = what->team_uid;
    site->key = what->key;
    site->root = what->root;
    site->signal = what->signal;
    site->channel = what->channel;
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

/* ---- Teams and failures ------------------------------------------------------------------ */

void symm__sight_team(struct symm_sight *sight, int slot, uint32_t uid, uint32_t number,
                      const char *name, int rank, int size, const int *members)
{
    struct symm_sight_team *team = sight ? &sight->page->team[slot] : NULL;

    if (!team)
        return;
    __atomic_store_n(&team->uid, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* as in add_site */
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

struct symm_sight_wait *symm__sight_wait_begin(struct symm_sight *sight,
                                               const struct symm_sight_what *what,
                                               uint32_t epoch)
{
    struct symm_sight_wait *wait = NULL;

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
    __atomic_store_n(&wait->since,
                     what->since > 0 ? (uint64_t)(what->since * 1e9) : symm__ticks_ns(),
                     __ATOMIC_RELEASE);
    return wait;
}

void symm__sight_wait_for(struct symm_sight_wait *wait, const int *ranks, int missing)
{
    if (!wait)
        return;
    for (int i = 0; i < missing && i < SYMM_SIGHT_AWAITED; i++)
        __atomic_store_n(&wait->awaited[i], ranks[i], __ATOMIC_RELAXED);
    __atomic_store_n(&wait->missing, missing, __ATOMIC_RELEASE);
}

void symm__sight_wait_end(struct symm_sight_wait *wait)
{
    if (!wait)
        return;
    __atomic_store_n(&wait->since, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&wait->claimed, 0, __ATOMIC_RELEASE);
}

/* ---- How far the device is ----------------------------------------------------------------- */

void symm__sight_progress(struct symm_sight *sight, uint32_t team_uid, int channel,
                          uint32_t ended, uint32_t launched)
{
    struct symm_sight_progress *entry = NULL;

    for (int i = 0; sight && i < SYMM_SIGHT_PROGRESS && !entry; i++) {
        struct symm_sight_progress *at = &sight->page->progress[i];

        if (at->team_uid == 0 ||
            (at->team_uid == team_uid && at->channel == (uint32_t)channel))
            entry = at;
    }
    if (!entry)
        return;
    entry->channel = (uint32_t)channel;
    __atomic_store_n(&entry->ended, ended, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->launched, launched, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->looked, symm__ticks_ns(), __ATOMIC_RELEASE);
    __atomic_store_n(&entry->team_uid, team_uid, __ATOMIC_RELEASE);
}

void symm__sight_progress_end(struct symm_sight *sight, uint32_t team_uid)
{
    for (int i = 0; sight && i < SYMM_SIGHT_PROGRESS; i++)
        if (sight->page->progress[i].team_uid == team_uid)
            __atomic_store_n(&sight->page->progress[i].team_uid, 0, __ATOMIC_RELEASE);
}
