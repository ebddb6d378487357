/* SPDX-License-Identifier: MIT */
/*
 * test_driver_exchange.c - kernels over symm/device_exchange.h on the processor: the fused
 * all-reduce, bias and GELU of bench/fused_gelu.cuh against a reference in float64; several
 * exchanges in one kernel, of any bits, with late ranks; ranks that differ; ranks that do not
 * come; and a planted bug, one slot instead of two, which must be seen.
 *
 * Ranks are threads with heaps in plain memory (heaps.h).
 * ctest: cost 15
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "exchange_kernels.h"
#include "harness.h"
#include "heaps.h"
#include "symm/device_exchange.h"

#define ROOM      1024u /* units of a workspace */
#define MOST      (8 * ROOM)
#define CALLS     24
#define TAG       42u
#define UNTOUCHED 0x5a5a5a5a5a5a5a5au

typedef void (*launch_fn)(heaps_kernel kernel, const struct symm_cuda_args *args,
                          unsigned blocks, unsigned threads);

/* One launch, the same on all ranks but for what a test changes. */
struct shape {
    uint32_t rows, width, repeat;
    unsigned blocks, threads;
};

struct job {
    launch_fn launch;
    heaps_kernel kernel;
    void (*check)(struct heaps *heaps, int rank, const struct shape *shape, int call,
                  const struct exchange_case *made, struct job *job);
    uint32_t delay;
    int calls, odd,
        dead; /* odd: a rank whose launches differ; dead: makes none; -1: none */
    struct shape other; /* the odd rank's */
    uint32_t other_tag;
    int wrong[SYMM_DEVICE_RANKS], status[SYMM_DEVICE_RANKS], failed[SYMM_DEVICE_RANKS];
    uint64_t digest[SYMM_DEVICE_RANKS]; /* of all results */
};

static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- Launches ------------------------------------------------------------------------ */

/* Grids and sizes change from call to call; at times nothing is exchanged. */
static struct shape shape_of(int call, bool several)
{
    const uint64_t z = mixed(7 + (uint64_t)call);
    struct shape shape = {.rows = 1 + (uint32_t)(z % 5),
                          .width = 1 + (uint32_t)(z / 8 % 200),
                          .repeat = several ? 1 + (uint32_t)(z / 2048 % 6) : 1,
                          .blocks = 1 + (unsigned)(z / 16384 % 4),
                          .threads = 32 << z / 65536 % 3};

    if (call % 9 == 4)
        shape.rows = 0;
    return shape;
}

static uint64_t input(int call, int rank, uint64_t unit)
{
    return mixed(mixed((uint64_t)call * 64 + (uint64_t)rank) + unit);
}

static double to_double(uint64_t bits)
{
    uint32_t wide = (uint32_t)(bits & 0xffff) << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

/* Four bfloat16 of -2 .. 2. */
static uint64_t bfloats(uint64_t bits)
{
    uint64_t unit = 0;

    for (int e = 0; e < 4; e++) {
        float value = (float)(bits >> 16 * e & 0xff) / 64 - 2;
        uint32_t wide;

        memcpy(&wide, &value, sizeof(wide));
        unit |= (uint64_t)(wide >> 16) << 16 * e;
    }
    return unit;
}

static uint64_t *units(size_t count)
{
    uint64_t *at = malloc(count * sizeof(*at));

    if (!at)
        abort();
    for (size_t i = 0; i < count; i++)
        at[i] = UNTOUCHED;
    return at;
}

static void run_calls(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    uint64_t *in = units(MOST), *bias = units(ROOM), *out = units(MOST + 1);
    const bool gelu = job->kernel == heaps_find("simt_user_fused_gelu");
    uint64_t seed = 3 + (uint64_t)rank;

    for (int k = 0; k < job->calls && rank != job->dead; k++) {
        const struct shape shape = rank == job->odd ? job->other : shape_of(k, !gelu);
        const uint64_t count = (uint64_t)shape.repeat * shape.rows * shape.width;
        struct exchange_case made = {
            .team = &heaps->team[rank],
            .workspace = heaps_at(heaps, rank, heaps->buffers),
            .room = ROOM,
            .rows = shape.rows,
            .width = shape.width,
            .tag = rank == job->odd ? job->other_tag : TAG,
            .repeat = shape.repeat,
            .delay = job->delay,
            .seed = (uint32_t)mixed((uint64_t)rank * 1000 + (uint64_t)k),
            .in = in,
            .bias = bias,
            .out = out};
        struct symm_cuda_args args = {.in = &made};

        for (uint64_t i = 0; i < count; i++)
            in[i] = gelu ? bfloats(input(k, rank, i)) : input(k, rank, i);
        for (uint64_t i = 0; i < shape.width; i++)
            bias[i] = bfloats(input(k, 63, i));
        for (uint64_t i = 0; i <= count; i++)
            out[i] = UNTOUCHED;
        heaps_delay(&seed, 2000);
        job->launch(job->kernel, &args, shape.blocks, shape.threads);
        job->status[rank] = made.status;
        job->failed[rank] = made.failed;
        if (made.failed != 0)
            break;
        job->check(heaps, rank, &shape, k, &made, job);
        job->wrong[rank] += out[count] != UNTOUCHED;
        for (uint64_t i = 0; i < count; i++)
            job->digest[rank] = mixed(job->digest[rank] + out[i]);
    }
    for (size_t i = 0; i < MOST && job->failed[rank] != 0 && gelu; i++)
        job->wrong[rank] += out[i] != UNTOUCHED; /* no unit of all ranks has come */
    free(in);
    free(bias);
    free(out);
}

/* ---- Results ------------------------------------------------------------------------- */

static double gelu(double v)
{
    return 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
}

/* Within half a unit in the last place of bfloat16, and what float32 loses near it. */
static void check_gelu(struct heaps *heaps, int rank, const struct shape *shape,
                       int call, const struct exchange_case *made, struct job *job)
{
    for (uint64_t i = 0; i < (uint64_t)shape->rows * shape->width; i++)
        for (int e = 0; e < 4; e++) {
            double sum = to_double(made->bias[i % shape->width] >> 16 * e), want, got;

            for (int r = 0; r < heaps->size; r++)
                sum += to_double(bfloats(input(call, r, i)) >> 16 * e);
            want = gelu(sum);
            got = to_double(made->out[i] >> 16 * e);
            job->wrong[rank] +=
                !(fabs(got - want) <= fabs(want) * (1 / 256.0 + 1e-5) + 1e-6);
        }
}

static void check_sums(struct heaps *heaps, int rank, const struct shape *shape,
                       int call, const struct exchange_case *made, struct job *job)
{
    const uint64_t count = (uint64_t)shape->repeat * shape->rows * shape->width;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t want = 0;

        for (int r = 0; r < heaps->size; r++)
            want = want * 3 + input(call, r, i);
        job->wrong[rank] += made->out[i] != want;
    }
}

static struct heaps *open_heaps(int size, double timeout)
{
    struct heaps_options options = {.size = size,
                                    .timeout = timeout,
                                    .ll = 4096,
                                    .lamport = 4096,
                                    .stage = 4096,
                                    .buffers = symm_device_exchange_bytes(size, ROOM)};

    return heaps_create(&options);
}

static struct symm_device_workspace *workspace(const struct heaps *heaps, int rank)
{
    return heaps_at(heaps, rank, heaps->buffers);
}

static struct job make_job(bool gelu)
{
    return (struct job){
        .launch = heaps_launch,
        .kernel = heaps_find(gelu ? "simt_user_fused_gelu" : "simt_user_exchange_sums"),
        .check = gelu ? check_gelu : check_sums,
        .calls = CALLS,
        .odd = -1,
        .dead = -1};
}

static void check_right(const struct heaps *heaps, const struct job *job)
{
    for (int r = 0; r < heaps->size; r++) {
        assert_int_equal(heaps->team[r].record->state, 0);
        assert_int_equal(job->failed[r], 0);
        assert_int_equal(job->wrong[r], 0);
        assert_true(job->digest[r] == job->digest[0]);
        for (int b = 1; b < SYMM_DEVICE_BLOCKS; b++)
            assert_int_equal(workspace(heaps, r)->round[b],
                             workspace(heaps, 0)->round[0]);
    }
}

/* ---- Tests --------------------------------------------------------------------------- */

static void test_gelu(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 8; size *= 2) {
        struct heaps *heaps = open_heaps(size, 0);
        struct job job = make_job(true);

        heaps_run(heaps, run_calls, &job);
        check_right(heaps, &job);
        assert_int_equal(workspace(heaps, 0)->round[0], CALLS);
        heaps_destroy(heaps);
    }
}

/* Rounds pass their limit on the way. */
static void test_late(void **unused)
{
    (void)unused;
    for (int size = 2; size <= 8; size += size == 2 ? 1 : size == 3 ? 1 : 4) {
        struct heaps *heaps = open_heaps(size, 0);
        struct job job = make_job(false);

        job.delay = 2000;
        for (int r = 0; r < size; r++)
            for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
                workspace(heaps, r)->round[b] = SYMM_ROUND_LIMIT - 9;
        heaps_run(heaps, run_calls, &job);
        check_right(heaps, &job);
        assert_true(workspace(heaps, 0)->round[0] < 8 * CALLS);
        heaps_destroy(heaps);
    }
}

static void check_record(const struct heaps *heaps, int rank, uint32_t why, int peers)
{
    const struct symm_device_record *record = heaps->team[rank].record;

    assert_int_equal(record->state, why);
    assert_int_equal(record->channel, SYMM_CHANNELS);
    assert_int_equal(record->signal, SYMM_SIGNALS);
    assert_true((record->missing[0] & (uint32_t)peers) != 0);
    assert_int_equal(record->counter, 1);
    assert_int_equal(heaps->team[rank].state->failed[16 * SYMM_CHANNELS],
                     SYMM_DEVICE_ABORTED);
    assert_int_equal(heaps->team[rank].state->stopped, SYMM_DEVICE_ABORTED);
}

/* One rank has another tag, another size, another grid. */
static void test_mismatch(void **unused)
{
    (void)unused;
    for (int how = 0; how < 3; how++) {
        struct heaps *heaps = open_heaps(4, 0);
        struct job job = make_job(false);

        job.odd = 1;
        job.other = shape_of(0, true);
        job.other_tag = how == 0 ? TAG + 1 : TAG;
        job.other.width += how == 1;
        job.other.blocks += how == 2;
        job.calls = 1;
        heaps_run(heaps, run_calls, &job);
        for (int r = 0; r < 4; r++) {
            check_record(heaps, r, SYMM_DEVICE_MISMATCH, r == 1 ? 0xd : 2);
            assert_int_equal(job.status[r], SYMM_DEVICE_MISMATCH);
            assert_int_equal(workspace(heaps, r)->round[0], 0);
        }
        heaps_destroy(heaps);
    }
}

/* Later launches return at once, push nothing and write nothing. */
static void check_stopped(struct heaps *heaps, int rank)
{
    const uint64_t in = 1, bias = 2;
    uint64_t out = UNTOUCHED,
             *told = workspace(heaps, (rank + 1) % 4)->told[0][1][rank];
    struct exchange_case made = {.team = &heaps->team[rank],
                                 .workspace = workspace(heaps, rank),
                                 .room = ROOM,
                                 .rows = 1,
                                 .width = 1,
                                 .tag = TAG + 7,
                                 .in = &in,
                                 .bias = &bias,
                                 .out = &out};
    struct symm_cuda_args args = {.in = &made};
    const uint64_t before = told[0];

    heaps->team[rank].timeout = UINT64_MAX / 2; /* a wait would end the test */
    heaps_launch(heaps_find("simt_user_fused_gelu"), &args, 1, 32);
    assert_int_equal(made.failed, -(int)SYMM_DEVICE_ABORTED);
    assert_true(out == UNTOUCHED);
    assert_true(told[0] == before);
    assert_int_equal(workspace(heaps, rank)->round[0], 0);
}

/* Rank 2 of 4 does not come: the others end by their timeout, or when another gives up. */
static void test_dead(void **unused)
{
    struct heaps *heaps = open_heaps(4, 0.2);
    struct job job = make_job(true);
    int timeouts = 0;

    (void)unused;
    job.dead = 2;
    job.calls = 1;
    heaps_run(heaps, run_calls, &job);
    for (int r = 0; r < 4; r++) {
        const uint32_t state = heaps->team[r].record->state;

        if (r == job.dead)
            continue;
        assert_true(state == SYMM_DEVICE_TIMEOUT || state == SYMM_DEVICE_ABORTED);
        timeouts += state == SYMM_DEVICE_TIMEOUT;
        check_record(heaps, r, state, 0xf & ~(1 << r));
        assert_true(job.failed[r] < 0);
        assert_int_equal(job.wrong[r], 0);
        check_stopped(heaps, r);
    }
    assert_true(timeouts > 0);
    heaps_destroy(heaps);
}

/* The host's abort word ends a wait; a call that is not allowed does not begin. */
static void test_abort_and_invalid(void **unused)
{
    struct heaps *heaps = open_heaps(2, 0);
    struct job job = make_job(true);
    struct symm_device_exchange x = {workspace(heaps, 0), 8, 9, 0, 1, TAG, 0};

    (void)unused;
    job.dead = 1;
    job.calls = 1;
    assert_int_equal(symm_device_exchange_begin(&heaps->team[0], &x),
                     SYMM_DEVICE_INVALID);
    x.units = 8;
    assert_int_equal(symm_device_exchange_begin(&heaps->team[0], &x), 0);
    x.tag = 0;
    assert_int_equal(symm_device_exchange_begin(&heaps->team[0], &x),
                     SYMM_DEVICE_INVALID);
    heaps->team[0].record->abort = -SYMM_ERR_PEER_DEAD;
    heaps_run(heaps, run_calls, &job);
    check_record(heaps, 0, -SYMM_ERR_PEER_DEAD, 2);
    heaps_destroy(heaps);
}

/* With one slot a rank overwrites what a late one has not read: a wait that never ends. */
static void test_plant(void **unused)
{
    void *library =
        dlopen(SYMM_PLANT_DIR "/libkernels_plant_exchange_slot.so", RTLD_NOW);
    bool seen = false;

    (void)unused;
    assert_non_null(library);
    for (int try = 0; try < 20 && !seen; try++) {
        struct heaps *heaps = open_heaps(4, 2);
        struct job job = make_job(false);

        *(void **)&job.launch = dlsym(library, "simt_launch");
        *(void **)&job.kernel = dlsym(library, "simt_user_exchange_sums");
        job.delay = 2000;
        heaps_run(heaps, run_calls, &job);
        for (int r = 0; r < 4; r++)
            seen |= job.failed[r] != 0 || job.wrong[r] != 0;
        heaps_destroy(heaps);
    }
    assert_true(seen);
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_dead),
        cmocka_unit_test(test_abort_and_invalid),
        cmocka_unit_test(test_plant),
    };

    if (HARNESS_TSAN) /* it knows nothing of fibers */
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
