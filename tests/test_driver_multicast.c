/* SPDX-License-Identifier: MIT */
/*
 * test_driver_multicast.c - multicast memory of teams, over the fake driver.
 * ctest: cost 12
 * ctest: load 3
 *
 * Whether it is made, of which memory, and used. All ranks have it or none, whatever fails: a
 * rank that cannot or must not use it, a step that fails, a fabric that loses data. Each time
 * the results are right, no object stays alive in the driver, and one warning gives the
 * reason. (The fake switch adds in the order of the devices, here that of the ranks; real
 * switches promise no order.) Failing calls: all calls of the opening with
 * SYMM_TEST_STRICT=1, else a part.
 */
#include "multicast_stage.h"

#include "driver.h"
#include "reference.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/device.h"

#define RESULT  999 /* CUDA_ERROR_UNKNOWN */
#define WARNING 1   /* level of a log line */

/* One job, in a process of its own. */
struct job {
    struct reported *reported;
    int ranks;
    enum harness_mode mode;
    harness_body body;
    const char *rank_1; /* NAME=VALUE for rank 1 alone; NULL: none */
    int armed;          /* rank whose driver call k fails */
    uint64_t k;
    bool forever;
    bool watched; /* the body begins and ends its context and looks for leaks itself */
};

/* ---- All collectives that the switch does ---------------------------------------- */

static const struct {
    enum where in, out;
    bool in_place;
    size_t in_shift, out_shift;
} layouts[] = {{FIRST, FIRST, false, 0, 0},   {FIRST, FIRST, true, 0, 0},
               {SECOND, FIRST, false, 0, 0},  {FIRST, SECOND, false, 1, 3},
               {SECOND, SECOND, true, 5, 5},  {FIRST, PRIVATE, false, 0, 1},
               {PRIVATE, SECOND, false, 0, 0}};
static const symm_dtype sums[] = {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_FLOAT16};
static const size_t counts[] = {1, 7, 0, 1000, 4099};

static int reductions(struct stage *s, const char *algorithm)
{
    bool two_shot = strstr(algorithm, "two") != NULL;
    unsigned pick = 0;

    for (unsigned l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++)
        for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            const struct test_case t = {.dtype = sums[pick++ % 3],
                                        .count = counts[c],
                                        .algorithm = algorithm,
                                        .in = layouts[l].in,
                                        .out = layouts[l].out,
                                        .in_place = layouts[l].in_place,
                                        .in_shift = layouts[l].in_shift,
                                        .out_shift = layouts[l].out_shift};

            if (t.in == PRIVATE || (two_shot && t.out == PRIVATE) ||
                (!two_shot && t.in_place))
                continue; /* refused, see test_driver_calls.c */
            CHECK_ZERO(run_case(s, &t, algorithm));
        }
    return 0;
}

static int gathers(struct stage *s)
{
    static const symm_dtype dtypes[] = {SYMM_UINT8, SYMM_FLOAT32, SYMM_FLOAT16};
    unsigned pick = 0;

    for (unsigned l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++)
        for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            const struct test_case t = {.gather = true,
                                        .dtype = dtypes[pick++ % 3],
                                        .count = counts[c],
                                        .algorithm = "multimem_one_shot",
                                        .in = layouts[l].in,
                                        .out = layouts[l].out,
                                        .in_place = layouts[l].in_place,
                                        .in_shift = layouts[l].in_shift,
                                        .out_shift = layouts[l].out_shift};

            if (t.out != PRIVATE)
                CHECK_ZERO(run_case(s, &t, "multimem_one_shot"));
        }
    return 0;
}

/* The address of a buffer's multicast is that of all ranks' bytes there. */
static int addresses(struct stage *s)
{
    char *first = symm_buffer_multicast_ptr(s->buffer[0]);
    char *second = symm_buffer_multicast_ptr(s->buffer[1]);
    struct driver driver;
    void *reached[FAKE_CUDA_MULTICAST_MAX];

    CHECK(first && second);
    CHECK(second - first == s->area[1] - s->area[0]); /* one view of the heap */
    CHECK_ZERO(driver_load(&driver));
    CHECK(driver.multicast(first, reached) == s->n);
    CHECK(driver.multicast(second + AREA_BYTES - 1, reached) == s->n);
    return 0;
}

/* What the library takes by itself, where multicast is and where not. */
static int choices(struct stage *s, bool has)
{
    const struct test_case reduce = {
        .dtype = SYMM_FLOAT32, .count = 65536, .in = FIRST, .out = SECOND};
    struct test_case t = reduce;

    CHECK_ZERO(run_case(s, &t, has ? "took multimem_two_shot" : "_push on the"));
    t.count = 1000;
    CHECK_ZERO(run_case(s, &t, "took lamport_push"));
    t = reduce;
    t.gather = true;
    t.count = 262144 / (unsigned)s->n + 3; /* too much for lines */
    CHECK_ZERO(
        run_case(s, &t, has ? "took multimem_one_shot" : "took two_shot_inplace"));
    return 0;
}

static int collectives(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, symm_team_world(ctx), job->reported));
    CHECK_OK(stage_grow(&s, 0));
    CHECK_OK(stage_grow(&s, 1));
    CHECK_ZERO(addresses(&s));
    CHECK_ZERO(reductions(&s, "multimem_two_shot"));
    CHECK_ZERO(reductions(&s, "multimem_one_shot"));
    CHECK_ZERO(gathers(&s));
    CHECK_ZERO(choices(&s, true));
    stage_close(&s);
    CHECK(atomic_load(&job->reported->warnings) == 0);
    return 0;
}

/* ---- Teams ----------------------------------------------------------------------- */

/* A team's memory is bound to its own object; memory of the world reaches too many. */
static int teams(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    symm_team *world = symm_team_world(ctx), *half;
    int rank = symm_team_rank(world);
    struct stage s, h;
    symm_call call = {
        .size = sizeof(call), .site = "world's", .algorithm = "multimem_two_shot"};

    CHECK_ZERO(stage_open(&s, ctx, world, job->reported));
    CHECK_OK(stage_grow(&s, 0));
    for (int round = 0; round < 3; round++) { /* the place of the last one again */
        CHECK_OK(symm_team_split(world, rank % 2, -rank, &half));
        CHECK_ZERO(stage_open(&h, ctx, half, &job->reported[1 + rank % 2]));
        CHECK_OK(stage_grow(&h, 0));
        CHECK_OK(stage_grow(&h, 1));
        CHECK_ZERO(addresses(&h));
        CHECK_ZERO(choices(&h, true));
        CHECK_STATUS(symm_all_reduce(half, s.area[0], s.area[0], 100, SYMM_FLOAT32,
                                     SYMM_SUM, &call, NULL),
                     SYMM_ERR_INVALID);
        CHECK_ERROR("the team's own heap");
        stage_close(&h);
        symm_team_destroy(half);
    }
    stage_close(&s);
    return 0;
}

/* ---- Without --------------------------------------------------------------------- */

/* No multicast on any rank; the library's own choice is right. */
static int without(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    symm_call call = {
        .size = sizeof(call), .site = "none", .algorithm = "multimem_two_shot"};
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, symm_team_world(ctx), job->reported));
    CHECK_OK(stage_grow(&s, 0));
    CHECK_OK(stage_grow(&s, 1));
    CHECK(!symm_buffer_multicast_ptr(s.buffer[0]));
    CHECK(!symm_buffer_multicast_ptr(s.buffer[1]));
    CHECK_ZERO(choices(&s, false));
    CHECK_STATUS(symm_all_reduce(s.team, s.area[0], s.area[0], 8, SYMM_FLOAT32,
                                 SYMM_SUM, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("SYMM_MULTICAST=1");
    stage_close(&s);
    return 0;
}

/* And no function of multicast has been called. */
static int never(symm_ctx *ctx, void *arg)
{
    struct driver driver;

    CHECK_ZERO(without(ctx, arg));
    CHECK_ZERO(driver_load(&driver));
    CHECK(driver.calls() > 0 && driver.first("cuMulticast", 0) == 0);
    return 0;
}

/* ---- Failing calls --------------------------------------------------------------- */

static int count_fds(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");

    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    return count;
}

/* Where everything fails for ever, what goes with its context may stay. */
static int check_leaks(const struct driver *driver, bool forever)
{
    static const char *const kinds[] = {"memory handles", "mappings", "reservations",
                                        "multicast bindings"};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int leaks = driver->leaks(file);
    bool lost = leaks != 0 && !forever;

    (void)fclose(file);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        lost |= strstr(text, kinds[i]) != NULL;
    if (lost)
        harness_fail(__FILE__, __LINE__, "alive:\n%s", text);
    free(text);
    return lost;
}

/* Starts counting calls on the armed rank; all begin at once. */
static int arm(const struct job *job, struct driver *driver)
{
    const struct symm_cuda_driver *table;

    CHECK_ZERO(driver_load(driver));
    CHECK_OK(symm__cuda_driver(&table)); /* a start that fails is no matter here */
    CHECK_ZERO(harness_sync_wait(&job->reported->sync, job->ranks));
    if (harness_rank() == job->armed)
        driver->fail_call(job->k, job->forever, RESULT);
    CHECK_ZERO(harness_sync_wait(&job->reported->sync, job->ranks));
    return 0;
}

static int disarm(const struct job *job, const struct driver *driver, int fds)
{
    CHECK_ZERO(harness_sync_wait(&job->reported->sync, job->ranks));
    if (harness_rank() == job->armed)
        driver->fail_call(0, false, 0);
    if (job->mode == HARNESS_THREADS)
        return 0; /* run_job looks, after the group's end */
    CHECK(job->forever || count_fds() == fds);
    return check_leaks(driver, job->forever);
}

/* Notes which of the driver's calls, from `name` on, were made until now. */
static int note(const struct job *job, const struct driver *driver, int index,
                const char *name, uint64_t after)
{
    CHECK_ZERO(harness_sync_wait(&job->reported->sync, job->ranks));
    if (harness_rank() == job->armed) {
        job->reported->from[index] = driver->first(name, after);
        job->reported->to[index] = driver->calls();
    }
    return harness_sync_wait(&job->reported->sync, job->ranks);
}

/* Call k is one of multicast's steps and fails: everything else works. */
static int failing_step(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    struct test_case t = {.dtype = SYMM_FLOAT32, .count = 65536};
    symm_config config = harness_config();
    struct reported *reported = job->reported;
    struct driver driver;
    struct stage s;
    int fds;

    CHECK_ZERO(arm(job, &driver));
    fds = count_fds();
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_ZERO(note(job, &driver, 0, "cuMulticast", 0));
    CHECK_ZERO(stage_open(&s, ctx, symm_team_world(ctx), reported));
    for (int i = 0; i < 2; i++) {
        uint64_t before = driver.calls();

        CHECK_OK(stage_grow(&s, i));
        if (i == 0)
            CHECK_ZERO(note(job, &driver, 1, "cuMemRetainAllocationHandle", before));
        reported->has[s.rank][i] = symm_buffer_multicast_ptr(s.buffer[i]) != NULL;
        t.in = t.out = (enum where)i;
        CHECK_ZERO(run_case(
            &s, &t, reported->has[s.rank][i] ? "multimem_two_shot" : "_push on the"));
    }
    stage_close(&s);
    symm_finalize(ctx);
    return disarm(job, &driver, fds);
}

/* From call k on the driver refuses everything: whatever ranks get, they get it soon. */
static int failing_driver(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    const int64_t bytes = (int64_t)AREA_BYTES, stride = 1;
    symm_config config = harness_config();
    symm_buffer *buffer = NULL;
    struct driver driver;
    symm_status status;
    double start;
    int fds;

    config.timeout = config.init_timeout = HARNESS_AMPLE;
    CHECK_ZERO(arm(job, &driver));
    fds = count_fds();
    start = harness_now();
    status = symm_init(&config, &ctx);
    if (status == SYMM_OK)
        status = symm_empty_strided_p2p(symm_team_world(ctx), 1, &bytes, &stride,
                                        SYMM_UINT8, 0, &buffer);
    if (status == SYMM_OK)
        status = symm_rendezvous(symm_team_world(ctx));
    symm_buffer_release(buffer);
    symm_finalize(ctx);
    CHECK(status != SYMM_OK);
    CHECK(harness_now() - start < HARNESS_SOON);
    return disarm(job, &driver, fds);
}

/* ---- Jobs ------------------------------------------------------------------------ */

static struct reported *sink_of;

static void hear(void *arg, int level, const char *line)
{
    struct reported *reported = arg;

    if (level <= WARNING && strstr(line, "multicast") &&
        atomic_fetch_add(&reported->warnings, 1) == 0)
        snprintf(reported->warning, sizeof(reported->warning), "%s", line);
    if (level > WARNING && harness_rank() == 0 && strstr(line, "no multicast: rank"))
        snprintf(reported->notice, sizeof(reported->notice), "%s", line);
}

static void configure(symm_config *config, int rank, void *arg)
{
    const struct job *job = arg;
    const char *value = job->rank_1 ? strchr(job->rank_1, '=') : NULL;
    char name[64];

    (void)config;
    symm_log_sink(hear, sink_of);
    if (!value || rank != 1)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(value - job->rank_1), job->rank_1);
    setenv(name, value + 1, 1);
}

static int run_job(void *arg)
{
    struct job *job = arg;
    const struct harness h = {.ranks = job->ranks,
                              .mode = job->mode,
                              .body = job->body,
                              .arg = job,
                              .team_bytes = 128 * MIB,
                              .heap_bytes = 1024 * MIB,
                              .configure = configure,
                              .without_ctx = job->watched};
    struct driver driver;
    int failed;

    sink_of = job->reported;
    failed = harness_run(&h);
    if (job->mode == HARNESS_THREADS && failed == 0)
        failed = driver_load(&driver) || check_leaks(&driver, job->forever);
    return failed;
}

/* The job with these settings, of which the last is NULL; 0, or 1. `reported` is cleared first. */
static int run(struct job job, const char *const *settings)
{
    memset(job.reported, 0, MOST * sizeof(*job.reported));
    return driver_lives(run_job, &job, settings);
}

static struct reported *reported_open(void)
{
    return harness_shared(MOST * sizeof(struct reported));
}

static void reported_close(struct reported *reported)
{
    harness_shared_free(reported, MOST * sizeof(*reported));
}

#define ON "SYMM_MULTICAST=1", "FAKE_CUDA_MULTICAST=1"

static const char *const on[] = {ON, "FAKE_CUDA_CHECK=1", NULL};

static void test_collectives(void **state)
{
    struct job job = {.reported = reported_open(), .body = collectives};
    const bool both = harness_env("SYMM_TEST_LONG", 0) != 0;

    (void)state;
    for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++)
        for (int ranks = 2; ranks <= MOST; ranks = ranks == 4 ? 8 : ranks + 1) {
            job.mode = (enum harness_mode)mode;
            job.ranks = ranks;
            if (!both && (ranks == 2 || ranks == 4) == (mode == HARNESS_THREADS))
                continue; /* 2 and 4 as processes, 3 and 8 as threads */
            assert_int_equal(run(job, on), 0);
        }
    reported_close(job.reported);
}

static void test_teams(void **state)
{
    struct job job = {.reported = reported_open(), .body = teams, .ranks = 4};

    (void)state;
    assert_int_equal(run(job, on), 0);
    job.mode = HARNESS_THREADS;
    assert_int_equal(run(job, on), 0);
    reported_close(job.reported);
}

/* Off by default, and under each of the three variables; then nothing is even asked. */
static void test_vetoes(void **state)
{
    static const char *const settings[][4] = {
        {"FAKE_CUDA_MULTICAST=1", NULL},
        {"FAKE_CUDA_MULTICAST=1", "SYMM_MULTICAST=0", NULL},
        {ON, "NCCL_NVLS_ENABLE=0", NULL},
        {ON, "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", NULL},
        {ON, "NVSHMEM_DISABLE_NVLS=1", NULL},
    };
    struct job job = {.reported = reported_open(), .body = never, .ranks = 2};

    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        job.mode = i % 2 ? HARNESS_THREADS : HARNESS_PROCESSES;
        assert_int_equal(run(job, settings[i]), 0);
    }
    reported_close(job.reported);
}

/* One rank cannot, does not want to, or must not: then nobody asks either. */
static void test_one_rank(void **state)
{
    static const char *const without_1[] = {ON, "FAKE_CUDA_NO_MULTICAST=1",
                                            "SYMM_LOG=info", NULL};
    static const char *const rank_1[] = {"SYMM_MULTICAST=0", "NCCL_NVLS_ENABLE=0",
                                         "TORCH_SYMM_MEM_DISABLE_MULTICAST=1",
                                         "NVSHMEM_DISABLE_NVLS=1"};
    struct job job = {.reported = reported_open(), .body = never, .ranks = 3};

    (void)state;
    assert_int_equal(run(job, without_1), 0);
    assert_non_null(strstr(job.reported->notice, "rank 1 cannot or must not"));
    job.mode = HARNESS_THREADS;
    assert_int_equal(run(job, without_1), 0);
    job.mode = HARNESS_PROCESSES;
    for (size_t i = 0; i < sizeof(rank_1) / sizeof(rank_1[0]); i++) {
        job.rank_1 = rank_1[i];
        assert_int_equal(run(job, on), 0);
    }
    reported_close(job.reported);
}

/* It is made, and does not do its part, here or there: all go on without, and say why. */
static void test_proof(void **state)
{
    static const struct {
        const char *setting, *rank_1, *words[2];
    } broken[] = {
        {"FAKE_CUDA_MULTICAST_LOSES=0",
         NULL,
         {"rank 0: device 0", "the sum of float32"}},
        {"FAKE_CUDA_MULTICAST_DROPS=2",
         NULL,
         {"rank 2: device 2", "a store of float32"}},
        {"FAKE_CUDA_CHECK=1",
         "FAKE_CUDA_MULTICAST_LOSES=2",
         {"rank 1: device 1", "the sum of float32"}},
        {"FAKE_CUDA_CHECK=1",
         "FAKE_CUDA_MULTICAST_DROPS=0",
         {"rank 0: device 0", "a store of float32"}},
        {"FAKE_CUDA_MULTICAST_GRANULARITY=4194304",
         NULL,
         {"rank 0: multicast", "granules of 4194304 bytes"}},
    };
    struct job job = {.reported = reported_open(), .body = without, .ranks = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++) {
            const char *const settings[] = {ON, broken[i].setting, NULL};

            job.mode = (enum harness_mode)mode;
            job.rank_1 = broken[i].rank_1;
            if (job.rank_1 && mode == HARNESS_THREADS)
                continue; /* one environment for all */
            assert_int_equal(run(job, settings), 0);
            assert_int_equal(atomic_load(&job.reported->warnings), 1);
            for (int w = 0; w < 2; w++)
                if (!strstr(job.reported->warning, broken[i].words[w]))
                    fail_msg("'%s' is not in: %s", broken[i].words[w],
                             job.reported->warning);
        }
    reported_close(job.reported);
}

/* ---- Failing calls: which --------------------------------------------------------- */

/* All ranks have it, or none; one warning if none. */
static int judge(const struct job *job)
{
    const struct reported *reported = job->reported;
    bool all = reported->has[0][0] && reported->has[0][1];

    for (int r = 1; r < job->ranks; r++)
        CHECK_MESSAGE(reported->has[r][0] == reported->has[0][0] &&
                          reported->has[r][1] == reported->has[0][1],
                      "rank %d and rank 0 differ in what has multicast", r);
    CHECK_MESSAGE(atomic_load(&reported->warnings) == (all ? 0 : 1), "%d warnings: %s",
                  atomic_load(&reported->warnings), reported->warning);
    CHECK_MESSAGE(all || strstr(reported->warning, "rank "), "%s", reported->warning);
    return 0;
}

/* Each call, or each of a part, of the opening and of the extension. */
static void fail_each(struct job job, int index, int *fallbacks)
{
    static const char *const settings[] = {ON, NULL};
    const bool longer = harness_env("SYMM_TEST_LONG", 0) != 0;
    uint64_t step = harness_strict() ? 1 : longer ? 3 : 10, from, to;
    struct job dry = job;

    dry.body = failing_step;
    dry.k = 0;
    dry.forever = false;
    assert_int_equal(run(dry, settings), 0);
    assert_int_equal(judge(&dry), 0);
    assert_true(job.reported->has[0][0] && job.reported->has[0][1]);
    from = job.reported->from[index];
    to = job.reported->to[index];
    assert_true(from > 0 && to > from);
    if (job.forever) /* as early as the first one: it is the same from there on */
        step *= 2;
    for (job.k = from + (uint64_t)(harness_now() * 1e3) % step; job.k <= to;
         job.k += step) {
        if (run(job, settings) != 0 || (!job.forever && judge(&job) != 0))
            fail_msg("call %llu of %llu to %llu, armed rank %d",
                     (unsigned long long)job.k, (unsigned long long)from,
                     (unsigned long long)to, job.armed);
        *fallbacks += !job.forever && !job.reported->has[0][1];
    }
}

static void test_failing_steps(void **state)
{
    struct job job = {
        .reported = reported_open(), .body = failing_step, .ranks = 2, .watched = true};
    int fallbacks = 0;

    (void)state;
    for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++)
        for (job.armed = 0; job.armed < (mode == HARNESS_THREADS ? 1 : 2); job.armed++)
            for (int index = 0; index < 2; index++) {
                job.mode = (enum harness_mode)mode;
                fail_each(job, index, &fallbacks);
            }
    assert_true(fallbacks > 5);
    reported_close(job.reported);
}

static void test_failing_driver(void **state)
{
    struct job job = {.reported = reported_open(),
                      .body = failing_driver,
                      .ranks = 2,
                      .forever = true,
                      .watched = true};
    int fallbacks = 0;

    (void)state;
    for (job.armed = 0; job.armed < 2; job.armed++)
        fail_each(job, 0, &fallbacks);
    reported_close(job.reported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),    cmocka_unit_test(test_teams),
        cmocka_unit_test(test_vetoes),         cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_proof),          cmocka_unit_test(test_failing_steps),
        cmocka_unit_test(test_failing_driver),
    };
    static const char *const names[] = {"SYMM_MULTICAST", "NCCL_NVLS_ENABLE",
                                        "TORCH_SYMM_MEM_DISABLE_MULTICAST",
                                        "NVSHMEM_DISABLE_NVLS", "CUDA_VISIBLE_DEVICES"};

    harness_clear_environment();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    device_suite();
    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
