/* SPDX-License-Identifier: MIT */
/*
 * test_host_kill.c - one rank is killed at a random moment of each phase of a job's life.
 * ctest: cost 30
 *
 * Every survivor ends with an error that names the dead rank, within the deadline, and
 * nothing is left on the machine. What is printed: how long after the kill the last survivor
 * had its error. A rank that dies before another has met it is missed at the deadline only.
 * SYMM_TEST_LONG=1: 50 kills of each phase instead of 4; SYMM_TEST_KILLS=N: N.
 */
#include "harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef SYMM_FAKE_ENGINE
#define SYMM_FAKE_ENGINE ""
#endif

#define RANKS 3
#define KILLS 200
#define LARGE 300000 /* floats: too large for staging */

enum phase {
    INIT,
    SPLIT,
    RENDEZVOUS,
    COLLECTIVE,
    STREAM,
    ENGINE,
    SHRINK,
    FINALIZE,
    PHASES
};
static const char *const phase_names[PHASES] = {"init",       "split",   "rendezvous",
                                                "collective", "stream",  "engine",
                                                "shrink",     "finalize"};

struct shared {
    enum phase phase;
    int victim;
    double delay;        /* seconds from all ranks' being there to the kill */
    double killed;       /* when */
    _Atomic int go;      /* the victim may begin its end */
    _Atomic int ready;   /* ranks in the phase */
    double ended[RANKS]; /* when the survivor had its error */
    symm_status status[RANKS];
    char sentence[RANKS][512];
    char directory[64];
};

/* ---- What a rank does until it fails ------------------------------------------------- */

static symm_status split_once(symm_team *team)
{
    symm_team *part = NULL;
    symm_status status = symm_team_split(team, 0, -symm_team_rank(team), &part);
    if (status == SYMM_OK)
        status = symm_barrier(part, NULL, NULL);
    symm_team_destroy(part);
    return status;
}

static symm_status rendezvous_once(symm_team *team, int step)
{
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

static symm_status collective_once(symm_team *team, int step, float *data)
{
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

static symm_status stream_once(symm_team *team, void *stream, float *data)
{
    const symm_call call = {.size = sizeof(call), .stream = stream};
    symm_work *work = NULL;
    symm_status status = SYMM_OK;
    for (int i = 0; i < 5 && status == SYMM_OK; i++) {
        symm_work_release(work);
        work = NULL;
        status = symm_all_reduce(team, data, data, 5000, SYMM_FLOAT32, SYMM_MAX, &call,
                                 &work);
    }
    if (status == SYMM_OK)
        status = symm_work_synchronize(work, 0);
    symm_work_release(work);
    return status;
}

static symm_status engine_once(symm_team *team, float *data)
{
    const symm_call call = {.size = sizeof(call), .algorithm = "engine"};
    return symm_all_reduce(team, data, data, 40000, SYMM_FLOAT32, SYMM_MAX, &call,
                           NULL);
}

/* Once more with the survivors' team, until the rank dies in the middle of that. */
static symm_status shrink_once(symm_team *team)
{
    symm_team *next = NULL;
    symm_status status = symm_team_shrink(team, &next);
    if (status == SYMM_OK && symm_team_size(next) == RANKS)
        status = symm_barrier(next, NULL, NULL);
    else if (status == SYMM_OK)
        status = symm_barrier(team, NULL, NULL); /* failed: it says who is gone */
    symm_team_destroy(next);
    return status;
}

static symm_status act(enum phase phase, symm_team *team, int step, void *stream,
                       float *data)
{
    switch (phase) {
    case SPLIT:
        return split_once(team);
    case RENDEZVOUS:
        return rendezvous_once(team, step);
    case STREAM:
        return stream_once(team, stream, data);
    case ENGINE:
        return engine_once(team, data);
    case SHRINK:
        return shrink_once(team);
    case FINALIZE:
        return symm_barrier(team, NULL, NULL);
    default:
        return collective_once(team, step, data);
    }
}

/* ---- A rank -------------------------------------------------------------------------- */

static void remember(struct shared *s, int me, symm_status status)
{
    s->ended[me] = harness_now();
    s->status[me] = status;
    snprintf(s->sentence[me], sizeof(s->sentence[me]), "%s", symm_last_error());
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    int me = harness_rank();
    float *data = calloc(2 * LARGE, sizeof(*data));
    void *stream = NULL;
    symm_status status;
    CHECK(data != NULL);
    if (s->phase == INIT) {
        config.init_deadline = config.deadline;
        atomic_fetch_add(&s->ready, 1);
    }
    status = symm_init(&config, &ctx);
    if (status == SYMM_OK && s->phase == STREAM)
        status = symm_stream_create(ctx, &stream);
    if (s->phase != INIT) {
        CHECK_STATUS(status, SYMM_OK);
        CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
        atomic_fetch_add(&s->ready, 1);
    }
    if (me == s->victim && s->phase == FINALIZE) {
        CHECK(harness_until(&s->go, 1));
        symm_finalize(ctx);
        harness_sleep(10 * HARNESS_AMPLE);
    }
    for (int step = 0; status == SYMM_OK; step++)
        status = act(s->phase, symm_team_world(ctx), step, stream, data);
    remember(s, me, status);
    symm_finalize(ctx);
    free(data);
    return 0;
}

static void direct(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    if (!harness_until(&s->ready, count))
        return;
    atomic_store(&s->go, 1);
    harness_sleep(s->delay);
    s->killed = harness_now();
    kill(ranks[s->victim], SIGKILL);
}

static void configure(symm_config *config, int rank, void *arg)
{
    const struct shared *s = arg;
    (void)rank;
    if (s->phase == ENGINE)
        setenv("SYMM_ENGINE", SYMM_FAKE_ENGINE, 1);
    config->deadline = 5; /* a rank that was not met yet is missed after this */
}

/* ---- The matrix ---------------------------------------------------------------------- */

static struct harness job(struct shared *s, harness_body what)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    h.ranks = RANKS;
    h.body = what;
    h.arg = s;
    h.without_ctx = true;
    h.configure = configure;
    return h;
}

static int body_next(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    (void)arg;
    config.deadline = config.init_deadline = HARNESS_AMPLE;
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    symm_finalize(ctx);
    return 0;
}

/* Named, and by an error that says that a rank is missing. *late: at the deadline. */
static int judge(const struct shared *s, int k, double *longest, bool *late)
{
    char name[16];
    int failed = 0;
    *longest = 0;
    *late = false;
    for (int r = 0; r < RANKS; r++) {
        double took = s->ended[r] - s->killed;
        bool good = s->status[r] == SYMM_ERR_PEER_DEAD ||
                    (s->phase == INIT && s->status[r] == SYMM_ERR_TIMEOUT);
        if (r == s->victim)
            continue;
        /* Who comes when the hub has given up and gone cannot know of the victim. */
        snprintf(name, sizeof(name), "rank %d", s->victim);
        if (s->status[r] == SYMM_ERR_TIMEOUT)
            snprintf(name, sizeof(name), "rank ");
        if (!good || strstr(s->sentence[r], name) == NULL || took > HARNESS_SOON) {
            fprintf(stderr, "%s, kill %d of rank %d: rank %d got %s after %.3f s: %s\n",
                    phase_names[s->phase], k, s->victim, r,
                    symm_status_name(s->status[r]), took, s->sentence[r]);
            failed = 1;
        }
        *late = *late || s->status[r] == SYMM_ERR_TIMEOUT;
        *longest = took > *longest ? took : *longest;
    }
    return failed;
}

static int kill_one(struct shared *s, enum phase phase, int k, uint64_t *random,
                    double *longest, bool *late)
{
    struct harness h = job(s, body), next = job(s, body_next);
    char directory[sizeof(s->directory)];
    int failed;
    memcpy(directory, s->directory, sizeof(directory));
    memset(s, 0, sizeof(*s));
    memcpy(s->directory, directory, sizeof(directory));
    s->phase = phase;
    s->victim = (int)(harness_random(random) % RANKS);
    s->delay = (double)(harness_random(random) % 4000) * 1e-6;
    if (phase == FINALIZE)
        s->delay /= 8;
    h.direct = direct;
    h.killed = 1u << s->victim;
    failed = harness_run(&h) | judge(s, k, longest, late);
    /* Of a hub that died in the meeting a dead socket may stay until the next job comes. */
    if (phase == INIT)
        failed |= harness_entries(s->directory, false) > 2 || harness_run(&next);
    return failed | harness_leftovers(s->directory);
}

static int kill_count(void)
{
    int fallback = harness_env("SYMM_TEST_LONG", 0) ? 50 : 4;
    int kills = (int)harness_env("SYMM_TEST_KILLS", fallback);
    return kills < KILLS ? kills : KILLS;
}

static void kill_many(struct shared *s, enum phase phase)
{
    double met[KILLS], missed[KILLS], took, median;
    uint64_t random = 100 + (uint64_t)phase;
    int mets = 0, misses = 0, failed = 0, kills = kill_count();
    for (int k = 0; k < kills && failed == 0; k++) {
        bool late;
        failed = kill_one(s, phase, k, &random, &took, &late);
        if (late)
            missed[misses++] = took;
        else
            met[mets++] = took;
    }
    assert_int_equal(failed, 0);
    median = harness_median(met, mets);
    fprintf(stderr, "killed in %s: %d times, error after %.2f ms, at most %.2f ms",
            phase_names[phase], kills, median * 1e3, mets ? met[mets - 1] * 1e3 : 0);
    if (misses > 0) {
        median = harness_median(missed, misses);
        fprintf(stderr, "; %d times before it was met: after %.2f s, at most %.2f s",
                misses, median, missed[misses - 1]);
    }
    fprintf(stderr, "\n");
}

static void in_init(void **state)
{
    kill_many(*state, INIT);
}

static void in_split(void **state)
{
    kill_many(*state, SPLIT);
}

static void in_rendezvous(void **state)
{
    kill_many(*state, RENDEZVOUS);
}

static void in_collectives(void **state)
{
    kill_many(*state, COLLECTIVE);
}

static void in_streams(void **state)
{
    kill_many(*state, STREAM);
}

static void in_an_engine(void **state)
{
    if (access(SYMM_FAKE_ENGINE, R_OK) != 0)
        skip();
    kill_many(*state, ENGINE);
}

static void in_shrink(void **state)
{
    kill_many(*state, SHRINK);
}

static void in_finalize(void **state)
{
    kill_many(*state, FINALIZE);
}

int main(void)
{
    char engine[64];
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(in_init),       cmocka_unit_test(in_split),
        cmocka_unit_test(in_rendezvous), cmocka_unit_test(in_collectives),
        cmocka_unit_test(in_streams),    cmocka_unit_test(in_an_engine),
        cmocka_unit_test(in_shrink),     cmocka_unit_test(in_finalize),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    harness_directory(shared->directory, sizeof(shared->directory));
    setenv("SYMM_RUNTIME_DIR", shared->directory, 1);
    harness_directory(engine, sizeof(engine));
    setenv("SYMM_FAKE_ENGINE_DIR", engine, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(engine);
    harness_remove(shared->directory);
    return failed;
}
