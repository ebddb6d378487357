/* SPDX-License-Identifier: MIT */
/*
 * places.h - which rank is on which host: what a context keeps for each rank of the job.
 *
 * Hosts are numbered by their lowest ranks. Memory: 6 bytes a rank for the places, 76 more for
 * the exchanges of all ranks (struct symm_room), 52 bytes a host.
 */
#ifndef SYMM_SETUP_PLACES_H
#define SYMM_SETUP_PLACES_H

#include "core/context.h"

/* Room for the exchanges of all ranks: before the first of them. */
symm_status symm__room_open(symm_ctx *ctx) SYMM_MUST_CHECK;
/*
 * Takes what the bootstrap has found. Refuses more than SYMM_DEVICE_RANKS ranks on one host on a
 * device, on all ranks alike.
 */
symm_status symm__places_take(symm_ctx *ctx, struct symm_world *world) SYMM_MUST_CHECK;
/* Frees room and places. */
void symm__places_close(symm_ctx *ctx);

#endif
