/* SPDX-License-Identifier: MIT */
/*
 * team_plan.h - a team's plan at run time: where its buffers lie, what its calls do.
 *
 * symm_team_load_plan copies it and reserves its arena in the team's heap. From then on a call
 * site of the plan gets its place in the arena. The plan's algorithms and barriers are
 * obeyed once a rendezvous has found the same plan on all ranks, never before: a rank that
 * leaves out a barrier which another one makes would be out of step.
 * A call finds its op by the name of its site, on the team of the plan and on every team of
 * some of its ranks. With SYMM_CHECK=plan calls must come in the plan's order, and what an
 * op frees is filled with bytes that are NaN in every floating type.
 */
#ifndef SYMM_MEMORY_TEAM_PLAN_H
#define SYMM_MEMORY_TEAM_PLAN_H

#include "core/context.h"
#include "symm/plan.h"

#define SYMM_PLAN_FREED 0xff /* what freed bytes are filled with */

/* An op of the plan as calls find it. */
struct symm_plan_site {
    struct symm_team_plan *plan;
    const symm_plan_op *op;
    int index, next; /* its place in the plan's ops; the op after it on its channel */
};

struct symm_team_plan {
    symm_team *team;
    symm_plan *plan;              /* owned */
    char *path;                   /* owned */
    uint64_t hash;                /* run_hash of what it holds */
    size_t arena;                 /* its offset in the heap */
    bool agreed;                  /* atomic: a rendezvous has found it on all ranks */
    bool checks;                  /* SYMM_CHECK=plan */
    struct symm_plan_site *sites; /* in order of their names; owned */
    const symm_plan_buffer **ids; /* in order of alloc_id; owned */
    pthread_mutex_t lock;         /* guards turn */
    int turn
        [SYMM_PROGRAM_MAX_STREAMS]; /* by channel: the op that comes next; -1: none */
};

/* plan_load.c */
void symm__plan_close(symm_team *team);
/* symm_team_load_plan of a file, without a copy. */
symm_status symm__plan_load(symm_team *team, const char *path) SYMM_MUST_CHECK;
/* The planned place of a call site; NULL: the plan does not have it, or there is none. */
const symm_plan_buffer *symm__plan_buffer(const symm_team *team, uint64_t alloc_id);

/* plan_site.c */
/* The op of this site in a plan that holds for the team; NULL: none. */
const struct symm_plan_site *symm__plan_find(const symm_team *team, const char *site);
/* Is it the op's turn? SYMM_ERR_INVALID names the op whose turn it is. */
symm_status symm__plan_expect(const struct symm_plan_site *site) SYMM_MUST_CHECK;
/* SYMM_ERR_INVALID: the call's input is more than the op's bound. */
symm_status symm__plan_too_large(const struct symm_plan_site *site, const char *what,
                                 size_t bytes) SYMM_MUST_CHECK;
/* The op was issued: its turn is over. */
void symm__plan_advance(const struct symm_plan_site *site);
/* With SYMM_CHECK=plan: fails for a call that is not the plan's on memory of its arena, except on
 * buffers that are always live on bytes of their own. `site` may be NULL. */
symm_status symm__plan_refuse(const symm_team *team, const char *what, const char *site,
                              const void *ptr) SYMM_MUST_CHECK;
/* The bytes that op index `i` of those it frees had; false: there is no i-th. */
bool symm__plan_freed(const struct symm_plan_site *site, int i, void **at,
                      size_t *bytes);
/* Fills them all, on the host. */
void symm__plan_fill(const struct symm_plan_site *site);

#endif
