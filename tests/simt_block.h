/* SPDX-License-Identifier: MIT */
/*
 * simt_block.h - runs one cluster of a kernel for the fake driver (simt.cpp), with callbacks
 * about its progress. For C and C++.
 *
 * If a thread reaches griddepcontrol.wait before the previous grid has completed, simt_cluster
 * abandons the cluster and returns false; it is run again from its start when it may pass. So
 * the code before griddepcontrol.wait must be repeatable; launch_dependents is.
 */
#ifndef SYMM_TESTS_SIMT_BLOCK_H
#define SYMM_TESTS_SIMT_BLOCK_H

#include <stdbool.h>

struct symm_cuda_args;

/* Called on the thread that runs the cluster. */
struct simt_watch {
    /* All threads of the cluster have polled without success for some time. Once per run. */
    void (*stalled)(struct simt_watch *watch);
    /* A thread has executed griddepcontrol.launch_dependents. */
    void (*triggered)(struct simt_watch *watch);
    /* Whether the previous grid has completed; called at griddepcontrol.wait. */
    bool (*may_pass)(struct simt_watch *watch);
};

#ifdef __cplusplus
extern "C" {
#endif
/* Runs the cluster that begins with `block`, of a grid of `blocks`; true: it has ended. */
bool simt_cluster(void (*kernel)(struct symm_cuda_args),
                  const struct symm_cuda_args *args, unsigned blocks, unsigned threads,
                  unsigned block, struct simt_watch *watch);
/* For callbacks: the place in the cluster of the block whose thread runs. */
unsigned simt_cluster_member(void);
#ifdef __cplusplus
}
#endif
#endif
