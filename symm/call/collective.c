/* SPDX-License-Identifier: MIT */
/*
 * collective.c - the public collectives: check, choose, launch.
 *
 * A call that was checked is kept in its channel's cache under its arguments; the same call
 * again costs a comparison. The cached entry holds everything the kernel needs, so on the
 * NULL stream the launch path allocates nothing, makes no system call and takes no lock. On
 * another stream it queues a copy of the entry for the worker. A device backend
 * (core/device_ops.h) has the same front end and launches the entry on the stream.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/collective.h"
#include "call/hierarchical.h"
#include "call/hierarchical_steps.h"
#include "call/norm.h"
#include "call/prepare.h"
#include "call/seen.h"
#include "call/work.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "core/team.h"
#include "engine/runtime.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "select/select.h"
#include "util/status.h"

/* A call on its way through a stream's queue. */
struct queued {
    struct symm_task task;
    struct symm_team_channel *channel;
    symm_work *work;
    uint64_t seen; /* the call's number */
    double timeout;
    struct symm_prepared_call entry; /* a copy: the cache may replace it */
};

static const symm_call no_call = {.size = sizeof(symm_call)};

static inline bool is_same_choice(const struct symm_prepared_call *entry,
                                  const symm_call *call)
{
    if (__builtin_expect(call->algorithm == NULL, 1))
        return !entry->forced;
    return entry->forced &&
           strcmp(call->algorithm, symm_algorithm_name(entry->algorithm)) == 0;
}

static inline bool is_cached(const struct symm_prepared_call *entry,
                             const symm_ctx *ctx, const struct symm_request *rq,
                             const symm_call *call)
{
    const struct symm_args *args = &entry->args;

    return entry->generation == __atomic_load_n(&ctx->generation, __ATOMIC_RELAXED) &&
           args->in == rq->in && entry->out == rq->out && args->count == rq->count &&
           args->site.kind == (uint8_t)rq->kind &&
           args->site.dtype == (uint8_t)rq->dtype && args->site.op == (uint8_t)rq->op &&
           args->root == rq->root && entry->numerics == call->numerics &&
           (!rq->norm || memcmp(&args->norm, rq->norm, sizeof(args->norm)) == 0) &&
           is_same_choice(entry, call) &&
           (call->site ? strcmp(call->site, args->site.name) == 0
                       : args->site.name[0] == '\0');
}

static inline struct symm_prepared_call *cache_slot(struct symm_team_channel *channel,
                                                    const struct symm_request *rq,
                                                    const symm_call *call)
{
    uintptr_t hash = (uintptr_t)rq->in ^ (uintptr_t)rq->out >> 3 ^
                     (uintptr_t)call->site * 31 ^ rq->count * 7 ^
                     (uintptr_t)rq->kind * 63;

    if (rq->norm) /* calls of one site may differ in weight and residual alone */
        hash ^= (uintptr_t)rq->norm->weight >> 5 ^ (uintptr_t)rq->norm->bias >> 7 ^
                (uintptr_t)rq->norm->residual_in >> 6;
    return &channel->prepared[(hash ^ hash >> 8 ^ hash >> 16) & (SYMM_SITES - 1)];
}

/* Runs the call on this thread, which is the stream's. */
static symm_status run_kernel(struct symm_team_channel *channel,
                              const struct symm_prepared_call *entry, double timeout)
{
    symm_status status;

    channel->timeout = timeout;
    channel->waits_slowly = false;
    status = entry->kernel(&channel->state, &entry->args);
    if (__builtin_expect(entry->planned != NULL, 0) && status == SYMM_OK)
        symm__plan_fill(entry->planned);
    return status;
}

static void run_queued(struct symm_task *task)
{
    struct queued *queued = (struct queued *)task;
    struct symm_team_channel *channel = queued->channel;
    symm_status status = symm__team_failed(channel->team);

    symm__work_begin(queued->work, queued->timeout);
    symm__sight_run(channel->team->ctx->sight, queued->seen, channel->state.epoch + 1);
    if (status == SYMM_OK)
        status = run_kernel(channel, &queued->entry, queued->timeout);
    symm__seen_end(channel->team, queued->seen, status, SYMM_SIGHT_DONE);
    symm__work_complete(queued->work, status);
    free(queued);
}

static symm_status enqueue(struct symm_team_channel *channel,
                           struct symm_prepared_call *entry, double timeout,
                           symm_work **work)
{
    symm_ctx *ctx = channel->team->ctx;
    struct queued *queued = malloc(sizeof(*queued));

    if (!queued)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to queue a call");
    *queued = (struct queued){.task.run = run_queued,
                              .channel = channel,
                              .timeout = timeout,
                              .entry = *entry};
    if (work) {
        symm_status status = symm__work_create(ctx, true, &queued->work);

        if (status != SYMM_OK) {
            free(queued);
            return status;
        }
    }
    if (channel->team->hierarchy)
        queued->entry.args.out_offset = symm__hierarchical_ticket(channel->team);
    if (work) /* before the push: afterwards the worker may have released it */
        *work = queued->work;
    queued->seen = symm__seen_collective(channel, entry, SYMM_SIGHT_QUEUED);
    ctx->ops->stream_push(ctx->backend, channel->stream, &queued->task);
    return SYMM_OK;
}

/* Prepares the call in `entry`, unless the entry holds it already. */
static inline symm_status fill_entry(struct symm_team_channel *channel,
                                     const struct symm_request *rq,
                                     const symm_call *call,
                                     const struct symm_checked *checked,
                                     struct symm_prepared_call *entry)
{
    if (__builtin_expect(!is_cached(entry, channel->team->ctx, rq, call), 0)) {
        struct symm_prepared_call fresh;
        symm_status status = symm__call_prepare(
            channel, rq, call, checked, (size_t)(entry - channel->prepared), &fresh);

        if (status != SYMM_OK)
            return status;
        *entry = fresh;
    }
    return SYMM_OK;
}

static inline symm_status find_entry(struct symm_team_channel *channel,
                                     const struct symm_request *rq,
                                     const symm_call *call,
                                     const struct symm_checked *checked,
                                     struct symm_prepared_call **found)
{
    /* Between capture_begin and capture_end each captured call is prepared anew. */
    if (__builtin_expect(channel->team->capturing && channel->captured, 0)) {
        *found = &channel->prepared[SYMM_SITES + 1];
        (*found)->generation = 0;
    } else {
        *found = cache_slot(channel, rq, call);
    }
    return fill_entry(channel, rq, call, checked, *found);
}

/* Launches a barrier that the plan keeps and the kernel does not have, on the same channel. Its
 * entry is not in the cache: the planned call's entry is not changed. */
static symm_status launch_barrier(struct symm_team_channel *channel, double timeout)
{
    const struct symm_request rq = {.kind = SYMM_KIND_BARRIER, .dtype = SYMM_UINT8};
    struct symm_prepared_call *entry = &channel->prepared[SYMM_SITES];
    symm_status status = fill_entry(channel, &rq, &no_call, NULL, entry);

    if (status != SYMM_OK)
        return status;
    return channel->team->device_ops->launch(channel, entry, timeout, NULL);
}

static symm_status launch_entry(struct symm_team_channel *channel,
                                const struct symm_prepared_call *entry, double timeout,
                                symm_work **work)
{
    symm_team *team = channel->team;
    struct symm_engine_request request;
    struct symm_engine_call call;
    symm_status status;

    if (__builtin_expect(team->hierarchy != NULL, 0))
        return symm__hierarchical_launch(channel, entry, timeout, work);
    if (__builtin_expect(entry->algorithm != SYMM_ALGORITHM_ENGINE, 1))
        return team->device_ops->launch(channel, entry, timeout, work);
    status = team->device_ops->launch(channel, entry, timeout, NULL); /* announces it */
    if (status != SYMM_OK)
        return status;
    request = symm__engine_request(&entry->args);
    call = (struct symm_engine_call){.team = team,
                                     .comm = team->engine->comm,
                                     .requests = &request,
                                     .count = 1,
                                     .timeout = timeout,
                                     .what = symm__kind_name(request.kind),
                                     .site = entry->args.site.name};
    return team->device_ops->engine(&call, channel->stream, work);
}

/* Whether the rest of an all_reduce_norm, after the sum, is a launch of its own. */
static bool rest_of_norm(const struct symm_prepared_call *entry)
{
    return entry->args.norm.rows > 0 && entry->part == 0;
}

static symm_status counted(symm_status status, int *queued)
{
    *queued += status == SYMM_OK;
    return status;
}

/* Launches the call with the barriers and fills of its plan around it, and the rest of an
 * all_reduce_norm. *queued: how many of these launches were made. */
static symm_status launch_parts(struct symm_team_channel *channel,
                                const struct symm_prepared_call *entry, double timeout,
                                int *queued)
{
    const struct symm_device_ops *device = channel->team->device_ops;
    const struct symm_plan_site *planned = entry->planned;
    symm_status status = SYMM_OK;
    size_t bytes;
    void *at;

    if (entry->extra & SYMM_BARRIER_ENTRY)
        status = counted(launch_barrier(channel, timeout), queued);
    if (status == SYMM_OK && !entry->left_out)
        status = counted(launch_entry(channel, entry, timeout, NULL), queued);
    if (status == SYMM_OK && rest_of_norm(entry))
        status = counted(device->norm_rest(channel, entry), queued);
    if (status == SYMM_OK && entry->extra & SYMM_BARRIER_EXIT)
        status = counted(launch_barrier(channel, timeout), queued);
    for (int i = 0;
         status == SYMM_OK && planned && symm__plan_freed(planned, i, &at, &bytes); i++)
        status = device->fill(channel->team->ctx, channel->stream, at, SYMM_PLAN_FREED,
                              bytes);
    return status;
}

/* *work is complete after the last launch. */
static symm_status launch_around(struct symm_team_channel *channel,
                                 const struct symm_prepared_call *entry, double timeout,
                                 symm_work **work)
{
    symm_team *team = channel->team;
    int queued = 0;
    symm_status status = launch_parts(channel, entry, timeout, &queued);

    if (status == SYMM_OK && work)
        status = team->device_ops->handle(channel, work);
    if (status != SYMM_OK && queued > 0 && !channel->captured && !team->far)
        return symm__team_fail_queued(
            team, symm__kind_name((enum symm_kind)entry->args.site.kind),
            entry->args.site.name);
    return status;
}

static symm_status launch_device(struct symm_team_channel *channel,
                                 const struct symm_prepared_call *entry, double timeout,
                                 symm_work **work)
{
    size_t bytes;
    void *at;

    if (entry->extra || entry->left_out || rest_of_norm(entry) ||
        (entry->planned && symm__plan_freed(entry->planned, 0, &at, &bytes)))
        return launch_around(channel, entry, timeout, work);
    return launch_entry(channel, entry, timeout, work);
}

/* On a device a call is over, for tools, when it has been launched or captured. */
static symm_status launch_seen(struct symm_team_channel *channel,
                               struct symm_prepared_call *entry, double timeout,
                               symm_work **work)
{
    const uint64_t seen = symm__seen_collective(channel, entry, SYMM_SIGHT_RUNNING);
    symm_status status = launch_device(channel, entry, timeout, work);

    symm__seen_end(channel->team, seen, status,
                   channel->captured ? SYMM_SIGHT_CAPTURED : SYMM_SIGHT_LAUNCHED);
    return status;
}

static symm_status launch(struct symm_team_channel *channel,
                          const struct symm_request *rq, const symm_call *call,
                          const struct symm_checked *checked, symm_work **work)
{
    symm_team *team = channel->team;
    struct symm_prepared_call *entry;
    double timeout = call->timeout > 0 ? call->timeout : team->ctx->timeout;
    symm_work *inline_work = NULL;
    uint64_t seen;
    symm_status status = find_entry(channel, rq, call, checked, &entry);

    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    channel->last = entry; /* for symm_explain */
    __atomic_store_n(&team->last_channel, channel->index, __ATOMIC_RELAXED);
    __atomic_store_n(&team->last_path, NULL, __ATOMIC_RELAXED);
    if (__builtin_expect(entry->planned != NULL, 0)) {
        status = symm__plan_expect(entry->planned);
        if (status != SYMM_OK)
            return status;
        symm__plan_advance(entry->planned);
    }
    if (team->device_ops)
        return launch_seen(channel, entry, timeout, work);
    if (channel->index != 0)
        return enqueue(channel, entry, timeout, work);
    if (work) { /* before the launch: afterwards the call could no longer be refused */
        status = symm__work_create(team->ctx, true, &inline_work);
        if (status != SYMM_OK)
            return status;
    }
    seen = symm__seen_collective(channel, entry, SYMM_SIGHT_RUNNING);
    status = run_kernel(channel, entry, timeout);
    symm__seen_end(team, seen, status, SYMM_SIGHT_DONE);
    symm__work_complete(inline_work, status);
    if (status != SYMM_OK)
        symm_work_release(inline_work);
    else if (work)
        *work = inline_work;
    return status;
}

symm_status symm__collective_run(struct symm_team_channel *channel,
                                 const struct symm_engine_request *step,
                                 const char *site, double timeout)
{
    const struct symm_request rq = {step->kind,  step->in, step->out,  step->count,
                                    step->dtype, step->op, step->root, NULL};
    const symm_call call = {.size = sizeof(call), .site = *site ? site : NULL};
    struct symm_prepared_call *entry;
    symm_status status = symm__team_failed(channel->team);

    if (status == SYMM_OK)
        status = symm__channel_cache(channel);
    if (status == SYMM_OK)
        status = find_entry(channel, &rq, &call, NULL, &entry);
    if (status != SYMM_OK)
        return status;
    return channel->team->device_ops
               ? channel->team->device_ops->launch(channel, entry, timeout, NULL)
               : run_kernel(channel, entry, timeout);
}

/* ---- Channels of streams on a device -------------------------------------------------- */

/* A channel for a stream that has none. Fills *checked; unlocks team->channels on error. */
static symm_status claim_channel(symm_team *team, const struct symm_request *rq,
                                 const symm_call *call, struct symm_checked *checked,
                                 struct symm_team_channel **channel)
{
    void *stream = call->stream;
    symm_status status = symm__request_check(team, rq, checked);

    if (status == SYMM_OK)
        status = team->device_ops->stream_check(team->ctx, &stream);
    if (status == SYMM_OK)
        status = team->device_ops->channel_claim(
            team, stream, symm__request_tag(team, rq, call, checked), checked->bytes,
            call->channel, channel);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->channels);
    return status;
}

/* A channel with more scratch for a call that needs it, if one is idle; as claim_channel. */
static symm_status grow_channel(symm_team *team, const struct symm_request *rq,
                                struct symm_team_channel **channel)
{
    const size_t element = symm_dtype_size(rq->dtype);
    struct symm_team_channel *current = *channel;
    size_t bytes;
    symm_status status;

    if (current->index < SYMM_LARGE_CHANNELS || rq->kind == SYMM_KIND_BARRIER ||
        __builtin_mul_overflow(rq->count, element, &bytes)) /* checked later */
        return SYMM_OK;
    status = team->device_ops->channel_grow(current, bytes, channel);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->channels);
    return status;
}

/* ---- Records ------------------------------------------------------------------------ */

/* One event has at most one array that is read and one that is written, so a call makes as many
 * events as name all of its arrays; only the first one has the count. */
static void record_norm(const struct symm_record_call *made, const symm_norm *norm,
                        symm_work *work)
{
    struct symm_norm_array in[SYMM_NORM_SIDE], out[SYMM_NORM_SIDE];
    const int reads = symm__norm_arrays(norm, false, in);
    const int writes = symm__norm_arrays(norm, true, out);
    struct symm_record_call row[SYMM_NORM_SIDE];
    struct symm_record_norm parts[SYMM_NORM_SIDE];
    int count = 0;

    for (int i = 0; i == 0 || i < reads || i < writes; i++) {
        parts[i] = (struct symm_record_norm){
            .part = i,
            .hidden = norm->hidden,
            .quant = norm->quant,
            .constant = norm->flags & SYMM_NORM_CONSTANT,
            .reads = i < reads ? in[i].name : SYMM_RECORD_ARRAYS,
            .writes = i < writes ? out[i].name : SYMM_RECORD_ARRAYS};
        row[i] = *made;
        row[i].norm = &parts[i];
        row[i].in = i < reads ? in[i].at : NULL;
        row[i].in_bytes = i < reads ? in[i].bytes : 0;
        row[i].out = i < writes ? out[i].at : NULL;
        row[i].out_bytes = i < writes ? out[i].bytes : 0;
        row[i].count = i == 0 ? norm->rows * norm->hidden : 0;
        count++;
    }
    symm__record_calls(row, count, work);
}

static void record(const struct symm_team_channel *channel,
                   const struct symm_request *rq, const symm_call *call,
                   symm_work *work)
{
    static const symm_record_kind kinds[] = {
        [SYMM_KIND_ALL_REDUCE] = SYMM_RECORD_ALL_REDUCE,
        [SYMM_KIND_REDUCE_SCATTER] = SYMM_RECORD_REDUCE_SCATTER,
        [SYMM_KIND_ALL_GATHER] = SYMM_RECORD_ALL_GATHER,
        [SYMM_KIND_BROADCAST] = SYMM_RECORD_BROADCAST,
        [SYMM_KIND_ALL_TO_ALL] = SYMM_RECORD_ALL_TO_ALL,
        [SYMM_KIND_BARRIER] = SYMM_RECORD_BARRIER,
        [SYMM_KIND_ALL_REDUCE_NORM] = SYMM_RECORD_ALL_REDUCE_NORM};
    const symm_team *team = channel->team;
    const bool moves = rq->kind != SYMM_KIND_BARRIER;
    const size_t block = rq->count * symm_dtype_size(rq->dtype);
    const struct symm_record_call made = {
        .kind = kinds[rq->kind],
        .team = team,
        .in = symm__request_reads(team, rq) ? rq->in : NULL,
        .out = moves ? rq->out : NULL,
        .in_bytes = block * symm__request_in_blocks(rq, team->size),
        .out_bytes = block * symm__request_out_blocks(rq, team->size),
        .count = rq->count,
        .dtype = rq->dtype,
        .op = rq->op,
        .peer = rq->root,
        .site = call->site,
        .algorithm = call->algorithm,
        .stream = channel->stream};

    if (rq->norm)
        record_norm(&made, rq->norm, work);
    else
        symm__record_calls(&made, 1, work);
}

symm_status symm__collective(symm_team *team, const struct symm_request *rq,
                             const symm_call *given, symm_work **work)
{
    const symm_call *call = given ? given : &no_call;
    struct symm_team_channel *channel;
    struct symm_checked first, *checked = NULL;
    symm_call copy;
    symm_status status = symm__team_check(team);

    if (__builtin_expect(status != SYMM_OK, 0)) /* set again, to name the function */
        return symm__team_check_in(team, symm__kind_name(rq->kind));
    if (__builtin_expect(call->size != sizeof(*call) || !(call->timeout >= 0) ||
                             (unsigned)call->channel > SYMM_CHANNELS,
                         0)) {
        status = symm__call_copy(given, &copy);
        if (status != SYMM_OK)
            return status;
        call = &copy;
    }
    if (__builtin_expect(team->hierarchy != NULL, 0) && team->device_ops)
        status = symm__hierarchical_open(team, rq, call);
    if (status == SYMM_OK)
        status = symm__channel_enter(team, call->stream, &channel);
    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    if (team->device_ops && !team->far) {
        checked = channel ? NULL : &first;
        status = channel ? grow_channel(team, rq, &channel)
                         : claim_channel(team, rq, call, &first, &channel);
        if (status != SYMM_OK)
            return status;
    }
    status = launch(channel, rq, call, checked, work);
    if (symm__is_recorded(team->ctx) && status == SYMM_OK)
        record(channel, rq, call, work ? *work : NULL);
    symm__channel_leave(channel);
    return status;
}

symm_status symm_all_reduce(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, symm_op op, const symm_call *call,
                            symm_work **work)
{
    const struct symm_request rq = {
        SYMM_KIND_ALL_REDUCE, in, out, count, dtype, op, 0, NULL};

    return symm__collective(team, &rq, call, work);
}

symm_status symm_reduce_scatter(symm_team *team, const void *in, void *out,
                                size_t count, symm_dtype dtype, symm_op op,
                                const symm_call *call, symm_work **work)
{
    const struct symm_request rq = {
        SYMM_KIND_REDUCE_SCATTER, in, out, count, dtype, op, 0, NULL};

    return symm__collective(team, &rq, call, work);
}

symm_status symm_all_gather(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, const symm_call *call, symm_work **work)
{
    const struct symm_request rq = {
        SYMM_KIND_ALL_GATHER, in, out, count, dtype, SYMM_SUM, 0, NULL};

    return symm__collective(team, &rq, call, work);
}

symm_status symm_broadcast(symm_team *team, const void *in, void *out, size_t count,
                           symm_dtype dtype, int root, const symm_call *call,
                           symm_work **work)
{
    const struct symm_request rq = {
        SYMM_KIND_BROADCAST, in, out, count, dtype, SYMM_SUM, root, NULL};

    if (team && (root < 0 || root >= team->size))
        return symm__fail(SYMM_ERR_INVALID,
                          "broadcast: root %d; the team has ranks 0 to %d", root,
                          team->size - 1);
    return symm__collective(team, &rq, call, work);
}

symm_status symm_all_to_all(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, const symm_call *call, symm_work **work)
{
    const struct symm_request rq = {
        SYMM_KIND_ALL_TO_ALL, in, out, count, dtype, SYMM_SUM, 0, NULL};

    return symm__collective(team, &rq, call, work);
}

symm_status symm_barrier(symm_team *team, const symm_call *call, symm_work **work)
{
    const struct symm_request rq = {.kind = SYMM_KIND_BARRIER, .dtype = SYMM_UINT8};

    return symm__collective(team, &rq, call, work);
}
