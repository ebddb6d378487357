/* SPDX-License-Identifier: MIT */
/*
 * test_host_exchange.c - the functions of symm/device_exchange.h as host code, by one thread
 * for each rank: many rounds with late ranks, blocks that come and go from round to round,
 * rounds that pass their limit, and a rank that stops in the middle of a round. Under
 * ThreadSanitizer too.
 *
 * Ranks are threads with heaps in plain memory (heaps.h).
 * ctest: cost 5
 */
#include <sched.h>
/* before symm/device.h: there may be fewer processors than ranks */
#define SYMM_DEVICE_PAUSE() sched_yield()

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"
#include "symm/device_exchange.h"

#define UNITS  70u
#define ROUNDS 200
#define TAG    9u

struct job {
    int rounds;
    int stops; /* the rank that stops in the last round, having pushed half of it; -1: none */
    int wrong[SYMM_DEVICE_RANKS], status[SYMM_DEVICE_RANKS];
};

static uint64_t unit_of(int round, int rank, uint32_t unit)
{
    return (((uint64_t)round * 8 + (uint64_t)rank) * UNITS + unit) *
           UINT64_C(0x9e3779b97f4a7c15);
}

/* One block's round: units block, block + blocks, ... 0, or what failed. */
static int run_block(const struct symm_device_team *team, struct job *job,
                     struct symm_device_exchange x, int round, bool stop,
                     uint64_t *seed)
{
    uint64_t value;
    int status = symm_device_exchange_begin(team, &x);

    for (int p = 0; p < team->size && status == 0; p++) {
        symm_device_exchange_tell(team, &x, p);
        for (uint32_t i = x.block; i < x.units / (stop ? 2 : 1); i += x.blocks)
            symm_device_exchange_push(team, &x, p, i, unit_of(round, team->rank, i));
    }
    if (stop)
        return 0;
    for (uint32_t i = x.block; i < x.units && status == 0; i += x.blocks) {
        heaps_delay(seed, 20);
        for (int p = 0; p < team->size && status == 0; p++) {
            status = symm_device_exchange_wait(team, &x, p, i, &value);
            job->wrong[team->rank] += status == 0 && value != unit_of(round, p, i);
        }
    }
    for (int p = 0; p < team->size && status == 0; p++)
        status = symm_device_exchange_meet(team, &x, p);
    return status == 0 ? symm_device_exchange_end(team, &x) : status;
}

static void run_rounds(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    struct symm_device_exchange x = {
        .memory = heaps_at(heaps, rank, heaps->buffers), .room = UNITS, .tag = TAG};
    uint64_t seed = 5 + (uint64_t)rank;

    for (int k = 0; k < job->rounds && job->status[rank] == 0; k++) {
        const bool last = k + 1 == job->rounds;

        x.blocks = 1 + (uint32_t)(k % 3);
        x.units = (uint32_t)k * 13 % (UNITS + 1);
        x.units = last ? UNITS : x.units;
        for (x.block = 0; x.block < x.blocks && job->status[rank] == 0; x.block++)
            job->status[rank] = run_block(&heaps->team[rank], job, x, k,
                                          last && rank == job->stops, &seed);
    }
}

static struct heaps *open_heaps(int size, double timeout)
{
    struct heaps_options options = {.size = size,
                                    .timeout = timeout,
                                    .ll = 4096,
                                    .lamport = 4096,
                                    .stage = 4096,
                                    .buffers = symm_device_exchange_bytes(size, UNITS)};

    return heaps_create(&options);
}

static void test_bytes(void **unused)
{
    (void)unused;
    /* symm.triton.exchange_bytes has the same numbers */
    assert_int_equal(symm_device_exchange_bytes(2, 0), 160 * 4 + 160 * 2 * 72 * 16);
    assert_int_equal(symm_device_exchange_bytes(3, 33),
                     160 * 4 + 160 * 2 * 72 * 16 + 2 * 2 * 3 * 32 * 16);
}

static void test_rounds(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 8; size *= 2) {
        struct heaps *heaps = open_heaps(size, 0);
        struct job job = {.rounds = HARNESS_SLOW ? 40 : ROUNDS, .stops = -1};

        for (int r = 0; r < size; r++)
            for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
                ((struct symm_device_workspace *)heaps_at(heaps, r, heaps->buffers))
                    ->round[b] = SYMM_ROUND_LIMIT - 20;
        heaps_run(heaps, run_rounds, &job);
        for (int r = 0; r < size; r++) {
            assert_int_equal(job.status[r], 0);
            assert_int_equal(job.wrong[r], 0);
            assert_int_equal(heaps->team[r].record->state, 0);
        }
        heaps_destroy(heaps);
    }
}

/* The rank that stops has told and pushed some units: the others end without wrong ones. */
static void test_stop(void **unused)
{
    (void)unused;
    for (int size = 2; size <= 4; size++) {
        struct heaps *heaps = NULL;
        struct job job;
        double patience;
        int timeouts = 0, ended = 0;

        HARNESS_PATIENCE(patience, 0.3) /* for the rounds before */
        {
            int reached = 0;

            if (heaps)
                heaps_destroy(heaps);
            heaps = open_heaps(size, patience);
            job = (struct job){.rounds = 5, .stops = 1};
            heaps_run(heaps, run_rounds, &job);
            for (int r = 0; r < size; r++)
                reached += r != 1 && heaps->team[r].record->counter == 5;
            if (reached == size - 1)
                break;
        }
        for (int r = 0; r < size; r++) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_int_equal(job.wrong[r], 0);
            if (r == 1)
                continue;
            ended += job.status[r] == (int)record->state &&
                     record->signal == SYMM_SIGNALS && record->counter == 5;
            timeouts += record->state == SYMM_DEVICE_TIMEOUT;
        }
        assert_int_equal(ended, size - 1);
        assert_true(timeouts > 0);
        heaps_destroy(heaps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
