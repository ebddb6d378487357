/* SPDX-License-Identifier: MIT */
/*
 * kernels_rig.h - ranks as threads over plain memory, for kernels that run on the processor:
 * their heaps and counters, the inputs of a call, and the results computed by the host.
 */
#ifndef SYMM_TESTS_KERNELS_RIG_H
#define SYMM_TESTS_KERNELS_RIG_H

#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "kernel_call.h"

#define MEGA       ((size_t)1 << 20)
#define HEAP_BYTES (4 * MEGA)
#define MOST_BYTES ((size_t)320 << 10) /* of one rank's block */
#define RIG_LL_BYTES      ((size_t)128 << 10) /* of scratch */
#define RIG_LAMPORT_BYTES ((size_t)192 << 10)

typedef void (*kernel_fn)(struct symm_cuda_args);
typedef void (*launch_fn)(kernel_fn kernel, const struct symm_cuda_args *args,
                          unsigned blocks, unsigned threads);

struct rank {
    struct rig *rig;
    int rank;
    char *heap;
    struct symm_device_state *state;
    struct symm_device_record *record;
    uint32_t result;
    char *in, *out, *want, *all;
    uint32_t random;
    int bad;
    char what[160]; /* the first bad call */
};

struct rig {
    int size;
    void *library;
    launch_fn launch;
    struct symm_cuda_scratch scratch;
    uint64_t timeout;
    const struct kernel_call *calls;
    int count, dead,
        odd; /* dead: a rank that makes no call; odd: a rank with another tag; -1: none */
    bool slow, stop_when_bad;
    pthread_barrier_t start;
    struct rank ranks[SYMM_DEVICE_RANKS];
};

/* Uses the kernels of `library`; the counters begin at `round` and `call`. */
void rig_open(struct rig *rig, int size, const char *library, uint32_t round,
              uint32_t call);
void rig_close(struct rig *rig);
/* Marks what lies behind the rig's scratch, in which rig_close finds no other bytes. */
void rig_guard(struct rig *rig);
/* After a call that succeeded the counters of all blocks are the same, also of those that were not
 * launched. */
bool rig_counters_agree(const struct rank *rank);
/* What no call changes: scratch, channel, the team and where the result belongs. */
struct symm_cuda_args rig_args(struct rank *rank);
void rig_fill(const struct kernel_call *call, int size, int rank, void *to);
/* all: the inputs of all ranks, `stride` bytes apart. */
void rig_expect(const struct kernel_call *call, int size, int rank, const char *all,
                size_t stride, char *want);
/* Records a bad call of the rank; keeps the first record. */
void rig_bad(struct rank *rank, const struct kernel_call *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
