/* SPDX-License-Identifier: MIT */
/*
 * symm.h - the host API of libsymm: symmetric memory, collectives over it, one-sided puts.
 *
 * Every rank of a job gets the same buffer at the same offset for each call site, mapped
 * into all of its peers. Collectives then run over that memory with no registration and no
 * negotiation per call.
 *
 * Rules that hold for every function here, so that they are not repeated below:
 *  - A fallible call returns a symm_status: SYMM_OK (0) or a negative value. Outputs come
 *    last and are written only on success. symm_last_error() then holds one sentence for the
 *    calling thread: what failed, with which values, for whom, and what to try.
 *  - Counts are in elements, sizes named `bytes` are in bytes, times are in seconds.
 *  - `rank` and `peer` are ranks of the team named in the call; error sentences name ranks
 *    of the world.
 *  - A timeout is a number of seconds; 0 means the context's, negative or NaN is
 *    SYMM_ERR_INVALID. Every wait is bounded: by symm_call.timeout, else symm_config.timeout,
 *    else SYMM_TIMEOUT (30 s). A dead peer ends a wait at once. CUDA: the time in which a peer
 *    has queued the call, but its stream has not reached it, does not count, up to
 *    SYMM_QUEUE_TIMEOUT (ten timeouts).
 *  - After an error that concerns a peer (SYMM_ERR_PEER_DEAD, _TIMEOUT, _MISMATCH, _DAMAGED)
 *    the team has failed: later calls on it return the same status and sentence at once, and
 *    what outputs hold is undefined. Other teams that do not contain the culprit go on. A
 *    failed team can still be split, if its ranks are alive; if not, symm_team_shrink makes one
 *    of the survivors. A manifest that differs at a rendezvous leaves the team as it was, and so
 *    does a split that fails.
 *  - "collective" means: every rank of the team makes the call, in the same order. Splits,
 *    rendezvous and ends of captures are made in one order over all teams of a context;
 *    symm_team_create says what order it needs.
 *  - One context may be used by several threads, each with a stream of its own. The NULL
 *    stream is one ordered stream of the context, as CUDA's legacy default stream is: two
 *    calls on it at the same time from two threads are refused with SYMM_ERR_BUSY. On CUDA
 *    they are queued one after the other instead.
 *  - A context does not survive fork(): in the child every call returns SYMM_ERR_FORKED.
 */
#ifndef SYMM_SYMM_H
#define SYMM_SYMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symm/types.h"
#include "symm/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Context --------------------------------------------------------------------- */

typedef struct symm_ctx symm_ctx;   /* everything one rank has: the root of all state */
typedef struct symm_team symm_team; /* some ranks of the job, in an order */
typedef struct symm_buffer symm_buffer; /* a hold on symmetric memory */
typedef struct symm_work
    symm_work; /* handle of one call: completion, error, ordering */
typedef struct symm_thread_group
    symm_thread_group; /* ranks that are threads of one process */

/*
 * The caller's own exchange (MPI_Allgather, torch's all_gather_object, ...): every rank gives
 * `bytes` bytes and gets world_size x bytes in rank order. Returns 0 on success. It is called
 * on the thread that calls symm_init and never again afterwards.
 */
typedef struct symm_bootstrap {
    size_t size;
    int (*allgather)(void *arg, const void *in, size_t bytes, void *out);
    void *arg;
} symm_bootstrap;

/* Zero in any field means: take it from the environment (symm_env(7)), else the default. */
typedef struct symm_config {
    size_t size;         /* sizeof(symm_config) */
    const char *backend; /* "host", "cuda"; default: the best that works */
    int world_size;      /* > 0: this job, and no launcher's variables are read */
    int rank;            /* with world_size */
    int local_rank,
        local_size;     /* with world_size; default: all ranks are on this host */
    const char *job_id; /* names the job: equal on all its ranks, unique among jobs */
    const symm_bootstrap *bootstrap; /* instead of job_id; borrowed during symm_init */
    symm_thread_group
        *thread_group;    /* of ranks that are threads; used until symm_finalize */
    size_t heap_bytes;    /* address space a rank reserves (1 TiB): 32 MiB to 16 TiB */
    size_t team_bytes;    /* of it for a team made by split (2 GiB): 4 MiB to half */
    double timeout;       /* seconds a call waits for its peers (30); up to a week */
    double init_timeout;  /* seconds symm_init waits for all ranks (60); up to a week */
    uint32_t epoch_start; /* first epoch of every channel (tests of the wrap) */
} symm_config;

SYMM_API symm_status symm_init(const symm_config *config,
                               symm_ctx **ctx) SYMM_MUST_CHECK;
/*
 * Not collective. Frees what the caller left; NULL is allowed. What streams have queued runs
 * first, each call bounded by its own timeout; apart from that it waits for no rank.
 */
SYMM_API void symm_finalize(symm_ctx *ctx);

/* Ranks as threads: one group of n; each thread passes it to symm_init with its own rank. */
SYMM_API symm_status symm_thread_group_create(int n, symm_thread_group **group)
    SYMM_MUST_CHECK;
/* After every rank's symm_finalize. NULL is allowed. */
SYMM_API void symm_thread_group_destroy(symm_thread_group *group);

typedef struct symm_info {
    size_t size;
    int rank, world_size; /* in the world */
    int local_rank, local_size;
    const char *backend;     /* "host", "cuda" */
    const char *job_source;  /* "symm", "torchrun", "openmpi", ..., "single" */
    const char *isa;         /* reductions' instruction set: "c", "avx2", "avx512" */
    size_t heap_bytes;       /* reserved address space a rank */
    size_t committed_bytes;  /* memory this rank has committed */
    size_t granularity;      /* bytes of the smallest segment */
    size_t scratch_bytes;    /* of committed_bytes: what the teams' CUDA kernels use */
    const char *why_backend; /* "SYMM_BACKEND", or why the better one was not taken */
    const char *machine;     /* as cost tables name it: backend, processors */
    int hosts;               /* that the ranks are on */
    const char *host;        /* this rank's: SYMM_HOST_ID, or the system's name */
    int device;              /* CUDA: ordinal of this rank's device; host: -1 */
} symm_info;

SYMM_API symm_status symm_ctx_info(symm_ctx *ctx, symm_info *info) SYMM_MUST_CHECK;

/* ---- Teams ----------------------------------------------------------------------- */

SYMM_API symm_team *symm_team_world(symm_ctx *ctx); /* borrows: lives as long as ctx */
/*
 * Collective over the parent. Ranks of one colour form a team, ordered by key, then by rank
 * in the parent; color < 0: no team for me, and *team = NULL. The new team has an address
 * range of its own in the heap; it may use the parent's buffers too. A split that some ranks
 * did not reach within the timeout does not count: all may make it again.
 */
SYMM_API symm_status symm_team_split(symm_team *parent, int color, int key,
                                     symm_team **team) SYMM_MUST_CHECK;
/*
 * Makes a team of `n` ranks of the parent, `ranks[0]` to `ranks[n - 1]`, distinct, in this order.
 * Only these ranks make the call, with the same list and key. The parent's other ranks do
 * nothing, and may be in any other call; what happens to them or to the parent later does not
 * concern the new team, which otherwise is as one made by symm_team_split.
 * With one parent and key a rank makes one such call at a time; calls with the same list and key
 * are matched in the order in which each rank makes them. Calls with different keys are
 * independent of each other, whatever their lists, and of splits and rendezvous: ranks may make
 * them in any order from different threads.
 *   int pair[] = {0, 3};
 *   if (me == 0 || me == 3) symm_team_create(world, pair, 2, 0, &team);
 * SYMM_ERR_TIMEOUT names the ranks that have not come; all may call again. SYMM_ERR_MISMATCH: two
 * ranks list each other in different lists of this key; the sentence has both.
 * SYMM_ERR_PEER_DEAD: a listed rank has died or finalized. Every rank that waits with the same
 * list gets the first of these errors; parent and other teams stay as they are. SYMM_ERR_BUSY:
 * another thread of this rank is in a call with this parent and key, or 8 threads are in this
 * function. SYMM_ERR_INVALID: the list is empty, has a rank twice, has a rank that is not in the
 * parent, or lacks the caller; no other rank notices. SYMM_ERR_UNSUPPORTED: a listed rank is on
 * another host.
 */
SYMM_API symm_status symm_team_create(symm_team *parent, const int *ranks, int n,
                                      int key, symm_team **team) SYMM_MUST_CHECK;
/*
 * Makes a team of the ranks of `team` that are alive, in the order of their ranks. Every rank
 * that has seen the team fail calls it (a healthy team can be shrunk, too); no list is given.
 * A rank whose error is its own alone calls symm_team_abort first: others may wait in a call.
 * A rank that is dead or has finalized is left out at once. A rank that is alive and does not
 * call is left out after one timeout; making the team may take another. All ranks that return
 * SYMM_OK have the same team; a rank that dies meanwhile may be a member, and then the team's
 * first call names it. A rank that arrives too late gets SYMM_ERR_TIMEOUT and is left out for
 * good. The old team stays failed and can be destroyed. Buffers are allocated anew, as after a
 * split. Over several hosts: a host that does not answer, or none of whose ranks calls, may be
 * cut off from the others and shrink the team too. So only a majority goes on: survivors on more
 * than half of the hosts that are not known to be dead, or on half of them with the lowest such
 * host. Other survivors get SYMM_ERR_TIMEOUT, and can call again. So can all ranks if one that has
 * called stops, and holds up the others for 3 timeouts.
 */
SYMM_API symm_status symm_team_shrink(symm_team *team,
                                      symm_team **survivors) SYMM_MUST_CHECK;
/*
 * Not collective, from any thread: the team fails with SYMM_ERR_ABORTED, so that its waits end
 * here and on its members, kernels' too. Then it can be shrunk or destroyed. A team that has
 * failed stays as it is. why: for people, at most 80 bytes are kept; NULL: no reason.
 */
SYMM_API symm_status symm_team_abort(symm_team *team, const char *why) SYMM_MUST_CHECK;
/* Not collective. What streams have queued for it runs first. Its buffers go with it. */
SYMM_API void symm_team_destroy(symm_team *team);
/*
 * Names the team in this rank's sentences: "team 'tp' (3) [0 2]" instead of "team 3 [0 2]". The
 * number is the team's own, the same on all members. At most SYMM_TEAM_NAME_BYTES - 1 bytes;
 * NULL or "": no name. Not while another thread uses the team.
 */
#define SYMM_TEAM_NAME_BYTES 32
SYMM_API symm_status symm_team_set_name(symm_team *team,
                                        const char *name) SYMM_MUST_CHECK;
SYMM_API int symm_team_rank(const symm_team *team);
SYMM_API int symm_team_size(const symm_team *team);
SYMM_API int symm_team_world_rank(const symm_team *team,
                                  int rank); /* -1: no such rank */
/*
 * The team as device code sees it: *device_team points to a struct symm_device_team
 * (symm/device.h) in device memory, which a program's own kernels can use; it lives as long as
 * the team. Host backend: in the host's memory, with state and record NULL.
 */
SYMM_API symm_status symm_team_device(symm_team *team,
                                      const void **device_team) SYMM_MUST_CHECK;

/* ---- Symmetric memory ------------------------------------------------------------ */

/*
 * The buffer of a call site. The first call with an alloc_id places memory for the extent of
 * shape and stride (elements; strides >= 0; ndim 0..16); later calls with it return the same
 * memory while the team lives. alloc_id 0: a new buffer, freed by symm_buffer_release. Local:
 * ranks that make the same calls get the same offsets, symm_rendezvous checks that they did
 * and maps the memory into every peer. The pointer is usable at once, peer pointers after
 * that. SYMM_ERR_IN_USE: the alloc_id is held; SYMM_ERR_MISMATCH: another size or dtype than
 * at first, or more than a loaded plan has for it; SYMM_ERR_OVERFLOW; SYMM_ERR_NOMEM.
 */
SYMM_API symm_status symm_empty_strided_p2p(symm_team *team, int ndim,
                                            const int64_t *shape, const int64_t *stride,
                                            symm_dtype dtype, uint64_t alloc_id,
                                            symm_buffer **buffer) SYMM_MUST_CHECK;
/* The same for `bytes` bytes (uint8) without a call site (alloc_id 0): each call is a buffer of
 * its own, freed by symm_buffer_release. SYMM_ERR_NOMEM, SYMM_ERR_OVERFLOW. */
SYMM_API symm_status symm_buffer_alloc(symm_team *team, size_t bytes,
                                       symm_buffer **buffer) SYMM_MUST_CHECK;
/*
 * Allocates memory of this process that symm_buffer_register takes with every team of that
 * backend: "host", or "cuda" on `device` (its number; < 0: the current one). Local, without a
 * context, zeroed; in whole pages (host) or allocations of 2 MiB (CUDA). For allocators of other
 * libraries, which do not know yet which team will share the memory.
 * Errors: SYMM_ERR_INVALID, SYMM_ERR_NOMEM, SYMM_ERR_OVERFLOW, SYMM_ERR_UNSUPPORTED (no CUDA).
 */
SYMM_API symm_status symm_mem_alloc(const char *backend, int device, size_t bytes,
                                    void **ptr) SYMM_MUST_CHECK;
/*
 * May be called at any time, also after symm_finalize. Waits first for the device whose memory it
 * is. Memory that is registered is freed when its last registration ends. NULL is allowed.
 * SYMM_ERR_NOT_FOUND: ptr does not come from symm_mem_alloc.
 */
SYMM_API symm_status symm_mem_free(void *ptr);
/*
 * Maps existing memory into all peers: memory from symm_mem_alloc, or of this rank's device. Puts
 * and gets reach it, and symm_buffer_peer_ptr has its addresses; for collectives it is private
 * memory. Ranks register the same number of bytes in the same order between two rendezvous.
 * symm_buffer_release ends the registration on this rank: later calls do not find the memory
 * (SYMM_ERR_INVALID). Peers keep it mapped until the team's next rendezvous or its end. There
 * each rank first waits for its calls in flight, which use the memory until then. The memory must
 * not be freed while it is registered, nor before that rendezvous, unless it comes from
 * symm_mem_alloc or cuMemCreate. Host backend: SYMM_ERR_UNSUPPORTED for all other memory.
 */
SYMM_API symm_status symm_buffer_register(symm_team *team, void *ptr, size_t bytes,
                                          symm_buffer **buffer) SYMM_MUST_CHECK;
/*
 * Collective; the allocations themselves are local. Compares what the ranks have allocated and
 * freed since the last one, exchanges all new segments in one batch, maps them. SYMM_ERR_MISMATCH
 * on every rank names the first differing entry and the rank. Freed memory may be reused from
 * here on.
 */
SYMM_API symm_status symm_rendezvous(symm_team *team) SYMM_MUST_CHECK;
SYMM_API void *symm_buffer_ptr(const symm_buffer *buffer);
SYMM_API size_t symm_buffer_bytes(const symm_buffer *buffer);
SYMM_API size_t
symm_buffer_offset(const symm_buffer *buffer); /* in the heap: all ranks' */
SYMM_API void *symm_buffer_peer_ptr(const symm_buffer *buffer,
                                    int peer); /* NULL: no loads */
SYMM_API void *
symm_buffer_multicast_ptr(const symm_buffer *buffer); /* NULL: no multicast */
/* Ends the hold. Memory of an alloc_id stays; alloc_id 0 is freed. NULL is allowed. */
SYMM_API void symm_buffer_release(symm_buffer *buffer);
/* Gives a call site's memory back; SYMM_ERR_IN_USE if held, SYMM_ERR_NOT_FOUND. */
SYMM_API symm_status symm_alloc_id_free(symm_team *team,
                                        uint64_t alloc_id) SYMM_MUST_CHECK;

/*
 * Graphs over memory that is not symmetric (CUDA, ranks of one host). Between
 * symm_team_capture_begin (local) and symm_team_capture_end (collective) any number of graphs may
 * capture collectives of the team; these use device memory that peers can map (as
 * symm_buffer_register takes it) without a copy. Calls that need no peer's address (by packets),
 * all_reduce_norm and calls outside of graphs are made as without it. All ranks capture the same
 * calls in one order, over all streams. A replay before symm_team_capture_end is an error on all
 * ranks, and stays one if that fails: SYMM_ERR_MISMATCH names the first call that differs. Captures
 * of several teams may overlap. SYMM_ERR_IN_USE: begun already. SYMM_ERR_INVALID: not begun.
 * SYMM_ERR_UNSUPPORTED: host.
 */
SYMM_API symm_status symm_team_capture_begin(symm_team *team) SYMM_MUST_CHECK;
SYMM_API symm_status symm_team_capture_end(symm_team *team) SYMM_MUST_CHECK;
/*
 * Ends the capture in place of symm_team_capture_end, on a rank that could not capture all calls.
 * On members that call symm_team_capture_end, that returns SYMM_ERR_ABORTED and quotes `why` (for
 * people, at most 80 bytes; may be NULL). The captured calls stay unusable, the team stays as it
 * is. Waits 10 seconds at most for the others: then SYMM_ERR_ABORTED, and the team has failed for
 * that reason.
 */
SYMM_API symm_status symm_team_capture_abandon(symm_team *team,
                                               const char *why) SYMM_MUST_CHECK;
/*
 * To be called before captured memory goes back to the driver, with any memory, at any time. From
 * then on a replay of a call that uses [ptr, ptr + bytes) and whose addresses were exchanged is an
 * error, also in a graph that is running: on this rank at once; on peers when they wait for this
 * rank, whose error names the memory, or at their deadline if it replays no more. The caller may
 * free the memory when its own replays have ended: no peer uses it after that. (Memory of
 * cuMemAlloc: peers keep it mapped until the next symm_team_capture_end, or the team's end.) Memory
 * freed without this call is not noticed. On error the team has failed.
 */
SYMM_API symm_status symm_team_capture_release(symm_team *team, const void *ptr,
                                               size_t bytes) SYMM_MUST_CHECK;
/*
 * The same for all teams of the process, for an allocator's hook that knows of no team. Waits for
 * no peer and no kernel, and may be called in a lock of the allocator. On error a team has failed.
 */
SYMM_API symm_status symm_capture_release(const void *ptr,
                                          size_t bytes) SYMM_MUST_CHECK;

/* ---- Collectives ----------------------------------------------------------------- */

/* X(NAME, value, name): the collectives that have data. */
#define SYMM_COLLECTIVE_MAP(X)                                                         \
    X(ALL_REDUCE, 1, "all_reduce")                                                     \
    X(REDUCE_SCATTER, 2, "reduce_scatter")                                             \
    X(ALL_GATHER, 3, "all_gather")                                                     \
    X(BROADCAST, 4, "broadcast")                                                       \
    X(ALL_TO_ALL, 5, "all_to_all")

/* X(NAME, value, name): how a collective can run, as symm_call.algorithm, symm_explain and
 * plans name it. Each backend has some of them. docs/planner.md says what each touches. */
#define SYMM_ALGORITHM_MAP(X)                                                          \
    X(LL_PUSH, 0, "ll_push")                                                           \
    X(LAMPORT_PUSH, 1, "lamport_push")                                                 \
    X(TWO_SHOT_PUSH, 2, "two_shot_push")                                               \
    X(ONE_SHOT_PULL, 3, "one_shot_pull")                                               \
    X(TWO_SHOT_PULL, 4, "two_shot_pull")                                               \
    X(TWO_SHOT_INPLACE, 5, "two_shot_inplace")                                         \
    X(COPY_IN, 6, "copy_in")                                                           \
    X(COPY_ENGINE, 7, "copy_engine")                                                   \
    X(MULTIMEM_ONE_SHOT, 8, "multimem_one_shot")                                       \
    X(MULTIMEM_TWO_SHOT, 9, "multimem_two_shot")                                       \
    X(ENGINE, 10, "engine")

typedef enum symm_algorithm {
#define SYMM_ALGORITHM_ENUM(id, value, name) SYMM_ALGORITHM_##id = value,
    SYMM_ALGORITHM_MAP(SYMM_ALGORITHM_ENUM)
#undef SYMM_ALGORITHM_ENUM
        SYMM_ALGORITHM_PUT, /* of a put in a plan, never of a collective */
    SYMM_ALGORITHM_COUNT
} symm_algorithm;

/* "ll_push", of SYMM_ALGORITHM_PUT "put"; NULL = unknown. */
SYMM_API const char *symm_algorithm_name(symm_algorithm algorithm);
/* SYMM_ERR_INVALID: `name` is none of SYMM_ALGORITHM_MAP's. */
SYMM_API symm_status symm_algorithm_parse(const char *name,
                                          symm_algorithm *algorithm) SYMM_MUST_CHECK;

#define SYMM_NUMERICS_ANY        0u /* whatever the chosen algorithm does */
#define SYMM_NUMERICS_SAME_BITS  1u /* the same bits on all ranks */
#define SYMM_NUMERICS_RANK_ORDER 2u /* and reduced in rank order, run after run */

typedef struct symm_call {
    size_t size;
    const char *site; /* names the call site; part of what ranks compare; may be NULL */
    /* NULL: the backend's default stream (host: inline). CUDA: any CUstream of the device. */
    void *stream;
    const char *algorithm; /* forces one, by its name in SYMM_ALGORITHM_MAP; NULL: the
                              library chooses */
    uint32_t numerics;     /* SYMM_NUMERICS_...: a demand on the choice */
    double timeout;        /* seconds; 0: the context's; more than a week: a week */
    /* CUDA: the team's channel, 1 to 32, that a stream without one takes, the same on every rank;
     * 0: the library chooses one at the stream's first call. Host: not used. */
    int channel;
} symm_call;

/*
 * `in` and `out` are any pointers, aligned to the element. Symmetric memory is used where it
 * lies, and has to be long enough; other memory is staged. All ranks must agree on which of the
 * two are symmetric, on the offsets of those, and on whether the call is in place (in == out,
 * except where said otherwise; no other overlap is allowed). Else SYMM_ERR_MISMATCH, unless the
 * algorithm does not depend on it. `work` may be NULL; without a stream the call is complete on
 * return. count 0 synchronises.
 *   symm_all_reduce(world, x, x, 1024, SYMM_FLOAT32, SYMM_SUM, NULL, NULL);
 */
SYMM_API symm_status symm_all_reduce(symm_team *team, const void *in, void *out,
                                     size_t count, symm_dtype dtype, symm_op op,
                                     const symm_call *call,
                                     symm_work **work) SYMM_MUST_CHECK;
/* in: size x count elements, out: count (block `rank` of the sum). */
SYMM_API symm_status symm_reduce_scatter(symm_team *team, const void *in, void *out,
                                         size_t count, symm_dtype dtype, symm_op op,
                                         const symm_call *call,
                                         symm_work **work) SYMM_MUST_CHECK;
/* in: count, out: size x count in rank order. In place: in == out + rank x count. */
SYMM_API symm_status symm_all_gather(symm_team *team, const void *in, void *out,
                                     size_t count, symm_dtype dtype,
                                     const symm_call *call,
                                     symm_work **work) SYMM_MUST_CHECK;
/* count elements of root's `in` into every rank's `out` (root's too). */
SYMM_API symm_status symm_broadcast(symm_team *team, const void *in, void *out,
                                    size_t count, symm_dtype dtype, int root,
                                    const symm_call *call,
                                    symm_work **work) SYMM_MUST_CHECK;
/* in, out: size x count; block p of in goes to block `rank` of p's out. */
SYMM_API symm_status symm_all_to_all(symm_team *team, const void *in, void *out,
                                     size_t count, symm_dtype dtype,
                                     const symm_call *call,
                                     symm_work **work) SYMM_MUST_CHECK;
SYMM_API symm_status symm_barrier(symm_team *team, const symm_call *call,
                                  symm_work **work) SYMM_MUST_CHECK;
/*
 * Two-sided messages from and to any memory. On the host backend, in a team of one machine, they
 * go through shared memory and are copied twice. With algorithm "engine", and in all other teams,
 * an engine carries them (NCCL, MPI; SYMM_ENGINE); without one SYMM_ERR_UNSUPPORTED. The k-th
 * send from one rank to another matches the k-th receive there, which must have the same count,
 * dtype and algorithm. Two ranks that both send first may wait for each other until the timeout:
 * use symm_p2p_batch. peer SYMM_ANY_PEER: receives the next message of any rank; not with an
 * engine.
 * Host: several threads may make such calls on the NULL stream at a time.
 */
#define SYMM_ANY_PEER (-1)
SYMM_API symm_status symm_send(symm_team *team, const void *ptr, size_t count,
                               symm_dtype dtype, int peer, const symm_call *call,
                               symm_work **work) SYMM_MUST_CHECK;
SYMM_API symm_status symm_recv(symm_team *team, void *ptr, size_t count,
                               symm_dtype dtype, int peer, const symm_call *call,
                               symm_work **work) SYMM_MUST_CHECK;

typedef enum symm_p2p_kind { SYMM_P2P_SEND = 0, SYMM_P2P_RECV = 1 } symm_p2p_kind;

typedef struct symm_p2p_op {
    size_t size; /* sizeof(symm_p2p_op), the same in all of a batch */
    symm_p2p_kind kind;
    void *ptr; /* what is sent is only read */
    size_t count;
    symm_dtype dtype;
    int peer; /* may be the caller's own rank; of a receive: SYMM_ANY_PEER */
    int *source; /* of a receive: gets the sender's rank; or NULL */
} symm_p2p_op;
/*
 * Sends and receives as one batch: they may stand in any order on each rank, and peers may
 * differ from one to the next. `ops` is copied. The work is done when all of them are.
 */
SYMM_API symm_status symm_p2p_batch(symm_team *team, const symm_p2p_op *ops, int count,
                                    const symm_call *call,
                                    symm_work **work) SYMM_MUST_CHECK;

/* ---- One-sided ------------------------------------------------------------------- */

/*
 * dst of a put and src of a get are this rank's own address of symmetric memory; the call
 * translates it to the peer's. The other pointer may be any memory, and the peer the caller
 * itself. A put is visible to the peer after a signal that follows it on the same stream, or a
 * collective. A range beyond this rank's own buffer is refused; whether the peer still holds its
 * buffer is not checked. Signals of one number to one peer belong on one stream.
 */
SYMM_API symm_status symm_put(symm_team *team, void *dst, const void *src, size_t bytes,
                              int peer, const symm_call *call,
                              symm_work **work) SYMM_MUST_CHECK;
SYMM_API symm_status symm_get(symm_team *team, void *dst, const void *src, size_t bytes,
                              int peer, const symm_call *call,
                              symm_work **work) SYMM_MUST_CHECK;
/* Each (sender, signal 0..255) is one counter; the k-th wait matches the k-th signal. */
SYMM_API symm_status symm_put_signal(symm_team *team, void *dst, const void *src,
                                     size_t bytes, int peer, int signal,
                                     const symm_call *call,
                                     symm_work **work) SYMM_MUST_CHECK;
SYMM_API symm_status symm_signal(symm_team *team, int peer, int signal,
                                 const symm_call *call,
                                 symm_work **work) SYMM_MUST_CHECK;
SYMM_API symm_status symm_signal_wait(symm_team *team, int peer, int signal,
                                      const symm_call *call,
                                      symm_work **work) SYMM_MUST_CHECK;

/* ---- Streams and work ------------------------------------------------------------ */

/*
 * Host backend: an ordered queue with a worker thread of its own. A team takes up to 7 beside
 * the default one, and pairs them across ranks by the order in which they were first used
 * with it (the place of a destroyed stream is taken first). Use them in the same order on all
 * ranks, or give each thread a stream and a team of its own; named call sites turn a wrong
 * pairing into SYMM_ERR_MISMATCH.
 * CUDA: a non-blocking CUstream; any other of the device serves as well. In teams of one host
 * it gets one of the team's 32 channels by its first collective there (symm_call.channel), and
 * an idle channel may go to another stream: SYMM_ERR_BUSY if all are in use.
 */
SYMM_API symm_status symm_stream_create(symm_ctx *ctx, void **stream) SYMM_MUST_CHECK;
/*
 * Blocks until all that was queued before has run; the calls' own work handles and later calls
 * on their teams return how each ended. SYMM_ERR_TIMEOUT after `timeout` (0: ten times the
 * context's timeout; CUDA: plus the context's timeout plus SYMM_QUEUE_TIMEOUT).
 */
SYMM_API symm_status symm_stream_synchronize(symm_ctx *ctx, void *stream,
                                             double timeout) SYMM_MUST_CHECK;
/* Runs what is queued first. Ignored from within the stream's own callbacks. */
SYMM_API void symm_stream_destroy(symm_ctx *ctx, void *stream);
/* Runs fn(arg) in the stream's order; NULL stream: at once. */
SYMM_API symm_status symm_stream_call(symm_ctx *ctx, void *stream,
                                      void (*fn)(void *arg), void *arg) SYMM_MUST_CHECK;

/* *done = whether later work can be ordered after it; returns the call's own status. A call
 * that was captured into a graph has none: SYMM_ERR_UNSUPPORTED, also of synchronize. */
SYMM_API symm_status symm_work_query(symm_work *work, bool *done) SYMM_MUST_CHECK;
/* Orders the stream after it; the host goes on. NULL stream: on the host backend waits, and
 * returns the call's own status. A call that was captured: only within its capture, else
 * SYMM_ERR_UNSUPPORTED. */
SYMM_API symm_status symm_work_wait(symm_work *work, void *stream) SYMM_MUST_CHECK;
/*
 * Blocks, and returns the call's own status. SYMM_ERR_TIMEOUT after `timeout`: the call goes
 * on. timeout 0: waits until the call ends, which its own timeout bounds once it has begun. It
 * must begin within ten times the context's timeout (CUDA: begin and end within that plus the
 * context's timeout plus SYMM_QUEUE_TIMEOUT).
 */
SYMM_API symm_status symm_work_synchronize(symm_work *work,
                                           double timeout) SYMM_MUST_CHECK;
/*
 * Orders `stream` after work, then calls fn(arg, stream) at once, on the caller's thread: what
 * fn queues on `stream` runs after work. A function that must itself run later goes there by
 * symm_stream_call. fn is not called if work has failed already. *next (next may be NULL) is
 * complete when work and what fn has queued are; it has the error of work, or of fn.
 */
SYMM_API symm_status symm_work_then(symm_work *work, void *stream,
                                    symm_status (*fn)(void *arg, void *stream),
                                    void *arg, symm_work **next) SYMM_MUST_CHECK;
/*
 * Calls fn(status, arg) once when work has ended, with or without success; status is what
 * symm_work_query returns then, and after a failure symm_last_error() in fn is its sentence. A
 * work may have any number of fns, and may be released before its end.
 * fn runs on the context's notifier thread, also if work has ended already; so it may run before
 * symm_work_notify returns. One fn of a context runs at a time: those of one work in the order
 * they were given, those of one stream's works in the stream's order. CUDA: the thread polls the
 * device at intervals of 20 us, doubled up to 1 ms, while it waits for a work; host: no delay.
 * fn delays all that come after it. It may make any call that does not wait for another fn, but
 * not symm_finalize. symm_team_destroy (of the calls on its team) and symm_finalize (of all
 * works) return when these fns have been called; they must not use what is being destroyed.
 * SYMM_ERR_UNSUPPORTED: the call was captured into a graph. On error fn is never called; in a
 * forked child it is not called either.
 */
SYMM_API symm_status symm_work_notify(symm_work *work,
                                      void (*fn)(symm_status status, void *arg),
                                      void *arg) SYMM_MUST_CHECK;
/*
 * *fd: an eventfd (close-on-exec, non-blocking) for poll, epoll or an event loop. It becomes
 * readable when work has ended, with or without success, and stays so until it is read;
 * symm_work_query tells the outcome. The caller closes it, at any time, also before the work's
 * end or after its release; it must be taken out of an epoll set before, since the library has a
 * duplicate until the work has ended. Not delayed by fns. Errors as of symm_work_notify;
 * SYMM_ERR_SYSTEM: the process has too many descriptors.
 */
SYMM_API symm_status symm_work_fd(symm_work *work, int *fd) SYMM_MUST_CHECK;
SYMM_API const char *symm_work_error(symm_work *work); /* "" if none, or not complete */
SYMM_API void symm_work_release(symm_work *work); /* at any time; NULL is allowed */

/* ---- Plans, explanations, traces ------------------------------------------------- */

/*
 * Loads a plan that was made, read or parsed (symm/plan.h), for a team of as many ranks as
 * the plan's world; once in the team's life, before the plan's alloc_ids are placed. Local:
 * every rank loads the same plan; the next symm_rendezvous compares them (SYMM_ERR_MISMATCH),
 * and from then on symm_empty_strided_p2p and the calls at the plan's sites (symm_call.site)
 * obey it: docs/planner.md, "A plan at run time". The plan is copied. Errors leave the team
 * as it was: SYMM_ERR_INVALID names plan and field, SYMM_ERR_IN_USE, SYMM_ERR_NOMEM,
 * SYMM_ERR_UNSUPPORTED.
 *   symm_plan_read_run("plan.json", &plan); symm_team_load_plan(team, plan);
 */
struct symm_plan; /* symm/plan.h */
SYMM_API symm_status symm_team_load_plan(symm_team *team,
                                         const struct symm_plan *plan) SYMM_MUST_CHECK;
/* Why the team's last call took its path; valid until the thread's next call of it. CUDA: also
 * the channel and the stream of the call, its grid, the context's hardware queues, and how long
 * the library waits for a peer that has queued the call. */
SYMM_API const char *symm_explain(symm_team *team);

/*
 * What the library cannot see of a program that runs with SYMM_RECORD: its own kernels, events
 * and periods (docs/planner.md, "Recording a program"). Without SYMM_RECORD each call is one
 * branch and returns SYMM_OK. Local; queues nothing; allowed while a graph is captured.
 *
 * Work on `stream`, after all that was issued to it before, writes or reads this rank's copy of
 * [ptr, ptr + bytes); memory that is no buffer of the world with an alloc_id is ignored. Once a
 * buffer is named here, all accesses to it must be: while it is not live, its bytes may go to
 * others. bytes 0: only calls of the library touch the buffer, or another call here says what
 * does. A buffer that is never named shares its bytes with none. The status may be ignored.
 */
SYMM_API symm_status symm_record_write(symm_team *team, const void *ptr, size_t bytes,
                                       void *stream);
SYMM_API symm_status symm_record_read(symm_team *team, const void *ptr, size_t bytes,
                                      void *stream);
/* Later work of `stream` waits for all that was issued to `on`: an event of the program's
 * own. What symm_work_wait and symm_work_then order is recorded without it. */
SYMM_API symm_status symm_record_depend(void *stream, void *on);
/* Between two periods of a program that repeats the same calls for ever; collective in
 * meaning: every rank calls it at the same place. Before the first, after the last, or both. */
SYMM_API symm_status symm_record_period(symm_team *team);

typedef enum symm_trace_event {
    SYMM_TRACE_ALLOC = 0,
    SYMM_TRACE_FREE = 1
} symm_trace_event;
/* A segment of this rank's memory has appeared or is about to go. */
typedef void (*symm_trace_fn)(void *arg, symm_trace_event event, void *ptr,
                              size_t bytes);
/* First calls fn with SYMM_TRACE_ALLOC for every segment that exists. fn must not call any
 * function of libsymm. */
SYMM_API symm_status symm_trace_attach(symm_ctx *ctx, symm_trace_fn fn, void *arg,
                                       int *id) SYMM_MUST_CHECK;
SYMM_API void symm_trace_detach(symm_ctx *ctx, int id);

/* Writes this rank's heap to a descriptor: segments, and the blocks in them with state and
 * alloc_id; format "json", or "pickle" for pytorch.org/memory_viz. */
SYMM_API symm_status symm_heap_write(symm_ctx *ctx, int fd,
                                     const char *format) SYMM_MUST_CHECK;

/* ---- Log ------------------------------------------------------------------------- */

/* Sink of log lines (level 0 error .. 3 debug); NULL: SYMM_LOG and SYMM_LOG_FILE decide. */
SYMM_API void symm_log_sink(void (*sink)(void *arg, int level, const char *line),
                            void *arg);

#ifdef __cplusplus
}
#endif
#endif
