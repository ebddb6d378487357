/* SPDX-License-Identifier: MIT */
/*
 * hierarchical.c - collectives of a hierarchical team (hierarchical.h), as steps on each host and
 * between them.
 *
 *   all_reduce      rails: reduce_scatter on the host, all_reduce on the rail, all_gather on
 *                   the host, in chunks where they are long; what does not divide by the
 *                   host's ranks, and hosts of unequal size: all_reduce on the host, then
 *                   among leaders, broadcast on the host
 *   reduce_scatter  rails: one on the host for each host's blocks, then one on the rail
 *   all_gather      rails: one on the rail, then one on the host for each host's blocks
 *   broadcast       to the root's host where its leader is not the root, along the rail, on
 *                   the other hosts
 *   barrier         on the host, among leaders, on the host
 *   all_to_all, and what rails cannot do: the engine over all ranks
 *
 * hierarchical_strategy.h says which of them a call takes. With one rank on each host it is one
 * step on the rail.
 *
 * On the host backend a step of the engine is announced to its ranks on other hosts by the call's
 * tag, so ranks that make different calls find that out. (On CUDA only ranks of one host find it
 * out, by their kernels.) A channel uses the local team's channel of the same number, which no
 * other channel uses. Communicators need one order on all ranks: calls take a ticket when they
 * are made, and run in the order of tickets, on whichever streams they are.
 */
#include <stdlib.h>

#include "call/hierarchical.h"
#include "call/workspace.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "select/chunks.h"
#include "util/clock.h"
#include "util/status.h"

/* Marks of a channel's side stream: 0 and 1 are for the engine's steps in turn. */
#define MARK_SCATTERED 2

/* A call whose steps are run or queued. */
struct run {
    symm_team *team;
    struct symm_hierarchy *hierarchy;
    struct symm_team_engine *engine;
    struct symm_team_channel *channel;
    const struct symm_args *args;
    size_t element;
    double until;
};

static struct symm_engine_comm *rail_of(const struct run *run)
{
    return symm__rail_is_all(run->team) ? run->engine->comm : run->engine->rail;
}

/* ---- Steps ------------------------------------------------------------------------ */

static enum symm_kind kind_of(const struct run *run)
{
    return symm__kind_moves((enum symm_kind)run->args->site.kind);
}

static struct symm_engine_request step_of(const struct run *run, enum symm_kind kind,
                                          const void *in, void *out, size_t count,
                                          int root)
{
    return (struct symm_engine_request){.what = SYMM_ENGINE_COLLECTIVE,
                                        .kind = kind,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .dtype = (symm_dtype)run->args->site.dtype,
                                        .op = (symm_op)run->args->site.op,
                                        .root = root,
                                        .peer = -1};
}

static symm_status on_host(struct run *run, enum symm_kind kind, const void *in,
                           void *out, size_t count, int root)
{
    const struct symm_engine_request step = step_of(run, kind, in, out, count, root);
    symm_team *node = run->hierarchy->local_team;
    struct symm_team_channel *channel = &node->channel[run->channel->index];

    channel->stream = run->channel->stream;
    return symm__collective_run(channel, &step, run->args->site.name,
                                run->until - symm__now());
}

static symm_status engine_run_on(struct run *run, struct symm_engine_comm *comm,
                                 const struct symm_engine_request *request,
                                 void *stream)
{
    symm_team *team = run->team;
    const bool all = comm != rail_of(run);
    const struct symm_engine_call call = {
        .team = team,
        .comm = comm,
        .requests = request,
        .count = 1,
        .timeout = run->until - symm__now(),
        .what = symm__kind_name((enum symm_kind)run->args->site.kind),
        .site = run->args->site.name,
        .members = all ? NULL : run->hierarchy->rail,
        .member_count = all ? team->size : run->hierarchy->rail_count};

    if (team->device_ops)
        return team->device_ops->engine(&call, stream, NULL);
    return symm__engine_run_host(&call);
}

static symm_status engine_run(struct run *run, struct symm_engine_comm *comm,
                              const struct symm_engine_request *request)
{
    return engine_run_on(run, comm, request, run->channel->stream);
}

/* Room that is kept from call to call: it grows only at the first call over so many ranks. */
static symm_status room_for_tags(struct symm_hierarchy *hierarchy, int count,
                                 uint64_t **tags)
{
    if (count > hierarchy->tags_room) {
        uint64_t *grown =
            realloc(hierarchy->tags, (size_t)count * sizeof(*hierarchy->tags));

        if (!grown)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for the tags of %d ranks",
                              count);
        hierarchy->tags = grown;
        hierarchy->tags_room = count;
    }
    *tags = hierarchy->tags;
    return SYMM_OK;
}

/* Checks that all ranks of the communicator make this call. */
static symm_status announce(struct run *run, struct symm_engine_comm *comm,
                            const int *ranks, int count)
{
    const symm_team *team = run->team;
    uint64_t mine = run->args->site.tag, *tags = NULL;
    struct symm_engine_request step;
    char text[176];
    symm_status status;

    if (team->device_ops)
        return SYMM_OK;
    status = room_for_tags(run->hierarchy, count, &tags);
    if (status != SYMM_OK)
        return status;
    step = step_of(run, SYMM_KIND_ALL_GATHER, &mine, tags, 1, 0);
    step.dtype = SYMM_UINT64;
    status = engine_run(run, comm, &step);
    for (int i = 0; status == SYMM_OK && i < count; i++) {
        int rank = team->world_rank[ranks ? ranks[i] : i];

        if (tags[i] == mine)
            continue;
        status = symm__team_fail(
            run->team, SYMM_ERR_MISMATCH,
            "rank %d on host %s makes another call than rank %d, which is at %s: all "
            "ranks of a team must make the same calls in the same order",
            rank, symm__host_of_rank(team->ctx, rank), team->ctx->rank,
            symm__site_text(&run->args->site, 0, text, sizeof(text)));
    }
    return status;
}

static symm_status between(struct run *run, enum symm_kind kind, const void *in,
                           void *out, size_t count, int root)
{
    const struct symm_engine_request step = step_of(run, kind, in, out, count, root);
    symm_status status =
        announce(run, rail_of(run), run->hierarchy->rail, run->hierarchy->rail_count);

    return status == SYMM_OK ? engine_run(run, rail_of(run), &step) : status;
}

/* Where the whole input may be read while the output is written, as NCCL does. All_to_all
 * and reduce_scatter in place copy the input: their output is not the place of this rank's
 * block. */
static symm_status source(struct run *run, const void **in)
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
static symm_status reduce_leaders(struct run *run, const char *in, char *out,
                                  size_t count)
{
    symm_status status = on_host(run, SYMM_KIND_ALL_REDUCE, in, out, count, 0);

    if (status == SYMM_OK && run->hierarchy->here == 0)
        status = between(run, SYMM_KIND_ALL_REDUCE, out, out, count, 0);
    if (status == SYMM_OK)
        status = on_host(run, SYMM_KIND_BROADCAST, out, out, count, 0);
    return status;
}

/* How the call is cut, of `part` elements of each of the host's ranks. */
static struct symm_chunks chunks_of(const struct run *run, size_t part)
{
    if (!run->team->device_ops || !symm__engine_fits_beside(run->team->ctx))
        return symm__chunks_none(part);
    return symm__chunks(part, run->element, (size_t)run->hierarchy->places,
                        (size_t)run->hierarchy->hosts);
}

/* A chunk: its first element, and how many each rank of the host has of it. */
struct chunk {
    size_t first, part;
};

static char *chunk_own(const struct run *run, const struct chunk *chunk)
{
    return (char *)run->args->out +
           (chunk->first + (size_t)run->hierarchy->here * chunk->part) * run->element;
}

static symm_status chunk_scatter(struct run *run, const struct chunk *chunk)
{
    const char *in = (const char *)run->args->in + chunk->first * run->element;

    return on_host(run, SYMM_KIND_REDUCE_SCATTER, in, chunk_own(run, chunk),
                   chunk->part, 0);
}

static symm_status chunk_gather(struct run *run, const struct chunk *chunk)
{
    char *out = (char *)run->args->out + chunk->first * run->element;

    return on_host(run, SYMM_KIND_ALL_GATHER, chunk_own(run, chunk), out, chunk->part,
                   0);
}

/* The engine's step of a chunk, on the side stream, after all that is on the channel's stream
 * now. */
static symm_status chunk_between(struct run *run, const struct chunk *chunk, int mark,
                                 void *side)
{
    const struct symm_device_ops *device = run->team->device_ops;
    const struct symm_engine_request step =
        step_of(run, SYMM_KIND_ALL_REDUCE, chunk_own(run, chunk), chunk_own(run, chunk),
                chunk->part, 0);
    symm_status status = device->side_mark(run->channel, MARK_SCATTERED,
                                           run->channel->stream),
                marked;

    if (status == SYMM_OK)
        status = device->side_await(run->channel, MARK_SCATTERED, side);
    if (status != SYMM_OK)
        return status;
    status = engine_run_on(run, rail_of(run), &step, side);
    /* Also after an error: a capture must get its side stream back. */
    marked = device->side_mark(run->channel, mark, side);
    return status == SYMM_OK ? marked : status;
}

/* While the engine moves a chunk, the kernels scatter the next one and gather the one before. */
static symm_status all_reduce_chunks(struct run *run, size_t part,
                                     const struct symm_chunks *chunks)
{
    const struct symm_device_ops *device = run->team->device_ops;
    const size_t places = (size_t)run->hierarchy->places;
    struct chunk chunk, before = {0};
    void *side;
    symm_status status = device->side(run->channel, &side);
    int i = 0;

    for (size_t at = 0; at < part && status == SYMM_OK; at += chunk.part, i++) {
        chunk.first = at * places;
        chunk.part = symm__chunk(chunks, before.part, part - at);
        status = chunk_scatter(run, &chunk);
        if (status == SYMM_OK)
            status = chunk_between(run, &chunk, i % 2, side);
        if (status == SYMM_OK && i > 0)
            status =
                device->side_await(run->channel, (i - 1) % 2, run->channel->stream);
        if (status == SYMM_OK && i > 0)
            status = chunk_gather(run, &before);
        before = chunk;
    }
    if (i > 0) { /* also after an error, as in chunk_between */
        symm_status joined =
            device->side_await(run->channel, (i - 1) % 2, run->channel->stream);

        status = status == SYMM_OK ? joined : status;
    }
    return status == SYMM_OK ? chunk_gather(run, &before) : status;
}

static symm_status all_reduce_whole(struct run *run, size_t part)
{
    const struct chunk all = {0, part};
    char *own = chunk_own(run, &all);
    symm_status status = chunk_scatter(run, &all);

    if (status == SYMM_OK)
        status = between(run, SYMM_KIND_ALL_REDUCE, own, own, part, 0);
    return status == SYMM_OK ? chunk_gather(run, &all) : status;
}

static symm_status all_reduce(struct run *run)
{
    const struct symm_args *args = run->args;
    size_t places = (size_t)run->hierarchy->places;
    size_t part = (enum symm_strategy)args->barriers == SYMM_STRATEGY_RAILS
                      ? args->count / places
                      : 0;
    size_t most = part * places * run->element;
    const struct symm_chunks chunks = chunks_of(run, part);
    const char *in = args->in;
    char *out = args->out;
    symm_status status = SYMM_OK;

    if (chunks.first < part)
        status = all_reduce_chunks(run, part, &chunks);
    else if (part > 0)
        status = all_reduce_whole(run, part);
    if (status == SYMM_OK && part * places < args->count)
        status =
            reduce_leaders(run, in + most, out + most, args->count - part * places);
    return status;
}

static symm_status reduce_scatter(struct run *run)
{
    const struct symm_args *args = run->args;
    size_t block = args->count * run->element;
    size_t places = (size_t)run->hierarchy->places;
    void *sums;
    symm_status status =
        symm__workspace_get(run->channel, (size_t)run->hierarchy->hosts * block, &sums);

    for (int h = 0; status == SYMM_OK && h < run->hierarchy->hosts; h++)
        status = on_host(run, SYMM_KIND_REDUCE_SCATTER,
                         (const char *)args->in + (size_t)h * places * block,
                         (char *)sums + (size_t)h * block, args->count, 0);
    return status == SYMM_OK
               ? between(run, SYMM_KIND_REDUCE_SCATTER, sums, args->out, args->count, 0)
               : status;
}

static symm_status all_gather(struct run *run)
{
    const struct symm_args *args = run->args;
    size_t block = args->count * run->element;
    size_t places = (size_t)run->hierarchy->places;
    void *parts;
    symm_status status = symm__workspace_get(
        run->channel, (size_t)run->hierarchy->hosts * block, &parts);

    if (status == SYMM_OK)
        status = between(run, SYMM_KIND_ALL_GATHER, args->in, parts, args->count, 0);
    for (int h = 0; status == SYMM_OK && h < run->hierarchy->hosts; h++)
        status =
            on_host(run, SYMM_KIND_ALL_GATHER, (char *)parts + (size_t)h * block,
                    (char *)args->out + (size_t)h * places * block, args->count, 0);
    return status;
}

/* The rail's rank of the member on that host. */
static int rail_rank(const struct symm_hierarchy *hierarchy, int host)
{
    int i = 0;

    if (hierarchy->regular)
        return host;
    while (i + 1 < hierarchy->rail_count &&
           symm__hierarchy_host(hierarchy, hierarchy->rail[i]) != host)
        i++;
    return i;
}

static symm_status broadcast(struct run *run)
{
    const struct symm_args *args = run->args;
    const struct symm_hierarchy *hierarchy = run->hierarchy;
    int host = symm__hierarchy_host(hierarchy, args->root);
    int local = symm__hierarchy_place(hierarchy, args->root);
    int relay = hierarchy->equal ? local : 0; /* gets the data first on each host */
    bool there = hierarchy->at == host;
    const void *from = hierarchy->here == local && there ? args->in : args->out;
    symm_status status = SYMM_OK;

    if (there)
        status = on_host(run, SYMM_KIND_BROADCAST, from, args->out, args->count, local);
    if (status == SYMM_OK && hierarchy->here == relay)
        status = between(run, SYMM_KIND_BROADCAST, args->out, args->out, args->count,
                         rail_rank(hierarchy, host));
    if (status == SYMM_OK && !there)
        status =
            on_host(run, SYMM_KIND_BROADCAST, args->out, args->out, args->count, relay);
    return status;
}

/* On a device the engine may have no barrier: a sum of one number serves as one. */
static symm_status leaders_meet(struct run *run)
{
    struct symm_engine_request step;
    void *number;
    symm_status status;

    if (!run->team->device_ops)
        return announce(run, rail_of(run), run->hierarchy->rail,
                        run->hierarchy->rail_count);
    status = symm__workspace_get(run->channel, sizeof(uint64_t), &number);
    step = step_of(run, SYMM_KIND_ALL_REDUCE, number, number, 1, 0);
    step.dtype = SYMM_INT32;
    step.op = SYMM_MAX;
    return status == SYMM_OK ? engine_run(run, rail_of(run), &step) : status;
}

static symm_status barrier(struct run *run)
{
    symm_status status = on_host(run, SYMM_KIND_BARRIER, NULL, NULL, 0, 0);

    if (status == SYMM_OK && run->hierarchy->here == 0)
        status = leaders_meet(run);
    if (status == SYMM_OK)
        status = on_host(run, SYMM_KIND_BARRIER, NULL, NULL, 0, 0);
    return status;
}

static symm_status flat(struct run *run)
{
    struct symm_engine_request step = symm__engine_request(run->args);
    symm_status status = announce(run, run->engine->comm, NULL, run->team->size);

    if (status == SYMM_OK)
        status = source(run, &step.in);
    return status == SYMM_OK ? engine_run(run, run->engine->comm, &step) : status;
}

/* One rank on each host: the call is one step on the rail. */
static symm_status rail_alone(struct run *run)
{
    const struct symm_args *args = run->args;
    const void *in;
    symm_status status = source(run, &in);

    return status == SYMM_OK ? between(run, kind_of(run), in, args->out, args->count, 0)
                             : status;
}

static symm_status steps(struct run *run)
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
        return reduce_scatter(run);
    case SYMM_KIND_ALL_GATHER:
        return all_gather(run);
    case SYMM_KIND_BROADCAST:
        return broadcast(run);
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
    struct run run = {.team = team,
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
