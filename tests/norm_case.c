/* SPDX-License-Identifier: MIT */
/* norm_case.c - see norm_case.h. */
#include "norm_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "norm/expect.h"

#define GUARD 64 /* bytes between arrays that nothing may write */

static const size_t widths[] = {1,   7,    8,    64,   100,  127,  128,   129,
                                512, 1000, 1024, 2048, 4096, 5120, 16384, 8192};

static void *carve(char **at, size_t shift, size_t bytes)
{
    char *array = *at + GUARD + shift;

    memset(*at, 0x5a, GUARD + shift + bytes + GUARD);
    *at += (GUARD + shift + bytes + GUARD + 63) / 64 * 64;
    return array;
}

static void draw_options(struct norm_case *c, uint64_t *state)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    symm_norm *norm = &c->norm;

    *norm = (symm_norm){.size = sizeof(*norm), .rows = c->rows, .hidden = c->hidden};
    norm->dtype = dtypes[harness_random(state) % 3];
    norm->quant = (symm_norm_quant)(harness_random(state) % SYMM_NORM_QUANT_COUNT);
    norm->flags = (uint32_t)(harness_random(state) % 4);
    norm->eps = harness_random(state) % 4 ? 1e-5f : 0;
    norm->weight_offset = harness_random(state) % 3 ? 0 : 1;
}

/* Inputs, and outputs of which any may be missing, but not all. */
static void place(struct norm_case *c, uint64_t *state, size_t shift, char *block)
{
    symm_norm *norm = &c->norm;
    const size_t size = symm_dtype_size(norm->dtype), row = norm->hidden * size;
    const size_t all = norm->rows * row;
    const uint64_t bits = harness_random(state);
    char *at = block;

    norm->in = carve(&at, shift, all);
    norm->bias = bits & 1 ? carve(&at, shift, row) : NULL;
    norm->residual_in = bits & 6 ? carve(&at, shift, all) : NULL;
    norm->weight = bits & 24 ? carve(&at, shift, row) : NULL;
    norm->sum_out = (bits & 96) == 96 ? carve(&at, shift, all) : NULL;
    norm->residual_out = bits & 128 ? carve(&at, shift, all) : NULL;
    norm->norm_out = bits & 768 ? carve(&at, shift, all) : NULL;
    c->residual_in_place = norm->residual_in && (bits & 1024);
    if (c->residual_in_place)
        norm->residual_out = (void *)(uintptr_t)norm->residual_in;
    if (norm->quant != SYMM_NORM_QUANT_NONE) {
        norm->quant_out = carve(&at, shift, norm->rows * norm->hidden);
        norm->scale = carve(&at, shift,
                            symm_norm_scales(norm->quant, norm->rows, norm->hidden) *
                                sizeof(float));
    } else if (!norm->sum_out && !norm->residual_out && !norm->norm_out) {
        norm->norm_out = carve(&at, shift, all);
    }
    c->in_place = bits & 2048;
    if (c->in_place && norm->norm_out)
        norm->norm_out = (void *)(uintptr_t)norm->in;
    else if (c->in_place && norm->sum_out)
        norm->sum_out = (void *)(uintptr_t)norm->in;
    if (norm->quant == SYMM_NORM_QUANT_TENSOR)
        norm->scale[0] = bits & 4096 ? 0x1p-6f : 0.01f + 0.0001f * (float)(bits >> 50);
}

/* Makes a few elements NaN or infinite. */
static void spoil(symm_dtype dtype, uint64_t seed, size_t count, void *out)
{
    const size_t bytes = symm_dtype_size(dtype);
    const uint32_t infinite = dtype == SYMM_FLOAT16    ? 0x7c00
                              : dtype == SYMM_BFLOAT16 ? 0x7f80
                                                       : 0x7f800000,
                   quiet = dtype == SYMM_FLOAT16    ? 0x7e00
                           : dtype == SYMM_BFLOAT16 ? 0x7fc0
                                                    : 0x7fc00000;

    for (size_t i = harness_random(&seed) % 4096; i < count;
         i += 1 + harness_random(&seed) % 8192)
        memcpy((char *)out + i * bytes, harness_random(&seed) % 2 ? &quiet : &infinite,
               bytes);
}

static void fill_in(const struct norm_case *c, int rank, void *out)
{
    const size_t count = c->norm.rows * c->norm.hidden;
    const uint64_t seed = c->seed + (uint64_t)rank;

    norm_fill(c->norm.dtype, seed, 2, count, out);
    if (c->seed % 8 == 0)
        spoil(c->norm.dtype, seed, count, out);
}

static void fill_residual(const struct norm_case *c, void *out)
{
    norm_fill(c->norm.dtype, c->seed + 100, 4, c->norm.rows * c->norm.hidden, out);
}

void norm_case_draw(struct norm_case *c, uint64_t number, size_t most, int rank,
                    size_t shift, char *block)
{
    uint64_t state = number * 77 + 1;

    *c = (struct norm_case){.number = number, .seed = harness_random(&state)};
    c->hidden = widths[harness_random(&state) % (sizeof(widths) / sizeof(widths[0]))];
    if (harness_random(&state) % 4 == 0)
        c->hidden = 1 + harness_random(&state) % 300;
    if (c->hidden > most)
        c->hidden = most;
    c->rows = 1 + harness_random(&state) % 40;
    if (c->rows * c->hidden > most)
        c->rows = most / c->hidden;
    draw_options(c, &state);
    place(c, &state, shift, block);
    fill_in(c, rank, (void *)(uintptr_t)c->norm.in);
    if (c->norm.residual_in)
        fill_residual(c, (void *)(uintptr_t)c->norm.residual_in);
    if (c->norm.bias)
        norm_fill(c->norm.dtype, c->seed + 101, 1, c->hidden,
                  (void *)(uintptr_t)c->norm.bias);
    if (c->norm.weight)
        norm_fill(c->norm.dtype, c->seed + 102, 1, c->hidden,
                  (void *)(uintptr_t)c->norm.weight);
}

size_t norm_case_check(struct norm_case *c, int ranks)
{
    const size_t bytes = c->rows * c->hidden * symm_dtype_size(c->norm.dtype);
    const void *in[HARNESS_MAX_RANKS];
    char *memory = malloc((size_t)(ranks + 1) * (bytes + 1));
    struct norm_error error;
    symm_norm norm = c->norm;
    size_t wrong = 1;

    if (!memory)
        return wrong;
    for (int r = 0; r < ranks; r++) {
        char *own = memory + (size_t)r * bytes;

        fill_in(c, r, own);
        in[r] = own;
    }
    if (norm.residual_in) {
        fill_residual(c, memory + (size_t)ranks * bytes);
        norm.residual_in = memory + (size_t)ranks * bytes;
    }
    wrong = norm_wrong(&norm, in, ranks, NORM_UNITS, &error);
    free(memory);
    if (wrong > 0)
        snprintf(c->text, sizeof(c->text),
                 "case %llu: %zu x %zu %s, quant %d, flags %u, %s%s: %zu wrong, "
                 "%s[%zu][%zu] "
                 "is %.9g, expected %.9g",
                 (unsigned long long)c->number, c->rows, c->hidden,
                 symm_dtype_name(norm.dtype), (int)norm.quant, norm.flags,
                 c->in_place ? "in place " : "",
                 c->residual_in_place ? "residual in place" : "", wrong, error.array,
                 error.row, error.column, error.found, error.wanted);
    return wrong;
}
