/* SPDX-License-Identifier: MIT */
/*
 * kernel_call.h - one call of a kernel that runs on the processor: what it is, its arguments, and
 * the result that reference.c expects. For suites whose ranks are threads over plain memory.
 */
#ifndef SYMM_TESTS_KERNEL_CALL_H
#define SYMM_TESTS_KERNEL_CALL_H

#include "kernels/cuda_launch.h"

#define CHANNEL   3u
#define GUARD     64u  /* bytes on both sides of an output that must stay UNTOUCHED */
#define UNTOUCHED 0x5a /* of an output before the call */

/* The same on all ranks. What a suite does not use stays 0. */
struct kernel_call {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    int root;
    uint32_t seed, tag, flags;
    uint32_t blocks, threads; /* 0: the shape's numbers */
    bool in_place;
    bool raw;             /* inputs of any bits */
    bool generic, stream; /* the kernel of any size, or of much data */
    bool by_pointer;      /* of a kernel by pointer */
    size_t shift;         /* elements that symmetric arrays are moved by */
};

uint32_t kernel_call_random(uint32_t *random);
size_t kernel_call_bytes(const struct kernel_call *call); /* of one rank's block */
/* Elements of a rank's whole input or output. */
size_t kernel_call_in_count(const struct kernel_call *call, int size);
size_t kernel_call_out_count(const struct kernel_call *call, int size);
/* The output of a rank, for inputs by reference_fill with the call's seed. */
void kernel_call_expect(const struct kernel_call *call, int size, int rank, char *want);
/* The call as the table of kernels takes it. */
struct symm_cuda_query kernel_call_query(const struct kernel_call *call, int size,
                                         int processors,
                                         const struct symm_cuda_scratch *scratch);
/* Sets count, bytes, kind, dtype, op and root. */
void kernel_call_args(const struct kernel_call *call, struct symm_cuda_args *args);

#endif
