/* SPDX-License-Identifier: MIT */
/*
 * late.c - what is kept from look to look: how many calls each rank had made, and at which
 * site which rank was waited for.
 *
 * A wait that a look finds counts for the time since the look before, as a sampling profiler
 * counts: waits that are shorter than that are found in proportion to their length.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/symm-top/top.h"

double symm__top_rate(const struct top_history *history,
                      const struct symm_sight_rank *rank)
{
    for (int i = 0; i < history->rates; i++) {
        const struct top_rate *before = &history->rate[i];

        if (before->device != rank->device || before->inode != rank->inode)
            continue;
        if (rank->now.ns <= before->ns || rank->page->calls < before->calls)
            return -1;
        return (double)(rank->page->calls - before->calls) * 1e9 /
               (double)(rank->now.ns - before->ns);
    }
    return -1;
}

static bool same(const struct top_late *late, const struct symm_sight_rank *rank,
                 const struct symm_sight_wait *wait, int awaited)
{
    return late->awaited == awaited && late->team_uid == wait->team_uid &&
           strcmp(late->job, rank->page->job) == 0 && strcmp(late->op, wait->op) == 0 &&
           strcmp(late->name, wait->name) == 0;
}

/* The entry; if all are taken the one that counted least, among those without a wait now. */
static struct top_late *find(struct top_history *history,
                             const struct symm_sight_rank *rank,
                             const struct symm_sight_wait *wait, int awaited)
{
    struct top_late *late = NULL;

    for (int i = 0; i < history->lates; i++) {
        if (same(&history->late[i], rank, wait, awaited))
            return &history->late[i];
        if (history->late[i].ranks == 0 &&
            (!late || history->late[i].seconds < late->seconds))
            late = &history->late[i];
    }
    if (history->lates < TOP_LATES)
        late = &history->late[history->lates++];
    if (!late)
        return NULL;
    memset(late, 0, sizeof(*late));
    snprintf(late->job, sizeof(late->job), "%s", rank->page->job);
    snprintf(late->op, sizeof(late->op), "%s", wait->op);
    snprintf(late->name, sizeof(late->name), "%s", wait->name);
    symm__top_team(rank->page, symm__sight_team_of(rank->page, wait->team_uid),
                   late->team, sizeof(late->team));
    late->team_uid = wait->team_uid;
    late->awaited = awaited;
    return late;
}

static void add(struct top_history *history, const struct symm_sight_rank *rank,
                const struct symm_sight_wait *wait, int awaited)
{
    const uint64_t since = rank->now.ns - wait->since;
    struct top_late *late = find(history, rank, wait, awaited);
    const uint64_t passed =
        history->looked_ns ? rank->now.ns - history->looked_ns : since;

    if (!late)
        return;
    if (late->ranks < (int)(sizeof(late->first) / sizeof(late->first[0])))
        late->first[late->ranks] = rank->page->rank;
    late->ranks++;
    late->longest_ns = since > late->longest_ns ? since : late->longest_ns;
    late->seconds += (double)passed / 1e9;
}

static void add_waits(struct top_history *history, const struct symm_sight_rank *rank)
{
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++) {
        const struct symm_sight_wait *wait = &rank->page->wait[i];

        if (wait->since == 0 || wait->since > rank->now.ns)
            continue;
        if (wait->missing < 0)
            add(history, rank, wait, -1);
        for (int k = 0; k < wait->missing && k < SYMM_SIGHT_AWAITED; k++)
            add(history, rank, wait, wait->awaited[k]);
    }
}

/* What keeps the rank that is waited for. */
static void look_at_awaited(struct top_late *late, const struct symm_sight_ranks *ranks)
{
    late->waits = late->stopped = false;
    for (int i = 0; i < ranks->count; i++) {
        const struct symm_sight_rank *rank = &ranks->rank[i];

        if (rank->page->rank != late->awaited ||
            strcmp(rank->page->job, late->job) != 0)
            continue;
        late->stopped |= symm__sight_is_stopped(rank);
        for (int k = 0; k < SYMM_SIGHT_WAITS && !late->waits; k++)
            late->waits = rank->page->wait[k].since != 0;
    }
    late->waits = late->waits && !late->stopped;
}

/* A rank that waits for others is no cause: it comes after those that do not. */
static int by_time(const void *one, const void *other)
{
    const struct top_late *a = one, *b = other;

    if (a->waits != b->waits)
        return a->waits ? 1 : -1;
    if (a->seconds != b->seconds)
        return a->seconds > b->seconds ? -1 : 1;
    return a->awaited < b->awaited ? -1 : a->awaited > b->awaited;
}

static void remember_rates(struct top_history *history,
                           const struct symm_sight_ranks *ranks)
{
    free(history->rate);
    history->rate = calloc((size_t)ranks->count + 1, sizeof(*history->rate));
    history->rates = history->rate ? ranks->count : 0;
    for (int i = 0; i < history->rates; i++) {
        const struct symm_sight_rank *rank = &ranks->rank[i];

        history->rate[i] = (struct top_rate){.device = rank->device,
                                             .inode = rank->inode,
                                             .calls = rank->page->calls,
                                             .ns = rank->now.ns};
    }
}

void symm__top_remember(struct top_history *history,
                        const struct symm_sight_ranks *ranks)
{
    const uint64_t now = symm__sight_now().ns;

    for (int i = 0; i < history->lates; i++)
        history->late[i].ranks = 0, history->late[i].longest_ns = 0;
    for (int i = 0; i < ranks->count; i++)
        if (!symm__sight_is_stopped(&ranks->rank[i]))
            add_waits(history, &ranks->rank[i]);
    for (int i = 0; i < history->lates; i++)
        look_at_awaited(&history->late[i], ranks);
    qsort(history->late, (size_t)history->lates, sizeof(history->late[0]), by_time);
    remember_rates(history, ranks);
    if (history->looked_ns)
        history->watched += (double)(now - history->looked_ns) / 1e9;
    history->looked_ns = now;
}

void symm__top_forget(struct top_history *history)
{
    free(history->rate);
    memset(history, 0, sizeof(*history));
}
