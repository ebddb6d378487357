/* SPDX-License-Identifier: MIT */
/*
 * test_driver_many_ranks.c - the kernels for teams of more than SYMM_FEW_RANKS, run on the
 * processor by the shim of simt.h: 16, 36 and 72 ranks are threads over plain memory (heaps.h),
 * without the library's runtime.
 *
 * Every collective by every algorithm that has a kernel, in place where that is allowed, through
 * several rounds of a small scratch, compared with a reference; signals and barriers of device
 * code; a rank that makes no call, one that makes another, and which members the records name.
 * ctest: cost 7
 * ctest: load 3
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"
#include "kernel_call.h"
#include "reference.h"
#include "symm/device.h"

#define AREA       ((size_t)1 << 20) /* of inputs, and of outputs */
#define MOST_BYTES ((size_t)12 << 10)
#define BLOCKS     2u

struct job {
    const struct kernel_call *calls;
    int count, dead,
        odd; /* dead: a rank that makes no call; odd: one with another tag; -1: none */
    char what[SYMM_DEVICE_RANKS][160];
};

static struct heaps *open_team(int size, double timeout, uint32_t round, uint32_t call)
{
    const uint64_t ranks = (uint64_t)size, page = 4096;
    const uint64_t packets = 16 * 32 * BLOCKS; /* of all threads */
    const struct heaps_options options = {
        .size = size,
        .timeout = timeout,
        .ll = (2 * ranks * packets + page - 1) / page * page,
        .lamport = (3 * ranks * packets + page - 1) / page * page,
        .stage = (32 * BLOCKS * ranks * 4 + page - 1) / page * page,
        .only = 1 + (int)CHANNEL,
        .buffers = 2 * AREA,
        .first_round = round,
        .first_call = call};

    return heaps_create(&options);
}

/* ---- One call of one rank -------------------------------------------------------- */

static struct symm_cuda_args args_of(struct heaps *heaps, int rank,
                                     const struct kernel_call *call)
{
    struct symm_cuda_args args = heaps_args(heaps, rank, CHANNEL);

    kernel_call_args(call, &args);
    args.tag = 1 + call->seed;
    args.in_offset = heaps->buffers + 16;
    args.out_offset = heaps->buffers + AREA + 16 * (call->seed % 3);
    if (call->in_place && call->kind == SYMM_KIND_ALL_GATHER) {
        args.in_step = (int64_t)args.bytes;
        args.in_offset = args.out_offset + (uint64_t)rank * args.bytes;
    } else if (call->in_place) {
        args.out_offset = args.in_offset;
    }
    args.in = heaps_at(heaps, rank, args.in_offset);
    args.out = heaps_at(heaps, rank, args.out_offset);
    return args;
}

/* As many blocks as test machines have patience for; threads as the kernel needs them. */
static bool launch(struct heaps *heaps, const struct kernel_call *call,
                   const struct symm_cuda_args *args)
{
    struct symm_cuda_query query =
        kernel_call_query(call, heaps->size, 132, &args->scratch);
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    query.blocks = BLOCKS;
    if (!symm__cuda_kernel_find(&query, &kernel, &shape) || !heaps_find(kernel.name))
        return false;
    assert_non_null(strstr(kernel.name, "_wide"));
    heaps_launch(heaps_find(kernel.name), args, shape.blocks,
                 shape.threads > 64 ? 64 : shape.threads);
    return true;
}

static bool is_written_beside(const char *out, size_t bytes)
{
    for (size_t i = 1; i <= 16; i++)
        if (out[-(ptrdiff_t)i] != UNTOUCHED || out[bytes + i - 1] != UNTOUCHED)
            return true;
    return false;
}

static void run_call(struct heaps *heaps, int rank, struct job *job,
                     const struct kernel_call *call, char *want)
{
    struct symm_cuda_args args = args_of(heaps, rank, call);
    const struct symm_device_record *record = args.team.record;
    const size_t out = kernel_call_out_count(call, heaps->size);
    const size_t bytes = out * reference_size(call->dtype);
    char *text = job->what[rank];
    size_t where = 0;

    if (rank == job->odd)
        args.tag++;
    if (!call->in_place)
        memset((char *)args.out - 16, UNTOUCHED, bytes + 32);
    reference_fill(call->dtype, call->op, call->seed, rank, 0,
                   kernel_call_in_count(call, heaps->size),
                   heaps_at(heaps, rank, args.in_offset));
    kernel_call_expect(call, heaps->size, rank, want);
    if (!launch(heaps, call, &args))
        snprintf(text, sizeof(job->what[0]), "no kernel");
    else if (record->state != 0)
        snprintf(text, sizeof(job->what[0]), "state %u, missing %x %x %x",
                 record->state, record->missing[0], record->missing[1],
                 record->missing[2]);
    else if (call->kind != SYMM_KIND_BARRIER &&
             !reference_same(call->dtype, args.out, want, out, &where))
        snprintf(text, sizeof(job->what[0]), "element %zu of %zu is wrong", where, out);
    else if (call->kind != SYMM_KIND_BARRIER && !call->in_place &&
             is_written_beside(args.out, bytes))
        snprintf(text, sizeof(job->what[0]), "written beside the output");
}

static void run_rank(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    char *want = malloc(SYMM_DEVICE_RANKS * MOST_BYTES);

    for (int c = 0; c < job->count && rank != job->dead && !job->what[rank][0]; c++) {
        run_call(heaps, rank, job, &job->calls[c], want);
        if (job->what[rank][0])
            snprintf(strchr(job->what[rank], '\0'), 80, ": call %d, %s by %s of %zu %s",
                     c, symm__kind_name(job->calls[c].kind),
                     symm_algorithm_name(job->calls[c].algorithm), job->calls[c].count,
                     symm_dtype_name(job->calls[c].dtype));
    }
    free(want);
}

static void run_well(struct heaps *heaps, const struct kernel_call *calls, int count)
{
    struct job *job = calloc(1, sizeof(*job));
    int wrong = 0;

    *job = (struct job){.calls = calls, .count = count, .dead = -1, .odd = -1};
    heaps_run(heaps, run_rank, job);
    for (int r = 0; r < heaps->size; r++)
        if (job->what[r][0] && wrong++ < 4)
            print_error("rank %d of %d: %s\n", r, heaps->size, job->what[r]);
    free(job);
    assert_int_equal(wrong, 0);
    heaps_check(heaps, CHANNEL);
}

/* ---- Tests ----------------------------------------------------------------------- */

static const struct way {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    bool in_place; /* may be */
    size_t most;   /* bytes of one rank's block, so that there are several rounds */
} ways[] = {
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_LL_PUSH, true, 1500},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_TWO_SHOT_PUSH, true, MOST_BYTES},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true, MOST_BYTES},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_COPY_IN, true, MOST_BYTES},
    {SYMM_KIND_REDUCE_SCATTER, SYMM_ALGORITHM_LL_PUSH, false, 1500},
    {SYMM_KIND_REDUCE_SCATTER, SYMM_ALGORITHM_ONE_SHOT_PULL, false, 3000},
    {SYMM_KIND_REDUCE_SCATTER, SYMM_ALGORITHM_COPY_IN, false, 1500},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_LL_PUSH, true, 1500},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_ONE_SHOT_PULL, true, 3000},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true, 3000},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_COPY_IN, true, 3000},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_LL_PUSH, true, 3000},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_ONE_SHOT_PULL, true, MOST_BYTES},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true, MOST_BYTES},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_COPY_IN, true, MOST_BYTES},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_LL_PUSH, false, 1500},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_ONE_SHOT_PULL, false, 3000},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_TWO_SHOT_INPLACE, false, 3000},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_COPY_IN, false, 1500},
    {SYMM_KIND_BARRIER, SYMM_ALGORITHM_COPY_IN, false, 1},
};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

/* Call k of a way: a type each, an op each, little, half a packet more, and several rounds. */
static struct kernel_call call_of(int w, int k, int size)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_INT32,      SYMM_FLOAT32,
                                        SYMM_FLOAT64,  SYMM_UINT8,      SYMM_FLOAT16,
                                        SYMM_INT64,    SYMM_FLOAT8_E4M3};
    const symm_dtype dtype = dtypes[(w + k) % 8];
    const size_t element = reference_size(dtype);
    const size_t bytes[] = {ways[w].most, 8 * 31 + 8, 16};

    return (struct kernel_call){.kind = ways[w].kind,
                                .algorithm = ways[w].algorithm,
                                .dtype = dtype,
                                .op = k % 2 ? reference_op(dtype, (unsigned)(w + k))
                                            : SYMM_SUM,
                                .count = bytes[(w + k) % 3] / element + (size_t)(k % 2),
                                .in_place = ways[w].in_place && k % 3 == 0,
                                .root = (7 * w + 5 * k) % size,
                                .seed = (uint32_t)(100 * w + k)};
}

static void test_collectives(void **unused)
{
    static const struct {
        int size, calls; /* of each way */
    } teams[] = {{16, 3}, {36, 2}, {72, 2}};
    struct kernel_call calls[WAYS * 24];

    (void)unused;
    reference_init();
    for (int t = 0; t < 3; t++) {
        const int times = (harness_env("SYMM_TEST_LONG", 0) == 1) ? 24 : teams[t].calls;
        struct heaps *heaps =
            open_team(teams[t].size, 0, SYMM_ROUND_LIMIT - 40, UINT32_MAX - 20);
        int count = 0;

        for (int k = 0; k < times; k++)
            for (int w = 0; w < WAYS; w++, count++)
                calls[count] = call_of(w, k + t, teams[t].size);
        run_well(heaps, calls, count);
        heaps_destroy(heaps);
    }
}

/* Lamport packets, of floats alone, in more rounds than there are slots. */
static void test_floats(void **unused)
{
    static const symm_dtype dtypes[] = {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_FLOAT16};
    struct kernel_call calls[6];

    (void)unused;
    reference_init();
    for (int size = 16; size <= 36; size += 20) {
        struct heaps *heaps = open_team(size, 0, 0, 0);

        for (int c = 0; c < 6; c++) {
            calls[c] = call_of(1, 3 * c, size);
            calls[c].dtype = dtypes[c % 3];
            calls[c].op = SYMM_SUM;
            calls[c].count = (MOST_BYTES - 100 * (size_t)c) / (c % 3 ? 2 : 4);
        }
        run_well(heaps, calls, 6);
        heaps_destroy(heaps);
    }
}

/* Whether the record names the member alone. */
static bool names(const struct symm_device_record *record, int member)
{
    for (int w = 0; w < SYMM_MEMBER_WORDS; w++)
        if (record->missing[w] != (w == member / 32 ? 1u << member % 32 : 0))
            return false;
    return true;
}

static void run_without(int size, int dead, int w)
{
    const struct kernel_call call = call_of(w, 0, size);
    double patience;

    HARNESS_PATIENCE(patience, 1)
    {
        struct job *job = calloc(1, sizeof(*job));
        struct heaps *heaps = open_team(size, patience, 0, 0);
        bool alone = true;

        *job = (struct job){.calls = &call, .count = 1, .dead = dead, .odd = -1};
        heaps_run(heaps, run_rank, job);
        for (int r = 0; r < size; r++) {
            const struct symm_device_record *record = heaps->team[r].record;

            if (r == dead)
                continue;
            assert_true(job->what[r][0] != '\0');
            assert_int_equal(record->state, (uint32_t)-SYMM_ERR_TIMEOUT);
            alone = alone && names(record, dead);
        }
        heaps_destroy(heaps);
        free(job);
        if (alone)
            return;
    }
    fail_msg("way %d: others than rank %d of %d are missing", w, dead, size);
}

static void test_dead(void **unused)
{
    (void)unused;
    reference_init();
    run_without(16, 9, 3);
    run_without(72, 70, 1);
    run_without(72, 40, 9);
}

/* Rank 67 makes another call: it sees that all others do, they that it does. */
static void test_mismatch(void **unused)
{
    static const int tried[] = {1, 3, 7};

    (void)unused;
    reference_init();
    for (int i = 0; i < 3; i++) {
        const struct kernel_call call = call_of(tried[i], 0, 72);
        struct job *job = calloc(1, sizeof(*job));
        struct heaps *heaps = open_team(72, 0, 0, 0);

        *job = (struct job){.calls = &call, .count = 1, .dead = -1, .odd = 67};
        heaps_run(heaps, run_rank, job);
        for (int r = 0; r < 72; r++) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_true(record->state == (uint32_t)-SYMM_ERR_MISMATCH ||
                        record->state == (uint32_t)-SYMM_ERR_ABORTED);
            if (r == 67)
                assert_int_equal(record->missing[2] >> 3 & 1, 0);
            else if (record->state == (uint32_t)-SYMM_ERR_MISMATCH)
                assert_true(names(record, 67));
        }
        heaps_destroy(heaps);
        free(job);
    }
}

/* A signal to the rank after this one, and a wait for that of the rank before. */
static void signal_rank(struct heaps *heaps, int rank, void *arg)
{
    struct symm_cuda_args args = heaps_args(heaps, rank, CHANNEL);

    args.signal = 255;
    args.peer = (rank + 1) % heaps->size;
    heaps_launch(heaps_find("symm_p2p_signal_wide"), &args, 1, 32);
    args.peer = (rank + heaps->size - 1) % heaps->size;
    heaps_launch(heaps_find("symm_p2p_signal_wait_wide"), &args, 1, 32);
    ((uint32_t *)arg)[rank] = args.team.state->awaited[args.peer][255];
}

/* The same, and a barrier, by functions of device.h. */
static void device_rank(struct heaps *heaps, int rank, void *arg)
{
    const struct symm_device_team *team = &heaps->team[rank];
    const int after = (rank + 1) % heaps->size;
    const int before = (rank + heaps->size - 1) % heaps->size;
    int status;

    assert_true(symm_device_layout_ok(team));
    symm_device_signal(team, after, 7, 5);
    status = symm_device_signal_wait(team, before, 7, 5);
    if (status == 0)
        status = symm_device_barrier(team, CHANNEL, 0, 1, 9);
    ((uint32_t *)arg)[rank] = (uint32_t)status;
}

static void test_device(void **unused)
{
    uint32_t result[SYMM_DEVICE_RANKS];
    struct heaps *heaps = open_team(72, 0, 0, 0);

    (void)unused;
    heaps_run(heaps, signal_rank, result);
    for (int r = 0; r < 72; r++)
        assert_int_equal(result[r], 1);
    heaps_destroy(heaps);
    heaps = open_team(20, 0, 0, 0);
    heaps_run(heaps, device_rank, result);
    for (int r = 0; r < 20; r++)
        assert_int_equal(result[r], 0);
    heaps_check(heaps, CHANNEL);
    heaps_destroy(heaps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_floats),
        cmocka_unit_test(test_dead),        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
