/* SPDX-License-Identifier: MIT */
/*
 * test_driver_calls.c - the public collectives on the CUDA backend: over the fake driver, or
 * on GPUs with SYMM_TEST_GPU=1.
 * ctest: cost 8
 * ctest: load 3
 *
 * Results are compared bit for bit with the reference: on the NULL stream and on created
 * streams, in symmetric and in private memory, aligned and not, in place and out of place,
 * by the library's choice and by each algorithm's name, in teams made by split, with
 * counters near their wraps. Also refused calls and their errors.
 */
#include "cuda/device.h"
#include "device_stage.h"
#include "reference_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "core/slots.h"
#include "core/team.h"
#include "select/select.h"
#include "setup/thread_group.h"

#define AREA_BYTES ((size_t)1 << 20)
#define GUARD      ((size_t)64) /* kept and checked after the data */

struct test_case {
    enum kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    bool in_private, out_private, in_place;
    size_t in_shift, out_shift; /* elements */
    const char *algorithm;
    bool may_refuse;
};

static struct reference_call call_of(const struct device_stage *s,
                                     const struct test_case *t)
{
    return (struct reference_call){t->kind,  t->dtype, t->op,
                                   t->count, s->n - 1, s->seed};
}

static symm_status invoke(const struct device_stage *s, const struct test_case *t,
                          const void *in, void *out, void *stream, symm_work **work)
{
    const struct reference_call made = call_of(s, t);
    const symm_call call = {.size = sizeof(call),
                            .site = kind_names[t->kind],
                            .stream = stream,
                            .algorithm = t->algorithm};

    return reference_invoke(&made, s->team, in, out, &call, work);
}

/* Places of input and output in their areas. */
static void places(const struct device_stage *s, const struct test_case *t,
                   size_t *in_at, size_t *out_at)
{
    size_t element = symm_dtype_size(t->dtype), block = t->count * element;

    *in_at = GUARD + t->in_shift * element;
    *out_at = AREA_BYTES / 2 + GUARD + t->out_shift * element;
    if (t->in_place && t->kind == ALL_GATHER)
        *in_at = *out_at + (size_t)s->rank * block;
    else if (t->in_place)
        *out_at = *in_at;
}

static int run_case(struct device_stage *s, const struct test_case *t, void *stream)
{
    char *wanted = s->wanted;
    const struct device_area *in = &s->area[t->in_private],
                             *out =
                                 &s->area[t->in_place ? t->in_private : t->out_private];
    size_t block = t->count * symm_dtype_size(t->dtype), in_at, out_at, where = 0;
    size_t elements = t->count * reference_out_blocks(t->kind, s->n);
    size_t bytes = block * reference_out_blocks(t->kind, s->n);
    struct reference_call made;
    symm_status status;

    places(s, t, &in_at, &out_at);
    if (in_at + block * reference_in_blocks(t->kind, s->n) + GUARD > AREA_BYTES ||
        out_at + bytes + GUARD > AREA_BYTES)
        return 0;
    s->seed++;
    made = call_of(s, t);
    memset(out->host + out_at, 0xa5, bytes + GUARD);
    reference_fill(t->dtype, t->op, s->seed, s->rank, 0,
                   t->count * reference_in_blocks(t->kind, s->n), in->host + in_at);
    CHECK_ZERO(device_put(out, out_at, bytes + GUARD));
    CHECK_ZERO(device_put(in, in_at, block * reference_in_blocks(t->kind, s->n)));
    status = invoke(s, t, in->device + in_at, out->device + out_at, stream, NULL);
    if (t->may_refuse && status == SYMM_ERR_INVALID)
        return 0;
    CHECK_MESSAGE(status == SYMM_OK, "%s %s %zu: %s", kind_names[t->kind],
                  t->algorithm ? t->algorithm : "", t->count, symm_last_error());
    CHECK_OK(symm_stream_synchronize(s->ctx, stream, 0));
    CHECK_ZERO(device_get(out, out_at, bytes + GUARD));
    reference_expect(&made, s->n, s->rank, wanted);
    CHECK_MESSAGE(
        reference_same(t->dtype, out->host + out_at, wanted, elements, &where),
        "%s of %zu %s %s, %d ranks: element %zu differs (%s)", kind_names[t->kind],
        t->count, symm_dtype_name(t->dtype), symm_op_name(t->op), s->n, where,
        symm_explain(s->team));
    for (size_t i = 0; i < GUARD && !(t->in_place && t->kind != ALL_REDUCE); i++)
        CHECK_MESSAGE(out->host[out_at + bytes + i] == (char)0xa5,
                      "%s wrote %zu bytes beyond its output", kind_names[t->kind], i);
    return 0;
}

/* ---- Every collective, chosen by the library ----------------------------------------- */

static const struct {
    bool in_private, out_private, in_place;
    size_t in_shift, out_shift;
} layouts[] = {{false, false, false, 0, 0}, {false, false, true, 0, 0},
               {true, true, false, 0, 0},   {true, true, true, 0, 0},
               {true, true, false, 1, 3},   {false, true, false, 0, 0},
               {true, false, false, 2, 0},  {false, false, true, 1, 0}};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static const struct {
    symm_dtype dtype;
    symm_op op;
} types[] = {{SYMM_FLOAT32, SYMM_SUM},     {SYMM_BFLOAT16, SYMM_SUM},
             {SYMM_FLOAT16, SYMM_AVG},     {SYMM_INT32, SYMM_MAX},
             {SYMM_FLOAT64, SYMM_PROD},    {SYMM_UINT8, SYMM_SUM},
             {SYMM_FLOAT8_E4M3, SYMM_SUM}, {SYMM_INT64, SYMM_MIN}};
#define TYPES (sizeof(types) / sizeof(types[0]))

static const size_t counts[] = {1, 0, 7, 8, 1000, 4099, 20000};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static int collectives(symm_ctx *ctx, void *arg)
{
    struct device_stage s;
    unsigned step = *(const unsigned *)arg, pick = 0;

    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned c = 0; c < COUNTS; c++)
            for (unsigned l = 0; l < LAYOUTS; l++) {
                unsigned t = pick++ % TYPES;
                const struct test_case test = {.kind = (enum kind)k,
                                               .dtype = types[t].dtype,
                                               .op = types[t].op,
                                               .count = counts[c],
                                               .in_private = layouts[l].in_private,
                                               .out_private = layouts[l].out_private,
                                               .in_place = layouts[l].in_place,
                                               .in_shift = layouts[l].in_shift,
                                               .out_shift = layouts[l].out_shift};

                if (pick % step == 0)
                    CHECK_ZERO(run_case(&s, &test, pick & 1 ? s.stream : NULL));
            }
    device_stage_close(&s);
    return 0;
}

/* Processes are forked before ranks that are threads start the driver in this process. */
static enum harness_mode pass = HARNESS_PROCESSES;

static int run(harness_body body, int ranks, enum harness_mode mode, uint32_t start,
               unsigned step)
{
    struct harness h = {.ranks = ranks,
                        .mode = mode,
                        .body = body,
                        .arg = &step,
                        .team_bytes = (size_t)128 << 20,
                        .heap_bytes = (size_t)1 << 30,
                        .epoch_start = start};

    return mode != pass || device_ranks(ranks) < ranks ? 0 : harness_run(&h);
}

static void test_collectives(void **state)
{
    (void)state;
    assert_int_equal(run(collectives, 1, HARNESS_THREADS, 0, 3), 0);
    assert_int_equal(run(collectives, 2, HARNESS_PROCESSES, 0, 1), 0);
    assert_int_equal(run(collectives, 2, HARNESS_THREADS, 0, 2), 0);
    assert_int_equal(run(collectives, 3, HARNESS_THREADS, 0, 3), 0);
    assert_int_equal(run(collectives, 4, HARNESS_PROCESSES, 0, 5), 0);
    assert_int_equal(run(collectives, 8, HARNESS_THREADS, 0, 9), 0);
}

/* Counters of calls, and of rounds, pass their ends in the middle. */
static void test_wraps(void **state)
{
    (void)state;
    assert_int_equal(run(collectives, 2, HARNESS_THREADS, UINT32_MAX - 20, 2), 0);
    assert_int_equal(run(collectives, 2, HARNESS_PROCESSES, UINT32_MAX, 5), 0);
    assert_int_equal(run(collectives, 3, HARNESS_THREADS, UINT32_MAX - 1, 7), 0);
}

/* ---- Every algorithm by name -------------------------------------------------------- */

static int by_name(symm_ctx *ctx, void *arg)
{
    static const char *const names[] = {
        "copy_in", "one_shot_pull", "two_shot_inplace", "two_shot_pull",
        "ll_push", "lamport_push",  "two_shot_push"};
    struct device_stage s;

    (void)arg;
    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned a = 0; a < sizeof(names) / sizeof(names[0]); a++)
            for (unsigned c = 0; c < COUNTS; c += 2) {
                struct test_case test = {.kind = (enum kind)k,
                                         .dtype = SYMM_BFLOAT16,
                                         .op = SYMM_SUM,
                                         .count = counts[c],
                                         .algorithm = names[a],
                                         .may_refuse = k != ALL_REDUCE};

                CHECK_ZERO(run_case(&s, &test, s.stream));
                test.in_private = test.out_private = true;
                test.may_refuse = true;
                CHECK_ZERO(run_case(&s, &test, NULL));
            }
    device_stage_close(&s);
    return 0;
}

static void test_by_name(void **state)
{
    (void)state;
    assert_int_equal(run(by_name, 2, HARNESS_PROCESSES, 0, 1), 0);
    assert_int_equal(run(by_name, 3, HARNESS_THREADS, 0, 1), 0);
}

/* ---- Teams ---------------------------------------------------------------------------- */

static int in_teams(symm_ctx *ctx, void *arg)
{
    struct device_stage s, half;
    symm_team *team = NULL;
    const struct test_case test = {
        .kind = ALL_REDUCE, .dtype = SYMM_FLOAT32, .op = SYMM_SUM, .count = 300};
    const void *device = NULL, *again = NULL;

    (void)arg;
    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    for (int round = 0; round < 3; round++) {
        CHECK_OK(symm_team_split(s.team, s.rank % 2, -s.rank, &team));
        half = s;
        half.team = team;
        half.rank = symm_team_rank(team);
        half.n = symm_team_size(team);
        CHECK_ZERO(run_case(&half, &test, NULL));
        CHECK_ZERO(run_case(&half, &test, s.stream));
        s.seed = half.seed;
        CHECK_ZERO(run_case(&s, &test, s.stream));
        CHECK_OK(symm_team_device(team, &device));
        CHECK_OK(symm_team_device(team, &again));
        CHECK(device != NULL && device == again);
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        CHECK_OK(symm_stream_synchronize(ctx, NULL, 0));
        symm_team_destroy(team);
    }
    device_stage_close(&s);
    return 0;
}

/*
 * Ranks that are threads: a team's place is taken until the last store of the last member.
 * Rank 0 leaves a team while its device is busy, when rank 1 has left.
 */
static int leave_late(symm_ctx *ctx, void *arg)
{
    static _Atomic int leaving;
    struct device_stage s;
    symm_team *team = NULL;

    (void)arg;
    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    CHECK_OK(symm_team_split(s.team, 0, 0, &team));
    CHECK_OK(symm_barrier(team, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, 0));
    if (s.rank == 0) {
        const symm_call call = {.size = sizeof(call), .stream = s.stream};

        CHECK_OK(symm_signal_wait(s.team, 1, 3, &call, NULL));
        atomic_store(&leaving, 1);
        symm_team_destroy(team);
        atomic_store(&leaving, 2);
    } else {
        struct symm_slots held;
        const int place = team->slot;

        symm_team_destroy(team);
        CHECK(harness_until(&leaving, 1));
        harness_sleep(0.02); /* for it to be in the call */
        held = symm__thread_group_held(ctx->thread_group, s.rank);
        CHECK(symm__slots_has(&held, place));
        CHECK_OK(symm_signal(s.team, 0, 3, NULL, NULL));
        CHECK(harness_until(&leaving, 2));
        held = symm__thread_group_held(ctx->thread_group, s.rank);
        CHECK(!symm__slots_has(&held, place));
    }
    device_stage_close(&s);
    return 0;
}

static void test_teams(void **state)
{
    (void)state;
    assert_int_equal(run(in_teams, 4, HARNESS_THREADS, 0, 1), 0);
    assert_int_equal(run(in_teams, 3, HARNESS_PROCESSES, 0, 1), 0);
    assert_int_equal(run(leave_late, 2, HARNESS_THREADS, 0, 1), 0);
}

/* ---- What is refused, what is told ----------------------------------------------------- */

static int leaves(struct device_stage *s, void *memory)
{
    CHECK_STATUS(symm_all_reduce(s->team, memory, memory, (size_t)1 << 38, SYMM_FLOAT32,
                                 SYMM_SUM, NULL, NULL),
                 SYMM_ERR_INVALID); /* its end is no address of a program */
    CHECK_ERROR("leaves its allocation");
    return 0;
}

/*
 * Memory that was reachable is freed, and memory of the host lies there now: the put that was
 * right before is refused. So is a call whose array leaves its allocation.
 */
static int anew(struct device_stage *s)
{
    const size_t bytes = (size_t)1 << 20;
    char *out = s->area[0].device;
    void *memory = NULL, *host = NULL;

    /* Another rank's thread may take the place first: then again. */
    for (int turn = 0; turn < 50 && (!memory || host != memory); turn++) {
        if (host && host != MAP_FAILED)
            munmap(host, bytes);
        CHECK_OK(symm__cuda_local_alloc(s->ctx->backend, bytes, &memory));
        CHECK_OK(symm_put(s->team, out, memory, 64, 0, NULL, NULL));
        CHECK_ZERO(leaves(s, memory));
        CHECK_OK(symm_stream_synchronize(s->ctx, NULL, HARNESS_AMPLE));
        symm__cuda_local_free(s->ctx->backend, memory);
        host = mmap(memory, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    CHECK(host == memory);
    CHECK_STATUS(symm_put(s->team, out, memory, 64, 0, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("memory of the host");
    munmap(host, bytes);
    return 0;
}

/* What symm_explain says of streams: the channel, the grid, what bounds a wait. */
static int check_explained(struct device_stage *s, const void *in, void *out)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "explained",
                            .stream = s->stream,
                            .channel = 7,
                            .timeout = 2.5};
    const char *text;
    char place[64];

    CHECK_OK(symm_all_reduce(s->team, in, out, 8, SYMM_FLOAT32, SYMM_SUM, &call, NULL));
    text = symm_explain(s->team);
    snprintf(place, sizeof(place), "; channel 7, stream %p, ", s->stream);
    CHECK_MESSAGE(strstr(text, place), "%s", text);
    CHECK_MESSAGE(strstr(text, " threads on 4 multiprocessors; ") || device_real(),
                  "%s", text);
    CHECK_MESSAGE(strstr(text, " hardware queues (CUDA_DEVICE_MAX_CONNECTIONS"), "%s",
                  text);
    CHECK_MESSAGE(strstr(text, "is waited for 25 s (SYMM_QUEUE_TIMEOUT)"), "%s", text);
    CHECK_OK(symm_barrier(s->team, NULL, NULL));
    text = symm_explain(s->team);
    CHECK_MESSAGE(strstr(text, ", the default stream, 1 blocks of "), "%s", text);
    CHECK_OK(symm_get(s->team, out, out, 8, s->rank, &call, NULL));
    CHECK(strcmp(symm_explain(s->team), "a kernel copies from the peer's mapping") ==
          0);
    CHECK_OK(symm_signal(s->team, s->rank, 1, &call, NULL));
    CHECK_OK(symm_signal_wait(s->team, s->rank, 1, &call, NULL));
    CHECK_MESSAGE(strstr(symm_explain(s->team), "waits for the signal"), "%s",
                  symm_explain(s->team));
    return 0;
}

static int refusals(symm_ctx *ctx, void *arg)
{
    static float host[64];
    struct device_stage s;
    symm_call call = {.size = sizeof(call), .site = "refused"};
    float *in, *out;

    (void)arg;
    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    in = (float *)(void *)s.area[1].device;
    out = (float *)(void *)s.area[0].device;
    if (!device_real()) { /* a GPU may reach all memory of the host */
        CHECK_STATUS(
            symm_all_reduce(s.team, host, out, 8, SYMM_FLOAT32, SYMM_SUM, &call, NULL),
            SYMM_ERR_INVALID);
        CHECK_ERROR("memory of the host");
        CHECK_STATUS(symm_put(s.team, out, host, 8, 0, &call, NULL), SYMM_ERR_INVALID);
        CHECK_ERROR("`src`");
        CHECK_ZERO(anew(&s));
    }
    call.algorithm = "two_shot_inplace";
    CHECK_STATUS(
        symm_all_reduce(s.team, in, out, 8, SYMM_FLOAT32, SYMM_SUM, &call, NULL),
        SYMM_ERR_INVALID);
    CHECK_ERROR("not symmetric memory");
    call.algorithm = "lamport_push";
    CHECK_STATUS(symm_all_reduce(s.team, in, out, 8, SYMM_INT32, SYMM_SUM, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("no such kernel");
    call.algorithm = "multimem_one_shot";
    CHECK_STATUS(
        symm_all_reduce(s.team, in, out, 8, SYMM_FLOAT32, SYMM_SUM, &call, NULL),
        SYMM_ERR_INVALID);
    CHECK_ERROR("multicast");
    call.algorithm = "teleport";
    CHECK_STATUS(
        symm_all_reduce(s.team, in, out, 8, SYMM_FLOAT32, SYMM_SUM, &call, NULL),
        SYMM_ERR_INVALID);
    CHECK_ERROR("unknown to the cuda backend");
    call.algorithm = NULL;
    call.channel = SYMM_CHANNELS + 1;
    CHECK_STATUS(symm_barrier(s.team, &call, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("symm_call.channel");
    call.channel = 0;
    call.stream = (void *)2; /* CU_STREAM_PER_THREAD */
    CHECK_OK(symm_barrier(s.team, &call, NULL));
    call.stream = (void *)1; /* CU_STREAM_LEGACY: the NULL stream */
    CHECK_OK(symm_barrier(s.team, &call, NULL));
    CHECK_OK(symm_all_reduce(s.team, in, out, 8, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    CHECK(strstr(symm_explain(s.team), "on the cuda backend") != NULL);
    CHECK_ZERO(check_explained(&s, in, out));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, 0));
    device_stage_close(&s);
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(run(refusals, 2, HARNESS_THREADS, 0, 1), 0);
    assert_int_equal(run(refusals, 2, HARNESS_PROCESSES, 0, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_wraps),    cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_teams),
    };
    int failed;

    device_suite();
    reference_init();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
