/* SPDX-License-Identifier: MIT */
/* expect_norm.c - see expect_norm.h. Shares no code with the library. */
#include "perf/expect_norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/data.h"

/* ---- The call ------------------------------------------------------------------------ */

static size_t groups_of(size_t hidden)
{
    return (hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
}

void perf_norm_list(const symm_program *program, const symm_program_op *op,
                    struct perf_norm_array arrays[PERF_NORM_ARRAYS])
{
    const symm_program_norm *n = &program->norms[op->norm];
    const size_t row = n->hidden * symm_dtype_size(op->dtype);
    const size_t scales = symm_norm_scales(n->quant, op->count / n->hidden, n->hidden);
    const bool scaled = n->quant != SYMM_NORM_QUANT_TENSOR;
    const struct perf_norm_array list[PERF_NORM_ARRAYS] = {
        [PERF_NORM_BIAS] = {"bias", n->bias, op->dtype, row, false},
        [PERF_NORM_RESIDUAL_IN] = {"residual_in", n->residual_in, op->dtype, op->result,
                                   false},
        [PERF_NORM_WEIGHT] = {"weight", n->weight, op->dtype, row, false},
        [PERF_NORM_SUM_OUT] = {"sum_out", n->sum_out, op->dtype, op->result, true},
        [PERF_NORM_RESIDUAL_OUT] = {"residual_out", n->residual_out, op->dtype,
                                    op->result, true},
        [PERF_NORM_NORM_OUT] = {"norm_out", n->norm_out, op->dtype, op->result, true},
        [PERF_NORM_QUANT_OUT] = {"quant_out", n->quant_out, SYMM_FLOAT8_E4M3, op->count,
                                 true},
        [PERF_NORM_SCALE] = {"scale", n->scale, SYMM_FLOAT32, scales * sizeof(float),
                             scaled}};

    memcpy(arrays, list, sizeof list);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++)
        if (!arrays[a].where.given)
            arrays[a].where.buffer = -1;
}

int perf_norm_array_in(const symm_program *program, const symm_program_op *op,
                       int buffer, bool written)
{
    struct perf_norm_array arrays[PERF_NORM_ARRAYS];

    if (op->kind != SYMM_PROGRAM_ALL_REDUCE_NORM)
        return -1;
    perf_norm_list(program, op, arrays);
    for (int a = 0; a < PERF_NORM_ARRAYS; a++)
        if (arrays[a].written == written && arrays[a].where.buffer == buffer)
            return a;
    return -1;
}

/* Squares of residuals are below half a unit of eps: of float16, whose least step is 2^-24, up to
 * 2^11.5, of the others up to 2^19.5. */
static int exponent_of_m(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT16 ? -24 : -32;
}

symm_norm perf_norm_call(const symm_program *program, const symm_program_op *op,
                         const void *in, void *const arrays[PERF_NORM_ARRAYS])
{
    const symm_program_norm *n = &program->norms[op->norm];

    return (symm_norm){.size = sizeof(symm_norm),
                       .rows = op->count / n->hidden,
                       .hidden = n->hidden,
                       .dtype = op->dtype,
                       .quant = n->quant,
                       .flags = n->constant ? SYMM_NORM_CONSTANT : 0,
                       .eps = ldexpf(1, -2 * exponent_of_m(op->dtype)),
                       .in = in,
                       .bias = arrays[PERF_NORM_BIAS],
                       .residual_in = arrays[PERF_NORM_RESIDUAL_IN],
                       .weight = arrays[PERF_NORM_WEIGHT],
                       .sum_out = arrays[PERF_NORM_SUM_OUT],
                       .residual_out = arrays[PERF_NORM_RESIDUAL_OUT],
                       .norm_out = arrays[PERF_NORM_NORM_OUT],
                       .quant_out = arrays[PERF_NORM_QUANT_OUT],
                       .scale = arrays[PERF_NORM_SCALE]};
}

void perf_norm_fill(const struct perf_norm_array *array, void *to)
{
    const size_t element = symm_dtype_size(array->dtype);
    const bool scale = strcmp(array->name, "scale") == 0;

    for (size_t at = 0; at < array->bytes; at += element)
        perf_encode(array->dtype, scale ? 0x1p-30 : 1, (char *)to + at);
}

/* ---- A row --------------------------------------------------------------------------- */

struct row {
    const symm_norm *norm;
    size_t row;
    float *values; /* of its columns: residuals, then the norm */
};

static float get(const symm_norm *norm, const void *array, size_t at)
{
    const size_t element = symm_dtype_size(norm->dtype);

    return (float)perf_decode(norm->dtype, (const char *)array + at * element);
}

/* T(value); also into the array, if there is one. */
static float put(const symm_norm *norm, float value, void *array, size_t at)
{
    const size_t element = symm_dtype_size(norm->dtype);
    unsigned char bytes[8];

    perf_encode(norm->dtype, (double)value, bytes);
    if (array)
        memcpy((char *)array + at * element, bytes, element);
    return (float)perf_decode(norm->dtype, bytes);
}

static void add(struct row *r)
{
    const symm_norm *norm = r->norm;

    for (size_t c = 0; c < norm->hidden; c++) {
        const size_t at = r->row * norm->hidden + c;
        float value = put(norm, get(norm, norm->in, at), norm->sum_out, at);

        if (norm->bias)
            value = put(norm, value + get(norm, norm->bias, c), NULL, 0);
        if (norm->residual_in)
            value += get(norm, norm->residual_in, at);
        r->values[c] = put(norm, value, norm->residual_out, at);
    }
}

static void normalise(struct row *r)
{
    const symm_norm *norm = r->norm;
    double sum = 0;
    float m;

    for (size_t c = 0; c < norm->hidden; c++)
        sum += (double)r->values[c] * (double)r->values[c];
    m = 1 / sqrtf((float)(sum / (double)norm->hidden) + norm->eps);
    for (size_t c = 0; c < norm->hidden; c++) {
        const float weight =
            norm->weight ? norm->weight_offset + get(norm, norm->weight, c) : 1;

        r->values[c] = put(norm, r->values[c] * m * weight, norm->norm_out,
                           r->row * norm->hidden + c);
    }
}

/* Columns [from, from + count) by one scale. */
static void quantise(struct row *r, size_t from, size_t count, float least,
                     float *scale)
{
    const symm_norm *norm = r->norm;
    const bool tensor = norm->quant == SYMM_NORM_QUANT_TENSOR;
    float most = least, by;

    for (size_t c = from; c < from + count && !tensor; c++)
        most = fmaxf(most, fabsf(r->values[c]));
    if (!tensor)
        *scale = most / 448;
    by = *scale;
    for (size_t c = from; c < from + count; c++)
        perf_encode(SYMM_FLOAT8_E4M3,
                    (double)(tensor ? r->values[c] * (1 / by) : r->values[c] / by),
                    (char *)norm->quant_out + r->row * norm->hidden + c);
}

static void quantise_groups(struct row *r)
{
    const symm_norm *norm = r->norm;
    const size_t groups = groups_of(norm->hidden);

    for (size_t g = 0; g < groups; g++) {
        const size_t from = g * SYMM_NORM_GROUP, left = norm->hidden - from;
        const size_t at = norm->quant == SYMM_NORM_QUANT_GROUP
                              ? r->row * groups + g
                              : g * norm->rows + r->row;

        quantise(r, from, left < SYMM_NORM_GROUP ? left : SYMM_NORM_GROUP, 1e-10f,
                 &norm->scale[at]);
    }
}

int perf_norm_rows(const symm_norm *norm)
{
    struct row r = {.norm = norm, .values = malloc(norm->hidden * sizeof *r.values)};

    if (!r.values)
        return -1;
    for (; r.row < norm->rows; r.row++) {
        add(&r);
        normalise(&r);
        if (norm->quant == SYMM_NORM_QUANT_TENSOR || norm->quant == SYMM_NORM_QUANT_ROW)
            quantise(&r, 0, norm->hidden, 0x1p-9f,
                     &norm->scale[norm->quant == SYMM_NORM_QUANT_ROW ? r.row : 0]);
        else if (norm->quant != SYMM_NORM_QUANT_NONE)
            quantise_groups(&r);
    }
    free(r.values);
    return 0;
}
