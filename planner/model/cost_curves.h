/* SPDX-License-Identifier: MIT */
/*
 * cost_curves.h - the measured part of a cost table. Only for files named *_json.c.
 */
#ifndef SYMM_PLANNER_MODEL_COST_CURVES_H
#define SYMM_PLANNER_MODEL_COST_CURVES_H

#include "model/cost.h"
#include "model/json_read.h"

/* "machine" and "measured"; a table without the latter is left as it is. */
symm_status symm__cost_curves_read(struct json_reader *reader, const json_t *root,
                                   struct symm_costs *costs) SYMM_MUST_CHECK;

#endif
