/* SPDX-License-Identifier: MIT */
/*
 * test_host_team_create.c - teams of a list of ranks, made by those ranks alone.
 * ctest: cost 9
 * ctest: load 3
 *
 * Lists overlap at random, ranks make them while others are elsewhere, from several threads and
 * in different orders, and nothing is left of them. SYMM_TEST_CREATES=N: random creations.
 */
#include "team_create_stage.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALIVE  3
#define SERIAL 1 /* key of calls that are made in one order */

/* ---- Random lists -------------------------------------------------------------------- */

struct kept {
    symm_team *team;
    int ranks[HARNESS_MAX_RANKS], n;
};

/* Ranks go through one sequence of lists without waiting for each other anywhere else. */
static int body_random(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world), made = 0;
    const int usual = harness_env("SYMM_TEST_LONG", 0) ? 200 : HARNESS_SLOW ? 40 : 120;
    int creations = (int)harness_env("SYMM_TEST_CREATES", usual);
    uint64_t seed = s->seed;
    struct kept kept[ALIVE] = {{0}};
    for (int i = 0; i < creations; i++) {
        int ranks[HARNESS_MAX_RANKS], size = harness_random_list(&seed, n, ranks);
        int key = (int)(harness_random(&seed) % 3) - 1;
        struct kept *k = &kept[made % ALIVE];
        if (!harness_lists(ranks, size, me))
            continue;
        symm_team_destroy(k->team);
        CHECK_OK(symm_team_create(world, ranks, size, key, &k->team));
        memcpy(k->ranks, ranks, sizeof(ranks));
        k->n = size;
        made++;
        CHECK_ZERO(check_sums(k->team, ranks, size, NULL, i));
        if (i % 16 == 0)
            CHECK_ZERO(check_memory(k->team));
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    for (int i = 0; i < ALIVE; i++)
        symm_team_destroy(kept[i].team);
    return 0;
}

static void random_lists(void **state)
{
    static const int ranks[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) {
        struct shared *s = *state;
        struct harness h = job(s, ranks[i], body_random);
        h.heap_bytes = (size_t)4 << 30; /* room for ALIVE teams of each rank, all different */
        s->seed = 77 + (uint64_t)i;
        assert_int_equal(harness_run_both(h), 0);
    }
}

/* Lists of ranks of a parent that is not the world, in another order than the parent's. */
static int body_nested(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *half, *pair, *again;
    int me = symm_team_rank(world), part = me / 3;
    int list[2] = {2, 0},
        wanted[2] = {part * 3, part * 3 + 2}; /* the parent is reversed */
    (void)arg;
    CHECK_OK(symm_team_split(world, part, -me, &half));
    if (symm_team_rank(half) != 1) {
        CHECK_OK(symm_team_create(half, list, 2, 0, &pair));
        CHECK_ZERO(check_sums(pair, wanted, 2, NULL, 1));
        CHECK_OK(symm_team_create(pair, (int[]){1, 0}, 2, 0, &again));
        symm_team_destroy(half);
        symm_team_destroy(pair);
        CHECK_ZERO(check_sums(again, (int[]){wanted[1], wanted[0]}, 2, NULL, 2));
        CHECK_ZERO(check_memory(again));
        symm_team_destroy(again);
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void lists_of_parts(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 6, body_nested)), 0);
}

/* ---- Others are elsewhere ------------------------------------------------------------ */

/* Ranks 2 to 4 sit in a collective of the world, 5 and 6 split their own team. */
static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *part, *team;
    int me = symm_team_rank(world), one = 1, sum = 0;
    CHECK_OK(symm_team_split(world, me >= 5, 0, &part));
    if (me < 2) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(symm_team_create(world, (int[]){1, 0}, 2, 0, &team));
            CHECK_ZERO(check_sums(team, (int[]){1, 0}, 2, NULL, i));
            symm_team_destroy(team);
        }
    } else if (me >= 5) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(symm_team_split(part, 0, 0, &team));
            CHECK_OK(symm_rendezvous(team));
            symm_team_destroy(team);
        }
    }
    atomic_fetch_add(&s->come, 1);
    CHECK_OK(symm_all_reduce(world, &one, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(sum == 7);
    return 0;
}

static void others_are_elsewhere(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 7, body_elsewhere)), 0);
}

/* ---- Threads ------------------------------------------------------------------------- */

#define THREADS 3

struct worker {
    symm_ctx *ctx;
    struct shared *s;
    int rank, ranks, thread, failed;
};

/*
 * Thread 0 goes forward through the lists, thread 1 backward, each with a key of its own; odd
 * ranks' threads begin later. Thread 2 splits the world and has rendezvous meanwhile.
 */
static int work_of(struct worker *w)
{
    symm_team *world = symm_team_world(w->ctx), *team = NULL;
    const int creations = HARNESS_SLOW ? 12 : 30;
    void *stream = NULL;
    CHECK_OK(symm_stream_create(w->ctx, &stream));
    if (w->thread == 2) {
        for (int i = 0; i < creations; i++) {
            CHECK_OK(symm_team_split(world, 0, 0, &team));
            CHECK_OK(symm_rendezvous(team));
            symm_team_destroy(team);
        }
    }
    for (int i = 0; i < creations && w->thread < 2; i++) {
        uint64_t seed = 5 + (uint64_t)(w->thread == 0 ? i : creations - 1 - i);
        int ranks[HARNESS_MAX_RANKS],
            size = harness_random_list(&seed, w->ranks, ranks);
        if (!harness_lists(ranks, size, w->rank))
            continue;
        if (w->rank % 2 == 1 && i % 5 == 0)
            harness_sleep(1e-3 * w->thread);
        CHECK_OK(symm_team_create(world, ranks, size, SERIAL + w->thread, &team));
        CHECK_ZERO(check_sums(team, ranks, size, stream, i));
        symm_team_destroy(team);
    }
    symm_stream_destroy(w->ctx, stream);
    return 0;
}

static void *work_thread(void *arg)
{
    struct worker *w = arg;
    w->failed = work_of(w);
    return NULL;
}

static int body_threads(symm_ctx *ctx, void *arg)
{
    struct worker w[THREADS];
    pthread_t threads[THREADS];
    int ranks = symm_team_size(symm_team_world(ctx));
    for (int t = 0; t < THREADS; t++) {
        w[t] = (struct worker){ctx,   arg, symm_team_rank(symm_team_world(ctx)),
                               ranks, t,   0};
        CHECK(pthread_create(&threads[t], NULL, work_thread, &w[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        CHECK(!w[t].failed);
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    return 0;
}

static void threads_with_keys(void **state)
{
    static const int ranks[] = {2, 5};
    for (int i = 0; i < 2; i++)
        assert_int_equal(harness_run_both(job(*state, ranks[i], body_threads)), 0);
}

/* A second thread with the same key is refused, and harms nobody. */
static void *wait_thread(void *arg)
{
    struct worker *w = arg;
    symm_team *team = NULL;
    do
        w->failed =
            symm_team_create(symm_team_world(w->ctx), (int[]){0, 1}, 2, 7, &team);
    while (w->failed == SYMM_ERR_BUSY); /* the other thread was first */
    symm_team_destroy(team);
    return NULL;
}

static int body_busy(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    if (me == 0) {
        struct worker w = {.ctx = ctx};
        pthread_t thread;
        symm_status status;
        CHECK(pthread_create(&thread, NULL, wait_thread, &w) == 0);
        do /* until the thread is there */
            status = symm_team_create(world, (int[]){0}, 1, 7, &team);
        while (status == SYMM_OK && (symm_team_destroy(team), true));
        CHECK_STATUS(status, SYMM_ERR_BUSY);
        CHECK_ERROR("key 7");
        CHECK_OK(symm_team_create(world, (int[]){0}, 1, 8, &team));
        symm_team_destroy(team);
        atomic_store(&s->come, 1);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(w.failed == SYMM_OK);
    } else {
        CHECK(harness_until(&s->come, 1));
        CHECK_OK(symm_team_create(world, (int[]){0, 1}, 2, 7, &team));
        symm_team_destroy(team);
    }
    return 0;
}

static void one_call_of_a_key(void **state)
{
    struct shared *s = *state;
    struct harness h = job(s, 2, body_busy);
    assert_int_equal(harness_run(&h), 0);
    h = job(s, 2, body_busy);
    h.mode = HARNESS_THREADS;
    assert_int_equal(harness_run(&h), 0);
}

/* ---- Nothing is left ----------------------------------------------------------------- */

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident;
}

static int body_leaks(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team, *kept[8];
    symm_info info = {.size = sizeof(info)}, after = info;
    int me = symm_team_rank(world), fds = 0, made;
    const int creations = HARNESS_SLOW ? 100 : 500;
    long pages = 0;
    for (int i = 0; i < creations; i++) {
        CHECK_OK(symm_team_create(world, (int[]){1, 0, 2}, 3, i % 7, &team));
        if (i % 50 == 0)
            CHECK_ZERO(check_memory(team));
        symm_team_destroy(team);
        CHECK_ZERO(harness_sync_wait(&s->sync, 3));
        if (i == 20) {
            CHECK_OK(symm_ctx_info(ctx, &info));
            fds = me == 0 ? descriptors() : 0; /* threads have one table */
            pages = me == 0 ? resident_pages() : 0;
        }
        CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    }
    CHECK_OK(symm_ctx_info(ctx, &after));
    CHECK_MESSAGE(after.committed_bytes == info.committed_bytes, "%zu bytes, then %zu",
                  info.committed_bytes, after.committed_bytes);
    CHECK_MESSAGE(me > 0 || descriptors() == fds, "not %d descriptors as before", fds);
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    if (!HARNESS_SLOW && me == 0)
        CHECK_MESSAGE(resident_pages() < pages + 512, "%ld pages, then %ld", pages,
                      resident_pages());
    /* All of the heap's 8 ranges can be had, and no more: all ranks are told. */
    for (made = 0; made < 8; made++)
        CHECK_OK(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &kept[made]));
    CHECK_STATUS(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &team),
                 SYMM_ERR_NOMEM);
    CHECK_ERROR("no address range");
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    for (made = 0; made < 8; made++)
        symm_team_destroy(kept[made]);
    CHECK(me < 3);
    return 0;
}

static void nothing_is_left(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 3, body_leaks)), 0);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists),         cmocka_unit_test(lists_of_parts),
        cmocka_unit_test(others_are_elsewhere), cmocka_unit_test(threads_with_keys),
        cmocka_unit_test(one_call_of_a_key),    cmocka_unit_test(nothing_is_left)};
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    struct shared *shared = harness_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
