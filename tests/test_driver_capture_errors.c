/* SPDX-License-Identifier: MIT */
/*
 * test_driver_capture_errors.c - graphs over memory that is not symmetric: each way in which a
 * bracket or a replay fails, on all ranks, without a wrong result; what is unmapped after it.
 * ctest: cost 7
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "util/clock.h"

/* The replay has failed on this rank; no output holds a sum. */
static int check_failed(struct captured_stage *s, int round, const char *words)
{
    bool other = false;

    if (symm_stream_synchronize(s->ctx, s->stream, CAPTURED_SECONDS) != SYMM_OK)
        CHECK_ERROR(words);
    CHECK_STATUS(symm_barrier(s->team, NULL, NULL), SYMM_ERR_ABORTED);
    CHECK_ERROR(words);
    CHECK_OK(perf_gpu_copy(s->gpu, s->host, s->out, CAPTURED_AREA));
    for (size_t i = 0; i < captured_count(1); i++) /* call 1 is not in place */
        other = other || captured_load(SYMM_INT32,
                                       s->host + captured_place(s, false, 1) + 4 * i) !=
                             captured_wanted(s, &captured_jobs[1], 1, round, 0, i);
    CHECK(other);
    return 0;
}

/* All ranks have ended their calls: a failure would stop those that are under way, too. */
static int meet(struct captured_stage *s)
{
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, CAPTURED_SECONDS));
    CHECK_OK(symm_rendezvous(s->team));
    return 0;
}

/* A graph of calls 0 and 1 that fails. */
static int fails(struct captured_stage *s, void *graph, const char *words)
{
    CHECK_ZERO(meet(s));
    CHECK_ZERO(captured_fill(s, captured_jobs, 2, 5));
    CHECK_OK(perf_gpu_replay(s->gpu, graph, s->stream));
    return check_failed(s, 5, words);
}

static int body_before(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    CHECK_ZERO(fails(&s, s.graph, "symm_team_capture_end has not come yet"));
    CHECK_ERROR("captured call 1 of bracket 1 (all_reduce of 1 float32, "
                "two_shot_inplace)");
    CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_ABORTED);
    captured_close(&s);
    return 0;
}

/* Rank *arg releases its memory: the replays of all fail. */
static int body_released(symm_ctx *ctx, void *arg)
{
    const int which = *(const int *)arg;
    char words[48];
    struct captured_stage s;

    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_release(s.team, s.in,
                                       CAPTURED_AREA)); /* nothing was captured */
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, 2, round));
    CHECK_OK(symm_team_capture_release(s.team, s.in + CAPTURED_AREA - 64,
                                       64)); /* of no call */
    CHECK_OK(symm_team_capture_release(s.team, s.host, CAPTURED_AREA));
    CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, 2, 3));
    CHECK_ZERO(meet(&s));
    if (s.rank == which)
        CHECK_OK(symm_team_capture_release(s.team, s.out,
                                           CAPTURED_AREA / CAPTURED_CALLS + 4096));
    snprintf(words, sizeof(words), "but rank %d has released [", which);
    CHECK_ZERO(captured_fill(&s, captured_jobs, 2, 5));
    CHECK_OK(perf_gpu_replay(s.gpu, s.graph, s.stream));
    CHECK_ZERO(check_failed(&s, 5, words));
    CHECK_ERROR("captured call 2 of bracket 1 (all_reduce of 4 int32");
    captured_close(&s);
    return 0;
}

/* Memory goes and comes again: the next bracket's calls are right, and what peers had mapped
 * is unmapped. The old graph is an error everywhere, for its own reason. */
static int body_again(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    void *fresh = NULL;

    CHECK_ZERO(captured_open(&s, ctx, *(const bool *)arg));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 5, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, 5, 0));
    CHECK_OK(symm_barrier(s.team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, CAPTURED_SECONDS));
    if (s.rank == 0) {
        CHECK_OK(symm_team_capture_release(s.team, s.in, CAPTURED_AREA));
        CHECK_OK(symm_team_capture_release(s.team, s.out, CAPTURED_AREA));
        captured_area_free(&s, s.in);
        captured_area_free(&s, s.out);
        CHECK_ZERO(captured_area(&s, &s.out));
        CHECK_ZERO(captured_area(&s, &s.in));
    }
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, CAPTURED_JOBS, &fresh));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK(captured_opened(ctx) == 2 * (s.n - 1));
    for (int round = 0; round < 4; round++)
        CHECK_ZERO(captured_replay(&s, fresh, captured_jobs, CAPTURED_JOBS, round));
    CHECK_ZERO(fails(&s, s.graph, "rank 0 has released"));
    perf_gpu_graph_free(s.gpu, fresh);
    captured_close(&s);
    return 0;
}

/* Released within the bracket: nobody's call becomes ready, the bracket's others do. */
static int body_early(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    void *good = NULL;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    if (s.rank == s.n - 1)
        CHECK_OK(symm_team_capture_release(s.team, s.in, CAPTURED_AREA));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 4, &good));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(captured_replay(&s, good, captured_jobs, 4, round));
    CHECK_ZERO(fails(&s, s.graph, "has released"));
    perf_gpu_graph_free(s.gpu, good);
    captured_close(&s);
    return 0;
}

enum difference { NUMBER, SIZE, TYPE };

static int body_mismatch(symm_ctx *ctx, void *arg)
{
    const enum difference difference = *(const enum difference *)arg;
    struct captured_job list[CAPTURED_JOBS];
    struct captured_stage s;
    bool odd;

    memcpy(list, captured_jobs, sizeof(list));
    CHECK_ZERO(captured_open(&s, ctx, false));
    odd = s.rank == s.n - 1;
    CHECK_OK(symm_team_capture_begin(s.team));
    if (odd && difference == TYPE)
        list[1].dtype = SYMM_FLOAT32;
    CHECK_OK(perf_gpu_capture(s.gpu, s.stream));
    for (int k = 0; k < (odd && difference == NUMBER ? 1 : 2); k++)
        CHECK_OK(captured_make(&s, s.team, &list[k],
                               odd && difference == SIZE && k ? 2 : k));
    CHECK_OK(perf_gpu_captured(s.gpu, s.stream, &s.graph));
    CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_MISMATCH);
    CHECK_ERROR("captured call 2 differs");
    CHECK_ERROR(difference == NUMBER ? "has no more"
                : difference == SIZE ? "all_reduce sum of 37 int32"
                                     : "all_reduce sum of 4 float32");
    CHECK_ZERO(fails(&s, s.graph, "symm_team_capture_end has failed"));
    captured_close(&s);
    return 0;
}

/* After a bracket that has failed the next one is right. */
static int body_recovers(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    void *bad = NULL;

    (void)arg;
    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2 + (s.rank == 0), &bad));
    CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_MISMATCH);
    CHECK(captured_opened(ctx) == 0);
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, CAPTURED_JOBS, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, CAPTURED_JOBS, round));
    perf_gpu_graph_free(s.gpu, bad);
    captured_close(&s);
    return 0;
}

/* The last rank, or each one, abandons the bracket. The team goes on. */
static int body_abandoned(symm_ctx *ctx, void *arg)
{
    const bool all = *(const bool *)arg;
    struct captured_stage s;
    void *bad = NULL;

    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &bad));
    CHECK_ZERO(meet(&s)); /* who abandons does not wait for long */
    if (all || s.rank == s.n - 1) {
        CHECK_OK(symm_team_capture_abandon(s.team, "the body\n failed"));
        CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_INVALID);
    } else {
        CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_ABORTED);
        CHECK_ERROR("rank 2 has abandoned bracket 1: the body? failed; capture");
    }
    CHECK(captured_opened(ctx) == 0);
    CHECK_STATUS(symm_team_capture_abandon(s.team, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_team_capture_abandon: no symm_team_capture_begin");
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, CAPTURED_JOBS, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    for (int round = 0; round < 3; round++)
        CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, CAPTURED_JOBS, round));
    CHECK_ZERO(fails(&s, bad, "symm_team_capture_end has failed"));
    perf_gpu_graph_free(s.gpu, bad);
    captured_close(&s);
    return 0;
}

/* The last rank abandons the bracket while the others do not come to its end: it does not wait
 * for long, and they see why, in a call that waits for it and at the end. */
static int body_abandoned_early(symm_ctx *ctx, void *arg)
{
    struct harness_sync *begun = arg; /* shared */
    struct captured_stage s;
    double since;

    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    CHECK_ZERO(harness_sync_wait(begun, s.n));
    since = symm__now();
    if (s.rank == s.n - 1) {
        ctx->timeout = 0.5;
        CHECK_STATUS(symm_team_capture_abandon(s.team, "out of memory"),
                     SYMM_ERR_ABORTED);
        CHECK_ERROR(
            "rank 2 has abandoned its captures: out of memory, and rank 0 and rank "
            "1 have not come to capture end");
    } else if (s.rank == 0) {
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        if (symm_stream_synchronize(ctx, NULL, CAPTURED_SECONDS) != SYMM_OK)
            CHECK_ERROR("rank 2 has abandoned its captures: out of memory");
        CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_ABORTED);
        CHECK_ERROR("rank 2 has abandoned its captures: out of memory");
    } else {
        harness_sleep(1.5);
        CHECK_STATUS(symm_team_capture_end(s.team), SYMM_ERR_ABORTED);
        CHECK_ERROR("rank 2 has abandoned its captures: out of memory");
    }
    CHECK(symm__now() - since < CAPTURED_SECONDS / 2);
    CHECK_STATUS(symm_barrier(s.team, NULL, NULL), SYMM_ERR_ABORTED);
    captured_close(&s);
    return 0;
}

/* A release that names no team ends the calls of all: two teams, one of which has ended. */
static int body_all_teams(symm_ctx *ctx, void *arg)
{
    struct captured_stage s;
    symm_team *teams[2];
    void *graphs[2] = {NULL, NULL};

    (void)arg;
    CHECK_OK(symm_capture_release(NULL, 0));
    CHECK_ZERO(captured_open(&s, ctx, false));
    for (int t = 0; t < 2; t++) {
        CHECK_OK(symm_team_split(s.team, 0, s.rank, &teams[t]));
        CHECK_OK(symm_team_capture_begin(teams[t]));
        CHECK_ZERO(captured_capture(&s, teams[t], captured_jobs, 2, &graphs[t]));
        CHECK_OK(symm_team_capture_end(teams[t]));
    }
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    CHECK_OK(symm_team_capture_end(s.team));
    CHECK_OK(symm_capture_release(s.host, CAPTURED_AREA)); /* of no call */
    for (int t = 0; t < 2; t++)
        CHECK_ZERO(captured_replay(&s, graphs[t], captured_jobs, 2, t));
    CHECK_ZERO(captured_replay(&s, s.graph, captured_jobs, 2, 2));
    CHECK_ZERO(meet(&s));
    perf_gpu_graph_free(s.gpu, graphs[0]);
    symm_team_destroy(teams[0]);
    if (s.rank == 0) /* up to the last address */
        CHECK_OK(symm_capture_release(s.in, SIZE_MAX));
    CHECK_OK(perf_gpu_replay(s.gpu, graphs[1], s.stream));
    if (symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS) != SYMM_OK)
        CHECK_ERROR("but rank 0 has released [");
    CHECK_STATUS(symm_barrier(teams[1], NULL, NULL), SYMM_ERR_ABORTED);
    CHECK_ERROR("but rank 0 has released [");
    CHECK_ZERO(fails(&s, s.graph, "but rank 0 has released ["));
    perf_gpu_graph_free(s.gpu, graphs[1]);
    captured_close(&s);
    return 0;
}

/* The last rank dies, or does not come. */
struct absence {
    bool dies;
    struct harness_sync captured;
};

static int body_absent(symm_ctx *ctx, void *arg)
{
    struct absence *absence = arg; /* shared */
    const bool dies = absence->dies;
    struct captured_stage s;

    CHECK_ZERO(captured_open(&s, ctx, false));
    CHECK_OK(symm_team_capture_begin(s.team));
    CHECK_ZERO(captured_capture(&s, s.team, captured_jobs, 2, &s.graph));
    CHECK_ZERO(harness_sync_wait(&absence->captured, s.n));
    if (s.rank == s.n - 1 && dies)
        raise(SIGKILL);
    if (s.rank == s.n - 1) {
        harness_sleep(1.5);
    } else {
        ctx->timeout = dies ? CAPTURED_SECONDS : 0.5;
        CHECK_STATUS(symm_team_capture_end(s.team),
                     dies ? SYMM_ERR_PEER_DEAD : SYMM_ERR_TIMEOUT);
        CHECK_ERROR(s.n == 2 ? "rank 1" : "rank 2");
        CHECK(symm_barrier(s.team, NULL, NULL) != SYMM_OK);
        CHECK_OK(
            perf_gpu_replay(s.gpu, s.graph, s.stream)); /* ends, and says nothing */
        if (symm_stream_synchronize(ctx, s.stream, CAPTURED_SECONDS) != SYMM_OK)
            CHECK_ERROR("rank");
    }
    captured_close(&s);
    return 0;
}

static int body_misuse(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);

    (void)arg;
    CHECK_STATUS(symm_team_capture_end(team), SYMM_ERR_INVALID);
    CHECK_ERROR("no symm_team_capture_begin came before");
    CHECK_OK(symm_team_capture_begin(team));
    CHECK_STATUS(symm_team_capture_begin(team), SYMM_ERR_IN_USE);
    CHECK_ERROR("has begun already");
    CHECK_OK(symm_team_capture_end(team));
    CHECK_STATUS(symm_team_capture_end(team), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_capture_begin(NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_capture_end(NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_capture_release(NULL, team, 1), SYMM_ERR_INVALID);
    CHECK_OK(symm_team_capture_release(team, NULL, 0));
    return 0;
}

static int body_host(symm_ctx *ctx, void *arg)
{
    (void)arg;
    CHECK_STATUS(symm_team_capture_begin(symm_team_world(ctx)), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("host backend");
    CHECK_STATUS(symm_team_capture_end(symm_team_world(ctx)), SYMM_ERR_INVALID);
    return 0;
}

/* ---- Suites --------------------------------------------------------------------------- */

static void on_host(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = "host";
}

static void test_release(void **state)
{
    bool mem = false;

    (void)state;
    for (int which = 0; which < 3; which++)
        assert_int_equal(captured_run((struct harness){
                             .ranks = 3, .body = body_released, .arg = &which}),
                         0);
    assert_int_equal(
        captured_run((struct harness){.ranks = 2, .body = body_again, .arg = &mem}), 0);
    mem = true;
    assert_int_equal(
        captured_run((struct harness){.ranks = 3, .body = body_again, .arg = &mem}), 0);
    assert_int_equal(captured_run((struct harness){.ranks = 3, .body = body_early}), 0);
    assert_int_equal(captured_run((struct harness){.ranks = 2, .body = body_all_teams}),
                     0);
}

static void test_abandoned(void **state)
{
    struct harness_sync *begun = harness_shared(sizeof(*begun));

    (void)state;
    for (int i = 0; i < 2; i++) {
        bool all = i == 1;

        assert_int_equal(captured_run((struct harness){
                             .ranks = 3, .body = body_abandoned, .arg = &all}),
                         0);
    }
    assert_int_equal(captured_run((struct harness){
                         .ranks = 3, .body = body_abandoned_early, .arg = begun}),
                     0);
    harness_shared_free(begun, sizeof(*begun));
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(captured_run((struct harness){.ranks = 2, .body = body_before}),
                     0);
    for (int d = NUMBER; d <= TYPE; d++) {
        enum difference difference = (enum difference)d;

        assert_int_equal(captured_run((struct harness){
                             .ranks = 3, .body = body_mismatch, .arg = &difference}),
                         0);
    }
    assert_int_equal(captured_run((struct harness){.ranks = 3, .body = body_recovers}),
                     0);
    assert_int_equal(captured_run((struct harness){.ranks = 2, .body = body_misuse}),
                     0);
    assert_int_equal(captured_run((struct harness){
                         .ranks = 2, .body = body_host, .configure = on_host}),
                     0);
}

static void test_absent(void **state)
{
    struct absence *absence = harness_shared(sizeof(*absence));

    (void)state;
    assert_int_equal(
        captured_run((struct harness){.ranks = 2, .body = body_absent, .arg = absence}),
        0);
    *absence = (struct absence){.dies = true};
    assert_int_equal(captured_run((struct harness){
                         .ranks = 3, .body = body_absent, .arg = absence, .killed = 4}),
                     0);
    harness_shared_free(absence, sizeof(*absence));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_release), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_abandoned), cmocka_unit_test(test_absent)};

    device_suite();
    if (device_ranks(2) < 2)
        return 77;
    if (!device_real())
        setenv("FAKE_CUDA_CHECK", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
