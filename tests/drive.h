/* SPDX-License-Identifier: MIT */
/*
 * drive.h - the jobs of test_driver_simulate.c, each of them made by a seed, and what its files
 * share.
 */
#ifndef SYMM_TESTS_DRIVE_H
#define SYMM_TESTS_DRIVE_H

#include "harness.h"
#include "sim_driver.h"
#include "sim_seeds.h"

#define STEPS   10
#define SLOTS   24 /* places of results, each of one call */
#define COUNT   2048
#define STREAMS 2
#define BATCH   6 /* calls that are queued before one is awaited */

enum step {
    BATCHES, /* collectives on streams, of one or two teams */
    SIGNALS, /* by kernel */
    COPIES,  /* put, signal and wait by copy engine */
    GRAPH,   /* collectives that are captured, and replayed */
    TEAM,    /* a team that ends while its calls are under way */
    STEP_KINDS
};

/* One of these meets a job. */
enum fault {
    NO_FAULT,
    LATE_BRIEFLY, /* the stream of a rank whose host has queued the call, for less than its time */
    LATE_LONG, /* beyond it */
    ABSENT,    /* a rank does not make a call in time */
    KILLED,
    STOPPED_BRIEFLY,
    STOPPED_LONG,
    LEAVES, /* a rank ends while its calls are under way */
    FAULTS
};

struct drive {
    uint64_t seed;
    int ranks;
    enum fault fault;
    int culprit;
    int at;          /* the step of the fault, if it is one of a step */
    bool waits;      /* KILLED, STOPPED_...: while its peers wait for it in that step */
    double begun_at; /* LATE_..., ABSENT: when it began; 0: not yet */
    double late;     /* seconds: LATE_..., ABSENT */
    double timeout, queue_timeout;
    bool
        haste; /* ranks end at their first failure, while other calls of theirs are under way */
    bool sight; /* tools look on: SYMM_SIGHT=1 */
    enum step step[STEPS];
    int steps;
    char folder[96], kernels[96], queue[32];
    struct sim_config sim;
    struct sim_driver_config driver;
    /* By the ranks, while it runs. */
    struct {
        bool ended, failed;
        double left_at; /* when symm_finalize began */
    } rank[SIM_RANKS_MAX];
    double longest; /* over its time, of any call */
    struct sim_blame blame;
};

/* ---- drive_job.c: what a job is ----------------------------------------------------- */

extern char drive_root[64];
void drive_choose(struct drive *job, uint64_t seed);
const char *drive_fault_name(enum fault fault);

/* ---- drive_check.c: what is checked -------------------------------------------------- */

/* Seconds after which a call of this rank has to have ended, at most, beside its own `seconds`. */
double drive_allowed(const struct drive *job);
/* A call has ended: within its time, with an error only where there was a fault, which it names. */
symm_status drive_judge(struct drive *job, const char *what, symm_status status,
                        double begun, double stopped, double allowed,
                        const char *sentence);

#define CALL(job, seconds, call)                                                       \
    ({                                                                                 \
        const double begun_ = sim_now(), stopped_ = sim_stopped(sim_rank());           \
        symm_status status_;                                                           \
                                                                                       \
        sim_note("calls %s", #call);                                                   \
        status_ = (call);                                                              \
        drive_judge((job), #call, status_, begun_, stopped_, (seconds),                \
                    symm_last_error());                                                \
    })

/* ---- drive_rank.c: what a rank does -------------------------------------------------- */

void drive_body(int rank, void *arg);

#endif
