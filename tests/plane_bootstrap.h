/* SPDX-License-Identifier: MIT */
/*
 * plane_bootstrap.h - for the suites of the bootstrap: a job whose ranks are processes that do
 * a bootstrap by a key and then test the sockets it returned.
 *
 * Every job has its own runtime directory, which must be empty when the job is closed.
 */
#ifndef SYMM_TESTS_PLANE_BOOTSTRAP_H
#define SYMM_TESTS_PLANE_BOOTSTRAP_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/socket_path.h"
#include "net/seqpacket.h"
#include "plane.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include <cmocka.h>

static const uint8_t good_secret[SYMM_SECRET_BYTES] = "0123456789abcde";

/* Shared by the ranks of a test, and the arguments of their bootstrap. */
struct job {
    int size;
    const uint8_t *secret;
    const char *key;
    double timeout;
    int kind;         /* of the test's variants */
    atomic_int *step; /* shared */
    char dir[64];     /* SYMM_RUNTIME_DIR */
    struct plane plane;
};

static inline void job_open(struct job *job, int size)
{
    memset(job, 0, sizeof(*job));
    job->size = size;
    job->secret = good_secret;
    job->key = "the test's job";
    job->timeout = HARNESS_AMPLE;
    job->step = plane_shared(sizeof(*job->step));
    snprintf(job->dir, sizeof(job->dir), "/tmp/symm-meet-XXXXXX");
    assert_non_null(mkdtemp(job->dir));
    setenv("SYMM_RUNTIME_DIR", job->dir, 1);
    plane_open(&job->plane);
}

/* The directory must be empty: a bootstrap leaves nothing. */
static inline void job_close(struct job *job)
{
    if (rmdir(job->dir) != 0)
        fail_msg("%s is not empty (%s)", job->dir, strerror(errno));
    unsetenv("SYMM_RUNTIME_DIR");
    munmap(job->step, sizeof(*job->step));
    plane_close(&job->plane);
}

static inline struct symm_bootstrap_run run_of(const struct job *job, int rank)
{
    struct symm_bootstrap_run run = {
        .rank = rank,
        .size = job->size,
        .key = job->key,
        .secret = job->secret,
        .timeout = job->timeout,
    };
    return run;
}

static inline void step_wait(const struct job *job, int step)
{
    while (atomic_load(job->step) < step)
        symm__sleep(0.0005);
}

/* Sends a number to every peer and receives one from each. */
static inline int peers_check(const int *fds, int rank, int size)
{
    for (int r = 0; r < size; r++) {
        int word = rank * 1000 + r;
        struct iovec part = {.iov_base = &word, .iov_len = sizeof(word)};
        if (r == rank) {
            PLANE_CHECK(fds[r] == -1);
            continue;
        }
        PLANE_CHECK(fds[r] >= 0);
        PLANE_CHECK((fcntl(fds[r], F_GETFD) & FD_CLOEXEC) != 0);
        PLANE_CHECK((fcntl(fds[r], F_GETFL) & O_NONBLOCK) != 0);
        PLANE_CHECK(symm__seqpacket_send(fds[r], &part, 1, NULL, 0, 0) ==
                    SYMM_SEQPACKET_OK);
    }
    for (int r = 0; r < size; r++) {
        int word, count;
        size_t bytes;
        struct iovec part = {.iov_base = &word, .iov_len = sizeof(word)};
        if (r == rank)
            continue;
        errno = 0;
        const enum symm_seqpacket got = symm__seqpacket_recv(
            fds[r], &part, 1, &bytes, NULL, 0, &count, symm__now() + HARNESS_AMPLE);
        if (got != SYMM_SEQPACKET_OK)
            fprintf(stderr, "from rank %d: seqpacket %d, %s, %zu bytes\n", r, (int)got,
                    strerror(errno), bytes);
        PLANE_CHECK(got == SYMM_SEQPACKET_OK);
        PLANE_CHECK(bytes == sizeof(word) && word == r * 1000 + rank);
    }
    return 0;
}

/* Does the bootstrap; if it succeeds, checks the sockets and closes them. */
static inline int bootstrap_and_check(const struct symm_bootstrap_run *run,
                                      struct plane_result *result)
{
    int fds[SYMM_BOOTSTRAP_MAX];
    int code = 0;
    double start = symm__now();
    symm_status status = symm__bootstrap_near(run, fds);
    result->seconds = symm__now() - start;
    plane_note(result, status);
    if (status == SYMM_OK)
        code = peers_check(fds, run->rank, run->size);
    for (int r = 0; status != SYMM_OK && r < run->size; r++)
        PLANE_CHECK(fds[r] == -1);
    symm__seqpacket_close(fds, run->size);
    return code;
}

static inline int body_bootstrap_once(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_bootstrap_run run = run_of(job, rank);
    return bootstrap_and_check(&run, result);
}

static inline void assert_result(const struct job *job, int index, symm_status status,
                                 const char *part)
{
    const struct plane_result *result = &job->plane.results[index];
    if (result->status != status || strstr(result->error, part) == NULL)
        fail_msg("process %d: %s, \"%s\"; expected %s, \"%s\"", index,
                 symm_status_name(result->status), result->error,
                 symm_status_name(status), part);
}

static inline void assert_met(const struct job *job, int count)
{
    for (int i = 0; i < count; i++) {
        if (!job->plane.results[i].ended) /* plane_wait expects kills in any run */
            fail_msg("process %d has been killed", i);
        assert_result(job, i, SYMM_OK, "");
    }
}

static inline void bootstrap_dir(const struct job *job, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/symm-%u", job->dir, (unsigned)geteuid());
}

static inline void wait_for_socket(const struct job *job)
{
    struct symm_socket_path place;
    struct stat is;
    assert_int_equal(symm__socket_path_find(&place, job->key), SYMM_OK);
    for (double until = symm__now() + HARNESS_AMPLE; stat(place.path, &is) != 0;) {
        assert_true(symm__now() < until);
        symm__sleep(0.0005);
    }
}

#endif
