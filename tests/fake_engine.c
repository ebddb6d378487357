/* SPDX-License-Identifier: MIT */
/*
 * fake_engine.c - an engine plug-in (engine.h) for host memory, over a file that all ranks of
 * one machine map. Suites of teams over several hosts load it.
 *
 * A communicator is a file in the folder SYMM_FAKE_ENGINE_DIR, named by its id, with a slot
 * for each rank. Every collective gathers: each rank writes a part of its bytes, barrier,
 * each rank reads what it needs, barrier. The last rank that maps the file removes its name.
 * Waits obey the contract of engine.h. A suite that includes this file may define
 * FAKE_ENGINE_IS_CUT(rank, other): whether these ranks of the world cannot reach each other now.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/engine.h"
#include "util/clock.h"
#include "util/status.h"

#define RANKS_MAX  512
#define SLOT_BYTES 65536

struct shared {
    _Atomic uint32_t arrived, round, mapped, aborted;
    char slot[RANKS_MAX][SLOT_BYTES];
};

struct symm_engine {
    char folder[200];
};

struct symm_engine_comm {
    struct shared *shared;
    int rank, size;
    int world_rank[RANKS_MAX];
    char path[256];
};

static symm_status fake_open(struct symm_engine **engine)
{
    const char *folder = getenv("SYMM_FAKE_ENGINE_DIR");
    struct symm_engine *e = calloc(1, sizeof(*e));

    if (!folder || !e) {
        free(e);
        return symm__fail(SYMM_ERR_UNSUPPORTED, "SYMM_FAKE_ENGINE_DIR is not set");
    }
    snprintf(e->folder, sizeof(e->folder), "%s", folder);
    *engine = e;
    return SYMM_OK;
}

static void fake_close(struct symm_engine *engine)
{
    free(engine);
}

static const char *fake_version(const struct symm_engine *engine)
{
    (void)engine;
    return "fake 1";
}

static symm_status fake_id(struct symm_engine *engine, struct symm_engine_id *id)
{
    (void)engine;
    memset(id, 0, sizeof(*id));
    return getrandom(id->bytes, 16, 0) == 16
               ? SYMM_OK
               : symm__fail_errno(SYMM_ERR_SYSTEM, errno, "random bytes");
}

#ifndef FAKE_ENGINE_IS_CUT
#define FAKE_ENGINE_IS_CUT(rank, other) false
#endif

static bool is_cut(const struct symm_engine_comm *comm)
{
    for (int r = 0; r < comm->size; r++)
        if (FAKE_ENGINE_IS_CUT(comm->world_rank[comm->rank], comm->world_rank[r]))
            return true;
    return false;
}

/* All ranks; ends by the deadline, stop, or an abort of any rank. */
static symm_status meet(struct symm_engine_comm *comm,
                        const struct symm_engine_wait *wait)
{
    struct shared *s = comm->shared;
    uint32_t round = atomic_load(&s->round);
    bool come = false;
    symm_status status;

    while (atomic_load(&s->round) == round) {
        if (!come && !is_cut(comm)) {
            come = true;
            if (atomic_fetch_add(&s->arrived, 1) + 1 == (uint32_t)comm->size) {
                atomic_store(&s->arrived, 0);
                atomic_fetch_add(&s->round, 1);
                return SYMM_OK;
            }
        }
        if (atomic_load(&s->aborted))
            return symm__fail(SYMM_ERR_ABORTED, "a rank has aborted the communicator");
        status = wait->stop ? wait->stop(wait->stop_arg) : SYMM_OK;
        if (status != SYMM_OK)
            return status;
        if (symm__now() > wait->until)
            return symm__fail(SYMM_ERR_TIMEOUT, "ranks are missing at the deadline");
        symm__sleep(2e-5);
    }
    return SYMM_OK;
}

static symm_status fake_create(struct symm_engine *engine,
                               const struct symm_engine_id *id, int rank, int size,
                               const int *world_rank,
                               const struct symm_engine_wait *wait,
                               struct symm_engine_comm **made)
{
    struct symm_engine_comm *comm = calloc(1, sizeof(*comm));
    size_t used;
    void *at;
    int fd;
    symm_status status;

    if (!comm)
        return symm__fail(SYMM_ERR_NOMEM, "no memory");
    comm->rank = rank;
    comm->size = size;
    memcpy(comm->world_rank, world_rank, (size_t)size * sizeof(int));
    used = (size_t)snprintf(comm->path, sizeof(comm->path), "%s/", engine->folder);
    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(comm->path + used, sizeof(comm->path) - used, "%02x",
                                 id->bytes[i]);
    fd = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) {
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s", comm->path);
        if (fd >= 0)
            close(fd);
        free(comm);
        return status;
    }
    at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "mapping %s", comm->path);
        free(comm);
        return status;
    }
    comm->shared = at;
    if (atomic_fetch_add(&comm->shared->mapped, 1) + 1 == (uint32_t)size)
        unlink(comm->path);
    status = meet(comm, wait);
    if (status != SYMM_OK) {
        munmap(at, sizeof(struct shared));
        free(comm);
        return status;
    }
    *made = comm;
    return SYMM_OK;
}

static void fake_abort(struct symm_engine_comm *comm)
{
    atomic_store(&comm->shared->aborted, 1);
}

static void fake_destroy(struct symm_engine_comm *comm)
{
    if (!comm)
        return;
    munmap(comm->shared, sizeof(*comm->shared));
    free(comm);
}

static symm_status fake_error(struct symm_engine_comm *comm)
{
    return atomic_load(&comm->shared->aborted)
               ? symm__fail(SYMM_ERR_ABORTED, "a rank has aborted the communicator")
               : SYMM_OK;
}

static const char *fake_objection(const struct symm_engine *engine,
                                  const struct symm_engine_request *request)
{
    (void)engine;
    return request->what == SYMM_ENGINE_COLLECTIVE && request->kind != SYMM_KIND_BARRIER
               ? NULL
               : "the fake engine has collectives with data only";
}

/* Which part of my input rank p needs, in blocks of count; -1: nothing. */
struct shape {
    size_t blocks_in; /* that a rank shows */
    bool reduces;
};

static struct shape shape_of(const struct symm_engine_request *rq, int size)
{
    bool each =
        rq->kind == SYMM_KIND_REDUCE_SCATTER || rq->kind == SYMM_KIND_ALL_TO_ALL;

    return (struct shape){.blocks_in = each ? (size_t)size : 1,
                          .reduces = rq->kind == SYMM_KIND_ALL_REDUCE ||
                                     rq->kind == SYMM_KIND_REDUCE_SCATTER};
}

/* Elements [first, first + n) of block b of all ranks lie in the slots. */
static void take(const struct symm_engine_comm *comm,
                 const struct symm_engine_request *rq, size_t b, size_t first, size_t n)
{
    size_t element = symm_dtype_size(rq->dtype), block = rq->count * element;
    size_t at = first * element, bytes = n * element;
    const void *src[RANKS_MAX];
    char *out = rq->out;
    void *dst = out + at;

    for (int r = 0; r < comm->size; r++)
        src[r] = comm->shared->slot[r];
    switch (rq->kind) {
    case SYMM_KIND_REDUCE_SCATTER:
        if (b != (size_t)comm->rank)
            return;
        /* fall through */
    case SYMM_KIND_ALL_REDUCE:
        symm__reduce_find(SYMM_ISA_C, rq->dtype, rq->op)(&dst, 1, src, comm->size, n);
        return;
    case SYMM_KIND_ALL_GATHER:
        for (int r = 0; r < comm->size; r++)
            memcpy(out + (size_t)r * block + at, src[r], bytes);
        return;
    case SYMM_KIND_BROADCAST:
        memcpy(dst, src[rq->root], bytes);
        return;
    default:
        if (b == (size_t)comm->rank)
            for (int r = 0; r < comm->size; r++)
                memcpy(out + (size_t)r * block + at, src[r], bytes);
    }
}

static symm_status fake_run(struct symm_engine_comm *comm,
                            const struct symm_engine_request *rq, int count,
                            void *stream, const struct symm_engine_wait *wait)
{
    size_t element = symm_dtype_size(rq->dtype), most = SLOT_BYTES / element;
    struct shape shape = shape_of(rq, comm->size);
    bool shows = rq->kind != SYMM_KIND_BROADCAST || comm->rank == rq->root;
    size_t all = shape.blocks_in * rq->count * element;
    char *copy = malloc(all + 1); /* in place: what is shown later is still needed */
    symm_status status = SYMM_OK;

    (void)count, (void)stream;
    if (!copy)
        return symm__fail(SYMM_ERR_NOMEM, "no memory");
    if (shows)
        memcpy(copy, rq->in, all);
    for (size_t b = 0; status == SYMM_OK && b < shape.blocks_in; b++)
        for (size_t first = 0; status == SYMM_OK && first < rq->count; first += most) {
            size_t n = rq->count - first < most ? rq->count - first : most;

            if (shows)
                memcpy(comm->shared->slot[comm->rank],
                       copy + (b * rq->count + first) * element, n * element);
            status = meet(comm, wait);
            if (status == SYMM_OK)
                take(comm, rq, b, first, n);
            if (status == SYMM_OK)
                status = meet(comm, wait);
        }
    free(copy);
    return status;
}

static symm_status no_memory(struct symm_engine_comm *comm, void *ptr, size_t bytes,
                             void **handle)
{
    (void)comm, (void)ptr, (void)bytes;
    *handle = comm;
    return SYMM_OK;
}

static void no_forget(struct symm_engine_comm *comm, void *handle)
{
    (void)comm, (void)handle;
}

static symm_status no_bootstrap(struct symm_engine *engine, symm_bootstrap *bootstrap)
{
    (void)engine, (void)bootstrap;
    return symm__fail(SYMM_ERR_UNSUPPORTED, "the fake engine does not start jobs");
}

extern const struct symm_engine_ops symm_engine;
__attribute__((visibility("default"))) const struct symm_engine_ops symm_engine = {
    .size = sizeof(symm_engine),
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .version = fake_version,
    .id_create = fake_id,
    .comm_create = fake_create,
    .comm_abort = fake_abort,
    .comm_destroy = fake_destroy,
    .comm_error = fake_error,
    .objection = fake_objection,
    .run = fake_run,
    .memory_register = no_memory,
    .memory_deregister = no_forget,
    .window_register = no_memory,
    .window_deregister = no_forget,
    .bootstrap = no_bootstrap,
    .last_error = symm_last_error,
};
