/* SPDX-License-Identifier: MIT */
/*
 * test_host_file_limit.c - a limit on the size of files (RLIMIT_FSIZE) that is met in the middle of
 * a job: what the library writes for the rank is a line of log, and a file that the program asked for
 * an error; the signal, which by default ends a process, is never seen. The same of a pipe whose
 * reader goes away.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "harness.h"
#include "symm/tools.h"
#include "util/file.h"

static char folder[] = "/tmp/symm-limit-XXXXXX";
static _Atomic int *go;

static void set(const char *name, const char *file)
{
    char path[128];

    snprintf(path, sizeof(path), "%s%s", folder, file);
    setenv(name, path, 1);
}

static void limit_files(void)
{
    const struct rlimit small = {256, RLIM_INFINITY};

    signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &small) != 0)
        exit(1);
}

/* The program's own writes are as before: the signal is not blocked, and none is left. */
static int check_signals(void)
{
    sigset_t is;

    CHECK_ZERO(sigpending(&is));
    CHECK(!sigismember(&is, SIGXFSZ) && !sigismember(&is, SIGPIPE));
    CHECK_ZERO(pthread_sigmask(SIG_BLOCK, NULL, &is));
    CHECK(!sigismember(&is, SIGXFSZ) && !sigismember(&is, SIGPIPE));
    return 0;
}

static int check_fd(symm_ctx *ctx)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/heap%d", folder, harness_rank());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_STATUS(symm_heap_write(ctx, fd, "json"), SYMM_ERR_SYSTEM);
    CHECK(strstr(symm_last_error(), strerror(EFBIG)) != NULL);
    CHECK_STATUS(symm_topology_write(fd, "json"), SYMM_ERR_SYSTEM);
    CHECK(strstr(symm_last_error(), strerror(EFBIG)) != NULL);
    close(fd);
    return check_signals();
}

/* Takes a page once the pipe is full, so that the writer has written some, then goes away. */
static void *read_page(void *arg)
{
    const int fd = *(const int *)arg;
    char page[4096];

    for (int is = 0; is < (int)sizeof(page); harness_sleep(0.01))
        if (ioctl(fd, FIONREAD, &is) != 0)
            abort();
    if (read(fd, page, sizeof(page)) < 0)
        abort();
    harness_sleep(0.05);
    close(fd);
    return NULL;
}

/* A pipe raises SIGPIPE also where it returns that a part has been written. */
static int check_pipe(const char *text, size_t bytes)
{
    pthread_t reader;
    int fd[2];

    signal(SIGPIPE, SIG_DFL);
    CHECK_ZERO(pipe2(fd, O_CLOEXEC));
    CHECK(fcntl(fd[1], F_SETPIPE_SZ, 4096) == 4096);
    CHECK_ZERO(pthread_create(&reader, NULL, read_page, &fd[0]));
    CHECK(symm__write_all(fd[1], text, bytes) == EPIPE);
    CHECK_ZERO(pthread_join(reader, NULL));
    close(fd[1]);
    return check_signals();
}

static int pipe_body(symm_ctx *ctx, void *arg)
{
    const size_t bytes = 1 << 16;
    char *text = calloc(1, bytes);
    int failed;

    (void)ctx, (void)arg;
    CHECK(text != NULL);
    failed = check_pipe(text, bytes);
    free(text);
    return failed;
}

static void test_pipe(void **state)
{
    struct harness h = {.ranks = 1, .body = pipe_body};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

static int body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_call options = {.size = sizeof(options), .timeout = 0.1, .site = "alone"};
    float x[4] = {0};

    (void)arg;
    CHECK_OK(symm_all_reduce(team, x, x, 4, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    limit_files();
    harness_sleep(0.3); /* some files of metrics */
    if (check_fd(ctx) != 0)
        return 1;
    if (harness_rank() == 1) {
        CHECK(harness_until(go, 1));
        return 0;
    }
    CHECK_STATUS(symm_all_reduce(team, x, x, 4, SYMM_FLOAT32, SYMM_SUM, &options, NULL),
                 SYMM_ERR_TIMEOUT);
    atomic_fetch_add(go, 1);
    return check_signals();
}

static void test_files(void **state)
{
    struct harness h = {.ranks = 2, .body = body};

    (void)state;
    set("SYMM_METRICS_FILE", "/metrics%r");
    setenv("SYMM_METRICS_INTERVAL", "0.05", 1);
    set("SYMM_DUMP", "");
    set("SYMM_TRACE", "/trace%r.json");
    set("SYMM_RECORD", "/record");
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pipe),
                                       cmocka_unit_test(test_files)};
    char command[96];
    int failed;

    go = mmap(NULL, sizeof(*go), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
              0);
    if (go == MAP_FAILED || !mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? failed : 1;
}
