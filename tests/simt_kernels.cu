/* SPDX-License-Identifier: MIT */
/*
 * simt_kernels.cu - small kernels that test the shim and the fake driver; part of the fake
 * driver, never of the library. Their names begin with simt_test_; those that stand for a
 * user's kernels begin with simt_user_.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/port_numbers.cuh"

/* out[i] = sum of all in[] of the block, by shuffles and shared memory. */
SYMM_KERNEL(simt_test_sum)
{
    __shared__ uint32_t part[SIMT_MAX_THREADS / SIMT_WARP];
    const uint32_t *in = (const uint32_t *)args.in + blockIdx.x * blockDim.x;
    uint32_t *out = (uint32_t *)args.out + blockIdx.x * blockDim.x;
    uint32_t sum = in[threadIdx.x];

    for (int flip = 16; flip > 0; flip /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, flip);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++)
        sum += part[w];
    __syncthreads(); /* the next block overwrites part */
    out[threadIdx.x] = sum;
}

/* Groups of 64 threads, and a last warp, that go their own ways: in group g each of args.count rounds
 * adds up what its threads have put into shared memory, by barrier 1 + g. */
SYMM_KERNEL(simt_test_groups)
{
    __shared__ uint32_t part[2][SIMT_MAX_THREADS];
    const uint32_t group = threadIdx.x / 64, first = group * 64;
    uint32_t *out = (uint32_t *)args.out + blockIdx.x * blockDim.x;

    __syncthreads();
    if (threadIdx.x >= blockDim.x - 32)
        return;
    out[threadIdx.x] = 0;
    for (uint32_t round = 0; round < args.count + group; round++) {
        part[round & 1][threadIdx.x] = threadIdx.x * (round + 1);
        symm_port_sync_some(1 + group, 64);
        for (uint32_t t = 0; t < 64; t++)
            out[threadIdx.x] += part[round & 1][first + t];
    }
}

/* What each collective of a warp gives, eight words for each thread. */
SYMM_KERNEL(simt_test_warp)
{
    unsigned lane = threadIdx.x % 32;
    uint64_t *out = (uint64_t *)args.out + 8 * threadIdx.x;
    double half = lane + 0.5;

    out[0] = __shfl_sync(0xffffffffu, threadIdx.x, 5);
    out[1] = __shfl_sync(0xffffffffu, threadIdx.x, 9, 8);
    out[2] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 3);
    out[3] = (uint64_t)(2 * __shfl_sync(0xffffffffu, half, (int)lane + 1));
    out[4] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    out[5] = (uint64_t)__any_sync(0xffffffffu, lane == 31);
    __syncwarp();
    out[6] = (uint64_t)__all_sync(0xffffffffu, lane < 31);
    out[7] = (uint64_t)__shfl_sync(0xffffffffu, (uint64_t)lane << 40, 7);
}

/* Every thread adds one to its peer's word and waits for its own, args.count times: a
 * thread of rank r with the same thread of the other rank. in: own words, out: the peer's. */
SYMM_KERNEL(simt_test_spin)
{
    const uint64_t *own = (const uint64_t *)args.in + threadIdx.x;
    uint64_t *peer = (uint64_t *)args.out + threadIdx.x;

    for (uint64_t round = 1; round <= args.count; round++) {
        __atomic_store_n(peer, round, __ATOMIC_RELEASE);
        while (__atomic_load_n(own, __ATOMIC_ACQUIRE) < round)
            simt_relax();
    }
}

/* One thread of the block waits for the word *in; the others wait for it. */
SYMM_KERNEL(simt_test_wait)
{
    uint32_t *out = (uint32_t *)args.out;

    if (threadIdx.x == 0) {
        while (__atomic_load_n((const uint32_t *)args.in, __ATOMIC_ACQUIRE) != args.tag)
            simt_relax();
    }
    __syncthreads();
    out[threadIdx.x] = args.tag;
}

/* *out = 2 x *in + tag: shows the order of launches. */
SYMM_KERNEL(simt_test_step)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *(uint32_t *)args.out = 2 * *(const uint32_t *)args.in + args.tag;
}

/* ---- Kernels for the model of a device -------------------------------------------- */

/* A kernel of a user: each block lasts args.count nanoseconds, then counts itself in *out. */
SYMM_KERNEL(simt_user_last)
{
    const uint64_t end = simt_time() + args.count;

    if (threadIdx.x != 0)
        return;
    while (simt_time() < end)
        simt_relax();
    if (args.out)
        __atomic_fetch_add((uint32_t *)args.out, 1, __ATOMIC_RELEASE);
}

/* As NCCL's: thread 0 of each block writes args.tag to its word at the peer (out) and waits
 * for its own (in) to become as large, for args.count nanoseconds at most: then *result = 1. */
SYMM_KERNEL(simt_user_meet)
{
    const uint64_t end = simt_time() + args.count;
    const uint32_t *own = (const uint32_t *)args.in + blockIdx.x;

    if (threadIdx.x != 0)
        return;
    __atomic_store_n((uint32_t *)args.out + blockIdx.x, args.tag, __ATOMIC_RELEASE);
    while (__atomic_load_n(own, __ATOMIC_ACQUIRE) < args.tag) {
        if (simt_time() >= end) {
            __atomic_store_n(args.result, 1, __ATOMIC_RELEASE);
            return;
        }
        simt_relax();
    }
}

/* As the library's: each block counts itself in *result (NULL: nowhere) and lets dependents
 * launch; then it waits for *in = args.tag, args.count nanoseconds at most, and counts itself
 * in *out. With args.flags 1 dependents launch at its end. */
SYMM_KERNEL(simt_user_wait)
{
    uint64_t end;

    if (args.result && threadIdx.x == 0)
        __atomic_fetch_add(args.result, 1, __ATOMIC_RELEASE);
    if (args.flags == 0)
        simt_dependent_launch();
    simt_dependent_wait();
    end = simt_time() + args.count;
    if (threadIdx.x == 0) {
        while (__atomic_load_n((const uint32_t *)args.in, __ATOMIC_ACQUIRE) !=
                   args.tag &&
               simt_time() < end)
            simt_relax();
        __atomic_fetch_add((uint32_t *)args.out, 1, __ATOMIC_ACQ_REL);
    }
    if (args.flags != 0)
        simt_dependent_launch();
}

/* Each of args.count times the first warp of each block sends its place in the cluster to all
 * blocks, itself too, and adds what has come. The blocks' threads take steps of their own. */
SYMM_KERNEL(simt_test_cluster)
{
    __shared__ struct {
        float word[2][SYMM_CLUSTER_COPIES];
        struct symm_gate gate[2];
    } shared[SYMM_CLUSTER_COPIES];
    auto &own = shared[symm_cluster_copy()];
    const unsigned lane = threadIdx.x % 32, members = 1u << args.cluster;
    uint32_t *out = (uint32_t *)args.out + blockIdx.x * blockDim.x;
    float sum = 0;

    if (threadIdx.x < 2)
        symm_gate_init(&own.gate[threadIdx.x]);
    __syncthreads();
    symm_cluster_arrive();
    if (threadIdx.x >= 64)
        return; /* has arrived */
    symm_cluster_wait();
    for (uint64_t turn = 0; turn < args.count; turn++) {
        if (threadIdx.x == 0)
            symm_gate_arm(&own.gate[turn & 1], 4 * members);
        if (threadIdx.x < members)
            symm_gate_send(&own, lane, &own.word[turn & 1][symm_cluster_copy()],
                           symm_port_bits((float)(turn + symm_cluster_copy())),
                           &own.gate[turn & 1]);
        symm_gate_wait(&own.gate[turn & 1], turn >> 1 & 1);
        for (unsigned m = 0; m < members; m++)
            sum += own.word[turn & 1][m];
        symm_port_sync_some(1, 64); /* all have read: see symm_norm_rows */
    }
    out[threadIdx.x] = (uint32_t)sum;
}

/* ---- Kernels that break a rule, by args.tag -------------------------------------- */

SYMM_KERNEL(simt_test_broken)
{
    unsigned lane = threadIdx.x % 32;

    switch (args.tag) {
    case 0: /* returns before others have passed */
        if (threadIdx.x == 7)
            return;
        __syncthreads();
        break;
    case 1: /* lanes at different collectives */
        if (lane < 16)
            __syncwarp();
        else
            __any_sync(0xffffffffu, 1);
        break;
    case 2: /* half a mask */
        __syncwarp(0xffffu);
        break;
    case 3: /* a warp in a barrier, the other in a collective that lacks a lane */
        if (lane == 3 || threadIdx.x < 32)
            __syncthreads();
        else
            __syncwarp();
        break;
    case 4: /* threads that do not agree on a barrier's number */
        symm_port_sync_some(3, threadIdx.x < 32 ? 64 : 32);
        break;
    case 5: /* lanes at different barriers */
        symm_port_sync_some(lane < 16 ? 3 : 4, 64);
        break;
    case 6: /* one that no device has */
        symm_port_sync_some(16, 64);
        break;
    case 7: /* half a warp */
        symm_port_sync_some(3, 48);
        break;
    case 8: /* a warp that does not come */
        if (threadIdx.x < 32)
            symm_port_sync_some(3, 64);
        else
            __syncthreads();
        break;
    case 9: /* waits for a cluster in which it has not arrived */
        symm_cluster_wait();
        break;
    case 10: /* arrives twice */
        symm_cluster_arrive();
        symm_cluster_arrive();
        break;
    default: /* for ever */
        for (;;)
            simt_relax();
    }
}
