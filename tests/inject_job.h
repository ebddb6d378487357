/* SPDX-License-Identifier: MIT */
/*
 * inject_job.h - the job in which test_host_inject makes calls fail: what a rank does, step
 * by step.
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
    bool brief;   /* the job ends behind its first collective */
    bool retries; /* a step that failed is made again */
    bool carried; /* the ranks meet by the caller's own exchange */
};

/* What one rank has to say. */
struct seen {
    bool returned;
    bool joined;       /* symm_init went well */
    bool wrong;        /* a sum was */
    bool lonely;       /* its failed exchange did not fail for the others */
    _Atomic bool over; /* status and sentence are final */
    symm_status status;
    char step[96]; /* the last one */
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

/* One rank in the midst of it. */
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
    int tries;  /* of the current step */
    float mark; /* what it puts on its stream */
};

extern int inject_null_fd; /* a descriptor of /dev/null */

bool inject_is_gentle(const struct job *job);
/* May others wait for the armed rank until their deadline? It is short then. */
bool inject_is_early(const struct job *job);
/* All steps of the rank's job; the status of the one that failed. */
symm_status inject_run_steps(struct rank *r);

#endif
