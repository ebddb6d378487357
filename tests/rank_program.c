/* SPDX-License-Identifier: MIT */
/*
 * rank_program.c - one program for every launcher: joins by the environment and checks.
 *
 * Uses symm.h and the C library only. Checks an all_reduce, a ring of put_signal and a
 * split, prints "rank R of N by SOURCE: ok" and exits with 0, or prints the error and
 * exits with 1. With --hold-port it binds a free TCP port of 127.0.0.1, prints its number
 * and sleeps, like a launcher that keeps MASTER_PORT open itself.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "symm/symm.h"

#define ELEMENTS                                                                       \
    10000 /* of the all_reduce; the ring has 128 of its own behind them                \
           */
#define RING 128

static int fail(const char *what, symm_status status)
{
    fprintf(stderr, "rank_program: %s: %s: %s\n", what, symm_status_name(status),
            status != SYMM_OK ? symm_last_error() : "wrong result");
    return 1;
}

static int check_all_reduce(symm_team *team, float *data)
{
    int me = symm_team_rank(team), n = symm_team_size(team);
    for (int step = 0; step < 100; step++) {
        symm_status status;
        for (int i = 0; i < ELEMENTS; i++)
            data[i] = (float)(me + step + i % 100);
        status = symm_all_reduce(team, data, data, ELEMENTS, SYMM_FLOAT32, SYMM_SUM,
                                 NULL, NULL);
        if (status != SYMM_OK)
            return fail("all_reduce", status);
        for (int i = 0; i < ELEMENTS; i++) {
            if (data[i] != (float)(n * (step + i % 100) + n * (n - 1) / 2))
                return fail("all_reduce", SYMM_OK);
        }
    }
    return 0;
}

static int check_ring(symm_team *team, float *data)
{
    int me = symm_team_rank(team), n = symm_team_size(team);
    int right = (me + 1) % n, left = (me + n - 1) % n;
    for (int step = 1; step <= 100; step++) {
        float value = (float)(step * 1000 + me);
        symm_status status = symm_put_signal(team, &data[step], &value, sizeof(value),
                                             right, 17, NULL, NULL);
        if (status != SYMM_OK)
            return fail("put_signal", status);
        status = symm_signal_wait(team, left, 17, NULL, NULL);
        if (status != SYMM_OK)
            return fail("signal_wait", status);
        if (data[step] != (float)(step * 1000 + left))
            return fail("put_signal", SYMM_OK);
    }
    return 0;
}

static int check_split(symm_team *world)
{
    int me = symm_team_rank(world), n = symm_team_size(world), wanted = 0, sum = 0;
    symm_team *team = NULL;
    symm_status status = symm_team_split(world, me % 2, -me, &team);
    if (status != SYMM_OK)
        return fail("team_split", status);
    for (int p = me % 2; p < n; p += 2)
        wanted += p;
    status = symm_all_reduce(team, &me, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL);
    if (status != SYMM_OK)
        return fail("all_reduce of a split", status);
    if (sum != wanted || symm_team_world_rank(team, symm_team_rank(team)) != me)
        return fail("all_reduce of a split", SYMM_OK);
    symm_team_destroy(team);
    return 0;
}

static int check(symm_ctx *ctx)
{
    const int64_t shape = ELEMENTS + RING, stride = 1;
    symm_team *world = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    int failed;
    symm_status status =
        symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_FLOAT32, 1, &buffer);
    if (status != SYMM_OK)
        return fail("empty_strided_p2p", status);
    status = symm_rendezvous(world);
    if (status != SYMM_OK)
        return fail("rendezvous", status);
    float *data = symm_buffer_ptr(buffer);
    failed = check_all_reduce(world, data) || check_ring(world, data + ELEMENTS) ||
             check_split(world);
    symm_buffer_release(buffer);
    status = failed ? SYMM_OK : symm_barrier(world, NULL, NULL);
    return status != SYMM_OK ? fail("barrier", status) : failed;
}

static int hold_port(void)
{
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        perror("rank_program: --hold-port");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    sleep(300);
    return 0;
}

int main(int argc, char **argv)
{
    symm_ctx *ctx = NULL;
    symm_info info;
    symm_status status;
    int failed;
    if (argc == 2 && strcmp(argv[1], "--hold-port") == 0)
        return hold_port();
    status = symm_init(NULL, &ctx);
    if (status != SYMM_OK)
        return fail("init", status);
    memset(&info, 0, sizeof(info));
    info.size = sizeof(info);
    status = symm_ctx_info(ctx, &info);
    failed = status != SYMM_OK ? fail("ctx_info", status) : check(ctx);
    if (!failed)
        printf("rank %d of %d by %s: ok\n", info.rank, info.world_size,
               info.job_source);
    symm_finalize(ctx);
    return failed;
}
