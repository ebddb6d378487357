/* SPDX-License-Identifier: MIT */
/*
 * test_host_link_missed.c - oob exchanges whose packets reach a member while it is in another
 * exchange: when it comes it gets the part, or learns of the failure, as if it had read the packet
 * then.
 *
 * The ranks are processes over socket pairs made by symm__bootstrap_pairs. After every test each
 * rank's open descriptors are as before.
 * SYMM_TEST_ROUNDS=N sets the number of random rounds (150).
 * ctest: no-threads
 */
#include "net/seqpacket.h"
#include "oob/packet.h"
#include "plane_link.h"

#include <fcntl.h>
#include <sys/stat.h>

#define OTHER  40 /* tags */
#define COMMON 41
#define FILES  70 /* more than a packet carries */

/* What ends an exchange on the ranks that are in it. */
struct end {
    double
        at; /* a time; 0: when a packet of rank 0 for the common exchange was thrown away, */
    const struct symm_oob *link;
    bool failure; /* which says that rank 0 has failed there; */
    double stay;  /* and so many seconds later, as on a machine that is busy */
};

static bool has_come(struct end *end)
{
    const struct symm_oob_missed *missed;

    if (end->at == 0) {
        missed = symm__oob_missed(end->link, 0);
        if (!missed || missed->head.tag != COMMON ||
            end->failure != (missed->head.kind == SYMM_OOB_FAIL ||
                             missed->head.kind == SYMM_OOB_BLAME))
            return false;
        end->at = symm__now() + end->stay;
    }
    return symm__now() >= end->at;
}

static symm_status end_at(void *arg, const int *ranks, int count)
{
    (void)ranks;
    (void)count;
    return has_come(arg) ? symm__fail(SYMM_ERR_PEER_DEAD, "rank 7 died") : SYMM_OK;
}

/* An exchange of all ranks that not all come to. */
static symm_status wait_in_vain(struct symm_oob *link, int count, uint64_t tag,
                                bool agreed, struct end end)
{
    struct symm_oob_message messages[MOST];
    struct symm_exchange exchange = exchange_of(count, tag, 0);
    symm_status status;

    end.link = link;
    exchange.agreed = agreed;
    exchange.stop = end_at;
    exchange.stop_arg = &end;
    exchange.bytes = "in vain";
    exchange.bytes_count = 7;
    status = symm__exchange(link, &exchange, messages);
    symm__oob_messages_finish(messages, count);
    return status;
}

/* The exchange that all come to in the end: parts of `bytes` and of `count` descriptors. */
static int meet(struct symm_oob *link, int size, bool agreed, size_t bytes, int count)
{
    struct symm_oob_message messages[MOST];
    struct symm_exchange exchange = exchange_of(size, COMMON, 3);
    void *data = pattern(link->rank, bytes);
    int files[FILES];

    for (int i = 0; i < count; i++)
        files[i] = file_of(link->rank, i);
    exchange.agreed = agreed;
    exchange.bytes = data;
    exchange.bytes_count = bytes;
    exchange.fds = files;
    exchange.fds_count = count;
    PLANE_CHECK(symm__exchange(link, &exchange, messages) == SYMM_OK);
    for (int r = 0; r < size; r++) {
        struct stat is;

        PLANE_CHECK(is_pattern(&messages[r], r, bytes));
        PLANE_CHECK(messages[r].fds_count == (r == link->rank ? 0 : count));
        for (int i = 0; i < messages[r].fds_count; i++)
            PLANE_CHECK(fstat(messages[r].fds[i], &is) == 0 &&
                        is.st_size == r * 1000 + i + 1);
    }
    symm__oob_messages_finish(messages, size);
    symm__seqpacket_close(files, count);
    free(data);
    return 0;
}

/* ---- A part ---------------------------------------------------------------------- */

/* Bits of a test's kind. */
enum { OTHER_AGREED = 1, COMMON_AGREED = 2, LARGE = 4, SOCKETS = 8, KINDS = 16 };

/* Rank 0 goes straight to the common exchange, rank 1 is in another before. */
static int body_part(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    int code;

    link_open(&link, job, rank, true);
    if (rank > 0)
        plane_note(result, wait_in_vain(
                               &link, job->size, OTHER, (job->kind & OTHER_AGREED) != 0,
                               (struct end){.stay = job->kind == 0 ? 0.1 : 0}));
    code = meet(&link, job->size, (job->kind & COMMON_AGREED) != 0,
                job->kind & LARGE ? 3 * MIB : (size_t)job->kind,
                job->kind & SOCKETS ? FILES : 0);
    symm__oob_finish(&link);
    return code;
}

static void test_part(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct job job;
            struct plane plane;

            job_run(&job, &plane, size, kind, body_part);
            for (int r = 1; r < size; r++)
                assert_int_equal(plane.results[r].status, SYMM_ERR_PEER_DEAD);
            job_close(&job, &plane);
        }
}

/* ---- A failure ------------------------------------------------------------------- */

/* Rank 0 has given the common exchange up before rank 1 comes to it: rank 1 has thrown its FAIL
 * away. LATE_AGAIN: rank 1 then waits, and rank 0 comes again. */
enum { FAILED, LATE_AGAIN };

static int body_failure(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    struct symm_oob_message messages[MOST];
    struct symm_exchange exchange = exchange_of(2, COMMON, 3);
    uint32_t next = 3;
    struct end end = {.at = symm__now() + 0.01};
    double start;

    link_open(&link, job, rank, true);
    exchange.next = &next;
    exchange.again = true;
    if (rank == 0) {
        exchange.timeout = job->kind == FAILED ? HARNESS_AMPLE : 0.01;
        exchange.stop = job->kind == FAILED ? end_at : NULL;
        exchange.stop_arg = &end;
        plane_note(result, symm__exchange(&link, &exchange, messages));
        PLANE_CHECK(next == 4);
        atomic_store(job->step, 1);
    } else {
        PLANE_CHECK(wait_in_vain(&link, 2, OTHER, true,
                                 (struct end){.failure = true}) == SYMM_ERR_PEER_DEAD);
        PLANE_CHECK(harness_until(job->step, 1));
        atomic_store(job->step, 2);
    }
    if (rank == 0 && job->kind == FAILED) { /* it does not come again */
        PLANE_CHECK(harness_until(job->step, 3));
        symm__oob_finish(&link);
        return 0;
    }
    if (rank == 0) {
        PLANE_CHECK(harness_until(job->step, 2));
        symm__sleep(0.05);
    }
    exchange.sequence = next;
    exchange.timeout = HARNESS_AMPLE;
    exchange.stop = NULL;
    start = symm__now();
    plane_note(result, symm__exchange(&link, &exchange, messages));
    result->seconds = symm__now() - start;
    PLANE_CHECK(result->status != SYMM_OK || next == 5);
    symm__oob_messages_finish(messages, 2);
    atomic_store(job->step, 3);
    symm__oob_finish(&link);
    return 0;
}

static void test_failure(void **state)
{
    struct job job;
    struct plane plane;

    (void)state;
    job_run(&job, &plane, 2, FAILED, body_failure);
    assert_int_equal(plane.results[1].status, SYMM_ERR_PEER_DEAD);
    assert_non_null(strstr(plane.results[1].error, "rank 0 reports: rank 7 died"));
    assert_true(plane.results[1].seconds < HARNESS_SOON);
    job_close(&job, &plane);
    job_run(&job, &plane, 2, LATE_AGAIN, body_failure);
    assert_int_equal(plane.results[0].status, SYMM_OK);
    assert_int_equal(plane.results[1].status, SYMM_OK);
    job_close(&job, &plane);
}

/* ---- Random ballots -------------------------------------------------------------- */

/* As the ranks of symm_team_shrink do: each comes to some exchanges, which end on each rank at
 * another time, and all come to the last one. */
static int body_ballots(int rank, struct plane_result *result, void *arg)
{
    struct job *job = arg;
    struct symm_oob link;
    uint64_t mine = (uint64_t)job->kind * MOST + (uint64_t)rank;
    struct end end = {0};
    int code;

    (void)result;
    link_open(&link, job, rank, true);
    for (int ballot = 0; ballot < 4; ballot++) {
        if (harness_random(&mine) % 2)
            continue;
        end.at = symm__now() + (double)(harness_random(&mine) % 4000) * 1e-6;
        (void)!wait_in_vain(&link, job->size, OTHER + 10 + (uint64_t)ballot, true, end);
    }
    code = meet(&link, job->size, true, job->kind % 3 ? 100 : MIB, job->kind % 5);
    symm__oob_finish(&link);
    return code;
}

static void test_ballots(void **state)
{
    int rounds = (int)harness_env("SYMM_TEST_ROUNDS", HARNESS_SLOW ? 30 : 150);

    (void)state;
    for (int round = 0; round < rounds; round++) {
        struct job job;
        struct plane plane;

        job_run(&job, &plane, 2 + round % 3, round, body_ballots);
        job_close(&job, &plane);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_ballots),
    };

    symm_log_sink(plane_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
