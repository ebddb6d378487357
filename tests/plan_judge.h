/* SPDX-License-Identifier: MIT */
/*
 * plan_judge.h - programs of a few ops, and the verdicts of checker and search on their
 * plans.
 *
 * judge() compares both with the expected verdict.
 */
#ifndef SYMM_TESTS_PLAN_JUDGE_H
#define SYMM_TESTS_PLAN_JUDGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "interleave.h"
#include "plan_case.h"

static inline symm_program *program(int world, bool loop, int buffers, int streams)
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

static inline void add(symm_program *p, symm_program_op op)
{
    op.size = sizeof(op);
    if (symm_program_add_op(p, &op) != SYMM_OK)
        fail_msg("%s", symm_last_error());
}

static inline void local(symm_program *p, symm_program_kind kind, int stream,
                         int buffer)
{
    add(p, (symm_program_op){
               .kind = kind, .stream = stream, .buffers = &buffer, .buffer_count = 1});
}

static inline void reduce(symm_program *p, const char *site, int partition, int in,
                          int out)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                             .site = site,
                             .partition = partition,
                             .in = in,
                             .out = out});
}

static inline void put(symm_program *p, const char *site, int stream, int src, int dst)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_PUT,
                             .stream = stream,
                             .site = site,
                             .in = src,
                             .out = dst,
                             .shift = 1});
}

static inline void wait_for(symm_program *p, const char *site, int stream)
{
    add(p,
        (symm_program_op){.kind = SYMM_PROGRAM_WAIT, .stream = stream, .site = site});
}

static inline void depend(symm_program *p, int stream, int on)
{
    add(p, (symm_program_op){.kind = SYMM_PROGRAM_DEPEND, .stream = stream, .on = on});
}

static inline struct plan_case *plan_of(symm_program *p)
{
    assert_int_equal(symm_program_finish(p), SYMM_OK);
    return plan_case_dedicated(p);
}

static inline symm_plan_report report_of(const struct plan_case *c)
{
    symm_plan_report report = {.size = sizeof(report)};

    if (symm_plan_check(c->program, &c->plan, &report) != SYMM_OK)
        fail_msg("%s", symm_last_error());
    return report;
}

/* Checker and search must both give the wanted verdict. */
static inline void judge(const char *name, struct plan_case *c, bool wanted)
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

static inline void refused(struct plan_case *c, const char *words)
{
    const symm_plan_report report = report_of(c);

    assert_false(report.safe);
    assert_int_equal(report.proved, 0);
    if (!strstr(report.first, words))
        fail_msg("wanted \"%s\" in \"%s\"", words, report.first);
}

static inline void done(struct plan_case *c, symm_program *p)
{
    plan_case_free(c);
    symm_program_destroy(p);
}

#endif
