/* SPDX-License-Identifier: MIT */
/*
 * places.h - which rank is on which host: what a context keeps for each rank of the job.
 *
 * Hosts are numbered by their lowest ranks. Memory: 6 bytes a rank for the places, 76 more for
 * the exchanges of all ranks (struct symm_room), SYMM_HOST_NAME bytes a host.
 */
#ifndef SYMM_SETUP_PLACES_H
#define SYMM_SETUP_PLACES_H

#include "core/context.h"

#define SYMM_PLACES_TAG (SYMM_CONTROL_MAGIC + 1) /* of the exchange that finds them */

/* Room for the exchanges of all ranks: before the first of them. */
symm_status symm__room_open(symm_ctx *ctx) SYMM_MUST_CHECK;
/*
 * hosts[r]: where rank r is. Sets hosts, host_of, local_of, local and host_name. Refuses more
 * than SYMM_MAX_LOCAL_RANKS ranks on one host, and on a device more than SYMM_DEVICE_RANKS, on
 * all ranks alike.
 */
symm_status symm__places_take(symm_ctx *ctx,
                              const struct symm_host *hosts) SYMM_MUST_CHECK;
/* Frees room and places. */
void symm__places_close(symm_ctx *ctx);

#endif
