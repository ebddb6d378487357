/* SPDX-License-Identifier: MIT */
/*
 * backend.c - the host backend: shared memory of the host (core/shared_memory.h) and streams
 * that are worker threads.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/shared_memory.h"
#include "host/host.h"
#include "util/status.h"

#define GRANULARITY ((size_t)2 << 20)
#define LINE        ((size_t)64)

struct symm_backend {
    size_t granularity;
};

static symm_status host_open(int local_rank, struct symm_backend **backend)
{
    struct symm_backend *b = calloc(1, sizeof(*b));

    (void)local_rank;
    if (!b)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the host backend");
    b->granularity = GRANULARITY;
    *backend = b;
    return SYMM_OK;
}

static symm_status host_open_owner(struct symm_backend *member,
                                   struct symm_backend **owner)
{
    (void)member;
    return host_open(0, owner);
}

static void host_close(struct symm_backend *backend)
{
    free(backend);
}

static symm_status host_count(int *count)
{
    *count = 0;
    return SYMM_OK;
}

static const struct symm_device_info *host_describe(const struct symm_backend *backend)
{
    (void)backend;
    return NULL;
}

static symm_status host_reachable(const struct symm_backend *backend, int rank,
                                  const struct symm_device_info *theirs, int peer)
{
    (void)backend, (void)rank, (void)theirs, (void)peer;
    return SYMM_OK;
}

static size_t host_granularity(const struct symm_backend *backend)
{
    return backend->granularity;
}

static symm_status host_reserve(struct symm_backend *backend, size_t bytes, void **base)
{
    (void)backend;
    return symm__shared_reserve(bytes, base);
}

static void host_release(struct symm_backend *backend, void *base, size_t bytes)
{
    (void)backend;
    symm__shared_release(base, bytes);
}

static symm_status host_share(struct symm_backend *backend, struct symm_backend *owner)
{
    (void)backend;
    (void)owner;
    return SYMM_OK;
}

static symm_status host_commit(struct symm_backend *backend, void *at, size_t bytes,
                               int *handle)
{
    (void)backend;
    return symm__shared_create(at, bytes, handle);
}

static symm_status host_import(struct symm_backend *backend, int handle, void *at,
                               size_t bytes)
{
    (void)backend;
    return symm__shared_map(handle, at, bytes);
}

static symm_status host_reach(struct symm_backend *backend, void *at, size_t bytes)
{
    (void)backend;
    (void)at;
    (void)bytes;
    return SYMM_OK;
}

static void host_unmap(struct symm_backend *backend, void *at, size_t bytes)
{
    (void)backend;
    symm__shared_unmap(at, bytes);
}

static symm_status host_mem_alloc(int device, size_t bytes, struct symm_mem *mem)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at;
    symm_status status;

    (void)device;
    mem->bytes = (bytes + page - 1) / page * page;
    status = symm__shared_reserve(mem->bytes, &at);
    if (status != SYMM_OK)
        return status;
    status = symm__shared_create(at, mem->bytes, &mem->fd);
    if (status != SYMM_OK)
        symm__shared_release(at, mem->bytes);
    mem->ptr = at;
    return status;
}

static void host_mem_free(struct symm_mem *mem)
{
    symm__shared_release(mem->ptr, mem->bytes);
    close(mem->fd);
}

static symm_status host_local_alloc(struct symm_backend *backend, size_t bytes,
                                    void **memory)
{
    size_t whole = (bytes + LINE - 1) / LINE * LINE;
    void *made = aligned_alloc(LINE, whole);

    (void)backend;
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %zu bytes", bytes);
    memset(made, 0, whole);
    *memory = made;
    return SYMM_OK;
}

static void host_local_free(struct symm_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

const struct symm_backend_ops symm__backend_host = {
    .size = sizeof(struct symm_backend_ops),
    .name = "host",
    .count = host_count,
    .open = host_open,
    .open_owner = host_open_owner,
    .close = host_close,
    .granularity = host_granularity,
    .describe = host_describe,
    .reachable = host_reachable,
    .reserve = host_reserve,
    .release = host_release,
    .share = host_share,
    .commit = host_commit,
    .import = host_import,
    .reach = host_reach,
    .unmap = host_unmap,
    .mem_alloc = host_mem_alloc,
    .mem_free = host_mem_free,
    .local_alloc = host_local_alloc,
    .local_free = host_local_free,
    .stream_create = symm__queue_create,
    .stream_destroy = symm__queue_destroy,
    .stream_drain = symm__queue_drain,
    .stream_is_own = symm__queue_is_own,
    .stream_push = symm__queue_push,
    .stream_synchronize = symm__queue_synchronize,
};
