/* SPDX-License-Identifier: MIT */
/*
 * team.c - teams: who is in them, their range of the heap, their pads and lanes.
 *
 * The world's range is the first half of the heap. The second half is cut into ranges of
 * team_bytes; a team's slot (the index of its records in control pages) names its range. A
 * split takes the lowest slot that is free on every member, so that one team never moves
 * another's offsets.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/hierarchical.h"
#include "core/context.h"
#include "core/device_ops.h"
#include "engine/runtime.h"
#include "memory/interop.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "util/status.h"

#define WORLD_UID 0x776f726cu

/* What a rank says at a split. */
struct wire_split {
    uint64_t slots; /* bit s: slot s is taken here */
    int32_t color, key;
};

/* A rank's place in the new team. */
struct place {
    int32_t key;
    int parent_rank;
};

static uint32_t mix(uint32_t hash, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        hash = (hash ^ (value >> (8 * i) & 0xff)) * 16777619u; /* FNV-1a */
    return hash;
}

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
    return taken | (ctx->group ? symm__group_held(ctx->group, ctx->rank) : 0);
}

symm_status symm__team_create(symm_ctx *ctx, int most, symm_team **team)
{
    symm_team *t = calloc(1, sizeof(*t));

    if (!t)
        goto err_memory;
    t->ctx = ctx;
    pthread_mutex_init(&t->lanes, NULL);
    t->world_rank = calloc((size_t)most, sizeof(*t->world_rank));
    t->sent = calloc((size_t)most * SYMM_SIGNALS, sizeof(*t->sent));
    t->awaited = calloc((size_t)most * SYMM_SIGNALS, sizeof(*t->awaited));
    if (!t->world_rank || !t->sent || !t->awaited)
        goto err_team;
    for (int i = 0; i < SYMM_CHANNELS; i++) {
        t->lane[i].team = t;
        t->lane[i].index = i;
    }
    *team = t;
    return SYMM_OK;

err_team:
    free(t->awaited);
    free(t->sent);
    free(t->world_rank);
    pthread_mutex_destroy(&t->lanes);
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

void symm__team_describe(symm_team *team)
{
    const symm_ctx *ctx = team->ctx;
    struct symm_device_team *device = &team->device;

    device->layout = SYMM_DEVICE_LAYOUT;
    device->rank = team->rank;
    device->size = team->size;
    device->timeout = (uint64_t)(ctx->deadline * 1e9);
    device->pad = team->begin;
    for (int m = 0; m < team->size; m++)
        device->base[m] = ctx->base + (size_t)team->world_rank[m] * ctx->stride;
}

void symm__team_free(symm_team *team)
{
    const struct symm_device_ops *device;

    if (!team)
        return;
    device = team->ctx->calls;
    symm__interop_forget(team);
    for (size_t i = 0; i < team->buffer_count; i++)
        free(team->buffers[i]);
    free(team->buffers);
    if (device)
        device->team_close(team); /* its kernels have left when this returns */
    symm__engine_team_close(team);
    symm__wide_close(team);
    symm__plan_close(team);
    if (device)
        device->register_close(team);
    symm__memory_release(team);
    if (team->ctx->group && team->slot != 0)
        symm__group_hold(team, -1); /* a split may take the place from here on */
    symm__heap_finish(&team->heap);
    for (int i = 0; i < SYMM_CHANNELS; i++)
        free(team->lane[i].cached);
    free(team->awaited);
    free(team->sent);
    free(team->world_rank);
    pthread_mutex_destroy(&team->lanes);
    free(team);
}

static void lane_init(struct symm_lane *lane)
{
    symm_team *team = lane->team;
    symm_ctx *ctx = team->ctx;
    struct symm_state *state = &lane->state;

    state->epoch = ctx->epoch_start;
    state->spin = ctx->spin;
    state->rank = team->rank;
    state->size = team->size;
    for (int m = 0; m < team->size; m++) {
        if (!team->pad[m]) /* on another host: kernels run on the parts of hosts */
            continue;
        state->slots[m] = team->pad[m]->channel[lane->index].slot;
        state->base[m] = ctx->base + (size_t)team->world_rank[m] * ctx->stride;
    }
    state->sleepers = &team->pad[team->rank]->wake[lane->index].sleepers;
    state->stall = symm__wait_stall;
    state->rouse = symm__wait_rouse;
    state->owner = lane;
}

/* Own memory of a new team: its pad, and what kernels on a device need beside it. */
static symm_status team_memory(symm_team *team)
{
    const struct symm_device_ops *device = team->ctx->calls;
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
    uint64_t boards[SYMM_MAX_RANKS];
    uint32_t highest = 0;

    for (int m = 0; m < team->size; m++) {
        uint32_t theirs = (uint32_t)(sent[m] >> 32);

        boards[m] = (uint32_t)sent[m];
        highest = theirs > highest ? theirs : highest;
    }
    if (team->slot != 0) {
        team->number = highest < UINT32_MAX ? highest + 1 : highest;
        team->ctx->teams_numbered = team->number;
    }
    return symm__shrink_adopt(team, boards);
}

/* Memory, pads, heap: collective over the new team's members. */
static symm_status team_open(symm_team *team, symm_status mine, double deadline)
{
    symm_ctx *ctx = team->ctx;
    struct symm_record *record = &ctx->control[ctx->rank]->record[team->slot];
    uint64_t board;
    symm_status status;

    /* An earlier team's failure in this slot: nobody of this team has looked yet. */
    __atomic_store_n(&record->state, SYMM_OK, __ATOMIC_RELAXED);
    __atomic_store_n(&record->team_uid, team->uid, __ATOMIC_RELAXED);
    board = symm__shrink_prepare(team) | (uint64_t)ctx->teams_numbered << 32;
    status = mine == SYMM_OK ? team_memory(team) : mine;
    status = symm__memory_share(team, "the start of a team", deadline, status, board,
                                team_adopt);
    if (status != SYMM_OK)
        return status;
    for (int m = 0; m < team->size; m++)
        team->pad[m] = symm__is_far(ctx, team->world_rank[m])
                           ? NULL
                           : (struct symm_pad *)(void *)(ctx->base +
                                                         (size_t)team->world_rank[m] *
                                                             ctx->stride +
                                                         team->begin);
    for (int i = 0; i < SYMM_HOST_CHANNELS; i++) /* the others run on devices */
        lane_init(&team->lane[i]);
    return SYMM_OK;
}

symm_status symm__team_create_world(symm_ctx *ctx, symm_status mine, double deadline)
{
    symm_team *team;
    symm_status status = symm__team_create(ctx, ctx->size, &team);

    if (status != SYMM_OK)
        return status;
    team_place(team, WORLD_UID, 0, ctx->rank, ctx->size);
    for (int r = 0; r < ctx->size; r++)
        team->world_rank[r] = r;
    team->before = SYMM_CONTROL_MAGIC;
    status = team_open(team, mine, deadline);
    if (status != SYMM_OK) {
        symm__team_free(team);
        return status;
    }
    ctx->teams[0] = team;
    status = symm__engine_team_open(team, deadline);
    if (status == SYMM_OK)
        status = symm__wide_open(team, deadline);
    if (status != SYMM_OK) {
        ctx->teams[0] = NULL;
        symm__team_free(team);
    }
    return status;
}

symm_status symm__team_exchange(symm_team *team, const char *what, double deadline,
                                symm_status mine, const void *bytes, size_t bytes_count,
                                const int *fds, int fds_count,
                                struct symm_parcel *parcels)
{
    char name[64], step[128];
    struct symm_exchange exchange = {
        .what = step,
        .tag = team->uid,
        .sequence = team->sequence,
        .next = &team->sequence,
        .agreed = team->agreed,
        .again = team->again,
        .before = team->before,
        .members = team->world_rank,
        .count = team->size,
        .deadline = deadline,
        .status = mine,
        .bytes = mine == SYMM_OK ? bytes : NULL,
        .bytes_count = mine == SYMM_OK ? bytes_count : 0,
        .fds = mine == SYMM_OK ? fds : NULL,
        .fds_count = mine == SYMM_OK ? fds_count : 0,
    };

    team->agreed = team->again = false;
    team->before = 0;
    snprintf(step, sizeof(step), "%s (%s)", what,
             symm__team_name(team, name, sizeof(name)));
    return symm__exchange(&team->ctx->link, &exchange, parcels);
}

static int place_compare(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->parent_rank < b->parent_rank ? -1 : a->parent_rank > b->parent_rank;
}

/* From everybody's words: my team's members in order, and the slots taken on any of them. */
static symm_status split_members(const symm_team *parent,
                                 const struct symm_parcel *parcels, int color,
                                 struct place *places, int *size, uint64_t *taken)
{
    *size = 0;
    *taken = 0;
    for (int m = 0; m < parent->size; m++) {
        struct wire_split wire;

        if (parcels[m].bytes_count != sizeof(wire))
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                              parent->world_rank[m]);
        memcpy(&wire, parcels[m].bytes, sizeof(wire));
        if (wire.color != color)
            continue;
        places[*size] = (struct place){.key = wire.key, .parent_rank = m};
        *taken |= wire.slots;
        ++*size;
    }
    qsort(places, (size_t)*size, sizeof(*places), place_compare);
    return SYMM_OK;
}

uint32_t symm__team_uid(const symm_team *parent, uint32_t step, uint32_t part)
{
    uint32_t uid = mix(mix(mix(2166136261u, parent->uid), step), part);

    return uid ? uid : 1;
}

symm_status symm__team_settle(symm_team *made, uint32_t uid, int slot,
                              const int *world_rank, int size, double deadline)
{
    symm_ctx *ctx = made->ctx;
    int rank = 0;
    symm_status status;

    while (world_rank[rank] != ctx->rank)
        rank++;
    team_place(made, uid, slot, rank, size);
    memcpy(made->world_rank, world_rank, (size_t)size * sizeof(*world_rank));
    if (ctx->group)
        symm__group_hold(made, 1);
    status = team_open(made, SYMM_OK, deadline);
    if (status != SYMM_OK)
        return status;
    ctx->teams[slot] = made;
    __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    status = symm__engine_team_open(made, deadline);
    if (status == SYMM_OK)
        status = symm__wide_open(made, deadline);
    if (status != SYMM_OK)
        ctx->teams[slot] = NULL;
    return status;
}

/* Gives the prepared team its place and opens it with its members. */
static symm_status split_open(symm_team *parent, symm_team *made, int color,
                              const struct place *places, int size, uint64_t taken)
{
    symm_ctx *ctx = parent->ctx;
    uint32_t uid = symm__team_uid(parent, parent->sequence, (uint32_t)color);
    int slot = 0, world_rank[SYMM_MAX_RANKS];

    while (slot < SYMM_MAX_TEAMS && (taken >> slot & 1))
        slot++;
    if (slot == SYMM_MAX_TEAMS) /* the same on every member: nobody waits for us */
        return symm__fail(
            SYMM_ERR_NOMEM,
            "no address range of %zu bytes is free on all %d ranks; destroy "
            "teams, or lower SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
            ctx->team_bytes, size);
    for (int m = 0; m < size; m++)
        world_rank[m] = parent->world_rank[places[m].parent_rank];
    made->before = parent->uid;
    return symm__team_settle(made, uid, slot, world_rank, size, ctx->deadline);
}

/* With the context locked. *team: the new one, or NULL for color < 0. */
static symm_status split(symm_team *parent, int color, int key, symm_team **team)
{
    struct symm_parcel parcels[SYMM_MAX_RANKS] = {0};
    struct place places[SYMM_MAX_RANKS];
    struct wire_split wire = {.slots = symm__team_slots(parent->ctx),
                              .color = color < 0 ? -1 : color,
                              .key = key};
    symm_team *made = NULL;
    uint64_t taken;
    int size;
    /* What can fail here fails before the exchange, so that everybody learns of it. */
    symm_status status = symm__team_create(parent->ctx, parent->size, &made);

    parent->again = true; /* a split that fails leaves the parent as it was */
    status = symm__team_exchange(parent, "split", parent->ctx->deadline, status, &wire,
                                 sizeof(wire), NULL, 0, parcels);
    if (status == SYMM_OK) {
        status = split_members(parent, parcels, wire.color, places, &size, &taken);
        symm__parcels_finish(parcels, parent->size);
    }
    if (status == SYMM_OK && color >= 0)
        status = split_open(parent, made, color, places, size, taken);
    if (status != SYMM_OK || color < 0) {
        symm__team_free(made);
        made = NULL;
    }
    if (status == SYMM_OK)
        *team = made;
    return status;
}

symm_status symm_team_split(symm_team *parent, int color, int key, symm_team **team)
{
    symm_status status = symm__team_check(parent);

    if (status != SYMM_OK)
        return status;
    if (!team)
        return symm__fail(SYMM_ERR_INVALID, "symm_team_split: team is NULL");
    pthread_mutex_lock(&parent->ctx->lock);
    status = split(parent, color, key, team);
    if (status == SYMM_OK && symm__is_recorded(parent->ctx))
        symm__record_split(parent, *team);
    pthread_mutex_unlock(&parent->ctx->lock);
    return status;
}

/*
 * What is queued for the team runs; each call is bounded by its deadline. Other streams are
 * not waited for: what they wait for may be this thread's next call. (On a device streams are
 * the caller's own, and the table's team_close waits.)
 */
static bool has_lane(symm_team *team, const void *stream)
{
    int lane;

    pthread_mutex_lock(&team->lanes);
    lane = symm__lane_find(team, stream);
    pthread_mutex_unlock(&team->lanes);
    return lane < SYMM_CHANNELS;
}

static void run_queued(symm_team *team)
{
    symm_ctx *ctx = team->ctx;

    for (int i = 0; i < SYMM_MAX_STREAMS && !team->calls; i++) {
        struct symm_stream *stream =
            __atomic_load_n(&ctx->streams[i], __ATOMIC_RELAXED);
        bool used = __atomic_load_n(&team->streams, __ATOMIC_RELAXED) >> i & 1;

        if (stream && (used || has_lane(team, stream)) &&
            !ctx->ops->stream_is_own(stream))
            ctx->ops->stream_drain(ctx->backend, stream);
    }
}

void symm_team_destroy(symm_team *team)
{
    symm_ctx *ctx;

    if (!team || symm__ctx_check(team->ctx) != SYMM_OK || team->slot == 0)
        return; /* the world goes with its context */
    ctx = team->ctx;
    run_queued(team);
    pthread_mutex_lock(&ctx->lock);
    for (size_t i = 0; symm__is_recorded(ctx) && i < team->buffer_count; i++)
        symm__record_unplace(team->buffers[i]);
    ctx->teams[team->slot] = NULL;
    __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    symm__team_free(
        team); /* under the lock: a split may take the slot right after it */
    pthread_mutex_unlock(&ctx->lock);
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

bool symm__team_contains(const symm_team *big, const symm_team *small)
{
    if (big == small || big->slot == 0)
        return true;
    for (int m = 0; m < small->size; m++) {
        bool found = false;

        for (int i = 0; i < big->size && !found; i++)
            found = big->world_rank[i] == small->world_rank[m];
        if (!found)
            return false;
    }
    return true;
}

/* Where ptr is in this rank's heap; from stride on: outside it. */
static size_t own_offset(const symm_ctx *ctx, const void *ptr)
{
    return (uintptr_t)ptr - (uintptr_t)(ctx->base + (size_t)ctx->rank * ctx->stride);
}

/* Which team's memory is there; NULL: no team's. */
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
    uint64_t freed; /* symm__heap_freed when it was looked up */
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

    extent->freed = symm__heap_freed(); /* first: then a block that goes is noticed */
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
                      "%s: `%s` [%p, +%zu) ends behind the buffer of alloc_id %llu "
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
    /* acquire: pairs with the release behind the mapping, of another thread's rendezvous */
    shared = __atomic_load_n(&owner->shared, __ATOMIC_ACQUIRE);
    if (at < owner->heap.begin || at > shared || bytes > shared - at)
        return false;
    *offset = at;
    return true;
}
