/* SPDX-License-Identifier: MIT */
/*
 * exchange_kernels.h - what the kernels of exchange_kernels.cu get: args.in of
 * struct symm_cuda_args points to one.
 */
#ifndef SYMM_TESTS_EXCHANGE_KERNELS_H
#define SYMM_TESTS_EXCHANGE_KERNELS_H

#include "symm/pad_layout.h"

struct exchange_case {
    const struct symm_device_team *team;
    void *workspace;
    uint32_t room, rows, width, tag;
    uint32_t
        repeat; /* exchanges of one kernel, each with rows of its own in `in` and `out` */
    uint32_t delay; /* microseconds at most, before a tail; 0: none */
    uint32_t seed;  /* of the delays */
    const uint64_t *in, *bias;
    uint64_t *out;
    int status; /* of thread 0 of the last block; the first that is not 0 */
    int failed; /* minus what a thread of any block has returned */
};

#endif
