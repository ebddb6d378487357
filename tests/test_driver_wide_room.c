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
 *
 * Each block of a kernel of the library meets its peers' blocks alone, so the kernel gets on with a
 * single multiprocessor, and only where it gets none do those matter that it leaves to NCCL.
 * `beside` is a call of the host's team on a second stream, with half of the multiprocessors: on
 * ranks 0 and 3 it comes before the all_reduce, and leaves none with NCCL's kernel. There the
 * library's kernel of the second chunk waits for the end of NCCL's, which needs room on ranks 1
 * and 2 beside that kernel.
 */
/* ctest: cost 12 */
/* ctest: load 3 */
#include "engine_stage.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT ((size_t)8 << 20 >> 2) /* int32 of two chunks */
#define SPACE (COUNT * sizeof(int32_t))
#define HALF  ((size_t)128 << 10 >> 2) /* int32 of the call beside: 32 blocks */

struct job {
    double timeout, late;
    bool beside; /* a call of each host's team runs on a second stream */
    _Atomic int over, done, hung, begun;
};

static bool comes_early(int rank)
{
    return rank == 0 || rank == 3;
}

static void configure(symm_config *config, int rank, void *arg)
{
    const struct job *job = arg;
    char when[32];

    (void)config;
    setenv("SYMM_HOST_ID", rank < 2 ? "a" : "b", 1);
    snprintf(when, sizeof(when), "late %g", job->late);
    setenv("FAKE_NCCL_KERNEL", comes_early(rank) ? "early" : when, 1);
}

/* The call beside the all_reduce. */
struct beside {
    symm_team *team;
    struct device_area data;
    void *stream;
    symm_work *work;
};

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

/* The call of the host's team, in its place. */
static int begin_beside(struct job *job, struct engine_stage *s, struct beside *b)
{
    const symm_call call = {.size = sizeof(call),
                            .stream = b->stream,
                            .site = "beside",
                            .timeout = HARNESS_AMPLE};

    CHECK_OK(symm_all_reduce(b->team, b->data.device, b->data.device, HALF, SYMM_INT32,
                             SYMM_MAX, &call, &b->work));
    if (comes_early(s->rank))
        job->begun++;
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct device_area data;
    struct engine_stage s;
    struct beside b = {0};
    symm_work *work = NULL;
    symm_status status;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(device_area_open(&data, s.gpu, NULL, SPACE));
    if (job->beside) {
        CHECK_OK(symm_team_split(s.team, s.rank / 2, 0, &b.team));
        CHECK_ZERO(device_area_open(&b.data, s.gpu, NULL, HALF * sizeof(int32_t)));
        CHECK_OK(symm_stream_create(ctx, &b.stream));
    }
    const symm_call call = {.size = sizeof(call),
                            .stream = s.stream,
                            .site = "room",
                            .timeout = job->timeout > 0 ? job->timeout : HARNESS_AMPLE};

    CHECK_ZERO(engine_give(&s, &data, COUNT));
    if (job->beside && comes_early(s.rank))
        CHECK_ZERO(begin_beside(job, &s, &b));
    if (job->beside)
        CHECK(harness_until(&job->begun, 2));
    status = symm_all_reduce(s.team, data.device, data.device, COUNT, SYMM_INT32,
                             SYMM_SUM, &call, &work);
    if (job->beside && !comes_early(s.rank)) {
        harness_sleep(2 * job->late); /* NCCL's kernel comes first */
        CHECK_ZERO(begin_beside(job, &s, &b));
    }
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    if (status == SYMM_OK && job->beside)
        status = symm_work_synchronize(b.work, HARNESS_AMPLE);
    symm_work_release(b.work);
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
    if (job->beside) {
        symm_stream_destroy(ctx, b.stream);
        device_area_close(&b.data);
        symm_team_destroy(b.team);
    }
    device_area_close(&data);
    engine_close(&s);
    return 0;
}

/* *done, *hung: ranks whose call has completed, has waited in NCCL's kernels to its timeout. */
static int run(double timeout, double late, bool beside, int *done, int *hung)
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
    job->beside = beside;
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
    assert_int_equal(run(0, 0.3, false, &done, &hung), 0);
    assert_int_equal(done, 4);
}

/* The second stream's call has half of the multiprocessors, NCCL's kernel the others. */
static void all_three_have_room(void **state)
{
    int done, hung;

    (void)state;
    assert_int_equal(run(0, 0.3, true, &done, &hung), 0);
    assert_int_equal(done, 4);
}

static void a_larger_kernel_of_nccl_hangs(void **state)
{
    double late;
    int done, hung;

    (void)state;
    setenv("NCCL_MAX_CTAS", "64", 1);
    HARNESS_PATIENCE(late, 0.5) /* for the library's kernel to come before NCCL's */
    {
        if (run(10 * late, late, false, &done, &hung) == 0 && done == 0 && hung == 4)
            break;
    }
    unsetenv("NCCL_MAX_CTAS");
    assert_true(late <= HARNESS_SOON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_have_room),
                                       cmocka_unit_test(all_three_have_room),
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
