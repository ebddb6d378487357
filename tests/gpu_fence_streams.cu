/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence_streams.cu - litmus tests: what a stream has done at a peer before it writes a token
 * in memory of the host, for which the peer's stream waits. As symm/cuda/one_sided.c queues it.
 * gpu_fence.h says what a way is.
 */
#include <dlfcn.h>

#include <cuda.h>

#include "gpu_fence.h"

enum by { BY_KERNEL, BY_ENGINE };

typedef CUresult word_call(CUstream stream, CUdeviceptr word, cuuint32_t value,
                           unsigned flags);

/* From the driver that the runtime has loaded. */
static word_call *driver_call(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *call = driver ? dlsym(driver, name) : nullptr;

    if (!call) {
        fprintf(stderr, "gpu_fence: the driver has no %s\n", name);
        exit(2);
    }
    return (word_call *)call;
}

static void write_token(cudaStream_t stream, unsigned *token, unsigned value,
                        unsigned flags)
{
    static word_call *const call = driver_call("cuStreamWriteValue32_v2");

    if (call(stream, (CUdeviceptr)token, value, flags) != CUDA_SUCCESS)
        refused = true;
}

static void await_token(cudaStream_t stream, unsigned *token, bool flush)
{
    static word_call *const call = driver_call("cuStreamWaitValue32_v2");
    unsigned flags = CU_STREAM_WAIT_VALUE_EQ;

    if (flush)
        flags |= CU_STREAM_WAIT_VALUE_FLUSH;
    if (call(stream, (CUdeviceptr)token, 1, flags) != CUDA_SUCCESS)
        refused = true;
}

/* BLOCKS x LINES / BLOCKS threads. */
static __global__ void write_lines(symm_packet *to, const unsigned *number)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    to[i] = line_of(*number, i);
}

static way token(const char *name, enum role role, enum queue queue, enum by by,
                 unsigned flags)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_lines, BLOCKS, LINES / BLOCKS,
               m.gpu[by == BY_KERNEL].lines, (const unsigned *)own.number);
        if (by == BY_ENGINE)
            CUDA(cudaMemcpyAsync(m.gpu[1].lines, own.lines, LINES * sizeof(symm_packet),
                                 cudaMemcpyDeviceToDevice, own.stream));
        write_token(own.stream, m.token, 1, flags);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        await_token(own.stream, m.token, own.flush);
        launch(own.stream, false, check_lines, 1, LINES, (const symm_packet *)own.lines,
               (const unsigned *)own.number, 0u, own.result);
        write_token(own.stream, m.token, 0, CU_STREAM_WRITE_VALUE_DEFAULT);
    };

    return {name, role, ASLEEP, queue, false, FILL_LINES, send, receive};
}

orderings orderings_of_streams(void)
{
    const unsigned fenced = CU_STREAM_WRITE_VALUE_DEFAULT,
                   bare = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

    return {
        {"a stream's write behind what it did at a peer",
         {
             token("stream: copy engine | write", RELIED_ON, STREAM, BY_ENGINE, fenced),
             token("graph: copy engine | write", RELIED_ON, GRAPH, BY_ENGINE, fenced),
             token("stream: stores | write", RELIED_ON, STREAM, BY_KERNEL, fenced),
             token("graph: stores | write", RELIED_ON, GRAPH, BY_KERNEL, fenced),
             token("stream: stores | write, no barrier", WEAKENED_UNSEEN, STREAM,
                   BY_KERNEL, bare),
             token("graph: stores | write, no barrier", WEAKENED, GRAPH, BY_KERNEL,
                   bare),
             token("graph: copy engine | write, no barrier", WEAKENED_UNSEEN, GRAPH,
                   BY_ENGINE, bare),
         }},
    };
}
