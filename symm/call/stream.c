/* SPDX-License-Identifier: MIT */
/* stream.c - the public streams. */
#include "call/stream.h"

#include <stdlib.h>

#include "call/channel.h"
#include "core/device_ops.h"
#include "util/status.h"

/* A plain function in a stream's order. */
struct call {
    struct symm_task task;
    void (*fn)(void *arg);
    void *arg;
};

symm_status symm__take_timeout(const symm_ctx *ctx, const char *what, double timeout,
                               double *seconds)
{
    if (!(timeout >= 0))
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: timeout is %g; it is a number of seconds, 0 for the "
                          "context's",
                          what, timeout);
    *seconds = timeout > 0 ? timeout : SYMM_QUEUE_TIMEOUTS * ctx->timeout;
    if (ctx->device_ops && !(timeout > 0))
        *seconds += symm__queue_limit(ctx, ctx->timeout) + ctx->timeout;
    return SYMM_OK;
}

symm_status symm__stream_push(symm_ctx *ctx, void *stream, struct symm_task *task)
{
    symm_status status;

    if (!stream) { /* the default stream of the host backend runs inline */
        task->run(task);
        return SYMM_OK;
    }
    status = symm__stream_check(ctx, stream);
    if (status != SYMM_OK)
        return status;
    ctx->ops->stream_push(ctx->backend, stream, task);
    return SYMM_OK;
}

symm_status symm_stream_create(symm_ctx *ctx, void **stream)
{
    struct symm_stream *made = NULL;
    symm_status status = symm__ctx_check(ctx);
    int at = 0;

    if (status != SYMM_OK)
        return status;
    if (!stream)
        return symm__fail_null("symm_stream_create", "stream");
    pthread_mutex_lock(&ctx->lock);
    while (at < SYMM_MAX_STREAMS && ctx->streams[at])
        at++;
    if (at == SYMM_MAX_STREAMS)
        status =
            symm__fail(SYMM_ERR_BUSY, "the context has %d streams already; destroy one",
                       SYMM_MAX_STREAMS);
    else
        status = ctx->ops->stream_create(ctx->backend, &made);
    if (status == SYMM_OK) {
        __atomic_store_n(&ctx->streams[at], made, __ATOMIC_RELAXED);
        *stream = made;
    }
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

symm_status symm_stream_synchronize(symm_ctx *ctx, void *stream, double timeout)
{
    symm_status status = symm__ctx_check(ctx);
    double seconds = 0;

    if (status == SYMM_OK)
        status = symm__take_timeout(ctx, "symm_stream_synchronize", timeout, &seconds);
    if (status != SYMM_OK)
        return status;
    if (ctx->device_ops)
        return ctx->device_ops->stream_synchronize(ctx, stream, seconds);
    if (stream)
        status = symm__stream_check(ctx, stream);
    if (status != SYMM_OK || !stream)
        return status; /* inline calls are complete when they return */
    return ctx->ops->stream_synchronize(ctx->backend, stream, ctx->rank, seconds);
}

void symm_stream_destroy(symm_ctx *ctx, void *stream)
{
    int index;

    if (!stream || symm__ctx_check(ctx) != SYMM_OK)
        return;
    index = symm__stream_index(ctx, stream);
    if (index < 0 || ctx->ops->stream_is_own(stream))
        return;
    /* only then may another stream have its channels */
    if (ctx->device_ops)
        ctx->device_ops->ending(ctx, true);
    ctx->ops->stream_drain(ctx->backend, stream);
    if (ctx->device_ops)
        ctx->device_ops->ending(ctx, false);
    pthread_mutex_lock(&ctx->lock);
    symm__channel_forget(ctx, stream);
    __atomic_store_n(&ctx->streams[index], NULL, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&ctx->lock);
    ctx->ops->stream_destroy(ctx->backend, stream);
}

static void run_call(struct symm_task *task)
{
    struct call *call = (struct call *)task;

    call->fn(call->arg);
    free(call);
}

symm_status symm_stream_call(symm_ctx *ctx, void *stream, void (*fn)(void *arg),
                             void *arg)
{
    struct call *call;
    symm_status status = symm__ctx_check(ctx);

    if (status != SYMM_OK)
        return status;
    if (!fn)
        return symm__fail_null("symm_stream_call", "fn");
    if (ctx->device_ops)
        return ctx->device_ops->stream_call(ctx, stream, fn, arg);
    call = malloc(sizeof(*call));
    if (!call)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to queue a call");
    *call = (struct call){.task.run = run_call, .fn = fn, .arg = arg};
    status = symm__stream_push(ctx, stream, &call->task);
    if (status != SYMM_OK)
        free(call);
    return status;
}
