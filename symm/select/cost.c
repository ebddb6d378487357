/* SPDX-License-Identifier: MIT */
/*
 * cost.c - curves and the model; see cost.h.
 *
 * The built-in lines stand for H200s with NVLink between all of them, and for two cores of one
 * processor. Plans without a table are made by the former; symm_explain estimates by them where
 * there is no table, and the choice of a call is then made by thresholds, which were measured.
 */
#include "select/cost.h"

#include "util/dtype.h"

#define LEAST_US 0.01 /* of a call without its barriers */

symm_costs_data symm__cost_data(symm_program_kind collective, symm_dtype dtype,
                                symm_op op)
{
    bool is_float = symm__dtype_is_float(dtype) && dtype != SYMM_FLOAT64;

    if (collective != SYMM_PROGRAM_ALL_REDUCE &&
        collective != SYMM_PROGRAM_REDUCE_SCATTER)
        return SYMM_COSTS_ANY;
    if (dtype == SYMM_INT32 && op == SYMM_SUM)
        return SYMM_COSTS_INT32;
    if (!is_float)
        return SYMM_COSTS_OTHER;
    if (op != SYMM_SUM)
        return SYMM_COSTS_FLOAT;
    if (dtype == SYMM_FLOAT32)
        return SYMM_COSTS_FLOAT32;
    return dtype == SYMM_FLOAT16 || dtype == SYMM_BFLOAT16 ? SYMM_COSTS_HALF
                                                           : SYMM_COSTS_FLOAT;
}

/* ---- Curves --------------------------------------------------------------------------- */

double symm__cost_at(const symm_costs_curve *curve, double bytes)
{
    const symm_costs_point *points = curve->points;
    int low = 0, high = curve->count - 1;
    double slope;

    if (bytes <= points[0].bytes)
        return points[0].us;
    if (high == 0) /* a single point: only a rate is known */
        return points[0].bytes > 0 ? points[0].us * bytes / points[0].bytes
                                   : points[0].us;
    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (points[middle].bytes < bytes)
            low = middle;
        else
            high = middle;
    }
    slope =
        (points[high].us - points[low].us) / (points[high].bytes - points[low].bytes);
    if (bytes > points[high].bytes && slope < 0) /* noise at the end of a curve */
        slope = 0;
    return bytes > points[high].bytes
               ? points[high].us + (bytes - points[high].bytes) * slope
               : points[low].us + (bytes - points[low].bytes) * slope;
}

/* A table made before int32 had kernels of its own has it among the others. */
static bool has_data(const symm_costs_curve *curve, const struct symm_cost_call *call)
{
    return curve->data == call->data ||
           (curve->data == SYMM_COSTS_OTHER && call->data == SYMM_COSTS_INT32);
}

/* How well a curve of the call fits it: its own kind of data before its own place. */
static int fit(const symm_costs_curve *curve, const struct symm_cost_call *call)
{
    /* a broadcast that is in place at its root is not so on the others */
    const bool in_place = call->in_place && call->collective != SYMM_PROGRAM_BROADCAST;

    return 2 * (curve->data == call->data) + (curve->in_place == in_place);
}

void symm__cost_curves(const symm_costs *costs, const struct symm_cost_call *call,
                       const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT])
{
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
        curves[a] = NULL;
    for (int c = 0; costs && c < costs->curve_count; c++) {
        const symm_costs_curve *curve = &costs->curves[c];
        const symm_costs_curve **found = &curves[curve->algorithm];

        if (curve->collective == call->collective && curve->ranks == call->ranks &&
            has_data(curve, call) && (!*found || fit(curve, call) > fit(*found, call)))
            *found = curve;
    }
}

static double last_bytes(const symm_costs_curve *curve)
{
    return curve->points[curve->count - 1].bytes;
}

bool symm__cost_keep_measured(
    const symm_costs_curve *const curves[SYMM_ALGORITHM_COUNT], double bytes,
    bool candidates[SYMM_ALGORITHM_COUNT])
{
    double reach = -1;

    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
        if (candidates[a] && curves[a] && last_bytes(curves[a]) > reach)
            reach = last_bytes(curves[a]);
    if (reach < 0)
        return false;
    if (reach > bytes)
        reach = bytes;
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
        candidates[a] = candidates[a] && curves[a] && last_bytes(curves[a]) >= reach;
    return true;
}

/* ---- The model ------------------------------------------------------------------------ */

/* Algorithms that are not usable (those of the switch and the engine) run only where another
 * check has found that they can. The engine's line is NCCL's of engine.c. */
const symm_costs symm__costs_built_in = {
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
        [SYMM_ALGORITHM_COPY_ENGINE] = {false, 2.5, 350e3},
        [SYMM_ALGORITHM_MULTIMEM_ONE_SHOT] = {false, 2.0, 380e3},
        [SYMM_ALGORITHM_MULTIMEM_TWO_SHOT] = {false, 2.5, 380e3},
        [SYMM_ALGORITHM_ENGINE] = {false, 20, 298e3},
        [SYMM_ALGORITHM_PUT] = {true, 1.5, 350e3},
    }};

/* Two ranks on two CPUs of a virtual machine (Intel Xeon, AVX-512), all_reduce of 512 B to 16 KiB in
 * float32, 29 November 2026. The lines cross at the threshold of select.c. */
const symm_costs symm__costs_cores = {
    .barrier_us = 0.28,
    .lines = {
        [SYMM_ALGORITHM_ONE_SHOT_PULL] = {true, 0, 3.3e3},
        [SYMM_ALGORITHM_TWO_SHOT_INPLACE] = {true, 0, 5e3},
        [SYMM_ALGORITHM_COPY_IN] = {true, 0.3, 2.6e3},
        [SYMM_ALGORITHM_ENGINE] = {false, 0.4, 2.6e3},
    }};

/* Bytes that a rank receives. */
static double received(const struct symm_cost_call *call, symm_algorithm algorithm)
{
    const double bytes = call->bytes, peers = call->ranks - 1;
    const double twice = algorithm == SYMM_ALGORITHM_LL_PUSH ? 2 : 1; /* flags */

    if (call->collective == SYMM_PROGRAM_PUT ||
        call->collective == SYMM_PROGRAM_BROADCAST)
        return twice * bytes;
    if (call->collective != SYMM_PROGRAM_ALL_REDUCE)
        return twice * bytes * peers;
    switch (algorithm) {
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2 * bytes * peers / call->ranks;
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        return bytes;
    default:
        return twice * bytes * peers;
    }
}

/* The barriers that a call has when no plan leaves them out; symm-perf --tune counts the same. */
static double own_barriers_us(const symm_costs *costs, symm_algorithm algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_COPY_ENGINE:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2 * costs->barrier_us;
    case SYMM_ALGORITHM_TWO_SHOT_PULL: /* its line contains the barrier in the middle */
        return costs->barrier_us;
    default:
        return 0;
    }
}

double symm__cost_body(const symm_costs *costs, const struct symm_cost_call *call,
                       symm_algorithm algorithm, const symm_costs_curve *curve)
{
    const struct symm_cost_line *line = &costs->lines[algorithm];
    double us;

    if (curve) {
        us = symm__cost_at(curve, call->bytes) - own_barriers_us(costs, algorithm);
        return us > LEAST_US ? us : LEAST_US;
    }
    /* a forced algorithm, or a put, that the table lacks */
    if (!(line->bytes_per_us > 0))
        line = &symm__costs_built_in.lines[algorithm];
    return line->latency_us + received(call, algorithm) / line->bytes_per_us;
}

double symm__cost_alone(const symm_costs *costs, const struct symm_cost_call *call,
                        symm_algorithm algorithm, const symm_costs_curve *curve)
{
    return curve ? symm__cost_at(curve, call->bytes)
                 : symm__cost_body(costs, call, algorithm, NULL) +
                       own_barriers_us(costs, algorithm);
}
