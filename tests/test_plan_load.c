/* SPDX-License-Identifier: MIT */
/*
 * test_plan_load.c - plans at run time: buffers have the plan's offsets and may share bytes.
 * Calls find their op by site, also on child teams, on streams and among puts. They use the
 * plan's algorithm or a valid replacement, and omit the barriers that the plan omits.
 */
#include "plan_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symm/norm.h"

#define SLOTS 4

/* ---- Places and barriers -------------------------------------------------------------- */

static int body_places(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[SLOTS], *other, *before;
    int wrong = 0;

    (void)arg;
    CHECK_OK(plan_run_place(team, 77, PLAN_RUN_WORDS, &before));
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_OK(plan_run_place(team, 99, PLAN_RUN_WORDS, &other));
    CHECK_ZERO(plan_run_place_all(team, buffers, SLOTS));
    size_t arena = symm_buffer_offset(buffers[0]);
    for (int i = 1; i < SLOTS; i++)
        arena = symm_buffer_offset(buffers[i]) < arena ? symm_buffer_offset(buffers[i])
                                                       : arena;
    /* Two slots, each of two buffers; nothing else lies there. */
    for (int i = 0; i < SLOTS; i++)
        CHECK(symm_buffer_offset(buffers[i]) == arena ||
              symm_buffer_offset(buffers[i]) == arena + PLAN_RUN_BYTES);
    CHECK(symm_buffer_offset(buffers[0]) != symm_buffer_offset(buffers[1]));
    CHECK(symm_buffer_offset(buffers[0]) == symm_buffer_offset(buffers[2]));
    CHECK(symm_buffer_offset(other) >= arena + 2 * PLAN_RUN_BYTES);
    CHECK(symm_buffer_offset(before) < arena);
    if (symm_team_size(team) > 1)
        CHECK(symm_buffer_peer_ptr(buffers[0], (symm_team_rank(team) + 1) %
                                                   symm_team_size(team)) == NULL);
    CHECK_OK(symm_rendezvous(team));
    CHECK(symm_buffer_peer_ptr(buffers[0], 0) != NULL);
    CHECK_ZERO(plan_run_periods(team, buffers, SLOTS, 50, &wrong));
    CHECK_MESSAGE(wrong == 0, "%d wrong words", wrong);
    CHECK_MESSAGE(strstr(symm_explain(team), "planned: one_shot_pull, entry barrier"),
                  "%s", symm_explain(team));
    /* Given back and asked for again: the same place. */
    symm_buffer_release(buffers[3]);
    CHECK_OK(symm_alloc_id_free(team, 4));
    CHECK_STATUS(plan_run_place(team, 4, PLAN_RUN_WORDS + 1, &buffers[3]),
                 SYMM_ERR_MISMATCH);
    CHECK_ERROR("4100 bytes of float32");
    CHECK_ERROR("'b3'");
    CHECK_OK(plan_run_place(team, 4, PLAN_RUN_WORDS / 2,
                            &buffers[3])); /* less than planned is fine */
    CHECK(symm_buffer_offset(buffers[3]) == symm_buffer_offset(buffers[1]));
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(other);
    symm_buffer_release(before);
    return plan_run_close(team, buffers, SLOTS);
}

static void places(void **state)
{
    (void)state;
    plan_run_with(body_places, SLOTS, "one_shot_pull", NULL, NULL);
}

/* Every algorithm that can do it gives the right sums, whatever runs in its place here. */
static int body_right(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[3];
    char planned[64];
    int wrong = 0;

    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(plan_run_periods(team, buffers, 3, 30, &wrong));
    CHECK_MESSAGE(wrong == 0, "%s: %d wrong words", (const char *)arg, wrong);
    snprintf(planned, sizeof(planned), "(planned: %s,", (const char *)arg);
    CHECK_MESSAGE(strstr(symm_explain(team), planned), "%s", symm_explain(team));
    return plan_run_close(team, buffers, 3);
}

/* ---- all_reduce_norm ------------------------------------------------------------------ */

#define NORM_PERIODS 20

/* One period; adds what differs between the run on the plan and the other to *wrong. */
static int run_layers(symm_team *team, void *const planned[], void *const apart[],
                      int period, int *wrong)
{
    const uint64_t seed = (uint64_t)(period * 64 + symm_team_rank(team));
    char site[16];

    plan_run_draw(planned[PLAN_RUN_RESIDUAL], (uint64_t)period);
    memcpy(apart[PLAN_RUN_RESIDUAL], planned[PLAN_RUN_RESIDUAL], PLAN_RUN_BYTES);
    for (int i = 0; i < PLAN_RUN_LAYERS; i++) {
        const symm_norm on_plan = plan_run_layer(planned, i, SYMM_NORM_CONSTANT);
        const symm_norm other = plan_run_layer(apart, i, 0);
        const symm_call call = {.size = sizeof(call), .site = site};

        snprintf(site, sizeof(site), "n%d", i);
        plan_run_draw(planned[PLAN_RUN_IN + i], seed * PLAN_RUN_LAYERS + (uint64_t)i);
        memcpy(apart[PLAN_RUN_IN + i], planned[PLAN_RUN_IN + i], PLAN_RUN_BYTES);
        CHECK_OK(symm_all_reduce_norm(team, &other, NULL, NULL));
        CHECK_OK(symm_all_reduce_norm(team, &on_plan, &call, NULL));
        *wrong += memcmp(planned[PLAN_RUN_OUT + i], apart[PLAN_RUN_OUT + i],
                         PLAN_RUN_BYTES) != 0;
    }
    *wrong += memcmp(planned[PLAN_RUN_RESIDUAL], apart[PLAN_RUN_RESIDUAL],
                     PLAN_RUN_BYTES) != 0;
    return 0;
}

static int body_norms(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[PLAN_RUN_LAYER_BUFFERS];
    void *planned[PLAN_RUN_LAYER_BUFFERS], *apart[PLAN_RUN_LAYER_BUFFERS];
    float *block = calloc(PLAN_RUN_LAYER_BUFFERS, PLAN_RUN_BYTES);
    char named[64];
    int wrong = 0;

    CHECK(block != NULL);
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, PLAN_RUN_LAYER_BUFFERS));
    CHECK_OK(symm_rendezvous(team));
    CHECK(symm_buffer_ptr(buffers[PLAN_RUN_IN]) ==
          symm_buffer_ptr(buffers[PLAN_RUN_IN + 2])); /* they do share bytes */
    for (int b = 0; b < PLAN_RUN_LAYER_BUFFERS; b++) {
        planned[b] = symm_buffer_ptr(buffers[b]);
        apart[b] = block + (size_t)b * PLAN_RUN_WORDS;
    }
    plan_run_draw(planned[PLAN_RUN_WEIGHT], 7);
    memcpy(apart[PLAN_RUN_WEIGHT], planned[PLAN_RUN_WEIGHT], PLAN_RUN_BYTES);
    for (int k = 0; k < NORM_PERIODS; k++)
        CHECK_ZERO(run_layers(team, planned, apart, k, &wrong));
    CHECK_MESSAGE(wrong == 0, "%s: %d wrong arrays", (const char *)arg, wrong);
    snprintf(named, sizeof(named), "(planned: %s,", (const char *)arg);
    CHECK_MESSAGE(strstr(symm_explain(team), named), "%s", symm_explain(team));
    free(block);
    return plan_run_close(team, buffers, PLAN_RUN_LAYER_BUFFERS);
}

/* By every algorithm the arrays of layers share bytes, and have the bits of arrays that do not. */
static void norms(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        const char *name = symm_algorithm_name((symm_algorithm)a);
        struct harness h = {
            .ranks = 3, .body = body_norms, .arg = (void *)(uintptr_t)name};

        if (a == SYMM_ALGORITHM_COPY_ENGINE) /* it does not reduce */
            continue;
        plan_run_write(plan_run_layers(3), name, "plan", NULL);
        assert_int_equal(harness_run_both(h), 0);
    }
    unsetenv("SYMM_CHECK");
}

/* Sums whose partial sums are rounded keep to the plan's algorithm, too: without the plan they
 * would read and write peers' memory here, and the plan has no barriers for that. */
static int body_partial(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const symm_call call = {.size = sizeof(call), .site = "n0"};
    symm_norm norm = {.size = sizeof(norm),
                      .rows = 1,
                      .hidden = PLAN_RUN_HIDDEN,
                      .dtype = SYMM_BFLOAT16,
                      .flags = SYMM_NORM_ROUND_PARTIAL};
    symm_buffer *buffers[PLAN_RUN_LAYER_BUFFERS];

    (void)arg;
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, PLAN_RUN_LAYER_BUFFERS));
    CHECK_OK(symm_rendezvous(team));
    memset(symm_buffer_ptr(buffers[0]), 0, PLAN_RUN_BYTES);
    norm.in = norm.norm_out = symm_buffer_ptr(buffers[0]);
    CHECK_OK(symm_all_reduce_norm(team, &norm, &call, NULL));
    CHECK_MESSAGE(strstr(symm_explain(team), " took copy_in "), "%s",
                  symm_explain(team));
    return plan_run_close(team, buffers, PLAN_RUN_LAYER_BUFFERS);
}

static void partial_sums(void **state)
{
    struct harness h = {.ranks = 3, .body = body_partial};

    (void)state;
    plan_run_write(plan_run_layers(3), "copy_in", "plan", NULL);
    assert_int_equal(harness_run_both(h), 0);
}

static void algorithms(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        const char *name = symm_algorithm_name((symm_algorithm)a);
        struct harness h = {.ranks = 3,
                            .mode = HARNESS_THREADS,
                            .body = body_right,
                            .arg = (void *)(uintptr_t)name};

        /* These need a symmetric result, or only copy. */
        if (a == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
            a == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT || a == SYMM_ALGORITHM_COPY_ENGINE)
            continue;
        plan_run_write(plan_run_cycle(3, 3), name, "plan", NULL);
        assert_int_equal(harness_run(&h), 0);
    }
    unsetenv("SYMM_CHECK");
}

/* A rank alone passes an op without barriers; s1's are both planted away. */
static void drop_barriers(symm_plan *plan)
{
    plan->ops[1].entry_barrier = plan->ops[1].exit_barrier = false;
}

struct late {
    struct harness_sync sync;
    int wrong; /* of the rank that reads too early */
};

/* Rank 1 is through with s1 before rank 0 has written b1. */
static int body_early(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct late *late = arg;
    symm_buffer *buffers[3];
    float out[PLAN_RUN_WORDS];

    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_OK(symm_rendezvous(team));
    for (int i = 0; i < 3; i++)
        plan_run_fill(buffers[i], 0);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    plan_run_fill(buffers[0], 1);
    CHECK_OK(plan_run_reduce(team, "s0", buffers[0], out));
    if (symm_team_rank(team) == 0)
        CHECK_ZERO(harness_sync_wait(&late->sync, 2));
    plan_run_fill(buffers[1], 1);
    CHECK_OK(plan_run_reduce(team, "s1", buffers[1], out));
    if (symm_team_rank(team) == 1) {
        CHECK_MESSAGE(strstr(symm_explain(team), "no barriers"), "%s",
                      symm_explain(team));
        late->wrong = plan_run_wrong(out, 2);
        CHECK_ZERO(harness_sync_wait(&late->sync, 2));
    }
    return plan_run_close(team, buffers, 3);
}

static void dropped_barrier(void **state)
{
    struct late *late = harness_shared(sizeof(*late));
    struct harness h = {.ranks = 2, .body = body_early, .arg = late};

    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        memset(late, 0, sizeof(*late));
        h.mode = mode ? HARNESS_THREADS : HARNESS_PROCESSES;
        plan_run_write(plan_run_cycle(2, 3), "one_shot_pull", "plan", drop_barriers);
        if (HARNESS_TSAN && mode)
            continue; /* that two threads race is the point */
        assert_int_equal(harness_run(&h), 0);
        assert_int_equal(late->wrong, PLAN_RUN_WORDS);
    }
    harness_shared_free(late, sizeof(*late));
}

/* ---- Teams, streams, puts ------------------------------------------------------------- */

static int body_teams(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *half;
    symm_buffer *buffers[3];
    int rank = symm_team_rank(world), wrong = 0;

    (void)arg;
    CHECK_OK(symm_team_split(world, rank / 2, rank, &half));
    CHECK_OK(plan_run_load(world, "plan"));
    CHECK_ZERO(plan_run_place_all(world, buffers, 3));
    /* Nobody has compared it yet: it does not hold. */
    CHECK_OK(symm_barrier(half, NULL, NULL));
    CHECK_OK(symm_rendezvous(world));
    CHECK_ZERO(plan_run_periods(half, buffers, 3, 20, &wrong));
    CHECK_MESSAGE(wrong == 0, "%d wrong words", wrong);
    CHECK_MESSAGE(strstr(symm_explain(half), "planned: one_shot_pull"), "%s",
                  symm_explain(half));
    CHECK_STATUS(plan_run_load(half, "plan"), SYMM_ERR_INVALID);
    CHECK_ERROR("world: found 4, allowed: 2");
    CHECK_ZERO(plan_run_close(world, buffers, 3));
    symm_team_destroy(half);
    return 0;
}

static void teams(void **state)
{
    struct harness h = {.ranks = 4, .body = body_teams};

    (void)state;
    plan_run_write(plan_run_cycle(4, 3), "one_shot_pull", "plan", NULL);
    assert_int_equal(harness_run_both(h), 0);
}

/* The same calls on a stream of their own. */
static int body_stream(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[3];
    static _Thread_local float out[PLAN_RUN_WORDS];
    symm_call call = {.size = sizeof(call)};
    const char *const names[] = {"s0", "s1", "s2"};

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_OK(symm_rendezvous(team));
    for (int k = 0; k < 30; k++) {
        symm_work *work;

        call.site = names[k % 3];
        plan_run_fill(buffers[k % 3], 2);
        CHECK_OK(symm_all_reduce(team, symm_buffer_ptr(buffers[k % 3]), out,
                                 PLAN_RUN_WORDS, SYMM_FLOAT32, SYMM_SUM, &call, &work));
        CHECK_OK(symm_work_synchronize(work, 0));
        symm_work_release(work);
        CHECK(plan_run_wrong(out, 2 * (float)symm_team_size(team)) == 0);
    }
    symm_stream_destroy(ctx, call.stream);
    return plan_run_close(team, buffers, 3);
}

static void streams(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    plan_run_with(body_stream, 3, "one_shot_pull", NULL, NULL);
    unsetenv("SYMM_CHECK");
}

static int hop(symm_team *team, symm_buffer **pair, const char *site, int signal, int k)
{
    const symm_call call = {.size = sizeof(call), .site = site};
    int rank = symm_team_rank(team), size = symm_team_size(team);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;

    plan_run_fill(pair[0], plan_run_value(rank, signal, k));
    CHECK_OK(symm_barrier(team, &call, NULL));
    CHECK_OK(symm_put_signal(team, symm_buffer_ptr(pair[1]), symm_buffer_ptr(pair[0]),
                             PLAN_RUN_BYTES, next, signal, &call, NULL));
    CHECK_OK(symm_signal_wait(team, last, signal, &call, NULL));
    CHECK(plan_run_wrong(symm_buffer_ptr(pair[1]), plan_run_value(last, signal, k)) ==
          0);
    return 0;
}

static int body_puts(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const symm_call call = {.size = sizeof(call), .site = "hop0"};
    symm_buffer *b[4];
    float out[PLAN_RUN_WORDS];

    (void)arg;
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, b, 4));
    CHECK_OK(symm_rendezvous(team));
    for (int k = 0; k < 30; k++) {
        CHECK_ZERO(hop(team, &b[0], "hop0", 0, k));
        CHECK_ZERO(hop(team, &b[2], "hop1", 1, k));
    }
    CHECK_STATUS(plan_run_reduce(team, "hop0", b[0], out), SYMM_ERR_INVALID);
    CHECK_ERROR("a put at 'hop0'");
    CHECK_STATUS(symm_put_signal(
                     team, symm_buffer_ptr(b[3]), symm_buffer_ptr(b[2]), PLAN_RUN_BYTES,
                     0, 0, &(symm_call){.size = sizeof(call), .site = "hop1"}, NULL),
                 SYMM_ERR_INVALID); /* it is hop0's turn */
    CHECK_ERROR("'hop1' where the plan has 'hop0'");
    return plan_run_close(team, b, 4);
}

static void puts_in_turn(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    for (int n = 2; n <= 3; n++) {
        struct harness h = {.ranks = n, .body = body_puts};

        plan_run_write(plan_run_ring(n), NULL, "plan", NULL);
        assert_int_equal(harness_run_both(h), 0);
    }
    unsetenv("SYMM_CHECK");
}

static void put_barrier_left_out(void **state)
{
    struct harness h = {.ranks = 2, .body = plan_run_left_out};

    (void)state;
    plan_run_write_left_out();
    assert_int_equal(harness_run_both(h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(algorithms),
        cmocka_unit_test(norms),
        cmocka_unit_test(partial_sums),
        cmocka_unit_test(dropped_barrier),
        cmocka_unit_test(teams),
        cmocka_unit_test(streams),
        cmocka_unit_test(puts_in_turn),
        cmocka_unit_test(put_barrier_left_out),
    };

    return cmocka_run_group_tests(tests, plan_run_set_up, plan_run_tear_down);
}
