/* SPDX-License-Identifier: MIT */
/* gpu.c - see gpu.h. */
#include "norm/gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* X(function of cuda.h, symbol) */
#define CALLS(X)                                                                       \
    X(cuInit, "cuInit")                                                                \
    X(cuGetErrorName, "cuGetErrorName")                                                \
    X(cuDeviceGetCount, "cuDeviceGetCount")                                            \
    X(cuDeviceGet, "cuDeviceGet")                                                      \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute")                                    \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                            \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                                              \
    X(cuCtxGetCurrent, "cuCtxGetCurrent")                                              \
    X(cuMemAlloc, "cuMemAlloc_v2")                                                     \
    X(cuMemFree, "cuMemFree_v2")                                                       \
    X(cuMemHostAlloc, "cuMemHostAlloc")                                                \
    X(cuMemFreeHost, "cuMemFreeHost")                                                  \
    X(cuMemcpyAsync, "cuMemcpyAsync")                                                  \
    X(cuMemsetD8Async, "cuMemsetD8Async")                                              \
    X(cuLaunchHostFunc, "cuLaunchHostFunc")                                            \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority")                        \
    X(cuStreamDestroy, "cuStreamDestroy_v2")                                           \
    X(cuStreamSynchronize, "cuStreamSynchronize")                                      \
    X(cuStreamWaitEvent, "cuStreamWaitEvent")                                          \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2")                                 \
    X(cuStreamEndCapture, "cuStreamEndCapture")                                        \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")                      \
    X(cuGraphDestroy, "cuGraphDestroy")                                                \
    X(cuGraphExecDestroy, "cuGraphExecDestroy")                                        \
    X(cuGraphLaunch, "cuGraphLaunch")                                                  \
    X(cuEventCreate, "cuEventCreate")                                                  \
    X(cuEventDestroy, "cuEventDestroy_v2")                                             \
    X(cuEventRecord, "cuEventRecord")                                                  \
    X(cuModuleLoadData, "cuModuleLoadData")                                            \
    X(cuModuleGetFunction, "cuModuleGetFunction")                                      \
    X(cuLaunchKernelEx, "cuLaunchKernelEx")

static struct {
#define MEMBER(function, symbol) __typeof__(&(function)) p_##function;
    CALLS(MEMBER)
#undef MEMBER
    /* cuda.h may rename it; all versions have these arguments */
    CUresult (*elapsed)(float *ms, CUevent first, CUevent last);
    CUdevice device;
    CUstream stream;
} gpu;

static struct {
    atomic_long changes;
    _Atomic(const char *) what;
    double seconds;
} watch;

/* ---- Errors and the watchdog --------------------------------------------------------- */

static void check(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    gpu.p_cuGetErrorName(result, &name);
    fflush(stdout);
    fprintf(stderr, "%s failed with %s, at: %s\n", what, name ? name : "?",
            atomic_load(&watch.what) ? atomic_load(&watch.what) : "the start");
    _exit(3);
}

#define DO(function, ...) check(gpu.p_##function(__VA_ARGS__), #function)

double gpu_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *watch_thread(void *arg)
{
    long seen = -1;
    double since = gpu_clock();

    (void)arg;
    for (;;) {
        const long now = atomic_load(&watch.changes);

        if (now != seen)
            since = gpu_clock();
        seen = now;
        if (gpu_clock() - since > watch.seconds) {
            fflush(stdout);
            fprintf(stderr, "nothing has happened for %g s, at: %s\n", watch.seconds,
                    atomic_load(&watch.what));
            _exit(4);
        }
        usleep(20000);
    }
    return NULL;
}

void gpu_watch(double seconds)
{
    pthread_t thread;

    watch.seconds = seconds;
    gpu_alive("the start");
    if (pthread_create(&thread, NULL, watch_thread, NULL) != 0) {
        fprintf(stderr, "no thread for the watchdog\n");
        _exit(3);
    }
    pthread_detach(thread);
}

void gpu_alive(const char *what)
{
    atomic_store(&watch.what, what);
    atomic_fetch_add(&watch.changes, 1);
}

/* ---- The device ---------------------------------------------------------------------- */

static bool find_calls(void *library)
{
    void *found;

    /* dlsym returns void *; POSIX allows copying it into a function pointer. */
#define FIND(function, symbol)                                                         \
    found = dlsym(library, symbol);                                                    \
    if (!found)                                                                        \
        return false;                                                                  \
    memcpy(&gpu.p_##function, &found, sizeof found);
    CALLS(FIND)
#undef FIND
    found = dlsym(library, "cuEventElapsedTime");
    memcpy(&gpu.elapsed, &found, sizeof found);
    return found != NULL;
}

bool gpu_open(int device)
{
    const char *path = getenv("SYMM_CUDA_LIBRARY");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
    CUcontext context;
    int count = 0;

    if (!library || !find_calls(library) || gpu.p_cuInit(0) != CUDA_SUCCESS ||
        gpu.p_cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1)
        return false;
    DO(cuDeviceGet, &gpu.device, device % count);
    DO(cuDevicePrimaryCtxRetain, &context, gpu.device);
    DO(cuCtxSetCurrent, context);
    gpu.stream = gpu_stream();
    return true;
}

int gpu_processors(void)
{
    int count = 0;

    DO(cuDeviceGetAttribute, &count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
       gpu.device);
    return count;
}

/* ---- Memory -------------------------------------------------------------------------- */

static CUdeviceptr address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

void *gpu_alloc(size_t bytes, int byte)
{
    CUdeviceptr made = 0;

    DO(cuMemAlloc, &made, bytes);
    gpu_fill((void *)(uintptr_t)made, byte, bytes);
    return (void *)(uintptr_t)made;
}

void gpu_free(void *memory)
{
    DO(cuMemFree, address(memory));
}

void *gpu_host(size_t bytes)
{
    void *made = NULL;

    DO(cuMemHostAlloc, &made, bytes,
       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    memset(made, 0, bytes);
    return made;
}

void gpu_host_free(void *memory)
{
    DO(cuMemFreeHost, memory);
}

void gpu_copy_later(void *to, const void *from, size_t bytes, void *stream)
{
    DO(cuMemcpyAsync, address(to), address(from), bytes, stream);
}

void gpu_fill_later(void *to, int byte, size_t bytes, void *stream)
{
    DO(cuMemsetD8Async, address(to), (unsigned char)byte, bytes, stream);
}

void gpu_copy(void *to, const void *from, size_t bytes)
{
    gpu_copy_later(to, from, bytes, gpu.stream);
    gpu_wait(gpu.stream);
}

void gpu_fill(void *to, int byte, size_t bytes)
{
    gpu_fill_later(to, byte, bytes, gpu.stream);
    gpu_wait(gpu.stream);
}

void gpu_call_later(void (*function)(void *arg), void *arg, void *stream)
{
    DO(cuLaunchHostFunc, stream, function, arg);
}

/* ---- Streams, events, graphs --------------------------------------------------------- */

void *gpu_stream(void)
{
    CUstream made = NULL;

    DO(cuStreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, 0);
    return made;
}

void gpu_stream_free(void *stream)
{
    DO(cuStreamDestroy, stream);
}

void gpu_wait(void *stream)
{
    DO(cuStreamSynchronize, stream);
}

void *gpu_event(void)
{
    CUevent made = NULL;

    DO(cuEventCreate, &made, CU_EVENT_DEFAULT);
    return made;
}

void gpu_event_free(void *event)
{
    DO(cuEventDestroy, event);
}

void gpu_mark(void *event, void *stream)
{
    DO(cuEventRecord, event, stream);
}

void gpu_await(void *event, void *stream)
{
    DO(cuStreamWaitEvent, stream, event, 0);
}

double gpu_us(void *first, void *last)
{
    float ms = 0;

    check(gpu.elapsed(&ms, first, last), "cuEventElapsedTime");
    return 1e3 * (double)ms;
}

void gpu_capture(void *stream)
{
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

void *gpu_captured(void *stream)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;

    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphInstantiateWithFlags, &made, graph, 0);
    DO(cuGraphDestroy, graph);
    return made;
}

void gpu_replay(void *graph, void *stream)
{
    DO(cuGraphLaunch, graph, stream);
}

void gpu_graph_free(void *graph)
{
    DO(cuGraphExecDestroy, graph);
}

/* ---- Kernels ------------------------------------------------------------------------- */

void *gpu_module(const void *image, const char *name)
{
    CUmodule made = NULL;

    gpu_alive(name);
    DO(cuModuleLoadData, &made, image);
    return made;
}

void *gpu_function(void *module, const char *name)
{
    CUfunction found = NULL;

    gpu_alive(name);
    DO(cuModuleGetFunction, &found, module, name);
    return found;
}

void gpu_launch(void *function, unsigned blocks, unsigned threads, unsigned cluster,
                bool dependent, void *args, void *stream)
{
    void *parameters[] = {args};
    CUlaunchAttribute attributes[2] = {
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
         .value.clusterDim = {cluster, 1, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
         .value.programmaticStreamSerializationAllowed = 1}};
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = attributes,
                                   .numAttrs = 1u + dependent};

    DO(cuLaunchKernelEx, &config, function, parameters, NULL);
}
