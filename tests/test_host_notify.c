/* SPDX-License-Identifier: MIT */
/*
 * test_host_notify.c - functions that tell the end of a call (host backend).
 *
 * Each function is called once, on the context's own thread, with the call's status: given before
 * or after the end, for handles that were released, by four threads at a time, and from within
 * another function. Gates hold calls back for certain (notify_stage.h).
 */
#include "notify_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int body_order(symm_ctx *ctx, void *arg)
{
    enum { WORKS = 20, EACH = 3 };
    static _Thread_local struct told told[WORKS * EACH];
    symm_team *team = symm_team_world(ctx);
    struct gate gate = {0};
    symm_work *works[WORKS];
    symm_call call = {.size = 0};
    void *stream = NULL;
    int next = 0;

    (void)arg;
    memset(told, 0, sizeof(told));
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "order");
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    for (int i = 0; i < WORKS; i++) {
        CHECK_OK(symm_barrier(team, &call, &works[i]));
        for (int k = 0; k < EACH; k++) {
            told[i * EACH + k].next = &next;
            told[i * EACH + k].work = works[i];
            CHECK_OK(symm_work_notify(works[i], tell, &told[i * EACH + k]));
        }
    }
    harness_sleep(0.02);
    CHECK(atomic_load(&told[0].calls) == 0);
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&told[WORKS * EACH - 1].calls, 1));
    for (int i = 0; i < WORKS * EACH; i++) {
        CHECK(atomic_load(&told[i].calls) == 1 && told[i].status == SYMM_OK);
        CHECK_MESSAGE(told[i].number == i, "call %d was the %d-th", i, told[i].number);
        CHECK(told[i].done && !pthread_equal(told[i].thread, pthread_self()));
        CHECK(pthread_equal(told[i].thread, told[0].thread));
    }
    for (int i = 0; i < WORKS; i++)
        symm_work_release(works[i]);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void functions_are_called_in_order(void **state)
{
    static const int ranks[] = {1, 2, 3};

    assert_int_equal(run_for(state, body_order, ranks, 3), 0);
}

/* After the end, also where the call was complete on return. */
static int body_after(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct told told[3] = {{0}};
    symm_work *work = NULL;
    symm_call call = {.size = 0};
    void *stream = NULL;

    (void)arg;
    CHECK_OK(symm_barrier(team, NULL, &work));
    told[0].work = work;
    CHECK_OK(symm_work_notify(work, tell, &told[0]));
    CHECK(harness_until(&told[0].calls, 1));
    CHECK(told[0].done && !pthread_equal(told[0].thread, pthread_self()));
    symm_work_release(work);

    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "after");
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told[1]));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    CHECK_OK(symm_work_notify(work, tell, &told[2]));
    symm_work_release(work); /* perhaps before they are called */
    CHECK(harness_until(&told[2].calls, 1));
    CHECK(atomic_load(&told[1].calls) == 1 && atomic_load(&told[2].calls) == 1);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void notify_after_the_end(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_after, ranks, 2), 0);
}

static int body_arguments(symm_ctx *ctx, void *arg)
{
    struct told told = {0};
    symm_work *work = NULL;
    int fd = -7;

    (void)arg;
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, &work));
    CHECK_STATUS(symm_work_notify(NULL, tell, &told), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_notify: work");
    CHECK_STATUS(symm_work_notify(work, NULL, &told), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_notify: fn");
    CHECK_STATUS(symm_work_fd(NULL, &fd), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_fd: work");
    CHECK_STATUS(symm_work_fd(work, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_work_fd: fd");
    CHECK(fd == -7);
    symm_work_release(work);
    return 0;
}

static void arguments_are_checked(void **state)
{
    static const int ranks[] = {1};

    assert_int_equal(run_for(state, body_arguments, ranks, 1), 0);
}

/* ---- Many ---------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 2500 };

struct one {
    struct caller *caller;
    _Atomic int calls;
    int number;
};

struct caller {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    int thread;
    int seen; /* by the notifier's thread alone */
    int late; /* calls out of order */
    _Atomic int count;
    struct one one[EACH];
    int failed;
};

static void count(symm_status status, void *arg)
{
    struct one *one = arg;

    if (status != SYMM_OK)
        return;
    if (one->number < one->caller->seen)
        one->caller->late++;
    one->caller->seen = one->number;
    atomic_fetch_add(&one->calls, 1);
    atomic_fetch_add(&one->caller->count, 1);
}

/* Notifies before, during or after the call; releases before or after. */
static int call_many(struct caller *c)
{
    symm_call call = on_stream(c->stream, "many");
    uint64_t random = (uint64_t)c->thread + 1;

    for (int i = 0; i < EACH; i++) {
        const uint64_t how = harness_random(&random);
        symm_work *work = NULL;

        c->one[i].caller = c;
        c->one[i].number = i;
        CHECK_OK(symm_barrier(c->team, &call, &work));
        if (how % 8 == 0)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        else if (how % 8 == 1)
            harness_sleep(2e-5);
        CHECK_OK(symm_work_notify(work, count, &c->one[i]));
        if (how % 8 == 2)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
    }
    CHECK(harness_until(&c->count, EACH));
    return 0;
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    c->failed = call_many(c);
    return NULL;
}

static int judge_callers(struct caller *callers)
{
    for (int t = 0; t < THREADS; t++) {
        CHECK(callers[t].failed == 0);
        CHECK_MESSAGE(callers[t].late == 0, "%d calls out of order", callers[t].late);
        for (int i = 0; i < EACH; i++)
            CHECK_MESSAGE(atomic_load(&callers[t].one[i].calls) == 1,
                          "function %d of thread %d was called %d times", i, t,
                          atomic_load(&callers[t].one[i].calls));
    }
    return 0;
}

static int body_many(symm_ctx *ctx, void *arg)
{
    struct caller *callers = calloc(THREADS, sizeof(*callers));
    pthread_t threads[THREADS];
    int failed;

    (void)arg;
    CHECK(callers != NULL);
    for (int t = 0; t < THREADS; t++) {
        callers[t].ctx = ctx;
        callers[t].thread = t;
        CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &callers[t].team));
        CHECK_OK(symm_stream_create(ctx, &callers[t].stream));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[t], NULL, run_caller, &callers[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++) {
        symm_stream_destroy(ctx, callers[t].stream);
        symm_team_destroy(callers[t].team);
    }
    failed = judge_callers(callers);
    free(callers);
    return failed;
}

static void ten_thousand_from_four_threads(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_many, ranks, 2), 0);
}

/* ---- From within a function ------------------------------------------------------------ */

struct chain {
    symm_ctx *ctx;
    symm_work *work;
    void *stream;
    _Atomic int calls, streamed, failed;
};

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

#define LINKS 1000

static void go_on(symm_status status, void *arg)
{
    struct chain *chain = arg;

    if (status != SYMM_OK || symm_stream_call(chain->ctx, chain->stream, count_up,
                                              &chain->streamed) != SYMM_OK)
        atomic_fetch_add(&chain->failed, 1);
    if (atomic_load(&chain->calls) + 1 < LINKS &&
        symm_work_notify(chain->work, go_on, chain) != SYMM_OK)
        atomic_fetch_add(&chain->failed, 1);
    atomic_fetch_add(&chain->calls, 1);
}

static int body_chain(symm_ctx *ctx, void *arg)
{
    struct chain chain = {.ctx = ctx};
    struct gate gate = {0};
    symm_call call = {.size = 0};

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &chain.stream));
    call = on_stream(chain.stream, "chain");
    CHECK_OK(symm_stream_call(ctx, chain.stream, gate_wait, &gate));
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &chain.work));
    CHECK_OK(symm_work_notify(chain.work, go_on, &chain));
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&chain.calls, LINKS));
    CHECK_OK(symm_stream_synchronize(ctx, chain.stream, HARNESS_AMPLE));
    CHECK(atomic_load(&chain.streamed) == LINKS && atomic_load(&chain.failed) == 0);
    symm_work_release(chain.work);
    symm_stream_destroy(ctx, chain.stream);
    return 0;
}

static void notify_from_a_function(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_chain, ranks, 2), 0);
}

/* Of handles that symm_work_then makes: the outcome of both. */
static symm_status queue_count(void *arg, void *stream)
{
    struct chain *chain = arg;

    return symm_stream_call(chain->ctx, stream, count_up, &chain->streamed);
}

static int body_then(symm_ctx *ctx, void *arg)
{
    struct chain chain = {.ctx = ctx};
    struct gate gate = {0};
    struct told told = {0};
    symm_work *next = NULL;
    symm_call call = {.size = 0};

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &chain.stream));
    call = on_stream(chain.stream, "then");
    CHECK_OK(symm_stream_call(ctx, chain.stream, gate_wait, &gate));
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &chain.work));
    CHECK_OK(symm_work_then(chain.work, chain.stream, queue_count, &chain, &next));
    told.work = next;
    CHECK_OK(symm_work_notify(next, tell, &told));
    CHECK(atomic_load(&told.calls) == 0);
    atomic_store(&gate.open, 1);
    CHECK(harness_until(&told.calls, 1));
    CHECK(told.done && atomic_load(&chain.streamed) == 1);
    symm_work_release(chain.work);
    symm_work_release(next);
    symm_stream_destroy(ctx, chain.stream);
    return 0;
}

static void notify_of_what_follows(void **state)
{
    static const int ranks[] = {1, 2};

    assert_int_equal(run_for(state, body_then, ranks, 2), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_called_in_order),
        cmocka_unit_test(notify_after_the_end),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(ten_thousand_from_four_threads),
        cmocka_unit_test(notify_from_a_function),
        cmocka_unit_test(notify_of_what_follows),
    };

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
