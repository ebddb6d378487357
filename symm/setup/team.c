/* SPDX-License-Identifier: MIT */
/*
 * team.c - the public calls that make and end teams: split, and destroy.
 *
 * A split takes the lowest slot that is free on every member, so that one team never moves
 * another's offsets.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "core/team.h"
#include "engine/runtime.h"
#include "memory/interop.h"
#include "record/record.h"
#include "setup/team_object.h"
#include "util/status.h"

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

static int place_compare(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->parent_rank < b->parent_rank ? -1 : a->parent_rank > b->parent_rank;
}

/* From all ranks' words: this team's members in order, and the slots taken on any of them. */
static symm_status split_members(const symm_team *parent,
                                 const struct symm_oob_message *messages, int color,
                                 struct place *places, int *size, uint64_t *taken)
{
    *size = 0;
    *taken = 0;
    for (int m = 0; m < parent->size; m++) {
        struct wire_split wire;

        if (messages[m].bytes_count != sizeof(wire))
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                              parent->world_rank[m]);
        memcpy(&wire, messages[m].bytes, sizeof(wire));
        if (wire.color != color)
            continue;
        places[*size] = (struct place){.key = wire.key, .parent_rank = m};
        *taken |= wire.slots;
        ++*size;
    }
    qsort(places, (size_t)*size, sizeof(*places), place_compare);
    return SYMM_OK;
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
    if (slot == SYMM_MAX_TEAMS) /* the same on every member: no peer waits for this rank */
        return symm__fail(
            SYMM_ERR_NOMEM,
            "no address range of %zu bytes is free on all %d ranks; destroy "
            "teams, or lower SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
            ctx->team_bytes, size);
    for (int m = 0; m < size; m++)
        world_rank[m] = parent->world_rank[places[m].parent_rank];
    made->before = parent->uid;
    return symm__team_complete(made, uid, slot, world_rank, size, ctx->timeout);
}

/* With the context locked. *team: the new one, or NULL for color < 0. */
static symm_status split(symm_team *parent, int color, int key, symm_team **team)
{
    struct symm_oob_message messages[SYMM_MAX_RANKS] = {0};
    struct place places[SYMM_MAX_RANKS];
    struct wire_split wire = {.slots = symm__team_slots(parent->ctx),
                              .color = color < 0 ? -1 : color,
                              .key = key};
    symm_team *made = NULL;
    uint64_t taken;
    int size;
    /* What can fail here fails before the exchange, so that every rank learns of it. */
    symm_status status = symm__team_create(parent->ctx, parent->size, &made);

    parent->again = true; /* a split that fails leaves the parent as it was */
    status = symm__team_exchange(parent, "split", parent->ctx->timeout, status, &wire,
                                 sizeof(wire), NULL, 0, messages);
    if (status == SYMM_OK) {
        status = split_members(parent, messages, wire.color, places, &size, &taken);
        symm__oob_messages_finish(messages, parent->size);
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
    symm__team_free(
        team); /* under the lock: a split may take the slot right after it */
    pthread_mutex_unlock(&ctx->lock);
    symm__notifier_drain(
        &ctx->notifier); /* without it: what is called may make calls */
}
