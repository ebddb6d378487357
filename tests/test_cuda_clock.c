/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_clock.c - while a peer has queued a call but its stream has not reached it, the
 * call's timeout does not run, up to SYMM_QUEUE_TIMEOUT. ctest: cost 11
 *
 * Over the fake driver, or on GPUs with SYMM_TEST_GPU=1: then with 5 s of the user's kernels
 * and a timeout of 2 s. Rank 1's stream is blocked by a long kernel or by a function that
 * waits for a gate. Rank 0's stream begins when both ranks have queued the call, so that a
 * slow machine does not change the result. A replayed graph does not count as queued.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"

#if SYMM_HAVE_CUDA
#include "user_kernels.h"

#define COUNT 1000
#define CALLS 3

/* What rank 1 does. */
enum scene {
    LASTS,      /* its stream is held up for some deadlines, then goes on */
    STUCK,      /* its stream is held up until rank 0 has failed */
    NOT_QUEUED, /* it calls when rank 0 has failed */
    KILLED,     /* it dies with its stream held up */
};

#define DEFAULT (-1.0) /* a limit: SYMM_QUEUE_TIMEOUT is not set */

struct job {
    enum scene scene;
    bool graph;     /* both replay a captured call */
    double timeout; /* seconds, of each call; what follows in deadlines: */
    double limit;   /* SYMM_QUEUE_TIMEOUT */
    double least;   /* that rank 0's call takes */
    double lasts;   /* rank 1's kernel, where it LASTS */
    struct harness_sync sync;
    _Atomic int queued; /* ranks that have queued the call */
    _Atomic int failed; /* rank 0's call has */
};

struct stage {
    struct job *job;
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct user_kernels kernels;
    struct device_area in, out;
    void *stream, *graph;
    symm_work *work[CALLS];
    int rank;
};

static symm_status reduce(struct stage *s, int k, symm_work **work)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "layer",
                            .stream = s->stream,
                            .timeout = s->job->timeout};

    return symm_all_reduce(s->team, s->in.device,
                           s->out.device + (size_t)k * COUNT * sizeof(float), COUNT,
                           SYMM_FLOAT32, SYMM_SUM, &call, work);
}

static int stage_open(struct stage *s, symm_ctx *ctx, struct job *job)
{
    memset(s, 0, sizeof(*s));
    s->job = job;
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(user_kernels_open(&s->kernels));
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL, COUNT * sizeof(float)));
    CHECK_ZERO(device_area_open(&s->out, s->gpu, NULL, CALLS * COUNT * sizeof(float)));
    for (int i = 0; i < COUNT; i++)
        ((float *)(void *)s->in.host)[i] = (float)(1 + s->rank + i % 7);
    CHECK_ZERO(device_put(&s->in, 0, COUNT * sizeof(float)));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    CHECK_OK(symm_barrier(s->team,
                          &(symm_call){.size = sizeof(symm_call),
                                       .stream = s->stream,
                                       .timeout = HARNESS_AMPLE},
                          NULL)); /* the stream has its channel */
    CHECK_OK(symm_stream_synchronize(ctx, s->stream, HARNESS_AMPLE));
    if (job->graph) {
        CHECK_ZERO(perf_gpu_capture(s->gpu, s->stream));
        CHECK_OK(reduce(s, 0, NULL));
        CHECK_ZERO(perf_gpu_captured(s->gpu, s->stream, &s->graph));
    }
    return harness_sync_wait(&job->sync, 2);
}

static void stage_close(struct stage *s)
{
    if (s->graph)
        perf_gpu_graph_free(s->gpu, s->graph);
    for (int k = 0; k < CALLS; k++)
        symm_work_release(s->work[k]);
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->in);
    device_area_close(&s->out);
    user_kernels_close(&s->kernels);
    perf_gpu_close(s->gpu);
}

/* ---- What holds streams up ---------------------------------------------------------- */

static void until_queued(void *arg)
{
    struct job *job = arg;

    (void)harness_until(&job->queued, 2);
}

static void until_failed(void *arg)
{
    struct job *job = arg;

    (void)harness_until(&job->failed, 1);
}

static int hold_up(struct stage *s)
{
    struct job *job = s->job;

    CHECK_OK(symm_stream_call(s->ctx, s->stream, until_queued, job));
    if (s->rank == 1 && job->scene == LASTS)
        CHECK_ZERO(user_kernels_last(&s->kernels, s->stream, 1, 32,
                                     job->lasts * job->timeout));
    if (s->rank == 1 && (job->scene == STUCK || job->scene == KILLED))
        CHECK_OK(symm_stream_call(s->ctx, s->stream, until_failed, job));
    return 0;
}

/* ---- Both ranks --------------------------------------------------------------------- */

static int queue(struct stage *s)
{
    if (s->graph)
        CHECK_ZERO(perf_gpu_replay(s->gpu, s->graph, s->stream));
    for (int k = 0; k < CALLS && !s->graph; k++)
        CHECK_OK(reduce(s, k, &s->work[k]));
    return 0;
}

/* How rank 0's call has ended. */
static symm_status outcome(struct stage *s)
{
    symm_status status = symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE);

    for (int k = 0; k < CALLS && !s->graph && status == SYMM_OK; k++)
        status = symm_work_synchronize(s->work[k], HARNESS_AMPLE);
    if (s->graph && status == SYMM_OK)
        status = reduce(s, 1, NULL); /* which tells of a failure */
    return status;
}

static int check_values(struct stage *s, int calls)
{
    CHECK_ZERO(device_get(&s->out, 0, CALLS * COUNT * sizeof(float)));
    for (int i = 0; i < calls * COUNT; i++)
        CHECK(((float *)(void *)s->out.host)[i] == (float)(3 + 2 * (i % COUNT % 7)));
    return 0;
}

static int check_sentence(const struct job *job, symm_status status)
{
    const bool queued = job->scene == STUCK && !job->graph;

    if (job->scene == KILLED) {
        CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 1");
        return 0;
    }
    CHECK_STATUS(status, SYMM_ERR_TIMEOUT);
    CHECK_ERROR("rank 1");
    CHECK_ERROR("'layer'");
    if (queued) {
        CHECK_ERROR("rank 1 has queued it, its stream has not reached it");
        CHECK_ERROR("SYMM_QUEUE_TIMEOUT");
    } else {
        CHECK_MESSAGE(!strstr(symm_last_error(), "has queued"), "%s",
                      symm_last_error());
    }
    return 0;
}

static int waits(struct stage *s)
{
    struct job *job = s->job;
    double begin = harness_now();
    symm_status status;

    status = outcome(s);
    begin = harness_now() - begin;
    atomic_store(&job->failed, 1);
    CHECK_MESSAGE(begin >= job->least * job->timeout, "%s after %g s: %s",
                  symm_status_name(status), begin, symm_last_error());
    CHECK_MESSAGE(begin < HARNESS_SOON, "%s only after %g s: %s",
                  symm_status_name(status), begin, symm_last_error());
    if (job->scene != LASTS || job->graph)
        CHECK_ZERO(check_sentence(job, status));
    else
        CHECK_OK(status);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, job));
    CHECK_ZERO(hold_up(&s));
    if (s.rank == 0 || job->scene != NOT_QUEUED)
        CHECK_ZERO(queue(&s));
    atomic_fetch_add(&job->queued, 1);
    if (s.rank == 1 && job->scene == KILLED) {
        (void)harness_until(&job->queued, 2);
        harness_sleep(3 * job->timeout);
        raise(SIGKILL);
    }
    if (s.rank == 0)
        CHECK_ZERO(waits(&s));
    else
        CHECK(harness_until(&job->failed, 1));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    if (job->scene == LASTS && !job->graph)
        CHECK_ZERO(check_values(&s, CALLS));
    stage_close(&s);
    return 0;
}

static int attempt(const struct job *job)
{
    struct job *shared = harness_shared(sizeof(*shared));
    const struct harness h = {.ranks = 2,
                              .body = body,
                              .arg = shared,
                              .killed = job->scene == KILLED ? 2 : 0};
    char limit[32];
    int failed;

    *shared = *job;
    snprintf(limit, sizeof(limit), "%g", job->limit * job->timeout);
    if (job->limit >= 0)
        setenv("SYMM_QUEUE_TIMEOUT", limit, 1);
    failed = harness_run(&h);
    unsetenv("SYMM_QUEUE_TIMEOUT");
    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

/* On a busy machine ranks that go on may miss a short deadline: then again. */
static void run(struct job job)
{
    int failed = 1;

    if (device_ranks(2) < 2)
        skip();
    job.timeout = device_real() ? 2 : 0.25;
    for (int turn = 0; turn < 3 && failed; turn++, job.timeout *= 3)
        failed = attempt(&job);
    assert_int_equal(failed, 0);
}

/* ---- Tests ---------------------------------------------------------------------------- */

/* Kernels of the user's on one rank that last longer than the deadline. */
static void test_own_kernels(void **state)
{
    (void)state;
    run((struct job){.scene = LASTS, .limit = DEFAULT, .lasts = 2.5, .least = 2});
}

/* The same for two graphs: then the clock runs from the own kernel on. */
static void test_graph(void **state)
{
    (void)state;
    run((struct job){
        .scene = LASTS, .graph = true, .limit = DEFAULT, .lasts = 2.5, .least = 1});
}

static void test_limit(void **state)
{
    (void)state;
    run((struct job){.scene = STUCK, .limit = 3, .least = 3});
    run((struct job){.scene = STUCK, .limit = 0.1, .least = 1}); /* no less than that */
}

static void test_default_limit(void **state)
{
    (void)state;
    run((struct job){.scene = STUCK, .limit = DEFAULT, .least = 10});
}

static void test_no_limit(void **state)
{
    (void)state;
    run((struct job){.scene = LASTS, .limit = 0, .lasts = 12, .least = 11});
}

static void test_not_queued(void **state)
{
    (void)state;
    run((struct job){.scene = NOT_QUEUED, .limit = 0, .least = 1});
}

static void test_killed(void **state)
{
    (void)state;
    run((struct job){.scene = KILLED, .limit = 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_kernels), cmocka_unit_test(test_graph),
        cmocka_unit_test(test_limit),       cmocka_unit_test(test_default_limit),
        cmocka_unit_test(test_no_limit),    cmocka_unit_test(test_not_queued),
        cmocka_unit_test(test_killed),
    };

    device_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 77;
}
#endif
