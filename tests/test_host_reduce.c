/* SPDX-License-Identifier: MIT */
/*
 * test_host_reduce.c - the host's reduction kernels against a slow reference.
 *
 * Every dtype, op and available instruction set, over numbers of arrays, counts,
 * misalignments, special values, identical arrays, and arrays that end at the end of
 * mapped memory. All results are compared bit by bit, NaNs too.
 * ctest: no-threads
 * ctest: cost 6
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_reduce_reference.h"
#include "kernels/reduce/reduce.h"

#define MAX_SRC    16
#define MAX_DST    3
#define MAX_COUNT  4099
#define GUARD      128
#define GUARD_BYTE 0xa5

/* ---- Data ------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Zeros, smallest and largest subnormals and normals, infinity, NaNs; of both signs. */
#define SPECIALS 24
static uint64_t special(const struct format *f, unsigned which)
{
    uint64_t sign = which & 1 ? sign_bit(f) : 0;
    uint64_t one = (uint64_t)1 << f->mantissa;
    uint64_t last = f->mantissa ? largest(f) : sign_bit(f) - 1;
    const uint64_t magnitudes[SPECIALS / 2] = {
        0,
        1,
        one - 1,
        one,
        one + 1,
        last - 1,
        last,
        last + 1,
        last + 2,
        sign_bit(f) - 1,
        f->mantissa ? (uint64_t)f->bias << f->mantissa : 1,
        sign_bit(f) >> 1};

    return (magnitudes[which / 2] & (sign_bit(f) - 1)) | sign;
}

/* Mostly values whose sums round but don't overflow; specials; any pattern. */
static uint64_t random_value(const struct format *f, uint64_t *state)
{
    uint64_t r = next_random(state), all = sign_bit(f) | (sign_bit(f) - 1);
    uint64_t fraction = r >> 8 & (((uint64_t)1 << f->mantissa) - 1);
    uint64_t exponent = (uint64_t)f->bias - 3 + (r >> 61);

    if (r % 32 == 0)
        return special(f, (unsigned)(r >> 8) % SPECIALS);
    if (r % 32 == 1 || f->mantissa == 0)
        return next_random(state) & all;
    return fraction | exponent << f->mantissa | (r & 32 ? sign_bit(f) : 0);
}

struct arrays {
    unsigned char *src_memory[MAX_SRC], *dst_memory[MAX_DST];
    unsigned char *in[MAX_SRC]; /* src, to fill it */
    const void *src[MAX_SRC];
    void *dst[MAX_DST];
};

#define ARRAY_BYTES ((size_t)MAX_COUNT * 8 + (size_t)2 * GUARD + 512)

static void arrays_create(struct arrays *a)
{
    memset(a, 0, sizeof(*a));
    for (int s = 0; s < MAX_SRC; s++)
        assert_non_null(a->src_memory[s] = aligned_alloc(512, ARRAY_BYTES / 512 * 512));
    for (int d = 0; d < MAX_DST; d++)
        assert_non_null(a->dst_memory[d] = aligned_alloc(512, ARRAY_BYTES / 512 * 512));
}

static void arrays_destroy(struct arrays *a)
{
    for (int s = 0; s < MAX_SRC; s++)
        free(a->src_memory[s]);
    for (int d = 0; d < MAX_DST; d++)
        free(a->dst_memory[d]);
}

/* Places the arrays: all aligned, or each off by another number of elements. */
static void arrays_place(struct arrays *a, const struct format *f, bool aligned)
{
    for (int s = 0; s < MAX_SRC; s++)
        a->src[s] = a->in[s] =
            a->src_memory[s] + GUARD + (aligned ? 0 : 1 + s) * f->size;
    for (int d = 0; d < MAX_DST; d++)
        a->dst[d] = a->dst_memory[d] + GUARD + (aligned ? 0 : 3 + 2 * d) * f->size;
}

static void arrays_clear_dst(struct arrays *a, const struct format *f, int ndst,
                             size_t count)
{
    for (int d = 0; d < ndst; d++)
        memset((unsigned char *)a->dst[d] - GUARD, GUARD_BYTE,
               count * (size_t)f->size + (size_t)2 * GUARD);
}

static void check_guards(const struct format *f, const void *dst, size_t count,
                         const char *what)
{
    const unsigned char *before = (const unsigned char *)dst - GUARD;
    const unsigned char *behind = (const unsigned char *)dst + count * (size_t)f->size;
    unsigned char guard[GUARD];

    memset(guard, GUARD_BYTE, sizeof(guard));
    if (memcmp(before, guard, GUARD) != 0)
        fail_msg("%s: bytes before dst were written", what);
    if (memcmp(behind, guard, GUARD) != 0)
        fail_msg("%s: bytes behind dst were written", what);
}

static void check_values(const struct format *f, const void *got, const void *want,
                         size_t count, const char *what)
{
    if (memcmp(got, want, count * (size_t)f->size) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        uint64_t g = get(f, got, i), w = get(f, want, i);

        if (g != w)
            fail_msg("%s: element %zu of %zu is %#llx, expected %#llx", what, i, count,
                     (unsigned long long)g, (unsigned long long)w);
    }
}

static void reference_all(const struct format *f, symm_op op, const struct arrays *a,
                          int nsrc, size_t count, void *want)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t in[MAX_SRC];

        for (int s = 0; s < nsrc; s++)
            in[s] = get(f, a->src[s], i);
        put(f, want, i, reference(f, op, in, nsrc));
    }
}

/* ---- Tests ----------------------------------------------------------------------- */

static void test_lookup(void **state)
{
    (void)state;
    assert_true(symm__isa_usable(SYMM_ISA_C));
    assert_true(symm__isa_usable(symm__isa_best()));
    for (int isa = (int)symm__isa_best() + 1; isa < SYMM_ISA_COUNT; isa++)
        assert_false(symm__isa_usable((enum symm_isa)isa));
    assert_string_equal(symm__isa_name(SYMM_ISA_C), "c");
    assert_string_equal(symm__isa_name(SYMM_ISA_AVX2), "avx2");
    assert_string_equal(symm__isa_name(SYMM_ISA_AVX512), "avx512");
    assert_null(symm__isa_name(SYMM_ISA_COUNT));
    assert_false(symm__isa_usable(SYMM_ISA_COUNT));
    for (int isa = 0; isa <= SYMM_ISA_COUNT; isa++) {
        bool usable = symm__isa_usable((enum symm_isa)isa);

        for (int dtype = -1; dtype <= DTYPES; dtype++) {
            for (int op = -1; op <= OPS; op++) {
                bool known = dtype >= 0 && dtype < DTYPES && op >= 0 && op < OPS &&
                             takes(&formats[dtype], op);
                symm_reduce_fn fn = symm__reduce_find((enum symm_isa)isa,
                                                      (symm_dtype)dtype, (symm_op)op);

                assert_int_equal(fn != NULL, usable && known);
            }
        }
    }
}

static void describe(char what[static 96], int isa, const struct format *f, int op,
                     int nsrc, int ndst)
{
    static const char *const ops[OPS] = {"sum", "avg",  "prod", "min",
                                         "max", "band", "bor",  "bxor"};

    snprintf(what, 96, "%s %s %s nsrc %d ndst %d", symm__isa_name((enum symm_isa)isa),
             f->name, ops[op], nsrc, ndst);
}

static void check_counts(struct arrays *a, const struct format *f, int dtype, int op,
                         int nsrc, const void *want)
{
    static const size_t counts[] = {0,  1,  2,  3,  7,  8,   15,   16,       17,
                                    31, 33, 63, 64, 65, 127, 1000, MAX_COUNT};
    char what[96];

    for (int isa = 0; isa < SYMM_ISA_COUNT; isa++) {
        symm_reduce_fn fn =
            symm__reduce_find((enum symm_isa)isa, (symm_dtype)dtype, (symm_op)op);

        for (int ndst = 1; fn && ndst <= MAX_DST; ndst++) {
            describe(what, isa, f, op, nsrc, ndst);
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                arrays_clear_dst(a, f, ndst, counts[c]);
                fn(a->dst, ndst, a->src, nsrc, counts[c]);
                for (int d = 0; d < ndst; d++) {
                    check_guards(f, a->dst[d], counts[c], what);
                    check_values(f, a->dst[d], want, counts[c], what);
                }
            }
        }
    }
}

static void check_matrix(bool aligned)
{
    static const int nsrcs[] = {1, 2, 3, 4, 5, 8, 16};
    static unsigned char want[MAX_COUNT * 8];
    uint64_t random = 0x9e3779b97f4a7c15u;
    struct arrays a;

    arrays_create(&a);
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        const struct format *f = &formats[dtype];

        arrays_place(&a, f, aligned);
        for (int s = 0; s < MAX_SRC; s++) {
            for (size_t i = 0; i < MAX_COUNT; i++)
                put(f, a.in[s], i, random_value(f, &random));
        }
        for (int op = 0; op < OPS && takes(f, op); op++) {
            for (size_t n = 0; n < sizeof(nsrcs) / sizeof(nsrcs[0]); n++) {
                if (aligned && nsrcs[n] % 2 != 0)
                    continue;
                reference_all(f, (symm_op)op, &a, nsrcs[n], MAX_COUNT, want);
                check_counts(&a, f, dtype, op, nsrcs[n], want);
            }
        }
    }
    arrays_destroy(&a);
}

static void test_misaligned(void **state)
{
    (void)state;
    check_matrix(false);
}

static void test_aligned(void **state)
{
    (void)state;
    check_matrix(true);
}

/* Runs one op on what lies in the arrays, on every isa, into dst[0], and checks it. */
static void check_here(struct arrays *a, int dtype, int op, int nsrc, size_t count)
{
    static unsigned char want[MAX_COUNT * 8];
    const struct format *f = &formats[dtype];
    char what[96];

    assert_true(count <= MAX_COUNT);
    reference_all(f, (symm_op)op, a, nsrc, count, want);
    for (int isa = 0; isa < SYMM_ISA_COUNT; isa++) {
        symm_reduce_fn fn =
            symm__reduce_find((enum symm_isa)isa, (symm_dtype)dtype, (symm_op)op);

        if (!fn)
            continue;
        describe(what, isa, f, op, nsrc, 1);
        arrays_clear_dst(a, f, 1, count);
        fn(a->dst, 1, a->src, nsrc, count);
        check_values(f, a->dst[0], want, count, what);
    }
}

/* Every special value with every other, both ways round. */
static void test_specials(void **state)
{
    struct arrays a;

    (void)state;
    arrays_create(&a);
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        const struct format *f = &formats[dtype];

        arrays_place(&a, f, true);
        for (unsigned i = 0; i < SPECIALS * SPECIALS; i++) {
            put(f, a.in[0], i, special(f, i % SPECIALS));
            put(f, a.in[1], i, special(f, i / SPECIALS));
            put(f, a.in[2], i, special(f, i % 7));
        }
        for (int op = 0; op < OPS && takes(f, op); op++) {
            check_here(&a, dtype, op, 2, (size_t)SPECIALS * SPECIALS);
            check_here(&a, dtype, op, 3, (size_t)SPECIALS * SPECIALS);
        }
    }
    arrays_destroy(&a);
}

/* What symm.h promises of NaN, zeros, overflow and wrapping, as constants. */
static void test_written_out(void **state)
{
    static const struct {
        symm_dtype dtype;
        symm_op op;
        uint64_t a, b, want;
    } cases[] = {
        {SYMM_FLOAT32, SYMM_MIN, 0x00000000, 0x80000000, 0x80000000},
        {SYMM_FLOAT32, SYMM_MAX, 0x80000000, 0x00000000, 0x00000000},
        {SYMM_FLOAT32, SYMM_MIN, 0x3f800000, 0x7f800001, 0x7fc00000},
        {SYMM_FLOAT32, SYMM_MAX, 0xffc00000, 0x7f800000, 0x7fc00000},
        {SYMM_FLOAT32, SYMM_SUM, 0x7f7fffff, 0x7f7fffff, 0x7f800000},
        {SYMM_FLOAT16, SYMM_SUM, 0x7bff, 0x4c00, 0x7c00}, /* 65504 + 16: a tie */
        {SYMM_FLOAT16, SYMM_SUM, 0x7bff, 0x4bff, 0x7bff},
        {SYMM_FLOAT16, SYMM_AVG, 0x7bff, 0x7bff, 0x7bff},  /* no overflow on the way */
        {SYMM_BFLOAT16, SYMM_SUM, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8: a tie, down */
        {SYMM_BFLOAT16, SYMM_SUM, 0x3f81, 0x3b80, 0x3f82}, /* a tie, up */
        {SYMM_BFLOAT16, SYMM_SUM, 0x7f80, 0xff80, 0x7fc0},
        {SYMM_FLOAT8_E4M3, SYMM_SUM, 0x7e, 0x7e, 0x7e},
        {SYMM_FLOAT8_E4M3, SYMM_PROD, 0xfe, 0x7e, 0xfe},
        {SYMM_FLOAT8_E4M3, SYMM_MIN, 0xff, 0x38, 0x7f},
        {SYMM_FLOAT8_E5M2, SYMM_SUM, 0x7c, 0x3c, 0x7b},
        {SYMM_FLOAT8_E5M2, SYMM_MIN, 0xfc, 0x3c, 0xfb},
        {SYMM_FLOAT8_E5M2, SYMM_SUM, 0x7c, 0xfc, 0x7f},
        {SYMM_INT8, SYMM_SUM, 0x7f, 0x01, 0x80},
        {SYMM_INT8, SYMM_AVG, 0x80, 0x80, 0x80},
        {SYMM_INT8, SYMM_AVG, 0xfe, 0xff, 0xff}, /* -3 / 2 = -1 */
        {SYMM_INT32, SYMM_AVG, 0x7fffffff, 0x7ffffffd, 0x7ffffffe},
        {SYMM_UINT8, SYMM_AVG, 0xff, 0xff, 0xff},
        {SYMM_INT16, SYMM_SUM, 0x7fff, 0x0001, 0x8000},
        {SYMM_INT16, SYMM_AVG, 0x8000, 0x8000, 0x8000},
        {SYMM_INT16, SYMM_AVG, 0xfffe, 0xffff, 0xffff}, /* -3 / 2 = -1 */
        {SYMM_INT16, SYMM_PROD, 0x0100, 0xff80, 0x8000},
        {SYMM_INT16, SYMM_MAX, 0x8000, 0x0001, 0x0001},
        {SYMM_UINT16, SYMM_AVG, 0xffff, 0xffff, 0xffff},
        {SYMM_UINT16, SYMM_PROD, 0xffff, 0xffff, 0x0001},
        {SYMM_UINT16, SYMM_MAX, 0x8000, 0x0001, 0x8000},
        {SYMM_INT8, SYMM_BAND, 0xfc, 0x3f, 0x3c},
        {SYMM_INT16, SYMM_BOR, 0x8001, 0x0180, 0x8181},
        {SYMM_UINT32, SYMM_BXOR, 0xffff0000, 0x0ff00ff0, 0xf00f0ff0},
        {SYMM_UINT64, SYMM_BAND, (uint64_t)3 << 62, (uint64_t)1 << 63,
         (uint64_t)1 << 63},
        {SYMM_INT64, SYMM_SUM, INT64_MAX, 1, (uint64_t)1 << 63},
        {SYMM_UINT64, SYMM_MAX, (uint64_t)1 << 63, 1, (uint64_t)1 << 63},
        {SYMM_INT64, SYMM_MAX, (uint64_t)1 << 63, 1, 1},
    };

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const struct format *f = &formats[cases[c].dtype];

        for (int isa = 0; isa < SYMM_ISA_COUNT; isa++) {
            uint64_t a = 0, b = 0, out = 0;
            void *const dst[1] = {&out};
            const void *const src[2] = {&a, &b};
            symm_reduce_fn fn =
                symm__reduce_find((enum symm_isa)isa, cases[c].dtype, cases[c].op);

            put(f, &a, 0, cases[c].a);
            put(f, &b, 0, cases[c].b);
            if (fn)
                fn(dst, 1, src, 2, 1);
            if (fn && get(f, &out, 0) != cases[c].want)
                fail_msg("case %zu, %s: %#llx", c, symm__isa_name((enum symm_isa)isa),
                         (unsigned long long)get(f, &out, 0));
        }
    }
}

/*
 * One array: every pattern of the narrow formats comes back, but for e5m2's infinity and
 * NaNs other than the one that is written.
 */
static void test_identity(void **state)
{
    static unsigned char in[65536 * 2], out[65536 * 2];
    const void *const src[1] = {in};
    void *const dst[1] = {out};
    char what[96];

    (void)state;
    for (int dtype = SYMM_FLOAT16; dtype <= SYMM_FLOAT8_E5M2; dtype++) {
        const struct format *f = &formats[dtype];
        size_t patterns = (size_t)1 << (8 * f->size);

        for (int k = 0; k < SYMM_ISA_COUNT * OPS; k++) {
            symm_reduce_fn fn = symm__reduce_find(
                (enum symm_isa)(k / OPS), (symm_dtype)dtype, (symm_op)(k % OPS));

            if (!fn)
                continue;
            describe(what, k / OPS, f, k % OPS, 1, 1);
            for (size_t i = 0; i < patterns; i++)
                put(f, in, i, i);
            memset(out, GUARD_BYTE, sizeof(out));
            fn(dst, 1, src, 1, patterns);
            if (dtype == SYMM_FLOAT8_E5M2) {
                put(f, in, 0x7c, 0x7b);
                put(f, in, 0xfc, 0xfb);
            }
            for (size_t i = 0; i < patterns; i++)
                if (is_nan_bits(f, i))
                    put(f, in, i, written_nan(f));
            check_values(f, out, in, patterns, what);
        }
    }
}

/* All 65536 pairs of float8 values. */
static void test_float8_pairs(void **state)
{
    struct arrays a;

    (void)state;
    arrays_create(&a);
    for (int dtype = SYMM_FLOAT8_E4M3; dtype <= SYMM_FLOAT8_E5M2; dtype++) {
        const struct format *f = &formats[dtype];

        arrays_place(&a, f, true);
        for (unsigned part = 0; part < 16; part++) {
            for (unsigned i = 0; i < 4096; i++) {
                put(f, a.in[0], i, 16 * part + i / 256);
                put(f, a.in[1], i, i % 256);
            }
            for (int op = 0; op < OPS && takes(f, op); op++)
                check_here(&a, dtype, op, 2, 4096);
        }
    }
    arrays_destroy(&a);
}

/*
 * Every 16-bit pattern beside values that make a NaN or hide one, on every rank of 2, 4, 8
 * (loops of their own) and 3. Wide formats: the same patterns as their upper and lower bits.
 */
static void test_nan_patterns(void **state)
{
    static const int nsrcs[] = {2, 3, 4, 8};
    struct arrays a;

    (void)state;
    arrays_create(&a);
    for (int dtype = 0; dtype <= SYMM_BFLOAT16; dtype++) {
        const struct format *f = &formats[dtype];
        const uint64_t inf = largest(f) + 1, one = (uint64_t)f->bias << f->mantissa;
        const uint64_t partners[] = {
            one, inf, inf | sign_bit(f), inf + 1, sign_bit(f) | (2 * sign_bit(f) - 1),
            0};
        const int up = 8 * f->size - 16;

        arrays_place(&a, f, false);
        for (unsigned k = 0; k < 16 * 6; k++) {
            const int nsrc = nsrcs[k % 4], where = (int)(k / 4) % nsrc;

            for (unsigned i = 0; i < 4096; i++) {
                const uint64_t bits = k / 6 * 4096 + i;

                for (int s = 0; s < nsrc; s++)
                    put(f, a.in[s], i, partners[(k + (unsigned)s / 2) % 6]);
                put(f, a.in[where], i, bits << up | (i & 1 ? bits & 0xff : 0));
            }
            for (int op = 0; op < OPS && takes(f, op); op++)
                check_here(&a, dtype, op, nsrc, 4096);
        }
    }
    arrays_destroy(&a);
}

/* Half the distance to the next value, as a value of the format (or zero). */
static uint64_t half_step(const struct format *f, uint64_t bits)
{
    uint64_t magnitude = bits & (sign_bit(f) - 1);

    if (magnitude >= largest(f))
        magnitude = largest(f) - 1;
    return encode(f, (decode(f, magnitude + 1) - decode(f, magnitude)) / 2);
}

/* Every 16-bit value plus or minus half a step, and a little more or less than that. */
static void test_rounding(void **state)
{
    struct arrays a;

    (void)state;
    arrays_create(&a);
    for (int dtype = SYMM_FLOAT16; dtype <= SYMM_BFLOAT16; dtype++) {
        const struct format *f = &formats[dtype];

        arrays_place(&a, f, true);
        for (unsigned k = 0; k < 3 * 32; k++) {
            for (unsigned i = 0; i < 2048; i++) {
                uint64_t value = k / 3 * 2048 + i, half = half_step(f, value);
                double more = decode(f, half) / 16 * ((double)(k % 3) - 1);

                put(f, a.in[0], i, value);
                put(f, a.in[1], i, half | (i & 2 ? sign_bit(f) : 0));
                put(f, a.in[2], i, encode(f, more));
            }
            check_here(&a, dtype, SYMM_SUM, 3, 2048);
            check_here(&a, dtype, SYMM_PROD, 2, 2048);
            check_here(&a, dtype, SYMM_AVG, 3, 2048);
        }
    }
    arrays_destroy(&a);
}

/* Each dst may be one of the srcs. */
static void check_in_place(struct arrays *a, int dtype, int op, int nsrc, int ndst)
{
    static unsigned char want[1003 * 8], kept[MAX_SRC][1003 * 8];
    const struct format *f = &formats[dtype];
    const size_t count = 1003, bytes = count * (size_t)f->size;
    char what[96];

    reference_all(f, (symm_op)op, a, nsrc, count, want);
    for (int s = 0; s < nsrc; s++)
        memcpy(kept[s], a->src[s], bytes);
    for (int isa = 0; isa < SYMM_ISA_COUNT; isa++) {
        symm_reduce_fn fn =
            symm__reduce_find((enum symm_isa)isa, (symm_dtype)dtype, (symm_op)op);
        void *dst[2] = {a->in[nsrc - 1], a->in[0]};

        if (!fn)
            continue;
        describe(what, isa, f, op, nsrc, ndst);
        fn(dst, ndst, a->src, nsrc, count);
        for (int d = 0; d < ndst; d++)
            check_values(f, dst[d], want, count, what);
        for (int s = 0; s < nsrc; s++) {
            if (a->in[s] != dst[0] && a->in[s] != dst[ndst - 1])
                assert_memory_equal(a->src[s], kept[s], bytes);
            memcpy(a->in[s], kept[s], bytes);
        }
    }
}

static void test_in_place(void **state)
{
    static const int nsrcs[] = {2, 3, 4, 8};
    uint64_t random = 0x243f6a8885a308d3u;
    struct arrays a;

    (void)state;
    arrays_create(&a);
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        const struct format *f = &formats[dtype];

        arrays_place(&a, f, false);
        for (int s = 0; s < MAX_SRC; s++) {
            for (size_t i = 0; i < 1003; i++)
                put(f, a.in[s], i, random_value(f, &random));
        }
        for (int op = 0; op < OPS && takes(f, op); op++) {
            for (size_t n = 0; n < sizeof(nsrcs) / sizeof(nsrcs[0]); n++) {
                check_in_place(&a, dtype, op, nsrcs[n], 1);
                check_in_place(&a, dtype, op, nsrcs[n], 2);
            }
        }
    }
    arrays_destroy(&a);
}

/* Arrays that end at the last mapped byte, then arrays that begin at the first one. */
static void test_page_ends(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, 9 * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *pages[4];

    (void)state;
    assert_ptr_not_equal(map, MAP_FAILED);
    for (int k = 0; k < 9; k++) {
        if (k % 2 == 0)
            assert_int_equal(mprotect(map + (size_t)k * page, page, PROT_NONE), 0);
        else
            pages[k / 2] = map + (size_t)k * page;
    }
    memset(pages[0], 1, page);
    memset(pages[1], 1, page);
    for (int k = 0; k < SYMM_ISA_COUNT * DTYPES; k++) {
        size_t size = (size_t)formats[k / SYMM_ISA_COUNT].size;
        symm_reduce_fn fn =
            symm__reduce_find((enum symm_isa)(k % SYMM_ISA_COUNT),
                              (symm_dtype)(k / SYMM_ISA_COUNT), SYMM_MAX);

        for (size_t count = 0; fn && count * size <= 300; count++) {
            for (int end = 0; end <= 1; end++) {
                size_t at = end ? page - count * size : 0;
                const void *const src[2] = {pages[0] + at, pages[1] + at};
                void *const dst[2] = {pages[2] + at, pages[3] + at};

                memset(pages[2], 0, page);
                memset(pages[3], 0, page);
                fn(dst, 2, src, 2, count);
                assert_memory_equal(dst[0], src[0], count * size);
                assert_memory_equal(dst[1], src[0], count * size);
            }
        }
    }
    assert_int_equal(munmap(map, 9 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),       cmocka_unit_test(test_written_out),
        cmocka_unit_test(test_specials),     cmocka_unit_test(test_identity),
        cmocka_unit_test(test_float8_pairs), cmocka_unit_test(test_nan_patterns),
        cmocka_unit_test(test_rounding),     cmocka_unit_test(test_misaligned),
        cmocka_unit_test(test_aligned),      cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_page_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
