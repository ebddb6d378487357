/* SPDX-License-Identifier: MIT */
/*
 * pull_stage.h - for suites of kernels that read peers' memory or the stage, on the processor: a
 * call of any way, made by ranks that are threads with heaps in plain memory (heaps.h).
 *
 * A rank fills its input, sometimes waits, launches, compares its output with tests/reference.c bit
 * for bit, and at once overwrites its input: without a barrier a peer would read that. Half of the
 * calls that read or write peers' arrays go by pointer: each rank's arrays lie where they like,
 * with an alignment of their own.
 */
#ifndef SYMM_TESTS_PULL_STAGE_H
#define SYMM_TESTS_PULL_STAGE_H

#include "heaps.h"
#include "kernel_call.h"

#define WAYS 16 /* kinds, each by an algorithm */

struct job {
    const struct kernel_call *calls;
    int count, calm; /* calm: no delays */
    int odd;         /* this rank's tags differ; -1: no rank's */
    int dead;        /* this rank makes no call */
    bool late;       /* it makes it now, and no other rank */
    int unready;     /* 1 + the rank whose pointers are not ready; 0: no rank's */
    struct symm_cuda_pointers pointers[SYMM_DEVICE_RANKS];
    int wrong[SYMM_DEVICE_RANKS];
    uint32_t result[SYMM_DEVICE_RANKS];
    char what[SYMM_DEVICE_RANKS][160];
};

/* How many ranks saw something wrong. */
int run(struct heaps *heaps, struct job *job);
/* None may. */
void run_well(struct heaps *heaps, const struct kernel_call *calls, int count);
bool has_pointers(enum symm_algorithm algorithm);
struct kernel_call some_call(uint32_t *random, int size, int way, symm_dtype dtype,
                             symm_op op);
struct heaps *open_heaps(int size, double timeout, uint32_t round, uint32_t call);

#endif
