/* SPDX-License-Identifier: MIT */
/*
 * test_plan_fuzz.c - random programs are planned, and the checker must prove every plan.
 * Then each plan is changed in one place and its hashes are removed, and the checker must
 * refuse every false statement: offsets, turns, orders, entries, witnesses, chains, the
 * antichain, the buffers that ops free, which ops are an all_reduce_norm, and every figure.
 *
 * SYMM_TEST_PLANS=N sets the number of programs (default 1500; 1000000 with
 * SYMM_TEST_LONG=1), SYMM_TEST_SEED the first seed, which is printed.
 *
 * ctest: cost 10
 */
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

enum change {
    FIGURE,
    TURN,
    FOLLOWS,
    OFFSET,
    ENTRY_DROPPED,
    ENTRY_TWICE,
    ENTRY_CHANGED,
    WITNESS_CHANGED,
    WITNESS_DROPPED,
    CHAIN_CHANGED,
    ANTICHAIN_CHANGED,
    FREES_CHANGED,
    NORM_CHANGED,
    EXIT_DROPPED,
    CHANGES
};

struct tally {
    uint64_t programs, planned, mutants, refused;
};

static uint64_t draw(uint64_t *random)
{
    *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
    return *random >> 33;
}

static int below(uint64_t *random, size_t limit)
{
    return limit ? (int)(draw(random) % limit) : 0;
}

/* The witness is after the last access and before the beginning, or else is refused. Which
 * moments are is the checker's to know: these are beyond all of the program. */
static int64_t far_moment(const struct plan_case *c, uint64_t *random)
{
    return below(random, 2) ? 0 : 16 * (int64_t)(c->program->op_count + 1);
}

static bool change_figure(struct plan_case *c, uint64_t *random)
{
    symm_plan *plan = &c->plan;
    size_t *const figures[] = {&plan->arena_bytes, &plan->dedicated_bytes,
                               &plan->lower_bound_bytes};
    const int which = below(random, 5);

    if (which == 3)
        plan->lower_bound_proved = !plan->lower_bound_proved;
    else if (which == 4)
        plan->loop = !plan->loop;
    else
        *figures[which] +=
            (below(random, 2) ? 1 : (size_t)-1) * (size_t)(1 + below(random, 512));
    return true;
}

static bool change_entry(struct plan_case *c, symm_plan_entry *entry, uint64_t *random)
{
    switch (below(random, 3)) {
    case 0:
        entry->next_period = !entry->next_period;
        return true;
    case 1:
        entry->before = (entry->before + 1) % c->plan.buffer_count;
        return c->plan.buffer_count > 1;
    default:
        entry->after = (entry->after + 1) % c->plan.buffer_count;
        return c->plan.buffer_count > 1;
    }
}

/* Room for one more than a list has. */
static void *copy_list(const void *list, size_t count, size_t bytes, void **keep)
{
    *keep = calloc(count + 1, bytes);
    assert_non_null(*keep);
    if (count)
        memcpy(*keep, list, count * bytes);
    return *keep;
}

static bool change_witness(struct plan_case *c, symm_plan_entry *entry, bool drop,
                           uint64_t *random, void **keep)
{
    symm_plan_witness *made =
        copy_list(entry->witness, (size_t)entry->witness_count, sizeof(*made), keep);
    const int at = below(random, (size_t)entry->witness_count);

    if (entry->witness_count == 0)
        return false;
    entry->witness = made;
    if (drop) {
        made[at] = made[--entry->witness_count];
        return true;
    }
    if (below(random, 2)) {
        made[at].moment = far_moment(c, random);
        return true;
    }
    /* Each chain of the buffer has a witness, so another one is superfluous or missing. */
    made[at].chain = (made[at].chain + 1) % c->plan.chain_count;
    return c->plan.chain_count > 1;
}

static bool change_chain(struct plan_case *c, uint64_t *random, void **keep)
{
    symm_plan_chain *made =
        copy_list(c->plan.chains, (size_t)c->plan.chain_count, sizeof(*made), keep);
    symm_plan_chain *chain = &made[below(random, (size_t)c->plan.chain_count)];

    if (c->plan.chain_count == 0)
        return false;
    c->plan.chains = made;
    switch (below(random, 4)) {
    case 0:
        chain->by = strcmp(chain->by, "owner") == 0 ? "sender" : "owner";
        return true;
    case 1:
        chain->stream = "nowhere";
        return true;
    case 2:
        chain->root += 300;
        return true;
    default:
        chain->half += 2;
        return true;
    }
}

static bool change_antichain(struct plan_case *c, uint64_t *random, void **keep)
{
    int *made = copy_list(c->plan.antichain, (size_t)c->plan.antichain_count,
                          sizeof(*made), keep);

    if (c->plan.antichain_count == 0)
        return false;
    c->plan.antichain = made;
    if (below(random, 2)) /* no buffer of these programs is empty */
        c->plan.antichain_count--;
    else
        made[0] = made[c->plan.antichain_count - 1] + (c->plan.antichain_count == 1);
    if (c->plan.antichain_count == 1 && made[0] < c->plan.buffer_count)
        return c->plan.buffers[made[0]].bytes > c->plan.lower_bound_bytes ||
               (c->plan.buffers[made[0]].bytes + 255) / 256 * 256 !=
                   c->plan.lower_bound_bytes;
    return true;
}

/* Sites and buffers of the plan, one of them freed once more. What is freed twice, or by an
 * index that is none, is wrong; what no op freed may be right. */
static bool change_frees(struct plan_case *c, uint64_t *random, void **keep)
{
    symm_plan *plan = &c->plan;
    symm_plan_op *op = &plan->ops[below(random, (size_t)plan->op_count)];
    const int buffer = below(random, (size_t)plan->buffer_count + 1);
    bool freed = buffer == plan->buffer_count;
    int *made;

    if (plan->op_count == 0)
        return false;
    for (int i = 0; i < plan->op_count; i++)
        for (int k = 0; k < plan->ops[i].free_count; k++)
            freed = freed || plan->ops[i].frees[k] == buffer;
    freed = freed || plan->buffers[buffer].turn < 0;
    made = copy_list(op->frees, (size_t)op->free_count, sizeof(*made), keep);
    made[op->free_count++] = buffer;
    op->frees = made;
    return freed;
}

/* The exit barrier of an all_reduce_norm, which is a part of it. */
static bool drop_exit(struct plan_case *c)
{
    for (int i = 0; i < c->plan.op_count; i++)
        if (c->plan.ops[i].norm && c->plan.ops[i].exit_barrier) {
            c->plan.ops[i].exit_barrier = false;
            return true;
        }
    return false;
}

static bool change_norm(struct plan_case *c, uint64_t *random)
{
    symm_plan_op *op = &c->plan.ops[below(random, (size_t)c->plan.op_count)];

    if (c->plan.op_count == 0)
        return false;
    op->norm = !op->norm;
    return true;
}

/* false: the change may leave the plan as right as it was. */
static bool change(struct plan_case *c, enum change what, uint64_t *random, void **keep)
{
    symm_plan *plan = &c->plan;
    const int at = below(random, plan->certificate_count);
    symm_plan_buffer *buffer =
        &plan->buffers[below(random, (size_t)plan->buffer_count)];
    symm_plan_entry *entries = plan->certificate;
    int *after;

    switch (what) {
    case FIGURE:
        return change_figure(c, random);
    case TURN:
        buffer->turn = buffer->turn < 0 ? 0 : buffer->turn + 1;
        return true;
    case FOLLOWS:
        after =
            copy_list(buffer->after, (size_t)buffer->after_count, sizeof(*after), keep);
        after[buffer->after_count] = below(random, (size_t)plan->buffer_count);
        buffer->after = after;
        buffer->after_count += buffer->after_count && below(random, 2) ? -1 : 1;
        return true;
    case OFFSET:
        buffer->offset += 128; /* nothing lies there */
        return true;
    case CHAIN_CHANGED:
        return change_chain(c, random, keep);
    case FREES_CHANGED:
        return change_frees(c, random, keep);
    case ANTICHAIN_CHANGED:
        return change_antichain(c, random, keep);
    case NORM_CHANGED:
        return change_norm(c, random);
    case EXIT_DROPPED:
        return drop_exit(c);
    default:
        break;
    }
    if (plan->certificate_count == 0)
        return false;
    switch (what) {
    case ENTRY_DROPPED:
        entries[at] = entries[--plan->certificate_count];
        return true;
    case ENTRY_TWICE:
        plan->certificate =
            copy_list(entries, plan->certificate_count, sizeof(*entries), keep);
        free(entries);
        plan->certificate[plan->certificate_count++] = plan->certificate[at];
        *keep = NULL; /* the case frees it */
        return true;
    case ENTRY_CHANGED:
        return change_entry(c, &entries[at], random);
    default:
        return change_witness(c, &entries[at], what == WITNESS_DROPPED, random, keep);
    }
}

static void mutate(struct tally *tally, uint64_t seed, const symm_program *program,
                   const symm_plan *plan, uint64_t *random)
{
    for (int what = 0; what < CHANGES; what++) {
        struct plan_case *c = plan_case_copy(program, plan);
        symm_plan_report report = {.size = sizeof(report)};
        void *keep = NULL;
        const bool wrong = change(c, (enum change)what, random, &keep);

        assert_int_equal(symm_plan_check(program, &c->plan, &report), SYMM_OK);
        tally->mutants++;
        tally->refused += !report.safe;
        if (wrong && report.safe) {
            plan_case_print(program, &c->plan);
            fail_msg("seed %" PRIu64 ": change %d was accepted", seed, what);
        }
        plan_case_free(c);
        free(keep);
    }
}

static void test_programs(void **state)
{
    const struct plan_case_limits limits[] = {
        {4, 3, 6, 16, false}, {5, 4, 12, 40, true}, {8, 6, 30, 90, false}};
    const int64_t usual = HARNESS_SLOW ? 150 : 1500;
    const uint64_t count = (uint64_t)harness_env(
        "SYMM_TEST_PLANS", harness_env("SYMM_TEST_LONG", 0) ? 1000000 : usual);
    const uint64_t first = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    struct tally tally = {.programs = count};

    (void)state;
    print_message("first seed %" PRIu64 "\n", first);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = first + i, changes = 977 * (first + i) + 1;
        symm_program *program = plan_case_program(&random, &limits[(first + i) % 3]);
        symm_plan *plan = NULL;
        symm_plan_report report = {.size = sizeof(report)};
        if (plan_case_make(program, &random, &plan) == SYMM_OK) {
            tally.planned++;
            assert_int_equal(symm_plan_check(program, plan, &report), SYMM_OK);
            if (!report.safe) {
                plan_case_print(program, plan);
                fail_msg("seed %" PRIu64 ": %s", first + i, report.first);
            }
            assert_true(plan->certificate_count <= 3 * (size_t)plan->buffer_count);
            mutate(&tally, first + i, program, plan, &changes);
            symm_plan_destroy(plan);
        }
        symm_program_destroy(program);
    }
    print_message("%" PRIu64 " programs, %" PRIu64 " plans proved; %" PRIu64
                  " mutants, %" PRIu64 " refused\n",
                  tally.programs, tally.planned, tally.mutants, tally.refused);
    assert_true(tally.planned > 0 && tally.refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
