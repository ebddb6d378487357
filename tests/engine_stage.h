/* SPDX-License-Identifier: MIT */
/*
 * engine_stage.h - for suites of the NCCL engine: the environment, and a rank's memory. They
 * run over the fake driver and the fake NCCL; with SYMM_TEST_GPU=1 on GPUs with the real
 * NCCL, except tests that query the fake.
 */
#ifndef SYMM_TESTS_ENGINE_STAGE_H
#define SYMM_TESTS_ENGINE_STAGE_H

#include "device.h"

#define ENGINE_BYTES ((size_t)1 << 20)

struct engine_stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area in, out, heap; /* heap: symmetric */
    void *stream;
    int rank, n;
};

/* device_suite(), the fake NCCL, and SYMM_ENGINE=nccl. */
void engine_suite(void);
/* 0, or 1 after a message. */
int engine_open(struct engine_stage *s, symm_ctx *ctx);
void engine_close(struct engine_stage *s);
/* What rank r has at place i of its input. */
int32_t engine_value(int r, size_t i);
int32_t *engine_ints(struct device_area *area); /* its copy on the host */
/* Fills the area's first `count` elements with the rank's values. 0, or 1 after a message. */
int engine_give(struct engine_stage *s, struct device_area *area, size_t count);
/* Waits for the stream and copies the area to the host; as engine_give. */
int engine_take(struct engine_stage *s, struct device_area *area, size_t count);
/* Calls of a function of NCCL in this process; 0 on GPUs. */
uint64_t engine_calls(const char *symbol);
int engine_registered(void);
int engine_windows(void);
int engine_stuck(void); /* calls that FAKE_NCCL_STUCK holds up */

/* Runs the body on `ranks` ranks with NAME=VALUE settings in their environment (NULL: none);
 * does nothing in a mode that is not `pass`. */
extern enum harness_mode engine_pass;
int engine_run(harness_body body, int ranks, enum harness_mode mode, void *arg,
               const char *const *settings, double timeout);

#endif
