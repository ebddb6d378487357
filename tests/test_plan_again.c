/* SPDX-License-Identifier: MIT */
/*
 * test_plan_again.c - random programs are planned, changed in one place (an op removed, ops
 * and a buffer inserted, a buffer made larger, an op moved to another stream), and planned
 * again from the previous plan. The checker must prove the new plan. A buffer that did not
 * grow must keep its offset, unless a buffer that shared its bytes conflicts with it in the
 * changed program.
 *
 * SYMM_TEST_PLANS=N sets the number of programs (default 600; 100000 with
 * SYMM_TEST_LONG=1), SYMM_TEST_SEED the first seed, which is printed.
 *
 * ctest: cost 5
 */
#include "plan_case.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "make/plan_private.h"

enum change { REMOVED, INSERTED, GROWN, MOVED, CHANGES };

struct tally {
    uint64_t plans, refused, kept, moved;
};

static int below(uint64_t *random, int count)
{
    return (int)(harness_random(random) % (uint64_t)count);
}

static struct plan_case_edit draw_edit(const symm_program *program, enum change what,
                                       uint64_t *random)
{
    struct plan_case_edit edit = plan_case_no_edit;
    const int op = below(random, program->op_count);

    if (what == REMOVED)
        edit.drop = op;
    if (what == INSERTED)
        edit.insert = op;
    if (what == GROWN)
        edit.grow = below(random, program->buffer_count);
    if (what == MOVED) {
        edit.move = op;
        edit.stream = below(random, program->stream_count);
    }
    return edit;
}

/* The order and the lives of a plan, by the planner's own code. algorithms: free() it. */
static void make_lives(const symm_program *program, const symm_plan *plan,
                       struct order *order, struct lifetimes *lives,
                       symm_algorithm **algorithms)
{
    bool enough;
    int planned = 0;

    *algorithms = calloc((size_t)program->op_count + 1, sizeof(**algorithms));
    assert_non_null(*algorithms);
    assert_int_equal(symm__order_init(order, program), SYMM_OK);
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].site && program->ops[i].kind != SYMM_PROGRAM_WAIT)
            (*algorithms)[i] = plan->ops[planned++].algorithm;
    assert_int_equal(symm__order_set(order, *algorithms), SYMM_OK);
    for (int i = planned = 0; i < program->op_count; i++) {
        if (!program->ops[i].site || program->ops[i].kind == SYMM_PROGRAM_WAIT)
            continue;
        order->entry[i] = plan->ops[planned].entry_barrier;
        order->exit[i] = plan->ops[planned++].exit_barrier;
    }
    assert_int_equal(symm__order_try(order, &enough), SYMM_OK);
    assert_true(enough);
    assert_int_equal(symm__lifetimes_make(lives, order), SYMM_OK);
}

static int find_buffer(const symm_plan *plan, const char *name)
{
    for (int b = 0; b < plan->buffer_count; b++)
        if (strcmp(plan->buffers[b].name, name) == 0)
            return b;
    return -1;
}

static size_t rounded(size_t bytes)
{
    return (bytes + SYMM_PLAN_ALIGNMENT - 1) / SYMM_PLAN_ALIGNMENT *
           SYMM_PLAN_ALIGNMENT;
}

/* Another buffer lay on the bytes of buffer `index` of old, and conflicts with it now. */
static bool had_to_move(const symm_plan *old, const symm_plan *made,
                        const struct lifetimes *lives, int index)
{
    const symm_plan_buffer *buffer = &old->buffers[index];
    const int now = find_buffer(made, buffer->name);

    for (int b = 0; b < old->buffer_count; b++) {
        const symm_plan_buffer *other = &old->buffers[b];
        const int other_now = find_buffer(made, other->name);

        if (b == index || other_now < 0 ||
            other->offset >= buffer->offset + rounded(buffer->bytes) ||
            buffer->offset >= other->offset + rounded(other->bytes))
            continue;
        if (symm__conflict(lives, now, other_now))
            return true;
    }
    return false;
}

static void check_offsets(struct tally *tally, uint64_t seed,
                          const symm_program *program, const symm_plan *old,
                          const symm_plan *made)
{
    symm_algorithm *algorithms;
    struct lifetimes lives;
    struct order order;

    make_lives(program, made, &order, &lives, &algorithms);
    for (int b = 0; b < old->buffer_count; b++) {
        const int now = find_buffer(made, old->buffers[b].name);

        if (now < 0 || made->buffers[now].bytes > old->buffers[b].bytes)
            continue;
        if (made->buffers[now].offset == old->buffers[b].offset) {
            tally->kept++;
            continue;
        }
        tally->moved++;
        if (!had_to_move(old, made, &lives, b))
            fail_msg("seed %" PRIu64 ": buffer %s was moved from %zu to %zu, and "
                     "nothing that conflicts with it lay there",
                     seed, old->buffers[b].name, old->buffers[b].offset,
                     made->buffers[now].offset);
    }
    symm__lifetimes_finish(&lives);
    symm__order_finish(&order);
    free(algorithms);
}

static void plan_again(struct tally *tally, uint64_t seed, symm_program *program,
                       const symm_plan *old)
{
    const symm_plan_options options = {.size = sizeof(options), .previous = old};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *made;

    if (symm_plan_make(program, &options, &made) != SYMM_OK) {
        /* What can be planned at all can be planned again. */
        if (symm_plan_make(program, NULL, &made) == SYMM_OK)
            fail_msg("seed %" PRIu64 ": refused, but it has a plan", seed);
        tally->refused++;
        return;
    }
    tally->plans++;
    assert_int_equal(symm_plan_check(program, made, &report), SYMM_OK);
    if (!report.safe) {
        plan_case_print(program, made);
        fail_msg("seed %" PRIu64 ": %s", seed, report.first);
    }
    check_offsets(tally, seed, program, old, made);
    symm_plan_destroy(made);
}

static void test_changes(void **state)
{
    const struct plan_case_limits limits[] = {
        {4, 3, 6, 16, false}, {5, 4, 12, 40, true}, {8, 6, 30, 90, false}};
    const int64_t usual = HARNESS_SLOW ? 60 : 600;
    const uint64_t count = (uint64_t)harness_env(
        "SYMM_TEST_PLANS", harness_env("SYMM_TEST_LONG", 0) ? 100000 : usual);
    const uint64_t first = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    struct tally tally[CHANGES] = {{0}};
    static const char *const names[CHANGES] = {"removed", "inserted", "grown", "moved"};

    (void)state;
    print_message("first seed %" PRIu64 "\n", first);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = first + i;
        symm_program *program = plan_case_program(&random, &limits[(first + i) % 3]);
        symm_plan *plan;

        if (plan_case_make(program, &random, &plan) == SYMM_OK) {
            for (int what = 0; what < CHANGES; what++) {
                struct plan_case_edit edit =
                    draw_edit(program, (enum change)what, &random);
                symm_program *changed = plan_case_edit(program, &edit);
                if (changed)
                    plan_again(&tally[what], first + i, changed, plan);
                symm_program_destroy(changed);
            }
            symm_plan_destroy(plan);
        }
        symm_program_destroy(program);
    }
    for (int what = 0; what < CHANGES; what++) {
        print_message("%s: %" PRIu64 " plans proved, %" PRIu64 " refused; %" PRIu64
                      " offsets kept, %" PRIu64 " changed\n",
                      names[what], tally[what].plans, tally[what].refused,
                      tally[what].kept, tally[what].moved);
        assert_true(tally[what].plans > 0 && tally[what].kept > tally[what].moved);
    }
}

/* A previous plan, from a damaged file, that lists buffers of its bound twice. */
static void test_bound_twice(void **state)
{
    const symm_program_op ops[] = {
        {.size = sizeof(ops[0]), .kind = SYMM_PROGRAM_WRITE, .buffer_count = 1},
        {.size = sizeof(ops[0]), .kind = SYMM_PROGRAM_ALL_REDUCE, .site = "sum"}};
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan_options options = {.size = sizeof(options)};
    symm_plan *plan, *made, twice;
    symm_program *program;
    const int64_t count = 64;
    const int buffer = 0;
    int index, list[2];

    (void)state;
    assert_int_equal(symm_program_create("p", 2, false, &program), SYMM_OK);
    assert_int_equal(
        symm_program_add_buffer(program, "b", SYMM_FLOAT32, 1, &count, NULL, &index),
        SYMM_OK);
    for (int i = 0; i < 2; i++) {
        symm_program_op op = ops[i];

        op.buffers = &buffer;
        assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    }
    assert_int_equal(symm_plan_make(program, &options, &plan), SYMM_OK);
    assert_int_equal(plan->antichain_count, 1);
    twice = *plan;
    list[0] = list[1] = plan->antichain[0];
    twice.antichain = list;
    twice.antichain_count = 2;
    options.previous = &twice;
    assert_int_equal(symm_plan_make(program, &options, &made), SYMM_OK);
    assert_int_equal(made->lower_bound_bytes, plan->lower_bound_bytes);
    assert_int_equal(symm_plan_check(program, made, &report), SYMM_OK);
    assert_string_equal(report.first, "");
    symm_plan_destroy(made);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changes),
                                       cmocka_unit_test(test_bound_twice)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
