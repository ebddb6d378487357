/* SPDX-License-Identifier: MIT */
/*
 * backend.h - the contract between the runtime and what memory and streams really are.
 *
 * A backend is a const table of operations that begins with its size. No function is NULL
 * where `open` can succeed: what a backend cannot do returns SYMM_ERR_UNSUPPORTED. Every
 * operation may be called from any thread, one at a time per backend object unless said
 * otherwise; none waits for a peer except `launch` (inline) and the stream's worker, whose waits
 * slow_wait.c bounds. Operations set symm_last_error when they fail and leave nothing behind.
 */
#ifndef SYMM_CORE_BACKEND_H
#define SYMM_CORE_BACKEND_H

#include "kernels/launch.h"
#include "symm/symm.h"

struct symm_backend;
struct symm_device_ops;
struct symm_stream;
struct symm_task;

/* Runs on the stream's worker, or at once on the caller's thread for the NULL stream. */
typedef void (*symm_task_fn)(struct symm_task *task);
struct symm_task {
    symm_task_fn run;       /* owns the task from then on */
    struct symm_task *next; /* the queue's */
};

/* A rank's device. */
struct symm_device_info {
    int ordinal, processors; /* multiprocessors that the rank's calls may use */
    int mps; /* multiprocessors that all processes may use together, by MPS; 0: without MPS */
    int major, minor; /* compute capability */
    char name[64], bus[16];
    uint8_t uuid[16];
    bool multicast; /* it has multicast, and the options ask for it */
};

#define SYMM_RUN_CHUNKS 32 /* allocations that one registration may reach over */
#define SYMM_RUN_TOKEN  64

/* How peers get a run: a descriptor for each chunk, or one token. */
enum symm_run_kind { SYMM_RUN_DESCRIPTORS, SYMM_RUN_BY_TOKEN, SYMM_RUN_KINDS };

/* Allocations of the caller side by side, as their owner and its peers name them. No other memory
 * at this address ever has the same `id`. */
struct symm_run {
    uint64_t base, bytes, id;
    uint32_t chunks;
    uint32_t kind; /* enum symm_run_kind */
    uint64_t chunk[SYMM_RUN_CHUNKS];
};

/* What the owner keeps of a run. */
struct symm_own_run {
    struct symm_run run;
    int fds[SYMM_RUN_CHUNKS];       /* of chunks, until all peers have them; then -1 */
    uint64_t held[SYMM_RUN_CHUNKS]; /* the backend's: keeps the memory */
    uint8_t token[SYMM_RUN_TOKEN];
};

/* Memory of symm_mem_alloc. */
struct symm_mem {
    char *ptr;
    size_t bytes;                 /* in whole granules */
    uint64_t id;                  /* never given twice in a process */
    int fd;                       /* host: of the memory; else -1 */
    struct symm_backend *backend; /* CUDA: made for this memory; else NULL */
};

#define SYMM_FABRIC_BYTES 64 /* of a handle of the fabric */

/* Which NVLink domain a device is in: devices of one clique reach each other's memory. */
struct symm_clique {
    uint8_t cluster[16];
    uint32_t id;
};

/* Memory that ranks of other hosts map. A handle serves as long as the memory lives. */
struct symm_fabric_ops {
    /* The clique of this rank's device. An error says why it is in none. */
    symm_status (*clique)(struct symm_backend *backend, struct symm_clique *clique);
    /* New memory that holds numbers which follow from `number`, and its handle. */
    symm_status (*offer)(struct symm_backend *backend, uint64_t number, uint8_t *handle,
                         void **proof);
    void (*withdraw)(struct symm_backend *backend, void *proof); /* NULL allowed */
    /* Maps what a peer has offered, reads it and unmaps it. An error if it does not hold its
     * numbers. */
    symm_status (*prove)(struct symm_backend *backend, const uint8_t *handle,
                         uint64_t number);
    /* From this call on `commit` makes memory that has such handles. */
    void (*use)(struct symm_backend *backend);
    /* The handle of memory that `commit` has made at this place. */
    symm_status (*handle)(struct symm_backend *backend, void *at, uint8_t *handle);
    /* As `import` of struct symm_backend_ops. */
    symm_status (*import)(struct symm_backend *backend, const uint8_t *handle, void *at,
                          size_t bytes);
};

struct symm_backend_ops {
    size_t size;
    const char *name;
    const struct symm_device_ops *device_ops; /* NULL: kernels run on the host */
    const struct symm_fabric_ops *fabric;     /* NULL: memory stays on its host */
    /* Devices that this process sees; an error says why there is no driver. */
    symm_status (*count)(int *count);
    symm_status (*open)(int local_rank, struct symm_backend **backend);
    /* Ranks that are threads share address space: makes an object for what outlives them, which
     * is used only for reserve, release and close. */
    symm_status (*open_owner)(struct symm_backend *member, struct symm_backend **owner);
    void (*close)(struct symm_backend *backend);               /* NULL allowed */
    size_t (*granularity)(const struct symm_backend *backend); /* a power of two */
    /* The rank's device; NULL: it has none, and works on the host. */
    const struct symm_device_info *(*describe)(const struct symm_backend *backend);
    /* Can rank `rank`, whose backend this is, reach memory of the device of rank `peer`?
     * SYMM_OK also where that device is not visible here: mapping its memory then fails. */
    symm_status (*reachable)(const struct symm_backend *backend, int rank,
                             const struct symm_device_info *theirs, int peer);

    /* Address space of `bytes` without memory; what lies there faults. */
    symm_status (*reserve)(struct symm_backend *backend, size_t bytes, void **base);
    void (*release)(struct symm_backend *backend, void *base, size_t bytes);
    /* Uses the owner's reservation. */
    symm_status (*share)(struct symm_backend *backend, struct symm_backend *owner);
    /* New zeroed memory at `at` (inside a reservation); *handle is a descriptor that the
     * caller closes, the memory lives while it is mapped anywhere. bytes: whole granules.
     * The first `unused` of them are never used and need no memory. In a shared reservation
     * the handle may be -1, and what lay there before goes. */
    symm_status (*commit)(struct symm_backend *backend, void *at, size_t bytes,
                          size_t unused, int *handle);
    /* Checks a peer's handle (kind, size, seals), then maps it at `at`. */
    symm_status (*import)(struct symm_backend *backend, int handle, void *at,
                          size_t bytes);
    /* Makes memory at `at` accessible that a peer, which is a thread, has committed. */
    symm_status (*reach)(struct symm_backend *backend, void *at, size_t bytes);
    /* Unmaps the memory; the address space stays reserved. */
    void (*unmap)(struct symm_backend *backend, void *at, size_t bytes);

    /* ---- Memory of the caller (core/registered.h) ---- */

    /* Finds the run that [ptr, ptr + bytes) lies in; mem: the memory of symm_mem_alloc that ptr
     * lies in, NULL: in none. Sentences begin with symm_buffer_register. */
    symm_status (*run_take)(struct symm_backend *backend, void *ptr, size_t bytes,
                            const struct symm_mem *mem, struct symm_own_run *own);
    /* Ends run_take: closes descriptors that are not -1, releases the memory. */
    void (*run_give)(struct symm_backend *backend, struct symm_own_run *own);
    /* Maps a peer's run, of which the caller has checked the numbers. */
    symm_status (*run_open)(struct symm_backend *backend, const struct symm_run *run,
                            const int *fds, const uint8_t *token, void **at);
    void (*run_close)(struct symm_backend *backend, const struct symm_run *run,
                      void *at);
    /* For a peer that is a thread: makes its own mapping at run->base accessible. */
    symm_status (*run_reach)(struct symm_backend *backend, const struct symm_run *run);
    /* Memory for symm_mem_alloc, zeroed: without an object, of a device (-1: the current). */
    symm_status (*mem_alloc)(int device, size_t bytes, struct symm_mem *mem);
    void (*mem_free)(struct symm_mem *mem);

    /* Memory that only this rank and its device use, zeroed. */
    symm_status (*local_alloc)(struct symm_backend *backend, size_t bytes,
                               void **memory);
    void (*local_free)(struct symm_backend *backend, void *memory); /* NULL allowed */

    symm_status (*stream_create)(struct symm_backend *backend,
                                 struct symm_stream **stream);
    /* Runs what is queued, then ends. */
    void (*stream_destroy)(struct symm_backend *backend, struct symm_stream *stream);
    /* Waits until all that is queued has run. */
    void (*stream_drain)(struct symm_backend *backend, struct symm_stream *stream);
    /* does its worker call this? */
    bool (*stream_is_own)(const struct symm_stream *stream);
    void (*stream_push)(struct symm_backend *backend, struct symm_stream *stream,
                        struct symm_task *task);
    symm_status (*stream_synchronize)(struct symm_backend *backend,
                                      struct symm_stream *stream, int rank,
                                      double seconds); /* rank: for its error */
};

#endif
