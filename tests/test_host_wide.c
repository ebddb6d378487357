/* SPDX-License-Identifier: MIT */
/*
 * test_host_wide.c - teams whose ranks are on several hosts: which teams are, which memory is
 * mapped, every collective against a reference, all_reduce_norm against its steps after an
 * all_reduce, streams and handles, refused calls.
 *
 * SYMM_HOST_ID makes one machine appear as several hosts, with libfake_engine.so between them.
 * Half of the jobs pass their own allgather, so that their hosts have TCP connections.
 */
/* ctest: cost 20 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "norm/expect.h"
#include "reference.h"

#include <cmocka.h>

#define RANKS_MAX   8
#define ENTRY_BYTES 256
#define MOST        4099 /* elements: odd, and more than a slot of the pads */

struct layout {
    const char *name;
    int ranks;
    const char *host; /* by rank: a letter */
};

static const struct layout layouts[] = {
    {"2 x 2", 4, "aabb"},          {"2 x 2 in turns", 4, "abab"},
    {"1, 2 and 3", 6, "abbccc"},   {"4 x 1", 4, "abcd"},
    {"2 x 3, mixed", 6, "abbaab"}, {"1 and 3, leader last", 4, "bbab"}};

struct shared {
    const struct layout *layout;
    bool tcp, engine;
    struct harness_sync sync;
    char entries[RANKS_MAX][ENTRY_BYTES];
};

static char folder[64];

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct shared *shared = arg;
    int n = shared->layout->ranks;

    if (bytes > ENTRY_BYTES)
        return 1;
    memcpy(shared->entries[harness_rank()], in, bytes);
    if (harness_sync_wait(&shared->sync, n))
        return 1;
    for (int r = 0; r < n; r++)
        memcpy((char *)out + (size_t)r * bytes, shared->entries[r], bytes);
    return harness_sync_wait(&shared->sync, n);
}

static void configure(symm_config *config, int rank, void *arg)
{
    static symm_bootstrap bootstrap = {.size = sizeof(bootstrap),
                                       .allgather = allgather};
    struct shared *shared = arg;
    char host[8] = {shared->layout->host[rank], '\0'};

    setenv("SYMM_HOST_ID", host, 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_ENGINE", shared->engine ? SYMM_FAKE_ENGINE : "none", 1);
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    if (!shared->tcp)
        return;
    bootstrap.arg = arg;
    config->bootstrap = &bootstrap;
    config->job_id = NULL;
}

static int run(const struct layout *layout, bool tcp, bool engine, harness_body body)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct harness h = {
        .ranks = layout->ranks, .body = body, .arg = shared, .configure = configure};
    int failed;

    shared->layout = layout;
    shared->tcp = tcp;
    shared->engine = engine;
    failed = harness_run(&h);
    if (failed)
        fprintf(stderr, "layout %s, %s\n", layout->name, tcp ? "tcp" : "local");
    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

/* ---- Data --------------------------------------------------------------------------- */

/* 1 or 2 in any type. */
static void put_small(symm_dtype dtype, void *at, int value)
{
    static const struct {
        uint64_t one, two;
    } codes[] = {[SYMM_FLOAT64] = {0x3ff0000000000000u, 0x4000000000000000u},
                 [SYMM_FLOAT32] = {0x3f800000, 0x40000000},
                 [SYMM_FLOAT16] = {0x3c00, 0x4000},
                 [SYMM_BFLOAT16] = {0x3f80, 0x4000},
                 [SYMM_FLOAT8_E4M3] = {0x38, 0x40},
                 [SYMM_FLOAT8_E5M2] = {0x3c, 0x40}};
    uint64_t word = (uint64_t)value;

    if (reference_is_float(dtype))
        word = value == 1 ? codes[dtype].one : codes[dtype].two;
    memcpy(at, &word, symm_dtype_size(dtype)); /* little-endian */
}

static void fill(symm_dtype dtype, int rank, size_t count, char *data)
{
    for (size_t i = 0; i < count; i++)
        put_small(dtype, data + i * symm_dtype_size(dtype),
                  1 + (int)((i * 7 + (size_t)rank * 13 + i / 5) % 2));
}

struct data {
    char *in, *out, *wanted;
    char *all[RANKS_MAX];
};

static void data_open(struct data *d)
{
    d->in = malloc((size_t)MOST * RANKS_MAX * 8);
    d->out = malloc((size_t)MOST * RANKS_MAX * 8);
    d->wanted = malloc((size_t)MOST * RANKS_MAX * 8);
    for (int r = 0; r < RANKS_MAX; r++)
        d->all[r] = malloc((size_t)MOST * RANKS_MAX * 8);
}

static void data_close(struct data *d)
{
    free(d->in);
    free(d->out);
    free(d->wanted);
    for (int r = 0; r < RANKS_MAX; r++)
        free(d->all[r]);
}

/* What each rank gives: blocks x count elements. */
static void data_fill(struct data *d, symm_team *team, symm_dtype dtype, size_t count)
{
    int n = symm_team_size(team);

    for (int r = 0; r < n; r++)
        fill(dtype, r, count, d->all[r]);
    memcpy(d->in, d->all[symm_team_rank(team)], count * symm_dtype_size(dtype));
    memset(d->out, 0x5a, (size_t)MOST * RANKS_MAX * 8);
}

static bool same(symm_dtype dtype, const void *a, const void *b, size_t count)
{
    return memcmp(a, b, count * symm_dtype_size(dtype)) == 0;
}

/* ---- Each collective ------------------------------------------------------------------ */

static int check_reductions(symm_team *team, struct data *d, symm_dtype dtype,
                            symm_op op, size_t count, const symm_call *call)
{
    int n = symm_team_size(team), me = symm_team_rank(team);
    size_t element = symm_dtype_size(dtype);
    const void *all[RANKS_MAX];

    for (int r = 0; r < n; r++)
        all[r] = d->all[r];
    data_fill(d, team, dtype, count);
    reference_combine(dtype, op, all, n, count, d->wanted);
    CHECK_OK(symm_all_reduce(team, d->in, d->out, count, dtype, op, call, NULL));
    CHECK_MESSAGE(same(dtype, d->out, d->wanted, count), "all_reduce %s of %zu %s",
                  symm_op_name(op), count, symm_dtype_name(dtype));
    CHECK_OK(symm_all_reduce(team, d->in, d->in, count, dtype, op, call, NULL));
    CHECK_MESSAGE(same(dtype, d->in, d->wanted, count),
                  "all_reduce %s of %zu %s in place", symm_op_name(op), count,
                  symm_dtype_name(dtype));
    data_fill(d, team, dtype, count * (size_t)n);
    reference_combine(dtype, op, all, n, count * (size_t)n, d->wanted);
    CHECK_OK(symm_reduce_scatter(team, d->in, d->out, count, dtype, op, call, NULL));
    CHECK_MESSAGE(same(dtype, d->out, d->wanted + (size_t)me * count * element, count),
                  "reduce_scatter %s of %zu %s", symm_op_name(op), count,
                  symm_dtype_name(dtype));
    return 0;
}

static int check_moves(symm_team *team, struct data *d, symm_dtype dtype, size_t count,
                       const symm_call *call)
{
    int n = symm_team_size(team), me = symm_team_rank(team);
    size_t block = count * symm_dtype_size(dtype);

    data_fill(d, team, dtype, count);
    CHECK_OK(symm_all_gather(team, d->in, d->out, count, dtype, call, NULL));
    for (int r = 0; r < n; r++)
        CHECK_MESSAGE(same(dtype, d->out + (size_t)r * block, d->all[r], count),
                      "all_gather of %zu, block %d", count, r);
    memset(d->out, 0x5a, (size_t)n * block);
    memcpy(d->out + (size_t)me * block, d->in, block);
    CHECK_OK(symm_all_gather(team, d->out + (size_t)me * block, d->out, count, dtype,
                             call, NULL));
    for (int r = 0; r < n; r++)
        CHECK_MESSAGE(same(dtype, d->out + (size_t)r * block, d->all[r], count),
                      "all_gather of %zu in place, block %d", count, r);
    for (int root = 0; root < n; root++) {
        memset(d->out, 0x5a, block);
        CHECK_OK(symm_broadcast(team, d->in, d->out, count, dtype, root, call, NULL));
        CHECK_MESSAGE(same(dtype, d->out, d->all[root], count),
                      "broadcast of %zu by %d", count, root);
    }
    data_fill(d, team, dtype, count * (size_t)n);
    CHECK_OK(symm_all_to_all(team, d->in, d->out, count, dtype, call, NULL));
    for (int r = 0; r < n; r++)
        CHECK_MESSAGE(same(dtype, d->out + (size_t)r * block,
                           d->all[r] + (size_t)me * block, count),
                      "all_to_all of %zu, block %d", count, r);
    CHECK_OK(symm_barrier(team, call, NULL));
    return 0;
}

static int check_all(symm_team *team, struct data *d, const symm_call *call)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 64, MOST};

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        CHECK_ZERO(check_moves(team, d, SYMM_FLOAT32, counts[c], call));
        CHECK_ZERO(check_moves(team, d, SYMM_INT8, counts[c], call));
        CHECK_ZERO(check_reductions(team, d, SYMM_FLOAT32, SYMM_SUM, counts[c], call));
        CHECK_ZERO(check_reductions(team, d, SYMM_INT32, SYMM_AVG, counts[c], call));
    }
    for (symm_dtype t = SYMM_FLOAT64; t < REFERENCE_DTYPES; t++) {
        CHECK_ZERO(check_reductions(team, d, t, SYMM_MAX, 37, call));
        CHECK_ZERO(check_reductions(team, d, t, SYMM_MIN, 38, call));
        if (t == SYMM_FLOAT8_E5M2 || t == SYMM_FLOAT8_E4M3)
            continue; /* has not all of the sums */
        CHECK_ZERO(check_reductions(team, d, t, SYMM_SUM, 39, call));
        CHECK_ZERO(check_reductions(team, d, t, SYMM_PROD, 40, call));
        for (symm_op op = SYMM_BAND; op < REFERENCE_OPS && reference_takes(t, op); op++)
            CHECK_ZERO(check_reductions(team, d, t, op, 41, call));
    }
    return 0;
}

static int body_collectives(symm_ctx *ctx, void *arg)
{
    struct data d;
    int failed;

    (void)arg;
    data_open(&d);
    failed = check_all(symm_team_world(ctx), &d, NULL);
    data_close(&d);
    return failed;
}

static void test_collectives(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        assert_int_equal(run(&layouts[i], i % 2 == 0, true, body_collectives), 0);
}

/* ---- What is mapped, and what is not --------------------------------------------------- */

static int hosts_of(const struct layout *layout)
{
    int hosts = 0;

    for (int r = 0; r < layout->ranks; r++)
        hosts += strchr(layout->host, layout->host[r]) == &layout->host[r];
    return hosts;
}

/* Each pair of ranks on a host: both put into the other's buffer, both await the signal. */
static int check_near(symm_team *world, symm_buffer *buffer, int peer)
{
    int32_t *own = symm_buffer_ptr(buffer);
    const int me = symm_team_rank(world);

    for (int turn = 1; turn <= 3; turn++) {
        const int32_t value = 100 * me + turn;

        CHECK_OK(symm_put_signal(world, own + 100 + me, &value, sizeof(value), peer, 11,
                                 NULL, NULL));
        CHECK_OK(symm_signal_wait(world, peer, 11, NULL, NULL));
        CHECK(own[100 + peer] == 100 * peer + turn);
        CHECK_OK(symm_signal(world, peer, 12, NULL, NULL)); /* it has been read */
        CHECK_OK(symm_signal_wait(world, peer, 12, NULL, NULL));
    }
    return 0;
}

static int body_memory(symm_ctx *ctx, void *arg)
{
    const struct shared *shared = arg;
    const char *host = shared->layout->host;
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world);
    symm_info info = {.size = sizeof(info)};
    int64_t shape = 1000, stride = 1;
    symm_buffer *buffer;
    int32_t *own;

    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(info.hosts == hosts_of(shared->layout) && info.host[0] == host[me]);
    CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_INT32, 5, &buffer));
    own = symm_buffer_ptr(buffer);
    for (int i = 0; i < 1000; i++)
        own[i] = me * 1000 + i;
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(symm_barrier(world, NULL, NULL));
    for (int p = 0; p < n; p++) {
        const int32_t *theirs = symm_buffer_peer_ptr(buffer, p);
        int32_t value = 7;

        CHECK((theirs != NULL) == (host[p] == host[me]));
        CHECK(!theirs || theirs[999] == p * 1000 + 999);
        if (theirs) {
            CHECK_ZERO(check_near(world, buffer, p));
            continue;
        }
        CHECK_STATUS(symm_put(world, own, &value, sizeof(value), p, NULL, NULL),
                     SYMM_ERR_UNSUPPORTED);
        CHECK_ERROR("is on host");
        CHECK_STATUS(symm_signal(world, p, 3, NULL, NULL), SYMM_ERR_UNSUPPORTED);
        CHECK_STATUS(symm_signal_wait(world, p, 3, NULL, NULL), SYMM_ERR_UNSUPPORTED);
    }
    CHECK_OK(symm_all_reduce(world, own, own, 1000, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(own[1] == n * (n - 1) / 2 * 1000 + n);
    symm_buffer_release(buffer);
    /* Manifests of all hosts are compared. */
    shape += me == n - 1;
    CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_INT32, 6, &buffer));
    CHECK_STATUS(symm_rendezvous(world), SYMM_ERR_MISMATCH);
    CHECK_ERROR("entry 1 differs");
    symm_buffer_release(buffer);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(run(&layouts[0], true, true, body_memory), 0);
    assert_int_equal(run(&layouts[2], false, true, body_memory), 0);
    assert_int_equal(run(&layouts[3], true, true, body_memory), 0);
}

/* ---- all_reduce_norm --------------------------------------------------------------- */

#define ROWS   5
#define HIDDEN 300

/* The sums are those of symm_all_reduce, whatever the engine's order; the rest is norm.h's. */
static int body_norm(symm_ctx *ctx, void *arg)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    static float in[ROWS * HIDDEN], sums[ROWS * HIDDEN], out[3][ROWS * HIDDEN],
        before[ROWS * HIDDEN], weight[HIDDEN], scale[ROWS * 3];
    static uint8_t quant[ROWS * HIDDEN];
    const void *const sum_in[] = {sums};
    const size_t count = (size_t)ROWS * HIDDEN;
    symm_team *world = symm_team_world(ctx);
    symm_norm norm = {.size = sizeof(norm),
                      .rows = ROWS,
                      .hidden = HIDDEN,
                      .eps = 1e-5f,
                      .in = in,
                      .residual_in = out[1],
                      .weight = weight,
                      .sum_out = out[0],
                      .residual_out = out[1],
                      .norm_out = out[2],
                      .quant_out = quant,
                      .scale = scale};
    struct norm_error error;

    (void)arg;
    for (int k = 0; k < 9; k++) {
        const uint64_t seed = (uint64_t)(k * 100);

        norm.dtype = dtypes[k % 3];
        norm.quant = (symm_norm_quant)(SYMM_NORM_QUANT_ROW + k / 3);
        norm_fill(norm.dtype, seed + (uint64_t)symm_team_rank(world), 2, count, in);
        norm_fill(norm.dtype, seed + 98, 2, HIDDEN, weight);
        norm_fill(norm.dtype, seed + 99, 3, count, out[1]);
        memcpy(before, out[1], sizeof(before));
        CHECK_OK(
            symm_all_reduce(world, in, sums, count, norm.dtype, SYMM_SUM, NULL, NULL));
        norm.residual_in = out[1];
        CHECK_OK(symm_all_reduce_norm(world, &norm, NULL, NULL));
        norm.residual_in = before;
        CHECK_MESSAGE(norm_wrong(&norm, sum_in, 1, NORM_UNITS, &error) == 0,
                      "case %d: %s, row %zu, column %zu is %g instead of %g", k,
                      error.array, error.row, error.column, error.found, error.wanted);
    }
    norm.residual_in = NULL;
    norm.dtype = SYMM_BFLOAT16;
    norm.flags = SYMM_NORM_ROUND_PARTIAL;
    CHECK_STATUS(symm_all_reduce_norm(world, &norm, NULL, NULL), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("leave out SYMM_NORM_ROUND_PARTIAL");
    return 0;
}

static void test_norm(void **state)
{
    (void)state;
    assert_int_equal(run(&layouts[1], true, true, body_norm), 0);
    assert_int_equal(run(&layouts[2], false, true, body_norm), 0);
}

/* ---- Splits: by host, across hosts, both ------------------------------------------------ */

static int body_split(symm_ctx *ctx, void *arg)
{
    const struct shared *shared = arg;
    const char *host = shared->layout->host;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), n = symm_team_size(world);
    struct data d;
    int failed = 0, first = 0;

    data_open(&d);
    CHECK_OK(symm_team_split(world, host[me], 0, &team));
    CHECK_ZERO(check_reductions(team, &d, SYMM_INT32, SYMM_SUM, 1000, NULL));
    symm_team_destroy(team);
    for (int round = 0; round < 3; round++) { /* ranges are given back */
        CHECK_OK(symm_team_split(world, me == first ? -1 : 1, -me, &team));
        CHECK((team == NULL) == (me == first));
        if (team) {
            CHECK(symm_team_size(team) == n - 1);
            failed = check_reductions(team, &d, SYMM_INT32, SYMM_SUM, 1000, NULL) ||
                     check_moves(team, &d, SYMM_INT32, 33, NULL);
            CHECK(!failed);
        }
        symm_team_destroy(team);
        first = (first + 1) % n;
    }
    data_close(&d);
    return 0;
}

static void test_split(void **state)
{
    (void)state;
    assert_int_equal(run(&layouts[0], true, true, body_split), 0);
    assert_int_equal(run(&layouts[2], true, true, body_split), 0);
    assert_int_equal(run(&layouts[4], false, true, body_split), 0);
}

/* ---- Streams and handles ----------------------------------------------------------------- */

static symm_status add_one(void *arg, void *stream)
{
    (void)stream;
    ++*(int *)arg;
    return SYMM_OK;
}

static int body_streams(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx);
    int n = symm_team_size(world), called = 0;
    const int rounds = HARNESS_FEW ? 20 : 50;
    void *streams[2];
    int32_t values[2][5] = {{0}};
    symm_work *work[2], *next;

    (void)arg;
    for (int s = 0; s < 2; s++)
        CHECK_OK(symm_stream_create(ctx, &streams[s]));
    for (int round = 0; round < rounds; round++) {
        for (int s = 0; s < 2; s++) {
            const symm_call call = {
                .size = sizeof(call), .stream = streams[s], .site = s ? "one" : "two"};

            for (int i = 0; i < 5; i++)
                values[s][i] = i + s;
            CHECK_OK(symm_all_reduce(world, values[s], values[s], 5, SYMM_INT32,
                                     SYMM_SUM, &call, &work[s]));
        }
        CHECK_OK(symm_work_then(work[1], streams[1], add_one, &called, &next));
        CHECK_OK(symm_work_synchronize(next, HARNESS_AMPLE));
        CHECK_OK(symm_work_synchronize(work[0], HARNESS_AMPLE));
        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < 5; i++)
                CHECK(values[s][i] == n * (i + s));
            symm_work_release(work[s]);
        }
        symm_work_release(next);
    }
    CHECK(called == rounds);
    CHECK(strstr(symm_explain(world), "the engine"));
    return 0;
}

static void test_streams(void **state)
{
    (void)state;
    assert_int_equal(run(&layouts[0], true, true, body_streams), 0);
    assert_int_equal(run(&layouts[2], false, true, body_streams), 0);
}

/* ---- Refused --------------------------------------------------------------------- */

static int body_refused(symm_ctx *ctx, void *arg)
{
    const struct shared *shared = arg;
    symm_team *world = symm_team_world(ctx);
    float value = 1;
    symm_call call = {.size = sizeof(call), .numerics = SYMM_NUMERICS_RANK_ORDER};
    const void *device;
    symm_team *team;

    CHECK_STATUS(symm_all_reduce(world, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM,
                                 shared->engine ? &call : NULL, NULL),
                 SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR(shared->engine ? "not made in the order of all ranks"
                               : "SYMM_ENGINE=mpi");
    CHECK_STATUS(symm_team_device(world, &device), SYMM_ERR_UNSUPPORTED);
    call.numerics = SYMM_NUMERICS_SAME_BITS;
    if (shared->engine) {
        CHECK_OK(symm_all_reduce(world, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM,
                                 &call, NULL));
        call.algorithm = "copy_in";
        CHECK_STATUS(symm_all_reduce(world, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM,
                                     &call, NULL),
                     SYMM_ERR_UNSUPPORTED);
        CHECK_ERROR("copy_in is not for ranks of other hosts");
        call = (symm_call){.size = sizeof(call), .algorithm = "engine"};
        value = 1;
        CHECK_OK(symm_all_reduce(world, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM,
                                 &call, NULL));
        CHECK(value == (float)symm_team_size(world));
        CHECK(strstr(symm_explain(world), "the engine over all ranks"));
        return 0;
    }
    CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_UNSUPPORTED);
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(
        symm_team_split(world, shared->layout->host[symm_team_rank(world)], 0, &team));
    CHECK_OK(
        symm_all_reduce(team, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    CHECK(value == (float)symm_team_size(team));
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(run(&layouts[0], true, true, body_refused), 0);
    assert_int_equal(run(&layouts[0], true, false, body_refused), 0);
    assert_int_equal(run(&layouts[2], false, false, body_refused), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_split),   cmocka_unit_test(test_streams),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_norm),
    };
    int failed;

    harness_clear_environment();
    reference_init();
    harness_directory(folder, sizeof(folder));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (harness_entries(folder, true) != 0)
        failed++;
    harness_remove(folder);
    return failed;
}
