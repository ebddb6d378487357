/* SPDX-License-Identifier: MIT */
/*
 * compare.c - the last calls of all ranks side by side, and the first difference of each
 * sequence: a rank at another call than most, or one that has not made, or not arrived in, a call
 * in which others wait or have failed.
 *
 * Ranks that run are read one after the other, so one may be a few calls ahead. A rank that is
 * behind is a difference only if another has waited for a second there, or has failed.
 */
#include <inttypes.h>
#include <string.h>

#include "tools/symm-info/dump.h"
#include "util/rank_text.h"

#define SHOWN_BEFORE  8 /* steps before the first difference, or the last ones */
#define SHOWN_AFTER   3
#define COLUMNS       16
#define CELL          38
#define LONG_NS       1000000000u
#define STEPS_OF_CALL 64 /* more than any has */

enum difference_kind {
    NONE,
    OTHER,  /* another call */
    ABSENT, /* no call */
    LATE,   /* the same, in which it has not arrived */
};

struct difference {
    const struct dump_sequence *sequence;
    int step;           /* index */
    int common;         /* the lane whose call most ranks made */
    int ranks[COLUMNS]; /* world ranks that differ, the first of them */
    int lanes[COLUMNS];
    int count;
    enum difference_kind kind;
};

/* ---- Words -------------------------------------------------------------------------------- */

static const struct symm_sight_site *site_at(const struct dump_lane *lane, int step)
{
    return lane->call[step] ? symm__sight_site(lane->rank->page, lane->call[step]->site)
                            : NULL;
}

const char *symm__dump_site_words(const struct symm_sight_site *site, char *text,
                                  size_t bytes)
{
    size_t used;

    if (!site)
        return "no call";
    used =
        (size_t)snprintf(text, bytes, "%s%s%s%s", site->op, site->name[0] ? " '" : "",
                         site->name, site->name[0] ? "'" : "");
    if (site->dtype[0] && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " %" PRIu64 " %s%s%s",
                                 site->count, site->dtype,
                                 site->reduction[0] ? " " : "", site->reduction);
    if (site->root >= 0 && used < bytes)
        snprintf(text + used, bytes - used, " root %d", site->root);
    return text;
}

const char *symm__dump_team_words(const struct symm_sight_page *page, uint32_t uid,
                                  char *text, size_t bytes)
{
    const struct symm_sight_team *team = symm__sight_team_of(page, uid);
    size_t used;

    if (uid == 0)
        used = (size_t)snprintf(text, bytes, "no team");
    else if (!team)
        used = (size_t)snprintf(text, bytes, "a team that is gone (uid %08x)", uid);
    else if (team == &page->team[0])
        used = (size_t)snprintf(text, bytes, "world");
    else
        used = (size_t)snprintf(text, bytes, "team %u", team->number);
    if (team && team->name[0] && used < bytes)
        snprintf(text + used, bytes - used, " '%s'", team->name);
    return text;
}

static const char *sequence_words(const struct dump_sequence *sequence, char *text,
                                  size_t bytes)
{
    const struct symm_sight_page *page = sequence->lane[0].rank->page;
    size_t used;

    for (int r = 1; r < sequence->ranks; r++)
        if (!symm__sight_team_of(page, sequence->team_uid))
            page = sequence->lane[r].rank->page;
    used = strlen(symm__dump_team_words(page, sequence->team_uid, text, bytes));
    if (sequence->channel == SYMM_SIGHT_CONTROL)
        snprintf(text + used, bytes - used, ", exchanges");
    else if (sequence->channel != 0)
        snprintf(text + used, bytes - used, ", channel %u", sequence->channel);
    return text;
}

/* ---- Finding ------------------------------------------------------------------------------ */

/* Whether two calls can be the same one of a team. */
static bool alike(const struct symm_sight_site *a, const struct symm_sight_site *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && strcmp(a->reduction, b->reduction) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0 && a->count == b->count &&
           a->root == b->root;
}

/* The lane whose call at this step most ranks made; -1: none made any. */
static int most_common(const struct dump_sequence *sequence, int step)
{
    int best = -1, most = 0;

    for (int r = 0; r < sequence->ranks; r++) {
        const struct symm_sight_site *site = site_at(&sequence->lane[r], step);
        int same = 0;

        for (int o = 0; o < sequence->ranks && site; o++) {
            const struct symm_sight_site *other = site_at(&sequence->lane[o], step);

            same += other && alike(site, other);
        }
        if (same > most) {
            most = same;
            best = r;
        }
    }
    return best;
}

/* The wait in which this lane's newest call, at `step`, has been for long; NULL: none. A call has
 * several steps of its channel; its first one is its own. */
static const struct symm_sight_wait *long_wait(const struct dump_sequence *sequence,
                                               const struct dump_lane *lane, int step)
{
    const struct symm_sight_page *page = lane->rank->page;

    if (symm__sight_is_stopped(lane->rank))
        return NULL;
    for (int i = 0; i < SYMM_SIGHT_WAITS && step == lane->last; i++) {
        const struct symm_sight_wait *wait = &page->wait[i];

        if (wait->since != 0 && wait->team_uid == sequence->team_uid &&
            wait->channel == sequence->channel &&
            wait->epoch - lane->call[step]->epoch < STEPS_OF_CALL &&
            wait->since + LONG_NS < lane->rank->now.ns)
            return wait;
    }
    return NULL;
}

/* Whether a rank that made this call shows that others have not come. */
static bool is_stuck(const struct dump_sequence *sequence, int step)
{
    for (int r = 0; r < sequence->ranks; r++) {
        const struct dump_lane *lane = &sequence->lane[r];
        const struct symm_sight_page *page = lane->rank->page;

        if (!lane->call[step])
            continue;
        if ((lane->call[step]->word & 0xff) == SYMM_SIGHT_FAILED ||
            long_wait(sequence, lane, step))
            return true;
        for (int i = 0; i < SYMM_SIGHT_FAILURES && step == lane->last; i++)
            if (page->failure[i].status != 0 &&
                page->failure[i].team_uid == sequence->team_uid)
                return true;
    }
    return false;
}

/* Whether others have waited for this rank for long, in the call that it has begun itself. */
static bool is_awaited(const struct dump_sequence *sequence, int step, int rank)
{
    for (int r = 0; r < sequence->ranks; r++) {
        const struct symm_sight_wait *wait =
            long_wait(sequence, &sequence->lane[r], step);

        for (int i = 0; wait && i < wait->missing && i < SYMM_SIGHT_AWAITED; i++)
            if (wait->awaited[i] == rank)
                return true;
    }
    return false;
}

static bool waits_itself(const struct symm_sight_rank *rank)
{
    for (int i = 0; i < SYMM_SIGHT_WAITS && !symm__sight_is_stopped(rank); i++)
        if (rank->page->wait[i].since != 0)
            return true;
    return false;
}

static enum difference_kind differs(const struct dump_sequence *sequence, int step,
                                    int lane, const struct symm_sight_site *common)
{
    const struct dump_lane *l = &sequence->lane[lane];
    const struct symm_sight_site *site = site_at(l, step);

    if (site && !alike(site, common))
        return OTHER;
    if (!l->call[step])
        return l->last > step || is_stuck(sequence, step) ? ABSENT : NONE;
    return (l->call[step]->word & 0xff) != SYMM_SIGHT_DONE &&
                   is_awaited(sequence, step, l->rank->page->rank)
               ? LATE
               : NONE;
}

/* Notes those of one kind, the first one's. */
static void note(struct difference *difference, int lane, enum difference_kind kind)
{
    if (difference->count > 0 && kind != difference->kind)
        return;
    difference->kind = kind;
    if (difference->count < COLUMNS) {
        difference->ranks[difference->count] =
            difference->sequence->lane[lane].rank->page->rank;
        difference->lanes[difference->count++] = lane;
    }
}

/*
 * The ranks that differ at this step from what most do; their number. A rank that is not here
 * because it waits elsewhere is no cause, if there is another one.
 */
static int differ_at(struct difference *difference, int step)
{
    const struct dump_sequence *sequence = difference->sequence;

    difference->step = step;
    difference->common = most_common(sequence, step);
    difference->count = 0;
    for (int pass = 0; pass < 2 && difference->count == 0 && difference->common >= 0;
         pass++)
        for (int r = 0; r < sequence->ranks; r++) {
            const enum difference_kind kind = differs(
                sequence, step, r, site_at(&sequence->lane[difference->common], step));

            if (kind == OTHER ||
                (kind != NONE && (pass > 0 || !waits_itself(sequence->lane[r].rank))))
                note(difference, r, kind);
        }
    return difference->count;
}

static bool find_difference(const struct dump_sequence *sequence,
                            struct difference *difference)
{
    *difference = (struct difference){.sequence = sequence};
    for (int step = 0; step < sequence->steps; step++)
        if (differ_at(difference, step) > 0)
            return true;
    return false;
}

/* ---- Printing ----------------------------------------------------------------------------- */

static void print_step(FILE *file, const struct dump_sequence *sequence, int step,
                       int marked)
{
    fprintf(file, "%c %9" PRIu32 "", step == marked ? '*' : ' ', sequence->step[step]);
    for (int r = 0; r < sequence->ranks && r < COLUMNS; r++) {
        const struct dump_lane *lane = &sequence->lane[r];
        char words[200], cell[240];

        if (lane->call[step])
            snprintf(cell, sizeof(cell), "%s %s",
                     symm__sight_state_name(lane->call[step]->word & 0xff),
                     symm__dump_site_words(site_at(lane, step), words, sizeof(words)));
        else
            snprintf(cell, sizeof(cell), "-");
        if (r + 1 < sequence->ranks && r + 1 < COLUMNS)
            fprintf(file, "  %-*.*s", CELL, CELL, cell);
        else
            fprintf(file, "  %.*s", CELL, cell);
    }
    fprintf(file, "\n");
}

static void print_sequence(FILE *file, const struct dump_sequence *sequence, int marked)
{
    int first = (marked >= 0 ? marked : sequence->steps - 1) - SHOWN_BEFORE;
    int last = marked >= 0 ? marked + SHOWN_AFTER : sequence->steps - 1;
    char team[128];

    first = first > 0 ? first : 0;
    last = last < sequence->steps ? last : sequence->steps - 1;
    fprintf(file, "\njob %s, %s\n  %9s", sequence->job,
            sequence_words(sequence, team, sizeof(team)), "step");
    for (int r = 0; r < sequence->ranks && r < COLUMNS; r++) {
        char head[32];

        snprintf(head, sizeof(head), "rank %d", sequence->lane[r].rank->page->rank);
        if (r + 1 < sequence->ranks && r + 1 < COLUMNS)
            fprintf(file, "  %-*s", CELL, head);
        else
            fprintf(file, "  %s", head);
    }
    fprintf(file, sequence->ranks > COLUMNS ? "  ... of %d ranks\n" : "\n",
            sequence->ranks);
    for (int step = first; step <= last; step++)
        print_step(file, sequence, step, marked);
}

static void print_difference(FILE *file, const struct difference *difference)
{
    const struct dump_sequence *sequence = difference->sequence;
    const struct dump_lane *common = &sequence->lane[difference->common];
    const struct dump_lane *other = &sequence->lane[difference->lanes[0]];
    const int step = difference->step;
    const bool done = (common->call[step]->word & 0xff) == SYMM_SIGHT_DONE;
    char team[128], ranks[160], mine[200], theirs[200];

    symm__ranks_text(difference->ranks, difference->count, ranks, sizeof(ranks));
    (void)sequence_words(sequence, team, sizeof(team));
    if (difference->kind == LATE) {
        fprintf(file,
                "first difference: %s in %s at step %" PRIu32
                ": not arrived in %s, where others wait\n",
                ranks, team, sequence->step[step],
                symm__dump_site_words(site_at(other, step), mine, sizeof(mine)));
        return;
    }
    fprintf(file,
            "first difference: %s in %s at step %" PRIu32 ": %s, where rank %d %s %s\n",
            ranks, team, sequence->step[step],
            symm__dump_site_words(site_at(other, step), mine, sizeof(mine)),
            common->rank->page->rank, done ? "made" : "is in",
            symm__dump_site_words(site_at(common, step), theirs, sizeof(theirs)));
}

/* Ranks without a file had not noticed the failure, or could not write. */
static bool print_absent(FILE *file, const struct symm_sight_ranks *ranks)
{
    bool absent = false;

    for (int i = 0, end; i < ranks->count; i = end) {
        const struct symm_sight_page *page = ranks->rank[i].page;
        int missing[64], count = 0, at = i;
        char text[320];

        for (end = i;
             end < ranks->count && strcmp(ranks->rank[end].page->job, page->job) == 0;)
            end++;
        for (int r = 0; r < page->size && count < 64; r++) {
            while (at < end && ranks->rank[at].page->rank < r)
                at++;
            if (at == end || ranks->rank[at].page->rank != r)
                missing[count++] = r;
        }
        if (count == 0)
            continue;
        symm__ranks_text(missing, count, text, sizeof(text));
        fprintf(file, "\njob %s: %s left no file: stopped, busy elsewhere, or dead\n",
                page->job, text);
        absent = true;
    }
    return absent;
}

bool symm__dump_compare(FILE *file, const struct symm_sight_ranks *ranks,
                        const struct dump_sequences *sequences, bool from_files)
{
    bool found = false;

    for (int s = 0; s < sequences->count; s++) {
        const struct dump_sequence *sequence = &sequences->sequence[s];
        struct difference difference;
        bool found_here;

        if (sequence->ranks < 2 || sequence->steps == 0)
            continue;
        found_here = find_difference(sequence, &difference);
        print_sequence(file, sequence, found_here ? difference.step : -1);
        if (found_here)
            print_difference(file, &difference);
        found = found || found_here;
    }
    symm__dump_pairs(file, ranks);
    if (from_files)
        found = print_absent(file, ranks) || found;
    if (!found)
        fprintf(file, "\nno difference\n");
    return found;
}
