/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_memory.c - virtual memory management: reservations are mappings without access;
 * memory is a memfd of fixed size, whose descriptor export and import pass on. As on a GPU,
 * mapped memory cannot be accessed before cuMemSetAccess (SIGSEGV here).
 *
 * The program ends where the real driver's behaviour is undefined: a handle used or released
 * after its last release, part of a mapping unmapped, addresses freed with memory mapped.
 *
 * Environment, beside that of fake_cuda.h:
 *  FAKE_CUDA_FABRIC=1         memory can have a fabric handle, which all processes may import
 *  FAKE_CUDA_FABRIC_FAILS=1   imports by such handles fail; ..._WRONG=1: they give other memory
 *                             (in processes with the variable)
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cuda_private.h"

#define POISON_BYTES ((size_t)64 << 10)

struct range {
    struct fake_object object;
    CUdeviceptr base;
    size_t bytes;
};

struct mapping {
    struct fake_object object;
    CUdeviceptr base;
    size_t bytes;
    struct fake_memory *memory;
    unsigned access; /* bit per device ordinal */
};

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Multiples of the granularity, not zero, and no overflow. */
static bool good_range(CUdeviceptr address, size_t bytes)
{
    CUdeviceptr end;

    return bytes != 0 && bytes % FAKE_GRANULARITY == 0 &&
           address % FAKE_GRANULARITY == 0 &&
           !__builtin_add_overflow(address, bytes, &end);
}

/* ---- memfds ---------------------------------------------------------------------- */

int fake_memfd(const char *name, size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void fake_poison(void *memory, size_t bytes)
{
    memset(memory, 0xa5, bytes < POISON_BYTES ? bytes : POISON_BYTES);
}

bool fake_memfd_name(int fd, const char *kind, char *rest, size_t bytes)
{
    char path[64], name[256], prefix[64];
    ssize_t length;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    snprintf(prefix, sizeof(prefix), "/memfd:fake_cuda %s ", kind);
    length = readlink(path, name, sizeof(name) - 1);
    if (length < 0)
        return false;
    name[length] = '\0';
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    snprintf(rest, bytes, "%s", name + strlen(prefix));
    return true;
}

/* ---- Handles --------------------------------------------------------------------- */

struct fake_memory *fake_memory_of(CUmemGenericAllocationHandle id)
{
    for (struct fake_object *o = fake_first(FAKE_HANDLE); o; o = o->next) {
        struct fake_memory *memory = (struct fake_memory *)(void *)o;

        if (memory->id == id && memory->handles > 0)
            return memory;
    }
    fake_die("memory handle %#llx is not alive (released before?)", id);
}

struct fake_memory *fake_memory_new(int fd, size_t bytes, CUresult *result)
{
    static CUmemGenericAllocationHandle last = 0x1000;
    struct fake_memory *memory;

    if (fd < 0) {
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    memory = fake_new(FAKE_HANDLE, sizeof(*memory));
    memory->id = last += 16; /* never used again */
    memory->fd = fd;
    memory->bytes = bytes;
    memory->handles = 1;
    *result = CUDA_SUCCESS;
    return memory;
}

void fake_memory_drop(struct fake_memory *memory)
{
    if (memory->handles > 0 || memory->users > 0)
        return;
    if (memory->owned)
        fake_unuse(memory->ordinal, memory->bytes);
    if (memory->members)
        fake_multicast_unmap(memory->members);
    close(memory->fd);
    fake_delete(memory);
}

static CUresult good_properties(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || prop->location.id >= fake_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) &&
        !fake_settings.fabric)
        return CUDA_ERROR_NOT_PERMITTED; /* no fabric manager gives its permission */
    if (prop->requestedHandleTypes &
        ~(unsigned)(CU_MEM_HANDLE_TYPE_FABRIC |
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI
cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                              CUmemAllocationGranularity_flags option)
{
    FAKE_ENTER(FAKE_INIT);
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = FAKE_GRANULARITY;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle,
                                      size_t bytes, const CUmemAllocationProp *prop,
                                      unsigned long long flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory;
    CUresult result = good_properties(prop);
    char name[96];
    void *begin;

    if (flags != 0 || bytes == 0 || bytes % FAKE_GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = fake_use(prop->location.id, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    snprintf(name, sizeof(name), "fake_cuda memory %d %d",
             fake_contexts[prop->location.id].physical, prop->requestedHandleTypes);
    memory = fake_memory_new(fake_memfd(name, bytes), bytes, &result);
    if (!memory) {
        fake_unuse(prop->location.id, bytes);
        return result;
    }
    memory->owned = true;
    memory->ordinal = prop->location.id;
    memory->physical = fake_contexts[prop->location.id].physical;
    memory->handle_type = (int)prop->requestedHandleTypes;
    begin = mmap(NULL, POISON_BYTES, PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (begin != MAP_FAILED) {
        fake_poison(begin, POISON_BYTES);
        munmap(begin, POISON_BYTES);
    }
    *handle = memory->id;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    struct fake_memory *memory = fake_memory_of(handle);

    memory->handles--;
    fake_memory_drop(memory);
    return later;
}

FAKE_API CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory = fake_memory_of(handle);

    if (memory->members)
        return CUDA_ERROR_INVALID_VALUE;
    memset(prop, 0, sizeof(*prop));
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->requestedHandleTypes = (CUmemAllocationHandleType)memory->handle_type;
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop->location.id = memory->ordinal;
    return CUDA_SUCCESS;
}

/* A fabric handle owns nothing: it names a descriptor of the process that has the memory. */
struct fabric_handle {
    char magic[8];
    int process, fd;
    ino_t inode;
};

_Static_assert(sizeof(struct fabric_handle) <= sizeof(CUmemFabricHandle), "64 bytes");

static CUresult fabric_export(const struct fake_memory *memory, void *shareable)
{
    struct fabric_handle handle = {"fabric", (int)getpid(), memory->fd, 0};
    struct stat about;

    if (fstat(memory->fd, &about) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    handle.inode = about.st_ino;
    memset(shareable, 0, sizeof(CUmemFabricHandle));
    memcpy(shareable, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

/* A descriptor that the caller closes; -1: the memory is gone, or there is no such handle. */
static int fabric_open(const void *shareable)
{
    struct fabric_handle handle;
    struct stat about;
    char path[64];
    int fd;

    memcpy(&handle, shareable, sizeof(handle));
    if (fake_settings.fabric_fails || strncmp(handle.magic, "fabric", 8) != 0)
        return -1;
    if (fake_settings.fabric_wrong)
        return fake_memfd("fake_cuda memory 0 9", FAKE_GRANULARITY);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.process, handle.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &about) != 0 || about.st_ino != handle.inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

FAKE_API CUresult CUDAAPI
cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                             CUmemAllocationHandleType type, unsigned long long flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory = fake_memory_of(handle);
    int fd;

    if (flags != 0 || !shareable ||
        (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
         type != CU_MEM_HANDLE_TYPE_FABRIC) ||
        !(memory->handle_type & (int)type))
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return fabric_export(memory, shareable);
    fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(shareable, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

/* Memory of a device that is not visible here belongs to the first one that is. */
static CUresult import(int fd, int type, struct fake_memory **imported)
{
    int physical = 0, handle_type = 0;
    struct fake_memory *memory;
    bool multicast;
    off_t bytes;
    char rest[96];
    CUresult result;

    multicast = fake_memfd_name(fd, "multicast", rest, sizeof(rest));
    if (!multicast && (!fake_memfd_name(fd, "memory", rest, sizeof(rest)) ||
                       sscanf(rest, "%d %d", &physical, &handle_type) != 2))
        return CUDA_ERROR_INVALID_VALUE;
    bytes = lseek(fd, 0, SEEK_END);
    if (bytes < 0)
        return CUDA_ERROR_INVALID_VALUE;
    memory = fake_memory_new(fcntl(fd, F_DUPFD_CLOEXEC, 0), (size_t)bytes, &result);
    if (!memory)
        return result;
    memory->handle_type = type;
    memory->physical = physical;
    for (int i = 0; i < fake_settings.devices; i++)
        if (fake_contexts[i].physical == physical)
            memory->ordinal = i;
    if (multicast) {
        memory->members = fake_multicast_map(memory->fd);
        memory->bytes = (size_t)strtoull(rest, NULL, 10);
    }
    *imported = memory;
    return CUDA_SUCCESS;
}

/* A descriptor stays the caller's. */
FAKE_API CUresult CUDAAPI
cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                               CUmemAllocationHandleType type)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory;
    int fd = (int)(intptr_t)shareable;
    CUresult result;

    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        fd = fabric_open(shareable);
    else if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = fd < 0 ? CUDA_ERROR_INVALID_HANDLE : import(fd, (int)type, &memory);
    if (type == CU_MEM_HANDLE_TYPE_FABRIC && fd >= 0)
        close(fd);
    if (result == CUDA_SUCCESS)
        *handle = memory->id;
    return result;
}

/* ---- Reservations ---------------------------------------------------------------- */

static struct range *range_of(CUdeviceptr address, size_t bytes)
{
    for (struct fake_object *o = fake_first(FAKE_RANGE); o; o = o->next) {
        struct range *range = (struct range *)(void *)o;

        if (address >= range->base && address - range->base < range->bytes &&
            bytes <= range->bytes - (address - range->base))
            return range;
    }
    return NULL;
}

/* The first mapping that has a byte in the range; NULL: none. */
static struct mapping *mapping_in(CUdeviceptr address, size_t bytes)
{
    struct mapping *first = NULL;

    for (struct fake_object *o = fake_first(FAKE_MAPPING); o; o = o->next) {
        struct mapping *m = (struct mapping *)(void *)o;

        if (m->base < address + bytes && address < m->base + m->bytes &&
            (!first || m->base < first->base))
            first = m;
    }
    return first;
}

FAKE_API CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes,
                                              size_t alignment, CUdeviceptr hint,
                                              unsigned long long flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct range *range;
    uintptr_t begin, base;
    size_t all;
    void *memory;

    if (flags != 0 || bytes == 0 || bytes % FAKE_GRANULARITY != 0 ||
        (alignment & (alignment - (alignment != 0))) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < FAKE_GRANULARITY)
        alignment = FAKE_GRANULARITY;
    if (__builtin_add_overflow(bytes, alignment, &all))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory = mmap(pointer(hint), all, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    begin = (uintptr_t)memory;
    base = (begin + alignment - 1) & ~(alignment - 1);
    if (base > begin)
        munmap(memory, base - begin);
    munmap((void *)(base + bytes), all - bytes - (base - begin));
    range = fake_new(FAKE_RANGE, sizeof(*range));
    range->base = base;
    range->bytes = bytes;
    *address = base;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    struct range *range = range_of(address, 1);

    if (!range || range->base != address || range->bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (mapping_in(address, bytes))
        fake_die("memory is still mapped at %#llx, inside of %#llx + %#zx",
                 mapping_in(address, bytes)->base, address, bytes);
    munmap(pointer(address), bytes);
    fake_delete(range);
    return later;
}

/* ---- Mappings -------------------------------------------------------------------- */

FAKE_API CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                   CUmemGenericAllocationHandle handle,
                                   unsigned long long flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory = fake_memory_of(handle);
    struct mapping *mapping;
    CUresult result;

    /* Real drivers map whole allocations, from offset 0. */
    if (flags != 0 || offset != 0 || !good_range(address, bytes) ||
        bytes != memory->bytes || !range_of(address, bytes) ||
        mapping_in(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = memory->members ? fake_multicast_may_map(memory->members) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (!memory->members && mmap(pointer(address), bytes, PROT_NONE,
                                 MAP_SHARED | MAP_FIXED, memory->fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping = fake_new(FAKE_MAPPING, sizeof(*mapping));
    mapping->base = address;
    mapping->bytes = bytes;
    mapping->memory = memory;
    memory->users++;
    return CUDA_SUCCESS;
}

/* Whole mappings side by side fill the range; a part of one ends the program if `whole`. */
static bool covered(CUdeviceptr address, size_t bytes, bool whole)
{
    CUdeviceptr end = address + bytes;

    while (address < end) {
        struct mapping *m = mapping_in(address, end - address);

        if (m && whole && (m->base < address || m->base + m->bytes > end))
            fake_die("%#llx + %#zx is only a part of the mapping %#llx + %#zx", address,
                     bytes, m->base, m->bytes);
        if (!m || m->base != address || m->base + m->bytes > end)
            return false;
        address += m->bytes;
    }
    return true;
}

FAKE_API CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    struct mapping *m;

    if (!good_range(address, bytes) || !covered(address, bytes, true))
        return CUDA_ERROR_INVALID_VALUE;
    if (mmap(pointer(address), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        fake_die("the kernel refuses to unmap");
    while ((m = mapping_in(address, bytes))) {
        m->memory->users--;
        fake_memory_drop(m->memory);
        fake_delete(m);
    }
    return later;
}

FAKE_API CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes,
                                         const CUmemAccessDesc *desc, size_t count)
{
    FAKE_ENTER(FAKE_INIT);
    CUdeviceptr end = address + bytes;

    if (!desc || count == 0 || !good_range(address, bytes) ||
        !covered(address, bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = address; at < end;) {
        struct mapping *m = mapping_in(at, end - at);
        unsigned access = m->access;
        int protection;

        for (size_t i = 0; i < count; i++) {
            int device = desc[i].location.id;

            if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
                device >= fake_settings.devices)
                return CUDA_ERROR_INVALID_DEVICE;
            if (!m->memory->members && !fake_peers(device, m->memory->physical))
                return CUDA_ERROR_INVALID_DEVICE;
            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                access |= 1u << device;
            else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                access &= ~(1u << device);
            else
                return CUDA_ERROR_NOT_SUPPORTED; /* nothing of ours is read-only */
        }
        protection = access && !m->memory->members ? PROT_READ | PROT_WRITE : PROT_NONE;
        if (mprotect(pointer(m->base), m->bytes, protection) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        m->access = access;
        at += m->bytes;
    }
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI
cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    FAKE_ENTER(FAKE_INIT);
    struct mapping *m = mapping_in((CUdeviceptr)(uintptr_t)address, 1);

    if (!m)
        return CUDA_ERROR_INVALID_VALUE;
    m->memory->handles++;
    *handle = m->memory->id;
    return CUDA_SUCCESS;
}

bool fake_mapping_at(CUdeviceptr address, struct fake_place *place)
{
    const struct mapping *m = mapping_in(address, 1);

    if (!m)
        return false;
    *place = (struct fake_place){.kind = FAKE_MAPPING,
                                 .base = m->base,
                                 .bytes = m->bytes,
                                 .physical = m->memory->physical,
                                 .access = m->access,
                                 .handle_type = m->memory->handle_type,
                                 .id = m->memory->id};
    return true;
}

bool fake_memory_at(CUdeviceptr address, struct fake_memory **memory, size_t *offset)
{
    struct mapping *m = mapping_in(address, 1);

    if (!m)
        return false;
    *memory = m->memory;
    *offset = address - m->base;
    return true;
}
