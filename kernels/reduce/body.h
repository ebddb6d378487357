/* SPDX-License-Identifier: MIT */
/*
 * body.h - the reduction kernels, compiled once by each isa file.
 *
 * The isa file defines SYMM_VB (bytes of a vector) and SYMM_REDUCE_TABLE (the table to
 * define), and may define its own float16 conversion and partial moves (vec.h).
 * A kernel is four inline functions: load (a vector of array bytes -> accumulator), op,
 * done (accumulator -> vector of array bytes), and the loop SYMM_KERNEL makes of them.
 *
 * Why all isas, alignments, counts and splits give the same bits: an element's value
 * depends on its own lane only, every element goes through the same lane code (also in
 * the last, partial vector, whose other lanes are zero and dropped), and each step of
 * that code is exact, integer, or one correctly rounded IEEE operation. Why a dst may
 * be a src: a block's loads come before its stores.
 *
 * MIN and MAX of floating point compare integers that order as the values do, so that
 * -0.0 < +0.0 and NaN comes before everything. Every NaN result is written as the positive
 * quiet NaN of its format: which NaN the processor's arithmetic returns depends on the order
 * in which the compiler passes the operands, and on the instruction set.
 */
#include "kernels/reduce/loop.h"
#include "kernels/reduce/vec.h"

/* ---- Wide elements: SUM, PROD, AVG ----------------------------------------------- */

static SYMM_INLINE bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Products with 1/n are exact where n is a power of two, and far cheaper. */
#define SYMM_DIVIDE(name, vec, scalar)                                                 \
    static SYMM_INLINE vec name(vec v, int n)                                          \
    {                                                                                  \
        return is_power_of_two(n) ? v * ((scalar)1 / (scalar)n) : v / (scalar)n;       \
    }
SYMM_DIVIDE(f32_divide, vf32, float)
SYMM_DIVIDE(f64_divide, vf64, double)

#define SYMM_ARITHMETIC(kind, vec)                                                     \
    static SYMM_INLINE vec kind##_load(vraw raw)                                       \
    {                                                                                  \
        return (vec)raw;                                                               \
    }                                                                                  \
    static SYMM_INLINE vec kind##_add(vec a, vec b)                                    \
    {                                                                                  \
        return a + b;                                                                  \
    }                                                                                  \
    static SYMM_INLINE vec kind##_mul(vec a, vec b)                                    \
    {                                                                                  \
        return a * b;                                                                  \
    }                                                                                  \
    static SYMM_INLINE vraw kind##_done(vec a, int n)                                  \
    {                                                                                  \
        (void)n;                                                                       \
        return (vraw)a;                                                                \
    }
SYMM_ARITHMETIC(f64, vf64)
SYMM_ARITHMETIC(f32, vf32)
/* Signed too: unsigned arithmetic wraps, and is defined. */
SYMM_ARITHMETIC(i64, vu64)
SYMM_ARITHMETIC(i32, vu32)
SYMM_ARITHMETIC(i16, vu16)
SYMM_ARITHMETIC(i8, vu8)

static SYMM_INLINE vraw f64_mean(vf64 a, int n)
{
    return (vraw)f64_divide(a, n);
}

static SYMM_INLINE vraw f32_mean(vf32 a, int n)
{
    return (vraw)f32_divide(a, n);
}

SYMM_KERNEL_FAST(f64_sum, 8, 4, vf64, f64_load, f64_add, f64_quiet, f64_done)
SYMM_KERNEL(f64_prod, 8, 4, vf64, f64_load, f64_mul, f64_quiet, f64_done)
SYMM_KERNEL(f64_avg, 8, 4, vf64, f64_load, f64_add, f64_quiet, f64_mean)
SYMM_KERNEL_FAST(f32_sum, 4, 4, vf32, f32_load, f32_add, f32_quiet, f32_done)
SYMM_KERNEL(f32_prod, 4, 4, vf32, f32_load, f32_mul, f32_quiet, f32_done)
SYMM_KERNEL(f32_avg, 4, 4, vf32, f32_load, f32_add, f32_quiet, f32_mean)
SYMM_KERNEL(i64_sum, 8, 4, vu64, i64_load, i64_add, SYMM_KEEP, i64_done)
SYMM_KERNEL(i64_prod, 8, 4, vu64, i64_load, i64_mul, SYMM_KEEP, i64_done)
SYMM_KERNEL(i32_sum, 4, 4, vu32, i32_load, i32_add, SYMM_KEEP, i32_done)
SYMM_KERNEL(i32_prod, 4, 4, vu32, i32_load, i32_mul, SYMM_KEEP, i32_done)
SYMM_KERNEL(i16_sum, 2, 4, vu16, i16_load, i16_add, SYMM_KEEP, i16_done)
SYMM_KERNEL(i16_prod, 2, 4, vu16, i16_load, i16_mul, SYMM_KEEP, i16_done)
SYMM_KERNEL(i8_sum, 1, 4, vu8, i8_load, i8_add, SYMM_KEEP, i8_done)
SYMM_KERNEL(i8_prod, 1, 4, vu8, i8_load, i8_mul, SYMM_KEEP, i8_done)

/* ---- BAND, BOR, BXOR ------------------------------------------------------------- */

static SYMM_INLINE vu64 bits_and(vu64 a, vu64 b)
{
    return a & b;
}

static SYMM_INLINE vu64 bits_or(vu64 a, vu64 b)
{
    return a | b;
}

static SYMM_INLINE vu64 bits_xor(vu64 a, vu64 b)
{
    return a ^ b;
}

/* Vectors of 64 bits serve all sizes; `size` only turns a count into bytes. */
#define SYMM_BITS(kind, size)                                                          \
    SYMM_KERNEL(kind##_band, size, 4, vu64, i64_load, bits_and, SYMM_KEEP, i64_done)   \
    SYMM_KERNEL(kind##_bor, size, 4, vu64, i64_load, bits_or, SYMM_KEEP, i64_done)     \
    SYMM_KERNEL(kind##_bxor, size, 4, vu64, i64_load, bits_xor, SYMM_KEEP, i64_done)
SYMM_BITS(i64, 8)
SYMM_BITS(i32, 4)
SYMM_BITS(i16, 2)
SYMM_BITS(i8, 1)

/* ---- Narrow floats: SUM, PROD, AVG ----------------------------------------------- */

static SYMM_INLINE vf32x2 x2_add(vf32x2 p, vf32x2 q)
{
    return (vf32x2){p.a + q.a, p.b + q.b};
}

static SYMM_INLINE vf32x2 x2_mul(vf32x2 p, vf32x2 q)
{
    return (vf32x2){p.a * q.a, p.b * q.b};
}

static SYMM_INLINE vf32x2 x2_divide(vf32x2 p, int n)
{
    return (vf32x2){f32_divide(p.a, n), f32_divide(p.b, n)};
}

static SYMM_INLINE vf32x4 x4_add(vf32x4 p, vf32x4 q)
{
    return (vf32x4){x2_add(p.a, q.a), x2_add(p.b, q.b)};
}

static SYMM_INLINE vf32x4 x4_mul(vf32x4 p, vf32x4 q)
{
    return (vf32x4){x2_mul(p.a, q.a), x2_mul(p.b, q.b)};
}

static SYMM_INLINE vf32x4 x4_divide(vf32x4 p, int n)
{
    return (vf32x4){x2_divide(p.a, n), x2_divide(p.b, n)};
}

static SYMM_INLINE vf32x4 e4m3_decode(vraw raw)
{
    return f8_decode(raw, NARROW_E4M3);
}

static SYMM_INLINE vraw e4m3_encode(vf32x4 in)
{
    return f8_encode(in, NARROW_E4M3);
}

static SYMM_INLINE vf32x4 e5m2_decode(vraw raw)
{
    return f8_decode(raw, NARROW_E5M2);
}

static SYMM_INLINE vraw e5m2_encode(vf32x4 in)
{
    return f8_encode(in, NARROW_E5M2);
}

/* x = x2 or x4: the accumulators of one vector. */
#define SYMM_NARROW(kernel, kind, size, n, x, quiet, decode, encode)                   \
    static SYMM_INLINE vraw kind##_done(vf32##x a, int nsrc)                           \
    {                                                                                  \
        (void)nsrc;                                                                    \
        return encode(a);                                                              \
    }                                                                                  \
    static SYMM_INLINE vraw kind##_mean(vf32##x a, int nsrc)                           \
    {                                                                                  \
        return encode(x##_divide(a, nsrc));                                            \
    }                                                                                  \
    kernel(kind##_sum, size, n, vf32##x, decode, x##_add, quiet, kind##_done)          \
        SYMM_KERNEL(kind##_prod, size, n, vf32##x, decode, x##_mul, quiet,             \
                    kind##_done) SYMM_KERNEL(kind##_avg, size, n, vf32##x, decode,     \
                                             x##_add, quiet, kind##_mean)
SYMM_NARROW(SYMM_F16_KERNEL, f16, 2, 2, x2, SYMM_F16_QUIET, SYMM_F16_DECODE,
            SYMM_F16_ENCODE)
SYMM_NARROW(SYMM_KERNEL_FAST, bf16, 2, 2, x2, SYMM_KEEP, bf16_decode, bf16_encode)
SYMM_NARROW(SYMM_KERNEL, e4m3, 1, 1, x4, SYMM_KEEP, e4m3_decode, e4m3_encode)
SYMM_NARROW(SYMM_KERNEL, e5m2, 1, 1, x4, SYMM_KEEP, e5m2_decode, e5m2_encode)

/* ---- Integers: AVG --------------------------------------------------------------- */

/* Towards zero: the magnitude is divided, then gets its sign back. */
static SYMM_INLINE vu64 u64_divide(vu64 v, int n)
{
    return is_power_of_two(n) ? v >> __builtin_ctz((unsigned)n) : v / (uint64_t)n;
}

static SYMM_INLINE vu64 s64_divide(vu64 v, int n)
{
    vu64 negative = (vu64)((vs64)v < (vs64){0});

    return (u64_divide((v ^ negative) - negative, n) ^ negative) - negative;
}

static SYMM_INLINE vraw s64_mean(vu64 a, int n)
{
    return (vraw)s64_divide(a, n);
}

static SYMM_INLINE vraw u64_mean(vu64 a, int n)
{
    return (vraw)u64_divide(a, n);
}

SYMM_KERNEL(s64_avg, 8, 1, vu64, i64_load, i64_add, SYMM_KEEP, s64_mean)
SYMM_KERNEL(u64_avg, 8, 1, vu64, i64_load, i64_add, SYMM_KEEP, u64_mean)

static SYMM_INLINE vu64x2 wide2_add(vu64x2 p, vu64x2 q)
{
    return (vu64x2){p.a + q.a, p.b + q.b};
}

static SYMM_INLINE vu64x4 wide4_add(vu64x4 p, vu64x4 q)
{
    return (vu64x4){wide2_add(p.a, q.a), wide2_add(p.b, q.b)};
}

static SYMM_INLINE vu64x8 wide8_add(vu64x8 p, vu64x8 q)
{
    return (vu64x8){wide2_add(p.a, q.a), wide2_add(p.b, q.b), wide2_add(p.c, q.c),
                    wide2_add(p.d, q.d)};
}

#define SYMM_INTEGER_MEAN(kind, divide, sign32, sign16, sign8)                         \
    static SYMM_INLINE vu64x2 kind##_divide2(vu64x2 p, int n)                          \
    {                                                                                  \
        return (vu64x2){divide(p.a, n), divide(p.b, n)};                               \
    }                                                                                  \
    static SYMM_INLINE vu64x2 kind##32_load(vraw raw)                                  \
    {                                                                                  \
        return int32_widen(raw, sign32);                                               \
    }                                                                                  \
    static SYMM_INLINE vraw kind##32_mean(vu64x2 a, int n)                             \
    {                                                                                  \
        return int32_narrow(kind##_divide2(a, n));                                     \
    }                                                                                  \
    static SYMM_INLINE vu64x4 kind##16_load(vraw raw)                                  \
    {                                                                                  \
        return int16_widen(raw, sign16);                                               \
    }                                                                                  \
    static SYMM_INLINE vraw kind##16_mean(vu64x4 a, int n)                             \
    {                                                                                  \
        return int16_narrow((vu64x4){kind##_divide2(a.a, n), kind##_divide2(a.b, n)}); \
    }                                                                                  \
    static SYMM_INLINE vu64x8 kind##8_load(vraw raw)                                   \
    {                                                                                  \
        return int8_widen(raw, sign8);                                                 \
    }                                                                                  \
    static SYMM_INLINE vraw kind##8_mean(vu64x8 a, int n)                              \
    {                                                                                  \
        return int8_narrow((vu64x8){kind##_divide2(a.a, n), kind##_divide2(a.b, n),    \
                                    kind##_divide2(a.c, n), kind##_divide2(a.d, n)});  \
    }                                                                                  \
    SYMM_KERNEL(kind##32_avg, 4, 1, vu64x2, kind##32_load, wide2_add, SYMM_KEEP,       \
                kind##32_mean)                                                         \
    SYMM_KERNEL(kind##16_avg, 2, 1, vu64x4, kind##16_load, wide4_add, SYMM_KEEP,       \
                kind##16_mean)                                                         \
    SYMM_KERNEL(kind##8_avg, 1, 1, vu64x8, kind##8_load, wide8_add, SYMM_KEEP,         \
                kind##8_mean)
SYMM_INTEGER_MEAN(s, s64_divide, 0x80000000u, 0x8000u, 0x80u)
SYMM_INTEGER_MEAN(u, u64_divide, 0u, 0u, 0u)

/* ---- MIN, MAX -------------------------------------------------------------------- */

/* Compilers turn the masks into a minimum or a blend. */
#define SYMM_EXTREMES(kind, size, vec, load_min, load_max, done)                       \
    static SYMM_INLINE vec kind##_lower(vec a, vec b)                                  \
    {                                                                                  \
        vec less = (vec)(b < a);                                                       \
                                                                                       \
        return (b & less) | (a & ~less);                                               \
    }                                                                                  \
    static SYMM_INLINE vec kind##_higher(vec a, vec b)                                 \
    {                                                                                  \
        vec more = (vec)(b > a);                                                       \
                                                                                       \
        return (b & more) | (a & ~more);                                               \
    }                                                                                  \
    SYMM_KERNEL(kind##_min, size, 4, vec, load_min, kind##_lower, SYMM_KEEP, done)     \
    SYMM_KERNEL(kind##_max, size, 4, vec, load_max, kind##_higher, SYMM_KEEP, done)

#define SYMM_INTEGER_EXTREMES(kind, size, vec)                                         \
    static SYMM_INLINE vec kind##_key(vraw raw)                                        \
    {                                                                                  \
        return (vec)raw;                                                               \
    }                                                                                  \
    static SYMM_INLINE vraw kind##_unkey(vec key, int n)                               \
    {                                                                                  \
        (void)n;                                                                       \
        return (vraw)key;                                                              \
    }                                                                                  \
    SYMM_EXTREMES(kind, size, vec, kind##_key, kind##_key, kind##_unkey)
SYMM_INTEGER_EXTREMES(s64, 8, vs64)
SYMM_INTEGER_EXTREMES(u64, 8, vu64)
SYMM_INTEGER_EXTREMES(s32, 4, vs32)
SYMM_INTEGER_EXTREMES(u32, 4, vu32)
SYMM_INTEGER_EXTREMES(s16, 2, vs16)
SYMM_INTEGER_EXTREMES(u16, 2, vu16)
SYMM_INTEGER_EXTREMES(s8, 1, vs8)
SYMM_INTEGER_EXTREMES(u8, 1, vu8)

/*
 * Floating point as integers that order alike: a negative value's magnitude bits are
 * flipped. NaN is given the sign that makes it win, and loses it again at the end.
 * `last` = the largest magnitude that is no NaN; `inf` = infinity of a format that
 * saturates, else 0.
 */
#define SYMM_FLOAT_EXTREMES(kind, size, vec, elem, low, last, nan, inf)                \
    static SYMM_INLINE vec kind##_flip(vec v)                                          \
    {                                                                                  \
        return v ^ ((vec)(v < (vec){0}) & (elem)(low));                                \
    }                                                                                  \
    static SYMM_INLINE vec kind##_key(vraw raw, elem nan_key)                          \
    {                                                                                  \
        vec v = (vec)raw;                                                              \
        vec is_nan = (vec)((v & (elem)(low)) > (vec){0} + (elem)(last));               \
                                                                                       \
        return (is_nan & nan_key) | (~is_nan & kind##_flip(v));                        \
    }                                                                                  \
    static SYMM_INLINE vec kind##_key_min(vraw raw)                                    \
    {                                                                                  \
        return kind##_key(raw, (elem) ~(elem)(nan));                                   \
    }                                                                                  \
    static SYMM_INLINE vec kind##_key_max(vraw raw)                                    \
    {                                                                                  \
        return kind##_key(raw, (elem)(nan));                                           \
    }                                                                                  \
    static SYMM_INLINE vraw kind##_unkey(vec key, int n)                               \
    {                                                                                  \
        vec v = kind##_flip(key);                                                      \
                                                                                       \
        (void)n;                                                                       \
        if ((inf) != 0)                                                                \
            v += (vec)((v & (elem)(low)) == (vec){0} + (elem)(inf));                   \
        v &= ~(vec)(key == (vec){0} + (elem) ~(elem)(nan)) | (elem)(low);              \
        return (vraw)v;                                                                \
    }                                                                                  \
    SYMM_EXTREMES(kind, size, vec, kind##_key_min, kind##_key_max, kind##_unkey)
SYMM_FLOAT_EXTREMES(f64, 8, vs64, int64_t, INT64_MAX, 0x7ff0000000000000,
                    0x7ff8000000000000, 0)
SYMM_FLOAT_EXTREMES(f32, 4, vs32, int32_t, INT32_MAX, 0x7f800000, 0x7fc00000, 0)
SYMM_FLOAT_EXTREMES(f16, 2, vs16, int16_t, INT16_MAX, 0x7c00, 0x7e00, 0)
SYMM_FLOAT_EXTREMES(bf16, 2, vs16, int16_t, INT16_MAX, 0x7f80, 0x7fc0, 0)
SYMM_FLOAT_EXTREMES(e4m3, 1, vs8, int8_t, INT8_MAX, 0x7e, 0x7f, 0)
SYMM_FLOAT_EXTREMES(e5m2, 1, vs8, int8_t, INT8_MAX, 0x7c, 0x7f, 0x7c)

/* ---- Table ----------------------------------------------------------------------- */

#define SYMM_ROW(kind)                                                                 \
    {                                                                                  \
        [SYMM_SUM] = kind##_sum, [SYMM_PROD] = kind##_prod, [SYMM_AVG] = kind##_avg,   \
        [SYMM_MIN] = kind##_min, [SYMM_MAX] = kind##_max                               \
    }
/* `wraps`: the kernels that signed and unsigned integers of the size share. */
#define SYMM_INTEGER_ROW(wraps, kind)                                                  \
    {                                                                                  \
        [SYMM_SUM] = wraps##_sum, [SYMM_PROD] = wraps##_prod, [SYMM_AVG] = kind##_avg, \
        [SYMM_MIN] = kind##_min, [SYMM_MAX] = kind##_max, [SYMM_BAND] = wraps##_band,  \
        [SYMM_BOR] = wraps##_bor, [SYMM_BXOR] = wraps##_bxor                           \
    }
const symm_reduce_table SYMM_REDUCE_TABLE = {
    [SYMM_FLOAT64] = SYMM_ROW(f64),
    [SYMM_FLOAT32] = SYMM_ROW(f32),
    [SYMM_FLOAT16] = SYMM_ROW(f16),
    [SYMM_BFLOAT16] = SYMM_ROW(bf16),
    [SYMM_FLOAT8_E4M3] = SYMM_ROW(e4m3),
    [SYMM_FLOAT8_E5M2] = SYMM_ROW(e5m2),
    [SYMM_INT64] = SYMM_INTEGER_ROW(i64, s64),
    [SYMM_INT32] = SYMM_INTEGER_ROW(i32, s32),
    [SYMM_INT8] = SYMM_INTEGER_ROW(i8, s8),
    [SYMM_UINT64] = SYMM_INTEGER_ROW(i64, u64),
    [SYMM_UINT32] = SYMM_INTEGER_ROW(i32, u32),
    [SYMM_UINT8] = SYMM_INTEGER_ROW(i8, u8),
    [SYMM_INT16] = SYMM_INTEGER_ROW(i16, s16),
    [SYMM_UINT16] = SYMM_INTEGER_ROW(i16, u16),
};
