/* SPDX-License-Identifier: MIT */
/*
 * test_plan_random.c - planner and checker against the search through all interleavings.
 *
 * The search itself: its verdict is the same with and without its shortcut.
 * Random plans (mostly unsafe): a plan that the checker finds safe, the search must find safe.
 * Plans of the planner for random programs: the checker must find all of them safe, and so
 * must the search if the program is small enough for it.
 * SYMM_TEST_PLANS=N sets the number of programs of each test (default 400; 20000 with
 * SYMM_TEST_LONG=1), SYMM_TEST_SEED the first seed.
 */
#include "interleave.h"
#include "plan_case.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "harness.h"

static const struct plan_case_limits small = {3, 2, 4, 7, false};
static const struct plan_case_limits overlapped = {3, 2, 4, 7, true};

struct tally {
    uint64_t programs, refused, safe, safe_here, unsafe, large, states, most;
    uint64_t over_refused; /* by the planner, though a safe plan exists */
    uint64_t cautious;     /* the search calls it safe, the checker does not */
};

static uint64_t count_of_programs(void)
{
    const int64_t usual = HARNESS_SLOW ? 40 : 400;

    return (uint64_t)harness_env("SYMM_TEST_PLANS",
                                 harness_env("SYMM_TEST_LONG", 0) ? 20000 : usual);
}

static enum interleave_verdict search(const symm_program *program,
                                      const symm_plan *plan, struct tally *tally,
                                      struct interleave *how)
{
    *how = (struct interleave){.periods = 3, .max_states = HARNESS_SLOW ? 5000 : 50000};
    enum interleave_verdict verdict = interleave_search(program, plan, how);

    tally->states += how->states;
    if (how->states > tally->most)
        tally->most = how->states;
    tally->large += verdict == INTERLEAVE_TOO_LARGE;
    tally->safe_here += verdict == INTERLEAVE_SAFE;
    tally->unsafe += verdict == INTERLEAVE_UNSAFE;
    return verdict;
}

static bool check(const symm_program *program, const symm_plan *plan,
                  symm_plan_report *report)
{
    *report = (symm_plan_report){.size = sizeof(*report)};
    assert_int_equal(symm_plan_check(program, plan, report), SYMM_OK);
    return report->safe;
}

static void print_tally(const char *what, const struct tally *t)
{
    print_message("%s: %" PRIu64 " programs, %" PRIu64 " refused (%" PRIu64
                  " of them could be planned); checker: %" PRIu64
                  " safe; search: %" PRIu64 " safe, %" PRIu64 " unsafe, %" PRIu64
                  " too large; safe but not proved: %" PRIu64 "; %" PRIu64
                  " states, at most %" PRIu64 "\n",
                  what, t->programs, t->refused, t->over_refused, t->safe, t->safe_here,
                  t->unsafe, t->large, t->cautious, t->states, t->most);
}

static void one_random_plan(uint64_t seed, const struct plan_case_limits *limits,
                            struct tally *tally)
{
    uint64_t random = seed;
    symm_program *program = plan_case_program(&random, limits);
    struct plan_case *c = plan_case_random(program, &random);
    struct interleave how;
    symm_plan_report report;

    plan_case_certify(c);
    const enum interleave_verdict verdict = search(program, &c->plan, tally, &how);
    const bool safe = check(program, &c->plan, &report);
    tally->programs++;
    tally->safe += safe;
    tally->cautious += !safe && verdict == INTERLEAVE_SAFE;
    if (safe && verdict == INTERLEAVE_UNSAFE) {
        plan_case_print(program, &c->plan);
        fail_msg("seed %" PRIu64 ": the checker calls safe what is not: %s", seed,
                 how.why);
    }
    if (!safe && verdict == INTERLEAVE_SAFE && harness_env("SYMM_TEST_SHOW", 0)) {
        print_message("seed %" PRIu64 ": %s\n", seed, report.first);
        plan_case_print(program, &c->plan);
    }
    plan_case_free(c);
    symm_program_destroy(program);
}

static void test_random_plans(void **state)
{
    const uint64_t count = count_of_programs();
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    struct tally tally = {0};

    (void)state;
    for (uint64_t i = 0; i < count; i++)
        one_random_plan(seed + i, i % 4 ? &small : &overlapped, &tally);
    print_tally("random plans", &tally);
    assert_true(tally.safe > 0 && tally.unsafe > 0 && tally.safe_here > 0);
}

/* A program that the planner refuses: is it unsafe even with memory and barriers galore? */
static void judge_refusal(uint64_t seed, const symm_program *program,
                          struct tally *tally)
{
    struct plan_case *c = plan_case_dedicated(program);
    struct interleave how = {.periods = 3, .max_states = HARNESS_SLOW ? 5000 : 50000};

    if (interleave_search(program, &c->plan, &how) == INTERLEAVE_SAFE) {
        tally->over_refused++;
        if (harness_env("SYMM_TEST_SHOW", 0)) {
            print_message("seed %" PRIu64 " refused: %s\n", seed, symm_last_error());
            plan_case_print(program, &c->plan);
        }
    }
    plan_case_free(c);
}

/* Makes a plan and hands it to the judges. */
static void one_plan(uint64_t seed, const struct plan_case_limits *limits,
                     struct tally *tally)
{
    uint64_t random = seed;
    symm_program *program = plan_case_program(&random, limits);
    symm_plan_report report;
    struct interleave how;
    symm_plan *plan = NULL;

    const symm_status status = plan_case_make(program, &random, &plan);
    tally->programs++;
    if (status != SYMM_OK) {
        assert_int_equal(status, SYMM_ERR_INVALID);
        tally->refused++;
        judge_refusal(seed, program, tally);
        symm_program_destroy(program);
        return;
    }
    const bool safe = check(program, plan, &report);
    const enum interleave_verdict verdict = search(program, plan, tally, &how);
    tally->safe += safe;
    tally->cautious += !safe && verdict == INTERLEAVE_SAFE;
    if (!safe || verdict == INTERLEAVE_UNSAFE) {
        plan_case_print(program, plan);
        fail_msg("seed %" PRIu64
                 ": plan of the planner; the checker: %s %s; the search: %s",
                 seed, safe ? "safe" : "unsafe", report.first,
                 verdict == INTERLEAVE_UNSAFE ? how.why : "safe or too large");
    }
    symm_plan_destroy(plan);
    symm_program_destroy(program);
}

static void test_plans(void **state)
{
    const uint64_t count = count_of_programs();
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    struct tally tally = {0};

    (void)state;
    for (uint64_t i = 0; i < count; i++)
        one_plan(seed + i, i % 4 ? &small : &overlapped, &tally);
    print_tally("plans", &tally);
    assert_true(tally.safe > count / 10);
}

/* The search may take harmless steps at once: that must not change what it finds. */
static void test_search(void **state)
{
    static const struct plan_case_limits tiny = {3, 2, 3, 4, true};
    const uint64_t count = count_of_programs() / 4;
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    uint64_t compared = 0, states = 0, plain_states = 0;

    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = seed + i;
        symm_program *program = plan_case_program(&random, &tiny);
        struct plan_case *c = plan_case_random(program, &random);
        struct interleave quick = {.periods = 2, .max_states = 20000}, plain = quick;
        plain.plain = true;
        const enum interleave_verdict a = interleave_search(program, &c->plan, &quick);
        const enum interleave_verdict b = interleave_search(program, &c->plan, &plain);
        if (a != INTERLEAVE_TOO_LARGE && b != INTERLEAVE_TOO_LARGE) {
            compared++;
            states += quick.states;
            plain_states += plain.states;
            if (a != b) {
                plan_case_print(program, &c->plan);
                fail_msg("seed %" PRIu64 ": quick %d %s, plain %d %s", seed + i, (int)a,
                         quick.why, (int)b, plain.why);
            }
        }
        plan_case_free(c);
        symm_program_destroy(program);
    }
    print_message("search: %" PRIu64 " plans, %" PRIu64 " states instead of %" PRIu64
                  "\n",
                  compared, states, plain_states);
    assert_true(compared > count / 4 && states < plain_states);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_random_plans),
        cmocka_unit_test(test_plans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
