/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_alloc.c - cuMemAlloc, page-locked host memory, legacy IPC handles, and queries
 * about pointers. Device memory is a memfd; an IPC handle names its process and descriptor,
 * and is opened through /proc.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda_private.h"

struct block { /* DEVICE_MEMORY, HOST_MEMORY, IPC_MEMORY */
    struct fake_object object;
    void *base;
    size_t bytes, mapped; /* asked for; whole pages */
    int fd, ordinal, physical, opened;
    bool registered; /* the program's own pages */
    CUcontext context;
    uint64_t id; /* of the memory in its process */
    pid_t owner;
};

/* What CUipcMemHandle holds. */
struct ipc {
    char magic[8];
    int32_t owner, fd, physical;
    uint64_t id, bytes, mapped;
};

static size_t pages(size_t bytes)
{
    return (bytes + FAKE_PAGE - 1) & ~(FAKE_PAGE - 1);
}

static struct block *block_at(enum fake_kind kind, const void *address)
{
    for (struct fake_object *o = fake_first(kind); o; o = o->next) {
        struct block *block = (struct block *)(void *)o;

        if ((uintptr_t)address - (uintptr_t)block->base < block->bytes)
            return block;
    }
    return NULL;
}

/* ---- Device memory --------------------------------------------------------------- */

FAKE_API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    FAKE_ENTER(FAKE_CURRENT | FAKE_UNSAFE);
    static uint64_t last;
    CUcontext context = fake_current();
    struct block *block;
    char name[96];
    void *memory;
    int fd;

    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > fake_settings.memory || fake_use(context->ordinal, pages(bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(name, sizeof(name), "fake_cuda alloc %ld %llu", (long)getpid(),
             (unsigned long long)last + 1);
    fd = fake_memfd(name, pages(bytes));
    memory = fd < 0
                 ? MAP_FAILED
                 : mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        fake_unuse(context->ordinal, pages(bytes));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_poison(memory, bytes);
    block = fake_new(FAKE_DEVICE_MEMORY, sizeof(*block));
    block->base = memory;
    block->bytes = bytes;
    block->mapped = pages(bytes);
    block->fd = fd;
    block->ordinal = context->ordinal;
    block->physical = context->physical;
    block->context = context;
    block->id = ++last;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    FAKE_ENTER_FREE(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block = block_at(FAKE_DEVICE_MEMORY, (void *)(uintptr_t)address);

    if (address == 0)
        return later;
    if (!block)
        fake_die("%#llx is no device allocation (freed before?)", address);
    if (block->base != (void *)(uintptr_t)address)
        return CUDA_ERROR_INVALID_VALUE;
    fake_context_wait(block->context);
    munmap(block->base, block->mapped);
    close(block->fd);
    fake_unuse(block->ordinal, block->mapped);
    fake_delete(block);
    return later;
}

/* What gives memory back waits for the work of the memory's context, as a real driver does
 * (580, measured): of that context alone, whichever thread calls. */

/* ---- Host memory ----------------------------------------------------------------- */

FAKE_API CUresult CUDAAPI cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block;
    void *base;

    if (bytes == 0 || (flags & ~7u) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    base = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
    if (base == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_poison(base, bytes);
    block = fake_new(FAKE_HOST_MEMORY, sizeof(*block));
    block->base = base;
    block->bytes = bytes;
    block->mapped = pages(bytes);
    block->fd = -1;
    block->physical = -1;
    block->context = fake_current();
    *memory = base;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemFreeHost(void *memory)
{
    FAKE_ENTER_FREE(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block = block_at(FAKE_HOST_MEMORY, memory);

    if (!block || block->base != memory || block->registered)
        fake_die("%p is no host allocation (freed before?)", memory);
    fake_context_wait(block->context);
    munmap(block->base, block->mapped);
    fake_delete(block);
    return later;
}

/* Registered memory is left mapped: a stream that uses it later faults only if the program
 * has unmapped it. */
FAKE_API CUresult CUDAAPI cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT | FAKE_UNSAFE);
    const unsigned wanted = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    struct block *block;

    if (!memory || bytes == 0 || (uintptr_t)memory % FAKE_PAGE != 0 ||
        (flags & ~wanted) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < bytes; at += FAKE_PAGE)
        if (block_at(FAKE_HOST_MEMORY, (char *)memory + at))
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    block = fake_new(FAKE_HOST_MEMORY, sizeof(*block));
    block->base = memory;
    block->bytes = bytes;
    block->mapped = pages(bytes);
    block->fd = -1;
    block->physical = -1;
    block->registered = true;
    block->context = fake_current();
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
    FAKE_ENTER_FREE(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block = block_at(FAKE_HOST_MEMORY, memory);

    if (!block || block->base != memory || !block->registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    fake_context_wait(block->context);
    fake_delete(block);
    return later;
}

FAKE_API CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *address, void *memory,
                                                    unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT);
    if (flags != 0 || !block_at(FAKE_HOST_MEMORY, memory))
        return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* ---- Legacy IPC ------------------------------------------------------------------ */

static const char ipc_magic[8] = "fakeipc";

FAKE_API CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    FAKE_ENTER(FAKE_CURRENT);
    const struct block *block =
        block_at(FAKE_DEVICE_MEMORY, (void *)(uintptr_t)address);
    struct ipc ipc = {.owner = getpid()};

    static_assert(sizeof(ipc) <= sizeof(*handle), "fits");
    if (!block) /* memory of cuMemCreate, too */
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(ipc.magic, ipc_magic, sizeof(ipc.magic));
    ipc.fd = block->fd;
    ipc.physical = block->physical;
    ipc.id = block->id;
    ipc.bytes = block->bytes;
    ipc.mapped = block->mapped;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

/* The memory of the handle, if it is still there; -1. */
static int ipc_fd(const struct ipc *ipc)
{
    char path[64], wanted[96], rest[96];
    int fd;

    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)ipc->owner, ipc->fd);
    snprintf(wanted, sizeof(wanted), "%ld %llu ", (long)ipc->owner,
             (unsigned long long)ipc->id);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (!fake_memfd_name(fd, "alloc", rest, sizeof(rest)) ||
                    strncmp(rest, wanted, strlen(wanted)) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

FAKE_API CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *address,
                                             CUipcMemHandle handle, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block;
    struct ipc ipc;
    void *memory;
    int fd;

    memcpy(&ipc, &handle, sizeof(ipc));
    if (memcmp(ipc.magic, ipc_magic, sizeof(ipc.magic)) != 0 || ipc.owner == getpid() ||
        flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_peers(fake_current()->ordinal, ipc.physical))
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct fake_object *o = fake_first(FAKE_IPC_MEMORY); o; o = o->next) {
        block = (struct block *)(void *)o;
        if (block->owner == ipc.owner && block->id == ipc.id &&
            block->context == fake_current()) {
            block->opened++;
            *address = (CUdeviceptr)(uintptr_t)block->base;
            return CUDA_SUCCESS;
        }
    }
    fd = ipc_fd(&ipc);
    if (fd < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    memory = mmap(NULL, ipc.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block = fake_new(FAKE_IPC_MEMORY, sizeof(*block));
    *block = (struct block){.object = block->object,
                            .base = memory,
                            .bytes = ipc.bytes,
                            .mapped = ipc.mapped,
                            .fd = -1,
                            .ordinal = fake_current()->ordinal,
                            .physical = ipc.physical,
                            .opened = 1,
                            .context = fake_current(),
                            .id = ipc.id,
                            .owner = ipc.owner};
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
    FAKE_ENTER_FREE(FAKE_CURRENT | FAKE_UNSAFE);
    struct block *block = block_at(FAKE_IPC_MEMORY, (void *)(uintptr_t)address);

    if (!block || block->base != (void *)(uintptr_t)address)
        fake_die("%#llx was not opened (closed before?)", address);
    if (--block->opened == 0) {
        munmap(block->base, block->mapped);
        fake_delete(block);
    }
    return later;
}

/* ---- Questions about pointers ---------------------------------------------------- */

bool fake_at(CUdeviceptr address, struct fake_place *place)
{
    static const enum fake_kind kinds[] = {FAKE_DEVICE_MEMORY, FAKE_HOST_MEMORY,
                                           FAKE_IPC_MEMORY};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct block *block = block_at(kinds[i], (void *)(uintptr_t)address);

        if (!block)
            continue;
        *place = (struct fake_place){.kind = kinds[i],
                                     .base = (CUdeviceptr)(uintptr_t)block->base,
                                     .bytes = block->bytes,
                                     .physical = block->physical,
                                     .id = block->id};
        return true;
    }
    return fake_mapping_at(address, place);
}

void fake_expect_access(const char *function, int ordinal, CUdeviceptr address,
                        size_t bytes)
{
    struct fake_place place;

    while (bytes > 0 && fake_at(address, &place)) {
        size_t rest = place.base + place.bytes - address;

        if (place.kind == FAKE_MAPPING && !(place.access >> ordinal & 1))
            fake_die("%s: device %d has no access to %#llx (cuMemSetAccess)", function,
                     ordinal, address);
        if (place.kind != FAKE_MAPPING && bytes > rest)
            fake_die("%s: %#zx bytes at %#llx leave the allocation %#llx + %#zx",
                     function, bytes, address, place.base, place.bytes);
        rest = bytes < rest ? bytes : rest;
        address += rest;
        bytes -= rest;
    }
}

FAKE_API CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes,
                                               CUdeviceptr address)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_place place;

    if (!fake_at(address, &place))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = place.base;
    if (bytes)
        *bytes = place.bytes;
    return CUDA_SUCCESS;
}

static int ordinal_of(const struct fake_place *place)
{
    for (int i = 0; i < fake_settings.devices; i++)
        if (fake_contexts[i].physical == place->physical)
            return i;
    return -2; /* the host, or a device that is not visible here */
}

FAKE_API CUresult CUDAAPI cuPointerGetAttribute(void *data,
                                                CUpointer_attribute attribute,
                                                CUdeviceptr address)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_place place;
    bool host;

    if (!data || !fake_at(address, &place))
        return CUDA_ERROR_INVALID_VALUE;
    host = place.kind == FAKE_HOST_MEMORY;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* memory of cuMemCreate belongs to none */
        if (place.kind == FAKE_MAPPING)
            *(CUcontext *)data = NULL;
        else
            *(CUcontext *)data =
                block_at(place.kind, (void *)(uintptr_t)address)->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = ordinal_of(&place);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = place.kind == FAKE_DEVICE_MEMORY;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = place.base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = place.bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = place.id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = (uint64_t)place.handle_type;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
