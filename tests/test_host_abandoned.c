/* SPDX-License-Identifier: MIT */
/*
 * test_host_abandoned.c - collective steps in which some ranks time out do not count: the
 * next step that all ranks make succeeds, on any team. ctest: cost 6
 *
 * The last ranks miss steps; the others' calls time out. If the timeout was too short for a
 * step that all ranks make, the test begins anew with a longer timeout.
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum kind {
    RENDEZVOUS_OF_PART, /* then splits of the world */
    SPLITS_OF_PART,     /* several, then splits of the world and of the part */
    SPLIT_THEN_OTHER,   /* of the part, then its rendezvous */
    SPLITS_THEN_OTHER,  /* two of them, whose numbers the late ranks skip */
    SPLIT_OF_WORLD,     /* then again by all */
    SPLIT_TOO_LATE,     /* by the late ranks alone, then again by all */
    KINDS
};

struct shared {
    struct harness_sync sync;
    enum kind kind;
    int missing;     /* so many of the last ranks miss the step */
    _Atomic int bad; /* ranks whose step failed that should not have */
};

static int check_sum(symm_team *team)
{
    int n = symm_team_size(team), mine = 1 << symm_team_rank(team), sum = -1;

    CHECK_OK(symm_all_reduce(team, &mine, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(sum == (1 << n) - 1);
    return 0;
}

/* A step that all ranks have made: was the deadline too short for one of them? */
static int judge(struct shared *s, int ranks, const char *what, symm_status status,
                 bool *good)
{
    if (status != SYMM_OK) {
        printf("rank %d: %s: %s: %s\n", harness_rank(), what, symm_status_name(status),
               symm_last_error());
        atomic_fetch_add(&s->bad, 1);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, ranks));
    *good = atomic_load(&s->bad) == 0;
    return 0;
}

/* A split that all ranks make. */
static int split_well(struct shared *s, symm_team *parent)
{
    symm_team *team = NULL;
    symm_status status = symm_team_split(parent, 0, 0, &team);
    bool good;

    CHECK_ZERO(judge(s, symm_team_size(parent), "split", status, &good));
    if (good)
        CHECK_ZERO(check_sum(team));
    symm_team_destroy(team);
    return 0;
}

/* A split that only some ranks come to. */
static int split_in_vain(symm_team *parent)
{
    symm_team *none = NULL;

    CHECK_STATUS(symm_team_split(parent, 0, 0, &none), SYMM_ERR_TIMEOUT);
    CHECK(none == NULL);
    return 0;
}

static int miss(struct shared *s, symm_team *world, symm_team *part, bool late)
{
    const int n = symm_team_size(world);
    char last[24];

    snprintf(last, sizeof(last), "rank %d", n - 1);
    if (!late && s->kind == RENDEZVOUS_OF_PART)
        CHECK_STATUS(symm_rendezvous(part), SYMM_ERR_TIMEOUT);
    else if (!late && s->kind == SPLIT_OF_WORLD)
        CHECK_ZERO(split_in_vain(world));
    else if (!late)
        CHECK_ZERO(split_in_vain(s->kind == SPLIT_TOO_LATE ? world : part));
    if (!late)
        CHECK_ERROR(last);
    for (int k = s->kind == SPLITS_THEN_OTHER; k < 3 && !late; k++)
        if (s->kind == SPLITS_OF_PART || s->kind == SPLITS_THEN_OTHER)
            CHECK_ZERO(split_in_vain(part));
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (late && s->kind == SPLIT_TOO_LATE) {
        CHECK_ZERO(split_in_vain(world));
        CHECK_ERROR(last);
    }
    return harness_sync_wait(&s->sync, n);
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *part = NULL;
    const int n = symm_team_size(world);
    const bool late = symm_team_rank(world) >= n - s->missing;
    symm_status status = symm_team_split(world, 0, 0, &part);
    bool good;

    CHECK_ZERO(judge(s, n, "first split", status, &good));
    if (!good)
        return 0;
    CHECK_ZERO(miss(s, world, part, late));
    if (late && s->kind == SPLITS_THEN_OTHER)
        harness_sleep(0.05); /* all that the others have sent lies in its sockets */
    if (s->kind == SPLIT_THEN_OTHER || s->kind == SPLITS_THEN_OTHER)
        CHECK_ZERO(judge(s, n, "rendezvous", symm_rendezvous(part), &good));
    CHECK_ZERO(split_well(s, world));
    CHECK_ZERO(split_well(s, world));
    if (s->kind == SPLITS_OF_PART)
        CHECK_ZERO(split_well(s, part));
    return 0;
}

static void all_come_again(void **state)
{
    struct shared *s = *state;
    static const struct {
        int ranks, missing;
    } jobs[] = {{2, 1}, {3, 1}, {4, 2}, {5, 3}};

    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t j = 0; j < sizeof(jobs) / sizeof(jobs[0]); j++) {
            double timeout;

            HARNESS_PATIENCE(timeout, 0.15)
            {
                struct harness job = {.ranks = jobs[j].ranks,
                                      .mode =
                                          j % 2 ? HARNESS_THREADS : HARNESS_PROCESSES,
                                      .body = body,
                                      .arg = s,
                                      .timeout = timeout};

                memset(s, 0, sizeof(*s));
                s->kind = (enum kind)kind;
                s->missing = jobs[j].missing;
                assert_int_equal(harness_run(&job), 0);
                if (atomic_load(&s->bad) == 0)
                    break;
            }
            assert_true(timeout <= HARNESS_SOON);
        }
    }
}

/* The last rank aborts the team instead of coming to its split: the others do not wait for it. */
static int body_abort(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *part = NULL;
    const int n = symm_team_size(world);
    const double start = harness_now();

    if (symm_team_rank(world) == n - 1) {
        harness_sleep(0.05);
        CHECK_OK(symm_team_abort(world, "enough"));
    } else {
        CHECK_STATUS(symm_team_split(world, 0, 0, &part), SYMM_ERR_ABORTED);
        CHECK_ERROR("has aborted world: enough");
        CHECK(harness_now() - start < HARNESS_SOON);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (symm_team_rank(world) ==
        n - 1) /* it meets the split that the others have abandoned */
        CHECK_STATUS(symm_team_split(world, 0, 0, &part), SYMM_ERR_ABORTED);
    CHECK_OK(symm_team_split(world, 0, 0, &part));
    CHECK_ZERO(check_sum(part));
    symm_team_destroy(part);
    return 0;
}

static void abort_ends_it(void **state)
{
    struct harness h = {.ranks = 3, .body = body_abort, .arg = *state};

    memset(*state, 0, sizeof(struct shared));
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {cmocka_unit_test(all_come_again),
                                 cmocka_unit_test(abort_ends_it)};

    tests[0].initial_state = tests[1].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
