/* SPDX-License-Identifier: MIT */
/*
 * device_ops.h - what a backend that launches on a device does for teams, their memory, calls,
 * streams and handles. The host backend has no such table: ctx->device_ops is NULL there, which is
 * the one test for it, and the runtime's own kernels, queues and handles serve. No slot is
 * NULL.
 *
 * Everything is checked by the caller unless said otherwise; every function that returns a
 * status sets the thread's error when it fails.
 */
#ifndef SYMM_CORE_DEVICE_OPS_H
#define SYMM_CORE_DEVICE_OPS_H

#include "core/team.h"
#include "kernels/cuda_launch.h"

struct symm_engine_comm;
struct symm_engine_request;
struct symm_select_query;

/* A put, a get, a signal or a wait, with the peer's address where it is needed. */
struct symm_transfer {
    symm_team *team;
    const char *what; /* "symm_put" */
    void *dst;
    const void *src;
    size_t bytes;
    int peer, signal; /* signal -1: none */
    bool waits, gets;
    uint32_t tag; /* of the site's name; 0: not compared */
    double timeout;
    const char *algorithm; /* the caller's, NULL: the library chooses */
    char site[SYMM_SITE_NAME_BYTES];
};

/* Operations of one group that go to an engine. */
struct symm_engine_call {
    symm_team *team;
    struct symm_engine_comm *comm;
    const struct symm_engine_request *requests;
    int count;
    double timeout;
    const char *what, *site; /* for sentences */
    /* The team ranks without which a collective over hosts cannot end (NULL: all of them), and how
     * many; 0: it is no such collective. They live as long as the team. */
    const int *members;
    int member_count;
    /* Sends and receives: the first SYMM_SIGHT_AWAITED peers' world ranks; for tools, the step. */
    const int *peers;
    int peer_count;
    uint32_t step;
    bool *captured; /* device: gets whether a graph captures them; NULL: not wanted */
};

#define SYMM_SIDE_MARKS 3

/* Rows of `bytes` bytes each, one `pitch` (at least `bytes`) after the other. */
struct symm_rows {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, bytes;
    size_t count;
};

/* What every handle begins with. */
struct symm_work {
    symm_ctx *ctx; /* not to be used once `life` has ended */
    struct symm_life *life;
    const struct symm_device_ops *device_ops; /* NULL: a handle of the host backend */
    /* A recorder's: 1 + the call's stream, and the stream's events up to the call; 0: none */
    int record_stream;
    uint64_t record_mark;
};

struct symm_device_ops {
    /* ---- Teams. With the context locked, from here to multicast_at. ---- */

    /* Where what kernels need of the heap ends, of a team of `size` members on this host whose
     * pad ends at this offset. */
    uint64_t (*scratch_end)(uint64_t pad_end, int size);
    /* Once the team's own pad and scratch are committed and before any peer can reach them:
     * fills both, makes what kernels need beside them, and sets team->device_ops. */
    symm_status (*team_open)(symm_team *team);
    /* Waits (bounded) until kernels of the team have ended, and frees what team_open has made.
     * Nothing happens if that failed, or was never called. */
    void (*team_close)(symm_team *team);
    /* Called once the members have mapped each other's new memory: exchanges what the device
     * needs beside that. If one member cannot have that, all go on without it; an error is one of
     * the exchange. Collective. */
    symm_status (*memory_shared)(symm_team *team, double timeout);
    /* The address that reaches [offset, offset + bytes) of all members' heaps; NULL: there is
     * none, or the range is memory of another team. Without a lock. */
    void *(*multicast_at)(const symm_team *team, size_t offset, size_t bytes);

    /* Entries of captured calls (core/captured.h), with the lock of their list. */
    /* A new entry, not ready; index: how many there are before it. */
    symm_status (*pointers_add)(symm_team *team, size_t index,
                                const struct symm_cuda_pointers **entry);
    /* Writes the addresses of some entries, then their states. */
    symm_status (*pointers_write)(symm_team *team, size_t first, size_t count,
                                  const struct symm_cuda_pointers *entries);
    /* Makes entries unusable; the list is ascending. */
    symm_status (*pointers_release)(symm_team *team, const size_t *list, size_t count);

    /* Without a lock: waits until all that was queued on the rank's device has ended. */
    void (*settle)(symm_ctx *ctx);

    /* ---- Failures, and the end of things ---- */

    /* Ends the team's kernels with that status, once it has failed. */
    void (*abort)(symm_team *team, symm_status status);
    /* Called before and after the end of a stream, a team or the context, which waits for the
     * device: meanwhile waits in graphs are ended at the context's deadline. */
    void (*ending)(symm_ctx *ctx, bool begins);
    /* Calls fn with the rank's device current; `last`: fn frees something, and is called even
     * where the device refuses. */
    symm_status (*within)(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                          void *arg);

    /* ---- Calls ---- */

    /* The team's failure from what its kernels and peers have reported; one load if none. */
    symm_status (*poll)(symm_team *team);
    /* The stream as channels know it: NULL for every name of the default one. */
    symm_status (*stream_check)(symm_ctx *ctx, void **stream);
    /* Before it gets its first channel of a team: fails if its context has fewer multiprocessors
     * than the grids of calls are made for. */
    symm_status (*stream_admit)(symm_ctx *ctx, void *stream);
    /* Channels of streams, with team->channels locked. */
    /* The channel that the stream has; NULL: none (any more), it has to be claimed. */
    symm_status (*channel_find)(symm_team *team, void *stream,
                                struct symm_team_channel **channel);
    /* A channel for a stream that has none. tag: of its call, which has `bytes` in one rank's
     * block. named: 1 .. SYMM_CHANNELS, or 0. SYMM_ERR_BUSY: all are in use; where no channel is
     * named, all members that make this call get that. */
    symm_status (*channel_claim)(symm_team *team, void *stream, uint32_t tag,
                                 uint64_t bytes, int named,
                                 struct symm_team_channel **channel);
    /* The channel for a call of `bytes` on the stream of an entered channel: that one, or one with
     * the scratch that the call wants, if it is idle; the same on all members. On error the
     * channel is no longer held. */
    symm_status (*channel_grow)(struct symm_team_channel *current, uint64_t bytes,
                                struct symm_team_channel **channel);
    /* Whether the engine serves this channel of the team: the first one for which a member asked,
     * on all members. */
    bool (*channel_engine)(const struct symm_team_channel *channel);
    /* The call is queued: shows that to peers. */
    void (*channel_leave)(struct symm_team_channel *channel);
    /* The channel of a stream that collectives have used with the team, else SYMM_CHANNELS. */
    int (*channel_of)(symm_team *team, const void *stream);
    /* Can this rank's device reach [ptr, ptr + bytes)? */
    symm_status (*reach)(symm_team *team, const char *what, const char *which,
                         const void *ptr, size_t bytes);
    /* Fills in what select.c reads beyond the call itself: equal on all ranks. */
    void (*describe)(const struct symm_team_channel *channel,
                     const struct symm_args *args, struct symm_select_query *query);
    /* Makes channel->launches[index] ready for the entry, whose args are filled; on error it is
     * as before. The channel is held, also during launch. */
    symm_status (*prepare)(struct symm_team_channel *channel,
                           const struct symm_prepared_call *entry, size_t index,
                           const struct symm_select_query *query);
    symm_status (*launch)(struct symm_team_channel *channel,
                          const struct symm_prepared_call *entry, double timeout,
                          symm_work **work);
    /* After the sums of an all_reduce_norm that is not fused: queues the rest of it. */
    symm_status (*norm_rest)(struct symm_team_channel *channel,
                             const struct symm_prepared_call *entry);
    /* For symm_explain, after a sentence: where the channel's last call runs, and with what. */
    void (*explain)(const struct symm_team_channel *channel, char *text, size_t bytes);
    /* A handle for all that was queued on the channel's stream so far. */
    symm_status (*handle)(struct symm_team_channel *channel, symm_work **work);
    /* Sets bytes of this rank's memory, in the stream's order. */
    symm_status (*fill)(symm_ctx *ctx, void *stream, void *at, int byte, size_t bytes);
    /* Copies rows within this rank's memory, in the stream's order; they do not overlap. */
    symm_status (*copy_rows)(symm_ctx *ctx, void *stream, const struct symm_rows *rows);
    /* *path: a sentence for symm_explain. *captured: a graph captures it. */
    symm_status (*transfer)(const struct symm_transfer *transfer, void *stream,
                            symm_work **work, const char **path, bool *captured);

    /* A second stream of a held channel of a team over several hosts, for steps beside those on
     * its own; until the team's end. */
    symm_status (*side)(struct symm_team_channel *channel, void **stream);
    /* After `side`. side_await lets its stream wait for the calls that the other stream had when
     * side_mark was called with the same mark, 0 .. SYMM_SIDE_MARKS - 1. */
    symm_status (*side_mark)(struct symm_team_channel *channel, int mark, void *stream);
    symm_status (*side_await)(struct symm_team_channel *channel, int mark,
                              void *stream);
    /* Queues an engine's operations on the stream; on error the team has failed. */
    symm_status (*engine)(const struct symm_engine_call *call, void *stream,
                          symm_work **work);
    /* The team as device code sees it, in memory of the device. */
    symm_status (*team_device)(symm_team *team, const void **device_team);

    /* ---- Streams and handles, as symm.h says ---- */

    symm_status (*stream_synchronize)(symm_ctx *ctx, void *stream, double seconds);
    symm_status (*stream_call)(symm_ctx *ctx, void *stream, void (*fn)(void *arg),
                               void *arg);
    symm_status (*work_query)(symm_work *work, bool *done);
    symm_status (*work_wait)(symm_work *work, void *stream);
    symm_status (*work_synchronize)(symm_work *work, double seconds);
    symm_status (*work_then)(symm_work *work, void *stream,
                             symm_status (*fn)(void *arg, void *stream), void *arg,
                             symm_work **next);
    const char *(*work_error)(symm_work *work);
    void (*work_release)(symm_work *work); /* also after the context's end */
    /* Posts the notification when the call has ended, at once if it has already. On error the
     * caller keeps it. */
    symm_status (*work_notify)(symm_work *work, struct symm_notification *notification);
};

/* The channel of a stream that collectives have used with the team, else SYMM_CHANNELS. With
 * team->channels locked. */
int symm__channel_find(symm_team *team, const void *stream);

/*
 * Waits for the calls that are queued for the team on the context's streams; each is bounded by
 * its timeout. Streams that the team does not use are not waited for: they may wait for this
 * thread's next call. (On a device streams are the caller's own: nothing is waited for here.)
 */
void symm__team_drain(symm_team *team);

#endif
