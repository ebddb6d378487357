/* SPDX-License-Identifier: MIT */
/*
 * mpi.h - what the files of the MPI engine share. It is a plug-in (libsymm_mpi.so):
 * it uses nothing of the library but what it is compiled with.
 *
 * MPI belongs to the process, and so does what says how it may be called: below
 * MPI_THREAD_MULTIPLE one lock for all engines of the process guards every call. No call
 * waits while it holds it: operations are begun, and asked for with MPI_Test until they are
 * complete, the deadline has passed, or waiting has lost its sense.
 *
 * An operation that does not complete cannot be cancelled in MPI, which may go on reading
 * and writing its memory. So MPI never gets the caller's: all goes through buffers of this
 * engine, in pieces; those of an operation that was left are never freed, and its
 * communicator is never used again.
 */
#ifndef SYMM_ENGINE_MPI_H
#define SYMM_ENGINE_MPI_H

#include <mpi.h>
#include <pthread.h>

#include "engine/engine.h"

#define SYMM_MPI_RANKS 64 /* of one communicator */

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

/* This plug-in's symm_last_error, cut to its room. Returns status. */
symm_status symm__mpi_fail(symm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with MPI's own words for the code. */
symm_status symm__mpi_fail_code(int code, const char *what);
/* May this thread call MPI? */
symm_status symm__mpi_enter_check(void) SYMM_MUST_CHECK;
/* Around every call of MPI. */
void symm__mpi_lock(void);
void symm__mpi_unlock(void);

/* A wait: between two looks it lets others run. */
struct symm_mpi_wait {
    const struct symm_engine_wait *given;
    struct symm_engine_comm *comm; /* NULL: none is made yet */
    const char *what;              /* "all_reduce" */
    int peer;                      /* whom it is for, in the world; -1: all */
    double began;
};
struct symm_mpi_wait symm__mpi_wait(const struct symm_engine_wait *given,
                                    struct symm_engine_comm *comm, const char *what,
                                    int peer);
/* SYMM_OK: look again. Else the wait has ended, and why. */
symm_status symm__mpi_pause(const struct symm_mpi_wait *wait) SYMM_MUST_CHECK;
/* Until all requests are complete. On error they may still be under way. */
symm_status symm__mpi_complete(const struct symm_mpi_wait *wait, MPI_Request *requests,
                               int count) SYMM_MUST_CHECK;

/* mpi_run.c */
const char *symm__mpi_objection(const struct symm_engine *engine,
                                const struct symm_engine_request *request);
symm_status symm__mpi_run(struct symm_engine_comm *comm,
                          const struct symm_engine_request *requests, int count,
                          void *stream, const struct symm_engine_wait *wait);

#endif
