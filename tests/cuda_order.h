/* SPDX-License-Identifier: MIT */
/*
 * cuda_order.h - jobs whose ranks queue the calls of several streams, each in an order of its
 * own, as test_cuda_order.c says.
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
    size_t count; /* elements of a rank's block */
    bool handle;  /* asked for, which puts an event behind the call */
};

/* One job: what all ranks know. Its rounds have the seeds from `seed` on. */
struct run {
    uint64_t seed;
    int rounds; /* 0: 1 */
    int ranks, teams, streams, deep;
    int connections;
    int processors; /* of the fake device; 0: PROCESSORS */
    bool behind;    /* a kernel of the user's behind each call */
    bool nccl;
    bool same;           /* the same order of the streams on all ranks */
    bool may_fail;       /* not promised: an error that names the cause will do */
    double timeout;      /* of each call, seconds */
    struct planned *one; /* NULL: by the seed; else each call is this one */
    struct harness_sync *sync;
};

/* An algorithm's place in cuda_order.c's table. */
enum { PULL = 2, LINES = 5 };

/* 0: all went well, at the latest with a deadline that no slow machine can exceed. */
int order_runs(struct run run);

#endif
