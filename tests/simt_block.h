/* SPDX-License-Identifier: MIT */
/*
 * simt_block.h - how the fake driver runs one block of a kernel (simt.cpp), and what it hears
 * of the block meanwhile. For C and C++.
 *
 * A block that comes to griddepcontrol.wait before the grid in front has completed is given
 * up: simt_block returns false, and the block begins anew when it may pass. So a kernel must
 * do nothing before griddepcontrol.wait that must not be done twice; launch_dependents may be.
 */
#ifndef SYMM_TESTS_SIMT_BLOCK_H
#define SYMM_TESTS_SIMT_BLOCK_H

#include <stdbool.h>

struct symm_cuda_args;

/* Called on the thread that runs the block. */
struct simt_watch {
    /* All of the block's threads have polled in vain for some time. Once for each run. */
    void (*stalled)(struct simt_watch *watch);
    /* A thread has executed griddepcontrol.launch_dependents. */
    void (*triggered)(struct simt_watch *watch);
    /* Has the grid in front completed? Asked at griddepcontrol.wait. */
    bool (*may_pass)(struct simt_watch *watch);
};

#ifdef __cplusplus
extern "C" {
#endif
/* Runs one block of a grid of `blocks`; true: it has ended. */
bool simt_block(void (*kernel)(struct symm_cuda_args),
                const struct symm_cuda_args *args, unsigned blocks, unsigned threads,
                unsigned block, struct simt_watch *watch);
#ifdef __cplusplus
}
#endif
#endif
