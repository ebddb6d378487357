/* SPDX-License-Identifier: MIT */
/*
 * job_key.h - what names a job: the same text on all of its ranks, another for any
 * other job.
 *
 * Private to job.c and job_key.c. Each function appends to job->key. A launcher that
 * gives no name of the job is SYMM_ERR_JOB naming the variable; SYMM_JOB_ID replaces
 * them all.
 */
#ifndef SYMM_BOOTSTRAP_JOB_KEY_H
#define SYMM_BOOTSTRAP_JOB_KEY_H

#include "bootstrap/job.h"

/* A launcher's variable; NULL if unset or empty. */
const char *symm__job_variable(const char *name);
/* SYMM_ERR_JOB: `missing` is not set though `present` is. */
symm_status symm__job_missing(const char *missing, const char *present);

symm_status symm__key_symm(struct symm_job *job, const char *job_id) SYMM_MUST_CHECK;
symm_status symm__key_torchrun(struct symm_job *job) SYMM_MUST_CHECK;
symm_status symm__key_pmix(struct symm_job *job) SYMM_MUST_CHECK; /* Open MPI's, too */
symm_status symm__key_pmi(struct symm_job *job) SYMM_MUST_CHECK;
symm_status symm__key_slurm(struct symm_job *job) SYMM_MUST_CHECK;
symm_status symm__key_process(struct symm_job *job) SYMM_MUST_CHECK; /* a job of one */

#endif
