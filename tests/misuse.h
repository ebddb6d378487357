/* SPDX-License-Identifier: MIT */
/*
 * misuse.h - for suites of invalid calls: a refused call must return the wanted status and
 * set its own error with a given name in it; a valid call must not change the thread's
 * error. Complaints are printed, and fail test_complaints, the last test.
 */
#ifndef SYMM_TESTS_MISUSE_H
#define SYMM_TESTS_MISUSE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symm/symm.h"

#define QUIET_NAN __builtin_nan("")

/* Sets an error that no other function sets. */
static void mark(void)
{
    symm_op op;

    assert_int_equal(symm_op_parse("marker", &op), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "marker"));
}

static int complaints; /* of all tests, so that a failure does not hide the next */

static void refused(symm_status status, symm_status wanted, const char *call,
                    const char *name, int line)
{
    const char *said = symm_last_error();

    if (status == wanted && said[0] && !strstr(said, "marker") && strstr(said, name))
        return;
    printf("line %d: %s: %s: '%s', expected: %s, '%s'\n", line, call,
           symm_status_name(status), said, symm_status_name(wanted), name);
    complaints++;
}

/* The call is refused, and its error contains the name. */
#define BAD(status, name, call) (mark(), refused(call, status, #call, name, __LINE__))
#define INVALID(name, call)     BAD(SYMM_ERR_INVALID, name, call)
/* The call succeeds, and does not change the thread's error. */
#define GOOD(call)                                                                     \
    (mark(), refused((call) == SYMM_OK && strstr(symm_last_error(), "marker")          \
                         ? symm_op_parse("good", &(symm_op){0})                        \
                         : SYMM_OK,                                                    \
                     SYMM_ERR_INVALID, #call, "good", __LINE__))

static void test_complaints(void **state)
{
    (void)state;
    assert_int_equal(complaints, 0);
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg, (void)level, (void)line;
}

#endif
