/* SPDX-License-Identifier: MIT */
/*
 * test_host_link.c - oob exchanges among ranks: sizes, descriptors, ranks at different steps.
 *
 * The ranks are processes (in some tests threads) over socket pairs made by
 * symm__bootstrap_pairs. After every test each rank's open descriptors are as before.
 * Failures and deaths: test_host_link_fault.c.
 */
#include "net/seqpacket.h"
#include "plane_link.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- Bytes ----------------------------------------------------------------------- */

static size_t size_of(int rank, int round)
{
    static const size_t sizes[] = {0, 1, 100 * 1024, 5 * MIB, 32 * 1024, 32 * 1024 + 1};
    return sizes[(size_t)(rank + round) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static int bytes_rounds(struct symm_oob *link, int rounds)
{
    struct symm_oob_message messages[MOST];
    for (int round = 0; round < rounds; round++) {
        size_t mine = size_of(link->rank, round);
        void *data = pattern(link->rank, mine);
        struct symm_exchange exchange = exchange_of(link->size, 7, (uint32_t)round);
        exchange.bytes = data;
        exchange.bytes_count = mine;
        PLANE_CHECK(symm__exchange(link, &exchange, messages) == SYMM_OK);
        for (int r = 0; r < link->size; r++)
            PLANE_CHECK(is_pattern(&messages[r], r, size_of(r, round)));
        symm__oob_messages_finish(messages, link->size);
        PLANE_CHECK(all_empty(messages, link->size));
        free(data);
    }
    return 0;
}

static int body_bytes(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    link_open(&link, job, rank, job->kind == 0);
    int code = bytes_rounds(&link, 6);
    symm__oob_finish(&link);
    result->extra = link.size;
    return code;
}

static void test_bytes(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, size, 0, body_bytes);
        job_close(&job, &plane);
    }
}

static void test_bytes_threads(void **state)
{
    struct job job;
    struct plane plane;
    (void)state;
    job_open(&job, &plane, 3);
    job.kind = 1;
    assert_int_equal(plane_threads(&plane, 3, body_bytes, &job), 0);
    job_close(&job, &plane);
}

/* Everybody sends much more than the sockets hold. */
static int body_flood(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    size_t bytes = HARNESS_SLOW ? 10 * MIB : 60 * MIB;
    link_open(&link, job, rank, true);
    char *data = malloc(bytes);
    PLANE_CHECK(data != NULL);
    memset(data, rank + 1, bytes);
    struct symm_exchange exchange = exchange_of(job->size, 7, 0);
    exchange.bytes = data;
    exchange.bytes_count = bytes;
    double start = symm__now();
    PLANE_CHECK(symm__exchange(&link, &exchange, messages) == SYMM_OK);
    result->seconds = symm__now() - start;
    for (int r = 0; r < job->size; r++) {
        const char *got = messages[r].bytes;
        PLANE_CHECK(messages[r].bytes_count == bytes && got[0] == r + 1);
        PLANE_CHECK(memcmp(got, got + 1, bytes - 1) == 0); /* all the same */
    }
    symm__oob_messages_finish(messages, job->size);
    free(data);
    symm__oob_finish(&link);
    return 0;
}

static void test_flood(void **state)
{
    struct job job;
    struct plane plane;
    (void)state;
    job_run(&job, &plane, 3, 0, body_flood);
    job_close(&job, &plane);
}

/* Fast ranks are in the next exchange while slow ones are still in this one. */
static int body_many(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    static const int pair[] = {2, 0};
    int code = 0;
    uint64_t random = 77 + (uint64_t)rank;
    link_open(&link, job, rank, true);
    for (uint32_t i = 0; i < 200 && code == 0; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (random >> 60 == 0)
            symm__sleep(0.002);
        code = exchange_small(&link, everybody, job->size, 1, i);
        if (code == 0 && (rank == 0 || rank == 2))
            code = exchange_small(&link, pair, 2, 2, i);
    }
    symm__oob_finish(&link);
    result->extra = 0;
    return code;
}

static void test_many(void **state)
{
    struct job job;
    struct plane plane;
    (void)state;
    job_run(&job, &plane, 4, 0, body_many);
    job_close(&job, &plane);
}

/* ---- Descriptors ----------------------------------------------------------------- */

static int fds_of(int rank, int kind)
{
    static const int counts[] = {0, 1, 200, 64, 65};
    return counts[(rank + kind) % 5];
}

static int fds_check(const struct symm_oob_message *message, int rank, int count)
{
    PLANE_CHECK(message->fds_count == count);
    for (int i = 0; i < count; i++) {
        struct stat is;
        PLANE_CHECK(fstat(message->fds[i], &is) == 0);
        PLANE_CHECK(is.st_size == rank * 1000 + i + 1);
        PLANE_CHECK((fcntl(message->fds[i], F_GETFD) & FD_CLOEXEC) != 0);
    }
    return 0;
}

static int body_fds(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    int files[200];
    int count = fds_of(rank, job->kind);
    link_open(&link, job, rank, true);
    for (int i = 0; i < count; i++)
        files[i] = file_of(rank, i);
    /* A large part beside few descriptors, and the other way round. */
    size_t bytes = (size_t)((rank + job->kind) % 2) * MIB / 2;
    void *data = pattern(rank, bytes);
    struct symm_exchange exchange = exchange_of(job->size, 3, 1);
    exchange.bytes = data;
    exchange.bytes_count = bytes;
    exchange.fds = files;
    exchange.fds_count = count;
    PLANE_CHECK(symm__exchange(&link, &exchange, messages) == SYMM_OK);
    for (int r = 0; r < job->size; r++) {
        size_t theirs = (size_t)((r + job->kind) % 2) * MIB / 2;
        PLANE_CHECK(is_pattern(&messages[r], r, theirs));
        int code = fds_check(&messages[r], r, r == rank ? 0 : fds_of(r, job->kind));
        if (code != 0)
            return code;
    }
    symm__oob_messages_finish(messages, job->size);
    symm__seqpacket_close(files, count);
    free(data);
    symm__oob_finish(&link);
    result->extra = 0;
    return 0;
}

static void test_fds(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, 3, kind, body_fds);
        job_close(&job, &plane);
    }
}

/* Rank 1 may open too few descriptors for those of the others. */
static int body_limit(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    struct rlimit limit;
    int files[100];
    link_open(&link, job, rank, true);
    for (int i = 0; i < 100; i++)
        files[i] = file_of(rank, i);
    if (rank == 1) {
        PLANE_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = (rlim_t)files[99] + 40;
        PLANE_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    struct symm_exchange exchange = exchange_of(job->size, 3, 1);
    exchange.fds = files;
    exchange.fds_count = 100;
    plane_note(result, symm__exchange(&link, &exchange, messages));
    PLANE_CHECK(all_empty(messages, job->size));
    symm__seqpacket_close(files, 100);
    /* The sockets are as they were for others. */
    int code = exchange_small(&link, everybody, job->size, 4, 0);
    symm__oob_finish(&link);
    return code;
}

static void test_limit(void **state)
{
    struct job job;
    struct plane plane;
    (void)state;
    job_run(&job, &plane, 3, 0, body_limit);
    assert_all(&plane, 3, SYMM_ERR_SYSTEM,
               "rank 1 could not take the descriptors of rank");
    assert_all(&plane, 3, SYMM_ERR_SYSTEM, "EMFILE");
    job_close(&job, &plane);
}

/* ---- Another step ---------------------------------------------------------------- */

enum { WRONG_TAG, WRONG_SEQUENCE, WRONG_STEP, WRONG_MEMBERS };

static int body_mismatch(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    static const int two[] = {0, 3};
    link_open(&link, job, rank, true);
    void *data = pattern(rank, MIB);
    struct symm_exchange exchange = exchange_of(job->size, 5, 1);
    exchange.bytes = data;
    exchange.bytes_count = MIB;
    if (rank == 3) {
        exchange.what = "split of team 2";
        if (job->kind == WRONG_SEQUENCE)
            exchange.sequence = 2;
        else if (job->kind != WRONG_STEP)
            exchange.tag = 6;
        if (job->kind == WRONG_MEMBERS) {
            exchange.members = two;
            exchange.count = 2;
        }
    }
    double start = symm__now();
    plane_note(result, symm__exchange(&link, &exchange, messages));
    result->seconds = symm__now() - start;
    PLANE_CHECK(all_empty(messages, exchange.count));
    free(data);
    int code = 0;
    if (rank < 3) /* without the culprit all goes on */
        code = exchange_small(&link, everybody, 3, 8, 0);
    /* A rank that hangs up at once may be missed before its report has been read. */
    atomic_fetch_add(job->step, 1);
    PLANE_CHECK(harness_until(job->step, 4));
    symm__oob_finish(&link);
    return code;
}

static void test_mismatch(void **state)
{
    (void)state;
    for (int kind = WRONG_TAG; kind <= WRONG_MEMBERS; kind++) {
        struct job job;
        struct plane plane;
        job_run(&job, &plane, 4, kind, body_mismatch);
        assert_all(&plane, 4, SYMM_ERR_MISMATCH, "rank 3");
        assert_all(&plane, 4, SYMM_ERR_MISMATCH, "\"rendezvous of world\"");
        assert_all(&plane, 4, SYMM_ERR_MISMATCH, "\"split of team 2\"");
        for (int r = 0; r < 4; r++)
            assert_true(plane.results[r].seconds < HARNESS_SOON);
        job_close(&job, &plane);
    }
}

/* ---- Arguments ------------------------------------------------------------------- */

static void test_arguments(void **state)
{
    struct symm_oob link;
    struct symm_oob_message messages[3];
    static const int bad[][2] = {{0, 0}, {1, 2}, {0, 3}, {-1, 0}};
    int *pairs;
    (void)state;
    assert_int_equal(symm__bootstrap_pairs(0, &pairs), SYMM_ERR_INVALID);
    assert_int_equal(symm__bootstrap_pairs(65, &pairs), SYMM_ERR_INVALID);
    int *row = malloc(3 * sizeof(*row));
    assert_non_null(row);
    row[0] = row[1] = row[2] = -1;
    symm__oob_init(&link, 0, 3, row);
    struct symm_exchange exchange = exchange_of(0, 1, 1);
    assert_int_equal(symm__exchange(&link, &exchange, messages), SYMM_ERR_INVALID);
    exchange.count = 2;
    for (int i = 0; i < 4; i++) {
        exchange.members = bad[i];
        assert_int_equal(symm__exchange(&link, &exchange, messages), SYMM_ERR_INVALID);
    }
    exchange.members = everybody; /* no connection */
    assert_int_equal(symm__exchange(&link, &exchange, messages), SYMM_ERR_INVALID);
    symm__oob_finish(&link);
    symm__oob_finish(&link); /* again: nothing */
}

int main(void)
{
    symm_log_sink(plane_quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),    cmocka_unit_test(test_bytes_threads),
        cmocka_unit_test(test_flood),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_fds),      cmocka_unit_test(test_limit),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
