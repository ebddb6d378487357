/* SPDX-License-Identifier: MIT */
/*
 * test_engine_host.c - an engine of the host backend, loaded as a plug-in (fake_engine.c):
 * collectives by its name on the default stream and on others, ranks that choose different
 * paths, a dead rank, and that no call uses it unless named.
 */
#include "harness.h"
#include "reference.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 5000

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    int rank, n;
    char in[COUNT * 8], out[COUNT * 8], wanted[COUNT * 8];
};

static struct stage stages[HARNESS_MAX_RANKS];

static int stage_open(struct stage **stage, symm_ctx *ctx)
{
    struct stage *s = &stages[harness_rank()];

    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    *stage = s;
    return 0;
}

static int sums(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = sizeof(call), .site = "sums", .algorithm = "engine"};
    struct stage *s;
    size_t where = 0;
    uint32_t seed = 0;

    (void)arg;
    CHECK_ZERO(stage_open(&s, ctx));
    for (int d = 0; d < REFERENCE_DTYPES; d++)
        for (int o = 0; o < REFERENCE_OPS; o++) {
            symm_dtype dtype = (symm_dtype)d;
            symm_op op = (symm_op)o;
            symm_work *work = NULL;

            if (!reference_takes(dtype, op))
                continue;
            call.stream = ++seed & 1 ? s->stream : NULL;
            reference_fill(dtype, op, seed, s->rank, 0, COUNT, s->in);
            CHECK_OK(symm_all_reduce(s->team, s->in, s->out, COUNT, dtype, op, &call,
                                     &work));
            CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
            symm_work_release(work);
            reference_reduce(dtype, op, seed, s->n, 0, COUNT, s->wanted);
            CHECK_MESSAGE(reference_same(dtype, s->out, s->wanted, COUNT, &where),
                          "%s %s: element %zu", symm_dtype_name(dtype),
                          symm_op_name(op), where);
            CHECK(strstr(symm_explain(s->team), "took engine") &&
                  strstr(symm_explain(s->team), "fake 1"));
        }
    call = (symm_call){.size = sizeof(call)};
    CHECK_OK(symm_all_reduce(s->team, s->in, s->out, COUNT, SYMM_INT8, SYMM_SUM, &call,
                             NULL));
    CHECK(!strstr(symm_explain(s->team), "took engine"));
    symm_stream_destroy(ctx, s->stream);
    return 0;
}

/* Ranks 0 and 1 are at different calls; then everything fails with that. */
static int mismatch(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = sizeof(call), .site = "apart", .algorithm = "engine"};
    struct stage *s;

    (void)arg;
    CHECK_ZERO(stage_open(&s, ctx));
    if (s->rank == 1)
        call.algorithm = NULL;
    CHECK_STATUS(
        symm_all_reduce(s->team, s->in, s->out, 8, SYMM_INT8, SYMM_SUM, &call, NULL),
        SYMM_ERR_MISMATCH);
    CHECK_ERROR("engine");
    CHECK_ERROR("apart");
    symm_stream_destroy(ctx, s->stream);
    return 0;
}

/* Rank 1 dies at some moment of many calls. */
static int dies(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = sizeof(call), .site = "death", .algorithm = "engine"};
    symm_status status = SYMM_OK;
    struct stage *s;
    double begin = harness_now();

    (void)arg;
    CHECK_ZERO(stage_open(&s, ctx));
    for (int i = 0; status == SYMM_OK && harness_now() - begin < HARNESS_SOON; i++) {
        if (s->rank == 1 && i == 20)
            raise(SIGKILL);
        status = symm_all_reduce(s->team, s->in, s->out, COUNT, SYMM_FLOAT64, SYMM_SUM,
                                 &call, NULL);
    }
    CHECK_MESSAGE(status == SYMM_ERR_PEER_DEAD, "%s", symm_last_error());
    CHECK_ERROR("rank 1");
    symm_stream_destroy(ctx, s->stream);
    return 0;
}

static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both((struct harness){.ranks = 2, .body = sums}), 0);
    assert_int_equal(harness_run_both((struct harness){.ranks = 3, .body = sums}), 0);
}

static void test_mismatch(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both((struct harness){.ranks = 2, .body = mismatch}),
                     0);
}

static void test_dies(void **state)
{
    const struct harness h = {.ranks = 3, .body = dies, .killed = 2};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_dies)};
    char folder[128];
    int failed;

    reference_init();
    harness_directory(folder, sizeof(folder));
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    setenv("SYMM_ENGINE", SYMM_FAKE_ENGINE, 1);
    setenv("SYMM_BACKEND", "host", 1);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(folder);
    return failed;
}
