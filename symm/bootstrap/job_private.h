/* SPDX-License-Identifier: MIT */
/* job_private.h - how job_launcher.c and job_network.c read the variables of launchers. */
#ifndef SYMM_BOOTSTRAP_JOB_PRIVATE_H
#define SYMM_BOOTSTRAP_JOB_PRIVATE_H

#include <stdlib.h>

#include "bootstrap/job.h"

/* A launcher's variable; NULL if unset or empty. */
static inline const char *variable(const char *name)
{
    const char *value = secure_getenv(name);

    return value && *value ? value : NULL;
}

/* A variable that older launchers give another name. */
static inline const char *either(const char *name, const char *older)
{
    return variable(name) ? variable(name) : variable(older);
}

/* A decimal number in [low, high]: no sign, no space, nothing after it. */
symm_status symm__job_number(const char *name, int low, int high,
                             int *number) SYMM_MUST_CHECK;

/* job_network.c: from the environment. */
symm_status symm__job_read_secret(struct symm_job *job) SYMM_MUST_CHECK;
symm_status symm__job_read_root(struct symm_job *job) SYMM_MUST_CHECK;
symm_status symm__job_read_store(struct symm_job *job) SYMM_MUST_CHECK;

#endif
