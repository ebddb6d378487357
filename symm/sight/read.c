/* SPDX-License-Identifier: MIT */
/* read.c - see read.h. */
#include "sight/read.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/fence.h"
#include "util/text.h"
#include "util/ticks.h"

/* The words by which a reader finds that an entry did not change. */
struct words {
    uint32_t team[SYMM_SIGHT_TEAMS], site[SYMM_SIGHT_SITES];
    uint64_t call[SYMM_SIGHT_CALLS], wait[SYMM_SIGHT_WAITS];
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now); /* cannot fail for these clocks */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct symm_sight_now symm__sight_now(void)
{
    return (struct symm_sight_now){.ns = clock_ns(CLOCK_MONOTONIC),
                                   .tsc = symm__ticks(),
                                   .real_ns = clock_ns(CLOCK_REALTIME)};
}

/* ---- Copying --------------------------------------------------------------------------- */

static bool read_whole(int fd, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t got = pread(fd, (char *)to + at, bytes - at, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    /* The next copy is later than this one; pread alone does not guarantee that. */
    symm__process_fence(__ATOMIC_SEQ_CST);
    return true;
}

static void take_words(const struct symm_sight_page *page, struct words *words)
{
    for (int i = 0; i < SYMM_SIGHT_TEAMS; i++)
        words->team[i] = page->team[i].uid;
    for (int i = 0; i < SYMM_SIGHT_SITES; i++)
        words->site[i] = page->site[i].id;
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++)
        words->call[i] = page->call[i].word;
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++)
        words->wait[i] = page->wait[i].since;
}

/* Frees each entry whose word was another before or after the rest was copied. */
static void drop_changed(struct symm_sight_page *page, const struct words *before,
                         const struct symm_sight_page *after)
{
    for (int i = 0; i < SYMM_SIGHT_TEAMS; i++)
        page->team[i].uid = before->team[i] == after->team[i].uid ? before->team[i] : 0;
    for (int i = 0; i < SYMM_SIGHT_SITES; i++)
        page->site[i].id = before->site[i] == after->site[i].id ? before->site[i] : 0;
    /* A call's state may have changed meanwhile: if the number is the same, and the entry was
     * complete before, the rest is of this call. */
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++)
        if ((before->call[i] & 0xff) == 0 ||
            before->call[i] >> 8 != page->call[i].word >> 8 ||
            before->call[i] >> 8 != after->call[i].word >> 8)
            page->call[i].word = 0;
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++)
        page->wait[i].since =
            before->wait[i] == after->wait[i].since ? before->wait[i] : 0;
}

/* Three copies: words, then all, then words again, so that an entry whose word stayed the same
 * was read between them. */
static const char *copy_page(int fd, struct symm_sight_page *copy,
                             struct symm_sight_page *other)
{
    struct words before;

    if (!read_whole(fd, other, sizeof(*other)))
        return "is shorter than a page";
    if (other->magic != SYMM_SIGHT_MAGIC)
        return "is no page of a rank";
    take_words(other, &before);
    if (!read_whole(fd, copy, sizeof(*copy)) || !read_whole(fd, other, sizeof(*other)))
        return "became shorter than a page";
    drop_changed(copy, &before, other);
    return symm__sight_check(copy);
}

const char *symm__sight_read(int fd, struct symm_sight_page *copy)
{
    struct symm_sight_page *other;
    struct stat file;
    const char *why;

    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return "is no memory file";
    if (file.st_size != (off_t)sizeof(*copy))
        return "has another size than a page of this version";
    other = malloc(sizeof(*other));
    if (!other)
        return "was not read: no memory";
    why = copy_page(fd, copy, other);
    free(other);
    return why;
}

/* ---- Checks ---------------------------------------------------------------------------- */

#define PRINTABLE(field) ((void)symm__printable((field), sizeof(field)))

static void check_sites(struct symm_sight_page *page)
{
    for (uint32_t i = 0; i < SYMM_SIGHT_SITES; i++) {
        struct symm_sight_site *site = &page->site[i];

        PRINTABLE(site->op);
        PRINTABLE(site->dtype);
        PRINTABLE(site->reduction);
        PRINTABLE(site->algorithm);
        PRINTABLE(site->reason);
        PRINTABLE(site->name);
        if (site->id % SYMM_SIGHT_SITES != i)
            site->id = 0;
    }
    for (uint32_t i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const uint64_t number = page->call[i].word >> 8;

        if (number % SYMM_SIGHT_CALLS != i)
            page->call[i].word = 0;
        else if (page->calls < number)
            page->calls = number;
    }
}

static void check_waits(struct symm_sight_page *page)
{
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++) {
        struct symm_sight_wait *wait = &page->wait[i];

        PRINTABLE(wait->op);
        PRINTABLE(wait->name);
        if (wait->missing < -1)
            wait->missing = -1;
    }
    for (int i = 0; i < SYMM_SIGHT_FAILURES; i++)
        PRINTABLE(page->failure[i].sentence);
}

const char *symm__sight_check(struct symm_sight_page *page)
{
    if (page->magic != SYMM_SIGHT_MAGIC)
        return "is no page of a rank";
    if (page->layout != SYMM_SIGHT_LAYOUT || page->bytes != sizeof(*page))
        return "is the page of another version of libsymm";
    if (page->size < 1 || page->rank < 0 || page->rank >= page->size)
        return "names a rank that does not exist";
    PRINTABLE(page->job);
    PRINTABLE(page->host);
    PRINTABLE(page->backend);
    PRINTABLE(page->version);
    for (int i = 0; i < SYMM_SIGHT_TEAMS; i++) {
        struct symm_sight_team *team = &page->team[i];

        PRINTABLE(team->name);
        if (team->size < 1 || team->rank < 0 || team->rank >= team->size)
            team->uid = 0;
    }
    check_sites(page);
    check_waits(page);
    return NULL;
}

/* ---- Looking up -------------------------------------------------------------------------- */

const struct symm_sight_site *symm__sight_site(const struct symm_sight_page *page,
                                               uint32_t id)
{
    const struct symm_sight_site *site = &page->site[id % SYMM_SIGHT_SITES];

    return id != 0 && site->id == id ? site : NULL;
}

const struct symm_sight_team *symm__sight_team_of(const struct symm_sight_page *page,
                                                  uint32_t uid)
{
    for (int i = 0; uid != 0 && i < SYMM_SIGHT_TEAMS; i++)
        /* acquire: pairs with the release in symm__sight_team, on a page that is written */
        if (__atomic_load_n(&page->team[i].uid, __ATOMIC_ACQUIRE) == uid)
            return &page->team[i];
    return NULL;
}

static int newer_first(const void *one, const void *other)
{
    const uint64_t a = (*(const struct symm_sight_call *const *)one)->word;
    const uint64_t b = (*(const struct symm_sight_call *const *)other)->word;

    return a > b ? -1 : a < b;
}

int symm__sight_calls(const struct symm_sight_page *page,
                      const struct symm_sight_call *list[SYMM_SIGHT_CALLS])
{
    int count = 0;

    for (int i = 0; i < SYMM_SIGHT_CALLS; i++)
        if (page->call[i].word != 0)
            list[count++] = &page->call[i];
    qsort(list, (size_t)count, sizeof(*list), newer_first);
    return count;
}

/* Nanoseconds of a tick; a page that says nonsense of its clocks gets 1. */
static double tick_ns(const struct symm_sight_page *page,
                      const struct symm_sight_now *now)
{
    double ticks = (double)now->tsc - (double)page->opened_ticks;
    double ns = (double)now->ns - (double)page->opened_ns;

    return ticks > 0 && ns > 0 ? ns / ticks : 1;
}

static uint64_t whole(double ns)
{
    return ns > 0 && ns < 9e18 ? (uint64_t)ns : 0;
}

uint64_t symm__sight_ns(const struct symm_sight_page *page,
                        const struct symm_sight_now *now, uint64_t ticks)
{
    if (ticks == 0 || !page->ticks_tsc) /* none, or nanoseconds */
        return ticks;
    return whole((double)page->opened_ns +
                 ((double)ticks - (double)page->opened_ticks) * tick_ns(page, now));
}

uint64_t symm__sight_span(const struct symm_sight_page *page,
                          const struct symm_sight_now *now, uint64_t ticks)
{
    return page->ticks_tsc ? whole((double)ticks * tick_ns(page, now)) : ticks;
}

const char *symm__sight_state_name(unsigned state)
{
    static const char *const names[] = {"?",        "queued", "running", "launched",
                                        "captured", "done",   "failed"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}
