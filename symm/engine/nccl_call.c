/* SPDX-License-Identifier: MIT */
/*
 * nccl_call.c - calls of the library as calls of NCCL: types, reductions, groups.
 *
 * What NCCL computes otherwise than symm.h promises is reported (symm__nccl_deviation), so that
 * the library does not take a call there by itself: NCCL's minimum and maximum ignore a NaN,
 * its average of integers sums in the type itself. All-to-all is a group of sends and
 * receives; data that is only moved goes as bytes where NCCL does not know its type.
 */
#include "engine/nccl.h"
#include "util/status.h"

static bool is_float8(symm_dtype dtype)
{
    return dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_FLOAT8_E5M2;
}

static bool is_float(symm_dtype dtype)
{
    return dtype <= SYMM_FLOAT8_E5M2;
}

static bool reduces(const struct symm_engine_request *request)
{
    return request->what == SYMM_ENGINE_COLLECTIVE && symm__kind_reduces(request->kind);
}

const char *symm__nccl_objection(const struct symm_engine *engine,
                                 const struct symm_engine_request *request)
{
    if (request->what == SYMM_ENGINE_COLLECTIVE && request->kind == SYMM_KIND_BARRIER)
        return "NCCL has no barrier; reduce one element instead";
    if (reduces(request) && is_float8(request->dtype) &&
        engine->nccl.version < SYMM_NCCL_FLOAT8)
        return "NCCL reduces float8 from version 2.24 on";
    return NULL;
}

const char *symm__nccl_deviation(const struct symm_engine *engine,
                                 const struct symm_engine_request *request)
{
    (void)engine;
    if (!reduces(request))
        return NULL;
    if (is_float(request->dtype) &&
        (request->op == SYMM_MIN || request->op == SYMM_MAX))
        return "NCCL's minimum and maximum ignore a NaN";
    if (!is_float(request->dtype) && request->op == SYMM_AVG)
        return "NCCL's average of integers can wrap";
    return NULL;
}

/* ncclDataType_t */
static int type_of(const struct symm_nccl *nccl, symm_dtype dtype)
{
    static const int types[] = {
        [SYMM_FLOAT64] = 8,  [SYMM_FLOAT32] = 7,      [SYMM_FLOAT16] = 6,
        [SYMM_BFLOAT16] = 9, [SYMM_FLOAT8_E4M3] = 10, [SYMM_FLOAT8_E5M2] = 11,
        [SYMM_INT64] = 4,    [SYMM_INT32] = 2,        [SYMM_INT8] = 0,
        [SYMM_UINT64] = 5,   [SYMM_UINT32] = 3,       [SYMM_UINT8] = 1};

    if (is_float8(dtype) && nccl->version < SYMM_NCCL_FLOAT8)
        return types[SYMM_UINT8];
    return types[dtype];
}

/* ncclRedOp_t */
static int op_of(symm_op op)
{
    static const int ops[] = {[SYMM_SUM] = 0,
                              [SYMM_PROD] = 1,
                              [SYMM_MAX] = 2,
                              [SYMM_MIN] = 3,
                              [SYMM_AVG] = 4};

    return ops[op];
}

/* What a call of NCCL is called in sentences. */
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

/* In a group: what is in progress is settled with the group. */
static bool went_well(int result)
{
    return result == SYMM_NCCL_SUCCESS || result == SYMM_NCCL_IN_PROGRESS;
}

/* Block p of `in` to rank p, block p of `out` from there; in a group. */
static int exchange_blocks(const struct symm_engine_comm *comm,
                           const struct symm_engine_request *request, int type,
                           void *stream)
{
    const struct symm_nccl *nccl = comm->nccl;
    size_t block = request->count * symm_dtype_size(request->dtype);
    int result = SYMM_NCCL_SUCCESS;

    for (int p = 0; p < comm->size && went_well(result); p++) {
        result = nccl->send((const char *)request->in + (size_t)p * block,
                            request->count, type, p, comm->comm, stream);
        if (went_well(result))
            result = nccl->receive((char *)request->out + (size_t)p * block,
                                   request->count, type, p, comm->comm, stream);
    }
    return result;
}

static int one_call(const struct symm_engine_comm *comm,
                    const struct symm_engine_request *rq, void *stream)
{
    const struct symm_nccl *nccl = comm->nccl;
    int type = type_of(nccl, rq->dtype), op = op_of(rq->op);

    if (rq->what == SYMM_ENGINE_SEND)
        return nccl->send(rq->in, rq->count, type, rq->peer, comm->comm, stream);
    if (rq->what == SYMM_ENGINE_RECV)
        return nccl->receive(rq->out, rq->count, type, rq->peer, comm->comm, stream);
    switch (rq->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return nccl->all_reduce(rq->in, rq->out, rq->count, type, op, comm->comm,
                                stream);
    case SYMM_KIND_REDUCE_SCATTER:
        return nccl->reduce_scatter(rq->in, rq->out, rq->count, type, op, comm->comm,
                                    stream);
    case SYMM_KIND_ALL_GATHER:
        return nccl->all_gather(rq->in, rq->out, rq->count, type, comm->comm, stream);
    case SYMM_KIND_BROADCAST:
        return nccl->broadcast(rq->in, rq->out, rq->count, type, rq->root, comm->comm,
                               stream);
    case SYMM_KIND_ALL_TO_ALL:
        return exchange_blocks(comm, rq, type, stream);
    default:
        return SYMM_NCCL_USAGE;
    }
}

static bool is_group(const struct symm_engine_request *requests, int count)
{
    return count > 1 || requests->what != SYMM_ENGINE_COLLECTIVE ||
           requests->kind == SYMM_KIND_ALL_TO_ALL;
}

/* A group that was begun is ended, also if a call in it was refused. */
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

symm_status symm__nccl_run(struct symm_engine_comm *comm,
                           const struct symm_engine_request *requests, int count,
                           void *stream, const struct symm_engine_wait *wait)
{
    symm_status status;

    pthread_mutex_lock(&comm->lock);
    if (__atomic_load_n(&comm->aborting, __ATOMIC_ACQUIRE))
        status = symm__fail_quiet(SYMM_ERR_ABORTED, "the communicator was aborted");
    else
        status = symm__nccl_complete(comm, queue(comm, requests, count, stream), wait,
                                     call_name(requests));
    pthread_mutex_unlock(&comm->lock);
    return status;
}
