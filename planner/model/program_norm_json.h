/* SPDX-License-Identifier: MIT */
/*
 * program_norm_json.h - reads what an all_reduce_norm has beside the members of its op.
 */
#ifndef SYMM_PLANNER_MODEL_PROGRAM_NORM_JSON_H
#define SYMM_PLANNER_MODEL_PROGRAM_NORM_JSON_H

#include "model/json_member.h"
#include "symm/plan.h"

/* Adds the op's `norm` to the program. The op is the object in hand. */
void symm__norm_read(struct json_members *at, symm_program *program, int *index);

#endif
