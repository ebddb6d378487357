/* SPDX-License-Identifier: MIT */
/*
 * test_host_kill.c - one rank is killed at a random moment of each phase of a job's life, on
 * the host backend; see kill.h.
 * ctest: cost 5
 *
 * SYMM_TEST_LONG=1: 50 kills of each phase instead of 4; SYMM_TEST_KILLS=N: N.
 */
#include "kill.h"
#include "kill_stage.h"

#include <stdlib.h>
#include <unistd.h>

#ifndef SYMM_FAKE_ENGINE
#define SYMM_FAKE_ENGINE ""
#endif

#define RANKS 3
/* ---- The matrix ---------------------------------------------------------------------- */

static const struct kill_phase phases[] = {
    {"init", KILL_INIT, KILL_PLAIN, 0, NULL, NULL},
    {"split", KILL_RUNNING, KILL_PLAIN, KILL_SPREAD, kill_split_once, NULL},
    {"rendezvous", KILL_RUNNING, KILL_PLAIN, KILL_SPREAD, kill_rendezvous_once, NULL},
    {"collectives", KILL_RUNNING, KILL_PLAIN, KILL_SPREAD, kill_collective_once, NULL},
    {"streams", KILL_RUNNING, KILL_PLAIN, KILL_SPREAD, kill_stream_once, NULL},
    {"an engine", KILL_RUNNING, KILL_ENGINE, KILL_SPREAD, kill_engine_once, NULL},
    {"shrink", KILL_RUNNING, KILL_PLAIN, KILL_SPREAD, kill_shrink_once, NULL},
    {"finalize", KILL_FINALIZE, KILL_PLAIN, 0, NULL, NULL},
};

int main(void)
{
    bool engine = access(SYMM_FAKE_ENGINE, R_OK) == 0;
    const struct kill_suite suite = {.ranks = RANKS,
                                     .kills = harness_env("SYMM_TEST_LONG", 0) ? 50 : 4,
                                     .stage_bytes = sizeof(struct kill_stage),
                                     .engine = engine ? SYMM_FAKE_ENGINE : NULL,
                                     .open = kill_stage_open,
                                     .close = kill_stage_close};
    char folder[64];
    int failed;

    harness_directory(folder, sizeof(folder));
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    failed = kill_main(&suite, phases, sizeof(phases) / sizeof(phases[0]));
    harness_remove(folder);
    return failed;
}
