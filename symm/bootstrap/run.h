/* SPDX-License-Identifier: MIT */
/*
 * run.h - one bootstrap of ranks: what all its ways, and both sides, are given.
 */
#ifndef SYMM_BOOTSTRAP_RUN_H
#define SYMM_BOOTSTRAP_RUN_H

#include "bootstrap/job.h"

struct symm_tcp;

#define SYMM_BOOTSTRAP_MAX 64 /* ranks of one bootstrap */

struct symm_bootstrap_run {
    int rank, size;        /* size >= 1 */
    const char *key;       /* the job's key: borrows */
    const uint8_t *secret; /* SYMM_SECRET_BYTES or NULL: borrows */
    double timeout;        /* seconds from the call */
    struct symm_tcp *
        *tcp; /* [size]: gets the connections to other hosts; NULL: the ranks
                              are on one host */
};

#endif
