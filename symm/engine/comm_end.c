/* SPDX-License-Identifier: MIT */
/* comm_end.c - see comm_end.h. */
#include "engine/comm_end.h"

#include <stdlib.h>

#include "core/team.h"
#include "engine/helper.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"

#define END_SECONDS   2.0 /* for the peers to end the communicator, too */
#define LEAST_SECONDS 0.1 /* for each abort, however long the others have taken */

/* Ends a communicator: an abort, or the end with its peers. */
struct end_job {
    struct symm_helper_job job;
    const struct symm_engine_ops *ops;
    struct symm_engine_comm *comm;
    double until;
};

static symm_status run_abort(struct symm_helper_job *job)
{
    const struct end_job *end = (const struct end_job *)job;

    end->ops->comm_abort(end->comm);
    return SYMM_OK;
}

static symm_status run_finalize(struct symm_helper_job *job)
{
    const struct end_job *end = (const struct end_job *)job;

    return end->ops->comm_finalize(end->comm, end->until);
}

/* Starts ending a communicator; NULL: that has failed, or is done already. */
static struct end_job *end_start(const symm_team *team, struct symm_engine_comm *comm,
                                 symm_status (*run)(struct symm_helper_job *),
                                 double until, struct symm_helper **helper)
{
    struct end_job *end = calloc(1, sizeof(*end));

    if (!end)
        return NULL;
    *end = (struct end_job){
        .job.run = run, .ops = team->ctx->engine->ops, .comm = comm, .until = until};
    if (symm__helper_start(team->ctx, &end->job, helper) == SYMM_OK)
        return end;
    free(end);
    return NULL;
}

/* False: a thread is left that may still use the communicator. */
static bool end_wait(const symm_team *team, struct end_job *end,
                     struct symm_helper *helper, double until)
{
    const struct symm_engine_wait wait = {.until = until};
    symm_status status;

    (void)symm__helper_wait(helper, &wait, &status);
    if (!symm__helper_end(team->ctx, helper))
        return false;
    free(end);
    return true;
}

struct ending {
    const struct symm_engine_ops *ops;
    struct symm_engine_comm *comm;
};

static symm_status abort_here(void *arg)
{
    const struct ending *ending = arg;

    ending->ops->comm_abort(ending->comm);
    return SYMM_OK;
}

static symm_status destroy_here(void *arg)
{
    const struct ending *ending = arg;

    ending->ops->comm_destroy(ending->comm);
    return SYMM_OK;
}

static void end_here(const symm_team *team, struct symm_engine_comm *comm,
                     symm_status (*fn)(void *arg))
{
    struct ending ending = {team->ctx->engine->ops, comm};

    if (symm__engine_within(team->ctx, true, fn, &ending) != SYMM_OK)
        symm__log(SYMM_LOG_DEBUG, "a communicator is left: %s", symm_last_error());
}

bool symm__comm_abort(const symm_team *team, struct symm_engine_comm *comm,
                      double until)
{
    struct symm_helper *helper = NULL;
    struct end_job *end;
    double least = symm__now() + LEAST_SECONDS;

    if (!comm)
        return true;
    end = team->ctx->engine->helpers ? end_start(team, comm, run_abort, until, &helper)
                                     : NULL;
    if (!end) {
        end_here(team, comm, abort_here);
        return true;
    }
    if (end_wait(team, end, helper, until > least ? until : least))
        return true;
    symm__log(SYMM_LOG_WARN,
              "rank %d: %s has not aborted a communicator within %g s; the thread that "
              "does so is left behind",
              team->ctx->rank, team->ctx->engine->version, SYMM_ABORT_SECONDS);
    return false;
}

void symm__comm_drop(const symm_team *team, struct symm_engine_comm *comm)
{
    if (comm && symm__comm_abort(team, comm, symm__now() + SYMM_ABORT_SECONDS))
        end_here(team, comm, destroy_here);
}

/* Ends the communicator with the peers or, if they do not come in time, by an abort. False: as
 * symm__comm_abort. */
static bool comm_finalize(const symm_team *team, struct symm_engine_comm *comm)
{
    const struct symm_engine_wait wait = {.until = symm__now() + END_SECONDS};
    struct symm_helper *helper = NULL;
    struct end_job *end = end_start(team, comm, run_finalize, wait.until, &helper);
    symm_status status;
    bool ended;

    if (!end)
        return symm__comm_abort(team, comm, symm__now() + SYMM_ABORT_SECONDS);
    if (symm__helper_wait(helper, &wait, &status) && end->job.status == SYMM_OK)
        return end_wait(team, end, helper, 0);
    ended = symm__comm_abort(team, comm, symm__now() + SYMM_ABORT_SECONDS);
    return end_wait(team, end, helper, symm__now() + SYMM_ABORT_SECONDS) && ended;
}

void symm__comm_close(struct symm_team_engine *te, struct symm_engine_comm *comm)
{
    const struct symm_engine_ops *ops = te->team->ctx->engine->ops;

    if (!comm)
        return;
    /* relaxed: flags of this thread, or of the watchdog, which does not see the team any more */
    if (ops->comm_finalize && !__atomic_load_n(&te->ended, __ATOMIC_RELAXED) &&
        !comm_finalize(te->team, comm))
        __atomic_store_n(&te->left, true, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&te->left, __ATOMIC_RELAXED))
        end_here(te->team, comm, destroy_here);
}
