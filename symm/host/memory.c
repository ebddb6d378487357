/* SPDX-License-Identifier: MIT */
/*
 * memory.c - memory of the host backend: sealed memfds mapped into a reservation.
 *
 * Guarantees: memory is allocated when it is committed (no SIGBUS later where the machine is
 * full), cannot be shrunk under a peer (seals), and is gone with the last process that maps
 * it, however that ends; nothing has a name in a file system.
 * Refuses: descriptors that are not sealed memfds of exactly the announced size.
 */
#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"
#include "util/status.h"

#define GRANULARITY ((size_t)2 << 20)
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

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

static size_t host_granularity(const struct symm_backend *backend)
{
    return backend->granularity;
}

static symm_status host_reserve(struct symm_backend *backend, size_t bytes, void **base)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);

    (void)backend;
    if (at == MAP_FAILED)
        return symm__fail_errno(
            SYMM_ERR_NOMEM, errno,
            "reserving %zu bytes of address space for all ranks' heaps; "
            "try a smaller SYMM_HEAP_BYTES or raise ulimit -v",
            bytes);
    *base = at;
    return SYMM_OK;
}

static void host_release(struct symm_backend *backend, void *base, size_t bytes)
{
    (void)backend;
    munmap(base, bytes);
}

static symm_status host_share(struct symm_backend *backend, struct symm_backend *owner)
{
    (void)backend;
    (void)owner;
    return SYMM_OK;
}

static symm_status map_shared(int fd, void *at, size_t bytes)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
        MAP_FAILED)
        return SYMM_OK;
    if (errno == EACCES || errno == EPERM)
        return symm__fail_errno(SYMM_ERR_REFUSED, errno,
                                "a segment of %zu bytes may not be written to", bytes);
    return symm__fail_errno(SYMM_ERR_NOMEM, errno, "mapping %zu bytes of a segment",
                            bytes);
}

/*
 * Pages for the whole segment, now. A signal interrupts the allocation and undoes what
 * this one call has done: in parts a program with a profiler's timer gets on too.
 */
static int allocate(int fd, size_t bytes)
{
    int error = 0;

    for (size_t at = 0; at < bytes && (error == 0 || error == EINTR);) {
        size_t part = bytes - at < GRANULARITY ? bytes - at : GRANULARITY;

        error = posix_fallocate(fd, (off_t)at, (off_t)part);
        if (error == 0)
            at += part;
    }
    return error;
}

/*
 * Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ, whose default action ends the process,
 * instead of an error alone.
 */
static symm_status check_file_limit(size_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_NOMEM,
        "a segment of %zu bytes is larger than the limit of a file's size, "
        "%llu bytes (RLIMIT_FSIZE): raise it ('ulimit -f unlimited')",
        bytes, (unsigned long long)limit.rlim_cur);
}

static symm_status host_commit(struct symm_backend *backend, void *at, size_t bytes,
                               int *handle)
{
    symm_status status = check_file_limit(bytes);
    int fd, error;

    (void)backend;
    if (status != SYMM_OK)
        return status;
    fd = memfd_create("symm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "memfd_create for a segment");
    if (ftruncate(fd, (off_t)bytes) != 0) {
        status = symm__fail_errno(SYMM_ERR_NOMEM, errno,
                                  "sizing a segment of %zu bytes", bytes);
        goto err_close;
    }
    error = allocate(fd, bytes);
    if (error) {
        status =
            symm__fail_errno(SYMM_ERR_NOMEM, error,
                             "allocating a segment of %zu bytes; is the machine or the "
                             "container's memory limit exhausted?",
                             bytes);
        goto err_close;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "sealing a segment");
        goto err_close;
    }
    status = map_shared(fd, at, bytes);
    if (status != SYMM_OK)
        goto err_close;
    *handle = fd;
    return SYMM_OK;

err_close:
    close(fd);
    return status;
}

static symm_status host_import(struct symm_backend *backend, int handle, void *at,
                               size_t bytes)
{
    struct stat stat;
    int seals = fcntl(handle, F_GET_SEALS);

    (void)backend;
    if (seals < 0)
        return symm__fail_errno(SYMM_ERR_REFUSED, errno,
                                "a peer's segment is not a memfd (F_GET_SEALS)");
    if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
        return symm__fail(SYMM_ERR_REFUSED,
                          "a peer's segment could change its size (seals 0x%x)", seals);
    if (fstat(handle, &stat) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "fstat of a peer's segment");
    if (!S_ISREG(stat.st_mode) || stat.st_size != (off_t)bytes)
        return symm__fail(SYMM_ERR_REFUSED,
                          "a peer's segment has %lld bytes where %zu were announced",
                          (long long)stat.st_size, bytes);
    return map_shared(handle, at, bytes);
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
    /*
     * Replacing keeps the range reserved. If even that fails the memory stays until
     * the reservation is released: a hole in it could become somebody else's mapping.
     */
    if (mmap(at, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        symm__log(SYMM_LOG_DEBUG, "%zu bytes stay mapped until the context ends",
                  bytes);
}

static void host_handle_close(struct symm_backend *backend, int handle)
{
    (void)backend;
    if (handle >= 0)
        close(handle);
}

static symm_status host_stream_create(struct symm_backend *backend,
                                      struct symm_stream **stream)
{
    (void)backend;
    return symm__queue_create(stream);
}

static void host_stream_destroy(struct symm_backend *backend,
                                struct symm_stream *stream)
{
    (void)backend;
    symm__queue_destroy(stream);
}

static void host_stream_drain(struct symm_backend *backend, struct symm_stream *stream)
{
    (void)backend;
    symm__queue_drain(stream);
}

static void host_stream_push(struct symm_backend *backend, struct symm_stream *stream,
                             struct symm_task *task)
{
    (void)backend;
    symm__queue_push(stream, task);
}

static symm_status host_stream_synchronize(struct symm_backend *backend,
                                           struct symm_stream *stream, double seconds)
{
    (void)backend;
    return symm__queue_synchronize(stream, seconds);
}

const struct symm_backend_ops symm__backend_host = {
    .size = sizeof(struct symm_backend_ops),
    .name = "host",
    .open = host_open,
    .open_owner = host_open_owner,
    .close = host_close,
    .granularity = host_granularity,
    .reserve = host_reserve,
    .release = host_release,
    .share = host_share,
    .commit = host_commit,
    .import = host_import,
    .reach = host_reach,
    .unmap = host_unmap,
    .handle_close = host_handle_close,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_drain = host_stream_drain,
    .stream_is_own = symm__queue_is_own,
    .stream_push = host_stream_push,
    .stream_synchronize = host_stream_synchronize,
};
