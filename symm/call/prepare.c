/* SPDX-License-Identifier: MIT */
/* prepare.c - see prepare.h. */
#include "call/prepare.h"

#include <string.h>

#include "call/hierarchical.h"
#include "call/norm.h"
#include "call/workspace.h"
#include "core/captured.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "engine/runtime.h"
#include "kernels/reduce/norm.h"
#include "memory/team_plan.h"
#include "select/select.h"
#include "util/hash.h"
#include "util/status.h"

#define CAPTURED                                                                       \
    ((size_t)1 << 63) /* in the offsets of a tag: no offset, a captured call's key */
#define PLANNED                                                                        \
    4u /* in a tag, beside SYMM_BARRIER_...: a plan has placed the barriers */

/* A call while its entry is made. */
struct preparation {
    struct symm_team_channel *channel;
    symm_team *team;
    const struct symm_request *rq;
    const symm_call *call;
    const struct symm_checked *checked;
    struct symm_select_query query;
    struct symm_prepared_call *entry;
};

static void site_offset(uint32_t *high, uint32_t *low, size_t offset)
{
    *high = (uint32_t)((uint64_t)offset >> 32);
    *low = (uint32_t)offset;
}

/* A hash of everything the ranks must agree on; never 0, which means "no word yet". */
static uint32_t site_tag(const symm_team *team, const struct symm_site *site,
                         const char *name, uint32_t barriers)
{
    const uint8_t *bytes = (const uint8_t *)site;
    uint64_t hash = SYMM_FNV_BASIS ^ team->uid ^ (uint64_t)barriers << 32;
    uint32_t tag;

    hash = symm__fnv(hash, bytes + sizeof(site->tag),
                     offsetof(struct symm_site, name) - sizeof(site->tag));
    if (site->kind == SYMM_KIND_ALL_REDUCE_NORM)
        hash = symm__site_options(site, hash);
    tag = symm__fnv_short(name ? symm__fnv_text(hash, name) : hash);
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
        return symm__kind_moves(kind) == SYMM_KIND_ALL_REDUCE;
    default:
        return writes_all(algorithm);
    }
}

static void fill_site(const struct preparation *p)
{
    const symm_team *team = p->team;
    const struct symm_request *rq = p->rq;
    const struct symm_prepared_call *entry = p->entry;
    struct symm_args *args = &p->entry->args;
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
    if (rq->norm)
        symm__norm_site(rq->norm, site);
    site_offset(&site->in_high, &site->in_low,
                reads_all(rq->kind, entry->algorithm)
                    ? args->in_offset - (size_t)team->rank * args->in_step
                    : SIZE_MAX);
    /* in_step: an in-place gather reads peers at other places than one that is not */
    site_offset(&site->out_high, &site->out_low,
                writes_all(entry->algorithm) || (pulls && (broadcast || args->in_step))
                    ? args->out_offset
                    : SIZE_MAX);
    symm__site_name_set(site->name, p->call->site);
    site->tag = site_tag(team, site, p->call->site,
                         entry->planned ? PLANNED | args->barriers : 0);
}

uint32_t symm__request_tag(const symm_team *team, const struct symm_request *rq,
                           const symm_call *call, const struct symm_checked *checked)
{
    struct symm_site site = {.kind = (uint8_t)rq->kind,
                             .op = (uint8_t)rq->op,
                             .dtype = (uint8_t)rq->dtype,
                             .root = rq->root};

    site_offset(&site.count_high, &site.count_low, rq->count);
    if (rq->norm)
        symm__norm_site(rq->norm, &site);
    /* In place, all_gather's inputs and reduce_scatter's outputs differ by rank. */
    if (rq->kind != SYMM_KIND_BROADCAST && rq->kind != SYMM_KIND_ALL_GATHER)
        site_offset(&site.in_high, &site.in_low,
                    checked->in_symmetric ? checked->in_offset : SIZE_MAX);
    if (rq->kind != SYMM_KIND_REDUCE_SCATTER)
        site_offset(&site.out_high, &site.out_low,
                    checked->out_symmetric ? checked->out_offset : SIZE_MAX);
    return site_tag(team, &site, call->site, 0);
}

/* A call that no plan in force knows may have no array in the arena. */
static symm_status refuse_arena(const symm_team *team, const struct symm_request *rq,
                                const char *site)
{
    const char *what = symm__kind_name(rq->kind);
    symm_status status = symm__plan_refuse(
        team, what, site, symm__request_reads(team, rq) ? rq->in : NULL);

    if (status == SYMM_OK)
        status = symm__plan_refuse(team, what, site, rq->out);
    for (int written = 0; rq->norm && written < 2; written++) {
        struct symm_norm_array side[SYMM_NORM_SIDE];
        const int count = symm__norm_arrays(rq->norm, written, side);

        for (int i = 0; status == SYMM_OK && i < count; i++)
            if (side[i].bytes > 0)
                status = symm__plan_refuse(team, what, site, side[i].at);
    }
    return status;
}

/* The barrier at a put's site is the put's entry barrier, a collective is the site's op. */
static symm_status find_planned(const struct preparation *p)
{
    const struct symm_request *rq = p->rq;
    const symm_call *call = p->call;
    const struct symm_plan_site *planned = symm__plan_find(p->team, call->site);

    if (rq->kind == SYMM_KIND_BARRIER) {
        p->entry->left_out = planned && planned->op->algorithm == SYMM_ALGORITHM_PUT &&
                             !planned->op->entry_barrier;
        return SYMM_OK;
    }
    if (!planned)
        return refuse_arena(p->team, rq, call->site);
    if (planned->op->algorithm == SYMM_ALGORITHM_PUT)
        return symm__fail(SYMM_ERR_INVALID,
                          "plan '%s' has a put at '%s', and the call is %s; give each "
                          "call site a name of its own",
                          planned->plan->path, call->site, symm__kind_name(rq->kind));
    if (planned->op->norm != (rq->norm != NULL))
        return symm__fail(SYMM_ERR_INVALID,
                          "plan '%s' has %s at '%s', and the call is %s, which touches "
                          "other arrays; make the plan of a program that has this call",
                          planned->plan->path,
                          planned->op->norm ? "an all_reduce_norm"
                                            : "a collective that is no all_reduce_norm",
                          call->site, symm__kind_name(rq->kind));
    if (call->algorithm &&
        strcmp(call->algorithm, symm_algorithm_name(planned->op->algorithm)) != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "%s at '%s' forces %s, and plan '%s' relies on %s there; leave "
            "the algorithm to the plan, or make it by symm-plan plan "
            "--algorithm",
            symm__kind_name(rq->kind), call->site, call->algorithm, planned->plan->path,
            symm_algorithm_name(planned->op->algorithm));
    p->entry->planned = planned;
    return SYMM_OK;
}

/* Refuses a call that exceeds the bound of its plan; every rank finds this by itself. */
static symm_status check_bound(const symm_team *team, const struct symm_request *rq,
                               const struct symm_plan_site *site)
{
    const size_t bytes = rq->count * symm_dtype_size(rq->dtype) *
                         symm__request_in_blocks(rq, team->size);

    return site->op->up_to > 0 && bytes > site->op->up_to
               ? symm__plan_too_large(site, symm__kind_name(rq->kind), bytes)
               : SYMM_OK;
}

/* The plan's algorithm and barriers. *part as in symm__choose_norm. */
static symm_status choose_planned(const struct preparation *p,
                                  struct symm_selection *answer, uint64_t *part)
{
    const symm_plan_op *op = p->entry->planned->op;
    const bool by_size = op->up_to > 0;
    uint32_t *barriers = &p->entry->args.barriers, *extra = &p->entry->extra;
    symm_status status = check_bound(p->team, p->rq, p->entry->planned);

    if (status != SYMM_OK)
        return status;
    *barriers = (op->entry_barrier ? SYMM_BARRIER_ENTRY : 0) |
                (op->exit_barrier ? SYMM_BARRIER_EXIT : 0);
    return p->rq->norm ? symm__choose_planned_norm(&p->query, op->algorithm, by_size,
                                                   answer, part, barriers, extra)
                       : symm__choose_planned(&p->query, op->algorithm, by_size, answer,
                                              barriers, extra);
}

static symm_status choose_algorithm(const struct symm_select_query *query, bool norm,
                                    struct symm_selection *answer, uint64_t *part)
{
    return norm ? symm__choose_norm(query, answer, part) : symm__choose(query, answer);
}

/*
 * The engine's operations must come in one order on all ranks, and streams may cross. So by its
 * own choice a team gives one channel's calls to the engine, and those of other channels only if
 * nothing else can do them. The caller must order calls that name the engine.
 */
static symm_status leave_engine(const struct preparation *p,
                                struct symm_selection *answer, uint64_t *part)
{
    const struct symm_device_ops *device = p->team->device_ops;
    struct symm_select_query rest = p->query;
    struct symm_selection other;
    uint64_t other_part = 0;
    symm_status status;

    if (answer->algorithm != SYMM_ALGORITHM_ENGINE || rest.forced || !device ||
        device->channel_engine(p->channel))
        return SYMM_OK;
    rest.engine = false;
    status = choose_algorithm(&rest, p->rq->norm, &other, &other_part);
    if (status != SYMM_OK || symm__cuda_objection(&rest, other.algorithm, NULL))
        return status;
    *answer = other;
    *part = other_part;
    answer->fallback = true;
    answer->reason = "the engine serves another stream of the team, and its operations "
                     "on two would need one order on all ranks";
    return SYMM_OK;
}

/* Takes algorithm and barriers from the plan, or chooses the algorithm. */
static symm_status choose(const struct preparation *p)
{
    struct symm_prepared_call *entry = p->entry;
    struct symm_selection answer;
    uint64_t part = 0;
    symm_status status = find_planned(p);

    if (status != SYMM_OK)
        return status;
    if (entry->planned)
        status = choose_planned(p, &answer, &part);
    else
        status = choose_algorithm(&p->query, p->rq->norm, &answer, &part);
    if (status == SYMM_OK && !entry->planned)
        status = leave_engine(p, &answer, &part);
    if (status != SYMM_OK)
        return status;
    if (!entry->planned && !p->rq->norm)
        entry->estimate = symm__estimate(&p->query, answer.algorithm);
    entry->algorithm = answer.algorithm;
    entry->part = part;
    entry->fallback = answer.fallback;
    entry->reason = entry->left_out
                        ? "the plan orders the put of this site without it: nothing ran"
                        : answer.reason;
    return SYMM_OK;
}

/* ---- Captured calls ------------------------------------------------------------------- */

/* The arrays that peers use, and whether one of them is not symmetric memory. */
static bool find_plain(const struct preparation *p,
                       struct symm_captured_array arrays[SYMM_CAPTURED_ARRAYS])
{
    const struct symm_request *rq = p->rq;
    const struct symm_checked *checked = p->checked;
    const enum symm_algorithm algorithm = p->entry->algorithm;
    const int size = p->team->size;
    const bool pulls = algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL ||
                       algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL;
    const bool stores = algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE;
    const bool in = (pulls || stores) && reads_all(rq->kind, algorithm);
    const bool out = stores || (pulls && rq->kind == SYMM_KIND_BROADCAST);

    if (in)
        arrays[SYMM_CAPTURED_IN] = (struct symm_captured_array){
            rq->in, checked->bytes * symm__request_in_blocks(rq, size)};
    if (out)
        arrays[SYMM_CAPTURED_OUT] = (struct symm_captured_array){
            rq->out, checked->bytes * symm__request_out_blocks(rq, size)};
    return rq->count > 0 &&
           ((in && !checked->in_symmetric) || (out && !checked->out_symmetric));
}

/* Takes an entry of the table of captured pointers for the call, if peers can map its memory.
 * *taken: it has one. */
static symm_status take_pointers(const struct preparation *p,
                                 const struct symm_captured_array *arrays, bool *taken)
{
    const struct symm_request *rq = p->rq;
    struct symm_prepared_call *entry = p->entry;
    const struct symm_captured_site site = {.count = rq->count,
                                            .root = rq->root,
                                            .kind = (uint8_t)rq->kind,
                                            .dtype = (uint8_t)rq->dtype,
                                            .op = (uint8_t)rq->op,
                                            .algorithm = (uint8_t)entry->algorithm};
    uint64_t key;
    symm_status status =
        symm__captured_add(p->team, &site, arrays, &entry->pointers, &key);

    *taken = status == SYMM_OK;
    if (status != SYMM_OK)
        return status == SYMM_ERR_NOMEM ? status : SYMM_OK;
    entry->fallback = false;
    entry->reason = "captured between symm_team_capture_begin and _end: the members' "
                    "addresses come with the latter";
    /* Not the arrays' offsets, but the key of this call: the tag includes it, and no kernel reads
     * it. */
    entry->args.in_offset = entry->args.out_offset = CAPTURED | (size_t)key;
    return SYMM_OK;
}

/* For a call that a graph captures between capture_begin and capture_end: chooses as if all
 * memory were symmetric. Kernels for more than SYMM_FEW_RANKS take no addresses; their calls are
 * chosen as other calls are. */
static symm_status choose_captured(const struct preparation *p)
{
    struct symm_captured_array arrays[SYMM_CAPTURED_ARRAYS] = {{0}};
    struct preparation direct = *p;
    bool taken = false;
    symm_status status;

    if (p->rq->kind == SYMM_KIND_BARRIER || p->rq->norm ||
        p->team->size > SYMM_FEW_RANKS || symm__plan_find(p->team, p->call->site))
        return choose(p);
    direct.query.in_symmetric = direct.query.out_symmetric = true;
    status = choose(&direct);
    if (status != SYMM_OK || !find_plain(p, arrays))
        return status;
    status = take_pointers(p, arrays, &taken);
    return status != SYMM_OK || taken ? status : choose(p);
}

/* ---- Kernels ------------------------------------------------------------------------ */

/* The kernel of a collective that moves data. */
static symm_kernel_fn host_kernel(const symm_team *team, enum symm_kind kind,
                                  struct symm_prepared_call *entry)
{
    struct symm_args *args = &entry->args;

    if (team->hierarchy)
        return symm__host_hierarchical;
    if (entry->algorithm == SYMM_ALGORITHM_ENGINE) {
        args->body = symm__host_engine;
        return entry->planned ? symm__host_planned : symm__host_engine;
    }
    if (!entry->planned && !entry->left_out)
        return symm__host_kernel(kind, entry->algorithm, args->bytes);
    args->body =
        entry->left_out ? NULL : symm__host_body(kind, entry->algorithm, args->bytes);
    return symm__host_planned;
}

static void take_host_kernel(const symm_team *team, const struct symm_request *rq,
                             struct symm_prepared_call *entry)
{
    struct symm_args *args = &entry->args;

    args->reduce = rq->norm && symm__norm_partial(rq->norm, team->size)
                       ? symm__reduce_partial(rq->dtype)
                       : symm__reduce_find(team->ctx->isa, rq->dtype, rq->op);
    entry->kernel = host_kernel(team, symm__kind_moves(rq->kind), entry);
    if (!rq->norm)
        return;
    args->sum = entry->kernel;
    entry->kernel = symm__host_all_reduce_norm;
}

/* Prepares the launch of the entry. For an engine's operation this is a barrier with the call's
 * tag, by which ranks find out which peers make the call. */
static symm_status take_launch(const struct preparation *p, size_t index)
{
    const struct symm_device_ops *device = p->team->device_ops;
    struct symm_select_query barrier = p->query;
    struct symm_prepared_call announced = *p->entry;
    struct symm_selection answer;
    symm_status status;

    if (p->entry->algorithm != SYMM_ALGORITHM_ENGINE)
        return device->prepare(p->channel, p->entry, index, &p->query);
    barrier.kind = SYMM_KIND_BARRIER;
    barrier.bytes = 0;
    barrier.forced = NULL;
    status = symm__choose(&barrier, &answer);
    if (status != SYMM_OK)
        return status;
    announced.algorithm = answer.algorithm;
    announced.args.count = announced.args.bytes = 0;
    announced.args.in = announced.args.out = NULL;
    return device->prepare(p->channel, &announced, index, &barrier);
}

static symm_status choose_hierarchical(const struct preparation *p)
{
    struct symm_select_query sum = p->query;

    sum.kind = symm__kind_moves(sum.kind);
    return symm__hierarchical_choose(p->team, &sum, p->entry);
}

/* All ranks get the same bits, and partial sums are rounded in rank order alone. */
static void describe_norm(const symm_team *team, const struct symm_request *rq,
                          struct symm_select_query *query)
{
    if (!rq->norm)
        return;
    query->rows = rq->norm->rows;
    query->hidden = (uint32_t)rq->norm->hidden;
    query->partial = symm__norm_partial(rq->norm, team->size);
    if (query->numerics < SYMM_NUMERICS_SAME_BITS)
        query->numerics = SYMM_NUMERICS_SAME_BITS;
    if (query->partial && query->numerics < SYMM_NUMERICS_RANK_ORDER)
        query->numerics = SYMM_NUMERICS_RANK_ORDER;
}

/* What the choice depends on. */
static void describe(struct preparation *p)
{
    const struct symm_checked *checked = p->checked;
    struct symm_args *args = &p->entry->args;

    p->query = (struct symm_select_query){.kind = p->rq->kind,
                                          .forced = p->call->algorithm,
                                          .numerics = p->call->numerics,
                                          .dtype = p->rq->dtype,
                                          .op = p->rq->op,
                                          .size = p->team->size,
                                          .bytes = checked->bytes,
                                          .overlap = checked->overlap,
                                          .in_symmetric = checked->in_symmetric,
                                          .out_symmetric = checked->out_symmetric,
                                          .costs = p->team->ctx->costs};
    describe_norm(p->team, p->rq, &p->query);
    args->in_offset = checked->in_offset;
    args->out_offset = checked->out_offset;
    if (p->team->device_ops)
        p->team->device_ops->describe(p->channel, args, &p->query);
    symm__engine_describe(p->team, p->rq->root, &p->query);
}

/* Of an all_reduce_norm that is not one kernel: an all_reduce into an output or, if no output takes
 * sums, into a workspace. */
static symm_status take_norm(struct preparation *p)
{
    struct symm_args *args = &p->entry->args;

    args->norm = *p->rq->norm;
    if (p->entry->part > 0)
        return SYMM_OK;
    p->query.kind = SYMM_KIND_ALL_REDUCE;
    if (args->out || args->bytes == 0)
        return SYMM_OK;
    return symm__workspace_get(p->channel, args->bytes, &args->out);
}

static symm_status fill_args(struct preparation *p)
{
    const struct symm_request *rq = p->rq;
    struct symm_prepared_call *entry = p->entry;
    struct symm_args *args = &entry->args;

    args->in = rq->in;
    args->out = entry->out = rq->out;
    args->count = rq->count;
    args->element = symm_dtype_size(rq->dtype);
    args->bytes = p->query.bytes;
    args->root = rq->root;
    args->in_step =
        rq->kind == SYMM_KIND_ALL_GATHER && p->query.overlap && !entry->pointers
            ? args->bytes
            : 0;
    return rq->norm ? take_norm(p) : SYMM_OK;
}

symm_status symm__call_prepare(struct symm_team_channel *channel,
                               const struct symm_request *rq, const symm_call *call,
                               const struct symm_checked *checked, size_t index,
                               struct symm_prepared_call *entry)
{
    symm_team *team = channel->team;
    struct symm_checked own;
    struct preparation p = {.channel = channel,
                            .team = team,
                            .rq = rq,
                            .call = call,
                            .checked = checked ? checked : &own,
                            .entry = entry};
    symm_status status = checked ? SYMM_OK : symm__request_check(team, rq, &own);

    memset(entry, 0, sizeof(*entry));
    if (status != SYMM_OK)
        return status;
    describe(&p);
    if (team->hierarchy)
        status = choose_hierarchical(&p);
    else if (team->capturing && channel->captured)
        status = choose_captured(&p);
    else
        status = choose(&p);
    if (status == SYMM_OK)
        status = fill_args(&p);
    if (status != SYMM_OK)
        return status;
    fill_site(&p);
    if (!team->device_ops)
        take_host_kernel(team, rq, entry);
    else if (!team->hierarchy)
        status = take_launch(&p, index);
    if (status != SYMM_OK)
        return status;
    entry->forced = call->algorithm != NULL;
    entry->numerics = call->numerics;
    /* A name longer than the entry holds cannot be compared: such calls are not cached. */
    entry->generation =
        (!call->site || strlen(call->site) < SYMM_SITE_NAME_BYTES) && !entry->pointers
            ? __atomic_load_n(&team->ctx->generation, __ATOMIC_RELAXED)
            : 0;
    return SYMM_OK;
}
