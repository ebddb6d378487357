/* SPDX-License-Identifier: MIT */
/*
 * nccl.c - NCCL as an engine: opened at run time, never linked.
 *
 * Communicators block: NCCL makes a thread for each group of calls on a communicator that does
 * not, which costs several times the call itself. So a call that waits in NCCL (for a connection,
 * or for room in the device's queue) is ended by an abort from another thread; what makes and
 * ends communicators runs on helper threads (helper.h). NCCL_COMM_BLOCKING=0 overrules this: then
 * every answer "in progress" is waited for with a deadline. The library stays loaded: it has
 * threads of its own. Variables of NCCL (NCCL_NVLS_ENABLE and its kin) are the user's and are not
 * touched.
 *
 * One call at a time runs on a communicator (`lock`), but for the abort, which waits for that
 * call for a moment only and then goes ahead, as NCCL allows. It holds no lock: it may not return.
 *
 * What NCCL computes otherwise than symm.h promises is reported (nccl_deviation), so that
 * the library does not take a call there by itself: NCCL's minimum and maximum ignore a NaN,
 * its average of integers sums in the type itself. All-to-all is a group of sends and
 * receives; data that is only moved goes as bytes where NCCL does not know its type.
 *
 * Refuses: NCCL older than 2.18; reductions of float8 before 2.24, and of int16 and uint16;
 * bitwise reductions.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/nccl_abi.h"
#include "util/clock.h"
#include "util/dtype.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#define POLL_SECONDS   0.0002
#define SPIN_SECONDS   0.002
#define CALL_SECONDS   0.05 /* that an abort waits for a call under way */
#define WINDOW_SECONDS 20   /* for the peers' registration, where NCCL does not block */

struct symm_engine {
    struct symm_nccl nccl;
};

struct symm_engine_comm {
    const struct symm_nccl *nccl;
    void *nccl_comm; /* ncclComm_t */
    int size;
    pthread_mutex_t lock;
    bool ended; /* atomic: aborted or destroyed, nothing may be called */
};

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

/* NCCL's result as a status; "in progress" is no error. */
static symm_status nccl_check(const struct symm_nccl *nccl, int result,
                              const char *what)
{
    const char *last;

    if (result == SYMM_NCCL_SUCCESS || result == SYMM_NCCL_IN_PROGRESS)
        return SYMM_OK;
    last = nccl->last_error(NULL); /* of this thread, whatever the communicator */
    return symm__fail(result == SYMM_NCCL_REMOTE    ? SYMM_ERR_PEER_DEAD
                      : result == SYMM_NCCL_INVALID ? SYMM_ERR_INVALID
                                                    : SYMM_ERR_SYSTEM,
                      "%s failed with %s%s%s; NCCL_DEBUG=WARN says more", what,
                      nccl->error_string(result), last && *last ? ": " : "",
                      last ? last : "");
}

static bool has_ended(const struct symm_engine_comm *comm)
{
    /* acquire: pairs with the release in nccl_abort */
    return __atomic_load_n(&comm->ended, __ATOMIC_ACQUIRE);
}

/* Takes the lock; false: the communicator has ended, and a call that never returns may have the
 * lock. */
static bool comm_enter(struct symm_engine_comm *comm)
{
    while (!has_ended(comm)) {
        if (pthread_mutex_trylock(&comm->lock) != 0) {
            symm__sleep(POLL_SECONDS);
            continue;
        }
        if (!has_ended(comm))
            return true;
        pthread_mutex_unlock(&comm->lock);
    }
    return false;
}

static symm_status was_aborted(void)
{
    return symm__fail_quiet(SYMM_ERR_ABORTED, "the communicator was aborted");
}

/* As nccl_check, once the call is no longer in progress; with the lock. A call that an abort has
 * ended returns an error of NCCL's choice. */
static symm_status nccl_complete(struct symm_engine_comm *comm, int result,
                                 const struct symm_engine_wait *wait, const char *what)
{
    const struct symm_nccl *nccl = comm->nccl;
    double begin = symm__now(), now = begin;
    symm_status status;

    if (has_ended(comm))
        return was_aborted();
    status = nccl_check(nccl, result, what);
    while (status == SYMM_OK && result == SYMM_NCCL_IN_PROGRESS) {
        status = nccl_check(nccl, nccl->async_error(comm->nccl_comm, &result),
                            "ncclCommGetAsyncError");
        if (status == SYMM_OK && result != SYMM_NCCL_IN_PROGRESS)
            return nccl_check(nccl, result, what);
        if (status == SYMM_OK && has_ended(comm))
            return was_aborted();
        if (status == SYMM_OK && wait->stop)
            status = wait->stop(wait->stop_arg);
        if (status == SYMM_OK && now >= wait->until)
            return symm__fail(SYMM_ERR_TIMEOUT,
                              "%s is not complete after %.3g s; a rank does not come, "
                              "or NCCL finds no way (NCCL_DEBUG=INFO says)",
                              what, now - begin);
        if (now - begin > SPIN_SECONDS)
            symm__sleep(POLL_SECONDS);
        now = symm__now();
    }
    return status;
}

/* ---- Communicators --------------------------------------------------------------- */

static symm_status nccl_id(struct symm_engine *engine, struct symm_engine_id *id)
{
    struct symm_nccl_id made;
    symm_status status =
        nccl_check(&engine->nccl, engine->nccl.get_id(&made), "ncclGetUniqueId");

    _Static_assert(sizeof(made) == sizeof(id->bytes), "an id is passed on whole");
    if (status == SYMM_OK)
        memcpy(id->bytes, &made, sizeof(made));
    return status;
}

static symm_status comm_new(const struct symm_nccl *nccl, int size,
                            struct symm_engine_comm **made)
{
    struct symm_engine_comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    comm->nccl = nccl;
    comm->size = size;
    pthread_mutex_init(&comm->lock, NULL);
    *made = comm;
    return SYMM_OK;
}

static void comm_free(struct symm_engine_comm *comm)
{
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* Takes the communicator that NCCL has made. *made: NULL if the rank is in no group of a
 * split. */
static symm_status comm_made(struct symm_engine_comm *comm, int result,
                             const struct symm_engine_wait *wait, const char *what,
                             struct symm_engine_comm **made)
{
    symm_status status = nccl_complete(comm, result, wait, what);

    *made = NULL;
    if (status == SYMM_OK && comm->nccl_comm) {
        *made = comm;
        return SYMM_OK;
    }
    if (comm->nccl_comm)
        (void)comm->nccl->abort(comm->nccl_comm);
    comm_free(comm);
    return status;
}

static symm_status nccl_create(struct symm_engine *engine,
                               const struct symm_engine_id *id, int rank, int size,
                               const int *world_rank,
                               const struct symm_engine_wait *wait,
                               struct symm_engine_comm **made)
{
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    struct symm_engine_comm *comm = NULL;
    struct symm_nccl_id nccl_id_;
    symm_status status = comm_new(&engine->nccl, size, &comm);

    (void)world_rank;
    if (status != SYMM_OK)
        return status;
    memcpy(&nccl_id_, id->bytes, sizeof(nccl_id_));
    return comm_made(
        comm, comm->nccl->init_rank(&comm->nccl_comm, size, nccl_id_, rank, &config),
        wait, "ncclCommInitRankConfig", made);
}

static symm_status nccl_split(struct symm_engine_comm *parent, int color, int size,
                              const struct symm_engine_wait *wait,
                              struct symm_engine_comm **made)
{
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;
    struct symm_engine_comm *comm = NULL;
    symm_status status = comm_new(parent->nccl, size, &comm);
    int result;

    if (status != SYMM_OK)
        return status;
    if (!comm_enter(parent)) {
        comm_free(comm);
        return was_aborted();
    }
    /* Equal keys: the new ranks are in the order of the parent's. */
    result =
        parent->nccl->split(parent->nccl_comm, color < 0 ? SYMM_NCCL_NO_COLOR : color,
                            0, &comm->nccl_comm, &config);
    pthread_mutex_unlock(&parent->lock);
    if (result == SYMM_NCCL_IN_PROGRESS && !comm->nccl_comm)
        result = SYMM_NCCL_SUCCESS;
    return comm_made(comm, result, wait, "ncclCommSplit", made);
}

static void nccl_abort(struct symm_engine_comm *comm)
{
    const double until = symm__now() + CALL_SECONDS;
    bool idle = false;

    /* release: pairs with the acquire in has_ended */
    if (__atomic_exchange_n(&comm->ended, true, __ATOMIC_ACQ_REL))
        return;
    while (!idle && symm__now() < until) {
        idle = pthread_mutex_trylock(&comm->lock) == 0;
        if (!idle)
            symm__sleep(POLL_SECONDS);
    }
    if (idle)
        pthread_mutex_unlock(&comm->lock); /* later calls find it ended */
    if (comm->nccl->abort(comm->nccl_comm) != SYMM_NCCL_SUCCESS)
        symm__log(SYMM_LOG_WARN, "ncclCommAbort failed: %s",
                  comm->nccl->last_error(NULL));
}

static symm_status nccl_finalize(struct symm_engine_comm *comm, double until)
{
    const struct symm_engine_wait wait = {.until = until};
    symm_status status;

    if (!comm_enter(comm))
        return was_aborted();
    status = nccl_complete(comm, comm->nccl->finalize(comm->nccl_comm), &wait,
                           "ncclCommFinalize");
    /* Either this thread destroys it or another one aborts it. */
    if (status == SYMM_OK && !__atomic_exchange_n(&comm->ended, true, __ATOMIC_ACQ_REL))
        status = nccl_check(comm->nccl, comm->nccl->destroy(comm->nccl_comm),
                            "ncclCommDestroy");
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static void nccl_destroy(struct symm_engine_comm *comm)
{
    if (!comm)
        return;
    nccl_abort(comm); /* unless it was finalized or aborted */
    comm_free(comm);
}

static symm_status nccl_error(struct symm_engine_comm *comm)
{
    int state = SYMM_NCCL_SUCCESS, result;

    /* A call that is under way checks by itself. */
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return SYMM_OK;
    result = has_ended(comm) ? SYMM_NCCL_SUCCESS
                             : comm->nccl->async_error(comm->nccl_comm, &state);
    pthread_mutex_unlock(&comm->lock);
    return nccl_check(comm->nccl, result == SYMM_NCCL_SUCCESS ? state : result,
                      "an operation");
}

/* ---- Memory ---------------------------------------------------------------------- */

static symm_status nccl_register(struct symm_engine_comm *comm, void *ptr, size_t bytes,
                                 void **handle)
{
    symm_status status;

    if (!comm->nccl->register_memory)
        return symm__fail_quiet(SYMM_ERR_UNSUPPORTED,
                                "this NCCL has no ncclCommRegister");
    if (!comm_enter(comm))
        return SYMM_OK; /* an abort ends what is registered */
    status = nccl_check(
        comm->nccl, comm->nccl->register_memory(comm->nccl_comm, ptr, bytes, handle),
        "ncclCommRegister");
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static void give_back(struct symm_engine_comm *comm, int (*end)(void *, void *),
                      void *handle, const char *what)
{
    if (!comm_enter(comm))
        return;
    if (end(comm->nccl_comm, handle) != SYMM_NCCL_SUCCESS)
        symm__log(SYMM_LOG_WARN, "%s failed: %s", what, comm->nccl->last_error(NULL));
    pthread_mutex_unlock(&comm->lock);
}

static void nccl_deregister(struct symm_engine_comm *comm, void *handle)
{
    give_back(comm, comm->nccl->deregister_memory, handle, "ncclCommDeregister");
}

static symm_status nccl_window(struct symm_engine_comm *comm, void *ptr, size_t bytes,
                               void **handle)
{
    const struct symm_engine_wait wait = {.until = symm__now() + WINDOW_SECONDS};
    symm_status status;

    if (!comm->nccl->register_window)
        return symm__fail_quiet(SYMM_ERR_UNSUPPORTED, "this NCCL has no windows");
    if (!comm_enter(comm))
        return was_aborted();
    status = nccl_complete(comm,
                           comm->nccl->register_window(comm->nccl_comm, ptr, bytes,
                                                       handle, SYMM_NCCL_SYMMETRIC),
                           &wait, "ncclCommWindowRegister");
    pthread_mutex_unlock(&comm->lock);
    /* that is NCCL's answer for memory that it cannot take */
    if (status == SYMM_OK && !*handle)
        status = symm__fail_quiet(SYMM_ERR_UNSUPPORTED,
                                  "NCCL makes no window of this memory");
    return status;
}

static void nccl_window_end(struct symm_engine_comm *comm, void *handle)
{
    give_back(comm, comm->nccl->deregister_window, handle, "ncclCommWindowDeregister");
}

/* ---- Calls ------------------------------------------------------------------------ */

static bool reduces(const struct symm_engine_request *request)
{
    return request->what == SYMM_ENGINE_COLLECTIVE && symm__kind_reduces(request->kind);
}

/* Elements of other types are moved as bytes, and not reduced. */
static bool is_known(const struct symm_nccl *nccl, symm_dtype dtype)
{
    if (symm__dtype_is_float8(dtype))
        return nccl->version >= SYMM_NCCL_FLOAT8;
    return dtype != SYMM_INT16 && dtype != SYMM_UINT16;
}

/* ncclRedOp_t; -1: NCCL has no such op */
static int op_of(symm_op op)
{
    static const int ops[] = {
        [SYMM_SUM] = 0, [SYMM_PROD] = 1,  [SYMM_MAX] = 2,  [SYMM_MIN] = 3,
        [SYMM_AVG] = 4, [SYMM_BAND] = -1, [SYMM_BOR] = -1, [SYMM_BXOR] = -1};

    return ops[op];
}

static const char *nccl_objection(const struct symm_engine *engine,
                                  const struct symm_engine_request *request)
{
    if (request->what == SYMM_ENGINE_COLLECTIVE && request->kind == SYMM_KIND_BARRIER)
        return "NCCL has no barrier; reduce one element instead";
    if (reduces(request) && !is_known(&engine->nccl, request->dtype))
        return symm__dtype_is_float8(request->dtype)
                   ? "NCCL reduces float8 from version 2.24 on"
                   : "NCCL does not reduce int16 and uint16; int32 has room for them";
    if (reduces(request) && op_of(request->op) < 0)
        return "NCCL has no bitwise reductions";
    return NULL;
}

static const char *nccl_deviation(const struct symm_engine *engine,
                                  const struct symm_engine_request *request)
{
    (void)engine;
    if (!reduces(request))
        return NULL;
    if (symm__dtype_is_float(request->dtype) &&
        (request->op == SYMM_MIN || request->op == SYMM_MAX))
        return "NCCL's minimum and maximum ignore a NaN";
    if (symm__dtype_is_integer(request->dtype) && request->op == SYMM_AVG)
        return "NCCL's average of integers can wrap";
    return NULL;
}

/* ncclDataType_t. Before 2.24 a float8 goes as ncclUint8: it is only moved, since `objection`
 * refuses its reductions. */
static int type_of(const struct symm_nccl *nccl, symm_dtype dtype)
{
    static const int types[] = {
        [SYMM_FLOAT64] = 8,  [SYMM_FLOAT32] = 7,      [SYMM_FLOAT16] = 6,
        [SYMM_BFLOAT16] = 9, [SYMM_FLOAT8_E4M3] = 10, [SYMM_FLOAT8_E5M2] = 11,
        [SYMM_INT64] = 4,    [SYMM_INT32] = 2,        [SYMM_INT8] = 0,
        [SYMM_UINT64] = 5,   [SYMM_UINT32] = 3,       [SYMM_UINT8] = 1};

    return types[is_known(nccl, dtype) ? dtype : SYMM_UINT8];
}

/* In elements of type_of. */
static size_t count_of(const struct symm_nccl *nccl,
                       const struct symm_engine_request *request)
{
    return request->count *
           (is_known(nccl, request->dtype) ? 1 : symm_dtype_size(request->dtype));
}

/* NCCL's name of a call, for errors; those of a group name its first request. */
static const char *call_name(const struct symm_engine_request *request)
{
    static const char *const names[SYMM_KIND_COUNT] = {
        [SYMM_KIND_BARRIER] = "a barrier",
        [SYMM_KIND_ALL_REDUCE] = "ncclAllReduce",
        [SYMM_KIND_REDUCE_SCATTER] = "ncclReduceScatter",
        [SYMM_KIND_ALL_GATHER] = "ncclAllGather",
        [SYMM_KIND_BROADCAST] = "ncclBroadcast",
        [SYMM_KIND_ALL_TO_ALL] = "a group of ncclSend and ncclRecv",
    };

    if (request->what != SYMM_ENGINE_COLLECTIVE)
        return names[SYMM_KIND_ALL_TO_ALL];
    return names[request->kind];
}

/* Inside a group ncclInProgress is no error: the end of the group returns the result. */
static bool went_well(int result)
{
    return result == SYMM_NCCL_SUCCESS || result == SYMM_NCCL_IN_PROGRESS;
}

/* Sends block p of `in` to rank p and receives block p of `out` from there; inside a group. */
static int exchange_blocks(const struct symm_engine_comm *comm,
                           const struct symm_engine_request *request, int type,
                           void *stream)
{
    const struct symm_nccl *nccl = comm->nccl;
    size_t block = request->count * symm_dtype_size(request->dtype);
    size_t count = count_of(nccl, request);
    int result = SYMM_NCCL_SUCCESS;

    for (int p = 0; p < comm->size && went_well(result); p++) {
        result = nccl->send((const char *)request->in + (size_t)p * block, count, type,
                            p, comm->nccl_comm, stream);
        if (went_well(result))
            result = nccl->receive((char *)request->out + (size_t)p * block, count,
                                   type, p, comm->nccl_comm, stream);
    }
    return result;
}

/* Queues one request, which `objection` has allowed, with comm->lock held. Returns an
 * ncclResult_t, also ncclInProgress. A send, a receive and an all-to-all must be in a group. */
static int one_call(const struct symm_engine_comm *comm,
                    const struct symm_engine_request *request, void *stream)
{
    const struct symm_nccl *nccl = comm->nccl;
    int type = type_of(nccl, request->dtype), op = op_of(request->op);
    size_t count = count_of(nccl, request);

    if (request->what == SYMM_ENGINE_SEND)
        return nccl->send(request->in, count, type, request->peer, comm->nccl_comm,
                          stream);
    if (request->what == SYMM_ENGINE_RECV)
        return nccl->receive(request->out, count, type, request->peer, comm->nccl_comm,
                             stream);
    switch (request->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return nccl->all_reduce(request->in, request->out, count, type, op,
                                comm->nccl_comm, stream);
    case SYMM_KIND_REDUCE_SCATTER:
        return nccl->reduce_scatter(request->in, request->out, count, type, op,
                                    comm->nccl_comm, stream);
    case SYMM_KIND_ALL_GATHER:
        return nccl->all_gather(request->in, request->out, count, type, comm->nccl_comm,
                                stream);
    case SYMM_KIND_BROADCAST:
        return nccl->broadcast(request->in, request->out, count, type, request->root,
                               comm->nccl_comm, stream);
    case SYMM_KIND_ALL_TO_ALL:
        return exchange_blocks(comm, request, type, stream);
    default:
        return SYMM_NCCL_INVALID_USAGE;
    }
}

static bool is_group(const struct symm_engine_request *requests, int count)
{
    return count > 1 || requests->what != SYMM_ENGINE_COLLECTIVE ||
           requests->kind == SYMM_KIND_ALL_TO_ALL;
}

/* Queues the requests, with comm->lock held. A group is also ended if a call in it fails. */
static int queue(const struct symm_engine_comm *comm,
                 const struct symm_engine_request *requests, int count, void *stream)
{
    const struct symm_nccl *nccl = comm->nccl;
    bool group = is_group(requests, count);
    int result = group ? nccl->group_start() : SYMM_NCCL_SUCCESS;
    int ended;

    if (result != SYMM_NCCL_SUCCESS)
        return result;
    for (int i = 0; i < count && went_well(result); i++)
        result = one_call(comm, &requests[i], stream);
    if (!group)
        return result;
    ended = nccl->group_end();
    return went_well(result) ? ended : result;
}

static symm_status nccl_run(struct symm_engine_comm *comm,
                            const struct symm_engine_request *requests, int count,
                            void *stream, const struct symm_engine_wait *wait)
{
    symm_status status;

    if (!comm_enter(comm))
        return was_aborted();
    status = nccl_complete(comm, queue(comm, requests, count, stream), wait,
                           call_name(requests));
    pthread_mutex_unlock(&comm->lock);
    return status;
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
    .objection = nccl_objection,
    .run = nccl_run,
    .memory_register = nccl_register,
    .memory_deregister = nccl_deregister,
    .window_register = nccl_window,
    .window_deregister = nccl_window_end,
    .bootstrap = nccl_bootstrap,
    .deviation = nccl_deviation,
    .blocks = true,
    .comm_split = nccl_split,
    .grid = SYMM_NCCL_CTAS,
    .comm_finalize = nccl_finalize,
};
