/* SPDX-License-Identifier: MIT */
/*
 * test_host_join.c - joining a job and leaving it.
 *
 * Wrong configurations are refused with the value; missing and duplicate ranks are detected
 * in time; the caller's own exchange and thread groups work; a context is invalid after
 * fork; symm_finalize leaves no descriptor, thread or mapping.
 */
#include "harness.h"
#include "symm/tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define POISON ((void *)(uintptr_t)0x5a5a5a5a)

struct shared {
    struct harness_sync sync;
    double timeout; /* of symm_init, where it is to expire */
    symm_status status[HARNESS_MAX_RANKS];
    double took[HARNESS_MAX_RANKS];
    char exchange[HARNESS_MAX_RANKS][65536];
};

static struct harness simple(void **state, harness_body body, int ranks)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(*state, 0, sizeof(struct shared));
    h.ranks = ranks;
    h.body = body;
    h.arg = *state;
    return h;
}

/* The team is as good as new after a local error. */
static int still_works(symm_team *team)
{
    int in = 3, out = 0;
    CHECK_OK(symm_all_reduce(team, &in, &out, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(out == 3 * symm_team_size(team));
    return 0;
}

/* ---- Joining --------------------------------------------------------------------- */

static symm_config alone(void)
{
    symm_config config;
    memset(&config, 0, sizeof(config));
    config.size = sizeof(config);
    config.world_size = 1;
    config.job_id = "alone";
    config.heap_bytes = (size_t)1 << 30;
    config.init_timeout = HARNESS_AMPLE;
    return config;
}

#define REFUSED(change, status, text)                                                  \
    do {                                                                               \
        config = alone();                                                              \
        ctx = POISON;                                                                  \
        change;                                                                        \
        symm_status got = symm_init(&config, &ctx);                                    \
        if (got == SYMM_OK)                                                            \
            symm_finalize(ctx);                                                        \
        if (got != (status))                                                           \
            fail_msg("%s: %s", #change, symm_status_name(got));                        \
        assert_ptr_equal(ctx, POISON);                                                 \
        if (strstr(symm_last_error(), (text)) == NULL)                                 \
            fail_msg("%s: \"%s\" lacks \"%s\"", #change, symm_last_error(), (text));   \
    } while (0)

static void bad_configurations(void **state)
{
    struct {
        symm_config config;
        char more[16];
    } longer;
    symm_config config;
    symm_ctx *ctx;
    (void)state;
    REFUSED(config.size = 0, SYMM_ERR_INVALID, "size");
    REFUSED(config.size = 3, SYMM_ERR_INVALID, "3");
    REFUSED(config.world_size = -4, SYMM_ERR_INVALID, "-4");
    REFUSED(config.rank = 1, SYMM_ERR_INVALID, "1");
    REFUSED(config.rank = -3, SYMM_ERR_INVALID, "-3");
    REFUSED(config.backend = "abacus", SYMM_ERR_INVALID, "abacus");
    REFUSED(config.timeout = -2.5, SYMM_ERR_INVALID, "-2.5");
    REFUSED(config.timeout = NAN, SYMM_ERR_INVALID, "nan");
    REFUSED(config.init_timeout = -7, SYMM_ERR_INVALID, "-7");
    REFUSED(config.timeout = INFINITY, SYMM_ERR_INVALID, "inf");
    REFUSED(config.heap_bytes = SIZE_MAX, SYMM_ERR_INVALID, "18446744073709551615");
    REFUSED(config.team_bytes = SIZE_MAX, SYMM_ERR_INVALID, "18446744073709551615");
    REFUSED(config.heap_bytes = 1, SYMM_ERR_INVALID, "1");
    REFUSED(config.world_size = 100000, SYMM_ERR_UNSUPPORTED, "100000");
    REFUSED(config.local_rank = 5; config.local_size = 2, SYMM_ERR_INVALID, "5");
    REFUSED(config.world_size = 2; config.job_id = NULL, SYMM_ERR_INVALID, "job_id");
    config = alone();
    assert_int_equal(symm_init(&config, NULL), SYMM_ERR_INVALID);

    /* A caller of a later version: fine while what it adds is zero. */
    memset(&longer, 0, sizeof(longer));
    longer.config = config;
    longer.config.size = sizeof(longer);
    assert_int_equal(symm_init(&longer.config, &ctx), SYMM_OK);
    symm_finalize(ctx);
    longer.more[15] = 1;
    ctx = POISON;
    assert_int_equal(symm_init(&longer.config, &ctx), SYMM_ERR_INVALID);
    assert_ptr_equal(ctx, POISON);
    symm_finalize(NULL);
}

/* SYMM_TEAM_BYTES is taken as it is or refused, as symm_config.team_bytes; only the default is
 * lowered for a small heap. */
static void team_bytes_of_variable(void **state)
{
    symm_config config;
    symm_ctx *ctx;
    symm_team *team;
    symm_buffer *buffer;
    (void)state;
    setenv("SYMM_TEAM_BYTES", "130M", 1);
    REFUSED(config.heap_bytes = (size_t)256 << 20, SYMM_ERR_INVALID, "134217728");
    setenv("SYMM_TEAM_BYTES", "128M", 1);
    config = alone();
    config.heap_bytes = (size_t)256 << 20;
    assert_int_equal(symm_init(&config, &ctx), SYMM_OK);
    unsetenv("SYMM_TEAM_BYTES");
    assert_int_equal(symm_team_split(symm_team_world(ctx), 0, 0, &team), SYMM_OK);
    assert_int_equal(symm_buffer_alloc(team, (size_t)80 << 20, &buffer), SYMM_OK);
    symm_finalize(ctx);
}

/* No configuration and no launcher: a job of one. */
static int body_single(symm_ctx *ctx, void *arg)
{
    symm_info info;
    (void)arg;
    CHECK_OK(symm_init(NULL, &ctx));
    memset(&info, 0, sizeof(info));
    info.size = sizeof(info);
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(info.rank == 0 && info.world_size == 1);
    CHECK(info.local_rank == 0 && info.local_size == 1);
    CHECK(strcmp(info.backend, "host") == 0 && strcmp(info.job_source, "single") == 0);
    CHECK(info.isa != NULL && info.granularity > 0);
    CHECK_ZERO(still_works(symm_team_world(ctx)));
    symm_finalize(ctx);
    return 0;
}

static void job_of_one(void **state)
{
    struct harness h = simple(state, body_single, 1);
    symm_job_info job;
    h.without_ctx = true;
    assert_int_equal(harness_run(&h), 0);
    memset(&job, 0, sizeof(job));
    job.size = sizeof(job);
    assert_int_equal(symm_job_detect(&job), SYMM_OK);
    assert_string_equal(job.source, "single");
    assert_int_equal(job.world_size, 1);
    setenv("RANK", "1", 1); /* a partial set names what is missing */
    symm_ctx *ctx = NULL;
    assert_int_equal(symm_init(NULL, &ctx), SYMM_ERR_JOB);
    assert_non_null(strstr(symm_last_error(), "WORLD_SIZE"));
    assert_int_equal(symm_job_detect(&job), SYMM_ERR_JOB);
    setenv("WORLD_SIZE", "1", 1); /* contradicts rank 1 */
    assert_int_equal(symm_init(NULL, &ctx), SYMM_ERR_JOB);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    assert_null(ctx);
}

/* Everybody comes but the last: the others learn who is missing, in time. */
static int body_absent(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    int me = config.rank;
    char name[32];
    config.init_timeout = s->timeout;
    if (me < config.world_size - 1) {
        double start = harness_now();
        s->status[me] = symm_init(&config, &ctx);
        s->took[me] = harness_now() - start;
        CHECK_STATUS(s->status[me], SYMM_ERR_TIMEOUT);
        snprintf(name, sizeof(name), "rank %d", config.world_size - 1);
        CHECK_ERROR(name);
        CHECK_MESSAGE(s->took[me] < 2 * s->timeout, "%.2g s took %.2f s", s->timeout,
                      s->took[me]);
        CHECK(ctx == NULL);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, config.world_size));
    return 0;
}

static void missing_ranks_are_named(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct shared *s = *state;
        double timeout;
        HARNESS_PATIENCE(timeout, 0.5)
        {
            struct harness h = simple(state, body_absent, 2 + i / 2);
            h.mode = i % 2 == 0 ? HARNESS_PROCESSES : HARNESS_THREADS;
            h.without_ctx = true;
            s->timeout = timeout;
            if (harness_run(&h) == 0)
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* Ranks 0, 1 and 1 of a job of three: nobody may believe that the job is complete. */
static int body_twice(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    int me = config.rank;
    config.rank = me == 2 ? 1 : me;
    config.init_timeout = 0.5;
    s->status[me] = symm_init(&config, &ctx);
    CHECK(s->status[me] != SYMM_OK && ctx == NULL);
    CHECK_ERROR("rank ");
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    return 0;
}

/* Two ranks 0, each of which would lead the bootstrap. */
static int body_two_leaders(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    (void)arg;
    config.rank = 0;
    config.init_timeout = 0.5;
    CHECK(symm_init(&config, &ctx) != SYMM_OK && ctx == NULL);
    CHECK(symm_last_error()[0] != '\0');
    return 0;
}

static void duplicate_ranks_are_refused(void **state)
{
    struct harness h = simple(state, body_twice, 3);
    h.without_ctx = true;
    assert_int_equal(harness_run_both(h), 0);
    h = simple(state, body_two_leaders, 2);
    h.without_ctx = true;
    assert_int_equal(harness_run_both(h), 0);
}

static int share(void *arg, const void *in, size_t bytes, void *out)
{
    struct shared *s = arg;
    int n = 3;
    if (bytes > sizeof(s->exchange[0]))
        return -1;
    memcpy(s->exchange[harness_rank()], in, bytes);
    if (harness_sync_wait(&s->sync, n) != 0)
        return -1;
    for (int p = 0; p < n; p++)
        memcpy((char *)out + (size_t)p * bytes, s->exchange[p], bytes);
    return harness_sync_wait(&s->sync, n);
}

static int fail_share(void *arg, const void *in, size_t bytes, void *out)
{
    (void)arg;
    (void)in;
    (void)bytes;
    (void)out;
    return 1;
}

/* The caller's own exchange instead of a job id. */
static int body_bootstrap(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    symm_bootstrap bootstrap = {sizeof(bootstrap), share, arg};
    config.job_id = NULL;
    config.bootstrap = &bootstrap;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_ZERO(still_works(symm_team_world(ctx)));
    symm_finalize(ctx);
    ctx = NULL;
    bootstrap.allgather = fail_share;
    CHECK(symm_init(&config, &ctx) != SYMM_OK && ctx == NULL);
    bootstrap.allgather = NULL;
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    return 0;
}

static void own_bootstrap(void **state)
{
    struct harness h = simple(state, body_bootstrap, 3);
    h.without_ctx = true;
    assert_int_equal(harness_run(&h), 0);
}

static void groups(void **state)
{
    symm_thread_group *group = POISON;
    symm_ctx *ctx = NULL;
    symm_config config = alone();
    (void)state;
    assert_int_equal(symm_thread_group_create(0, &group), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "0"));
    assert_int_equal(symm_thread_group_create(-7, &group), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "-7"));
    assert_ptr_equal(group, POISON);
    assert_int_equal(symm_thread_group_create(2, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_thread_group_create(1, &group), SYMM_OK);
    config.thread_group = group;
    config.rank = 1;
    assert_int_equal(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    config.rank = 0;
    config.world_size = 2;
    assert_int_equal(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    config.world_size = 1;
    assert_null(ctx);
    assert_int_equal(symm_init(&config, &ctx), SYMM_OK);
    symm_ctx *again = NULL; /* the rank is there already */
    assert_int_equal(symm_init(&config, &again), SYMM_ERR_IN_USE);
    assert_null(again);
    assert_int_equal(symm_barrier(symm_team_world(ctx), NULL, NULL), SYMM_OK);
    symm_finalize(ctx);
    symm_thread_group_destroy(group);
    symm_thread_group_destroy(NULL);
}

struct log_lines {
    _Atomic int count;
    _Atomic int newlines;
};

static void log_sink(void *arg, int level, const char *line)
{
    struct log_lines *lines = arg;
    if (level >= 0 && level <= 3 && line != NULL && line[0] != '\0')
        atomic_fetch_add(&lines->count, 1);
    if (line != NULL && strchr(line, '\n') != NULL)
        atomic_fetch_add(&lines->newlines, 1);
}

static void log_goes_to_the_sink(void **state)
{
    struct log_lines lines = {0, 0};
    symm_ctx *ctx = NULL;
    symm_config config = alone();
    (void)state;
    config.rank = 17;
    symm_log_sink(log_sink, &lines);
    assert_int_equal(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    symm_log_sink(NULL, NULL);
    assert_true(atomic_load(&lines.count) == 1); /* one error, one line */
    assert_int_equal(atomic_load(&lines.newlines), 0);
    assert_int_equal(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    assert_true(atomic_load(&lines.count) == 1);
}

/* What a forked child may do with its parent's context: nothing, and do no harm. */
static int child_calls(symm_ctx *ctx, symm_team *team)
{
    symm_buffer *buffer = NULL;
    const int64_t one = 1;
    int x = 1, y = 0;
    CHECK_STATUS(symm_barrier(team, NULL, NULL), SYMM_ERR_FORKED);
    CHECK(symm_last_error()[0] != '\0');
    CHECK_STATUS(symm_all_reduce(team, &x, &y, 1, SYMM_INT32, SYMM_SUM, NULL, NULL),
                 SYMM_ERR_FORKED);
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_FORKED);
    CHECK_STATUS(symm_empty_strided_p2p(team, 1, &one, &one, SYMM_INT8, 4, &buffer),
                 SYMM_ERR_FORKED);
    CHECK_STATUS(symm_signal(team, 0, 0, NULL, NULL), SYMM_ERR_FORKED);
    symm_finalize(ctx);
    return 0;
}

static int body_fork(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    (void)arg;
    CHECK_ZERO(still_works(team));
    for (int way = 0; way < 3; way++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            if (way == 0)
                _exit(child_calls(ctx, team));
            if (way == 1)
                _exit(0);
            abort(); /* a child's death is not this rank's */
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(way == 2 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        CHECK_ZERO(still_works(team));
    }
    return 0;
}

static void context_after_fork(void **state)
{
    struct harness h = simple(state, body_fork, 2);
    assert_int_equal(harness_run(&h), 0);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return -1;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static int count_lines(const char *path)
{
    int count = 0, c;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    while ((c = fgetc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

#define MOST_FDS 200

/* A whole life, with a bit of everything left for symm_finalize to free. */
static int live_once(struct shared *s, const char *job_id)
{
    symm_config config = harness_config();
    symm_ctx *ctx = NULL;
    symm_team *team = NULL;
    symm_buffer *buffer = NULL;
    const int64_t count = 100000, stride = 1;
    void *stream = NULL;
    bool before[MOST_FDS]; /* what was open is not ours */
    for (int fd = 0; fd < MOST_FDS; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    config.job_id = job_id;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_OK(symm_team_split(symm_team_world(ctx), 0, 0, &team));
    CHECK_OK(symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT8, 1, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_stream_create(ctx, &stream));
    CHECK_ZERO(still_works(team));
    for (int fd = 3; fd < MOST_FDS; fd++) {
        int flags = fcntl(fd, F_GETFD);
        CHECK_MESSAGE(before[fd] || flags < 0 || (flags & FD_CLOEXEC) != 0,
                      "descriptor %d is open over exec", fd);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, config.world_size));
    symm_finalize(ctx);
    return 0;
}

static int body_leaks(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    int fds = 0, threads = 0, maps = 0;
    char job_id[64];
    (void)ctx;
    for (int i = 0; i < 20; i++) {
        snprintf(job_id, sizeof(job_id), "leaks-%d-%d", (int)getppid(), i);
        CHECK_ZERO(live_once(s, job_id));
        if (i == 4) { /* the C library has made its own caches by now */
            fds = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
            maps = count_lines("/proc/self/maps");
        }
    }
    CHECK_MESSAGE(count_entries("/proc/self/fd") == fds, "%d descriptors, then %d", fds,
                  count_entries("/proc/self/fd"));
    /* A thread that has been joined is listed for a moment more. */
    for (double end = harness_now() + HARNESS_SOON;
         count_entries("/proc/self/task") > threads && harness_now() < end;)
        harness_sleep(1e-3);
    CHECK_MESSAGE(count_entries("/proc/self/task") <= threads, "%d threads, then %d",
                  threads, count_entries("/proc/self/task"));
    CHECK_MESSAGE(HARNESS_SLOW || count_lines("/proc/self/maps") <= maps + 4,
                  "%d mappings, then %d", maps, count_lines("/proc/self/maps"));
    return 0;
}

static void finalize_leaves_nothing(void **state)
{
    for (int n = 1; n <= 3; n++) {
        struct harness h = simple(state, body_leaks, n);
        h.without_ctx = true;
        assert_int_equal(harness_run(&h), 0);
    }
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(context_after_fork),
        cmocka_unit_test(finalize_leaves_nothing),
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(team_bytes_of_variable),
        cmocka_unit_test(job_of_one),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(duplicate_ranks_are_refused),
        cmocka_unit_test(own_bootstrap),
        cmocka_unit_test(groups),
        cmocka_unit_test(log_goes_to_the_sink),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
