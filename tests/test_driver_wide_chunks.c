/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wide_chunks.c - an all_reduce over several hosts in chunks: on the CUDA backend, over
 * the fake driver and the fake NCCL. From 1 MiB on (small_chunks.h) NCCL's step of a chunk runs on
 * a second stream, beside the kernels of others. The sums, also of a graph, and errors are those of
 * one piece.
 */
/* ctest: cost 6 */
/* ctest: load 3 */
/* ctest: replaces symm__chunks_limits */
#include "driver.h"
#include "engine_stage.h"
#include "small_chunks.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB   ((size_t)1 << 20)
#define LEAST (8 * MIB / 4 / SMALLER) /* int32 from which on there are chunks */
#define CHUNK (LEAST / 2)             /* of the first, up to 4 MiB in all */
#define SPACE (20 * MIB / SMALLER)    /* bytes of a buffer */

struct stage {
    struct engine_stage s;
    struct device_area in,
        out; /* of SPACE bytes, in private memory; then in the heap */
};

static int check(struct stage *g, struct device_area *area, size_t count, int times)
{
    CHECK_ZERO(engine_take(&g->s, area, count));
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;

        for (int r = 0; r < g->s.n; r++)
            sum += (uint32_t)engine_value(r, i);
        for (int t = 1; t < times; t++)
            sum *= (uint32_t)g->s.n;
        CHECK_MESSAGE((uint32_t)engine_ints(area)[i] == sum,
                      "%zu elements: %d at %zu, not %d", count, engine_ints(area)[i], i,
                      (int)sum);
    }
    return 0;
}

/* One call; NCCL's calls that it makes. */
static int one(struct stage *g, size_t count, bool in_place, uint64_t wanted)
{
    const symm_call call = {
        .size = sizeof(call), .stream = g->s.stream, .site = "chunks"};
    uint64_t before = engine_calls("ncclAllReduce"), made;
    struct device_area *out = in_place ? &g->in : &g->out;

    CHECK_ZERO(engine_give(&g->s, &g->in, count));
    CHECK_OK(symm_all_reduce(g->s.team, g->in.device, out->device, count, SYMM_INT32,
                             SYMM_SUM, &call, NULL));
    made = engine_calls("ncclAllReduce") - before;
    CHECK_MESSAGE(made == wanted, "%zu elements: %d calls of NCCL, not %d", count,
                  (int)made, (int)wanted);
    return check(g, out, count, 1);
}

/* Two all_reduces in place, as a graph that is launched twice: no other stream is left behind in
 * the capture. */
static int captured(struct stage *g, size_t count)
{
    const symm_call call = {
        .size = sizeof(call), .stream = g->s.stream, .site = "graph"};
    struct driver d;
    CUgraph graph;
    CUgraphExec exec;

    CHECK_ZERO(driver_load(&d));
    CHECK_ZERO(engine_give(&g->s, &g->in, count));
    CHECK_CU(d.begin_capture(g->s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_all_reduce(g->s.team, g->in.device, g->in.device, count,
                                 SYMM_INT32, SYMM_SUM, &call, NULL));
    CHECK_CU(d.end_capture(g->s.stream, &graph));
    CHECK_CU(d.instantiate(&exec, graph, 0));
    CHECK_CU(d.graph_launch(exec, g->s.stream));
    CHECK_CU(d.graph_launch(exec, g->s.stream));
    CHECK_ZERO(check(g, &g->in, count, 4));
    CHECK_CU(d.exec_destroy(exec));
    CHECK_CU(d.graph_destroy(graph));
    return 0;
}

static int all_sizes(struct stage *g, bool heap)
{
    CHECK_ZERO(one(g, LEAST, heap, 2));
    if (heap)
        return captured(g, LEAST + 30);
    CHECK_ZERO(one(g, LEAST - 2, false, 1));
    /* An element that does not divide: by the leaders. */
    CHECK_ZERO(one(g, 3 * CHUNK + 20001, true, 3 + (g->s.rank % 2 == 0)));
    CHECK_ZERO(one(g, 2 * LEAST, true, 3)); /* of 4, 6 and 6 eighths of a MiB */
    CHECK_ZERO(captured(g, LEAST + 30));
    return one(g, LEAST, true, 2); /* the streams are free again */
}

static int body(symm_ctx *ctx, void *arg)
{
    struct stage g = {0};
    int failed = 0;

    (void)arg;
    CHECK_ZERO(engine_open(&g.s, ctx));
    for (int heap = 0; heap < 2 && !failed; heap++) {
        symm_team *team = heap ? g.s.team : NULL;

        CHECK_ZERO(device_area_open(&g.in, g.s.gpu, team, SPACE));
        CHECK_ZERO(device_area_open(&g.out, g.s.gpu, team, SPACE));
        CHECK_OK(symm_rendezvous(g.s.team));
        failed = all_sizes(&g, heap);
        device_area_close(&g.in);
        device_area_close(&g.out);
    }
    engine_close(&g.s);
    return failed;
}

static void test_chunks(void **state)
{
    static char layout[] = "aabb";
    struct harness h = {.ranks = 4,
                        .body = body,
                        .arg = layout,
                        .configure = harness_host_of,
                        .team_bytes = (size_t)256 << 20};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

/* Too few multiprocessors for a kernel of NCCL beside one of the library: one piece. */
static int small(symm_ctx *ctx, void *arg)
{
    struct stage g = {0};
    int failed;

    (void)arg;
    CHECK_ZERO(engine_open(&g.s, ctx));
    CHECK_ZERO(device_area_open(&g.in, g.s.gpu, NULL, SPACE));
    CHECK_ZERO(device_area_open(&g.out, g.s.gpu, NULL, SPACE));
    failed = one(&g, 2 * LEAST, false, 1);
    device_area_close(&g.in);
    device_area_close(&g.out);
    engine_close(&g.s);
    return failed;
}

static void test_small(void **state)
{
    static char layout[] = "aabb";
    struct harness h = {
        .ranks = 4, .body = small, .arg = layout, .configure = harness_host_of};

    (void)state;
    setenv("FAKE_CUDA_PROCESSORS", "63", 1);
    assert_int_equal(harness_run(&h), 0);
    setenv("FAKE_CUDA_PROCESSORS", "64", 1);
}

#define LONG (3 * HARNESS_AMPLE)

/* The operation of a chunk hangs, or its call does, or fails: all ranks know within the timeout of
 * the rank that has the short one. */
static int faulty(symm_ctx *ctx, void *arg)
{
    struct stage g = {0};
    symm_call call = {.size = sizeof(call), .site = "held"};
    symm_work *work = NULL;
    double begin;
    symm_status status;

    (void)arg;
    CHECK_ZERO(engine_open(&g.s, ctx));
    CHECK_ZERO(device_area_open(&g.in, g.s.gpu, NULL, SPACE));
    CHECK_ZERO(engine_give(&g.s, &g.in, 2 * LEAST));
    call.stream = g.s.stream;
    CHECK_OK(symm_all_reduce(g.s.team, g.in.device, g.in.device, 10, SYMM_INT32,
                             SYMM_SUM, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, g.s.stream, HARNESS_AMPLE));
    setenv(getenv("FAULT"), "ncclAllReduce@1", 1); /* rank 1 of each rail */
    call.timeout = g.s.rank >= 2 ? 0.5 : LONG;
    begin = harness_now();
    status = symm_all_reduce(g.s.team, g.in.device, g.in.device, 2 * LEAST, SYMM_INT32,
                             SYMM_SUM, &call, &work);
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, LONG);
    symm_work_release(work);
    CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_ABORTED, "%s",
                  symm_status_name(status));
    CHECK_ERROR("all_reduce at site 'held'");
    CHECK(harness_now() - begin <
          HARNESS_AMPLE); /* the simulated kernels take seconds */
    CHECK_OK(symm_stream_synchronize(ctx, g.s.stream, HARNESS_AMPLE));
    device_area_close(&g.in);
    engine_close(&g.s);
    return 0;
}

static void test_faulty(void **state)
{
    static const char *const faults[] = {"FAKE_NCCL_HANG", "FAKE_NCCL_STUCK",
                                         "FAKE_NCCL_FAIL"};
    static char layout[] = "aabb";
    struct harness h = {
        .ranks = 4, .body = faulty, .arg = layout, .configure = harness_host_of};

    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv("FAULT", faults[i], 1);
        assert_int_equal(harness_run(&h), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks),
                                       cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_faulty)};

    if (device_real())
        return 77; /* counts the stand-in's calls */
    engine_suite();
    setenv("FAKE_CUDA_PROCESSORS", "64", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
