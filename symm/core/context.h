/* SPDX-License-Identifier: MIT */
/*
 * context.h - the runtime's own objects: context, team, buffer, channel.
 *
 * symm_ctx is the root of all state of one rank; there are no mutable globals
 * but forks.c's list, so N ranks may be N threads of one process. Address space: rank r's heap is base + r * stride; in it
 * each team's range: its pad, on CUDA its kernels' scratch, then its buffers. Control pages
 * are memory of the host in a reservation of their own.
 * `lock` guards the control plane (teams, heaps, segments, hooks); the launch path takes no
 * lock: what it reads (ranges, generation) changes only in control-plane calls, which must
 * not overlap with calls that use the memory concerned.
 */
#ifndef SYMM_CORE_CONTEXT_H
#define SYMM_CORE_CONTEXT_H

#include <pthread.h>

#include "bootstrap/hosts.h"
#include "bootstrap/job.h"
#include "core/backend.h"
#include "core/heap.h"
#include "oob/control_page.h"
#include "oob/exchange.h"
#include "oob/forks.h"
#include "oob/liveness.h"
#include "select/select.h"

#define SYMM_MAX_RANKS   SYMM_MAX_LOCAL_RANKS
#define SYMM_MAX_STREAMS 64
#define SYMM_SITES       256 /* cached calls of a channel; a power of two */

/* Ranks that are threads of one process; the memory goes when the group does. */
struct symm_group {
    int size;
    pthread_mutex_t lock;
    int *peer_fd; /* [size * size]: rank i's socket to j; -1 once taken */
    bool *joined; /* [size] */
    /* Teams that still use a rank's slot: what lies there must not be replaced under them. */
    uint16_t holders[SYMM_MAX_RANKS][SYMM_MAX_TEAMS];
    /* What all share, made by the first rank that joins: */
    const struct symm_backend_ops *ops;
    struct symm_backend *owner; /* of the reservation; NULL: none has joined */
    void *base, *control_base;
    size_t stride;
    size_t bytes;
};

/* Committed memory of this rank, and its peers' beside it. */
struct symm_segment {
    size_t offset, bytes; /* in the heap */
    int handle;           /* kept until all peers have it, then -1 */
};

/* A buffer: one for each alloc_id, or one for each anonymous allocation. */
struct symm_buffer {
    symm_team *team;
    uint64_t alloc_id;
    size_t offset, bytes;
    bool held;                              /* the caller has it, */
    bool exported;                          /* or its DLPack tensor */
    bool shared;                            /* a rendezvous has covered it */
    bool planned;                           /* its place is in the plan's arena */
    struct symm_registration *registration; /* NULL: memory of the heap; owned */
    symm_dtype dtype;
    int ndim;
    int64_t shape[16], stride[16];
};

/* A call that was checked once: the same arguments again take the short way. */
struct symm_cached {
    uint32_t generation; /* of the context; 0 = empty */
    uint32_t numerics;
    bool forced; /* the caller named the algorithm */
    enum symm_algorithm algorithm;
    const char *reason; /* of the choice */
    struct symm_estimate estimate;
    /* The op of a plan that the call is, and the barriers among args.barriers that its
     * kernel does not have; NULL: none, and both barriers are made. */
    const struct symm_plan_site *planned;
    uint32_t extra;
    bool left_out; /* the entry barrier of a put: the plan does without, nothing runs */
    symm_kernel_fn kernel;
    struct symm_args args;
};

/* A stream's own part of a team's pad. */
struct symm_lane {
    struct symm_state state;
    symm_team *team;
    int index;                  /* 0: the NULL stream's */
    void *stream;               /* whose it is; NULL: nobody's yet */
    double deadline;            /* seconds, of the call that runs */
    double stalled;             /* when the first wait of that call stalled, */
    bool has_stalled;           /* if one has */
    struct symm_cached *cached; /* [SYMM_SITES]; owned */
    const struct symm_cached *last;
    /* Launches on a device: */
    struct symm_cuda_entry *launches; /* [SYMM_SITES], beside `cached`; owned */
    /* Whose the channel is there (cuda/channel.c): */
    uint64_t stream_id, key;   /* 0: no stream's */
    uint64_t used;             /* the number of the team's call that used it last */
    uint64_t capture;          /* id of the last graph that captured a call of it */
    uint32_t sequence, blocks; /* launches so far, and the last one's blocks */
    bool captured;             /* the call that runs is captured by a graph */
    bool held;                 /* by a graph whose end nothing tells */
    bool named;                /* by symm_call.channel */
    uint32_t asked;            /* grants of blocks read so far (budget.h) */
    uint32_t granted;          /* blocks of the last grant; 0: none yet */
    uint32_t looked;           /* launches when the watcher last looked at the claim */
    struct symm_cuda_pin *pin; /* NULL: no graph has captured a call; counted */
};

struct symm_team {
    symm_ctx *ctx;
    uint32_t uid;
    int slot;        /* index of its records in control pages; 0: the world */
    uint32_t number; /* for people; equal on all members; 0: not agreed on yet */
    char name[SYMM_TEAM_NAME_BYTES]; /* for people, on this rank; "": none */
    int rank, size;
    int *world_rank;    /* [size]; owned */
    uint32_t sequence;  /* of exchanges */
    uint64_t before;    /* tag of the exchange that the next one follows; 0: its own */
    bool agreed;        /* all members are known to come to the next exchange */
    bool again;         /* a member that has left the next exchange may come again */
    uint32_t board;     /* where its agreement on survivors is (team_shrink.c) */
    uint32_t shrinks;   /* attempts to shrink it that are over, */
    uint64_t survivors; /* and by bits of team ranks who was left; 0: no attempt yet */
    size_t begin, end;  /* its range: pad first, scratch, then the heap */
    size_t scratch_bytes;
    struct symm_heap heap;
    size_t extent
        [SYMM_MAX_RANKS]; /* by team rank: end of its memory that is mapped here */
    size_t shared;        /* up to here every member's memory is mapped everywhere */
    struct symm_segment *segments; /* in order of offset; owned */
    size_t segment_count, segment_capacity;
    symm_buffer **buffers; /* sorted by alloc_id, then offset; owned */
    size_t buffer_count, buffer_capacity;
    struct symm_registration *registrations; /* in order; owned */
    uint64_t registered;                     /* ever */
    struct symm_team_plan *plan;             /* NULL: none is loaded; owned */
    size_t plan_end; /* where the plan's arena ends in the heap; 0: no plan */
    struct symm_pad *pad[SYMM_MAX_RANKS];    /* by team rank; NULL: on another host */
    struct symm_wide *wide; /* its ranks are on several hosts; NULL: on one; owned */
    bool inner;             /* the part on this host of a wide team, which owns it */
    struct symm_lane lane[SYMM_CHANNELS];
    uint32_t *sent, *awaited; /* [size * SYMM_SIGNALS]: signals so far; owned */
    int32_t failing;          /* atomic: somebody writes the record */
    int32_t failed; /* symm_status, atomic; the record below is written before it */
    pthread_mutex_t lanes; /* guards the lanes of streams while calls are queued */
    uint64_t lane_uses;    /* CUDA: calls that took a lane */
    char failure[SYMM_RECORD_BYTES];
    uint64_t streams; /* host, atomic: by bits, those with calls that take no lane */
    const char *last_path; /* what a one-sided call did; NULL: see lane */
    int last_lane;
    struct symm_team_engine *engine;     /* NULL: calls go to no engine; owned */
    struct symm_cuda_team *cuda;         /* of the CUDA backend; NULL on the host's */
    const struct symm_device_ops *calls; /* NULL: kernels run on the host */
    struct symm_device_team device;      /* as device code sees the team */
};

/* Deadlines that a queued call may take to begin, and that its peers wait for that, unless the
 * caller or SYMM_QUEUE_TIMEOUT says. */
#define SYMM_QUEUE_DEADLINES 10
/* CUDA: seconds that a call with this deadline waits for peers that have queued it, no less
 * than the deadline; may be infinite. */
double symm__queue_limit(const symm_ctx *ctx, double deadline);

struct symm_hook {
    int id;
    symm_trace_fn fn;
    void *arg;
};

struct symm_ctx {
    const struct symm_backend_ops *ops;
    struct symm_backend *backend;
    const uint8_t *own_process; /* a page that reads 0 in a forked child */
    uint32_t default_busy;      /* a call on the NULL stream is running */
    uint32_t generation;        /* of cached calls */
    int rank, size;
    uint32_t spin;
    enum symm_isa isa;
    double deadline;
    double queue_timeout; /* seconds; 0: none; less: ten deadlines of the call */
    uint32_t epoch_start;
    struct symm_job job;
    struct symm_link link;
    struct symm_forks forks; /* the link's sockets */
    struct symm_host own_host;
    int hosts; /* that the ranks are on, numbered by their lowest rank */
    uint8_t host_of[SYMM_MAX_RANKS];                /* by rank */
    char host_name[SYMM_MAX_RANKS][SYMM_HOST_NAME]; /* by host; printable */
    symm_group *group;                              /* NULL: ranks are processes */
    char *base;
    char *control_base; /* rank r's page is at r * SYMM_CONTROL_BYTES */
    size_t stride, team_bytes, granularity;
    char why_backend[256]; /* it was taken */
    bool multicast;        /* all ranks have it and want it */
    bool oversubscribe;    /* ranks may share devices (SYMM_OVERSUBSCRIBE) */
    bool exclusive;        /* CUDA: one stream at a time uses it (SYMM_EXCLUSIVE) */
    bool shared;           /* CUDA: two ranks have one device */
    int processors;        /* CUDA: the fewest multiprocessors of all ranks' devices */
    char machine[160];     /* as cost tables name it */
    symm_costs *costs_file;  /* of SYMM_COSTS; NULL: not set; owned */
    const symm_costs *costs; /* that all ranks use; NULL: the model */
    struct symm_control *control[SYMM_MAX_RANKS]; /* NULL: on another host */
    int control_handle;
    uint32_t boards;         /* given to teams, ever */
    uint32_t teams_numbered; /* the highest number of a team that this rank was in */
    struct symm_keeper *keeper;
    struct symm_process process[SYMM_MAX_RANKS];
    pthread_mutex_t lock;
    pthread_mutex_t registry;   /* guards teams' registrations against puts */
    struct symm_opened *opened; /* peers' registered memory */
    symm_team *meeting;         /* in a rendezvous now: its failure ends the exchange */
    symm_team *teams[SYMM_MAX_TEAMS]; /* by slot; [0] is the world */
    bool planned;                   /* atomic: a team has loaded a plan at some time */
    uint64_t record_job;            /* names the job in its ranks' records */
    struct symm_recorder *recorder; /* NULL: without SYMM_RECORD; owned */
    struct symm_stream *streams[SYMM_MAX_STREAMS];
    struct symm_engine_use *engine;      /* what SYMM_ENGINE gave; NULL: not loaded */
    const struct symm_device_ops *calls; /* as in the teams */
    struct symm_cuda_calls *launcher;    /* what they share; goes with the last team */
    struct symm_hook *hooks;             /* owned */
    size_t hook_count;
    int hook_next;
};

static inline bool symm__is_far(const symm_ctx *ctx, int world_rank)
{
    return ctx->host_of[world_rank] != ctx->host_of[ctx->rank];
}

/* init.c */
/* NULL, forked. The sentence begins with the function, else with the one that asks. */
symm_status symm__ctx_check_in(const symm_ctx *ctx,
                               const char *function) SYMM_MUST_CHECK;
#define symm__ctx_check(ctx) symm__ctx_check_in(ctx, __func__)

/* thread_group.c: gives the rank its sockets and the shared reservation. */
symm_status symm__group_join(symm_group *group, symm_ctx *ctx,
                             int *peer_fd) SYMM_MUST_CHECK;
/* A member begins or ceases to use the memory of all members of its team. */
void symm__group_hold(symm_team *team, int change);
uint64_t symm__group_held(symm_group *group,
                          int rank); /* bit s: somebody holds slot s */

/* setup/team.c */
symm_status symm__team_check_in(const symm_team *team,
                                const char *function) SYMM_MUST_CHECK;
#define symm__team_check(team) symm__team_check_in(team, __func__)
/* World team at init; pads of all ranks are mapped on return. `mine`: a failure of mine
 * before this step, told to all. Collective. */
symm_status symm__team_create_world(symm_ctx *ctx, symm_status mine,
                                    double deadline) SYMM_MUST_CHECK;
void symm__team_free(symm_team *team);
/* Fills team->device with what both backends know, not state and record. At most
 * SYMM_DEVICE_RANKS members. */
void symm__team_describe(symm_team *team);
/* One exchange of the team, counted. */
symm_status symm__team_exchange(symm_team *team, const char *what, double deadline,
                                symm_status mine, const void *bytes, size_t bytes_count,
                                const int *fds, int fds_count,
                                struct symm_parcel *parcels) SYMM_MUST_CHECK;
/* Memory of this rank's heap lies in one buffer; what: the call, which: its argument. */
symm_status symm__team_extent(const symm_ctx *ctx, const char *what, const char *which,
                              const void *ptr, size_t bytes) SYMM_MUST_CHECK;
/* Is [ptr, ptr + bytes) this rank's memory that all members of `team` have mapped? */
bool symm__team_symmetric(const symm_team *team, const void *ptr, size_t bytes,
                          size_t *offset);
/* "world", "team 3 [0 2]", "team 'tp' (3) [0 2]"; cut if need be. */
const char *symm__team_name(const symm_team *team, char *text, size_t bytes);
/* Has `big` every rank of `small`? */
bool symm__team_contains(const symm_team *big, const symm_team *small);
/* An object for up to `most` ranks, without memory or a place in the heap. */
symm_status symm__team_create(symm_ctx *ctx, int most,
                              symm_team **team) SYMM_MUST_CHECK;
/* Gives it members and place, and opens it with them. Collective; with the context locked.
 * On error the caller frees it. */
symm_status symm__team_settle(symm_team *made, uint32_t uid, int slot,
                              const int *world_rank, int size,
                              double deadline) SYMM_MUST_CHECK;
/* The name of a team that comes of `parent`: step and part tell it from the others. */
uint32_t symm__team_uid(const symm_team *parent, uint32_t step, uint32_t part);
uint64_t symm__team_slots(const symm_ctx *ctx); /* bit s: slot s is taken here */

/* team_shrink.c: where a new team's agreement on survivors will be, before its start; only
 * what its first member says counts. */
uint64_t symm__shrink_prepare(symm_team *team);
/* What that was: by team rank. */
symm_status symm__shrink_adopt(symm_team *team, const uint64_t *boards) SYMM_MUST_CHECK;

/* buffer.c: hands the hold to `what`'s tensor. SYMM_ERR_INVALID: it is not the caller's. */
symm_status symm__buffer_export(symm_buffer *buffer, const char *what) SYMM_MUST_CHECK;
/* The end of an exported hold. */
void symm__buffer_return(symm_buffer *buffer);
/* The anonymous buffer that begins at this rank's address; NULL: none. */
symm_buffer *symm__buffer_at(symm_team *team, const void *ptr);

/* segments.c: segments of a team's range, and what peers map of them */
/* Commits own memory so that it reaches `end` (an offset in the heap). */
symm_status symm__memory_grow(symm_team *team, size_t end) SYMM_MUST_CHECK;
/*
 * Shares all new segments: what the ranks send is `digest` (compared by the caller through
 * `agree`, which sees every rank's) and one descriptor a segment. Nothing is mapped unless
 * agree returns SYMM_OK. `mine`: a failure of mine before this step, told to all. Collective.
 */
typedef symm_status (*symm_agree_fn)(symm_team *team, const uint64_t *digests);
symm_status symm__memory_share(symm_team *team, const char *what, double deadline,
                               symm_status mine, uint64_t digest,
                               symm_agree_fn agree) SYMM_MUST_CHECK;
void symm__memory_release(
    symm_team *team); /* all of the team's memory, own and peers' */
size_t symm__memory_committed(const symm_team *team); /* own end */

/* trace.c */
/* As symm_trace_attach and _detach, with the context locked. */
symm_status symm__trace_attach(symm_ctx *ctx, symm_trace_fn fn, void *arg,
                               int *id) SYMM_MUST_CHECK;
void symm__trace_detach(symm_ctx *ctx, int id);
void symm__trace_segment(symm_ctx *ctx, symm_trace_event event, void *ptr,
                         size_t bytes);

/* slow_wait.c */
symm_status symm__wait_stall(struct symm_state *state, const struct symm_args *args,
                             int peer);
void symm__wait_rouse(struct symm_state *state, struct symm_slot *own);
symm_status symm__wait_signal(symm_team *team, int peer, int signal, uint32_t count,
                              uint32_t tag, const char *site, double deadline);
void symm__wait_wake(uint64_t *word); /* all that sleep on the word's low half */
/* Marks the team failed for this rank and tells its members; returns status. */
symm_status symm__team_fail(symm_team *team, symm_status status, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));
/* The failure of a failed team, as this thread's error. */
symm_status symm__team_failed(const symm_team *team);
/* Has this member reported a failure of this team? Then it is this rank's too. */
symm_status symm__team_record_of(symm_team *team, int member);
/* Keeps a call site's name. A longer one than fits ends in "~" and 8 digits of its hash, so
 * that long names that begin alike differ. NULL: none. */
void symm__site_name_set(char name[SYMM_SITE_NAME_BYTES], const char *site);
/* "site 'x'", "a site without a name". */
const char *symm__site_name_text(const char *site, char *text, size_t bytes);
/* "'name' (all_reduce sum of 8 float32, ll_push) step 3" */
const char *symm__site_text(const struct symm_site *site, uint32_t step, char *text,
                            size_t bytes);
/* Copies a peer's site and makes its name printable. */
void symm__site_copy(const struct symm_site *shared, struct symm_site *site);

#endif
