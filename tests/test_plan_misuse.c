/* SPDX-License-Identifier: MIT */
/*
 * test_plan_misuse.c - invalid calls of every function of plan.h: NULL, sizes of structs of no
 * version, numbers out of range. Written from the header alone.
 */
#include "misuse.h"

#include "symm/plan.h"

static symm_program *program_with_buffer(void)
{
    symm_program *p;
    int index;

    assert_int_equal(symm_program_create("p", 2, false, &p), SYMM_OK);
    assert_int_equal(symm_program_add_bytes(p, "b", 4096, &index), SYMM_OK);
    return p;
}

/* Arrays that are no buffers, and may not be there at all: a sentence must not name them. */
static void bad_norms(void)
{
    symm_program *p = program_with_buffer();
    const int64_t shape[2] = {4, 8};
    symm_program_norm norm = {
        .size = sizeof(norm), .hidden = 8, .norm_out.given = true};
    symm_program_op op = {
        .size = sizeof(op), .kind = SYMM_PROGRAM_ALL_REDUCE_NORM, .site = "n"};

    assert_int_equal(
        symm_program_add_buffer(p, "rows", SYMM_FLOAT32, 2, shape, NULL, &op.in),
        SYMM_OK);
    norm.norm_out.buffer = -1;
    norm.scale.given = true; /* though nothing is quantised */
    for (int i = 0; i < 4; i++) {
        const int far[] = {1 << 20, INT32_MAX, INT32_MIN, -2};

        norm.scale.buffer = far[i];
        assert_int_equal(symm_program_add_norm(p, &norm, &op.norm), SYMM_OK);
        INVALID("scale", symm_program_add_op(p, &op));
    }
    symm_program_destroy(p);
}

static void test_programs(void **state)
{
    symm_program *p, *q = NULL;
    symm_program_op op = {.size = sizeof(op), .buffer_count = 1};
    const int ranks[2] = {0, 1};
    const int64_t one = 1;
    /* A byte alone, a surrogate, an overlong '/', a sequence that ends early: a file with them
     * could be written, and not read. */
    const char *const no_text[] = {"\xff", "a\xed\xa0\x80", "\xc0\xaf", "\xe2\x82"};
    uint64_t hash;
    char *text;
    size_t length;
    int index;

    (void)state;
    INVALID("symm_program_create", symm_program_create(NULL, 2, false, &q));
    INVALID("symm_program_create", symm_program_create("", 2, false, &q));
    INVALID("program", symm_program_create("p", 2, false, NULL));
    INVALID("world", symm_program_create("p", 0, false, &q));
    INVALID("world", symm_program_create("p", INT32_MAX, false, &q));
    assert_null(q);
    p = program_with_buffer();
    INVALID("symm_program_add_stream", symm_program_add_stream(NULL, "s", &index));
    INVALID("symm_program_add_stream", symm_program_add_stream(p, "s", NULL));
    INVALID("streams", symm_program_add_stream(p, NULL, &index));
    INVALID("streams", symm_program_add_stream(p, "", &index));
    INVALID("symm_program_add_partition",
            symm_program_add_partition(NULL, "g", 1, 2, ranks, &index));
    for (size_t i = 0; i < sizeof(no_text) / sizeof(no_text[0]); i++) {
        INVALID("UTF-8", symm_program_create(no_text[i], 2, false, &q));
        INVALID("UTF-8", symm_program_add_stream(p, no_text[i], &index));
        INVALID("UTF-8",
                symm_program_add_partition(p, no_text[i], 1, 2, ranks, &index));
        INVALID("UTF-8", symm_program_add_bytes(p, no_text[i], 1, &index));
        INVALID("UTF-8", symm_program_add_buffer(p, no_text[i], SYMM_INT8, 1, &one,
                                                 NULL, &index));
        op = (symm_program_op){
            .size = sizeof(op), .kind = SYMM_PROGRAM_ALL_REDUCE, .site = no_text[i]};
        INVALID("UTF-8", symm_program_add_op(p, &op));
    }
    op = (symm_program_op){.size = sizeof(op), .buffer_count = 1};
    INVALID("ranks", symm_program_add_partition(p, "g", 1, 2, NULL, &index));
    INVALID("group", symm_program_add_partition(p, "g", 1, 2, ranks, NULL));
    INVALID("groups", symm_program_add_partition(p, NULL, 1, 2, ranks, &index));
    INVALID("groups", symm_program_add_partition(p, "g", -1, -2, ranks, &index));
    INVALID("groups", symm_program_add_partition(p, "g", INT32_MAX, 2, ranks, &index));
    INVALID("symm_program_add_buffer",
            symm_program_add_buffer(NULL, "x", SYMM_INT8, 1, &one, NULL, &index));
    INVALID("shape", symm_program_add_buffer(p, "x", SYMM_INT8, 1, NULL, NULL, &index));
    INVALID("buffer", symm_program_add_buffer(p, "x", SYMM_INT8, 1, &one, NULL, NULL));
    INVALID("name", symm_program_add_buffer(p, NULL, SYMM_INT8, 1, &one, NULL, &index));
    INVALID("buffers",
            symm_program_add_buffer(p, "x", (symm_dtype)99, 1, &one, NULL, &index));
    INVALID("buffers",
            symm_program_add_buffer(p, "x", SYMM_INT8, 17, &one, NULL, &index));
    INVALID("buffers",
            symm_program_add_buffer(p, "x", SYMM_INT8, -1, NULL, NULL, &index));
    INVALID("symm_program_add_bytes", symm_program_add_bytes(NULL, "x", 1, &index));
    INVALID("symm_program_add_bytes", symm_program_add_bytes(p, "x", 1, NULL));
    INVALID("bytes", symm_program_add_bytes(p, "x", 0, &index));
    INVALID("bytes", symm_program_add_bytes(p, "x", SIZE_MAX, &index));
    INVALID("symm_program_add_op", symm_program_add_op(NULL, &op));
    INVALID("symm_program_add_op", symm_program_add_op(p, NULL));
    for (int kind = -1; kind <= SYMM_PROGRAM_KINDS; kind++) {
        op = (symm_program_op){.size = sizeof(op), .kind = (symm_program_kind)kind};
        op.buffer_count = 1; /* of no list */
        op.in = op.out = op.partition = op.stream = op.on = 99;
        INVALID("ops", symm_program_add_op(p, &op));
        op.stream = 0;
        INVALID("ops", symm_program_add_op(p, &op));
    }
    op.size = SIZE_MAX;
    INVALID("size", symm_program_add_op(p, &op));
    bad_norms();
    INVALID("symm_program_finish", symm_program_finish(NULL));
    INVALID("symm_program_check_run: program", symm_program_check_run(NULL));
    INVALID("symm_program_check_run: program->order", symm_program_check_run(p));
    INVALID("symm_program_hash", symm_program_hash(NULL, &hash));
    INVALID("symm_program_hash", symm_program_hash(p, NULL));
    INVALID("finish", symm_program_hash(p, &hash));
    INVALID("symm_program_set_alloc_id", symm_program_set_alloc_id(NULL, 0, 1));
    INVALID("alloc_id", symm_program_set_alloc_id(p, 0, 0));
    INVALID("alloc_id", symm_program_set_alloc_id(p, -1, 1));
    INVALID("alloc_id", symm_program_set_alloc_id(p, 1, 1));
    INVALID("symm_program_format", symm_program_format(NULL, &text, &length));
    INVALID("symm_program_format", symm_program_format(p, NULL, &length));
    INVALID("symm_program_format", symm_program_format(p, &text, NULL));
    INVALID("finish", symm_program_format(p, &text, &length));
    INVALID("symm_program_write", symm_program_write(NULL, "/nowhere/x"));
    INVALID("symm_program_write", symm_program_write(p, NULL));
    INVALID("finish", symm_program_write(p, "/nowhere/x"));
    INVALID("symm_program_read", symm_program_read(NULL, &q));
    INVALID("symm_program_read", symm_program_read("/nowhere", NULL));
    INVALID("symm_program_parse", symm_program_parse(NULL, 0, "x", &q));
    INVALID("symm_program_parse", symm_program_parse("{}", 2, NULL, &q));
    INVALID("symm_program_parse", symm_program_parse("{}", 2, "x", NULL));
    assert_null(q);
    assert_null(symm_program_kind_name((symm_program_kind)-1));
    symm_program_destroy(NULL);
    symm_program_destroy(p);
}

static void test_merging(void **state)
{
    const char *const paths[] = {"/nowhere/a", NULL};
    symm_program_merge_report report = {.size = sizeof(report)};
    symm_program *q = NULL;

    (void)state;
    INVALID("symm_program_merge", symm_program_merge(NULL, 1, &q, &report));
    INVALID("symm_program_merge", symm_program_merge(paths, 0, &q, &report));
    INVALID("symm_program_merge", symm_program_merge(paths, -1, &q, &report));
    INVALID("symm_program_merge", symm_program_merge(paths, 1, NULL, &report));
    INVALID("symm_program_merge", symm_program_merge(paths + 1, 1, &q, &report));
    report.size = 1;
    INVALID("report->size", symm_program_merge(paths, 1, &q, &report));
    assert_int_not_equal(symm_program_merge(paths, 1, &q, NULL), SYMM_OK);
    assert_null(q);
}

/* Structs that no function has made: their arrays are whatever lies there. */
static void test_foreign(void **state)
{
    static const size_t sizes[] = {0, 8, SIZE_MAX};
    symm_plan_options options = {.size = sizeof(options)};
    symm_program *p = program_with_buffer();
    symm_program program;
    symm_plan foreign, *none = NULL;
    uint64_t hash;
    size_t length;
    char *text;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(&foreign, 0xa5, sizeof(foreign));
        memset(&program, 0xa5, sizeof(program));
        foreign.size = program.size = sizes[i];
        options.previous = &foreign;
        INVALID("symm_plan_hash", symm_plan_hash(&foreign, &hash));
        INVALID("symm_plan_run_hash", symm_plan_run_hash(&foreign, &hash));
        INVALID("symm_plan_format", symm_plan_format(&foreign, &text, &length));
        INVALID("symm_plan_format", symm_plan_write(&foreign, "/nowhere/x"));
        INVALID("symm_plan_options.previous", symm_plan_make(p, &options, &none));
        INVALID("symm_program_finish", symm_program_finish(&program));
        INVALID("symm_program_finish", symm_plan_make(&program, NULL, &none));
    }
    assert_null(none);
    symm_program_destroy(p);
}

static void test_plans(void **state)
{
    symm_program *p = program_with_buffer();
    symm_plan_options options = {.size = sizeof(options)};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *plan, *none = NULL;
    symm_algorithm algorithm;
    uint64_t hash;
    int before, after;
    char *text;
    size_t length;

    (void)state;
    INVALID("symm_plan_make", symm_plan_make(NULL, NULL, &none));
    INVALID("symm_plan_make", symm_plan_make(p, NULL, NULL));
    options.size = 1;
    INVALID("symm_plan_options.size", symm_plan_make(p, &options, &none));
    options = (symm_plan_options){.size = sizeof(options), .time_limit = QUIET_NAN};
    INVALID("time_limit", symm_plan_make(p, &options, &none));
    options = (symm_plan_options){.size = sizeof(options), .algorithm = "nosuch"};
    INVALID("nosuch", symm_plan_make(p, &options, &none));
    INVALID("symm_plan_read", symm_plan_read(NULL, &none));
    INVALID("symm_plan_read", symm_plan_read("/nowhere", NULL));
    INVALID("symm_plan_parse", symm_plan_parse(NULL, 0, "x", &none));
    INVALID("symm_plan_parse", symm_plan_parse("{}", 2, NULL, &none));
    INVALID("symm_plan_parse", symm_plan_parse("{}", 2, "x", NULL));
    assert_null(none);
    INVALID("symm_algorithm_parse", symm_algorithm_parse(NULL, &algorithm));
    INVALID("symm_algorithm_parse", symm_algorithm_parse("engine", NULL));
    assert_null(symm_algorithm_name((symm_algorithm)99));
    GOOD(symm_plan_make(p, NULL, &plan));
    INVALID("symm_plan_write", symm_plan_write(NULL, "/nowhere/x"));
    INVALID("symm_plan_write", symm_plan_write(plan, NULL));
    BAD(SYMM_ERR_SYSTEM, "/nowhere/x", symm_plan_write(plan, "/nowhere/x"));
    INVALID("symm_plan_format", symm_plan_format(NULL, &text, &length));
    symm_text_free(NULL);
    INVALID("symm_plan_format", symm_plan_format(plan, NULL, &length));
    INVALID("symm_plan_format", symm_plan_format(plan, &text, NULL));
    INVALID("symm_plan_hash", symm_plan_hash(NULL, &hash));
    INVALID("symm_plan_hash", symm_plan_hash(plan, NULL));
    INVALID("symm_plan_run_hash", symm_plan_run_hash(NULL, &hash));
    INVALID("symm_plan_run_hash", symm_plan_run_hash(plan, NULL));
    INVALID("symm_plan_read_run", symm_plan_read_run(NULL, &none));
    INVALID("symm_plan_read_run", symm_plan_read_run("/nowhere", NULL));
    INVALID("symm_plan_find_unlisted", symm_plan_find_unlisted(NULL, &before, &after));
    INVALID("symm_plan_find_unlisted", symm_plan_find_unlisted(plan, NULL, &after));
    INVALID("symm_plan_find_unlisted", symm_plan_find_unlisted(plan, &before, NULL));
    INVALID("symm_plan_check", symm_plan_check(NULL, plan, &report));
    INVALID("symm_plan_check", symm_plan_check(p, NULL, &report));
    INVALID("symm_plan_check", symm_plan_check(p, plan, NULL));
    report.size = 1;
    INVALID("symm_plan_check", symm_plan_check(p, plan, &report));
    symm_plan_destroy(NULL);
    symm_plan_destroy(plan);
    symm_program_destroy(p);
}

static void test_costs_and_packing(void **state)
{
    symm_costs *costs = NULL;
    symm_costs_curve curve = {.size = sizeof(curve)};
    symm_pack_item item = {0, 1, 1}, bad[] = {{1, 0, 1}, {0, 1, -1}};
    symm_pack_options o = {.size = sizeof(o)};
    symm_pack_result r = {.size = sizeof(r)};
    int64_t offset = -7;

    (void)state;
    INVALID("symm_costs_read", symm_costs_read(NULL, &costs));
    INVALID("symm_costs_read", symm_costs_read("/nowhere", NULL));
    INVALID("symm_costs_parse", symm_costs_parse(NULL, 0, "x", &costs));
    INVALID("symm_costs_parse", symm_costs_parse("{}", 2, NULL, &costs));
    INVALID("symm_costs_parse", symm_costs_parse("{}", 2, "x", NULL));
    INVALID("symm_costs_curve_at", symm_costs_curve_at(NULL, 0, &curve));
    assert_null(costs);
    INVALID("symm_costs_hash", symm_costs_hash(NULL, &(uint64_t){0}));
    assert_null(symm_costs_machines(NULL));
    symm_costs_destroy(NULL);

    INVALID("symm_pack", symm_pack(NULL, 1, NULL, &offset, &r));
    INVALID("symm_pack", symm_pack(&item, 1, NULL, NULL, &r));
    INVALID("symm_pack", symm_pack(&item, 1, NULL, &offset, NULL));
    INVALID("symm_pack", symm_pack(&item, -1, NULL, &offset, &r));
    INVALID("symm_pack", symm_pack(&item, INT32_MAX, NULL, &offset, &r));
    for (size_t size = 0; size < 8; size++) {
        o.size = size;
        INVALID("symm_pack_options.size", symm_pack(&item, 1, &o, &offset, &r));
        r.size = size;
        INVALID("symm_pack_result.size", symm_pack(&item, 1, NULL, &offset, &r));
        r.size = sizeof(r);
    }
    o.size = SIZE_MAX;
    INVALID("symm_pack_options.size", symm_pack(&item, 1, &o, &offset, &r));
    o = (symm_pack_options){.size = sizeof(o), .capacity = -1};
    INVALID("capacity", symm_pack(&item, 1, &o, &offset, &r));
    o = (symm_pack_options){.size = sizeof(o), .time_limit = QUIET_NAN};
    INVALID("time_limit", symm_pack(&item, 1, &o, &offset, &r));
    INVALID("item", symm_pack(&bad[0], 1, NULL, &offset, &r));
    INVALID("item", symm_pack(&bad[1], 1, NULL, &offset, &r));
    assert_int_equal(offset, -7);
    GOOD(symm_pack(&item, 1, NULL, &offset, &r));
    assert_int_equal(offset, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),          cmocka_unit_test(test_merging),
        cmocka_unit_test(test_foreign),           cmocka_unit_test(test_plans),
        cmocka_unit_test(test_costs_and_packing), cmocka_unit_test(test_complaints),
    };

    symm_log_sink(quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
