/* SPDX-License-Identifier: MIT */
/*
 * test_driver_sight.c - what tools see of a rank on CUDA: calls that are launched, calls that are
 * captured once, and with SYMM_SIGHT=1 how far the device is in replays of a graph, which
 * call of it waits, and for whom.
 */
#include "device.h"
#include "sight_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES   3
#define REPLAYS 10
#define COUNT   ((size_t)256)
#define LOOKS   20000 /* of a millisecond, until something is seen */

struct job {
    _Atomic int waits; /* rank 0 has seen itself wait */
    const char *algorithm;
};

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    struct device_area area;
    void *stream, *graph;
    const char *algorithm;
    const struct symm_sight_page *page;
};

/* Kernels count a call at its end, or early. */
static const char *const algorithms[] = {"copy_in", "lamport_push", "ll_push"};

static symm_status put_at(struct stage *s, const char *site, const char *algorithm)
{
    const symm_call call = {.size = sizeof(call),
                            .site = site,
                            .stream = s->stream,
                            .algorithm = algorithm};

    return symm_put(s->team, s->area.device, s->area.device, sizeof(float),
                    symm_team_rank(s->team), &call, NULL);
}

static symm_status call_at(struct stage *s, const char *site)
{
    const symm_call call = {.size = sizeof(call),
                            .site = site,
                            .stream = s->stream,
                            .algorithm = s->algorithm};

    return symm_all_reduce(s->team, s->area.device, s->area.device, COUNT, SYMM_FLOAT32,
                           SYMM_MAX, &call, NULL);
}

static int stage_open(struct stage *s, symm_ctx *ctx, const char *algorithm)
{
    char name[256];

    *s = (struct stage){
        .ctx = ctx, .team = symm_team_world(ctx), .algorithm = algorithm};
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->area, s->gpu, s->team, COUNT * sizeof(float)));
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    s->page = sight_page_open((int)getpid(), name, sizeof(name));
    CHECK(s->page != NULL);
    CHECK_OK(call_at(s, "first"));
    CHECK_OK(put_at(s, "eager put", NULL));
    CHECK_OK(put_at(s, "eager copy", "copy_engine"));
    CHECK_OK(symm_stream_synchronize(ctx, s->stream, HARNESS_AMPLE));
    CHECK_ZERO(perf_gpu_capture(s->gpu, s->stream));
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof(name), "node %d", i);
        CHECK_OK(call_at(s, name));
    }
    CHECK_OK(put_at(s, "put", NULL));
    CHECK_OK(put_at(s, "copy", "copy_engine"));
    CHECK_ZERO(perf_gpu_captured(s->gpu, s->stream, &s->graph));
    return 0;
}

static void stage_close(struct stage *s)
{
    perf_gpu_graph_free(s->gpu, s->graph);
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->area);
    perf_gpu_close(s->gpu);
    munmap((void *)(uintptr_t)s->page, sizeof(*s->page));
}

static const struct symm_sight_progress *progress_of(const struct symm_sight_page *page)
{
    for (int i = 0; i < SYMM_SIGHT_PROGRESS; i++)
        if (page->progress[i].team_uid == page->team[0].uid)
            return &page->progress[i];
    return NULL;
}

/* The number that the device has reached, as shown by a look that began after now. */
static int ended(const struct stage *s, uint32_t *number)
{
    const struct symm_sight_progress *p = NULL;
    uint64_t before = 0;

    for (int i = 0, looks = 0; i < LOOKS && looks < 3; i++, harness_sleep(0.001)) {
        p = progress_of(s->page);
        if (p && p->looked != before)
            before = p->looked, looks++;
    }
    CHECK(p != NULL);
    *number = p->ended;
    return 0;
}

static int state_of(const struct symm_sight_page *page, const char *name, int *calls)
{
    const bool puts = strstr(name, "put") || strstr(name, "copy");
    const struct symm_sight_site *site =
        sight_page_site(page, puts ? "put" : "all_reduce", name);
    int state = 0;

    *calls = 0;
    for (int i = 0; site && i < SYMM_SIGHT_CALLS; i++)
        if (page->call[i].word != 0 && page->call[i].site == site->id) {
            state = (int)(page->call[i].word & 0xff);
            ++*calls;
        }
    return state;
}

static const struct symm_sight_wait *find_wait(const struct symm_sight_page *page)
{
    for (int w = 0; w < SYMM_SIGHT_WAITS; w++)
        if (page->wait[w].since != 0)
            return &page->wait[w];
    return NULL;
}

/* Rank 0 replays alone, and waits in the graph's first call, until it has seen that it does. */
static int wait_in_graph(struct stage *s, struct job *job)
{
    const struct symm_sight_wait *wait = NULL;

    if (harness_rank() != 0) {
        CHECK_MESSAGE(harness_until(&job->waits, 1), "by %s", s->algorithm);
        CHECK_ZERO(perf_gpu_replay(s->gpu, s->graph, s->stream));
        return 0;
    }
    CHECK_ZERO(perf_gpu_replay(s->gpu, s->graph, s->stream));
    for (int i = 0; i < LOOKS && !wait; i++, harness_sleep(0.001))
        wait = find_wait(s->page);
    CHECK_MESSAGE(wait != NULL, "by %s", s->algorithm);
    CHECK(wait->missing == symm_team_size(s->team) - 1 && wait->awaited[0] == 1);
    CHECK_MESSAGE(strcmp(wait->name, "node 0") == 0, "it is '%s'", wait->name);
    CHECK(strcmp(wait->op, "all_reduce") == 0 && wait->bytes == COUNT * sizeof(float));
    CHECK(wait->team_uid == s->page->team[0].uid);
    atomic_store(&job->waits, 1);
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    for (int i = 0; i < LOOKS && wait; i++, harness_sleep(0.001))
        wait = find_wait(s->page);
    CHECK(wait == NULL);
    return 0;
}

static int body_replays(symm_ctx *ctx, void *arg)
{
    struct stage s;
    struct job *job = arg;
    uint32_t before, after;
    int calls;

    CHECK_ZERO(stage_open(&s, ctx, job->algorithm));
    CHECK(state_of(s.page, "first", &calls) == SYMM_SIGHT_LAUNCHED && calls == 1);
    CHECK(state_of(s.page, "node 2", &calls) == SYMM_SIGHT_CAPTURED && calls == 1);
    CHECK(state_of(s.page, "eager put", &calls) == SYMM_SIGHT_LAUNCHED && calls == 1);
    CHECK(state_of(s.page, "eager copy", &calls) == SYMM_SIGHT_LAUNCHED && calls == 1);
    CHECK(state_of(s.page, "put", &calls) == SYMM_SIGHT_CAPTURED && calls == 1);
    CHECK(state_of(s.page, "copy", &calls) == SYMM_SIGHT_CAPTURED && calls == 1);
    CHECK_ZERO(ended(&s, &before));
    CHECK(progress_of(s.page)->launched == 1);
    for (int i = 0; i < REPLAYS; i++)
        CHECK_ZERO(perf_gpu_replay(s.gpu, s.graph, s.stream));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    CHECK_ZERO(ended(&s, &after));
    CHECK_MESSAGE(after - before == NODES * REPLAYS, "%u calls", after - before);
    CHECK(progress_of(s.page)->launched == 1);
    CHECK(state_of(s.page, "node 2", &calls) == SYMM_SIGHT_CAPTURED && calls == 1);
    CHECK_ZERO(wait_in_graph(&s, job));
    CHECK_OK(symm_stream_synchronize(ctx, s.stream, HARNESS_AMPLE));
    stage_close(&s);
    return 0;
}

/* Teams come and go while the device is looked at. */
static int body_teams(symm_ctx *ctx, void *arg)
{
    struct stage s;
    symm_team *team;

    (void)arg;
    CHECK_ZERO(stage_open(&s, ctx, NULL));
    for (int i = 0; i < 20; i++) {
        const symm_call call = {.size = sizeof(call), .stream = s.stream};

        CHECK_OK(symm_team_split(s.team, 0, 0, &team));
        for (int k = 0; k < 20; k++)
            CHECK_OK(symm_barrier(team, &call, NULL));
        harness_sleep(i % 4 == 0 ? 0.11 : 0.003);
        symm_team_destroy(team);
    }
    for (int t = 1; t < SYMM_SIGHT_TEAMS; t++)
        CHECK(s.page->team[t].uid == 0);
    for (int i = 0; i < SYMM_SIGHT_PROGRESS; i++)
        CHECK(s.page->progress[i].team_uid == 0 ||
              s.page->progress[i].team_uid == s.page->team[0].uid);
    stage_close(&s);
    return 0;
}

static void test_replays(void **state)
{
    struct job *job = harness_shared(sizeof(*job));
    struct harness h = {.ranks = device_ranks(3), .body = body_replays, .arg = job};

    (void)state;
    if (h.ranks < 2)
        skip();
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        *job = (struct job){.algorithm = algorithms[i]};
        assert_int_equal(harness_run(&h), 0);
    }
    harness_shared_free(job, sizeof(*job));
}

static void test_teams(void **state)
{
    struct harness h = {.ranks = device_ranks(2), .body = body_teams};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replays),
                                       cmocka_unit_test(test_teams)};

    device_suite();
    setenv("SYMM_SIGHT", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
