/* SPDX-License-Identifier: MIT */
/*
 * relay_stage.h - for suites of the relay: the ranks of a job as real processes of one machine.
 * They share no library state: each opens its relay over listeners and socket pairs that were made
 * before the fork.
 */
#ifndef SYMM_TESTS_RELAY_STAGE_H
#define SYMM_TESTS_RELAY_STAGE_H

#include <stdatomic.h>

#include "plane.h"
#include "relay/relay.h"

#define RANKS_MAX 44
#define NOBODY    (-1)

extern const uint8_t good_key[SYMM_SIPHASH_KEY];

/* What the ranks of a test share. */
struct shared {
    atomic_int ready, go, over;
    _Atomic double when;             /* something happened */
    _Atomic double seen[RANKS_MAX];  /* a rank saw it */
    _Atomic double ended[RANKS_MAX]; /* seconds that closing took */
};

struct job {
    int ranks, hosts, local_size[RANKS_MAX];
    int32_t host_of[RANKS_MAX];
    struct symm_relay_host at[RANKS_MAX];
    int listener[RANKS_MAX];
    int pair[RANKS_MAX][RANKS_MAX]; /* rank's end to a rank of its host; -1: none */
    int fds;
    int odd, strangers, kind, lost; /* of the tests */
    double timeout;
    int victim, other; /* other: of a host that dies at the same time */
    size_t bytes;
    struct shared *shared;
    struct plane plane;
};

/* One rank's view. */
struct side {
    struct job *job;
    int rank, local[RANKS_MAX], local_fd[RANKS_MAX];
    int32_t leaders[RANKS_MAX];
    struct symm_relay *relay;
    uint32_t sequence;
};

/* hosts: a letter for each rank; new letters in order. */
void job_open(struct job *job, const char *hosts);
void job_free_fds(struct job *job);
/* All ranks start; then this process holds no end of theirs. */
void job_start(struct job *job, plane_body body);
void job_run(struct job *job, plane_body body);
void job_close(struct job *job);
int side_open(struct side *side, int rank, struct job *job, const uint8_t *key);
/* As symm_finalize: the relay first, then the sockets by which others see the end. */
void side_close(struct side *side);
/* An allgather of all hosts of `leaders`, its result checked. Bytes of hosts differ in number. */
symm_status allgather(struct side *side, const int32_t *leaders, int hosts,
                      double timeout, int *code);
bool leads(const struct side *side);
int await(const atomic_int *counter, int wanted);
/* Opens the side, lets the hosts make an allgather, and waits until all ranks have done so. */
int side_meet(struct side *side, int rank, struct job *job, struct plane_result *result,
              int *code);
void assert_error(const struct job *job, int rank, symm_status status,
                  const char *text);

#endif
