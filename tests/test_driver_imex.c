/* SPDX-License-Identifier: MIT */
/*
 * test_driver_imex.c - what is said of the channels of IMEX in a folder: none, none that may be
 * opened, one that may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/imex.h"
#include "harness.h"

static char folder[64];

static const char *path(const char *name)
{
    static char text[128];

    snprintf(text, sizeof(text), "%s/%s", folder, name);
    return text;
}

static void expect(const char *where, const char *wanted)
{
    char text[300];
    const char *said = symm__imex_missing(where, text, sizeof(text));

    assert_non_null(said);
    if (!strstr(said, wanted))
        fail_msg("'%s' is not in: %s", wanted, said);
    assert_true(strlen(said) < sizeof(text) - 1);
}

static void test_channels(void **state)
{
    char text[300];
    FILE *file;

    (void)state;
    expect("/nowhere/at/all", "there is no IMEX channel in /nowhere/at/all: make one");
    expect(folder, "nvidia-imex on all hosts");
    assert_int_equal(symlink("nothing", path("other")), 0); /* is none */
    expect(folder, "there is no IMEX channel");
    assert_int_equal(symlink("nothing", path("channel7")), 0);
    expect(folder, "may not open the IMEX channel");
    expect(folder, "channel7");
    file = fopen(path("channel0"), "w");
    assert_non_null(file);
    fclose(file);
    assert_null(symm__imex_missing(folder, text, sizeof(text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_channels)};
    int failed;

    harness_directory(folder, sizeof(folder));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(folder);
    return failed;
}
