/* SPDX-License-Identifier: MIT */
/*
 * test_driver_mixed.c - random programs over the model of a device: teams that overlap, streams that
 * ranks queue in their own orders, collectives, puts with signals, and replays between them.
 * A seed makes the list of each stream, equal on all ranks. SYMM_TEST_SEED=n: the first seed;
 * SYMM_TEST_ROUNDS=n: so many (3).
 * ctest: cost 10
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device.h"

#define RANKS   3
#define TEAMS   4 /* the world, {0, 1}, {1, 2}, {0, 2} */
#define STREAMS 4
#define DEEP    6
#define MOST    ((size_t)20000) /* elements */
#define BYTES   (MOST * sizeof(float))

enum what { SUM, PUT, REPLAY, KINDS };

struct op {
    enum what what;
    int team, from, to; /* PUT: ranks of the world */
    size_t count;
};

struct job {
    struct harness_sync sync;
    uint64_t seed;
    double timeout;
};

struct stage {
    struct device_rank r; /* first; its heap: what peers put */
    struct job *job;
    symm_team *team[TEAMS];
    void *graph[STREAMS];
    struct op op[STREAMS][DEEP];
};

static bool is_member(int team, int rank)
{
    return team == 0 || rank == team - 1 || rank == team % RANKS;
}

static float wanted(int team)
{
    float sum = 0;

    for (int r = 0; r < RANKS; r++)
        sum += is_member(team, r) ? (float)(1 + r) : 0;
    return sum;
}

static size_t place(int stream, int k)
{
    return (size_t)(stream * (DEEP + 1) + k) * BYTES;
}

static symm_status sum(struct stage *s, int stream, int k, int team, size_t count)
{
    static const char *const sites[STREAMS] = {"a", "b", "c", "d"};
    const symm_call call = {.size = sizeof(call),
                            .site = sites[stream],
                            .stream = s->r.streams[stream],
                            .timeout = s->job->timeout};

    return symm_all_reduce(s->team[team], s->r.in.device,
                           s->r.out.device + place(stream, k), count, SYMM_FLOAT32,
                           SYMM_SUM, &call, NULL);
}

static symm_status put(struct stage *s, int stream, int k, const struct op *op)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "put",
                            .stream = s->r.streams[stream],
                            .timeout = s->job->timeout};
    char *there = s->r.heap.device + place(stream, k);

    if (s->r.rank == op->from)
        return symm_put_signal(s->r.team, there, s->r.in.device,
                               op->count * sizeof(float), op->to, stream, &call, NULL);
    return symm_signal_wait(s->r.team, op->from, stream, &call, NULL);
}

static symm_status queue(struct stage *s, int stream, int k)
{
    const struct op *op = &s->op[stream][k];

    if (op->what == SUM && is_member(op->team, s->r.rank))
        return sum(s, stream, k, op->team, op->count);
    if (op->what == PUT && (s->r.rank == op->from || s->r.rank == op->to))
        return put(s, stream, k, op);
    if (op->what == REPLAY)
        return perf_gpu_replay(s->r.gpu, s->graph[stream], s->r.streams[stream]);
    return SYMM_OK;
}

static void make_ops(struct stage *s)
{
    static const size_t counts[] = {4, 1000, 5000, 16384, MOST};
    uint64_t random = s->job->seed;

    for (int i = 0; i < STREAMS * DEEP; i++) {
        struct op *op = &s->op[i / DEEP][i % DEEP];

        op->what = (enum what)(harness_random(&random) % KINDS);
        op->team = (int)(harness_random(&random) % TEAMS);
        op->from = (int)(harness_random(&random) % RANKS);
        op->to = (op->from + 1 + (int)(harness_random(&random) % 2)) % RANKS;
        op->count = counts[harness_random(&random) % 5];
    }
}

static int queue_all(struct stage *s)
{
    uint64_t random = s->job->seed * 1000003u + (uint64_t)s->r.rank * 7919u;
    int done[STREAMS] = {0}, left = STREAMS * DEEP;

    while (left > 0) {
        const int i = (int)(harness_random(&random) % STREAMS);
        const int some = 1 + (int)(harness_random(&random) % DEEP);

        for (int k = 0; k < some && done[i] < DEEP; k++, left--)
            CHECK_OK(queue(s, i, done[i]++));
        if (harness_random(&random) % 4 == 0)
            harness_sleep(0.003);
    }
    return 0;
}

static int check_op(struct stage *s, int i, int k)
{
    const struct op *op = &s->op[i][k];
    const struct device_area *area = op->what == PUT ? &s->r.heap : &s->r.out;
    const float *at = (const float *)(const void *)(area->host + place(i, k));

    if (op->what == REPLAY || (op->what == SUM && !is_member(op->team, s->r.rank)) ||
        (op->what == PUT && s->r.rank != op->to))
        return 0;
    for (size_t j = 0; j < op->count; j++)
        CHECK_MESSAGE(at[j] ==
                          (op->what == PUT ? (float)(1 + op->from) : wanted(op->team)),
                      "seed %llu: stream %d, call %d, element %zu is %g",
                      (unsigned long long)s->job->seed, i, k, j, (double)at[j]);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct stage s = {.job = job};

    CHECK_ZERO(device_rank_open(&s.r, ctx, BYTES, place(STREAMS, 0), place(STREAMS, 0),
                                STREAMS));
    for (size_t j = 0; j < MOST; j++)
        ((float *)(void *)s.r.in.host)[j] = (float)(1 + s.r.rank);
    CHECK_ZERO(device_put(&s.r.in, 0, BYTES));
    s.team[0] = s.r.team;
    for (int t = 1; t < TEAMS; t++)
        CHECK_OK(symm_team_split(s.r.team, is_member(t, s.r.rank) ? t : -1, s.r.rank,
                                 &s.team[t]));
    make_ops(&s);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(sum(&s, i, DEEP, 0, 64));
        CHECK_OK(symm_stream_synchronize(ctx, s.r.streams[i], HARNESS_AMPLE));
        CHECK_OK(perf_gpu_capture(s.r.gpu, s.r.streams[i]));
        CHECK_OK(sum(&s, i, DEEP, 0, 1000));
        CHECK_OK(perf_gpu_captured(s.r.gpu, s.r.streams[i], &s.graph[i]));
    }
    CHECK_ZERO(harness_sync_wait(&job->sync, s.r.n));
    CHECK_ZERO(queue_all(&s));
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(symm_stream_synchronize(ctx, s.r.streams[i], HARNESS_AMPLE));
    for (int t = 0; t < TEAMS; t++) /* tells of an error of the calls above */
        if (s.team[t])
            CHECK_OK(symm_barrier(s.team[t], NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
    CHECK_ZERO(device_get(&s.r.out, 0, place(STREAMS, 0)));
    CHECK_ZERO(device_get(&s.r.heap, 0, place(STREAMS, 0)));
    for (int i = 0; i < STREAMS * DEEP; i++)
        CHECK_ZERO(check_op(&s, i / DEEP, i % DEEP));
    CHECK_ZERO(harness_sync_wait(&job->sync, s.r.n));
    for (int i = 0; i < STREAMS; i++)
        perf_gpu_graph_free(s.r.gpu, s.graph[i]);
    for (int t = 1; t < TEAMS; t++)
        if (s.team[t])
            symm_team_destroy(s.team[t]);
    device_rank_close(&s.r);
    return 0;
}

static void test_mixed(void **state)
{
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    const int rounds = (int)harness_env("SYMM_TEST_ROUNDS", 3);

    (void)state;
    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("SYMM_QUEUE_TIMEOUT", "0.001", 1); /* a deadlock ends at the deadline */
    for (int i = 0; i < rounds; i++) {
        struct job *job = harness_shared(sizeof(*job));
        double timeout;
        int failed = 1;

        HARNESS_PATIENCE(timeout, 5.0)
        {
            *job = (struct job){.seed = seed + (uint64_t)i, .timeout = timeout};
            failed = harness_run(&(struct harness){.ranks = RANKS,
                                                   .body = body,
                                                   .arg = job,
                                                   .heap_bytes = (size_t)2 << 30,
                                                   .team_bytes = (size_t)256 << 20});
            if (!failed)
                break;
            printf("seed %llu: again\n", (unsigned long long)job->seed);
        }
        harness_shared_free(job, sizeof(*job));
        assert_int_equal(failed, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixed)};

    device_suite();
    if (device_real())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
