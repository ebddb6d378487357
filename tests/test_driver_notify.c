/* SPDX-License-Identifier: MIT */
/*
 * test_driver_notify.c - functions and eventfds that tell the end of a call (CUDA backend).
 *
 * The context's notifier polls the device: streams that are held up do not delay others, a
 * stream's calls are told in its order whatever the order of the requests, released handles stay
 * until they are told, and nothing is polled when nothing is awaited. Calls that time out or lose
 * a peer, the end of a team and of a context with calls pending, four threads, and graphs.
 */
#include "device.h"
#include "driver.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static enum harness_mode pass;

struct shared {
    struct harness_sync sync;
    _Atomic int flag;
};

/* What one function has seen. */
struct told {
    _Atomic int calls;
    symm_status status;
    char sentence[512];
    _Atomic int *next; /* numbers the calls of several; NULL: not wanted */
    int number;
    symm_work *release; /* by the function; NULL: not wanted */
};

static void tell(symm_status status, void *arg)
{
    struct told *told = arg;

    told->status = status;
    snprintf(told->sentence, sizeof(told->sentence), "%s",
             status == SYMM_OK ? "" : symm_last_error());
    if (told->next)
        told->number = atomic_fetch_add(told->next, 1);
    symm_work_release(told->release);
    atomic_fetch_add(&told->calls, 1);
}

static void wait_gate(void *gate)
{
    (void)harness_until(gate, 1);
}

static symm_call on_stream(void *stream, const char *site)
{
    symm_call call = {.size = sizeof(call), .stream = stream, .site = site};

    return call;
}

static bool is_readable(int fd, double seconds)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, (int)(seconds * 1e3)) == 1 && one.revents == POLLIN;
}

/* ---- Order --------------------------------------------------------------------------- */

#define WORKS 40

/* The stream's works, asked for in the order 0, 2, 4, ..., 3, 1; every third is released. */
static int request(symm_team *team, void *stream, struct told *told, _Atomic int *next,
                   int *fd)
{
    const symm_call call = on_stream(stream, "order");
    symm_work *works[WORKS];

    for (int i = 0; i < WORKS; i++)
        CHECK_OK(symm_barrier(team, &call, &works[i]));
    for (int i = 0; i < WORKS; i++) {
        const int k = i < WORKS / 2 ? 2 * i : 2 * (WORKS - i) - 1;

        told[k].next = next;
        if (k == WORKS - 1)
            CHECK_OK(symm_work_fd(works[k], fd));
        if (k % 3 != 0)
            told[k].release = works[k];
        CHECK_OK(symm_work_notify(works[k], tell, &told[k]));
        if (k % 3 == 0)
            symm_work_release(works[k]);
    }
    return 0;
}

/* ordered: all were asked for before the first call ended, or in the order of the calls. */
static int judge(const struct told *told, bool ordered)
{
    for (int i = 0; i < WORKS; i++) {
        CHECK_MESSAGE(atomic_load(&told[i].calls) == 1, "call %d: %d times", i,
                      atomic_load(&told[i].calls));
        CHECK(told[i].status == SYMM_OK);
        CHECK_MESSAGE(!ordered || told[i].number == i, "call %d was the %d-th", i,
                      told[i].number);
    }
    return 0;
}

static int order(symm_ctx *ctx, void *arg)
{
    static _Thread_local struct told told[2][WORKS];
    symm_team *team = symm_team_world(ctx);
    _Atomic int gate = 0, next[2] = {0, 0};
    void *streams[2];
    int fds[2] = {-1, -1};

    (void)arg;
    memset(told, 0, sizeof(told));
    for (int k = 0; k < 2; k++)
        CHECK_OK(symm_stream_create(ctx, &streams[k]));
    CHECK_OK(symm_stream_call(ctx, streams[0], wait_gate, &gate));
    for (int k = 0; k < 2; k++)
        CHECK_ZERO(request(team, streams[k], told[k], &next[k], &fds[k]));
    CHECK(harness_until(&next[1], WORKS)); /* the other stream is held up */
    CHECK(is_readable(fds[1], HARNESS_SOON) && !is_readable(fds[0], 0));
    CHECK(atomic_load(&next[0]) == 0);
    atomic_store(&gate, 1);
    CHECK(is_readable(fds[0], HARNESS_SOON));
    CHECK(harness_until(&next[0], WORKS));
    for (int k = 0; k < 2; k++) {
        CHECK(harness_until(&told[k][WORKS - 1].calls, 1));
        CHECK_ZERO(judge(told[k], k == 0));
        close(fds[k]);
        symm_stream_destroy(ctx, streams[k]);
    }
    return 0;
}

/* Before and after the end; while nothing is awaited, the device is left alone. */
static int after(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = 0};
    uint64_t least = UINT64_MAX;
    struct told told[2] = {{0}};
    symm_work *work = NULL;
    struct driver driver;
    void *stream;
    int fd = -1;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "after");
    CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told[0]));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE)); /* concludes it, perhaps */
    told[1].release = work;
    CHECK_OK(symm_work_fd(work, &fd));
    CHECK_OK(symm_work_notify(work, tell, &told[1]));
    CHECK(harness_until(&told[1].calls, 1));
    CHECK(atomic_load(&told[0].calls) == 1 && is_readable(fd, 0));
    close(fd);
    if (!device_real()) {
        CHECK_ZERO(driver_load(&driver));
        for (int i = 0; i < 10; i++) {
            const uint64_t before = driver.calls();

            harness_sleep(0.02);
            if (driver.calls() - before < least)
                least = driver.calls() - before;
        }
        CHECK_MESSAGE(least < 10, "%d calls of the driver", (int)least);
    }
    symm_stream_destroy(ctx, stream);
    return 0;
}

/* ---- Failures -------------------------------------------------------------------------- */

/* Rank 1 does not come, or is killed. */
static int fails(symm_ctx *ctx, struct shared *s, bool kills)
{
    symm_team *team = symm_team_world(ctx);
    struct told told = {0}, again = {0};
    symm_call call = {.size = 0};
    symm_work *work = NULL;
    void *stream;
    int fd = -1;

    CHECK_OK(symm_stream_create(ctx, &stream));
    call = on_stream(stream, "lonely");
    call.timeout = kills ? 0 : 0.2;
    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_OK(symm_work_notify(work, tell, &told));
    CHECK_OK(symm_work_fd(work, &fd));
    CHECK(!kills || !is_readable(fd, 0.05));
    atomic_store(&s->flag, 1);
    CHECK(is_readable(fd, HARNESS_SOON));
    CHECK(harness_until(&told.calls, 1));
    CHECK_MESSAGE(told.status == (kills ? SYMM_ERR_PEER_DEAD : SYMM_ERR_TIMEOUT),
                  "%s: %s", symm_status_name(told.status), told.sentence);
    CHECK(strstr(told.sentence, "rank 1") != NULL);
    CHECK(strcmp(told.sentence, symm_work_error(work)) == 0);
    again.release = work;
    CHECK_OK(symm_work_notify(work, tell, &again));
    CHECK(harness_until(&again.calls, 1));
    CHECK(again.status == told.status && strcmp(again.sentence, told.sentence) == 0);
    close(fd);
    symm_stream_destroy(ctx, stream);
    return 0;
}

static int times_out(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;

    if (symm_team_rank(symm_team_world(ctx)) == 0)
        CHECK_ZERO(fails(ctx, s, false));
    return harness_sync_wait(&s->sync, 2);
}

static int loses_a_peer(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;

    if (symm_team_rank(symm_team_world(ctx)) == 0)
        return fails(ctx, s, true);
    CHECK(harness_until(&s->flag, 1));
    raise(SIGKILL);
    return 1;
}

/* ---- The end of teams and contexts ------------------------------------------------------- */

/* Functions that release their handles, while the team ends or before. */
static int ends_team(symm_ctx *ctx, void *arg)
{
    (void)arg;
    for (int round = 0; round < 5; round++) {
        _Atomic int next = 0;
        struct told told[WORKS] = {{0}};
        symm_team *team = NULL;
        void *stream;
        int fds[WORKS];

        CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &team));
        CHECK_OK(symm_stream_create(ctx, &stream));
        for (int i = 0; i < WORKS; i++) {
            const symm_call call = on_stream(stream, "last");
            symm_work *work = NULL;

            CHECK_OK(symm_barrier(team, &call, &work));
            told[i].next = &next;
            CHECK_OK(symm_work_fd(work, &fds[i]));
            if (i % 2)
                told[i].release = work;
            CHECK_OK(symm_work_notify(work, tell, &told[i]));
            if (i % 2 == 0)
                symm_work_release(work);
        }
        symm_team_destroy(team);
        CHECK_ZERO(judge(told, true));
        for (int i = 0; i < WORKS; i++) {
            CHECK(is_readable(fds[i], 0));
            close(fds[i]);
        }
        symm_stream_destroy(ctx, stream);
    }
    return 0;
}

static void *open_late(void *arg)
{
    harness_sleep(0.05);
    atomic_store((_Atomic int *)arg, 1);
    return NULL;
}

static int finalizes(symm_ctx *none, void *arg)
{
    const symm_config config = harness_config();
    struct told told[WORKS] = {{0}};
    _Atomic int gate = 0, next = 0;
    symm_ctx *ctx = NULL;
    symm_work *left = NULL;
    pthread_t opener;
    void *stream;

    (void)none;
    (void)arg;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_stream_call(ctx, stream, wait_gate, &gate));
    for (int i = 0; i < WORKS; i++) {
        const symm_call call = on_stream(stream, "pending");
        symm_work *work = NULL;

        CHECK_OK(symm_barrier(symm_team_world(ctx), &call, &work));
        told[i].next = &next;
        CHECK_OK(symm_work_notify(work, tell, &told[i]));
        if (i < WORKS - 1)
            symm_work_release(work);
        else
            left = work;
    }
    CHECK(pthread_create(&opener, NULL, open_late, &gate) == 0);
    symm_finalize(ctx);
    CHECK_ZERO(judge(told, true));
    symm_work_release(left);
    pthread_join(opener, NULL);
    return 0;
}

/* ---- Threads ----------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 400 };

struct caller {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    int thread, failed;
    _Atomic int next;
    struct told told[EACH];
};

static int call_many(struct caller *c)
{
    const symm_call call = on_stream(c->stream, "many");
    uint64_t random = (uint64_t)c->thread + 1;

    for (int i = 0; i < EACH; i++) {
        const uint64_t how = harness_random(&random) % 4;
        symm_work *work = NULL;

        CHECK_OK(symm_barrier(c->team, &call, &work));
        if (how == 0)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        c->told[i].next = &c->next;
        CHECK_OK(symm_work_notify(work, tell, &c->told[i]));
        if (how == 1)
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
    }
    CHECK(harness_until(&c->told[EACH - 1].calls, 1));
    for (int i = 0; i < EACH; i++)
        CHECK_MESSAGE(atomic_load(&c->told[i].calls) == 1 && c->told[i].number == i,
                      "call %d: %d times, the %d-th", i, atomic_load(&c->told[i].calls),
                      c->told[i].number);
    return 0;
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    c->failed = call_many(c);
    return NULL;
}

static int threads(symm_ctx *ctx, void *arg)
{
    struct caller *callers = calloc(THREADS, sizeof(*callers));
    pthread_t ids[THREADS];
    int failed = 0;

    (void)arg;
    CHECK(callers != NULL);
    for (int t = 0; t < THREADS; t++) {
        callers[t].thread = t;
        CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &callers[t].team));
        CHECK_OK(symm_stream_create(ctx, &callers[t].stream));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&ids[t], NULL, run_caller, &callers[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(ids[t], NULL);
    for (int t = 0; t < THREADS; t++) {
        failed += callers[t].failed;
        symm_stream_destroy(ctx, callers[t].stream);
        symm_team_destroy(callers[t].team);
    }
    free(callers);
    return failed;
}

/* ---- Graphs -------------------------------------------------------------------------------- */

/* A captured call has no end to tell. One that is not captured is told during a capture. */
static int captured(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct perf_gpu *gpu = device_open(ctx);
    struct told told = {0}, never = {0};
    symm_work *work = NULL, *eager = NULL;
    void *streams[2], *graph = NULL;
    symm_call calls[2];
    _Atomic int gate = 0;
    int fd = -7, free_one;

    (void)arg;
    CHECK(gpu != NULL);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(symm_stream_create(ctx, &streams[k]));
        calls[k] = on_stream(streams[k], k ? "eager" : "captured");
        CHECK_OK(symm_barrier(team, &calls[k], NULL));
    }
    CHECK_OK(symm_stream_call(ctx, streams[1], wait_gate, &gate));
    CHECK_OK(symm_barrier(team, &calls[1], &eager));
    CHECK_OK(symm_work_notify(eager, tell, &told));
    CHECK_ZERO(perf_gpu_capture(gpu, streams[0]));
    CHECK_OK(symm_barrier(team, &calls[0], &work));
    free_one = dup(0);
    close(free_one);
    CHECK_STATUS(symm_work_notify(work, tell, &never), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("captured into a graph");
    CHECK_STATUS(symm_work_fd(work, &fd), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("captured into a graph");
    CHECK(fd == -7 && (pass == HARNESS_THREADS || dup(0) == free_one));
    atomic_store(&gate, 1);
    CHECK(harness_until(&told.calls, 1)); /* polled, and the capture goes on */
    symm_work_release(work);
    symm_work_release(eager);
    CHECK_ZERO(perf_gpu_captured(gpu, streams[0], &graph));
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(perf_gpu_replay(gpu, graph, streams[0]));
    CHECK_OK(symm_stream_synchronize(ctx, streams[0], HARNESS_AMPLE));
    CHECK(atomic_load(&never.calls) == 0);
    perf_gpu_graph_free(gpu, graph);
    for (int k = 0; k < 2; k++)
        symm_stream_destroy(ctx, streams[k]);
    perf_gpu_close(gpu);
    return 0;
}

/* ------------------------------------------------------------------------------------------- */

static void run(void **state, struct harness h)
{
    h.mode = pass;
    h.arg = *state;
    h.team_bytes = (size_t)128 << 20;
    memset(*state, 0, sizeof(struct shared));
    if (device_ranks(h.ranks) == h.ranks)
        assert_int_equal(harness_run(&h), 0);
}

static void test_order(void **state)
{
    run(state, (struct harness){.ranks = 1, .body = order});
    run(state, (struct harness){.ranks = 2, .body = order});
    run(state, (struct harness){.ranks = 1, .body = after});
}

static void test_failures(void **state)
{
    run(state, (struct harness){.ranks = 2, .body = times_out});
    if (pass == HARNESS_PROCESSES)
        run(state, (struct harness){.ranks = 2, .body = loses_a_peer, .killed = 2});
}

static void test_ends(void **state)
{
    run(state, (struct harness){.ranks = 2, .body = ends_team});
    run(state, (struct harness){.ranks = 2, .body = finalizes, .without_ctx = true});
}

static void test_threads(void **state)
{
    run(state, (struct harness){.ranks = 1, .body = threads});
}

static void test_captured(void **state)
{
    run(state, (struct harness){.ranks = 2, .body = captured});
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_ends), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_captured)};
    int failed;

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    device_suite();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
