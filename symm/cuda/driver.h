/* SPDX-License-Identifier: MIT */
/*
 * driver.h - the CUDA driver's functions, taken at run time: one table of pointers.
 *
 * The library is not linked with libcuda: it opens SYMM_CUDA_LIBRARY (libcuda.so.1) and
 * takes every function by cuGetProcAddress for the version that is named here. On a machine
 * without a driver the library loads, and opening the backend is an error.
 */
#ifndef SYMM_CUDA_DRIVER_H
#define SYMM_CUDA_DRIVER_H

#include <cuda.h>

#include "symm/symm.h"

/* X(function, CUDA version since which its present form exists) */
#define SYMM_CUDA_DRIVER_MAP(X)                                                        \
    X(cuInit, 2000)                                                                    \
    X(cuDriverGetVersion, 2020)                                                        \
    X(cuGetErrorName, 6000)                                                            \
    X(cuGetErrorString, 6000)                                                          \
    X(cuDeviceGetCount, 2000)                                                          \
    X(cuDeviceGet, 2000)                                                               \
    X(cuDeviceGetName, 2000)                                                           \
    X(cuDeviceGetUuid, 11040)                                                          \
    X(cuDeviceGetPCIBusId, 4010)                                                       \
    X(cuDeviceGetAttribute, 2000)                                                      \
    X(cuDeviceTotalMem, 3020)                                                          \
    X(cuDeviceCanAccessPeer, 4000)                                                     \
    X(cuDeviceGetP2PAttribute, 8000)                                                   \
    X(cuDevicePrimaryCtxRetain, 7000)                                                  \
    X(cuDevicePrimaryCtxRelease, 11000)                                                \
    X(cuCtxGetCurrent, 4000)                                                           \
    X(cuCtxSetCurrent, 4000)                                                           \
    X(cuCtxPushCurrent, 4000)                                                          \
    X(cuCtxPopCurrent, 4000)                                                           \
    X(cuCtxGetDevice, 2000)                                                            \
    X(cuCtxSynchronize, 2000)                                                          \
    X(cuMemGetAllocationGranularity, 10020)                                            \
    X(cuMemAddressReserve, 10020)                                                      \
    X(cuMemAddressFree, 10020)                                                         \
    X(cuMemCreate, 10020)                                                              \
    X(cuMemRelease, 10020)                                                             \
    X(cuMemMap, 10020)                                                                 \
    X(cuMemUnmap, 10020)                                                               \
    X(cuMemSetAccess, 10020)                                                           \
    X(cuMemExportToShareableHandle, 10020)                                             \
    X(cuMemImportFromShareableHandle, 10020)                                           \
    X(cuMemRetainAllocationHandle, 11000)                                              \
    X(cuMemGetAllocationPropertiesFromHandle, 10020)                                   \
    X(cuMemGetAddressRange, 3020)                                                      \
    X(cuPointerGetAttribute, 4000)                                                     \
    X(cuMemAlloc, 3020)                                                                \
    X(cuMemFree, 3020)                                                                 \
    X(cuMemHostAlloc, 2020)                                                            \
    X(cuMemFreeHost, 2000)                                                             \
    X(cuMemHostRegister, 6050)                                                         \
    X(cuMemHostUnregister, 4000)                                                       \
    X(cuMemHostGetDevicePointer, 3020)                                                 \
    X(cuIpcGetMemHandle, 4010)                                                         \
    X(cuIpcOpenMemHandle, 11000)                                                       \
    X(cuIpcCloseMemHandle, 4010)                                                       \
    X(cuMulticastCreate, 12010)                                                        \
    X(cuMulticastAddDevice, 12010)                                                     \
    X(cuMulticastBindMem, 12010)                                                       \
    X(cuMulticastUnbind, 12010)                                                        \
    X(cuMulticastGetGranularity, 12010)                                                \
    X(cuMemcpyAsync, 4000)                                                             \
    X(cuMemcpy2DAsync, 3020)                                                           \
    X(cuMemsetD8Async, 3020)                                                           \
    X(cuStreamCreateWithPriority, 5050)                                                \
    X(cuStreamDestroy, 4000)                                                           \
    X(cuStreamSynchronize, 2000)                                                       \
    X(cuStreamQuery, 2000)                                                             \
    X(cuStreamWaitEvent, 3020)                                                         \
    X(cuStreamIsCapturing, 10000)                                                      \
    X(cuStreamWriteValue32, 11070)                                                     \
    X(cuStreamWaitValue32, 11070)                                                      \
    X(cuLaunchHostFunc, 10000)                                                         \
    X(cuThreadExchangeStreamCaptureMode, 10010)                                        \
    X(cuEventCreate, 2000)                                                             \
    X(cuEventDestroy, 4000)                                                            \
    X(cuEventRecord, 2000)                                                             \
    X(cuEventQuery, 2000)                                                              \
    X(cuEventSynchronize, 2000)                                                        \
    X(cuModuleLoadData, 2000)                                                          \
    X(cuModuleUnload, 2000)                                                            \
    X(cuModuleGetFunction, 2000)                                                       \
    X(cuFuncSetAttribute, 9000)                                                        \
    X(cuLaunchKernelEx, 11060)

/* What a driver may lack: then the pointer is NULL. */
#define SYMM_CUDA_DRIVER_OPTIONAL(X)                                                   \
    X(cuModuleGetFunctionCount, 12040)                                                 \
    X(cuModuleEnumerateFunctions, 12040)                                               \
    X(cuFuncLoad, 12040)                                                               \
    X(cuStreamGetCtx, 9020)                                                            \
    X(cuCtxGetDevResource, 12040)                                                      \
    X(cuStreamGetId, 12000)                                                            \
    X(cuStreamGetCaptureInfo, 12030)                                                   \
    X(cuUserObjectCreate, 11030)                                                       \
    X(cuUserObjectRelease, 11030)                                                      \
    X(cuGraphRetainUserObject, 11030)

/* One process has one: opened once, never closed (the driver cannot be unloaded). The
 * member for cuMemAlloc is used as driver->cuMemAlloc: cuda.h's renaming applies to both. */
struct symm_cuda_driver {
    int version; /* of the driver: 13000 */
#define SYMM_CUDA_DRIVER_MEMBER(function, since) __typeof__(&function) function;
    SYMM_CUDA_DRIVER_MAP(SYMM_CUDA_DRIVER_MEMBER)
#undef SYMM_CUDA_DRIVER_MEMBER
    /* The optional ones, which cuda.h may lack, too. */
    CUresult(CUDAAPI *cuModuleGetFunctionCount)(unsigned *count, CUmodule module);
    CUresult(CUDAAPI *cuModuleEnumerateFunctions)(CUfunction *functions, unsigned count,
                                                  CUmodule module);
    CUresult(CUDAAPI *cuFuncLoad)(CUfunction function);
    CUresult(CUDAAPI *cuStreamGetCtx)(CUstream stream, CUcontext *context);
#if CUDA_VERSION >= 12040
    CUresult(CUDAAPI *cuCtxGetDevResource)(CUcontext context, CUdevResource *resource,
                                           CUdevResourceType type);
#else
    CUresult(CUDAAPI *cuCtxGetDevResource)(void);
#endif
    CUresult(CUDAAPI *cuStreamGetId)(CUstream stream, unsigned long long *id);
    CUresult(CUDAAPI *cuStreamGetCaptureInfo)(CUstream stream,
                                              CUstreamCaptureStatus *status,
                                              cuuint64_t *id, CUgraph *graph,
                                              const CUgraphNode **after,
                                              const void **edges, size_t *count);
    CUresult(CUDAAPI *cuUserObjectCreate)(CUuserObject *object, void *ptr,
                                          CUhostFn destroy, unsigned count,
                                          unsigned flags);
    CUresult(CUDAAPI *cuUserObjectRelease)(CUuserObject object, unsigned count);
    CUresult(CUDAAPI *cuGraphRetainUserObject)(CUgraph graph, CUuserObject object,
                                               unsigned count, unsigned flags);
};

/* The table, after cuInit. SYMM_ERR_UNSUPPORTED: no library, no device, too old a driver;
 * the sentence says which library was tried, what is missing and what to install. */
symm_status symm__cuda_driver(const struct symm_cuda_driver **driver) SYMM_MUST_CHECK;

/* SYMM_OK, or an error with a sentence: "cuMemCreate failed with CUDA_ERROR_... (text): what".
 * Maps CUDA_ERROR_OUT_OF_MEMORY to SYMM_ERR_NOMEM, _NOT_SUPPORTED and _NOT_PERMITTED to
 * SYMM_ERR_UNSUPPORTED, all else to SYMM_ERR_SYSTEM. */
symm_status symm__cuda_check(const struct symm_cuda_driver *driver, CUresult result,
                             const char *function, const char *format,
                             ...) SYMM_MUST_CHECK __attribute__((format(printf, 4, 5)));

#endif
