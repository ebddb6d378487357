/* SPDX-License-Identifier: MIT */
/* places.c - see places.h. */
#include "setup/places.h"

#include <stdlib.h>

#include "util/log.h"
#include "util/status.h"

symm_status symm__room_open(symm_ctx *ctx)
{
    struct symm_room *room = &ctx->room;
    const size_t size = (size_t)ctx->size;

    room->messages = calloc(size, sizeof(*room->messages));
    room->acks = calloc(size, sizeof(*room->acks));
    room->words = calloc(size, sizeof(*room->words));
    room->everyone = calloc(size, sizeof(*room->everyone));
    if (!room->messages || !room->acks || !room->words || !room->everyone)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the exchanges of %d ranks",
                          ctx->size);
    for (int r = 0; r < ctx->size; r++)
        room->everyone[r] = r;
    return SYMM_OK;
}

symm_status symm__places_take(symm_ctx *ctx, struct symm_world *world)
{
    symm_status status = ctx->device_ops
                             ? symm__world_crowded(world, ctx->size, SYMM_DEVICE_RANKS,
                                                   " on CUDA; use SYMM_BACKEND=host")
                             : SYMM_OK;

    ctx->hosts = world->hosts;
    ctx->host_of = world->host_of;
    ctx->local_of = world->local_of;
    ctx->local = world->local;
    ctx->local_size = world->local_size;
    ctx->host_at = world->at;
    ctx->local_rank = ctx->local_of[ctx->rank];
    ctx->domain_of = ctx->host_of; /* until hosts are found to share an NVLink domain */
    ctx->place_of = ctx->local_of;
    ctx->place = ctx->local_rank;
    ctx->places = ctx->local_size;
    world->host_of = NULL;
    world->local_of = NULL;
    world->local = NULL;
    world->at = NULL;
    if (status == SYMM_OK && ctx->hosts > 1 && ctx->rank == 0)
        symm__log(SYMM_LOG_INFO, "%d ranks on %d hosts", ctx->size, ctx->hosts);
    return status;
}

void symm__places_close(symm_ctx *ctx)
{
    free(ctx->room.messages);
    free(ctx->room.acks);
    free(ctx->room.words);
    free(ctx->room.everyone);
    if (ctx->domain_of != ctx->host_of) {
        free(ctx->domain_of);
        free(ctx->place_of);
    }
    free(ctx->host_of);
    free(ctx->local_of);
    free(ctx->host_at);
    free(ctx->local);
}
