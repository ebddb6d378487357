/* SPDX-License-Identifier: MIT */
/*
 * test_plan_uneven.c - arenas of almost regular programs: a mixture of experts on four
 * streams, with small buffers between its layers, with sizes that differ by a few per cent,
 * or both. The fixed orders alone must give arenas within 5 % of the bound.
 * ctest: cost 4
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "symm/plan.h"

#define STREAMS 4
#define COLUMNS 7168

struct shape {
    int layers, small; /* small buffers, about, on random streams at random ops */
    int percent;       /* by which sizes differ from their mean, at most */
};

static uint64_t random_state;

static int random_below(int limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

static int add_buffer(symm_program *program, const char *name, int64_t rows,
                      int64_t columns)
{
    int64_t shape[] = {rows, columns};
    int buffer;

    assert_int_equal(
        symm_program_add_buffer(program, name, SYMM_BFLOAT16, 2, shape, NULL, &buffer),
        SYMM_OK);
    return buffer;
}

static void add_op(symm_program *program, symm_program_op op)
{
    op.size = sizeof(op);
    if (symm_program_add_op(program, &op) != SYMM_OK)
        fail_msg("%s", symm_last_error());
}

static void add_local(symm_program *program, symm_program_kind kind, int buffer,
                      int stream)
{
    add_op(program,
           (symm_program_op){
               .kind = kind, .stream = stream, .buffers = &buffer, .buffer_count = 1});
}

/* Between two ops of a layer, now and then: shape->small in all, on average. */
static void add_small(symm_program *program, const struct shape *shape)
{
    const int stream = random_below(STREAMS);
    char name[32];
    int buffer;

    if (random_below(shape->layers * STREAMS * 5) >= shape->small)
        return;
    snprintf(name, sizeof(name), "small%d", program->op_count);
    buffer = add_buffer(program, name, 1, 128);
    add_local(program, SYMM_PROGRAM_WRITE, buffer, stream);
    add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                                      .site = name,
                                      .stream = stream,
                                      .in = buffer,
                                      .out = -1});
    add_local(program, SYMM_PROGRAM_READ, buffer, stream);
}

/* Written, exchanged, read, written and exchanged again: three buffers. */
static void add_layer(symm_program *program, const struct shape *shape, int layer,
                      int stream)
{
    const int most = COLUMNS * shape->percent / 100;
    const int64_t columns = COLUMNS - most + random_below(2 * most + 1);
    const int64_t back_columns = COLUMNS - most + random_below(2 * most + 1);
    char name[32];
    int sent, got, back;

    snprintf(name, sizeof(name), "got%d.%d", layer, stream);
    got = add_buffer(program, name, 4096, columns);
    snprintf(name, sizeof(name), "back%d.%d", layer, stream);
    back = add_buffer(program, name, 4096, back_columns);
    snprintf(name, sizeof(name), "sent%d.%d", layer, stream);
    sent = add_buffer(program, name, 4096, columns);
    add_small(program, shape);
    add_local(program, SYMM_PROGRAM_WRITE, sent, stream);
    add_small(program, shape);
    add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_ALL_TO_ALL,
                                      .site = name,
                                      .stream = stream,
                                      .in = sent,
                                      .out = got});
    add_small(program, shape);
    add_local(program, SYMM_PROGRAM_READ, got, stream);
    add_small(program, shape);
    add_local(program, SYMM_PROGRAM_WRITE, back, stream);
    snprintf(name, sizeof(name), "back%d.%d", layer, stream);
    add_small(program, shape);
    add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_ALL_TO_ALL,
                                      .site = name,
                                      .stream = stream,
                                      .in = back,
                                      .out = -1});
}

static symm_program *make_program(const struct shape *shape)
{
    symm_program *program;
    char name[32];
    int stream;

    assert_int_equal(symm_program_create("uneven", 8, true, &program), SYMM_OK);
    for (int s = 0; s <= STREAMS; s++) {
        snprintf(name, sizeof(name), s < STREAMS ? "quarter%d" : "main", s);
        assert_int_equal(symm_program_add_stream(program, name, &stream), SYMM_OK);
    }
    for (int layer = 0; layer < shape->layers; layer++)
        for (int s = 0; s < STREAMS; s++)
            add_layer(program, shape, layer, s);
    for (int s = 0; s < STREAMS; s++)
        add_op(program, (symm_program_op){
                            .kind = SYMM_PROGRAM_DEPEND, .stream = STREAMS, .on = s});
    for (int s = 0; s < STREAMS; s++)
        add_op(program, (symm_program_op){
                            .kind = SYMM_PROGRAM_DEPEND, .stream = s, .on = STREAMS});
    return program;
}

static void check_shape(const struct shape *shape, uint64_t seed)
{
    const symm_plan_options options = {.size = sizeof(options), .greedy = true};
    symm_plan_report report = {.size = sizeof(report)};
    symm_program *program;
    symm_plan *plan = NULL;

    random_state = seed;
    program = make_program(shape);
    if (symm_plan_make(program, &options, &plan) != SYMM_OK)
        fail_msg("%s", symm_last_error());
    assert_int_equal(symm_plan_check(program, plan, &report), SYMM_OK);
    assert_true(report.safe);
    if (plan->arena_bytes > plan->lower_bound_bytes / 20 * 21)
        fail_msg("%d layers, %d small buffers, sizes +-%d %%, seed %d: the arena takes "
                 "%zu bytes, the bound is %zu",
                 shape->layers, shape->small, shape->percent, (int)seed,
                 plan->arena_bytes, plan->lower_bound_bytes);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
}

static void test_uneven(void **state)
{
    static const struct shape shapes[] = {{60, 0, 0}, {60, 6, 0},  {40, 6, 0},
                                          {20, 0, 5}, {20, 50, 3}, {60, 10, 5}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (uint64_t seed = 4; seed <= 8; seed++)
            check_shape(&shapes[i], seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_uneven)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
