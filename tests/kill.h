/* SPDX-License-Identifier: MIT */
/*
 * kill.h - repeats a job and kills one rank at a random moment of a phase.
 *
 * Every survivor must end with an error that names the dead rank, earlier than by a timeout,
 * and nothing may be left: no file, socket or process. A rank that dies before its bootstrap
 * connected it is missed only when the timeout of symm_init expires; the error names the
 * rank if the waiting rank knows it. The suite prints the time from the kill to the last
 * survivor's error. SYMM_TEST_KILLS=N: N kills per phase; SYMM_TEST_PHASE=name: only that;
 * SYMM_TEST_SEED=N: other ranks at other moments.
 */
#ifndef SYMM_TESTS_KILL_H
#define SYMM_TESTS_KILL_H

#include "harness.h"

enum kill_when { KILL_RUNNING, KILL_INIT, KILL_FINALIZE };
enum kill_engine {
    KILL_PLAIN,
    KILL_ENGINE,
    KILL_BOTH
}; /* both: in turn, if an engine is available */

struct kill_phase {
    const char *name;
    enum kill_when when;
    enum kill_engine engine;
    double
        spread; /* seconds within which the kill comes; for init and finalize: their duration */
    /* Called until it fails; in running phases only: the other phases make barriers. */
    symm_status (*act)(void *stage, int step);
    /* Finalize, may be NULL: makes the victim's symm_finalize hang in the middle; the kill
     * then comes half a second later. 0, or 1. */
    int (*hold)(void *stage);
};

struct kill_suite {
    int ranks;
    int kills;          /* of each phase */
    size_t team_bytes;  /* 0: the harness's */
    size_t stage_bytes; /* memory of a rank beside its context; zeroed */
    const char
        *engine; /* SYMM_ENGINE of phases that use an engine; NULL: none available */
    bool engine_always; /* and of the others */
    /* May be NULL: before each job, in the parent; and of each rank, in the rank. */
    void (*before)(void);
    void (*configure)(symm_config *config, int rank);
    /* The name of a rank's host; NULL: all are on one. Of a host that was lost before it could
     * say anything its name is enough. */
    const char *(*host)(int rank);
    int (*open)(void *stage, symm_ctx *ctx); /* 0, or 1 after a message */
    void (*close)(void *stage);
};

/*
 * The program: each phase is a cmocka test, skipped if its engine is missing. Returns the
 * result of main.
 */
int kill_main(const struct kill_suite *suite, const struct kill_phase *phases,
              size_t count);
/* A barrier of all ranks; completed on return. */
symm_status kill_meet(symm_team *team);

#endif
