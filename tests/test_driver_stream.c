/* SPDX-License-Identifier: MIT */
/*
 * test_driver_stream.c - the fake CUDA driver's streams, events, launches, copies, words in memory
 * that streams write and wait for, and captured graphs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "kernels/cuda_launch.h"

/* A context with two streams, an event, some words, and the kernel out = 2 x in + tag. */
struct fixture {
    struct driver d;
    const struct symm_cuda_driver *cu;
    CUstream a, b;
    CUevent event;
    CUmodule module;
    CUfunction step;
    CUdeviceptr words;
    volatile uint32_t *word; /* the same memory */
};

static int open_fixture(struct fixture *f, unsigned flags)
{
    static const uint32_t image[4] = {0xba55ed50u};
    static const uint32_t no_image[4] = {1};

    CHECK_ZERO(driver_start(&f->d));
    f->cu = f->d.cu;
    CHECK_CU(f->cu->cuStreamCreateWithPriority(&f->a, flags, 0));
    CHECK_CU(f->cu->cuStreamCreateWithPriority(&f->b, flags, -1));
    CHECK_CU(f->cu->cuEventCreate(&f->event, CU_EVENT_DISABLE_TIMING));
    CHECK_CUDA(f->cu->cuModuleLoadData(&f->module, no_image), CUDA_ERROR_INVALID_IMAGE);
    CHECK_CU(f->cu->cuModuleLoadData(&f->module, image));
    CHECK_CUDA(f->cu->cuModuleGetFunction(&f->step, f->module, "no_such_kernel"),
               CUDA_ERROR_NOT_FOUND);
    CHECK_CUDA(f->cu->cuModuleGetFunction(&f->step, f->module, "malloc"),
               CUDA_ERROR_NOT_FOUND);
    CHECK_CU(f->cu->cuModuleGetFunction(&f->step, f->module, "simt_test_step"));
    CHECK_CU(f->cu->cuMemAlloc(&f->words, 4096));
    f->word = (volatile uint32_t *)(uintptr_t)f->words;
    memset((void *)(uintptr_t)f->words, 0, 4096);
    return 0;
}

static int close_fixture(struct fixture *f)
{
    CHECK_CU(f->cu->cuCtxSynchronize());
    CHECK_CU(f->cu->cuMemFree(f->words));
    CHECK_CU(f->cu->cuModuleUnload(f->module));
    CHECK_CU(f->cu->cuEventDestroy(f->event));
    CHECK_CU(f->cu->cuStreamDestroy(f->a));
    CHECK_CU(f->cu->cuStreamDestroy(f->b));
    CHECK_CU(f->cu->cuDevicePrimaryCtxRelease(0));
    CHECK(f->d.leaks(stderr) == 0);
    return 0;
}

static CUresult launch(struct fixture *f, CUstream stream, int from, int to,
                       uint32_t tag)
{
    struct symm_cuda_args args = {
        .in = (const uint32_t *)(uintptr_t)f->words + from,
        .out = (uint32_t *)(uintptr_t)f->words + to,
        .tag = tag,
    };
    CUlaunchAttribute attribute = {
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    void *params[] = {&args};
    CUresult result = f->cu->cuLaunchKernelEx(&config, f->step, params, NULL);

    memset(&args, 0xff, sizeof(args)); /* the launch has taken its copy */
    return result;
}

static CUdeviceptr at(const struct fixture *f, int word)
{
    return f->words + 4 * (CUdeviceptr)word;
}

/* ---- Order ----------------------------------------------------------------------- */

struct noted {
    struct fixture *f;
    uint32_t seen;
    CUresult inside;
};

static void CUDA_CB note(void *arg)
{
    struct noted *noted = arg;
    CUdeviceptr memory;

    noted->seen = noted->f->word[0];
    noted->inside = noted->f->cu->cuMemAlloc(&memory, 8);
}

static int order(void *arg)
{
    struct fixture f;
    struct noted noted = {.f = &f};
    uint32_t host = 5, back = 0;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CU(f.cu->cuStreamWaitValue32(f.a, at(&f, 100), 3, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_CU(f.cu->cuMemcpyAsync(f.words, (CUdeviceptr)(uintptr_t)&host, 4, f.a));
    host = 1000; /* pageable memory has been read */
    for (uint32_t i = 1; i <= 8; i++)
        CHECK_CU(launch(&f, f.a, 0, 0, i));
    CHECK_CU(f.cu->cuLaunchHostFunc(f.a, note, &noted));
    CHECK_CU(f.cu->cuMemsetD8Async(at(&f, 1), 7, 4, f.a));
    CHECK_CU(f.cu->cuEventRecord(f.event, f.a));
    CHECK_CU(f.cu->cuStreamWaitEvent(f.b, f.event, 0));
    CHECK_CU(f.cu->cuMemcpyAsync(at(&f, 2), at(&f, 0), 4, f.b));
    CHECK_CUDA(f.cu->cuEventQuery(f.event), CUDA_ERROR_NOT_READY);
    CHECK_CUDA(f.cu->cuStreamQuery(f.b), CUDA_ERROR_NOT_READY);
    harness_sleep(0.02);
    CHECK(f.word[0] == 0 && f.word[1] == 0 && f.word[2] == 0);
    CHECK_CU(f.cu->cuStreamWriteValue32(NULL, at(&f, 100), 4, 0));
    CHECK_CU(f.cu->cuEventSynchronize(f.event));
    CHECK_CU(f.cu->cuStreamSynchronize(f.b));
    CHECK_CU(f.cu->cuStreamQuery(f.a));
    CHECK(f.word[0] == 5 * 256 + 502 && f.word[1] == 0x07070707u);
    CHECK(f.word[2] == f.word[0] && noted.seen == f.word[0]);
    CHECK(noted.inside == CUDA_ERROR_NOT_PERMITTED);
    CHECK_CU(f.cu->cuMemcpyAsync((CUdeviceptr)(uintptr_t)&back, f.words, 4, f.a));
    CHECK(back == f.word[0]); /* pageable memory has been written */
    return close_fixture(&f);
}

/* A destroyed stream finishes its work; the host may write the awaited word. */
static int destroyed(void *arg)
{
    struct fixture f;
    CUstream stream;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CU(f.cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(f.cu->cuStreamWaitValue32(stream, at(&f, 1), 9, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(f.cu->cuStreamWriteValue32(stream, at(&f, 2), 77, 0));
    CHECK_CU(f.cu->cuStreamDestroy(stream));
    CHECK(f.word[2] == 0);
    __atomic_store_n(&f.word[1], 9, __ATOMIC_RELEASE);
    return close_fixture(&f) /* which waits for it: the memory may go */;
}

/* The NULL stream and blocking streams wait for each other; others do not. */
static int legacy(void *arg)
{
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 0));
    CHECK_CU(f.cu->cuStreamWaitValue32(f.a, at(&f, 9), 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(f.cu->cuStreamWriteValue32(f.a, at(&f, 0), 3, 0));
    CHECK_CU(launch(&f, NULL, 0, 1, 1));
    CHECK_CU(f.cu->cuMemcpyAsync(at(&f, 2), at(&f, 1), 4, f.b));
    CHECK_CUDA(f.cu->cuStreamQuery(f.b), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&f.word[9], 1, __ATOMIC_RELEASE);
    CHECK_CU(f.cu->cuStreamSynchronize(f.b));
    CHECK(f.word[1] == 7 && f.word[2] == 7);
    return close_fixture(&f);
}

static int wait_flags(void *arg)
{
    static const struct {
        unsigned flags;
        uint32_t value, bad, good;
    } cases[] = {
        {CU_STREAM_WAIT_VALUE_GEQ, 0xfffffffeu, 0xfffffff0u, 3},
        {CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
        {CU_STREAM_WAIT_VALUE_AND, 4, 3, 12},
        {CU_STREAM_WAIT_VALUE_NOR, 0xf0f0f0f0u, 0x0f0f0f0fu, 0x0e0f0f0fu},
    };
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        f.word[0] = cases[i].bad;
        CHECK_CU(
            f.cu->cuStreamWaitValue32(f.a, f.words, cases[i].value, cases[i].flags));
        harness_sleep(0.01);
        CHECK_CUDA(f.cu->cuStreamQuery(f.a), CUDA_ERROR_NOT_READY);
        __atomic_store_n(&f.word[0], cases[i].good, __ATOMIC_RELEASE);
        CHECK_CU(f.cu->cuStreamSynchronize(f.a));
    }
    CHECK_CUDA(f.cu->cuStreamWaitValue32(f.a, f.words + 2, 0, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(f.cu->cuStreamWaitValue32(f.a, f.words, 0, CU_STREAM_WAIT_VALUE_FLUSH),
               CUDA_ERROR_NOT_SUPPORTED);
    return close_fixture(&f);
}

/* Handles come back, ids do not. */
static int ids(void *arg)
{
    unsigned long long id, last = 0;
    CUstream stream, first = NULL;
    bool again = false;
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 50; i++) {
        CHECK_CU(f.cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
        CHECK_CU(f.d.stream_id(stream, &id));
        CHECK(id > last);
        last = id;
        again = again || stream == first;
        first = i == 0 ? stream : first;
        CHECK_CU(launch(&f, stream, 0, 0, 1));
        CHECK_CU(f.cu->cuStreamSynchronize(stream));
        CHECK_CU(f.cu->cuStreamDestroy(stream));
        CHECK_CU(f.cu->cuCtxSynchronize());
    }
    CHECK(again);
    CHECK_CU(f.d.stream_id(NULL, &id));
    CHECK_CU(f.d.stream_id(CU_STREAM_LEGACY, &last));
    CHECK(id == last);
    CHECK_CU(f.d.stream_id(f.a, &last));
    CHECK(id != last);
    return close_fixture(&f);
}

struct own {
    struct fixture *f;
    CUcontext context;
    unsigned long long id;
    int result;
};

static void *use_own(void *arg)
{
    struct own *own = arg;
    const struct symm_cuda_driver *cu = own->f->cu;

    own->result = cu->cuCtxSetCurrent(own->context) ||
                  own->f->d.stream_id(CU_STREAM_PER_THREAD, &own->id) ||
                  cu->cuStreamWriteValue32(CU_STREAM_PER_THREAD, at(own->f, 1), 5, 0) ||
                  cu->cuStreamSynchronize(CU_STREAM_PER_THREAD);
    return NULL;
}

/* Each thread's default stream is another one; it waits for the NULL stream, too. */
static int per_thread(void *arg)
{
    struct fixture f;
    struct own own = {.f = &f};
    unsigned long long id;
    pthread_t thread;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CU(f.cu->cuCtxGetCurrent(&own.context));
    CHECK(pthread_create(&thread, NULL, use_own, &own) == 0);
    pthread_join(thread, NULL);
    CHECK(own.result == 0 && f.word[1] == 5);
    CHECK_CU(f.d.stream_id(CU_STREAM_PER_THREAD, &id));
    CHECK(id != own.id);
    CHECK_CU(f.cu->cuStreamWaitValue32(NULL, at(&f, 9), 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(f.cu->cuStreamWriteValue32(CU_STREAM_PER_THREAD, at(&f, 0), 3, 0));
    harness_sleep(0.01);
    CHECK(f.word[0] == 0);
    __atomic_store_n(&f.word[9], 1, __ATOMIC_RELEASE);
    CHECK_CU(f.cu->cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK(f.word[0] == 3);
    return close_fixture(&f);
}

/* Three rows of two words, each four words after the one before, come together behind each other;
 * also captured. What a device refuses. */
static int rows(void *arg)
{
    struct fixture f;
    CUgraph graph;
    CUgraphExec exec;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstPitch = 8,
                          .WidthInBytes = 8,
                          .Height = 3};

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    copy.srcDevice = at(&f, 1);
    copy.dstDevice = at(&f, 100);
    for (uint32_t i = 0; i < 16; i++)
        f.word[i] = i;
    CHECK_CU(f.cu->cuMemcpy2DAsync(&copy, f.a));
    CHECK_CU(f.cu->cuStreamSynchronize(f.a));
    for (uint32_t i = 0; i < 6; i++)
        CHECK(f.word[100 + i] == 1 + i / 2 * 4 + i % 2);
    CHECK(f.word[99] == 0 && f.word[106] == 0);
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(f.cu->cuMemcpy2DAsync(&copy, f.a));
    CHECK_CU(f.d.end_capture(f.a, &graph));
    CHECK_CU(f.d.instantiate(&exec, graph, 0));
    for (uint32_t round = 1; round <= 2; round++) {
        f.word[10] = round;
        CHECK_CU(f.d.graph_launch(exec, f.a));
        CHECK_CU(f.cu->cuStreamSynchronize(f.a));
        CHECK(f.word[105] == round);
    }
    CHECK_CU(f.d.exec_destroy(exec));
    CHECK_CU(f.d.graph_destroy(graph));
    copy.WidthInBytes = 12; /* more than rows lie apart */
    CHECK_CUDA(f.cu->cuMemcpy2DAsync(&copy, f.a), CUDA_ERROR_INVALID_VALUE);
    copy.WidthInBytes = 8;
    copy.srcPitch = 1001; /* FAKE_CUDA_PITCH */
    CHECK_CUDA(f.cu->cuMemcpy2DAsync(&copy, f.a), CUDA_ERROR_INVALID_VALUE);
    copy.Height = 0;
    CHECK_CU(f.cu->cuMemcpy2DAsync(&copy, f.a));
    return close_fixture(&f);
}

/* The last row read is the first one written. */
static int bad_rows(void *arg)
{
    struct fixture f;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstPitch = 16,
                          .WidthInBytes = 8,
                          .Height = 3};

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    copy.srcDevice = at(&f, 0);
    copy.dstDevice = at(&f, 8);
    return f.cu->cuMemcpy2DAsync(&copy, f.a) == CUDA_SUCCESS;
}

static void test_rows(void **state)
{
    static const char *const settings[] = {"FAKE_CUDA_PITCH=1000", NULL};

    (void)state;
    assert_int_equal(driver_lives(rows, NULL, settings), 0);
    assert_int_equal(driver_dies(bad_rows, NULL, NULL, "overlap"), 0);
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(order, NULL, NULL), 0);
    assert_int_equal(driver_lives(destroyed, NULL, NULL), 0);
    assert_int_equal(driver_lives(legacy, NULL, NULL), 0);
    assert_int_equal(driver_lives(wait_flags, NULL, NULL), 0);
    assert_int_equal(driver_lives(ids, NULL, NULL), 0);
    assert_int_equal(driver_lives(per_thread, NULL, NULL), 0);
}

/* ---- Capture --------------------------------------------------------------------- */

/* a forks to b and is joined by it; three launches of the graph. */
static int capture(void *arg)
{
    struct fixture f;
    CUgraph graph;
    CUgraphExec exec;
    CUevent join;
    CUstreamCaptureStatus status;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CU(f.cu->cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(f.cu->cuStreamIsCapturing(f.a, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CU(launch(&f, f.a, 0, 0, 1));
    CHECK_CU(f.cu->cuEventRecord(f.event, f.a));
    CHECK_CU(f.cu->cuStreamWaitEvent(f.b, f.event, 0));
    CHECK_CU(f.cu->cuStreamIsCapturing(f.b, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CU(f.cu->cuMemcpyAsync(at(&f, 1), at(&f, 0), 4, f.b));
    CHECK_CU(f.cu->cuEventRecord(join, f.b));
    CHECK_CU(f.cu->cuStreamWaitEvent(f.a, join, 0));
    CHECK_CU(launch(&f, f.a, 1, 2, 0));
    CHECK_CU(f.d.end_capture(f.a, &graph));
    CHECK(f.word[0] == 0); /* nothing has run */
    CHECK_CUDA(f.cu->cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
    CHECK_CUDA(f.cu->cuStreamWaitEvent(f.b, join, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(f.d.instantiate(&exec, graph, 0));
    CHECK_CU(f.d.graph_destroy(graph));
    for (int i = 0; i < 3; i++)
        CHECK_CU(f.d.graph_launch(exec, i % 2 ? f.a : f.b));
    CHECK_CU(f.cu->cuCtxSynchronize());
    for (int i = 0; i < 2; i++) /* launches on two streams have no order */
        CHECK_CU(f.d.graph_launch(exec, f.a));
    CHECK_CU(f.d.exec_destroy(exec)); /* those that are queued still run */
    CHECK_CU(f.cu->cuStreamSynchronize(f.a));
    CHECK(f.word[0] >= 7 && f.word[1] == f.word[0] && f.word[2] == 2 * f.word[1]);
    CHECK_CU(f.cu->cuEventDestroy(join));
    return close_fixture(&f);
}

static int capture_errors(void *arg)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    struct fixture f;
    CUgraph graph;
    CUdeviceptr memory;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CUDA(f.d.end_capture(f.a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_CUDA(f.d.begin_capture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
               CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* an allocation ends a capture, unless the thread has said that it knows */
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(f.cu->cuThreadExchangeStreamCaptureMode(&relaxed));
    CHECK(relaxed == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_CU(f.cu->cuMemAlloc(&memory, 8));
    CHECK_CU(f.cu->cuMemFree(memory));
    CHECK_CU(f.cu->cuThreadExchangeStreamCaptureMode(&relaxed));
    CHECK_CUDA(f.cu->cuMemAlloc(&memory, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CU(f.cu->cuStreamIsCapturing(f.a, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_CUDA(launch(&f, f.a, 0, 0, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CUDA(f.d.end_capture(f.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    /* so does waiting for the stream */
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CUDA(f.cu->cuStreamSynchronize(f.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CUDA(f.d.end_capture(f.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* and an event from outside */
    CHECK_CU(f.cu->cuEventRecord(f.event, f.b));
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CUDA(f.cu->cuStreamWaitEvent(f.a, f.event, 0),
               CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CHECK_CUDA(f.d.end_capture(f.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* b has work that a never waits for */
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_CU(f.cu->cuEventRecord(f.event, f.a));
    CHECK_CU(f.cu->cuStreamWaitEvent(f.b, f.event, 0));
    CHECK_CU(launch(&f, f.b, 0, 0, 1));
    CHECK_CUDA(f.d.end_capture(f.b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    CHECK_CUDA(f.d.end_capture(f.a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK_CU(f.cu->cuStreamIsCapturing(f.b, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(f.word[0] == 0);
    return close_fixture(&f);
}

/* The NULL stream must not meet a blocking stream that is captured. */
static int capture_legacy(void *arg)
{
    CUstreamCaptureStatus status;
    struct fixture f;
    CUgraph graph;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 0));
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CUDA(launch(&f, NULL, 0, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_CUDA(f.cu->cuStreamIsCapturing(NULL, &status),
               CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_CU(f.d.end_capture(f.a, &graph));
    CHECK_CU(f.d.graph_destroy(graph));
    return close_fixture(&f);
}

static void CUDA_CB count_one(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* A user object is destroyed with the last of the graph, what was made of it, and launches. */
static int user_object(void *arg)
{
    _Atomic int destroyed_objects = 0;
    CUuserObject object;
    CUgraphExec exec;
    CUgraph graph;
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    CHECK_CU(f.d.object_create(&object, &destroyed_objects, count_one, 1,
                               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK_CU(f.d.begin_capture(f.a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(launch(&f, f.a, 0, 0, 1));
#if CUDA_VERSION >= 12040
    CUresult (*info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                     const CUgraphNode **, const CUgraphEdgeData **, size_t *) =
        (__typeof__(info))driver_symbol(&f.d, "cuStreamGetCaptureInfo_v3");
    CUstreamCaptureStatus status;
    CUgraph captured;

    CHECK_CU(info(f.a, &status, NULL, &captured, NULL, NULL, NULL));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_CU(f.d.retain_object(captured, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_CU(f.d.end_capture(f.a, &graph));
    CHECK(captured == graph);
#else
    CHECK_CU(f.d.end_capture(f.a, &graph));
    CHECK_CU(f.d.retain_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
#endif
    CHECK_CU(f.d.instantiate(&exec, graph, 0));
    CHECK_CU(f.d.graph_destroy(graph));
    CHECK_CU(f.cu->cuStreamWaitValue32(f.b, at(&f, 9), 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(f.d.graph_launch(exec, f.b));
    CHECK_CU(f.d.exec_destroy(exec));
    harness_sleep(0.01);
    CHECK(destroyed_objects == 0);
    __atomic_store_n(&f.word[9], 1, __ATOMIC_RELEASE);
    CHECK_CU(f.cu->cuCtxSynchronize());
    CHECK(f.word[0] == 1);
    CHECK(harness_until(&destroyed_objects, 1));
    return close_fixture(&f);
}

static void test_capture(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(capture, NULL, NULL), 0);
    assert_int_equal(driver_lives(capture_errors, NULL, NULL), 0);
    assert_int_equal(driver_lives(capture_legacy, NULL, NULL), 0);
    assert_int_equal(driver_lives(user_object, NULL, NULL), 0);
}

/* ---- Launches and contexts ------------------------------------------------------- */

static int contexts(void *arg)
{
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1};
    struct symm_cuda_args args = {0};
    void *params[] = {&args};
    struct fixture f;
    CUcontext other;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, CU_STREAM_NON_BLOCKING));
    config.gridDimX = 0;
    CHECK_CUDA(f.cu->cuLaunchKernelEx(&config, f.step, params, NULL),
               CUDA_ERROR_INVALID_VALUE);
    config.gridDimX = 1;
    config.blockDimX = 1056;
    CHECK_CUDA(f.cu->cuLaunchKernelEx(&config, f.step, params, NULL),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(f.cu->cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_CU(f.cu->cuCtxPushCurrent(other));
    CHECK_CUDA(launch(&f, f.a, 0, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CUDA(f.cu->cuStreamSynchronize(f.a), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CUDA(f.cu->cuEventRecord(f.event, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CU(f.cu->cuCtxPopCurrent(NULL));
    CHECK_CU(f.cu->cuCtxPushCurrent(NULL) == CUDA_ERROR_INVALID_CONTEXT
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_UNKNOWN);
    CHECK_CU(f.cu->cuDevicePrimaryCtxRelease(1));
    CHECK_CU(launch(&f, f.a, 0, 0, 1));
    CHECK_CU(f.cu->cuStreamSynchronize(f.a));
    CHECK(f.word[0] == 1);
    return close_fixture(&f);
}

static void test_contexts(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(contexts, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_contexts),
    };

    if (HARNESS_TSAN)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
