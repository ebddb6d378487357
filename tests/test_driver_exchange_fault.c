/* SPDX-License-Identifier: MIT */
/*
 * test_driver_exchange_fault.c - exchanges of a program's own kernels (symm/device_exchange.h)
 * that fail: the next call on the team returns a sentence that names the rank and the
 * exchange. The functions run as host code on the fake driver's memory.
 * ctest: cost 10
 * ctest: load 3
 */
#include <sched.h>
/* before symm/device.h: there may be fewer processors than ranks */
#define SYMM_DEVICE_PAUSE() sched_yield()

#include "device.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "symm/device_exchange.h"

#define UNITS 64u
#define TAG   42u

enum change { NONE, OTHER_TAG, OTHER_UNITS, NEVER, KEPT_BACK, FINALIZED, CHANGES };

struct scene {
    struct harness_sync sync;
    enum change change;
};

/* Three exchanges of one block and one thread, each with units of its own. 0, or what failed. */
static int exchange(const struct symm_device_team *team, void *memory,
                    enum change change)
{
    struct symm_device_exchange x = {memory, UNITS, UNITS, 0, 1, TAG, 0};
    uint64_t value;
    int status = 0;

    x.tag += change == OTHER_TAG;
    x.units -= change == OTHER_UNITS;
    for (uint32_t k = 0; k < 3 && status == 0; k++) {
        status = symm_device_exchange_begin(team, &x);
        for (int p = 0; p < team->size && status == 0; p++) {
            symm_device_exchange_tell(team, &x, p);
            for (uint32_t i = change == KEPT_BACK && k == 2; i < x.units; i++)
                symm_device_exchange_push(team, &x, p, i, 1000 * k + i);
        }
        for (int p = 0; p < team->size && status == 0; p++)
            for (uint32_t i = 0; i < x.units && status == 0; i++) {
                status = symm_device_exchange_wait(team, &x, p, i, &value);
                if (status == 0 && value != 1000 * k + i)
                    return 100;
            }
        for (int p = 0; p < team->size && status == 0; p++)
            status = symm_device_exchange_meet(team, &x, p);
        if (status == 0)
            status = symm_device_exchange_end(team, &x);
    }
    return status;
}

static int check_failure(symm_team *team, enum change change, int rank, uint64_t offset)
{
    static const symm_status wanted[CHANGES] = {[OTHER_TAG] = SYMM_ERR_MISMATCH,
                                                [OTHER_UNITS] = SYMM_ERR_MISMATCH,
                                                [NEVER] = SYMM_ERR_TIMEOUT,
                                                [KEPT_BACK] = SYMM_ERR_TIMEOUT,
                                                [FINALIZED] = SYMM_ERR_PEER_DEAD};
    static const char *const words[CHANGES] = {
        [OTHER_TAG] = "exchange number 1 of 64 units in 1 blocks (tag 0000002b)",
        [OTHER_UNITS] = "exchange number 1 of 63 units in 1 blocks (tag 0000002a)",
        [NEVER] = "rank 1 did not come to exchange number 1 of 64 units",
        [KEPT_BACK] = "did not send all of exchange number 3 of 64 units",
        [FINALIZED] = "rank 1"};
    symm_status status;
    char at[64];

    if (rank == 1 && (change == NEVER || change == KEPT_BACK)) /* waits for nothing */
        return 0;
    status = symm_barrier(team, NULL, NULL);
    CHECK_MESSAGE(status == wanted[change], "change %d: %s, %s", (int)change,
                  symm_status_name(status), symm_last_error());
    CHECK_ERROR(words[change]);
    snprintf(at, sizeof(at), " in the workspace at offset %" PRIu64, offset);
    CHECK_ERROR(at);
    return 0;
}

/* Of a workspace, in this rank's heap. */
static uint64_t offset_of(const struct symm_device_team *team,
                          const symm_buffer *buffer)
{
    return (uint64_t)((const char *)symm_buffer_ptr(buffer) - team->base[team->rank]);
}

static int scenario(symm_ctx *ctx, void *arg)
{
    struct scene *scene = arg;
    symm_team *team = symm_team_world(ctx);
    const int rank = symm_team_rank(team);
    const enum change change = rank == 1 ? scene->change : NONE;
    symm_buffer *buffer;
    const void *seen;
    int status = 0;

    CHECK_OK(symm_team_device(team, &seen));
    CHECK_OK(symm_buffer_alloc(
        team, symm_device_exchange_bytes(symm_team_size(team), UNITS), &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_barrier(team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
    if (change == FINALIZED) {
        symm_buffer_release(buffer);
        return 0;
    }
    if (change != NEVER)
        status = exchange(seen, symm_buffer_ptr(buffer), change);
    if (scene->change == NONE)
        CHECK_MESSAGE(status == 0, "the exchange has failed: %d", status);
    else if (change != NEVER && change != KEPT_BACK)
        CHECK(status > 0 && status < 100);
    if (scene->change != NONE)
        CHECK_ZERO(check_failure(team, scene->change, rank, offset_of(seen, buffer)));
    if (scene->change != FINALIZED) /* not gone while the other still waits for it */
        CHECK_ZERO(harness_sync_wait(&scene->sync, 2));
    symm_buffer_release(buffer);
    return 0;
}

static void play(enum change change, double timeout)
{
    struct scene *scene = harness_shared(sizeof(*scene));
    struct harness h = {.ranks = 2,
                        .mode = HARNESS_PROCESSES,
                        .body = scenario,
                        .arg = scene,
                        .team_bytes = (size_t)64 << 20,
                        .timeout = timeout};

    scene->change = change;
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(scene, sizeof(*scene));
}

static void test_right(void **unused)
{
    (void)unused;
    play(NONE, 0);
}

static void test_mismatch(void **unused)
{
    (void)unused;
    play(OTHER_TAG, 0);
    play(OTHER_UNITS, 0);
}

static void test_timeout(void **unused)
{
    (void)unused;
    play(NEVER, 3);
    play(KEPT_BACK, 3);
}

static void test_finalized(void **unused)
{
    (void)unused;
    play(FINALIZED, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_timeout), cmocka_unit_test(test_finalized)};

    device_suite();
    if (device_real()) /* the host cannot reach a GPU's memory */
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
