/* SPDX-License-Identifier: MIT */
/*
 * cuda_channel.h - which channel of a team a stream's calls take on CUDA.
 *
 * A channel has counters, words and scratch of its own on each member, so the members must
 * use it for the same sequence of calls. Streams have no name that members share. So a stream
 * gets its channel at its first collective on the team, by a key of (tag, k): `tag` is a hash
 * of that call, k counts the streams of this rank that began with the same tag. The members
 * share a table of keys (struct symm_channel_table): the first to come enters the key at a
 * channel that is free, the others find it there. So streams may be used for the first time
 * in any order where their first calls differ; where they are equal the k-th stream of one
 * member meets the k-th of the others. The legacy default stream is one on each member, so
 * it has a key of its own. symm_call.channel names a channel outright.
 *
 * A channel may be given to another key when it is idle: every member has queued the same
 * number of calls on it, none is inside a call, all kernels have ended, and no graph holds
 * one of them. The stream that had it finds that out at its next call and begins again. Its
 * next call is the same one on every member, so they agree again.
 *
 * A handle is used within a call on its stream only: later the stream may be gone. A stream
 * that is captured cannot be asked for its id, so it has the channel that its handle had at
 * its last call: use a stream once before it is captured if its handle may be an old one.
 * With team->lanes locked, all of this. Teams over several hosts have no such table: there
 * the k-th stream used has channel k (lane.c).
 */
#ifndef SYMM_CUDA_CHANNEL_H
#define SYMM_CUDA_CHANNEL_H

#include "cuda_calls.h"

/* A number that no two streams of a context ever share. SYMM_ERR_UNSUPPORTED: the per-thread
 * default stream, and a driver that cannot name it. */
symm_status symm__cuda_stream_id(symm_ctx *ctx, void *stream,
                                 uint64_t *id) SYMM_MUST_CHECK;
/* A new team: its counts, and the table if this rank is its first member. */
void symm__cuda_channel_open(symm_team *team);
void symm__cuda_channel_close(symm_team *team);
/* The lane that the stream has; NULL: none (any more), it has to be claimed. */
symm_status symm__cuda_channel_find(symm_team *team, void *stream,
                                    struct symm_lane **lane) SYMM_MUST_CHECK;
/*
 * A channel for the stream, whose call has this tag; large: one with large scratch if there
 * is one, else any. current: the lane that the stream has and keeps if there is no large one;
 * NULL: none. named: 1 .. SYMM_CHANNELS, or 0. SYMM_ERR_BUSY: all are in use.
 */
symm_status symm__cuda_channel_claim(symm_team *team, void *stream, uint32_t tag,
                                     bool large, int named, struct symm_lane *current,
                                     struct symm_lane **lane) SYMM_MUST_CHECK;
/* The channel of a stream that collectives have used with the team, else SYMM_CHANNELS. */
int symm__cuda_channel_of(symm_team *team, const void *stream);
/* Before a launch of `blocks` blocks: its number, 0 if a graph captures it. */
uint32_t symm__cuda_channel_launch(struct symm_lane *lane, uint32_t blocks);
/* Where the device tells the end of each block's launches; NULL: nowhere. */
uint32_t *symm__cuda_channel_done(const struct symm_lane *lane);
/* The call is queued: peers may see so. */
void symm__cuda_channel_leave(struct symm_lane *lane);
/* For the watcher: channels whose graphs are gone. */
void symm__cuda_channel_refresh(symm_team *team);

#endif
