/* SPDX-License-Identifier: MIT */
/*
 * port_numbers.cuh - the part of port.cuh for numbers: bits, conversions, arithmetic of one rounding.
 *
 * Conversions and sums round to nearest, ties to even, as the instructions do; the versions for
 * host threads give the same bits, but for symm_port_rsqrt.
 */
#ifndef SYMM_KERNELS_CUDA_PORT_NUMBERS_CUH
#define SYMM_KERNELS_CUDA_PORT_NUMBERS_CUH

#include "kernels/cuda/port.cuh"

#if defined(SYMM_SIMT)

SYMM_DEVICE float symm_port_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

SYMM_DEVICE uint32_t symm_port_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

SYMM_DEVICE double symm_port_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

SYMM_DEVICE uint64_t symm_port_double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* A float16 in the low half, exactly. */
SYMM_DEVICE float symm_port_from_half(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;

    if (magnitude >= 0x7c00u)
        return symm_port_float(sign | 0x7f800000u | magnitude << 13);
    if (magnitude >= 0x0400u)
        return symm_port_float(sign | ((magnitude << 13) + (112u << 23)));
    return symm_port_float(sign | symm_port_bits((float)magnitude / 16777216.0f));
}

/* To nearest, ties to even; 65520 and more: infinity. */
SYMM_DEVICE uint32_t symm_port_to_half(float value)
{
    uint32_t bits = symm_port_bits(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return 0x7fffu;
    if (magnitude >= 0x477ff000u)
        return sign | 0x7c00u;
    if (magnitude >= 0x38800000u) /* 2^-14 */
        return sign |
               (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    /* 0.5 has an ulp of 2^-24, the smallest step */
    return sign |
           (symm_port_bits(symm_port_float(magnitude) + 0.5f) - symm_port_bits(0.5f));
}

/* Two values to two bfloat16, `low` into the low half; to nearest, ties to even. */
SYMM_DEVICE uint32_t symm_port_to_bfloat(float low, float high)
{
    uint32_t a = symm_port_bits(low), b = symm_port_bits(high);

    a = low != low ? 0x7fffu : (a + 0x7fffu + (a >> 16 & 1u)) >> 16;
    b = high != high ? 0x7fffu : (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
    return a | b << 16;
}

/* Two bfloat16, two float16: sums of halves of words, rounded once. */
SYMM_DEVICE uint32_t symm_port_add_bfloat(uint32_t a, uint32_t b)
{
    return symm_port_to_bfloat(symm_port_float(a << 16) + symm_port_float(b << 16),
                               symm_port_float(a & 0xffff0000u) +
                                   symm_port_float(b & 0xffff0000u));
}

SYMM_DEVICE uint32_t symm_port_add_half(uint32_t a, uint32_t b)
{
    return symm_port_to_half(symm_port_from_half(a & 0xffffu) +
                             symm_port_from_half(b & 0xffffu)) |
           symm_port_to_half(symm_port_from_half(a >> 16) +
                             symm_port_from_half(b >> 16))
               << 16;
}

/* a x b + c, rounded once. */
SYMM_DEVICE float symm_port_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

/* 1 / sqrt(value), within 3 units of the last place. */
SYMM_DEVICE float symm_port_rsqrt(float value)
{
    return 1.0f / __builtin_sqrtf(value);
}

SYMM_DEVICE float symm_port_max(float a, float b)
{
    return __builtin_fmaxf(a, b);
}

/* a / b, rounded once. */
SYMM_DEVICE float symm_port_divide(float a, float b)
{
    return a / b;
}

#else

SYMM_DEVICE float symm_port_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

SYMM_DEVICE uint32_t symm_port_bits(float value)
{
    return __float_as_uint(value);
}

SYMM_DEVICE double symm_port_double(uint64_t bits)
{
    return __longlong_as_double((long long)bits);
}

SYMM_DEVICE uint64_t symm_port_double_bits(double value)
{
    return (uint64_t)__double_as_longlong(value);
}

/* A float16 in the low half, exactly. */
SYMM_DEVICE float symm_port_from_half(uint32_t half)
{
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
}

/* To nearest, ties to even; 65520 and more: infinity. */
SYMM_DEVICE uint32_t symm_port_to_half(float value)
{
    uint16_t half;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

/* Two values to two bfloat16, `low` into the low half; to nearest, ties to even. */
SYMM_DEVICE uint32_t symm_port_to_bfloat(float low, float high)
{
    uint32_t pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* Two bfloat16, two float16: sums of halves of words, rounded once. float32 has twice the digits
 * of either and two more at least, so a sum in float32 that is then rounded has the same bits. */
SYMM_DEVICE uint32_t symm_port_add_bfloat(uint32_t a, uint32_t b)
{
    uint32_t sum;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
    return sum;
}

SYMM_DEVICE uint32_t symm_port_add_half(uint32_t a, uint32_t b)
{
    uint32_t sum;

    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/* a x b + c, rounded once. */
SYMM_DEVICE float symm_port_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

/* 1 / sqrt(value), within 3 units of the last place. */
SYMM_DEVICE float symm_port_rsqrt(float value)
{
    float result;

    asm("rsqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

SYMM_DEVICE float symm_port_max(float a, float b)
{
    return fmaxf(a, b);
}

/* a / b, rounded once. */
SYMM_DEVICE float symm_port_divide(float a, float b)
{
    return __fdiv_rn(a, b);
}

#if __CUDA_ARCH__ >= 890
#define SYMM_PORT_E4M3
/* Two e4m3, `low` into the low byte; to nearest, ties to even; beyond +-448: +-448. */
SYMM_DEVICE uint32_t symm_port_to_e4m3(float low, float high)
{
    uint16_t pair;

    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

#endif

#endif
