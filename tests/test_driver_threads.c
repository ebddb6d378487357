/* SPDX-License-Identifier: MIT */
/*
 * test_driver_threads.c - several threads of a rank that make one-sided calls on one stream at
 * the same time: the default stream, the default stream of each thread, and a stream that all
 * share; by kernel and by copy engine.
 *
 * ctest: cost 5
 */
#include "core/context.h"
#include "device.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define COUNT   256
#define BYTES   (COUNT * sizeof(int32_t))
#define THREADS 4
#define ROUNDS  12

/* In memory that all ranks share: where all threads of all ranks meet, and all ranks. */
struct shared {
    struct harness_sync sync, ranks;
};

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    struct device_area out, in; /* THREADS places; the peer puts into `in` */
    struct shared *shared;
    int rank, n, threads;
    const char *algorithm;
    void *stream;
};

struct thread {
    struct stage *s;
    int index, failed;
};

/* The arguments of one thread's call: signal and place are its own. */
static symm_call call_of(const struct stage *s)
{
    return (symm_call){.size = sizeof(symm_call),
                       .site = "threads",
                       .algorithm = s->algorithm,
                       .stream = s->stream};
}

static int give(const struct stage *s, int index)
{
    const symm_call call = call_of(s);
    const size_t at = (size_t)index * BYTES;
    const int to = (s->rank + 1) % s->n;

    CHECK_OK(symm_put_signal(s->team, s->in.device + at, s->out.device + at, BYTES, to,
                             index, &call, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, SECONDS));
    return 0;
}

static int take(const struct stage *s, int index)
{
    const symm_call call = call_of(s);
    const int from = (s->rank + s->n - 1) % s->n;

    CHECK_OK(symm_signal_wait(s->team, from, index, &call, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, SECONDS));
    return 0;
}

/* A signal without data, a put without a signal, and a get: each between two bootstraps. */
static int others(const struct stage *s, int index)
{
    symm_call call = call_of(s);
    const size_t at = (size_t)index * BYTES;
    const int to = (s->rank + 1) % s->n;

    CHECK_OK(symm_signal(s->team, to, THREADS + index, &call, NULL));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n * s->threads));
    CHECK_OK(symm_signal_wait(s->team, (s->rank + s->n - 1) % s->n, THREADS + index,
                              &call, NULL));
    call.algorithm = NULL;
    CHECK_OK(symm_put(s->team, s->in.device + at, s->out.device + at, BYTES, to, &call,
                      NULL));
    CHECK_OK(symm_get(s->team, s->out.device + at, s->out.device + at, BYTES, s->rank,
                      &call, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, SECONDS));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n * s->threads));
    return 0;
}

/*
 * First ranks of even number put and the others wait, then the other way round. So a stream
 * never holds a put after another thread's wait, in whichever order threads come.
 */
static int round_of(const struct stage *s, int index)
{
    for (int half = 0; half < 2; half++) {
        if (half == s->rank % 2)
            CHECK_ZERO(give(s, index));
        else
            CHECK_ZERO(take(s, index));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n * s->threads));
    }
    return others(s, index);
}

static void *run_thread(void *arg)
{
    struct thread *t = arg;

    t->failed = round_of(t->s, t->index);
    return NULL;
}

static int run_round(struct stage *s, int number)
{
    const int from = (s->rank + s->n - 1) % s->n, each = COUNT;
    int32_t *out = (int32_t *)(void *)s->out.host;
    const int32_t *in = (const int32_t *)(const void *)s->in.host;
    pthread_t ids[THREADS];
    struct thread t[THREADS];

    for (int k = 0; k < s->threads * each; k++)
        out[k] = 1000 * number + 10 * s->rank + k / each;
    CHECK_ZERO(device_put(&s->out, 0, (size_t)s->threads * BYTES));
    for (int i = 0; i < s->threads; i++) {
        t[i] = (struct thread){s, i, 0};
        CHECK_ZERO(pthread_create(&ids[i], NULL, run_thread, &t[i]));
    }
    for (int i = 0; i < s->threads; i++)
        CHECK_ZERO(pthread_join(ids[i], NULL));
    for (int i = 0; i < s->threads; i++)
        CHECK(!t[i].failed);
    CHECK_ZERO(device_get(&s->in, 0, (size_t)s->threads * BYTES));
    for (int k = 0; k < s->threads * each; k++)
        CHECK(in[k] == 1000 * number + 10 * from + k / each);
    CHECK_ZERO(harness_sync_wait(&s->shared->ranks, s->n)); /* `in` may change */
    return 0;
}

static int one_sided(symm_ctx *ctx, void *arg)
{
    struct stage s = {.ctx = ctx, .team = symm_team_world(ctx), .shared = arg};
    struct perf_gpu *gpu = device_open(ctx);
    void *streams[3] = {NULL, (void *)2 /* CU_STREAM_PER_THREAD */, NULL};

    CHECK(gpu != NULL);
    s.rank = symm_team_rank(s.team);
    s.n = symm_team_size(s.team);
    CHECK_ZERO(device_area_open(&s.out, gpu, s.team, THREADS * BYTES));
    CHECK_ZERO(device_area_open(&s.in, gpu, s.team, THREADS * BYTES));
    CHECK_OK(symm_rendezvous(s.team));
    CHECK_OK(symm_stream_create(ctx, &streams[2]));
    for (int i = 0; i < 3; i++)
        for (int engine = 0; engine < 2; engine++) {
            s.stream = streams[i];
            s.algorithm = engine ? "copy_engine" : NULL;
            s.threads = 2 + (i + engine) % 3;
            for (int round = 0; round < ROUNDS; round++)
                CHECK_ZERO(run_round(&s, round));
        }
    symm_stream_destroy(ctx, streams[2]);
    device_area_close(&s.out);
    device_area_close(&s.in);
    perf_gpu_close(gpu);
    return 0;
}

static int run(int ranks, enum harness_mode mode)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    const struct harness h = {
        .ranks = device_ranks(ranks), .mode = mode, .body = one_sided, .arg = shared};
    const int failed = harness_run(&h);

    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

static void test_one_sided(void **state)
{
    (void)state;
    assert_int_equal(run(2, HARNESS_PROCESSES), 0);
    assert_int_equal(run(4, HARNESS_PROCESSES), 0);
    assert_int_equal(run(2, HARNESS_THREADS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_sided)};

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
