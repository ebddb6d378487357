/* SPDX-License-Identifier: MIT */
/*
 * test_host_file_kinds.c - a pipe, a device or a link where a variable names a file: symm_init
 * refuses it at once, and what a link leads to stays as it is. ctest: no-threads
 */
#include "misuse.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symm/plan.h"

static char folder[] = "/tmp/symm-kinds-XXXXXX";

static symm_status start(const char *variable, const char *value)
{
    const symm_config config = {.size = sizeof(config),
                                .backend = "host",
                                .world_size = 1,
                                .heap_bytes = (size_t)1 << 30};
    symm_ctx *ctx;
    symm_status status;

    setenv(variable, value, 1);
    status = symm_init(&config, &ctx);
    unsetenv(variable);
    if (status == SYMM_OK)
        symm_finalize(ctx);
    return status;
}

/* SYMM_ERR_INVALID names the variable and the file. Nothing waits: else the alarm ends the test. */
static void refuse(const char *variable, const char *value)
{
    INVALID(variable, start(variable, value));
    assert_non_null(strstr(symm_last_error(), value));
}

static void test_inputs(void **state)
{
    static const char *const variables[] = {"SYMM_PLAN", "SYMM_COSTS"};
    symm_plan *plan;

    (void)state;
    for (int i = 0; i < 2; i++) {
        refuse(variables[i], "pipe");
        refuse(variables[i], "to_pipe");
        refuse(variables[i], "/dev/null");
        refuse(variables[i], "/dev/zero"); /* has no end */
        BAD(SYMM_ERR_SYSTEM, variables[i], start(variables[i], "."));
        BAD(SYMM_ERR_SYSTEM, variables[i], start(variables[i], "none"));
    }
    INVALID("/dev/zero", symm_plan_read_run("/dev/zero", &plan));
    INVALID("/dev/zero", symm_plan_read("/dev/zero", &plan));
}

static void test_outputs(void **state)
{
    static const char *const draft = "metrics.0.tmp"; /* of rank 0 */
    struct stat is;

    (void)state;
    refuse("SYMM_TRACE", "pipe.json");
    refuse("SYMM_TRACE", "link.json");
    refuse("SYMM_TRACE", "to_none.json");
    assert_int_equal(stat("precious", &is), 0);
    assert_int_equal(is.st_size, 3);
    assert_int_not_equal(access("none", F_OK), 0);
    assert_int_equal(mkfifo(draft, 0600), 0);
    GOOD(start("SYMM_METRICS_FILE", "metrics"));
    assert_int_equal(stat("metrics", &is), 0);
    assert_true(S_ISREG(is.st_mode) && is.st_size > 0);
    assert_int_equal(symlink("precious", draft), 0);
    GOOD(start("SYMM_METRICS_FILE", "metrics"));
    assert_int_equal(stat("precious", &is), 0);
    assert_int_equal(is.st_size, 3);
    GOOD(start("SYMM_TRACE", "trace.json"));
    assert_int_equal(stat("trace.json", &is), 0);
    assert_true(is.st_size > 0);
}

static int enter(void **state)
{
    FILE *file;

    (void)state;
    (void)alarm(60);
    if (!mkdtemp(folder) || chdir(folder) != 0 || mkfifo("pipe", 0600) != 0 ||
        mkfifo("pipe.json", 0600) != 0 || symlink("pipe", "to_pipe") != 0 ||
        symlink("precious", "link.json") != 0 || symlink("none", "to_none.json") != 0)
        return 1;
    file = fopen("precious", "w");
    if (!file)
        return 1;
    fputs("abc", file);
    return fclose(file);
}

static int leave(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return chdir("/") == 0 ? system(command) : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_inputs),
                                       cmocka_unit_test(test_outputs),
                                       cmocka_unit_test(test_complaints)};

    symm_log_sink(quiet, NULL);
    return cmocka_run_group_tests(tests, enter, leave);
}
