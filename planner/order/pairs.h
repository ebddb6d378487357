/* SPDX-License-Identifier: MIT */
/*
 * pairs.h - classes of pairs of ranks: all pairs of a class have the same clock of one rank
 * on the other, so clocks are kept by class and not by pair.
 *
 * A pair is (the rank that knows, the rank that is known of). Guarantees: two pairs of one
 * class stay equal under every barrier, push and signal of the program, since for each
 * relation between ranks that the program uses the classes of (m, s), for all m that stand
 * in the relation to r, depend on the class of (r, s) only. A world group alone has two
 * classes, a rank itself and the others, whatever the number of ranks.
 */
#ifndef SYMM_PLANNER_ORDER_PAIRS_H
#define SYMM_PLANNER_ORDER_PAIRS_H

#include "model/algorithm.h"

/* For a rank that owns a copy of a buffer: the ranks that touch this copy. */
struct relation {
    enum actor who;
    int partition; /* 0 for ACTOR_OWNER */
    int parameter; /* the root, or the shift of a put; else 0 */
};

/* A list of classes; borrowed. */
struct class_list {
    const int *list;
    int count;
};

struct pairs {
    const symm_program *program;
    struct pool *pool;          /* of the lists below */
    struct relation *relations; /* [0] is ACTOR_OWNER; those that the program can use */
    int relation_count;
    int count;                /* of classes */
    int *class_of;            /* [rank x world + rank known of] */
    struct class_list self;   /* the classes of (r, r) */
    struct class_list *steps; /* [relation x count + class]: of (m, s) for m of r */
    /* [actors x relation_count + known]: the classes of (a, s) over all owners, a in
     * relation `actors` and s in relation `known` to the owner */
    struct class_list *meets;
    int *list_of, *place_of; /* [group x world + rank] */
};

symm_status symm__pairs_init(struct pairs *pairs, struct pool *pool,
                             const symm_program *program) SYMM_MUST_CHECK;

/* The index of a relation, which is one that an op of the program can have; or -1. */
int symm__pairs_relation(const struct pairs *pairs, enum actor who, int partition,
                         int parameter);

#endif
