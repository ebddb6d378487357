/* SPDX-License-Identifier: MIT */
/*
 * test_host_fault.c - ranks that are killed or stopped, at any moment.
 * ctest: cost 10
 * ctest: load 2
 *
 * A killed rank: every survivor's call ends with SYMM_ERR_PEER_DEAD, which names it. A
 * stopped rank: SYMM_ERR_TIMEOUT at the deadline, not before; a stop shorter than the
 * timeout is no error. Nothing is left on the machine, and the next job starts at once.
 * Times are printed; promises about them are judged by the best of several tries, unless
 * SYMM_TEST_STRICT=1.
 * SYMM_TEST_KILLS=N sets the number of kills (default 40) of ranks with 1 MiB, an
 * eighth as many have 1 GiB.
 */
#include "harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_CALLS 100000000
#define TRIES     20   /* on a busy machine, until one is as fast as promised */
#define ASLEEP    1000 /* seconds, of ranks that are to be killed */
#define TOLD      (HARNESS_SLOW ? 0.5 : 0.05) /* seconds from a death to the error */
#define STARTED   (HARNESS_SLOW ? 5.0 : 1.0)  /* seconds a job may take to start */

enum action { ALL_REDUCE, BARRIER, SIGNAL_WAIT, RENDEZVOUS, MIXED, ACTIONS };

struct shared {
    struct harness_sync sync;
    enum action action;
    size_t touched;       /* bytes the victim has touched */
    int victim, sig;      /* whom the director signals, with what */
    double delay;         /* seconds after all are ready */
    double timeout;       /* of calls, where it is to expire; 0: the context's */
    bool idle;            /* the victim makes no calls */
    _Atomic int ready;    /* ranks in their loops */
    _Atomic int begun;    /* ranks about to call symm_init */
    _Atomic int finished; /* survivors that have seen an error */
    double signalled;     /* when */
    double began[HARNESS_MAX_RANKS], ended[HARNESS_MAX_RANKS]; /* the failing call */
    symm_status status[HARNESS_MAX_RANKS];
    double started[HARNESS_MAX_RANKS]; /* seconds from symm_init to the first barrier's
                                          end */
    long calls[HARNESS_MAX_RANKS];
    _Atomic int stop;
    char directory[64]; /* the runtime folder of all jobs here; stays */
};

/* ---- Ranks ----------------------------------------------------------------------- */

static symm_status act(const struct shared *s, symm_team *team, enum action action,
                       long step, float *data)
{
    const symm_call call = {.size = sizeof(call), .timeout = s->timeout};
    int me = symm_team_rank(team), n = symm_team_size(team);
    symm_status status;
    switch (action) {
    case ALL_REDUCE:
        return symm_all_reduce(team, data, data, 2048, SYMM_FLOAT32, SYMM_AVG, &call,
                               NULL);
    case BARRIER:
        return symm_barrier(team, &call, NULL);
    case SIGNAL_WAIT:
        status = symm_signal(team, (me + 1) % n, 1, &call, NULL);
        return status != SYMM_OK
                   ? status
                   : symm_signal_wait(team, (me + n - 1) % n, 1, &call, NULL);
    case RENDEZVOUS:
        return symm_rendezvous(team);
    default:
        return act(s, team, (enum action)(step % MIXED), step, data);
    }
}

static void *touch(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The call after the failed one: the same error, at once. */
static int check_later(const struct shared *s, symm_team *team)
{
    int me = symm_team_rank(team);
    double start = harness_now();
    char name[32];
    snprintf(name, sizeof(name), "rank %d", s->victim);
    if (me != s->victim)
        CHECK_ERROR(name);
    symm_status later = symm_barrier(team, NULL, NULL);
    double took = harness_now() - start;
    CHECK_MESSAGE(later == s->status[me], "%s after action %d, then %s in %.3f s",
                  symm_status_name(s->status[me]), (int)s->action,
                  symm_status_name(later), took);
    CHECK_MESSAGE(took < HARNESS_SOON,
                  "%s after action %d, and again only after %.3f s",
                  symm_status_name(later), (int)s->action, took);
    if (me != s->victim)
        CHECK_ERROR(name);
    return 0;
}

/* Calls until one fails; every status goes to shared memory. */
static int body_loop(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    const int64_t count = 4096, stride = 1;
    int me = symm_team_rank(team);
    long step;
    CHECK_OK(
        symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_FLOAT32, 1, &buffer));
    CHECK_OK(symm_rendezvous(team));
    float *data = symm_buffer_ptr(buffer);
    memset(data, 0, (size_t)count * sizeof(float));
    if (me == s->victim && s->touched > 0)
        CHECK(touch(s->touched) != NULL);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    atomic_fetch_add(&s->ready, 1);
    if (me == s->victim && s->idle)
        harness_sleep(ASLEEP);
    for (step = 0; step < MAX_CALLS; step++) {
        s->began[me] = harness_now();
        s->status[me] = act(s, team, s->action, step, data);
        if (s->status[me] != SYMM_OK)
            break;
    }
    s->ended[me] = harness_now();
    s->calls[me] = step;
    if (s->victim < 0)
        harness_sleep(ASLEEP); /* all are being killed, others were faster */
    int failed = me != s->victim || s->sig == SIGSTOP ? check_later(s, team) : 0;
    atomic_fetch_add(&s->finished, 1);
    symm_buffer_release(buffer);
    return failed;
}

static void direct_signal(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    if (!harness_until(&s->ready, count))
        return;
    harness_sleep(s->delay);
    s->signalled = harness_now();
    kill(ranks[s->victim], s->sig);
    if (s->sig == SIGSTOP) {
        (void)harness_until(&s->finished, count - 1);
        kill(ranks[s->victim], SIGCONT);
    }
}

static struct harness faulty(struct shared *s, int ranks)
{
    struct harness h;
    char directory[64];
    memset(&h, 0, sizeof(h));
    memcpy(directory, s->directory, sizeof(directory));
    memset(s, 0, sizeof(*s));
    memcpy(s->directory, directory, sizeof(directory));
    s->victim = -1;
    h.ranks = ranks;
    h.body = body_loop;
    h.arg = s;
    h.direct = direct_signal;
    return h;
}

/* ---- What may be left ------------------------------------------------------------ */

static int leftovers(const struct shared *s)
{
    return harness_leftovers(s->directory);
}

/* ---- Kills ----------------------------------------------------------------------- */

static int check_deaths(const struct shared *s, const struct harness *h)
{
    int failed = 0;
    for (int r = 0; r < h->ranks; r++) {
        if (r == s->victim || s->status[r] == SYMM_ERR_PEER_DEAD)
            continue;
        fprintf(stderr, "rank %d of %d: %s after %ld calls, not SYMM_ERR_PEER_DEAD\n",
                r, h->ranks, symm_status_name(s->status[r]), s->calls[r]);
        failed = 1;
    }
    return failed;
}

static void print_times(const char *what, double *values, int count, double *median)
{
    *median = harness_median(values, count);
    fprintf(stderr, "%s: %d times, median %.2f ms, largest %.2f ms\n", what, count,
            *median * 1e3, count > 0 ? values[count - 1] * 1e3 : 0.0);
}

/* The longest time from the signal to a survivor's error. */
static double told_after(const struct shared *s, const struct harness *h)
{
    double longest = 0;
    for (int r = 0; r < h->ranks; r++) {
        double took = s->ended[r] - s->signalled;
        if (r != s->victim && took > longest)
            longest = took;
    }
    return longest;
}

static void kill_many(struct shared *s, int kills, size_t touched, const char *what)
{
    double *times = calloc((size_t)kills + TRIES, sizeof(*times)), median, best = 1e9;
    uint64_t random = (uint64_t)touched + 7;
    int failed = 0, k;
    for (k = 0; failed == 0 && (k < kills || (best > TOLD && k < kills + TRIES)); k++) {
        int ranks = k % 4 == 3 ? 3 : 2;
        struct harness h = faulty(s, ranks);
        s->action = (enum action)(k % ACTIONS);
        s->sig = SIGKILL;
        s->touched = touched;
        s->victim = (int)(harness_random(&random) % (unsigned)ranks);
        s->delay = (double)(harness_random(&random) % 5000) * 1e-6;
        h.killed = 1u << s->victim;
        failed |= harness_run(&h);
        failed |= check_deaths(s, &h);
        times[k] = told_after(s, &h);
        best = times[k] < best ? times[k] : best;
        failed |= leftovers(s);
    }
    print_times(what, times, k, &median);
    free(times);
    assert_int_equal(failed, 0);
    assert_true(harness_strict() ? median <= 0.005 : best <= TOLD);
}

static int kill_count(void)
{
    return (int)harness_env("SYMM_TEST_KILLS", HARNESS_SLOW ? 10 : 40);
}

static void killed_ranks_are_named(void **state)
{
    kill_many(*state, kill_count(), (size_t)1 << 20,
              "error after a kill, 1 MiB touched");
}

static void killed_ranks_with_much_memory(void **state)
{
    int kills = (kill_count() + 7) / 8;
    kill_many(*state, kills, (size_t)1 << 30, "error after a kill, 1 GiB touched");
}

/* Ranks that have long been asleep in a call learn of the death just as well. */
static void killed_while_others_wait(void **state)
{
    struct shared *s = *state;
    const double promised = HARNESS_SLOW ? 2.0 : 0.2;
    for (int k = 0; k < 4; k++) {
        double longest = 1e9;
        for (int try = 0; try < TRIES && longest > promised; try++) {
            struct harness h = faulty(s, 3);
            s->action = (enum action)k;
            s->victim = k % 3;
            s->sig = SIGKILL;
            s->idle = true;
            s->delay = 0.1;
            h.killed = 1u << s->victim;
            assert_int_equal(harness_run(&h), 0);
            assert_int_equal(check_deaths(s, &h), 0);
            longest = told_after(s, &h);
            fprintf(stderr, "error after the death of a rank waited for: %.2f ms\n",
                    longest * 1e3);
        }
        assert_true(longest <= promised);
    }
}

/* Teams without the dead rank go on; the world and its own team do not. */
static int body_teams(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    symm_status status = SYMM_OK;
    int me = symm_team_rank(world), sum = 0;
    CHECK_OK(symm_team_split(world, me / 2, 0, &team));
    atomic_fetch_add(&s->ready, 1);
    if (me == 3)
        harness_sleep(ASLEEP);
    if (me == 2) {
        status = symm_barrier(team, NULL, NULL);
        atomic_store(&s->finished, 1);
    } else {
        for (;;) { /* until both know that rank 2 has seen it */
            CHECK_OK(
                symm_all_reduce(team, &me, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
            CHECK(sum == 1);
            int done = atomic_load(&s->finished), both = 0;
            CHECK_OK(symm_all_reduce(team, &done, &both, 1, SYMM_INT32, SYMM_MIN, NULL,
                                     NULL));
            if (both != 0)
                break;
        }
        for (int i = 0; i < 200; i++)
            CHECK_OK(symm_barrier(team, NULL, NULL));
        status = symm_barrier(world, NULL, NULL);
    }
    CHECK(status == SYMM_ERR_PEER_DEAD);
    CHECK_ERROR("rank 3");
    CHECK_ZERO(harness_sync_wait(&s->sync, 3)); /* one that leaves is missed as well */
    symm_team_destroy(team);
    return 0;
}

static void other_teams_go_on(void **state)
{
    struct shared *s = *state;
    struct harness h = faulty(s, 4);
    s->victim = 3;
    s->sig = SIGKILL;
    s->delay = 0.05;
    h.body = body_teams;
    h.killed = 1u << 3;
    assert_int_equal(harness_run(&h), 0);
    assert_int_equal(leftovers(s), 0);
}

/* ---- All at once, in the bootstrap, and the next job ------------------------------- */

static int body_start(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    double start = harness_now();
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    s->started[harness_rank()] = harness_now() - start;
    symm_finalize(ctx);
    return 0;
}

/* Starts a job and returns the slowest rank's time, or -1. */
static double next_job(struct shared *s, int ranks, const char *job_id)
{
    struct harness h = faulty(s, ranks);
    double longest = 0;
    h.body = body_start;
    h.without_ctx = true;
    h.direct = NULL;
    h.job_id = job_id;
    if (harness_run(&h) != 0)
        return -1;
    for (int r = 0; r < ranks; r++)
        longest = s->started[r] > longest ? s->started[r] : longest;
    return longest;
}

static void direct_kill_all(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    if (!harness_until(&s->ready, count))
        return;
    harness_sleep(s->delay);
    for (int r = 0; r < count; r++)
        kill(ranks[r], SIGKILL);
}

static void all_killed_at_once(void **state)
{
    struct shared *s = *state;
    double times[8], median;
    int failed = 0;
    for (int k = 0; k < 8; k++) {
        int ranks = 2 + k % 3;
        struct harness h = faulty(s, ranks);
        s->action = (enum action)(k % ACTIONS);
        s->delay = 0.0007 * k;
        h.direct = direct_kill_all;
        h.killed = (1u << ranks) - 1;
        h.job_id = "killed-and-started-again";
        failed |= harness_run(&h);
        failed |= leftovers(s);
        times[k] = next_job(s, ranks, "killed-and-started-again");
        failed |= times[k] < 0 || leftovers(s) != 0;
    }
    print_times("start of the next job", times, 8, &median);
    assert_int_equal(failed, 0);
    if (harness_strict())
        assert_true(times[7] <= 0.05);
    assert_true(times[0] <= STARTED && times[7] <= HARNESS_SOON);
}

/* Ranks join but for the last one, which never does. */
static int body_bootstrap(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_config config = harness_config();
    int me = harness_rank();
    /* All are killed, or one is, whom another may not have met before. */
    config.init_timeout = s->victim < 0 ? ASLEEP : s->timeout;
    if (me == config.world_size - 1) {
        if (s->victim < 0)
            harness_sleep(ASLEEP);
        CHECK(harness_until(&s->finished, 1));
        return 0;
    }
    s->began[me] = harness_now();
    atomic_fetch_add(&s->ready, 1);
    s->status[me] = symm_init(&config, &ctx);
    s->ended[me] = harness_now();
    CHECK(s->status[me] != SYMM_OK && ctx == NULL);
    if (s->victim < 0) /* has seen another's death: its own is on the way */
        harness_sleep(ASLEEP);
    atomic_store(&s->finished, 1);
    CHECK(symm_last_error()[0] != '\0');
    return 0;
}

static void direct_bootstrap(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    if (!harness_until(&s->ready, count - 1))
        return;
    harness_sleep(s->delay);
    for (int r = 0; r < count; r++) {
        if (s->victim < 0 || r == s->victim)
            kill(ranks[r], SIGKILL);
    }
}

/* All die while they wait for the last: at most a dead socket stays, and the next job
 * removes it, however young it is. */
static void killed_in_the_bootstrap(void **state)
{
    struct shared *s = *state;
    uint64_t random = 5;
    int failed = 0;
    for (int k = 0; k < 20; k++) {
        struct harness h = faulty(s, 3);
        const char *job_id = "killed-in-the-bootstrap";
        /* Mostly within its first 2 ms, where files appear and are renamed. */
        double most = k % 5 == 4 ? 0.02 : 0.002;
        s->delay = most * (double)(harness_random(&random) % 1000) * 1e-3;
        h.body = body_bootstrap;
        h.without_ctx = true;
        h.direct = direct_bootstrap;
        h.killed = 7;
        h.job_id = job_id;
        failed |= harness_run(&h);
        int sockets = harness_entries(s->directory, false);
        if (sockets > 2) /* a socket and its folder, and no more with each round */
            fprintf(stderr, "%d entries after a kill in the bootstrap\n", sockets);
        failed |= sockets > 2;
        failed |= next_job(s, 3, k % 2 == 0 ? job_id : "the-next-one") < 0;
        failed |= leftovers(s);
    }
    assert_int_equal(failed, 0);
}

/* Rank k dies while rank 1 - k waits as well. */
static bool kill_one(struct shared *s, int k, double timeout)
{
    struct harness h = faulty(s, 3);
    s->delay = 0.05;
    s->timeout = timeout;
    s->victim = k;
    h.body = body_bootstrap;
    h.without_ctx = true;
    h.direct = direct_bootstrap;
    h.killed = 1u << k;
    int failed = harness_run(&h);
    symm_status status = s->status[1 - k];
    double took = s->ended[1 - k] - s->began[1 - k];
    fprintf(stderr, "rank %d killed in the bootstrap: rank %d got %s after %.0f ms\n",
            k, 1 - k, symm_status_name(status), took * 1e3);
    return failed == 0 &&
           (status == SYMM_ERR_PEER_DEAD || status == SYMM_ERR_TIMEOUT) &&
           took <= timeout * (HARNESS_SLOW ? 5.0 : 1.5);
}

/* One dies while the others wait for the last: they must not wait for ever. */
static void one_killed_in_the_bootstrap(void **state)
{
    struct shared *s = *state;
    for (int k = 0; k < 2; k++) {
        double timeout;
        HARNESS_PATIENCE(timeout, 1.0)
        {
            if (kill_one(s, k, timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
        assert_true(next_job(s, 3, NULL) >= 0 && leftovers(s) == 0);
    }
}

/* ---- Stops ----------------------------------------------------------------------- */

/* The survivors' calls ended by the deadline, which was long enough for those who run. */
static bool stop_one(struct shared *s, int k, double timeout)
{
    int ranks = 2 + k % 2, failed;
    struct harness h = faulty(s, ranks);
    double longest = 0, shortest = 1e9;
    s->action = (enum action)k;
    s->victim = k % ranks;
    s->sig = SIGSTOP;
    s->delay = 0.003 * k;
    s->timeout = timeout;
    if (k >= RENDEZVOUS) /* has no deadline of its own */
        h.timeout = timeout;
    failed = harness_run(&h);
    for (int r = 0; r < ranks; r++) {
        double took = s->ended[r] - s->began[r];
        if (r == s->victim)
            continue;
        failed |= s->status[r] != SYMM_ERR_TIMEOUT;
        if (s->status[r] != SYMM_ERR_TIMEOUT)
            fprintf(stderr, "rank %d: %s, not SYMM_ERR_TIMEOUT\n", r,
                    symm_status_name(s->status[r]));
        longest = took > longest ? took : longest;
        shortest = took < shortest ? took : shortest;
    }
    fprintf(stderr,
            "time-outs of %.0f ms with %d ranks: after %.1f to %.1f ms; the "
            "stopped rank then got %s\n",
            timeout * 1e3, ranks, shortest * 1e3, longest * 1e3,
            symm_status_name(s->status[s->victim]));
    /* A rank that began last may hear of the first one's time-out a little early. */
    return failed == 0 && longest >= timeout && shortest >= timeout * 0.8 &&
           longest <= timeout * (harness_strict() ? 1.1 : 1.5);
}

static void stopped_ranks_time_out(void **state)
{
    for (int k = 0; k < 5; k++) {
        double timeout;
        HARNESS_PATIENCE(timeout, 0.4)
        {
            if (stop_one(*state, k, timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
        assert_int_equal(leftovers(*state), 0);
    }
}

static int body_pulses(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx);
    int n = symm_team_size(team), stop = 0;
    atomic_fetch_add(&s->ready, 1);
    for (int step = 0; stop == 0; step++) {
        int in[3] = {atomic_load(&s->stop), step, -step}, out[3];
        CHECK_OK(symm_all_reduce(team, in, out, 3, SYMM_INT32, SYMM_MAX, NULL, NULL));
        CHECK(out[1] == step && out[2] == -step);
        stop = out[0];
        CHECK_OK(symm_signal(team, (harness_rank() + 1) % n, 7, NULL, NULL));
        CHECK_OK(symm_signal_wait(team, (harness_rank() + n - 1) % n, 7, NULL, NULL));
    }
    return 0;
}

static void direct_pulses(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    if (!harness_until(&s->ready, count))
        return;
    for (int i = 0; i < 15; i++) {
        kill(ranks[i % count], SIGSTOP);
        harness_sleep(0.005 * (i % 15));
        kill(ranks[i % count], SIGCONT);
        harness_sleep(0.01);
    }
    atomic_store(&s->stop, 1);
}

static void short_stops_are_no_error(void **state)
{
    struct shared *s = *state;
    int failed = 0;
    for (int ranks = 2; ranks <= 3; ranks++) {
        struct harness h = faulty(s, ranks);
        h.body = body_pulses;
        h.direct = direct_pulses;
        failed |= harness_run(&h);
        failed |= leftovers(s);
    }
    assert_int_equal(failed, 0);
}

/* A normal life leaves nothing either. */
static void normal_end_leaves_nothing(void **state)
{
    struct shared *s = *state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        double took = next_job(s, ranks, NULL);
        fprintf(stderr, "start of a job of %d: %.2f ms\n", ranks, took * 1e3);
        assert_true(took >= 0);
        assert_int_equal(leftovers(s), 0);
    }
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_end_leaves_nothing),
        cmocka_unit_test(killed_ranks_are_named),
        cmocka_unit_test(killed_ranks_with_much_memory),
        cmocka_unit_test(killed_while_others_wait),
        cmocka_unit_test(other_teams_go_on),
        cmocka_unit_test(all_killed_at_once),
        cmocka_unit_test(killed_in_the_bootstrap),
        cmocka_unit_test(one_killed_in_the_bootstrap),
        cmocka_unit_test(stopped_ranks_time_out),
        cmocka_unit_test(short_stops_are_no_error),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    harness_directory(shared->directory, sizeof(shared->directory));
    setenv("SYMM_RUNTIME_DIR", shared->directory, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(shared->directory);
    return failed;
}
