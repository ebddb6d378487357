/* SPDX-License-Identifier: MIT */
/*
 * context.h - the context: all that one rank has.
 *
 * symm_ctx is the root of all state of one rank; there are no mutable globals but the list of
 * oob/forks.c, so N ranks may be N threads of one process. Address space: rank r's heap is
 * base + r * stride, cut into teams' ranges (team.h). Control pages are memory of the host in a
 * reservation of their own.
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
#include "core/notifier.h"
#include "oob/control_page.h"
#include "oob/exchange.h"
#include "oob/forks.h"
#include "oob/liveness.h"
#include "select/select.h"

#define SYMM_MAX_RANKS   SYMM_MAX_LOCAL_RANKS
#define SYMM_MAX_STREAMS 64
#define SYMM_SITES       256 /* cached calls of a channel; a power of two */
#define SYMM_ENTRIES     (SYMM_SITES + 2) /* calls that a channel has memory for */

/* Ranks that are threads of one process; the memory goes when the group does. */
struct symm_thread_group {
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

/* Deadlines that a queued call may take to begin, and that its peers wait for that, unless the
 * caller or SYMM_QUEUE_TIMEOUT says. */
#define SYMM_QUEUE_TIMEOUTS 10
/* CUDA: seconds that a call with this deadline waits for peers that have queued it, no less
 * than the deadline; may be infinite. */
double symm__queue_limit(const symm_ctx *ctx, double timeout);

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
    double timeout;
    double queue_timeout; /* seconds; 0: none; less: ten deadlines of the call */
    uint32_t epoch_start;
    struct symm_job job;
    struct symm_oob oob;
    struct symm_forks forks; /* the link's sockets */
    struct symm_host own_host;
    int hosts; /* that the ranks are on, numbered by their lowest rank */
    uint8_t host_of[SYMM_MAX_RANKS];                /* by rank */
    char host_name[SYMM_MAX_RANKS][SYMM_HOST_NAME]; /* by host; printable */
    symm_thread_group *thread_group;                /* NULL: ranks are processes */
    char *base;
    char *control_base; /* rank r's page is at r * SYMM_CONTROL_BYTES */
    size_t stride, team_bytes, granularity;
    char why_backend[256];  /* it was taken */
    bool multicast;         /* all ranks have it and want it */
    bool oversubscribe;     /* ranks may share devices (SYMM_OVERSUBSCRIBE) */
    bool exclusive;         /* CUDA: one stream at a time uses it (SYMM_EXCLUSIVE) */
    bool shared;            /* CUDA: two ranks have one device */
    int processors;         /* CUDA: the fewest multiprocessors of all ranks' devices */
    char machine[160];      /* as cost tables name it */
    symm_costs *costs_file; /* of SYMM_COSTS; NULL: not set; owned */
    const symm_costs *costs; /* that all ranks use; NULL: the model */
    struct symm_control *control[SYMM_MAX_RANKS]; /* NULL: on another host */
    int control_handle;
    uint32_t consensus_words; /* given to teams, ever */
    uint32_t teams_numbered;  /* the highest number of a team that this rank was in */
    struct symm_liveness *liveness;
    struct symm_process process[SYMM_MAX_RANKS];
    pthread_mutex_t lock;
    pthread_mutex_t creations;  /* guards the choice of an own symm_control.creation, */
    uint32_t creation_stamp;    /* and the number of the last call that chose one */
    pthread_mutex_t registry;   /* guards teams' registrations against puts */
    struct symm_opened *opened; /* peers' registered memory */
    symm_team *in_rendezvous;   /* in a rendezvous now: its failure ends the exchange */
    symm_team *teams[SYMM_MAX_TEAMS]; /* by slot; [0] is the world */
    bool planned;                   /* atomic: a team has loaded a plan at some time */
    uint64_t record_job;            /* names the job in its ranks' records */
    struct symm_recorder *recorder; /* NULL: without SYMM_RECORD; owned */
    struct symm_stream *streams[SYMM_MAX_STREAMS];
    struct symm_notifier notifier;       /* of handles' ends */
    struct symm_engine_use *engine;      /* what SYMM_ENGINE gave; NULL: not loaded */
    const struct symm_device_ops *device_ops; /* as in the teams */
    struct symm_cuda_launcher *launcher; /* what they share; goes with the last team */
    struct symm_hook *hooks;             /* owned */
    size_t hook_count;
    int hook_next;
};

static inline bool symm__is_far(const symm_ctx *ctx, int world_rank)
{
    return ctx->host_of[world_rank] != ctx->host_of[ctx->rank];
}

/* Of a rank's control page there are so many bytes. */
static inline size_t symm__control_bytes(const symm_ctx *ctx)
{
    return ctx->device_ops ? SYMM_CONTROL_BYTES : SYMM_CONTROL_HOST_BYTES;
}

/* NULL, forked. The sentence begins with the function, else with the one that asks. */
symm_status symm__ctx_check_in(const symm_ctx *ctx,
                               const char *function) SYMM_MUST_CHECK;
#define symm__ctx_check(ctx) symm__ctx_check_in(ctx, __func__)
/* The place of one of the context's own streams; -1 of any other pointer. */
int symm__stream_index(const symm_ctx *ctx, const void *stream);

#endif
