/* SPDX-License-Identifier: MIT */
/*
 * test_driver_graph.c - calls captured into CUDA graphs: legal during capture, right at every
 * replay, also between calls that are not captured.
 *
 * Graphs of an odd number of calls (every replay begins in the other slot), of different
 * sizes (grids that leave counters of other blocks to block 0), with one-sided calls, and
 * the uses and limits of handles of captured calls.
 */
#include "core/context.h"
#include "device.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define AREA    ((size_t)1 << 20)

static const size_t counts[] = {4, 100000, 300, 7, 60000};
#define CALLS 5

static int fill(struct device_rank *s, float value)
{
    for (size_t i = 0; i < AREA / sizeof(float); i++)
        ((float *)(void *)s->in.host)[i] = value + (float)s->rank;
    CHECK_ZERO(device_put(&s->in, 0, AREA));
    return 0;
}

/* Call k of the round writes at place k of the output. */
static symm_status call_one(struct device_rank *s, int k, symm_work **work)
{
    symm_call call = {.size = sizeof(call), .site = "graph", .stream = s->streams[0]};

    return symm_all_reduce(s->team, s->in.device, s->out.device + (size_t)k * AREA,
                           counts[k], SYMM_FLOAT32, SYMM_SUM, &call, work);
}

static int check(struct device_rank *s, int first, int calls, float value)
{
    float sum = (float)s->n * value + (float)(s->n * (s->n - 1) / 2);

    for (int k = first; k < first + calls; k++) {
        const float *out = (const float *)(void *)(s->out.host + (size_t)k * AREA);

        CHECK_ZERO(device_get(&s->out, (size_t)k * AREA, counts[k] * sizeof(float)));
        for (size_t i = 0; i < counts[k]; i++)
            CHECK_MESSAGE(out[i] == sum, "call %d, element %zu: %g, not %g", k, i,
                          out[i], sum);
    }
    return 0;
}

static int replays(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    void *graph = NULL;

    (void)arg;
    CHECK_ZERO(device_rank_open(&s, ctx, AREA, CALLS * AREA, AREA, 2));
    CHECK_ZERO(fill(&s, 1));
    CHECK_OK(call_one(&s, 0, NULL)); /* not captured: the function is known */
    CHECK_ZERO(perf_gpu_capture(s.gpu, s.streams[0]));
    for (int k = 0; k < CALLS; k++)
        CHECK_OK(call_one(&s, k, NULL));
    CHECK_ZERO(perf_gpu_captured(s.gpu, s.streams[0], &graph));
    for (int round = 0; round < 6; round++) {
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
        CHECK_ZERO(fill(&s, (float)round));
        CHECK_ZERO(perf_gpu_replay(s.gpu, graph, s.streams[0]));
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
        CHECK_ZERO(check(&s, 0, CALLS, (float)round));
        if (round % 2) { /* and one that is not captured in between */
            CHECK_ZERO(fill(&s, 50));
            CHECK_OK(call_one(&s, round % CALLS, NULL));
            CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
            CHECK_ZERO(check(&s, round % CALLS, 1, 50));
        }
    }
    perf_gpu_graph_free(s.gpu, graph);
    device_rank_close(&s);
    return 0;
}

static int captured_handles(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_work *work = NULL, *eager = NULL, *last = NULL;
    void *graph = NULL;
    bool done = false;

    (void)arg;
    CHECK_ZERO(device_rank_open(&s, ctx, AREA, CALLS * AREA, AREA, 2));
    CHECK_ZERO(fill(&s, 1));
    CHECK_OK(call_one(&s, 0, &eager));
    CHECK_ZERO(perf_gpu_capture(s.gpu, s.streams[0]));
    CHECK_OK(symm_work_query(eager, &done)); /* asks no harm of the capture */
    CHECK_OK(call_one(&s, 1, &work));
    CHECK_STATUS(symm_work_query(work, &done), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("captured into a graph");
    CHECK_STATUS(symm_work_synchronize(work, 1), SYMM_ERR_UNSUPPORTED);
    CHECK_OK(symm_work_wait(work, s.streams[1])); /* joins the capture */
    CHECK_ZERO(perf_gpu_order(s.gpu, s.streams[1], s.streams[0]));
    symm_work_release(work);
    CHECK_OK(call_one(&s, 2, &last));
    CHECK_ZERO(perf_gpu_captured(s.gpu, s.streams[0], &graph));
    CHECK_STATUS(symm_work_wait(last, s.streams[1]), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("captured into a graph");
    symm_work_release(last);
    CHECK_OK(symm_work_synchronize(eager, SECONDS));
    symm_work_release(eager);
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(perf_gpu_replay(s.gpu, graph, s.streams[0]));
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
    CHECK_ZERO(check(&s, 0, 3, 1));
    perf_gpu_graph_free(s.gpu, graph);
    device_rank_close(&s);
    return 0;
}

/* A ring of puts in a graph, by kernel or by copy engine. */
static int ring(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .site = "ring"};
    void *graph = NULL;
    int right, left;

    CHECK_ZERO(device_rank_open(&s, ctx, AREA, CALLS * AREA, AREA, 2));
    right = (s.rank + 1) % s.n;
    left = (s.rank + s.n - 1) % s.n;
    call.stream = s.streams[0];
    call.algorithm = *(const bool *)arg ? "copy_engine" : NULL;
    CHECK_ZERO(perf_gpu_capture(s.gpu, s.streams[0]));
    CHECK_OK(
        symm_put_signal(s.team, s.heap.device, s.in.device, 64, right, 1, &call, NULL));
    CHECK_OK(symm_signal_wait(s.team, left, 1, &call, NULL));
    CHECK_ZERO(perf_gpu_captured(s.gpu, s.streams[0], &graph));
    for (int round = 0; round < 5; round++) {
        CHECK_ZERO(fill(&s, (float)round));
        CHECK_ZERO(perf_gpu_replay(s.gpu, graph, s.streams[0]));
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
        CHECK_ZERO(device_get(&s.heap, 0, 64));
        CHECK(*(float *)(void *)s.heap.host == (float)(round + left));
        CHECK_OK(symm_barrier(s.team, NULL, NULL)); /* read by all */
        CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    }
    perf_gpu_graph_free(s.gpu, graph);
    device_rank_close(&s);
    return 0;
}

struct alone {
    bool dies;
    _Atomic int waits;
};

/*
 * A graph waits twice for a copy engine's signals that never come: rank 1 leaves, or dies.
 * Rank 0's stream and context end all the same.
 */
static int alone(symm_ctx *ctx, void *arg)
{
    struct alone *shared = arg;
    struct device_rank s;
    symm_call call = {
        .size = sizeof(call), .site = "alone", .algorithm = "copy_engine"};
    void *graph = NULL;

    CHECK_ZERO(device_rank_open(&s, ctx, AREA, CALLS * AREA, AREA, 2));
    if (s.rank == 0) {
        ctx->timeout = 0.5; /* of what follows, not of the start */
        call.stream = s.streams[0];
        CHECK_ZERO(perf_gpu_capture(s.gpu, s.streams[0]));
        CHECK_OK(symm_signal_wait(s.team, 1, 1, &call, NULL));
        CHECK_OK(symm_signal_wait(s.team, 1, 2, &call, NULL));
        CHECK_ZERO(perf_gpu_captured(s.gpu, s.streams[0], &graph));
        CHECK_ZERO(perf_gpu_replay(s.gpu, graph, s.streams[0]));
        CHECK_STATUS(symm_stream_synchronize(ctx, s.streams[0], 0.1), SYMM_ERR_TIMEOUT);
        atomic_store(&shared->waits, 1);
        symm_stream_destroy(ctx, s.streams[0]);
        s.streams[0] = NULL;
        perf_gpu_graph_free(s.gpu, graph);
    } else if (shared->dies) {
        CHECK(harness_until(&shared->waits, 1));
        raise(SIGKILL);
    }
    device_rank_close(&s);
    return 0;
}

static enum harness_mode pass = HARNESS_PROCESSES;

static void run(harness_body body, int ranks, uint32_t start, bool engine)
{
    bool arg = engine;
    struct harness h = {.ranks = ranks,
                        .mode = pass,
                        .body = body,
                        .arg = &arg,
                        .epoch_start = start,
                        .team_bytes = (size_t)128 << 20};

    if (device_ranks(ranks) == ranks)
        assert_int_equal(harness_run(&h), 0);
}

static void test_replays(void **state)
{
    (void)state;
    run(replays, 2, 0, false);
    run(replays, 3, UINT32_MAX - 8, false); /* counters wrap inside the replays */
}

static void test_handles(void **state)
{
    (void)state;
    run(captured_handles, 2, 0, false);
}

static void test_ring(void **state)
{
    (void)state;
    run(ring, 2, 0, false);
    run(ring, 3, 0, true);
}

static void test_alone(void **state)
{
    struct alone *shared = harness_shared(sizeof(*shared));
    struct harness h = {.ranks = 2,
                        .mode = pass,
                        .body = alone,
                        .arg = shared,
                        .limit = HARNESS_AMPLE,
                        .team_bytes = (size_t)128 << 20};

    (void)state;
    if (device_ranks(2) < 2)
        skip();
    assert_int_equal(harness_run(&h), 0);
    if (pass == HARNESS_PROCESSES) {
        *shared = (struct alone){.dies = true};
        h.killed = 2;
        assert_int_equal(harness_run(&h), 0);
    }
    harness_shared_free(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays), cmocka_unit_test(test_handles),
        cmocka_unit_test(test_ring), cmocka_unit_test(test_alone)};
    int failed;

    device_suite();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
