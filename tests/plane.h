/* SPDX-License-Identifier: MIT */
/*
 * plane.h - for the suites of the control plane: runs a function as several ranks,
 * without contexts, and keeps the status and the error of each.
 *
 * Ranks that are processes end by _exit; their results are in shared memory. A run
 * longer than PLANE_LIMIT is killed and counts as failed. Each rank's open descriptors
 * are counted before and after.
 */
#ifndef SYMM_TESTS_PLANE_H
#define SYMM_TESTS_PLANE_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h" /* HARNESS_SLOW, HARNESS_TSAN */
#include "util/clock.h"
#include "util/status.h"

#define PLANE_MAX   64
#define PLANE_LIMIT 250.0

struct plane_result {
    symm_status status;
    char error[SYMM_ERROR_BYTES];
    double seconds; /* of the call under test; set by the body, if used */
    int extra;      /* for the body */
    int leaked;     /* descriptors after - before */
    int code;       /* the body's result: 0 = passed, else a line number */
    bool ended;     /* without a kill */
};

typedef int (*plane_body)(int rank, struct plane_result *result, void *arg);

struct plane {
    struct plane_result *results; /* [PLANE_MAX], shared */
    pid_t pids[PLANE_MAX];
    int count;
    int given; /* inherited descriptors that every body closes */
};

#if HARNESS_SLOW && !HARNESS_TSAN
int __lsan_do_recoverable_leak_check(void);
#endif

static inline int plane_fds(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list != NULL && readdir(list) != NULL)
        count++;
    if (list != NULL)
        closedir(list);
    return count;
}

/* For bodies: returns the line number if the condition is false. */
#define PLANE_CHECK(condition)                                                         \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,        \
                    symm_last_error());                                                \
            return __LINE__;                                                           \
        }                                                                              \
    } while (0)

static inline void plane_note(struct plane_result *result, symm_status status)
{
    result->status = status;
    snprintf(result->error, sizeof(result->error), "%s",
             status == SYMM_OK ? "" : symm_last_error());
}

/* A log sink that drops the errors that a suite provokes. */
static inline void plane_quiet(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static inline void *plane_shared(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static inline void plane_open(struct plane *plane)
{
    memset(plane, 0, sizeof(*plane));
    plane->results = plane_shared(PLANE_MAX * sizeof(*plane->results));
}

static inline void plane_close(struct plane *plane)
{
    munmap(plane->results, PLANE_MAX * sizeof(*plane->results));
}

/* Starts one more process; rank is the body's argument. Returns its index. */
static inline int plane_start(struct plane *plane, plane_body body, int rank, void *arg)
{
    int index = plane->count++;
    struct plane_result *result = &plane->results[index];
    memset(result, 0, sizeof(*result));
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(9);
        int before = plane_fds();
        result->code = body(rank, result, arg);
        result->leaked = plane_fds() + plane->given - before;
#if HARNESS_SLOW && !HARNESS_TSAN
        if (__lsan_do_recoverable_leak_check() != 0)
            result->code = __LINE__;
#endif
        result->ended = true;
        _exit(0);
    }
    plane->pids[index] = pid;
    return index;
}

/* Waits for all. 0: all ended by themselves, passed and leaked nothing. */
static inline int plane_wait(struct plane *plane)
{
    double until = symm__now() + PLANE_LIMIT;
    int bad = 0;
    for (int i = 0; i < plane->count; i++) {
        int how = 0;
        while (waitpid(plane->pids[i], &how, WNOHANG) == 0) {
            if (symm__now() > until) {
                fprintf(stderr, "process %d of the run hangs\n", i);
                kill(plane->pids[i], SIGKILL);
            }
            symm__sleep(0.0005);
        }
        const struct plane_result *result = &plane->results[i];
        if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && symm__now() < until)
            continue; /* killed by the test: not checked */
        if (!result->ended || result->code != 0 || result->leaked != 0) {
            fprintf(stderr,
                    "process %d: status %#x, line %d, %d descriptors leaked: %s\n", i,
                    (unsigned)how, result->code, result->leaked, result->error);
            bad++;
        }
    }
    plane->count = 0;
    return bad;
}

static inline int plane_run(struct plane *plane, int ranks, plane_body body, void *arg)
{
    for (int r = 0; r < ranks; r++)
        plane_start(plane, body, r, arg);
    return plane_wait(plane);
}

/* ---- Calls that fail on demand --------------------------------------------------- */

/* In this process; counted down by the suite's FAULTY functions. 0: none fails. */
static int fault_at;
static bool fault_hit;
static bool fault_kills; /* instead of a failure: the process dies before the call */

static inline bool fault(void)
{
    if (fault_at == 0 || --fault_at != 0)
        return false;
    fault_hit = true;
    if (fault_kills)
        kill(getpid(), SIGKILL);
    errno = ENOMEM; /* an errno that the control plane does not treat specially */
    return true;
}

static inline void *fault_next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

/* Redefines a function of the C library: -1 if it must fail, else the real function. */
#define FAULTY(type, name, parameters, arguments)                                      \
    type name parameters;                                                              \
    type name parameters                                                               \
    {                                                                                  \
        union {                                                                        \
            void *address;                                                             \
            type(*call) parameters;                                                    \
        } next = {.address = fault_next(#name)};                                       \
        return fault() ? (type)-1 : next.call arguments;                               \
    }

/* ---- The same with threads ------------------------------------------------------- */

struct plane_thread {
    plane_body body;
    int rank;
    struct plane_result *result;
    void *arg;
    pthread_t id;
};

static inline void *plane_thread_main(void *arg)
{
    struct plane_thread *thread = arg;
    thread->result->code = thread->body(thread->rank, thread->result, thread->arg);
    return NULL;
}

static inline int plane_threads(struct plane *plane, int ranks, plane_body body,
                                void *arg)
{
    struct plane_thread threads[PLANE_MAX];
    int bad = 0;
    int before = plane_fds();
    for (int r = 0; r < ranks; r++) {
        memset(&plane->results[r], 0, sizeof(plane->results[r]));
        threads[r] = (struct plane_thread){
            .body = body, .rank = r, .result = &plane->results[r], .arg = arg};
        if (pthread_create(&threads[r].id, NULL, plane_thread_main, &threads[r]) != 0)
            abort();
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(threads[r].id, NULL);
        bad += threads[r].result->code != 0;
    }
    return bad + (plane_fds() + plane->given != before);
}

#endif
