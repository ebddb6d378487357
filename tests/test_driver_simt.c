/* SPDX-License-Identifier: MIT */
/*
 * test_driver_simt.c - the shim that runs kernels on the processor: barriers of a block,
 * collectives of a warp, ranks that wait for each other, and the rules that it enforces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "kernels/cuda_launch.h"

static struct driver driver;

/* ---- Inside of a block ----------------------------------------------------------- */

static void sum(unsigned blocks, unsigned threads)
{
    static uint32_t in[5 * 512], out[5 * 512];
    struct symm_cuda_args args = {.in = in, .out = out};

    memset(out, 0, sizeof(out));
    for (uint32_t i = 0; i < 5 * 512; i++)
        in[i] = i * 2654435761u;
    driver.simt_launch(driver_kernel(&driver, "simt_test_sum"), &args, blocks, threads);
    for (unsigned b = 0; b < blocks; b++) {
        uint32_t wanted = 0;

        for (unsigned t = 0; t < threads; t++)
            wanted += in[b * threads + t];
        for (unsigned t = 0; t < threads; t++)
            assert_int_equal(out[b * threads + t], wanted);
    }
    for (unsigned i = blocks * threads; i < 5 * 512; i++)
        assert_int_equal(out[i], 0);
}

static void test_sum(void **state)
{
    static const unsigned threads[] = {32, 64, 96, 256, 512};
    static const char *const seeds[] = {"0", "1", "77"};

    (void)state;
    for (int s = 0; s < 3; s++) {
        setenv("SIMT_SEED", seeds[s], 1);
        for (int i = 0; i < 5; i++)
            sum(i % 2 ? 5 : 1, threads[i]);
    }
    unsetenv("SIMT_SEED");
}

static void test_groups(void **state)
{
    static uint32_t out[2][352];
    struct symm_cuda_args args = {.out = out, .count = 5};

    (void)state;
    for (int seed = 0; seed < 3; seed++) {
        setenv("SIMT_SEED", seed == 0 ? "0" : seed == 1 ? "1" : "77", 1);
        driver.simt_launch(driver_kernel(&driver, "simt_test_groups"), &args, 2, 352);
        for (uint32_t t = 0; t < 320; t++) {
            const uint32_t group = t / 64, rounds = 5 + group;
            const uint32_t wanted =
                (64 * 64 * group + 64 * 63 / 2) * (rounds * (rounds + 1) / 2);

            assert_int_equal(out[0][t], wanted);
            assert_int_equal(out[1][t], wanted);
        }
    }
    unsetenv("SIMT_SEED");
}

static void test_warp(void **state)
{
    static uint64_t out[96][8];
    struct symm_cuda_args args = {.out = out};

    (void)state;
    driver.simt_launch(driver_kernel(&driver, "simt_test_warp"), &args, 1, 96);
    for (unsigned t = 0; t < 96; t++) {
        unsigned lane = t % 32, first = t - lane;

        assert_int_equal(out[t][0], first + 5);
        assert_int_equal(out[t][1], first + (lane & ~7u) + 1);
        assert_int_equal(out[t][2], t ^ 3);
        assert_int_equal(out[t][3], 2 * ((lane + 1) % 32) + 1);
        assert_int_equal(out[t][4], 0x49249249u);
        assert_int_equal(out[t][5], 1);
        assert_int_equal(out[t][6], 0);
        assert_int_equal(out[t][7], (uint64_t)7 << 40);
    }
}

/* ---- Ranks ----------------------------------------------------------------------- */

enum { ROUNDS = 200, RANK_THREADS = 128 };

struct ranks {
    uint64_t word[2][RANK_THREADS];
};

static void spin(struct ranks *ranks, int rank)
{
    struct symm_cuda_args args = {
        .in = ranks->word[rank], .out = ranks->word[1 - rank], .count = ROUNDS};

    driver.simt_launch(driver_kernel(&driver, "simt_test_spin"), &args, 1,
                       RANK_THREADS);
}

static void *spin_one(void *arg)
{
    spin(arg, 1);
    return NULL;
}

static int spin_process(void *arg)
{
    spin(arg, 1);
    return 0;
}

static void check_spun(const struct ranks *ranks)
{
    for (int t = 0; t < 2 * RANK_THREADS; t++)
        assert_int_equal(ranks->word[t / RANK_THREADS][t % RANK_THREADS], ROUNDS);
}

static void test_spin_threads(void **state)
{
    struct ranks ranks = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, spin_one, &ranks), 0);
    spin(&ranks, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_spun(&ranks);
}

static void test_spin_processes(void **state)
{
    struct ranks *ranks = harness_shared(sizeof(*ranks));
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(spin_process(ranks));
    spin(ranks, 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    check_spun(ranks);
    harness_shared_free(ranks, sizeof(*ranks));
}

/* One thread polls while 511 others are at a barrier. */
static void *let_go(void *arg)
{
    harness_sleep(0.05);
    __atomic_store_n((uint32_t *)arg, 9, __ATOMIC_RELEASE);
    return NULL;
}

static void test_wait(void **state)
{
    static uint32_t out[512];
    uint32_t word = 0;
    struct symm_cuda_args args = {.in = &word, .out = out, .tag = 9};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, let_go, &word), 0);
    driver.simt_launch(driver_kernel(&driver, "simt_test_wait"), &args, 3, 512);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 512; i++)
        assert_int_equal(out[i], 9);
}

/* Blocks of clusters, 2 and 4 of them in each of 3 clusters, as 96 threads of which 64 go on. */
static void test_cluster(void **state)
{
    static uint32_t out[12 * 96];

    (void)state;
    for (uint32_t cluster = 0; cluster <= 2; cluster++) {
        const uint32_t members = 1u << cluster, blocks = 3 * members;
        struct symm_cuda_args args = {.out = out, .count = 5, .cluster = cluster};

        memset(out, 0, sizeof(out));
        driver.simt_launch(driver_kernel(&driver, "simt_test_cluster"), &args, blocks,
                           96);
        for (uint32_t i = 0; i < blocks * 96; i++)
            assert_int_equal(out[i], i % 96 < 64 ? members * 10 +
                                                       5 * members * (members - 1) / 2
                                                 : 0);
    }
}

/* ---- Rules ----------------------------------------------------------------------- */

static int broken(void *arg)
{
    struct symm_cuda_args args = {.tag = *(uint32_t *)arg};

    driver.simt_launch(driver_kernel(&driver, "simt_test_broken"), &args, 1, 64);
    return 0;
}

static int bad_shape(void *arg)
{
    struct symm_cuda_args args = {0};

    driver.simt_launch(driver_kernel(&driver, "simt_test_broken"), &args, 1,
                       *(unsigned *)arg);
    return 0;
}

static void test_rules(void **state)
{
    static const char *const words[] = {
        "kernel simt_test_broken, block 0: thread 7 has returned while 7 others",
        "thread 16 is at __any_sync, other lanes of its warp are at __syncwarp",
        "__syncwarp with mask 0xffff",
        "33 of 64 wait at __syncthreads, 0 have returned; warp 1: 31 lanes at "
        "__syncwarp",
        "thread 32 is at barrier 3 of 32 threads, others are there for 64",
        "thread 16 is at barrier 4, other lanes of its warp are at barrier 3",
        "thread 0 is at barrier 16: they are 1 to 15",
        "barrier 3 of 48 threads: they are whole warps of 64",
        "32 of 64 wait at __syncthreads, 0 have returned; 32 of 64 threads at barrier "
        "3",
        "thread 0 waits at its cluster's barrier, where it has not arrived",
        "thread 0 arrives at its cluster's barrier a second time",
        "it runs for longer than SIMT_LIMIT; 64 of 64 threads poll",
    };
    static const char *const limit[] = {"SIMT_LIMIT=1", NULL};
    unsigned threads = 48;

    (void)state;
    for (uint32_t tag = 0; tag < 12; tag++)
        assert_int_equal(
            driver_dies(broken, &tag, tag == 11 ? limit : NULL, words[tag]), 0);
    assert_int_equal(driver_dies(bad_shape, &threads, NULL, "a block of 48 threads"),
                     0);
    threads = 1056;
    assert_int_equal(driver_dies(bad_shape, &threads, NULL, "a block of 1056 threads"),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_warp),    cmocka_unit_test(test_spin_threads),
        cmocka_unit_test(test_wait),    cmocka_unit_test(test_spin_processes),
        cmocka_unit_test(test_cluster), cmocka_unit_test(test_rules),
    };

    if (HARNESS_TSAN) /* it knows nothing of fibers */
        return 77;
    if (driver_load(&driver))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
