/* SPDX-License-Identifier: MIT */
/*
 * device.c - the rank's device: entering its context, its properties, the devices that it
 * reaches, and memory for set-up.
 *
 * Guarantees: nothing runs on the legacy stream; set-up works while another thread captures a
 * graph. In a forked child the driver is not called: the parent keeps its objects.
 */
#include "cuda/device.h"

#include <string.h>
#include <unistd.h>

#include "util/status.h"

/* ---- Every call of the driver ---------------------------------------------------- */

symm_status symm__cuda_enter(struct symm_backend *backend,
                             struct symm_cuda_scope *scope)
{
    const struct symm_cuda_driver *d = backend->driver;
    symm_status status;

    if (backend->process != getpid())
        return symm__fail(SYMM_ERR_FORKED,
                          "device %d belongs to the parent of this process",
                          backend->device.ordinal);
    *scope =
        (struct symm_cuda_scope){.driver = d, .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    status = SYMM_CUDA_CALL(d, cuCtxPushCurrent, (backend->context),
                            "making the context of device %d current",
                            backend->device.ordinal);
    if (status != SYMM_OK)
        return status;
    scope->pushed = true;
    /* Another thread may be capturing, which forbids the calls of set-up in the default mode. */
    scope->mode_changed =
        d->cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    return SYMM_OK;
}

bool symm__cuda_enter_last(struct symm_backend *backend, struct symm_cuda_scope *scope)
{
    const struct symm_cuda_driver *d = backend->driver;

    if (backend->process != getpid())
        return false;
    *scope =
        (struct symm_cuda_scope){.driver = d, .mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    /* Tries again: objects that are not released now are never released. */
    scope->pushed = d->cuCtxPushCurrent(backend->context) == CUDA_SUCCESS ||
                    d->cuCtxPushCurrent(backend->context) == CUDA_SUCCESS;
    scope->mode_changed =
        d->cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    return true;
}

void symm__cuda_leave(struct symm_cuda_scope *scope)
{
    CUcontext popped;

    if (scope->mode_changed)
        (void)scope->driver->cuThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->pushed)
        (void)scope->driver->cuCtxPopCurrent(&popped);
}

symm_status symm__cuda_complete(struct symm_backend *backend, const char *what)
{
    return SYMM_CUDA_CALL(backend->driver, cuStreamSynchronize, (backend->setup),
                          "%s on device %d", what, backend->device.ordinal);
}

CUmemAllocationProp symm__cuda_properties(int ordinal)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
}

/* ---- The device ------------------------------------------------------------------ */

symm_status symm__cuda_attribute(const struct symm_cuda_driver *d, CUdevice device,
                                 CUdevice_attribute which, int *value)
{
    return SYMM_CUDA_CALL(d, cuDeviceGetAttribute, (value, which, device),
                          "attribute %d of device %d", (int)which, (int)device);
}

bool symm__cuda_has(const struct symm_cuda_driver *d, CUdevice device,
                    CUdevice_attribute which)
{
    int value = 0;

    return d->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

symm_status symm__cuda_describe(const struct symm_cuda_driver *d, int ordinal,
                                CUdevice *found, struct symm_device_info *device)
{
    struct symm_device_info made = {.ordinal = ordinal};
    CUdevice handle;
    CUuuid uuid;
    symm_status status =
        SYMM_CUDA_CALL(d, cuDeviceGet, (&handle, ordinal), "device %d", ordinal);

    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDeviceGetName,
                                (made.name, (int)sizeof(made.name), handle),
                                "name of device %d", ordinal);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDeviceGetPCIBusId,
                                (made.bus, (int)sizeof(made.bus), handle),
                                "bus id of device %d", ordinal);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDeviceGetUuid, (&uuid, handle),
                                "UUID of device %d", ordinal);
    if (status == SYMM_OK)
        status = symm__cuda_attribute(
            d, handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &made.processors);
    if (status == SYMM_OK)
        status = symm__cuda_attribute(
            d, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &made.major);
    if (status == SYMM_OK)
        status = symm__cuda_attribute(
            d, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &made.minor);
    if (status != SYMM_OK)
        return status;
    memcpy(made.uuid, uuid.bytes, sizeof(made.uuid));
    *found = handle;
    *device = made;
    return SYMM_OK;
}

symm_status symm__cuda_count(int *count)
{
    const struct symm_cuda_driver *d;
    symm_status status = symm__cuda_driver(&d);

    if (status == SYMM_OK)
        status =
            SYMM_CUDA_CALL(d, cuDeviceGetCount, (count), "counting the CUDA devices");
    return status;
}

symm_status symm__cuda_reachable(const struct symm_backend *b, int rank,
                                 const struct symm_device_info *theirs, int peer)
{
    const struct symm_cuda_driver *d = b->driver;
    int count = 0, can = 0;
    symm_status status = symm__cuda_count(&count);

    for (int i = 0; status == SYMM_OK && i < count; i++) {
        CUdevice other;
        CUuuid found;

        status = SYMM_CUDA_CALL(d, cuDeviceGet, (&other, i), "device %d", i);
        if (status == SYMM_OK)
            status =
                SYMM_CUDA_CALL(d, cuDeviceGetUuid, (&found, other), "device %d", i);
        if (status != SYMM_OK ||
            memcmp(found.bytes, theirs->uuid, sizeof(found.bytes)) != 0)
            continue;
        status = SYMM_CUDA_CALL(d, cuDeviceCanAccessPeer, (&can, b->handle, other),
                                "devices %d and %d", b->device.ordinal, i);
        if (status == SYMM_OK && !can && other != b->handle)
            return symm__fail(
                SYMM_ERR_UNSUPPORTED,
                "device %d (%s) of rank %d cannot reach the memory of device %d (%s) "
                "of rank %d; symm-info shows which can, or use SYMM_BACKEND=host",
                b->device.ordinal, b->device.bus, rank, i, theirs->bus, peer);
        return status;
    }
    return status;
}

/* ---- Memory of one rank ---------------------------------------------------------- */

static symm_status fill(struct symm_backend *b, CUdeviceptr at, int byte, size_t bytes)
{
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemsetD8Async, (at, (unsigned char)byte, bytes, b->setup),
        "filling %zu bytes of device %d", bytes, b->device.ordinal);

    return status == SYMM_OK ? symm__cuda_complete(b, "filling memory") : status;
}

symm_status symm__cuda_local_alloc(struct symm_backend *b, size_t bytes, void **memory)
{
    struct symm_cuda_scope scope;
    CUdeviceptr at = 0;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(b->driver, cuMemAlloc, (&at, bytes),
                            "%zu bytes of device %d", bytes, b->device.ordinal);
    if (status == SYMM_OK) {
        status = fill(b, at, 0, bytes);
        if (status == SYMM_OK)
            *memory = (void *)(uintptr_t)at;
        else
            (void)b->driver->cuMemFree(at);
    }
    symm__cuda_leave(&scope);
    return status;
}

void symm__cuda_local_free(struct symm_backend *backend, void *memory)
{
    struct symm_cuda_scope scope;

    if (!memory || !symm__cuda_enter_last(backend, &scope))
        return;
    (void)backend->driver->cuMemFree((CUdeviceptr)(uintptr_t)memory);
    symm__cuda_leave(&scope);
}

symm_status symm__cuda_host_alloc(symm_ctx *ctx, size_t bytes, void **memory)
{
    struct symm_backend *b = ctx->backend;
    struct symm_cuda_scope scope;
    CUdeviceptr seen = 0;
    void *made = NULL;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(
        b->driver, cuMemHostAlloc,
        (&made, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "%zu bytes of page-locked memory", bytes);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(b->driver, cuMemHostGetDevicePointer, (&seen, made, 0),
                                "%zu bytes of page-locked memory", bytes);
    if (status == SYMM_OK && seen != (CUdeviceptr)(uintptr_t)made)
        status = symm__fail(SYMM_ERR_UNSUPPORTED,
                            "device %d sees page-locked memory at another address than "
                            "the host; use SYMM_BACKEND=host",
                            b->device.ordinal);
    if (status == SYMM_OK)
        *memory = memset(made, 0, bytes);
    else if (made)
        (void)b->driver->cuMemFreeHost(made);
    symm__cuda_leave(&scope);
    return status;
}

void symm__cuda_host_free(symm_ctx *ctx, void *memory)
{
    struct symm_cuda_scope scope;

    if (!memory || !symm__cuda_enter_last(ctx->backend, &scope))
        return;
    (void)ctx->backend->driver->cuMemFreeHost(memory);
    symm__cuda_leave(&scope);
}

symm_status symm__cuda_fill(symm_ctx *ctx, void *memory, int byte, size_t bytes)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(ctx->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = fill(ctx->backend, (CUdeviceptr)(uintptr_t)memory, byte, bytes);
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_copy(symm_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    struct symm_backend *b = ctx->backend;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(
        b->driver, cuMemcpyAsync,
        ((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, b->setup),
        "copying %zu bytes", bytes);
    if (status == SYMM_OK)
        status = symm__cuda_complete(b, "copying memory");
    symm__cuda_leave(&scope);
    return status;
}
