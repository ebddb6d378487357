/* SPDX-License-Identifier: MIT */
/* kill.c - see kill.h. */
#include "kill.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PHASES       16
#define KILLS        1000
#define CALL_SECONDS 20.0 /* the deadline of calls: nobody may need it */
#define MEET_SECONDS 3.0  /* that of symm_init, beside what it takes */
#define HOLD_SECONDS 0.5  /* until who is held in its end is there */
#define RUN_LIMIT    90.0 /* of a job */

/* What the parent and the ranks share. */
struct state {
    const struct kill_phase *phase; /* NULL: nobody is killed */
    int victim;
    double delay;      /* seconds from all ranks' being there to the kill */
    double killed;     /* when */
    _Atomic int go;    /* the victim may begin its end */
    _Atomic int ready; /* ranks in the phase */
    double init[HARNESS_MAX_RANKS], finalize[HARNESS_MAX_RANKS]; /* seconds they took */
    double ended[HARNESS_MAX_RANKS]; /* when a survivor had its error */
    symm_status status[HARNESS_MAX_RANKS];
    char sentence[HARNESS_MAX_RANKS][512];
};

static struct kill_suite suite;
static struct state *state;
static char directory[64];
static bool engine; /* the ranks have one */
static struct {
    double init, finalize;
} seconds[2]; /* without and with an engine */

/* ---- A rank -------------------------------------------------------------------------- */

symm_status kill_meet(symm_team *team)
{
    symm_work *work = NULL;
    symm_status status = symm_barrier(team, NULL, &work);

    if (status == SYMM_OK)
        status = symm_work_synchronize(work, CALL_SECONDS);
    symm_work_release(work);
    return status;
}

static void remember(int me, symm_status status)
{
    state->ended[me] = harness_now();
    state->status[me] = status;
    snprintf(state->sentence[me], sizeof(state->sentence[me]), "%s", symm_last_error());
}

static symm_status until_failed(symm_ctx *ctx, const struct kill_phase *phase,
                                void *stage)
{
    symm_status status = SYMM_OK;

    for (int step = 0; status == SYMM_OK; step++)
        status = phase->act ? phase->act(stage, step) : kill_meet(symm_team_world(ctx));
    return status;
}

static int body(symm_ctx *ctx, void *arg)
{
    const struct kill_phase *phase = state->phase;
    symm_config config = harness_config();
    int me = harness_rank();
    bool opened = phase->when != KILL_INIT;
    void *stage = calloc(1, suite.stage_bytes);
    symm_status status;

    (void)arg;
    CHECK(stage != NULL);
    if (!opened)
        atomic_fetch_add(&state->ready, 1);
    status = symm_init(&config, &ctx);
    if (opened) {
        CHECK_STATUS(status, SYMM_OK);
        CHECK_ZERO(suite.open(stage, ctx));
        CHECK_OK(kill_meet(symm_team_world(ctx)));
        atomic_fetch_add(&state->ready, 1);
    }
    if (me == state->victim && phase->when == KILL_FINALIZE) {
        CHECK(harness_until(&state->go, 1));
        if (phase->hold)
            CHECK_ZERO(phase->hold(stage));
        else
            suite.close(stage);
        symm_finalize(ctx);
        harness_sleep(10 * HARNESS_AMPLE);
    }
    if (status == SYMM_OK)
        status = until_failed(ctx, phase, stage);
    remember(me, status);
    if (opened)
        suite.close(stage);
    symm_finalize(ctx);
    free(stage);
    return 0;
}

/* All is well. */
static int body_alive(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    double begin = harness_now();
    int me = harness_rank();

    (void)arg;
    CHECK_OK(symm_init(&config, &ctx));
    state->init[me] = harness_now() - begin;
    CHECK_OK(kill_meet(symm_team_world(ctx)));
    begin = harness_now();
    symm_finalize(ctx);
    state->finalize[me] = harness_now() - begin;
    return 0;
}

static void direct(const pid_t *ranks, int count, void *arg)
{
    (void)arg;
    if (!harness_until(&state->ready, count))
        return;
    atomic_store(&state->go, 1);
    harness_sleep(state->delay);
    state->killed = harness_now();
    kill(ranks[state->victim], SIGKILL);
}

static void configure(symm_config *config, int rank, void *arg)
{
    (void)arg;
    if (suite.configure)
        suite.configure(config, rank);
    if (!state->phase)
        return;
    config->timeout = CALL_SECONDS;
    if (state->phase->when == KILL_INIT)
        config->init_timeout = MEET_SECONDS + 2 * seconds[engine].init;
}

/* ---- One kill ------------------------------------------------------------------------ */

static struct harness job(harness_body what)
{
    struct harness h;

    if (suite.before)
        suite.before();
    memset(&h, 0, sizeof(h));
    h.ranks = suite.ranks;
    h.body = what;
    h.without_ctx = true;
    h.configure = configure;
    h.team_bytes = suite.team_bytes;
    h.limit = RUN_LIMIT;
    return h;
}

static void set_engine(bool wanted)
{
    engine = wanted || suite.engine_always;
    setenv("SYMM_ENGINE", engine ? suite.engine : "none", 1);
}

/* Processes that lost their parent become this program's. */
static int orphans(void)
{
    int count = 0;
    pid_t pid = 0;

    while (pid >= 0) {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) { /* one that still runs */
            fprintf(stderr, "left behind: a process\n");
            return count + 1;
        }
        count += pid > 0;
    }
    return count;
}

/* The rank that the sentence begins with, after "rank N reports: " of those that passed it
 * on. */
static int named(const char *sentence)
{
    const char *at = strstr(sentence, "rank ");
    int rank = -1, end = 0;

    while (at && sscanf(at, "rank %*d reports: %n", &end) == 0 && end > 0) {
        at = strstr(at + end, "rank ");
        end = 0;
    }
    if (at)
        rank = atoi(at + strlen("rank "));
    return rank;
}

/* Files of NCCL's own in /dev/shm: told, since they are not the library's to remove. */
static int nccl_files(void)
{
    int count = 0;
    DIR *list = opendir("/dev/shm");

    for (const struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list))
        count += strstr(e->d_name, "nccl") != NULL;
    if (list)
        closedir(list);
    return count;
}

static void tell(int k, int r)
{
    const char *what = r == state->victim ? ", the victim," : "";

    fprintf(stderr, "%s, kill %d of rank %d: rank %d%s got %s after %.3f s: %s\n",
            state->phase->name, k, state->victim, r, what,
            symm_status_name(state->status[r]), state->ended[r] - state->killed,
            state->sentence[r]);
}

/* Does rank r know no more than that the host of the victim is gone? */
static bool host_named(int r)
{
    char wanted[96];

    if (state->phase->when != KILL_INIT || !suite.host)
        return false;
    snprintf(wanted, sizeof(wanted), "on host %s have died, or cannot be reached",
             suite.host(state->victim));
    return strstr(state->sentence[r], wanted) != NULL;
}

/* Has a rank of the victim's host seen in symm_init that it died? Then all hosts are told. */
static bool was_seen(void)
{
    const int victim = state->victim;
    bool seen = false;

    for (int r = 0; suite.host && r < suite.ranks; r++)
        seen = seen || (r != victim && strcmp(suite.host(r), suite.host(victim)) == 0 &&
                        state->status[r] == SYMM_ERR_PEER_DEAD &&
                        named(state->sentence[r]) == victim);
    return seen;
}

/* Named, and by an error that says that a rank is missing. *late: at the deadline. */
static int judge(int k, double *longest, bool *late)
{
    const struct kill_phase *phase = state->phase;
    bool gave_up = false, seen = phase->when == KILL_INIT && was_seen();
    int failed = 0;

    *longest = 0;
    *late = false;
    for (int r = 0; suite.host && phase->when == KILL_INIT && r < suite.ranks; r++)
        gave_up = gave_up || state->status[r] == SYMM_ERR_TIMEOUT;
    for (int r = 0; r < suite.ranks; r++) {
        double took = state->ended[r] - state->killed;
        int who = named(state->sentence[r]);
        bool missed = phase->when == KILL_INIT && state->status[r] == SYMM_ERR_TIMEOUT;
        /* Who comes when the root has given up and gone cannot know of the victim, nor reach it. Who
         * has joined is told, if anybody knows. */
        bool told_late = seen && strstr(state->sentence[r], "joined the job");
        bool good = missed ? who >= 0 && !told_late
                           : state->status[r] == SYMM_ERR_PEER_DEAD &&
                                 (who == state->victim || host_named(r) || gave_up);

        if (r == state->victim)
            continue;
        if (!good || took >= CALL_SECONDS)
            failed = 1;
        *late = *late || missed;
        *longest = took > *longest ? took : *longest;
    }
    /* All sentences: which rank heard what from whom explains a wrong one. */
    for (int r = 0; failed && r < suite.ranks; r++)
        tell(k, r);
    return failed;
}

static void prepare(const struct kill_phase *phase, uint64_t *random)
{
    double spread = phase->when == KILL_INIT       ? seconds[engine].init
                    : phase->when == KILL_FINALIZE ? seconds[engine].finalize
                                                   : phase->spread;

    memset(state, 0, sizeof(*state));
    state->phase = phase;
    state->victim = (int)(harness_random(random) % (unsigned)suite.ranks);
    state->delay = spread * (double)(harness_random(random) % 1000) / 1000 +
                   (phase->hold ? HOLD_SECONDS : 0);
}

static int kill_one(const struct kill_phase *phase, int k, uint64_t *random,
                    double *longest, bool *late)
{
    struct harness h = job(body);
    int failed;

    prepare(phase, random);
    h.direct = direct;
    h.killed = 1u << state->victim;
    failed = harness_run(&h) | judge(k, longest, late);
    /* Of a root that died in the bootstrap a dead socket may stay until the next job comes. */
    if (phase->when == KILL_INIT) {
        failed |= harness_entries(directory, false) > 2;
        state->phase = NULL;
        set_engine(false);
        h = job(body_alive);
        failed |= harness_run(&h);
    }
    return failed | orphans() | harness_leftovers(directory);
}

/* ---- A phase ------------------------------------------------------------------------- */

static int kill_in(const struct kill_phase *phase)
{
    int kills = (int)harness_env("SYMM_TEST_KILLS", suite.kills);
    int mets = 0, misses = 0, failed = 0, files = nccl_files();
    double met[KILLS], missed[KILLS], took, median;
    uint64_t random = (uint64_t)harness_env("SYMM_TEST_SEED", 100);

    for (const char *c = phase->name; *c; c++)
        random = random * 31 + (uint64_t)*c;
    kills = kills < KILLS ? kills : KILLS;
    for (int k = 0; k < kills && failed == 0; k++) {
        bool late;

        set_engine(phase->engine == KILL_ENGINE ||
                   (phase->engine == KILL_BOTH && k % 2 == 1 && suite.engine));
        failed = kill_one(phase, k, &random, &took, &late);
        if (late)
            missed[misses++] = took;
        else
            met[mets++] = took;
    }
    if (failed)
        return 1;
    median = harness_median(met, mets);
    fprintf(stderr, "killed in %s: %d times, error after %.2f ms, at most %.2f ms",
            phase->name, kills, median * 1e3, mets ? met[mets - 1] * 1e3 : 0);
    if (misses > 0) {
        median = harness_median(missed, misses);
        fprintf(stderr, "; %d times before it was met: after %.2f s, at most %.2f s",
                misses, median, missed[misses - 1]);
    }
    if (nccl_files() > files)
        fprintf(stderr, "; NCCL left %d files in /dev/shm", nccl_files() - files);
    fprintf(stderr, "\n");
    return 0;
}

static void test_phase(void **phase)
{
    if (((const struct kill_phase *)*phase)->engine == KILL_ENGINE && !suite.engine)
        skip();
    assert_int_equal(kill_in(*phase), 0);
}

/* ---- The program --------------------------------------------------------------------- */

static double longest_of(const double *times)
{
    double longest = 0;

    for (int r = 0; r < suite.ranks; r++)
        longest = times[r] > longest ? times[r] : longest;
    return longest;
}

/* How long symm_init and symm_finalize take here. */
static int measure(bool with_engine)
{
    struct harness h = job(body_alive);

    set_engine(with_engine);
    if (harness_run(&h) != 0)
        return 1;
    seconds[engine].init = longest_of(state->init);
    seconds[engine].finalize = longest_of(state->finalize);
    fprintf(stderr, "%d ranks%s: symm_init takes %.1f ms, symm_finalize %.1f ms\n",
            suite.ranks, engine ? " with an engine" : "", seconds[engine].init * 1e3,
            seconds[engine].finalize * 1e3);
    return 0;
}

int kill_main(const struct kill_suite *given, const struct kill_phase *phases,
              size_t count)
{
    const char *only = getenv("SYMM_TEST_PHASE");
    struct CMUnitTest tests[PHASES];
    size_t chosen = 0;
    int failed;

    if (count > PHASES)
        return 1;
    suite = *given;
    state = harness_shared(sizeof(*state));
    harness_directory(directory, sizeof(directory));
    setenv("SYMM_RUNTIME_DIR", directory, 1);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        perror("kill: prctl");
    for (size_t i = 0; i < count; i++)
        if (!only || strcmp(only, phases[i].name) == 0)
            tests[chosen++] = (struct CMUnitTest){phases[i].name, test_phase, NULL,
                                                  NULL, (void *)(uintptr_t)&phases[i]};
    failed = measure(false) || (suite.engine && !suite.engine_always && measure(true));
    if (!failed)
        failed = _cmocka_run_group_tests("killed in", tests, chosen, NULL, NULL);
    harness_remove(directory);
    harness_shared_free(state, sizeof(*state));
    return failed;
}
