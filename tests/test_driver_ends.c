/* SPDX-License-Identifier: MIT */
/*
 * test_driver_ends.c - teams and contexts that end while calls of several teams are outstanding on
 * several streams, over the model of a device: what is queued ends, a call that is lost is an error.
 * ctest: cost 4
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"

#define RANKS   3
#define TEAMS   3
#define STREAMS 4
#define ROUNDS  2
#define COUNT   ((size_t)5000)
#define BYTES   (COUNT * sizeof(float))
#define CALLS   (STREAMS * ROUNDS * TEAMS)
#define LOST    1 /* the team */

enum what {
    DESTROY,  /* each rank destroys its teams in an order of its own */
    FINALIZE, /* each rank ends its context */
    LEAVE,    /* rank 0 does so before its last call on each stream */
    DROP,     /* rank 0 destroys a team before its last call on each stream */
    ABORT,    /* rank 0 aborts a team amid its calls */
    KINDS
};

struct job {
    struct harness_sync sync;
    enum what what;
};

struct stage {
    struct device_rank r; /* first */
    struct job *job;
    symm_team *team[TEAMS];
};

static int stage_open(struct stage *s, symm_ctx *ctx, void *arg)
{
    *s = (struct stage){.job = arg};
    CHECK_ZERO(device_rank_open(&s->r, ctx, BYTES, CALLS * BYTES, 0, STREAMS));
    for (size_t j = 0; j < COUNT; j++)
        ((float *)(void *)s->r.in.host)[j] = (float)(1 + s->r.rank);
    CHECK_ZERO(device_put(&s->r.in, 0, BYTES));
    s->team[0] = s->r.team;
    for (int t = 1; t < TEAMS; t++)
        CHECK_OK(symm_team_split(s->r.team, 0, t * s->r.rank, &s->team[t]));
    return harness_sync_wait(&s->job->sync, s->r.n);
}

static symm_status sum(struct stage *s, int stream, int k)
{
    static const char *const sites[STREAMS] = {"a", "b", "c", "d"};
    const symm_call call = {
        .size = sizeof(call), .site = sites[stream], .stream = s->r.streams[stream]};
    const size_t at = (size_t)(stream * ROUNDS * TEAMS + k) * BYTES;

    return symm_all_reduce(s->team[(k + LOST + 1) % TEAMS], s->r.in.device,
                           s->r.out.device + at, COUNT, SYMM_FLOAT32, SYMM_SUM, &call,
                           NULL);
}

/* The first `most` calls of each stream; the streams in an order of this rank's own. */
static int queue(struct stage *s, int most)
{
    uint64_t random = 77 + (uint64_t)s->r.rank + 10 * (uint64_t)s->job->what;
    int done[STREAMS] = {0}, left = STREAMS * most;
    const bool fails = s->job->what >= LEAVE;
    bool aborts = s->job->what == ABORT && s->r.rank == 0;

    while (left > 0) {
        const int i = (int)(harness_random(&random) % STREAMS);
        const int some = 1 + (int)(harness_random(&random) % 3);

        for (int k = 0; k < some && done[i] < most; k++, left--) {
            const symm_status status = sum(s, i, done[i]++);

            CHECK_MESSAGE(status == SYMM_OK || fails, "%s", symm_last_error());
        }
        if (aborts && left <= STREAMS * most / 2) {
            CHECK_OK(symm_team_abort(s->team[LOST], "enough"));
            aborts = false;
        }
    }
    return 0;
}

static int check_sums(struct stage *s)
{
    CHECK_ZERO(device_get(&s->r.out, 0, CALLS * BYTES));
    for (size_t j = 0; j < CALLS * COUNT; j++)
        CHECK(((float *)(void *)s->r.out.host)[j] == 6.0f);
    return 0;
}

/* Every call ends, and the lost team's next one says why. */
static int check_lost(struct stage *s)
{
    const double begin = harness_now();

    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(symm_stream_synchronize(s->r.ctx, s->r.streams[i], HARNESS_AMPLE));
    CHECK(harness_now() - begin < HARNESS_SOON);
    CHECK(symm_barrier(s->team[LOST], NULL, NULL) != SYMM_OK ||
          (symm_stream_synchronize(s->r.ctx, NULL, HARNESS_AMPLE) == SYMM_OK &&
           symm_barrier(s->team[LOST], NULL, NULL) != SYMM_OK));
    CHECK_MESSAGE(strstr(symm_last_error(), "rank 0") ||
                      strstr(symm_last_error(), "enough"),
                  "%s", symm_last_error());
    return 0;
}

static int ends(symm_ctx *ctx, void *arg)
{
    static struct stage s; /* of a process: a context that ends does not use it */
    const int all = ROUNDS * TEAMS;

    CHECK_ZERO(stage_open(&s, ctx, arg));
    if (s.job->what == ABORT && s.r.rank == 0)
        harness_sleep(0.1); /* the others wait in kernels */
    CHECK_ZERO(queue(&s, s.r.rank == 0 && (s.job->what == LEAVE || s.job->what == DROP)
                             ? all - 1
                             : all));
    if (s.job->what == FINALIZE || (s.job->what == LEAVE && s.r.rank == 0))
        return 0;
    if (s.r.rank != 0 && s.job->what != DESTROY)
        CHECK_ZERO(check_lost(&s));
    for (int t = 1; t < TEAMS; t++) {
        const int k = s.r.rank == 1 || s.job->what == DROP ? t : TEAMS - t;

        symm_team_destroy(s.team[k]);
    }
    if (s.job->what == DESTROY) {
        CHECK_OK(symm_barrier(s.r.team, NULL, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
        CHECK_ZERO(check_sums(&s));
    }
    device_rank_close(&s.r);
    return 0;
}

static int run(enum what what)
{
    struct job *job = harness_shared(sizeof(*job));
    int failed;

    job->what = what;
    failed = harness_run(&(struct harness){.ranks = RANKS, .body = ends, .arg = job});
    harness_shared_free(job, sizeof(*job));
    return failed;
}

static void test_ends(void **state)
{
    (void)state;
    for (int what = 0; what < KINDS; what++)
        assert_int_equal(run((enum what)what), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends)};

    device_suite();
    if (device_real())
        return 77;
    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
