/* SPDX-License-Identifier: MIT */
/*
 * cost.c - curves and the model; see cost.h.
 *
 * The model's numbers are those of H200s with NVLink between all of them and of two cores of
 * one processor (docs/performance.md). It serves symm_explain where there is no table; the
 * choice is then made by thresholds, which were measured.
 */
#include "select/cost.h"

#include "select/select.h"

enum symm_cost_data symm__cost_data(enum symm_kind kind, symm_dtype dtype, symm_op op)
{
    bool is_float = dtype >= SYMM_FLOAT32 && dtype <= SYMM_FLOAT8_E5M2;

    if (kind != SYMM_KIND_ALL_REDUCE && kind != SYMM_KIND_REDUCE_SCATTER)
        return SYMM_COST_ANY;
    if (dtype == SYMM_INT32 && op == SYMM_SUM)
        return SYMM_COST_INT32;
    if (!is_float)
        return SYMM_COST_OTHER;
    if (op != SYMM_SUM)
        return SYMM_COST_FLOAT;
    if (dtype == SYMM_FLOAT32)
        return SYMM_COST_FLOAT32;
    return dtype == SYMM_FLOAT16 || dtype == SYMM_BFLOAT16 ? SYMM_COST_HALF
                                                           : SYMM_COST_FLOAT;
}

/* ---- Curves --------------------------------------------------------------------------- */

double symm__cost_at(const struct symm_cost_table *table,
                     const struct symm_cost_curve *curve, size_t bytes)
{
    const struct symm_cost_point *points = &table->points[curve->first];
    int low = 0, high = curve->count - 1;
    double x = (double)bytes, slope;

    if (x <= points[0].bytes)
        return points[0].us;
    if (high == 0) /* all that is known is a rate */
        return points[0].bytes > 0 ? points[0].us * x / points[0].bytes : points[0].us;
    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (points[middle].bytes < x)
            low = middle;
        else
            high = middle;
    }
    slope =
        (points[high].us - points[low].us) / (points[high].bytes - points[low].bytes);
    if (x > points[high].bytes && slope < 0) /* noise at the end of a curve */
        slope = 0;
    return x > points[high].bytes ? points[high].us + (x - points[high].bytes) * slope
                                  : points[low].us + (x - points[low].bytes) * slope;
}

/* Of this place, else of the other one; NULL: none. */
static const struct symm_cost_curve *find_curve_of(const struct symm_question *q,
                                                   enum symm_algorithm algorithm,
                                                   enum symm_cost_data data)
{
    /* what is in place at a broadcast's root is not with the others */
    const bool in_place = q->overlap && q->kind != SYMM_KIND_BROADCAST;
    const struct symm_cost_curve *found = NULL;

    for (int c = 0; q->costs && c < q->costs->curve_count; c++) {
        const struct symm_cost_curve *curve = &q->costs->curves[c];

        if (curve->kind != q->kind || curve->algorithm != algorithm ||
            curve->data != data || curve->ranks != q->size)
            continue;
        found = curve;
        if (curve->in_place == in_place)
            break;
    }
    return found;
}

/* A table of before int32 had kernels of its own has it among the others. */
static const struct symm_cost_curve *find_curve(const struct symm_question *q,
                                                enum symm_algorithm algorithm)
{
    const enum symm_cost_data data = symm__cost_data(q->kind, q->dtype, q->op);
    const struct symm_cost_curve *found = find_curve_of(q, algorithm, data);

    return found || data != SYMM_COST_INT32
               ? found
               : find_curve_of(q, algorithm, SYMM_COST_OTHER);
}

bool symm__cost_measured(const struct symm_question *q, enum symm_algorithm algorithm,
                         double *us)
{
    const struct symm_cost_curve *curve = find_curve(q, algorithm);

    if (!curve)
        return false;
    *us = symm__cost_at(q->costs, curve, q->bytes);
    return true;
}

double symm__cost_reach(const struct symm_question *q, enum symm_algorithm algorithm)
{
    const struct symm_cost_curve *curve = find_curve(q, algorithm);

    return curve ? q->costs->points[curve->first + curve->count - 1].bytes : -1;
}

/* ---- The model ------------------------------------------------------------------------ */

struct machine {
    double launch_us, hop_us; /* a hop: data that are their own flag */
    double barrier_us;        /* flags of all to all, with release and acquire */
    double bytes_per_us;      /* that a rank receives */
};

static const struct machine h200 = {0.58, 0.76, 1.34, 382e3};
static const struct machine cores = {0, 0.1, 0.1, 100e3};

static double received(const struct symm_question *q, enum symm_algorithm algorithm)
{
    double bytes = (double)q->bytes, peers = q->size - 1;

    if (q->kind == SYMM_KIND_BROADCAST)
        return bytes;
    if (q->kind != SYMM_KIND_ALL_REDUCE)
        return bytes * peers;
    switch (algorithm) {
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2 * bytes * peers / q->size;
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        return bytes;
    default:
        return bytes * peers;
    }
}

/* Hops and barriers on the way, and what else than the bytes themselves is moved. */
double symm__cost_model(const struct symm_question *q, enum symm_algorithm algorithm)
{
    const struct machine *machine = q->cuda ? &h200 : &cores;
    double time = machine->launch_us, bytes = received(q, algorithm);

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
        bytes += (double)q->bytes; /* into the stage */
        time += q->cuda ? 2 * machine->barrier_us : machine->barrier_us;
        break;
    default:
        time += 2 * machine->barrier_us;
        break;
    }
    return time + bytes / machine->bytes_per_us;
}
