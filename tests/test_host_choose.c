/* SPDX-License-Identifier: MIT */
/*
 * test_host_choose.c - cost tables: curves between, before and after their points; the choice
 * with and without a table, for calls and for plans. Files: test_host_cost_tables.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "select/cost.h"
#include "select/select.h"
#include "symm/plan.h"

/* ---- Curves ------------------------------------------------------------------------- */

static const symm_costs_point points[] = {
    {8, 2},     {1000, 2},  {3000, 6},            /* 0: copy_in, flat, then a slope */
    {8, 4},     {2000, 4},  {4000, 5},            /* 3: two_shot_inplace */
    {8, 3},     {100, 1.5}, {2000, 3}, {4000, 2}, /* 6: one_shot_pull, ends downwards */
    {1000, 10},                                   /* 10: one point: a rate */
};
#define CURVE_OF(id, kind_of_data, place, number, list)                                \
    {                                                                                  \
        sizeof(symm_costs_curve), SYMM_PROGRAM_ALL_REDUCE, SYMM_ALGORITHM_##id,        \
            SYMM_COSTS_##kind_of_data, place, 2, number, list                          \
    }
static const symm_costs_curve curves[] = {
    CURVE_OF(COPY_IN, FLOAT32, false, 3, points),
    CURVE_OF(TWO_SHOT_INPLACE, FLOAT32, false, 3, points + 3),
    CURVE_OF(ONE_SHOT_PULL, FLOAT32, false, 4, points + 6),
    CURVE_OF(TWO_SHOT_INPLACE, FLOAT32, true, 1, points + 10),
    CURVE_OF(LL_PUSH, FLOAT32, false, 2, points + 6),
};
static const symm_costs table = {
    .machines = {"here"}, .curves = curves, .curve_count = 5};

static void expect_us(int curve, size_t bytes, double wanted)
{
    double us = symm__cost_at(&curves[curve], (double)bytes);

    if (!(fabs(us - wanted) < 1e-9))
        fail_msg("curve %d at %zu bytes: %.9g us, not %.9g", curve, bytes, us, wanted);
}

static void test_curves(void **state)
{
    (void)state;
    expect_us(0, 8, 2);
    expect_us(0, 1, 2); /* before the first */
    expect_us(0, 0, 2);
    expect_us(0, 1000, 2);
    expect_us(0, 1500, 3); /* between */
    expect_us(0, 3000, 6);
    expect_us(0, 4000, 8); /* after the last, as its last piece */
    expect_us(2, 1050, 1.5 + 1.5 * 950 / 1900);
    expect_us(2, 8000, 2); /* that falls: no further */
    expect_us(3, 2000, 20);
    expect_us(3, 10, 10);
}

static void test_data(void **state)
{
    static const struct {
        symm_program_kind kind;
        symm_dtype dtype;
        symm_op op;
        symm_costs_data data;
    } cases[] = {
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_FLOAT32, SYMM_SUM, SYMM_COSTS_FLOAT32},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_BFLOAT16, SYMM_SUM, SYMM_COSTS_HALF},
        {SYMM_PROGRAM_REDUCE_SCATTER, SYMM_FLOAT16, SYMM_SUM, SYMM_COSTS_HALF},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_FLOAT16, SYMM_MAX, SYMM_COSTS_FLOAT},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_FLOAT32, SYMM_AVG, SYMM_COSTS_FLOAT},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_FLOAT8_E4M3, SYMM_SUM, SYMM_COSTS_FLOAT},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_FLOAT64, SYMM_SUM, SYMM_COSTS_OTHER},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_INT32, SYMM_SUM, SYMM_COSTS_INT32},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_INT32, SYMM_MAX, SYMM_COSTS_OTHER},
        {SYMM_PROGRAM_REDUCE_SCATTER, SYMM_UINT8, SYMM_SUM, SYMM_COSTS_OTHER},
        {SYMM_PROGRAM_ALL_GATHER, SYMM_FLOAT32, SYMM_SUM, SYMM_COSTS_ANY},
        {SYMM_PROGRAM_ALL_TO_ALL, SYMM_INT8, SYMM_MAX, SYMM_COSTS_ANY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(symm__cost_data(cases[i].kind, cases[i].dtype, cases[i].op),
                         cases[i].data);
}

/* ---- Choices ------------------------------------------------------------------------ */

static struct symm_select_query query(size_t bytes, bool in_place)
{
    return (struct symm_select_query){.kind = SYMM_KIND_ALL_REDUCE,
                                      .bytes = bytes,
                                      .in_symmetric = true,
                                      .out_symmetric = true,
                                      .overlap = in_place,
                                      .dtype = SYMM_FLOAT32,
                                      .op = SYMM_SUM,
                                      .size = 2,
                                      .costs = &table};
}

static void expect_choice(const struct symm_select_query *q, enum symm_algorithm wanted,
                          bool by_table)
{
    struct symm_selection answer;
    bool told;

    assert_int_equal(symm__choose(q, &answer), SYMM_OK);
    told = strcmp(answer.reason, "the cheapest by the cost table") == 0;
    if (answer.algorithm != wanted || told != by_table)
        fail_msg("%zu bytes%s: %s by %s, not %s", q->bytes,
                 q->overlap ? " in place" : "", symm_algorithm_name(answer.algorithm),
                 answer.reason, symm_algorithm_name(wanted));
    assert_int_equal(symm__estimate(q, answer.algorithm).measured, by_table);
}

static void test_choice(void **state)
{
    struct symm_select_query q = query(8, false);
    struct symm_estimate estimate;

    (void)state;
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN,
                  true); /* ll_push is cheaper, and not here */
    estimate = symm__estimate(&q, SYMM_ALGORITHM_COPY_IN);
    assert_int_equal(estimate.next, SYMM_ALGORITHM_ONE_SHOT_PULL);
    assert_true(fabs(estimate.us - 2) < 1e-9 && fabs(estimate.next_us - 3) < 1e-9);
    q = query(200, false);
    expect_choice(&q, SYMM_ALGORITHM_ONE_SHOT_PULL, true);
    q.in_symmetric = false; /* what can do it */
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
    q = query(3900, false);
    expect_choice(&q, SYMM_ALGORITHM_ONE_SHOT_PULL, true);
    q.overlap = true; /* copy_in has no curve in place: its other one, 7.8 against 39 */
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
    q = query(100, true);
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
}

/* An algorithm that was given up at 1000 bytes looks cheap after them, and is not taken. */
static void test_given_up(void **state)
{
    static const symm_costs_point ends[] = {{8, 1}, {1000, 1}, {8, 5}, {4000, 9}};
    static const symm_costs_curve two[] = {
        CURVE_OF(COPY_IN, FLOAT32, true, 2, ends),
        CURVE_OF(TWO_SHOT_INPLACE, FLOAT32, true, 2, ends + 2),
    };
    static const symm_costs given_up = {.curves = two, .curve_count = 2};
    struct symm_select_query q = query(1000, true);

    (void)state;
    q.costs = &given_up;
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
    q.bytes = 1001;
    expect_choice(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true);
    q.bytes = 1 << 20;
    expect_choice(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true);
    q.out_symmetric = false; /* nothing else can */
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
}

/* Sums of int32 have curves of their own; a table without them has int32 among the others. */
static void test_int32(void **state)
{
    static const symm_costs_point ends[] = {{8, 5},    {4000, 5}, {8, 1},
                                            {4000, 1}, {8, 3},    {4000, 3}};
    static const symm_costs_curve three[] = {
        CURVE_OF(COPY_IN, OTHER, false, 2, ends),
        CURVE_OF(ONE_SHOT_PULL, OTHER, false, 2, ends + 4),
        CURVE_OF(COPY_IN, INT32, false, 2, ends + 2),
    };
    static const symm_costs before = {.curves = three, .curve_count = 2};
    static const symm_costs now = {.curves = three, .curve_count = 3};
    struct symm_select_query q = query(1000, false);

    (void)state;
    q.dtype = SYMM_INT32;
    q.costs = &before;
    expect_choice(&q, SYMM_ALGORITHM_ONE_SHOT_PULL, true);
    q.costs = &now;
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, true);
    q.op = SYMM_MIN;
    expect_choice(&q, SYMM_ALGORITHM_ONE_SHOT_PULL, true);
}

static void test_thresholds(void **state)
{
    struct symm_select_query q = query(3900, true);
    struct symm_estimate estimate;

    (void)state;
    q.costs = NULL;
    expect_choice(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE, false);
    estimate = symm__estimate(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE);
    assert_int_equal(estimate.next, SYMM_ALGORITHM_COPY_IN);
    assert_true(estimate.us > 0 && estimate.next_us > 0);
    q = query(3900, true);
    q.size = 3; /* not in the table */
    expect_choice(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE, false);
    q = query(3900, true);
    q.op = SYMM_MAX;
    expect_choice(&q, SYMM_ALGORITHM_TWO_SHOT_INPLACE, false);
    q = query(3900, true);
    q.forced = "copy_in";
    expect_choice(&q, SYMM_ALGORITHM_COPY_IN, false);
    assert_true(symm__estimate(&q, SYMM_ALGORITHM_COPY_IN).us == 0); /* nobody chose */
}

/* What symm_explain names beside the choice is not the cheaper one by its own numbers. */
static void test_thresholds_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * 18; i++) {
        struct symm_select_query q = query((size_t)8 << i / 4, i % 2);
        struct symm_selection answer;
        struct symm_estimate estimate;

        q.costs = NULL;
        q.kind = i & 2 ? SYMM_KIND_BROADCAST : SYMM_KIND_ALL_REDUCE;
        assert_int_equal(symm__choose(&q, &answer), SYMM_OK);
        estimate = symm__estimate(&q, answer.algorithm);
        if (q.kind == SYMM_KIND_ALL_REDUCE)
            assert_true(estimate.next_us > 0); /* the model has the same threshold */
        if (estimate.next_us > 0 && estimate.next_us < estimate.us)
            fail_msg("%zu bytes: %s takes %g us, %s %g", q.bytes,
                     symm_algorithm_name(answer.algorithm), estimate.us,
                     symm_algorithm_name(estimate.next), estimate.next_us);
    }
}

static double by_model(const struct symm_cost_call *call, symm_algorithm algorithm)
{
    return symm__cost_alone(&symm__costs_built_in, call, algorithm, NULL);
}

/* What is faster by the model is so at the sizes where it was measured to be. */
static void test_model(void **state)
{
    struct symm_cost_call call = {.collective = SYMM_PROGRAM_ALL_REDUCE, .ranks = 8};

    (void)state;
    for (call.bytes = 1024; call.bytes <= 16 << 20; call.bytes *= 16) {
        double one = by_model(&call, SYMM_ALGORITHM_LAMPORT_PUSH);
        double two = by_model(&call, SYMM_ALGORITHM_TWO_SHOT_PUSH);

        assert_true((one < two) == (call.bytes < 64 << 10));
    }
    call.bytes = 16;
    assert_true(by_model(&call, SYMM_ALGORITHM_LAMPORT_PUSH) < 2.5);
    assert_true(by_model(&call, SYMM_ALGORITHM_ONE_SHOT_PULL) > 4.5); /* 2 barriers */
    call.bytes = 380e3;
    assert_true(fabs(by_model(&call, SYMM_ALGORITHM_MULTIMEM_ONE_SHOT) - 6) < 1e-6);
}

/* Every algorithm has a line, so what was forced or replaced has an estimate, too. */
static void test_lines(void **state)
{
    struct symm_select_query q = query(1 << 20, false);
    struct symm_cost_call call = {.collective = SYMM_PROGRAM_ALL_GATHER, .ranks = 4};
    double two;

    (void)state;
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
        assert_true(symm__costs_built_in.lines[a].bytes_per_us > 0);
    q.costs = NULL;
    for (q.cuda = false;; q.cuda = true) {
        struct symm_estimate estimate = symm__estimate(&q, SYMM_ALGORITHM_COPY_IN);

        assert_false(estimate.measured);
        assert_true(estimate.us > 0 && estimate.us < 1000);
        if (q.cuda)
            break;
    }
    /* the bytes that a rank receives: docs/planner.md */
    call.bytes = 1e6;
    two = 2 * by_model(&call, SYMM_ALGORITHM_LL_PUSH);
    assert_true(fabs(two - 2 * (2 + 2 * 3 * 1e6 / 330e3)) < 1e-6);
    call.collective = SYMM_PROGRAM_BROADCAST;
    assert_true(fabs(by_model(&call, SYMM_ALGORITHM_COPY_IN) - (2.5 + 1e6 / 150e3)) <
                1e-6);
    call.collective = SYMM_PROGRAM_ALL_REDUCE;
    assert_true(fabs(by_model(&call, SYMM_ALGORITHM_TWO_SHOT_PUSH) -
                     (4 + 2 * 1e6 * 3 / 4 / 300e3)) < 1e-6);
}

/* ---- Plans -------------------------------------------------------------------------- */

/* The plan's algorithm for one all_reduce over two ranks. */
static symm_algorithm planned(const symm_costs *costs, size_t bytes, bool in_place,
                              symm_dtype dtype, double *microseconds)
{
    symm_plan_options options = {.size = sizeof(options), .costs = costs};
    symm_program_op op = {.size = sizeof(op),
                          .kind = SYMM_PROGRAM_ALL_REDUCE,
                          .site = "sum",
                          .out = in_place ? 0 : 1};
    const int64_t count = (int64_t)(bytes / symm_dtype_size(dtype));
    symm_program *program;
    symm_plan *plan;
    symm_algorithm algorithm;
    int buffer;

    assert_int_equal(symm_program_create("one", 2, false, &program), SYMM_OK);
    for (int b = 0; b < 2; b++)
        assert_int_equal(symm_program_add_buffer(program, b ? "out" : "in", dtype, 1,
                                                 &count, NULL, &buffer),
                         SYMM_OK);
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
    algorithm = plan->ops[0].algorithm;
    if (microseconds)
        *microseconds = plan->microseconds;
    symm_plan_destroy(plan);
    symm_program_destroy(program);
    return algorithm;
}

/* Where barriers cost nothing a plan takes what the call would take outside of it. */
static void test_plans(void **state)
{
    static const size_t sizes[] = {8, 64, 96, 200, 1000, 2000, 3000, 3900, 4000, 8000};
    symm_costs costs = {.curves = curves, .curve_count = 4};
    double us;

    (void)state;
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++)
        costs.lines[a] = (struct symm_cost_line){true, 1e-3, 1e9}; /* not looked at */
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct symm_select_query q = query(sizes[i / 2], i % 2);
        struct symm_selection answer;

        q.costs = &costs;
        assert_int_equal(symm__choose(&q, &answer), SYMM_OK);
        assert_int_equal(planned(&costs, q.bytes, q.overlap, SYMM_FLOAT32, &us),
                         answer.algorithm);
        assert_true(fabs(us - symm__estimate(&q, answer.algorithm).us) < 1e-9);
    }
    /* a pull's exit barrier can be left out, so it is better off in a plan */
    costs.barrier_us = 0.9;
    assert_int_equal(planned(&costs, 8, false, SYMM_FLOAT32, &us),
                     SYMM_ALGORITHM_COPY_IN);
    costs.barrier_us = 1.4;
    assert_int_equal(planned(&costs, 8, false, SYMM_FLOAT32, &us),
                     SYMM_ALGORITHM_ONE_SHOT_PULL);
    /* only what has a line is chosen, and by lines where there is no curve */
    costs.lines[SYMM_ALGORITHM_ONE_SHOT_PULL].usable = false;
    assert_int_equal(planned(&costs, 8, false, SYMM_FLOAT32, &us),
                     SYMM_ALGORITHM_COPY_IN);
    costs.lines[SYMM_ALGORITHM_LL_PUSH].latency_us = 1e-4;
    assert_int_equal(planned(&costs, 8, false, SYMM_FLOAT16, &us),
                     SYMM_ALGORITHM_LL_PUSH);
}

/* What stands in for a plan's algorithm on the host can do the call and touches no more. */
static void test_substitutes(void **state)
{
    static const unsigned touches[SYMM_ALGORITHM_COUNT] = {
        [SYMM_ALGORITHM_ONE_SHOT_PULL] = 1, /* peers' inputs; 2: their outputs */
        [SYMM_ALGORITHM_TWO_SHOT_PULL] = 1,
        [SYMM_ALGORITHM_MULTIMEM_ONE_SHOT] = 1,
        [SYMM_ALGORITHM_TWO_SHOT_INPLACE] = 3,
        [SYMM_ALGORITHM_MULTIMEM_TWO_SHOT] = 3};

    (void)state;
    for (int where = 0; where < 8; where++)
        for (int planned = 0; planned < SYMM_ALGORITHM_PUT; planned++) {
            struct symm_select_query q = query(100000, where & 4);
            uint32_t barriers = 0, extra = 1;
            struct symm_selection answer, forced;

            q.in_symmetric = where & 1;
            q.out_symmetric = where & 2;
            assert_int_equal(symm__choose_planned(&q, (symm_algorithm)planned, false,
                                                  &answer, &barriers, &extra),
                             SYMM_OK);
            assert_int_equal(touches[answer.algorithm] & ~touches[planned], 0);
            assert_int_equal(extra, 0);
            /* the barrier that two_shot_pull would have had in the middle */
            assert_int_equal(barriers,
                             planned == SYMM_ALGORITHM_TWO_SHOT_PULL &&
                                     answer.algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL
                                 ? SYMM_BARRIER_EXIT
                                 : 0);
            q.forced = symm_algorithm_name(answer.algorithm);
            assert_int_equal(symm__choose(&q, &forced), SYMM_OK);
            q.forced = symm_algorithm_name((symm_algorithm)planned);
            if (symm__choose(&q, &forced) == SYMM_OK)
                assert_int_equal(answer.algorithm, planned);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),      cmocka_unit_test(test_data),
        cmocka_unit_test(test_choice),      cmocka_unit_test(test_int32),
        cmocka_unit_test(test_thresholds),  cmocka_unit_test(test_thresholds_agree),
        cmocka_unit_test(test_given_up),    cmocka_unit_test(test_model),
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_plans),
        cmocka_unit_test(test_substitutes),
    };

    return cmocka_run_group_tests_name("host_choose", tests, NULL, NULL);
}
