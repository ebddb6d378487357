/* SPDX-License-Identifier: MIT */
/*
 * channel.h - which stream runs on which channel of a team.
 *
 * Host, and CUDA teams over several hosts: channel 0 is the NULL stream's. The k-th other stream
 * that is used with a team gets channel k (the channels of destroyed streams are taken first). So
 * ranks agree if they use their streams with the team in the same order, and always if each thread
 * has a stream and a team of its own. Host: between enter and leave no other thread runs a call on
 * the NULL stream of the context.
 * CUDA teams of one host: cuda/channel.c finds the stream's channel, that of the NULL stream too.
 * All CUDA teams: between enter and leave team->channels is locked, so threads that call on one
 * stream are queued one after the other.
 */
#ifndef SYMM_CALL_CHANNEL_H
#define SYMM_CALL_CHANNEL_H

#include "core/team.h"

/* For a new team, once the members' pads are mapped. */
void symm__channel_init(struct symm_team_channel *channel);
/* SYMM_ERR_BUSY; a failed team's status. CUDA, a team of one host: *channel is NULL if the
 * stream has no channel: symm_device_ops.channel_claim, or unlock team->channels. */
symm_status symm__channel_enter(symm_team *team, void *stream,
                                struct symm_team_channel **channel) SYMM_MUST_CHECK;
void symm__channel_leave(struct symm_team_channel *channel);
/* Frees the channels of a stream that ends. */
void symm__channel_forget(symm_ctx *ctx, const void *stream);
/* Host: a call that takes no channel is queued on the stream; symm_team_destroy awaits it. */
void symm__stream_used(symm_team *team, const void *stream);
symm_status symm__stream_check(const symm_ctx *ctx, const void *stream) SYMM_MUST_CHECK;
/*
 * Enter and leave for a call that takes no channel. Device: *stream becomes the name that channels
 * have for the stream, and team->channels is locked: calls of several threads on one stream are
 * queued one after the other, and none lies between the parts of another. Host: the NULL
 * stream is taken (SYMM_ERR_BUSY); another one is checked.
 */
symm_status symm__stream_enter(symm_team *team, void **stream) SYMM_MUST_CHECK;
void symm__stream_leave(symm_team *team, const void *stream);
/* Host: enter and leave for what runs on the NULL stream without a channel. */
symm_status symm__default_enter(symm_ctx *ctx) SYMM_MUST_CHECK;
void symm__default_leave(symm_ctx *ctx);
/* Checks and copies a symm_call that may be shorter or longer than this library's. */
symm_status symm__call_copy(const symm_call *given, symm_call *call) SYMM_MUST_CHECK;

#endif
