/* SPDX-License-Identifier: MIT */
/*
 * test_host_closed_streams.c - ranks without standard streams, closed before symm_init or after it:
 * what they write there all the same reaches no peer and no buffer. ctest: no-threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "symm/symm.h"

#define RANKS 2
#define COUNT 300000 /* larger than what the text is written over */

static void close_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        close(fd);
}

/* False: some descriptor of the library has taken the text. */
static bool scribble(void)
{
    bool taken = false;

    for (int fd = 0; fd < 3; fd++)
        taken = write(fd, "what nobody reads", 17) >= 0 || taken;
    return !taken;
}

/* The exit status of a rank: 0, or the step that failed. */
static int rank_main(const char *job, int rank, bool before)
{
    const symm_config config = {.size = sizeof(config),
                                .backend = "host",
                                .world_size = RANKS,
                                .rank = rank,
                                .job_id = job,
                                .heap_bytes = (size_t)1 << 30,
                                .team_bytes = (size_t)8 << 20,
                                .timeout = 20};
    symm_ctx *ctx;
    symm_team *world, *team;
    symm_buffer *buffer;
    float *x;

    if (before)
        close_streams();
    if (symm_init(&config, &ctx) != SYMM_OK)
        return 1;
    if (!before)
        close_streams();
    else if (!scribble())
        return 2;
    world = symm_team_world(ctx);
    if (symm_buffer_alloc(world, COUNT * sizeof(float), &buffer) != SYMM_OK)
        return 3;
    if (!scribble())
        return 4;
    if (symm_rendezvous(world) != SYMM_OK)
        return 5;
    x = symm_buffer_ptr(buffer);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(rank + 1);
    if (symm_team_split(world, 0, 0, &team) != SYMM_OK)
        return 6;
    if (!scribble())
        return 7;
    if (symm_all_reduce(team, x, x, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL, NULL) !=
        SYMM_OK)
        return 8;
    for (int i = 0; i < COUNT; i++)
        if (x[i] != 3)
            return 9;
    if (symm_barrier(world, NULL, NULL) != SYMM_OK)
        return 10;
    symm_finalize(ctx);
    return 0;
}

static void run(bool before)
{
    char job[64];
    pid_t child[RANKS];
    int end;

    snprintf(job, sizeof(job), "closed-%d-%d", (int)getpid(), before);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        child[r] = fork();
        if (child[r] == 0)
            _exit(rank_main(job, r, before));
        assert_true(child[r] > 0);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(child[r], &end, 0), child[r]);
        assert_true(WIFEXITED(end));
        assert_int_equal(WEXITSTATUS(end), 0);
    }
}

static void test_before(void **state)
{
    (void)state;
    run(true);
}

static void test_after(void **state)
{
    (void)state;
    run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_before),
                                       cmocka_unit_test(test_after)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
