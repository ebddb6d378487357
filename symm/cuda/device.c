/* SPDX-License-Identifier: MIT */
/*
 * device.c - the CUDA backend's object: which device, its context, memory for set-up.
 *
 * Guarantees: the device is the one of the context that is current at symm_init, else the
 * local rank's, counted through those that are visible; its primary context is used and
 * retained; nothing runs on the legacy stream; set-up works while another thread captures a
 * graph. In a forked child the driver is not called: what was the parent's stays its own.
 * Refuses: devices without virtual memory management or POSIX handles, or older than what
 * the kernels are made for.
 */
#include "cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#define GRANULARITY  ((size_t)2 << 20)
#define OLDEST_MAJOR 8 /* of compute capability: what kernels are made for */

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
    /* Another thread may be capturing: what set-up calls is forbidden here else. */
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
    /* Once more: what is not given back now never is. */
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

symm_status symm__cuda_settle(struct symm_backend *backend, const char *what)
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

static symm_status attribute(const struct symm_cuda_driver *d, CUdevice device,
                             CUdevice_attribute which, int *value)
{
    return SYMM_CUDA_CALL(d, cuDeviceGetAttribute, (value, which, device),
                          "attribute %d of device %d", (int)which, (int)device);
}

symm_status symm__cuda_describe(const struct symm_cuda_driver *d, int ordinal,
                                struct symm_device_info *device)
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
        status = attribute(d, handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                           &made.processors);
    if (status == SYMM_OK)
        status = attribute(d, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                           &made.major);
    if (status == SYMM_OK)
        status = attribute(d, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                           &made.minor);
    if (status != SYMM_OK)
        return status;
    memcpy(made.uuid, uuid.bytes, sizeof(made.uuid));
    *device = made;
    return SYMM_OK;
}

/* What the heap and the kernels need of a device. */
static symm_status check_device(const struct symm_cuda_driver *d, CUdevice handle,
                                const struct symm_device_info *device)
{
    static const struct {
        CUdevice_attribute which;
        const char *name;
    } needs[] = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
         "virtual memory management"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
         "memory handles that are file descriptors"},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
    };

    if (device->major < OLDEST_MAJOR)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "device %d (%s) has compute capability %d.%d; the kernels need %d.0 or "
            "newer; use SYMM_BACKEND=host",
            device->ordinal, device->name, device->major, device->minor, OLDEST_MAJOR);
    for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++) {
        int value = 0;
        symm_status status = attribute(d, handle, needs[i].which, &value);

        if (status != SYMM_OK)
            return status;
        if (value == 0)
            return symm__fail(SYMM_ERR_UNSUPPORTED,
                              "device %d (%s) has no %s; use SYMM_BACKEND=host",
                              device->ordinal, device->name, needs[i].name);
    }
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

/* The device of the thread's context, else the local rank's. */
static symm_status choose_device(const struct symm_cuda_driver *d, int local_rank,
                                 int *ordinal)
{
    CUcontext current = NULL;
    CUdevice device;
    int count = 0;
    symm_status status = symm__cuda_count(&count);

    if (status != SYMM_OK)
        return status;
    if (count < 1)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "the CUDA driver shows no device; look at "
                          "CUDA_VISIBLE_DEVICES, or use SYMM_BACKEND=host");
    *ordinal = local_rank % count;
    if (d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        d->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        *ordinal = (int)device; /* a device's handle is its ordinal */
    return SYMM_OK;
}

/* ---- The object ------------------------------------------------------------------ */

/* Object, device and retained context: what a rank and a group of threads both need. */
static symm_status backend_create(const struct symm_cuda_driver *d, int ordinal,
                                  struct symm_backend **backend)
{
    struct symm_backend *b = calloc(1, sizeof(*b));
    symm_status status;

    if (!b)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the CUDA backend");
    b->driver = d;
    b->process = getpid();
    status = symm__cuda_describe(d, ordinal, &b->device);
    if (status == SYMM_OK)
        status =
            SYMM_CUDA_CALL(d, cuDeviceGet, (&b->handle, ordinal), "device %d", ordinal);
    if (status == SYMM_OK)
        status = check_device(d, b->handle, &b->device);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDevicePrimaryCtxRetain, (&b->context, b->handle),
                                "the primary context of device %d", ordinal);
    if (status != SYMM_OK) {
        free(b);
        return status;
    }
    pthread_mutex_init(&b->words_lock, NULL);
    *backend = b;
    return SYMM_OK;
}

static void cuda_close(struct symm_backend *backend)
{
    struct symm_cuda_scope scope;

    if (!backend)
        return;
    symm__cuda_tokens_forget(backend);
    pthread_mutex_destroy(&backend->words_lock);
    if (symm__cuda_enter_last(backend, &scope)) {
        symm__cuda_modules_close(backend);
        if (backend->setup)
            (void)backend->driver->cuStreamDestroy(backend->setup);
        symm__cuda_leave(&scope);
        (void)backend->driver->cuDevicePrimaryCtxRelease(backend->handle);
    } else {
        symm__cuda_modules_abandon(backend);
    }
    free(backend);
}

/* With the scope entered. */
static symm_status open_rank(struct symm_backend *b)
{
    CUmemAllocationProp properties = symm__cuda_properties(b->device.ordinal);
    size_t least = 0;
    symm_status status =
        SYMM_CUDA_CALL(b->driver, cuMemGetAllocationGranularity,
                       (&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                       "the granularity of device %d", b->device.ordinal);

    b->granularity = least > GRANULARITY ? least : GRANULARITY;
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(b->driver, cuStreamCreateWithPriority,
                                (&b->setup, CU_STREAM_NON_BLOCKING, 0),
                                "a stream for set-up on device %d", b->device.ordinal);
    if (status == SYMM_OK)
        status = symm__cuda_multicast_ask(b, &b->device.multicast);
    if (status == SYMM_OK)
        status = symm__cuda_modules_open(b);
    return status;
}

symm_status symm__cuda_open_device(int ordinal, struct symm_backend **backend)
{
    const struct symm_cuda_driver *d;
    struct symm_cuda_scope scope;
    struct symm_backend *b = NULL;
    symm_status status = symm__cuda_driver(&d);

    if (status == SYMM_OK)
        status = backend_create(d, ordinal, &b);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_enter(b, &scope);
    if (status == SYMM_OK) {
        status = open_rank(b);
        symm__cuda_leave(&scope);
    }
    if (status != SYMM_OK) {
        cuda_close(b);
        return status;
    }
    symm__log(SYMM_LOG_DEBUG, "device %d: %s at %s", b->device.ordinal, b->device.name,
              b->device.bus);
    *backend = b;
    return SYMM_OK;
}

static symm_status cuda_open(int local_rank, struct symm_backend **backend)
{
    const struct symm_cuda_driver *d;
    int ordinal = 0;
    symm_status status = symm__cuda_driver(&d);

    if (status == SYMM_OK)
        status = choose_device(d, local_rank, &ordinal);
    return status == SYMM_OK ? symm__cuda_open_device(ordinal, backend) : status;
}

static symm_status cuda_open_owner(struct symm_backend *member,
                                   struct symm_backend **owner)
{
    symm_status status = backend_create(member->driver, member->device.ordinal, owner);

    if (status != SYMM_OK)
        return status;
    (*owner)->granularity = member->granularity;
    (*owner)->keeps_words = true;
    return SYMM_OK;
}

static const struct symm_device_info *cuda_describe(const struct symm_backend *backend)
{
    return &backend->device;
}

static size_t cuda_granularity(const struct symm_backend *backend)
{
    return backend->granularity;
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

    return status == SYMM_OK ? symm__cuda_settle(b, "filling memory") : status;
}

static symm_status local_alloc(struct symm_backend *b, size_t bytes, void **memory)
{
    CUdeviceptr at = 0;
    symm_status status =
        SYMM_CUDA_CALL(b->driver, cuMemAlloc, (&at, bytes), "%zu bytes of device %d",
                       bytes, b->device.ordinal);

    if (status != SYMM_OK)
        return status;
    status = fill(b, at, 0, bytes);
    if (status != SYMM_OK) {
        (void)b->driver->cuMemFree(at);
        return status;
    }
    *memory = (void *)(uintptr_t)at;
    return SYMM_OK;
}

symm_status symm__cuda_local_alloc(struct symm_backend *backend, size_t bytes,
                                   void **memory)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = local_alloc(backend, bytes, memory);
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

static symm_status host_alloc(struct symm_backend *b, size_t bytes, void **memory)
{
    CUdeviceptr seen = 0;
    void *made = NULL;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemHostAlloc,
        (&made, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "%zu bytes of page-locked memory", bytes);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(b->driver, cuMemHostGetDevicePointer, (&seen, made, 0),
                            "%zu bytes of page-locked memory", bytes);
    if (status == SYMM_OK && seen != (CUdeviceptr)(uintptr_t)made)
        status = symm__fail(SYMM_ERR_UNSUPPORTED,
                            "device %d sees page-locked memory at another address than "
                            "the host; use SYMM_BACKEND=host",
                            b->device.ordinal);
    if (status != SYMM_OK) {
        (void)b->driver->cuMemFreeHost(made);
        return status;
    }
    memset(made, 0, bytes);
    *memory = made;
    return SYMM_OK;
}

symm_status symm__cuda_host_alloc(symm_ctx *ctx, size_t bytes, void **memory)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(ctx->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = host_alloc(ctx->backend, bytes, memory);
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
        status = symm__cuda_settle(b, "copying memory");
    symm__cuda_leave(&scope);
    return status;
}

const struct symm_backend_ops symm__backend_cuda = {
    .size = sizeof(struct symm_backend_ops),
    .name = "cuda",
    .device_ops = &symm__cuda_device_ops,
    .count = symm__cuda_count,
    .open = cuda_open,
    .open_owner = cuda_open_owner,
    .close = cuda_close,
    .granularity = cuda_granularity,
    .describe = cuda_describe,
    .reachable = symm__cuda_reachable,
    .reserve = symm__cuda_reserve,
    .release = symm__cuda_release,
    .share = symm__cuda_share,
    .commit = symm__cuda_commit,
    .import = symm__cuda_import,
    .reach = symm__cuda_reach,
    .unmap = symm__cuda_unmap,
    .local_alloc = symm__cuda_local_alloc,
    .local_free = symm__cuda_local_free,
    .stream_create = symm__cuda_stream_create,
    .stream_destroy = symm__cuda_stream_destroy,
    .stream_drain = symm__cuda_stream_drain,
    .stream_is_own = symm__cuda_stream_is_own,
    .stream_push = symm__cuda_stream_push,
    .stream_synchronize = symm__cuda_stream_synchronize,
};
