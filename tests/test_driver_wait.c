/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wait.c - a stream whose wait for a peer's copy engine fails, and the work that
 * is queued after the wait.
 * ctest: cost 10
 *
 * No call after a failed wait succeeds: collectives of all kinds, puts, a call on another
 * stream that an event orders after it, replays of a graph; nor do the peers' calls. Many
 * streams wait, more than a device has hardware queues, each with work after its wait: they
 * are ended by deadlines, by the death of the peer, by symm_finalize and by a team's end. The
 * fake driver models the queues (FAKE_CUDA_MODEL); with SYMM_TEST_GPU=1 they are the device's.
 */
#include "core/context.h"
#include "device.h"
#include "driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define COUNT   ((size_t)256)
#define SHORT   0.25 /* a deadline that is to expire */

enum end { DEADLINE, DEATH, FINALIZE, TEAM };

struct scene {
    int streams;
    enum end end;
    bool room; /* the wait is a sender's, for room */
    int more;  /* waits for the same word after it */
    int behind;
    struct harness_pace pace; /* of the deadline */
};

/* ---- After a failed wait -------------------------------------------------------- */

enum { REDUCE, SCATTER, GATHER, EXCHANGE, BROADCAST, BARRIER, PUT, KINDS };

static symm_status call_of(struct device_rank *s, int kind, const symm_call *call,
                           symm_work **work)
{
    const void *in = s->in.device;
    void *out = s->out.device;

    switch (kind) {
    case REDUCE:
        return symm_all_reduce(s->team, in, out, COUNT, SYMM_INT32, SYMM_SUM, call,
                               work);
    case SCATTER:
        return symm_reduce_scatter(s->team, in, out, COUNT, SYMM_INT32, SYMM_SUM, call,
                                   work);
    case GATHER:
        return symm_all_gather(s->team, in, out, COUNT, SYMM_INT32, call, work);
    case EXCHANGE:
        return symm_all_to_all(s->team, in, out, COUNT, SYMM_INT32, call, work);
    case BROADCAST:
        return symm_broadcast(s->team, in, out, COUNT, SYMM_INT32, 0, call, work);
    case BARRIER:
        return symm_barrier(s->team, call, work);
    default:
        return symm_put(s->team, s->heap.device, in, 4096, 1 - s->rank, call, work);
    }
}

/* Rank 0 queues several waits for one word on its first stream. No rank ends them. */
static int wait_in_vain(struct device_rank *s, int waits, bool room,
                        struct harness_pace *pace)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "vain",
                            .stream = s->streams[0],
                            .algorithm = "copy_engine",
                            .timeout = pace->seconds};

    harness_pace_begin(pace);
    for (int i = 0; i < waits && !room; i++)
        CHECK_PACED(pace, symm_signal_wait(s->team, 1, 7, &call, NULL));
    for (int i = 0; i < 1 + waits && room; i++) /* all but the first one wait */
        CHECK_PACED(pace, symm_put_signal(s->team, s->heap.device, s->in.device, 64, 1,
                                          7, &call, NULL));
    return 0;
}

static int behind(symm_ctx *ctx, void *arg)
{
    struct scene *scene = arg;
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .site = "behind", .timeout = SECONDS};
    symm_work *work = NULL, *beside = NULL;
    symm_status status;

    CHECK_ZERO(device_rank_open(&s, ctx, 65536, 65536, 65536, 2));
    call.stream = s.streams[0];
    CHECK_OK(call_of(&s, REDUCE, &call, NULL)); /* the stream has its channel */
    call.stream = s.streams[1];
    CHECK_OK(call_of(&s, REDUCE, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[1], SECONDS));
    if (s.rank == 0)
        CHECK_ZERO(wait_in_vain(&s, 1 + scene->more, scene->room, &scene->pace));
    call.stream = s.streams[0];
    if (s.rank == 0 || scene->behind != PUT)
        CHECK_PACED(&scene->pace, call_of(&s, scene->behind, &call, &work));
    if (s.rank == 0) /* another stream, after it by an event */
        CHECK_ZERO(perf_gpu_order(s.gpu, s.streams[0], s.streams[1]));
    call.stream = s.streams[1];
    status = call_of(&s, REDUCE, &call, &beside);
    harness_pace_step(&scene->pace);
    CHECK(s.rank == 1 || status == SYMM_OK); /* rank 1 may know already */
    if (work) {
        status = symm_work_synchronize(work, SECONDS);
        CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "rank %d, call %d: %s, %s", s.rank,
                      scene->behind, symm_status_name(status), symm_last_error());
        CHECK_ERROR("signal 7");
    }
    if (beside) {
        status = symm_work_synchronize(beside, SECONDS);
        CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "rank %d, beside: %s, %s", s.rank,
                      symm_status_name(status), symm_last_error());
    }
    symm_work_release(work);
    symm_work_release(beside);
    device_rank_close(&s);
    return 0;
}

/* A replayed wait that the context's end gives up; the call after it in the graph does
 * nothing, so rank 1 does not take it for done. */
static int replayed(symm_ctx *ctx, void *arg)
{
    struct scene *scene = arg;
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .site = "replayed", .timeout = SECONDS};
    symm_work *work = NULL;
    void *graph = NULL;

    CHECK_ZERO(device_rank_open(&s, ctx, 65536, 65536, 65536, 1));
    call.stream = s.streams[0];
    CHECK_OK(call_of(&s, REDUCE, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
    if (s.rank == 0) {
        ctx->timeout = scene->pace.seconds; /* of what follows */
        harness_pace_begin(&scene->pace);
        CHECK_ZERO(perf_gpu_capture(s.gpu, s.streams[0]));
        call.algorithm = "copy_engine";
        CHECK_PACED(&scene->pace, symm_signal_wait(s.team, 1, 7, &call, NULL));
        call.algorithm = NULL;
        CHECK_PACED(&scene->pace, call_of(&s, REDUCE, &call, NULL));
        CHECK_ZERO(perf_gpu_captured(s.gpu, s.streams[0], &graph));
        CHECK_ZERO(perf_gpu_replay(s.gpu, graph, s.streams[0]));
        symm_stream_destroy(ctx, s.streams[0]);
        s.streams[0] = NULL;
        perf_gpu_graph_free(s.gpu, graph);
    } else {
        CHECK_PACED(&scene->pace, call_of(&s, REDUCE, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, SECONDS), SYMM_ERR_TIMEOUT);
        symm_work_release(work);
    }
    device_rank_close(&s);
    return 0;
}

/* ---- More waits than hardware queues --------------------------------------------- */

static int crowd(symm_ctx *ctx, void *arg)
{
    struct scene *scene = arg;
    struct device_rank s;
    symm_team *team = NULL;
    symm_call call = {
        .size = sizeof(call), .site = "crowd", .algorithm = "copy_engine"};
    double begin;

    CHECK_ZERO(device_rank_open(&s, ctx, 65536, 65536, 65536, scene->streams));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    call.timeout = scene->end == DEADLINE ? scene->pace.seconds : SECONDS;
    if (scene->end == TEAM || scene->end == FINALIZE)
        call.timeout = 4 * scene->pace.seconds; /* what is given up then must end */
    if (s.rank == 0 || scene->end == DEATH)
        harness_pace_begin(&scene->pace);
    for (int i = 0; i < scene->streams && s.rank == 0; i++) {
        call.stream = s.streams[i];
        CHECK_PACED(&scene->pace, symm_signal_wait(team, 1, i, &call, NULL));
        CHECK_PACED(&scene->pace, symm_put_signal(team, s.heap.device, s.in.device, 64,
                                                  1, 100 + i, &call, NULL));
    }
    if (s.rank == 1 && scene->end == DEATH) {
        harness_sleep(
            scene->pace.seconds); /* the streams wait by then, or find it dead */
        raise(SIGKILL);
    }
    begin = harness_now();
    if (s.rank == 0 && scene->end == FINALIZE) {
        symm_team_destroy(team); /* the streams' ends wait for the device, too */
        device_rank_close(&s);
        return 0;
    }
    if (s.rank == 0 && scene->end == TEAM) {
        symm_team_destroy(team);
        team = NULL;
        CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "%g s",
                      harness_now() - begin);
    }
    for (int i = 0; i < scene->streams && s.rank == 0; i++)
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[i], SECONDS));
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "%g s", harness_now() - begin);
    if (s.rank == 0 && team) {
        symm_status status = symm_barrier(team, NULL, NULL);

        CHECK_MESSAGE(status ==
                          (scene->end == DEATH ? SYMM_ERR_PEER_DEAD : SYMM_ERR_TIMEOUT),
                      "%s: %s", symm_status_name(status), symm_last_error());
        CHECK_ERROR("rank 1");
    }
    while (s.rank == 1 && scene->end != TEAM && scene->end != FINALIZE &&
           symm_signal(team, 0, 200, NULL, NULL) == SYMM_OK)
        harness_sleep(0.01);
    if (s.rank == 1)
        harness_sleep(SHORT); /* nor does its own end raise a signal */
    symm_team_destroy(team);
    device_rank_close(&s);
    return 0;
}

/* A ring by copy engine, twice around, on many streams at once. */
static int many(symm_ctx *ctx, void *arg)
{
    const struct scene *scene = arg;
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .algorithm = "copy_engine"};
    int right, left;

    CHECK_ZERO(device_rank_open(&s, ctx, 65536, 65536, 65536, scene->streams));
    right = (s.rank + 1) % s.n;
    left = (s.rank + s.n - 1) % s.n;
    for (size_t i = 0; i < 65536 / sizeof(int); i++)
        ((int *)(void *)s.in.host)[i] = s.rank * 100000 + (int)i;
    CHECK_ZERO(device_put(&s.in, 0, 65536));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < scene->streams; i++) {
            size_t at = 1024 * (size_t)i;

            call.stream = s.streams[i];
            CHECK_OK(symm_put_signal(s.team, s.heap.device + at, s.in.device + at, 1024,
                                     right, i, &call, NULL));
            CHECK_OK(symm_signal_wait(s.team, left, i, &call, NULL));
        }
    for (int i = 0; i < scene->streams; i++)
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[i], SECONDS));
    CHECK_ZERO(device_get(&s.heap, 0, 65536));
    for (int i = 0; i < scene->streams * 256; i++)
        CHECK(((int *)(void *)s.heap.host)[i] == left * 100000 + i);
    CHECK_OK(symm_barrier(s.team, NULL, NULL)); /* read by all */
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    device_rank_close(&s);
    return 0;
}

/* ---- The suite ------------------------------------------------------------------- */

static enum harness_mode pass = HARNESS_PROCESSES;
static bool lasting; /* SYMM_TEST_LONG=1: every case in both modes */

static void run(harness_body body, int ranks, struct scene scene)
{
    struct scene *shared = harness_shared(sizeof(*shared));
    struct harness h = {.ranks = ranks,
                        .mode = pass,
                        .body = body,
                        .arg = shared,
                        .killed = scene.end == DEATH ? 2 : 0,
                        .team_bytes = (size_t)128 << 20};

    *shared = scene;
    if (device_ranks(ranks) == ranks)
        assert_int_equal(harness_run_paced(&h, &shared->pace, SHORT), 0);
    harness_shared_free(shared, sizeof(*shared));
}

static void test_behind(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        if (lasting || kind == REDUCE || (kind == PUT && pass == HARNESS_PROCESSES))
            run(behind, 2, (struct scene){.behind = kind});
    run(behind, 2, (struct scene){.behind = GATHER, .room = true});
    for (int room = 0; room < 2; room++) /* each wait has to be ended */
        run(behind, 2, (struct scene){.behind = REDUCE, .more = 2, .room = room == 1});
}

static void test_replayed(void **state)
{
    (void)state;
    run(replayed, 2, (struct scene){0});
}

/* A thread cannot be killed alone. */
static bool is_played(int streams, enum end end)
{
    if (pass == HARNESS_THREADS)
        return end != DEATH && (lasting || streams == 16);
    return lasting || streams == 32 || end == DEATH;
}

static void test_crowd(void **state)
{
    static const int streams[] = {8, 16, 32};

    (void)state;
    for (int i = 0; i < 3; i++)
        for (enum end end = DEADLINE; end <= TEAM; end++)
            if (is_played(streams[i], end))
                run(crowd, 2, (struct scene){.streams = streams[i], .end = end});
}

static void test_many(void **state)
{
    (void)state;
    run(many, 2, (struct scene){.streams = 32});
    run(many, 3, (struct scene){.streams = 5});
}

/* Waits that flush remote writes, where the device can: the fake refuses others then. */
static void test_flush(void **state)
{
    (void)state;
    if (device_real() || pass == HARNESS_THREADS) /* its driver has been started */
        return;
    setenv("FAKE_CUDA_FLUSH", "1", 1);
    run(many, 2, (struct scene){.streams = 3});
    run(behind, 2, (struct scene){.behind = REDUCE});
    unsetenv("FAKE_CUDA_FLUSH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind), cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_crowd),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_flush),
    };
    int failed;

    device_suite();
    lasting = harness_env("SYMM_TEST_LONG", 0) == 1 || device_real();
    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
