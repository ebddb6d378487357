/* SPDX-License-Identifier: MIT */
/*
 * plan_private.h - what the files that make, write and read plans share.
 */
#ifndef SYMM_PLANNER_PLAN_PRIVATE_H
#define SYMM_PLANNER_PLAN_PRIVATE_H

#include "cost.h"
#include "lifetime.h"
#include "pool.h"
#include "symm/plan.h"

struct plan_private {
    symm_plan plan; /* first: the caller's pointer is ours */
    struct pool pool;
    /* A plan that was read hashes as its document, unknown members included, while the
     * struct is as it was then. */
    bool was_read;
    uint64_t document_hash, struct_hash;
};

/* A way to run the program: algorithms, barriers. */
struct choice {
    const char *name;
    symm_plan_algorithm *algorithms; /* by op */
    bool *entry, *exit;              /* by op */
    int barriers;
    double microseconds;
    int64_t arena;    /* of the placement found so far */
    int64_t *offsets; /* by buffer */
    bool cut_short;   /* the search for them ended by the clock */
};

/*
 * Finds the ways that are worth comparing, places each fast, and says which is best. choices
 * and what they hold are in pool.
 */
symm_status symm__plan_choose(struct pool *pool, struct order *order,
                              const symm_plan_options *options, struct choice **choices,
                              int *count, int *best) SYMM_MUST_CHECK;

/* Makes order and lives (new) those of the choice, and its placement as good as options
 * allow. */
symm_status symm__plan_settle(struct pool *pool, struct order *order,
                              const symm_plan_options *options, struct choice *choice,
                              struct lifetimes *lives) SYMM_MUST_CHECK;

/* Fewer pairs of buffers that share bytes, in the same arena. */
symm_status symm__plan_spread(const struct lifetimes *lives, int64_t arena,
                              int64_t *offsets) SYMM_MUST_CHECK;

/* order and lives belong to the choice; fills plan's certificate. */
symm_status symm__plan_certify(struct plan_private *plan,
                               const struct lifetimes *lives) SYMM_MUST_CHECK;

/* order and lives belong to the choice; says of plan's ops which buffers they free. */
symm_status symm__plan_frees(struct plan_private *plan, struct order *order,
                             const struct lifetimes *lives) SYMM_MUST_CHECK;

/* An empty plan; NULL: memory is exhausted. */
struct plan_private *symm__plan_new(void);
/* FNV-1a 64 of the canonical JSON of what the struct says. */
uint64_t symm__plan_struct_hash(const symm_plan *plan);

#endif
