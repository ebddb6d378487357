/* SPDX-License-Identifier: MIT */
/*
 * hierarchical.c - collectives of a hierarchical team (hierarchical.h), as steps on each host and
 * between them.
 *
 *   all_reduce      rails: reduce_scatter on the host, all_reduce on the rail, all_gather on
 *                   the host; what does not divide by the host's ranks, and hosts of unequal
 *                   size: all_reduce on the host, then among leaders, broadcast on the host
 *   reduce_scatter  rails: one on the host for each host's blocks, then one on the rail
 *   all_gather      rails: one on the rail, then one on the host for each host's blocks
 *   broadcast       on the root's host, along the rail, on the other hosts
 *   barrier         on the host, among leaders, on the host
 *   all_to_all, and what rails cannot do: the engine over all ranks
 *
 * The first four are made in chunks where they are long (hierarchical_chunks.h): the engine moves
 * one while kernels work on others. A barrier has nothing to cut, an all_to_all one step alone.
 *
 * hierarchical_strategy.h says which of them a call takes. With one rank on each host it is one
 * step on the rail. Communicators need one order on all ranks: calls take a ticket when they
 * are made, and run in the order of tickets, on whichever streams they are.
 */
#include "call/hierarchical.h"
#include "call/hierarchical_chunks.h"
#include "call/workspace.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "util/clock.h"
#include "util/status.h"

static enum symm_kind kind_of(const struct symm_hierarchical_run *run)
{
    return symm__kind_moves((enum symm_kind)run->args->site.kind);
}

/* Where the whole input may be read while the output is written, as NCCL does. All_to_all
 * and reduce_scatter in place copy the input: their output is not the place of this rank's
 * block. */
static symm_status source(struct symm_hierarchical_run *run, const void **in)
{
    const struct symm_args *args = run->args;
    size_t bytes = (size_t)run->team->size * args->count * run->element;
    struct symm_transfer copy;
    const char *path;
    bool captured;
    void *at;
    symm_status status;

    *in = args->in;
    if (!run->team->device_ops || args->in != args->out ||
        (args->site.kind != SYMM_KIND_ALL_TO_ALL &&
         args->site.kind != SYMM_KIND_REDUCE_SCATTER))
        return SYMM_OK;
    status = symm__workspace_get(run->channel, bytes, &at);
    if (status != SYMM_OK)
        return status;
    copy = (struct symm_transfer){.team = run->hierarchy->local_team,
                                  .what = "a copy of the input",
                                  .dst = at,
                                  .src = args->in,
                                  .bytes = bytes,
                                  .peer = run->hierarchy->here,
                                  .signal = -1,
                                  .timeout = run->until - symm__now()};
    *in = at;
    return run->team->device_ops->transfer(&copy, run->channel->stream, NULL, &path,
                                           &captured);
}

/* ---- Collectives ------------------------------------------------------------------- */

/* all_reduce by the hosts' leaders: for few elements, or hosts of unequal size. */
static symm_status reduce_leaders(struct symm_hierarchical_run *run, const char *in,
                                  char *out, size_t count)
{
    symm_status status =
        symm__step_on_host(run, SYMM_KIND_ALL_REDUCE, in, out, count, 0);

    if (status == SYMM_OK && run->hierarchy->here == 0)
        status = symm__step_between(run, SYMM_KIND_ALL_REDUCE, out, out, count, 0,
                                    run->channel->stream);
    if (status == SYMM_OK)
        status = symm__step_on_host(run, SYMM_KIND_BROADCAST, out, out, count, 0);
    return status;
}

static symm_status all_reduce(struct symm_hierarchical_run *run)
{
    const struct symm_args *args = run->args;
    size_t places = (size_t)run->hierarchy->places;
    size_t part = (enum symm_strategy)args->barriers == SYMM_STRATEGY_RAILS
                      ? args->count / places
                      : 0;
    size_t most = part * places * run->element;
    const char *in = args->in;
    char *out = args->out;
    symm_status status = SYMM_OK;

    if (part > 0)
        status = symm__chunked_all_reduce(run, part);
    if (status == SYMM_OK && part * places < args->count)
        status =
            reduce_leaders(run, in + most, out + most, args->count - part * places);
    return status;
}

/* On a device the engine may have no barrier: a sum of one number serves as one. */
static symm_status leaders_meet(struct symm_hierarchical_run *run)
{
    struct symm_engine_request step;
    void *number;
    symm_status status;

    if (!run->team->device_ops)
        return symm__step_announce(run, symm__step_rail(run), run->hierarchy->rail,
                                   run->hierarchy->rail_count);
    status = symm__workspace_get(run->channel, sizeof(uint64_t), &number);
    step = symm__step_request(run, SYMM_KIND_ALL_REDUCE, number, number, 1, 0);
    step.dtype = SYMM_INT32;
    step.op = SYMM_MAX;
    return status == SYMM_OK ? symm__step_engine(run, symm__step_rail(run), &step,
                                                 run->channel->stream)
                             : status;
}

static symm_status barrier(struct symm_hierarchical_run *run)
{
    symm_status status = symm__step_on_host(run, SYMM_KIND_BARRIER, NULL, NULL, 0, 0);

    if (status == SYMM_OK && run->hierarchy->here == 0)
        status = leaders_meet(run);
    if (status == SYMM_OK)
        status = symm__step_on_host(run, SYMM_KIND_BARRIER, NULL, NULL, 0, 0);
    return status;
}

static symm_status flat(struct symm_hierarchical_run *run)
{
    struct symm_engine_request step = symm__engine_request(run->args);
    symm_status status =
        symm__step_announce(run, run->engine->comm, NULL, run->team->size);

    if (status == SYMM_OK)
        status = source(run, &step.in);
    return status == SYMM_OK
               ? symm__step_engine(run, run->engine->comm, &step, run->channel->stream)
               : status;
}

/* One rank on each host: the call is one step on the rail. */
static symm_status rail_alone(struct symm_hierarchical_run *run)
{
    const struct symm_args *args = run->args;
    const void *in;
    symm_status status = source(run, &in);

    return status == SYMM_OK ? symm__step_between(run, kind_of(run), in, args->out,
                                                  args->count, 0, run->channel->stream)
                             : status;
}

static symm_status steps(struct symm_hierarchical_run *run)
{
    enum symm_kind kind = kind_of(run);

    if (run->args->count == 0) /* nothing to move, but it synchronises */
        return barrier(run);
    if ((enum symm_strategy)run->args->barriers == SYMM_STRATEGY_FLAT)
        return flat(run);
    if ((enum symm_strategy)run->args->barriers == SYMM_STRATEGY_RAILS &&
        run->hierarchy->places == 1)
        return rail_alone(run);
    switch (kind) {
    case SYMM_KIND_ALL_REDUCE:
        return all_reduce(run);
    case SYMM_KIND_REDUCE_SCATTER:
        return symm__chunked_reduce_scatter(run);
    case SYMM_KIND_ALL_GATHER:
        return symm__chunked_all_gather(run);
    case SYMM_KIND_BROADCAST:
        return symm__chunked_broadcast(run);
    default:
        return barrier(run);
    }
}

/* ---- Running ----------------------------------------------------------------------- */

uint64_t symm__hierarchical_ticket(symm_team *team)
{
    return __atomic_add_fetch(&team->hierarchy->tickets, 1, __ATOMIC_RELAXED);
}

/* Waits until all calls that were made before have run; each ends by its own timeout. */
static symm_status await_turn(symm_team *team, uint64_t ticket)
{
    struct symm_hierarchy *hierarchy = team->hierarchy;

    pthread_mutex_lock(&hierarchy->turn);
    while (hierarchy->served + 1 != ticket && symm__team_failed(team) == SYMM_OK)
        pthread_cond_wait(&hierarchy->turns, &hierarchy->turn);
    pthread_mutex_unlock(&hierarchy->turn);
    return symm__team_failed(team);
}

static void pass_turn(symm_team *team, uint64_t ticket)
{
    struct symm_hierarchy *hierarchy = team->hierarchy;

    pthread_mutex_lock(&hierarchy->turn);
    hierarchy->served = ticket > hierarchy->served ? ticket : hierarchy->served;
    pthread_cond_broadcast(&hierarchy->turns);
    pthread_mutex_unlock(&hierarchy->turn);
}

static symm_status run_steps(struct symm_team_channel *channel,
                             const struct symm_args *args, uint64_t ticket,
                             double timeout)
{
    symm_team *team = channel->team;
    symm_status status = await_turn(team, ticket);
    struct symm_hierarchical_run run = {
        .team = team,
        .hierarchy = team->hierarchy,
        .engine = team->engine,
        .channel = channel,
        .args = args,
        .element = symm_dtype_size((symm_dtype)args->site.dtype),
        .until = symm__now() + timeout};

    if (status == SYMM_OK)
        status = steps(&run);
    if (status != SYMM_OK)
        status = symm__hierarchical_fail(team, status);
    pass_turn(team, ticket);
    return status;
}

symm_status symm__host_hierarchical(struct symm_state *state,
                                    const struct symm_args *args)
{
    struct symm_team_channel *channel = state->owner;

    /* A queued call took its ticket when it was made. */
    return run_steps(channel, args,
                     args->out_offset ? args->out_offset
                                      : symm__hierarchical_ticket(channel->team),
                     channel->timeout);
}

symm_status symm__hierarchical_launch(struct symm_team_channel *channel,
                                      const struct symm_prepared_call *entry,
                                      double timeout, symm_work **work)
{
    symm_status status = run_steps(channel, &entry->args,
                                   symm__hierarchical_ticket(channel->team), timeout);

    return status == SYMM_OK && work ? channel->team->device_ops->handle(channel, work)
                                     : status;
}
