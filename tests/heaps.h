/* SPDX-License-Identifier: MIT */
/*
 * heaps.h - a team on GPUs laid out in plain host memory, for kernels run by the SIMT shim.
 *
 * Every rank has a heap (unused page, pad, scratch of all channels, buffers), its state and
 * its record. Heaps are at unrelated addresses, so that a kernel which does not translate an
 * address hits unmapped memory or another rank's. A rank is a thread. Failures of the set-up
 * end the test.
 */
#ifndef SYMM_TESTS_HEAPS_H
#define SYMM_TESTS_HEAPS_H

#include "kernels/cuda_launch.h"

struct heaps_options {
    int size;                         /* 1 .. SYMM_DEVICE_RANKS */
    double timeout;                   /* seconds; 0: 60 */
    uint64_t ll, lamport, stage;      /* bytes of each channel's regions; x 4096 */
    int only;                         /* 1 + the one channel that has them; 0: all do */
    uint64_t buffers;                 /* bytes after the scratch */
    uint32_t first_round, first_call; /* the last ones completed, in every slot */
};

struct heaps {
    int size;
    uint64_t bytes;   /* of one heap */
    uint64_t buffers; /* offset where buffers begin */
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_device_team team[SYMM_DEVICE_RANKS]; /* as each rank sees it */
};

struct heaps *heaps_create(const struct heaps_options *options);
void heaps_destroy(struct heaps *heaps);
/* An address in a rank's heap. */
void *heaps_at(const struct heaps *heaps, int rank, uint64_t offset);
/* Arguments with the fields of the team and the channel set; tag 1, no offsets. */
struct symm_cuda_args heaps_args(const struct heaps *heaps, int rank, uint32_t channel);
/* Runs fn for all ranks at once, one thread each; returns when all have returned. */
void heaps_run(struct heaps *heaps,
               void (*fn)(struct heaps *heaps, int rank, void *arg), void *arg);
typedef void (*heaps_kernel)(struct symm_cuda_args);
/* A function of the fake driver's library, and its kernel of that name; NULL: none. */
void *heaps_symbol(const char *name);
heaps_kernel heaps_find(const char *name);
void heaps_launch(heaps_kernel kernel, const struct symm_cuda_args *args,
                  unsigned blocks, unsigned threads);
/* Sleeps up to `most` microseconds, mostly not at all; the seed is the random state. */
void heaps_delay(uint64_t *seed, unsigned most);
/* Ends the test unless all slots of the channel hold one round and one call, equal on all
 * ranks, nothing has failed, and the scratch of the channels beside it is untouched. */
void heaps_check(const struct heaps *heaps, uint32_t channel);

#endif
