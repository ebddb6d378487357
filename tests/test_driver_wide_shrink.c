/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wide_shrink.c - the survivors' team over several hosts on the CUDA backend, over the
 * fake driver and the fake NCCL: ranks die while the others are in kernels and in NCCL; the new
 * team makes communicators of its own, whichever of the old ones stood.
 */
/* ctest: cost 15 */
#include "engine_stage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT  ((size_t)1001)
#define BIT(r) (1u << (r))

struct shared {
    char host[8]; /* by rank: a letter */
    int ranks;
    unsigned dead;
    _Atomic int ready, over;
    double seconds[8];
};

static void configure(symm_config *config, int rank, void *arg)
{
    const struct shared *shared = arg;
    char host[2] = {shared->host[rank], '\0'};

    (void)config;
    setenv("SYMM_HOST_ID", host, 1);
}

static symm_status sum(struct engine_stage *s, symm_team *team, const symm_call *call)
{
    symm_work *work = NULL;
    symm_status status = symm_all_reduce(team, s->in.device, s->out.device, COUNT,
                                         SYMM_INT32, SYMM_SUM, call, &work);

    if (status != SYMM_OK)
        return status;
    status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    return status;
}

/* Sums by kernels and the rail, blocks by the communicator of all ranks. */
static int check_works(struct engine_stage *s, symm_team *team, const symm_call *call)
{
    int n = symm_team_size(team), me = symm_team_world_rank(team, symm_team_rank(team));
    int32_t *in = (void *)s->in.host, *out = (void *)s->out.host, wanted = 0;

    for (int m = 0; m < n; m++)
        wanted += 1000 * symm_team_world_rank(team, m);
    for (size_t i = 0; i < COUNT * (size_t)n; i++)
        in[i] = 1000 * me + (int32_t)(i % 7);
    CHECK_ZERO(device_put(&s->in, 0, COUNT * (size_t)n * 4));
    for (int k = 0; k < 3; k++)
        CHECK_OK(sum(s, team, call));
    CHECK_ZERO(device_get(&s->out, 0, COUNT * 4));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(out[i] == wanted + n * (int32_t)(i % 7), "sum at %zu", i);
    CHECK_OK(symm_all_to_all(team, s->in.device, s->out.device, COUNT, SYMM_INT32, call,
                             NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    CHECK_ZERO(device_get(&s->out, 0, COUNT * (size_t)n * 4));
    for (size_t i = 0; i < COUNT * (size_t)n; i++)
        CHECK_MESSAGE(
            out[i] ==
                1000 * symm_team_world_rank(team, (int)(i / COUNT)) +
                    (int32_t)((COUNT * (size_t)symm_team_rank(team) + i % COUNT) % 7),
            "all_to_all at %zu", i);
    CHECK_OK(symm_barrier(team, call, NULL));
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    unsigned wanted = (BIT(shared->ranks) - 1) & ~shared->dead;
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "shrink"};
    symm_team *team = NULL, *again = NULL;
    symm_status status = SYMM_OK;
    double start;

    CHECK_ZERO(engine_open(&s, ctx));
    call.stream = s.stream;
    CHECK_ZERO(check_works(&s, s.team, &call));
    atomic_fetch_add(&shared->ready, 1);
    if (shared->dead & BIT(s.rank)) {
        CHECK(harness_until(&shared->ready, shared->ranks));
        raise(SIGKILL);
    }
    while (status == SYMM_OK)
        status = sum(&s, s.team, &call);
    CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
    start = harness_now();
    CHECK_OK(symm_team_shrink(s.team, &team));
    shared->seconds[s.rank] = harness_now() - start;
    for (int i = 0; symm_team_size(team) != __builtin_popcount(wanted); i++) {
        CHECK(i < 8); /* one died after it had begun */
        do
            status = sum(&s, team, &call);
        while (status == SYMM_OK);
        CHECK_OK(symm_team_shrink(team, &again));
        symm_team_destroy(team);
        team = again;
    }
    CHECK_ZERO(check_works(&s, team, &call));
    CHECK_OK(symm_team_shrink(team, &again));
    symm_team_destroy(team);
    CHECK_ZERO(check_works(&s, again, &call));
    symm_team_destroy(again);
    atomic_fetch_add(&shared->over, 1);
    CHECK(harness_until(&shared->over, __builtin_popcount(wanted)));
    engine_close(&s);
    return 0;
}

static void survivors_go_on(void **state)
{
    static const struct {
        const char *host;
        unsigned dead;
    } cases[] = {{"aabbcc", BIT(2) | BIT(3)},
                 {"aabbcc", BIT(1) | BIT(4)},
                 {"aabb", BIT(0) | BIT(1)},
                 {"aabbc", BIT(0)}};
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct harness h = {.body = body, .arg = shared, .configure = configure};
        double longest = 0;

        memset(shared, 0, sizeof(*shared));
        snprintf(shared->host, sizeof(shared->host), "%s", cases[i].host);
        shared->ranks = (int)strlen(shared->host);
        shared->dead = cases[i].dead;
        h.ranks = shared->ranks;
        h.heap_bytes = (size_t)4 << 30; /* three teams over hosts at a time, of two slots each */
        h.killed = shared->dead;
        assert_int_equal(harness_run(&h), 0);
        for (int r = 0; r < shared->ranks; r++)
            longest = shared->seconds[r] > longest ? shared->seconds[r] : longest;
        fprintf(stderr, "%s without %#x: a team after %.1f ms\n", shared->host,
                shared->dead, longest * 1e3);
    }
    harness_shared_free(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_go_on)};

    engine_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
