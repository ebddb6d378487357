/* SPDX-License-Identifier: MIT */
/*
 * backend.c - the host backend: shared memory of the host (core/shared_memory.h) and streams
 * that are worker threads.
 */
#include <errno.h>
#include <fcntl.h>
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
    return symm__shared_reserve(bytes, "all ranks' heaps (SYMM_HEAP_BYTES)", base);
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
                               size_t unused, int *handle)
{
    (void)backend;
    return symm__shared_create(at, bytes, unused, handle);
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

/* ---- Memory of the caller -------------------------------------------------------- */

static symm_status host_run_take(struct symm_backend *backend, void *ptr, size_t bytes,
                                 const struct symm_mem *mem, struct symm_own_run *own)
{
    int fd;

    (void)backend;
    if (!mem || mem->fd < 0)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_buffer_register: the host backend cannot give peers a "
                          "private mapping "
                          "(%zu bytes at %p); allocate by symm_mem_alloc or "
                          "symm_empty_strided_p2p, or "
                          "pass the pointer as it is: collectives stage it",
                          bytes, ptr);
    if (bytes > mem->bytes - (size_t)((char *)ptr - mem->ptr))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_buffer_register: %zu bytes at %p leave their allocation "
            "of %zu bytes",
            bytes, ptr, mem->bytes);
    fd = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "symm_buffer_register: a descriptor of %zu bytes at %p",
                                bytes, ptr);
    own->run = (struct symm_run){.base = (uintptr_t)mem->ptr,
                                 .bytes = mem->bytes,
                                 .id = mem->id,
                                 .chunks = 1,
                                 .kind = SYMM_RUN_DESCRIPTORS,
                                 .chunk = {mem->bytes}};
    own->fds[0] = fd;
    return SYMM_OK;
}

static void host_run_give(struct symm_backend *backend, struct symm_own_run *own)
{
    (void)backend;
    if (own->fds[0] >= 0)
        close(own->fds[0]);
}

static symm_status host_run_open(struct symm_backend *backend,
                                 const struct symm_run *run, const int *fds,
                                 const uint8_t *token, void **at)
{
    symm_status status;

    (void)backend, (void)token;
    if (run->chunks != 1 || run->kind != SYMM_RUN_DESCRIPTORS)
        return symm__fail(
            SYMM_ERR_REFUSED,
            "a peer's registered memory comes in %u parts; on the host it "
            "has one",
            run->chunks);
    status = symm__shared_reserve(run->bytes, "a peer's registered memory", at);
    if (status != SYMM_OK)
        return status;
    status = symm__shared_map(fds[0], *at, run->bytes);
    if (status != SYMM_OK)
        symm__shared_release(*at, run->bytes);
    return status;
}

static void host_run_close(struct symm_backend *backend, const struct symm_run *run,
                           void *at)
{
    (void)backend;
    symm__shared_release(at, run->bytes);
}

static symm_status host_run_reach(struct symm_backend *backend,
                                  const struct symm_run *run)
{
    (void)backend, (void)run;
    return SYMM_OK;
}

static symm_status host_mem_alloc(int device, size_t bytes, struct symm_mem *mem)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at;
    symm_status status;

    (void)device;
    mem->bytes = (bytes + page - 1) / page * page;
    status = symm__shared_reserve(mem->bytes, "symm_mem_alloc", &at);
    if (status != SYMM_OK)
        return status;
    status = symm__shared_create(at, mem->bytes, 0, &mem->fd);
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
    .run_take = host_run_take,
    .run_give = host_run_give,
    .run_open = host_run_open,
    .run_close = host_run_close,
    .run_reach = host_run_reach,
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
