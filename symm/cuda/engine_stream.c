/* SPDX-License-Identifier: MIT */
/*
 * engine_stream.c - an engine's operations on a stream.
 *
 * A call returns when they are queued. They lie between two events, which the watchdog
 * (watchdog.c) polls. An operation that is past its deadline, or whose team has failed, is ended
 * by aborting the team's communicators. A captured operation leaves no event and has no deadline;
 * the kernel before it has one.
 *
 * The deadline counts from the moment the stream reaches the operation. All ranks of a
 * collective on one host have arrived by then: the kernel that announced it waits for them. In one
 * over hosts, and in sends and receives, a rank may never come that has finalized its context.
 *
 * The engine may block, and not return. So the watchdog gets a call, captured or not, before the
 * call enters the engine, and ends it in the same way; the time in the engine has the same limit.
 * The calling thread holds no lock meanwhile that the watchdog or an abort takes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/failure.h"
#include "cuda/launcher.h"
#include "cuda/stream_order.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/status.h"

symm_status symm__cuda_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                              void *arg)
{
    struct symm_cuda_scope scope;
    symm_status status = SYMM_OK;

    if (last && !symm__cuda_enter_last(ctx->backend, &scope))
        return symm__fail(SYMM_ERR_FORKED, "the device belongs to another process");
    if (!last)
        status = symm__cuda_enter(ctx->backend, &scope);
    if (status != SYMM_OK)
        return status;
    status = fn(arg);
    symm__cuda_leave(&scope);
    return status;
}

/* In a scope. */
static symm_status run(const struct symm_engine_call *call, CUstream stream)
{
    symm_team *team = call->team;
    struct symm_cuda_launcher *launcher = team->ctx->launcher;
    const struct symm_engine_wait bound = {.until = symm__now() + call->timeout,
                                           .stop = symm__engine_stop,
                                           .stop_arg = team};
    struct symm_cuda_wait about = {.team = team,
                                   .timeout = call->timeout,
                                   .comm = call->comm,
                                   .awaited = symm__engine_awaited(call),
                                   .peer = -1,
                                   .signal = -1};
    struct symm_cuda_wait *wait = NULL;
    symm_status status;

    snprintf(about.what, sizeof(about.what), "%s", call->what);
    snprintf(about.site, sizeof(about.site), "%s", call->site);
    __atomic_store_n(&team->cuda->used, 1, __ATOMIC_RELAXED);
    status = symm__cuda_wait_begin(launcher, stream, &about, &wait);
    if (status != SYMM_OK)
        return status;
    status = team->ctx->engine->ops->run(call->comm, call->requests, call->count,
                                         stream, &bound);
    return symm__cuda_wait_end(launcher, stream, wait, status);
}

/* The team that runs the kernels of a collective: for one over several hosts its local team. */
static symm_team *local_of(symm_team *team)
{
    return team->hierarchy && team->hierarchy->local_team ? team->hierarchy->local_team
                                                          : team;
}

symm_status symm__cuda_engine_run(const struct symm_engine_call *call, void *stream,
                                  symm_work **handle)
{
    struct symm_cuda_launcher *launcher = call->team->ctx->launcher;
    struct symm_cuda_work *work = NULL;
    struct symm_cuda_follow follow;
    struct symm_cuda_scope scope;
    symm_status status = SYMM_OK;

    /* The handle has no result word: the team's state shows how the operation ended. */
    if (handle)
        status = symm__cuda_work_begin(call->team, stream, &work, NULL);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_follow_relay(call->team, local_of(call->team), call->site,
                                     stream, &follow);
    if (call->captured)
        *call->captured = follow.captured;
    if (status == SYMM_OK)
        status = symm__cuda_enter(launcher->backend, &scope);
    if (status == SYMM_OK) {
        status = run(call, (CUstream)stream);
        symm__cuda_leave(&scope);
    }
    symm__cuda_follow_end(&follow, status == SYMM_OK);
    if (status != SYMM_OK) {
        status = symm__engine_failed(call->team, status, call->what, call->site);
        symm__cuda_abort(call->team, status);
    }
    return work ? symm__cuda_work_end_call(work, status, handle, call->what, call->site,
                                           follow.captured)
                : status;
}

/* ---- The watchdog's part: with its lock and a scope ------------------------------- */

void symm__cuda_engine_abort(symm_team *team)
{
    symm__cuda_abort(team, symm__team_failed(team));
    if (team->engine)
        symm__cuda_tell(team->cuda);
    symm__engine_team_abort(team);
}

/* Does NCCL take more of the device than symm__engine_fits_beside leaves it? Then its operation and
 * a kernel of a peer may wait for each other. */
static const char *crowds(const symm_ctx *ctx, char *text, size_t bytes)
{
    const char *most = secure_getenv("NCCL_MAX_CTAS");

    text[0] = '\0';
    if (most && symm__engine_fits_beside(ctx) && atoi(most) > ctx->engine->ops->grid)
        snprintf(text, bytes,
                 "NCCL_MAX_CTAS=%.12s leaves no room beside NCCL, unset it (kernels of "
                 "calls over hosts count on at most %d); ",
                 most, ctx->engine->ops->grid);
    return text;
}

symm_status symm__cuda_engine_late(const struct symm_cuda_wait *wait)
{
    const symm_ctx *ctx = wait->team->ctx;
    char text[160], stream[48];

    (void)symm__cuda_stream_text(wait->stream, stream, sizeof(stream));
    if (wait->inside)
        return symm__team_fail(
            wait->team, SYMM_ERR_TIMEOUT,
            "%s%s%s%s has not returned from %s on rank %d, %s, within %g "
            "s; its communicator was aborted; if a connection or the "
            "device is only slow, raise the timeout (SYMM_TIMEOUT)",
            wait->what, *wait->site ? " at site '" : "", wait->site,
            *wait->site ? "'" : "", ctx->engine->version, ctx->rank, stream,
            wait->timeout);
    return symm__team_fail(
        wait->team, SYMM_ERR_TIMEOUT,
        "%s%s%s%s was begun on rank %d, %s, and is not complete "
        "within %g s in %s; its communicator was aborted; %sif it is "
        "only slow, raise the timeout (SYMM_TIMEOUT)",
        wait->what, *wait->site ? " at site '" : "", wait->site, *wait->site ? "'" : "",
        ctx->rank, stream, wait->timeout, ctx->engine->version,
        crowds(ctx, text, sizeof(text)));
}

symm_status symm__cuda_engine_poll(struct symm_cuda_wait *wait)
{
    const struct symm_engine_ops *ops = wait->team->ctx->engine->ops;
    symm_status status = ops->comm_error(wait->comm);

    if (status == SYMM_OK)
        return symm__engine_left(wait->team, &wait->awaited, wait->what);
    status = symm__engine_reported(wait->team->ctx, status, "");
    return symm__engine_failed(wait->team, status, wait->what, wait->site);
}
