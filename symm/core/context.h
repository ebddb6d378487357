/* SPDX-License-Identifier: MIT */
/*
 * context.h - the context: all that one rank has.
 *
 * symm_ctx is the root of all state of one rank; there are no mutable globals but the list of
 * oob/forks.c, so N ranks may be N threads of one process. Address space: the heaps of the
 * domain's ranks lie side by side in the order of their places in the domain, each cut into
 * teams' ranges (team.h). Control pages are memory of the host in a reservation of their own, in
 * the same order. The context keeps 6 bytes for each rank of the job, beside the room for
 * exchanges.
 * Two questions are asked about a rank. Is it on another host (symm__is_far)? Then it shares no
 * control page, no descriptor and no pidfd, and the relay reports its failures and death. Is its
 * memory mapped here (symm__is_mapped)? Then heap, pad and signals are reached by loads and
 * stores. The ranks whose memory this one maps are its domain; of a host's ranks all are in one
 * domain. `lock` guards the control plane (teams, heaps, segments, hooks); the launch path takes
 * no lock: what it reads (ranges, generation) changes only in control-plane calls, which must not
 * overlap with calls that use the memory concerned.
 */
#ifndef SYMM_CORE_CONTEXT_H
#define SYMM_CORE_CONTEXT_H

#include <pthread.h>

#include "bootstrap/hosts.h"
#include "bootstrap/job.h"
#include "core/backend.h"
#include "core/heap.h"
#include "core/notifier.h"
#include "oob/control_page.h"
#include "oob/exchange.h"
#include "oob/forks.h"
#include "oob/liveness.h"
#include "select/select.h"

#define SYMM_MAX_STREAMS 64
/* Ranks of a domain: those of a host, on a device as many as its code knows. */
#define SYMM_MAX_PLACES                                                                \
    (SYMM_MAX_LOCAL_RANKS > SYMM_DEVICE_RANKS ? SYMM_MAX_LOCAL_RANKS                   \
                                              : SYMM_DEVICE_RANKS)
#define SYMM_SITES       256 /* cached calls of a channel; a power of two */
#define SYMM_ENTRIES     (SYMM_SITES + 2) /* calls that a channel has memory for */

/* Ranks that are threads of one process; the memory goes when the group does. */
struct symm_thread_group {
    int size;
    pthread_mutex_t lock;
    int *peer_fd; /* [size * size]: rank i's socket to j; -1 once taken */
    bool *joined; /* [size] */
    /* Teams that still use a rank's slot: its memory must not be replaced while they do. */
    uint16_t holders[SYMM_MAX_LOCAL_RANKS][SYMM_MAX_TEAMS];
    /* What all ranks share; the first rank that joins makes it: */
    const struct symm_backend_ops *ops;
    struct symm_backend *owner; /* of the reservation; NULL: none has joined */
    void *base, *control_base;
    size_t stride;
    size_t bytes;
};

/* A queued call may take so many of its deadlines to begin, and its peers wait as long for it,
 * unless the caller or SYMM_QUEUE_TIMEOUT says otherwise. */
#define SYMM_QUEUE_TIMEOUTS 10
/* CUDA: seconds that a call with this deadline waits for peers that have queued it, no less
 * than the deadline; may be infinite. */
double symm__queue_limit(const symm_ctx *ctx, double timeout);

/*
 * Room for the exchanges of all ranks, or of a team of all ranks; with the context locked (it is
 * made before the exchanges, in which a rank without memory would hold up the others).
 */
struct symm_room {
    struct symm_oob_message *messages, *acks; /* [size]; acks: of a second exchange */
    uint64_t *words;                          /* [size]: what members have sent */
    int *everyone;                            /* [size]: 0, 1, 2, ... */
};

/* What a handle keeps of its context, which may end before it. */
struct symm_life {
    int references; /* atomic: the context's and one for each handle */
    enum symm_life_end {
        SYMM_LIVES,
        SYMM_FINALIZED,
        SYMM_FINALIZED_FORKED
    } end; /* atomic */
};

struct symm_hook {
    int id;
    symm_trace_fn fn;
    void *arg;
};

struct symm_ctx {
    const struct symm_backend_ops *ops;
    struct symm_backend *backend;
    const uint8_t *own_process; /* a page that reads 0 in a forked child */
    struct symm_life *life;
    uint32_t default_busy;      /* a call on the NULL stream is running */
    uint32_t generation;        /* of cached calls */
    int rank, size;
    int local_rank,
        local_size; /* place among the ranks on this host, how many they are */
    uint32_t spin;
    enum symm_isa isa;
    double timeout;
    double queue_timeout; /* seconds; 0: none; less: ten deadlines of the call */
    uint32_t epoch_start;
    struct symm_job job;
    struct symm_oob oob;
    struct symm_room room;   /* owned */
    struct symm_forks forks; /* the sockets to ranks of this host */
    struct symm_forks relay_forks;      /* the connections to other hosts */
    int local_fd[SYMM_MAX_LOCAL_RANKS]; /* by place: oob.peer_fd of the ranks on this host */
    int hosts;          /* that the ranks are on, numbered by their lowest rank */
    int *local;         /* [local_size]: ranks on this host, ascending; owned */
    int32_t *host_of;   /* [size]: by rank; owned */
    uint16_t *local_of; /* [size]: place of each rank on its host; owned */
    /* this rank's place in its domain, the domain's number of ranks */
    int place, places;
    int32_t *domain_of; /* [size]: as host_of, or owned: numbered by the lowest rank */
    uint16_t *place_of; /* [size]: as local_of, or owned: place of each rank in its domain */
    struct symm_relay_host *host_at; /* [hosts]: names, and where relays listen; owned */
    symm_thread_group *thread_group;   /* NULL: ranks are processes */
    char *base;         /* heaps, by place in the domain: use symm__heap_base */
    char *control_base; /* control pages by place on this host, SYMM_CONTROL_BYTES each */
    size_t stride, team_bytes, granularity;
    char why_backend[256];  /* it was taken */
    bool multicast;         /* all ranks have it and want it */
    bool fabric; /* CUDA: all ranks want NVLink domains over hosts (SYMM_FABRIC) */
    bool wide;   /* this rank's domain is over several hosts */
    /* CUDA over several hosts: why the domain has these ranks */
    char why_domain[256];
    bool oversubscribe;     /* ranks may share devices (SYMM_OVERSUBSCRIBE) */
    bool exclusive;         /* CUDA: one stream at a time uses it (SYMM_EXCLUSIVE) */
    bool clusters;          /* CUDA: all ranks' devices have clusters of blocks */
    bool shared;            /* CUDA: two ranks have one device */
    int processors;         /* CUDA: the fewest multiprocessors of all ranks' devices */
    char machine[160];      /* as cost tables name it */
    symm_costs *costs_file; /* of SYMM_COSTS; NULL: not set; owned */
    const symm_costs *costs; /* that all ranks use; NULL: the model */
    /* By place on this host, both; reached by symm__control and symm__process: */
    struct symm_control *control[SYMM_MAX_LOCAL_RANKS];
    struct symm_process process[SYMM_MAX_LOCAL_RANKS];
    int control_handle;
    uint32_t consensus_words; /* given to teams, ever */
    uint32_t teams_numbered;  /* the highest number of a team that this rank was in */
    struct symm_liveness *liveness;
    pthread_mutex_t lock;
    pthread_mutex_t creations;  /* guards the choice of an own symm_control.creation, */
    uint32_t creation_stamp;    /* and the number of the last call that chose one */
    pthread_mutex_t registry;   /* guards teams' registrations against puts */
    struct symm_opened *opened; /* peers' registered memory */
    /* the team in a rendezvous now, whose failure ends the exchange */
    symm_team *in_rendezvous;
    symm_team *teams[SYMM_MAX_TEAMS]; /* by slot; [0] is the world */
    pthread_mutex_t earlier_lock;
    char earlier[SYMM_EARLIER_BYTES]; /* the last failure: earlier.h */
    bool planned;                   /* atomic: a team has loaded a plan at some time */
    uint64_t record_job;            /* names the job in its ranks' records */
    struct symm_sight *sight; /* what tools see of the rank; NULL: nothing; owned */
    struct symm_recorder *recorder; /* NULL: without SYMM_RECORD; owned */
    struct symm_stream *streams[SYMM_MAX_STREAMS];
    struct symm_notifier notifier;  /* of handles' ends */
    struct symm_engine_use *engine; /* what SYMM_ENGINE gave; NULL: not loaded */
    const struct symm_device_ops *device_ops; /* as in the teams */
    /* what the teams share; freed with the last team */
    struct symm_cuda_launcher *launcher;
    struct symm_hook *hooks;             /* owned */
    size_t hook_count;
    int hook_next;
};

/* Whether the rank is on another host. */
static inline bool symm__is_far(const symm_ctx *ctx, int world_rank)
{
    return ctx->host_of[world_rank] != ctx->host_of[ctx->rank];
}

/* Whether the rank's memory is mapped here, or will be. */
static inline bool symm__is_mapped(const symm_ctx *ctx, int world_rank)
{
    return ctx->domain_of[world_rank] == ctx->domain_of[ctx->rank];
}

static inline const char *symm__host_of_rank(const symm_ctx *ctx, int world_rank)
{
    return ctx->host_at[ctx->host_of[world_rank]].name;
}

/* A rank's heap, as mapped here. Only of a rank whose memory is mapped. */
static inline char *symm__heap_base(const symm_ctx *ctx, int world_rank)
{
    return ctx->base + ctx->place_of[world_rank] * ctx->stride;
}

/* A rank's control page; NULL: it is on another host. */
static inline struct symm_control *symm__control(const symm_ctx *ctx, int world_rank)
{
    return symm__is_far(ctx, world_rank) ? NULL
                                         : ctx->control[ctx->local_of[world_rank]];
}

/* The control page of a rank on this host. */
static inline struct symm_control *symm__near_control(const symm_ctx *ctx,
                                                      int world_rank)
{
    return ctx->control[ctx->local_of[world_rank]];
}

static inline struct symm_control *symm__own_control(const symm_ctx *ctx)
{
    return ctx->control[ctx->local_rank];
}

/* A rank's process. Only of a rank on this host. */
static inline const struct symm_process *symm__process(const symm_ctx *ctx,
                                                       int world_rank)
{
    return &ctx->process[ctx->local_of[world_rank]];
}

/* symm__process_check, _died and _finished of a rank on this host. */
static inline symm_status symm__rank_check(const symm_ctx *ctx, int world_rank,
                                           const char **why)
{
    return symm__process_check(symm__process(ctx, world_rank),
                               &symm__near_control(ctx, world_rank)->live, why);
}

static inline symm_status symm__rank_died(const symm_ctx *ctx, int world_rank,
                                          const char **why)
{
    return symm__process_died(symm__process(ctx, world_rank),
                              &symm__near_control(ctx, world_rank)->live, why);
}

static inline bool symm__rank_finished(const symm_ctx *ctx, int world_rank)
{
    return symm__process_finished(&symm__near_control(ctx, world_rank)->live);
}

/* The bytes of a rank's control page. */
static inline size_t symm__control_bytes(const symm_ctx *ctx)
{
    return ctx->device_ops ? SYMM_CONTROL_BYTES : SYMM_CONTROL_HOST_BYTES;
}

/* Fails for a context that is NULL, or the parent process's. The sentence begins with
 * `function`. */
symm_status symm__ctx_check_in(const symm_ctx *ctx,
                               const char *function) SYMM_MUST_CHECK;
#define symm__ctx_check(ctx) symm__ctx_check_in(ctx, __func__)
/* A page that a forked child sees as zero, so that the check costs one load, and ctx->life. */
symm_status symm__ctx_life_open(symm_ctx *ctx) SYMM_MUST_CHECK;
void symm__ctx_life_close(symm_ctx *ctx, bool forked); /* also after a failed open */
static inline enum symm_life_end symm__life_end(const struct symm_life *life)
{
    /* acquire: pairs with the release in symm__ctx_life_close */
    return __atomic_load_n(&life->end, __ATOMIC_ACQUIRE);
}
struct symm_life *symm__life_take(const symm_ctx *ctx); /* a reference */
void symm__life_drop(struct symm_life *life);           /* NULL: nothing */
/* The place of one of the context's own streams; -1 of any other pointer. */
int symm__stream_index(const symm_ctx *ctx, const void *stream);

#endif
