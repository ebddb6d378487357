/* SPDX-License-Identifier: MIT */
/*
 * test_host_shrink.c - the survivors of a team make a new team (symm_team_shrink).
 * ctest: cost 10
 * ctest: replaces symm__oob_send
 *
 * Any rank may die, also rank 0, also during the consensus: all ranks that return SYMM_OK
 * have the same team, which works; a rank that came too late gets an error that says so.
 * SYMM_TEST_KILLS=N sets the number of deaths at random moments of the consensus (40).
 */
#include "harness.h"
#include "oob/peer.h"
#include "shrink_stage.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT 0.3 /* seconds, of a deadline that is to expire */

struct shared {
    struct harness_sync sync;
    int victim, second; /* world ranks; -1: none */
    double delay;       /* seconds from the second victim's call to its death */
    bool asleep;        /* the victim does not die but comes too late */
    _Atomic int made;   /* ranks that have the new team */
    double seconds[HARNESS_MAX_RANKS];   /* that the agreement took */
    uint64_t members[HARNESS_MAX_RANKS]; /* of the team that a rank got; 0: none */
    symm_status status[HARNESS_MAX_RANKS];
};

static struct harness job(struct shared *s, int ranks, harness_body body)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(s, 0, sizeof(*s));
    s->victim = s->second = -1;
    h.ranks = ranks;
    h.body = body;
    h.arg = s;
    return h;
}

/* The team sums, places and shares memory. */
static int check_works(symm_team *team)
{
    const int64_t count = 3000, stride = 1;
    symm_buffer *buffer = NULL;
    int n = symm_team_size(team), me = symm_team_world_rank(team, symm_team_rank(team));
    int sum = 0, wanted = 0, mine = me + 1;
    for (int m = 0; m < n; m++) {
        wanted += symm_team_world_rank(team, m) + 1;
        CHECK(m == 0 ||
              symm_team_world_rank(team, m - 1) < symm_team_world_rank(team, m));
    }
    for (int i = 0; i < 20; i++) {
        CHECK_OK(
            symm_all_reduce(team, &mine, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
        CHECK(sum == wanted);
    }
    CHECK_OK(symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT32, 7, &buffer));
    CHECK_OK(symm_rendezvous(team));
    int *data = symm_buffer_ptr(buffer);
    for (int i = 0; i < count; i++)
        data[i] = me + i;
    CHECK_OK(symm_all_reduce(team, data, data, (size_t)count, SYMM_INT32, SYMM_MIN,
                             NULL, NULL));
    for (int i = 0; i < count; i++)
        CHECK(data[i] == symm_team_world_rank(team, 0) + i);
    symm_buffer_release(buffer);
    return 0;
}

/* ---- One dies in a collective -------------------------------------------------------- */

static int body_death(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *again = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    float one = 1;
    for (int i = 0; i < 100; i++)
        CHECK_OK(
            symm_all_reduce(world, &one, &one, 1, SYMM_FLOAT32, SYMM_MAX, NULL, NULL));
    if (me == s->victim)
        raise(SIGKILL);
    CHECK(shrink_until_failed(world) == SYMM_ERR_PEER_DEAD);
    double start = harness_now();
    CHECK_OK(symm_team_shrink(world, &team));
    s->seconds[me] = harness_now() - start;
    CHECK(s->seconds[me] < HARNESS_SOON);
    CHECK(shrink_members_of(team) ==
          ((UINT64_C(1) << n) - 1 - (UINT64_C(1) << s->victim)));
    CHECK(symm_team_rank(team) == me - (me > s->victim));
    CHECK_ZERO(check_works(team));
    /* The failed team stays failed; it can be shrunk once more, and so can the new one. */
    CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_PEER_DEAD);
    CHECK_OK(symm_team_shrink(world, &again));
    CHECK(shrink_members_of(again) == shrink_members_of(team) && again != team);
    CHECK_ZERO(check_works(again));
    symm_team_destroy(team);
    CHECK_OK(symm_team_shrink(again, &team));
    symm_team_destroy(again);
    CHECK_ZERO(check_works(team));
    symm_team_destroy(team);
    CHECK_ZERO(harness_sync_wait(&s->sync, n - 1));
    return 0;
}

static void survivors_go_on(void **state)
{
    struct shared *s = *state;
    for (int ranks = 2; ranks <= 5; ranks++)
        for (int victim = 0; victim < ranks; victim++) {
            struct harness h = job(s, ranks, body_death);
            double longest = 0;
            s->victim = victim;
            h.killed = 1u << victim;
            assert_int_equal(harness_run(&h), 0);
            for (int r = 0; r < ranks; r++)
                longest = s->seconds[r] > longest ? s->seconds[r] : longest;
            if (victim == 0)
                fprintf(stderr, "team of %d survivors after %.2f ms\n", ranks - 1,
                        longest * 1e3);
        }
}

/* A team of some ranks, which is destroyed afterwards; its slot is used again. */
static int body_part(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *part = NULL, *team = NULL, *more = NULL;
    int me = symm_team_rank(world);
    CHECK_OK(symm_team_split(world, me > 0, -me, &part)); /* [0], [3 2 1] */
    if (me == s->victim)
        raise(SIGKILL);
    if (me == 0) {
        CHECK(shrink_until_failed(world) == SYMM_ERR_PEER_DEAD);
    } else {
        CHECK(shrink_until_failed(part) == SYMM_ERR_PEER_DEAD);
        CHECK_OK(symm_team_shrink(part, &team));
        CHECK(symm_team_size(team) == 2);
        /* In the order of the failed team, which is not the world's. */
        CHECK(symm_team_world_rank(team, 0) > symm_team_world_rank(team, 1));
        symm_team_destroy(part);
        for (int i = 0; i < 30; i++) {
            CHECK_OK(symm_team_split(team, 0, 0, &more));
            CHECK_OK(symm_barrier(more, NULL, NULL));
            symm_team_destroy(more);
            CHECK_OK(symm_team_shrink(team, &more));
            CHECK_OK(symm_barrier(more, NULL, NULL));
            symm_team_destroy(more);
        }
    }
    CHECK_OK(symm_team_shrink(world, &more));
    CHECK(symm_team_size(more) == 3);
    CHECK_ZERO(check_works(more));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    return 0;
}

static void parts_shrink(void **state)
{
    struct shared *s = *state;
    for (int victim = 1; victim < 4; victim++) {
        struct harness h = job(s, 4, body_part);
        s->victim = victim;
        h.killed = 1u << victim;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* ---- One dies while the others are at different calls -------------------------------- */

/* Packets of a rendezvous that rank 1 was in must not reach the start of the new team. */
static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    if (me == 2) {
        CHECK(harness_until(&s->made, 1));
        harness_sleep(0.05);
        raise(SIGKILL);
    }
    if (me == 1) {
        atomic_store(&s->made, 1);
        CHECK_STATUS(symm_rendezvous(world), SYMM_ERR_PEER_DEAD);
    } else {
        CHECK_STATUS(symm_signal_wait(world, 2, 3, NULL, NULL), SYMM_ERR_PEER_DEAD);
    }
    CHECK_OK(symm_team_shrink(world, &team));
    CHECK(symm_team_size(team) == 2);
    CHECK_ZERO(check_works(team));
    CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    return 0;
}

static void ranks_at_different_calls(void **state)
{
    struct shared *s = *state;
    struct harness h = job(s, 3, body_elsewhere);
    h.killed = 1u << 2;
    assert_int_equal(harness_run(&h), 0);
}

/* ---- Nobody has died ----------------------------------------------------------------- */

static int body_healthy(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *next = NULL;
    int n = symm_team_size(world);
    CHECK_STATUS(symm_team_shrink(NULL, &team), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_shrink(world, NULL), SYMM_ERR_INVALID);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(symm_team_shrink(world, &team));
        CHECK(symm_team_size(team) == n && team != world);
        CHECK_OK(symm_team_shrink(team, &next));
        CHECK_ZERO(check_works(next));
        CHECK_OK(symm_barrier(world, NULL, NULL)); /* has not failed */
        symm_team_destroy(team);
        symm_team_destroy(next);
        CHECK_ZERO(
            harness_sync_wait(&s->sync, n)); /* threads: the slot is free again */
    }
    return 0;
}

static void healthy_teams_shrink(void **state)
{
    static const int ranks[] = {1, 2, 4};
    assert_int_equal(
        harness_run_each(*state, sizeof(struct shared), body_healthy, ranks, 3), 0);
}

/*
 * Twice in a row, and nothing between: who has its team at once opens the next attempt while
 * others sleep between two looks. Each call is the same attempt on all ranks all the same.
 */
static int body_twice(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *first, *second;
    int n = symm_team_size(world);
    for (int i = 0; i < 25; i++) {
        CHECK_OK(symm_team_shrink(world, &first));
        CHECK_OK(symm_team_shrink(world, &second));
        CHECK(symm_team_size(first) == n && symm_team_size(second) == n);
        CHECK_OK(symm_barrier(first, NULL, NULL));
        CHECK_OK(symm_barrier(second, NULL, NULL));
        symm_team_destroy(first);
        symm_team_destroy(second);
        CHECK_ZERO(harness_sync_wait(&s->sync, n));
    }
    return 0;
}

/*
 * A rank shrinks a team as soon as it has it, while another one waits for the last rank's word that
 * ends the exchange in which it was made: that one gets the team as well.
 */
static _Thread_local bool is_slow;

symm_status __real_symm__oob_send(struct symm_oob_run *run, struct symm_oob_peer *peer,
                                  bool *progress);
symm_status __wrap_symm__oob_send(struct symm_oob_run *run, struct symm_oob_peer *peer,
                                  bool *progress);
symm_status __wrap_symm__oob_send(struct symm_oob_run *run, struct symm_oob_peer *peer,
                                  bool *progress)
{
    if (is_slow && run->all_got && peer->rank == 1)
        harness_sleep(0.1); /* rank 0 has that word already */
    return __real_symm__oob_send(run, peer, progress);
}

static int body_at_once(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team, *next;

    (void)arg;
    for (int i = 0; i < 3; i++) {
        is_slow = symm_team_rank(world) == 2;
        CHECK_OK(symm_team_split(world, 0, symm_team_rank(world), &team));
        is_slow = false;
        CHECK_OK(symm_team_shrink(team, &next));
        CHECK(symm_team_size(next) == symm_team_size(world));
        symm_team_destroy(next);
        symm_team_destroy(team);
    }
    return 0;
}

static void configure_soon(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->timeout = HARNESS_SOON; /* of those to whose call nobody comes */
}

static void shrinks_follow_each_other(void **state)
{
    struct harness h = job(*state, 3, body_twice);
    h.configure = configure_soon;
    assert_int_equal(harness_run_both(h), 0);
}

static void a_new_team_is_shrunk_at_once(void **state)
{
    struct harness h = job(*state, 3, body_at_once);
    h.configure = configure_soon;
    assert_int_equal(harness_run_both(h), 0);
}

/* A rank that has finalized is no survivor. */
static int body_finalized(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    symm_team *team = NULL;
    CHECK_OK(symm_init(&config, &ctx));
    int me = symm_team_rank(symm_team_world(ctx));
    if (me > 0) {
        CHECK_STATUS(shrink_until_failed(symm_team_world(ctx)), SYMM_ERR_PEER_DEAD);
        CHECK_OK(symm_team_shrink(symm_team_world(ctx), &team));
        CHECK(symm_team_size(team) == 2);
        CHECK_ZERO(check_works(team));
        CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    }
    symm_finalize(ctx);
    return 0;
}

static void finalized_ranks_are_left_out(void **state)
{
    struct harness h = job(*state, 3, body_finalized);
    h.without_ctx = true;
    assert_int_equal(harness_run_both(h), 0);
}

/* ---- One comes too late -------------------------------------------------------------- */

/* Has any rank a team of survivors? */
static bool is_made(const struct shared *s, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (r != s->victim && s->status[r] == SYMM_OK)
            return true;
    return false;
}

static int body_late(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    if (me != s->victim) {
        symm_call call = {.size = sizeof(call), .timeout = SHORT};
        double start = harness_now();
        if (s->second >= 0) /* the team has not failed before */
            CHECK_STATUS(symm_barrier(world, &call, NULL), SYMM_ERR_TIMEOUT);
        s->status[me] = symm_team_shrink(world, &team);
        s->seconds[me] = harness_now() - start;
        s->members[me] = s->status[me] == SYMM_OK ? shrink_members_of(team) : 0;
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (!is_made(s, n)) {
        CHECK(team == NULL); /* on a busy machine: late_ranks_are_told tries again */
    } else if (me == s->victim || s->status[me] != SYMM_OK) {
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(symm_team_shrink(world, &team), SYMM_ERR_TIMEOUT);
            CHECK_ERROR("too late");
        }
        CHECK(team == NULL);
        CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_TIMEOUT);
    } else if (s->members[me] == (UINT64_C(1) << n) - 1 - (UINT64_C(1) << s->victim)) {
        if (check_works(team) != 0) { /* on a busy machine its timeout may be too short, too */
            CHECK_ERROR("has not come");
            s->status[me] = SYMM_ERR_TIMEOUT;
        }
        CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_TIMEOUT);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    return 0;
}

/* Were all that came in one team, after the deadline? */
static bool came_together(const struct shared *s, int ranks, double timeout)
{
    uint64_t wanted = (UINT64_C(1) << ranks) - 1 - (UINT64_C(1) << s->victim);
    for (int r = 0; r < ranks; r++)
        if (r != s->victim && (s->status[r] != SYMM_OK || s->members[r] != wanted ||
                               s->seconds[r] < timeout * 0.9))
            return false;
    return true;
}

static void configure_late(symm_config *config, int rank, void *arg)
{
    (void)rank;
    config->timeout = ((struct shared *)arg)->delay;
}

static void late_ranks_are_told(void **state)
{
    struct shared *s = *state;
    for (int k = 0; k < 8; k++) {
        double timeout;
        HARNESS_PATIENCE(timeout, SHORT) /* the others must come within it */
        {
            struct harness h = job(s, 3, body_late);
            s->victim = k % 3;
            s->second = k % 2 == 0 ? 0 : -1;
            s->delay = timeout;
            h.mode = k < 4 ? HARNESS_PROCESSES : HARNESS_THREADS;
            h.configure = configure_late;
            assert_int_equal(harness_run(&h), 0);
            if (came_together(s, 3, timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* ---- One dies in the agreement ------------------------------------------------------- */

static void *die_later(void *arg)
{
    struct shared *s = arg;
    harness_sleep(s->delay);
    raise(SIGKILL);
    return NULL;
}

static int body_dying(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx), *next = NULL;
    int me = symm_team_rank(team), left = symm_team_size(team) - 2;
    pthread_t thread;
    if (me == s->victim)
        raise(SIGKILL);
    CHECK(shrink_until_failed(team) == SYMM_ERR_PEER_DEAD);
    if (me == s->second)
        CHECK(pthread_create(&thread, NULL, die_later, s) == 0);
    CHECK_OK(symm_team_shrink(team, &next));
    s->members[me] = shrink_members_of(next);
    if (me == s->second)
        harness_sleep(2 * HARNESS_AMPLE);
    atomic_fetch_add(&s->made, 1);
    CHECK(harness_until(&s->made, left)); /* what they got is to be compared */
    for (int r = 0; r < left + 2; r++)
        CHECK(r == s->victim || r == s->second || s->members[r] == s->members[me]);
    if (s->members[me] >> s->second & 1) {
        CHECK_STATUS(shrink_until_failed(next), SYMM_ERR_PEER_DEAD);
        CHECK_OK(symm_team_shrink(next, &team));
        symm_team_destroy(next);
        next = team;
    }
    CHECK(symm_team_size(next) == left);
    CHECK_ZERO(check_works(next));
    CHECK_ZERO(harness_sync_wait(&s->sync, left));
    return 0;
}

static void deaths_in_the_agreement(void **state)
{
    struct shared *s = *state;
    int kills = (int)harness_env("SYMM_TEST_KILLS", HARNESS_SLOW ? 10 : 40), both = 0;
    uint64_t random = 11;
    for (int k = 0; k < kills; k++) {
        struct harness h = job(s, 4, body_dying);
        int first;
        s->victim = (int)(harness_random(&random) % 4);
        s->second = (s->victim + 1 + (int)(harness_random(&random) % 3)) % 4;
        s->delay = (double)(harness_random(&random) % 4000) * 1e-6;
        h.killed = 1u << s->victim | 1u << s->second;
        assert_int_equal(harness_run(&h), 0);
        for (first = 0; first == s->victim || first == s->second;)
            first++;
        both += (s->members[first] >> s->second & 1) == 0;
    }
    fprintf(stderr, "%d deaths in the agreement: %d were left out, %d came after it\n",
            kills, both, kills - both);
}

/* ---- No place ------------------------------------------------------------------------ */

static int body_full(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team[64] = {0}, *one = NULL;
    int count = 0;
    symm_status status;
    while ((status = symm_team_split(world, 0, 0, &team[count])) == SYMM_OK)
        count++;
    CHECK(status == SYMM_ERR_NOMEM && count > 1);
    for (int i = 0; i < 20; i++) { /* each call fails once, on all */
        CHECK_STATUS(symm_team_shrink(world, &one), SYMM_ERR_NOMEM);
        CHECK_ERROR("SYMM_TEAM_BYTES");
    }
    symm_team_destroy(team[0]);
    CHECK_ZERO(harness_sync_wait(&s->sync, symm_team_size(world)));
    CHECK_OK(symm_team_shrink(world, &one));
    CHECK_ZERO(check_works(one));
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void no_place_is_an_error_of_all(void **state)
{
    struct harness h = job(*state, 3, body_full);
    h.configure = configure_soon;
    assert_int_equal(harness_run_both(h), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_teams_shrink),
        cmocka_unit_test(a_new_team_is_shrunk_at_once),
        cmocka_unit_test(shrinks_follow_each_other),
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(parts_shrink),
        cmocka_unit_test(ranks_at_different_calls),
        cmocka_unit_test(finalized_ranks_are_left_out),
        cmocka_unit_test(late_ranks_are_told),
        cmocka_unit_test(deaths_in_the_agreement),
        cmocka_unit_test(no_place_is_an_error_of_all),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
