/* SPDX-License-Identifier: MIT */
/*
 * sight_program.c - a job for tests of symm-top and symm-info dump: sight_program MODE.
 *
 *   loop        all_reduce of 8 floats at site "layer 1" in the world and "layer 2" in a team of
 *               the even ranks, until it is killed
 *   rendezvous  rank 2 does not come to a rendezvous
 *   split       rank 2 does not come to a split
 *   create      rank 2 does not come to symm_team_create of all ranks
 *   shrink      rank 2 does not come to symm_team_shrink
 *   differ      after 5 calls at "layer 1" rank 1 makes a call at "layer 3" where others are at
 *               "layer 2"
 *   behind      after 5 calls at "layer 1" rank 1 makes no more
 *   end         5 calls at "layer 1", after which all ranks end
 *   receive     rank 0 receives at "message" from rank 2, which has sent one message of two
 *   signal      rank 1 waits at "flag" for signal 7 of rank 3, which has raised it once; the
 *               others made different calls with one peer, and all meet in one barrier
 * Each rank first prints its process id. Where a call fails the program prints the error and exits with 1.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "symm/symm.h"

#define COUNT ((size_t)8)

static symm_status reduce(symm_team *team, const char *site, size_t count)
{
    const symm_call call = {.size = sizeof(call), .site = site};
    float data[2 * COUNT] = {0};

    return symm_all_reduce(team, data, data, count, SYMM_FLOAT32, SYMM_SUM, &call,
                           NULL);
}

static symm_status loop(symm_team *world)
{
    const int rank = symm_team_rank(world);
    symm_team *even = NULL;
    symm_status status = symm_team_split(world, rank % 2 ? -1 : 0, rank, &even);

    while (status == SYMM_OK) {
        status = reduce(world, "layer 1", COUNT);
        if (status == SYMM_OK && even)
            status = reduce(even, "layer 2", COUNT);
        usleep(1000);
    }
    return status;
}

static symm_status meet(symm_team *world, const char *mode)
{
    static const int all[] = {0, 1, 2, 3};
    symm_team *team;

    if (symm_team_rank(world) == 2)
        sleep(600);
    if (strcmp(mode, "split") == 0)
        return symm_team_split(world, 0, 0, &team);
    if (strcmp(mode, "create") == 0)
        return symm_team_create(world, all, 4, 0, &team);
    if (strcmp(mode, "shrink") == 0)
        return symm_team_shrink(world, &team);
    return symm_rendezvous(world);
}

static symm_status begin(symm_team *world)
{
    symm_status status = SYMM_OK;

    for (int i = 0; i < 5 && status == SYMM_OK; i++)
        status = reduce(world, "layer 1", COUNT);
    return status;
}

static symm_status part(symm_team *world, bool behind)
{
    const int rank = symm_team_rank(world);
    symm_status status = begin(world);

    if (status == SYMM_OK && rank == 1 && behind)
        sleep(600);
    if (status == SYMM_OK)
        status = rank == 1 ? reduce(world, "layer 3", 2 * COUNT)
                           : reduce(world, "layer 2", COUNT);
    return status;
}

static symm_status receive(symm_team *world)
{
    const symm_call call = {.size = sizeof(call), .site = "message"};
    const int rank = symm_team_rank(world);
    float data[COUNT] = {0};
    symm_status status = SYMM_OK;

    if (rank == 2)
        status = symm_send(world, data, COUNT, SYMM_FLOAT32, 0, &call, NULL);
    for (int i = 0; i < 2 && rank == 0 && status == SYMM_OK; i++)
        status = symm_recv(world, data, COUNT, SYMM_FLOAT32, 2, &call, NULL);
    if (status == SYMM_OK)
        sleep(600);
    return status;
}

static symm_status await_signal(symm_team *world)
{
    const symm_call call = {.size = sizeof(call), .site = "flag"};
    const int rank = symm_team_rank(world);
    symm_status status = SYMM_OK;

    if (rank == 3)
        status = symm_signal(world, 1, 7, &call, NULL);
    for (int i = 0; i < 3 && rank == 0 && status == SYMM_OK; i++)
        status = symm_signal(world, 2, i, &call, NULL);
    if (rank == 1)
        status = symm_signal_wait(world, 3, 7, &call, NULL);
    if (status == SYMM_OK)
        status = symm_barrier(world, NULL, NULL);
    if (status == SYMM_OK && rank == 1)
        status = symm_signal_wait(world, 3, 7, &call, NULL);
    if (status == SYMM_OK)
        sleep(600);
    return status;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    symm_ctx *ctx;
    symm_team *world;
    symm_status status = symm_init(NULL, &ctx);

    if (status != SYMM_OK)
        return fprintf(stderr, "sight_program: %s\n", symm_last_error()), 1;
    world = symm_team_world(ctx);
    printf("%ld\n", (long)getpid());
    fflush(stdout);
    if (strcmp(mode, "loop") == 0)
        status = loop(world);
    else if (strcmp(mode, "differ") == 0 || strcmp(mode, "behind") == 0)
        status = part(world, strcmp(mode, "behind") == 0);
    else if (strcmp(mode, "end") == 0)
        status = begin(world);
    else if (strcmp(mode, "receive") == 0)
        status = receive(world);
    else if (strcmp(mode, "signal") == 0)
        status = await_signal(world);
    else
        status = meet(world, mode);
    if (status != SYMM_OK)
        fprintf(stderr, "sight_program: %s\n", symm_last_error());
    if (status != SYMM_OK)
        usleep(500000); /* the launcher ends the others when this one has ended */
    symm_finalize(ctx);
    return status != SYMM_OK;
}
