/* SPDX-License-Identifier: MIT */
/*
 * plan_private.h - shared by the files that make, write and read plans.
 */
#ifndef SYMM_PLANNER_MAKE_PLAN_PRIVATE_H
#define SYMM_PLANNER_MAKE_PLAN_PRIVATE_H

#include "model/cost.h"
#include "order/lifetime.h"
#include "pack/adjacent.h"
#include "symm/plan.h"
#include "util/pool.h"

struct plan_private {
    symm_plan plan; /* first member: the caller's pointer points here */
    struct pool pool;
};

/* A way to run the program: algorithms, barriers. */
struct choice {
    const char *name;
    symm_algorithm *algorithms; /* by op */
    bool *entry, *exit;         /* by op */
    int barriers;
    double microseconds;
    int64_t arena;    /* of the placement found so far */
    int64_t *offsets; /* by buffer */
    bool cut_short;   /* the search for them ended by the clock */
};

/*
 * Fills the choices that are worth comparing, places each by the fixed orders, and sets *best
 * to the index of the best. choices and their lists are in pool.
 */
symm_status symm__plan_choose(struct pool *pool, struct order *order,
                              const symm_plan_options *options, struct choice **choices,
                              int *count, int *best) SYMM_MUST_CHECK;

/* Sets order and lives (new) to those of the choice, and places its buffers as well as the
 * options allow. */
symm_status symm__plan_complete(struct pool *pool, struct order *order,
                                const symm_plan_options *options, struct choice *choice,
                                struct lifetimes *lives) SYMM_MUST_CHECK;

/* Fills the choice's lists by op and by buffer. */
symm_status symm__plan_new_choice(struct pool *pool, const symm_program *program,
                                  const char *name,
                                  struct choice *choice) SYMM_MUST_CHECK;

/* Runs the order with the choice's barriers and adds those that the program needs. */
symm_status symm__plan_run(struct order *order, const struct symm_costs *costs,
                           struct choice *choice) SYMM_MUST_CHECK;

/* again.c: fills the choice that keeps algorithms, barriers and offsets of options->previous;
 * sets order and lives (new) to those of the choice. */
symm_status symm__plan_again(struct pool *pool, struct order *order,
                             const symm_plan_options *options, struct choice *choice,
                             struct lifetimes *lives) SYMM_MUST_CHECK;

/*
 * Drops barriers of the choice that neither the program nor its placement needs, as long as
 * that is cheap; order and lives are then those of the fewer barriers. lives->clique too.
 */
symm_status symm__plan_prune(struct order *order, struct choice *choice,
                             struct lifetimes *lives) SYMM_MUST_CHECK;

/* The pairs of `placed` buffers (NULL: of all) that a certificate of these offsets must prove.
 * NULL: no memory. free() it. */
struct adjacent *symm__plan_pairs(const struct lifetimes *lives, const int64_t *offsets,
                                  const bool *placed, size_t *count);

/* Fills the plan's certificate and its buffers' `after`; lives belong to the choice. */
symm_status symm__plan_certify(struct plan_private *plan, const struct lifetimes *lives,
                               const int64_t *offsets) SYMM_MUST_CHECK;

/* Fills `frees` of the plan's ops; order and lives belong to the choice. */
symm_status symm__plan_frees(struct plan_private *plan, struct order *order,
                             const struct lifetimes *lives) SYMM_MUST_CHECK;

/* plan_write.c: the plan_hash of a plan with this run_hash. */
uint64_t symm__plan_hash_over(const symm_plan *plan, uint64_t run);

/* An empty plan; NULL: memory is exhausted. */
struct plan_private *symm__plan_new(void);

#endif
