/* SPDX-License-Identifier: MIT */
/*
 * simulate.h - the jobs of test_host_simulate.c, each of them made by a seed, and what its files
 * share.
 */
#ifndef SYMM_TESTS_SIMULATE_H
#define SYMM_TESTS_SIMULATE_H

#include "harness.h"
#include "sim_seeds.h"

#define RANKS    SIM_RANKS_MAX
#define ENTRY    256
#define STEPS    24
#define SENTENCE 400
#define SHRINKS  6
#define TIMEOUT  2.0                          /* of a call */
#define START    6.0                          /* of symm_init */
#define SLACK    (job->hosts > 1 ? 3.0 : 1.5) /* for what ends a call after its timeout */
#define STAY     5.0                          /* of survivors on several hosts */
#define COUNT    1500

enum step {
    BARRIER,
    SMALL,
    LARGE,
    SYMMETRIC,
    SPLIT,
    SIGNAL,
    STREAM,
    SEND,
    CREATE,
    STEP_KINDS
};
enum way { BY_KEY, BY_ALLGATHER, BY_PORT };

struct outcome { /* of a rank */
    int made;    /* shrinks that returned SYMM_OK */
    uint64_t members[SHRINKS];
    double made_at, left_at; /* the first of them; when symm_finalize began */
    bool joined, ended;
    uint64_t last; /* members of the team whose last barrier has passed */
};

/* Everything about one job. */
struct job {
    uint64_t seed;
    int ranks, hosts;
    enum way way;
    char host[RANKS], folder[96], engines[112];
    enum step step[STEPS];
    int steps, quits;       /* quits: bits of ranks that finalize at the first error */
    uint64_t deaths, stops; /* bits: ranks that will be killed, stopped for long, */
    uint64_t lacks;         /* whose allocations will fail */
    bool breaks, cut;       /* cut: for longer than calls bear */
    bool starts;            /* connections are lost at the start: all ranks join */
    struct sim_config sim;
    /* By the ranks, while it runs. */
    char entries[RANKS][ENTRY];
    int given;
    struct outcome outcome[RANKS];
    double longest; /* over its time, of any call */
    struct sim_blame blame;
};

/* ---- simulate_job.c: what a job is -------------------------------------------------- */

extern char simulate_root[64];
void simulate_choose(struct job *job, uint64_t seed);

/* ---- simulate_check.c: what is checked ---------------------------------------------- */

struct watch {
    double start, stopped;
};

struct watch simulate_begin(const char *what);
/* A call has ended: within its time, and with an error only where there was a fault. */
symm_status simulate_judge(struct job *job, struct watch watch, const char *what,
                           symm_status status, double allowed);

#define TIMED(job, seconds, call)                                                      \
    ({                                                                                 \
        struct watch watch_ = simulate_begin(#call);                                   \
        symm_status status_ = (call);                                                  \
        simulate_judge((job), watch_, #call, status_, (seconds));                      \
    })
#define CALL(job, call) TIMED(job, TIMEOUT + SLACK, call)

uint64_t simulate_members_of(symm_team *team);

/* ---- simulate_rank.c: what a rank does ---------------------------------------------- */

void simulate_body(int rank, void *arg);

#endif
