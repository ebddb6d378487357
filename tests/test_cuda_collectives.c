/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_collectives.c - every collective on the CUDA backend equals the reference, bit
 * for bit.
 * ctest: cost 7
 * ctest: load 3
 *
 * Over the fake driver, or on GPUs with SYMM_TEST_GPU=1: every dtype, reduction and number
 * of ranks up to 8, as processes and as threads; in place and out of place, symmetric,
 * private and oddly aligned memory; each algorithm by name. Inputs must not change, nothing
 * may be written outside the output, and each case uses new values. GPUs run all
 * combinations; the fake driver runs a part, selected by the seed.
 */
#include "device.h"
#include "reference_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAD ((size_t)64) /* kept and checked on both sides of the data */

/* NULL: the library chooses. Those that cannot do a case are refused by all ranks. */
static const char *const algorithms[] = {
    NULL,      "copy_in",      "one_shot_pull", "two_shot_pull", "two_shot_inplace",
    "ll_push", "lamport_push", "two_shot_push"};
#define ALGORITHMS ((int)(sizeof(algorithms) / sizeof(*algorithms)))

enum { SYMMETRIC, PRIVATE, PLACES };
static const size_t counts[] = {0, 1, 2, 3, 7, 8, 13, 64, 1000, 4097, 30000};
#define COUNTS ((int)(sizeof(counts) / sizeof(*counts)))
#define MOST   (30000 * (size_t)8 * 8 + 4 * PAD)

struct setting {
    symm_team *team;
    struct perf_gpu *gpu;
    void *stream;
    int rank, n;
    struct device_area in[PLACES], out[PLACES];
    char *want;
    int done[ALGORITHMS]; /* cases that were not refused */
};

struct trial {
    struct reference_call call;
    int algorithm, in_place;
    int from, to;         /* SYMMETRIC, PRIVATE */
    size_t in_at, out_at; /* offsets of the data, multiples of the element */
    bool on_stream;
};

static int setting_open(struct setting *s, symm_ctx *ctx)
{
    memset(s, 0, sizeof(*s));
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->gpu = device_open(ctx);
    s->want = malloc(MOST);
    CHECK(s->gpu && s->want);
    for (int p = 0; p < PLACES; p++) {
        symm_team *team = p == SYMMETRIC ? s->team : NULL;
        CHECK_ZERO(device_area_open(&s->in[p], s->gpu, team, MOST));
        CHECK_ZERO(device_area_open(&s->out[p], s->gpu, team, MOST));
    }
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

static void setting_close(struct setting *s, symm_ctx *ctx)
{
    symm_stream_destroy(ctx, s->stream);
    for (int p = 0; p < PLACES; p++) {
        device_area_close(&s->in[p]);
        device_area_close(&s->out[p]);
    }
    perf_gpu_close(s->gpu);
    free(s->want);
}

static size_t in_count(const struct setting *s, const struct trial *t)
{
    return t->call.count * reference_in_blocks(t->call.kind, s->n);
}

static size_t out_count(const struct setting *s, const struct trial *t)
{
    return t->call.count * reference_out_blocks(t->call.kind, s->n);
}

static symm_status invoke(const struct setting *s, const struct trial *t,
                          const void *in, void *out)
{
    const symm_call call = {.size = sizeof(call),
                            .site = kind_names[t->call.kind],
                            .algorithm = algorithms[t->algorithm],
                            .stream = t->on_stream ? s->stream : NULL};

    return reference_invoke(&t->call, s->team, in, out, &call, NULL);
}

static bool untouched(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != (char)0xa5)
            return false;
    return true;
}

static const char *describe(const struct setting *s, const struct trial *t, char *text,
                            size_t bytes)
{
    const char *algorithm = algorithms[t->algorithm];

    snprintf(text, bytes,
             "%s %s %s count %zu root %d n %d %s %s+%zu to %s+%zu, %s, stream %d",
             kind_names[t->call.kind], symm_dtype_name(t->call.dtype),
             symm_op_name(t->call.op), t->call.count, t->call.root, s->n,
             t->in_place ? "in place" : "out of place",
             t->from == SYMMETRIC ? "symmetric" : "private", t->in_at,
             t->to == SYMMETRIC ? "symmetric" : "private", t->out_at,
             algorithm ? algorithm : "chosen", t->on_stream);
    return text;
}

/* Host copies filled, devices' copies likewise; *in and *out are what the call gets. */
static int load(struct setting *s, const struct trial *t, struct device_area **in_area,
                size_t *in, size_t *out)
{
    struct device_area *to = &s->out[t->to];
    size_t size = reference_size(t->call.dtype), in_bytes = in_count(s, t) * size;
    size_t out_bytes = out_count(s, t) * size;
    size_t used = t->in_place && in_bytes > out_bytes ? in_bytes : out_bytes;

    *in_area = t->in_place ? to : &s->in[t->from];
    *out = PAD + t->out_at;
    *in = t->in_place ? *out : PAD + t->in_at;
    if (t->in_place && t->call.kind == ALL_GATHER)
        *in += (size_t)s->rank * in_bytes;
    memset(to->host + *out - PAD, 0xa5, used + 2 * PAD);
    reference_fill(t->call.dtype, t->call.op, t->call.seed, s->rank, 0, in_count(s, t),
                   (*in_area)->host + *in);
    CHECK_ZERO(device_put(to, *out - PAD, used + 2 * PAD));
    CHECK_ZERO(device_put(*in_area, *in, in_bytes));
    return 0;
}

static int run_trial(struct setting *s, const struct trial *t)
{
    size_t size = reference_size(t->call.dtype), where = 0, in, out;
    size_t in_bytes = in_count(s, t) * size, out_bytes = out_count(s, t) * size;
    size_t used = t->in_place && in_bytes > out_bytes ? in_bytes : out_bytes;
    struct device_area *source, *to = &s->out[t->to];
    char what[256];
    symm_status status;

    reference_expect(&t->call, s->n, s->rank, s->want);
    CHECK_ZERO(load(s, t, &source, &in, &out));
    status = invoke(s, t, source->device + in, to->device + out);
    if (t->algorithm != 0 &&
        (status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED))
        return 0;
    describe(s, t, what, sizeof(what));
    CHECK_MESSAGE(status == SYMM_OK, "%s: %s: %s", what, symm_status_name(status),
                  symm_last_error());
    CHECK_ZERO(perf_gpu_wait(s->gpu, t->on_stream ? s->stream : NULL));
    s->done[t->algorithm]++;
    CHECK_ZERO(device_get(to, out - PAD, used + 2 * PAD));
    CHECK_MESSAGE(
        reference_same(t->call.dtype, to->host + out, s->want, out_count(s, t), &where),
        "%s: element %zu is wrong; %s", what, where, symm_explain(s->team));
    CHECK_MESSAGE(untouched(to->host + out - PAD, PAD) &&
                      untouched(to->host + out + used, PAD),
                  "%s: written outside of the output", what);
    if (t->in_place || in_bytes == 0)
        return 0;
    reference_fill(t->call.dtype, t->call.op, t->call.seed, s->rank, 0, in_count(s, t),
                   s->want);
    CHECK_ZERO(device_get(source, in, in_bytes));
    CHECK_MESSAGE(memcmp(source->host + in, s->want, in_bytes) == 0,
                  "%s: the input was changed", what);
    return 0;
}

/* A case at random, the same on all ranks but for the alignment of private memory. */
static struct trial pick(const struct setting *s, uint64_t *random)
{
    uint64_t r = harness_random(random), q = harness_random(random);
    struct trial t = {.call.kind = r % 2 ? ALL_REDUCE : (enum kind)(r / 2 % KINDS),
                      .call.dtype = (symm_dtype)(r / 16 % REFERENCE_DTYPES),
                      .call.count = counts[r / 1024 % COUNTS],
                      .call.root = (int)(r / 65536 % (uint64_t)s->n),
                      .algorithm = (int)(q % ALGORITHMS),
                      .in_place = (int)(q / 16 % 2),
                      .from = (int)(q / 32 % PLACES),
                      .to = (int)(q / 64 % PLACES),
                      .call.seed = (uint32_t)(q >> 32),
                      .on_stream = q / 128 % 4 != 0};
    size_t own = (size_t)s->rank, size;

    if (q / 1024 % 2)
        t.call.dtype = SYMM_BFLOAT16; /* half of all: the usual one */
    size = reference_size(t.call.dtype);
    if (t.call.kind == ALL_REDUCE || t.call.kind == REDUCE_SCATTER)
        t.call.op = reference_op(t.call.dtype, (unsigned)(r / 256 % REFERENCE_OPS));
    t.in_at = (q / 2048 % 4 + (t.from == PRIVATE ? own : 0)) * size * (q / 8192 % 2);
    t.out_at = (q / 16384 % 4 + (t.to == PRIVATE ? own : 0)) * size * (q / 65536 % 2);
    if (t.in_place)
        t.from = t.to;
    return t;
}

static int body_random(symm_ctx *ctx, void *arg)
{
    const uint64_t *seed = arg;
    struct setting s;
    uint64_t random;
    int64_t trials;

    CHECK_ZERO(setting_open(&s, ctx));
    random = *seed + (uint64_t)s.n;
    trials = harness_env("SYMM_TEST_LONG", 0) ? 240 : 120;
    trials = harness_env("SYMM_TEST_TRIALS", device_real() ? 6000 : trials);
    for (int64_t i = 0; i < trials; i++) {
        struct trial t = pick(&s, &random);
        CHECK_ZERO(run_trial(&s, &t));
    }
    for (int a = 0; a < ALGORITHMS && trials >= 1000; a++)
        CHECK_MESSAGE(s.n == 1 || s.done[a] > 0, "%s was always refused",
                      algorithms[a] ? algorithms[a] : "the library's choice");
    setting_close(&s, ctx);
    return 0;
}

static void run(enum harness_mode mode)
{
    uint64_t *seed = harness_shared(sizeof(*seed));
    int most = device_ranks(8);

    reference_init();
    *seed = (uint64_t)harness_env("SYMM_TEST_SEED", (int64_t)(harness_now() * 1e6));
    printf("seed %llu\n", (unsigned long long)*seed);
    for (int n = most; n >= 1; n = n > 3 && !device_real() ? n - 3 : n - 1) {
        struct harness h = {.ranks = n, .mode = mode, .body = body_random, .arg = seed};
        h.heap_bytes = (size_t)1 << 30;
        assert_int_equal(harness_run(&h), 0);
    }
    harness_shared_free(seed, sizeof(*seed));
}

static void processes(void **state)
{
    (void)state;
    run(HARNESS_PROCESSES);
}

static void threads(void **state)
{
    (void)state;
    run(HARNESS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes),
                                       cmocka_unit_test(threads)};

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
