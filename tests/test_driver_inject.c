/* SPDX-License-Identifier: MIT */
/*
 * test_driver_inject.c - every call of the CUDA driver fails once, and for ever.
 * ctest: cost 7
 *
 * In one rank of a job the k-th call of the driver fails, for k = 1, 2, ... until a job has
 * fewer than k calls. For every k: every rank returns; an error names the call and the
 * driver's result; no object is alive in the fake driver afterwards (if all later calls
 * fail: except those that end with their context), no descriptor is lost; once the other
 * rank is connected to the failing one, it gets an error before its timeout; and, if the
 * call failed once, the failed step succeeds when it is repeated.
 * Each run tries another part of the calls: SYMM_TEST_SEED=N repeats the part of a run,
 * which prints N; SYMM_TEST_STRICT=1 tries all.
 * SYMM_TEST_INJECT=K tries only the K-th and prints each rank's result.
 */
#include "driver.h"
#include "images.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/device.h"

#define MAX_RANKS     2
#define WORKERS       4
#define RESULT        999 /* CUDA_ERROR_UNKNOWN */
#define TRIES         3
#define MIB           ((size_t)1 << 20)
#define EARLY_SECONDS 1.0 /* while a rank may fail before others know it; or more */
#define WATCH_SECONDS (3 * HARNESS_AMPLE)

struct setup {
    const char *name;
    int ranks, armed;
    bool threads, forever, retries;
};

struct seen {
    bool returned, joined;
    symm_status status; /* of the last step */
    char step[64], sentence[512];
    int leaks, fds;
    long calls;
    double seconds;
};

struct job {
    const struct setup *setup;
    long k;
    double early; /* seconds for symm_init of several ranks */
    char key[64];
    struct seen seen[MAX_RANKS];
};

struct rank {
    struct job *job;
    struct seen *seen;
    int me;
    symm_thread_group *group;
    symm_ctx *ctx;
    symm_team *half;
    symm_buffer *small, *large, *passing, *registered;
    void *own;
    int tries;
};

/* ---- The job --------------------------------------------------------------------- */

static bool again(struct rank *r, symm_status status)
{
    bool retry = status != SYMM_OK && r->job->setup->retries && ++r->tries < TRIES;

    if (status != SYMM_OK) {
        snprintf(r->seen->sentence, sizeof(r->seen->sentence), "%s", symm_last_error());
        if (strstr(symm_last_error(), "failed with CUDA_ERROR_") == NULL)
            return false; /* judged: it names no call */
    }
    return retry;
}

#define STEP(call)                                                                     \
    do {                                                                               \
        symm_status step_status;                                                       \
        snprintf(r->seen->step, sizeof(r->seen->step), "%.63s", #call);                \
        r->tries = 0;                                                                  \
        do {                                                                           \
            step_status = (call);                                                      \
        } while (again(r, step_status));                                               \
        if (step_status != SYMM_OK)                                                    \
            return step_status;                                                        \
    } while (0)

static symm_status step_join(struct rank *r)
{
    const struct setup *setup = r->job->setup;
    symm_config config = {.size = sizeof(config),
                          .backend = "cuda",
                          .world_size = setup->ranks,
                          .rank = r->me,
                          .thread_group = r->group,
                          .job_id = r->group ? NULL : r->job->key,
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = 128 * MIB,
                          .timeout = HARNESS_AMPLE,
                          .init_timeout =
                              setup->ranks > 1 ? r->job->early : HARNESS_AMPLE};
    STEP(symm_init(&config, &r->ctx));
    r->seen->joined = true;
    return SYMM_OK;
}

static symm_status step_memory(struct rank *r)
{
    const int64_t small = 8192, large = (int64_t)(5 * MIB), stride = 1;
    symm_team *world = symm_team_world(r->ctx);
    uint32_t word = 1;
    STEP(symm_empty_strided_p2p(world, 1, &small, &stride, SYMM_UINT8, 1, &r->small));
    STEP(symm_empty_strided_p2p(world, 1, &large, &stride, SYMM_UINT8, 2, &r->large));
    STEP(symm_rendezvous(world));
    STEP(symm__cuda_copy(r->ctx, symm_buffer_ptr(r->small), &word, sizeof(word)));
    return SYMM_OK;
}

static symm_status step_register(struct rank *r)
{
    symm_team *world = symm_team_world(r->ctx);
    if (r->group)
        return SYMM_OK; /* not for memory of cuMemAlloc */
    STEP(symm__cuda_local_alloc(r->ctx->backend, MIB, &r->own));
    STEP(symm_buffer_register(world, r->own, MIB, &r->registered));
    STEP(symm_rendezvous(world));
    symm_buffer_release(r->registered);
    STEP(symm_rendezvous(world));
    return SYMM_OK;
}

static symm_status step_split(struct rank *r)
{
    const int64_t count = (int64_t)MIB, stride = 1;
    STEP(symm_team_split(symm_team_world(r->ctx), 0, 0, &r->half));
    STEP(symm_empty_strided_p2p(r->half, 1, &count, &stride, SYMM_UINT8, 0,
                                &r->passing));
    STEP(symm_rendezvous(r->half));
    symm_buffer_release(r->passing);
    symm_team_destroy(r->half);
    return SYMM_OK;
}

static symm_status run_steps(struct rank *r)
{
    symm_status status = step_join(r);
    /* A step that was made again shows all that this job can show. */
    if (status == SYMM_OK && r->seen->sentence[0] == '\0')
        status = step_memory(r);
    if (status == SYMM_OK && r->seen->sentence[0] == '\0')
        status = step_register(r);
    if (status == SYMM_OK && r->seen->sentence[0] == '\0')
        status = step_split(r);
    return status;
}

static void run_rank(struct job *job, int me, symm_thread_group *group,
                     const struct driver *driver)
{
    struct rank r = {.job = job, .seen = &job->seen[me], .me = me, .group = group};
    double start = harness_now();
    if (me == job->setup->armed)
        driver->fail_call((uint64_t)job->k, job->setup->forever, RESULT);
    r.seen->status = run_steps(&r);
    r.seen->seconds = harness_now() - start;
    if (r.own != NULL && r.ctx != NULL)
        symm__cuda_local_free(r.ctx->backend, r.own);
    symm_finalize(r.ctx);
    if (me == job->setup->armed)
        r.seen->calls = (long)driver->calls();
    r.seen->returned = true;
}

/* ---- Ranks as processes or threads ----------------------------------------------- */

static int count_fds(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list != NULL && readdir(list) != NULL)
        count++;
    if (list != NULL)
        closedir(list);
    return count;
}

static void ignore(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

struct thread {
    struct job *job;
    int me;
    symm_thread_group *group;
    const struct driver *driver;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    run_rank(t->job, t->me, t->group, t->driver);
    return NULL;
}

static void run_threads(struct job *job, const struct driver *driver)
{
    struct thread threads[MAX_RANKS];
    pthread_t ids[MAX_RANKS];
    symm_thread_group *group;
    if (symm_thread_group_create(job->setup->ranks, &group) != SYMM_OK)
        _exit(3);
    for (int i = 0; i < job->setup->ranks; i++) {
        threads[i] = (struct thread){job, i, group, driver};
        if (pthread_create(&ids[i], NULL, run_thread, &threads[i]) != 0)
            _exit(3);
    }
    for (int i = 0; i < job->setup->ranks; i++)
        pthread_join(ids[i], NULL);
    symm_thread_group_destroy(group);
}

/* Objects that are alive. */
static int count_leaks(const struct driver *driver, bool forever)
{
    static const char *const own[] = {"modules", "streams", "device allocations",
                                      "host allocations", "events"};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int leaks = driver->leaks(file), lines = 0, excused = 0;
    (void)fclose(file);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        bool excuse = false;
        for (size_t i = 0; forever && i < sizeof(own) / sizeof(*own); i++)
            excuse |= strstr(line, own[i]) != NULL;
        lines++;
        excused += excuse;
        if (!excuse)
            fprintf(stderr, "%s\n", line);
    }
    free(text);
    return leaks == 0 || (lines > 0 && lines == excused) ? 0 : leaks;
}

static void run_child(struct job *job, int me)
{
    const struct symm_cuda_driver *table;
    struct driver driver;
    int fds;
    symm_log_sink(ignore, NULL);
    /* A driver that does not start never will: that is test_driver_table's. */
    if (driver_load(&driver) != 0 || symm__cuda_driver(&table) != SYMM_OK)
        _exit(4);
    fds = count_fds();
    if (job->setup->threads)
        run_threads(job, &driver);
    else
        run_rank(job, me, NULL, &driver);
    driver.fail_call(0, false, 0);
    job->seen[me].leaks = count_leaks(&driver, job->setup->forever);
    if (!job->setup
             ->forever) /* what is alive then has descriptors in the fake driver */
        job->seen[me].fds = count_fds() - fds;
    exit(0);
}

static int run_job(struct job *job)
{
    int children = job->setup->threads ? 1 : job->setup->ranks, left = children;
    pid_t pids[MAX_RANKS] = {0};
    double start = harness_now();
    int failed = 0;
    memset(job->seen, 0, sizeof(job->seen));
    for (int i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            run_child(job, i);
        if (pids[i] < 0)
            return 1;
    }
    while (left > 0) {
        for (int i = 0; i < children; i++) {
            int status;
            if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
                continue;
            failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            pids[i] = 0;
            left--;
        }
        for (int i = 0; harness_now() - start > WATCH_SECONDS && i < children; i++)
            if (pids[i] != 0)
                kill(pids[i], SIGKILL);
        harness_sleep(1e-3);
    }
    return failed;
}

/* ---- Judging --------------------------------------------------------------------- */

static void describe(const struct job *job)
{
    fprintf(stderr, "%s k %ld\n", job->setup->name, job->k);
    for (int i = 0; i < job->setup->ranks; i++) {
        const struct seen *s = &job->seen[i];
        fprintf(stderr,
                "  rank %d%s: %s%s at %s: %s; %d alive, %d descriptors lost, %.2f s\n",
                i, i == job->setup->armed ? " (armed)" : "",
                s->returned ? "" : "has not returned, ", symm_status_name(s->status),
                s->step, s->sentence, s->leaks, s->fds, s->seconds);
    }
}

static int complain(const struct job *job, const char *what)
{
    fprintf(stderr, "%s: ", what);
    describe(job);
    return 1;
}

static int judge(const struct job *job)
{
    const struct setup *setup = job->setup;
    const struct seen *armed = &job->seen[setup->armed];
    for (int i = 0; i < setup->ranks; i++) {
        const struct seen *s = &job->seen[i];
        if (!s->returned)
            return complain(job, "a rank did not return");
        if (s->leaks != 0 || s->fds != 0)
            return complain(job, "something is lost");
        if (s->status == SYMM_OK)
            continue;
        if (armed->calls < job->k)
            return complain(job, "an error where nothing failed");
        /* Threads share the driver: the call may have been the other's. */
        if (i == setup->armed && !setup->threads &&
            strstr(s->sentence, "failed with CUDA_ERROR_") == NULL)
            return complain(job, "an error does not name the call");
        if (setup->retries)
            return complain(job, "trying again did not help");
        if (s->joined && s->seconds > HARNESS_SOON)
            return complain(job, "a rank waited for its deadline");
    }
    return 0;
}

/* Runs and judges a job; again if symm_init may only have had too little time. */
static int try_job(struct job *job, _Atomic long *jobs)
{
    int failed;
    HARNESS_PATIENCE(job->early, EARLY_SECONDS)
    {
        bool late = false;
        failed =
            run_job(job) != 0 ? complain(job, "a rank did not end well") : judge(job);
        atomic_fetch_add(jobs, 1);
        for (int i = 0; i < job->setup->ranks; i++)
            late |= job->seen[i].status == SYMM_ERR_TIMEOUT && !job->seen[i].joined;
        if (failed == 0 || !late)
            break;
    }
    return failed;
}

/* Every WORKERS-th k from `first` on, or one in `part` of these, by the seed which. */
static int run_worker(const struct setup *setup, const char *base, long first,
                      long seed, _Atomic long *jobs)
{
    struct job *job = harness_shared(sizeof(*job));
    long only = harness_env("SYMM_TEST_INJECT", 0);
    int failed = 0;
    job->setup = setup;
    snprintf(job->key, sizeof(job->key), "driver-%d-%ld", (int)getpid(), first);
    setenv("SYMM_RUNTIME_DIR", base, 1);
    long part = setup->ranks > 1 ? 48 : 20;
    if (harness_strict())
        part = 1;
    else if (harness_env("SYMM_TEST_LONG", 0) != 0)
        part /= 8;
    if (only <= 0)
        first += WORKERS * (seed % part);
    for (long k = first; failed == 0; k += part * WORKERS) {
        if (only > 0 && k > 1)
            break;
        job->k = only > 0 ? only : k;
        failed = try_job(job, jobs);
        if (only > 0)
            describe(job);
        if (job->seen[setup->armed].calls < job->k)
            break;
    }
    harness_shared_free(job, sizeof(*job));
    return failed;
}

static void run_setup(const struct setup *setup)
{
    _Atomic long *jobs = harness_shared(sizeof(*jobs));
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
            _exit(run_worker(setup, base, w + 1, seed, jobs));
    }
    for (int w = 0; w < WORKERS; w++) {
        int status;
        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        failed |= status;
    }
    printf("%s, seed %ld: %ld jobs, %.1f s\n", setup->name, seed, atomic_load(jobs),
           harness_now() - start);
    harness_shared_free(jobs, sizeof(*jobs));
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

SETUP(alone_retries, .ranks = 1, .retries = true)
SETUP(alone_forever, .ranks = 1, .forever = true)
SETUP(joining_once, .ranks = 2, .armed = 1)
SETUP(thread_once, .ranks = 2, .armed = 1, .threads = true)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_retries),
        cmocka_unit_test(alone_forever),
        cmocka_unit_test(joining_once),
        cmocka_unit_test(thread_once),
    };
    harness_clear_environment();
    unsetenv("SYMM_BACKEND");
    unsetenv("CUDA_VISIBLE_DEVICES");
    images_provide();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    images_remove();
    return failed;
}
