/* SPDX-License-Identifier: MIT */
/* hierarchical_strategy.c - see hierarchical_strategy.h. */
#include "call/hierarchical_strategy.h"

#include <string.h>

#include "core/device_ops.h"
#include "core/failure.h"
#include "util/dtype.h"
#include "util/status.h"

/* Whether steps give the right result. An average of averages is the average only of equal parts,
 * and of types that do not round to whole numbers. */
static bool in_steps(const struct symm_hierarchy *hierarchy, symm_dtype dtype,
                     symm_op op)
{
    return op != SYMM_AVG || (hierarchy->equal && !symm__dtype_is_integer(dtype));
}

static enum symm_strategy strategy_of(const struct symm_hierarchy *hierarchy,
                                      enum symm_kind kind, symm_dtype dtype, symm_op op)
{
    switch (kind) {
    case SYMM_KIND_BARRIER:
    case SYMM_KIND_BROADCAST:
        return SYMM_STRATEGY_LEADERS;
    case SYMM_KIND_ALL_REDUCE:
        if (!in_steps(hierarchy, dtype, op))
            return SYMM_STRATEGY_FLAT;
        return hierarchy->equal ? SYMM_STRATEGY_RAILS : SYMM_STRATEGY_LEADERS;
    case SYMM_KIND_REDUCE_SCATTER:
        return hierarchy->regular && in_steps(hierarchy, dtype, op)
                   ? SYMM_STRATEGY_RAILS
                   : SYMM_STRATEGY_FLAT;
    case SYMM_KIND_ALL_GATHER:
        return hierarchy->regular ? SYMM_STRATEGY_RAILS : SYMM_STRATEGY_FLAT;
    default:
        return SYMM_STRATEGY_FLAT;
    }
}

symm_status symm__hierarchical_choose(const symm_team *team,
                                      const struct symm_select_query *q,
                                      struct symm_prepared_call *entry)
{
    static const char *const reasons[] = {
        "kernels on each host, the engine along rails between them",
        "kernels on each host, the engine among the hosts' leaders",
        "the engine over all ranks"};
    bool flat = q->forced && strcmp(q->forced, "engine") == 0;
    enum symm_strategy strategy =
        flat ? SYMM_STRATEGY_FLAT
             : strategy_of(team->hierarchy, q->kind, q->dtype, q->op);
    char name[64];

    if (!team->engine)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%s: %s is on %d %s, which needs an engine: MPI on the host "
                          "backend (SYMM_ENGINE=mpi), NCCL on cuda (SYMM_NCCL_LIB); or "
                          "split it by host",
                          symm__kind_name(q->kind),
                          symm__team_name(team, name, sizeof(name)),
                          team->hierarchy->hosts, symm__hierarchy_parts(team));
    if (q->forced && !flat)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%s over several hosts: %s is not for ranks of other hosts; "
                          "give no algorithm, or engine",
                          symm__kind_name(q->kind), q->forced);
    if (q->engine_objection && q->kind != SYMM_KIND_BARRIER)
        return symm__fail(SYMM_ERR_UNSUPPORTED, "%s over several hosts: %s",
                          symm__kind_name(q->kind), q->engine_objection);
    if (q->partial)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "all_reduce_norm over %d %s cannot round the partial sums of "
                          "all ranks in order: each one's ranks come first; leave out "
                          "SYMM_NORM_ROUND_PARTIAL, or split the team by host",
                          team->hierarchy->hosts, symm__hierarchy_parts(team));
    if (symm__kind_reduces(q->kind) && q->numerics == SYMM_NUMERICS_RANK_ORDER)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%s over %d %s is not made in the order of all ranks: each "
                          "one's ranks come first; ask for SYMM_NUMERICS_SAME_BITS, or "
                          "split the team by host",
                          symm__kind_name(q->kind), team->hierarchy->hosts,
                          symm__hierarchy_parts(team));
    if (q->kind == SYMM_KIND_ALL_REDUCE && strategy == SYMM_STRATEGY_FLAT &&
        q->numerics != SYMM_NUMERICS_ANY)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "all_reduce %s of %s over these hosts is the engine's, which "
                          "does not promise the same bits on all ranks",
                          symm_op_name(q->op), symm_dtype_name(q->dtype));
    entry->algorithm = SYMM_ALGORITHM_ENGINE;
    entry->args.barriers = (uint32_t)strategy;
    entry->args.out_offset = 0; /* the ticket, once it is queued */
    entry->reason = reasons[strategy];
    entry->fallback = strategy == SYMM_STRATEGY_FLAT && !flat;
    return SYMM_OK;
}

symm_status symm__hierarchical_fail(symm_team *team, symm_status status)
{
    symm_team *node = team->hierarchy->local_team;
    symm_status failed = symm__team_failed(team);

    if (failed == SYMM_OK) {
        failed = symm__team_failed(node);
        /* an argument, or memory: no step has begun, or all ranks refuse */
        if (failed == SYMM_OK)
            return status;
        (void)symm__team_fail(team, failed, "%s", node->failure);
    }
    if (team->device_ops)
        team->device_ops->abort(node, failed);
    symm__engine_team_abort(team);
    return symm__team_failed(team);
}

bool symm__rail_is_all(const symm_team *team)
{
    return team->hierarchy->rail_count == team->size;
}

/* Whether the steps of the call (see `steps`) are the engine's over all ranks. */
static bool is_flat(const symm_team *team, const struct symm_request *rq,
                    const symm_call *call)
{
    const enum symm_kind kind = symm__kind_moves(rq->kind);
    const size_t count = rq->norm ? rq->norm->rows * rq->norm->hidden : rq->count;

    if (kind == SYMM_KIND_BARRIER || count == 0)
        return false;
    return (call->algorithm && strcmp(call->algorithm, "engine") == 0) ||
           strategy_of(team->hierarchy, kind, rq->dtype, rq->op) == SYMM_STRATEGY_FLAT;
}

symm_status symm__hierarchical_open(symm_team *team, const struct symm_request *rq,
                                    const symm_call *call)
{
    const char *site = call->site ? call->site : "";
    bool all, told;
    symm_status status;

    if (!team->engine || symm_dtype_size(rq->dtype) == 0 ||
        (unsigned)rq->op > SYMM_BXOR)
        return SYMM_OK; /* the call is refused */
    all = symm__rail_is_all(team) || is_flat(team, rq, call);
    if (__builtin_expect(symm__engine_has(team->engine, all), 1))
        return SYMM_OK;
    status = symm__engine_need(
        team, all, call->timeout > 0 ? call->timeout : team->ctx->timeout, &told);
    if (status == SYMM_OK || told)
        return status;
    status = symm__engine_failed(team, status, symm__kind_name(rq->kind), site);
    return symm__hierarchical_fail(team, status);
}
