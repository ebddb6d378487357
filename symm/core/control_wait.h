/* SPDX-License-Identifier: MIT */
/*
 * control_wait.h - what tools see (sight/sight.h) of waits, and of the control plane: exchanges
 * over sockets are calls and waits of a channel of their own.
 */
#ifndef SYMM_CORE_CONTROL_WAIT_H
#define SYMM_CORE_CONTROL_WAIT_H

#include "core/context.h"
#include "oob/exchange.h"
#include "sight/sight.h"

/* symm__exchange as the call "exchange" of site `name`. team_uid 0: of no team yet. */
symm_status symm__control_exchange(symm_ctx *ctx, uint32_t team_uid, const char *name,
                                   const struct symm_exchange *exchange,
                                   struct symm_oob_message *messages) SYMM_MUST_CHECK;

/* A wait that is shown once it has lasted: polled by its thread. sight NULL: never. */
struct symm_control_wait {
    struct symm_sight *sight;
    struct symm_sight_what what;
    uint32_t step;
    struct symm_sight_wait *shown;
};

struct symm_control_wait symm__control_wait(const symm_ctx *ctx, uint32_t team_uid,
                                            const char *op, const char *name);
/* count -1: which ranks is not known. Shows nothing in the first milliseconds. */
void symm__control_wait_for(struct symm_control_wait *wait, const int *ranks,
                            int count);
void symm__control_wait_end(struct symm_control_wait *wait);

#endif
