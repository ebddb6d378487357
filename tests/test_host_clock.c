/* SPDX-License-Identifier: MIT */
/*
 * test_host_clock.c - a call of many rounds has one deadline. Rank 1 stores the words of each
 * round by hand, each shortly before a single wait would time out: rank 0's call must still
 * end at its one deadline. The next call has the whole timeout again.
 */
#include "core/team.h"
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT ((size_t)200000) /* floats: by copy_in seven rounds */

struct job {
    double timeout, lag; /* seconds; lag: of each round, in deadlines */
    int calls;           /* that rank 0 makes */
    struct harness_sync sync;
    _Atomic int done; /* rank 0 has its result */
    double took;
    symm_status status;
};

/* Rank 1 follows rank 0 from round to round, late each time. */
static int follow(symm_team *team, struct job *job)
{
    struct symm_state *state = &team->channel[0].state;
    uint32_t epoch = state->epoch;

    for (int polls = 0; !atomic_load(&job->done) && polls < 200000; polls++) {
        const uint32_t next = epoch + 1;
        const uint64_t seen = symm_device_word_load(&state->slots[0][next & 1].word);

        if ((uint32_t)seen != next || seen >> 32 == 0) {
            harness_sleep(0.0005);
            continue;
        }
        harness_sleep(job->lag * job->timeout);
        symm_device_word_store(&state->slots[1][next & 1].word, seen);
        epoch = next;
    }
    state->epoch = epoch;
    return 0;
}

static int lead(symm_team *team, struct job *job)
{
    const symm_call call = {
        .size = sizeof(call), .algorithm = "copy_in", .timeout = job->timeout};
    float *data = calloc(COUNT, sizeof(*data));
    double begin;

    CHECK(data != NULL);
    for (int i = 0; i < job->calls && job->status == SYMM_OK; i++) {
        begin = harness_now();
        job->status = symm_all_reduce(team, data, data, COUNT, SYMM_FLOAT32, SYMM_SUM,
                                      &call, NULL);
        job->took = (harness_now() - begin) / job->timeout;
    }
    atomic_store(&job->done, 1);
    free(data);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    symm_team *team = symm_team_world(ctx);

    CHECK_OK(symm_barrier(team, NULL, NULL));
    CHECK_ZERO(harness_sync_wait(&job->sync, 2));
    return symm_team_rank(team) == 0 ? lead(team, job) : follow(team, job);
}

/* How long the last call took, in deadlines; < 0: a rank has failed otherwise. */
static double play(struct job *job)
{
    struct job *shared = harness_shared(sizeof(*shared));
    int failed;

    *shared = *job;
    failed = harness_run(&(struct harness){.ranks = 2, .body = body, .arg = shared});
    *job = *shared;
    harness_shared_free(shared, sizeof(*shared));
    printf("lag %g: %s after %.2f deadlines of %g s\n", job->lag,
           symm_status_name(job->status), job->took, job->timeout);
    return failed ? -1 : job->took;
}

static void test_rounds(void **state)
{
    double timeout;

    (void)state;
    HARNESS_PATIENCE(timeout, 0.3)
    {
        struct job job = {.timeout = timeout, .lag = 0.7, .calls = 1};
        const double took = play(&job);

        assert_true(took >= 1);
        assert_int_equal(job.status, SYMM_ERR_TIMEOUT);
        if (took < 1.35)
            break;
    }
    assert_true(timeout <= HARNESS_SOON);
}

/* Each call takes most of its deadline. */
static void test_calls(void **state)
{
    double timeout;

    (void)state;
    HARNESS_PATIENCE(timeout, 0.5)
    {
        struct job job = {.timeout = timeout, .lag = 0.08, .calls = 3};

        assert_true(play(&job) > 0);
        if (job.status == SYMM_OK)
            break;
    }
    assert_true(timeout <= HARNESS_SOON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds),
                                       cmocka_unit_test(test_calls)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
