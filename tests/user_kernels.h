/* SPDX-License-Identifier: MIT */
/*
 * user_kernels.h - kernels that a program queues beside our calls: one that lasts some time,
 * and one that waits for its like at a peer, as NCCL's do. On GPUs they are PTX, which the
 * driver compiles; the fake driver has them in simt_kernels.cu. Needs cuda.h.
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

/* With the rank's context current: loads them now, not at their first launch. 0, or 1. */
int user_kernels_open(struct user_kernels *kernels);
void user_kernels_close(struct user_kernels *kernels);
/* Each block ends after this time. 0, or 1. */
int user_kernels_last(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, double seconds);
/* Each block b writes `tag` to peer[b] and waits for own[b] to be as large; after `seconds`
 * without that, *failed becomes 1. 0, or 1. */
int user_kernels_meet(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, const uint32_t *own, uint32_t *peer,
                      uint32_t tag, uint32_t *failed, double seconds);

#endif
