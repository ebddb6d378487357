/* SPDX-License-Identifier: MIT */
/*
 * test_plan_core.c - plans: small cases with known plans (cycles of even and odd length,
 * groups that do not cover the ranks, kernels that start early, rings of puts), the programs
 * of bench/programs, determinism, reading back, and refusals. The checker proves every plan
 * made here.
 *
 * ctest: cost 10
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm/plan.h"

#define SLOT 4096

static void add_buffer(symm_program *program, const char *name, size_t bytes)
{
    int64_t elements = (int64_t)bytes / 4;
    int buffer;

    assert_int_equal(symm_program_add_buffer(program, name, SYMM_FLOAT32, 1, &elements,
                                             NULL, &buffer),
                     SYMM_OK);
}

static void add_local(symm_program *program, symm_program_kind kind, int buffer,
                      int stream, bool early)
{
    const symm_program_op op = {.size = sizeof(op),
                                .kind = kind,
                                .stream = stream,
                                .early_start = early,
                                .buffers = &buffer,
                                .buffer_count = 1};

    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
}

static void add_reduce(symm_program *program, const char *site, int partition, int in,
                       int out, int stream)
{
    const symm_program_op op = {.size = sizeof(op),
                                .kind = SYMM_PROGRAM_ALL_REDUCE,
                                .site = site,
                                .partition = partition,
                                .in = in,
                                .out = out,
                                .stream = stream};

    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
}

/* n buffers in turn: written, then reduced to private memory. */
static symm_program *cycle(int n, bool loop, bool early)
{
    symm_program *program;
    char name[16];

    assert_int_equal(symm_program_create("cycle", 4, loop, &program), SYMM_OK);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "b%d", i);
        add_buffer(program, name, SLOT);
    }
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        add_local(program, SYMM_PROGRAM_WRITE, i, 0, early);
        add_reduce(program, name, 0, i, -1, 0);
    }
    return program;
}

static symm_plan *make(symm_program *program, const char *algorithm)
{
    const symm_plan_options options = {.size = sizeof(options), .algorithm = algorithm};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *plan = NULL;
    uint64_t hash;

    if (symm_plan_make(program, &options, &plan) != SYMM_OK)
        fail_msg("%s: %s", program->name, symm_last_error());
    assert_int_equal(symm_plan_check(program, plan, &report), SYMM_OK);
    if (!report.safe)
        fail_msg("%s, %s: %s", program->name, algorithm ? algorithm : "by cost",
                 report.first);
    assert_int_equal(symm_plan_hash(plan, &hash), SYMM_OK);
    assert_int_equal(hash, plan->plan_hash);
    assert_true(plan->arena_bytes >= plan->lower_bound_bytes);
    assert_true(plan->note || plan->arena_bytes == plan->lower_bound_bytes);
    for (int i = 0; i < plan->buffer_count; i++) {
        assert_int_equal(plan->buffers[i].offset % SYMM_PLAN_ALIGNMENT, 0);
        assert_true(plan->buffers[i].offset + plan->buffers[i].bytes <=
                    plan->arena_bytes);
    }
    return plan;
}

static int count_barriers(const symm_plan *plan, bool entries, bool exits)
{
    int count = 0;

    for (int i = 0; i < plan->op_count; i++)
        count += (entries && plan->ops[i].entry_barrier) +
                 (exits && plan->ops[i].exit_barrier);
    return count;
}

static bool shares(const symm_plan *plan, int a, int b)
{
    const symm_plan_buffer *x = &plan->buffers[a], *y = &plan->buffers[b];

    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static void finish(symm_program *program, symm_plan *plan)
{
    symm_plan_destroy(plan);
    symm_program_destroy(program);
}

/* ---- Cycles -------------------------------------------------------------------------- */

static void expect_cycle(int n, bool early, const char *algorithm, int slots,
                         int entries, int exits)
{
    symm_program *program = cycle(n, true, early);
    symm_plan *plan = make(program, algorithm);

    assert_int_equal(plan->arena_bytes, (size_t)slots * SLOT);
    assert_int_equal(count_barriers(plan, true, false), entries);
    assert_int_equal(count_barriers(plan, false, true), exits);
    finish(program, plan);
}

static void test_cycles(void **state)
{
    (void)state;
    /* One buffer alone: its next write needs the exit barrier. */
    expect_cycle(1, false, "one_shot_pull", 1, 1, 1);
    expect_cycle(2, false, "one_shot_pull", 2, 2, 0);
    expect_cycle(8, false, "one_shot_pull", 2, 8, 0);
    expect_cycle(3, false, "one_shot_pull", 3, 3, 0);
    /* The barrier in the middle of two_shot_pull says that all reads are over. */
    expect_cycle(5, false, "two_shot_pull", 1, 5, 0);
    expect_cycle(5, false, "ll_push", 1, 0, 0);
    expect_cycle(5, false, "lamport_push", 1, 0, 0);
    expect_cycle(5, false, "copy_in", 1, 0, 0);
}

static void test_early_start(void **state)
{
    (void)state;
    /* A write that may start before the collective before it has finished. */
    expect_cycle(6, true, "one_shot_pull", 3, 6, 0);
    expect_cycle(6, true, "ll_push", 2, 0, 0);
}

/* A read that starts early, after a write that is `depends` depends away. */
static symm_program *early_read(int depends, int on)
{
    const symm_program_op op = {
        .size = sizeof(op), .kind = SYMM_PROGRAM_DEPEND, .on = on};
    symm_program *program;
    int stream;

    assert_int_equal(symm_program_create("early", 2, false, &program), SYMM_OK);
    assert_int_equal(symm_program_add_stream(program, "main", &stream), SYMM_OK);
    assert_int_equal(symm_program_add_stream(program, "side", &stream), SYMM_OK);
    add_buffer(program, "a", SLOT);
    add_local(program, SYMM_PROGRAM_WRITE, 0, 0, false);
    for (int i = 0; i < depends; i++)
        assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    add_local(program, SYMM_PROGRAM_READ, 0, 0, true);
    return program;
}

/* Depends run no kernel: what is right after one may start before the write has ended,
 * unless the depend is on the write's own stream. */
static void test_early_start_behind_depends(void **state)
{
    symm_plan *plan;

    (void)state;
    for (int depends = 0; depends < 3; depends++) {
        symm_program *program = early_read(depends, 1);
        assert_int_equal(symm_plan_make(program, NULL, &plan), SYMM_ERR_INVALID);
        assert_non_null(strstr(symm_last_error(), "start no op early"));
        symm_program_destroy(program);
    }
    symm_program *program = early_read(1, 0);
    plan = make(program, NULL);
    finish(program, plan);
}

/* Seven slots' worth of odd circle: 3 slots and n barriers, 2 and n + 1, 1 and 2n. */
static void test_odd_trade(void **state)
{
    symm_program *program = cycle(7, true, false);
    symm_plan *plan = make(program, "one_shot_pull");
    static const struct {
        size_t slots;
        int barriers;
    } wanted[] = {{3, 7}, {2, 8}, {1, 14}};

    (void)state;
    for (size_t w = 0; w < 3; w++) {
        bool found = false;
        for (int i = 0; i < plan->point_count; i++)
            found = found || (plan->points[i].arena_bytes == wanted[w].slots * SLOT &&
                              plan->points[i].barriers == wanted[w].barriers &&
                              !plan->points[i].beaten);
        assert_true(found);
    }
    assert_int_equal(count_barriers(plan, true, true), 7);
    /* Five or more in an odd circle conflict in pairs only: two slots are the bound. */
    assert_int_equal(plan->lower_bound_bytes, 2 * SLOT);
    assert_non_null(plan->note);
    finish(program, plan);
}

/* Whether a plan may come out differently elsewhere is said, and only then. */
static void test_cut_short(void **state)
{
    symm_program *program = cycle(31, true, false);
    symm_plan_options options = {
        .size = sizeof(options), .algorithm = "one_shot_pull", .time_limit = 1e-9};
    symm_plan *plan = NULL;

    (void)state;
    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
    assert_non_null(strstr(plan->note, "cut short"));
    symm_plan_destroy(plan);
    options.time_limit = 1e9;
    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
    assert_null(strstr(plan->note, "cut short"));
    assert_non_null(strstr(plan->note, "around a circle"));
    finish(program, plan);
}

/* The price of memory decides. */
static void test_trade_by_costs(void **state)
{
    static const char text[] =
        "{\"format\": \"symm-costs/1\", \"barrier_us\": 1, \"memory_us_per_gib\": 1e9, "
        "\"algorithms\": {\"one_shot_pull\": {\"latency_us\": 1, \"bytes_per_us\": "
        "1000}}}";
    symm_program *program = cycle(7, true, false);
    symm_plan_options options = {.size = sizeof(options)};
    symm_costs *costs = NULL;
    symm_plan *plan = NULL;
    symm_status status = symm_costs_parse(text, strlen(text), "costs", &costs);

    (void)state;
    if (status != SYMM_ERR_UNSUPPORTED) {
        assert_int_equal(status, SYMM_OK);
        options.costs = costs;
        options.algorithm = "one_shot_pull";
        assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
        assert_int_equal(plan->arena_bytes, SLOT);
        assert_int_equal(count_barriers(plan, true, true), 14);
    }
    symm_costs_destroy(costs);
    finish(program, plan);
}

/* Only what the table names is chosen: a misspelt name, or a table of what reads peers. */
static void test_table_names(void **state)
{
    static const char line[] = "{\"format\": \"symm-costs/1\", \"barrier_us\": 1, "
                               "\"algorithms\": {\"%s\": {\"latency_us\": 1, "
                               "\"bytes_per_us\": 1}}}";
    static const struct {
        const char *name;
        symm_status wanted;
    } tables[] = {{"ll_psh", SYMM_ERR_INVALID},
                  {"put", SYMM_ERR_INVALID},
                  {"one_shot_pull", SYMM_OK},
                  {"ll_push", SYMM_OK}};

    (void)state;
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++) {
        symm_program *program = cycle(3, true, false);
        symm_plan_options options = {.size = sizeof(options)};
        symm_costs *costs = NULL;
        symm_plan *plan = NULL;
        char text[256];
        snprintf(text, sizeof(text), line, tables[t].name);
        symm_status status = symm_costs_parse(text, strlen(text), "costs", &costs);
        if (status != SYMM_ERR_UNSUPPORTED) {
            assert_int_equal(status, SYMM_OK);
            options.costs = costs;
            assert_int_equal(symm_plan_make(program, &options, &plan),
                             tables[t].wanted);
            for (int i = 0; plan && i < plan->op_count; i++)
                assert_string_equal(symm_algorithm_name(plan->ops[i].algorithm),
                                    tables[t].name);
            if (!plan)
                assert_non_null(strstr(symm_last_error(), "ops[1] (all_reduce "));
            /* What is forced needs no line. */
            options.algorithm = "copy_in";
            symm_plan_destroy(plan);
            assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
        }
        symm_costs_destroy(costs);
        finish(program, plan);
    }
}

static void test_no_loop(void **state)
{
    symm_program *program = cycle(3, false, false);
    symm_plan *plan = make(program, "one_shot_pull");

    (void)state;
    assert_int_equal(plan->arena_bytes, 2 * SLOT);
    assert_int_equal(count_barriers(plan, true, true), 3);
    for (size_t i = 0; i < plan->certificate_count; i++)
        assert_false(plan->certificate[i].next_period);
    finish(program, plan);
}

/* ---- Groups, streams, puts ------------------------------------------------------------ */

/* a by one group, b and c by another: does b's barrier let c overwrite a? */
static bool protects(bool wide_first)
{
    static const int ranks[] = {0, 1, 2, 3};
    symm_program *program;
    symm_plan *plan;
    int partition;
    bool shared;

    assert_int_equal(symm_program_create("groups", 4, false, &program), SYMM_OK);
    assert_int_equal(
        symm_program_add_partition(program, "half", 2, 2, ranks, &partition), SYMM_OK);
    add_buffer(program, "a", SLOT);
    add_buffer(program, "b", SLOT);
    add_buffer(program, "c", SLOT);
    for (int i = 0; i < 3; i++) {
        static const char *const sites[] = {"sa", "sb", "sc"};
        add_local(program, SYMM_PROGRAM_WRITE, i, 0, false);
        add_reduce(program, sites[i], (i == 0) == wide_first ? 0 : partition, i, -1, 0);
    }
    plan = make(program, "one_shot_pull");
    shared = shares(plan, 0, 2);
    assert_int_equal(plan->arena_bytes, (size_t)(wide_first ? 3 : 2) * SLOT);
    finish(program, plan);
    return shared;
}

static void test_groups(void **state)
{
    (void)state;
    assert_false(protects(true)); /* a reader of a is not in b's group */
    assert_true(protects(false));
}

/* Two buffers in one place follow one another, around the circle: one pair each way. Both
 * are written by their owner and read by all, which makes two chains. */
static void test_certificate(void **state)
{
    symm_program *program = cycle(2, true, false);
    symm_plan *plan = make(program, "two_shot_pull");

    (void)state;
    assert_int_equal(plan->certificate_count, 2);
    assert_int_equal(plan->chain_count, 2);
    for (int i = 0; i < 2; i++) {
        const symm_plan_entry *entry = &plan->certificate[i];
        assert_int_equal(entry->before, 1 - i);
        assert_int_equal(entry->after, i);
        assert_int_equal(entry->next_period, i == 0);
        assert_int_equal(entry->witness_count, 2);
        assert_int_equal(plan->buffers[i].turn, i);
        assert_int_equal(plan->buffers[i].after_count, 1);
        assert_int_equal(plan->buffers[i].after[0], 1 - i);
    }
    assert_string_equal(plan->chains[0].by, "owner");
    assert_string_equal(plan->chains[1].by, "group");
    assert_string_equal(plan->chains[1].partition, "world");
    assert_string_equal(plan->chains[1].stream, "main");
    finish(program, plan);
}

static void expect_race(symm_program *program, const char *algorithm, const char *says)
{
    const symm_plan_options options = {.size = sizeof(options), .algorithm = algorithm};
    symm_plan *plan = NULL;

    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_ERR_INVALID);
    assert_null(plan);
    if (!strstr(symm_last_error(), says))
        fail_msg("expected \"%s\", got: %s", says, symm_last_error());
    symm_program_destroy(program);
}

static symm_program *two_streams(bool depend)
{
    symm_program_op op = {.size = sizeof(op), .kind = SYMM_PROGRAM_DEPEND, .stream = 1};
    symm_program *program;
    int stream;

    assert_int_equal(symm_program_create("streams", 2, false, &program), SYMM_OK);
    assert_int_equal(symm_program_add_stream(program, "main", &stream), SYMM_OK);
    assert_int_equal(symm_program_add_stream(program, "side", &stream), SYMM_OK);
    add_buffer(program, "a", SLOT);
    add_local(program, SYMM_PROGRAM_WRITE, 0, 0, false);
    if (depend)
        assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    add_reduce(program, "s", 0, 0, 0, 1);
    return program;
}

static void test_races_are_refused(void **state)
{
    symm_program *program = two_streams(true), *in_place;
    symm_plan *plan = make(program, NULL);
    int only;

    (void)state;
    finish(program, plan);
    expect_race(two_streams(false), NULL, "ops[0] (write, stream main) before ops[1]");
    expect_race(two_streams(true), "one_shot_pull", "in place");
    expect_race(cycle(2, true, false), "two_shot_inplace", "has none");
    expect_race(cycle(2, true, false), "magic", "allowed: ll_push");
    assert_int_equal(symm_program_create("put", 2, false, &in_place), SYMM_OK);
    assert_int_equal(symm_program_add_bytes(in_place, "x", 8, &only), SYMM_OK);
    const symm_program_op op = {
        .size = sizeof(op), .kind = SYMM_PROGRAM_PUT, .site = "p", .shift = 1};
    assert_int_equal(symm_program_add_op(in_place, &op), SYMM_OK);
    expect_race(in_place, NULL, "src and dst");
}

/* Each rank puts to the next one; `hops` puts a period, each into its own buffer. */
static symm_program *ring(int world, int hops)
{
    symm_program *program;
    char out[16], in[16], site[16];

    assert_int_equal(symm_program_create("ring", world, true, &program), SYMM_OK);
    for (int i = 0; i < hops; i++) {
        snprintf(out, sizeof(out), "out%d", i);
        snprintf(in, sizeof(in), "in%d", i);
        add_buffer(program, out, SLOT);
        add_buffer(program, in, SLOT);
    }
    for (int i = 0; i < hops; i++) {
        symm_program_op op = {.size = sizeof(op),
                              .kind = SYMM_PROGRAM_PUT,
                              .site = site,
                              .in = 2 * i,
                              .out = 2 * i + 1,
                              .shift = 1};
        snprintf(site, sizeof(site), "hop%d", i);
        add_local(program, SYMM_PROGRAM_WRITE, 2 * i, 0, false);
        assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
        op.kind = SYMM_PROGRAM_WAIT;
        assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
        add_local(program, SYMM_PROGRAM_READ, 2 * i + 1, 0, false);
    }
    return program;
}

static void test_puts(void **state)
{
    symm_program *program = ring(4, 4);
    symm_plan *plan = make(program, NULL);

    (void)state;
    /* What a rank has read travels around the ring before it is overwritten. */
    assert_int_equal(count_barriers(plan, true, true), 0);
    finish(program, plan);
    /* Too few hops a period to come around: the put needs its entry barrier. */
    program = ring(4, 1);
    plan = make(program, NULL);
    assert_int_equal(count_barriers(plan, true, false), 1);
    assert_int_equal(count_barriers(plan, false, true), 0);
    finish(program, plan);
    /* Two ranks: the answer is the proof. */
    program = ring(2, 2);
    plan = make(program, NULL);
    assert_int_equal(count_barriers(plan, true, true), 0);
    finish(program, plan);
}

/* ---- The programs of the benchmark ----------------------------------------------------- */

static symm_program *read_program(const char *name)
{
    char path[400];
    symm_program *program = NULL;
    symm_status status;

    snprintf(path, sizeof(path), "%s/bench/programs/%s.json", SYMM_SOURCE_DIR, name);
    status = symm_program_read(path, &program);
    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    if (status != SYMM_OK)
        fail_msg("%s", symm_last_error());
    return program;
}

static void check_twice(const char *name, const char *algorithm, size_t most)
{
    symm_program *program = read_program(name);
    symm_plan *plan = make(program, algorithm), *read;
    char *first, *second;
    size_t length, again;

    if (plan->arena_bytes != plan->lower_bound_bytes)
        fail_msg("%s: %s", name, plan->note);
    assert_true(plan->arena_bytes <= most);
    assert_int_equal(symm_plan_format(plan, &first, &length), SYMM_OK);
    finish(program, plan);
    program = read_program(name);
    plan = make(program, algorithm);
    assert_int_equal(symm_plan_format(plan, &second, &again), SYMM_OK);
    assert_int_equal(length, again);
    assert_memory_equal(first, second, length);
    symm_text_free(second);
    assert_int_equal(symm_plan_parse(first, length, name, &read), SYMM_OK);
    assert_int_equal(symm_plan_format(read, &second, &again), SYMM_OK);
    assert_int_equal(length, again);
    assert_memory_equal(first, second, length);
    symm_text_free(first);
    symm_text_free(second);
    symm_plan_destroy(read);
    finish(program, plan);
}

static void test_programs(void **state)
{
    (void)state;
    check_twice("odd-cycle-3", NULL, 4096);
    check_twice("odd-cycle-3", "one_shot_pull", 3 * 4096);
    check_twice("ring-pipeline-4", NULL, 4 * 2097152);
    check_twice("tp2-dp2-two-streams", NULL, 138412032);
    check_twice("moe-8x-tp8", NULL, 4194304);
    check_twice("moe-8x-tp8", "one_shot_pull", 4194304);
    check_twice("llama3-8b-tp2-decode-b1", NULL, 8192);
    check_twice("llama3-8b-tp4-decode-b1", "one_shot_pull", 2 * 8192);
    check_twice("llama3-70b-tp8-decode-b32", NULL, 524288);
    check_twice("llama3-70b-tp8-prefill-8192", "one_shot_pull", 2 * (size_t)134217728);
}

/* 1600 buffers: made, not proved, for that takes long under a sanitizer. */
static void test_family(void **state)
{
    const symm_plan_options options = {.size = sizeof(options),
                                       .algorithm = "one_shot_pull"};
    symm_program *program = read_program("llama3-70b-tp8-serve-family");
    symm_plan *plan = NULL;

    (void)state;
    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
    assert_int_equal(plan->arena_bytes, 2 * 8388608);
    assert_int_equal(plan->lower_bound_bytes, 2 * 8388608);
    assert_int_equal(count_barriers(plan, true, true), 1600);
    finish(program, plan);
}

/* ---- Documents ----------------------------------------------------------------------- */

static char *plan_of(const char *text)
{
    symm_program *program = NULL;
    symm_plan *plan = NULL;
    char *written;
    size_t length;
    symm_status status = symm_program_parse(text, strlen(text), "input", &program);

    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(status, SYMM_OK);
    assert_int_equal(symm_plan_make(program, NULL, &plan), SYMM_OK);
    assert_int_equal(symm_plan_format(plan, &written, &length), SYMM_OK);
    finish(program, plan);
    return written;
}

static void test_key_order_means_nothing(void **state)
{
    char *a = plan_of(
        "{\"format\": \"symm-program/1\", \"name\": \"n\", \"world\": 2, \"groups\": "
        "{\"g\": [[0], [1]], \"h\": [[0, 1]]}, \"buffers\": [{\"name\": \"a\", "
        "\"bytes\": 8}], \"ops\": [{\"op\": \"write\", \"buffers\": [\"a\"]}, {\"op\": "
        "\"all_reduce\", \"group\": \"h\", \"in\": \"a\", \"site\": \"s\"}]}");
    char *b = plan_of(
        "{\"ops\":[{\"buffers\":[\"a\"],\"op\":\"write\"},{\"site\":\"s\",\"in\":\"a\","
        "\"op\":\"all_reduce\",\"group\":\"h\"}],\"groups\":{\"h\":[[0,1]],\"g\":[[0],"
        "[1]]},\"buffers\":[{\"bytes\":8,\"name\":\"a\"}],\"world\":2,\"name\":\"n\","
        "\"format\":\"symm-program/1\"}");

    (void)state;
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void test_hash_covers_all(void **state)
{
    symm_program *program = cycle(3, true, false);
    symm_plan *plan = make(program, "one_shot_pull");
    uint64_t before = plan->plan_hash, hash;

    (void)state;
    plan->ops[1].entry_barrier = false;
    assert_int_equal(symm_plan_hash(plan, &hash), SYMM_OK);
    assert_int_not_equal(hash, before);
    plan->ops[1].entry_barrier = true;
    plan->buffers[2].offset += 256;
    assert_int_equal(symm_plan_hash(plan, &hash), SYMM_OK);
    assert_int_not_equal(hash, before);
    plan->buffers[2].offset -= 256;
    plan->certificate_count--;
    assert_int_equal(symm_plan_hash(plan, &hash), SYMM_OK);
    assert_int_not_equal(hash, before);
    plan->certificate_count++;
    plan->plan_hash ^= 1; /* itself it does not cover */
    assert_int_equal(symm_plan_hash(plan, &hash), SYMM_OK);
    assert_int_equal(hash, before);
    finish(program, plan);
}

static void test_channels(void **state)
{
    symm_program *program = read_program("tp2-dp2-two-streams");
    symm_plan *plan = make(program, NULL);

    (void)state;
    for (int i = 0; i < plan->op_count; i++)
        assert_int_equal(plan->ops[i].channel, plan->ops[i].site[0] == 'd');
    finish(program, plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_early_start),
        cmocka_unit_test(test_early_start_behind_depends),
        cmocka_unit_test(test_odd_trade),
        cmocka_unit_test(test_trade_by_costs),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_table_names),
        cmocka_unit_test(test_no_loop),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_certificate),
        cmocka_unit_test(test_races_are_refused),
        cmocka_unit_test(test_puts),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_family),
        cmocka_unit_test(test_key_order_means_nothing),
        cmocka_unit_test(test_hash_covers_all),
        cmocka_unit_test(test_channels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
