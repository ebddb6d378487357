/* SPDX-License-Identifier: MIT */
/*
 * pairs.c - one-sided calls, sends and receives in the comparison of ranks.
 *
 * Such a call concerns two ranks, and others make none in its place. So it is never a difference.
 * But its step matches one of the other rank: the k-th send the k-th receive, the k-th raise of a
 * signal the k-th wait. For a rank that waits, the other rank's last such call shows how far that
 * rank is.
 */
#include <inttypes.h>
#include <string.h>

#include "tools/symm-info/dump.h"

#define PAIRS_SHOWN 8 /* calls of a rank in a team */

/* Which kinds of calls match. A batch is not here: it has a number of its own. */
static const struct {
    const char *op, *other;
} meetings[] = {
    {"recv", "send"},          {"send", "recv"},
    {"signal_wait", "signal"}, {"signal_wait", "put_signal"},
    {"signal", "signal_wait"}, {"put_signal", "signal_wait"},
};

static const struct symm_sight_site *pair_of(const struct symm_sight_rank *rank,
                                             const struct symm_sight_call *call)
{
    const struct symm_sight_site *site =
        call->word != 0 ? symm__sight_site(rank->page, call->site) : NULL;

    return site && site->channel == SYMM_SIGHT_PAIRS ? site : NULL;
}

static unsigned state_of(const struct symm_sight_call *call)
{
    return (unsigned)(call->word & 0xff);
}

/* ---- The other rank ---------------------------------------------------------------------- */

static bool meets(const struct symm_sight_site *site,
                  const struct symm_sight_site *other, int rank)
{
    bool met = false;

    for (size_t i = 0; i < sizeof(meetings) / sizeof(meetings[0]) && !met; i++)
        met = strcmp(site->op, meetings[i].op) == 0 &&
              strcmp(other->op, meetings[i].other) == 0;
    return met && other->team_uid == site->team_uid && other->root == rank &&
           other->signal == site->signal;
}

/* The newest call of the other rank that is of the kind that meets the site's calls. */
static const struct symm_sight_call *last_met(const struct symm_sight_rank *other,
                                              const struct symm_sight_site *site,
                                              int rank)
{
    const struct symm_sight_call *list[SYMM_SIGHT_CALLS];
    const int count = symm__sight_calls(other->page, list);

    for (int i = 0; i < count; i++) {
        const struct symm_sight_site *theirs = pair_of(other, list[i]);

        if (theirs && state_of(list[i]) != SYMM_SIGHT_QUEUED &&
            meets(site, theirs, rank))
            return list[i];
    }
    return NULL;
}

static bool is_met(const struct symm_sight_site *site)
{
    for (size_t i = 0; i < sizeof(meetings) / sizeof(meetings[0]); i++)
        if (strcmp(site->op, meetings[i].op) == 0)
            return site->root >= 0;
    return false;
}

static void print_other(FILE *file, const struct symm_sight_ranks *ranks,
                        const struct symm_sight_page *page,
                        const struct symm_sight_site *site)
{
    for (int r = 0; is_met(site) && r < ranks->count; r++) {
        const struct symm_sight_rank *other = &ranks->rank[r];
        const struct symm_sight_call *met;
        char words[200];

        if (other->page->rank != site->root || strcmp(other->page->job, page->job) != 0)
            continue;
        met = last_met(other, site, page->rank);
        if (met)
            fprintf(file, "; there the last is number %" PRIu32 ": %s %s", met->epoch,
                    symm__sight_state_name(state_of(met)),
                    symm__dump_site_words(pair_of(other, met), words, sizeof(words)));
        else
            fprintf(file, "; there is none there");
        return;
    }
}

/* ---- One rank ----------------------------------------------------------------------------- */

static void print_call(FILE *file, const struct symm_sight_ranks *ranks,
                       const struct symm_sight_rank *rank,
                       const struct symm_sight_call *call, bool *headed)
{
    const struct symm_sight_page *page = rank->page;
    const struct symm_sight_site *site = pair_of(rank, call);
    struct symm_sight_site plain = *site;
    char team[128], words[200];

    if (!*headed)
        fprintf(file, "\njob %s, calls between two ranks, which are not compared\n",
                page->job);
    *headed = true;
    plain.root = -1; /* it is a peer */
    fprintf(file, "  rank %d in %s: %s %s", page->rank,
            symm__dump_team_words(page, site->team_uid, team, sizeof(team)),
            symm__sight_state_name(state_of(call)),
            symm__dump_site_words(&plain, words, sizeof(words)));
    if (site->signal >= 0)
        fprintf(file, ", signal %d", site->signal);
    if (site->root >= 0)
        fprintf(file, ", with rank %d", site->root);
    if (call->epoch != 0)
        fprintf(file, ", number %" PRIu32, call->epoch);
    if (state_of(call) == SYMM_SIGHT_RUNNING || state_of(call) == SYMM_SIGHT_FAILED)
        print_other(file, ranks, page, site);
    fprintf(file, "\n");
}

static void print_rank(FILE *file, const struct symm_sight_ranks *ranks,
                       const struct symm_sight_rank *rank, bool *headed)
{
    const struct symm_sight_call *list[SYMM_SIGHT_CALLS], *last = NULL;
    const int count = symm__sight_calls(rank->page, list);
    int shown = 0;

    for (int i = 0; i < count && shown < PAIRS_SHOWN; i++) {
        const struct symm_sight_call *call = list[i];

        if (!pair_of(rank, call))
            continue;
        last = last ? last : call;
        if (state_of(call) != SYMM_SIGHT_RUNNING && state_of(call) != SYMM_SIGHT_FAILED)
            continue;
        print_call(file, ranks, rank, call, headed);
        shown++;
    }
    if (last && shown == 0)
        print_call(file, ranks, rank, last, headed);
}

void symm__dump_pairs(FILE *file, const struct symm_sight_ranks *ranks)
{
    bool headed = false;

    for (int r = 0; r < ranks->count; r++) {
        if (r > 0 &&
            strcmp(ranks->rank[r].page->job, ranks->rank[r - 1].page->job) != 0)
            headed = false;
        print_rank(file, ranks, &ranks->rank[r], &headed);
    }
}
