/* SPDX-License-Identifier: MIT */
/*
 * vec.h - vectors of SYMM_VB bytes, and the conversions between them.
 *
 * Included once by each isa file, which defines SYMM_VB (16, 32, 64) first. Everything
 * is the compilers' vector extension, so that the same lines give SSE2, AVX, NEON or
 * scalar code; no intrinsics here. A narrow element (2 or 1 bytes) is taken out of its
 * 32-bit or 64-bit lane by shifts, element k of a lane into vector k, and put back the
 * same way: no shuffles, no widening moves, and right on either byte order.
 * Guarantees: conversions are exact or round to nearest, ties to even, and know every
 * bit pattern; NaN becomes the positive quiet NaN of the format. They rely on the
 * default floating-point environment (to nearest, subnormals kept).
 */
#ifndef SYMM_KERNELS_REDUCE_VEC_H
#define SYMM_KERNELS_REDUCE_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SYMM_INLINE inline __attribute__((always_inline))

typedef uint8_t vu8 __attribute__((vector_size(SYMM_VB)));
typedef int8_t vs8 __attribute__((vector_size(SYMM_VB)));
typedef int16_t vs16 __attribute__((vector_size(SYMM_VB)));
typedef uint16_t vu16 __attribute__((vector_size(SYMM_VB)));
typedef int32_t vs32 __attribute__((vector_size(SYMM_VB)));
typedef uint32_t vu32 __attribute__((vector_size(SYMM_VB)));
typedef int64_t vs64 __attribute__((vector_size(SYMM_VB)));
typedef uint64_t vu64 __attribute__((vector_size(SYMM_VB)));
typedef float vf32 __attribute__((vector_size(SYMM_VB)));
typedef double vf64 __attribute__((vector_size(SYMM_VB)));
typedef vu8 vraw; /* SYMM_VB bytes of an array, whatever they hold */

/* The accumulators of one vraw of narrow elements. */
typedef struct {
    vf32 a, b;
} vf32x2;
typedef struct {
    vf32x2 a, b;
} vf32x4;
typedef struct {
    vu64 a, b;
} vu64x2;
typedef struct {
    vu64x2 a, b;
} vu64x4;
typedef struct {
    vu64x2 a, b, c, d;
} vu64x8;

/* ---- Moves ----------------------------------------------------------------------- */

/* Not memcpy: gcc 12 takes one of 16 bytes apart and goes through memory. */
typedef vraw vraw_anywhere __attribute__((aligned(1), may_alias));

static SYMM_INLINE vraw raw_load(const char *from)
{
    return *(const vraw_anywhere *)from;
}

static SYMM_INLINE void raw_store(char *to, vraw raw)
{
    *(vraw_anywhere *)to = raw;
}

#ifndef SYMM_PART_LOAD
#define SYMM_PART_LOAD  part_load
#define SYMM_PART_STORE part_store

/* Moves of fixed size: a call of memcpy costs more than the whole reduction. */
static SYMM_INLINE void part_copy(char *to, const char *from, size_t bytes)
{
    if (SYMM_VB > 16 && (bytes & 16)) {
        memcpy(to, from, 16);
        to += 16, from += 16;
    }
    if (bytes & 8) {
        memcpy(to, from, 8);
        to += 8, from += 8;
    }
    if (bytes & 4) {
        memcpy(to, from, 4);
        to += 4, from += 4;
    }
    if (bytes & 2) {
        memcpy(to, from, 2);
        to += 2, from += 2;
    }
    if (bytes & 1)
        *to = *from;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SYMM_FETCH(bits)                                                               \
    static SYMM_INLINE uint64_t fetch##bits(const char *from)                          \
    {                                                                                  \
        uint##bits##_t value;                                                          \
                                                                                       \
        memcpy(&value, from, sizeof(value));                                           \
        return value;                                                                  \
    }
SYMM_FETCH(64)
SYMM_FETCH(32)
SYMM_FETCH(16)
SYMM_FETCH(8)
#undef SYMM_FETCH

/* 0..8 bytes as a word: two moves that overlap, the second one shifted into place. */
static SYMM_INLINE uint64_t part_fetch(const char *from, size_t bytes)
{
    if (bytes >= 8)
        return fetch64(from);
    if (bytes >= 4)
        return fetch32(from) | fetch32(from + bytes - 4) << (8 * (bytes - 4));
    if (bytes >= 2)
        return fetch16(from) | fetch16(from + bytes - 2) << (8 * (bytes - 2));
    return bytes == 1 ? fetch8(from) : 0;
}

/* By registers: a vector load from bytes just stored in pieces has to wait. */
static SYMM_INLINE vraw part_load(const char *from, size_t bytes)
{
    vu64 words = {0};

    for (size_t i = 0; i < SYMM_VB / 8 && bytes > 8 * i; i++)
        words[i] = part_fetch(from + 8 * i, bytes - 8 * i);
    return (vraw)words;
}
#else
static SYMM_INLINE vraw part_load(const char *from, size_t bytes)
{
    vraw raw = {0};

    part_copy((char *)&raw, from, bytes);
    return raw;
}
#endif

static SYMM_INLINE void part_store(char *to, size_t bytes, vraw raw)
{
    part_copy(to, (const char *)&raw, bytes);
}
#endif

/* ---- Choices --------------------------------------------------------------------- */

#ifndef SYMM_PICK_LESS
#define SYMM_PICK_LESS pick_less
#define SYMM_PICK_NAN  pick_nan

/* a < b ? yes : no */
static SYMM_INLINE vu32 pick_less(vs32 a, vs32 b, vu32 yes, vu32 no)
{
    vs32 mask = a < b;

    return (vu32)((mask & (vs32)yes) | (~mask & (vs32)no));
}

/* value is NaN ? yes : no */
static SYMM_INLINE vu32 pick_nan(vf32 value, vu32 yes, vu32 no)
{
    vs32 mask = value != value;

    return (vu32)((mask & (vs32)yes) | (~mask & (vs32)no));
}

#endif

#ifndef SYMM_SOME_NAN
#define SYMM_SOME_NAN   some_nan
#define SYMM_SOME_NAN64 some_nan64

static SYMM_INLINE bool some_bit(vu64 words)
{
    uint64_t all = 0;

    for (size_t i = 0; i < SYMM_VB / 8; i++)
        all |= words[i];
    return all != 0;
}

static SYMM_INLINE bool some_nan(vf32 a, vf32 b, vf32 c, vf32 d)
{
    return some_bit((vu64)((a != a) | (b != b) | (c != c) | (d != d)));
}

static SYMM_INLINE bool some_nan64(vf64 a, vf64 b, vf64 c, vf64 d)
{
    return some_bit((vu64)((a != a) | (b != b) | (c != c) | (d != d)));
}
#endif

static SYMM_INLINE vu32 all32(uint32_t value)
{
    return (vu32){0} + value;
}

/*
 * Four accumulators at a time are asked whether they have a NaN: it is rare, and to replace
 * it in each of them would cost more than to add two.
 */
static SYMM_INLINE void f32_quiet(vf32 *a, vf32 *b, vf32 *c, vf32 *d)
{
    if (__builtin_expect(SYMM_SOME_NAN(*a, *b, *c, *d), 0)) {
        *a = (vf32)SYMM_PICK_NAN(*a, all32(0x7fc00000u), (vu32)*a);
        *b = (vf32)SYMM_PICK_NAN(*b, all32(0x7fc00000u), (vu32)*b);
        *c = (vf32)SYMM_PICK_NAN(*c, all32(0x7fc00000u), (vu32)*c);
        *d = (vf32)SYMM_PICK_NAN(*d, all32(0x7fc00000u), (vu32)*d);
    }
}

static SYMM_INLINE vf64 f64_replace(vf64 value)
{
    vs64 mask = value != value;

    return (vf64)((mask & 0x7ff8000000000000) | (~mask & (vs64)value));
}

static SYMM_INLINE void f64_quiet(vf64 *a, vf64 *b, vf64 *c, vf64 *d)
{
    if (__builtin_expect(SYMM_SOME_NAN64(*a, *b, *c, *d), 0)) {
        *a = f64_replace(*a);
        *b = f64_replace(*b);
        *c = f64_replace(*c);
        *d = f64_replace(*d);
    }
}

/* For two vectors at a time: c and d are a. */
static SYMM_INLINE void f16_quiet(vf32x2 *a, vf32x2 *b, vf32x2 *c, vf32x2 *d)
{
    (void)c, (void)d;
    f32_quiet(&a->a, &a->b, &b->a, &b->b);
}

/* ---- Narrow floats --------------------------------------------------------------- */

/* A format of `bits` bits, of which `mantissa` are the mantissa's. */
struct narrow {
    int bits, mantissa, bias;
    uint32_t special; /* the first magnitude that is infinity or NaN */
    uint32_t nan;     /* the NaN to write */
    float top;        /* larger magnitudes are rounded as this one is */
};

/* 65536 becomes float16's infinity, as all from 65520 on; float8 saturates instead. */
#define NARROW_F16  ((struct narrow){16, 10, 15, 0x7c00, 0x7e00, 65536.0f})
#define NARROW_E5M2 ((struct narrow){8, 2, 15, 0x7c, 0x7f, 57344.0f})
#define NARROW_E4M3 ((struct narrow){8, 3, 7, 0x7f, 0x7f, 448.0f})

static SYMM_INLINE uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static SYMM_INLINE float power_of_two(int exponent)
{
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Lanes hold one element each, zero above it. */
static SYMM_INLINE vf32 narrow_decode(vu32 in, const struct narrow f)
{
    int drop = 23 - f.mantissa;
    uint32_t sign_bit = 1u << (f.bits - 1);
    float ulp_shift = power_of_two(1 - f.bias + drop);
    vu32 sign = (in & sign_bit) << (32 - f.bits);
    vu32 magnitude = in & (sign_bit - 1);
    vu32 normal = (magnitude << drop) + ((uint32_t)(127 - f.bias) << 23);
    /* Not by a product with a subnormal float32: some processors take 100 cycles. */
    vu32 tiny = (vu32)((vf32)(magnitude + float_bits(ulp_shift)) - ulp_shift);
    vs32 first_normal = (vs32)all32(1u << f.mantissa);
    vs32 special = (vs32)all32(f.special);
    vu32 value = SYMM_PICK_LESS((vs32)magnitude, first_normal, tiny, normal) | sign;

    return (vf32)SYMM_PICK_LESS((vs32)magnitude, special, value, value | 0x7f800000u);
}

static SYMM_INLINE vu32 narrow_encode(vf32 in, const struct narrow f)
{
    int drop = 23 - f.mantissa;
    float ulp_shift = power_of_two(1 - f.bias + drop); /* its ulp = the smallest step */
    vu32 sign = ((vu32)in & 0x80000000u) >> (32 - f.bits);
    vu32 magnitude = (vu32)in & 0x7fffffffu;
    vu32 top = all32(float_bits(f.top));
    vu32 capped = SYMM_PICK_LESS((vs32)top, (vs32)magnitude, top, magnitude);
    vu32 odd = (capped >> drop) & 1u;
    vu32 half = all32((1u << (drop - 1)) - 1u - ((uint32_t)(127 - f.bias) << 23));
    vu32 normal = (capped + half + odd) >> drop;
    /* Adding 2^23 of the smallest steps makes the processor round to one of them. */
    vu32 tiny = (vu32)((vf32)capped + ulp_shift) - float_bits(ulp_shift);
    vs32 first_normal = (vs32)all32((uint32_t)(128 - f.bias) << 23);
    vu32 out = SYMM_PICK_LESS((vs32)capped, first_normal, tiny, normal);

    return SYMM_PICK_NAN(in, all32(f.nan), out | sign);
}

static SYMM_INLINE vf32x2 bf16_decode(vraw raw)
{
    vf32x2 out = {(vf32)((vu32)raw << 16), (vf32)((vu32)raw & 0xffff0000u)};

    return out;
}

/* Rounded in the upper half of each lane; the lower half is left over. */
static SYMM_INLINE vu32 bf16_round(vf32 in)
{
    vu32 bits = (vu32)in;
    vu32 rounded = bits + (((bits >> 16) & 1u) + 0x7fffu);

    return SYMM_PICK_NAN(in, all32(0x7fc00000u), rounded);
}

static SYMM_INLINE vraw bf16_encode(vf32x2 in)
{
    return (vraw)((bf16_round(in.a) >> 16) | (bf16_round(in.b) & 0xffff0000u));
}

#ifndef SYMM_F16_DECODE
#define SYMM_F16_DECODE f16_decode
#define SYMM_F16_ENCODE f16_encode
#define SYMM_F16_QUIET  SYMM_KEEP
#define SYMM_F16_KERNEL SYMM_KERNEL /* the conversion takes nearly all the time */

static SYMM_INLINE vf32x2 f16_decode(vraw raw)
{
    vf32x2 out = {narrow_decode((vu32)raw & 0xffffu, NARROW_F16),
                  narrow_decode((vu32)raw >> 16, NARROW_F16)};

    return out;
}

static SYMM_INLINE vraw f16_encode(vf32x2 in)
{
    return (vraw)(narrow_encode(in.a, NARROW_F16) |
                  (narrow_encode(in.b, NARROW_F16) << 16));
}
#endif

static SYMM_INLINE vf32x4 f8_decode(vraw raw, const struct narrow f)
{
    vu32 in = (vu32)raw;
    vf32x4 out = {{narrow_decode(in & 0xffu, f), narrow_decode((in >> 8) & 0xffu, f)},
                  {narrow_decode((in >> 16) & 0xffu, f), narrow_decode(in >> 24, f)}};

    return out;
}

static SYMM_INLINE vraw f8_encode(vf32x4 in, const struct narrow f)
{
    return (vraw)(narrow_encode(in.a.a, f) | (narrow_encode(in.a.b, f) << 8) |
                  (narrow_encode(in.b.a, f) << 16) | (narrow_encode(in.b.b, f) << 24));
}

/* ---- Integers in 64-bit lanes ---------------------------------------------------- */

/* `sign` = the element's sign bit for a signed type, 0 for an unsigned one. */
static SYMM_INLINE vu64 widen(vu64 in, int shift, uint64_t mask, uint64_t sign)
{
    return (((in >> shift) & mask) ^ sign) - sign;
}

static SYMM_INLINE vu64x2 int32_widen(vraw raw, uint64_t sign)
{
    vu64 in = (vu64)raw;
    vu64x2 out = {widen(in, 0, 0xffffffffu, sign), widen(in, 32, 0xffffffffu, sign)};

    return out;
}

static SYMM_INLINE vraw int32_narrow(vu64x2 in)
{
    return (vraw)((in.a & 0xffffffffu) | (in.b << 32));
}

static SYMM_INLINE vu64x4 int16_widen(vraw raw, uint64_t sign)
{
    vu64 in = (vu64)raw;
    vu64x4 out = {{widen(in, 0, 0xffffu, sign), widen(in, 16, 0xffffu, sign)},
                  {widen(in, 32, 0xffffu, sign), widen(in, 48, 0xffffu, sign)}};

    return out;
}

static SYMM_INLINE vraw int16_narrow(vu64x4 in)
{
    return (vraw)((in.a.a & 0xffffu) | ((in.a.b & 0xffffu) << 16) |
                  ((in.b.a & 0xffffu) << 32) | (in.b.b << 48));
}

static SYMM_INLINE vu64x8 int8_widen(vraw raw, uint64_t sign)
{
    vu64 in = (vu64)raw;
    vu64x8 out = {{widen(in, 0, 0xffu, sign), widen(in, 8, 0xffu, sign)},
                  {widen(in, 16, 0xffu, sign), widen(in, 24, 0xffu, sign)},
                  {widen(in, 32, 0xffu, sign), widen(in, 40, 0xffu, sign)},
                  {widen(in, 48, 0xffu, sign), widen(in, 56, 0xffu, sign)}};

    return out;
}

static SYMM_INLINE vraw int8_narrow(vu64x8 in)
{
    vu64 low = (in.a.a & 0xffu) | ((in.a.b & 0xffu) << 8) | ((in.b.a & 0xffu) << 16) |
               ((in.b.b & 0xffu) << 24);
    vu64 high = (in.c.a & 0xffu) | ((in.c.b & 0xffu) << 8) | ((in.d.a & 0xffu) << 16) |
                (in.d.b << 24);

    return (vraw)(low | (high << 32));
}

#endif
