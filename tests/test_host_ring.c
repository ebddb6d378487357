/* SPDX-License-Identifier: MIT */
/*
 * test_host_ring.c - symm_send, symm_recv and symm_p2p_batch through the rings of the host: every
 * size around a ring's, any order in a batch, any source, several streams, and every way in
 * which the two ends can fail to match.
 * ctest: cost 6
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/team.h"
#include "harness.h"

#define MOST_MESSAGES 5                    /* of an ordered pair in one round */
#define MOST_BYTES    ((size_t)200 * 1024) /* several rings */
#define ROUNDS        (HARNESS_SLOW ? 3 : 10)

struct shared {
    struct harness_sync sync;
    _Atomic int count;
};

/* What byte i of message k from s to r is. */
static unsigned char pattern(int s, int r, int k, size_t i)
{
    return (unsigned char)(i * 7 + (size_t)(s * 31 + r * 17 + k * 5) + i / 251);
}

static size_t message_bytes(const symm_team *team, uint64_t *random)
{
    const size_t ring = SYMM_RINGS_BYTES / (size_t)symm_team_size(team) / 64 * 64 -
                        sizeof(struct symm_ring);
    const size_t sizes[] = {0,         1,        15,         16,
                            17,        100,      ring - 17,  ring - 16,
                            ring - 15, ring,     ring + 1,   2 * ring - 16,
                            ring / 4,  3 * ring, MOST_BYTES, 5 * ring + 3};

    size_t bytes = sizes[harness_random(random) % (sizeof(sizes) / sizeof(sizes[0]))];

    return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

static void run_each(harness_body body, const int *ranks, int count)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    assert_int_equal(harness_run_each(shared, sizeof(*shared), body, ranks, count), 0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Random batches --------------------------------------------------------------- */

struct op_list {
    symm_p2p_op ops[2 * HARNESS_MAX_RANKS * MOST_MESSAGES];
    int pair[2 * HARNESS_MAX_RANKS * MOST_MESSAGES]; /* 2 * peer + kind */
    int index[2 * HARNESS_MAX_RANKS * MOST_MESSAGES];
    int count;
};

static void add(struct op_list *list, symm_p2p_kind kind, int peer, int k, size_t bytes)
{
    list->ops[list->count] = (symm_p2p_op){.size = sizeof(symm_p2p_op),
                                           .kind = kind,
                                           .ptr = malloc(bytes + 1),
                                           .count = bytes,
                                           .dtype = SYMM_UINT8,
                                           .peer = peer};
    list->pair[list->count] = 2 * peer + (int)kind;
    list->index[list->count++] = k;
}

/* Any order, but of messages of one pair. */
static void shuffle(struct op_list *list, uint64_t *random)
{
    for (int i = 0; i + 1 < list->count; i++) {
        int with =
            i + 1 + (int)(harness_random(random) % (uint64_t)(list->count - i - 1));
        bool free_to = true;

        for (int j = i; j <= with; j++)
            free_to &= j == i || list->pair[j] != list->pair[i];
        for (int j = i; j < with; j++)
            free_to &= list->pair[j] != list->pair[with];
        if (free_to) {
            symm_p2p_op op = list->ops[i];
            int pair = list->pair[i], index = list->index[i];

            list->ops[i] = list->ops[with];
            list->pair[i] = list->pair[with];
            list->index[i] = list->index[with];
            list->ops[with] = op;
            list->pair[with] = pair;
            list->index[with] = index;
        }
    }
}

/* One round: the same messages on all ranks, from a common seed. */
static int random_round(symm_team *team, uint64_t seed, uint64_t *own, void *stream)
{
    int size = symm_team_size(team), rank = symm_team_rank(team);
    struct op_list *list = calloc(1, sizeof(*list));
    symm_call call = {.size = sizeof(call), .site = "round", .stream = stream};
    symm_work *work = NULL;

    for (int s = 0; s < size; s++)
        for (int r = 0; r < size; r++) {
            int count = (int)(harness_random(&seed) % (MOST_MESSAGES + 1));

            for (int k = 0; k < count; k++) {
                size_t bytes = message_bytes(team, &seed);

                if (s == rank)
                    add(list, SYMM_P2P_SEND, r, k, bytes);
                for (size_t i = 0; s == rank && i < bytes; i++)
                    ((unsigned char *)list->ops[list->count - 1].ptr)[i] =
                        pattern(s, r, k, i);
                if (r == rank)
                    add(list, SYMM_P2P_RECV, s, k, bytes);
            }
        }
    shuffle(list, own);
    if (list->count > 0) {
        CHECK_OK(symm_p2p_batch(team, list->ops, list->count, &call, &work));
        CHECK_OK(symm_work_synchronize(work, 0));
        symm_work_release(work);
    }
    for (int o = 0; o < list->count; o++) {
        const symm_p2p_op *op = &list->ops[o];
        const unsigned char *data = op->ptr;

        for (size_t i = 0; op->kind == SYMM_P2P_RECV && i < op->count; i++)
            CHECK_MESSAGE(data[i] == pattern(op->peer, rank, list->index[o], i),
                          "byte %zu of %zu from rank %d is wrong", i, op->count,
                          op->peer);
        free(op->ptr);
    }
    free(list);
    return 0;
}

static int random_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    uint64_t own = 77u + (uint64_t)symm_team_rank(team), seed = 5;
    void *stream;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    for (int round = 0; round < ROUNDS; round++)
        CHECK_ZERO(
            random_round(team, harness_random(&seed), &own, round % 3 ? NULL : stream));
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void test_random(void **unused)
{
    static const int ranks[] = {1, 2, 3, 5, 8};

    (void)unused;
    run_each(random_body, ranks, 5);
}

/* ---- Order ------------------------------------------------------------------------ */

/* Short sends are complete before their receives; dtypes and several teams. */
static int eager_body(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *pair;
    int rank = symm_team_rank(world), peer = rank ^ 1;
    double sent[100], got[100];
    bool done = false;
    symm_work *work = NULL;

    (void)arg;
    CHECK_OK(symm_team_split(world, rank / 2, 0, &pair));
    for (int i = 0; i < 100; i++)
        sent[i] = rank * 1000 + i;
    for (int i = 0; i < 100; i++) /* in two teams at once, which do not meet */
        CHECK_OK(symm_send(i % 2 ? world : pair, &sent[i], 1, SYMM_FLOAT64,
                           i % 2 ? peer : peer % 2, NULL, NULL));
    for (int i = 1; i >= 0; i--)
        for (int k = i; k < 100; k += 2) {
            CHECK_OK(symm_recv(i ? world : pair, &got[k], 1, SYMM_FLOAT64,
                               i ? peer : peer % 2, NULL, &work));
            CHECK_OK(symm_work_query(work, &done));
            CHECK(done);
            symm_work_release(work);
            CHECK_MESSAGE(got[k] == peer * 1000 + k, "message %d is %g", k, got[k]);
        }
    symm_team_destroy(pair);
    return 0;
}

static void test_eager(void **unused)
{
    (void)unused;
    assert_int_equal(harness_run_both((struct harness){.ranks = 4, .body = eager_body}),
                     0);
}

/* From any rank: each message once, those of one rank in order, `source` right. */
static int any_body(symm_ctx *ctx, void *arg)
{
    enum { EACH = 40 };
    symm_team *team = symm_team_world(ctx);
    int size = symm_team_size(team), rank = symm_team_rank(team);
    int next[HARNESS_MAX_RANKS] = {0}, buffer[3][2];

    (void)arg;
    for (int i = 0; rank != 0 && i < EACH; i++) {
        int message[2] = {rank, i};

        CHECK_OK(symm_send(team, message, 2, SYMM_INT32, 0, NULL, NULL));
    }
    for (int left = EACH * (size - 1); rank == 0 && left > 0;) {
        int count = left < 3 ? left : 3, source[3];
        symm_p2p_op ops[3];

        for (int i = 0; i < count; i++)
            ops[i] = (symm_p2p_op){.size = sizeof(ops[i]),
                                   .kind = SYMM_P2P_RECV,
                                   .ptr = buffer[i],
                                   .count = 2,
                                   .dtype = SYMM_INT32,
                                   .peer = SYMM_ANY_PEER,
                                   .source = &source[i]};
        CHECK_OK(symm_p2p_batch(team, ops, count, NULL, NULL));
        for (int i = 0; i < count; i++) {
            CHECK_MESSAGE(buffer[i][0] == source[i], "from rank %d, source %d",
                          buffer[i][0], source[i]);
            CHECK_MESSAGE(buffer[i][1] == next[source[i]]++, "message %d of rank %d",
                          buffer[i][1], source[i]);
        }
        left -= count;
    }
    return 0;
}

static void test_any(void **unused)
{
    static const int ranks[] = {2, 3, 6};

    (void)unused;
    run_each(any_body, ranks, 3);
}

/* Calls of several streams with one peer: each message stays whole. */
static int streams_body(symm_ctx *ctx, void *arg)
{
    enum { STREAMS = 3, CALLS = 12, COUNT = 30000 };
    symm_team *team = symm_team_world(ctx);
    int rank = symm_team_rank(team);
    int32_t *data = malloc(sizeof(int32_t) * STREAMS * CALLS * COUNT);
    bool seen[STREAMS * CALLS] = {false};
    void *stream[STREAMS];

    (void)arg;
    for (int s = 0; s < STREAMS; s++)
        CHECK_OK(symm_stream_create(ctx, &stream[s]));
    for (int c = 0; c < STREAMS * CALLS; c++) {
        symm_call call = {.size = sizeof(call), .stream = stream[c % STREAMS]};
        int32_t *at = data + (size_t)c * COUNT;

        for (int i = 0; i < COUNT; i++)
            at[i] = rank == 0 ? c * 100000 + i : -1;
        if (rank == 0)
            CHECK_OK(symm_send(team, at, COUNT, SYMM_INT32, 1, &call, NULL));
        else
            CHECK_OK(symm_recv(team, at, COUNT, SYMM_INT32, 0, &call, NULL));
    }
    for (int s = 0; s < STREAMS; s++)
        symm_stream_destroy(ctx, stream[s]);
    for (int c = 0; c < STREAMS * CALLS; c++) {
        int32_t which = data[(size_t)c * COUNT] / 100000;

        CHECK(which >= 0 && which < STREAMS * CALLS && !seen[which]);
        seen[which] = true;
        for (int i = 0; i < COUNT; i++)
            CHECK_MESSAGE(data[(size_t)c * COUNT + (size_t)i] == which * 100000 + i,
                          "message %d is mixed at %d", which, i);
    }
    free(data);
    return 0;
}

static void test_streams(void **unused)
{
    (void)unused;
    assert_int_equal(
        harness_run_both((struct harness){.ranks = 2, .body = streams_body}), 0);
}

/* ---- What does not match ----------------------------------------------------------- */

/* rank 0 sends the one, rank 1 receives the other. */
static int mismatch_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const bool other_dtype = *(const bool *)arg;
    int data[8] = {0};

    if (symm_team_rank(team) == 0) {
        CHECK_OK(symm_send(team, data, 8, SYMM_INT32, 1, NULL, NULL));
        CHECK_STATUS(symm_recv(team, data, 8, SYMM_INT32, 1, NULL, NULL),
                     SYMM_ERR_MISMATCH);
    } else {
        symm_call call = {.size = sizeof(call), .site = "here"};

        CHECK_STATUS(other_dtype
                         ? symm_recv(team, data, 8, SYMM_FLOAT32, 0, &call, NULL)
                         : symm_recv(team, data, 7, SYMM_INT32, 0, &call, NULL),
                     SYMM_ERR_MISMATCH);
    }
    CHECK_ERROR("rank 0 sent 8 elements of int32");
    CHECK_ERROR(other_dtype ? "8 of float32 at site 'here'"
                            : "7 of int32 at site 'here'");
    CHECK_STATUS(symm_send(team, data, 1, SYMM_INT32, 0, NULL, NULL),
                 SYMM_ERR_MISMATCH);
    return 0;
}

static void test_mismatch(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        bool other_dtype = i;

        assert_int_equal(harness_run_both((struct harness){
                             .ranks = 2, .body = mismatch_body, .arg = &other_dtype}),
                         0);
    }
}

/* A receive without a send, and a long send without a receive; the others hear of it. */
static int timeout_body(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *team = symm_team_world(ctx);
    static char data[MOST_BYTES];
    symm_call call = {.size = sizeof(call), .site = "late", .timeout = 0.3};
    double begin = harness_now();
    bool sends = shared->count == 1;

    if (symm_team_rank(team) == 0) {
        CHECK_STATUS(sends
                         ? symm_send(team, data, MOST_BYTES, SYMM_INT8, 1, &call, NULL)
                         : symm_recv(team, data, 4, SYMM_INT8, 1, &call, NULL),
                     SYMM_ERR_TIMEOUT);
        CHECK(harness_now() - begin >= 0.3);
        CHECK_ERROR("of rank 0 at site 'late': rank 1 has");
    }
    CHECK(harness_sync_wait(&shared->sync, 3) == 0);
    if (symm_team_rank(team) == 2)
        CHECK_STATUS(symm_recv(team, data, 4, SYMM_INT8, SYMM_ANY_PEER, NULL, NULL),
                     SYMM_ERR_TIMEOUT);
    CHECK(harness_now() - begin < HARNESS_SOON);
    CHECK(harness_sync_wait(&shared->sync, 3) == 0);
    return 0;
}

static void test_timeout(void **unused)
{
    (void)unused;
    for (int sends = 0; sends < 2; sends++)
        for (int mode = 0; mode < 2; mode++) {
            struct shared *shared = harness_shared(sizeof(*shared));

            shared->count = sends;
            assert_int_equal(
                harness_run(&(struct harness){.ranks = 3,
                                              .mode = (enum harness_mode)mode,
                                              .body = timeout_body,
                                              .arg = shared}),
                0);
            harness_shared_free(shared, sizeof(*shared));
        }
}

/* What a rank sent before it died arrives; after it the receiver learns of the death. */
static int dead_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int value = 7, any = *(const int *)arg ? SYMM_ANY_PEER : 1;
    double begin = harness_now();

    if (symm_team_rank(team) == 1) {
        CHECK_OK(symm_send(team, &value, 1, SYMM_INT32, 0, NULL, NULL));
        kill(getpid(), SIGKILL);
    }
    if (symm_team_rank(team) == 0) {
        value = 0;
        CHECK_OK(symm_recv(team, &value, 1, SYMM_INT32, any, NULL, NULL));
        CHECK(value == 7);
        CHECK_STATUS(symm_recv(team, &value, 1, SYMM_INT32, any, NULL, NULL),
                     SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 1 ");
    } else {
        CHECK_STATUS(symm_recv(team, &value, 1, SYMM_INT32, 0, NULL, NULL),
                     SYMM_ERR_PEER_DEAD);
    }
    CHECK(harness_now() - begin < HARNESS_SOON);
    return 0;
}

static void test_dead(void **unused)
{
    (void)unused;
    for (int any = 0; any < 2; any++)
        assert_int_equal(harness_run(&(struct harness){
                             .ranks = 3, .body = dead_body, .arg = &any, .killed = 2}),
                         0);
}

/* Rank 1 ends well before rank 0 receives; then only rank 2 can send. */
static int finalized_body(symm_ctx *none, void *arg)
{
    struct shared *shared = arg;
    symm_config config = harness_config();
    int value = harness_rank(), source = -1;
    symm_p2p_op op = {.size = sizeof(op),
                      .kind = SYMM_P2P_RECV,
                      .ptr = &value,
                      .count = 1,
                      .dtype = SYMM_INT32,
                      .peer = SYMM_ANY_PEER,
                      .source = &source};
    symm_team *team;
    symm_ctx *ctx;

    (void)none;
    CHECK_OK(symm_init(&config, &ctx));
    team = symm_team_world(ctx);
    if (value == 1) {
        CHECK_OK(symm_send(team, &value, 1, SYMM_INT32, 0, NULL, NULL));
        symm_finalize(ctx);
        shared->count = 1;
        return 0;
    }
    CHECK(harness_until(&shared->count, 1));
    if (value == 2) {
        harness_sleep(0.05); /* rank 0 waits for a rank, of which one has finalized */
        CHECK_OK(symm_send(team, &value, 1, SYMM_INT32, 0, NULL, NULL));
    } else {
        CHECK_OK(symm_p2p_batch(team, &op, 1, NULL, NULL));
        CHECK(value == 1 && source == 1);
        CHECK_OK(symm_p2p_batch(team, &op, 1, NULL, NULL));
        CHECK(value == 2 && source == 2);
        CHECK_STATUS(symm_recv(team, &value, 1, SYMM_INT32, 1, NULL, NULL),
                     SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("has sent 0 of 4 bytes, and rank 1 has finalized");
    }
    symm_finalize(ctx);
    return 0;
}

static void test_finalized(void **unused)
{
    (void)unused;
    for (int mode = 0; mode < 2; mode++) {
        struct shared *shared = harness_shared(sizeof(*shared));

        assert_int_equal(harness_run(&(struct harness){.ranks = 3,
                                                       .mode = (enum harness_mode)mode,
                                                       .body = finalized_body,
                                                       .arg = shared,
                                                       .without_ctx = true}),
                         0);
        harness_shared_free(shared, sizeof(*shared));
    }
}

/* Rank 1 aborts the team while rank 0 waits, and rank 2 waits on a stream. */
static int abort_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx), *left = NULL;
    double begin = harness_now();
    symm_work *work = NULL;
    void *stream;
    int value;

    (void)arg;
    CHECK_OK(symm_stream_create(ctx, &stream));
    if (symm_team_rank(team) == 0) {
        CHECK_STATUS(symm_recv(team, &value, 1, SYMM_INT32, 2, NULL, NULL),
                     SYMM_ERR_ABORTED);
    } else if (symm_team_rank(team) == 1) {
        harness_sleep(0.02);
        CHECK_OK(symm_team_abort(team, "enough"));
        CHECK_OK(symm_team_abort(team, "again")); /* the first one counts */
        CHECK_STATUS(symm_barrier(team, NULL, NULL), SYMM_ERR_ABORTED);
    } else {
        symm_call call = {.size = sizeof(call), .stream = stream};

        CHECK_OK(symm_barrier(team, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, 0), SYMM_ERR_ABORTED);
        symm_work_release(work);
    }
    CHECK_ERROR("rank 1 has aborted world: enough");
    CHECK(harness_now() - begin < HARNESS_SOON);
    symm_stream_destroy(ctx, stream);
    CHECK_OK(symm_team_shrink(team, &left));
    CHECK_OK(symm_barrier(left, NULL, NULL));
    return 0;
}

static void test_abort(void **unused)
{
    (void)unused;
    assert_int_equal(harness_run_both((struct harness){.ranks = 3, .body = abort_body}),
                     0);
}

/* Threads that receive on the NULL stream at a time, each from another rank. */
struct receiver {
    symm_team *team;
    pthread_t thread;
    int peer, value;
    symm_status status;
};

static void *receive(void *arg)
{
    struct receiver *r = arg;

    r->status = symm_recv(r->team, &r->value, 1, SYMM_INT32, r->peer, NULL, NULL);
    return NULL;
}

static int threads_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int rank = symm_team_rank(team), size = symm_team_size(team);
    struct receiver receivers[HARNESS_MAX_RANKS];

    (void)arg;
    for (int p = 0; p < size; p++) {
        receivers[p] = (struct receiver){.team = team, .peer = p};
        CHECK(pthread_create(&receivers[p].thread, NULL, receive, &receivers[p]) == 0);
    }
    for (int p = 0; p < size; p++) {
        int value = 10 * rank + p;

        CHECK_OK(symm_send(team, &value, 1, SYMM_INT32, p, NULL, NULL));
    }
    for (int p = 0; p < size; p++) {
        pthread_join(receivers[p].thread, NULL);
        CHECK(receivers[p].status == SYMM_OK && receivers[p].value == 10 * p + rank);
    }
    return 0;
}

static void test_threads(void **unused)
{
    static const int ranks[] = {1, 4};

    (void)unused;
    run_each(threads_body, ranks, 2);
}

/* A count that no sender writes is found before any byte is copied. */
static int damaged_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct symm_ring *ring = (struct symm_ring *)(void *)team->pad[0]->host.rings;
    int value[4];

    (void)arg;
    ring->filled = UINT64_C(1) << 40;
    CHECK_STATUS(symm_recv(team, value, 4, SYMM_INT32, 0, NULL, NULL),
                 SYMM_ERR_DAMAGED);
    CHECK_ERROR("it holds 1099511627776 of ");
    return 0;
}

static void test_damaged(void **unused)
{
    (void)unused;
    assert_int_equal(
        harness_run_both((struct harness){.ranks = 1, .body = damaged_body}), 0);
}

/* ---- Arguments --------------------------------------------------------------------- */

static int refused_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_call call = {.size = sizeof(call), .algorithm = "engine"};
    int value = 0;

    (void)arg;
    CHECK_STATUS(symm_send(team, &value, 1, SYMM_INT32, SYMM_ANY_PEER, NULL, NULL),
                 SYMM_ERR_INVALID);
    CHECK_STATUS(symm_recv(team, &value, 1, SYMM_INT32, -2, NULL, NULL),
                 SYMM_ERR_INVALID);
    CHECK_STATUS(symm_send(team, &value, 1, SYMM_INT32, 0, &call, NULL),
                 SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("needs an engine");
    call.algorithm = "one_shot_pull";
    CHECK_STATUS(symm_send(team, &value, 1, SYMM_INT32, 0, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_OK(
        symm_send(team, NULL, 0, SYMM_INT32, 0, NULL, NULL)); /* nothing was lost */
    CHECK_OK(symm_recv(team, NULL, 0, SYMM_INT32, SYMM_ANY_PEER, NULL, NULL));
    return 0;
}

static void test_refused(void **unused)
{
    (void)unused;
    assert_int_equal(
        harness_run_both((struct harness){.ranks = 1, .body = refused_body}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_eager),
        cmocka_unit_test(test_any),      cmocka_unit_test(test_streams),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_dead),     cmocka_unit_test(test_finalized),
        cmocka_unit_test(test_abort),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_damaged),  cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
