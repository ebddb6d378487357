/* SPDX-License-Identifier: MIT */
/*
 * test_host_stream.c - streams, work handles, and calls from several threads.
 *
 * A stream runs its calls in order while the host continues; two teams on two streams run at the
 * same time; a work handle has the status of its call and passes an error on; two threads on the
 * NULL stream are refused and never hang. Gates hold calls back for certain, without sleeping.
 */
#include "harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/team.h"

struct shared {
    struct harness_sync sync;
    _Atomic int flag;
    struct harness_pace pace; /* of errors_come_by_work */
};

static int run_for(void **state, harness_body body, const int *ranks, int count)
{
    return harness_run_each(*state, sizeof(struct shared), body, ranks, count);
}

static symm_call on_stream(void *stream, const char *site)
{
    return (symm_call){.size = sizeof(symm_call), .stream = stream, .site = site};
}

/* Holds a stream until it is opened; an unopened one opens in the end. */
struct gate {
    _Atomic int open;
    _Atomic int reached;
};

static void gate_wait(void *arg)
{
    struct gate *gate = arg;
    double start = harness_now();
    atomic_store(&gate->reached, 1);
    while (!atomic_load(&gate->open) && harness_now() - start < HARNESS_AMPLE)
        harness_sleep(1e-4);
}

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* ---- Order ----------------------------------------------------------------------- */

#define CHAIN 50

/* Calls are queued after a gate: the host goes on, then all run in order. */
static int body_order(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team);
    int64_t chain[CHAIN + 1][3], power = 1;
    _Atomic int done = 0;
    struct gate gate = {0, 0};
    void *stream = NULL;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK(stream != NULL);
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    chain[0][0] = chain[0][1] = chain[0][2] = 3;
    for (int i = 0; i < CHAIN; i++) { /* each reads what the one before has written */
        symm_call call = on_stream(stream, "chain");
        CHECK_OK(symm_all_reduce(team, chain[i], chain[i + 1], 3, SYMM_INT64, SYMM_SUM,
                                 &call, NULL));
        CHECK_OK(symm_stream_call(ctx, stream, count_up, &done));
    }
    CHECK(atomic_load(&done) == 0);
    CHECK_STATUS(symm_stream_synchronize(ctx, stream, 0.01), SYMM_ERR_TIMEOUT);
    CHECK_ERROR(harness_rank() == 0 ? "of rank 0 still has" : "of rank ");
    atomic_store(&gate.open, 1);
    CHECK_OK(symm_stream_synchronize(ctx, stream, HARNESS_AMPLE));
    CHECK(atomic_load(&done) == CHAIN);
    for (int i = 0; i <= CHAIN; i++, power *= n) {
        int64_t wanted = (int64_t)((uint64_t)power * 3);
        CHECK(chain[i][0] == wanted && chain[i][2] == wanted);
        if (power > INT64_MAX / 3 / n)
            break;
    }
    CHECK_OK(symm_stream_call(ctx, NULL, count_up, &done)); /* at once */
    CHECK(atomic_load(&done) == CHAIN + 1);
    CHECK_OK(
        symm_stream_synchronize(ctx, stream, HARNESS_SOON)); /* nothing is queued */
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void streams_keep_order(void **state)
{
    static const int ranks[] = {1, 2, 3};
    assert_int_equal(run_for(state, body_order, ranks, 3), 0);
}

/* destroy runs what is queued. */
static int body_destroy(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int me = symm_team_rank(team), n = symm_team_size(team), sums[20];
    _Atomic int done = 0;
    void *stream = NULL;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    for (int i = 0; i < 20; i++) {
        symm_call call = on_stream(stream, "last");
        CHECK_OK(
            symm_all_reduce(team, &me, &sums[i], 1, SYMM_INT32, SYMM_SUM, &call, NULL));
        CHECK_OK(symm_stream_call(ctx, stream, count_up, &done));
    }
    symm_stream_destroy(ctx, stream);
    CHECK(atomic_load(&done) == 20);
    for (int i = 0; i < 20; i++)
        CHECK(sums[i] == n * (n - 1) / 2);
    for (int i = 0; i < 10; i++) { /* streams come and go */
        CHECK_OK(symm_stream_create(ctx, &stream));
        symm_call call = on_stream(stream, "again");
        CHECK_OK(symm_barrier(team, &call, NULL));
        symm_stream_destroy(ctx, stream);
    }
    return 0;
}

/*
 * A team that is destroyed runs its one-sided calls first, on whichever streams. What other
 * teams have queued is not waited for: it may need this thread.
 */
static int body_one_sided(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    CHECK_OK(symm_team_split(world, 0, 0, &team));
    if (symm_team_rank(world) == 0) {
        symm_call one = on_stream(NULL, "one"), other = on_stream(NULL, "other");
        symm_call gone = on_stream(NULL, "gone");
        CHECK_OK(symm_stream_create(ctx, &gone.stream));
        CHECK_OK(symm_signal(team, 1, 9, &gone, NULL));
        symm_stream_destroy(ctx, gone.stream);
        CHECK_OK(symm_stream_create(ctx, &other.stream)); /* where that one was */
        CHECK_OK(symm_stream_create(ctx, &one.stream));
        CHECK_OK(symm_signal_wait(team, 1, 7, &one, NULL));
        CHECK_OK(symm_signal_wait(world, 1, 7, &other, NULL));
        atomic_store(&s->flag, 1);
        symm_team_destroy(team);
        CHECK(atomic_load(&s->flag) == 2);
        atomic_store(&s->flag, 3);
        CHECK_OK(symm_stream_synchronize(ctx, one.stream, HARNESS_AMPLE));
        CHECK_OK(symm_stream_synchronize(ctx, other.stream, HARNESS_AMPLE));
    } else {
        CHECK(harness_until(&s->flag, 1));
        harness_sleep(0.02); /* for one that does not wait to come back */
        atomic_store(&s->flag, 2);
        CHECK_OK(symm_signal(team, 0, 7, NULL, NULL));
        CHECK(harness_until(&s->flag, 3));
        CHECK_OK(symm_signal(world, 0, 7, NULL, NULL));
        symm_team_destroy(team);
    }
    CHECK_OK(symm_barrier(world, NULL, NULL)); /* has not failed */
    return 0;
}

static void team_destroy_runs_one_sided_calls(void **state)
{
    static const int ranks[] = {2};
    assert_int_equal(run_for(state, body_one_sided, ranks, 1), 0);
}

static void destroy_runs_the_queue(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_destroy, ranks, 2), 0);
}

/* synchronize gives up when its time is over, and works when called again. */
static int body_impatient(symm_ctx *ctx, void *arg)
{
    struct gate gate = {0, 0};
    void *stream = NULL;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    double start = harness_now();
    symm_status status = symm_stream_synchronize(ctx, stream, 0.1);
    double took = harness_now() - start;
    CHECK(status == SYMM_ERR_TIMEOUT);
    CHECK_MESSAGE(took >= 0.1 && took < HARNESS_SOON, "0.1 s took %.3f s", took);
    atomic_store(&gate.open, 1);
    CHECK_OK(symm_stream_synchronize(ctx, stream, HARNESS_AMPLE));
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL)); /* no peer was at fault */
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void synchronize_is_bounded(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_impatient, ranks, 2), 0);
}

/* ---- Work handles ---------------------------------------------------------------- */

static int body_work(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team), one = 1, sum = 0;
    struct gate gate = {0, 0};
    symm_work *work = NULL;
    void *stream = NULL;
    bool done = true;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    symm_call call = on_stream(stream, "work");
    CHECK_OK(symm_all_reduce(team, &one, &sum, 1, SYMM_INT32, SYMM_SUM, &call, &work));
    CHECK(work != NULL);
    symm_status status = symm_work_query(work, &done);
    CHECK(status == SYMM_OK);
    CHECK(!done);
    status = symm_work_synchronize(work, 0.05);
    CHECK(status == SYMM_ERR_TIMEOUT);
    atomic_store(&gate.open, 1);
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    CHECK(sum == n);
    CHECK_OK(symm_work_query(work, &done));
    CHECK(done);
    CHECK_OK(symm_work_synchronize(work, 0)); /* again, and by the context's deadline */
    CHECK(symm_work_error(work) != NULL && symm_work_error(work)[0] == '\0');
    symm_work_release(work);
    symm_work_release(NULL);

    work = NULL; /* without a stream it is complete on return */
    CHECK_OK(symm_all_reduce(team, &one, &sum, 1, SYMM_INT32, SYMM_MAX, NULL, &work));
    CHECK(work != NULL && sum == 1);
    CHECK_OK(symm_work_query(work, &done));
    CHECK(done);
    symm_work_release(work);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void work_tells_the_end(void **state)
{
    static const int ranks[] = {1, 2, 3};
    assert_int_equal(run_for(state, body_work, ranks, 3), 0);
}

static int body_release(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team), one = 1, sums[30];
    struct gate gate = {0, 0};
    symm_work *works[30];
    void *stream = NULL;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, gate_wait, &gate));
    for (int i = 0; i < 30; i++) {
        symm_call call = on_stream(stream, "released");
        CHECK_OK(symm_all_reduce(team, &one, &sums[i], 1, SYMM_INT32, SYMM_SUM, &call,
                                 &works[i]));
        if (i % 3 == 0)
            symm_work_release(works[i]); /* long before it runs */
    }
    atomic_store(&gate.open, 1);
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 1)
            symm_work_release(works[i]); /* while it may run */
    }
    CHECK_OK(symm_stream_synchronize(ctx, stream, HARNESS_AMPLE));
    for (int i = 0; i < 30; i++) {
        CHECK(sums[i] == n);
        if (i % 3 == 2)
            symm_work_release(works[i]);
    }
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void work_may_be_released_early(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_release, ranks, 2), 0);
}

/* A stream waits for another's work; the host does not. */
static int body_across(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team), one = 1, sum = 0, copied = 0;
    struct gate gate = {0, 0};
    _Atomic int after = 0;
    void *streams[2] = {NULL, NULL};
    symm_work *work = NULL;
    (void)arg;
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
    CHECK_OK(symm_stream_call(ctx, streams[0], gate_wait, &gate));
    symm_call call = on_stream(streams[0], "first");
    CHECK_OK(symm_all_reduce(team, &one, &sum, 1, SYMM_INT32, SYMM_SUM, &call, &work));
    CHECK_OK(symm_work_wait(work, streams[1]));
    CHECK_OK(symm_stream_call(ctx, streams[1], count_up, &after));
    harness_sleep(0.02);
    CHECK(atomic_load(&after) == 0);
    atomic_store(&gate.open, 1);
    CHECK_OK(symm_stream_synchronize(ctx, streams[1], HARNESS_AMPLE));
    copied = sum;
    CHECK(atomic_load(&after) == 1 && copied == n);
    symm_work_release(work);
    for (int i = 0; i < 2; i++)
        symm_stream_destroy(ctx, streams[i]);
    return 0;
}

static void streams_wait_for_work(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_across, ranks, 2), 0);
}

struct continuation {
    symm_ctx *ctx;
    int calls;
    pthread_t caller;
    void *stream;
    symm_status result;
    const int *sum;
    _Atomic int looks; /* of what it has queued */
    int seen;
};

static void look_at_sum(void *arg)
{
    struct continuation *c = arg;
    c->seen = *c->sum;
    atomic_fetch_add(&c->looks, 1);
}

static symm_status continue_with(void *arg, void *stream)
{
    struct continuation *c = arg;
    c->caller = pthread_self();
    c->stream = stream;
    c->calls++;
    symm_status status = symm_stream_call(c->ctx, stream, look_at_sum, c);
    return status == SYMM_OK ? c->result : status;
}

static int body_then(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team), one = 1, sum = 0;
    struct gate gate = {0, 0};
    struct continuation good = {.ctx = ctx, .sum = &sum};
    struct continuation bad = {.ctx = ctx, .result = SYMM_ERR_NOT_FOUND, .sum = &sum};
    struct continuation never = {.ctx = ctx, .sum = &sum};
    void *streams[2] = {NULL, NULL};
    symm_work *work = NULL, *second = NULL, *third = NULL, *fourth = NULL;
    bool done = true;
    (void)arg;
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
    CHECK_OK(symm_stream_call(ctx, streams[0], gate_wait, &gate));
    symm_call call = on_stream(streams[0], "then");
    CHECK_OK(symm_all_reduce(team, &one, &sum, 1, SYMM_INT32, SYMM_SUM, &call, &work));
    CHECK_OK(symm_work_then(work, streams[1], continue_with, &good, &second));
    CHECK(good.calls == 1 && good.stream == streams[1]); /* at once, on this thread */
    CHECK(pthread_equal(good.caller, pthread_self()));
    CHECK_OK(symm_work_then(second, streams[1], continue_with, &bad, &third));
    CHECK(bad.calls == 1);
    CHECK_OK(symm_work_then(third, streams[0], continue_with, &never, &fourth));
    CHECK_STATUS(symm_work_query(third, &done), SYMM_ERR_NOT_FOUND);
    CHECK(done);
    done = false;
    CHECK_STATUS(symm_work_query(fourth, &done), SYMM_ERR_NOT_FOUND); /* passed on */
    CHECK(done);
    harness_sleep(0.02);
    CHECK_OK(symm_work_query(second, &done));
    CHECK(!done && atomic_load(&good.looks) == 0); /* what it has queued waits */
    atomic_store(&gate.open, 1);
    CHECK_OK(symm_work_synchronize(second, HARNESS_AMPLE));
    CHECK(atomic_load(&good.looks) == 1 && good.seen == n);
    CHECK_OK(symm_stream_synchronize(ctx, streams[1], HARNESS_AMPLE));
    CHECK(atomic_load(&bad.looks) == 1 && bad.seen == n);
    CHECK(never.calls == 0);
    symm_work_release(work);
    symm_work_release(second);
    symm_work_release(third);
    symm_work_release(fourth);
    CHECK_OK(symm_barrier(team, NULL, NULL)); /* a callback's error is not a peer's */
    for (int i = 0; i < 2; i++)
        symm_stream_destroy(ctx, streams[i]);
    return 0;
}

static void work_then_continues(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_then, ranks, 2), 0);
}

/* An error of a queued call comes out of its work handle, and of what follows. */
static int body_error(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx);
    int zero = 0;
    struct continuation early = {.ctx = ctx, .sum = &zero};
    struct continuation never = {.ctx = ctx, .sum = &zero};
    symm_work *work = NULL, *next = NULL, *late = NULL;
    void *stream = NULL;
    bool done = false;
    if (symm_team_rank(team) == 1) { /* does not come */
        CHECK_ZERO(harness_sync_wait(&s->sync, 2));
        return 0;
    }
    CHECK_OK(symm_stream_create(ctx, &stream));
    symm_call call = on_stream(stream, "lonely");
    call.timeout = s->pace.seconds;
    harness_pace_begin(&s->pace);
    CHECK_PACED(&s->pace, symm_barrier(team, &call, &work));
    CHECK_PACED(&s->pace, symm_work_then(work, stream, continue_with, &early, &next));
    CHECK(early.calls == 1); /* nobody knows yet that the barrier fails */
    CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
    CHECK(strstr(symm_work_error(work), "rank 1") != NULL);
    CHECK(strstr(symm_work_error(work), "lonely") != NULL);
    CHECK(strstr(symm_work_error(work), "rank 0 waits on stream 0x") != NULL);
    CHECK(strstr(symm_work_error(work), ", channel 2; ") != NULL);
    CHECK_STATUS(symm_work_synchronize(next, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
    CHECK_OK(symm_work_then(work, NULL, continue_with, &never, &late));
    CHECK_STATUS(symm_work_synchronize(late, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
    CHECK(never.calls == 0);
    CHECK_STATUS(symm_work_query(work, &done), SYMM_ERR_TIMEOUT);
    CHECK(done);
    CHECK(symm_work_error(next)[0] != '\0');
    symm_work_release(work);
    symm_work_release(next);
    symm_work_release(late);
    symm_stream_destroy(ctx, stream);
    CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    return 0;
}

static void errors_come_by_work(void **state)
{
    struct shared *s = *state;

    for (int mode = 0; mode < 2; mode++) {
        struct harness h = {
            .ranks = 2, .mode = (enum harness_mode)mode, .body = body_error, .arg = s};

        memset(s, 0, sizeof(*s));
        assert_int_equal(harness_run_paced(&h, &s->pace, 0.1), 0);
    }
}

/* ---- At the same time ------------------------------------------------------------ */

/* Crossing teams on a stream each: the second team's calls run while the first's wait. */
static int body_two_teams(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *teams[2] = {NULL, NULL};
    void *streams[2] = {NULL, NULL};
    enum { STEPS = 200 };
    static _Thread_local int in[2][STEPS], out[2][STEPS];
    symm_work *works[2] = {NULL, NULL};
    int me = symm_team_rank(world);
    (void)arg;
    CHECK_OK(symm_team_split(world, me / 2, me, &teams[0]));
    CHECK_OK(symm_team_split(world, me % 2, me, &teams[1]));
    for (int k = 0; k < 2; k++)
        CHECK_OK(symm_stream_create(ctx, &streams[k]));
    for (int i = 0; i < STEPS; i++) {
        for (int j = 0; j < 2; j++) {
            int k = (i + j + me) % 2; /* ranks queue the two in different orders */
            symm_call call = on_stream(streams[k], k == 0 ? "tp" : "dp");
            in[k][i] = 1000 * i + me;
            symm_work_release(works[k]);
            CHECK_OK(symm_all_reduce(teams[k], &in[k][i], &out[k][i], 1, SYMM_INT32,
                                     SYMM_SUM, &call, &works[k]));
        }
    }
    for (int k = 0; k < 2; k++) {
        int size = symm_team_size(teams[k]), ranks = 0;
        CHECK_OK(symm_work_synchronize(works[k], HARNESS_AMPLE));
        symm_work_release(works[k]);
        for (int p = 0; p < size; p++)
            ranks += symm_team_world_rank(teams[k], p);
        for (int i = 0; i < STEPS; i++)
            CHECK(out[k][i] == size * 1000 * i + ranks);
        symm_stream_destroy(ctx, streams[k]);
        symm_team_destroy(teams[k]);
    }
    return 0;
}

static void two_teams_on_two_streams(void **state)
{
    static const int ranks[] = {2, 4};
    assert_int_equal(run_for(state, body_two_teams, ranks, 2), 0);
}

/* Two streams of one team, used alike on all ranks: right or refused, never a hang. */
static int body_two_streams(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    void *streams[2] = {NULL, NULL};
    enum { STEPS = 60 };
    int one = 1, n = symm_team_size(team);
    static _Thread_local int out[STEPS];
    static _Thread_local symm_work *works[STEPS];
    int refused = 0;
    (void)arg;
    memset(out, 0, sizeof(out));
    memset(works, 0, sizeof(works));
    for (int k = 0; k < 2; k++)
        CHECK_OK(symm_stream_create(ctx, &streams[k]));
    for (int i = 0; i < STEPS; i++) {
        symm_call call = on_stream(streams[i % 2], i % 2 == 0 ? "even" : "odd");
        symm_status status = symm_all_reduce(team, &one, &out[i], 1, SYMM_INT32,
                                             SYMM_SUM, &call, &works[i]);
        CHECK(status == SYMM_OK || status == SYMM_ERR_BUSY);
        refused += status == SYMM_ERR_BUSY;
    }
    for (int i = 0; i < STEPS; i++) {
        if (works[i] == NULL)
            continue;
        symm_status status = symm_work_synchronize(works[i], HARNESS_AMPLE);
        CHECK_MESSAGE(status == SYMM_OK || status == SYMM_ERR_BUSY, "call %d: %s: %s",
                      i, symm_status_name(status), symm_work_error(works[i]));
        CHECK(status != SYMM_OK || out[i] == n);
        symm_work_release(works[i]);
    }
    if (refused > 0 && harness_rank() == 0)
        fprintf(stderr, "%d of %d calls on two streams of a team were refused\n",
                refused, STEPS);
    for (int k = 0; k < 2; k++)
        symm_stream_destroy(ctx, streams[k]);
    return 0;
}

static void two_streams_of_a_team(void **state)
{
    static const int ranks[] = {2, 3};
    assert_int_equal(run_for(state, body_two_streams, ranks, 2), 0);
}

struct second_thread {
    symm_ctx *ctx;
    symm_team *team;
    struct shared *shared;
    symm_status status;
    char error[256];
    double took;
};

/* The first thread is inside a barrier that rank 1 has not reached. */
static void *use_null_stream(void *arg)
{
    struct second_thread *t = arg;
    int in = 1, out = 0;
    while (__atomic_load_n(&t->ctx->default_busy, __ATOMIC_RELAXED) == 0)
        harness_sleep(1e-4);
    double start = harness_now();
    t->status =
        symm_all_reduce(t->team, &in, &out, 1, SYMM_INT32, SYMM_SUM, NULL, NULL);
    t->took = harness_now() - start;
    snprintf(t->error, sizeof(t->error), "%s", symm_last_error());
    atomic_store(&t->shared->flag, 1);
    return NULL;
}

static int body_busy(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    CHECK_OK(symm_team_split(world, 0, 0, &team));
    if (symm_team_rank(world) == 0) {
        struct second_thread second = {.ctx = ctx, .team = team, .shared = s};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_null_stream, &second) == 0);
        symm_status status = symm_barrier(world, NULL, NULL);
        pthread_join(thread, NULL);
        CHECK_OK(status);
        CHECK_MESSAGE(second.status == SYMM_ERR_BUSY, "%s: %s",
                      symm_status_name(second.status), second.error);
        CHECK(second.took < HARNESS_SOON);
        CHECK(second.error[0] != '\0');
    } else {
        while (!atomic_load(&s->flag))
            harness_sleep(1e-3);
        CHECK_OK(symm_barrier(world, NULL, NULL));
    }
    CHECK_OK(symm_barrier(team, NULL, NULL)); /* nothing is broken */
    CHECK_OK(symm_barrier(world, NULL, NULL));
    symm_team_destroy(team);
    return 0;
}

static void null_stream_in_two_threads(void **state)
{
    static const int ranks[] = {2};
    assert_int_equal(run_for(state, body_busy, ranks, 1), 0);
}

/* Several threads of a rank, each with a stream and a team of its own. */
struct worker {
    symm_ctx *ctx;
    symm_team *team;
    int index, result;
};

static int worker_calls(const struct worker *w)
{
    void *stream = NULL;
    int n = symm_team_size(w->team);
    CHECK_OK(symm_stream_create(w->ctx, &stream));
    for (int i = 0; i < 100; i++) {
        int64_t in[40], out[40] = {0};
        symm_work *work = NULL;
        symm_call call = on_stream(stream, "worker");
        for (int k = 0; k < 40; k++)
            in[k] = (int64_t)w->index * 1000000 + i * 100 + k;
        CHECK_OK(
            symm_all_reduce(w->team, in, out, 40, SYMM_INT64, SYMM_SUM, &call, &work));
        CHECK_OK(symm_work_synchronize(work, 0));
        for (int k = 0; k < 40; k++)
            CHECK(out[k] == in[k] * n);
        symm_work_release(work);
    }
    symm_stream_destroy(w->ctx, stream);
    return 0;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->result = worker_calls(w);
    return NULL;
}

static int body_workers(symm_ctx *ctx, void *arg)
{
    enum { WORKERS = 3 };
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    (void)arg;
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){ctx, NULL, i, 1};
        CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &workers[i].team));
    }
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker_main, &workers[i]) == 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WORKERS; i++) {
        CHECK(workers[i].result == 0);
        symm_team_destroy(workers[i].team);
    }
    return 0;
}

static void threads_with_own_streams(void **state)
{
    static const int ranks[] = {1, 2};
    assert_int_equal(run_for(state, body_workers, ranks, 2), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_keep_order),
        cmocka_unit_test(destroy_runs_the_queue),
        cmocka_unit_test(team_destroy_runs_one_sided_calls),
        cmocka_unit_test(synchronize_is_bounded),
        cmocka_unit_test(work_tells_the_end),
        cmocka_unit_test(work_may_be_released_early),
        cmocka_unit_test(streams_wait_for_work),
        cmocka_unit_test(work_then_continues),
        cmocka_unit_test(errors_come_by_work),
        cmocka_unit_test(two_teams_on_two_streams),
        cmocka_unit_test(two_streams_of_a_team),
        cmocka_unit_test(null_stream_in_two_threads),
        cmocka_unit_test(threads_with_own_streams),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
