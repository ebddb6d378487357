/* SPDX-License-Identifier: MIT */
/*
 * register.c - memory of the caller on a device: how it is passed to peers, and their mappings.
 *
 * Two kinds: memory of cuMemCreate, whose handles are passed as descriptors (a tensor may lie
 * in several such allocations side by side), and memory of cuMemAlloc, by its IPC handle. The
 * identifier of a run is the driver's, of the allocations in it.
 *
 * Guarantees: memory of cuMemCreate lives while it is registered, even if the user frees it.
 * Memory of cuMemAlloc must not be freed while it is registered.
 * Refuses: memory of the host or of another device, and memory without a handle that can be
 * passed (cuMemAllocAsync).
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/device_ops.h"
#include "cuda/device.h"
#include "util/status.h"

_Static_assert(sizeof(CUipcMemHandle) == SYMM_RUN_TOKEN, "a token holds an IPC handle");
_Static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(uint64_t),
               "a handle fits into `held`");

/* ---- Own memory ------------------------------------------------------------------- */

static symm_status check_place(struct symm_backend *b, CUdeviceptr ptr)
{
    unsigned type = 0;
    int ordinal = -1;
    symm_status status;
    CUresult result =
        b->driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);

    if (result == CUDA_ERROR_INVALID_VALUE)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_buffer_register: %#llx is no memory that CUDA knows",
                          (unsigned long long)ptr);
    status = symm__cuda_check(b->driver, result, "cuPointerGetAttribute",
                              "symm_buffer_register: the kind of memory at %#llx",
                              (unsigned long long)ptr);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(b->driver, cuPointerGetAttribute,
                                (&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr),
                                "symm_buffer_register: the device of %#llx",
                                (unsigned long long)ptr);
    if (status == SYMM_OK &&
        (type != CU_MEMORYTYPE_DEVICE || ordinal != b->device.ordinal))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_buffer_register: %#llx is memory of %s %d, not of this "
                          "rank's device %d",
                          (unsigned long long)ptr,
                          type == CU_MEMORYTYPE_DEVICE ? "device"
                                                       : "the host near device",
                          ordinal, b->device.ordinal);
    return status;
}

/* Memory of cuMemCreate at `at`: one more chunk with its descriptor. */
static symm_status take_chunk(struct symm_backend *b, struct symm_own_run *own,
                              CUdeviceptr at, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemRetainAllocationHandle, (&handle, (void *)(uintptr_t)at),
        "symm_buffer_register: the handle of %zu bytes at %#llx", bytes,
        (unsigned long long)at);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(b->driver, cuMemExportToShareableHandle,
                            (&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "symm_buffer_register: a descriptor of %zu bytes at %#llx; "
                            "it must be allocated with "
                            "handles of this type",
                            bytes, (unsigned long long)at);
    if (status != SYMM_OK) {
        (void)b->driver->cuMemRelease(handle);
        return status;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    own->held[own->run.chunks] = handle;
    own->fds[own->run.chunks] = fd;
    own->run.chunk[own->run.chunks++] = bytes;
    own->run.bytes += bytes;
    return SYMM_OK;
}

/* The allocation that `at` lies in. */
static symm_status look_up(struct symm_backend *b, CUdeviceptr at, CUdeviceptr *base,
                           size_t *bytes, uint64_t *id)
{
    unsigned long long found = 0;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemGetAddressRange, (base, bytes, at),
        "symm_buffer_register: the allocation at %#llx", (unsigned long long)at);

    if (status == SYMM_OK)
        status =
            SYMM_CUDA_CALL(b->driver, cuPointerGetAttribute,
                           (&found, CU_POINTER_ATTRIBUTE_BUFFER_ID, at),
                           "symm_buffer_register: the identifier of the allocation at "
                           "%#llx",
                           (unsigned long long)at);
    *id = found;
    return status;
}

/* Memory of cuMemAlloc: own->run has its allocation. */
static symm_status take_legacy(struct symm_backend *b, CUdeviceptr ptr, size_t bytes,
                               struct symm_own_run *own)
{
    CUipcMemHandle ipc;
    symm_status status;

    if (ptr + bytes > own->run.base + own->run.bytes)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_buffer_register: %zu bytes at %#llx leave their allocation of "
            "%llu bytes",
            bytes, (unsigned long long)ptr, (unsigned long long)own->run.bytes);
    own->run.kind = SYMM_RUN_BY_TOKEN;
    own->run.chunks = 1;
    own->run.chunk[0] = own->run.bytes;
    own->fds[0] = -1;
    status = SYMM_CUDA_CALL(b->driver, cuIpcGetMemHandle, (&ipc, own->run.base),
                            "symm_buffer_register: %zu bytes at %#llx have no handle "
                            "that peers could open (memory pools have none)",
                            bytes, (unsigned long long)ptr);
    if (status == SYMM_OK)
        memcpy(own->token, &ipc, sizeof(ipc));
    return status;
}

/* Memory of cuMemCreate: all allocations from `base` on that the memory lies in. */
static symm_status take_chunks(struct symm_backend *b, CUdeviceptr ptr, size_t bytes,
                               CUdeviceptr base, size_t size, struct symm_own_run *own)
{
    const CUdeviceptr end = ptr + bytes;

    for (;;) {
        symm_status status = take_chunk(b, own, base, size);
        const CUdeviceptr at = base + size;
        uint64_t id = 0;

        if (status != SYMM_OK || at >= end)
            return status;
        if (own->run.chunks == SYMM_RUN_CHUNKS)
            return symm__fail(
                SYMM_ERR_UNSUPPORTED,
                "symm_buffer_register: %zu bytes at %#llx lie in more than %d "
                "allocations",
                bytes, (unsigned long long)ptr, SYMM_RUN_CHUNKS);
        status = look_up(b, at, &base, &size, &id);
        if (status == SYMM_OK && base != at)
            status = symm__fail(SYMM_ERR_INVALID,
                                "symm_buffer_register: %zu bytes at %#llx leave their "
                                "allocation",
                                bytes, (unsigned long long)ptr);
        if (status != SYMM_OK)
            return status;
        own->run.id = own->run.id * UINT64_C(0x9e3779b97f4a7c15) + id;
    }
}

/* With the scope entered. */
static symm_status take(struct symm_backend *b, CUdeviceptr ptr, size_t bytes,
                        struct symm_own_run *own)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    size_t size = 0;
    uint64_t id = 0;
    symm_status status = check_place(b, ptr);

    if (status == SYMM_OK)
        status = look_up(b, ptr, &base, &size, &id);
    if (status != SYMM_OK)
        return status;
    own->run.base = base;
    own->run.id = id;
    own->run.kind = SYMM_RUN_DESCRIPTORS;
    if (b->driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)base) !=
        CUDA_SUCCESS) {
        own->run.bytes = size;
        return take_legacy(b, ptr, bytes, own);
    }
    (void)b->driver->cuMemRelease(handle);
    return take_chunks(b, ptr, bytes, base, size, own);
}

/* With the scope entered, or in a child of the process that entered it. */
static void give(struct symm_backend *b, struct symm_own_run *own)
{
    for (uint32_t i = 0; own->run.kind == SYMM_RUN_DESCRIPTORS && i < own->run.chunks;
         i++) {
        if (own->fds[i] >= 0)
            close(own->fds[i]);
        if (b->process == getpid())
            (void)b->driver->cuMemRelease(own->held[i]);
    }
}

symm_status symm__cuda_run_take(struct symm_backend *b, void *ptr, size_t bytes,
                                const struct symm_mem *mem, struct symm_own_run *own)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(b, &scope);

    (void)mem; /* the driver knows it as any other memory of cuMemCreate */
    if (status != SYMM_OK)
        return status;
    status = take(b, (CUdeviceptr)(uintptr_t)ptr, bytes, own);
    if (status != SYMM_OK)
        give(b, own);
    symm__cuda_leave(&scope);
    return status;
}

void symm__cuda_run_give(struct symm_backend *b, struct symm_own_run *own)
{
    struct symm_cuda_scope scope;
    const bool entered = symm__cuda_enter_last(b, &scope);

    give(b, own);
    if (entered)
        symm__cuda_leave(&scope);
}

/* ---- A peer's memory ------------------------------------------------------------- */

/* A peer's chunks side by side in address space of their own. */
static symm_status map_chunks(struct symm_backend *b, const struct symm_run *run,
                              const int *fds, CUdeviceptr *at)
{
    const struct symm_cuda_driver *d = b->driver;
    CUdeviceptr base = 0;
    uint64_t mapped = 0;
    symm_status status = SYMM_CUDA_CALL(
        d, cuMemAddressReserve, (&base, run->bytes, b->granularity, 0, 0),
        "address space of %llu bytes for a peer's registered memory",
        (unsigned long long)run->bytes);

    if (status != SYMM_OK)
        return status;
    for (uint32_t i = 0; i < run->chunks && status == SYMM_OK; i++) {
        CUmemGenericAllocationHandle memory;

        status = SYMM_CUDA_CALL(d, cuMemImportFromShareableHandle,
                                (&memory, (void *)(intptr_t)fds[i],
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                "a peer's registered memory of %llu bytes",
                                (unsigned long long)run->chunk[i]);
        if (status != SYMM_OK)
            break;
        status = symm__cuda_map(b, memory, base + mapped, run->chunk[i]);
        (void)d->cuMemRelease(memory);
        if (status == SYMM_OK)
            mapped += run->chunk[i];
    }
    if (status == SYMM_OK) {
        *at = base;
        return SYMM_OK;
    }
    if (mapped > 0)
        (void)d->cuMemUnmap(base, mapped);
    (void)d->cuMemAddressFree(base, run->bytes);
    return status;
}

symm_status symm__cuda_run_open(struct symm_backend *b, const struct symm_run *run,
                                const int *fds, const uint8_t *token, void **at)
{
    struct symm_cuda_scope scope;
    CUdeviceptr mapped = 0;
    CUipcMemHandle ipc;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    memcpy(&ipc, token, sizeof(ipc));
    if (run->kind == SYMM_RUN_DESCRIPTORS)
        status = map_chunks(b, run, fds, &mapped);
    else
        status = SYMM_CUDA_CALL(b->driver, cuIpcOpenMemHandle,
                                (&mapped, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                                "a peer's registered memory of %llu bytes",
                                (unsigned long long)run->bytes);
    symm__cuda_leave(&scope);
    *at = (void *)(uintptr_t)mapped;
    return status;
}

void symm__cuda_run_close(struct symm_backend *b, const struct symm_run *run, void *at)
{
    const CUdeviceptr mapped = (CUdeviceptr)(uintptr_t)at;
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(b, &scope))
        return;
    if (run->kind == SYMM_RUN_BY_TOKEN) {
        (void)b->driver->cuIpcCloseMemHandle(mapped);
    } else {
        (void)b->driver->cuMemUnmap(mapped, run->bytes);
        (void)b->driver->cuMemAddressFree(mapped, run->bytes);
    }
    symm__cuda_leave(&scope);
}

symm_status symm__cuda_run_reach(struct symm_backend *b, const struct symm_run *run)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = symm__cuda_access(b, run->base, run->bytes);
    symm__cuda_leave(&scope);
    return status;
}

void symm__cuda_settle(symm_ctx *ctx)
{
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(ctx->backend, &scope))
        return;
    ctx->device_ops->ending(ctx, true);
    (void)ctx->backend->driver->cuCtxSynchronize();
    ctx->device_ops->ending(ctx, false);
    symm__cuda_leave(&scope);
}
