/* SPDX-License-Identifier: MIT */
/* norm_case.c - see norm_case.h. */
#include "norm_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "norm_reference.h"

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
        norm->scale = carve(&at, shift, norm_reference_scales(norm) * sizeof(float));
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

static void fill_in(const struct norm_case *c, int rank, void *out)
{
    norm_reference_fill(c->norm.dtype, c->seed + (uint64_t)rank,
                        c->norm.rows * c->norm.hidden, 2, c->seed % 8 == 0, out);
}

static void fill_residual(const struct norm_case *c, void *out)
{
    norm_reference_fill(c->norm.dtype, c->seed + 100, c->norm.rows * c->norm.hidden, 4,
                        false, out);
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
        norm_reference_fill(c->norm.dtype, c->seed + 101, c->hidden, 1, false,
                            (void *)(uintptr_t)c->norm.bias);
    if (c->norm.weight)
        norm_reference_fill(c->norm.dtype, c->seed + 102, c->hidden, 1, false,
                            (void *)(uintptr_t)c->norm.weight);
}

size_t norm_case_check(struct norm_case *c, int ranks)
{
    const size_t bytes = c->rows * c->hidden * symm_dtype_size(c->norm.dtype);
    const void *in[HARNESS_MAX_RANKS];
    char *memory = malloc((size_t)(ranks + 1) * (bytes + 1)), about[160] = "";
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
    wrong = norm_reference_check(&norm, in, ranks, about, sizeof(about));
    free(memory);
    if (wrong > 0)
        snprintf(c->text, sizeof(c->text),
                 "case %llu: %zu x %zu %s, quant %d, flags %u, %s%s: %zu wrong, %.150s",
                 (unsigned long long)c->number, c->rows, c->hidden,
                 symm_dtype_name(norm.dtype), (int)norm.quant, norm.flags,
                 c->in_place ? "in place " : "",
                 c->residual_in_place ? "residual in place" : "", wrong, about);
    return wrong;
}
