/* SPDX-License-Identifier: MIT */
/*
 * test_host_cost_tables.c - files of cost tables: damaged ones, of another machine, different between
 * ranks, for several machines; and what the build has made of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "select/cost.h"
#include "symm/plan.h"

#define TABLE(rest)                                                                    \
    "{\"format\": \"symm-costs/1\", \"barrier_us\": 1, \"algorithms\": {}" rest "}"
#define MACHINE ", \"machine\": {\"key\": \"%s\", \"also\": [\"another\"]}"
#define CURVE(us)                                                                      \
    "{\"collective\": \"all_reduce\", \"algorithm\": \"copy_in\", "                    \
    "\"data\": \"float32\", \"in_place\": true, \"ranks\": 2, "                        \
    "\"points\": [[8, 1], [4096, " us "]]}"
#define SLOWER                                                                         \
    "{\"collective\": \"all_reduce\", \"algorithm\": \"two_shot_inplace\", "           \
    "\"data\": \"float32\", \"in_place\": true, \"ranks\": 2, "                        \
    "\"points\": [[8, 5], [4096, 9]]}"

static const struct {
    const char *text, *said;
} damaged[] = {
    {"{", "line 1"},
    {"[1]", "format: found"},
    {TABLE(""), "measured: found nothing"},
    {TABLE(", \"measured\": []"), "machine: found nothing"},
    {TABLE(", \"measured\": 3"), "measured: found 3"},
    {TABLE(MACHINE ", \"measured\": []"), "measured: found nothing"},
    {TABLE(", \"machine\": {\"key\": 1}, \"measured\": []"), "machine.key: found 1"},
    {TABLE(", \"machine\": {\"key\": \"a\", \"also\": [2]}, \"measured\": []"),
     "machine.also[0]: found 2"},
    {TABLE(MACHINE ", \"measured\": [7]"), "measured[0]: found 7"},
    {TABLE(MACHINE ", \"measured\": [{\"collective\": \"put\"}]"),
     "measured[0].collective: found \"put\", allowed: all_reduce"},
    {TABLE(MACHINE ", \"measured\": [{\"collective\": \"all_gather\", "
                   "\"algorithm\": \"put\"}]"),
     "measured[0].algorithm: found \"put\""},
    {TABLE(MACHINE ", \"measured\": [{\"collective\": \"all_gather\", "
                   "\"algorithm\": \"copy_in\", \"data\": \"half\"}]"),
     "measured[0].data: found \"half\", allowed: any"},
    {TABLE(MACHINE ", \"measured\": [{\"collective\": \"all_gather\", "
                   "\"algorithm\": \"copy_in\", \"data\": \"any\", \"ranks\": 1}]"),
     "measured[0].ranks: found 1"},
    {TABLE(MACHINE ", \"measured\": [{\"collective\": \"all_gather\", "
                   "\"algorithm\": \"copy_in\", \"data\": \"any\", \"ranks\": 2, "
                   "\"points\": []}]"),
     "measured[0].points: found []"},
    {TABLE(MACHINE ", \"measured\": [" CURVE("0") "]"),
     "measured[0].points[1]: found [4096,0]"},
    {TABLE(MACHINE ", \"measured\": [" CURVE("2") ", " SLOWER ", " CURVE("3") "]"),
     "one curve of each kind; measured[0] is of this one"},
};

struct story {
    char folder[64], path[2][96];
    bool two; /* rank 1 has the other file */
    symm_status wanted;
    const char *said, *explained;
};

static void write_file(const char *path, const char *format, const char *machine)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(file, format, machine);
#pragma GCC diagnostic pop
    assert_int_equal(fclose(file), 0);
}

static int init(symm_ctx *none, void *arg)
{
    const struct story *story = arg;
    symm_config config = harness_config();
    int rank = harness_rank();
    const int64_t count = 1024, step = 1;
    symm_buffer *buffer;
    symm_ctx *ctx = NULL;
    symm_status status;

    (void)none;
    setenv("SYMM_COSTS", story->path[story->two && rank == 1], 1);
    status = symm_init(&config, &ctx);
    CHECK_STATUS(status, story->wanted);
    if (story->said)
        CHECK_ERROR(story->said);
    if (status != SYMM_OK)
        return 0;
    CHECK_OK(symm_empty_strided_p2p(symm_team_world(ctx), 1, &count, &step,
                                    SYMM_FLOAT32, 1, &buffer));
    CHECK_OK(symm_rendezvous(symm_team_world(ctx)));
    CHECK_OK(symm_all_reduce(symm_team_world(ctx), symm_buffer_ptr(buffer),
                             symm_buffer_ptr(buffer), 1024, SYMM_FLOAT32, SYMM_SUM,
                             NULL, NULL));
    if (!strstr(symm_explain(symm_team_world(ctx)), story->explained))
        return harness_fail(__FILE__, __LINE__, "explained: %s",
                            symm_explain(symm_team_world(ctx)));
    symm_finalize(ctx);
    return 0;
}

static void run(struct story *story)
{
    const struct harness h = {
        .ranks = 2, .body = init, .arg = story, .without_ctx = true};

    if (harness_run(&h))
        fail_msg("%s", story->said ? story->said : story->explained);
}

static void open_story(struct story *story)
{
    *story = (struct story){.wanted = SYMM_OK};
    harness_directory(story->folder, sizeof(story->folder));
    for (int i = 0; i < 2; i++) {
        char file[] = "/0.json";

        file[1] = (char)('0' + i);
        strcpy(story->path[i], story->folder);
        strcat(story->path[i], file);
    }
}

/* Without libjansson.so.4 no table is read. */
static void need_json(void)
{
    symm_costs *costs = NULL;

    if (symm_costs_parse("{}", 2, "text", &costs) == SYMM_ERR_UNSUPPORTED)
        skip();
}

static void test_damaged(void **state)
{
    struct story story;

    (void)state;
    need_json();
    open_story(&story);
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        char said[256];

        write_file(story.path[0], damaged[i].text, "here");
        snprintf(said, sizeof(said), "0.json: %s", damaged[i].said);
        if (strncmp(damaged[i].said, "one", 3) == 0)
            snprintf(said, sizeof(said), "%s", damaged[i].said);
        story.wanted = SYMM_ERR_INVALID;
        story.said = said;
        run(&story);
    }
    unlink(story.path[0]);
    story.wanted = SYMM_ERR_SYSTEM;
    story.said = "0.json: cannot be opened";
    run(&story);
    harness_remove(story.folder);
}

static int name_machine(symm_ctx *ctx, void *arg)
{
    symm_info info = {.size = sizeof(info)};

    CHECK_OK(symm_ctx_info(ctx, &info));
    if (info.rank == 0)
        snprintf(arg, 160, "%s", info.machine);
    return 0;
}

static void test_tables(void **state)
{
    char *machine = harness_shared(160);
    const struct harness h = {.ranks = 1, .body = name_machine, .arg = machine};
    struct story story;

    (void)state;
    need_json();
    assert_int_equal(harness_run(&h), 0);
    assert_memory_equal(machine, "host: ", 6);
    open_story(&story);
    write_file(story.path[0],
               TABLE(MACHINE ", \"measured\": [" CURVE("2") ", " SLOWER "]"), machine);
    story.explained =
        "took copy_in on the host backend: the cheapest by the cost table (2 "
        "us by the table, two_shot_inplace 9 us)";
    run(&story);
    write_file(story.path[1],
               TABLE(MACHINE ", \"measured\": [" CURVE("9.5") ", " SLOWER "]"),
               machine);
    story.two = true;
    story.wanted = SYMM_ERR_MISMATCH;
    story.said = "cost table by SYMM_COSTS";
    run(&story);
    story.path[1][0] = '\0'; /* unset: it has none */
    run(&story);
    story.two = false;
    story.wanted = SYMM_OK;
    story.said = NULL;
    write_file(story.path[0],
               TABLE(MACHINE ", \"measured\": [" CURVE("2") ", " SLOWER "]"),
               "elsewhere");
    story.explained = "took two_shot_inplace on the host backend: input and output";
    run(&story);
    harness_remove(story.folder);
    harness_shared_free(machine, 160);
}

/* "also": a table for several machines. */
static void test_also(void **state)
{
    static const char text[] = TABLE(
        ", \"machine\": {\"key\": \"a\", \"also\": [\"b\"]}, \"measured\": [" CURVE(
            "2") "]");
    symm_costs_curve curve = {.size = sizeof(curve)};
    symm_costs *costs = NULL;
    uint64_t hash = 0;

    (void)state;
    need_json();
    assert_int_equal(symm_costs_parse(text, strlen(text), "text", &costs), SYMM_OK);
    assert_string_equal(symm_costs_machines(costs)[0], "a");
    assert_string_equal(symm_costs_machines(costs)[1], "b");
    assert_null(symm_costs_machines(costs)[2]);
    assert_int_equal(symm_costs_hash(costs, &hash), SYMM_OK);
    assert_true(hash != 0);
    assert_int_equal(symm_costs_curve_at(costs, 0, &curve), SYMM_OK);
    assert_int_equal(curve.collective, SYMM_PROGRAM_ALL_REDUCE);
    assert_int_equal(curve.algorithm, SYMM_ALGORITHM_COPY_IN);
    assert_int_equal(curve.data, SYMM_COSTS_FLOAT32);
    assert_true(curve.in_place && curve.ranks == 2 && curve.count == 2);
    assert_true(curve.points[1].bytes == 4096 && curve.points[1].us == 2);
    assert_int_equal(symm_costs_curve_at(costs, 1, &curve), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm_costs_curve_at(costs, -1, &curve), SYMM_ERR_NOT_FOUND);
    curve.size = 8;
    assert_int_equal(symm_costs_curve_at(costs, 0, &curve), SYMM_ERR_INVALID);
    symm_costs_destroy(costs);
}

static const symm_costs *find_built_in(const char *machine)
{
    for (const symm_costs *const *t = symm__costs_tables; *t; t++)
        if (strcmp((*t)->machines[0], machine) == 0)
            return *t;
    fail_msg("no table is built in for %s", machine);
    return NULL;
}

/* A curve says what the file's does, to 1 in 200, with some of its points. */
static void expect_alike(const symm_costs_curve *built_in, const symm_costs_curve *read)
{
    assert_int_equal(built_in->size, sizeof(*built_in));
    assert_int_equal(built_in->collective, read->collective);
    assert_int_equal(built_in->algorithm, read->algorithm);
    assert_int_equal(built_in->data, read->data);
    assert_int_equal(built_in->in_place, read->in_place);
    assert_int_equal(built_in->ranks, read->ranks);
    assert_in_range(built_in->count, 1, read->count);
    for (int p = 0, mine = 0; p < read->count; p++) {
        const double us = read->points[p].us, bytes = read->points[p].bytes;

        assert_true(fabs(symm__cost_at(built_in, bytes) - us) <= 0.0051 * us);
        assert_true(mine < built_in->count && bytes <= built_in->points[mine].bytes);
        if (bytes == built_in->points[mine].bytes)
            assert_true(fabs(built_in->points[mine++].us - us) <= 1e-4 * us);
        assert_true(p + 1 < read->count || mine == built_in->count);
    }
}

/* What the build has made of the files in bench/costs. */
static void test_built_in(void **state)
{
    DIR *folder = opendir(SYMM_SOURCE_DIR "/bench/costs");
    int tables = 0;

    (void)state;
    need_json();
    assert_non_null(folder);
    for (struct dirent *file; (file = readdir(folder));) {
        const symm_costs *built_in;
        symm_costs *read;
        char path[512];

        if (!strstr(file->d_name, ".json"))
            continue;
        snprintf(path, sizeof(path), SYMM_SOURCE_DIR "/bench/costs/%s", file->d_name);
        assert_int_equal(symm_costs_read(path, &read), SYMM_OK);
        built_in = find_built_in(read->machines[0]);
        for (int m = 1; read->machines[m - 1]; m++)
            if (read->machines[m])
                assert_string_equal(built_in->machines[m], read->machines[m]);
            else
                assert_null(built_in->machines[m]);
        assert_true(built_in->barrier_us == read->barrier_us);
        assert_true(built_in->memory_us_per_gib == read->memory_us_per_gib);
        assert_memory_equal(built_in->lines, read->lines, sizeof(read->lines));
        assert_int_equal(built_in->curve_count, read->curve_count);
        for (int c = 0; c < read->curve_count; c++)
            expect_alike(&built_in->curves[c], &read->curves[c]);
        symm_costs_destroy(read);
        tables++;
    }
    closedir(folder);
    for (int t = 0; t <= tables; t++)
        assert_true((symm__costs_tables[t] != NULL) == (t < tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_also),
        cmocka_unit_test(test_built_in),
    };

    return cmocka_run_group_tests_name("host_cost_tables", tests, NULL, NULL);
}
