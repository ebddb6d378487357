/* SPDX-License-Identifier: MIT */
/*
 * data.c - patterns, and a plain reference of the reductions.
 *
 * Written to be correct, not fast: one pair of functions converts every floating-point
 * format narrower than float32, with the widths from a table.
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

static const struct narrow narrows[] = {
    [SYMM_FLOAT16] = {5, 10, false, true, 65504.0},
    [SYMM_BFLOAT16] = {8, 7, false, true, 0x1.fep127},
    [SYMM_FLOAT8_E4M3] = {4, 3, true, false, 448.0},
    [SYMM_FLOAT8_E5M2] = {5, 2, true, true, 57344.0},
};

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

static bool is_unsigned(symm_dtype dtype)
{
    return dtype == SYMM_UINT64 || dtype == SYMM_UINT32 || dtype == SYMM_UINT16 ||
           dtype == SYMM_UINT8;
}

static bool is_integer(symm_dtype dtype)
{
    return is_unsigned(dtype) || dtype == SYMM_INT64 || dtype == SYMM_INT32 ||
           dtype == SYMM_INT16 || dtype == SYMM_INT8;
}

bool perf_takes(symm_dtype dtype, symm_op op)
{
    return (op != SYMM_BAND && op != SYMM_BOR && op != SYMM_BXOR) || is_integer(dtype);
}

/* Load and store the low `size` bytes of 64 bits. */
static uint64_t load_bits(const void *src, size_t size)
{
    const bool last = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    uint64_t bits = 0;

    memcpy((char *)&bits + (last ? sizeof(bits) - size : 0), src, size);
    return bits;
}

static void store_bits(uint64_t bits, void *dst, size_t size)
{
    const bool last = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

    memcpy(dst, (const char *)&bits + (last ? sizeof(bits) - size : 0), size);
}

/* Sign-extended to 64 bits: one wrapping arithmetic serves all widths. */
static uint64_t load_integer(symm_dtype dtype, const void *src)
{
    const size_t size = symm_dtype_size(dtype), unused = 64 - 8 * size;
    const uint64_t bits = load_bits(src, size);

    return is_unsigned(dtype) ? bits : (uint64_t)((int64_t)(bits << unused) >> unused);
}

void perf_encode(symm_dtype dtype, double value, void *dst)
{
    const size_t size = symm_dtype_size(dtype);
    float f32 = (float)value;

    if (is_integer(dtype)) /* integers wrap */
        store_bits((uint64_t)(int64_t)value, dst, size);
    else if (dtype == SYMM_FLOAT64)
        memcpy(dst, &value, 8);
    else if (dtype == SYMM_FLOAT32)
        memcpy(dst, &f32, 4);
    else
        store_bits(narrow_encode(&narrows[dtype], value), dst, size);
}

double perf_decode(symm_dtype dtype, const void *src)
{
    const size_t size = symm_dtype_size(dtype);
    double f64;
    float f32;

    if (is_integer(dtype)) {
        const uint64_t number = load_integer(dtype, src);
        return is_unsigned(dtype) ? (double)number : (double)(int64_t)number;
    }
    if (dtype == SYMM_FLOAT64) {
        memcpy(&f64, src, 8);
        return f64;
    }
    if (dtype == SYMM_FLOAT32) {
        memcpy(&f32, src, 4);
        return (double)f32;
    }
    return narrow_decode(&narrows[dtype], (unsigned)load_bits(src, size));
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
    case SYMM_BAND:
        return a & b;
    case SYMM_BOR:
        return a | b;
    case SYMM_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
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
    store_bits(sum, dst, symm_dtype_size(dtype));
}

/* A reduction that is under way, of `count` values up to now. */
struct fold {
    symm_dtype dtype;
    symm_op op;
    double value;
    int count;
};

static void fold_value(struct fold *fold, const void *src)
{
    double next = perf_decode(fold->dtype, src);

    if (fold->count++ > 0)
        next = combine_double(fold->op, fold->value, next);
    /* Rounds as one float operation would: the double has enough bits for that. */
    fold->value = fold->dtype == SYMM_FLOAT64 ? next : (double)(float)next;
}

static void fold_store(const struct fold *fold, void *dst)
{
    double value = fold->value;

    if (fold->op == SYMM_AVG)
        value = fold->dtype == SYMM_FLOAT64
                    ? value / fold->count
                    : (double)((float)value / (float)fold->count);
    perf_encode(fold->dtype, value, dst);
}

static int first_of_host(const int *hosts, int r)
{
    int i = 0;

    while (hosts[i] != hosts[r])
        i++;
    return i;
}

static void reduce_float(symm_dtype dtype, symm_op op, const void *const *src,
                         const int *hosts, int n, size_t at, void *dst)
{
    struct fold all = {.dtype = dtype, .op = op};

    for (int r = 0; r < n; r++) {
        struct fold part = {.dtype = dtype, .op = op};
        unsigned char rounded[8];

        if (!hosts) {
            fold_value(&all, (const char *)src[r] + at);
            continue;
        }
        if (first_of_host(hosts, r) < r)
            continue;
        for (int i = r; i < n; i++)
            if (hosts[i] == hosts[r])
                fold_value(&part, (const char *)src[i] + at);
        fold_store(&part, rounded);
        fold_value(&all, rounded);
    }
    fold_store(&all, dst);
}

void perf_reduce(symm_dtype dtype, symm_op op, const void *const *src, const int *hosts,
                 int n, size_t count, void *dst)
{
    size_t element = symm_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        void *to = (char *)dst + i * element;
        if (is_integer(dtype))
            reduce_integer(dtype, op, src, n, i * element, to);
        else
            reduce_float(dtype, op, src, hosts, n, i * element, to);
    }
}

const int *perf_reduce_hosts(symm_op op, bool scatters, const int *hosts, int n)
{
    bool equal = true, ordered = true; /* equally many ranks a host; hosts in blocks */
    int most = 0;

    if (!hosts)
        return NULL;
    for (int r = 0; r < n; r++) {
        int members = 0;
        for (int i = 0; i < n; i++)
            members += hosts[i] == hosts[r];
        most = r == 0 ? members : most;
        equal = equal && members == most;
        ordered = ordered &&
                  (r == 0 || hosts[r] == hosts[r - 1] || first_of_host(hosts, r) == r);
    }
    if ((op == SYMM_AVG && !equal) || (scatters && !(equal && ordered)))
        return NULL;
    return hosts;
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
                         const void *const *tables, const int *hosts, int n)
{
    pattern->element = symm_dtype_size(dtype);
    perf_reduce(dtype, op, tables, hosts, n, PERF_PERIOD, pattern->table);
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
