/* SPDX-License-Identifier: MIT */
/*
 * thread_group.c - ranks that are threads of one process: socket pairs made beforehand, and
 * one reservation that all share, so that "importing" a peer's memory is using the same
 * mapping (ThreadSanitizer then sees one address for one word). The reservation goes with the
 * group: a rank's memory outlives its context, since a peer may still be polling it.
 */
#include <stdlib.h>

#include "bootstrap/bootstrap.h"
#include "core/shared_memory.h"
#include "core/slots.h"
#include "core/team.h"
#include "net/seqpacket.h"
#include "setup/thread_group.h"
#include "util/status.h"

symm_status symm_thread_group_create(int n, symm_thread_group **group)
{
    symm_thread_group *g;
    symm_status status = SYMM_ERR_NOMEM;

    if (!group)
        return symm__fail(SYMM_ERR_INVALID, "symm_thread_group_create: group is NULL");
    if (n < 1 || n > SYMM_MAX_LOCAL_RANKS)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_thread_group_create: %d ranks; 1 to %d are possible", n,
                          SYMM_MAX_LOCAL_RANKS);
    g = calloc(1, sizeof(*g));
    if (!g)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a group");
    g->size = n;
    pthread_mutex_init(&g->lock, NULL);
    g->joined = calloc((size_t)n, sizeof(*g->joined));
    if (!g->joined) {
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for a group of %d ranks", n);
        goto err_group;
    }
    status = symm__bootstrap_pairs(n, &g->peer_fd);
    if (status != SYMM_OK)
        goto err_group;
    *group = g;
    return SYMM_OK;

err_group:
    free(g->joined);
    pthread_mutex_destroy(&g->lock);
    free(g);
    return status;
}

void symm_thread_group_destroy(symm_thread_group *group)
{
    if (!group)
        return;
    symm__seqpacket_close(group->peer_fd, group->size * group->size);
    if (group->owner) {
        group->ops->release(group->owner, group->base, group->bytes);
        group->ops->close(group->owner);
        symm__shared_release(group->control_base,
                             (size_t)group->size * SYMM_CONTROL_BYTES);
    }
    free(group->joined);
    free(group->peer_fd);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

/* Reserves address space for all ranks; done by the first. */
static symm_status open_space(symm_thread_group *group, const symm_ctx *ctx)
{
    size_t pages = (size_t)group->size * SYMM_CONTROL_BYTES;
    size_t bytes = (size_t)group->size * ctx->stride;
    struct symm_backend *owner;
    void *base, *control_base;
    symm_status status = symm__shared_reserve(pages, "control pages", &control_base);

    if (status != SYMM_OK)
        return status;
    status = ctx->ops->open_owner(ctx->backend, &owner);
    if (status != SYMM_OK)
        goto err_pages;
    status = ctx->ops->reserve(owner, bytes, &base);
    if (status != SYMM_OK)
        goto err_owner;
    group->ops = ctx->ops;
    group->owner = owner;
    group->base = base;
    group->control_base = control_base;
    group->stride = ctx->stride;
    group->bytes = bytes;
    return SYMM_OK;

err_owner:
    ctx->ops->close(owner);
err_pages:
    symm__shared_release(control_base, pages);
    return status;
}

/* The group is locked. */
static symm_status join(symm_thread_group *group, symm_ctx *ctx, int *peer_fd)
{
    symm_status status;

    if (ctx->size != group->size)
        return symm__fail(
            SYMM_ERR_INVALID,
            "rank %d has world_size %d but its group was made for %d ranks", ctx->rank,
            ctx->size, group->size);
    if (group->joined[ctx->rank])
        return symm__fail(
            SYMM_ERR_IN_USE,
            "rank %d has joined this group before; make a new group for a new "
            "job",
            ctx->rank);
    if (group->owner && group->ops != ctx->ops)
        return symm__fail(SYMM_ERR_MISMATCH,
                          "rank %d has backend %s, ranks before it have %s; set "
                          "SYMM_BACKEND alike on all ranks (%s)",
                          ctx->rank, ctx->ops->name, group->ops->name,
                          ctx->why_backend);
    if (group->owner && group->stride != ctx->stride)
        return symm__fail(SYMM_ERR_MISMATCH,
                          "rank %d has heap_bytes %zu, ranks before it have %zu",
                          ctx->rank, ctx->stride, group->stride);
    status = group->owner ? SYMM_OK : open_space(group, ctx);
    if (status == SYMM_OK)
        status = ctx->ops->share(ctx->backend, group->owner);
    if (status != SYMM_OK)
        return status;
    group->joined[ctx->rank] = true;
    for (int r = 0; r < ctx->size; r++) {
        int *mine = &group->peer_fd[ctx->rank * ctx->size + r];

        peer_fd[r] = *mine;
        *mine = -1;
    }
    ctx->thread_group = group;
    ctx->base = group->base;
    ctx->control_base = group->control_base;
    return SYMM_OK;
}

symm_status symm__thread_group_join(symm_thread_group *group, symm_ctx *ctx,
                                    int *peer_fd)
{
    symm_status status;

    pthread_mutex_lock(&group->lock);
    status = join(group, ctx, peer_fd);
    pthread_mutex_unlock(&group->lock);
    return status;
}

void symm__thread_group_hold(symm_team *team, int change)
{
    symm_thread_group *group = team->ctx->thread_group;

    pthread_mutex_lock(&group->lock);
    for (int m = 0; m < team->size; m++) {
        uint16_t *holders = &group->holders[team->world_rank[m]][team->slot];

        *holders = (uint16_t)(*holders + change);
    }
    pthread_mutex_unlock(&group->lock);
}

struct symm_slots symm__thread_group_held(symm_thread_group *group, int rank)
{
    struct symm_slots held = {{0}};

    pthread_mutex_lock(&group->lock);
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        if (group->holders[rank][s] > 0)
            symm__slots_add(&held, s);
    pthread_mutex_unlock(&group->lock);
    return held;
}
