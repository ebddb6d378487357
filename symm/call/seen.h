/* SPDX-License-Identifier: MIT */
/*
 * seen.h - what tools see of calls: the begin and the end of each public call are noted in the
 * list of the rank's last calls (sight/sight.h). The number 0 stands for a call that is not in
 * the list.
 */
#ifndef SYMM_CALL_SEEN_H
#define SYMM_CALL_SEEN_H

#include "core/team.h"
#include "sight/sight.h"

/*
 * Steps. A collective has its channel's step, which is the same on all ranks. A one-sided call, a
 * send or a receive concerns two ranks. Its site has the channel SYMM_SIGHT_PAIRS, and its step
 * is the number of calls of its kind that this rank has made in the team with this peer: puts,
 * gets, sends, receives, or of one signal the raises or the waits. So the k-th send has the step
 * of the k-th receive, and the k-th raise that of the k-th wait. A receive from any rank has its
 * number among those from any rank, and counts with the sender once the message has come; a batch
 * has its number among the batches. All others count when they are made, in a graph once.
 */
/* The site of a collective. */
uint32_t symm__seen_site(const struct symm_team_channel *channel,
                         const struct symm_prepared_call *entry);
/* A call without an entry: one-sided, or a batch. */
uint64_t symm__seen_begin(symm_team *team, struct symm_sight_what *what,
                          uint32_t name_hash, uint32_t step,
                          enum symm_sight_state state);
/* The team's counts, made by the first such call: 16 bytes a member are too many for teams that
 * make none. NULL: there is no memory. */
uint32_t *symm__seen_steps(symm_team *team);
/* Counts one more call of that kind with the member, and returns its number. peer team->size:
 * with no member, or any. */
static inline uint32_t symm__seen_step(symm_team *team, enum symm_step kind, int peer)
{
    uint32_t *steps;

    if (!team->ctx->sight)
        return 0;
    steps = __atomic_load_n(&team->steps, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!steps, 0)) {
        steps = symm__seen_steps(team);
        if (!steps)
            return 0;
    }
    return __atomic_add_fetch(&steps[(size_t)peer * SYMM_STEPS + (size_t)kind], 1,
                              __ATOMIC_RELAXED);
}

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
