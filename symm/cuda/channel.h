/* SPDX-License-Identifier: MIT */
/*
 * channel.h - which channel of a team a stream's calls take on CUDA.
 *
 * A channel has counters, words and scratch of its own on each member, so the members must
 * use it for the same sequence of calls. Streams have no name that members share. So a stream
 * gets its channel at its first collective on the team, by a key of (tag, k): `tag` is a hash
 * of that call, k counts the streams of this rank that began with the same tag. The members
 * share a table of keys (channel_table.h): the first member enters the key at a channel,
 * the others find it there. So streams may be used for the first time in any order where
 * their first calls differ; where they are equal the k-th stream of one member is paired with
 * the k-th of the others. The legacy default stream is one on each member, so it has a key of its
 * own. symm_call.channel names a channel directly.
 *
 * An idle channel may be given to another key. The stream that had it finds that out at its
 * next call and asks for a channel with a key that follows from its last one: so from its first
 * call on a stream is paired with the same streams of the other members, in whichever order they
 * are used. The keys of such streams are kept until the team's end, 16 bytes each.
 *
 * A call that wants more scratch than its stream's channel has asks for a better channel
 * (grow), with the key that would follow.
 *
 * A stream's handle is used only within a call on that stream: later the stream may be gone. A
 * stream that is captured cannot be asked for its id, so it has the channel that its handle had
 * at its last call: use a stream once before it is captured if its handle may be an old one. All
 * functions need team->channels locked. Teams over several hosts have no such table: there the
 * k-th stream used has channel k (call/channel.c).
 */
#ifndef SYMM_CUDA_CHANNEL_H
#define SYMM_CUDA_CHANNEL_H

#include "cuda/launcher.h"

/* A number that no two streams of a context ever share. SYMM_ERR_UNSUPPORTED: the per-thread
 * default stream, and a driver that cannot name it. */
symm_status symm__cuda_stream_id(symm_ctx *ctx, void *stream,
                                 uint64_t *id) SYMM_MUST_CHECK;
void symm__cuda_channel_close(symm_team *team);
/* Slots of device_ops.h: */
symm_status symm__cuda_channel_find(symm_team *team, void *stream,
                                    struct symm_team_channel **channel) SYMM_MUST_CHECK;
symm_status
symm__cuda_channel_claim(symm_team *team, void *stream, uint32_t tag, uint64_t bytes,
                         int named, struct symm_team_channel **channel) SYMM_MUST_CHECK;
symm_status symm__cuda_channel_grow(struct symm_team_channel *current, uint64_t bytes,
                                    struct symm_team_channel **channel) SYMM_MUST_CHECK;
void symm__cuda_channel_leave(struct symm_team_channel *channel);
int symm__cuda_channel_of(symm_team *team, const void *stream);
/* The channel whose mark is that of a one-sided call on the stream, also of a team over several
 * hosts: other teams' calls behind it read it. SYMM_CHANNELS: the mark that each failure sets. A
 * replay may come behind calls of a channel that the stream did not have when it was captured.
 * *captured: it is. */
int symm__cuda_mark_of(symm_team *team, const void *stream, bool *captured);
/* " on stream 0x55d0c8a0, channel 2": where the channel's calls run. Returns text. */
const char *symm__cuda_channel_text(const struct symm_team_channel *channel, char *text,
                                    size_t bytes);
/* Counts a launch of `blocks` blocks with that tag. Its number; 0 if a graph captures it. */
uint32_t symm__cuda_channel_launch(struct symm_team_channel *channel, uint32_t blocks,
                                   uint32_t tag);
/* Does a stream have the channel, on any rank, that symm_call.channel named? */
bool symm__cuda_channel_named(const symm_team *team, int channel);
/* Where the device counts the ends of each block's launches; NULL: nowhere. */
uint32_t *symm__cuda_channel_done(const struct symm_team_channel *channel);
/* For the watchdog: releases channels of ended graphs, shows kernels what peers have queued. */
void symm__cuda_channel_refresh(symm_team *team);

#endif
