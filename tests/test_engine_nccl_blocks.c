/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_blocks.c - the memory of NCCL's sends and receives. NCCL waits for ever where
 * it moves a message without a copy on one end only: where one end's memory is registered
 * (or, in a capture, lies in one allocation of the driver) and the other end's is not. The
 * stand-in ends the program there.
 *
 * An all_to_all sends another block of each rank's input, so buffers that lie in two segments had
 * blocks of both sorts.
 */
#include "driver.h"
#include "engine_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BUFFERS 6

/* Bytes: more than segments of 2 MiB have left, and not much less. */
static const size_t sizes[BUFFERS] = {300000,          (size_t)5 << 19, (size_t)5 << 19,
                                      (size_t)3 << 20, 2200000,         3000000};

struct blocks {
    struct engine_stage s;
    struct driver d;
    struct device_area area[BUFFERS], own;
    symm_call call;
};

static int blocks_open(struct blocks *b, symm_ctx *ctx)
{
    CHECK_ZERO(engine_open(&b->s, ctx));
    if (!device_real())
        CHECK_ZERO(driver_load(&b->d));
    b->call = (symm_call){.size = sizeof(b->call),
                          .algorithm = "engine",
                          .stream = b->s.stream,
                          .site = "blocks"};
    for (int i = 0; i < BUFFERS; i++)
        CHECK_ZERO(device_area_open(&b->area[i], b->s.gpu, b->s.team, sizes[i]));
    CHECK_ZERO(device_area_open(&b->own, b->s.gpu, NULL, (size_t)3 << 20));
    CHECK_OK(symm_rendezvous(b->s.team));
    return 0;
}

static void blocks_close(struct blocks *b)
{
    for (int i = 0; i < BUFFERS; i++)
        device_area_close(&b->area[i]);
    device_area_close(&b->own);
    engine_close(&b->s);
}

static int32_t value(int from, int to, size_t i)
{
    return (int32_t)((size_t)from * 1000003 + (size_t)to * 10007 + i);
}

static int give(struct blocks *b, struct device_area *area, size_t count)
{
    for (int to = 0; to < b->s.n; to++)
        for (size_t i = 0; i < count; i++)
            engine_ints(area)[(size_t)to * count + i] = value(b->s.rank, to, i);
    return device_put(area, 0, (size_t)b->s.n * count * sizeof(int32_t));
}

static int take(struct blocks *b, struct device_area *area, size_t count)
{
    const int32_t *found = engine_ints(area);

    CHECK_OK(symm_stream_synchronize(b->s.ctx, b->s.stream, 0));
    CHECK_ZERO(device_get(area, 0, (size_t)b->s.n * count * sizeof(int32_t)));
    for (int from = 0; from < b->s.n; from++)
        for (size_t i = 0; i < count; i++, found++)
            CHECK_MESSAGE(*found == value(from, b->s.rank, i), "block %d, element %zu",
                          from, i);
    memset(area->host, 0, area->bytes);
    return device_put(area, 0, area->bytes);
}

/* Ends the capture and launches what it has, once. */
static int replay(struct blocks *b)
{
    CUgraph graph;
    CUgraphExec exec;

    CHECK_CU(b->d.end_capture(b->s.stream, &graph));
    CHECK_CU(b->d.instantiate(&exec, graph, 0));
    CHECK_CU(b->d.graph_launch(exec, b->s.stream));
    CHECK_OK(symm_stream_synchronize(b->s.ctx, b->s.stream, 0));
    CHECK_CU(b->d.exec_destroy(exec));
    CHECK_CU(b->d.graph_destroy(graph));
    return 0;
}

static int exchange(struct blocks *b, struct device_area *in, struct device_area *out)
{
    size_t bytes = in->bytes < out->bytes ? in->bytes : out->bytes;
    size_t count = bytes / sizeof(int32_t) / (size_t)b->s.n;

    CHECK_ZERO(give(b, in, count));
    CHECK_OK(symm_all_to_all(b->s.team, in->device, out->device, count, SYMM_INT32,
                             &b->call, NULL));
    CHECK_ZERO(take(b, out, count));
    if (device_real()) /* the suite has no driver of its own there */
        return 0;
    CHECK_CU(b->d.begin_capture(b->s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(symm_all_to_all(b->s.team, in->device, out->device, count, SYMM_INT32,
                             &b->call, NULL));
    CHECK_ZERO(replay(b));
    return take(b, out, count);
}

static int symmetric(symm_ctx *ctx, void *arg)
{
    struct blocks b;

    (void)arg;
    CHECK_ZERO(blocks_open(&b, ctx));
    for (int i = 0; i < BUFFERS; i++)
        CHECK_ZERO(exchange(&b, &b.area[i], &b.area[(i + 1) % BUFFERS]));
    blocks_close(&b);
    return 0;
}

static int pass_on(struct blocks *b, const struct device_area *in,
                   const struct device_area *out, size_t bytes)
{
    const int n = b->s.n, next = (b->s.rank + 1) % n,
              previous = (b->s.rank + n - 1) % n;
    const symm_p2p_op ops[2] = {{.size = sizeof(symm_p2p_op),
                                 .kind = SYMM_P2P_SEND,
                                 .ptr = in->device,
                                 .count = bytes,
                                 .dtype = SYMM_UINT8,
                                 .peer = next},
                                {.size = sizeof(symm_p2p_op),
                                 .kind = SYMM_P2P_RECV,
                                 .ptr = out->device,
                                 .count = bytes,
                                 .dtype = SYMM_UINT8,
                                 .peer = previous}};

    memset(in->host, 1 + b->s.rank, bytes);
    CHECK_ZERO(device_put(in, 0, bytes));
    CHECK_OK(symm_p2p_batch(b->s.team, ops, 2, &b->call, NULL));
    if (!device_real()) {
        CHECK_CU(b->d.begin_capture(b->s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK_OK(symm_p2p_batch(b->s.team, ops, 2, &b->call, NULL));
        CHECK_ZERO(replay(b));
    }
    CHECK_OK(symm_stream_synchronize(b->s.ctx, b->s.stream, 0));
    CHECK_ZERO(device_get(out, 0, bytes));
    for (size_t i = 0; i < bytes; i++)
        CHECK_MESSAGE(out->host[i] == 1 + previous, "byte %zu is %d", i, out->host[i]);
    return 0;
}

/* Ranks send from symmetric memory what their peers receive in private memory, and the other
 * way round. */
static int mixed(symm_ctx *ctx, void *arg)
{
    struct blocks b;

    (void)arg;
    CHECK_ZERO(blocks_open(&b, ctx));
    for (int i = 0; i < BUFFERS; i++) {
        const struct device_area *symmetric = &b.area[i], *own = &b.own;
        size_t bytes = sizes[i] < own->bytes ? sizes[i] : own->bytes;

        CHECK_ZERO(pass_on(&b, symmetric, own, bytes));
        CHECK_ZERO(pass_on(&b, own, symmetric, bytes));
    }
    blocks_close(&b);
    return 0;
}

/* Buffers that are freed leave room in several segments, which is taken again. */
static int again(symm_ctx *ctx, void *arg)
{
    struct blocks b;

    (void)arg;
    CHECK_ZERO(blocks_open(&b, ctx));
    for (int i = 0; i < BUFFERS; i++)
        device_area_close(&b.area[i]);
    CHECK_OK(symm_rendezvous(b.s.team));
    for (int i = 0; i < BUFFERS; i++)
        CHECK_ZERO(device_area_open(&b.area[i], b.s.gpu, b.s.team,
                                    sizes[BUFFERS - 1 - i] - 4096 * (size_t)i));
    CHECK_OK(symm_rendezvous(b.s.team));
    for (int i = 0; i < BUFFERS; i++)
        CHECK_ZERO(exchange(&b, &b.area[i], &b.area[(i + 2) % BUFFERS]));
    blocks_close(&b);
    return 0;
}

static const char *const registering[] = {"SYMM_NCCL_REGISTER=1", NULL};

static void run(harness_body body, const char *const *settings)
{
    assert_int_equal(engine_run(body, 2, HARNESS_PROCESSES, NULL, settings, 0), 0);
    assert_int_equal(engine_run(body, 3, HARNESS_PROCESSES, NULL, settings, 0), 0);
}

static void test_symmetric(void **state)
{
    (void)state;
    run(symmetric, NULL);
    run(symmetric, registering);
}

static void test_mixed(void **state)
{
    (void)state;
    run(mixed, NULL);
}

static void test_again(void **state)
{
    (void)state;
    run(again, registering);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_symmetric),
                                       cmocka_unit_test(test_mixed),
                                       cmocka_unit_test(test_again)};

    engine_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
