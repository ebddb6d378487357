/* SPDX-License-Identifier: MIT */
/*
 * simt_block.h - runs one block of a kernel for the fake driver (simt.cpp), with callbacks
 * about its progress. For C and C++.
 *
 * If a block reaches griddepcontrol.wait before the previous grid has completed, simt_block
 * abandons it and returns false; the block is run again from its start when it may pass. So
 * the code before griddepcontrol.wait must be repeatable; launch_dependents is.
 */
#ifndef SYMM_TESTS_SIMT_BLOCK_H
#define SYMM_TESTS_SIMT_BLOCK_H

#include <stdbool.h>

struct symm_cuda_args;

/* Called on the thread that runs the block. */
struct simt_watch {
    /* All threads of the block have polled without success for some time. Once per run. */
    void (*stalled)(struct simt_watch *watch);
    /* A thread has executed griddepcontrol.launch_dependents. */
    void (*triggered)(struct simt_watch *watch);
    /* Whether the previous grid has completed; called at griddepcontrol.wait. */
    bool (*may_pass)(struct simt_watch *watch);
};

#ifdef __cplusplus
extern "C" {
#endif
/* Runs one block of a grid of `blocks`; true: the block has ended. */
bool simt_block(void (*kernel)(struct symm_cuda_args),
                const struct symm_cuda_args *args, unsigned blocks, unsigned threads,
                unsigned block, struct simt_watch *watch);
#ifdef __cplusplus
}
#endif
#endif
