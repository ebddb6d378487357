/* SPDX-License-Identifier: MIT */
/*
 * norm.c - see norm.h.
 *
 * A row lies in float32 between the steps. Each step is a loop over its columns, exact or one
 * correctly rounded operation an element, without a branch that depends on data, so that the
 * compiler makes vectors of it. Elements go through memcpy: arrays are aligned to their element
 * alone, and one may be another's input, of which a row is read before it is written.
 */
#include "kernels/reduce/norm.h"

#include <math.h>
#include <string.h>

#include "kernels/reduce/reduce.h"

#define LARGEST 448.0f /* of float8_e4m3 */
#define COLUMNS 512    /* of a row that lie on the stack beside it */

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* b where a is NaN. (fminf and fmaxf are calls of libm.) */
static float least(float a, float b)
{
    return a < b ? a : b;
}

static float most(float a, float b)
{
    return a > b ? a : b;
}

/* ---- Conversions, to nearest, ties to even; a NaN becomes the positive quiet NaN ----- */

static float from_bfloat16(uint16_t element)
{
    return float_of((uint32_t)element << 16);
}

static uint16_t to_bfloat16(float value)
{
    const uint32_t bits = bits_of(value);

    return value != value ? 0x7fc0
                          : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Exponent and fraction are those of a float32 that is 2^112 too small; infinity and NaN have the
 * exponent that becomes 2^16. */
static float from_float16(uint16_t element)
{
    const uint32_t magnitude = (uint32_t)(element & 0x7fff) << 13;
    const float scaled = float_of(magnitude) * 0x1p112f;
    const float special = float_of(magnitude | 0x7f800000u);
    const float value = magnitude >= 0x0f800000u ? special : scaled;

    return float_of(bits_of(value) | (uint32_t)(element & 0x8000) << 16);
}

static uint16_t to_float16(float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    /* Below 2^-14 the step is 2^-24, that of 0.5 in float32. */
    const uint32_t small = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    const uint32_t normal =
        (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t half = magnitude < 0x38800000u ? small : normal;

    half = magnitude >= 0x477ff000u ? 0x7c00 : half;
    return value != value ? 0x7e00 : (uint16_t)(half | (bits >> 16 & 0x8000));
}

/* Beyond +-448: +-448. */
static uint8_t to_e4m3(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 24 & 0x80;
    const float magnitude = least(fabsf(value), LARGEST);
    const uint32_t found = bits_of(magnitude);
    /* Below 2^-6 the step is 2^-9, that of 2^14 in float32. */
    const uint32_t small = bits_of(magnitude + 0x1p14f) - bits_of(0x1p14f);
    const uint32_t normal = (found - (120u << 23) + 0x7ffff + (found >> 20 & 1)) >> 20;

    return value != value ? 0x7f
                          : (uint8_t)(sign | (found < 0x3c800000u ? small : normal));
}

static size_t element_of(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT32 ? 4 : 2;
}

/* ---- Arrays of T --------------------------------------------------------------------- */

#define LOOP(type, to, from, convert)                                                  \
    for (size_t c = 0; c < count; c++) {                                               \
        type element;                                                                  \
                                                                                       \
        memcpy(&element, (const char *)array + c * sizeof(type), sizeof(element));     \
        to = convert(from);                                                            \
    }

/* values[c] = element `first` + c of the array. */
static void load(float *values, const void *array, size_t first, size_t count,
                 symm_dtype dtype)
{
    array = (const char *)array + first * element_of(dtype);
    if (dtype == SYMM_FLOAT32)
        memcpy(values, array, count * sizeof(float));
    else if (dtype == SYMM_BFLOAT16)
        LOOP(uint16_t, values[c], element, from_bfloat16)
    else
        LOOP(uint16_t, values[c], element, from_float16)
}
#undef LOOP

#define LOOP(from, to)                                                                 \
    for (size_t c = 0; c < count; c++) {                                               \
        const uint16_t element = to(values[c]);                                        \
                                                                                       \
        values[c] = from(element);                                                     \
        if (array)                                                                     \
            memcpy((char *)array + c * sizeof(element), &element, sizeof(element));    \
    }

/* Rounds the values to T, and stores them from element `first` on, if there is an array. */
static void round_store(float *values, void *array, size_t first, size_t count,
                        symm_dtype dtype)
{
    if (array)
        array = (char *)array + first * element_of(dtype);
    if (dtype == SYMM_BFLOAT16)
        LOOP(from_bfloat16, to_bfloat16)
    else if (dtype == SYMM_FLOAT16)
        LOOP(from_float16, to_float16)
    else if (array)
        memcpy(array, values, count * sizeof(float));
}
#undef LOOP

/* ---- A row ----------------------------------------------------------------------------- */

static float largest(const float *values, size_t count)
{
    float found = 0;

    for (size_t c = 0; c < count; c++)
        found = most(fabsf(values[c]), found);
    return found;
}

static void store_quantised(const symm_norm *norm, size_t at, const float *values,
                            size_t count, float scale)
{
    uint8_t *out = (uint8_t *)norm->quant_out + at;

    for (size_t c = 0; c < count; c++)
        out[c] = to_e4m3(values[c] / scale);
}

static void quantise(const symm_norm *norm, size_t row, const float *values)
{
    const size_t hidden = norm->hidden, at = row * hidden;
    const size_t groups = (hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
    uint8_t *out = (uint8_t *)norm->quant_out + at;
    float factor, scale;

    if (norm->quant == SYMM_NORM_QUANT_TENSOR) {
        factor = 1.0f / norm->scale[0];
        for (size_t c = 0; c < hidden; c++)
            out[c] = to_e4m3(values[c] * factor);
    } else if (norm->quant == SYMM_NORM_QUANT_ROW) {
        scale = most(largest(values, hidden) / LARGEST, 0x1p-9f / LARGEST);
        norm->scale[row] = scale;
        store_quantised(norm, at, values, hidden, scale);
    } else {
        for (size_t g = 0; g < groups; g++) {
            const size_t first = g * SYMM_NORM_GROUP, left = hidden - first;
            const size_t count = left < SYMM_NORM_GROUP ? left : SYMM_NORM_GROUP;

            scale = most(largest(values + first, count), 1e-10f) / LARGEST;
            norm->scale[norm->quant == SYMM_NORM_QUANT_GROUP ? row * groups + g
                                                             : g * norm->rows + row] =
                scale;
            store_quantised(norm, at + first, values + first, count, scale);
        }
    }
}

/* values: s of the columns [first, first + count) becomes r. The residual is read before an
 * output is written, which may be the same array. */
static void add(const symm_norm *norm, size_t row, size_t first, size_t count,
                float *values)
{
    const size_t at = row * norm->hidden + first;
    float residual[COLUMNS], bias[COLUMNS];

    if (norm->residual_in)
        load(residual, norm->residual_in, at, count, norm->dtype);
    if (norm->sum_out)
        round_store(values, norm->sum_out, at, count, norm->dtype);
    if (norm->bias) {
        load(bias, norm->bias, first, count, norm->dtype);
        for (size_t c = 0; c < count; c++)
            values[c] += bias[c];
        round_store(values, NULL, 0, count, norm->dtype);
    }
    for (size_t c = 0; norm->residual_in && c < count; c++)
        values[c] += residual[c];
    round_store(values, norm->residual_out, at, count, norm->dtype);
}

/* values: r of a row becomes n before it is rounded. */
static void normalise(const symm_norm *norm, float *values)
{
    const size_t hidden = norm->hidden;
    double squares = 0;
    float m;

    for (size_t c = 0; c < hidden; c++)
        squares += (double)values[c] * (double)values[c];
    m = (float)(1 / sqrt(squares / (double)hidden + (double)norm->eps));
    for (size_t c = 0; c < hidden; c++)
        values[c] *= m;
    for (size_t first = 0; norm->weight && first < hidden; first += COLUMNS) {
        const size_t count = hidden - first < COLUMNS ? hidden - first : COLUMNS;
        float weight[COLUMNS];

        load(weight, norm->weight, first, count, norm->dtype);
        for (size_t c = 0; c < count; c++)
            values[first + c] *= norm->weight_offset + weight[c];
    }
}

void symm__norm_rows(const symm_norm *norm, const void *sums)
{
    float values[SYMM_NORM_MAX_HIDDEN];

    for (size_t row = 0; row < norm->rows; row++) {
        const size_t at = row * norm->hidden;

        for (size_t c = 0; c < norm->hidden; c += COLUMNS) {
            const size_t left = norm->hidden - c,
                         count = left < COLUMNS ? left : COLUMNS;

            load(values + c, sums, at + c, count, norm->dtype);
            add(norm, row, c, count, values + c);
        }
        if (!norm->norm_out && !norm->quant_out)
            continue;
        normalise(norm, values);
        round_store(values, norm->norm_out, at, norm->hidden, norm->dtype);
        if (norm->quant_out)
            quantise(norm, row, values);
    }
}

/* ---- Sums whose partial sums are rounded ---------------------------------------------- */

/* Pairs of arrays, summed and rounded one after the other: in blocks, since a dst may be a src. */
static void partial(void *const *dst, int ndst, const void *const *src, int nsrc,
                    size_t count, symm_dtype dtype)
{
    const symm_reduce_fn sum = symm__reduce_find(symm__isa_best(), dtype, SYMM_SUM);
    const size_t element = element_of(dtype);
    uint16_t block[COLUMNS];

    for (size_t at = 0; at < count; at += COLUMNS) {
        const size_t most = count - at < COLUMNS ? count - at : COLUMNS;
        const void *pair[2] = {(const char *)src[0] + at * element, NULL};
        void *own = block;

        for (int s = 1; s < nsrc; s++) {
            pair[1] = (const char *)src[s] + at * element;
            sum(&own, 1, pair, 2, most);
            pair[0] = block;
        }
        for (int d = 0; d < ndst; d++)
            memmove((char *)dst[d] + at * element, pair[0], most * element);
    }
}

static void partial_bfloat16(void *const *dst, int ndst, const void *const *src,
                             int nsrc, size_t count)
{
    partial(dst, ndst, src, nsrc, count, SYMM_BFLOAT16);
}

static void partial_float16(void *const *dst, int ndst, const void *const *src,
                            int nsrc, size_t count)
{
    partial(dst, ndst, src, nsrc, count, SYMM_FLOAT16);
}

symm_reduce_fn symm__reduce_partial(symm_dtype dtype)
{
    if (dtype == SYMM_BFLOAT16)
        return partial_bfloat16;
    if (dtype == SYMM_FLOAT16)
        return partial_float16;
    return symm__reduce_find(symm__isa_best(), dtype, SYMM_SUM); /* rounds each sum */
}
