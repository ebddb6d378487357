/* SPDX-License-Identifier: MIT */
/*
 * test_driver_wide.c - teams over several hosts on the CUDA backend: collectives by kernels
 * on each host and NCCL between them, over the fake driver and the fake NCCL. SYMM_HOST_ID
 * makes one machine appear as several hosts.
 */
/* ctest: cost 12 */
/* ctest: load 2 */
#include "engine_stage.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 1001

static int check_sums(struct engine_stage *s, const symm_call *call)
{
    size_t all = COUNT * (size_t)s->n;

    CHECK_ZERO(engine_give(s, &s->in, all));
    CHECK_OK(symm_all_reduce(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                             SYMM_SUM, call, NULL));
    CHECK_ZERO(engine_take(s, &s->out, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;

        for (int r = 0; r < s->n; r++)
            sum += engine_value(r, i);
        CHECK_MESSAGE(engine_ints(&s->out)[i] == sum, "all_reduce at %zu", i);
    }
    CHECK_OK(symm_reduce_scatter(s->team, s->in.device, s->out.device, COUNT,
                                 SYMM_INT32, SYMM_MAX, call, NULL));
    CHECK_ZERO(engine_take(s, &s->out, COUNT));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(engine_ints(&s->out)[i] ==
                          engine_value(s->n - 1, (size_t)s->rank * COUNT + i),
                      "reduce_scatter at %zu", i);
    return 0;
}

static int check_moves(struct engine_stage *s, const symm_call *call)
{
    symm_work *work;

    CHECK_OK(symm_all_gather(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                             call, &work));
    CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
    symm_work_release(work);
    CHECK_ZERO(engine_take(s, &s->out, COUNT * (size_t)s->n));
    for (size_t i = 0; i < COUNT * (size_t)s->n; i++)
        CHECK_MESSAGE(engine_ints(&s->out)[i] ==
                          engine_value((int)(i / COUNT), i % COUNT),
                      "all_gather at %zu", i);
    for (int root = 0; root < s->n; root++) {
        CHECK_OK(symm_broadcast(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                                root, call, NULL));
        CHECK_ZERO(engine_take(s, &s->out, COUNT));
        for (size_t i = 0; i < COUNT; i++)
            CHECK_MESSAGE(engine_ints(&s->out)[i] == engine_value(root, i),
                          "broadcast of %d at %zu", root, i);
    }
    CHECK_OK(symm_all_to_all(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                             call, NULL));
    CHECK_ZERO(engine_take(s, &s->out, COUNT * (size_t)s->n));
    for (size_t i = 0; i < COUNT * (size_t)s->n; i++)
        CHECK_MESSAGE(
            engine_ints(&s->out)[i] ==
                engine_value((int)(i / COUNT), (size_t)s->rank * COUNT + i % COUNT),
            "all_to_all at %zu", i);
    CHECK_OK(symm_barrier(s->team, call, NULL));
    return 0;
}

/* In place: what NCCL does not do. */
static int check_in_place(struct engine_stage *s, const symm_call *call)
{
    size_t all = COUNT * (size_t)s->n;

    CHECK_ZERO(engine_give(s, &s->in, all));
    CHECK_OK(symm_all_to_all(s->team, s->in.device, s->in.device, COUNT, SYMM_INT32,
                             call, NULL));
    CHECK_ZERO(engine_take(s, &s->in, all));
    for (size_t i = 0; i < all; i++)
        CHECK_MESSAGE(
            engine_ints(&s->in)[i] ==
                engine_value((int)(i / COUNT), (size_t)s->rank * COUNT + i % COUNT),
            "all_to_all in place at %zu", i);
    CHECK_ZERO(engine_give(s, &s->in, all));
    CHECK_OK(symm_reduce_scatter(s->team, s->in.device, s->in.device, COUNT, SYMM_INT32,
                                 SYMM_MAX, call, NULL));
    CHECK_ZERO(engine_take(s, &s->in, COUNT));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(engine_ints(&s->in)[i] ==
                          engine_value(s->n - 1, (size_t)s->rank * COUNT + i),
                      "reduce_scatter in place at %zu", i);
    return 0;
}

/* The rank behind this one among those of its host, or before it. */
static int neighbour(const struct engine_stage *s, const char *layout, int step)
{
    int m = s->rank;

    do
        m = (m + step + s->n) % s->n;
    while (layout[m] != layout[s->rank]);
    return m;
}

/* Puts and signals within the host: kernels know its ranks alone, by their places. */
static int check_near(struct engine_stage *s, const symm_call *call, const char *layout)
{
    const int to = neighbour(s, layout, 1), from = neighbour(s, layout, -1);

    CHECK_ZERO(engine_give(s, &s->in, COUNT));
    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(symm_put_signal(s->team, s->heap.device, s->in.device,
                                 COUNT * sizeof(int32_t), to, 7, call, NULL));
        CHECK_OK(symm_signal_wait(s->team, from, 7, call, NULL));
        CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
        CHECK_ZERO(device_get(&s->heap, 0, COUNT * sizeof(int32_t)));
        for (size_t i = 0; i < COUNT; i++)
            CHECK_MESSAGE(engine_ints(&s->heap)[i] == engine_value(from, i),
                          "a put from rank %d at %zu", from, i);
        CHECK_OK(symm_signal(s->team, from, 9, call, NULL)); /* read: come again */
        CHECK_OK(symm_signal_wait(s->team, to, 9, call, NULL));
    }
    for (int m = 0; m < s->n; m++)
        if (layout[m] != layout[s->rank])
            CHECK_STATUS(symm_signal(s->team, m, 7, call, NULL), SYMM_ERR_UNSUPPORTED);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_info info = {.size = sizeof(info)};
    int failed;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(strcmp(info.backend, "cuda") == 0 && info.host[0] == ((char *)arg)[s.rank]);
    const symm_call call = {.size = sizeof(call), .stream = s.stream, .site = "wide"};

    failed = check_sums(&s, &call) || check_moves(&s, &call) ||
             check_in_place(&s, &call) || check_sums(&s, &call) || /* prepared by now */
             check_near(&s, &call, arg);
    engine_close(&s);
    return failed;
}

static void test_hosts(void **state)
{
    static char layouts[][8] = {"aabb", "abb", "abab", "ab"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct harness h = {.ranks = (int)strlen(layouts[i]),
                            .body = body,
                            .arg = layouts[i],
                            .configure = harness_host_of};

        assert_int_equal(harness_run(&h), 0);
    }
}

/* More ranks than a team on devices has: no kernel is over all of them. SYMM_TEST_LONG=1: up to 64,
 * whose kernels take turns on the cores, and an even shape. */
static void test_many(void **state)
{
    static const struct {
        int hosts, each;
    } shapes[] = {{3, 5}, {2, 8}, {4, 8}, {16, 4}};

    (void)state;
    for (int i = 0; i < (harness_env("SYMM_TEST_LONG", 0) ? 4 : 1); i++) {
        char *layout = harness_shared(HARNESS_MAX_RANKS);
        struct harness h = {.ranks = shapes[i].hosts * shapes[i].each,
                            .body = body,
                            .arg = layout,
                            .configure = harness_host_of};

        for (int r = 0; r < h.ranks; r++)
            layout[r] = (char)('a' + r / shapes[i].each);
        printf("%d hosts of %d\n", shapes[i].hosts, shapes[i].each);
        assert_int_equal(harness_run(&h), 0);
        harness_shared_free(layout, HARNESS_MAX_RANKS);
    }
}

/* ---- Communicators ---------------------------------------------------------------- */

/* Made by an id, and by a split, in this process so far. */
static int check_made(uint64_t by_id, uint64_t by_split, const char *when)
{
    uint64_t ids = engine_calls("ncclCommInitRankConfig"),
             splits = engine_calls("ncclCommSplit");

    CHECK_MESSAGE(ids == by_id && splits == by_split,
                  "%s: %d communicators by an id and %d by a split", when, (int)ids,
                  (int)splits);
    return 0;
}

static int sum(struct engine_stage *s, symm_team *team)
{
    const symm_call call = {.size = sizeof(call), .stream = s->stream, .site = "sum"};

    CHECK_OK(symm_all_reduce(team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                             SYMM_SUM, &call, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    return 0;
}

static int transpose(struct engine_stage *s, symm_team *team)
{
    const symm_call call = {.size = sizeof(call), .stream = s->stream, .site = "all"};

    CHECK_OK(symm_all_to_all(team, s->in.device, s->out.device, 10, SYMM_INT32, &call,
                             NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    return 0;
}

/* The first and the last rank send each other, and themselves, a number. */
static int messages(struct engine_stage *s, symm_team *team)
{
    const symm_call call = {.size = sizeof(call), .stream = s->stream, .site = "p2p"};
    symm_p2p_op ops[4];
    int peers[2] = {s->rank, s->n - 1 - s->rank};

    if (s->rank != 0 && s->rank != s->n - 1)
        return 0;
    CHECK_ZERO(engine_give(s, &s->in, 2));
    for (int i = 0; i < 4; i++)
        ops[i] = (symm_p2p_op){.size = sizeof(ops[i]),
                               .kind = i < 2 ? SYMM_P2P_SEND : SYMM_P2P_RECV,
                               .ptr = (i < 2 ? s->in.device : s->out.device) +
                                      (size_t)(i % 2) * sizeof(int32_t),
                               .count = 1,
                               .dtype = SYMM_INT32,
                               .peer = peers[i % 2]};
    CHECK_OK(symm_p2p_batch(team, ops, 4, &call, NULL));
    CHECK_ZERO(engine_take(s, &s->out, 2));
    for (size_t i = 0; i < 2; i++)
        CHECK_MESSAGE(engine_ints(&s->out)[i] == engine_value(peers[i], i), "from %d",
                      peers[i]);
    return 0;
}

/* Communicators are made by the calls that need them. */
static int body_on_demand(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_team *team = NULL;
    bool end;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    end = s.rank == 0 || s.rank == s.n - 1;
    CHECK_ZERO(check_made(0, 0, "at the start"));
    CHECK_ZERO(sum(&s, s.team));
    CHECK_ZERO(check_made(1, 0, "the rail"));
    CHECK_ZERO(transpose(&s, s.team));
    CHECK_ZERO(sum(&s, s.team));
    CHECK_ZERO(check_made(2, 0, "all ranks"));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    CHECK_ZERO(check_made(2, 0, "a team over the hosts"));
    CHECK_ZERO(transpose(&s, team));
    CHECK_ZERO(check_made(3, 0, "all ranks of that"));
    CHECK_ZERO(sum(&s, team));
    CHECK_ZERO(check_made(3, 1, "its rail"));
    CHECK_ZERO(sum(&s, team));
    CHECK_ZERO(messages(&s, team));
    CHECK_ZERO(check_made(end ? 5 : 3, 1, "a pair, and a rank alone"));
    CHECK_ZERO(messages(&s, team));
    CHECK_ZERO(check_made(end ? 5 : 3, 1, "the same again"));
    symm_team_destroy(team);
    CHECK_OK(symm_team_split(s.team, s.rank / 2, s.rank, &team));
    CHECK_ZERO(check_made(end ? 5 : 3, 2, "a team of one host"));
    CHECK_ZERO(sum(&s, team));
    symm_team_destroy(team);
    engine_close(&s);
    return 0;
}

/* One rank on each host: the rail is all ranks. */
static int body_single(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(sum(&s, s.team));
    CHECK_ZERO(transpose(&s, s.team));
    CHECK_ZERO(check_made(1, 0, "one for both"));
    engine_close(&s);
    return 0;
}

static void test_on_demand(void **state)
{
    static char layouts[][8] = {"aabb", "abc"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct harness h = {.ranks = (int)strlen(layouts[i]),
                            .body = i == 0 ? body_on_demand : body_single,
                            .arg = layouts[i],
                            .configure = harness_host_of};

        assert_int_equal(harness_run(&h), 0);
    }
}

/* Rank 2 finalizes its context in place of a call that is NCCL's over all ranks. */
static int body_leaves(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    const symm_call call = {.size = sizeof(call), .site = "left"};
    symm_work *work = NULL;
    double begin;

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(transpose(&s, s.team));
    begin = harness_now();
    if (s.rank != 2) {
        CHECK_OK(symm_all_to_all(s.team, s.in.device, s.out.device, 10, SYMM_INT32,
                                 &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 2");
        CHECK_ERROR("has finalized its context");
        CHECK(harness_now() - begin < HARNESS_SOON);
        symm_work_release(work);
    }
    engine_close(&s);
    return 0;
}

static void test_leaves(void **state)
{
    static char layout[] = "abb";
    struct harness h = {
        .ranks = 3, .body = body_leaves, .arg = layout, .configure = harness_host_of};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

/* A communicator that cannot be made on demand: all ranks get the error of that rank, and the
 * team can make it later. */
static int body_unmade(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    const symm_call call = {.size = sizeof(call), .site = "unmade"};

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    if (s.rank == 1)
        setenv("FAKE_NCCL_FAIL", "ncclGetUniqueId", 1);
    CHECK(symm_all_reduce(s.team, s.in.device, s.out.device, COUNT, SYMM_INT32,
                          SYMM_SUM, &call, NULL) != SYMM_OK);
    CHECK_ERROR("rank 1: no id for a communicator: ncclGetUniqueId failed");
    unsetenv("FAKE_NCCL_FAIL");
    CHECK_ZERO(sum(&s, s.team));
    engine_close(&s);
    return 0;
}

static void test_unmade(void **state)
{
    static char layout[] = "aabb";
    struct harness h = {
        .ranks = 4, .body = body_unmade, .arg = layout, .configure = harness_host_of};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

struct late {
    char layout[8]; /* first: as harness_host_of takes it */
    _Atomic int over;
};

/* The last rank does not come: the handles of all others say so. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    const symm_call call = {.size = sizeof(call), .site = "late", .timeout = 0.5};
    struct late *late = arg;
    symm_status status;
    symm_work *work;

    CHECK_ZERO(engine_open(&s, ctx));
    if (s.rank < s.n - 1) {
        status = symm_all_reduce(s.team, s.in.device, s.out.device, COUNT, SYMM_INT32,
                                 SYMM_SUM, &call, &work);
        if (status == SYMM_OK) { /* else another has found out already */
            status = symm_work_synchronize(work, HARNESS_AMPLE);
            symm_work_release(work);
        }
        CHECK_MESSAGE(status == SYMM_ERR_TIMEOUT, "%s: %s", symm_status_name(status),
                      status == SYMM_OK ? "" : symm_last_error());
        late->over++;
    }
    CHECK(harness_until(&late->over, s.n - 1));
    engine_close(&s);
    return 0;
}

static void test_late(void **state)
{
    static const char layouts[][8] = {"aabb", "abb", "ab"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct late *late = harness_shared(sizeof(*late));
        struct harness h = {.ranks = (int)strlen(layouts[i]),
                            .body = body_late,
                            .arg = late,
                            .configure = harness_host_of};

        memcpy(late->layout, layouts[i], sizeof(late->layout));
        assert_int_equal(harness_run(&h), 0);
        harness_shared_free(late, sizeof(*late));
    }
}

/* ---- What is queued behind a failed call ------------------------------------------------ */

enum first { WAIT, TOKEN, COLLECTIVE, RECEIVE, FIRSTS };
/* Of the team over the hosts, and of that of the own host. */
enum next { WIDE_PUT, WIDE_SUM, NEAR_PUT, NEAR_SUM, NEXTS };

struct behind {
    char layout[8]; /* first: as harness_host_of takes it */
    enum first first;
    enum next next;
    _Atomic int over;
};

static symm_status fail_first(struct engine_stage *s, enum first first)
{
    const symm_call call = {.size = sizeof(call),
                            .stream = s->stream,
                            .site = "vain",
                            .algorithm = first == TOKEN ? "copy_engine" : NULL,
                            .timeout = 0.25};

    if (first == COLLECTIVE)
        return symm_all_reduce(s->team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                               SYMM_SUM, &call, NULL);
    return first == RECEIVE
               ? symm_recv(s->team, s->out.device, 8, SYMM_INT32, 1, &call, NULL)
               : symm_signal_wait(s->team, 1, 7, &call, NULL);
}

static symm_status queue_next(struct engine_stage *s, symm_team *near, enum next next,
                              void *there, symm_work **work)
{
    const symm_call call = {.size = sizeof(call), .stream = s->stream, .site = "after"};
    symm_team *team = next >= NEAR_PUT ? near : s->team;

    return next == WIDE_SUM || next == NEAR_SUM
               ? symm_all_reduce(team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                                 SYMM_SUM, &call, work)
               : symm_put_signal(team, there, s->in.device, 64, 1, 3, &call, work);
}

/* Rank 0 alone makes both calls: no other rank is needed for the second one to go wrong. */
static int body_behind(symm_ctx *ctx, void *arg)
{
    struct behind *behind = arg;
    struct engine_stage s;
    struct device_area area;
    symm_work *work = NULL;
    symm_team *near;

    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_team_split(s.team, s.rank / 2, s.rank, &near));
    CHECK_ZERO(device_area_open(&area, s.gpu, near, 64));
    CHECK_OK(symm_rendezvous(near));
    CHECK_ZERO(sum(&s, s.team));
    CHECK_ZERO(sum(&s, near));
    if (behind->first == RECEIVE && s.rank == 1) /* their communicator is made */
        CHECK_OK(symm_send(s.team, s.in.device, 8, SYMM_INT32, 0, NULL, NULL));
    if (behind->first == RECEIVE && s.rank == 0)
        CHECK_OK(symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, HARNESS_AMPLE));
    if (s.rank == 0) {
        void *there = behind->next == NEAR_PUT ? area.device : s.heap.device;

        CHECK_OK(fail_first(&s, behind->first));
        CHECK_OK(queue_next(&s, near, behind->next, there, &work));
        CHECK(symm_work_synchronize(work, HARNESS_AMPLE) != SYMM_OK);
        CHECK_ERROR("'vain'");
        symm_work_release(work);
    }
    behind->over++;
    CHECK(harness_until(&behind->over, s.n));
    device_area_close(&area);
    symm_team_destroy(near);
    engine_close(&s);
    return 0;
}

static void test_behind(void **state)
{
    (void)state;
    for (int i = 0; i < FIRSTS * NEXTS; i++) {
        struct behind *behind = harness_shared(sizeof(*behind));
        struct harness h = {.ranks = 4,
                            .body = body_behind,
                            .arg = behind,
                            .configure = harness_host_of};

        memcpy(behind->layout, "aabb", sizeof("aabb"));
        behind->first = (enum first)(i % FIRSTS);
        behind->next = (enum next)(i / FIRSTS);
        printf("call %d behind %d\n", (int)behind->next, (int)behind->first);
        assert_int_equal(harness_run(&h), 0);
        harness_shared_free(behind, sizeof(*behind));
    }
}

/* The last rank, of another host, aborts the team while rank 0 awaits rank 1 in a receive by a
 * communicator of their own, for which rank 1 does not come. All stay until all know. */
static int body_aborted(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    const symm_call call = {.size = sizeof(call), .site = "left"};
    struct late *late = arg;
    double begin = harness_now();
    symm_status status = SYMM_OK;

    CHECK_ZERO(engine_open(&s, ctx));
    harness_sleep(s.rank == 0 ? 0 : 0.3); /* any moment will do */
    if (s.rank == 0)
        status = symm_recv(s.team, s.out.device, 8, SYMM_INT32, 1, &call, NULL);
    else if (s.rank == s.n - 1)
        CHECK_OK(symm_team_abort(s.team, "enough"));
    while (status == SYMM_OK && harness_now() - begin < HARNESS_SOON) {
        status = symm_all_reduce(s.team, s.in.device, s.out.device, 1, SYMM_INT32,
                                 SYMM_SUM, &call, NULL);
        harness_sleep(0.005);
    }
    CHECK_STATUS(status, SYMM_ERR_ABORTED);
    CHECK_ERROR("has aborted");
    CHECK_MESSAGE(harness_now() - begin < HARNESS_SOON, "after %.3g s",
                  harness_now() - begin);
    late->over++;
    CHECK(harness_until(&late->over, s.n));
    engine_close(&s);
    return 0;
}

static void test_aborted(void **state)
{
    struct late *late = harness_shared(sizeof(*late));
    struct harness h = {
        .ranks = 3, .body = body_aborted, .arg = late, .configure = harness_host_of};

    (void)state;
    memcpy(late->layout, "abc", sizeof("abc"));
    setenv("SYMM_P2P_PAIRS", "1", 1);
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(late, sizeof(*late));
    unsetenv("SYMM_P2P_PAIRS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),     cmocka_unit_test(test_many),
        cmocka_unit_test(test_on_demand), cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_unmade),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_behind),    cmocka_unit_test(test_aborted)};

    engine_suite();
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
