/* SPDX-License-Identifier: MIT */
/*
 * reference.c - see reference.h. Simple and slow: it shares no code or method with the
 * library, so that one mistake cannot be in both.
 */
#include "reference.h"

#include <math.h>
#include <string.h>

/* A small floating-point format: codes 0..top are its finite values >= 0, ascending. */
struct format {
    int mantissa, bias;
    unsigned top;
    bool saturates;
    unsigned nan;
    int bits;
};

static const struct format half = {10, 15, 0x7bff, false, 0x7e00, 16};
static const struct format brain = {7, 127, 0x7f7f, false, 0x7fc0, 16};
static const struct format e4m3 = {3, 7, 0x7e, true, 0x7f, 8};
static const struct format e5m2 = {2, 15, 0x7b, true, 0x7e, 8};

static double half_values[0x8000], brain_values[0x8000];
static double e4m3_values[0x80], e5m2_values[0x80];

static const struct format *format_of(symm_dtype dtype)
{
    switch (dtype) {
    case SYMM_FLOAT16:
        return &half;
    case SYMM_BFLOAT16:
        return &brain;
    case SYMM_FLOAT8_E4M3:
        return &e4m3;
    case SYMM_FLOAT8_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

static const double *values_of(const struct format *f)
{
    return f == &half    ? half_values
           : f == &brain ? brain_values
           : f == &e4m3  ? e4m3_values
                         : e5m2_values;
}

/* Codes above top are given the value they would have if they were finite. */
static void fill_values(const struct format *f, double *values, unsigned count)
{
    for (unsigned code = 0; code < count; code++) {
        int exponent = (int)(code >> f->mantissa);
        unsigned fraction = code & ((1u << f->mantissa) - 1);
        if (exponent == 0)
            values[code] = ldexp(fraction, 1 - f->bias - f->mantissa);
        else
            values[code] = ldexp((double)(fraction + (1u << f->mantissa)),
                                 exponent - f->bias - f->mantissa);
    }
}

void reference_init(void)
{
    fill_values(&half, half_values, 0x8000);
    fill_values(&brain, brain_values, 0x8000);
    fill_values(&e4m3, e4m3_values, 0x80);
    fill_values(&e5m2, e5m2_values, 0x80);
}

static bool is_nan(const struct format *f, unsigned code)
{
    unsigned magnitude = code & ((1u << (f->bits - 1)) - 1);
    return f == &e4m3 ? magnitude == 0x7f : magnitude > f->top + 1;
}

static float decode(const struct format *f, unsigned code)
{
    unsigned magnitude = code & ((1u << (f->bits - 1)) - 1);
    double value = values_of(f)[magnitude];
    if (is_nan(f, code))
        return NAN;
    if (magnitude > f->top)
        value = INFINITY;
    return (float)(code >> (f->bits - 1) != 0 ? -value : value);
}

static unsigned encode(const struct format *f, float number)
{
    const double *values = values_of(f);
    unsigned sign = signbit(number) != 0 ? 1u << (f->bits - 1) : 0;
    unsigned low = 0, high = f->top;
    double x = fabs((double)number);
    if (isnan(number))
        return f->nan;
    while (low < high) { /* the largest code whose value is <= x */
        unsigned middle = (low + high + 1) / 2;
        if (values[middle] <= x)
            low = middle;
        else
            high = middle - 1;
    }
    double half_way = (values[low] + values[low + 1]) / 2;
    if (x > half_way || (x == half_way && (low & 1) != 0))
        low++;
    if (low > f->top && f->saturates)
        low = f->top;
    return sign | low;
}

size_t reference_size(symm_dtype dtype)
{
    static const size_t sizes[REFERENCE_DTYPES] = {8, 4, 2, 2, 1, 1, 8,
                                                   4, 1, 8, 4, 1, 2, 2};
    return sizes[dtype];
}

bool reference_is_float(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT64 || dtype == SYMM_FLOAT32 || format_of(dtype) != NULL;
}

symm_op reference_op(symm_dtype dtype, unsigned k)
{
    return (symm_op)(k % (reference_is_float(dtype) ? 5 : REFERENCE_OPS));
}

bool reference_takes(symm_dtype dtype, symm_op op)
{
    return op <= SYMM_MAX || !reference_is_float(dtype);
}

/* ---- Elements -------------------------------------------------------------------- */

static uint64_t element_bits(uint32_t seed, int rank, size_t index)
{
    uint64_t z = (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15) +
                 ((uint64_t)seed << 32 ^ (uint64_t)(unsigned)(rank + 1) << 8);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static unsigned small_float(const struct format *f, symm_op op, uint64_t z)
{
    unsigned sign = (unsigned)(z >> 63) << (f->bits - 1);
    unsigned fraction = (unsigned)z & ((1u << f->mantissa) - 1);
    unsigned exponent = (unsigned)f->bias - 2 + (unsigned)(z >> 20) % 3;
    if (op != SYMM_PROD && (z >> 40) % 8 == 0) /* any finite value but zero */
        return sign | (1 + (unsigned)(z >> 44) % f->top);
    return sign | exponent << f->mantissa | fraction;
}

static double wide_float(symm_op op, uint64_t z)
{
    double fraction = 1.0 + ldexp((double)(z & ((UINT64_C(1) << 52) - 1)), -52);
    int spread = op == SYMM_PROD ? 3 : 40;
    int exponent = (int)((z >> 52) % 1024 % (unsigned)spread) - spread / 2;
    return ldexp(z >> 63 != 0 ? -fraction : fraction, exponent);
}

static void fill_one(symm_dtype dtype, symm_op op, uint64_t z, void *out)
{
    const struct format *f = format_of(dtype);
    if (f != NULL) {
        unsigned code = small_float(f, op, z);
        uint8_t byte = (uint8_t)code;
        uint16_t word = (uint16_t)code;
        if (f->bits == 8)
            memcpy(out, &byte, 1);
        else
            memcpy(out, &word, 2);
    } else if (dtype == SYMM_FLOAT64) {
        double value = wide_float(op, z);
        memcpy(out, &value, 8);
    } else if (dtype == SYMM_FLOAT32) {
        float value = (float)wide_float(op, z);
        memcpy(out, &value, 4);
    } else {
        uint8_t bytes[8];
        for (int i = 0; i < 8; i++)
            bytes[i] = (uint8_t)(z >> 8 * i);
        memcpy(out, bytes, reference_size(dtype));
    }
}

void reference_fill(symm_dtype dtype, symm_op op, uint32_t seed, int rank, size_t first,
                    size_t count, void *out)
{
    size_t size = reference_size(dtype);
    for (size_t i = 0; i < count; i++)
        fill_one(dtype, op, element_bits(seed, rank, first + i),
                 (char *)out + i * size);
}

/* ---- Reductions ------------------------------------------------------------------ */

#define FLOAT_STEP(name, type)                                                         \
    static type name(symm_op op, type a, type b)                                       \
    {                                                                                  \
        if (op == SYMM_SUM || op == SYMM_AVG)                                          \
            return a + b;                                                              \
        if (op == SYMM_PROD)                                                           \
            return a * b;                                                              \
        if (isnan(a) || isnan(b))                                                      \
            return (type)NAN;                                                          \
        return op == SYMM_MIN ? (b < a ? b : a) : (b > a ? b : a);                     \
    }
FLOAT_STEP(step_float, float)
FLOAT_STEP(step_double, double)
#undef FLOAT_STEP

static void combine_double(symm_op op, const void *const *in, int n, size_t at,
                           void *out)
{
    double sum = 0.0, value;
    for (int r = 0; r < n; r++) {
        memcpy(&value, (const char *)in[r] + at * 8, 8);
        sum = r == 0 ? value : step_double(op, sum, value);
    }
    if (op == SYMM_AVG)
        sum /= n;
    memcpy(out, &sum, 8);
}

/* float32 and everything that is accumulated in it. */
static void combine_float(symm_dtype dtype, symm_op op, const void *const *in, int n,
                          size_t at, void *out)
{
    const struct format *f = format_of(dtype);
    size_t size = reference_size(dtype);
    float sum = 0.0f, value;
    uint8_t byte;
    uint16_t word;
    for (int r = 0; r < n; r++) {
        const char *from = (const char *)in[r] + at * size;
        if (size == 4) {
            memcpy(&value, from, 4);
        } else if (size == 2) {
            memcpy(&word, from, 2);
            value = decode(f, word);
        } else {
            memcpy(&byte, from, 1);
            value = decode(f, byte);
        }
        sum = r == 0 ? value : step_float(op, sum, value);
    }
    if (op == SYMM_AVG)
        sum /= (float)n;
    if (size == 4) {
        memcpy(out, &sum, 4);
    } else if (size == 2) {
        word = (uint16_t)encode(f, sum);
        memcpy(out, &word, 2);
    } else {
        byte = (uint8_t)encode(f, sum);
        memcpy(out, &byte, 1);
    }
}

static bool is_signed(symm_dtype dtype)
{
    return dtype == SYMM_INT64 || dtype == SYMM_INT32 || dtype == SYMM_INT16 ||
           dtype == SYMM_INT8;
}

/* Sign- or zero-extended to 64 bits, two's complement. */
static uint64_t load_integer(symm_dtype dtype, const void *from)
{
    size_t size = reference_size(dtype);
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)((const uint8_t *)from)[i] << 8 * i;
    if (is_signed(dtype) && size < 8 && (value >> (8 * size - 1)) != 0)
        value |= ~UINT64_C(0) << 8 * size;
    return value;
}

static void combine_integer(symm_dtype dtype, symm_op op, const void *const *in, int n,
                            size_t at, void *out)
{
    size_t size = reference_size(dtype);
    uint64_t sum = 0;
    for (int r = 0; r < n; r++) {
        uint64_t value = load_integer(dtype, (const char *)in[r] + at * size);
        bool less = is_signed(dtype) ? (int64_t)value < (int64_t)sum : value < sum;
        if (r == 0)
            sum = value;
        else if (op == SYMM_SUM || op == SYMM_AVG)
            sum += value;
        else if (op == SYMM_PROD)
            sum *= value;
        else if (op == SYMM_BAND)
            sum = ~(~sum | ~value);
        else if (op == SYMM_BOR)
            sum = ~(~sum & ~value);
        else if (op == SYMM_BXOR)
            sum = (sum & ~value) | (~sum & value);
        else if (less == (op == SYMM_MIN))
            sum = value;
    }
    if (op == SYMM_AVG && is_signed(dtype))
        sum = (uint64_t)((int64_t)sum / n);
    else if (op == SYMM_AVG)
        sum /= (uint64_t)n;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)out)[i] = (uint8_t)(sum >> 8 * i);
}

void reference_combine(symm_dtype dtype, symm_op op, const void *const *in, int n,
                       size_t count, void *out)
{
    size_t size = reference_size(dtype);
    for (size_t i = 0; i < count; i++) {
        void *to = (char *)out + i * size;
        if (dtype == SYMM_FLOAT64)
            combine_double(op, in, n, i, to);
        else if (reference_is_float(dtype))
            combine_float(dtype, op, in, n, i, to);
        else
            combine_integer(dtype, op, in, n, i, to);
    }
}

void reference_reduce(symm_dtype dtype, symm_op op, uint32_t seed, int n, size_t first,
                      size_t count, void *out)
{
    uint64_t values[REFERENCE_RANKS];
    const void *in[REFERENCE_RANKS];
    size_t size = reference_size(dtype);
    for (int r = 0; r < n; r++)
        in[r] = &values[r];
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < n; r++)
            fill_one(dtype, op, element_bits(seed, r, first + i), &values[r]);
        reference_combine(dtype, op, in, n, 1, (char *)out + i * size);
    }
}

/* ---- Comparison ------------------------------------------------------------------ */

static bool element_is_nan(symm_dtype dtype, const char *at)
{
    const struct format *f = format_of(dtype);
    double wide;
    float single;
    uint16_t word;
    if (dtype == SYMM_FLOAT64) {
        memcpy(&wide, at, 8);
        return isnan(wide);
    }
    if (dtype == SYMM_FLOAT32) {
        memcpy(&single, at, 4);
        return isnan(single);
    }
    if (f == NULL)
        return false;
    if (f->bits == 8)
        return is_nan(f, *(const uint8_t *)at);
    memcpy(&word, at, 2);
    return is_nan(f, word);
}

bool reference_same(symm_dtype dtype, const void *a, const void *b, size_t count,
                    size_t *where)
{
    size_t size = reference_size(dtype);
    const char *x = a, *y = b;
    if (count == 0 || memcmp(a, b, count * size) == 0)
        return true;
    for (size_t i = 0; i < count; i++, x += size, y += size) {
        if (memcmp(x, y, size) == 0)
            continue;
        if (element_is_nan(dtype, x) && element_is_nan(dtype, y))
            continue;
        *where = i;
        return false;
    }
    return true;
}

bool reference_nan(symm_dtype dtype, void *out)
{
    const struct format *f = format_of(dtype);
    double wide = NAN;
    float single = NAN;
    if (dtype == SYMM_FLOAT64) {
        memcpy(out, &wide, 8);
    } else if (dtype == SYMM_FLOAT32) {
        memcpy(out, &single, 4);
    } else if (f != NULL && f->bits == 8) {
        uint8_t byte = (uint8_t)f->nan;
        memcpy(out, &byte, 1);
    } else if (f != NULL) {
        uint16_t word = (uint16_t)f->nan;
        memcpy(out, &word, 2);
    } else {
        return false;
    }
    return true;
}
