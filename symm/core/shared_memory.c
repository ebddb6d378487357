/* SPDX-License-Identifier: MIT */
/* shared_memory.c - sealed memfds, mapped into a reservation. */
#include "core/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"
#include "util/memory_room.h"
#include "util/status.h"
#include "util/streams.h"

#define GRANULARITY ((size_t)2 << 20)
#define LOOK        ((size_t)64 << 20) /* the machine's memory is looked at again so often */
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

symm_status symm__shared_reserve(size_t bytes, const char *what, void **base)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);

    if (at == MAP_FAILED)
        return symm__fail_errno(
            SYMM_ERR_NOMEM, errno,
            "reserving %zu bytes of address space for %s; ask for less, or raise "
            "ulimit -v",
            bytes, what);
    *base = at;
    return SYMM_OK;
}

void symm__shared_release(void *base, size_t bytes)
{
    munmap(base, bytes);
}

static symm_status map_shared(int fd, void *at, size_t bytes)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
        MAP_FAILED)
        return SYMM_OK;
    if (errno == EACCES || errno == EPERM)
        return symm__fail_errno(SYMM_ERR_REFUSED, errno,
                                "shared memory of %zu bytes may not be written to",
                                bytes);
    return symm__fail_errno(SYMM_ERR_NOMEM, errno, "mapping %zu bytes of shared memory",
                            bytes);
}

/*
 * No memfd is refused for want of memory: the kernel counts no page of it before it is there, and
 * then ends processes, any on the machine, to find the next one.
 */
static symm_status check_room(size_t left, size_t bytes)
{
    uint64_t available;

    if (symm__memory_fits(left, &available))
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_NOMEM,
        "allocating %zu bytes of shared memory: the machine has %llu bytes "
        "available for the %zu that are missing (MemAvailable and SwapFree of "
        "/proc/meminfo); ask for less, or end other programs",
        bytes, (unsigned long long)available, left);
}

/*
 * Pages for the segment from `begin` on, now. A signal interrupts the allocation and undoes what
 * this one call has done: in parts a program with a profiler's timer gets on too. Other ranks
 * may allocate at the same time, so the machine's memory is looked at again and again.
 */
static symm_status allocate(int fd, size_t begin, size_t bytes)
{
    size_t looked = 0;

    for (size_t at = begin; at < bytes;) {
        size_t part = bytes - at < GRANULARITY ? bytes - at : GRANULARITY;
        int error;

        if (at == begin || at - looked >= LOOK) {
            symm_status status = check_room(bytes - at, bytes);

            if (status != SYMM_OK)
                return status;
            looked = at;
        }
        error = posix_fallocate(fd, (off_t)at, (off_t)part);
        if (error == 0)
            at += part;
        else if (error != EINTR)
            return symm__fail_errno(
                SYMM_ERR_NOMEM, error,
                "allocating %zu bytes of shared memory; is the machine or the "
                "container's memory limit exhausted?",
                bytes);
    }
    return SYMM_OK;
}

static symm_status check_file_limit(size_t bytes)
{
    uint64_t limit;

    if (symm__file_size_fits(bytes, &limit))
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_NOMEM,
        "shared memory of %zu bytes is larger than the limit of a file's size, "
        "%llu bytes (RLIMIT_FSIZE): raise it ('ulimit -f unlimited')",
        bytes, (unsigned long long)limit);
}

symm_status symm__shared_create(void *at, size_t bytes, size_t unused, int *fd)
{
    symm_status status = check_file_limit(bytes);
    int made;

    if (status != SYMM_OK)
        return status;
    symm__streams_guard();
    made = memfd_create("symm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "memfd_create for shared memory");
    if (ftruncate(made, (off_t)bytes) != 0) {
        status = symm__fail_errno(SYMM_ERR_NOMEM, errno,
                                  "sizing shared memory of %zu bytes", bytes);
        goto err_close;
    }
    status = allocate(made, unused, bytes);
    if (status != SYMM_OK)
        goto err_close;
    if (fcntl(made, F_ADD_SEALS, SEALS) != 0) {
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "sealing shared memory");
        goto err_close;
    }
    status = map_shared(made, at, bytes);
    if (status != SYMM_OK)
        goto err_close;
    *fd = made;
    return SYMM_OK;

err_close:
    close(made);
    return status;
}

symm_status symm__shared_map(int fd, void *at, size_t bytes)
{
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0)
        return symm__fail_errno(SYMM_ERR_REFUSED, errno,
                                "a peer's segment is not a memfd (F_GET_SEALS)");
    if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
        return symm__fail(SYMM_ERR_REFUSED,
                          "a peer's segment could change its size (seals 0x%x)", seals);
    if (fstat(fd, &stat) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "fstat of a peer's segment");
    if (!S_ISREG(stat.st_mode) || stat.st_size != (off_t)bytes)
        return symm__fail(SYMM_ERR_REFUSED,
                          "a peer's segment has %lld bytes where %zu were announced",
                          (long long)stat.st_size, bytes);
    return map_shared(fd, at, bytes);
}

void symm__shared_unmap(void *at, size_t bytes)
{
    /*
     * Replacing keeps the range reserved. If even that fails the memory stays until
     * the reservation is released: a hole in it could become another mapping of the process.
     */
    if (mmap(at, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        symm__log(SYMM_LOG_DEBUG, "%zu bytes stay mapped until the context ends",
                  bytes);
}
