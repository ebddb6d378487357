/* SPDX-License-Identifier: MIT */
/*
 * sequence.c - the calls of each channel of each team, by step, over all ranks of a job.
 *
 * A rank keeps its last calls only, and how far they reach back differs from channel to channel:
 * a sequence begins where the lists of all its ranks have begun. Steps are compared by their
 * distance, since they wrap.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/symm-info/dump.h"

static bool before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* Orders steps around `middle`, from 2^31 before it on: this is an order also for pages that hold
 * anything. */
static int by_step(const void *one, const void *other, void *middle)
{
    const uint32_t from = *(const uint32_t *)middle - (UINT32_C(1) << 31);
    const uint32_t a = *(const uint32_t *)one - from,
                   b = *(const uint32_t *)other - from;

    return a < b ? -1 : a > b;
}

/* The site of a call that all ranks make, at the same step; NULL: no such call, or its site was
 * replaced. */
static const struct symm_sight_site *site_of(const struct symm_sight_rank *rank, int i)
{
    const struct symm_sight_call *call = &rank->page->call[i];
    const struct symm_sight_site *site = call->word != 0 && call->epoch != 0
                                             ? symm__sight_site(rank->page, call->site)
                                             : NULL;

    return site && site->channel != SYMM_SIGHT_PAIRS ? site : NULL;
}

static bool is_of(const struct symm_sight_rank *rank, int i,
                  const struct dump_sequence *sequence)
{
    const struct symm_sight_site *site = site_of(rank, i);

    return site && site->team_uid == sequence->team_uid &&
           site->channel == sequence->channel;
}

/* ---- Which there are ---------------------------------------------------------------------- */

static struct dump_sequence *find(const struct dump_sequences *sequences,
                                  const char *job, const struct symm_sight_site *site)
{
    for (int i = sequences->count; i-- > 0;) {
        struct dump_sequence *sequence = &sequences->sequence[i];

        if (sequence->team_uid == site->team_uid &&
            sequence->channel == site->channel && strcmp(sequence->job, job) == 0)
            return sequence;
    }
    return NULL;
}

static bool add(struct dump_sequences *sequences, const struct symm_sight_rank *rank,
                const struct symm_sight_site *site)
{
    struct dump_sequence *list;

    if (find(sequences, rank->page->job, site))
        return true;
    list = realloc(sequences->sequence,
                   (size_t)(sequences->count + 1) * sizeof(*sequences->sequence));
    if (!list)
        return false;
    sequences->sequence = list;
    list[sequences->count++] = (struct dump_sequence){
        .job = rank->page->job, .team_uid = site->team_uid, .channel = site->channel};
    return true;
}

/* ---- One ---------------------------------------------------------------------------------- */

/* The ranks of the job that are members: they have the team, or calls of it. */
static bool find_lanes(struct dump_sequence *sequence,
                       const struct symm_sight_ranks *ranks)
{
    sequence->lane = calloc((size_t)ranks->count, sizeof(*sequence->lane));
    if (!sequence->lane)
        return false;
    for (int r = 0; r < ranks->count; r++) {
        const struct symm_sight_rank *rank = &ranks->rank[r];
        bool member;

        if (strcmp(rank->page->job, sequence->job) != 0)
            continue;
        member = symm__sight_team_of(rank->page, sequence->team_uid) != NULL;
        for (int i = 0; i < SYMM_SIGHT_CALLS && !member; i++)
            member = is_of(rank, i, sequence);
        if (member)
            sequence->lane[sequence->ranks++] =
                (struct dump_lane){.rank = rank, .last = -1};
    }
    return true;
}

/* The first step from which on the rank's list is complete; false: it is complete from the
 * beginning. The list of a rank that left calls out is complete after those. */
static bool first_step(const struct dump_sequence *sequence,
                       const struct symm_sight_rank *rank, uint32_t *first)
{
    bool found = false;

    if (rank->page->calls <= SYMM_SIGHT_CALLS - 1 && rank->page->left_out == 0)
        return false; /* it has lost none */
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++)
        if (rank->page->call[i].word >> 8 > rank->page->whole &&
            is_of(rank, i, sequence) &&
            (!found || before(rank->page->call[i].epoch, *first))) {
            *first = rank->page->call[i].epoch;
            found = true;
        }
    return found;
}

static int find_steps(struct dump_sequence *sequence, uint32_t *step)
{
    uint32_t from = 0, first = 0;
    bool cut = false;
    int count = 0, kept = 0;

    for (int r = 0; r < sequence->ranks; r++) {
        const struct symm_sight_rank *rank = sequence->lane[r].rank;

        if (first_step(sequence, rank, &first) && (!cut || before(from, first))) {
            from = first;
            cut = true;
        }
        for (int i = 0; i < SYMM_SIGHT_CALLS; i++)
            if (is_of(rank, i, sequence))
                step[count++] = rank->page->call[i].epoch;
    }
    sequence->middle = count > 0 ? step[0] : 0;
    qsort_r(step, (size_t)count, sizeof(*step), by_step, &sequence->middle);
    for (int i = 0; i < count; i++)
        if ((!cut || !before(step[i], from)) &&
            (kept == 0 || step[i] != step[kept - 1]))
            step[kept++] = step[i];
    return kept;
}

/* Where the step is in the list; -1: it is not. */
static int index_of(struct dump_sequence *sequence, uint32_t step)
{
    int low = 0, high = sequence->steps;

    while (low < high) {
        const int at = low + (high - low) / 2;
        const int order = by_step(&step, &sequence->step[at], &sequence->middle);

        if (order == 0)
            return at;
        if (order < 0)
            high = at;
        else
            low = at + 1;
    }
    return -1;
}

static bool fill_lane(struct dump_sequence *sequence, struct dump_lane *lane)
{
    lane->call =
        calloc((size_t)sequence->steps + 1, sizeof(const struct symm_sight_call *));
    if (!lane->call)
        return false;
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const struct symm_sight_call *call = &lane->rank->page->call[i];
        const int at =
            is_of(lane->rank, i, sequence) ? index_of(sequence, call->epoch) : -1;

        if (at < 0)
            continue;
        if (!lane->call[at] || lane->call[at]->word < call->word)
            lane->call[at] = call; /* made again after one that failed */
        if (at > lane->last)
            lane->last = at;
    }
    return true;
}

static bool fill(struct dump_sequence *sequence, const struct symm_sight_ranks *ranks)
{
    bool good = find_lanes(sequence, ranks);

    if (good)
        sequence->step = malloc(((size_t)sequence->ranks * SYMM_SIGHT_CALLS + 1) *
                                sizeof(*sequence->step));
    if (!good || !sequence->step)
        return false;
    sequence->steps = find_steps(sequence, sequence->step);
    for (int r = 0; r < sequence->ranks && good; r++)
        good = fill_lane(sequence, &sequence->lane[r]);
    return good;
}

bool symm__dump_sequences(const struct symm_sight_ranks *ranks,
                          struct dump_sequences *sequences)
{
    bool good = true;

    *sequences = (struct dump_sequences){0};
    for (int r = 0; r < ranks->count; r++)
        for (int i = 0; i < SYMM_SIGHT_CALLS && good; i++) {
            const struct symm_sight_site *site = site_of(&ranks->rank[r], i);

            good = !site || add(sequences, &ranks->rank[r], site);
        }
    for (int s = 0; s < sequences->count && good; s++)
        good = fill(&sequences->sequence[s], ranks);
    if (!good)
        symm__dump_sequences_finish(sequences);
    return good;
}

void symm__dump_sequences_finish(struct dump_sequences *sequences)
{
    for (int s = 0; s < sequences->count; s++) {
        struct dump_sequence *sequence = &sequences->sequence[s];

        for (int r = 0; r < sequence->ranks; r++)
            free(sequence->lane[r].call);
        free(sequence->lane);
        free(sequence->step);
    }
    free(sequences->sequence);
    *sequences = (struct dump_sequences){0};
}
