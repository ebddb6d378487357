/* SPDX-License-Identifier: MIT */
/*
 * plane_link.h - for the suites of oob exchanges: a job whose ranks are connected by the
 * socket pairs of symm__bootstrap_pairs, exchanges of known bytes, and files whose size
 * identifies their rank.
 *
 * The ranks are processes, in some tests threads. A test opens, runs and closes its job;
 * the results of the ranks are in the plane until then.
 */
#ifndef SYMM_TESTS_PLANE_LINK_H
#define SYMM_TESTS_PLANE_LINK_H

#include "bootstrap/bootstrap.h"
#include "net/seqpacket.h"
#include "oob/exchange.h"
#include "plane.h"

#include <setjmp.h>
#include <stdatomic.h>

#include <cmocka.h>

#define MIB  ((size_t)1 << 20)
#define MOST 8 /* ranks of a job */

/* Shared by all ranks of a test. */
struct job {
    int size;
    int *pairs;       /* of symm__bootstrap_pairs; each rank uses its row */
    int kind;         /* of the test's variants */
    double timeout;   /* if the test sets one */
    atomic_int *step; /* shared with processes */
};

static const int everybody[] = {0, 1, 2, 3, 4, 5, 6, 7};

static inline void job_open(struct job *job, struct plane *plane, int size)
{
    memset(job, 0, sizeof(*job));
    job->size = size;
    job->step = plane_shared(sizeof(*job->step));
    plane_open(plane);
    plane->given = size * (size - 1); /* all ends: the own row and the other rows */
    assert_int_equal(symm__bootstrap_pairs(size, &job->pairs), SYMM_OK);
}

static inline void job_start(struct job *job, struct plane *plane, plane_body body)
{
    for (int r = 0; r < job->size; r++)
        plane_start(plane, body, r, job);
    symm__seqpacket_close(job->pairs,
                          job->size * job->size); /* only the ranks keep them open */
}

static inline void job_close(struct job *job, struct plane *plane)
{
    symm__seqpacket_close(job->pairs, job->size * job->size);
    free(job->pairs);
    munmap(job->step, sizeof(*job->step));
    plane_close(plane);
}

/* All ranks run body and must pass; their results last until job_close. */
static inline void job_run(struct job *job, struct plane *plane, int size, int kind,
                           plane_body body)
{
    job_open(job, plane, size);
    job->kind = kind;
    job_start(job, plane, body);
    assert_int_equal(plane_wait(plane), 0);
}

/* A process closes the other ranks' rows, so that a death is a hang-up. */
static inline void link_open(struct symm_oob *link, struct job *job, int rank,
                             bool process)
{
    size_t n = (size_t)job->size;
    int *row = malloc(n * sizeof(*row));
    if (row == NULL)
        abort();
    for (size_t j = 0; j < n; j++) {
        row[j] = job->pairs[(size_t)rank * n + j];
        job->pairs[(size_t)rank * n + j] = -1;
    }
    if (process) {
        symm__seqpacket_close(job->pairs, job->size * job->size);
        free(job->pairs);
    }
    symm__oob_init(link, rank, job->size, row);
}

static inline struct symm_exchange exchange_of(int count, uint64_t tag,
                                               uint32_t sequence)
{
    struct symm_exchange exchange = {
        .what = "rendezvous of world",
        .tag = tag,
        .sequence = sequence,
        .members = everybody,
        .count = count,
        .timeout = HARNESS_AMPLE,
    };
    return exchange;
}

static inline unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)((size_t)rank * 31 + i * 7 + (i >> 8));
}

static inline void *pattern(int rank, size_t bytes)
{
    unsigned char *made = malloc(bytes + 1);
    if (made == NULL)
        abort();
    for (size_t i = 0; i < bytes; i++)
        made[i] = byte_of(rank, i);
    return made;
}

static inline bool is_pattern(const struct symm_oob_message *message, int rank,
                              size_t bytes)
{
    const unsigned char *got = message->bytes;
    if (message->bytes_count != bytes || (bytes == 0) != (got == NULL))
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (got[i] != byte_of(rank, i))
            return false;
    }
    return true;
}

static inline bool all_empty(const struct symm_oob_message *messages, int count)
{
    for (int i = 0; i < count; i++) {
        if (messages[i].bytes != NULL || messages[i].fds != NULL ||
            messages[i].fds_count != 0 || messages[i].bytes_count != 0)
            return false;
    }
    return true;
}

/* One exchange of a few bytes that must succeed. */
static inline int exchange_small(struct symm_oob *link, const int *members, int count,
                                 uint64_t tag, uint32_t sequence)
{
    struct symm_oob_message messages[MOST];
    void *data = pattern(link->rank, 100);
    struct symm_exchange exchange = exchange_of(count, tag, sequence);
    exchange.what = "split of team 5";
    exchange.members = members;
    exchange.bytes = data;
    exchange.bytes_count = 100;
    PLANE_CHECK(symm__exchange(link, &exchange, messages) == SYMM_OK);
    for (int i = 0; i < count; i++)
        PLANE_CHECK(is_pattern(&messages[i], members[i], 100));
    symm__oob_messages_finish(messages, count);
    free(data);
    return 0;
}

static inline void assert_all(const struct plane *plane, int count, symm_status status,
                              const char *part)
{
    for (int r = 0; r < count; r++) {
        const struct plane_result *result = &plane->results[r];
        if (result->status != status || strstr(result->error, part) == NULL)
            fail_msg("rank %d: %s, \"%s\"; expected \"%s\"", r,
                     symm_status_name(result->status), result->error, part);
    }
}

/* A file whose size identifies its rank and index. */
static inline int file_of(int rank, int i)
{
    int fd = memfd_create("symm-link", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, rank * 1000 + i + 1) != 0)
        abort();
    return fd;
}

#endif
