/* SPDX-License-Identifier: MIT */
/*
 * none.c - the CUDA backend of a build without it: opening it is an error with a sentence.
 */
#include <stdio.h>

#include "cuda/backend.h"
#include "cuda/report.h"
#include "util/status.h"

static symm_status refuse(void)
{
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "this build of libsymm has no CUDA backend: cuda.h was not found "
                      "when it was made");
}

static symm_status none_count(int *count)
{
    (void)count;
    return refuse();
}

static symm_status none_open(int local_rank, struct symm_backend **backend)
{
    (void)local_rank;
    (void)backend;
    return refuse();
}

static symm_status none_mem_alloc(int device, size_t bytes, struct symm_mem *mem)
{
    (void)device, (void)bytes, (void)mem;
    return refuse();
}

/* No object is ever made, so that no other function of the table can be called. */
const struct symm_backend_ops symm__backend_cuda = {
    .size = sizeof(struct symm_backend_ops),
    .name = "cuda",
    .count = none_count,
    .open = none_open,
    .mem_alloc = none_mem_alloc,
};

void symm__cuda_report(struct symm_cuda_report *report, bool probe)
{
    (void)probe;
    if (refuse() != SYMM_OK)
        snprintf(report->why, sizeof(report->why), "%s", symm_last_error());
}
