/* SPDX-License-Identifier: MIT */
/*
 * test_host_wrap.c - epochs that wrap at 2^32, and a long run.
 * ctest: cost 6
 * ctest: load 3
 *
 * Epochs begin shortly before 2^32, and 10^5 calls cross it: every algorithm, every
 * collective, signals. The long run checks every element of every call: 6 x 10^4 calls,
 * or 10^7 with SYMM_TEST_LONG=1.
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRAP_START 0xfffffff0u
#define MOST       512 /* elements of a call, at most */

struct job {
    const char *algorithm;
    long calls;
    bool in_place, others;
};

struct setting {
    symm_team *team;
    int rank, n;
    uint32_t *in, *out; /* symmetric */
    symm_buffer *buffers[2];
};

static int setting_open(struct setting *s, symm_ctx *ctx)
{
    const int64_t count = MOST * HARNESS_MAX_RANKS, stride = 1;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_empty_strided_p2p(s->team, 1, &count, &stride, SYMM_UINT32,
                                        (uint64_t)i + 1, &s->buffers[i]));
    s->in = symm_buffer_ptr(s->buffers[0]);
    s->out = symm_buffer_ptr(s->buffers[1]);
    CHECK_OK(symm_rendezvous(s->team));
    return 0;
}

/* An element's value: different for each call, rank and place. */
static uint32_t value(long step, int rank, size_t i)
{
    return (uint32_t)step * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)i * 97u;
}

static int check_sums(const struct setting *s, const uint32_t *out, long step,
                      size_t count)
{
    uint32_t base = 0;
    for (int p = 0; p < s->n; p++)
        base += value(step, p, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t wanted = base + (uint32_t)s->n * (uint32_t)i * 97u;
        CHECK_MESSAGE(out[i] == wanted, "call %ld, element %zu of %zu: %u, not %u",
                      step, i, count, out[i], wanted);
    }
    return 0;
}

static int reduce_once(const struct setting *s, const struct job *job, long step,
                       size_t count)
{
    symm_call call;
    uint32_t *out = job->in_place ? s->in : s->out;
    memset(&call, 0, sizeof(call));
    call.size = sizeof(call);
    call.site = "wrap";
    call.algorithm = job->algorithm;
    for (size_t i = 0; i < count; i++)
        s->in[i] = value(step, s->rank, i);
    CHECK_MESSAGE(symm_all_reduce(s->team, s->in, out, count, SYMM_UINT32, SYMM_SUM,
                                  &call, NULL) == SYMM_OK,
                  "call %ld: %s", step, symm_last_error());
    return check_sums(s, out, step, count);
}

/* One call of each of the other kinds. */
static int other_calls(const struct setting *s, long step)
{
    int root = (int)(step % s->n), n = s->n, me = s->rank;
    int right = (me + 1) % n, left = (me + n - 1) % n;
    size_t count = 1 + (size_t)(step % 5);
    for (size_t i = 0; i < count * (size_t)n; i++)
        s->in[i] = value(step, me, i);
    CHECK_OK(symm_all_gather(s->team, s->in, s->out, count, SYMM_UINT32, NULL, NULL));
    for (size_t i = 0; i < count * (size_t)n; i++)
        CHECK(s->out[i] == value(step, (int)(i / count), i % count));
    CHECK_OK(symm_all_to_all(s->team, s->in, s->out, count, SYMM_UINT32, NULL, NULL));
    for (size_t i = 0; i < count * (size_t)n; i++)
        CHECK(s->out[i] ==
              value(step, (int)(i / count), (size_t)me * count + i % count));
    CHECK_OK(
        symm_broadcast(s->team, s->in, s->out, count, SYMM_UINT32, root, NULL, NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(s->out[i] == value(step, root, i));
    CHECK_OK(symm_reduce_scatter(s->team, s->in, s->out, count, SYMM_UINT32, SYMM_MAX,
                                 NULL, NULL));
    for (size_t i = 0; i < count; i++) {
        uint32_t wanted = 0;
        for (int p = 0; p < n; p++) {
            uint32_t theirs = value(step, p, (size_t)me * count + i);
            wanted = theirs > wanted ? theirs : wanted;
        }
        CHECK(s->out[i] == wanted);
    }
    CHECK_OK(symm_barrier(s->team, NULL, NULL));
    uint32_t mine = value(step, me, 7);
    CHECK_OK(symm_put_signal(s->team, &s->out[MOST + step % 7], &mine, sizeof(mine),
                             right, (int)(step % 3), NULL, NULL));
    CHECK_OK(symm_signal_wait(s->team, left, (int)(step % 3), NULL, NULL));
    CHECK(s->out[MOST + step % 7] == value(step, left, 7));
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx));
    for (long step = 0; step < job->calls; step++) {
        size_t count = step % 64 == 0 ? MOST : 1 + (size_t)(step * 7 % 16);
        CHECK_ZERO(reduce_once(&s, job, step, count));
        if (job->others)
            CHECK_ZERO(other_calls(&s, step));
    }
    for (int i = 0; i < 2; i++)
        symm_buffer_release(s.buffers[i]);
    return 0;
}

static int run(struct job *job, int ranks, enum harness_mode mode, uint32_t epoch_start)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    h.ranks = ranks;
    h.mode = mode;
    h.body = body;
    h.arg = job;
    h.epoch_start = epoch_start;
    h.limit = harness_env("SYMM_TEST_LONG", 0) != 0 ? 3600 : 0;
    return harness_run(&h);
}

static void wrap_with(const char *algorithm, bool in_place)
{
    long most = HARNESS_SLOW ? 5000 : 100000;
    struct job job = {algorithm, most, in_place, false};
    int failed = run(&job, 2, HARNESS_PROCESSES, WRAP_START);
    failed |= run(&job, 2, HARNESS_THREADS, WRAP_START);
    job.calls = most / 10;
    failed |= run(&job, 3, HARNESS_PROCESSES, WRAP_START);
    failed |= run(&job, 4, HARNESS_THREADS, WRAP_START);
    for (uint32_t start = 0xfffffff8u; start != 0; start++) { /* every distance to it */
        job.calls = 40;
        failed |=
            run(&job, 2, start % 2 != 0 ? HARNESS_THREADS : HARNESS_PROCESSES, start);
    }
    assert_int_equal(failed, 0);
}

static void wrap_copy_in(void **state)
{
    (void)state;
    wrap_with("copy_in", true);
}

static void wrap_one_shot_pull(void **state)
{
    (void)state;
    wrap_with("one_shot_pull", false);
}

static void wrap_two_shot_inplace(void **state)
{
    (void)state;
    wrap_with("two_shot_inplace", true);
}

static void wrap_chosen(void **state)
{
    (void)state;
    wrap_with(NULL, false);
}

static void wrap_all_collectives(void **state)
{
    struct job job = {NULL, HARNESS_SLOW ? 1000 : 15000, false, true};
    int failed = 0;
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        failed |= run(&job, ranks, HARNESS_PROCESSES, WRAP_START);
        job.calls = HARNESS_SLOW ? 300 : 4000;
        failed |= run(&job, ranks, HARNESS_THREADS, WRAP_START);
        job.calls = HARNESS_SLOW ? 1000 : 4000;
    }
    assert_int_equal(failed, 0);
}

static void long_run(void **state)
{
    bool full = harness_env("SYMM_TEST_LONG", 0) != 0;
    struct job job = {NULL,
                      full           ? 10000000
                      : HARNESS_SLOW ? 10000
                                     : 60000,
                      true, false};
    double start = harness_now();
    (void)state;
    assert_int_equal(run(&job, 2, HARNESS_PROCESSES, 0), 0);
    fprintf(stderr, "%ld calls, each checked: %.1f s\n", job.calls,
            harness_now() - start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrap_copy_in),          cmocka_unit_test(wrap_one_shot_pull),
        cmocka_unit_test(wrap_two_shot_inplace), cmocka_unit_test(wrap_chosen),
        cmocka_unit_test(wrap_all_collectives),  cmocka_unit_test(long_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
