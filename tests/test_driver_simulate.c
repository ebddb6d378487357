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
 * with SYMM_TEST_TRACE=1. SYMM_TEST_SEEDS=N: so many (130; SYMM_TEST_LONG=1: 20,000).
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
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "images.h"
#include "sim_driver.h"

/* In the parent's view. */
struct verdict {
    struct sim_result result;
    char why[900];
    double longest;
    enum fault fault;
    bool done;
};

static void note(struct verdict *shared, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct verdict *shared, const char *format, ...)
{
    va_list args;

    if (shared->why[0])
        return;
    va_start(args, format);
    vsnprintf(shared->why, sizeof(shared->why), format, args);
    va_end(args);
}

static void judge_job(const struct drive *job, struct verdict *shared)
{
    const struct sim_result *result = &shared->result;

    if (job->failures > 0)
        note(shared, "%s", job->why);
    if (result->hung)
        note(shared, "%s: %s", result->hung, result->where);
    for (int r = 0; r < job->ranks && !result->hung; r++) {
        if (result->died[r])
            continue;
        if (!job->rank[r].ended)
            note(shared, "rank %d has not ended", r);
        if (result->fds[r] + result->mappings[r] + result->threads[r] +
                result->blocks[r] + sim_driver_leaks(r) >
            0)
            note(shared,
                 "rank %d leaves %d descriptors, %d mappings, %d threads, %d blocks of "
                 "memory, %d objects of its driver",
                 r, result->fds[r], result->mappings[r], result->threads[r],
                 result->blocks[r], sim_driver_leaks(r));
    }
    if (!result->hung && job->fault != KILLED && harness_entries(job->folder, true) > 0)
        note(shared, "files are left in the runtime's folder");
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    sim_note("%s", line);
}

static void run_child(uint64_t seed, struct verdict *shared)
{
    static struct drive job;

    drive_choose(&job, seed);
    sim_driver_config = job.driver;
    mkdir(job.folder, 0700);
    symm_log_sink(quiet, NULL);
    sim_run(&job.sim, &shared->result);
    judge_job(&job, shared);
    harness_remove(job.folder);
    shared->longest = job.longest;
    shared->fault = job.fault;
    shared->done = true;
    if (job.sim.trace)
        fprintf(stderr, "%d ranks, rank %d: %s at step %d of %d\n", job.ranks,
                job.culprit, drive_fault_name(job.fault), job.at, job.steps);
}

/* Whether the seed's job went well; prints it if not. */
static bool run_seed(uint64_t seed, struct verdict *shared)
{
    int status;
    pid_t child;

    memset(shared, 0, sizeof(*shared));
    fflush(NULL);
    child = fork();
    if (child == 0) {
        for (int s = 1; s < 32;
             s++) /* cmocka's handlers would go on in the parent's test */
            (void)signal(s, SIG_DFL);
        run_child(seed, shared);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    if (WIFSIGNALED(status))
        note(shared, "it ends by signal %d", WTERMSIG(status));
    else if (!shared->done)
        note(shared, "it has not ended");
    if (!shared->why[0])
        return true;
    fprintf(stderr, "SYMM_TEST_SEED=%" PRIu64 " fails (%s): %s\n", seed,
            drive_fault_name(shared->fault), shared->why);
    return false;
}

static void seeds(void **state)
{
    const int64_t only = harness_env("SYMM_TEST_SEED", -1);
    const int64_t all = harness_env("SYMM_TEST_LONG", 0) ? 20000 : 130;
    const int64_t first = only >= 0 ? only : harness_env("SYMM_TEST_FIRST", 1);
    const int64_t count = only >= 0 ? 1 : harness_env("SYMM_TEST_SEEDS", all);
    struct verdict *shared = *state;
    uint64_t events = 0;
    double seconds = 0, longest = -1e9;
    int failed = 0;

    for (int64_t seed = first; seed < first + count && failed < 20; seed++) {
        failed += !run_seed((uint64_t)seed, shared);
        events += shared->result.events;
        seconds += shared->result.seconds;
        longest = shared->longest > longest ? shared->longest : longest;
    }
    fprintf(stderr,
            "%" PRId64 " seeds: %" PRIu64
            " events, %.0f simulated seconds, %.3f s beyond "
            "its time at most\n",
            count, events, seconds, longest);
    if (only >= 0)
        fprintf(stderr, "hash %016" PRIx64 "\n", shared->result.hash);
    assert_int_equal(failed, 0);
}

static void seeds_repeat(void **state)
{
    struct verdict *shared = *state;

    if (harness_env("SYMM_TEST_SEED", -1) >= 0)
        return; /* that one alone */
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t hash;

        (void)run_seed(seed, shared);
        hash = shared->result.hash;
        (void)run_seed(seed, shared);
        assert_true(hash != 0 && hash == shared->result.hash);
    }
}

int main(int argc, char **argv)
{
    struct verdict *shared = harness_shared(sizeof(*shared));
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(seeds, shared),
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
