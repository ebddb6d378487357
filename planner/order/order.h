/* SPDX-License-Identifier: MIT */
/*
 * order.h - what happens before what in a program under given algorithms and barriers.
 *
 * Guarantees: an order that is claimed holds in every execution; nothing is claimed across
 * more than one period, and none is needed (docs/planner.md).
 *
 * A lane is a sequence of ops that end one after the other on a rank: a stream, or the even
 * and the odd ops of a stream in a program with early starts. A chain is a lane seen from the
 * owner of a copy: (relation, lane) stands for that lane on every rank in the relation to the
 * owner (pairs.h). A clock holds one moment for each chain: all that is up to that
 * moment on the chain's lane, on all these ranks, is over. So "all accesses to X are over
 * before Y's first write" is one comparison for each chain, whatever the number of ranks.
 */
#ifndef SYMM_PLANNER_ORDER_ORDER_H
#define SYMM_PLANNER_ORDER_ORDER_H

#include "order/pairs.h"

/* The last accesses to a copy of a buffer: on this chain up to this moment. */
struct last {
    int chain;
    uint32_t at; /* a moment, see symm__order_moment */
};

struct chain {
    int relation, lane;
};

struct order {
    const symm_program *program;
    const symm_algorithm *algorithms; /* by op; put for puts */
    bool *entry, *exit;               /* by op: barriers that are set */
    /* Fixed by the program: */
    struct pool pool;
    struct pairs pairs;
    int *rank_of_op;   /* place of an op in program->order */
    int *seat, *seats; /* of an op in its stream; ops of a stream; no depends */
    int *streams_used, stream_count; /* dense numbers of streams that have ops */
    int halves;                      /* 2 if any op starts early, else 1 */
    int lanes;                       /* stream_count x halves */
    int *depends_on; /* by op: the op whose end a depend waits for, or -1 */
    bool *kept;      /* by op: its clocks are kept for a later depend */
    bool *waited;    /* by op: a put that some op waits for */
    /* Fixed by the algorithms: */
    struct pool access_pool;
    struct access *accesses;
    int *access_start;        /* [op + 1] */
    int *touch, *touch_start; /* [buffer + 1]: its accesses in the order of issue */
    int *seat_of_access;      /* where an access stands in its buffer's touch list */
    int *first_touch;         /* by buffer: index in touch of the access that renews it, or -1 */
    int *first_write;         /* the same, or else its first write; -1: none */
    struct chain *chains;     /* those with accesses, and the owner's on every lane */
    int chain_count;
    int *chain_of; /* [relation x lanes + lane]: index in chains, or -1 */
    /* Found by a run: [(buffer x 2 + period) x chain_count]: clock before first_write. */
    uint32_t *before_first;
    bool keeps_ends; /* the caller's wish, before symm__order_set */
    /* with keeps_ends: those of the last run (symm__order_ends); else NULL */
    uint32_t *ends;
};

/* Borrows program (finished), which must outlive it. */
symm_status symm__order_init(struct order *order,
                             const symm_program *program) SYMM_MUST_CHECK;
void symm__order_finish(struct order *order);
/* Clears entry and exit, but for the barriers that symm__order_require sets. */
symm_status symm__order_set(struct order *order,
                            const symm_algorithm *algorithms) SYMM_MUST_CHECK;
/* Sets the exit barriers that are a part of their ops; after the caller has written exit. */
void symm__order_require(struct order *order);
/*
 * Sets the barriers that the program needs by itself, whatever memory its buffers share, in
 * addition to those that are set; then fills before_first. SYMM_ERR_INVALID: two accesses
 * to one buffer that no barrier orders.
 */
symm_status symm__order_run(struct order *order) SYMM_MUST_CHECK;
/* The same with the barriers as they are; *enough: the program needs no other. */
symm_status symm__order_try(struct order *order, bool *enough) SYMM_MUST_CHECK;
/*
 * After a run: ends[(op x 2 + period) x chain_count] is the owner's clock at the end of each
 * put and collective. Rows of other ops are left alone.
 */
symm_status symm__order_ends(struct order *order, uint32_t *ends) SYMM_MUST_CHECK;

uint32_t symm__order_moment(const struct order *order, int op, int period,
                            enum point point);
int symm__order_lane(const struct order *order, int op, int period);
/* Clock before first_write of a buffer, that of the worst actor in each chain. */
const uint32_t *symm__order_first(const struct order *order, int buffer, int period);

#endif
