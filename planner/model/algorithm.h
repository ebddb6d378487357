/* SPDX-License-Identifier: MIT */
/*
 * algorithm.h - what each algorithm touches, which order it makes by itself, and which entry
 * and exit barriers it may have.
 */
#ifndef SYMM_PLANNER_MODEL_ALGORITHM_H
#define SYMM_PLANNER_MODEL_ALGORITHM_H

#include <stdint.h>

#include "symm/plan.h"
#include "util/pool.h"

/* Moments within one op on one rank, in this order. Those an op lacks coincide. */
enum point {
    POINT_START,  /* it begins: an entry barrier's arrival */
    POINT_PASS,   /* past the entry barrier */
    POINT_READ,   /* two_shot_pull: its reads of peers are over */
    POINT_MIDDLE, /* two_shot_pull: past the barrier that is built in */
    POINT_BODY,   /* its accesses are over: an exit barrier's arrival */
    POINT_END,
    /* Of an all_reduce_norm, after the exit barrier of its sum: what follows the sum begins. No
     * moment: accesses that begin there end at POINT_END. */
    POINT_REST
};

/* Which ranks touch the copy of a buffer that a rank owns. */
enum actor {
    ACTOR_OWNER,
    ACTOR_PARTITION, /* every rank of the owner's list */
    ACTOR_ROOT_PARTITION, /* every rank of the list if the owner is its root; else the owner */
    ACTOR_ROOT,           /* the root of the owner's list */
    ACTOR_SENDER          /* the rank whose put goes to the owner */
};

struct access {
    int op, buffer;
    bool writes;
    /* writes, without reading, all bytes that are ever read: a life begins */
    bool renews;
    enum actor who;
    int relation;    /* `who` as pairs.h numbers it; filled by order/order.c */
    int prior_write; /* place in its buffer's touch list; by order/order.c; see there */
    enum point from, to; /* after `from` is reached, and over when `to` is */
};

/* What orders the ranks of a list beside the plan's barriers. */
struct traits {
    bool entry, exit; /* the plan may set these barriers */
    bool must_exit;   /* the exit barrier is always set: the op itself relies on it */
    bool push;        /* each end is after every start (broadcast: the root's) */
    bool middle;      /* each end is after every POINT_READ */
};

struct traits symm__op_traits(const symm_program_op *op, symm_algorithm algorithm);

/* Why this algorithm cannot do this collective; NULL: it can. */
const char *symm__algorithm_objection(const symm_program_op *op,
                                      symm_algorithm algorithm);

/* How many accesses an op has at most. */
size_t symm__op_most_accesses(const symm_program_op *op);
/* One access for each buffer that an op touches, of an all_reduce_norm one for each array and one
 * for the sums; the count. */
int symm__op_accesses(const symm_program *program, int index, symm_algorithm algorithm,
                      struct access *accesses);

#endif
