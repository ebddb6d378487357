/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wide_blocks.c - reduce_scatter, all_gather and broadcast over several hosts in
 * chunks, as test_driver_wide_chunks.c has all_reduce: results, also of graphs and of every type,
 * are those of one piece; errors in the middle leave no stream behind in a capture.
 */
/* ctest: load 3 */
/* ctest: replaces symm__chunks_limits */
#include "driver.h"
#include "engine_stage.h"
#include "small_chunks.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_CASES 64

/* How a job's calls are made. */
enum how {
    WHOLE,
    CHUNKS,
    FAR /* in chunks, whose rows lie too far apart for one copy */
};

struct job {
    char layout[HARNESS_MAX_RANKS]; /* first: as harness_host_of takes it */
    int hosts;
    enum how how;
    /* Of a reduce_scatter in one piece, by its place among them. */
    uint64_t sums[MOST_CASES][HARNESS_MAX_RANKS];
};

struct stage {
    struct engine_stage s;
    struct job *job;
    struct device_area in, out; /* in private memory; then in the heap */
    bool heap;
    int sums; /* reduce_scatters so far */
};

enum kind { REDUCE_SCATTER, ALL_GATHER, BROADCAST, KINDS };
static const char *const symbols[] = {"ncclReduceScatter", "ncclAllGather",
                                      "ncclBroadcast"};

/* Where the output is. */
enum place { APART, IN_PLACE, AT_START /* of a reduce_scatter's input */ };

struct call {
    enum kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    enum place place;
    int root;
};

/* ---- Data ----------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
}

static uint64_t seed_of(int r, int round)
{
    return mixed((uint64_t)(r * 1009 + round + 1));
}

/* Bytes 8 i to 8 i + 7 of what a rank has. Elements are no infinity and no NaN: their highest bit but
 * one is 0, in every type that has an exponent. */
static uint64_t word_of(uint64_t seed, size_t i)
{
    return mixed(seed + i) & 0xbfbfbfbfbfbfbfbfu;
}

/* What rank r has in that round. */
static void fill(char *to, size_t bytes, int r, int round)
{
    const uint64_t seed = seed_of(r, round);

    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        const uint64_t word = word_of(seed, at / sizeof(word));

        if (bytes - at >= sizeof(word))
            memcpy(to + at, &word, sizeof(word));
        else
            memcpy(to + at, &word, bytes - at);
    }
}

static int check_equal(const char *found, size_t bytes, int r, int round,
                       const char *what)
{
    char *wanted = malloc(bytes);
    size_t i = 0;
    bool equal;

    CHECK(wanted != NULL);
    fill(wanted, bytes, r, round);
    equal = memcmp(found, wanted, bytes) == 0;
    while (!equal && found[i] == wanted[i])
        i++;
    free(wanted);
    CHECK_MESSAGE(equal, "%s: rank %d's byte %zu of %zu", what, r, i, bytes);
    return 0;
}

static uint64_t hash(const char *at, size_t bytes)
{
    uint64_t sum = bytes;

    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (uint8_t)at[i]) * 0x100000001b3u;
    return sum;
}

/* ---- One call --------------------------------------------------------------------------- */

static size_t in_count(const struct stage *g, const struct call *c)
{
    return c->count * (c->kind == REDUCE_SCATTER ? (size_t)g->s.n : 1);
}

static size_t out_count(const struct stage *g, const struct call *c)
{
    return c->count * (c->kind == ALL_GATHER ? (size_t)g->s.n : 1);
}

static struct device_area *out_area(struct stage *g, const struct call *c)
{
    return c->place == APART ? &g->out : &g->in;
}

/* Byte of `in` at which the input is, and of its area at which the output is. */
static size_t in_at(const struct stage *g, const struct call *c)
{
    return c->kind == ALL_GATHER && c->place == IN_PLACE
               ? (size_t)g->s.rank * c->count * symm_dtype_size(c->dtype)
               : 0;
}

static size_t out_at(const struct stage *g, const struct call *c)
{
    return c->kind == REDUCE_SCATTER && c->place == IN_PLACE
               ? (size_t)g->s.rank * c->count * symm_dtype_size(c->dtype)
               : 0;
}

static symm_status make(struct stage *g, const struct call *c, const symm_call *how,
                        symm_work **work)
{
    char *in = g->in.device + in_at(g, c);
    char *out = out_area(g, c)->device + out_at(g, c);

    switch (c->kind) {
    case REDUCE_SCATTER:
        return symm_reduce_scatter(g->s.team, in, out, c->count, c->dtype, c->op, how,
                                   work);
    case ALL_GATHER:
        return symm_all_gather(g->s.team, in, out, c->count, c->dtype, how, work);
    default:
        return symm_broadcast(g->s.team, in, out, c->count, c->dtype, c->root, how,
                              work);
    }
}

static int give(struct stage *g, const struct call *c, int round)
{
    const size_t element = symm_dtype_size(c->dtype);

    CHECK(in_at(g, c) + in_count(g, c) * element <= g->in.bytes);
    CHECK(out_at(g, c) + out_count(g, c) * element <= g->out.bytes);
    memset(g->out.host, 0x55, out_count(g, c) * element);
    CHECK_ZERO(device_put(&g->out, 0, out_count(g, c) * element));
    fill(g->in.host + in_at(g, c), in_count(g, c) * element, g->s.rank, round);
    return device_put(&g->in, in_at(g, c), in_count(g, c) * element);
}

/* Of int32, of which there are two in a word, the lower first. */
static int check_known_sums(const struct stage *g, const struct call *c,
                            const char *sums, int round)
{
    const size_t first = (size_t)g->s.rank * c->count;
    uint64_t seeds[HARNESS_MAX_RANKS];

    for (int r = 0; r < g->s.n; r++)
        seeds[r] = seed_of(r, round);
    for (size_t i = 0; i < c->count; i++) {
        const size_t at = first + i;
        uint32_t wanted = 0;

        for (int r = 0; r < g->s.n; r++)
            wanted += (uint32_t)(word_of(seeds[r], at / 2) >> at % 2 * 32);
        CHECK_MESSAGE(memcmp(&wanted, sums + i * sizeof(wanted), sizeof(wanted)) == 0,
                      "%zu elements: the sum at %zu", c->count, i);
    }
    return 0;
}

/* Of int32 the sums are known, of others they are those of one piece. */
static int check_sums(struct stage *g, const struct call *c, const char *sums,
                      int round)
{
    uint64_t *one_piece = &g->job->sums[g->sums][g->s.rank];
    uint64_t now;

    if (c->dtype == SYMM_INT32 && c->op == SYMM_SUM)
        return check_known_sums(g, c, sums, round);
    now = hash(sums, c->count * symm_dtype_size(c->dtype));
    CHECK(g->sums++ < MOST_CASES);
    if (g->job->how == WHOLE)
        *one_piece = now;
    CHECK_MESSAGE(*one_piece == now, "sums of %s by %s", symm_dtype_name(c->dtype),
                  symm_op_name(c->op));
    return 0;
}

static int check(struct stage *g, const struct call *c, int round)
{
    const size_t element = symm_dtype_size(c->dtype), block = c->count * element;
    struct device_area *area = out_area(g, c);
    const char *out = area->host + out_at(g, c);
    char what[96];

    CHECK_OK(symm_stream_synchronize(g->s.ctx, g->s.stream, HARNESS_AMPLE));
    CHECK_ZERO(device_get(area, out_at(g, c), out_count(g, c) * element));
    snprintf(what, sizeof(what), "%s of %zu %s%s", symbols[c->kind], c->count,
             symm_dtype_name(c->dtype), c->place == APART ? "" : " in place");
    if (c->kind == REDUCE_SCATTER)
        return check_sums(g, c, out, round);
    if (c->kind == BROADCAST)
        return check_equal(out, block, c->root, round, what);
    for (int r = 0; r < g->s.n; r++)
        CHECK_ZERO(check_equal(out + (size_t)r * block, block, r, round, what));
    return 0;
}

/* ---- Chunks ----------------------------------------------------------------------------- */

/* Bytes of all ranks' blocks, from which on there are two chunks. */
static size_t least(const struct job *job)
{
    return 2 * SYMM_CHUNK_LEAST / SMALLER * (size_t)job->hosts;
}

static size_t blocks(const struct stage *g, enum kind kind)
{
    return kind == BROADCAST ? 1 : (size_t)g->s.n;
}

/* In elements of a block. */
static size_t count_of(const struct stage *g, enum kind kind, symm_dtype dtype,
                       size_t bytes)
{
    return bytes / symm_dtype_size(dtype) / blocks(g, kind);
}

static int chunks_of(const struct stage *g, const struct call *c)
{
    const struct symm_chunks chunks =
        symm__chunks(c->count, symm_dtype_size(c->dtype), blocks(g, c->kind),
                     (struct symm_chunks_limits){least(g->job) / 2, least(g->job)});
    size_t before = 0;
    int count = 0;

    if (g->job->how == WHOLE)
        return 1;
    for (size_t left = c->count; left > 0; left -= before, count++)
        before = symm__chunk(&chunks, before, left);
    return count;
}

/* Whether this rank makes the engine's steps: of a broadcast, those of one rail do. */
static bool on_rail(const struct stage *g, const struct call *c)
{
    const char *layout = g->job->layout;
    int place = 0, roots = 0, most = 0, fewest = g->s.n;

    for (int m = 0, size; m < g->s.n; m++) {
        size = 0;
        for (int i = 0; i < g->s.n; i++)
            size += layout[i] == layout[m];
        most = size > most ? size : most;
        fewest = size < fewest ? size : fewest;
        place += m < g->s.rank && layout[m] == layout[g->s.rank];
        roots += m < c->root && layout[m] == layout[c->root];
    }
    return c->kind != BROADCAST || place == (most == fewest ? roots : 0);
}

static int one(struct stage *g, const struct call *c)
{
    const symm_call how = {
        .size = sizeof(how), .stream = g->s.stream, .site = "blocks"};
    const char *symbol = symbols[c->kind];
    const int wanted = on_rail(g, c) ? chunks_of(g, c) : 0;
    uint64_t before = engine_calls(symbol), made;

    CHECK_ZERO(give(g, c, 0));
    CHECK_OK(make(g, c, &how, NULL));
    made = engine_calls(symbol) - before;
    CHECK_MESSAGE(made == (uint64_t)wanted,
                  "%zu elements of %s: %d calls of %s, not %d", c->count,
                  symm_dtype_name(c->dtype), (int)made, symbol, wanted);
    return check(g, c, 0);
}

/* Two calls in a graph that is launched twice, with other data: no other stream is left behind in
 * the capture. */
static int captured(struct stage *g, const struct call *c)
{
    const symm_call how = {.size = sizeof(how), .stream = g->s.stream, .site = "graph"};
    struct driver d;
    CUgraph graph;
    CUgraphExec exec;

    CHECK_ZERO(driver_load(&d));
    CHECK_CU(d.begin_capture(g->s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++)
        CHECK_OK(make(g, c, &how, NULL));
    CHECK_CU(d.end_capture(g->s.stream, &graph));
    CHECK_CU(d.instantiate(&exec, graph, 0));
    for (int round = 1; round <= 2; round++) {
        CHECK_ZERO(give(g, c, round));
        CHECK_OK(symm_barrier(g->s.team, &how, NULL));
        CHECK_OK(symm_stream_synchronize(g->s.ctx, g->s.stream, HARNESS_AMPLE));
        CHECK_CU(d.graph_launch(exec, g->s.stream));
        CHECK_ZERO(check(g, c, round));
    }
    CHECK_CU(d.exec_destroy(exec));
    CHECK_CU(d.graph_destroy(graph));
    return 0;
}

/* ---- What is called ----------------------------------------------------------------------- */

/* Around the first border, and what divides by nothing; in place and not. */
static int all_sizes(struct stage *g, enum kind kind)
{
    struct call c = {.kind = kind, .dtype = SYMM_INT32, .root = g->s.n - 1};
    const size_t border = count_of(g, kind, c.dtype, least(g->job));

    c.count = border + 1;
    CHECK_ZERO(one(g, &c));
    if (g->heap)
        return 0;
    c.count = border - 1;
    c.place = IN_PLACE;
    CHECK_ZERO(one(g, &c));
    c.count = border + border / 2 + 20001 / blocks(g, kind);
    CHECK(g->job->how == WHOLE || g->s.n > 4 || chunks_of(g, &c) == 3);
    CHECK_ZERO(one(g, &c));
    c.root = 0;
    c.place = kind == REDUCE_SCATTER ? AT_START : APART;
    return one(g, &c);
}

/* A type of each size, and sums of each kind of number. SYMM_TEST_LONG=1: all. NCCL adds no numbers of
 * 16 bits but floating ones. */
static bool takes_type(enum kind kind, symm_dtype dtype)
{
    if (harness_env("SYMM_TEST_LONG", 0))
        return kind != REDUCE_SCATTER || dtype < SYMM_INT16;
    return dtype <= SYMM_FLOAT16 || dtype == SYMM_INT8 ||
           (kind == REDUCE_SCATTER &&
            (dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_UINT64));
}

static int all_types(struct stage *g, enum kind kind)
{
    struct call c = {.kind = kind, .op = SYMM_SUM};

    if (g->job->how == WHOLE && kind != REDUCE_SCATTER)
        return 0; /* what is moved is known */
    for (int t = 0; t <= SYMM_UINT16; t++) {
        c.dtype = (symm_dtype)t;
        if (!takes_type(kind, c.dtype))
            continue;
        c.count = count_of(g, kind, c.dtype, least(g->job)) + 1;
        CHECK_ZERO(one(g, &c));
        c.root = (c.root + 1) % g->s.n;
    }
    c.dtype = SYMM_BFLOAT16;
    c.op = SYMM_MAX;
    c.count = count_of(g, kind, c.dtype, least(g->job)) + 1;
    return kind == REDUCE_SCATTER ? one(g, &c) : 0;
}

static int graphs(struct stage *g, enum kind kind)
{
    struct call c = {.kind = kind, .dtype = SYMM_INT32, .root = 1};

    c.count = count_of(g, kind, c.dtype, least(g->job)) + 30;
    CHECK_ZERO(captured(g, &c));
    return one(g, &c); /* the streams are free again */
}

static int open_stage(struct stage *g, symm_ctx *ctx, struct job *job, bool heap)
{
    const size_t bytes = least(job) * 7 / 4;

    g->job = job;
    g->heap = heap;
    if (!g->s.ctx)
        CHECK_ZERO(engine_open(&g->s, ctx));
    CHECK_ZERO(device_area_open(&g->in, g->s.gpu, heap ? g->s.team : NULL, bytes));
    CHECK_ZERO(device_area_open(&g->out, g->s.gpu, heap ? g->s.team : NULL, bytes));
    CHECK_OK(symm_rendezvous(g->s.team));
    return 0;
}

static void close_areas(struct stage *g)
{
    device_area_close(&g->in);
    device_area_close(&g->out);
}

static int calls(struct stage *g, enum kind kind)
{
    const bool first = strcmp(g->job->layout, "aabb") == 0;

    if (kind != BROADCAST && strcmp(g->job->layout, "abb") == 0)
        return 0;      /* the engine's over all ranks */
    if (g->s.n > 16) { /* which take turns on the cores */
        struct call c = {.kind = kind, .dtype = SYMM_INT32, .root = g->s.n / 2};

        c.count = count_of(g, kind, c.dtype, least(g->job)) + 1;
        return g->heap ? 0 : one(g, &c);
    }
    CHECK_ZERO(all_sizes(g, kind));
    if (g->job->how == CHUNKS)
        CHECK_ZERO(graphs(g, kind));
    if (g->job->how != FAR && first && !g->heap)
        CHECK_ZERO(all_types(g, kind));
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct stage g = {.sums = 0};
    int failed = 0;

    for (int heap = 0; heap < (job->how == CHUNKS ? 2 : 1) && !failed; heap++) {
        CHECK_ZERO(open_stage(&g, ctx, job, heap));
        for (int kind = 0; kind < KINDS && !failed; kind++)
            failed = calls(&g, (enum kind)kind);
        close_areas(&g);
    }
    engine_close(&g.s);
    return failed;
}

static void run(struct job *job, enum how how, harness_body what)
{
    struct harness h = {.ranks = (int)strlen(job->layout),
                        .body = what,
                        .arg = job,
                        .configure = harness_host_of,
                        .team_bytes = (size_t)256 << 20};

    job->how = how;
    setenv("SYMM_CHUNKS", how == WHOLE ? "0" : "2", 1);
    setenv("FAKE_CUDA_PITCH", how == FAR ? "1000000" : "2147483647", 1);
    assert_int_equal(harness_run(&h), 0);
}

static struct job *job_new(const char *layout, int hosts)
{
    struct job *job = harness_shared(sizeof(*job));

    snprintf(job->layout, sizeof(job->layout), "%s", layout);
    job->hosts = hosts;
    return job;
}

/* How many steps of the engine a long call has. */
static int modes(symm_ctx *ctx, void *arg)
{
    const int wanted = atoi(getenv("STEPS"));
    struct stage g = {.sums = 0};
    int failed = 0;

    CHECK_ZERO(open_stage(&g, ctx, arg, false));
    for (int kind = 0; kind < KINDS && !failed; kind++) {
        struct call c = {.kind = (enum kind)kind, .dtype = SYMM_INT32};
        const symm_call how = {.size = sizeof(how), .stream = g.s.stream};
        uint64_t before = engine_calls(symbols[kind]);

        c.count = count_of(&g, c.kind, c.dtype, least(g.job));
        CHECK_ZERO(give(&g, &c, 0));
        CHECK_OK(make(&g, &c, &how, NULL));
        failed = check(&g, &c, 0);
        CHECK(failed || !on_rail(&g, &c) ||
              engine_calls(symbols[kind]) == before + (uint64_t)wanted);
    }
    close_areas(&g);
    engine_close(&g.s);
    return failed;
}

/* In two chunks these calls are slower than in one piece. They are cut if all are to be, unless a
 * kernel has no multiprocessors beside NCCL's. */
static void test_modes(void **state)
{
    static const struct {
        const char *mode, *processors, *steps;
    } rows[] = {{"0", "64", "1"}, {"1", "64", "1"}, {"2", "64", "2"}, {"2", "63", "1"}};
    struct job *job = job_new("aabb", 2);
    struct harness h = {
        .ranks = 4, .body = modes, .arg = job, .configure = harness_host_of};

    (void)state;
    for (int i = 0; i < 4; i++) {
        setenv("SYMM_CHUNKS", rows[i].mode, 1);
        setenv("FAKE_CUDA_PROCESSORS", rows[i].processors, 1);
        setenv("STEPS", rows[i].steps, 1);
        assert_int_equal(harness_run(&h), 0);
    }
    setenv("FAKE_CUDA_PROCESSORS", "64", 1);
    harness_shared_free(job, sizeof(*job));
}

static void test_chunks(void **state)
{
    struct job *job = job_new("aabb", 2);

    (void)state;
    run(job, WHOLE, body);
    run(job, CHUNKS, body);
    run(job, FAR, body);
    harness_shared_free(job, sizeof(*job));
}

/* Hosts of unequal size: a broadcast by leaders. SYMM_TEST_LONG=1: more hosts and ranks. */
static void test_shapes(void **state)
{
    static const struct {
        const char *layout;
        int hosts;
    } shapes[] = {{"abb", 2},
                  {"aaaaabbbbbccccc", 3},
                  {"aaaaaaaabbbbbbbb", 2},
                  {"aaaaaaaabbbbbbbbccccccccdddddddd", 4}};

    (void)state;
    for (int i = 0; i < (harness_env("SYMM_TEST_LONG", 0) ? 4 : 1); i++) {
        struct job *job = job_new(shapes[i].layout, shapes[i].hosts);

        printf("%s\n", job->layout);
        run(job, CHUNKS, body);
        harness_shared_free(job, sizeof(*job));
    }
}

/* ---- Errors ------------------------------------------------------------------------------- */

/* The operation of a chunk hangs, or its call does, or fails: all ranks know within the timeout of
 * the rank that has the short one. */
static int faulty(symm_ctx *ctx, void *arg)
{
    struct stage g = {.sums = 0};
    struct call c = {.dtype = SYMM_INT32};
    symm_call how = {.size = sizeof(how), .site = "held"};
    symm_work *work = NULL;
    char named[64];
    double begin;
    symm_status status;

    CHECK_ZERO(open_stage(&g, ctx, arg, false));
    how.stream = g.s.stream;
    c.kind = (enum kind)atoi(getenv("FAULT_OF"));
    c.count = 10;
    CHECK_OK(make(&g, &c, &how, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, g.s.stream, HARNESS_AMPLE));
    snprintf(named, sizeof(named), "%s@1", symbols[c.kind]); /* rank 1 of each rail */
    setenv(getenv("FAULT"), named, 1);
    c.count = count_of(&g, c.kind, c.dtype, least(g.job)) + 7;
    how.timeout = g.s.rank >= 2 ? 0.5 : HARNESS_AMPLE;
    begin = harness_now();
    status = make(&g, &c, &how, &work);
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_ABORTED ||
                      (status == SYMM_OK && c.kind == BROADCAST && g.s.rank < 2),
                  "%s", symm_status_name(status));
    CHECK(harness_now() - begin < HARNESS_SOON);
    CHECK_OK(symm_stream_synchronize(ctx, g.s.stream, HARNESS_AMPLE));
    close_areas(&g);
    engine_close(&g.s);
    return 0;
}

static void test_faulty(void **state)
{
    static const char *const faults[] = {"FAKE_NCCL_HANG", "FAKE_NCCL_STUCK",
                                         "FAKE_NCCL_FAIL"};
    struct job *job = job_new("aabb", 2);

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 3; i++) {
            char number[2] = {(char)('0' + kind), '\0'};

            setenv("FAULT", faults[i], 1);
            setenv("FAULT_OF", number, 1);
            run(job, CHUNKS, faulty);
        }
    harness_shared_free(job, sizeof(*job));
}

/* A call in a capture, in which the k-th call of that function of the driver fails. Its own status
 * is *made, and the capture ends well: the side stream is back. */
static int capture_failing(struct stage *g, const struct call *c, struct driver *d,
                           const char *function, int k, symm_status *made)
{
    const symm_call how = {.size = sizeof(how), .stream = g->s.stream, .site = "fails"};
    CUgraph graph;

    CHECK_CU(d->begin_capture(g->s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    d->fail_named(function, (uint64_t)k, CUDA_ERROR_UNKNOWN);
    *made = c->kind == KINDS ? symm_all_reduce(g->s.team, g->in.device, g->out.device,
                                               c->count, c->dtype, c->op, &how, NULL)
                             : make(g, c, &how, NULL);
    d->fail_named(NULL, 0, CUDA_SUCCESS);
    if (*made != SYMM_OK)
        CHECK_ERROR("CUDA_ERROR_UNKNOWN");
    CHECK_CU(d->end_capture(g->s.stream, &graph));
    CHECK_CU(d->graph_destroy(graph));
    return 0;
}

/* Each of these calls fails once; how many there are. */
static int each_fails(struct stage *g, const struct call *c, struct driver *d,
                      const char *function, int *times)
{
    symm_status made = SYMM_ERR_SYSTEM;

    for (*times = -1; made != SYMM_OK; ++*times)
        CHECK_ZERO(capture_failing(g, c, d, function, *times + 2, &made));
    return 0;
}

static int failing(symm_ctx *ctx, void *arg)
{
    static const char *const functions[] = {"cuLaunchKernel", "cuEventRecord",
                                            "cuStreamWaitEvent", "cuMemcpy2DAsync"};
    struct stage g = {.sums = 0};
    struct call c = {.dtype = SYMM_INT32};
    struct driver d;
    int times, failed = 0;

    CHECK_ZERO(open_stage(&g, ctx, arg, false));
    CHECK_ZERO(driver_load(&d));
    for (int kind = 0; kind <= KINDS && !failed; kind++) {
        c.kind = (enum kind)kind;
        c.count = count_of(&g, c.kind, c.dtype, least(g.job)) * 3 / 2;
        if (kind == KINDS)
            c.count *= (size_t)g.s.n; /* all_reduce */
        CHECK_ZERO(give(
            &g, &(struct call){.kind = BROADCAST, .dtype = c.dtype, .count = 10}, 0));
        for (int i = 0; i < 4 && !failed; i++) {
            failed = each_fails(&g, &c, &d, functions[i], &times);
            CHECK_MESSAGE(failed || times >= 3 || (kind >= BROADCAST && i == 3) ||
                              kind == BROADCAST,
                          "%d calls of %s", times, functions[i]);
        }
    }
    close_areas(&g);
    engine_close(&g.s);
    return failed;
}

static void test_failing(void **state)
{
    struct job *job = job_new("aabb", 2);

    (void)state;
    run(job, CHUNKS, failing);
    harness_shared_free(job, sizeof(*job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes), cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_faulty),
        cmocka_unit_test(test_failing)};

    if (device_real())
        return 77; /* counts the stand-in's calls */
    engine_suite();
    setenv("FAKE_CUDA_PROCESSORS", "64", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
