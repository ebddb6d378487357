/* SPDX-License-Identifier: MIT */
/*
 * work.h - what the files of handles share: work.c makes and queries handles, work_pool.c has
 * the pools of their events and words, work_notify.c reports ends that no thread polls for.
 *
 * launcher->pool guards lists and fields; it is never held while a failure is explained.
 * A handle outlives its team. The team's end completes it, takes its event and team away, and at
 * last sets `launcher` to NULL: then its owner alone has it, and frees it without a lock. Another
 * thread may be inside a function of the handle meanwhile: it uses event and team between
 * hold and drop of work.c, and looks at `launcher` again when it has taken a lock.
 */
#ifndef SYMM_CUDA_WORK_H
#define SYMM_CUDA_WORK_H

#include <stdlib.h>

#include "cuda/launcher.h"

struct symm_cuda_work {
    struct symm_work head;
    /* NULL: complete, without event and word. Atomic. */
    struct symm_cuda_launcher *launcher;
    symm_team *team;
    CUstream stream;
    struct symm_cuda_work *next;  /* on launcher->works or launcher->released */
    struct symm_cuda_work **back; /* the pointer to this handle in the list */
    CUevent event;
    uint64_t number; /* of the launcher's: later calls have greater ones */
    int result;      /* index of its word; -1: none */
    bool captured, released;
    struct symm_notification *notifications; /* not empty: awaited; owned */
    struct symm_cuda_work *awaited_next;
    bool done; /* atomic; status and error are written before */
    symm_status status;
    char error[SYMM_ERROR_BYTES];
};

static inline struct symm_cuda_work *symm__cuda_work_of(symm_work *work)
{
    return (struct symm_cuda_work *)work; /* its first member */
}

/* Frees a handle that no list has. */
static inline void symm__cuda_work_free(struct symm_cuda_work *work)
{
    symm__life_drop(work->head.life);
    free(work);
}

/* ---- work_pool.c: all but refill with the pool's lock ------------------------------------ */

/* If a pool is empty: frees what released handles no longer need, or makes events. */
void symm__cuda_pool_refill(struct symm_cuda_launcher *launcher, bool own_result);
/* The index of a word that is 0; -1: none is free. */
int symm__cuda_result_acquire(struct symm_cuda_launcher *launcher);
/* The list of handles that have an owner, and that of released ones, which is in the order of
 * their release. */
void symm__cuda_work_link(struct symm_cuda_launcher *launcher,
                          struct symm_cuda_work *work);
void symm__cuda_work_unlink(struct symm_cuda_launcher *launcher,
                            struct symm_cuda_work *work);
void symm__cuda_work_link_released(struct symm_cuda_launcher *launcher,
                                   struct symm_cuda_work *work);
/* Returns the handle's event and word to the pools. */
void symm__cuda_work_return(struct symm_cuda_work *work);
/* Afterwards: leaves the handle to its owner, or frees it if that has released it. */
void symm__cuda_work_leave(struct symm_cuda_work *work);
/* Both. */
void symm__cuda_work_detach(struct symm_cuda_work *work);

/* ---- work.c ------------------------------------------------------------------------ */

/* Where the handle belongs; NULL: to its owner alone. */
struct symm_cuda_launcher *symm__cuda_work_launcher(const struct symm_cuda_work *work);
/* Polls once; *done is valid on error, too. */
symm_status symm__cuda_work_poll(struct symm_cuda_work *work, bool *done);
/* What the kernel has written of a failure; 0: nothing, or the handle has no word. */
uint32_t symm__cuda_work_result(const struct symm_cuda_work *work);
/* With the pool's lock, or before any other thread has the handle. */
void symm__cuda_work_conclude(struct symm_cuda_work *work, symm_status status);
/* The error of a call on a handle that was made during a capture. */
symm_status symm__cuda_work_refuse_captured(const char *what);

#endif
