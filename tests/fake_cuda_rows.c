/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_rows.c - copies of rows within a device's memory. As on a GPU, rows may not be longer
 * than they lie apart, nor lie apart by more than CU_DEVICE_ATTRIBUTE_MAX_PITCH.
 */
#include "fake_cuda_private.h"

/* The source, or the destination. */
struct side {
    CUmemorytype type;
    CUdeviceptr base;
    size_t x, y, pitch;
};

/* Whether the rows may be there; *at is their first byte then. */
static CUresult find(const struct side *side, const CUDA_MEMCPY2D *rows, int ordinal,
                     CUdeviceptr *at)
{
    struct fake_place place;

    if (side->type == CU_MEMORYTYPE_ARRAY || side->type == CU_MEMORYTYPE_HOST)
        fake_die("arrays and host memory are not supported by the fake");
    if ((side->type != CU_MEMORYTYPE_DEVICE && side->type != CU_MEMORYTYPE_UNIFIED) ||
        side->base == 0 || side->pitch > (size_t)fake_settings.pitch ||
        side->pitch < side->x + rows->WidthInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    *at = side->base + side->y * side->pitch + side->x;
    if (!fake_at(*at, &place))
        fake_die("pageable memory is not supported by the fake");
    for (size_t i = 0; i < rows->Height; i++)
        fake_expect_access("cuMemcpy2DAsync", ordinal, *at + i * side->pitch,
                           rows->WidthInBytes);
    return CUDA_SUCCESS;
}

/* What comes of rows that overlap is undefined. */
static void expect_apart(const struct fake_op *op)
{
    const char *to = op->to, *from = op->from;
    const size_t last = op->rows - 1;

    if (to < from + last * op->from_pitch + op->bytes &&
        from < to + last * op->to_pitch + op->bytes)
        fake_die("the rows of the source and of the destination overlap");
}

FAKE_API CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *rows, CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_COPY,
                         .bytes = rows->WidthInBytes,
                         .rows = rows->Height,
                         .to_pitch = rows->dstPitch,
                         .from_pitch = rows->srcPitch};
    const struct side sides[2] = {{rows->dstMemoryType, rows->dstDevice,
                                   rows->dstXInBytes, rows->dstY, rows->dstPitch},
                                  {rows->srcMemoryType, rows->srcDevice,
                                   rows->srcXInBytes, rows->srcY, rows->srcPitch}};
    CUdeviceptr to, from;
    CUresult result;

    FAKE_STREAM_OF(stream);
    if (op.bytes == 0 || op.rows == 0)
        return CUDA_SUCCESS;
    result = find(&sides[0], rows, stream->context->ordinal, &to);
    if (result == CUDA_SUCCESS)
        result = find(&sides[1], rows, stream->context->ordinal, &from);
    if (result != CUDA_SUCCESS)
        return result;
    op.to = (void *)(uintptr_t)to;
    op.from = (const void *)(uintptr_t)from;
    expect_apart(&op);
    return fake_submit(stream, &op);
}
