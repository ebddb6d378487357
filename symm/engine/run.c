/* SPDX-License-Identifier: MIT */
/*
 * run.c - calls of a team that its engine serves: what the selection reads, a collective as a
 * kernel of the host backend, and how a failure fails the team.
 */
#include <stdio.h>
#include <string.h>

#include "core/control_wait.h"
#include "core/device_ops.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/status.h"

#define LOOK_SECONDS   0.001
#define REASON_SECONDS                                                                 \
    1.0 /* a member that knows the reason reports it within this time */
#define LEFT_SECONDS 2.0    /* for what a member sent before it finalized */

static void await_reason(symm_team *team, symm_status status)
{
    double until = symm__now() + REASON_SECONDS;
    char sentence[SYMM_ERROR_BYTES];

    if (!team->far || status == SYMM_ERR_TIMEOUT)
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

struct symm_engine_awaited symm__engine_awaited(const struct symm_engine_call *call)
{
    struct symm_engine_awaited awaited = {.members = call->members,
                                          .member_count = call->member_count};

    for (; awaited.peer_count < call->peer_count &&
           awaited.peer_count < SYMM_ENGINE_PEERS;
         awaited.peer_count++)
        awaited.peers[awaited.peer_count] = call->peers[awaited.peer_count];
    return awaited;
}

/* One of them that has finalized its context; -1: none has. */
static int find_left(const symm_team *team, const struct symm_engine_awaited *awaited)
{
    const struct symm_oob *oob = &team->ctx->oob;

    for (int i = 0; i < awaited->member_count; i++) {
        int rank = team->world_rank[awaited->members ? awaited->members[i] : i];

        if (symm__oob_left(oob, rank))
            return rank;
    }
    for (int i = 0; i < awaited->peer_count; i++)
        if (symm__oob_left(oob, awaited->peers[i]))
            return awaited->peers[i];
    return -1;
}

/* A rank may finalize once its own part is done, while what it sent is still on its way: so the
 * operation may still end for some time after that. */
symm_status symm__engine_left(symm_team *team, struct symm_engine_awaited *awaited,
                              const char *what)
{
    const symm_ctx *ctx = team->ctx;
    const int rank = find_left(team, awaited);
    const double now = symm__now();
    char earlier[SYMM_EARLIER_TEXT_BYTES];
    bool far;

    if (rank < 0)
        return SYMM_OK;
    if (awaited->left_at == 0)
        awaited->left_at = now;
    if (now - awaited->left_at < LEFT_SECONDS)
        return SYMM_OK;
    far = symm__is_far(ctx, rank);
    return symm__team_fail(
        team, SYMM_ERR_PEER_DEAD,
        "rank %d%s%s has finalized its context while rank %d waited for it in %s%s",
        rank, far ? " on host " : "", far ? symm__host_of_rank(ctx, rank) : "",
        ctx->rank, what, symm__earlier_text(ctx, rank, earlier));
}

/* A call that waits in the engine. */
struct waiting {
    const struct symm_engine_call *call;
    struct symm_control_wait seen;
    struct symm_engine_awaited awaited;
    double looked;
};

/* The wait's `stop`. */
static symm_status stop(void *arg)
{
    struct waiting *waiting = arg;
    const struct symm_engine_call *call = waiting->call;
    symm_status status = symm__engine_stop(call->team);
    double now = symm__now();

    if (status != SYMM_OK || now - waiting->looked < LOOK_SECONDS)
        return status;
    waiting->looked = now;
    symm__control_wait_for(&waiting->seen, call->peers,
                           call->peer_count > 0 ? call->peer_count : -1);
    return symm__engine_left(call->team, &waiting->awaited, call->what);
}

/* "recv" of "symm_recv with rank 3": the name that tools show. */
static const char *operation(const char *what, char *op, size_t bytes)
{
    if (strncmp(what, "symm_", 5) == 0)
        what += 5;
    snprintf(op, bytes, "%.*s", (int)strcspn(what, " "), what);
    return op;
}

symm_status symm__engine_run_host(const struct symm_engine_call *call)
{
    symm_team *team = call->team;
    char op[24];
    struct waiting waiting = {
        .call = call,
        .awaited = symm__engine_awaited(call),
        .seen = symm__control_wait(team->ctx, team->uid,
                                   operation(call->what, op, sizeof(op)), call->site)};
    const struct symm_engine_wait wait = {
        .until = symm__now() + call->timeout, .stop = stop, .stop_arg = &waiting};
    symm_status status = symm__team_failed(team);

    waiting.seen.what.channel = call->peer_count > 0 ? SYMM_SIGHT_PAIRS : 0;
    waiting.seen.step = call->step;
    if (status == SYMM_OK) {
        status = team->ctx->engine->ops->run(call->comm, call->requests, call->count,
                                             NULL, &wait);
        symm__control_wait_end(&waiting.seen);
        if (status != SYMM_OK) {
            await_reason(team, status);
            status = symm__engine_failed(team, status, call->what, call->site);
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
    return symm__engine_run_host(
        &(struct symm_engine_call){.team = channel->team,
                                   .comm = channel->team->engine->comm,
                                   .requests = &request,
                                   .count = 1,
                                   .timeout = channel->timeout,
                                   .what = symm__kind_name(request.kind),
                                   .site = args->site.name});
}
