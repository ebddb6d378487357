/* SPDX-License-Identifier: MIT */
/*
 * test_host_team.c - teams made by split: members, memory, independence.
 * ctest: cost 5
 * ctest: load 2
 *
 * Ranks are ordered by key, then by the parent's rank; a team has its own address range and
 * may use the parent's buffers; disjoint teams run independently, and the failure of a rank
 * does not affect teams without that rank.
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shared {
    struct harness_sync sync;
    size_t offsets[HARNESS_MAX_RANKS][4];
};

static int run_for(void **state, harness_body body, const int *ranks, int count)
{
    return harness_run_each(*state, sizeof(struct shared), body, ranks, count);
}

static symm_status place(symm_team *team, int64_t count, symm_dtype dtype,
                         uint64_t alloc_id, symm_buffer **buffer)
{
    const int64_t stride = 1;
    return symm_empty_strided_p2p(team, 1, &count, &stride, dtype, alloc_id, buffer);
}

/* Sum of the members' world ranks by private memory: shows that the team is who it is.
 */
static int check_sum(symm_team *team)
{
    int n = symm_team_size(team), wanted = 0, mine, sum = -1;
    mine = symm_team_world_rank(team, symm_team_rank(team));
    for (int p = 0; p < n; p++)
        wanted += symm_team_world_rank(team, p);
    CHECK_OK(symm_all_reduce(team, &mine, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK_MESSAGE(sum == wanted, "the sum of world ranks is %d, not %d", sum, wanted);
    return 0;
}

/* ---- Membership ------------------------------------------------------------------ */

static int body_members(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    (void)arg;
    CHECK(me == harness_rank());
    for (int p = 0; p < n; p++)
        CHECK(symm_team_world_rank(world, p) == p);
    CHECK(symm_team_world_rank(world, n) == -1 &&
          symm_team_world_rank(world, -1) == -1);

    /* Two colours, keys in reverse: the last rank comes first. */
    CHECK_OK(symm_team_split(world, me % 2, n - me, &team));
    CHECK(team != NULL && team != world);
    int size = (n + 1 - me % 2) / 2;
    CHECK(symm_team_size(team) == size);
    CHECK(symm_team_rank(team) == size - 1 - me / 2);
    for (int p = 0; p < size; p++)
        CHECK(symm_team_world_rank(team, p) == (size - 1 - p) * 2 + me % 2);
    CHECK(symm_team_world_rank(team, size) == -1);
    CHECK_ZERO(check_sum(team));
    symm_team_destroy(team);

    /* Equal keys: by rank in the parent. All ranks, colours that are far apart. */
    CHECK_OK(symm_team_split(world, 1 << 30, 0, &team));
    CHECK(symm_team_size(team) == n && symm_team_rank(team) == me);
    CHECK_ZERO(check_sum(team));
    symm_team_destroy(team);

    /* Keys may be negative; each rank alone. */
    CHECK_OK(symm_team_split(world, me, -me, &team));
    CHECK(symm_team_size(team) == 1 && symm_team_rank(team) == 0);
    CHECK(symm_team_world_rank(team, 0) == me);
    CHECK_ZERO(check_sum(team));
    symm_team_destroy(team);

    /* No colour, no team. */
    team = world;
    CHECK_OK(symm_team_split(world, me == 0 ? -1 : 0, -me, &team));
    CHECK((team == NULL) == (me == 0));
    if (team != NULL) {
        CHECK(symm_team_size(team) == n - 1 && symm_team_rank(team) == n - 1 - me);
        CHECK_ZERO(check_sum(team));
    }
    symm_team_destroy(team); /* NULL is allowed */
    CHECK_ZERO(check_sum(world));
    return 0;
}

static void members_and_order(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8};
    assert_int_equal(run_for(state, body_members, ranks, 5), 0);
}

static int body_nested(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *half = NULL, *quarter = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    (void)arg;
    CHECK_OK(symm_team_split(world, me * 2 / n, -me, &half));
    CHECK_OK(symm_team_split(half, symm_team_rank(half) % 2, 0, &quarter));
    CHECK(symm_team_size(half) == n / 2 && symm_team_size(quarter) == n / 4);
    for (int p = 0; p < symm_team_size(quarter); p++)
        CHECK(symm_team_world_rank(quarter, p) ==
              symm_team_world_rank(half, 2 * p + symm_team_rank(half) % 2));
    for (int i = 0; i < 50;
         i++) { /* the parents' channels go on beside the children's */
        CHECK_ZERO(check_sum(quarter));
        if (i % 2 == 0)
            CHECK_ZERO(check_sum(world));
        CHECK_ZERO(check_sum(half));
    }
    symm_team_destroy(quarter);
    symm_team_destroy(half);
    return 0;
}

static void nested_teams(void **state)
{
    static const int ranks[] = {4, 8};
    assert_int_equal(run_for(state, body_nested, ranks, 2), 0);
}

/* ---- Memory ---------------------------------------------------------------------- */

/* Tensor parallel x data parallel: two crossing teams, own buffers and the world's. */
static int body_grid(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *world = symm_team_world(ctx), *tp = NULL, *dp = NULL;
    symm_buffer *buffers[3] = {NULL};
    int me = symm_team_rank(world), n = symm_team_size(world);
    CHECK_OK(symm_team_split(world, me / 2, me, &tp));
    CHECK_OK(symm_team_split(world, me % 2, me, &dp));
    CHECK(symm_team_size(tp) == 2 && symm_team_size(dp) == n / 2);
    /* One alloc_id in three teams is three buffers. */
    CHECK_OK(place(world, 1000, SYMM_INT32, 1, &buffers[0]));
    CHECK_OK(place(tp, 1000, SYMM_INT32, 1, &buffers[1]));
    CHECK_OK(place(dp, 3000, SYMM_INT64, 1, &buffers[2]));
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(symm_rendezvous(tp));
    CHECK_OK(symm_rendezvous(dp));
    for (int i = 0; i < 3; i++)
        shared->offsets[me][i] = symm_buffer_offset(buffers[i]);
    CHECK_ZERO(harness_sync_wait(&shared->sync, n));
    for (int p = 0; p < n; p++) {
        CHECK(shared->offsets[p][0] == shared->offsets[me][0]);
        if (p / 2 == me / 2)
            CHECK(shared->offsets[p][1] == shared->offsets[me][1]);
        if (p % 2 == me % 2)
            CHECK(shared->offsets[p][2] == shared->offsets[me][2]);
    }
    int *in_world = symm_buffer_ptr(buffers[0]), *in_tp = symm_buffer_ptr(buffers[1]);
    int64_t *in_dp = symm_buffer_ptr(buffers[2]);
    for (int step = 1; step <= 100; step++) {
        for (int i = 0; i < 1000; i++)
            in_tp[i] = step * 10 + me + i;
        CHECK_OK(
            symm_all_reduce(tp, in_tp, in_tp, 1000, SYMM_INT32, SYMM_SUM, NULL, NULL));
        for (int i = 0; i < 1000; i++)
            CHECK(in_tp[i] == 2 * (step * 10 + i) + me / 2 * 4 + 1);
        for (int i = 0; i < 3000; i++)
            in_dp[i] = (int64_t)step * me - i;
        CHECK_OK(
            symm_all_reduce(dp, in_dp, in_dp, 3000, SYMM_INT64, SYMM_MAX, NULL, NULL));
        for (int i = 0; i < 3000; i++)
            CHECK(in_dp[i] == (int64_t)step * (n - 2 + me % 2) - i);
        /* The world's buffer, first by a team, then by all. */
        for (int i = 0; i < 1000; i++)
            in_world[i] = 1 << me;
        CHECK_OK(symm_all_reduce(dp, in_world, in_world, 1000, SYMM_INT32, SYMM_SUM,
                                 NULL, NULL));
        CHECK_OK(symm_all_reduce(world, in_world, in_world, 1000, SYMM_INT32, SYMM_SUM,
                                 NULL, NULL));
        for (int i = 0; i < 1000; i++)
            CHECK(in_world[i] == ((1 << n) - 1) * (n / 2));
    }
    for (int i = 0; i < 3; i++)
        symm_buffer_release(buffers[i]);
    symm_team_destroy(tp);
    symm_team_destroy(dp);
    CHECK_ZERO(check_sum(world));
    return 0;
}

static void grid_of_teams(void **state)
{
    static const int ranks[] = {4, 8};
    assert_int_equal(run_for(state, body_grid, ranks, 2), 0);
}

/* One-sided calls name peers by the team's ranks, memory may be the world's or the
 * team's. */
static int body_one_sided(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL;
    symm_buffer *wide = NULL, *own = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    (void)arg;
    CHECK_OK(symm_team_split(world, me % 2, -me, &team));
    CHECK_OK(place(world, 64, SYMM_INT32, 1, &wide));
    CHECK_OK(place(team, 64, SYMM_INT32, 2, &own));
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(symm_rendezvous(team));
    int rank = symm_team_rank(team), size = symm_team_size(team);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int from = symm_team_world_rank(team, left);
    int *cells[2] = {symm_buffer_ptr(wide), symm_buffer_ptr(own)};
    for (int step = 1; step <= 100; step++) {
        int value = step * 100 + me;
        int *cell = &cells[step % 2][step % 64];
        CHECK_OK(
            symm_put_signal(team, cell, &value, sizeof(value), right, 5, NULL, NULL));
        CHECK_OK(symm_signal_wait(team, left, 5, NULL, NULL));
        CHECK_MESSAGE(*cell == step * 100 + from, "%d came, not %d", *cell,
                      step * 100 + from);
        /* The same number in the world is another counter. */
        CHECK_OK(symm_signal(world, (me + 1) % n, 5, NULL, NULL));
        CHECK_OK(symm_signal_wait(world, (me + n - 1) % n, 5, NULL, NULL));
        CHECK_OK(symm_barrier(team, NULL, NULL));
    }
    for (int p = 0; p < size; p++) {
        char *by_team = symm_buffer_peer_ptr(own, p);
        CHECK(by_team != NULL);
        CHECK((by_team == (char *)cells[1]) == (p == rank));
    }
    symm_buffer_release(wide);
    symm_buffer_release(own);
    symm_team_destroy(team);
    return 0;
}

static void one_sided_in_teams(void **state)
{
    static const int ranks[] = {2, 4, 5};
    assert_int_equal(run_for(state, body_one_sided, ranks, 3), 0);
}

/* 60 teams of 64 MiB in a heap of 1 GiB: destroyed teams' ranges come back. */
static int body_again(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world);
    (void)arg;
    for (int step = 0; step < 60; step++) {
        symm_team *team = NULL;
        symm_buffer *buffer = NULL;
        CHECK_OK(symm_team_split(world, (me + step) % 3 == 0 ? -1 : 0, me, &team));
        if (team == NULL)
            continue;
        CHECK_OK(place(team, 100000, SYMM_INT32, 1, &buffer));
        CHECK_OK(symm_rendezvous(team));
        int *ints = symm_buffer_ptr(buffer);
        for (int i = 0; i < 100000; i++)
            ints[i] = step;
        CHECK_OK(symm_all_reduce(team, ints, ints, 100000, SYMM_INT32, SYMM_SUM, NULL,
                                 NULL));
        for (int i = 0; i < 100000; i++)
            CHECK(ints[i] == step * symm_team_size(team));
        symm_buffer_release(buffer);
        symm_team_destroy(team);
    }
    CHECK(n > 0);
    CHECK_ZERO(check_sum(world));
    return 0;
}

static void teams_come_and_go(void **state)
{
    static const int ranks[] = {2, 4};
    assert_int_equal(run_for(state, body_again, ranks, 2), 0);
}

/* 256 teams at a time, the world among them; the next one is refused, and one that goes makes
 * room. Each has the least memory that is possible. */
static void smallest(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->team_bytes = (size_t)4 << 20;
    config->heap_bytes = (size_t)2 << 30;
}

static int body_many(symm_ctx *ctx, void *arg)
{
    enum { MANY = 255 };
    symm_team *world = symm_team_world(ctx), *teams[MANY] = {NULL}, *more = NULL;
    int me = symm_team_rank(world);
    (void)arg;
    for (int i = 0; i < MANY; i++)
        CHECK_OK(symm_team_split(world, 0, i % 2 ? me : -me, &teams[i]));
    CHECK_STATUS(symm_team_split(world, 0, 0, &more), SYMM_ERR_NOMEM);
    CHECK_ERROR("at most 256 teams");
    CHECK(more == NULL);
    for (int i = 0; i < MANY; i++)
        CHECK_ZERO(check_sum(teams[i]));
    for (int i = 100; i < 200; i += 30) {
        symm_buffer *buffer = NULL;
        CHECK_OK(place(teams[i], 1000, SYMM_INT32, 1, &buffer));
        CHECK_OK(symm_rendezvous(teams[i]));
        int *ints = symm_buffer_ptr(buffer);
        for (int k = 0; k < 1000; k++)
            ints[k] = i + k;
        CHECK_OK(symm_all_reduce(teams[i], ints, ints, 1000, SYMM_INT32, SYMM_SUM, NULL,
                                 NULL));
        for (int k = 0; k < 1000; k++)
            CHECK(ints[k] == (i + k) * symm_team_size(world));
        symm_buffer_release(buffer);
    }
    symm_team_destroy(teams[200]);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    CHECK_OK(symm_team_split(world, 0, 0, &more));
    CHECK_ZERO(check_sum(more));
    symm_team_destroy(more);
    for (int i = 0; i < MANY; i++)
        if (i != 200)
            symm_team_destroy(teams[i]);
    return check_sum(world);
}

static void many_teams(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both((struct harness){
                         .ranks = 2, .body = body_many, .configure = smallest}),
                     0);
}

/* ---- Independence ---------------------------------------------------------------- */

/* Disjoint teams make different calls, and different numbers of them, at the same time.
 */
static int body_pace(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    (void)arg;
    CHECK_OK(symm_team_split(world, me / 2, 0, &team));
    int size = symm_team_size(team), steps = me / 2 == 0 ? 2000 : 300 + me / 2;
    if (HARNESS_FEW)
        steps /= 4;
    int count = me / 2 == 0 ? 3 : 700;
    for (int step = 0; step < steps; step++) {
        int in[700], out[700];
        for (int i = 0; i < count; i++)
            in[i] = step + i;
        CHECK_OK(symm_all_reduce(team, in, out, (size_t)count, SYMM_INT32, SYMM_SUM,
                                 NULL, NULL));
        for (int i = 0; i < count; i++)
            CHECK(out[i] == (step + i) * size);
    }
    symm_team_destroy(team);
    CHECK_ZERO(check_sum(world));
    return 0;
}

static void disjoint_teams_at_once(void **state)
{
    static const int ranks[] = {4, 5, 8};
    assert_int_equal(run_for(state, body_pace, ranks, 3), 0);
}

/* Ranks 2 and 3 disagree; their team fails, that of 0 and 1 goes on. */
static int body_isolated(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    (void)arg;
    CHECK_OK(symm_team_split(world, me / 2, 0, &team));
    if (me / 2 == 1) {
        float data[10] = {0};
        size_t count = me == 3 ? 10 : 9;
        CHECK_STATUS(symm_all_reduce(team, data, data, count, SYMM_FLOAT32, SYMM_SUM,
                                     NULL, NULL),
                     SYMM_ERR_MISMATCH);
        CHECK_ERROR(me == 3 ? "rank 2" : "rank 3"); /* ranks of the world */
        CHECK_STATUS(symm_barrier(team, NULL, NULL), SYMM_ERR_MISMATCH);
    } else {
        for (int i = 0; i < 1000; i++)
            CHECK_ZERO(check_sum(team));
        harness_sleep(0.05);
        CHECK_ZERO(check_sum(team));
    }
    symm_team_destroy(team);
    return 0;
}

static void failures_stay_in_their_team(void **state)
{
    static const int ranks[] = {4};
    assert_int_equal(run_for(state, body_isolated, ranks, 1), 0);
}

/* ---- Names ----------------------------------------------------------------------- */

/* A rendezvous that cannot go well names the team; *text: the sentence. */
static int failing_sentence(symm_team *team, char *text, size_t bytes)
{
    symm_buffer *buffer;
    CHECK_OK(place(team, 8 + symm_team_rank(team), SYMM_INT8, 7, &buffer));
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    snprintf(text, bytes, "%s", symm_last_error());
    symm_buffer_release(buffer);
    CHECK_OK(symm_alloc_id_free(team, 7));
    return 0;
}

/* Teams of the same members have numbers of their own, equal on all members. */
static int body_names(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *part = NULL, *first = NULL,
              *second = NULL;
    char one[512], two[512], old[512];
    static const char longest[] = "0123456789012345678901234567890";
    (void)arg;
    /* Ranks 0 and 1 were in one team more than the others. */
    CHECK_OK(symm_team_split(world, symm_team_rank(world) < 2 ? 0 : -1, 0, &part));
    CHECK_OK(symm_team_split(world, 0, 0, &first));
    CHECK_OK(symm_team_split(world, 0, 0, &second));
    CHECK_ZERO(failing_sentence(first, one, sizeof(one)));
    CHECK_ZERO(failing_sentence(second, two, sizeof(two)));
    CHECK_MESSAGE(strstr(one, "team 2 [0 1 2]") != NULL, "%s", one);
    CHECK_MESSAGE(strstr(two, "team 3 [0 1 2]") != NULL, "%s", two);
    CHECK_OK(symm_team_set_name(first, longest));
    CHECK_ZERO(failing_sentence(first, old, sizeof(old)));
    CHECK_MESSAGE(strstr(old, longest) && strstr(old, "' (2) [0 1 2]"), "%s", old);
    CHECK_STATUS(symm_team_set_name(first, "01234567890123456789012345678901"),
                 SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_set_name(NULL, "x"), SYMM_ERR_INVALID);
    CHECK_OK(symm_team_set_name(first, NULL));
    CHECK_ZERO(failing_sentence(first, old, sizeof(old)));
    CHECK(strcmp(one, old) == 0);
    CHECK_OK(symm_team_set_name(world, "all"));
    CHECK_ZERO(failing_sentence(world, old, sizeof(old)));
    CHECK_MESSAGE(strstr(old, "team 'all' (world)") != NULL, "%s", old);
    symm_team_destroy(first); /* numbers are not used again */
    CHECK_OK(symm_team_split(world, 0, 0, &first));
    CHECK_ZERO(failing_sentence(first, old, sizeof(old)));
    CHECK_MESSAGE(strstr(old, "team 4 [0 1 2]") != NULL, "%s", old);
    symm_team_destroy(first);
    symm_team_destroy(second);
    symm_team_destroy(part);
    return 0;
}

/* Sites whose names differ only after what a pad holds of them look different. */
static int body_long_sites(symm_ctx *ctx, void *arg)
{
    char site[200];
    symm_call call = {.size = sizeof(call), .site = site};
    const char *one, *two;
    (void)arg;
    memset(site, 'x', sizeof(site));
    snprintf(site + 150, sizeof(site) - 150, "%d", harness_rank());
    CHECK_STATUS(symm_barrier(symm_team_world(ctx), &call, NULL), SYMM_ERR_MISMATCH);
    one = strstr(symm_last_error(), "xx~");
    two = one ? strstr(one + 3, "xx~") : NULL;
    CHECK_MESSAGE(two != NULL, "%s", symm_last_error());
    CHECK_MESSAGE(strncmp(one, two, 11) != 0, "%s", symm_last_error());
    return 0;
}

static void long_sites_differ(void **state)
{
    static const int ranks[] = {2};
    assert_int_equal(run_for(state, body_long_sites, ranks, 1), 0);
}

/* One rank in another step of the same team: all learn which; the next steps are right. */
static int body_steps(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = NULL;

    (void)arg;
    for (int round = 0; round < 3; round++) {
        if (harness_rank() == 1)
            CHECK_STATUS(symm_rendezvous(world), SYMM_ERR_MISMATCH);
        else
            CHECK_STATUS(symm_team_split(world, 0, 0, &team), SYMM_ERR_MISMATCH);
        CHECK(strstr(symm_last_error(), "\"rendezvous (world)\"") != NULL);
        CHECK_MESSAGE(strstr(symm_last_error(), "\"split (world)\"") != NULL, "%s",
                      symm_last_error());
        CHECK_OK(symm_barrier(world, NULL, NULL));
        CHECK_OK(symm_rendezvous(world));
        CHECK_OK(symm_team_split(world, 0, 0, &team));
        symm_team_destroy(team);
    }
    return 0;
}

static void steps_differ(void **state)
{
    static const int ranks[] = {2, 4};
    assert_int_equal(run_for(state, body_steps, ranks, 2), 0);
}

static void teams_have_numbers_and_names(void **state)
{
    static const int ranks[] = {3};
    assert_int_equal(run_for(state, body_names, ranks, 1), 0);
}

/* A stream more than a team has channels. */
static int body_full(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = sizeof(call)};
    char text[64];

    (void)arg;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(symm_stream_create(ctx, &call.stream));
        CHECK_STATUS(symm_barrier(symm_team_world(ctx), &call, NULL),
                     i < 7 ? SYMM_OK : SYMM_ERR_BUSY);
    }
    snprintf(text, sizeof(text), "left for stream %p of rank 0", call.stream);
    CHECK_ERROR(text);
    return 0;
}

static void no_channel_left(void **state)
{
    struct harness h = {.ranks = 1, .body = body_full};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(no_channel_left),
        cmocka_unit_test(members_and_order),
        cmocka_unit_test(nested_teams),
        cmocka_unit_test(grid_of_teams),
        cmocka_unit_test(one_sided_in_teams),
        cmocka_unit_test(teams_come_and_go),
        cmocka_unit_test(many_teams),
        cmocka_unit_test(disjoint_teams_at_once),
        cmocka_unit_test(failures_stay_in_their_team),
        cmocka_unit_test(teams_have_numbers_and_names),
        cmocka_unit_test(long_sites_differ),
        cmocka_unit_test(steps_differ),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
