/* SPDX-License-Identifier: MIT */
/*
 * gpu_exchange.cu - exchanges (symm/device_exchange.h) in replayed graphs, with random delays;
 * every unit of every rank is checked on the device. One rank of a job
 * (symmrun -n N -- gpu_exchange ...).
 *
 * Units are hashes of the exchange's number, the rank and the unit, so a lost or stale unit is
 * wrong. The number is counted in device memory. Kernels have random sizes and grids and
 * one to four exchanges each. Ranks wait a random time before a kernel and between two waits.
 *
 *   --kernels N     launches for each rank (20000)
 *   --mismatch      the last kernel has another tag on rank 0: every rank must get
 *                   SYMM_ERR_MISMATCH
 *   --expect-wrong  exit status 0 if a wrong unit or a failure was seen: for planted bugs
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#include "symm/device_exchange.h"
#include "symm/symm.h"

#define ROOM    65536u
#define GRAPHS  16
#define KERNELS 50 /* of a graph */
#define TAG     77u

struct counters { /* in device memory */
    unsigned long long exchange, wrong, failed;
};

struct rank {
    symm_ctx *ctx;
    symm_team *team;
    const symm_device_team *device_team;
    symm_buffer *workspace;
    cudaStream_t stream;
    counters *counter;
    int me, size;
};

#define CHECK(good, why)                                                               \
    do {                                                                               \
        if (!(good)) {                                                                 \
            fprintf(stderr, "gpu_exchange: %s: %s\n", #good, why);                     \
            exit(2);                                                                   \
        }                                                                              \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess, cudaGetErrorString(cudaGetLastError()))
#define SYMM(call) CHECK((call) == SYMM_OK, symm_last_error())

/* ---- On the device --------------------------------------------------------------- */

__host__ __device__ static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

__device__ static uint64_t unit_of(uint64_t exchange, int rank, uint32_t unit)
{
    return mixed(mixed(exchange * 8 + (uint64_t)rank) + unit);
}

/* Nanoseconds; by one thread in 64, of some exchanges. */
__device__ static void delay(uint64_t bits)
{
    const uint64_t wait = bits % 64 == 0 ? bits / 64 % 4000 : 0;
    uint64_t begin, now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < wait);
}

template <int SIZE>
__global__ void exchange(const symm_device_team *team, void *workspace, uint32_t rows,
                         uint32_t width, uint32_t repeat, uint32_t tag,
                         counters *counter)
{
    const symm_device_exchange x = {workspace, ROOM, 0, 0, 0, tag, 0};
    const uint64_t first = counter->exchange;
    const int me = team->rank, size = team->size;
    const uint64_t own = mixed(first * 1024 + threadIdx.x) + (uint64_t)me;

    delay(mixed(own));
    for (uint32_t k = 0; k < repeat; k++) {
        const int status = symm_device_exchange_rows<SIZE>(
            team, x, rows, width,
            [&](uint32_t row, uint32_t column) {
                return unit_of(first + k, me, row * width + column);
            },
            [&](uint32_t row, uint32_t column, const uint64_t *value) {
                delay(mixed(own + row * width + column));
                for (int r = 0; r < (SIZE ? SIZE : size); r++)
                    if (value[r] != unit_of(first + k, r, row * width + column))
                        atomicAdd(&counter->wrong, 1ull);
            });

        if (status != 0) {
            atomicAdd(&counter->failed, 1ull);
            return; /* in all threads of the block */
        }
    }
}

__global__ void count(counters *counter, uint32_t repeat)
{
    counter->exchange += repeat;
}

/* ---- The rank -------------------------------------------------------------------- */

static void open_rank(rank *r)
{
    const char *local = getenv("LOCAL_RANK");
    const void *team;
    size_t bytes;
    int devices = 0;

    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(local ? atoi(local) % devices : 0));
    CUDA(cudaFree(nullptr));
    SYMM(symm_init(nullptr, &r->ctx));
    r->team = symm_team_world(r->ctx);
    r->me = symm_team_rank(r->team);
    r->size = symm_team_size(r->team);
    SYMM(symm_team_device(r->team, &team));
    r->device_team = (const symm_device_team *)team;
    bytes = symm_device_exchange_bytes(r->size, ROOM);
    SYMM(symm_buffer_alloc(r->team, bytes, &r->workspace));
    SYMM(symm_rendezvous(r->team));
    CUDA(cudaMemset(symm_buffer_ptr(r->workspace), 0, bytes));
    CUDA(cudaMalloc(&r->counter, sizeof(*r->counter)));
    CUDA(cudaMemset(r->counter, 0, sizeof(*r->counter)));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CUDA(cudaDeviceSynchronize());
    SYMM(symm_barrier(r->team, nullptr, nullptr));
    CUDA(cudaDeviceSynchronize());
}

/* A kernel whose shape follows from `bits`, which are the same on all ranks. */
static void issue(rank *r, uint64_t bits, uint32_t tag)
{
    const uint32_t width = 1 + (uint32_t)(bits >> 8 & 1023);
    const uint32_t rows = (uint32_t)(bits >> 20 & 15) * (uint32_t)(bits >> 24 & 3);
    const uint32_t repeat = 1 + (uint32_t)(bits >> 28 & 3);
    const unsigned blocks = 1 + (unsigned)(bits >> 32 & 31);
    const unsigned threads = 32u << (bits >> 40) % 5;
    void *at = symm_buffer_ptr(r->workspace);

    if (r->size == 2)
        exchange<2><<<blocks, threads, 0, r->stream>>>(r->device_team, at, rows, width,
                                                       repeat, tag, r->counter);
    else if (r->size == 8)
        exchange<8><<<blocks, threads, 0, r->stream>>>(r->device_team, at, rows, width,
                                                       repeat, tag, r->counter);
    else
        exchange<0><<<blocks, threads, 0, r->stream>>>(r->device_team, at, rows, width,
                                                       repeat, tag, r->counter);
    count<<<1, 1, 0, r->stream>>>(r->counter, repeat);
    CUDA(cudaGetLastError());
}

static void replay(rank *r, long kernels)
{
    cudaGraphExec_t graphs[GRAPHS];
    uint64_t random = 1;

    for (int g = 0; g < GRAPHS; g++) {
        cudaGraph_t graph;

        CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < KERNELS; i++)
            issue(r, random = mixed(random), TAG);
        CUDA(cudaStreamEndCapture(r->stream, &graph));
        CUDA(cudaGraphInstantiate(&graphs[g], graph, 0));
        CUDA(cudaGraphDestroy(graph));
    }
    for (long done = 0; done < kernels; done += KERNELS) {
        random = mixed(random);
        CUDA(cudaGraphLaunch(graphs[random % GRAPHS], r->stream));
        if (random / GRAPHS % 4 == 0)
            issue(r, random, TAG); /* beside the graphs */
        if (random / GRAPHS / 4 % 8 == 0)
            CUDA(cudaStreamSynchronize(r->stream));
    }
    CUDA(cudaStreamSynchronize(r->stream));
    for (int g = 0; g < GRAPHS; g++)
        CUDA(cudaGraphExecDestroy(graphs[g]));
}

int main(int argc, char **argv)
{
    bool expect_wrong = false, mismatch = false, good;
    long kernels = 20000;
    counters seen = {};
    symm_status status;
    rank r = {};

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--expect-wrong") == 0)
            expect_wrong = true;
        else if (strcmp(argv[i], "--mismatch") == 0)
            mismatch = true;
        else if (strcmp(argv[i], "--kernels") == 0 && i + 1 < argc)
            kernels = atol(argv[++i]);
        else
            CHECK(!"an option", argv[i]);
    open_rank(&r);
    replay(&r, kernels);
    if (mismatch && r.size > 1) {
        issue(&r, 1, r.me == 0 ? TAG + 1 : TAG);
        CUDA(cudaStreamSynchronize(r.stream));
    }
    CUDA(cudaMemcpy(&seen, r.counter, sizeof(seen), cudaMemcpyDeviceToHost));
    status = symm_barrier(r.team, nullptr, nullptr);
    printf("rank %d of %d: %llu exchanges, %llu units wrong, %llu threads failed%s%s\n",
           r.me, r.size, seen.exchange, seen.wrong, seen.failed,
           status == SYMM_OK ? "" : ": ", status == SYMM_OK ? "" : symm_last_error());
    if (expect_wrong)
        good = seen.wrong != 0 || status != SYMM_OK;
    else if (mismatch && r.size > 1)
        good = seen.wrong == 0 && seen.failed != 0 && status == SYMM_ERR_MISMATCH;
    else
        good = seen.wrong == 0 && seen.failed == 0 && status == SYMM_OK;
    symm_buffer_release(r.workspace);
    symm_finalize(r.ctx);
    return good ? 0 : 1;
}
