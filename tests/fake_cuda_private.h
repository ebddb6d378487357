/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_private.h - shared by the parts of the fake driver. One lock guards all state.
 * Every function of the driver holds it from its first line to its return (FAKE_ENTER); the
 * streams' workers release it while they run an operation.
 */
#ifndef SYMM_TESTS_FAKE_CUDA_PRIVATE_H
#define SYMM_TESTS_FAKE_CUDA_PRIVATE_H

#include <assert.h>
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "fake_cuda.h"
#include "kernels/cuda_launch.h"

/* The headers of CUDA 12 define the name as its second version. */
#if CUDA_VERSION < 13000
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3
#endif

#define FAKE_API         __attribute__((visibility("default")))
#define FAKE_GRANULARITY ((size_t)2 << 20)
#define FAKE_DEVICES     16
#define FAKE_NODES       64 /* of a capture, in front of one operation */
#define FAKE_PAGE        ((size_t)4096)

/* ---- Objects: everything that a program creates and must release ----------------- */

#define FAKE_KIND_MAP(X)                                                               \
    X(CONTEXT, "retained contexts")                                                    \
    X(STREAM, "streams")                                                               \
    X(EVENT, "events")                                                                 \
    X(MODULE, "modules")                                                               \
    X(GRAPH, "graphs")                                                                 \
    X(GRAPH_EXEC, "executable graphs")                                                 \
    X(RANGE, "address reservations")                                                   \
    X(MAPPING, "mappings")                                                             \
    X(HANDLE, "memory handles")                                                        \
    X(DEVICE_MEMORY, "device allocations")                                             \
    X(HOST_MEMORY, "host allocations")                                                 \
    X(IPC_MEMORY, "opened IPC handles")                                                \
    X(BINDING, "multicast bindings")                                                   \
    X(USER_OBJECT, "user objects")                                                     \
    X(GREEN, "green contexts")                                                         \
    X(GREEN_DESC, "resource descriptors")

enum fake_kind {
#define FAKE_KIND_ENUM(id, name) FAKE_##id,
    FAKE_KIND_MAP(FAKE_KIND_ENUM)
#undef FAKE_KIND_ENUM
        FAKE_KINDS
};

/* The first member of every listed object. */
struct fake_object {
    struct fake_object *next, **link;
    enum fake_kind kind;
};

void *fake_new(enum fake_kind kind, size_t bytes); /* zeroed and listed; never NULL */
void fake_list(enum fake_kind kind, void *object);
void fake_unlist(void *object);
void fake_delete(void *object); /* unlists and frees */
struct fake_object *fake_first(enum fake_kind kind);
bool fake_is(enum fake_kind kind, const void *object);
/* Ends the program unless the object is alive. */
void fake_expect(enum fake_kind kind, const void *object);

/* ---- In a simulator ---------------------------------------------------------------- */

/* Of the program, if it simulates the driver's process (sim_driver.c); else NULL. A function of the
 * driver begins; a thread is a stream's; an operation of a stream begins. Without the lock. */
#define FAKE_HOOK __attribute__((weak, visibility("default")))
FAKE_HOOK void sim_driver_call(const char *function);
FAKE_HOOK void sim_driver_stream(void);
FAKE_HOOK void sim_driver_operation(const char *kernel);

/* ---- Entering a function of the driver ------------------------------------------- */

enum fake_needs {
    FAKE_NOTHING = 0,
    FAKE_INIT = 1,    /* cuInit has been called in this process */
    FAKE_CURRENT = 3, /* FAKE_INIT, and a context is current */
    FAKE_UNSAFE = 4,  /* refused while a stream is captured */
};

extern pthread_mutex_t fake_mutex;
int fake_lock(const char *function);
void fake_unlock(int *locked);
CUresult fake_enter(const char *function, unsigned needs, bool *injected);
/* "fake CUDA driver: FUNCTION: ...", then abort. */
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define FAKE_LOCKED                                                                    \
    __attribute__((cleanup(fake_unlock), unused)) int locked = fake_lock(__func__)
#define FAKE_ENTER(needs)                                                              \
    FAKE_LOCKED;                                                                       \
    do {                                                                               \
        bool injected_;                                                                \
        CUresult entered_ = fake_enter(__func__, needs, &injected_);                   \
        if (entered_ != CUDA_SUCCESS)                                                  \
            return entered_;                                                           \
    } while (0)
/* For functions that release something or wait: an injected failure is returned after the
 * work (`return later`), as a real driver returns the errors of earlier work. */
#define FAKE_ENTER_FREE(needs)                                                         \
    FAKE_LOCKED;                                                                       \
    bool injected;                                                                     \
    CUresult later = fake_enter(__func__, needs, &injected);                           \
    do {                                                                               \
        if (later != CUDA_SUCCESS && !injected)                                        \
            return later;                                                              \
    } while (0)

uint64_t fake_env(const char *name, uint64_t fallback);

/* ---- Devices and contexts (fake_cuda_device.c) ----------------------------------- */

struct CUctx_st {
    int ordinal, physical; /* number in the program, number in the machine */
    int refs;
    size_t used;                      /* bytes of this process */
    int dying;                        /* destroyed streams that still have work */
    CUstream legacy;                  /* the NULL stream; made when first used */
    struct fake_model *model;         /* NULL: FAKE_CUDA_MODEL is not set */
    struct fake_object *retained[64]; /* one for each retain */
};

struct fake_settings {
    int devices, version, bus; /* bus: of device 0 of the machine */
    int processors, registers; /* multiprocessors; registers of a thread */
    int share;                 /* multiprocessors that a context may use */
    int pitch;                 /* the most that rows of a copy may lie apart */
    size_t memory;
    bool mps;
    bool fabric, fabric_fails,
        fabric_wrong; /* handles: are made, map nothing, or other memory */
    bool peer, multicast, trace, check, flush; /* flush: of remote writes, by waits */
    int no_multicast, multicast_loses, multicast_drops; /* physical devices; -1: none */
    size_t multicast_granularity;
    const char *missing;
};

extern struct fake_settings fake_settings;
extern struct CUctx_st fake_contexts[FAKE_DEVICES];
CUresult fake_devices_init(void);
CUcontext
fake_current(void); /* NULL: none, or a released one; of a green one the primary */
CUcontext fake_current_as(void); /* the same, but of a green one that */
void fake_retain(CUcontext primary);
void fake_release(CUcontext primary);
/* fake_cuda_green.c: a part of a device's multiprocessors, in the primary context. */
struct fake_green {
    struct fake_object object;
    CUcontext primary;
    struct CUctx_st as; /* what cuCtxFromGreenCtx gives */
    int first, count;
};
struct fake_green *fake_green_of(CUcontext context); /* NULL: it is no green one */
bool fake_peers(int ordinal,
                int physical); /* whether the device reaches the other's memory */
CUresult fake_use(int ordinal, size_t bytes);
void fake_unuse(int ordinal, size_t bytes);

/* ---- Memory ---------------------------------------------------------------------- */

/* The object at an address. */
struct fake_place {
    enum fake_kind kind; /* MAPPING, DEVICE_MEMORY, HOST_MEMORY or IPC_MEMORY */
    CUdeviceptr base;
    size_t bytes;
    int physical;    /* device; -1: host */
    unsigned access; /* bit per ordinal; for mappings */
    int handle_type;
    uint64_t id; /* of the memory in its process: never reused */
};
/* False: the driver knows no object there. Call it under the lock. */
bool fake_at(CUdeviceptr address, struct fake_place *place);
bool fake_mapping_at(CUdeviceptr address,
                     struct fake_place *place); /* fake_cuda_memory.c */
/* Ends the program unless the device may access these bytes; memory that the driver does
 * not know is ordinary host memory. */
void fake_expect_access(const char *function, int ordinal, CUdeviceptr address,
                        size_t bytes);
int fake_memfd(const char *name, size_t bytes); /* sealed; -1 */
void fake_poison(void *memory,
                 size_t bytes); /* fills new memory with bytes other than zero */
/* Whether fd is a memfd whose name begins with `kind`; `rest` gets the rest of its name. */
bool fake_memfd_name(int fd, const char *kind, char *rest, size_t bytes);

/* The memory of a handle of cuMemCreate, or a multicast object. */
struct fake_memory {
    struct fake_object object;
    CUmemGenericAllocationHandle id;
    int fd, physical, ordinal, handle_type;
    int handles, users; /* references of handles; of mappings and bindings */
    size_t bytes;
    bool owned;                     /* counts as used memory of the device */
    struct fake_multicast *members; /* not NULL: a multicast object */
};
struct fake_memory *fake_memory_of(CUmemGenericAllocationHandle id); /* never NULL */
struct fake_memory *fake_memory_new(int fd, size_t bytes, CUresult *result);
void fake_memory_drop(
    struct fake_memory *memory); /* frees it if it has no references */
bool fake_memory_at(CUdeviceptr address, struct fake_memory **memory, size_t *offset);
/* fake_cuda_multicast.c */
struct fake_multicast *fake_multicast_map(int fd);
void fake_multicast_unmap(struct fake_multicast *members);
CUresult fake_multicast_may_map(const struct fake_multicast *members);

/* ---- Streams (fake_cuda_stream.c), graphs (fake_cuda_graph.c) -------------------- */

/* A point of a stream that other streams wait for. */
struct fake_mark {
    int refs;
    bool done;
    struct timespec time; /* when it was reached */
};

enum fake_op_kind {
    FAKE_OP_KERNEL,
    FAKE_OP_COPY,
    FAKE_OP_FILL,
    FAKE_OP_HOST,
    FAKE_OP_WRITE,
    FAKE_OP_WAIT,
    FAKE_OP_GRAPH, /* runs the operations of an executable graph */
    FAKE_OP_MARK,  /* sets a mark */
    FAKE_OP_AWAIT  /* waits for a mark */
};

struct fake_op {
    struct fake_op *next;
    enum fake_op_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    /* Of a copy in rows; else 0: one row. */
    size_t rows, to_pitch, from_pitch;
    void *owned; /* freed with the operation */
    uint32_t value;
    unsigned flags;
    CUhostFn host;
    void (*kernel)(struct symm_cuda_args);
    const char *name; /* of the kernel; owned by its module */
    unsigned blocks, threads, cluster; /* cluster: blocks of one */
    struct symm_cuda_args args;
    struct fake_mark *mark;
    struct fake_graph *graph;
    /* For the model of the device: */
    struct CUstream_st *stream;
    struct fake_op *queue_next; /* the next op of the hardware queue */
    uint64_t number;            /* order of submission */
    int registers, priority;
    bool
        dependent; /* a kernel that may be resident before the previous kernel has ended */
    bool soft;     /* not in a hardware queue: a wait of the host, not an operation */
};

/* Operations in order, shared by a graph, executable graphs made from it, and launches. */
struct fake_graph {
    int refs;
    struct fake_op *first, **end;
    struct fake_held *held; /* user objects */
};

/* Nodes of a capture, by their numbers. */
struct fake_nodes {
    CUgraphNode node[FAKE_NODES];
    size_t count;
};

struct CUstream_st {
    struct fake_object object;
    CUcontext context;
    struct fake_green *green; /* NULL: it has all multiprocessors of the context */
    unsigned flags;
    uint64_t id; /* never reused, unlike handles */
    bool busy, destroyed, started;
    bool of_thread; /* the CU_STREAM_PER_THREAD of a thread */
    struct fake_op *first, **end;
    pthread_cond_t work;
    CUstream ended;         /* after this stream has ended: the next ended stream */
    int priority, queue;    /* queue: hardware queue, in the model */
    struct fake_grid *grid; /* in the model: the grid of the last operation */
    struct fake_capture *capture; /* not NULL: this stream's operations are recorded */
    uint64_t capture_last, capture_joined;
    struct fake_nodes after; /* in a capture: what its next operation follows */
};

struct CUevent_st {
    struct fake_object object;
    CUcontext context;
    struct fake_mark *mark;       /* NULL: not recorded, which counts as done */
    bool captured;                /* last recorded in a capture */
    struct fake_capture *capture; /* the capture, if it still runs */
    CUstream capture_stream;
    uint64_t capture_number;
    struct fake_nodes after; /* of the stream, when it was recorded in a capture */
};

/* A running capture; lives until the origin's cuStreamEndCapture. */
struct fake_capture {
    struct fake_capture *next;
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    uint64_t count; /* of operations and events so far */
    bool invalid;
    uint64_t id;
    CUgraph handle; /* listed as a graph when the capture has ended well */
    struct fake_graph *graph;
};

CUstream fake_stream_create(CUcontext context, struct fake_green *green, unsigned flags,
                            int priority);
CUresult fake_stream_of(CUstream *stream); /* checks; NULL becomes the legacy stream */
#define FAKE_STREAM_OF(stream)                                                         \
    do {                                                                               \
        CUresult found_ = fake_stream_of(&(stream));                                   \
        if (found_ != CUDA_SUCCESS)                                                    \
            return found_;                                                             \
    } while (0)
/* Records the operation or gives it to the stream's worker; takes a copy. */
CUresult fake_submit(CUstream stream, const struct fake_op *op);
void fake_run(const struct fake_op *op); /* without the lock */
/* fake_cuda_ones.c. Is that a fill with ones that may be left out until a kernel reads them? */
bool fake_ones_later(const void *to, size_t bytes);
/* Makes those that the kernel may read, before its launch. */
void fake_ones_now(const char *name, const struct symm_cuda_args *args);
void fake_step(
    const struct fake_op *op); /* under the lock: runs it, or waits for its mark */
/* Starts a detached thread with all signals blocked. */
void fake_thread(void *(*function)(void *arg), void *arg);
void fake_host_call(CUhostFn function, void *arg); /* without the lock */
bool fake_in_host_function(void);
struct fake_mark *fake_mark_new(void);
void fake_mark_drop(struct fake_mark *mark);
void fake_mark_wait(struct fake_mark *mark); /* under the lock */
void fake_mark_set(struct fake_mark *mark);
extern pthread_cond_t fake_progress; /* a mark was set, or the model advanced */
bool fake_stream_works(const struct CUstream_st *stream); /* whether it has work left */
/* Waits for the present work of the context's streams, destroyed ones included. */
void fake_context_wait(CUcontext context);
CUresult fake_capture_unsafe(void);
CUresult fake_capture_add(CUstream stream, const struct fake_op *op);
CUresult fake_capture_break(CUstream stream); /* for a call that a capture forbids */
CUresult fake_capture_record(CUstream stream, CUevent event);
CUresult fake_capture_join(CUstream stream, CUevent event);
void fake_capture_forget(CUstream stream);
struct fake_graph *fake_graph_new(void);
void fake_graph_drop(struct fake_graph *graph);
void fake_graph_add(struct fake_graph *graph, const struct fake_op *op);
void fake_op_hold(
    struct fake_op *op); /* takes references to the objects it points to */
void fake_op_drop(struct fake_op *op); /* drops them and frees the op */

/* ---- The model of a device (fake_cuda_model.c) ----------------------------------- */

int fake_registers(const char *kernel, unsigned threads); /* of a thread */
/* Blocks of a kernel that one multiprocessor holds. */
int fake_occupancy(int registers, unsigned threads);
CUresult fake_model_open(CUcontext context);
void fake_model_stream(CUstream stream); /* assigns a hardware queue to a new stream */
void fake_model_queue(CUstream stream, struct fake_op *op);
void fake_model_move(struct fake_model *model); /* advances the model after a change */
/* Runs the stream's next operation, not a kernel; releases the lock meanwhile. */
void fake_model_step(CUstream stream, struct fake_op *op);
void fake_model_drain(CUstream stream); /* until the last grid has completed */
bool fake_model_works(const struct fake_grid *grid);

#endif
