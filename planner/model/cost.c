/* SPDX-License-Identifier: MIT */
/*
 * cost.c - see cost.h. The built-in model stands for GPUs of one host with NVLink, where a
 * flag goes one way in 0.76 us and a rank receives up to 382 GB/s.
 */
#include "model/cost.h"

#include <stdlib.h>

#include "model/program_private.h"
#include "util/status.h"

const struct symm_costs symm__costs_built_in = {
    .barrier_us = 1.5,
    .memory_us_per_gib = 16,
    .lines = {
        [SYMM_ALGORITHM_LL_PUSH] = {true, 2.0, 330e3},
        [SYMM_ALGORITHM_LAMPORT_PUSH] = {true, 2.1, 250e3},
        [SYMM_ALGORITHM_TWO_SHOT_PUSH] = {true, 4.0, 300e3},
        [SYMM_ALGORITHM_ONE_SHOT_PULL] = {true, 2.0, 350e3},
        [SYMM_ALGORITHM_TWO_SHOT_PULL] = {true, 4.0, 350e3},
        [SYMM_ALGORITHM_TWO_SHOT_INPLACE] = {true, 2.5, 370e3},
        [SYMM_ALGORITHM_COPY_IN] = {true, 2.5, 150e3},
        [SYMM_ALGORITHM_PUT] = {true, 1.5, 350e3},
    }};

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
    static const char *const none[] = {NULL};

    if (!costs)
        return none;
    return (const char *const *)costs->machines;
}

uint64_t symm_costs_hash(const symm_costs *costs)
{
    return costs ? costs->hash : 0;
}

/* Bytes that a rank receives. */
static double moved(const symm_program *program, const symm_program_op *op,
                    symm_algorithm algorithm)
{
    const double size = program->groups[op->group].length;
    const double bytes = (double)op->count * (double)symm_dtype_size(op->dtype);
    const double twice =
        algorithm == SYMM_ALGORITHM_LL_PUSH ? 2 : 1; /* a flag a word */

    switch (op->kind) {
    case SYMM_PROGRAM_PUT:
        return (double)op->count;
    case SYMM_PROGRAM_ALL_REDUCE:
        if (algorithm == SYMM_ALGORITHM_TWO_SHOT_PUSH ||
            algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL ||
            algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
            algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT)
            return 2 * bytes * (size - 1) / size;
        if (algorithm == SYMM_ALGORITHM_MULTIMEM_ONE_SHOT)
            return bytes;
        return twice * bytes * (size - 1);
    case SYMM_PROGRAM_ALL_GATHER:
        return twice * bytes * (size - 1);
    case SYMM_PROGRAM_BROADCAST:
        return twice * bytes;
    default:
        return twice * bytes * (size - 1) / size;
    }
}

double symm__cost_op(const struct symm_costs *costs, const symm_program *program,
                     const symm_program_op *op, symm_algorithm algorithm)
{
    const struct symm_cost_line *line = &costs->lines[algorithm];
    const struct symm_cost_line *known =
        &symm__costs_built_in.lines[SYMM_ALGORITHM_COPY_IN];

    if (op->kind != SYMM_PROGRAM_PUT && !symm__is_collective(op->kind))
        return 0;
    if (!line->usable) /* forced, or a put that the table leaves out */
        line = known;
    return line->latency_us + moved(program, op, algorithm) / line->bytes_per_us;
}

symm_algorithm symm__cost_choose(const struct symm_costs *costs,
                                 const symm_program *program, const symm_program_op *op,
                                 bool local)
{
    symm_algorithm best = SYMM_ALGORITHM_COUNT;
    double least = -1;

    for (int a = 0; a < SYMM_ALGORITHM_PUT; a++) {
        symm_algorithm algorithm = (symm_algorithm)a;
        struct traits traits = symm__op_traits(op, algorithm);
        double time;

        if (!costs->lines[a].usable || symm__algorithm_objection(op, algorithm) ||
            (local && traits.entry))
            continue;
        time = symm__cost_op(costs, program, op, algorithm);
        if (traits.entry) /* the data are there, and if peers write: have arrived */
            time += costs->barrier_us *
                    (algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
                             algorithm == SYMM_ALGORITHM_COPY_ENGINE ||
                             algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT
                         ? 2
                         : 1);
        if (least >= 0 && time >= least)
            continue;
        least = time;
        best = algorithm;
    }
    return best;
}
