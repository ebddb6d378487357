/* SPDX-License-Identifier: MIT */
/*
 * fused_gelu.cu - an example of symm/device_exchange.h, and what fusing brings: all-reduce,
 * bias and GELU as one kernel (fused_gelu.cuh) and as symm_all_reduce with a kernel after it,
 * both in a CUDA graph. One rank of a job: symmrun -n 2 -- fused_gelu [ROWS [COLUMNS]].
 *
 * Every rank checks both results against float64, and prints the time of a call. Exit status
 * 0 if they are right.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "fused_gelu.cuh"
#include "symm/symm.h"

#define THREADS 256
#define CALLS   100 /* of a graph */
#define TAG     0x6e1u

#define CHECK(good, why)                                                               \
    do {                                                                               \
        if (!(good)) {                                                                 \
            fprintf(stderr, "fused_gelu: %s: %s\n", #good, why);                       \
            exit(2);                                                                   \
        }                                                                              \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess, cudaGetErrorString(cudaGetLastError()))
#define SYMM(call) CHECK((call) == SYMM_OK, symm_last_error())

template <int SIZE>
__global__ void __launch_bounds__(THREADS)
    all_reduce_gelu(const __grid_constant__ fused_gelu f)
{
    fused_gelu_run<SIZE>(f);
}

/* The second kernel of the version that is not fused. */
__global__ void bias_gelu(const uint64_t *sum, const uint64_t *bias, uint64_t *out,
                          uint32_t units, uint32_t width)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < units)
        out[i] = gelu_unit<1>(&sum[i], 1, bias[i % width]);
}

struct rank {
    symm_ctx *ctx;
    symm_team *team;
    int me, size;
    fused_gelu fused;
    uint32_t units;
    symm_buffer *workspace, *in, *sum;
    uint64_t *out;
    cudaStream_t stream;
};

static float element(int rank, uint32_t index) /* exact in bfloat16 */
{
    return (float)((index * 2654435761u + (uint32_t)rank * 40503u) >> 16 & 255) / 64 -
           2;
}

static std::vector<uint64_t> units_of(int rank, uint32_t count)
{
    std::vector<uint64_t> units(count);

    for (uint32_t i = 0; i < 4 * count; i++) {
        float value = element(rank, i);
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        units[i / 4] |= (uint64_t)(bits >> 16) << 16 * (i % 4);
    }
    return units;
}

static void open_rank(rank *r, uint32_t rows, uint32_t width)
{
    const char *local = getenv("LOCAL_RANK");
    const void *team;
    uint64_t *bias;
    int devices = 0;

    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(local ? atoi(local) % devices : 0));
    CUDA(cudaFree(nullptr));
    SYMM(symm_init(nullptr, &r->ctx));
    r->team = symm_team_world(r->ctx);
    r->me = symm_team_rank(r->team);
    r->size = symm_team_size(r->team);
    r->units = rows * width;
    const size_t bytes = symm_device_exchange_bytes(r->size, r->units);
    SYMM(symm_buffer_alloc(r->team, bytes, &r->workspace));
    SYMM(symm_buffer_alloc(r->team, 8 * (size_t)r->units, &r->in));
    SYMM(symm_buffer_alloc(r->team, 8 * (size_t)r->units, &r->sum));
    SYMM(symm_rendezvous(r->team));
    SYMM(symm_team_device(r->team, &team));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc(&r->out, 8 * (size_t)r->units));
    CUDA(cudaMalloc(&bias, 8 * (size_t)width));
    r->fused = {(const symm_device_team *)team,
                symm_buffer_ptr(r->workspace),
                r->units,
                rows,
                width,
                TAG,
                (const uint64_t *)symm_buffer_ptr(r->in),
                bias,
                r->out,
                nullptr};
    CUDA(cudaMalloc(&r->fused.failed, sizeof(int)));
    CUDA(cudaMemset(r->fused.failed, 0, sizeof(int)));
    CUDA(cudaMemcpy(symm_buffer_ptr(r->in), units_of(r->me, r->units).data(),
                    8 * (size_t)r->units, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(bias, units_of(63, width).data(), 8 * (size_t)width,
                    cudaMemcpyHostToDevice));
    /* The workspace is zero on all ranks before a rank pushes. */
    CUDA(cudaMemset(r->fused.workspace, 0, bytes));
    CUDA(cudaDeviceSynchronize());
    SYMM(symm_barrier(r->team, nullptr, nullptr));
    CUDA(cudaDeviceSynchronize());
}

static void issue(rank *r, bool fused)
{
    const unsigned wanted = (r->units + THREADS - 1) / THREADS;
    const unsigned blocks = wanted < 1 ? 1 : wanted < 64 ? wanted : 64;
    symm_call call = {};

    call.size = sizeof(call);
    call.site = "fused_gelu";
    call.stream = r->stream;
    if (!fused) {
        SYMM(symm_all_reduce(r->team, r->fused.in, symm_buffer_ptr(r->sum),
                             4 * (size_t)r->units, SYMM_BFLOAT16, SYMM_SUM, &call,
                             nullptr));
        bias_gelu<<<wanted, THREADS, 0, r->stream>>>(
            (const uint64_t *)symm_buffer_ptr(r->sum), r->fused.bias, r->out, r->units,
            r->fused.width);
    } else if (r->size == 2) {
        all_reduce_gelu<2><<<blocks, THREADS, 0, r->stream>>>(r->fused);
    } else if (r->size == 4) {
        all_reduce_gelu<4><<<blocks, THREADS, 0, r->stream>>>(r->fused);
    } else if (r->size == 8) {
        all_reduce_gelu<8><<<blocks, THREADS, 0, r->stream>>>(r->fused);
    } else {
        all_reduce_gelu<0><<<blocks, THREADS, 0, r->stream>>>(r->fused);
    }
    CUDA(cudaGetLastError());
}

/* Microseconds of a call, of the best of 20 replays. */
static double measure(rank *r, bool fused)
{
    cudaEvent_t begin, end;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    float best = 1e30f, took;

    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++)
        issue(r, fused);
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 20; i++) {
        CUDA(cudaEventRecord(begin, r->stream));
        CUDA(cudaGraphLaunch(exec, r->stream));
        CUDA(cudaEventRecord(end, r->stream));
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaEventElapsedTime(&took, begin, end));
        best = took < best ? took : best;
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    return 1000.0 * best / CALLS;
}

/* The elements that are wrong. `rounded`: the sum was rounded to bfloat16 before the bias. */
static size_t count_wrong(rank *r, bool rounded)
{
    std::vector<uint64_t> out(r->units);
    size_t wrong = 0;

    CUDA(cudaMemcpy(out.data(), r->out, 8 * (size_t)r->units, cudaMemcpyDeviceToHost));
    CUDA(cudaMemset(r->out, 0xff, 8 * (size_t)r->units));
    for (uint32_t i = 0; i < 4 * r->units; i++) {
        const uint32_t bits = (uint32_t)(out[i / 4] >> 16 * (i % 4) & 0xffff) << 16;
        double v = element(63, i % (4 * r->fused.width)), sum = 0, slack;
        float got;

        memcpy(&got, &bits, sizeof(got));
        for (int m = 0; m < r->size; m++)
            sum += element(m, i);
        v += sum;
        slack = rounded ? 1.2 * std::fabs(sum) / 256 : 0;
        const double want =
            0.5 * v * (1 + std::tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
        wrong += !(std::fabs(got - want) <= std::fabs(want) / 255 + slack + 1e-6);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    const uint32_t rows = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    const uint32_t columns = argc > 2 ? (uint32_t)atoi(argv[2]) : 8192;
    rank r = {};
    size_t wrong = 0;
    double took[2];

    CHECK(rows > 0 && columns > 0 && columns % 4 == 0, "ROWS COLUMNS, in units of 4");
    open_rank(&r, rows, columns / 4);
    for (int fused = 0; fused < 2; fused++) {
        took[fused] = measure(&r, fused);
        wrong += count_wrong(&r, !fused);
    }
    SYMM(symm_barrier(r.team, nullptr, nullptr)); /* says why, if a kernel has failed */
    CUDA(cudaDeviceSynchronize());
    printf(
        "rank %d of %d: %u x %u bfloat16, %zu wrong; all_reduce, then bias and GELU: "
        "%.2f us; fused: %.2f us\n",
        r.me, r.size, rows, columns, wrong, took[0], took[1]);
    CUDA(cudaFree(r.fused.failed));
    CUDA(cudaFree((void *)r.fused.bias));
    CUDA(cudaFree(r.out));
    CUDA(cudaStreamDestroy(r.stream));
    symm_buffer_release(r.workspace);
    symm_buffer_release(r.in);
    symm_buffer_release(r.sum);
    symm_finalize(r.ctx);
    return wrong != 0;
}
