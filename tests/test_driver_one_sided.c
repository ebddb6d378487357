/* SPDX-License-Identifier: MIT */
/*
 * test_driver_one_sided.c - random programs of one-sided calls over the model of a device: puts,
 * gets and signals, by kernel and by copy engine, on teams that share streams. A seed makes one
 * list of calls for all ranks, in phases. Each rank makes a phase in its own way: call after call
 * with events between streams, in one graph of all its streams, or stream after stream, each
 * eagerly or in a graph; some phases two or three times. A put may take what an earlier call of its
 * stream has brought. All bytes are compared. SYMM_TEST_SEED=n: the first seed; SYMM_TEST_ROUNDS=n:
 * so many (20). ctest: cost 6
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"

#define RANKS   8
#define STREAMS 6
#define CALLS   40
#define TEAMS   3 /* the world, another one of all ranks, those of even or odd ranks */
#define PHASES  6
#define WORKS   256
#define MOST    ((size_t)73728) /* bytes of a call, with its offset */
#define SLOT                                                                           \
    (MOST + 128) /* where call k puts: slot 1 + k; slot 0 has what ranks begin with */
#define BYTES ((CALLS + 1) * SLOT)
#define BLANK 0xa5
#define ENGINE                                                                         \
    100 /* a copy-engine call's signal, counted from the stream's other one */

enum kind { PUT, PUT_THEN_SIGNAL, GET, SUM, COPY };

struct call {
    enum kind kind;
    int team, from, to, stream, phase;
    size_t bytes, source, place; /* source, place: in the areas of `from` and `to` */
    bool engine, private;        /* private: the source is no symmetric memory */
};

struct job {
    struct harness_sync sync;
    uint64_t seed;
    double timeout;
    int ranks, streams, processors, queues;
};

struct stage {
    struct device_rank r; /* first */
    struct job *job;
    symm_team *team[TEAMS];
    void *graph[PHASES * STREAMS];
    symm_work *work[WORKS];
    int graphs, works, count;
    uint64_t random; /* of this rank */
    struct call call[CALLS];
};

/* What a loop over a phase needs. */
struct phase {
    int first, end, times;
    int stream[STREAMS], streams; /* that this rank uses */
};

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)((unsigned)rank * 89 + i * 7 + (i >> 8) * 3 + (i >> 16));
}

static size_t random_below(uint64_t *random, size_t limit)
{
    return (size_t)(harness_random(random) % limit);
}

static size_t some_offset(uint64_t *random)
{
    return random_below(random, 3) ? 0 : random_below(random, 33);
}

/* ---- The list --------------------------------------------------------------------------- */

static int some_peer(uint64_t *random, int team, int from, int ranks)
{
    if (team == 2)
        return from % 2 +
               2 * (int)random_below(random, (size_t)(ranks - from % 2 + 1) / 2);
    return (int)random_below(random, (size_t)ranks);
}

/* Takes what the last call of the stream has brought to the sender, if one has. */
static void chain(struct call *c, const struct call *last, uint64_t *random)
{
    const size_t skip = random_below(random, 2) ? random_below(random, 32) : 0;

    if (!last || last->bytes <= skip)
        return;
    c->private = false;
    c->source = last->place + skip;
    if (c->bytes > last->bytes - skip)
        c->bytes = last->bytes - skip;
}

static void make_call(struct stage *s, int k, const struct call *last[RANKS][STREAMS],
                      uint64_t *random)
{
    static const enum kind kinds[] = {PUT, PUT, PUT, PUT_THEN_SIGNAL, GET, SUM, COPY};
    static const size_t sizes[] = {0,     1,     15,    16,    17,    4096,  8176,
                                   8191,  8192,  8193,  8208,  20000, 32752, 32767,
                                   32768, 32769, 32784, 65536, 70000};
    struct call *c = &s->call[k];

    c->kind = kinds[random_below(random, 7)];
    c->team = (int)random_below(random, TEAMS);
    c->stream = (int)random_below(random, (size_t)s->job->streams);
    c->from = (int)random_below(random, (size_t)s->job->ranks);
    c->to = some_peer(random, c->team, c->from, s->job->ranks);
    c->engine = random_below(random, 4) == 0;
    c->private = random_below(random, 3) == 0;
    c->bytes = sizes[random_below(random, 19)];
    c->source = some_offset(random);
    c->place = (size_t)(1 + k) * SLOT + some_offset(random);
    if (c->kind == SUM) { /* few calls of many blocks at once: they take all room */
        c->stream = 0;
        c->team = s->job->processors < 16 ? 0 : c->team;
        return;
    }
    if (c->kind == COPY)
        c->to = c->from;
    if (c->kind == GET)
        c->private = false;
    if (random_below(random, 2))
        chain(c, last[c->from][c->stream], random);
    last[c->to][c->stream] = c;
}

static void make_calls(struct stage *s)
{
    const struct call *last[RANKS][STREAMS] = {{NULL}};
    uint64_t random = s->job->seed * 77777u + 1;
    const int phases = 2 + (int)random_below(&random, PHASES - 1);

    s->count = 10 + (int)random_below(&random, CALLS - 9);
    for (int k = 0; k < s->count; k++) {
        make_call(s, k, last, &random);
        s->call[k].phase = k * phases / s->count;
    }
}

/* ---- A call ------------------------------------------------------------------------------ */

static bool has_part(const struct stage *s, const struct call *c)
{
    return c->kind == SUM || c->from == s->r.rank || c->to == s->r.rank;
}

/* The place in the call's team. */
static int place_of(const struct call *c, int rank)
{
    return c->team == 2 ? rank / 2 : rank;
}

/* Some calls have a handle. */
static symm_work **handle(struct stage *s)
{
    if (random_below(&s->random, 3) || s->works == WORKS)
        return NULL;
    return &s->work[s->works++];
}

static symm_status wait_for(struct stage *s, const struct call *c,
                            const symm_call *call)
{
    return symm_signal_wait(s->team[c->team], place_of(c, c->from),
                            c->stream + (c->engine ? ENGINE : 0), call, handle(s));
}

/* The part of the rank that begins the call. */
static symm_status send(struct stage *s, const struct call *c, const symm_call *call)
{
    const char *source = (c->private ? s->r.in.device : s->r.heap.device) + c->source;
    char *place = s->r.heap.device + c->place;
    symm_team *team = s->team[c->team];
    const int to = place_of(c, c->to), signal = c->stream + (c->engine ? ENGINE : 0);
    symm_status status = SYMM_OK;

    if (c->kind == COPY)
        return c->bytes == 0 ? SYMM_OK
                             : perf_gpu_copy_later(s->r.gpu, place, source, c->bytes,
                                                   call->stream);
    if (c->kind == PUT)
        return symm_put_signal(team, place, source, c->bytes, to, signal, call,
                               handle(s));
    if (c->kind == PUT_THEN_SIGNAL)
        status = symm_put(team, place, source, c->bytes, to, call, handle(s));
    return status == SYMM_OK ? symm_signal(team, to, signal, call, handle(s)) : status;
}

static symm_status make(struct stage *s, const struct call *c)
{
    static const char *const sites[STREAMS] = {"a", "b", "c", "d", "e", "f"};
    symm_call call = {.size = sizeof(call),
                      .site = sites[c->stream],
                      .stream = s->r.streams[c->stream],
                      .algorithm = c->engine && c->kind != SUM ? "copy_engine" : NULL,
                      .timeout = s->job->timeout};
    symm_status status = SYMM_OK;

    if (c->kind == SUM)
        return symm_all_reduce(s->team[c->team], s->r.in.device,
                               s->r.out.device + c->place / 16 * 16, c->bytes / 4,
                               SYMM_INT32, SYMM_SUM, &call, handle(s));
    if (c->from == s->r.rank)
        status = send(s, c, &call);
    if (status == SYMM_OK && c->kind != COPY && c->to == s->r.rank)
        status = wait_for(s, c, &call);
    if (status == SYMM_OK && c->kind == GET && c->to == s->r.rank)
        status = symm_get(s->team[c->team], s->r.heap.device + c->place,
                          s->r.heap.device + c->source, c->bytes, place_of(c, c->from),
                          &call, handle(s));
    return status;
}

/* ---- Phases ------------------------------------------------------------------------------ */

static int order(struct stage *s, int before, int after)
{
    if (before != after)
        CHECK_OK(perf_gpu_order(s->r.gpu, s->r.streams[before], s->r.streams[after]));
    return 0;
}

/* Call after call, with events between streams. */
static int by_call(struct stage *s, const struct phase *p)
{
    for (int k = p->first; k < p->end; k++) {
        if (!has_part(s, &s->call[k]))
            continue;
        CHECK_OK(make(s, &s->call[k]));
        if (random_below(&s->random, 3) == 0)
            CHECK_ZERO(order(s, p->stream[random_below(&s->random, (size_t)p->streams)],
                             p->stream[random_below(&s->random, (size_t)p->streams)]));
    }
    return 0;
}

static int replay(struct stage *s, int stream, int times)
{
    CHECK_OK(perf_gpu_captured(s->r.gpu, s->r.streams[stream], &s->graph[s->graphs]));
    for (int i = 0; i < times; i++)
        CHECK_OK(perf_gpu_replay(s->r.gpu, s->graph[s->graphs], s->r.streams[stream]));
    s->graphs++;
    return 0;
}

/* One graph, with forks to all streams and joins. */
static int by_graph(struct stage *s, const struct phase *p)
{
    const int origin = p->stream[random_below(&s->random, (size_t)p->streams)];

    for (int i = 0; i < p->streams; i++)
        CHECK_ZERO(order(s, p->stream[i], origin));
    CHECK_OK(perf_gpu_capture(s->r.gpu, s->r.streams[origin]));
    for (int i = 0; i < p->streams; i++)
        CHECK_ZERO(order(s, origin, p->stream[i]));
    CHECK_ZERO(by_call(s, p));
    for (int i = 0; i < p->streams; i++)
        CHECK_ZERO(order(s, p->stream[i], origin));
    CHECK_ZERO(replay(s, origin, p->times));
    for (int i = 0; i < p->streams; i++)
        CHECK_ZERO(order(s, origin, p->stream[i]));
    return 0;
}

static int one_stream(struct stage *s, const struct phase *p, int stream, bool capture)
{
    if (capture)
        CHECK_OK(perf_gpu_capture(s->r.gpu, s->r.streams[stream]));
    for (int i = 0; i < (capture ? 1 : p->times); i++)
        for (int k = p->first; k < p->end; k++)
            if (s->call[k].stream == stream && has_part(s, &s->call[k]))
                CHECK_OK(make(s, &s->call[k]));
    if (capture)
        CHECK_ZERO(replay(s, stream, p->times));
    return 0;
}

/* Stream after stream, in the rank's own order. graphs: a random number that says which are
 * captured: a sum is captured on all ranks, or on none. */
static int by_stream(struct stage *s, struct phase *p, uint64_t graphs)
{
    for (int left = p->streams; left > 0; left--) {
        const size_t i = random_below(&s->random, (size_t)left);
        const int stream = p->stream[i];

        p->stream[i] = p->stream[left - 1];
        CHECK_ZERO(one_stream(s, p, stream, graphs >> stream & 1));
    }
    return 0;
}

static void add_stream(struct phase *p, int stream)
{
    for (int i = 0; i < p->streams; i++)
        if (p->stream[i] == stream)
            return;
    p->stream[p->streams++] = stream;
}

/* From the first call on. *end: the first one of the next phase. */
static int run_phase(struct stage *s, int first, int *end)
{
    struct phase p = {.first = first, .end = first};
    uint64_t shared = s->job->seed * 37 + (uint64_t)first, way;
    bool sums = false;

    for (; p.end < s->count && s->call[p.end].phase == s->call[first].phase; p.end++) {
        sums |= s->call[p.end].kind == SUM;
        if (has_part(s, &s->call[p.end]))
            add_stream(&p, s->call[p.end].stream);
    }
    *end = p.end;
    p.times = 1 + (int)(random_below(&shared, 2) * random_below(&shared, 3));
    way = harness_random(sums ? &shared : &s->random);
    if (p.streams == 0)
        return 0;
    if (way % 4 < 2 && s->job->queues == 32) /* no stream holds up another's queue */
        return by_stream(s, &p, way >> 8);
    if (way % 2)
        return by_graph(s, &p);
    for (int i = 0; i < p.times; i++)
        CHECK_ZERO(by_call(s, &p));
    return 0;
}

/* ---- Results ----------------------------------------------------------------------------- */

static int check_sum(const struct stage *s, const struct call *c)
{
    const unsigned char *out =
        (const unsigned char *)s->r.out.host + c->place / 16 * 16;

    for (size_t i = 0; i < c->bytes / 4; i++) {
        uint32_t sum = 0, got;

        for (int r = 0; r < s->job->ranks; r++)
            for (size_t b = 0; b < 4 && (c->team < 2 || r % 2 == s->r.rank % 2); b++)
                sum += (uint32_t)byte_of(r, 4 * i + b) << 8 * b;
        memcpy(&got, out + 4 * i, sizeof(got));
        CHECK_MESSAGE(got == sum, "seed %llu: sum %d, element %zu",
                      (unsigned long long)s->job->seed, (int)(c - s->call), i);
    }
    return 0;
}

/* heaps: of all ranks, as they were at the beginning. */
static int check(struct stage *s, unsigned char *heaps)
{
    for (int k = 0; k < s->count; k++) {
        const struct call *c = &s->call[k];

        if (c->kind == SUM)
            CHECK_ZERO(check_sum(s, c));
        else
            memcpy(heaps + (size_t)c->to * BYTES + c->place,
                   heaps + (size_t)c->from * BYTES + c->source, c->bytes);
    }
    for (size_t i = 0; i < BYTES; i++)
        CHECK_MESSAGE((unsigned char)s->r.heap.host[i] ==
                          heaps[(size_t)s->r.rank * BYTES + i],
                      "seed %llu: byte %zu at call %d",
                      (unsigned long long)s->job->seed, i % SLOT, (int)(i / SLOT) - 1);
    return 0;
}

static void begin_with(unsigned char *heap, int rank)
{
    memset(heap, BLANK, BYTES);
    for (size_t i = 0; i < MOST; i++)
        heap[i] = byte_of(rank, i);
}

static int check_all(struct stage *s)
{
    unsigned char *heaps = malloc((size_t)s->job->ranks * BYTES);
    int failed;

    CHECK(heaps != NULL);
    for (int r = 0; r < s->job->ranks; r++)
        begin_with(heaps + (size_t)r * BYTES, r);
    CHECK_ZERO(device_get(&s->r.out, 0, BYTES));
    CHECK_ZERO(device_get(&s->r.heap, 0, BYTES));
    failed = check(s, heaps);
    free(heaps);
    return failed;
}

static int end_calls(struct stage *s)
{
    bool done;

    for (int i = 0; i < s->works; i++) { /* a captured call's handle has no outcome */
        if (symm_work_query(s->work[i], &done) != SYMM_ERR_UNSUPPORTED)
            CHECK_OK(symm_work_synchronize(s->work[i], HARNESS_AMPLE));
        symm_work_release(s->work[i]);
    }
    for (int i = 0; i < s->r.count; i++)
        CHECK_OK(symm_stream_synchronize(s->r.ctx, s->r.streams[i], HARNESS_AMPLE));
    for (int t = 0; t < TEAMS; t++) /* tells of an error of the calls above */
        CHECK_OK(symm_barrier(s->team[t], NULL, NULL));
    CHECK_OK(symm_stream_synchronize(s->r.ctx, NULL, HARNESS_AMPLE));
    return 0;
}

static int run_all(struct stage *s)
{
    make_calls(s);
    CHECK_ZERO(harness_sync_wait(&s->job->sync, s->r.n));
    for (int k = 0; k < s->count;)
        CHECK_ZERO(run_phase(s, k, &k));
    CHECK_ZERO(end_calls(s));
    CHECK_ZERO(check_all(s));
    return harness_sync_wait(&s->job->sync, s->r.n);
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct stage s = {.job = job};

    CHECK_ZERO(device_rank_open(&s.r, ctx, MOST, BYTES, BYTES, job->streams));
    s.random = job->seed * 1000003u + (uint64_t)s.r.rank * 7919u;
    begin_with((unsigned char *)s.r.heap.host, s.r.rank);
    memcpy(s.r.in.host, s.r.heap.host, MOST);
    CHECK_ZERO(device_put(&s.r.in, 0, MOST));
    CHECK_ZERO(device_put(&s.r.heap, 0, BYTES));
    s.team[0] = s.r.team;
    CHECK_OK(symm_team_split(s.r.team, 0, s.r.rank, &s.team[1]));
    CHECK_OK(symm_team_split(s.r.team, s.r.rank % 2, s.r.rank, &s.team[2]));
    CHECK_ZERO(run_all(&s));
    for (int i = 0; i < s.graphs; i++)
        perf_gpu_graph_free(s.r.gpu, s.graph[i]);
    for (int t = 1; t < TEAMS; t++)
        symm_team_destroy(s.team[t]);
    device_rank_close(&s.r);
    return 0;
}

/* ---- Runs -------------------------------------------------------------------------------- */

static void set(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static int run(uint64_t seed, double timeout)
{
    static const int processors[] = {8, 16, 132}, queues[] = {1, 8, 32};
    struct job *job = harness_shared(sizeof(*job));
    uint64_t random = seed * 3;
    int failed;

    job->seed = seed;
    job->timeout = timeout;
    job->ranks = 1 + (int)random_below(&random, random_below(&random, 4) ? 3 : RANKS);
    job->streams = 1 + (int)random_below(&random, STREAMS);
    job->processors = processors[random_below(&random, 3)];
    job->queues = queues[random_below(&random, 3)];
    set("FAKE_CUDA_MODEL", random_below(&random, 4) != 0);
    set("FAKE_CUDA_PROCESSORS", job->processors);
    set("CUDA_DEVICE_MAX_CONNECTIONS", job->queues);
    failed = harness_run(&(struct harness){.ranks = job->ranks,
                                           .body = body,
                                           .arg = job,
                                           .team_bytes = (size_t)128 << 20});
    harness_shared_free(job, sizeof(*job));
    return failed;
}

static void test_random(void **state)
{
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    const int rounds = (int)harness_env("SYMM_TEST_ROUNDS", 20);

    (void)state;
    setenv("FAKE_CUDA_REGISTERS", "64",
           1); /* a put of 512 threads finds room beside waits */
    setenv("SYMM_QUEUE_TIMEOUT", "0.001", 1); /* a deadlock ends at the deadline */
    for (int i = 0; i < rounds; i++) {
        double timeout;
        int failed = 1;

        HARNESS_PATIENCE(timeout, 5.0)
        {
            failed = run(seed + (uint64_t)i, timeout);
            if (!failed)
                break;
            printf("seed %llu: again\n", (unsigned long long)seed + (unsigned)i);
        }
        assert_int_equal(failed, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

    device_suite();
    if (device_real())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
