/* SPDX-License-Identifier: MIT */
/*
 * test_host_p2p.c - put, get, signals, send and receive between all pairs of ranks.
 *
 * A put is visible after the signal that follows it; the k-th wait matches the k-th signal
 * of that sender and number, however many signals were sent before; the 256 numbers and the
 * pairs are independent; bytes outside the target do not change. A rendezvous of another
 * thread blocks none of these calls.
 */
#include "harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BUFFER_BYTES ((int64_t)1 << 20)
#define SIGNALS      256

struct shared {
    struct harness_sync sync;
    _Atomic int sent;
    pid_t receiver;
};

struct setting {
    symm_ctx *ctx;
    symm_team *team;
    struct shared *shared;
    symm_buffer *buffer;
    unsigned char *memory;
    int rank, n;
};

static int setting_open(struct setting *s, symm_ctx *ctx, void *shared)
{
    const int64_t shape = BUFFER_BYTES, stride = 1;
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->shared = shared;
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    CHECK_OK(symm_empty_strided_p2p(s->team, 1, &shape, &stride, SYMM_UINT8, 77,
                                    &s->buffer));
    s->memory = symm_buffer_ptr(s->buffer);
    memset(s->memory, 0, (size_t)BUFFER_BYTES);
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_barrier(s->team, NULL, NULL));
    return 0;
}

static unsigned char pattern(int from, int to, uint64_t step, size_t i)
{
    uint64_t z = (uint64_t)from * 1000003 + (uint64_t)to * 10007 + step * 101 + i;
    return (unsigned char)(1 + (z ^ z >> 8) % 255); /* never 0 */
}

/* ---- Put and get ----------------------------------------------------------------- */

/* Everybody puts to everybody, then reads it back with get. */
static int body_put_get(symm_ctx *ctx, void *arg)
{
    static const size_t sizes[] = {0, 1, 2, 7, 8, 63, 64, 65, 1000, 4096, 50001};
    struct setting s;
    unsigned char *local = malloc((size_t)BUFFER_BYTES);
    CHECK(local != NULL);
    CHECK_ZERO(setting_open(&s, ctx, arg));
    size_t slot = (size_t)BUFFER_BYTES / (size_t)s.n;
    for (uint64_t step = 0; step < sizeof(sizes) / sizeof(sizes[0]); step++) {
        size_t bytes = sizes[step], skew = step % 3; /* any alignment */
        memset(s.memory, 0, (size_t)BUFFER_BYTES);
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        for (int p = 0; p < s.n; p++) {
            unsigned char *dst = s.memory + (size_t)s.rank * slot + 16 + skew;
            for (size_t i = 0; i < bytes; i++)
                local[i] = pattern(s.rank, p, step, i);
            CHECK_OK(symm_put(s.team, dst, local, bytes, p, NULL, NULL));
        }
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        for (int p = 0; p < s.n; p++) {
            unsigned char *got = s.memory + (size_t)p * slot;
            for (size_t i = 0; i < 16 + skew; i++)
                CHECK(got[i] == 0);
            for (size_t i = 0; i < bytes; i++)
                CHECK(got[16 + skew + i] == pattern(p, s.rank, step, i));
            CHECK(got[16 + skew + bytes] == 0);
        }
        for (int p = 0; p < s.n; p++) { /* what rank p got from its right neighbour */
            int from = (p + 1) % s.n;
            memset(local, 0, bytes + 1);
            CHECK_OK(symm_get(s.team, local, s.memory + (size_t)from * slot + 16 + skew,
                              bytes, p, NULL, NULL));
            for (size_t i = 0; i < bytes; i++)
                CHECK(local[i] == pattern(from, p, step, i));
            CHECK(local[bytes] == 0);
        }
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
    }
    symm_buffer_release(s.buffer);
    free(local);
    return 0;
}

/* Both ends symmetric: a put from one symmetric place to another, as a pipeline does.
 */
static int body_put_symmetric(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    int right = (s.rank + 1) % s.n, left = (s.rank + s.n - 1) % s.n;
    size_t half = (size_t)BUFFER_BYTES / 2;
    for (uint64_t step = 1; step <= 200; step++) {
        size_t bytes = 1 + (size_t)(step * 257) % 9000;
        for (size_t i = 0; i < bytes; i++)
            s.memory[i] = pattern(s.rank, right, step, i);
        CHECK_OK(symm_put_signal(s.team, s.memory + half, s.memory, bytes, right, 3,
                                 NULL, NULL));
        CHECK_OK(symm_signal_wait(s.team, left, 3, NULL, NULL));
        for (size_t i = 0; i < bytes; i++)
            CHECK(s.memory[half + i] == pattern(left, s.rank, step, i));
        CHECK_OK(symm_signal(s.team, left, 4, NULL, NULL)); /* you may overwrite it */
        CHECK_OK(symm_signal_wait(s.team, right, 4, NULL, NULL));
    }
    symm_buffer_release(s.buffer);
    return 0;
}

static void run_for(void **state, harness_body body, const int *ranks, int count)
{
    assert_int_equal(
        harness_run_each(*state, sizeof(struct shared), body, ranks, count), 0);
}

static void put_and_get(void **state)
{
    static const int ranks[] = {1, 2, 3, 5};
    run_for(state, body_put_get, ranks, 4);
}

static void put_with_signal(void **state)
{
    static const int ranks[] = {1, 2, 3, 8};
    run_for(state, body_put_symmetric, ranks, 4);
}

/* ---- Signals --------------------------------------------------------------------- */

/* Signals run ahead of the waits; the data of a wait is that of its signal or later. */
static int body_ahead(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    const uint64_t ahead = 1000;
    uint64_t *words = (uint64_t *)(void *)s.memory;
    for (uint64_t k = 0; k < ahead; k++) {
        for (int p = 0; p < s.n; p++) {
            uint64_t value = k + 1;
            CHECK_OK(symm_put_signal(s.team, &words[(uint64_t)s.rank * ahead + k],
                                     &value, sizeof(value), p, 9, NULL, NULL));
        }
    }
    for (uint64_t k = 0; k < ahead; k++) {
        for (int p = 0; p < s.n; p++) {
            CHECK_OK(symm_signal_wait(s.team, p, 9, NULL, NULL));
            CHECK_MESSAGE(words[(uint64_t)p * ahead + k] == k + 1,
                          "wait %d of rank %d's signals came before its data", (int)k,
                          p);
        }
    }
    symm_buffer_release(s.buffer);
    return 0;
}

static void signals_run_ahead(void **state)
{
    static const int ranks[] = {1, 2, 4};
    run_for(state, body_ahead, ranks, 3);
}

/* The k-th wait must not pass before the k-th signal: one signal more is a time-out. */
static int body_exact(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    const int count = 5;
    symm_call call;
    memset(&call, 0, sizeof(call));
    call.size = sizeof(call);
    call.site = "one.too.many";
    call.timeout = 0.2;
    if (s.rank == 1) {
        for (int k = 0; k < count; k++)
            CHECK_OK(symm_signal(s.team, 0, 200, NULL, NULL));
        CHECK_OK(symm_signal(s.team, 0, 201, NULL, NULL)); /* another number */
    } else if (s.rank == 2) {
        CHECK_OK(symm_signal(s.team, 0, 200, NULL, NULL)); /* another sender */
    } else {
        for (int k = 0; k < count; k++)
            CHECK_OK(symm_signal_wait(s.team, 1, 200, NULL, NULL));
        double start = harness_now();
        CHECK_STATUS(symm_signal_wait(s.team, 1, 200, &call, NULL), SYMM_ERR_TIMEOUT);
        double took = harness_now() - start;
        CHECK_MESSAGE(took >= 0.2 && took < HARNESS_SOON,
                      "the time-out of 0.2 s came after %.3f s", took);
        CHECK_ERROR("rank 1");
    }
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    symm_buffer_release(s.buffer);
    return 0;
}

static void waits_match_signals(void **state)
{
    static const int ranks[] = {3};
    run_for(state, body_exact, ranks, 1);
}

/* A wait for a signal that comes later. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    if (s.rank == 0) {
        harness_sleep(
            0.15); /* long enough for every phase of a wait: spin, yield, sleep */
        atomic_store(&s.shared->sent, 1);
        for (int p = 1; p < s.n; p++)
            CHECK_OK(symm_signal(s.team, p, 0, NULL, NULL));
    } else {
        CHECK_OK(symm_signal_wait(s.team, 0, 0, NULL, NULL));
        CHECK(atomic_load(&s.shared->sent) == 1);
    }
    symm_buffer_release(s.buffer);
    return 0;
}

static void waits_wait(void **state)
{
    static const int ranks[] = {2, 4};
    run_for(state, body_late, ranks, 2);
}

/* All numbers of all pairs at once, waited for in another order. */
static int body_all_numbers(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    uint64_t *words = (uint64_t *)(void *)s.memory;
    for (int round = 1; round <= 3; round++) {
        for (int number = 0; number < SIGNALS; number++) {
            for (int i = 0; i < s.n; i++) {
                int p = (s.rank + i) % s.n;
                uint64_t value =
                    (uint64_t)round << 32 | (uint64_t)s.rank << 16 | (uint64_t)number;
                CHECK_OK(symm_put_signal(s.team, &words[s.rank * SIGNALS + number],
                                         &value, sizeof(value), p, number, NULL, NULL));
            }
        }
        for (int number = SIGNALS - 1; number >= 0; number--) {
            for (int p = 0; p < s.n; p++) {
                uint64_t value =
                    (uint64_t)round << 32 | (uint64_t)p << 16 | (uint64_t)number;
                CHECK_OK(symm_signal_wait(s.team, p, number, NULL, NULL));
                CHECK(words[p * SIGNALS + number] == value);
            }
        }
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
    }
    symm_buffer_release(s.buffer);
    return 0;
}

static void all_signal_numbers(void **state)
{
    static const int ranks[] = {1, 2, 4};
    run_for(state, body_all_numbers, ranks, 3);
}

/* A put with no signal of its own is seen after a later signal, and after a collective.
 */
static int body_put_then(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    int right = (s.rank + 1) % s.n, left = (s.rank + s.n - 1) % s.n;
    int *ints = (int *)(void *)s.memory;
    for (int i = 1; i <= 500; i++) {
        int value = i * 64 + s.rank, sum = 0;
        CHECK_OK(symm_put(s.team, &ints[1], &value, sizeof(value), right, NULL, NULL));
        CHECK_OK(symm_put(s.team, &ints[2], &value, sizeof(value), right, NULL, NULL));
        CHECK_OK(symm_signal(s.team, right, 1, NULL, NULL));
        CHECK_OK(symm_signal_wait(s.team, left, 1, NULL, NULL));
        CHECK(ints[1] == i * 64 + left && ints[2] == i * 64 + left);
        CHECK_OK(symm_put(s.team, &ints[3], &value, sizeof(value), right, NULL, NULL));
        CHECK_OK(
            symm_all_reduce(s.team, &value, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
        CHECK(sum == s.n * i * 64 + s.n * (s.n - 1) / 2);
        CHECK(ints[3] == i * 64 + left);
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
    }
    symm_buffer_release(s.buffer);
    return 0;
}

static void puts_are_seen(void **state)
{
    static const int ranks[] = {2, 3};
    run_for(state, body_put_then, ranks, 2);
}

/* ---- Beside a rendezvous --------------------------------------------------------- */

static void *meet_half(void *team)
{
    return (void *)(intptr_t)symm_rendezvous(team);
}

/* A rendezvous that another thread waits in holds up no call: here the peer comes to it only
 * after the call. Each put is the first one to its address, so that it is looked up. */
static int body_beside(symm_ctx *ctx, void *arg)
{
    struct setting s;
    symm_team *half;
    pthread_t thread;
    void *status;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    CHECK_OK(symm_team_split(s.team, 0, 0, &half));
    for (int i = 0; i < 20; i++) {
        const int64_t shape = 100, stride = 1;
        symm_buffer *fresh;
        CHECK_OK(
            symm_empty_strided_p2p(s.team, 1, &shape, &stride, SYMM_UINT8, 0, &fresh));
        CHECK_OK(symm_rendezvous(s.team));
        if (s.rank == 0) {
            CHECK(pthread_create(&thread, NULL, meet_half, half) == 0);
            harness_sleep(
                2e-3); /* it waits in there; or it does not, and all is well */
            CHECK_OK(symm_put_signal(s.team, symm_buffer_ptr(fresh), &i, sizeof(i), 1,
                                     5, NULL, NULL));
            CHECK(pthread_join(thread, &status) == 0);
            CHECK_OK((symm_status)(intptr_t)status);
        } else {
            CHECK_OK(symm_signal_wait(s.team, 0, 5, NULL, NULL));
            CHECK(*(int *)symm_buffer_ptr(fresh) == i);
            CHECK_OK(symm_rendezvous(half));
        }
        symm_buffer_release(fresh);
    }
    symm_team_destroy(half);
    symm_buffer_release(s.buffer);
    return 0;
}

static void beside_a_rendezvous(void **state)
{
    static const int ranks[] = {2};
    run_for(state, body_beside, ranks, 1);
}

/* ---- One's own signals, and a failure after one --------------------------------- */

/* A rank may wait on a stream for what it raises itself later. */
static int body_own(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);
    symm_call call = {.size = sizeof(call)};
    symm_work *wait, *raise;
    int me = symm_team_rank(world);
    bool done = true;
    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(symm_signal_wait(world, me, 3, &call, &wait));
    harness_sleep(0.02); /* for the wait to look at who is to raise it */
    CHECK_OK(symm_work_query(wait, &done));
    CHECK(!done);
    CHECK_OK(symm_signal(world, me, 3, NULL, &raise));
    CHECK_OK(symm_work_query(raise, &done));
    CHECK(done); /* without a stream it is complete on return */
    CHECK_OK(symm_work_synchronize(wait, HARNESS_AMPLE));
    symm_work_release(wait);
    symm_work_release(raise);
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, HARNESS_AMPLE));
    CHECK_OK(symm_barrier(world, NULL, NULL)); /* has not failed */
    call.timeout = 0.01;
    CHECK_OK(symm_signal_wait(world, me, 3, &call, &wait));
    CHECK_STATUS(symm_work_synchronize(wait, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
    CHECK(strstr(symm_work_error(wait), "signal 3") != NULL);
    symm_work_release(wait);
    return 0;
}

static void own_signals(void **state)
{
    static const int ranks[] = {1};
    run_for(state, body_own, ranks, 1);
}

/* Waits until the process sleeps. */
static int await_sleep(pid_t pid)
{
    double begin = harness_now();
    char path[32], text[512], state = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
        char *name_end;

        if (file)
            fclose(file);
        text[got] = '\0';
        name_end = strrchr(text, ')');
        state = name_end && name_end[1] == ' ' ? name_end[2] : '\0';
        CHECK(harness_now() - begin < HARNESS_AMPLE);
    }
    return 0;
}

/* A signal, and then its sender's next call fails, before the receiver looks again. */
static int body_behind(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    for (int i = 1; i <= 5; i++) {
        CHECK_OK(symm_team_split(world, 0, 0, &team));
        if (symm_team_rank(world) == 0) {
            symm_call soon = {.size = sizeof(soon), .timeout = 1e-3};
            CHECK(harness_until(&s->sent, i));
            CHECK_ZERO(await_sleep(s->receiver)); /* in its wait */
            kill(s->receiver, SIGSTOP);
            symm_status status = symm_signal(team, 1, 1, NULL, NULL);
            if (status == SYMM_OK)
                status = symm_barrier(team, &soon, NULL);
            kill(s->receiver, SIGCONT);
            CHECK(status == SYMM_ERR_TIMEOUT);
        } else {
            s->receiver = getpid();
            atomic_store(&s->sent, i);
            CHECK_OK(symm_signal_wait(team, 0, 1, NULL, NULL));
        }
        symm_team_destroy(team);
    }
    return 0;
}

/* A wait for a signal and a receive of a stream that nobody serves name the stream. */
static int body_names_stream(symm_ctx *ctx, void *arg)
{
    symm_call call = {.size = sizeof(call), .site = "layer", .timeout = 0.01};
    symm_team *world = symm_team_world(ctx), *part;
    symm_work *wait = NULL;
    char text[96];
    int32_t in = 0;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    snprintf(text, sizeof(text), " at site 'layer' on stream %p", call.stream);
    CHECK_OK(symm_team_split(world, 0, 0, &part));
    if (symm_team_rank(world) == 0) {
        CHECK_OK(symm_signal_wait(part, 1, 3, &call, &wait));
        CHECK_STATUS(symm_work_synchronize(wait, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
        CHECK_MESSAGE(strstr(symm_work_error(wait), text), "%s", symm_work_error(wait));
        symm_work_release(wait);
        CHECK_OK(symm_recv(world, &in, 1, SYMM_INT32, 1, &call, &wait));
        CHECK_STATUS(symm_work_synchronize(wait, HARNESS_AMPLE), SYMM_ERR_TIMEOUT);
        CHECK_MESSAGE(strstr(symm_work_error(wait), text), "%s", symm_work_error(wait));
        symm_work_release(wait);
    } else {
        CHECK_STATUS(symm_barrier(part, NULL, NULL), SYMM_ERR_TIMEOUT);
        CHECK_ERROR(" at site 'layer' on stream ");
        CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_TIMEOUT);
    }
    symm_stream_destroy(ctx, call.stream);
    symm_team_destroy(part);
    return 0;
}

static void names_the_stream(void **state)
{
    struct harness h = {.ranks = 2, .body = body_names_stream};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

static void a_failure_behind_a_signal(void **state)
{
    struct harness h = {.ranks = 2, .body = body_behind, .arg = *state};
    memset(*state, 0, sizeof(struct shared));
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(put_and_get),
        cmocka_unit_test(put_with_signal),
        cmocka_unit_test(signals_run_ahead),
        cmocka_unit_test(waits_match_signals),
        cmocka_unit_test(waits_wait),
        cmocka_unit_test(all_signal_numbers),
        cmocka_unit_test(puts_are_seen),
        cmocka_unit_test(beside_a_rendezvous),
        cmocka_unit_test(own_signals),
        cmocka_unit_test(names_the_stream),
        cmocka_unit_test(a_failure_behind_a_signal),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
