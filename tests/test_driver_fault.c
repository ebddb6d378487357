/* SPDX-License-Identifier: MIT */
/*
 * test_driver_fault.c - calls that fail on the CUDA backend: every rank gets an error that
 * names the rank and the site, and the rest of the job continues.
 * ctest: cost 8
 * ctest: load 2
 *
 * A rank that never calls, is killed while others wait in a kernel, makes another call, queues
 * only a part of its call, or finalizes; the survivors' new team. Time bounds suit a busy machine,
 * but are far below the timeouts that would hide a missing diagnosis.
 */
#include "device.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver.h"
#include "symm/norm.h"

#define DEADLINE HARNESS_AMPLE /* what a failure must not take */
#define COUNT    ((size_t)1000)
#define ROWS     ((size_t)8)
#define HIDDEN   ((size_t)256)

enum change { NEVER, KILLED, SITE, COUNT_OTHER, DTYPE, OP, FINALIZED, CHANGES };

struct scene {
    struct harness_sync sync;
    enum change change;
    int culprit;
    bool stream;
    double never;        /* deadline of the call that a rank never makes */
    _Atomic int waiting; /* others whose call is on its way */
};

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area in, out;
    void *stream;
    symm_call call;
    int rank;
};

static int stage_open(struct stage *s, symm_ctx *ctx, bool stream)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL, 65536));
    CHECK_ZERO(device_area_open(&s->out, s->gpu, NULL, 65536));
    if (stream)
        CHECK_OK(symm_stream_create(ctx, &s->stream));
    s->call =
        (symm_call){.size = sizeof(s->call), .site = "layer", .stream = s->stream};
    return 0;
}

static void stage_close(struct stage *s)
{
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->in);
    device_area_close(&s->out);
    perf_gpu_close(s->gpu);
}

static symm_status reduce(struct stage *s, symm_team *team, size_t count,
                          symm_dtype dtype, symm_op op, symm_work **work)
{
    return symm_all_reduce(team, s->in.device, s->out.device, count, dtype, op,
                           &s->call, work);
}

/* The culprit's part; the others' is an all_reduce at the site "layer". */
static int misbehave(struct stage *s, struct scene *scene)
{
    symm_dtype dtype = scene->change == DTYPE ? SYMM_INT32 : SYMM_FLOAT32;
    symm_op op = scene->change == OP ? SYMM_MAX : SYMM_SUM;
    size_t count = scene->change == COUNT_OTHER ? COUNT - 1 : COUNT;
    symm_work *work = NULL;
    symm_status status;

    if (scene->change == NEVER)
        return 0;
    CHECK(harness_until(&scene->waiting, 2)); /* else a late call finds the team failed */
    if (scene->change == KILLED) {
        harness_sleep(0.05); /* their kernels are polling */
        kill(getpid(), SIGKILL);
    }
    if (scene->change == FINALIZED)
        return 0;
    if (scene->change == SITE)
        s->call.site = "elsewhere";
    CHECK_OK(reduce(s, s->team, count, dtype, op, &work));
    status = symm_work_synchronize(work, DEADLINE);
    CHECK_MESSAGE(status == SYMM_ERR_MISMATCH, "%s: %s", symm_status_name(status),
                  symm_last_error());
    CHECK_ERROR("layer");
    symm_work_release(work);
    return 0;
}

static int check_failure(struct stage *s, const struct scene *scene, symm_status status)
{
    static const symm_status wanted[CHANGES] = {
        [NEVER] = SYMM_ERR_TIMEOUT,      [KILLED] = SYMM_ERR_PEER_DEAD,
        [SITE] = SYMM_ERR_MISMATCH,      [COUNT_OTHER] = SYMM_ERR_MISMATCH,
        [DTYPE] = SYMM_ERR_MISMATCH,     [OP] = SYMM_ERR_MISMATCH,
        [FINALIZED] = SYMM_ERR_PEER_DEAD};
    static const char *const words[CHANGES] = {
        [NEVER] = "did not arrive", [KILLED] = "has died", [SITE] = "'elsewhere'",
        [COUNT_OTHER] = "of 999",   [DTYPE] = "int32",     [OP] = "max of",
        [FINALIZED] = "finalized"};
    char name[32];

    CHECK_MESSAGE(status == wanted[scene->change], "change %d: %s, %s", scene->change,
                  symm_status_name(status), symm_last_error());
    snprintf(name, sizeof(name), "rank %d", scene->culprit);
    CHECK_ERROR(name);
    if (scene->change != KILLED) /* seen before a busy machine's kernels tell where */
        CHECK_ERROR("layer");
    CHECK_ERROR(words[scene->change]);
    /* From now on at once, with the same words. */
    CHECK_STATUS(reduce(s, s->team, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL), status);
    CHECK_ERROR(name);
    CHECK_STATUS(symm_barrier(s->team, &s->call, NULL), status);
    return 0;
}

/* A team of those who are still there works. */
static int go_on(struct stage *s, const struct scene *scene, symm_team *spare)
{
    symm_work *work = NULL;
    float *out = (float *)(void *)s->out.host;

    (void)scene;
    CHECK_OK(reduce(s, spare, COUNT, SYMM_FLOAT32, SYMM_SUM, &work));
    CHECK_OK(symm_work_synchronize(work, DEADLINE));
    symm_work_release(work);
    CHECK_ZERO(device_get(&s->out, 0, COUNT * sizeof(float)));
    for (size_t i = 0; i < COUNT; i++)
        CHECK(out[i] == (float)symm_team_size(spare));
    return 0;
}

static int scenario(symm_ctx *ctx, void *arg)
{
    struct scene *scene = arg;
    struct stage s;
    symm_team *spare = NULL;
    symm_work *work = NULL;
    symm_status status;
    double begin;

    CHECK_ZERO(stage_open(&s, ctx, scene->stream));
    for (size_t i = 0; i < COUNT; i++)
        ((float *)(void *)s.in.host)[i] = 1;
    CHECK_ZERO(device_put(&s.in, 0, COUNT * sizeof(float)));
    CHECK_OK(
        symm_team_split(s.team, s.rank == scene->culprit ? -1 : 0, s.rank, &spare));
    CHECK_OK(reduce(&s, s.team, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, DEADLINE));
    if (s.rank == scene->culprit) {
        CHECK_ZERO(misbehave(&s, scene));
    } else {
        begin = harness_now();
        s.call.timeout = scene->change == NEVER ? scene->never : DEADLINE;
        CHECK_OK(reduce(&s, s.team, COUNT, SYMM_FLOAT32, SYMM_SUM, &work));
        atomic_fetch_add(&scene->waiting, 1);
        status = symm_work_synchronize(work, DEADLINE);
        CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "it took %g s",
                      harness_now() - begin);
        symm_work_release(work);
        s.call.timeout = 0;
        CHECK_ZERO(check_failure(&s, scene, status));
        CHECK_ZERO(go_on(&s, scene, spare));
    }
    if (scene->change == NEVER) /* not gone while the others still wait for it */
        CHECK_ZERO(harness_sync_wait(&scene->sync, 3));
    stage_close(&s);
    return 0;
}

static enum harness_mode pass = HARNESS_PROCESSES;

static int play_once(struct scene *scene, enum change change, bool stream, double never)
{
    struct harness h = {.ranks = 3,
                        .mode = pass,
                        .body = scenario,
                        .arg = scene,
                        .team_bytes = (size_t)128 << 20,
                        .killed = change == KILLED ? 2u : 0};

    memset(scene, 0, sizeof(*scene));
    scene->change = change;
    scene->culprit = 1;
    scene->stream = stream;
    scene->never = never;
    return harness_run(&h);
}

static void play(enum change change)
{
    struct scene *scene = harness_shared(sizeof(*scene));
    double never;

    for (int stream = 0; stream < 2 && device_ranks(3) == 3; stream++) {
        if (change == KILLED && pass == HARNESS_THREADS)
            continue;
        /* On a busy machine the two who come may need more time to do so. */
        int failed = 1;
        HARNESS_PATIENCE(never, 0.5)
        {
            failed = play_once(scene, change, stream, never);
            if (failed == 0 || change != NEVER)
                break;
        }
        assert_int_equal(failed, 0);
    }
    harness_shared_free(scene, sizeof(*scene));
}

static void test_never(void **state)
{
    (void)state;
    play(NEVER);
}

static void test_killed(void **state)
{
    (void)state;
    play(KILLED);
}

static void test_mismatch(void **state)
{
    (void)state;
    play(SITE);
    play(COUNT_OTHER);
    play(DTYPE);
    play(OP);
}

static void test_finalized(void **state)
{
    (void)state;
    play(FINALIZED);
}

/* ---- Calls of which a part is queued ---------------------------------------------------- */

enum part { HANDLE, SIGNAL, TOKEN, NORM, PARTS };

static symm_status call_part(struct stage *s, symm_team *team, enum part part)
{
    const symm_norm norm = {.size = sizeof(norm),
                            .rows = ROWS,
                            .hidden = HIDDEN,
                            .dtype = SYMM_FLOAT32,
                            .eps = 1e-5f,
                            .in = s->in.device,
                            .norm_out = s->out.device};
    symm_work *work = NULL;
    symm_status status;

    s->call.algorithm = part == TOKEN ? "copy_engine" : part == NORM ? "ll_push" : NULL;
    if (part == HANDLE)
        status = reduce(s, team, COUNT, SYMM_FLOAT32, SYMM_SUM, &work);
    else if (part == NORM)
        status = symm_all_reduce_norm(team, &norm, &s->call, NULL);
    else
        status =
            symm_signal(team, 1 - s->rank, 3, &s->call, part == SIGNAL ? &work : NULL);
    symm_work_release(work);
    return status;
}

/* On rank 1 a call of the driver fails in the middle of the call, which cannot be made again then:
 * the team has failed, on both ranks. */
static int in_part(struct stage *s, const struct driver *d, enum part part)
{
    static const char *const fails[PARTS] = {"cuEventRecord", "cuEventRecord",
                                             "cuStreamWriteValue", "cuLaunchKernelEx"};
    const double begin = harness_now();
    symm_status status;
    symm_team *team;

    s->call.algorithm = NULL;
    CHECK_OK(symm_team_split(s->team, 0, 0, &team));
    CHECK_OK(symm_barrier(team, &s->call, NULL)); /* functions are loaded */
    CHECK_OK(symm_rendezvous(s->team));           /* the barrier was OK on both ranks */
    if (s->rank == 1)
        d->fail_named(fails[part], part == NORM || part == TOKEN ? 2 : 1,
                      CUDA_ERROR_UNKNOWN);
    status = call_part(s, team, part);
    d->fail_named(NULL, 0, CUDA_SUCCESS);
    CHECK(s->rank == 0 || status != SYMM_OK);
    while (status == SYMM_OK && harness_now() - begin < DEADLINE) {
        harness_sleep(0.005);
        status = symm_signal(team, 1 - s->rank, 9, NULL, NULL);
    }
    CHECK_STATUS(status, SYMM_ERR_ABORTED);
    CHECK_ERROR("rank 1 has queued only a part of ");
    CHECK_ERROR(" at site 'layer', and cannot make it again: cu");
    symm_team_destroy(team);
    return 0;
}

static int parts(symm_ctx *ctx, void *arg)
{
    struct driver d;
    struct stage s;

    (void)arg;
    CHECK_ZERO(driver_load(&d));
    CHECK_ZERO(stage_open(&s, ctx, true));
    for (int part = 0; part < PARTS; part++)
        CHECK_ZERO(in_part(&s, &d, part));
    stage_close(&s);
    return 0;
}

static void test_parts(void **state)
{
    (void)state;
    if (device_real())
        skip();
    assert_int_equal(harness_run(&(struct harness){.ranks = 2, .body = parts}), 0);
}

int main(void)
{
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(test_never), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_finalized),
        cmocka_unit_test(test_parts)};
    const struct CMUnitTest threads[] = {cmocka_unit_test(test_never),
                                         cmocka_unit_test(test_mismatch),
                                         cmocka_unit_test(test_finalized)};
    int failed;

    device_suite();
    failed = cmocka_run_group_tests(processes, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests(threads, NULL, NULL);
    return failed;
}
