/* SPDX-License-Identifier: MIT */
/*
 * engine.h - the contract between the runtime and a library that moves data where symmetric
 * memory does not reach: NCCL on CUDA, MPI on the host.
 *
 * An engine is a const table of operations that begins with its size. It is loaded with the
 * context and makes one communicator for each team, when the team is made. No slot is NULL:
 * what an engine cannot do it refuses by `objection` or with SYMM_ERR_UNSUPPORTED. Every wait
 * is bounded, unless the engine `blocks`; what a communicator has begun can be ended by `abort`
 * from any thread.
 * Operations set symm_last_error when they fail and leave nothing behind: those within the
 * library by symm__fail, a plug-in by its slot `last_error`.
 *
 * Rules of use, which the runtime keeps and the stand-in engine of the tests checks:
 *  - All ranks of a communicator make the same calls in the same order, but for `abort`.
 *  - Calls on one communicator may come from several threads at a time: the engine takes
 *    turns. Where `device` is true the rank's device is current in every call.
 *  - Memory is registered once for each communicator, and deregistered before it is freed
 *    and before the communicator is destroyed. An abort ends what was registered.
 *  - Windows are registered in the same order on all ranks, inside symm_rendezvous only.
 *  - After `abort` only `destroy` is called, and only once `abort` and all other calls on the
 *    communicator have returned.
 *  - An engine that `blocks` gets id_create, comm_create, comm_split, comm_finalize, comm_abort
 *    and window_register on threads that may be left behind (helper.h); `wait->stop` is NULL
 *    there. `run` is on the caller's thread: `abort` makes it return.
 */
#ifndef SYMM_ENGINE_ENGINE_H
#define SYMM_ENGINE_ENGINE_H

#include "kernels/launch.h"
#include "symm/symm.h"

#define SYMM_ENGINE_ID_BYTES 128

struct symm_engine;      /* the loaded library */
struct symm_engine_comm; /* one communicator */

/* By what a communicator's ranks find each other; its rank 0 makes it, the runtime carries it. */
struct symm_engine_id {
    uint8_t bytes[SYMM_ENGINE_ID_BYTES];
};

enum symm_engine_kind { SYMM_ENGINE_COLLECTIVE, SYMM_ENGINE_SEND, SYMM_ENGINE_RECV };

/* One operation; peer and root are ranks of the communicator. Counts as in symm.h. */
struct symm_engine_request {
    enum symm_engine_kind what;
    enum symm_kind kind; /* of a collective */
    const void *in;      /* what a send sends */
    void *out;           /* where a recv receives */
    size_t count;
    symm_dtype dtype;
    symm_op op;
    int root, peer;
};

/* Limits of a wait: a time, and a callback, polled meanwhile, that can end it. */
struct symm_engine_wait {
    double until; /* symm__now() at which it ends with SYMM_ERR_TIMEOUT */
    symm_status (*stop)(void *arg); /* not SYMM_OK: ends the wait; may be NULL */
    void *stop_arg;
};

struct symm_engine_ops {
    size_t size;
    const char *name; /* "nccl", "mpi" */
    /* true: `run` queues on a CUDA stream and reads device memory. false: `run` works on
     * memory of the host and returns when the operation is complete. */
    bool device;

    /* Loads the library and checks its version. Local. */
    symm_status (*open)(struct symm_engine **engine);
    void (*close)(struct symm_engine *engine); /* NULL allowed */
    /* "NCCL 2.28.9" */
    const char *(*version)(const struct symm_engine *engine);

    symm_status (*id_create)(struct symm_engine *engine, struct symm_engine_id *id);
    /* Collective over the communicator's ranks. world_rank[size]: for error sentences. */
    symm_status (*comm_create)(struct symm_engine *engine,
                               const struct symm_engine_id *id, int rank, int size,
                               const int *world_rank,
                               const struct symm_engine_wait *wait,
                               struct symm_engine_comm **comm);
    /* Ends what it has begun, without waiting for peers. From any thread, at any time. */
    void (*comm_abort)(struct symm_engine_comm *comm);
    void (*comm_destroy)(struct symm_engine_comm *comm); /* NULL allowed */
    /* Has a queued operation failed? */
    symm_status (*comm_error)(struct symm_engine_comm *comm);

    /* Why the engine cannot do this request, equal on all ranks; NULL: it can. A static
     * clause. */
    const char *(*objection)(const struct symm_engine *engine,
                             const struct symm_engine_request *request);
    /*
     * Runs `count` operations as one group: sends and receives in any order among
     * themselves do not wait for each other's turn. Collectives come alone (count 1).
     */
    symm_status (*run)(struct symm_engine_comm *comm,
                       const struct symm_engine_request *requests, int count,
                       void *stream, const struct symm_engine_wait *wait);

    /* Local: this rank's memory will be used often. */
    symm_status (*memory_register)(struct symm_engine_comm *comm, void *ptr,
                                   size_t bytes, void **handle);
    void (*memory_deregister)(struct symm_engine_comm *comm, void *handle);
    /* Collective over the communicator: the same on all ranks. */
    symm_status (*window_register)(struct symm_engine_comm *comm, void *ptr,
                                   size_t bytes, void **handle);
    void (*window_deregister)(struct symm_engine_comm *comm, void *handle);

    /*
     * Fills symm_bootstrap, whose allgather starts the job, where the engine reaches all ranks
     * before any communicator is made (MPI). SYMM_ERR_UNSUPPORTED where it does not.
     */
    symm_status (*bootstrap)(struct symm_engine *engine, symm_bootstrap *bootstrap);

    /* The slots from here on may be NULL, or lie after `size`: the library fills them. */

    /* How the result of a request that the engine can do differs from what symm.h promises, equal
     * on all ranks; NULL: in nothing. The library gives such a call to the engine only by name,
     * or where nothing else reaches all ranks. A static clause. */
    const char *(*deviation)(const struct symm_engine *engine,
                             const struct symm_engine_request *request);
    /* A plug-in's own symm_last_error: of the last call on this thread that failed. */
    const char *(*last_error)(void);

    /* The engine's waits have no bound of their own: an abort from another thread ends them. */
    bool blocks;
    /* Splits a communicator on which nothing is under way. Collective over `parent`. Ranks of one
     * color make a communicator, in the order of their ranks in `parent`; color -1: none, *comm
     * is NULL. */
    symm_status (*comm_split)(struct symm_engine_comm *parent, int color, int size,
                              const struct symm_engine_wait *wait,
                              struct symm_engine_comm **comm);
    /* Thread blocks of one operation on a device at most; 0: not known. */
    int grid;
    /* Completes the communicator with the peers, before comm_destroy. NULL: comm_destroy does
     * so. */
    symm_status (*comm_finalize)(struct symm_engine_comm *comm, double until);
};

/* What an engine that is a plug-in exports under this name: const struct symm_engine_ops. */
#define SYMM_ENGINE_SYMBOL "symm_engine"

extern const struct symm_engine_ops symm__engine_nccl;

#endif
