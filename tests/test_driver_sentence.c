/* SPDX-License-Identifier: MIT */
/*
 * test_driver_sentence.c - what the sentences of calls that fail on the CUDA backend say.
 * ctest: cost 3
 */
#include "device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LATE 0.5 /* the timeout of a call to which a rank does not come */

static int run(harness_body body, void *arg)
{
    struct harness h = {
        .ranks = 2, .body = body, .arg = arg, .team_bytes = (size_t)128 << 20};

    return device_ranks(2) == 2 ? harness_run(&h) : 0;
}

/* Makes a barrier that must end with this status. */
static int barrier_fails(symm_team *team, symm_call call, symm_status wanted)
{
    symm_work *work = NULL;

    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), wanted);
    symm_work_release(work);
    return 0;
}

/* ---- A call and a rendezvous ------------------------------------------------------ */

static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    const symm_call call = {.size = sizeof(call), .site = "layer", .timeout = LATE};
    symm_team *world = symm_team_world(ctx);

    (void)arg;
    if (harness_rank() == 0) {
        CHECK_ZERO(barrier_fails(world, call, SYMM_ERR_TIMEOUT));
        CHECK_ERROR("rank 1 did not arrive at site 'layer'");
        CHECK_ERROR("; rank 1 waits in rendezvous (world): all ranks of a team must make "
                    "the same calls");
    } else {
        CHECK(symm_rendezvous(world) != SYMM_OK); /* rank 0 goes */
    }
    return 0;
}

static void elsewhere(void **state)
{
    (void)state;
    assert_int_equal(run(body_elsewhere, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere),
    };

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
