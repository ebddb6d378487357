/* SPDX-License-Identifier: MIT */
/*
 * avx2.c - the reduction kernels for x86-64 with AVX2, FMA and F16C.
 *
 * Compiled with -mavx2 -mfma -mf16c; called only after symm__isa_usable said yes. Empty
 * on other processors. float16 is converted by the processor (to nearest, ties to even,
 * whatever MXCSR says), which keeps a NaN's sign and upper payload: they are cleared here.
 */
#include "kernels/reduce/tables.h"

#if SYMM_REDUCE_X86

#if !defined(__AVX2__) || !defined(__F16C__)
#error "avx2.c must be compiled with -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

#define SYMM_VB           32
#define SYMM_REDUCE_TABLE symm__reduce_table_avx2
#define SYMM_F16_DECODE   f16_decode
#define SYMM_F16_ENCODE   f16_encode
#define SYMM_F16_QUIET    f16_quiet
#define SYMM_F16_KERNEL   SYMM_KERNEL_FAST
#define SYMM_SOME_NAN     some_nan
#define SYMM_SOME_NAN64   some_nan64

/* One compare asks two vectors. */
static inline __attribute__((always_inline)) bool some_nan(__m256 a, __m256 b, __m256 c,
                                                           __m256 d)
{
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q),
                                           _mm256_cmp_ps(c, d, _CMP_UNORD_Q))) != 0;
}

static inline __attribute__((always_inline)) bool some_nan64(__m256d a, __m256d b,
                                                             __m256d c, __m256d d)
{
    return _mm256_movemask_pd(_mm256_or_pd(_mm256_cmp_pd(a, b, _CMP_UNORD_Q),
                                           _mm256_cmp_pd(c, d, _CMP_UNORD_Q))) != 0;
}

#include "kernels/reduce/vec.h"

static SYMM_INLINE vf32x2 f16_decode(vraw raw)
{
    __m256i halves = (__m256i)raw;
    vf32x2 out = {(vf32)_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                  (vf32)_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};

    return out;
}

static SYMM_INLINE vraw f16_encode(vf32x2 in)
{
    __m128i low = _mm256_cvtps_ph((__m256)in.a, _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph((__m256)in.b, _MM_FROUND_TO_NEAREST_INT);

    return (vraw)_mm256_set_m128i(high, low);
}

#include "kernels/reduce/body.h"

#else
/* ISO C wants a declaration in every file. */
typedef int symm__reduce_avx2_is_empty;
#endif
