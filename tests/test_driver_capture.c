/* SPDX-License-Identifier: MIT */
/*
 * test_driver_capture.c - graphs over memory that is not symmetric, between
 * symm_team_capture_begin and symm_team_capture_end: every collective and algorithm that uses
 * peers' arrays, replayed many times with other inputs; several brackets and teams; memory that
 * is symmetric in part, or that peers cannot map.
 * ctest: cost 7
 * ctest: load 3
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "cuda/device.h"

#define ROUNDS 4 /* scratch has places for three */

static int body_replays(symm_ctx *ctx, void *arg)
{
    const bool longer = harness_env("SYMM_TEST_LONG", 0) != 0;
    const int rounds = device_real() ? 1000 : longer ? 12 : ROUNDS;
    struct captured_stage s;

    CHECK_ZERO(captured_open(&s, ctx, *(const bool *)arg));
    CHECK_ZERO(captured_fill(&s, captured_jobs, CAPTURED_JOBS, 0));
    CHECK_OK(symm_team_capture_begin(s.team));
    /* Calls that are not captured are as ever. */
    CHECK_OK(captured_make(&s, s.team, &captured_jobs[CAPTURED_JOBS - 1],
                           CAPTURED_JOBS - 1));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, CAPTURED_CALLS, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < rounds; round++)
        CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, CAPTURED_CALLS, round));
    CHECK_OK(symm_barrier(s.team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, CAPTURED_SECONDS));
    captured_close(&s);
    return 0;
}

/* Chosen by the library, since no copy is needed. */
static int body_choice(symm_ctx *ctx, void *arg)
{
    const symm_call forced = {.size = sizeof(forced), .algorithm = "two_shot_inplace"};
    const size_t count = CAPTURED_AREA / 4;
    struct captured_stage s;
    symm_call call = {.size = sizeof(call)};

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    for (size_t i = 0; i < count; i++)
        captured_store(SYMM_INT32, s.host + 4 * i, captured_value(s.rank, 0, 0, i));
    CHECK_OK(perf_gpu_copy(s.gpu, s.in, s.host, CAPTURED_AREA));
    call.stream = s.stream;
    CHECK_STATUS(symm_all_reduce(s.team, s.in, s.out, count, SYMM_INT32, SYMM_SUM,
                                 &forced, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("not symmetric memory");
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_OK(perf_gpu_capture(s.gpu, s.stream));
    if (device_real()) /* there a table of costs may choose another one */
        call.algorithm = "two_shot_inplace";
    CHECK_OK(
        symm_all_reduce(s.team, s.in, s.out, count, SYMM_INT32, SYMM_SUM, &call, NULL));
    CHECK(strstr(symm_explain(s.team), "two_shot_inplace"));
    CHECK(strstr(symm_explain(s.team), "captured between symm_team_capture_begin"));
    CHECK_OK(perf_gpu_captured(s.gpu, s.stream, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK_OK(perf_gpu_replay(s.gpu, s.graph, s.stream));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS));
    CHECK_OK(perf_gpu_copy(s.gpu, s.host, s.out, CAPTURED_AREA));
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;

        for (int r = 0; r < s.n; r++)
            sum += captured_value(r, 0, 0, i);
        CHECK(captured_load(SYMM_INT32, s.host + 4 * i) == sum);
    }
    captured_close(&s);
    return 0;
}

/* Two brackets over the same memory; then another team's around a third one's. */
static int body_brackets(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    symm_team *other;
    void *second = NULL, *third = NULL, *fourth = NULL;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &other));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 5, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK(captured_opened(ctx) == 2 * (s.n - 1));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, CAPTURED_JOBS, &second));
    CHECK_OK(symm_team_capture_begin(other));
    CHECK_ZERO(captured_capture(&s, other, captured_jobs, CAPTURED_JOBS, &third));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 3, &fourth));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK_OK(symm_team_capture_end(other));
    CHECK(captured_opened(ctx) == 2 * (s.n - 1)); /* each allocation once */
    for (int round = 0; round < 4; round++) {
        CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, 5, 4 * round));
        CHECK_ZERO(
            captured_replay(&s, second, captured_jobs, CAPTURED_JOBS, 4 * round + 1));
        CHECK_ZERO(
            captured_replay(&s, third, captured_jobs, CAPTURED_JOBS, 4 * round + 2));
        CHECK_ZERO(captured_replay(&s, fourth, captured_jobs, 3, 4 * round + 3));
    }
    /* An empty bracket, and a team that ends with its calls. */
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_OK(symm_team_capture_end(s.team));
    perf_gpu_graph_free(s.gpu, third);
    symm_team_destroy(other);
    CHECK_ZERO(captured_replay(&s, second, captured_jobs, CAPTURED_JOBS, 99));
    perf_gpu_graph_free(s.gpu, second);
    perf_gpu_graph_free(s.gpu, fourth);
    captured_close(&s);
    return 0;
}

/* Symmetric memory on one side, and on both: then the call needs no entry. */
static int body_mixed(symm_ctx *ctx, void *arg)
{
    const struct captured_job both = {SYMM_KIND_ALL_REDUCE, "two_shot_inplace",
                                      SYMM_INT32, true};
    struct captured_stage s;
    symm_buffer *buffer;
    char *plain;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_buffer_alloc(s.team, CAPTURED_AREA, &buffer));
    CHECK_OK(symm_rendezvous(s.team));
    plain = s.in;
    s.in = symm_buffer_ptr(buffer);
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_OK(perf_gpu_capture(s.gpu, s.stream));
    s.alike = true;
    for (int k = 0; k < CAPTURED_JOBS; k++)
        if (!captured_jobs[k].in_place)
            CHECK_OK(captured_make(&s, s.team, &captured_jobs[k], k));
    CHECK_OK(captured_make(&s, s.team, &both, 0));
    CHECK(!strstr(symm_explain(s.team), "captured between"));
    CHECK_OK(perf_gpu_captured(s.gpu, s.stream, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < 4; round++) {
        struct captured_job list[CAPTURED_JOBS];

        CHECK_ZERO(captured_fill(&s, captured_jobs, CAPTURED_JOBS, round));
        CHECK_OK(perf_gpu_replay(s.gpu, s.graph, s.stream));
        CHECK_OK(symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS));
        memcpy(list, captured_jobs, sizeof(list));
        for (int k = 0; k < CAPTURED_JOBS; k++) /* those in place were not made */
            if (list[k].in_place)
                list[k] =
                    (struct captured_job){SYMM_KIND_COUNT, NULL, SYMM_INT32, false};
        CHECK_ZERO(captured_check(&s, list, CAPTURED_JOBS, round));
    }
    s.in = plain;
    symm_buffer_release(buffer);
    captured_close(&s);
    return 0;
}

/* Memory of the host has no handle that peers could open: it is staged, as without a bracket. */
static int body_staged(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    symm_call call = {.size = sizeof(call)};
    void *memory;
    float *x;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm__cuda_host_alloc(ctx, 2 * CAPTURED_AREA, &memory));
    x = memory;
    call.stream = s.stream;
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_OK(perf_gpu_capture(s.gpu, s.stream));
    CHECK_OK(symm_all_gather(s.team, x + CAPTURED_AREA / 4, x, CAPTURED_AREA / 16,
                             SYMM_FLOAT32, &call, NULL));
    CHECK_OK(perf_gpu_captured(s.gpu, s.stream, &s.graph));
    for (size_t i = 0; i < CAPTURED_AREA / 16; i++)
        x[CAPTURED_AREA / 4 + i] = (float)(s.rank + 1);
    CHECK_OK(
        perf_gpu_replay(s.gpu, s.graph, s.stream)); /* it has no entry to wait for */
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS));
    for (size_t i = 0; i < (size_t)s.n * (CAPTURED_AREA / 16); i++)
        CHECK(x[i] == (float)(i / (CAPTURED_AREA / 16) + 1));
    CHECK_OK(symm_team_capture_end(s.team));
    captured_close(&s);
    symm__cuda_host_free(ctx, memory);
    return 0;
}

/* ---- Suites --------------------------------------------------------------------------- */

static void test_replays(void **state)
{
    static const int ranks[] = {2, 3, 4, 8};
    bool mem = false;

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        assert_int_equal(captured_run((struct harness){
                             .ranks = ranks[i], .body = body_replays, .arg = &mem}),
                         0);
    mem = true;
    assert_int_equal(
        captured_run((struct harness){.ranks = 2, .body = body_replays, .arg = &mem}),
        0);
    assert_int_equal(
        captured_run((struct harness){
            .ranks = 3, .body = body_replays, .arg = &mem, .mode = HARNESS_THREADS}),
        0);
}

static void test_works(void **state)
{
    static const harness_body bodies[] = {body_choice, body_brackets, body_staged,
                                          body_mixed};

    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        for (int ranks = 2; ranks <= 3; ranks++)
            assert_int_equal(
                captured_run((struct harness){.ranks = ranks, .body = bodies[i]}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replays),
                                       cmocka_unit_test(test_works)};

    device_suite();
    if (device_ranks(2) < 2)
        return 77;
    if (!device_real())
        setenv("FAKE_CUDA_CHECK", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
