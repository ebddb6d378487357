/* SPDX-License-Identifier: MIT */
/*
 * channel_table.h - the table by which the members of a team agree on channels.
 *
 * struct symm_channel_table lies in the control page of the team's first member, a progress
 * word for each channel in the page of each member. Every query to the table has a key or
 * a launch number that is the same on all members; the member that asks first decides, and
 * the table keeps the decision until all members have asked. So members that ask at different
 * times get one answer. Keys are never used twice.
 *
 * Keys come in sequences: the k-th try of one follows when the one before was answered. A member that
 * got no channel notes the try; a later member with an earlier try was refused, too, unless it finds
 * its key, which stays until all members have made calls with it. Sequences are spread over a few
 * lines. When all members have been refused the same keys of a line, its note is void.
 *
 * A channel is idle if all members' progress words are equal and show no call and no graph,
 * and all blocks of the last launch have ended on all devices. Only then it may get another
 * key. A member marks its progress word (INSIDE), then reads the key; a member that takes the
 * channel changes the key, then reads the progress words again. Both are sequentially consistent,
 * so at least one of them sees the other. If the taker finds a mark, it restores the old key: so
 * a member that finds another key asks again with the table locked, when the key is final.
 */
#ifndef SYMM_CUDA_CHANNEL_TABLE_H
#define SYMM_CUDA_CHANNEL_TABLE_H

#include "cuda/launcher.h"

/* Progress of a member on a channel: launches << 32 | blocks of the last one << 8 | flags. */
#define SYMM_CHANNEL_INSIDE 1u
#define SYMM_CHANNEL_PINNED 2u
/* The last grant was returned (budget.h): the next call takes it without a look at the claims. */
#define SYMM_CHANNEL_RETURNED 4u

/* A new team: this rank's progress, and the table if this rank is its first member. */
void symm__channel_table_open(symm_team *team);
/* Frees a lock word (0, or a rank + 1) of this host if its holder has died. */
void symm__channel_lock_break(const symm_ctx *ctx, uint32_t *lock, uint32_t holder);
/* SYMM_ERR_TIMEOUT: another member has held the table for the context's deadline. */
symm_status symm__channel_table_lock(symm_team *team) SYMM_MUST_CHECK;
void symm__channel_table_unlock(symm_team *team);
/* The member's word in its control page. */
uint64_t *symm__channel_progress(const symm_team *team, int place, int channel);
/* Every member has queued as many launches on the channel, none is inside a call, all
 * kernels have ended, and no graph holds a call. */
bool symm__channel_is_idle(symm_team *team, int channel);
/* A graph of a member holds a call of the channel. */
bool symm__channel_is_pinned(symm_team *team, int channel);
/* Whether every member's device has reached this launch, so that all earlier ones have ended. */
bool symm__channel_has_reached(symm_team *team, int channel, uint32_t launch);
/* The last launch that the first block of the member's device has ended. false: it is not known. */
bool symm__channel_ended(const symm_team *team, int place, int channel,
                         uint32_t *launch);
/* Both are final only with the table locked. */
uint64_t symm__channel_key(const symm_team *team, int channel);
bool symm__channel_has_key(const symm_team *team, int channel, uint64_t key);

/* Slot of device_ops.h. */
bool symm__cuda_channel_engine(const struct symm_team_channel *channel);

/* All with the table locked. */

/* A key, its sequence's number and its place there, from 1 on. */
struct symm_channel_try {
    uint64_t key, line;
    uint32_t number;
};
/* The channel of a key, or one for it: in the tier if possible (cuda_launch.h), else in any. -1: all
 * are in use; members that ask with the key later get -1, too. */
int symm__channel_acquire(symm_team *team, const struct symm_channel_try *try,
                          int tier);
/* Gives that channel to the key of the member's try number `asked` to get it by its name. false: it
 * is in use; members get the same answer to this try, however late they make it. */
bool symm__channel_acquire_named(symm_team *team, uint64_t key, int channel,
                                 uint32_t asked);
/* A channel in a better tier, from `tier` on, for the stream that has this channel and gets
 * `key` if there is one. -1: none is idle, the stream's next launch is on this channel. Members
 * are distinguished by the channel's launches: all ask, or none, before the same launch. */
int symm__channel_grow(symm_team *team, const struct symm_team_channel *channel,
                       uint64_t key, int tier);

#endif
