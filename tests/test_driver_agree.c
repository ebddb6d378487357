/* SPDX-License-Identifier: MIT */
/*
 * test_driver_agree.c - the ranks of a team agree on one channel for a stream, whatever
 * their timing (channel_table.c): streams that lose their channel and return in another
 * order, requests for more scratch by a rank that is far ahead, first uses in random
 * orders, and BUSY on all ranks.
 *
 * ctest: cost 5
 * ctest: load 3
 */
#include "core/team.h"
#include "device.h"
#include "kernels/cuda_launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define SMALL   64    /* elements of a call that any channel's scratch serves */
#define LARGE   32768 /* 128 KiB: wants large scratch */
#define STREAMS (SYMM_CHANNELS + 8)
#define CALLS   256
#define MOST    4 /* ranks */

/* In memory that all ranks share: the channel of each rank's i-th call, and where ranks are. */
struct shared {
    int channel[MOST][CALLS];
    symm_status status[MOST][STREAMS];
    atomic_int ready;
    struct harness_sync sync;
    uint64_t seed;
};

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area in, out;
    struct shared *shared;
    void *stream[STREAMS];
    uint64_t random;
    int rank, n, calls;
    size_t count;
};

/* `streams` of them, each with an array of `count` elements of its own in both areas. */
static int stage_open(struct stage *s, symm_ctx *ctx, void *arg, int streams,
                      size_t count)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    s->shared = arg;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->count = count;
    s->random = s->shared->seed + (uint64_t)s->rank;
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL,
                                (size_t)streams * count * sizeof(float)));
    CHECK_ZERO(device_area_open(&s->out, s->gpu, NULL,
                                (size_t)streams * count * sizeof(float)));
    for (size_t i = 0; i < (size_t)streams * count; i++)
        ((float *)(void *)s->in.host)[i] =
            (float)(1 + i / count + 100 * (size_t)s->rank);
    CHECK_ZERO(device_put(&s->in, 0, (size_t)streams * count * sizeof(float)));
    for (int i = 0; i < streams; i++)
        CHECK_OK(symm_stream_create(ctx, &s->stream[i]));
    return 0;
}

static void stage_close(struct stage *s, int streams)
{
    for (int i = 0; i < streams; i++)
        symm_stream_destroy(s->ctx, s->stream[i]);
    device_area_close(&s->in);
    device_area_close(&s->out);
    perf_gpu_close(s->gpu);
}

/* The sum over the ranks of stream i's array; notes its channel. */
static symm_status sum(struct stage *s, int i, const char *site)
{
    const symm_call call = {.size = sizeof(call), .site = site, .stream = s->stream[i]};
    const size_t at = (size_t)i * s->count * sizeof(float);
    symm_status status = symm_all_reduce(s->team, s->in.device + at, s->out.device + at,
                                         s->count, SYMM_FLOAT32, SYMM_SUM, &call, NULL);

    if (s->calls < CALLS)
        s->shared->channel[s->rank][s->calls++] = s->team->last_channel;
    return status;
}

static int check_sum(struct stage *s, int i)
{
    const size_t at = (size_t)i * s->count * sizeof(float);
    const float *out = (const float *)(const void *)(s->out.host + at);
    const float wanted = (float)(s->n * (1 + i) + 100 * s->n * (s->n - 1) / 2);

    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], SECONDS));
    CHECK_ZERO(device_get(&s->out, at, s->count * sizeof(float)));
    for (size_t k = 0; k < s->count; k++)
        CHECK_MESSAGE(out[k] == wanted, "stream %d, element %zu: %g, not %g", i, k,
                      (double)out[k], (double)wanted);
    CHECK_ZERO(perf_gpu_fill(s->gpu, s->out.device + at, 0, s->count * sizeof(float)));
    return 0;
}

/* Have all ranks taken the same channels, call by call? */
static int check_channels(struct stage *s)
{
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int c = 0; c < s->calls; c++)
        CHECK_MESSAGE(s->shared->channel[s->rank][c] == s->shared->channel[0][c],
                      "call %d: channel %d, rank 0 took %d", c,
                      s->shared->channel[s->rank][c], s->shared->channel[0][c]);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    s->calls = 0;
    return 0;
}

static void shuffle(int *list, int count, uint64_t *random)
{
    for (int i = count - 1; i > 0; i--) {
        const int other = (int)(harness_random(random) % (unsigned)(i + 1));
        const int kept = list[i];

        list[i] = list[other];
        list[other] = kept;
    }
}

/*
 * More streams than channels, all with equal calls, used for the first time in one order.
 * Later they come in another order on each rank: each stream goes on to meet the same one.
 */
static int pairs(symm_ctx *ctx, void *arg)
{
    uint64_t common = ((struct shared *)arg)->seed;
    int order[STREAMS], some[6];
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, STREAMS, SMALL));
    for (int i = 0; i < STREAMS; i++) {
        order[i] = i;
        CHECK_OK(sum(&s, i, NULL));
        CHECK_ZERO(check_sum(&s, i));
        CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    }
    for (int round = 0; round < 24; round++) {
        shuffle(order, STREAMS, &common); /* the same streams on all ranks, */
        memcpy(some, order, sizeof(some));
        shuffle(some, 6, &s.random); /* not in the same order */
        for (int i = 0; i < 6; i++)
            CHECK_OK(sum(&s, some[i], NULL));
        for (int i = 0; i < 6; i++)
            CHECK_ZERO(check_sum(&s, some[i]));
        CHECK_ZERO(
            harness_sync_wait(&s.shared->sync, s.n)); /* their channels are idle */
    }
    stage_close(&s, STREAMS);
    return 0;
}

/* Streams used one after the other, each for a while: each gets the large scratch at once. */
static int in_turn(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 8, LARGE));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 8; i++) {
            for (int k = 0; k < 2; k++) {
                CHECK_OK(sum(&s, i, "turn"));
                CHECK_MESSAGE(s.team->last_channel < SYMM_LARGE_CHANNELS,
                              "round %d, stream %d, call %d: channel %d", round, i, k,
                              s.team->last_channel);
            }
            CHECK_ZERO(check_sum(&s, i));
            /* this rank's kernels have ended, and now all ranks' */
            CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
        }
    CHECK_ZERO(check_channels(&s));
    stage_close(&s, 8);
    return 0;
}

/*
 * The same streams without a wait for other ranks, which are each late at random: which
 * channel a call gets depends on the time, but is the same on all ranks; and a stream that
 * has stayed on a small channel moves once a large one is idle.
 */
static int at_any_time(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 5, LARGE));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++)
            for (int k = 0; k < 3; k++) {
                if (harness_random(&s.random) % 3 == 0)
                    harness_sleep(1e-3 * (double)(harness_random(&s.random) % 8));
                CHECK_OK(sum(&s, i, "any"));
                if (harness_random(&s.random) % 4 == 0)
                    CHECK_OK(symm_stream_synchronize(ctx, s.stream[i], SECONDS));
            }
        for (int i = 0; i < 5; i++)
            CHECK_ZERO(check_sum(&s, i));
    }
    CHECK_ZERO(check_channels(&s));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(sum(&s, 4, "any"));
        CHECK_ZERO(check_sum(&s, 4));
        CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    }
    CHECK(s.team->last_channel < SYMM_LARGE_CHANNELS);
    stage_close(&s, 5);
    return 0;
}

/* Rank 0 makes all its calls before the others make one, and is told to stay where it is
 * more often than the table has room for keys. The others come when channels are idle. */
static int far_ahead(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 6, LARGE));
    if (s.rank != 0)
        CHECK(harness_until(&s.shared->ready, 1));
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 10; k++)
            CHECK_OK(sum(&s, i, "ahead"));
        if (s.rank != 0)
            CHECK_OK(symm_stream_synchronize(ctx, s.stream[i], SECONDS));
    }
    atomic_store(&s.shared->ready, 1);
    for (int i = 0; i < 6; i++)
        CHECK_ZERO(check_sum(&s, i));
    CHECK_ZERO(check_channels(&s));
    stage_close(&s, 6);
    return 0;
}

/* First uses of many streams in an order of its own on each rank, with no wait between. */
static int shuffled(symm_ctx *ctx, void *arg)
{
    const int streams = SYMM_CHANNELS < 24 ? SYMM_CHANNELS : 24;
    int order[STREAMS];
    char site[16];
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, streams, SMALL));
    for (int i = 0; i < streams; i++)
        order[i] = i;
    for (int round = 0; round < 3; round++) {
        shuffle(order, streams, &s.random);
        for (int i = 0; i < streams; i++) {
            snprintf(site, sizeof(site), "site%d", order[i]);
            CHECK_OK(sum(&s, order[i], site));
        }
        for (int i = 0; i < streams; i++)
            CHECK_ZERO(check_sum(&s, i));
    }
    stage_close(&s, streams);
    return 0;
}

/*
 * A stream more than there are channels. Rank 0 comes first; the others come to the call that
 * it was refused when channels are idle again: it is refused there too, and works later.
 */
static int refused(symm_ctx *ctx, void *arg)
{
    const int last = SYMM_CHANNELS;
    char site[16], name[24];
    struct stage s;
    symm_status status;

    CHECK_ZERO(stage_open(&s, ctx, arg, SYMM_CHANNELS + 1, SMALL));
    if (s.rank != 0)
        CHECK(harness_until(&s.shared->ready, 1));
    for (int i = 0; i < SYMM_CHANNELS; i++) {
        snprintf(site, sizeof(site), "site%d", i);
        CHECK_OK(sum(&s, i, site));
        if (s.rank != 0)
            CHECK_ZERO(check_sum(&s, i));
    }
    status = sum(&s, last, "last");
    CHECK_STATUS(status, SYMM_ERR_BUSY);
    CHECK_ERROR("channels of the team are in use");
    snprintf(name, sizeof(name), "%p", s.stream[last]);
    CHECK_ERROR(name); /* the stream that has none, and those that have one */
    if (s.rank == 0) {
        snprintf(name, sizeof(name), "%p", s.stream[0]);
        CHECK_ERROR(name);
    }
    atomic_store(&s.shared->ready, 1);
    for (int i = 0; i < SYMM_CHANNELS && s.rank == 0; i++)
        CHECK_ZERO(check_sum(&s, i));
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    CHECK_OK(sum(&s, last, "last"));
    CHECK_ZERO(check_sum(&s, last));
    stage_close(&s, SYMM_CHANNELS + 1);
    return 0;
}

/* First calls that differ pair no streams: the error names both ranks' calls. */
static int unpaired(symm_ctx *ctx, void *arg)
{
    symm_status status;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 1, SMALL));
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n)); /* the deadline is short */
    status = sum(&s, 0, s.rank == 0 ? "left" : "right");
    if (status == SYMM_OK)
        status = symm_stream_synchronize(ctx, s.stream[0], SECONDS);
    if (status == SYMM_OK)
        status = sum(&s, 0, "later");
    CHECK_STATUS(status, SYMM_ERR_TIMEOUT);
    CHECK_ERROR("has not paired");
    CHECK_ERROR("'left'");
    CHECK_ERROR("'right'");
    stage_close(&s, 1);
    return 0;
}

/* The ways in which one rank's first call at a site differs. */
static const struct first {
    symm_dtype dtype;
    symm_op op;
    size_t less;
    size_t shift;      /* of `in`, elements */
    const char *named; /* in the sentence */
} firsts[] = {{SYMM_FLOAT32, SYMM_MAX, 0, 0, "max"},
              {SYMM_INT32, SYMM_SUM, 0, 0, "int32"},
              {SYMM_FLOAT32, SYMM_SUM, 1, 0, "sum of 63 float32"},
              {SYMM_FLOAT32, SYMM_SUM, 0, 32, "`in` is"}};

/* First calls of one site that differ pair no streams either: a mismatch on every rank, which shows
 * the difference. The stream's second call is queued, and must not be taken for the first. */
static int differs(symm_ctx *ctx, void *arg)
{
    const struct first same = {SYMM_FLOAT32, SYMM_SUM, 0, 0, NULL};
    struct shared *shared = arg;
    const struct first *wanted = &firsts[shared->seed], *mine = &same;
    struct device_area heap;
    symm_work *work = NULL;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 1, SMALL));
    CHECK_ZERO(device_area_open(&heap, s.gpu, s.team, 2 * SMALL * sizeof(float)));
    CHECK_OK(symm_rendezvous(s.team));
    if (s.rank == s.n - 1)
        mine = wanted;
    const symm_call call = {.size = sizeof(call),
                            .site = "first",
                            .stream = s.stream[0],
                            .algorithm = shared->seed == 3 ? "one_shot_pull" : NULL};
    CHECK_ZERO(harness_sync_wait(&shared->sync, s.n)); /* the deadline is short */
    CHECK_OK(symm_all_reduce(s.team, heap.device + mine->shift * sizeof(float),
                             s.out.device, SMALL - mine->less, mine->dtype, mine->op,
                             &call, &work));
    (void)sum(&s, 0, "second");
    CHECK_STATUS(symm_work_synchronize(work, SECONDS), SYMM_ERR_MISMATCH);
    CHECK_ERROR("'first'");
    CHECK_ERROR(wanted->named);
    symm_work_release(work);
    device_area_close(&heap);
    stage_close(&s, 1);
    return 0;
}

/* One call, but rank 1 names another channel, or alone names one. */
static int other_channel(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_work *work = NULL;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 1, SMALL));
    const symm_call call = {.size = sizeof(call),
                            .stream = s.stream[0],
                            .channel = s.rank == 1 ? 7 : (int)shared->seed};
    CHECK_ZERO(harness_sync_wait(&shared->sync, s.n)); /* the deadline is short */
    CHECK_OK(symm_all_reduce(s.team, s.in.device, s.out.device, SMALL, SYMM_FLOAT32,
                             SYMM_SUM, &call, &work));
    CHECK_STATUS(symm_work_synchronize(work, SECONDS), SYMM_ERR_MISMATCH);
    CHECK_ERROR("symm_call.channel is ");
    CHECK_ERROR("7 on rank 1");
    CHECK_ERROR(shared->seed == 9 ? "9 on rank 0" : "0 on rank 0");
    symm_work_release(work);
    stage_close(&s, 1);
    return 0;
}

/* The same of a graph: its calls are not counted among those that the host has queued. */
static int captured_differs(symm_ctx *ctx, void *arg)
{
    const size_t count = SMALL - (size_t)(symm_team_rank(symm_team_world(ctx)) == 1);
    symm_status status;
    void *graph;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg, 2, SMALL));
    const symm_call call = {
        .size = sizeof(call), .site = "first", .stream = s.stream[0]};
    CHECK_OK(perf_gpu_capture(s.gpu, s.stream[0]));
    status = symm_all_reduce(s.team, s.in.device, s.out.device, count, SYMM_FLOAT32,
                             SYMM_SUM, &call, NULL);
    CHECK_OK(perf_gpu_captured(s.gpu, s.stream[0], &graph));
    CHECK_OK(status);
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n)); /* the deadline is short */
    CHECK_OK(perf_gpu_replay(s.gpu, graph, s.stream[0]));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream[0], SECONDS));
    CHECK_STATUS(sum(&s, 1, "later"), SYMM_ERR_MISMATCH);
    CHECK_ERROR("sum of 64 float32");
    CHECK_ERROR("sum of 63 float32");
    perf_gpu_graph_free(s.gpu, graph);
    stage_close(&s, 2);
    return 0;
}

static int run(harness_body body, int ranks, uint64_t seed)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    const struct harness h = {
        .ranks = device_ranks(ranks), .body = body, .arg = shared};
    int failed;

    shared->seed = seed;
    failed = harness_run(&h);
    if (failed)
        fprintf(stderr, "with %d ranks and seed %llu\n", h.ranks,
                (unsigned long long)seed);
    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

/* On the numbers of ranks, with seeds: more of them by SYMM_TEST_LONG. */
static void run_seeds(harness_body body, int few, int many)
{
    const uint64_t seeds = getenv("SYMM_TEST_LONG") ? 20 : 1;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        assert_int_equal(run(body, few, seed), 0);
        if (many > few)
            assert_int_equal(run(body, many, 1000 + seed), 0);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    run_seeds(pairs, 2, 3);
}

static void test_in_turn(void **state)
{
    (void)state;
    run_seeds(in_turn, 2, 2);
}

static void test_at_any_time(void **state)
{
    (void)state;
    run_seeds(at_any_time, 2, 3);
}

static void test_far_ahead(void **state)
{
    (void)state;
    run_seeds(far_ahead, 2, 2);
}

static void test_shuffled(void **state)
{
    (void)state;
    run_seeds(shuffled, 2, 4);
}

static void test_unpaired(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    const struct harness h = {
        .ranks = 2, .body = unpaired, .arg = shared, .timeout = 1};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(shared, sizeof(*shared));
}

static void test_differs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        struct shared *shared = harness_shared(sizeof(*shared));
        const struct harness h = {.ranks = device_ranks(i == 0 ? 3 : 2),
                                  .body = differs,
                                  .arg = shared,
                                  .timeout = 2};

        shared->seed = i;
        assert_int_equal(harness_run(&h), 0);
        harness_shared_free(shared, sizeof(*shared));
    }
}

static void test_other_channel(void **state)
{
    (void)state;
    for (uint64_t channel = 0; channel <= 9; channel += 9) {
        struct shared *shared = harness_shared(sizeof(*shared));
        const struct harness h = {
            .ranks = 2, .body = other_channel, .arg = shared, .timeout = 2};

        shared->seed = channel;
        assert_int_equal(harness_run(&h), 0);
        harness_shared_free(shared, sizeof(*shared));
    }
}

static void test_captured_differs(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    const struct harness h = {
        .ranks = 2, .body = captured_differs, .arg = shared, .timeout = 2};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(shared, sizeof(*shared));
}

static void test_refused(void **state)
{
    (void)state;
    run_seeds(refused, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_at_any_time),
        cmocka_unit_test(test_far_ahead),
        cmocka_unit_test(test_shuffled),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_unpaired),
        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_captured_differs),
        cmocka_unit_test(test_other_channel),
    };

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
