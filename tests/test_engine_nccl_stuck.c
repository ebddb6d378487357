/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_stuck.c - calls of NCCL that do not return, or fail: an all_reduce, the
 * making of a communicator, a split, an abort, an end. Every rank gets a named error within the
 * deadline, the next team works, and no thread is left but one that is still in NCCL. Without
 * such a fault no call makes a thread.
 * ctest: cost 30
 */
#include "core/context.h"
#include "driver.h"
#include "engine_stage.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
/* The fake driver has a thread for each stream that was used; the watchdog uses its own when a
 * team fails for the first time. */
#define WATCHDOG_STREAM 1
#define SHORT           0.4 /* a timeout that expires; nothing else has to happen within it */

/* ---- Threads ---------------------------------------------------------------------- */

static _Atomic int created;

/* Sanitizers have a pthread_create of their own. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define COUNTS_THREADS true
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*run)(void *), void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    created++;
    return next(thread, attributes, run, arg);
}
#else
#define COUNTS_THREADS false
#endif

/* Threads of this process now. */
static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    if (!tasks)
        return -1;
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

/* The threads, once there are no more than wanted: those that have ended are in /proc for a
 * moment longer. */
static int threads_settle(int wanted)
{
    double begin = harness_now();

    while (threads() > wanted && harness_now() - begin < HARNESS_SOON)
        harness_sleep(0.005);
    return threads();
}

/* ---- A team and its call ----------------------------------------------------------- */

static symm_status reduce(struct engine_stage *s, symm_team *team,
                          const symm_call *call, symm_work **work)
{
    return symm_all_reduce(team, s->in.device, s->out.device, 1000, SYMM_INT32,
                           SYMM_SUM, call, work);
}

/* Also of an operation that was queued. */
static symm_status reduce_all(struct engine_stage *s, symm_team *team,
                              const symm_call *call)
{
    symm_work *work = NULL;
    symm_status status = reduce(s, team, call, &work);

    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    return status;
}

/* A team of all ranks, with a sum by NCCL. */
static int next_team(struct engine_stage *s)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "next",
                            .algorithm = "engine",
                            .stream = s->stream};
    int *in = (int *)(void *)s->in.host;
    const int *out = (const int *)(const void *)s->out.host;
    symm_team *team = NULL;

    for (int i = 0; i < 1000; i++)
        in[i] = i + s->rank;
    CHECK_ZERO(device_put(&s->in, 0, 1000 * sizeof(int)));
    CHECK_OK(symm_team_split(s->team, 0, s->rank, &team));
    CHECK_OK(reduce_all(s, team, &call));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    CHECK_ZERO(device_get(&s->out, 0, 1000 * sizeof(int)));
    for (int i = 0; i < 1000; i++)
        CHECK_MESSAGE(out[i] == s->n * i + s->n * (s->n - 1) / 2, "%d at %d", out[i],
                      i);
    symm_team_destroy(team);
    return 0;
}

/* ---- A call that does not return ---------------------------------------------------- */

/* What goes wrong: NAME=VALUE, set once the team is there. */
struct fault {
    const char *name, *value;
    const char *more_name, *more_value; /* NULL: nothing more */
    int left;                           /* threads that stay in NCCL, on each rank */
    bool captured;
};

static void fault_set(const struct fault *fault, bool set)
{
    if (set)
        setenv(fault->name, fault->value, 1);
    else
        unsetenv(fault->name);
    if (fault->more_name && set)
        setenv(fault->more_name, fault->more_value, 1);
    else if (fault->more_name)
        unsetenv(fault->more_name);
}

/* The call of rank 1 is the one with the short timeout, so all ranks get its sentence. */
static int held(symm_ctx *ctx, void *arg)
{
    const struct fault *fault = arg;
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "held", .algorithm = "engine"};
    symm_team *team = NULL;
    struct driver d;
    CUgraph graph = NULL;
    double begin, seconds;
    int before;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(driver_load(&d));
    call.stream = s.stream;
    call.timeout = s.rank == 1 ? SHORT : HARNESS_AMPLE;
    CHECK_ZERO(next_team(&s));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    before = threads() + WATCHDOG_STREAM;
    fault_set(fault, true);
    begin = harness_now();
    if (fault->captured && s.rank == 1)
        CHECK_CU(d.begin_capture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (fault->captured && s.rank == 1)
        CHECK_STATUS(reduce(&s, team, &call, NULL), SYMM_ERR_TIMEOUT);
    else
        CHECK_STATUS(reduce_all(&s, team, &call), SYMM_ERR_TIMEOUT);
    seconds = harness_now() - begin;
    CHECK_ERROR("all_reduce at site 'held'");
    CHECK_ERROR("NCCL 2.28.9");
    CHECK_ERROR("on rank 1");
    CHECK_ERROR("within 0.4 s");
    CHECK_MESSAGE(seconds < HARNESS_SOON, "after %.3g s", seconds);
    CHECK(s.rank != 1 || seconds >= SHORT);
    if (fault->captured && s.rank == 1)
        (void)d.end_capture(s.stream, &graph); /* whole or not: the team has failed */
    if (graph)
        CHECK_CU(d.graph_destroy(graph));
    CHECK_STATUS(reduce(&s, team, &call, NULL), SYMM_ERR_TIMEOUT);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    symm_team_destroy(team);
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "the end came after %.3g s",
                  harness_now() - begin);
    CHECK(engine_stuck() == fault->left);
    CHECK_MESSAGE(threads_settle(before + fault->left) <= before + fault->left,
                  "%d threads, then %d", before, threads());
    fault_set(fault, false);
    CHECK_ZERO(next_team(&s));
    engine_close(&s);
    return 0;
}

static void test_held(void **state)
{
    struct fault faults[] = {
        {"FAKE_NCCL_STUCK", "ncclAllReduce@1", NULL, NULL, 0, false},
        {"FAKE_NCCL_STUCK", "ncclAllReduce@1", NULL, NULL, 0, true},
        {"FAKE_NCCL_HANG", "ncclAllReduce@1", NULL, NULL, 0, false},
        {"FAKE_NCCL_HANG", "ncclAllReduce@1", "FAKE_NCCL_STUCK", "ncclCommAbort", 1,
         false},
        {"FAKE_NCCL_HANG", "ncclAllReduce@1", "FAKE_NCCL_FAIL", "ncclCommAbort", 0,
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        assert_int_equal(
            engine_run(held, RANKS, HARNESS_PROCESSES, &faults[i], NULL, 0), 0);
}

/* Rank 2 dies while rank 1 is in NCCL: known at once, long before the deadline. */
static int dies(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "death", .algorithm = "engine"};
    double begin;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    begin = harness_now();
    if (s.rank == 2) {
        CHECK_OK(reduce(&s, s.team, &call, NULL));
        harness_sleep(
            0.2); /* most likely rank 1 is in NCCL by now; any moment will do */
        raise(SIGKILL);
    }
    CHECK_STATUS(reduce_all(&s, s.team, &call), SYMM_ERR_PEER_DEAD);
    CHECK_ERROR("rank 2");
    CHECK(harness_now() - begin < HARNESS_SOON);
    CHECK(engine_stuck() == 0);
    engine_close(&s);
    return 0;
}

static void test_dies(void **state)
{
    struct harness h = {
        .ranks = RANKS, .body = dies, .killed = 4, .team_bytes = (size_t)128 << 20};

    (void)state;
    setenv("FAKE_NCCL_STUCK", "ncclAllReduce@1", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("FAKE_NCCL_STUCK");
}

/* The call itself fails. */
static int fails(symm_ctx *ctx, void *arg)
{
    const struct fault fault = {.name = "FAKE_NCCL_FAIL", .value = "ncclAllReduce@1"};
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "broken", .algorithm = "engine"};
    symm_team *team = NULL;
    int before;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    CHECK_ZERO(next_team(&s));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    before = threads() + WATCHDOG_STREAM;
    fault_set(&fault, true);
    CHECK_STATUS(reduce_all(&s, team, &call), SYMM_ERR_ABORTED);
    CHECK_ERROR("rank 1: all_reduce at site 'broken' failed in NCCL 2.28.9");
    fault_set(&fault, false);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    symm_team_destroy(team);
    CHECK_MESSAGE(threads_settle(before) <= before, "%d threads, then %d", before,
                  threads());
    CHECK_ZERO(next_team(&s));
    engine_close(&s);
    return 0;
}

static void test_fails(void **state)
{
    (void)state;
    assert_int_equal(engine_run(fails, RANKS, HARNESS_PROCESSES, NULL, NULL, 0), 0);
}

/* ---- A communicator that is not made ------------------------------------------------ */

struct making {
    struct fault fault;
    const char *words; /* of the error on all ranks */
};

/* A rank that is stuck leaves one thread on each rank, as its peers wait in NCCL, too. */
static int unmade(symm_ctx *ctx, void *arg)
{
    const struct making *making = arg;
    struct engine_stage s;
    symm_team *team = NULL;
    double begin, short_timeout;
    int before;

    CHECK_ZERO(engine_open(&s, ctx));
    short_timeout = ctx->timeout; /* for the one step that fails */
    ctx->timeout = HARNESS_AMPLE;
    CHECK_ZERO(next_team(&s));
    before = threads();
    fault_set(&making->fault, true);
    ctx->timeout = short_timeout;
    begin = harness_now();
    CHECK(symm_team_split(s.team, 0, s.rank, &team) != SYMM_OK && !team);
    ctx->timeout = HARNESS_AMPLE;
    CHECK_ERROR(making->words);
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "after %.3g s",
                  harness_now() - begin);
    fault_set(&making->fault, false);
    CHECK_MESSAGE(threads_settle(before + making->fault.left) <=
                      before + making->fault.left,
                  "%d threads, then %d", before, threads());
    CHECK_ZERO(next_team(&s));
    engine_close(&s);
    return 0;
}

static void test_unmade(void **state)
{
    struct making makings[] = {
        {{"FAKE_NCCL_STUCK", "ncclCommInitRankConfig@1", "FAKE_NCCL_FAIL",
          "ncclCommSplit", 1, false},
         "NCCL 2.28.9 has not made it on rank"},
        {{"FAKE_NCCL_STUCK", "ncclCommInitRankConfig", "FAKE_NCCL_FAIL",
          "ncclCommSplit", 1, false},
         "NCCL 2.28.9 has not made it on rank"},
        {{"FAKE_NCCL_FAIL", "ncclCommSplit,ncclCommInitRankConfig", NULL, NULL, 0,
          false},
         "ncclCommInitRankConfig failed with unhandled system error"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(makings) / sizeof(makings[0]); i++)
        assert_int_equal(
            engine_run(unmade, RANKS, HARNESS_PROCESSES, &makings[i], NULL, 3), 0);
}

/* A split that fails or is stuck: the team is made by an id. The parent's communicator, in which a
 * thread is, has been aborted; the parent says so at its next call of the engine. */
static int unsplit(symm_ctx *ctx, void *arg)
{
    const struct fault *fault = arg;
    struct engine_stage s;
    const symm_call call = {
        .size = sizeof(call), .site = "parent", .algorithm = "engine"};
    symm_status status;
    int before;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(next_team(&s));
    CHECK(engine_calls("ncclCommSplit") == 1 &&
          engine_calls("ncclCommInitRankConfig") == 1);
    before = threads();
    fault_set(fault, true);
    CHECK_ZERO(next_team(&s));
    fault_set(fault, false);
    CHECK(engine_calls("ncclCommInitRankConfig") == 2);
    CHECK_MESSAGE(threads_settle(before + fault->left) <= before + fault->left,
                  "%d threads, then %d", before, threads());
    CHECK_ZERO(next_team(&s));
    status = reduce_all(&s, s.team, &call);
    CHECK_MESSAGE(status == (fault->left ? SYMM_ERR_ABORTED : SYMM_OK), "%s",
                  symm_status_name(status));
    if (fault->left)
        CHECK_ERROR(
            "all_reduce at site 'parent' failed in NCCL 2.28.9: the communicator "
            "was aborted");
    engine_close(&s);
    return 0;
}

static void test_unsplit(void **state)
{
    struct fault faults[] = {
        {.name = "FAKE_NCCL_FAIL", .value = "ncclCommSplit"},
        {.name = "FAKE_NCCL_STUCK", .value = "ncclCommSplit@1", .left = 1},
        {.name = "FAKE_NCCL_STUCK", .value = "ncclCommSplit", .left = 1},
    };

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            engine_run(unsplit, RANKS, HARNESS_PROCESSES, &faults[i], NULL, 4), 0);
}

/* While an operation may be under way on any rank, and once a graph has one, teams are made by an
 * id. */
static int undivided(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "busy", .algorithm = "engine"};
    symm_team *team = NULL;
    struct driver d;
    CUgraph graph;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(driver_load(&d));
    call.stream = s.stream;
    call.timeout = 2;
    if (s.rank == 1)
        CHECK_CU(d.begin_capture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (s.rank == 1) {
        CHECK_OK(reduce(&s, s.team, &call, NULL));
        CHECK_CU(d.end_capture(s.stream, &graph));
        CHECK_CU(d.graph_destroy(graph));
    }
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    CHECK(engine_calls("ncclCommSplit") == 0 &&
          engine_calls("ncclCommInitRankConfig") == 2);
    CHECK_OK(reduce_all(&s, team, &call));
    symm_team_destroy(team);
    engine_close(&s);
    return 0;
}

static void test_undivided(void **state)
{
    (void)state;
    assert_int_equal(engine_run(undivided, RANKS, HARNESS_PROCESSES, NULL, NULL, 0), 0);
}

/* The first communicator: no rank starts. */
static int not_at_all(symm_ctx *none, void *arg)
{
    symm_config config = harness_config();
    symm_ctx *ctx;
    double begin = harness_now();

    (void)none, (void)arg;
    config.init_timeout = 3;
    CHECK(symm_init(&config, &ctx) != SYMM_OK);
    CHECK_ERROR("NCCL 2.28.9 has not made it on rank");
    CHECK(harness_now() - begin < HARNESS_SOON);
    return 0;
}

static void test_not_at_all(void **state)
{
    struct harness h = {.ranks = RANKS,
                        .body = not_at_all,
                        .team_bytes = (size_t)128 << 20,
                        .without_ctx = true};

    (void)state;
    setenv("FAKE_NCCL_STUCK", "ncclCommInitRankConfig@2", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("FAKE_NCCL_STUCK");
}

/* ---- The end, and windows ---------------------------------------------------------- */

/* A communicator that its peers do not end is aborted, which frees the thread. */
static int unended(symm_ctx *ctx, void *arg)
{
    const struct fault *fault = arg;
    struct engine_stage s;
    symm_team *team = NULL;
    double begin;
    int before;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    before = threads();
    fault_set(fault, true);
    begin = harness_now();
    symm_team_destroy(team);
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "after %.3g s",
                  harness_now() - begin);
    fault_set(fault, false);
    CHECK_MESSAGE(threads_settle(before) <= before, "%d threads, then %d", before,
                  threads());
    CHECK_ZERO(next_team(&s));
    engine_close(&s);
    return 0;
}

static void test_unended(void **state)
{
    struct fault faults[] = {
        {.name = "FAKE_NCCL_STUCK", .value = "ncclCommFinalize"},
        {.name = "FAKE_NCCL_FAIL", .value = "ncclCommFinalize"},
    };

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            engine_run(unended, RANKS, HARNESS_PROCESSES, &faults[i], NULL, 0), 0);
}

/* Windows are made in a rendezvous: it ends, and the team has failed. */
static int windowless(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    struct device_area more;
    symm_team *team = NULL;
    double begin;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    CHECK_ZERO(device_area_open(&more, s.gpu, team, (size_t)5 << 20));
    setenv("FAKE_NCCL_STUCK", "ncclCommWindowRegister@1", 1);
    begin = harness_now();
    CHECK(symm_rendezvous(team) != SYMM_OK);
    CHECK_ERROR("no window");
    CHECK(harness_now() - begin < HARNESS_SOON);
    unsetenv("FAKE_NCCL_STUCK");
    device_area_close(&more);
    symm_team_destroy(team);
    CHECK(engine_stuck() == 0);
    CHECK_ZERO(next_team(&s));
    engine_close(&s);
    return 0;
}

static const char *const with_windows[] = {"SYMM_NCCL_WINDOW=1", NULL};

static void test_windows(void **state)
{
    (void)state;
    assert_int_equal(
        engine_run(windowless, RANKS, HARNESS_PROCESSES, NULL, with_windows, 3), 0);
}

/* ---- Calls that return -------------------------------------------------------------- */

static int many_calls(struct engine_stage *s, int count)
{
    symm_call call = {.size = sizeof(call), .site = "many", .algorithm = "engine"};

    call.stream = s->stream;
    for (int i = 0; i < count; i++) {
        symm_p2p_op ops[2];

        CHECK_OK(reduce(s, s->team, &call, NULL));
        for (int k = 0; k < 2; k++)
            ops[k] = (symm_p2p_op){.size = sizeof(ops[k]),
                                   .kind = k == 0 ? SYMM_P2P_SEND : SYMM_P2P_RECV,
                                   .ptr = k == 0 ? s->in.device : s->out.device,
                                   .count = 8,
                                   .dtype = SYMM_INT32,
                                   .peer = (s->rank + (k == 0 ? 1 : s->n - 1)) % s->n};
        call.algorithm = NULL;
        CHECK_OK(symm_p2p_batch(s->team, ops, 2, &call, NULL));
        call.algorithm = "engine";
    }
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    return 0;
}

static int threadless(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    int made, running;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(many_calls(&s, 1)); /* the fake driver may start what it needs */
    made = created;
    running = threads();
    CHECK(!COUNTS_THREADS || made >= 3); /* the watchdog and two for NCCL: it counts */
    CHECK_ZERO(many_calls(&s, 100));
    CHECK_MESSAGE(created == made, "%d threads were made by calls", created - made);
    CHECK_MESSAGE(threads() == running, "%d threads, then %d", running, threads());
    engine_close(&s);
    return 0;
}

static void test_threadless(void **state)
{
    (void)state;
    assert_int_equal(engine_run(threadless, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held),       cmocka_unit_test(test_dies),
        cmocka_unit_test(test_fails),      cmocka_unit_test(test_unmade),
        cmocka_unit_test(test_unsplit),    cmocka_unit_test(test_undivided),
        cmocka_unit_test(test_not_at_all), cmocka_unit_test(test_unended),
        cmocka_unit_test(test_windows),    cmocka_unit_test(test_threadless)};

    if (device_real())
        return 77; /* all of it asks the stand-in */
    engine_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
