/* SPDX-License-Identifier: MIT */
/*
 * cuda_order.h - jobs in which each rank queues the calls of several streams in its own
 * order; see test_cuda_order.c.
 */
#ifndef SYMM_TESTS_CUDA_ORDER_H
#define SYMM_TESTS_CUDA_ORDER_H

#include "harness.h"
#include "reference_call.h"

#define RANKS      3
#define TEAMS      2
#define STREAMS    6
#define DEEP       4
#define PROCESSORS 8 /* of the fake device */

struct planned {
    int team, algorithm;
    enum kind kind;
    size_t count;  /* elements of a rank's block */
    uint32_t rows; /* all_reduce_norm of as many rows instead; 0: none */
    bool handle;  /* ask for a handle, which queues an event after the call */
};

/* One job, the same on all ranks. Its rounds have the seeds seed, seed + 1, ... */
struct run {
    uint64_t seed;
    int rounds; /* 0: 1 */
    int ranks, teams, streams, deep;
    int connections;
    int processors; /* of the fake device; 0: PROCESSORS */
    bool behind;    /* a user's kernel after each call */
    bool
        norm; /* of the calls that follow from the seed every other is an all_reduce_norm */
    bool
        nccl; /* and a kernel that waits for its peers, on an eighth of the multiprocessors */
    bool
        apart; /* rank 0 queues that kernel last; others wait for its end, then make their calls */
    bool same; /* the same order of the streams on all ranks */
    bool
        may_fail; /* success is not promised: an error that names the cause is accepted */
    double timeout; /* of each call, seconds */
    struct planned
        *one; /* NULL: calls follow from the seed; else every call is this one */
    struct harness_sync *sync;
};

/* Indices of algorithms in cuda_order.c's table. */
enum { PULL = 2, LINES = 5 };

/* 0: success, at the latest with a timeout that no slow machine exceeds. */
int order_runs(struct run run);
/* Four runs of one and of two teams, of calls behind each other on each stream, with and without
 * `behind` and `nccl`; of run.rounds each, or SYMM_TEST_ROUNDS, from SYMM_TEST_SEED on. How many
 * have failed. */
int order_variants(struct run run);

#endif
