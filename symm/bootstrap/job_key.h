/* SPDX-License-Identifier: MIT */
/*
 * job_key.h - what names a job: the same text on all of its ranks, another for any
 * other job.
 *
 * For job.c alone. Each symm__key_ function writes a key of at most SYMM_KEY_BYTES. A
 * launcher that gives no name of the job is SYMM_ERR_JOB naming the variable;
 * SYMM_JOB_ID replaces them all.
 */
#ifndef SYMM_BOOTSTRAP_JOB_KEY_H
#define SYMM_BOOTSTRAP_JOB_KEY_H

#include "symm/symm.h"

#define SYMM_KEY_BYTES ((size_t)512) /* with the NUL; of struct symm_job, too */

/* A launcher's variable; NULL if unset or empty. */
const char *symm__job_variable(const char *name);
/* SYMM_ERR_JOB: `missing` is not set though `present` is. */
symm_status symm__job_missing(const char *missing, const char *present);

symm_status symm__key_symm(char *key, const char *job_id) SYMM_MUST_CHECK;
symm_status symm__key_torchrun(char *key) SYMM_MUST_CHECK;
symm_status symm__key_pmix(char *key) SYMM_MUST_CHECK; /* Open MPI's, too */
symm_status symm__key_pmi(char *key) SYMM_MUST_CHECK;
symm_status symm__key_slurm(char *key) SYMM_MUST_CHECK;
symm_status symm__key_process(char *key) SYMM_MUST_CHECK; /* a job of one */

#endif
