/* SPDX-License-Identifier: MIT */
/*
 * kernels_rig.h - ranks as threads over plain memory, for kernels that run on the processor:
 * their heaps and counters, the inputs of a call, and the results that the host makes.
 */
#ifndef SYMM_TESTS_KERNELS_RIG_H
#define SYMM_TESTS_KERNELS_RIG_H

#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "kernels/cuda_launch.h"

#define MEGA       ((size_t)1 << 20)
#define HEAP_BYTES (4 * MEGA)
#define CHANNEL    2u
#define MOST_BYTES ((size_t)320 << 10) /* of one rank's block */
#define GUARD      64u
#define UNTOUCHED  0x5a

typedef void (*kernel_fn)(struct symm_cuda_args);
typedef void (*launch_fn)(kernel_fn kernel, const struct symm_cuda_args *args,
                          unsigned blocks, unsigned threads);

/* One call as all ranks make it. */
struct call {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    int root;
    uint32_t seed, tag;
    uint32_t blocks;    /* instead of the shape's: 0: as it is */
    bool in_place, raw; /* raw: any bits */
};

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
    char what[160]; /* the first that was bad */
};

struct rig {
    int size;
    void *library;
    launch_fn launch;
    struct symm_cuda_scratch scratch;
    uint64_t timeout;
    const struct call *calls;
    int count, dead, odd; /* ranks: who does nothing, whose tag differs; -1: nobody */
    bool slow, stop_when_bad;
    pthread_barrier_t start;
    struct rank ranks[SYMM_DEVICE_RANKS];
};

uint32_t rig_next(uint32_t *random);
/* With the kernels of a library; the counters begin at `round` and `call`. */
void rig_open(struct rig *rig, int size, const char *library, uint32_t round,
              uint32_t call);
void rig_close(struct rig *rig);
size_t rig_call_bytes(const struct call *call);
/* Elements of a rank's whole input, output. */
size_t rig_in_count(const struct call *call, int size);
size_t rig_out_count(const struct call *call, int size);
void rig_fill(const struct call *call, int size, int rank, void *to);
/* all: inputs of all ranks one behind the other, `stride` bytes apart. */
void rig_expect(const struct call *call, int size, int rank, const char *all,
                size_t stride, char *want);
/* Notes what is wrong with a call of the rank; keeps the first. */
void rig_bad(struct rank *rank, const struct call *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
