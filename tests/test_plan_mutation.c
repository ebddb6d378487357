/* SPDX-License-Identifier: MIT */
/*
 * test_plan_mutation.c - plans of the planner, each broken by every known kind of error: the
 * checker must reject every plan that the search through all interleavings finds unsafe. No
 * plan may have a barrier without which the checker still proves it.
 *
 * Broken plans get a new certificate and new hashes, so that only the proof can reject them;
 * a separate test omits each entry of each certificate in turn.
 * SYMM_TEST_PLANS=N sets the number of programs (default 150; 3000 with SYMM_TEST_LONG=1,
 * which judges more than 10000 unsafe mutants), SYMM_TEST_SEED the first seed.
 */
#include "interleave.h"
#include "plan_case.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum mutation {
    BARRIER_DROPPED,
    OFFSETS_EXCHANGED, /* of two buffers: parity swapped */
    OFFSET_MOVED,      /* onto another buffer's, or by 256 bytes */
    PARTITION_SHRUNK,
    LOOP_MADE_ODD, /* one collective left out, or a program replayed that was not */
    DEPENDENCY_CUT,
    STARTED_EARLY,
    ALGORITHM_CHANGED,
    FREED_ELSEWHERE, /* a buffer freed by another op, or by one although by none */
    MUTATIONS
};

static const char *const names[MUTATIONS] = {
    "barrier dropped", "offsets exchanged", "offset moved",
    "group shrunk",    "loop made odd",     "dependency cut",
    "started early",   "algorithm changed", "freed elsewhere"};

struct tally {
    uint64_t mutants, unsafe, rejected, large, cautious, unused;
};

struct run {
    uint64_t seed, states;
    struct tally tallies[MUTATIONS];
};

static uint64_t count_of_programs(void)
{
    const int64_t usual = HARNESS_SLOW ? 15 : 150;

    return (uint64_t)harness_env("SYMM_TEST_PLANS",
                                 harness_env("SYMM_TEST_LONG", 0) ? 3000 : usual);
}

static uint64_t first_seed(void)
{
    return (uint64_t)harness_env("SYMM_TEST_SEED", 1);
}

static void judge(struct run *run, enum mutation mutation, struct plan_case *c)
{
    struct interleave how = {.periods = 3, .max_states = HARNESS_SLOW ? 5000 : 30000};
    symm_plan_report report = {.size = sizeof(report)};
    struct tally *tally = &run->tallies[mutation];

    for (int i = 0; i < c->plan.op_count && mutation != FREED_ELSEWHERE; i++)
        c->plan.ops[i].free_count =
            0; /* what a plan frees depends on all of the rest */
    plan_case_certify(c);
    const enum interleave_verdict verdict =
        interleave_search(c->program, &c->plan, &how);
    assert_int_equal(symm_plan_check(c->program, &c->plan, &report), SYMM_OK);
    run->states += how.states;
    tally->mutants++;
    tally->large += verdict == INTERLEAVE_TOO_LARGE;
    tally->unsafe += verdict == INTERLEAVE_UNSAFE;
    tally->rejected += verdict == INTERLEAVE_UNSAFE && !report.safe;
    tally->cautious += verdict == INTERLEAVE_SAFE && !report.safe;
    /* No moment of a buffer that no op uses can be named, so it may not share bytes. */
    tally->unused += verdict == INTERLEAVE_SAFE && !report.safe &&
                     strstr(report.first, "certificate has no entry") != NULL;
    if (verdict == INTERLEAVE_UNSAFE && report.safe) {
        plan_case_print(c->program, &c->plan);
        fail_msg("seed %" PRIu64 ", %s: accepted, but %s", run->seed, names[mutation],
                 how.why);
    }
    if (verdict == INTERLEAVE_SAFE && !report.safe &&
        harness_env("SYMM_TEST_SHOW", 0)) {
        print_message("seed %" PRIu64 ", %s: %s\n", run->seed, names[mutation],
                      report.first);
        plan_case_print(c->program, &c->plan);
    }
}

/* ---- The plan changed ------------------------------------------------------------ */

static void drop_barriers(struct run *run, const symm_program *program,
                          const symm_plan *plan)
{
    for (int i = 0; i < 2 * plan->op_count; i++) {
        struct plan_case *c = plan_case_copy(program, plan);
        symm_plan_op *op = &c->plan.ops[i / 2];
        bool *barrier = i % 2 ? &op->exit_barrier : &op->entry_barrier;
        if (*barrier) {
            *barrier = false;
            judge(run, BARRIER_DROPPED, c);
        }
        plan_case_free(c);
    }
}

static void fit_arena(symm_plan *plan)
{
    for (int b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].offset + plan->buffers[b].bytes > plan->arena_bytes)
            plan->arena_bytes = plan->buffers[b].offset + plan->buffers[b].bytes;
}

static void exchange_offsets(struct run *run, const symm_program *program,
                             const symm_plan *plan)
{
    for (int a = 0; a < plan->buffer_count; a++)
        for (int b = 0; b < a; b++) {
            struct plan_case *c = plan_case_copy(program, plan);
            if (c->plan.buffers[a].offset != c->plan.buffers[b].offset) {
                c->plan.buffers[a].offset = plan->buffers[b].offset;
                c->plan.buffers[b].offset = plan->buffers[a].offset;
                fit_arena(&c->plan);
                judge(run, OFFSETS_EXCHANGED, c);
            }
            plan_case_free(c);
        }
}

static void move_offsets(struct run *run, const symm_program *program,
                         const symm_plan *plan)
{
    for (int a = 0; a < plan->buffer_count; a++)
        for (int b = -1; b < plan->buffer_count; b++) {
            const size_t old = plan->buffers[a].offset;
            const size_t offset = b >= 0    ? plan->buffers[b].offset
                                  : old > 0 ? old - 256
                                            : 256;
            if (offset == old)
                continue;
            struct plan_case *c = plan_case_copy(program, plan);
            c->plan.buffers[a].offset = offset;
            fit_arena(&c->plan);
            judge(run, OFFSET_MOVED, c);
            plan_case_free(c);
        }
}

static void change_algorithms(struct run *run, const symm_program *program,
                              const symm_plan *plan)
{
    const symm_plan_op *planned = plan->ops;

    for (int i = 0, k = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (!op->site || op->kind == SYMM_PROGRAM_WAIT)
            continue;
        struct plan_case *c = plan_case_copy(program, plan);
        c->plan.ops[k].algorithm =
            planned[k].algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL && op->out >= 0
                ? SYMM_ALGORITHM_TWO_SHOT_INPLACE
                : SYMM_ALGORITHM_ONE_SHOT_PULL;
        if (op->kind != SYMM_PROGRAM_PUT)
            judge(run, ALGORITHM_CHANGED, c);
        plan_case_free(c);
        k++;
    }
}

/* The op alone, of all ops, frees the buffer; what else it frees stays. */
static void free_by(struct run *run, const symm_program *program, const symm_plan *plan,
                    int buffer, int op)
{
    struct plan_case *c = plan_case_copy(program, plan);
    int *frees = calloc(((size_t)plan->buffer_count + 1) * (size_t)plan->op_count,
                        sizeof(*frees));

    assert_non_null(frees);
    for (int i = 0; i < plan->op_count; i++) {
        symm_plan_op *made = &c->plan.ops[i];
        int *list = frees + (size_t)i * ((size_t)plan->buffer_count + 1), count = 0;

        for (int b = 0; b < plan->buffer_count; b++) {
            bool listed = i == op && b == buffer;
            for (int k = 0; k < plan->ops[i].free_count && b != buffer; k++)
                listed = listed || plan->ops[i].frees[k] == b;
            if (listed)
                list[count++] = b;
        }
        made->frees = list;
        made->free_count = count;
    }
    judge(run, FREED_ELSEWHERE, c);
    plan_case_free(c);
    free(frees);
}

static void change_frees(struct run *run, const symm_program *program,
                         const symm_plan *plan)
{
    for (int b = 0; b < plan->buffer_count; b++)
        for (int i = 0; i < plan->op_count; i++)
            free_by(run, program, plan, b, i);
}

/* ---- The program changed under the plan ------------------------------------------ */

static void try_edit(struct run *run, enum mutation mutation,
                     const symm_program *program, const symm_plan *plan,
                     const struct plan_case_edit *edit)
{
    symm_program *changed = plan_case_edit(program, edit);

    if (!changed)
        return;
    struct plan_case *c = plan_case_copy(changed, plan);
    judge(run, mutation, c);
    plan_case_free(c);
    symm_program_destroy(changed);
}

static void edit_program(struct run *run, const symm_program *program,
                         const symm_plan *plan)
{
    struct plan_case_edit edit;

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        const bool collective = op->site && op->kind != SYMM_PROGRAM_WAIT;
        if (collective) {
            edit = plan_case_no_edit;
            edit.shrink = i;
            for (edit.partition = 1; edit.partition < program->partition_count;
                 edit.partition++)
                if (program->partitions[edit.partition].length <
                    program->partitions[op->partition].length)
                    try_edit(run, PARTITION_SHRUNK, program, plan, &edit);
        }
        edit = plan_case_no_edit;
        edit.drop = i;
        if (collective && op->kind != SYMM_PROGRAM_PUT)
            try_edit(run, LOOP_MADE_ODD, program, plan, &edit);
        if (op->kind == SYMM_PROGRAM_DEPEND || op->kind == SYMM_PROGRAM_WAIT)
            try_edit(run, DEPENDENCY_CUT, program, plan, &edit);
        edit = plan_case_no_edit;
        edit.early = i;
        if (!op->early_start && op->kind != SYMM_PROGRAM_DEPEND)
            try_edit(run, STARTED_EARLY, program, plan, &edit);
    }
    edit = plan_case_no_edit;
    edit.new_loop = 1;
    if (!program->loop)
        try_edit(run, LOOP_MADE_ODD, program, plan, &edit);
}

static void print_run(const struct run *run, uint64_t plans)
{
    struct tally all = {0};

    for (int m = 0; m < MUTATIONS; m++) {
        const struct tally *t = &run->tallies[m];
        print_message("%-18s %7" PRIu64 " mutants, %7" PRIu64 " unsafe, %7" PRIu64
                      " of them rejected; safe but rejected %" PRIu64 " (%" PRIu64
                      " for a buffer that no op uses), too large to search %" PRIu64
                      "\n",
                      names[m], t->mutants, t->unsafe, t->rejected, t->cautious,
                      t->unused, t->large);
        all.mutants += t->mutants;
        all.unsafe += t->unsafe;
        all.rejected += t->rejected;
        all.cautious += t->cautious;
        all.large += t->large;
    }
    print_message("%" PRIu64 " plans: %" PRIu64 " mutants, %" PRIu64 " unsafe, %" PRIu64
                  " rejected; %" PRIu64 " safe but rejected; %" PRIu64
                  " too large; %" PRIu64 " states\n",
                  plans, all.mutants, all.unsafe, all.rejected, all.cautious, all.large,
                  run->states);
}

static void test_mutants(void **state)
{
    static const struct plan_case_limits limits = {3, 2, 4, 8, false};
    const uint64_t count = count_of_programs();
    struct run run = {0};
    uint64_t plans = 0;

    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = run.seed = first_seed() + i;
        symm_program *program = plan_case_program(&random, &limits);
        symm_plan *plan;
        if (plan_case_make(program, &random, &plan) == SYMM_OK) {
            plans++;
            drop_barriers(&run, program, plan);
            exchange_offsets(&run, program, plan);
            move_offsets(&run, program, plan);
            change_algorithms(&run, program, plan);
            change_frees(&run, program, plan);
            edit_program(&run, program, plan);
            symm_plan_destroy(plan);
        }
        symm_program_destroy(program);
    }
    print_run(&run, plans);
    for (int m = 0; m < MUTATIONS && count >= 100; m++)
        assert_true(run.tallies[m].unsafe > 0);
}

/* ---- Barriers that stay ------------------------------------------------------------ */

/* No barrier of a plan may be left out. Returns how many there are. */
static int need_barriers(const symm_program *program, const symm_plan *plan,
                         uint64_t seed)
{
    int barriers = 0;

    for (int i = 0; i < 2 * plan->op_count; i++) {
        struct plan_case *c = plan_case_copy(program, plan);
        symm_plan_report report = {.size = sizeof(report)};
        symm_plan_op *op = &c->plan.ops[i / 2];
        bool *barrier = i % 2 ? &op->exit_barrier : &op->entry_barrier;

        for (int k = 0; k < c->plan.op_count; k++)
            c->plan.ops[k].free_count = 0;
        if (*barrier) {
            barriers++;
            *barrier = false;
            plan_case_certify(c);
            assert_int_equal(symm_plan_check(program, &c->plan, &report), SYMM_OK);
        }
        if (report.safe) {
            plan_case_print(program, plan);
            fail_msg("seed %" PRIu64 ": the %s barrier of %s is not needed", seed,
                     i % 2 ? "exit" : "entry", op->site);
        }
        plan_case_free(c);
    }
    return barriers;
}

/* The first seeds are programs whose plans would have a superfluous barrier if none was
 * taken away after the placement. */
static void test_barriers(void **state)
{
    static const uint64_t known[] = {2510, 3004, 4174};
    const uint64_t count = count_of_programs(), usual = sizeof(known) / sizeof(*known);
    int barriers = 0;

    (void)state;
    for (uint64_t i = 0; i < usual + count; i++) {
        const uint64_t seed = i < usual ? known[i] : first_seed() + i - usual;
        const struct plan_case_limits limits = {8, 6, 6, 16, seed % 2};
        uint64_t random = seed;
        symm_program *program = plan_case_program(&random, &limits);
        symm_plan *plan;

        if (plan_case_make(program, &random, &plan) == SYMM_OK) {
            barriers += need_barriers(program, plan, seed);
            symm_plan_destroy(plan);
        }
        symm_program_destroy(program);
    }
    print_message("%d barriers, each was needed\n", barriers);
    assert_true(barriers > 0);
}

/* ---- The certificate ------------------------------------------------------------- */

static uint64_t drop_entries(const symm_program *program, const symm_plan *plan)
{
    const symm_plan_entry *entries = plan->certificate;

    for (size_t i = 0; i < plan->certificate_count; i++) {
        struct plan_case *c = plan_case_copy(program, plan);
        symm_plan_report report = {.size = sizeof(report)};
        memcpy(c->plan.certificate, entries, i * sizeof(*entries));
        memcpy(c->plan.certificate + i, entries + i + 1,
               (plan->certificate_count - i - 1) * sizeof(*entries));
        c->plan.certificate_count--;
        assert_int_equal(symm_plan_check(program, &c->plan, &report), SYMM_OK);
        if (report.safe) {
            plan_case_print(program, plan);
            fail_msg("without the entry %d, %d the plan was accepted",
                     entries[i].before, entries[i].after);
        }
        plan_case_free(c);
    }
    return plan->certificate_count;
}

static void test_certificates(void **state)
{
    static const struct plan_case_limits limits = {4, 3, 6, 16, false};
    const uint64_t count = count_of_programs();
    uint64_t entries = 0;

    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = first_seed() + i;
        symm_program *program = plan_case_program(&random, &limits);
        symm_plan *plan;
        if (plan_case_make(program, &random, &plan) == SYMM_OK) {
            symm_plan_report report = {.size = sizeof(report)};
            assert_int_equal(symm_plan_check(program, plan, &report), SYMM_OK);
            if (!report.safe) {
                plan_case_print(program, plan);
                fail_msg("seed %" PRIu64 ": %s", first_seed() + i, report.first);
            }
            entries += drop_entries(program, plan);
            symm_plan_destroy(plan);
        }
        symm_program_destroy(program);
    }
    print_message("%" PRIu64 " entries of certificates left out, each was missed\n",
                  entries);
    assert_true(entries > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_certificates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
