/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_device.c - devices of the fake driver, their attributes, and their primary
 * contexts. Each thread has a stack of current contexts; a context that is not retained is
 * invalid even if it is current.
 */
#include "fake_cuda_private.h"

#define MPS_ENABLED 133 /* CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older headers lack */

#define STACK_DEPTH 32

struct CUctx_st fake_contexts[FAKE_DEVICES];
static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;

/* Devices of the machine, then those that CUDA_VISIBLE_DEVICES lists up to the first bad. */
CUresult fake_devices_init(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int machine = (int)fake_env("FAKE_CUDA_DEVICES", 8), count = 0;

    if (machine > FAKE_DEVICES)
        machine = FAKE_DEVICES;
    for (const char *c = visible; c && *c && count < FAKE_DEVICES;) {
        char *end;
        long device = strtol(c, &end, 10);

        if (end == c || device < 0 || device >= machine)
            break;
        fake_contexts[count++].physical = (int)device;
        c = *end == ',' ? end + 1 : end;
    }
    if (!visible)
        for (count = 0; count < machine; count++)
            fake_contexts[count].physical = count;
    fake_settings.devices = count;
    fake_settings.bus = (int)fake_env("FAKE_CUDA_BUS", 0xa0);
    fake_settings.processors = (int)fake_env("FAKE_CUDA_PROCESSORS", 4);
    fake_settings.registers = (int)fake_env("FAKE_CUDA_REGISTERS", 96);
    fake_settings.share =
        (int)fake_env("FAKE_CUDA_SHARE", (uint64_t)fake_settings.processors);
    fake_settings.mps = getenv("FAKE_CUDA_SHARE") != NULL;
    fake_settings.memory = fake_env("FAKE_CUDA_MEMORY", (uint64_t)4 << 30);
    fake_settings.peer = fake_env("FAKE_CUDA_NO_PEER", 0) == 0;
    fake_settings.pitch = (int)fake_env("FAKE_CUDA_PITCH", 2147483647);
    fake_settings.flush = fake_env("FAKE_CUDA_FLUSH", 0) != 0;
    fake_settings.fabric = fake_env("FAKE_CUDA_FABRIC", 0) != 0;
    fake_settings.fabric_fails = fake_env("FAKE_CUDA_FABRIC_FAILS", 0) != 0;
    fake_settings.fabric_wrong = fake_env("FAKE_CUDA_FABRIC_WRONG", 0) != 0;
    fake_settings.multicast = fake_env("FAKE_CUDA_MULTICAST", 0) != 0;
    fake_settings.no_multicast = (int)fake_env("FAKE_CUDA_NO_MULTICAST", UINT64_MAX);
    fake_settings.multicast_loses =
        (int)fake_env("FAKE_CUDA_MULTICAST_LOSES", UINT64_MAX);
    fake_settings.multicast_drops =
        (int)fake_env("FAKE_CUDA_MULTICAST_DROPS", UINT64_MAX);
    fake_settings.multicast_granularity =
        fake_env("FAKE_CUDA_MULTICAST_GRANULARITY", FAKE_GRANULARITY);
    for (int i = 0; i < count; i++) {
        CUresult result;

        fake_contexts[i].ordinal = i;
        result = fake_model_open(&fake_contexts[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

static bool valid(CUdevice device)
{
    return device >= 0 && device < fake_settings.devices;
}

bool fake_peers(int ordinal, int physical)
{
    return fake_contexts[ordinal].physical == physical || fake_settings.peer;
}

CUresult fake_use(int ordinal, size_t bytes)
{
    if (bytes > fake_settings.memory - fake_contexts[ordinal].used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_contexts[ordinal].used += bytes;
    return CUDA_SUCCESS;
}

void fake_unuse(int ordinal, size_t bytes)
{
    fake_contexts[ordinal].used -= bytes;
}

/* ---- Devices --------------------------------------------------------------------- */

FAKE_API CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    FAKE_ENTER(FAKE_INIT);
    *count = fake_settings.devices;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "Fake GPU");
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid->bytes, 0x5f, sizeof(uuid->bytes));
    uuid->bytes[0] = (char)fake_contexts[device].physical;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)length, "0000:%02X:00.0",
             fake_settings.bus + fake_contexts[device].physical);
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = fake_settings.memory;
    return CUDA_SUCCESS;
}

static int attribute_value(CUdevice_attribute attribute, int physical)
{
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } known[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    };

    if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        return fake_settings.share; /* as under MPS: driver for CUDA 13.0, H200 */
    if ((int)attribute == MPS_ENABLED)
        return fake_settings.mps;
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_PITCH)
        return fake_settings.pitch;
    if (attribute == CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)
        return fake_settings.flush;
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        return fake_settings.multicast && physical != fake_settings.no_multicast;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        return fake_settings.bus + physical;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].attribute == attribute)
            return known[i].value;
    return 0;
}

FAKE_API CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                               CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_value(attribute, fake_contexts[device].physical);
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device,
                                                CUdevice peer)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device) || !valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && fake_settings.peer;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value,
                                                  CUdevice_P2PAttribute attribute,
                                                  CUdevice device, CUdevice peer)
{
    FAKE_ENTER(FAKE_INIT);
    if (!valid(device) || !valid(peer) || device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    *value =
        attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && fake_settings.peer;
    return CUDA_SUCCESS;
}

/* ---- Contexts -------------------------------------------------------------------- */

static bool is_context(CUcontext context)
{
    return fake_green_of(context) ||
           (context >= fake_contexts &&
            context < fake_contexts + fake_settings.devices && context->refs > 0);
}

CUcontext fake_current_as(void)
{
    return depth > 0 && is_context(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

CUcontext fake_current(void)
{
    CUcontext top = fake_current_as();
    struct fake_green *green = fake_green_of(top);

    return green ? green->primary : top;
}

void fake_retain(CUcontext primary)
{
    if (primary->refs ==
        (int)(sizeof(primary->retained) / sizeof(primary->retained[0])))
        fake_die("device %d is retained for the 65th time", primary->ordinal);
    primary->retained[primary->refs++] =
        fake_new(FAKE_CONTEXT, sizeof(struct fake_object));
}

void fake_release(CUcontext primary)
{
    if (primary->refs == 0)
        fake_die("the context of device %d is released more often than retained",
                 primary->ordinal);
    fake_delete(primary->retained[--primary->refs]);
}

FAKE_API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    FAKE_ENTER(FAKE_INIT);
    CUcontext primary = &fake_contexts[valid(device) ? device : 0];

    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    fake_retain(primary);
    *context = primary;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    CUcontext primary = &fake_contexts[valid(device) ? device : 0];

    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    fake_release(primary);
    return later;
}

FAKE_API CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    FAKE_ENTER(FAKE_INIT);
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    FAKE_ENTER(FAKE_INIT);
    if (context && !is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    depth = depth > 0 ? depth : 1;
    stack[depth - 1] = context;
    if (!context)
        depth--;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    FAKE_ENTER(FAKE_INIT);
    if (!is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == STACK_DEPTH)
        fake_die("%d contexts pushed and not popped", depth);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
    FAKE_ENTER_FREE(FAKE_INIT);
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return later;
}

FAKE_API CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    FAKE_ENTER(FAKE_CURRENT);
    *device = fake_current()->ordinal;
    return CUDA_SUCCESS;
}
