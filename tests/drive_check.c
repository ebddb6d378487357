/* SPDX-License-Identifier: MIT */
/*
 * drive_check.c - what must be true of each call in a job of test_driver_simulate.c: it ends in
 * time, and fails only where there was a fault, whose rank it names.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive.h"

/* Beside what its peers' fault allows: delays by the seed, the reason of a failure. */
#define SLACK 1.3

double drive_allowed(const struct drive *job)
{
    switch (job->fault) {
    case LATE_BRIEFLY:
        return job->late + SLACK;
    case LATE_LONG:
        return (sim_rank() == job->culprit ? job->late : job->queue_timeout) +
               job->timeout + SLACK;
    case STOPPED_BRIEFLY:
        return job->sim.stop_seconds[job->culprit] + SLACK;
    case ABSENT:
    case STOPPED_LONG:
        return job->timeout + SLACK;
    default:
        return SLACK;
    }
}

/* Has the job's fault happened? */
static bool has_happened(const struct drive *job)
{
    switch (job->fault) {
    case KILLED:
        return sim_is_dead(job->culprit);
    case STOPPED_LONG:
        return sim_stopped(job->culprit) > 0;
    case LATE_LONG:
    case ABSENT:
        return job->begun_at > 0;
    case LEAVES:
        return job->rank[job->culprit].left_at > 0;
    default:
        return false;
    }
}

/* Does the sentence name the rank, as "rank 3" or in "ranks 1, 3"? */
static bool names(const char *sentence, int rank)
{
    for (const char *c = strstr(sentence, "rank "); c; c = strstr(c + 1, "rank "))
        if (strtol(c + 5, NULL, 10) == rank)
            return true;
    return false;
}

symm_status drive_judge(struct drive *job, const char *what, symm_status status,
                        double begun, double stopped, double allowed,
                        const char *sentence)
{
    const int me = sim_rank();
    const double spent = sim_now() - begun - (sim_stopped(me) - stopped);
    char own[SYMM_ERROR_BYTES];

    sim_note("%s: %s in %.6f s%s%s", what, symm_status_name(status), spent,
             status == SYMM_OK ? "" : ": ", status == SYMM_OK ? "" : sentence);
    if (spent - allowed > job->longest)
        job->longest = spent - allowed;
    if (spent > allowed)
        sim_blame(&job->blame, "%s took %.3f s, of %.3f allowed (%s)", what, spent,
                  allowed, status == SYMM_OK ? "SYMM_OK" : sentence);
    if (status == SYMM_OK)
        return status;
    if (!has_happened(job))
        sim_blame(&job->blame, "%s fails without a fault: %s", what, sentence);
    else if (me != job->culprit &&
             !names(job->fault == KILLED ? sim_own_words(sentence, own) : sentence,
                    job->culprit) &&
             !strstr(sentence,
                     "has not opened the job's bootstrap")) /* it gave up before */
        sim_blame(&job->blame, "%s does not name rank %d: %s", what, job->culprit,
                  sentence);
    if (strstr(sentence, "is not complete after") || strstr(sentence, "left no record"))
        sim_blame(&job->blame, "%s does not tell why: %s", what, sentence);
    return status;
}
