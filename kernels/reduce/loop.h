/* SPDX-License-Identifier: MIT */
/*
 * loop.h - the loops around the lane code of a reduction kernel.
 *
 * SYMM_KERNEL(name, size, n, acc, load, op, quiet, done) defines the symm_reduce_fn `name`:
 * elements of `size` bytes; acc load(vraw), acc op(acc, acc), vraw done(acc, nsrc); `n`
 * (1, 2 or 4) vectors at a time, as many as the accumulators leave registers for.
 * quiet(acc *, acc *, acc *, acc *) replaces NaNs before done; SYMM_KEEP leaves them.
 * Guarantees: in order ((src0 op src1) op src2) ...; within a block every load comes
 * before every store; nothing after the arrays is touched.
 */
#ifndef SYMM_KERNELS_REDUCE_LOOP_H
#define SYMM_KERNELS_REDUCE_LOOP_H

#include "kernels/reduce/vec.h"

#define SYMM_NOINLINE __attribute__((noinline))

/* The `quiet` of integers, and of what has no NaN or loses it in `done`. */
#define SYMM_KEEP(a, b, c, d) ((void)0)

/*
 * One block of `n` vectors (1, 2 or 4) at byte `at` of every array. Where `ndst` and
 * `nsrc` are constants (SYMM_RANGE_OF), no loop is left.
 */
#define SYMM_BLOCK(name, acc, load, op, quiet, done)                                   \
    static SYMM_INLINE void name##_block(void *const *dst, const int ndst,             \
                                         const void *const *src, const int nsrc,       \
                                         size_t at, const int n)                       \
    {                                                                                  \
        const char *from = (const char *)src[0] + at;                                  \
        acc a0 = load(raw_load(from)), a1 = a0, a2 = a0, a3 = a0;                      \
        vraw r0, r1, r2, r3;                                                           \
                                                                                       \
        if (n > 1)                                                                     \
            a1 = load(raw_load(from + SYMM_VB));                                       \
        if (n > 2) {                                                                   \
            a2 = load(raw_load(from + 2 * SYMM_VB));                                   \
            a3 = load(raw_load(from + 3 * SYMM_VB));                                   \
        }                                                                              \
        for (int s = 1; s < nsrc; s++) {                                               \
            from = (const char *)src[s] + at;                                          \
            a0 = op(a0, load(raw_load(from)));                                         \
            if (n > 1)                                                                 \
                a1 = op(a1, load(raw_load(from + SYMM_VB)));                           \
            if (n > 2) {                                                               \
                a2 = op(a2, load(raw_load(from + 2 * SYMM_VB)));                       \
                a3 = op(a3, load(raw_load(from + 3 * SYMM_VB)));                       \
            }                                                                          \
        }                                                                              \
        quiet(&a0, n > 1 ? &a1 : &a0, n > 2 ? &a2 : &a0, n > 2 ? &a3 : &a0);           \
        r0 = done(a0, nsrc);                                                           \
        r1 = n > 1 ? done(a1, nsrc) : r0;                                              \
        r2 = n > 2 ? done(a2, nsrc) : r0;                                              \
        r3 = n > 2 ? done(a3, nsrc) : r0;                                              \
        for (int d = 0; d < ndst; d++) {                                               \
            char *to = (char *)dst[d] + at;                                            \
                                                                                       \
            raw_store(to, r0);                                                         \
            if (n > 1)                                                                 \
                raw_store(to + SYMM_VB, r1);                                           \
            if (n > 2) {                                                               \
                raw_store(to + 2 * SYMM_VB, r2);                                       \
                raw_store(to + 3 * SYMM_VB, r3);                                       \
            }                                                                          \
        }                                                                              \
    }

/* The last `rest` bytes, 0 < rest < SYMM_VB. */
#define SYMM_REST(name, acc, load, op, quiet, done)                                    \
    static SYMM_INLINE void name##_rest(void *const *dst, const int ndst,              \
                                        const void *const *src, const int nsrc,        \
                                        size_t at, size_t rest)                        \
    {                                                                                  \
        acc a = load(SYMM_PART_LOAD((const char *)src[0] + at, rest));                 \
        vraw r;                                                                        \
                                                                                       \
        for (int s = 1; s < nsrc; s++)                                                 \
            a = op(a, load(SYMM_PART_LOAD((const char *)src[s] + at, rest)));          \
        quiet(&a, &a, &a, &a);                                                         \
        r = done(a, nsrc);                                                             \
        for (int d = 0; d < ndst; d++)                                                 \
            SYMM_PART_STORE((char *)dst[d] + at, rest, r);                             \
    }

/* `n` vectors at a time: as many as the accumulators leave registers for. */
#define SYMM_RANGE(name, n)                                                            \
    static SYMM_INLINE void name##_range(void *const *dst, const int ndst,             \
                                         const void *const *src, const int nsrc,       \
                                         size_t bytes)                                 \
    {                                                                                  \
        size_t at = 0;                                                                 \
                                                                                       \
        for (; bytes - at >= (n)*SYMM_VB; at += (n)*SYMM_VB)                           \
            name##_block(dst, ndst, src, nsrc, at, n);                                 \
        for (; (n) > 1 && bytes - at >= SYMM_VB; at += SYMM_VB)                        \
            name##_block(dst, ndst, src, nsrc, at, 1);                                 \
        if (at < bytes)                                                                \
            name##_rest(dst, ndst, src, nsrc, at, bytes - at);                         \
    }

#define SYMM_KERNEL(name, size, n, acc, load, op, quiet, done)                         \
    SYMM_BLOCK(name, acc, load, op, quiet, done)                                       \
    SYMM_REST(name, acc, load, op, quiet, done)                                        \
    SYMM_RANGE(name, n)                                                                \
    static void name(void *const *dst, int ndst, const void *const *src, int nsrc,     \
                     size_t count)                                                     \
    {                                                                                  \
        name##_range(dst, ndst, src, nsrc, count *(size));                             \
    }

/* A loop of its own for nsrc = m, ndst = 1 and 2. */
#define SYMM_RANGE_OF(name, m)                                                         \
    static SYMM_NOINLINE void name##_##m##_to_1(void *const *dst,                      \
                                                const void *const *src, size_t bytes)  \
    {                                                                                  \
        void *const out[1] = {dst[0]};                                                 \
        const void *in[m];                                                             \
                                                                                       \
        memcpy(in, src, sizeof(in));                                                   \
        name##_range(out, 1, in, m, bytes);                                            \
    }                                                                                  \
    static SYMM_NOINLINE void name##_##m##_to_2(void *const *dst,                      \
                                                const void *const *src, size_t bytes)  \
    {                                                                                  \
        void *const out[2] = {dst[0], dst[1]};                                         \
        const void *in[m];                                                             \
                                                                                       \
        memcpy(in, src, sizeof(in));                                                   \
        name##_range(out, 2, in, m, bytes);                                            \
    }

/*
 * The same, fast for 2, 4 and 8 srcs to 1 or 2 dsts: the addresses stay in registers.
 * The loops are functions, so that none pays on entry for the registers that another
 * needs.
 */
#define SYMM_KERNEL_FAST(name, size, n, acc, load, op, quiet, done)                    \
    SYMM_BLOCK(name, acc, load, op, quiet, done)                                       \
    SYMM_REST(name, acc, load, op, quiet, done)                                        \
    SYMM_RANGE(name, n)                                                                \
    SYMM_RANGE_OF(name, 2)                                                             \
    SYMM_RANGE_OF(name, 4)                                                             \
    SYMM_RANGE_OF(name, 8)                                                             \
    static SYMM_NOINLINE void name##_any(                                              \
        void *const *dst, int ndst, const void *const *src, int nsrc, size_t bytes)    \
    {                                                                                  \
        name##_range(dst, ndst, src, nsrc, bytes);                                     \
    }                                                                                  \
    static void name(void *const *dst, int ndst, const void *const *src, int nsrc,     \
                     size_t count)                                                     \
    {                                                                                  \
        const size_t bytes = count * (size);                                           \
                                                                                       \
        if (nsrc == 2 && ndst == 1)                                                    \
            name##_2_to_1(dst, src, bytes);                                            \
        else if (nsrc == 2 && ndst == 2)                                               \
            name##_2_to_2(dst, src, bytes);                                            \
        else if (nsrc == 4 && ndst == 1)                                               \
            name##_4_to_1(dst, src, bytes);                                            \
        else if (nsrc == 4 && ndst == 2)                                               \
            name##_4_to_2(dst, src, bytes);                                            \
        else if (nsrc == 8 && ndst == 1)                                               \
            name##_8_to_1(dst, src, bytes);                                            \
        else if (nsrc == 8 && ndst == 2)                                               \
            name##_8_to_2(dst, src, bytes);                                            \
        else                                                                           \
            name##_any(dst, ndst, src, nsrc, bytes);                                   \
    }

#endif
