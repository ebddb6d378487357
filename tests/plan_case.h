/* SPDX-License-Identifier: MIT */
/*
 * plan_case.h - makes random programs and plans for tests, copies and changes them.
 *
 * A plan here belongs to the test, which may change anything in it. A seed determines
 * everything.
 */
#ifndef SYMM_TESTS_PLAN_CASE_H
#define SYMM_TESTS_PLAN_CASE_H

#include "util/pool.h"
#include "symm/plan.h"

struct plan_case {
    symm_plan plan;              /* its lists may be changed; certificate_count too */
    const symm_program *program; /* borrowed */
    struct pool pool;            /* of a proof made here */
};

struct plan_case_limits {
    int max_world, max_streams, max_buffers, max_ops;
    bool early; /* some ops have early_start */
};

/* A finished program of a few ops on a few buffers; the planner may refuse it. */
symm_program *plan_case_program(uint64_t *random,
                                const struct plan_case_limits *limits);

/* Changes to a copy of a program; plan_case_no_edit changes nothing. */
struct plan_case_edit {
    int drop;   /* op to omit; -1: none */
    int shrink; /* op whose group becomes `partition` */
    int partition;
    int early;    /* op whose early_start is inverted */
    int new_loop; /* 0 or 1; -1: unchanged */
    int move;     /* op that moves to `stream`; -1: none */
    int stream;
    int insert; /* op before which a buffer is added, written and reduced; -1: none */
    int grow;   /* buffer whose bytes are doubled; -1: none */
};
extern const struct plan_case_edit plan_case_no_edit;
/* NULL if the library refuses the changed program. */
symm_program *plan_case_edit(const symm_program *program,
                             const struct plan_case_edit *edit);

/* The planner's plan, with its choice of algorithms or with a random forced algorithm. */
symm_status plan_case_make(symm_program *program, uint64_t *random, symm_plan **plan);
/* A plan without shared bytes, with all barriers, by an algorithm that any collective has. */
struct plan_case *plan_case_dedicated(const symm_program *program);
/* A plan with random offsets, algorithms and barriers. */
struct plan_case *plan_case_random(const symm_program *program, uint64_t *random);
/* A copy with a borrowed proof, for a program that may lack ops of the plan; sites are
 * matched by name. */
struct plan_case *plan_case_copy(const symm_program *program, const symm_plan *plan);
/* Makes a new proof and new figures, so that only a missing order can be an error. */
void plan_case_certify(struct plan_case *c);
void plan_case_free(struct plan_case *c); /* NULL is allowed */

/* Prints program and plan to stderr. */
void plan_case_print(const symm_program *program, const symm_plan *plan);

#endif
