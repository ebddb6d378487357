/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_multicast.c - multicast objects: a memfd with the list of devices and of bound
 * memories, shared by the processes that import it. A bound memory is named by process and
 * descriptor; the look-up of an address maps it through /proc. The order is checked: create,
 * add every device, bind, map. Another order ends the program, since a real machine would
 * hang or corrupt memory. So does a kernel that uses an address which not all devices have
 * bound, or to which it has no access.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda_private.h"

#define BINDINGS 256

struct bound {
    uint64_t id; /* 0: free */
    int32_t physical, owner, fd;
    uint64_t offset, memory_offset, bytes;
};

/* In the memfd. */
struct shared {
    uint32_t lock, devices, added, reserved;
    uint32_t has[FAKE_DEVICES]; /* by physical device */
    uint64_t last;
    struct bound bound[BINDINGS];
};

struct fake_multicast {
    struct shared *shared;
    void *view[BINDINGS]; /* of bound memories, mapped when first looked up */
    uint64_t viewed[BINDINGS];
    size_t view_bytes[BINDINGS];
};

struct binding {
    struct fake_object object;
    struct fake_memory *multicast, *memory;
    unsigned slot;
};

static void shared_lock(struct shared *shared)
{
    while (__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE) != 0)
        usleep(10);
}

static void shared_unlock(struct shared *shared)
{
    __atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE);
}

struct fake_multicast *fake_multicast_map(int fd)
{
    struct fake_multicast *members = calloc(1, sizeof(*members));
    void *memory =
        mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (!members || memory == MAP_FAILED)
        fake_die("no memory");
    members->shared = memory;
    return members;
}

void fake_multicast_unmap(struct fake_multicast *members)
{
    for (int i = 0; i < BINDINGS; i++)
        if (members->view[i])
            munmap(members->view[i], members->view_bytes[i]);
    munmap(members->shared, sizeof(struct shared));
    free(members);
}

CUresult fake_multicast_may_map(const struct fake_multicast *members)
{
    const struct shared *shared = members->shared;

    if (__atomic_load_n(&shared->added, __ATOMIC_ACQUIRE) != shared->devices)
        fake_die("a multicast object is mapped with %u of its %u devices added",
                 shared->added, shared->devices);
    return CUDA_SUCCESS;
}

static struct fake_memory *multicast_of(CUmemGenericAllocationHandle handle)
{
    struct fake_memory *memory = fake_memory_of(handle);

    if (!memory->members)
        fake_die("handle %#llx is no multicast object", handle);
    return memory;
}

/* ---- Making ---------------------------------------------------------------------- */

static bool good_properties(const CUmulticastObjectProp *prop)
{
    return prop && prop->flags == 0 && prop->numDevices >= 1 &&
           prop->numDevices <= FAKE_DEVICES && prop->size > 0 &&
           prop->size % FAKE_GRANULARITY == 0 &&
           (prop->handleTypes == 0 ||
            prop->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

FAKE_API CUresult CUDAAPI cuMulticastGetGranularity(size_t *bytes,
                                                    const CUmulticastObjectProp *prop,
                                                    CUmulticastGranularity_flags option)
{
    FAKE_ENTER(FAKE_INIT);
    if (!prop || prop->numDevices == 0 ||
        (unsigned)option > CU_MULTICAST_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = fake_settings.multicast_granularity;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                            const CUmulticastObjectProp *prop)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *memory;
    CUresult result;
    char name[96];

    if (!fake_settings.multicast)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!good_properties(prop))
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, sizeof(name), "fake_cuda multicast %zu", prop->size);
    memory =
        fake_memory_new(fake_memfd(name, sizeof(struct shared)), prop->size, &result);
    if (!memory)
        return result;
    memory->handle_type = (int)prop->handleTypes;
    memory->physical = -1;
    memory->members = fake_multicast_map(memory->fd);
    memory->members->shared->devices = prop->numDevices;
    *handle = memory->id;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMulticastAddDevice(CUmemGenericAllocationHandle handle,
                                               CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    struct shared *shared = multicast_of(handle)->members->shared;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (device < 0 || device >= fake_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    shared_lock(shared);
    if (!shared->has[fake_contexts[device].physical] &&
        shared->added < shared->devices) {
        shared->has[fake_contexts[device].physical] = 1;
        __atomic_store_n(&shared->added, shared->added + 1, __ATOMIC_RELEASE);
        result = CUDA_SUCCESS;
    }
    shared_unlock(shared);
    return result;
}

/* ---- Binding --------------------------------------------------------------------- */

static bool inside(size_t offset, size_t bytes, size_t all)
{
    return bytes != 0 && offset % FAKE_GRANULARITY == 0 &&
           bytes % FAKE_GRANULARITY == 0 && bytes <= all && offset <= all - bytes;
}

/* A free slot, or -1 if the device has memory in this range, or all slots are taken. */
static int free_slot(const struct shared *shared, int physical, size_t offset,
                     size_t bytes)
{
    int free = -1;

    for (int i = BINDINGS - 1; i >= 0; i--) {
        const struct bound *b = &shared->bound[i];

        if (b->id == 0)
            free = i;
        else if (b->physical == physical && b->offset < offset + bytes &&
                 offset < b->offset + b->bytes)
            return -1;
    }
    return free;
}

FAKE_API CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle handle,
                                             size_t offset,
                                             CUmemGenericAllocationHandle memory_handle,
                                             size_t memory_offset, size_t bytes,
                                             unsigned long long flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_memory *multicast = multicast_of(handle);
    struct fake_memory *memory = fake_memory_of(memory_handle);
    struct shared *shared = multicast->members->shared;
    struct binding *binding;
    int slot;

    if (flags != 0 || memory->members || !memory->owned ||
        !inside(offset, bytes, multicast->bytes) ||
        !inside(memory_offset, bytes, memory->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (__atomic_load_n(&shared->added, __ATOMIC_ACQUIRE) != shared->devices)
        fake_die("memory is bound with %u of %u devices added", shared->added,
                 shared->devices);
    if (!shared->has[memory->physical])
        return CUDA_ERROR_INVALID_VALUE;
    shared_lock(shared);
    slot = free_slot(shared, memory->physical, offset, bytes);
    if (slot >= 0)
        shared->bound[slot] = (struct bound){.id = ++shared->last,
                                             .physical = memory->physical,
                                             .owner = getpid(),
                                             .fd = memory->fd,
                                             .offset = offset,
                                             .memory_offset = memory_offset,
                                             .bytes = bytes};
    shared_unlock(shared);
    if (slot < 0)
        return CUDA_ERROR_INVALID_VALUE;
    binding = fake_new(FAKE_BINDING, sizeof(*binding));
    binding->multicast = multicast;
    binding->memory = memory;
    binding->slot = (unsigned)slot;
    memory->users++;
    multicast->users++;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle handle,
                                            CUdevice device, size_t offset,
                                            size_t bytes)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    struct fake_memory *multicast = multicast_of(handle);
    struct shared *shared = multicast->members->shared;

    if (device < 0 || device >= fake_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct fake_object *o = fake_first(FAKE_BINDING); o; o = o->next) {
        struct binding *binding = (struct binding *)(void *)o;
        struct bound *bound = &shared->bound[binding->slot];

        if (binding->multicast != multicast || bound->offset != offset ||
            bound->bytes != bytes || bound->physical != fake_contexts[device].physical)
            continue;
        shared_lock(shared);
        memset(bound, 0, sizeof(*bound));
        shared_unlock(shared);
        binding->memory->users--;
        multicast->users--;
        fake_memory_drop(binding->memory);
        fake_delete(binding);
        return later;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- Looking up ------------------------------------------------------------------ */

static void *view(struct fake_multicast *members, int slot)
{
    const struct bound *bound = &members->shared->bound[slot];
    char path[64];
    void *memory;
    int fd;

    if (members->viewed[slot] == bound->id)
        return members->view[slot];
    if (members->view[slot])
        munmap(members->view[slot], members->view_bytes[slot]);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", bound->owner, bound->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    memory = fd < 0 ? MAP_FAILED
                    : mmap(NULL, bound->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                           (off_t)bound->memory_offset);
    if (memory == MAP_FAILED)
        fake_die("the memory that process %d has bound is gone", bound->owner);
    close(fd);
    members->view[slot] = memory;
    members->viewed[slot] = bound->id;
    members->view_bytes[slot] = bound->bytes;
    return memory;
}

/* By physical device, NULL where nothing is bound; returns how many there are. */
static int look_up(struct fake_multicast *members, size_t offset,
                   void *memories[FAKE_DEVICES])
{
    struct shared *shared = members->shared;
    int count = 0;

    memset(memories, 0, FAKE_DEVICES * sizeof(*memories));
    shared_lock(shared);
    for (int i = 0; i < BINDINGS; i++) {
        const struct bound *bound = &shared->bound[i];

        if (bound->id == 0 || offset < bound->offset ||
            offset - bound->offset >= bound->bytes)
            continue;
        memories[bound->physical] = (char *)view(members, i) + (offset - bound->offset);
        count++;
    }
    shared_unlock(shared);
    return count;
}

/* In the devices' order. */
FAKE_API int fake_cuda_multicast(const void *address,
                                 void *memories[FAKE_CUDA_MULTICAST_MAX])
{
    void *found[FAKE_DEVICES];
    struct fake_memory *memory;
    size_t offset;
    int count = 0;
    FAKE_LOCKED;

    if (!fake_memory_at((CUdeviceptr)(uintptr_t)address, &memory, &offset) ||
        !memory->members)
        return 0;
    look_up(memory->members, offset, found);
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (found[i])
            memories[count++] = found[i];
    return count;
}

void *simt_multicast(uint64_t address, unsigned index, bool stores);

/* For kernels, one by one; NULL after the last. A fabric that does not do its part leaves
 * out a device. */
FAKE_API void *simt_multicast(uint64_t address, unsigned index, bool stores)
{
    int left_out =
        stores ? fake_settings.multicast_drops : fake_settings.multicast_loses;
    void *found[FAKE_DEVICES];
    struct fake_memory *memory;
    struct fake_place place;
    size_t offset;
    FAKE_LOCKED;

    if (!fake_memory_at((CUdeviceptr)address, &memory, &offset) || !memory->members)
        fake_die("a kernel uses %#llx, which is no multicast memory",
                 (unsigned long long)address);
    if (!fake_mapping_at((CUdeviceptr)address, &place) || place.access == 0)
        fake_die("a kernel has no access to the multicast memory at %#llx",
                 (unsigned long long)address);
    if (look_up(memory->members, offset, found) !=
        (int)memory->members->shared->devices)
        fake_die("a kernel uses multicast memory at offset %zu that not all %u devices "
                 "have bound",
                 offset, memory->members->shared->devices);
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (found[i] && i != left_out && index-- == 0)
            return found[i];
    return NULL;
}
