/* SPDX-License-Identifier: MIT */
/*
 * test_plan_check.c - what the checker of plans proves, and what it refuses in which words.
 *
 * Every case about order is also judged by the search through all interleavings, so the
 * table of known races (one slot without an exit barrier, an odd cycle, a barrier over too
 * few ranks, kernels that overlap) is tested twice.
 */
#include "interleave.h"
#include "plan_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Helpers --------------------------------------------------------------------- */

static symm_program *program(int world, bool loop, int buffers, int streams)
{
    const int halves[] = {0, 1, 2, 3};
    symm_program *p;
    char name[16];
    int index;

    assert_int_equal(symm_program_create("test", world, loop, &p), SYMM_OK);
    for (int s = 0; s < streams; s++) {
        snprintf(name, sizeof(name), "s%d", s);
        assert_int_equal(symm_program_add_stream(p, name, &index), SYMM_OK);
    }
    assert_int_equal(symm_program_add_partition(p, "one", world, 1, halves, &index),
                     SYMM_OK);
    if (world == 4)
        assert_int_equal(symm_program_add_partition(p, "pairs", 2, 2, halves, &index),
                         SYMM_OK);
    for (int b = 0; b < buffers; b++) {
        snprintf(name, sizeof(name), "b%d", b);
        assert_int_equal(symm_program_add_bytes(p, name, 768, &index), SYMM_OK);
    }
    return p;
}

static void add(symm_program *p, symm_program_op op)
{
    op.size = sizeof(op);
    if (symm_program_add_op(p, &op) != SYMM_OK)
        fail_msg("%s", symm_last_error());
}

static void local(symm_program *p, symm_program_kind kind, int stream, int buffer)
{
    add(p, (symm_program_op){
               .kind = kind, .stream = stream, .buffers = &buffer, .buffer_count = 1});
}

static void reduce(symm_program *p, const char *site, int partition, int in, int out)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                             .site = site,
                             .partition = partition,
                             .in = in,
                             .out = out});
}

static void put(symm_program *p, const char *site, int stream, int src, int dst)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_PUT,
                             .stream = stream,
                             .site = site,
                             .in = src,
                             .out = dst,
                             .shift = 1});
}

static void wait_for(symm_program *p, const char *site, int stream)
{
    add(p,
        (symm_program_op){.kind = SYMM_PROGRAM_WAIT, .stream = stream, .site = site});
}

static void depend(symm_program *p, int stream, int on)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_DEPEND, .stream = stream, .on = on});
}

static struct plan_case *plan_of(symm_program *p)
{
    assert_int_equal(symm_program_finish(p), SYMM_OK);
    return plan_case_dedicated(p);
}

static symm_plan_report report_of(const struct plan_case *c)
{
    symm_plan_report report = {.size = sizeof(report)};

    if (symm_plan_check(c->program, &c->plan, &report) != SYMM_OK)
        fail_msg("%s", symm_last_error());
    return report;
}

/* Checker and search agree, and with what is wanted. */
static void judge(const char *name, struct plan_case *c, bool wanted)
{
    struct interleave search = {.periods = 3, .max_states = 2000000};
    symm_plan_report report;

    plan_case_certify(c);
    report = report_of(c);
    const enum interleave_verdict verdict =
        interleave_search(c->program, &c->plan, &search);
    if (report.safe != wanted ||
        verdict != (wanted ? INTERLEAVE_SAFE : INTERLEAVE_UNSAFE)) {
        plan_case_print(c->program, &c->plan);
        fail_msg(
            "%s: wanted %s; the checker says %s %s, the search (%llu states) %s %s",
            name, wanted ? "safe" : "unsafe", report.safe ? "safe" : "unsafe",
            report.first, (unsigned long long)search.states,
            verdict == INTERLEAVE_SAFE     ? "safe"
            : verdict == INTERLEAVE_UNSAFE ? "unsafe"
                                           : "too large",
            search.why);
    }
    assert_int_equal(report.safe, report.first[0] == '\0');
}

static void refused(struct plan_case *c, const char *words)
{
    const symm_plan_report report = report_of(c);

    assert_false(report.safe);
    assert_int_equal(report.proved, 0);
    if (!strstr(report.first, words))
        fail_msg("wanted \"%s\" in \"%s\"", words, report.first);
}

static void done(struct plan_case *c, symm_program *p)
{
    plan_case_free(c);
    symm_program_destroy(p);
}

/* ---- Order ----------------------------------------------------------------------- */

/* One character for each call: its slot, its group, whether an exit barrier follows. */
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
    {"01", "ss", "--", false, true, true},       /* groups of one rank */
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
    snprintf(name, sizeof(name), "slots %s, groups %s, exits %s, %d ranks",
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
    local(p, SYMM_PROGRAM_WRITE, 0, 2); /* listed behind the depend: not ordered */
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

/* ---- Sharing --------------------------------------------------------------------- */

/* Two buffers at one place, each with its own time. */
static struct plan_case *two_in_one_place(symm_program **p, bool loop)
{
    *p = program(2, loop, 2, 1);
    for (int b = 0; b < 2; b++) {
        local(*p, SYMM_PROGRAM_WRITE, 0, b);
        reduce(*p, b ? "second" : "first", 0, b, -1);
    }
    struct plan_case *c = plan_of(*p);
    c->plan.buffers[1].offset = 0;
    return c;
}

static void test_sharing(void **state)
{
    symm_program *p;

    (void)state;
    for (int loop = 0; loop < 2; loop++) {
        struct plan_case *c = two_in_one_place(&p, loop);
        judge("two in one place, all barriers", c, true);
        c->plan.ops[1].exit_barrier = false;
        judge("two in one place, no exit of the second", c, !loop);
        c->plan.ops[0].exit_barrier = false;
        judge("two in one place, no exit of the first", c, false);
        refused(c, "no barrier over both ranks");
        done(c, p);
    }
}

/* Each entry is needed, none may be added, and what it says must be true. */
static void test_certificate(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan_witness witness[3];

    (void)state;
    plan_case_certify(c);
    assert_true(report_of(c).safe);
    symm_plan_entry *entries = c->plan.certificate, kept;
    assert_int_equal(c->plan.certificate_count, 2); /* b1 b0 around the circle, b0 b1 */
    c->plan.certificate_count = 1;
    refused(c, "no entry for buffers b0 and b1");
    c->plan.certificate_count = 2;
    kept = entries[1];
    entries[1] = entries[0];
    refused(c, "is superfluous");
    entries[1] = kept;
    entries[1].next_period = true;
    refused(c, "no entry for buffers b0 and b1");
    entries[1].next_period = false;
    entries[1].before = 1;
    refused(c, "no entry for buffers b0 and b1");
    entries[1].before = 7;
    refused(c, "names buffers or chains that are not there");
    entries[1] = kept;
    assert_int_equal(kept.witness_count, 2);
    memcpy(witness, kept.witness, 2 * sizeof(*witness));
    entries[1].witness = witness;
    for (int w = 0; w < 2; w++) {
        const int64_t moment = witness[w].moment;
        witness[w].moment = moment + 1;
        refused(c, "allowed:");
        witness[w].moment = 1;
        refused(c, "allowed:");
        witness[w].moment = moment;
    }
    entries[1].witness_count = 1;
    refused(c, "lacks a witness");
    entries[1].witness_count = 3;
    witness[2] = witness[1];
    refused(c, "named twice");
    entries[1] = kept;
    assert_true(report_of(c).safe);
    done(c, p);
}

/* Everything that a plan says besides is computed anew. */
static void test_figures(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan *plan = &c->plan;
    int both[] = {0, 1};

    (void)state;
    plan_case_certify(c);
    size_t *const figures[] = {&plan->arena_bytes, &plan->dedicated_bytes,
                               &plan->lower_bound_bytes};
    static const char *const names[] = {"arena_bytes", "dedicated_bytes",
                                        "lower_bound_bytes"};
    for (int i = 0; i < 3; i++) {
        for (int up = 0; up < 2; up++) {
            const size_t right = *figures[i];
            *figures[i] = up ? right + 256 : right - 256;
            refused(c, i == 0 && !up ? "inside the arena" : names[i]);
            *figures[i] = right;
        }
        assert_true(report_of(c).safe);
    }
    plan->lower_bound_proved = !plan->lower_bound_proved;
    refused(c, "lower_bound_proved");
    plan->lower_bound_proved = !plan->lower_bound_proved;
    plan->antichain = both;
    plan->antichain_count = 2;
    refused(c, "which could share bytes");
    both[0] = 1;
    refused(c, "indices of buffers that ascend");
    plan->antichain_count = 0;
    refused(c, "lower_bound_bytes");
    plan_case_certify(c);
    plan->buffers[0].turn = 1;
    refused(c, "has turn 1, allowed: 0");
    plan_case_certify(c);
    plan->buffers[1].after_count = 0;
    refused(c, "does not list the buffers that it comes after, b0 first");
    plan_case_certify(c);
    plan->chains[0].stream = "s9";
    refused(c, "is none that a buffer is touched on");
    plan->chains[0] = plan->chains[1];
    refused(c, "is listed twice");
    plan_case_certify(c);
    plan->loop = false;
    refused(c, "loop is false in the plan");
    done(c, p);
}

static void test_lifetimes(void **state)
{
    symm_program *p = program(2, false, 2, 1);

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    local(p, SYMM_PROGRAM_WRITE, 0, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    struct plan_case *c = plan_of(p);
    c->plan.buffers[1].offset = 0;
    judge("overwritten while live", c, false);
    refused(c, "their lifetimes overlap");
    done(c, p);

    p = program(2, false, 2, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    local(p, SYMM_PROGRAM_READ, 0, 1);
    c = plan_of(p);
    c->plan.buffers[1].offset = 256;
    judge("two inputs", c, false);
    refused(c, "holds its value all the time");
    done(c, p);

    p = program(2, true, 2, 1);
    local(p, SYMM_PROGRAM_READ, 0, 0); /* carried over the end of the period */
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    local(p, SYMM_PROGRAM_WRITE, 0, 1);
    c = plan_of(p);
    c->plan.buffers[1].offset = 512;
    judge("carried value overwritten", c, false);
    refused(c, "their lifetimes overlap");
    done(c, p);
}

/* A write of a part leaves the rest as it was, also where another buffer lies. */
static void test_parts(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        symm_program *p = program(2, false, 3, 1);
        local(p, SYMM_PROGRAM_WRITE, 0, 0);
        local(p, SYMM_PROGRAM_WRITE, 0, 2);
        local(p, SYMM_PROGRAM_READ, 0, 2);
        add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                                 .site = "sum",
                                 .in = 0,
                                 .out = 1,
                                 .count = half ? 256 : 512});
        local(p, SYMM_PROGRAM_READ, 0, 1);
        struct plan_case *c = plan_of(p);
        c->plan.buffers[2].offset = c->plan.buffers[1].offset - 512; /* its last 256 */
        c->plan.buffers[0].offset = 2304;
        c->plan.arena_bytes = 4096;
        plan_case_certify(c);
        refused(c, "their lifetimes overlap"); /* a buffer counts as a whole */
        c->plan.buffers[2].offset = c->plan.buffers[1].offset + 256;
        judge("second part overwritten", c, false);
        done(c, p);
    }
}

static void test_one_op(void **state)
{
    const int both[] = {0, 1};
    symm_program *p = program(2, false, 2, 1);

    (void)state;
    add(p, (symm_program_op){
               .kind = SYMM_PROGRAM_WRITE, .buffers = both, .buffer_count = 2});
    struct plan_case *c = plan_of(p);
    judge("two writes", c, true);
    c->plan.buffers[1].offset = 512;
    judge("two writes at one place", c, false);
    refused(c, "uses buffers b0 and b1 at once");
    done(c, p);

    p = program(2, false, 2, 1);
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    reduce(p, "sum", 0, 0, 0);
    c = plan_of(p);
    judge("in place", c, true);
    c->plan.ops[0].algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL;
    judge("in place, pulled", c, false);
    refused(c, "cannot be in place in buffer b0: with one_shot_pull");
    c->plan.ops[0].algorithm = SYMM_ALGORITHM_TWO_SHOT_INPLACE;
    judge("in place, two shots", c, true);
    done(c, p);

    p = program(2, false, 2, 1);
    put(p, "turn", 0, 0, 0);
    c = plan_of(p);
    judge("put onto its source", c, false);
    done(c, p);
}

/* ---- What does not fit ----------------------------------------------------------- */

static void test_fit(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);

    (void)state;
    plan_case_certify(c);
    assert_true(report_of(c).safe);

    c->plan.program_hash ^= 1;
    refused(c, "the plan is of a program with hash");
    c->plan.program_hash ^= 1;
    c->plan.world = 3;
    refused(c, "for 3 ranks, the program for 2");
    c->plan.world = 2;
    c->plan.buffer_count = 1;
    refused(c, "places 1 buffers");
    c->plan.buffer_count = 2;
    c->plan.buffers[1].offset = 100;
    refused(c, "not at a multiple of 256");
    c->plan.buffers[1].offset = (size_t)0 - 256;
    refused(c, "not at a multiple of 256 inside the arena");
    c->plan.buffers[1].offset = 2048;
    refused(c, "inside the arena");
    c->plan.buffers[1].offset = 0;
    c->plan.buffers[1].bytes = 700;
    refused(c, "has 700 bytes");
    c->plan.buffers[1].bytes = 768;
    c->plan.buffers[1].alloc_id = 7;
    refused(c, "alloc_id 7");
    c->plan.buffers[1].alloc_id = 2;
    c->plan.buffers[1].name = "other";
    refused(c, "buffer 1 of the plan is other");
    c->plan.buffers[1].name = "b1";
    c->plan.ops[1].site = "third";
    refused(c, "site second, is not in its place");
    c->plan.ops[1].site = "second";
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_PUT;
    refused(c, "put with an exit barrier is not for such an op");
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_COPY_ENGINE;
    refused(c, "`out` is private");
    c->plan.ops[1].algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL;
    c->plan.ops[1].channel = -1;
    refused(c, "on channel -1");
    c->plan.ops[1].channel = 3;
    c->plan.op_count = 1;
    refused(c, "site second, is not in its place");
    c->plan.op_count = 2;
    assert_true(report_of(c).safe);
    done(c, p);
}

static void test_hash(void **state)
{
    symm_program *p;
    struct plan_case *c = two_in_one_place(&p, true);
    symm_plan_report report = {.size = sizeof(report)};
    symm_plan *plan;

    (void)state;
    assert_int_equal(symm_plan_make(p, NULL, &plan), SYMM_OK);
    plan->has_plan_hash = true;
    assert_int_equal(symm_plan_hash(plan, &plan->plan_hash), SYMM_OK);
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_true(report.safe);
    plan->plan_hash ^= 1;
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_false(report.safe);
    assert_non_null(strstr(report.first, "plan_hash is"));
    plan->has_plan_hash = false;
    assert_int_equal(symm_plan_check(p, plan, &report), SYMM_OK);
    assert_true(report.safe);
    symm_plan_destroy(plan);
    done(c, p);
}

static void test_channels(void **state)
{
    symm_program *p = program(2, false, 2, 2);

    (void)state;
    reduce(p, "a", 0, 0, -1);
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                             .stream = 1,
                             .site = "b",
                             .in = 1,
                             .out = -1});
    struct plan_case *c = plan_of(p);
    judge("channels of their own", c, true);
    c->plan.ops[1].channel = 0;
    refused(c, "on channel 0 in different streams");
    done(c, p);
}

static void test_arguments(void **state)
{
    symm_program *p = program(2, false, 1, 1);
    symm_plan_report report = {.size = sizeof(report)}, wrong = {.size = 3};

    (void)state;
    local(p, SYMM_PROGRAM_WRITE, 0, 0);
    struct plan_case *c = plan_of(p);
    assert_int_equal(symm_plan_check(NULL, &c->plan, &report), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, NULL, &report), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, &wrong), SYMM_ERR_INVALID);
    assert_int_equal(symm_plan_check(p, &c->plan, &report), SYMM_OK);
    assert_true(report.safe);
    local(p, SYMM_PROGRAM_READ, 0, 0);
    assert_int_equal(symm_plan_check(p, &c->plan, &report), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "symm_program_finish"));
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
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_certificate),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_lifetimes),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_one_op),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
