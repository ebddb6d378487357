/* SPDX-License-Identifier: MIT */
/*
 * test_driver_team_create.c - teams of a list of ranks on the CUDA backend: lists that overlap,
 * others that sit in a kernel of the parent, two threads, a missing rank and a dead one. On GPUs
 * (SYMM_TEST_GPU=1) with up to 4 of them.
 * ctest: cost 12
 * ctest: load 2
 */
#include "device.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4 /* most */

struct shared {
    struct harness_sync sync;
    double timeout;
};

/* The last rank begins a collective of the world and makes no team until all have come. */
static int body_lists(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL, *last = NULL;
    struct perf_gpu *gpu = device_open(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world);
    uint64_t seed = 9;
    symm_work *work = NULL;
    (void)arg;
    CHECK(gpu != NULL);
    if (me == n - 1)
        CHECK_OK(symm_barrier(world, NULL, &work));
    for (int i = 0; i < (harness_env("SYMM_TEST_LONG", 0) ? 30 : 15); i++) {
        int ranks[RANKS],
            size = harness_random_list(&seed, n - 1 > 0 ? n - 1 : 1, ranks);
        if (!harness_lists(ranks, size, me))
            continue;
        symm_team_destroy(last);
        last = team;
        CHECK_OK(symm_team_create(world, ranks, size, i % 2, &team));
        for (int m = 0; m < size; m++)
            CHECK(symm_team_world_rank(team, m) == ranks[m]);
        CHECK_ZERO(device_sums(team, gpu, i % 5 == 0));
    }
    if (me < n - 1)
        CHECK_OK(symm_barrier(world, NULL, &work));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    symm_work_release(work);
    CHECK_ZERO(device_sums(world, gpu, false));
    symm_team_destroy(last);
    symm_team_destroy(team);
    perf_gpu_close(gpu);
    return 0;
}

struct worker {
    symm_team *world;
    int thread, failed;
};

static void *create_thread(void *arg)
{
    struct worker *w = arg;
    int n = symm_team_size(w->world), me = symm_team_rank(w->world);
    for (int i = 0; i < 10 && !w->failed; i++) {
        uint64_t seed = (uint64_t)(w->thread ? 9 - i : i);
        int ranks[RANKS], size = harness_random_list(&seed, n, ranks);
        symm_team *team = NULL;
        if (harness_lists(ranks, size, me))
            w->failed =
                symm_team_create(w->world, ranks, size, w->thread, &team) != SYMM_OK ||
                symm_barrier(team, NULL, NULL) != SYMM_OK;
        if (w->failed)
            fprintf(stderr, "thread %d: %s\n", w->thread, symm_last_error());
        symm_team_destroy(team);
    }
    return NULL;
}

static int body_threads(symm_ctx *ctx, void *arg)
{
    struct worker w[2] = {{symm_team_world(ctx), 0, 0}, {symm_team_world(ctx), 1, 0}};
    pthread_t thread;
    (void)arg;
    CHECK(pthread_create(&thread, NULL, create_thread, &w[1]) == 0);
    create_thread(&w[0]);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!w[0].failed && !w[1].failed);
    return 0;
}

/* Rank 0 does not come at first, then comes, then dies; the others go on without it. */
static int body_trouble(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *rest = NULL;
    struct perf_gpu *gpu = device_open(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world), ranks[RANKS];
    symm_status status = SYMM_ERR_TIMEOUT;
    CHECK(gpu != NULL);
    for (int m = 0; m < n; m++)
        ranks[m] = n - 1 - m;
    if (me > 0) {
        CHECK_STATUS(symm_team_create(world, ranks, n, 0, &team), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("rank 0 ");
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    for (int i = 0; i < 20 && status == SYMM_ERR_TIMEOUT; i++)
        status = symm_team_create(world, ranks, n, 0, &team);
    CHECK_STATUS(status, SYMM_OK);
    CHECK_ZERO(device_sums(team, gpu, false));
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (me == 0)
        kill(getpid(), SIGKILL);
    CHECK_STATUS(symm_team_create(world, ranks, n, 0, &rest), SYMM_ERR_PEER_DEAD);
    CHECK_ERROR("rank 0 ");
    symm_team_destroy(
        team); /* it fails by the death, and with it what follows on its stream */
    CHECK_OK(symm_team_create(world, ranks, n - 1, 0, &rest));
    CHECK_ZERO(device_sums(rest, gpu, true));
    CHECK_ZERO(harness_sync_wait(&s->sync, n - 1));
    symm_team_destroy(rest);
    perf_gpu_close(gpu);
    return 0;
}

static void configure(symm_config *config, int rank, void *arg)
{
    (void)rank;
    config->timeout = ((struct shared *)arg)->timeout;
}

static struct harness job(struct shared *s, harness_body body)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(s, 0, sizeof(*s));
    h.ranks = device_ranks(RANKS);
    h.body = body;
    h.arg = s;
    return h;
}

static void random_lists(void **state)
{
    struct harness h = job(*state, body_lists);
    assert_int_equal(harness_run(&h), 0);
}

static void two_threads(void **state)
{
    struct harness h = job(*state, body_threads);
    assert_int_equal(harness_run(&h), 0);
}

/* Last: from here on the driver runs in this process. */
static void ranks_as_threads(void **state)
{
    struct harness h = job(*state, body_lists);
    h.mode = HARNESS_THREADS;
    assert_int_equal(harness_run(&h), 0);
    h = job(*state, body_threads);
    h.mode = HARNESS_THREADS;
    assert_int_equal(harness_run(&h), 0);
}

static void missing_and_dead(void **state)
{
    struct shared *s = *state;
    struct harness h = job(s, body_trouble);
    s->timeout = 3;
    h.killed = 1u;
    h.configure = configure;
    assert_int_equal(harness_run(&h), 0);
}

/* 256 teams at a time, the world among them; the next one is refused. They make barriers and
 * signals only: sums would touch 12 GiB a rank on the fake driver (fake_cuda_ones.c). */
static void large_heap(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->heap_bytes = (size_t)256 << 28;
    setenv("FAKE_CUDA_MEMORY", "68719476736", 1);
}

/* A signal to the other rank and back, then a barrier. */
static int meets(symm_team *team, int turn)
{
    const int other = 1 - symm_team_rank(team);
    symm_work *work = NULL;
    CHECK_OK(symm_signal(team, other, turn % 256, NULL, NULL));
    CHECK_OK(symm_signal_wait(team, other, turn % 256, NULL, NULL));
    CHECK_OK(symm_barrier(team, NULL, &work));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    symm_work_release(work);
    return 0;
}

static int body_many(symm_ctx *ctx, void *arg)
{
    enum { MANY = 255 };
    const int step = harness_env("SYMM_TEST_LONG", 0) ? 1 : 2; /* the last one, too */
    static const int both[] = {0, 1};
    symm_team *world = symm_team_world(ctx), *teams[MANY] = {NULL}, *more = NULL;
    (void)arg;
    for (int i = 0; i < MANY; i++)
        CHECK_OK(symm_team_create(world, both, 2, 0, &teams[i]));
    CHECK_STATUS(symm_team_create(world, both, 2, 0, &more), SYMM_ERR_NOMEM);
    CHECK_ERROR("at most 256 teams");
    for (int i = 0; i < MANY; i += step)
        CHECK_ZERO(meets(teams[i], i));
    symm_team_destroy(teams[70]);
    CHECK_OK(symm_team_create(world, both, 2, 0, &more));
    CHECK_ZERO(meets(more, 0));
    symm_team_destroy(more);
    for (int i = 0; i < MANY; i++)
        if (i != 70)
            symm_team_destroy(teams[i]);
    return meets(world, 1);
}

static void many_teams(void **state)
{
    struct harness h = {.ranks = 2, .body = body_many, .configure = large_heap};
    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists), cmocka_unit_test(two_threads),
        cmocka_unit_test(missing_and_dead), cmocka_unit_test(many_teams),
        /* the last: a process that has used a device can fork no ranks */
        cmocka_unit_test(ranks_as_threads)};
    device_suite();
    if (device_ranks(RANKS) < 2) {
        printf("one GPU: no rank is elsewhere\n");
        return 77;
    }
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    struct shared *shared = harness_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
