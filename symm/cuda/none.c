/* SPDX-License-Identifier: MIT */
/*
 * none.c - the CUDA backend of a build without it: asking for it is an error in words.
 */
#include <stdio.h>

#include "core/register.h"
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

symm_status symm__cuda_multicast_share(symm_team *team, double deadline)
{
    (void)team;
    (void)deadline;
    return SYMM_OK;
}

symm_status symm__cuda_tokens_share(symm_team *team, double deadline)
{
    (void)team;
    (void)deadline;
    return SYMM_OK;
}

void symm__cuda_abort(symm_team *team, symm_status status)
{
    (void)team, (void)status;
}

symm_status symm__cuda_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                              void *arg)
{
    (void)ctx;
    (void)last;
    return fn(arg);
}

void *symm__cuda_multicast_at(const symm_team *team, size_t offset, size_t bytes)
{
    (void)team;
    (void)offset;
    (void)bytes;
    return NULL;
}

symm_status symm__register_add(symm_team *team, void *ptr, size_t bytes,
                               symm_buffer *buffer)
{
    (void)team;
    (void)ptr;
    (void)bytes;
    (void)buffer;
    return refuse();
}

void symm__register_remove(symm_buffer *buffer)
{
    (void)buffer;
}

symm_status symm__register_pack(const symm_team *team, void **bytes, size_t *count,
                                int **fds, int *fds_count)
{
    (void)team;
    *bytes = NULL;
    *count = 0;
    *fds = NULL;
    *fds_count = 0;
    return SYMM_OK;
}

/* A peer that sends registrations is no peer of the host backend. */
symm_status symm__register_map(symm_team *team, int member, const void *bytes,
                               size_t count, const int *fds, int fds_count)
{
    (void)bytes;
    (void)count;
    (void)fds;
    (void)fds_count;
    return symm__fail(SYMM_ERR_REFUSED,
                      "rank %d sent registered memory, which this build has not",
                      team->world_rank[member]);
}

symm_status symm__register_check(const symm_team *team)
{
    (void)team;
    return SYMM_OK;
}

void symm__register_undo(symm_team *team)
{
    (void)team;
}

void symm__register_done(symm_team *team)
{
    (void)team;
}

void symm__register_close(symm_team *team)
{
    (void)team;
}

void *symm__register_ptr(const symm_buffer *buffer, int peer)
{
    (void)buffer;
    (void)peer;
    return NULL;
}

bool symm__registered_peer(symm_team *team, const void *ptr, size_t bytes, int peer,
                           void **theirs)
{
    (void)team;
    (void)ptr;
    (void)bytes;
    (void)peer;
    (void)theirs;
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

symm_status symm__cuda_host_alloc(symm_ctx *ctx, size_t bytes, void **memory)
{
    (void)ctx;
    (void)bytes;
    (void)memory;
    return refuse();
}

void symm__cuda_host_free(symm_ctx *ctx, void *memory)
{
    (void)ctx;
    (void)memory;
}

symm_status symm__cuda_fill(symm_ctx *ctx, void *memory, int byte, size_t bytes)
{
    (void)ctx;
    (void)memory;
    (void)byte;
    (void)bytes;
    return refuse();
}

symm_status symm__cuda_copy(symm_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    (void)dst;
    (void)src;
    (void)bytes;
    return refuse();
}

symm_status symm__cuda_function(symm_ctx *ctx, const struct symm_cuda_kernel *kernel,
                                void **function)
{
    (void)ctx;
    (void)kernel;
    (void)function;
    return refuse();
}

symm_status symm__cuda_team_open(symm_team *team)
{
    (void)team;
    return refuse();
}

void symm__cuda_team_close(symm_team *team)
{
    (void)team;
}

void symm__cuda_ending(symm_ctx *ctx, bool begins)
{
    (void)ctx;
    (void)begins;
}

symm_status symm__cuda_team_poll(symm_team *team)
{
    (void)team;
    return SYMM_OK;
}
