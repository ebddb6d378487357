/* SPDX-License-Identifier: MIT */
/*
 * test_plan_check_order.c - the orders that the plan checker proves, and those it refuses.
 *
 * Every case is also judged by the search through all interleavings, so the table of known
 * races (one slot without an exit barrier, an odd cycle, a barrier over too few ranks,
 * kernels that overlap) is tested twice.
 */
#include "plan_judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One character for each call: its slot, its partition, whether an exit barrier follows. */
struct cycle {
    const char *slots, *partitions, *exits;
    bool early, loop;
    bool safe;
};

static const struct cycle cycles[] = {
    {"0", "w", "-", false, true, false},
    {"0", "w", "x", false, true, true},
    {"0", "w", "-", false, false, true},
    {"00", "ww", "--", false, false, false},
    {"01", "ww", "--", false, true, true},
    {"010", "www", "---", false, false, true},
    {"010", "www", "---", false, true, false},
    {"010", "www", "--x", false, true, true},
    {"010", "www", "x--", false, true, false},
    {"012", "www", "---", false, true, true},
    {"0120", "wwww", "----", false, true, false},
    {"0101", "wwww", "----", false, true, true},
    {"010", "wsw", "---", false, false, false}, /* a barrier over too few ranks */
    {"0120", "wsww", "----", false, false, true},
    {"01", "ws", "--", false, true, false},
    {"01", "ss", "--", false, true, true},       /* partitions of one rank */
    {"0101", "wwww", "----", true, true, false}, /* kernels overlap: two slots fail, */
    {"012012", "wwwwww", "------", true, true, true}, /* three do */
};

static void judge_cycle(const struct cycle *cycle, int world)
{
    const int calls = (int)strlen(cycle->slots);
    symm_program *p = program(world, cycle->loop, 3, 1);
    char site[16], name[64];

    for (int i = 0; i < calls; i++) {
        int slot = cycle->slots[i] - '0';
        add(p, (symm_program_op){.kind = SYMM_PROGRAM_WRITE,
                                 .buffers = &slot,
                                 .buffer_count = 1,
                                 .early_start = cycle->early});
        snprintf(site, sizeof(site), "c%d", i);
        reduce(p, site, cycle->partitions[i] == 's', slot, -1);
    }
    struct plan_case *c = plan_of(p);
    for (int i = 0; i < calls; i++)
        c->plan.ops[i].exit_barrier = cycle->exits[i] == 'x';
    snprintf(name, sizeof(name), "slots %s, partitions %s, exits %s, %d ranks",
             cycle->slots, cycle->partitions, cycle->exits, world);
    judge(name, c, cycle->safe);
    done(c, p);
}

static void test_cycles(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cycles) / sizeof(cycles[0]); i++)
        for (int world = 2; world <= 3; world++)
            judge_cycle(&cycles[i], world);
}

/* What each algorithm leaves unordered: write in, call, read out, in a loop. */
static void test_algorithms(void **state)
{
    static const struct {
        symm_algorithm algorithm;
        const char *safe_with; /* of " ", "e"ntry, e"x"it, "b"oth: those that do */
    } rows[] = {
        {SYMM_ALGORITHM_LL_PUSH, " exb"},
        {SYMM_ALGORITHM_LAMPORT_PUSH, " exb"},
        {SYMM_ALGORITHM_TWO_SHOT_PUSH, " exb"},
        {SYMM_ALGORITHM_COPY_IN, " exb"},
        {SYMM_ALGORITHM_ENGINE, " exb"},
        {SYMM_ALGORITHM_ONE_SHOT_PULL, "b"},
        {SYMM_ALGORITHM_MULTIMEM_ONE_SHOT, "b"},
        {SYMM_ALGORITHM_TWO_SHOT_PULL, "eb"},
        {SYMM_ALGORITHM_TWO_SHOT_INPLACE, "b"},
        {SYMM_ALGORITHM_MULTIMEM_TWO_SHOT, "b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (const char *with = " exb"; *with; with++) {
            symm_program *p = program(2, true, 2, 1);
            local(p, SYMM_PROGRAM_WRITE, 0, 0);
            reduce(p, "sum", 0, 0, 1);
            local(p, SYMM_PROGRAM_READ, 0, 1);
            struct plan_case *c = plan_of(p);
            c->plan.ops[0].algorithm = rows[i].algorithm;
            c->plan.ops[0].entry_barrier = *with == 'e' || *with == 'b';
            c->plan.ops[0].exit_barrier = *with == 'x' || *with == 'b';
            judge(symm_algorithm_name(rows[i].algorithm), c,
                  strchr(rows[i].safe_with, *with) != NULL);
            done(c, p);
        }
}

/* What an algorithm cannot do is refused, as where plans are made. */
static void test_objections(void **state)
{
    static const struct {
        symm_program_kind kind;
        symm_algorithm algorithm;
        const char *words;
    } rows[] = {
        {SYMM_PROGRAM_ALL_GATHER, SYMM_ALGORITHM_MULTIMEM_ONE_SHOT, "only reduces"},
        {SYMM_PROGRAM_ALL_GATHER, SYMM_ALGORITHM_TWO_SHOT_PULL, "does all_reduce only"},
        {SYMM_PROGRAM_ALL_GATHER, SYMM_ALGORITHM_TWO_SHOT_PUSH, "does all_reduce only"},
        {SYMM_PROGRAM_ALL_GATHER, SYMM_ALGORITHM_TWO_SHOT_INPLACE,
         "does all_reduce only"},
        {SYMM_PROGRAM_ALL_REDUCE, SYMM_ALGORITHM_COPY_ENGINE, "does not reduce"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        symm_program *p = program(2, true, 2, 1);
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        add(p,
            (symm_program_op){
                .kind = rows[i].kind, .site = "op", .in = 0, .out = 1, .count = 384});
        struct plan_case *c = plan_of(p);
        plan_case_certify(c);
        assert_true(report_of(c).safe);
        c->plan.ops[0].algorithm = rows[i].algorithm;
        refused(c, rows[i].words);
        done(c, p);
    }
}

/* In place, an op writes what its peers read in it: in the next period they come back. */
static void test_in_place_around_the_circle(void **state)
{
    (void)state;
    for (int barriers = 0; barriers < 8; barriers++) {
        symm_program *p = program(2, barriers & 4, 1, 1);
        char name[64];
        reduce(p, "whole", 0, 0, 0);
        struct plan_case *c = plan_of(p);
        c->plan.ops[0].algorithm = SYMM_ALGORITHM_TWO_SHOT_PULL;
        c->plan.ops[0].entry_barrier = barriers & 1;
        c->plan.ops[0].exit_barrier = barriers & 2;
        snprintf(name, sizeof(name), "two_shot_pull in place, barriers %d", barriers);
        judge(name, c, barriers != 4);
        done(c, p);
    }
}

/* Nothing orders an engine's members: that one is through says nothing of the others. */
static void test_engine_orders_nothing(void **state)
{
    symm_program *p = program(2, true, 2, 1);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    reduce(p, "pull", 0, 0, -1);
    local(p, SYMM_PROGRAM_WRITE, 0, 1);
    reduce(p, "push", 0, 1, -1);
    struct plan_case *c = plan_of(p);
    c->plan.ops[0].exit_barrier = false;
    c->plan.ops[1].entry_barrier = c->plan.ops[1].exit_barrier = false;
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_LL_PUSH;
    plan_case_certify(c);
    assert_true(report_of(c).safe);
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_ENGINE;
    plan_case_certify(c);
    refused(c, "no barrier over both ranks");
    done(c, p);
}

/* A neighbour's put into a buffer that I read: the put needs its entry barrier. */
static void test_puts(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++)
        for (int with = 0; with < 8; with++) {
            const bool entry = with & 1, waits = with & 2, loop = with & 4;
            symm_program *p = program(world, loop, 2, 1);
            local(p, SYMM_PROGRAM_READ, 0, 1);
            local(p, SYMM_PROGRAM_WRITE, 0, 0);
            put(p, "hop", 0, 0, 1);
            if (waits)
                wait_for(p, "hop", 0);
            local(p, SYMM_PROGRAM_READ, 0, 1);
            struct plan_case *c = plan_of(p);
            c->plan.ops[0].entry_barrier = entry;
            judge("put", c, entry && waits);
            done(c, p);
        }
}

static void test_streams(void **state)
{
    (void)state;
    for (int with = 0; with < 4; with++) {
        symm_program *p = program(2, true, 2, 2);
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        if (with & 1)
            depend(p, 1, 0);
        local(p, SYMM_PROGRAM_READ, 1, 0);
        if (with & 2)
            depend(p, 0, 1);
        struct plan_case *c = plan_of(p);
        judge("streams", c, with == 3);
        done(c, p);
    }
}

/* What a stream waited for, a stream that waits for it has waited for too. */
static void test_depends_in_a_row(void **state)
{
    symm_program *p = program(2, false, 1, 3);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    depend(p, 1, 0);
    depend(p, 2, 1);
    local(p, SYMM_PROGRAM_READ, 2, 0);
    struct plan_case *c = plan_of(p);
    judge("depends in a row", c, true);
    done(c, p);
}

/* A depend runs no kernel, so it is not the op that may be overtaken; on its own stream it
 * holds back what would overtake. */
static void test_early_start_behind_depend(void **state)
{
    (void)state;
    for (int on = -1; on < 2; on++) {
        symm_program *p = program(2, false, 1, 2);
        int buffer = 0;
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        if (on >= 0)
            depend(p, 0, on);
        add(p, (symm_program_op){.kind = SYMM_PROGRAM_READ,
                                 .early_start = true,
                                 .buffers = &buffer,
                                 .buffer_count = 1});
        struct plan_case *c = plan_of(p);
        judge("early start behind a depend", c, on == 0);
        done(c, p);
    }
}

/* The wait is listed before its put, on another stream. */
static void test_wait_listed_first(void **state)
{
    (void)state;
    for (int entry = 0; entry < 2; entry++) {
        symm_program *p = program(2, true, 2, 2);
        wait_for(p, "hop", 1);
        local(p, SYMM_PROGRAM_READ, 1, 1);
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        put(p, "hop", 0, 0, 1);
        depend(p, 0, 1);
        struct plan_case *c = plan_of(p);
        c->plan.ops[0].entry_barrier = entry;
        /* the depend covers ops listed before it: the read; so a barrier can tell of it */
        judge("wait listed first", c, entry);
        done(c, p);
    }
}

/* A put on stream 1 of which stream 0 knows nothing: an op issued later may be listed
 * before a depend, and is then not covered by it. */
static void test_depend_covers_listed_ops(void **state)
{
    symm_program *p = program(2, false, 3, 2);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    wait_for(p, "hop", 1);
    depend(p, 1, 0);
    local(p, SYMM_PROGRAM_READ, 1, 2);
    put(p, "hop", 0, 0, 1);
    local(p, SYMM_PROGRAM_WRITE, 0, 2); /* listed after the depend: not ordered */
    struct plan_case *c = plan_of(p);
    judge("depend covers listed ops", c, false);
    done(c, p);
}

static void test_proved_pairs(void **state)
{
    symm_program *p = program(2, true, 1, 1);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    reduce(p, "sum", 0, 0, -1);
    struct plan_case *c = plan_of(p);
    plan_case_certify(c);
    /* By owner: 2 write-read, in each period; of the next period 2 read-write and 1
     * write-write. And the buffer is followed by itself. */
    assert_int_equal(report_of(c).proved, 2 * (2 + 2 + 2 + 1) + 1);
    done(c, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_objections),
        cmocka_unit_test(test_in_place_around_the_circle),
        cmocka_unit_test(test_engine_orders_nothing),
        cmocka_unit_test(test_puts),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_depends_in_a_row),
        cmocka_unit_test(test_early_start_behind_depend),
        cmocka_unit_test(test_wait_listed_first),
        cmocka_unit_test(test_depend_covers_listed_ops),
        cmocka_unit_test(test_proved_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
