/* SPDX-License-Identifier: MIT */
/*
 * test_host_mismatch.c - if ranks make different calls, all ranks get an error.
 * ctest: cost 7
 * ctest: sanitize-long
 *
 * Every collective, combined with every difference between one rank's call and the others',
 * for 2 and 3 ranks, processes and threads, private and symmetric memory. Each rank must
 * get the error at once, with a rank and the sites; no rank may return SYMM_OK with a wrong
 * result; later calls fail at once with the same status.
 */
#include "core/team.h"
#include "harness.h"
#include "oob/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    ALL_TO_ALL,
    BARRIER,
    KINDS
};
static const char *const kind_names[KINDS] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier"};

/* How the culprit differs. */
enum change {
    COUNT,
    COUNT_MUCH,
    DTYPE,
    DTYPE_SIZE,
    OP,
    SITE,
    SITE_NULL,
    ORDER,
    EXTRA,
    OTHER,
    ROOT,
    ALGORITHM, /* from here on: the error on all ranks, or the right result on all */
    IN_PLACE,
    OFFSET,
    PRIVATE,
    TEAM, /* from here on: nobody ever comes */
    MISSING,
    CHANGES
};
static const char *const change_names[CHANGES] = {
    "count",     "count_much", "dtype",   "dtype_size", "op",     "site",
    "site_null", "order",      "extra",   "other",      "root",   "algorithm",
    "in_place",  "offset",     "private", "team",       "missing"};

#define AREA_BYTES ((int64_t)2 << 20)
#define BASE_COUNT ((size_t)100)
#define FAST       (HARNESS_SLOW ? 3.0 : 0.3) /* seconds, of the fastest case of a change */

struct report {
    symm_status status, later;
    bool right, later_text;
    double took, later_took;
    char text[512];
};

struct scenario {
    struct harness_sync sync;
    enum kind kind;
    enum change change;
    int ranks, culprit;
    bool symmetric;
    struct report reports[HARNESS_MAX_RANKS];
};

struct arguments {
    enum kind kind;
    symm_team *team;
    const int *in;
    int *out;
    size_t count;
    symm_dtype dtype;
    symm_op op;
    int root;
    symm_call call;
};

static symm_status invoke(const struct arguments *a)
{
    const symm_call *call = &a->call;
    switch (a->kind) {
    case ALL_REDUCE:
        return symm_all_reduce(a->team, a->in, a->out, a->count, a->dtype, a->op, call,
                               NULL);
    case REDUCE_SCATTER:
        return symm_reduce_scatter(a->team, a->in, a->out, a->count, a->dtype, a->op,
                                   call, NULL);
    case ALL_GATHER:
        return symm_all_gather(a->team, a->in, a->out, a->count, a->dtype, call, NULL);
    case BROADCAST:
        return symm_broadcast(a->team, a->in, a->out, a->count, a->dtype, a->root, call,
                              NULL);
    case ALL_TO_ALL:
        return symm_all_to_all(a->team, a->in, a->out, a->count, a->dtype, call, NULL);
    default:
        return symm_barrier(a->team, call, NULL);
    }
}

static int value(int rank, size_t i)
{
    return 1000 * (rank + 1) + (int)(i % 97);
}

static bool result_right(const struct arguments *a, int me, int n)
{
    size_t count = a->count;
    int wanted = 0;
    if (a->kind == BARRIER)
        return true;
    size_t blocks = a->kind == ALL_GATHER || a->kind == ALL_TO_ALL ? (size_t)n : 1;
    for (size_t i = 0; i < blocks * count; i++) {
        size_t at = i % count;
        int from = (int)(i / count);
        wanted = 0;
        if (a->kind == ALL_REDUCE || a->kind == REDUCE_SCATTER) {
            size_t first = a->kind == REDUCE_SCATTER ? (size_t)me * count : 0;
            for (int p = 0; p < n; p++)
                wanted += value(p, first + at);
        } else if (a->kind == ALL_GATHER) {
            wanted = value(from, at);
        } else if (a->kind == BROADCAST) {
            wanted = value(0, at);
        } else {
            wanted = value(from, (size_t)me * count + at);
        }
        if (a->out[i] != wanted)
            return false;
    }
    return true;
}

/* What the culprit does differently, as far as arguments go. */
static void differ(struct arguments *a, enum change change, int *private_in, int *in,
                   symm_team *other)
{
    switch (change) {
    case COUNT:
        a->count++;
        break;
    case COUNT_MUCH:
        a->count = 30000;
        break;
    case DTYPE:
        a->dtype = SYMM_FLOAT32;
        break;
    case DTYPE_SIZE:
        a->dtype = SYMM_INT64;
        break;
    case OP:
        a->op = SYMM_MAX;
        break;
    case EXTRA:
        a->kind = BARRIER;
        a->call.site = "layer8.attn";
        break;
    case SITE:
    case ORDER: /* the others would come there next */
        a->call.site = "layer8.attn";
        break;
    case SITE_NULL:
        a->call.site = NULL;
        break;
    case OTHER:
        a->kind = (enum kind)((a->kind + 1) % KINDS);
        break;
    case ROOT:
        a->root = 1;
        break;
    case ALGORITHM:
        a->call.algorithm = "copy_in";
        break;
    case IN_PLACE:
        a->out = in;
        a->in = in;
        break;
    case OFFSET:
        a->in += 16;
        break;
    case PRIVATE:
        a->in = private_in;
        break;
    case TEAM:
        a->team = other;
        break;
    default:
        break;
    }
}

/* The error has gone to everybody: what comes after it. */
static int later_call(symm_team *team, struct report *report)
{
    double start = harness_now();
    report->later = symm_barrier(team, NULL, NULL);
    report->later_took = harness_now() - start;
    report->later_text = symm_last_error()[0] != '\0';
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct scenario *s = arg;
    symm_team *world = symm_team_world(ctx), *other = NULL;
    struct report *report = &s->reports[harness_rank()];
    symm_buffer *buffers[2];
    const int64_t shape = AREA_BYTES, stride = 1;
    bool culprit = symm_team_rank(world) == s->culprit;
    int me = symm_team_rank(world), n = symm_team_size(world);
    int *priv[2] = {calloc(1, (size_t)AREA_BYTES), calloc(1, (size_t)AREA_BYTES)};
    int *sym[2], **memory;
    struct arguments a;

    for (int i = 0; i < 2; i++) {
        CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_UINT8,
                                        (uint64_t)i + 1, &buffers[i]));
        sym[i] = symm_buffer_ptr(buffers[i]);
    }
    CHECK(priv[0] != NULL && priv[1] != NULL);
    CHECK_OK(symm_rendezvous(world));
    CHECK_OK(symm_team_split(world, 0, me, &other));
    memory = s->symmetric ? sym : priv;
    for (size_t i = 0; i < 100000; i++)
        sym[0][i] = priv[0][i] = value(me, i);
    memset(&a, 0, sizeof(a));
    a = (struct arguments){.kind = s->kind,
                           .team = world,
                           .in = memory[0],
                           .out = memory[1],
                           .count = BASE_COUNT,
                           .dtype = SYMM_INT32,
                           .op = SYMM_SUM};
    a.call.size = sizeof(a.call);
    a.call.site = "layer7.mlp";
    if (s->change == ALGORITHM)
        a.call.algorithm = "one_shot_pull";
    if (s->change >= TEAM)
        a.call.timeout = 0.3;
    if (s->change == OFFSET && culprit) /* what the right result needs */
        memmove(sym[0] + 16, sym[0], 50000 * sizeof(int));
    for (int i = 0; i < 3; i++)
        CHECK_OK(symm_barrier(world, NULL, NULL));
    if (culprit)
        differ(&a, s->change, priv[0], sym[0], other);

    if (s->change == MISSING && culprit)
        CHECK_ZERO(
            harness_sync_wait(&s->sync, n)); /* comes when all others have failed */
    double start = harness_now();
    report->status = invoke(&a);
    report->took = harness_now() - start;
    snprintf(report->text, sizeof(report->text), "%s",
             report->status != SYMM_OK ? symm_last_error() : "");
    report->right = report->status == SYMM_OK && result_right(&a, me, n);
    if (!(s->change == MISSING && culprit))
        CHECK_ZERO(harness_sync_wait(&s->sync, n));
    if (report->status != SYMM_OK)
        CHECK_ZERO(later_call(a.team, report));
    free(priv[0]);
    free(priv[1]);
    return 0;
}

/* ---- Judging --------------------------------------------------------------------- */

static int complain(const struct scenario *s, int rank, const char *what)
{
    const struct report *r = &s->reports[rank];
    fprintf(
        stderr,
        "  %s, rank %d of %d differs in %s, %s memory: rank %d: %s: %s after %.0f ms: "
        "\"%s\"\n",
        kind_names[s->kind], s->culprit, s->ranks, change_names[s->change],
        s->symmetric ? "symmetric" : "private", rank, what, symm_status_name(r->status),
        r->took * 1e3, r->text);
    return 1;
}

static int judge_sentence(const struct scenario *s, int rank)
{
    const char *text = s->reports[rank].text;
    char culprit[16];
    snprintf(culprit, sizeof(culprit), "rank %d", s->culprit);
    if (strstr(text, "rank ") == NULL)
        return complain(s, rank, "names no rank");
    if (rank != s->culprit && strstr(text, culprit) == NULL)
        return complain(s, rank, "does not name the rank that differs");
    if (strstr(text, "layer7.mlp") == NULL)
        return complain(s, rank, "does not name the site");
    bool two_sites = s->change == SITE || s->change == ORDER || s->change == EXTRA;
    if (two_sites && strstr(text, "layer8.attn") == NULL)
        return complain(s, rank, "does not name the other site");
    return 0;
}

static int judge(const struct scenario *s)
{
    bool all_right = true, late = s->change >= TEAM;
    for (int r = 0; r < s->ranks; r++)
        all_right = all_right && s->reports[r].right;
    if (all_right && s->change >= ALGORITHM && !late)
        return 0;
    for (int r = 0; r < s->ranks; r++) {
        const struct report *report = &s->reports[r];
        symm_status status = report->status;
        bool absent = s->change == MISSING && r == s->culprit;
        if (status == SYMM_OK)
            return complain(s, r,
                            report->right ? "no error" : "SYMM_OK with a wrong result");
        if (s->change == MISSING && !absent && status != SYMM_ERR_TIMEOUT)
            return complain(s, r, "not SYMM_ERR_TIMEOUT");
        if (!late && status != SYMM_ERR_MISMATCH)
            return complain(s, r, "not SYMM_ERR_MISMATCH");
        if (s->change == TEAM && status != SYMM_ERR_TIMEOUT &&
            status != SYMM_ERR_MISMATCH)
            return complain(s, r, "neither SYMM_ERR_TIMEOUT nor SYMM_ERR_MISMATCH");
        if (!late && report->took > HARNESS_SOON)
            return complain(s, r, "late");
        if (s->change == MISSING && strstr(report->text, "rank ") == NULL)
            return complain(s, r, "names no rank");
        if (!late && judge_sentence(s, r) != 0)
            return 1;
        if (report->later != status || !report->later_text)
            return complain(s, r, "a later call returned another status");
        if (report->later_took > HARNESS_SOON)
            return complain(s, r, "a later call did not fail fast");
    }
    return 0;
}

/* What a rank has waited for the errors of the call and of the next. */
static double longest(const struct scenario *s)
{
    double most = 0;
    for (int r = 0; r < s->ranks; r++) {
        const struct report *report = &s->reports[r];
        most = report->took + report->later_took > most
                   ? report->took + report->later_took
                   : most;
    }
    return most;
}

static bool applies(enum kind kind, enum change change)
{
    if (kind == BARRIER)
        return change == SITE || change == SITE_NULL || change == ORDER ||
               change == OTHER || change == TEAM || change == MISSING;
    if (change == OP)
        return kind == ALL_REDUCE || kind == REDUCE_SCATTER;
    if (change == ROOT)
        return kind == BROADCAST;
    if (change == ALGORITHM)
        return kind == ALL_REDUCE;
    if (change == IN_PLACE)
        return kind != ALL_GATHER; /* whose place is another */
    return true;
}

static void differing_calls(void **state)
{
    static int cases;
    struct scenario *s = harness_shared(sizeof(*s));
    enum change change = *(const enum change *)*state;
    int failed = 0, run = 0;
    double fastest = HARNESS_SOON;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int n = 2; n <= 3 && applies((enum kind)kind, change); n++) {
            struct harness h;
            memset(&h, 0, sizeof(h));
            memset(s, 0, sizeof(*s));
            cases++;
            s->kind = (enum kind)kind;
            s->change = change;
            s->ranks = n;
            s->culprit = cases % n;
            s->symmetric = (change >= ALGORITHM && change < TEAM) || cases / 2 % 2 != 0;
            h.ranks = n;
            h.mode = cases % 2 != 0 ? HARNESS_THREADS : HARNESS_PROCESSES;
            h.body = body;
            h.arg = s;
            run++;
            if (harness_run(&h) != 0 || judge(s) != 0)
                failed++;
            double took = longest(s);
            fastest = took < fastest ? took : fastest;
        }
    }
    harness_shared_free(s, sizeof(*s));
    if (failed != 0)
        fail_msg("%s: %d of %d cases failed", change_names[change], failed, run);
    if (change < TEAM && fastest > FAST)
        fail_msg("%s: known after %.3f s at best", change_names[change], fastest);
}

/* ---- Calls whose arrays alone differ ---------------------------------------------- */

/* What rank 1 does differently, in symmetric memory; `says`: beside one text for both. */
static const struct placed {
    enum kind kind;
    const char *algorithm;
    int in, out; /* elements by which rank 1's arrays are shifted */
    bool in_place;
    const char *says;
} placed[] = {
    {ALL_REDUCE, "one_shot_pull", 16, 0, false, ", but `in` is at offset "},
    {ALL_REDUCE, "two_shot_inplace", 0, 16, false, ", but `out` is at offset "},
    {ALL_REDUCE, "two_shot_inplace", 0, 0, true, ", but `out` is at offset "},
    {ALL_GATHER, "one_shot_pull", 0, 0, true, ", but it is in place on rank 1 alone"},
    {BROADCAST, "one_shot_pull", 0, 16, false, ", but `out` is at offset "},
};

static int body_placed(symm_ctx *ctx, void *arg)
{
    const struct placed *p = arg;
    const int64_t shape = AREA_BYTES, stride = 1;
    symm_team *world = symm_team_world(ctx);
    symm_buffer *buffers[2];
    int *memory[2];
    struct arguments a = {.kind = p->kind,
                          .team = world,
                          .count = BASE_COUNT,
                          .dtype = SYMM_INT32,
                          .op = SYMM_SUM,
                          .call = {.size = sizeof(a.call),
                                   .site = "layer7.mlp",
                                   .algorithm = p->algorithm}};

    for (uint64_t i = 0; i < 2; i++) {
        CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_UINT8, i + 1,
                                        &buffers[i]));
        memory[i] = symm_buffer_ptr(buffers[i]);
    }
    CHECK_OK(symm_rendezvous(world));
    a.in = memory[0];
    a.out = memory[1];
    if (harness_rank() == 1) {
        a.in += p->in;
        a.out = p->in_place ? memory[0] : a.out + p->out;
        if (p->in_place && p->kind == ALL_GATHER)
            a.in += BASE_COUNT;
    }
    CHECK_STATUS(invoke(&a), SYMM_ERR_MISMATCH);
    CHECK_ERROR(p->says);
    CHECK_ERROR("at site 'layer7.mlp' (");
    CHECK_ERROR("rank 0");
    CHECK_ERROR("rank 1");
    return 0;
}

static void placed_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(placed) / sizeof(placed[0]); i++) {
        struct placed one = placed[i / 2];
        struct harness h = {.ranks = 2,
                            .mode = i % 2 ? HARNESS_THREADS : HARNESS_PROCESSES,
                            .body = body_placed,
                            .arg = &one};

        if (harness_run(&h) != 0)
            fail_msg("%s by %s", kind_names[one.kind], one.algorithm);
    }
}

/* ---- A call and a rendezvous ------------------------------------------------------ */

/* Waits until the rank has come to an exchange of the world. */
static int await_begun(symm_ctx *ctx, int rank)
{
    const symm_team *world = symm_team_world(ctx);
    double begin = harness_now();
    char what[64];

    while (!symm__oob_begun(&ctx->oob, rank, world->uid, world->sequence, what)) {
        CHECK(harness_now() - begin < HARNESS_AMPLE);
        harness_sleep(1e-3);
    }
    return 0;
}

/* Rank 0 makes a barrier, the others a rendezvous, or nothing: rank 0 says which. */
static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    const bool *comes = arg;
    symm_call call = {.size = sizeof(call), .site = "layer7.mlp", .timeout = 0.3};
    symm_team *world = symm_team_world(ctx);

    if (harness_rank() == 0) {
        if (*comes)
            CHECK_ZERO(await_begun(ctx, 1));
        CHECK_STATUS(symm_barrier(world, &call, NULL), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("rank 1 did not arrive at site 'layer7.mlp'");
        CHECK_ERROR(*comes ? "; rank 1 waits in rendezvous (world): all ranks of a "
                             "team must make the same calls"
                           : "; rank 1 has made no call on this channel; if it is only "
                             "slow, raise the timeout");
        return 0;
    }
    if (*comes)
        CHECK(symm_rendezvous(world) != SYMM_OK); /* rank 0 goes */
    else
        CHECK_STATUS(symm_signal_wait(world, 0, 0, NULL, NULL), SYMM_ERR_TIMEOUT);
    return 0;
}

static void elsewhere(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool comes = i % 2;
        struct harness h = {.ranks = 2,
                            .mode = i < 2 ? HARNESS_THREADS : HARNESS_PROCESSES,
                            .body = body_elsewhere,
                            .arg = &comes};

        assert_int_equal(harness_run(&h), 0);
    }
}

int main(void)
{
    static enum change changes[CHANGES];
    struct CMUnitTest tests[CHANGES + 2] = {
        [CHANGES] = cmocka_unit_test(elsewhere),
        [CHANGES + 1] = cmocka_unit_test(placed_apart),
    };
    for (int i = 0; i < CHANGES; i++) {
        changes[i] = (enum change)i;
        tests[i] = (struct CMUnitTest){change_names[i], differing_calls, NULL, NULL,
                                       &changes[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
