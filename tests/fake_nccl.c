/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl.c - see fake_nccl.h: communicators of the fake NCCL, and the rules of their use.
 *
 * Errors that end the program: a communicator used after its end, by two threads at a time, or
 * while one of its calls is in progress; memory that is registered when a communicator is
 * destroyed; a group that contains a communicator's end; a configuration that does not block; a
 * split with operations under way; no current device.
 */
#include "fake_nccl.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/clock.h"

pthread_mutex_t fake_nccl_mutex = PTHREAD_MUTEX_INITIALIZER;
_Thread_local int fake_nccl_depth;
static struct fake_comm *comms;

/* ---- Bookkeeping ----------------------------------------------------------------- */

static int count_pieces(const struct fake_piece *piece)
{
    int count = 0;

    for (; piece; piece = piece->next)
        count++;
    return count;
}

int fake_nccl_registered(void)
{
    int count = 0;

    pthread_mutex_lock(&fake_nccl_mutex);
    for (struct fake_comm *c = comms; c; c = c->next)
        count += count_pieces(c->registered);
    pthread_mutex_unlock(&fake_nccl_mutex);
    return count;
}

int fake_nccl_windows(void)
{
    int count = 0;

    pthread_mutex_lock(&fake_nccl_mutex);
    for (struct fake_comm *c = comms; c; c = c->next)
        count += count_pieces(c->windows);
    pthread_mutex_unlock(&fake_nccl_mutex);
    return count;
}

__attribute__((destructor)) static void at_exit(void)
{
    pthread_mutex_lock(&fake_nccl_mutex); /* a thread that was left may be making one */
    for (struct fake_comm *c = comms; c; c = c->next)
        /* One whose creation has not returned is nobody's yet. */
        if (c->state < FAKE_ABORTED && !(c->blocks && c->state == FAKE_INIT) &&
            !atomic_load(&c->abort)) {
            fprintf(stderr, "fake NCCL: rank %d leaves a communicator of %d\n", c->rank,
                    c->size);
            _exit(98);
        }
}

struct fake_comm *fake_nccl_use(void *given, const char *symbol)
{
    struct fake_comm *comm = given, *c;

    fake_nccl_count(symbol);
    pthread_mutex_lock(&fake_nccl_mutex);
    for (c = comms; c && c != comm; c = c->next)
        ;
    pthread_mutex_unlock(&fake_nccl_mutex);
    if (!c)
        fake_nccl_die("%s: %p is no communicator", symbol, given);
    if (comm->state == FAKE_ABORTED || comm->state == FAKE_DESTROYED)
        fake_nccl_die("%s on a communicator that was %s", symbol,
                      comm->state == FAKE_ABORTED ? "aborted" : "destroyed");
    return comm;
}

struct fake_comm *fake_nccl_use_ready(void *given, const char *symbol)
{
    struct fake_comm *comm = fake_nccl_use(given, symbol);

    if (comm->state != FAKE_READY)
        fake_nccl_die("%s on a communicator that is %s", symbol,
                      comm->state == FAKE_INIT ? "not ready" : "finalized");
    if (atomic_load(&comm->progress) > 0 && fake_nccl_depth == 0)
        fake_nccl_die("%s while a call is in progress", symbol);
    return comm;
}

void fake_nccl_enter(struct fake_comm *comm, const char *symbol)
{
    if (atomic_fetch_add(&comm->inside, 1) > 0)
        fake_nccl_die("%s while another thread is in a call", symbol);
    fake_nccl_hold(symbol, comm->rank, &comm->abort);
}

int fake_nccl_leave(struct fake_comm *comm, int result)
{
    atomic_fetch_sub(&comm->inside, 1);
    return atomic_load(&comm->abort) ? INTERNAL_ERROR : result;
}

/* ---- Version, id, communicators -------------------------------------------------- */

FAKE_API int ncclGetVersion(int *version);
FAKE_API int ncclGetVersion(int *version)
{
    const char *value = getenv("FAKE_NCCL_VERSION");

    *version = value ? atoi(value) : 22809;
    return 0;
}

FAKE_API const char *ncclGetErrorString(int result);
FAKE_API const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "unhandled system error" : "an error";
}

FAKE_API const char *ncclGetLastError(void *comm);
FAKE_API const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "as FAKE_NCCL_FAIL asks";
}

FAKE_API int ncclGetUniqueId(struct symm_nccl_id *id);
FAKE_API int ncclGetUniqueId(struct symm_nccl_id *id)
{
    int fd;

    fake_nccl_count("ncclGetUniqueId");
    if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclGetUniqueId", -1))
        return SYSTEM_ERROR;
    fd = memfd_create("fake_nccl",
                      MFD_CLOEXEC); /* stays open: peers find it by its path */
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct fake_shared)) != 0)
        fake_nccl_die("no memory for an id");
    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "/proc/%d/fd/%d", (int)getpid(), fd);
    return 0;
}

/* The user's variable overrules the configuration. */
static bool is_blocking(const struct symm_nccl_config *config)
{
    const char *value = getenv("NCCL_COMM_BLOCKING");

    return value ? atoi(value) != 0 : config->blocking != 0;
}

static void check_config(const struct symm_nccl_config *config, int size, int rank,
                         const char *symbol)
{
    if (config->magic != 0xcafebeef || config->size < sizeof(*config) ||
        config->version < 21800)
        fake_nccl_die("%s: a damaged configuration", symbol);
    if (config->blocking != 1)
        fake_nccl_die("%s: a communicator that does not block", symbol);
    if (size < 1 || size > FAKE_RANKS || rank < 0 || rank >= size)
        fake_nccl_die("%s: rank %d of %d", symbol, rank, size);
    if (fake_nccl_depth > 0)
        fake_nccl_die("%s in a group", symbol);
    if (!fake_nccl_has_device())
        fake_nccl_die("%s with no current device", symbol);
}

static bool is_ready(struct fake_comm *comm)
{
    return atomic_load(&comm->shared->attached) == comm->size && !comm->hangs &&
           (comm->ready_at == 0 || symm__now() >= comm->ready_at);
}

/* Joins the communicator whose memory has this path. */
static int attach(void **made, const char *path, int rank, int size,
                  const struct symm_nccl_config *config, const char *symbol)
{
    struct fake_comm *comm = calloc(1, sizeof(*comm));
    const bool blocks = is_blocking(config);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (!comm || fd < 0) {
        free(comm);
        return SYSTEM_ERROR;
    }
    comm->shared =
        mmap(NULL, sizeof(*comm->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->shared == MAP_FAILED)
        fake_nccl_die("an id cannot be mapped");
    comm->rank = rank;
    comm->size = size;
    comm->blocks = blocks;
    comm->max_ctas = config->max_ctas;
    comm->hangs = fake_nccl_named("FAKE_NCCL_HANG", symbol, rank);
    if (fake_nccl_named("FAKE_NCCL_SLOW", symbol, rank))
        comm->ready_at = symm__now() + 4;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->turn, NULL);
    pthread_mutex_lock(&fake_nccl_mutex);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&fake_nccl_mutex);
    if (!comm->hangs)
        atomic_fetch_add(&comm->shared->attached, 1);
    if (blocks) {
        while (!is_ready(comm))
            symm__sleep(FAKE_NCCL_PAUSE);
        comm->state = FAKE_READY;
    }
    *made = comm;
    return blocks ? SYMM_NCCL_SUCCESS : SYMM_NCCL_IN_PROGRESS;
}

FAKE_API int ncclCommInitRankConfig(void **made, int size, struct symm_nccl_id id,
                                    int rank, struct symm_nccl_config *config);
FAKE_API int ncclCommInitRankConfig(void **made, int size, struct symm_nccl_id id,
                                    int rank, struct symm_nccl_config *config)
{
    static const char symbol[] = "ncclCommInitRankConfig";

    fake_nccl_count(symbol);
    check_config(config, size, rank, symbol);
    fake_nccl_hold(symbol, rank, NULL);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, rank))
        return SYSTEM_ERROR;
    return attach(made, id.bytes, rank, size, config, symbol);
}

FAKE_API int ncclCommInitRank(void **made, int size, struct symm_nccl_id id, int rank);
FAKE_API int ncclCommInitRank(void **made, int size, struct symm_nccl_id id, int rank)
{
    struct symm_nccl_config config = SYMM_NCCL_CONFIG;

    return ncclCommInitRankConfig(made, size, id, rank, &config);
}

/* Waits until all ranks have the number in this field of theirs; false: an abort came first. */
static bool meet_split(struct fake_comm *comm, uint64_t number, bool taken)
{
    for (int r = 0; r < comm->size; r++) {
        struct fake_split *split = &comm->shared->split[r];

        while (atomic_load(taken ? &split->taken : &split->given) < number) {
            if (atomic_load(&comm->abort))
                return false;
            symm__sleep(FAKE_NCCL_PAUSE);
        }
    }
    return true;
}

/* The rank's place among those of its color; *first: the rank of its place 0. */
static int split_place(const struct fake_comm *comm, int *first, int *size)
{
    const struct fake_split *splits = comm->shared->split, *own = &splits[comm->rank];
    int place = 0, lowest = comm->rank;

    *size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (splits[r].color != own->color)
            continue;
        ++*size;
        place +=
            splits[r].key < own->key || (splits[r].key == own->key && r < comm->rank);
        if (splits[r].key < splits[lowest].key ||
            (splits[r].key == splits[lowest].key && r < lowest))
            lowest = r;
    }
    *first = lowest;
    return place;
}

static int split(struct fake_comm *parent, int color, int key, void **made,
                 const struct symm_nccl_config *config)
{
    static const char symbol[] = "ncclCommSplit";
    struct fake_split *own = &parent->shared->split[parent->rank];
    uint64_t number = atomic_load(&own->given) + 1;
    struct symm_nccl_id id;
    char path[sizeof(own->path)];
    int first, size, place;

    if (!meet_split(parent, number - 1, true) || ncclGetUniqueId(&id) != 0)
        return SYSTEM_ERROR;
    own->color = color;
    own->key = key;
    snprintf(own->path, sizeof(own->path), "%.63s", id.bytes);
    atomic_store(&own->given, number);
    if (!meet_split(parent, number, false))
        return INTERNAL_ERROR;
    place = split_place(parent, &first, &size);
    snprintf(path, sizeof(path), "%s", parent->shared->split[first].path);
    atomic_store(&own->taken, number);
    if (color == SYMM_NCCL_NO_COLOR)
        return SYMM_NCCL_SUCCESS;
    return attach(made, path, place, size, config, symbol);
}

FAKE_API int ncclCommSplit(void *given, int color, int key, void **made,
                           struct symm_nccl_config *config);
FAKE_API int ncclCommSplit(void *given, int color, int key, void **made,
                           struct symm_nccl_config *config)
{
    static const char symbol[] = "ncclCommSplit";
    struct fake_comm *comm = fake_nccl_use_ready(given, symbol);
    int result = SYSTEM_ERROR;

    *made = NULL;
    check_config(config, comm->size, comm->rank, symbol);
    if (atomic_load(&comm->flight) > 0)
        fake_nccl_die("%s with operations under way", symbol);
    fake_nccl_hold(symbol, comm->rank, NULL);
    fake_nccl_enter(comm, symbol);
    if (!fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        result = split(comm, color, key, made, config);
    return fake_nccl_leave(comm, result);
}

FAKE_API int ncclCommGetAsyncError(void *given, int *state);
FAKE_API int ncclCommGetAsyncError(void *given, int *state)
{
    struct fake_comm *comm = fake_nccl_use(given, "ncclCommGetAsyncError");

    if (comm->state == FAKE_INIT && is_ready(comm))
        comm->state = FAKE_READY;
    *state = comm->state == FAKE_INIT ? SYMM_NCCL_IN_PROGRESS : 0;
    if (atomic_load(&comm->progress) > 0) {
        atomic_fetch_sub(&comm->progress, 1);
        *state = SYMM_NCCL_IN_PROGRESS;
    } else if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclCommGetAsyncError", comm->rank) &&
               atomic_load(&comm->flight) > 0 &&
               atomic_fetch_add(&comm->looked, 1) > 0) {
        *state = SYSTEM_ERROR; /* not at once: the call itself has gone well */
    }
    return 0;
}

/* until: ends it early; NULL: nothing does. */
static void wait_for_none(atomic_int *count, const atomic_bool *until,
                          const char *symbol)
{
    for (int i = 0; atomic_load(count) > 0 && !(until && atomic_load(until)); i++) {
        if (i > 10000 * SECONDS)
            fake_nccl_die("%s: operations do not end", symbol);
        symm__sleep(FAKE_NCCL_PAUSE);
    }
}

static void end(struct fake_comm *comm, const char *symbol, enum fake_state state)
{
    if (fake_nccl_depth > 0)
        fake_nccl_die("%s in a group", symbol);
    comm->state = state;
    /* The box stays mapped: what a graph holds may still run, and finds the end. */
}

static void forget(struct fake_piece **list)
{
    pthread_mutex_lock(&fake_nccl_mutex);
    while (*list) {
        struct fake_piece *piece = *list;

        *list = piece->next;
        free(piece);
    }
    pthread_mutex_unlock(&fake_nccl_mutex);
}

FAKE_API int ncclCommFinalize(void *given);
FAKE_API int ncclCommFinalize(void *given)
{
    static const char symbol[] = "ncclCommFinalize";
    struct fake_comm *comm = fake_nccl_use_ready(given, symbol);

    fake_nccl_enter(comm, symbol);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        return fake_nccl_leave(comm, SYSTEM_ERROR);
    wait_for_none(&comm->flight, &comm->abort, symbol);
    if (!atomic_load(&comm->abort))
        comm->state = FAKE_FINALIZED;
    if (!comm->blocks)
        atomic_store(&comm->progress, 1);
    return fake_nccl_leave(comm,
                           comm->blocks ? SYMM_NCCL_SUCCESS : SYMM_NCCL_IN_PROGRESS);
}

FAKE_API int ncclCommDestroy(void *given);
FAKE_API int ncclCommDestroy(void *given)
{
    struct fake_comm *comm = fake_nccl_use(given, "ncclCommDestroy");

    if (atomic_load(&comm->flight) > 0)
        fake_nccl_die("ncclCommDestroy of a communicator with operations under way");
    if (comm->registered || comm->windows)
        fake_nccl_die("ncclCommDestroy of a communicator with memory registered");
    end(comm, "ncclCommDestroy", FAKE_DESTROYED);
    return 0;
}

FAKE_API int ncclCommAbort(void *given);
FAKE_API int ncclCommAbort(void *given)
{
    static const char symbol[] = "ncclCommAbort";
    struct fake_comm *comm = fake_nccl_use(given, symbol);

    if (fake_nccl_depth > 0)
        fake_nccl_die("%s in a group", symbol);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank)) {
        atomic_store(&comm->abort, true);
        return SYSTEM_ERROR;
    }
    /* Operations that are queued after others' see the end when it is their turn. */
    atomic_store(&comm->abort, true);
    fake_nccl_hold(symbol, comm->rank, NULL);
    wait_for_none(&comm->running, NULL, symbol);
    wait_for_none(&comm->inside, NULL, symbol);
    forget(&comm->registered);
    forget(&comm->windows);
    end(comm, symbol, FAKE_ABORTED);
    return 0;
}
