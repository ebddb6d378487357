/* SPDX-License-Identifier: MIT */
/* plan_site.c - see team_plan.h: a call and its op in a plan. */
#include "memory/team_plan.h"

#include <string.h>

#include "core/team.h"
#include "util/status.h"

static const struct symm_plan_site *site_find(const struct symm_team_plan *plan,
                                              const char *name)
{
    int low = 0, high = plan->plan->op_count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(plan->sites[middle].op->site, name);

        if (order == 0)
            return &plan->sites[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Every put calls this: without any plan it must cost nothing. */
static bool has_plans(const symm_ctx *ctx)
{
    return __atomic_load_n(&ctx->planned, __ATOMIC_ACQUIRE);
}

/* The team's own plan comes first, then that of the team whose local team it is. */
const struct symm_plan_site *symm__plan_find(const symm_team *team, const char *site)
{
    const symm_ctx *ctx = team->ctx;

    if (!site || !has_plans(ctx))
        return NULL;
    for (int s = -1; s < SYMM_MAX_TEAMS; s++) {
        const symm_team *owner = s < 0 ? team : ctx->teams[s];
        const struct symm_plan_site *found;

        /* acquire: pairs with the release of the rendezvous that compared the plan */
        if (!owner || !owner->plan ||
            !__atomic_load_n(&owner->plan->agreed, __ATOMIC_ACQUIRE) ||
            !symm__team_contains(owner, team))
            continue;
        found = site_find(owner->plan, site);
        if (found)
            return found;
    }
    return NULL;
}

symm_status symm__plan_expect(const struct symm_plan_site *site)
{
    struct symm_team_plan *plan = site->plan;
    int turn;

    if (!plan->checks)
        return SYMM_OK;
    pthread_mutex_lock(&plan->lock);
    turn = plan->turn[site->op->channel];
    pthread_mutex_unlock(&plan->lock);
    if (turn == site->index)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_INVALID,
        "plan '%s' (SYMM_CHECK=plan): rank %d calls '%s' where the plan has '%s' next "
        "on channel %d; make the calls of each stream in the program's order",
        plan->path, plan->team->ctx->rank, site->op->site, plan->plan->ops[turn].site,
        site->op->channel);
}

symm_status symm__plan_too_large(const struct symm_plan_site *site, const char *what,
                                 size_t bytes)
{
    return symm__fail(
        SYMM_ERR_INVALID,
        "plan '%s': rank %d calls %s at '%s' with %zu bytes, and the plan "
        "is for up to %zu; make the plan of a program with a larger bound",
        site->plan->path, site->plan->team->ctx->rank, what, site->op->site, bytes,
        site->op->up_to);
}

void symm__plan_advance(const struct symm_plan_site *site)
{
    struct symm_team_plan *plan = site->plan;

    if (!plan->checks)
        return;
    pthread_mutex_lock(&plan->lock);
    plan->turn[site->op->channel] = site->next;
    pthread_mutex_unlock(&plan->lock);
}

static char *arena_of(const struct symm_team_plan *plan)
{
    const symm_ctx *ctx = plan->team->ctx;

    return symm__heap_base(ctx, ctx->rank) + plan->arena;
}

static bool is_freed(const symm_plan *plan, int buffer)
{
    for (int i = 0; i < plan->op_count; i++)
        for (int k = 0; k < plan->ops[i].free_count; k++)
            if (plan->ops[i].frees[k] == buffer)
                return true;
    return false;
}

/* Whether the buffer at `ptr` is always live, on bytes of its own: then any call may use it. */
static bool is_alone(const struct symm_team_plan *plan, const void *ptr)
{
    const size_t at = (size_t)((const char *)ptr - arena_of(plan));
    const symm_plan_buffer *buffers = plan->plan->buffers;
    int found = 0;

    while (found < plan->plan->buffer_count &&
           at - buffers[found].offset >= buffers[found].bytes)
        found++;
    for (int b = 0; b < plan->plan->buffer_count; b++)
        if (b != found && found < plan->plan->buffer_count &&
            buffers[b].offset < buffers[found].offset + buffers[found].bytes &&
            buffers[found].offset < buffers[b].offset + buffers[b].bytes)
            return false;
    return found < plan->plan->buffer_count && !is_freed(plan->plan, found);
}

symm_status symm__plan_refuse(const symm_team *team, const char *what, const char *site,
                              const void *ptr)
{
    if (!ptr || !has_plans(team->ctx))
        return SYMM_OK;
    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        const symm_team *owner = team->ctx->teams[s];
        const struct symm_team_plan *plan = owner ? owner->plan : NULL;

        if (!plan || !plan->checks ||
            (uintptr_t)ptr - (uintptr_t)arena_of(plan) >= plan->plan->arena_bytes ||
            is_alone(plan, ptr))
            continue;
        return symm__fail(
            SYMM_ERR_INVALID,
            "plan '%s' (SYMM_CHECK=plan): rank %d calls %s at %s%s%s, "
            "which the plan does not know, on memory of its arena (offset "
            "%zu); nothing keeps that apart from what shares these bytes",
            plan->path, owner->ctx->rank, what, site ? "site '" : "no",
            site ? site : " site", site ? "'" : "",
            (size_t)((const char *)ptr - arena_of(plan)));
    }
    return SYMM_OK;
}

bool symm__plan_freed(const struct symm_plan_site *site, int i, void **at,
                      size_t *bytes)
{
    const struct symm_team_plan *plan = site->plan;
    const symm_plan_buffer *buffer;

    if (!plan->checks || i >= site->op->free_count)
        return false;
    buffer = &plan->plan->buffers[site->op->frees[i]];
    *at = arena_of(plan) + buffer->offset;
    *bytes = buffer->bytes;
    return true;
}

void symm__plan_fill(const struct symm_plan_site *site)
{
    size_t bytes;
    void *at;

    for (int i = 0; symm__plan_freed(site, i, &at, &bytes); i++)
        memset(at, SYMM_PLAN_FREED, bytes);
}
