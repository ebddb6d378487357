/* SPDX-License-Identifier: MIT */
/*
 * test_driver_plan.c - plans at run time on the CUDA backend: over the fake driver, or on
 * GPUs with SYMM_TEST_GPU=1. Planned algorithms and their replacements give right sums with
 * the barriers of the plan; barriers that no kernel contains are separate launches; freed
 * bytes are NaN; an all_reduce_norm on a plan has the bits of one without; a put whose barrier the
 * plan omits does not wait.
 * ctest: cost 14
 */
#include "device.h"
#include "plan_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BUFFERS   3
#define ADDRESSES 512 /* of outputs, 8 bytes apart: twice what a channel caches */

static const char *const sites[BUFFERS] = {"s0", "s1", "s2"};

struct bench {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area out; /* private */
    symm_buffer *buffers[BUFFERS];
    void *stream;
    float host[PLAN_RUN_WORDS];
};

static int bench_open(struct bench *b, symm_ctx *ctx)
{
    b->ctx = ctx;
    b->team = symm_team_world(ctx);
    b->gpu = device_open(ctx);
    CHECK(b->gpu != NULL);
    CHECK_ZERO(device_area_open(&b->out, b->gpu, NULL, PLAN_RUN_BYTES + ADDRESSES * 8));
    CHECK_OK(plan_run_load(b->team, "plan"));
    CHECK_ZERO(plan_run_place_all(b->team, b->buffers, BUFFERS));
    CHECK_OK(symm_rendezvous(b->team));
    CHECK_OK(symm_stream_create(ctx, &b->stream));
    return 0;
}

static int bench_close(struct bench *b)
{
    CHECK_OK(symm_barrier(b->team, NULL, NULL));
    symm_stream_destroy(b->ctx, b->stream);
    for (int i = 0; i < BUFFERS; i++)
        symm_buffer_release(b->buffers[i]);
    device_area_close(&b->out);
    perf_gpu_close(b->gpu);
    return 0;
}

/* One op of the cycle; a handle every other time. */
static int step(struct bench *b, int k)
{
    const symm_call call = {
        .size = sizeof(call), .site = sites[k % BUFFERS], .stream = b->stream};
    int rank = symm_team_rank(b->team), size = symm_team_size(b->team);
    void *in = symm_buffer_ptr(b->buffers[k % BUFFERS]);
    symm_work *work = NULL;
    float sum = 0;

    for (int i = 0; i < PLAN_RUN_WORDS; i++)
        b->host[i] = plan_run_value(rank, k % BUFFERS, k);
    for (int r = 0; r < size; r++)
        sum += plan_run_value(r, k % BUFFERS, k);
    CHECK_ZERO(perf_gpu_copy(b->gpu, in, b->host, PLAN_RUN_BYTES));
    CHECK_OK(symm_all_reduce(b->team, in, b->out.device, PLAN_RUN_WORDS, SYMM_FLOAT32,
                             SYMM_SUM, &call, k % 2 ? &work : NULL));
    if (work) {
        CHECK_OK(symm_work_synchronize(work, 0));
        symm_work_release(work);
    } else {
        CHECK_OK(symm_stream_synchronize(b->ctx, b->stream, 0));
    }
    CHECK_ZERO(perf_gpu_copy(b->gpu, b->host, b->out.device, PLAN_RUN_BYTES));
    CHECK_MESSAGE(plan_run_wrong(b->host, sum) == 0, "period %d: %d wrong words",
                  k / BUFFERS, plan_run_wrong(b->host, sum));
    return 0;
}

/* arg: the planned algorithm. */
static int body_right(symm_ctx *ctx, void *arg)
{
    struct bench *b = calloc(1, sizeof(*b));
    char planned[64];
    int result = 1;

    CHECK(b != NULL);
    result = bench_open(b, ctx);
    for (int k = 0; k < 4 * BUFFERS && result == 0; k++)
        result = step(b, k);
    snprintf(planned, sizeof(planned), "(planned: %s,", (const char *)arg);
    if (result == 0 && !strstr(symm_explain(b->team), planned))
        result = harness_fail(__FILE__, __LINE__, "%s", symm_explain(b->team));
    if (result == 0)
        result = bench_close(b);
    free(b);
    return result;
}

/* symm_explain is of the planned call, wherever the call's address puts it in the cache of
 * calls: its barriers are launches of their own, and take the place of no other call. */
static int body_explained(symm_ctx *ctx, void *arg)
{
    struct bench *b = calloc(1, sizeof(*b));
    int result = 1;

    (void)arg;
    CHECK(b != NULL);
    result = bench_open(b, ctx);
    for (int k = 0; k < ADDRESSES * BUFFERS && result == 0; k++) {
        const symm_call call = {
            .size = sizeof(call), .site = sites[k % BUFFERS], .stream = b->stream};
        char *out = (char *)b->out.device + (size_t)k / BUFFERS * 8;

        CHECK_OK(symm_all_reduce(b->team, symm_buffer_ptr(b->buffers[k % BUFFERS]), out,
                                 PLAN_RUN_WORDS, SYMM_FLOAT32, SYMM_SUM, &call, NULL));
        CHECK_MESSAGE(strstr(symm_explain(b->team), "(planned: ll_push,"),
                      "out + %d: %s", k / BUFFERS * 8, symm_explain(b->team));
    }
    CHECK_OK(symm_stream_synchronize(ctx, b->stream, 0));
    if (result == 0)
        result = bench_close(b);
    free(b);
    return result;
}

static void keep_both(symm_plan *plan)
{
    for (int i = 0; i < plan->op_count; i++)
        plan->ops[i].entry_barrier = plan->ops[i].exit_barrier = true;
}

static void run(harness_body body, const char *algorithm,
                void (*change)(symm_plan *plan))
{
    struct harness h = {.ranks = 2,
                        .body = body,
                        .arg = (void *)(uintptr_t)algorithm,
                        .team_bytes = (size_t)128 << 20};

    plan_run_write(plan_run_cycle(2, BUFFERS), algorithm, "plan", change);
    assert_int_equal(harness_run(&h), 0);
}

static void planned(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    run(body_right, "one_shot_pull", NULL);
    run(body_right, "two_shot_pull", NULL);
    run(body_right, "ll_push", NULL);
    run(body_right, "multimem_one_shot", NULL); /* stands for: two_shot_pull */
    run(body_right, "engine", NULL);
    run(body_right, "one_shot_pull", keep_both);
    run(body_right, "ll_push", keep_both); /* launches of their own */
    run(body_right, "two_shot_pull", keep_both);
    unsetenv("SYMM_CHECK");
}

static void explained(void **state)
{
    (void)state;
    run(body_explained, "ll_push", keep_both);
}

/* ---- all_reduce_norm ------------------------------------------------------------------ */

/* The arrays of a layer on the device: planned, or apart in private memory. */
struct layers {
    struct bench *bench;
    symm_buffer *buffers[PLAN_RUN_LAYER_BUFFERS];
    void *planned[PLAN_RUN_LAYER_BUFFERS], *apart[PLAN_RUN_LAYER_BUFFERS];
    float found[PLAN_RUN_WORDS], wanted[PLAN_RUN_WORDS];
};

static int layers_open(struct layers *l, struct bench *b, symm_ctx *ctx)
{
    l->bench = b;
    b->ctx = ctx;
    b->team = symm_team_world(ctx);
    b->gpu = device_open(ctx);
    CHECK(b->gpu != NULL);
    CHECK_ZERO(device_area_open(&b->out, b->gpu, NULL,
                                PLAN_RUN_LAYER_BUFFERS * PLAN_RUN_BYTES));
    CHECK_OK(plan_run_load(b->team, "plan"));
    CHECK_ZERO(plan_run_place_all(b->team, l->buffers, PLAN_RUN_LAYER_BUFFERS));
    CHECK_OK(symm_rendezvous(b->team));
    CHECK_OK(symm_stream_create(ctx, &b->stream));
    for (int i = 0; i < PLAN_RUN_LAYER_BUFFERS; i++) {
        l->planned[i] = symm_buffer_ptr(l->buffers[i]);
        l->apart[i] = b->out.device + (size_t)i * PLAN_RUN_BYTES;
    }
    return 0;
}

static int layers_close(struct layers *l)
{
    struct bench *b = l->bench;

    CHECK_OK(symm_barrier(b->team, NULL, NULL));
    symm_stream_destroy(b->ctx, b->stream);
    for (int i = 0; i < PLAN_RUN_LAYER_BUFFERS; i++)
        symm_buffer_release(l->buffers[i]);
    device_area_close(&b->out);
    perf_gpu_close(b->gpu);
    return 0;
}

/* Both get the same values. */
static int draw(struct layers *l, int array, uint64_t seed)
{
    plan_run_draw(l->found, seed);
    CHECK_ZERO(
        perf_gpu_copy(l->bench->gpu, l->planned[array], l->found, PLAN_RUN_BYTES));
    CHECK_ZERO(perf_gpu_copy(l->bench->gpu, l->apart[array], l->found, PLAN_RUN_BYTES));
    return 0;
}

static int compare(struct layers *l, int array, int k)
{
    CHECK_ZERO(
        perf_gpu_copy(l->bench->gpu, l->found, l->planned[array], PLAN_RUN_BYTES));
    CHECK_ZERO(
        perf_gpu_copy(l->bench->gpu, l->wanted, l->apart[array], PLAN_RUN_BYTES));
    CHECK_MESSAGE(memcmp(l->found, l->wanted, PLAN_RUN_BYTES) == 0,
                  "period %d: array %d is wrong: %g instead of %g", k, array,
                  (double)l->found[0], (double)l->wanted[0]);
    return 0;
}

static int normalise(struct layers *l, void *const *x, int i, const char *site)
{
    const symm_norm norm = plan_run_layer(x, i, SYMM_NORM_CONSTANT);
    const symm_call call = {
        .size = sizeof(call), .site = site, .stream = l->bench->stream};

    CHECK_OK(symm_all_reduce_norm(l->bench->team, &norm, &call, NULL));
    CHECK_OK(symm_stream_synchronize(l->bench->ctx, l->bench->stream, 0));
    return 0;
}

static int layer_period(struct layers *l, int k)
{
    const uint64_t seed = (uint64_t)(64 * k + symm_team_rank(l->bench->team));
    char site[16];

    CHECK_ZERO(draw(l, PLAN_RUN_RESIDUAL, (uint64_t)k));
    for (int i = 0; i < PLAN_RUN_LAYERS; i++) {
        snprintf(site, sizeof(site), "n%d", i);
        CHECK_ZERO(draw(l, PLAN_RUN_IN + i, seed * PLAN_RUN_LAYERS + (uint64_t)i));
        CHECK_ZERO(normalise(l, l->apart, i, NULL));
        CHECK_ZERO(normalise(l, l->planned, i, site));
        CHECK_ZERO(compare(l, PLAN_RUN_OUT + i, k));
    }
    return compare(l, PLAN_RUN_RESIDUAL, k);
}

/* arg: what symm_explain says. */
static int body_layers(symm_ctx *ctx, void *arg)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct layers *l = calloc(1, sizeof(*l));
    int result;

    CHECK(b != NULL && l != NULL);
    result = layers_open(l, b, ctx);
    if (result == 0)
        result = draw(l, PLAN_RUN_WEIGHT, 7);
    for (int k = 0; k < 3 && result == 0; k++)
        result = layer_period(l, k);
    if (result == 0 && !strstr(symm_explain(b->team), arg))
        result = harness_fail(__FILE__, __LINE__, "%s", symm_explain(b->team));
    if (result == 0)
        result = layers_close(l);
    free(l);
    free(b);
    return result;
}

/* Two ranks have a fused kernel, three a sum with the plan's barriers and a kernel for the rest. */
static void norms(void **state)
{
    static const char *const algorithms[] = {"one_shot_pull", "two_shot_pull",
                                             "two_shot_inplace", "ll_push"};

    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++)
        for (int ranks = 2; ranks <= device_ranks(3); ranks++) {
            char words[64] = "the kernel that sums does the rest (planned: ";
            struct harness h = {.ranks = ranks,
                                .body = body_layers,
                                .arg = words,
                                .team_bytes = (size_t)128 << 20};

            if (ranks == 3)
                snprintf(words, sizeof(words), "(planned: %s,", algorithms[i]);
            plan_run_write(plan_run_layers(ranks), algorithms[i], "plan", NULL);
            assert_int_equal(harness_run(&h), 0);
        }
    unsetenv("SYMM_CHECK");
}

/* ---- What is freed, left out, late ----------------------------------------------------- */

/* s1 has freed b0, and not b1. */
static int body_freed(symm_ctx *ctx, void *arg)
{
    struct bench *b = calloc(1, sizeof(*b));
    unsigned char bytes[4] = {0};
    int result = 1;

    (void)arg;
    CHECK(b != NULL);
    result = bench_open(b, ctx);
    for (int k = 0; k < 2 && result == 0; k++)
        result = step(b, k);
    CHECK_ZERO(result);
    for (int i = 0; i < 2; i++) {
        CHECK_ZERO(perf_gpu_copy(b->gpu, bytes, symm_buffer_ptr(b->buffers[i]), 4));
        CHECK_MESSAGE((bytes[0] == 0xff && bytes[3] == 0xff) == (i == 0),
                      "b%d begins with %02x", i, bytes[0]);
    }
    result = bench_close(b);
    free(b);
    return result;
}

static void freed(void **state)
{
    (void)state;
    setenv("SYMM_CHECK", "plan", 1);
    run(body_freed, "one_shot_pull", NULL);
    unsetenv("SYMM_CHECK");
}

static void put_barrier_left_out(void **state)
{
    struct harness h = {
        .ranks = 2, .body = plan_run_left_out, .team_bytes = (size_t)128 << 20};

    (void)state;
    plan_run_write_left_out();
    assert_int_equal(harness_run(&h), 0);
}

/* Rank 1 does not come: the handle of a call of several launches says so. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct bench *b = calloc(1, sizeof(*b));
    const symm_call call = {.size = sizeof(call), .site = "s0", .timeout = 0.3};
    _Atomic int *over = arg;
    symm_work *work;
    bool done;

    CHECK(b != NULL);
    CHECK_ZERO(bench_open(b, ctx));
    if (symm_team_rank(b->team) == 0) {
        CHECK_OK(symm_all_reduce(b->team, symm_buffer_ptr(b->buffers[0]), b->out.device,
                                 PLAN_RUN_WORDS, SYMM_FLOAT32, SYMM_SUM, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("rank 1 did not arrive");
        CHECK_STATUS(symm_work_query(work, &done), SYMM_ERR_TIMEOUT);
        CHECK(done);
        symm_work_release(work);
        *over = 1;
    }
    CHECK(harness_until(over, 1));
    symm_stream_destroy(ctx, b->stream);
    for (int i = 0; i < BUFFERS; i++)
        symm_buffer_release(b->buffers[i]);
    device_area_close(&b->out);
    perf_gpu_close(b->gpu);
    free(b);
    return 0;
}

static void late(void **state)
{
    _Atomic int *over = harness_shared(sizeof(*over));
    struct harness h = {
        .ranks = 2, .body = body_late, .arg = over, .team_bytes = (size_t)128 << 20};

    (void)state;
    plan_run_write(plan_run_cycle(2, BUFFERS), "ll_push", "plan", keep_both);
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(over, sizeof(*over));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned), cmocka_unit_test(explained),
        cmocka_unit_test(norms),   cmocka_unit_test(freed),
        cmocka_unit_test(late),    cmocka_unit_test(put_barrier_left_out)};

    device_suite();
    return cmocka_run_group_tests(tests, plan_run_set_up, plan_run_tear_down);
}
