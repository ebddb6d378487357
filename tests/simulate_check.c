/* SPDX-License-Identifier: MIT */
/*
 * simulate_check.c - what must be true of each call in a job of test_host_simulate.c: it ends in
 * time, and its error names a rank at fault.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

/* Has the rank been on the other side of a cut? */
static bool was_cut_off(const struct job *job, int rank)
{
    const struct sim_config *sim = &job->sim;

    return job->cut && sim_now() >= sim->cut_at &&
           ((sim->cut_hosts >> sim->host_of[rank] ^
             sim->cut_hosts >> sim->host_of[sim_rank()]) &
            1);
}

/* A call may still fail after the end of a cut, when no rank is missing any more. */
static bool is_cut_now(const struct job *job)
{
    return job->cut && sim_now() < job->sim.cut_at + job->sim.cut_seconds;
}

static uint64_t faulty(const struct job *job)
{
    uint64_t bits = job->stops;

    for (int r = 0; r < job->ranks; r++)
        if (sim_is_dead(r) || was_cut_off(job, r) || sim_has_lacked(r))
            bits |= UINT64_C(1) << r;
    return bits;
}

static uint64_t ended(const struct job *job)
{
    uint64_t bits = 0;

    for (int r = 0; r < job->ranks; r++)
        bits |= (uint64_t)(job->outcome[r].ended || job->outcome[r].left_at > 0) << r;
    return bits;
}

/* Does the sentence name a host, all of whose ranks are such or have ended, or one if `any`? At the
 * start a host cannot be reached if the rank that listens there is gone. */
static bool names_host(const struct job *job, const char *sentence, uint64_t ranks,
                       bool any)
{
    const char *at = strstr(sentence, "host ");

    for (; at; at = strstr(at + 1, "host ")) {
        bool all = true, one = false;

        for (int r = 0; r < job->ranks; r++)
            if (job->host[r] == at[5]) {
                one = one || (ranks >> r & 1);
                all = all && ((ranks >> r & 1) || job->outcome[r].ended);
            }
        if ((all || any) && one)
            return true;
    }
    return false;
}

/* Does the sentence name such a rank, as "rank 3" or in "ranks 1, 3"? */
static bool names(const char *sentence, uint64_t ranks)
{
    for (const char *c = strstr(sentence, "rank"); c; c = strstr(c + 1, "rank")) {
        const char *n = c + 4 + (c[4] == 's');

        while (*n == ' ' || *n == ',' || strncmp(n, "and ", 4) == 0 ||
               (*n >= '0' && *n <= '9')) {
            if (*n >= '0' && *n <= '9') {
                const long r = strtol(n, (char **)(uintptr_t)&n, 10);

                if (r < 64 && (ranks >> r & 1))
                    return true;
                continue;
            }
            n += strncmp(n, "and ", 4) == 0 ? 4 : 1;
        }
    }
    return false;
}

/* Whether each error must name a rank at fault. Over hosts a wait in the engine or for a relay does
 * not know which rank is late, or has no memory; and who waits for one rank only names it, also if
 * that one waits in turn for another. */
static bool is_strict(const struct job *job)
{
    bool pairs = false;

    for (int i = 0; i < job->steps; i++)
        pairs = pairs || job->step[i] == SIGNAL || job->step[i] == SEND ||
                job->step[i] == CREATE;
    return !job->breaks && !job->cut && !(job->lacks && (job->hosts > 1 || pairs)) &&
           (job->stops == 0 || (job->hosts == 1 && !pairs));
}

/* Has the lowest rank of a host died, the host's relay and perhaps the root of an exchange? Then
 * some hosts may leave the exchange well, and others fail, and the ones wait for the others. */
static bool relay_died(const struct job *job)
{
    for (int r = 0; r < job->ranks && job->hosts > 1; r++)
        if (sim_is_dead(r) && (r == 0 || job->host[r] != job->host[r - 1]))
            return true;
    return false;
}

struct watch simulate_begin(const char *what)
{
    sim_note("calls %s", what);
    return (struct watch){sim_now(), sim_stopped(sim_rank())};
}

/* A rank that was killed is noticed long before a timeout: no call of the others waits for one. */
#define SOON 1.0

/* Does the last error name one of these ranks, or need it not? */
static bool is_named(const struct job *job, uint64_t ranks, bool starts)
{
    char own[SYMM_ERROR_BYTES];
    const char *error =
        job->stops ? symm_last_error() : sim_own_words(symm_last_error(), own);

    /* A rank that lacks memory in a part of the team tells that part alone. */
    return names(error, ranks) || names_host(job, error, ranks, starts) ||
           strstr(error, "the caller's allgather") ||
           (job->lacks && strstr(error, "has gone on to symm_team_shrink"));
}

/* Is the call's timeout no reason to end? Of a step that all ranks make together all are told
 * at once that one had no memory for it. Not told are ranks that it has not met when the job
 * starts, of a collective that it does not begin, and of a lack that lasts. */
static bool waits_for_lack(const struct job *job, const char *what)
{
    static const char *const steps[] = {"symm_init", "symm_team_split",
                                        "symm_rendezvous"};
    const char *error = symm_last_error();
    bool step = false, brief = false;

    for (int i = 0; i < 3; i++)
        step = step || strncmp(what, steps[i], strlen(steps[i])) == 0;
    for (int r = 0; r < job->ranks; r++)
        brief = brief || (job->sim.lack_at[r] > 0 && job->sim.lacks[r] <= 4);
    return step && brief && job->deaths == 0 && job->stops == 0 && !job->breaks &&
           !job->sim.cut_hosts && !strstr(error, "not joined") &&
           !strstr(error, "has not opened the job's bootstrap") &&
           !strstr(error, "is rank 0 not started");
}

symm_status simulate_judge(struct job *job, struct watch watch, const char *what,
                           symm_status status, double allowed)
{
    const int me = sim_rank();
    const double spent = sim_now() - watch.start - (sim_stopped(me) - watch.stopped);
    const uint64_t bad = faulty(job);
    const bool starts = strncmp(what, "symm_init", 9) == 0;
    const uint64_t named =
        starts || (job->stops && job->hosts > 1) || job->lacks ? bad | ended(job) : bad;

    if (!starts && job->stops == 0 && !job->breaks && !job->sim.cut_hosts &&
        !job->lacks && !relay_died(job))
        allowed = SOON;
    sim_note("%s: %s in %.6f s%s%s", what, symm_status_name(status), spent,
             status == SYMM_OK ? "" : ": ", status == SYMM_OK ? "" : symm_last_error());
    if (status == SYMM_ERR_TIMEOUT && waits_for_lack(job, what))
        sim_blame(&job->blame, "%s ends by its timeout, after %.3f s: %s", what, spent,
                  symm_last_error());
    if (spent > allowed)
        sim_blame(&job->blame, "%s took %.3f s, of %.3f allowed (%s)", what, spent,
                  allowed, status == SYMM_OK ? "SYMM_OK" : symm_last_error());
    if (status == SYMM_OK || ((job->stops | job->lacks) >> me & 1))
        return status;
    if (bad == 0)
        sim_blame(&job->blame, "%s fails without a fault: %s", what, symm_last_error());
    else if ((is_strict(job) ||
              (is_cut_now(job) &&
               (strstr(symm_last_error(), "hosts did not answer") ||
                strstr(symm_last_error(), "not heard from all hosts")))) &&
             !(starts && status == SYMM_ERR_TIMEOUT) && !is_named(job, named, starts))
        sim_blame(&job->blame, "%s names no rank at fault (%#" PRIx64 "): %s", what,
                  bad, symm_last_error());
    return status;
}

uint64_t simulate_members_of(symm_team *team)
{
    uint64_t members = 0;

    for (int m = 0; m < symm_team_size(team); m++)
        members |= UINT64_C(1) << symm_team_world_rank(team, m);
    return members;
}
