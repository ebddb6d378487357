/* SPDX-License-Identifier: MIT */
/*
 * device_stage.h - what a rank needs for collectives on the CUDA backend whose results are compared
 * with the reference: device, memory that peers reach and memory that they do not, a stream.
 */
#ifndef SYMM_TESTS_DEVICE_STAGE_H
#define SYMM_TESTS_DEVICE_STAGE_H

#include "device.h"

struct device_stage {
    symm_ctx *ctx;
    symm_team *team; /* the world */
    struct perf_gpu *gpu;
    /* symmetric, private; inputs in the front half, outputs in the back half */
    struct device_area area[2];
    void *stream;
    char *wanted; /* as large as an area */
    int rank, n;
    uint32_t seed; /* of the last call */
};

/* Areas of `bytes` each, after a rendezvous. 0, or 1. */
int device_stage_open(struct device_stage *s, symm_ctx *ctx, size_t bytes);
void device_stage_close(struct device_stage *s);

#endif
