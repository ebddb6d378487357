/* SPDX-License-Identifier: MIT */
/*
 * test_plan_refuse.c - plans at run time that are damaged, do not fit or differ between ranks
 * are refused without a leak; SYMM_CHECK=plan detects calls out of turn and buffers in the
 * arena that are not the plan's, and fills freed bytes; planted mistakes are detected.
 */
#include "plan_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symm/norm.h"

/* ---- Refusals ------------------------------------------------------------------------- */

static void write_text(const char *file, const char *text)
{
    char path[192];
    FILE *out = fopen(plan_run_path(file, path, sizeof(path)), "w");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void move_beyond(symm_plan *plan)
{
    plan->buffers[1].offset = plan->arena_bytes;
}

static void move_askew(symm_plan *plan)
{
    plan->buffers[1].offset += 8;
}

static void move_onto(symm_plan *plan)
{
    plan->buffers[1].offset = plan->buffers[0].offset;
}

static void double_site(symm_plan *plan)
{
    plan->ops[1].site = plan->ops[0].site;
}

static void double_id(symm_plan *plan)
{
    plan->buffers[1].alloc_id = plan->buffers[0].alloc_id;
}

static void grow_arena(symm_plan *plan)
{
    plan->arena_bytes = (size_t)1 << 60;
}

/* One byte of a plan that is signed. */
static void write_tampered(void)
{
    char from[192], text[8192];
    FILE *in = fopen(plan_run_path("plan", from, sizeof(from)), "r");
    size_t length;
    char *flag;

    assert_non_null(in);
    length = fread(text, 1, sizeof(text) - 1, in);
    fclose(in);
    text[length] = '\0';
    flag = strstr(text, "\"channel\":0");
    assert_non_null(flag);
    flag[10] = '1';
    write_text("tampered", text);
}

static const struct refusal {
    const char *file, *words, *more;
    void (*change)(symm_plan *plan);
    symm_status status;
} refusals[] = {
    {"beyond", "buffers[1]: found 4096 bytes at offset", "'b1'", move_beyond,
     SYMM_ERR_INVALID},
    {"askew", "buffers[1].offset", "'b1'", move_askew, SYMM_ERR_INVALID},
    {"onto", "'b0' and 'b1' share bytes", "does not list", move_onto, SYMM_ERR_INVALID},
    {"site", "the site 's0' twice", "ops", double_site, SYMM_ERR_INVALID},
    {"id", "alloc_id 1 for 'b", "each once", double_id, SYMM_ERR_INVALID},
    {"grow", "its arena of 1152921504606846976 bytes", "no hole", grow_arena,
     SYMM_ERR_NOMEM},
};

static int body_refused(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[3], *early;
    int wrong = 0;

    (void)arg;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        CHECK_STATUS(plan_run_load(team, refusals[i].file), refusals[i].status);
        CHECK_ERROR(refusals[i].file);
        CHECK_ERROR(refusals[i].words);
        CHECK_ERROR(refusals[i].more);
    }
    CHECK_STATUS(plan_run_load(team, "tampered"), SYMM_ERR_INVALID);
    CHECK_ERROR("run_hash: found ");
    CHECK_STATUS(plan_run_load(team, "cut"), SYMM_ERR_INVALID);
    CHECK_ERROR("cut");
    CHECK_STATUS(plan_run_load(team, "other"), SYMM_ERR_INVALID);
    CHECK_ERROR("world: found 7, allowed: 2");
    CHECK(plan_run_load(team, "none") != SYMM_OK);
    CHECK_ERROR("none");
    CHECK_STATUS(symm_team_load_plan(team, NULL), SYMM_ERR_INVALID);
    CHECK_OK(plan_run_place(team, 2, PLAN_RUN_WORDS, &early));
    CHECK_STATUS(plan_run_load(team, "plan"), SYMM_ERR_IN_USE);
    CHECK_ERROR("alloc_id 2");
    symm_buffer_release(early);
    CHECK_OK(symm_alloc_id_free(team, 2));
    /* Nothing is lost. */
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(plan_run_periods(team, buffers, 3, 5, &wrong));
    CHECK(wrong == 0);
    CHECK_STATUS(plan_run_load(team, "plan"), SYMM_ERR_IN_USE);
    CHECK_ERROR("for as long as it lives");
    return plan_run_close(team, buffers, 3);
}

static void refused(void **state)
{
    struct harness h = {.ranks = 2, .body = body_refused};

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        plan_run_write(plan_run_cycle(2, 3), "one_shot_pull", refusals[i].file,
                       refusals[i].change);
    plan_run_write(plan_run_cycle(7, 3), "one_shot_pull", "other", NULL);
    plan_run_write(plan_run_cycle(2, 3), "one_shot_pull", "plan", NULL);
    write_tampered();
    write_text("cut", "{\"format\": \"symm-plan/2\", \"prog");
    assert_int_equal(harness_run_both(h), 0);
}

/* Rank 1 has another plan, or none; then the same as all. */
static int body_differ(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    bool odd = symm_team_rank(team) == 1;
    symm_buffer *buffers[3];
    int wrong = 0;

    (void)arg;
    if (odd)
        CHECK_OK(plan_run_load(team, "other"));
    else
        CHECK_OK(plan_run_load(team, "plan"));
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    CHECK_ERROR("the ranks have loaded different plans: ranks 0 2 have plan ");
    CHECK_ERROR("rank 1 has plan ");
    if (odd)
        CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(plan_run_periods(team, buffers, 3, 5, &wrong));
    CHECK(wrong == 0);
    return plan_run_close(team, buffers, 3);
}

static int body_lacks(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    bool lacks = symm_team_rank(team) == 2;
    symm_buffer *buffers[3];
    int wrong = 0;

    (void)arg;
    if (!lacks)
        CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    CHECK_ERROR("ranks 0 1 have plan ");
    CHECK_ERROR("rank 2 has none");
    if (lacks) {
        for (int i = 0; i < 3; i++) {
            symm_buffer_release(buffers[i]);
            CHECK_OK(symm_alloc_id_free(team, (uint64_t)i + 1));
        }
        CHECK_OK(plan_run_load(team, "plan"));
        CHECK_ZERO(plan_run_place_all(team, buffers, 3));
    }
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(plan_run_periods(team, buffers, 3, 5, &wrong));
    CHECK(wrong == 0);
    return plan_run_close(team, buffers, 3);
}

static void different_plans(void **state)
{
    struct harness h = {.ranks = 3, .body = body_differ};

    (void)state;
    plan_run_write(plan_run_cycle(3, 3), "one_shot_pull", "plan", NULL);
    plan_run_write(plan_run_cycle(3, 3), "copy_in", "other", NULL);
    assert_int_equal(harness_run_both(h), 0);
    h.body = body_lacks;
    assert_int_equal(harness_run_both(h), 0);
}

/* ---- SYMM_CHECK=plan ------------------------------------------------------------------ */

static bool all_freed(const symm_buffer *buffer)
{
    const unsigned char *bytes = symm_buffer_ptr(buffer);

    for (size_t i = 0; i < PLAN_RUN_BYTES; i++)
        if (bytes[i] != 0xff)
            return false;
    return true;
}

/* An all_reduce_norm that the plan does not know has none of its arrays in the arena. */
static int norm_elsewhere(symm_team *team, symm_buffer *other, symm_buffer *const b[3])
{
    float *out = symm_buffer_ptr(other), *in = out + PLAN_RUN_WORDS / 2;
    const symm_norm good = {.size = sizeof(good),
                            .rows = 1,
                            .hidden = PLAN_RUN_WORDS / 2,
                            .dtype = SYMM_FLOAT32,
                            .in = in,
                            .sum_out = out};
    symm_norm norm = good;

    norm.weight = symm_buffer_ptr(b[1]);
    CHECK_STATUS(symm_all_reduce_norm(team, &norm, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("all_reduce_norm at no site");
    norm = good;
    norm.residual_out = symm_buffer_ptr(b[1]);
    CHECK_STATUS(symm_all_reduce_norm(team, &norm, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("all_reduce_norm at no site");
    CHECK_OK(symm_all_reduce_norm(team, &good, NULL, NULL));
    return 0;
}

/* A site that the plan has as another call: named with both kinds, on each rank by itself, and the
 * right call can follow. */
static int body_kinds(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const bool *layers = arg;
    const int count = *layers ? PLAN_RUN_LAYER_BUFFERS : 1;
    const symm_call call = {.size = sizeof(call), .site = *layers ? "n0" : "s0"};
    symm_buffer *b[PLAN_RUN_LAYER_BUFFERS];
    float out[PLAN_RUN_WORDS], residual[PLAN_RUN_WORDS] = {0};
    symm_norm norm = {.size = sizeof(norm),
                      .rows = 4,
                      .hidden = PLAN_RUN_HIDDEN,
                      .dtype = SYMM_FLOAT32,
                      .residual_out = residual};

    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, b, count));
    CHECK_OK(symm_rendezvous(team));
    plan_run_fill(b[0], 1);
    norm.in = symm_buffer_ptr(b[0]);
    if (*layers) {
        CHECK_STATUS(plan_run_reduce(team, "n0", b[0], out), SYMM_ERR_INVALID);
        CHECK_ERROR("has an all_reduce_norm at 'n0', and the call is all_reduce,");
        CHECK_STATUS(
            symm_put_signal(team, symm_buffer_ptr(b[0]), out, 4, 0, 0, &call, NULL),
            SYMM_ERR_INVALID);
        CHECK_ERROR("has an all_reduce_norm at 'n0', and the call is symm_put_signal");
        CHECK_OK(symm_all_reduce_norm(team, &norm, &call, NULL));
        CHECK(plan_run_wrong(residual, (float)symm_team_size(team)) == 0);
    } else {
        CHECK_STATUS(symm_all_reduce_norm(team, &norm, &call, NULL), SYMM_ERR_INVALID);
        CHECK_ERROR("has a collective that is no all_reduce_norm at 's0', and the call "
                    "is all_reduce_norm,");
        CHECK_OK(plan_run_reduce(team, "s0", b[0], out));
        CHECK(plan_run_wrong(out, (float)symm_team_size(team)) == 0);
    }
    return plan_run_close(team, b, count);
}

static void other_kinds(void **state)
{
    (void)state;
    for (int layers = 0; layers < 2; layers++) {
        bool arg = layers;
        struct harness h = {.ranks = 2, .body = body_kinds, .arg = &arg};

        plan_run_write(layers ? plan_run_layers(2) : plan_run_cycle(2, 1),
                       "one_shot_pull", "plan", NULL);
        assert_int_equal(harness_run_both(h), 0);
    }
}

/* b0 is freed where s1's entry barrier has shown that nobody reads it any more. */
static int body_checked(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *b[3], *other;
    float out[PLAN_RUN_WORDS], sum = (float)symm_team_size(team);
    symm_call forced = {.size = sizeof(forced), .site = "s2", .algorithm = "copy_in"};

    (void)arg;
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, b, 3));
    CHECK_OK(plan_run_place(team, 50, PLAN_RUN_WORDS, &other));
    CHECK_OK(symm_rendezvous(team));
    plan_run_fill(b[0], 1);
    plan_run_fill(b[1], 1);
    plan_run_fill(other, 1);
    CHECK_STATUS(plan_run_reduce(team, "s1", b[1], out), SYMM_ERR_INVALID);
    CHECK_ERROR("'s1' where the plan has 's0' next");
    CHECK_OK(plan_run_reduce(team, "s0", b[0], out));
    CHECK(plan_run_wrong(out, sum) == 0);
    CHECK(plan_run_wrong(symm_buffer_ptr(b[0]), 1) == 0);
    CHECK_STATUS(plan_run_reduce(team, "s0", b[0], out), SYMM_ERR_INVALID);
    CHECK_ERROR("'s0' where the plan has 's1' next");
    CHECK_STATUS(plan_run_reduce(team, "elsewhere", b[1], out), SYMM_ERR_INVALID);
    CHECK_ERROR("site 'elsewhere', which the plan does not know");
    CHECK_STATUS(plan_run_reduce(team, NULL, b[1], out), SYMM_ERR_INVALID);
    CHECK_ERROR("all_reduce at no site");
    CHECK_OK(
        plan_run_reduce(team, "elsewhere", other, out)); /* not the plan's memory */
    CHECK_ZERO(norm_elsewhere(team, other, b));
    CHECK_STATUS(
        symm_put(team, symm_buffer_ptr(other), symm_buffer_ptr(b[1]), 8, 0, NULL, NULL),
        SYMM_ERR_INVALID);
    CHECK_ERROR("symm_put");
    CHECK_OK(plan_run_reduce(team, "s1", b[1], out));
    CHECK(plan_run_wrong(out, sum) == 0);
    CHECK(all_freed(b[0]));
    CHECK(plan_run_wrong(symm_buffer_ptr(b[1]), 1) == 0);
    plan_run_fill(b[2], 1); /* not before: s0 has freed it */
    CHECK_STATUS(symm_all_reduce(team, symm_buffer_ptr(b[2]), out, PLAN_RUN_WORDS,
                                 SYMM_FLOAT32, SYMM_SUM, &forced, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("forces copy_in");
    forced.algorithm = "one_shot_pull"; /* what the plan says */
    CHECK_OK(symm_all_reduce(team, symm_buffer_ptr(b[2]), out, PLAN_RUN_WORDS,
                             SYMM_FLOAT32, SYMM_SUM, &forced, NULL));
    CHECK(plan_run_wrong(out, sum) == 0);
    CHECK(all_freed(b[1]));
    CHECK(plan_run_wrong(symm_buffer_ptr(b[2]), 1) == 0);
    CHECK_OK(plan_run_reduce(team, "s0", b[0], out)); /* around the circle */
    CHECK(out[0] != out[0]);                          /* freed and not written: NaN */
    symm_buffer_release(other);
    return plan_run_close(team, b, 3);
}

static void checked(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    plan_run_with(body_checked, 3, "one_shot_pull", NULL, NULL);
    unsetenv("SYMM_CHECK");
}

static int body_check_value(symm_ctx *ctx, void *arg)
{
    (void)arg;
    CHECK_STATUS(plan_run_load(symm_team_world(ctx), "plan"), SYMM_ERR_INVALID);
    CHECK_ERROR("SYMM_CHECK='everything': must be plan");
    return 0;
}

static void check_value(void **state)
{
    struct harness h = {.ranks = 1, .body = body_check_value};

    (void)state;
    plan_run_write(plan_run_cycle(1, 3), NULL, "plan", NULL);
    setenv("SYMM_CHECK", "everything", 1);
    assert_int_equal(harness_run_both(h), 0);
    unsetenv("SYMM_CHECK");
}

/* ---- Plans that are wrong ------------------------------------------------------------- */

/* b2 is freed while it is live: every sum of it is NaN. */
static void free_too_early(symm_plan *plan)
{
    static const int live[] = {2};

    plan->ops[1].frees = live;
    plan->ops[1].free_count = 1;
}

/* b2 lies on b1, and both say that this is fine. */
static void overlap_live(symm_plan *plan)
{
    static const int after[] = {0, 1, 2};

    plan->buffers[2].offset = plan->buffers[1].offset;
    for (int i = 1; i <= 2; i++) {
        plan->buffers[i].after = after;
        plan->buffers[i].after_count = 3;
    }
}

/* All buffers are written, then all are reduced. */
static int body_together(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const char *const sites[] = {"s0", "s1", "s2"};
    _Atomic int *wrong = arg;
    symm_buffer *b[3];
    float out[PLAN_RUN_WORDS];

    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_ZERO(plan_run_place_all(team, b, 3));
    CHECK_OK(symm_rendezvous(team));
    for (int i = 0; i < 3; i++)
        plan_run_fill(b[i], (float)i + 1);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(plan_run_reduce(team, sites[i], b[i], out));
        atomic_fetch_add(wrong,
                         plan_run_wrong(out, (float)((i + 1) * symm_team_size(team))));
    }
    return plan_run_close(team, b, 3);
}

static void planted_plans(void **state)
{
    struct {
        _Atomic int wrong;
    } *shared = harness_shared(sizeof(*shared));
    struct harness h = {.ranks = 2, .body = body_together, .arg = shared};
    void (*const changes[])(symm_plan * plan) = {NULL, overlap_live, free_too_early};
    const int wrong[] = {0, 2 * PLAN_RUN_WORDS, 2 * PLAN_RUN_WORDS};

    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    for (int i = 0; i < 3; i++) {
        atomic_store(&shared->wrong, 0);
        plan_run_write(plan_run_together(2), "one_shot_pull", "plan", changes[i]);
        assert_int_equal(harness_run(&h), 0);
        assert_int_equal(atomic_load(&shared->wrong), wrong[i]);
    }
    unsetenv("SYMM_CHECK");
    harness_shared_free(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),     cmocka_unit_test(different_plans),
        cmocka_unit_test(other_kinds), cmocka_unit_test(checked),
        cmocka_unit_test(check_value), cmocka_unit_test(planted_plans),
    };

    return cmocka_run_group_tests(tests, plan_run_set_up, plan_run_tear_down);
}
