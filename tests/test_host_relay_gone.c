/* SPDX-License-Identifier: MIT */
/*
 * test_host_relay_gone.c - hosts that are missing or cannot be reached, relays that are stopped, or
 * that die or finalize while others make exchanges, and the end of a job (relay_stage.h).
 */
/* ctest: cost 8 */
/* ctest: sanitize-long */
#include <netinet/in.h>
#include <setjmp.h>

#include "relay_stage.h"

#include <cmocka.h>

/* ---- Hosts that are not reached --------------------------------------------------------- */

/* The victim does not come to the exchange, or is not reached: it or its host is named in time. */
static int body_missing(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0;
    double start;

    if (job->kind == 1 && rank == job->victim) { /* never answers */
        symm__relay_close(NULL);
        PLANE_CHECK(await(&job->shared->over, job->ranks - 1) == 0);
        job_free_fds(job);
        return 0;
    }
    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    start = symm__now();
    if (rank != job->victim) {
        plane_note(result,
                   allgather(&side, side.leaders, job->hosts, job->timeout, &code));
        PLANE_CHECK(symm__now() - start < job->timeout + HARNESS_SOON);
        atomic_fetch_add(&job->shared->over, 1);
    }
    PLANE_CHECK(await(&job->shared->over, job->ranks - 1) == 0);
    side_close(&side);
    return 0;
}

/* All but the victim time out with the text, once the others come within the timeout. */
static void miss(const char *hosts, int victim, int kind, const char *text)
{
    double seconds;

    HARNESS_PATIENCE(seconds, 1)
    {
        struct job job;
        bool said = true;

        job_open(&job, hosts);
        job.victim = victim;
        job.kind = kind;
        job.timeout = seconds;
        job_run(&job, body_missing);
        for (int r = 0; r < job.ranks; r++) {
            if (r != victim)
                assert_error(&job, r, SYMM_ERR_TIMEOUT, "host");
            said = said && (r == victim || strstr(job.plane.results[r].error, text));
        }
        job_close(&job);
        if (said)
            break;
    }
    assert_true(seconds <= HARNESS_SOON);
}

static void test_missing(void **state)
{
    struct job job;

    (void)state;
    miss("abcdefghij", 9, 0, "rank 9 (host host-j)"); /* below host 1 */
    miss("abc", 0, 1, "host host-a at 127.0.0.1:"); /* it listens, and never answers */
    job_open(&job, "abc");
    job.victim = 0; /* nobody listens where it is said to be */
    job.kind = 1;
    job.timeout = HARNESS_AMPLE;
    job.at[0].port = htons(1);
    job_run(&job, body_missing);
    for (int r = 1; r < 3; r++)
        assert_error(&job, r, SYMM_ERR_PEER_DEAD, "host host-a");
    job_close(&job);
}

/* The victim serves its host, and is stopped: the other rank of its host, which makes the exchange,
 * names it. */
static int body_stopped_relay(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int32_t team[2];
    int code = 0, members = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    for (int r = 0; r < job->ranks; r++)
        if (r != job->victim)
            team[members++] = r;
    if (rank == job->victim) {
        atomic_store(&job->shared->go, 1);
        kill(getpid(), SIGSTOP);
    } else {
        PLANE_CHECK(await(&job->shared->go, 2) == 0);
        plane_note(result, allgather(&side, team, 2, job->timeout, &code));
        atomic_fetch_add(&job->shared->over, 1);
    }
    PLANE_CHECK(await(&job->shared->over, 2) == 0);
    side_close(&side);
    return 0;
}

/* Does the error have the text? If not, the timeout was too short for the others' connections. */
static bool stopped_relay_named(int below, double timeout, const char *text)
{
    const int other = below ? 2 : 1; /* the rank of its host that is not stopped */
    struct job job;
    int stopped;
    bool named;

    job_open(&job, below ? "abb" : "aab");
    job.victim = below ? 1 : 0;
    job.timeout = timeout;
    job_start(&job, body_stopped_relay);
    assert_int_equal(waitpid(job.plane.pids[job.victim], &stopped, WUNTRACED),
                     job.plane.pids[job.victim]);
    atomic_store(&job.shared->go, 2);
    for (double until = symm__now() + HARNESS_AMPLE;
         atomic_load(&job.shared->over) < 2 && symm__now() < until;)
        symm__sleep(0.0005);
    kill(job.plane.pids[job.victim], SIGCONT);
    assert_int_equal(plane_wait(&job.plane), 0);
    assert_error(&job, other, SYMM_ERR_TIMEOUT, "");
    named = strstr(job.plane.results[other].error, text) != NULL;
    job_close(&job);
    return named;
}

static void test_stopped_relay(void **state)
{
    static const char *const names[] = {
        "nor by way of rank 0 which one",
        "nor from rank 0 on host host-a by way of rank 1 which one"};
    double seconds;

    (void)state;
    for (int below = 0; below < 2; below++) { /* the victim's host has not the root */
        HARNESS_PATIENCE(seconds, 0.5)
        if (stopped_relay_named(below, seconds, names[below]))
            break;
        assert_true(seconds <= HARNESS_SOON);
    }
}

/* ---- Relays that go ------------------------------------------------------------------------- */

enum { KILLED, FINALIZED, STOPPED };

/* The lowest rank of each host goes while the highest ones make exchanges. */
static int body_relay_goes(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int32_t team[RANKS_MAX];
    struct side side;
    int code = 0;

    PLANE_CHECK(side_open(&side, rank, job, good_key) == 0);
    for (int r = 0; r < job->ranks; r++)
        team[job->host_of[r]] = r;
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    if (leads(&side)) {
        PLANE_CHECK(await(&job->shared->go, 1 + job->host_of[rank]) == 0);
        if (job->kind == KILLED)
            kill(getpid(), SIGKILL);
        if (job->kind == FINALIZED) {
            side_close(&side);
            return 0;
        }
    }
    for (int i = 0; i < 60 && team[job->host_of[rank]] == rank; i++) {
        plane_note(result, allgather(&side, team, job->hosts, HARNESS_AMPLE, &code));
        PLANE_CHECK(code == 0 && result->status == SYMM_OK);
        atomic_store(&job->shared->go, i / 10);
    }
    if (team[job->host_of[rank]] == rank)
        atomic_fetch_add(&job->shared->over, 1);
    PLANE_CHECK(await(&job->shared->over, job->hosts) == 0);
    side_close(&side);
    return 0;
}

static void test_relay_goes(void **state)
{
    struct job job;

    (void)state;
    for (int kind = KILLED; kind <= STOPPED; kind++)
        for (int try = 0; try < 3; try++) {
            job_open(&job, "aabbcc");
            job.kind = kind;
            job_start(&job, body_relay_goes);
            if (kind == STOPPED) {
                for (double until = symm__now() + HARNESS_AMPLE;
                     atomic_load(&job.shared->go) < 1 && symm__now() < until;)
                    symm__sleep(0.0005);
                kill(job.plane.pids[2 * try], SIGSTOP);
                symm__sleep(0.3);
                kill(job.plane.pids[2 * try], SIGCONT);
            }
            assert_int_equal(plane_wait(&job.plane), 0);
            job_close(&job);
        }
}

/* ---- The end of a job ---------------------------------------------------------------------- */

static int threads(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/task");

    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    return count - 2;
}

/* All finalize at once, or one after the other; the last one waits for nobody. */
static int body_end(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct side side;
    int code = 0, before = threads();

    PLANE_CHECK(side_meet(&side, rank, job, result, &code) == 0);
    if (job->kind == 1)
        symm__sleep(0.002 * rank);
    else if (job->kind == 2)
        symm__sleep(0.002 * (job->ranks - rank));
    else if (job->kind == 3 && rank == job->ranks - 1)
        symm__sleep(0.8); /* it sees all others go */
    for (int r = 0; r < job->ranks; r++)
        PLANE_CHECK(symm__relay_state(side.relay, r) != SYMM_RELAY_DIED);
    side_close(&side);
    for (int i = 0; i < 1000 && threads() > before; i++)
        symm__sleep(0.001); /* a joined thread leaves /proc a moment later */
    PLANE_CHECK(HARNESS_TSAN || threads() == before); /* it starts one of its own */
    return 0;
}

static void test_end(void **state)
{
    struct job job;
    double worst = 0;

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        double best = HARNESS_SOON;

        for (int try = 0; try < 4 && best > 0.7; try++) {
            worst = 0;
            job_open(&job, "aabbccddeeffgghhiijjkkllmmnnooppqqrrsstt");
            job.kind = kind;
            job_run(&job, body_end);
            for (int r = 0; r < job.ranks; r++) {
                double took = atomic_load(&job.shared->ended[r]);

                assert_int_equal(job.plane.results[r].status, SYMM_OK);
                worst = took > worst ? took : worst;
            }
            best = worst < best ? worst : best;
            job_close(&job);
        }
        print_message("end of 40 ranks, order %d: %.0f ms\n", kind, best * 1e3);
        if (!HARNESS_SLOW)
            assert_true(best <= 0.7); /* not by a timeout of a second */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stopped_relay),
        cmocka_unit_test(test_relay_goes),
        cmocka_unit_test(test_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
