/* SPDX-License-Identifier: MIT */
/*
 * plan_case.h - programs and plans for tests: made at random, copied, and changed.
 *
 * A plan here belongs to the test, which may change anything in it. Everything is
 * deterministic from a seed.
 */
#ifndef SYMM_TESTS_PLAN_CASE_H
#define SYMM_TESTS_PLAN_CASE_H

#include "model/pool.h"
#include "symm/plan.h"

struct plan_case {
    symm_plan plan;              /* its lists may be changed; certificate_count too */
    const symm_program *program; /* borrowed */
    struct pool pool;            /* of a proof that was made here */
};

struct plan_case_limits {
    int max_world, max_streams, max_buffers, max_ops;
    bool early; /* some ops have early_start */
};

/* A finished program of a few ops on a few buffers; not always one that can be planned. */
symm_program *plan_case_program(uint64_t *random,
                                const struct plan_case_limits *limits);

/* What to change in a copy of a program; plan_case_no_edit changes nothing. */
struct plan_case_edit {
    int drop;   /* op left out; -1: none */
    int shrink; /* op whose group becomes `partition` */
    int partition;
    int early;    /* op whose early_start is turned over */
    int new_loop; /* 0 or 1; -1: as it was */
    int move;     /* op that goes to `stream`; -1: none */
    int stream;
    int insert; /* op before which a buffer is added, written and reduced; -1: none */
    int grow;   /* buffer that gets twice its bytes; -1: none */
};
extern const struct plan_case_edit plan_case_no_edit;
/* NULL if the library refuses the changed program. */
symm_program *plan_case_edit(const symm_program *program,
                             const struct plan_case_edit *edit);

/* The planner's plan, by its own choice of algorithms or with one forced at random. */
symm_status plan_case_make(symm_program *program, uint64_t *random, symm_plan **plan);
/* Each buffer apart, all barriers, an algorithm that any collective can have. */
struct plan_case *plan_case_dedicated(const symm_program *program);
/* Offsets, algorithms and barriers at random. */
struct plan_case *plan_case_random(const symm_program *program, uint64_t *random);
/* A copy, its proof borrowed, for a program that may lack ops of the plan's; sites are matched by name. */
struct plan_case *plan_case_copy(const symm_program *program, const symm_plan *plan);
/* A new proof and new figures, so that only what is not ordered can be found fault with. */
void plan_case_certify(struct plan_case *c);
void plan_case_free(struct plan_case *c); /* NULL is allowed */

/* Prints program and plan to stderr. */
void plan_case_print(const symm_program *program, const symm_plan *plan);

#endif
