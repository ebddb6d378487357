/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl_memory.c - memory and windows that are registered with the fake NCCL.
 *
 * Errors that end the program: memory registered twice, or freed before it is deregistered; windows
 * that the ranks make in different order.
 */
#include "fake_nccl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/clock.h"

static struct fake_piece *piece_add(struct fake_piece **list, void *at, size_t bytes,
                                    const char *symbol)
{
    struct fake_piece *piece;

    for (piece = *list; piece; piece = piece->next)
        if ((char *)at < piece->at + piece->bytes && piece->at < (char *)at + bytes)
            fake_nccl_die("%s: [%p, +%zu) is registered already", symbol, at, bytes);
    piece = calloc(1, sizeof(*piece));
    if (!piece)
        fake_nccl_die("no memory");
    piece->at = at;
    piece->bytes = bytes;
    piece->next = *list;
    *list = piece;
    return piece;
}

/* Memory that is gone cannot be read by the kernel either. */
static bool is_there(const char *at)
{
    int ends[2];
    bool there;

    if (pipe2(ends, O_CLOEXEC) != 0)
        fake_nccl_die("no pipe");
    there = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return there;
}

static void piece_remove(struct fake_piece **list, void *handle, const char *symbol)
{
    struct fake_piece *piece;

    while (*list && *list != handle)
        list = &(*list)->next;
    piece = *list;
    if (!piece)
        fake_nccl_die("%s: %p is not registered", symbol, handle);
    if (!is_there(piece->at))
        fake_nccl_die("%s: [%p, +%zu) was freed before", symbol, (void *)piece->at,
                      piece->bytes);
    *list = piece->next;
    free(piece);
}

FAKE_API int ncclCommRegister(void *given, void *at, size_t bytes, void **handle);
FAKE_API int ncclCommRegister(void *given, void *at, size_t bytes, void **handle)
{
    struct fake_comm *comm = fake_nccl_use_ready(given, "ncclCommRegister");

    if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclCommRegister", comm->rank))
        return SYSTEM_ERROR;
    pthread_mutex_lock(&fake_nccl_mutex);
    *handle = piece_add(&comm->registered, at, bytes, "ncclCommRegister");
    pthread_mutex_unlock(&fake_nccl_mutex);
    return 0;
}

FAKE_API int ncclCommDeregister(void *given, void *handle);
FAKE_API int ncclCommDeregister(void *given, void *handle)
{
    struct fake_comm *comm = fake_nccl_use(given, "ncclCommDeregister");

    pthread_mutex_lock(&fake_nccl_mutex);
    piece_remove(&comm->registered, handle, "ncclCommDeregister");
    pthread_mutex_unlock(&fake_nccl_mutex);
    return 0;
}

static bool is_inside(const struct fake_piece *list, const char *at, size_t bytes)
{
    for (; list; list = list->next)
        if (at >= list->at && at + bytes <= list->at + list->bytes)
            return true;
    return false;
}

static bool is_one_allocation(const char *at, size_t bytes)
{
    int (*find)(unsigned long long *, size_t *, unsigned long long) =
        (int (*)(unsigned long long *, size_t *, unsigned long long))fake_nccl_driver(
            "cuMemGetAddressRange_v2");
    unsigned long long base;
    size_t all;

    return find(&base, &all, (uintptr_t)at) == 0 && (uintptr_t)at + bytes <= base + all;
}

bool fake_nccl_is_registered(const struct fake_comm *comm, const char *at, size_t bytes,
                             bool captured)
{
    bool found;

    pthread_mutex_lock(&fake_nccl_mutex);
    found =
        is_inside(comm->registered, at, bytes) || is_inside(comm->windows, at, bytes);
    pthread_mutex_unlock(&fake_nccl_mutex);
    return found || (captured && is_one_allocation(at, bytes));
}

/* Waits for the peers' registration with the same number. */
static void meet_window(struct fake_comm *comm, size_t bytes)
{
    struct fake_shared *shared = comm->shared;
    uint64_t number = atomic_load(&shared->window[comm->rank].made) + 1;

    shared->window[comm->rank].bytes = bytes;
    atomic_store(&shared->window[comm->rank].made, number);
    for (int r = 0; r < comm->size; r++) {
        for (int i = 0; atomic_load(&shared->window[r].made) < number; i++) {
            if (i > 10000 * SECONDS)
                fake_nccl_die("ncclCommWindowRegister: rank %d does not come", r);
            if (atomic_load(&comm->abort))
                return;
            symm__sleep(FAKE_NCCL_PAUSE);
        }
        if (atomic_load(&shared->window[r].made) == number &&
            shared->window[r].bytes != bytes)
            fake_nccl_die(
                "ncclCommWindowRegister: window %llu has %zu bytes on rank %d "
                "and %llu on rank %d: not the same order",
                (unsigned long long)number, bytes, comm->rank,
                (unsigned long long)shared->window[r].bytes, r);
    }
}

FAKE_API int ncclCommWindowRegister(void *given, void *at, size_t bytes, void **handle,
                                    int flags);
FAKE_API int ncclCommWindowRegister(void *given, void *at, size_t bytes, void **handle,
                                    int flags)
{
    struct fake_comm *comm = fake_nccl_use_ready(given, "ncclCommWindowRegister");

    if (flags != SYMM_NCCL_SYMMETRIC)
        fake_nccl_die("ncclCommWindowRegister: flags %d", flags);
    fake_nccl_enter(comm, "ncclCommWindowRegister");
    meet_window(comm, bytes);
    if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclCommWindowRegister", comm->rank) ||
        atomic_load(&comm->abort))
        return fake_nccl_leave(comm, SYSTEM_ERROR);
    pthread_mutex_lock(&fake_nccl_mutex);
    *handle = piece_add(&comm->windows, at, bytes, "ncclCommWindowRegister");
    pthread_mutex_unlock(&fake_nccl_mutex);
    return fake_nccl_leave(comm, 0);
}

FAKE_API int ncclCommWindowDeregister(void *given, void *handle);
FAKE_API int ncclCommWindowDeregister(void *given, void *handle)
{
    struct fake_comm *comm = fake_nccl_use(given, "ncclCommWindowDeregister");

    pthread_mutex_lock(&fake_nccl_mutex);
    piece_remove(&comm->windows, handle, "ncclCommWindowDeregister");
    pthread_mutex_unlock(&fake_nccl_mutex);
    return 0;
}
