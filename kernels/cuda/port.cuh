/* SPDX-License-Identifier: MIT */
/*
 * port.cuh - what kernels need beyond plain C++: memory operations of system scope, the clock,
 * programmatic dependent launch. Other PTX is in port_numbers.cuh, cluster.cuh and multicast.cuh
 * alone.
 *
 * Kernels are compiled twice: by nvcc for devices, and with SYMM_SIMT by a host compiler,
 * where tests/simt.h (included first, by the command line) runs every CUDA thread as a fiber and
 * provides __global__, __device__, __shared__, __forceinline__, threadIdx, blockIdx, blockDim,
 * gridDim, __syncthreads, __syncwarp, __shfl_sync, __any_sync and its like, and simt_relax() for
 * a poll that found nothing.
 *
 * With SYMM_WIDE a file's kernels are those for teams of more than SYMM_FEW_RANKS, and their names
 * end with _wide: NAME_wide.cu is NAME.cu once more. Kernels for few ranks get the beginning of
 * symm_cuda_args alone (SYMM_FEW_ARGS_BYTES), so that a launch passes no more than they need.
 *
 * SYMM_KERNEL(name) { ... } is a kernel for blocks of up to SYMM_MAX_BLOCK threads, and
 * SYMM_KERNEL_OF(name, n) one for up to n; the one argument is `args`. Their last act is
 * symm_kernel_done. SYMM_KERNEL_BARE(name), for calls that take no channel, has nothing added.
 *
 * Guarantees: `relaxed`, `acquire` and `release` are of system scope but in symm_port_add32, so
 * they hold between devices and the host. Packets are 16 bytes at a multiple of 16; only each
 * 8-byte half of one is atomic, on either side. That is what PTX promises of .v2.u64: a vector
 * access is modelled as one access of each element, in an unspecified order, and an element of up
 * to 64 bits is a scalar (PTX ISA 9.1, 8.2.4). Of .v4.u32 it would promise only words of 4 bytes,
 * and a packet of symm_ll has a word of data and its flag in each half. The instruction is the same
 * one of 128 bits on sm_80, sm_90 and sm_100. Nothing here waits.
 */
#ifndef SYMM_KERNELS_CUDA_PORT_CUH
#define SYMM_KERNELS_CUDA_PORT_CUH

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda_launch.h"

#if defined(SYMM_WIDE)
#define SYMM_KERNEL_NAME(name) name##_wide
#else
#define SYMM_KERNEL_NAME(name) name
#endif

#define SYMM_DEVICE    __device__ __forceinline__
#define SYMM_MAX_BLOCK 512 /* threads of a block that take data; a multiple of 32 */
#define SYMM_WARP      32  /* lanes */

#if defined(SYMM_SIMT)
#include <string.h>
#include <time.h>
#if !defined(SYMM_KERNEL)
#define SYMM_KERNEL(name)                                                              \
    static void name##_body(const struct symm_cuda_args &args);                        \
    extern "C" __attribute__((visibility("default"))) void SYMM_KERNEL_NAME(name)(     \
        const struct symm_cuda_args args)                                              \
    {                                                                                  \
        name##_body(args);                                                             \
        symm_kernel_done(args);                                                        \
    }                                                                                  \
    static void name##_body(const struct symm_cuda_args &args)
#endif
#if !defined(SYMM_KERNEL_BARE)
#define SYMM_KERNEL_BARE(name)                                                         \
    extern "C" __attribute__((visibility("default"))) void SYMM_KERNEL_NAME(name)(     \
        const struct symm_cuda_args args)
#endif
#define SYMM_KERNEL_OF(name, threads) SYMM_KERNEL(name)
#define SYMM_COLD                     static
#define SYMM_CONSTANT                 constexpr /* a function of constants */
#define SYMM_UNROLL
#define SYMM_UNROLL_BY(times)
#define SYMM_NO_UNROLL
#else
#if defined(SYMM_WIDE)
typedef struct symm_cuda_args symm_parameter;
#else
struct symm_parameter {
    uint64_t word[SYMM_FEW_ARGS_BYTES / 8];
};
static_assert(SYMM_FEW_ARGS_BYTES % 8 == 0, "its last member is a pointer");
#endif
#define SYMM_ARGS_OF(parameter) (*(const struct symm_cuda_args *)&(parameter))
#define SYMM_KERNEL_OF(name, threads)                                                  \
    static __device__ __forceinline__ void name##_body(                                \
        const struct symm_cuda_args &args);                                            \
    extern "C" __global__ void __launch_bounds__(threads, 1)                           \
        SYMM_KERNEL_NAME(name)(const __grid_constant__ symm_parameter parameter)       \
    {                                                                                  \
        name##_body(SYMM_ARGS_OF(parameter));                                          \
        symm_kernel_done(SYMM_ARGS_OF(parameter));                                     \
    }                                                                                  \
    static __device__ __forceinline__ void name##_body(                                \
        const struct symm_cuda_args &args)
#define SYMM_KERNEL(name) SYMM_KERNEL_OF(name, SYMM_MAX_BLOCK)
#define SYMM_KERNEL_BARE(name)                                                         \
    static __device__ __forceinline__ void name##_body(                                \
        const struct symm_cuda_args &args);                                            \
    extern "C" __global__ void __launch_bounds__(SYMM_MAX_BLOCK, 1)                    \
        SYMM_KERNEL_NAME(name)(const __grid_constant__ symm_parameter parameter)       \
    {                                                                                  \
        name##_body(SYMM_ARGS_OF(parameter));                                          \
    }                                                                                  \
    static __device__ __forceinline__ void name##_body(                                \
        const struct symm_cuda_args &args)
#define SYMM_COLD             static __device__ __noinline__ /* rare: its code is out of the way */
#define SYMM_CONSTANT         __host__ __device__ constexpr
#define SYMM_UNROLL           _Pragma("unroll")
#define SYMM_PRAGMA(text)     _Pragma(#text)
#define SYMM_UNROLL_BY(times) SYMM_PRAGMA(unroll(times)) /* a constant; 1: not at all */
#define SYMM_NO_UNROLL        _Pragma("unroll 1")
#endif

/* Four words of 32 bits, moved by one instruction. */
struct alignas(16) symm_packet {
    uint32_t word[4];
};

/* ---- Memory of peers, and own memory that peers write ---------------------------- */

/* An address of device memory, own or a peer's, that is known as a number: the compiler takes it
 * for one of global memory, as it does those of the kernel's argument. */
SYMM_DEVICE char *symm_port_address(uint64_t address)
{
    char *const at = (char *)(uintptr_t)address;

#if !defined(SYMM_SIMT)
    __builtin_assume(__isGlobal(at));
#endif
    return at;
}

#if defined(SYMM_SIMT)

#define SYMM_PORT_LOAD(name, order)                                                    \
    SYMM_DEVICE uint32_t symm_port_load32_##name(const uint32_t *from)                 \
    {                                                                                  \
        return __atomic_load_n(from, order);                                           \
    }                                                                                  \
    SYMM_DEVICE uint64_t symm_port_load64_##name(const uint64_t *from)                 \
    {                                                                                  \
        return __atomic_load_n(from, order);                                           \
    }
SYMM_PORT_LOAD(relaxed, __ATOMIC_RELAXED)
SYMM_PORT_LOAD(acquire, __ATOMIC_ACQUIRE)
#undef SYMM_PORT_LOAD

/* Two words at a multiple of 8, by one instruction: each is atomic, the two together are not. */
SYMM_DEVICE uint32_t symm_port_load_pair_relaxed(const uint32_t *from, uint32_t *second)
{
    simt_aligned(from, 2 * sizeof(*from));
    *second = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

#define SYMM_PORT_STORE(name, order)                                                   \
    SYMM_DEVICE void symm_port_store32_##name(uint32_t *to, uint32_t value)            \
    {                                                                                  \
        __atomic_store_n(to, value, order);                                            \
    }                                                                                  \
    SYMM_DEVICE void symm_port_store64_##name(uint64_t *to, uint64_t value)            \
    {                                                                                  \
        __atomic_store_n(to, value, order);                                            \
    }
SYMM_PORT_STORE(relaxed, __ATOMIC_RELAXED)
SYMM_PORT_STORE(release, __ATOMIC_RELEASE)
#undef SYMM_PORT_STORE

SYMM_DEVICE struct symm_packet symm_port_load_packet(const struct symm_packet *from)
{
    uint64_t half[2];
    struct symm_packet packet;

    simt_aligned(from, sizeof(packet));
    half[0] = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
    half[1] = __atomic_load_n((const uint64_t *)from + 1, __ATOMIC_RELAXED);
    memcpy(&packet, half, sizeof(packet));
    return packet;
}

SYMM_DEVICE struct symm_packet symm_port_load_data(const struct symm_packet *from)
{
    return symm_port_load_packet(from);
}

SYMM_DEVICE void symm_port_store_packet(struct symm_packet *to,
                                        struct symm_packet packet)
{
    uint64_t half[2];

    simt_aligned(to, sizeof(packet));
    memcpy(half, &packet, sizeof(half));
    __atomic_store_n((uint64_t *)to, half[0], __ATOMIC_RELAXED);
    __atomic_store_n((uint64_t *)to + 1, half[1], __ATOMIC_RELAXED);
}

SYMM_DEVICE struct symm_packet symm_port_packet_if(bool when, const void *from)
{
    return when ? *(const struct symm_packet *)from : symm_packet{};
}

/* Memory of the device that will be loaded soon, and is near from then on. */
SYMM_DEVICE void symm_port_prefetch(const void *) {}

SYMM_DEVICE uint32_t symm_port_exchange32(uint32_t *word, uint32_t value)
{
    return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

/* Returns what was there. */
SYMM_DEVICE uint32_t symm_port_add32(uint32_t *word, uint32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

SYMM_DEVICE void symm_port_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

SYMM_DEVICE void symm_port_relax(void)
{
    simt_relax();
}

SYMM_DEVICE uint32_t symm_port_clock(void)
{
    return 0;
}

SYMM_DEVICE void symm_port_pause(uint32_t)
{
    simt_relax();
}

/* Whether `mine` is true in any thread of the block. Is also a __syncthreads. */
SYMM_DEVICE bool symm_port_sync_any(bool mine)
{
    __shared__ uint32_t any;
    bool result;

    if (threadIdx.x == 0)
        any = 0;
    __syncthreads();
    if (mine)
        any = 1;
    __syncthreads();
    result = any != 0;
    __syncthreads();
    return result;
}

/* A __syncthreads of those `threads` threads of the block that name barrier `id`, 1 to 15: whole
 * warps. */
SYMM_DEVICE void symm_port_sync_some(uint32_t id, uint32_t threads)
{
    simt_sync_some(id, threads);
}

SYMM_DEVICE uint64_t symm_port_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

SYMM_DEVICE void symm_port_dependent_wait(void)
{
    simt_dependent_wait();
}

SYMM_DEVICE void symm_port_dependent_launch(void)
{
    simt_dependent_launch();
}

template <class T> SYMM_DEVICE void symm_port_settle(T &) {}

#else

/* Addresses are generic: memory of the device, of a peer, of the host. */
#define SYMM_PORT_LOAD(bits, letter, name, order)                                      \
    SYMM_DEVICE uint##bits##_t symm_port_load##bits##_##name(                          \
        const uint##bits##_t *from)                                                    \
    {                                                                                  \
        uint##bits##_t value;                                                          \
                                                                                       \
        asm volatile("ld." order ".sys.u" #bits " %0, [%1];"                           \
                     : "=" letter(value)                                               \
                     : "l"(from)                                                       \
                     : "memory");                                                      \
        return value;                                                                  \
    }
SYMM_PORT_LOAD(32, "r", relaxed, "relaxed")
SYMM_PORT_LOAD(64, "l", relaxed, "relaxed")
SYMM_PORT_LOAD(32, "r", acquire, "acquire")
SYMM_PORT_LOAD(64, "l", acquire, "acquire")
#undef SYMM_PORT_LOAD

SYMM_DEVICE uint32_t symm_port_load_pair_relaxed(const uint32_t *from, uint32_t *second)
{
    uint32_t first;

    asm volatile("ld.relaxed.sys.v2.u32 {%0, %1}, [%2];"
                 : "=r"(first), "=r"(*second)
                 : "l"(from)
                 : "memory");
    return first;
}

#define SYMM_PORT_STORE(bits, letter, name, order)                                     \
    SYMM_DEVICE void symm_port_store##bits##_##name(uint##bits##_t *to,                \
                                                    uint##bits##_t value)              \
    {                                                                                  \
        asm volatile("st." order ".sys.u" #bits " [%0], %1;" ::"l"(to), letter(value)  \
                     : "memory");                                                      \
    }
SYMM_PORT_STORE(32, "r", relaxed, "relaxed")
SYMM_PORT_STORE(64, "l", relaxed, "relaxed")
SYMM_PORT_STORE(32, "r", release, "release")
SYMM_PORT_STORE(64, "l", release, "release")
#undef SYMM_PORT_STORE

/* Packets live in device memory, own or a peer's. */
SYMM_DEVICE struct symm_packet symm_port_load_packet(const struct symm_packet *from)
{
    uint64_t low, high;

    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return {
        {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

/* Of an array whose writers a barrier has awaited: no half needs to be atomic, and sums of
 * many packets take fewer registers. */
SYMM_DEVICE struct symm_packet symm_port_load_data(const struct symm_packet *from)
{
    struct symm_packet v;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return v;
}

SYMM_DEVICE void symm_port_store_packet(struct symm_packet *to, struct symm_packet v)
{
    const uint64_t low = v.word[0] | (uint64_t)v.word[1] << 32,
                   high = v.word[2] | (uint64_t)v.word[3] << 32;

    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(
                     __cvta_generic_to_global(to)),
                 "l"(low), "l"(high)
                 : "memory");
}

/* A packet of the caller's memory, or zeros; without a branch, so that a load after it is not
 * held up by it, nor it by that load. */
SYMM_DEVICE struct symm_packet symm_port_packet_if(bool when, const void *from)
{
    struct symm_packet v;

    asm volatile("{ .reg .pred p;\n"
                 "setp.ne.u32 p, %5, 0;\n"
                 "mov.u32 %0, 0; mov.u32 %1, 0;\n"
                 "mov.u32 %2, 0; mov.u32 %3, 0;\n"
                 "@p ld.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "=&r"(v.word[0]), "=&r"(v.word[1]), "=&r"(v.word[2]),
                   "=&r"(v.word[3])
                 : "l"(from), "r"((uint32_t)when)
                 : "memory");
    return v;
}

/* Memory of the device that will be loaded soon, and is near from then on. */
SYMM_DEVICE void symm_port_prefetch(const void *from)
{
    asm volatile("prefetch.L2 [%0];" ::"l"(from) : "memory");
}

SYMM_DEVICE uint32_t symm_port_exchange32(uint32_t *word, uint32_t value)
{
    uint32_t old;

    asm volatile("atom.exch.acq_rel.sys.b32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
}

/* Of the device's scope, for blocks of one kernel: docs/memory-model.md, "Orders between GPUs". */
SYMM_DEVICE uint32_t symm_port_add32(uint32_t *word, uint32_t value)
{
    uint32_t old;

    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
}

/* Orders all earlier accesses before all later ones, for every observer. */
SYMM_DEVICE void symm_port_fence(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

SYMM_DEVICE void symm_port_relax(void) {}

/* The multiprocessor's clock in cycles, modulo 2^32. */
SYMM_DEVICE uint32_t symm_port_clock(void)
{
    uint32_t now;

    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

/* Until then on that clock, at most 8,192 cycles ahead. More are left only where the block was
 * preempted and goes on with another clock: it waits no longer. */
SYMM_DEVICE void symm_port_pause(uint32_t then)
{
    while (then - symm_port_clock() - 1 < 8192)
        ;
}

/* Whether `mine` is true in any thread of the block. Is also a __syncthreads. */
SYMM_DEVICE bool symm_port_sync_any(bool mine)
{
    return __syncthreads_or(mine) != 0;
}

/* A __syncthreads of those `threads` threads of the block that name barrier `id`, 1 to 15: whole
 * warps. */
SYMM_DEVICE void symm_port_sync_some(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Nanoseconds; all blocks of a device see one clock. */
SYMM_DEVICE uint64_t symm_port_now(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

/* Programmatic dependent launch: until the kernel before has ended and its writes are seen;
 * and: the next kernel may be scheduled. No effect in a plain launch. */
SYMM_DEVICE void symm_port_dependent_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SYMM_DEVICE void symm_port_dependent_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The value (of 32 or 64 bits) has been computed here: before a wait, not after it. */
template <class T> SYMM_DEVICE void symm_port_settle(T &value)
{
    if constexpr (sizeof(T) == 8)
        asm volatile("" : "+l"(value));
    else
        asm volatile("" : "+r"(value));
}

#endif

/* The block's last act: the host reads it before it gives a channel to another stream. All
 * threads. Cold: graphs never take it. */
SYMM_COLD void symm_kernel_tell(const struct symm_cuda_args &args)
{
    __syncthreads();
    if (threadIdx.x == 0 && args.done)
        symm_port_store32_relaxed(&args.done[blockIdx.x], args.sequence);
}

SYMM_DEVICE void symm_kernel_done(const struct symm_cuda_args &args)
{
    if (args.sequence != 0)
        symm_kernel_tell(args);
}

#endif
