/* SPDX-License-Identifier: MIT */
/*
 * send_recv.c - sends and receives, of any memory: through rings in the pads (ring.h), or by the
 * team's engine.
 *
 * Engine: a batch is one group: its operations may complete in any order. With SYMM_P2P_PAIRS=1,
 * and on a device in a team over several hosts, where a communicator of all ranks may not exist,
 * each pair of ranks has its own communicator, which both ranks make at its first use. A batch
 * makes and uses them in ascending order of the pairs, so batches cannot wait for each other in a
 * circle.
 *
 * No signal round precedes these calls: ranks whose calls do not match fail at the deadline.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/ring.h"
#include "call/seen.h"
#include "call/work.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "engine/runtime.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/status.h"

#define MOST_OPERATIONS 4096 /* of one batch */

/* One batch; on the host's streams it is a task with a copy of all this. */
struct batch {
    struct symm_task task;
    symm_team *team;
    symm_work *work;
    uint64_t seen; /* the call's number */
    uint32_t step; /* see call/seen.h */
    bool captured; /* device: by a graph */
    double timeout;
    const char *what;
    char site[SYMM_SITE_NAME_BYTES];
    const void *stream; /* host; NULL: the default one */
    int count;
    struct symm_message *messages; /* rings: one for each request; owned */
    /* In the order of peers, as the pairs need it. */
    struct symm_engine_request requests[];
};

/* ---- The argument ---------------------------------------------------------------- */

static const symm_p2p_op *operation(const symm_p2p_op *ops, int index)
{
    return (const symm_p2p_op *)(const void *)((const char *)ops +
                                               (size_t)index * ops->size);
}

static bool receives(const symm_p2p_op *op)
{
    return op->kind == SYMM_P2P_RECV;
}

static symm_status check_one(const char *what, symm_team *team, const symm_p2p_op *op,
                             int index)
{
    size_t element = symm_dtype_size(op->dtype), bytes;
    const char *which = receives(op) ? "a receive" : "a send";

    if (op->kind != SYMM_P2P_SEND && op->kind != SYMM_P2P_RECV)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: operation %d: kind %d; it is SYMM_P2P_SEND or "
                          "SYMM_P2P_RECV",
                          what, index, (int)op->kind);
    if (element == 0)
        return symm__fail(SYMM_ERR_INVALID, "%s: operation %d: dtype %d is unknown",
                          what, index, (int)op->dtype);
    if (__builtin_mul_overflow(op->count, element, &bytes) || bytes > PTRDIFF_MAX)
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "%s: operation %d: %zu elements of %s do not fit in memory",
                          what, index, op->count, symm_dtype_name(op->dtype));
    if ((!op->ptr && op->count > 0) || (uintptr_t)op->ptr % element != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s: operation %d: %s of %zu elements at %p, which is NULL or "
            "not aligned to %zu bytes",
            what, index, which, op->count, op->ptr, element);
    if (team->device_ops && bytes > 0)
        return team->device_ops->reach(team, what, receives(op) ? "recv" : "send",
                                       op->ptr, bytes);
    return SYMM_OK;
}

static symm_status check_list(const char *what, const symm_team *team,
                              const symm_p2p_op *ops, int count)
{
    if (count < 1 || count > MOST_OPERATIONS || !ops)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: %d operations at %p; a batch has 1 to %d", what, count,
                          (const void *)ops, MOST_OPERATIONS);
    if (ops->size < sizeof(*ops) || ops->size > 4096 ||
        ops->size % _Alignof(symm_p2p_op) != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s: symm_p2p_op.size is %zu; set it to sizeof(symm_p2p_op), %zu", what,
            ops->size, sizeof(*ops));
    for (int i = 0; i < count; i++) {
        const symm_p2p_op *op = operation(ops, i);

        if (op->size != ops->size)
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: operation %d has size %zu, the first has %zu", what,
                              i, op->size, ops->size);
        if ((op->peer < 0 || op->peer >= team->size) &&
            (op->peer != SYMM_ANY_PEER || !receives(op)))
            return symm__fail(SYMM_ERR_INVALID,
                              "%s: operation %d: peer %d; the team has ranks 0 to %d",
                              what, i, op->peer, team->size - 1);
    }
    return SYMM_OK;
}

static struct symm_engine_request request_of(const symm_p2p_op *op)
{
    return (struct symm_engine_request){.what = receives(op) ? SYMM_ENGINE_RECV
                                                             : SYMM_ENGINE_SEND,
                                        .in = receives(op) ? NULL : op->ptr,
                                        .out = receives(op) ? op->ptr : NULL,
                                        .count = op->count,
                                        .dtype = op->dtype,
                                        .peer = op->peer};
}

static struct symm_message message_of(const symm_p2p_op *op)
{
    return (struct symm_message){.ptr = op->ptr,
                                 .count = op->count,
                                 .bytes = op->count * symm_dtype_size(op->dtype),
                                 .dtype = op->dtype,
                                 .receives = receives(op),
                                 .from_any = op->peer == SYMM_ANY_PEER,
                                 .peer = op->peer,
                                 .source = receives(op) ? op->source : NULL};
}

/* A stable sort: the k-th send to a rank stays the k-th. */
static void add_by_peer(struct batch *batch, const symm_p2p_op *op, int at)
{
    for (; at > 0 && batch->requests[at - 1].peer > op->peer; at--) {
        batch->requests[at] = batch->requests[at - 1];
        if (batch->messages)
            batch->messages[at] = batch->messages[at - 1];
    }
    batch->requests[at] = request_of(op);
    if (batch->messages)
        batch->messages[at] = message_of(op);
}

static void batch_free(struct batch *batch)
{
    free(batch->messages);
    free(batch);
}

/* Fails if the engine, in place of rings, cannot do this operation. */
static symm_status check_by_engine(const char *what, const symm_team *team,
                                   const symm_p2p_op *op, int index)
{
    const struct symm_engine_use *use = team->ctx->engine;
    struct symm_engine_request request = request_of(op);
    const char *why = op->peer == SYMM_ANY_PEER
                          ? "an engine does not receive from any rank; name the peer"
                          : use->ops->objection(use->engine, &request);

    return why ? symm__fail(SYMM_ERR_UNSUPPORTED, "%s: operation %d: %s", what, index,
                            why)
               : SYMM_OK;
}

static symm_status make(const char *what, symm_team *team, const symm_p2p_op *ops,
                        int count, const char *site, bool rings, struct batch **made)
{
    struct batch *batch;
    symm_status status = SYMM_OK;

    for (int i = 0; i < count && status == SYMM_OK; i++) {
        status = check_one(what, team, operation(ops, i), i);
        if (status == SYMM_OK)
            status = symm__plan_refuse(team, what, site, operation(ops, i)->ptr);
        if (status == SYMM_OK && !rings)
            status = check_by_engine(what, team, operation(ops, i), i);
    }
    if (status != SYMM_OK)
        return status;
    batch = calloc(1, sizeof(*batch) + (size_t)count * sizeof(*batch->requests));
    if (batch && rings)
        batch->messages = calloc((size_t)count, sizeof(*batch->messages));
    if (!batch || (rings && !batch->messages)) {
        free(batch);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %s of %d operations", what,
                          count);
    }
    batch->team = team;
    batch->what = what;
    batch->count = count;
    for (int i = 0; i < count; i++)
        add_by_peer(batch, operation(ops, i), i);
    *made = batch;
    return SYMM_OK;
}

/* ---- Running it ------------------------------------------------------------------ */

/* Lists the world ranks of a part's peers, the first `most` of them; returns how many peers there
 * are. */
static int find_peers(const struct batch *batch,
                      const struct symm_engine_request *first, int count, int *ranks,
                      int most)
{
    int found = 0;

    for (int i = 0; i < count && found < most; i++)
        if (i == 0 || first[i].peer != first[i - 1].peer)
            ranks[found++] = batch->team->world_rank[first[i].peer];
    return found;
}

/* "symm_recv with rank 3", "symm_p2p_batch with rank 1, rank 2". */
static void describe(const struct batch *batch, const int *ranks, int count, char *text,
                     size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s", batch->what);

    for (int i = 0; i < count && used + 12 < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%srank %d",
                                 i == 0 ? " with " : ", ", ranks[i]);
}

/* pair: the team rank of the communicator's other rank; -1: it is the team's. */
static symm_status run_part(struct batch *batch, struct symm_engine_comm *comm,
                            int pair, struct symm_engine_request *first, int count,
                            void *stream, symm_work **work)
{
    symm_team *team = batch->team;
    char what[64];
    int peers[SYMM_SIGHT_AWAITED];
    symm_status status;
    struct symm_engine_call call = {.team = team,
                                    .comm = comm,
                                    .requests = first,
                                    .count = count,
                                    .timeout = batch->timeout,
                                    .what = what,
                                    .site = batch->site,
                                    .peers = peers,
                                    .step = batch->step,
                                    .captured = &batch->captured};

    call.peer_count = find_peers(batch, first, count, peers, SYMM_SIGHT_AWAITED);
    describe(batch, peers, call.peer_count, what, sizeof(what));
    for (int i = 0; pair >= 0 && i < count; i++)
        first[i].peer = pair > team->rank;
    if (team->device_ops) { /* a communicator is for one thread at a time */
        pthread_mutex_lock(&team->channels);
        status = team->device_ops->engine(&call, stream, work);
        pthread_mutex_unlock(&team->channels);
        return status;
    }
    return symm__engine_run_host(&call);
}

static bool uses_pairs(const symm_team *team)
{
    return team->ctx->engine->pairs || (team->device_ops && team->hierarchy);
}

static symm_status run_rings(struct batch *batch)
{
    const struct symm_ring_call call = {.team = batch->team,
                                        .messages = batch->messages,
                                        .count = batch->count,
                                        .timeout = batch->timeout,
                                        .what = batch->what,
                                        .site = batch->site,
                                        .stream = batch->stream,
                                        .step = batch->step};
    symm_status status = symm__ring_run(&call);

    for (int i = 0; i < batch->count; i++) /* the sender is known now */
        if (batch->messages[i].from_any && batch->messages[i].peer >= 0)
            (void)symm__seen_step(batch->team, SYMM_STEP_RECV, batch->messages[i].peer);
    return status;
}

/* The team's own communicator, or one for each pair: there ranks are 0 and 1. */
static symm_status run(struct batch *batch, void *stream, symm_work **work)
{
    symm_team *team = batch->team;
    struct symm_engine_comm *comm;
    double until = symm__now() + batch->timeout;
    symm_status status = SYMM_OK;

    if (batch->messages)
        return run_rings(batch);
    if (!uses_pairs(team))
        return run_part(batch, team->engine->comm, -1, batch->requests, batch->count,
                        stream, work);
    for (int i = 0, count; i < batch->count && status == SYMM_OK; i += count) {
        struct symm_engine_request *first = &batch->requests[i];
        int peer = first->peer;

        for (count = 0; i + count < batch->count && first[count].peer == peer;)
            count++;
        if (peer == team->rank && !team->hierarchy) {
            status = run_part(batch, team->engine->comm, -1, first, count, stream,
                              i + count == batch->count ? work : NULL);
            continue;
        }
        status = symm__engine_pair(team, peer, until, &comm);
        if (status != SYMM_OK)
            return symm__engine_failed(team, status, batch->what, batch->site);
        status = run_part(batch, comm, peer, first, count, stream,
                          i + count == batch->count ? work : NULL);
    }
    return status;
}

/* Numbers the messages of the batch. Returns the call's own number. */
static uint32_t count_steps(const struct batch *batch)
{
    symm_team *team = batch->team;
    const bool one = strcmp(batch->what, "symm_p2p_batch") != 0;
    uint32_t step = 0;

    for (int i = 0; i < batch->count; i++) {
        const struct symm_engine_request *request = &batch->requests[i];

        step = symm__seen_step(
            team, request->what == SYMM_ENGINE_RECV ? SYMM_STEP_RECV : SYMM_STEP_SEND,
            request->peer >= 0 ? request->peer : team->size);
    }
    return one ? step : symm__seen_step(team, SYMM_STEP_PUT, team->size);
}

/* All operations of a batch, as one call. */
static void see(struct batch *batch, bool queued)
{
    const struct symm_engine_request *first = batch->requests;
    const bool one_peer = first->peer == batch->requests[batch->count - 1].peer;
    struct symm_sight_what about = {
        .op = batch->what + strlen("symm_"), .name = batch->site, .signal = -1};

    for (int i = 0; i < batch->count; i++) {
        about.count += first[i].count;
        about.bytes += first[i].count * symm_dtype_size(first[i].dtype);
    }
    about.dtype = symm_dtype_name(first->dtype);
    about.root =
        one_peer && first->peer >= 0 ? batch->team->world_rank[first->peer] : -1;
    batch->step = count_steps(batch);
    batch->seen =
        symm__seen_begin(batch->team, &about,
                         symm__fnv_short(symm__fnv_text(SYMM_FNV_BASIS, batch->site)),
                         batch->step, queued ? SYMM_SIGHT_QUEUED : SYMM_SIGHT_RUNNING);
}

static void run_queued(struct symm_task *task)
{
    struct batch *batch = (struct batch *)task;
    symm_status status;

    symm__work_begin(batch->work, batch->timeout);
    symm__sight_run(batch->team->ctx->sight, batch->seen, batch->step);
    status = run(batch, NULL, NULL);
    symm__seen_end(batch->team, batch->seen, status, SYMM_SIGHT_DONE);
    symm__work_complete(batch->work, status);
    batch_free(batch);
}

/* Runs the batch now, or by the stream's worker; owns it from here on. */
static symm_status launch_host(struct batch *batch, void *stream, symm_work **work)
{
    symm_ctx *ctx = batch->team->ctx;
    symm_status status;

    if (work) {
        status = symm__work_create(ctx, true, &batch->work);
        if (status != SYMM_OK) {
            batch_free(batch);
            return status;
        }
        *work = batch->work;
    }
    batch->task.run = run_queued;
    batch->stream = stream;
    see(batch, stream != NULL);
    if (stream) {
        symm__stream_used(batch->team, stream);
        ctx->ops->stream_push(ctx->backend, stream, &batch->task);
        return SYMM_OK;
    }
    status = run(batch, NULL, NULL);
    symm__seen_end(batch->team, batch->seen, status, SYMM_SIGHT_DONE);
    symm__work_complete(batch->work, status);
    if (status != SYMM_OK && work) {
        symm_work_release(*work);
        *work = NULL;
    }
    batch_free(batch);
    return status;
}

static symm_status launch(struct batch *batch, void *stream, symm_work **work)
{
    symm_status status;

    if (!batch->team->device_ops)
        return launch_host(batch, stream, work);
    see(batch, false);
    status = run(batch, stream, work);
    symm__seen_end(batch->team, batch->seen, status,
                   batch->captured ? SYMM_SIGHT_CAPTURED : SYMM_SIGHT_LAUNCHED);
    batch_free(batch);
    return status;
}

/* ---- The calls ------------------------------------------------------------------- */

/* On a device run_part locks the team, not this function: a batch may wait for a peer to make a
 * communicator, and other calls of this rank's threads must go on meanwhile. */
static symm_status enter(symm_team *team, bool rings, void **stream)
{
    if (rings && !*stream) /* calls of any thread may use the rings */
        return SYMM_OK;
    return team->device_ops ? team->device_ops->stream_check(team->ctx, stream)
                            : symm__stream_enter(team, stream);
}

static void leave(symm_team *team, bool rings, const void *stream)
{
    if (!team->device_ops && (!rings || stream))
        symm__stream_leave(team, stream);
}

static symm_status begin(const char *what, symm_team *team, const symm_call *given,
                         symm_call *call)
{
    symm_status status = symm__team_check_in(team, what);

    *call = (symm_call){.size = sizeof(*call)};
    if (status == SYMM_OK && given)
        status = symm__call_copy(given, call);
    if (status == SYMM_OK)
        status =
            team->device_ops ? team->device_ops->poll(team) : symm__team_failed(team);
    if (status != SYMM_OK)
        return status;
    if (call->algorithm &&
        strcmp(call->algorithm, symm_algorithm_name(SYMM_ALGORITHM_ENGINE)) != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: algorithm '%s'; two-sided calls have \"engine\" alone",
                          what, call->algorithm);
    return SYMM_OK;
}

/* Chooses rings unless the caller names the engine, so both ends choose alike. */
static symm_status choose(const char *what, const symm_team *team,
                          const symm_call *call, bool *rings)
{
    *rings = symm__ring_usable(team) && !call->algorithm;
    if (!*rings && !team->engine)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "%s needs an engine (NCCL or MPI) here, which this team does not have "
            "(%s); symm_put_signal and symm_signal_wait do it over symmetric memory",
            what,
            team->ctx->engine && *team->ctx->engine->why ? team->ctx->engine->why
                                                         : "see SYMM_ENGINE");
    return SYMM_OK;
}

static void record(const symm_team *team, const symm_p2p_op *ops, int count,
                   const symm_call *call)
{
    for (int i = 0; i < count; i++) {
        const symm_p2p_op *op = operation(ops, i);
        const size_t bytes = op->count * symm_dtype_size(op->dtype);
        const struct symm_record_call made = {.kind = receives(op) ? SYMM_RECORD_RECV
                                                                   : SYMM_RECORD_SEND,
                                              .team = team,
                                              .in = receives(op) ? NULL : op->ptr,
                                              .out = receives(op) ? op->ptr : NULL,
                                              .in_bytes = bytes,
                                              .out_bytes = bytes,
                                              .count = op->count,
                                              .dtype = op->dtype,
                                              .peer = op->peer,
                                              .site = call->site,
                                              .stream = call->stream};

        symm__record_calls(&made, 1, NULL);
    }
}

static symm_status run_batch(const char *what, symm_team *team, const symm_p2p_op *ops,
                             int count, const symm_call *given, symm_work **work)
{
    struct batch *batch = NULL;
    symm_work *made = NULL;
    symm_call call;
    bool rings = false;
    symm_status status = begin(what, team, given, &call);

    if (status == SYMM_OK)
        status = check_list(what, team, ops, count);
    if (status == SYMM_OK)
        status = choose(what, team, &call, &rings);
    if (status == SYMM_OK)
        status = make(what, team, ops, count, call.site, rings, &batch);
    if (status != SYMM_OK)
        return status;
    batch->timeout = call.timeout > 0 ? call.timeout : team->ctx->timeout;
    symm__site_name_set(batch->site, call.site);
    status = enter(team, rings, &call.stream);
    if (status != SYMM_OK) {
        batch_free(batch);
        return status;
    }
    status = launch(batch, call.stream, work ? &made : NULL);
    __atomic_store_n(&team->last_path,
                     rings ? "through rings in the pads: all ranks are on this host"
                           : "the team's engine sends and receives: it reaches any "
                             "memory",
                     __ATOMIC_RELAXED);
    if (symm__is_recorded(team->ctx) && status == SYMM_OK)
        record(team, ops, count, &call);
    leave(team, rings, call.stream);
    if (status == SYMM_OK && work)
        *work = made;
    return status;
}

symm_status symm_p2p_batch(symm_team *team, const symm_p2p_op *ops, int count,
                           const symm_call *call, symm_work **work)
{
    return run_batch("symm_p2p_batch", team, ops, count, call, work);
}

symm_status symm_send(symm_team *team, const void *ptr, size_t count, symm_dtype dtype,
                      int peer, const symm_call *call, symm_work **work)
{
    const symm_p2p_op op = {.size = sizeof(op),
                            .ptr = (void *)(uintptr_t)ptr,
                            .count = count,
                            .dtype = dtype,
                            .peer = peer};

    return run_batch("symm_send", team, &op, 1, call, work);
}

symm_status symm_recv(symm_team *team, void *ptr, size_t count, symm_dtype dtype,
                      int peer, const symm_call *call, symm_work **work)
{
    const symm_p2p_op op = {.size = sizeof(op),
                            .kind = SYMM_P2P_RECV,
                            .ptr = ptr,
                            .count = count,
                            .dtype = dtype,
                            .peer = peer};

    return run_batch("symm_recv", team, &op, 1, call, work);
}
