/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_p2p.c - sends and receives over NCCL: single operations, batches in any
 * order, a rank to itself, a communicator for each pair, and refused calls.
 * ctest: cost 15
 */
#include "engine_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK ((size_t)1000) /* elements of one message */

static int value(int from, int to, int number)
{
    return 1000000 * from + 1000 * to + number;
}

/* Block b of `in` is what goes out b-th. */
static void fill(struct engine_stage *s, int b, int to, int number)
{
    int *host = (int *)(void *)s->in.host + (size_t)b * BLOCK;

    for (size_t i = 0; i < BLOCK; i++)
        host[i] = value(s->rank, to, number);
}

static int check(struct engine_stage *s, int b, int from, int number)
{
    const int *host = (const int *)(const void *)s->out.host + (size_t)b * BLOCK;

    for (size_t i = 0; i < BLOCK; i++)
        CHECK_MESSAGE(host[i] == value(from, s->rank, number),
                      "rank %d, block %d: %d instead of %d", s->rank, b, host[i],
                      value(from, s->rank, number));
    return 0;
}

/* Rank 0 to 1 to 2 ...: one call each, in an order that cannot cross. */
static int chain(struct engine_stage *s, symm_call *call)
{
    symm_work *work = NULL;

    fill(s, 0, s->rank + 1, 1);
    CHECK_ZERO(device_put(&s->in, 0, BLOCK * sizeof(int)));
    if (s->rank > 0) {
        CHECK_OK(symm_recv(s->team, s->out.device, BLOCK, SYMM_INT32, s->rank - 1, call,
                           &work));
        CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
        CHECK_ZERO(device_get(&s->out, 0, BLOCK * sizeof(int)));
        CHECK_ZERO(check(s, 0, s->rank - 1, 1));
    }
    if (s->rank < s->n - 1)
        CHECK_OK(symm_send(s->team, s->in.device, BLOCK, SYMM_INT32, s->rank + 1, call,
                           NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, call->stream, HARNESS_AMPLE));
    CHECK(strstr(symm_explain(s->team), "engine sends and receives") != NULL);
    return 0;
}

/* Two messages each way between all pairs, the own rank too, shuffled on each rank. */
static int shuffled(struct engine_stage *s, symm_call *call, uint64_t seed)
{
    symm_p2p_op ops[4 * HARNESS_MAX_RANKS];
    int count = 0, turn[2][HARNESS_MAX_RANKS] = {{0}};
    symm_work *work = NULL;
    uint64_t state = seed * 77 + (uint64_t)s->rank;

    for (int p = 0; p < s->n; p++)
        for (int k = 0; k < 4; k++)
            ops[count++] = (symm_p2p_op){.size = sizeof(ops[0]),
                                         .kind = k & 1 ? SYMM_P2P_RECV : SYMM_P2P_SEND,
                                         .count = BLOCK,
                                         .dtype = SYMM_INT32,
                                         .peer = p};
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(harness_random(&state) % (uint64_t)(i + 1));
        symm_p2p_op other = ops[i];

        ops[i] = ops[j];
        ops[j] = other;
    }
    for (int i = 0; i < count; i++) { /* the k-th meets the k-th */
        int p = ops[i].peer, k = turn[ops[i].kind][p]++, b = 2 * p + k;

        if (ops[i].kind == SYMM_P2P_SEND)
            fill(s, b, p, k);
        ops[i].ptr = (ops[i].kind == SYMM_P2P_RECV ? s->out.device : s->in.device) +
                     (size_t)b * BLOCK * sizeof(int);
    }
    CHECK_ZERO(device_put(&s->in, 0, 2 * (size_t)s->n * BLOCK * sizeof(int)));
    CHECK_OK(symm_p2p_batch(s->team, ops, count, call, &work));
    memset(ops, 0xff, sizeof(ops)); /* they were copied */
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    symm_work_release(work);
    CHECK_ZERO(device_get(&s->out, 0, 2 * (size_t)s->n * BLOCK * sizeof(int)));
    for (int b = 0; b < 2 * s->n; b++)
        CHECK_ZERO(check(s, b, b / 2, b % 2));
    return 0;
}

/* Two sends of one batch meet two receives in their order. */
static int batch_and_calls(struct engine_stage *s, const symm_call *call)
{
    symm_p2p_op ops[2];

    for (int b = 0; b < 2; b++) {
        fill(s, b, 1, b);
        ops[b] = (symm_p2p_op){.size = sizeof(ops[b]),
                               .ptr = s->in.device + (size_t)b * BLOCK * sizeof(int),
                               .count = BLOCK,
                               .dtype = SYMM_INT32,
                               .peer = 1};
    }
    CHECK_ZERO(device_put(&s->in, 0, 2 * BLOCK * sizeof(int)));
    if (s->rank == 0)
        CHECK_OK(symm_p2p_batch(s->team, ops, 2, call, NULL));
    for (int b = 0; b < 2 && s->rank == 1; b++)
        CHECK_OK(symm_recv(s->team, s->out.device + (size_t)b * BLOCK * sizeof(int),
                           BLOCK, SYMM_INT32, 0, call, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, call->stream, HARNESS_AMPLE));
    CHECK_ZERO(device_get(&s->out, 0, 2 * BLOCK * sizeof(int)));
    for (int b = 0; b < 2 && s->rank == 1; b++)
        CHECK_ZERO(check(s, b, 0, b));
    return 0;
}

static int messages(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .site = "p2p"};
    uint64_t made = engine_calls("ncclCommInitRankConfig");
    const bool pairs = *(const bool *)arg;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(chain(&s, &call));
    call.stream = s.stream;
    CHECK_ZERO(chain(&s, &call));
    for (uint64_t seed = 1; seed < 6; seed++)
        CHECK_ZERO(shuffled(&s, &call, seed));
    call.stream = NULL;
    CHECK_ZERO(shuffled(&s, &call, 9));
    CHECK_ZERO(batch_and_calls(&s, &call));
    if (!device_real() &&
        engine_pass == HARNESS_PROCESSES) /* each in its own process */
        CHECK(engine_calls("ncclCommInitRankConfig") - made ==
              (pairs ? (uint64_t)s.n - 1 : 0));
    engine_close(&s);
    return 0;
}

static const char *const with_pairs[] = {"SYMM_P2P_PAIRS=1", NULL};

static void test_messages(void **state)
{
    bool pairs = false;

    (void)state;
    assert_int_equal(engine_run(messages, 2, HARNESS_PROCESSES, &pairs, NULL, 0), 0);
    assert_int_equal(engine_run(messages, 3, HARNESS_THREADS, &pairs, NULL, 0), 0);
    assert_int_equal(engine_run(messages, 4, HARNESS_PROCESSES, &pairs, NULL, 0), 0);
}

static void test_pairs(void **state)
{
    bool pairs = true;

    (void)state;
    assert_int_equal(engine_run(messages, 2, HARNESS_THREADS, &pairs, with_pairs, 0),
                     0);
    assert_int_equal(engine_run(messages, 3, HARNESS_PROCESSES, &pairs, with_pairs, 0),
                     0);
    assert_int_equal(engine_run(messages, 4, HARNESS_THREADS, &pairs, with_pairs, 0),
                     0);
}

static int refused(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .algorithm = "copy_in"};
    symm_p2p_op op[2];

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    op[0] = op[1] = (symm_p2p_op){.size = sizeof(op[0]),
                                  .ptr = s.in.device,
                                  .count = 4,
                                  .dtype = SYMM_INT32,
                                  .peer = 0};
    CHECK_STATUS(symm_p2p_batch(s.team, op, 1, &call, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("copy_in");
    CHECK_STATUS(symm_p2p_batch(s.team, op, 0, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_p2p_batch(s.team, NULL, 1, NULL, NULL), SYMM_ERR_INVALID);
    op[0].kind = (symm_p2p_kind)2;
    CHECK_STATUS(symm_p2p_batch(s.team, op, 1, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("operation 0: kind 2");
    op[0].kind = SYMM_P2P_SEND;
    op[1].size--;
    CHECK_STATUS(symm_p2p_batch(s.team, op, 2, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("operation 1 has size");
    op[0].peer = s.n;
    CHECK_STATUS(symm_p2p_batch(s.team, op, 1, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_ERROR("the team has ranks 0 to");
    CHECK_STATUS(symm_send(s.team, s.in.device + 1, 4, SYMM_INT32, 0, NULL, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("not aligned");
    CHECK_STATUS(symm_recv(s.team, NULL, 4, SYMM_INT32, 0, NULL, NULL),
                 SYMM_ERR_INVALID);
    CHECK_STATUS(
        symm_recv(s.team, s.in.device, SIZE_MAX / 2, SYMM_INT32, 0, NULL, NULL),
        SYMM_ERR_OVERFLOW);
    CHECK_STATUS(symm_recv(s.team, s.in.device, 1, (symm_dtype)77, 0, NULL, NULL),
                 SYMM_ERR_INVALID);
    call.algorithm = NULL;
    CHECK_ZERO(shuffled(&s, &call, 3)); /* the team is as it was */
    engine_close(&s);
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(engine_run(refused, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_pairs),
                                       cmocka_unit_test(test_refused)};
    int failed;

    engine_suite();
    failed = cmocka_run_group_tests_name("processes", tests, NULL, NULL);
    engine_pass = HARNESS_THREADS;
    failed += cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    return failed;
}
