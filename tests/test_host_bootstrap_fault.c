/* SPDX-License-Identifier: MIT */
/*
 * test_host_bootstrap_fault.c - bootstraps in which a rank is killed, at every call, or a call
 * fails: the other ranks get an error, and the next job works and leaves nothing.
 *
 * Every test has its own runtime directory, which is empty afterwards. This file redefines
 * the system calls of a bootstrap, so that the k-th of them can fail or kill the process.
 * ctest: no-threads
 */
#include "plane_bootstrap.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- System calls that fail on demand -------------------------------------------- */

FAULTY(int, socket, (int a, int b, int c), (a, b, c))
FAULTY(int, bind, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
FAULTY(int, listen, (int a, int b), (a, b))
FAULTY(int, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
FAULTY(int, accept4, (int a, struct sockaddr *b, socklen_t *c, int d), (a, b, c, d))
FAULTY(int, socketpair, (int a, int b, int c, int d[2]), (a, b, c, d))
FAULTY(int, getsockopt, (int a, int b, int c, void *d, socklen_t *e), (a, b, c, d, e))
FAULTY(ssize_t, sendmsg, (int a, const struct msghdr *b, int c), (a, b, c))
FAULTY(ssize_t, getrandom, (void *a, size_t b, unsigned c), (a, b, c))
FAULTY(int, flock, (int a, int b), (a, b))
FAULTY(int, fstat, (int a, struct stat *b), (a, b))
FAULTY(int, fstatat, (int a, const char *b, struct stat *c, int d), (a, b, c, d))
FAULTY(int, mkdir, (const char *a, mode_t b), (a, b))
FAULTY(int, renameat2, (int a, const char *b, int c, const char *d, unsigned e),
       (a, b, c, d, e))
FAULTY(int, ppoll,
       (struct pollfd * a, nfds_t b, const struct timespec *c, const sigset_t *d),
       (a, b, c, d))

int open(const char *path, int flags, ...)
{
    union {
        void *address;
        int (*call)(const char *, int, ...);
    } next = {.address = fault_next("open")};
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fault() ? -1 : next.call(path, flags, mode);
}

static atomic_int
    *received; /* messages, by all processes of a test; NULL: not counted */

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    union {
        void *address;
        ssize_t (*call)(int, struct msghdr *, int);
    } next = {.address = fault_next("recvmsg")};
    ssize_t got = fault() ? -1 : next.call(fd, message, flags);
    if (got > 0 && received != NULL)
        atomic_fetch_add(received, 1);
    return got;
}

/* ---- Kills ----------------------------------------------------------------------- */

static int entries(const char *path)
{
    int count = 0;
    DIR *list = opendir(path);
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    if (list != NULL)
        closedir(list);
    return count;
}

static void kill_root(struct job *job, const char *key, const char *dir)
{
    job->key = key;
    int root = plane_start(&job->plane, body_bootstrap_once, 0, job);
    wait_for_socket(job);
    /* Until it has removed what others have left. */
    for (double until = symm__now() + HARNESS_AMPLE; entries(dir) > 1;) {
        assert_true(symm__now() < until);
        symm__sleep(0.001);
    }
    assert_int_equal(kill(job->plane.pids[root], SIGKILL), 0);
    assert_int_equal(plane_wait(&job->plane), 0);
}

/* A bound socket that nobody listens on. */
static void leave_socket(const char *dir, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/%.40s", dir, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

static void test_stale(void **state)
{
    struct job job;
    char dir[100], path[200];
    (void)state;
    job_open(&job, 2);
    bootstrap_dir(&job, dir, sizeof(dir));
    kill_root(&job, "another job", dir);
    assert_int_equal(entries(dir), 1);
    kill_root(&job, "this job", dir);
    assert_int_equal(entries(dir), 1);
    leave_socket(dir, "t-0123456789abcdef");
    leave_socket(dir, "t-00000000000000aa");
    leave_socket(dir, "somebody else's");
    assert_int_equal(plane_run(&job.plane, 2, body_bootstrap_once, &job), 0);
    assert_met(&job, 2);
    assert_int_equal(entries(dir), 1); /* what is not ours by its name */
    snprintf(path, sizeof(path), "%s/%s", dir, "somebody else's");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    job_close(&job);
}

/* Rank `kind` is killed when all but one have joined: the others hear of it at once. */
static void test_killed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct job job;
        job_open(&job, 4);
        received = job.step;
        for (int r = 0; r < 3; r++)
            plane_start(&job.plane, body_bootstrap_once, r, &job);
        assert_true(harness_until(job.step, 4)); /* two handshakes, two welcomes */
        received = NULL;
        assert_int_equal(kill(job.plane.pids[kind], SIGKILL), 0);
        assert_int_equal(plane_wait(&job.plane), 0);
        for (int r = 0; r < 3; r++) {
            if (r == kind)
                continue;
            assert_result(&job, r, SYMM_ERR_PEER_DEAD,
                          kind == 0 ? "rank 0 has ended" : "rank 1 (process");
            assert_true(job.plane.results[r].seconds < HARNESS_SOON);
        }
        job_close(&job); /* the survivors have removed the dead root's socket, too */
    }
}

/* A root that is being killed: its connections are gone, its listener ends a little later. */
static int body_dying(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_socket_path place;
    double begin;
    int listener;
    (void)rank;
    PLANE_CHECK(symm__socket_path_find(&place, job->key) == SYMM_OK);
    PLANE_CHECK(symm__socket_path_claim(&place, symm__now() + HARNESS_AMPLE,
                                        &listener) == SYMM_OK);
    begin = symm__now();
    atomic_store(job->step, 1);
    symm__sleep(0.03);
    PLANE_CHECK(close(listener) == 0);
    result->seconds = symm__now() - begin;
    return 0;
}

/* A rank that looks at once removes the name all the same: job_close finds nothing. */
static void test_dying(void **state)
{
    bool slow = true; /* the root ended, or this process looked, when it was too late */
    (void)state;
    for (int try = 0; try < 20 && slow; try++) {
        struct job job;
        struct symm_socket_path place;
        double begin;
        job_open(&job, 1);
        plane_start(&job.plane, body_dying, 0, &job);
        step_wait(&job, 1);
        begin = symm__now();
        assert_int_equal(symm__socket_path_find(&place, job.key), SYMM_OK);
        symm__socket_path_tidy(&place);
        slow = symm__now() - begin > 0.15;
        assert_int_equal(plane_wait(&job.plane), 0);
        slow = slow || job.plane.results[0].seconds > 0.15;
        if (slow)
            symm__socket_path_tidy(&place);
        job_close(&job);
    }
    assert_false(slow);
}

/* ---- Failing system calls -------------------------------------------------------- */

/* Rank 0 or rank 1 of three makes its k-th system call in vain. */
static int body_fault(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    int victim = job->kind % 2;
    struct symm_bootstrap_run run = run_of(job, rank);
    int fds[SYMM_BOOTSTRAP_MAX];
    if (rank != victim)
        symm__sleep(0.001); /* its calls are the same in each run, then */
    fault_at = rank == victim ? job->kind / 2 : 0;
    plane_note(result, symm__bootstrap_near(&run, fds));
    fault_at = 0;
    result->extra = fault_hit;
    symm__seqpacket_close(fds, run.size);
    return 0;
}

/* ... or dies before it: one name may stay, and the next job removes it at once. */
static bool killed_at(int victim, int k, double timeout, int *stayed)
{
    struct job job;
    char dir[100];
    job_open(&job, 3);
    job.timeout = timeout;
    job.kind = 2 * k + victim;
    bootstrap_dir(&job, dir, sizeof(dir));
    fault_kills = true;
    assert_int_equal(plane_run(&job.plane, 3, body_fault, &job), 0);
    fault_kills = false;
    bool killed = !job.plane.results[victim].ended;
    int names = entries(dir);
    assert_true(names <= 1);
    *stayed += names;
    job.timeout = HARNESS_AMPLE;
    job.key = k % 2 == 0 ? job.key : "the next job";
    assert_int_equal(plane_run(&job.plane, 3, body_bootstrap_once, &job), 0);
    assert_met(&job, 3);
    job_close(&job);
    return killed;
}

/*
 * All k. Whoever waits for the victim does so until a deadline, which is short; on a busy
 * machine it may be too short for a bootstrap to get as far as it must.
 */
static bool killed_anywhere(double timeout)
{
    int runs[2] = {0, 0}, stayed = 0;
    for (int victim = 0; victim < 2; victim++) {
        for (int k = 1; k < 100 && killed_at(victim, k, timeout, &stayed); k++)
            runs[victim]++;
    }
    printf("killed before %d and %d calls of rank 0 and rank 1; %d names stayed\n",
           runs[0], runs[1], stayed);
    /* Those between bind and the final name: nobody but the next root removes that. */
    return runs[0] > 20 && runs[1] > 12 && stayed >= 2;
}

static bool failed_anywhere(double timeout)
{
    int runs[2] = {0, 0}, failures = 0;
    for (int victim = 0; victim < 2; victim++) {
        int failed = 1;
        for (int k = 1; k < 100 && failed; k++) {
            struct job job;
            job_open(&job, 3);
            job.timeout = timeout;
            job.kind = 2 * k + victim;
            assert_int_equal(plane_run(&job.plane, 3, body_fault, &job), 0);
            failed = job.plane.results[victim].extra;
            runs[victim] += failed;
            failures += job.plane.results[victim].status != SYMM_OK;
            job_close(&job);
        }
    }
    printf("%d and %d calls of rank 0 and rank 1 failed, %d bootstraps with them\n",
           runs[0], runs[1], failures);
    return runs[0] > 20 && runs[1] > 12 && failures > 25;
}

static void test_anywhere(bool (*all)(double timeout))
{
    double timeout;
    HARNESS_PATIENCE(timeout, 0.1)
    {
        if (all(timeout))
            break;
    }
    assert_true(timeout <= HARNESS_SOON);
}

static void test_killed_anywhere(void **state)
{
    (void)state;
    test_anywhere(killed_anywhere);
}

static void test_faults(void **state)
{
    (void)state;
    test_anywhere(failed_anywhere);
}

int main(void)
{
    symm_log_sink(plane_quiet, NULL);
    unsetenv("XDG_RUNTIME_DIR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stale),  cmocka_unit_test(test_killed),
        cmocka_unit_test(test_dying),  cmocka_unit_test(test_killed_anywhere),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
