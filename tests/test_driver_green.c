/* SPDX-License-Identifier: MIT */
/*
 * test_driver_green.c - ranks that have a part of a device's multiprocessors: by MPS, a green
 * context or SYMM_PROCESSORS. Grids are made for the smallest part; a stream that has fewer
 * multiprocessors is refused. Ranks that share a device by MPS divide it. On the model of a device
 * (fake_cuda_model.c) a grid that is too large for its part would wait for ever.
 * ctest: cost 6
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "device.h"
#include "driver.h"

#define COUNT   32768 /* elements: a grid of seven eighths of the device */
#define STREAMS 3

#if CUDA_VERSION >= 12040

/* What rank 1 has of its device's 32 multiprocessors. */
struct part {
    bool both;         /* rank 0 has it, too; else it has all */
    const char *share; /* by MPS; NULL: all */
    const char *percent; /* how the environment says so; NULL: it does not */
    bool one;            /* device for both ranks */
    int current; /* in a green context that is current for symm_init; 0: there is none */
    const char *told; /* by SYMM_PROCESSORS; NULL: nothing */
    int stream;       /* of a green context whose streams it uses; 0: its own */
    int expected;     /* what both ranks count on */
    bool refused;
};

/* A green context of the rank's device, and its functions of the driver. */
struct green {
    struct driver d;
    CUgreenCtx handle;
    CUresult (*destroy)(CUgreenCtx);
    CUresult (*create_stream)(CUstream *, CUgreenCtx, unsigned, int);
};

#define TAKE(name) __typeof__(&name) take_##name = driver_symbol(&g->d, #name)

static int green_open(struct green *g, int count, CUcontext *context)
{
    CUdevResource all, part;
    CUdevResourceDesc desc;
    unsigned one = 1;
    const CUdevice device = harness_rank();

    CHECK_ZERO(driver_load(&g->d));
    TAKE(cuInit);
    TAKE(cuDeviceGetDevResource);
    TAKE(cuDevSmResourceSplitByCount);
    TAKE(cuDevResourceGenerateDesc);
    TAKE(cuGreenCtxCreate);
    TAKE(cuCtxFromGreenCtx);

    g->destroy = (CUresult(*)(CUgreenCtx))driver_symbol(&g->d, "cuGreenCtxDestroy");
    g->create_stream = (CUresult(*)(CUstream *, CUgreenCtx, unsigned,
                                    int))driver_symbol(&g->d, "cuGreenCtxStreamCreate");
    CHECK_CU(take_cuInit(0));
    CHECK_CU(take_cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_CU(
        take_cuDevSmResourceSplitByCount(&part, &one, &all, NULL, 0, (unsigned)count));
    CHECK(part.sm.smCount == (unsigned)count);
    CHECK_CU(take_cuDevResourceGenerateDesc(&desc, &part, 1));
    CHECK_CU(
        take_cuGreenCtxCreate(&g->handle, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_CU(take_cuCtxFromGreenCtx(context, g->handle));
    return 0;
}

/* Calls on all streams, queued on the two ranks in opposite orders. */
static int reduce_all(symm_ctx *ctx, void *const streams[STREAMS],
                      const struct device_area *in, const struct device_area *out)
{
    static const char *const sites[STREAMS] = {"first", "second", "third"};

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++) {
            const int s = harness_rank() ? STREAMS - 1 - i : i;
            const symm_call call = {
                .size = sizeof(call), .site = sites[s], .stream = streams[s]};

            CHECK_OK(symm_all_reduce(symm_team_world(ctx), in->device,
                                     out->device + (size_t)s * COUNT * sizeof(float),
                                     COUNT, SYMM_FLOAT32, SYMM_SUM, &call, NULL));
        }
        for (int s = 0; s < STREAMS; s++)
            CHECK_OK(symm_stream_synchronize(ctx, streams[s], HARNESS_AMPLE));
    }
    return 0;
}

static int use(symm_ctx *ctx, const struct part *part, void *const streams[STREAMS])
{
    struct perf_gpu *gpu = device_open(ctx);
    struct device_area in, out;
    symm_call call = {.size = sizeof(call), .stream = streams[0]};
    char text[96];

    CHECK(gpu != NULL);
    CHECK_ZERO(device_area_open(&in, gpu, NULL, COUNT * sizeof(float)));
    CHECK_ZERO(device_area_open(&out, gpu, NULL, STREAMS * COUNT * sizeof(float)));
    for (size_t i = 0; i < COUNT; i++)
        ((float *)(void *)in.host)[i] = 1;
    CHECK_ZERO(device_put(&in, 0, COUNT * sizeof(float)));
    if (part->refused && harness_rank() == 1) {
        CHECK_STATUS(symm_barrier(symm_team_world(ctx), &call, NULL),
                     SYMM_ERR_UNSUPPORTED);
        snprintf(text, sizeof(text), "stream %p of rank 1 has %d multiprocessors",
                 streams[0], part->stream);
        CHECK_ERROR(text);
        CHECK_ERROR("are made for 32");
        snprintf(text, sizeof(text), "SYMM_PROCESSORS=%d", part->stream);
        CHECK_ERROR(text);
    }
    if (part->refused) { /* the team goes on */
        CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
    } else {
        CHECK_ZERO(reduce_all(ctx, streams, &in, &out));
        CHECK_ZERO(device_get(&out, 0, STREAMS * COUNT * sizeof(float)));
        for (size_t i = 0; i < (size_t)STREAMS * COUNT; i++)
            CHECK(((float *)(void *)out.host)[i] == 2);
    }
    device_area_close(&in);
    device_area_close(&out);
    perf_gpu_close(gpu);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    const struct part *part = arg;
    const bool lacks = part->both || harness_rank() == 1;
    symm_config config = harness_config();
    struct green current = {.handle = NULL}, own = {.handle = NULL};
    void *streams[STREAMS] = {NULL};
    CUcontext context;

    if (lacks && part->share)
        setenv("FAKE_CUDA_SHARE", part->share, 1);
    if (lacks && part->percent)
        setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", part->percent, 1);
    if (part->one) {
        setenv("FAKE_CUDA_DEVICES", "1", 1);
        setenv("SYMM_OVERSUBSCRIBE", "1", 1);
    }
    if (lacks && part->told)
        setenv("SYMM_PROCESSORS", part->told, 1);
    if (lacks && part->current) {
        CHECK_ZERO(green_open(&current, part->current, &context));
        CHECK_OK(symm__cuda_driver(&current.d.cu));
        CHECK_CU(current.d.cu->cuCtxSetCurrent(context));
    }
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_MESSAGE(ctx->processors == part->expected, "%d multiprocessors",
                  ctx->processors);
    if (lacks && part->stream)
        CHECK_ZERO(green_open(&own, part->stream, &context));
    for (int s = 0; s < STREAMS; s++) {
        CUstream stream;

        if (own.handle) {
            CHECK_CU(own.create_stream(&stream, own.handle, CU_STREAM_NON_BLOCKING, 0));
            streams[s] = stream;
        } else {
            CHECK_OK(symm_stream_create(ctx, &streams[s]));
        }
    }
    CHECK_ZERO(use(ctx, part, streams));
    symm_finalize(ctx);
    if (current.handle) {
        CHECK_CU(current.d.cu->cuCtxSetCurrent(NULL));
        CHECK_CU(current.destroy(current.handle));
    }
    if (own.handle)
        CHECK_CU(own.destroy(own.handle));
    return 0;
}

static void run(const struct part *given)
{
    struct part part = *given;
    struct harness h = {.ranks = 2,
                        .body = body,
                        .arg = &part,
                        .team_bytes = (size_t)128 << 20,
                        .without_ctx = true};

    if (device_real())
        skip();
    assert_int_equal(harness_run(&h), 0);
}

static void by_mps(void **state)
{
    (void)state;
    run(&(struct part){.both = true, .share = "8", .expected = 8});
}

/* Ranks on one device run at the same time: together they need no more than it has. */
static void on_one_device(void **state)
{
    (void)state;
    run(&(struct part){.both = true, .one = true, .share = "32", .expected = 16});
    run(&(struct part){.one = true, .expected = 32}); /* in turns */
    run(&(struct part){
        .both = true, .one = true, .share = "8", .percent = "25", .expected = 8});
    run(&(struct part){
        .both = true, .one = true, .share = "24", .percent = "75", .expected = 16});
    run(&(struct part){
        .both = true, .one = true, .share = "16", .percent = "no", .expected = 8});
    run(&(struct part){
        .both = true, .one = true, .share = "16", .percent = "0", .expected = 8});
}

/* With MPS a context has two hardware queues where the environment does not say how many. */
static int body_queues(symm_ctx *ctx, void *arg)
{
    (void)arg;
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
    CHECK_MESSAGE(strstr(symm_explain(symm_team_world(ctx)),
                         "; 2 hardware queues (CUDA_DEVICE_MAX_CONNECTIONS is not set, "
                         "and MPS is used); "),
                  "%s", symm_explain(symm_team_world(ctx)));
    return 0;
}

static void queues_by_mps(void **state)
{
    const struct harness h = {.ranks = 2, .body = body_queues};

    (void)state;
    if (device_real())
        skip();
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    setenv("FAKE_CUDA_SHARE", "16", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("FAKE_CUDA_SHARE");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
}

/* A rank that finds no queues left: MPS says that memory is short. */
static int body_no_queues(symm_ctx *ctx, void *arg)
{
    const symm_config config = harness_config();
    struct driver d;

    (void)arg;
    CHECK_ZERO(driver_load(&d));
    d.fail_named("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_NOMEM);
    CHECK_ERROR("than it has, set a lower CUDA_DEVICE_MAX_CONNECTIONS");
    return 0;
}

static void no_queues_by_mps(void **state)
{
    const struct harness h = {.ranks = 1, .body = body_no_queues, .without_ctx = true};

    (void)state;
    if (device_real())
        skip();
    setenv("FAKE_CUDA_SHARE", "16", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("FAKE_CUDA_SHARE");
}

static void by_the_current_context(void **state)
{
    (void)state;
    run(&(struct part){.current = 16, .stream = 16, .expected = 16});
}

static void by_the_option(void **state)
{
    (void)state;
    run(&(struct part){.both = true, .told = "8", .stream = 8, .expected = 8});
}

static void a_smaller_stream(void **state)
{
    (void)state;
    run(&(struct part){.stream = 24, .expected = 32, .refused = true});
}

/* Of which the driver cannot tell. */
static void an_older_driver(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_MISSING", "cuCtxGetDevResource", 1);
    run(&(struct part){.told = "16", .expected = 16});
    unsetenv("FAKE_CUDA_MISSING");
}

#endif

int main(void)
{
#if CUDA_VERSION >= 12040
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_mps),
        cmocka_unit_test(on_one_device),
        cmocka_unit_test(queues_by_mps),
        cmocka_unit_test(no_queues_by_mps),
        cmocka_unit_test(by_the_current_context),
        cmocka_unit_test(by_the_option),
        cmocka_unit_test(a_smaller_stream),
        cmocka_unit_test(an_older_driver),
    };

    device_suite();
    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("FAKE_CUDA_PROCESSORS", "32", 1);
    /* more than there are streams, also with MPS */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    return 77; /* cuda.h knows no green contexts */
#endif
}
