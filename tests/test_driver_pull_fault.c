/* SPDX-License-Identifier: MIT */
/*
 * test_driver_pull_fault.c - kernels that read peers' memory or the stage, on the processor
 * (pull_stage.h), where a call fails: a rank that does not come, comes late, has left, is cut short
 * or makes another call, and pointers that are not ready. Such a call fails on all ranks.
 * ctest: cost 10
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness.h"
#include "pull_stage.h"
#include "reference.h"

/* The same again until the deadline is long enough for the two who come. */
static struct heaps *run_without_one(struct job *job)
{
    struct heaps *heaps = NULL;
    double patience;

    HARNESS_PATIENCE(patience, 0.3)
    {
        if (heaps)
            heaps_destroy(heaps);
        heaps = open_heaps(3, patience, 0, 0);
        assert_int_equal(run(heaps, job), 2);
        if (heaps->team[0].record->missing[0] == 2 &&
            heaps->team[2].record->missing[0] == 2)
            break;
    }
    return heaps;
}

/* Who comes when the others have given up does not succeed, even if all that it needs from
 * them is there. */
static void check_late(struct heaps *heaps, struct job *job)
{
    const struct symm_device_record *record = heaps->team[job->dead].record;

    job->late = true;
    assert_int_equal(run(heaps, job), 3);
    assert_int_equal(job->result[job->dead], -SYMM_ERR_ABORTED);
    assert_int_equal(record->state, -SYMM_ERR_ABORTED);
    assert_int_equal(record->missing[0], 5);
}

static void test_dead(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        uint32_t random = 21u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 3, way, SYMM_BFLOAT16, SYMM_SUM);
        struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = 1};
        struct heaps *heaps = run_without_one(&job);

        for (int r = 0; r < 3; r += 2) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_int_equal(record->state, -SYMM_ERR_TIMEOUT);
            assert_int_equal(record->missing[0], 1u << 1);
            assert_int_equal(record->channel, CHANNEL);
            assert_int_equal(record->tag, 1 + call.seed % 1000);
            assert_int_equal(record->counter, 1);
            assert_int_equal(heaps->team[r].state->failed[16 * CHANNEL],
                             -SYMM_ERR_TIMEOUT);
            assert_int_equal(job.result[r], -SYMM_ERR_TIMEOUT);
        }
        check_late(heaps, &job);
        heaps_destroy(heaps);
    }
}

static struct symm_device_channel *channel_of(struct heaps *heaps, int rank)
{
    const struct symm_device_team *team = &heaps->team[rank];
    struct symm_pad *pad = (struct symm_pad *)(void *)(team->base[rank] + team->pad);

    return &pad->device.channel[CHANNEL];
}

/* All words of rank 0 for rounds 1 and 2 at rank 1, and its arrival taken back: it has gone
 * into its last barrier and given up there, while rank 1 was on its way. */
static void leave(struct heaps *heaps, uint32_t tag)
{
    struct symm_device_channel *channel = channel_of(heaps, 1);

    for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
        for (uint32_t e = 1; e <= 2; e++)
            channel->round[b][e & 1][0] = symm_device_word(tag, e);
    channel->call[1][0] = symm_device_word(0, 1);
}

static void test_left(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        struct heaps *heaps = open_heaps(2, 0, 0, 0);
        uint32_t random = 41u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 2, way, SYMM_INT32, SYMM_SUM);
        struct job job = {
            .calls = &call, .count = 1, .odd = -1, .dead = 1, .late = true};

        leave(heaps, 1 + call.seed % 1000);
        assert_int_equal(run(heaps, &job), 1);
        assert_int_equal(job.result[1], -SYMM_ERR_ABORTED);
        assert_int_equal(heaps->team[1].record->missing[0], 1);
        heaps_destroy(heaps);
    }
}

struct cut {
    struct heaps *heaps;
    uint32_t tag;
    int rank;
};

/* When the rank has begun: a wait on another stream marks its channel, mostly before all
 * threads of its kernel have begun. */
static void *cut_short(void *arg)
{
    struct cut *cut = arg;
    const uint64_t *word = &channel_of(cut->heaps, 1)->call[1][cut->rank];
    double begin = harness_now();

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != symm_device_word(cut->tag, 1) &&
           harness_now() - begin < HARNESS_SOON)
        ;
    __atomic_store_n(&cut->heaps->team[cut->rank].state->failed[16 * CHANNEL],
                     (uint32_t)-SYMM_ERR_ABORTED, __ATOMIC_RELAXED);
    return NULL;
}

/* They say so, and take their arrival back as if they had found out by themselves. */
static void cut_way(int way, unsigned threads)
{
    struct heaps *heaps = open_heaps(3, 0, 0, 0);
    uint32_t random = 51u + (uint32_t)way;
    struct kernel_call call = some_call(&random, 3, way, SYMM_INT32, SYMM_SUM);
    struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = 1, .calm = 1};
    struct cut cut[3];
    pthread_t thread[3];

    if (threads != 0)
        call.threads = threads;
    for (int r = 0; r < 3; r += 2) {
        cut[r] = (struct cut){heaps, 1 + call.seed % 1000, r};
        assert_int_equal(pthread_create(&thread[r], NULL, cut_short, &cut[r]), 0);
    }
    (void)run(heaps, &job);
    for (int r = 0; r < 3; r += 2) { /* one may have seen the other's end first */
        pthread_join(thread[r], NULL);
        assert_true(job.result[r] == (uint32_t)-SYMM_ERR_ABORTED ||
                    job.result[r] == (uint32_t)-SYMM_ERR_TIMEOUT);
        assert_int_equal(channel_of(heaps, 1)->call[1][r], symm_device_word(0, 1));
    }
    heaps_destroy(heaps);
}

static void test_cut_short(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        cut_way(way, 0);
        for (int i = 0; i < 3; i++)
            cut_way(way, 512);
    }
}

static void test_mismatch(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        struct heaps *heaps = open_heaps(4, 0, 0, 0);
        uint32_t random = 31u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 4, way, SYMM_INT32, SYMM_MAX);
        struct job job = {.calls = &call, .count = 1, .odd = 2, .dead = -1};

        assert_int_equal(run(heaps, &job), 4);
        for (int r = 0; r < 4; r++) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_int_equal(record->state, -SYMM_ERR_MISMATCH);
            assert_true(record->missing[0] != 0);
            assert_int_equal(record->missing[0] & ~(r == 2 ? 0xbu : 4u), 0);
            assert_int_equal(job.result[r], -SYMM_ERR_MISMATCH);
        }
        heaps_destroy(heaps);
    }
}

/* Pointers that are not ready on one rank: its call fails, and so do the others'. */
static void test_unready(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        uint32_t random = 61u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 3, way, SYMM_FLOAT32, SYMM_SUM);
        struct job job = {
            .calls = &call, .count = 1, .odd = -1, .dead = -1, .unready = 2};
        struct heaps *heaps;

        if (!has_pointers(call.algorithm))
            continue;
        call.by_pointer = true;
        heaps = open_heaps(3, 0, 0, 0);
        assert_int_equal(run(heaps, &job), 3);
        for (int r = 0; r < 3; r++) {
            const struct symm_cuda_record *record =
                (const struct symm_cuda_record *)(const void *)heaps->team[r].record;

            assert_int_equal(record->device.state, -SYMM_ERR_ABORTED);
            assert_int_equal(record->pointers, r == 1 ? 1 + call.seed % 1000 : 0);
            assert_int_equal(job.result[r], -SYMM_ERR_ABORTED);
        }
        heaps_destroy(heaps);
    }
}

struct release {
    struct symm_cuda_pointers *entry;
    double delay;
};

static void *release_entry(void *arg)
{
    const struct release *release = arg;

    harness_sleep(release->delay);
    __atomic_store_n(&release->entry->state, SYMM_CUDA_POINTERS_RELEASED,
                     __ATOMIC_RELAXED);
    return NULL;
}

/* Whether rank r's call ended because `cause` cancelled its arrival. It may end as
 * SYMM_ERR_TIMEOUT: where another rank had not begun, or where block 0 of `cause` announced the
 * call after another block had cancelled it. */
static bool has_stopped(const struct heaps *heaps, int r, int cause)
{
    const int status = -(int)heaps->team[r].record->state;

    return status == SYMM_ERR_ABORTED || (r != cause && status == SYMM_ERR_TIMEOUT);
}

/* A rank's memory is released while its kernel begins: all ranks have the right result, or
 * none succeeds. */
static void test_release(void **unused)
{
    int failures = 0, successes = 0;

    (void)unused;
    for (int i = 0; i < 20 * WAYS; i++) {
        uint32_t random = 71u + (uint32_t)i;
        struct kernel_call call = some_call(&random, 3, i % WAYS, SYMM_INT32, SYMM_SUM);
        struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = -1, .calm = 1};
        struct release release = {&job.pointers[1], 1e-6 * (double)(random % 2000)};
        struct heaps *heaps;
        pthread_t thread;
        int wrong;

        if (!has_pointers(call.algorithm))
            continue;
        call.by_pointer = true;
        call.threads = 512;
        heaps = open_heaps(3, 20, 0, 0);
        assert_int_equal(pthread_create(&thread, NULL, release_entry, &release), 0);
        wrong = run(heaps, &job);
        pthread_join(thread, NULL);
        for (int r = 0; r < 3; r++) /* wrong: by a failure alone */
            assert_true(job.wrong[r] == 0 || has_stopped(heaps, r, 1));
        assert_true(wrong == 0 || wrong == 3);
        successes += wrong == 0;
        failures += wrong == 3;
        heaps_destroy(heaps);
    }
    print_message("%d calls succeeded, %d failed\n", successes, failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead),      cmocka_unit_test(test_left),
        cmocka_unit_test(test_cut_short), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_unready),   cmocka_unit_test(test_release),
    };

    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
