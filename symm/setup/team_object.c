/* SPDX-License-Identifier: MIT */
/*
 * team_object.c - see team_object.h. A team over several hosts is made after its local team: the
 * ranks on this host, which take a slot that is free on all of them.
 */
#include "setup/team_object.h"

#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/workspace.h"
#include "core/captured.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "core/registered.h"
#include "core/segments.h"
#include "engine/runtime.h"
#include "memory/interop.h"
#include "memory/team_plan.h"
#include "setup/consensus.h"
#include "setup/thread_group.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/status.h"

#define WORLD_UID 0x776f726cu
#define NODE_STEP 0x6e6f6465u /* distinguishes the local team from splits */

static void team_range(const symm_ctx *ctx, int slot, size_t *begin, size_t *end)
{
    size_t half = ctx->stride / 2;

    if (slot == 0) {
        *begin = ctx->granularity; /* offset 0 stays unused */
        *end = half;
    } else {
        *begin = half + (size_t)(slot - 1) * ctx->team_bytes;
        *end = *begin + ctx->team_bytes;
    }
}

uint64_t symm__team_slots(const symm_ctx *ctx)
{
    uint64_t taken = 0;

    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        size_t begin, end;

        team_range(ctx, s, &begin, &end);
        if (ctx->teams[s] || end > ctx->stride)
            taken |= (uint64_t)1 << s;
    }
    return taken |
           (ctx->thread_group ? symm__thread_group_held(ctx->thread_group, ctx->rank)
                              : 0);
}

symm_status symm__team_slot(const symm_ctx *ctx, uint64_t taken, int size, int *slot)
{
    *slot = 0;
    while (*slot < SYMM_MAX_TEAMS && (taken >> *slot & 1))
        ++*slot;
    if (*slot < SYMM_MAX_TEAMS)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_NOMEM,
                      "no address range of %zu bytes is free on all %d ranks; destroy "
                      "teams, or lower SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
                      ctx->team_bytes, size);
}

symm_status symm__team_alloc(symm_ctx *ctx, int most, symm_team **team)
{
    symm_team *t = calloc(1, sizeof(*t));

    if (!t)
        goto err_memory;
    t->ctx = ctx;
    pthread_mutex_init(&t->channels, NULL);
    t->world_rank = calloc((size_t)most, sizeof(*t->world_rank));
    t->sent = calloc((size_t)most * SYMM_SIGNALS, sizeof(*t->sent));
    t->awaited = calloc((size_t)most * SYMM_SIGNALS, sizeof(*t->awaited));
    t->ring_ends = calloc(2 * (size_t)most, sizeof(*t->ring_ends));
    if (!t->world_rank || !t->sent || !t->awaited || !t->ring_ends)
        goto err_team;
    for (int i = 0; i < SYMM_CHANNELS; i++) {
        t->channel[i].team = t;
        t->channel[i].index = i;
    }
    *team = t;
    return SYMM_OK;

err_team:
    free(t->awaited);
    free(t->ring_ends);
    free(t->sent);
    free(t->world_rank);
    pthread_mutex_destroy(&t->channels);
    free(t);
err_memory:
    return symm__fail(SYMM_ERR_NOMEM, "no memory for a team of up to %d ranks", most);
}

static void team_place(symm_team *team, uint32_t uid, int slot, int rank, int size)
{
    team->uid = uid;
    team->slot = slot;
    team->rank = rank;
    team->size = size;
    team_range(team->ctx, slot, &team->begin, &team->end);
    for (int m = 0; m < SYMM_MAX_RANKS; m++)
        team->extent[m] = team->begin;
    team->shared = team->begin;
}

/* ---- Teams over several hosts -------------------------------------------------------- */

static void find_hosts(const symm_team *team, struct symm_hierarchy *hierarchy)
{
    const symm_ctx *ctx = team->ctx;

    for (int m = 0; m < team->size; m++) {
        int h = 0;

        while (h < hierarchy->hosts &&
               ctx->host_of[team->world_rank[hierarchy->leader[h]]] !=
                   ctx->host_of[team->world_rank[m]])
            h++;
        if (h == hierarchy->hosts)
            hierarchy->leader[hierarchy->hosts++] = m;
        hierarchy->host[m] = h;
        hierarchy->local[m] = hierarchy->sizes[h]++;
    }
    hierarchy->at = hierarchy->host[team->rank];
    hierarchy->here = hierarchy->local[team->rank];
    hierarchy->equal = hierarchy->regular = true;
    for (int h = 0; h < hierarchy->hosts; h++)
        hierarchy->equal =
            hierarchy->equal && hierarchy->sizes[h] == hierarchy->sizes[0];
    for (int m = 0; m < team->size; m++)
        hierarchy->regular =
            hierarchy->regular && hierarchy->equal &&
            m == hierarchy->host[m] * hierarchy->sizes[0] + hierarchy->local[m];
    for (int m = 0; m < team->size; m++)
        if (m == team->rank || (hierarchy->local[m] == hierarchy->here &&
                                (hierarchy->equal || hierarchy->here == 0)))
            hierarchy->rail[hierarchy->rail_count++] = m;
}

/* Address ranges that are taken on any of this host's members. */
static symm_status find_slot(symm_team *team, const struct symm_hierarchy *hierarchy,
                             double timeout, int *slot)
{
    struct symm_oob_message messages[SYMM_MAX_RANKS] = {0};
    uint64_t mine = symm__team_slots(team->ctx), taken = 0, theirs;
    symm_status status =
        symm__team_exchange(team, "the parts of a team on several hosts", timeout,
                            SYMM_OK, &mine, sizeof(mine), NULL, 0, messages);

    for (int m = 0; status == SYMM_OK && m < team->size; m++) {
        if (messages[m].bytes_count != sizeof(theirs)) {
            status = symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                                team->world_rank[m]);
            break;
        }
        memcpy(&theirs, messages[m].bytes, sizeof(theirs));
        taken |= hierarchy->host[m] == hierarchy->at ? theirs : 0;
    }
    symm__oob_messages_finish(messages, team->size);
    for (*slot = 0; *slot < SYMM_MAX_TEAMS && (taken >> *slot & 1) != 0;)
        ++*slot;
    return status;
}

static symm_status open_node(symm_team *team, struct symm_hierarchy *hierarchy,
                             int slot, double timeout)
{
    symm_ctx *ctx = team->ctx;
    int world_rank[SYMM_MAX_RANKS], count = 0;
    symm_team *node;
    symm_status status;

    if (slot == SYMM_MAX_TEAMS) /* the same on all members of this host */
        return symm__fail(
            SYMM_ERR_NOMEM,
            "no address range of %zu bytes is free on host %s for the part "
            "of a team that is there; destroy teams, or lower "
            "SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
            ctx->team_bytes, symm__host_of_rank(ctx, ctx->rank));
    for (int m = 0; m < team->size; m++)
        if (hierarchy->host[m] == hierarchy->at)
            world_rank[count++] = team->world_rank[m];
    status = symm__team_alloc(ctx, count, &node);
    if (status != SYMM_OK)
        return status;
    node->inner = true;
    status = symm__team_complete(
        node, symm__team_uid(team, NODE_STEP, (uint32_t)hierarchy->at), slot,
        world_rank, count, timeout);
    if (status == SYMM_OK)
        hierarchy->local_team = node;
    else
        symm__team_free(node);
    return status;
}

static symm_status local_open(symm_team *team, double timeout)
{
    double until = symm__now() + timeout;
    struct symm_oob_message messages[SYMM_MAX_RANKS] = {0};
    struct symm_hierarchy *hierarchy;
    int slot = 0;
    symm_status status;

    if (!symm__team_spans(team))
        return SYMM_OK;
    hierarchy = calloc(1, sizeof(*hierarchy));
    if (!hierarchy)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team over several hosts");
    pthread_mutex_init(&hierarchy->turn, NULL);
    pthread_cond_init(&hierarchy->turns, NULL);
    team->hierarchy = hierarchy;
    find_hosts(team, hierarchy);
    status = find_slot(team, hierarchy, timeout, &slot);
    if (status != SYMM_OK)
        return status;
    status = open_node(team, hierarchy, slot, until - symm__now());
    status =
        symm__team_exchange(team, "the start of a team over several hosts",
                            until - symm__now(), status, NULL, 0, NULL, 0, messages);
    symm__oob_messages_finish(messages, team->size);
    if (status == SYMM_OK && team->engine)
        status = symm__engine_comm_among(team, hierarchy->rail, hierarchy->rail_count,
                                         until - symm__now(), &team->engine->rail);
    return status;
}

static void local_close(symm_team *team)
{
    struct symm_hierarchy *hierarchy = team->hierarchy;
    symm_ctx *ctx = team->ctx;

    if (!hierarchy)
        return;
    if (hierarchy->local_team) {
        ctx->teams[hierarchy->local_team->slot] = NULL;
        symm__team_free(hierarchy->local_team);
    }
    pthread_cond_destroy(&hierarchy->turns);
    pthread_mutex_destroy(&hierarchy->turn);
    free(hierarchy);
    team->hierarchy = NULL;
}

/* ---- A team ---------------------------------------------------------------------------- */

void symm__team_free(symm_team *team)
{
    const struct symm_device_ops *device;

    if (!team)
        return;
    device = team->ctx->device_ops;
    (void)symm__interop_forget(team);
    for (size_t i = 0; i < team->buffer_count; i++)
        free(team->buffers[i]);
    free(team->buffers);
    symm__captured_unlist(team);
    if (device)
        device->team_close(team); /* its kernels have left when this returns */
    symm__engine_team_close(team);
    local_close(team);
    symm__workspace_close(team);
    symm__plan_close(team);
    symm__captured_close(team);
    symm__registered_close(team);
    symm__memory_release(team);
    if (team->ctx->thread_group && team->slot != 0)
        symm__thread_group_hold(team, -1); /* a split may take the place from here on */
    symm__heap_finish(&team->heap);
    for (int i = 0; i < SYMM_CHANNELS; i++)
        free(team->channel[i].prepared);
    free(team->awaited);
    free(team->ring_ends);
    free(team->sent);
    free(team->world_rank);
    pthread_mutex_destroy(&team->channels);
    free(team);
}

/* Own memory of a new team: its pad, and what kernels on a device need beside it. */
static symm_status team_memory(symm_team *team)
{
    const struct symm_device_ops *device = team->ctx->device_ops;
    uint64_t begin = team->begin + SYMM_PAD_BYTES;
    uint64_t end = device ? device->scratch_end(begin) : begin;
    symm_status status;

    if (end >= team->end)
        return symm__fail(SYMM_ERR_NOMEM,
                          "a team's range of %zu bytes does not hold its pad and the "
                          "%zu bytes that its kernels need; raise SYMM_TEAM_BYTES and "
                          "SYMM_HEAP_BYTES",
                          team->end - team->begin, (size_t)(end - begin));
    status = symm__memory_grow(team, end);
    if (status == SYMM_OK)
        status = symm__heap_init(&team->heap, end, team->end);
    if (status != SYMM_OK)
        return status;
    team->scratch_bytes = (size_t)(end - begin);
    return device ? device->team_open(team) : SYMM_OK;
}

/*
 * From what all members sent: the team's number, above those of all teams that any of them is
 * or was in, and the place of its agreement on survivors.
 */
static symm_status team_adopt(symm_team *team, const uint64_t *sent)
{
    uint64_t consensus_words[SYMM_MAX_RANKS];
    uint32_t highest = 0;

    for (int m = 0; m < team->size; m++) {
        uint32_t theirs = (uint32_t)(sent[m] >> 32);

        consensus_words[m] = (uint32_t)sent[m];
        highest = theirs > highest ? theirs : highest;
    }
    if (team->slot != 0) {
        team->number = highest < UINT32_MAX ? highest + 1 : highest;
        team->ctx->teams_numbered = team->number;
    }
    return symm__shrink_adopt(team, consensus_words);
}

/* Memory, pads, heap: collective over the new team's members. */
static symm_status team_open(symm_team *team, symm_status mine, double timeout)
{
    symm_ctx *ctx = team->ctx;
    struct symm_record *record = &symm__own_control(ctx)->record[team->slot];
    uint64_t consensus_word;
    symm_status status;

    /* An earlier team's failure in this slot: no member of this team has read it yet. */
    __atomic_store_n(&record->state, SYMM_OK, __ATOMIC_RELAXED);
    __atomic_store_n(&record->team_uid, team->uid, __ATOMIC_RELAXED);
    consensus_word = symm__shrink_prepare(team) | (uint64_t)ctx->teams_numbered << 32;
    status = mine == SYMM_OK ? team_memory(team) : mine;
    status = symm__memory_share(team, "the start of a team", timeout, status,
                                consensus_word, team_adopt);
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < team->size; m++)
        team->pad[m] = symm__is_far(ctx, team->world_rank[m])
                           ? NULL
                           : (struct symm_pad *)(void *)(symm__heap_base(
                                                             ctx, team->world_rank[m]) +
                                                         team->begin);
    for (int i = 0; i < SYMM_HOST_CHANNELS; i++) /* the others run on devices */
        symm__channel_init(&team->channel[i]);
    return SYMM_OK;
}

uint32_t symm__team_uid(const symm_team *parent, uint32_t step, uint32_t part)
{
    const uint32_t path[3] = {parent->uid, step, part};
    uint32_t uid = symm__fnv_short(symm__fnv(SYMM_FNV_BASIS, path, sizeof(path)));

    return uid ? uid : 1;
}

/* `mine`: a failure of this rank before this step, reported to all. */
static symm_status complete(symm_team *made, symm_status mine, uint32_t uid, int slot,
                            const int *world_rank, int size, double timeout)
{
    symm_ctx *ctx = made->ctx;
    int rank = 0;
    symm_status status;

    while (world_rank[rank] != ctx->rank)
        rank++;
    team_place(made, uid, slot, rank, size);
    memcpy(made->world_rank, world_rank, (size_t)size * sizeof(*world_rank));
    if (ctx->thread_group && slot != 0)
        symm__thread_group_hold(made, 1);
    status = team_open(made, mine, timeout);
    if (status != SYMM_OK)
        return status;
    ctx->teams[slot] = made;
    __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    status = symm__engine_team_open(made, timeout);
    if (status == SYMM_OK)
        status = local_open(made, timeout);
    if (status != SYMM_OK)
        ctx->teams[slot] = NULL;
    return status;
}

symm_status symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                const int *world_rank, int size, double timeout)
{
    return complete(made, SYMM_OK, uid, slot, world_rank, size, timeout);
}

symm_status symm__team_create_world(symm_ctx *ctx, symm_status mine, double timeout)
{
    int world_rank[SYMM_MAX_RANKS];
    symm_team *team;
    symm_status status = symm__team_alloc(ctx, ctx->size, &team);

    if (status != SYMM_OK)
        return status;
    for (int r = 0; r < ctx->size; r++)
        world_rank[r] = r;
    team->before = SYMM_CONTROL_MAGIC;
    status = complete(team, mine, WORLD_UID, 0, world_rank, ctx->size, timeout);
    if (status != SYMM_OK)
        symm__team_free(team);
    return status;
}
