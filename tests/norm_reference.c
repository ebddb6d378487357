/* SPDX-License-Identifier: MIT */
/* norm_reference.c - see norm_reference.h. */
#include "norm_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

/* ---- Formats --------------------------------------------------------------------------- */

struct format {
    int fraction, least; /* bits of the fraction; exponent of the least normal number */
    double largest;
};

static struct format format_of(symm_dtype dtype)
{
    switch (dtype) {
    case SYMM_BFLOAT16:
        return (struct format){7, -126, 0x1.fep127};
    case SYMM_FLOAT16:
        return (struct format){10, -14, 65504};
    case SYMM_FLOAT8_E4M3:
        return (struct format){3, -6, 448};
    default:
        return (struct format){23, -126, 0x1.fffffep127};
    }
}

/* From the value to the next one. */
static double step_of(double value, struct format format)
{
    int exponent = format.least;

    if (value != 0 && ilogb(value) > exponent)
        exponent = ilogb(value);
    return ldexp(1, exponent - format.fraction);
}

static double decode(symm_dtype dtype, const void *array, size_t index)
{
    const size_t size = reference_size(dtype);
    const struct format format = format_of(dtype);
    const int exponent_bits = (int)size * 8 - 1 - format.fraction;
    uint32_t bits = 0, exponent, fraction;
    double value;

    memcpy(&bits, (const char *)array + index * size, size);
    exponent = bits >> format.fraction & ((1u << exponent_bits) - 1);
    fraction = bits & ((1u << format.fraction) - 1);
    if (dtype == SYMM_FLOAT8_E4M3 && exponent == 15 && fraction == 7)
        return NAN;
    if (dtype != SYMM_FLOAT8_E4M3 && exponent == (1u << exponent_bits) - 1)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, format.least - format.fraction);
    else
        value = ldexp(fraction + (1u << format.fraction),
                      (int)exponent - 1 + format.least - format.fraction);
    return bits >> (size * 8 - 1) & 1 ? -value : value;
}

/* ---- Comparisons ------------------------------------------------------------------------ */

struct check {
    const symm_norm *norm;
    size_t wrong;
    char *text;
    size_t bytes;
};

static void complain(struct check *check, const char *what, size_t row, size_t column,
                     double found, double expected)
{
    if (check->wrong++ == 0)
        snprintf(check->text, check->bytes,
                 "%s of row %zu, column %zu: found %.9g, expected %.9g", what, row,
                 column, found, expected);
}

/* Whether `found` is `exact` rounded to the format, give or take the slack. saturates: values
 * beyond the largest become it, else infinite. */
static bool is_near(double found, double exact, double slack, struct format format,
                    bool saturates)
{
    double allowed;

    if (isnan(exact) || isnan(found))
        return isnan(exact) && isnan(found);
    if (saturates && fabs(exact) > format.largest)
        exact = copysign(format.largest, exact);
    if (isinf(exact) || isinf(found)) {
        const double step = step_of(format.largest, format);

        return (isinf(exact) && found == exact) ||
               (isinf(found) && found * exact > 0 &&
                fabs(exact) * (1 + slack) >= format.largest + step / 2);
    }
    allowed = step_of(fabs(exact) * (1 + slack), format) / 2 + slack * fabs(exact);
    return fabs(found - exact) <= allowed;
}

static void compare_bits(struct check *check, const char *what, const void *found,
                         const void *expected)
{
    const symm_norm *norm = check->norm;
    size_t where;

    if (!found ||
        reference_same(norm->dtype, found, expected, norm->rows * norm->hidden, &where))
        return;
    complain(check, what, where / norm->hidden, where % norm->hidden,
             decode(norm->dtype, found, where), decode(norm->dtype, expected, where));
}

/* ---- Steps ------------------------------------------------------------------------------- */

/* The sum of norm.h: rounded once, or after each rank. */
static void sum(const symm_norm *norm, const void *const *in, int ranks, size_t count,
                void *out)
{
    if (!(norm->flags & SYMM_NORM_ROUND_PARTIAL)) {
        reference_combine(norm->dtype, SYMM_SUM, in, ranks, count, out);
        return;
    }
    memcpy(out, in[0], count * reference_size(norm->dtype));
    reference_combine(norm->dtype, SYMM_SUM, in, 1, count, out);
    for (int r = 1; r < ranks; r++) {
        const void *pair[2] = {out, in[r]};

        reference_combine(norm->dtype, SYMM_SUM, pair, 2, count, out);
    }
}

static void add(symm_dtype dtype, void *to, const void *other, size_t count)
{
    const void *pair[2] = {to, other};

    reference_combine(dtype, SYMM_SUM, pair, 2, count, to);
}

/* n of a row in float64. */
static void normalise(const symm_norm *norm, const void *residual, size_t row,
                      double *n)
{
    double squares = 0, m;

    for (size_t c = 0; c < norm->hidden; c++) {
        n[c] = decode(norm->dtype, residual, row * norm->hidden + c);
        squares += n[c] * n[c];
    }
    m = 1 / sqrt(squares / (double)norm->hidden + (double)norm->eps);
    for (size_t c = 0; c < norm->hidden; c++) {
        n[c] *= m;
        if (norm->weight)
            n[c] *= (double)norm->weight_offset + decode(norm->dtype, norm->weight, c);
    }
}

size_t norm_reference_scales(const symm_norm *norm)
{
    const size_t groups = (norm->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;

    switch (norm->quant) {
    case SYMM_NORM_QUANT_NONE:
        return 0;
    case SYMM_NORM_QUANT_TENSOR:
        return 1;
    case SYMM_NORM_QUANT_ROW:
        return norm->rows;
    default:
        return norm->rows * groups;
    }
}

/* As symm/norm.h says, in float32, then to nearest even. */
static double quantised(float n, float scale, symm_norm_quant quant)
{
    const struct format format = format_of(SYMM_FLOAT8_E4M3);
    const double value =
        (double)(quant == SYMM_NORM_QUANT_TENSOR ? n * (1.0f / scale) : n / scale);
    const double step = step_of(fabs(value), format);

    if (fabs(value) > format.largest)
        return copysign(format.largest, value);
    return isnan(value) ? value : nearbyint(value / step) * step;
}

/* What the rounding of n to T adds to a slack. */
static double rounding(const symm_norm *norm, double n)
{
    return n == 0 || !isfinite(n) ? 0
                                  : step_of(n, format_of(norm->dtype)) / 2 / fabs(n);
}

/* The columns [first, first + count) of a row share a scale; n: as found, or in float64 with
 * `slack`: then it is rounded to T before it is scaled. */
static void check_scaled(struct check *check, size_t row, size_t first, size_t count,
                         const double *n, double slack)
{
    const symm_norm *norm = check->norm;
    const size_t groups = (norm->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
    const size_t group = first / SYMM_NORM_GROUP;
    size_t at = row;
    double largest = 0, expected, scale;

    for (size_t c = 0; c < count; c++)
        largest = fabs(n[first + c]) > largest ? fabs(n[first + c]) : largest;
    expected = fmax(largest / 448, 0x1p-9 / 448);
    if (norm->quant == SYMM_NORM_QUANT_GROUP)
        at = row * groups + group;
    else if (norm->quant == SYMM_NORM_QUANT_GROUP_COLUMN)
        at = group * norm->rows + row;
    if (norm->quant == SYMM_NORM_QUANT_TENSOR)
        at = 0, expected = (double)norm->scale[0];
    else if (norm->quant != SYMM_NORM_QUANT_ROW)
        expected = fmax(largest, 1e-10) / 448;
    scale = (double)norm->scale[at];
    if (!(fabs(scale - expected) <=
          expected * (slack + (slack > 0 ? rounding(norm, largest) : 0) + 0x1p-22)) &&
        isfinite(expected))
        complain(check, "scale", row, first, scale, expected);
    for (size_t c = 0; c < count && isfinite(expected); c++) {
        const size_t index = row * norm->hidden + first + c;
        const double found = decode(SYMM_FLOAT8_E4M3, norm->quant_out, index);
        const double exact = n[first + c] / scale;
        const double rounded =
            quantised((float)n[first + c], (float)scale, norm->quant);

        /* With slack n is not known: then the value may be any between two. */
        if (slack == 0
                ? found != rounded && !(isnan(found) && isnan(rounded))
                : !is_near(found, exact, slack + rounding(norm, n[first + c]) + 0x1p-22,
                           format_of(SYMM_FLOAT8_E4M3), true))
            complain(check, "quantised value", row, first + c, found, exact);
    }
}

static void check_row(struct check *check, const void *residual, size_t row, double *n)
{
    const symm_norm *norm = check->norm;
    const struct format format = format_of(norm->dtype);
    double slack = NORM_SLACK;

    normalise(norm, residual, row, n);
    for (size_t c = 0; norm->norm_out && c < norm->hidden; c++) {
        const double found =
            decode(norm->dtype, norm->norm_out, row * norm->hidden + c);

        if (!is_near(found, n[c], NORM_SLACK, format, false))
            complain(check, "norm", row, c, found, n[c]);
        n[c] = found;
        slack = 0;
    }
    if (norm->quant == SYMM_NORM_QUANT_TENSOR || norm->quant == SYMM_NORM_QUANT_ROW)
        check_scaled(check, row, 0, norm->hidden, n, slack);
    else if (norm->quant != SYMM_NORM_QUANT_NONE)
        for (size_t c = 0; c < norm->hidden; c += SYMM_NORM_GROUP)
            check_scaled(check, row, c,
                         norm->hidden - c < SYMM_NORM_GROUP ? norm->hidden - c
                                                            : SYMM_NORM_GROUP,
                         n, slack);
}

size_t norm_reference_check(const symm_norm *norm, const void *const *in, int ranks,
                            char *text, size_t bytes)
{
    const size_t count = norm->rows * norm->hidden, size = reference_size(norm->dtype);
    struct check check = {.norm = norm, .text = text, .bytes = bytes};
    char *residual = malloc(count * size + 1);
    double *n = malloc(norm->hidden * sizeof(*n));

    if (!residual || !n) {
        snprintf(text, bytes, "no memory");
        check.wrong = 1;
    } else if (count > 0) {
        sum(norm, in, ranks, count, residual);
        compare_bits(&check, "sum", norm->sum_out, residual);
        for (size_t row = 0; norm->bias && row < norm->rows; row++)
            add(norm->dtype, residual + row * norm->hidden * size, norm->bias,
                norm->hidden);
        if (norm->residual_in)
            add(norm->dtype, residual, norm->residual_in, count);
        compare_bits(&check, "residual", norm->residual_out, residual);
        for (size_t row = 0; (norm->norm_out || norm->quant_out) && row < norm->rows;
             row++)
            check_row(&check, residual, row, n);
    }
    free(residual);
    free(n);
    return check.wrong;
}

/* ---- Inputs ------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void norm_reference_fill(symm_dtype dtype, uint64_t seed, size_t count, double size,
                         bool special, void *out)
{
    const size_t bytes = reference_size(dtype);

    for (size_t i = 0; i < count; i++) {
        const double unit = (double)(next(&seed) >> 11) * 0x1p-53 - 0.5;
        const float value = (float)(2 * size * unit);
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        if (special && next(&seed) % 4096 == 0)
            bits = next(&seed) % 2 ? 0x7fc00000u : 0x7f800000u;
        if (dtype == SYMM_BFLOAT16) {
            bits >>= 16;
        } else if (dtype ==
                   SYMM_FLOAT16) { /* the fraction is cut, small numbers are 0 */
            const uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
            const uint32_t fraction = bits >> 13 & 0x3ff;

            bits = exponent == 0xff ? sign | 0x7c00 | fraction
                   : exponent < 113 ? sign
                   : exponent > 142 ? sign | 0x7bff
                                    : sign | (exponent - 112) << 10 | fraction;
        }
        memcpy((char *)out + i * bytes, &bits, bytes);
    }
}
