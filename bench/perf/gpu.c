/* SPDX-License-Identifier: MIT */
/* gpu.c - see gpu.h. */
#include "perf/gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */
#define NO_TIMING    2u /* CU_EVENT_DISABLE_TIMING */
#define RELAXED      2  /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define P2P_ACCESS   2  /* CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED */
#define P2P_ATOMICS  3  /* CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED */

/* X(member, symbol, arguments): the functions used, in the driver's binary interface. */
#define GPU_CALLS(X)                                                                   \
    X(init, "cuInit", (unsigned))                                                      \
    X(driver_version, "cuDriverGetVersion", (int *))                                   \
    X(error_name, "cuGetErrorName", (int, const char **))                              \
    X(device_count, "cuDeviceGetCount", (int *))                                       \
    X(device_get, "cuDeviceGet", (int *, int))                                         \
    X(p2p, "cuDeviceGetP2PAttribute", (int *, int, int, int))                          \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                              \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                  \
    X(set_current, "cuCtxSetCurrent", (void *))                                        \
    X(alloc, "cuMemAlloc_v2", (uint64_t *, size_t))                                    \
    X(free_memory, "cuMemFree_v2", (uint64_t))                                         \
    X(copy, "cuMemcpyAsync", (uint64_t, uint64_t, size_t, void *))                     \
    X(fill, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, void *))              \
    X(stream_create, "cuStreamCreateWithPriority", (void **, unsigned, int))           \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                  \
    X(synchronize, "cuStreamSynchronize", (void *))                                    \
    X(wait_event, "cuStreamWaitEvent", (void *, void *, unsigned))                     \
    X(capture, "cuStreamBeginCapture_v2", (void *, int))                               \
    X(captured, "cuStreamEndCapture", (void *, void **))                               \
    X(instantiate, "cuGraphInstantiateWithFlags", (void **, void *, uint64_t))         \
    X(graph_destroy, "cuGraphDestroy", (void *))                                       \
    X(exec_destroy, "cuGraphExecDestroy", (void *))                                    \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                 \
    X(event_create, "cuEventCreate", (void **, unsigned))                              \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                    \
    X(event_record, "cuEventRecord", (void *, void *))                                 \
    X(event_synchronize, "cuEventSynchronize", (void *))                               \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))

struct perf_gpu {
    void *library;
    int device, version;
    void *stream; /* of copies */
    void *marks[2], *order;
#define GPU_MEMBER(member, symbol, arguments) int(*member) arguments;
    GPU_CALLS(GPU_MEMBER)
#undef GPU_MEMBER
};

static symm_status failed(const struct perf_gpu *gpu, int result, const char *what)
{
    const char *name = NULL;

    if (result == 0)
        return SYMM_OK;
    gpu->error_name(result, &name);
    fprintf(stderr, "symm-perf: GPU %d: %s failed with %s\n", gpu->device, what,
            name ? name : "an unknown error");
    return SYMM_ERR_SYSTEM;
}

static bool find_calls(struct perf_gpu *gpu)
{
    void *found;

    /* dlsym returns void *; POSIX allows copying it into a function pointer. */
#define GPU_FIND(member, symbol, arguments)                                            \
    found = dlsym(gpu->library, symbol);                                               \
    if (!found)                                                                        \
        return false;                                                                  \
    memcpy(&gpu->member, &found, sizeof(found));
    GPU_CALLS(GPU_FIND)
#undef GPU_FIND
    return true;
}

static bool take_device(struct perf_gpu *gpu, int local_rank)
{
    void *context = NULL;
    int count = 0;

    if (gpu->init(0) || gpu->device_count(&count) || count < 1 ||
        gpu->device_get(&gpu->device, local_rank % count) ||
        gpu->driver_version(&gpu->version) || gpu->retain(&context, gpu->device))
        return false;
    if (gpu->set_current(context) == 0 &&
        gpu->stream_create(&gpu->stream, NON_BLOCKING, 0) == 0 &&
        gpu->event_create(&gpu->marks[0], 0) == 0 &&
        gpu->event_create(&gpu->marks[1], 0) == 0 &&
        gpu->event_create(&gpu->order, NO_TIMING) == 0)
        return true;
    gpu->release(gpu->device);
    return false;
}

struct perf_gpu *perf_gpu_open(int local_rank)
{
    const char *path = getenv("SYMM_CUDA_LIBRARY");
    struct perf_gpu *gpu = calloc(1, sizeof(*gpu));

    if (!gpu)
        return NULL;
    gpu->library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpu->library && find_calls(gpu) && take_device(gpu, local_rank))
        return gpu;
    free(gpu); /* the driver stays: it cannot be unloaded */
    return NULL;
}

void perf_gpu_close(struct perf_gpu *gpu)
{
    if (!gpu)
        return;
    gpu->stream_destroy(gpu->stream);
    gpu->event_destroy(gpu->marks[0]);
    gpu->event_destroy(gpu->marks[1]);
    gpu->event_destroy(gpu->order);
    gpu->release(gpu->device);
    free(gpu);
}

int perf_gpu_driver(const struct perf_gpu *gpu)
{
    return gpu->version;
}

char perf_gpu_link(const struct perf_gpu *gpu, int from, int to)
{
    int access = 0, atomics = 0, devices[2];

    if (from == to || gpu->device_get(&devices[0], from) ||
        gpu->device_get(&devices[1], to) ||
        gpu->p2p(&access, P2P_ACCESS, devices[0], devices[1]) ||
        gpu->p2p(&atomics, P2P_ATOMICS, devices[0], devices[1]))
        return '-';
    return atomics ? 'A' : access ? 'P' : '-';
}

/* ---- Memory ---------------------------------------------------------------------- */

void *perf_gpu_alloc(struct perf_gpu *gpu, size_t bytes)
{
    uint64_t address = 0;

    if (failed(gpu, gpu->alloc(&address, bytes ? bytes : 1), "cuMemAlloc"))
        return NULL;
    if (perf_gpu_fill(gpu, (void *)(uintptr_t)address, 0, bytes)) {
        gpu->free_memory(address);
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void perf_gpu_free(struct perf_gpu *gpu, void *memory)
{
    if (memory)
        gpu->free_memory((uintptr_t)memory);
}

symm_status perf_gpu_copy_later(struct perf_gpu *gpu, void *dst, const void *src,
                                size_t bytes, void *stream)
{
    if (bytes == 0)
        return SYMM_OK;
    return failed(gpu, gpu->copy((uintptr_t)dst, (uintptr_t)src, bytes, stream),
                  "cuMemcpyAsync");
}

symm_status perf_gpu_fill_later(struct perf_gpu *gpu, void *dst, int byte, size_t bytes,
                                void *stream)
{
    if (bytes == 0)
        return SYMM_OK;
    return failed(gpu, gpu->fill((uintptr_t)dst, (unsigned char)byte, bytes, stream),
                  "cuMemsetD8Async");
}

symm_status perf_gpu_copy(struct perf_gpu *gpu, void *dst, const void *src,
                          size_t bytes)
{
    if (perf_gpu_copy_later(gpu, dst, src, bytes, gpu->stream))
        return SYMM_ERR_SYSTEM;
    return bytes ? perf_gpu_wait(gpu, gpu->stream) : SYMM_OK;
}

symm_status perf_gpu_fill(struct perf_gpu *gpu, void *dst, int byte, size_t bytes)
{
    if (perf_gpu_fill_later(gpu, dst, byte, bytes, gpu->stream))
        return SYMM_ERR_SYSTEM;
    return bytes ? perf_gpu_wait(gpu, gpu->stream) : SYMM_OK;
}

/* ---- Streams, graphs, marks ------------------------------------------------------ */

symm_status perf_gpu_wait(struct perf_gpu *gpu, void *stream)
{
    return failed(gpu, gpu->synchronize(stream), "cuStreamSynchronize");
}

symm_status perf_gpu_fork(struct perf_gpu *gpu, void *before, void *const *after,
                          int count)
{
    if (failed(gpu, gpu->event_record(gpu->order, before), "cuEventRecord"))
        return SYMM_ERR_SYSTEM;
    for (int i = 0; i < count; i++)
        if (after[i] &&
            failed(gpu, gpu->wait_event(after[i], gpu->order, 0), "cuStreamWaitEvent"))
            return SYMM_ERR_SYSTEM;
    return SYMM_OK;
}

symm_status perf_gpu_order(struct perf_gpu *gpu, void *before, void *after)
{
    return perf_gpu_fork(gpu, before, &after, 1);
}

symm_status perf_gpu_capture(struct perf_gpu *gpu, void *stream)
{
    return failed(gpu, gpu->capture(stream, RELAXED), "cuStreamBeginCapture");
}

symm_status perf_gpu_captured(struct perf_gpu *gpu, void *stream, void **graph)
{
    void *captured = NULL;
    int result;

    if (failed(gpu, gpu->captured(stream, &captured), "cuStreamEndCapture"))
        return SYMM_ERR_SYSTEM;
    result = gpu->instantiate(graph, captured, 0);
    gpu->graph_destroy(captured);
    return failed(gpu, result, "cuGraphInstantiate");
}

symm_status perf_gpu_replay(struct perf_gpu *gpu, void *graph, void *stream)
{
    return failed(gpu, gpu->graph_launch(graph, stream), "cuGraphLaunch");
}

void perf_gpu_graph_free(struct perf_gpu *gpu, void *graph)
{
    if (graph)
        gpu->exec_destroy(graph);
}

symm_status perf_gpu_mark(struct perf_gpu *gpu, int which, void *stream)
{
    return failed(gpu, gpu->event_record(gpu->marks[which], stream), "cuEventRecord");
}

symm_status perf_gpu_elapsed(struct perf_gpu *gpu, double *microseconds)
{
    float milliseconds = 0;

    if (failed(gpu, gpu->event_synchronize(gpu->marks[1]), "cuEventSynchronize") ||
        failed(gpu, gpu->event_elapsed(&milliseconds, gpu->marks[0], gpu->marks[1]),
               "cuEventElapsedTime"))
        return SYMM_ERR_SYSTEM;
    *microseconds = (double)milliseconds * 1e3;
    return SYMM_OK;
}
