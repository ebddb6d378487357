/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl.c - see fake_nccl.h: NCCL's functions, and the rules of their use.
 *
 * Errors that end the program: a communicator used after its end, by two threads at a time, or
 * while one of its calls is in progress; memory registered twice, freed before it is
 * deregistered, or registered when a communicator is destroyed; windows that the ranks make in
 * different order; a group that ends before it begins, or contains a communicator's end; a
 * configuration that does not block; a split with operations under way; no current device;
 * transfers whose two ends disagree.
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

#define SYSTEM_ERROR   2
#define INTERNAL_ERROR 3
#define SECONDS        60 /* that anything is waited for here */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fake_comm *comms;
static _Thread_local int depth; /* of groups */
static _Thread_local struct {
    struct fake_comm *comm;
    void *stream;
    struct fake_work *work;
} grouped[64];
static _Thread_local int grouped_count;

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

    pthread_mutex_lock(&mutex);
    for (struct fake_comm *c = comms; c; c = c->next)
        count += count_pieces(c->registered);
    pthread_mutex_unlock(&mutex);
    return count;
}

int fake_nccl_windows(void)
{
    int count = 0;

    pthread_mutex_lock(&mutex);
    for (struct fake_comm *c = comms; c; c = c->next)
        count += count_pieces(c->windows);
    pthread_mutex_unlock(&mutex);
    return count;
}

__attribute__((destructor)) static void at_exit(void)
{
    pthread_mutex_lock(&mutex); /* a thread that was left may be making one */
    for (struct fake_comm *c = comms; c; c = c->next)
        /* One whose creation has not returned is nobody's yet. */
        if (c->state < FAKE_ABORTED && !(c->blocks && c->state == FAKE_INIT) &&
            !atomic_load(&c->abort)) {
            fprintf(stderr, "fake NCCL: rank %d leaves a communicator of %d\n", c->rank,
                    c->size);
            _exit(98);
        }
}

/* What every call on a communicator begins with. */
static struct fake_comm *use(void *given, const char *symbol)
{
    struct fake_comm *comm = given, *c;

    fake_nccl_count(symbol);
    pthread_mutex_lock(&mutex);
    for (c = comms; c && c != comm; c = c->next)
        ;
    pthread_mutex_unlock(&mutex);
    if (!c)
        fake_nccl_die("%s: %p is no communicator", symbol, given);
    if (comm->state == FAKE_ABORTED || comm->state == FAKE_DESTROYED)
        fake_nccl_die("%s on a communicator that was %s", symbol,
                      comm->state == FAKE_ABORTED ? "aborted" : "destroyed");
    return comm;
}

static struct fake_comm *use_ready(void *given, const char *symbol)
{
    struct fake_comm *comm = use(given, symbol);

    if (comm->state != FAKE_READY)
        fake_nccl_die("%s on a communicator that is %s", symbol,
                      comm->state == FAKE_INIT ? "not ready" : "finalized");
    if (atomic_load(&comm->progress) > 0 && depth == 0)
        fake_nccl_die("%s while a call is in progress", symbol);
    return comm;
}

/* Around a call that may be stuck. */
static void enter(struct fake_comm *comm, const char *symbol)
{
    if (atomic_fetch_add(&comm->inside, 1) > 0)
        fake_nccl_die("%s while another thread is in a call", symbol);
    fake_nccl_hold(symbol, comm->rank, &comm->abort);
}

/* The result of a call, or that of one that an abort has ended. */
static int leave(struct fake_comm *comm, int result)
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
    if (depth > 0)
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
    pthread_mutex_lock(&mutex);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&mutex);
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
    struct fake_comm *comm = use_ready(given, symbol);
    int result = SYSTEM_ERROR;

    *made = NULL;
    check_config(config, comm->size, comm->rank, symbol);
    if (atomic_load(&comm->flight) > 0)
        fake_nccl_die("%s with operations under way", symbol);
    fake_nccl_hold(symbol, comm->rank, NULL);
    enter(comm, symbol);
    if (!fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        result = split(comm, color, key, made, config);
    return leave(comm, result);
}

FAKE_API int ncclCommGetAsyncError(void *given, int *state);
FAKE_API int ncclCommGetAsyncError(void *given, int *state)
{
    struct fake_comm *comm = use(given, "ncclCommGetAsyncError");

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
    if (depth > 0)
        fake_nccl_die("%s in a group", symbol);
    comm->state = state;
    /* The box stays mapped: what a graph holds may still run, and finds the end. */
}

static void forget(struct fake_piece **list)
{
    pthread_mutex_lock(&mutex);
    while (*list) {
        struct fake_piece *piece = *list;

        *list = piece->next;
        free(piece);
    }
    pthread_mutex_unlock(&mutex);
}

FAKE_API int ncclCommFinalize(void *given);
FAKE_API int ncclCommFinalize(void *given)
{
    static const char symbol[] = "ncclCommFinalize";
    struct fake_comm *comm = use_ready(given, symbol);

    enter(comm, symbol);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        return leave(comm, SYSTEM_ERROR);
    wait_for_none(&comm->flight, &comm->abort, symbol);
    if (!atomic_load(&comm->abort))
        comm->state = FAKE_FINALIZED;
    if (!comm->blocks)
        atomic_store(&comm->progress, 1);
    return leave(comm, comm->blocks ? SYMM_NCCL_SUCCESS : SYMM_NCCL_IN_PROGRESS);
}

FAKE_API int ncclCommDestroy(void *given);
FAKE_API int ncclCommDestroy(void *given)
{
    struct fake_comm *comm = use(given, "ncclCommDestroy");

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
    struct fake_comm *comm = use(given, symbol);

    if (depth > 0)
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

/* ---- Registration ---------------------------------------------------------------- */

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
    struct fake_comm *comm = use_ready(given, "ncclCommRegister");

    if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclCommRegister", comm->rank))
        return SYSTEM_ERROR;
    pthread_mutex_lock(&mutex);
    *handle = piece_add(&comm->registered, at, bytes, "ncclCommRegister");
    pthread_mutex_unlock(&mutex);
    return 0;
}

FAKE_API int ncclCommDeregister(void *given, void *handle);
FAKE_API int ncclCommDeregister(void *given, void *handle)
{
    struct fake_comm *comm = use(given, "ncclCommDeregister");

    pthread_mutex_lock(&mutex);
    piece_remove(&comm->registered, handle, "ncclCommDeregister");
    pthread_mutex_unlock(&mutex);
    return 0;
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
    struct fake_comm *comm = use_ready(given, "ncclCommWindowRegister");

    if (flags != SYMM_NCCL_SYMMETRIC)
        fake_nccl_die("ncclCommWindowRegister: flags %d", flags);
    enter(comm, "ncclCommWindowRegister");
    meet_window(comm, bytes);
    if (fake_nccl_named("FAKE_NCCL_FAIL", "ncclCommWindowRegister", comm->rank) ||
        atomic_load(&comm->abort))
        return leave(comm, SYSTEM_ERROR);
    pthread_mutex_lock(&mutex);
    *handle = piece_add(&comm->windows, at, bytes, "ncclCommWindowRegister");
    pthread_mutex_unlock(&mutex);
    return leave(comm, 0);
}

FAKE_API int ncclCommWindowDeregister(void *given, void *handle);
FAKE_API int ncclCommWindowDeregister(void *given, void *handle)
{
    struct fake_comm *comm = use(given, "ncclCommWindowDeregister");

    pthread_mutex_lock(&mutex);
    piece_remove(&comm->windows, handle, "ncclCommWindowDeregister");
    pthread_mutex_unlock(&mutex);
    return 0;
}

/* ---- Operations ------------------------------------------------------------------ */

/* Queues the work, unless the call is stuck and its communicator is aborted. */
static int launch(struct fake_comm *comm, const char *symbol, void *stream,
                  struct fake_work *work)
{
    enter(comm, symbol);
    if (!atomic_load(&comm->abort))
        return leave(comm, fake_nccl_launch(stream, work));
    fake_work_free(work);
    return leave(comm, INTERNAL_ERROR);
}

FAKE_API int ncclGroupStart(void);
FAKE_API int ncclGroupStart(void)
{
    fake_nccl_count("ncclGroupStart");
    depth++;
    return 0;
}

FAKE_API int ncclGroupEnd(void);
FAKE_API int ncclGroupEnd(void)
{
    int result = 0;

    fake_nccl_count("ncclGroupEnd");
    if (depth == 0)
        fake_nccl_die("ncclGroupEnd without ncclGroupStart");
    if (--depth > 0)
        return 0;
    for (int i = 0; i < grouped_count; i++)
        result =
            launch(grouped[i].comm, "ncclGroupEnd", grouped[i].stream, grouped[i].work);
    grouped_count = 0;
    return result;
}

/* The group's work on this communicator and stream, or one of its own. */
static struct fake_work *work_of(struct fake_comm *comm, void *stream,
                                 const char *symbol)
{
    struct fake_work *work;

    for (int i = 0; i < grouped_count; i++)
        if (grouped[i].comm == comm && grouped[i].stream == stream)
            return grouped[i].work;
    work = calloc(1, sizeof(*work));
    if (!work || grouped_count == 64)
        fake_nccl_die("no memory");
    work->comm = comm;
    work->hangs = fake_nccl_named("FAKE_NCCL_HANG", symbol, comm->rank);
    if (depth > 0) {
        grouped[grouped_count].comm = comm;
        grouped[grouped_count].stream = stream;
        grouped[grouped_count++].work = work;
    }
    return work;
}

static const symm_dtype dtypes[] = {SYMM_INT8,     SYMM_UINT8,       SYMM_INT32,
                                    SYMM_UINT32,   SYMM_INT64,       SYMM_UINT64,
                                    SYMM_FLOAT16,  SYMM_FLOAT32,     SYMM_FLOAT64,
                                    SYMM_BFLOAT16, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2};
static const symm_op ops[] = {SYMM_SUM, SYMM_PROD, SYMM_MAX, SYMM_MIN, SYMM_AVG};

static size_t size_of(int type)
{
    if (type < 0 || type > 11)
        fake_nccl_die("data type %d", type);
    return symm_dtype_size(dtypes[type]);
}

static struct fake_transfer transfer(bool sends, int peer, const void *at, size_t count,
                                     int type, const char *symbol)
{
    struct fake_transfer t = {.sends = sends,
                              .peer = peer,
                              .at = (char *)(uintptr_t)at,
                              .bytes = count * size_of(type)};

    t.head.type = type;
    t.head.count = count;
    for (; *symbol; symbol++)
        t.head.call = t.head.call * 31 + (uint8_t)*symbol;
    return t;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* What comes may be written before what goes has been read. */
static void check_apart(const struct fake_work *work)
{
    for (int i = 0; i < work->count; i++)
        for (int j = 0; j < work->count; j++) {
            const struct fake_transfer *from = &work->transfers[i],
                                       *to = &work->transfers[j];

            if (from->sends && !to->sends &&
                overlap(from->at, from->bytes, to->at, to->bytes))
                fake_nccl_die("a group sends and receives in the same memory");
        }
}

/* In place means that the one block lies where it belongs in the other. */
static void check_place(const struct fake_comm *comm, const void *all, const void *one,
                        size_t bytes, const char *symbol)
{
    if (overlap(all, (size_t)comm->size * bytes, one, bytes) &&
        one != (const char *)all + (size_t)comm->rank * bytes)
        fake_nccl_die("%s: in and out overlap, and not in its way", symbol);
}

static int one_sided(void *given, bool sends, const void *at, size_t count, int type,
                     int peer, void *stream)
{
    const char *symbol = sends ? "ncclSend" : "ncclRecv";
    struct fake_comm *comm = use_ready(given, symbol);
    struct fake_work *work;

    if (peer < 0 || peer >= comm->size)
        fake_nccl_die("%s: peer %d of %d", symbol, peer, comm->size);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        return SYSTEM_ERROR;
    work = work_of(comm, stream, symbol);
    fake_work_add(work, transfer(sends, peer, at, count, type, "p2p"));
    check_apart(work);
    return depth > 0 ? 0 : launch(comm, symbol, stream, work);
}

FAKE_API int ncclSend(const void *at, size_t count, int type, int peer, void *comm,
                      void *stream);
FAKE_API int ncclSend(const void *at, size_t count, int type, int peer, void *comm,
                      void *stream)
{
    return one_sided(comm, true, at, count, type, peer, stream);
}

FAKE_API int ncclRecv(void *at, size_t count, int type, int peer, void *comm,
                      void *stream);
FAKE_API int ncclRecv(void *at, size_t count, int type, int peer, void *comm,
                      void *stream)
{
    return one_sided(comm, false, at, count, type, peer, stream);
}

/* Collectives come alone here, never in a group. */
static struct fake_work *collective(void *given, const char *symbol, void *stream)
{
    if (depth > 0)
        fake_nccl_die("%s in a group", symbol);
    return work_of(use_ready(given, symbol), stream, symbol);
}

/* Each rank's part comes to a place of its own; then they are reduced. */
static void stage(struct fake_work *work, void *out, size_t count, int type, int op,
                  const char *symbol)
{
    int size = work->comm->size;

    if (op < 0 || op > 4)
        fake_nccl_die("%s: reduction %d", symbol, op);
    work->element = size_of(type);
    work->elements = count;
    work->out = out;
    work->reduce = symm__reduce_find(SYMM_ISA_C, dtypes[type], ops[op]);
    work->staged = calloc((size_t)size * count + 1, work->element);
    if (!work->staged)
        fake_nccl_die("no memory");
    for (int r = 0; r < size; r++)
        fake_work_add(work, transfer(false, r,
                                     work->staged + (size_t)r * count * work->element,
                                     count, type, symbol));
}

static int end_collective(struct fake_work *work, const char *symbol, void *stream)
{
    if (!fake_nccl_named("FAKE_NCCL_FAIL", symbol, work->comm->rank))
        return launch(work->comm, symbol, stream, work);
    fake_work_free(work);
    return SYSTEM_ERROR;
}

FAKE_API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                           void *comm, void *stream);
FAKE_API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                           void *comm, void *stream)
{
    static const char symbol[] = "ncclAllReduce";
    struct fake_work *work = collective(comm, symbol, stream);

    stage(work, out, count, type, op, symbol);
    for (int r = 0; r < work->comm->size; r++)
        fake_work_add(work, transfer(true, r, in, count, type, symbol));
    return end_collective(work, symbol, stream);
}

FAKE_API int ncclReduceScatter(const void *in, void *out, size_t count, int type,
                               int op, void *comm, void *stream);
FAKE_API int ncclReduceScatter(const void *in, void *out, size_t count, int type,
                               int op, void *comm, void *stream)
{
    static const char symbol[] = "ncclReduceScatter";
    struct fake_work *work = collective(comm, symbol, stream);

    check_place(work->comm, in, out, count * size_of(type), symbol);
    stage(work, out, count, type, op, symbol);
    for (int r = 0; r < work->comm->size; r++)
        fake_work_add(work,
                      transfer(true, r,
                               (const char *)in + (size_t)r * count * size_of(type),
                               count, type, symbol));
    return end_collective(work, symbol, stream);
}

FAKE_API int ncclAllGather(const void *in, void *out, size_t count, int type,
                           void *comm, void *stream);
FAKE_API int ncclAllGather(const void *in, void *out, size_t count, int type,
                           void *comm, void *stream)
{
    static const char symbol[] = "ncclAllGather";
    struct fake_work *work = collective(comm, symbol, stream);

    check_place(work->comm, out, in, count * size_of(type), symbol);
    for (int r = 0; r < work->comm->size; r++) {
        char *block = (char *)out + (size_t)r * count * size_of(type);

        fake_work_add(work, transfer(true, r, in, count, type, symbol));
        fake_work_add(work, transfer(false, r, block, count, type, symbol));
    }
    return end_collective(work, symbol, stream);
}

FAKE_API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                           void *comm, void *stream);
FAKE_API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                           void *comm, void *stream)
{
    static const char symbol[] = "ncclBroadcast";
    struct fake_work *work = collective(comm, symbol, stream);

    for (int r = 0; r < work->comm->size && work->comm->rank == root; r++)
        fake_work_add(work, transfer(true, r, in, count, type, symbol));
    fake_work_add(work, transfer(false, root, out, count, type, symbol));
    return end_collective(work, symbol, stream);
}
