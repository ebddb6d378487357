/* SPDX-License-Identifier: MIT */
/* channel.c - see channel.h. */
#include "call/channel.h"

#include <stdlib.h>
#include <string.h>

#include "call/slow_wait.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "select/select.h"
#include "util/abi.h"
#include "util/status.h"

symm_status symm__default_enter(symm_ctx *ctx)
{
    /* acquire: pairs with the release in leave, so that threads may take turns */
    if (__builtin_expect(__atomic_exchange_n(&ctx->default_busy, 1, __ATOMIC_ACQUIRE),
                         0))
        return symm__fail(
            SYMM_ERR_BUSY,
            "another thread is in a call on the default stream of rank %d; "
            "give each thread a stream of its own (symm_stream_create)",
            ctx->rank);
    return SYMM_OK;
}

void symm__default_leave(symm_ctx *ctx)
{
    __atomic_store_n(&ctx->default_busy, 0, __ATOMIC_RELEASE);
}

void symm__stream_used(symm_team *team, const void *stream)
{
    __atomic_fetch_or(&team->streams,
                      UINT64_C(1) << symm__stream_index(team->ctx, stream),
                      __ATOMIC_RELAXED);
}

symm_status symm__stream_check(const symm_ctx *ctx, const void *stream)
{
    if (symm__stream_index(ctx, stream) >= 0)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "stream %p is none of this context's (symm_stream_create)",
                      stream);
}

/* With team->channels locked. */
static symm_status channel_of_stream(symm_team *team, void *stream,
                                     struct symm_team_channel **channel)
{
    struct symm_team_channel *open = NULL;
    symm_status status;

    if (!stream) {
        *channel = &team->channel[0];
        return SYMM_OK;
    }
    for (int i = SYMM_HOST_CHANNELS - 1; i > 0; i--) {
        if (team->channel[i].stream == stream) {
            *channel = &team->channel[i];
            return SYMM_OK;
        }
        if (!team->channel[i].stream)
            open = &team->channel[i];
    }
    if (!open)
        return symm__fail(SYMM_ERR_BUSY,
                          "no channel of the team is left for stream %p of rank %d: %d "
                          "streams have one, the default one included; %s, or split a "
                          "team for the others",
                          stream, team->ctx->rank, SYMM_HOST_CHANNELS,
                          team->device_ops
                              ? "use fewer (one that symm_stream_destroy ends "
                                "makes room)"
                              : "destroy one");
    status =
        team->device_ops ? team->device_ops->stream_admit(team->ctx, stream) : SYMM_OK;
    if (status != SYMM_OK)
        return status;
    open->stream = stream;
    *channel = open;
    return SYMM_OK;
}

/* Finds and locks the channel of a stream; on a device also that of the default stream. */
static symm_status channel_lock(symm_team *team, void *stream,
                                struct symm_team_channel **channel)
{
    symm_status status;

    pthread_mutex_lock(&team->channels);
    status = channel_of_stream(team, stream, channel);
    if (status == SYMM_OK)
        status = symm__channel_cache(*channel);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->channels);
    /* still locked: two threads may queue on one stream, one after the other */
    return status;
}

symm_status symm__stream_enter(symm_team *team, void **stream)
{
    symm_status status = SYMM_OK;

    if (team->device_ops) {
        status = team->device_ops->stream_check(team->ctx, stream);
        if (status == SYMM_OK)
            pthread_mutex_lock(&team->channels);
        return status;
    }
    return *stream ? symm__stream_check(team->ctx, *stream)
                   : symm__default_enter(team->ctx);
}

void symm__stream_leave(symm_team *team, const void *stream)
{
    if (team->device_ops)
        pthread_mutex_unlock(&team->channels);
    else if (!stream)
        symm__default_leave(team->ctx);
}

static symm_status channel_default(symm_team *team, struct symm_team_channel **channel)
{
    symm_status status = symm__default_enter(team->ctx);

    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    *channel = &team->channel[0];
    status = symm__channel_cache(*channel);
    if (__builtin_expect(status != SYMM_OK, 0))
        symm__default_leave(team->ctx);
    return status;
}

/* A team within one host: *channel is NULL where the stream has no channel yet; team->channels is
 * locked all the same. */
static symm_status channel_device(symm_team *team, void *stream,
                                  struct symm_team_channel **channel)
{
    symm_status status = team->device_ops->poll(team);

    if (status == SYMM_OK)
        status = team->device_ops->stream_check(team->ctx, &stream);
    if (status != SYMM_OK)
        return status;
    if (team->far)
        return channel_lock(team, stream, channel);
    pthread_mutex_lock(&team->channels);
    status = team->device_ops->channel_find(team, stream, channel);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->channels);
    return status;
}

symm_status symm__channel_enter(symm_team *team, void *stream,
                                struct symm_team_channel **channel)
{
    symm_status status;

    /* acquire: pairs with the release that stored it, after the failure's text */
    if (__builtin_expect(__atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) != SYMM_OK,
                         0))
        return symm__team_failed(team);
    if (team->device_ops)
        return channel_device(team, stream, channel);
    if (!stream)
        return channel_default(team, channel);
    status = symm__stream_check(team->ctx, stream);
    return status == SYMM_OK ? channel_lock(team, stream, channel) : status;
}

void symm__channel_leave(struct symm_team_channel *channel)
{
    const symm_team *team = channel->team;

    if (team->device_ops && !team->far)
        team->device_ops->channel_leave(channel);
    if (channel->index == 0 && !team->device_ops)
        symm__default_leave(channel->team->ctx);
    else
        pthread_mutex_unlock(&channel->team->channels);
}

void symm__channel_forget(symm_ctx *ctx, const void *stream)
{
    const uint64_t bit = UINT64_C(1) << symm__stream_index(ctx, stream);

    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        symm_team *team = ctx->teams[s];

        if (!team)
            continue;
        __atomic_fetch_and(&team->streams, ~bit, __ATOMIC_RELAXED);
        pthread_mutex_lock(&team->channels);
        for (int i = 0; i < SYMM_CHANNELS; i++)
            if (team->channel[i].stream == stream) {
                team->channel[i].stream = NULL;
                team->channel[i].stream_id = 0;
            }
        pthread_mutex_unlock(&team->channels);
    }
}

symm_status symm__call_copy(const symm_call *given, symm_call *call)
{
    symm_status status = symm__struct_take("symm_call", given, call, sizeof(*call));

    if (status == SYMM_OK && (call->channel < 0 || call->channel > SYMM_CHANNELS))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_call.channel is %d; it is a channel from 1 to %d, or 0",
                          call->channel, SYMM_CHANNELS);
    if (status == SYMM_OK)
        status = symm__numerics_check(call->numerics);
    if (status == SYMM_OK && !(call->timeout >= 0)) /* a NaN is not, either */
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_call.timeout is %g; it is a number of seconds, 0 for "
                          "the context's",
                          call->timeout);
    return status;
}

void symm__channel_init(struct symm_team_channel *channel)
{
    symm_team *team = channel->team;
    symm_ctx *ctx = team->ctx;
    struct symm_state *state = &channel->state;

    state->epoch = ctx->epoch_start;
    state->spin = ctx->spin;
    state->rank = team->rank;
    state->size = team->size;
    state->slots = team->slots + channel->index * team->local_size;
    state->base = team->base;
    /* A team over several domains has no kernels of its own to wait for: they run on its local
     * teams. */
    for (int m = 0; !team->spans && m < team->size; m++) {
        state->slots[m] = team->pad[m]->channel[channel->index].slot;
        state->base[m] = symm__heap_base(ctx, team->world_rank[m]);
    }
    state->sleepers = &team->pad[team->local_rank]->wake[channel->index].sleepers;
    state->slow_wait = symm__slow_wait;
    state->wake = symm__slow_wake;
    state->owner = channel;
}
