/* SPDX-License-Identifier: MIT */
/* fake_cuda_event.c - events: an event is a mark in a stream's queue. */
#include "fake_cuda_private.h"

FAKE_API CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT);
    CUevent e;

    if (flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    e = fake_new(FAKE_EVENT, sizeof(*e));
    e->context = fake_current();
    *event = e;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    fake_expect(FAKE_EVENT, event);
    fake_mark_drop(event->mark);
    fake_delete(event);
    return later;
}

FAKE_API CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_MARK};
    CUresult result;

    fake_expect(FAKE_EVENT, event);
    FAKE_STREAM_OF(stream);
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return fake_capture_record(stream, event);
    op.mark = fake_mark_new();
    result = fake_submit(stream, &op);
    if (result != CUDA_SUCCESS) {
        fake_mark_drop(op.mark);
        return result;
    }
    fake_mark_drop(event->mark);
    event->mark = op.mark;
    event->captured = false;
    event->capture = NULL;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event,
                                            unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_AWAIT};

    fake_expect(FAKE_EVENT, event);
    FAKE_STREAM_OF(stream);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->capture)
        return fake_capture_join(stream, event);
    if (event->captured) /* its capture is over */
        return CUDA_ERROR_INVALID_VALUE;
    if (!event->mark)
        return CUDA_SUCCESS;
    if (stream->capture) {
        fake_capture_break(stream);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    op.mark = event->mark;
    return event->mark->done ? CUDA_SUCCESS : fake_submit(stream, &op);
}

FAKE_API CUresult CUDAAPI cuEventQuery(CUevent event)
{
    FAKE_ENTER(FAKE_INIT | FAKE_UNSAFE);

    fake_expect(FAKE_EVENT, event);
    if (event->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    return !event->mark || event->mark->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FAKE_API CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
    FAKE_ENTER_FREE(FAKE_INIT | FAKE_UNSAFE);
    struct fake_mark *mark;

    fake_expect(FAKE_EVENT, event);
    if (event->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    mark = event->mark; /* the event may be recorded again meanwhile */
    if (mark) {
        mark->refs++;
        fake_mark_wait(mark);
        fake_mark_drop(mark);
    }
    return later;
}

#undef cuEventElapsedTime /* the name that old programs ask for, with the same arguments */
FAKE_API CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent first,
                                             CUevent last);
FAKE_API CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent first,
                                             CUevent last)
{
    FAKE_ENTER(FAKE_INIT);
    const struct timespec *begin, *end;

    fake_expect(FAKE_EVENT, first);
    fake_expect(FAKE_EVENT, last);
    if (!first->mark || !last->mark)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!first->mark->done || !last->mark->done)
        return CUDA_ERROR_NOT_READY;
    begin = &first->mark->time;
    end = &last->mark->time;
    *milliseconds = (float)((double)(end->tv_sec - begin->tv_sec) * 1e3 +
                            (double)(end->tv_nsec - begin->tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}
