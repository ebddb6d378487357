/* SPDX-License-Identifier: MIT */
/*
 * test_tool_program.c - malformed programs: `symm-perf replay` refuses each with exit
 * status 2 and one sentence that names the file, the line or the JSON path, what was
 * found and what is allowed, and never starts a rank. Programs that only look odd are
 * run.
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
    const char *found;   /* behind "found " */
    const char *allowed; /* behind "allowed: ", or a part of that */
};

static const struct wrong wrongs[] = {
    /* Not JSON at all. */
    {"", "line ", "", "JSON"},
    {"{\"format\": ", "line 1", "", "JSON"},
    {"{\n\n\"format\" 1}", "line 3", "", "JSON"},
    {"{\"a\": 1, \"a\": 2}", "line 1", "", "JSON"},
    {"{\"world\": 99999999999999999999}", "line 1", "", "JSON"},
    {"{} {}", "line 1", "", "JSON"},
    /* The head. */
    {"[]", "$", "[]", "an object"},
    {"{}", "format", "nothing", "\"symm-program/1\""},
    {"{\"format\": \"symm-program/2\"}", "format", "\"symm-program/2\"",
     "\"symm-program/1\""},
    {"{\"format\": \"symm-program/1\"}", "name", "nothing", "a string"},
    {"{\"format\": \"symm-program/1\", \"name\": \"\"}", "name", "\"\"", "a string"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\"}", "world", "nothing",
     "an integer"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 0}", "world", "0",
     "an integer from 1"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 2.0}", "world",
     "2.0", "an integer from 1"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": \"2\"}", "world",
     "\"2\"", "an integer from 1"},
    {HEAD "\"loop\": 1}", "loop", "1", "true or false"},
    /* Streams. */
    {HEAD "\"streams\": \"main\"}", "streams", "\"main\"", "a list"},
    {HEAD "\"streams\": []}", "streams", "[]", "a list of 1"},
    {HEAD "\"streams\": [\"a\", 3]}", "streams[1]", "3", "a string"},
    {HEAD "\"streams\": [\"a\", \"a\"]}", "streams[1]", "\"a\"",
     "a name not used before"},
    /* Groups. */
    {GROUPS("[]"), "groups", "[]", "an object"},
    {GROUPS("{\"world\": [[0, 1]]}"), "groups.world", "[[0,1]]", "a name, other than"},
    {GROUPS("{\"g\": []}"), "groups.g", "[]", "lists of equal length"},
    {GROUPS("{\"g\": [[0]]}"), "groups.g", "[[0]]", "each of the 2 ranks once"},
    {GROUPS("{\"g\": [[0, 1], []]}"), "groups.g", "[[0,1],[]]",
     "lists of equal length"},
    {GROUPS("{\"g\": [[0], 1]}"), "groups.g[1]", "1", "a list of 1 ranks"},
    {GROUPS("{\"g\": [[0], [0]]}"), "groups.g[1][0]", "0",
     "a rank from 0 to 1 that is in no list yet"},
    {GROUPS("{\"g\": [[0], [2]]}"), "groups.g[1][0]", "2", "an integer from 0 to 1"},
    {GROUPS("{\"g\": [[0], [-1]]}"), "groups.g[1][0]", "-1", "an integer from 0 to 1"},
    /* Buffers. */
    {HEAD "\"ops\": []}", "buffers", "nothing", "a list of at most "},
    {BUFFER("7"), "buffers[0]", "7", "an object"},
    {BUFFER("{\"bytes\": 8}"), "buffers[0].name", "nothing", "a string"},
    {BUFFER("{\"name\": \"a\", \"bytes\": 8}, {\"name\": \"a\", \"bytes\": 8}"),
     "buffers[1].name", "\"a\"", "a name not used before"},
    {BUFFER("{\"name\": \"a\"}"), "buffers[0].dtype", "nothing", "float64 float32"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"fp8\", \"shape\": [1]}"),
     "buffers[0].dtype", "\"fp8\"", "float64 float32"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\"}"), "buffers[0].shape", "nothing",
     "a list of 0 to 16 sizes"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [0]}"),
     "buffers[0].shape[0]", "0", "an integer from 1"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": "
            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
            "1,1,1]}"),
     "buffers[0].shape", "[1,1,", "a list of 0 to 16 sizes"},
    {BUFFER(
         "{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [2], \"stride\": [1, 1]}"),
     "buffers[0].stride", "[1,1]", "a list as long as the shape, 1"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [2], \"stride\": [-1]}"),
     "buffers[0].stride[0]", "-1", "an integer from 0"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"float64\", \"shape\": [4294967296, "
            "4294967296]}"),
     "buffers[0]", "a larger extent", "a size that fits 62 bits"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [9223372036854775807], "
            "\"stride\": [2]}"),
     "buffers[0]", "a larger extent", "a size that fits 62 bits"},
    {BUFFER("{\"name\": \"a\", \"bytes\": 0}"), "buffers[0].bytes", "0",
     "an integer from 1"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int32\", \"bytes\": 6}"),
     "buffers[0].bytes", "6", "a multiple of the dtype's 4 bytes"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"bytes\": 8, \"shape\": [8]}"),
     "buffers[0].bytes", "8", "shape or bytes, not both"},
    /* Ops. */
    {HEAD "\"buffers\": []}", "ops", "nothing", "a list of at most "},
    {OPS("\"write\""), "ops[0]", "\"write\"", "an object"},
    {OPS("{}"), "ops[0].op", "nothing", "write read all_reduce"},
    {OPS("{\"op\": \"all_reduced\"}"), "ops[0].op", "\"all_reduced\"", "write read"},
    {OPS("{\"op\": \"write\", \"stream\": \"x\"}"), "ops[0].stream", "\"x\"",
     "the name of a stream"},
    {OPS("{\"op\": \"write\"}"), "ops[0].buffers", "nothing",
     "a list of names of buffers"},
    {OPS("{\"op\": \"read\", \"buffers\": []}"), "ops[0].buffers", "[]",
     "a list of names"},
    {OPS("{\"op\": \"read\", \"buffers\": [\"a\", \"x\"]}"), "ops[0].buffers[1]",
     "\"x\"", "the name of a buffer"},
    {OPS("{\"op\": \"all_reduce\", \"in\": \"a\"}"), "ops[0].site", "nothing",
     "a string"},
    {OPS(REDUCE("") ", " REDUCE("")), "ops[1].site", "\"s\"", "a name not used before"},
    {OPS("{\"op\": \"all_reduce\", \"site\": \"s\"}"), "ops[0].in", "nothing",
     "the name of a buffer"},
    {OPS(REDUCE(", \"group\": \"g\"")), "ops[0].group", "\"g\"", "the name of a group"},
    {OPS(REDUCE(", \"reduce\": \"xor\"")), "ops[0].reduce", "\"xor\"",
     "sum avg prod min max"},
    {OPS(REDUCE(", \"count\": 7")), "ops[0].count", "7", "an integer from 1 to 6"},
    {OPS(REDUCE(", \"count\": 0")), "ops[0].count", "0", "an integer from 1 to "},
    {OPS(REDUCE(", \"out\": \"x\"")), "ops[0].out", "\"x\"", "the name of a buffer"},
    {OPS(REDUCE(", \"out\": \"b\"")), "ops[0].out", "\"b\"",
     "a buffer of at least 24 bytes"},
    {OPS(REDUCE(", \"out\": \"c\"")), "ops[0].out", "\"c\"", "a buffer of float32"},
    {OPS("{\"op\": \"reduce_scatter\", \"site\": \"s\", \"in\": \"b\"}"),
     "ops[0].count", "3", "a multiple of the group's 2 ranks"},
    {OPS("{\"op\": \"all_to_all\", \"site\": \"s\", \"in\": \"a\", \"count\": 5}"),
     "ops[0].count", "5", "a multiple of the group's 2 ranks"},
    {OPS("{\"op\": \"all_gather\", \"site\": \"s\", \"in\": \"a\", \"out\": \"r\"}"),
     "ops[0].out", "\"r\"", "a buffer of at least 48 bytes"},
    {OPS("{\"op\": \"all_gather\", \"site\": \"s\", \"in\": \"a\", \"out\": \"a\", "
         "\"count\": 3}"),
     "ops[0].out", "\"a\"", "another buffer than `in` of an all_gather"},
    {OPS("{\"op\": \"broadcast\", \"site\": \"s\", \"in\": \"a\", \"root\": 2}"),
     "ops[0].root", "2", "an integer from 0 to 1"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"a\", \"dst\": \"b\", "
         "\"shift\": 1}"),
     "ops[0].dst", "\"b\"", "a buffer of at least 24 bytes"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"b\", \"dst\": \"a\"}"),
     "ops[0].shift", "nothing", "an integer"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"a\", \"dst\": \"a\", "
         "\"shift\": 1}"),
     "ops[0].dst", "\"a\"", "another buffer than src"},
    {OPS("{\"op\": \"write\", \"buffers\": [\"a\"], \"early_start\": \"yes\"}"),
     "ops[0].early_start", "\"yes\"", "true or false"},
    {OPS("{\"op\": \"wait\"}"), "ops[0].site", "nothing", "a string"},
    {OPS("{\"op\": \"wait\", \"site\": \"q\"}"), "ops[0].site", "\"q\"",
     "the site of a put"},
    {OPS(REDUCE("") ", {\"op\": \"wait\", \"site\": \"s\"}"), "ops[1].site", "\"s\"",
     "the site of a put"},
    {OPS(PUT ", " WAIT ", " WAIT), "ops[2].site", "\"p\"", "no other op waits for"},
    {OPS(WAIT ", " PUT), "ops[0]", "an op that can never run (wait)",
     "a wait whose put can come before it"},
    {OPS("{\"op\": \"depend\"}"), "ops[0].on", "nothing", "the name of a stream"},
    {OPS("{\"op\": \"depend\", \"on\": \"side\"}"), "ops[0].on", "\"side\"",
     "the name of a stream"},
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
