/* SPDX-License-Identifier: MIT */
/* team.c - see team.h; and symm.h's queries of a team. */
#include "core/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_wait.h"
#include "core/earlier.h"
#include "sight/sight.h"
#include "util/status.h"

const char *symm__team_name(const symm_team *team, char *text, size_t bytes)
{
    size_t used;

    if (team->slot == 0 && !team->name[0]) {
        snprintf(text, bytes, "world");
        return text;
    }
    if (team->slot == 0) {
        snprintf(text, bytes, "team '%s' (world)", team->name);
        return text;
    }
    if (team->name[0])
        used = (size_t)snprintf(text, bytes, "team '%s' (%" PRIu32 ") [", team->name,
                                team->number);
    else if (team->number > 0)
        used = (size_t)snprintf(text, bytes, "team %" PRIu32 " [", team->number);
    else
        used = (size_t)snprintf(text, bytes, "team [");
    for (int m = 0; m < team->size && used + 12 < bytes; m++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", m ? " " : "",
                                 team->world_rank[m]);
    snprintf(text + used, bytes - used, "%s]", used + 12 < bytes ? "" : " ...");
    return text;
}

symm_status symm__team_check_in(const symm_team *team, const char *function)
{
    if (!team)
        return symm__fail(SYMM_ERR_INVALID, "%s: the team is NULL", function);
    return symm__ctx_check_in(team->ctx, function);
}

void symm__team_describe(symm_team *team)
{
    const symm_ctx *ctx = team->ctx;
    struct symm_device_team *device = &team->device;

    device->layout = SYMM_DEVICE_LAYOUT;
    device->rank = team->local_rank;
    device->size = team->local_size;
    device->timeout = (uint64_t)(ctx->timeout * 1e9);
    device->pad = team->begin;
    for (int p = 0; p < team->local_size; p++)
        device->base[p] = symm__heap_base(ctx, symm__team_rank_at(team, p));
}

/* After an exchange that failed: the reason may be the team's failure, of which another rank has
 * learned first. This rank knows of it now, too: so all can make the next exchange in spite of it. */
static void learn_failure(symm_team *team)
{
    char sentence[SYMM_ERROR_BYTES];

    symm__error_save(sentence);
    if (symm__team_gone_on(team, NULL, -1) != SYMM_OK)
        symm__error_restore(sentence);
}

symm_status symm__team_exchange(symm_team *team, const char *what, double timeout,
                                const struct symm_own_message *own,
                                struct symm_oob_message *messages)
{
    const bool gives = own->status == SYMM_OK;
    symm_status status;
    char name[64], step[128];
    const bool follows = team->opening && team->before == 0;
    struct symm_exchange exchange = {
        .what = step,
        .tag = team->uid,
        .sequence = team->sequence,
        .next = &team->sequence,
        .agreed = team->agreed,
        .again = team->again,
        .before = follows ? team->uid : team->before,
        .before_sequence = follows ? team->sequence - 1 : team->before_sequence,
        .members = team->world_rank,
        .count = team->size,
        .timeout = timeout,
        .stop = symm__team_gone_on,
        .stop_arg = team,
        .status = own->status,
        .bytes = gives ? own->bytes : NULL,
        .bytes_count = gives ? own->bytes_count : 0,
        .fds = gives ? own->fds : NULL,
        .fds_count = gives ? own->fds_count : 0,
    };

    team->agreed = team->again = false;
    team->before = 0;
    team->had_failed = __atomic_load_n(&team->failed, __ATOMIC_RELAXED) != SYMM_OK;
    snprintf(step, sizeof(step), "%s (%s)", what,
             symm__team_name(team, name, sizeof(name)));
    status = symm__control_exchange(team->ctx, team->uid, what, &exchange, messages);
    if (status != SYMM_OK) {
        symm__earlier_keep_last(team->ctx);
        learn_failure(team);
    }
    return status;
}

void symm__team_show(const symm_team *team)
{
    symm__sight_team(team->ctx->sight, team->slot, team->uid, team->number, team->name,
                     team->rank, team->size, team->world_rank);
}

symm_status symm_team_set_name(symm_team *team, const char *name)
{
    symm_status status = symm__team_check(team);
    size_t length = name ? strlen(name) : 0;

    if (status != SYMM_OK)
        return status;
    if (length >= SYMM_TEAM_NAME_BYTES)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_team_set_name: the name '%.40s...' has %zu bytes; at "
                          "most %d are possible",
                          name, length, SYMM_TEAM_NAME_BYTES - 1);
    pthread_mutex_lock(&team->ctx->lock);
    memset(team->name, 0, sizeof(team->name));
    memcpy(team->name, name ? name : "", length);
    symm__team_show(team);
    pthread_mutex_unlock(&team->ctx->lock);
    return SYMM_OK;
}

symm_team *symm_team_world(symm_ctx *ctx)
{
    return ctx ? ctx->teams[0] : NULL;
}

int symm_team_rank(const symm_team *team)
{
    return team ? team->rank : -1;
}

int symm_team_size(const symm_team *team)
{
    return team ? team->size : 0;
}

int symm_team_world_rank(const symm_team *team, int rank)
{
    return team && rank >= 0 && rank < team->size ? team->world_rank[rank] : -1;
}

/* symm__team_contains for teams over several domains, member by member; false also without memory
 * for that. */
static bool contains_all(const symm_team *big, const symm_team *small)
{
    bool *has = calloc((size_t)big->ctx->size, sizeof(*has)), all = has != NULL;

    for (int m = 0; has && m < big->size; m++)
        has[big->world_rank[m]] = true;
    for (int m = 0; all && m < small->size; m++)
        all = has[small->world_rank[m]];
    free(has);
    return all;
}

bool symm__team_contains(const symm_team *big, const symm_team *small)
{
    if (big == small || big->slot == 0)
        return true;
    if (small->size > big->size)
        return false;
    for (int p = 0; p < small->local_size; p++)
        if (symm__team_place_of(big, symm__team_rank_at(small, p)) < 0)
            return false;
    return !small->spans || contains_all(big, small);
}

/* Where ptr is in this rank's heap; from stride on: outside it. */
static size_t own_offset(const symm_ctx *ctx, const void *ptr)
{
    return (uintptr_t)ptr - (uintptr_t)(symm__heap_base(ctx, ctx->rank));
}

/* The team whose range has that offset; NULL: none. */
static const symm_team *owner_of(const symm_ctx *ctx, size_t at)
{
    size_t slot;

    if (at >= ctx->stride)
        return NULL;
    slot = at < ctx->stride / 2 ? 0 : (at - ctx->stride / 2) / ctx->team_bytes + 1;
    return slot < SYMM_MAX_TEAMS ? ctx->teams[slot] : NULL;
}

/* Buffers that this thread's last calls lay in: they stay where they are until one is freed. */
struct extent {
    uintptr_t begin;
    size_t bytes;
    uint64_t freed; /* symm__heap_freed when the buffer was looked up */
};

static struct extent *extent_slot(const void *ptr)
{
    static _Thread_local struct extent known[8];
    const uint64_t hash = (uint64_t)(uintptr_t)ptr * UINT64_C(0x9e3779b97f4a7c15);

    return &known[hash >> 61];
}

static bool extent_has(const struct extent *extent, const void *ptr, size_t bytes)
{
    uintptr_t at = (uintptr_t)ptr - extent->begin;

    return bytes <= extent->bytes && at <= extent->bytes - bytes;
}

static symm_status extent_look_up(const symm_ctx *ctx, const char *what,
                                  const char *which, const void *ptr, size_t bytes,
                                  struct extent *extent)
{
    struct symm_block block = {.state = SYMM_BLOCK_FREE};
    const size_t at = own_offset(ctx, ptr);
    const symm_team *owner = owner_of(ctx, at);

    /* first: then a block that is freed meanwhile is noticed */
    extent->freed = symm__heap_freed();
    if (!owner || !symm__heap_look_up(&owner->heap, at, &block) ||
        block.state != SYMM_BLOCK_LIVE)
        return symm__fail(
            SYMM_ERR_INVALID, "%s: `%s` %p is in rank %d's heap, but in no buffer%s",
            what, which, ptr, ctx->rank,
            block.state == SYMM_BLOCK_RETIRED ? ": that was given back" : "");
    extent->begin = (uintptr_t)ptr - (at - block.offset);
    extent->bytes = block.requested;
    if (extent_has(extent, ptr, bytes))
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "%s: `%s` [%p, +%zu) ends beyond the buffer of alloc_id %llu "
                      "that it begins in, which has %zu bytes from %#zx on",
                      what, which, ptr, bytes, (unsigned long long)block.id,
                      block.requested, (size_t)extent->begin);
}

symm_status symm__team_extent(const symm_ctx *ctx, const char *what, const char *which,
                              const void *ptr, size_t bytes)
{
    struct extent *known = extent_slot(ptr), fresh;
    symm_status status;

    if (own_offset(ctx, ptr) >= ctx->stride || bytes == 0)
        return SYMM_OK;
    if (known->freed == symm__heap_freed() && extent_has(known, ptr, bytes))
        return SYMM_OK;
    status = extent_look_up(ctx, what, which, ptr, bytes, &fresh);
    if (status == SYMM_OK)
        *known = fresh;
    return status;
}

bool symm__team_symmetric(const symm_team *team, const void *ptr, size_t bytes,
                          size_t *offset)
{
    const size_t at = own_offset(team->ctx, ptr);
    const symm_team *owner = owner_of(team->ctx, at);
    size_t shared;

    if (!owner || !symm__team_contains(owner, team))
        return false;
    /* acquire: pairs with the release after the mapping, of another thread's rendezvous */
    shared = __atomic_load_n(&owner->shared, __ATOMIC_ACQUIRE);
    if (at < owner->heap.begin || at > shared || bytes > shared - at)
        return false;
    *offset = at;
    return true;
}

/* ---- Channels, hosts, devices */

symm_status symm__channel_cache(struct symm_team_channel *channel)
{
    if (__builtin_expect(channel->prepared != NULL, 1))
        return SYMM_OK;
    channel->prepared = calloc(SYMM_ENTRIES, sizeof(*channel->prepared));
    if (!channel->prepared)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a channel's call cache");
    return SYMM_OK;
}

symm_status symm__team_reach(const char *what, const symm_team *team, int peer)
{
    const symm_ctx *ctx = team->ctx;
    int rank = team->world_rank[peer];

    if (symm__is_mapped(ctx, rank))
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_UNSUPPORTED,
        "%s: rank %d is on host %s, whose memory is not mapped on host %s; "
        "symm_send and symm_recv reach it, with an engine",
        what, rank, symm__host_of_rank(ctx, rank), symm__host_of_rank(ctx, ctx->rank));
}
