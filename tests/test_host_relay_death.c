/* SPDX-License-Identifier: MIT */
/*
 * test_host_relay_death.c - deaths of ranks and of hosts, as the relays of others see them
 * (relay_stage.h): how soon, and whichever rank has finalized before; and a rank that says in an
 * exchange why it ends.
 */
#include <setjmp.h>

#include "oob/exchange.h"
#include "oob/forks.h"
#include "oob/hosts.h"
#include "relay_stage.h"
#include "util/status.h"

#include <cmocka.h>

#define TRIES 20 /* on a busy machine, until one is as fast as promised */

static bool is_victim(const struct job *job, int rank)
{
    return job->kind
               ? job->host_of[rank] == job->host_of[job->victim] ||
                     (job->other >= 0 && job->host_of[rank] == job->host_of[job->other])
               : rank == job->victim;
}

static bool knows_all(const struct job *job, const struct side *side)
{
    return symm__relay_state(side->relay, job->victim) == SYMM_RELAY_DIED &&
           (job->other < 0 ||
            symm__relay_state(side->relay, job->other) == SYMM_RELAY_DIED);
}

/* This rank learns that the victim has ended. */
static int await_end(const struct side *side)
{
    const int victim = side->job->victim;

    for (double until = symm__now() + HARNESS_SOON;
         symm__relay_state(side->relay, victim) == SYMM_RELAY_ALIVE;
         symm__sleep(0.0005))
        PLANE_CHECK(symm__now() < until);
    return 0;
}

/* By its death. */
static int await_death(const struct side *side)
{
    PLANE_CHECK(await_end(side) == 0);
    PLANE_CHECK(symm__relay_state(side->relay, side->job->victim) == SYMM_RELAY_DIED);
    return 0;
}

/* All see that the victim, or its whole host, has died, and the others make an exchange. */
static int body_death(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int32_t team[RANKS_MAX];
    struct side side;
    int code = 0, hosts = 0;

    PLANE_CHECK(side_meet(&side, rank, job, result, &code) == 0);
    symm__sleep(0.05);
    if (is_victim(job, rank)) {
        atomic_store(&job->shared->when, symm__now());
        kill(getpid(), SIGKILL);
    }
    for (double until = symm__now() + HARNESS_SOON; !knows_all(job, &side);
         symm__sleep(0.0005))
        if (job->host_of[rank] == job->host_of[job->victim])
            break; /* sockets tell on the same host */
        else
            PLANE_CHECK(symm__now() < until);
    atomic_store(&job->shared->seen[rank], symm__now());
    side.sequence = 1;
    for (int r = 0; r < job->ranks; r++)
        if (!is_victim(job, r) &&
            (hosts == 0 || job->host_of[team[hosts - 1]] != job->host_of[r]))
            team[hosts++] = r;
    for (int i = 0; i < hosts; i++)
        if (team[i] == rank)
            plane_note(result, allgather(&side, team, hosts, job->timeout, &code));
    PLANE_CHECK(code == 0);
    atomic_fetch_add(&job->shared->over, 1);
    for (int r = 0, left = 0; r <= job->ranks; r++) {
        if (r == job->ranks)
            PLANE_CHECK(await(&job->shared->over, left) == 0);
        else
            left += !is_victim(job, r);
    }
    for (int r = 0; r < job->ranks; r++)
        PLANE_CHECK(is_victim(job, r) ||
                    symm__relay_state(side.relay, r) != SYMM_RELAY_DIED);
    side_close(&side);
    return 0;
}

/* The longest until a rank knows it, of one run. */
static double death_seconds(const char *hosts, int victim, int whole, int other)
{
    struct job job;
    double worst = 0;

    job_open(&job, hosts);
    job.victim = victim;
    job.kind = whole;
    job.other = other;
    job_run(&job, body_death);
    for (int r = 0; r < job.ranks; r++) {
        double took =
            atomic_load(&job.shared->seen[r]) - atomic_load(&job.shared->when);

        if (is_victim(&job, r))
            continue;
        assert_int_equal(job.plane.results[r].status, SYMM_OK);
        worst = took > worst ? took : worst;
    }
    job_close(&job);
    return worst;
}

static void test_death(void **state)
{
    static const struct {
        const char *hosts;
        int victim, whole, other;
    } cases[] = {
        {"aabb", 3, 0, NOBODY},
        {"aabb", 2, 0, NOBODY}, /* the relay */
        {"aabb", 0, 0, NOBODY},
        {"aabbccddee", 9, 0, NOBODY},
        {"abcdefghijklmnopqrstt", 20, 0, NOBODY},
        {"abcdefghijklmnopqrst", 19, 1, NOBODY},
        {"abcdefghijklmnopqrst", 1, 1, NOBODY},  /* hosts 9 to 16 are below it, */
        {"abcdefghijklmnopqrst", 1, 1, 9},       /* of which the first dies, too */
        {"abcdefghijklmnopqrst", 0, 1, NOBODY}}; /* all are */

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* A host below one that is gone is looked for after it. */
        const double most = cases[i].other >= 0 ? 0.15 : 0.1;
        double best = HARNESS_SOON;

        for (int try = 0; try < TRIES && best > most; try++) {
            double took = death_seconds(cases[i].hosts, cases[i].victim, cases[i].whole,
                                        cases[i].other);

            best = took < best ? took : best;
        }
        print_message("death of %s %d%s of %s: %.1f ms\n",
                      cases[i].whole ? "the host of rank" : "rank", cases[i].victim,
                      cases[i].other >= 0 ? " and of the next one" : "", cases[i].hosts,
                      best * 1e3);
        if (!HARNESS_SLOW)
            assert_true(best <= most);
    }
}

/* A rank finalizes, and the next one of its host connects to the victim, which is killed at once:
 * it has died, whichever rank has finalized. */
static int body_death_after_end(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int32_t team[2];
    int code = 0, members = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (rank == job->other) {
        side_close(&side);
        atomic_store(&job->shared->over, 1);
        return 0;
    }
    PLANE_CHECK(await(&job->shared->over, 1) == 0);
    for (int r = 0; r < job->ranks; r++)
        if (r != job->other)
            team[members++] = r;
    plane_note(result, allgather(&side, team, 2, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim)
        kill(getpid(), SIGKILL);
    PLANE_CHECK(await_death(&side) == 0);
    side_close(&side);
    return 0;
}

static void test_death_after_end(void **state)
{
    struct job job;

    (void)state;
    for (int below = 0; below < 2; below++) { /* the victim has the lower host */
        job_open(&job, below ? "abb" : "aab");
        job.other = below ? 1 : 0;
        job.victim = below ? 0 : 2;
        job_run(&job, body_death_after_end);
        job_close(&job);
    }
}

/* Hosts b and c make an exchange, then c's relay finalizes. Its next relay need not connect to b,
 * and is killed: b hears so from the host above. */
static int body_death_elsewhere(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    const int32_t below[2] = {1, 2}, above[2] = {0, 3};
    const bool is_below = rank == below[0] || rank == below[1];
    struct side side;
    int code = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    if (is_below)
        plane_note(result, allgather(&side, below, 2, job->timeout, &code));
    atomic_fetch_add(&job->shared->ready, 1);
    if (rank == job->other) {
        PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
        side_close(&side);
        atomic_store(&job->shared->over, 1);
        return 0;
    }
    PLANE_CHECK(await(&job->shared->over, 1) == 0);
    side.sequence = 1;
    if (!is_below)
        plane_note(result, allgather(&side, above, 2, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim)
        kill(getpid(), SIGKILL);
    PLANE_CHECK(await_death(&side) == 0);
    side_close(&side);
    return 0;
}

static void test_death_elsewhere(void **state)
{
    struct job job;

    (void)state;
    for (int try = 0; try < 8; try++) {
        job_open(&job, "abcc");
        job.other = 2;
        job.victim = 3;
        job_run(&job, body_death_elsewhere);
        job_close(&job);
    }
}

/* A forked child of a rank that dies does not keep its connections open. */
static int body_forked(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_forks forks = {0};
    struct side side;
    int code = 0, count, *fds;
    pid_t child;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    fds = symm__relay_fds(side.relay, &count);
    PLANE_CHECK(symm__forks_add(&forks, fds, count) == SYMM_OK);
    plane_note(result, allgather(&side, side.leaders, job->hosts, job->timeout, &code));
    PLANE_CHECK(code == 0 && result->status == SYMM_OK);
    if (rank == job->victim) {
        child = fork();
        if (child == 0) {
            await(&job->shared->over, job->ranks - 1);
            _exit(0);
        }
        atomic_store(&job->shared->when, symm__now());
        kill(getpid(), SIGKILL);
    }
    PLANE_CHECK(await_death(&side) == 0);
    atomic_fetch_add(&job->shared->over, 1);
    symm__forks_remove(&forks);
    side_close(&side);
    return 0;
}

static void test_forked_child(void **state)
{
    struct job job;

    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        job_open(&job, "abc");
        job.victim = victim;
        job_run(&job, body_forked);
        job_close(&job);
    }
}

/* The rank's connections as exchanges want them. They take the relay. */
static int oob_open(struct symm_oob *oob, struct side *side)
{
    static uint16_t local_of[RANKS_MAX];
    const int ranks = side->job->ranks;
    int *fds = malloc((size_t)ranks * sizeof(*fds));

    PLANE_CHECK(fds != NULL);
    for (int r = 0; r < ranks; r++)
        fds[r] = side->job->pair[side->rank][r];
    for (int r = 1; r < ranks; r++)
        if (side->job->host_of[r] == side->job->host_of[r - 1])
            local_of[r] = (uint16_t)(local_of[r - 1] + 1);
    symm__oob_init(oob, side->rank, ranks, fds);
    oob->host_of = side->job->host_of;
    oob->local_of = local_of;
    oob->relay = side->relay;
    PLANE_CHECK(symm__oob_room_open(oob, side->job->hosts) == SYMM_OK);
    return 0;
}

/* Rank 3 fails in an exchange, tells rank 2 of its host, and dies. Rank 0 comes when the death is
 * known to all, so rank 1 waits for it meanwhile. */
static int body_reason(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    const int all[4] = {0, 1, 2, 3};
    struct symm_exchange exchange = {.what = "a step",
                                     .tag = 5,
                                     .members = all,
                                     .count = 4,
                                     .timeout = HARNESS_SOON};
    struct symm_oob_message messages[4];
    struct symm_oob oob;
    struct side side;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    PLANE_CHECK(oob_open(&oob, &side) == 0);
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    if (rank == job->victim) { /* as a rank does that could not open its relay */
        exchange.members = all + 2;
        exchange.count = 2;
        exchange.status = symm__fail(SYMM_ERR_SYSTEM, "a lack of clay");
        (void)!symm__exchange_local(&oob, &exchange, messages);
        symm__sleep(0.1); /* rank 2 reports it */
        kill(getpid(), SIGKILL);
    }
    if (rank == 0) {
        /* Rank 2 finalizes: if rank 3 dies before it has connected in its place, it counts as
         * finalized, too. */
        PLANE_CHECK(await_end(&side) == 0);
        symm__sleep(0.2); /* rank 1 asks meanwhile */
    }
    plane_note(result, symm__exchange(&oob, &exchange, messages));
    symm__oob_finish(&oob);
    return 0;
}

static void test_reason(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, "aabb");
    job.victim = 3;
    job_run(&job, body_reason);
    for (int r = 0; r < 3; r++)
        assert_error(&job, r, SYMM_ERR_SYSTEM, "a lack of clay");
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),           cmocka_unit_test(test_death_after_end),
        cmocka_unit_test(test_death_elsewhere), cmocka_unit_test(test_forked_child),
        cmocka_unit_test(test_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
