/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl_operations.c - groups, messages and collectives of the fake NCCL.
 *
 * Errors that end the program: a group that ends before it begins, or contains a collective; data
 * that is received where it is sent from; transfers whose two ends disagree (fake_nccl_data.c).
 */
#include "fake_nccl.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    struct fake_comm *comm;
    void *stream;
    struct fake_work *work;
} grouped[64];
static _Thread_local int grouped_count;

/* Queues the work, unless the call is stuck and its communicator is aborted. */
static int launch(struct fake_comm *comm, const char *symbol, void *stream,
                  struct fake_work *work)
{
    fake_nccl_enter(comm, symbol);
    if (!atomic_load(&comm->abort))
        return fake_nccl_leave(comm, fake_nccl_launch(stream, work));
    fake_work_free(work);
    return fake_nccl_leave(comm, INTERNAL_ERROR);
}

FAKE_API int ncclGroupStart(void);
FAKE_API int ncclGroupStart(void)
{
    fake_nccl_count("ncclGroupStart");
    fake_nccl_depth++;
    return 0;
}

FAKE_API int ncclGroupEnd(void);
FAKE_API int ncclGroupEnd(void)
{
    int result = 0;

    fake_nccl_count("ncclGroupEnd");
    if (fake_nccl_depth == 0)
        fake_nccl_die("ncclGroupEnd without ncclGroupStart");
    if (--fake_nccl_depth > 0)
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
    if (fake_nccl_depth > 0) {
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
    struct fake_comm *comm = fake_nccl_use_ready(given, symbol);
    struct fake_transfer t = transfer(sends, peer, at, count, type, "p2p");
    struct fake_work *work;

    if (peer < 0 || peer >= comm->size)
        fake_nccl_die("%s: peer %d of %d", symbol, peer, comm->size);
    if (fake_nccl_named("FAKE_NCCL_FAIL", symbol, comm->rank))
        return SYSTEM_ERROR;
    work = work_of(comm, stream, symbol);
    if (t.bytes > FAKE_LL_BYTES && peer != comm->rank)
        t.head.registered = fake_nccl_is_registered(comm, t.at, t.bytes,
                                                    fake_nccl_is_capturing(stream));
    fake_work_add(work, t);
    check_apart(work);
    return fake_nccl_depth > 0 ? 0 : launch(comm, symbol, stream, work);
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
    if (fake_nccl_depth > 0)
        fake_nccl_die("%s in a group", symbol);
    return work_of(fake_nccl_use_ready(given, symbol), stream, symbol);
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

/* Collectives with much data go without a copy, too, if both arrays allow it. */
static void mark(struct fake_work *work, const void *in, size_t in_bytes,
                 const void *out, size_t out_bytes, void *stream)
{
    const bool captured = fake_nccl_is_capturing(stream);
    const bool registered =
        in_bytes + out_bytes > 2 * FAKE_LL_BYTES &&
        (!in || fake_nccl_is_registered(work->comm, in, in_bytes, captured)) &&
        fake_nccl_is_registered(work->comm, out, out_bytes, captured);

    for (int i = 0; i < work->count; i++)
        work->transfers[i].head.registered = registered;
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
    mark(work, in, count * size_of(type), out, count * size_of(type), stream);
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
    mark(work, in, (size_t)work->comm->size * count * size_of(type), out,
         count * size_of(type), stream);
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
    mark(work, in, count * size_of(type), out,
         (size_t)work->comm->size * count * size_of(type), stream);
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
    mark(work, NULL, 0, out, count * size_of(type), stream);
    return end_collective(work, symbol, stream);
}
