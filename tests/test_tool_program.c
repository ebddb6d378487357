/* SPDX-License-Identifier: MIT */
/*
 * test_tool_program.c - malformed programs: `symm-perf replay` refuses them with exit
 * status 2 and one sentence with the file, the line or the JSON path, the value found and
 * the values allowed, and never starts a rank. Unusual but valid programs are run.
 * test_plan_program.c tests the reader's refusals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD "{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 2, "
#define BUFFERS                                                                        \
    "\"buffers\": [{\"name\": \"a\", \"dtype\": \"float32\", \"shape\": [6]}, "        \
    "{\"name\": \"b\", \"dtype\": \"float32\", \"shape\": [3]}, "                      \
    "{\"name\": \"c\", \"dtype\": \"int8\", \"shape\": [64]}, "                        \
    "{\"name\": \"r\", \"bytes\": 9}], "
#define OPS(ops)       HEAD BUFFERS "\"ops\": [" ops "]}"
#define BUFFER(buffer) HEAD "\"buffers\": [" buffer "], \"ops\": []}"
#define GROUPS(partitions)                                                             \
    HEAD "\"groups\": " partitions ", \"buffers\": [], \"ops\": []}"
#define PUT                                                                            \
    "{\"op\": \"put\", \"site\": \"p\", \"src\": \"b\", \"dst\": \"a\", \"shift\": 1}"
#define WAIT         "{\"op\": \"wait\", \"site\": \"p\"}"
#define REDUCE(rest) "{\"op\": \"all_reduce\", \"site\": \"s\", \"in\": \"a\"" rest "}"

struct wrong {
    const char *text;    /* of the file */
    const char *path;    /* as the sentence names it */
    const char *found;   /* after "found " */
    const char *allowed; /* after "allowed: ", or a part of that */
};

static const struct wrong wrongs[] = {
    {"{\n\n\"format\" 1}", "line 3", "", "JSON"},
    {GROUPS("{\"g\": [[0], [2]]}"), "groups.g[1][0]", "2", "an integer from 0 to 1"},
    {OPS(REDUCE(", \"count\": 7")), "ops[0].count", "7", "an integer from 1 to 6"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"a\", \"dst\": \"a\", "
         "\"shift\": 1}"),
     "ops[0].dst", "\"a\"", "another buffer than src"},
    {OPS(PUT ", " WAIT ", " WAIT), "ops[2].site", "\"p\"", "no other op waits for"},
};

static const char *const rights[] = {
    HEAD "\"buffers\": [], \"ops\": []}",
    HEAD "\"unknown\": {}, \"buffers\": [{\"name\": \"a\", \"dtype\": \"int8\", "
         "\"shape\": []"
         ", \"colour\": 3}], \"ops\": []}",
    OPS("{\"op\": \"write\", \"buffers\": [\"a\", \"a\"], \"early_start\": "
        "true}, " REDUCE("")),
    OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"a\", \"dst\": \"a\", "
        "\"shift\": 2}, " WAIT),
    OPS(PUT ", " WAIT ", {\"op\": \"read\", \"buffers\": [\"a\", \"r\"]}"),
    OPS(REDUCE(
        ", \"out\": \"a\", \"count\": 1, \"reduce\": \"avg\"") ", "
                                                               "{\"op\": \"depend\", "
                                                               "\"on\": \"main\"}, "
                                                               "{\"op\": \"read\", "
                                                               "\"buffers\": [\"a\"]}"),
    /* One rank's block of a gather is all of it. */
    HEAD "\"groups\": {\"one\": [[0], [1]]}, " BUFFERS
         "\"ops\": [{\"op\": \"all_gather\", \"site\": \"s\", \"in\": \"a\", "
         "\"out\": \"a\", \"group\": \"one\"}]}",
    /* A stride of 0, and one that leaves gaps. */
    BUFFER("{\"name\": \"a\", \"dtype\": \"int64\", \"shape\": [5, 2], \"stride\": [0, "
           "3]}"),
    GROUPS("{\"g\": [[1], [0]], \"h\": [[1, 0]]}"),
};

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

/* Runs symm-perf replay on a program; stderr to `said`. The exit status. */
static int replay(const char *text, char *path, char *said, size_t bytes)
{
    char errors[64], command[512];
    size_t length;

    snprintf(path, 64, "/tmp/symm_program_%d.json", (int)getpid());
    snprintf(errors, sizeof errors, "/tmp/symm_program_%d.err", (int)getpid());
    write_file(path, text);
    snprintf(command, sizeof command,
             "%s/symm-perf replay %s --iterations 2 >/dev/null 2>%s </dev/null",
             SYMM_BIN_DIR, path, errors);
    int status = system(command);
    FILE *file = fopen(errors, "r");
    assert_non_null(file);
    length = fread(said, 1, bytes - 1, file);
    said[length] = 0;
    fclose(file);
    unlink(errors);
    unlink(path);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_part(size_t which, const char *said, const char *part)
{
    if (strstr(said, part))
        return;
    print_error("wrongs[%zu]: no '%s' in: %s", which, part, said);
    fail();
}

static void test_malformed(void **state)
{
    char path[64], said[2048], part[256];

    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *wrong = &wrongs[i];
        int status = replay(wrong->text, path, said, sizeof said);
        if (status != 2)
            print_error("wrongs[%zu]: exit status %d: %s", i, status, said);
        assert_int_equal(status, 2);
        snprintf(part, sizeof part, "symm-perf: %s: %s", path, wrong->path);
        expect_part(i, said, part);
        if (*wrong->found) {
            snprintf(part, sizeof part, ": found %s", wrong->found);
            expect_part(i, said, part);
        }
        snprintf(part, sizeof part, "allowed: %s", wrong->allowed);
        if (!strstr(said, part)) /* a part further on */
            expect_part(i, said, wrong->allowed);
        expect_part(i, said, "allowed: ");
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
    }
}

/* A file that is cut anywhere is refused, and nothing crashes on it. */
static void test_cut(void **state)
{
    const char *whole = OPS(PUT ", " WAIT ", " REDUCE(", \"out\": \"a\""));
    size_t length = strlen(whole);
    char path[64], said[2048], *cut = strdup(whole);

    (void)state;
    assert_non_null(cut);
    for (size_t n = 0; n < length; n += 7) {
        memcpy(cut, whole, n);
        cut[n] = 0;
        assert_int_equal(replay(cut, path, said, sizeof said), 2);
        expect_part(n, said, "line ");
    }
    free(cut);
}

static void test_well_formed(void **state)
{
    char path[64], said[2048];

    (void)state;
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        int status = replay(rights[i], path, said, sizeof said);
        if (status != 0)
            print_error("rights[%zu]: exit status %d: %s", i, status, said);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_well_formed),
    };

    if (access(SYMM_BIN_DIR "/symm-perf", X_OK)) {
        print_message("symm-perf was not built: skipped\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
