/* SPDX-License-Identifier: MIT */
/*
 * gpu_torture.cu - all-reduces in replayed graphs, with random delays, every result checked
 * bit for bit on the device. One rank of a job (symmrun -n N -- gpu_torture ...).
 *
 * Each graph holds calls of random sizes, dtypes, algorithms and offsets, the same on all
 * ranks. Before each call a kernel writes new inputs, made from a counter in device memory,
 * and waits a random time, different on each rank. After the call a kernel compares the
 * result and at once overwrites input and output with NaNs (0xff bytes), so that a peer that
 * still reads them, or a kernel that reuses a slot too early, gives a wrong sum. Inputs are
 * small integers: every order of summation is right, every lost, doubled or stale input is
 * wrong.
 *
 * --stores: instead tests that stores at a peer are visible after the next collective. Each
 * call: every rank stores lines into all others' memory, by a kernel of this program that
 * ends with a fence, to the next rank at times by symm_put; an all_reduce, all_gather or
 * barrier; then each rank checks the lines. Sometimes the links get time to fall asleep:
 * stores wake them, and may arrive 100 us late (tests/gpu_fence.cu).
 * --unordered: the stores run concurrently with the collective.
 *
 *   --calls N       per rank (1000000)      --max-bytes B  of one call (1048576)
 *   --seed S        equal on all ranks (1)  --algorithm A  instead of a random one
 *   --delay NS      at most (2000)          --graphs G     different ones (24)
 *   --deadline S    of a call (20)
 *   --stores        see above               --unordered    see above
 *   --expect-wrong  exit status 0 if a wrong result or a failed call was seen: for planted
 *                   bugs
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <unistd.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "symm/symm.h"

#define CALLS_A_GRAPH 50
#define ASLEEP        60000 /* us; links sleep after 50 ms */

struct options {
    long calls = 1000000;
    size_t max_bytes = 1 << 20;
    uint64_t seed = 1;
    unsigned delay = 2000;
    int graphs = 24;
    const char *algorithm = nullptr;
    double timeout = 20;
    bool expect_wrong = false, stores = false, unordered = false;
};

struct counters { /* in device memory */
    unsigned long long call, wrong, first_wrong, first_index;
    unsigned long long first_rank, first_found; /* of stores: whose, of which call */
};

struct plan { /* of one call */
    size_t count;
    symm_dtype dtype;
    bool in_place, private_in, private_out;
    const char *algorithm;
};

struct rank {
    symm_ctx *ctx;
    symm_team *team;
    int me, n;
    char *symmetric[4], *own[2]; /* in, out; of stores: inboxes, in, out */
    symm_buffer *buffers[4];
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    counters *counter;
    long captured, replaced; /* calls; those whose algorithm could not do them */
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "gpu_torture: %s: %s\n", what, why);
    exit(2);
}

#define CUDA(call)                                                                     \
    do {                                                                               \
        cudaError_t cuda_error = (call);                                               \
        if (cuda_error != cudaSuccess)                                                 \
            die(#call, cudaGetErrorString(cuda_error));                                \
    } while (0)
#define SYMM(call)                                                                     \
    do {                                                                               \
        if ((call) != SYMM_OK)                                                         \
            die(#call, symm_last_error());                                             \
    } while (0)

/* ---- On the device --------------------------------------------------------------- */

__device__ uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* -4 .. 4: eight of them stay exact in bfloat16. */
__device__ int value(uint64_t call, int rank, size_t index)
{
    return (int)(mixed(call * 64 + (uint64_t)rank + index * 0x100000001b3ull) % 9) - 4;
}

template <typename T> __device__ T encoded(int value)
{
    return T((float)value);
}
template <> __device__ int32_t encoded<int32_t>(int value)
{
    return value;
}

template <typename T> __device__ bool same_bits(const T &a, const T &b)
{
    const char *x = (const char *)&a, *y = (const char *)&b;
    bool same = true;

    for (size_t i = 0; i < sizeof(T); i++)
        same &= x[i] == y[i];
    return same;
}

__device__ void wait_random(uint64_t call, int rank, unsigned delay)
{
    uint64_t begin, now,
        wait = delay ? mixed(call * 977 + (uint64_t)rank * 31) % delay : 0;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < wait);
}

template <typename T>
__global__ void write_input(T *in, size_t count, int rank, unsigned delay,
                            const counters *counter)
{
    uint64_t call = counter->call;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        in[i] = encoded<T>(value(call, rank, i));
    if (threadIdx.x == 0 && blockIdx.x == 0)
        wait_random(call, rank, delay);
}

template <typename T>
__global__ void check_output(T *in, T *out, size_t count, int ranks, counters *counter)
{
    uint64_t call = counter->call;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        int sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += value(call, r, i);
        T want = encoded<T>(sum), found = out[i];
        /* -0 and +0 are one value here: inputs have only +0 */
        if (!same_bits(want, found) && atomicAdd(&counter->wrong, 1ull) == 0) {
            counter->first_wrong = call;
            counter->first_index = i;
        }
        memset(&out[i], 0xff, sizeof(T));
        memset(&in[i], 0xff, sizeof(T));
    }
}

/* Line i of what a rank stores in a call. */
__device__ uint4 stored(uint64_t call, int rank, size_t i)
{
    uint64_t bits = mixed(call * 64 + (uint64_t)rank + i * 0x100000001b3ull);

    return make_uint4((unsigned)bits, (unsigned)(bits >> 32), (unsigned)call,
                      (unsigned)i);
}

struct places { /* in the memory of each rank, or of one: NULL */
    uint4 *at[8];
};

/* The same lines to all places, after a random time. */
__global__ void store_lines(places to, size_t lines, int rank, unsigned delay,
                            const counters *counter)
{
    uint64_t call = counter->call;

    wait_random(call, rank, delay);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < lines;
         i += (size_t)gridDim.x * blockDim.x)
        for (int m = 0; m < 8; m++)
            if (to.at[m])
                to.at[m][i] = stored(call, rank, i);
    __threadfence_system();
}

/* Row r, `room` lines apart, is what rank r has stored. */
__global__ void check_lines(const uint4 *from, size_t room, size_t lines, int rank,
                            int ranks, counters *counter)
{
    uint64_t call = counter->call;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < lines;
         i += (size_t)gridDim.x * blockDim.x)
        for (int r = 0; r < ranks; r++) {
            uint4 want = stored(call, r, i), found = from[(size_t)r * room + i];
            if (r != rank && !same_bits(want, found) &&
                atomicAdd(&counter->wrong, 1ull) == 0) {
                counter->first_wrong = call;
                counter->first_index = i;
                counter->first_rank = (unsigned long long)r;
                counter->first_found = found.z;
            }
        }
}

__global__ void next_call(counters *counter)
{
    counter->call++;
}

/* ---- Calls ----------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static plan make_plan(const options &o, uint64_t *random)
{
    static const char *const algorithms[] = {
        nullptr,         nullptr,         "copy_in",
        "one_shot_pull", "two_shot_pull", "two_shot_inplace",
        "ll_push",       "lamport_push",  "two_shot_push"};
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_BFLOAT16, SYMM_FLOAT16,
                                        SYMM_FLOAT32, SYMM_INT32};
    uint64_t r = random_next(random);
    plan p;
    size_t element;
    double scale = (double)(r % 1000) / 1000.0, most;

    p.dtype = dtypes[r / 1000 % 5];
    element = symm_dtype_size(p.dtype);
    most = (double)o.max_bytes / 8;
    size_t bytes = 8;
    for (double b = 1; b < most && scale > 0; b *= 2, scale -= 1.0 / 17)
        bytes *= 2;
    bytes = bytes > o.max_bytes ? o.max_bytes : bytes;
    p.count =
        bytes / element - (r / 5000 % 4 ? 0 : random_next(random) % (bytes / element));
    p.in_place = r / 20000 % 4 == 0;
    p.private_in = r / 80000 % 4 == 0;
    p.private_out = r / 320000 % 4 == 0;
    p.algorithm = o.algorithm ? o.algorithm : algorithms[random_next(random) % 9];
    return p;
}

template <typename T> static void issue(const options &o, rank &r, const plan &p)
{
    int blocks = (int)((p.count + 1023) / 1024), me = r.me;
    T *out = (T *)(p.private_out ? r.own[1] : r.symmetric[1]);
    T *in = p.in_place ? out : (T *)(p.private_in ? r.own[0] : r.symmetric[0]);
    symm_call call = {};

    blocks = blocks > 64 ? 64 : blocks;
    call.size = sizeof(call);
    call.site = "torture";
    call.stream = r.stream;
    call.algorithm = p.algorithm;
    call.timeout = o.timeout;
    r.captured++;
    write_input<T><<<blocks, 256, 0, r.stream>>>(in, p.count, me, o.delay, r.counter);
    symm_status status =
        symm_all_reduce(r.team, in, out, p.count, p.dtype, SYMM_SUM, &call, nullptr);
    if (status == SYMM_ERR_INVALID && p.algorithm) { /* not for this size or place */
        call.algorithm = nullptr;
        r.replaced++;
        status = symm_all_reduce(r.team, in, out, p.count, p.dtype, SYMM_SUM, &call,
                                 nullptr);
    }
    if (status != SYMM_OK && o.expect_wrong) {
        printf("rank %d of %d: seen: %s\n", me, r.n, symm_last_error());
        exit(0);
    }
    if (status != SYMM_OK)
        die("symm_all_reduce", symm_last_error());
    check_output<T><<<blocks, 256, 0, r.stream>>>(in, out, p.count, r.n, r.counter);
    next_call<<<1, 1, 0, r.stream>>>(r.counter);
    CUDA(cudaGetLastError());
}

static void issue_any(const options &o, rank &r, const plan &p)
{
    switch (p.dtype) {
    case SYMM_BFLOAT16:
        return issue<__nv_bfloat16>(o, r, p);
    case SYMM_FLOAT16:
        return issue<__half>(o, r, p);
    case SYMM_FLOAT32:
        return issue<float>(o, r, p);
    default:
        return issue<int32_t>(o, r, p);
    }
}

/* ---- Stores ---------------------------------------------------------------------- */

/* Those of a call, into the inbox of its parity, of which each rank owns a row. */
static size_t issue_stores(const options &o, rank &r, uint64_t *random, size_t parity,
                           size_t room)
{
    uint64_t bits = random_next(random);
    size_t lines = ((size_t)1 << bits % 17) + bits / 32 % 64;
    unsigned blocks = 1 + (unsigned)(bits / 2048 % 132);
    int next = (r.me + 1) % r.n;
    bool put = bits / 1048576 % 2;
    symm_call call = {};
    places to = {};

    lines = lines < room ? lines : room;
    for (int m = 0; m < r.n; m++)
        if (m != r.me)
            to.at[m] = (uint4 *)symm_buffer_peer_ptr(r.buffers[parity], m) +
                       (size_t)r.me * room;
    if (put) { /* the next rank's by the library, from own memory */
        to.at[next] = (uint4 *)r.own[parity];
        blocks = blocks > 64 ? 64 : blocks;
    }
    store_lines<<<blocks, 256, 0, o.unordered ? r.side : r.stream>>>(
        to, lines, r.me, o.delay, r.counter);
    call.size = sizeof(call);
    call.site = "stores";
    call.stream = o.unordered ? r.side : r.stream;
    if (put)
        SYMM(symm_put(r.team, r.symmetric[parity] + (size_t)r.me * room * 16,
                      r.own[parity], lines * 16, next, &call, nullptr));
    return lines;
}

/* An all_reduce, most of them such as wait for the least, an all_gather or a barrier. */
static void issue_collective(const options &o, rank &r, uint64_t *random)
{
    static const char *const algorithms[] = {"lamport_push", "ll_push", nullptr,
                                             "two_shot_push", "two_shot_inplace"};
    uint64_t bits = random_next(random);
    const unsigned which = o.algorithm ? 0 : (unsigned)(bits / 64 % 8);
    size_t count = bits % 3 ? 4 : 32768;
    symm_call call = {};
    symm_status status;

    call.size = sizeof(call);
    call.site = "behind stores";
    call.stream = r.stream;
    call.timeout = o.timeout;
    if (which < 5) {
        call.algorithm = o.algorithm ? o.algorithm : algorithms[which];
        status = symm_all_reduce(r.team, r.symmetric[2], r.symmetric[3], count,
                                 SYMM_FLOAT32, SYMM_SUM, &call, nullptr);
    } else if (which < 7) {
        status = symm_all_gather(r.team, r.symmetric[2], r.symmetric[3], count,
                                 SYMM_FLOAT32, &call, nullptr);
    } else {
        status = symm_barrier(r.team, &call, nullptr);
    }
    if (status != SYMM_OK)
        die("the collective behind stores", symm_last_error());
}

/* Two inboxes: who stores into one has passed the call in which the other was filled, before
 * which its owner had looked at this one. */
static void issue_with_stores(const options &o, rank &r, uint64_t *random, int parity)
{
    const size_t room = o.max_bytes / 16 / (size_t)r.n;
    size_t lines;
    unsigned blocks;

    if (o.unordered) {
        CUDA(cudaEventRecord(r.fork, r.stream));
        CUDA(cudaStreamWaitEvent(r.side, r.fork, 0));
    }
    lines = issue_stores(o, r, random, (size_t)parity, room);
    issue_collective(o, r, random);
    if (o.unordered) {
        CUDA(cudaEventRecord(r.join, r.side));
        CUDA(cudaStreamWaitEvent(r.stream, r.join, 0));
    }
    blocks = lines < 64 * 1024 ? (unsigned)(lines + 1023) / 1024 : 64;
    check_lines<<<blocks, 256, 0, r.stream>>>((const uint4 *)r.symmetric[parity], room,
                                              lines, r.me, r.n, r.counter);
    next_call<<<1, 1, 0, r.stream>>>(r.counter);
    CUDA(cudaGetLastError());
    r.captured++;
}

/* Graphs of different lengths: odd numbers of calls, too; but of stores, which alternate. */
static cudaGraphExec_t capture(const options &o, rank &r, uint64_t *random, int *calls)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    *calls = CALLS_A_GRAPH - (int)(random_next(random) % 8);
    *calls &= o.stores ? ~1 : ~0;
    CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < *calls; i++) {
        if (o.stores)
            issue_with_stores(o, r, random, i % 2);
        else
            issue_any(o, r, make_plan(o, random));
    }
    CUDA(cudaStreamEndCapture(r.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* ---- The rank -------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void open_rank(const options &o, rank *r)
{
    const char *local = getenv("LOCAL_RANK");
    int64_t shape = (int64_t)o.max_bytes, stride = 1;
    int devices = 0;
    double begin;

    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(local ? atoi(local) % devices : 0));
    CUDA(cudaFree(nullptr)); /* the context exists, and is the thread's */
    begin = seconds();
    SYMM(symm_init(nullptr, &r->ctx));
    r->team = symm_team_world(r->ctx);
    r->me = symm_team_rank(r->team);
    r->n = symm_team_size(r->team);
    for (int i = 0; i < 4; i++) {
        SYMM(symm_empty_strided_p2p(r->team, 1, &shape, &stride, SYMM_UINT8,
                                    (uint64_t)i + 1, &r->buffers[i]));
        r->symmetric[i] = (char *)symm_buffer_ptr(r->buffers[i]);
    }
    SYMM(symm_rendezvous(r->team));
    SYMM(symm_all_reduce(r->team, r->symmetric[0], r->symmetric[1], 8, SYMM_INT32,
                         SYMM_SUM, nullptr, nullptr));
    CUDA(cudaStreamSynchronize(nullptr));
    if (r->me == 0)
        printf("symm_init to the end of the first all-reduce: %.3f s\n",
               seconds() - begin);
    for (int i = 0; i < 2; i++)
        CUDA(cudaMalloc(&r->own[i], o.max_bytes));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&r->side, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&r->fork, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&r->join, cudaEventDisableTiming));
    CUDA(cudaMalloc(&r->counter, sizeof(*r->counter)));
    CUDA(cudaMemset(r->counter, 0, sizeof(*r->counter)));
    CUDA(cudaDeviceSynchronize());
}

static unsigned long long torture(const options &o, rank *r, long *done)
{
    uint64_t random = o.seed;
    cudaGraphExec_t *graphs = new cudaGraphExec_t[(size_t)o.graphs];
    int *calls = new int[(size_t)o.graphs];
    counters result = {};

    for (int g = 0; g < o.graphs; g++)
        graphs[g] = capture(o, *r, &random, &calls[g]);
    for (*done = 0; *done < o.calls;) {
        int g = (int)(random_next(&random) % (uint64_t)o.graphs);
        CUDA(cudaGraphLaunch(graphs[g], r->stream));
        *done += calls[g];
        if (!o.stores && random_next(&random) % 16 == 0) { /* beside the graphs */
            issue_any(o, *r, make_plan(o, &random));
            ++*done;
        }
        if (random_next(&random) % (o.stores ? 16 : 64) == 0) {
            CUDA(cudaStreamSynchronize(r->stream));
            if (o.stores)
                usleep(ASLEEP);
        }
    }
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaMemcpy(&result, r->counter, sizeof(result), cudaMemcpyDeviceToHost));
    if (result.call != (unsigned long long)*done)
        die("the device", "has not made as many calls as the host has launched");
    if (result.wrong && o.stores)
        fprintf(
            stderr,
            "gpu_torture: rank %d: call %llu, line %llu of rank %llu is that of call "
            "%llu\n",
            r->me, result.first_wrong, result.first_index, result.first_rank,
            result.first_found);
    else if (result.wrong)
        fprintf(stderr, "gpu_torture: rank %d: call %llu, element %llu is wrong\n",
                r->me, result.first_wrong, result.first_index);
    for (int g = 0; g < o.graphs; g++)
        CUDA(cudaGraphExecDestroy(graphs[g]));
    delete[] graphs;
    delete[] calls;
    return result.wrong;
}

static options parse(int argc, char **argv)
{
    options o;

    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        if (strcmp(flag, "--expect-wrong") == 0) {
            o.expect_wrong = true;
            continue;
        }
        if (strcmp(flag, "--stores") == 0 || strcmp(flag, "--unordered") == 0) {
            o.stores = true;
            o.unordered |= strcmp(flag, "--unordered") == 0;
            continue;
        }
        const char *text = i + 1 < argc ? argv[++i] : nullptr;
        if (text && strcmp(flag, "--calls") == 0)
            o.calls = atol(text);
        else if (text && strcmp(flag, "--max-bytes") == 0)
            o.max_bytes = (size_t)atoll(text);
        else if (text && strcmp(flag, "--seed") == 0)
            o.seed = (uint64_t)atoll(text);
        else if (text && strcmp(flag, "--delay") == 0)
            o.delay = (unsigned)atol(text);
        else if (text && strcmp(flag, "--graphs") == 0)
            o.graphs = atoi(text);
        else if (text && strcmp(flag, "--deadline") == 0)
            o.timeout = atof(text);
        else if (text && strcmp(flag, "--algorithm") == 0)
            o.algorithm = text;
        else
            die(flag, "unknown, or without a value");
    }
    if (o.max_bytes < 1 << 20 && o.stores)
        die("--max-bytes", "--stores needs 1048576");
    if (o.max_bytes < 64 || o.graphs < 1 || o.calls < 1)
        die("--max-bytes, --graphs, --calls", "too small");
    return o;
}

int main(int argc, char **argv)
{
    options o = parse(argc, argv);
    rank r = {};
    long done = 0;

    open_rank(o, &r);
    unsigned long long wrong = torture(o, &r, &done);
    if (o.expect_wrong && wrong == 0 &&
        symm_barrier(r.team, nullptr, nullptr) != SYMM_OK)
        wrong = 1; /* a kernel of a graph has reported a failure */
    printf("rank %d of %d: %ld %s, %llu wrong %s; %ld different calls, %ld by another "
           "algorithm than asked for\n",
           r.me, r.n, done, o.stores ? "collectives behind stores" : "all-reduces",
           wrong, o.stores ? "lines" : "elements", r.captured, r.replaced);
    for (int i = 0; i < 4; i++)
        symm_buffer_release(r.buffers[i]);
    for (int i = 0; i < 2; i++)
        CUDA(cudaFree(r.own[i]));
    CUDA(cudaFree(r.counter));
    CUDA(cudaEventDestroy(r.fork));
    CUDA(cudaEventDestroy(r.join));
    CUDA(cudaStreamDestroy(r.stream));
    CUDA(cudaStreamDestroy(r.side));
    symm_finalize(r.ctx);
    return (wrong != 0) == o.expect_wrong ? 0 : 1;
}
