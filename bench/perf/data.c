/* SPDX-License-Identifier: MIT */
/*
 * data.c - patterns, and a plain reference of the reductions.
 *
 * Written for being right, not for speed: every floating-point format narrower than
 * float32 goes through one pair of functions that take the format's widths from a
 * table.
 */
#include "perf/data.h"

#include <math.h>
#include <string.h>

/* ---- Narrow floating point ------------------------------------------------------- */

struct narrow {
    int exponent_bits, mantissa_bits;
    bool saturates; /* beyond `largest`: the largest finite value, else infinity */
    bool has_infinity;
    double largest;
};

static const struct narrow narrow_float16 = {5, 10, false, true, 65504.0};
static const struct narrow narrow_bfloat16 = {8, 7, false, true, 0x1.fep127};
static const struct narrow narrow_e4m3 = {4, 3, true, false, 448.0};
static const struct narrow narrow_e5m2 = {5, 2, true, true, 57344.0};

static const struct narrow *narrow_of(symm_dtype dtype)
{
    switch (dtype) {
    case SYMM_FLOAT16:
        return &narrow_float16;
    case SYMM_BFLOAT16:
        return &narrow_bfloat16;
    case SYMM_FLOAT8_E4M3:
        return &narrow_e4m3;
    case SYMM_FLOAT8_E5M2:
        return &narrow_e5m2;
    default:
        return NULL;
    }
}

static double narrow_decode(const struct narrow *f, unsigned bits)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    unsigned top = (1u << f->exponent_bits) - 1;
    unsigned mantissa = bits & ((1u << f->mantissa_bits) - 1);
    unsigned exponent = (bits >> f->mantissa_bits) & top;
    double sign = (bits >> (f->exponent_bits + f->mantissa_bits)) & 1 ? -1.0 : 1.0;

    if (exponent == top && f->has_infinity)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == top && mantissa == (1u << f->mantissa_bits) - 1)
        return (double)NAN;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - bias - f->mantissa_bits);
    return sign * ldexp((double)(mantissa | 1u << f->mantissa_bits),
                        (int)exponent - bias - f->mantissa_bits);
}

static unsigned narrow_encode(const struct narrow *f, double value)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    unsigned top = (1u << f->exponent_bits) - 1;
    unsigned sign = signbit(value) ? 1u << (f->exponent_bits + f->mantissa_bits) : 0;
    double size = fabs(value);

    if (isnan(value))
        return top << f->mantissa_bits | ((1u << f->mantissa_bits) - 1);
    if (size == 0)
        return sign;
    if (!isinf(size)) {
        int exponent = ilogb(size) < 1 - bias ? 1 - bias : ilogb(size);
        size = ldexp(nearbyint(ldexp(size, f->mantissa_bits - exponent)),
                     exponent - f->mantissa_bits);
    }
    if (size > f->largest) {
        if (!f->saturates)
            return sign | top << f->mantissa_bits;
        size = f->largest;
    }
    int exponent = size == 0 || ilogb(size) < 1 - bias ? 1 - bias : ilogb(size);
    unsigned units = (unsigned)ldexp(size, f->mantissa_bits - exponent);
    if (units < 1u << f->mantissa_bits) /* subnormal */
        return sign | units;
    return sign | (unsigned)(exponent + bias) << f->mantissa_bits |
           (units - (1u << f->mantissa_bits));
}

/* ---- One value ------------------------------------------------------------------- */

static int64_t load_signed(symm_dtype dtype, const void *src)
{
    int32_t i32;
    int64_t i64;
    int8_t i8;

    switch (dtype) {
    case SYMM_INT8:
        memcpy(&i8, src, 1);
        return i8;
    case SYMM_INT32:
        memcpy(&i32, src, 4);
        return i32;
    default:
        memcpy(&i64, src, 8);
        return i64;
    }
}

static uint64_t load_unsigned(symm_dtype dtype, const void *src)
{
    uint32_t u32;
    uint64_t u64;
    uint8_t u8;

    switch (dtype) {
    case SYMM_UINT8:
        memcpy(&u8, src, 1);
        return u8;
    case SYMM_UINT32:
        memcpy(&u32, src, 4);
        return u32;
    default:
        memcpy(&u64, src, 8);
        return u64;
    }
}

static bool is_integer(symm_dtype dtype)
{
    return dtype >= SYMM_INT64;
}

static bool is_unsigned(symm_dtype dtype)
{
    return dtype >= SYMM_UINT64;
}

/* Keeps the low bytes: integers wrap. */
static void store_integer(symm_dtype dtype, uint64_t value, void *dst)
{
    uint32_t u32 = (uint32_t)value;
    uint8_t u8 = (uint8_t)value;

    switch (symm_dtype_size(dtype)) {
    case 1:
        memcpy(dst, &u8, 1);
        break;
    case 4:
        memcpy(dst, &u32, 4);
        break;
    default:
        memcpy(dst, &value, 8);
        break;
    }
}

void perf_encode(symm_dtype dtype, double value, void *dst)
{
    float f32 = (float)value;
    uint16_t u16;
    uint8_t u8;

    if (is_integer(dtype)) {
        store_integer(dtype, (uint64_t)(int64_t)value, dst);
    } else if (dtype == SYMM_FLOAT64) {
        memcpy(dst, &value, 8);
    } else if (dtype == SYMM_FLOAT32) {
        memcpy(dst, &f32, 4);
    } else if (symm_dtype_size(dtype) == 2) {
        u16 = (uint16_t)narrow_encode(narrow_of(dtype), value);
        memcpy(dst, &u16, 2);
    } else {
        u8 = (uint8_t)narrow_encode(narrow_of(dtype), value);
        memcpy(dst, &u8, 1);
    }
}

double perf_decode(symm_dtype dtype, const void *src)
{
    double f64;
    float f32;
    uint16_t u16;
    uint8_t u8;

    if (is_integer(dtype))
        return is_unsigned(dtype) ? (double)load_unsigned(dtype, src)
                                  : (double)load_signed(dtype, src);
    if (dtype == SYMM_FLOAT64) {
        memcpy(&f64, src, 8);
        return f64;
    }
    if (dtype == SYMM_FLOAT32) {
        memcpy(&f32, src, 4);
        return (double)f32;
    }
    if (dtype == SYMM_BFLOAT16) { /* the upper half of a float32 */
        memcpy(&u16, src, 2);
        uint32_t u32 = (uint32_t)u16 << 16;
        memcpy(&f32, &u32, 4);
        return (double)f32;
    }
    if (symm_dtype_size(dtype) == 2) {
        memcpy(&u16, src, 2);
        return narrow_decode(narrow_of(dtype), u16);
    }
    memcpy(&u8, src, 1);
    return narrow_decode(narrow_of(dtype), u8);
}

/* ---- Reductions ------------------------------------------------------------------ */

static double combine_double(symm_op op, double a, double b)
{
    switch (op) {
    case SYMM_PROD:
        return a * b;
    case SYMM_MIN:
        return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
    case SYMM_MAX:
        return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t combine_integer(symm_op op, bool without_sign, uint64_t a, uint64_t b)
{
    bool less = without_sign ? a < b : (int64_t)a < (int64_t)b;

    switch (op) {
    case SYMM_PROD:
        return a * b;
    case SYMM_MIN:
        return less ? a : b;
    case SYMM_MAX:
        return less ? b : a;
    default:
        return a + b;
    }
}

/* Sign-extended to 64 bits, so that one wrapping arithmetic serves all widths. */
static uint64_t load_integer(symm_dtype dtype, const void *src)
{
    return is_unsigned(dtype) ? load_unsigned(dtype, src)
                              : (uint64_t)load_signed(dtype, src);
}

static void reduce_integer(symm_dtype dtype, symm_op op, const void *const *src, int n,
                           size_t at, void *dst)
{
    uint64_t sum = load_integer(dtype, (const char *)src[0] + at);

    for (int r = 1; r < n; r++)
        sum = combine_integer(op, is_unsigned(dtype), sum,
                              load_integer(dtype, (const char *)src[r] + at));
    if (op == SYMM_AVG)
        sum = is_unsigned(dtype) ? sum / (uint64_t)n : (uint64_t)((int64_t)sum / n);
    store_integer(dtype, sum, dst);
}

static void reduce_float(symm_dtype dtype, symm_op op, const void *const *src, int n,
                         size_t at, void *dst)
{
    bool wide = dtype == SYMM_FLOAT64;
    double sum = perf_decode(dtype, (const char *)src[0] + at);

    for (int r = 1; r < n; r++) {
        double next =
            combine_double(op, sum, perf_decode(dtype, (const char *)src[r] + at));
        /* As one operation on floats: the double is exact enough to be rounded. */
        sum = wide ? next : (double)(float)next;
    }
    if (op == SYMM_AVG)
        sum = wide ? sum / n : (double)((float)sum / (float)n);
    perf_encode(dtype, sum, dst);
}

void perf_reduce(symm_dtype dtype, symm_op op, const void *const *src, int n,
                 size_t count, void *dst)
{
    size_t element = symm_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if (is_integer(dtype))
            reduce_integer(dtype, op, src, n, i * element, (char *)dst + i * element);
        else
            reduce_float(dtype, op, src, n, i * element, (char *)dst + i * element);
    }
}

/* ---- Patterns -------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static void repeat_table(struct perf_pattern *pattern)
{
    size_t period = PERF_PERIOD * pattern->element;

    for (size_t k = 1; k < PERF_REPEATS; k++)
        memcpy(pattern->table + k * period, pattern->table, period);
}

void perf_pattern_make(struct perf_pattern *pattern, symm_dtype dtype, uint64_t seed)
{
    uint64_t state = mix(seed + 1);
    unsigned char values[7][8];

    pattern->element = symm_dtype_size(dtype);
    for (int v = 0; v < 7; v++)
        perf_encode(dtype, v + 1, values[v]);
    for (size_t i = 0; i < PERF_PERIOD; i++)
        memcpy(pattern->table + i * pattern->element, values[mix(state + i) % 7],
               pattern->element);
    repeat_table(pattern);
}

void perf_pattern_reduce(struct perf_pattern *pattern, symm_dtype dtype, symm_op op,
                         const void *const *tables, int n)
{
    pattern->element = symm_dtype_size(dtype);
    perf_reduce(dtype, op, tables, n, PERF_PERIOD, pattern->table);
    repeat_table(pattern);
}

void perf_pattern_fill(const struct perf_pattern *pattern, size_t first, size_t bytes,
                       void *dst)
{
    size_t table = PERF_TABLE * pattern->element;
    size_t at = first % (PERF_PERIOD * pattern->element);
    char *to = dst;

    while (bytes > 0) {
        size_t part = table - at < bytes ? table - at : bytes;
        memcpy(to, pattern->table + at, part);
        to += part;
        bytes -= part;
        at = 0;
    }
}

size_t perf_bytes_differ(const void *a, const void *b, size_t bytes, size_t element)
{
    const char *left = a, *right = b;
    size_t wrong = 0;

    if (memcmp(a, b, bytes) == 0)
        return 0;
    for (size_t at = 0; at < bytes; at += element) {
        size_t part = bytes - at < element ? bytes - at : element;
        wrong += memcmp(left + at, right + at, part) != 0;
    }
    return wrong;
}

size_t perf_pattern_differ(const struct perf_pattern *pattern, size_t first,
                           size_t bytes, const void *src)
{
    size_t table = PERF_TABLE * pattern->element;
    size_t at = first % (PERF_PERIOD * pattern->element);
    const char *from = src;
    size_t wrong = 0;

    while (bytes > 0) {
        size_t part = table - at < bytes ? table - at : bytes;
        wrong += perf_bytes_differ(from, pattern->table + at, part, pattern->element);
        from += part;
        bytes -= part;
        at = 0;
    }
    return wrong;
}
