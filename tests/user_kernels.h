/* SPDX-License-Identifier: MIT */
/*
 * user_kernels.h - kernels that a program queues beside the library's calls: one that runs
 * for some time, and one that waits for the same kernel of a peer, like NCCL's. On GPUs they
 * are PTX, compiled by the driver; the fake driver has them in simt_kernels.cu. Needs cuda.h.
 */
#ifndef SYMM_TESTS_USER_KERNELS_H
#define SYMM_TESTS_USER_KERNELS_H

#include <stdint.h>

#include "cuda/driver.h"

struct user_kernels {
    const struct symm_cuda_driver *cu;
    CUmodule module;
    CUfunction last, meet;
};

/* Loads the kernels now, not at their first launch; the rank's context is current. 0, or 1. */
int user_kernels_open(struct user_kernels *kernels);
void user_kernels_close(struct user_kernels *kernels);
/* Queues a kernel whose blocks end after that time. 0, or 1. */
int user_kernels_last(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, double seconds);
/* Each block b writes `tag` to peer[b] and waits until own[b] >= tag; after `seconds` it
 * sets *failed to 1. 0, or 1. */
int user_kernels_meet(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, const uint32_t *own, uint32_t *peer,
                      uint32_t tag, uint32_t *failed, double seconds);

#endif
