/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_fault.c - calls over NCCL that fail: ranks at different calls; a rank that
 * is late, dead or gone, or whose operation hangs or fails. All ranks get a named error, their
 * communicators are aborted, and symm_finalize works as usual.
 * ctest: cost 10
 */
#include "engine_stage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS HARNESS_AMPLE

static symm_status reduce(struct engine_stage *s, const symm_call *call,
                          symm_work **work)
{
    return symm_all_reduce(s->team, s->in.device, s->out.device, 1000, SYMM_INT32,
                           SYMM_SUM, call, work);
}

/* The team's failure, waited for: by calls that do nothing else. */
static symm_status failure(struct engine_stage *s)
{
    double begin = harness_now();
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && harness_now() - begin < HARNESS_SOON) {
        status = symm_signal(s->team, s->rank, 200, NULL, NULL);
        harness_sleep(0.005);
    }
    return status;
}

/* The watcher aborts, soon after the failure is to be seen: once. */
static bool aborted_once(uint64_t before)
{
    double begin = harness_now();

    while (engine_calls("ncclCommAbort") == before &&
           harness_now() - begin < HARNESS_SOON)
        harness_sleep(0.005);
    return engine_calls("ncclCommAbort") == before + 1;
}

/* Ranks that take different ways are told before NCCL is entered. */
static int mismatch(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "both", .algorithm = "engine"};
    uint64_t before;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(reduce(&s, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS));
    before = engine_calls("ncclCommAbort");
    if (s.rank == 1)
        call.algorithm = "copy_in";
    call.site = "apart";
    (void)!reduce(&s, &call, NULL); /* the team may have failed by now */
    CHECK_STATUS(failure(&s), SYMM_ERR_MISMATCH);
    CHECK_ERROR("apart");
    CHECK_ERROR("engine");
    CHECK_OK(symm_stream_synchronize(ctx, NULL, SECONDS)); /* nothing is left on it */
    if (engine_pass == HARNESS_PROCESSES && !device_real())
        CHECK(aborted_once(before));
    engine_close(&s);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    assert_int_equal(engine_run(mismatch, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(mismatch, 3, HARNESS_THREADS, NULL, NULL, 0), 0);
}

/* For a deadline that expired too early, before the ranks had met: once more, longer. */
struct patience {
    double seconds;
    _Atomic int again;
    bool pairs;
};

static bool expired_early(struct patience *p, const char *wanted)
{
    if (strstr(symm_last_error(), wanted))
        return false;
    p->again = 1;
    return true;
}

static void run_patient(harness_body body, int ranks, enum harness_mode mode,
                        const char *const *settings, bool pairs)
{
    struct patience *p = harness_shared(sizeof(*p));

    HARNESS_PATIENCE(p->seconds, 0.3)
    {
        p->again = 0;
        p->pairs = pairs;
        assert_int_equal(engine_run(body, ranks, mode, p, settings, 0), 0);
        if (!p->again)
            break;
    }
    assert_true(p->seconds <= HARNESS_SOON);
    harness_shared_free(p, sizeof(*p));
}

/* An operation that never ends on rank 1: aborted at the deadline, on all ranks. */
static int hangs(symm_ctx *ctx, void *arg)
{
    struct patience *p = arg;
    struct engine_stage s;
    symm_call call = {.size = sizeof(call),
                      .site = "hung",
                      .algorithm = "engine",
                      .timeout = p->seconds};
    symm_work *work = NULL;
    bool done = false;
    symm_status status;

    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    status = reduce(&s, &call, &work);
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, SECONDS);
    CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "%s", symm_last_error());
    if (!expired_early(p, "was begun on rank")) {
        CHECK_ERROR("all_reduce at site 'hung'");
        CHECK_STATUS(symm_work_query(work, &done), SYMM_ERR_TIMEOUT);
        CHECK(done && strstr(symm_work_error(work), "hung") != NULL);
    }
    symm_work_release(work);
    CHECK_STATUS(failure(&s), SYMM_ERR_TIMEOUT);
    CHECK_STATUS(reduce(&s, &call, NULL), SYMM_ERR_TIMEOUT);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, SECONDS));
    engine_close(&s);
    return 0;
}

static const char *const hanging[] = {"FAKE_NCCL_HANG=ncclAllReduce@1", NULL};
/* A user's setting, which overrules the library's. */
static const char *const not_blocking[] = {"NCCL_COMM_BLOCKING=0",
                                           "FAKE_NCCL_HANG=ncclAllReduce@1", NULL};

static void test_hangs(void **state)
{
    (void)state;
    if (device_real())
        skip();
    run_patient(hangs, 2, HARNESS_PROCESSES, hanging, false);
    run_patient(hangs, 3, HARNESS_PROCESSES, not_blocking, false);
    run_patient(hangs, 3, HARNESS_THREADS, hanging, false);
}

/* Nobody sends. */
static int unmet(symm_ctx *ctx, void *arg)
{
    struct patience *p = arg;
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "unmet", .timeout = p->seconds};
    symm_work *work = NULL;
    symm_status status;

    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    if (s.rank == 0) {
        status = symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1, &call, &work);
        if (status == SYMM_OK)
            status = symm_work_synchronize(work, SECONDS);
        CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "%s", symm_last_error());
        if (!p->pairs)
            expired_early(p, "symm_recv with rank 1 at site 'unmet' was begun");
        else /* not even the other's id comes */
            CHECK_ERROR("first message between ranks 0 and 1");
        symm_work_release(work);
    }
    CHECK_STATUS(failure(&s), SYMM_ERR_TIMEOUT);
    engine_close(&s);
    return 0;
}

static const char *const with_pairs[] = {"SYMM_P2P_PAIRS=1", NULL};

static void test_unmet(void **state)
{
    (void)state;
    run_patient(unmet, 2, HARNESS_PROCESSES, NULL, false);
    run_patient(unmet, 2, HARNESS_THREADS, NULL, false);
    run_patient(unmet, 2, HARNESS_PROCESSES, with_pairs, true);
}

/* Rank 1 finalizes its context, and has sent nothing: that ends the receive, long before its
 * deadline. */
static int leaves(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "left"};
    symm_work *work = NULL;
    double begin;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    if (s.rank == 0) {
        begin = harness_now();
        CHECK_OK(symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, SECONDS), SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 1 has finalized its context while rank 0 waited for it in "
                    "symm_recv with rank 1");
        CHECK(harness_now() - begin < HARNESS_SOON);
        symm_work_release(work);
    }
    engine_close(&s);
    return 0;
}

static void test_leaves(void **state)
{
    (void)state;
    assert_int_equal(engine_run(leaves, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(leaves, 2, HARNESS_THREADS, NULL, NULL, 0), 0);
}

/*
 * The team fails while two ranks make their communicator: it is aborted like those that were
 * there, nothing is begun on it, and the team ends.
 */
static int overtaken(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "early", .timeout = 0.2};

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    if (s.rank == 0)
        CHECK_OK(symm_signal_wait(s.team, 1, 3, &call, NULL));
    call = (symm_call){.size = sizeof(call), .site = "pair"};
    CHECK_STATUS(
        symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1 - s.rank, &call, NULL),
        SYMM_ERR_TIMEOUT);
    CHECK_ERROR("signal 3");
    engine_close(&s);
    return 0;
}

static const char *const slow_pairs[] = {"SYMM_P2P_PAIRS=1",
                                         "FAKE_NCCL_SLOW=ncclCommInitRankConfig", NULL};

static void test_overtaken(void **state)
{
    (void)state;
    if (device_real() || engine_pass != HARNESS_PROCESSES)
        skip();
    assert_int_equal(engine_run(overtaken, 2, HARNESS_PROCESSES, NULL, slow_pairs, 0),
                     0);
}

/* Rank 1 makes the communicator four seconds later than rank 0, which says that it has made it.
 * Both ranks succeed. */
static int slow(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_barrier(s.team, &(symm_call){.size = sizeof(symm_call)}, NULL));
    engine_close(&s);
    return 0;
}

static void test_slow(void **state)
{
    static const char *const settings[] = {"FAKE_NCCL_SLOW=ncclCommInitRankConfig@1",
                                           NULL};

    (void)state;
    if (device_real() || engine_pass != HARNESS_PROCESSES)
        skip();
    assert_int_equal(engine_run(slow, 2, HARNESS_PROCESSES, NULL, settings, 0), 0);
}

/*
 * Rank 2 aborts the team while rank 0 waits for rank 1 in a receive by their own communicator:
 * rank 0 knows at once, long before the call's deadline.
 */
enum moment {
    ID,     /* rank 1 does not come, so rank 0 has no id */
    MAKING, /* both make it, which never ends */
    DATA    /* it is made, and no data comes */
};

static int aborted(symm_ctx *ctx, void *arg)
{
    const enum moment moment = *(const enum moment *)arg;
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "left"};
    symm_work *work = NULL;
    symm_status status = SYMM_OK;
    double begin;

    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    if (moment == MAKING) /* not before: the team's own was made like this */
        setenv("FAKE_NCCL_HANG", "ncclCommInitRankConfig", 1);
    begin = harness_now();
    if (s.rank == 0 || (s.rank == 1 && moment != ID)) {
        status =
            symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1 - s.rank, &call, &work);
        if (status == SYMM_OK)
            status = symm_work_synchronize(work, SECONDS);
    } else {
        harness_sleep(0.3); /* most likely they wait by now; any moment will do */
        if (s.rank == 2)
            CHECK_OK(symm_team_abort(s.team, "enough"));
        status = failure(&s);
    }
    CHECK_STATUS(status, SYMM_ERR_ABORTED);
    CHECK_ERROR("rank 2 has aborted");
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "moment %d: after %.3g s",
                  (int)moment, harness_now() - begin);
    symm_work_release(work);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, SECONDS));
    engine_close(&s);
    return 0;
}

static void test_aborted(void **state)
{
    (void)state;
    if (device_real())
        skip();
    for (enum moment m = ID; m <= DATA; m++)
        assert_int_equal(engine_run(aborted, 3, HARNESS_PROCESSES, &m, with_pairs, 0),
                         0);
}

/* Rank 1 dies while its operation is under way. */
static int dies(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "death", .algorithm = "engine"};
    symm_work *work = NULL;
    double begin;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    CHECK_OK(reduce(&s, &call, &work));
    if (s.rank == 1) {
        harness_sleep(0.05); /* most likely in the middle of it; any moment will do */
        raise(SIGKILL);
    }
    begin = harness_now();
    CHECK_STATUS(symm_work_synchronize(work, SECONDS), SYMM_ERR_PEER_DEAD);
    CHECK_ERROR("rank 1");
    CHECK(harness_now() - begin < HARNESS_SOON);
    symm_work_release(work);
    engine_close(&s);
    return 0;
}

static void test_dies(void **state)
{
    struct harness h = {
        .ranks = 3, .body = dies, .killed = 2, .team_bytes = (size_t)128 << 20};

    (void)state;
    if (device_real() || engine_pass != HARNESS_PROCESSES)
        skip();
    setenv("FAKE_NCCL_HANG", "ncclAllReduce@1", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("FAKE_NCCL_HANG");
}

/* NCCL reports an error of rank 1 later, or at once. */
static int fails(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "broken", .algorithm = "engine"};
    symm_status status;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    status = reduce(&s, &call, NULL);
    CHECK(status == SYMM_OK || status == SYMM_ERR_ABORTED);
    CHECK_STATUS(failure(&s), SYMM_ERR_ABORTED);
    CHECK_ERROR("rank 1: all_reduce at site 'broken' failed in NCCL");
    CHECK_ERROR("unhandled system error");
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, SECONDS));
    engine_close(&s);
    return 0;
}

static const char *const failing[] = {"FAKE_NCCL_FAIL=ncclAllReduce@1", NULL};
static const char *const failing_later[] = {
    "FAKE_NCCL_HANG=ncclAllReduce@1", "FAKE_NCCL_FAIL=ncclCommGetAsyncError@1", NULL};

static void test_fails(void **state)
{
    (void)state;
    if (device_real())
        skip();
    assert_int_equal(engine_run(fails, 2, HARNESS_PROCESSES, NULL, failing, 0), 0);
    assert_int_equal(engine_run(fails, 3, HARNESS_THREADS, NULL, failing, 0), 0);
    assert_int_equal(engine_run(fails, 2, HARNESS_PROCESSES, NULL, failing_later, 0),
                     0);
    assert_int_equal(engine_run(fails, 2, HARNESS_THREADS, NULL, failing_later, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),  cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_unmet),     cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_overtaken), cmocka_unit_test(test_slow),
        cmocka_unit_test(test_aborted),   cmocka_unit_test(test_dies),
        cmocka_unit_test(test_fails)};
    int failed;

    engine_suite();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    engine_pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
