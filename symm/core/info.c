/* SPDX-License-Identifier: MIT */
/* info.c - symm_ctx_info. */
#include <string.h>

#include "core/segments.h"
#include "core/team.h"
#include "util/status.h"

symm_status symm_ctx_info(symm_ctx *ctx, symm_info *info)
{
    symm_status status = symm__ctx_check(ctx);
    symm_info full;

    if (status != SYMM_OK)
        return status;
    if (!info || info->size < sizeof(size_t) || info->size > 4096)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_ctx_info: set info->size to sizeof(symm_info), %zu",
                          sizeof(full));
    full = (symm_info){.size = info->size,
                       .rank = ctx->rank,
                       .world_size = ctx->size,
                       .local_rank = ctx->job.local_rank,
                       .local_size = ctx->job.local_size,
                       .backend = ctx->ops->name,
                       .job_source = ctx->job.source,
                       .isa = symm__isa_name(ctx->isa),
                       .heap_bytes = ctx->stride,
                       .granularity = ctx->granularity,
                       .why_backend = ctx->why_backend,
                       .machine = ctx->machine,
                       .hosts = ctx->hosts,
                       .host = ctx->host_name[ctx->host_of[ctx->rank]]};
    full.committed_bytes = symm__control_bytes(ctx);
    pthread_mutex_lock(&ctx->lock);
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        if (ctx->teams[s]) {
            full.committed_bytes +=
                symm__memory_committed(ctx->teams[s]) - ctx->teams[s]->begin;
            full.scratch_bytes += ctx->teams[s]->scratch_bytes;
        }
    pthread_mutex_unlock(&ctx->lock);
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return SYMM_OK;
}
