/* SPDX-License-Identifier: MIT */
/*
 * harness.h - runs one function as every rank of a job, as processes or as threads.
 *
 * Each rank gets its own context (a small heap, a unique job id or a shared group) and
 * returns 0 or a failure that was printed with rank, file and line. Nothing hangs: calls
 * have a timeout; after the run's limit processes are killed and threads end the program.
 * Ranks that are processes are forked from a program with one thread, die with their
 * parent, and end by exit(), so that leak checks and coverage work in them, too.
 *
 * Ranks must not use cmocka's assertions, which jump out of the test's own stack.
 */
#ifndef SYMM_TESTS_HARNESS_H
#define SYMM_TESTS_HARNESS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "symm/symm.h"

#define HARNESS_MAX_RANKS 72

#if defined(__SANITIZE_THREAD__)
#define HARNESS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HARNESS_TSAN 1
#endif
#endif
#ifndef HARNESS_TSAN
#define HARNESS_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HARNESS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HARNESS_SLOW 1
#endif
#endif
#ifndef HARNESS_SLOW
#define HARNESS_SLOW                                                                   \
    HARNESS_TSAN /* 1: a sanitizer makes everything several times slower */
#endif
/* Such a run of CI, which repeats less than one with SYMM_TEST_LONG=1. */
#define HARNESS_FEW (HARNESS_SLOW && harness_env("SYMM_TEST_LONG", 0) == 0)

/*
 * Time. The machines that run tests are slow and busy, so no test may depend on speed:
 *
 * - An expected event has HARNESS_AMPLE seconds. A passing test never waits that long.
 * - An event within HARNESS_SOON seconds came at once, not by such a timeout.
 * - A timeout that must expire may be short if nothing else has to happen within it; else
 *   the test begins anew with a longer timeout (HARNESS_PATIENCE), if it can be only when a rank
 *   was slow (struct harness_pace).
 * - A promise in milliseconds is judged by the best of several tries.
 * - A test waits for a rank's progress by harness_until, never by sleeping.
 */
#define HARNESS_AMPLE 100.0
#define HARNESS_SOON  30.0
/* The loop ends by break; if it ends by itself, `seconds` is larger than HARNESS_SOON. */
#define HARNESS_PATIENCE(seconds, first)                                               \
    for ((seconds) = (first); (seconds) <= HARNESS_SOON; (seconds) *= 4)

/* A timeout that is to expire after some steps of the ranks; in memory that they share. */
struct harness_pace {
    double seconds;
    _Atomic double begun;
    _Atomic int slow; /* a step ended when half of the timeout was over */
};
void harness_pace_begin(struct harness_pace *pace);
void harness_pace_step(struct harness_pace *pace);

enum harness_mode { HARNESS_PROCESSES, HARNESS_THREADS };

/* Runs of more ranks as threads are left out: threads cannot share a GPU. */
extern int harness_most_threads;

typedef int (*harness_body)(symm_ctx *ctx, void *arg);

/* Zero in any field but ranks and body means the default. */
struct harness {
    int ranks;              /* 1..HARNESS_MAX_RANKS */
    enum harness_mode mode; /* processes */
    harness_body body; /* what each rank does between symm_init and symm_finalize */
    void *arg;         /* borrowed; processes share it only if it is shared memory */
    double timeout;    /* seconds, of every call: HARNESS_AMPLE */
    double limit;      /* of the whole run: 400 s */
    size_t heap_bytes; /* 1 GiB */
    size_t team_bytes; /* 64 MiB, 128 on another backend than the host */
    uint32_t epoch_start;
    const char *job_id; /* default: a new one for each run */
    /* Changes a rank's argument of symm_init; runs on the rank. */
    void (*configure)(symm_config *config, int rank, void *arg);
    /* Processes: runs in the parent while the ranks run; gets their process ids. */
    void (*direct)(const pid_t *ranks, int count, void *arg);
    uint64_t killed;  /* bit r: rank r, below 64, must end by SIGKILL */
    bool without_ctx; /* the body gets NULL and calls symm_init with harness_config() */
};

/* For `configure`. arg begins with a text that has a letter for each rank: its host. */
void harness_host_of(symm_config *config, int rank, void *arg);

/* 0: every rank returned 0, or was killed if its bit in `killed` is set. */
int harness_run(const struct harness *h);
/* The same in both modes, processes first: 0 if both succeeded. With ThreadSanitizer, which sees
 * one process, as threads alone; likewise harness_run_each. */
int harness_run_both(struct harness h);
/* harness_run with pace->seconds = `first`, and with longer ones while a rank was slow: its result. */
int harness_run_paced(const struct harness *h, struct harness_pace *pace, double first);
/* Runs the body on each number of ranks, first as processes, then as threads; arg is shared
 * memory of `bytes`, zeroed before each run. Returns 0 if all succeeded. */
int harness_run_each(void *arg, size_t bytes, harness_body body, const int *ranks,
                     int count);

/* The calling rank; -1 outside of ranks. */
int harness_rank(void);
/* The calling rank's configuration, for bodies that call symm_init. */
symm_config harness_config(void);

/* Zeroed memory, shared with processes forked later. Never NULL. */
void *harness_shared(size_t bytes);
void harness_shared_free(void *memory, size_t bytes);

/* A barrier without the library; zeroed memory is a valid barrier. */
struct harness_sync {
    _Atomic unsigned arrived;
    _Atomic unsigned round;
};
int harness_sync_wait(struct harness_sync *sync, int ranks); /* 0, or 1: timeout */

double harness_now(void); /* monotonic seconds */
void harness_sleep(double seconds);
/* Sleeps until the counter is at least `wanted`; false after HARNESS_AMPLE seconds. */
bool harness_until(_Atomic int *counter, int wanted);
int64_t harness_env(const char *name,
                    int64_t fallback);    /* an integer from the environment */
bool harness_strict(void);                /* SYMM_TEST_STRICT=1 */
uint64_t harness_random(uint64_t *state); /* splitmix64 */
/* Ranks below `of` in any order, at least one. Returns how many. */
int harness_random_list(uint64_t *state, int of, int *ranks);
bool harness_lists(const int *ranks, int count, int rank);
/* Median of n values; sorts them. */
double harness_median(double *values, int n);
/* Makes a private directory; harness_remove removes it with its content. */
void harness_directory(char *path, size_t bytes);
void harness_remove(const char *path);
/* Files, sockets and folders below a directory (itself not counted). */
int harness_entries(const char *path, bool print);
/* Counts leftovers of libsymm: entries of the runtime folder, sockets, shared memory. */
int harness_leftovers(const char *directory);
/* Removes launchers' variables from the environment. */
void harness_clear_environment(void);

/* ---- Checks for ranks: on failure they print and return 1 from the calling function
 */

int harness_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int harness_check_status(const char *file, int line, const char *text,
                         symm_status status, symm_status wanted);
/* 0 if the calling thread's last error contains the text. */
int harness_check_error(const char *file, int line, const char *wanted);

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition))                                                              \
            return harness_fail(__FILE__, __LINE__, "%s", #condition);                 \
    } while (0)
#define CHECK_MESSAGE(condition, ...)                                                  \
    do {                                                                               \
        if (!(condition))                                                              \
            return harness_fail(__FILE__, __LINE__, __VA_ARGS__);                      \
    } while (0)
#define CHECK_STATUS(call, wanted)                                                     \
    do {                                                                               \
        if (harness_check_status(__FILE__, __LINE__, #call, (call), (wanted)))         \
            return 1;                                                                  \
    } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, SYMM_OK)
/* A step, too. */
#define CHECK_PACED(pace, call)                                                        \
    do {                                                                               \
        const symm_status paced = (call);                                              \
        harness_pace_step(pace);                                                       \
        if (harness_check_status(__FILE__, __LINE__, #call, paced, SYMM_OK))           \
            return 1;                                                                  \
    } while (0)
#define CHECK_ERROR(wanted)                                                            \
    do {                                                                               \
        if (harness_check_error(__FILE__, __LINE__, (wanted)))                         \
            return 1;                                                                  \
    } while (0)
/* For a function that returns 0, or 1 after a message. */
#define CHECK_ZERO(call)                                                               \
    do {                                                                               \
        if (call)                                                                      \
            return harness_fail(__FILE__, __LINE__, "in %s", #call);                   \
    } while (0)

#endif
