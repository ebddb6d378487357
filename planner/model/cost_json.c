/* SPDX-License-Identifier: MIT */
/*
 * cost_json.c - reads a "symm-costs/1" document:
 *   {"format": "symm-costs/1", "barrier_us": 1.5, "memory_us_per_gib": 16,
 *    "algorithms": {"ll_push": {"latency_us": 2.0, "bytes_per_us": 330000}, ...}}
 * and, in cost_curves_json.c, curves. Only algorithms that it names are chosen. All
 * numbers are finite and not negative, bytes_per_us is positive.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/cost.h"
#include "model/cost_curves.h"
#include "model/json_read.h"
#include "util/status.h"

static symm_status read_number(struct json_reader *reader, const json_t *value,
                               bool positive, double *number)
{
    double found = json_number_value(value);

    if (!json_is_number(value) || !isfinite(found) || found < 0 ||
        (positive && !(found > 0)))
        return symm__json_refuse(reader, value,
                                 positive ? "a number above 0" : "a number, 0 or more");
    *number = found;
    return SYMM_OK;
}

static symm_status read_line(struct json_reader *reader, const json_t *object,
                             const char *name, struct symm_cost_line *line)
{
    symm_status status;

    if (!json_is_object(object))
        return symm__json_refuse(reader, object, "an object");
    status = read_number(
        reader, symm__json_at(reader, object, "algorithms.%.40s.latency_us", name),
        false, &line->latency_us);
    if (status == SYMM_OK)
        status = read_number(
            reader,
            symm__json_at(reader, object, "algorithms.%.40s.bytes_per_us", name), true,
            &line->bytes_per_us);
    line->usable = status == SYMM_OK;
    return status;
}

static symm_status read_costs(struct json_reader *reader, const json_t *root,
                              struct symm_costs *costs)
{
    const json_t *value = symm__json_at(reader, root, "format");
    symm_status status;

    if (!json_is_string(value) || strcmp(json_string_value(value), "symm-costs/1") != 0)
        return symm__json_refuse(reader, value, "\"symm-costs/1\"");
    status = read_number(reader, symm__json_at(reader, root, "barrier_us"), false,
                         &costs->barrier_us);
    costs->memory_us_per_gib = symm__costs_built_in.memory_us_per_gib;
    value = symm__json_at(reader, root, "memory_us_per_gib");
    if (status == SYMM_OK && value)
        status = read_number(reader, value, false, &costs->memory_us_per_gib);
    value = symm__json_at(reader, root, "algorithms");
    if (status == SYMM_OK && !json_is_object(value))
        status =
            symm__json_refuse(reader, value, "an object of algorithms and their costs");
    for (int a = 0; a < SYMM_ALGORITHM_COUNT && status == SYMM_OK; a++) {
        const char *name = symm_algorithm_name((symm_algorithm)a);
        const json_t *line = symm__json_at(reader, value, "algorithms.%s", name);
        if (line)
            status = read_line(reader, line, name, &costs->lines[a]);
    }
    return status;
}

static symm_status make_costs(json_t *root, const char *name, symm_costs **costs)
{
    struct json_reader reader = {.file = name};
    struct symm_costs *made = calloc(1, sizeof(*made));
    symm_status status = SYMM_OK;

    if (!made)
        status = symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", name);
    else
        status = read_costs(&reader, root, made);
    if (status == SYMM_OK)
        status = symm__cost_curves_read(&reader, root, made);
    if (status == SYMM_OK)
        status = symm__json_value_hash(root, name, &made->hash);
    json_decref(root);
    if (status != SYMM_OK) {
        symm_costs_destroy(made);
        return status;
    }
    *costs = made;
    return SYMM_OK;
}

symm_status symm_costs_read(const char *path, symm_costs **costs)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!path || !costs)
        return symm__fail_null("symm_costs_read", path ? "costs" : "path");
    root = symm__json_file(path, &status);
    return root ? make_costs(root, path, costs) : status;
}

symm_status symm_costs_parse(const char *text, size_t length, const char *name,
                             symm_costs **costs)
{
    symm_status status = SYMM_OK;
    json_t *root;

    if (!text || !name || !costs)
        return symm__fail_null("symm_costs_parse", !text   ? "text"
                                                   : !name ? "name"
                                                           : "costs");
    root = symm__json_text(text, length, name, &status);
    return root ? make_costs(root, name, costs) : status;
}
