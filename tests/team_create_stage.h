/* SPDX-License-Identifier: MIT */
/*
 * team_create_stage.h - for suites of symm_team_create on the host backend: what ranks share, and
 * what a team must do.
 */
#ifndef SYMM_TESTS_TEAM_CREATE_STAGE_H
#define SYMM_TESTS_TEAM_CREATE_STAGE_H

#include "harness.h"

struct shared {
    struct harness_sync sync;
    int victim;
    double delay, timeout;
    uint64_t seed;
    _Atomic int come, passed;
    symm_status status[HARNESS_MAX_RANKS];
    double seconds[HARNESS_MAX_RANKS];
    char sentence[HARNESS_MAX_RANKS][512];
};

/* A run of the body, with `s` cleared as its argument. */
struct harness job(struct shared *s, int ranks, harness_body body);
/* The members are the list's, in its order, and sums are those of their world ranks. */
int check_sums(symm_team *team, const int *ranks, int n, void *stream, int salt);
/* Memory of its own, and puts. */
int check_memory(symm_team *team);

#endif
