/* SPDX-License-Identifier: MIT */
/*
 * avx512.c - the reduction kernels for x86-64 with AVX-512 F, BW, VL and DQ.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c; called only
 * after symm__isa_usable said yes. Empty on other processors. The last, partial vector
 * is loaded and stored under a mask: bytes after the arrays are neither read nor
 * written.
 */
#include "kernels/reduce/tables.h"

#if SYMM_REDUCE_X86

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) ||       \
    !defined(__AVX512DQ__)
#error                                                                                 \
    "avx512.c must be compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include <immintrin.h>

#define SYMM_VB           64
#define SYMM_REDUCE_TABLE symm__reduce_table_avx512
#define SYMM_F16_DECODE   f16_decode
#define SYMM_F16_ENCODE   f16_encode
#define SYMM_F16_QUIET    f16_quiet
#define SYMM_F16_KERNEL   SYMM_KERNEL_FAST
#define SYMM_PART_LOAD    part_load
#define SYMM_PART_STORE   part_store

/* In mask registers: from masks as vectors gcc 12 makes two compares, four moves. */
#define SYMM_PICK_LESS(a, b, yes, no)                                                  \
    ((vu32)_mm512_mask_mov_epi32((__m512i)(no),                                        \
                                 _mm512_cmplt_epi32_mask((__m512i)(a), (__m512i)(b)),  \
                                 (__m512i)(yes)))
#define SYMM_PICK_NAN(value, yes, no)                                                  \
    ((vu32)_mm512_mask_mov_epi32(                                                      \
        (__m512i)(no),                                                                 \
        _mm512_cmp_ps_mask((__m512)(value), (__m512)(value), _CMP_UNORD_Q),            \
        (__m512i)(yes)))
/* One compare asks two vectors. */
#define SYMM_SOME_NAN(a, b, c, d)                                                      \
    (!_mm512_kortestz(_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_UNORD_Q),      \
                      _mm512_cmp_ps_mask((__m512)(c), (__m512)(d), _CMP_UNORD_Q)))
#define SYMM_SOME_NAN64(a, b, c, d)                                                    \
    (!_kortestz_mask8_u8(                                                              \
        _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q),                  \
        _mm512_cmp_pd_mask((__m512d)(c), (__m512d)(d), _CMP_UNORD_Q)))

#include "kernels/reduce/vec.h"

static SYMM_INLINE vf32x2 f16_decode(vraw raw)
{
    __m512i halves = (__m512i)raw;
    vf32x2 out = {(vf32)_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                  (vf32)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};

    return out;
}

/* Without optimisation gcc 12's intrinsic is a macro with a careless (__mmask16)-1. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
static SYMM_INLINE vraw f16_encode(vf32x2 in)
{
    __m256i low = _mm512_cvtps_ph((__m512)in.a, _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph((__m512)in.b, _MM_FROUND_TO_NEAREST_INT);

    return (vraw)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
#pragma GCC diagnostic pop

static SYMM_INLINE vraw part_load(const char *from, size_t bytes)
{
    return (vraw)_mm512_maskz_loadu_epi8(((__mmask64)1 << bytes) - 1, from);
}

static SYMM_INLINE void part_store(char *to, size_t bytes, vraw raw)
{
    _mm512_mask_storeu_epi8(to, ((__mmask64)1 << bytes) - 1, (__m512i)raw);
}

#include "kernels/reduce/body.h"

#else
/* ISO C wants a declaration in every file. */
typedef int symm__reduce_avx512_is_empty;
#endif
