/* SPDX-License-Identifier: MIT */
/*
 * mpi.h - what the files of the MPI engine share. The engine is a plug-in (libsymm_mpi.so): it
 * uses only the parts of the library that are compiled into it.
 *
 * MPI's state belongs to the process. Below MPI_THREAD_MULTIPLE one lock of the process, shared
 * by all engines, guards the calls of MPI. The exceptions are the calls that start and finalize
 * MPI or query its state (mpi.c), and those that look up an error code. No call waits with the
 * lock held for a rank that may not come: operations are begun and then polled by MPI_Test,
 * until they are complete, the deadline has passed, or the wait is stopped.
 *
 * MPI cannot cancel an operation that does not complete, and may go on reading and writing its
 * memory. So the engine never passes the caller's memory to MPI: all data go through buffers of
 * the engine, in pieces. If an operation does not complete, its buffers are never freed, and its
 * communicator is never used again.
 */
#ifndef SYMM_ENGINE_MPI_H
#define SYMM_ENGINE_MPI_H

#include <mpi.h>
#include <pthread.h>

#include "engine/engine.h"

struct symm_engine {
    int rank, size;      /* in MPI_COMM_WORLD */
    MPI_Comm world;      /* a duplicate of it; complete once `duplicated` is done */
    MPI_Request pending; /* of the duplication */
    bool duplicated;
    int tag_most; /* the largest tag that MPI allows */
    uint32_t ids; /* made so far */
    char version[96];
};

struct symm_engine_comm {
    struct symm_engine *engine;
    MPI_Comm comm;
    int rank, size;
    int *world_rank; /* [size]; owned */
    pthread_mutex_t lock;
    uint32_t *sent, *received; /* [size]: messages so far; guarded by `lock`; owned */
    int32_t aborted, broken;   /* atomic */
};

/* mpi.c */

/* Sets this plug-in's symm_last_error; longer text is cut. Returns status. */
symm_status symm__mpi_fail(symm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, with MPI's text for the code. */
symm_status symm__mpi_fail_code(int code, const char *what);
/* Whether this thread may call MPI. */
symm_status symm__mpi_enter_check(void) SYMM_MUST_CHECK;
/* Around calls of MPI, see above; nothing with MPI_THREAD_MULTIPLE. */
void symm__mpi_lock(void);
void symm__mpi_unlock(void);

/* A wait; symm__mpi_pause yields or sleeps between two polls. */
struct symm_mpi_wait {
    const struct symm_engine_wait *given;
    struct symm_engine_comm *comm; /* NULL: none is made yet */
    const char *what;              /* "all_reduce" */
    int peer;                      /* the world rank that is awaited; -1: all */
    double began;
};
struct symm_mpi_wait symm__mpi_wait(const struct symm_engine_wait *given,
                                    struct symm_engine_comm *comm, const char *what,
                                    int peer);
/* SYMM_OK: poll again. Else the reason why the wait has ended. */
symm_status symm__mpi_pause(const struct symm_mpi_wait *wait) SYMM_MUST_CHECK;
/* Waits until all requests are complete. On error some may still be under way. */
symm_status symm__mpi_complete(const struct symm_mpi_wait *wait, MPI_Request *requests,
                               int count) SYMM_MUST_CHECK;

/* mpi_run.c */
const char *symm__mpi_objection(const struct symm_engine *engine,
                                const struct symm_engine_request *request);
symm_status symm__mpi_run(struct symm_engine_comm *comm,
                          const struct symm_engine_request *requests, int count,
                          void *stream, const struct symm_engine_wait *wait);

#endif
