/* SPDX-License-Identifier: MIT */
/*
 * test_host_kill.c - one rank is killed at a random moment of each phase of a job's life, on
 * the host backend; see kill.h.
 * ctest: cost 30
 *
 * SYMM_TEST_LONG=1: 50 kills of each phase instead of 4; SYMM_TEST_KILLS=N: N.
 */
#include "kill.h"

#include <stdlib.h>
#include <unistd.h>

#ifndef SYMM_FAKE_ENGINE
#define SYMM_FAKE_ENGINE ""
#endif

#define RANKS  3
#define LARGE  300000 /* floats: too large for staging */
#define SPREAD 0.004  /* seconds: some dozens of calls */

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    void *stream;
    float *data; /* 2 * LARGE */
};

static int stage_open(void *arg, symm_ctx *ctx)
{
    struct stage *s = arg;
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->data = calloc(2 * LARGE, sizeof(*s->data));
    CHECK(s->data != NULL);
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

static void stage_close(void *arg)
{
    struct stage *s = arg;
    symm_stream_destroy(s->ctx, s->stream);
    free(s->data);
}

/* ---- What a rank does until it fails ------------------------------------------------- */

static symm_status split_once(void *stage, int step)
{
    symm_team *team = ((struct stage *)stage)->team;
    symm_team *part = NULL;
    (void)step;
    symm_status status = symm_team_split(team, 0, -symm_team_rank(team), &part);
    if (status == SYMM_OK)
        status = symm_barrier(part, NULL, NULL);
    symm_team_destroy(part);
    return status;
}

static symm_status rendezvous_once(void *stage, int step)
{
    symm_team *team = ((struct stage *)stage)->team;
    const int64_t count = 100000, stride = 1;
    symm_buffer *buffer = NULL;
    symm_status status = symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_FLOAT32,
                                                1 + (uint64_t)(step % 8), &buffer);
    if (status == SYMM_OK)
        status = symm_rendezvous(team);
    symm_buffer_release(buffer);
    if (status == SYMM_OK && step % 8 == 7)
        for (uint64_t id = 1; id <= 8 && status == SYMM_OK; id++)
            status = symm_alloc_id_free(team, id);
    return status;
}

static symm_status collective_once(void *stage, int step)
{
    symm_team *team = ((struct stage *)stage)->team;
    float *data = ((struct stage *)stage)->data;
    const size_t counts[] = {1, 4000, LARGE / RANKS};
    size_t count = counts[step % 3];
    switch (step % 5) {
    case 0:
        return symm_all_reduce(team, data, data, count, SYMM_FLOAT32, SYMM_MAX, NULL,
                               NULL);
    case 1:
        return symm_all_gather(team, data, data + LARGE, count, SYMM_FLOAT32, NULL,
                               NULL);
    case 2:
        return symm_reduce_scatter(team, data, data + LARGE, count, SYMM_FLOAT32,
                                   SYMM_AVG, NULL, NULL);
    case 3:
        return symm_broadcast(team, data, data + LARGE, count, SYMM_FLOAT32, 1, NULL,
                              NULL);
    default:
        return symm_all_to_all(team, data, data + LARGE, count, SYMM_FLOAT32, NULL,
                               NULL);
    }
}

static symm_status stream_once(void *stage, int step)
{
    struct stage *s = stage;
    const symm_call call = {.size = sizeof(call), .stream = s->stream};
    symm_work *work = NULL;
    symm_status status = SYMM_OK;
    (void)step;
    for (int i = 0; i < 5 && status == SYMM_OK; i++) {
        symm_work_release(work);
        work = NULL;
        status = symm_all_reduce(s->team, s->data, s->data, 5000, SYMM_FLOAT32,
                                 SYMM_MAX, &call, &work);
    }
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, 0);
    symm_work_release(work);
    return status;
}

static symm_status engine_once(void *stage, int step)
{
    const symm_call call = {.size = sizeof(call), .algorithm = "engine"};
    struct stage *s = stage;
    (void)step;
    return symm_all_reduce(s->team, s->data, s->data, 40000, SYMM_FLOAT32, SYMM_MAX,
                           &call, NULL);
}

/* Once more with the survivors' team, until the rank dies in the middle of that. */
static symm_status shrink_once(void *stage, int step)
{
    symm_team *team = ((struct stage *)stage)->team, *next = NULL;
    (void)step;
    symm_status status = symm_team_shrink(team, &next);
    if (status == SYMM_OK && symm_team_size(next) == RANKS)
        status = symm_barrier(next, NULL, NULL);
    else if (status == SYMM_OK)
        status = symm_barrier(team, NULL, NULL); /* failed: it says who is gone */
    symm_team_destroy(next);
    return status;
}

/* ---- The matrix ---------------------------------------------------------------------- */

static const struct kill_phase phases[] = {
    {"init", KILL_INIT, KILL_PLAIN, 0, NULL, NULL},
    {"split", KILL_RUNNING, KILL_PLAIN, SPREAD, split_once, NULL},
    {"rendezvous", KILL_RUNNING, KILL_PLAIN, SPREAD, rendezvous_once, NULL},
    {"collectives", KILL_RUNNING, KILL_PLAIN, SPREAD, collective_once, NULL},
    {"streams", KILL_RUNNING, KILL_PLAIN, SPREAD, stream_once, NULL},
    {"an engine", KILL_RUNNING, KILL_ENGINE, SPREAD, engine_once, NULL},
    {"shrink", KILL_RUNNING, KILL_PLAIN, SPREAD, shrink_once, NULL},
    {"finalize", KILL_FINALIZE, KILL_PLAIN, 0, NULL, NULL},
};

int main(void)
{
    bool engine = access(SYMM_FAKE_ENGINE, R_OK) == 0;
    const struct kill_suite suite = {.ranks = RANKS,
                                     .kills = harness_env("SYMM_TEST_LONG", 0) ? 50 : 4,
                                     .stage_bytes = sizeof(struct stage),
                                     .engine = engine ? SYMM_FAKE_ENGINE : NULL,
                                     .open = stage_open,
                                     .close = stage_close};
    char folder[64];
    int failed;

    harness_directory(folder, sizeof(folder));
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
    failed = kill_main(&suite, phases, sizeof(phases) / sizeof(phases[0]));
    harness_remove(folder);
    return failed;
}
