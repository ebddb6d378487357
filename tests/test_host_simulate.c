/* SPDX-License-Identifier: MIT */
/*
 * test_host_simulate.c - whole jobs in the simulator (sim.h), each of them made by a seed: ranks on
 * one or several hosts start, call, lose ranks, make teams of the survivors and end, while the
 * seed's delays, interruptions, lost connections, deaths and stops meet them.
 *
 * What is checked in each job:
 *  - every call of every rank that lives ends within its time;
 *  - a call that returns SYMM_OK has the right result; without a fault every call does;
 *  - an error names a rank that was killed or stopped, if one was;
 *  - where the only fault is that one rank lacks memory for a moment, no step of all ranks ends by
 *    its timeout;
 *  - ranks whose team of survivors was made have the same one;
 *  - a rank that has finalized holds no descriptor, mapping, thread or block of memory.
 *
 * A seed that fails prints itself. SYMM_TEST_SEED=N runs it again, alone, and prints every event
 * with SYMM_TEST_TRACE=1. SYMM_TEST_SEEDS=N: so many (2,000; SYMM_TEST_LONG=1: 100,000), once as
 * they are, once with lack of memory in each. SYMM_TEST_WITHOUT=class leaves out a class of faults
 * (simulate_job.c). Each job runs in a process of its own, since the ranks that are killed leave
 * their memory to it.
 */
/* ctest: cost 23 */
/* ctest: load 2 */
/* ctest: sim */
#include "sim.h"

#define FAKE_ENGINE_IS_CUT(rank, other) sim_is_cut(rank, other)
#include "fake_engine.c"

#include "sim_seeds.h"
#include "simulate.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Members of the teams of survivors, compared: the k-th of two healthy ranks, if both have it. */
static void compare_teams(const struct job *job, struct sim_verdict *shared)
{
    for (int a = 0; a < job->ranks; a++)
        for (int k = 0; k < job->outcome[a].made; k++)
            for (int b = 0; b < job->ranks; b++)
                for (int l = 0; l < job->outcome[b].made; l++) {
                    const uint64_t mine = job->outcome[a].members[k];
                    const uint64_t theirs = job->outcome[b].members[l];

                    if ((mine & theirs) != 0 && mine != theirs &&
                        (mine | theirs) != mine && (mine | theirs) != theirs &&
                        !(job->stops))
                        sim_verdict_note(shared,
                                         "rank %d has a team of %#" PRIx64
                                         ", rank %d of %#" PRIx64,
                                         a, mine, b, theirs);
                }
}

/* Two sides of a network do not go on at the same time, with teams that have no rank in common. */
static void compare_sides(const struct job *job, struct sim_verdict *shared)
{
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++) {
            const struct outcome *one = &job->outcome[a], *other = &job->outcome[b];

            if (job->host[a] != job->host[b] && job->deaths == 0 && one->made > 0 &&
                other->made > 0 && !(one->members[0] & other->members[0]) &&
                one->made_at <= other->made_at && other->made_at < one->left_at)
                sim_verdict_note(shared,
                                 "rank %d has a team of %#" PRIx64
                                 ", rank %d one of %#" PRIx64 " on the other side",
                                 a, one->members[0], b, other->members[0]);
        }
}

static void judge_job(const struct job *job, struct sim_verdict *shared)
{
    const struct sim_result *result = &shared->result;

    sim_verdict_job(shared, &job->blame);
    for (int r = 0; r < job->ranks && !result->hung; r++)
        sim_verdict_rank(shared, r, job->outcome[r].ended, 0);
    for (int r = 0; r < job->ranks && job->starts && !job->sim.cut_hosts && !job->lacks;
         r++)
        if (!job->outcome[r].joined)
            sim_verdict_note(
                shared, "rank %d has not joined over connections that were lost", r);
    compare_teams(job, shared);
    compare_sides(job, shared);
    for (int r = 0;
         r < job->ranks && job->stops == 0 && !job->breaks && !job->cut && !job->lacks;
         r++)
        if (job->outcome[r].joined && !result->died[r] && job->outcome[r].last == 0 &&
            !(job->quits >> r & 1))
            sim_verdict_note(shared, "rank %d has ended without a team", r);
    if (!result->hung && job->deaths == 0 && harness_entries(job->folder, true) > 0)
        sim_verdict_note(shared, "files are left in the runtime's folder");
}

static void run_child(uint64_t seed, struct sim_verdict *shared)
{
    static struct job job;

    simulate_choose(&job, seed);
    mkdir(job.folder, 0700);
    mkdir(job.engines, 0700);
    symm_log_sink(sim_log, NULL);
    sim_run(&job.sim, &shared->result);
    judge_job(&job, shared);
    harness_remove(job.folder);
    harness_remove(job.engines);
    if (job.sim.trace)
        fprintf(stderr,
                "%d ranks, %d hosts, deaths %#" PRIx64 ", stops %#" PRIx64
                ", cut %#x from %g for %g s, lacks %#" PRIx64 "\n",
                job.ranks, job.hosts, job.deaths, job.stops, job.sim.cut_hosts,
                job.sim.cut_at, job.sim.cut_seconds, job.lacks);
}

static void seeds(void **state)
{
    const int64_t usual = harness_env("SYMM_TEST_LONG", 0) ? 100000 : 2000;

    assert_int_equal(sim_seeds_run(run_child, usual, *state, false), 0);
}

/* The same jobs, of which each lacks memory. */
static void seeds_that_lack(void **state)
{
    if (harness_env("SYMM_TEST_SEED", -1) >= 0 || harness_env("SYMM_TEST_LACK", 0))
        return;
    setenv("SYMM_TEST_LACK", "1", 1);
    seeds(state);
    unsetenv("SYMM_TEST_LACK");
}

/* Jobs that lack memory, and have found errors that none of the first seeds finds. */
static void seeds_that_found(void **state)
{
    static const struct {
        uint64_t seed;
        const char *without; /* the class of faults that is left out */
    } found[] = {{2579, ""},  {16030, ""}, {2075, "cut"},
                 {56343, ""}, {59163, ""}, {94803, ""}};
    int failed = 0;

    if (harness_env("SYMM_TEST_SEED", -1) >= 0)
        return;
    setenv("SYMM_TEST_LACK", "1", 1);
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        if (found[i].without[0])
            setenv("SYMM_TEST_WITHOUT", found[i].without, 1);
        failed += !sim_seed_run(run_child, found[i].seed, *state);
    }
    unsetenv("SYMM_TEST_WITHOUT");
    unsetenv("SYMM_TEST_LACK");
    assert_int_equal(failed, 0);
}

static void seeds_repeat(void **state)
{
    assert_true(sim_seeds_repeat(run_child, 40, *state));
}

int main(int argc, char **argv)
{
    struct sim_verdict *shared = harness_shared(sizeof(*shared));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(seeds, shared),
        cmocka_unit_test_prestate(seeds_that_lack, shared),
        cmocka_unit_test_prestate(seeds_that_found, shared),
        cmocka_unit_test_prestate(seeds_repeat, shared)};
    int failed;

    (void)argc;
    sim_begin(argv);
    if (HARNESS_SLOW)
        return 77; /* fibers need a sanitizer's help; the release build runs them */
    harness_clear_environment();
    harness_directory(simulate_root, sizeof(simulate_root));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(simulate_root);
    return failed;
}
