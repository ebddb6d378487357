/* SPDX-License-Identifier: MIT */
/*
 * test_driver_resident.c - kernels that are resident behind one that may wait for a peer
 * (may_depend in cuda/launch.c) take little room, whatever streams and captures come between.
 * ctest: cost 3
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/launcher.h"
#include "cuda/stream_order.h"
#include "device.h"

#define SECONDS    HARNESS_AMPLE
#define COUNT      ((size_t)32768) /* elements: a grid of seven eighths of the device */
#define BYTES      (COUNT * sizeof(float))
#define SMALL      ((size_t)4096)         /* elements: a grid of two blocks */
#define PER_THREAD ((void *)(uintptr_t)2) /* CU_STREAM_PER_THREAD */
#define FULL       8 /* streams whose puts would take the whole device */

struct job {
    struct harness_sync sync;
    double timeout;
    bool forks;
};

struct stage {
    struct device_rank r; /* first */
    struct job *job;
    int peer;
};

static int stage_open(struct stage *s, symm_ctx *ctx, void *arg, int streams)
{
    CHECK_ZERO(device_rank_open(&s->r, ctx, BYTES, BYTES, BYTES, streams));
    s->job = arg;
    s->peer = 1 - s->r.rank;
    return 0;
}

static int stage_close(struct stage *s)
{
    CHECK_ZERO(harness_sync_wait(&s->job->sync, s->r.n));
    device_rank_close(&s->r);
    return 0;
}

static symm_status sum(struct stage *s, void *stream, size_t count)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "sum",
                            .stream = stream,
                            .algorithm = "copy_in",
                            .timeout = s->job->timeout};

    return symm_all_reduce(s->r.team, s->r.in.device, s->r.out.device, count,
                           SYMM_FLOAT32, SYMM_SUM, &call, NULL);
}

static symm_status await(struct stage *s, void *stream, int signal)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "wait",
                            .stream = stream,
                            .timeout = s->job->timeout};

    return symm_signal_wait(s->r.team, s->peer, signal, &call, NULL);
}

static symm_status raise_on(struct stage *s, void *stream, int signal)
{
    const symm_call call = {.size = sizeof(call), .site = "wait", .stream = stream};

    return symm_signal(s->r.team, s->peer, signal, &call, NULL);
}

/* Whether the team's last call was made a dependent. */
static bool depends(const struct stage *s)
{
    const struct symm_team_channel *channel =
        &s->r.team->channel[s->r.team->last_channel];

    return channel->launches[channel->last - channel->prepared].args.flags &
           SYMM_CUDA_DEPENDENT;
}

/* ---- What comes between --------------------------------------------------------------- */

/* A wait for a signal, then a call: of a thread whose default stream has the same handle. */
static void *other_thread(void *arg)
{
    struct stage *s = arg;
    int *failed = malloc(sizeof(*failed));

    if (!failed)
        abort();
    *failed = raise_on(s, PER_THREAD, 1) != SYMM_OK ||
              await(s, PER_THREAD, 1) != SYMM_OK ||
              sum(s, PER_THREAD, COUNT) != SYMM_OK;
    return failed;
}

/* The default streams of two threads have one handle. */
static int threads(symm_ctx *ctx, void *arg)
{
    void *failed = NULL;
    struct stage s;
    pthread_t id;
    bool early;

    CHECK_ZERO(stage_open(&s, ctx, arg, 1));
    CHECK_OK(await(&s, PER_THREAD, 0));
    CHECK_ZERO(pthread_create(&id, NULL, other_thread, &s));
    CHECK_ZERO(pthread_join(id, &failed));
    CHECK_ZERO(*(int *)failed);
    free(failed);
    CHECK_OK(sum(&s, PER_THREAD, COUNT));
    early = depends(&s);
    CHECK_OK(raise_on(&s, s.r.streams[0], 0));
    CHECK_OK(symm_stream_synchronize(ctx, PER_THREAD, SECONDS));
    CHECK(!early);
    return stage_close(&s);
}

/* A call that is captured is not in front of the next one on its stream. */
static int captured(symm_ctx *ctx, void *arg)
{
    void *stream, *graph = NULL;
    struct stage s;
    bool early;

    CHECK_ZERO(stage_open(&s, ctx, arg, 2));
    stream = s.r.streams[0];
    CHECK_OK(sum(&s, stream, COUNT));
    CHECK(depends(&s)); /* nothing that waits is in front */
    CHECK_OK(await(&s, stream, 0));
    CHECK_OK(perf_gpu_capture(s.r.gpu, stream));
    CHECK_OK(sum(&s, stream, COUNT));
    CHECK_OK(perf_gpu_captured(s.r.gpu, stream, &graph));
    CHECK_OK(sum(&s, stream, COUNT));
    early = depends(&s);
    CHECK_OK(raise_on(&s, s.r.streams[1], 0));
    CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
    CHECK(!early);
    perf_gpu_graph_free(s.r.gpu, graph);
    return stage_close(&s);
}

/* In a capture events put calls of other streams in front of a call. */
static int forked(symm_ctx *ctx, void *arg)
{
    void **on, *graph = NULL;
    bool fork, join, late;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 3));
    on = s.r.streams;
    CHECK_OK(perf_gpu_capture(s.r.gpu, on[0]));
    CHECK_OK(perf_gpu_order(s.r.gpu, on[0], on[1]));
    CHECK_OK(await(&s, on[1], 0));
    CHECK_OK(sum(&s, on[0], COUNT));
    CHECK_OK(sum(&s, on[0], COUNT));
    CHECK(depends(&s)); /* its own stream's call is in front */
    CHECK_OK(await(&s, on[1], 1));
    CHECK_OK(perf_gpu_order(s.r.gpu, on[1], on[2]));
    CHECK_OK(sum(&s, on[2], COUNT));
    fork = depends(&s);
    CHECK_OK(await(&s, on[2], 2));
    CHECK_OK(perf_gpu_order(s.r.gpu, on[2], on[0]));
    CHECK_OK(sum(&s, on[0], COUNT));
    join = depends(&s);
    CHECK_OK(await(&s, on[1], 3)); /* in front by a join after the next call */
    CHECK_OK(sum(&s, on[0], COUNT));
    CHECK_OK(perf_gpu_order(s.r.gpu, on[1], on[0]));
    CHECK_OK(sum(&s, on[0], COUNT));
    late = depends(&s);
    CHECK_OK(sum(&s, on[0], COUNT));
    CHECK(depends(&s));
    CHECK_OK(perf_gpu_captured(s.r.gpu, on[0], &graph));
    CHECK(!fork);
    CHECK(!join);
    CHECK(!late);
    perf_gpu_graph_free(s.r.gpu, graph);
    return stage_close(&s);
}

/* ---- Waits that trigger late ------------------------------------------------------------ */

/* Waits for a signal that has been raised, then all_reduces count elements: *early is whether that
 * was made a dependent. */
static int wait_and_sum(struct stage *s, void *stream, size_t count, bool *early)
{
    CHECK_OK(raise_on(s, s->r.streams[1], 0));
    CHECK_OK(await(s, stream, 0));
    CHECK_OK(sum(s, stream, count));
    *early = depends(s);
    CHECK_OK(symm_stream_synchronize(s->r.ctx, stream, SECONDS));
    return 0;
}

/* A large kernel behind a wait is no dependent of one that triggers at once, and the stream's next
 * wait triggers late. So does one in a graph. Behind enough waits with small kernels one triggers
 * at once again. Other streams are not concerned. */
static int late(symm_ctx *ctx, void *arg)
{
    void *stream, *graph = NULL;
    struct stage s;
    bool early;

    CHECK_ZERO(stage_open(&s, ctx, arg, 3));
    stream = s.r.streams[0];
    for (int again = 0; again < 2; again++) {
        CHECK(symm__cuda_wait_early(ctx->launcher, stream));
        CHECK_ZERO(wait_and_sum(&s, stream, COUNT, &early));
        CHECK(!early);
        for (int i = 0; i < 3; i++) {
            CHECK(!symm__cuda_wait_early(ctx->launcher, stream));
            CHECK_ZERO(wait_and_sum(&s, stream, COUNT, &early));
            CHECK(early);
        }
        for (int i = 0; i < 8; i++) {
            CHECK(!symm__cuda_wait_early(ctx->launcher, stream));
            CHECK_ZERO(wait_and_sum(&s, stream, 4, &early));
            CHECK(early);
        }
    }
    CHECK_ZERO(wait_and_sum(&s, stream, COUNT, &early));
    CHECK(symm__cuda_hint_of(s.r.streams[2]) == symm__cuda_hint_of(stream) ||
          symm__cuda_wait_early(ctx->launcher, s.r.streams[2]));
    CHECK_ZERO(perf_gpu_capture(s.r.gpu, stream));
    CHECK_OK(await(&s, stream, 0));
    CHECK_OK(sum(&s, stream, COUNT));
    early = depends(&s);
    CHECK_ZERO(perf_gpu_captured(s.r.gpu, stream, &graph));
    CHECK(early);
    CHECK_OK(raise_on(&s, s.r.streams[1], 0));
    CHECK_ZERO(perf_gpu_replay(s.r.gpu, graph, stream));
    CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
    perf_gpu_graph_free(s.r.gpu, graph);
    return stage_close(&s);
}

/* ---- Room ----------------------------------------------------------------------------- */

static symm_status put_on(struct stage *s, void *stream)
{
    const symm_call call = {.size = sizeof(call), .site = "put", .stream = stream};

    return symm_put(s->r.team, s->r.heap.device, s->r.in.device, BYTES, s->peer, &call,
                    NULL);
}

/* A graph, launched: the wait is on another stream, and an event puts it in front of the put. */
static int fork_one(struct stage *s, int i, void **graph)
{
    void *stream = s->r.streams[i], *other = s->r.streams[FULL + 1];

    CHECK_ZERO(perf_gpu_capture(s->r.gpu, stream));
    CHECK_OK(perf_gpu_order(s->r.gpu, stream, other));
    CHECK_OK(await(s, other, i));
    CHECK_OK(perf_gpu_order(s->r.gpu, other, stream));
    CHECK_OK(put_on(s, stream));
    CHECK_ZERO(perf_gpu_captured(s->r.gpu, stream, graph));
    CHECK_ZERO(perf_gpu_replay(s->r.gpu, *graph, stream));
    return 0;
}

/* Rank 0: each of the streams waits for a signal, then puts. Then a call on one more stream. */
static int fill(struct stage *s, void **graphs)
{
    for (int i = 0; i < FULL; i++) {
        if (s->job->forks) {
            CHECK_ZERO(fork_one(s, i, &graphs[i]));
            continue;
        }
        CHECK_OK(await(s, s->r.streams[i], i));
        CHECK_OK(put_on(s, s->r.streams[i]));
    }
    harness_sleep(0.5); /* until the puts are resident, if they are to be */
    return 0;
}

/* Rank 1 raises the signals behind its call. */
static int room(symm_ctx *ctx, void *arg)
{
    void *last, *graphs[FULL] = {NULL};
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, FULL + 2));
    last = s.r.streams[FULL];
    for (int i = s.job->forks ? 0 : FULL; i <= FULL; i++) {
        CHECK_OK(sum(&s, s.r.streams[i], SMALL)); /* the stream's channel */
        CHECK_OK(symm_stream_synchronize(ctx, s.r.streams[i], SECONDS));
    }
    CHECK_ZERO(harness_sync_wait(&s.job->sync, s.r.n));
    if (s.r.rank == 0)
        CHECK_ZERO(fill(&s, graphs));
    CHECK_OK(sum(&s, last, COUNT));
    for (int i = 0; i < FULL && s.r.rank == 1; i++)
        CHECK_OK(raise_on(&s, last, i));
    for (int i = 0; i <= FULL; i++)
        CHECK_OK(symm_stream_synchronize(ctx, s.r.streams[i], SECONDS));
    for (int i = 0; i < FULL; i++)
        if (graphs[i])
            perf_gpu_graph_free(s.r.gpu, graphs[i]);
    CHECK_OK(
        symm_barrier(s.r.team, NULL, NULL)); /* tells of an error of the calls above */
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    return stage_close(&s);
}

/* ---- Small calls ---------------------------------------------------------------------- */

#define CROWD 28 /* streams with small calls, each of one block and without a share */
#define SOME  4  /* as many as a quarter of the multiprocessors */

/* Call i of the crowd: the last two are large. */
static symm_status crowd_call(struct stage *s, int i, int small)
{
    static char site[CROWD + 2][8];
    const symm_call call = {.size = sizeof(call),
                            .site = site[i],
                            .stream = s->r.streams[i],
                            .timeout = s->job->timeout};

    snprintf(site[i], sizeof(site[i]), "c%d", i);
    return symm_all_reduce(s->r.team, s->r.in.device, s->r.out.device,
                           i < small ? 4 : COUNT, SYMM_FLOAT32, SYMM_SUM, &call, NULL);
}

/* Rank 0 queues the small calls first, rank 1 the large ones. */
static int crowd_queue(struct stage *s, int small)
{
    const int all = small + 2;

    for (int turn = 1; turn >= 0; turn--) {
        for (int i = 0; s->r.rank == turn && i < all; i++)
            CHECK_OK(crowd_call(s, (i + turn * small) % all, small));
        CHECK_ZERO(harness_sync_wait(&s->job->sync, s->r.n));
    }
    return 0;
}

static symm_status crowd_end(struct stage *s)
{
    symm_status status = SYMM_OK;

    for (int i = 0; i < s->r.count && status == SYMM_OK; i++)
        status = symm_stream_synchronize(s->r.ctx, s->r.streams[i], SECONDS);
    return status == SYMM_OK ? symm_barrier(s->r.team, NULL, NULL) : status;
}

/* Small calls leave room for a block of each large one. */
static int some(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, SOME + 2));
    CHECK_ZERO(crowd_queue(&s, SOME));
    CHECK_OK(crowd_end(&s));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    return stage_close(&s);
}

/* More of them than multiprocessors: they may shut out large calls on one rank while these shut them out
 * on another one. Then all calls end at the deadline, on all ranks, with an error that says so. */
static int crowd(symm_ctx *ctx, void *arg)
{
    symm_status status;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, CROWD + 2));
    CHECK_ZERO(crowd_queue(&s, CROWD));
    status = crowd_end(&s);
    if (status != SYMM_OK) {
        CHECK_STATUS(status, SYMM_ERR_TIMEOUT);
        CHECK_ERROR("at site 'c");
        CHECK_ERROR("has queued it, its stream has not reached it");
        CHECK_ERROR("waits on stream 0x");
    }
    return stage_close(&s);
}

/* ---- Runs ----------------------------------------------------------------------------- */

static bool forks; /* of the next run */

static int run(harness_body body, double timeout)
{
    struct job *job = harness_shared(sizeof(*job));
    int failed;

    job->timeout = timeout;
    job->forks = forks;
    failed = harness_run(&(struct harness){.ranks = 2, .body = body, .arg = job});
    harness_shared_free(job, sizeof(*job));
    return failed;
}

/* Over the model of a device with 16 multiprocessors, with a longer timeout while the ranks are slow. */
static void expect_end(harness_body body)
{
    double timeout;
    int failed = 1;

    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    HARNESS_PATIENCE(timeout, 2.0)
    {
        failed = run(body, timeout);
        if (!failed)
            break;
    }
    assert_int_equal(failed, 0);
}

static void test_threads(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    assert_int_equal(run(threads, SECONDS), 0);
}

static void test_captured(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    assert_int_equal(run(captured, SECONDS), 0);
    assert_int_equal(run(forked, SECONDS), 0);
}

static void test_late(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    assert_int_equal(run(late, SECONDS), 0);
}

/* Puts behind waits leave room for the calls without which the signals are not raised. */
static void test_room(void **state)
{
    (void)state;
    expect_end(room);
    forks = true;
    expect_end(room);
    forks = false;
    unsetenv("FAKE_CUDA_MODEL");
}

static void test_crowd(void **state)
{
    (void)state;
    setenv("SYMM_QUEUE_TIMEOUT", "0.001", 1); /* a deadlock ends at the deadline */
    expect_end(some);
    assert_int_equal(run(crowd, 2.0), 0);
    unsetenv("SYMM_QUEUE_TIMEOUT");
    unsetenv("FAKE_CUDA_MODEL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_captured),
        cmocka_unit_test(test_late),    cmocka_unit_test(test_room),
        cmocka_unit_test(test_crowd),
    };

    device_suite();
    if (device_real())
        return 77;
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
