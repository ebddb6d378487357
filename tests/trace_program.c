/* SPDX-License-Identifier: MIT */
/*
 * trace_program.c - what the tests of SYMM_TRACE trace. Makes the calls of each kind that the
 * arguments ask for and prints, for each rank, "rank R OP N": how many slices there have to be.
 *
 *     trace_program [calls=N] [streams=N] [puts=N] [barriers=N] [late=MS] [linger] [fail] [die]
 *
 * late: rank 1 comes so late to a call; linger: all sleep as long after it. fail: rank 1 leaves a
 * call out, for a timeout. die: rank 1 is killed in the end.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "symm/symm.h"

static int rank;
static float *data; /* symmetric memory */

static void check(symm_status status, const char *what)
{
    if (status == SYMM_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, symm_last_error());
    exit(1);
}

static symm_status reduce(symm_team *team, const char *site, void *stream,
                          double timeout)
{
    const symm_call call = {
        .size = sizeof(call), .site = site, .stream = stream, .timeout = timeout};

    return symm_all_reduce(team, data, data, 2, SYMM_FLOAT32, SYMM_SUM, &call, NULL);
}

static int argument(int argc, char **argv, const char *name)
{
    const size_t length = strlen(name);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0)
            return argv[i][length] == '=' ? atoi(argv[i] + length + 1) : 1;
    return 0;
}

static void report(const char *op, int count)
{
    if (count > 0)
        printf("rank %d %s %d\n", rank, op, count);
}

static void doze(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static int all_reduces(symm_ctx *ctx, int argc, char **argv)
{
    symm_team *world = symm_team_world(ctx);
    const int calls = argument(argc, argv, "calls");
    const int streams = argument(argc, argv, "streams");
    const int late = argument(argc, argv, "late");
    void *stream;

    check(symm_stream_create(ctx, &stream), "stream");
    for (int i = 0; i < calls; i++)
        check(reduce(world, i % 2 ? "say \"\\" : NULL, NULL, 0), "all_reduce");
    for (int i = 0; i < streams; i++)
        check(reduce(world, "queued", stream, 0), "all_reduce on a stream");
    check(symm_stream_synchronize(ctx, stream, 0), "synchronize");
    symm_stream_destroy(ctx, stream);
    if (late > 0) {
        if (rank == 1)
            doze(late);
        check(reduce(world, "late", NULL, 0), "late all_reduce");
        if (argument(argc, argv, "linger")) {
            check(symm_stream_synchronize(ctx, NULL, 0), "synchronize");
            doze(late);
        }
    }
    return calls + streams + (late > 0);
}

static void others(symm_team *world, int size, int argc, char **argv)
{
    const int puts = argument(argc, argv, "puts");
    const int barriers = argument(argc, argv, "barriers");

    for (int i = 0; i < puts; i++)
        check(symm_put(world, data, data, 64, (rank + 1) % size, NULL, NULL), "put");
    for (int i = 0; i < barriers; i++)
        check(symm_barrier(world, NULL, NULL), "barrier");
    check(symm_barrier(world, NULL, NULL), "last barrier");
    report("put", puts);
    report("barrier", barriers + 1);
}

/* Rank 1 leaves a call out, and waits for a signal that is never raised instead. */
static int fail(symm_team *world)
{
    symm_status status = rank == 1 ? symm_signal_wait(world, 0, 5, NULL, NULL)
                                   : reduce(world, "alone", NULL, 0.1);

    if (status != SYMM_ERR_TIMEOUT) {
        fprintf(stderr, "rank %d: no timeout: %s\n", rank, symm_last_error());
        exit(1);
    }
    report("signal_wait", rank == 1);
    return rank != 1;
}

int main(int argc, char **argv)
{
    symm_config config = {.size = sizeof(config)};
    symm_info info = {.size = sizeof(info)};
    symm_buffer *buffer;
    symm_ctx *ctx;
    int made;

    check(symm_init(&config, &ctx), "init");
    check(symm_ctx_info(ctx, &info), "info");
    rank = info.rank;
    check(symm_buffer_alloc(symm_team_world(ctx), 64, &buffer), "alloc");
    check(symm_rendezvous(symm_team_world(ctx)), "rendezvous");
    data = symm_buffer_ptr(buffer);
    made = all_reduces(ctx, argc, argv);
    others(symm_team_world(ctx), info.world_size, argc, argv);
    if (argument(argc, argv, "fail"))
        made += fail(symm_team_world(ctx));
    report("all_reduce", made);
    fflush(stdout);
    if (argument(argc, argv, "die") && rank == 1) {
        sleep(1); /* so much longer than the trace takes */
        raise(SIGKILL);
    }
    symm_buffer_release(buffer);
    symm_finalize(ctx);
    return 0;
}
