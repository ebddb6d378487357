/* SPDX-License-Identifier: MIT */
/*
 * test_host_team_create_fault.c - teams of a list of ranks that are not made: wrong arguments, and
 * ranks that are missing, late, disagree, die or have finalized. ctest: cost 15
 */
#include "team_create_stage.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SHORT 0.5 /* seconds, of a deadline that is to expire */

static void configure_timeout(symm_config *config, int rank, void *arg)
{
    (void)rank;
    config->timeout = ((struct shared *)arg)->timeout;
}

/* ---- Errors -------------------------------------------------------------------------- */

static int body_arguments(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = world;
    int me = symm_team_rank(world), all[] = {2, 1, 0};
    int beyond[] = {me, 3}, below[] = {-1, me}, twice[] = {me, 0, 0};
    int others[] = {(me + 1) % 3, (me + 2) % 3};
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_STATUS(symm_team_create(NULL, all, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: the team is NULL");
        CHECK_STATUS(symm_team_create(world, NULL, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: ranks is NULL");
        CHECK_STATUS(symm_team_create(world, all, 3, 0, NULL), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: team is NULL");
        for (int n = -1; n < 5; n += n == 0 ? 4 : 1)
            CHECK_STATUS(symm_team_create(world, all, n, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("4 ranks of a team of 3");
        CHECK_STATUS(symm_team_create(world, beyond, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("ranks[1] is 3");
        CHECK_STATUS(symm_team_create(world, below, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("ranks[0] is -1");
        CHECK_STATUS(symm_team_create(world, twice, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("is 0, for a second time");
        CHECK_STATUS(symm_team_create(world, others, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("is not among the 2 ranks");
        CHECK(team == world);
    }
    CHECK_OK(symm_team_create(world, all, 3, -5, &team));
    CHECK_ZERO(check_sums(team, all, 3, NULL, 0));
    symm_team_destroy(team);
    return 0;
}

static void wrong_arguments(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 3, body_arguments)), 0);
}

/* One rank does not come; all the others are told which, and call again with it. */
static int body_missing(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), list[] = {3, 0, 2};
    char name[16];
    snprintf(name, sizeof(name), "rank %d ", s->victim);
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    for (int round = 0; me != 1 && round < 3; round++) {
        if (me != s->victim) {
            s->status[me] = symm_team_create(world, list, 3, 0, &team);
            snprintf(s->sentence[me], sizeof(s->sentence[me]), "%s", symm_last_error());
            CHECK_STATUS(s->status[me], SYMM_ERR_TIMEOUT);
            CHECK_ERROR("not come to symm_team_create of [3 0 2] of world with key 0");
            CHECK_MESSAGE(strstr(s->sentence[me], name), "%s", s->sentence[me]);
            atomic_fetch_add(&s->passed, 1);
        } else {
            CHECK(harness_until(&s->passed, 4 * round + 2));
        }
        if (me == s->victim)
            atomic_fetch_add(&s->passed, 2); /* the next round */
        else
            CHECK(harness_until(&s->passed, 4 * round + 4));
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    if (me != 1) {
        symm_status status = SYMM_ERR_TIMEOUT;
        for (int i = 0; i < 50 && status == SYMM_ERR_TIMEOUT; i++)
            status = symm_team_create(world, list, 3, 0, &team);
        CHECK_STATUS(status, SYMM_OK);
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
        symm_team_destroy(team);
    } else {
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    }
    return 0;
}

static void missing_ranks_are_named(void **state)
{
    static const int victims[] = {0, 2, 3};
    struct shared *s = *state;
    for (int mode = 0; mode < 6; mode++) {
        struct harness h = job(s, 4, body_missing);
        s->victim = victims[mode / 2];
        s->timeout = SHORT;
        h.mode = mode % 2 ? HARNESS_THREADS : HARNESS_PROCESSES;
        h.configure = configure_timeout;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* Ranks make other teams first, with another key, before the last one comes. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team, *other;
    int me = symm_team_rank(world);
    if (me == 2)
        CHECK(harness_until(&s->come, 2));
    else
        for (int i = 0; i < 5; i++) {
            CHECK_OK(symm_team_create(world, (int[]){0, 1}, 2, 1, &other));
            symm_team_destroy(other);
        }
    atomic_fetch_add(&s->come, 1);
    CHECK_OK(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &team));
    CHECK_ZERO(check_sums(team, (int[]){0, 1, 2}, 3, NULL, 0));
    symm_team_destroy(team);
    return 0;
}

static void late_ranks_are_awaited(void **state)
{
    struct shared *s = *state;
    for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++) {
        struct harness h = job(s, 3, body_late);
        h.mode = (enum harness_mode)mode;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* The error names this rank's list and the other's. If ranks 0 and 1 make their next call at once,
 * a late rank may find one of them there, and names that call's list. */
static int names_lists(struct shared *s, const char *own, const char *other,
                       bool at_once)
{
    CHECK_ERROR(own);
    if (!at_once) {
        CHECK_ERROR(other);
        return harness_sync_wait(&s->sync, 4);
    }
    CHECK_MESSAGE(strstr(symm_last_error(), other) ||
                      strstr(symm_last_error(), "[1 0] of world with key 4"),
                  "%s: not %s", symm_last_error(), other);
    return 0;
}

/* Ranks 0 and 1 give different lists; rank 2 waits with rank 1, rank 3 with rank 0. */
static int body_differ(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    int one[] = {0, 1, 3}, other[] = {2, 1, 0};
    static const char *const name[] = {"[0 1 3] of world with key 4",
                                       "[2 1 0] of world with key 4"};
    for (int i = 0; i < 5; i++) {
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
        CHECK_STATUS(symm_team_create(world, me % 3 == 0 ? one : other, 3, 4, &team),
                     SYMM_ERR_MISMATCH);
        CHECK_ZERO(names_lists(s, name[me % 3 != 0], name[me % 3 == 0], i % 2 == 1));
        CHECK(team == NULL);
        if (me < 2) /* they may agree at once */
            CHECK_OK(symm_team_create(world, (int[]){1, 0}, 2, 4, &team));
        symm_team_destroy(team);
        team = NULL;
    }
    /* The same ranks in another order. */
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    CHECK_STATUS(symm_team_create(world, me ? (int[]){0, 1, 2, 3} : (int[]){0, 1, 3, 2},
                                  4, 4, &team),
                 SYMM_ERR_MISMATCH);
    CHECK_ERROR("[0 1 2 3]");
    CHECK_ERROR("[0 1 3 2]");
    CHECK_OK(symm_team_create(world, (int[]){0, 1, 2, 3}, 4, 4, &team));
    CHECK_ZERO(check_sums(team, (int[]){0, 1, 2, 3}, 4, NULL, 3));
    symm_team_destroy(team);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void different_lists(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 4, body_differ)), 0);
}

/* ---- Deaths -------------------------------------------------------------------------- */

static void *die_later(void *arg)
{
    struct shared *s = arg;
    harness_sleep(s->delay);
    raise(SIGKILL);
    return NULL;
}

/* A member dies: before it comes, or at some moment of the call. */
static int body_death(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *rest = NULL;
    int me = symm_team_rank(world), one = 1;
    char name[16];
    pthread_t thread;
    snprintf(name, sizeof(name), "rank %d ", s->victim);
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    if (me == s->victim && s->delay < 0)
        raise(SIGKILL);
    if (me == s->victim)
        CHECK(pthread_create(&thread, NULL, die_later, s) == 0);
    double start = harness_now();
    symm_status status = SYMM_OK;
    for (int i = 0; status == SYMM_OK; i++) { /* over and over until it dies */
        symm_team_destroy(team);
        team = NULL;
        status = symm_team_create(world, (int[]){0, 1, 2, 3}, 4, 0, &team);
        if (status == SYMM_OK)
            status =
                symm_all_reduce(team, &one, &one, 1, SYMM_INT32, SYMM_MAX, NULL, NULL);
    }
    CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
    CHECK_ERROR(name);
    CHECK(harness_now() - start < HARNESS_SOON);
    /* The others make a team of their own, of the parent that has a dead rank. */
    int list[3], n = 0;
    for (int r = 0; r < 4; r++)
        if (r != s->victim)
            list[n++] = r;
    CHECK_OK(symm_team_create(world, list, 3, 0, &rest));
    CHECK_ZERO(check_sums(rest, list, 3, NULL, 2));
    CHECK_ZERO(check_memory(rest));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    symm_team_destroy(team);
    symm_team_destroy(rest);
    return 0;
}

static void members_die(void **state)
{
    struct shared *s = *state;
    uint64_t seed = 3;
    for (int i = 0; i < (HARNESS_SLOW ? 8 : 24); i++) {
        struct harness h = job(s, 4, body_death);
        s->victim = i % 4;
        s->delay = i < 4 ? -1 : 1e-5 * (double)(harness_random(&seed) % 3000);
        h.killed = 1u << s->victim;
        assert_int_equal(harness_run(&h), 0);
    }
}

/*
 * Rank 3 is stopped in a call while rank 2, which is in its list, dies or does not come. The others
 * see that and make another team with rank 3: they wait for it, and do not take its old call for a
 * mistake.
 */
static void direct_slow(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;

    (void)count;
    if (!harness_until(&s->come, 3))
        return;
    harness_sleep(0.1); /* mostly they wait by then */
    kill(ranks[3], SIGSTOP);
    if (s->victim == 2)
        kill(ranks[2], SIGKILL);
    (void)harness_until(&s->passed, 2);
    harness_sleep(0.5);
    kill(ranks[3], SIGCONT);
}

static int body_slow(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    const int me = symm_team_rank(world);

    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    if (me == 2) { /* until it is killed, if it is */
        CHECK(harness_until(&s->come, 6));
        return 0;
    }
    atomic_fetch_add(&s->come, 1);
    CHECK_STATUS(symm_team_create(world, (int[]){0, 1, 2, 3}, 4, 0, &team),
                 s->victim == 2 ? SYMM_ERR_PEER_DEAD : SYMM_ERR_TIMEOUT);
    CHECK_ERROR("rank 2 ");
    atomic_fetch_add(&s->passed, 1);
    CHECK_OK(symm_team_create(world, (int[]){0, 1, 3}, 3, 0, &team));
    CHECK_ZERO(check_sums(team, (int[]){0, 1, 3}, 3, NULL, 2));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    symm_team_destroy(team);
    atomic_fetch_add(&s->come, 1);
    return 0;
}

static void a_slow_rank_is_awaited(void **state)
{
    struct shared *s = *state;

    for (int dies = 0; dies < 2; dies++) {
        struct harness h = job(s, 4, body_slow);

        s->victim = dies ? 2 : -1;
        s->timeout = dies ? HARNESS_SOON : 3; /* to come again, after half a second */
        h.configure = configure_timeout;
        h.direct = direct_slow;
        h.killed = dies ? 1u << 2 : 0;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* The parent fails and a rank that is no member dies: the team goes on. */
static int body_parent(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *later = NULL;
    int me = symm_team_rank(world), list[] = {2, 0};
    if (me != 1)
        CHECK_OK(symm_team_create(world, list, 2, 0, &team));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    if (me == 1)
        raise(SIGKILL);
    CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_PEER_DEAD);
    for (int i = 0; i < 50; i++)
        CHECK_ZERO(check_sums(team, list, 2, NULL, i));
    CHECK_ZERO(check_memory(team));
    CHECK_OK(symm_team_create(world, list, 2, 0, &later)); /* of a failed parent */
    CHECK_ZERO(check_sums(later, list, 2, NULL, 1));
    CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    symm_team_destroy(team);
    symm_team_destroy(later);
    return 0;
}

static void parents_fail(void **state)
{
    struct harness h = job(*state, 3, body_parent);
    h.killed = 1u << 1;
    assert_int_equal(harness_run(&h), 0);
}

/* A rank that has finalized is named at once. */
static int body_finalized(symm_ctx *ctx, void *arg)
{
    (void)arg;
    symm_config config = harness_config();
    symm_team *team = NULL;
    CHECK_OK(symm_init(&config, &ctx));
    if (symm_team_rank(symm_team_world(ctx)) == 1) {
        double start = harness_now();
        CHECK_STATUS(symm_team_create(symm_team_world(ctx), (int[]){0, 1}, 2, 0, &team),
                     SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 0 has finalized");
        CHECK(harness_now() - start < HARNESS_SOON);
    }
    symm_finalize(ctx);
    return 0;
}

static void finalized_ranks(void **state)
{
    struct harness h = job(*state, 2, body_finalized);
    h.without_ctx = true;
    assert_int_equal(harness_run_both(h), 0);
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(wrong_arguments),
                                 cmocka_unit_test(missing_ranks_are_named),
                                 cmocka_unit_test(late_ranks_are_awaited),
                                 cmocka_unit_test(different_lists),
                                 cmocka_unit_test(members_die),
                                 cmocka_unit_test(a_slow_rank_is_awaited),
                                 cmocka_unit_test(parents_fail),
                                 cmocka_unit_test(finalized_ranks)};
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    struct shared *shared = harness_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
