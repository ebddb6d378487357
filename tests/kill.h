/* SPDX-License-Identifier: MIT */
/*
 * kill.h - the matrix of deaths: a job again and again, of which one rank is killed at a
 * random moment of one phase of its life.
 *
 * Every survivor must end with an error that names the dead rank, before a deadline could
 * have told it, and nothing may be left: no file, socket or process. A rank that dies before
 * another has met it is missed when symm_init's deadline is over, and by name only as far as
 * the one who waited for it could tell. Printed is how long after the kill the last survivor
 * had its error. SYMM_TEST_KILLS=N: N kills of each phase; SYMM_TEST_PHASE=name: only that.
 */
#ifndef SYMM_TESTS_KILL_H
#define SYMM_TESTS_KILL_H

#include "harness.h"

enum kill_when { KILL_RUNNING, KILL_INIT, KILL_FINALIZE };
enum kill_engine {
    KILL_PLAIN,
    KILL_ENGINE,
    KILL_BOTH
}; /* both: in turn, if there is one */

struct kill_phase {
    const char *name;
    enum kill_when when;
    enum kill_engine engine;
    double
        spread; /* seconds: the kill comes within them; init, finalize: what they take */
    /* What ranks do until it fails; running phases only, the others make barriers. */
    symm_status (*act)(void *stage, int step);
    /* Finalize, may be NULL: what makes the victim's symm_finalize last for ever, in the
     * middle. 0, or 1. The kill comes later by half a second then. */
    int (*hold)(void *stage);
};

struct kill_suite {
    int ranks;
    int kills;          /* of each phase */
    size_t team_bytes;  /* 0: the harness's */
    size_t stage_bytes; /* what a rank needs beside its context; begins as zeros */
    const char *engine; /* SYMM_ENGINE where a phase wants one; NULL: there is none */
    int (*open)(void *stage, symm_ctx *ctx); /* 0, or 1: said why */
    void (*close)(void *stage);
};

/*
 * The program: each phase is a test of cmocka, skipped where its engine is missing. Returns
 * main's value.
 */
int kill_main(const struct kill_suite *suite, const struct kill_phase *phases,
              size_t count);
/* A barrier of all ranks that has ended on return. */
symm_status kill_meet(symm_team *team);

#endif
