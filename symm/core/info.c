/* SPDX-License-Identifier: MIT */
/* info.c - symm_ctx_info. */
#include "core/segments.h"
#include "core/team.h"
#include "util/abi.h"
#include "util/status.h"

bool symm__heap_usage(void *arg, uint64_t *used, uint64_t *committed)
{
    symm_ctx *ctx = arg;

    if (pthread_mutex_trylock(&ctx->lock) != 0)
        return false; /* a collective step may hold it for long */
    *used = 0;
    *committed = 0;
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        if (ctx->teams[s]) {
            *used += ctx->teams[s]->heap.used;
            *committed += symm__memory_committed(ctx->teams[s]) - ctx->teams[s]->begin;
        }
    pthread_mutex_unlock(&ctx->lock);
    return true;
}

symm_status symm_ctx_info(symm_ctx *ctx, symm_info *info)
{
    symm_status status = symm__ctx_check(ctx);
    const struct symm_device_info *device;
    symm_info full;

    if (status != SYMM_OK)
        return status;
    if (!info)
        return symm__fail_null("symm_ctx_info", "info");
    status = symm__struct_check("symm_info", info->size, sizeof(full));
    if (status != SYMM_OK)
        return status;
    device = ctx->ops->describe(ctx->backend);
    full = (symm_info){.rank = ctx->rank,
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
                       .host = symm__host_of_rank(ctx, ctx->rank),
                       .device = device ? device->ordinal : -1};
    full.committed_bytes = symm__control_bytes(ctx);
    pthread_mutex_lock(&ctx->lock);
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        if (ctx->teams[s]) {
            full.committed_bytes +=
                symm__memory_committed(ctx->teams[s]) - ctx->teams[s]->begin;
            full.scratch_bytes += ctx->teams[s]->scratch_bytes;
        }
    pthread_mutex_unlock(&ctx->lock);
    symm__struct_give(info, &full, sizeof(full));
    return SYMM_OK;
}
