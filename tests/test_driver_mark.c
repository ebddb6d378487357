/* SPDX-License-Identifier: MIT */
/*
 * test_driver_mark.c - a team's failure is marked while a kernel begins, so that only some
 * threads of a block see the mark. A call that succeeds must be right on this rank and on its
 * peer; an incomplete call must not succeed.
 *
 * A host thread stores the mark at a random moment of the kernel's run: in the words that a failed
 * kernel stores to, or in the copy of the abort word. Kernels run on the processor.
 * SYMM_TEST_LONG=1: twenty times as many rounds.
 * ctest: cost 24
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"

#define CHANNEL 2u
#define AREA    ((uint64_t)128 << 10)
#define THREADS 512u
#define ROUNDS  60

static const char *const kernels[] = {
    "symm_all_gather_copy_in_any",       "symm_all_to_all_copy_in_any",
    "symm_all_gather_push_any",          "symm_all_to_all_push_any",
    "symm_all_gather_one_shot_pull_any", "symm_broadcast_copy_in_any",
};
enum { KERNELS = sizeof(kernels) / sizeof(kernels[0]), PUT = KERNELS };

struct job {
    struct heaps *heaps;
    int kernel;
    size_t bytes; /* a block's */
    bool all;     /* the mark is for all channels */
    double delay; /* until the mark; < 0: none */
    struct harness_sync begin;
    uint32_t result[2];
    double took[2];
};

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)(1 + (i * 7 + (i >> 8) + (size_t)rank * 101) % 255);
}

static const char *name_of(const struct job *job)
{
    return job->kernel == PUT ? "symm_p2p_put" : kernels[job->kernel];
}

static unsigned char *area(const struct job *job, int rank, int which)
{
    return heaps_at(job->heaps, rank, job->heaps->buffers + AREA * (uint64_t)which);
}

static void call(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    struct symm_cuda_args args = heaps_args(heaps, rank, CHANNEL);
    double begin;

    args.in_offset = heaps->buffers;
    args.out_offset = heaps->buffers + AREA;
    args.in = heaps_at(heaps, rank, args.in_offset);
    args.out = heaps_at(heaps, rank, args.out_offset);
    args.count = args.bytes = job->bytes;
    args.result = &job->result[rank];
    if (job->kernel == PUT) {
        args.out = heaps_at(heaps, 1 - rank, args.out_offset);
        args.peer = 1 - rank;
        args.signal = 5;
    }
    harness_sync_wait(&job->begin, 3);
    begin = harness_now();
    if (job->kernel != PUT || rank == 0)
        heaps_launch(heaps_find(name_of(job)), &args, 1, THREADS);
    job->took[rank] = harness_now() - begin;
}

static void *mark(void *arg)
{
    struct job *job = arg;
    struct symm_device_state *state = job->heaps->team[0].state;
    double begin;

    harness_sync_wait(&job->begin, 3);
    begin = harness_now();
    while (harness_now() - begin < job->delay)
        ;
    if (job->delay < 0)
        return NULL;
    __atomic_store_n(job->all ? &state->reported : &state->failed[16 * CHANNEL],
                     (uint32_t)-SYMM_ERR_ABORTED, __ATOMIC_RELAXED);
    if (!job->all)
        __atomic_store_n(&state->stopped, (uint32_t)-SYMM_ERR_ABORTED,
                         __ATOMIC_RELAXED);
    harness_sleep(0.002);
    for (int r = 0; r < 2; r++) /* who waits goes home */
        __atomic_store_n(&job->heaps->team[r].record->abort,
                         (uint32_t)-SYMM_ERR_ABORTED, __ATOMIC_RELAXED);
    return NULL;
}

/* Has the block of `from` arrived as a whole at `rank`? */
static bool is_whole(const struct job *job, int rank, int from)
{
    const unsigned char *out = area(job, rank, 1);
    size_t at = 0, shift = 0;

    if (job->kernel != PUT && !strstr(name_of(job), "broadcast"))
        at = (size_t)from * job->bytes;
    if (strstr(name_of(job), "all_to_all"))
        shift = (size_t)rank * job->bytes;
    for (size_t i = 0; i < job->bytes; i++)
        if (out[at + i] != byte_of(from, shift + i))
            return false;
    return true;
}

static void check(const struct job *job)
{
    const bool root = strstr(name_of(job), "broadcast") != NULL;

    if (job->kernel == PUT) {
        bool raised = symm_device_pad(&job->heaps->team[1], 1)->signals[0][5] != 0;

        if ((raised || job->result[0] == 0) && !is_whole(job, 1, 0))
            fail_msg("a put of %zu bytes %s, but is not complete", job->bytes,
                     raised ? "raised its signal" : "ended well");
        return;
    }
    for (int r = 0; r < 2; r++)
        for (int from = 0; from < 2 - root; from++)
            if (job->result[r] == 0 && !is_whole(job, r, from))
                fail_msg("%s of %zu bytes ended well on rank %d without the data of "
                         "rank %d",
                         name_of(job), job->bytes, r, from);
}

/* One call of both ranks on new heaps. */
static void play(struct job *job)
{
    const struct heaps_options options = {.size = 2,
                                          .timeout = HARNESS_AMPLE,
                                          .ll = 4096,
                                          .lamport = 4096,
                                          .stage = (uint64_t)256 << 10,
                                          .buffers = 2 * AREA};
    pthread_t marker;

    job->heaps = heaps_create(&options);
    memset(&job->begin, 0, sizeof(job->begin));
    memset(job->result, 0, sizeof(job->result));
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < 2 * job->bytes; i++)
            area(job, r, 0)[i] = byte_of(r, i);
    assert_int_equal(pthread_create(&marker, NULL, mark, job), 0);
    heaps_run(job->heaps, call, job);
    assert_int_equal(pthread_join(marker, NULL), 0);
    check(job);
    heaps_destroy(job->heaps);
}

static void test_marks(void **unused)
{
    const int rounds = harness_env("SYMM_TEST_LONG", 0) ? 20 * ROUNDS : ROUNDS;
    uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);

    (void)unused;
    for (int kernel = 0; kernel <= PUT; kernel++) {
        struct job job = {.kernel = kernel, .bytes = 16 * THREADS, .delay = -1};
        double most = 0;
        int stopped = 0;

        for (int i = 0; i < 3; i++) { /* how long does it take? */
            play(&job);
            assert_int_equal(job.result[0] | job.result[1], 0);
            most = i == 0 || job.took[0] < most ? job.took[0] : most;
        }
        /* on a busy machine many marks come too late */
        for (int i = 0; i < rounds || (stopped == 0 && i < 20 * rounds); i++) {
            job.all = i % 2;
            job.bytes = 16 * THREADS * (size_t)(1 + i / 2 % 4);
            job.delay = 1.5 * most * (double)(harness_random(&seed) % 1000) / 1000;
            play(&job);
            stopped += job.result[0] != 0;
        }
        assert_true(stopped > 0); /* else it came too late each time */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_marks)};

    if (!heaps_find("symm_p2p_put")) {
        printf("no fake driver\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
