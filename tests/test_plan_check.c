/* SPDX-License-Identifier: MIT */
/*
 * test_plan_check.c - the plan checker's verdicts on buffers that share bytes, and on plans
 * that do not fit their program. Orders: test_plan_check_order.c.
 */
#include "plan_judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Sharing --------------------------------------------------------------------- */

/* Two buffers at one place, each with its own time. */
static struct plan_case *two_in_one_place(symm_program **p, bool loop)
{
    *p = program(2, loop, 2, 1);
    for (int b = 0; b < 2; b++) {
        local(*p, SYMM_PROGRAM_WRITE, 0, b);
        reduce(*p, b ? "second" : "first", 0, b, -1);
    }
    struct plan_case *c = plan_of(*p);
    c->plan.buffers[1].offset = 0;
    return c;
}

static void test_sharing(void **state)
{
    symm_program *p;

    (void)state;
    for (int loop = 0; loop < 2; loop++) {
        struct plan_case *c = two_in_one_place(&p, loop);
        judge("two in one place, all barriers", c, true);
        c->plan.ops[1].exit_barrier = false;
        judge("two in one place, no exit of the second", c, !loop);
        c->plan.ops[0].exit_barrier = false;
        judge("two in one place, no exit of the first", c, false);
        refused(c, "no barrier over both ranks");
        done(c, p);
    }
}

/* Each entry is needed, none may be added, and what it says must be true. */
static void test_certificate(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan_witness witness[3];

    (void)state;
    plan_case_certify(c);
    assert_true(report_of(c).safe);
    symm_plan_entry *entries = c->plan.certificate, kept;
    assert_int_equal(c->plan.certificate_count, 2); /* b1 b0 around the circle, b0 b1 */
    c->plan.certificate_count = 1;
    refused(c, "no entry for buffers b0 and b1");
    c->plan.certificate_count = 2;
    kept = entries[1];
    entries[1] = entries[0];
    refused(c, "is superfluous");
    entries[1] = kept;
    entries[1].next_period = true;
    refused(c, "no entry for buffers b0 and b1");
    entries[1].next_period = false;
    entries[1].before = 1;
    refused(c, "no entry for buffers b0 and b1");
    entries[1].before = 7;
    refused(c, "names buffers or chains that are not there");
    entries[1] = kept;
    assert_int_equal(kept.witness_count, 2);
    memcpy(witness, kept.witness, 2 * sizeof(*witness));
    entries[1].witness = witness;
    for (int w = 0; w < 2; w++) {
        const int64_t moment = witness[w].moment;
        witness[w].moment = moment + 1;
        refused(c, "allowed:");
        witness[w].moment = 1;
        refused(c, "allowed:");
        witness[w].moment = moment;
    }
    entries[1].witness_count = 1;
    refused(c, "lacks a witness");
    entries[1].witness_count = 3;
    witness[2] = witness[1];
    refused(c, "named twice");
    entries[1] = kept;
    assert_true(report_of(c).safe);
    done(c, p);
}

/* Everything that a plan says besides is computed anew. */
static void test_figures(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan *plan = &c->plan;
    int both[] = {0, 1};

    (void)state;
    plan_case_certify(c);
    size_t *const figures[] = {&plan->arena_bytes, &plan->dedicated_bytes,
                               &plan->lower_bound_bytes};
    static const char *const names[] = {"arena_bytes", "dedicated_bytes",
                                        "lower_bound_bytes"};
    for (int i = 0; i < 3; i++) {
        for (int up = 0; up < 2; up++) {
            const size_t right = *figures[i];
            *figures[i] = up ? right + 256 : right - 256;
            refused(c, i == 0 && !up ? "inside the arena" : names[i]);
            *figures[i] = right;
        }
        assert_true(report_of(c).safe);
    }
    plan->lower_bound_proved = !plan->lower_bound_proved;
    refused(c, "lower_bound_proved");
    plan->lower_bound_proved = !plan->lower_bound_proved;
    plan->antichain = both;
    plan->antichain_count = 2;
    refused(c, "which could share bytes");
    both[0] = 1;
    refused(c, "indices of buffers that ascend");
    plan->antichain_count = 0;
    refused(c, "lower_bound_bytes");
    plan_case_certify(c);
    plan->buffers[0].turn = 1;
    refused(c, "has turn 1, allowed: 0");
    plan_case_certify(c);
    plan->buffers[1].after_count = 0;
    refused(c, "does not list the buffers that it comes after, b0 first");
    plan_case_certify(c);
    plan->chains[0].stream = "s9";
    refused(c, "is none that a buffer is touched on");
    plan->chains[0] = plan->chains[1];
    refused(c, "is listed twice");
    plan_case_certify(c);
    plan->loop = false;
    refused(c, "loop is false in the plan");
    done(c, p);
}

static void test_lifetimes(void **state)
{
    symm_program *p = program(2, false, 2, 1);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    local(p, SYMM_PROGRAM_WRITE, 0, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    struct plan_case *c = plan_of(p);
    c->plan.buffers[1].offset = 0;
    judge("overwritten while live", c, false);
    refused(c, "their lifetimes overlap");
    done(c, p);

    p = program(2, false, 2, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    local(p, SYMM_PROGRAM_READ, 0, 1);
    c = plan_of(p);
    c->plan.buffers[1].offset = 256;
    judge("two inputs", c, false);
    refused(c, "holds its value all the time");
    done(c, p);

    p = program(2, true, 2, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0); /* carried over the end of the period */
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    local(p, SYMM_PROGRAM_WRITE, 0, 1);
    c = plan_of(p);
    c->plan.buffers[1].offset = 512;
    judge("carried value overwritten", c, false);
    refused(c, "their lifetimes overlap");
    done(c, p);
}

/* A write of a part leaves the rest as it was, also where another buffer lies. */
static void test_parts(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        symm_program *p = program(2, false, 3, 1);
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        local(p, SYMM_PROGRAM_WRITE, 0, 2);
        local(p, SYMM_PROGRAM_READ, 0, 2);
        add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                                 .site = "sum",
                                 .in = 0,
                                 .out = 1,
                                 .count = half ? 256 : 512});
        local(p, SYMM_PROGRAM_READ, 0, 1);
        struct plan_case *c = plan_of(p);
        c->plan.buffers[2].offset = c->plan.buffers[1].offset - 512; /* its last 256 */
        c->plan.buffers[0].offset = 2304;
        c->plan.arena_bytes = 4096;
        plan_case_certify(c);
        refused(c, "their lifetimes overlap"); /* a buffer counts as a whole */
        c->plan.buffers[2].offset = c->plan.buffers[1].offset + 256;
        judge("second part overwritten", c, false);
        done(c, p);
    }
}

static void test_one_op(void **state)
{
    const int both[] = {0, 1};
    symm_program *p = program(2, false, 2, 1);

    (void)state;
    add(p, (symm_program_op){
               .kind = SYMM_PROGRAM_WRITE, .buffers = both, .buffer_count = 2});
    struct plan_case *c = plan_of(p);
    judge("two writes", c, true);
    c->plan.buffers[1].offset = 512;
    judge("two writes at one place", c, false);
    refused(c, "uses buffers b0 and b1 at once");
    done(c, p);

    p = program(2, false, 2, 1);
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    reduce(p, "sum", 0, 0, 0);
    c = plan_of(p);
    judge("in place", c, true);
    c->plan.ops[0].algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL;
    judge("in place, pulled", c, false);
    refused(c, "cannot be in place in buffer b0: with one_shot_pull");
    c->plan.ops[0].algorithm = SYMM_ALGORITHM_TWO_SHOT_INPLACE;
    judge("in place, two shots", c, true);
    done(c, p);

    p = program(2, false, 2, 1);
    put(p, "turn", 0, 0, 0);
    c = plan_of(p);
    judge("put onto its source", c, false);
    done(c, p);
}

/* ---- What does not fit ----------------------------------------------------------- */

static void test_fit(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);

    (void)state;
    plan_case_certify(c);
    assert_true(report_of(c).safe);

    c->plan.program_hash ^= 1;
    refused(c, "the plan is of a program with hash");
    c->plan.program_hash ^= 1;
    c->plan.world = 3;
    refused(c, "for 3 ranks, the program for 2");
    c->plan.world = 2;
    c->plan.buffer_count = 1;
    refused(c, "places 1 buffers");
    c->plan.buffer_count = 2;
    c->plan.buffers[1].offset = 100;
    refused(c, "not at a multiple of 256");
    c->plan.buffers[1].offset = (size_t)0 - 256;
    refused(c, "not at a multiple of 256 inside the arena");
    c->plan.buffers[1].offset = 2048;
    refused(c, "inside the arena");
    c->plan.buffers[1].offset = 0;
    c->plan.buffers[1].bytes = 700;
    refused(c, "has 700 bytes");
    c->plan.buffers[1].bytes = 768;
    c->plan.buffers[1].alloc_id = 7;
    refused(c, "alloc_id 7");
    c->plan.buffers[1].alloc_id = 2;
    c->plan.buffers[1].name = "other";
    refused(c, "buffer 1 of the plan is other");
    c->plan.buffers[1].name = "b1";
    c->plan.ops[1].site = "third";
    refused(c, "site second, is not in its place");
    c->plan.ops[1].site = "second";
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_PUT;
    refused(c, "put with an exit barrier is not for such an op");
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_COPY_ENGINE;
    refused(c, "`out` is private");
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL;
    c->plan.ops[1].channel = -1;
    refused(c, "on channel -1");
    c->plan.ops[1].channel = 3;
    c->plan.op_count = 1;
    refused(c, "site second, is not in its place");
    c->plan.op_count = 2;
    assert_true(report_of(c).safe);
    done(c, p);
}

static void test_hash(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *plan;

    (void)state;
    assert_int_equal(symm_plan_make(p, NULL, &plan), SYMM_OK);
    plan->has_plan_hash = true;
    assert_int_equal(symm_plan_hash(plan, &plan->plan_hash), SYMM_OK);
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_true(report.safe);
    plan->plan_hash ^= 1;
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_false(report.safe);
    assert_non_null(strstr(report.first, "plan_hash is"));
    plan->has_plan_hash = false;
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_true(report.safe);
    symm_plan_destroy(plan);
    done(c, p);
}

static void test_channels(void **state)
{
    symm_program *p = program(2, false, 2, 2);

    (void)state;
    reduce(p, "a", 0, 0, -1);
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                             .stream = 1,
                             .site = "b",
                             .in = 1,
                             .out = -1});
    struct plan_case *c = plan_of(p);
    judge("channels of their own", c, true);
    c->plan.ops[1].channel = 0;
    refused(c, "on channel 0 in different streams");
    done(c, p);
}

static void test_arguments(void **state)
{
    symm_program *p = program(2, false, 1, 1);
    symm_plan_report report = {.size = sizeof(report)}, wrong = {.size = 3};

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    struct plan_case *c = plan_of(p);
    assert_int_equal(symm_plan_check(NULL, &c->plan, &report), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, NULL, &report), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, &wrong), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, &report), SYMM_OK);
    assert_true(report.safe);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    assert_int_equal(symm_plan_check(p, &c->plan, &report), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "symm_program_finish"));
    done(c, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing),  cmocka_unit_test(test_certificate),
        cmocka_unit_test(test_figures),  cmocka_unit_test(test_lifetimes),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_one_op),
        cmocka_unit_test(test_fit),      cmocka_unit_test(test_hash),
        cmocka_unit_test(test_channels), cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
