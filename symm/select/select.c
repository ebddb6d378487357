/* SPDX-License-Identifier: MIT */
/*
 * select.c - see select.h; cuda.c has the CUDA backend's part. The host backend's
 * thresholds are measured: below TWO_SHOT_BYTES one round with a copy beats two rounds
 * without, above it moving fewer bytes wins. Where a cost table knows the machine, it decides.
 */
#include "select/select.h"

#include <string.h>

#include "util/status.h"

#define TWO_SHOT_BYTES 2048 /* in place, from here on */
#define PULL_BYTES     4096 /* out of place or moving data only, from here on */
/* A root that copies does not wait until its peers have read. */
#define BROADCAST_PULL_BYTES 262144

static const char *pull_objection(const struct symm_select_query *q)
{
    bool reads_in = q->kind != SYMM_KIND_BROADCAST;

    if (q->kind == SYMM_KIND_BARRIER)
        return NULL;
    if (reads_in && !q->in_symmetric)
        return "it reads every peer's input, and this input is not symmetric memory";
    if (!reads_in && !q->out_symmetric)
        return "it reads the root's output, and this output is not symmetric memory";
    /* reduce_scatter: rank 0 cannot distinguish its own block from the whole input */
    if (!reads_in || !q->overlap || q->kind == SYMM_KIND_ALL_GATHER)
        return NULL;
    return q->kind == SYMM_KIND_ALL_REDUCE
               ? "in place a peer could still read what is overwritten; "
                 "two_shot_inplace or copy_in can"
               : "in place a peer could still read what is overwritten; copy_in can";
}

/* Why an algorithm that stores into peers' outputs cannot do the call; sums also read peers'
 * inputs. */
static const char *inplace_objection(const struct symm_select_query *q)
{
    if (q->kind == SYMM_KIND_ALL_REDUCE && (!q->in_symmetric || !q->out_symmetric))
        return "it uses every peer's input and output, and input or output is not "
               "symmetric memory";
    if (!q->out_symmetric)
        return "it stores into every peer's output, and this output is not symmetric "
               "memory";
    if (q->kind == SYMM_KIND_ALL_TO_ALL && q->overlap)
        return "in place a peer could overwrite what is still to be sent; copy_in can";
    return NULL;
}

const char *symm__memory_objection(const struct symm_select_query *q,
                                   enum symm_algorithm algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
        return pull_objection(q);
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return q->in_symmetric ? NULL
                               : "it reads every peer's input, and this input is not "
                                 "symmetric memory";
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
        return inplace_objection(q);
    default:
        return NULL;
    }
}

/* Why this algorithm cannot do this call right; NULL: it can. *delay, unless it is NULL, as
 * in symm__cuda_objection: a curve, or the model, does not know the call's channel. */
static const char *objection(const struct symm_select_query *q,
                             enum symm_algorithm algorithm, double *delay)
{
    if (delay)
        *delay = 0;
    if (algorithm == SYMM_ALGORITHM_ENGINE)
        return symm__engine_objection(q);
    if (q->cuda)
        return symm__cuda_objection(q, algorithm, delay);
    if (!symm__host_kernel(q->kind, algorithm, q->bytes))
        return "the host backend has no such kernel for this collective";
    return symm__memory_objection(q, algorithm);
}

static symm_status choose_forced(const struct symm_select_query *q,
                                 struct symm_selection *answer)
{
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        const char *why;

        if (strcmp(q->forced, symm_algorithm_name((enum symm_algorithm)a)) != 0)
            continue;
        why = objection(q, (enum symm_algorithm)a, NULL);
        if (why)
            return symm__fail(SYMM_ERR_INVALID, "algorithm '%s' cannot do this %s: %s",
                              q->forced, symm__kind_name(q->kind), why);
        answer->algorithm = (enum symm_algorithm)a;
        answer->reason = "the call names it";
        answer->fallback = false;
        return SYMM_OK;
    }
    return symm__fail(SYMM_ERR_INVALID,
                      "algorithm '%s' is unknown to the %s backend; it has copy_in, "
                      "one_shot_pull%s",
                      q->forced, q->cuda ? "cuda" : "host",
                      q->cuda ? ", two_shot_pull, two_shot_inplace, two_shot_push, "
                                "ll_push and lamport_push"
                              : " and two_shot_inplace");
}

static struct symm_selection choose_all_reduce(const struct symm_select_query *q)
{
    if (q->bytes <= SYMM_INLINE_BYTES)
        return (struct symm_selection){SYMM_ALGORITHM_COPY_IN,
                                       "so few bytes travel beside the signal", false};
    if (!q->in_symmetric)
        return (struct symm_selection){
            SYMM_ALGORITHM_COPY_IN, "the input is not symmetric memory and is staged",
            true};
    if (q->out_symmetric && q->bytes >= TWO_SHOT_BYTES)
        return (struct symm_selection){
            SYMM_ALGORITHM_TWO_SHOT_INPLACE,
            "input and output are symmetric memory, and each rank "
            "reduces its slice once for all",
            false};
    if (!q->overlap && q->bytes >= PULL_BYTES)
        return (struct symm_selection){
            SYMM_ALGORITHM_ONE_SHOT_PULL,
            "the input is symmetric memory, the output is not", false};
    return (struct symm_selection){SYMM_ALGORITHM_COPY_IN,
                                   "for so few bytes one round with a copy is faster",
                                   false};
}

static struct symm_selection choose_by_threshold(const struct symm_select_query *q)
{
    const size_t pull =
        q->kind == SYMM_KIND_BROADCAST ? BROADCAST_PULL_BYTES : PULL_BYTES;

    if (q->cuda)
        return symm__cuda_choose(q);
    if (q->kind == SYMM_KIND_ALL_REDUCE)
        return choose_all_reduce(q);
    if (q->kind == SYMM_KIND_BARRIER)
        return (struct symm_selection){SYMM_ALGORITHM_COPY_IN, "one signal round",
                                       false};
    if (q->bytes >= pull && !objection(q, SYMM_ALGORITHM_ONE_SHOT_PULL, NULL))
        return (struct symm_selection){SYMM_ALGORITHM_ONE_SHOT_PULL,
                                       "peers can read it where it lies", false};
    if (q->bytes < pull)
        return (struct symm_selection){SYMM_ALGORITHM_COPY_IN,
                                       "for so few bytes one round with a copy is "
                                       "faster",
                                       false};
    return (struct symm_selection){SYMM_ALGORITHM_COPY_IN,
                                   "it is staged: not symmetric memory, or in place",
                                   true};
}

/* ---- Costs ---------------------------------------------------------------------------- */

static struct symm_cost_call as_cost_call(const struct symm_select_query *q)
{
    /* of one map */
    const symm_program_kind collective = (symm_program_kind)symm__kind_moves(q->kind);

    return (struct symm_cost_call){.collective = collective,
                                   .data = symm__cost_data(collective, q->dtype, q->op),
                                   .in_place = q->overlap,
                                   .ranks = q->size,
                                   .bytes = (double)q->bytes};
}

/* The cheapest by its curve of all that can do the call, but for `but`; false: none. */
static bool cheapest(const struct symm_select_query *q,
                     const symm_costs_curve *const curves[SYMM_ALGORITHM_COUNT],
                     int but, enum symm_algorithm *best, double *least)
{
    bool candidates[SYMM_ALGORITHM_COUNT], found = false, delayed = false;
    double delay[SYMM_ALGORITHM_COUNT] = {0};

    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++) {
        candidates[a] = a != but && curves[a] &&
                        !(a == SYMM_ALGORITHM_ENGINE && q->engine_deviation) &&
                        !objection(q, (symm_algorithm)a, &delay[a]);
        delayed = delayed || delay[a] > 0;
    }
    /* What was too slow to be measured further may be the best with little scratch. */
    if (!delayed)
        (void)symm__cost_keep_measured(curves, (double)q->bytes, candidates);
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++) {
        double us =
            candidates[a] ? symm__cost_at(curves[a], (double)q->bytes) + delay[a] : 0;

        if (!candidates[a] || (found && us >= *least))
            continue;
        *best = (symm_algorithm)a;
        *least = us;
        found = true;
    }
    return found;
}

/* The cheapest by the model among those that are not cheaper than the algorithm that was chosen:
 * thresholds are measured for each operation, and where the model differs it is wrong. */
static void least_by_model(const struct symm_select_query *q, const symm_costs *costs,
                           enum symm_algorithm chosen, struct symm_estimate *estimate)
{
    const struct symm_cost_call call = as_cost_call(q);

    estimate->us = symm__cost_alone(costs, &call, chosen, NULL);
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        enum symm_algorithm algorithm = (enum symm_algorithm)a;
        double us, delay;

        if (algorithm == chosen || objection(q, algorithm, &delay))
            continue;
        us = symm__cost_alone(costs, &call, algorithm, NULL) + delay;
        if (us < estimate->us || (estimate->next_us > 0 && us >= estimate->next_us))
            continue;
        estimate->next = algorithm;
        estimate->next_us = us;
    }
}

struct symm_estimate symm__estimate(const struct symm_select_query *q,
                                    enum symm_algorithm chosen)
{
    const symm_costs *model = q->cuda ? &symm__costs_built_in : &symm__costs_cores;
    const struct symm_cost_call call = as_cost_call(q);
    const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT];
    struct symm_estimate estimate = {.measured = false};
    double delay;

    if (q->forced || q->kind == SYMM_KIND_BARRIER || q->size < 2)
        return estimate;
    symm__cost_curves(q->costs, &call, curves);
    estimate.measured = curves[chosen] != NULL;
    if (estimate.measured) {
        estimate.us = symm__cost_at(curves[chosen], call.bytes);
        (void)cheapest(q, curves, (int)chosen, &estimate.next, &estimate.next_us);
    } else {
        least_by_model(q, q->costs ? q->costs : model, chosen, &estimate);
    }
    (void)objection(q, chosen, &delay);
    estimate.us += delay;
    return estimate;
}

symm_status symm__numerics_check(uint32_t numerics)
{
    if (numerics <= SYMM_NUMERICS_RANK_ORDER)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID, "numerics %u is none of SYMM_NUMERICS_...",
                      numerics);
}

symm_status symm__choose(const struct symm_select_query *q,
                         struct symm_selection *answer)
{
    const struct symm_cost_call call = as_cost_call(q);
    const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT];
    symm_status status = symm__numerics_check(q->numerics);
    double us;

    if (status != SYMM_OK)
        return status;
    if (q->forced)
        return choose_forced(q, answer);
    symm__cost_curves(q->costs, &call, curves);
    answer->fallback = false;
    if (cheapest(q, curves, -1, &answer->algorithm, &us))
        answer->reason = "the cheapest by the cost table";
    else
        *answer = choose_by_threshold(q);
    if (!curves[SYMM_ALGORITHM_ENGINE])
        *answer = symm__engine_or(q, *answer);
    return SYMM_OK;
}

/* ---- Calls of a plan ------------------------------------------------------------------ */

/*
 * Does `other` touch no more of the ranks' memory than `planned`, and does it order accesses as
 * the plan assumes? The plan may have left out barriers that another algorithm needs.
 */
static bool may_replace(enum symm_algorithm planned, enum symm_algorithm other)
{
    const bool reads_peers = planned == SYMM_ALGORITHM_ONE_SHOT_PULL ||
                             planned == SYMM_ALGORITHM_TWO_SHOT_PULL ||
                             planned == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT;
    const bool writes_peers = planned == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
                              planned == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT;

    switch (other) {
    case SYMM_ALGORITHM_COPY_IN:
    case SYMM_ALGORITHM_LL_PUSH:
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
        return true; /* own input and output, and scratch */
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
        return reads_peers;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return reads_peers || writes_peers;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
        return writes_peers;
    default:
        return other == planned;
    }
}

/* The plan's algorithm or, where this backend or this call cannot use it (no multicast, no such
 * kernel, too little scratch, private memory), the first that may replace it. */
static struct symm_selection substitute(const struct symm_select_query *q,
                                        enum symm_algorithm planned)
{
    static const enum symm_algorithm others[] = {
        SYMM_ALGORITHM_TWO_SHOT_INPLACE, SYMM_ALGORITHM_TWO_SHOT_PULL,
        SYMM_ALGORITHM_ONE_SHOT_PULL, SYMM_ALGORITHM_TWO_SHOT_PUSH,
        SYMM_ALGORITHM_LL_PUSH};
    struct symm_selection answer = {
        SYMM_ALGORITHM_COPY_IN,
        "the plan's algorithm cannot do this call here; this "
        "one touches no more memory",
        true};

    /* A gather by multicast writes into peers, which the plan does not know of. */
    if (!objection(q, planned, NULL) && !(planned == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT &&
                                          q->kind == SYMM_KIND_ALL_GATHER))
        return (struct symm_selection){planned, "the plan names it", false};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (may_replace(planned, others[i]) && !objection(q, others[i], NULL)) {
            answer.algorithm = others[i];
            break;
        }
    return answer;
}

/* The library's own choice for the size, where the plan is right with it; else the plan's. */
static symm_status answer_by_size(const struct symm_select_query *q,
                                  enum symm_algorithm planned,
                                  struct symm_selection *answer)
{
    struct symm_selection chosen = {.algorithm = SYMM_ALGORITHM_COPY_IN};
    symm_status status = symm__choose(q, &chosen);

    if (status != SYMM_OK || !may_replace(planned, chosen.algorithm) ||
        (q->cuda && symm__cuda_objection(q, chosen.algorithm, NULL)))
        return status;
    answer->algorithm = chosen.algorithm;
    if (chosen.algorithm == planned)
        return SYMM_OK;
    answer->fallback = false;
    answer->reason = "the plan is for sizes up to a bound, and for this size this "
                     "one is faster";
    return SYMM_OK;
}

symm_status symm__choose_planned(const struct symm_select_query *q,
                                 enum symm_algorithm algorithm, bool by_size,
                                 struct symm_selection *answer, uint32_t *barriers,
                                 uint32_t *extra)
{
    symm_status status = symm__numerics_check(q->numerics);

    if (status != SYMM_OK)
        return status;
    *answer = substitute(q, algorithm);
    if (by_size && !q->forced) {
        status = answer_by_size(q, algorithm, answer);
        if (status != SYMM_OK)
            return status;
    }
    /* Its barrier in the middle would have ordered reads of peers before the end. */
    if (algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL &&
        answer->algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL)
        *barriers |= SYMM_BARRIER_EXIT;
    *extra = q->cuda
                 ? *barriers & ~symm__cuda_barriers(q->kind, q->size, answer->algorithm)
                 : 0;
    return SYMM_OK;
}

/* ---- all_reduce_norm ------------------------------------------------------------------ */

symm_status symm__choose_norm(const struct symm_select_query *q,
                              struct symm_selection *answer, uint64_t *part)
{
    struct symm_select_query sum = *q;

    if (q->cuda && symm__cuda_choose_norm(q, answer, part) &&
        (q->forced || q->partial || symm__cuda_norm_fits(q, *part)))
        return SYMM_OK;
    if (q->cuda && q->partial && q->rows > 0)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "all_reduce_norm of %llu x %u %s over %d ranks%s%s: no kernel rounds every "
            "partial sum there; leave out SYMM_NORM_ROUND_PARTIAL%s",
            (unsigned long long)q->rows, q->hidden, symm_dtype_name(q->dtype), q->size,
            q->forced ? " by " : "", q->forced ? q->forced : "",
            q->forced ? " or the algorithm" : "");
    *part = 0;
    sum.kind = SYMM_KIND_ALL_REDUCE;
    return symm__choose(&sum, answer);
}

/* A fused kernel where there is one, since pushes touch no peer's arrays; else an all_reduce for
 * which the plan is safe. The rest then overwrites input or output: where peers touch these, the
 * plan has the exit barrier, as the checker of plans demands. */
symm_status symm__choose_planned_norm(const struct symm_select_query *q,
                                      enum symm_algorithm planned, bool by_size,
                                      struct symm_selection *answer, uint64_t *part,
                                      uint32_t *barriers, uint32_t *extra)
{
    struct symm_select_query sum = *q;

    if (q->cuda && (q->partial || symm__cuda_choose_norm(q, answer, part))) {
        *extra = *barriers;
        return symm__choose_norm(q, answer, part);
    }
    *part = 0;
    sum.kind = SYMM_KIND_ALL_REDUCE;
    return symm__choose_planned(&sum, planned, by_size, answer, barriers, extra);
}
