/* SPDX-License-Identifier: MIT */
/*
 * test_host_collectives.c - every collective equals the reference, bit for bit.
 * ctest: cost 14
 * ctest: load 3
 *
 * Every dtype and reduction, odd and even counts, 1 to 16 ranks as processes and as
 * threads, in place and out of place, symmetric, private and oddly aligned memory, each
 * algorithm by name. Inputs must not change, nothing may be written outside the output,
 * and each case uses new values, so that a stale result of the previous case cannot pass.
 */
#include "harness.h"
#include "reference.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_BYTES  ((size_t)800000)
#define PAD        ((size_t)64) /* kept and checked on both sides of the data */
#define AREA_BYTES (MAX_BYTES + 4 * PAD)

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, KINDS };
static const char *const kind_names[KINDS] = {"all_reduce", "reduce_scatter",
                                              "all_gather", "broadcast", "all_to_all"};

enum where { SYM, SYM_ODD, PRIV, PRIV_ODD };
static const char *const where_names[] = {"symmetric", "symmetric+1", "private",
                                          "private+1"};

struct layout {
    enum where in, out;
    bool in_place;
};
static const struct layout layouts[] = {
    {SYM, SYM, true},           {SYM, SYM, false},       {PRIV, PRIV, true},
    {PRIV, PRIV, false},        {SYM_ODD, SYM, false},   {SYM_ODD, SYM_ODD, true},
    {PRIV_ODD, PRIV_ODD, true}, {PRIV, PRIV_ODD, false}, {SYM, PRIV, false},
    {PRIV_ODD, SYM_ODD, false},
};
#define LAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

struct shared {
    struct harness_sync sync;
    _Atomic unsigned entered[HARNESS_MAX_RANKS];
    int stride; /* take every stride-th case of the large product */
    char expected[AREA_BYTES];
};

struct setting {
    symm_team *team;
    struct shared *shared;
    int rank, n;
    char *sym[2], *priv[2]; /* in, out */
    char *mine, *want;
    symm_buffer *buffers[2];
};

struct test_case {
    enum kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    int root;
    uint32_t seed;
    const char *algorithm;
    uint32_t numerics;
    bool by_block; /* reduce_scatter in place as all_gather is: out = in + rank x count
                    */
    bool may_refuse; /* SYMM_ERR_INVALID or _UNSUPPORTED is as good as a right result */
};

static int setting_open(struct setting *s, symm_ctx *ctx, struct shared *shared)
{
    const int64_t shape = (int64_t)AREA_BYTES, stride = 1;
    memset(s, 0, sizeof(*s));
    s->team = symm_team_world(ctx);
    s->shared = shared;
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(symm_empty_strided_p2p(s->team, 1, &shape, &stride, SYMM_UINT8,
                                        (uint64_t)i + 1, &s->buffers[i]));
        s->sym[i] = symm_buffer_ptr(s->buffers[i]);
        s->priv[i] = aligned_alloc(PAD, AREA_BYTES);
        CHECK(s->priv[i] != NULL);
    }
    s->mine = malloc(AREA_BYTES);
    s->want = malloc(AREA_BYTES);
    CHECK(s->mine != NULL && s->want != NULL);
    CHECK_OK(symm_rendezvous(s->team));
    return 0;
}

static void setting_close(struct setting *s)
{
    for (int i = 0; i < 2; i++) {
        free(s->priv[i]);
        symm_buffer_release(s->buffers[i]);
    }
    free(s->mine);
    free(s->want);
}

static size_t in_count(const struct setting *s, const struct test_case *t)
{
    bool blocks = t->kind == REDUCE_SCATTER || t->kind == ALL_TO_ALL;
    return blocks ? (size_t)s->n * t->count : t->count;
}

static size_t out_count(const struct setting *s, const struct test_case *t)
{
    bool blocks = t->kind == ALL_GATHER || t->kind == ALL_TO_ALL;
    return blocks ? (size_t)s->n * t->count : t->count;
}

static char *place(const struct setting *s, enum where where, int side, size_t size)
{
    switch (where) {
    case SYM:
        return s->sym[side] + PAD;
    case SYM_ODD:
        return s->sym[side] + PAD + size;
    case PRIV:
        return s->priv[side] + PAD;
    default: /* another alignment on every rank */
        return s->priv[side] + PAD + (size_t)(1 + s->rank % 3) * size;
    }
}

/* Fills s->mine and s->want. */
static int prepare(struct setting *s, const struct test_case *t)
{
    size_t size = reference_size(t->dtype), part = t->count * size;
    symm_dtype dtype = t->dtype;
    reference_fill(dtype, t->op, t->seed, s->rank, 0, in_count(s, t), s->mine);
    if (t->kind == ALL_REDUCE) { /* each rank computes a share for all */
        size_t from = t->count * (size_t)s->rank / (size_t)s->n;
        size_t to = t->count * (size_t)(s->rank + 1) / (size_t)s->n;
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        reference_reduce(dtype, t->op, t->seed, s->n, from, to - from,
                         s->shared->expected + from * size);
        CHECK_ZERO(harness_sync_wait(&s->shared->sync, s->n));
        memcpy(s->want, s->shared->expected, part);
    } else if (t->kind == REDUCE_SCATTER) {
        reference_reduce(dtype, t->op, t->seed, s->n, (size_t)s->rank * t->count,
                         t->count, s->want);
    } else if (t->kind == BROADCAST) {
        reference_fill(dtype, t->op, t->seed, t->root, 0, t->count, s->want);
    } else {
        size_t first = t->kind == ALL_TO_ALL ? (size_t)s->rank * t->count : 0;
        for (int p = 0; p < s->n; p++)
            reference_fill(dtype, t->op, t->seed, p, first, t->count,
                           s->want + (size_t)p * part);
    }
    return 0;
}

static symm_status invoke(const struct setting *s, const struct test_case *t,
                          const void *in, void *out)
{
    symm_call call;
    memset(&call, 0, sizeof(call));
    call.size = sizeof(call);
    call.site = kind_names[t->kind];
    call.algorithm = t->algorithm;
    call.numerics = t->numerics;
    switch (t->kind) {
    case ALL_REDUCE:
        return symm_all_reduce(s->team, in, out, t->count, t->dtype, t->op, &call,
                               NULL);
    case REDUCE_SCATTER:
        return symm_reduce_scatter(s->team, in, out, t->count, t->dtype, t->op, &call,
                                   NULL);
    case ALL_GATHER:
        return symm_all_gather(s->team, in, out, t->count, t->dtype, &call, NULL);
    case BROADCAST:
        return symm_broadcast(s->team, in, out, t->count, t->dtype, t->root, &call,
                              NULL);
    default:
        return symm_all_to_all(s->team, in, out, t->count, t->dtype, &call, NULL);
    }
}

/* Whether all of [from, to) still holds the fill. */
static bool untouched(const char *from, const char *to)
{
    for (; from < to; from++) {
        if (*from != (char)0xa5)
            return false;
    }
    return true;
}

static int run_layout(struct setting *s, const struct test_case *t,
                      const struct layout *l)
{
    size_t size = reference_size(t->dtype), at = 0;
    size_t in_bytes = in_count(s, t) * size, out_bytes = out_count(s, t) * size;
    char *out = place(s, l->out, 1, size), *in = place(s, l->in, 0, size);
    char what[160];
    snprintf(
        what, sizeof(what), "%s %s %s count %zu root %d n %d %s %s to %s, algorithm %s",
        kind_names[t->kind], symm_dtype_name(t->dtype), symm_op_name(t->op), t->count,
        t->root, s->n, l->in_place ? "in place" : "out of place", where_names[l->in],
        where_names[l->out], t->algorithm != NULL ? t->algorithm : "chosen");
    size_t used = l->in_place && in_bytes > out_bytes ? in_bytes : out_bytes;
    char *area = out; /* what the call may write to lies in [area, area + used) */
    memset(area - size, 0xa5, used + size + PAD);
    if (l->in_place)
        in = t->kind == ALL_GATHER ? area + (size_t)s->rank * in_bytes : area;
    if (l->in_place && t->by_block)
        out = area + (size_t)s->rank * out_bytes;
    memcpy(in, s->mine, in_bytes);

    symm_status status = invoke(s, t, in, out);
    if (t->may_refuse && (status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED))
        return 0;
    CHECK_MESSAGE(status == SYMM_OK, "%s: %s: %s", what, symm_status_name(status),
                  symm_last_error());
    CHECK_MESSAGE(reference_same(t->dtype, out, s->want, out_count(s, t), &at),
                  "%s: element %zu is wrong", what, at);
    CHECK_MESSAGE(l->in_place || memcmp(in, s->mine, in_bytes) == 0,
                  "%s: the input was changed", what);
    CHECK_MESSAGE(untouched(area - size, area) &&
                      untouched(area + used, area + used + PAD),
                  "%s: written outside of the output", what);
    return 0;
}

/* ---- All dtypes, reductions, counts, layouts ------------------------------------- */

static const size_t all_counts[] = {0, 1, 2, 3, 7, 8, 13, 64, 1000, 4097, 100000};
static const size_t few_counts[] = {1, 13, 64, 4097};

static int run_case(struct setting *s, const struct test_case *t, int turn)
{
    size_t size = reference_size(t->dtype);
    size_t most = in_count(s, t) > out_count(s, t) ? in_count(s, t) : out_count(s, t);
    if (most * size > MAX_BYTES)
        return 0;
    CHECK_ZERO(prepare(s, t));
    for (int l = 0; l < LAYOUTS; l++) {
        bool large = most * size > 20000;
        if (large && (l + turn) % LAYOUTS > 1)
            continue;
        CHECK_ZERO(run_layout(s, t, &layouts[l]));
    }
    return 0;
}

static int body_reductions(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    int few = s.n > 8 || HARNESS_SLOW, turn = 0;
    const size_t *counts = few ? few_counts : all_counts;
    int total = few ? 4 : 11;
    struct test_case t;
    memset(&t, 0, sizeof(t));
    for (int kind = ALL_REDUCE; kind <= REDUCE_SCATTER; kind++) {
        for (int i = 0; i < total * REFERENCE_DTYPES * REFERENCE_OPS; i++) {
            t.kind = (enum kind)kind;
            t.count = counts[i % total];
            t.dtype = (symm_dtype)(i / total % REFERENCE_DTYPES);
            t.op = (symm_op)(i / total / REFERENCE_DTYPES);
            t.seed++;
            turn++;
            /* Skips by dtype and op, so that every count is seen. */
            int pair = i / total;
            if (!reference_takes(t.dtype, t.op))
                continue;
            if ((pair + s.n) % s.shared->stride != 0 || (t.count > 5000 && pair % 3 != 0))
                continue;
            CHECK_ZERO(run_case(&s, &t, turn));
        }
    }
    setting_close(&s);
    return 0;
}

/* All counts for a dtype of each size, one count for the others and for many ranks. */
static bool mover_wanted(const struct setting *s, symm_dtype dtype, size_t count)
{
    bool whole = dtype == SYMM_INT8 || dtype == SYMM_BFLOAT16 ||
                 dtype == SYMM_FLOAT32 || dtype == SYMM_INT64;
    if (HARNESS_SLOW && count > 5000 && (dtype != SYMM_INT8 || s->n > 3))
        return false;
    return count == 13 || (whole && (s->n <= 4 || count == 1000));
}

static int body_movers(symm_ctx *ctx, void *arg)
{
    struct setting s;
    struct test_case t;
    int turn = 0;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    memset(&t, 0, sizeof(t));
    for (int i = 0; i < REFERENCE_DTYPES * 11; i++) {
        t.dtype = (symm_dtype)(i / 11);
        t.count = all_counts[i % 11];
        if (!mover_wanted(&s, t.dtype, t.count))
            continue;
        for (int kind = ALL_GATHER; kind < KINDS; kind++) {
            int roots = kind == BROADCAST ? s.n : 1;
            for (t.root = 0; t.root < roots; t.root++) {
                t.kind = (enum kind)kind;
                t.seed++;
                CHECK_ZERO(run_case(&s, &t, turn++));
            }
        }
    }
    setting_close(&s);
    return 0;
}

static struct harness collectives(harness_body body, int ranks, struct shared *shared)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(shared, 0, sizeof(*shared));
    /* All of the product on 2 ranks; more of them take turns on a machine's cores. */
    shared->stride = ranks > 8 || (HARNESS_SLOW && ranks > 1) ? 7 : ranks > 4 ? 5 : 1;
    if (ranks > 2 &&
        harness_env("SYMM_TEST_LONG", 0) == 0) /* other cases of 3 than of 4 */
        shared->stride *= !HARNESS_SLOW && ranks <= 4 ? 4 : 2;
    h.ranks = ranks;
    h.body = body;
    h.arg = shared;
    return h;
}

/* As processes and as threads. Many ranks take turns on the cores: in one mode, under a sanitizer in
 * that in which it sees more of them; SYMM_TEST_LONG=1: in both. */
static int run_collectives(harness_body body, int ranks, struct shared *shared)
{
    struct harness h = collectives(body, ranks, shared);
    const bool longer = harness_env("SYMM_TEST_LONG", 0) != 0;

    if (longer || (ranks <= 2 && !HARNESS_TSAN) || (!HARNESS_SLOW && ranks <= 4))
        return harness_run_both(h);
    h.mode = HARNESS_PROCESSES;
    if (HARNESS_TSAN || (!HARNESS_SLOW && ranks == 8))
        h.mode = HARNESS_THREADS;
    return harness_run(&h);
}

static void for_rank_counts(void **state, harness_body body)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 8, 16};
    /* More ranks add nothing for a sanitizer that 4 do not have. */
    const int most = HARNESS_FEW ? 4 : 7;
    int failed = 0;
    for (int i = 0; i < most; i++)
        failed |= run_collectives(body, ranks[i], *state);
    assert_int_equal(failed, 0);
}

static void reductions_are_right(void **state)
{
    for_rank_counts(state, body_reductions);
}

static void movers_are_right(void **state)
{
    for_rank_counts(state, body_movers);
}

/* ---- Algorithms by name ---------------------------------------------------------- */

/* Whether the memory that peers touch is symmetric, so that the name must be accepted.
 */
static bool must_work(const char *name, const struct layout *l)
{
    bool in = l->in == SYM || l->in == SYM_ODD,
         out = l->out == SYM || l->out == SYM_ODD;
    if (strcmp(name, "one_shot_pull") == 0)
        return in && !l->in_place;
    if (strcmp(name, "two_shot_inplace") == 0)
        return in && out;
    return true; /* copy_in */
}

static int body_algorithms(symm_ctx *ctx, void *arg)
{
    static const char *const names[] = {"copy_in", "one_shot_pull", "two_shot_inplace"};
    struct setting s;
    struct test_case t;
    /* A third of the pairs of dtype and op: each dtype and each op comes. */
    const int every = harness_env("SYMM_TEST_LONG", 0) ? 1 : 3;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    memset(&t, 0, sizeof(t));
    for (int i = 0; i < 11 * REFERENCE_DTYPES * REFERENCE_OPS; i++) {
        t.count = all_counts[i % 11];
        t.dtype = (symm_dtype)(i / 11 % REFERENCE_DTYPES);
        t.op = (symm_op)(i / 11 / REFERENCE_DTYPES);
        t.seed++;
        int pair = i / 11, share = t.count > 5000 ? 6 : 1;
        if (pair % (share * (HARNESS_SLOW ? 7 : every)) != 0 ||
            !reference_takes(t.dtype, t.op))
            continue;
        CHECK_ZERO(prepare(&s, &t));
        for (int a = 0; a < 3; a++) {
            for (int l = 0; l < LAYOUTS; l++) {
                const char *name = t.algorithm = names[a];
                if (strcmp(name, "one_shot_pull") == 0 && layouts[l].in_place)
                    continue; /* refused: test_host_api */
                t.may_refuse = !must_work(name, &layouts[l]);
                CHECK_ZERO(run_layout(&s, &t, &layouts[l]));
                if (!t.may_refuse)
                    CHECK_MESSAGE(strstr(symm_explain(s.team), name) != NULL,
                                  "symm_explain says \"%s\" after a forced %s",
                                  symm_explain(s.team), name);
            }
        }
    }
    setting_close(&s);
    return 0;
}

static void algorithms_by_name(void **state)
{
    static const int ranks[] = {2, 3, 4, 8};
    const int most = HARNESS_FEW ? 3 : 4; /* as in for_rank_counts */
    int failed = 0;
    for (int i = 0; i < most; i++)
        failed |= run_collectives(body_algorithms, ranks[i], *state);
    assert_int_equal(failed, 0);
}

/* ---- Sequences, NaN, demands, barriers ------------------------------------------- */

/* Different collectives in a random order: each must leave the channel fit for any
 * other. */
static int body_sequences(symm_ctx *ctx, void *arg)
{
    struct setting s;
    struct test_case t;
    uint64_t random = 12345;
    int steps = HARNESS_SLOW ? 300 : 3000;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    memset(&t, 0, sizeof(t));
    for (int step = 0; step < steps; step++) {
        uint64_t z = harness_random(&random);
        t.kind = (enum kind)(z % KINDS);
        t.dtype = (symm_dtype)((z >> 8) % REFERENCE_DTYPES);
        t.op = reference_op(t.dtype, (unsigned)(z >> 16) & 0xffff);
        t.root = (int)((z >> 20) % (unsigned)s.n);
        t.count = (size_t)((z >> 28) % ((z >> 26) % 4 != 0 ? 40 : 3000));
        t.seed = (uint32_t)step;
        t.numerics = (uint32_t)((z >> 40) % 3);
        CHECK_ZERO(prepare(&s, &t));
        CHECK_ZERO(run_layout(&s, &t, &layouts[(z >> 44) % LAYOUTS]));
        if ((z >> 52) % 5 == 0)
            CHECK_OK(symm_barrier(s.team, NULL, NULL));
    }
    setting_close(&s);
    return 0;
}

static void sequences_are_right(void **state)
{
    static const int ranks[] = {2, 3, 5};
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed |= run_collectives(body_sequences, ranks[i], *state);
    assert_int_equal(failed, 0);
}

/* One rank's NaN reaches every rank's result, and only that element. */
static int body_nan(symm_ctx *ctx, void *arg)
{
    struct setting s;
    struct test_case t;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    memset(&t, 0, sizeof(t));
    t.count = 37;
    for (int i = 0; i < REFERENCE_DTYPES * REFERENCE_OPS; i++) {
        t.dtype = (symm_dtype)(i % REFERENCE_DTYPES);
        t.op = (symm_op)(i / REFERENCE_DTYPES);
        t.seed = (uint32_t)i;
        if (!reference_is_float(t.dtype) || !reference_takes(t.dtype, t.op))
            continue;
        for (int culprit = 0; culprit < s.n; culprit++) {
            size_t at = (size_t)(culprit * 11 + i) % t.count;
            size_t size = reference_size(t.dtype);
            CHECK_ZERO(prepare(&s, &t));
            if (s.rank == culprit)
                reference_nan(t.dtype, s.mine + at * size);
            reference_nan(t.dtype, s.want + at * size);
            CHECK_ZERO(run_layout(&s, &t, &layouts[culprit % 2]));
        }
    }
    setting_close(&s);
    return 0;
}

static void nan_reaches_all(void **state)
{
    assert_int_equal(run_collectives(body_nan, 3, *state), 0);
}

/*
 * out == in + rank x count, the mirror of all_gather in place. On rank 0 that is out ==
 * in, on the others it is not: what the ranks choose must not depend on it.
 */
static int body_by_block(symm_ctx *ctx, void *arg)
{
    static const struct layout in_place[] = {{SYM, SYM, true}, {PRIV, PRIV, true}};
    struct setting s;
    struct test_case t;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    memset(&t, 0, sizeof(t));
    t.kind = REDUCE_SCATTER;
    t.by_block = true;
    for (int i = 0; i < 11 * REFERENCE_DTYPES; i++) {
        t.dtype = (symm_dtype)(i / 11);
        t.op = reference_op(t.dtype, (unsigned)i);
        t.count = all_counts[i % 11];
        t.seed = (uint32_t)i;
        if (in_count(&s, &t) * reference_size(t.dtype) >
            MAX_BYTES / (HARNESS_SLOW ? 4 : 1))
            continue;
        CHECK_ZERO(prepare(&s, &t));
        for (int l = 0; l < 2; l++)
            CHECK_ZERO(run_layout(&s, &t, &in_place[l]));
    }
    setting_close(&s);
    return 0;
}

static void reduce_scatter_by_block(void **state)
{
    static const int ranks[] = {1, 2, 3, 4};
    int failed = 0;
    for (int i = 0; i < 4; i++)
        failed |= run_collectives(body_by_block, ranks[i], *state);
    assert_int_equal(failed, 0);
}

/* No rank leaves before all have entered. */
static int body_barrier(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    uint64_t random = (uint64_t)s.rank;
    unsigned rounds = HARNESS_SLOW ? 200 : 2000;
    for (unsigned i = 1; i <= rounds; i++) {
        if (harness_random(&random) % 16 == 0)
            harness_sleep(5e-5);
        atomic_store(&s.shared->entered[s.rank], i);
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        for (int p = 0; p < s.n; p++)
            CHECK_MESSAGE(atomic_load(&s.shared->entered[p]) >= i,
                          "left barrier %u before rank %d had entered", i, p);
    }
    setting_close(&s);
    return 0;
}

static void barrier_waits_for_all(void **state)
{
    for_rank_counts(state, body_barrier);
}

/* Plain stores to a peer's memory are visible there after a barrier, and a load back.
 */
static int body_stores(symm_ctx *ctx, void *arg)
{
    struct setting s;
    CHECK_ZERO(setting_open(&s, ctx, arg));
    for (int p = 0; p < s.n; p++) {
        uint64_t *theirs = symm_buffer_peer_ptr(s.buffers[0], p);
        CHECK_MESSAGE(theirs != NULL, "no pointer to rank %d", p);
        CHECK(p != s.rank || (char *)theirs == s.sym[0]);
    }
    for (uint64_t i = 1; i <= 300; i++) {
        for (int p = 0; p < s.n; p++) {
            uint64_t *theirs = symm_buffer_peer_ptr(s.buffers[0], p);
            for (uint64_t k = 0; k < 50; k++)
                theirs[(uint64_t)s.rank * 50 + k] = i << 32 | (uint64_t)s.rank << 8 | k;
        }
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
        uint64_t *mine = symm_buffer_ptr(s.buffers[0]);
        for (uint64_t p = 0; p < (uint64_t)s.n; p++) {
            for (uint64_t k = 0; k < 50; k++)
                CHECK(mine[p * 50 + k] == (i << 32 | p << 8 | k));
        }
        CHECK_OK(symm_barrier(s.team, NULL, NULL));
    }
    setting_close(&s);
    return 0;
}

static void direct_stores_are_seen(void **state)
{
    static const int ranks[] = {1, 2, 4};
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed |= run_collectives(body_stores, ranks[i], *state);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_waits_for_all),
        cmocka_unit_test(movers_are_right),
        cmocka_unit_test(algorithms_by_name),
        cmocka_unit_test(sequences_are_right),
        cmocka_unit_test(nan_reaches_all),
        cmocka_unit_test(reduce_scatter_by_block),
        cmocka_unit_test(direct_stores_are_seen),
        cmocka_unit_test(reductions_are_right),
    };
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest with_state[sizeof(tests) / sizeof(tests[0])];
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        with_state[i] = tests[i];
        with_state[i].initial_state = shared;
    }
    reference_init();
    return cmocka_run_group_tests(with_state, NULL, NULL);
}
