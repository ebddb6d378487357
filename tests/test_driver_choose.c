/* SPDX-License-Identifier: MIT */
/*
 * test_driver_choose.c - the choice of algorithm and kernel on the CUDA backend: pure
 * functions, without a device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "select/select.h"

static struct symm_select_query query(enum symm_kind kind, size_t bytes, int size)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_select_query q = {.kind = kind,
                                  .bytes = bytes,
                                  .cuda = true,
                                  .dtype = SYMM_FLOAT32,
                                  .op = SYMM_SUM,
                                  .size = size,
                                  .processors = 132};

    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    q.scratch = scratch[1];
    return q;
}

static enum symm_algorithm chosen(const struct symm_select_query *q)
{
    struct symm_selection answer;

    assert_int_equal(symm__choose(q, &answer), SYMM_OK);
    assert_non_null(answer.reason);
    assert_null(symm__cuda_objection(q, answer.algorithm, NULL));
    return answer.algorithm;
}

/* As symm__cuda_objection has it, of an algorithm that can do the call. */
static double delay_of(const struct symm_select_query *q, enum symm_algorithm algorithm)
{
    double delay = -1;

    assert_null(symm__cuda_objection(q, algorithm, &delay));
    return delay;
}

/* Up to the size that cuda_launch.h says, a channel's tier makes no difference. */
static void test_tiers(void **state)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];

    (void)state;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (int tier = 1; tier < SYMM_CUDA_TIERS; tier++)
        for (int size = 2; size <= SYMM_DEVICE_RANKS; size += size < 8 ? 1 : 32)
            for (int kind = 0; kind < SYMM_KIND_ALL_REDUCE_NORM; kind++)
                for (int dtype = 0; symm_dtype_size((symm_dtype)dtype) > 0; dtype++)
                    for (size_t bytes = 8; symm__cuda_tier_for(bytes, size) >= tier;
                         bytes += bytes < 512 ? 8 : 40) {
                        struct symm_select_query q =
                            query((enum symm_kind)kind, bytes, size);
                        struct symm_cuda_kernel kernel[2];
                        struct symm_cuda_shape shape[2];
                        enum symm_algorithm algorithm[2];

                        q.dtype = (symm_dtype)dtype;
                        for (int i = 0; i < 2; i++) {
                            struct symm_cuda_query ask;

                            q.scratch = scratch[i ? symm__cuda_tier_end(tier) - 1 : 0];
                            algorithm[i] = chosen(&q);
                            ask = symm__cuda_ask(&q, algorithm[i]);
                            assert_true(
                                symm__cuda_kernel_find(&ask, &kernel[i], &shape[i]));
                        }
                        assert_int_equal(algorithm[0], algorithm[1]);
                        assert_string_equal(kernel[0].name, kernel[1].name);
                        assert_int_equal(shape[0].blocks, shape[1].blocks);
                        assert_int_equal(shape[0].threads, shape[1].threads);
                    }
    assert_int_equal(symm__cuda_tier_for((size_t)3 << 10, 8), 2);
    assert_int_equal(symm__cuda_tier_for(((size_t)3 << 10) + 1, 8), 1);
    assert_int_equal(symm__cuda_tier_for((size_t)96 << 10, 2), 1);
    assert_int_equal(symm__cuda_tier_for(((size_t)96 << 10) + 1, 2), 0);
    assert_int_equal(symm__cuda_tier_for(UINT64_MAX, 8), 0);
}

static void test_choice(void **state)
{
    struct symm_select_query q;

    (void)state;
    for (int kind = 0; kind < SYMM_KIND_ALL_REDUCE_NORM; kind++)
        for (int size = 1; size <= SYMM_DEVICE_RANKS; size += size < 8 ? 1 : 32)
            for (size_t bytes = 0; bytes < (size_t)1 << 32; bytes = 3 * bytes + 4)
                for (int where = 0; where < 8; where++)
                    for (int dtype = 0; symm_dtype_size((symm_dtype)dtype) > 0;
                         dtype++) {
                        q = query((enum symm_kind)kind, bytes, size);
                        q.dtype = (symm_dtype)dtype;
                        q.in_symmetric = where & 1;
                        q.out_symmetric = where & 2;
                        q.overlap = where & 4;
                        chosen(&q);
                    }
    q = query(SYMM_KIND_ALL_REDUCE, 16, 8);
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q = query(SYMM_KIND_ALL_REDUCE, 16384, 8);
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q.dtype = SYMM_INT32; /* any pattern is a value */
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LL_PUSH);
    q = query(SYMM_KIND_ALL_REDUCE, 65536, 8);
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_TWO_SHOT_PUSH);
    q = query(SYMM_KIND_ALL_REDUCE, 65536, 2);
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q = query(SYMM_KIND_ALL_REDUCE, (size_t)64 << 20, 8);
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_TWO_SHOT_PUSH);
    q.in_symmetric = true;
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_TWO_SHOT_PULL);
    q.out_symmetric = q.overlap = true;
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_TWO_SHOT_INPLACE);
    q = query(SYMM_KIND_REDUCE_SCATTER, (size_t)8 << 20, 2);
    q.in_symmetric = q.out_symmetric = true;
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q.overlap = true;
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q.dtype = SYMM_INT32;
    assert_int_not_equal(chosen(&q), SYMM_ALGORITHM_LAMPORT_PUSH);
    q = query(SYMM_KIND_REDUCE_SCATTER, (size_t)8 << 20, 4);
    q.in_symmetric = q.out_symmetric = true;
    assert_int_equal(chosen(&q), SYMM_ALGORITHM_ONE_SHOT_PULL);
}

/* Where a channel's scratch is too little for a push, what needs none is taken if there is such an
 * algorithm; else one that waits no longer than staging. */
static void test_little_scratch(void **state)
{
    static const symm_dtype dtypes[] = {SYMM_FLOAT32, SYMM_INT32, SYMM_FLOAT64};
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    int waited = 0;

    (void)state;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (int tier = 0; tier < SYMM_CUDA_TIERS; tier++)
        for (int size = 2; size <= SYMM_FEW_RANKS; size *= 2)
            for (int kind = 0; kind < SYMM_KIND_ALL_REDUCE_NORM; kind++)
                for (int test = 0; test < 12; test++)
                    for (size_t bytes = 1024;
                         kind != SYMM_KIND_BARRIER && bytes <= (size_t)64 << 20;
                         bytes *= 2) {
                        struct symm_select_query q =
                            query((enum symm_kind)kind, bytes, size);
                        const bool symmetric = test & 1;
                        double delay;

                        q.scratch = scratch[symm__cuda_tier_end(tier) - 1];
                        q.costs = test & 2 ? symm__costs_tables[0] : NULL;
                        q.in_symmetric = q.out_symmetric = symmetric;
                        q.dtype = dtypes[test / 4];
                        delay = delay_of(&q, chosen(&q));
                        if (tier == 0 || symmetric)
                            assert_true(delay == 0);
                        assert_true(q.costs ||
                                    delay <= delay_of(&q, SYMM_ALGORITHM_COPY_IN));
                        waited += delay > 0;
                    }
    assert_true(waited > 0);
}

/* A fused norm on a channel with little scratch: not in a hundred launches. */
static void test_little_scratch_norm(void **state)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_select_query q = query(SYMM_KIND_ALL_REDUCE_NORM, (size_t)8 << 20, 2);
    struct symm_select_query sum;
    struct symm_selection answer;
    uint64_t part;

    (void)state;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    q.dtype = SYMM_BFLOAT16;
    q.hidden = 4096;
    q.rows = 1024;
    q.in_symmetric = q.out_symmetric = true;
    assert_int_equal(symm__choose_norm(&q, &answer, &part), SYMM_OK);
    assert_true(part >= 512);
    q.scratch = scratch[SYMM_CHANNELS - 1];
    assert_int_equal(symm__choose_norm(&q, &answer, &part), SYMM_OK);
    assert_int_equal(part, 0);
    sum = q;
    sum.kind = SYMM_KIND_ALL_REDUCE;
    assert_true(delay_of(&sum, answer.algorithm) == 0);
    q.partial = true; /* only fused kernels can */
    assert_int_equal(symm__choose_norm(&q, &answer, &part), SYMM_OK);
    assert_in_range(part, 1, 32);
    q.partial = false;
    q.rows = 8;
    q.bytes = q.rows * 8192;
    assert_int_equal(symm__choose_norm(&q, &answer, &part), SYMM_OK);
    assert_true(part > 0);
}

/* Plain memory on a channel with little scratch: the engine, where it is not much slower. */
static void test_little_scratch_engine(void **state)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_select_query q = query(SYMM_KIND_ALL_REDUCE, (size_t)8 << 20, 2);
    struct symm_selection answer;

    (void)state;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    q.engine = true;
    assert_int_not_equal(chosen(&q), SYMM_ALGORITHM_ENGINE);
    q.scratch = scratch[SYMM_CHANNELS - 1];
    assert_int_equal(symm__engine_or(&q, symm__cuda_choose(&q)).algorithm,
                     SYMM_ALGORITHM_ENGINE);
    assert_int_equal(symm__choose(&q, &answer), SYMM_OK);
    assert_int_equal(answer.algorithm, SYMM_ALGORITHM_ENGINE);
    assert_true(answer.fallback);
    q.bytes = 64 << 10;
    assert_int_not_equal(chosen(&q), SYMM_ALGORITHM_ENGINE);
    q.bytes = (size_t)8 << 20;
    q.numerics = SYMM_NUMERICS_SAME_BITS;
    assert_int_not_equal(chosen(&q), SYMM_ALGORITHM_ENGINE);
    q.numerics = SYMM_NUMERICS_ANY;
    q.in_symmetric = q.out_symmetric = true;
    assert_int_not_equal(chosen(&q), SYMM_ALGORITHM_ENGINE);
}

/* What replaces an algorithm of a plan can do the call and touches no more memory. */
static void test_substitutes(void **state)
{
    static const unsigned touches[SYMM_ALGORITHM_COUNT] = {
        [SYMM_ALGORITHM_ONE_SHOT_PULL] = 1,
        [SYMM_ALGORITHM_TWO_SHOT_PULL] = 1,
        [SYMM_ALGORITHM_MULTIMEM_ONE_SHOT] = 1,
        [SYMM_ALGORITHM_TWO_SHOT_INPLACE] = 3,
        [SYMM_ALGORITHM_MULTIMEM_TWO_SHOT] =
            3}; /* 1: peers' inputs, 2: their outputs */

    (void)state;
    for (int where = 0; where < 8; where++)
        for (int planned = 0; planned < SYMM_ALGORITHM_COUNT; planned++) {
            struct symm_select_query q = query(SYMM_KIND_ALL_REDUCE, 100000, 4);
            uint32_t barriers = 0, extra = 0;
            struct symm_selection answer;

            q.in_symmetric = where & 1;
            q.out_symmetric = where & 2;
            q.overlap = where & 4;
            assert_int_equal(symm__choose_planned(&q, (enum symm_algorithm)planned,
                                                  false, &answer, &barriers, &extra),
                             SYMM_OK);
            assert_null(symm__cuda_objection(&q, answer.algorithm, NULL));
            assert_int_equal(touches[answer.algorithm] & ~touches[planned], 0);
            if (!symm__cuda_objection(&q, (enum symm_algorithm)planned, NULL))
                assert_int_equal(answer.algorithm, planned);
        }
}

static const char *objection(struct symm_select_query q, const char *name,
                             uint32_t numerics)
{
    struct symm_selection answer;

    q.forced = name;
    q.numerics = numerics;
    return symm__choose(&q, &answer) == SYMM_OK ? NULL : symm_last_error();
}

/* What the switch can do, and what it is taken for. */
static void test_multicast_choice(void **state)
{
    struct symm_select_query reduce = query(SYMM_KIND_ALL_REDUCE, 1u << 20, 4);
    static const char one[] = "multimem_one_shot", two[] = "multimem_two_shot";
    struct symm_select_query q;
    struct symm_selection answer;

    (void)state;
    reduce.in_symmetric = reduce.out_symmetric = true;
    reduce.in_multicast = reduce.out_multicast = true;
    q = reduce;
    assert_null(objection(q, one, SYMM_NUMERICS_ANY));
    assert_null(objection(q, two, SYMM_NUMERICS_SAME_BITS));
    assert_non_null(strstr(objection(q, one, SYMM_NUMERICS_SAME_BITS), "may differ"));
    assert_non_null(strstr(objection(q, two, SYMM_NUMERICS_RANK_ORDER), "rank order"));
    assert_int_equal(symm__cuda_choose(&q).algorithm, SYMM_ALGORITHM_MULTIMEM_TWO_SHOT);
    q.numerics = SYMM_NUMERICS_RANK_ORDER;
    answer = symm__cuda_choose(&q);
    assert_true(answer.algorithm != SYMM_ALGORITHM_MULTIMEM_TWO_SHOT);
    q = reduce;
    q.overlap = true;
    assert_null(objection(q, two, SYMM_NUMERICS_ANY));
    assert_non_null(strstr(objection(q, one, SYMM_NUMERICS_ANY), "overlap"));
    q.op = SYMM_MAX;
    assert_non_null(strstr(objection(q, two, SYMM_NUMERICS_ANY), "no such kernel"));
    q = reduce;
    q.out_multicast = false;
    assert_null(objection(q, one, SYMM_NUMERICS_ANY));
    assert_non_null(strstr(objection(q, two, SYMM_NUMERICS_ANY), "SYMM_MULTICAST"));
    q.kind = SYMM_KIND_ALL_GATHER;
    assert_non_null(strstr(objection(q, one, SYMM_NUMERICS_ANY), "SYMM_MULTICAST"));
    q.out_multicast = true;
    q.in_multicast = q.in_symmetric = false;
    assert_null(objection(q, one, SYMM_NUMERICS_RANK_ORDER)); /* nothing is added up */
    assert_int_equal(symm__cuda_choose(&q).algorithm, SYMM_ALGORITHM_MULTIMEM_ONE_SHOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiers),
                                       cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_little_scratch),
                                       cmocka_unit_test(test_little_scratch_engine),
                                       cmocka_unit_test(test_little_scratch_norm),
                                       cmocka_unit_test(test_substitutes),
                                       cmocka_unit_test(test_multicast_choice)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
