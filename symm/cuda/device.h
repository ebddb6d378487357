/* SPDX-License-Identifier: MIT */
/*
 * device.h - what the files of the CUDA backend share: the backend object of one rank
 * (a device, its primary context, a stream for set-up) and the reservation that heaps lie in.
 *
 * Every call of the driver stands between symm__cuda_enter and symm__cuda_leave: they make
 * the device's context current and let set-up go on while another thread captures a graph.
 */
#ifndef SYMM_CUDA_DEVICE_H
#define SYMM_CUDA_DEVICE_H

#include <pthread.h>
#include <sys/types.h>

#include "core/context.h"
#include "cuda/driver.h"
#include "kernels/cuda_launch.h"

/* Memory that is mapped at a place of a reservation: one physical allocation. */
struct symm_cuda_mapping {
    CUdeviceptr at;
    size_t bytes;
};

/* A reservation. Ranks that are threads share one; the backend that made it owns it. */
struct symm_cuda_space {
    CUdeviceptr base;
    size_t bytes;
    pthread_mutex_t lock;               /* guards what follows */
    struct symm_cuda_mapping *mappings; /* sorted by address; owned */
    size_t count, capacity;
    CUdevice *retained; /* devices whose context must live as long; owned */
    size_t retained_count;
};

struct symm_cuda_modules; /* modules.c */

struct symm_backend {
    const struct symm_cuda_driver *driver;
    struct symm_device_info device;
    CUdevice handle;
    CUcontext context;
    CUstream setup; /* non-blocking: never the legacy stream */
    pid_t process;  /* a forked child must not call the driver */
    size_t granularity;
    int most_pitch; /* between rows that one call copies */
    bool fabric; /* new memory has a handle for other hosts, too */
    struct symm_cuda_space *space;
    bool owns_space;
    struct symm_cuda_modules *modules;
    /* In the owner of a group of threads: registered words that no team uses, see tokens.c. */
    bool keeps_words;
    pthread_mutex_t words_lock;
    struct symm_cuda_tokens *words;
};

/* The state that symm__cuda_leave restores. */
struct symm_cuda_scope {
    const struct symm_cuda_driver *driver;
    CUstreamCaptureMode mode;
    bool mode_changed, pushed;
};

/* On error no state was changed. SYMM_ERR_FORKED in a child of the process that made it. */
symm_status symm__cuda_enter(struct symm_backend *backend,
                             struct symm_cuda_scope *scope) SYMM_MUST_CHECK;
/* The same before releasing objects: goes on if the driver refuses. False: the driver must not be
 * called, since the process is a child of the one that made the object. */
bool symm__cuda_enter_last(struct symm_backend *backend, struct symm_cuda_scope *scope);
void symm__cuda_leave(struct symm_cuda_scope *scope);
/* Calls `function` of the driver's table; the arguments after it format what for. */
#define SYMM_CUDA_CALL(table, function, arguments, ...)                                \
    symm__cuda_check((table), (table)->function arguments, #function, __VA_ARGS__)
/* Blocks until the set-up stream has completed what was queued on it. With the scope entered. */
symm_status symm__cuda_complete(struct symm_backend *backend,
                                const char *what) SYMM_MUST_CHECK;
/* The attributes of memory that peers can map. */
CUmemAllocationProp symm__cuda_properties(int ordinal);
/* Lets this rank's device read and write what is mapped there. With the scope entered. */
symm_status symm__cuda_access(struct symm_backend *backend, CUdeviceptr at,
                              size_t bytes) SYMM_MUST_CHECK;
/* Maps the handle's memory at `at` for this rank's device. With the scope entered. */
symm_status symm__cuda_map(struct symm_backend *backend,
                           CUmemGenericAllocationHandle memory, CUdeviceptr at,
                           size_t bytes) SYMM_MUST_CHECK;

/* memory.c: the operations on the heap (see backend.h) */
symm_status symm__cuda_reserve(struct symm_backend *backend, size_t bytes, void **base);
void symm__cuda_release(struct symm_backend *backend, void *base, size_t bytes);
symm_status symm__cuda_share(struct symm_backend *backend, struct symm_backend *owner);
symm_status symm__cuda_commit(struct symm_backend *backend, void *at, size_t bytes,
                              size_t unused, int *handle);
symm_status symm__cuda_import(struct symm_backend *backend, int handle, void *at,
                              size_t bytes);
symm_status symm__cuda_fabric_import(struct symm_backend *backend,
                                     const uint8_t *handle, void *at, size_t bytes);
symm_status symm__cuda_reach(struct symm_backend *backend, void *at, size_t bytes);
void symm__cuda_unmap(struct symm_backend *backend, void *at, size_t bytes);

/* mem->bytes of new zeroed memory in address space of its own, for symm_mem_alloc. */
symm_status symm__cuda_mem_alloc(struct symm_backend *backend,
                                 struct symm_mem *mem) SYMM_MUST_CHECK;
/* Waits for the device first. */
void symm__cuda_mem_free(struct symm_backend *backend, const struct symm_mem *mem);

/* register.c: memory of the caller (see backend.h; settle: device_ops.h) */
symm_status symm__cuda_run_take(struct symm_backend *backend, void *ptr, size_t bytes,
                                const struct symm_mem *mem, struct symm_own_run *own);
void symm__cuda_run_give(struct symm_backend *backend, struct symm_own_run *own);
symm_status symm__cuda_run_open(struct symm_backend *backend,
                                const struct symm_run *run, const int *fds,
                                const uint8_t *token, void **at);
void symm__cuda_run_close(struct symm_backend *backend, const struct symm_run *run,
                          void *at);
symm_status symm__cuda_run_reach(struct symm_backend *backend,
                                 const struct symm_run *run);
void symm__cuda_settle(symm_ctx *ctx);

/* modules.c */
/* The function of a kernel; looked up once, then from a table. */
symm_status symm__cuda_function(symm_ctx *ctx, const struct symm_cuda_kernel *kernel,
                                void **function) SYMM_MUST_CHECK;
symm_status symm__cuda_modules_open(struct symm_backend *backend) SYMM_MUST_CHECK;
void symm__cuda_modules_close(struct symm_backend *backend);
void symm__cuda_modules_abandon(struct symm_backend *backend); /* in a forked child */

/* tokens.c: frees the words that ended teams of a group have left. */
void symm__cuda_tokens_forget(struct symm_backend *owner);

/* device.c: the device, and memory of one rank. Each enters the scope by itself; `count`,
 * `reachable`, `local_alloc` and `local_free` as in backend.h. */
symm_status symm__cuda_count(int *count) SYMM_MUST_CHECK;
symm_status symm__cuda_reachable(const struct symm_backend *backend, int rank,
                                 const struct symm_device_info *theirs,
                                 int peer) SYMM_MUST_CHECK;
symm_status symm__cuda_local_alloc(struct symm_backend *backend, size_t bytes,
                                   void **memory) SYMM_MUST_CHECK;
void symm__cuda_local_free(struct symm_backend *backend, void *memory);
/* Page-locked memory of the host, zeroed, at one address for host and device. */
symm_status symm__cuda_host_alloc(symm_ctx *ctx, size_t bytes,
                                  void **memory) SYMM_MUST_CHECK;
void symm__cuda_host_free(symm_ctx *ctx, void *memory);
/* Blocks until done; for set-up, never in a call. */
symm_status symm__cuda_fill(symm_ctx *ctx, void *memory, int byte,
                            size_t bytes) SYMM_MUST_CHECK;
symm_status symm__cuda_copy(symm_ctx *ctx, void *dst, const void *src,
                            size_t bytes) SYMM_MUST_CHECK;
symm_status symm__cuda_attribute(const struct symm_cuda_driver *driver, CUdevice device,
                                 CUdevice_attribute which, int *value) SYMM_MUST_CHECK;
/* false also where the driver does not know the attribute. */
bool symm__cuda_has(const struct symm_cuda_driver *driver, CUdevice device,
                    CUdevice_attribute which);
symm_status symm__cuda_describe(const struct symm_cuda_driver *driver, int ordinal,
                                CUdevice *found,
                                struct symm_device_info *device) SYMM_MUST_CHECK;

/* stream.c: the streams' operations (see backend.h) */
symm_status symm__cuda_stream_create(struct symm_backend *backend,
                                     struct symm_stream **stream);
void symm__cuda_stream_destroy(struct symm_backend *backend,
                               struct symm_stream *stream);
void symm__cuda_stream_drain(struct symm_backend *backend, struct symm_stream *stream);
bool symm__cuda_stream_is_own(const struct symm_stream *stream);
void symm__cuda_stream_push(struct symm_backend *backend, struct symm_stream *stream,
                            struct symm_task *task);
symm_status symm__cuda_stream_synchronize(struct symm_backend *backend,
                                          struct symm_stream *stream, int rank,
                                          double seconds);

#endif
