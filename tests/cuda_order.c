/* SPDX-License-Identifier: MIT */
/*
 * cuda_order.c - see cuda_order.h.
 */
#include "cuda_order.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

#if SYMM_HAVE_CUDA
#include "norm/expect.h"
#include "user_kernels.h"

#define MOST   ((size_t)64 << 10)  /* elements of an input, times scale() */
#define HIDDEN ((size_t)4096)      /* columns of an all_reduce_norm's rows */
#define ROWS   ((size_t)58)        /* at most */
#define ROWED  (ROWS * HIDDEN * 2) /* bytes of such an array */

static const char *const algorithms[] = {
    NULL,      "copy_in",      "one_shot_pull", "two_shot_pull", "two_shot_inplace",
    "ll_push", "lamport_push", "two_shot_push"};
#define ALGORITHMS ((int)(sizeof(algorithms) / sizeof(*algorithms)))

struct setting {
    const struct run *run;
    uint64_t seed; /* of this round */
    int round;
    symm_ctx *ctx;
    struct perf_gpu *gpu;
    struct user_kernels kernels;
    int rank;
    symm_team *team[TEAMS];
    void *stream[STREAMS + 1]; /* the last: the other library's */
    struct planned plan[STREAMS][DEEP];
    struct device_area in[TEAMS][STREAMS], out[TEAMS][STREAMS], words;
    struct device_area norm_in[STREAMS], norm_out[STREAMS]; /* with run.norm */
    symm_work *work[STREAMS][DEEP];
};

/* A GPU has more multiprocessors than the fake device. */
static size_t scale(void)
{
    return device_real() ? 32 : 1;
}

/* ---- Values ---------------------------------------------------------------------- */

static float value_of(int rank, int stream, size_t i)
{
    return (float)(((size_t)rank + 1) * (1 + i % 5) + (size_t)stream);
}

static float sum_of(int ranks, int stream, size_t i)
{
    float sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += value_of(r, stream, i);
    return sum;
}

static bool gathers(enum kind kind)
{
    return kind == ALL_GATHER || kind == ALL_TO_ALL;
}

static float wanted(const struct setting *s, const struct planned *p, int stream,
                    size_t i)
{
    const size_t mine = (size_t)s->rank * p->count;
    const int from = (int)(i / p->count);

    switch (p->kind) {
    case ALL_REDUCE:
        return sum_of(s->run->ranks, stream, i);
    case REDUCE_SCATTER:
        return sum_of(s->run->ranks, stream, mine + i);
    case ALL_GATHER:
        return value_of(from, stream, i % p->count);
    case BROADCAST:
        return value_of(0, stream, i);
    default:
        return value_of(from, stream, mine + i % p->count);
    }
}

static void fill_norm(int rank, int stream, size_t count, void *to)
{
    norm_fill(SYMM_BFLOAT16, 100 * (uint64_t)stream + (uint64_t)rank + 1, 2, count, to);
}

/* A call's outputs lie one after the other; `in` and `out` may be the device's or the host's. */
static symm_norm norm_of(const struct setting *s, int stream, int k, const char *in,
                         char *out)
{
    char *sum = out + (size_t)k * 2 * ROWED;

    return (symm_norm){.size = sizeof(symm_norm),
                       .rows = s->plan[stream][k].rows,
                       .hidden = HIDDEN,
                       .dtype = SYMM_BFLOAT16,
                       .eps = 1e-5f,
                       .in = in,
                       .sum_out = sum,
                       .norm_out = sum + ROWED};
}

static int check_norm(const struct setting *s, int stream, int k)
{
    const struct device_area *out = &s->norm_out[stream];
    const symm_norm norm = norm_of(s, stream, k, NULL, out->host);
    char *memory = malloc((size_t)s->run->ranks * ROWED);
    const void *in[RANKS];
    struct norm_error error;
    size_t wrong;

    CHECK(memory != NULL);
    CHECK_ZERO(device_get(out, (size_t)k * 2 * ROWED, 2 * ROWED));
    for (int r = 0; r < s->run->ranks; r++) {
        in[r] = memory + (size_t)r * ROWED;
        fill_norm(r, stream, norm.rows * HIDDEN, memory + (size_t)r * ROWED);
    }
    wrong = norm_wrong(&norm, in, s->run->ranks, NORM_UNITS, &error);
    free(memory);
    CHECK_MESSAGE(
        wrong == 0,
        "seed %llu: stream %d, call %d, all_reduce_norm of %u rows: %zu wrong, "
        "%s[%zu][%zu] is %g, not %g",
        (unsigned long long)s->seed, stream, k, s->plan[stream][k].rows, wrong,
        error.array, error.row, error.column, error.found, error.wanted);
    return 0;
}

static int check_values(const struct setting *s, int stream, int k)
{
    const struct planned *p = &s->plan[stream][k];
    const size_t count = p->count * (gathers(p->kind) ? (size_t)s->run->ranks : 1);
    const size_t at = (size_t)k * MOST * scale() * sizeof(float);
    const struct device_area *area = &s->out[p->team][stream];
    const float *out = (const float *)(const void *)(area->host + at);

    if (p->rows > 0)
        return check_norm(s, stream, k);
    CHECK_ZERO(device_get(area, at, count * sizeof(float)));
    for (size_t i = 0; i < count; i++)
        CHECK_MESSAGE(out[i] == wanted(s, p, stream, i),
                      "seed %llu: stream %d, call %d, %s of %zu: element %zu is %g, "
                      "not %g",
                      (unsigned long long)s->seed, stream, k, kind_names[p->kind],
                      p->count, i, (double)out[i], (double)wanted(s, p, stream, i));
    return 0;
}

/* ---- Calls ----------------------------------------------------------------------- */

static symm_status call_with(const struct setting *s, int stream, int k,
                             const char *algorithm, symm_work **work)
{
    static const char *const sites[STREAMS] = {"first",  "second", "third",
                                               "fourth", "fifth",  "sixth"};
    const struct planned *p = &s->plan[stream][k];
    symm_team *team = s->team[p->team];
    const void *in = s->in[p->team][stream].device;
    void *out =
        s->out[p->team][stream].device + (size_t)k * MOST * scale() * sizeof(float);
    const struct reference_call made = {p->kind, SYMM_FLOAT32, SYMM_SUM, p->count, 0,
                                        0};
    symm_call call = {.size = sizeof(call),
                      .site = sites[stream],
                      .stream = s->stream[stream],
                      .algorithm = algorithm,
                      .timeout = s->run->timeout};
    symm_norm norm;

    if (p->rows > 0) {
        norm = norm_of(s, stream, k, s->norm_in[stream].device,
                       s->norm_out[stream].device);
        call.algorithm = NULL; /* none of those above makes such a call */
        return symm_all_reduce_norm(team, &norm, &call, work);
    }
    return reference_invoke(&made, team, in, out, &call, work);
}

/* Without a handle a call that fails is told by a later call on its team. */
static bool needs_handle(const struct setting *s, int stream, int k)
{
    for (int later = k + 1; later < s->run->deep; later++)
        if (s->plan[stream][later].team == s->plan[stream][k].team)
            return s->plan[stream][k].handle;
    return true;
}

/* An algorithm that cannot do the call is refused on all ranks, which take another. */
static symm_status queue_call(struct setting *s, int stream, int k)
{
    const char *algorithm = algorithms[s->plan[stream][k].algorithm];
    symm_work **work = needs_handle(s, stream, k) ? &s->work[stream][k] : NULL;
    symm_status status = call_with(s, stream, k, algorithm, work);

    if (algorithm && (status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED))
        status = call_with(s, stream, k, NULL, work);
    return status;
}

static unsigned processors_of(const struct run *run)
{
    return run->processors ? (unsigned)run->processors : PROCESSORS;
}

static int queue_nccl(const struct setting *s)
{
    const int next = (s->rank + 1) % s->run->ranks;
    uint32_t *own = (uint32_t *)(void *)s->words.device;
    uint32_t *peer = symm_buffer_peer_ptr(s->words.buffer, next);

    CHECK(peer != NULL);
    CHECK_ZERO(user_kernels_meet(
        &s->kernels, s->stream[STREAMS], processors_of(s->run) / 8, 640, own, peer,
        (uint32_t)s->round + 1, own + 64, 2 * s->run->timeout));
    if (s->run->apart && s->rank > 0)
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[STREAMS], HARNESS_AMPLE));
    return 0;
}

/* How far a rank has come with the streams' lists; the last is the other library's. */
struct turns {
    uint64_t random;
    bool whole; /* one list after another, not call by call */
    int done[STREAMS + 1];
    int stream; /* the last */
};

static int length_of(const struct run *run, int stream)
{
    return stream == STREAMS ? run->nccl : run->deep;
}

/* The first of `count` rising numbers from `from` on, or else the first. */
static int first_from(const int *open, int count, int from)
{
    for (int i = 0; i < count; i++)
        if (open[i] >= from)
            return open[i];
    return open[0];
}

/* The stream whose next call is queued next; negative: all is queued. */
static int take_turn(const struct setting *s, struct turns *t)
{
    const struct run *run = s->run;
    int open[STREAMS + 1], count = 0;

    for (int i = 0; i <= STREAMS; i++)
        if ((i < run->streams || i == STREAMS) && t->done[i] < length_of(run, i))
            open[count++] = i;
    if (count == 0)
        return -1;
    if (run->apart && s->rank > 0 && open[count - 1] == STREAMS)
        return STREAMS;
    if (run->apart)
        count -= count > 1 && open[count - 1] == STREAMS;
    if (run->one && run->ranks > 2) /* each rank begins with another stream */
        return first_from(open, count, s->rank);
    if (run->one) /* rank 0 by rising streams, rank 1 by falling ones */
        return open[s->rank % 2 ? count - 1 : 0];
    if (t->whole && t->stream >= 0 && t->done[t->stream] < length_of(run, t->stream))
        return t->stream;
    return open[harness_random(&t->random) % (unsigned)count];
}

static symm_status queue_next(struct setting *s, int stream, int k)
{
    symm_status status;

    if (stream == STREAMS)
        return queue_nccl(s) ? SYMM_ERR_SYSTEM : SYMM_OK;
    status = queue_call(s, stream, k);
    if (status == SYMM_OK && s->run->behind &&
        user_kernels_last(&s->kernels, s->stream[stream], device_real() ? 132 : 4, 1024,
                          20e-6))
        status = SYMM_ERR_SYSTEM;
    return status;
}

/* By the rank's own order. The status of the first call that could not be queued. */
static symm_status queue_all(struct setting *s)
{
    const struct run *run = s->run;
    struct turns t = {.random = s->seed * 1000003u +
                                (run->same ? 0 : (uint64_t)s->rank * 7919u),
                      .stream = -1};

    t.whole = harness_random(&t.random) % 4 != 0;
    while ((t.stream = take_turn(s, &t)) >= 0) {
        symm_status status = queue_next(s, t.stream, t.done[t.stream]++);

        if (status != SYMM_OK)
            return status;
        /* Whether what was queued is resident before the next is, is the device's race. */
        if (run->one || harness_random(&t.random) % 8 == 0)
            harness_sleep(run->one ? 0.05 : 0.003);
    }
    return SYMM_OK;
}

/* ---- A rank ---------------------------------------------------------------------- */

static void make_plan(struct setting *s)
{
    static const size_t counts[] = {64, 1000, 2048, 16384, 21000, 21333};
    /* Of clusters on 72 multiprocessors, but for the last: up to 9 rows let dependents in at once. */
    static const uint32_t rows[] = {1, 8, 9, 10, 14, 20, 31, ROWS};
    uint64_t random = s->seed;

    for (int i = 0; i < STREAMS * DEEP; i++) {
        struct planned *p = &s->plan[i / DEEP][i % DEEP];

        p->team = (int)(harness_random(&random) % (unsigned)s->run->teams);
        p->algorithm = (int)(harness_random(&random) % ALGORITHMS);
        p->kind = (enum kind)(harness_random(&random) % KINDS);
        p->count = counts[harness_random(&random) % 6];
        p->handle = harness_random(&random) % 4 == 0;
        p->rows = s->run->norm && harness_random(&random) % 2
                      ? rows[harness_random(&random) % 8]
                      : 0;
        if (s->run->one) {
            *p = *s->run->one;
            p->team = s->run->deep > 1 ? i % DEEP * s->run->teams / DEEP
                                       : i / DEEP % s->run->teams;
        }
        p->count *= scale();
    }
}

static int open_team(struct setting *s, int t)
{
    const size_t bytes = MOST * scale() * sizeof(float);

    CHECK_OK(symm_team_split(symm_team_world(s->ctx), 0, s->rank, &s->team[t]));
    for (int i = 0; i < s->run->streams; i++) {
        struct device_area *area = &s->in[t][i];
        float *in;

        CHECK_ZERO(device_area_open(area, s->gpu, s->team[t], bytes));
        in = (float *)(void *)area->host;
        for (size_t j = 0; j < bytes / sizeof(float); j++)
            in[j] = value_of(s->rank, i, j);
        CHECK_ZERO(device_put(area, 0, bytes));
        CHECK_ZERO(device_area_open(&s->out[t][i], s->gpu, s->team[t], DEEP * bytes));
    }
    return 0;
}

static int open_norms(struct setting *s)
{
    for (int i = 0; i < s->run->streams; i++) {
        CHECK_ZERO(device_area_open(&s->norm_in[i], s->gpu, NULL, ROWED));
        fill_norm(s->rank, i, ROWS * HIDDEN, s->norm_in[i].host);
        CHECK_ZERO(device_put(&s->norm_in[i], 0, ROWED));
        CHECK_ZERO(device_area_open(&s->norm_out[i], s->gpu, NULL, DEEP * 2 * ROWED));
    }
    return 0;
}

static int open_setting(struct setting *s, symm_ctx *ctx, const struct run *run)
{
    memset(s, 0, sizeof(*s));
    s->run = run;
    s->ctx = ctx;
    s->rank = harness_rank();
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(user_kernels_open(&s->kernels));
    for (int i = 0; i < run->streams; i++)
        CHECK_OK(symm_stream_create(ctx, &s->stream[i]));
    for (int t = 0; t < run->teams; t++)
        CHECK_ZERO(open_team(s, t));
    if (run->norm)
        CHECK_ZERO(open_norms(s));
    CHECK_OK(symm_stream_create(ctx, &s->stream[STREAMS]));
    CHECK_ZERO(device_area_open(&s->words, s->gpu, s->team[0], 4096));
    CHECK_ZERO(device_put(&s->words, 0, 4096));
    for (int t = 0; t < run->teams; t++)
        CHECK_OK(symm_rendezvous(s->team[t]));
    return 0;
}

static void close_setting(struct setting *s)
{
    for (int i = 0; i < s->run->streams; i++) {
        symm_stream_destroy(s->ctx, s->stream[i]);
        for (int t = 0; t < s->run->teams; t++) {
            device_area_close(&s->in[t][i]);
            device_area_close(&s->out[t][i]);
        }
        device_area_close(&s->norm_in[i]);
        device_area_close(&s->norm_out[i]);
    }
    symm_stream_destroy(s->ctx, s->stream[STREAMS]);
    device_area_close(&s->words);
    user_kernels_close(&s->kernels);
    for (int t = 0; t < s->run->teams; t++)
        symm_team_destroy(s->team[t]);
    perf_gpu_close(s->gpu);
}

/* The first use of each stream with each team, which numbers the channels. */
static int use_first(struct setting *s)
{
    for (int i = 0; i < s->run->streams; i++)
        for (int t = 0; t < s->run->teams; t++) {
            symm_call call = {.size = sizeof(call), .stream = s->stream[i]};

            CHECK_OK(symm_barrier(s->team[t], &call, NULL));
            CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], HARNESS_AMPLE));
        }
    CHECK_ZERO(harness_sync_wait(s->run->sync, s->run->ranks));
    return 0;
}

static const char *sentence(const struct setting *s)
{
    const char *text = "";

    for (int i = 0; i < s->run->streams; i++)
        for (int k = 0; k < s->run->deep && !*text; k++)
            text = s->work[i][k] ? symm_work_error(s->work[i][k]) : "";
    return text;
}

/* A call that says it went well has the right values, whatever became of others. */
static int judge_failure(const struct setting *s, const char *text)
{
    const struct run *run = s->run;

    CHECK_MESSAGE(run->may_fail,
                  "seed %llu, %d teams x %d streams, %d deep, %d connections: %s",
                  (unsigned long long)s->seed, run->teams, run->streams, run->deep,
                  run->connections, text);
    CHECK_MESSAGE(
        strstr(text, "CUDA_DEVICE_MAX_CONNECTIONS") &&
            (strstr(text, "first") || strstr(text, "second") || strstr(text, "third")),
        "site or cause is missing: %s", text);
    for (int i = 0; i < run->streams; i++)
        for (int k = 0; k < run->deep; k++)
            if (s->work[i][k] && !*symm_work_error(s->work[i][k]))
                CHECK_ZERO(check_values(s, i, k));
    return 0;
}

/* For those who look for the cause of a wait. */
static void tell_state(const struct setting *s)
{
    void *driver = device_real() ? NULL : dlopen(SYMM_FAKE_CUDA, RTLD_NOW);
    void (*state)(FILE * out) = NULL;

    if (driver)
        state = (void (*)(FILE *))dlsym(driver, "fake_cuda_state");
    fprintf(stderr, "rank %d, seed %llu: a stream takes long\n", s->rank,
            (unsigned long long)s->seed);
    if (state)
        state(stderr);
}

/* Every stream comes to its end within the deadlines of what it holds. */
static int finish(struct setting *s, bool *failed)
{
    const double most = 12 * s->run->timeout + HARNESS_SOON;
    char text[1024] = "";

    if (queue_all(s) != SYMM_OK)
        snprintf(text, sizeof(text), "%s", symm_last_error());
    for (int i = 0; i < s->run->streams && harness_env("SYMM_TEST_STATE", 0) == 1; i++)
        if (symm_stream_synchronize(s->ctx, s->stream[i], s->run->timeout / 2) !=
            SYMM_OK) {
            tell_state(s);
            break;
        }
    for (int i = 0; i < s->run->streams; i++)
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[i], most));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[STREAMS], most));
    if (!*text)
        snprintf(text, sizeof(text), "%s", sentence(s));
    *failed = *text != '\0';
    if (*failed)
        CHECK_ZERO(judge_failure(s, text));
    return 0;
}

static int check_round(struct setting *s)
{
    const struct run *run = s->run;
    const uint32_t *words = (const uint32_t *)(const void *)s->words.host;

    for (int i = 0; i < run->streams; i++)
        for (int k = 0; k < run->deep; k++)
            CHECK_ZERO(check_values(s, i, k));
    CHECK_ZERO(device_get(&s->words, 0, 4096));
    CHECK_MESSAGE(words[64] == 0, "seed %llu: the other library's kernel met nobody",
                  (unsigned long long)s->seed);
    for (int t = 0; t < run->teams; t++) {
        symm_call call = {.size = sizeof(call), .stream = s->stream[0]};

        CHECK_OK(symm_barrier(s->team[t], &call, NULL));
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream[0], HARNESS_AMPLE));
    }
    CHECK_ZERO(harness_sync_wait(run->sync, run->ranks));
    return 0;
}

static void release_works(struct setting *s)
{
    for (int i = 0; i < STREAMS * DEEP; i++) {
        symm_work_release(s->work[i / DEEP][i % DEEP]);
        s->work[i / DEEP][i % DEEP] = NULL;
    }
}

static int rank_body(symm_ctx *ctx, void *arg)
{
    const struct run *run = arg;
    struct setting s;
    bool failed = false;

    CHECK_ZERO(open_setting(&s, ctx, run));
    CHECK_ZERO(use_first(&s));
    for (s.round = 0; s.round == 0 || (s.round < run->rounds && !failed); s.round++) {
        s.seed = run->seed + (uint64_t)s.round;
        make_plan(&s);
        CHECK_ZERO(finish(&s, &failed));
        if (!failed)
            CHECK_ZERO(check_round(&s));
        release_works(&s);
    }
    close_setting(&s);
    return 0;
}

/* ---- Runs ------------------------------------------------------------------------- */

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

int order_runs(struct run run)
{
    int failed = 1;

    setenv("FAKE_CUDA_MODEL", "1", 1);
    set_number("FAKE_CUDA_PROCESSORS", run.processors ? run.processors : PROCESSORS);
    set_number("CUDA_DEVICE_MAX_CONNECTIONS", run.connections);
    setenv("SYMM_QUEUE_TIMEOUT", "0.001", 1); /* a deadlock ends at the deadline */
    run.ranks = device_ranks(run.ranks);
    run.sync = harness_shared(sizeof(*run.sync));
    HARNESS_PATIENCE(run.timeout, 3.0)
    {
        memset(run.sync, 0, sizeof(*run.sync));
        failed = harness_run(&(struct harness){.ranks = run.ranks,
                                               .body = rank_body,
                                               .arg = &run,
                                               .heap_bytes = (size_t)2 << 30,
                                               .team_bytes = (size_t)512 << 20});
        if (!failed)
            break;
        printf("seed %llu: again with a longer deadline\n",
               (unsigned long long)run.seed);
    }
    harness_shared_free(run.sync, sizeof(*run.sync));
    return failed;
}
#endif

int order_variants(struct run run)
{
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 1);
    int failed = 0;

    run.rounds = (int)harness_env("SYMM_TEST_ROUNDS", run.rounds);
    for (int i = 0; i < 4; i++) {
        run.seed = seed + (uint64_t)(i * run.rounds);
        run.teams = 1 + i / 2 % TEAMS;
        run.deep = run.same ? 1 : i % 2 ? DEEP : 2;
        run.behind = i != 1;
        run.nccl = i != 2;
        failed += order_runs(run) != 0;
    }
    return failed;
}
