/* SPDX-License-Identifier: MIT */
/*
 * test_host_inject.c - every call that can fail fails once, and for ever.
 * ctest: cost 13
 * ctest: load 3
 * ctest: wrap
 *
 * In one rank of a job the k-th call that can fail (an allocation, a system call; all are in
 * inject_wrap.h) fails, for k = 1, 2, ... until a job has fewer than k such calls. For every
 * k: every rank returns SYMM_OK or an error with a sentence; no sum is wrong; no descriptor,
 * block of memory or mapping is lost; after symm_init the other ranks get an error at once,
 * not by their timeout; nothing is left in the runtime directory, or the next job of the same
 * key removes it and works. In the retrying setups each failed step is repeated and must
 * succeed; interrupted calls must not fail at all.
 *
 * Prints the number of injections. SYMM_TEST_INJECT=K makes only the K-th, and prints each
 * rank's result. Several k are tried at the same time, since a job that fails at its start
 * leaves its other ranks waiting. Each run tries another part of the k: SYMM_TEST_SEED=N repeats
 * the part of a run, which prints N; SYMM_TEST_LONG=1 or SYMM_TEST_STRICT=1 tries all.
 */
#include "inject_job.h"
#include "inject_wrap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

#include <cmocka.h>

#define WORKERS       8
#define EARLY_SECONDS 1.0 /* on a busy machine more */
#define WATCH_SECONDS (3 * HARNESS_AMPLE)
#define LATE_SECONDS  0.5                    /* printed, not judged */
#define PARTS                                                                          \
    (HARNESS_TSAN ? 72 : HARNESS_SLOW ? 36 : 6) /* one of so many k is tried */

struct totals {
    _Atomic long runs, injected, errors, late;
};

/* ---- One rank, and what it lost -------------------------------------------------- */

static long count_fds(void)
{
    long count = 0;
    DIR *list = opendir("/proc/self/fd");
    if (list == NULL)
        return -1;
    while (readdir(list) != NULL)
        count++;
    (void)closedir(list);
    return count;
}

/*
 * An exchange that has failed here has failed everywhere, before this rank leaves: it
 * waits for the others to say so. Not where it failed to receive: the others may have
 * been done by then.
 */
static void linger(const struct rank *r)
{
    const struct job *job = r->job;
    const char *first = r->seen->report.first;
    double start = harness_now();
    if (job->setup->mode != INJECT_ONCE || !r->seen->joined ||
        strncmp(first, "recv", 4) == 0 || strcmp(first, "ppoll") == 0 ||
        (strstr(r->seen->step, "rendezvous") == NULL &&
         strstr(r->seen->step, "split") == NULL))
        return;
    for (int i = 0; i < job->setup->ranks; i++) {
        while (!atomic_load(&job->seen[i].over) && !r->seen->lonely) {
            r->seen->lonely = harness_now() - start > HARNESS_SOON;
            harness_sleep(1e-3);
        }
    }
}

static void run_rank(struct job *job, int me, symm_thread_group *group)
{
    const struct setup *setup = job->setup;
    struct rank r = {.job = job, .seen = &job->seen[me], .me = me, .group = group};
    bool armed = job->k > 0 && me == setup->armed;
    bool goes_on = setup->mode == INJECT_FOREVER; /* while it cleans up */
    if (armed)
        inject_begin(setup->mode, job->k);
    symm_status status = inject_run_steps(&r);
    r.seen->status = status;
    if (status != SYMM_OK)
        (void)snprintf(r.seen->sentence, sizeof(r.seen->sentence), "%s",
                       symm_last_error());
    atomic_store(&r.seen->over, true);
    if (armed && status != SYMM_OK && !goes_on) {
        inject_end(&r.seen->report);
        linger(&r);
    }
    symm_work_release(r.next);
    symm_work_release(r.put);
    symm_work_release(r.work);
    symm_finalize(r.ctx);
    if (armed && (status == SYMM_OK || goes_on))
        inject_end(&r.seen->report);
    r.seen->ended = harness_now();
    r.seen->returned = true;
}

struct thread {
    struct job *job;
    int me;
    symm_thread_group *group;
};

static void *run_thread(void *arg)
{
    const struct thread *thread = arg;
    run_rank(thread->job, thread->me, thread->group);
    return NULL;
}

static void run_threads(struct job *job)
{
    struct thread threads[MAX_RANKS];
    pthread_t ids[MAX_RANKS];
    symm_thread_group *group = NULL;
    if (symm_thread_group_create(job->setup->ranks, &group) != SYMM_OK)
        _exit(3);
    for (int i = 0; i < job->setup->ranks; i++) {
        threads[i] = (struct thread){job, i, group};
        if (pthread_create(&ids[i], NULL, run_thread, &threads[i]) != 0)
            _exit(3);
    }
    for (int i = 0; i < job->setup->ranks; i++)
        pthread_join(ids[i], NULL);
    symm_thread_group_destroy(group);
}

static void ignore(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* A child process: a rank, or all of them as threads. Ends by exit for leak checks. */
static void run_child(struct job *job, int me)
{
    struct seen *seen = &job->seen[me];
    symm_log_sink(ignore, NULL);
    long fds = count_fds();
    inject_account_begin();
    if (job->setup->threads)
        run_threads(job);
    else
        run_rank(job, me, NULL);
    inject_account_read(&seen->blocks, &seen->mappings);
    seen->fds = count_fds() - fds;
    exit(0);
}

/* ---- One job --------------------------------------------------------------------- */

static void describe(const struct job *job)
{
    const struct seen *armed = &job->seen[job->setup->armed];
    fprintf(stderr, "%s k %ld: %s failed (%ld of %ld calls)\n", job->setup->name,
            job->k, armed->report.first, armed->report.injected, armed->report.calls);
    for (int i = 0; i < job->setup->ranks; i++) {
        const struct seen *seen = &job->seen[i];
        fprintf(stderr,
                "  rank %d%s: %s%s at %s: %s; lost %ld descriptors, %ld blocks, %ld "
                "mappings%s\n",
                i, i == job->setup->armed ? " (armed)" : "",
                seen->returned ? "" : "has not returned, ",
                symm_status_name(seen->status), seen->step, seen->sentence, seen->fds,
                seen->blocks, seen->mappings, seen->wrong ? "; a sum is wrong" : "");
    }
}

static int complain(const struct job *job, const char *what)
{
    fprintf(stderr, "%s: ", what);
    describe(job);
    return 1;
}

/* Waits for the children; kills those that hang. Returns 0 if all ended well. */
static int collect(pid_t *pids, int count)
{
    double start = harness_now(), pause = 1e-4;
    int left = count, failed = 0;
    while (left > 0) {
        for (int i = 0; i < count; i++) {
            int status;
            if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
                continue;
            failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            pids[i] = 0;
            left--;
        }
        if (harness_now() - start > WATCH_SECONDS) {
            for (int i = 0; i < count; i++) {
                if (pids[i] != 0)
                    kill(pids[i], SIGKILL);
            }
        }
        if (left > 0)
            harness_sleep(pause);
        pause = pause < 1e-3 ? pause * 1.5 : pause;
    }
    return failed;
}

static int run_job(struct job *job)
{
    int children = job->setup->threads ? 1 : job->setup->ranks;
    pid_t pids[MAX_RANKS] = {0};
    memset(job->seen, 0, sizeof(job->seen));
    memset(&job->exchange, 0, sizeof(job->exchange));
    for (int i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            run_child(job, i);
        if (pids[i] < 0)
            return complain(job, "no child process");
    }
    return collect(pids, children) == 0 ? 0 : complain(job, "a rank did not end well");
}

/* ---- Judging --------------------------------------------------------------------- */

static bool failed_first(const struct job *job, const char *name)
{
    return strcmp(job->seen[job->setup->armed].report.first, name) == 0;
}

/* May the socket or a temporary file have been left behind? */
static bool may_leave(const struct job *job)
{
    return job->setup->mode == INJECT_FOREVER || failed_first(job, "unlink") ||
           failed_first(job, "unlinkat") || failed_first(job, "rmdir");
}

/* A deadline before the ranks knew each other. */
static bool names_the_bootstrap(const struct job *job, const struct seen *seen)
{
    return strstr(seen->sentence, "not joined") != NULL ||
           strstr(seen->sentence, "not opened the job's bootstrap") != NULL ||
           (job->setup->threads && strstr(seen->sentence, "the start of the job"));
}

static int judge_rank(const struct job *job, int i)
{
    const struct seen *seen = &job->seen[i], *armed = &job->seen[job->setup->armed];
    bool nothing =
        inject_is_gentle(job) || (armed->report.injected == 0 && !inject_is_early(job));
    if (!seen->returned)
        return complain(job, "a rank did not return");
    if (seen->wrong)
        return complain(job, "a sum is wrong");
    if (seen->lonely)
        return complain(job, "an exchange failed on one rank only");
    if (seen->fds != 0 || seen->blocks != 0 || seen->mappings != 0)
        return complain(job, "something is lost");
    if (seen->status != SYMM_OK && seen->sentence[0] == '\0')
        return complain(job, "an error has no sentence");
    if (seen->status != SYMM_OK && nothing)
        return complain(job, "an error where nothing failed");
    if (seen->status != SYMM_OK && seen->joined && job->setup->retries)
        return complain(job, "trying again did not help");
    if (seen->status == SYMM_ERR_TIMEOUT && i != job->setup->armed &&
        (armed->joined || !names_the_bootstrap(job, seen)))
        return complain(job, "a rank was not told of another's failure");
    return 0;
}

static int judge_job(const struct job *job, struct totals *totals)
{
    const struct seen *armed = &job->seen[job->setup->armed];
    int failed = 0;
    atomic_fetch_add(&totals->runs, 1);
    atomic_fetch_add(&totals->injected, armed->report.injected);
    for (int i = 0; i < job->setup->ranks && failed == 0; i++)
        failed = judge_rank(job, i);
    atomic_fetch_add(&totals->errors, armed->status != SYMM_OK);
    for (int i = 0; i < job->setup->ranks; i++) {
        if (job->seen[i].ended - armed->ended > LATE_SECONDS) {
            atomic_fetch_add(&totals->late, 1);
            if (harness_env("SYMM_TEST_INJECT_LATE", 0) != 0)
                (void)complain(job, "late");
            break;
        }
    }
    if (failed == 0 && !may_leave(job) && harness_entries(job->runtime, true) != 0)
        failed = complain(job, "something is left behind");
    return failed;
}

/* Temporary names are removed by later jobs once they are some seconds old. */
static void make_old(const char *path)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    char name[512];
    (void)snprintf(name, sizeof(name), "%s/symm-%u", path, (unsigned)geteuid());
    DIR *list = opendir(name);
    if (list == NULL)
        return;
    for (struct dirent *e = readdir(list); e != NULL; e = readdir(list)) {
        if (strncmp(e->d_name, "t-", 2) == 0)
            (void)utimensat(dirfd(list), e->d_name, times, AT_SYMLINK_NOFOLLOW);
    }
    (void)closedir(list);
}

/* The same job where nothing fails. */
static int run_after(struct job *job)
{
    struct job after = *job, *shared = job;
    int failed;
    shared->k = 0;
    make_old(job->runtime);
    failed = run_job(shared);
    for (int i = 0; i < job->setup->ranks; i++)
        failed |= shared->seen[i].status != SYMM_OK || shared->seen[i].wrong;
    if (harness_entries(job->runtime, true) != 0)
        failed = 1;
    if (failed != 0) {
        (void)complain(shared, "the next job");
        (void)complain(&after, "after");
    }
    shared->k = after.k;
    return failed;
}

/* ---- All k ----------------------------------------------------------------------- */

static bool timed_out(const struct job *job)
{
    bool any = false;
    for (int i = 0; i < job->setup->ranks; i++)
        any |= job->seen[i].status == SYMM_ERR_TIMEOUT;
    return any;
}

/* Runs and judges a job; again if only its early deadline may have been too short. */
static int try_job(struct job *job, struct totals *totals, bool *over)
{
    int failed;
    HARNESS_PATIENCE(job->early, EARLY_SECONDS)
    {
        failed = run_job(job);
        *over =
            job->seen[job->setup->armed].report.injected == 0 && !inject_is_early(job);
        if (failed == 0)
            failed = judge_job(job, totals);
        if (failed == 0 || !inject_is_early(job) || !timed_out(job))
            break;
    }
    return failed;
}

/*
 * Every WORKERS-th k from `first` on, until a job has nothing left to fail; of these one in
 * PARTS, by the seed which.
 */
static int run_worker(const struct setup *setup, const char *base, long first,
                      long seed, struct totals *totals)
{
    struct job *job = harness_shared(sizeof(*job));
    long only = harness_env("SYMM_TEST_INJECT", 0);
    bool storm = setup->mode == INJECT_STORM, over = false;
    bool all = harness_strict() || harness_env("SYMM_TEST_LONG", 0) != 0;
    long parts = storm || all ? 1 : PARTS;
    long last = !storm ? 100000 : all ? 2 * WORKERS : WORKERS;
    int failed = 0;
    job->setup = setup;
    (void)snprintf(job->key, sizeof(job->key), "inject-%ld", first);
    (void)snprintf(job->runtime, sizeof(job->runtime), "%s/run%ld", base, first);
    (void)mkdir(job->runtime, 0700);
    setenv("SYMM_RUNTIME_DIR", job->runtime, 1);
    long k = first + WORKERS * (seed % parts);
    for (long tries = 0; failed == 0 && k <= last; k += WORKERS * parts, tries++) {
        if (only > 0 && (first > 1 || tries > 0))
            break;
        job->k = only > 0 ? only : k;
        failed = try_job(job, totals, &over);
        if (only > 0)
            describe(job);
        if (failed == 0)
            failed = run_after(job);
        if (over && !storm)
            break;
    }
    harness_shared_free(job, sizeof(*job));
    return failed;
}

static void run_setup(const struct setup *setup)
{
    struct totals *totals = harness_shared(sizeof(*totals));
    double start = harness_now();
    long seed = (long)(harness_env("SYMM_TEST_SEED", (int64_t)(start * 1e3)) & 0xffff);
    char base[64];
    pid_t pids[WORKERS];
    int failed = 0;
    harness_directory(base, sizeof(base));
    fflush(NULL);
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (pids[w] == 0)
            _exit(run_worker(setup, base, w + 1, seed, totals));
    }
    for (int w = 0; w < WORKERS; w++) {
        int status;
        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        failed |= status;
    }
    printf("%s, seed %ld: %ld jobs, %ld injections, %ld jobs failed, in %ld a rank "
           "waited, %.1f s\n",
           setup->name, seed, atomic_load(&totals->runs),
           atomic_load(&totals->injected), atomic_load(&totals->errors),
           atomic_load(&totals->late), harness_now() - start);
    harness_shared_free(totals, sizeof(*totals));
    harness_remove(base);
    assert_int_equal(failed, 0);
}

#define SETUP(name, ...)                                                               \
    static void name(void **state)                                                     \
    {                                                                                  \
        static const struct setup setup = {#name, __VA_ARGS__};                        \
        (void)state;                                                                   \
        run_setup(&setup);                                                             \
    }

SETUP(joining_once, INJECT_ONCE, .ranks = 2, .armed = 1)
SETUP(joining_forever, INJECT_FOREVER, .ranks = 2, .armed = 1)
SETUP(joining_retries, INJECT_AGAIN, .ranks = 2, .armed = 1, .retries = true)
SETUP(joining_interrupted, INJECT_INTERRUPT, .ranks = 2, .armed = 1)
SETUP(joining_storm, INJECT_STORM, .ranks = 2, .armed = 1)
SETUP(root_once, INJECT_ONCE, .ranks = 3, .armed = 0)
SETUP(root_forever, INJECT_FOREVER, .ranks = 3, .armed = 0, .brief = true)
SETUP(root_storm, INJECT_STORM, .ranks = 3, .armed = 0)
SETUP(third_once, INJECT_ONCE, .ranks = 3, .armed = 2, .brief = true)
SETUP(carried_once, INJECT_ONCE, .ranks = 2, .armed = 0, .brief = true, .carried = true)
SETUP(alone_once, INJECT_ONCE, .ranks = 1, .brief = true)
SETUP(alone_forever, INJECT_FOREVER, .ranks = 1, .brief = true)
SETUP(alone_retries, INJECT_AGAIN, .ranks = 1, .brief = true, .retries = true)
SETUP(alone_storm, INJECT_STORM, .ranks = 1)
SETUP(thread_once, INJECT_ONCE, .ranks = 2, .armed = 1, .threads = true)
SETUP(thread_forever, INJECT_FOREVER, .ranks = 2, .armed = 1, .threads = true)

int main(void)
{
    inject_null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining_once),    cmocka_unit_test(joining_forever),
        cmocka_unit_test(joining_retries), cmocka_unit_test(joining_interrupted),
        cmocka_unit_test(joining_storm),   cmocka_unit_test(root_once),
        cmocka_unit_test(root_forever),    cmocka_unit_test(root_storm),
        cmocka_unit_test(third_once),      cmocka_unit_test(carried_once),
        cmocka_unit_test(alone_once),      cmocka_unit_test(alone_forever),
        cmocka_unit_test(alone_retries),   cmocka_unit_test(alone_storm),
        cmocka_unit_test(thread_once),     cmocka_unit_test(thread_forever),
    };
    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
