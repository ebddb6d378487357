/* SPDX-License-Identifier: MIT */
/*
 * register.c - memory that the caller has allocated, mapped into all peers.
 *
 * Two kinds: memory of cuMemCreate, whose handles are passed as descriptors (a tensor may lie
 * in several such allocations side by side), and memory of cuMemAlloc, by its IPC handle. A
 * peer maps whole allocations, once for all registrations that lie in them, of all teams.
 * The owner sends a handle only where no live registration of the team has carried it; a
 * peer that should know an allocation and does not refuses the rendezvous, so a wrong guess
 * is an error on all ranks. An allocation is known by its base, size and the driver's
 * identifier, which is never used twice: new memory at an old address is another one.
 *
 * Guarantees: memory of cuMemCreate lives while it is registered, even if the user frees it.
 * Memory of cuMemAlloc must not be freed while it is registered. A registration that has ended
 * stays mapped at the peers until the team's next rendezvous, or its end; each rank waits there
 * for its device before it unmaps.
 * Refuses: memory of the host or of another device, memory without a handle that can be
 * passed (cuMemAllocAsync), and, where ranks are threads, memory of cuMemAlloc.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device_ops.h"
#include "cuda/device.h"
#include "util/status.h"

#define CHUNKS 32 /* allocations that one registration may reach over */

enum kind { VMM, LEGACY, THREAD, KNOWN, KINDS };

/* Allocations side by side, as their owner and its peers name them. */
struct run {
    uint64_t base, bytes, id;
    uint32_t chunks;
    uint32_t kind; /* VMM or LEGACY */
    uint64_t chunk[CHUNKS];
};

/* A peer's run, mapped here; on the context's list. */
struct symm_opened {
    struct symm_opened *next;
    int rank; /* of the world */
    struct run run;
    bool mine; /* a mapping was made: not where ranks are threads */
    CUdeviceptr at;
    int references;
};

struct symm_registration {
    struct symm_registration *next;
    symm_buffer *buffer; /* NULL: removed, peers have it until the next rendezvous */
    uint64_t sequence;
    CUdeviceptr ptr;
    size_t bytes;
    bool shared;
    struct run run;
    CUmemGenericAllocationHandle held[CHUNKS]; /* VMM: keeps the memory */
    int fds[CHUNKS];                           /* until all peers have them, then -1 */
    CUipcMemHandle ipc;
    struct symm_opened *peer[SYMM_DEVICE_RANKS]; /* by team rank */
    uint64_t offset[SYMM_DEVICE_RANKS];          /* of their memory in the run */
};

/* In the exchange; the head's count of them follows from the size of the message. */
struct wire_registration {
    uint64_t sequence, offset, bytes;
    uint32_t kind; /* KNOWN: the peer has the run */
    uint32_t reserved;
    struct run run;
    CUipcMemHandle ipc;
};

static bool same_run(const struct run *a, const struct run *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- What the memory is ---------------------------------------------------------- */

static symm_status check_place(struct symm_backend *b, CUdeviceptr ptr)
{
    unsigned type = 0;
    int ordinal = -1;
    symm_status status =
        SYMM_CUDA_CALL(b->driver, cuPointerGetAttribute,
                       (&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr),
                       "symm_buffer_register: %#llx is no memory that CUDA knows",
                       (unsigned long long)ptr);

    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(b->driver, cuPointerGetAttribute,
                                (&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr),
                                "symm_buffer_register: the device of %#llx",
                                (unsigned long long)ptr);
    if (status == SYMM_OK &&
        (type != CU_MEMORYTYPE_DEVICE || ordinal != b->device.ordinal))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_buffer_register: %#llx is memory of %s %d, not of this "
                          "rank's device %d",
                          (unsigned long long)ptr,
                          type == CU_MEMORYTYPE_DEVICE ? "device"
                                                       : "the host near device",
                          ordinal, b->device.ordinal);
    return status;
}

/* Memory of cuMemCreate at `at`: one more chunk with its descriptor. */
static symm_status take_chunk(struct symm_backend *b, struct symm_registration *r,
                              CUdeviceptr at, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemRetainAllocationHandle, (&handle, (void *)(uintptr_t)at),
        "symm_buffer_register: the handle of %zu bytes at %#llx", bytes,
        (unsigned long long)at);

    if (status != SYMM_OK)
        return status;
    status = SYMM_CUDA_CALL(b->driver, cuMemExportToShareableHandle,
                            (&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "symm_buffer_register: a descriptor of %zu bytes at %#llx; "
                            "it must be allocated with "
                            "handles of this type",
                            bytes, (unsigned long long)at);
    if (status != SYMM_OK) {
        (void)b->driver->cuMemRelease(handle);
        return status;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    r->held[r->run.chunks] = handle;
    r->fds[r->run.chunks] = fd;
    r->run.chunk[r->run.chunks++] = bytes;
    r->run.bytes += bytes;
    return SYMM_OK;
}

/* The allocation that `at` lies in. */
static symm_status look_up(struct symm_backend *b, CUdeviceptr at, CUdeviceptr *base,
                           size_t *bytes, uint64_t *id)
{
    unsigned long long found = 0;
    symm_status status = SYMM_CUDA_CALL(
        b->driver, cuMemGetAddressRange, (base, bytes, at),
        "symm_buffer_register: the allocation at %#llx", (unsigned long long)at);

    if (status == SYMM_OK)
        status =
            SYMM_CUDA_CALL(b->driver, cuPointerGetAttribute,
                           (&found, CU_POINTER_ATTRIBUTE_BUFFER_ID, at),
                           "symm_buffer_register: the identifier of the allocation at "
                           "%#llx",
                           (unsigned long long)at);
    *id = found;
    return status;
}

static symm_status take_legacy(struct symm_backend *b, struct symm_registration *r,
                               bool threads)
{
    CUdeviceptr end = r->ptr + r->bytes;
    symm_status status;

    if (end > r->run.base + r->run.bytes)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_buffer_register: %zu bytes at %#llx leave their allocation of "
            "%llu bytes",
            r->bytes, (unsigned long long)r->ptr, (unsigned long long)r->run.bytes);
    if (threads)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_buffer_register: %zu bytes at %#llx were not made by "
                          "cuMemCreate, which ranks that are threads need",
                          r->bytes, (unsigned long long)r->ptr);
    r->run.kind = LEGACY;
    r->run.chunks = 1;
    r->run.chunk[0] = r->run.bytes;
    status =
        SYMM_CUDA_CALL(b->driver, cuIpcGetMemHandle, (&r->ipc, r->run.base),
                       "symm_buffer_register: %zu bytes at %#llx have no handle that "
                       "peers could open (memory pools have none)",
                       r->bytes, (unsigned long long)r->ptr);
    return status;
}

/* All allocations that the memory lies in. */
static symm_status take_memory(struct symm_backend *b, struct symm_registration *r,
                               bool threads)
{
    CUdeviceptr end = r->ptr + r->bytes, at = r->ptr, base = 0;
    CUmemGenericAllocationHandle handle;
    size_t bytes = 0;
    uint64_t id = 0;
    symm_status status = check_place(b, r->ptr);

    if (status == SYMM_OK)
        status = look_up(b, at, &base, &bytes, &id);
    if (status != SYMM_OK)
        return status;
    r->run = (struct run){.base = base, .id = id, .kind = VMM};
    if (b->driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)base) !=
        CUDA_SUCCESS) {
        r->run.bytes = bytes;
        return take_legacy(b, r, threads);
    }
    (void)b->driver->cuMemRelease(handle);
    for (;;) {
        status = take_chunk(b, r, base, bytes);
        at = base + bytes;
        if (status != SYMM_OK || at >= end)
            return status;
        if (r->run.chunks == CHUNKS)
            return symm__fail(
                SYMM_ERR_UNSUPPORTED,
                "symm_buffer_register: %zu bytes at %#llx lie in more than %d "
                "allocations",
                r->bytes, (unsigned long long)r->ptr, CHUNKS);
        status = look_up(b, at, &base, &bytes, &id);
        if (status == SYMM_OK && base != at)
            status = symm__fail(SYMM_ERR_INVALID,
                                "symm_buffer_register: %zu bytes at %#llx leave their "
                                "allocation",
                                r->bytes, (unsigned long long)r->ptr);
        if (status != SYMM_OK)
            return status;
        r->run.id = r->run.id * UINT64_C(0x9e3779b97f4a7c15) + id;
    }
}

static void give_memory(struct symm_backend *b, struct symm_registration *r)
{
    for (uint32_t i = 0; r->run.kind == VMM && i < r->run.chunks; i++) {
        if (r->fds[i] >= 0)
            close(r->fds[i]);
        if (b->process == getpid())
            (void)b->driver->cuMemRelease(r->held[i]);
    }
}

/* ---- Registrations --------------------------------------------------------------- */

symm_status symm__register_add(symm_team *team, void *ptr, size_t bytes,
                               symm_buffer *buffer)
{
    symm_ctx *ctx = team->ctx;
    uintptr_t heaps = (uintptr_t)ctx->base;
    struct symm_cuda_scope scope;
    struct symm_registration *made, **last;
    symm_status status;

    if ((uintptr_t)ptr - heaps < (size_t)ctx->size * ctx->stride)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_buffer_register: %p is symmetric memory already", ptr);
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return symm__fail(SYMM_ERR_OVERFLOW, "symm_buffer_register: %zu bytes at %p",
                          bytes, ptr);
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a registration");
    made->ptr = (CUdeviceptr)(uintptr_t)ptr;
    made->bytes = bytes;
    status = symm__cuda_enter(ctx->backend, &scope);
    if (status == SYMM_OK) {
        status = take_memory(ctx->backend, made, ctx->thread_group != NULL);
        if (status != SYMM_OK)
            give_memory(ctx->backend, made);
        symm__cuda_leave(&scope);
    }
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->buffer = buffer;
    made->sequence = team->registered++;
    buffer->registration = made;
    buffer->offset = SYMM_REGISTERED + (size_t)made->sequence;
    pthread_mutex_lock(&ctx->registry);
    for (last = &team->registrations; *last;)
        last = &(*last)->next;
    *last = made;
    pthread_mutex_unlock(&ctx->registry);
    return SYMM_OK;
}

/* The last user of a peer's run unmaps it. */
static void opened_drop(symm_ctx *ctx, struct symm_opened *opened)
{
    const struct symm_cuda_driver *d = ctx->backend->driver;
    struct symm_opened **at = &ctx->opened;
    struct symm_cuda_scope scope;

    if (!opened || --opened->references > 0)
        return;
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    if (opened->mine && symm__cuda_enter_last(ctx->backend, &scope)) {
        if (opened->run.kind == LEGACY) {
            (void)d->cuIpcCloseMemHandle(opened->at);
        } else {
            (void)d->cuMemUnmap(opened->at, opened->run.bytes);
            (void)d->cuMemAddressFree(opened->at, opened->run.bytes);
        }
        symm__cuda_leave(&scope);
    }
    free(opened);
}

static void peers_drop(symm_team *team, struct symm_registration *r)
{
    for (int m = 0; m < SYMM_DEVICE_RANKS; m++) {
        opened_drop(team->ctx, r->peer[m]);
        r->peer[m] = NULL;
    }
}

/* Takes it off the list and frees it. */
static void registration_free(symm_team *team, struct symm_registration *r)
{
    struct symm_registration **at = &team->registrations;
    struct symm_cuda_scope scope;
    bool entered;

    pthread_mutex_lock(&team->ctx->registry);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    pthread_mutex_unlock(&team->ctx->registry);
    peers_drop(team, r);
    entered = symm__cuda_enter_last(team->ctx->backend, &scope);
    give_memory(team->ctx->backend, r);
    if (entered)
        symm__cuda_leave(&scope);
    free(r);
}

void symm__register_remove(symm_buffer *buffer)
{
    struct symm_registration *r = buffer->registration;

    buffer->registration = NULL;
    if (!r->shared) {
        /* As a freed offset of the heap: the next one is as if this had never been. */
        if (r->sequence + 1 == buffer->team->registered)
            buffer->team->registered--;
        registration_free(buffer->team, r);
        return;
    }
    pthread_mutex_lock(&buffer->team->ctx->registry);
    r->buffer = NULL;
    pthread_mutex_unlock(&buffer->team->ctx->registry);
}

/* ---- Rendezvous ------------------------------------------------------------------ */

static bool is_new(const struct symm_registration *r)
{
    return r->buffer && !r->shared;
}

/* Has a live registration of this team, or an earlier new one, carried the run? */
static bool is_known(const symm_team *team, const struct symm_registration *r)
{
    for (const struct symm_registration *i = team->registrations; i && i != r;
         i = i->next)
        if (i->buffer && same_run(&i->run, &r->run))
            return true;
    return false;
}

symm_status symm__register_pack(const symm_team *team, void **bytes, size_t *count,
                                int **fds, int *fds_count)
{
    const struct symm_registration *r;
    struct wire_registration *wire;
    size_t fresh = 0;

    *bytes = NULL;
    *fds = NULL;
    *count = 0;
    *fds_count = 0;
    for (r = team->registrations; r; r = r->next)
        fresh += is_new(r);
    if (fresh == 0)
        return SYMM_OK;
    wire = calloc(fresh, sizeof(*wire));
    *fds = calloc(fresh * CHUNKS, sizeof(**fds));
    if (!wire || !*fds) {
        free(wire);
        free(*fds);
        *fds = NULL;
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %zu registrations", fresh);
    }
    *bytes = wire;
    *count = fresh * sizeof(*wire);
    for (r = team->registrations; r; r = r->next) {
        if (!is_new(r))
            continue;
        *wire = (struct wire_registration){.sequence = r->sequence,
                                           .offset = r->ptr - r->run.base,
                                           .bytes = r->bytes,
                                           .kind = r->run.kind,
                                           .run = r->run,
                                           .ipc = r->ipc};
        if (team->ctx->thread_group)
            wire->kind = THREAD;
        else if (is_known(team, r))
            wire->kind = KNOWN;
        for (uint32_t i = 0; wire->kind == VMM && i < r->run.chunks; i++)
            (*fds)[(*fds_count)++] = r->fds[i];
        wire++;
    }
    return SYMM_OK;
}

/* A peer's chunks side by side in address space of their own. */
static symm_status map_chunks(struct symm_backend *b, const struct run *run,
                              const int *fds, CUdeviceptr *at)
{
    const struct symm_cuda_driver *d = b->driver;
    CUdeviceptr base = 0;
    uint64_t mapped = 0;
    symm_status status = SYMM_CUDA_CALL(
        d, cuMemAddressReserve, (&base, run->bytes, b->granularity, 0, 0),
        "address space of %llu bytes for a peer's registered memory",
        (unsigned long long)run->bytes);

    if (status != SYMM_OK)
        return status;
    for (uint32_t i = 0; i < run->chunks && status == SYMM_OK; i++) {
        CUmemGenericAllocationHandle memory;

        status = SYMM_CUDA_CALL(d, cuMemImportFromShareableHandle,
                                (&memory, (void *)(intptr_t)fds[i],
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                "a peer's registered memory of %llu bytes",
                                (unsigned long long)run->chunk[i]);
        if (status != SYMM_OK)
            break;
        status = symm__cuda_map(b, memory, base + mapped, run->chunk[i]);
        (void)d->cuMemRelease(memory);
        if (status == SYMM_OK)
            mapped += run->chunk[i];
    }
    if (status == SYMM_OK) {
        *at = base;
        return SYMM_OK;
    }
    if (mapped > 0)
        (void)d->cuMemUnmap(base, mapped);
    (void)d->cuMemAddressFree(base, run->bytes);
    return status;
}

/* With the scope entered. fds: those of the run's chunks. */
static symm_status opened_map(struct symm_backend *b,
                              const struct wire_registration *wire, const int *fds,
                              struct symm_opened *opened)
{
    switch ((enum kind)wire->kind) {
    case VMM:
        opened->mine = true;
        return map_chunks(b, &wire->run, fds, &opened->at);
    case LEGACY:
        opened->mine = true;
        return SYMM_CUDA_CALL(
            b->driver, cuIpcOpenMemHandle,
            (&opened->at, wire->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            "a peer's registered memory of %llu bytes",
            (unsigned long long)wire->run.bytes);
    case THREAD: /* one address space: the owner's mapping serves */
        opened->at = wire->run.base;
        return symm__cuda_access(b, wire->run.base, wire->run.bytes);
    case KNOWN:
    case KINDS:
        break;
    }
    return symm__fail(SYMM_ERR_MISMATCH,
                      "a peer takes its allocation of %llu bytes at %#llx to be mapped "
                      "here, but it is not",
                      (unsigned long long)wire->run.bytes,
                      (unsigned long long)wire->run.base);
}

/* The peer's run: one that is open already, or newly mapped. */
static symm_status opened_get(symm_ctx *ctx, int rank,
                              const struct wire_registration *wire, const int *fds,
                              struct symm_opened **opened)
{
    struct symm_opened *made = ctx->opened;
    struct symm_cuda_scope scope;
    symm_status status;

    while (made && (made->rank != rank || !same_run(&made->run, &wire->run)))
        made = made->next;
    if (!made) {
        made = calloc(1, sizeof(*made));
        if (!made)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a peer's memory");
        made->rank = rank;
        made->run = wire->run;
        status = symm__cuda_enter(ctx->backend, &scope);
        if (status == SYMM_OK) {
            status = opened_map(ctx->backend, wire, fds, made);
            symm__cuda_leave(&scope);
        }
        if (status != SYMM_OK) {
            free(made);
            return status;
        }
        made->next = ctx->opened;
        ctx->opened = made;
    }
    made->references++;
    *opened = made;
    return SYMM_OK;
}

/* Nothing of a peer's message is believed before this. */
static bool is_sound(const struct wire_registration *wire,
                     const struct symm_registration *mine)
{
    uint64_t sum = 0;

    if (!mine || wire->kind >= KINDS || wire->run.kind > LEGACY ||
        wire->run.chunks < 1 || wire->run.chunks > CHUNKS || wire->bytes != mine->bytes)
        return false;
    for (uint32_t i = 0; i < wire->run.chunks; i++)
        if (__builtin_add_overflow(sum, wire->run.chunk[i], &sum))
            return false;
    return sum == wire->run.bytes && wire->offset <= sum &&
           wire->bytes <= sum - wire->offset;
}

symm_status symm__register_map(symm_team *team, int member, const void *bytes,
                               size_t count, const int *fds, int fds_count)
{
    const char *at = bytes;

    for (; count >= sizeof(struct wire_registration);
         count -= sizeof(struct wire_registration)) {
        struct symm_registration *mine = team->registrations;
        struct wire_registration wire;
        int used;
        symm_status status;

        memcpy(&wire, at, sizeof(wire));
        at += sizeof(wire);
        while (mine && (!is_new(mine) || mine->sequence != wire.sequence))
            mine = mine->next;
        used = member != team->rank && wire.kind == VMM ? (int)wire.run.chunks : 0;
        if (!is_sound(&wire, mine) || used > fds_count)
            break;
        if (member != team->rank) {
            status = opened_get(team->ctx, team->world_rank[member], &wire, fds,
                                &mine->peer[member]);
            if (status != SYMM_OK)
                return status;
            mine->offset[member] = wire.offset;
            fds += used;
            fds_count -= used;
        }
    }
    if (count != 0 || (member != team->rank && fds_count != 0))
        return symm__fail(SYMM_ERR_REFUSED,
                          "rank %d sent a malformed list of registrations",
                          team->world_rank[member]);
    return SYMM_OK;
}

symm_status symm__register_check(const symm_team *team)
{
    for (const struct symm_registration *r = team->registrations; r; r = r->next)
        for (int m = 0; is_new(r) && m < team->size; m++)
            if (m != team->rank && !symm__is_far(team->ctx, team->world_rank[m]) &&
                !r->peer[m])
                return symm__fail(SYMM_ERR_REFUSED,
                                  "rank %d did not send its registration %llu of %zu "
                                  "bytes",
                                  team->world_rank[m], (unsigned long long)r->sequence,
                                  (size_t)r->bytes);
    return SYMM_OK;
}

void symm__register_undo(symm_team *team)
{
    for (struct symm_registration *r = team->registrations; r; r = r->next)
        if (is_new(r))
            peers_drop(team, r);
}

/* Calls in flight may use a peer's memory that is about to be unmapped. The peers' hosts have
 * gone on by now, so what the calls wait for can arrive; and each has its deadline. */
static void settle_calls(symm_ctx *ctx)
{
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(ctx->backend, &scope))
        return;
    ctx->device_ops->ending(ctx, true);
    (void)ctx->backend->driver->cuCtxSynchronize();
    ctx->device_ops->ending(ctx, false);
    symm__cuda_leave(&scope);
}

void symm__register_done(symm_team *team)
{
    bool ends = false;

    for (const struct symm_registration *r = team->registrations; r; r = r->next)
        ends = ends || !r->buffer;
    if (ends)
        settle_calls(team->ctx);
    for (struct symm_registration *r = team->registrations, *next; r; r = next) {
        next = r->next;
        if (!r->buffer) {
            registration_free(team, r);
            continue;
        }
        for (uint32_t i = 0; r->run.kind == VMM && i < r->run.chunks; i++) {
            if (r->fds[i] >= 0)
                close(r->fds[i]);
            r->fds[i] = -1;
        }
        pthread_mutex_lock(&team->ctx->registry);
        r->shared = true;
        pthread_mutex_unlock(&team->ctx->registry);
    }
}

void symm__register_close(symm_team *team)
{
    while (team->registrations)
        registration_free(team, team->registrations);
}

/* ---- Addresses ------------------------------------------------------------------- */

/* Of [r->ptr + at, ...) at a member; NULL: not mapped. */
static void *address(const symm_team *team, const struct symm_registration *r, int peer,
                     size_t at)
{
    if (peer == team->rank)
        return (void *)(uintptr_t)(r->ptr + at);
    if (!r->shared || !r->peer[peer])
        return NULL;
    return (void *)(uintptr_t)(r->peer[peer]->at + r->offset[peer] + at);
}

void *symm__register_ptr(const symm_buffer *buffer, int peer)
{
    return address(buffer->team, buffer->registration, peer, 0);
}

bool symm__registered_peer(symm_team *team, const void *ptr, size_t bytes, int peer,
                           void **theirs)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    void *found = NULL;

    pthread_mutex_lock(&team->ctx->registry);
    for (const struct symm_registration *r = team->registrations; r && !found;
         r = r->next)
        if (r->buffer && at - r->ptr <= r->bytes && bytes <= r->bytes - (at - r->ptr))
            found = address(team, r, peer, at - r->ptr);
    pthread_mutex_unlock(&team->ctx->registry);
    if (found)
        *theirs = found;
    return found != NULL;
}
