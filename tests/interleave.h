/* SPDX-License-Identifier: MIT */
/*
 * interleave.h - decides whether a plan is safe by trying every interleaving of a small
 * program.
 *
 * Each stream of each rank is a process that takes the ops in order, by small steps: start
 * (arrive), begin to access memory, pass the algorithm's own barrier, end the access, leave, and
 * do the rest of an all_reduce_norm.
 * Steps of different processes interleave in every way that barriers, signals, depends and
 * streams allow. Each piece of each rank's arena remembers its last write and which ranks'
 * parts of it have arrived. A plan is unsafe if an access begins during a conflicting
 * access; if a read begins on bytes that are incomplete or of another write than the
 * program's order requires; or if a process can never continue.
 *
 * The search uses no "happens before" relation, so it can judge the planner and the checker.
 */
#ifndef SYMM_TESTS_INTERLEAVE_H
#define SYMM_TESTS_INTERLEAVE_H

#include "symm/plan.h"

#define INTERLEAVE_MAX_RANKS   4
#define INTERLEAVE_MAX_STREAMS 4

enum interleave_verdict {
    INTERLEAVE_SAFE,
    INTERLEAVE_UNSAFE,
    INTERLEAVE_TOO_LARGE, /* more than max_states, or than fits the tables */
};

struct interleave {
    int periods; /* of a loop */
    bool plain;  /* try every order of every step; else steps that touch no memory and
                            can only help others run at once, with the same verdict */
    uint64_t max_states; /* more: INTERLEAVE_TOO_LARGE */
    uint64_t states;     /* out: number of different states */
    char why[256];       /* out: the reason of UNSAFE */
};

/* The program is finished; the plan has an op for every site, in the program's order.
 * Ignores the certificate and the hashes. */
enum interleave_verdict interleave_search(const symm_program *program,
                                          const symm_plan *plan,
                                          struct interleave *search);

#endif
