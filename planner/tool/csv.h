/* SPDX-License-Identifier: MIT */
/*
 * csv.h - lifetimes of buffers as CSV: id,lower,upper,size.
 *
 * Refuses anything malformed with one line on stderr: file, line, what was found, what
 * is allowed.
 */
#ifndef SYMM_PLANNER_TOOL_CSV_H
#define SYMM_PLANNER_TOOL_CSV_H

#include <stdbool.h>

#include "symm/plan.h"

#define LIFETIMES_MAX 1000000

struct lifetimes {
    int count, room;
    char **ids; /* owned */
    symm_pack_item *items;
};

/* False: a line on stderr says why; *lifetimes is untouched. */
bool symm_plan_csv_read(const char *path, struct lifetimes *lifetimes);
/* The same with ,offset appended; NULL: to stdout. After an error no file is left. */
bool symm_plan_csv_write(const char *path, const struct lifetimes *lifetimes,
                         const int64_t *offsets);
void symm_plan_csv_free(struct lifetimes *lifetimes);

#endif
