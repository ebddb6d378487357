/* SPDX-License-Identifier: MIT */
/*
 * run.c - calls of a team that its engine serves: what the chooser gets, a
 * collective as a kernel of the host backend, and what a failure makes of the team.
 */
#include <stdio.h>

#include "core/failure.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/status.h"

#define LOOK_SECONDS   0.001
#define REASON_SECONDS 0.25 /* a member that knows the reason reports it within this time */

static void await_reason(symm_team *team, symm_status status)
{
    double until = symm__now() + REASON_SECONDS;
    char sentence[SYMM_ERROR_BYTES];

    if (!team->hierarchy || status == SYMM_ERR_TIMEOUT)
        return;
    snprintf(sentence, sizeof(sentence), "%s", symm_last_error());
    while (symm__now() < until && symm__engine_stop(team) == SYMM_OK)
        symm__sleep(LOOK_SECONDS);
    if (symm__team_failed(team) == SYMM_OK)
        (void)symm__fail_quiet(status, sentence);
}

struct symm_engine_request symm__engine_request(const struct symm_args *args)
{
    const enum symm_kind kind = symm__kind_moves((enum symm_kind)args->site.kind);

    return (struct symm_engine_request){.what = SYMM_ENGINE_COLLECTIVE,
                                        .kind = kind,
                                        .in = args->in,
                                        .out = args->out,
                                        .count = args->count,
                                        .dtype = (symm_dtype)args->site.dtype,
                                        .op = (symm_op)args->site.op,
                                        .root = args->root,
                                        .peer = -1};
}

void symm__engine_describe(const symm_team *team, int root,
                           struct symm_select_query *query)
{
    const struct symm_engine_use *use = team->ctx->engine;
    const struct symm_engine_request request = {.what = SYMM_ENGINE_COLLECTIVE,
                                                .kind = symm__kind_moves(query->kind),
                                                .count = 1,
                                                .dtype = query->dtype,
                                                .op = query->op,
                                                .root = root,
                                                .peer = -1};

    query->engine = team->engine != NULL;
    if (!query->engine)
        return;
    query->engine_objection = use->ops->objection(use->engine, &request);
    query->engine_deviation = use->ops->deviation(use->engine, &request);
}

/* Statuses that a record may have: what peers take over. */
static bool concerns_peers(symm_status status)
{
    return status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_PEER_DEAD ||
           status == SYMM_ERR_MISMATCH || status == SYMM_ERR_DAMAGED ||
           status == SYMM_ERR_ABORTED;
}

symm_status symm__engine_failed(symm_team *team, symm_status status, const char *what,
                                const char *site)
{
    char sentence[SYMM_ERROR_BYTES];

    status = symm__engine_reported(team->ctx, status, "");
    snprintf(sentence, sizeof(sentence), "%s", symm_last_error());
    /* A peer's death, or a peer's record, says more than the engine's own error. */
    if (symm__engine_stop(team) == SYMM_OK)
        status =
            symm__team_fail(team, concerns_peers(status) ? status : SYMM_ERR_ABORTED,
                            "rank %d: %s%s%s%s failed in %s: %s", team->ctx->rank, what,
                            *site ? " at site '" : "", site, *site ? "'" : "",
                            team->ctx->engine->version, sentence);
    symm__engine_team_abort(team);
    return symm__team_failed(team);
}

symm_status symm__engine_run_host(symm_team *team, struct symm_engine_comm *comm,
                                  const struct symm_engine_request *requests, int count,
                                  double timeout, const char *what, const char *site)
{
    const struct symm_engine_wait wait = {
        .until = symm__now() + timeout, .stop = symm__engine_stop, .stop_arg = team};
    symm_status status = symm__team_failed(team);

    if (status == SYMM_OK) {
        status = team->ctx->engine->ops->run(comm, requests, count, NULL, &wait);
        if (status != SYMM_OK) {
            await_reason(team, status);
            status = symm__engine_failed(team, status, what, site);
        }
    }
    return status;
}

symm_status symm__host_engine(struct symm_state *state, const struct symm_args *args)
{
    const struct symm_team_channel *channel = state->owner;
    const struct symm_engine_request request = symm__engine_request(args);
    symm_status status =
        symm__host_kernel(SYMM_KIND_BARRIER, SYMM_ALGORITHM_COPY_IN, 0)(state, args);

    if (status != SYMM_OK)
        return status;
    return symm__engine_run_host(channel->team, channel->team->engine->comm, &request,
                                 1, channel->timeout, symm__kind_name(request.kind),
                                 args->site.name);
}
