/* SPDX-License-Identifier: MIT */
/*
 * select.h - which algorithm a call takes: a pure function of what all ranks share.
 *
 * Every rank decides by itself, so it may read only what is equal on all ranks. Where a rank's
 * pointers lie is assumed equal; the choice and the offsets it depends on are part of the
 * call-site tag, so ranks that differ see a mismatch, never a wrong sum.
 */
#ifndef SYMM_SELECT_SELECT_H
#define SYMM_SELECT_SELECT_H

#include "kernels/cuda_launch.h"
#include "kernels/launch.h"
#include "select/cost.h"

struct symm_select_query {
    enum symm_kind kind;
    size_t bytes; /* of one rank's block, as the call counts */
    bool in_symmetric, out_symmetric;
    bool overlap;       /* in and out share bytes: in place */
    const char *forced; /* symm_call.algorithm */
    uint32_t numerics;
    symm_dtype dtype;
    symm_op op;
    int size;                /* of the team */
    const symm_costs *costs; /* NULL: none for this machine */
    /* The team has an engine (engine.h); why it cannot do this, what its result differs in. */
    bool engine;
    const char *engine_objection, *engine_deviation;
    /* A device backend's: */
    bool cuda; /* false: the members below are not used */
    /* It lies in symmetric memory that all members have bound to multicast. */
    bool in_multicast, out_multicast;
    int processors; /* multiprocessors, the fewest of all ranks' devices */
    bool exclusive; /* nothing else uses them (SYMM_EXCLUSIVE) */
    bool clusters;  /* they have clusters of blocks */
    struct symm_cuda_scratch scratch; /* of the call's channel */
    /* all_reduce_norm: */
    uint64_t rows;
    uint32_t hidden;
    /* every partial sum is rounded: host kernels do, and fused ones on CUDA */
    bool partial;
};

struct symm_selection {
    enum symm_algorithm algorithm;
    const char *reason; /* one clause, static */
    /* slower than with symmetric memory, a kernel or the plan's algorithm */
    bool fallback;
};

/* Estimated microseconds of the chosen algorithm and of the runner-up; 0 = unknown or none. */
struct symm_estimate {
    bool measured; /* by a table, else by the model */
    double us, next_us;
    enum symm_algorithm next;
};

/* symm_call.numerics; SYMM_ERR_INVALID for a number that none of SYMM_NUMERICS_... has. */
symm_status symm__numerics_check(uint32_t numerics) SYMM_MUST_CHECK;
/*
 * The cheapest by the query's table, among those that can do the call and are in it; by
 * thresholds where the table has none of them. SYMM_ERR_INVALID for a forced algorithm that
 * does not exist or would be wrong here.
 */
symm_status symm__choose(const struct symm_select_query *query,
                         struct symm_selection *answer) SYMM_MUST_CHECK;

/* The estimated cost of a choice that was not forced: for symm_explain. */
struct symm_estimate symm__estimate(const struct symm_select_query *query,
                                    enum symm_algorithm chosen);

/*
 * The call is a plan's op: its algorithm, or one that touches no more of the ranks' memory
 * where this backend or this call cannot have it. *barriers: those that the plan keeps, and
 * what the plan's algorithm would have ordered by itself; those that the answer's kernel
 * does not have are set in *extra. `planned` is one of a collective. by_size: the
 * plan is for calls of up to a size; then the algorithm that the library would choose for this
 * call's size runs, if it touches no more than the plan's.
 */
symm_status symm__choose_planned(const struct symm_select_query *query,
                                 enum symm_algorithm planned, bool by_size,
                                 struct symm_selection *answer, uint32_t *barriers,
                                 uint32_t *extra) SYMM_MUST_CHECK;

/*
 * The same for an all_reduce_norm. *part: the rows of one launch of a fused kernel, which sums and
 * does the rest; 0: there is none, the answer is of an all_reduce, and the rest follows it.
 * SYMM_ERR_UNSUPPORTED: no kernel rounds partial sums.
 */
symm_status symm__choose_norm(const struct symm_select_query *query,
                              struct symm_selection *answer,
                              uint64_t *part) SYMM_MUST_CHECK;
symm_status symm__choose_planned_norm(const struct symm_select_query *query,
                                      enum symm_algorithm planned, bool by_size,
                                      struct symm_selection *answer, uint64_t *part,
                                      uint32_t *barriers,
                                      uint32_t *extra) SYMM_MUST_CHECK;

/* engine.c */
/* Why the engine cannot do this call; NULL: it can. */
const char *symm__engine_objection(const struct symm_select_query *query);
/* The answer, or the engine where the engine is better or alone can do the call. */
struct symm_selection symm__engine_or(const struct symm_select_query *query,
                                      struct symm_selection answer);

/* Why this memory cannot be used by this algorithm, on either backend; NULL: it can. */
const char *symm__memory_objection(const struct symm_select_query *query,
                                   enum symm_algorithm algorithm);

/* cuda.c */
/*
 * Why this algorithm cannot do this call right on CUDA; NULL: it can. Then *delay, unless `delay` is
 * NULL, are the microseconds that it takes longer than on a channel with the most scratch, which is
 * what costs and thresholds are for: it fills its scratch more often. An estimate.
 */
const char *symm__cuda_objection(const struct symm_select_query *query,
                                 enum symm_algorithm algorithm, double *delay);
struct symm_selection symm__cuda_choose(const struct symm_select_query *query);
/* A fused kernel for an all_reduce_norm, by the forced algorithm or the best; false: none. */
bool symm__cuda_choose_norm(const struct symm_select_query *query,
                            struct symm_selection *answer, uint64_t *part);
/* Whether the channel's scratch is enough for launches of `part` rows to be quicker than an
 * all_reduce with a norm's kernel behind it. */
bool symm__cuda_norm_fits(const struct symm_select_query *query, uint64_t part);
/* The barriers that a kernel has, of those that a plan can leave out: what else a plan
 * keeps is a call of its own. */
uint32_t symm__cuda_barriers(enum symm_kind kind, int size,
                             enum symm_algorithm algorithm);
/* The query as the table of kernels takes it. */
struct symm_cuda_query symm__cuda_ask(const struct symm_select_query *query,
                                      enum symm_algorithm algorithm);

#endif
