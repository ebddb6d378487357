/* SPDX-License-Identifier: MIT */
/*
 * test_driver_simulate.c - jobs of the CUDA backend in the simulator (sim.h), over the fake driver
 * (sim_driver.h), each of them made by a seed: ranks queue calls on streams, replay graphs, put by
 * copy engine, end teams and end themselves, while streams are late, operations slow, the watchdogs
 * delayed, and one rank is killed, stopped, late or gone.
 *
 * What is checked in each job:
 *  - every call of every rank that lives ends within its time;
 *  - a call that is SYMM_OK has the right result; without a fault every call is;
 *  - no call is SYMM_OK behind a failed one of its stream;
 *  - an error names the rank with the fault;
 *  - a peer whose host has queued the call, but whose stream has not reached it, is waited for, for
 *    SYMM_QUEUE_TIMEOUT, and one whose host has not for the timeout of the call;
 *  - a rank that has finalized holds no descriptor, mapping, thread or block of memory, and nothing
 *    of its driver's.
 *
 * A seed that fails prints itself. SYMM_TEST_SEED=N runs it again, alone, and prints every event
 * with SYMM_TEST_TRACE=1. SYMM_TEST_SEEDS=N: so many (130; SYMM_TEST_LONG=1: 10,000).
 * SYMM_TEST_WITHOUT=class leaves out a class of faults (drive_job.c).
 */
/* ctest: cost 10 */
/* ctest: load 2 */
/* ctest: sim */
/* ctest: replaces symm__cuda_driver */
#include "drive.h"

#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "images.h"
#include "sim_driver.h"
#include "sim_seeds.h"

static void judge_job(const struct drive *job, struct sim_verdict *shared)
{
    const struct sim_result *result = &shared->result;

    sim_verdict_job(shared, &job->blame);
    for (int r = 0; r < job->ranks && !result->hung; r++)
        sim_verdict_rank(shared, r, job->rank[r].ended, sim_driver_leaks(r));
    if (!result->hung && job->fault != KILLED && harness_entries(job->folder, true) > 0)
        sim_verdict_note(shared, "files are left in the runtime's folder");
}

static void run_child(uint64_t seed, struct sim_verdict *shared)
{
    static struct drive job;

    drive_choose(&job, seed);
    snprintf(shared->kind, sizeof(shared->kind), " (%s)", drive_fault_name(job.fault));
    sim_driver_config = job.driver;
    mkdir(job.folder, 0700);
    symm_log_sink(sim_log, NULL);
    sim_run(&job.sim, &shared->result);
    judge_job(&job, shared);
    harness_remove(job.folder);
    shared->longest = job.longest;
    if (job.sim.trace)
        fprintf(stderr, "%d ranks, rank %d: %s at step %d of %d\n", job.ranks,
                job.culprit, drive_fault_name(job.fault), job.at, job.steps);
}

static void seeds(void **state)
{
    const int64_t usual = harness_env("SYMM_TEST_LONG", 0) ? 10000 : 130;

    assert_int_equal(sim_seeds_run(run_child, usual, *state, true), 0);
}

/* Jobs that have found errors, and that none of the first seeds is like. */
static void seeds_that_found(void **state)
{
    static const uint64_t found[] = {
        1374, /* a rank finalizes because of a stopped one, in a team that has not begun */
        1795, /* calls of one team fail, and those of the world are still queued */
    };
    int failed = 0;

    if (harness_env("SYMM_TEST_SEED", -1) >= 0)
        return;
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++)
        failed += !sim_seed_run(run_child, found[i], *state);
    assert_int_equal(failed, 0);
}

static void seeds_repeat(void **state)
{
    assert_true(sim_seeds_repeat(run_child, 10, *state));
}

int main(int argc, char **argv)
{
    struct sim_verdict *shared = harness_shared(sizeof(*shared));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(seeds, shared),
        cmocka_unit_test_prestate(seeds_that_found, shared),
        cmocka_unit_test_prestate(seeds_repeat, shared)};
    int failed;

    (void)argc;
    sim_begin(argv);
    if (HARNESS_SLOW || !sim_locals_supported())
        return 77; /* fibers need a sanitizer's help; the release build runs them */
    harness_clear_environment();
    (void)mallopt(M_ARENA_MAX, 1); /* each fiber has a thread's variables */
    harness_directory(drive_root, sizeof(drive_root));
    images_provide();
    if (!sim_driver_open(drive_root))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    images_remove();
    harness_remove(drive_root);
    return failed;
}
