/* SPDX-License-Identifier: MIT */
/*
 * launch.c - a collective on CUDA: where its pointers lie, its kernel, its launch.
 *
 * A prepared call is one launch: no lock but the channel's, no allocation, no system call, no
 * other call of the driver. The kernel counts in device memory, so a launch that a graph
 * captures is right at every replay. Pointers and functions are looked up when a call is prepared;
 * that does not disturb a capture.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "cuda/budget.h"
#include "cuda/channel.h"
#include "cuda/error_teams.h"
#include "cuda/norm.h"
#include "cuda/stream_order.h"
#include "engine/runtime.h"
#include "select/select.h"
#include "util/clock.h"
#include "util/status.h"

/* ---- Pointers ----------------------------------------------------------------------- */

static uint64_t *reached_slot(struct symm_cuda_team *cuda, const void *ptr)
{
    uintptr_t hash = (uintptr_t)ptr >> 4;

    return &cuda->reached[(hash ^ hash >> 8) & (SYMM_CUDA_REACHED - 1)];
}

/* Reads an attribute of a pointer; false: the driver does not know the pointer. */
static bool attribute(const struct symm_cuda_driver *driver, void *value,
                      CUpointer_attribute which, const void *ptr)
{
    return driver->cuPointerGetAttribute(value, which, (CUdeviceptr)(uintptr_t)ptr) ==
           CUDA_SUCCESS;
}

static const void *last_byte(const void *ptr, size_t bytes)
{
    return (const char *)ptr + bytes - 1;
}

/* A hash of the range and of the driver's numbers of the allocations that its ends lie in. The
 * driver uses no number twice, so memory that was freed and allocated again has another hash.
 * 0: the driver does not know the range. */
static uint64_t range_key(const struct symm_cuda_driver *driver, const void *ptr,
                          size_t bytes)
{
    unsigned long long first = 0, last = 0;
    uint64_t key;

    if (!attribute(driver, &first, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr) ||
        !attribute(driver, &last, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                   last_byte(ptr, bytes)) ||
        first == 0 || last == 0)
        return 0;
    key = (uintptr_t)ptr;
    key = (key ^ bytes) * UINT64_C(0x9e3779b97f4a7c15);
    key = (key ^ key >> 32 ^ first) * UINT64_C(0xd6e8feb86659fd93);
    key = (key ^ key >> 32 ^ last) * UINT64_C(0x9e3779b97f4a7c15);
    return key | 1;
}

/* Judges one end of the range: `at` is its first or its last byte. */
static symm_status judge_pointer(symm_team *team, const char *what, const char *which,
                                 const void *ptr, size_t bytes, const void *at)
{
    const struct symm_cuda_launcher *launcher = team->ctx->launcher;
    const struct symm_cuda_driver *driver = launcher->driver;
    int ordinal = team->ctx->backend->device.ordinal, where = ordinal;
    CUmemorytype type = 0;
    CUdeviceptr seen = 0;
    unsigned managed = 0;

    if (!attribute(driver, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) || type == 0) {
        if (launcher->pageable)
            return SYMM_OK;
        if (at != ptr)
            return symm__fail(
                SYMM_ERR_INVALID,
                "%s: `%s` [%p, +%zu) leaves its allocation: its last byte "
                "is memory of the host that device %d of rank %d cannot "
                "reach; give fewer elements, or more memory",
                what, which, ptr, bytes, ordinal, team->ctx->rank);
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: `%s` [%p, +%zu) is memory of the host that device %d of "
                          "rank %d cannot reach; give device memory, or pin it "
                          "(cudaHostAlloc, cudaHostRegister)",
                          what, which, ptr, bytes, ordinal, team->ctx->rank);
    }
    if (type == CU_MEMORYTYPE_HOST &&
        (!attribute(driver, &seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) ||
         seen != (CUdeviceptr)(uintptr_t)at))
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: `%s` %p is pinned memory that the device has at another "
                          "address; give that one (cudaHostGetDevicePointer)",
                          what, which, ptr);
    if (type == CU_MEMORYTYPE_DEVICE &&
        attribute(driver, &where, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) &&
        where != ordinal &&
        !(attribute(driver, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) && managed))
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s: `%s` %p is memory of device %d, and rank %d drives device "
            "%d; give memory of its own device",
            what, which, ptr, where, team->ctx->rank, ordinal);
    return SYMM_OK;
}

symm_status symm__cuda_call_reach(symm_team *team, const char *what, const char *which,
                                  const void *ptr, size_t bytes)
{
    const struct symm_cuda_driver *driver = team->ctx->backend->driver;
    uint64_t *known = reached_slot(team->cuda, ptr), key;
    struct symm_cuda_scope scope;
    symm_status status;

    if (bytes == 0)
        return SYMM_OK;
    key = range_key(driver, ptr, bytes); /* 0, too, where no context is current */
    /* relaxed: a hint that this range of these allocations was checked before */
    if (key != 0 && __atomic_load_n(known, __ATOMIC_RELAXED) == key)
        return SYMM_OK;
    status = symm__cuda_enter(team->ctx->backend, &scope);
    if (status != SYMM_OK)
        return status;
    key = range_key(driver, ptr, bytes);
    status = judge_pointer(team, what, which, ptr, bytes, ptr);
    if (status == SYMM_OK && bytes > 1)
        status = judge_pointer(team, what, which, ptr, bytes, last_byte(ptr, bytes));
    symm__cuda_leave(&scope);
    if (status == SYMM_OK)
        __atomic_store_n(known, key, __ATOMIC_RELAXED);
    return status;
}

symm_status symm__cuda_stream_check(symm_ctx *ctx, void **stream)
{
    uint64_t id;

    if (*stream == (void *)CU_STREAM_LEGACY)
        *stream = NULL;
    return *stream == (void *)CU_STREAM_PER_THREAD
               ? symm__cuda_stream_id(ctx, *stream, &id)
               : SYMM_OK;
}

/* ---- A prepared call ----------------------------------------------------------------- */

void symm__cuda_call_describe(const struct symm_team_channel *channel,
                              const struct symm_args *args,
                              struct symm_select_query *query)
{
    const symm_team *team = channel->team;
    size_t out = query->bytes;

    if (query->kind == SYMM_KIND_ALL_GATHER)
        out *= (size_t)team->size;
    query->cuda = true;
    query->in_multicast =
        query->in_symmetric &&
        symm__cuda_multicast_at(team, args->in_offset, query->bytes) != NULL;
    query->out_multicast = query->out_symmetric &&
                           symm__cuda_multicast_at(team, args->out_offset, out) != NULL;
    query->size = team->size;
    query->processors = team->ctx->processors;
    query->exclusive = team->ctx->exclusive && !team->inner; /* NCCL runs beside it */
    query->clusters = team->ctx->clusters;
    if (team->inner && symm__engine_fits_beside(team->ctx))
        query->processors -= team->ctx->engine->ops->grid;
    query->scratch = team->cuda->scratch[channel->index];
}

static void fill_args(const struct symm_team_channel *channel,
                      const struct symm_prepared_call *prepared,
                      const struct symm_select_query *query,
                      struct symm_cuda_args *args)
{
    const symm_team *team = channel->team;
    const struct symm_args *from = &prepared->args;

    *args = (struct symm_cuda_args){
        .team = team->device,
        .scratch = team->cuda->scratch[channel->index],
        .in = from->in,
        .out = from->out,
        .in_offset = from->in_offset,
        .out_offset = from->out_offset,
        .in_step = (int64_t)from->in_step,
        .count = from->count,
        .bytes = from->bytes,
        .done = symm__cuda_channel_done(channel),
        .multicast = team->cuda->multicast.view - team->cuda->multicast.begin,
        .tag = from->site.tag,
        .channel = (uint32_t)channel->index,
        .flags = prepared->planned ? from->barriers
                                   : SYMM_CUDA_ENTRY_BARRIER | SYMM_CUDA_EXIT_BARRIER,
        .kind = (int32_t)query->kind,
        .dtype = (int32_t)query->dtype,
        .op = (int32_t)query->op,
        .root = from->root,
        .peer = -1,
        .signal = -1,
        .pointers = prepared->pointers,
    };
}

/* The tag of a call whose grid the budget has cut: members with another cut see a mismatch. */
static uint32_t cut_tag(uint32_t tag, uint32_t blocks)
{
    tag ^= blocks * 0x9e3779b1u;
    return tag ? tag : 1;
}

/* Kernel and shape of at most `blocks` blocks; 0: as many as it would have alone. */
static symm_status take_shape(struct symm_team_channel *channel,
                              const struct symm_prepared_call *prepared,
                              struct symm_cuda_entry *entry, uint32_t blocks)
{
    symm_ctx *ctx = channel->team->ctx;
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    struct symm_site site = prepared->args.site;
    void *function = NULL;
    symm_status status;

    entry->ask.blocks = blocks;
    if (!symm__cuda_kernel_find(&entry->ask, &kernel, &shape))
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "%s of %llu bytes of %s over %d ranks: the cuda backend has no "
            "kernel for %s",
            symm__kind_name(entry->ask.kind), (unsigned long long)entry->ask.bytes,
            symm_dtype_name(entry->ask.dtype), entry->ask.size,
            symm_algorithm_name(entry->ask.algorithm));
    status = symm__cuda_function(ctx, &kernel, &function);
    if (status != SYMM_OK)
        return status;
    if (blocks > 0)
        site.tag = cut_tag(site.tag, blocks);
    entry->early = entry->ask.exclusive ||
                   symm__cuda_shape_early(&shape, (uint32_t)ctx->processors);
    entry->args.tag = site.tag;
    entry->function = function;
    entry->blocks = shape.blocks;
    entry->threads = shape.threads;
    entry->cluster = shape.cluster;
    entry->each = shape.each;
    entry->cut = blocks;
    symm__cuda_site_publish(ctx->launcher, &site);
    return SYMM_OK;
}

symm_status symm__cuda_prepare(struct symm_team_channel *channel,
                               const struct symm_prepared_call *prepared, size_t index,
                               const struct symm_select_query *query)
{
    struct symm_cuda_entry entry;
    symm_status status;

    if (!channel->launches)
        channel->launches = calloc(SYMM_ENTRIES, sizeof(*channel->launches));
    if (!channel->launches)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a channel's launches");
    fill_args(channel, prepared, query, &entry.args);
    entry.ask = symm__cuda_ask(query, prepared->algorithm);
    entry.ask.by_pointer = prepared->pointers != NULL;
    if (prepared->part > 0) {
        symm__cuda_norm_part(&prepared->args, 0, prepared->part, &entry.args);
        entry.ask.rows = prepared->part;
        entry.ask.bytes = entry.args.bytes;
    }
    status = take_shape(channel, prepared, &entry, 0);
    if (status != SYMM_OK)
        return status;
    entry.wish = entry.blocks;
    __atomic_store_n(&channel->team->cuda->used, 1, __ATOMIC_RELAXED);
    channel->launches[index] = entry;
    return SYMM_OK;
}

/* ---- Launch -------------------------------------------------------------------------- */

/* Enters the rank's own context if the result shows that another one is current. */
static bool try_own(struct symm_cuda_launcher *launcher, CUresult result,
                    struct symm_cuda_scope *scope)
{
    return (result == CUDA_ERROR_INVALID_CONTEXT ||
            result == CUDA_ERROR_INVALID_HANDLE ||
            result == CUDA_ERROR_CONTEXT_IS_DESTROYED) &&
           symm__cuda_enter(launcher->backend, scope) == SYMM_OK;
}

static CUresult stream_call(const struct symm_cuda_driver *driver,
                            enum symm_cuda_stream_call call, CUstream stream,
                            void *object)
{
    switch (call) {
    case SYMM_CUDA_RECORD:
        return driver->cuEventRecord(object, stream);
    case SYMM_CUDA_AWAIT:
        return driver->cuStreamWaitEvent(stream, object, 0);
    case SYMM_CUDA_CAPTURE:
        return driver->cuStreamIsCapturing(stream, object);
    case SYMM_CUDA_ID:
        break;
    }
    return driver->cuStreamGetId(stream, object);
}

CUresult symm__cuda_on_stream(struct symm_cuda_launcher *launcher,
                              enum symm_cuda_stream_call call, CUstream stream,
                              void *object)
{
    CUresult result = stream ? stream_call(launcher->driver, call, stream, object)
                             : CUDA_ERROR_INVALID_CONTEXT;
    struct symm_cuda_scope scope;

    if (try_own(launcher, result, &scope)) {
        result = stream_call(launcher->driver, call, stream, object);
        symm__cuda_leave(&scope);
    }
    return result;
}

/*
 * Whether the kernel may become resident before the kernel in front of it has ended. A kernel in
 * front that triggers at once may be waiting for a peer: a large kernel after it would occupy
 * room that the peer's kernels, or this rank's on other streams, need. What has no claim in the
 * budget may do so on any number of streams: it has one block. Other operations of the stream are
 * not known here: they trigger nothing, unless the user made them so. Only a kernel right after an
 * early one keeps SYMM_CUDA_RELAY. It triggers while that one waits, so the kernel after it may not
 * be large either.
 */
static bool may_depend(struct symm_cuda_follow *follow, struct symm_cuda_shape shape,
                       struct symm_cuda_args *args)
{
    const symm_ctx *ctx = follow->launcher->ctx;
    const uint32_t most =
        follow->claimed || ctx->exclusive ? (uint32_t)ctx->processors / 4 : 1;
    const enum symm_cuda_front front = follow->front;
    const bool early = args->flags & SYMM_CUDA_EARLY;
    const bool narrow = early || shape.blocks <= most;
    const bool depends =
        follow->launcher->dependent && (narrow || front == SYMM_CUDA_FRONT_ENDS);

    symm__cuda_follow_learn(follow, narrow);
    if (front != SYMM_CUDA_FRONT_EARLY || !depends)
        args->flags &= ~SYMM_CUDA_RELAY;
    follow->front = early                           ? SYMM_CUDA_FRONT_EARLY
                    : args->flags & SYMM_CUDA_RELAY ? SYMM_CUDA_FRONT_RELAYS
                                                    : SYMM_CUDA_FRONT_ENDS;
    return depends;
}

/* Their number. */
static unsigned take_attributes(struct symm_cuda_shape shape, bool depends,
                                CUlaunchAttribute *attributes)
{
    unsigned count = 0;

    if (depends)
        attributes[count++] = (CUlaunchAttribute){
            .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            .value.programmaticStreamSerializationAllowed = 1};
    if (shape.cluster > 0)
        attributes[count++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                .value.clusterDim = {1u << shape.cluster, 1, 1}};
    return count;
}

symm_status symm__cuda_start(struct symm_cuda_follow *follow, CUfunction function,
                             struct symm_cuda_shape shape, struct symm_cuda_args *args,
                             CUstream stream, const char *name)
{
    struct symm_cuda_launcher *launcher = follow->launcher;
    const struct symm_cuda_driver *driver = launcher->driver;
    const bool depends = may_depend(follow, shape, args);
    void *parameters[] = {args};
    CUlaunchAttribute attributes[2];
    const CUlaunchConfig config = {.gridDimX = shape.blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = shape.threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = attributes,
                                   .numAttrs =
                                       take_attributes(shape, depends, attributes)};
    struct symm_cuda_scope scope;
    CUresult result;
    char at[48];

    args->cluster = shape.cluster;
    args->each = shape.each;
    args->flags &= ~SYMM_CUDA_DEPENDENT;
    if (depends)
        args->flags |= SYMM_CUDA_DEPENDENT;
    result = driver->cuLaunchKernelEx(&config, function, parameters, NULL);
    if (__builtin_expect(result == CUDA_SUCCESS, 1))
        return SYMM_OK;
    if (try_own(launcher, result, &scope)) {
        result = driver->cuLaunchKernelEx(&config, function, parameters, NULL);
        symm__cuda_leave(&scope);
    }
    return symm__cuda_check(driver, result, "cuLaunchKernelEx",
                            "launching %s with %u blocks of %u threads on %s", name,
                            shape.blocks, shape.threads,
                            symm__cuda_stream_text(stream, at, sizeof(at)));
}

static uint64_t limit_of(const symm_ctx *ctx, double timeout)
{
    const double limit = symm__queue_limit(ctx, timeout);

    return isinf(limit) ? UINT64_MAX / 4 : symm__nanoseconds(limit);
}

/* The grid that the budget grants. Calls of a channel that leaves room to others trigger
 * no dependent kernel before all members have begun. */
static symm_status take_blocks(struct symm_team_channel *channel,
                               const struct symm_prepared_call *prepared,
                               struct symm_cuda_entry *entry)
{
    const uint32_t granted = symm__cuda_budget_acquire(channel, entry->wish);
    const uint32_t cut = granted < entry->wish ? granted : 0;
    symm_status status = SYMM_OK;

    if (__builtin_expect(entry->cut != cut, 0))
        status = take_shape(channel, prepared, entry, cut);
    entry->args.flags &= ~SYMM_CUDA_EARLY;
    if (entry->early && !symm__cuda_budget_shares(channel))
        entry->args.flags |= SYMM_CUDA_EARLY;
    return status;
}

static symm_status launch_entry(struct symm_team_channel *channel,
                                struct symm_cuda_entry *entry, enum symm_kind kind,
                                const char *site, symm_work **handle)
{
    const struct symm_cuda_shape shape = {entry->blocks, entry->threads, entry->cluster,
                                          entry->each};
    const uint32_t sequence = channel->sequence, blocks = channel->blocks;
    struct symm_cuda_work *work = NULL;
    struct symm_cuda_follow follow;
    symm_status status;

    entry->args.result = NULL;
    entry->args.sequence =
        symm__cuda_channel_launch(channel, entry->blocks, entry->args.tag);
    __atomic_store_n(&channel->team->cuda->timeout[channel->index],
                     entry->args.team.timeout, __ATOMIC_RELAXED); /* for a sentence */
    status = symm__cuda_follow_begin(channel->team, channel, channel->stream,
                                     (uint32_t)channel->index, &entry->args, &follow);
    follow.claimed = true;
    if (status == SYMM_OK && handle)
        status = symm__cuda_work_begin(channel->team, channel->stream, &work,
                                       &entry->args.result);
    if (status == SYMM_OK)
        status = symm__cuda_start(&follow, entry->function, shape, &entry->args,
                                  channel->stream, symm__kind_name(kind));
    symm__cuda_follow_end(&follow, status == SYMM_OK);
    if (status != SYMM_OK) { /* nothing was launched: peers count as many launches */
        channel->sequence = sequence;
        channel->blocks = blocks;
    }
    return work ? symm__cuda_work_end_call(work, status, handle, symm__kind_name(kind),
                                           site, channel->captured)
                : status;
}

/* Launches a fused all_reduce_norm in parts. If one fails, so do the later ones, and with them
 * the handle. */
static symm_status launch_parts(struct symm_team_channel *channel,
                                const struct symm_prepared_call *prepared,
                                struct symm_cuda_entry *entry, symm_work **handle)
{
    const size_t rows = prepared->args.norm.rows, part = prepared->part;
    symm_status status = SYMM_OK;

    for (size_t first = 0; status == SYMM_OK && first < rows; first += part) {
        const size_t left = rows - first;

        if (part < rows)
            symm__cuda_norm_part(&prepared->args, first, left < part ? left : part,
                                 &entry->args);
        status = launch_entry(channel, entry, SYMM_KIND_ALL_REDUCE_NORM,
                              prepared->args.site.name, left <= part ? handle : NULL);
        if (status != SYMM_OK && first > 0 && !channel->captured)
            status = symm__team_fail_queued(channel->team, "all_reduce_norm",
                                            prepared->args.site.name);
    }
    return status;
}

symm_status symm__cuda_launch(struct symm_team_channel *channel,
                              const struct symm_prepared_call *prepared, double timeout,
                              symm_work **handle)
{
    struct symm_cuda_entry *entry = &channel->launches[prepared - channel->prepared];
    symm_status status = take_blocks(channel, prepared, entry);

    entry->args.team.timeout = symm__nanoseconds(timeout);
    entry->args.limit = limit_of(channel->team->ctx, timeout);
    if (status == SYMM_OK)
        status =
            prepared->part > 0
                ? launch_parts(channel, prepared, entry, handle)
                : launch_entry(channel, entry, (enum symm_kind)prepared->args.site.kind,
                               prepared->args.site.name, handle);
    if (__builtin_expect(status != SYMM_OK, 0))
        symm__cuda_budget_return(channel, entry->wish);
    return status;
}

void symm__cuda_explain(const struct symm_team_channel *channel, char *text,
                        size_t bytes)
{
    static const char *const cluster_words[1 + SYMM_CLUSTER_MOST] = {
        "", " in clusters of 2", " in clusters of 4"};
    const symm_ctx *ctx = channel->team->ctx;
    const struct symm_cuda_entry *entry =
        channel->launches ? &channel->launches[channel->last - channel->prepared]
                          : NULL;
    const uint64_t timeout = __atomic_load_n(
        &channel->team->cuda->timeout[channel->index], __ATOMIC_RELAXED);
    const double limit = symm__queue_limit(ctx, 1e-9 * (double)timeout);
    const char *little = "", *why;
    const int queues = symm__cuda_queues(ctx, &why);
    char grid[112] = "", cut[96] = "", wait[24] = "ever", stream[48];

    if (entry && entry->function && channel->last->algorithm != SYMM_ALGORITHM_ENGINE)
        snprintf(grid, sizeof(grid),
                 ", %u blocks of %u threads%s on %d multiprocessors", entry->blocks,
                 entry->threads, cluster_words[entry->cluster], ctx->processors);
    if (*grid && symm__cuda_tier_of(channel->index) >
                     symm__cuda_tier_for(entry->ask.bytes, entry->ask.size))
        little = " (little scratch for so many bytes; channels 1 and 2 have most)";
    if (*grid && entry->cut)
        snprintf(cut, sizeof(cut),
                 " (%u wanted; calls of other streams may take the rest of them)",
                 entry->wish);
    if (!isinf(limit))
        snprintf(wait, sizeof(wait), "%g s", limit);
    snprintf(
        text, bytes,
        "; channel %d%s, %s%s%s; %d hardware queues "
        "(CUDA_DEVICE_MAX_CONNECTIONS%s); a peer that has queued the call is waited "
        "for %s (SYMM_QUEUE_TIMEOUT)",
        channel->index + 1, little,
        symm__cuda_stream_text(channel->stream, stream, sizeof(stream)), grid, cut,
        queues, why, wait);
}

/* A handle of several launches has no result word: the team's state shows the result. */
symm_status symm__cuda_handle(struct symm_team_channel *channel, symm_work **made)
{
    struct symm_cuda_work *work;
    symm_status status =
        symm__cuda_work_begin(channel->team, channel->stream, &work, NULL);

    if (status != SYMM_OK)
        return status;
    return symm__cuda_work_end(work, SYMM_OK, made);
}

symm_status symm__cuda_team_device(symm_team *team, const void **device_team)
{
    __atomic_store_n(&team->cuda->used, 1, __ATOMIC_RELAXED);
    *device_team = team->cuda->device;
    return SYMM_OK;
}
