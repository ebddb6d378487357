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

/* ---- Calls whose arrays alone differ ---------------------------------------------- */

struct placed {
    const char *algorithm;
    int in, out; /* elements by which rank 1's arrays are shifted */
    const char *says;
};

static int body_placed(symm_ctx *ctx, void *arg)
{
    const struct placed *p = arg;
    const int64_t shape = 1 << 20, stride = 1;
    symm_call call = {.size = sizeof(call), .site = "layer", .algorithm = p->algorithm};
    symm_team *world = symm_team_world(ctx);
    symm_work *work = NULL;
    float *at[2];

    for (uint64_t i = 0; i < 2; i++) {
        symm_buffer *buffer;

        CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_FLOAT32, i + 1,
                                        &buffer));
        at[i] = symm_buffer_ptr(buffer);
    }
    CHECK_OK(symm_rendezvous(world));
    if (harness_rank() == 1) {
        at[0] += p->in;
        at[1] += p->out;
    }
    CHECK_OK(symm_all_reduce(world, at[0], at[1], 65536, SYMM_FLOAT32, SYMM_SUM, &call,
                             &work));
    CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_MISMATCH);
    symm_work_release(work);
    CHECK_ERROR(p->says);
    CHECK_ERROR("rank 0");
    CHECK_ERROR("rank 1");
    CHECK_ERROR(" are at site 'layer' (all_reduce sum of 65536 float32, ");
    return 0;
}

static void placed_apart(void **state)
{
    struct placed placed[] = {{"one_shot_pull", 64, 0, ", but `in` is at offset "},
                              {"two_shot_inplace", 0, 64, ", but `out` is at offset "}};

    (void)state;
    for (int i = 0; i < 2; i++)
        if (run(body_placed, &placed[i]) != 0)
            fail_msg("%s", placed[i].algorithm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere),
        cmocka_unit_test(placed_apart),
    };

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
