/* SPDX-License-Identifier: MIT */
/*
 * test_driver_budget.c - the number of blocks of calls (budget.c): all while streams are
 * used in turn, shares that fit while they wait at the same time, equal on all ranks, and a
 * kernel for every share.
 * ctest: cost 6
 * ctest: load 2
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/budget.h"
#include "cuda/channel.h"
#include "cuda/launcher.h"
#include "device.h"

#define SECONDS    HARNESS_AMPLE
#define STREAMS    4
#define COUNT      32768 /* elements: a grid of seven eighths of the device */
#define SMALL      4096  /* elements: a grid of two blocks */
#define MIDDLE     10240 /* elements: a grid of five blocks */
#define LOOKS      16    /* calls of which one looks for more room */
#define PROCESSORS 16
#define RANKS      3

struct shared {
    struct harness_sync sync, pair;
    bool dies; /* the last rank, so it is not in the second team */
    uint32_t blocks[RANKS][STREAMS];
};

struct stage {
    symm_ctx *ctx;
    symm_team *team[2];
    struct shared *shared;
    struct perf_gpu *gpu;
    struct device_area in, out;
    void *stream[STREAMS];
    int rank, n;
};

static int stage_open(struct stage *s, symm_ctx *ctx, void *arg)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    s->shared = arg;
    s->team[0] = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team[0]);
    s->n = symm_team_size(s->team[0]);
    CHECK_OK(symm_team_split(s->team[0], s->shared->dies && s->rank == s->n - 1,
                             s->rank, &s->team[1]));
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL, COUNT * sizeof(float)));
    CHECK_ZERO(
        device_area_open(&s->out, s->gpu, NULL, STREAMS * COUNT * sizeof(float)));
    for (size_t i = 0; i < COUNT; i++)
        ((float *)(void *)s->in.host)[i] = (float)(1 + s->rank);
    CHECK_ZERO(device_put(&s->in, 0, COUNT * sizeof(float)));
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(symm_stream_create(ctx, &s->stream[i]));
    return 0;
}

static void stage_close(struct stage *s)
{
    for (int i = 0; i < STREAMS; i++)
        symm_stream_destroy(s->ctx, s->stream[i]);
    device_area_close(&s->in);
    device_area_close(&s->out);
    perf_gpu_close(s->gpu);
    symm_team_destroy(s->team[1]);
}

/* Two streams on each of two teams. */
static symm_team *team_of(const struct stage *s, int i)
{
    return s->team[i / 2];
}

static int queue_some(struct stage *s, int i, size_t count)
{
    const char *const site[STREAMS] = {"first", "second", "third", "fourth"};
    symm_call call = {.size = sizeof(call),
                      .site = site[i],
                      .stream = s->stream[i],
                      .algorithm = "copy_in"};

    CHECK_OK(symm_all_reduce(team_of(s, i), s->in.device,
                             s->out.device + (size_t)i * COUNT * sizeof(float), count,
                             SYMM_FLOAT32, SYMM_SUM, &call, NULL));
    return 0;
}

static int queue(struct stage *s, int i)
{
    return queue_some(s, i, COUNT);
}

/* The channel of a stream that has made calls. */
static const struct symm_team_channel *channel_of(const struct stage *s, int i)
{
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        const struct symm_team_channel *lane = &team_of(s, i)->channel[c];

        if (lane->stream == s->stream[i] && lane->last)
            return lane;
    }
    return NULL;
}

/* The last launch on a stream. */
static const struct symm_cuda_entry *launched(const struct stage *s, int i)
{
    const struct symm_team_channel *lane = channel_of(s, i);

    return lane ? &lane->launches[lane->last - lane->prepared] : NULL;
}

/* All streams have ended on all ranks, with the right sums. */
static int finish(struct stage *s)
{
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], SECONDS));
    CHECK_ZERO(device_get(&s->out, 0, STREAMS * COUNT * sizeof(float)));
    for (size_t i = 0; i < (size_t)STREAMS * COUNT; i++)
        CHECK(((float *)(void *)s->out.host)[i] == (float)(s->n * (s->n + 1)) / 2);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    return 0;
}

/* Streams used one after the other have the grids that the table gives. */
static int in_turn(struct stage *s)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < STREAMS; i++) {
            const struct symm_cuda_entry *entry;
            struct symm_cuda_query ask;
            struct symm_cuda_kernel kernel;
            struct symm_cuda_shape shape;

            CHECK_ZERO(queue(s, i));
            CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], SECONDS));
            entry = launched(s, i);
            CHECK(entry != NULL);
            ask = entry->ask;
            ask.blocks = 0;
            CHECK(symm__cuda_kernel_find(&ask, &kernel, &shape));
            CHECK_MESSAGE(entry->blocks == shape.blocks &&
                              entry->threads == shape.threads,
                          "round %d, stream %d: %u blocks, not %u", round, i,
                          entry->blocks, shape.blocks);
            CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        }
    return 0;
}

/* Rank 0 queues all streams' calls before the others queue theirs, the other way round. */
static int at_once(struct stage *s)
{
    const int last = s->rank == 0 ? STREAMS - 1 : 0;
    uint32_t all = 0, largest = 0;

    for (int i = 0; s->rank == 0 && i < STREAMS; i++)
        CHECK_ZERO(queue(s, i));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int i = STREAMS - 1; s->rank != 0 && i >= 0; i--)
        CHECK_ZERO(queue(s, i));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(launched(s, i) != NULL);
        s->shared->blocks[s->rank][i] = launched(s, i)->blocks;
    }
    CHECK_MESSAGE((strstr(symm_explain(team_of(s, last)), " wanted;") != NULL) ==
                      (launched(s, last)->cut != 0),
                  "%s", symm_explain(team_of(s, last)));
    CHECK(s->rank != 0 || s->ctx->exclusive || launched(s, last)->cut != 0);
    CHECK_ZERO(finish(s));
    for (int i = 0; i < STREAMS; i++) {
        const uint32_t blocks = s->shared->blocks[0][i];

        for (int r = 1; r < s->n; r++)
            CHECK_MESSAGE(s->shared->blocks[r][i] == blocks,
                          "stream %d: %u blocks on rank 0, %u on rank %d", i, blocks,
                          s->shared->blocks[r][i], r);
        all += blocks;
        largest = blocks > largest ? blocks : largest;
    }
    CHECK_MESSAGE(s->ctx->exclusive ? all == STREAMS * largest
                                    : largest == PROCESSORS - PROCESSORS / 8 &&
                                          all - largest <= PROCESSORS / 2,
                  "the grids have %u blocks, the largest %u", all, largest);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    return 0;
}

/* Two streams at once, then one of them alone: its calls, for which the cut grid suffices, soon
 * have the device to themselves again. */
static int alone(struct stage *s)
{
    const int i = 1;

    for (int turn = 0; turn < 2; turn++) {
        for (int k = 0; k < 2 && turn == (s->rank != 0); k++)
            CHECK_ZERO(queue(s, k));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    }
    CHECK(symm__cuda_budget_shares(channel_of(s, i)) == !s->ctx->exclusive);
    CHECK_ZERO(finish(s));
    for (int call = 0; call < LOOKS; call++) {
        CHECK_ZERO(queue_some(s, i, SMALL));
        CHECK(launched(s, i)->cut == 0 && launched(s, i)->blocks > 1);
    }
    CHECK_MESSAGE(!symm__cuda_budget_shares(channel_of(s, i)),
                  "after %d calls others still count as running", LOOKS);
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], SECONDS));
    return harness_sync_wait(&s->shared->sync, s->n);
}

/* Calls on a stream until they have the whole grid: claims of a graph that was freed, or of a
 * rank that died, are taken back by the watchdogs. All ranks have the same grid each time. */
static int regain(struct stage *s, int i, struct harness_sync *sync, int ranks)
{
    const uint32_t full = PROCESSORS - PROCESSORS / 8;

    for (int call = 0; call < 1000; call++) {
        CHECK_ZERO(harness_sync_wait(sync, ranks));
        CHECK_ZERO(queue(s, i));
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], SECONDS));
        if (launched(s, i)->blocks == full)
            return harness_sync_wait(sync, ranks);
        harness_sleep(0.02);
    }
    return harness_fail(__FILE__, __LINE__, "%u blocks after 20 s",
                        launched(s, i)->blocks);
}

/* A captured call keeps its grid, and others leave room for it, while its graph lives. */
static int captured(struct stage *s)
{
    const uint32_t full = PROCESSORS - PROCESSORS / 8;
    void *graph = NULL;

    CHECK_ZERO(perf_gpu_capture(s->gpu, s->stream[0]));
    CHECK_ZERO(queue(s, 0));
    CHECK_ZERO(perf_gpu_captured(s->gpu, s->stream[0], &graph));
    CHECK(launched(s, 0)->blocks == full);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int round = 0; round < 3; round++) {
        if (s->rank % 2)
            CHECK_ZERO(perf_gpu_replay(s->gpu, graph, s->stream[0]));
        for (int i = 1; i < STREAMS; i++)
            CHECK_ZERO(queue(s, i));
        if (s->rank % 2 == 0)
            CHECK_ZERO(perf_gpu_replay(s->gpu, graph, s->stream[0]));
        for (int i = 1; i < STREAMS; i++)
            CHECK_MESSAGE(launched(s, i)->blocks <= PROCESSORS / 2,
                          "round %d, stream %d: %u blocks beside a graph", round, i,
                          launched(s, i)->blocks);
        CHECK_ZERO(finish(s));
    }
    perf_gpu_graph_free(s->gpu, graph);
    return regain(s, 0, &s->shared->sync, s->n);
}

/* A rank that holds the ledger's lock for long keeps nobody from calls. */
static int locked(struct stage *s)
{
    uint32_t *lock = &symm__near_control(s->ctx, 0)->budget.lock;

    if (s->rank == 0)
        __atomic_store_n(lock, 2, __ATOMIC_RELAXED);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int i = 0; i < STREAMS; i++)
        CHECK_ZERO(queue(s, s->rank % 2 ? STREAMS - 1 - i : i));
    CHECK_ZERO(finish(s));
    if (s->rank == 0)
        __atomic_store_n(lock, 0, __ATOMIC_RELAXED);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    return 0;
}

/* Until watchdogs have taken back the claim of a stream whose calls have ended. */
static int await_claim(const struct stage *s, int i)
{
    const double begin = harness_now();
    const uint16_t *claim =
        &symm__own_control(s->ctx)
             ->budget.claim[team_of(s, i)->slot][channel_of(s, i)->index];

    while (__atomic_load_n(claim, __ATOMIC_SEQ_CST) != 0) {
        CHECK(harness_now() - begin < SECONDS);
        harness_sleep(0.002);
    }
    return 0;
}

static void *hold(void *lock)
{
    harness_sleep(0.005);
    __atomic_store_n((uint32_t *)lock, 0, __ATOMIC_RELAXED);
    return NULL;
}

/* A rank holds the ledger's lock for milliseconds, as one does that has lost its core: the others'
 * calls wait for it, and have the whole grid. */
static int held(struct stage *s)
{
    uint32_t *lock = &symm__near_control(s->ctx, 0)->budget.lock, blocks = 0;
    pthread_t holder;

    for (int turn = 0; turn < 5 && blocks <= 1; turn++) { /* `hold` may be late, too */
        CHECK_ZERO(await_claim(s, 0));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        if (s->rank == 0) {
            __atomic_store_n(lock, 2, __ATOMIC_RELAXED);
            CHECK_ZERO(pthread_create(&holder, NULL, hold, lock));
        }
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        CHECK_ZERO(queue(s, 0));
        if (s->rank == 0)
            CHECK_ZERO(pthread_join(holder, NULL));
        CHECK_ZERO(finish(s));
        blocks = launched(s, 0)->blocks;
    }
    CHECK_MESSAGE(blocks == PROCESSORS - PROCESSORS / 8, "%u blocks", blocks);
    return 0;
}

/* A call that was granted blocks and not launched: the channel is idle, but the claim stays, since the
 * next call gets the same grant. */
static int returned(struct stage *s)
{
    const uint32_t full = PROCESSORS - PROCESSORS / 8;
    symm_team *team = team_of(s, 0);
    struct symm_team_channel *channel;
    const uint16_t *claim;
    uint32_t granted;

    CHECK_ZERO(queue(s, 0));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[0], SECONDS));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    CHECK_OK(symm__cuda_channel_find(team, s->stream[0], &channel));
    granted = symm__cuda_budget_acquire(channel, full);
    symm__cuda_budget_return(channel, full);
    symm__cuda_channel_leave(channel);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    pthread_mutex_lock(&s->ctx->launcher->lock);
    for (int i = 0; i < 3; i++)
        symm__cuda_budget_refresh(team);
    pthread_mutex_unlock(&s->ctx->launcher->lock);
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    claim = &symm__own_control(s->ctx)->budget.claim[team->slot][channel->index];
    CHECK_MESSAGE(granted >= full &&
                      __atomic_load_n(claim, __ATOMIC_SEQ_CST) >= granted,
                  "a claim of %u blocks, of which a call may have %u",
                  __atomic_load_n(claim, __ATOMIC_SEQ_CST), granted);
    CHECK_ZERO(queue(s, 0));
    CHECK(launched(s, 0)->blocks == full);
    return finish(s);
}

/* A call is captured, and its graph ends before it runs. */
static int discard(struct stage *s, int i)
{
    void *graph = NULL;

    CHECK_ZERO(perf_gpu_capture(s->gpu, s->stream[i]));
    CHECK_ZERO(queue(s, i));
    CHECK_ZERO(perf_gpu_captured(s->gpu, s->stream[i], &graph));
    perf_gpu_graph_free(s->gpu, graph);
    return 0;
}

/* The grid of such a call has no claim any more when another stream has the device: the next call of
 * its own stream, which has the same number, gets what is left. */
static int reclaimed(struct stage *s)
{
    uint32_t first, second;

    if (s->rank == 0)
        CHECK_ZERO(discard(s, 0));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    CHECK_ZERO(await_claim(s, 0));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 1; i >= 0 && turn == (s->rank != 0); i--)
            CHECK_ZERO(queue(s, i));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    }
    first = launched(s, 1)->blocks;
    second = launched(s, 0)->blocks;
    CHECK_MESSAGE(first == PROCESSORS - PROCESSORS / 8 && second <= PROCESSORS / 2,
                  "%u blocks on one stream, %u on the next", first, second);
    return finish(s);
}

/* Rank 0 captures calls more often than the others, as after a capture that failed. All ranks' later
 * calls still have the same grids. */
static int discarded(struct stage *s)
{
    for (int turn = 0; turn < 3; turn++) {
        CHECK_ZERO(reclaimed(s));
        CHECK_ZERO(in_turn(s));
        for (int i = 0; i < STREAMS && s->rank == 0; i++)
            CHECK_ZERO(discard(s, i));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        for (int i = 0; i < STREAMS; i++)
            CHECK_ZERO(await_claim(s, i));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        for (int k = 0; k < 3; k++)
            CHECK_ZERO(at_once(s));
        CHECK_ZERO(alone(s));
        CHECK_ZERO(in_turn(s));
    }
    return 0;
}

/* Three streams whose calls wait behind a wait each: the third has little room, so the second one's
 * next call of `count` elements is smaller; but not while a graph holds one of that stream's calls. The
 * first stream keeps the largest grid. */
static int fair(struct stage *s, bool captured, size_t count)
{
    const int to = (s->rank + 1) % s->n, from = (s->rank + s->n - 1) % s->n;
    uint32_t blocks[3], next, first;
    void *graph = NULL;

    for (int i = 0; i < STREAMS; i++)
        CHECK_ZERO(await_claim(s, i));
    CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
    for (int i = 0; i < 3; i++) {
        symm_call call = {.size = sizeof(call), .site = "gate", .stream = s->stream[i]};

        if (captured && i == 1) {
            CHECK_ZERO(perf_gpu_capture(s->gpu, s->stream[i]));
            CHECK_ZERO(queue(s, i));
            CHECK_ZERO(perf_gpu_captured(s->gpu, s->stream[i], &graph));
        }
        CHECK_OK(symm_signal_wait(s->team[0], from, i, &call, NULL));
        CHECK_ZERO(queue(s, i));
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        blocks[i] = launched(s, i)->blocks;
    }
    CHECK_ZERO(queue_some(s, 1, count));
    next = launched(s, 1)->blocks;
    CHECK_ZERO(queue(s, 0));
    first = launched(s, 0)->blocks;
    for (int i = 0; i < 3; i++) {
        symm_call call = {.size = sizeof(call), .site = "gate", .stream = s->stream[3]};

        CHECK_OK(symm_signal(s->team[0], to, i, &call, NULL));
    }
    CHECK_MESSAGE(
        first == blocks[0] && blocks[1] == 6 && blocks[2] == 1 &&
            next == (captured ? 6 : 4),
        "grids of %u, %u and %u blocks, the first two streams' next %u and %u",
        blocks[0], blocks[1], blocks[2], first, next);
    CHECK_ZERO(finish(s));
    perf_gpu_graph_free(s->gpu, graph);
    return 0;
}

static int grids(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg));
    for (int i = 0; i < 3; i++) {
        CHECK_ZERO(in_turn(&s));
        CHECK_ZERO(at_once(&s));
        CHECK_ZERO(alone(&s));
    }
    if (!ctx->exclusive) {
        CHECK_ZERO(captured(&s));
        CHECK_ZERO(in_turn(&s));
        CHECK_ZERO(locked(&s));
        CHECK_ZERO(in_turn(&s));
        CHECK_ZERO(held(&s));
        CHECK_ZERO(in_turn(&s));
        CHECK_ZERO(returned(&s));
        CHECK_ZERO(in_turn(&s));
        CHECK_ZERO(discarded(&s));
        CHECK_ZERO(fair(&s, false, COUNT));
        CHECK_ZERO(fair(&s, true, COUNT));
        CHECK_ZERO(fair(&s, false, MIDDLE));
    }
    CHECK_ZERO(in_turn(&s));
    stage_close(&s);
    return 0;
}

/* The last rank dies with the ledger's lock, beside a call that claims all devices: the others
 * have their grids again. */
static int death(symm_ctx *ctx, void *arg)
{
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg));
    if (s.rank < s.n - 1)
        CHECK_ZERO(queue(&s, 0)); /* on all ranks' team */
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    if (s.rank == s.n - 1) {
        __atomic_store_n(&symm__near_control(ctx, 0)->budget.lock, (uint32_t)s.n,
                         __ATOMIC_RELAXED);
        raise(SIGKILL);
    }
    (void)!symm_stream_synchronize(ctx, s.stream[0], SECONDS);
    CHECK_STATUS(symm_barrier(s.team[0], NULL, NULL), SYMM_ERR_PEER_DEAD);
    CHECK_ZERO(regain(&s, 2, &s.shared->pair, s.n - 1));
    CHECK(__atomic_load_n(&symm__near_control(ctx, 0)->budget.lock, __ATOMIC_RELAXED) !=
          (uint32_t)s.n);
    stage_close(&s);
    return 0;
}

static void test_death(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    if (device_real())
        skip();
    shared->dies = true;
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    assert_int_equal(
        harness_run(&(struct harness){
            .ranks = RANKS, .body = death, .arg = shared, .killed = 1u << (RANKS - 1)}),
        0);
    harness_shared_free(shared, sizeof(*shared));
}

/* A wait for a signal, a signal that triggers before that wait has ended, and a call. Is the call
 * made a dependent? */
static int behind_wait(struct stage *s, size_t count, bool *dependent)
{
    const int peer = 1 - s->rank;
    symm_call call = {.size = sizeof(call), .site = "wait", .stream = s->stream[0]},
              other = {.size = sizeof(other), .site = "wait", .stream = s->stream[1]};

    CHECK_OK(symm_signal_wait(s->team[0], peer, 0, &call, NULL));
    call.site = "signal";
    CHECK_OK(symm_signal(s->team[0], peer, 1, &call, NULL));
    CHECK_ZERO(queue_some(s, 0, count));
    *dependent = launched(s, 0)->args.flags & SYMM_CUDA_DEPENDENT;
    CHECK_OK(symm_signal(s->team[0], peer, 0, &other, NULL));
    return 0;
}

/* A large kernel is resident behind no kernel that may wait for a peer, also with a signal between
 * them. */
static int dependents(symm_ctx *ctx, void *arg)
{
    bool dependent;
    struct stage s;

    CHECK_ZERO(stage_open(&s, ctx, arg));
    CHECK_ZERO(behind_wait(&s, COUNT, &dependent));
    CHECK(!dependent);
    CHECK_ZERO(queue(&s, 0));
    CHECK(launched(&s, 0)->args.flags & SYMM_CUDA_DEPENDENT);
    CHECK_ZERO(behind_wait(&s, SMALL, &dependent));
    CHECK(dependent);
    CHECK_ZERO(queue(&s, 0));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream[0], SECONDS));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream[1], SECONDS));
    CHECK_ZERO(harness_sync_wait(&s.shared->sync, s.n));
    stage_close(&s);
    return 0;
}

static void test_dependents(void **state)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)state;
    if (device_real())
        skip();
    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    assert_int_equal(
        harness_run(&(struct harness){.ranks = 2, .body = dependents, .arg = shared}),
        0);
    harness_shared_free(shared, sizeof(*shared));
}

static int run(int ranks)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    int failed;

    setenv("FAKE_CUDA_PROCESSORS", "16", 1);
    failed =
        harness_run(&(struct harness){.ranks = ranks, .body = grids, .arg = shared});
    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

static void test_grids(void **state)
{
    (void)state;
    if (device_real())
        skip();
    assert_int_equal(run(2), 0);
    assert_int_equal(run(RANKS), 0);
}

static void test_exclusive(void **state)
{
    (void)state;
    if (device_real())
        skip();
    setenv("SYMM_EXCLUSIVE", "1", 1);
    assert_int_equal(run(2), 0);
    unsetenv("SYMM_EXCLUSIVE");
}

/* ---- A kernel for every share -------------------------------------------------------- */

/* A call that has a kernel has one of at most `blocks` blocks: the algorithm's own, or copy_in's where
 * that fills its scratch less often. */
static void check_share(struct symm_cuda_query ask, uint32_t blocks)
{
    struct symm_cuda_query staged = ask;
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    uint64_t rounds;

    if (!symm__cuda_kernel_find(&ask, &kernel, &shape))
        return;
    rounds = symm__cuda_kernel_rounds(&ask);
    assert_true(rounds > 0);
    ask.blocks = blocks;
    assert_true(symm__cuda_kernel_find(&ask, &kernel, &shape));
    assert_in_range(shape.blocks, 1, blocks);
    assert_in_range(shape.threads, 32, 1024);
    staged.algorithm = SYMM_ALGORITHM_COPY_IN;
    staged.by_pointer = false;
    if (symm__cuda_kernel_rounds(&staged) > rounds)
        rounds = symm__cuda_kernel_rounds(&staged);
    if (ask.kind != SYMM_KIND_ALL_REDUCE_NORM)
        assert_in_range(symm__cuda_kernel_rounds(&ask), 1, rounds);
}

static void test_shares(void **state)
{
    static const uint32_t shares[] = {1, 2, 5, 16, 58, 116, 132};
    static const symm_dtype dtypes[] = {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_INT32,
                                        SYMM_FLOAT64};
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    struct symm_cuda_query ask = {.op = SYMM_SUM, .processors = 132};

    (void)state;
    (void)symm__cuda_scratch_layout(0, SYMM_FEW_RANKS, scratch);
    for (int kind = 0; kind < SYMM_KIND_COUNT; kind++)
        for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
            for (ask.size = 1; ask.size <= SYMM_FEW_RANKS; ask.size++)
                for (ask.bytes = 0; ask.bytes < (uint64_t)1 << 33;
                     ask.bytes = 2 * ask.bytes + 13)
                    for (size_t i = 0; i < 4 * 7 * 2; i++) {
                        ask.kind = (enum symm_kind)kind;
                        ask.algorithm = (enum symm_algorithm)a;
                        ask.dtype = dtypes[i % 4];
                        ask.scratch = scratch[i / 28 ? SYMM_CHANNELS - 1 : 0];
                        check_share(ask, shares[i / 4 % 7]);
                    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),     cmocka_unit_test(test_grids),
        cmocka_unit_test(test_exclusive),  cmocka_unit_test(test_death),
        cmocka_unit_test(test_dependents),
    };

    device_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
