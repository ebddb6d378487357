/* SPDX-License-Identifier: MIT */
/*
 * harness.c - see harness.h.
 *
 * The parent polls its children instead of waiting for SIGCHLD: cmocka and sanitizers
 * install their own handlers. If a rank fails, the others end by their timeouts.
 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_SECONDS 400.0 /* a sanitizer's longest run takes 100 s on an idle machine */

struct rank_state {
    const struct harness *h;
    symm_thread_group *group;
    const char *job_id;
    int rank;
    int result;
};

static _Thread_local const struct rank_state *current;

double harness_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void harness_sleep(double seconds)
{
    struct timespec t;
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

bool harness_until(_Atomic int *counter, int wanted)
{
    for (double end = harness_now() + HARNESS_AMPLE; harness_now() < end;) {
        if (atomic_load(counter) >= wanted)
            return true;
        harness_sleep(2e-4);
    }
    return atomic_load(counter) >= wanted;
}

int64_t harness_env(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoll(text, NULL, 10) : fallback;
}

bool harness_strict(void)
{
    return harness_env("SYMM_TEST_STRICT", 0) != 0;
}

uint64_t harness_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool harness_lists(const int *ranks, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

int harness_random_list(uint64_t *state, int of, int *ranks)
{
    int n = 1 + (int)(harness_random(state) % (uint64_t)of);
    for (int i = 0; i < of; i++)
        ranks[i] = i;
    for (int i = 0; i < n; i++) {
        int k = i + (int)(harness_random(state) % (uint64_t)(of - i)), kept = ranks[i];
        ranks[i] = ranks[k];
        ranks[k] = kept;
    }
    return n;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double harness_median(double *values, int n)
{
    if (n <= 0)
        return 0.0;
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return values[n / 2];
}

/* ---- Shared memory and directories ----------------------------------------------- */

void *harness_shared(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("harness: mmap");
        exit(1);
    }
    return memory;
}

void harness_shared_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

void harness_directory(char *path, size_t bytes)
{
    snprintf(path, bytes, "/tmp/symm-test-XXXXXX");
    if (mkdtemp(path) == NULL) {
        perror("harness: mkdtemp");
        exit(1);
    }
}

/* Calls visit for each entry below path, deepest first; returns how many there were. */
static int walk(const char *path, void (*visit)(const char *path, bool folder))
{
    int count = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char name[4096];
        struct stat st;
        if (snprintf(name, sizeof(name), "%s/%s", path, e->d_name) >= (int)sizeof(name))
            continue;
        if (lstat(name, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            count += walk(name, visit);
        visit(name, S_ISDIR(st.st_mode));
        count++;
    }
    closedir(dir);
    return count;
}

static void visit_remove(const char *path, bool folder)
{
    if ((folder ? rmdir(path) : unlink(path)) != 0)
        perror(path);
}

static void visit_print(const char *path, bool folder)
{
    fprintf(stderr, "harness: left behind: %s%s\n", path, folder ? "/" : "");
}

void harness_remove(const char *path)
{
    walk(path, visit_remove);
    rmdir(path);
}

static void visit_nothing(const char *path, bool folder)
{
    (void)path;
    (void)folder;
}

int harness_entries(const char *path, bool print)
{
    return walk(path, print ? visit_print : visit_nothing);
}

static int count_lines_with(const char *path, const char *text)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}

static int count_names_with(const char *folder, const char *text)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        count += strstr(e->d_name, text) != NULL;
    closedir(dir);
    return count;
}

/* The kernel may close sockets that were under way a little later. */
int harness_leftovers(const char *directory)
{
    int sockets, segments = count_names_with("/dev/shm", "symm");
    int entries = harness_entries(directory, true);
    for (double end = harness_now() + HARNESS_SOON;; harness_sleep(1e-3)) {
        sockets = count_lines_with("/proc/net/unix", directory);
        if (sockets == 0 || harness_now() > end)
            break;
    }
    if (sockets + segments > 0)
        fprintf(stderr, "left behind: %d sockets, %d entries of /dev/shm\n", sockets,
                segments);
    return sockets + segments + entries;
}

void harness_clear_environment(void)
{
    static const char *const families[] = {"OMPI_", "PMIX_", "PMI_",  "SLURM_",
                                           "MPI_",  "HYDI_", "TORCH", NULL};
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SYMM_RANK",
                                        "SYMM_WORLD_SIZE",
                                        "SYMM_JOB_ID",
                                        "SYMM_LOCAL_RANK",
                                        "SYMM_LOCAL_WORLD_SIZE",
                                        "SYMM_SECRET",
                                        "SYMM_STORE",
                                        "SYMM_BOOTSTRAP",
                                        NULL};
    extern char **environ;

    for (int i = 0; names[i] != NULL; i++)
        unsetenv(names[i]);
    for (char **e = environ; *e != NULL;) {
        char name[256];
        size_t length = strcspn(*e, "=");
        bool drop = false;
        for (int i = 0; families[i] != NULL; i++)
            drop = drop || strncmp(*e, families[i], strlen(families[i])) == 0;
        if (!drop || length >= sizeof(name)) {
            e++;
            continue;
        }
        memcpy(name, *e, length);
        name[length] = '\0';
        unsetenv(name);
    }
}

/* ---- What ranks use -------------------------------------------------------------- */

int harness_rank(void)
{
    return current != NULL ? current->rank : -1;
}

/* Sleeps while the word is `seen`, for a moment at most. */
static void sleep_on(_Atomic unsigned *word, unsigned seen)
{
    struct timespec moment = {.tv_nsec = 100000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &moment, NULL, 0);
}

int harness_sync_wait(struct harness_sync *sync, int ranks)
{
    unsigned round = atomic_load_explicit(&sync->round, memory_order_acquire);
    /* acq_rel: every arrival happens before the last one, which publishes the round. */
    if (atomic_fetch_add_explicit(&sync->arrived, 1, memory_order_acq_rel) + 1 ==
        (unsigned)ranks) {
        atomic_store_explicit(&sync->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&sync->round, round + 1, memory_order_release);
        syscall(SYS_futex, &sync->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return 0;
    }
    double start = harness_now();
    for (int polls = 0;; polls++) {
        if (atomic_load_explicit(&sync->round, memory_order_acquire) != round)
            return 0;
        if (polls > 100)
            sleep_on(&sync->round, round);
        if (polls > 100 && harness_now() - start > 2 * HARNESS_AMPLE)
            return harness_fail(__FILE__, __LINE__,
                                "%u of %d ranks at the harness's barrier",
                                atomic_load(&sync->arrived), ranks);
    }
}

int harness_fail(const char *file, int line, const char *format, ...)
{
    char text[1200];
    const char *name = strrchr(file, '/');
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* One write for a line: ranks share the terminal. */
    fprintf(stderr, "rank %d: %s:%d: %s\n", harness_rank(),
            name != NULL ? name + 1 : file, line, text);
    return 1;
}

int harness_check_status(const char *file, int line, const char *text,
                         symm_status status, symm_status wanted)
{
    if (status == wanted)
        return 0;
    return harness_fail(file, line, "%s: %s, not %s%s%s", text,
                        symm_status_name(status), symm_status_name(wanted),
                        status == SYMM_OK ? "" : ": ",
                        status == SYMM_OK ? "" : symm_last_error());
}

int harness_check_error(const char *file, int line, const char *wanted)
{
    const char *error = symm_last_error();
    if (error != NULL && strstr(error, wanted) != NULL)
        return 0;
    return harness_fail(file, line, "the error \"%s\" does not contain \"%s\"",
                        error != NULL ? error : "(null)", wanted);
}

void harness_host_of(symm_config *config, int rank, void *arg)
{
    const char *hosts = arg;
    const char host[2] = {hosts[rank], '\0'};

    (void)config;
    setenv("SYMM_HOST_ID", host, 1);
}

symm_config harness_config(void)
{
    const struct rank_state *state = current;
    const struct harness *h = state->h;
    symm_config config;
    memset(&config, 0, sizeof(config));
    config.size = sizeof(config);
    config.backend = "host";
    config.world_size = h->ranks;
    config.rank = state->rank;
    config.thread_group = state->group;
    config.job_id = state->group == NULL ? state->job_id : NULL;
    config.heap_bytes = h->heap_bytes != 0 ? h->heap_bytes : (size_t)1 << 30;
    config.team_bytes = h->team_bytes != 0
                            ? h->team_bytes
                            : (size_t)(getenv("SYMM_BACKEND") ? 128 : 64) << 20;
    config.timeout = h->timeout > 0 ? h->timeout : HARNESS_AMPLE;
    config.init_timeout = HARNESS_AMPLE;
    config.epoch_start = h->epoch_start;
    /* Suites are for the host backend unless they or the caller ask for another. */
    config.backend = getenv("SYMM_BACKEND") != NULL ? NULL : "host";
    if (h->configure != NULL)
        h->configure(&config, state->rank, h->arg);
    return config;
}

/* ---- Running --------------------------------------------------------------------- */

static int rank_run(struct rank_state *state)
{
    const struct harness *h = state->h;
    symm_ctx *ctx = NULL;
    int result;
    current = state;
    if (!h->without_ctx) {
        symm_config config = harness_config();
        CHECK_OK(symm_init(&config, &ctx));
    }
    result = h->body(ctx, h->arg);
    symm_finalize(ctx);
    current = NULL;
    return result;
}

static void *rank_thread(void *arg)
{
    struct rank_state *state = arg;
    state->result = rank_run(state);
    return NULL;
}

static double run_limit(const struct harness *h)
{
    return h->limit > 0 ? h->limit : RUN_SECONDS;
}

static void limit_reached(int signal)
{
    static const char text[] = "harness: the run's limit was reached\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(125);
    _exit(124);
}

static void set_alarm(double seconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = limit_reached;
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)seconds + 1);
}

static int run_threads(const struct harness *h)
{
    struct rank_state states[HARNESS_MAX_RANKS];
    pthread_t threads[HARNESS_MAX_RANKS];
    symm_thread_group *group = NULL;
    int failed = 0;

    CHECK_OK(symm_thread_group_create(h->ranks, &group));
    set_alarm(run_limit(h));
    for (int r = 0; r < h->ranks; r++) {
        states[r] = (struct rank_state){h, group, NULL, r, 1};
        if (pthread_create(&threads[r], NULL, rank_thread, &states[r]) != 0) {
            perror("harness: pthread_create");
            exit(1);
        }
    }
    for (int r = 0; r < h->ranks; r++) {
        pthread_join(threads[r], NULL);
        failed |= states[r].result;
    }
    alarm(0);
    symm_thread_group_destroy(group);
    return failed;
}

static void child_main(const struct harness *h, const char *job_id, int rank,
                       pid_t parent)
{
    struct rank_state state = {h, NULL, job_id, rank, 1};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(125);
    set_alarm(run_limit(h));
    exit(rank_run(&state));
}

/* Whether the rank's end was as expected; prints if not. */
static int judge_end(const struct harness *h, int rank, int status)
{
    if (rank < 64 && (h->killed >> rank & 1) != 0) {
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            return 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
            return 1; /* it has printed why */
        fprintf(stderr, "harness: rank %d ended by itself before it was killed\n",
                rank);
        return 1;
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "harness: rank %d was ended by signal %d (%s)\n", rank,
                WTERMSIG(status), strsignal(WTERMSIG(status)));
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) > 1)
        fprintf(stderr, "harness: rank %d ended with status %d\n", rank,
                WEXITSTATUS(status));
    return WEXITSTATUS(status) != 0;
}

/* Waits for all; kills what is left when the limit is over. */
static int collect(const struct harness *h, pid_t *pids, double start)
{
    int left = h->ranks, failed = 0;
    double pause = 1e-4;
    bool killed = false;
    while (left > 0) {
        for (int r = 0; r < h->ranks; r++) {
            int status;
            if (pids[r] <= 0 || waitpid(pids[r], &status, WNOHANG) != pids[r])
                continue;
            failed |= killed ? 1 : judge_end(h, r, status);
            pids[r] = 0;
            left--;
        }
        if (left > 0)
            harness_sleep(pause);
        pause = pause < 2e-3 ? pause * 1.5 : pause;
        if (!killed && harness_now() - start > run_limit(h)) {
            fprintf(stderr, "harness: %d of %d ranks still run after %.0f s: killed\n",
                    left, h->ranks, run_limit(h));
            for (int r = 0; r < h->ranks; r++) {
                if (pids[r] > 0)
                    kill(pids[r], SIGKILL);
            }
            killed = true;
        }
    }
    return failed;
}

static int run_processes(const struct harness *h)
{
    static int runs;
    char job_id[96];
    pid_t pids[HARNESS_MAX_RANKS] = {0}, parent = getpid();
    double start = harness_now();

    snprintf(job_id, sizeof(job_id), "test-%d-%d-%.0f", (int)parent, ++runs,
             start * 1e6);
    fflush(NULL);
    for (int r = 0; r < h->ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            child_main(h, h->job_id != NULL ? h->job_id : job_id, r, parent);
        if (pids[r] < 0) {
            perror("harness: fork");
            exit(1);
        }
    }
    if (h->direct != NULL) {
        pid_t copy[HARNESS_MAX_RANKS];
        memcpy(copy, pids, sizeof(copy));
        h->direct(copy, h->ranks, h->arg);
    }
    return collect(h, pids, start);
}

int harness_most_threads = HARNESS_MAX_RANKS;

int harness_run(const struct harness *h)
{
    int failed;

    if (h->mode == HARNESS_THREADS && h->ranks > harness_most_threads) {
        fprintf(stderr, "harness: no GPUs for %d threads\n", h->ranks);
        return 0;
    }
    failed = h->mode == HARNESS_THREADS ? run_threads(h) : run_processes(h);
    if (failed != 0)
        fprintf(stderr, "harness: failed with %d %s\n", h->ranks,
                h->mode == HARNESS_THREADS ? "threads" : "processes");
    return failed;
}

void harness_pace_begin(struct harness_pace *pace)
{
    atomic_store(&pace->begun, harness_now());
}

void harness_pace_step(struct harness_pace *pace)
{
    const double begun = atomic_load(&pace->begun);

    if (begun > 0 && harness_now() - begun > 0.5 * pace->seconds)
        atomic_store(&pace->slow, 1);
}

int harness_run_paced(const struct harness *h, struct harness_pace *pace, double first)
{
    HARNESS_PATIENCE(pace->seconds, first)
    {
        atomic_store(&pace->begun, 0);
        atomic_store(&pace->slow, 0);
        if (harness_run(h) == 0)
            return 0;
        if (atomic_load(&pace->slow) == 0)
            return 1;
    }
    return 1;
}

int harness_run_both(struct harness h)
{
    int failed = 0;
    h.mode = HARNESS_PROCESSES;
    if (!HARNESS_TSAN)
        failed = harness_run(&h);
    h.mode = HARNESS_THREADS;
    return harness_run(&h) | failed;
}

int harness_run_each(void *arg, size_t bytes, harness_body body, const int *ranks,
                     int count)
{
    int failed = 0;
    for (int i = HARNESS_TSAN ? count : 0; i < 2 * count; i++) {
        struct harness h;
        memset(&h, 0, sizeof(h));
        memset(arg, 0, bytes);
        h.ranks = ranks[i % count];
        h.mode = i < count ? HARNESS_PROCESSES : HARNESS_THREADS;
        h.body = body;
        h.arg = arg;
        failed |= harness_run(&h);
    }
    return failed;
}
