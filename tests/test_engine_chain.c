/* SPDX-License-Identifier: MIT */
/*
 * test_engine_chain.c - chains of work handles on the host: compute -> all_reduce -> then,
 * thousands of times, queued while a gate is shut, so that a call which waited for the
 * previous call would never return; and a callback's error, passed along a chain.
 * ctest: cost 10
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 16

struct chain {
    symm_ctx *ctx;
    symm_team *team;
    void *main, *side;
    int in[COUNT], out[COUNT];
    int step, followed, wrong; /* by the streams' workers, in their order */
    atomic_int gate;
};

static int links(void)
{
    return HARNESS_SLOW ? 1000 : 10000;
}

static int chain_open(struct chain *c, symm_ctx *ctx)
{
    memset(c, 0, sizeof(*c));
    c->ctx = ctx;
    c->team = symm_team_world(ctx);
    CHECK_OK(symm_stream_create(ctx, &c->main));
    CHECK_OK(symm_stream_create(ctx, &c->side));
    return 0;
}

static void chain_close(struct chain *c)
{
    symm_stream_destroy(c->ctx, c->main);
    symm_stream_destroy(c->ctx, c->side);
}

static void wait_gate(void *arg)
{
    struct chain *c = arg;

    (void)harness_until(&c->gate, 1);
}

static void compute(void *arg)
{
    struct chain *c = arg;

    c->step++;
    for (int i = 0; i < COUNT; i++)
        c->in[i] = c->step + i;
}

static void look(void *arg)
{
    struct chain *c = arg;

    c->followed++;
    for (int i = 0; i < COUNT; i++)
        c->wrong += c->out[i] != symm_team_size(c->team) * (c->followed + i);
}

static symm_status look_later(void *arg, void *stream)
{
    struct chain *c = arg;

    return stream == c->side ? symm_stream_call(c->ctx, stream, look, c)
                             : SYMM_ERR_INVALID;
}

static symm_status refuse(void *arg, void *stream)
{
    (void)stream;
    ++*(int *)arg;
    return SYMM_ERR_REFUSED;
}

static int link_once(struct chain *c, symm_work **last)
{
    const symm_call call = {.size = sizeof(call), .site = "chain", .stream = c->main};
    symm_work *work = NULL, *next = NULL;

    CHECK_OK(symm_stream_call(c->ctx, c->main, compute, c));
    CHECK_OK(symm_all_reduce(c->team, c->in, c->out, COUNT, SYMM_INT32, SYMM_SUM, &call,
                             &work));
    CHECK_OK(symm_work_then(work, c->side, look_later, c, &next));
    CHECK_OK(symm_work_wait(next, c->main)); /* what follows overwrites the arrays */
    symm_work_release(work);
    symm_work_release(*last);
    *last = next;
    return 0;
}

static int chain(symm_ctx *ctx, void *arg)
{
    struct chain c;
    symm_work *last = NULL;

    (void)arg;
    CHECK_ZERO(chain_open(&c, ctx));
    CHECK_OK(symm_stream_call(ctx, c.main, wait_gate, &c));
    for (int i = 0; i < links(); i++)
        CHECK_ZERO(link_once(&c, &last));
    CHECK(c.step == 0 &&
          c.followed == 0); /* the host is through, the streams are not */
    atomic_store(&c.gate, 1);
    CHECK_OK(symm_work_synchronize(last, 3 * HARNESS_AMPLE));
    symm_work_release(last);
    CHECK_OK(symm_stream_synchronize(ctx, c.main, HARNESS_AMPLE));
    CHECK_MESSAGE(c.followed == links() && c.wrong == 0, "%d, %d wrong", c.followed,
                  c.wrong);
    chain_close(&c);
    return 0;
}

static void test_chain(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both((struct harness){.ranks = 2, .body = chain}), 0);
}

/* The first error travels; what would follow it is not called. */
static int errors(symm_ctx *ctx, void *arg)
{
    struct chain c;
    symm_call call = {.size = sizeof(call), .site = "errors"};
    symm_work *work[4] = {NULL};
    int called = 0, never = 0;
    bool done = false;

    (void)arg;
    CHECK_ZERO(chain_open(&c, ctx));
    for (int inlined = 0; inlined < 2; inlined++) {
        call.stream = inlined ? NULL : c.main;
        called = never = 0;
        CHECK_OK(symm_all_reduce(c.team, c.in, c.out, COUNT, SYMM_INT32, SYMM_SUM,
                                 &call, &work[0]));
        CHECK_OK(symm_work_then(work[0], c.side, refuse, &called, &work[1]));
        CHECK_OK(symm_work_then(work[1], c.main, refuse, &never, &work[2]));
        CHECK_OK(symm_work_then(work[2], NULL, refuse, &never, &work[3]));
        CHECK_STATUS(symm_work_synchronize(work[3], HARNESS_AMPLE), SYMM_ERR_REFUSED);
        for (int i = 1; i < 4; i++) {
            CHECK_STATUS(symm_work_query(work[i], &done), SYMM_ERR_REFUSED);
            CHECK(done && strstr(symm_work_error(work[i]), "a callback returned "
                                                           "SYMM_ERR_REFUSED"));
        }
        CHECK(called == 1 && never == 0);
        CHECK_OK(symm_work_query(work[0], &done)); /* what came before went well */
        for (int i = 0; i < 4; i++)
            symm_work_release(work[i]);
    }
    chain_close(&c);
    return 0;
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both((struct harness){.ranks = 2, .body = errors}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_errors)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
