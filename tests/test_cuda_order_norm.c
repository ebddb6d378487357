/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_order_norm.c - test_cuda_order.c for all_reduce_norm with clusters of blocks, which
 * become resident before the calls in front of them have met their peers.
 *
 * Between two ranks, on 72 multiprocessors: the fewest that have clusters. test_apart: rank 0
 * queues calls, then a kernel like NCCL's; rank 1 makes its calls when that kernel has ended. So
 * calls that wait, and those that are resident behind them, must leave room to it.
 * SYMM_TEST_SEED, SYMM_TEST_ROUNDS, SYMM_TEST_LONG, SYMM_TEST_ONLY and SYMM_TEST_STATE as there.
 * ctest: cost 20
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device.h"

#if SYMM_HAVE_CUDA
#include "cuda_order.h"

static void orders(int streams, int connections)
{
    assert_int_equal(order_variants((struct run){
                         .rounds = harness_env("SYMM_TEST_LONG", 0) == 1 ? 50 : 1,
                         .ranks = 2,
                         .streams = streams,
                         .connections = connections,
                         .processors = 72,
                         .norm = true,
                         .may_fail = connections == 1}),
                     0);
}

static void test_two_streams(void **state)
{
    (void)state;
    orders(2, 8);
    orders(2, 32);
}

static void test_three_streams(void **state)
{
    (void)state;
    orders(3, 8);
    orders(3, 32);
}

static void test_one_queue(void **state)
{
    (void)state;
    orders(2, 1);
}

static void test_apart(void **state)
{
    static const uint32_t rows[] = {1, 7, 8, 9, 10, 17, 18, 31, 58};
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct planned one = {.kind = ALL_REDUCE, .count = 64, .rows = rows[i]};

        failed += order_runs((struct run){.ranks = 2,
                                          .teams = 1,
                                          .streams = 1,
                                          .deep = DEEP,
                                          .connections = 32,
                                          .processors = 72,
                                          .norm = true,
                                          .nccl = true,
                                          .apart = true,
                                          .one = &one});
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_three_streams),
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
