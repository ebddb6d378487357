/* SPDX-License-Identifier: MIT */
/*
 * test_engine_mpi_library.c - the library with the MPI engine (SYMM_ENGINE), in a program
 * under mpirun: all collectives, sends and receives, teams, on one host and on two.
 * Skipped without MPI.
 * ctest: cost 4
 * ctest: load 3
 */
#include "kernels/launch.h"
#include "mpi_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* All collectives on a team, in two types; on one host the engine is asked for by name. */
static int check_team(symm_team *team, bool by_name)
{
    const symm_call named = {.size = sizeof(named), .algorithm = "engine"};
    const symm_call *call = by_name ? &named : NULL;
    struct mpi_trial t = {.me = symm_team_rank(team), .ranks = symm_team_size(team)};
    static const size_t counts[] = {1, 1000, 100003};
    size_t most = 100003 * (size_t)t.ranks;
    char *in = malloc(most * 4), *out = malloc(most * 4);
    CHECK(in != NULL && out != NULL);
    for (int k = 0; k < 30; k++) {
        bool scatter, gather;
        symm_status status = SYMM_OK;
        t.kind = (enum symm_kind)(1 + k % 5);
        t.dtype = k / 15 ? SYMM_BFLOAT16 : SYMM_INT32;
        t.op = t.ranks % 2 ? SYMM_MAX : SYMM_SUM;
        t.count = counts[k / 5 % 3];
        scatter = t.kind == SYMM_KIND_REDUCE_SCATTER || t.kind == SYMM_KIND_ALL_TO_ALL;
        gather = t.kind == SYMM_KIND_ALL_GATHER || t.kind == SYMM_KIND_ALL_TO_ALL;
        for (size_t i = 0; i < (scatter ? t.count * (size_t)t.ranks : t.count); i++)
            mpi_encode(t.dtype, mpi_given(t.me, i), in + i * symm_dtype_size(t.dtype));
        if (t.kind == SYMM_KIND_ALL_REDUCE)
            status = symm_all_reduce(team, in, out, t.count, t.dtype, t.op, call, NULL);
        else if (t.kind == SYMM_KIND_REDUCE_SCATTER)
            status =
                symm_reduce_scatter(team, in, out, t.count, t.dtype, t.op, call, NULL);
        else if (t.kind == SYMM_KIND_ALL_GATHER)
            status = symm_all_gather(team, in, out, t.count, t.dtype, call, NULL);
        else if (t.kind == SYMM_KIND_BROADCAST)
            status = symm_broadcast(team, in, out, t.count, t.dtype, t.ranks - 1, call,
                                    NULL);
        else
            status = symm_all_to_all(team, in, out, t.count, t.dtype, call, NULL);
        CHECK_STATUS(status, SYMM_OK);
        if (by_name)
            CHECK(strstr(symm_explain(team), "engine") != NULL);
        for (size_t i = 0; i < (gather ? t.count * (size_t)t.ranks : t.count); i++)
            CHECK_ZERO(mpi_check(out, i, t.dtype, mpi_wanted(&t, t.ranks - 1, i),
                                 symm__kind_name(t.kind)));
        CHECK_OK(symm_barrier(team, NULL, NULL));
    }
    free(in);
    free(out);
    return 0;
}

/* To the next rank and from the one before, by one batch and by single calls. */
static int check_ring(symm_team *team, const symm_call *call)
{
    int me = symm_team_rank(team), n = symm_team_size(team);
    int next = (me + 1) % n, last = (me + n - 1) % n;
    const size_t count = 300001;
    int *data = calloc(2 * count, sizeof(*data));
    symm_p2p_op ops[2] = {
        {.size = sizeof(symm_p2p_op), .ptr = data, .count = count, .dtype = SYMM_INT32},
        {.size = sizeof(symm_p2p_op), .ptr = data + count, .count = count}};
    CHECK(data != NULL);
    for (int k = 0; k < 4 && n > 1; k++) {
        int send = k % 2;
        for (size_t i = 0; i < count; i++)
            data[i] = me * 7 + k + (int)i;
        ops[send] = ops[0];
        ops[send].kind = SYMM_P2P_SEND;
        ops[send].ptr = data;
        ops[send].peer = next;
        ops[1 - send] = ops[send];
        ops[1 - send].kind = SYMM_P2P_RECV;
        ops[1 - send].ptr = data + count;
        ops[1 - send].peer = last;
        if (k < 2) {
            CHECK_OK(symm_p2p_batch(team, ops, 2, call, NULL));
        } else if (me == 0) {
            CHECK_OK(symm_send(team, data, count, SYMM_INT32, next, call, NULL));
            CHECK_OK(
                symm_recv(team, data + count, count, SYMM_INT32, last, call, NULL));
        } else {
            CHECK_OK(
                symm_recv(team, data + count, count, SYMM_INT32, last, call, NULL));
            CHECK_OK(symm_send(team, data, count, SYMM_INT32, next, call, NULL));
        }
        for (size_t i = 0; i < count; i++)
            CHECK(data[count + i] == last * 7 + k + (int)i);
    }
    free(data);
    return 0;
}

/* As a program under mpirun uses it. hosts: ranks 0 and 1 are on one, 2 and 3 on another. */
static int rank_library(bool hosts)
{
    symm_config config = {.size = sizeof(config), .backend = "host"};
    const symm_call engine = {.size = sizeof(engine), .algorithm = "engine"};
    symm_team *world, *half = NULL;
    symm_ctx *ctx = NULL;
    char id[32];
    config.timeout = config.init_timeout = HARNESS_AMPLE;
    config.heap_bytes = (size_t)2 << 30;
    config.team_bytes = (size_t)64 << 20;
    int rank = (int)harness_env("OMPI_COMM_WORLD_RANK", harness_env("PMI_RANK", -1));
    snprintf(id, sizeof(id), "half-%d", rank / 2);
    if (hosts)
        setenv("SYMM_HOST_ID", id, 1);
    setenv("SYMM_ENGINE", SYMM_MPI_PLUGIN, 1);
    CHECK_OK(symm_init(&config, &ctx));
    world = symm_team_world(ctx);
    CHECK_ZERO(check_team(world, !hosts));
    CHECK_ZERO(check_ring(world, &engine));
    CHECK_ZERO(check_ring(world, NULL)); /* ranks of one host by their memory */
    CHECK_OK(symm_team_split(world, rank % 2, 0, &half));
    CHECK_ZERO(check_team(half, !hosts));
    CHECK_ZERO(check_ring(half, &engine));
    symm_team_destroy(half);
    if (!hosts) {
        CHECK_OK(symm_team_shrink(world, &half));
        CHECK_ZERO(check_team(half, true));
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    symm_finalize(ctx);
    return 0;
}

static void through_the_library(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(2, "library"), 0);
    assert_int_equal(mpi_start(4, "library"), 0);
}

static void two_hosts_of_two(void **state)
{
    (void)state;
    assert_int_equal(mpi_start(4, "hosts"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_the_library),
        cmocka_unit_test(two_hosts_of_two),
    };
    if (argc == 3 && strcmp(argv[1], "rank") == 0) {
        if (rank_library(strcmp(argv[2], "hosts") == 0) != 0)
            _exit(1); /* the others are waiting */
        return 0;
    }
    mpi_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
