/* SPDX-License-Identifier: MIT */
/*
 * test_host_link_fault.c - oob exchanges in which a member fails, dies, is late or sends
 * garbage: all others end with an error that names it.
 *
 * The ranks are processes over socket pairs made by symm__bootstrap_pairs. After every test
 * each rank's open descriptors are as before. This file redefines the system calls of an
 * exchange, so that the k-th of them can fail.
 * ctest: no-threads
 */
#include "net/seqpacket.h"
#include "plane_link.h"

#include <poll.h>
#include <sys/socket.h>

/* ---- Calls that fail on demand --------------------------------------------------- */

FAULTY(ssize_t, sendmsg, (int a, const struct msghdr *b, int c), (a, b, c))
FAULTY(ssize_t, recvmsg, (int a, struct msghdr *b, int c), (a, b, c))
FAULTY(ssize_t, recv, (int a, void *b, size_t c, int d), (a, b, c, d))
FAULTY(int, socketpair, (int a, int b, int c, int d[2]), (a, b, c, d))
FAULTY(int, ppoll,
       (struct pollfd * a, nfds_t b, const struct timespec *c, const sigset_t *d),
       (a, b, c, d))

#if defined(__GLIBC__) && !HARNESS_SLOW /* sanitizers have allocators of their own */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);

void *malloc(size_t bytes)
{
    return fault() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fault() ? NULL : __libc_calloc(count, bytes);
}
#endif

/* ---- A member's own failure ------------------------------------------------------ */

static int body_failure(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    link_open(&link, job, rank, true);
    int file = file_of(rank, 0);
    void *data = pattern(rank, 5 * MIB);
    struct symm_exchange exchange = exchange_of(job->size, 9, 4);
    exchange.bytes = data;
    exchange.bytes_count = 5 * MIB;
    exchange.fds = &file;
    exchange.fds_count = 1;
    if (rank == 2 || (rank == 3 && job->kind == 1))
        exchange.status = symm__fail(SYMM_ERR_NOMEM, "memfd_create of %d bytes", rank);
    if (rank == 2 && job->kind == 2) {
        exchange.status = SYMM_OK;
        exchange.bytes_count = (size_t)SYMM_EXCHANGE_MAX_BYTES + 1;
    }
    plane_note(result, symm__exchange(&link, &exchange, messages));
    PLANE_CHECK(all_empty(messages, job->size));
    close(file);
    free(data);
    /* It was an exchange like any other: the team's next one goes well. */
    int code = exchange_small(&link, everybody, job->size, 9, 5);
    symm__oob_finish(&link);
    return code;
}

static void test_failure(void **state)
{
    struct job job;
    struct plane plane;
    static const char sentence[] =
        "rank 2 failed in rendezvous of world: memfd_create of 2 bytes";
    (void)state;
    for (int kind = 0; kind < 2; kind++) { /* one, two members that fail */
        job_run(&job, &plane, 4, kind, body_failure);
        assert_all(&plane, 2, SYMM_ERR_NOMEM, sentence);
        assert_string_equal(plane.results[2].error, "memfd_create of 2 bytes");
        assert_int_equal(plane.results[2].status, SYMM_ERR_NOMEM);
        assert_int_equal(plane.results[3].status, SYMM_ERR_NOMEM);
        assert_string_equal(plane.results[3].error,
                            kind == 0 ? sentence : "memfd_create of 3 bytes");
        job_close(&job, &plane);
    }
    job_run(&job, &plane, 3, 2, body_failure);
    assert_all(&plane, 3, SYMM_ERR_OVERFLOW, "are too many for rendezvous of world");
    job_close(&job, &plane);
}

/* ---- Death ----------------------------------------------------------------------- */

enum { DIE_BEFORE, DIE_WITHIN, DIE_AFTER_DONE };

/* Asked after 2 ms of waiting: packets are on their way then, and others are not. */
static bool alive_not_me(void *arg, int rank)
{
    struct job *job = arg;
    (void)rank;
    atomic_store(job->step, 1);
    kill(getpid(), SIGKILL);
    return true;
}

static int body_death(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    static const int survivors[] = {0, 2};
    size_t bytes = job->kind == DIE_WITHIN ? 5 * MIB : 1000;
    link_open(&link, job, rank, true);
    void *data = pattern(rank, bytes);
    struct symm_exchange exchange = exchange_of(job->size, 5, 1);
    exchange.bytes = data;
    exchange.bytes_count = bytes;
    link.alive_arg = job;
    if (rank == 1 && job->kind == DIE_WITHIN)
        link.alive = alive_not_me;
    else if (job->kind == DIE_WITHIN)
        PLANE_CHECK(harness_until(job->step, 1));
    if (rank == 1 && job->kind == DIE_BEFORE) {
        symm__sleep(0.05); /* mostly the others wait already */
        kill(getpid(), SIGKILL);
    }
    double start = symm__now();
    symm_status status = symm__exchange(&link, &exchange, messages);
    if (job->kind == DIE_AFTER_DONE) {
        PLANE_CHECK(status == SYMM_OK);
        symm__oob_messages_finish(messages, job->size);
        if (rank == 1)
            kill(getpid(), SIGKILL);
        exchange.sequence = 2;
        status = symm__exchange(&link, &exchange, messages);
    }
    result->seconds = symm__now() - start;
    plane_note(result, status);
    PLANE_CHECK(all_empty(messages, job->size));
    free(data);
    int code = exchange_small(&link, survivors, 2, 6, 0);
    symm__oob_finish(&link);
    return code;
}

static void test_death(void **state)
{
    (void)state;
    for (int kind = DIE_BEFORE; kind <= DIE_AFTER_DONE; kind++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, 3, kind, body_death);
        for (int r = 0; r < 3; r += 2) {
            const struct plane_result *result = &plane.results[r];
            assert_int_equal(result->status, SYMM_ERR_PEER_DEAD);
            assert_non_null(strstr(result->error, "rank 1 died or hung up"));
            assert_true(result->seconds < HARNESS_SOON);
        }
        job_close(&job, &plane);
    }
}

static bool alive_unless_stopped(void *arg, int rank)
{
    struct job *job = arg;
    return rank != 1 || atomic_load(job->step) == 0;
}

static bool finished_if_stopped(void *arg, int rank)
{
    return !alive_unless_stopped(arg, rank);
}

/* Rank 1 keeps its sockets and says nothing, but `alive` knows better, and of kind 1 `finished`,
 * too. */
static int body_alive(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    link_open(&link, job, rank, true);
    link.alive = alive_unless_stopped;
    link.finished = job->kind == 1 ? finished_if_stopped : NULL;
    link.alive_arg = job;
    struct symm_exchange exchange = exchange_of(job->size, 5, 1);
    if (rank == 1) {
        symm__sleep(0.05); /* mostly the others wait already */
        atomic_store(job->step, 1);
        PLANE_CHECK(harness_until(job->step, 3));
    } else {
        double start = symm__now();
        plane_note(result, symm__exchange(&link, &exchange, messages));
        result->seconds = symm__now() - start;
        atomic_fetch_add(job->step, 1);
    }
    symm__oob_finish(&link);
    return 0;
}

static void test_alive(void **state)
{
    static const char *const told[] = {"rank 1 died",
                                       "rank 1 has finalized its context"};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, 3, kind, body_alive);
        for (int r = 0; r < 3; r += 2) {
            assert_int_equal(plane.results[r].status, SYMM_ERR_PEER_DEAD);
            assert_non_null(strstr(plane.results[r].error, told[kind]));
            assert_true(plane.results[r].seconds < HARNESS_SOON);
        }
        job_close(&job, &plane);
    }
}

/* ---- Deadlines ------------------------------------------------------------------- */

/* Ranks 2 and 4 come only when the others have gone, and learn it then. */
static int body_late(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    static const int punctual[] = {3, 1, 0};
    bool late = rank == 2 || rank == 4;
    int code = 0;
    link_open(&link, job, rank, true);
    struct symm_exchange exchange = exchange_of(job->size, 5, 1);
    void *data = pattern(rank, 5 * MIB);
    exchange.bytes = data;
    exchange.bytes_count = job->kind == 0 ? 10 : 5 * MIB;
    exchange.timeout = job->timeout;
    atomic_fetch_add(job->step, !late);
    /* All punctual ones come, have gone. */
    PLANE_CHECK(harness_until(job->step, late ? 6 : 3));
    double start = symm__now();
    plane_note(result, symm__exchange(&link, &exchange, messages));
    result->seconds = symm__now() - start;
    PLANE_CHECK(all_empty(messages, job->size));
    free(data);
    if (!late)
        code = exchange_small(&link, punctual, 3, 8, 0);
    atomic_fetch_add(job->step, 1);
    /* Sockets live until all have gone: a hang-up would be a death. */
    PLANE_CHECK(code != 0 || harness_until(job->step, 8));
    symm__oob_finish(&link);
    return code;
}

/* Whether the deadline was long enough for those who are punctual. */
static bool late_are_named(int kind, double timeout)
{
    struct job job;
    struct plane plane;
    bool all = true;
    job_open(&job, &plane, 5);
    job.kind = kind;
    job.timeout = timeout;
    job_start(&job, &plane, body_late);
    assert_int_equal(plane_wait(&plane), 0);
    for (int r = 0; r < 5; r++) {
        const struct plane_result *result = &plane.results[r];
        bool late = r == 2 || r == 4;
        assert_int_equal(result->status, SYMM_ERR_TIMEOUT);
        assert_true(late || result->seconds < timeout + HARNESS_SOON);
        /* With small parts nothing was in the way of the others' last words. */
        if (!late || kind == 0)
            all &= strstr(result->error, "rank 2 and rank 4 have not come to "
                                         "rendezvous of world") != NULL;
    }
    job_close(&job, &plane);
    return all;
}

static void test_late(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        double timeout;
        HARNESS_PATIENCE(timeout, 0.2)
        {
            if (late_are_named(kind, timeout))
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* ---- Failing calls --------------------------------------------------------------- */

/* Rank 1 of three makes its k-th call in vain: everybody has failed at the next step,
 * latest. */
static int body_fault(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    link_open(&link, job, rank, true);
    int file = file_of(rank, 0);
    void *data = pattern(rank, 100000);
    struct symm_exchange exchange = exchange_of(job->size, 3, 1);
    exchange.bytes = data;
    exchange.bytes_count = 100000;
    exchange.fds = &file;
    exchange.fds_count = 1;
    if (rank != 1)
        symm__sleep(0.001);
    fault_at = rank == 1 ? job->kind : 0;
    symm_status status = symm__exchange(&link, &exchange, messages);
    fault_at = 0;
    symm__oob_messages_finish(messages, job->size);
    exchange.sequence = 2;
    if (status == SYMM_OK)
        status = symm__exchange(&link, &exchange, messages);
    plane_note(result, status);
    symm__oob_messages_finish(messages, job->size);
    result->extra = fault_hit;
    close(file);
    free(data);
    symm__oob_finish(&link);
    return 0;
}

static void test_faults(void **state)
{
    int hits = 0, failures = 0;
    (void)state;
    for (int k = 1, hit = 1; hit && k < 200; k++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, 3, k, body_fault);
        hit = plane.results[1].extra;
        hits += hit;
        /* Only to fail to peek for last words is nobody's failure. */
        bool failed = plane.results[1].status != SYMM_OK;
        failures += failed;
        for (int r = 0; r < 3; r++)
            assert_int_equal(plane.results[r].status != SYMM_OK, failed);
        job_close(&job, &plane);
    }
    printf("%d calls failed, %d exchanges with them\n", hits, failures);
    assert_true(failures > 10 && failures > 2 * (hits - failures));

    for (int k = 1; k <= 7; k++) { /* six socket pairs; malloc where it can fail */
        int *pairs = NULL;
        int before = plane_fds();
        fault_at = k;
        symm_status status = symm__bootstrap_pairs(4, &pairs);
        fault_at = 0;
        if (status == SYMM_OK) {
            symm__seqpacket_close(pairs, 16);
            free(pairs);
        }
        assert_true(k == 7 || status != SYMM_OK);
        assert_int_equal(plane_fds(), before);
    }
}

/* ---- Damage ---------------------------------------------------------------------- */

static void garbage_send(int fd, int kind)
{
    static unsigned char noise[60000];
    static const size_t lengths[] = {1, 111, 112, 113, 40000, 60000};
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = byte_of(kind, i);
    struct iovec part = symm__seqpacket_part(noise, lengths[kind % 6]);
    int files[2] = {file_of(0, 0), file_of(0, 1)};
    assert_int_equal(symm__seqpacket_send(fd, &part, 1, files, kind < 6 ? 0 : 2,
                                          symm__now() + HARNESS_AMPLE),
                     SYMM_SEQPACKET_OK);
    symm__seqpacket_close(files, 2);
}

static void test_damage(void **state)
{
    (void)state;
    for (int kind = 0; kind < 12; kind++) {
        struct symm_oob link;
        struct symm_oob_message messages[2];
        int *pairs;
        int before = plane_fds();
        assert_int_equal(symm__bootstrap_pairs(2, &pairs), SYMM_OK);
        int other = pairs[2];
        symm__oob_init(&link, 0, 2, pairs); /* row 0 is the first of the table */
        garbage_send(other, kind);
        struct symm_exchange exchange = exchange_of(2, 1, 1);
        assert_int_equal(symm__exchange(&link, &exchange, messages), SYMM_ERR_DAMAGED);
        assert_non_null(strstr(symm_last_error(), "rank 1 sent a damaged message"));
        assert_true(all_empty(messages, 2));
        symm__oob_finish(&link);
        close(other);
        assert_int_equal(plane_fds(), before);
    }
}

int main(void)
{
    symm_log_sink(plane_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failure), cmocka_unit_test(test_death),
        cmocka_unit_test(test_alive),   cmocka_unit_test(test_late),
        cmocka_unit_test(test_faults),  cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
