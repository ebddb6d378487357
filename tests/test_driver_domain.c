/* SPDX-License-Identifier: MIT */
/*
 * test_driver_domain.c - NVLink domains wider than a host: ranks of several hosts that map each
 * other's memory by fabric handles, over the fake driver and a stand-in for NVML. SYMM_HOST_ID
 * makes one machine appear as several hosts.
 */
/* ctest: cost 5 */
#include "engine_stage.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/device_ops.h"

#define COUNT 1001

/* What a test gives its ranks. */
struct job {
    char hosts[9];       /* of each rank, a letter; z: outside of the clique */
    const char *setting; /* NAME=VALUE of rank `odd`; NULL: none */
    int odd;             /* -1: of all ranks */
    bool odd_host;       /* of all ranks of its host */
    int mapped[8];       /* that each rank maps, at last */
    const char *why;     /* in symm_info.why_mapped of rank 0 */
    _Atomic int over;
};

static void set(const char *setting)
{
    const char *value = strchr(setting, '=');
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)(value - setting), setting);
    setenv(name, value + 1, 1);
}

static void configure(symm_config *config, int rank, void *arg)
{
    const struct job *job = arg;
    char host[2] = {job->hosts[rank], '\0'};

    (void)config;
    setenv("SYMM_HOST_ID", host, 1);
    if (job->setting && (job->odd < 0 || rank == job->odd ||
                         (job->odd_host && job->hosts[rank] == job->hosts[job->odd])))
        set(job->setting);
}

static int run(struct job *job, harness_body body, uint64_t killed)
{
    struct job *shared = harness_shared(sizeof(*shared));
    struct harness h = {.ranks = (int)strlen(job->hosts),
                        .body = body,
                        .arg = shared,
                        .configure = configure,
                        .killed = killed};
    int failed;

    *shared = *job;
    failed = harness_run(&h);
    harness_shared_free(shared, sizeof(*shared));
    return failed;
}

/* ---- Which ranks are mapped ------------------------------------------------------------ */

static int check_mapped(symm_ctx *ctx, const struct job *job)
{
    const int rank = symm_team_rank(symm_team_world(ctx));

    CHECK_MESSAGE(ctx->places == job->mapped[rank], "%d ranks are mapped: %s",
                  ctx->places, ctx->why_domain);
    CHECK_MESSAGE(rank > 0 || strstr(ctx->why_domain, job->why) != NULL,
                  "'%s' is not in: %s", job->why, ctx->why_domain);
    return 0;
}

/* A buffer has pointers to the members whose memory is mapped. */
static int check_pointers(struct engine_stage *s, const struct job *job)
{
    symm_buffer *buffer;
    int pointers = 0;

    CHECK_OK(symm_buffer_alloc(s->team, 256, &buffer));
    CHECK_OK(symm_rendezvous(s->team));
    for (int m = 0; m < s->n; m++)
        pointers += symm_buffer_peer_ptr(buffer, m) != NULL;
    CHECK_MESSAGE(pointers == job->mapped[s->rank], "%d pointers", pointers);
    symm_buffer_release(buffer);
    return 0;
}

static int check_sums(struct engine_stage *s, const symm_call *call,
                      struct device_area *out)
{
    CHECK_ZERO(engine_give(s, &s->in, COUNT * (size_t)s->n));
    CHECK_OK(symm_all_reduce(s->team, s->in.device, out->device, COUNT, SYMM_INT32,
                             SYMM_SUM, call, NULL));
    CHECK_ZERO(engine_take(s, out, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;

        for (int r = 0; r < s->n; r++)
            sum += engine_value(r, i);
        CHECK_MESSAGE(engine_ints(out)[i] == sum, "all_reduce at %zu", i);
    }
    CHECK_OK(symm_reduce_scatter(s->team, s->in.device, out->device, COUNT, SYMM_INT32,
                                 SYMM_MAX, call, NULL));
    CHECK_ZERO(engine_take(s, out, COUNT));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(engine_ints(out)[i] ==
                          engine_value(s->n - 1, (size_t)s->rank * COUNT + i),
                      "reduce_scatter at %zu", i);
    return 0;
}

static int check_moves(struct engine_stage *s, const symm_call *call,
                       struct device_area *out)
{
    const size_t all = COUNT * (size_t)s->n;

    CHECK_OK(symm_all_gather(s->team, s->in.device, out->device, COUNT, SYMM_INT32,
                             call, NULL));
    CHECK_ZERO(engine_take(s, out, all));
    for (size_t i = 0; i < all; i++)
        CHECK_MESSAGE(engine_ints(out)[i] == engine_value((int)(i / COUNT), i % COUNT),
                      "all_gather at %zu", i);
    CHECK_OK(symm_broadcast(s->team, s->in.device, out->device, COUNT, SYMM_INT32,
                            s->n - 1, call, NULL));
    CHECK_ZERO(engine_take(s, out, COUNT));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_MESSAGE(engine_ints(out)[i] == engine_value(s->n - 1, i),
                      "broadcast at %zu", i);
    CHECK_OK(symm_all_to_all(s->team, s->in.device, out->device, COUNT, SYMM_INT32,
                             call, NULL));
    CHECK_ZERO(engine_take(s, out, all));
    for (size_t i = 0; i < all; i++)
        CHECK_MESSAGE(
            engine_ints(out)[i] ==
                engine_value((int)(i / COUNT), (size_t)s->rank * COUNT + i % COUNT),
            "all_to_all at %zu", i);
    CHECK_OK(symm_barrier(s->team, call, NULL));
    return 0;
}

/* To the next rank of this one's domain, and from the one before; others are refused. */
static int check_puts(struct engine_stage *s, const symm_call *call,
                      const struct job *job)
{
    int mates[8], count = 0, at = 0;

    for (int m = 0; m < s->n; m++)
        if ((job->hosts[m] == 'z') == (job->hosts[s->rank] == 'z'))
            mates[count++] = m;
    CHECK(count == job->mapped[s->rank]);
    while (mates[at] != s->rank)
        at++;
    const int to = mates[(at + 1) % count], from = mates[(at + count - 1) % count];

    CHECK_ZERO(engine_give(s, &s->in, COUNT));
    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(symm_put_signal(s->team, s->heap.device, s->in.device,
                                 COUNT * sizeof(int32_t), to, 7, call, NULL));
        CHECK_OK(symm_signal_wait(s->team, from, 7, call, NULL));
        CHECK_ZERO(engine_take(s, &s->heap, COUNT));
        for (size_t i = 0; i < COUNT; i++)
            CHECK_MESSAGE(engine_ints(&s->heap)[i] == engine_value(from, i),
                          "from %d at %zu", from, i);
        CHECK_OK(symm_signal(s->team, from, 9, call, NULL)); /* read: come again */
        CHECK_OK(symm_signal_wait(s->team, to, 9, call, NULL));
    }
    for (int m = 0; m < s->n; m++) {
        bool mate = false;

        for (int i = 0; i < count; i++)
            mate = mate || mates[i] == m;
        if (!mate)
            CHECK_STATUS(symm_signal(s->team, m, 7, call, NULL), SYMM_ERR_UNSUPPORTED);
    }
    return 0;
}

/* A team of every other rank, over hosts of the domain: its numbers, and device code sees all. */
static int check_split(struct engine_stage *s, const symm_call *call)
{
    const void *device;
    symm_team *team;
    int32_t sum = 0;

    CHECK_OK(symm_team_split(s->team, s->rank % 2, s->rank, &team));
    CHECK_ZERO(engine_give(s, &s->in, COUNT));
    CHECK_OK(symm_all_reduce(team, s->in.device, s->out.device, COUNT, SYMM_INT32,
                             SYMM_SUM, call, NULL));
    CHECK_ZERO(engine_take(s, &s->out, COUNT));
    for (int r = s->rank % 2; r < s->n; r += 2)
        sum += engine_value(r, 7);
    CHECK(engine_ints(&s->out)[7] == sum);
    CHECK_OK(symm_team_device(team, &device));
    symm_team_destroy(team);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    const struct job *job = arg;
    struct engine_stage s;
    int failed = 0;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    const symm_call call = {.size = sizeof(call), .stream = s.stream, .site = "domain"};

    CHECK_ZERO(check_pointers(&s, job));
    CHECK_ZERO(check_sums(&s, &call, &s.heap));
    CHECK_MESSAGE(strstr(symm_explain(s.team), job->mapped[0] == s.n
                                                   ? "NVLink domain: 4 ranks on"
                                                   : "NVLink domain: ") != NULL,
                  "%s", symm_explain(s.team));
    for (int turn = 0; turn < 2 && !failed; turn++) /* prepared the second time */
        failed = check_sums(&s, &call, &s.out) || check_moves(&s, &call, &s.out) ||
                 check_sums(&s, &call, &s.heap) || check_moves(&s, &call, &s.heap) ||
                 check_puts(&s, &call, job);
    /* A put leaves its stream the channel. */
    CHECK(failed || symm__channel_find(s.team, s.stream) < SYMM_CHANNELS);
    if (!failed && job->mapped[0] == s.n)
        failed = check_split(&s, &call);
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    /* A team within a domain needs no engine: its kernels are over all ranks. */
    CHECK(job->mapped[0] < s.n || engine_calls("ncclAllReduce") == 0);
    engine_close(&s);
    return failed;
}

static void test_domains(void **state)
{
    struct job jobs[] = {
        {"aabb", NULL, 0, false, {4, 4, 4, 4}, "4 ranks on 2 hosts are in clique 7", 0},
        {"abab", NULL, 0, false, {4, 4, 4, 4}, "4 ranks on 2 hosts are in clique 7", 0},
        {"abcc", NULL, 0, false, {4, 4, 4, 4}, "4 ranks on 3 hosts are in clique 7", 0},
        /* a host outside the clique */
        {"aabbzz",
         "FAKE_NVML_CLIQUE=8",
         4,
         true,
         {4, 4, 4, 4, 2, 2},
         "4 ranks on 2 hosts are in clique 7",
         0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
        assert_int_equal(run(&jobs[i], body, 0), 0);
}

/* ---- Why a domain is not used --------------------------------------------------------- */

static int body_why(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;

    CHECK_ZERO(check_mapped(ctx, arg));
    CHECK_ZERO(engine_open(&s, ctx));
    const symm_call call = {.size = sizeof(call), .stream = s.stream, .site = "why"};

    CHECK_ZERO(check_pointers(&s, arg));
    CHECK_ZERO(check_sums(&s, &call, &s.out));
    engine_close(&s);
    return 0;
}

static void test_why(void **state)
{
    static const struct {
        const char *setting;
        int odd;
        bool host;
        const char *why;
        bool longer; /* run with SYMM_TEST_LONG=1 only */
    } cases[] = {
        {"FAKE_NVML_STATE=2", -1, false,
         "rank 0: NVML says of the fabric of device 0000:A0:00.0: state 2 (in "
         "progress)",
         false},
        {"FAKE_NVML_STATE=0", 3, false, "rank 3: NVML says of the fabric", true},
        {"FAKE_NVML_STATUS=5", 2, false, "the fabric's registration", true},
        {"FAKE_NVML_CLUSTER=0", -1, false, "no cluster: its NVLinks end at its host",
         true},
        {"FAKE_NVML_CLUSTER=2", 2, true, "rank 2 has clique 7 of another", true},
        {"FAKE_NVML_CLIQUE=8", 2, true, "rank 2 has clique 8 of it", false},
        {"FAKE_NVML_CLIQUE=8", 1, false, "ranks 0 and 1 of one host are in two cliques",
         true},
        {"FAKE_NVML_FAIL=nvmlDeviceGetGpuFabricInfoV", 1, false,
         "rank 1: nvmlDeviceGetGpuFabricInfoV of device", true},
        {"FAKE_CUDA_FABRIC=0", -1, false, "there is no IMEX channel", false},
        {"FAKE_CUDA_FABRIC_FAILS=1", 3, false,
         "rank 3 cannot use the memory of rank 0 on host a: cuMemImportFromShareable",
         false},
        {"FAKE_CUDA_FABRIC_WRONG=1", 1, false,
         "rank 1 cannot use the memory of rank 2 on host b: the memory behind a fabric "
         "handle was mapped, but reads as other bytes",
         false},
        {"SYMM_FABRIC=0", 1, false, "rank 1 has no SYMM_FABRIC=1", false},
        {"SYMM_FABRIC=0", -1, false, "SYMM_FABRIC=1 was not set", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct job job = {.hosts = "aabb",
                          .setting = cases[i].setting,
                          .odd = cases[i].odd,
                          .odd_host = cases[i].host,
                          .mapped = {2, 2, 2, 2},
                          .why = cases[i].why};

        if (cases[i].longer && harness_env("SYMM_TEST_LONG", 0) != 1)
            continue;
        printf("%s\n", cases[i].setting);
        assert_int_equal(run(&job, body_why, 0), 0);
    }
}

/* ---- Failures ------------------------------------------------------------------------ */

/* A call that ends with an error on this rank; the sentence is kept by the thread. */
static int broken_at(struct engine_stage *s, const char *site, size_t count,
                     double timeout, symm_status wanted)
{
    const symm_call call = {
        .size = sizeof(call), .stream = s->stream, .site = site, .timeout = timeout};
    symm_work *work;
    symm_status status = symm_all_reduce(s->team, s->in.device, s->out.device, count,
                                         SYMM_INT32, SYMM_SUM, &call, &work);

    if (status == SYMM_OK) { /* else another has found out already */
        status = symm_work_synchronize(work, HARNESS_AMPLE);
        symm_work_release(work);
    }
    CHECK_MESSAGE(status == wanted, "%s: %s", symm_status_name(status),
                  status == SYMM_OK ? "" : symm_last_error());
    return 0;
}

static int broken(struct engine_stage *s, size_t count, double timeout,
                  symm_status wanted)
{
    return broken_at(s, "broken", count, timeout, wanted);
}

/* The last rank does not come: the ranks of its own host and those of the other say so. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct engine_stage s;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    if (s.rank < s.n - 1) {
        CHECK_ZERO(broken(&s, COUNT, 0.5, SYMM_ERR_TIMEOUT));
        CHECK_ERROR("rank 3 did not arrive at site 'broken'");
        job->over++;
    }
    CHECK(harness_until(&job->over, s.n - 1));
    engine_close(&s);
    return 0;
}

/* A report travels: the rank that fails is alone on its host with a short deadline. */
static int body_told(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct engine_stage s;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    if (s.rank > 0) {
        CHECK_ZERO(
            broken(&s, COUNT, s.rank == 3 ? 0.5 : HARNESS_AMPLE, SYMM_ERR_TIMEOUT));
        CHECK_ERROR("rank 0 did not arrive at site 'broken'");
        job->over++;
    }
    CHECK(harness_until(&job->over, s.n - 1));
    engine_close(&s);
    return 0;
}

/* Rank 3, alone on its host, makes another call than the others: its site, or theirs, is told. */
static int body_mismatch(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct engine_stage s;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_ZERO(broken_at(&s, s.rank == 3 ? "other" : "broken", s.rank == 3 ? 8 : COUNT,
                         HARNESS_AMPLE, SYMM_ERR_MISMATCH));
    CHECK_ERROR("site 'other' (all_reduce sum of 8 int32");
    CHECK_ERROR("site 'broken' (all_reduce sum of 1001 int32");
    CHECK_ERROR("all ranks of a team must make the same calls in the same order");
    job->over++;
    CHECK(harness_until(&job->over, s.n));
    engine_close(&s);
    return 0;
}

/* A rank of the other host dies while the others wait for it. */
static int body_death(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct engine_stage s;
    symm_team *rest;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    const symm_call call = {.size = sizeof(call), .stream = s.stream, .site = "domain"};

    CHECK_ZERO(check_sums(&s, &call, &s.out));
    if (s.rank == 3)
        raise(SIGKILL);
    CHECK_ZERO(broken(&s, COUNT, HARNESS_AMPLE, SYMM_ERR_PEER_DEAD));
    CHECK_ERROR("rank 3 ");
    job->over++;
    CHECK(harness_until(&job->over, s.n - 1));
    CHECK_OK(
        symm_team_shrink(s.team, &rest)); /* the relay's board finds the survivors */
    s.team = rest;
    s.n = 3;
    CHECK(symm_team_size(rest) == 3);
    CHECK_ZERO(check_sums(&s, &call, &s.out));
    symm_team_destroy(rest);
    engine_close(&s);
    return 0;
}

/* One that finalizes leaves no rank waiting. */
static int body_left(symm_ctx *ctx, void *arg)
{
    struct job *job = arg;
    struct engine_stage s;

    CHECK_ZERO(check_mapped(ctx, job));
    CHECK_ZERO(engine_open(&s, ctx));
    if (s.rank != 3) {
        CHECK_ZERO(broken(&s, COUNT, HARNESS_AMPLE, SYMM_ERR_PEER_DEAD));
        CHECK_ERROR("rank 3 ");
    }
    engine_close(&s);
    return 0;
}

static void test_failures(void **state)
{
    static const struct {
        const char *name;
        harness_body body;
        uint64_t killed;
        const char *hosts;
    } cases[] = {{"late", body_late, 0, "aabb"},
                 {"told", body_told, 0, "aabb"},
                 {"mismatch", body_mismatch, 0, "aaab"},
                 {"death", body_death, 8, "aabb"},
                 {"left", body_left, 0, "aabb"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct job job = {"", NULL, 0, false, {4, 4, 4, 4}, "clique 7", 0};

        memcpy(job.hosts, cases[i].hosts, 5);
        printf("%s\n", cases[i].name);
        assert_int_equal(run(&job, cases[i].body, cases[i].killed), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_failures),
    };

    engine_suite();
    if (device_real() || !dlopen(SYMM_FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "over the fake driver only\n");
        return 77;
    }
    setenv("SYMM_FABRIC", "1", 1);
    setenv("FAKE_CUDA_FABRIC", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
