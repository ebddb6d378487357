/* SPDX-License-Identifier: MIT */
/*
 * test_driver_shrink.c - the survivors' team on the CUDA backend: a rank dies while the others
 * wait for it in a kernel, or is late; the other ranks then reduce in their new team. On GPUs
 * (SYMM_TEST_GPU=1) with up to 4 of them; of two ranks the survivor is alone.
 * ctest: cost 10
 */
#include "device.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4 /* most */

struct shared {
    struct harness_sync sync;
    int victim;
    bool late;        /* it does not die, but comes when the others have gone on */
    double timeout;   /* of everything, if late */
    _Atomic int good; /* ranks whose new team has all but the victim */
};

/* Calls whose kernels wait for the victim, until the team fails. */
static int ruin(symm_team *team, struct perf_gpu *gpu, symm_status wanted)
{
    struct device_area data;
    symm_status status = SYMM_OK;
    CHECK_ZERO(device_area_open(&data, gpu, NULL, 4096));
    while (status == SYMM_OK) {
        symm_work *work = NULL;
        status = symm_all_reduce(team, data.device, data.device, 1000, SYMM_FLOAT32,
                                 SYMM_MAX, NULL, &work);
        if (status == SYMM_OK)
            status = symm_work_synchronize(work, HARNESS_AMPLE);
        symm_work_release(work);
    }
    CHECK_MESSAGE(status == wanted, "%s: %s", symm_status_name(status),
                  symm_last_error());
    device_area_close(&data);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *again = NULL;
    struct perf_gpu *gpu = device_open(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world);
    CHECK(gpu != NULL);
    if (!s->late)
        CHECK_ZERO(device_sums(world, gpu, true));
    CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (me == s->victim && !s->late)
        kill(getpid(), SIGKILL);
    if (me != s->victim) {
        CHECK_ZERO(ruin(world, gpu, s->late ? SYMM_ERR_TIMEOUT : SYMM_ERR_PEER_DEAD));
        symm_status status = symm_team_shrink(world, &team);
        if (!s->late)
            CHECK_STATUS(status, SYMM_OK);
        if (status == SYMM_OK && symm_team_size(team) == n - 1)
            atomic_fetch_add(&s->good, 1);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, s->late ? n : n - 1));
    if (me == s->victim) {
        CHECK_STATUS(symm_team_shrink(world, &team), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("too late");
    } else if (team && symm_team_size(team) == n - 1) {
        CHECK_ZERO(device_sums(team, gpu, true));
        CHECK_ZERO(device_sums(team, gpu, false));
        symm_status status = symm_team_shrink(team, &again);
        symm_team_destroy(team);
        if (s->late && status == SYMM_ERR_TIMEOUT) { /* more patience: see late_ranks */
            atomic_fetch_sub(&s->good, 1);
        } else {
            CHECK_STATUS(status, SYMM_OK);
            CHECK_ZERO(device_sums(again, gpu, false));
            CHECK(symm_barrier(world, NULL, NULL) != SYMM_OK);
        }
    } else {
        CHECK(s->late);
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, s->late ? n : n - 1));
    perf_gpu_close(gpu);
    return 0;
}

static void configure(symm_config *config, int rank, void *arg)
{
    const struct shared *s = arg;
    (void)rank;
    if (s->late)
        config->timeout = s->timeout;
}

static struct harness job(struct shared *s, int victim, bool late)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(s, 0, sizeof(*s));
    s->victim = victim;
    s->late = late;
    h.ranks = device_ranks(RANKS);
    h.body = body;
    h.arg = s;
    h.configure = configure;
    h.killed = late ? 0 : 1u << victim;
    return h;
}

static void a_dead_rank(void **state)
{
    for (int victim = 0; victim < device_ranks(RANKS); victim++) {
        struct harness h = job(*state, victim, false);
        assert_int_equal(harness_run(&h), 0);
    }
}

static void late_ranks(void **state)
{
    struct shared *s = *state;
    for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++) {
        double timeout;
        HARNESS_PATIENCE(timeout, 2.0)
        {
            struct harness h = job(s, mode, true);
            s->timeout = timeout;
            h.mode = (enum harness_mode)mode;
            assert_int_equal(harness_run(&h), 0);
            if (s->good == h.ranks - 1)
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(a_dead_rank),
                                 cmocka_unit_test(late_ranks)};
    device_suite();
    if (device_ranks(RANKS) < 2) {
        printf("one GPU: nobody survives\n");
        return 77;
    }
    struct shared *shared = harness_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
