/* SPDX-License-Identifier: MIT */
/*
 * mpi_run.c - operations of the MPI engine: collectives, sends and receives.
 *
 * MPI moves bytes; sums are made by the library's own reductions (kernels/reduce/reduce.h), in
 * rank order, each element by one rank: so every dtype and op has the semantics of symm.h,
 * with the same bits on all ranks, run after run, and NaNs as symm.h promises. An all_reduce is
 * an all_to_all of slices, a sum, and an all_gather; a small one an all_gather and a sum.
 *
 * All data go in pieces through memory of the engine (mpi.h says why): of a collective at most
 * PIECE_BYTES come in at a time, and as many go out. Sends and receives of a group progress
 * independently of each other, each with one piece under way; the k-th send to a rank meets its
 * k-th receive by a number in the tag.
 */
#include "engine/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES   (4u << 20)  /* of all ranks' blocks of a collective */
#define SMALL_BYTES   (64u << 10) /* gathered from all: one step instead of two */
#define MESSAGE_BYTES (512u << 10)
#define TAGS          32768u /* what every MPI allows */

/* A collective that is under way. */
struct piece {
    struct symm_engine_comm *comm;
    const struct symm_engine_request *request;
    struct symm_mpi_wait wait;
    symm_reduce_fn reduce; /* NULL: no reduction */
    size_t element;        /* bytes */
    char *out, *in;        /* what is sent, and what comes */
    const void **from;     /* [ranks]: the parts of a sum */
};

static size_t element_of(symm_dtype dtype)
{
    switch (dtype) {
#define ELEMENT(name, value, json, bytes)                                              \
    case SYMM_##name:                                                                  \
        return bytes;
        SYMM_DTYPE_MAP(ELEMENT)
#undef ELEMENT
    }
    return 0;
}

const char *symm__mpi_objection(const struct symm_engine *engine,
                                const struct symm_engine_request *request)
{
    bool collective = request->what == SYMM_ENGINE_COLLECTIVE;

    (void)engine;
    if (collective && request->kind >= SYMM_KIND_COUNT)
        return "the MPI engine does not know the collective";
    if (collective && request->kind == SYMM_KIND_BARRIER)
        return NULL;
    if (!element_of(request->dtype))
        return "the MPI engine does not know the dtype";
    if (collective && symm__kind_reduces(request->kind) &&
        !symm__reduce_find(symm__isa_best(), request->dtype, request->op))
        return "the MPI engine has no such reduction";
    return NULL;
}

/* ---- Collectives --------------------------------------------------------------------- */

static char *user_out(const struct piece *p, size_t element)
{
    return (char *)p->request->out + element * p->element;
}

static const char *user_in(const struct piece *p, size_t element)
{
    return (const char *)p->request->in + element * p->element;
}

enum move { GATHER, EXCHANGE, SPREAD, MEET };

/* One operation of MPI, of `bytes` for each rank. */
static symm_status move(const struct piece *p, enum move move, size_t bytes)
{
    MPI_Comm comm = p->comm->comm;
    MPI_Request request = MPI_REQUEST_NULL;
    int n = (int)bytes, code;

    symm__mpi_lock();
    if (move == GATHER)
        code = MPI_Iallgather(p->out, n, MPI_BYTE, p->in, n, MPI_BYTE, comm, &request);
    else if (move == EXCHANGE)
        code = MPI_Ialltoall(p->out, n, MPI_BYTE, p->in, n, MPI_BYTE, comm, &request);
    else if (move == SPREAD)
        code = MPI_Ibcast(p->out, n, MPI_BYTE, p->request->root, comm, &request);
    else
        code = MPI_Ibarrier(comm, &request);
    symm__mpi_unlock();
    if (code != MPI_SUCCESS)
        return symm__mpi_fail_code(code, p->wait.what);
    return symm__mpi_complete(&p->wait, &request, 1);
}

/* Reduces all ranks' parts in p->in, of `count` elements each, into one. */
static void combine(const struct piece *p, void *to, size_t count)
{
    void *const dst[1] = {to};

    for (int r = 0; r < p->comm->size; r++)
        p->from[r] = p->in + (size_t)r * count * p->element;
    p->reduce(dst, 1, p->from, p->comm->size, count);
}

static symm_status broadcast(const struct piece *p, size_t at, size_t count)
{
    size_t bytes = count * p->element;
    symm_status status;

    if (p->comm->rank == p->request->root)
        memcpy(p->out, user_in(p, at), bytes);
    status = move(p, SPREAD, bytes);
    if (status == SYMM_OK)
        memcpy(user_out(p, at), p->out, bytes);
    return status;
}

/* Copies every rank's part of its block to the caller's memory, if the operation's `status` is
 * SYMM_OK. */
static symm_status take_blocks(const struct piece *p, size_t at, size_t bytes,
                               symm_status status)
{
    for (int r = 0; status == SYMM_OK && r < p->comm->size; r++)
        memcpy(user_out(p, (size_t)r * p->request->count + at),
               p->in + (size_t)r * bytes, bytes);
    return status;
}

static symm_status all_gather(const struct piece *p, size_t at, size_t count)
{
    size_t bytes = count * p->element;

    memcpy(p->out, user_in(p, at), bytes);
    return take_blocks(p, at, bytes, move(p, GATHER, bytes));
}

/* Sends the same part of every rank's block to that rank. */
static symm_status exchange(const struct piece *p, size_t at, size_t count)
{
    size_t bytes = count * p->element;

    for (int r = 0; r < p->comm->size; r++)
        memcpy(p->out + (size_t)r * bytes,
               user_in(p, (size_t)r * p->request->count + at), bytes);
    return move(p, EXCHANGE, bytes);
}

static symm_status all_to_all(const struct piece *p, size_t at, size_t count)
{
    return take_blocks(p, at, count * p->element, exchange(p, at, count));
}

static symm_status reduce_scatter(const struct piece *p, size_t at, size_t count)
{
    symm_status status = exchange(p, at, count);

    if (status == SYMM_OK)
        combine(p, user_out(p, at), count);
    return status;
}

static symm_status all_reduce(const struct piece *p, size_t at, size_t count)
{
    size_t n = (size_t)p->comm->size, slice = (count + n - 1) / n;
    size_t bytes = count * p->element;
    symm_status status;

    memcpy(p->out, user_in(p, at), bytes);
    if (bytes * n <= SMALL_BYTES) {
        status = move(p, GATHER, bytes);
        if (status == SYMM_OK)
            combine(p, user_out(p, at), count);
        return status;
    }
    /* so that the sum has no stale values */
    memset(p->out + bytes, 0, (slice * n - count) * p->element);
    status = move(p, EXCHANGE, slice * p->element);
    if (status != SYMM_OK)
        return status;
    combine(p, p->out, slice);
    status = move(p, GATHER, slice * p->element);
    if (status == SYMM_OK)
        memcpy(user_out(p, at), p->in, bytes);
    return status;
}

static symm_status run_piece(const struct piece *p, size_t at, size_t count)
{
    switch (p->request->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return all_reduce(p, at, count);
    case SYMM_KIND_REDUCE_SCATTER:
        return reduce_scatter(p, at, count);
    case SYMM_KIND_ALL_GATHER:
        return all_gather(p, at, count);
    case SYMM_KIND_BROADCAST:
        return broadcast(p, at, count);
    case SYMM_KIND_ALL_TO_ALL:
        return all_to_all(p, at, count);
    default:
        return move(p, MEET, 0);
    }
}

/* How many elements at a time: the request's own meaning of count. */
static size_t piece_count(const struct piece *p)
{
    size_t n = (size_t)p->comm->size, each = PIECE_BYTES / n / p->element;
    bool whole = p->request->kind == SYMM_KIND_ALL_REDUCE ||
                 p->request->kind == SYMM_KIND_BROADCAST;

    /* An all_reduce's slices are rounded up: they still fit. */
    each = whole ? (each - 1) * n : each;
    return p->request->count < each ? p->request->count : each;
}

static symm_status run_collective(struct symm_engine_comm *comm,
                                  const struct symm_engine_request *request,
                                  const struct symm_engine_wait *wait)
{
    struct piece p = {
        .comm = comm,
        .request = request,
        .wait = symm__mpi_wait(wait, comm, symm__kind_name(request->kind), -1)};
    size_t n = (size_t)comm->size, most, room;
    symm_status status = SYMM_OK;

    p.element = request->kind == SYMM_KIND_BARRIER ? 1 : element_of(request->dtype);
    if (symm__kind_reduces(request->kind))
        p.reduce = symm__reduce_find(symm__isa_best(), request->dtype, request->op);
    if (request->count == 0 || request->kind == SYMM_KIND_BARRIER)
        return move(&p, MEET, 0); /* count 0 still synchronises */
    most = piece_count(&p);
    /* all_reduce: the gathered small one has n times `most`, the sliced one n more. */
    room = (most + 1) * n * p.element;
    room = room < PIECE_BYTES ? room : PIECE_BYTES;
    p.from = calloc(n, sizeof(void *));
    p.out = p.from ? malloc(2 * room) : NULL;
    if (!p.out) {
        free(p.from);
        return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for %s: %zu bytes",
                              p.wait.what, 2 * room);
    }
    p.in = p.out + room;
    for (size_t at = 0; at < request->count && status == SYMM_OK; at += most) {
        size_t left = request->count - at;

        status = run_piece(&p, at, left < most ? left : most);
    }
    free(p.from);
    if (status == SYMM_OK) /* else MPI may still use it: it stays */
        free(p.out);
    return status;
}

/* ---- Sends and receives -------------------------------------------------------------- */

/* One operation of a group: a piece of it is under way until all is done. */
struct message {
    const struct symm_engine_request *request;
    size_t bytes, at; /* of all, before the piece */
    char *memory;     /* of a piece */
    int tag;
};

static size_t piece_of(const struct message *m)
{
    size_t left = m->bytes - m->at;

    return left < MESSAGE_BYTES ? left : MESSAGE_BYTES;
}

static int message_begin(struct symm_engine_comm *comm, const struct message *m,
                         MPI_Request *request)
{
    int bytes = (int)piece_of(m), peer = m->request->peer;

    if (m->request->what == SYMM_ENGINE_RECV)
        return MPI_Irecv(m->memory, bytes, MPI_BYTE, peer, m->tag, comm->comm, request);
    if (bytes > 0)
        memcpy(m->memory, (const char *)m->request->in + m->at, (size_t)bytes);
    return MPI_Isend(m->memory, bytes, MPI_BYTE, peer, m->tag, comm->comm, request);
}

/* A piece is complete: *more says whether another one follows. */
static symm_status message_end(const struct symm_engine_comm *comm, struct message *m,
                               const MPI_Status *mpi, bool *more)
{
    size_t bytes = piece_of(m);
    int came = 0;

    *more = false;
    if (m->request->what == SYMM_ENGINE_RECV) {
        MPI_Get_count(mpi, MPI_BYTE, &came);
        if ((size_t)came != bytes)
            return symm__mpi_fail(
                SYMM_ERR_MISMATCH,
                "rank %d sends %zu bytes where %zu are to be received",
                comm->world_rank[m->request->peer], m->at + (size_t)came, m->bytes);
        if (bytes > 0)
            memcpy((char *)m->request->out + m->at, m->memory, bytes);
    }
    m->at += bytes;
    *more = m->at < m->bytes;
    return SYMM_OK;
}

/* The k-th send to a rank meets the k-th receive there, in whatever order they begin. */
static void number(struct symm_engine_comm *comm, struct message *messages, int count)
{
    pthread_mutex_lock(&comm->lock);
    for (int i = 0; i < count; i++) {
        const struct symm_engine_request *request = messages[i].request;
        uint32_t *counter =
            request->what == SYMM_ENGINE_RECV ? comm->received : comm->sent;

        messages[i].tag = (int)(counter[request->peer]++ % TAGS);
    }
    pthread_mutex_unlock(&comm->lock);
}

/* A group that is under way. */
struct group {
    struct symm_engine_comm *comm;
    struct message *messages;
    MPI_Request *requests;
    MPI_Status *statuses;
    int *which; /* of the requests have been complete */
    int count;
    struct symm_mpi_wait wait;
};

static symm_status group_code(const struct group *g, int code, int index)
{
    const struct message *m = &g->messages[index];
    int kind = MPI_SUCCESS;

    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE)
        return symm__mpi_fail(SYMM_ERR_MISMATCH,
                              "rank %d sends more than the %zu bytes that are to be "
                              "received",
                              g->comm->world_rank[m->request->peer], m->bytes);
    return symm__mpi_fail_code(code, g->wait.what);
}

/* Continues the messages of `which`, whose requests are complete. */
static symm_status group_go_on(const struct group *g, int done, bool failed)
{
    for (int i = 0; i < done; i++) {
        int index = g->which[i], code = failed ? g->statuses[i].MPI_ERROR : MPI_SUCCESS;
        bool more = false;
        symm_status status = SYMM_OK;

        if (code == MPI_SUCCESS)
            status = message_end(g->comm, &g->messages[index], &g->statuses[i], &more);
        if (status == SYMM_OK && more)
            code = message_begin(g->comm, &g->messages[index], &g->requests[index]);
        if (code != MPI_SUCCESS)
            status = group_code(g, code, index);
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

static symm_status group_run(const struct group *g)
{
    int code = MPI_SUCCESS, begun = 0;

    symm__mpi_lock();
    for (; begun < g->count && code == MPI_SUCCESS; begun++)
        code = message_begin(g->comm, &g->messages[begun], &g->requests[begun]);
    symm__mpi_unlock();
    if (code != MPI_SUCCESS)
        return group_code(g, code, begun - 1);
    for (;;) {
        int done = 0, kind = MPI_SUCCESS;
        symm_status status = SYMM_OK;

        symm__mpi_lock();
        code = MPI_Testsome(g->count, g->requests, &done, g->which, g->statuses);
        MPI_Error_class(code, &kind);
        if (code != MPI_SUCCESS && kind != MPI_ERR_IN_STATUS)
            status = symm__mpi_fail_code(code, g->wait.what);
        else if (done != MPI_UNDEFINED)
            status = group_go_on(g, done, code != MPI_SUCCESS);
        symm__mpi_unlock();
        if (status != SYMM_OK || done == MPI_UNDEFINED) /* none is under way */
            return status;
        if (done == 0)
            status = symm__mpi_pause(&g->wait);
        if (status != SYMM_OK)
            return status;
    }
}

static void group_free(struct group *g)
{
    for (int i = 0; g->messages && i < g->count; i++)
        free(g->messages[i].memory);
    free(g->messages);
    free(g->requests);
    free(g->statuses);
    free(g->which);
}

static symm_status group_create(struct group *g,
                                const struct symm_engine_request *requests)
{
    size_t count = (size_t)g->count;
    bool all;

    g->messages = calloc(count, sizeof(*g->messages));
    g->requests = malloc(count * sizeof(*g->requests));
    g->statuses = calloc(count, sizeof(*g->statuses));
    g->which = calloc(count, sizeof(*g->which));
    all = g->messages && g->requests && g->statuses && g->which;
    for (int i = 0; all && i < g->count; i++) {
        struct message *m = &g->messages[i];

        m->request = &requests[i];
        m->bytes = requests[i].count * element_of(requests[i].dtype);
        m->memory = malloc(piece_of(m) + 1);
        g->requests[i] = MPI_REQUEST_NULL;
        all = m->memory != NULL;
    }
    if (all)
        return SYMM_OK;
    group_free(g);
    return symm__mpi_fail(SYMM_ERR_NOMEM, "no memory for %d sends and receives",
                          g->count);
}

static symm_status run_group(struct symm_engine_comm *comm,
                             const struct symm_engine_request *requests, int count,
                             const struct symm_engine_wait *wait)
{
    struct group g = {.comm = comm, .count = count};
    const char *what = requests[0].what == SYMM_ENGINE_RECV ? "recv" : "send";
    int peer = comm->world_rank[requests[0].peer];
    symm_status status = group_create(&g, requests);

    if (status != SYMM_OK)
        return status;
    g.wait = count == 1
                 ? symm__mpi_wait(wait, comm, what, peer)
                 : symm__mpi_wait(wait, comm, "a group of sends and receives", -1);
    number(comm, g.messages, count);
    status = group_run(&g);
    if (status == SYMM_OK) /* else MPI may still use it: it stays */
        group_free(&g);
    return status;
}

/* ---- Both ---------------------------------------------------------------------------- */

symm_status symm__mpi_run(struct symm_engine_comm *comm,
                          const struct symm_engine_request *requests, int count,
                          void *stream, const struct symm_engine_wait *wait)
{
    symm_status status = symm__mpi_enter_check();

    (void)stream;
    if (status == SYMM_OK && __atomic_load_n(&comm->broken, __ATOMIC_ACQUIRE))
        status = symm__mpi_fail(SYMM_ERR_ABORTED,
                                "an earlier operation of this communicator has failed");
    if (status == SYMM_OK && __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE))
        status = symm__mpi_fail(SYMM_ERR_ABORTED, "the communicator was aborted");
    if (status != SYMM_OK || count == 0)
        return status;
    status = requests[0].what == SYMM_ENGINE_COLLECTIVE
                 ? run_collective(comm, &requests[0], wait)
                 : run_group(comm, requests, count, wait);
    if (status != SYMM_OK)
        __atomic_store_n(&comm->broken, 1, __ATOMIC_RELEASE);
    return status;
}
