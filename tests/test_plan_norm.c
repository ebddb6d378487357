/* SPDX-License-Identifier: MIT */
/*
 * test_plan_norm.c - all_reduce_norm in programs and plans: what a program may say of one, what is
 * refused, and which orders and places of its arrays the checker and the search find safe.
 */
#include "plan_judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROW 192 /* float32 of 768 bytes */

/* ---- Documents ----------------------------------------------------------------------- */

#define HEAD                                                                           \
    "{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 2, \"buffers\": ["   \
    "{\"name\": \"x\", \"dtype\": \"bfloat16\", \"shape\": [2, 300]}, "                \
    "{\"name\": \"r\", \"dtype\": \"bfloat16\", \"shape\": [2, 300]}, "                \
    "{\"name\": \"w\", \"dtype\": \"bfloat16\", \"shape\": [300]}, "                   \
    "{\"name\": \"q\", \"dtype\": \"float8_e4m3\", \"shape\": [2, 300]}, "             \
    "{\"name\": \"s\", \"dtype\": \"float32\", \"shape\": [2, 3]}, "                   \
    "{\"name\": \"i\", \"dtype\": \"int32\", \"shape\": [600]}, "                      \
    "{\"name\": \"raw\", \"bytes\": 1200}], \"ops\": ["
#define OP(rest) "{\"op\": \"all_reduce_norm\", \"site\": \"n\", \"in\": \"x\"" rest "}"
#define NORM(rest)                                                                     \
    HEAD OP(", \"norm\": {\"hidden\": 300, \"norm_out\": \"x\"" rest "}") "]}"
#define OPS(rest)                                                                      \
    HEAD OP(", \"norm\": {\"hidden\": 300, \"constant\": true, \"weight\": \"w\", "    \
            "\"bias\": \"raw\", \"norm_out\": true}") ", " rest "]}"

static symm_status parse(const char *text, symm_program **made)
{
    const symm_status status = symm_program_parse(text, strlen(text), "input", made);

    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    return status;
}

static void test_wrong_documents(void **state)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {HEAD OP("") "]}", "ops[0].norm: found nothing, allowed: an object"},
        {HEAD OP(", \"norm\": [1]") "]}", "ops[0].norm: found [1], allowed: an object"},
        {HEAD OP(", \"out\": \"r\", \"norm\": {\"hidden\": 300}") "]}",
         "ops[0].out: found \"r\", allowed: none"},
        {HEAD OP(", \"norm\": {}") "]}",
         "ops[0].norm.hidden: found nothing, allowed: an integer from 1 to 16384"},
        {HEAD OP(", \"norm\": {\"hidden\": 16385}") "]}", "ops[0].norm.hidden"},
        {HEAD OP(", \"norm\": {\"hidden\": 300, \"weight\": \"w\"}") "]}",
         "ops[0].norm: found no output, allowed: sum_out"},
        {HEAD OP(", \"norm\": {\"hidden\": 7, \"norm_out\": \"x\"}") "]}",
         "ops[0].count: found 600, allowed: whole rows of 7 elements, up to 600"},
        {HEAD OP(
             ", \"count\": 900, \"norm\": {\"hidden\": 300, \"norm_out\": \"x\"}") "]}",
         "ops[0].count: found 900"},
        {NORM(", \"quant\": \"fp4\""), "ops[0].norm.quant: found \"fp4\", allowed: "
                                       "none tensor row group group_column"},
        {NORM(", \"quant\": 1"), "ops[0].norm.quant: found 1"},
        {NORM(", \"constant\": 1"),
         "ops[0].norm.constant: found 1, allowed: true or false"},
        {NORM(", \"dtype\": \"bf16\""), "ops[0].norm.dtype: found \"bf16\""},
        {NORM(", \"dtype\": \"float32\""), "ops[0].in: found \"x\" of bfloat16, "
                                           "allowed: a buffer of the dtype of `norm`"},
        {NORM(", \"bias\": \"nosuch\""),
         "ops[0].norm.bias: found \"nosuch\", allowed: the name of a buffer, or true"},
        {NORM(", \"weight\": false"), "ops[0].norm.weight: found false"},
        {NORM(", \"weight\": \"s\""), "ops[0].norm.weight: found \"s\", allowed: a "
                                      "buffer of bfloat16 of at least 600 bytes"},
        {NORM(", \"residual_in\": \"w\""), "at least 1200 bytes"},
        {NORM(", \"residual_out\": \"x\""),
         "a buffer that no other array of the call has"},
        {NORM(", \"weight\": \"r\", \"residual_out\": \"r\""),
         "ops[0].norm.residual_out: found \"r\""},
        {NORM(", \"quant_out\": \"q\""),
         "ops[0].norm.quant_out: found \"q\", allowed: nothing, for `quant` is none"},
        {NORM(", \"quant\": \"row\", \"quant_out\": \"q\""),
         "ops[0].norm.scale: found nothing, allowed: an array"},
        {NORM(", \"quant\": \"row\", \"quant_out\": \"x\", \"scale\": \"s\""),
         "ops[0].norm.quant_out: found \"x\""},
        {NORM(", \"quant\": \"group\", \"quant_out\": \"q\", \"scale\": \"i\""),
         "ops[0].norm.scale: found \"i\", allowed: a buffer of float32 of at least 24 "
         "bytes"},
        {HEAD "{\"op\": \"all_reduce_norm\", \"site\": \"n\", \"in\": \"i\", \"norm\": "
              "{\"hidden\": 300, \"norm_out\": true}}]}",
         "ops[0].in: found \"i\" of int32, allowed: bfloat16, float16, float32"},
        {HEAD
         "{\"op\": \"all_reduce_norm\", \"site\": \"n\", \"in\": \"raw\", \"norm\": "
         "{\"hidden\": 300, \"norm_out\": true}}]}",
         "ops[0].in: found \"raw\" of bytes, allowed: bfloat16, float16, float32, or "
         "bytes if"},
        {OPS("{\"op\": \"write\", \"buffers\": [\"x\", \"w\"]}"),
         "ops[1] (write): found a write to \"w\", allowed: none, since ops[0] "
         "(all_reduce_norm n) declares it constant"},
        {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"x\", \"dst\": \"raw\", "
             "\"shift\": 1}"),
         "ops[1] (put p): found a write to \"raw\""},
        {OPS("{\"op\": \"all_reduce\", \"site\": \"a\", \"in\": \"x\", \"count\": 300, "
             "\"out\": \"w\"}"),
         "ops[1] (all_reduce a): found a write to \"w\""},
        {OPS("{\"op\": \"all_reduce_norm\", \"site\": \"m\", \"in\": \"x\", \"norm\": "
             "{\"hidden\": 300, \"sum_out\": \"raw\"}}"),
         "ops[1] (all_reduce_norm m): found a write to \"raw\""},
    };
    symm_program *none = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const symm_status status = parse(wrong[i].text, &none);

        if (status != SYMM_ERR_INVALID || !strstr(symm_last_error(), wrong[i].words) ||
            none)
            fail_msg("%s: status %d, said: %s", wrong[i].text, (int)status,
                     symm_last_error());
    }
    assert_int_equal(parse(HEAD "]}", &none), SYMM_OK);
    symm_program_destroy(none);
}

/* Not constant: it may be written. Every array elsewhere: the op touches its `in` alone. */
static void test_right_documents(void **state)
{
    symm_program *p;

    (void)state;
    assert_int_equal(
        parse(HEAD "{\"op\": \"write\", \"buffers\": [\"w\"]}, " OP(
                  ", \"norm\": {\"hidden\": 300, \"weight\": \"w\", \"bias\": \"w\", "
                  "\"residual_in\": \"r\", \"residual_out\": \"r\", \"quant\": "
                  "\"group_column\", \"quant_out\": \"q\", \"scale\": \"s\", "
                  "\"eps\": 1e-5}") "]}",
              &p),
        SYMM_OK);
    assert_int_equal(p->ops[1].out, -1); /* the residual cannot take the sums */
    assert_int_equal(p->ops[1].count, 600);
    assert_int_equal(p->ops[1].result, 1200);
    assert_int_equal(p->ops[1].dtype, SYMM_BFLOAT16);
    assert_int_equal(p->ops[0].norm, -1);
    assert_int_equal(p->norm_count, 1);
    symm_program_destroy(p);

    assert_int_equal(parse(HEAD OP(", \"count\": 300, \"norm\": {\"hidden\": 100, "
                                   "\"residual_out\": true, \"norm_out\": \"r\"}") "]}",
                           &p),
                     SYMM_OK);
    assert_int_equal(p->ops[0].out, 1);
    assert_int_equal(p->ops[0].result, 600);
    symm_program_destroy(p);
}

/* ---- Building ------------------------------------------------------------------------ */

static symm_program_array on(int buffer)
{
    return (symm_program_array){.given = true, .buffer = buffer};
}

static int add_norm_of(symm_program *p, symm_program_norm norm)
{
    int index;

    norm.size = sizeof(norm);
    if (norm.hidden == 0)
        norm.hidden = ROW;
    if (norm.dtype == 0)
        norm.dtype = SYMM_FLOAT32;
    assert_int_equal(symm_program_add_norm(p, &norm, &index), SYMM_OK);
    return index;
}

static void normalise(symm_program *p, const char *site, int in, symm_program_norm norm)
{
    const int index = add_norm_of(p, norm);

    add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE_NORM,
                             .site = site,
                             .in = in,
                             .norm = index});
}

/* A built program hashes as its document, every default written out. */
static void test_build(void **state)
{
    static const char text[] =
        "{\"format\": \"symm-program/1\", \"name\": \"test\", \"world\": 2, \"loop\": "
        "true, \"streams\": [\"s0\"], \"groups\": {\"one\": [[0], [1]]}, \"buffers\": "
        "[{\"name\": \"b0\", \"bytes\": 768}, {\"name\": \"b1\", \"bytes\": 768}, "
        "{\"name\": \"b2\", \"bytes\": 768}], \"ops\": [{\"op\": \"all_reduce_norm\", "
        "\"early_start\": false, \"stream\": \"s0\", \"site\": \"n\", \"group\": "
        "\"world\", \"in\": \"b0\", \"count\": 192, \"norm\": {\"hidden\": 96, "
        "\"dtype\": \"float32\", \"constant\": true, \"quant\": \"row\", "
        "\"quant_out\": "
        "true, \"scale\": \"b2\", \"bias\": true, \"weight\": \"b1\"}}]}";
    symm_program *p = program(2, true, 3, 1), *read, *again;
    uint64_t hash, wanted, third;
    char *written;
    size_t length;

    (void)state;
    normalise(p, "n", 0,
              (symm_program_norm){.hidden = 96,
                                  .constant = true,
                                  .quant = SYMM_NORM_QUANT_ROW,
                                  .bias = on(-1),
                                  .weight = on(1),
                                  .quant_out = on(-1),
                                  .scale = on(2)});
    assert_int_equal(symm_program_finish(p), SYMM_OK);
    assert_int_equal(symm_program_hash(p, &hash), SYMM_OK);
    assert_int_equal(parse(text, &read), SYMM_OK);
    assert_int_equal(symm_program_hash(read, &wanted), SYMM_OK);
    assert_int_equal(hash, wanted);
    assert_int_equal(symm_program_format(read, &written, &length), SYMM_OK);
    assert_int_equal(parse(written, &again), SYMM_OK);
    assert_int_equal(symm_program_hash(again, &third), SYMM_OK);
    assert_int_equal(third, wanted);
    symm_text_free(written);
    symm_program_destroy(again);
    symm_program_destroy(read);
    symm_program_destroy(p);
}

static void test_builder_refuses(void **state)
{
    symm_program *p = program(2, true, 3, 1);
    symm_program_norm norm = {
        .size = sizeof(norm), .hidden = ROW, .dtype = SYMM_FLOAT32, .norm_out = on(7)};
    symm_program_op op = {
        .size = sizeof(op), .kind = SYMM_PROGRAM_ALL_REDUCE_NORM, .site = "n"};
    int index;

    (void)state;
    assert_int_equal(symm_program_add_norm(NULL, &norm, &index), SYMM_ERR_INVALID);
    assert_int_equal(symm_program_add_norm(p, NULL, &index), SYMM_ERR_INVALID);
    assert_int_equal(symm_program_add_norm(p, &norm, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_program_add_op(p, &op), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "an index from symm_program_add_norm"));
    norm.size = 8;
    assert_int_equal(symm_program_add_norm(p, &norm, &index), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "symm_program_norm.size: found 8"));
    norm.size = sizeof(norm);
    norm.hidden = 0;
    assert_int_equal(symm_program_add_norm(p, &norm, &index), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "symm_program_norm.hidden: found 0"));
    norm.hidden = ROW;
    norm.quant = SYMM_NORM_QUANT_COUNT;
    assert_int_equal(symm_program_add_norm(p, &norm, &index), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "quant"));
    norm.quant = SYMM_NORM_QUANT_NONE;
    assert_int_equal(symm_program_add_norm(p, &norm, &index), SYMM_OK);
    assert_int_equal(symm_program_add_op(p, &op), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "ops[0].norm.norm_out: found 7"));
    assert_int_equal(p->op_count, 0);
    assert_int_equal(symm_program_finish(p), SYMM_OK);
    symm_program_destroy(p);
}

/* ---- Orders and places --------------------------------------------------------------- */

enum { X, RESIDUAL, WEIGHT, Y, NEXT, BUFFERS };

/* Two sums that share a residual; the results are read. */
static symm_program *layers(int world, bool loop)
{
    symm_program *p = program(world, loop, BUFFERS, 1);

    local(p, SYMM_PROGRAM_WRITE, 0, X);
    local(p, SYMM_PROGRAM_WRITE, 0, RESIDUAL);
    normalise(p, "first", X,
              (symm_program_norm){.constant = true,
                                  .residual_in = on(RESIDUAL),
                                  .residual_out = on(RESIDUAL),
                                  .weight = on(WEIGHT),
                                  .norm_out = on(Y)});
    local(p, SYMM_PROGRAM_READ, 0, Y);
    local(p, SYMM_PROGRAM_WRITE, 0, NEXT);
    normalise(p, "second", NEXT,
              (symm_program_norm){.residual_in = on(RESIDUAL),
                                  .residual_out = on(RESIDUAL),
                                  .weight = on(WEIGHT),
                                  .norm_out = on(NEXT)});
    local(p, SYMM_PROGRAM_READ, 0, NEXT);
    return p;
}

/* NEXT is reduced in place, so it must not be pulled in one shot. */
static struct plan_case *plan_of_layers(symm_program *p)
{
    struct plan_case *c = plan_of(p);

    assert_int_equal(c->plan.op_count, 2);
    assert_int_equal(c->plan.ops[0].algorithm, SYMM_ALGORITHM_ONE_SHOT_PULL);
    assert_int_equal(c->plan.ops[1].algorithm, SYMM_ALGORITHM_TWO_SHOT_PULL);
    return c;
}

static void test_orders(void **state)
{
    (void)state;
    for (int loop = 0; loop < 2; loop++) {
        symm_program *p = layers(2, loop);
        struct plan_case *c = plan_of_layers(p);

        judge("layers", c, true);
        c->plan.ops[0].entry_barrier = false;
        judge("no entry barrier", c, false);
        c->plan.ops[0].entry_barrier = true;
        c->plan.ops[1].exit_barrier =
            false; /* in place: peers have read NEXT by then */
        plan_case_certify(c);
        refused(c,
                "op 5 (all_reduce_norm second) has no exit barrier: by two_shot_pull");
        c->plan.ops[1].exit_barrier = true;
        c->plan.ops[0].algorithm = c->plan.ops[1].algorithm = SYMM_ALGORITHM_COPY_IN;
        for (int i = 0; i < 2; i++)
            c->plan.ops[i].entry_barrier = c->plan.ops[i].exit_barrier = false;
        judge("pushes need no barriers", c, true);
        done(c, p);
    }
}

/* One rank is through with its sum and writes, into what a peer still reads or adds up. */
static void test_dropped_exit(void **state)
{
    static const struct {
        symm_algorithm algorithm;
        int sum_out, norm_out;
    } rows[] = {{SYMM_ALGORITHM_ONE_SHOT_PULL, 1, 0},
                {SYMM_ALGORITHM_TWO_SHOT_INPLACE, 1, 0},
                {SYMM_ALGORITHM_TWO_SHOT_INPLACE, 0, 1},
                {SYMM_ALGORITHM_MULTIMEM_ONE_SHOT, 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        symm_program *p = program(2, false, 2, 1);

        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        normalise(p, "n", 0,
                  (symm_program_norm){.sum_out = on(rows[i].sum_out),
                                      .norm_out = on(rows[i].norm_out)});
        struct plan_case *c = plan_of(p);
        c->plan.ops[0].algorithm = rows[i].algorithm;
        judge("with an exit barrier", c, true);
        c->plan.ops[0].exit_barrier = false;
        judge("without an exit barrier", c, false);
        refused(c, "has no exit barrier");
        done(c, p);
    }
}

static void test_places(void **state)
{
    static const struct {
        const char *name;
        int moved, to; /* buffers */
        bool loop, safe;
    } rows[] = {
        {"results one after the other", Y, NEXT, false, true},
        {"the second input after the first", NEXT, X, false, true},
        {"the same around the circle", NEXT, X, true, true},
        {"a residual on an input", RESIDUAL, X, true, false},
        {"a residual on a later input", RESIDUAL, NEXT, false, false},
        {"a residual on a result", RESIDUAL, Y, true, false},
        {"a result on its input", Y, X, false, false},
        {"a weight that holds its value on a result", WEIGHT, Y, true, false},
        {"a weight that is read once more on a result", WEIGHT, Y, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        symm_program *p = layers(2, rows[i].loop);
        struct plan_case *c = plan_of_layers(p);

        c->plan.buffers[rows[i].moved].offset = c->plan.buffers[rows[i].to].offset;
        judge(rows[i].name, c, rows[i].safe);
        done(c, p);
    }
}

/* A result that a norm writes in part leaves the rest of the buffer as it was; one of which it
 * writes all begins a life. */
static void test_lives(void **state)
{
    (void)state;
    for (int part = 0; part < 2; part++) {
        symm_program *p = program(2, true, 4, 1);

        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        local(p, SYMM_PROGRAM_WRITE, 0, 2);
        local(p, SYMM_PROGRAM_READ, 0, 2);
        normalise(p, "n", 0,
                  (symm_program_norm){.hidden = 64,
                                      .quant = SYMM_NORM_QUANT_ROW,
                                      .residual_out = on(1),
                                      .quant_out = on(-1),
                                      .scale = on(3)});
        local(p, SYMM_PROGRAM_READ, 0, 1);
        if (part)
            local(p, SYMM_PROGRAM_READ, 0, 3); /* all of it: 12 bytes are a part */
        struct plan_case *c = plan_of(p);
        c->plan.buffers[1].offset = c->plan.buffers[2].offset;
        judge("a result after a buffer that is over", c, true);
        c->plan.buffers[3].offset = c->plan.buffers[2].offset + 768;
        c->plan.buffers[1].offset = c->plan.buffers[3].offset;
        judge("two results at one place", c, false);
        c->plan.buffers[1].offset = 2304 + 768;
        c->plan.buffers[3].offset = c->plan.buffers[2].offset;
        plan_case_certify(c);
        assert_int_equal(report_of(c).safe, !part);
        done(c, p);
    }
}

/* ---- Plans --------------------------------------------------------------------------- */

static void test_plan_says_norm(void **state)
{
    symm_program *p = layers(2, true);
    struct plan_case *c = plan_of_layers(p);

    (void)state;
    plan_case_certify(c);
    assert_true(report_of(c).safe);
    c->plan.ops[0].norm = false;
    refused(c, "op 2 (all_reduce_norm first): the plan has no all_reduce_norm");
    done(c, p);

    p = program(2, true, 2, 1);
    reduce(p, "sum", 0, 0, 1);
    c = plan_of(p);
    c->plan.ops[0].norm = true;
    plan_case_certify(c);
    refused(c, "op 0 (all_reduce sum): the plan has an all_reduce_norm");
    done(c, p);
}

/* Each algorithm that can do both: the plan is proved, and its exit barriers are there. */
static void test_planner(void **state)
{
    (void)state;
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        symm_program *p = layers(3, true);
        const symm_plan_options options = {.size = sizeof(options),
                                           .algorithm =
                                               symm_algorithm_name((symm_algorithm)a)};
        const bool moves = a == SYMM_ALGORITHM_COPY_ENGINE;
        const bool apart =
            a == SYMM_ALGORITHM_ONE_SHOT_PULL || a == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT;
        const bool local = a == SYMM_ALGORITHM_LL_PUSH ||
                           a == SYMM_ALGORITHM_LAMPORT_PUSH ||
                           a == SYMM_ALGORITHM_TWO_SHOT_PUSH ||
                           a == SYMM_ALGORITHM_COPY_IN || a == SYMM_ALGORITHM_ENGINE;
        symm_plan_report report = {.size = sizeof(report)};
        struct interleave search = {.periods = 3, .max_states = 2000000};
        symm_plan *plan = NULL;
        const symm_status status = symm_plan_make(p, &options, &plan);

        assert_int_equal(status, moves || apart ? SYMM_ERR_INVALID : SYMM_OK);
        if (status == SYMM_OK) {
            assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
            if (!report.safe)
                fail_msg("%s: %s", options.algorithm, report.first);
            assert_int_equal(interleave_search(p, plan, &search), INTERLEAVE_SAFE);
            for (int i = 0; i < 2; i++) {
                assert_true(plan->ops[i].norm);
                assert_int_equal(plan->ops[i].exit_barrier, !local);
            }
            assert_true(plan->arena_bytes < plan->dedicated_bytes);
        }
        symm_plan_destroy(plan);
        symm_program_destroy(p);
    }
}

/* Plans of programs without an all_reduce_norm are what they were; the others say it once. */
static void test_text(void **state)
{
    (void)state;
    for (int norm = 0; norm < 2; norm++) {
        symm_program *p = program(2, true, 2, 1);
        symm_plan *plan, *read;
        uint64_t hash, again;
        size_t length;
        char *text;

        if (norm)
            normalise(p, "n", 0, (symm_program_norm){.norm_out = on(1)});
        else
            reduce(p, "n", 0, 0, 1);
        assert_int_equal(symm_plan_make(p, NULL, &plan), SYMM_OK);
        assert_int_equal(symm_plan_format(plan, &text, &length), SYMM_OK);
        assert_int_equal(strstr(text, "\"norm\":true") != NULL, norm);
        assert_int_equal(strstr(text, "\"norm\"") != NULL, norm);
        if (symm_plan_parse(text, length, "plan", &read) == SYMM_ERR_UNSUPPORTED)
            skip();
        assert_int_equal(read->ops[0].norm, norm);
        assert_int_equal(symm_plan_run_hash(plan, &hash), SYMM_OK);
        read->ops[0].norm = !norm;
        assert_int_equal(symm_plan_run_hash(read, &again), SYMM_OK);
        assert_int_not_equal(hash, again);
        symm_text_free(text);
        symm_plan_destroy(plan);
        symm_plan_destroy(read);
        symm_program_destroy(p);
    }
}

/* Planned again after a sum became an all_reduce_norm: the barriers of the one say nothing of
 * the other. */
static void test_again(void **state)
{
    symm_program *before = program(2, true, 3, 1), *after = program(2, true, 3, 1);
    symm_plan_options options = {.size = sizeof(options), .algorithm = "one_shot_pull"};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *old, *plan;

    (void)state;
    local(before, SYMM_PROGRAM_WRITE, 0, 0);
    reduce(before, "n", 0, 0, 1);
    local(after, SYMM_PROGRAM_WRITE, 0, 0);
    normalise(after, "n", 0,
              (symm_program_norm){.norm_out = on(1), .residual_in = on(2)});
    assert_int_equal(symm_plan_make(before, &options, &old), SYMM_OK);
    options = (symm_plan_options){.size = sizeof(options), .previous = old};
    assert_int_equal(symm_plan_make(after, &options, &plan), SYMM_OK);
    assert_true(plan->ops[0].norm);
    assert_int_equal(symm_plan_check(after, plan, &report), SYMM_OK);
    if (!report.safe)
        fail_msg("%s", report.first);
    symm_plan_destroy(old);
    symm_plan_destroy(plan);
    symm_program_destroy(before);
    symm_program_destroy(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_documents),
        cmocka_unit_test(test_right_documents),
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_dropped_exit),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_plan_says_norm),
        cmocka_unit_test(test_planner),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
