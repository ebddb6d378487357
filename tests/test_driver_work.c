/* SPDX-License-Identifier: MIT */
/*
 * test_driver_work.c - work handles and one-sided calls on the CUDA backend.
 *
 * Handles in all orders: queried, waited for by another stream, followed, released before and
 * after completion, more of them than result words, used after their team's end; the number
 * of driver calls that they need; handles on a thread without a context. Puts and signals by
 * kernel and by copy engine, and a copy-engine wait without a signal. The effect of a failed
 * wait on concurrent and on later calls; calls without a timeout.
 * ctest: cost 14
 */
#include "core/context.h"
#include "device.h"
#include "driver.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE
#define COUNT   ((size_t)256)

static int open_rank(struct device_rank *s, symm_ctx *ctx)
{
    CHECK_ZERO(device_rank_open(s, ctx, 65536, 65536, 65536, 2));
    for (size_t i = 0; i < COUNT; i++)
        ((int *)(void *)s->in.host)[i] = s->rank + 1;
    CHECK_ZERO(device_put(&s->in, 0, COUNT * sizeof(int)));
    return 0;
}

static symm_status reduce(symm_team *team, const void *in, void *out, void *stream,
                          symm_work **work)
{
    symm_call call = {.size = sizeof(call), .site = "work", .stream = stream};

    return symm_all_reduce(team, in, out, COUNT, SYMM_INT32, SYMM_SUM, &call, work);
}

/* fn of symm_work_then: another all_reduce over the first one's result. */
static symm_status again(void *arg, void *stream)
{
    struct device_rank *s = arg;

    return reduce(s->team, s->out.device, s->out.device, stream, NULL);
}

static symm_status refuse(void *arg, void *stream)
{
    (void)arg;
    (void)stream;
    return SYMM_ERR_REFUSED;
}

static void count_up(void *arg)
{
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static int result_is(struct device_rank *s, int value)
{
    CHECK_ZERO(device_get(&s->out, 0, COUNT * sizeof(int)));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(((int *)(void *)s->out.host)[i] == value, "%d, not %d",
                      ((int *)(void *)s->out.host)[i], value);
    return 0;
}

static int orders(struct device_rank *s)
{
    int sum = s->n * (s->n + 1) / 2, called = 0;
    symm_work *work = NULL, *next = NULL, *last = NULL;
    bool done = false;

    CHECK_OK(reduce(s->team, s->in.device, s->out.device, s->streams[0], &work));
    CHECK_OK(symm_work_wait(work, s->streams[1]));
    CHECK_OK(symm_work_then(work, s->streams[1], again, s, &next));
    symm_work_release(work); /* perhaps before it is done */
    CHECK_OK(symm_work_synchronize(next, SECONDS));
    CHECK_OK(symm_work_query(next, &done));
    CHECK(done && strcmp(symm_work_error(next), "") == 0);
    CHECK_ZERO(result_is(s, sum * s->n));
    CHECK_OK(symm_work_then(next, s->streams[0], refuse, NULL, &last));
    symm_work_release(next);
    CHECK_STATUS(symm_work_query(last, &done), SYMM_ERR_REFUSED);
    CHECK(done && strstr(symm_work_error(last), "callback") != NULL);
    symm_work_release(last);
    CHECK_OK(symm_stream_call(s->ctx, s->streams[0], count_up, &called));
    CHECK_OK(symm_stream_call(s->ctx, NULL, count_up, &called));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->streams[0], SECONDS));
    CHECK_OK(symm_stream_synchronize(s->ctx, NULL, SECONDS));
    CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == 2);
    return 0;
}

/* More handles than result words; all released at the end, or while they run. */
static int many(struct device_rank *s)
{
    static symm_work *works[HARNESS_MAX_RANKS][1100];
    symm_work **mine = works[s->rank];

    for (int i = 0; i < 1100; i++)
        CHECK_OK(reduce(s->team, s->in.device, s->out.device, s->streams[0], &mine[i]));
    for (int i = 1099; i >= 0; i -= 2)
        symm_work_release(mine[i]);
    for (int i = 0; i < 1100; i += 2) {
        CHECK_OK(symm_work_synchronize(mine[i], SECONDS));
        symm_work_release(mine[i]);
    }
    return 0;
}

/* A handle keeps its outcome when its team goes; late: the others wait for rank 1 in their
 * kernels by then, and the team goes when that is over. Few elements: one block, which has
 * much time to say too early that it has ended. */
static int outlive(struct device_rank *s, bool late)
{
    const struct timespec begin = {2, 0}, nap = {0, 300000000};
    symm_call call = {.size = sizeof(call), .site = "last", .stream = s->streams[0]};
    symm_team *team = NULL;
    symm_work *work = NULL;
    bool done = false;

    CHECK_OK(symm_team_split(s->team, 0, s->rank, &team));
    if (late && s->rank == 1)
        nanosleep(&begin, NULL);
    CHECK_OK(symm_all_reduce(team, s->in.device, s->out.device, 8, SYMM_INT32, SYMM_SUM,
                             &call, &work));
    if (late) /* the kernel has begun */
        nanosleep(&nap, NULL);
    symm_team_destroy(team);
    CHECK_OK(symm_work_query(work, &done));
    CHECK(done);
    symm_work_release(work);
    CHECK_ZERO(device_get(&s->out, 0, 8 * sizeof(int)));
    CHECK(((int *)(void *)s->out.host)[7] == s->n * (s->n + 1) / 2);
    return 0;
}

/* Every rank in turn is a call ahead while all end another team: giving back the team's memory
 * waits for the own device, never for that of a rank ahead. */
static int end_beside(symm_ctx *ctx, void *arg)
{
    const struct timespec nap = {0, 300000000};
    struct device_rank s;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    for (int ahead = 0; ahead < s.n; ahead++) {
        symm_team *part = NULL;

        CHECK_OK(symm_team_split(s.team, 0, s.rank, &part));
        CHECK_OK(symm_barrier(part, NULL, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
        if (s.rank != ahead)
            nanosleep(&nap, NULL);
        else
            CHECK_OK(reduce(s.team, s.in.device, s.out.device, s.streams[0], NULL));
        symm_team_destroy(part);
        if (s.rank != ahead)
            CHECK_OK(reduce(s.team, s.in.device, s.out.device, s.streams[0], NULL));
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
    }
    device_rank_close(&s);
    return 0;
}

static int handles(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_work *left = NULL;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    CHECK_ZERO(orders(&s));
    CHECK_ZERO(many(&s));
    CHECK_ZERO(outlive(&s, false));
    CHECK_ZERO(outlive(&s, true));
    CHECK_OK(reduce(s.team, s.in.device, s.out.device, NULL, &left));
    CHECK_OK(symm_work_synchronize(left, SECONDS));
    symm_work_release(left);
    device_rank_close(&s);
    return 0;
}

/* ---- What a handle costs --------------------------------------------------------------- */

static void wait_gate(void *gate)
{
    (void)harness_until(gate, 1);
}

/* 100 handles that are released while their stream still waits. */
static int held_back(struct device_rank *s)
{
    atomic_int gate = 0;

    CHECK_OK(symm_stream_call(s->ctx, s->streams[0], wait_gate, &gate));
    for (int i = 0; i < 100; i++) {
        symm_work *work = NULL;

        CHECK_OK(reduce(s->team, s->in.device, s->out.device, s->streams[0], &work));
        symm_work_release(work);
    }
    atomic_store(&gate, 1);
    CHECK_OK(symm_stream_synchronize(s->ctx, s->streams[0], SECONDS));
    return 0;
}

/* Beside the launch: which stream is it, is it captured (asked for the channel and for the
 * handle), and the event's record. What handles that were
 * released early held is used again. The watcher calls the driver, too: now and then. */
static int cheap(symm_ctx *ctx, void *arg)
{
    uint64_t least = UINT64_MAX;
    struct driver driver;
    struct device_rank s;
    int alive;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    CHECK_ZERO(driver_load(&driver));
    for (int i = 0; i < 100; i++) {
        uint64_t before = driver.calls(), now;
        symm_work *work = NULL;

        CHECK_OK(reduce(s.team, s.in.device, s.out.device, s.streams[0], &work));
        now = driver.calls() - before;
        least = now < least ? now : least;
        CHECK_OK(symm_work_synchronize(work, SECONDS));
        symm_work_release(work);
    }
    CHECK_MESSAGE(least <= 5, "%d calls of the driver", (int)least);
    CHECK_ZERO(held_back(&s));
    alive = driver.leaks(NULL);
    for (int i = 0; i < 4; i++)
        CHECK_ZERO(held_back(&s));
    CHECK_MESSAGE(driver.leaks(NULL) < alive + 50, "%d objects, then %d", alive,
                  driver.leaks(NULL));
    device_rank_close(&s);
    return 0;
}

struct visitor {
    struct device_rank *stage;
    int failed;
};

static int visit(struct device_rank *s)
{
    void *const streams[] = {s->streams[0], s->streams[1], NULL};
    symm_work *work = NULL, *next = NULL;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(reduce(s->team, s->in.device, s->out.device, streams[i], &work));
        CHECK_OK(symm_work_wait(work, streams[(i + 1) % 3]));
        CHECK_OK(symm_work_then(work, streams[(i + 2) % 3], again, s, &next));
        CHECK_OK(symm_work_synchronize(next, SECONDS));
        symm_work_release(work);
        symm_work_release(next);
    }
    return 0;
}

static void *visiting(void *arg)
{
    struct visitor *visitor = arg;

    visitor->failed = visit(visitor->stage);
    return NULL;
}

/* A new thread has no context current. */
static int contextless(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    struct visitor visitor = {&s, 1};
    pthread_t thread;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    CHECK(pthread_create(&thread, NULL, visiting, &visitor) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_ZERO(visitor.failed);
    device_rank_close(&s);
    return 0;
}

/* ---- One-sided ------------------------------------------------------------------------ */

/* Around the ring, several times on the same signal: each waits for its left neighbour. */
static int ring(struct device_rank *s, const char *algorithm)
{
    int right = (s->rank + 1) % s->n, left = (s->rank + s->n - 1) % s->n;
    symm_call call = {.size = sizeof(call),
                      .site = "ring",
                      .stream = s->streams[0],
                      .algorithm = algorithm};
    int *got = (int *)(void *)s->heap.host;

    for (int round = 0; round < 5; round++) {
        ((int *)(void *)s->in.host)[0] = 100 * round + s->rank;
        CHECK_ZERO(device_put(&s->in, 0, sizeof(int)));
        CHECK_OK(symm_put_signal(s->team, s->heap.device, s->in.device, sizeof(int),
                                 right, 7, &call, NULL));
        CHECK_OK(symm_signal_wait(s->team, left, 7, &call, NULL));
        CHECK_OK(symm_stream_synchronize(s->ctx, s->streams[0], SECONDS));
        CHECK_ZERO(device_get(&s->heap, 0, sizeof(int)));
        CHECK_MESSAGE(got[0] == 100 * round + left, "%d in round %d", got[0], round);
        CHECK_OK(
            symm_signal(s->team, left, 9, &call, NULL)); /* read: it may come again */
        CHECK_OK(symm_signal_wait(s->team, right, 9, &call, NULL));
    }
    CHECK_OK(symm_stream_synchronize(s->ctx, s->streams[0], SECONDS));
    CHECK(strstr(symm_explain(s->team), algorithm ? "copy engine" : "kernel") != NULL);
    return 0;
}

static int one_sided(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .site = "put"};
    symm_work *work = NULL;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    CHECK_ZERO(ring(&s, NULL));
    CHECK_OK(symm_barrier(s.team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    CHECK_ZERO(ring(&s, "copy_engine"));
    call.algorithm = "ll_push";
    CHECK_STATUS(symm_put(s.team, s.heap.device, s.in.device, 4, 0, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("copy_engine");
    call.algorithm = NULL;
    CHECK_OK(symm_get(s.team, s.out.device, s.heap.device, 4, (s.rank + 1) % s.n, &call,
                      &work));
    CHECK_OK(symm_work_synchronize(work, SECONDS));
    symm_work_release(work);
    CHECK_OK(symm_barrier(s.team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    device_rank_close(&s);
    return 0;
}

/* Nobody sends: the stream goes on after the deadline, and the team says why. */
static int unmet(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .site = "unmet", .timeout = 0.2};
    symm_work *wait;
    symm_status status = SYMM_OK;
    double begin = harness_now();

    CHECK_ZERO(open_rank(&s, ctx));
    call.algorithm = *(const bool *)arg ? "copy_engine" : NULL;
    call.stream = s.streams[0];
    if (s.rank == 0) {
        CHECK_OK(symm_signal_wait(s.team, 1, 3, &call, &wait));
        CHECK_OK(symm_stream_synchronize(ctx, s.streams[0], SECONDS));
        CHECK(harness_now() - begin < HARNESS_SOON);
        CHECK_STATUS(symm_work_synchronize(wait, SECONDS), SYMM_ERR_TIMEOUT);
        symm_work_release(wait);
        while (status == SYMM_OK && harness_now() - begin < SECONDS)
            status = symm_signal(s.team, 1, 4, &call, NULL);
    } else {
        while (status == SYMM_OK && harness_now() - begin < SECONDS) {
            status = symm_signal(s.team, 0, 4, NULL, NULL);
            harness_sleep(0.01);
        }
    }
    CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "%s: %s", symm_status_name(status),
                  symm_last_error());
    CHECK_ERROR("signal 3");
    CHECK_ERROR("unmet");
    device_rank_close(&s);
    return 0;
}

static symm_status reduce_ints(struct device_rank *s, const symm_call *call,
                               symm_work **work)
{
    return symm_all_reduce(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                           SYMM_SUM, call, work);
}

/*
 * A wait for a signal fails on a stream that no collective has used: neither the collective
 * that waits on another stream meanwhile nor the one after it on its own ends well.
 */
static int doomed(symm_ctx *ctx, void *arg)
{
    struct harness_pace *pace = arg;
    struct device_rank s;
    const symm_call patient = {.size = sizeof(patient), .timeout = HARNESS_AMPLE};
    const symm_call wait = {.size = sizeof(wait), .timeout = pace->seconds};
    symm_work *beside, *behind;
    symm_call call = wait;

    CHECK_ZERO(open_rank(&s, ctx));
    if (s.rank == 0) {
        call.stream = s.streams[0];
        CHECK_OK(reduce_ints(&s, &patient, &beside));
        harness_pace_begin(pace);
        CHECK_OK(symm_signal_wait(s.team, 1, 3, &call, NULL));
        CHECK_PACED(pace, reduce_ints(&s, &call, &behind));
        CHECK_STATUS(symm_work_synchronize(beside, SECONDS), SYMM_ERR_TIMEOUT);
        CHECK_STATUS(symm_work_synchronize(behind, SECONDS), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("signal 3");
        symm_work_release(beside);
        symm_work_release(behind);
    }
    while (symm_signal(s.team, 1 - s.rank, 4, NULL, NULL) ==
           SYMM_OK) /* until it has failed */
        harness_sleep(0.01);
    device_rank_close(&s);
    return 0;
}

/* Who has done its part and left is not blamed for another's signal. */
static int third(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    const symm_call call = {.size = sizeof(call), .site = "third", .timeout = 0.2};
    double begin = harness_now();

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    if (s.rank == 0) {
        while (__atomic_load_n(&symm__near_control(ctx, 2)->live, __ATOMIC_ACQUIRE) !=
                   SYMM_LIVE_FINISHED &&
               harness_now() - begin < SECONDS)
            harness_sleep(0.001);
        CHECK_OK(symm_signal_wait(s.team, 1, 3, &call, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
        CHECK_STATUS(symm_signal(s.team, 1, 4, NULL, NULL), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("rank 1 did not raise signal 3");
    }
    while (s.rank == 1 && symm_signal(s.team, 0, 4, NULL, NULL) == SYMM_OK)
        harness_sleep(0.01);
    device_rank_close(&s);
    return 0;
}

/* For ever is not at once. */
static int endless(symm_ctx *ctx, void *arg)
{
    struct device_rank s;
    symm_call call = {.size = sizeof(call), .timeout = INFINITY};
    symm_work *work;

    (void)arg;
    CHECK_ZERO(open_rank(&s, ctx));
    if (s.rank == 1)
        harness_sleep(1); /* rank 0 has looked at the clock twice meanwhile */
    CHECK_OK(reduce_ints(&s, &call, &work));
    CHECK_OK(symm_work_synchronize(work, SECONDS));
    symm_work_release(work);
    if (s.rank == 1)
        harness_sleep(1);
    call.timeout = 1e12;
    CHECK_OK(s.rank == 1 ? symm_signal(s.team, 0, 3, &call, NULL)
                         : symm_signal_wait(s.team, 1, 3, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    device_rank_close(&s);
    return 0;
}

static enum harness_mode pass = HARNESS_PROCESSES;

static void run(harness_body body, int ranks, bool engine)
{
    bool arg = engine;
    struct harness h = {.ranks = ranks,
                        .mode = pass,
                        .body = body,
                        .arg = &arg,
                        .team_bytes = (size_t)128 << 20};

    if (device_ranks(ranks) == ranks)
        assert_int_equal(harness_run(&h), 0);
}

static void test_handles(void **state)
{
    (void)state;
    run(handles, 2, false);
}

static void test_end(void **state)
{
    (void)state;
    run(end_beside, 2, false);
}

static void test_cost(void **state)
{
    (void)state;
    if (!device_real()) /* it asks the fake driver for its count */
        run(cheap, 1, false);
    run(contextless, 2, false);
}

static void test_one_sided(void **state)
{
    (void)state;
    run(one_sided, 2, false);
    run(one_sided, 3, false);
}

static void test_unmet(void **state)
{
    (void)state;
    run(unmet, 2, false);
    run(unmet, 2, true);
}

static void test_doomed(void **state)
{
    struct harness_pace *pace = harness_shared(sizeof(*pace));
    struct harness h = {.ranks = 2,
                        .mode = pass,
                        .body = doomed,
                        .arg = pace,
                        .team_bytes = (size_t)128 << 20};

    (void)state;
    if (device_ranks(2) == 2)
        assert_int_equal(harness_run_paced(&h, pace, 0.3), 0);
    harness_shared_free(pace, sizeof(*pace));
}

static void test_third(void **state)
{
    (void)state;
    run(third, 3, false);
}

static void test_endless(void **state)
{
    (void)state;
    run(endless, 2, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles), cmocka_unit_test(test_end),
        cmocka_unit_test(test_cost),    cmocka_unit_test(test_one_sided),
        cmocka_unit_test(test_unmet),   cmocka_unit_test(test_doomed),
        cmocka_unit_test(test_endless), cmocka_unit_test(test_third)};
    int failed;

    device_suite();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
