/* SPDX-License-Identifier: MIT */
/*
 * kill_stage.h - what the ranks do until one is killed (kill.h), on the host backend: a team of
 * all ranks, and an act for each phase of a job.
 */
#ifndef SYMM_TESTS_KILL_STAGE_H
#define SYMM_TESTS_KILL_STAGE_H

#include "harness.h"

#define KILL_SPREAD 0.004 /* seconds: some dozens of calls */

struct kill_stage {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    float *data;
};

/* The suite's open and close; `stage` is a struct kill_stage. */
int kill_stage_open(void *stage, symm_ctx *ctx);
void kill_stage_close(void *stage);

/* Acts of phases. */
symm_status kill_split_once(void *stage, int step);
symm_status kill_rendezvous_once(void *stage, int step);
symm_status kill_collective_once(void *stage, int step);
symm_status kill_stream_once(void *stage, int step);
symm_status kill_engine_once(void *stage, int step);
symm_status kill_shrink_once(void *stage, int step);

#endif
