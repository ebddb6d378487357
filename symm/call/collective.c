/* SPDX-License-Identifier: MIT */
/*
 * collective.c - the public collectives: check, choose, launch.
 *
 * A call that was checked is kept in its lane's cache under its arguments; the same call
 * again costs a comparison. The cached entry holds everything the kernel needs, so on the
 * NULL stream the launch path allocates nothing, makes no system call and takes no lock. On
 * another stream it queues a copy of the entry for the worker. A device backend
 * (core/device_ops.h) has the same front end and launches the entry on the stream.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/hierarchical.h"
#include "call/work.h"
#include "core/context.h"
#include "core/device_ops.h"
#include "engine/runtime.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "select/select.h"
#include "util/status.h"

/* A call as the caller made it. */
struct request {
    enum symm_kind kind;
    const void *in;
    void *out;
    size_t count;
    symm_dtype dtype;
    symm_op op;
    int root;
};

/* A call on its way through a stream's queue. */
struct queued {
    struct symm_task task;
    struct symm_lane *lane;
    symm_work *work;
    symm_kernel_fn kernel;
    const struct symm_plan_site *planned; /* NULL: none */
    double deadline;
    struct symm_args args;
};

#define PLANNED                                                                        \
    4u /* in a tag, beside SYMM_BARRIER_...: a plan has placed the barriers */

static const symm_call no_call = {.size = sizeof(symm_call)};

/* How many elements of in and out a rank touches, in units of count. */
static size_t in_blocks(const struct request *rq, int size)
{
    return rq->kind == SYMM_KIND_REDUCE_SCATTER || rq->kind == SYMM_KIND_ALL_TO_ALL
               ? (size_t)size
               : 1;
}

static size_t out_blocks(const struct request *rq, int size)
{
    return rq->kind == SYMM_KIND_ALL_GATHER || rq->kind == SYMM_KIND_ALL_TO_ALL
               ? (size_t)size
               : 1;
}

static bool in_matters(const symm_team *team, const struct request *rq)
{
    return rq->kind != SYMM_KIND_BARRIER &&
           (rq->kind != SYMM_KIND_BROADCAST || team->rank == rq->root);
}

static symm_status check_pointer(const char *which, const void *ptr, size_t element,
                                 const struct request *rq)
{
    if (!ptr && rq->count > 0)
        return symm__fail(SYMM_ERR_INVALID, "%s of %zu elements: `%s` is NULL",
                          symm__kind_name(rq->kind), rq->count, which);
    if ((uintptr_t)ptr % element != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: `%s` is %p, not aligned to its element of %zu bytes",
                          symm__kind_name(rq->kind), which, ptr, element);
    return SYMM_OK;
}

static symm_status check_types(const struct request *rq)
{
    if (symm_dtype_size(rq->dtype) == 0)
        return symm__fail(SYMM_ERR_INVALID, "%s: dtype %d is unknown",
                          symm__kind_name(rq->kind), (int)rq->dtype);
    if (!symm_op_name(rq->op))
        return symm__fail(SYMM_ERR_INVALID, "%s: reduction %d is unknown",
                          symm__kind_name(rq->kind), (int)rq->op);
    return SYMM_OK;
}

static symm_status check_sizes(const symm_team *team, const struct request *rq,
                               size_t *in_bytes, size_t *out_bytes)
{
    size_t element = symm_dtype_size(rq->dtype), bytes;

    if (__builtin_mul_overflow(rq->count, element, &bytes) ||
        __builtin_mul_overflow(bytes, in_blocks(rq, team->size), in_bytes) ||
        __builtin_mul_overflow(bytes, out_blocks(rq, team->size), out_bytes) ||
        *in_bytes > PTRDIFF_MAX || *out_bytes > PTRDIFF_MAX)
        return symm__fail(
            SYMM_ERR_OVERFLOW,
            "%s of %zu elements of %s over %d ranks does not fit in memory",
            symm__kind_name(rq->kind), rq->count, symm_dtype_name(rq->dtype),
            team->size);
    return SYMM_OK;
}

static bool ranges_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* Overlap is allowed where the header says what in place means, and nowhere else. */
static symm_status check_overlap(const symm_team *team, const struct request *rq)
{
    const char *in = rq->in;
    size_t block = rq->count * symm_dtype_size(rq->dtype);
    bool fine = rq->in == rq->out;

    if (rq->kind == SYMM_KIND_ALL_GATHER)
        fine = in == (const char *)rq->out + (size_t)team->rank * block;
    else if (rq->kind == SYMM_KIND_REDUCE_SCATTER)
        fine = fine || rq->out == in + (size_t)team->rank * block;
    if (fine)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_INVALID,
        "%s: in %p and out %p overlap but are not what in place means for it",
        symm__kind_name(rq->kind), rq->in, rq->out);
}

static void site_offset(uint32_t *high, uint32_t *low, size_t offset)
{
    *high = (uint32_t)((uint64_t)offset >> 32);
    *low = (uint32_t)offset;
}

/* FNV-1a over everything the ranks must agree on; never 0, which means "no word yet". */
static uint32_t site_tag(const symm_team *team, const struct symm_site *site,
                         const char *name, uint32_t barriers)
{
    const uint8_t *bytes = (const uint8_t *)site;
    uint64_t hash = 14695981039346656037u ^ team->uid ^ (uint64_t)barriers << 32;
    uint32_t tag;

    for (size_t i = sizeof(site->tag); i < offsetof(struct symm_site, name); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    for (; name && *name; name++)
        hash = (hash ^ (uint8_t)*name) * 1099511628211u;
    tag = (uint32_t)(hash ^ hash >> 32);
    return tag ? tag : 1;
}

/* Whether an algorithm writes into every rank's output. */
static bool writes_all(enum symm_algorithm algorithm)
{
    return algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
           algorithm == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT ||
           algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT;
}

/* Whether it reads every rank's input. */
static bool reads_all(enum symm_kind kind, enum symm_algorithm algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return kind != SYMM_KIND_BROADCAST;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
        return kind == SYMM_KIND_ALL_REDUCE;
    default:
        return writes_all(algorithm);
    }
}

static void fill_site(const symm_team *team, struct symm_cached *entry,
                      const struct request *rq, const symm_call *call)
{
    struct symm_args *args = &entry->args;
    struct symm_site *site = &args->site;
    bool pulls = entry->algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL ||
                 entry->algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL;
    bool broadcast = rq->kind == SYMM_KIND_BROADCAST;

    site_offset(&site->count_high, &site->count_low, rq->count);
    site->kind = (uint8_t)rq->kind;
    site->op = (uint8_t)rq->op;
    site->dtype = (uint8_t)rq->dtype;
    site->algorithm = (uint8_t)entry->algorithm;
    site->root = rq->root;
    site_offset(&site->in_high, &site->in_low,
                reads_all(rq->kind, entry->algorithm)
                    ? args->in_offset - (size_t)team->rank * args->in_step
                    : SIZE_MAX);
    /* in_step: an in-place gather reads peers at other places than one that is not */
    site_offset(&site->out_high, &site->out_low,
                writes_all(entry->algorithm) || (pulls && (broadcast || args->in_step))
                    ? args->out_offset
                    : SIZE_MAX);
    symm__site_name_set(site->name, call->site);
    site->tag =
        site_tag(team, site, call->site, entry->planned ? PLANNED | args->barriers : 0);
}

/* What check_request finds out of a call. */
struct checked {
    size_t bytes; /* of one rank's block */
    bool overlap, in_symmetric, out_symmetric;
    size_t in_offset, out_offset; /* in the heap, where they are symmetric */
};

/* Types, sizes, pointers, overlap; then where the pointers lie, as select.h asks. */
static symm_status check_request(symm_team *team, const struct request *rq,
                                 struct checked *checked)
{
    size_t in_bytes = 0, out_bytes = 0, element = symm_dtype_size(rq->dtype);
    bool reads = in_matters(team, rq), writes = rq->kind != SYMM_KIND_BARRIER;
    symm_status status = check_types(rq);

    if (status == SYMM_OK)
        status = check_sizes(team, rq, &in_bytes, &out_bytes);
    if (status == SYMM_OK && reads)
        status = check_pointer("in", rq->in, element, rq);
    if (status == SYMM_OK && writes)
        status = check_pointer("out", rq->out, element, rq);
    if (status == SYMM_OK && reads)
        status = symm__team_extent(team->ctx, symm__kind_name(rq->kind), "in", rq->in,
                                   in_bytes);
    if (status == SYMM_OK && writes)
        status = symm__team_extent(team->ctx, symm__kind_name(rq->kind), "out", rq->out,
                                   out_bytes);
    if (status != SYMM_OK)
        return status;
    *checked = (struct checked){.bytes = rq->count * element};
    checked->overlap = reads && ranges_overlap(rq->in, in_bytes, rq->out, out_bytes);
    if (checked->overlap)
        status = check_overlap(team, rq);
    checked->in_symmetric =
        reads && symm__team_symmetric(team, rq->in, in_bytes, &checked->in_offset);
    checked->out_symmetric =
        writes && symm__team_symmetric(team, rq->out, out_bytes, &checked->out_offset);
    if (team->calls && status == SYMM_OK && reads && !checked->in_symmetric)
        status =
            team->calls->reach(team, symm__kind_name(rq->kind), "in", rq->in, in_bytes);
    if (team->calls && status == SYMM_OK && writes && !checked->out_symmetric)
        status = team->calls->reach(team, symm__kind_name(rq->kind), "out", rq->out,
                                    out_bytes);
    return status;
}

/* ---- Plans ---------------------------------------------------------------------------- */

/* The barrier at a put's site is the put's entry barrier, a collective is the site's op. */
static symm_status find_planned(const symm_team *team, const struct request *rq,
                                const symm_call *call, struct symm_cached *entry)
{
    const struct symm_plan_site *planned = symm__plan_find(team, call->site);
    symm_status status = SYMM_OK;

    if (rq->kind == SYMM_KIND_BARRIER) {
        entry->left_out = planned && planned->op->algorithm == SYMM_ALGORITHM_PUT &&
                          !planned->op->entry_barrier;
        return SYMM_OK;
    }
    if (!planned) {
        status = symm__plan_refuse(team, symm__kind_name(rq->kind), call->site,
                                   in_matters(team, rq) ? rq->in : NULL);
        return status == SYMM_OK ? symm__plan_refuse(team, symm__kind_name(rq->kind),
                                                     call->site, rq->out)
                                 : status;
    }
    if (planned->op->algorithm == SYMM_ALGORITHM_PUT)
        return symm__fail(SYMM_ERR_INVALID,
                          "plan '%s' has a put at '%s', and the call is %s; give each "
                          "call site a name of its own",
                          planned->plan->path, call->site, symm__kind_name(rq->kind));
    if (call->algorithm &&
        strcmp(call->algorithm, symm_algorithm_name(planned->op->algorithm)) != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s at '%s' forces %s, and plan '%s' relies on %s there; leave "
            "the algorithm to the plan, or make it by symm-plan plan "
            "--algorithm",
            symm__kind_name(rq->kind), call->site, call->algorithm, planned->plan->path,
            symm_algorithm_name(planned->op->algorithm));
    entry->planned = planned;
    return SYMM_OK;
}

/* A plan of sizes up to a bound: each rank sees for itself that the call is too large. */
static symm_status check_bound(const symm_team *team, const struct request *rq,
                               const struct symm_plan_site *site)
{
    const size_t bytes =
        rq->count * symm_dtype_size(rq->dtype) * in_blocks(rq, team->size);

    return site->op->up_to > 0 && bytes > site->op->up_to
               ? symm__plan_too_large(site, symm__kind_name(rq->kind), bytes)
               : SYMM_OK;
}

/* Algorithm and barriers, by the plan or by choice. */
static symm_status choose(const symm_team *team, const struct request *rq,
                          const symm_call *call, const struct symm_question *question,
                          struct symm_cached *entry)
{
    struct symm_answer answer;
    symm_status status = find_planned(team, rq, call, entry);

    if (status != SYMM_OK)
        return status;
    if (entry->planned) {
        const symm_plan_op *op = entry->planned->op;

        entry->args.barriers = (op->entry_barrier ? SYMM_BARRIER_ENTRY : 0) |
                               (op->exit_barrier ? SYMM_BARRIER_EXIT : 0);
        status = check_bound(team, rq, entry->planned);
        if (status == SYMM_OK)
            status =
                symm__choose_planned(question, op->algorithm, op->up_to > 0, &answer,
                                     &entry->args.barriers, &entry->extra);
    } else {
        status = symm__choose(question, &answer);
        if (status == SYMM_OK)
            entry->estimate = symm__estimate(question, answer.algorithm);
    }
    if (status != SYMM_OK)
        return status;
    entry->algorithm = answer.algorithm;
    entry->reason = entry->left_out
                        ? "the plan orders the put of this site without it: nothing ran"
                        : answer.reason;
    return SYMM_OK;
}

static void take_host_kernel(const symm_team *team, const struct request *rq,
                             struct symm_cached *entry)
{
    struct symm_args *args = &entry->args;

    args->reduce = symm__reduce_find(team->ctx->isa, rq->dtype, rq->op);
    if (entry->algorithm == SYMM_ALGORITHM_ENGINE) {
        entry->kernel = entry->planned ? symm__k_planned : symm__k_engine;
        args->body = symm__k_engine;
        return;
    }
    if (!entry->planned && !entry->left_out) {
        entry->kernel = symm__host_kernel(rq->kind, entry->algorithm, args->bytes);
        return;
    }
    entry->kernel = symm__k_planned;
    args->body = entry->left_out
                     ? NULL
                     : symm__host_body(rq->kind, entry->algorithm, args->bytes);
}

/* What is launched for the entry; in front of an engine's operation a barrier with the
 * call's own tag, by which ranks find out who else comes. */
static symm_status take_launch(struct symm_lane *lane, const struct symm_cached *entry,
                               size_t index, const struct symm_question *question)
{
    struct symm_question barrier = *question;
    struct symm_cached announced = *entry;
    struct symm_answer answer;
    symm_status status;

    if (entry->algorithm != SYMM_ALGORITHM_ENGINE)
        return lane->team->calls->prepare(lane, entry, index, question);
    barrier.kind = SYMM_KIND_BARRIER;
    barrier.bytes = 0;
    barrier.forced = NULL;
    status = symm__choose(&barrier, &answer);
    if (status != SYMM_OK)
        return status;
    announced.algorithm = answer.algorithm;
    announced.args.count = announced.args.bytes = 0;
    announced.args.in = announced.args.out = NULL;
    return lane->team->calls->prepare(lane, &announced, index, &barrier);
}

/* Checks a call for the first time, unless it was (checked; else NULL), and fills the entry
 * that serves it from then on. */
static symm_status prepare(struct symm_lane *lane, const struct request *rq,
                           const symm_call *call, const struct checked *checked,
                           size_t index, struct symm_cached *entry)
{
    symm_team *team = lane->team;
    struct symm_args *args = &entry->args;
    struct symm_question question = {.kind = rq->kind,
                                     .forced = call->algorithm,
                                     .numerics = call->numerics,
                                     .dtype = rq->dtype,
                                     .op = rq->op,
                                     .size = team->size,
                                     .costs = team->ctx->costs};
    struct checked own;
    symm_status status = SYMM_OK;

    memset(entry, 0, sizeof(*entry));
    if (!checked) {
        status = check_request(team, rq, &own);
        checked = &own;
    }
    if (status != SYMM_OK)
        return status;
    question.bytes = checked->bytes;
    question.overlap = checked->overlap;
    question.in_symmetric = checked->in_symmetric;
    question.out_symmetric = checked->out_symmetric;
    args->in_offset = checked->in_offset;
    args->out_offset = checked->out_offset;
    if (team->calls)
        team->calls->describe(lane, args, &question);
    symm__engine_describe(team, rq->root, &question);
    status = team->wide ? symm__wide_choose(team, &question, entry)
                        : choose(team, rq, call, &question, entry);
    if (status != SYMM_OK)
        return status;
    args->in = rq->in;
    args->out = rq->out;
    args->count = rq->count;
    args->element = symm_dtype_size(rq->dtype);
    args->bytes = question.bytes;
    args->root = rq->root;
    args->in_step =
        rq->kind == SYMM_KIND_ALL_GATHER && question.overlap ? args->bytes : 0;
    fill_site(team, entry, rq, call);
    if (team->wide) {
        entry->kernel = symm__k_wide;
    } else if (team->calls) {
        status = take_launch(lane, entry, index, &question);
        if (status != SYMM_OK)
            return status;
    } else {
        take_host_kernel(team, rq, entry);
    }
    entry->forced = call->algorithm != NULL;
    entry->numerics = call->numerics;
    /* A site's name longer than the entry's is compared by nobody: check anew each time. */
    entry->generation = !call->site || strlen(call->site) < SYMM_SITE_NAME_BYTES
                            ? __atomic_load_n(&team->ctx->generation, __ATOMIC_RELAXED)
                            : 0;
    return SYMM_OK;
}

static inline bool is_same_choice(const struct symm_cached *entry,
                                  const symm_call *call)
{
    if (__builtin_expect(call->algorithm == NULL, 1))
        return !entry->forced;
    return entry->forced &&
           strcmp(call->algorithm, symm_algorithm_name(entry->algorithm)) == 0;
}

static inline bool is_cached(const struct symm_cached *entry, const symm_ctx *ctx,
                             const struct request *rq, const symm_call *call)
{
    const struct symm_args *args = &entry->args;

    return entry->generation == __atomic_load_n(&ctx->generation, __ATOMIC_RELAXED) &&
           args->in == rq->in && args->out == rq->out && args->count == rq->count &&
           args->site.kind == (uint8_t)rq->kind &&
           args->site.dtype == (uint8_t)rq->dtype && args->site.op == (uint8_t)rq->op &&
           args->root == rq->root && entry->numerics == call->numerics &&
           is_same_choice(entry, call) &&
           (call->site ? strcmp(call->site, args->site.name) == 0
                       : args->site.name[0] == '\0');
}

static inline struct symm_cached *
cache_slot(struct symm_lane *lane, const struct request *rq, const symm_call *call)
{
    uintptr_t hash = (uintptr_t)rq->in ^ (uintptr_t)rq->out >> 3 ^
                     (uintptr_t)call->site * 31 ^ rq->count * 7 ^
                     (uintptr_t)rq->kind * 63;

    return &lane->cached[(hash ^ hash >> 8 ^ hash >> 16) & (SYMM_SITES - 1)];
}

static void run_queued(struct symm_task *task)
{
    struct queued *queued = (struct queued *)task;
    struct symm_lane *lane = queued->lane;
    symm_status status = symm__team_failed(lane->team);

    symm__work_begin(queued->work, queued->deadline);
    lane->deadline = queued->deadline;
    lane->has_stalled = false;
    if (status == SYMM_OK)
        status = queued->kernel(&lane->state, &queued->args);
    if (status == SYMM_OK && queued->planned)
        symm__plan_fill(queued->planned);
    symm__work_complete(queued->work, status);
    free(queued);
}

static symm_status enqueue(struct symm_lane *lane, const struct symm_cached *entry,
                           double deadline, symm_work **work)
{
    symm_ctx *ctx = lane->team->ctx;
    struct queued *queued = malloc(sizeof(*queued));

    if (!queued)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to queue a call");
    *queued = (struct queued){.task.run = run_queued,
                              .lane = lane,
                              .kernel = entry->kernel,
                              .planned = entry->planned,
                              .deadline = deadline,
                              .args = entry->args};
    if (work) {
        symm_status status = symm__work_create(ctx, true, &queued->work);

        if (status != SYMM_OK) {
            free(queued);
            return status;
        }
    }
    if (lane->team->wide)
        queued->args.out_offset = symm__wide_ticket(lane->team);
    if (work) /* before the push: afterwards the worker may have let go of it */
        *work = queued->work;
    ctx->ops->stream_push(ctx->backend, lane->stream, &queued->task);
    return SYMM_OK;
}

/* On the caller's thread; the default stream is held by the caller. */
static symm_status run_inline(struct symm_lane *lane, const struct symm_cached *entry,
                              double deadline)
{
    symm_status status;

    lane->deadline = deadline;
    lane->has_stalled = false;
    status = entry->kernel(&lane->state, &entry->args);
    if (__builtin_expect(entry->planned != NULL, 0) && status == SYMM_OK)
        symm__plan_fill(entry->planned);
    return status;
}

/* The call's entry, made now if it is a new one. */
static inline symm_status find_entry(struct symm_lane *lane, const struct request *rq,
                                     const symm_call *call,
                                     const struct checked *checked,
                                     struct symm_cached **found)
{
    struct symm_cached *entry = cache_slot(lane, rq, call);

    if (__builtin_expect(!is_cached(entry, lane->team->ctx, rq, call), 0)) {
        struct symm_cached fresh;
        symm_status status =
            prepare(lane, rq, call, checked, (size_t)(entry - lane->cached), &fresh);

        if (status != SYMM_OK)
            return status;
        *entry = fresh;
    }
    *found = entry;
    return SYMM_OK;
}

/* A barrier that the plan keeps and the kernel does not have: a call of its own, on the
 * same lane. It may take the place of any entry in the lane's cache. */
static symm_status launch_barrier(struct symm_lane *lane, double deadline)
{
    const struct request rq = {SYMM_KIND_BARRIER, NULL,     NULL, 0,
                               SYMM_UINT8,        SYMM_SUM, 0};
    struct symm_cached *entry;
    symm_status status = find_entry(lane, &rq, &no_call, NULL, &entry);

    if (status != SYMM_OK)
        return status;
    return lane->team->calls->launch(lane, entry, deadline, NULL);
}

static symm_status launch_entry(struct symm_lane *lane, const struct symm_cached *entry,
                                double deadline, symm_work **work)
{
    symm_team *team = lane->team;
    struct symm_engine_request request;
    struct symm_engine_call call;
    symm_status status;

    if (__builtin_expect(team->wide != NULL, 0))
        return symm__wide_launch(lane, entry, deadline, work);
    if (__builtin_expect(entry->algorithm != SYMM_ALGORITHM_ENGINE, 1))
        return team->calls->launch(lane, entry, deadline, work);
    status = team->calls->launch(lane, entry, deadline, NULL); /* announces it */
    if (status != SYMM_OK)
        return status;
    request = symm__engine_request(&entry->args);
    call = (struct symm_engine_call){.team = team,
                                     .comm = team->engine->comm,
                                     .requests = &request,
                                     .count = 1,
                                     .deadline = deadline,
                                     .what = symm__kind_name(request.kind),
                                     .site = entry->args.site.name};
    return team->calls->engine(&call, lane->stream, work);
}

/* A call around which the plan has more to do; the handle is for the end of it all. */
static symm_status launch_around(struct symm_lane *lane, const struct request *rq,
                                 const symm_call *call, struct symm_cached *entry,
                                 double deadline, symm_work **work)
{
    const struct symm_device_ops *calls = lane->team->calls;
    const struct symm_plan_site *planned = entry->planned;
    const uint32_t extra = entry->extra;
    symm_status status = SYMM_OK;
    size_t bytes;
    void *at;

    if (extra & SYMM_BARRIER_ENTRY) {
        status = launch_barrier(lane, deadline);
        if (status == SYMM_OK)
            status = find_entry(lane, rq, call, NULL, &entry);
    }
    lane->last = entry;
    if (status == SYMM_OK && !entry->left_out)
        status = launch_entry(lane, entry, deadline, NULL);
    if (status == SYMM_OK && extra & SYMM_BARRIER_EXIT)
        status = launch_barrier(lane, deadline);
    for (int i = 0;
         status == SYMM_OK && planned && symm__plan_freed(planned, i, &at, &bytes); i++)
        status = calls->fill(lane->team->ctx, lane->stream, at, SYMM_PLAN_FREED, bytes);
    return status == SYMM_OK && work ? calls->handle(lane, work) : status;
}

static symm_status launch_device(struct symm_lane *lane, const struct request *rq,
                                 const symm_call *call, struct symm_cached *entry,
                                 double deadline, symm_work **work)
{
    size_t bytes;
    void *at;

    if (entry->extra || entry->left_out ||
        (entry->planned && symm__plan_freed(entry->planned, 0, &at, &bytes)))
        return launch_around(lane, rq, call, entry, deadline, work);
    return launch_entry(lane, entry, deadline, work);
}

static symm_status launch(struct symm_lane *lane, const struct request *rq,
                          const symm_call *call, const struct checked *checked,
                          symm_work **work)
{
    symm_team *team = lane->team;
    struct symm_cached *entry;
    double deadline = call->deadline > 0 ? call->deadline : team->ctx->deadline;
    symm_work *inline_work = NULL;
    symm_status status = find_entry(lane, rq, call, checked, &entry);

    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    lane->last = entry; /* for symm_explain */
    __atomic_store_n(&team->last_lane, lane->index, __ATOMIC_RELAXED);
    __atomic_store_n(&team->last_path, NULL, __ATOMIC_RELAXED);
    if (__builtin_expect(entry->planned != NULL, 0)) {
        status = symm__plan_expect(entry->planned);
        if (status != SYMM_OK)
            return status;
        symm__plan_advance(entry->planned);
    }
    if (team->calls)
        return launch_device(lane, rq, call, entry, deadline, work);
    if (lane->index != 0)
        return enqueue(lane, entry, deadline, work);
    if (work) { /* before the call: afterwards it could no longer be refused */
        status = symm__work_create(team->ctx, true, &inline_work);
        if (status != SYMM_OK)
            return status;
    }
    status = run_inline(lane, entry, deadline);
    symm__work_complete(inline_work, status);
    if (status != SYMM_OK)
        symm_work_release(inline_work);
    else if (work)
        *work = inline_work;
    return status;
}

symm_status symm__collective_run(struct symm_lane *lane,
                                 const struct symm_engine_request *step,
                                 const char *site, double deadline)
{
    const struct request rq = {step->kind,  step->in, step->out, step->count,
                               step->dtype, step->op, step->root};
    const symm_call call = {.size = sizeof(call), .site = *site ? site : NULL};
    struct symm_cached *entry;
    symm_status status = symm__team_failed(lane->team);

    if (status == SYMM_OK)
        status = symm__lane_cache(lane);
    if (status == SYMM_OK)
        status = find_entry(lane, &rq, &call, NULL, &entry);
    if (status != SYMM_OK)
        return status;
    return lane->team->calls ? lane->team->calls->launch(lane, entry, deadline, NULL)
                             : run_inline(lane, entry, deadline);
}

/* ---- Channels of streams on a device -------------------------------------------------- */

/* By what a stream's first call is known on all members: site, shape, and where the arrays
 * are if they are symmetric, but no algorithm, which may depend on the channel. */
static uint32_t first_tag(const symm_team *team, const struct request *rq,
                          const symm_call *call, const struct checked *checked)
{
    struct symm_site site = {.kind = (uint8_t)rq->kind,
                             .op = (uint8_t)rq->op,
                             .dtype = (uint8_t)rq->dtype,
                             .root = rq->root};

    site_offset(&site.count_high, &site.count_low, rq->count);
    /* In place, all_gather's inputs and reduce_scatter's outputs differ by rank. */
    if (rq->kind != SYMM_KIND_BROADCAST && rq->kind != SYMM_KIND_ALL_GATHER)
        site_offset(&site.in_high, &site.in_low,
                    checked->in_symmetric ? checked->in_offset : SIZE_MAX);
    if (rq->kind != SYMM_KIND_REDUCE_SCATTER)
        site_offset(&site.out_high, &site.out_low,
                    checked->out_symmetric ? checked->out_offset : SIZE_MAX);
    return site_tag(team, &site, call->site, 0);
}

/* A channel for a stream that has none: *checked is then filled. team->lanes is unlocked on
 * error. */
static symm_status claim_channel(symm_team *team, const struct request *rq,
                                 const symm_call *call, struct checked *checked,
                                 struct symm_lane **lane)
{
    void *stream = call->stream;
    symm_status status = check_request(team, rq, checked);

    if (status == SYMM_OK)
        status = team->calls->stream_check(team->ctx, &stream);
    if (status == SYMM_OK)
        status =
            team->calls->channel_claim(team, stream, first_tag(team, rq, call, checked),
                                       checked->bytes, call->channel, lane);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->lanes);
    return status;
}

/* A channel with more scratch for a call that wants it, if one is idle. The same. */
static symm_status grow_channel(symm_team *team, const struct request *rq,
                                struct symm_lane **lane)
{
    const size_t element = symm_dtype_size(rq->dtype);
    struct symm_lane *current = *lane;
    size_t bytes;
    symm_status status;

    if (current->index < SYMM_LARGE_CHANNELS || rq->kind == SYMM_KIND_BARRIER ||
        __builtin_mul_overflow(rq->count, element, &bytes)) /* checked later */
        return SYMM_OK;
    status = team->calls->channel_grow(current, bytes, lane);
    if (status != SYMM_OK)
        pthread_mutex_unlock(&team->lanes);
    return status;
}

/* ---- Records ------------------------------------------------------------------------ */

static void record(const struct symm_lane *lane, const struct request *rq,
                   const symm_call *call, symm_work *work)
{
    static const symm_record_kind kinds[] = {
        [SYMM_KIND_ALL_REDUCE] = SYMM_RECORD_ALL_REDUCE,
        [SYMM_KIND_REDUCE_SCATTER] = SYMM_RECORD_REDUCE_SCATTER,
        [SYMM_KIND_ALL_GATHER] = SYMM_RECORD_ALL_GATHER,
        [SYMM_KIND_BROADCAST] = SYMM_RECORD_BROADCAST,
        [SYMM_KIND_ALL_TO_ALL] = SYMM_RECORD_ALL_TO_ALL,
        [SYMM_KIND_BARRIER] = SYMM_RECORD_BARRIER};
    const symm_team *team = lane->team;
    const bool moves = rq->kind != SYMM_KIND_BARRIER;
    const size_t block = rq->count * symm_dtype_size(rq->dtype);
    const struct symm_record_call made = {.kind = kinds[rq->kind],
                                          .team = team,
                                          .in = in_matters(team, rq) ? rq->in : NULL,
                                          .out = moves ? rq->out : NULL,
                                          .in_bytes = block * in_blocks(rq, team->size),
                                          .out_bytes =
                                              block * out_blocks(rq, team->size),
                                          .count = rq->count,
                                          .dtype = rq->dtype,
                                          .op = rq->op,
                                          .peer = rq->root,
                                          .site = call->site,
                                          .algorithm = call->algorithm,
                                          .stream = lane->stream};

    symm__record_call(&made, work);
}

static symm_status collective(symm_team *team, const struct request *rq,
                              const symm_call *given, symm_work **work)
{
    const symm_call *call = given ? given : &no_call;
    struct symm_lane *lane;
    struct checked first, *checked = NULL;
    symm_call copy;
    symm_status status = symm__team_check(team);

    if (__builtin_expect(status != SYMM_OK, 0)) /* once more, to be named */
        return symm__team_check_in(team, symm__kind_name(rq->kind));
    if (__builtin_expect(call->size != sizeof(*call) || !(call->deadline >= 0) ||
                             (unsigned)call->channel > SYMM_CHANNELS,
                         0)) {
        status = symm__call_copy(given, &copy);
        if (status != SYMM_OK)
            return status;
        call = &copy;
    }
    status = symm__lane_enter(team, call->stream, &lane);
    if (__builtin_expect(status != SYMM_OK, 0))
        return status;
    if (team->calls && !team->wide) {
        checked = lane ? NULL : &first;
        status = lane ? grow_channel(team, rq, &lane)
                      : claim_channel(team, rq, call, &first, &lane);
        if (status != SYMM_OK)
            return status;
    }
    status = launch(lane, rq, call, checked, work);
    if (symm__is_recorded(team->ctx) && status == SYMM_OK)
        record(lane, rq, call, work ? *work : NULL);
    symm__lane_leave(lane);
    return status;
}

symm_status symm_all_reduce(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, symm_op op, const symm_call *call,
                            symm_work **work)
{
    const struct request rq = {SYMM_KIND_ALL_REDUCE, in, out, count, dtype, op, 0};

    return collective(team, &rq, call, work);
}

symm_status symm_reduce_scatter(symm_team *team, const void *in, void *out,
                                size_t count, symm_dtype dtype, symm_op op,
                                const symm_call *call, symm_work **work)
{
    const struct request rq = {SYMM_KIND_REDUCE_SCATTER, in, out, count, dtype, op, 0};

    return collective(team, &rq, call, work);
}

symm_status symm_all_gather(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, const symm_call *call, symm_work **work)
{
    const struct request rq = {
        SYMM_KIND_ALL_GATHER, in, out, count, dtype, SYMM_SUM, 0};

    return collective(team, &rq, call, work);
}

symm_status symm_broadcast(symm_team *team, const void *in, void *out, size_t count,
                           symm_dtype dtype, int root, const symm_call *call,
                           symm_work **work)
{
    const struct request rq = {
        SYMM_KIND_BROADCAST, in, out, count, dtype, SYMM_SUM, root};

    if (team && (root < 0 || root >= team->size))
        return symm__fail(SYMM_ERR_INVALID,
                          "broadcast: root %d; the team has ranks 0 to %d", root,
                          team->size - 1);
    return collective(team, &rq, call, work);
}

symm_status symm_all_to_all(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, const symm_call *call, symm_work **work)
{
    const struct request rq = {
        SYMM_KIND_ALL_TO_ALL, in, out, count, dtype, SYMM_SUM, 0};

    return collective(team, &rq, call, work);
}

symm_status symm_barrier(symm_team *team, const symm_call *call, symm_work **work)
{
    const struct request rq = {SYMM_KIND_BARRIER, NULL,     NULL, 0,
                               SYMM_UINT8,        SYMM_SUM, 0};

    return collective(team, &rq, call, work);
}

symm_status symm_team_device(symm_team *team, const void **device_team)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!device_team)
        return symm__fail(SYMM_ERR_INVALID, "symm_team_device: device_team is NULL");
    if (team->wide)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "symm_team_device: the team's ranks are on %d hosts, and device "
            "code reaches those of one; split it by host",
            team->wide->hosts);
    if (team->calls)
        return team->calls->team_device(team, device_team);
    if (team->size > SYMM_DEVICE_RANKS)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_team_device: the team has %d ranks; struct "
                          "symm_device_team holds up to %d; split it",
                          team->size, SYMM_DEVICE_RANKS);
    pthread_mutex_lock(&team->ctx->lock); /* two threads may ask for the first time */
    symm__team_describe(team);
    pthread_mutex_unlock(&team->ctx->lock);
    *device_team = &team->device;
    return SYMM_OK;
}
