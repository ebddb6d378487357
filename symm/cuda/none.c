/* SPDX-License-Identifier: MIT */
/*
 * none.c - the CUDA backend of a build without it: asking for it is an error in words.
 */
#include <stdio.h>

#include "cuda/parts.h"
#include "cuda/report.h"
#include "util/status.h"

static symm_status refuse(void)
{
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "this build of libsymm has no CUDA backend: cuda.h was not found "
                      "when it was made");
}

static symm_status none_open(int local_rank, struct symm_backend **backend)
{
    (void)local_rank;
    (void)backend;
    return refuse();
}

/* No object was ever made: nothing else of the table is called. */
const struct symm_backend_ops symm__backend_cuda = {
    .size = sizeof(struct symm_backend_ops),
    .name = "cuda",
    .open = none_open,
};

const struct symm_cuda_device *symm__cuda_device(const symm_ctx *ctx)
{
    (void)ctx;
    return NULL;
}

symm_status symm__cuda_count(int *count)
{
    (void)count;
    return refuse();
}

symm_status symm__cuda_reachable(const symm_ctx *ctx, const uint8_t uuid[16],
                                 const char *bus, int rank)
{
    (void)ctx;
    (void)uuid;
    (void)bus;
    (void)rank;
    return refuse();
}

void symm__cuda_report(struct symm_cuda_report *report, bool probe)
{
    (void)probe;
    if (refuse() != SYMM_OK)
        snprintf(report->why, sizeof(report->why), "%s", symm_last_error());
}

bool symm__cuda_multicast_wanted(const symm_ctx *ctx)
{
    (void)ctx;
    return false;
}

symm_status symm__cuda_local_alloc(symm_ctx *ctx, size_t bytes, void **memory)
{
    (void)ctx;
    (void)bytes;
    (void)memory;
    return refuse();
}

void symm__cuda_local_free(symm_ctx *ctx, void *memory)
{
    (void)ctx;
    (void)memory;
}
