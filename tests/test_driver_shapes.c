/* SPDX-License-Identifier: MIT */
/*
 * test_driver_shapes.c - the table of launches of cuda_launch.h: kernel, blocks and threads,
 * division of scratch. Pure functions: no driver, no kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda_launch.h"

#define MEGA ((uint64_t)1 << 20)

/* What has no kernel, and that every shape keeps the rules. */
static void test_find(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_BROADCAST,
                                    .algorithm = SYMM_ALGORITHM_LL_PUSH,
                                    .size = 8,
                                    .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    uint64_t end = symm__cuda_scratch_layout(12345, SYMM_FEW_RANKS, scratch);

    (void)unused;
    assert_true(end <= 110 * MEGA);
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        assert_int_equal(scratch[c].ll % 4096, 0);
        assert_true(scratch[c].stage + scratch[c].stage_bytes <=
                    (c + 1 < SYMM_CHANNELS ? scratch[c + 1].ll : end));
    }
    query.scratch = scratch[0];
    query.bytes = scratch[0].ll_bytes / 4;
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    query.bytes++;
    assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
    query.kind = SYMM_KIND_ALL_REDUCE;
    query.algorithm = SYMM_ALGORITHM_LAMPORT_PUSH;
    query.dtype = SYMM_INT32;
    assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
    query.dtype = SYMM_FLOAT64;
    assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
    query.dtype = SYMM_BFLOAT16;
    query.size = 9;
    assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
    for (query.size = 1; query.size <= 8; query.size++)
        for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
            for (query.bytes = 0; query.bytes < (uint64_t)1 << 34;
                 query.bytes = 3 * query.bytes + 2) {
                query.algorithm = (enum symm_algorithm)a;
                if (!symm__cuda_kernel_find(&query, &kernel, &shape))
                    continue;
                assert_in_range(shape.blocks, 1, SYMM_DEVICE_BLOCKS);
                assert_in_range(shape.threads, 32, SYMM_MOVE_THREADS);
                assert_int_equal(shape.threads % 32, 0);
            }
}

/* Scratch of every tier has room for a packet of all threads, by the kernels of several rounds:
 * half of the stage for each block and rank, a slot for each warp and sender. The packets of much
 * data are counted in 32 bits. */
static void test_room(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.dtype = SYMM_INT64, .processors = 160};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_DEVICE_RANKS, scratch);
    query.kind = SYMM_KIND_ALL_TO_ALL;
    for (int tier = 0; tier < SYMM_CUDA_TIERS; tier++)
        for (query.size = 2; query.size <= SYMM_DEVICE_RANKS; query.size++) {
            const uint64_t size = (unsigned)query.size;

            query.scratch = scratch[symm__cuda_tier_end(tier) - 1];
            query.bytes = MEGA;
            query.algorithm = SYMM_ALGORITHM_COPY_IN;
            assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
            assert_true(32 * shape.blocks * size <= query.scratch.stage_bytes);
            query.algorithm = SYMM_ALGORITHM_LL_PUSH;
            if (symm__cuda_kernel_find(&query, &kernel, &shape))
                assert_true(32 * shape.blocks <=
                            query.scratch.ll_bytes / 16 / 2 / size);
        }
    /* A broadcast goes in one round. Sums in two shots have a kernel in the tier that a call gets. */
    for (query.size = 2; query.size <= SYMM_DEVICE_RANKS; query.size++) {
        query.kind = SYMM_KIND_BROADCAST;
        query.scratch = scratch[SYMM_CHANNELS - 1];
        query.bytes = query.scratch.ll_bytes / 4;
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        query.bytes++;
        assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
        query.kind = SYMM_KIND_ALL_REDUCE;
        query.algorithm = SYMM_ALGORITHM_TWO_SHOT_PUSH;
        query.scratch =
            scratch[symm__cuda_tier_end(symm__cuda_tier_for(8, query.size)) - 1];
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        query.algorithm = SYMM_ALGORITHM_LL_PUSH;
    }
    query = (struct symm_cuda_query){.kind = SYMM_KIND_ALL_REDUCE,
                                     .algorithm = SYMM_ALGORITHM_TWO_SHOT_INPLACE,
                                     .dtype = SYMM_FLOAT32,
                                     .op = SYMM_SUM,
                                     .size = 4,
                                     .processors = 132,
                                     .scratch = scratch[0],
                                     .bytes = ((uint64_t)16 << 30) - 16};
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_non_null(strstr(kernel.name, "_stream_"));
    query.bytes += 16;
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_null(strstr(kernel.name, "_stream_"));
}

/* What one rank receives by packets goes in one round: it has a lane for each packet also where an
 * eighth of the device is left to others, up to what the choice of an algorithm gives it. */
static void test_moves(void **unused)
{
    static const struct {
        enum symm_kind kind;
        const char *kernel;
    } moves[] = {{SYMM_KIND_BROADCAST, "symm_broadcast_ll_line_any"},
                 {SYMM_KIND_ALL_GATHER, "symm_all_gather_ll_line_any"},
                 {SYMM_KIND_ALL_TO_ALL, "symm_all_to_all_ll_line_any"}};
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.algorithm = SYMM_ALGORITHM_LL_PUSH,
                                    .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    query.scratch = scratch[0];
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
        for (query.size = 2; query.size <= SYMM_FEW_RANKS; query.size++)
            for (query.bytes = 1;
                 query.bytes <= (384u << 10) / (unsigned)(query.size - 1);
                 query.bytes += 1 + query.bytes / 16) {
                query.kind = moves[i].kind;
                assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
                assert_string_equal(kernel.name, moves[i].kernel);
                assert_true(shape.blocks <= 132 - 132 / 8);
            }
}

/* Between two ranks a sum has a thread for each packet up to 1.75 MiB, in no more blocks than may
 * wait, and no more threads than it has packets for. */
static void test_pairs(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_ALL_REDUCE,
                                    .algorithm = SYMM_ALGORITHM_LAMPORT_PUSH,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .size = 2,
                                    .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    query.scratch = scratch[0];
    for (query.bytes = 16; query.bytes <= 7 * MEGA / 4;
         query.bytes += 16 + query.bytes / 64 * 16) {
        const uint64_t packets = query.bytes / 16, blocks = 132 - 132 / 8;

        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_string_equal(kernel.name, "symm_all_reduce_pair_bfloat16_n2");
        assert_true(shape.blocks <= blocks);
        assert_true(shape.blocks * (shape.threads - 32) >= packets);
        assert_true((shape.blocks - 1) * (shape.threads - 32) < packets);
        assert_true(packets <= 512 * blocks || (shape.threads - 64) * blocks < packets);
    }
    query.bytes = 2 * MEGA;
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_string_equal(kernel.name, "symm_all_reduce_pair_many_bfloat16_n2");
    assert_int_equal(shape.threads, SYMM_MANY_THREADS + 32);
}

/* An eighth less of blocks costs a reduce_scatter of 2^n bytes no more turns of its threads. */
static void test_pulls(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_REDUCE_SCATTER,
                                    .algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    query.scratch = scratch[0];
    for (query.size = 2; query.size <= SYMM_FEW_RANKS; query.size++)
        for (query.bytes = MEGA; query.bytes <= 64 * MEGA; query.bytes *= 2) {
            assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
            assert_true(shape.blocks * shape.threads >= 65536);
            assert_true(shape.blocks <= 132 - 132 / 8);
            assert_true(shape.threads <= SYMM_PULL_THREADS);
        }
}

/* A program that says that nothing else uses the devices gets all of them. */
static void test_exclusive(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_REDUCE_SCATTER,
                                    .algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .size = 2,
                                    .bytes = 2 * MEGA};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    query.scratch = scratch[0];
    for (query.processors = 16; query.processors <= 132; query.processors += 4) {
        query.exclusive = false;
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.blocks, query.processors - query.processors / 8);
        query.exclusive = true;
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.blocks, query.processors);
    }
}

/* Scratch that holds nothing: pushes say no, and nothing is divided by it. */
static void test_no_scratch(void **unused)
{
    struct symm_cuda_query query = {
        .dtype = SYMM_FLOAT32, .op = SYMM_SUM, .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    for (query.size = 2; query.size <= 8; query.size *= 2)
        for (int k = 0; k < SYMM_KIND_COUNT; k++)
            for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
                for (query.bytes = 16; query.bytes <= 64 * MEGA; query.bytes *= 4) {
                    bool push = a == SYMM_ALGORITHM_LL_PUSH ||
                                a == SYMM_ALGORITHM_LAMPORT_PUSH ||
                                a == SYMM_ALGORITHM_TWO_SHOT_PUSH;

                    query.kind = (enum symm_kind)k;
                    query.algorithm = (enum symm_algorithm)a;
                    if (symm__cuda_kernel_find(&query, &kernel, &shape))
                        assert_false(push);
                }
}

/* all_reduce_two_shot_line.cu, wide: the lines of all threads fit into a slot and the call
 * into two; and 8 MiB find it on an H200. */
static void test_wide(void **unused)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_ALL_REDUCE,
                                    .algorithm = SYMM_ALGORITHM_TWO_SHOT_PUSH,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (query.size = 4; query.size <= 8; query.size *= 2)
        for (query.processors = 1; query.processors <= 160;
             query.processors += query.processors < 4 ? 1 : 13)
            for (query.bytes = 16; query.bytes <= 9 * MEGA;
                 query.bytes += 16 + query.bytes / 7) {
                uint64_t lines, room, step;

                query.scratch = scratch[query.bytes % 32 ? 1 : 2];
                if (!symm__cuda_kernel_find(&query, &kernel, &shape) ||
                    !strstr(kernel.name, "_wide_"))
                    continue;
                lines = (query.bytes / 16 + (unsigned)query.size - 1) /
                        (unsigned)query.size;
                room = query.scratch.lamport_bytes / 16 / 3 / 2 / (unsigned)query.size;
                step = (uint64_t)(shape.threads - 32) * shape.blocks;
                assert_true(lines <= room ||
                            (step <= room && lines <= 2 * (room - room % step)));
                assert_true(shape.threads <= SYMM_WIDE_THREADS(query.size) + 32);
            }
    query.processors = 132;
    query.scratch = scratch[1];
    query.bytes = 8 * MEGA;
    for (query.size = 4; query.size <= 8; query.size *= 2) {
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_non_null(strstr(kernel.name, "_wide_"));
    }
}

/* The budget may cut the grid of any call that has a kernel. */
static void test_cut_rows(void **unused)
{
    static const uint32_t columns[] = {8, 1000, 4096, 7168, 16384};
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_ALL_REDUCE_NORM,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .processors = 132};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (int i = 0; i < 2 * 3 * 3 * 5; i++) {
        query.algorithm =
            i % 2 ? SYMM_ALGORITHM_TWO_SHOT_PUSH : SYMM_ALGORITHM_LAMPORT_PUSH;
        query.size = 2 << i / 2 % 3;
        query.scratch = scratch[4 * (i / 6 % 3)];
        query.hidden = columns[i / 18];
        for (query.rows = 1; query.rows < 5000; query.rows += 1 + query.rows / 20) {
            query.blocks = 0;
            if (!symm__cuda_kernel_find(&query, &kernel, &shape))
                continue;
            for (query.blocks = 1; query.blocks < 115; query.blocks++) {
                assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
                assert_in_range(shape.blocks, 1, query.blocks);
            }
        }
    }
}

/* An all_reduce_norm of bfloat16 in one shot, on a channel of much scratch. */
static struct symm_cuda_query norm_query(int size, uint64_t rows, uint32_t hidden)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];

    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    return (struct symm_cuda_query){.kind = SYMM_KIND_ALL_REDUCE_NORM,
                                    .algorithm = SYMM_ALGORITHM_LAMPORT_PUSH,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .size = size,
                                    .processors = 132,
                                    .clusters = true,
                                    .scratch = scratch[0],
                                    .rows = rows,
                                    .hidden = hidden};
}

/* row_exchange.cuh: groups of whole warps, rows of a launch in one slot or in two; and what the
 * scratch of the large channels takes. */
static void test_rows(void **unused)
{
    static const uint32_t columns[] = {1, 7, 256, 257, 2048, 4096, 7168, 8192, 16384};
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query query = {.kind = SYMM_KIND_ALL_REDUCE_NORM, .op = SYMM_SUM};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (int i = 0; i < 2 * 3 * 2 * 2 * 9; i++) {
        const bool two = i % 2;
        const int ahead = two ? 0 : SYMM_ROWS_AHEAD;

        query.algorithm =
            two ? SYMM_ALGORITHM_TWO_SHOT_PUSH : SYMM_ALGORITHM_LAMPORT_PUSH;
        query.size = 2 << i / 2 % 3;
        query.processors = i / 6 % 2 ? 132 : 3;
        query.blocks = i / 12 % 2 ? 5 : 0;
        query.hidden = columns[i / 24];
        query.dtype = i % 5 ? SYMM_BFLOAT16 : SYMM_FLOAT32;
        query.scratch = scratch[i % 3 ? 0 : 2];
        for (query.rows = 0; query.rows < 3000; query.rows += 1 + query.rows / 3) {
            const uint64_t packets =
                (query.hidden * symm_dtype_size(query.dtype) + 15) / 16;
            const uint32_t most = SYMM_ROW_THREADS(query.size);
            uint64_t rows = query.rows, room, width = (packets + 31) / 32 * 32, step;

            if (!symm__cuda_kernel_find(&query, &kernel, &shape))
                continue;
            assert_true(!two || query.size > 2);
            for (uint32_t each = 1; width > most || each < shape.each; each *= 2)
                width = ((packets + 2 * each - 1) / (2 * each) + 31) / 32 * 32;
            assert_in_range(shape.threads, width + 32, most + 32);
            assert_int_equal((shape.threads - 32) % width, 0);
            assert_in_range(shape.blocks, 1, query.processors);
            assert_true(query.blocks == 0 || shape.blocks <= query.blocks);
            room = query.scratch.lamport_bytes / 16 / 3 / packets;
            if (query.size > 2)
                room = query.scratch.lamport_bytes / 16 / 3 / (unsigned)query.size /
                       (two ? 2 : 1) / packets;
            if (two)
                rows = (rows + (unsigned)query.size - 1) / (unsigned)query.size;
            step = (shape.threads - 32) / width * shape.blocks;
            assert_true(rows <= room ||
                        (room >= (unsigned)ahead * step + 1 && room >= step &&
                         rows <= 2 * (two ? room - room % step : room)));
        }
    }
    query = norm_query(2, 1, 8192);
    query.clusters = false;
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_int_equal(shape.blocks, 1);
    assert_int_equal(shape.threads, 512 + 32);
    query.rows = 128; /* two a block: with one there are not enough blocks */
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_int_equal(shape.blocks, 64);
    assert_int_equal(shape.each, 0);
    query.rows = 2048;
    query.hidden = 4096;
    assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
    assert_int_equal(shape.blocks, 114); /* 18 rows each, the last one 14 */
    assert_string_equal(kernel.name, "symm_all_reduce_norm_lamport_bfloat16_n2");
    assert_string_equal(kernel.module, "all_reduce_norm");
    query.hidden = SYMM_NORM_MAX_HIDDEN + 1;
    assert_false(symm__cuda_kernel_find(&query, &kernel, &shape));
    symm__cuda_norm_find(1u << 20, 16384, SYMM_FLOAT32, 132, &kernel, &shape);
    assert_string_equal(kernel.name, "symm_norm_float32");
    assert_int_equal(shape.threads, 512);
}

/* A thread has two packets where one would do if then, and only then, all rows are under way at once
 * and in one slot, between two ranks. */
static void test_two_each(void **unused)
{
    static const struct {
        int size;
        uint32_t rows, hidden, each, blocks, threads;
    } cases[] = {{2, 116, 4096, 0, 116, 544}, {2, 117, 4096, 2, 59, 544},
                 {2, 128, 4096, 2, 64, 544},  {2, 232, 4096, 2, 116, 544},
                 {2, 233, 4096, 0, 78, 544},  {2, 128, 3072, 2, 64, 416},
                 {2, 232, 2048, 0, 116, 544}, {2, 233, 2048, 2, 78, 416},
                 {2, 464, 2048, 2, 116, 544}, {2, 465, 2048, 0, 78, 544},
                 {2, 117, 8192, 0, 59, 544},  {4, 128, 2048, 0, 64, 288}};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct symm_cuda_query query =
            norm_query(cases[i].size, cases[i].rows, cases[i].hidden);

        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.each, cases[i].each);
        assert_int_equal(shape.blocks, cases[i].blocks);
        assert_int_equal(shape.threads, cases[i].threads);
        query.scratch.lamport_bytes = /* three slots, of one row less */
            ((uint64_t)cases[i].rows - 1) * cases[i].hidden * 2 * 3 *
            (unsigned)(cases[i].size > 2 ? cases[i].size : 1);
        assert_true(!symm__cuda_kernel_find(&query, &kernel, &shape) ||
                    shape.each == 0);
    }
}

/* Blocks have a row together if each has a warp for each scheduler, the grid has room, one GPC has
 * room for a cluster, and rows are few or long. */
static void test_clusters(void **unused)
{
    static const struct {
        int size;
        uint32_t rows, hidden, blocks, cluster, threads;
    } cases[] = {{2, 1, 1024, 1, 0, 160},   {2, 1, 2048, 2, 1, 160},
                 {2, 1, 4096, 4, 2, 160},   {2, 4, 4096, 16, 2, 160},
                 {2, 13, 4096, 52, 2, 160}, {2, 14, 4096, 28, 1, 288},
                 {2, 16, 4096, 32, 1, 288}, {2, 17, 4096, 68, 2, 160},
                 {2, 30, 4096, 60, 1, 288}, {2, 59, 4096, 59, 0, 544},
                 {2, 26, 2048, 52, 1, 160}, {2, 27, 2048, 27, 0, 288},
                 {2, 18, 3072, 36, 1, 224}, {2, 19, 3072, 19, 0, 416},
                 {2, 9, 2048, 18, 1, 160},  {2, 8, 8192, 32, 2, 160},
                 {2, 16, 8192, 64, 2, 160}, {2, 29, 8192, 116, 2, 160},
                 {2, 30, 8192, 60, 1, 288}, {2, 58, 8192, 116, 1, 288},
                 {2, 59, 8192, 59, 0, 544}, {2, 1, 7168, 2, 1, 256},
                 {2, 1, 16384, 1, 0, 544},  {4, 1, 4096, 2, 1, 160},
                 {4, 9, 2048, 9, 0, 288},   {8, 8, 4096, 16, 1, 160},
                 {8, 8, 8192, 8, 0, 288}};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct symm_cuda_query query =
            norm_query(cases[i].size, cases[i].rows, cases[i].hidden);

        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.blocks, cases[i].blocks);
        assert_int_equal(shape.cluster, cases[i].cluster);
        assert_int_equal(shape.threads, cases[i].threads);
        query.clusters = false;
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.cluster, 0);
        query.clusters = true;
        query.dtype = SYMM_FLOAT16; /* its packets are not polled twice at a time */
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.cluster,
                         cases[i].size == 2 && cases[i].hidden <= 4096 &&
                                 cases[i].rows * cases[i].hidden / 8 > 2048
                             ? 0
                             : cases[i].cluster);
        query.dtype = SYMM_FLOAT32;
        assert_true(!symm__cuda_kernel_find(&query, &kernel, &shape) ||
                    shape.cluster == 0);
        query.dtype = SYMM_BFLOAT16;
        query.processors = 71; /* 8 are left free: they may lie in as many GPCs */
        assert_true(symm__cuda_kernel_find(&query, &kernel, &shape));
        assert_int_equal(shape.cluster, 0);
        query.processors = 132;
        query.blocks = 1;
        assert_true(!symm__cuda_kernel_find(&query, &kernel, &shape) ||
                    shape.cluster == 0);
    }
}

static void test_early(void **unused)
{
    struct symm_cuda_shape shape = {.blocks = 52, .threads = 160};

    (void)unused;
    assert_true(symm__cuda_shape_early(&shape, 132)); /* few threads */
    shape.blocks = 33;
    shape.threads = 288;
    assert_false(symm__cuda_shape_early(&shape, 132));
    shape.cluster = 1;
    assert_true(
        symm__cuda_shape_early(&shape, 132)); /* a quarter of the multiprocessors */
    assert_false(symm__cuda_shape_early(&shape, 128));
    shape.blocks = 34;
    assert_false(symm__cuda_shape_early(&shape, 132));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clusters),  cmocka_unit_test(test_early),
        cmocka_unit_test(test_find),      cmocka_unit_test(test_moves),
        cmocka_unit_test(test_room),      cmocka_unit_test(test_pulls),
        cmocka_unit_test(test_exclusive), cmocka_unit_test(test_no_scratch),
        cmocka_unit_test(test_wide),      cmocka_unit_test(test_rows),
        cmocka_unit_test(test_two_each),  cmocka_unit_test(test_cut_rows),
        cmocka_unit_test(test_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
