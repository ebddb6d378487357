/* SPDX-License-Identifier: MIT */
/*
 * team.h - a team: its members, its range of the heap with segments and buffers, its channels.
 *
 * A team's range holds its pad, on a device its kernels' scratch, then its heap. A channel is
 * what the calls of one stream share: counters and words in every member's pad, and the calls
 * that were checked before. A team with members whose memory is not mapped also has a local team
 * of those whose memory is mapped, and communicators between these: struct symm_hierarchy.
 * `channels` guards channels while calls are queued; ctx->lock guards all else but what is
 * marked atomic.
 */
#ifndef SYMM_CORE_TEAM_H
#define SYMM_CORE_TEAM_H

#include "core/context.h"
#include "core/heap.h"
#include "kernels/launch.h"

/* Calls with one peer that are numbered for tools, beside signals. */
enum symm_step {
    SYMM_STEP_PUT,
    SYMM_STEP_GET,
    SYMM_STEP_SEND,
    SYMM_STEP_RECV,
    SYMM_STEPS
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
    bool held;                              /* the caller has it */
    bool exported;                          /* a DLPack tensor has it */
    bool shared;                            /* a rendezvous has covered it */
    bool planned;                           /* its place is in the plan's arena */
    struct symm_registration *registration; /* NULL: memory of the heap; owned */
    symm_dtype dtype;
    int ndim;
    int64_t shape[16], stride[16];
};

/* A validated call, cached under its arguments; a repeat skips validation. */
struct symm_prepared_call {
    uint32_t generation; /* of the context; 0 = empty */
    uint32_t numerics;
    bool forced; /* the caller named the algorithm */
    size_t part; /* rows of one launch of a fused all_reduce_norm; 0: it is not fused */
    void *out;   /* the request's; args.out may be a workspace instead */
    enum symm_algorithm algorithm;
    const char *reason; /* of the choice */
    bool fallback;      /* as in struct symm_selection */
    struct symm_estimate estimate;
    uint32_t sight; /* the site by which tools see the call; 0: it is not described yet */
    /* The op of a plan that the call is, and the barriers among args.barriers that its
     * kernel does not have; NULL: none, and both barriers are made. */
    const struct symm_plan_site *planned;
    uint32_t extra;
    /* the entry barrier of a put that the plan does not need: nothing runs */
    bool left_out;
    const struct symm_cuda_pointers *pointers; /* of a captured call; NULL: by offset */
    symm_kernel_fn kernel;
    struct symm_args args;
};

/* A stream's own part of a team's pad. */
struct symm_team_channel {
    struct symm_state state;
    symm_team *team;
    int index;         /* 0: the NULL stream's */
    void *stream;      /* the stream that has it; NULL: none yet */
    double timeout;    /* seconds, of the call that runs */
    double slow_since; /* when the call's first slow wait began */
    bool waits_slowly; /* one has begun */
    double shown;      /* when the last wait that tools have seen ended */
    /* [SYMM_ENTRIES]: those of the cache, a plan's barriers, a captured call; owned. */
    struct symm_prepared_call *prepared;
    void *workspace;   /* call/workspace.h; NULL: none yet; owned */
    size_t workspace_bytes;
    const struct symm_prepared_call *last;
    /* Launches on a device: */
    struct symm_cuda_entry *launches; /* [SYMM_ENTRIES], beside `prepared`; owned */
    /* Which stream has the channel on the device (cuda/channel.c): */
    uint64_t stream_id, key;   /* 0: no stream's */
    uint64_t used;             /* the number of the team's call that used it last */
    uint64_t capture;          /* id of the last graph that captured a call of it */
    uint32_t sequence, blocks; /* launches so far, and the last one's blocks */
    bool captured;             /* the call that runs is captured by a graph */
    bool held;                 /* by a graph whose end is not reported */
    bool named;                /* by symm_call.channel */
    bool fresh;                /* the stream has launched nothing on it yet */
    uint32_t asked;            /* grants of blocks read so far (budget.h) */
    uint32_t granted;          /* blocks of the last grant; 0: none yet */
    bool returned;             /* the last grant: the next call gets it */
    uint32_t looked;           /* launches when the watchdog last polled the claim */
    struct symm_cuda_pin *pin; /* NULL: no graph has captured a call; counted */
};

/* Where a member of a hierarchical team is. */
struct symm_seat {
    uint16_t host;  /* its domain's number: they are numbered by their lowest team ranks */
    uint16_t place; /* its rank in its domain's local team */
};

struct symm_hierarchy {
    symm_team *local_team; /* the ranks whose memory is mapped, in order; owned */
    int hosts;              /* domains, which are hosts unless one has several */
    int at, here;           /* own domain, own rank in its local team */
    int places;             /* ranks of this rank's domain */
    bool equal;             /* domains have equally many ranks */
    bool regular;           /* equal, and rank = host x places + place there */
    struct symm_seat *seat; /* [size], by team rank; NULL: it is regular; owned */
    int rail_count;
    /* team ranks of this rank's rail; this rank alone, if it has none; owned */
    int *rail;
    /* of the call whose turn it is; NULL: none was compared yet; owned */
    uint64_t *tags;
    int tags_room;            /* how many fit */
    uint64_t tickets, served; /* calls that were made, that have run */
    pthread_mutex_t turn;
    pthread_cond_t turns;
};

struct symm_team {
    symm_ctx *ctx;
    uint32_t uid;
    int slot;        /* index of its records in control pages; 0: the world */
    uint32_t number; /* in sentences; equal on all members; 0: not agreed on yet */
    char name[SYMM_TEAM_NAME_BYTES]; /* in sentences of this rank; "": none */
    int rank, size;
    int *world_rank; /* [size]; owned */
    bool far;        /* it has ranks on other hosts: failures come by the relay, streams take
                        channels by order */
    bool spans;      /* it has ranks whose memory is not mapped; then it is far, too */
    /* The members whose memory is mapped; pads and signals are theirs alone. A member's place is
     * its index here: of a team that does not span domains its team rank. */
    int local_rank, local_size; /* this rank's place, and how many they are */
    int local[SYMM_MAX_PLACES]; /* team ranks, ascending */
    /* by the context's place_of; -1: no member */
    int8_t place_of[SYMM_MAX_PLACES];
    uint32_t sequence; /* of exchanges */
    /* Tag and number of the exchange that the next one follows; 0: none. */
    uint64_t before;
    uint32_t before_sequence;
    /* Each exchange follows the one before: a member that has failed in it does not come. */
    bool opening;
    bool agreed;       /* all members are known to come to the next exchange */
    bool again;        /* a member that has left the next exchange may come again */
    uint32_t consensus_word; /* where its agreement on survivors is (team_shrink.c) */
    uint32_t shrinks;        /* attempts to shrink it that are over */
    /* The ranks that were left then, by bits of team ranks; NULL: no attempt yet; owned. */
    uint64_t *survivors;
    /* Over hosts: how the last attempt ended (shrink_hosts.c); owned. */
    struct symm_shrunk *shrunk;
    size_t begin, end;  /* its range: pad first, scratch, then the heap */
    size_t scratch_bytes;
    struct symm_heap heap;
    size_t extent[SYMM_MAX_PLACES]; /* by place: end of its memory, mapped here */
    size_t shared; /* up to here every member's memory is mapped on its whole host */
    struct symm_segment *segments; /* in order of offset; owned */
    size_t segment_count, segment_capacity;
    symm_buffer **buffers; /* sorted by alloc_id, then offset; owned */
    size_t buffer_count, buffer_capacity;
    struct symm_registration *registrations; /* in order; owned */
    uint64_t registered;                     /* ever */
    bool capturing; /* between capture_begin and _end; guarded by `channels` */
    struct symm_capture *capture; /* captured calls; NULL: no bracket yet; owned */
    struct symm_team_plan *plan;             /* NULL: none is loaded; owned */
    size_t plan_end; /* where the plan's arena ends in the heap; 0: no plan */
    struct symm_pad *pad[SYMM_MAX_PLACES]; /* by place */
    /* it spans domains; NULL: all memory is mapped; owned */
    struct symm_hierarchy *hierarchy;
    bool inner;     /* the mapped part of a hierarchical team, which owns it, */
    symm_team *outer; /* and is this one, as soon as it has its part; else NULL */
    /* when ranks of other hosts were last polled; with the context locked */
    double looked;
    struct symm_team_channel channel[SYMM_CHANNELS];
    /* Of the states of its channels: [SYMM_HOST_CHANNELS * local_size], [local_size]; NULL on a
     * device; owned. */
    struct symm_slot **slots;
    char **base;
    void **outgrown; /* former workspaces, which calls may still use; owned */
    size_t outgrown_count;
    /* [local_size * SYMM_SIGNALS]: signals so far; on a device those of calls, for tools;
     * owned. */
    uint32_t *sent, *awaited;
    /* [2 * local_size], atomic: a message is under way (call/ring.c); owned. */
    uint8_t *ring_ends;
    /* [(size + 1) * SYMM_STEPS], atomic; NULL: none yet, see call/seen.h; owned. */
    uint32_t *steps;
    int ring_turn;      /* atomic: the member that the last receive from any rank served */
    int32_t failing;          /* atomic: a thread writes the record */
    int32_t failed; /* symm_status, atomic; the record below is written before it */
    bool had_failed; /* before the exchange that is under way, by what this rank knew */
    pthread_mutex_t
        channels;          /* guards the channels of streams while calls are queued */
    uint64_t channel_uses; /* CUDA: calls that took a channel */
    char failure[SYMM_RECORD_BYTES];
    uint64_t streams; /* host, atomic: bits of those with calls that take no channel */
    const char *last_path; /* what a one-sided call did; NULL: see channel */
    int last_channel;
    struct symm_team_engine *engine;     /* NULL: calls go to no engine; owned */
    struct symm_cuda_team *cuda;         /* of the CUDA backend; NULL on the host's */
    const struct symm_device_ops *device_ops; /* NULL: kernels run on the host */
    struct symm_device_team device;      /* as device code sees the team */
};

/* The place of the member with this world rank; -1: no member, or not mapped. */
static inline int symm__team_place_of(const symm_team *team, int world_rank)
{
    return symm__is_mapped(team->ctx, world_rank)
               ? team->place_of[team->ctx->place_of[world_rank]]
               : -1;
}

/* A member's place among those whose memory is mapped; -1: its memory is not. */
static inline int symm__team_place(const symm_team *team, int member)
{
    const int rank = team->world_rank[member];

    if (!team->spans)
        return member;
    return symm__team_place_of(team, rank);
}

/* The world rank of the member with that place. */
static inline int symm__team_rank_at(const symm_team *team, int place)
{
    return team->world_rank[team->local[place]];
}

/* Whether the member with that place is on another host: no control page, no descriptors. */
static inline bool symm__team_far_at(const symm_team *team, int place)
{
    return team->far && symm__is_far(team->ctx, symm__team_rank_at(team, place));
}

/* Of a hierarchical team: a member's domain, and its rank in its domain's local team. */
static inline int symm__hierarchy_host(const struct symm_hierarchy *hierarchy,
                                       int member)
{
    return hierarchy->seat ? hierarchy->seat[member].host : member / hierarchy->places;
}

/* What hierarchy->hosts counts, for sentences. */
static inline const char *symm__hierarchy_parts(const symm_team *team)
{
    return team->ctx->fabric ? "domains" : "hosts";
}

static inline int symm__hierarchy_place(const struct symm_hierarchy *hierarchy,
                                        int member)
{
    return hierarchy->seat ? hierarchy->seat[member].place : member % hierarchy->places;
}

symm_status symm__team_check_in(const symm_team *team,
                                const char *function) SYMM_MUST_CHECK;
#define symm__team_check(team) symm__team_check_in(team, __func__)

/* Fills team->device with what both backends know, not state and record: the members whose
 * memory is mapped, by their places. At most SYMM_DEVICE_RANKS of them. */
void symm__team_describe(symm_team *team);
/* Is the rank, whose memory is mapped, in a symm_team_shrink that this rank has not entered? */
bool symm__team_shrinks(const symm_team *team, int rank);
/* Fails if one of these members (world ranks; count < 0: all, and those on other hosts) comes to no
 * exchange any more: it is in such a call, or has reported that the team has failed. If this rank
 * knew of the failure when it began, both make the exchange in spite of it. In failure.c. */
symm_status symm__team_gone_on(void *team, const int *ranks, int count) SYMM_MUST_CHECK;
/* What this rank gives to an exchange. */
struct symm_own_message {
    symm_status status; /* != SYMM_OK: it has failed, and gives nothing else */
    const void *bytes;
    size_t bytes_count;
    const int *fds;
    int fds_count;
};
/* Makes one exchange of the team, and counts it. It ends if symm__team_gone_on fails. */
symm_status symm__team_exchange(symm_team *team, const char *what, double timeout,
                                const struct symm_own_message *own,
                                struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* Fails if a range of this rank's heap is not within one buffer; what: the call, which: its
 * argument. */
symm_status symm__team_extent(const symm_ctx *ctx, const char *what, const char *which,
                              const void *ptr, size_t bytes) SYMM_MUST_CHECK;
/* Is [ptr, ptr + bytes) this rank's memory that all members of `team` have mapped? */
bool symm__team_symmetric(const symm_team *team, const void *ptr, size_t bytes,
                          size_t *offset);
/* "world", "team 3 [0 2]", "team 'tp' (3) [0 2]"; cut if need be. */
const char *symm__team_name(const symm_team *team, char *text, size_t bytes);
/* Shows tools the team as it is now. */
void symm__team_show(const symm_team *team);
/* Has `big` every rank of `small`? */
bool symm__team_contains(const symm_team *big, const symm_team *small);
/* Memory for a channel's cache of calls, at its first use. */
symm_status symm__channel_cache(struct symm_team_channel *channel) SYMM_MUST_CHECK;
/* Fails if the peer's memory is not mapped here, which a one-sided call needs. */
symm_status symm__team_reach(const char *what, const symm_team *team,
                             int peer) SYMM_MUST_CHECK;

#endif
