/* SPDX-License-Identifier: MIT */
/*
 * test_driver_model.c - the fake driver's model of a device, with bare kernels: which blocks
 * fit, which are resident by dependent launch, what blocks a hardware queue. The shapes were
 * measured on H200, with 4 multiprocessors in place of 132.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "kernels/cuda_launch.h"

#define PROCESSORS 4
#define STREAMS    40
#define SECOND     1000000000u
#define QUIET      0.1 /* seconds in which what can run has run: else a test is weaker */

/* Device 0, with its streams and words. */
struct fixture {
    struct driver d;
    const struct symm_cuda_driver *cu;
    CUmodule module;
    CUfunction last, wait, meet;
    CUdeviceptr words;
    uint32_t *word; /* the same memory */
    CUstream stream[STREAMS];
};

enum { GATE = 0, WAITED = 1, DONE = 2, BEGUN = 3 }; /* words */

static int open_fixture(struct fixture *f, int streams)
{
    static const uint32_t image[4] = {0xba55ed50u};

    memset(f, 0, sizeof(*f));
    CHECK_ZERO(driver_start(&f->d));
    f->cu = f->d.cu;
    CHECK_CU(f->cu->cuModuleLoadData(&f->module, image));
    CHECK_CU(f->cu->cuModuleGetFunction(&f->last, f->module, "simt_user_last"));
    CHECK_CU(f->cu->cuModuleGetFunction(&f->wait, f->module, "simt_user_wait"));
    CHECK_CU(f->cu->cuModuleGetFunction(&f->meet, f->module, "simt_user_meet"));
    CHECK_CU(f->cu->cuMemAlloc(&f->words, 4096));
    f->word = (uint32_t *)(uintptr_t)f->words;
    memset(f->word, 0, 4096);
    for (int i = 0; i < streams; i++)
        CHECK_CU(f->cu->cuStreamCreateWithPriority(&f->stream[i],
                                                   CU_STREAM_NON_BLOCKING, 0));
    return 0;
}

static int close_fixture(struct fixture *f)
{
    CHECK_CU(f->cu->cuCtxSynchronize());
    CHECK_CU(f->cu->cuMemFree(f->words));
    CHECK_CU(f->cu->cuModuleUnload(f->module));
    for (int i = 0; i < STREAMS && f->stream[i]; i++)
        CHECK_CU(f->cu->cuStreamDestroy(f->stream[i]));
    CHECK_CU(f->cu->cuDevicePrimaryCtxRelease(0));
    CHECK(f->d.leaks(stderr) == 0);
    return 0;
}

static CUresult launch(const struct fixture *f, CUfunction function, CUstream stream,
                       unsigned blocks, unsigned threads,
                       const struct symm_cuda_args *args, bool dependent)
{
    CUlaunchAttribute attribute = {
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = dependent};
    struct symm_cuda_args copy = *args;
    void *params[] = {&copy};

    return f->cu->cuLaunchKernelEx(&config, function, params, NULL);
}

/* A kernel whose blocks wait until `open_gate`. flags 1: it triggers dependents at its end. */
static CUresult launch_wait(const struct fixture *f, CUstream stream, unsigned blocks,
                            unsigned threads, bool dependent, uint32_t flags)
{
    const struct symm_cuda_args args = {.in = f->word + GATE,
                                        .out = f->word + WAITED,
                                        .result = f->word + BEGUN,
                                        .tag = 1,
                                        .flags = flags,
                                        .count = (uint64_t)60 * SECOND};

    return launch(f, f->wait, stream, blocks, threads, &args, dependent);
}

/* A user's kernel that ends at once. */
static CUresult launch_user(const struct fixture *f, CUstream stream, unsigned blocks,
                            unsigned threads)
{
    const struct symm_cuda_args args = {.out = f->word + DONE};

    return launch(f, f->last, stream, blocks, threads, &args, false);
}

static uint32_t read_word(const struct fixture *f, int which)
{
    return __atomic_load_n(f->word + which, __ATOMIC_ACQUIRE);
}

/* Until so many blocks of waiting kernels are resident; then time for more, if they can be. */
static void await_begun(const struct fixture *f, uint32_t blocks)
{
    while (read_word(f, BEGUN) < blocks)
        harness_sleep(0.001);
    harness_sleep(QUIET);
}

static void open_gate(const struct fixture *f)
{
    __atomic_store_n(f->word + GATE, 1, __ATOMIC_RELEASE);
}

/* ---- Multiprocessors -------------------------------------------------------------- */

/* Waiting kernels of 512 threads a multiprocessor on one stream, of which `resident` fit; a
 * kernel of one block of `threads` on another: does it run beside them? */
struct beside {
    int kernels, resident;
    unsigned threads;
    uint32_t late;
    bool runs;
};

static int dependents(void *arg)
{
    const struct beside *b = arg;
    struct fixture f;

    CHECK_ZERO(open_fixture(&f, 2));
    for (int i = 0; i < b->kernels; i++)
        CHECK_CU(launch_wait(&f, f.stream[0], PROCESSORS, 512, true, b->late));
    await_begun(&f, (uint32_t)b->resident * PROCESSORS);
    CHECK_MESSAGE(read_word(&f, BEGUN) == (uint32_t)b->resident * PROCESSORS,
                  "of %d kernels %u blocks are resident", b->kernels,
                  read_word(&f, BEGUN));
    CHECK_CU(launch_user(&f, f.stream[1], 1, b->threads));
    if (b->runs) {
        CHECK_CU(f.cu->cuStreamSynchronize(f.stream[1]));
    } else {
        harness_sleep(QUIET);
        CHECK_CUDA(f.cu->cuStreamQuery(f.stream[1]), CUDA_ERROR_NOT_READY);
    }
    CHECK(read_word(&f, DONE) == b->runs && read_word(&f, WAITED) == 0);
    CHECK_CUDA(f.cu->cuStreamQuery(f.stream[0]), CUDA_ERROR_NOT_READY);
    open_gate(&f);
    CHECK_CU(f.cu->cuCtxSynchronize());
    CHECK(read_word(&f, DONE) == 1);
    CHECK(read_word(&f, WAITED) == (uint32_t)b->kernels * PROCESSORS);
    return close_fixture(&f);
}

static const char *const model[] = {"FAKE_CUDA_MODEL=1", NULL};

static void test_dependents(void **state)
{
    static struct beside cases[] = {
        {3, 3, 1024, 0, false}, /* as measured */
        {2, 2, 1024, 0, true},  {3, 3, 512, 0, true},  {4, 4, 32, 0, false},
        {9, 4, 32, 0, false},   {9, 2, 1024, 1, true}, /* triggered late */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(driver_lives(dependents, &cases[i], model), 0);
}

/* A kernel that has no room for all of its blocks keeps later ones out, but not those of a
 * higher priority; what ends makes room. */
static int order(void *arg)
{
    struct fixture f;
    CUstream urgent;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 3));
    CHECK_CU(f.cu->cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -1));
    CHECK_CU(launch_wait(&f, f.stream[0], PROCESSORS, 1024, false, 0));
    CHECK_CU(launch_wait(&f, f.stream[1], 2 * PROCESSORS, 640, false, 0));
    await_begun(&f, 2 * PROCESSORS);
    CHECK_CU(launch_user(&f, f.stream[2], 1, 32));
    harness_sleep(QUIET);
    CHECK_CUDA(f.cu->cuStreamQuery(f.stream[2]), CUDA_ERROR_NOT_READY);
    CHECK_CU(launch_user(&f, urgent, 1, 32));
    CHECK_CU(f.cu->cuStreamSynchronize(urgent));
    CHECK(read_word(&f, DONE) == 1);
    CHECK_CUDA(f.cu->cuStreamQuery(f.stream[2]), CUDA_ERROR_NOT_READY);
    open_gate(&f);
    CHECK_CU(f.cu->cuStreamSynchronize(f.stream[2]));
    CHECK_CU(f.cu->cuCtxSynchronize());
    CHECK(read_word(&f, DONE) == 2 && read_word(&f, WAITED) == 3 * PROCESSORS);
    CHECK_CU(f.cu->cuStreamDestroy(urgent));
    return close_fixture(&f);
}

/* A kernel with more blocks than have room runs nevertheless, as long as they end. */
static int waves(void *arg)
{
    struct symm_cuda_args args;
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 1));
    args = (struct symm_cuda_args){.out = f.word + DONE, .count = SECOND / 100};
    CHECK_CU(launch(&f, f.last, f.stream[0], 50, 1024, &args, false));
    CHECK_CU(f.cu->cuStreamSynchronize(f.stream[0]));
    CHECK(read_word(&f, DONE) == 50);
    return close_fixture(&f);
}

/* Registers of the library's kernels: one block of 512 threads and none more. */
static int registers(void *arg)
{
    CUresult (*occupancy)(int *blocks, CUfunction function, int threads, size_t shared);
    CUfunction barrier;
    struct fixture f;
    int blocks = 0;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 0));
    occupancy = (CUresult(*)(int *, CUfunction, int, size_t))driver_symbol(
        &f.d, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    CHECK_CU(f.cu->cuModuleGetFunction(&barrier, f.module, "symm_barrier_copy_in_any"));
    CHECK_CU(occupancy(&blocks, barrier, 512, 0));
    CHECK(blocks == 1);
    CHECK_CU(occupancy(&blocks, barrier, 256, 0));
    CHECK(blocks == 2);
    CHECK_CU(occupancy(&blocks, f.last, 512, 0));
    CHECK(blocks == 4);
    CHECK_CU(occupancy(&blocks, f.last, 32, 0));
    CHECK(blocks == 32);
    return close_fixture(&f);
}

static void CUDA_CB count_one(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* What a graph holds lives until the last kernel that was launched from it has completed. */
static int graph_object(void *arg)
{
    _Atomic int gone = 0;
    CUuserObject object;
    CUgraphExec exec;
    CUgraph graph;
    struct fixture f;

    (void)arg;
    CHECK_ZERO(open_fixture(&f, 1));
    CHECK_CU(f.d.object_create(&object, &gone, count_one, 1,
                               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK_CU(f.d.begin_capture(f.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(launch_wait(&f, f.stream[0], 1, 32, false, 0));
    CHECK_CU(launch_wait(&f, f.stream[0], 1, 32, true, 0));
    CHECK_CU(f.d.end_capture(f.stream[0], &graph));
    CHECK_CU(f.d.retain_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_CU(f.d.instantiate(&exec, graph, 0));
    CHECK_CU(f.d.graph_launch(exec, f.stream[0]));
    CHECK_CU(f.d.exec_destroy(exec));
    CHECK_CU(f.d.graph_destroy(graph));
    harness_sleep(QUIET);
    CHECK(gone == 0 && read_word(&f, WAITED) == 0);
    open_gate(&f);
    CHECK(harness_until(&gone, 1));
    CHECK(read_word(&f, WAITED) == 2);
    return close_fixture(&f);
}

static void test_room(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(order, NULL, model), 0);
    assert_int_equal(driver_lives(waves, NULL, model), 0);
    assert_int_equal(driver_lives(registers, NULL, model), 0);
    assert_int_equal(driver_lives(graph_object, NULL, model), 0);
}

/* ---- Kernels of two devices that wait for each other ------------------------------- */

struct crossed {
    unsigned blocks; /* of each kernel */
    bool crossed, completes;
};

/* As NCCL's: one kernel on each of two streams of two devices. */
static int meet(void *arg)
{
    const struct crossed *c = arg;
    CUstream stream[2][2];
    CUmodule module;
    struct fixture f;
    CUcontext other;
    CUfunction there;

    CHECK_ZERO(open_fixture(&f, 2));
    memcpy(stream[0], f.stream, sizeof(stream[0]));
    CHECK_CU(f.cu->cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_CU(f.cu->cuCtxPushCurrent(other));
    CHECK_CU(f.cu->cuModuleLoadData(&module, (const uint32_t[4]){0xba55ed50u}));
    CHECK_CU(f.cu->cuModuleGetFunction(&there, module, "simt_user_meet"));
    for (int s = 0; s < 2; s++)
        CHECK_CU(
            f.cu->cuStreamCreateWithPriority(&stream[1][s], CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < 4; i++) {
        const int device = i / 2, s = device && c->crossed ? 1 - i % 2 : i % 2;
        struct symm_cuda_args args = {.in = f.word + 64 + 128 * device + 64 * s,
                                      .out = f.word + 64 + 128 * !device + 64 * s,
                                      .result = f.word + DONE,
                                      .tag = 1,
                                      .count = c->completes ? (uint64_t)60 * SECOND
                                                            : SECOND / 2};

        if (device == 0)
            CHECK_CU(f.cu->cuCtxPopCurrent(NULL));
        CHECK_CU(launch(&f, device ? there : f.meet, stream[device][s], c->blocks, 1024,
                        &args, false));
        if (device == 0)
            CHECK_CU(f.cu->cuCtxPushCurrent(other));
    }
    CHECK_CU(f.cu->cuCtxSynchronize());
    for (int s = 0; s < 2; s++)
        CHECK_CU(f.cu->cuStreamDestroy(stream[1][s]));
    CHECK_CU(f.cu->cuModuleUnload(module));
    CHECK_CU(f.cu->cuCtxPopCurrent(NULL));
    CHECK_CU(f.cu->cuCtxSynchronize());
    CHECK_CU(f.cu->cuDevicePrimaryCtxRelease(1));
    CHECK(read_word(&f, DONE) == !c->completes);
    return close_fixture(&f);
}

static void test_crossed(void **state)
{
    static struct crossed cases[] = {
        {PROCESSORS, false,
         true}, /* each fills its device: one block a multiprocessor */
        {PROCESSORS, true, false},
        {PROCESSORS - 1, true, true}, /* block by block */
        {1, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(driver_lives(meet, &cases[i], model), 0);
}

/* ---- Hardware queues -------------------------------------------------------------- */

/* `waiting` streams with a waiting kernel and something after it; then streams with a
 * kernel each, of which `stopped` do not run. */
struct queues {
    int waiting, others, stopped;
    bool behind;
};

static int queues(void *arg)
{
    const struct queues *q = arg;
    int stopped, total = q->waiting + q->others;
    struct fixture f;

    CHECK_ZERO(open_fixture(&f, total));
    for (int i = 0; i < q->waiting; i++) {
        CHECK_CU(launch_wait(&f, f.stream[i], 1, 32, false, 0));
        if (q->behind)
            CHECK_CU(launch_user(&f, f.stream[i], 1, 32));
    }
    for (int i = q->waiting; i < total; i++)
        CHECK_CU(launch_user(&f, f.stream[i], 1, 32));
    harness_sleep(QUIET);
    do { /* a stream is complete some time after its kernel's last store */
        harness_sleep(0.001);
        stopped = 0;
        for (int i = q->waiting; i < total; i++)
            stopped += f.cu->cuStreamQuery(f.stream[i]) == CUDA_ERROR_NOT_READY;
    } while (stopped > q->stopped);
    CHECK_MESSAGE(stopped == q->stopped, "%d of %d streams are stopped, not %d",
                  stopped, q->others, q->stopped);
    open_gate(&f);
    return close_fixture(&f);
}

/* Waits for a word, each followed by an event; a write to another word on one more stream. */
static int words(void *arg)
{
    const struct queues *q = arg;
    struct fixture f;
    CUevent event;

    CHECK_ZERO(open_fixture(&f, q->waiting + 1));
    CHECK_CU(f.cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < q->waiting; i++) {
        CHECK_CU(f.cu->cuStreamWaitValue32(f.stream[i], f.words, 1,
                                           CU_STREAM_WAIT_VALUE_EQ));
        CHECK_CU(f.cu->cuEventRecord(event, f.stream[i]));
    }
    CHECK_CU(
        f.cu->cuStreamWriteValue32(f.stream[q->waiting], f.words + 4 * DONE, 1, 0));
    harness_sleep(QUIET);
    if (q->stopped == 0)
        CHECK_CU(f.cu->cuStreamSynchronize(f.stream[q->waiting]));
    CHECK(read_word(&f, DONE) == (q->stopped == 0));
    open_gate(&f);
    CHECK_CU(f.cu->cuCtxSynchronize());
    CHECK_CU(f.cu->cuEventDestroy(event));
    return close_fixture(&f);
}

static void test_queues(void **state)
{
    static const char *const one[] = {"FAKE_CUDA_MODEL=1",
                                      "CUDA_DEVICE_MAX_CONNECTIONS=1", NULL};
    static const char *const many[] = {"FAKE_CUDA_MODEL=1",
                                       "CUDA_DEVICE_MAX_CONNECTIONS=32", NULL};
    static struct queues cases[] = {
        {8, 1, 1, true}, /* as measured: eight stop every ninth */
        {8, 20, 20, true}, {7, 8, 7, true}, {7, 1, 0, true}, {8, 8, 0, false},
    };
    static struct queues single = {1, 5, 5, true}, alone = {1, 5, 0, false};
    static struct queues wide = {31, 1, 0, true}, full = {32, 1, 1, true};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(driver_lives(queues, &cases[i], model), 0);
    assert_int_equal(driver_lives(queues, &single, one), 0);
    assert_int_equal(driver_lives(queues, &alone, one), 0);
    assert_int_equal(driver_lives(queues, &wide, many), 0);
    assert_int_equal(driver_lives(queues, &full, many), 0);
    assert_int_equal(driver_lives(words, &cases[0], model), 0);
    assert_int_equal(driver_lives(words, &cases[3], model), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dependents),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_crossed),
        cmocka_unit_test(test_queues),
    };

    if (HARNESS_TSAN)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
