/* SPDX-License-Identifier: MIT */
/*
 * dump.h - a rank's page as a member of a JSON document of format "symm-dump/1", which
 * symm-info(1) describes: by symm-info for running ranks, by a rank itself when a team fails.
 */
#ifndef SYMM_SIGHT_DUMP_H
#define SYMM_SIGHT_DUMP_H

#include <stdbool.h>

#include "sight/read.h"
#include "util/emit.h"

#define SYMM_DUMP_FORMAT "symm-dump/1"

/* What the page does not have of its process. */
struct symm_sight_process {
    int pid; /* in the reader's namespace */
    const char *command, *state;
};

/* As a map: the rank with its teams, sites, calls from the oldest, waits and failures. The page has
 * been checked (read.h). */
void symm__sight_dump(struct symm_emit *emit, const struct symm_sight_page *page,
                      const struct symm_sight_now *now,
                      const struct symm_sight_process *process);

#endif
