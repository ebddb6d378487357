/* SPDX-License-Identifier: MIT */
/* expect.c - see expect.h. */
#include "norm/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Elements ------------------------------------------------------------------------ */

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to a format of `fraction` bits whose least normal exponent is `least`, to nearest even,
 * and beyond `most` to `over`. */
static double to_format(double value, int fraction, int least, double most, double over)
{
    int exponent;
    double step, rounded;

    if (value != value || value == 0 || isinf(value))
        return isinf(value) ? copysign(over, value) : value;
    frexp(value, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    step = ldexp(1, exponent - fraction);
    rounded = nearbyint(value / step) * step;
    return fabs(rounded) > most ? copysign(over, rounded) : rounded;
}

/* T(value); of a double that is no float, too, in one rounding. */
static float to_dtype(symm_dtype dtype, double value)
{
    const uint32_t bits = bits_of((float)value);

    if (dtype == SYMM_FLOAT32)
        return (float)value;
    if (dtype == SYMM_BFLOAT16 && (double)float_of(bits) == value) /* most of them */
        return float_of((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
    if (dtype == SYMM_BFLOAT16)
        return (float)to_format(value, 7, -126, 0x1.fep127, INFINITY);
    return (float)to_format(value, 10, -14, 65504, INFINITY);
}

/* e4m3 has no infinity: beyond the largest it is the largest. */
static float to_e4m3(double value)
{
    return (float)to_format(value, 3, -6, 448, 448);
}

static float from_e4m3(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const double size =
        exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);

    if ((bits & 0x7f) == 0x7f)
        return NAN;
    return (float)(bits & 0x80 ? -size : size);
}

static float from_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;

    if (size >= 0x7c00)
        return float_of(sign | 0x7f800000 | (size & 0x3ff) << 13);
    if (size < 0x400)
        return float_of(sign | bits_of((float)size * 0x1p-24f));
    return float_of(sign | (size + (112u << 10)) << 13);
}

static float get(symm_dtype dtype, const void *array, size_t at)
{
    uint16_t half;
    float value;

    if (dtype == SYMM_FLOAT32) {
        memcpy(&value, (const char *)array + 4 * at, 4);
        return value;
    }
    memcpy(&half, (const char *)array + 2 * at, 2);
    return dtype == SYMM_BFLOAT16 ? float_of((uint32_t)half << 16) : from_half(half);
}

/* Stores a value that the dtype represents exactly. */
static void set(symm_dtype dtype, void *array, size_t at, float value)
{
    const uint32_t bits = bits_of(value);
    uint16_t half = (uint16_t)(bits >> 16);

    if (dtype == SYMM_FLOAT32) {
        memcpy((char *)array + 4 * at, &value, 4);
        return;
    }
    if (dtype == SYMM_FLOAT16) {
        const float size = fabsf(value);

        half = (uint16_t)(size < 0x1p-14f ? (uint32_t)(size * 0x1p24f)
                          : isinf(size)   ? 0x7c00
                                          : (bits_of(size) >> 13) - (112u << 10));
        half |= (uint16_t)(bits >> 16 & 0x8000);
    }
    memcpy((char *)array + 2 * at, &half, 2);
}

/* ---- Inputs -------------------------------------------------------------------------- */

uint64_t norm_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void norm_fill(symm_dtype dtype, uint64_t seed, float most, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = norm_random(&seed);
        const float size = (float)(bits >> 40) * 0x1p-24f; /* below 1 */
        const float value = ldexpf(size * most, -(int)(bits % 9));

        set(dtype, to, i, to_dtype(dtype, bits & 512 ? -value : value));
    }
}

/* ---- A row --------------------------------------------------------------------------- */

/* What a correct row holds: for each column a value in [low, high]. */
struct row {
    const symm_norm *norm;
    size_t row;
    float *r; /* residuals */
    float *low, *high;
    size_t wrong;
    struct norm_error *error;
};

static void bad(struct row *row, const char *array, size_t column, double found,
                double wanted)
{
    if (row->wrong++ == 0 && !row->error->array)
        *row->error = (struct norm_error){array, row->row, column, found, wanted};
}

/* Equal bit for bit; but -0 equals +0, since sums of zeros may be either, and all NaNs are
 * equal. */
static bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || a == b || (isnan(a) && isnan(b));
}

static bool within(float value, float low, float high)
{
    return isnan(low) ? isnan(value) : value >= low && value <= high;
}

static float sum_of(const symm_norm *norm, const void *const *in, int ranks, size_t at)
{
    const bool partial = norm->flags & SYMM_NORM_ROUND_PARTIAL;
    float sum = get(norm->dtype, in[0], at);

    for (int r = 1; r < ranks; r++) {
        sum += get(norm->dtype, in[r], at);
        if (partial)
            sum = to_dtype(norm->dtype, sum);
    }
    return to_dtype(norm->dtype, sum);
}

static float residual_of(const symm_norm *norm, float sum, size_t column, float before)
{
    if (norm->bias)
        sum = to_dtype(norm->dtype, sum + get(norm->dtype, norm->bias, column));
    return to_dtype(norm->dtype, sum + before);
}

static void check_sums(struct row *row, const void *const *in, int ranks)
{
    const symm_norm *norm = row->norm;

    for (size_t c = 0; c < norm->hidden; c++) {
        const size_t at = row->row * norm->hidden + c;
        const float sum = sum_of(norm, in, ranks, at);
        const float before =
            norm->residual_in ? get(norm->dtype, norm->residual_in, at) : 0;

        row->r[c] = residual_of(norm, sum, c, before);
        if (norm->sum_out && !same(get(norm->dtype, norm->sum_out, at), sum))
            bad(row, "sum_out", c, get(norm->dtype, norm->sum_out, at), sum);
        if (norm->residual_out &&
            !same(get(norm->dtype, norm->residual_out, at), row->r[c]))
            bad(row, "residual_out", c, get(norm->dtype, norm->residual_out, at),
                row->r[c]);
    }
}

/* Afterwards low and high are the value that was found, if norm_out is an output and its value is
 * right. */
static void check_norm(struct row *row, double units)
{
    const symm_norm *norm = row->norm;
    double squares = 0, m;

    for (size_t c = 0; c < norm->hidden; c++)
        squares += (double)row->r[c] * (double)row->r[c];
    m = 1 / sqrt(squares / (double)norm->hidden + (double)norm->eps);
    for (size_t c = 0; c < norm->hidden; c++) {
        const float weight =
            norm->weight ? norm->weight_offset + get(norm->dtype, norm->weight, c) : 1;
        const double n = (double)row->r[c] * m * (double)weight;
        const double most = isinf(n) ? 0 : fabs(n) * units * 0x1p-23;

        row->low[c] = to_dtype(norm->dtype, n - most);
        row->high[c] = to_dtype(norm->dtype, n + most);
        if (norm->norm_out) {
            const float found =
                get(norm->dtype, norm->norm_out, row->row * norm->hidden + c);

            if (!within(found, row->low[c], row->high[c]))
                bad(row, "norm_out", c, found, n);
            else
                row->low[c] = row->high[c] = found;
        }
    }
}

/* The largest of the columns' magnitudes, at least and at most; NaN is no maximum. */
static void largest(const struct row *row, size_t first, size_t count, float *low,
                    float *high)
{
    *low = *high = 0;
    for (size_t c = first; c < first + count; c++) {
        const float a = fabsf(row->low[c]), b = fabsf(row->high[c]);
        const bool across = (row->low[c] < 0) != (row->high[c] < 0);

        *low = fmaxf(*low, across ? 0 : fminf(a, b));
        *high = fmaxf(*high, fmaxf(a, b));
    }
}

static void check_quantised(struct row *row, size_t first, size_t count, float scale)
{
    const symm_norm *norm = row->norm;
    const uint8_t *out = (const uint8_t *)norm->quant_out + row->row * norm->hidden;
    const bool tensor = norm->quant == SYMM_NORM_QUANT_TENSOR;

    for (size_t c = first; c < first + count; c++) {
        const float low = tensor ? row->low[c] * (1 / scale) : row->low[c] / scale;
        const float high = tensor ? row->high[c] * (1 / scale) : row->high[c] / scale;
        const float found = from_e4m3(out[c]);
        const bool known = norm->norm_out && !isnan(found); /* n, with its sign */

        if (!within(found, to_e4m3(low), to_e4m3(high)) ||
            (known && !signbit(found) != !signbit(low)))
            bad(row, "quant_out", c, found, low);
    }
}

/* The scale of some columns, which was written to scale[at], and these columns. */
static void check_scaled(struct row *row, size_t at, size_t first, size_t count)
{
    const bool whole = row->norm->quant == SYMM_NORM_QUANT_ROW;
    const float found = row->norm->scale[at];
    float low, high;

    largest(row, first, count, &low, &high);
    low = whole ? fmaxf(low / 448, 0x1p-9f / 448) : fmaxf(low, 1e-10f) / 448;
    high = whole ? fmaxf(high / 448, 0x1p-9f / 448) : fmaxf(high, 1e-10f) / 448;
    if (!(found >= low && found <= high)) {
        bad(row, "scale", first, found, high);
        return;
    }
    check_quantised(row, first, count, found);
}

static void check_quant(struct row *row)
{
    const symm_norm *norm = row->norm;
    const size_t groups = (norm->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;

    if (norm->quant == SYMM_NORM_QUANT_TENSOR)
        check_quantised(row, 0, norm->hidden, norm->scale[0]);
    else if (norm->quant == SYMM_NORM_QUANT_ROW)
        check_scaled(row, row->row, 0, norm->hidden);
    else
        for (size_t g = 0; g < groups; g++) {
            const size_t first = g * SYMM_NORM_GROUP, left = norm->hidden - first;

            check_scaled(row,
                         norm->quant == SYMM_NORM_QUANT_GROUP
                             ? row->row * groups + g
                             : g * norm->rows + row->row,
                         first, left < SYMM_NORM_GROUP ? left : SYMM_NORM_GROUP);
        }
}

/* ---- A call -------------------------------------------------------------------------- */

size_t norm_wrong(const symm_norm *norm, const void *const *in, int ranks, double units,
                  struct norm_error *error)
{
    float *values = malloc(3 * norm->hidden * sizeof *values);
    struct row row = {.norm = norm, .error = error};

    *error = (struct norm_error){0};
    if (!values)
        return SIZE_MAX;
    row.r = values;
    row.low = values + norm->hidden;
    row.high = row.low + norm->hidden;
    for (row.row = 0; row.row < norm->rows; row.row++) {
        check_sums(&row, in, ranks);
        if (norm->norm_out || norm->quant_out)
            check_norm(&row, units);
        if (norm->quant_out)
            check_quant(&row);
    }
    free(values);
    return row.wrong;
}

void norm_advance(const symm_norm *norm, const void *const *in, int ranks,
                  void *residual)
{
    for (size_t row = 0; row < norm->rows; row++)
        for (size_t c = 0; c < norm->hidden; c++) {
            const size_t at = row * norm->hidden + c;
            const float before = get(norm->dtype, residual, at);

            set(norm->dtype, residual, at,
                residual_of(norm, sum_of(norm, in, ranks, at), c, before));
        }
}
