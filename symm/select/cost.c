/* SPDX-License-Identifier: MIT */
/*
 * cost.c - curves and the model; see cost.h.
 *
 * The model's numbers are those of H200s with NVLink between all of them and of two cores of
 * one processor (docs/performance.md). It serves symm_explain where there is no table; the
 * choice is then made by thresholds, which were measured.
 */
#include "select/cost.h"

symm_costs_data symm__cost_data(symm_program_kind collective, symm_dtype dtype,
                                symm_op op)
{
    bool is_float = dtype >= SYMM_FLOAT32 && dtype <= SYMM_FLOAT8_E5M2;

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
    if (high == 0) /* all that is known is a rate */
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
    /* what is in place at a broadcast's root is not with the others */
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

struct machine {
    double launch_us, hop_us; /* a hop: data that are their own flag */
    double barrier_us;        /* flags of all to all, with release and acquire */
    double bytes_per_us;      /* that a rank receives */
};

static const struct machine h200 = {0.58, 0.76, 1.34, 382e3};
static const struct machine cores = {0, 0.1, 0.1, 100e3};

static double received(const struct symm_cost_call *call, symm_algorithm algorithm)
{
    double bytes = call->bytes, peers = call->ranks - 1;

    if (call->collective == SYMM_PROGRAM_BROADCAST)
        return bytes;
    if (call->collective != SYMM_PROGRAM_ALL_REDUCE)
        return bytes * peers;
    switch (algorithm) {
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2 * bytes * peers / call->ranks;
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        return bytes;
    default:
        return bytes * peers;
    }
}

/* Hops and barriers on the way, and what else than the bytes themselves is moved. */
double symm__cost_model(const struct symm_cost_call *call, symm_algorithm algorithm,
                        bool cuda)
{
    const struct machine *machine = cuda ? &h200 : &cores;
    double time = machine->launch_us, bytes = received(call, algorithm);

    switch (algorithm) {
    case SYMM_ALGORITHM_LL_PUSH:
        bytes *= 2; /* a flag beside each word */
        time += machine->hop_us;
        break;
    case SYMM_ALGORITHM_LAMPORT_PUSH:
        time += machine->hop_us;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
        time += 2 * machine->hop_us;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        time += 3 * machine->barrier_us;
        break;
    case SYMM_ALGORITHM_COPY_IN:
        bytes += call->bytes; /* into the stage */
        time += cuda ? 2 * machine->barrier_us : machine->barrier_us;
        break;
    default:
        time += 2 * machine->barrier_us;
        break;
    }
    return time + bytes / machine->bytes_per_us;
}
