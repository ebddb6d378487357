/* SPDX-License-Identifier: MIT */
/*
 * test_host_metrics.c - SYMM_METRICS_FILE: after calls of known number and size the file says just
 * these, also of sites that have lost their place; a reader beside never finds a part of a file or
 * a counter that goes back; waits, failures and fallbacks name whom and why; wrong settings are
 * refused.
 */
#include "harness.h"
#include "prometheus.h"
#include "sight/page.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SMALL 700
#define LARGE 60
#define PUTS  30
#define MANY  (SYMM_SIGHT_SITES + 100)
#define LOOKS 20

struct job {
    _Atomic int go;
    uint64_t committed;
    double seconds; /* that rank 0 was in its calls */
};

static struct job *job;
static char folder[64];

static void set_file(const char *interval, const char *level)
{
    char pattern[128];

    for (int r = 0; r < 3; r++) { /* a test before this one may have left it */
        snprintf(pattern, sizeof(pattern), "%s/%d.prom", folder, r);
        (void)unlink(pattern);
    }
    snprintf(pattern, sizeof(pattern), "%s/%%r.prom", folder);
    setenv("SYMM_METRICS_FILE", pattern, 1);
    setenv("SYMM_METRICS_INTERVAL", interval, 1);
    if (level)
        setenv("SYMM_SIGHT", level, 1);
}

static void unset_file(void)
{
    unsetenv("SYMM_METRICS_FILE");
    unsetenv("SYMM_METRICS_INTERVAL");
    unsetenv("SYMM_SIGHT");
}

static char *read_rank(int rank)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%d.prom", folder, rank);
    return prometheus_read(path);
}

static symm_status reduce(symm_ctx *ctx, float *data, size_t count, const char *site,
                          void *stream, double timeout)
{
    const symm_call call = {
        .size = sizeof(call), .site = site, .stream = stream, .timeout = timeout};

    return symm_all_reduce(symm_team_world(ctx), data, data, count, SYMM_FLOAT32,
                           SYMM_SUM, &call, NULL);
}

/* ---- Exact counts ------------------------------------------------------------------------ */

static int body_counts(symm_ctx *ctx, void *arg)
{
    static float data[1500], queued[2];
    symm_team *world = symm_team_world(ctx);
    symm_info info = {.size = sizeof(info)};
    symm_buffer *buffer;
    void *stream, *own;
    char name[32];

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_OK(symm_buffer_alloc(world, 5000, &buffer));
    CHECK_OK(symm_rendezvous(world));
    own = symm_buffer_ptr(buffer);
    for (int i = 0; i < SMALL; i++)
        CHECK_OK(reduce(ctx, i % 3 ? data : queued, 2, "a", i % 3 ? NULL : stream, 0));
    CHECK_OK(symm_stream_synchronize(ctx, stream, 0));
    for (int i = 0; i < LARGE; i++)
        CHECK_OK(reduce(ctx, data, 1250, "b\"\\", NULL, 0));
    for (int i = 0; i < PUTS; i++)
        CHECK_OK(symm_put(world, own, data, 64, harness_rank() ^ 1, NULL, NULL));
    /* These take the places of all sites above. */
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "site %d", i);
        CHECK_OK(reduce(ctx, data, 4, name, NULL, 0));
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    CHECK_OK(symm_ctx_info(ctx, &info));
    if (harness_rank() == 0)
        job->committed = info.committed_bytes;
    symm_stream_destroy(ctx, stream);
    symm_buffer_release(buffer);
    return 0;
}

#define SUM(text, ...) prometheus_sum(text, __VA_ARGS__, (char *)NULL)

/* 0, or the line that is wrong. */
static int check_counts(const char *text, bool all_timed)
{
    const char *op = "op=\"all_reduce\"", *reason = "reason=\"the input is not "
                                                    "symmetric memory and is staged\"";
    const double calls = SMALL + LARGE + PUTS + MANY + 1;
    const char *exchange = "op=\"exchange\""; /* steps over sockets */
    const double timed = SUM(text, "symm_timed_calls_total") -
                         SUM(text, "symm_timed_calls_total", exchange);

    if (SUM(text, "symm_calls_total", op, "size=\"16\"") != SMALL + MANY ||
        SUM(text, "symm_bytes_total", op, "size=\"16\"") != 8 * SMALL + 16 * MANY)
        return __LINE__;
    if (SUM(text, "symm_calls_total", op, "size=\"16384\"") != LARGE ||
        SUM(text, "symm_bytes_total", op, "size=\"16384\"") != 5000 * LARGE)
        return __LINE__;
    if (SUM(text, "symm_calls_total", "op=\"put\"", "size=\"64\"") != PUTS ||
        SUM(text, "symm_bytes_total", "op=\"put\"", "size=\"64\"") != 64 * PUTS ||
        SUM(text, "symm_calls_total", "op=\"barrier\"", "size=\"0\"") != 1)
        return __LINE__;
    if (SUM(text, "symm_calls_total") - SUM(text, "symm_calls_total", exchange) !=
            calls ||
        !(SUM(text, "symm_calls_total", exchange) > 2))
        return __LINE__;
    /* 5,000 bytes of the program's own memory are staged. */
    if (SUM(text, "symm_fallback_calls_total", op, reason) != LARGE ||
        SUM(text, "symm_fallback_calls_total") != LARGE)
        return __LINE__;
    if (all_timed ? timed != calls : timed < calls / 64 - 4 || timed > calls / 64 + 4)
        return __LINE__;
    if (!(SUM(text, "symm_call_seconds_total") > 0) ||
        SUM(text, "symm_call_seconds_total") > HARNESS_AMPLE)
        return __LINE__;
    if (SUM(text, "symm_finished") != 1 || SUM(text, "symm_ranks") != 2 ||
        SUM(text, "symm_info", "backend=\"host\"") != 1 ||
        SUM(text, "symm_heap_used_bytes") != 0 ||
        !(SUM(text, "symm_heap_committed_bytes") > 0) ||
        SUM(text, "symm_heap_committed_bytes") > (double)job->committed)
        return __LINE__;
    return 0;
}

static void run_counts(const char *level)
{
    struct harness h = {.ranks = 2, .body = body_counts};

    memset(job, 0, sizeof(*job));
    set_file("100", level); /* the file of the end is the only one */
    assert_int_equal(harness_run(&h), 0);
    unset_file();
    for (int r = 0; r < 2; r++) {
        char *text = read_rank(r);

        assert_non_null(text);
        assert_true(prometheus_check(text));
        assert_int_equal(check_counts(text, level != NULL), 0);
        free(text);
    }
}

static void test_counts(void **state)
{
    (void)state;
    run_counts("1");
}

static void test_samples(void **state)
{
    (void)state;
    run_counts(NULL);
}

/* ---- A reader beside ----------------------------------------------------------------------- */

static int body_busy(symm_ctx *ctx, void *arg)
{
    float data[2] = {0};
    char name[32];

    (void)arg;
    for (int i = 0; atomic_load(&job->go) == 0; i++) {
        snprintf(name, sizeof(name), "site %d", i % 3000);
        CHECK_OK(reduce(ctx, data, 2, name, NULL, 0));
    }
    return 0;
}

static void direct_reader(const pid_t *ranks, int count, void *arg)
{
    double last_calls = -1, last_seconds = -1;
    int *bad = arg, looks = 0;

    (void)ranks;
    (void)count;
    for (double until = harness_now() + HARNESS_AMPLE; looks < LOOKS && !*bad;) {
        char *text = read_rank(0);
        double calls = text ? SUM(text, "symm_calls_total") : -1;
        double seconds = text ? SUM(text, "symm_call_seconds_total") : -1;

        if (text && !prometheus_check(text))
            *bad = __LINE__;
        if (text && (calls < last_calls || seconds < last_seconds))
            *bad = __LINE__;
        looks += calls > last_calls;
        last_calls = calls;
        last_seconds = seconds;
        free(text);
        if (harness_now() > until)
            *bad = __LINE__;
    }
    atomic_store(&job->go, 1);
}

static void test_reader(void **state)
{
    int bad = 0;
    struct harness h = {
        .ranks = 1, .body = body_busy, .arg = &bad, .direct = direct_reader};

    (void)state;
    memset(job, 0, sizeof(*job));
    set_file("0.005", NULL);
    assert_int_equal(harness_run(&h), 0);
    unset_file();
    assert_int_equal(bad, 0);
}

/* ---- Waits and failures ---------------------------------------------------------------------- */

static int body_waits(symm_ctx *ctx, void *arg)
{
    float data[2] = {0};
    const double begin = harness_now();

    (void)arg;
    harness_sleep(0.3 * harness_rank());
    CHECK_OK(reduce(ctx, data, 2, "late", NULL, 0));
    if (harness_rank() == 1) {
        CHECK(harness_until(&job->go, 2));
        return 0;
    }
    CHECK_STATUS(reduce(ctx, data, 2, "alone", NULL, 0.1), SYMM_ERR_TIMEOUT);
    if (harness_rank() == 0)
        job->seconds = harness_now() - begin;
    atomic_fetch_add(&job->go, 1);
    return 0;
}

static void test_waits(void **state)
{
    char odd_job[64];
    struct harness h = {.ranks = 3, .body = body_waits, .job_id = odd_job};
    char *text;

    (void)state;
    memset(job, 0, sizeof(*job));
    snprintf(odd_job, sizeof(odd_job), "\"\\\n%d", (int)getpid());
    set_file("100", NULL);
    assert_int_equal(harness_run(&h), 0);
    unset_file();
    text = read_rank(0);
    assert_non_null(text);
    assert_true(prometheus_check(text));
    assert_true(SUM(text, "symm_wait_seconds_total", "peer=\"2\"") > 0.1);
    /* It has waited for ranks 1 and 2, then for rank 2 in the same call: counted once. */
    assert_true(SUM(text, "symm_wait_seconds_total", "peer=\"2\"") <= job->seconds);
    assert_true(SUM(text, "symm_waits_total", "peer=\"2\"") >= 1);
    assert_true(SUM(text, "symm_waits_total", "peer=\"1\"") >= 1);
    assert_true(SUM(text, "symm_wait_seconds_total", "peer=\"1\"") > 0.05);
    assert_true(SUM(text, "symm_wait_seconds_total", "peer=\"0\"") == 0);
    assert_true(SUM(text, "symm_failures_total") == 1);
    assert_true(SUM(text, "symm_failures_total", "status=\"SYMM_ERR_TIMEOUT\"") == 1);
    free(text);
}

/* ---- Wrong settings ------------------------------------------------------------------- */

static int body_refused(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    struct stat is;
    char path[128];

    setenv("SYMM_METRICS_FILE", arg, 1);
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    CHECK(strstr(symm_last_error(), "%r") != NULL);
    setenv("SYMM_SIGHT", "0", 1);
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    CHECK(strstr(symm_last_error(), "SYMM_SIGHT=0") != NULL);
    unsetenv("SYMM_SIGHT");
    snprintf(path, sizeof(path), "%s/none/%%r", folder);
    setenv("SYMM_METRICS_FILE", path, 1);
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_SYSTEM);
    CHECK(strstr(symm_last_error(), "none/") != NULL);
    snprintf(path, sizeof(path), "%s/pipe%%r", folder); /* as /dev/null: it stays */
    setenv("SYMM_METRICS_FILE", path, 1);
    snprintf(path, sizeof(path), "%s/pipe%d", folder, config.rank);
    CHECK_ZERO(mkfifo(path, 0600));
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    CHECK(strstr(symm_last_error(), "is no regular file") != NULL);
    CHECK_ZERO(lstat(path, &is));
    CHECK(S_ISFIFO(is.st_mode));
    CHECK_ZERO(unlink(path));
    CHECK_ZERO(symlink("elsewhere", path));
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    CHECK_ZERO(lstat(path, &is));
    CHECK(S_ISLNK(is.st_mode));
    return 0;
}

static void test_refused(void **state)
{
    char path[128];
    struct harness h = {
        .ranks = 2, .body = body_refused, .arg = path, .without_ctx = true};

    (void)state;
    snprintf(path, sizeof(path), "%s/one", folder);
    assert_int_equal(harness_run(&h), 0);
}

/* ---- A program with a locale whose decimal point is a comma ------------------------------ */

static int body_comma(symm_ctx *ctx, void *arg)
{
    float data[2] = {0};

    (void)arg;
    CHECK(setlocale(LC_ALL, "de_DE.UTF-8") != NULL);
    for (int i = 0; i < 10; i++)
        CHECK_OK(reduce(ctx, data, 2, "comma", NULL, 0));
    return 0;
}

static void test_comma(void **state)
{
    struct harness h = {.ranks = 1, .body = body_comma};
    char command[200];
    char *text, *rest = NULL;
    int seconds = 0;

    (void)state;
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", folder, folder);
    if (system(command) != 0)
        skip(); /* the sources of locales are not installed */
    setenv("LOCPATH", folder, 1);
    set_file("3600", "1");
    assert_int_equal(harness_run(&h), 0);
    unset_file();
    unsetenv("LOCPATH");
    text = read_rank(0);
    assert_non_null(text);
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *value = strrchr(line, ' ');

        if (line[0] == '#')
            continue;
        assert_non_null(value);
        assert_int_equal(strspn(value, " 0123456789."), strlen(value));
        seconds += strchr(value, '.') != NULL;
    }
    assert_true(seconds > 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_samples),
        cmocka_unit_test(test_reader),  cmocka_unit_test(test_waits),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_comma),
    };
    char command[96];
    int failed;

    job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
               -1, 0);
    snprintf(folder, sizeof(folder), "/tmp/symm-metrics-XXXXXX");
    if (job == MAP_FAILED || !mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? failed : 1;
}
