/* SPDX-License-Identifier: MIT */
/* show.c - one look at all ranks, as text: a table for each job, then who is waited for. */
#include <string.h>

#include "tools/symm-top/top.h"
#include "util/rank_text.h"
#include "util/text.h"

#define RUNNING_SHOWN 8 /* calls of a team that run at a time, on its streams */

/* What a row shows of a rank in a team. */
struct row {
    const struct symm_sight_rank *rank;
    const struct symm_sight_team *team;
    const struct symm_sight_call *call; /* NULL: none is known */
    const struct symm_sight_wait *wait; /* NULL: it does not wait */
    int queued;
};

/* ---- Words -------------------------------------------------------------------------------- */

const char *symm__top_team(const struct symm_sight_page *page,
                           const struct symm_sight_team *team, char *text, size_t bytes)
{
    const bool world = team == &page->team[0];

    if (!team)
        snprintf(text, bytes, "no team yet");
    else if (world)
        snprintf(text, bytes, team->name[0] ? "'%s' (world)" : "%sworld", team->name);
    else if (team->name[0])
        snprintf(text, bytes, "'%s' (team %u)", team->name, team->number);
    else
        snprintf(text, bytes, "team %u", team->number);
    return text;
}

static const char *span_text(uint64_t ns, char *text, size_t bytes)
{
    const double seconds = (double)ns / 1e9;

    if (seconds < 1e-3)
        snprintf(text, bytes, "%.0fus", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, bytes, "%.0fms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(text, bytes, "%.1fs", seconds);
    else if (seconds < 3600)
        snprintf(text, bytes, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, bytes, "%.0fh%02dm", seconds / 3600 - 0.5,
                 (int)(ns / 60000000000u % 60));
    return text;
}

/* "all_reduce 'layer 1' 32 bytes (float32 sum, one_shot)" */
static void site_text(const struct symm_sight_site *site, char *text, size_t bytes)
{
    char size[32];
    size_t used =
        (size_t)snprintf(text, bytes, "%s%s%s%s", site->op, site->name[0] ? " '" : "",
                         site->name, site->name[0] ? "'" : "");

    if (site->bytes > 0 && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " %s",
                                 symm__size_text(site->bytes, size, sizeof(size)));
    if (site->signal >= 0 && used < bytes)
        used +=
            (size_t)snprintf(text + used, bytes - used, ", signal %d", site->signal);
    if (site->root >= 0 && used < bytes)
        used +=
            (size_t)snprintf(text + used, bytes - used, ", with rank %d", site->root);
    if (site->dtype[0] && used < bytes)
        snprintf(text + used, bytes - used, " (%s%s%s%s%s)", site->dtype,
                 site->reduction[0] ? " " : "", site->reduction,
                 site->algorithm[0] ? ", " : "", site->algorithm);
}

/* ---- Rows --------------------------------------------------------------------------------- */

static unsigned state_of(const struct symm_sight_call *call)
{
    return (unsigned)(call->word & 0xff);
}

/* Whether a uid is the team's; team NULL: whether it is no team's that the page still has. */
static bool is_in(const struct symm_sight_page *page,
                  const struct symm_sight_team *team, uint32_t team_uid)
{
    return team ? team->uid == team_uid : !symm__sight_team_of(page, team_uid);
}

static bool of_team(const struct symm_sight_page *page,
                    const struct symm_sight_call *call,
                    const struct symm_sight_team *team)
{
    const struct symm_sight_site *site = symm__sight_site(page, call->site);

    return call->word != 0 && site && is_in(page, team, site->team_uid);
}

/* The calls of a team that run, newest first. Returns their number, at most `most`. */
static int find_running(const struct symm_sight_page *page,
                        const struct symm_sight_team *team,
                        const struct symm_sight_call **running, int most)
{
    const struct symm_sight_call *list[SYMM_SIGHT_CALLS];
    const int all = symm__sight_calls(page, list);
    int count = 0;

    for (int i = 0; i < all && count < most; i++)
        if (state_of(list[i]) == SYMM_SIGHT_RUNNING && of_team(page, list[i], team))
            running[count++] = list[i];
    return count;
}

/* What a team without a running call did last: the newest launched, else the newest ended.
 * *queued: how many wait on streams. */
static const struct symm_sight_call *find_last(const struct symm_sight_page *page,
                                               const struct symm_sight_team *team,
                                               int *queued)
{
    const struct symm_sight_call *best = NULL;

    *queued = 0;
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const struct symm_sight_call *call = &page->call[i];

        if (!of_team(page, call, team))
            continue;
        if (state_of(call) == SYMM_SIGHT_QUEUED)
            ++*queued;
        else if (!best || call->word > best->word)
            best = call;
    }
    return best;
}

/* The wait of a call; each is given once. site NULL: any of the team. */
static const struct symm_sight_wait *take_wait(const struct symm_sight_page *page,
                                               const struct symm_sight_team *team,
                                               const struct symm_sight_site *site,
                                               bool taken[SYMM_SIGHT_WAITS])
{
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++) {
        const struct symm_sight_wait *wait = &page->wait[i];

        if (wait->since == 0 || taken[i] || !is_in(page, team, wait->team_uid))
            continue;
        if (site &&
            (strcmp(site->op, wait->op) != 0 || strcmp(site->name, wait->name) != 0 ||
             (site->channel != wait->channel && wait->channel != SYMM_SIGHT_CONTROL)))
            continue;
        taken[i] = true;
        return wait;
    }
    return NULL;
}

/* "rank 2", "ranks 0 2 5": world ranks, with their number if not all are listed. */
static void awaited_text(const struct symm_sight_wait *wait, char *text, size_t bytes)
{
    const int listed =
        wait->missing < SYMM_SIGHT_AWAITED ? wait->missing : SYMM_SIGHT_AWAITED;
    size_t used = (size_t)snprintf(text, bytes, "%s",
                                   wait->missing < 0    ? "not known"
                                   : wait->missing == 0 ? "-"
                                   : wait->missing == 1 ? "rank"
                                                        : "ranks");

    for (int i = 0; i < listed && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, " %d", wait->awaited[i]);
    if (wait->missing > listed && used < bytes)
        snprintf(text + used, bytes - used, " ... (%d)", wait->missing);
}

/* Since when the row's call lasts, where that is known. */
static uint64_t lasted_ns(const struct row *row)
{
    const struct symm_sight_rank *rank = row->rank;
    uint64_t since = 0;

    if (row->call && row->call->begin != 0 &&
        (state_of(row->call) == SYMM_SIGHT_RUNNING ||
         state_of(row->call) == SYMM_SIGHT_LAUNCHED))
        since = symm__sight_ns(rank->page, &rank->now, row->call->begin);
    else if (row->wait)
        since = row->wait->since;
    return since != 0 && since < rank->now.ns ? rank->now.ns - since : 0;
}

/* On CUDA: how far the device is on the call's channel. */
static void progress_text(const struct row *row, const struct symm_sight_site *site,
                          char *text, size_t bytes)
{
    for (int i = 0; i < SYMM_SIGHT_PROGRESS; i++) {
        const struct symm_sight_progress *progress = &row->rank->page->progress[i];

        if (progress->team_uid != 0 && progress->team_uid == site->team_uid &&
            progress->channel == site->channel) {
            snprintf(text, bytes, ", the device has ended call %u", progress->ended);
            return;
        }
    }
}

static void call_text(const struct row *row, char *text, size_t bytes)
{
    const struct symm_sight_site *site =
        row->call ? symm__sight_site(row->rank->page, row->call->site) : NULL;
    const unsigned state = row->call ? state_of(row->call) : 0;
    size_t used;

    if (!site) {
        snprintf(text, bytes, "%s%s%s%s%s", row->wait ? "waiting: " : "",
                 row->wait ? row->wait->op : "no call yet",
                 row->wait && row->wait->name[0] ? " '" : "",
                 row->wait ? row->wait->name : "",
                 row->wait && row->wait->name[0] ? "'" : "");
        return;
    }
    used = (size_t)snprintf(text, bytes, "%s ",
                            state == SYMM_SIGHT_DONE ? "after"
                                                     : symm__sight_state_name(state));
    site_text(site, text + used, bytes - used);
    used = strlen(text);
    if (site->channel == SYMM_SIGHT_PAIRS && row->call->epoch != 0 && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, ", number %u",
                                 row->call->epoch);
    if (row->queued > 0 && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, ", %d queued", row->queued);
    if (used < bytes)
        progress_text(row, site, text + used, bytes - used);
}

static void print_row(FILE *file, const struct row *row, double rate, bool first)
{
    const struct symm_sight_rank *rank = row->rank;
    char call[400], team[100], awaited[256] = "-", span[32] = "-", calls[32] = "-";
    const uint64_t lasted = lasted_ns(row);
    const bool stopped = symm__sight_is_stopped(rank);

    if (row->wait)
        awaited_text(row->wait, awaited, sizeof(awaited));
    if (lasted > 0)
        span_text(lasted, span, sizeof(span));
    if (rate >= 0)
        snprintf(calls, sizeof(calls), "%.0f", rate);
    call_text(row, call, sizeof(call));
    symm__top_team(rank->page, row->team, team, sizeof(team));
    if (first)
        fprintf(file, "%4d %8d %-13s %9s", rank->page->rank, rank->pid,
                rank->orphan           ? "ENDED"
                : stopped              ? "STOPPED"
                : rank->page->finished ? "finalizing"
                                       : symm__sight_process_state(rank->state),
                calls);
    else
        fprintf(file, "%4s %8s %-13s %9s", "", "", "", "");
    fprintf(file, " %8s  %-14s %-10s %s\n", span, awaited, team, call);
}

/* The rows of a rank in one team. `printed`: of the rank before. Returns it with those added. */
static int show_team(FILE *file, const struct symm_sight_rank *rank,
                     const struct symm_sight_team *team, double rate, bool even_idle,
                     int printed, bool taken[SYMM_SIGHT_WAITS])
{
    const struct symm_sight_page *page = rank->page;
    const struct symm_sight_call *running[RUNNING_SHOWN];
    const int count = find_running(page, team, running, RUNNING_SHOWN);
    struct row row = {.rank = rank, .team = team};
    const struct symm_sight_call *last = find_last(page, team, &row.queued);
    const int before = printed;

    for (int i = 0; i < count; i++) {
        row.call = running[i];
        row.wait =
            take_wait(page, team, symm__sight_site(page, running[i]->site), taken);
        print_row(file, &row, rate, printed++ == 0);
        row.queued = 0;
    }
    row.call = NULL;
    while ((row.wait = take_wait(page, team, NULL, taken)))
        print_row(file, &row, rate, printed++ == 0);
    row.call = last;
    if (printed == before && (even_idle || row.queued > 0 ||
                              (last && state_of(last) == SYMM_SIGHT_LAUNCHED)))
        print_row(file, &row, rate, printed++ == 0);
    return printed;
}

static void show_rank(FILE *file, const struct symm_sight_rank *rank, double rate,
                      bool all)
{
    bool taken[SYMM_SIGHT_WAITS] = {false};
    int printed = 0;

    for (int i = 0; i < SYMM_SIGHT_TEAMS; i++)
        if (rank->page->team[i].uid != 0)
            printed =
                show_team(file, rank, &rank->page->team[i], rate, all, printed, taken);
    /* What is left waits in no team, as at the start of the job. */
    printed = show_team(file, rank, NULL, rate, false, printed, taken);
    if (printed == 0)
        (void)show_team(file, rank,
                        rank->page->team[0].uid != 0 ? &rank->page->team[0] : NULL,
                        rate, true, 0, taken);
}

/* ---- Jobs --------------------------------------------------------------------------------- */

/* The sentences that ranks of the job failed with, each once, with the first rank that has it. */
static void show_failures(FILE *file, const struct symm_sight_rank *first, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < SYMM_SIGHT_FAILURES; k++) {
            const struct symm_sight_failure *failure = &first[i].page->failure[k];
            bool told = failure->status == 0;

            for (int j = 0; j <= i && !told; j++)
                for (int l = 0; l < (j < i ? SYMM_SIGHT_FAILURES : k) && !told; l++)
                    told = first[j].page->failure[l].status != 0 &&
                           strcmp(first[j].page->failure[l].sentence,
                                  failure->sentence) == 0;
            if (!told)
                fprintf(file, "rank %d failed: %s\n", first[i].page->rank,
                        failure->sentence);
        }
}

static void show_late(FILE *file, const struct top_history *history, const char *job)
{
    bool headed = false;

    for (int i = 0; i < history->lates; i++) {
        const struct top_late *late = &history->late[i];
        const int listed = late->ranks < 4 ? late->ranks : 4;
        char span[32], ranks[96] = "nobody now", total[32];

        if (strcmp(late->job, job) != 0)
            continue;
        if (!headed)
            fprintf(file, "who is waited for, the longest first\n");
        headed = true;
        if (listed > 0)
            symm__ranks_text(late->first, listed, ranks, sizeof(ranks));
        if (late->ranks > listed)
            snprintf(ranks + strlen(ranks), sizeof(ranks) - strlen(ranks), " and more");
        span_text((uint64_t)(late->seconds * 1e9), total, sizeof(total));
        span_text(late->longest_ns, span, sizeof(span));
        if (late->awaited >= 0)
            fprintf(file, "  rank %d", late->awaited);
        else
            fprintf(file, "  not known");
        fprintf(file, "%s at %s%s%s%s (%s): by %s",
                late->waits     ? ", which waits itself,"
                : late->stopped ? ", which is stopped,"
                                : "",
                late->op, late->name[0] ? " '" : "", late->name,
                late->name[0] ? "'" : "", late->team, ranks);
        if (late->ranks > 0)
            fprintf(file, ", for %s", span);
        fprintf(file, "; %s in all\n", total);
    }
}

static void show_job(FILE *file, const struct symm_sight_rank *first, int count,
                     const struct top_history *before,
                     const struct top_history *history, bool all)
{
    const struct symm_sight_page *page = first->page;

    fprintf(file, "\njob %s: %d of %d ranks are here, backend %s, libsymm %s\n",
            page->job, count, page->size, page->backend, page->version);
    fprintf(file, "%4s %8s %-13s %9s %8s  %-14s %-10s %s\n", "RANK", "PID", "PROCESS",
            "CALLS/S", "FOR", "WAITS FOR", "TEAM", "CALL");
    for (int i = 0; i < count; i++)
        show_rank(file, &first[i], symm__top_rate(before, &first[i]), all);
    show_late(file, history, page->job);
    show_failures(file, first, count);
}

static int jobs_of(const struct symm_sight_ranks *ranks)
{
    int jobs = 0;

    for (int i = 0; i < ranks->count; i++)
        jobs += i == 0 ||
                strcmp(ranks->rank[i].page->job, ranks->rank[i - 1].page->job) != 0;
    return jobs;
}

void symm__top_show(FILE *file, const struct symm_sight_ranks *ranks,
                    struct top_history *history, bool all)
{
    const int jobs = jobs_of(ranks);
    struct top_history before = *history; /* its rates are those of the last look */
    int end;

    history->rate = NULL;
    symm__top_remember(history, ranks);
    fprintf(file, "symm-top: %d rank%s of %d job%s on this host\n", ranks->count,
            ranks->count == 1 ? "" : "s", jobs, jobs == 1 ? "" : "s");
    symm__sight_tell_unread(ranks, file);
    for (int i = 0; i < ranks->count; i = end) {
        for (end = i + 1; end < ranks->count && strcmp(ranks->rank[end].page->job,
                                                       ranks->rank[i].page->job) == 0;)
            end++;
        show_job(file, &ranks->rank[i], end - i, &before, history, all);
    }
    before.lates = 0;
    symm__top_forget(&before);
}
