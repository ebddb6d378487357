/* SPDX-License-Identifier: MIT */
/*
 * test_driver_channel.c - the channel of a stream (cuda/channel.c): first uses in any order,
 * more streams than channels, destroyed streams, graphs that hold a channel, the default
 * streams of several threads.
 *
 * ctest: cost 6
 */
#include "core/context.h"
#include "core/team.h"
#include "device.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define COUNT   64
#define BYTES   (COUNT * sizeof(float))
#define PLACES  33 /* arrays of COUNT in the output */

static int open_rank(struct device_rank *s, symm_ctx *ctx)
{
    CHECK_ZERO(device_rank_open(s, ctx, BYTES, PLACES * BYTES, 0, 0));
    for (size_t i = 0; i < COUNT; i++)
        ((float *)(void *)s->in.host)[i] = (float)(1 + s->rank);
    CHECK_ZERO(device_put(&s->in, 0, BYTES));
    return 0;
}

/* The sum of all ranks' inputs at place `at` of the output. */
static symm_status sum(struct device_rank *s, void *stream, const char *site, int at)
{
    symm_call call = {.size = sizeof(call), .site = site, .stream = stream};

    return symm_all_reduce(s->team, s->in.device, s->out.device + (size_t)at * BYTES,
                           COUNT, SYMM_FLOAT32, SYMM_SUM, &call, NULL);
}

static int check_places(struct device_rank *s, int places)
{
    const float wanted = (float)(s->n * (s->n + 1)) / 2;

    CHECK_ZERO(device_get(&s->out, 0, (size_t)places * BYTES));
    for (size_t i = 0; i < (size_t)places * COUNT; i++)
        CHECK(((float *)(void *)s->out.host)[i] == wanted);
    CHECK_ZERO(perf_gpu_fill(s->gpu, s->out.device, 0, PLACES * BYTES));
    return 0;
}

/* First uses in another order on each rank: sites tell the streams apart. */
static int crossed(symm_ctx *ctx, void *arg)
{
    void *streams[6];
    char site[16];
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int i = 0; i < 6; i++)
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 6; i++) {
            int k = s.rank % 2 ? 5 - i : (i + s.rank + round) % 6;

            snprintf(site, sizeof(site), "site%d", k);
            CHECK_OK(sum(&s, streams[k], site, k));
        }
        for (int i = 0; i < 6; i++)
            CHECK_OK(symm_stream_synchronize(ctx, streams[i], SECONDS));
        CHECK_ZERO(check_places(&s, 6));
    }
    for (int i = 0; i < 6; i++)
        symm_stream_destroy(ctx, streams[i]);
    device_rank_close(&s);
    return 0;
}

/* Streams that go, and live ones in turn: more than there are channels. */
static int many(symm_ctx *ctx, void *arg)
{
    const int count = getenv("SYMM_TEST_LONG") ? 10000 : 100;
    void *streams[24];
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int i = 0; i < count; i++) {
        CHECK_OK(symm_stream_create(ctx, &streams[0]));
        CHECK_OK(sum(&s, streams[0], "same", 0));
        CHECK_OK(symm_stream_synchronize(ctx, streams[0], SECONDS));
        symm_stream_destroy(ctx, streams[0]);
    }
    CHECK_ZERO(check_places(&s, 1));
    for (int i = 0; i < 24; i++)
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 24; i++) {
            CHECK_OK(sum(&s, streams[i], "turn", i));
            CHECK_OK(symm_stream_synchronize(ctx, streams[i], SECONDS));
        }
    CHECK_ZERO(check_places(&s, 24));
    for (int i = 0; i < 24; i++)
        symm_stream_destroy(ctx, streams[i]);
    device_rank_close(&s);
    return 0;
}

static void wait_gate(void *gate)
{
    (void)harness_until(gate, 1);
}

/* 33 streams with a call each that has not begun: one is too many, on all ranks. */
static int busy(symm_ctx *ctx, void *arg)
{
    void *streams[SYMM_CHANNELS + 1];
    atomic_int gate = 0;
    struct device_rank s;
    symm_status status = SYMM_OK;

    CHECK_ZERO(open_rank(&s, ctx));
    for (int i = 0; i <= SYMM_CHANNELS; i++) {
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
        CHECK_OK(symm_stream_call(ctx, streams[i], wait_gate, &gate));
        status = sum(&s, streams[i], "busy", i);
        if (i < SYMM_CHANNELS)
            CHECK_OK(status);
    }
    CHECK_STATUS(status, SYMM_ERR_BUSY);
    CHECK_ERROR("all 32 channels");
    atomic_store(&gate, 1);
    for (int i = 0; i <= SYMM_CHANNELS; i++)
        CHECK_OK(symm_stream_synchronize(ctx, streams[i], SECONDS));
    CHECK_ZERO(check_places(&s, SYMM_CHANNELS));
    CHECK_ZERO(harness_sync_wait(arg, s.n)); /* all ranks' calls are over: room again */
    CHECK_OK(symm_barrier(s.team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    CHECK_OK(sum(&s, streams[SYMM_CHANNELS], "busy", 0));
    CHECK_OK(symm_stream_synchronize(ctx, streams[SYMM_CHANNELS], SECONDS));
    CHECK_ZERO(check_places(&s, 1));
    for (int i = 0; i <= SYMM_CHANNELS; i++)
        symm_stream_destroy(ctx, streams[i]);
    device_rank_close(&s);
    return 0;
}

/* A graph's channel is not given away while the graph lives. */
static int held(symm_ctx *ctx, void *arg)
{
    void *stream, *other, *graph = NULL;
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int graphs = 0; graphs < 10; graphs++) {
        CHECK_OK(symm_stream_create(ctx, &stream));
        CHECK_ZERO(perf_gpu_capture(s.gpu, stream)); /* its first use */
        CHECK_OK(sum(&s, stream, "graph", 0));
        CHECK_ZERO(perf_gpu_captured(s.gpu, stream, &graph));
        for (int i = 0; i < 10; i++) {
            CHECK_ZERO(perf_gpu_replay(s.gpu, graph, stream));
            CHECK_OK(symm_stream_create(ctx, &other));
            CHECK_OK(sum(&s, other, "beside", 1));
            CHECK_OK(symm_stream_synchronize(ctx, other, SECONDS));
            symm_stream_destroy(ctx, other);
            CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
            CHECK_ZERO(check_places(&s, 2));
        }
        CHECK_OK(sum(&s, stream, "eager", 0)); /* the same channel, outside of it */
        CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
        CHECK_ZERO(check_places(&s, 1));
        perf_gpu_graph_free(s.gpu, graph);
        symm_stream_destroy(ctx, stream);
    }
    device_rank_close(&s);
    return 0;
}

struct thread {
    struct device_rank *s;
    void *stream;
    int failed;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;

    for (int i = 0; i < 30 && !t->failed; i++)
        t->failed = sum(t->s, t->stream, NULL, 0) != SYMM_OK ||
                    symm_stream_synchronize(t->s->ctx, t->stream, SECONDS) != SYMM_OK;
    return NULL;
}

/* Equal calls of two threads on the default stream, and on the default stream of each. */
static int threads(symm_ctx *ctx, void *arg)
{
    pthread_t ids[2];
    struct thread t[2];
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (uintptr_t stream = 0; stream <= 2; stream++) {
        for (int i = 0; i < 2; i++) {
            t[i] = (struct thread){&s, (void *)stream, 0};
            CHECK_ZERO(pthread_create(&ids[i], NULL, run_thread, &t[i]));
        }
        for (int i = 0; i < 2; i++)
            CHECK_ZERO(pthread_join(ids[i], NULL));
        CHECK_MESSAGE(!t[0].failed && !t[1].failed, "stream %d", (int)stream);
        CHECK_ZERO(check_places(&s, 1));
    }
    device_rank_close(&s);
    return 0;
}

/* Streams with one site, named by their channels, in another order on each rank. */
static int named(symm_ctx *ctx, void *arg)
{
    void *streams[2];
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
    for (int i = 0; i < 2; i++) {
        const int k = s.rank % 2 ? 1 - i : i;
        const symm_call call = {
            .size = sizeof(call), .stream = streams[k], .channel = 1 + k};

        CHECK_OK(symm_all_reduce(s.team, s.in.device, s.out.device + (size_t)k * BYTES,
                                 k ? COUNT : COUNT / 2, SYMM_FLOAT32, SYMM_SUM, &call,
                                 NULL));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_stream_synchronize(ctx, streams[i], SECONDS));
    for (int i = 0; i < 2; i++)
        symm_stream_destroy(ctx, streams[i]);
    device_rank_close(&s);
    return 0;
}

static symm_status sum_named(struct device_rank *s, void *stream, int channel)
{
    const symm_call call = {
        .size = sizeof(call), .site = "named", .stream = stream, .channel = channel};

    return symm_all_reduce(s->team, s->in.device, s->out.device, COUNT, SYMM_FLOAT32,
                           SYMM_SUM, &call, NULL);
}

/* Rank 0 names the channel of a stream whose call has not begun, two times in vain. The others come
 * when that call has ended: they get the same answers, and the third try succeeds on all. */
static int named_busy(symm_ctx *ctx, void *arg)
{
    struct harness_sync *sync = arg;
    atomic_int gate = 0;
    struct device_rank s;
    int channel;

    CHECK_ZERO(device_rank_open(&s, ctx, BYTES, BYTES, 0, 2));
    for (size_t i = 0; i < COUNT; i++)
        ((float *)(void *)s.in.host)[i] = (float)(1 + s.rank);
    CHECK_ZERO(device_put(&s.in, 0, BYTES));
    CHECK_OK(symm_stream_call(ctx, s.streams[0], wait_gate, &gate));
    CHECK_OK(sum(&s, s.streams[0], "first", 0));
    channel = s.team->last_channel + 1;
    for (int try = 0; s.rank == 0 && try < 2; try++) {
        CHECK_STATUS(sum_named(&s, s.streams[1], channel), SYMM_ERR_BUSY);
        CHECK_ERROR("for no rank at this try");
        CHECK_ERROR("of the team is in use by stream 0x");
    }
    CHECK_ZERO(harness_sync_wait(sync, s.n));
    atomic_store(&gate, 1);
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
    CHECK_ZERO(harness_sync_wait(sync, s.n));
    for (int try = 0; s.rank != 0 && try < 2; try++)
        CHECK_STATUS(sum_named(&s, s.streams[1], channel), SYMM_ERR_BUSY);
    CHECK_ZERO(perf_gpu_fill(s.gpu, s.out.device, 0, BYTES));
    CHECK_OK(sum_named(&s, s.streams[1], channel));
    CHECK(s.team->last_channel + 1 == channel);
    CHECK_OK(symm_stream_synchronize(ctx, s.streams[1], SECONDS));
    CHECK_ZERO(device_get(&s.out, 0, BYTES));
    for (size_t i = 0; i < COUNT; i++)
        CHECK(((float *)(void *)s.out.host)[i] == (float)(s.n * (s.n + 1)) / 2);
    CHECK_ZERO(harness_sync_wait(sync, s.n));
    device_rank_close(&s);
    return 0;
}

/* Tries in vain of one stream that is new, of one that has lost its channel, of the default one, and of
 * many with sites of their own. */
#define TRIES   40
#define OTHERS  24
#define REFUSED (3 + OTHERS)

struct refused {
    struct device_rank s;
    void *streams[REFUSED + SYMM_CHANNELS];
    char site[REFUSED][8];
};

static int refused_open(struct refused *r, symm_ctx *ctx, atomic_int *gate)
{
    CHECK_ZERO(open_rank(&r->s, ctx));
    for (int i = 0; i < REFUSED + SYMM_CHANNELS; i++)
        CHECK_OK(symm_stream_create(ctx, &r->streams[i]));
    r->streams[2] = NULL;
    for (int i = 0; i < REFUSED; i++)
        snprintf(r->site[i], sizeof(r->site[i]), "try%d", i);
    CHECK_OK(sum(&r->s, r->streams[0], r->site[0], 0));
    for (int i = REFUSED; i < REFUSED + SYMM_CHANNELS; i++) {
        CHECK_OK(symm_stream_synchronize(ctx, r->streams[0], SECONDS));
        CHECK_OK(sum(&r->s, r->streams[i], "hold", 0));
        CHECK_OK(symm_stream_synchronize(ctx, r->streams[i], SECONDS));
    }
    for (int i = REFUSED; i < REFUSED + SYMM_CHANNELS; i++) {
        CHECK_OK(symm_stream_call(ctx, r->streams[i], wait_gate, gate));
        CHECK_OK(sum(&r->s, r->streams[i], "hold", 0));
    }
    return 0;
}

static int refused_all(struct refused *r)
{
    for (int i = 0; i < REFUSED; i++) {
        const int k = r->s.rank == 0 ? i : REFUSED - 1 - i;

        for (int t = 0; t < (k < 3 ? TRIES : 1); t++) {
            CHECK_STATUS(sum(&r->s, r->streams[k], r->site[k], k), SYMM_ERR_BUSY);
            CHECK_ERROR("all 32 channels");
        }
    }
    return 0;
}

/* Rank 0 polls while all channels are in use. The others come when none is, and get the same answers.
 * Then each stream gets a channel, at one try on all ranks. */
static int refused(symm_ctx *ctx, void *arg)
{
    struct harness_sync *sync = arg;
    atomic_int gate = 0;
    struct refused r;
    bool done[REFUSED] = {false};
    int left = REFUSED;

    CHECK_ZERO(refused_open(&r, ctx, &gate));
    CHECK_ZERO(harness_sync_wait(sync, r.s.n));
    if (r.s.rank == 0)
        CHECK_ZERO(refused_all(&r));
    CHECK_ZERO(harness_sync_wait(sync, r.s.n));
    atomic_store(&gate, 1);
    for (int i = REFUSED; i < REFUSED + SYMM_CHANNELS; i++)
        CHECK_OK(symm_stream_synchronize(ctx, r.streams[i], SECONDS));
    CHECK_ZERO(harness_sync_wait(sync, r.s.n));
    if (r.s.rank != 0)
        CHECK_ZERO(refused_all(&r));
    CHECK_ZERO(perf_gpu_fill(r.s.gpu, r.s.out.device, 0, PLACES * BYTES));
    for (int i = 0; left > 0; i++) {
        const int k = (r.s.rank == 0 ? i : 7 * i + r.s.rank) % REFUSED;
        symm_status status;

        if (done[k])
            continue;
        status = sum(&r.s, r.streams[k], r.site[k], k);
        CHECK(status == SYMM_OK || status == SYMM_ERR_BUSY);
        done[k] = status == SYMM_OK;
        left -= done[k];
        CHECK(i < 100 * REFUSED);
    }
    for (int i = 0; i < REFUSED; i++)
        CHECK_OK(symm_stream_synchronize(ctx, r.streams[i], SECONDS));
    CHECK_ZERO(check_places(&r.s, REFUSED));
    CHECK_ZERO(harness_sync_wait(sync, r.s.n));
    for (int i = 0; i < REFUSED + SYMM_CHANNELS; i++)
        if (r.streams[i])
            symm_stream_destroy(ctx, r.streams[i]);
    device_rank_close(&r.s);
    return 0;
}

/* A channel that was named keeps its name while its streams come and go. */
static int named_again(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    void *stream;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(symm_stream_create(ctx, &stream));
        CHECK_OK(sum_named(&s, stream, 5));
        CHECK(s.team->last_channel == 4);
        CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
        CHECK_ZERO(check_places(&s, 1));
        symm_stream_destroy(ctx, stream);
    }
    device_rank_close(&s);
    return 0;
}

/* Rank 0 replays a call that rank 1 makes without a graph. The sums are right, and the error of rank
 * 0's next call, which rank 1 does not make, does not say that rank 1 has queued it. */
static int replayed(symm_ctx *ctx, void *arg)
{
    struct harness_sync *sync = arg;
    void *graph = NULL, *stream;
    struct device_rank s;
    symm_call call;

    CHECK_ZERO(open_rank(&s, ctx));
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(sum(&s, stream, "both", 0));
    if (s.rank == 0) {
        CHECK_OK(perf_gpu_capture(s.gpu, stream));
        CHECK_OK(sum(&s, stream, "both", 1));
        CHECK_OK(perf_gpu_captured(s.gpu, stream, &graph));
        CHECK_OK(perf_gpu_replay(s.gpu, graph, stream));
    } else {
        CHECK_OK(sum(&s, stream, "both", 1));
    }
    CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
    CHECK_ZERO(check_places(&s, 2));
    CHECK_ZERO(harness_sync_wait(sync, s.n));
    if (s.rank == 0) {
        call = (symm_call){
            .size = sizeof(call), .site = "alone", .stream = stream, .timeout = 0.5};
        CHECK_OK(symm_barrier(s.team, &call, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, stream, SECONDS));
        CHECK_STATUS(symm_barrier(s.team, &call, NULL), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("'alone'");
        CHECK_MESSAGE(!strstr(symm_last_error(), "has queued it"), "%s",
                      symm_last_error());
        perf_gpu_graph_free(s.gpu, graph);
    }
    CHECK_ZERO(harness_sync_wait(sync, s.n));
    symm_stream_destroy(ctx, stream);
    device_rank_close(&s);
    return 0;
}

static int run(harness_body body, int ranks)
{
    const struct harness h = {.ranks = device_ranks(ranks), .body = body};

    return harness_run(&h);
}

/* The ranks meet by arg. */
static int run_together(harness_body body, int ranks)
{
    struct harness_sync *sync = harness_shared(sizeof(*sync));
    const int failed = harness_run(
        &(struct harness){.ranks = device_ranks(ranks), .body = body, .arg = sync});

    harness_shared_free(sync, sizeof(*sync));
    return failed;
}

static void test_crossed(void **state)
{
    (void)state;
    assert_int_equal(run(crossed, 2), 0);
    assert_int_equal(run(crossed, 4), 0);
}

static void test_many(void **state)
{
    (void)state;
    assert_int_equal(run(many, 2), 0);
    assert_int_equal(run(many, 3), 0);
}

static void test_busy(void **state)
{
    (void)state;
    if (device_real()) /* it has 32 hardware queues, and 33 streams wait */
        skip();
    assert_int_equal(run_together(busy, 2), 0);
}

static void test_held(void **state)
{
    (void)state;
    assert_int_equal(run(held, 2), 0);
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(run(threads, 2), 0);
}

static void test_named(void **state)
{
    (void)state;
    assert_int_equal(run(named, 2), 0);
    assert_int_equal(run(named_again, 3), 0);
}

static void test_replayed(void **state)
{
    (void)state;
    assert_int_equal(run_together(replayed, 2), 0);
}

static void test_named_busy(void **state)
{
    (void)state;
    assert_int_equal(run_together(named_busy, 3), 0);
}

static void test_refused(void **state)
{
    (void)state;
    if (device_real()) /* more streams wait than it has hardware queues */
        skip();
    assert_int_equal(run_together(refused, 2), 0);
    assert_int_equal(run_together(refused, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crossed),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_busy),       cmocka_unit_test(test_held),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_named),
        cmocka_unit_test(test_named_busy), cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_refused),
    };

    device_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
