/* SPDX-License-Identifier: MIT */
/*
 * backend.c - the CUDA backend: its two tables, and the opening of its object.
 *
 * Guarantees: the device is that of the context that is current at symm_init; else the visible
 * device whose number is the local rank, modulo their count. Its primary context is retained.
 * Refuses: devices without virtual memory management or POSIX handles, or older than what
 * the kernels are made for.
 */
#include "cuda/backend.h"

#include <stdlib.h>
#include <unistd.h>

#include "cuda/channel.h"
#include "cuda/channel_table.h"
#include "cuda/fabric.h"
#include "cuda/norm.h"
#include "cuda/processors.h"
#include "util/log.h"
#include "util/status.h"

#define GRANULARITY  ((size_t)2 << 20)
#define OLDEST_MAJOR 8 /* compute capability that kernels are made for */

/* ---- Which device ---------------------------------------------------------------- */

/* Refuses a device that lacks what the heap and the kernels need. */
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
        symm_status status = symm__cuda_attribute(d, handle, needs[i].which, &value);

        if (status != SYMM_OK)
            return status;
        if (value == 0)
            return symm__fail(SYMM_ERR_UNSUPPORTED,
                              "device %d (%s) has no %s; use SYMM_BACKEND=host",
                              device->ordinal, device->name, needs[i].name);
    }
    return SYMM_OK;
}

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

#define MPS_HINT                                                                       \
    "; MPS has one pool of hardware queues for all processes: where these need more "  \
    "than it has, set a lower CUDA_DEVICE_MAX_CONNECTIONS"

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
    status = symm__cuda_describe(d, ordinal, &b->handle, &b->device);
    if (status == SYMM_OK)
        status = symm__cuda_processors(d, b->handle, &b->device);
    if (status == SYMM_OK)
        status = check_device(d, b->handle, &b->device);
    if (status == SYMM_OK)
        status = symm__cuda_attribute(d, b->handle, CU_DEVICE_ATTRIBUTE_MAX_PITCH,
                                      &b->most_pitch);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuDevicePrimaryCtxRetain, (&b->context, b->handle),
                                "the primary context of device %d%s", ordinal,
                                b->device.mps > 0 ? MPS_HINT : "");
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

/* What all memory needs; with the scope entered. */
static symm_status open_memory(struct symm_backend *b)
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
    return status;
}

/* With the scope entered. */
static symm_status open_rank(struct symm_backend *b)
{
    symm_status status = open_memory(b);

    if (status == SYMM_OK)
        status = symm__cuda_multicast_ask(b, &b->device.multicast);
    if (status == SYMM_OK)
        status = symm__cuda_modules_open(b);
    return status;
}

/* An object of the device with what `fill`, which runs with the scope entered, gives it. */
static symm_status open_with(int ordinal, symm_status (*fill)(struct symm_backend *b),
                             struct symm_backend **backend)
{
    const struct symm_cuda_driver *d;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_driver(&d);

    if (status == SYMM_OK)
        status = backend_create(d, ordinal, backend);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_enter(*backend, &scope);
    if (status == SYMM_OK) {
        status = fill(*backend);
        symm__cuda_leave(&scope);
    }
    if (status != SYMM_OK)
        cuda_close(*backend);
    return status;
}

symm_status symm__cuda_open_device(int ordinal, struct symm_backend **backend)
{
    struct symm_backend *b = NULL;
    symm_status status = open_with(ordinal, open_rank, &b);

    if (status != SYMM_OK)
        return status;
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

/* An object for each allocation: without kernels, it is little beside the memory. */
static symm_status cuda_mem_alloc(int device, size_t bytes, struct symm_mem *mem)
{
    const struct symm_cuda_driver *d;
    struct symm_backend *b = NULL;
    int ordinal = device, count = 0;
    symm_status status = symm__cuda_driver(&d);

    if (status == SYMM_OK && device < 0)
        status = choose_device(d, 0, &ordinal);
    else if (status == SYMM_OK)
        status = symm__cuda_count(&count);
    if (status == SYMM_OK && device >= 0 && device >= count)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_mem_alloc: device %d; the CUDA driver shows %d, from 0 "
                          "on (CUDA_VISIBLE_DEVICES)",
                          device, count);
    if (status == SYMM_OK)
        status = open_with(ordinal, open_memory, &b);
    if (status != SYMM_OK)
        return status;
    mem->bytes = (bytes + b->granularity - 1) / b->granularity * b->granularity;
    mem->backend = b;
    status = symm__cuda_mem_alloc(b, mem);
    if (status != SYMM_OK)
        cuda_close(b);
    return status;
}

static void cuda_mem_free(struct symm_mem *mem)
{
    symm__cuda_mem_free(mem->backend, mem);
    cuda_close(mem->backend);
}

static const struct symm_device_info *cuda_describe(const struct symm_backend *backend)
{
    return &backend->device;
}

static size_t cuda_granularity(const struct symm_backend *backend)
{
    return backend->granularity;
}

static const struct symm_device_ops device_ops = {
    .scratch_end = symm__cuda_scratch_end,
    .team_open = symm__cuda_team_open,
    .team_close = symm__cuda_team_close,
    .memory_shared = symm__cuda_memory_shared,
    .multicast_at = symm__cuda_multicast_at,
    .pointers_add = symm__cuda_pointers_add,
    .pointers_write = symm__cuda_pointers_write,
    .pointers_release = symm__cuda_pointers_release,
    .settle = symm__cuda_settle,
    .abort = symm__cuda_abort,
    .ending = symm__cuda_ending,
    .within = symm__cuda_within,
    .poll = symm__cuda_team_poll,
    .stream_check = symm__cuda_stream_check,
    .stream_admit = symm__cuda_stream_admit,
    .channel_find = symm__cuda_channel_find,
    .channel_claim = symm__cuda_channel_claim,
    .channel_grow = symm__cuda_channel_grow,
    .channel_engine = symm__cuda_channel_engine,
    .channel_leave = symm__cuda_channel_leave,
    .channel_of = symm__cuda_channel_of,
    .reach = symm__cuda_call_reach,
    .describe = symm__cuda_call_describe,
    .prepare = symm__cuda_prepare,
    .launch = symm__cuda_launch,
    .norm_rest = symm__cuda_norm_rest,
    .explain = symm__cuda_explain,
    .handle = symm__cuda_handle,
    .fill = symm__cuda_memset,
    .copy_rows = symm__cuda_copy_rows,
    .transfer = symm__cuda_transfer,
    .side = symm__cuda_side,
    .side_mark = symm__cuda_side_mark,
    .side_await = symm__cuda_side_await,
    .engine = symm__cuda_engine_run,
    .team_device = symm__cuda_team_device,
    .stream_synchronize = symm__cuda_synchronize,
    .stream_call = symm__cuda_host_call,
    .work_query = symm__cuda_work_query,
    .work_wait = symm__cuda_work_wait,
    .work_synchronize = symm__cuda_work_synchronize,
    .work_then = symm__cuda_work_then,
    .work_error = symm__cuda_work_error,
    .work_release = symm__cuda_work_release,
    .work_notify = symm__cuda_work_notify,
};

const struct symm_backend_ops symm__backend_cuda = {
    .size = sizeof(struct symm_backend_ops),
    .name = "cuda",
    .device_ops = &device_ops,
    .fabric = &symm__cuda_fabric,
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
    .run_take = symm__cuda_run_take,
    .run_give = symm__cuda_run_give,
    .run_open = symm__cuda_run_open,
    .run_close = symm__cuda_run_close,
    .run_reach = symm__cuda_run_reach,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .local_alloc = symm__cuda_local_alloc,
    .local_free = symm__cuda_local_free,
    .stream_create = symm__cuda_stream_create,
    .stream_destroy = symm__cuda_stream_destroy,
    .stream_drain = symm__cuda_stream_drain,
    .stream_is_own = symm__cuda_stream_is_own,
    .stream_push = symm__cuda_stream_push,
    .stream_synchronize = symm__cuda_stream_synchronize,
};
