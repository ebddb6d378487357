/* SPDX-License-Identifier: MIT */
/* info.c - symm_ctx_info. */
#include "core/segments.h"
#include "core/team.h"
#include "util/abi.h"
#include "util/status.h"

/* Bytes of all teams together. */
struct usage {
    uint64_t used, committed, scratch;
};

/* With the context locked. */
static struct usage usage_of(const symm_ctx *ctx)
{
    struct usage usage = {0};

    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        const symm_team *team = ctx->teams[s];

        if (!team)
            continue;
        usage.used += team->heap.used;
        usage.committed += symm__memory_committed(team) - team->begin;
        usage.scratch += team->scratch_bytes;
    }
    return usage;
}

bool symm__heap_usage(void *arg, uint64_t *used, uint64_t *committed)
{
    symm_ctx *ctx = arg;
    struct usage usage;

    if (pthread_mutex_trylock(&ctx->lock) != 0)
        return false; /* a collective step may hold it for long */
    usage = usage_of(ctx);
    pthread_mutex_unlock(&ctx->lock);
    *used = usage.used;
    *committed = usage.committed;
    return true;
}

symm_status symm_ctx_info(symm_ctx *ctx, symm_info *info)
{
    symm_status status = symm__ctx_check(ctx);
    const struct symm_device_info *device;
    struct usage usage;
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
    pthread_mutex_lock(&ctx->lock);
    usage = usage_of(ctx);
    pthread_mutex_unlock(&ctx->lock);
    full.committed_bytes = symm__control_bytes(ctx) + usage.committed;
    full.scratch_bytes = usage.scratch;
    symm__struct_give(info, &full, sizeof(full));
    return SYMM_OK;
}
