/* SPDX-License-Identifier: MIT */
/*
 * test_host_norm.c - symm_all_reduce_norm on the host backend.
 * ctest: cost 5
 * ctest: load 3
 *
 * Random shapes, types, options, aliasing and alignments over 1 to 5 ranks, as processes and as
 * threads, in symmetric and private memory, on the NULL stream and on streams with handles,
 * against the steps of symm/norm.h (SYMM_TEST_CASES: how many for each number of ranks). Sums and
 * residuals have the bits of symm_all_reduce. Ranks that differ in an option get a mismatch, and
 * refused calls change nothing.
 */
#include "harness.h"
#include "norm_case.h"
#include "norm/expect.h"
#include "reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES (HARNESS_SLOW ? 60 : harness_env("SYMM_TEST_LONG", 0) ? 400 : 200)

/* ---- Results ------------------------------------------------------------------------------ */

/* Arrays of symmetric memory have the same offset on all ranks, private ones any alignment. */
static int one_case(symm_team *team, uint64_t number, char *block, void *stream)
{
    const int rank = symm_team_rank(team), ranks = symm_team_size(team);
    const symm_call call = {.size = sizeof(call), .stream = stream, .site = "norm"};
    struct norm_case c;
    symm_work *work = NULL;

    norm_case_draw(&c, number, number % 10 ? 20000 : NORM_CASE_ELEMENTS, rank,
                   number % 2 ? (size_t)(4 * (rank % 4)) : number % 3 * 4, block);
    CHECK_OK(symm_all_reduce_norm(team, &c.norm, &call, &work));
    CHECK_OK(symm_work_synchronize(work, 0));
    symm_work_release(work);
    CHECK_MESSAGE(norm_case_check(&c, ranks) == 0, "rank %d of %d: %s", rank, ranks,
                  c.text);
    return 0;
}

static int body_random(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    char *private = malloc(NORM_CASE_BYTES);
    const uint64_t cases = (uint64_t)harness_env("SYMM_TEST_CASES", CASES);
    symm_buffer *buffer;
    void *stream;
    int failed = 0;

    (void)arg;
    CHECK(private != NULL);
    CHECK_OK(symm_buffer_alloc(team, NORM_CASE_BYTES, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_stream_create(ctx, &stream));
    for (uint64_t k = 0; k < cases && !failed; k++)
        failed = one_case(team, k, k % 2 ? private : symm_buffer_ptr(buffer),
                          k % 5 == 4 ? stream : NULL);
    symm_stream_destroy(ctx, stream);
    symm_buffer_release(buffer);
    free(private);
    return failed;
}

static void random_cases_are_right(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        struct harness h = {.ranks = ranks, .body = body_random};

        h.mode = ranks % 2 ? HARNESS_PROCESSES : HARNESS_THREADS;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* ---- Bits --------------------------------------------------------------------------------- */

#define ROWS   12
#define HIDDEN 384
#define COUNT  ((size_t)ROWS * HIDDEN)

/* As all_reduce, add, in every dtype; each algorithm by name. */
static int body_bits(symm_ctx *ctx, void *arg)
{
    static const char *const algorithms[] = {NULL, "copy_in", "one_shot_pull",
                                             "two_shot_inplace"};
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer;
    char *at, sums[COUNT * 4], residual[COUNT * 4], both[COUNT * 4];

    (void)arg;
    CHECK_OK(symm_buffer_alloc(team, 5 * sizeof(sums), &buffer));
    CHECK_OK(symm_rendezvous(team));
    at = symm_buffer_ptr(buffer);
    for (int k = 0; k < 12; k++) {
        const symm_dtype dtype = dtypes[k % 3];
        const size_t bytes = COUNT * symm_dtype_size(dtype);
        const symm_call call = {.size = sizeof(call), .algorithm = algorithms[k / 3]};
        const symm_norm norm = {.size = sizeof(norm),
                                .rows = ROWS,
                                .hidden = HIDDEN,
                                .dtype = dtype,
                                .eps = 1e-6f,
                                .in = at,
                                .residual_in = residual,
                                .sum_out = at + sizeof(sums),
                                .residual_out = at + 2 * sizeof(sums),
                                .norm_out = at + 3 * sizeof(sums)};
        const void *pair[2] = {sums, residual};

        norm_fill(dtype, (uint64_t)(k * 100 + symm_team_rank(team)), 2, COUNT, at);
        norm_fill(dtype, (uint64_t)(k * 100 + 99), 3, COUNT, residual);
        CHECK_OK(symm_all_reduce(team, at, sums, COUNT, dtype, SYMM_SUM, NULL, NULL));
        reference_combine(dtype, SYMM_SUM, pair, 2, COUNT, both);
        CHECK_OK(symm_all_reduce_norm(team, &norm, &call, NULL));
        CHECK(memcmp(norm.sum_out, sums, bytes) == 0);
        CHECK(memcmp(norm.residual_out, both, bytes) == 0);
        CHECK_MESSAGE(strstr(symm_explain(team), "all_reduce_norm") &&
                          (k < 3 || strstr(symm_explain(team), algorithms[k / 3])),
                      "symm_explain says \"%s\"", symm_explain(team));
        CHECK_OK(symm_barrier(team, NULL, NULL));
    }
    return 0;
}

static void bits_are_those_of_all_reduce(void **state)
{
    struct harness h = {.ranks = 3, .body = body_bits};

    (void)state;
    assert_int_equal(harness_run_both(h), 0);
}

/* ---- Mismatches ----------------------------------------------------------------------------- */

/* What the last rank's call differs in, and what the sentence says of it. */
static const struct {
    const char *field, *words;
} differences[] = {
    {"eps", "`eps` is "},
    {"hidden", "rows of 16, "},
    {"flags", "`flags` are 0x"},
    {"weight_offset", "`weight_offset` is "},
    {"weight", "`weight` is "},
    {"quant", "`quant` is "},
    {"rows", " of 288 float32"},
    {"no_rows", ") step 1: all ranks"}, /* no pointer of it is "NULL" */
    {"residual_in", "`residual_in` is "},
    {"bias", "`bias` is "},
    {"sum_out", "`sum_out` is "},
    {"residual_out", "`residual_out` is "},
    {"norm_out", "`norm_out` is "},
};

static symm_norm change(symm_norm norm, const char *field)
{
    static float more[512], other[512], row[64];
    static uint8_t bytes[512];

#define IS(name) (strcmp(field, #name) == 0)
    norm.eps = IS(eps) ? 1e-5f : norm.eps;
    norm.rows = IS(hidden) ? 16 : IS(rows) ? 9 : IS(no_rows) ? 0 : norm.rows;
    norm.hidden = IS(hidden) ? 16 : norm.hidden;
    norm.flags = IS(flags) ? SYMM_NORM_CONSTANT : 0;
    norm.weight_offset = IS(weight_offset) ? 1 : 0;
    norm.weight = IS(weight) ? row : NULL;
    norm.bias = IS(bias) ? row : NULL;
    norm.residual_in = IS(residual_in) ? more : NULL;
    norm.sum_out = IS(sum_out) ? other : NULL;
    norm.residual_out = IS(residual_out) ? other : norm.residual_out;
    norm.norm_out = IS(norm_out) ? NULL : norm.norm_out;
    norm.quant = IS(quant) ? SYMM_NORM_QUANT_ROW : SYMM_NORM_QUANT_NONE;
    norm.quant_out = IS(quant) ? bytes : NULL;
    norm.scale = IS(quant) ? more : NULL;
#undef IS
    return norm;
}

static int body_differs(symm_ctx *ctx, void *arg)
{
    static float in[512], out[512], second[512];
    const int which = *(const int *)arg;
    const bool norm_out = strcmp(differences[which].field, "norm_out") == 0;
    symm_team *team = symm_team_world(ctx);
    symm_norm norm = {.size = sizeof(norm),
                      .rows = 8,
                      .hidden = 32,
                      .dtype = SYMM_FLOAT32,
                      .eps = 1e-6f,
                      .in = in,
                      .residual_out = norm_out ? second : NULL,
                      .norm_out = out};
    const symm_call call = {.size = sizeof(call), .site = "layer"};

    if (symm_team_rank(team) == symm_team_size(team) - 1)
        norm = change(norm, differences[which].field);
    CHECK_STATUS(symm_all_reduce_norm(team, &norm, &call, NULL), SYMM_ERR_MISMATCH);
    CHECK_ERROR("all_reduce_norm");
    CHECK_ERROR("'layer'");
    CHECK_ERROR(differences[which].words);
    return 0;
}

static void options_are_compared(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof(differences) / sizeof(differences[0])); i++) {
        struct harness h = {.ranks = 3, .body = body_differs, .arg = &i};

        if (harness_run(&h) != 0)
            fail_msg("a difference of %s", differences[i].field);
    }
}

/* ---- Refused calls -------------------------------------------------------------------------- */

static int refuse(symm_team *team, symm_norm norm, symm_status wanted, const char *word)
{
    CHECK_STATUS(symm_all_reduce_norm(team, &norm, NULL, NULL), wanted);
    CHECK_ERROR(word);
    return 0;
}

/* With a scale that is read when the call runs. */
static symm_norm scaled(symm_norm norm, void *quant, float *scale)
{
    norm.quant = SYMM_NORM_QUANT_TENSOR;
    norm.quant_out = quant;
    norm.scale = scale;
    return norm;
}

#define WITH(field, value) ((changed = norm), changed.field = (value), changed)

static int body_refused(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    float in[64] = {0}, out[64], scale[64];
    uint8_t quant[64];
    symm_norm norm = {.size = sizeof(norm),
                      .rows = 4,
                      .hidden = 16,
                      .dtype = SYMM_FLOAT32,
                      .in = in,
                      .norm_out = out};
    symm_norm changed;

    (void)arg;
    CHECK_ZERO(refuse(team, WITH(size, 3), SYMM_ERR_INVALID, "symm_norm.size"));
    CHECK_ZERO(refuse(team, WITH(dtype, SYMM_FLOAT64), SYMM_ERR_INVALID, "float64"));
    CHECK_ZERO(refuse(team, WITH(dtype, (symm_dtype)99), SYMM_ERR_INVALID, "dtype"));
    CHECK_ZERO(refuse(team, WITH(hidden, 0), SYMM_ERR_INVALID, "0 columns"));
    CHECK_ZERO(refuse(team, WITH(hidden, 16385), SYMM_ERR_INVALID, "16385"));
    CHECK_ZERO(refuse(team, WITH(rows, SIZE_MAX / 8), SYMM_ERR_OVERFLOW, "fit"));
    CHECK_ZERO(refuse(team, WITH(rows, SIZE_MAX / 64), SYMM_ERR_OVERFLOW, "fit"));
    CHECK_ZERO(
        refuse(team, WITH(quant, (symm_norm_quant)7), SYMM_ERR_INVALID, "quant"));
    CHECK_ZERO(refuse(team, WITH(flags, 8), SYMM_ERR_INVALID, "flags"));
    CHECK_ZERO(refuse(team, WITH(reserved, 1), SYMM_ERR_INVALID, "reserved"));
    CHECK_ZERO(refuse(team, WITH(eps, -1), SYMM_ERR_INVALID, "eps"));
    CHECK_ZERO(refuse(team, WITH(eps, __builtin_nanf("")), SYMM_ERR_INVALID, "eps"));
    CHECK_ZERO(refuse(team, WITH(weight_offset, __builtin_inff()), SYMM_ERR_INVALID,
                      "weight_offset"));
    CHECK_ZERO(refuse(team, WITH(norm_out, NULL), SYMM_ERR_INVALID, "outputs"));
    CHECK_ZERO(refuse(team, WITH(quant_out, quant), SYMM_ERR_INVALID, "quant_out"));
    CHECK_ZERO(refuse(team, WITH(scale, scale), SYMM_ERR_INVALID, "scale"));
    CHECK_ZERO(
        refuse(team, WITH(quant, SYMM_NORM_QUANT_ROW), SYMM_ERR_INVALID, "quant_out"));
    CHECK_ZERO(refuse(team, WITH(in, NULL), SYMM_ERR_INVALID, "`in`"));
    CHECK_ZERO(refuse(team, WITH(in, (char *)in + 1), SYMM_ERR_INVALID, "aligned"));
    CHECK_ZERO(
        refuse(team, WITH(weight, (char *)in + 2), SYMM_ERR_INVALID, "`weight`"));
    CHECK_ZERO(refuse(team, WITH(norm_out, in + 1), SYMM_ERR_INVALID, "overlap"));
    CHECK_ZERO(refuse(team, WITH(residual_out, out + 8), SYMM_ERR_INVALID, "overlap"));
    CHECK_ZERO(refuse(team, WITH(weight, out), SYMM_ERR_INVALID, "overlap"));
    CHECK_ZERO(refuse(team, scaled(norm, quant, out + 5), SYMM_ERR_INVALID, "overlap"));
    CHECK_ZERO(
        refuse(team, scaled(norm, scale, scale + 1), SYMM_ERR_INVALID, "overlap"));
    CHECK_STATUS(symm_all_reduce_norm(team, NULL, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_OK(symm_all_reduce_norm(team, &norm, NULL, NULL)); /* nothing was lost */
    changed = WITH(rows, 0);
    CHECK_OK(symm_all_reduce_norm(team, &changed, NULL, NULL));
    changed.in = NULL;
    changed.norm_out = NULL;
    changed.residual_out = symm_team_rank(team) ? out : NULL; /* not compared */
    CHECK_OK(symm_all_reduce_norm(team, &changed, NULL, NULL));
    changed.quant = SYMM_NORM_QUANT_TENSOR;
    CHECK_OK(symm_all_reduce_norm(team, &changed, NULL, NULL));
    return 0;
}

static void bad_calls_are_refused(void **state)
{
    struct harness h = {.ranks = 2, .body = body_refused};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_are_right),
        cmocka_unit_test(bits_are_those_of_all_reduce),
        cmocka_unit_test(options_are_compared),
        cmocka_unit_test(bad_calls_are_refused),
    };

    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
