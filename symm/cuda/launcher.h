/* SPDX-License-Identifier: MIT */
/*
 * launcher.h - what the files of the CUDA backend's call side share: the launcher of a
 * context (streams, events, handles, the watchdog) and what a team has on its device.
 *
 * Locks: launcher->lock guards the list of teams and of stream waits, and is held by the
 * watchdog while it polls them; launcher->pool guards events, result slots and handles;
 * launcher->handles is held by a thread that uses a handle's event or team, and for writing by a
 * team's end, which takes them away. The order is: the notifier's `polling`, handles, lock, pool.
 * None is taken by a call without a handle, unless it follows another team's call on its stream.
 * launcher->order is taken by each call; launcher->lock may be taken while it is held.
 */
#ifndef SYMM_CUDA_LAUNCHER_H
#define SYMM_CUDA_LAUNCHER_H

#include "core/device_ops.h"
#include "cuda/device.h"
#include "cuda/map.h"
#include "cuda/multicast_object.h"
#include "engine/runtime.h"

#define SYMM_CUDA_RESULTS                                                              \
    1024 /* handles at a time that have a result slot of their own */
#define SYMM_CUDA_REACHED     64 /* ranges that were found reachable; a power of two */

/* A call that was prepared: beside channel->prepared. */
struct symm_cuda_entry {
    CUfunction function;
    uint32_t blocks, threads, cluster, each; /* struct symm_cuda_shape */
    uint32_t wish, cut; /* blocks without a budget; the budget's limit, or 0 */
    bool early;         /* a small grid: it may trigger dependents at once */
    struct symm_cuda_query ask;
    struct symm_cuda_args args;
};

struct symm_cuda_team {
    symm_team *team;
    struct symm_cuda_team *next;     /* of the launcher */
    struct symm_device_team *device; /* device memory */
    /* The beginnings of a struct symm_cuda_state and a struct symm_cuda_record: */
    struct symm_device_state *state;   /* device memory */
    struct symm_device_record *record; /* page-locked memory of the host */
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    int used; /* atomic: something was launched for the team, or may be */
    /* Nanoseconds, of the last call of each channel and of the last wait for a signal; atomic. */
    uint64_t timeout[SYMM_CHANNELS + 1];
    /* By raising member and signal: the stream of the last wait by a kernel; atomic. */
    void *waiting[SYMM_DEVICE_RANKS][SYMM_SIGNALS];
    int site_told;    /* atomic: symm__cuda_site_tell was called */
    /* atomic: when a peer's arrival was first found cancelled without a reason */
    double cancelled;
    uint64_t reached[SYMM_CUDA_REACHED]; /* atomic; of range and allocations */
    struct symm_cuda_multicast multicast;
    int known;     /* atomic: an API call has returned that the team has failed */
    int followers; /* atomic: launches under way of calls after this team's */
    struct symm_cuda_map
        begun; /* by tag: the tries of streams that began with it; owned */
    uint32_t asked[SYMM_CHANNELS]; /* how often the channel was asked for by its name */
    /* By stream that lost its channel: its last key, and its tries since; owned. */
    struct symm_cuda_map keys, tries;
    struct symm_cuda_side *sides; /* [SYMM_CHANNELS]; NULL: none yet; owned */
    struct symm_cuda_word *words; /* that waits in graphs take; owned; with the lock */
    /* Entries of captured calls, in chunks (pointers.c); owned. */
    struct symm_cuda_pointers_chunk **chunks;
    size_t chunk_count;
    /* By member: where words of copy-engine calls lie (tokens.c); owned. */
    struct symm_cuda_tokens *tokens[SYMM_DEVICE_RANKS];
    bool tokens_asked, tokens_shared; /* sharing them was tried; all members have all */
    int tokens_lost; /* a rank of the world that lacks them, if one does */
    /* With the lock: */
    double telling; /* when the copy of the abort word was queued; 0: not yet */
    bool reported; /* that copy is done, or was waited for long enough */
    double failing; /* when the watchdog first saw the team failed; 0: not yet */
    struct symm_cuda_seen {           /* for progress.c, by channel: */
        uint32_t call;                /* number of the last call that was polled */
        /* since when that call is under way; 0: it is not */
        double since;
        struct symm_sight_wait *wait; /* as tools see it; NULL: not yet */
    } seen[SYMM_CHANNELS];
};

static inline struct symm_cuda_record *
symm__cuda_extended(const struct symm_cuda_team *cuda)
{
    return (struct symm_cuda_record *)(void *)cuda->record;
}

struct symm_cuda_word {
    struct symm_cuda_word *next;
    uint32_t *at; /* the host's address */
};

/* A member's words that streams or kernels write and its peers' processes read. Those of
 * copy-engine calls are 1 or 0: streams write and await them, and the member's watchdog stores
 * 1 to end a wait. */
struct symm_cuda_words {
    uint32_t token[SYMM_DEVICE_RANKS][SYMM_SIGNALS]; /* 1: data is there; by sender */
    uint32_t room[SYMM_DEVICE_RANKS][SYMM_SIGNALS];  /* 1: send again; by receiver */
    /* The last launch of a channel that each block of the member's device has ended. */
    uint32_t done[SYMM_CHANNELS][SYMM_DEVICE_BLOCKS];
};
#define SYMM_CUDA_WORDS_BYTES 196608 /* what is mapped: whole pages for any page size */
_Static_assert(sizeof(struct symm_cuda_words) <= SYMM_CUDA_WORDS_BYTES, "layout");

struct symm_cuda_follow;
struct symm_cuda_work;
struct symm_cuda_wait;

/* A team that has failed and ended, for sentences of calls behind its calls. */
struct symm_cuda_ended {
    uint32_t number; /* of the team; 0: none */
    char why[SYMM_RECORD_BYTES];
};
#define SYMM_CUDA_ENDED 4
#define SYMM_CUDA_HINTS 64

struct symm_cuda_launcher {
    symm_ctx *ctx;
    struct symm_backend *backend;
    const struct symm_cuda_driver *driver;
    bool dependent; /* kernels are launched with programmatic dependent launch */
    bool pageable; /* the device reaches all memory of the host */
    bool flush;    /* streams' waits can flush remote writes */
    pthread_mutex_t lock;
    pthread_t watchdog;
    pthread_cond_t stop; /* signalled when stopping is set */
    bool stopping;       /* the watchdog; guarded by `lock` */
    CUstream stream;     /* the watchdog's */
    struct symm_cuda_team *teams;
    struct symm_cuda_ended ended[SYMM_CUDA_ENDED]; /* the latest ones */
    uint32_t ended_next;
    struct symm_cuda_wait *waits;
    struct symm_cuda_progress *progress; /* NULL: without SYMM_SIGHT=1; owned */
    int endings;   /* of streams, teams and the context that wait for the device now */
    double ending; /* since when there are some */
    pthread_mutex_t peeking;   /* guards the copy of a word from the device */
    pthread_mutex_t order;     /* guards `last` */
    struct symm_cuda_map last; /* stream_order.c: by stream; owned */
    uint8_t wide[SYMM_CUDA_HINTS]; /* stream_order.c: by a hash of the stream */
    pthread_rwlock_t handles;
    pthread_mutex_t pool;
    CUevent *events; /* idle ones; owned */
    size_t event_count, event_capacity;
    uint32_t *results; /* [SYMM_CUDA_RESULTS], page-locked */
    uint16_t result_free[SYMM_CUDA_RESULTS];
    uint16_t result_holders[SYMM_CUDA_RESULTS];
    int result_count;             /* free ones */
    struct symm_cuda_work *works; /* that have an event and an owner */
    struct symm_cuda_work *released, **released_end; /* an event only; oldest first */
    /* Of works, those with notifications: `fresh` has new ones, `awaited` the others in the order
     * of their calls. */
    struct symm_cuda_work *fresh, **fresh_end, *awaited, **awaited_end;
    uint64_t awaited_newest; /* the greatest number that ever was there */
    uint64_t works_made;
};

/* team.c (see device_ops.h) */
uint64_t symm__cuda_scratch_end(uint64_t pad_end, int size);
symm_status symm__cuda_memory_shared(symm_team *team, double timeout);
symm_status symm__cuda_team_open(symm_team *team);
void symm__cuda_team_close(symm_team *team);

/* launch.c */
/* A call of the driver on a stream, in the current context, or in the rank's own if the current
 * one does not know the stream. The default stream is the current context's, so a call on it is
 * always made in the rank's own. object: a CUevent, or where the driver stores its answer. */
enum symm_cuda_stream_call {
    SYMM_CUDA_RECORD,  /* a CUevent */
    SYMM_CUDA_AWAIT,   /* a CUevent */
    SYMM_CUDA_CAPTURE, /* a CUstreamCaptureStatus */
    SYMM_CUDA_ID       /* a number; the driver has cuStreamGetId */
};
CUresult symm__cuda_on_stream(struct symm_cuda_launcher *launcher,
                              enum symm_cuda_stream_call call, CUstream stream,
                              void *object);
/* Launches a kernel on the stream, behind what is in front of it there (stream_order.h). */
symm_status symm__cuda_start(struct symm_cuda_follow *follow, CUfunction function,
                             struct symm_cuda_shape shape, struct symm_cuda_args *args,
                             CUstream stream, const char *name) SYMM_MUST_CHECK;
symm_status symm__cuda_stream_check(symm_ctx *ctx, void **stream) SYMM_MUST_CHECK;
/* Slots of device_ops.h: */
symm_status symm__cuda_call_reach(symm_team *team, const char *what, const char *which,
                                  const void *ptr, size_t bytes);
void symm__cuda_call_describe(const struct symm_team_channel *channel,
                              const struct symm_args *args,
                              struct symm_select_query *query);
symm_status symm__cuda_prepare(struct symm_team_channel *channel,
                               const struct symm_prepared_call *prepared, size_t index,
                               const struct symm_select_query *query);
symm_status symm__cuda_launch(struct symm_team_channel *channel,
                              const struct symm_prepared_call *prepared, double timeout,
                              symm_work **work);
void symm__cuda_explain(const struct symm_team_channel *channel, char *text,
                        size_t bytes);
symm_status symm__cuda_handle(struct symm_team_channel *channel, symm_work **made);
symm_status symm__cuda_team_device(symm_team *team, const void **device_team);

/* error_record.c: `poll` and `abort` (see device_ops.h) */
symm_status symm__cuda_team_poll(symm_team *team) SYMM_MUST_CHECK;
void symm__cuda_abort(symm_team *team, symm_status status);
/* As symm__cuda_team_poll, for the watchdog: SYMM_OK also while a reason is still missing. */
symm_status symm__cuda_diagnose(symm_team *team, bool may_wait) SYMM_MUST_CHECK;
/* The call sites of tags: published by their rank, found by all. */
void symm__cuda_site_publish(struct symm_cuda_launcher *launcher,
                             const struct symm_site *site);
/* The same of a call that has a name alone, as symm__site_name_set keeps it. tag 0: nothing. */
void symm__cuda_site_name_publish(struct symm_cuda_launcher *launcher, uint32_t tag,
                                  const char *name);
bool symm__cuda_site_find(const symm_ctx *ctx, int world_rank, uint32_t tag,
                          struct symm_site *site);
/* The site of the member with that place. A member on another host has no page here: its site is
 * that of this rank's own call with the tag, or the one which that rank has reported. */
bool symm__cuda_site_of(const symm_team *team, int place, uint32_t tag,
                        struct symm_site *site);
/* Reports to ranks of other hosts, once, at which site this rank's call of the team failed. */
void symm__cuda_site_tell(const symm_team *team, uint32_t tag);

/* watchdog.c: `ending` (see device_ops.h) */
void symm__cuda_ending(symm_ctx *ctx, bool begins);
symm_status
symm__cuda_watchdog_start(struct symm_cuda_launcher *launcher) SYMM_MUST_CHECK;
void symm__cuda_watchdog_stop(struct symm_cuda_launcher *launcher);
/* A wait of a stream for `word` (own, tokens.c) to become 1, between two events: it is ended at
 * the deadline, by a store into the word. */
struct symm_cuda_wait {
    struct symm_cuda_wait *next;
    symm_team *team;
    CUevent before, after;
    uint32_t *word;
    double began, timeout; /* seconds; began 0: not yet */
    int peer, signal;
    const void *stream;   /* the user's, for sentences; set by symm__cuda_wait_begin */
    bool receives, ended; /* ended: its communicator has been aborted */
    char site[SYMM_SITE_NAME_BYTES];
    /* Of an engine's operation instead, which is ended by an abort; NULL: none. */
    struct symm_engine_comm *comm;
    struct symm_engine_awaited awaited;
    /* The calling thread is in the engine, until this time at most; with the lock. */
    bool inside;
    double until;
    bool pending;  /* it counts in the team's symm_team_engine */
    char what[64]; /* for sentences */
};
/* Both in a scope. begin: copies `about` and records the first event; *begun is NULL if the
 * stream is captured. end: records the second event and hands the wait, if not NULL, to the
 * watchdog; on error, or if `status` is one, the wait is freed. An engine's operation is the
 * watchdog's from begin on, since the engine may not return; a captured one ends with the call. */
symm_status symm__cuda_wait_begin(struct symm_cuda_launcher *launcher, CUstream stream,
                                  const struct symm_cuda_wait *about,
                                  struct symm_cuda_wait **begun) SYMM_MUST_CHECK;
symm_status symm__cuda_wait_end(struct symm_cuda_launcher *launcher, CUstream stream,
                                struct symm_cuda_wait *wait,
                                symm_status status) SYMM_MUST_CHECK;
/* Ends all of the team's waits now. */
void symm__cuda_waits_end(struct symm_cuda_launcher *launcher, const symm_team *team);
/* Adds a graph's wait for `word` (own). It is ended when its team has failed, or when the end of a
 * stream, a team or the context has been held up for the context's deadline. */
symm_status symm__cuda_word_add(struct symm_cuda_launcher *launcher, symm_team *team,
                                uint32_t *word) SYMM_MUST_CHECK;
void symm__cuda_words_free(struct symm_cuda_team *cuda);
/* Waits, for a second at most, until the abort word of a team that has one has reached the
 * kernels of all channels, also those that begin later. */
void symm__cuda_tell(struct symm_cuda_team *cuda);

/* work_pool.c */
symm_status symm__cuda_pool_open(struct symm_cuda_launcher *launcher) SYMM_MUST_CHECK;
void symm__cuda_pool_close(struct symm_cuda_launcher *launcher);
symm_status symm__cuda_event_acquire(struct symm_cuda_launcher *launcher,
                                     CUevent *event) SYMM_MUST_CHECK;
void symm__cuda_event_release(struct symm_cuda_launcher *launcher, CUevent event);
/* work.c */
/* Before a launch: a handle whose result slot the kernel may write (*result, or NULL). */
symm_status symm__cuda_work_begin(symm_team *team, void *stream,
                                  struct symm_cuda_work **work,
                                  uint32_t **result) SYMM_MUST_CHECK;
/* After it: records the event. On error, or if `status` is one, the handle is freed. */
symm_status symm__cuda_work_end(struct symm_cuda_work *work, symm_status status,
                                symm_work **handle) SYMM_MUST_CHECK;
/* The same for a call which the members count once it is queued (`status` is SYMM_OK), and which cannot
 * be made again unless it is captured: the team fails if the event cannot be recorded. */
symm_status symm__cuda_work_end_call(struct symm_cuda_work *work, symm_status status,
                                     symm_work **handle, const char *what,
                                     const char *site, bool captured) SYMM_MUST_CHECK;
symm_status symm__cuda_work_query(symm_work *work, bool *done);
symm_status symm__cuda_work_wait(symm_work *work, void *stream);
symm_status symm__cuda_work_synchronize(symm_work *work, double seconds);
symm_status symm__cuda_work_then(symm_work *work, void *stream,
                                 symm_status (*fn)(void *arg, void *stream), void *arg,
                                 symm_work **next);
const char *symm__cuda_work_error(symm_work *work);
void symm__cuda_work_release(symm_work *work);
/* work_notify.c */
symm_status symm__cuda_work_notify(symm_work *work,
                                   struct symm_notification *notification);
/* At the team's end: completes its handles, which keep their results. */
void symm__cuda_work_complete_all(struct symm_cuda_launcher *launcher, symm_team *team);

/* stream.c */
/* "the default stream", "the per-thread default stream", "stream 0x55d0c8a0". Returns text. */
const char *symm__cuda_stream_text(const void *stream, char *text, size_t bytes);
symm_status symm__cuda_synchronize(symm_ctx *ctx, void *stream,
                                   double seconds) SYMM_MUST_CHECK;
symm_status symm__cuda_host_call(symm_ctx *ctx, void *stream, void (*fn)(void *arg),
                                 void *arg) SYMM_MUST_CHECK;
symm_status symm__cuda_memset(symm_ctx *ctx, void *stream, void *at, int byte,
                              size_t bytes) SYMM_MUST_CHECK;
symm_status symm__cuda_copy_rows(symm_ctx *ctx, void *stream,
                                 const struct symm_rows *rows) SYMM_MUST_CHECK;

/* engine_stream.c: `within` (see device_ops.h) */
symm_status symm__cuda_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                              void *arg);
symm_status symm__cuda_engine_run(const struct symm_engine_call *call, void *stream,
                                  symm_work **handle) SYMM_MUST_CHECK;
/* For the watchdog, with its lock and a scope. late: fails the team; poll: asks the engine. */
symm_status symm__cuda_engine_late(const struct symm_cuda_wait *wait);
symm_status symm__cuda_engine_poll(struct symm_cuda_wait *wait);
/* Of a team that has failed: aborts its communicators once its kernels have been marked. */
void symm__cuda_engine_abort(symm_team *team);

/* side_stream.c: see device_ops.h */
symm_status symm__cuda_side(struct symm_team_channel *channel, void **stream);
symm_status symm__cuda_side_mark(struct symm_team_channel *channel, int mark,
                                 void *stream);
symm_status symm__cuda_side_await(struct symm_team_channel *channel, int mark,
                                  void *stream);
/* The stream of the user's for which this second stream works; any other stream: that. */
const void *symm__cuda_side_owner(const symm_team *team, const void *stream);
void symm__cuda_sides_close(struct symm_cuda_team *cuda); /* once they are idle */

/* multicast.c */
/* *wanted: the device has it and the options want it. */
symm_status symm__cuda_multicast_ask(struct symm_backend *backend,
                                     bool *wanted) SYMM_MUST_CHECK;
/* Makes the memory that all members share reachable by multicast. If one of them cannot, all go
 * on without multicast. An error is one of the exchange. Collective. */
symm_status symm__cuda_multicast_share(symm_team *team, double timeout) SYMM_MUST_CHECK;
void *symm__cuda_multicast_at(const symm_team *team, size_t offset, size_t bytes);

/* tokens.c */
/* Shares the words of copy-engine calls, at a team's first exchange. If a member cannot, all go on
 * without them. An error is one of the exchange. Collective. */
symm_status symm__cuda_tokens_share(symm_team *team, double timeout) SYMM_MUST_CHECK;
/* A member's words; NULL: there are none, or the member is another rank and does not share them.
 * *device: where the device has them. */
struct symm_cuda_words *symm__cuda_tokens_find(const symm_team *team, int place,
                                               struct symm_cuda_words **device);
/* drained: no operation of this rank uses the words any more. */
void symm__cuda_tokens_close(struct symm_cuda_team *cuda, bool drained);

/* pointers.c: see device_ops.h */
symm_status symm__cuda_pointers_add(symm_team *team, size_t index,
                                    const struct symm_cuda_pointers **entry);
symm_status symm__cuda_pointers_write(symm_team *team, size_t first, size_t count,
                                      const struct symm_cuda_pointers *entries);
symm_status symm__cuda_pointers_release(symm_team *team, const size_t *list,
                                        size_t count);
void symm__cuda_pointers_free(struct symm_cuda_team *cuda);

/* one_sided.c */
symm_status symm__cuda_transfer(const struct symm_transfer *transfer, void *stream,
                                symm_work **work, const char **path, bool *captured);

#endif
