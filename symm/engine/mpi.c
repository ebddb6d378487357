/* SPDX-License-Identifier: MIT */
/*
 * mpi.c - the engine for memory of the host where ranks are an MPI job: starting MPI,
 * communicators, waiting. See mpi.h and docs/design.md, "Engines".
 *
 * If the program has initialised MPI, the engine uses MPI as it is. If not, and a launcher of
 * MPI has started the process, the engine initialises MPI with MPI_THREAD_MULTIPLE. It then
 * finalizes MPI when the process exits, because MPI cannot be initialised twice.
 * Refuses: ranks that differ from those of MPI_COMM_WORLD; below MPI_THREAD_SERIALIZED every
 * thread except the one that initialised MPI.
 */
#include "engine/mpi.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/hash.h"
#include "util/seconds.h"

/* A wait yields for 2 ms, like those of host kernels (slow_wait.c): other ranks may need the core.
 * Then it sleeps between two polls, 20 us at a time: at most 1 % of such a wait. */
#define YIELD_SECONDS 0.002
#define NAP_SECONDS   2e-5
#define START_SECONDS 60.0 /* of the bootstrap, without SYMM_INIT_TIMEOUT */
#define LEFT_SECONDS  2.0  /* for MPI_Finalize, if an operation is not complete */
#define SENTENCE      512

/* State of the process, as MPI's own state is. */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER; /* of starting MPI */
static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;     /* of calling it */
static int thread_level = -1;  /* that MPI provides; set by start_mpi, always to the same value */
static int32_t operation_left; /* atomic: MPI_Finalize may wait for an operation for ever */

static _Thread_local char sentence[SENTENCE];

static const char *mpi_last_error(void)
{
    return sentence;
}

symm_status symm__mpi_fail(symm_status status, const char *format, ...)
{
    char text[SENTENCE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(sentence, text, sizeof(text));
    return status;
}

symm_status symm__mpi_fail_code(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;

    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof(text), "error %d", code);
    return symm__mpi_fail(SYMM_ERR_ABORTED, "MPI failed in %s: %s", what, text);
}

void symm__mpi_lock(void)
{
    if (thread_level < MPI_THREAD_MULTIPLE)
        pthread_mutex_lock(&mpi_lock);
}

void symm__mpi_unlock(void)
{
    if (thread_level < MPI_THREAD_MULTIPLE)
        pthread_mutex_unlock(&mpi_lock);
}

symm_status symm__mpi_enter_check(void)
{
    int finalized = 0, main_thread = 1;

    MPI_Finalized(&finalized); /* this and MPI_Is_thread_main need no lock */
    if (finalized)
        return symm__mpi_fail(SYMM_ERR_INVALID,
                              "MPI has been finalized; call symm_finalize before "
                              "MPI_Finalize");
    if (thread_level < MPI_THREAD_SERIALIZED)
        MPI_Is_thread_main(&main_thread);
    if (!main_thread)
        return symm__mpi_fail(
            SYMM_ERR_UNSUPPORTED,
            "MPI allows calls by the thread alone that has initialised "
            "it; use MPI_Init_thread with MPI_THREAD_SERIALIZED or "
            "MPI_THREAD_MULTIPLE, or no streams");
    return SYMM_OK;
}

/* ---- Waiting ------------------------------------------------------------------------- */

struct symm_mpi_wait symm__mpi_wait(const struct symm_engine_wait *given,
                                    struct symm_engine_comm *comm, const char *what,
                                    int peer)
{
    return (struct symm_mpi_wait){
        .given = given, .comm = comm, .what = what, .peer = peer, .began = symm__now()};
}

symm_status symm__mpi_pause(const struct symm_mpi_wait *wait)
{
    double now = symm__now();
    symm_status status = SYMM_OK;
    char whom[32] = "a rank";

    if (wait->comm && __atomic_load_n(&wait->comm->aborted, __ATOMIC_ACQUIRE))
        return symm__mpi_fail(SYMM_ERR_ABORTED, "%s was aborted", wait->what);
    if (wait->given->stop)
        status = wait->given->stop(wait->given->stop_arg);
    if (status != SYMM_OK)
        return symm__mpi_fail(status, "%s cannot be completed: %s", wait->what,
                              status == SYMM_ERR_PEER_DEAD ? "a rank has died"
                                                           : "the team has failed");
    if (wait->peer >= 0)
        snprintf(whom, sizeof(whom), "rank %d", wait->peer);
    if (now >= wait->given->until)
        return symm__mpi_fail(
            SYMM_ERR_TIMEOUT,
            "%s was not complete after %.3g s: %s did not take part in "
            "it within the timeout (SYMM_TIMEOUT)",
            wait->what, now - wait->began, whom);
    if (now - wait->began < YIELD_SECONDS)
        sched_yield();
    else
        symm__sleep(NAP_SECONDS);
    return SYMM_OK;
}

symm_status symm__mpi_complete(const struct symm_mpi_wait *wait, MPI_Request *requests,
                               int count)
{
    for (;;) {
        int flag = 0, code;
        symm_status status;

        symm__mpi_lock();
        code = MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
        symm__mpi_unlock();
        if (code != MPI_SUCCESS)
            return symm__mpi_fail_code(code, wait->what);
        if (flag)
            return SYMM_OK;
        status = symm__mpi_pause(wait);
        if (status != SYMM_OK)
            return status;
    }
}

/* ---- Starting MPI -------------------------------------------------------------------- */

static void *exit_anyway(void *arg)
{
    symm__sleep(LEFT_SECONDS);
    _exit((int)(intptr_t)arg);
}

/* A launcher reports a crash if a process exits without MPI_Finalize. If an operation was not
 * complete, MPI_Finalize may not return: the process then ends after LEFT_SECONDS. */
static void finalize_at_exit(int status, void *arg)
{
    int finalized = 0, main_thread = 1;
    pthread_t thread;

    (void)arg;
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Is_thread_main(&main_thread);
    if (finalized || !main_thread)
        return;
    if (__atomic_load_n(&operation_left, __ATOMIC_ACQUIRE) &&
        pthread_create(&thread, NULL, exit_anyway, (void *)(intptr_t)status) != 0)
        return;
    MPI_Finalize();
}

/* The variables are set by Open MPI, by PMIx (Open MPI 5, Slurm), and by PMI (MPICH, Slurm). */
static bool under_launcher(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK",
                                            "PMI_RANK", "PMI_FD", NULL};

    for (int i = 0; variables[i]; i++)
        if (getenv(variables[i]))
            return true;
    return false;
}

/* With process_lock held. */
static symm_status start_mpi(void)
{
    int initialized = 0, finalized = 0, code = MPI_SUCCESS;

    MPI_Finalized(&finalized);
    if (finalized)
        return symm__mpi_fail(SYMM_ERR_UNSUPPORTED,
                              "MPI has been finalized in this process");
    MPI_Initialized(&initialized);
    if (initialized) {
        MPI_Query_thread(&thread_level);
        return SYMM_OK;
    }
    if (!under_launcher())
        return symm__mpi_fail(
            SYMM_ERR_UNSUPPORTED,
            "no launcher of MPI has started this process and MPI is not "
            "initialised; use mpirun, or call MPI_Init_thread before "
            "symm_init");
    /* No error handler can be set before, so MPI may end the process here. */
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &thread_level);
    if (code != MPI_SUCCESS)
        return symm__mpi_fail_code(code, "MPI_Init_thread");
    on_exit(finalize_at_exit, NULL);
    return SYMM_OK;
}

static void set_version(struct symm_engine *engine)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0'; /* the rest tells how MPI was built */
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    snprintf(engine->version, sizeof(engine->version), "%.90s", text);
}

static symm_status start(struct symm_engine *engine)
{
    void *most = NULL;
    int found = 0, code;

    MPI_Comm_rank(MPI_COMM_WORLD, &engine->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &engine->size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &found);
    engine->tag_most = found ? *(int *)most : 32767;
    set_version(engine);
    /* Collective, but it does not wait: `duplicate` does. */
    code = MPI_Comm_idup(MPI_COMM_WORLD, &engine->world, &engine->pending);
    return code == MPI_SUCCESS ? SYMM_OK : symm__mpi_fail_code(code, "MPI_Comm_idup");
}

static symm_status mpi_open(struct symm_engine **engine)
{
    struct symm_engine *e = calloc(1, sizeof(*e));
    symm_status status;

    if (!e)
        return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for the MPI engine");
    pthread_mutex_lock(&process_lock);
    status = start_mpi();
    pthread_mutex_unlock(&process_lock);
    if (status == SYMM_OK)
        status = symm__mpi_enter_check();
    if (status == SYMM_OK) {
        symm__mpi_lock();
        status = start(e);
        symm__mpi_unlock();
    }
    if (status != SYMM_OK) {
        free(e);
        return status;
    }
    *engine = e;
    return SYMM_OK;
}

static void mpi_close(struct symm_engine *engine)
{
    int flag = 0;

    if (!engine)
        return;
    /* In an engine that was never used, the duplication may be complete or not. */
    if (symm__mpi_enter_check() == SYMM_OK) {
        symm__mpi_lock();
        if (!engine->duplicated &&
            MPI_Test(&engine->pending, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            engine->duplicated = flag;
        if (engine->duplicated && !__atomic_load_n(&operation_left, __ATOMIC_ACQUIRE))
            MPI_Comm_free(&engine->world);
        symm__mpi_unlock();
    }
    if (engine->duplicated)
        free(engine);
    else /* MPI still writes into the engine */
        __atomic_store_n(&operation_left, 1, __ATOMIC_RELEASE);
}

static const char *mpi_version(const struct symm_engine *engine)
{
    return engine->version;
}

/* ---- Communicators ------------------------------------------------------------------- */

static symm_status mpi_id_create(struct symm_engine *engine, struct symm_engine_id *id)
{
    memset(id, 0, sizeof(*id));
    snprintf((char *)id->bytes, sizeof(id->bytes), "mpi %d %u %ld %.9f", engine->rank,
             ++engine->ids, (long)getpid(), symm__now());
    return SYMM_OK;
}

/* Errors on the communicator become codes; the default handler would end the job. */
static void return_errors(MPI_Comm comm)
{
    symm__mpi_lock();
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    symm__mpi_unlock();
}

/* Waits until the duplicate of MPI_COMM_WORLD is complete. */
static symm_status duplicate(struct symm_engine *engine,
                             const struct symm_engine_wait *wait)
{
    struct symm_mpi_wait begin =
        symm__mpi_wait(wait, NULL, "the start of the MPI engine", -1);
    symm_status status;

    if (engine->duplicated)
        return SYMM_OK;
    status = symm__mpi_complete(&begin, &engine->pending, 1);
    if (status != SYMM_OK)
        return status;
    engine->duplicated = true;
    return_errors(engine->world);
    return SYMM_OK;
}

static symm_status check_ranks(const struct symm_engine *engine, int rank, int size,
                               const int *world_rank)
{
    for (int m = 0; m < size; m++)
        if (world_rank[m] < 0 || world_rank[m] >= engine->size)
            return symm__mpi_fail(
                SYMM_ERR_JOB,
                "MPI_COMM_WORLD has %d ranks, so rank %d is none of "
                "them; was the job started by the launcher of another "
                "MPI than %s?",
                engine->size, world_rank[m], engine->version);
    if (world_rank[rank] != engine->rank)
        return symm__mpi_fail(SYMM_ERR_JOB,
                              "rank %d has rank %d in MPI_COMM_WORLD; the MPI engine "
                              "needs the same ranks in both",
                              world_rank[rank], engine->rank);
    return SYMM_OK;
}

static bool is_world(const struct symm_engine *engine, int size, const int *world_rank)
{
    for (int m = 0; m < size; m++)
        if (world_rank[m] != m)
            return false;
    return size == engine->size;
}

/* The tag of the messages by which the members of a communicator find each other. */
static int tag_of(const struct symm_engine *engine, const struct symm_engine_id *id)
{
    uint64_t hash = symm__fnv(SYMM_FNV_BASIS, id->bytes, sizeof(id->bytes));

    return (int)(symm__fnv_short(hash) % (uint32_t)engine->tag_most);
}

/*
 * Waits until all members have come: each sends a message to the first, which then sends one to
 * all. MPI makes a communicator without a deadline, so no rank may begin before all are there.
 */
static symm_status meet(struct symm_engine_comm *c, int tag,
                        const struct symm_engine_wait *given)
{
    struct symm_mpi_wait wait =
        symm__mpi_wait(given, NULL, "making a communicator", -1);
    MPI_Comm world = c->engine->world;
    MPI_Request *requests = calloc((size_t)c->size, sizeof(*requests));
    symm_status status = SYMM_OK;
    int others = c->rank == 0 ? c->size - 1 : 1;

    if (!requests)
        return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    for (int round = 0; round < 2 && status == SYMM_OK; round++) {
        int code = MPI_SUCCESS;

        symm__mpi_lock();
        for (int i = 0; i < others && code == MPI_SUCCESS; i++) {
            int peer = c->world_rank[c->rank == 0 ? i + 1 : 0];

            code = (c->rank == 0) == (round == 0)
                       ? MPI_Irecv(NULL, 0, MPI_BYTE, peer, tag, world, &requests[i])
                       : MPI_Isend(NULL, 0, MPI_BYTE, peer, tag, world, &requests[i]);
        }
        symm__mpi_unlock();
        status = code == MPI_SUCCESS ? symm__mpi_complete(&wait, requests, others)
                                     : symm__mpi_fail_code(code, wait.what);
    }
    free(requests);
    return status;
}

static symm_status make(struct symm_engine_comm *c, const struct symm_engine_id *id,
                        const struct symm_engine_wait *given)
{
    struct symm_engine *engine = c->engine;
    struct symm_mpi_wait wait =
        symm__mpi_wait(given, NULL, "making a communicator of all ranks", -1);
    int tag = tag_of(engine, id), code;
    MPI_Request request;
    MPI_Group all, some;
    symm_status status;

    if (is_world(engine, c->size, c->world_rank)) {
        symm__mpi_lock();
        code = MPI_Comm_idup(engine->world, &c->comm, &request);
        symm__mpi_unlock();
        return code == MPI_SUCCESS ? symm__mpi_complete(&wait, &request, 1)
                                   : symm__mpi_fail_code(code, "MPI_Comm_idup");
    }
    status = meet(c, tag, given);
    if (status != SYMM_OK)
        return status;
    symm__mpi_lock();
    code = MPI_Comm_group(engine->world, &all);
    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(all, c->size, c->world_rank, &some);
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_create_group(engine->world, some, tag, &c->comm);
            MPI_Group_free(&some);
        }
        MPI_Group_free(&all);
    }
    symm__mpi_unlock();
    return code == MPI_SUCCESS ? SYMM_OK
                               : symm__mpi_fail_code(code, "MPI_Comm_create_group");
}

static void comm_free(struct symm_engine_comm *c)
{
    pthread_mutex_destroy(&c->lock);
    free(c->world_rank);
    free(c->sent);
    free(c->received);
    free(c);
}

static symm_status mpi_comm_create(struct symm_engine *engine,
                                   const struct symm_engine_id *id, int rank, int size,
                                   const int *world_rank,
                                   const struct symm_engine_wait *wait,
                                   struct symm_engine_comm **comm)
{
    struct symm_engine_comm *c;
    symm_status status = symm__mpi_enter_check();

    if (status == SYMM_OK)
        status = check_ranks(engine, rank, size, world_rank);
    if (status == SYMM_OK)
        status = duplicate(engine, wait);
    if (status != SYMM_OK)
        return status;
    c = calloc(1, sizeof(*c));
    if (!c)
        return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    *c = (struct symm_engine_comm){.engine = engine, .rank = rank, .size = size};
    pthread_mutex_init(&c->lock, NULL);
    c->world_rank = malloc((size_t)size * sizeof(*c->world_rank));
    c->sent = calloc((size_t)size, sizeof(*c->sent));
    c->received = calloc((size_t)size, sizeof(*c->received));
    if (!c->world_rank || !c->sent || !c->received) {
        comm_free(c);
        return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    }
    memcpy(c->world_rank, world_rank, (size_t)size * sizeof(*world_rank));
    status = make(c, id, wait);
    if (status != SYMM_OK) { /* not freed: MPI may still write into c */
        __atomic_store_n(&operation_left, 1, __ATOMIC_RELEASE);
        return status;
    }
    return_errors(c->comm);
    *comm = c;
    return SYMM_OK;
}

/* The running operation polls the flag and returns. */
static void mpi_comm_abort(struct symm_engine_comm *comm)
{
    __atomic_store_n(&comm->aborted, 1, __ATOMIC_RELEASE);
}

/* MPI_Comm_free waits for no peer in the known MPIs, if all operations are complete. */
static void mpi_comm_destroy(struct symm_engine_comm *comm)
{
    if (!comm)
        return;
    if (__atomic_load_n(&comm->broken, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&operation_left, 1, __ATOMIC_RELEASE);
    } else if (symm__mpi_enter_check() == SYMM_OK) {
        symm__mpi_lock();
        MPI_Comm_free(&comm->comm);
        symm__mpi_unlock();
    }
    comm_free(comm);
}

/* Nothing is queued: `run` returns when it is complete. */
static symm_status mpi_comm_error(struct symm_engine_comm *comm)
{
    (void)comm;
    return SYMM_OK;
}

/* ---- Slots that MPI does not need: all data go through the engine's own memory ------------ */

static symm_status mpi_memory_register(struct symm_engine_comm *comm, void *ptr,
                                       size_t bytes, void **handle)
{
    (void)comm;
    (void)bytes;
    *handle = ptr;
    return SYMM_OK;
}

static void mpi_deregister(struct symm_engine_comm *comm, void *handle)
{
    (void)comm;
    (void)handle;
}

/* ---- The job's start ----------------------------------------------------------------- */

static symm_status keep_going(void *arg)
{
    (void)arg;
    return SYMM_OK;
}

static double start_seconds(void)
{
    const char *text = getenv("SYMM_INIT_TIMEOUT");
    const char *alias = getenv("SYMM_INIT_DEADLINE");
    double seconds = START_SECONDS;

    text = text && *text ? text : alias;
    if (text)
        (void)symm__seconds_read(text, &seconds);
    return seconds;
}

/* The allgather of symm_bootstrap. It passes memory of its own to MPI (mpi.h). */
static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    struct symm_engine *engine = arg;
    const struct symm_engine_wait given = {.until = symm__now() + start_seconds(),
                                           .stop = keep_going};
    struct symm_mpi_wait wait = symm__mpi_wait(&given, NULL, "the job's start", -1);
    size_t all = (size_t)engine->size * bytes;
    MPI_Request request;
    char *memory;
    int code;

    if (bytes > (1u << 20) || symm__mpi_enter_check() != SYMM_OK ||
        duplicate(engine, &given) != SYMM_OK)
        return 1;
    memory = malloc(bytes + all + 1);
    if (!memory)
        return 1;
    memcpy(memory, in, bytes);
    symm__mpi_lock();
    code = MPI_Iallgather(memory, (int)bytes, MPI_BYTE, memory + bytes, (int)bytes,
                          MPI_BYTE, engine->world, &request);
    symm__mpi_unlock();
    if (code != MPI_SUCCESS || symm__mpi_complete(&wait, &request, 1) != SYMM_OK) {
        __atomic_store_n(&operation_left, 1, __ATOMIC_RELEASE);
        return 1;
    }
    memcpy(out, memory + bytes, all);
    free(memory);
    return 0;
}

static symm_status mpi_bootstrap(struct symm_engine *engine, symm_bootstrap *bootstrap)
{
    *bootstrap = (symm_bootstrap){
        .size = sizeof(*bootstrap), .allgather = allgather, .arg = engine};
    return SYMM_OK;
}

SYMM_API extern const struct symm_engine_ops symm_engine;

const struct symm_engine_ops symm_engine = {
    .size = sizeof(symm_engine),
    .name = "mpi",
    .device = false,
    .open = mpi_open,
    .close = mpi_close,
    .version = mpi_version,
    .id_create = mpi_id_create,
    .comm_create = mpi_comm_create,
    .comm_abort = mpi_comm_abort,
    .comm_destroy = mpi_comm_destroy,
    .comm_error = mpi_comm_error,
    .objection = symm__mpi_objection,
    .run = symm__mpi_run,
    .memory_register = mpi_memory_register,
    .memory_deregister = mpi_deregister,
    .window_register = mpi_memory_register,
    .window_deregister = mpi_deregister,
    .bootstrap = mpi_bootstrap,
    .last_error = mpi_last_error,
};
