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
#include "model/json_member.h"
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

struct reading {
    symm_costs_curve *curves;
    symm_costs_point *points; /* room for those of the curve in hand */
};

static void read_collective(struct json_members *at, symm_costs_curve *curve)
{
    const json_t *value = symm__member(at, "collective");

    for (int k = SYMM_PROGRAM_ALL_REDUCE; k <= SYMM_PROGRAM_ALL_TO_ALL; k++) {
        curve->collective = (symm_program_kind)k;
        if (json_is_string(value) &&
            strcmp(json_string_value(value),
                   symm_program_kind_name(curve->collective)) == 0)
            return;
    }
    symm__member_refuse(at, value,
                        "all_reduce reduce_scatter all_gather broadcast all_to_all");
}

static void read_algorithm(struct json_members *at, symm_costs_curve *curve)
{
    const json_t *value = symm__member(at, "algorithm");

    if (!json_is_string(value) ||
        symm_algorithm_parse(json_string_value(value), &curve->algorithm))
        symm__member_refuse(at, value, "an algorithm of a collective");
}

static void read_data(struct json_members *at, symm_costs_curve *curve)
{
    const json_t *value = symm__member(at, "data");
    const char *found = json_is_string(value) ? json_string_value(value) : "";
    const bool sums = symm__is_reduction(curve->collective);

#define TRY(id, number, name)                                                          \
    if (strcmp(found, name) == 0 && sums == (SYMM_COSTS_##id != SYMM_COSTS_ANY)) {     \
        curve->data = SYMM_COSTS_##id;                                                 \
        return;                                                                        \
    }
    SYMM_COSTS_DATA_MAP(TRY)
#undef TRY
    symm__member_refuse(at, value, sums ? "float32 half float int32 other" : "any");
}

static void read_points(struct json_members *at, symm_costs_curve *curve,
                        symm_costs_point *points)
{
    const json_t *list = symm__member(at, "points");
    double before = -1;

    if (at->status != SYMM_OK)
        return;
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > MOST_POINTS)
        at->status = symm__json_refuse(&at->json, list, "an array of 1 to %d points",
                                       MOST_POINTS);
    for (size_t p = 0; p < json_array_size(list) && at->status == SYMM_OK; p++) {
        const json_t *point =
            symm__json_at(&at->json, list, "measured[%zu].points[%zu]", at->index, p);
        const json_t *bytes = json_array_get(point, 0), *us = json_array_get(point, 1);

        if (json_array_size(point) != 2 || !json_is_integer(bytes) ||
            json_integer_value(bytes) < 0 || json_integer_value(bytes) > MOST_BYTES ||
            !((double)json_integer_value(bytes) > before) || !json_is_number(us) ||
            !isfinite(json_number_value(us)) || !(json_number_value(us) > 0))
            symm__member_refuse(at, point,
                                "[bytes, us]: bytes above those before it, us above 0");
        before = (double)json_integer_value(bytes);
        points[p] = (symm_costs_point){before, json_number_value(us)};
    }
    curve->points = points;
    curve->count = (int)json_array_size(list);
}

static void check_alone(struct json_members *at, const symm_costs_curve *curves)
{
    const symm_costs_curve *mine = &curves[at->index];

    for (size_t other = 0; other < at->index && at->status == SYMM_OK; other++) {
        const symm_costs_curve *curve = &curves[other];

        if (curve->collective == mine->collective && curve->ranks == mine->ranks &&
            curve->algorithm == mine->algorithm && curve->data == mine->data &&
            curve->in_place == mine->in_place) {
            symm__json_at(&at->json, at->object, "measured[%zu]", at->index);
            at->status = symm__json_refuse(
                &at->json, at->object,
                "one curve of each kind; measured[%zu] is of this one", other);
        }
    }
}

static void read_curve(struct json_members *at, void *arg)
{
    struct reading *reading = arg;
    symm_costs_curve *curve = &reading->curves[at->index];

    curve->size = sizeof(*curve);
    read_collective(at, curve);
    read_algorithm(at, curve);
    read_data(at, curve);
    symm__take_flag(at, "in_place", &curve->in_place);
    symm__take_int(at, "ranks", 2, 1 << 16, &curve->ranks);
    read_points(at, curve, reading->points);
    reading->points += curve->count;
    check_alone(at, reading->curves);
}

symm_status symm__cost_curves_read(struct json_reader *reader, const json_t *root,
                                   struct symm_costs *costs)
{
    struct json_members at = {.json = {.file = reader->file}, .object = root};
    const json_t *list = json_object_get(root, "measured");
    struct reading reading = {NULL, NULL};
    size_t curves, count = 0;

    if (!list)
        return SYMM_OK;
    symm__take_list(&at, root, "measured", MOST_CURVES, &curves);
    if (at.status == SYMM_OK)
        at.status = read_machine(&at.json, root, costs);
    if (at.status != SYMM_OK)
        return at.status;
    for (size_t c = 0; c < curves; c++)
        count += json_array_size(json_object_get(json_array_get(list, c), "points"));
    reading.curves = calloc(1, curves * sizeof(*reading.curves) +
                                   (count + 1) * sizeof(*reading.points));
    if (!reading.curves)
        return symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", reader->file);
    costs->curves = costs->memory = reading.curves;
    costs->curve_count = (int)curves;
    reading.points = (symm_costs_point *)(reading.curves + curves);
    symm__take_each(&at, list, "measured", read_curve, &reading);
    return at.status;
}
