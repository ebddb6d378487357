/* SPDX-License-Identifier: MIT */
/*
 * test_host_forked_child.c - ranks of two hosts: a rank is killed while its forked child
 * lives on. The other rank must detect the death at once, not by its timeout.
 */
#include "harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/clock.h"

#define DEADLINE 60.0

enum when { NO_CHILD, AFTER_INIT, CHILD_OF_CHILD, FINALIZES, WHENS };

static struct shared {
    _Atomic int given, ready;
    _Atomic pid_t child;
    unsigned char entry[2][4096];
    symm_status status;
    double took;
    char sentence[512];
} * shared;
static int me;

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    (void)arg;
    memcpy(shared->entry[me], in, bytes);
    shared->given++;
    while (shared->given < 2)
        symm__sleep(0.001);
    memcpy(out, shared->entry[0], bytes);
    memcpy((char *)out + bytes, shared->entry[1], bytes);
    return 0;
}

static void child_main(symm_ctx *ctx, enum when when)
{
    prctl(PR_SET_PDEATHSIG, 0);
    if (when == CHILD_OF_CHILD && fork() > 0)
        _exit(0);
    if (when == FINALIZES)
        symm_finalize(ctx);
    shared->child = getpid();
    sleep(120);
    _exit(0);
}

static void rank_main(int rank, enum when when)
{
    symm_bootstrap bootstrap = {.size = sizeof(bootstrap), .allgather = allgather};
    symm_config config = {.size = sizeof(config),
                          .backend = "host",
                          .world_size = 2,
                          .rank = rank,
                          .local_size = 1,
                          .bootstrap = &bootstrap,
                          .heap_bytes = (size_t)64 << 20,
                          .init_timeout = HARNESS_AMPLE,
                          .timeout = DEADLINE};
    symm_ctx *ctx = NULL;
    double start;

    me = rank;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SYMM_HOST_ID", rank ? "host-b" : "host-a", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_ENGINE", "none", 1);
    if (symm_init(&config, &ctx) != SYMM_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, symm_last_error());
        _exit(1);
    }
    if (rank == 1) {
        if (when != NO_CHILD && fork() == 0)
            child_main(ctx, when);
        while (when != NO_CHILD && shared->child == 0)
            symm__sleep(0.001);
        shared->ready = 1;
        for (;;)
            pause();
    }
    start = symm__now();
    shared->status = symm_rendezvous(symm_team_world(ctx));
    shared->took = symm__now() - start;
    snprintf(shared->sentence, sizeof(shared->sentence), "%s", symm_last_error());
    _exit(0);
}

static void test_killed(void **state)
{
    (void)state;
    for (int when = 0; when < WHENS; when++) {
        pid_t pid[2];
        int ended;

        memset(shared, 0, sizeof(*shared));
        for (int r = 0; r < 2; r++)
            if ((pid[r] = fork()) == 0)
                rank_main(r, (enum when)when);
        while (!shared->ready && waitpid(pid[1], &ended, WNOHANG) == 0)
            symm__sleep(0.001);
        kill(pid[1], SIGKILL);
        waitpid(pid[1], &ended, 0);
        waitpid(pid[0], &ended, 0);
        if (shared->child > 0)
            kill(shared->child, SIGKILL);
        assert_int_equal(ended, 0);
        if (shared->status != SYMM_ERR_PEER_DEAD || shared->took > DEADLINE / 2)
            fail_msg("case %d: %s after %.1f s: %s", when,
                     symm_status_name(shared->status), shared->took, shared->sentence);
        assert_non_null(strstr(shared->sentence, "rank 1"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed)};

    harness_clear_environment();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || cmocka_run_group_tests(tests, NULL, NULL);
}
