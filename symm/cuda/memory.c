/* SPDX-License-Identifier: MIT */
/*
 * memory.c - the heap on CUDA: a reservation of address space, physical memory mapped
 * into it, and peers' memory beside it by file descriptors, or by fabric handles over hosts.
 *
 * Guarantees: new memory is zeroed and mapped for this rank's device before a peer can map it; an
 * operation that fails leaves address space, table and descriptors as they were. Physical memory
 * lives while a process has it mapped: a rank that finalizes unmaps only its own view, and peers
 * still read through theirs. No memory is unmapped under a kernel of this rank: the runtime waits
 * for its kernels first (symm__cuda_team_close).
 * Ranks that are threads share one reservation: memory stays mapped in it until the group ends
 * or a later team's memory replaces it.
 * Refuses: handles that are not memory of a device.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"
#include "util/log.h"
#include "util/status.h"

/* ---- The table of what is mapped; with the space locked -------------------------- */

/* Index of the first mapping that does not end at or before `at`. */
static size_t mapping_find(const struct symm_cuda_space *space, CUdeviceptr at)
{
    size_t low = 0, high = space->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct symm_cuda_mapping *m = &space->mappings[middle];

        if (m->at + m->bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static symm_status mapping_insert(struct symm_cuda_space *space, CUdeviceptr at,
                                  size_t bytes)
{
    size_t index = mapping_find(space, at);

    if (space->count == space->capacity) {
        size_t capacity = space->capacity ? 2 * space->capacity : 64;
        struct symm_cuda_mapping *grown =
            realloc(space->mappings, capacity * sizeof(*grown));

        if (!grown)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a table of %zu mappings",
                              capacity);
        space->mappings = grown;
        space->capacity = capacity;
    }
    memmove(&space->mappings[index + 1], &space->mappings[index],
            (space->count - index) * sizeof(*space->mappings));
    space->mappings[index] = (struct symm_cuda_mapping){.at = at, .bytes = bytes};
    space->count++;
    return SYMM_OK;
}

static void mapping_remove(struct symm_cuda_space *space, size_t index)
{
    space->count--;
    memmove(&space->mappings[index], &space->mappings[index + 1],
            (space->count - index) * sizeof(*space->mappings));
}

/* Unmaps every mapping that touches the range; each goes as a whole. */
static void unmap_range(struct symm_backend *backend, CUdeviceptr at, size_t bytes)
{
    struct symm_cuda_space *space = backend->space;

    for (size_t i = mapping_find(space, at);
         i < space->count && space->mappings[i].at < at + bytes;) {
        struct symm_cuda_mapping gone = space->mappings[i];

        if (backend->driver->cuMemUnmap(gone.at, gone.bytes) != CUDA_SUCCESS)
            symm__log(SYMM_LOG_DEBUG, "%zu bytes stay mapped until the process ends",
                      gone.bytes);
        mapping_remove(space, i);
    }
}

/* ---- Reservations ---------------------------------------------------------------- */

symm_status symm__cuda_reserve(struct symm_backend *backend, size_t bytes, void **base)
{
    struct symm_cuda_space *space = calloc(1, sizeof(*space));
    struct symm_cuda_scope scope;
    symm_status status;

    if (!space)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a table of mappings");
    status = symm__cuda_enter(backend, &scope);
    if (status == SYMM_OK) {
        status = SYMM_CUDA_CALL(
            backend->driver, cuMemAddressReserve,
            (&space->base, bytes, backend->granularity, 0, 0),
            "reserving %zu bytes of address space for all ranks' heaps; try a smaller "
            "SYMM_HEAP_BYTES",
            bytes);
        symm__cuda_leave(&scope);
    }
    if (status != SYMM_OK) {
        free(space);
        return status;
    }
    space->bytes = bytes;
    pthread_mutex_init(&space->lock, NULL);
    backend->space = space;
    backend->owns_space = true;
    *base = (void *)(uintptr_t)space->base;
    return SYMM_OK;
}

void symm__cuda_release(struct symm_backend *backend, void *base, size_t bytes)
{
    const struct symm_cuda_driver *d = backend->driver;
    struct symm_cuda_space *space = backend->space;
    struct symm_cuda_scope scope;

    (void)base;
    if (!space || !backend->owns_space)
        return;
    if (symm__cuda_enter_last(backend, &scope)) {
        unmap_range(backend, space->base, space->bytes);
        if (d->cuMemAddressFree(space->base, bytes) != CUDA_SUCCESS)
            symm__log(SYMM_LOG_DEBUG, "%zu bytes of address space stay reserved",
                      bytes);
        symm__cuda_leave(&scope);
        for (size_t i = 0; i < space->retained_count; i++)
            (void)d->cuDevicePrimaryCtxRelease(space->retained[i]);
    }
    backend->space = NULL;
    free(space->retained);
    free(space->mappings);
    pthread_mutex_destroy(&space->lock);
    free(space);
}

symm_status symm__cuda_share(struct symm_backend *backend, struct symm_backend *owner)
{
    struct symm_cuda_space *space = owner->space;
    CUcontext context;
    CUdevice *grown;
    symm_status status;

    pthread_mutex_lock(&space->lock);
    /* Memory of this device stays in the space after the rank: so must the context. */
    grown = realloc(space->retained, (space->retained_count + 1) * sizeof(*grown));
    if (grown) {
        space->retained = grown;
        status = SYMM_CUDA_CALL(
            backend->driver, cuDevicePrimaryCtxRetain, (&context, backend->handle),
            "the primary context of device %d", backend->device.ordinal);
        if (status == SYMM_OK)
            space->retained[space->retained_count++] = backend->handle;
    } else {
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for a list of devices");
    }
    pthread_mutex_unlock(&space->lock);
    if (status == SYMM_OK)
        backend->space = space;
    return status;
}

/* ---- Memory ---------------------------------------------------------------------- */

symm_status symm__cuda_access(struct symm_backend *backend, CUdeviceptr at,
                              size_t bytes)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = backend->device.ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    return SYMM_CUDA_CALL(backend->driver, cuMemSetAccess, (at, bytes, &access, 1),
                          "access of device %d to %zu bytes", backend->device.ordinal,
                          bytes);
}

symm_status symm__cuda_map(struct symm_backend *backend,
                           CUmemGenericAllocationHandle memory, CUdeviceptr at,
                           size_t bytes)
{
    symm_status status = SYMM_CUDA_CALL(
        backend->driver, cuMemMap, (at, bytes, 0, memory, 0),
        "mapping %zu bytes for device %d", bytes, backend->device.ordinal);

    if (status != SYMM_OK)
        return status;
    status = symm__cuda_access(backend, at, bytes);
    if (status != SYMM_OK)
        (void)backend->driver->cuMemUnmap(at, bytes);
    return status;
}

/* Own memory at a free place: created, mapped, zeroed; *handle a descriptor, or -1 where
 * peers are threads. */
static symm_status commit(struct symm_backend *backend, CUdeviceptr at, size_t bytes,
                          int *handle)
{
    const struct symm_cuda_driver *d = backend->driver;
    CUmemAllocationProp properties = symm__cuda_properties(backend->device.ordinal);
    CUmemGenericAllocationHandle memory;
    int fd = -1;
    symm_status status;

    if (backend->fabric)
        properties.requestedHandleTypes =
            (CUmemAllocationHandleType)(properties.requestedHandleTypes |
                                        CU_MEM_HANDLE_TYPE_FABRIC);
    status = SYMM_CUDA_CALL(d, cuMemCreate, (&memory, bytes, &properties, 0),
                            "%zu bytes of device %d", bytes, backend->device.ordinal);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_map(backend, memory, at, bytes);
    if (status != SYMM_OK)
        goto err_memory;
    status = SYMM_CUDA_CALL(d, cuMemsetD8Async, (at, 0, bytes, backend->setup),
                            "zeroing %zu bytes", bytes);
    if (status == SYMM_OK)
        status = symm__cuda_complete(backend, "zeroing new memory");
    if (status == SYMM_OK && backend->owns_space)
        status = SYMM_CUDA_CALL(
            d, cuMemExportToShareableHandle,
            (&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "a descriptor of %zu bytes of device %d", bytes, backend->device.ordinal);
    if (status != SYMM_OK)
        goto err_map;
    if (fd >= 0)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)d->cuMemRelease(memory); /* the mapping holds it from here on */
    *handle = fd;
    return SYMM_OK;

err_map:
    (void)d->cuMemUnmap(at, bytes);
err_memory:
    (void)d->cuMemRelease(memory);
    return status;
}

symm_status symm__cuda_mem_alloc(struct symm_backend *b, struct symm_mem *mem)
{
    const struct symm_cuda_driver *d = b->driver;
    struct symm_cuda_scope scope;
    CUdeviceptr at = 0;
    int none;
    symm_status status = symm__cuda_enter(b, &scope);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(d, cuMemAddressReserve, (&at, mem->bytes, 0, 0, 0),
                            "address space of %zu bytes", mem->bytes);
    if (status == SYMM_OK) {
        status = commit(b, at, mem->bytes, &none);
        if (status != SYMM_OK)
            (void)d->cuMemAddressFree(at, mem->bytes);
    }
    symm__cuda_leave(&scope);
    mem->ptr = (char *)(uintptr_t)at;
    return status;
}

void symm__cuda_mem_free(struct symm_backend *b, const struct symm_mem *mem)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)mem->ptr;
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(b, &scope))
        return;
    (void)b->driver->cuCtxSynchronize(); /* calls in flight may use it */
    (void)b->driver->cuMemUnmap(at, mem->bytes);
    (void)b->driver->cuMemAddressFree(at, mem->bytes);
    symm__cuda_leave(&scope);
}

/* The memory that is mapped: own memory is made, a peer's is imported by the handle it sent. */
struct source {
    int *commits;          /* not NULL: own memory; its descriptor, as commit says */
    int fd;                /* of a peer on this host, */
    const uint8_t *handle; /* or not NULL: of one on another */
};

static symm_status open_shared(struct symm_backend *backend,
                               const struct source *source, size_t bytes,
                               CUmemGenericAllocationHandle *memory)
{
    CUmemFabricHandle handle;

    if (!source->handle)
        return SYMM_CUDA_CALL(backend->driver, cuMemImportFromShareableHandle,
                              (memory, (void *)(intptr_t)source->fd,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                              "a peer's memory of %zu bytes for device %d; let every "
                              "rank see all devices "
                              "(CUDA_VISIBLE_DEVICES)",
                              bytes, backend->device.ordinal);
    memcpy(&handle, source->handle, sizeof(handle));
    return SYMM_CUDA_CALL(backend->driver, cuMemImportFromShareableHandle,
                          (memory, &handle, CU_MEM_HANDLE_TYPE_FABRIC),
                          "%zu bytes of another host for device %d, by a fabric handle",
                          bytes, backend->device.ordinal);
}

static symm_status import(struct symm_backend *backend, CUdeviceptr at, size_t bytes,
                          const struct source *source)
{
    const struct symm_cuda_driver *d = backend->driver;
    CUmemAllocationProp properties = {0};
    CUmemGenericAllocationHandle memory;
    symm_status status = open_shared(backend, source, bytes, &memory);

    if (status != SYMM_OK)
        return status;
    status =
        SYMM_CUDA_CALL(d, cuMemGetAllocationPropertiesFromHandle, (&properties, memory),
                       "what a peer's memory of %zu bytes is", bytes);
    if (status == SYMM_OK && (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
                              properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE))
        status = symm__fail(SYMM_ERR_REFUSED,
                            "a peer's memory of %zu bytes is not memory of a device "
                            "(type %d at location type %d)",
                            bytes, (int)properties.type, (int)properties.location.type);
    if (status == SYMM_OK) /* refuses more bytes than the memory has */
        status = symm__cuda_map(backend, memory, at, bytes);
    (void)d->cuMemRelease(memory);
    return status;
}

/* Adds a mapping to the table, then makes it. */
static symm_status place(struct symm_backend *backend, void *address, size_t bytes,
                         const struct source *source)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    struct symm_cuda_space *space = backend->space;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&space->lock);
    /* Ranks that are threads: an ended team may have left memory here. */
    unmap_range(backend, at, bytes);
    status = mapping_insert(space, at, bytes);
    pthread_mutex_unlock(&space->lock);
    if (status == SYMM_OK) {
        status = source->commits ? commit(backend, at, bytes, source->commits)
                                 : import(backend, at, bytes, source);
        if (status != SYMM_OK) {
            pthread_mutex_lock(&space->lock);
            mapping_remove(space, mapping_find(space, at));
            pthread_mutex_unlock(&space->lock);
        }
    }
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_commit(struct symm_backend *backend, void *at, size_t bytes,
                              size_t unused, int *handle)
{
    (void)unused; /* a device gives memory by whole granules */
    return place(backend, at, bytes, &(struct source){.commits = handle});
}

symm_status symm__cuda_import(struct symm_backend *backend, int handle, void *at,
                              size_t bytes)
{
    return place(backend, at, bytes, &(struct source){.fd = handle});
}

symm_status symm__cuda_fabric_import(struct symm_backend *backend,
                                     const uint8_t *handle, void *at, size_t bytes)
{
    return place(backend, at, bytes, &(struct source){.handle = handle});
}

symm_status symm__cuda_reach(struct symm_backend *backend, void *at, size_t bytes)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(backend, &scope);

    if (status != SYMM_OK)
        return status;
    status = symm__cuda_access(backend, (CUdeviceptr)(uintptr_t)at, bytes);
    symm__cuda_leave(&scope);
    return status;
}

void symm__cuda_unmap(struct symm_backend *backend, void *at, size_t bytes)
{
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(backend, &scope))
        return;
    pthread_mutex_lock(&backend->space->lock);
    unmap_range(backend, (CUdeviceptr)(uintptr_t)at, bytes);
    pthread_mutex_unlock(&backend->space->lock);
    symm__cuda_leave(&scope);
}
