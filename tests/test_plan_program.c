/* SPDX-License-Identifier: MIT */
/*
 * test_plan_program.c - programs in memory and as JSON: refusals and their errors; building
 * and reading give the same; hashes. Malformed plans and cost tables are refused likewise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm/plan.h"

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
    const char *text;
    const char *path, *found, *allowed; /* pieces of the sentence, in this order */
};

static const struct wrong wrong_programs[] = {
    {"", "line 1", "", "JSON"},
    {"{\n\n\"format\" 1}", "line 3", "", "JSON"},
    {"{\"a\": 1, \"a\": 2}", "line 1", "", "JSON"},
    {"[]", "$", "[]", "an object"},
    {"{}", "format", "nothing", "\"symm-program/1\""},
    {"{\"format\": \"symm-program/1\"}", "name", "nothing", "a string"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 257}", "world",
     "257", "an integer from 1 to 256"},
    {HEAD "\"loop\": 1}", "loop", "1", "true or false"},
    {HEAD "\"streams\": []}", "streams", "[]", "a list of 1 to 64 names"},
    {HEAD "\"streams\": [\"x\", \"x\"]}", "streams[1]", "\"x\"", "not used before"},
    {GROUPS("[]"), "groups", "[]", "an object"},
    {GROUPS("{\"world\": [[0, 1]]}"), "groups.world", "[[0,1]]", "other than"},
    {GROUPS("{\"g\": [[0]]}"), "groups.g", "[[0]]", "each of the 2 ranks once"},
    {GROUPS("{\"g\": [[0], [0]]}"), "groups.g[1][0]", "0", "in no list yet"},
    {GROUPS("{\"g\": [[0], 5]}"), "groups.g[1]", "5", "a list of 1 ranks"},
    {GROUPS("{\"g\": [[0], [7]]}"), "groups.g[1][0]", "7", "an integer from 0 to 1"},
    {HEAD "\"ops\": []}", "buffers", "nothing", "a list of at most "},
    {BUFFER("3"), "buffers[0]", "3", "an object"},
    {BUFFER("{}"), "buffers[0].name", "nothing", "a string"},
    {BUFFER("{\"name\": \"a\"}"), "buffers[0].dtype", "nothing", "float64"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\"}"), "buffers[0].shape", "nothing",
     "a list of 0 to 16 sizes"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [0]}"),
     "buffers[0].shape[0]", "0", "an integer from 1"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [2], \"stride\": [-1]}"),
     "buffers[0].stride[0]", "-1", "an integer from 0"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [4611686018427387904, "
            "4]}"),
     "buffers[0]", "a larger extent", "62 bits"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int32\", \"bytes\": 5}"),
     "buffers[0].bytes", "5", "a multiple of the dtype's 4 bytes"},
    {BUFFER("{\"name\": \"a\", \"bytes\": 5}, {\"name\": \"a\", \"bytes\": 5}"),
     "buffers[1].name", "\"a\"", "not used before"},
    {HEAD BUFFERS "\"ops\": 1}", "ops", "1", "a list of at most "},
    {OPS("{}"), "ops[0].op", "nothing", "write read all_reduce"},
    {OPS("{\"op\": \"write\"}"), "ops[0].buffers", "nothing", "a list of names"},
    {OPS("{\"op\": \"write\", \"buffers\": [\"q\"]}"), "ops[0].buffers[0]", "\"q\"",
     "the name of a buffer"},
    {OPS("{\"op\": \"read\", \"stream\": \"q\", \"buffers\": [\"a\"]}"),
     "ops[0].stream", "\"q\"", "the name of a stream"},
    {OPS("{\"op\": \"read\", \"early_start\": 1, \"buffers\": [\"a\"]}"),
     "ops[0].early_start", "1", "true or false"},
    {OPS("{\"op\": \"all_reduce\", \"in\": \"a\"}"), "ops[0].site", "nothing",
     "a string"},
    {OPS("{\"op\": \"all_reduce\", \"site\": \"s\"}"), "ops[0].in", "nothing",
     "the name of a buffer"},
    {OPS(REDUCE(", \"reduce\": \"mean\"")), "ops[0].reduce", "\"mean\"", "sum avg"},
    {OPS(REDUCE(", \"reduce\": \"bor\"")), "ops[0].reduce", "\"bor\" of float32",
     "sum avg prod min max"},
    {OPS(REDUCE(", \"count\": 7")), "ops[0].count", "7", "an integer from 1 to 6"},
    {OPS(REDUCE(", \"group\": \"g\"")), "ops[0].group", "\"g\"", "the name of a group"},
    {OPS(REDUCE(", \"out\": \"b\"")), "ops[0].out", "\"b\" of 12 bytes",
     "at least 24 bytes"},
    {OPS(REDUCE(", \"out\": \"c\"")), "ops[0].out", "\"c\" of int8", "float32"},
    {OPS(REDUCE("") ", " REDUCE("")), "ops[1].site", "\"s\"", "not used before"},
    {OPS("{\"op\": \"all_gather\", \"site\": \"s\", \"in\": \"a\", \"out\": \"a\", "
         "\"count\": 3}"),
     "ops[0].out", "\"a\"", "another buffer than `in` of an all_gather"},
    {OPS("{\"op\": \"all_to_all\", \"site\": \"s\", \"in\": \"b\"}"), "ops[0].count",
     "3", "a multiple of the group's 2 ranks"},
    {OPS("{\"op\": \"broadcast\", \"site\": \"s\", \"in\": \"b\", \"root\": 2}"),
     "ops[0].root", "2", "an integer from 0 to 1"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"a\", \"dst\": \"b\", "
         "\"shift\": 1}"),
     "ops[0].dst", "\"b\" of 12 bytes", "at least 24"},
    {OPS("{\"op\": \"put\", \"site\": \"p\", \"src\": \"b\", \"dst\": \"a\"}"),
     "ops[0].shift", "nothing", "an integer from -256 to 256"},
    {OPS(WAIT), "ops[0].site", "\"p\"", "the site of a put"},
    {OPS(PUT ", " WAIT ", " WAIT), "ops[2].site", "\"p\"", "no other op waits for"},
    {OPS(WAIT ", " PUT), "ops[0]", "an op that can never run (wait)", "come before it"},
    {OPS("{\"op\": \"depend\", \"on\": \"q\"}"), "ops[0].on", "\"q\"", "stream"},
    {"{\"format\": ", "line 1", "", "JSON"},
    {"{\"world\": 99999999999999999999}", "line 1", "", "JSON"},
    {"{} {}", "line 1", "", "JSON"},
    {"{\"format\": \"symm-program/2\"}", "format", "\"symm-program/2\"",
     "\"symm-program/1\""},
    {"{\"format\": \"symm-program/1\", \"name\": \"\"}", "name", "\"\"", "a string"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\"}", "world", "nothing",
     "an integer"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 0}", "world", "0",
     "an integer from 1"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": 2.0}", "world",
     "2.0", "an integer from 1"},
    {"{\"format\": \"symm-program/1\", \"name\": \"t\", \"world\": \"2\"}", "world",
     "\"2\"", "an integer from 1"},
    {HEAD "\"streams\": \"main\"}", "streams", "\"main\"", "a list"},
    {HEAD "\"streams\": [\"a\", 3]}", "streams[1]", "3", "a string"},
    {HEAD "\"streams\": [\"a\", \"a\"]}", "streams[1]", "\"a\"",
     "a name not used before"},
    {GROUPS("{\"g\": []}"), "groups.g", "[]", "lists of equal length"},
    {GROUPS("{\"g\": [[0, 1], []]}"), "groups.g", "[[0,1],[]]",
     "lists of equal length"},
    {GROUPS("{\"g\": [[0], 1]}"), "groups.g[1]", "1", "a list of 1 ranks"},
    {GROUPS("{\"g\": [[0], [2]]}"), "groups.g[1][0]", "2", "an integer from 0 to 1"},
    {GROUPS("{\"g\": [[0], [-1]]}"), "groups.g[1][0]", "-1", "an integer from 0 to 1"},
    {BUFFER("7"), "buffers[0]", "7", "an object"},
    {BUFFER("{\"bytes\": 8}"), "buffers[0].name", "nothing", "a string"},
    {BUFFER("{\"name\": \"a\", \"bytes\": 8}, {\"name\": \"a\", \"bytes\": 8}"),
     "buffers[1].name", "\"a\"", "a name not used before"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"fp8\", \"shape\": [1]}"),
     "buffers[0].dtype", "\"fp8\"", "float64 float32"},
    {BUFFER("{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": "
            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
            "1,1,1]}"),
     "buffers[0].shape", "[1,1,", "a list of 0 to 16 sizes"},
    {BUFFER(
         "{\"name\": \"a\", \"dtype\": \"int8\", \"shape\": [2], \"stride\": [1, 1]}"),
     "buffers[0].stride", "[1,1]", "a list as long as the shape, 1"},
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
    {HEAD "\"buffers\": []}", "ops", "nothing", "a list of at most "},
    {OPS("\"write\""), "ops[0]", "\"write\"", "an object"},
    {OPS("{\"op\": \"all_reduced\"}"), "ops[0].op", "\"all_reduced\"", "write read"},
    {OPS("{\"op\": \"write\", \"stream\": \"x\"}"), "ops[0].stream", "\"x\"",
     "the name of a stream"},
    {OPS("{\"op\": \"read\", \"buffers\": []}"), "ops[0].buffers", "[]",
     "a list of names"},
    {OPS("{\"op\": \"read\", \"buffers\": [\"a\", \"x\"]}"), "ops[0].buffers[1]",
     "\"x\"", "the name of a buffer"},
    {OPS(REDUCE(", \"reduce\": \"xor\"")), "ops[0].reduce", "\"xor\"",
     "sum avg prod min max"},
    {OPS(REDUCE(", \"count\": 0")), "ops[0].count", "0", "an integer from 1 to "},
    {OPS(REDUCE(", \"out\": \"x\"")), "ops[0].out", "\"x\"", "the name of a buffer"},
    {OPS("{\"op\": \"reduce_scatter\", \"site\": \"s\", \"in\": \"b\"}"),
     "ops[0].count", "3", "a multiple of the group's 2 ranks"},
    {OPS("{\"op\": \"all_to_all\", \"site\": \"s\", \"in\": \"a\", \"count\": 5}"),
     "ops[0].count", "5", "a multiple of the group's 2 ranks"},
    {OPS("{\"op\": \"all_gather\", \"site\": \"s\", \"in\": \"a\", \"out\": \"r\"}"),
     "ops[0].out", "\"r\"", "a buffer of at least 48 bytes"},
    {OPS("{\"op\": \"broadcast\", \"site\": \"s\", \"in\": \"a\", \"root\": 2}"),
     "ops[0].root", "2", "an integer from 0 to 1"},
    {OPS("{\"op\": \"write\", \"buffers\": [\"a\"], \"early_start\": \"yes\"}"),
     "ops[0].early_start", "\"yes\"", "true or false"},
    {OPS("{\"op\": \"wait\"}"), "ops[0].site", "nothing", "a string"},
    {OPS("{\"op\": \"wait\", \"site\": \"q\"}"), "ops[0].site", "\"q\"",
     "the site of a put"},
    {OPS(REDUCE("") ", {\"op\": \"wait\", \"site\": \"s\"}"), "ops[1].site", "\"s\"",
     "the site of a put"},
    {OPS("{\"op\": \"depend\"}"), "ops[0].on", "nothing", "the name of a stream"},
    {OPS("{\"op\": \"depend\", \"on\": \"side\"}"), "ops[0].on", "\"side\"",
     "the name of a stream"},
};

#define PLAN(rest)                                                                     \
    "{\"format\": \"symm-plan/2\", \"program\": \"t\", \"world\": 2, "                 \
    "\"program_hash\": \"0123456789abcdef\", \"arena_bytes\": 256, "                   \
    "\"lower_bound_bytes\": 256, \"dedicated_bytes\": 256, " rest "}"
#define PLAN_BUFFER                                                                    \
    "{\"name\": \"a\", \"alloc_id\": 1, \"offset\": 0, \"bytes\": 4, "                 \
    "\"turn\": 0, \"after\": []}"

static const struct wrong wrong_plans[] = {
    {"{", "line 1", "", "JSON"},
    {"[]", "$", "[]", "an object"},
    {"{\"format\": 1}", "format", "1", "\"symm-plan/2\""},
    {"{\"format\": \"symm-plan/2\", \"program\": \"t\", \"program_hash\": \"12\"}",
     "program_hash", "\"12\"", "16 lower-case"},
    {PLAN("\"plan_hash\": 3"), "plan_hash", "3", "16 lower-case"},
    {PLAN("\"ops\": []"), "buffers", "nothing", "a list"},
    {PLAN("\"buffers\": [1]"), "buffers[0]", "1", "an object"},
    {PLAN("\"buffers\": [{\"name\": \"a\", \"alloc_id\": 0}]"), "buffers[0].alloc_id",
     "0", "an integer from 1"},
    {PLAN("\"buffers\": [{\"name\": \"a\", \"alloc_id\": 1, \"offset\": -1}]"),
     "buffers[0].offset", "-1", "an integer from 0"},
    {PLAN("\"buffers\": [" PLAN_BUFFER "], \"ops\": [{\"site\": \"s\", "
          "\"algorithm\": \"magic\"}]"),
     "ops[0].algorithm", "\"magic\"", "ll_push"},
    {PLAN("\"buffers\": [], \"ops\": [{\"site\": \"s\", \"algorithm\": \"ll_push\", "
          "\"channel\": 0, \"entry_barrier\": 1}]"),
     "ops[0].entry_barrier", "1", "true or false"},
    {"{\"format\": \"symm-plan/1\"}", "format", "\"symm-plan/1\"", "make it again"},
    {PLAN("\"buffers\": [], \"ops\": []"), "chains", "nothing", "a list"},
    {PLAN("\"buffers\": [], \"ops\": [], \"chains\": []"), "antichain", "nothing",
     "a list of indices"},
    {PLAN("\"buffers\": [" PLAN_BUFFER "], \"ops\": [], \"chains\": [], "
          "\"antichain\": [1]"),
     "antichain", "1", "indices of the plan's buffers"},
    {PLAN("\"buffers\": [], \"ops\": [], \"chains\": [], \"antichain\": []"),
     "certificate", "nothing", "a list"},
    {PLAN("\"buffers\": [" PLAN_BUFFER "], \"ops\": [], \"chains\": [], "
          "\"antichain\": [], \"certificate\": [{\"before\": 1}]"),
     "certificate[0].before", "1", "an integer from 0 to 0"},
    {PLAN("\"buffers\": [" PLAN_BUFFER "], \"ops\": [], \"chains\": [], "
          "\"antichain\": [], \"certificate\": [{\"before\": 0, \"after\": 0, "
          "\"witness\": [[0, 1]]}]"),
     "certificate[0].witness", "[[0,1]]", "at most one for a chain"},
};

static const struct wrong wrong_costs[] = {
    {"{}", "format", "nothing", "\"symm-costs/1\""},
    {"{\"format\": \"symm-costs/1\"}", "barrier_us", "nothing", "a number, 0 or more"},
    {"{\"format\": \"symm-costs/1\", \"barrier_us\": -1}", "barrier_us", "-1",
     "a number, 0 or more"},
    {"{\"format\": \"symm-costs/1\", \"barrier_us\": 1}", "algorithms", "nothing",
     "an object"},
    {"{\"format\": \"symm-costs/1\", \"barrier_us\": 1, \"algorithms\": {\"ll_push\": "
     "{\"latency_us\": 1, \"bytes_per_us\": 0}}}",
     "algorithms.ll_push.bytes_per_us", "0", "a number above 0"},
};

static void expect(const struct wrong *wrong, symm_status status)
{
    const char *said = symm_last_error(), *at;
    char found[120];

    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    snprintf(found, sizeof(found), ": found %s", wrong->found);
    at = strstr(said, "input: ");
    at = at ? strstr(at, wrong->path) : NULL;
    if (at && *wrong->found)
        at = strstr(at, found);
    at = at ? strstr(at, "allowed: ") : NULL;
    at = at ? strstr(at, wrong->allowed) : NULL;
    if (status != SYMM_ERR_INVALID || !at)
        fail_msg("%s: status %d, said: %s", wrong->text, (int)status, said);
}

static void test_wrong_programs(void **state)
{
    symm_program *program = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong_programs) / sizeof(wrong_programs[0]); i++) {
        const struct wrong *wrong = &wrong_programs[i];
        expect(wrong,
               symm_program_parse(wrong->text, strlen(wrong->text), "input", &program));
        assert_null(program);
    }
}

static void test_wrong_plans(void **state)
{
    symm_plan *plan = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong_plans) / sizeof(wrong_plans[0]); i++) {
        const struct wrong *wrong = &wrong_plans[i];
        expect(wrong,
               symm_plan_parse(wrong->text, strlen(wrong->text), "input", &plan));
        assert_null(plan);
    }
}

static void test_wrong_costs(void **state)
{
    symm_costs *costs = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong_costs) / sizeof(wrong_costs[0]); i++) {
        const struct wrong *wrong = &wrong_costs[i];
        expect(wrong,
               symm_costs_parse(wrong->text, strlen(wrong->text), "input", &costs));
        assert_null(costs);
    }
}

/* Every dtype with every reduction, by their names. */
static void test_reductions(void **state)
{
    (void)state;
    for (int d = 0; symm_dtype_name((symm_dtype)d); d++)
        for (int o = 0; symm_op_name((symm_op)o); o++) {
            const char *dtype = symm_dtype_name((symm_dtype)d);
            const bool fine = o <= SYMM_MAX || strstr(dtype, "int");
            symm_program *program = NULL;
            symm_status status;
            char text[600];

            snprintf(
                text, sizeof(text),
                HEAD
                "\"buffers\": [{\"name\": \"a\", \"dtype\": \"%s\", \"shape\": "
                "[6]}], \"ops\": [{\"op\": \"all_reduce\", \"site\": \"s\", \"in\": "
                "\"a\", \"reduce\": \"%s\"}]}",
                dtype, symm_op_name((symm_op)o));
            status = symm_program_parse(text, strlen(text), "input", &program);
            if (status == SYMM_ERR_UNSUPPORTED)
                skip();
            assert_int_equal(status, fine ? SYMM_OK : SYMM_ERR_INVALID);
            if (fine) {
                assert_int_equal(program->ops[0].dtype, d);
                assert_int_equal(program->ops[0].reduce, o);
            }
            symm_program_destroy(program);
        }
}

static void test_missing_file(void **state)
{
    symm_program *program = NULL;
    symm_plan *plan = NULL;
    symm_status status = symm_program_read("/nowhere/p.json", &program);

    (void)state;
    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(status, SYMM_ERR_SYSTEM);
    assert_non_null(strstr(symm_last_error(), "/nowhere/p.json"));
    assert_int_equal(symm_plan_read("/", &plan), SYMM_ERR_SYSTEM);
    assert_null(plan);
}

/* ---- Building ------------------------------------------------------------------------ */

static symm_program *build(void)
{
    static const int ranks[] = {0, 2, 1, 3};
    static const int64_t shape[] = {2, 3};
    const int written[] = {0, 1};
    symm_program *program;
    int stream, partition, buffer;
    symm_program_op op = {.size = sizeof(op)};

    assert_int_equal(symm_program_create("t", 4, true, &program), SYMM_OK);
    assert_int_equal(symm_program_add_stream(program, "main", &stream), SYMM_OK);
    assert_int_equal(symm_program_add_partition(program, "g", 2, 2, ranks, &partition),
                     SYMM_OK);
    assert_int_equal(
        symm_program_add_buffer(program, "a", SYMM_BFLOAT16, 2, shape, NULL, &buffer),
        SYMM_OK);
    assert_int_equal(symm_program_add_bytes(program, "b", 500, &buffer), SYMM_OK);
    op.kind = SYMM_PROGRAM_WRITE;
    op.buffers = written;
    op.buffer_count = 2;
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    op = (symm_program_op){.size = sizeof(op),
                           .kind = SYMM_PROGRAM_ALL_REDUCE,
                           .site = "s",
                           .partition = partition,
                           .out = -1};
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    op = (symm_program_op){.size = sizeof(op),
                           .kind = SYMM_PROGRAM_PUT,
                           .site = "p",
                           .out = 1,
                           .shift = -1};
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    op = (symm_program_op){.size = sizeof(op), .kind = SYMM_PROGRAM_WAIT, .site = "p"};
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
    assert_int_equal(symm_program_finish(program), SYMM_OK);
    return program;
}

/* The document that says what build() builds, every default written out. */
static const char built_text[] =
    "{\"world\": 4, \"format\": \"symm-program/1\", \"name\": \"t\", \"loop\": true, "
    "\"streams\": [\"main\"], \"groups\": {\"g\": [[0, 2], [1, 3]]}, \"buffers\": "
    "[{\"name\": \"a\", \"dtype\": \"bfloat16\", \"shape\": [2, 3], \"stride\": [3, "
    "1]}, {\"name\": \"b\", \"bytes\": 500}], \"ops\": [{\"op\": \"write\", "
    "\"early_start\": false, \"stream\": \"main\", \"buffers\": [\"a\", \"b\"]}, "
    "{\"op\": \"all_reduce\", \"early_start\": false, \"stream\": \"main\", \"site\": "
    "\"s\", \"group\": \"g\", \"in\": \"a\", \"count\": 6, \"reduce\": \"sum\"}, "
    "{\"op\": \"put\", \"early_start\": false, \"stream\": \"main\", \"site\": \"p\", "
    "\"group\": \"world\", \"src\": \"a\", \"dst\": \"b\", \"shift\": 3}, {\"op\": "
    "\"wait\", \"early_start\": false, \"stream\": \"main\", \"site\": \"p\"}]}";

static void test_build(void **state)
{
    symm_program *program = build();

    (void)state;
    assert_int_equal(program->op_count, 4);
    assert_int_equal(program->buffers[0].bytes, 12);
    assert_int_equal(program->ops[1].count, 6);
    assert_int_equal(program->ops[2].shift, 3);
    assert_int_equal(program->ops[3].put, 2);
    assert_int_equal(program->ops[3].partition, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(program->order[i], i);
    assert_int_equal(program->buffers[1].ndim, 1);
    assert_int_equal(program->buffers[1].shape[0], 500);
    assert_int_equal(program->buffers[1].stride[0], 1);
    assert_int_equal(symm_program_partition_find(&program->partitions[1], 2), 1);
    assert_int_equal(symm_program_partition_find(&program->partitions[1], 1), 2);
    assert_int_equal(symm_program_partition_find(&program->partitions[1], 4), -1);
    assert_int_equal(symm_program_partition_find(NULL, 0), -1);
    symm_program_destroy(program);
    symm_program_destroy(NULL);
}

/* ---- What a job can run -------------------------------------------------------------- */

static void add(symm_program *program, symm_program_op op)
{
    op.size = sizeof(op);
    assert_int_equal(symm_program_add_op(program, &op), SYMM_OK);
}

/* Three buffers, and `streams` streams named s0, s1, ... */
static symm_program *begin(int streams)
{
    symm_program *program;
    char name[] = "s0";
    int index;

    assert_int_equal(symm_program_create("t", 2, true, &program), SYMM_OK);
    for (; name[1] < '0' + streams; name[1]++)
        assert_int_equal(symm_program_add_stream(program, name, &index), SYMM_OK);
    for (name[0] = 'a', name[1] = '\0'; name[0] <= 'c'; name[0]++)
        assert_int_equal(symm_program_add_bytes(program, name, 64, &index), SYMM_OK);
    return program;
}

/* Destroys the program. path "": a job can run it; else pieces of the sentence. */
static void expect_run(symm_program *program, const char *path, const char *found,
                       const char *allowed)
{
    symm_status status;

    assert_int_equal(symm_program_finish(program), SYMM_OK);
    status = symm_program_check_run(program);
    assert_int_equal(status, *path ? SYMM_ERR_INVALID : SYMM_OK);
    if (*path) {
        assert_non_null(strstr(symm_last_error(), path));
        assert_non_null(strstr(symm_last_error(), found));
        assert_non_null(strstr(symm_last_error(), allowed));
    }
    symm_program_destroy(program);
}

static void test_run_streams(void **state)
{
    (void)state;
    for (int streams = 8; streams <= 9; streams++) {
        symm_program *program = begin(streams);
        for (int s = 0; s < streams; s++) {
            char site[] = {(char)('a' + s), '\0'};
            add(program, (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE,
                                           .site = site,
                                           .stream = s,
                                           .out = -1});
        }
        expect_run(program, streams == 8 ? "" : ": groups.world: ",
                   "found 8 streams beside the first", "up to 7");
    }
}

/* 257 puts, of which the last one has the first one's signal, and waits for these two. */
static symm_program *puts_with_waits(const char *first_wait, const char *second_wait,
                                     int stream)
{
    symm_program *program = begin(2);
    char site[16];

    for (int i = 0; i < 257; i++) {
        snprintf(site, sizeof(site), "p%d", i);
        add(program, (symm_program_op){.kind = SYMM_PROGRAM_PUT,
                                       .site = site,
                                       .stream = i == 256 ? stream : 0,
                                       .out = 1,
                                       .shift = 1});
        assert_int_equal(program->ops[i].signal, i % 256);
    }
    add(program, (symm_program_op){.kind = SYMM_PROGRAM_WAIT, .site = first_wait});
    add(program, (symm_program_op){.kind = SYMM_PROGRAM_WAIT, .site = second_wait});
    return program;
}

static void test_run_signals(void **state)
{
    static const char found[] = "found put p256 with the signal of put p0";
    symm_program *program = puts_with_waits("p0", "p256", 0);

    (void)state;
    assert_int_equal(symm_program_finish(program), SYMM_OK);
    assert_int_equal(program->ops[258].signal, 0);
    expect_run(program, "", "", "");
    expect_run(puts_with_waits("p256", "p0", 0), ": ops[256]: ", found, "256 puts");
    expect_run(puts_with_waits("p0", "p256", 1), ": ops[256]: ", found, "256 puts");
    expect_run(puts_with_waits("p0", "p1", 0), ": ops[256]: ", found, "256 puts");
}

static void test_run_own_source(void **state)
{
    symm_program_op put = {.kind = SYMM_PROGRAM_PUT, .site = "p", .shift = 1};
    symm_program *program = begin(1);

    (void)state;
    add(program, put);
    expect_run(program, ": ops[0].dst: ", "found \"a\"", "another buffer than src");
    program = begin(1);
    put.shift = 2; /* of two ranks: to itself */
    add(program, put);
    expect_run(program, "", "", "");
}

static void test_build_hash(void **state)
{
    symm_program *built = build(), *read = NULL;
    uint64_t a, b;
    symm_status status =
        symm_program_parse(built_text, strlen(built_text), "input", &read);

    (void)state;
    assert_int_equal(symm_program_hash(built, &a), SYMM_OK);
    if (status == SYMM_OK) {
        assert_int_equal(symm_program_hash(read, &b), SYMM_OK);
        assert_int_equal(a, b);
    } else {
        assert_int_equal(status, SYMM_ERR_UNSUPPORTED);
    }
    symm_program_destroy(built);
    symm_program_destroy(read);
}

/* FNV-1a 64 of the document with keys sorted and no white space, computed elsewhere. */
static void test_hash_is_of_canonical_json(void **state)
{
    static const char text[] = "{ \"world\": 1, \"ops\": [],\n \"name\": \"n\", "
                               "\"format\": \"symm-program/1\", \"buffers\": [] }";
    static const char canonical[] = "{\"buffers\":[],\"format\":\"symm-program/1\","
                                    "\"name\":\"n\",\"ops\":[],\"world\":1}";
    uint64_t expected = 0xcbf29ce484222325ULL, found;
    symm_program *program;
    symm_status status = symm_program_parse(text, strlen(text), "input", &program);

    (void)state;
    if (status == SYMM_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(status, SYMM_OK);
    for (const char *c = canonical; *c; c++)
        expected = (expected ^ (unsigned char)*c) * 0x100000001b3ULL;
    assert_int_equal(symm_program_hash(program, &found), SYMM_OK);
    assert_int_equal(found, expected);
    symm_program_destroy(program);
}

static void test_builder_refuses(void **state)
{
    static const int twice[] = {0, 1, 1, 3};
    static const int64_t negative[] = {-1};
    symm_program *program = build(), *none = NULL;
    symm_program_op op = {.size = sizeof(op), .kind = SYMM_PROGRAM_ALL_REDUCE};
    int index;

    (void)state;
    assert_int_equal(symm_program_create("", 2, false, &none), SYMM_ERR_INVALID);
    assert_int_equal(symm_program_create("x", 0, false, &none), SYMM_ERR_INVALID);
    assert_null(none);
    assert_int_equal(symm_program_add_partition(program, "h", 2, 2, twice, &index),
                     SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "groups.h[1][0]: found 1"));
    assert_int_equal(symm_program_add_partition(program, "g", 2, 2, twice, &index),
                     SYMM_ERR_INVALID);
    assert_int_equal(
        symm_program_add_buffer(program, "c", SYMM_INT8, 1, negative, NULL, &index),
        SYMM_ERR_INVALID);
    assert_int_equal(symm_program_add_bytes(program, "a", 1, &index), SYMM_ERR_INVALID);
    op.site = "s2";
    op.in = 9;
    assert_int_equal(symm_program_add_op(program, &op), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "ops[4].in: found 9"));
    op.size = 3;
    assert_int_equal(symm_program_add_op(program, &op), SYMM_ERR_INVALID);
    assert_int_equal(program->op_count, 4);
    assert_int_equal(program->partition_count, 2);
    assert_int_equal(program->buffer_count, 2);
    assert_int_equal(symm_program_finish(program), SYMM_OK);
    symm_program_destroy(program);
}

/* What cannot be planned is refused as it is added, not after an hour. */
static void test_too_many_buffers(void **state)
{
    symm_program *program;
    char name[16];
    int buffer;

    (void)state;
    assert_int_equal(symm_program_create("many", 1, false, &program), SYMM_OK);
    for (int i = 0; i < 500000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(symm_program_add_bytes(program, name, 1, &buffer), SYMM_OK);
    }
    assert_int_equal(symm_program_add_bytes(program, "more", 1, &buffer),
                     SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "allowed: 500000 buffers"));
    symm_program_destroy(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_programs),
        cmocka_unit_test(test_wrong_plans),
        cmocka_unit_test(test_wrong_costs),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_run_streams),
        cmocka_unit_test(test_run_signals),
        cmocka_unit_test(test_run_own_source),
        cmocka_unit_test(test_build_hash),
        cmocka_unit_test(test_hash_is_of_canonical_json),
        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_too_many_buffers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
