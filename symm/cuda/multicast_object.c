/* SPDX-License-Identifier: MIT */
/*
 * multicast_object.c - one rank's part of a multicast object: create or import, add the
 * device, bind memory, map; and the release of all of it.
 *
 * Guarantees: nothing is lost on any path (what a step made stays in the struct until finish
 * releases it); an address stops working before the memory under it is unbound.
 * Refuses: a granule of multicast that does not divide the heap's granule. (A larger granule of
 * the heap would make ranks differ that do not want multicast.)
 */
#include <fcntl.h>
#include <stdlib.h>

#include "cuda/multicast_object.h"
#include "util/log.h"
#include "util/status.h"

static CUmulticastObjectProp properties(int devices, size_t bytes)
{
    return (CUmulticastObjectProp){
        .numDevices = (unsigned)devices,
        .size = bytes,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    };
}

symm_status symm__cuda_multicast_measure(const struct symm_cuda_multicast *mc,
                                         int devices, size_t *bytes)
{
    const struct symm_backend *b = mc->backend;
    CUmulticastObjectProp wanted = properties(devices, *bytes);
    size_t least = 0, memory = 0;
    symm_status status =
        SYMM_CUDA_CALL(b->driver, cuMulticastGetGranularity,
                       (&least, &wanted, CU_MULTICAST_GRANULARITY_MINIMUM),
                       "the granularity of multicast over %d devices", devices);

    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(b->driver, cuDeviceTotalMem, (&memory, b->handle),
                                "memory of device %d", b->device.ordinal);
    if (status != SYMM_OK)
        return status;
    if (least == 0 || b->granularity % least != 0)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "multicast over %d devices comes in granules of %zu bytes, the "
            "heap in granules of %zu",
            devices, least, b->granularity);
    if (*bytes > memory)
        *bytes = memory - memory % b->granularity;
    return SYMM_OK;
}

symm_status symm__cuda_multicast_create(struct symm_cuda_multicast *mc, int devices,
                                        size_t bytes, int *fd)
{
    const struct symm_cuda_driver *d = mc->backend->driver;
    CUmulticastObjectProp wanted = properties(devices, bytes);
    int made = -1;
    symm_status status = SYMM_CUDA_CALL(
        d, cuMulticastCreate, (&mc->object, &wanted),
        "a multicast object of %zu bytes for %d devices", bytes, devices);

    mc->exists = status == SYMM_OK;
    mc->bytes = bytes;
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(
            d, cuMemExportToShareableHandle,
            (&made, mc->object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "a descriptor of a multicast object of %zu bytes", bytes);
    if (status != SYMM_OK)
        return status;
    (void)fcntl(made, F_SETFD, FD_CLOEXEC);
    *fd = made;
    return SYMM_OK;
}

symm_status symm__cuda_multicast_import(struct symm_cuda_multicast *mc, size_t bytes,
                                        int fd)
{
    symm_status status = SYMM_CUDA_CALL(
        mc->backend->driver, cuMemImportFromShareableHandle,
        (&mc->object, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "a multicast object of %zu bytes for device %d", bytes,
        mc->backend->device.ordinal);

    mc->exists = status == SYMM_OK;
    mc->bytes = bytes;
    return status;
}

symm_status symm__cuda_multicast_add(struct symm_cuda_multicast *mc)
{
    return SYMM_CUDA_CALL(
        mc->backend->driver, cuMulticastAddDevice, (mc->object, mc->backend->handle),
        "device %d to a multicast object", mc->backend->device.ordinal);
}

/* ---- Memory ---------------------------------------------------------------------- */

static symm_status bindings_reserve(struct symm_cuda_multicast *mc)
{
    size_t capacity = mc->capacity ? 2 * mc->capacity : 8;
    struct symm_cuda_bound *grown;

    if (mc->count < mc->capacity)
        return SYMM_OK;
    grown = realloc(mc->bindings, capacity * sizeof(*grown));
    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu bindings",
                          capacity);
    mc->bindings = grown;
    mc->capacity = capacity;
    return SYMM_OK;
}

symm_status symm__cuda_multicast_bind(struct symm_cuda_multicast *mc, void *segment,
                                      size_t skip, struct symm_cuda_bound place)
{
    const struct symm_cuda_driver *d = mc->backend->driver;
    CUmemGenericAllocationHandle memory;
    symm_status status = bindings_reserve(mc);

    if (status != SYMM_OK)
        return status;
    /* The segment's own handle was released when it was mapped. */
    status = SYMM_CUDA_CALL(d, cuMemRetainAllocationHandle, (&memory, segment),
                            "the memory of a segment of device %d",
                            mc->backend->device.ordinal);
    if (status == SYMM_OK) {
        status = SYMM_CUDA_CALL(d, cuMulticastBindMem,
                                (mc->object, place.at, memory, skip, place.bytes, 0),
                                "%zu bytes of device %d at %zu of a multicast object",
                                place.bytes, mc->backend->device.ordinal, place.at);
        (void)d->cuMemRelease(memory); /* the binding holds it from here on */
    }
    if (status == SYMM_OK)
        mc->bindings[mc->count++] = place;
    return status;
}

symm_status symm__cuda_multicast_map(struct symm_cuda_multicast *mc)
{
    struct symm_backend *b = mc->backend;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemAddressReserve, (&mc->view, mc->bytes, b->granularity, 0, 0),
        "reserving %zu bytes of address space for multicast", mc->bytes);

    if (status != SYMM_OK)
        mc->view = 0;
    else
        status = symm__cuda_map(b, mc->object, mc->view, mc->bytes);
    mc->mapped = status == SYMM_OK;
    return status;
}

/* ---- Release --------------------------------------------------------------------- */

void symm__cuda_multicast_unbind(struct symm_cuda_multicast *mc, size_t keep)
{
    const struct symm_backend *b = mc->backend;
    struct symm_cuda_scope scope;

    if (mc->count <= keep || !symm__cuda_enter_last(mc->backend, &scope))
        return;
    while (mc->count > keep) {
        const struct symm_cuda_bound *last = &mc->bindings[--mc->count];

        if (b->driver->cuMulticastUnbind(mc->object, b->handle, last->at,
                                         last->bytes) != CUDA_SUCCESS)
            symm__log(SYMM_LOG_DEBUG, "%zu bytes stay bound to a multicast object",
                      last->bytes);
    }
    symm__cuda_leave(&scope);
}

void symm__cuda_multicast_finish(struct symm_cuda_multicast *mc)
{
    struct symm_backend *b = mc->backend;
    struct symm_cuda_scope scope;

    if (b && (mc->exists || mc->view) && symm__cuda_enter_last(b, &scope)) {
        if (mc->mapped && b->driver->cuMemUnmap(mc->view, mc->bytes) != CUDA_SUCCESS)
            symm__log(SYMM_LOG_DEBUG, "a multicast object stays mapped");
        symm__cuda_multicast_unbind(mc, 0);
        if (mc->exists)
            (void)b->driver->cuMemRelease(mc->object);
        if (mc->view)
            (void)b->driver->cuMemAddressFree(mc->view, mc->bytes);
        symm__cuda_leave(&scope);
    }
    free(mc->bindings);
    *mc = (struct symm_cuda_multicast){.ended = mc->ended};
}
