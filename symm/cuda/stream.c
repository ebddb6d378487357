/* SPDX-License-Identifier: MIT */
/*
 * stream.c - streams of the CUDA backend: a symm stream is a CUstream, and functions take any
 * CUstream of this rank's device.
 *
 * Streams that are made here and the legacy default stream do not wait for each other.
 * Waiting for a stream is a loop of queries with a time limit, because the driver's own wait
 * has none.
 */
#include <sched.h>
#include <stdio.h>

#include "cuda/launcher.h"
#include "util/clock.h"
#include "util/status.h"

#define SPIN_SECONDS  0.0002 /* yields before the first sleep */
#define SLEEP_SECONDS 0.0001

static CUstream cuda_stream(const void *stream)
{
    return (CUstream)(uintptr_t)stream;
}

const char *symm__cuda_stream_text(const void *stream, char *text, size_t bytes)
{
    if (!stream || stream == (void *)CU_STREAM_LEGACY)
        snprintf(text, bytes, "the default stream");
    else if (stream == (void *)CU_STREAM_PER_THREAD)
        snprintf(text, bytes, "the per-thread default stream");
    else
        snprintf(text, bytes, "stream %p", stream);
    return text;
}

symm_status symm__cuda_stream_create(struct symm_backend *backend,
                                     struct symm_stream **stream)
{
    struct symm_cuda_scope scope;
    CUstream made = NULL;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(backend->driver, cuStreamCreateWithPriority,
                            (&made, CU_STREAM_NON_BLOCKING, 0), "a stream");
    symm__cuda_leave(&scope);
    if (status == SYMM_OK)
        *stream = (struct symm_stream *)made;
    return status;
}

void symm__cuda_stream_drain(struct symm_backend *backend, struct symm_stream *stream)
{
    struct symm_cuda_scope scope;

    if (!stream || symm__cuda_enter(backend, &scope) != SYMM_OK)
        return;
    (void)backend->driver->cuStreamSynchronize(cuda_stream(stream));
    symm__cuda_leave(&scope);
}

void symm__cuda_stream_destroy(struct symm_backend *backend, struct symm_stream *stream)
{
    struct symm_cuda_scope scope;

    if (!stream || !symm__cuda_enter_last(backend, &scope))
        return;
    (void)backend->driver->cuStreamSynchronize(cuda_stream(stream));
    (void)backend->driver->cuStreamDestroy(cuda_stream(stream));
    symm__cuda_leave(&scope);
}

bool symm__cuda_stream_is_own(const struct symm_stream *stream)
{
    (void)stream; /* callbacks run on the driver's threads and may not call it */
    return false;
}

static void CUDA_CB run_task(void *arg)
{
    struct symm_task *task = arg;

    task->run(task);
}

void symm__cuda_stream_push(struct symm_backend *backend, struct symm_stream *stream,
                            struct symm_task *task)
{
    struct symm_cuda_scope scope;
    CUresult result = CUDA_ERROR_UNKNOWN;

    if (symm__cuda_enter(backend, &scope) == SYMM_OK) {
        result = backend->driver->cuLaunchHostFunc(cuda_stream(stream), run_task, task);
        symm__cuda_leave(&scope);
    }
    if (result != CUDA_SUCCESS)
        task->run(task); /* a task is always run: it frees itself */
}

/* ---- Waiting --------------------------------------------------------------------------- */

static CUresult query(const struct symm_cuda_driver *driver, CUstream stream,
                      double seconds)
{
    double begin = symm__now(), elapsed = 0;
    CUresult result;

    while ((result = driver->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
           elapsed < seconds) {
        if (elapsed < SPIN_SECONDS)
            sched_yield();
        else
            symm__sleep(SLEEP_SECONDS);
        elapsed = symm__now() - begin;
    }
    return result;
}

symm_status symm__cuda_stream_synchronize(struct symm_backend *backend,
                                          struct symm_stream *stream, int rank,
                                          double seconds)
{
    struct symm_cuda_scope scope;
    CUresult result;
    char name[48];
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    result = query(backend->driver, cuda_stream(stream), seconds);
    if (result == CUDA_ERROR_NOT_READY)
        status = symm__fail(SYMM_ERR_TIMEOUT,
                            "symm_stream_synchronize: %s of rank %d still has "
                            "calls to run after %g s; symm-top shows for whom they "
                            "wait; else give a longer timeout",
                            symm__cuda_stream_text(stream, name, sizeof(name)), rank,
                            seconds);
    else
        status =
            symm__cuda_check(backend->driver, result, "cuStreamQuery", "waiting for %s",
                             symm__cuda_stream_text(stream, name, sizeof(name)));
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_synchronize(symm_ctx *ctx, void *stream, double seconds)
{
    symm_status status = symm__cuda_stream_check(ctx, &stream);

    return status == SYMM_OK
               ? symm__cuda_stream_synchronize(ctx->backend, stream, ctx->rank, seconds)
               : status;
}

symm_status symm__cuda_host_call(symm_ctx *ctx, void *stream, void (*fn)(void *arg),
                                 void *arg)
{
    const struct symm_cuda_driver *driver = ctx->backend->driver;
    struct symm_cuda_scope scope;
    char name[48];
    symm_status status = symm__cuda_stream_check(ctx, &stream);

    if (status == SYMM_OK)
        status = symm__cuda_enter(ctx->backend, &scope);
    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(driver, cuLaunchHostFunc, (cuda_stream(stream), fn, arg),
                            "a function on %s",
                            symm__cuda_stream_text(stream, name, sizeof(name)));
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_memset(symm_ctx *ctx, void *stream, void *at, int byte,
                              size_t bytes)
{
    struct symm_cuda_scope scope;
    char name[48];
    symm_status status = symm__cuda_enter(ctx->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(
        ctx->backend->driver, cuMemsetD8Async,
        ((CUdeviceptr)(uintptr_t)at, (unsigned char)byte, bytes, cuda_stream(stream)),
        "filling %zu bytes at %p on %s", bytes, at,
        symm__cuda_stream_text(stream, name, sizeof(name)));
    symm__cuda_leave(&scope);
    return status;
}

/* Rows that lie too far apart for one call. In a scope. */
static symm_status copy_each(const struct symm_backend *backend, CUstream stream,
                             const struct symm_rows *rows)
{
    symm_status status = SYMM_OK;

    for (size_t i = 0; i < rows->count && status == SYMM_OK; i++)
        status = SYMM_CUDA_CALL(
            backend->driver, cuMemcpyAsync,
            ((CUdeviceptr)(uintptr_t)rows->to + i * rows->to_pitch,
             (CUdeviceptr)(uintptr_t)rows->from + i * rows->from_pitch, rows->bytes,
             stream),
            "copying row %zu of %zu of %zu bytes", i, rows->count, rows->bytes);
    return status;
}

/* In a scope. */
static symm_status copy_all(const struct symm_backend *backend, CUstream stream,
                            const struct symm_rows *rows)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (CUdeviceptr)(uintptr_t)rows->from,
                                .srcPitch = rows->from_pitch,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = (CUdeviceptr)(uintptr_t)rows->to,
                                .dstPitch = rows->to_pitch,
                                .WidthInBytes = rows->bytes,
                                .Height = rows->count};

    return SYMM_CUDA_CALL(backend->driver, cuMemcpy2DAsync, (&copy, stream),
                          "copying %zu rows of %zu bytes", rows->count, rows->bytes);
}

symm_status symm__cuda_copy_rows(symm_ctx *ctx, void *stream,
                                 const struct symm_rows *rows)
{
    const size_t most = (size_t)ctx->backend->most_pitch;
    const bool far = rows->to_pitch > most || rows->from_pitch > most;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(ctx->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = far ? copy_each(ctx->backend, cuda_stream(stream), rows)
                 : copy_all(ctx->backend, cuda_stream(stream), rows);
    symm__cuda_leave(&scope);
    return status;
}
