/* SPDX-License-Identifier: MIT */
/* workspace.c - see workspace.h. */
#include <stdlib.h>

#include "call/workspace.h"
#include "util/status.h"

#define FIRST_BYTES 65536

symm_status symm__workspace_get(struct symm_team_channel *channel, size_t bytes,
                                void **at)
{
    symm_team *team = channel->team;
    symm_ctx *ctx = team->ctx;
    size_t wanted =
        channel->workspace_bytes ? 2 * channel->workspace_bytes : FIRST_BYTES;
    void *fresh, **list;
    symm_status status;

    if (channel->workspace_bytes < bytes) {
        wanted = wanted > bytes ? wanted : bytes;
        list = realloc(team->outgrown, (team->outgrown_count + 1) * sizeof(*list));
        if (!list)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a list");
        team->outgrown = list;
        status = ctx->ops->local_alloc(ctx->backend, wanted, &fresh);
        if (status != SYMM_OK)
            return status;
        /* Kernels may use the old memory, so it stays until the team's end: at most as much. */
        if (channel->workspace)
            team->outgrown[team->outgrown_count++] = channel->workspace;
        channel->workspace = fresh;
        channel->workspace_bytes = wanted;
    }
    *at = channel->workspace;
    return SYMM_OK;
}

void symm__workspace_close(symm_team *team)
{
    symm_ctx *ctx = team->ctx;

    for (int i = 0; i < SYMM_CHANNELS; i++)
        ctx->ops->local_free(ctx->backend, team->channel[i].workspace);
    for (size_t i = 0; i < team->outgrown_count; i++)
        ctx->ops->local_free(ctx->backend, team->outgrown[i]);
    free(team->outgrown);
}
