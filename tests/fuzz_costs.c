/* SPDX-License-Identifier: MIT */
/*
 * fuzz_costs.c - arbitrary text as cost tables: lines and curves (fuzz.h).
 *
 * Of a table that is taken, curves must be asked for any call: each cost is a number that is not
 * negative, and a candidate with the longest curve stays. Read again it has the same hash.
 */
#include <math.h>

#include "fuzz.h"
#include "select/cost.h"
#include "symm/plan.h"

static const double sizes[] = {0, 1, 8, 1000, 65536, 1 << 20, 1e9, 1e12};

static void ask_call(const symm_costs *costs, const struct symm_cost_call *call)
{
    const symm_costs_curve *curves[SYMM_ALGORITHM_COUNT];
    bool candidates[SYMM_ALGORITHM_COUNT], any = false, had = false;

    symm__cost_curves(costs, call, curves);
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++) {
        double alone = symm__cost_alone(costs, call, (symm_algorithm)a, curves[a]);
        double body = symm__cost_body(costs, call, (symm_algorithm)a, curves[a]);

        fuzz_must(!isnan(alone) && alone >= 0, "a cost is not negative", NULL);
        fuzz_must(!isnan(body) && body >= 0, "a cost without barriers is not negative",
                  NULL);
        candidates[a] = true;
        had = had || curves[a];
    }
    fuzz_must(symm__cost_keep_measured(curves, call->bytes, candidates) == had,
              "candidates are judged where there is a curve", NULL);
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
        any = any || candidates[a];
    fuzz_must(any, "a candidate stays", NULL);
}

static void ask_curve(const symm_costs *costs, int index)
{
    symm_costs_curve curve = {.size = sizeof(curve)};
    struct symm_cost_call call;

    fuzz_must(symm_costs_curve_at(costs, index, &curve) == SYMM_OK, "curve_at",
              symm_last_error());
    fuzz_must(curve.count > 0 && (unsigned)curve.algorithm < SYMM_ALGORITHM_COUNT,
              "a curve has points and an algorithm", NULL);
    for (int p = 1; p < curve.count; p++)
        fuzz_must(curve.points[p].bytes > curve.points[p - 1].bytes, "points ascend",
                  NULL);
    call = (struct symm_cost_call){.collective = curve.collective,
                                   .data = curve.data,
                                   .in_place = curve.in_place,
                                   .ranks = curve.ranks};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        call.bytes = sizes[s];
        ask_call(costs, &call);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    symm_costs *costs, *again;
    symm_costs_curve none = {.size = sizeof(none)};
    uint64_t hash, second;

    if (symm_costs_parse((const char *)data, size, "fuzz", &costs) != SYMM_OK) {
        fuzz_must(symm_last_error()[0], "a refusal has a sentence", NULL);
        return 0;
    }
    fuzz_must(symm_costs_parse((const char *)data, size, "fuzz", &again) == SYMM_OK,
              "parse again", symm_last_error());
    fuzz_must(symm_costs_hash(costs, &hash) == SYMM_OK &&
                  symm_costs_hash(again, &second) == SYMM_OK && hash == second,
              "the hash is the text's", NULL);
    for (int i = 0; i < costs->curve_count && i < 32; i++)
        ask_curve(costs, i);
    fuzz_must(symm_costs_curve_at(costs, costs->curve_count, &none) != SYMM_OK,
              "there are no more curves", NULL);
    for (const char *const *name = symm_costs_machines(costs); *name; name++)
        fuzz_must((*name)[0], "a machine has a name", NULL);
    symm_costs_destroy(again);
    symm_costs_destroy(costs);
    return 0;
}
