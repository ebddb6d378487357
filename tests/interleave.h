/* SPDX-License-Identifier: MIT */
/*
 * interleave.h - whether a plan is safe, by trying every interleaving of a small program.
 *
 * Each stream of each rank is a process that takes the ops in order, by small steps: start
 * (arrive), begin to touch memory, pass the algorithm's own barrier, finish touching,
 * leave. Steps of different processes interleave in every way that barriers, signals,
 * depends and streams allow. Each piece of each rank's arena remembers which write it holds
 * and whose parts of it are in. Unsafe is: an access begins while a conflicting one is
 * going on; a read begins on bytes that are not those which the program means it to find,
 * or not whole; some process can never go on.
 *
 * It knows nothing of "happens before": it is the judge of the planner and of the checker.
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
    bool plain;  /* every order of every step; else steps that touch no memory and
                            can only help others are taken at once, which finds the same */
    uint64_t max_states; /* then INTERLEAVE_TOO_LARGE */
    uint64_t states;     /* out: different states that were seen */
    char why[256];       /* out: of UNSAFE, in a few words */
};

/* The program is finished; the plan has an op for every site, in the program's order. The
 * certificate and the hashes are not looked at. */
enum interleave_verdict interleave_search(const symm_program *program,
                                          const symm_plan *plan,
                                          struct interleave *search);

#endif
