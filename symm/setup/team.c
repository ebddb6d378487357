/* SPDX-License-Identifier: MIT */
/*
 * team.c - the public calls that make and end teams: split, create, and destroy.
 *
 * A new team takes the lowest slot that is free on every member, so that one team never moves
 * another's offsets. A split finds that by an exchange over the parent; a created team's members
 * agree on it without the parent's other ranks (team_create.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "core/earlier.h"
#include "core/team.h"
#include "engine/runtime.h"
#include "memory/interop.h"
#include "record/record.h"
#include "setup/team_create.h"
#include "setup/team_object.h"
#include "util/status.h"

/* What a rank sends at a split. */
struct wire_split {
    struct symm_slots slots; /* that are taken here */
    int32_t color, key;
    int32_t divisible; /* the engine's communicator could be split */
};

/* A rank's place in the new team. */
struct place {
    int32_t key;
    int parent_rank;
};

static int place_compare(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->parent_rank < b->parent_rank ? -1 : a->parent_rank > b->parent_rank;
}

/* From what all ranks sent: the new team's members in order, and the slots taken on any of
 * them. */
static symm_status split_members(const symm_team *parent,
                                 const struct symm_oob_message *messages, int color,
                                 struct place *places, int *size,
                                 struct symm_slots *taken)
{
    *size = 0;
    *taken = (struct symm_slots){{0}};
    for (int m = 0; m < parent->size; m++) {
        struct wire_split wire;

        if (messages[m].bytes_count != sizeof(wire))
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                              parent->world_rank[m]);
        memcpy(&wire, messages[m].bytes, sizeof(wire));
        if (wire.color != color)
            continue;
        places[*size] = (struct place){.key = wire.key, .parent_rank = m};
        symm__slots_join(taken, &wire.slots);
        ++*size;
    }
    qsort(places, (size_t)*size, sizeof(*places), place_compare);
    return SYMM_OK;
}

/*
 * Whether the teams of a split need a communicator from their start (symm__engine_team_open).
 * Useful: any of them does; own: the team of this color does. `by_color` is in the order of
 * colors. One pass over it: a split of 2,048 ranks into as many colors must not take 2,048
 * passes.
 */
static void find_engines(const symm_team *parent, const struct place *by_color,
                         int color, bool *useful, bool *own)
{
    const symm_ctx *ctx = parent->ctx;

    *useful = *own = false;
    for (int m = 0, end; m < parent->size; m = end) {
        const int domain = ctx->domain_of[parent->world_rank[by_color[m].parent_rank]];
        bool near = true;

        for (end = m; end < parent->size && by_color[end].key == by_color[m].key; end++)
            near =
                near &&
                domain == ctx->domain_of[parent->world_rank[by_color[end].parent_rank]];
        if (!near || by_color[m].key < 0 || (end - m == 1 && !ctx->engine->asked))
            continue;
        *useful = true;
        *own = *own || by_color[m].key == color;
    }
}

/* Splits the parent's communicator, if that is possible on all ranks and useful on one. The new
 * team takes the result; without one it makes a communicator itself. by_color: room for all
 * ranks. */
static void split_engine(symm_team *parent, const struct wire_split *wires, int color,
                         int size, struct place *by_color)
{
    bool useful, own;

    for (int m = 0; m < parent->size; m++) {
        if (!wires[m].divisible)
            return;
        by_color[m] = (struct place){.key = wires[m].color, .parent_rank = m};
    }
    qsort(by_color, (size_t)parent->size, sizeof(*by_color), place_compare);
    find_engines(parent, by_color, color, &useful, &own);
    if (useful)
        symm__engine_split(parent, own ? color : -1, size, parent->ctx->timeout);
}

/* Gives the prepared team its place and opens it with its members. */
static symm_status split_open(symm_team *parent, symm_team *made, int color,
                              const struct place *places, int size,
                              const struct symm_slots *taken)
{
    symm_ctx *ctx = parent->ctx;
    uint32_t uid = symm__team_uid(parent, parent->sequence, (uint32_t)color);
    int slot;
    symm_status status = symm__team_slot(ctx, taken, size, &slot);

    if (status != SYMM_OK) /* the same on every member: no peer waits for this rank */
        return status;
    for (int m = 0; m < size; m++)
        made->world_rank[m] = parent->world_rank[places[m].parent_rank];
    made->before = parent->uid;
    made->before_sequence = parent->sequence - 1; /* of this split */
    return symm__team_complete(made, uid, slot, size, ctx->timeout);
}

/* With the context locked. *team: the new one, or NULL for color < 0. */
static symm_status split(symm_team *parent, int color, int key, symm_team **team)
{
    struct symm_oob_message *messages = parent->ctx->room.messages;
    const size_t room = (size_t)parent->size;
    struct place *places = calloc(2 * room, sizeof(*places)); /* and by color */
    struct wire_split *wires = calloc(room, sizeof(*wires));
    struct wire_split wire = {.slots = symm__team_slots(parent->ctx),
                              .color = color < 0 ? -1 : color,
                              .key = key,
                              .divisible = symm__engine_divisible(parent)};
    symm_team *made = NULL;
    struct symm_slots taken;
    int size;
    /* What can fail here fails before the exchange, so that every rank learns of it. */
    symm_status status =
        places && wires
            ? symm__team_alloc(parent->ctx, parent->size, &made)
            : symm__fail(SYMM_ERR_NOMEM, "no memory to split a team of %d ranks",
                         parent->size);

    parent->again = true; /* a split that fails leaves the parent as it was */
    status = symm__team_exchange(
        parent, "split", parent->ctx->timeout,
        &(struct symm_own_message){
            .status = status, .bytes = &wire, .bytes_count = sizeof(wire)},
        messages);
    if (status == SYMM_OK) {
        status = split_members(parent, messages, wire.color, places, &size, &taken);
        for (int m = 0; m < parent->size && status == SYMM_OK; m++)
            memcpy(&wires[m], messages[m].bytes, sizeof(wires[m]));
        symm__oob_messages_finish(messages, parent->size);
    }
    if (status == SYMM_OK) /* the new team's exchanges use the room of these messages */
        split_engine(parent, wires, wire.color, size, places + parent->size);
    if (status == SYMM_OK && color >= 0)
        status = split_open(parent, made, color, places, size, &taken);
    if (parent->engine)
        symm__engine_split_end(parent);
    free(places);
    free(wires);
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
        return symm__fail_null("symm_team_split", "team");
    pthread_mutex_lock(&parent->ctx->lock);
    status = split(parent, color, key, team);
    if (status == SYMM_OK && symm__is_recorded(parent->ctx))
        symm__record_split(parent, *team);
    pthread_mutex_unlock(&parent->ctx->lock);
    return status;
}

/* ---- A list of ranks ------------------------------------------------------------------- */

static symm_status create_check(const symm_team *parent, const int *ranks, int n,
                                symm_team *const *team)
{
    static const char call[] = "symm_team_create";
    const symm_ctx *ctx = parent->ctx;
    bool listed[SYMM_MAX_LOCAL_RANKS] = {false}; /* by place on this host */

    if (!ranks || !team)
        return symm__fail_null(call, ranks ? "team" : "ranks");
    if (n < 1 || n > parent->size)
        return symm__fail(SYMM_ERR_INVALID, "%s: %d ranks of a team of %d", call, n,
                          parent->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: ranks[%d] is %d, but the parent has ranks 0 to %d",
                              call, i, ranks[i], parent->size - 1);
        if (symm__is_far(ctx, parent->world_rank[ranks[i]]))
            return symm__fail(SYMM_ERR_UNSUPPORTED,
                              "%s: rank %d is on another host; symm_team_split makes "
                              "teams over several hosts",
                              call, parent->world_rank[ranks[i]]);
        if (listed[ctx->local_of[parent->world_rank[ranks[i]]]])
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: ranks[%d] is %d, for a second time", call, i,
                              ranks[i]);
        listed[ctx->local_of[parent->world_rank[ranks[i]]]] = true;
    }
    if (!listed[ctx->local_rank])
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: the caller, rank %d of the parent, is not among the %d "
                          "ranks; only those that are make the call",
                          call, parent->rank, n);
    return SYMM_OK;
}

/* Opens the team once all its ranks have come. The context is locked. */
static symm_status create_open(const struct symm_create *create, symm_team *made)
{
    uint32_t part = SYMM_PART_CREATED + (uint32_t)create->world_rank[create->last];

    if (create->slot < 1 || create->slot >= SYMM_MAX_TEAMS ||
        made->ctx->teams[create->slot])
        return symm__fail(SYMM_ERR_DAMAGED,
                          "the control page of rank %d is damaged: it gives slot %d to "
                          "a new team",
                          create->world_rank[create->last], create->slot);
    memcpy(made->world_rank, create->world_rank,
           (size_t)create->size * sizeof(*made->world_rank));
    /* Packets in the sockets belong to exchanges that were abandoned. */
    made->agreed = true;
    return symm__team_complete(made,
                               symm__team_uid(create->parent, create->number, part),
                               create->slot, create->size, made->ctx->timeout);
}

symm_status symm_team_create(symm_team *parent, const int *ranks, int n, int key,
                             symm_team **team)
{
    symm_team *made = NULL;
    struct symm_create create;
    bool met;
    symm_status status = symm__team_check(parent);

    if (status == SYMM_OK)
        status = create_check(parent, ranks, n, team);
    if (status != SYMM_OK)
        return status;
    symm__create_prepare(&create, parent, ranks, n, key);
    status = symm__create_agree(&create, symm__team_alloc(parent->ctx, n, &made));
    met = status == SYMM_OK;
    if (met)
        status = create_open(&create, made);
    else
        pthread_mutex_lock(&parent->ctx->lock);
    if (status == SYMM_OK && symm__is_recorded(parent->ctx))
        symm__record_team(made, "created");
    if (status == SYMM_OK) {
        *team = made;
    } else {
        symm__earlier_keep_last(parent->ctx);
        symm__team_free(made);
    }
    pthread_mutex_unlock(&parent->ctx->lock);
    if (met)
        symm__create_end(&create);
    return status;
}

void symm_team_destroy(symm_team *team)
{
    symm_ctx *ctx;

    if (!team || symm__ctx_check(team->ctx) != SYMM_OK || team->slot == 0)
        return; /* the world goes with its context */
    ctx = team->ctx;
    symm__team_drain(team);
    pthread_mutex_lock(&ctx->lock);
    for (size_t i = 0; symm__is_recorded(ctx) && i < team->buffer_count; i++)
        symm__record_unplace(team->buffers[i]);
    ctx->teams[team->slot] = NULL;
    __atomic_fetch_add(&ctx->generation, 1, __ATOMIC_RELAXED);
    /* under the lock: a split may take the slot right after it */
    symm__team_free(team);
    pthread_mutex_unlock(&ctx->lock);
    /* without the lock: the functions may make calls */
    symm__notifier_drain(&ctx->notifier);
}
