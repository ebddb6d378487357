/* SPDX-License-Identifier: MIT */
/*
 * cost_curves_json.c - reads what "symm-costs/1" may have beside the lines of cost_json.c:
 *   "machine": {"key": "cuda: NVIDIA H200, 132 multiprocessors", "also": ["..."], ...},
 *   "measured": [{"collective": "all_reduce", "algorithm": "ll_push", "data": "half",
 *                 "in_place": false, "ranks": 8, "points": [[8, 2.1], [16, 2.1]]}, ...]
 * Refuses points that do not ascend, times that are not above 0, two curves of one kind, and
 * curves without the machine they are for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/cost_curves.h"
#include "model/program_private.h"
#include "util/status.h"

#define MOST_CURVES 8192
#define MOST_POINTS 1024 /* of a curve */
#define MOST_BYTES  ((int64_t)1 << 48)

static symm_status add_machine(struct json_reader *reader, const json_t *value, int m,
                               struct symm_costs *costs)
{
    const char *name;
    symm_status status = symm__json_name(reader, value, &name);

    if (status != SYMM_OK)
        return status;
    costs->machines[m] = strdup(name);
    return costs->machines[m]
               ? SYMM_OK
               : symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", reader->file);
}

static symm_status read_machine(struct json_reader *reader, const json_t *root,
                                struct symm_costs *costs)
{
    const json_t *machine = symm__json_at(reader, root, "machine"), *also;
    symm_status status;

    if (!json_is_object(machine))
        return symm__json_refuse(reader, machine, "an object with the machine's key");
    status =
        add_machine(reader, symm__json_at(reader, machine, "machine.key"), 0, costs);
    if (status != SYMM_OK)
        return status;
    also = symm__json_at(reader, machine, "machine.also");
    if (also && (!json_is_array(also) || json_array_size(also) >= SYMM_COST_MACHINES))
        return symm__json_refuse(reader, also, "an array of fewer than %d keys",
                                 SYMM_COST_MACHINES);
    for (int m = 0; status == SYMM_OK && m < (int)json_array_size(also); m++)
        status = add_machine(reader, symm__json_at(reader, also, "machine.also[%d]", m),
                             m + 1, costs);
    return status;
}

/* ---- One curve ------------------------------------------------------------------------ */

static symm_status read_collective(struct json_reader *reader, const json_t *value,
                                   symm_costs_curve *curve)
{
    for (int k = SYMM_PROGRAM_ALL_REDUCE; k <= SYMM_PROGRAM_ALL_TO_ALL; k++)
        if (json_is_string(value) &&
            strcmp(json_string_value(value),
                   symm_program_kind_name((symm_program_kind)k)) == 0) {
            curve->collective = (symm_program_kind)k;
            return SYMM_OK;
        }
    return symm__json_refuse(
        reader, value, "all_reduce reduce_scatter all_gather broadcast all_to_all");
}

static symm_status read_algorithm(struct json_reader *reader, const json_t *value,
                                  symm_costs_curve *curve)
{
    for (int a = 0; json_is_string(value) && a < SYMM_ALGORITHM_PUT; a++)
        if (strcmp(json_string_value(value), symm_algorithm_name((symm_algorithm)a)) ==
            0) {
            curve->algorithm = (symm_algorithm)a;
            return SYMM_OK;
        }
    return symm__json_refuse(reader, value, "an algorithm of a collective");
}

static symm_status read_data(struct json_reader *reader, const json_t *value,
                             symm_costs_curve *curve)
{
    const char *found = json_is_string(value) ? json_string_value(value) : "";
    bool sums = symm__is_reduction(curve->collective);

#define TRY(id, number, name)                                                          \
    if (strcmp(found, name) == 0 && sums == (SYMM_COSTS_##id != SYMM_COSTS_ANY)) {     \
        curve->data = SYMM_COSTS_##id;                                                 \
        return SYMM_OK;                                                                \
    }
    SYMM_COSTS_DATA_MAP(TRY)
#undef TRY
    return symm__json_refuse(reader, value,
                             sums ? "float32 half float int32 other" : "any");
}

static symm_status read_points(struct json_reader *reader, const json_t *list, int c,
                               symm_costs_curve *curve, symm_costs_point *points)
{
    double before = -1;

    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > MOST_POINTS)
        return symm__json_refuse(reader, list, "an array of 1 to %d points",
                                 MOST_POINTS);
    for (int p = 0; p < (int)json_array_size(list); p++) {
        const json_t *point =
            symm__json_at(reader, list, "measured[%d].points[%d]", c, p);
        const json_t *bytes = json_array_get(point, 0), *us = json_array_get(point, 1);

        if (json_array_size(point) != 2 || !json_is_integer(bytes) ||
            json_integer_value(bytes) < 0 || json_integer_value(bytes) > MOST_BYTES ||
            !((double)json_integer_value(bytes) > before) || !json_is_number(us) ||
            !isfinite(json_number_value(us)) || !(json_number_value(us) > 0))
            return symm__json_refuse(
                reader, point, "[bytes, us]: bytes above those before it, us above 0");
        before = (double)json_integer_value(bytes);
        points[p] = (symm_costs_point){before, json_number_value(us)};
    }
    curve->points = points;
    curve->count = (int)json_array_size(list);
    return SYMM_OK;
}

static symm_status read_curve(struct json_reader *reader, const json_t *object, int c,
                              symm_costs_curve *curve, symm_costs_point *points)
{
    int64_t ranks = 0;
    symm_status status;

    if (!json_is_object(object))
        return symm__json_refuse(reader, object, "an object");
    curve->size = sizeof(*curve);
    status = read_collective(
        reader, symm__json_at(reader, object, "measured[%d].collective", c), curve);
    if (status == SYMM_OK)
        status = read_algorithm(
            reader, symm__json_at(reader, object, "measured[%d].algorithm", c), curve);
    if (status == SYMM_OK)
        status = read_data(
            reader, symm__json_at(reader, object, "measured[%d].data", c), curve);
    if (status == SYMM_OK)
        status = symm__json_flag(
            reader, symm__json_at(reader, object, "measured[%d].in_place", c),
            &curve->in_place);
    if (status == SYMM_OK)
        status = symm__json_integer(
            reader, symm__json_at(reader, object, "measured[%d].ranks", c), 2, 1 << 16,
            &ranks);
    curve->ranks = (int)ranks;
    return status == SYMM_OK
               ? read_points(reader,
                             symm__json_at(reader, object, "measured[%d].points", c), c,
                             curve, points)
               : status;
}

static symm_status check_alone(struct json_reader *reader, const json_t *list, int c,
                               const symm_costs_curve *curves)
{
    const symm_costs_curve *mine = &curves[c];

    for (int other = 0; other < c; other++) {
        const symm_costs_curve *curve = &curves[other];

        if (curve->collective == mine->collective && curve->ranks == mine->ranks &&
            curve->algorithm == mine->algorithm && curve->data == mine->data &&
            curve->in_place == mine->in_place)
            return symm__json_refuse(
                reader, symm__json_at(reader, list, "measured[%d]", c),
                "one curve of each kind; measured[%d] is of this one", other);
    }
    return SYMM_OK;
}

symm_status symm__cost_curves_read(struct json_reader *reader, const json_t *root,
                                   struct symm_costs *costs)
{
    const json_t *list = symm__json_at(reader, root, "measured");
    symm_costs_curve *curves;
    symm_costs_point *points;
    size_t count = 0;
    symm_status status;

    if (!list)
        return SYMM_OK;
    if (!json_is_array(list) || json_array_size(list) > MOST_CURVES)
        return symm__json_refuse(reader, list, "an array of at most %d curves",
                                 MOST_CURVES);
    status = read_machine(reader, root, costs);
    if (status != SYMM_OK)
        return status;
    for (size_t c = 0; c < json_array_size(list); c++)
        count += json_array_size(json_object_get(json_array_get(list, c), "points"));
    curves = calloc(1, json_array_size(list) * sizeof(*curves) +
                           (count + 1) * sizeof(*points));
    if (!curves)
        return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", reader->file);
    costs->curves = costs->memory = curves;
    points = (symm_costs_point *)(curves + json_array_size(list));
    for (int c = 0; status == SYMM_OK && c < (int)json_array_size(list); c++) {
        status = read_curve(reader, symm__json_at(reader, list, "measured[%d]", c), c,
                            &curves[c], points);
        if (status == SYMM_OK)
            status = check_alone(reader, list, c, curves);
        points += curves[c].count;
        costs->curve_count = c + 1;
    }
    return status;
}
