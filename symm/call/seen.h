/* SPDX-License-Identifier: MIT */
/*
 * seen.h - what tools see of calls: each public call is begun, and ended, in the list of the
 * rank's last calls (sight/sight.h). The number 0 stands for a call that is not in it.
 */
#ifndef SYMM_CALL_SEEN_H
#define SYMM_CALL_SEEN_H

#include "core/team.h"
#include "sight/sight.h"

/* The site of a collective. */
uint32_t symm__seen_site(const struct symm_team_channel *channel,
                         const struct symm_prepared_call *entry);
/* A call without an entry: one-sided, or a batch. */
uint64_t symm__seen_begin(symm_team *team, struct symm_sight_what *what,
                          uint32_t name_hash, enum symm_sight_state state);
/* A wait that has lasted, for members by `missing`, their world ranks. */
void symm__seen_wait(symm_team *team, const struct symm_sight_what *what,
                     uint32_t epoch, struct symm_sight_wait **wait, const int *ranks,
                     int missing);

static inline uint64_t symm__seen_collective(const struct symm_team_channel *channel,
                                             struct symm_prepared_call *entry,
                                             enum symm_sight_state state)
{
    struct symm_sight *sight = channel->team->ctx->sight;
    const bool device = channel->team->device_ops != NULL;
    uint32_t epoch = 0;

    if (!sight)
        return 0;
    if (__builtin_expect(!symm__sight_knows(sight, entry->sight), 0))
        entry->sight = symm__seen_site(channel, entry);
    if (state != SYMM_SIGHT_QUEUED) /* its step is not known before it runs */
        epoch = (device ? channel->sequence : channel->state.epoch) + 1;
    return symm__sight_begin(sight, entry->sight, epoch, state);
}

static inline void symm__seen_end(const symm_team *team, uint64_t number,
                                  symm_status status, enum symm_sight_state good)
{
    symm__sight_end(team->ctx->sight, number,
                    status == SYMM_OK ? good : SYMM_SIGHT_FAILED);
}

#endif
