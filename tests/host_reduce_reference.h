/* SPDX-License-Identifier: MIT */
/*
 * host_reduce_reference.h - the expected result of a reduction, element by element.
 *
 * Part of test_host_reduce.c. Shares no code with the kernels: ldexp decodes values, a
 * search for the nearest value of the format rounds them, `/` divides integers. Elements
 * are bit patterns in the low bits of a uint64_t.
 */
#ifndef SYMM_TESTS_HOST_REDUCE_REFERENCE_H
#define SYMM_TESTS_HOST_REDUCE_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "symm/symm.h"

#define DTYPES 14
#define OPS    8

/* ---- Formats --------------------------------------------------------------------- */

struct format {
    const char *name;
    int size;     /* bytes */
    int mantissa; /* bits; 0: an integer */
    int bias;
    bool has_inf, saturates, is_signed;
};

static const struct format formats[DTYPES] = {
    [SYMM_FLOAT64] = {"float64", 8, 52, 1023, true, false, true},
    [SYMM_FLOAT32] = {"float32", 4, 23, 127, true, false, true},
    [SYMM_FLOAT16] = {"float16", 2, 10, 15, true, false, true},
    [SYMM_BFLOAT16] = {"bfloat16", 2, 7, 127, true, false, true},
    [SYMM_FLOAT8_E4M3] = {"float8_e4m3", 1, 3, 7, false, true, true},
    [SYMM_FLOAT8_E5M2] = {"float8_e5m2", 1, 2, 15, true, true, true},
    [SYMM_INT64] = {"int64", 8, 0, 0, false, false, true},
    [SYMM_INT32] = {"int32", 4, 0, 0, false, false, true},
    [SYMM_INT8] = {"int8", 1, 0, 0, false, false, true},
    [SYMM_UINT64] = {"uint64", 8, 0, 0, false, false, false},
    [SYMM_UINT32] = {"uint32", 4, 0, 0, false, false, false},
    [SYMM_UINT8] = {"uint8", 1, 0, 0, false, false, false},
    [SYMM_INT16] = {"int16", 2, 0, 0, false, false, true},
    [SYMM_UINT16] = {"uint16", 2, 0, 0, false, false, false},
};

static uint64_t sign_bit(const struct format *f)
{
    return (uint64_t)1 << (8 * f->size - 1);
}

/* The pattern of the largest finite magnitude; infinity or the only NaN is the next. */
static uint64_t largest(const struct format *f)
{
    uint64_t top = sign_bit(f) - 1;

    return (f->has_inf ? top >> f->mantissa << f->mantissa : top) - 1;
}

static bool is_nan_bits(const struct format *f, uint64_t bits)
{
    return f->mantissa > 0 &&
           (bits & (sign_bit(f) - 1)) > largest(f) + (f->has_inf ? 1 : 0);
}

/* The NaN that symm.h promises. */
static uint64_t written_nan(const struct format *f)
{
    return f->size == 1 ? 0x7f : (largest(f) + 1) | (uint64_t)1 << (f->mantissa - 1);
}

static double decode(const struct format *f, uint64_t bits)
{
    uint64_t magnitude = bits & (sign_bit(f) - 1);
    int exponent = (int)(magnitude >> f->mantissa);
    double fraction = (double)(magnitude & (((uint64_t)1 << f->mantissa) - 1));
    double value;

    if (is_nan_bits(f, bits))
        return (double)NAN;
    if (f->has_inf && magnitude == largest(f) + 1)
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - f->bias - f->mantissa);
    else
        value =
            ldexp(fraction + ldexp(1, f->mantissa), exponent - f->bias - f->mantissa);
    return bits & sign_bit(f) ? -value : value;
}

/* The pattern of the nearest value, ties to even; overflow by the format's rule. */
static uint64_t encode(const struct format *f, double value)
{
    uint64_t sign = signbit(value) ? sign_bit(f) : 0;
    uint64_t low = 0, high = largest(f);
    double magnitude = fabs(value), below, above;

    if (isnan(value))
        return written_nan(f);
    if (magnitude >= decode(f, high)) {
        /* The value after the largest if there were one more exponent. */
        above = 2 * decode(f, high) - decode(f, high - 1);
        if (f->saturates || magnitude - decode(f, high) < above - magnitude)
            return sign | high;
        return sign | (high + 1);
    }
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (decode(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    below = magnitude - decode(f, low);
    above = decode(f, high) - magnitude;
    if (below == above)
        return sign | (low & 1 ? high : low);
    return sign | (below < above ? low : high);
}

static uint64_t get(const struct format *f, const void *array, size_t i)
{
    const unsigned char *at = (const unsigned char *)array + i * (size_t)f->size;
    uint64_t bits = 0;
    uint32_t half;
    uint16_t quarter;

    switch (f->size) {
    case 8:
        memcpy(&bits, at, 8);
        return bits;
    case 4:
        memcpy(&half, at, 4);
        return half;
    case 2:
        memcpy(&quarter, at, 2);
        return quarter;
    default:
        return *at;
    }
}

static void put(const struct format *f, void *array, size_t i, uint64_t bits)
{
    unsigned char *at = (unsigned char *)array + i * (size_t)f->size;
    uint32_t half = (uint32_t)bits;
    uint16_t quarter = (uint16_t)bits;

    switch (f->size) {
    case 8:
        memcpy(at, &bits, 8);
        break;
    case 4:
        memcpy(at, &half, 4);
        break;
    case 2:
        memcpy(at, &quarter, 2);
        break;
    default:
        *at = (unsigned char)bits;
    }
}

/* ---- Reference ------------------------------------------------------------------- */

/* float64 steps in double; other types in double, rounded to float at once. */
static double step(const struct format *f, symm_op op, double a, double b)
{
    double exact = op == SYMM_PROD ? a * b : op == SYMM_AVG ? a / b : a + b;

    return f->size == 8 ? exact : (double)(float)exact;
}

static uint64_t reference_float(const struct format *f, symm_op op, const uint64_t *in,
                                int nsrc)
{
    double a = decode(f, in[0]);

    for (int s = 1; s < nsrc; s++) {
        double b = decode(f, in[s]);

        if (op == SYMM_MIN || op == SYMM_MAX) {
            double lower = a < b || (a == b && signbit(a)) ? a : b;
            double higher = a > b || (a == b && !signbit(a)) ? a : b;

            a = isnan(a) || isnan(b) ? (double)NAN : op == SYMM_MIN ? lower : higher;
        } else {
            a = step(f, op == SYMM_PROD ? SYMM_PROD : SYMM_SUM, a, b);
        }
    }
    if (op == SYMM_AVG)
        a = step(f, SYMM_AVG, a, nsrc);
    if (f->size == 8 && !isnan(a)) {
        uint64_t bits;

        memcpy(&bits, &a, sizeof(bits));
        return bits;
    }
    return encode(f, a);
}

/* Sign-extended or zero-extended. */
static uint64_t extend(const struct format *f, uint64_t bits)
{
    return f->is_signed && (bits & sign_bit(f)) ? bits | ~(sign_bit(f) - 1) : bits;
}

/* Each bit of the result by how many of the two bits are set. */
static uint64_t reference_bits(symm_op op, uint64_t a, uint64_t b)
{
    uint64_t out = 0;

    for (int k = 0; k < 64; k++) {
        uint64_t set = (a >> k & 1) + (b >> k & 1);

        out |= (uint64_t)(op == SYMM_BAND  ? set == 2
                          : op == SYMM_BOR ? set > 0
                                           : set == 1)
               << k;
    }
    return out;
}

static bool takes(const struct format *f, int op)
{
    return op <= SYMM_MAX || f->mantissa == 0;
}

static uint64_t reference_integer(const struct format *f, symm_op op,
                                  const uint64_t *in, int nsrc)
{
    uint64_t a = extend(f, in[0]);

    for (int s = 1; s < nsrc; s++) {
        uint64_t b = extend(f, in[s]);
        bool less = f->is_signed ? (int64_t)a < (int64_t)b : a < b;

        if (op == SYMM_MIN)
            a = less ? a : b;
        else if (op == SYMM_MAX)
            a = less ? b : a;
        else if (op >= SYMM_BAND)
            a = reference_bits(op, a, b);
        else
            a = op == SYMM_PROD ? a * b : a + b;
    }
    if (op == SYMM_AVG)
        a = f->is_signed ? (uint64_t)((int64_t)a / nsrc) : a / (uint64_t)nsrc;
    return a & (sign_bit(f) | (sign_bit(f) - 1));
}

static uint64_t reference(const struct format *f, symm_op op, const uint64_t *in,
                          int nsrc)
{
    return f->mantissa ? reference_float(f, op, in, nsrc)
                       : reference_integer(f, op, in, nsrc);
}

#endif
