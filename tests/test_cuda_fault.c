/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_fault.c - dead, late and wrong ranks on the CUDA backend.
 * ctest: cost 7
 * ctest: load 2
 *
 * Over the fake driver, or on GPUs with SYMM_TEST_GPU=1. A rank is killed while the others
 * wait in a kernel: every survivor's work handle has an error that names the dead rank, the
 * device still works, and a team of the survivors works. A late rank: the error at the
 * deadline names it. A rank at another call site: all ranks get an error with both sites.
 * Times are printed; their bounds are loose unless SYMM_TEST_STRICT=1.
 */
#include "device.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT    1000
#define DEADLINE 2.0 /* seconds, of the calls that a late rank lets fail */

enum fault { KILLED, LATE, OTHER_SITE, OTHER_COUNT, OTHER_OP, FAULTS };
static const char *const fault_names[FAULTS] = {"killed", "late", "another site",
                                                "another count", "another reduction"};

struct shared {
    struct harness_sync sync;
    enum fault fault;
    const char *algorithm;
    int victim;
    _Atomic int waiting; /* survivors whose kernel is on its way */
    _Atomic int failed;  /* survivors who have got their error */
    double took[HARNESS_MAX_RANKS];
};

struct rank {
    struct shared *shared;
    symm_team *team, *rest; /* rest: all but the victim */
    struct perf_gpu *gpu;
    struct device_area in, out;
    void *stream;
    int me, n;
};

static int rank_open(struct rank *r, symm_ctx *ctx, struct shared *shared)
{
    memset(r, 0, sizeof(*r));
    r->shared = shared;
    r->team = symm_team_world(ctx);
    r->me = symm_team_rank(r->team);
    r->n = symm_team_size(r->team);
    r->gpu = device_open(ctx);
    CHECK(r->gpu);
    CHECK_ZERO(device_area_open(&r->in, r->gpu, r->team, COUNT * 4));
    CHECK_ZERO(device_area_open(&r->out, r->gpu, r->team, COUNT * 4));
    CHECK_OK(symm_rendezvous(r->team));
    CHECK_OK(
        symm_team_split(r->team, r->me == shared->victim ? -1 : 0, r->me, &r->rest));
    CHECK_OK(symm_stream_create(ctx, &r->stream));
    return 0;
}

static void rank_close(struct rank *r, symm_ctx *ctx)
{
    symm_stream_destroy(ctx, r->stream);
    symm_team_destroy(r->rest);
    device_area_close(&r->in);
    device_area_close(&r->out);
    perf_gpu_close(r->gpu);
}

static symm_status reduce(const struct rank *r, symm_team *team, const char *site,
                          size_t count, symm_op op, double timeout, symm_work **work)
{
    const symm_call call = {.size = sizeof(call),
                            .site = site,
                            .stream = r->stream,
                            .algorithm = r->shared->algorithm,
                            .timeout = timeout};

    return symm_all_reduce(team, r->in.device, r->out.device, count, SYMM_FLOAT32, op,
                           &call, work);
}

/* One all-reduce with a checked result. */
static int good_call(struct rank *r, symm_team *team)
{
    float *in = (float *)(void *)r->in.host, *out = (float *)(void *)r->out.host;
    int me = symm_team_rank(team), n = symm_team_size(team);
    symm_work *work = NULL;

    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(me + i % 5);
    CHECK_ZERO(device_put(&r->in, 0, COUNT * 4));
    CHECK_OK(reduce(r, team, "good", COUNT, SYMM_SUM, HARNESS_AMPLE, &work));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    symm_work_release(work);
    CHECK_ZERO(device_get(&r->out, 0, COUNT * 4));
    for (int i = 0; i < COUNT; i++)
        CHECK_MESSAGE(out[i] == (float)(n * (n - 1) / 2 + n * (i % 5)),
                      "element %d is %g", i, (double)out[i]);
    return 0;
}

/* The victim's own behaviour; the others return what their call came to. */
static symm_status bad_call(struct rank *r, symm_work **work)
{
    const struct shared *s = r->shared;
    bool odd = r->me == s->victim;

    if (odd && s->fault == KILLED) {
        (void)harness_until(&r->shared->waiting, r->n - 1);
        harness_sleep(0.05); /* their kernels are polling */
        raise(SIGKILL);
    }
    if (odd && s->fault == LATE)
        (void)harness_until(&r->shared->failed, r->n - 1);
    return reduce(r, r->team, odd && s->fault == OTHER_SITE ? "there" : "here",
                  odd && s->fault == OTHER_COUNT ? COUNT / 2 : COUNT,
                  odd && s->fault == OTHER_OP ? SYMM_MAX : SYMM_SUM,
                  s->fault == LATE ? DEADLINE : HARNESS_AMPLE, work);
}

static int check_sentence(const struct rank *r, symm_status status)
{
    const struct shared *s = r->shared;
    char name[32];

    snprintf(name, sizeof(name), "rank %d", s->victim);
    if (s->fault == KILLED)
        CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
    else if (s->fault == LATE) /* who comes late finds the others' failure */
        CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "%s", symm_status_name(status));
    else
        CHECK_STATUS(status, SYMM_ERR_MISMATCH);
    CHECK_ERROR(name);
    if (s->fault == OTHER_SITE) {
        CHECK_ERROR("'here'");
        CHECK_ERROR("'there'");
    }
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_work *work = NULL;
    struct rank r;
    symm_status status;
    double begin;

    CHECK_ZERO(rank_open(&r, ctx, s));
    for (int i = 0; i < 3; i++)
        CHECK_ZERO(good_call(&r, r.team));
    CHECK_ZERO(harness_sync_wait(&s->sync, r.n));
    begin = harness_now();
    status = bad_call(&r, &work);
    atomic_fetch_add(&s->waiting, 1);
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    atomic_fetch_add(&s->failed, 1);
    s->took[r.me] = harness_now() - begin;
    CHECK_ZERO(check_sentence(&r, status));
    symm_work_release(work);
    /* Later calls on the team fail at once, the device and the other team work. */
    status = reduce(&r, r.team, "later", COUNT, SYMM_SUM, HARNESS_AMPLE, NULL);
    CHECK(status != SYMM_OK);
    for (int i = 0; i < 3 && r.me != s->victim; i++)
        CHECK_ZERO(good_call(&r, r.rest));
    rank_close(&r, ctx);
    return 0;
}

static void run(enum fault fault, const char *algorithm)
{
    struct shared *s = harness_shared(sizeof(*s));
    struct harness h = {.ranks = device_ranks(3), .body = body, .arg = s};
    double longest = 0;

    if (h.ranks < 2)
        skip();
    s->fault = fault;
    s->algorithm = algorithm;
    s->victim = h.ranks - 1;
    if (fault == KILLED)
        h.killed = 1u << s->victim;
    assert_int_equal(harness_run(&h), 0);
    for (int r = 0; r < h.ranks; r++)
        if (r != s->victim && s->took[r] > longest)
            longest = s->took[r];
    printf("%s, %s: the survivors knew after %.1f ms\n", fault_names[fault],
           algorithm ? algorithm : "chosen", longest * 1e3);
    if (harness_strict())
        assert_true(longest < DEADLINE + 0.1);
    assert_true(longest < HARNESS_SOON);
    harness_shared_free(s, sizeof(*s));
}

static void every_fault(void **state)
{
    static const char *const algorithms[] = {NULL, "copy_in", "one_shot_pull",
                                             "two_shot_push", "lamport_push"};

    (void)state;
    for (int f = 0; f < FAULTS; f++) {
        run((enum fault)f, NULL);
        for (size_t a = 1; a < sizeof(algorithms) / sizeof(*algorithms); a++)
            if (device_real() || a == 1 + (size_t)f % 4)
                run((enum fault)f, algorithms[a]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault)};

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
