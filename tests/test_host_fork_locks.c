/* SPDX-License-Identifier: MIT */
/*
 * test_host_fork_locks.c - a process forks while its other threads are in the library, so that locks
 * of the process are held: the child makes a context of its own, allocates, records and finalizes.
 * ctest: cost 3
 * ctest: load 2
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness.h"

static atomic_bool stop;

static symm_ctx *open_alone(const char *kind)
{
    char job[64];
    symm_ctx *ctx = NULL;
    symm_config config = {.size = sizeof(config),
                          .job_id = job,
                          .world_size = 1,
                          .backend = "host",
                          .heap_bytes = (size_t)64 << 20};

    snprintf(job, sizeof(job), "%s%d", kind, (int)getpid());
    return symm_init(&config, &ctx) == SYMM_OK ? ctx : NULL;
}

/* Some buffers. 0: right. */
static int use(symm_ctx *ctx)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer[8] = {NULL};
    int failed = 0;

    for (int i = 0; i < 8; i++)
        failed |= symm_buffer_alloc(team, 4096, &buffer[i]) != SYMM_OK;
    for (int i = 0; i < 8; i++)
        symm_buffer_release(buffer[i]);
    return failed || symm_rendezvous(team) != SYMM_OK;
}

static void *allocate(void *arg)
{
    while (!atomic_load(&stop))
        if (use(arg) != 0)
            abort();
    return NULL;
}

static void *begin_and_end(void *arg)
{
    while (!atomic_load(&stop)) {
        symm_ctx *ctx = open_alone(arg);

        if (!ctx)
            abort();
        symm_finalize(ctx);
    }
    return NULL;
}

static _Noreturn void child_main(symm_ctx *parents)
{
    symm_ctx *ctx;

    alarm((unsigned)HARNESS_AMPLE);
    signal(SIGALRM, SIG_DFL);
    if (symm_barrier(symm_team_world(parents), NULL, NULL) != SYMM_ERR_FORKED)
        _exit(2);
    symm_finalize(parents);
    ctx = open_alone("child");
    if (!ctx || use(ctx) != 0)
        _exit(3);
    symm_finalize(ctx);
    _exit(0);
}

static void test_forks(void **state)
{
    const int forks = 120;
    char folder[] = "/tmp/symm-forks-XXXXXX", command[64];
    pthread_t thread[4];
    symm_ctx *ctx;

    (void)state;
    if (HARNESS_SLOW)
        skip(); /* sanitizers do not make their own locks anew, nor allow threads there */
    assert_non_null(mkdtemp(folder));
    setenv("SYMM_RECORD", folder, 1);
    ctx = open_alone("parent");
    assert_non_null(ctx);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, allocate, ctx), 0);
    assert_int_equal(pthread_create(&thread[3], NULL, begin_and_end, (char[]){"other"}),
                     0);
    for (int i = 0; i < forks; i++) {
        int status;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0)
            child_main(ctx);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    symm_finalize(ctx);
    unsetenv("SYMM_RECORD");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
