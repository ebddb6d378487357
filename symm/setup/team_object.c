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
#include "core/control_wait.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "core/registered.h"
#include "core/segments.h"
#include "engine/runtime.h"
#include "memory/interop.h"
#include "memory/team_plan.h"
#include "setup/consensus.h"
#include "setup/thread_group.h"
#include "sight/sight.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/status.h"

#define WORLD_UID 0x776f726cu
#define NODE_STEP 0x6e6f6465u /* distinguishes the local team from splits, */
#define SLOT_STEP 0x736c6f74u /* and the search for its slot */

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

struct symm_slots symm__team_slots(const symm_ctx *ctx)
{
    struct symm_slots taken = {{0}};

    if (ctx->thread_group)
        taken = symm__thread_group_held(ctx->thread_group, ctx->rank);
    for (int s = 0; s < SYMM_MAX_TEAMS; s++) {
        size_t begin, end;

        team_range(ctx, s, &begin, &end);
        if (ctx->teams[s] || end > ctx->stride)
            symm__slots_add(&taken, s);
    }
    return taken;
}

symm_status symm__team_slot(const symm_ctx *ctx, const struct symm_slots *taken,
                            int size, int *slot)
{
    const size_t ranges = ctx->stride / 2 / ctx->team_bytes + 1;

    *slot = symm__slots_free(taken);
    if (*slot < SYMM_MAX_TEAMS)
        return SYMM_OK;
    if (ranges < SYMM_MAX_TEAMS)
        return symm__fail(SYMM_ERR_NOMEM,
                          "no address range of %zu bytes is free on all %d ranks; "
                          "destroy teams, or lower SYMM_TEAM_BYTES or raise "
                          "SYMM_HEAP_BYTES",
                          ctx->team_bytes, size);
    return symm__fail(
        SYMM_ERR_NOMEM,
        "no slot is free on all %d ranks: a rank has at most %d teams at a "
        "time, the world among them, and a team over several hosts counts "
        "as two; destroy teams",
        size, SYMM_MAX_TEAMS);
}

symm_status symm__team_alloc(symm_ctx *ctx, int most, symm_team **team)
{
    symm_team *t = calloc(1, sizeof(*t));
    const size_t near = (size_t)(most < ctx->places ? most : ctx->places);

    if (!t)
        goto err_memory;
    t->ctx = ctx;
    pthread_mutex_init(&t->channels, NULL);
    t->world_rank = calloc((size_t)most, sizeof(*t->world_rank));
    if (!t->world_rank)
        goto err_team;
    t->sent = calloc(near * SYMM_SIGNALS, sizeof(*t->sent));
    t->awaited = calloc(near * SYMM_SIGNALS, sizeof(*t->awaited));
    if (!t->sent || !t->awaited)
        goto err_team;
    if (!ctx->device_ops) {
        t->ring_ends = calloc(2 * near, sizeof(*t->ring_ends));
        t->slots = calloc(near * SYMM_HOST_CHANNELS, sizeof(struct symm_slot *));
        t->base = calloc(near, sizeof(char *));
        if (!t->ring_ends || !t->slots || !t->base)
            goto err_team;
    }
    for (int i = 0; i < SYMM_CHANNELS; i++) {
        t->channel[i].team = t;
        t->channel[i].index = i;
    }
    *team = t;
    return SYMM_OK;

err_team:
    free(t->awaited);
    free(t->ring_ends);
    free(t->slots);
    free(t->base);
    free(t->sent);
    free(t->world_rank);
    pthread_mutex_destroy(&t->channels);
    free(t);
err_memory:
    return symm__fail(SYMM_ERR_NOMEM, "no memory for a team of up to %d ranks", most);
}

/* The members whose memory is mapped, and whether there are others, or some on other hosts. */
static void find_local(symm_team *team)
{
    const symm_ctx *ctx = team->ctx;

    memset(team->place_of, -1, sizeof(team->place_of));
    for (int m = 0; m < team->size; m++) {
        const int rank = team->world_rank[m];

        team->far = team->far || symm__is_far(ctx, rank);
        if (!symm__is_mapped(ctx, rank)) {
            team->spans = true;
            continue;
        }
        if (rank == ctx->rank) {
            team->rank = m;
            team->local_rank = team->local_size;
        }
        team->place_of[ctx->place_of[rank]] = (int8_t)team->local_size;
        team->local[team->local_size++] = m;
    }
}

/* Frees the room for members that the team does not have. */
static void *shrink_to(void *memory, size_t bytes)
{
    void *fit = memory ? realloc(memory, bytes) : NULL;

    return fit ? fit : memory;
}

/* Sets where the members are, and the team's range. */
static void team_place(symm_team *team, uint32_t uid, int slot, int size)
{
    size_t counts;

    team->uid = uid;
    team->slot = slot;
    team->size = size;
    find_local(team);
    counts = (size_t)team->local_size * SYMM_SIGNALS;
    team->world_rank =
        shrink_to(team->world_rank, (size_t)size * sizeof(*team->world_rank));
    team->sent = shrink_to(team->sent, counts * sizeof(*team->sent));
    team->awaited = shrink_to(team->awaited, counts * sizeof(*team->awaited));
    team_range(team->ctx, slot, &team->begin, &team->end);
    for (int p = 0; p < team->local_size; p++)
        team->extent[p] = team->begin;
    team->shared = team->begin;
}

/* ---- Teams over several hosts -------------------------------------------------------- */

/* Numbers the domains by their lowest team ranks, and finds each member's rank in its domain.
 * `count`: by the context's numbers of domains; -1 where no member is. */
static void seat_all(const symm_team *team, struct symm_hierarchy *hierarchy,
                     struct symm_seat *count)
{
    const symm_ctx *ctx = team->ctx;

    for (int h = 0; h < ctx->hosts; h++)
        count[h].host = UINT16_MAX;
    for (int m = 0; m < team->size; m++) {
        struct symm_seat *host = &count[ctx->domain_of[team->world_rank[m]]];

        if (host->host == UINT16_MAX)
            host->host = (uint16_t)hierarchy->hosts++;
        hierarchy->seat[m] = *host;
        host->place++;
    }
    hierarchy->at = hierarchy->seat[team->rank].host;
    hierarchy->here = hierarchy->seat[team->rank].place;
    hierarchy->places = team->local_size;
    hierarchy->equal = hierarchy->regular = true;
    for (int h = 0; h < ctx->hosts; h++)
        hierarchy->equal = hierarchy->equal && (count[h].host == UINT16_MAX ||
                                                count[h].place == team->local_size);
    for (int m = 0; m < team->size; m++)
        hierarchy->regular =
            hierarchy->regular && hierarchy->equal &&
            m == hierarchy->seat[m].host * hierarchy->places + hierarchy->seat[m].place;
}

static symm_status find_rail(const symm_team *team, struct symm_hierarchy *hierarchy)
{
    /* of a rail: one member of each host; of none: this rank alone */
    hierarchy->rail = calloc((size_t)hierarchy->hosts, sizeof(*hierarchy->rail));
    if (!hierarchy->rail)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a rail over %d hosts",
                          hierarchy->hosts);
    for (int m = 0; m < team->size; m++)
        if (m == team->rank || (hierarchy->seat[m].place == hierarchy->here &&
                                (hierarchy->equal || hierarchy->here == 0)))
            hierarchy->rail[hierarchy->rail_count++] = m;
    return SYMM_OK;
}

static symm_status find_hosts(const symm_team *team, struct symm_hierarchy *hierarchy)
{
    struct symm_seat *count = calloc((size_t)team->ctx->hosts, sizeof(*count));
    symm_status status;

    hierarchy->seat = calloc((size_t)team->size, sizeof(*hierarchy->seat));
    if (!count || !hierarchy->seat) {
        free(count);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the places of %d ranks",
                          team->size);
    }
    seat_all(team, hierarchy, count);
    free(count);
    status = find_rail(team, hierarchy);
    if (hierarchy->regular) { /* then they follow from the team ranks */
        free(hierarchy->seat);
        hierarchy->seat = NULL;
    }
    return status;
}

/* The tables of a hierarchical team; local_close ends them. */
static symm_status hierarchy_create(symm_team *team)
{
    struct symm_hierarchy *hierarchy = calloc(1, sizeof(*hierarchy));

    if (!hierarchy)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team over several hosts");
    pthread_mutex_init(&hierarchy->turn, NULL);
    pthread_cond_init(&hierarchy->turns, NULL);
    team->hierarchy = hierarchy;
    return find_hosts(team, hierarchy);
}

symm_status symm__team_tables(symm_team *team, uint32_t uid, int slot, int size)
{
    team_place(team, uid, slot, size);
    return team->spans ? hierarchy_create(team) : SYMM_OK;
}

/* Address ranges that are taken on any of this domain's members: an exchange among them. */
static symm_status find_slot(symm_team *team, double timeout, symm_status failed,
                             int *slot)
{
    struct symm_oob_message *messages = team->ctx->room.messages;
    const struct symm_slots mine = symm__team_slots(team->ctx);
    struct symm_slots taken = {{0}}, theirs;
    int members[SYMM_MAX_PLACES];
    const struct symm_exchange exchange = {
        .what = "the parts of a team on several hosts",
        .tag = symm__team_uid(team, SLOT_STEP, 0),
        .members = members,
        .count = team->local_size,
        .timeout = timeout,
        .before = team->uid,
        .before_sequence = team->sequence - 1,
        .status = failed,
        .bytes = &mine,
        .bytes_count = sizeof(mine),
    };
    symm_status status;

    for (int p = 0; p < team->local_size; p++)
        members[p] = symm__team_rank_at(team, p);
    status = symm__control_exchange(team->ctx, team->uid, exchange.what, &exchange,
                                    messages);
    for (int p = 0; status == SYMM_OK && p < team->local_size; p++) {
        if (messages[p].bytes_count != sizeof(theirs)) {
            status = symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                                members[p]);
            break;
        }
        memcpy(&theirs, messages[p].bytes, sizeof(theirs));
        symm__slots_join(&taken, &theirs);
    }
    symm__oob_messages_finish(messages, team->local_size);
    *slot = symm__slots_free(&taken);
    return status;
}

static symm_status open_node(symm_team *team, double timeout)
{
    struct symm_hierarchy *hierarchy = team->hierarchy;
    const double until = symm__now() + timeout;
    symm_ctx *ctx = team->ctx;
    symm_team *node = NULL;
    int slot;
    symm_status status = symm__team_alloc(ctx, team->local_size, &node);

    status = find_slot(team, timeout, status, &slot);
    if (status == SYMM_OK &&
        slot == SYMM_MAX_TEAMS) /* the same on all in this domain */
        status = symm__fail(SYMM_ERR_NOMEM,
                            "no slot with an address range of %zu bytes is free on "
                            "host %s for the part of a team that is there; destroy "
                            "teams, or lower SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
                            ctx->team_bytes, symm__host_of_rank(ctx, ctx->rank));
    if (status == SYMM_OK) {
        node->inner = true;
        for (int p = 0; p < team->local_size; p++)
            node->world_rank[p] = symm__team_rank_at(team, p);
        status = symm__team_complete(
            node, symm__team_uid(team, NODE_STEP, (uint32_t)hierarchy->at), slot,
            team->local_size, until - symm__now());
    }
    if (status != SYMM_OK) {
        symm__team_free(node);
        return status;
    }
    node->outer = team;
    hierarchy->local_team = node;
    return SYMM_OK;
}

static symm_status local_open(symm_team *team, double timeout)
{
    double until = symm__now() + timeout;
    struct symm_oob_message *messages = team->ctx->room.messages;
    struct symm_hierarchy *hierarchy = team->hierarchy;
    symm_status status;

    if (!hierarchy)
        return SYMM_OK;
    status = open_node(team, until - symm__now());
    status = symm__team_exchange(
        team, "the start of a team over several hosts", until - symm__now(),
        &(struct symm_own_message){.status = status}, messages);
    symm__oob_messages_finish(messages, team->size);
    if (status == SYMM_OK && team->engine && team->engine->comm)
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
    free(hierarchy->seat);
    free(hierarchy->rail);
    free(hierarchy->tags);
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
    symm__sight_team_end(team->ctx->sight, team->slot, team->uid);
    (void)symm__interop_forget(team);
    for (size_t i = 0; i < team->buffer_count; i++)
        free(team->buffers[i]);
    free(team->buffers);
    symm__captured_unlist(team);
    if (device)
        device->team_close(team); /* its kernels have ended when this returns */
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
    free(team->steps);
    free(team->awaited);
    free(team->ring_ends);
    free(team->slots);
    free(team->base);
    free(team->sent);
    free(team->world_rank);
    free(team->survivors);
    free(team->shrunk);
    pthread_mutex_destroy(&team->channels);
    free(team);
}

/* Allocates this rank's memory of a new team: its pad, and what kernels on a device need beside
 * it. A team over several hosts has only the pad, for puts and signals: its local teams run the
 * collectives. */
static symm_status team_memory(symm_team *team)
{
    const struct symm_device_ops *device = team->ctx->device_ops;
    uint64_t begin = team->begin + SYMM_PAD_BYTES;
    uint64_t end =
        device && !team->spans ? device->scratch_end(begin, team->local_size) : begin;
    symm_status status;

    if (end >= team->end)
        return symm__fail(SYMM_ERR_NOMEM,
                          "a team's range of %zu bytes does not hold its pad and the "
                          "%zu bytes that its kernels need; raise SYMM_TEAM_BYTES and "
                          "SYMM_HEAP_BYTES",
                          team->end - team->begin, (size_t)(end - begin));
    status = symm__heap_init(&team->heap, end, team->end);
    if (status == SYMM_OK)
        status = symm__memory_grow(team, end);
    if (status != SYMM_OK)
        return status;
    team->scratch_bytes = (size_t)(end - begin);
    return device ? device->team_open(team) : SYMM_OK;
}

/*
 * Takes from what all members sent the team's number, above those of all teams that any of them
 * is or was in, and the place of its word of consensus.
 */
static symm_status team_adopt(symm_team *team, const uint64_t *sent)
{
    uint32_t highest = 0;

    for (int m = 0; m < team->size; m++) {
        uint32_t theirs = (uint32_t)(sent[m] >> 32);

        highest = theirs > highest ? theirs : highest;
    }
    if (team->slot != 0) {
        team->number = highest < UINT32_MAX ? highest + 1 : highest;
        team->ctx->teams_numbered = team->number;
    }
    return symm__shrink_adopt(team, (uint32_t)sent[0]);
}

/* Memory, pads, heap: collective over the new team's members. */
static symm_status team_open(symm_team *team, symm_status mine, double timeout)
{
    symm_ctx *ctx = team->ctx;
    struct symm_record *record = &symm__own_control(ctx)->record[team->slot];
    uint64_t consensus_word;
    symm_status status;

    /* Clears the failure of an earlier team in this slot: no member of this team has read it
     * yet. */
    __atomic_store_n(&record->state, SYMM_OK, __ATOMIC_RELAXED);
    __atomic_store_n(&record->team_uid, team->uid, __ATOMIC_RELAXED);
    consensus_word = symm__shrink_prepare(team) | (uint64_t)ctx->teams_numbered << 32;
    status = mine == SYMM_OK ? team_memory(team) : mine;
    status = symm__memory_share(team, "the start of a team", timeout, status,
                                consensus_word, team_adopt);
    if (status != SYMM_OK)
        return status;
    for (int p = 0; p < team->local_size; p++)
        team->pad[p] =
            (struct symm_pad *)(void *)(symm__heap_base(ctx,
                                                        symm__team_rank_at(team, p)) +
                                        team->begin);
    for (int i = 0; i < SYMM_HOST_CHANNELS && !ctx->device_ops; i++)
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
                            int size, double timeout)
{
    symm_ctx *ctx = made->ctx;
    struct symm_team_engine *engine = NULL;
    symm_status status = symm__team_tables(made, uid, slot, size);

    if (ctx->thread_group && slot != 0)
        symm__thread_group_hold(made, 1);
    if (mine != SYMM_OK)
        status = mine;
    if (status == SYMM_OK)
        status = symm__engine_team_prepare(made, &engine);
    made->opening = true;
    status = team_open(made, status, timeout);
    if (status != SYMM_OK) {
        symm__engine_team_drop(engine);
        return status;
    }
    ctx->teams[slot] = made;
    __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    status = symm__engine_team_open(made, engine, timeout);
    if (status == SYMM_OK)
        status = local_open(made, timeout);
    made->opening = false;
    if (status == SYMM_OK)
        symm__team_show(made);
    else
        ctx->teams[slot] = NULL;
    return status;
}

symm_status symm__team_complete(symm_team *made, uint32_t uid, int slot, int size,
                                double timeout)
{
    return complete(made, SYMM_OK, uid, slot, size, timeout);
}

symm_status symm__team_create_world(symm_ctx *ctx, uint64_t before, symm_status mine,
                                    double timeout)
{
    symm_team *team;
    symm_status status = symm__team_alloc(ctx, ctx->size, &team);

    if (status != SYMM_OK)
        return status;
    for (int r = 0; r < ctx->size; r++)
        team->world_rank[r] = r;
    team->before = before;
    status = complete(team, mine, WORLD_UID, 0, ctx->size, timeout);
    if (status != SYMM_OK)
        symm__team_free(team);
    return status;
}
