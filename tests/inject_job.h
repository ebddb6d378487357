/* SPDX-License-Identifier: MIT */
/*
 * inject_job.h - the steps of a rank in the job in which test_host_inject makes calls fail.
 */
#ifndef SYMM_TESTS_INJECT_JOB_H
#define SYMM_TESTS_INJECT_JOB_H

#include "harness.h"
#include "inject.h"

#define MAX_RANKS 3

struct setup {
    const char *name;
    enum inject_mode mode;
    int ranks, armed;
    bool threads;
    bool brief;   /* the job ends after its first collective */
    bool retries; /* a failed step is repeated */
    bool carried; /* the bootstrap uses the caller's exchange */
};

/* The report of one rank. */
struct seen {
    bool returned;
    bool joined;       /* symm_init succeeded */
    bool wrong;        /* a sum was wrong */
    bool lonely;       /* its exchange failed, the other ranks' did not */
    _Atomic bool over; /* status and sentence are final */
    symm_status status;
    char step[96]; /* the last step */
    char sentence[512];
    long fds, blocks, mappings; /* lost */
    double ended;
    struct inject_report report;
};

struct job {
    const struct setup *setup;
    long k;       /* 0: nothing fails */
    double early; /* seconds for symm_init while is_early */
    char key[64], runtime[96];
    struct {
        _Atomic unsigned arrived;
        char given[MAX_RANKS][128];
    } exchange;
    struct seen seen[MAX_RANKS];
};

/* The state of one rank. */
struct rank {
    struct job *job;
    struct seen *seen;
    int me;
    symm_thread_group *group;
    symm_ctx *ctx;
    symm_team *world, *half;
    symm_buffer *small, *large;
    symm_work *work, *put, *next;
    void *stream;
    int called; /* times that the callback ran */
    _Atomic int notified; /* times that the work's end was told */
    int tries;  /* of the current step */
    float mark; /* the value that it writes by its stream */
};

extern int inject_null_fd; /* a descriptor of /dev/null */

bool inject_is_gentle(const struct job *job);
/* Whether other ranks may wait for the armed rank until their timeout, which is then short. */
bool inject_is_early(const struct job *job);
/* Runs all steps of the rank; returns the status of the step that failed. */
symm_status inject_run_steps(struct rank *r);

#endif
