/* SPDX-License-Identifier: MIT */
/* device_ops.c - public functions of a team that its device implements. */
#include "core/device_ops.h"

#include "util/status.h"

int symm__channel_find(symm_team *team, const void *stream)
{
    int found = SYMM_CHANNELS;

    if (team->device_ops && !team->far)
        return team->device_ops->channel_of(team, stream);
    if (!stream)
        return 0;
    for (int i = 1; i < SYMM_HOST_CHANNELS; i++)
        if (team->channel[i].stream == stream)
            found = i;
    return found;
}

symm_status symm_team_device(symm_team *team, const void **device_team)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!device_team)
        return symm__fail(SYMM_ERR_INVALID, "symm_team_device: device_team is NULL");
    if (team->hierarchy)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_team_device: the team's ranks are on %d %s, and device "
                          "code reaches those of one; split it by host",
                          team->hierarchy->hosts, symm__hierarchy_parts(team));
    if (team->device_ops)
        return team->device_ops->team_device(team, device_team);
    if (team->size > SYMM_FEW_RANKS)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_team_device: the team has %d ranks; device code on the "
                          "host takes up to %d; split it",
                          team->size, SYMM_FEW_RANKS);
    pthread_mutex_lock(&team->ctx->lock); /* two threads may make the first call */
    symm__team_describe(team);
    pthread_mutex_unlock(&team->ctx->lock);
    *device_team = &team->device;
    return SYMM_OK;
}

void symm__team_drain(symm_team *team)
{
    symm_ctx *ctx = team->ctx;

    for (int i = 0; i < SYMM_MAX_STREAMS && !team->device_ops; i++) {
        struct symm_stream *stream =
            __atomic_load_n(&ctx->streams[i], __ATOMIC_RELAXED);
        bool used = __atomic_load_n(&team->streams, __ATOMIC_RELAXED) >> i & 1;

        if (!stream)
            continue;
        pthread_mutex_lock(&team->channels);
        used = used || symm__channel_find(team, stream) < SYMM_CHANNELS;
        pthread_mutex_unlock(&team->channels);
        if (used && !ctx->ops->stream_is_own(stream))
            ctx->ops->stream_drain(ctx->backend, stream);
    }
}
