/* SPDX-License-Identifier: MIT */
/*
 * test_driver_pull.c - kernels that read peers' memory or the stage, on the processor: every
 * collective by every such algorithm, compared bit for bit with tests/reference.c (pull_stage.h).
 *
 * Calls follow each other without any other order between ranks, with changing algorithms, grids,
 * sizes and alignments over one scratch, so that a slot reused too early gives a wrong result. A
 * planted missing exit barrier must be detected.
 * ctest: cost 7
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness.h"
#include "pull_stage.h"
#include "reference.h"

/* Every way, dtype and op once for each size of a team, in a random order of shapes. From 3 ranks
 * on half of them, the others with one rank more; SYMM_TEST_LONG=1: all. */
static void test_all(void **unused)
{
    enum { COUNT = WAYS * REFERENCE_DTYPES };
    static struct kernel_call calls[COUNT + WAYS];
    const bool longer = harness_env("SYMM_TEST_LONG", 0) != 0;

    (void)unused;
    for (int size = 1; size <= SYMM_FEW_RANKS; size++) {
        struct heaps *heaps = open_heaps(size, 0, 0, 0);
        uint32_t random = 1234u + (uint32_t)size;
        int count = 0;

        for (int i = 0; i < COUNT; i++)
            if (size <= 2 || longer || (i % WAYS + i / WAYS + size) % 2 == 0)
                calls[count++] = some_call(
                    &random, size, i % WAYS, (symm_dtype)(i / WAYS),
                    reference_op((symm_dtype)(i / WAYS), (unsigned)(i + size)));
        for (int i = 0; i < count; i++) { /* shuffled */
            int other = (int)(kernel_call_random(&random) % (uint32_t)count);
            struct kernel_call call = calls[i];

            calls[i] = calls[other];
            calls[other] = call;
        }
        run_well(heaps, calls, count);
        heaps_destroy(heaps);
    }
}

/* The hot kernels of SUM, and counters that pass their limits. */
static void test_hot(void **unused)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    struct kernel_call calls[60];

    (void)unused;
    for (int size = 2; size <= SYMM_FEW_RANKS; size *= 2) {
        struct heaps *heaps =
            open_heaps(size, 0, SYMM_ROUND_LIMIT - 20, UINT32_MAX - 20);
        uint32_t random = 77u + (uint32_t)size;

        for (int i = 0; i < 60; i++) {
            calls[i] = some_call(&random, size,
                                 i % 5 == 3   ? 4
                                 : i % 5 == 4 ? 3
                                              : i % 5,
                                 dtypes[i / 5 % 3], SYMM_SUM);
            calls[i].generic = false;
            if (i >= 45)
                calls[i].count = 30000 + 999 * (size_t)(i - 45);
        }
        run_well(heaps, calls, 60);
        heaps_destroy(heaps);
    }
}

/* all_reduce_stream.cu between calls that use the stage otherwise. */
static void test_stream(void **unused)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    struct kernel_call calls[72];

    (void)unused;
    for (int size = 2; size <= SYMM_FEW_RANKS; size *= 2) {
        struct heaps *heaps = open_heaps(size, 0, 0, 0);
        uint32_t random = 55u + (uint32_t)size;

        for (int i = 0; i < 72; i++) {
            bool stream = i % 3 != 2;

            calls[i] = some_call(&random, size,
                                 !stream ? (int)(kernel_call_random(&random) % WAYS)
                                 : i % 3 == 0 ? 2
                                              : 5,
                                 dtypes[i / 3 % 3], SYMM_SUM);
            calls[i].stream = stream;
            calls[i].generic = !stream;
            calls[i].by_pointer = calls[i].by_pointer && (!stream || i % 3 == 0);
            if (stream && i % 4 == 0)
                calls[i].count =
                    (9000 + 1003 * (size_t)i) / (i % 3 == 0 ? 1 : (size_t)size);
        }
        run_well(heaps, calls, 72);
        heaps_destroy(heaps);
    }
}

/* All ops of a dtype at a size for which kernels are generic anyway. */
static void test_ops(void **unused)
{
    struct kernel_call calls[REFERENCE_DTYPES * REFERENCE_OPS];
    struct heaps *heaps = open_heaps(3, 0, 0, 0);
    uint32_t random = 5u;
    int count = 0;

    (void)unused;
    for (int i = 0; i < REFERENCE_DTYPES * REFERENCE_OPS; i++) {
        static const int reductions[] = {0, 1, 2, 3, 4, 5};
        const symm_dtype dtype = (symm_dtype)(i % REFERENCE_DTYPES);
        const symm_op op = (symm_op)(i / REFERENCE_DTYPES);

        if (!reference_takes(dtype, op))
            continue;
        calls[count] = some_call(&random, 3, reductions[i % 6], dtype, op);
        calls[count++].count = 200 + (size_t)i;
    }
    run_well(heaps, calls, count);
    heaps_destroy(heaps);
}

/* Many barriers and smallest calls, without a pause between them. */
static void test_torture(void **unused)
{
    static struct kernel_call calls[400];
    struct heaps *heaps = open_heaps(5, 0, SYMM_ROUND_LIMIT - 300, 0);
    uint32_t random = 8u;

    (void)unused;
    for (int i = 0; i < 400; i++) {
        calls[i] = some_call(
            &random, 5, i % 3 ? WAYS - 1 : (int)(kernel_call_random(&random) % WAYS),
            SYMM_FLOAT32, SYMM_SUM);
        if (calls[i].count > 100)
            calls[i].count = 40;
        calls[i].blocks = 1 + kernel_call_random(&random) % 12;
        calls[i].threads = 32;
    }
    run_well(heaps, calls, 400);
    heaps_destroy(heaps);
}

/* Calls of many rounds or parts between short ones, and blocks that are late: a slot of the stage
 * that is written too early is still read, a part that is read too early is not there. */
static void test_late(void **unused)
{
    static const int longer[] = {3, 9, 3, 10}, shorter[] = {5, 8, 11, 14};
    struct kernel_call calls[48];
    struct heaps *heaps = open_heaps(3, 0, 0, 0);
    uint32_t random = 21u;

    (void)unused;
    for (int i = 0; i < 48; i++) {
        const int way = i % 2 ? shorter[i / 2 % 4] : longer[i / 2 % 4];

        calls[i] = some_call(&random, 3, way, SYMM_INT32, SYMM_SUM);
        calls[i].blocks = 1 + kernel_call_random(&random) % 2;
        calls[i].in_place = false;
        calls[i].count = 100 + kernel_call_random(&random) % 400;
        if (way == 3) /* in two steps, an odd or an even number of rounds */
            calls[i].count = 33000 + kernel_call_random(&random) % 7000;
        else if (i % 2 == 0)
            calls[i].count = 2048 + kernel_call_random(&random) % 2000;
    }
    setenv("SIMT_PAUSE", "2000", 1);
    run_well(heaps, calls, 48);
    unsetenv("SIMT_PAUSE");
    heaps_destroy(heaps);
}

/* Without an exit barrier a rank overwrites an input that a peer still reads. */
static void test_plant_exit(void **unused)
{
    static struct kernel_call calls[300];
    struct job job = {.calls = calls, .count = 300, .calm = 1, .odd = -1, .dead = -1};
    uint32_t random = 11u;

    (void)unused;
    for (int i = 0; i < 300; i++) {
        calls[i] = some_call(&random, 4, 0, SYMM_FLOAT32, SYMM_SUM);
        calls[i].count = 3000;
        calls[i].blocks = 1;
        calls[i].threads = 32;
        calls[i].flags = SYMM_CUDA_ENTRY_BARRIER;
    }
    for (int tries = 0, seen = 0; seen == 0; tries++) { /* it is a race */
        /* Who has seen it stops, and the others wait. */
        struct heaps *heaps = open_heaps(4, 2, 0, 0);
        assert_true(tries < 20);
        seen = run(heaps, &job);
        heaps_destroy(heaps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),        cmocka_unit_test(test_hot),
        cmocka_unit_test(test_stream),     cmocka_unit_test(test_ops),
        cmocka_unit_test(test_torture),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_plant_exit),
    };

    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
