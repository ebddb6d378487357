/* SPDX-License-Identifier: MIT */
/*
 * runtime.h - the runtime's side of engines (engine.h): what a context has loaded, the
 * communicators of its teams, and calls that go there.
 *
 * A context has an engine only if all its ranks have the same one. A team has communicators
 * only if all its members could make them; else it goes on without an engine; where the engine
 * was asked for by name, the team is not made.
 *
 * A collective that goes to an engine is announced in the channel first, by a signal round with
 * the call's own tag: ranks that make another call, are late or dead are found there, with the
 * usual sentences, before the engine waits for them.
 */
#ifndef SYMM_ENGINE_RUNTIME_H
#define SYMM_ENGINE_RUNTIME_H

#include "core/context.h"
#include "engine/engine.h"
#include "select/chunks.h"
#include "select/select.h"

struct symm_helpers;

/* What symm_team_split has made for the team that it makes next; the context is locked. */
struct symm_engine_given {
    bool tried;                    /* all members have taken part */
    struct symm_engine_comm *comm; /* NULL: it failed on this rank */
};

/* ctx->engine: what was loaded; NULL: calls go to no engine. */
struct symm_engine_use {
    const struct symm_engine_ops *ops; /* the table, NULL: none is in use */
    struct symm_engine_ops table;      /* the engine's, completed by load.c */
    struct symm_engine *engine;
    bool asked;     /* by name: what fails is an error, not a warning */
    bool registers; /* memory, as segments appear and go */
    bool windows;   /* at each rendezvous */
    enum symm_chunks_mode chunks;
    bool pairs;     /* each two ranks that send have a communicator of their own */
    struct symm_helpers *helpers; /* helper.h; NULL: none yet, or not needed; owned */
    /* in the list of those that outlive their context (load.c) */
    struct symm_engine_use *next;
    struct symm_engine_given given;
    uint32_t state; /* enum engine_state in load.c */
    char version[64];
    char why[192]; /* none is in use */
};

/* Memory that a communicator knows; guarded by symm_team_engine.lock. */
struct symm_engine_memory {
    char *at;
    size_t bytes;
    void *handle; /* NULL: it could not be registered */
};

/* team->engine: the communicators of one team. */
struct symm_team_engine {
    symm_team *team;
    /* Of all members, and of a rail (hierarchical.h). A team over several hosts with an engine
     * for devices makes each when a call needs it first. */
    struct symm_engine_comm *comm;
    struct symm_engine_comm *rail;
    bool railed; /* atomic: `rail` is there, or its rail is this rank alone */
    struct symm_engine_comm **pairs; /* [size]; NULL: not made; owned */
    int pending;   /* atomic: operations of `comm` that are not known to be over */
    bool captured; /* atomic: a graph has operations of `comm` */
    pthread_mutex_t lock;
    bool ended; /* atomic: aborted, nothing may be called */
    bool left;  /* atomic: a helper thread may still use a communicator */
    bool hooked, windows;
    int hook;
    struct symm_engine_memory *memory, *window; /* owned */
    size_t memory_count, memory_capacity, window_count, window_capacity;
};

/* Whether an operation of the engine and a kernel of the library may run on the device at a time.
 * Both wait for their peers, so each must have its multiprocessors: else a kernel here could hold
 * those of the operation, and an operation there those of the kernel. The same on all ranks. */
static inline bool symm__engine_fits_beside(const symm_ctx *ctx)
{
    const struct symm_engine_ops *ops = ctx->engine ? ctx->engine->ops : NULL;

    return ops && ops->grid > 0 && ctx->processors >= 2 * ops->grid;
}

/* What a rank sends of its engine in the handshake. */
struct symm_engine_handshake {
    uint32_t state, flags;
    char name[16], version[64], why[192];
};

/* ---- load.c: loading ------------------------------------------------------------------- */

/* Local. An error only if an engine was asked for by name, or an option is malformed. */
symm_status symm__engine_load(symm_ctx *ctx) SYMM_MUST_CHECK;
/* After the last team. False: a thread is still in the engine, and uses the device: the
 * backend must stay open. */
bool symm__engine_unload(symm_ctx *ctx);
void symm__engine_handshake(const symm_ctx *ctx, struct symm_engine_handshake *hello);
/* From all ranks' handshakes, which `of` gives: one engine for all, or none; an error where it was
 * asked for. */
symm_status symm__engine_agree(symm_ctx *ctx,
                               struct symm_engine_handshake (*of)(const void *arg,
                                                                  int rank),
                               const void *arg, int count) SYMM_MUST_CHECK;
/* An engine's own failure as this thread's last error, with `what` in front. */
symm_status symm__engine_reported(const symm_ctx *ctx, symm_status status,
                                  const char *what);
/* Calls fn with the rank's device current, if the engine wants that; `last`: fn frees something,
 * and is called even where the device refuses. */
symm_status symm__engine_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                                void *arg);

/* ---- communicators.c, comm_make.c: communicators ----------------------------------------- */

/* What this rank needs for the team's communicators, before its members agree to start it. *made:
 * NULL: nothing. Not collective. */
symm_status symm__engine_team_prepare(const symm_team *team,
                                      struct symm_team_engine **made) SYMM_MUST_CHECK;
void symm__engine_team_drop(struct symm_team_engine *made); /* NULL is allowed */
/* Once ctx->teams has the team. Collective, with the context locked. Takes `te`. SYMM_OK also if
 * the team goes on without an engine. */
symm_status symm__engine_team_open(symm_team *team, struct symm_team_engine *te,
                                   double timeout) SYMM_MUST_CHECK;
/* Not collective. After the team's last operation, before its memory goes. */
void symm__engine_team_close(symm_team *team);
/* Aborts the team's communicators: ends all operations; none can be used afterwards. */
void symm__engine_team_abort(symm_team *team);
/*
 * A communicator among some members: each member gives its own group, team ranks in
 * ascending order, and groups are disjoint. Collective over the team: if one member fails,
 * all do. The caller destroys it (ops->comm_destroy) before the team goes.
 */
symm_status symm__engine_comm_among(symm_team *team, const int *members, int count,
                                    double timeout,
                                    struct symm_engine_comm **comm) SYMM_MUST_CHECK;
/*
 * For a call of a team over several hosts that needs the communicator of all its members, or that
 * of its rail: makes it, unless it exists. Collective over the team. *told: an error concerns
 * making it, and all members have it; else it is this rank's alone.
 */
symm_status symm__engine_need(symm_team *team, bool all, double timeout,
                              bool *told) SYMM_MUST_CHECK;
static inline bool symm__engine_has(const struct symm_team_engine *te, bool all)
{
    return all ? __atomic_load_n(&te->comm, __ATOMIC_ACQUIRE) != NULL
               : __atomic_load_n(&te->railed, __ATOMIC_ACQUIRE);
}
/* Whether this rank may split the team's communicator: nothing is under way on it. */
bool symm__engine_divisible(const symm_team *team);
/* For symm_team_split, once all members are divisible; color -1: this rank's new team takes
 * none. The result is ctx->engine->given, for the next team, until split_end. Collective over the
 * parent, with the context locked. */
void symm__engine_split(symm_team *parent, int color, int size, double timeout);
void symm__engine_split_end(symm_team *parent);
/* The communicator of this rank and `peer` alone (or of this rank, if it is the peer), made at its
 * first use by both; `until` as symm__now() counts. */
symm_status symm__engine_pair(symm_team *team, int peer, double until,
                              struct symm_engine_comm **comm) SYMM_MUST_CHECK;
/* Why an operation of this team must stop: the team has failed, or a member has died. */
symm_status symm__engine_stop(void *team);

/* ---- registration.c: registration -------------------------------------------------------- */

void symm__engine_memory_open(struct symm_team_engine *te);
/* Deregisters all memory, before the communicator's end, once the hook has gone. */
void symm__engine_memory_drop(struct symm_team_engine *te);
void symm__engine_memory_close(struct symm_team_engine *te); /* drops the hook */
/* Inside symm_rendezvous, once memory is shared: windows of new segments. Collective. */
symm_status symm__engine_windows(symm_team *team) SYMM_MUST_CHECK;

struct symm_engine_call; /* core/device_ops.h */

/* ---- run.c: calls ---------------------------------------------------------------- */

/* Fills in what the selection reads of the engine: equal on all ranks. */
void symm__engine_describe(const symm_team *team, int root,
                           struct symm_select_query *query);
/* A host engine's collective, as a kernel: the round, then the engine. */
symm_status symm__host_engine(struct symm_state *state, const struct symm_args *args);
struct symm_engine_request symm__engine_request(const struct symm_args *args);
#define SYMM_ENGINE_PEERS 16

/* Whom an operation of the engine waits for, which does not say so itself. */
struct symm_engine_awaited {
    const int *members; /* as those of struct symm_engine_call */
    int member_count;
    int peers[SYMM_ENGINE_PEERS], peer_count; /* the first of them; world ranks */
    double left_at; /* one is known since then to have finalized; 0: none */
};

struct symm_engine_awaited symm__engine_awaited(const struct symm_engine_call *call);
/* To be called again and again while the operation is under way: fails the team if a rank that it
 * waits for has finalized so long ago that nothing which that rank has sent is on its way. */
symm_status symm__engine_left(symm_team *team, struct symm_engine_awaited *awaited,
                              const char *what);
/* Runs the call on memory of the host, now. */
symm_status symm__engine_run_host(const struct symm_engine_call *call);
/* An operation has failed here: fails the team, and aborts its communicators. */
symm_status symm__engine_failed(symm_team *team, symm_status status, const char *what,
                                const char *site);

#endif
