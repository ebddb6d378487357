/* SPDX-License-Identifier: MIT */
/*
 * test_driver_fake.c - the fake CUDA driver's memory and devices: its behaviour, errors of a
 * real driver, misuse that ends the program, and injected failures. Streams and graphs are
 * in test_driver_stream.c, multicast objects in test_driver_fake_multicast.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_memory.h"

/* `bytes` of memory of device 0, mapped with access in a range of its own. */
struct place {
    CUdeviceptr range;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

static int place_open(struct driver *d, struct place *p)
{
    CHECK_ZERO(driver_start(d));
    p->bytes = 4 * SEGMENT;
    CHECK_CU(d->cu->cuMemAddressReserve(&p->range, p->bytes, 0, 0, 0));
    CHECK_CU(d->cu->cuMemCreate(&p->handle, 2 * SEGMENT, &device0, 0));
    CHECK_CU(d->cu->cuMemMap(p->range, 2 * SEGMENT, 0, p->handle, 0));
    return 0;
}

/* ---- What it does ---------------------------------------------------------------- */

static int memory(void *arg)
{
    struct driver d;
    struct place p;
    CUmemGenericAllocationHandle retained;
    CUmemAllocationProp prop;
    CUdeviceptr base;
    size_t bytes;

    (void)arg;
    CHECK_ZERO(place_open(&d, &p));
    CHECK(p.range % SEGMENT == 0);
    CHECK_CU(d.cu->cuMemSetAccess(p.range, 2 * SEGMENT, &access0, 1));
    CHECK(host_pointer(p.range)[0] != 0); /* new memory is not zero */
    strcpy(host_pointer(p.range) + SEGMENT, "stays");
    CHECK_CU(d.cu->cuMemGetAddressRange(&base, &bytes, p.range + 5));
    CHECK(base == p.range && bytes == 2 * SEGMENT);
    CHECK_CU(d.cu->cuMemRetainAllocationHandle(&retained, host_pointer(p.range)));
    CHECK(retained == p.handle);
    CHECK_CU(d.cu->cuMemGetAllocationPropertiesFromHandle(&prop, p.handle));
    CHECK(prop.location.id == 0 && prop.requestedHandleTypes == 1);
    CHECK_CU(d.cu->cuMemUnmap(p.range, 2 * SEGMENT));
    CHECK_CU(d.cu->cuMemMap(p.range + 2 * SEGMENT, 2 * SEGMENT, 0, p.handle, 0));
    CHECK_CU(d.cu->cuMemRelease(retained));
    CHECK_CU(d.cu->cuMemRelease(p.handle)); /* lives on in the mapping */
    CHECK_CU(d.cu->cuMemSetAccess(p.range + 2 * SEGMENT, 2 * SEGMENT, &access0, 1));
    CHECK(strcmp(host_pointer(p.range) + 3 * SEGMENT, "stays") == 0);
    CHECK_CU(d.cu->cuMemUnmap(p.range + 2 * SEGMENT, 2 * SEGMENT));
    CHECK_CU(d.cu->cuMemAddressFree(p.range, p.bytes));
    CHECK(d.leaks(stderr) == 1); /* the context */
    CHECK_CU(d.cu->cuDevicePrimaryCtxRelease(0));
    CHECK(d.leaks(stderr) == 0);
    CHECK_CUDA(d.cu->cuMemAlloc(&base, 8), CUDA_ERROR_INVALID_CONTEXT);
    return 0;
}

static int refusals(void *arg)
{
    struct driver d;
    struct place p;
    CUmemAllocationProp prop = device0;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc peer = access0;
    CUdeviceptr address;

    (void)arg;
    CHECK_ZERO(place_open(&d, &p));
    CHECK_CUDA(d.cu->cuMemAddressReserve(&address, SEGMENT + 4096, 0, 0, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemAddressReserve(&address, SEGMENT, 3 * SEGMENT, 0, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemCreate(&handle, SEGMENT + 4096, &prop, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemCreate(&handle, (size_t)8 << 30, &prop, 0),
               CUDA_ERROR_OUT_OF_MEMORY);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CHECK_CUDA(d.cu->cuMemCreate(&handle, SEGMENT, &prop, 0), CUDA_ERROR_NOT_PERMITTED);
    prop.location.id = 8;
    CHECK_CUDA(d.cu->cuMemCreate(&handle, SEGMENT, &prop, 0),
               CUDA_ERROR_INVALID_DEVICE);
    /* over a mapping; outside of the range; a part of the memory; at an offset */
    CHECK_CUDA(d.cu->cuMemMap(p.range, 2 * SEGMENT, 0, p.handle, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemMap(p.range + 3 * SEGMENT, 2 * SEGMENT, 0, p.handle, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemMap(p.range + 2 * SEGMENT, SEGMENT, 0, p.handle, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemMap(p.range + 2 * SEGMENT, SEGMENT, SEGMENT, p.handle, 0),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemSetAccess(p.range, 3 * SEGMENT, &access0, 1),
               CUDA_ERROR_INVALID_VALUE); /* not all of it is mapped */
    peer.location.id = 1;
    CHECK_CUDA(d.cu->cuMemSetAccess(p.range, 2 * SEGMENT, &peer, 1),
               CUDA_ERROR_INVALID_DEVICE); /* FAKE_CUDA_NO_PEER */
    CHECK_CUDA(d.cu->cuMemUnmap(p.range + 2 * SEGMENT, SEGMENT),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemAddressFree(p.range, SEGMENT), CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemAddressFree(p.range + SEGMENT, SEGMENT),
               CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static int devices(void *arg)
{
    struct driver d;
    CUuuid uuid[2];
    char bus[16];
    CUcontext context, other;
    CUdeviceptr memory;
    int value;

    (void)arg;
    CHECK_ZERO(driver_start(&d));
    CHECK_CU(d.cu->cuDeviceGetCount(&value));
    CHECK(value == 2); /* CUDA_VISIBLE_DEVICES=5,3 */
    CHECK_CU(d.cu->cuDeviceGetUuid(&uuid[0], 0));
    CHECK_CU(d.cu->cuDeviceGetUuid(&uuid[1], 1));
    CHECK(uuid[0].bytes[0] == 5 && uuid[1].bytes[0] == 3);
    CHECK_CU(d.cu->cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
    CHECK(strcmp(bus, "0000:A5:00.0") == 0);
    CHECK_CU(
        d.cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    CHECK(value == 0);
    CHECK_CU(d.cu->cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK(value == 1);
    CHECK_CUDA(d.cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
               CUDA_ERROR_INVALID_DEVICE);
    CHECK_CU(d.cu->cuCtxGetCurrent(&context));
    CHECK_CU(d.cu->cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_CU(d.cu->cuCtxPushCurrent(other));
    CHECK_CU(d.cu->cuMemAlloc(&memory, 5000));
    CHECK_CU(d.cu->cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                         memory + 4999));
    CHECK(value == 1);
    CHECK_CUDA(d.cu->cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                           memory + 5000),
               CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(d.cu->cuMemFree(memory + 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(d.cu->cuMemFree(memory));
    CHECK_CU(d.cu->cuCtxPopCurrent(NULL));
    CHECK_CU(d.cu->cuCtxGetDevice(&value));
    CHECK(value == 0);
    return 0;
}

/* A process forked from one that uses the driver cannot use it. */
static int forked(void *arg)
{
    struct driver d;
    int status, count;
    pid_t pid;

    (void)arg;
    CHECK_ZERO(driver_start(&d));
    pid = fork();
    if (pid == 0)
        _exit(d.cu->cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                      d.cu->cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return 0;
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(memory, NULL, NULL), 0);
}

static void test_refusals(void **state)
{
    const char *settings[] = {"FAKE_CUDA_NO_PEER=1", NULL};

    (void)state;
    assert_int_equal(driver_lives(refusals, NULL, settings), 0);
}

static void test_devices(void **state)
{
    const char *settings[] = {"CUDA_VISIBLE_DEVICES=5,3,99,1", NULL};

    (void)state;
    assert_int_equal(driver_lives(devices, NULL, settings), 0);
    assert_int_equal(driver_lives(forked, NULL, NULL), 0);
}

/* ---- Between processes ----------------------------------------------------------- */

static int send_fd(int socket, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : 1;
}

static int receive_fd(int socket, int *fd)
{
    char byte, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        return 1;
    memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(*fd));
    return 0;
}

static int giver(struct driver *d, int socket)
{
    struct place p;
    CUipcMemHandle ipc;
    CUdeviceptr memory;
    char byte;
    int fd;

    CHECK_ZERO(place_open(d, &p));
    CHECK_CU(d->cu->cuMemSetAccess(p.range, 2 * SEGMENT, &access0, 1));
    CHECK_CU(d->cu->cuMemExportToShareableHandle(
        &fd, p.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_CU(d->cu->cuMemAlloc(&memory, 100));
    CHECK_CUDA(d->cu->cuIpcGetMemHandle(&ipc, p.range), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(d->cu->cuIpcGetMemHandle(&ipc, memory + 10));
    CHECK_CUDA(d->cu->cuIpcOpenMemHandle(&memory, ipc, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_ZERO(send_fd(socket, fd));
    close(fd);
    CHECK(write(socket, &ipc, sizeof(ipc)) == sizeof(ipc));
    CHECK(read(socket, &byte, 1) == 1);
    CHECK(strcmp(host_pointer(p.range) + SEGMENT, "imported") == 0);
    CHECK(strcmp(host_pointer(memory), "opened") == 0);
    CHECK_CU(d->cu->cuMemFree(memory));
    CHECK(write(socket, &byte, 1) == 1);
    CHECK(read(socket, &byte, 1) == 1);
    return 0;
}

static int taker(struct driver *d, int socket)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range, memory, again;
    CUipcMemHandle ipc;
    char byte = 0;
    int fd;

    CHECK_ZERO(driver_start(d));
    CHECK_ZERO(receive_fd(socket, &fd));
    CHECK_CU(d->cu->cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHECK_CU(d->cu->cuMemAddressReserve(&range, 2 * SEGMENT, 0, 0, 0));
    CHECK_CU(d->cu->cuMemMap(range, 2 * SEGMENT, 0, handle, 0));
    CHECK_CU(d->cu->cuMemSetAccess(range, 2 * SEGMENT, &access0, 1));
    CHECK(read(socket, &ipc, sizeof(ipc)) == sizeof(ipc));
    CHECK_CU(d->cu->cuIpcOpenMemHandle(&memory, ipc, 1));
    CHECK_CU(d->cu->cuIpcOpenMemHandle(&again, ipc, 1));
    CHECK(memory == again);
    strcpy(host_pointer(range) + SEGMENT, "imported");
    strcpy(host_pointer(memory), "opened");
    CHECK(write(socket, &byte, 1) == 1);
    CHECK(read(socket, &byte, 1) == 1);
    CHECK_CU(d->cu->cuIpcCloseMemHandle(memory));
    CHECK_CU(d->cu->cuIpcCloseMemHandle(memory));
    CHECK_CUDA(d->cu->cuIpcOpenMemHandle(&again, ipc, 1), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CUDA(
        d->cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)STDERR_FILENO,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_ERROR_INVALID_VALUE);
    CHECK(write(socket, &byte, 1) == 1);
    return 0;
}

static int sharing(void *arg)
{
    int sockets[2], status, bad;
    struct driver d;
    pid_t pid;

    (void)arg;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(sockets[0]);
        exit(taker(&d, sockets[1]));
    }
    close(sockets[1]);
    bad = giver(&d, sockets[0]);
    close(sockets[0]);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return bad;
}

static void test_sharing(void **state)
{
    (void)state;
    assert_int_equal(driver_lives(sharing, NULL, NULL), 0);
}

/* ---- What ends the program ------------------------------------------------------- */

enum misuse {
    UNMAP_PART,
    FREE_MAPPED,
    RELEASE_TWICE,
    MAP_RELEASED,
    TOUCH_TOO_EARLY,
    TOUCH_UNMAPPED,
    NO_ACCESS,
    FREE_TWICE,
    FREE_HOST_TWICE,
    CLOSE_UNOPENED,
    RELEASE_CONTEXT,
    UNLOADED_FUNCTION,
    STREAM_TWICE,
    EVENT_TWICE,
    BIND_TOO_EARLY,
    MAP_TOO_EARLY
};

static int misuse_multicast(const struct driver *d, const struct place *p, bool bind)
{
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 2 * SEGMENT};
    CUmemGenericAllocationHandle multicast;

    CHECK_CU(d->cu->cuMulticastCreate(&multicast, &prop));
    CHECK_CU(d->cu->cuMulticastAddDevice(multicast, 0));
    return bind ? (int)d->cu->cuMulticastBindMem(multicast, 0, p->handle, 0,
                                                 2 * SEGMENT, 0)
                : (int)d->cu->cuMemMap(p->range + 2 * SEGMENT, 2 * SEGMENT, 0,
                                       multicast, 0);
}

static int misuse_objects(const struct driver *d, enum misuse misuse)
{
    const struct symm_cuda_driver *cu = d->cu;
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    static const unsigned image[4] = {0xba55ed50u};
    void *params[1] = {params};
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUfunction function;

    CHECK_CU(cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cu->cuModuleLoadData(&module, image));
    CHECK_CU(cu->cuModuleGetFunction(&function, module, "simt_test_sum"));
    CHECK_CU(cu->cuStreamDestroy(stream));
    CHECK_CU(cu->cuEventDestroy(event));
    CHECK_CU(cu->cuModuleUnload(module));
    return misuse == STREAM_TWICE ? (int)cu->cuStreamDestroy(stream)
           : misuse == EVENT_TWICE
               ? (int)cu->cuEventQuery(event)
               : (int)cu->cuLaunchKernelEx(&config, function, params, NULL);
}

static int misused(void *arg)
{
    enum misuse misuse = *(enum misuse *)arg;
    struct driver d;
    struct place p;
    CUdeviceptr memory;
    void *host;

    CHECK_ZERO(place_open(&d, &p));
    CHECK_CU(d.cu->cuMemAlloc(&memory, 4096));
    CHECK_CU(d.cu->cuMemHostAlloc(&host, 4096, 0));
    switch (misuse) {
    case UNMAP_PART:
        return (int)d.cu->cuMemUnmap(p.range, SEGMENT);
    case FREE_MAPPED:
        return (int)d.cu->cuMemAddressFree(p.range, p.bytes);
    case RELEASE_TWICE:
        CHECK_CU(d.cu->cuMemRelease(p.handle));
        return (int)d.cu->cuMemRelease(p.handle);
    case MAP_RELEASED:
        CHECK_CU(d.cu->cuMemRelease(p.handle));
        return (int)d.cu->cuMemMap(p.range + 2 * SEGMENT, 2 * SEGMENT, 0, p.handle, 0);
    case TOUCH_TOO_EARLY:
        fprintf(stderr, "before\n");
        return *(volatile char *)host_pointer(p.range);
    case TOUCH_UNMAPPED:
        CHECK_CU(d.cu->cuMemSetAccess(p.range, 2 * SEGMENT, &access0, 1));
        CHECK_CU(d.cu->cuMemUnmap(p.range, 2 * SEGMENT));
        fprintf(stderr, "before\n");
        return *(volatile char *)host_pointer(p.range);
    case NO_ACCESS:
        return (int)d.cu->cuMemsetD8Async(p.range, 0, 8, NULL);
    case FREE_TWICE:
        CHECK_CU(d.cu->cuMemFree(memory));
        return (int)d.cu->cuMemFree(memory);
    case FREE_HOST_TWICE:
        CHECK_CU(d.cu->cuMemFreeHost(host));
        return (int)d.cu->cuMemFreeHost(host);
    case CLOSE_UNOPENED:
        return (int)d.cu->cuIpcCloseMemHandle(memory);
    case RELEASE_CONTEXT:
        CHECK_CU(d.cu->cuDevicePrimaryCtxRelease(0));
        return (int)d.cu->cuDevicePrimaryCtxRelease(0);
    case BIND_TOO_EARLY:
        return misuse_multicast(&d, &p, true);
    case MAP_TOO_EARLY:
        return misuse_multicast(&d, &p, false);
    default:
        return misuse_objects(&d, misuse);
    }
}

static void test_misuse(void **state)
{
    static const char *const settings[] = {"FAKE_CUDA_MULTICAST=1", NULL};
    static const struct {
        enum misuse misuse;
        const char *words;
    } cases[] = {
        {UNMAP_PART, "cuMemUnmap: "},
        {UNMAP_PART, "is only a part of the mapping"},
        {FREE_MAPPED, "cuMemAddressFree: memory is still mapped at "},
        {RELEASE_TWICE, "cuMemRelease: memory handle "},
        {RELEASE_TWICE, "is not alive (released before?)"},
        {MAP_RELEASED, "cuMemMap: memory handle "},
        {TOUCH_TOO_EARLY, "before\n"},
        {TOUCH_UNMAPPED, "before\n"},
        {NO_ACCESS, "device 0 has no access to "},
        {FREE_TWICE, "is no device allocation (freed before?)"},
        {FREE_HOST_TWICE, "is no host allocation (freed before?)"},
        {CLOSE_UNOPENED, "was not opened (closed before?)"},
        {RELEASE_CONTEXT, "the context of device 0 is released more often"},
        {UNLOADED_FUNCTION, "is no function of a loaded module"},
        {STREAM_TWICE, "is not among the streams that are alive"},
        {EVENT_TWICE, "is not among the events that are alive"},
        {BIND_TOO_EARLY, "memory is bound with 1 of 2 devices added"},
        {MAP_TOO_EARLY, "a multicast object is mapped with 1 of its 2 devices added"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum misuse misuse = cases[i].misuse;

        assert_int_equal(driver_dies(misused, &misuse, settings, cases[i].words), 0);
    }
}

/* ---- Failures on demand, leaks --------------------------------------------------- */

/* Makes and gives back some things; whatever fails, nothing stays. */
static CUresult some_things(const struct symm_cuda_driver *cu)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range, memory;
    CUresult result, freed;
    CUstream stream;

    if ((result = cu->cuMemAlloc(&memory, 64)) != CUDA_SUCCESS)
        return result;
    if ((result = cu->cuStreamCreateWithPriority(&stream, 0, 0)) != CUDA_SUCCESS)
        goto free_memory;
    if ((result = cu->cuMemAddressReserve(&range, SEGMENT, 0, 0, 0)) != CUDA_SUCCESS)
        goto destroy_stream;
    if ((result = cu->cuMemCreate(&handle, SEGMENT, &device0, 0)) != CUDA_SUCCESS)
        goto free_range;
    if ((result = cu->cuMemMap(range, SEGMENT, 0, handle, 0)) != CUDA_SUCCESS)
        goto release;
    if ((result = cu->cuMemSetAccess(range, SEGMENT, &access0, 1)) == CUDA_SUCCESS &&
        (result = cu->cuMemsetD8Async(range, 1, 8, stream)) == CUDA_SUCCESS)
        result = cu->cuStreamSynchronize(stream);
    freed = cu->cuMemUnmap(range, SEGMENT);
    result = result ? result : freed;
release:
    freed = cu->cuMemRelease(handle);
    result = result ? result : freed;
free_range:
    freed = cu->cuMemAddressFree(range, SEGMENT);
    result = result ? result : freed;
destroy_stream:
    freed = cu->cuStreamDestroy(stream);
    result = result ? result : freed;
free_memory:
    freed = cu->cuMemFree(memory);
    return result ? result : freed;
}

static int failures(void *arg)
{
    struct driver d;
    uint64_t calls;

    (void)arg;
    CHECK_ZERO(driver_start(&d));
    d.fail_call(0, false, 0);
    CHECK_CU(some_things(d.cu));
    calls = d.calls();
    CHECK(calls == 13);
    for (uint64_t k = 1; k <= calls; k++) {
        d.fail_call(k, false, CUDA_ERROR_LAUNCH_FAILED);
        CHECK_CUDA(some_things(d.cu), CUDA_ERROR_LAUNCH_FAILED);
        CHECK(d.leaks(stderr) == 1);
        d.fail_call(k, true, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_CUDA(some_things(d.cu), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(d.leaks(stderr) == 1);
    }
    d.fail_call(0, false, 0);
    CHECK_CU(some_things(d.cu));
    return 0;
}

/* FAKE_CUDA_FAIL=5+ with result 46: calls 1 to 4 are those of driver_start. */
static int failures_by_environment(void *arg)
{
    CUcontext context;
    struct driver d;

    (void)arg;
    CHECK_ZERO(driver_load(&d));
    CHECK_OK(
        symm__cuda_driver(&d.cu)); /* cuDriverGetVersion, cuInit, cuDeviceGetCount */
    CHECK_CU(d.cu->cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CUDA(d.cu->cuCtxSetCurrent(context), (CUresult)46);
    CHECK_CUDA(d.cu->cuCtxSetCurrent(context), (CUresult)46);
    CHECK_CUDA(d.cu->cuDevicePrimaryCtxRelease(0), (CUresult)46);
    CHECK(d.leaks(stderr) == 0);
    return 0;
}

static int leaves(void *arg)
{
    struct driver d;
    struct place p;

    CHECK_ZERO(place_open(&d, &p));
    if (*(bool *)arg) {
        CHECK_CU(d.cu->cuMemUnmap(p.range, 2 * SEGMENT));
        CHECK_CU(d.cu->cuMemRelease(p.handle));
        CHECK_CU(d.cu->cuMemAddressFree(p.range, p.bytes));
        CHECK_CU(d.cu->cuDevicePrimaryCtxRelease(0));
    }
    return 0;
}

static void test_failures(void **state)
{
    static const char *const settings[] = {"FAKE_CUDA_FAIL=5+",
                                           "FAKE_CUDA_FAIL_RESULT=46", NULL};

    (void)state;
    assert_int_equal(driver_lives(failures, NULL, NULL), 0);
    assert_int_equal(driver_lives(failures_by_environment, NULL, settings), 0);
}

static void test_leaks(void **state)
{
    static const char *const settings[] = {"FAKE_CUDA_CHECK=1", NULL};
    char text[DRIVER_TEXT];
    bool clean = true;
    int status;

    (void)state;
    assert_int_equal(driver_lives(leaves, &clean, settings), 0);
    clean = false;
    status = driver_child(leaves, &clean, settings, text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 99);
    assert_non_null(strstr(text, "1 retained contexts"));
    assert_non_null(strstr(text, "1 address reservations"));
    assert_non_null(strstr(text, "1 mappings"));
    assert_non_null(strstr(text, "1 memory handles"));
    assert_int_equal(driver_lives(leaves, &clean, NULL), 0); /* without the check */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_devices), cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_misuse),  cmocka_unit_test(test_failures),
        cmocka_unit_test(test_leaks),
    };

    if (HARNESS_TSAN)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
