/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wide_room.c - kernels of the library and of NCCL share a device's multiprocessors
 * while an all_reduce over several hosts is made in chunks: over the fake driver with its model of
 * a device, and the fake NCCL with operations that are kernels.
 *
 * On ranks 0 and 3 NCCL's kernel of the first chunk comes to the device before the library's kernel
 * of the second one, on ranks 1 and 2 after it. Each waits for its peers: 0 and 1, 2 and 3 by the
 * library, 0 and 2, 1 and 3 by NCCL. With NCCL's 32 blocks both have room on 64 multiprocessors. If
 * NCCL takes all 64, each rank waits for the next one in a circle.
 */
/* ctest: cost 10 */
#include "engine_stage.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT ((size_t)4 << 20 >> 2) /* int32 of two chunks */
#define SPACE (COUNT * sizeof(int32_t))

struct job {
    double timeout, late;
    _Atomic int over, done, hung;
};

static void configure(symm_config *config, int rank, void *arg)
{
    const struct job *job = arg;
    char when[32];

    (void)config;
    setenv("SYMM_HOST_ID", rank < 2 ? "a" : "b", 1);
    snprintf(when, sizeof(when), "late %g", job->late);
    setenv("FAKE_NCCL_KERNEL", rank == 0 || rank == 3 ? "early" : when, 1);
}

static int check(struct engine_stage *s, struct device_area *area)
{
    CHECK_ZERO(engine_take(s, area, COUNT));
    for (size_t i = 0; i < COUNT; i += 97) {
        int32_t sum = 0;

        for (int r = 0; r < s->n; r++)
            sum += engine_value(r, i);
        CHECK_MESSAGE(engine_ints(area)[i] == sum, "%d at %zu, not %d",
                      engine_ints(area)[i], i, sum);
    }
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct device_area data;
    struct engine_stage s;
    symm_work *work = NULL;
    symm_status status;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(device_area_open(&data, s.gpu, NULL, SPACE));
    const symm_call call = {.size = sizeof(call),
                            .stream = s.stream,
                            .site = "room",
                            .timeout = job->timeout > 0 ? job->timeout : HARNESS_AMPLE};

    CHECK_ZERO(engine_give(&s, &data, COUNT));
    status = symm_all_reduce(s.team, data.device, data.device, COUNT, SYMM_INT32,
                             SYMM_SUM, &call, &work);
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    if (job->timeout > 0 && status != SYMM_OK) {
        CHECK_STATUS(status, SYMM_ERR_TIMEOUT);
        CHECK_ERROR("all_reduce at site 'room'");
        job->hung +=
            strstr(symm_last_error(), "was begun on rank ") &&
            strstr(symm_last_error(), "NCCL_MAX_CTAS=64 leaves no room beside NCCL");
    } else {
        CHECK_STATUS(status, SYMM_OK);
        CHECK_ZERO(check(&s, &data));
        CHECK(engine_calls("ncclAllReduce") == 2);
        job->done++;
    }
    job->over++;
    CHECK(harness_until(&job->over, s.n));
    device_area_close(&data);
    engine_close(&s);
    return 0;
}

/* *done, *hung: ranks whose call has completed, has waited in NCCL's kernels to its timeout. */
static int run(double timeout, double late, int *done, int *hung)
{
    struct job *job = harness_shared(sizeof(*job));
    const struct harness h = {.ranks = 4,
                              .body = body,
                              .arg = job,
                              .configure = configure,
                              .team_bytes = (size_t)256 << 20};
    int failed;

    job->timeout = timeout;
    job->late = late;
    failed = harness_run(&h);
    *done = job->done;
    *hung = job->hung;
    harness_shared_free(job, sizeof(*job));
    return failed;
}

static void both_have_room(void **state)
{
    int done, hung;

    (void)state;
    assert_int_equal(run(0, 0.3, &done, &hung), 0);
    assert_int_equal(done, 4);
}

static void a_larger_kernel_of_nccl_hangs(void **state)
{
    double late;
    int done, hung = 0;

    (void)state;
    setenv("NCCL_MAX_CTAS", "64", 1);
    HARNESS_PATIENCE(late, 0.5) /* for the library's kernel to come before NCCL's */
    {
        assert_int_equal(run(10 * late, late, &done, &hung), 0);
        if (done == 0 && hung == 4)
            break;
    }
    unsetenv("NCCL_MAX_CTAS");
    assert_int_equal(hung, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_have_room),
                                       cmocka_unit_test(a_larger_kernel_of_nccl_hangs)};

    if (device_real())
        return 77; /* needs the model */
    engine_suite();
    setenv("FAKE_CUDA_MODEL", "1", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32",
           1); /* no stream waits in the queue of another */
    setenv("FAKE_CUDA_PROCESSORS", "64", 1);
    setenv("FAKE_CUDA_REGISTERS", "128", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
