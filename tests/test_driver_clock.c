/* SPDX-License-Identifier: MIT */
/*
 * test_driver_clock.c - the deadline of a call (symm_round_deadline), with one kernel of two
 * rounds on the processor: one timeout for all rounds, which does not run while members have
 * queued the call but their streams have not reached it. The test stores the other members'
 * words.
 * ctest: cost 10
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"

#define CHANNEL 2u
#define BYTES   4096u
#define NEVER   1e9

/* What a member does; times in deadlines. */
struct member {
    uint32_t queued;   /* launches, as the watcher has seen */
    double begins;     /* its word of the call */
    double arrives[2]; /* its words of the rounds */
};

struct scene {
    const char *name;
    int size;
    uint32_t sequence;
    double limit; /* in deadlines */
    struct member member[3];
    double took; /* at least; half a deadline more is too much */
    bool ends;   /* well */
    uint32_t missing, held_up;
};

struct play {
    const struct scene *scene;
    double timeout;
    _Atomic int done;
    uint32_t result, told[SYMM_DEVICE_BLOCKS];
    double took;
};

static struct symm_device_channel *pad_of(struct heaps *heaps)
{
    return &symm_device_pad(&heaps->team[0], 0)->device.channel[CHANNEL];
}

static void run_member(struct heaps *heaps, int m, struct play *play)
{
    const struct member *member = &play->scene->member[m];
    const double begin = harness_now();
    struct symm_device_channel *pad = pad_of(heaps);

    while (!atomic_load(&play->done)) {
        const double now = (harness_now() - begin) / play->timeout;

        if (now >= member->begins)
            __atomic_store_n(&pad->call[1][m], symm_device_word(1, 1),
                             __ATOMIC_RELEASE);
        for (uint32_t r = 1; r <= 2; r++)
            if (now >= member->arrives[r - 1])
                __atomic_store_n(&pad->round[0][r & 1][m], symm_device_word(1, r),
                                 __ATOMIC_RELEASE);
        harness_sleep(0.001);
    }
}

static void run_rank(struct heaps *heaps, int rank, void *arg)
{
    struct play *play = arg;
    struct symm_cuda_record *record =
        (struct symm_cuda_record *)(void *)heaps->team[0].record;
    struct symm_cuda_args args = heaps_args(heaps, 0, CHANNEL);
    double begin;

    if (rank != 0) {
        run_member(heaps, rank, play);
        return;
    }
    for (int m = 1; m < heaps->size; m++)
        record->queued[CHANNEL][m] = play->scene->member[m].queued;
    args.in_offset = heaps->buffers;
    args.out_offset = heaps->buffers + BYTES;
    args.in = heaps_at(heaps, 0, args.in_offset);
    args.out = heaps_at(heaps, 0, args.out_offset);
    args.count = args.bytes = BYTES;
    args.result = &play->result;
    args.sequence = play->scene->sequence;
    args.done = play->told;
    args.limit = (uint64_t)(play->scene->limit * play->timeout * 1e9);
    begin = harness_now();
    heaps_launch(heaps_find("symm_all_gather_one_shot_pull_any"), &args, 1, 64);
    play->took = (harness_now() - begin) / play->timeout;
    atomic_store(&play->done, 1);
}

/* Did the call end as it should, when it should? On a busy machine it may take more than one
 * try, with a longer deadline. */
static bool perform(const struct scene *scene, double timeout)
{
    const struct heaps_options options = {.size = scene->size,
                                          .timeout = timeout,
                                          .ll = 4096,
                                          .lamport = 4096,
                                          .stage = 4096,
                                          .buffers = (uint64_t)16 * BYTES};
    struct heaps *heaps = heaps_create(&options);
    const struct symm_cuda_record *record =
        (const struct symm_cuda_record *)(const void *)heaps->team[0].record;
    struct play play = {.scene = scene, .timeout = timeout};
    bool as_said;

    heaps_run(heaps, run_rank, &play);
    /* members begin to count before the kernel does, and it looks now and then */
    as_said = play.took >= scene->took - 0.1 && play.took < scene->took + 0.5 &&
              play.result == (scene->ends ? 0 : (uint32_t)-SYMM_ERR_TIMEOUT) &&
              record->device.missing[0] == scene->missing &&
              record->held_up[0] == scene->held_up;
    printf("%s: status %d after %.2f deadlines of %g s, missing %x, held up %x%s\n",
           scene->name, -(int)play.result, play.took, timeout,
           record->device.missing[0], record->held_up[0],
           as_said ? "" : ": not as it should be");
    heaps_destroy(heaps);
    return as_said;
}

static const struct scene scenes[] = {
    {"rounds that are late one by one",
     2,
     7,
     1,
     {{0}, {7, 0, {0.8, NEVER}}},
     1,
     false,
     2,
     0},
    {"never queued", 2, 7, 9, {{0}, {6, NEVER, {NEVER, NEVER}}}, 1, false, 2, 0},
    {"queued, comes late", 2, 7, 9, {{0}, {7, 2.3, {2.3, 2.3}}}, 2.3, true, 0, 0},
    {"queued ahead, comes late", 2, 7, 9, {{0}, {9, 2.3, {2.3, 2.6}}}, 2.6, true, 0, 0},
    {"queued, never comes",
     2,
     7,
     2.2,
     {{0}, {7, NEVER, {NEVER, NEVER}}},
     2.2,
     false,
     2,
     2},
    {"queued, comes late and stays",
     2,
     7,
     9,
     {{0}, {7, 1.4, {1.4, NEVER}}},
     2.4,
     false,
     2,
     0},
    {"captured by a graph", 2, 0, 9, {{0}, {7, NEVER, {NEVER, NEVER}}}, 1, false, 2, 0},
    {"counts that wrap",
     2,
     UINT32_MAX,
     9,
     {{0}, {1, 1.7, {1.7, 1.7}}},
     1.7,
     true,
     0,
     0},
    {"not yet across the wrap",
     2,
     1,
     9,
     {{0}, {UINT32_MAX, NEVER, {NEVER, NEVER}}},
     1,
     false,
     2,
     0},
    {"one of two has queued",
     3,
     7,
     9,
     {{0}, {7, NEVER, {NEVER, NEVER}}, {6, NEVER, {NEVER, NEVER}}},
     1,
     false,
     6,
     2},
    {"both come one by one",
     3,
     7,
     9,
     {{0}, {7, 1.3, {1.3, 2.1}}, {7, 1.6, {1.6, 2.1}}},
     2.1,
     true,
     0,
     0},
};

static void test_scenes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        double timeout;

        HARNESS_PATIENCE(timeout, 0.25)
        {
            if (perform(&scenes[i], timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenes)};

    if (!heaps_find("symm_p2p_put")) {
        printf("no fake driver\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
