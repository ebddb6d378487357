/* SPDX-License-Identifier: MIT */
/*
 * test_host_wide_fault.c - teams over several hosts in which a rank dies, is late, makes
 * another call, leaves, or does not start: every rank on every host ends with an error that
 * names it.
 *
 * One machine appears as several hosts; the test's own allgather gives them TCP connections.
 */
/* ctest: cost 6 */
/* ctest: sanitize-long */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#include <cmocka.h>

#define RANKS       4
#define ENTRY_BYTES 256

struct shared {
    int kind;
    double timeout;
    struct harness_sync sync;
    _Atomic int reached, told;
    char entries[RANKS][ENTRY_BYTES];
};

static char folder[64];

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct shared *shared = arg;

    if (bytes > ENTRY_BYTES)
        return 1;
    memcpy(shared->entries[harness_rank()], in, bytes);
    if (harness_sync_wait(&shared->sync, RANKS))
        return 1;
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)out + (size_t)r * bytes, shared->entries[r], bytes);
    return harness_sync_wait(&shared->sync, RANKS);
}

static void configure(symm_config *config, int rank, void *arg)
{
    static symm_bootstrap bootstrap = {.size = sizeof(bootstrap),
                                       .allgather = allgather};
    const struct shared *shared = arg;

    setenv("SYMM_HOST_ID", rank < 2 ? "left" : "right", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_ENGINE", SYMM_FAKE_ENGINE, 1);
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    bootstrap.arg = arg;
    config->bootstrap = &bootstrap;
    config->job_id = NULL;
    if (shared->timeout > 0)
        config->timeout = shared->timeout;
}

static int run(struct shared *shared, harness_body body, unsigned killed)
{
    struct harness h = {.ranks = RANKS,
                        .body = body,
                        .arg = shared,
                        .configure = configure,
                        .killed = killed};

    memset(&shared->sync, 0, sizeof(shared->sync));
    atomic_store(&shared->reached, 0);
    atomic_store(&shared->told, 0);
    return harness_run(&h);
}

static symm_status some_call(symm_team *team, int kind)
{
    static float data[5000];
    symm_status status;

    switch (kind) {
    case 0:
        return symm_all_reduce(team, data, data, 5000, SYMM_FLOAT32, SYMM_SUM, NULL,
                               NULL);
    case 1:
        return symm_barrier(team, NULL, NULL);
    case 2:
        return symm_all_to_all(team, data, data + 2500, 600, SYMM_FLOAT32, NULL, NULL);
    default:
        status = symm_rendezvous(team);
        return status;
    }
}

/* ---- Death ------------------------------------------------------------------------------ */

/* Rank 3 dies where the others wait for it, or between calls. */
static int body_death(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world);
    double start;
    symm_status status;

    for (int i = 0; i < 10; i++)
        CHECK_OK(some_call(world, 0));
    if (me == 3) {
        CHECK(harness_until(&shared->reached, 3));
        harness_sleep(0.01);
        kill(getpid(), SIGKILL);
    }
    atomic_fetch_add(&shared->reached, 1);
    start = harness_now();
    status = some_call(world, shared->kind);
    CHECK_MESSAGE(status == SYMM_ERR_PEER_DEAD, "kind %d: %s: %s", shared->kind,
                  symm_status_name(status), symm_last_error());
    CHECK_ERROR("rank 3");
    CHECK(harness_now() - start < HARNESS_SOON);
    CHECK_STATUS(some_call(world, 0), SYMM_ERR_PEER_DEAD);
    return 0;
}

static void test_death(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    for (shared->kind = 0; shared->kind < 4; shared->kind++)
        assert_int_equal(run(shared, body_death, 1u << 3), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Late ------------------------------------------------------------------------------- */

/* Rank 2 does not come: who misses it is told, on its own host and on the other. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *world = symm_team_world(ctx);
    symm_status status;

    CHECK_OK(some_call(world, 0));
    if (symm_team_rank(world) == 2) {
        CHECK(harness_until(&shared->told, 3));
        status = some_call(world, 0);
    } else {
        status = some_call(world, 0);
        atomic_fetch_add(&shared->told, 1);
    }
    CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_ABORTED, "%s: %s",
                  symm_status_name(status), symm_last_error());
    CHECK_MESSAGE(strstr(symm_last_error(), "rank 2") ||
                      strstr(symm_last_error(), "missing") ||
                      strstr(symm_last_error(), "aborted"),
                  "%s", symm_last_error());
    return 0;
}

static void test_late(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    double seconds;

    (void)state;
    HARNESS_PATIENCE(seconds, 0.5)
    {
        shared->timeout = seconds;
        if (run(shared, body_late, 0) == 0)
            break;
    }
    assert_true(seconds <= HARNESS_SOON);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- A failure outside of the collectives ------------------------------------------------ */

/* A signal that rank 0 awaits does not come; the others are, or go, in a collective. */
static int body_outside(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    const symm_call soon = {.size = sizeof(soon), .timeout = 0.2};
    symm_team *world = symm_team_world(ctx);

    CHECK_OK(some_call(world, 0));
    CHECK_ZERO(
        harness_sync_wait(&shared->sync, RANKS)); /* no failure within that call */
    if (symm_team_rank(world) == 0) {
        CHECK_STATUS(symm_signal_wait(world, 1, 3, &soon, NULL), SYMM_ERR_TIMEOUT);
        CHECK(harness_until(&shared->told, 3)); /* no call that would tell them */
        return 0;
    }
    CHECK_STATUS(some_call(world, 0), SYMM_ERR_TIMEOUT);
    CHECK_ERROR("signal 3");
    atomic_fetch_add(&shared->told, 1);
    return 0;
}

/* On a stream: a call on the default stream waits for the turn of one after it. */
static int body_turn(symm_ctx *ctx, void *arg)
{
    static float data[8];
    symm_call on_stream = {.size = sizeof(on_stream), .timeout = 0.5};
    symm_team *world = symm_team_world(ctx);
    symm_status status;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &on_stream.stream));
    if (symm_team_rank(world) == 0)
        CHECK_OK(symm_signal_wait(world, 1, 3, &on_stream, NULL));
    on_stream.timeout = HARNESS_AMPLE;
    status =
        symm_all_reduce(world, data, data, 8, SYMM_FLOAT32, SYMM_SUM, &on_stream, NULL);
    CHECK(status == SYMM_OK || status == SYMM_ERR_TIMEOUT); /* if this rank is slow */
    CHECK_STATUS(some_call(world, 0), SYMM_ERR_TIMEOUT);
    CHECK_ERROR("signal 3");
    return 0;
}

static void test_outside(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    shared->timeout = HARNESS_SOON;
    assert_int_equal(run(shared, body_outside, 0), 0);
    assert_int_equal(run(shared, body_turn, 0), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* Rank 3 aborts the team, and comes to no split of it: those who wait for it in one, on its host and
 * on the other, are told. All that know of the failure can split the team in spite of it. */
static int body_abort(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *world = symm_team_world(ctx), *part = NULL;
    const double start = harness_now();

    if (symm_team_rank(world) == 3) {
        harness_sleep(0.05);
        CHECK_OK(symm_team_abort(world, "enough"));
    } else {
        CHECK_STATUS(symm_team_split(world, 0, 0, &part), SYMM_ERR_ABORTED);
        CHECK_ERROR("rank 3 has aborted world: enough");
        CHECK(part == NULL);
        CHECK(harness_now() - start < HARNESS_SOON);
    }
    CHECK_ZERO(harness_sync_wait(&shared->sync, RANKS));
    if (symm_team_rank(world) ==
        3) /* it meets the split that the others have abandoned */
        CHECK_STATUS(symm_team_split(world, 0, 0, &part), SYMM_ERR_ABORTED);
    CHECK_OK(symm_team_split(world, 0, 0, &part));
    CHECK_OK(some_call(part, 0));
    symm_team_destroy(part);
    return 0;
}

static void test_abort(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    shared->timeout = HARNESS_AMPLE;
    assert_int_equal(run(shared, body_abort, 0), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Another call ------------------------------------------------------------------------ */

/* The ranks of one host agree with each other, but not with the other host's. */
static int body_mismatch(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world);
    float data[64] = {0};
    symm_status status;

    (void)arg;
    CHECK_OK(some_call(world, 0));
    if (me < 2)
        status =
            symm_all_reduce(world, data, data, 8, SYMM_FLOAT32, SYMM_SUM, NULL, NULL);
    else
        status =
            symm_all_reduce(world, data, data, 8, SYMM_FLOAT32, SYMM_MAX, NULL, NULL);
    CHECK_MESSAGE(status == SYMM_ERR_MISMATCH || status == SYMM_ERR_ABORTED, "%s: %s",
                  symm_status_name(status), symm_last_error());
    return 0;
}

static void test_mismatch(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    assert_int_equal(run(shared, body_mismatch, 0), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Leaving --------------------------------------------------------------------- */

/* Who finalizes has not died: ranks of the other host that are still busy go on. */
static int body_leave(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);

    (void)arg;
    for (int i = 0; i < 20; i++)
        CHECK_OK(some_call(world, i % 3));
    return 0; /* the harness finalizes, each rank at its own time */
}

static void test_leave(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(run(shared, body_leave, 0), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* One that finalizes too early is not said to have died, on whichever host. */
static int body_early(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);

    (void)arg;
    if (symm_team_rank(world) == 3)
        return 0;
    CHECK_STATUS(symm_rendezvous(world), SYMM_ERR_PEER_DEAD);
    CHECK_ERROR("rank 3 has finalized its context");
    return 0;
}

static void test_early(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(run(shared, body_early, 0), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Not starting ---------------------------------------------------------------- */

/* Rank 3 dies in the middle of symm_init: after the allgather. */
static int dying_allgather(void *arg, const void *in, size_t bytes, void *out)
{
    int result = allgather(arg, in, bytes, out);

    if (harness_rank() == 3)
        kill(getpid(), SIGKILL);
    return result;
}

static int body_start(symm_ctx *none, void *arg)
{
    symm_bootstrap bootstrap = {
        .size = sizeof(bootstrap), .allgather = dying_allgather, .arg = arg};
    symm_config config = harness_config();
    symm_ctx *ctx = NULL;
    symm_status status;

    (void)none;
    config.bootstrap = &bootstrap;
    config.init_timeout = 3; /* ranks that miss a connection name it then */
    status = symm_init(&config, &ctx);
    CHECK_MESSAGE(status == SYMM_ERR_PEER_DEAD || status == SYMM_ERR_TIMEOUT, "%s: %s",
                  symm_status_name(status), symm_last_error());
    CHECK_ERROR("rank 3"); /* on the other host, too */
    return 0;
}

static void test_start(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct harness h = {.ranks = RANKS,
                        .body = body_start,
                        .arg = shared,
                        .configure = configure,
                        .without_ctx = true,
                        .killed = 1u << 3};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_outside),  cmocka_unit_test(test_abort),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_leave),
        cmocka_unit_test(test_early),    cmocka_unit_test(test_start),
    };
    int failed;

    harness_clear_environment();
    harness_directory(folder, sizeof(folder));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(folder);
    return failed;
}
