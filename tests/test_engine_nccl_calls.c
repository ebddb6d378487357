/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_calls.c - collectives by NCCL: every collective, dtype and reduction by
 * name; and the calls for which the library chooses NCCL.
 * ctest: cost 10
 * ctest: load 3
 *
 * The fake NCCL reduces in rank order, so its results are compared bit for bit; the real
 * NCCL's (on GPUs) within the error of another order.
 */
#include "engine_stage.h"
#include "reference_call.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver.h"

#define GUARD ((size_t)64)

struct test_case {
    enum kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    bool in_place;
    uint32_t seed;
};

static struct reference_call call_of(const struct engine_stage *s,
                                     const struct test_case *t)
{
    return (struct reference_call){t->kind,  t->dtype, t->op,
                                   t->count, s->n - 1, t->seed};
}

static symm_status invoke(const struct engine_stage *s, const struct test_case *t,
                          const void *in, void *out, const symm_call *call,
                          symm_work **work)
{
    const struct reference_call made = call_of(s, t);

    return reference_invoke(&made, s->team, in, out, call, work);
}

/* On GPUs another order of sums may round otherwise, and NCCL has its own way to average
 * integers (symm__nccl_deviation). */
static bool is_exact(const struct test_case *t)
{
    if (device_real() && t->op == SYMM_AVG)
        return t->kind != ALL_REDUCE && t->kind != REDUCE_SCATTER;
    return !device_real() || !reference_is_float(t->dtype) ||
           (t->kind != ALL_REDUCE && t->kind != REDUCE_SCATTER) || t->op >= SYMM_MIN;
}

static bool is_near(const struct test_case *t, const void *a, const void *b, size_t i)
{
    double x, y;

    if (t->dtype == SYMM_FLOAT64) {
        x = ((const double *)a)[i];
        y = ((const double *)b)[i];
    } else if (t->dtype == SYMM_FLOAT32) {
        x = (double)((const float *)a)[i];
        y = (double)((const float *)b)[i];
    } else {
        return true; /* few bits: a sum's error can be any */
    }
    return fabs(x - y) <= 1e-4 * (fabs(x) + fabs(y) + 1);
}

static bool nccl_reduces(const struct test_case *t)
{
    return t->dtype != SYMM_INT16 && t->dtype != SYMM_UINT16 && t->op <= SYMM_MAX;
}

static int run_case(struct engine_stage *s, const struct test_case *t, void *stream)
{
    size_t block = t->count * symm_dtype_size(t->dtype), where = 0, at = GUARD;
    size_t elements = t->count * reference_out_blocks(t->kind, s->n);
    size_t bytes = block * reference_out_blocks(t->kind, s->n);
    struct device_area *from = t->in_place ? &s->out : &s->in;
    symm_call call = {.size = sizeof(call),
                      .site = kind_names[t->kind],
                      .stream = stream,
                      .algorithm = "engine"};
    const struct reference_call made = call_of(s, t);
    char *wanted = malloc(bytes + 1);
    symm_status status;

    CHECK(wanted != NULL);
    if (t->in_place && t->kind == ALL_GATHER)
        at += (size_t)s->rank * block;
    memset(s->out.host, 0xa5, bytes + 2 * GUARD);
    reference_fill(t->dtype, t->op, t->seed, s->rank, 0,
                   t->count * reference_in_blocks(t->kind, s->n), from->host + at);
    CHECK_ZERO(device_put(&s->out, 0, bytes + 2 * GUARD));
    CHECK_ZERO(device_put(from, at, block * reference_in_blocks(t->kind, s->n)));
    status = invoke(s, t, from->device + at, s->out.device + GUARD, &call, NULL);
    if ((t->kind == ALL_REDUCE || t->kind == REDUCE_SCATTER) && !nccl_reduces(t)) {
        free(wanted);
        CHECK_STATUS(status, SYMM_ERR_INVALID);
        CHECK_ERROR(t->dtype == SYMM_INT16 || t->dtype == SYMM_UINT16
                        ? "NCCL does not reduce int16 and uint16"
                        : "NCCL has no bitwise reductions");
        return 0;
    }
    CHECK_MESSAGE(status == SYMM_OK, "%s of %s: %s", kind_names[t->kind],
                  symm_dtype_name(t->dtype), symm_last_error());
    CHECK_OK(symm_stream_synchronize(s->ctx, stream, 0));
    CHECK_ZERO(device_get(&s->out, 0, bytes + 2 * GUARD));
    reference_expect(&made, s->n, s->rank, wanted);
    if (is_exact(t))
        CHECK_MESSAGE(
            reference_same(t->dtype, s->out.host + GUARD, wanted, elements, &where),
            "%s of %zu %s %s, %d ranks: element %zu differs", kind_names[t->kind],
            t->count, symm_dtype_name(t->dtype), symm_op_name(t->op), s->n, where);
    else
        for (size_t i = 0; i < elements; i++)
            CHECK(is_near(t, s->out.host + GUARD, wanted, i));
    for (size_t i = 0; i < GUARD && !t->in_place; i++)
        CHECK(s->out.host[GUARD + bytes + i] == (char)0xa5);
    CHECK(strstr(symm_explain(s->team), "engine") &&
          strstr(symm_explain(s->team), "NCCL"));
    free(wanted);
    return 0;
}

static int collectives(symm_ctx *ctx, void *arg)
{
    static const size_t counts[] = {1, 0, 777, 6001};
    struct engine_stage s;
    uint32_t seed = 1;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < REFERENCE_DTYPES; d++)
            for (int o = 0; o < REFERENCE_OPS; o++) {
                const struct test_case t = {
                    .kind = (enum kind)k,
                    .dtype = (symm_dtype)d,
                    .op = (symm_op)o,
                    .count = counts[seed % 4],
                    .in_place = seed % 3 == 0 && k != ALL_TO_ALL && k != REDUCE_SCATTER,
                    .seed = seed};

                seed++;
                if (!reference_takes(t.dtype, t.op))
                    continue;
                if (o == 0 || k == ALL_REDUCE || k == REDUCE_SCATTER)
                    CHECK_ZERO(run_case(&s, &t, seed & 1 ? s.stream : NULL));
            }
    if (!device_real())
        CHECK(engine_calls("ncclAllReduce") > 0);
    engine_close(&s);
    return 0;
}

static void test_collectives(void **state)
{
    (void)state;
    assert_int_equal(engine_run(collectives, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(collectives, 3, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(collectives, 2, HARNESS_THREADS, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(collectives, 4, HARNESS_THREADS, NULL, NULL, 0), 0);
}

/* ---- What goes there by itself --------------------------------------------------- */

#define LARGE ((size_t)33 << 20)

static int by_itself(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    struct device_area large, heap;
    symm_call call = {.size = sizeof(call)};
    const size_t count = LARGE / sizeof(float);

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(device_area_open(&large, s.gpu, NULL, LARGE));
    CHECK_ZERO(device_area_open(&heap, s.gpu, s.team, LARGE));
    CHECK_OK(symm_rendezvous(s.team));
    call.stream = s.stream;
    CHECK_OK(symm_all_reduce(s.team, large.device, large.device, count, SYMM_FLOAT32,
                             SYMM_SUM, &call, NULL));
    CHECK(strstr(symm_explain(s.team), "took engine") &&
          strstr(symm_explain(s.team), "too large to be staged"));
    CHECK_OK(symm_all_reduce(s.team, large.device, large.device, count / 16,
                             SYMM_FLOAT32, SYMM_SUM, &call, NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    CHECK_OK(symm_all_reduce(s.team, heap.device, heap.device, count, SYMM_FLOAT32,
                             SYMM_SUM, &call, NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    /* Only the root's input is read, so the choice must not depend on it. */
    for (int i = 0; i < 2; i++) {
        const void *in = i == 0 || s.rank == 0 ? heap.device : large.device;

        CHECK_OK(symm_broadcast(s.team, in, heap.device, count, SYMM_FLOAT32, 0, &call,
                                NULL));
        CHECK(!strstr(symm_explain(s.team), "took engine"));
    }
    /* In place, NCCL would write what it has not read yet. */
    CHECK_OK(symm_all_to_all(s.team, large.device, large.device, count / (size_t)s.n,
                             SYMM_FLOAT32, &call, NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    CHECK_OK(symm_reduce_scatter(s.team, large.device, large.device,
                                 count / (size_t)s.n, SYMM_FLOAT32, SYMM_SUM, &call,
                                 NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    /* An engine's minimum ignores a NaN: only by name. */
    CHECK_OK(symm_all_reduce(s.team, large.device, large.device, count, SYMM_FLOAT32,
                             SYMM_MIN, &call, NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    call.numerics = SYMM_NUMERICS_SAME_BITS;
    CHECK_OK(symm_all_reduce(s.team, large.device, large.device, count, SYMM_FLOAT32,
                             SYMM_SUM, &call, NULL));
    CHECK(!strstr(symm_explain(s.team), "took engine"));
    call.algorithm = "engine";
    CHECK_STATUS(symm_all_reduce(s.team, large.device, large.device, count,
                                 SYMM_FLOAT32, SYMM_SUM, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("order of its own");
    call.numerics = SYMM_NUMERICS_ANY;
    CHECK_STATUS(symm_all_to_all(s.team, large.device, large.device, 8, SYMM_FLOAT32,
                                 &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("in place");
    CHECK_STATUS(symm_barrier(s.team, &call, NULL), SYMM_ERR_INVALID);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, 0));
    device_area_close(&large);
    device_area_close(&heap);
    engine_close(&s);
    return 0;
}

static void test_by_itself(void **state)
{
    const int more = harness_env("SYMM_TEST_LONG", 0) ? 3 : 2;

    (void)state;
    assert_int_equal(engine_run(by_itself, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(by_itself, more, HARNESS_THREADS, NULL, NULL, 0), 0);
}

#define STREAMS 2

static symm_status large_sum(struct engine_stage *s, struct device_area *area,
                             void *stream, const char *site)
{
    const symm_call call = {.size = sizeof(call), .stream = stream, .site = site};

    return symm_all_reduce(s->team, area->device, area->device, LARGE / sizeof(float),
                           SYMM_FLOAT32, SYMM_SUM, &call, NULL);
}

/* An element that began as `first` + rank, after so many sums over it. */
static float sum_after(const struct engine_stage *s, int first, int sums)
{
    float sum = (float)(s->n * first + s->n * (s->n - 1) / 2);

    while (--sums > 0)
        sum *= (float)s->n;
    return sum;
}

/* Streams that cross: an engine's operations on both would wait for each other. */
static int crossed(symm_ctx *ctx, void *arg)
{
    static const char *const sites[STREAMS] = {"left", "right"};
    struct engine_stage s;
    struct device_area area[STREAMS];
    void *streams[STREAMS];
    const int turns = harness_env("SYMM_TEST_LONG", 0) ? 4 : 2;
    int engines = 0;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    for (int i = 0; i < STREAMS; i++) {
        CHECK_ZERO(device_area_open(&area[i], s.gpu, NULL, LARGE));
        CHECK_OK(symm_stream_create(ctx, &streams[i]));
        *(float *)(void *)area[i].host = (float)(10 * i + s.rank);
        CHECK_ZERO(device_put(&area[i], 0, sizeof(float)));
    }
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < STREAMS; i++) {
            const int at = (i + s.rank + turn) % STREAMS;

            CHECK_OK(large_sum(&s, &area[at], streams[at], sites[at]));
        }
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(symm_stream_synchronize(ctx, streams[i], HARNESS_AMPLE));
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(large_sum(&s, &area[i], streams[i], sites[i]));
        engines += strstr(symm_explain(s.team), "took engine") != NULL;
        CHECK(strstr(symm_explain(s.team), "took engine") ||
              strstr(symm_explain(s.team), "serves another stream"));
        CHECK_OK(symm_stream_synchronize(ctx, streams[i], HARNESS_AMPLE));
        CHECK_ZERO(device_get(&area[i], 0, sizeof(float)));
        CHECK(*(float *)(void *)area[i].host == sum_after(&s, 10 * i, turns + 1));
        device_area_close(&area[i]);
        symm_stream_destroy(ctx, streams[i]);
    }
    CHECK_MESSAGE(engines == 1, "%d streams have the engine", engines);
    engine_close(&s);
    return 0;
}

static void test_crossed(void **state)
{
    (void)state;
    assert_int_equal(engine_run(crossed, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(crossed, 3, HARNESS_THREADS, NULL, NULL, 0), 0);
}

/* ---- Teams, handles, graphs ------------------------------------------------------ */

static int in_teams(symm_ctx *ctx, void *arg)
{
    struct engine_stage s, half;
    symm_team *team = NULL;
    symm_work *work = NULL;
    const struct test_case t = {.kind = ALL_REDUCE,
                                .dtype = SYMM_INT32,
                                .op = SYMM_SUM,
                                .count = 500,
                                .seed = 7};
    symm_call call = {.size = sizeof(call), .algorithm = "engine"};

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(symm_team_split(s.team, s.rank % 2, -s.rank, &team));
        half = s;
        half.team = team;
        half.rank = symm_team_rank(team);
        half.n = symm_team_size(team);
        CHECK_ZERO(run_case(&half, &t, NULL));
        CHECK_ZERO(run_case(&s, &t, s.stream));
        CHECK_OK(invoke(&half, &t, s.in.device, s.out.device, &call, &work));
        CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
        CHECK_OK(invoke(&half, &t, s.in.device, s.out.device, &call, &work));
        symm_team_destroy(team); /* with a call under way, and its handle held */
        CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
    }
    engine_close(&s);
    return 0;
}

static void test_teams(void **state)
{
    (void)state;
    assert_int_equal(engine_run(in_teams, 3, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(in_teams, 4, HARNESS_THREADS, NULL, NULL, 0), 0);
}

static symm_status again(void *arg, void *stream)
{
    struct engine_stage *s = arg;
    symm_call call = {.size = sizeof(call), .stream = stream, .algorithm = "engine"};

    return symm_all_reduce(s->team, s->out.device, s->out.device, 9, SYMM_INT32,
                           SYMM_SUM, &call, NULL);
}

static symm_status refuse(void *arg, void *stream)
{
    (void)arg;
    (void)stream;
    return SYMM_ERR_REFUSED;
}

/* What follows a call of the engine, on another stream, and an error on its way. */
static int followed(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .algorithm = "engine"};
    symm_work *work[4] = {NULL};
    int *host;
    bool done = false;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    host = (int *)(void *)s.in.host;
    for (int i = 0; i < 9; i++)
        host[i] = 1;
    CHECK_ZERO(device_put(&s.in, 0, 9 * sizeof(int)));
    CHECK_OK(symm_all_reduce(s.team, s.in.device, s.out.device, 9, SYMM_INT32, SYMM_SUM,
                             &call, &work[0]));
    CHECK_OK(symm_work_then(work[0], s.stream, again, &s, &work[1]));
    CHECK_OK(symm_work_then(work[1], s.stream, refuse, &s, &work[2]));
    CHECK_OK(symm_work_then(work[2], s.stream, again, &s, &work[3]));
    CHECK_OK(symm_work_synchronize(work[1], HARNESS_AMPLE));
    CHECK_STATUS(symm_work_query(work[3], &done), SYMM_ERR_REFUSED);
    CHECK(done && strstr(symm_work_error(work[3]), "a callback returned"));
    for (int i = 0; i < 4; i++)
        symm_work_release(work[i]);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, 0));
    CHECK_ZERO(device_get(&s.out, 0, 9 * sizeof(int)));
    host = (int *)(void *)s.out.host;
    CHECK_MESSAGE(host[8] == s.n * s.n, "%d", host[8]);
    engine_close(&s);
    return 0;
}

static void test_followed(void **state)
{
    (void)state;
    assert_int_equal(engine_run(followed, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(followed, 3, HARNESS_THREADS, NULL, NULL, 0), 0);
}

/* A captured call runs at each launch of its graph. */
static int captured(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    struct driver d;
    CUgraph graph;
    CUgraphExec exec;
    symm_call call = {.size = sizeof(call), .algorithm = "engine", .site = "captured"};
    int *host;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(driver_load(&d));
    host = (int *)(void *)s.out.host;
    for (int i = 0; i < 100; i++)
        host[i] = 1;
    CHECK_ZERO(device_put(&s.out, 0, 100 * sizeof(int)));
    call.stream = s.stream;
    CHECK_CU(d.begin_capture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(symm_all_reduce(s.team, s.out.device, s.out.device, 100, SYMM_INT32,
                             SYMM_SUM, &call, NULL));
    CHECK_CU(d.end_capture(s.stream, &graph));
    CHECK_CU(d.instantiate(&exec, graph, 0));
    CHECK_CU(d.graph_launch(exec, s.stream));
    CHECK_CU(d.graph_launch(exec, s.stream));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, 0));
    CHECK_ZERO(device_get(&s.out, 0, 100 * sizeof(int)));
    CHECK_MESSAGE(host[99] == s.n * s.n, "%d", host[99]);
    CHECK_CU(d.exec_destroy(exec));
    CHECK_CU(d.graph_destroy(graph));
    engine_close(&s);
    return 0;
}

static const char *const not_blocking[] = {"NCCL_COMM_BLOCKING=0", NULL};

static void test_captured(void **state)
{
    (void)state;
    if (device_real()) /* the suite has no driver of its own there */
        skip();
    assert_int_equal(engine_run(captured, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(captured, 3, HARNESS_PROCESSES, NULL, not_blocking, 0),
                     0);
    assert_int_equal(engine_run(captured, 2, HARNESS_THREADS, NULL, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_by_itself),
        cmocka_unit_test(test_crossed),     cmocka_unit_test(test_teams),
        cmocka_unit_test(test_followed),    cmocka_unit_test(test_captured)};
    int failed;

    engine_suite();
    reference_init();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    engine_pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
