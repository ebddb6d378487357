/* SPDX-License-Identifier: MIT */
/*
 * nccl.c - NCCL as an engine: opened at run time, never linked.
 *
 * Communicators are made non-blocking, and every answer "in progress" is waited for with a
 * deadline: so no call of NCCL can hold a rank for ever. A communicator that does not come
 * about, or whose operation must end, is aborted. The library stays loaded: it has threads of
 * its own. Variables of NCCL (NCCL_NVLS_ENABLE and its kin) are the user's and are not
 * touched.
 *
 * One call at a time runs on a communicator (`lock`), but for the abort, which waits for that
 * call for a moment only and then goes ahead, as NCCL allows.
 *
 * Refuses: NCCL older than 2.18; reductions of float8 before 2.24.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/nccl.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#define POLL_SECONDS  0.0002
#define SPIN_SECONDS  0.002
#define ABORT_SECONDS 1.0 /* that an abort waits for a call under way */
#define END_SECONDS   2.0 /* that a destruction waits for the peers' quiet */

/* ---- Loading --------------------------------------------------------------------- */

static const char *find_functions(struct symm_nccl *nccl, void *library)
{
    static const struct {
        const char *symbol;
        int since;
        size_t member;
    } entries[] = {
#define SYMM_NCCL_ENTRY(member, symbol, since, arguments)                              \
    {symbol, since, offsetof(struct symm_nccl, member)},
        SYMM_NCCL_MAP(SYMM_NCCL_ENTRY)
#undef SYMM_NCCL_ENTRY
            {"ncclGetErrorString", 0, offsetof(struct symm_nccl, error_string)},
        {"ncclGetLastError", 0, offsetof(struct symm_nccl, last_error)},
    };

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *found = dlsym(library, entries[i].symbol);

        /* dlsym returns void *; POSIX allows copying it into a function pointer. */
        memcpy((char *)nccl + entries[i].member, &found, sizeof(found));
        if (!found && (entries[i].since == 0 || entries[i].since <= nccl->version))
            return entries[i].symbol;
        if (i == 0 && nccl->get_version(&nccl->version) != SYMM_NCCL_SUCCESS)
            return entries[i].symbol;
    }
    return NULL;
}

static symm_status nccl_open(struct symm_engine **engine)
{
    const char *path = symm__option(SYMM_OPTION_NCCL_LIB), *missing, *reason;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct symm_engine *e;

    if (!library) {
        reason = dlerror();
        return symm__fail_quiet(SYMM_ERR_UNSUPPORTED,
                                reason ? reason : "NCCL does not load (SYMM_NCCL_LIB)");
    }
    e = calloc(1, sizeof(*e));
    if (!e)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for NCCL's table");
    missing = find_functions(&e->nccl, library);
    if (missing || e->nccl.version < SYMM_NCCL_OLDEST) {
        int version = e->nccl.version;

        free(e);
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "'%s' (SYMM_NCCL_LIB) is version %d and %s%s; NCCL 2.18 or "
                          "newer is needed",
                          path, version, missing ? "lacks " : "too old",
                          missing ? missing : "");
    }
    snprintf(e->nccl.name, sizeof(e->nccl.name), "NCCL %d.%d.%d",
             e->nccl.version / 10000, e->nccl.version / 100 % 100,
             e->nccl.version % 100);
    *engine = e;
    return SYMM_OK;
}

static void nccl_close(struct symm_engine *engine)
{
    free(engine);
}

static const char *nccl_version(const struct symm_engine *engine)
{
    return engine->nccl.name;
}

/* ---- Answers --------------------------------------------------------------------- */

symm_status symm__nccl_check(const struct symm_nccl *nccl, void *comm, int result,
                             const char *what)
{
    const char *last;

    if (result == SYMM_NCCL_SUCCESS || result == SYMM_NCCL_IN_PROGRESS)
        return SYMM_OK;
    last = nccl->last_error(comm);
    return symm__fail(result == SYMM_NCCL_REMOTE    ? SYMM_ERR_PEER_DEAD
                      : result == SYMM_NCCL_INVALID ? SYMM_ERR_INVALID
                                                    : SYMM_ERR_SYSTEM,
                      "%s failed with %s%s%s; NCCL_DEBUG=WARN says more", what,
                      nccl->error_string(result), last && *last ? ": " : "",
                      last ? last : "");
}

static symm_status wait_ready(const struct symm_nccl *nccl, void *comm,
                              const bool *aborting, const struct symm_engine_wait *wait,
                              const char *what)
{
    double begin = symm__now(), now = begin;
    int state = SYMM_NCCL_IN_PROGRESS;
    symm_status status = SYMM_OK;

    for (;;) {
        status = symm__nccl_check(nccl, comm, nccl->async_error(comm, &state),
                                  "ncclCommGetAsyncError");
        if (status != SYMM_OK || state != SYMM_NCCL_IN_PROGRESS)
            break;
        /* acquire: pairs with the release in nccl_abort */
        if (__atomic_load_n(aborting, __ATOMIC_ACQUIRE))
            return symm__fail_quiet(SYMM_ERR_ABORTED, "the communicator was aborted");
        if (wait->stop)
            status = wait->stop(wait->stop_arg);
        if (status != SYMM_OK)
            return status;
        if (now >= wait->until)
            return symm__fail(SYMM_ERR_TIMEOUT,
                              "%s is not complete after %.3g s; a rank does not come, "
                              "or NCCL finds no way (NCCL_DEBUG=INFO says)",
                              what, now - begin);
        if (now - begin > SPIN_SECONDS)
            symm__sleep(POLL_SECONDS);
        now = symm__now();
    }
    return status == SYMM_OK ? symm__nccl_check(nccl, comm, state, what) : status;
}

symm_status symm__nccl_complete(struct symm_engine_comm *comm, int result,
                                const struct symm_engine_wait *wait, const char *what)
{
    symm_status status = symm__nccl_check(comm->nccl, comm->comm, result, what);

    if (status != SYMM_OK || result != SYMM_NCCL_IN_PROGRESS)
        return status;
    return wait_ready(comm->nccl, comm->comm, &comm->aborting, wait, what);
}

/* ---- Communicators --------------------------------------------------------------- */

static symm_status nccl_id(struct symm_engine *engine, struct symm_engine_id *id)
{
    struct symm_nccl_id made;
    symm_status status = symm__nccl_check(
        &engine->nccl, NULL, engine->nccl.get_id(&made), "ncclGetUniqueId");

    _Static_assert(sizeof(made) == sizeof(id->bytes), "an id is passed on whole");
    if (status == SYMM_OK)
        memcpy(id->bytes, &made, sizeof(made));
    return status;
}

static symm_status nccl_create(struct symm_engine *engine,
                               const struct symm_engine_id *id, int rank, int size,
                               const int *world_rank,
                               const struct symm_engine_wait *wait,
                               struct symm_engine_comm **made)
{
    struct symm_engine_comm *comm = calloc(1, sizeof(*comm));
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    struct symm_nccl_id nccl_id_;
    symm_status status;

    if (!comm)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    comm->nccl = &engine->nccl;
    comm->rank = rank;
    comm->size = size;
    memcpy(comm->world_rank, world_rank, (size_t)size * sizeof(*world_rank));
    memcpy(&nccl_id_, id->bytes, sizeof(nccl_id_));
    pthread_mutex_init(&comm->lock, NULL);
    status = symm__nccl_complete(
        comm, comm->nccl->init_rank(&comm->comm, size, nccl_id_, rank, &config), wait,
        "ncclCommInitRankConfig");
    if (status == SYMM_OK) {
        *made = comm;
        return SYMM_OK;
    }
    if (comm->comm)
        (void)comm->nccl->abort(comm->comm);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
    return status;
}

static void nccl_abort(struct symm_engine_comm *comm)
{
    struct timespec until;
    bool locked;

    /* release: pairs with the acquire in wait_ready */
    if (__atomic_exchange_n(&comm->aborting, true, __ATOMIC_ACQ_REL))
        return;
    until = symm__until(ABORT_SECONDS);
    locked = pthread_mutex_clocklock(&comm->lock, CLOCK_MONOTONIC, &until) == 0;
    if (comm->nccl->abort(comm->comm) != SYMM_NCCL_SUCCESS)
        symm__log(SYMM_LOG_WARN, "ncclCommAbort failed: %s",
                  comm->nccl->last_error(NULL));
    if (locked)
        pthread_mutex_unlock(&comm->lock);
}

/* In step with the peers where they come, else without them. */
static void nccl_destroy(struct symm_engine_comm *comm)
{
    struct symm_engine_wait wait = {.until = symm__now() + END_SECONDS};

    if (!comm)
        return;
    if (!comm->aborting) {
        if (symm__nccl_complete(comm, comm->nccl->finalize(comm->comm), &wait,
                                "ncclCommFinalize") == SYMM_OK)
            (void)comm->nccl->destroy(comm->comm);
        else
            (void)comm->nccl->abort(comm->comm);
    }
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static symm_status nccl_error(struct symm_engine_comm *comm)
{
    int state = SYMM_NCCL_SUCCESS, result;

    /* A call that is under way finds out by itself. */
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return SYMM_OK;
    result = comm->aborting ? SYMM_NCCL_SUCCESS
                            : comm->nccl->async_error(comm->comm, &state);
    pthread_mutex_unlock(&comm->lock);
    return symm__nccl_check(
        comm->nccl, NULL, result == SYMM_NCCL_SUCCESS ? state : result, "an operation");
}

/* ---- Memory ---------------------------------------------------------------------- */

static symm_status nccl_register(struct symm_engine_comm *comm, void *ptr, size_t bytes,
                                 void **handle)
{
    symm_status status = SYMM_OK;

    if (!comm->nccl->register_memory)
        return symm__fail_quiet(SYMM_ERR_UNSUPPORTED,
                                "this NCCL has no ncclCommRegister");
    pthread_mutex_lock(&comm->lock);
    if (!comm->aborting)
        status = symm__nccl_check(
            comm->nccl, NULL,
            comm->nccl->register_memory(comm->comm, ptr, bytes, handle),
            "ncclCommRegister");
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static void nccl_deregister(struct symm_engine_comm *comm, void *handle)
{
    pthread_mutex_lock(&comm->lock);
    if (!comm->aborting &&
        comm->nccl->deregister_memory(comm->comm, handle) != SYMM_NCCL_SUCCESS)
        symm__log(SYMM_LOG_WARN, "ncclCommDeregister failed: %s",
                  comm->nccl->last_error(NULL));
    pthread_mutex_unlock(&comm->lock);
}

static symm_status nccl_window(struct symm_engine_comm *comm, void *ptr, size_t bytes,
                               void **handle)
{
    const struct symm_engine_wait wait = {.until = symm__now() + END_SECONDS * 10};
    symm_status status = SYMM_OK;

    if (!comm->nccl->register_window)
        return symm__fail_quiet(SYMM_ERR_UNSUPPORTED, "this NCCL has no windows");
    pthread_mutex_lock(&comm->lock);
    if (!comm->aborting)
        status = symm__nccl_complete(comm,
                                     comm->nccl->register_window(comm->comm, ptr, bytes,
                                                                 handle,
                                                                 SYMM_NCCL_SYMMETRIC),
                                     &wait, "ncclCommWindowRegister");
    pthread_mutex_unlock(&comm->lock);
    if (status == SYMM_OK && !*handle) /* NCCL says so for memory that it cannot take */
        status = symm__fail_quiet(SYMM_ERR_UNSUPPORTED,
                                  "NCCL makes no window of this memory");
    return status;
}

static void nccl_window_end(struct symm_engine_comm *comm, void *handle)
{
    pthread_mutex_lock(&comm->lock);
    if (!comm->aborting &&
        comm->nccl->deregister_window(comm->comm, handle) != SYMM_NCCL_SUCCESS)
        symm__log(SYMM_LOG_WARN, "ncclCommWindowDeregister failed: %s",
                  comm->nccl->last_error(NULL));
    pthread_mutex_unlock(&comm->lock);
}

static symm_status nccl_bootstrap(struct symm_engine *engine, symm_bootstrap *bootstrap)
{
    (void)engine;
    (void)bootstrap;
    return symm__fail(SYMM_ERR_UNSUPPORTED,
                      "NCCL starts no job: its ranks must have met before");
}

const struct symm_engine_ops symm__engine_nccl = {
    .size = sizeof(struct symm_engine_ops),
    .name = "nccl",
    .device = true,
    .open = nccl_open,
    .close = nccl_close,
    .version = nccl_version,
    .id_create = nccl_id,
    .comm_create = nccl_create,
    .comm_abort = nccl_abort,
    .comm_destroy = nccl_destroy,
    .comm_error = nccl_error,
    .objection = symm__nccl_objection,
    .run = symm__nccl_run,
    .memory_register = nccl_register,
    .memory_deregister = nccl_deregister,
    .window_register = nccl_window,
    .window_deregister = nccl_window_end,
    .bootstrap = nccl_bootstrap,
    .deviation = symm__nccl_deviation,
};
