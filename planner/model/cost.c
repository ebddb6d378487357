/* SPDX-License-Identifier: MIT */
/*
 * cost.c - see cost.h.
 */
#include "model/cost.h"

#include <stdlib.h>

#include "model/program_private.h"
#include "util/status.h"

void symm_costs_destroy(symm_costs *costs)
{
    if (!costs)
        return;
    for (int m = 0; costs->machines[m]; m++)
        free(costs->machines[m]);
    free(costs->memory);
    free(costs);
}

symm_status symm_costs_curve_at(const symm_costs *costs, int index,
                                symm_costs_curve *curve)
{
    if (!costs || !curve)
        return symm__fail_null("symm_costs_curve_at", costs ? "curve" : "costs");
    if (curve->size != sizeof(*curve))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_costs_curve_at: curve->size is %zu; set it to "
                          "sizeof(symm_costs_curve), %zu",
                          curve->size, sizeof(*curve));
    if (index < 0 || index >= costs->curve_count)
        return symm__fail_quiet(SYMM_ERR_NOT_FOUND, "no curve has this index");
    *curve = costs->curves[index];
    return SYMM_OK;
}

const char *const *symm_costs_machines(const symm_costs *costs)
{
    return costs ? (const char *const *)costs->machines : NULL;
}

symm_status symm_costs_hash(const symm_costs *costs, uint64_t *hash)
{
    if (!costs || !hash)
        return symm__fail_null("symm_costs_hash", costs ? "hash" : "costs");
    *hash = costs->hash;
    return SYMM_OK;
}

static struct symm_cost_call as_cost_call(const symm_program *program,
                                          const symm_program_op *op)
{
    const symm_program_kind kind = symm__kind_of_sum(op->kind);
    struct symm_cost_call call = {
        .collective = kind,
        .data = symm__cost_data(kind, op->dtype, op->reduce),
        .in_place = op->out == op->in,
        .ranks = program->partitions[op->partition].length,
        .bytes = (double)op->count,
    };

    if (op->kind != SYMM_PROGRAM_PUT)
        call.bytes *= (double)symm_dtype_size(op->dtype);
    if (op->kind == SYMM_PROGRAM_REDUCE_SCATTER || op->kind == SYMM_PROGRAM_ALL_TO_ALL)
        call.bytes /= call.ranks; /* of the input's blocks */
    return call;
}

double symm__cost_op(const struct symm_costs *costs, const symm_program *program,
                     const symm_program_op *op, symm_algorithm algorithm)
{
    const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT];
    struct symm_cost_call call;

    if (!symm__is_communication(op->kind))
        return 0;
    call = as_cost_call(program, op);
    symm__cost_curves(costs, &call, curves);
    return symm__cost_body(costs, &call, algorithm, curves[algorithm]);
}

/* The barriers that a collective needs at least: one before it, since the data must be there, and
 * one after it if peers write, or if the rank overwrites what peers read. After a one-shot pull any
 * other op's entry barrier serves, if it comes before `in` is written again: that pull needs one of
 * its own only where it is alone in its period (two_shot_pull has it inside). */
static int least_barriers(const symm_program_op *op, symm_algorithm algorithm)
{
    const struct traits traits = symm__op_traits(op, algorithm);

    if (!traits.entry)
        return 0;
    return traits.must_exit || algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
                   algorithm == SYMM_ALGORITHM_COPY_ENGINE ||
                   algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT
               ? 2
               : 1;
}

symm_algorithm symm__cost_choose(const struct symm_costs *costs,
                                 const symm_program *program, const symm_program_op *op,
                                 bool local)
{
    const struct symm_cost_call call = as_cost_call(program, op);
    const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT];
    bool candidates[SYMM_ALGORITHM_COUNT] = {false};
    symm_algorithm best = SYMM_ALGORITHM_COUNT;
    double least = -1;

    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++)
        candidates[a] = costs->lines[a].usable &&
                        !symm__algorithm_objection(op, (symm_algorithm)a) &&
                        !(local && symm__op_traits(op, (symm_algorithm)a).entry);
    symm__cost_curves(costs, &call, curves);
    (void)symm__cost_keep_measured(curves, call.bytes, candidates);
    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        const symm_algorithm algorithm = (symm_algorithm)a;
        double time = symm__cost_body(costs, &call, algorithm, curves[a]) +
                      costs->barrier_us * least_barriers(op, algorithm);

        if (!candidates[a] || (least >= 0 && time >= least))
            continue;
        least = time;
        best = algorithm;
    }
    return best;
}
