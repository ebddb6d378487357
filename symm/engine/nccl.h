/* SPDX-License-Identifier: MIT */
/*
 * nccl.h - what the files of the NCCL engine share.
 */
#ifndef SYMM_ENGINE_NCCL_H
#define SYMM_ENGINE_NCCL_H

#include <pthread.h>

#include "engine/engine.h"
#include "engine/nccl_abi.h"

struct symm_engine {
    struct symm_nccl nccl;
};

struct symm_engine_comm {
    const struct symm_nccl *nccl;
    void *comm; /* ncclComm_t */
    int rank, size;
    int world_rank[SYMM_MAX_LOCAL_RANKS];
    pthread_mutex_t lock;
    bool aborting; /* atomic: nothing may be called */
};

/* nccl.c */
/* NCCL's answer as a status; "in progress" is none to complain of. */
symm_status symm__nccl_check(const struct symm_nccl *nccl, void *comm, int result,
                             const char *what) SYMM_MUST_CHECK;
/* And waits while it is in progress; with the lock. */
symm_status symm__nccl_complete(struct symm_engine_comm *comm, int result,
                                const struct symm_engine_wait *wait,
                                const char *what) SYMM_MUST_CHECK;

/* nccl_call.c */
const char *symm__nccl_objection(const struct symm_engine *engine,
                                 const struct symm_engine_request *request);
const char *symm__nccl_deviation(const struct symm_engine *engine,
                                 const struct symm_engine_request *request);
symm_status symm__nccl_run(struct symm_engine_comm *comm,
                           const struct symm_engine_request *requests, int count,
                           void *stream, const struct symm_engine_wait *wait);

#endif
