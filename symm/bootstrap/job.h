/* SPDX-License-Identifier: MIT */
/*
 * job.h - this rank's identity, from the launcher's variables.
 *
 * Order: SYMM_* > torchrun > Open MPI > PMIx > PMI > Slurm > a job of one. The first family
 * of which any defining variable is set decides; a partial or contradictory set is
 * SYMM_ERR_JOB naming the missing variable. Reads the environment and, under PMI, which
 * process is at the other end of PMI_FD; sends nothing there, and never binds a port.
 */
#ifndef SYMM_BOOTSTRAP_JOB_H
#define SYMM_BOOTSTRAP_JOB_H

#include "symm/symm.h"

#define SYMM_SECRET_BYTES  16
#define SYMM_KEY_BYTES     ((size_t)512) /* with the NUL */
#define SYMM_BOOTSTRAP_MAX 64            /* ranks of one host */
/* Of a job: far above any machine, far below what overflows a product. */
#define SYMM_RANKS_MAX (1 << 20)

struct symm_job {
    int rank, size;             /* in the job; 0 <= rank < size */
    int local_rank, local_size; /* on this host */
    char source[16];            /* "symm", "torchrun", ... */
    char key[SYMM_KEY_BYTES];   /* names this job and no other; not a file name */
    bool has_secret;            /* the launcher gave a secret */
    uint8_t secret[SYMM_SECRET_BYTES];
    char store[128]; /* host:port of symmrun's store, "" if none */
    char node[24];   /* the launcher's name for this host, "" if it has none */
    /* distinguishes a job and its restarts from those that have the same root */
    uint64_t series;
    /* host:port where rank 0 listens for other hosts, "" if not known */
    char root[300];
};

symm_status symm__job_detect(struct symm_job *job) SYMM_MUST_CHECK;
/* For a job that the caller has described: reads secret and root from the environment. */
symm_status symm__job_network(struct symm_job *job) SYMM_MUST_CHECK;
/* Fails with the sentence that a job over several hosts needs a secret, and how to give one. */
symm_status symm__job_no_secret(void);

/* What a key that is made of the secret is for. */
enum symm_series_use { SYMM_SERIES_JOB, SYMM_SERIES_CHECK };
/* The key of this start of the job. A process left over from an earlier start has the same secret
 * and port, but not this key. */
void symm__job_series_key(const uint8_t secret[SYMM_SECRET_BYTES], uint64_t series,
                          enum symm_series_use use, uint8_t key[SYMM_SECRET_BYTES]);

#endif
