/* SPDX-License-Identifier: MIT */
/* settings.c - see settings.h. */
#include "setup/settings.h"

#include <stdio.h>
#include <string.h>

#include "util/options.h"
#include "util/status.h"

#define CONFIG_KEY "config:" /* begins the key of a job that symm_config names */

symm_status symm__settings_job(symm_ctx *ctx, const symm_config *config)
{
    struct symm_job *job = &ctx->job;

    if (config->world_size == 0 && !config->thread_group) {
        if (config->rank != 0 || config->local_rank != 0 || config->local_size != 0)
            return symm__fail(SYMM_ERR_INVALID,
                              "symm_config: rank %d, local_rank %d and local_size %d "
                              "without world_size; set it, or leave all of them to the "
                              "launcher's variables",
                              config->rank, config->local_rank, config->local_size);
        if (config->job_id)
            return symm__fail(SYMM_ERR_INVALID,
                              "symm_config: job_id without world_size; set it, or name "
                              "the job by SYMM_JOB_ID");
        return symm__job_detect(job);
    }
    if (config->world_size < 1 || config->rank < 0 ||
        config->rank >= config->world_size)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_config: rank %d of world_size %d; a rank is 0 to size - 1",
            config->rank, config->world_size);
    if (config->local_rank < 0 || config->local_size < 0 ||
        config->local_size > config->world_size ||
        config->local_rank >=
            (config->local_size ? config->local_size : config->world_size))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_config: local_rank %d of local_size %d; a rank is 0 to "
                          "size - 1, and local_size is at most world_size, %d",
                          config->local_rank, config->local_size, config->world_size);
    if (config->job_id && !*config->job_id)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_config: job_id is empty; it names the job's bootstrap, "
                          "and is NULL if bootstrap or thread_group do");
    if (config->world_size > 1 && !config->job_id && !config->bootstrap &&
        !config->thread_group)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_config: world_size %d needs job_id, bootstrap or thread_group, "
            "by which the ranks connect",
            config->world_size);
    job->rank = config->rank;
    job->size = config->world_size;
    job->local_rank = config->local_size > 0 ? config->local_rank : config->rank;
    job->local_size = config->local_size > 0 ? config->local_size : config->world_size;
    snprintf(job->source, sizeof(job->source), "config");
    if ((size_t)snprintf(job->key, sizeof(job->key), CONFIG_KEY "%s",
                         config->job_id ? config->job_id : "") >= sizeof(job->key))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_config: job_id has %zu bytes, more than %zu: cut, it "
                          "could be that of another job",
                          strlen(config->job_id),
                          sizeof(job->key) - sizeof(CONFIG_KEY));
    if (job->local_size < job->size && !config->bootstrap && !config->thread_group)
        return symm__job_network(job);
    return SYMM_OK;
}

static symm_status take_sizes(symm_ctx *ctx, const symm_config *config)
{
    size_t granule = ctx->granularity;
    symm_status status = SYMM_OK;

    ctx->stride = config->heap_bytes;
    if (ctx->stride == 0)
        status = symm__option_bytes(SYMM_OPTION_HEAP_BYTES, &ctx->stride);
    if (status != SYMM_OK)
        return status;
    ctx->team_bytes = config->team_bytes;
    if (ctx->team_bytes == 0)
        status = symm__option_bytes(SYMM_OPTION_TEAM_BYTES, &ctx->team_bytes);
    if (status != SYMM_OK)
        return status;
    if (config->team_bytes == 0 && !symm__option_set(SYMM_OPTION_TEAM_BYTES) &&
        ctx->team_bytes > ctx->stride / 4)
        /* the default's: a small heap still gets two teams */
        ctx->team_bytes = ctx->stride / 4 / granule * granule;
    if (ctx->stride % (2 * granule) != 0 || ctx->stride < 16 * granule ||
        ctx->stride > ((size_t)1 << 44))
        return symm__fail(
            SYMM_ERR_INVALID,
            "heap_bytes is %zu; give a multiple of %zu from %zu to 16 TiB "
            "(SYMM_HEAP_BYTES)",
            ctx->stride, 2 * granule, 16 * granule);
    if (ctx->team_bytes % granule != 0 || ctx->team_bytes < 2 * granule ||
        ctx->team_bytes > ctx->stride / 2)
        return symm__fail(SYMM_ERR_INVALID,
                          "team_bytes is %zu; give a multiple of %zu from %zu to %zu, "
                          "half of heap_bytes (SYMM_TEAM_BYTES)",
                          ctx->team_bytes, granule, 2 * granule, ctx->stride / 2);
    return SYMM_OK;
}

static symm_status take_isa(symm_ctx *ctx)
{
    const char *name = symm__option(SYMM_OPTION_ISA);

    ctx->isa = symm__isa_best();
    if (!name)
        return SYMM_OK;
    for (int isa = 0; isa < SYMM_ISA_COUNT; isa++)
        if (strcmp(name, symm__isa_name((enum symm_isa)isa)) == 0 &&
            symm__isa_usable((enum symm_isa)isa)) {
            ctx->isa = (enum symm_isa)isa;
            return SYMM_OK;
        }
    return symm__fail(
        SYMM_ERR_INVALID,
        "SYMM_ISA '%s' is not usable here; c always is, and this processor's "
        "best is %s",
        name, symm__isa_name(symm__isa_best()));
}

symm_status symm__settings_take(symm_ctx *ctx, const symm_config *config)
{
    int64_t spin, start = config->epoch_start;
    symm_status status = SYMM_OK;

    ctx->timeout = config->timeout;
    if (!(config->timeout >= 0) || !(config->timeout <= SYMM_LONGEST_SECONDS))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_config: timeout is %g; it is a number of seconds up to %g, "
            "0 for the default",
            config->timeout, SYMM_LONGEST_SECONDS);
    if (config->timeout == 0)
        status = symm__option_seconds(SYMM_OPTION_TIMEOUT, &ctx->timeout);
    ctx->queue_timeout = -1;
    if (status == SYMM_OK && symm__option(SYMM_OPTION_QUEUE_TIMEOUT))
        status = symm__option_limit(SYMM_OPTION_QUEUE_TIMEOUT, &ctx->queue_timeout);
    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_SPIN, 0, 1000000000, &spin);
    if (status == SYMM_OK && start == 0)
        status = symm__option_integer(SYMM_OPTION_EPOCH_START, 0, UINT32_MAX, &start);
    if (status == SYMM_OK)
        status = take_isa(ctx);
    if (status == SYMM_OK)
        status = take_sizes(ctx, config);
    if (status != SYMM_OK)
        return status;
    ctx->spin = (uint32_t)spin;
    ctx->epoch_start = (uint32_t)start;
    return SYMM_OK;
}
