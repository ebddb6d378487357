/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl.h - the fake NCCL, lib/libfake_nccl.so: environment, functions for tests, and
 * declarations shared by its files.
 *
 * SYMM_NCCL_LIB=<build>/lib/libfake_nccl.so (SYMM_FAKE_NCCL in suites) makes the engine use
 * it, over the fake CUDA driver. Operations run as host functions of its streams and move
 * data through memory that the ranks share; the library's own code reduces, in rank order.
 * A broken rule of use ends the program with a sentence on stderr; a communicator alive at
 * the end of a process makes its status 98.
 *
 * Communicators block, as NCCL's do unless NCCL_COMM_BLOCKING=0; then calls answer "in
 * progress" a few times.
 *
 * Environment, read at each call; a symbol may be a list with commas:
 *  FAKE_NCCL_VERSION=n       22809 by default
 *  FAKE_NCCL_FAIL=symbol     this function fails (ncclSystemError); symbol@r: on rank r only
 *  FAKE_NCCL_HANG=symbol     likewise: a creation does not end; an operation is queued and
 *                            does not begin
 *  FAKE_NCCL_STUCK=symbol    likewise: the function does not return before its communicator is
 *                            aborted; a creation, a split and an abort never (an abort ends
 *                            the operations and calls of the communicator all the same)
 *  FAKE_NCCL_SLOW=symbol     ncclCommInitRankConfig takes 4 seconds
 *  FAKE_NCCL_KERNEL=when     an operation is a kernel, with the blocks that the communicator may
 *                            have (fake_nccl_kernel.c). "early": the communicator's first call
 *                            returns when it is resident; "late S": it comes to its device S
 *                            seconds after its turn
 */
#ifndef SYMM_TESTS_FAKE_NCCL_H
#define SYMM_TESTS_FAKE_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/nccl_abi.h"
#include "kernels/reduce/reduce.h"

#define FAKE_API       __attribute__((visibility("default")))
#define FAKE_RANKS     72
#define FAKE_BOX_BYTES 16384
#define FAKE_NCCL_PAUSE 1e-4 /* seconds between two polls */

/* Calls of this function in this process so far. */
FAKE_API uint64_t fake_nccl_calls(const char *symbol);
/* Memory and windows that are registered now, in this process. */
FAKE_API int fake_nccl_registered(void);
FAKE_API int fake_nccl_windows(void);
/* Calls that are in a function that FAKE_NCCL_STUCK names now, in this process. */
FAKE_API int fake_nccl_stuck(void);

/* ---- Shared by the ranks of a communicator ---------------------------------------------- */

#define FAKE_LL_BYTES                                                                  \
    16384 /* a message of more goes without a copy, if it is registered */

/* The header of a message; both ends must state the same. NCCL waits for ever where one end is
 * registered and the other is not: they cut the message into different chunks. */
struct fake_head {
    uint32_t call; /* hash of the function's name; sends and receives alike */
    int32_t type;
    uint64_t count;
    uint32_t registered; /* 0 or 1 */
};

/* A message from one rank to another. */
struct fake_box {
    _Atomic uint32_t full;
    uint32_t bytes;
    struct fake_head head;
    char data[FAKE_BOX_BYTES];
};

/* What a rank gives to a split. */
struct fake_split {
    _Atomic uint64_t given, taken; /* splits so far */
    int color, key;
    char path[64]; /* of the memory of its communicator, if it is the first there */
};

struct fake_shared {
    _Atomic int attached;
    struct fake_split split[FAKE_RANKS];
    struct {
        _Atomic uint64_t made; /* windows so far */
        uint64_t bytes;
    } window[FAKE_RANKS];
    struct fake_box box[FAKE_RANKS][FAKE_RANKS]; /* [from][to] */
};

enum fake_state { FAKE_INIT, FAKE_READY, FAKE_FINALIZED, FAKE_ABORTED, FAKE_DESTROYED };

struct fake_piece {
    struct fake_piece *next;
    char *at;
    size_t bytes;
};

/* One rank's communicator; never freed, so that a use after its end is seen. */
struct fake_comm {
    struct fake_comm *next;
    struct fake_shared *shared;
    int rank, size;
    enum fake_state state;
    atomic_bool abort;
    atomic_int inside; /* calls under way, but for an abort */
    bool hangs, blocks;
    int max_ctas;
    void *kernel;        /* NULL: not loaded yet */
    double ready_at;     /* not before; CLOCK_MONOTONIC */
    atomic_int looked;   /* polls since the last operation began */
    atomic_int progress; /* polls until the last call has completed */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t tickets, serving; /* operations run in queue order */
    atomic_int flight;         /* operations queued and not ended */
    atomic_int running;        /* operations that move data now */
    struct fake_piece *registered, *windows;
};

/* ---- fake_nccl.c: communicators ------------------------------------------------------ */

#define SYSTEM_ERROR   2
#define INTERNAL_ERROR 3
#define SECONDS        60 /* that anything is waited for here */

extern pthread_mutex_t fake_nccl_mutex;   /* of the communicators' lists */
extern _Thread_local int fake_nccl_depth; /* of groups */
/* What every call on a communicator begins with. */
struct fake_comm *fake_nccl_use(void *given, const char *symbol);
struct fake_comm *fake_nccl_use_ready(void *given, const char *symbol);
/* Around a call that may be stuck. */
void fake_nccl_enter(struct fake_comm *comm, const char *symbol);
/* The result of a call, or that of one that an abort has ended. */
int fake_nccl_leave(struct fake_comm *comm, int result);

/* ---- fake_nccl_data.c: moving data ----------------------------------------------- */

struct fake_transfer {
    bool sends, begun;
    int peer;
    char *at;
    size_t bytes, done;
    struct fake_head head;
};

/* A group of transfers, then perhaps a reduction of the received data. */
struct fake_work {
    struct fake_comm *comm;
    bool ticketed, captured, hangs;
    uint64_t ticket;
    struct fake_transfer *transfers; /* owned */
    int count, capacity;
    char *staged; /* [size][count]; owned; NULL: no reduction */
    void *out;
    size_t elements;
    symm_reduce_fn reduce;
    size_t element;
};

void fake_work_add(struct fake_work *work, struct fake_transfer transfer);
void fake_work_run(void *work); /* frees it unless it was captured */
void fake_work_free(struct fake_work *work);
/* ---- fake_nccl_calls.c: helpers of all calls -------------------------------------- */

/* "fake NCCL: ...", then abort. */
_Noreturn void fake_nccl_die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void fake_nccl_count(const char *symbol);
bool fake_nccl_is_capturing(void *stream);
/* Whether the variable names this function for this rank. */
bool fake_nccl_named(const char *variable, const char *symbol, int rank);
/* Does not return, if FAKE_NCCL_STUCK names this function for this rank, before *until is true;
 * NULL: never. */
void fake_nccl_hold(const char *symbol, int rank, const atomic_bool *until);
bool fake_nccl_has_device(void);
void *fake_nccl_driver(const char *name); /* a function of the fake driver */
/* fake_nccl_memory.c: as NCCL sees it: memory that is registered, or, in a capture, that lies
 * within one allocation. */
bool fake_nccl_is_registered(const struct fake_comm *comm, const char *at, size_t bytes,
                             bool captured);
/* fake_nccl_kernel.c: instead of a host function. */
void fake_nccl_launch_kernel(void *stream, struct fake_work *work, const char *when);
/* Queues the work on the stream; SYMM_NCCL_SUCCESS or SYMM_NCCL_IN_PROGRESS. */
int fake_nccl_launch(void *stream, struct fake_work *work);

#endif
