/* SPDX-License-Identifier: MIT */
/*
 * test_tool_data.c - symm-perf's own reference: encodings against bit patterns computed by
 * hand, reductions against the rules of symm.h, patterns against themselves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "perf/data.c"

struct encoding {
    symm_dtype dtype;
    double value;
    uint64_t bits;
};

static const struct encoding encodings[] = {
    {SYMM_FLOAT8_E4M3, 1, 0x38},
    {SYMM_FLOAT8_E4M3, -7, 0xce},
    {SYMM_FLOAT8_E4M3, 17, 0x58},
    {SYMM_FLOAT8_E4M3, 19, 0x5a}, /* ties to even */
    {SYMM_FLOAT8_E4M3, 448, 0x7e},
    {SYMM_FLOAT8_E4M3, 1000, 0x7e},
    {SYMM_FLOAT8_E4M3, -1e30, 0xfe},
    {SYMM_FLOAT8_E4M3, 0x1p-9, 0x01},
    {SYMM_FLOAT8_E4M3, 0x1p-10, 0x00},
    {SYMM_FLOAT8_E4M3, 0x1.8p-10, 0x01},
    {SYMM_FLOAT8_E4M3, 0x1.ep-7, 0x08},
    {SYMM_FLOAT8_E4M3, (double)INFINITY, 0x7e},
    {SYMM_FLOAT8_E5M2, 1, 0x3c},
    {SYMM_FLOAT8_E5M2, 9, 0x48},
    {SYMM_FLOAT8_E5M2, 11, 0x4a},
    {SYMM_FLOAT8_E5M2, 57344, 0x7b},
    {SYMM_FLOAT8_E5M2, 1e6, 0x7b},
    {SYMM_FLOAT8_E5M2, 0x1p-16, 0x01},
    {SYMM_FLOAT16, 1, 0x3c00},
    {SYMM_FLOAT16, 65504, 0x7bff},
    {SYMM_FLOAT16, 65519, 0x7bff},
    {SYMM_FLOAT16, 65520, 0x7c00},
    {SYMM_FLOAT16, -2049, 0xe800},
    {SYMM_FLOAT16, 0x1p-24, 0x0001},
    {SYMM_BFLOAT16, 1, 0x3f80},
    {SYMM_BFLOAT16, 257, 0x4380},
    {SYMM_BFLOAT16, 259, 0x4382},
    {SYMM_BFLOAT16, -0.0, 0x8000},
    {SYMM_FLOAT32, 1.5, 0x3fc00000},
    {SYMM_FLOAT64, -2, 0xc000000000000000},
    {SYMM_INT8, -3, 0xfd},
    {SYMM_UINT32, 7, 7},
    {SYMM_INT64, -1, UINT64_MAX},
    {SYMM_INT16, -3, 0xfffd},
    {SYMM_UINT16, 65535, 0xffff},
};

static void test_encodings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const struct encoding *e = &encodings[i];
        uint64_t bits = 0;
        perf_encode(e->dtype, e->value, &bits);
        if (bits != e->bits)
            print_error("encodings[%zu]: %g is %#llx\n", i, e->value,
                        (unsigned long long)bits);
        assert_int_equal(bits, e->bits);
    }
}

static void test_round_trip(void **state)
{
    static const symm_dtype narrow[] = {SYMM_FLOAT16, SYMM_BFLOAT16, SYMM_FLOAT8_E4M3,
                                        SYMM_FLOAT8_E5M2};

    (void)state;
    for (size_t d = 0; d < sizeof narrow / sizeof *narrow; d++) {
        uint32_t codes = symm_dtype_size(narrow[d]) == 1 ? 256 : 65536;
        for (uint64_t code = 0; code < codes; code++) {
            uint64_t back = 0;
            double value = perf_decode(narrow[d], &code);
            if (isnan(value) || isinf(value))
                continue;
            perf_encode(narrow[d], value, &back);
            assert_int_equal(back, code);
        }
    }
}

static double reduced_over(const int *hosts, symm_dtype dtype, symm_op op, double a,
                           double b, double c)
{
    unsigned char in[3][8], out[8];
    const void *const sources[3] = {in[0], in[1], in[2]};

    perf_encode(dtype, a, in[0]);
    perf_encode(dtype, b, in[1]);
    perf_encode(dtype, c, in[2]);
    perf_reduce(dtype, op, sources, hosts, 3, 1, out);
    return perf_decode(dtype, out);
}

static double reduced(symm_dtype dtype, symm_op op, double a, double b, double c)
{
    return reduced_over(NULL, dtype, op, a, b, c);
}

static void expect(double found, double wanted)
{
    if (!(found == wanted))
        fail_msg("found %g instead of %g", found, wanted);
}

static void test_reductions(void **state)
{
    (void)state;
    expect(reduced(SYMM_INT8, SYMM_SUM, 100, 100, 100), 44);  /* wraps */
    expect(reduced(SYMM_INT8, SYMM_AVG, 100, 100, 100), 100); /* does not */
    expect(reduced(SYMM_INT8, SYMM_PROD, -3, 50, 2), -44);
    expect(reduced(SYMM_INT32, SYMM_AVG, -3, -3, -2), -2); /* towards zero */
    expect(reduced(SYMM_UINT8, SYMM_AVG, 255, 255, 254), 254);
    expect(reduced(SYMM_INT16, SYMM_SUM, 20000, 20000, 1), -25535);
    expect(reduced(SYMM_INT16, SYMM_AVG, -32768, -32768, -32767), -32767);
    expect(reduced(SYMM_UINT16, SYMM_AVG, 65535, 65535, 65534), 65534);
    expect(reduced(SYMM_UINT16, SYMM_MAX, 4, 65535, 1), 65535);
    expect(reduced(SYMM_INT32, SYMM_MIN, 4, -5, 1), -5);
    expect(reduced(SYMM_INT16, SYMM_BAND, -2, 1023, 7), 6);
    expect(reduced(SYMM_UINT8, SYMM_BOR, 1, 2, 128), 131);
    expect(reduced(SYMM_INT64, SYMM_BXOR, -1, 5, 4), -2);
    assert_false(perf_takes(SYMM_BFLOAT16, SYMM_BXOR));
    assert_true(perf_takes(SYMM_FLOAT64, SYMM_MAX));
    expect(reduced(SYMM_UINT32, SYMM_MAX, 4, 5, 1), 5);
    expect(reduced(SYMM_FLOAT32, SYMM_SUM, 0x1p24, 1, 1), 0x1p24); /* one by one */
    expect(reduced(SYMM_FLOAT32, SYMM_SUM, 1, 1, 0x1p24), 0x1p24 + 2);
    expect(reduced(SYMM_BFLOAT16, SYMM_SUM, 256, 1, 1), 258); /* rounded once */
    expect(reduced(SYMM_FLOAT8_E4M3, SYMM_SUM, 16, 1, 1), 18);
    expect(reduced(SYMM_FLOAT8_E4M3, SYMM_PROD, 16, 16, 16), 448);
    expect(reduced(SYMM_FLOAT16, SYMM_AVG, 1, 2, 6), 3);
    expect(reduced(SYMM_FLOAT64, SYMM_MAX, -1, -2, -3), -1);
    assert_true(isnan(reduced(SYMM_FLOAT32, SYMM_MIN, 1, (double)NAN, 0)));
}

/* Each host's sources first, each rounded to the dtype. */
static void test_hosts(void **state)
{
    static const int ends[] = {0, 1, 0}, pair[] = {4, 4, 9}, one[] = {3, 3, 3};
    static const int blocks[] = {0, 0, 2, 2}, turns[] = {0, 1, 0, 1}, few[] = {0, 0, 2};
    const symm_dtype e5m2 = SYMM_FLOAT8_E5M2, single = SYMM_FLOAT32;

    (void)state;
    expect(reduced(e5m2, SYMM_SUM, 8, 1, 1), 10);
    expect(reduced_over(one, e5m2, SYMM_SUM, 8, 1, 1), 10);
    expect(reduced_over(pair, e5m2, SYMM_SUM, 8, 1, 1), 8); /* 9 is 8, twice */
    expect(reduced_over(ends, e5m2, SYMM_SUM, 8, 1, 3), 12);
    expect(reduced_over(ends, single, SYMM_SUM, 0x1p24, 1, 1), 0x1p24);
    expect(reduced_over(ends, single, SYMM_SUM, 1, 0x1p24, 1), 0x1p24 + 2);
    expect(reduced_over(pair, single, SYMM_AVG, 1, 3, 4), 3); /* of 2 and 4 */
    expect(reduced_over(pair, SYMM_INT32, SYMM_AVG, 1, 2, 7), 3);
    expect(reduced_over(ends, SYMM_FLOAT8_E4M3, SYMM_PROD, 16, 16, 16), 448);
    expect(reduced_over(ends, SYMM_FLOAT64, SYMM_MIN, 3, 1, 2), 1);
    assert_true(isnan(reduced_over(ends, single, SYMM_MAX, 1, (double)NAN, 0)));

    assert_null(perf_reduce_hosts(SYMM_SUM, false, NULL, 4));
    assert_ptr_equal(perf_reduce_hosts(SYMM_AVG, true, blocks, 4), blocks);
    assert_ptr_equal(perf_reduce_hosts(SYMM_AVG, false, turns, 4), turns);
    assert_null(perf_reduce_hosts(SYMM_SUM, true, turns, 4));
    assert_ptr_equal(perf_reduce_hosts(SYMM_SUM, false, few, 3), few);
    assert_null(perf_reduce_hosts(SYMM_AVG, false, few, 3));
    assert_null(perf_reduce_hosts(SYMM_SUM, true, few, 3));
}

static void test_patterns(void **state)
{
    static unsigned char memory[5000];

    (void)state;
    for (int d = 0; symm_dtype_size((symm_dtype)d) > 0; d++) {
        symm_dtype dtype = (symm_dtype)d;
        size_t element = symm_dtype_size(dtype), count = sizeof memory / 8 - 3;
        struct perf_pattern pattern, other;
        perf_pattern_make(&pattern, dtype, 7);
        perf_pattern_make(&other, dtype, 8);
        perf_pattern_fill(&pattern, 5 * element, count * element, memory);
        for (size_t i = 0; i < count; i++) {
            double value = perf_decode(dtype, memory + i * element);
            assert_true(value >= 1 && value <= 7);
        }
        assert_int_equal(
            perf_pattern_differ(&pattern, 5 * element, count * element, memory), 0);
        /* One element, a block that lies elsewhere, another seed: all are seen. */
        memory[123 * element] ^= 1;
        assert_int_equal(
            perf_pattern_differ(&pattern, 5 * element, count * element, memory), 1);
        assert_true(perf_pattern_differ(&pattern, 6 * element, count * element,
                                        memory) > count / 2);
        assert_true(perf_pattern_differ(&other, 5 * element, count * element, memory) >
                    count / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encodings),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_patterns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
