/* SPDX-License-Identifier: MIT */
/*
 * simt.h - the builtins of CUDA that the library's kernels may use, for building the kernels
 * with a C++ compiler for the processor. They run on fibers of one operating system thread.
 *
 * simt_launch runs the clusters of a grid one after another, simt_cluster (simt_block.h) one of
 * them; where args.cluster is 0 a cluster is a block. The threads of a cluster are fibers that
 * switch at __syncthreads, named barriers, the warp's collectives and simt_relax. A block may wait
 * for other ranks, which run in other threads or processes, and for blocks of its cluster, never
 * for another block of its own grid. __shared__ memory belongs to the operating system's thread and
 * keeps the values of the last block, as on a GPU; the blocks of a cluster share it (cluster.cuh).
 *
 * Broken rules end the program with a sentence that names the kernel: a thread that returns
 * while others wait at __syncthreads, lanes of a warp at different collectives, a mask that
 * is not full, a named barrier whose threads disagree on their number or on which it is,
 * threads that can never continue, a packet that is not at a multiple of its size, a launch that
 * runs longer than SIMT_LIMIT seconds (100; 0: no limit). Any other access that is not at a
 * multiple of its size, which a device does not take either, ends the program by a trap of the
 * compiler's. SIMT_SEED=n runs threads in a random order. With SIMT_PAUSE=n a block is late now
 * and then, up to n microseconds, after a __syncthreads or when all of its threads have polled.
 *
 * Not supported: dynamic shared memory, atomics on shared memory, printf, the second and
 * third dimension, partial warps. This file is included before any other (-include).
 */
#ifndef SYMM_TESTS_SIMT_H
#define SYMM_TESTS_SIMT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fake_cuda.h" /* fake_cuda_multicast, to emulate multimem instructions */
#include "simt_block.h"

#define SIMT_MAX_THREADS 1024 /* of a block */
#define SIMT_MAX_CLUSTER 2048 /* threads of a cluster */
#define SIMT_MAX_BLOCKS  8    /* of a cluster */
#define SIMT_WARP        32

extern "C" {
/* Runs all blocks of the grid; returns when the last has ended. `threads` is a multiple of
 * 32 up to 1024, `blocks` one of 2^args->cluster. One launch at a time per operating system
 * thread. */
void simt_launch(void (*kernel)(struct symm_cuda_args),
                 const struct symm_cuda_args *args, unsigned blocks, unsigned threads);
/* After one poll of a spin loop: lets other threads of the block and other ranks run. */
void simt_relax(void);
[[noreturn]] void simt_misaligned(const void *at, size_t bytes);
/* Programmatic dependent launch; no effect in a plain launch. */
void simt_dependent_launch(void);
void simt_dependent_wait(void);
/* Nanoseconds of a monotonic clock, the same in all processes. */
uint64_t simt_time(void);
void simt_syncthreads(void);
/* barrier.cluster, which each thread passes once. A thread that has ended has arrived. */
void simt_cluster_arrive(void);
void simt_cluster_wait(void);
/* bar.sync id, threads: barriers 1 to 15, of whole warps; 0 is that of __syncthreads. */
void simt_sync_some(unsigned id, unsigned threads);
/* The values of the 32 lanes of this warp, valid until the lane's second next call. */
const uint64_t *simt_exchange(const char *name, unsigned mask, uint64_t value);
}

/* An access of so many bytes, where the compiler does not see it. */
static inline void simt_aligned(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes != 0)
        simt_misaligned(at, bytes);
}

#define SYMM_DEVICE_PAUSE()  simt_relax() /* in the waits of symm/device.h */
#define SYMM_DEVICE_EMULATED      /* symm/device_exchange.h finds threadIdx and so on */
#define SYMM_DEVICE_POLLS    256u /* a poll takes up to half a millisecond */

struct simt_index {
    unsigned x, y, z;
};

/* The indices of the running fiber. Not in the initial-exec model: all __shared__ memory of
 * the library would have to fit into the TLS that a program reserves for dlopen. */
struct simt_place {
    struct simt_index thread, block, threads, blocks;
};
extern __thread struct simt_place simt_place __attribute__((visibility("hidden")));

#define threadIdx (simt_place.thread)
#define blockIdx  (simt_place.block)
#define blockDim  (simt_place.threads)
#define gridDim   (simt_place.blocks)
#define warpSize  SIMT_WARP

/* The fake driver finds kernels by name. */
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__       static __thread

/* ---- Vector types ---------------------------------------------------------------- */

#define SIMT_VECTOR2(name, element, bytes)                                             \
    struct alignas(bytes) name {                                                       \
        element x, y;                                                                  \
    };                                                                                 \
    static inline name make_##name(element x, element y)                               \
    {                                                                                  \
        return name{x, y};                                                             \
    }
#define SIMT_VECTOR4(name, element, bytes)                                             \
    struct alignas(bytes) name {                                                       \
        element x, y, z, w;                                                            \
    };                                                                                 \
    static inline name make_##name(element x, element y, element z, element w)         \
    {                                                                                  \
        return name{x, y, z, w};                                                       \
    }
SIMT_VECTOR2(int2, int, 8)
SIMT_VECTOR2(uint2, unsigned, 8)
SIMT_VECTOR2(float2, float, 8)
SIMT_VECTOR2(double2, double, 16)
SIMT_VECTOR2(longlong2, long long, 16)
SIMT_VECTOR2(ulonglong2, unsigned long long, 16)
SIMT_VECTOR4(int4, int, 16)
SIMT_VECTOR4(uint4, unsigned, 16)
SIMT_VECTOR4(float4, float, 16)

/* ---- Threads of a block and of a warp -------------------------------------------- */

static inline void __syncthreads(void)
{
    simt_syncthreads();
}

/* Whether any thread of the block says so. */
static inline int __syncthreads_or(int mine)
{
    __shared__ int any;
    int result;

    if (threadIdx.x == 0)
        any = 0;
    __syncthreads();
    if (mine)
        any = 1;
    __syncthreads();
    result = any;
    __syncthreads();
    return result;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    simt_exchange("__syncwarp", mask, 0);
}

template <class T> static inline uint64_t simt_bits(T value)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
    memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T> static inline T simt_lane(const uint64_t *lanes, unsigned lane)
{
    T value;

    memcpy(&value, &lanes[lane], sizeof(T));
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = SIMT_WARP)
{
    const uint64_t *lanes = simt_exchange("__shfl_sync", mask, simt_bits(value));
    unsigned first = threadIdx.x % SIMT_WARP & ~((unsigned)width - 1);

    return simt_lane<T>(lanes, first | ((unsigned)source & ((unsigned)width - 1)));
}

/* Outside the segment of `width` lanes: the lane's own value. */
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = SIMT_WARP)
{
    const uint64_t *lanes = simt_exchange("__shfl_xor_sync", mask, simt_bits(value));
    unsigned own = threadIdx.x % SIMT_WARP, source = own ^ (unsigned)flip;

    if (source > (own | ((unsigned)width - 1)))
        source = own;
    return simt_lane<T>(lanes, source % SIMT_WARP);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *lanes = simt_exchange("__ballot_sync", mask, predicate != 0);
    unsigned all = 0;

    for (unsigned lane = 0; lane < SIMT_WARP; lane++)
        all |= (unsigned)lanes[lane] << lane;
    return all;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    const uint64_t *lanes = simt_exchange("__any_sync", mask, predicate != 0);
    uint64_t any = 0;

    for (unsigned lane = 0; lane < SIMT_WARP; lane++)
        any |= lanes[lane];
    return any != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    const uint64_t *lanes = simt_exchange("__all_sync", mask, predicate != 0);
    uint64_t all = 1;

    for (unsigned lane = 0; lane < SIMT_WARP; lane++)
        all &= lanes[lane];
    return all != 0;
}

/* ---- Bits ------------------------------------------------------------------------ */

static inline int __popc(unsigned value)
{
    return __builtin_popcount(value);
}

static inline int __ffs(int value)
{
    return __builtin_ffs(value);
}

static inline int __clz(int value)
{
    return value == 0 ? 32 : __builtin_clz((unsigned)value);
}

static inline unsigned __float_as_uint(float value)
{
    return (unsigned)simt_bits(value);
}

static inline float __uint_as_float(unsigned value)
{
    uint64_t bits = value;

    return simt_lane<float>(&bits, 0);
}

#endif
