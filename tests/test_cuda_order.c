/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_order.c - ranks queue the calls of each stream in one order, and the streams in
 * any: every call completes, with the right values.
 * ctest: cost 32
 * ctest: load 2
 *
 * Over the fake driver with its model of a device, or on GPUs with SYMM_TEST_GPU=1. A seed
 * determines each stream's list of calls, equal on all ranks, of any team, collective and
 * algorithm: up to 4 in a row, mostly with a user's kernel after each. Each rank queues the
 * streams' lists in its own order, and among them, on one more stream, a kernel that waits
 * for the same kernel of the peers, like NCCL's. test_full, test_round, test_dependents and
 * test_queues each test one cause that once kept such calls from completing.
 *
 * If hardware queues are fewer than streams that have work after a waiting call, completion
 * is not promised. Then an error within SYMM_QUEUE_TIMEOUT (no less than the timeout) must
 * name the site and CUDA_DEVICE_MAX_CONNECTIONS; values are never wrong.
 *
 * A failure names the seed of its round; the test's name and SYMM_TEST_SEED repeat it.
 * SYMM_TEST_STATE=1 prints the state of the fake device when a stream takes long.
 * SYMM_TEST_SEED=n: the first seed; SYMM_TEST_ROUNDS=n: rounds of each job (2;
 * SYMM_TEST_LONG=1: 200); SYMM_TEST_ONLY=test_full: only that test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"

#if SYMM_HAVE_CUDA
#include "cuda_order.h"

/* ---- Causes ----------------------------------------------------------------------- */

/* What a call takes of a device. */
static struct planned large = {
    .algorithm = PULL, .kind = ALL_GATHER, .count = 21000}; /* all of it */
static struct planned middle = {
    .algorithm = LINES, .kind = ALL_GATHER, .count = 2048}; /* less than half */
static struct planned small = {
    .algorithm = LINES, .kind = ALL_REDUCE, .count = 64}; /* a block */

/* Waiting blocks fill the multiprocessors: 1 and 2 teams on 2 and 3 streams. */
static void test_full(void **state)
{
    int failed = 0;

    (void)state;
    for (int i = 0; i < 8; i++)
        failed += order_runs((struct run){.ranks = 2,
                                          .teams = 1 + i % 2,
                                          .streams = 2 + i / 2 % 2,
                                          .deep = i / 4 ? DEEP : 1,
                                          .behind = true,
                                          .connections = 32,
                                          .one = &large});
    assert_int_equal(failed, 0);
}

/* The same on three streams of three ranks: without a budget over all channels each of the
 * calls lacks room on another rank. */
static void test_round(void **state)
{
    (void)state;
    for (int deep = 1; deep <= 2; deep++)
        assert_int_equal(order_runs((struct run){.ranks = RANKS,
                                                 .teams = deep,
                                                 .streams = RANKS,
                                                 .deep = deep,
                                                 .behind = true,
                                                 .connections = 32,
                                                 .one = &large}),
                         0);
}

/* Calls after a waiting one become resident; one on each stream has room. */
static void test_dependents(void **state)
{
    struct run run = {.ranks = 2, .teams = 1, .streams = 2, .connections = 32};

    (void)state;
    run.one = &middle;
    for (run.deep = 1; run.deep <= DEEP; run.deep += DEEP - 1)
        assert_int_equal(order_runs(run), 0);
}

/* A call with a kernel after it stops its hardware queue. */
static void test_queues(void **state)
{
    struct run run = {.ranks = 2, .teams = 1, .streams = 2, .deep = 1, .behind = true};

    (void)state;
    run.one = &small;
    run.connections = 8;
    assert_int_equal(order_runs(run), 0);
    run.connections = 1;
    run.may_fail = true;
    assert_int_equal(order_runs(run), 0);
}

/* ---- Orders ----------------------------------------------------------------------- */

static void orders(int ranks, int streams, int connections, bool same)
{
    assert_int_equal(order_variants((struct run){
                         .rounds = harness_env("SYMM_TEST_LONG", 0) == 1 ? 200 : 2,
                         .ranks = ranks,
                         .streams = streams,
                         .connections = connections,
                         .same = same,
                         .may_fail = connections == 1 && !same}),
                     0);
}

/* What needs no care: one call on each stream, in one order on all ranks. (With two, the
 * second ones get room in the order in which the first have ended.) */
static void test_same(void **state)
{
    (void)state;
    orders(RANKS, 3, 1, true);
}

static void test_two_streams(void **state)
{
    (void)state;
    orders(2, 2, 8, false);
    orders(2, 2, 32, false);
}

static void test_three_streams(void **state)
{
    (void)state;
    orders(2, 3, 8, false);
    orders(2, 3, 32, false);
    if (harness_env("SYMM_TEST_LONG", 0) == 1)
        orders(RANKS, 3, 32, false);
}

/* One job of few rounds, or many of them. */
static void test_six_streams(void **state)
{
    const bool longer = harness_env("SYMM_TEST_LONG", 0) == 1;

    (void)state;
    for (int i = 0; i < (longer ? 8 : 2); i++)
        assert_int_equal(order_runs((struct run){.seed = (uint64_t)(100 * i) + 1,
                                                 .rounds = longer ? 50 : 4,
                                                 .ranks = 2 + i % 2,
                                                 .teams = TEAMS,
                                                 .streams = STREAMS,
                                                 .deep = longer ? DEEP : 2,
                                                 .connections = 32,
                                                 .processors = 2 * PROCESSORS,
                                                 .behind = true,
                                                 .nccl = true}),
                         0);
}

static void test_one_queue(void **state)
{
    (void)state;
    orders(2, 2, 1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),        cmocka_unit_test(test_dependents),
        cmocka_unit_test(test_queues),      cmocka_unit_test(test_same),
        cmocka_unit_test(test_round),       cmocka_unit_test(test_six_streams),
        cmocka_unit_test(test_two_streams), cmocka_unit_test(test_three_streams),
        cmocka_unit_test(test_one_queue),
    };

    if (HARNESS_TSAN)
        return 77;
    device_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 77;
}
#endif
